/* Numbers are varints, zigzag where they are signed; the id of a field is a difference to the one before. Values that
 * nobody asked for are passed over, to a stated depth. */
#include "formats/thrift.h"

enum { DEPTH = 24 }; /* of what is passed over */

static void fail(hri_thrift *t) {
  t->failed = true;
  t->next = t->end;
}

static uint8_t byte(hri_thrift *t) {
  if (t->next < t->end) return *t->next++;
  t->at_end = true;
  fail(t);
  return 0;
}

static uint64_t varint(hri_thrift *t) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    uint8_t b = byte(t);
    if (shift < 64) value |= (uint64_t)(b & 127) << shift;
    if (b < 128) return t->failed ? 0 : value;
  }
  fail(t);
  return 0;
}

static int64_t zigzag(hri_thrift *t) {
  uint64_t value = varint(t);
  return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

static void pass(hri_thrift *t, uint64_t count) {
  if ((uint64_t)(t->end - t->next) >= count) {
    t->next += count;
    return;
  }
  t->at_end = true;
  fail(t);
}

bool hri_thrift_field(hri_thrift *t, int32_t *id, hri_thrift_type *type) {
  uint8_t head = byte(t);
  *type = (hri_thrift_type)(head & 15);
  if (t->failed || *type == HRI_THRIFT_STOP) return false;
  *id = head >> 4 ? *id + (head >> 4) : (int32_t)zigzag(t);
  if (*type > HRI_THRIFT_STRUCT || *id < 0 || *id > INT16_MAX) fail(t);
  return !t->failed;
}

int64_t hri_thrift_integer(hri_thrift *t, hri_thrift_type type) {
  if (type == HRI_THRIFT_BYTE) return (int8_t)byte(t);
  if (type >= HRI_THRIFT_I16 && type <= HRI_THRIFT_I64) return zigzag(t);
  fail(t);
  return 0;
}

bool hri_thrift_flag(hri_thrift *t, hri_thrift_type type) {
  if (type != HRI_THRIFT_TRUE && type != HRI_THRIFT_FALSE) fail(t);
  return type == HRI_THRIFT_TRUE;
}

hri_thrift_bytes hri_thrift_binary(hri_thrift *t, hri_thrift_type type) {
  hri_thrift_bytes bytes = {0};
  uint64_t count;
  if (type != HRI_THRIFT_BINARY) fail(t);
  count = varint(t);
  bytes.at = t->next;
  pass(t, count);
  if (!t->failed && count <= UINT32_MAX) bytes.count = (uint32_t)count;
  return bytes;
}

/* An element has a byte at least, so that a count is believed only as far as there are bytes. */
static uint64_t elements(hri_thrift *t, hri_thrift_type *of) {
  uint8_t head = byte(t);
  uint64_t count = head >> 4;
  *of = (hri_thrift_type)(head & 15);
  if (count == 15) count = varint(t);
  if (count > (uint64_t)(t->end - t->next)) {
    t->at_end = true;
    fail(t);
  }
  return t->failed ? 0 : count;
}

uint32_t hri_thrift_list(hri_thrift *t, hri_thrift_type type, hri_thrift_type of) {
  hri_thrift_type is;
  uint64_t count;
  if (type != HRI_THRIFT_LIST) fail(t);
  count = elements(t, &is);
  if (count > UINT32_MAX || (count > 0 && is != of)) fail(t);
  return t->failed ? 0 : (uint32_t)count;
}

bool hri_thrift_struct(hri_thrift *t, hri_thrift_type type) {
  if (type != HRI_THRIFT_STRUCT) fail(t);
  return !t->failed;
}

static void skip(hri_thrift *t, hri_thrift_type type, bool element, int depth);

static void skip_elements(hri_thrift *t, int depth) {
  hri_thrift_type of;
  uint64_t count = elements(t, &of);
  for (uint64_t k = 0; k < count && !t->failed; k++) skip(t, of, true, depth);
}

static void skip_map(hri_thrift *t, int depth) {
  uint64_t count = varint(t);
  uint8_t types = count > 0 ? byte(t) : 0;
  for (uint64_t k = 0; k < count && !t->failed; k++) {
    skip(t, (hri_thrift_type)(types >> 4), true, depth);
    skip(t, (hri_thrift_type)(types & 15), true, depth);
  }
}

static void skip_struct(hri_thrift *t, int depth) {
  int32_t id = 0;
  hri_thrift_type type;
  while (hri_thrift_field(t, &id, &type)) skip(t, type, false, depth);
}

/* A truth value of a field is its type, of a list a byte. */
static void skip(hri_thrift *t, hri_thrift_type type, bool element, int depth) {
  if (depth >= DEPTH) fail(t);
  if (t->failed) return;
  switch (type) {
  case HRI_THRIFT_TRUE:
  case HRI_THRIFT_FALSE: pass(t, element); return;
  case HRI_THRIFT_BYTE: pass(t, 1); return;
  case HRI_THRIFT_I16:
  case HRI_THRIFT_I32:
  case HRI_THRIFT_I64: (void)varint(t); return;
  case HRI_THRIFT_DOUBLE: pass(t, 8); return;
  case HRI_THRIFT_BINARY: pass(t, varint(t)); return;
  case HRI_THRIFT_LIST:
  case HRI_THRIFT_SET: skip_elements(t, depth + 1); return;
  case HRI_THRIFT_MAP: skip_map(t, depth + 1); return;
  case HRI_THRIFT_STRUCT: skip_struct(t, depth + 1); return;
  default: fail(t);
  }
}

void hri_thrift_skip(hri_thrift *t, hri_thrift_type type) { skip(t, type, false, 0); }
