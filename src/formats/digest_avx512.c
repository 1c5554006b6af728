/* Compiled with -mavx512f and only then not empty; called after the machine was asked (digest.c). */
#ifdef __AVX512F__
#include "formats/digest_sum.h"

hri_digest_sums hri_digest_sum_avx512(const unsigned char *bytes, uint64_t first, uint64_t count) {
  return hri_digest_sum_here(bytes, first, count);
}
#else
typedef int hri_digest_has_no_avx512; /* C wants a declaration in every file */
#endif
