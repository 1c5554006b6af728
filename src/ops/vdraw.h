/* Philox4x32-10 (base/rng.h) in vectors, a block per 64-bit lane, for kernels whose numbers are a function of where they
 * stand: stochastic rounding (ops/optim/rounding.h), dropout and noise (ops/draw.h). The words stand in the low halves of
 * the lanes; what the high halves hold is of no account until a caller merges two words. */
#ifndef HRI_OPS_VDRAW_H
#define HRI_OPS_VDRAW_H

#include "ops/draw.h"
#include "ops/vmath.h"

enum { HRI_PHILOX_ROUNDS = 10 };

typedef uint64_t hri_vq __attribute__((vector_size(HRI_VECTOR_BYTES))); /* HRI_HALF_LANES of them */
typedef uint32_t hri_vu_memory __attribute__((vector_size(HRI_VECTOR_BYTES), aligned(4), may_alias));

typedef struct hri_philox_keys {
  uint64_t first[HRI_PHILOX_ROUNDS], second[HRI_PHILOX_ROUNDS];
} hri_philox_keys;

static HRI_VECTOR_INLINE hri_philox_keys hri_philox_keys_make(uint64_t key) {
  hri_philox_keys keys;
  for (uint32_t round = 0; round < HRI_PHILOX_ROUNDS; round++) {
    keys.first[round] = (uint32_t)key + round * 0x9E3779B9u;
    keys.second[round] = (uint32_t)(key >> 32) + round * 0xBB67AE85u;
  }
  return keys;
}

/* The products of the low halves. */
static HRI_VECTOR_INLINE hri_vq hri_vmultiply_low(hri_vq a, uint32_t b) {
  hri_vq zero = {0}, factor = zero + b;
#if defined(__AVX512F__)
  return (hri_vq)_mm512_mul_epu32((__m512i)a, (__m512i)factor);
#elif HRI_VECTOR_BYTES == 32
  return (hri_vq)_mm256_mul_epu32((__m256i)a, (__m256i)factor);
#elif defined(__x86_64__) && HRI_VECTOR_BYTES == 16
  return (hri_vq)_mm_mul_epu32((__m128i)a, (__m128i)factor);
#elif defined(__aarch64__)
  return (hri_vq)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)factor));
#else
  return (a & 0xFFFFFFFFu) * factor;
#endif
}

/* The rounds, in place. */
static HRI_VECTOR_INLINE void hri_vphilox(hri_vq c[4], const hri_philox_keys *keys) {
  for (int round = 0; round < HRI_PHILOX_ROUNDS; round++) {
    hri_vq p0 = hri_vmultiply_low(c[0], 0xD2511F53u), p1 = hri_vmultiply_low(c[2], 0xCD9E8D57u);
    c[0] = p1 >> 32 ^ c[1] ^ keys->first[round];
    c[2] = p0 >> 32 ^ c[3] ^ keys->second[round];
    c[1] = p1;
    c[3] = p0;
  }
}

/* The first of HRI_HALF_LANES blocks, `block`, and those behind it. */
static HRI_VECTOR_INLINE hri_vq hri_vblocks(uint64_t block) {
  hri_vq lane;
  for (int i = 0; i < HRI_HALF_LANES; i++) lane[i] = (uint64_t)i;
  return lane + block;
}

/* Words a and b of the blocks, in turn. */
static HRI_VECTOR_INLINE hri_vu hri_vmerge(hri_vq a, hri_vq b) { return (hri_vu)((a & 0xFFFFFFFFu) | b << 32); }

/* words[32]: hri_draw_word of elements 32 chunk .. + 31 of a line; `keys` from hri_draw_key, `row` counted from 0. */
static HRI_VECTOR_INLINE void hri_vdraw_chunk(uint32_t *words, const hri_philox_keys *keys, uint32_t site, uint32_t row,
                                              uint32_t line, uint32_t head, uint32_t chunk) {
  hri_vq zero = {0};
  for (uint32_t block = 0; block < HRI_DRAW_CHUNK_BLOCKS; block += HRI_HALF_LANES) {
    hri_vq c[4] = {hri_vblocks((chunk * HRI_DRAW_CHUNK_BLOCKS + block) | head << HRI_DRAW_HEAD_SHIFT), zero + line,
                   zero + row, zero + site};
    hri_vphilox(c, keys);
    *(hri_vu_memory *)(words + 2 * block) = hri_vmerge(c[0], c[1]);
    *(hri_vu_memory *)(words + 16 + 2 * block) = hri_vmerge(c[2], c[3]);
  }
}

/* Bit k: word k of 32 is not below the threshold. */
static HRI_VECTOR_INLINE uint32_t hri_vkept_bits(const uint32_t *words, uint32_t threshold) {
  uint32_t bits = 0;
#if defined(__AVX512F__)
  for (int k = 0; k < HRI_DRAW_CHUNK; k += HRI_LANES)
    bits |= (uint32_t)_mm512_cmpge_epu32_mask(_mm512_loadu_si512(words + k), _mm512_set1_epi32((int32_t)threshold))
            << k;
#elif defined(__x86_64__) && HRI_VECTOR_BYTES <= 32
  for (int k = 0; k < HRI_DRAW_CHUNK; k += HRI_LANES) {
    hri_vu word = *(const hri_vu_memory *)(words + k), zero = {0};
    hri_vi keeps = word >= zero + threshold;
#if HRI_VECTOR_BYTES == 32
    bits |= (uint32_t)_mm256_movemask_ps((__m256)keeps) << k;
#else
    bits |= (uint32_t)_mm_movemask_ps((__m128)keeps) << k;
#endif
  }
#else
  for (int k = 0; k < HRI_DRAW_CHUNK; k++) bits |= (uint32_t)(words[k] >= threshold) << k;
#endif
  return bits;
}

/* hri_drop_factor where a word is not below the threshold, else 0. */
static HRI_VECTOR_INLINE hri_vf hri_vkept(const uint32_t *words, uint32_t threshold, float factor) {
  hri_vu word = *(const hri_vu_memory *)words, zero = {0};
  return (hri_vf)((hri_vu)(word >= zero + threshold) & (hri_vu)hri_vset(factor));
}

#endif
