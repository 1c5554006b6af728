/* Kernels of this family in files of their own, one symbol for each instruction level, and what they share. */
#ifndef HRI_OPS_QUANT_KERNELS_H
#define HRI_OPS_QUANT_KERNELS_H

#include "ops/cpu.h"
#include "ops/scratch.h"
#include "ops/vmath.h"

#define hri_quant_dequantize_kept HRI_ISA_NAME(hri_quant_dequantize_kept)
void hri_quant_dequantize_kept(const hri_quant_args *args);

/* HRI_LANES bytes with a sign as lanes. (gcc makes a call per lane of a conversion between vectors of other sizes.) */
static HRI_INLINE hri_vi hri_vload_bytes(const int8_t *from) {
#if defined(__AVX512F__)
  return (hri_vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from));
#elif defined(__AVX2__)
  return (hri_vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from));
#elif defined(__x86_64__)
  int32_t four;
  __m128i bytes;
  memcpy(&four, from, sizeof four);
  bytes = _mm_unpacklo_epi8(_mm_cvtsi32_si128(four), _mm_cvtsi32_si128(four));
  return (hri_vi)_mm_srai_epi32(_mm_unpacklo_epi16(bytes, bytes), 24);
#else
  hri_vi v;
  for (int i = 0; i < HRI_LANES; i++) v[i] = from[i];
  return v;
#endif
}

/* Two vectors one behind the other, of numbers that are no NaN: rounded as hri_vstore_real does, for fewer instructions
 * where two halves fill a register. */
static HRI_INLINE void hri_vstore_pair(void *w, int64_t at, hri_vf a, hri_vf b, hri_real real) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  if (real == HRI_REAL_BF16) {
    hri_vu first = (hri_vu)a, second = (hri_vu)b;
    first = first + 0x7FFFu + (first >> 16 & 1u), second = second + 0x7FFFu + (second >> 16 & 1u);
    __m256i halves = _mm256_packus_epi32((__m256i)(first >> 16), (__m256i)(second >> 16));
    _mm256_storeu_si256((__m256i *)(void *)((uint16_t *)w + at), _mm256_permute4x64_epi64(halves, 0xD8));
    return;
  }
#endif
  hri_vstore_real(w, at, a, real);
  hri_vstore_real(w, at + HRI_LANES, b, real);
}

#endif
