/* Counter-based random numbers: a pure function of (seed, stream, counter), so that results do not depend on padding,
 * threads, ranks or the order of work. Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011). */
#ifndef HRI_BASE_RNG_H
#define HRI_BASE_RNG_H

#include <stdint.h>

#include "base/both.h"

/* Four 32-bit words for a key of 64 and a counter of 128 bits. */
HRI_BOTH static inline void hri_philox(uint64_t key, uint64_t high, uint64_t low, uint32_t out[4]) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  uint32_t c0 = (uint32_t)low, c1 = (uint32_t)(low >> 32), c2 = (uint32_t)high, c3 = (uint32_t)(high >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

/* Uniform in [0, 1) with 53 bits from two words. */
static inline double hri_uniform(uint32_t a, uint32_t b) {
  return (double)((((uint64_t)a << 32) | b) >> 11) * (1.0 / 9007199254740992.0);
}

/* A standard normal value of element `index` of stream `stream` (Box-Muller). */
double hri_normal(uint64_t seed, uint64_t stream, uint64_t index);

/* A permutation of [0, count): where `index` goes in epoch `epoch`; needs no memory (a Feistel network with cycle
 * walking), so that shuffling a data set of any size costs nothing and resumes exactly. */
uint64_t hri_permute(uint64_t index, uint64_t count, uint64_t seed, uint64_t epoch);

#endif
