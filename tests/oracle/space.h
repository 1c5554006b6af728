/* Addresses of a device that is none: the lowest gap that fits, in a space of its own for each kind. The fake device hands them out by
 * it (fake_cuda.c), and the test that plays its recordings again finds the same ones by it (tests/mem/test_alloc_oracle.c). */
#ifndef HR_ORACLE_SPACE_H
#define HR_ORACLE_SPACE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct space_range {
  uint64_t address, size;
} space_range;

typedef struct space {
  uint64_t base;
  space_range *ranges; /* by address */
  size_t count, capacity;
} space;

static inline uint64_t space_take(space *s, uint64_t size) {
  uint64_t address = s->base;
  size_t i = 0;
  if (s->count == s->capacity) {
    s->capacity = s->capacity ? s->capacity * 2 : 64;
    s->ranges = (space_range *)realloc(s->ranges, s->capacity * sizeof *s->ranges);
    if (!s->ranges) abort();
  }
  while (i < s->count && s->ranges[i].address - address < size) {
    address = s->ranges[i].address + s->ranges[i].size;
    i++;
  }
  memmove(s->ranges + i + 1, s->ranges + i, (s->count - i) * sizeof *s->ranges);
  s->ranges[i] = (space_range){address, size};
  s->count++;
  return address;
}

/* The bytes that were at `address`, 0 for an unknown one. */
static inline uint64_t space_give_back(space *s, uint64_t address) {
  for (size_t i = 0; i < s->count; i++) {
    uint64_t size = s->ranges[i].size;
    if (s->ranges[i].address != address) continue;
    s->count--;
    memmove(s->ranges + i, s->ranges + i + 1, (s->count - i) * sizeof *s->ranges);
    return size;
  }
  return 0;
}

#endif
