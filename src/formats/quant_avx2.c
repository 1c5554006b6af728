/* The search for scales of the K formats compiled with -mavx2, and only then not empty; called after the machine was asked
 * (quant_encode.c). */
#ifdef __AVX2__
#include "formats/quant_search.h"

void hri_quant_search_avx2(uint32_t type, uint8_t *to, const float *from, uint64_t elements) {
  hri_quant_search_here(type, to, from, elements);
}
#else
typedef int hri_quant_has_no_avx2; /* C wants a declaration in every file */
#endif
