#include "base/rng.h"

#include <math.h>

double hri_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t word[4];
  double u, v;
  hri_philox(seed, stream, index, word);
  u = 1.0 - hri_uniform(word[0], word[1]); /* (0, 1]: the logarithm is finite */
  v = hri_uniform(word[2], word[3]);
  return sqrt(-2.0 * log(u)) * cos(6.283185307179586477 * v);
}

uint64_t hri_permute(uint64_t index, uint64_t count, uint64_t seed, uint64_t epoch) {
  unsigned half = 1;
  uint64_t mask;
  if (count < 2) return 0;
  while (half < 32 && ((uint64_t)1 << (2 * half)) < count) half++;
  mask = ((uint64_t)1 << half) - 1;
  do { /* the network permutes [0, 4^half); walk until the image falls inside [0, count) */
    uint64_t left = index >> half, right = index & mask;
    for (uint64_t round = 0; round < 6; round++) {
      uint32_t word[4];
      uint64_t next;
      hri_philox(seed ^ 0x5DEECE66Du, epoch * 8 + round, right, word);
      next = left ^ ((((uint64_t)word[1] << 32) | word[0]) & mask);
      left = right;
      right = next;
    }
    index = (left << half) | right;
  } while (index >= count);
  return index;
}
