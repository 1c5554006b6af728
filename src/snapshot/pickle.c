/* A pickle is a program for a stack machine. This one knows only the opcodes that make plain values (protocols 0 to 5,
 * also as TorchScript's pickler writes them); every opcode that would look up or call something is refused by name.
 *
 * The hot loop is for what a trace consists of: memo references (40 frames per event), small integers, marks. */
#include <stdio.h>
#include <string.h>

#include "snapshot/reader.h"

typedef struct machine {
  hri_snapshot_decoder *d;
  hri_snapshot_source *s;
  hri_values marks; /* heights of the stack */
} machine;

/* The payload of an UNFINISHED memo slot: NEVER_STORED, or where on the stack the container is. */
enum { NEVER_STORED = 0, FIRST_PLACE = 1, WINDOW_SLACK = 16 };

/* Bytes of the fixed part behind each opcode. */
static const uint8_t argument_bytes[256] =
    {['J'] = 4,  ['K'] = 1,  ['M'] = 2,  ['h'] = 1,  ['j'] = 4,  ['q'] = 1,  ['r'] = 4,
     ['G'] = 8,  ['T'] = 4,  ['U'] = 1,  ['X'] = 4,  ['B'] = 4,  ['C'] = 1,  [0x80] = 1,
     [0x8a] = 1, [0x8b] = 4, [0x8c] = 1, [0x8d] = 8, [0x8e] = 8, [0x95] = 8, [0x96] = 8};

static inline uint32_t load_32(const unsigned char *p) {
  return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t little_endian(const unsigned char *p, unsigned bytes) {
  uint64_t value = 0;
  for (unsigned k = 0; k < bytes; k++) value |= (uint64_t)p[k] << 8 * k;
  return value;
}

static hr_status truncated(machine *m) {
  return hri_snapshot_decoder_fail(m->d, "the pickle ends in the middle; it lacks its STOP opcode");
}

static uint64_t floor_of(const machine *m) { return m->marks.count ? m->marks.items[m->marks.count - 1] : 0; }

static hr_status need(machine *m, uint64_t values, const char *what) {
  if (m->d->stack.count - floor_of(m) >= values) return HR_OK;
  return hri_snapshot_decoder_fail(m->d, "%s needs %llu values on the stack; there are %llu", what,
                                   (unsigned long long)values, (unsigned long long)(m->d->stack.count - floor_of(m)));
}

static inline hr_status push(machine *m, hri_decoded v) {
  return hri_values_push(&m->d->stack, v) ? HR_OK : hri_snapshot_decoder_fail_memory(m->d);
}

/* ---- memo ---- */

static hr_status store(machine *m, uint64_t index) {
  hri_snapshot_decoder *d = m->d;
  hri_decoded *top, stored;
  hri_value_tag tag;
  HRI_TRY(need(m, 1, "storing in the memo"));
  if (index > d->at)
    return hri_snapshot_decoder_fail(d, "memo slot %llu is beyond all that can have been stored",
                                     (unsigned long long)index);
  while (d->memo.count <= index)
    if (!hri_values_push(&d->memo, hri_value_make(HRI_VALUE_UNFINISHED, NEVER_STORED)))
      return hri_snapshot_decoder_fail_memory(d);
  top = &d->stack.items[d->stack.count - 1];
  stored = *top;
  tag = hri_value_tag_of(*top);
  if (tag >= HRI_VALUE_NEW_LIST && tag <= HRI_VALUE_OPEN_DICT) {
    bool fresh = tag == HRI_VALUE_NEW_LIST || tag == HRI_VALUE_NEW_DICT;
    uint64_t *memo = fresh ? NULL : &d->open[hri_value_payload(*top)].memo;
    if (fresh ? hri_value_payload(*top) != 0 : *memo != 0)
      return hri_snapshot_decoder_fail(d, "a container is stored in the memo twice before it is complete");
    if (fresh) *top = hri_value_make(tag, index + 1);
    else *memo = index + 1;
    stored = hri_value_make(HRI_VALUE_UNFINISHED, FIRST_PLACE + d->stack.count - 1);
  }
  d->memo.items[index] = stored;
  return HR_OK;
}

/* A container may be referred to before it is part of another one: a segment and its first block share their frames,
 * and the segment's lie on the stack while the block is read. So it is finished now. If it was not complete (it is
 * being put into itself), the next thing added to it fails. */
static hr_status settle(machine *m, uint64_t index) {
  hri_snapshot_decoder *d = m->d;
  uint64_t place = hri_value_payload(d->memo.items[index]);
  hri_decoded *v =
      place >= FIRST_PLACE && place - FIRST_PLACE < d->stack.count ? &d->stack.items[place - FIRST_PLACE] : NULL;
  hri_value_tag tag = v ? hri_value_tag_of(*v) : HRI_VALUE_NONE;
  uint64_t memo = 0;
  if (tag == HRI_VALUE_NEW_LIST || tag == HRI_VALUE_NEW_DICT) memo = hri_value_payload(*v);
  if (tag == HRI_VALUE_OPEN_LIST || tag == HRI_VALUE_OPEN_DICT) memo = d->open[hri_value_payload(*v)].memo;
  if (memo != index + 1)
    return hri_snapshot_decoder_fail(d, "memo slot %llu is used but holds nothing", (unsigned long long)index);
  return hri_value_finish(d, v, HRI_KEY_NONE);
}

static hr_status fetch(machine *m, uint64_t index) {
  hri_snapshot_decoder *d = m->d;
  d->at = hri_snapshot_source_offset(m->s);
  if (index >= d->memo.count)
    return hri_snapshot_decoder_fail(d, "memo slot %llu is used but was never stored", (unsigned long long)index);
  if (hri_value_tag_of(d->memo.items[index]) == HRI_VALUE_UNFINISHED) HRI_TRY(settle(m, index));
  return push(m, d->memo.items[index]);
}

/* References come in runs: the frames of a stack. The first one is in the window whole. A run stops at what needs care
 * (`fetch` gives it, or the error); everything it touches is in locals, for stores to the stack could change the
 * rest. */
static hr_status fetch_run(machine *m) {
  hri_snapshot_decoder *d = m->d;
  const unsigned char *p = m->s->next, *const end = m->s->end;
  const hri_decoded *const memo = d->memo.items;
  const uint64_t stored = d->memo.count, room = d->stack.capacity - d->stack.count;
  hri_decoded *const to = d->stack.items + d->stack.count;
  uint64_t count = 0;
  for (; end - p >= 5 && (*p == 'j' || *p == 'h') && count < room; count++) {
    const bool wide = *p == 'j';
    const uint64_t index = wide ? load_32(p + 1) : p[1];
    if (index >= stored || hri_value_tag_of(memo[index]) == HRI_VALUE_UNFINISHED) break;
    to[count] = memo[index];
    p += wide ? 5 : 2;
  }
  d->stack.count += count;
  m->s->next = p;
  if (count) return HR_OK;
  HRI_TRY(fetch(m, *p == 'j' ? load_32(p + 1) : p[1]));
  m->s->next += *p == 'j' ? 5 : 2;
  return HR_OK;
}

/* LONG1 of at most 8 bytes, which with 8 readable bytes behind its length needs no loop. */
static hr_status push_long(machine *m, const unsigned char *p) {
  const unsigned bits = 8u * *p;
  uint64_t value = load_32(p + 1) | (uint64_t)load_32(p + 5) << 32;
  hri_decoded v;
  value = bits ? (uint64_t)((int64_t)(value << (64 - bits)) >> (64 - bits)) : 0;
  HRI_TRY(hri_value_of_integer(m->d, value, (int64_t)value < 0, &v));
  m->s->next = p + 1 + *p;
  return push(m, v);
}

/* ---- what takes values from the stack ---- */

/* The topmost mark is taken away; *height is where it was. */
static hr_status take_mark(machine *m, uint64_t below, const char *what, uint64_t *height) {
  if (!m->marks.count) return hri_snapshot_decoder_fail(m->d, "%s finds no MARK", what);
  *height = m->marks.items[--m->marks.count];
  if (*height - floor_of(m) < below) return hri_snapshot_decoder_fail(m->d, "%s finds nothing below its MARK", what);
  return HR_OK;
}

static hr_status set_items(machine *m, uint64_t height, const char *what) {
  hri_values *stack = &m->d->stack;
  uint64_t count = stack->count - height;
  if (count % 2) return hri_snapshot_decoder_fail(m->d, "%s has a key without a value", what);
  HRI_TRY(hri_dict_add(m->d, &stack->items[height - 1], stack->items + height, count / 2));
  stack->count = height;
  return HR_OK;
}

static hr_status append_items(machine *m, uint64_t height) {
  hri_values *stack = &m->d->stack;
  HRI_TRY(hri_list_append(m->d, &stack->items[height - 1], stack->items + height, stack->count - height));
  stack->count = height;
  return HR_OK;
}

static hr_status make_tuple(machine *m, uint64_t height) {
  hri_values *stack = &m->d->stack;
  hri_decoded made;
  for (uint64_t k = height; k < stack->count; k++) HRI_TRY(hri_value_finish(m->d, &stack->items[k], HRI_KEY_NONE));
  HRI_TRY(hri_value_of_tuple(m->d, stack->items + height, stack->count - height, &made));
  stack->count = height;
  return push(m, made);
}

static void drop_to(machine *m, uint64_t height) {
  hri_values *stack = &m->d->stack;
  while (stack->count > height) hri_value_drop(m->d, stack->items[--stack->count]);
}

/* `l` and `d` of protocol 0: a container of everything above the mark. */
static hr_status make_container(machine *m, bool list) {
  hri_values *stack = &m->d->stack;
  hri_decoded made = list ? HRI_VALUE_NEW_LIST : HRI_VALUE_NEW_DICT;
  uint64_t height = 0;
  HRI_TRY(take_mark(m, 0, list ? "LIST" : "DICT", &height));
  if (!list && (stack->count - height) % 2) return hri_snapshot_decoder_fail(m->d, "DICT has a key without a value");
  HRI_TRY(list ? hri_list_append(m->d, &made, stack->items + height, stack->count - height)
               : hri_dict_add(m->d, &made, stack->items + height, (stack->count - height) / 2));
  stack->count = height;
  return push(m, made);
}

static hr_status duplicate(machine *m) {
  hri_decoded v;
  hri_value_tag tag;
  HRI_TRY(need(m, 1, "DUP"));
  v = m->d->stack.items[m->d->stack.count - 1];
  tag = hri_value_tag_of(v);
  if (tag >= HRI_VALUE_NEW_LIST && tag <= HRI_VALUE_OPEN_DICT)
    return hri_snapshot_decoder_fail(m->d, "DUP of a container that is not complete");
  return push(m, v);
}

static hr_status step_stack(machine *m, int op) {
  hri_values *stack = &m->d->stack;
  uint64_t height = 0;
  switch (op) {
  case '0':
    if (m->marks.count && stack->count == floor_of(m)) return m->marks.count--, HR_OK;
    HRI_TRY(need(m, 1, "POP"));
    return drop_to(m, stack->count - 1), HR_OK;
  case '1': HRI_TRY(take_mark(m, 0, "POP_MARK", &height)); return drop_to(m, height), HR_OK;
  case '2': return duplicate(m);
  case 'a': HRI_TRY(need(m, 2, "APPEND")); return append_items(m, stack->count - 1);
  case 's': HRI_TRY(need(m, 3, "SETITEM")); return set_items(m, stack->count - 2, "SETITEM");
  case 'l': return make_container(m, true);
  case 'd': return make_container(m, false);
  case 't': HRI_TRY(take_mark(m, 0, "TUPLE", &height)); return make_tuple(m, height);
  case 0x85:
  case 0x86:
  case 0x87: HRI_TRY(need(m, (uint64_t)op - 0x84, "TUPLE")); return make_tuple(m, stack->count - (uint64_t)(op - 0x84));
  case 0x90: HRI_TRY(take_mark(m, 1, "ADDITEMS", &height)); return drop_to(m, height), HR_OK;
  default: HRI_TRY(take_mark(m, 0, "FROZENSET", &height)); return drop_to(m, height), push(m, HRI_VALUE_OPAQUE);
  }
}

/* ---- refused ---- */

static const char *refused_name(int op) {
  switch (op) {
  case 'c': return "GLOBAL";
  case 'R': return "REDUCE";
  case 'b': return "BUILD";
  case 'i': return "INST";
  case 'o': return "OBJ";
  case 'P': return "PERSID";
  case 'Q': return "BINPERSID";
  case 0x81: return "NEWOBJ";
  case 0x82: return "EXT1";
  case 0x83: return "EXT2";
  case 0x84: return "EXT4";
  case 0x92: return "NEWOBJ_EX";
  case 0x93: return "STACK_GLOBAL";
  case 0x97: return "NEXT_BUFFER";
  case 0x98: return "READONLY_BUFFER";
  default: return NULL;
  }
}

static void name_of_global(const machine *m, int op, char out[100]) {
  const hri_values *stack = &m->d->stack;
  const hr_snapshot *s = m->d->builder.snapshot;
  out[0] = 0;
  if ((op == 'c' || op == 'i') && m->s->end - m->s->next > 1) {
    uint64_t count = (uint64_t)(m->s->end - m->s->next) - 1, k;
    for (k = 0; k < count && k < 60 && m->s->next[1 + k] >= ' ' && m->s->next[1 + k] < 0x7f; k++) continue;
    (void)snprintf(out, 100, " of the module '%.*s'", (int)k, (const char *)m->s->next + 1);
  } else if (op == 0x93 && stack->count >= 2 && hri_value_tag_of(stack->items[stack->count - 2]) == HRI_VALUE_STRING &&
             hri_value_tag_of(stack->items[stack->count - 1]) == HRI_VALUE_STRING) {
    (void)snprintf(out, 100, " of '%.40s.%.40s'",
                   hr_snapshot_string(s, (uint32_t)hri_value_payload(stack->items[stack->count - 2])),
                   hr_snapshot_string(s, (uint32_t)hri_value_payload(stack->items[stack->count - 1])));
  }
}

static hr_status refuse(machine *m, int op) {
  const char *name = refused_name(op);
  char global[100];
  hr_status code;
  if (!name) return hri_snapshot_decoder_fail(m->d, "0x%02x is no opcode of a pickle", (unsigned)op);
  name_of_global(m, op, global);
  code = hri_snapshot_decoder_fail(
      m->d, "the opcode %s%s asks to run code; nothing of it was run, and a memory snapshot needs none", name, global);
  return hri_hint(
      m->d->error, code,
      "unpickle such a file only if you trust who made it; as a snapshot, take one with torch.cuda.memory._dump_snapshot");
}

/* ---- what has text or bytes behind it ---- */

/* A counted string or byte string: `head` bytes of opcode and length. */
static hr_status read_counted(machine *m, uint64_t head, bool number) {
  uint64_t count = little_endian(m->s->next + 1, (unsigned)head - 1);
  const unsigned char *p;
  hri_decoded v = HRI_VALUE_OPAQUE;
  if (number && head == 5 && count > INT32_MAX) return hri_snapshot_decoder_fail(m->d, "LONG4 of a negative length");
  if (count > UINT64_MAX / 2) return truncated(m);
  HRI_TRY(hri_snapshot_source_want(m->s, head + count, m->d->error));
  if ((uint64_t)(m->s->end - m->s->next) < head + count) return truncated(m);
  p = m->s->next + head;
  if (!number) {
    HRI_TRY(hri_value_of_string(m->d, (const char *)p, count, &v));
  } else if (count <= 8) {
    uint64_t bits = little_endian(p, (unsigned)count);
    bool negative = count && p[count - 1] & 0x80;
    if (negative && count < 8) bits |= UINT64_MAX << 8 * count;
    HRI_TRY(hri_value_of_integer(m->d, bits, negative, &v));
  } else if (count == 9 && p[8] == 0) {
    HRI_TRY(hri_value_of_integer(m->d, little_endian(p, 8), false, &v));
  }
  m->s->next = p + count;
  return push(m, v);
}

static hr_status read_line(machine *m, int op) {
  const char *line;
  const void *end;
  uint64_t have;
  hri_decoded v;
  for (;;) {
    have = (uint64_t)(m->s->end - m->s->next);
    line = (const char *)m->s->next + 1;
    end = have > 1 ? memchr(line, '\n', have - 1) : NULL;
    if (end) break;
    if (m->s->done) return truncated(m);
    HRI_TRY(hri_snapshot_source_want(m->s, have < 32 ? 64 : 2 * have, m->d->error));
    if ((uint64_t)(m->s->end - m->s->next) == have) /* twice was more than the file */
      HRI_TRY(hri_snapshot_source_want(m->s, have + 1, m->d->error));
    if ((uint64_t)(m->s->end - m->s->next) == have) return truncated(m);
  }
  have = (uint64_t)((const char *)end - line);
  HRI_TRY(hri_read_pickle_text(m->d, op, line, have, &v));
  m->s->next = (const unsigned char *)end + 1;
  if (op != 'g' && op != 'p') return push(m, v);
  return op == 'g' ? fetch(m, hri_value_payload(v)) : store(m, hri_value_payload(v));
}

static hr_status read_real(machine *m) {
  uint64_t bits = 0;
  double real;
  hri_decoded v;
  for (int k = 0; k < 8; k++) bits = bits << 8 | m->s->next[1 + k];
  memcpy(&real, &bits, 8);
  HRI_TRY(hri_value_of_real(m->d, real, &v));
  m->s->next += 9;
  return push(m, v);
}

/* Everything but the hot opcodes; m->s->next is at the opcode, all of its fixed part is there. */
static hr_status step(machine *m, int op) {
  switch (op) {
  case 'X':
  case 'T':
  case 'B': return read_counted(m, 5, false);
  case 'U':
  case 'C':
  case 0x8c: return read_counted(m, 2, false);
  case 0x8d:
  case 0x8e:
  case 0x96: return read_counted(m, 9, false);
  case 0x8a: return read_counted(m, 2, true);
  case 0x8b: return read_counted(m, 5, true);
  case 'I':
  case 'L':
  case 'F':
  case 'S':
  case 'V':
  case 'g':
  case 'p': return read_line(m, op);
  case 'G': return read_real(m);
  case 0x80:
    if (m->s->next[1] > 5)
      return hri_snapshot_decoder_fail(m->d, "pickle protocol %d; 0 to 5 are known", m->s->next[1]);
    break;
  case 0x95: break;
  case ')':
  case 0x8f: HRI_TRY(push(m, HRI_VALUE_OPAQUE)); break; /* an empty tuple, an empty set */
  case '0':
  case '1':
  case '2':
  case 'a':
  case 's':
  case 'l':
  case 'd':
  case 't':
  case 0x85:
  case 0x86:
  case 0x87:
  case 0x90:
  case 0x91: HRI_TRY(step_stack(m, op)); break;
  default: return refuse(m, op);
  }
  m->s->next += 1 + argument_bytes[op];
  return HR_OK;
}

/* ---- the loop ---- */

/* Brings the next opcode and its fixed part into the window. */
static hr_status next_opcode(machine *m, int *op) {
  if (m->s->end - m->s->next < WINDOW_SLACK) {
    HRI_TRY(hri_snapshot_source_want(m->s, WINDOW_SLACK, m->d->error));
    m->d->at = hri_snapshot_source_offset(m->s);
    if (m->s->next == m->s->end || m->s->end - m->s->next < 1 + argument_bytes[*m->s->next]) return truncated(m);
  }
  *op = *m->s->next;
  m->d->at = hri_snapshot_source_offset(m->s);
  return HR_OK;
}

static hr_status run(machine *m, hri_decoded *whole) {
  hri_snapshot_decoder *d = m->d;
  hri_decoded v;
  uint64_t height = 0;
  int op = 0;
  for (;;) {
    const unsigned char *p;
    HRI_TRY(next_opcode(m, &op));
    p = m->s->next + 1;
    switch (op) {
    case 'j':
    case 'h': HRI_TRY(fetch_run(m)); continue;
    case 0x8a:
      if (*p > 8 || m->s->end - p < 9) HRI_TRY(step(m, op));
      else HRI_TRY(push_long(m, p));
      continue;
    case 0x94: HRI_TRY(store(m, d->memo.count)); break;
    case 'q': HRI_TRY(store(m, *p)); break;
    case 'r': HRI_TRY(store(m, load_32(p))); break;
    case 'K': HRI_TRY(push(m, hri_value_make(HRI_VALUE_INT, *p))); break;
    case 'M': HRI_TRY(push(m, hri_value_make(HRI_VALUE_INT, p[0] | (uint32_t)p[1] << 8))); break;
    case 'J':
      HRI_TRY(hri_value_of_integer(d, (uint64_t)(int64_t)(int32_t)load_32(p), p[3] & 0x80, &v));
      HRI_TRY(push(m, v));
      break;
    case 'N': HRI_TRY(push(m, HRI_VALUE_NONE)); break;
    case 0x88: HRI_TRY(push(m, hri_value_make(HRI_VALUE_BOOL, 1))); break;
    case 0x89: HRI_TRY(push(m, hri_value_make(HRI_VALUE_BOOL, 0))); break;
    case ']': HRI_TRY(push(m, HRI_VALUE_NEW_LIST)); break;
    case '}': HRI_TRY(push(m, HRI_VALUE_NEW_DICT)); break;
    case '(':
      if (!hri_values_push(&m->marks, d->stack.count)) return hri_snapshot_decoder_fail_memory(d);
      break;
    case 'e':
      HRI_TRY(take_mark(m, 1, "APPENDS", &height));
      HRI_TRY(append_items(m, height));
      break;
    case 'u':
      HRI_TRY(take_mark(m, 1, "SETITEMS", &height));
      HRI_TRY(set_items(m, height, "SETITEMS"));
      break;
    case '.':
      HRI_TRY(need(m, 1, "STOP"));
      *whole = d->stack.items[d->stack.count - 1];
      m->s->next++;
      return HR_OK;
    default: HRI_TRY(step(m, op)); continue;
    }
    m->s->next += 1 + argument_bytes[op];
  }
}

hr_status hri_read_pickle(hri_snapshot_decoder *d, hri_snapshot_source *source, hri_decoded *whole) {
  machine m = {.d = d, .s = source};
  hr_status status = run(&m, whole);
  hri_free(m.marks.items);
  return status;
}
