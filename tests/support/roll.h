/* SplitMix64: numbers that are the same for the same state, which goes on. */
#ifndef HRI_TEST_ROLL_H
#define HRI_TEST_ROLL_H

#include <stdint.h>

static inline uint64_t roll(uint64_t *state) {
  uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

#endif
