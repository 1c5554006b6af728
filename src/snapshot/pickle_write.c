/* Pickle, in the part of it that PyTorch's viewer understands (its unpickler knows some 30 opcodes): no opcode here
 * that is not in that list, integers of at most 8 bytes, and lists in batches, since the viewer spreads each batch as
 * the arguments of one call.
 *
 * Everything that comes more than once is memoised: keys, strings, frames, and whole lists of frames; places in the
 * memo are given in the order of the stream, as all picklers do. Protocol 4 frames the stream: whole opcodes, at most
 * 64 KiB each, long strings outside. */
#include <string.h>

#include "base/json.h"
#include "snapshot/layout.h"
#include "snapshot/sink.h"

enum { BATCH = 1000, MAX_DEPTH = 8, FRAME_HEADER = 9, LONG_STRING = 1 << 12 };

typedef struct pickle {
  hri_layout_out out; /* first: the calls get the whole */
  const hr_snapshot *s;
  hri_snapshot_sink *sink;
  int protocol;
  unsigned char *piece; /* FRAME_HEADER bytes of room, then opcodes */
  size_t used;
  uint32_t *strings, *frames, *stacks, words[HRI_WORD_COUNT]; /* place in the memo + 1; 0: not yet written */
  uint32_t place_count;
  bool pending;              /* the container that begins next is memoised */
  uint32_t items[MAX_DEPTH]; /* of the open batch, per open list */
  uint32_t depth;
} pickle;

/* ---- opcodes ---- */

static void flush(pickle *p) {
  uint64_t count = p->used - FRAME_HEADER;
  size_t from = FRAME_HEADER;
  if (count == 0) return;
  if (p->protocol >= 4) {
    p->piece[0] = 0x95; /* FRAME */
    for (int k = 0; k < 8; k++) p->piece[1 + k] = (unsigned char)(count >> 8 * k);
    from = 0;
  }
  hri_sink_put(p->sink, p->piece + from, p->used - from);
  p->used = FRAME_HEADER;
}

/* Room for a whole opcode, so that none lies across two frames. */
static unsigned char *room(pickle *p, size_t bytes) {
  unsigned char *at;
  if (p->used + bytes > HRI_SINK_PIECE_BYTES) flush(p);
  at = p->piece + p->used;
  p->used += bytes;
  return at;
}

static void put_op(pickle *p, char op) { *room(p, 1) = (unsigned char)op; }

static void put_bytes(unsigned char *to, uint64_t value, int count) {
  for (int k = 0; k < count; k++) to[k] = (unsigned char)(value >> 8 * k);
}

static void put_op_number(pickle *p, unsigned char op, uint64_t value, int bytes) {
  unsigned char *to = room(p, (size_t)bytes + 1);
  to[0] = op;
  put_bytes(to + 1, value, bytes);
}

/* Memoises what was put last, at the next place. */
static void remember(pickle *p) {
  uint32_t place = p->place_count++;
  if (p->protocol >= 4) put_op(p, (char)0x94);           /* MEMOIZE */
  else if (place < 256) put_op_number(p, 'q', place, 1); /* BINPUT */
  else put_op_number(p, 'r', place, 4);                  /* LONG_BINPUT */
}

/* A reference to what was memoised, if it was; else notes the place that it gets with the next `remember`. */
static bool recall(pickle *p, uint32_t *place_and_one) {
  uint32_t place = *place_and_one - 1;
  if (*place_and_one == 0) {
    *place_and_one = p->place_count + 1;
    return false;
  }
  if (place < 256) put_op_number(p, 'h', place, 1); /* BINGET */
  else put_op_number(p, 'j', place, 4);             /* LONG_BINGET */
  return true;
}

static void put_integer(pickle *p, int64_t value) {
  int bytes = 1;
  unsigned char *to;
  if (value >= 0 && value < 1 << 8) put_op_number(p, 'K', (uint64_t)value, 1);                  /* BININT1 */
  else if (value >= 0 && value < 1 << 16) put_op_number(p, 'M', (uint64_t)value, 2);            /* BININT2 */
  else if (value >= INT32_MIN && value <= INT32_MAX) put_op_number(p, 'J', (uint64_t)value, 4); /* BININT */
  else { /* LONG1: two's complement, as few bytes as keep the sign */
    while (bytes < 8 && (value >> (8 * bytes - 1)) != (value < 0 ? -1 : 0)) bytes++;
    to = room(p, 10);
    to[0] = 0x8a;
    to[1] = (unsigned char)bytes;
    put_bytes(to + 2, (uint64_t)value, bytes);
    p->used -= 8u - (unsigned)bytes;
  }
}

static void put_text(pickle *p, const char *text, uint64_t count) {
  unsigned char header[5] = {'X'}; /* BINUNICODE */
  size_t header_bytes = 5;
  if (p->protocol >= 4 && count < 256) header[0] = 0x8c, header_bytes = 2; /* SHORT_BINUNICODE */
  put_bytes(header + 1, count, (int)header_bytes - 1);
  if (count <= LONG_STRING) {
    unsigned char *to = room(p, header_bytes + count);
    memcpy(to, header, header_bytes);
    memcpy(to + header_bytes, text, count);
    return;
  }
  flush(p);
  hri_sink_put(p->sink, header, header_bytes);
  hri_sink_put(p->sink, text, count);
}

/* Pickled text is UTF-8; what is none becomes U+FFFD, one per byte, as in our JSON. */
static void put_unclean_text(pickle *p, const char *text, uint64_t count) {
  hri_text clean = {0};
  uint64_t at = 0;
  while (at < count) {
    size_t step = hri_utf8_sequence(text + at, (size_t)(count - at));
    if (step) hri_text_add_bytes(&clean, text + at, step);
    else hri_text_add_bytes(&clean, "\xef\xbf\xbd", 3);
    at += step ? step : 1;
  }
  if (clean.failed) hri_sink_fail(p->sink, hri_fail_memory(p->sink->error, count, "a string"));
  else put_text(p, hri_text_get(&clean), clean.length);
  hri_text_deinit(&clean);
}

static bool is_clean(const char *text, uint64_t count) {
  for (uint64_t at = 0; at < count;) {
    size_t step = hri_utf8_sequence(text + at, (size_t)(count - at));
    if (!step) return false;
    at += step;
  }
  return true;
}

/* ---- the calls ---- */

static pickle *self(hri_layout_out *out) { return (pickle *)(void *)out; }

static void begin_container(pickle *p, char op) {
  put_op(p, op);
  if (p->pending) remember(p);
  p->pending = false;
}

static void begin_map(hri_layout_out *out) {
  begin_container(self(out), '}');
  put_op(self(out), '(');
}

static void end_map(hri_layout_out *out) { put_op(self(out), 'u'); }

static void begin_list(hri_layout_out *out) {
  pickle *p = self(out);
  begin_container(p, ']');
  p->items[p->depth++] = 0;
}

static void item(hri_layout_out *out) {
  pickle *p = self(out);
  uint32_t *items = &p->items[p->depth - 1];
  if (*items == BATCH) put_op(p, 'e'), *items = 0; /* APPENDS */
  if ((*items)++ == 0) put_op(p, '(');
}

static void end_list(hri_layout_out *out) {
  pickle *p = self(out);
  if (p->items[--p->depth]) put_op(p, 'e');
}

static void put_word(hri_layout_out *out, hri_word word) {
  pickle *p = self(out);
  if (recall(p, &p->words[word])) return;
  put_text(p, hri_word_text(word), strlen(hri_word_text(word)));
  remember(p);
}

static void put_u64(hri_layout_out *out, uint64_t value) { put_integer(self(out), (int64_t)value); }
static void put_i64(hri_layout_out *out, int64_t value) { put_integer(self(out), value); }
static void put_bool(hri_layout_out *out, bool value) { put_op(self(out), (char)(value ? 0x88 : 0x89)); }

static void put_double(hri_layout_out *out, double value) {
  unsigned char *to = room(self(out), 9);
  uint64_t bits;
  memcpy(&bits, &value, 8);
  to[0] = 'G'; /* BINFLOAT, high byte first */
  for (int k = 0; k < 8; k++) to[1 + k] = (unsigned char)(bits >> (56 - 8 * k));
}

static void put_pair(hri_layout_out *out, uint64_t first, uint64_t second) {
  put_u64(out, first);
  put_u64(out, second);
  put_op(self(out), (char)0x86); /* TUPLE2 */
}

static void put_string(hri_layout_out *out, uint32_t string) {
  pickle *p = self(out);
  const char *text = hr_snapshot_string(p->s, string);
  uint64_t count;
  if (recall(p, &p->strings[string])) return;
  count = strlen(text);
  if (count > UINT32_MAX / 4) {
    hri_sink_fail(p->sink, hri_fail(p->sink->error, HR_ERROR_INPUT, "string %u cannot be written: it has %llu bytes",
                                    (unsigned)string, (unsigned long long)count));
    return;
  }
  if (is_clean(text, count)) put_text(p, text, count);
  else put_unclean_text(p, text, count);
  remember(p);
}

static bool refer(hri_layout_out *out, hri_shared what, uint32_t index) {
  pickle *p = self(out);
  bool known = recall(p, what == HRI_SHARED_FRAME ? &p->frames[index] : &p->stacks[index]);
  p->pending = !known;
  return known;
}

static bool failed(hri_layout_out *out) { return self(out)->sink->status != HR_OK; }

static const hri_layout_out calls = {begin_map, end_map,  begin_list, item,    end_list,
                                     put_word,  put_word, put_u64,    put_i64, put_double,
                                     put_bool,  put_pair, put_string, refer,   failed};

/* ---- the whole ---- */

static hr_status take_memory(pickle *p) {
  const hr_snapshot *s = p->s;
  uint64_t places = (uint64_t)s->string_count + s->frame_count + s->stack_count;
  if (places > UINT32_MAX - HRI_WORD_COUNT - 1)
    return hri_fail(p->sink->error, HR_ERROR_INPUT,
                    "the snapshot has %llu different strings and stacks, too many for a pickle",
                    (unsigned long long)places);
  p->piece = hri_alloc(HRI_SINK_PIECE_BYTES);
  p->strings = hri_alloc_zero(s->string_count, sizeof *p->strings);
  p->frames = hri_alloc_zero(s->frame_count, sizeof *p->frames);
  p->stacks = hri_alloc_zero(s->stack_count, sizeof *p->stacks);
  if (p->piece && p->strings && p->frames && p->stacks) return HR_OK;
  return hri_fail_memory(p->sink->error, places * sizeof *p->strings + HRI_SINK_PIECE_BYTES, "the memo of a pickle");
}

void hri_layout_put_pickle(const hr_snapshot *snapshot, int protocol, hri_snapshot_sink *sink) {
  pickle p = {.out = calls, .s = snapshot, .sink = sink, .protocol = protocol, .used = FRAME_HEADER};
  hr_status status = take_memory(&p);
  if (status == HR_OK) {
    const unsigned char proto[2] = {0x80, (unsigned char)protocol};
    hri_sink_put(sink, proto, 2);
    hri_layout_walk(snapshot, &p.out);
    put_op(&p, '.'); /* STOP */
    flush(&p);
  }
  hri_sink_fail(sink, status);
  hri_free(p.piece);
  hri_free(p.strings);
  hri_free(p.frames);
  hri_free(p.stacks);
}
