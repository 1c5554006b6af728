/* The sum of a digest over whole granules, compiled for any machine, for AVX2 and for AVX-512: 22, 60 and 70 GB/s by
 * one thread where a load of a warm file without digests makes 15. Included by digest.c, digest_avx2.c and
 * digest_avx512.c alone. */
#ifndef HRI_FORMATS_DIGEST_SUM_H
#define HRI_FORMATS_DIGEST_SUM_H

/* the library's code without the library: nothing to link, and compiled for the machine at hand */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "formats/digest.h"

/* `hash` adds up mix(h_i, i); `places` adds up a number for each i, which tells what granules were given. */
typedef struct hri_digest_sums {
  uint64_t hash, places;
} hri_digest_sums;

/* mix of the definition. */
static inline uint64_t hri_digest_mix(uint64_t a, uint64_t b) {
  uint64_t z = a + (b + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

/* Cheap, for it is computed for every granule, but not linear: sets of as many granules have different sums. */
static inline uint64_t hri_digest_place(uint64_t index) {
  uint64_t spread = (index + 1) * 0x9E3779B97F4A7C15u;
  return spread ^ spread >> 32;
}

/* Whole granules from the index `first`. */
static inline hri_digest_sums hri_digest_sum_here(const unsigned char *bytes, uint64_t first, uint64_t count) {
  hri_digest_sums sums = {0, 0};
  for (uint64_t k = 0; k < count; k++) {
    sums.hash += hri_digest_mix(XXH3_64bits(bytes + k * HRI_DIGEST_GRANULE, HRI_DIGEST_GRANULE), first + k);
    sums.places += hri_digest_place(first + k);
  }
  return sums;
}

/* x86-64 only */
hri_digest_sums hri_digest_sum_avx2(const unsigned char *bytes, uint64_t first, uint64_t count);
hri_digest_sums hri_digest_sum_avx512(const unsigned char *bytes, uint64_t first, uint64_t count);

#endif
