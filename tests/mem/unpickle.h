/* An unpickler as strict as PyTorch's viewer, and stricter: it knows the viewer's opcodes only, and fails the test on
 * whatever the rules of docs/snapshots.md forbid. It makes a tree of nodes, shared where the pickle shares. */
#ifndef TEST_UNPICKLE_H
#define TEST_UNPICKLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef enum node_kind {
  NODE_NONE,
  NODE_BOOL,
  NODE_INT,
  NODE_DOUBLE,
  NODE_TEXT,
  NODE_LIST,
  NODE_TUPLE,
  NODE_MAP
} node_kind;

typedef struct node node;
struct node {
  node_kind kind;
  int64_t integer;
  double real;
  const char *text; /* NODE_TEXT: its bytes in the pickle */
  uint32_t text_bytes;
  node **items; /* NODE_MAP: key, value, key, value, ... */
  uint32_t count, capacity;
};

typedef struct unpickled {
  node *root;
  int protocol;
  uint64_t opcode_counts[256];
  uint64_t frame_bytes; /* in the largest FRAME */
  uint64_t largest_batch;
  uint64_t map_count; /* maps made (a shared one counts once) */
  node **all;
  uint32_t all_count, all_capacity;
} unpickled;

typedef struct unpickler {
  const unsigned char *next, *end, *frame_end; /* frame_end NULL: outside of frames */
  unpickled *result;
  node **stack, **memo;
  uint32_t depth, *marks, mark_depth, memo_count, memo_capacity;
} unpickler;

static inline void node_push(node ***items, uint32_t *count, uint32_t *capacity, node *item) {
  if (*count == *capacity) {
    *capacity = *capacity ? *capacity * 2 : 8;
    *items = realloc(*items, *capacity * sizeof **items);
    assert_non_null(*items);
  }
  (*items)[(*count)++] = item;
}

static inline node *node_new(unpickler *u, node_kind kind) {
  node *n = calloc(1, sizeof *n);
  assert_non_null(n);
  n->kind = kind;
  node_push(&u->result->all, &u->result->all_count, &u->result->all_capacity, n);
  if (kind == NODE_MAP) u->result->map_count++;
  assert_true(u->depth < 4096);
  return u->stack[u->depth++] = n;
}

/* The next bytes; an opcode and its argument may not lie across the end of a frame. */
static inline const unsigned char *take_bytes(unpickler *u, uint64_t count) {
  const unsigned char *at = u->next;
  assert_true((uint64_t)(u->end - at) >= count);
  if (u->frame_end) assert_true(at + count <= u->frame_end);
  u->next += count;
  return at;
}

static inline uint64_t take_number(unpickler *u, int bytes) {
  const unsigned char *at = take_bytes(u, (uint64_t)bytes);
  uint64_t value = 0;
  for (int k = 0; k < bytes; k++) value |= (uint64_t)at[k] << 8 * k;
  return value;
}

static inline node *pop(unpickler *u) {
  assert_true(u->depth > 0);
  return u->stack[--u->depth];
}

static inline void memo_put(unpickler *u, uint32_t place) {
  assert_true(place < 1u << 26 && u->depth > 0);
  if (place >= u->memo_capacity) {
    uint32_t wider = (place + 1) * 2;
    u->memo = realloc(u->memo, wider * sizeof *u->memo);
    assert_non_null(u->memo);
    u->memo_capacity = wider;
  }
  assert_int_equal(place, u->memo_count++); /* in the order of the stream, each once */
  u->memo[place] = u->stack[u->depth - 1];
}

static inline void memo_get(unpickler *u, uint32_t place) {
  assert_true(place < u->memo_count);
  assert_true(u->depth < 4096);
  u->stack[u->depth++] = u->memo[place];
}

static inline void take_text(unpickler *u, uint64_t count) {
  const char *bytes = (const char *)take_bytes(u, count);
  node *n = node_new(u, NODE_TEXT);
  n->text = bytes;
  n->text_bytes = (uint32_t)count;
}

/* At most 8 bytes, no more than needed, and exact in a double. */
static inline void take_long1(unpickler *u) {
  uint64_t count = take_number(u, 1), value;
  assert_in_range(count, 4, 8); /* less fits the other integers */
  value = take_number(u, (int)count);
  if (count < 8 && value >> (8 * count - 1)) value |= ~(uint64_t)0 << 8 * count;
  assert_true((int64_t)value < (int64_t)1 << 53 && (int64_t)value > -((int64_t)1 << 53));
  assert_true((int64_t)value > INT32_MAX || (int64_t)value < INT32_MIN);
  node_new(u, NODE_INT)->integer = (int64_t)value;
}

static inline void take_items(unpickler *u, node_kind kind) {
  uint32_t mark = u->marks[--u->mark_depth], count = u->depth - mark;
  node *to;
  assert_true(mark > 0 && mark <= u->depth && count > 0);
  to = u->stack[mark - 1];
  assert_int_equal(to->kind, kind);
  if (kind == NODE_MAP) assert_int_equal(count % 2, 0);
  else if (count > u->result->largest_batch) u->result->largest_batch = count;
  for (uint32_t k = 0; k < count; k++) node_push(&to->items, &to->count, &to->capacity, u->stack[mark + k]);
  u->depth = mark;
}

static inline void take_frame(unpickler *u) {
  uint64_t bytes = take_number(u, 8);
  assert_null(u->frame_end);
  assert_true(u->result->protocol >= 4 && bytes > 0 && bytes <= (uint64_t)(u->end - u->next));
  u->frame_end = u->next + bytes;
  if (bytes > u->result->frame_bytes) u->result->frame_bytes = bytes;
}

static inline void take_tuple2(unpickler *u) {
  node *second = pop(u), *first = pop(u), *n = node_new(u, NODE_TUPLE);
  node_push(&n->items, &n->count, &n->capacity, first);
  node_push(&n->items, &n->count, &n->capacity, second);
}

static inline void take_double(unpickler *u) {
  const unsigned char *at = take_bytes(u, 8);
  uint64_t bits = 0;
  for (int k = 0; k < 8; k++) bits = bits << 8 | at[k];
  memcpy(&node_new(u, NODE_DOUBLE)->real, &bits, 8);
}

static inline bool take_opcode(unpickler *u) {
  unsigned char op;
  if (u->frame_end == u->next) u->frame_end = NULL;
  op = take_bytes(u, 1)[0];
  u->result->opcode_counts[op]++;
  switch (op) {
  case '}': node_new(u, NODE_MAP); break;
  case ']': node_new(u, NODE_LIST); break;
  case '(':
    u->marks[u->mark_depth++] = u->depth;
    assert_true(u->mark_depth < 64);
    break;
  case 'u': take_items(u, NODE_MAP); break;
  case 'e': take_items(u, NODE_LIST); break;
  case 'K': node_new(u, NODE_INT)->integer = (int64_t)take_number(u, 1); break;
  case 'M': node_new(u, NODE_INT)->integer = (int64_t)take_number(u, 2); break;
  case 'J': node_new(u, NODE_INT)->integer = (int32_t)take_number(u, 4); break;
  case 0x8a: take_long1(u); break;
  case 0x8c:
    assert_true(u->result->protocol >= 4);
    take_text(u, take_number(u, 1));
    break;
  case 'X': take_text(u, take_number(u, 4)); break;
  case 0x88:
  case 0x89: node_new(u, NODE_BOOL)->integer = op == 0x88; break;
  case 'G': take_double(u); break;
  case 0x86: take_tuple2(u); break;
  case 'q': memo_put(u, (uint32_t)take_number(u, 1)); break;
  case 'r': memo_put(u, (uint32_t)take_number(u, 4)); break;
  case 'h': memo_get(u, (uint32_t)take_number(u, 1)); break;
  case 'j': memo_get(u, (uint32_t)take_number(u, 4)); break;
  case 0x94:
    assert_true(u->result->protocol >= 4);
    memo_put(u, u->memo_count);
    break;
  case 0x95: take_frame(u); break;
  case '.': return false;
  default:
    fail_msg("opcode %#x, %ld bytes before the end, is not one of the viewer's", op, (long)(u->end - u->next) + 1);
  }
  return true;
}

static inline unpickled unpickle(const void *bytes, uint64_t count) {
  unpickled result = {0};
  unpickler u = {.next = bytes, .end = (const unsigned char *)bytes + count, .result = &result};
  u.stack = calloc(4096, sizeof *u.stack);
  u.marks = calloc(64, sizeof *u.marks);
  assert_int_equal(take_number(&u, 1), 0x80); /* PROTO comes first, outside of frames */
  result.protocol = (int)take_number(&u, 1);
  while (take_opcode(&u)) continue;
  assert_ptr_equal(u.next, u.end);
  if (u.frame_end) assert_ptr_equal(u.frame_end, u.end);
  assert_int_equal(u.mark_depth, 0);
  result.root = pop(&u);
  assert_int_equal(u.depth, 0);
  free(u.stack);
  free(u.marks);
  free(u.memo);
  return result;
}

static inline void unpickled_free(unpickled *u) {
  for (uint32_t k = 0; k < u->all_count; k++) free(u->all[k]->items), free(u->all[k]);
  free(u->all);
}

static inline bool text_is(const node *n, const char *text) {
  return n->kind == NODE_TEXT && n->text_bytes == strlen(text) && memcmp(n->text, text, n->text_bytes) == 0;
}

/* A member of a map, or NULL; a key stands once. */
static inline node *find(const node *map, const char *key) {
  node *found = NULL;
  assert_int_equal(map->kind, NODE_MAP);
  for (uint32_t k = 0; k < map->count; k += 2)
    if (text_is(map->items[k], key)) {
      assert_null(found);
      found = map->items[k + 1];
    }
  return found;
}

static inline node *get(const node *map, const char *key) {
  node *found = find(map, key);
  if (!found) fail_msg("there is no '%s'", key);
  return found;
}

static inline int64_t get_int(const node *map, const char *key) {
  node *n = get(map, key);
  assert_int_equal(n->kind, NODE_INT);
  return n->integer;
}

#endif
