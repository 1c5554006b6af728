/* The square transposition in registers, for code that packs matrices (compiled once per instruction level). Only bits
 * are moved, by the shuffles that processors have most units for. */
#ifndef HRI_OPS_LINEAR_TRANSPOSE_H
#define HRI_OPS_LINEAR_TRANSPOSE_H

#include "ops/vmath.h"

typedef uint32_t hri_words __attribute__((vector_size(HRI_VECTOR_BYTES)));

#if defined(__clang__)
#define HRI_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HRI_UNROLL _Pragma("GCC unroll 16")
#endif

/* v[i][r] and v[r][i] change places, r, i in [0, HRI_LANES). Neighbouring vectors are interleaved by words, then by
 * pairs of words: that transposes within each 128 bits. What is left is a transposition of these. */
static HRI_VECTOR_INLINE void hri_transpose(hri_words v[HRI_LANES]) {
#if defined(__AVX512F__)
  __m512i t[16], *r = (__m512i *)v;
  HRI_UNROLL for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  HRI_UNROLL for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  HRI_UNROLL for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
  }
  HRI_UNROLL for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
    r[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
    r[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
    r[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
  }
#elif HRI_VECTOR_BYTES == 32
  __m256i t[8], *r = (__m256i *)v;
  HRI_UNROLL for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
  }
  HRI_UNROLL for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  HRI_UNROLL for (int i = 0; i < 4; i++) {
    __m256i low = r[i], high = r[4 + i];
    r[i] = _mm256_permute2x128_si256(low, high, 0x20);
    r[4 + i] = _mm256_permute2x128_si256(low, high, 0x31);
  }
#elif HRI_VECTOR_BYTES == 64 /* without the instructions */
  hri_words copy[HRI_LANES];
  memcpy(copy, v, sizeof copy);
  for (int r = 0; r < HRI_LANES; r++)
    for (int i = 0; i < HRI_LANES; i++) v[i][r] = copy[r][i];
#else
  hri_words a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5), b = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7),
            c = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5), d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
  v[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
  v[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
  v[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
#endif
}

#endif
