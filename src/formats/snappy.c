/* A block is a length and then elements: literals, and copies of what was unpacked already, at a distance. Every
 * length and distance is checked against both ends before a byte moves. */
#include "formats/snappy.h"

#include <string.h>

typedef struct block {
  const uint8_t *next, *end;
  uint8_t *to;
  size_t made, bytes;
} block;

/* The next `count` bytes as a little-endian number. */
static bool take(block *b, size_t count, uint32_t *value) {
  if ((size_t)(b->end - b->next) < count) return false;
  *value = 0;
  for (size_t i = 0; i < count; i++) *value |= (uint32_t)b->next[i] << 8 * i;
  b->next += count;
  return true;
}

/* The length of the whole: seven bits a byte, the lowest first. */
static bool take_length(block *b, uint64_t *length) {
  *length = 0;
  for (unsigned shift = 0; shift < 35; shift += 7) {
    uint32_t byte;
    if (!take(b, 1, &byte)) return false;
    *length |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

static bool literal(block *b, uint32_t tag) {
  uint32_t length = tag >> 2;
  if (length >= 60 && !take(b, length - 59, &length)) return false;
  if ((size_t)(b->end - b->next) <= length || b->bytes - b->made <= length) return false;
  memcpy(b->to + b->made, b->next, (size_t)length + 1);
  b->made += (size_t)length + 1;
  b->next += (size_t)length + 1;
  return true;
}

/* What was made `distance` bytes before, again; it may run into itself. */
static bool copy(block *b, uint32_t distance, uint32_t length) {
  if (distance == 0 || distance > b->made || b->bytes - b->made < length) return false;
  for (uint32_t i = 0; i < length; i++, b->made++) b->to[b->made] = b->to[b->made - distance];
  return true;
}

static bool element(block *b) {
  uint32_t tag, distance;
  if (!take(b, 1, &tag)) return false;
  switch (tag & 3) {
  case 0: return literal(b, tag);
  case 1: return take(b, 1, &distance) && copy(b, distance | (tag >> 5) << 8, 4 + (tag >> 2 & 7));
  case 2: return take(b, 2, &distance) && copy(b, distance, 1 + (tag >> 2));
  default: return take(b, 4, &distance) && copy(b, distance, 1 + (tag >> 2));
  }
}

bool hri_snappy_unpack(const uint8_t *from, size_t count, uint8_t *to, size_t bytes) {
  block b = {.next = from, .end = from + count, .to = to, .bytes = bytes};
  uint64_t length;
  if (!take_length(&b, &length) || length != bytes) return false;
  while (b.next < b.end)
    if (!element(&b)) return false;
  return b.made == bytes;
}
