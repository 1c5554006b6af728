/* Building goes depth first over the sorted tokens: a node is a range of them that share their first `depth` bytes.
 *
 * Places for the children of a node are looked for among free nodes, from the first that is free on; places that were
 * tried in vain often enough are given up for good (`from` moves on), so that the whole takes about linear time and
 * some nodes stay empty. */
#include "tokenizer/trie.h"

#include <stdlib.h>

enum { BLOCK = 256, TRIES = 64 };
#define FREE HRI_TRIE_NONE
#define NOBODY (HRI_TRIE_NONE - 1)

typedef struct range {
  uint32_t node, begin, end, depth;
} range;

typedef struct builder {
  hri_trie *trie;
  const hri_vocab *vocab;
  const uint32_t *ids;
  uint32_t from; /* no node before it is looked at any more */
  HRI_ARRAY(range) open;
} builder;

typedef struct entry {
  const char *content;
  uint32_t bytes, id;
} entry;

static int compare(const void *left, const void *right) {
  const entry *a = left, *b = right;
  int order = memcmp(a->content, b->content, a->bytes < b->bytes ? a->bytes : b->bytes);
  return order ? order : a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static hr_status sort(const hri_vocab *vocab, uint32_t *ids, uint32_t count, hr_error *error) {
  entry *list = hri_alloc(((uint64_t)count + 1) * sizeof *list);
  if (!list) return hri_fail_memory(error, count * sizeof *list, "the tokens of the tokenizer");
  for (uint32_t i = 0; i < count; i++)
    list[i] = (entry){hri_vocab_content(vocab, ids[i]), vocab->bytes[ids[i]], ids[i]};
  if (count) qsort(list, count, sizeof *list, compare);
  for (uint32_t i = 0; i < count; i++) ids[i] = list[i].id;
  hri_free(list);
  return HR_OK;
}

static hr_status add_block(hri_trie *trie, hr_error *error) {
  if (trie->count > HRI_TRIE_NONE / 2)
    return hri_fail(error, HR_ERROR_INPUT, "the tokens have too many bytes for one vocabulary");
  if (trie->count == trie->capacity) {
    uint64_t capacity = trie->capacity ? 2 * (uint64_t)trie->capacity : 16 * BLOCK;
    hri_trie_node *nodes = hri_realloc(trie->nodes, capacity * sizeof *nodes);
    if (!nodes) return hri_fail_memory(error, capacity * sizeof *nodes, "the tokens of the tokenizer");
    trie->nodes = nodes;
    trie->capacity = (uint32_t)capacity;
  }
  for (uint32_t i = 0; i < BLOCK; i++) trie->nodes[trie->count++] = (hri_trie_node){0, FREE, HRI_TOKEN_NONE};
  return HR_OK;
}

static bool fits(const hri_trie *trie, uint32_t base, const uint8_t *labels, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if ((base ^ labels[i]) >= trie->count || trie->nodes[base ^ labels[i]].parent != FREE) return false;
  return true;
}

/* A base for children with these labels; the root's own place is never given away. */
static hr_status find_base(builder *b, const uint8_t *labels, uint32_t count, uint32_t *base, hr_error *error) {
  hri_trie *trie = b->trie;
  uint32_t tries = 0;
  while (b->from < trie->count && trie->nodes[b->from].parent != FREE) b->from++;
  for (uint32_t at = b->from; at < trie->count; at++) {
    if (trie->nodes[at].parent != FREE) continue;
    *base = at ^ labels[0];
    if (fits(trie, *base, labels, count)) return HR_OK;
    if (++tries == TRIES && count <= 2) b->from = at; /* even few do not fit there: full enough */
    if (tries > 8 * TRIES) break;
  }
  *base = trie->count;
  return add_block(trie, error);
}

/* The children of a range: their labels, and where each begins among the tokens. */
static uint32_t children_of(const builder *b, range *r, uint8_t labels[BLOCK], uint32_t begins[BLOCK + 1]) {
  uint32_t count = 0;
  if (r->begin < r->end && b->vocab->bytes[b->ids[r->begin]] == r->depth) { /* the shortest comes first */
    b->trie->nodes[r->node].id = b->ids[r->begin];
    r->begin++;
  }
  for (uint32_t i = r->begin; i < r->end; i++) {
    uint8_t label = (uint8_t)hri_vocab_content(b->vocab, b->ids[i])[r->depth];
    if (count && labels[count - 1] == label) continue;
    labels[count] = label;
    begins[count++] = i;
  }
  begins[count] = r->end;
  return count;
}

static hr_status build_range(builder *b, range r, hr_error *error) {
  uint8_t labels[BLOCK];
  uint32_t begins[BLOCK + 1], count = children_of(b, &r, labels, begins), base;
  if (count == 0) return HR_OK;
  HRI_TRY(find_base(b, labels, count, &base, error));
  b->trie->nodes[r.node].base = base;
  for (uint32_t i = 0; i < count; i++) {
    range child = {base ^ labels[i], begins[i], begins[i + 1], r.depth + 1};
    b->trie->nodes[child.node].parent = r.node;
    if (!hri_array_push(&b->open, child)) return hri_fail_memory(error, sizeof child, "the tokens of the tokenizer");
  }
  return HR_OK;
}

hr_status hri_trie_build(hri_trie *trie, const hri_vocab *vocab, uint32_t *ids, uint32_t count, hr_error *error) {
  builder b = {.trie = trie, .vocab = vocab, .ids = ids};
  hr_status status;
  HRI_TRY(sort(vocab, ids, count, error));
  HRI_TRY(add_block(trie, error));
  trie->nodes[HRI_TRIE_ROOT].parent = NOBODY; /* taken, and no child */
  status = build_range(&b, (range){HRI_TRIE_ROOT, 0, count, 0}, error);
  while (status == HR_OK && b.open.count) {
    range next = b.open.items[--b.open.count];
    status = build_range(&b, next, error);
  }
  hri_array_free(&b.open);
  return status;
}

void hri_trie_deinit(hri_trie *trie) {
  hri_free(trie->nodes);
  *trie = (hri_trie){0};
}
