/* Compiled with -mavx2 and only then not empty; called after the machine was asked (digest.c). */
#ifdef __AVX2__
#include "formats/digest_sum.h"

hri_digest_sums hri_digest_sum_avx2(const unsigned char *bytes, uint64_t first, uint64_t count) {
  return hri_digest_sum_here(bytes, first, count);
}
#else
typedef int hri_digest_has_no_avx2; /* C wants a declaration in every file */
#endif
