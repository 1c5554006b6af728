/* Stochastic rounding (rounding.h) of vectors, stores of new weights and moments in either type and past the caches, and
 * sums in double: what the optimizer kernels of an instruction level share. */
#ifndef HRI_OPS_OPTIM_VROUND_H
#define HRI_OPS_OPTIM_VROUND_H

#include "ops/optim/rounding.h"
#include "ops/vdraw.h"
#include "ops/vmath.h"

#define INLINE static inline __attribute__((always_inline))

enum {
  SPAN = 512 /* elements whose random bits are made at a time; a multiple of HRI_ROUNDING_CHUNK */
};
/* Random bits of a span's elements for an array, and room to load a vector that begins near the end of it. */
typedef uint16_t span_bits[SPAN + 32];
typedef uint16_t shorts __attribute__((vector_size(HRI_VECTOR_BYTES)));
typedef uint16_t shorts_memory __attribute__((vector_size(HRI_VECTOR_BYTES), aligned(2), may_alias));

/* HRI_LANES floats as two vectors of doubles. Said in instructions where there are some: gcc 12 converts quarters of a
 * vector and puts them together. */
INLINE void widen_doubles(hri_vd out[2], hri_vf wide) {
#if defined(__AVX512F__)
  out[0] = (hri_vd)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)wide));
  out[1] = (hri_vd)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)wide, 1));
#elif defined(__AVX2__)
  out[0] = (hri_vd)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)wide));
  out[1] = (hri_vd)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)wide, 1));
#else
  typedef float half_floats __attribute__((vector_size(HRI_VECTOR_BYTES / 2)));
  half_floats halves[2];
  memcpy(halves, &wide, sizeof halves);
  out[0] = __builtin_convertvector(halves[0], hri_vd);
  out[1] = __builtin_convertvector(halves[1], hri_vd);
#endif
}

/* The arrangements of the bits of 2 * HRI_LANES elements, for the arrays that are rounded. */
INLINE void store_arranged(span_bits *bits, int64_t at, shorts x, bool weight, bool first, bool second) {
  if (weight) *(shorts_memory *)(bits[HRI_ROUNDED_WEIGHT] + at) = x;
  if (first) *(shorts_memory *)(bits[HRI_ROUNDED_FIRST] + at) = x << 8 | x >> 8;
  if (second) *(shorts_memory *)(bits[HRI_ROUNDED_SECOND] + at) = x ^ x << 8;
}

/* Random bits of elements chunk * 64 .. + 63 at bits[..] + at (ops/optim/rounding.h), by ops/vdraw.h. */
INLINE void draw_chunk(span_bits *bits, int64_t at, const hri_rounding *r, const hri_philox_keys *keys, int64_t chunk,
                       bool weight, bool first, bool second) {
  hri_vq zero = {0};
  for (int64_t block = 0; block < HRI_ROUNDING_CHUNK_BLOCKS; block += HRI_HALF_LANES) {
    uint64_t counter = (uint64_t)(chunk * HRI_ROUNDING_CHUNK_BLOCKS + block);
    hri_vq c[4] = {hri_vblocks(counter),
                   {0},
                   zero + (hri_rounding_high(r) & 0xFFFFFFFFu),
                   zero + (hri_rounding_high(r) >> 32)};
    c[1] = c[0] >> 32;
    hri_vphilox(c, keys);
    store_arranged(bits, at + block * 4, (shorts)hri_vmerge(c[0], c[1]), weight, first, second);
    store_arranged(bits, at + HRI_ROUNDING_CHUNK / 2 + block * 4, (shorts)hri_vmerge(c[2], c[3]), weight, first,
                   second);
  }
}

/* Whether a lane is beyond the largest finite bf16 value, infinite or NaN. */
INLINE bool beyond_bf16(hri_vu bits) {
  hri_vi mask = (hri_vi)(bits & 0x7FFFFFFFu) > 0x7F7F0000;
#if defined(__AVX512F__)
  return _mm512_movepi32_mask((__m512i)mask) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_epi8((__m256i)mask) != 0;
#elif defined(__x86_64__)
  return _mm_movemask_epi8((__m128i)mask) != 0;
#elif defined(__aarch64__)
  return vmaxvq_u32((uint32x4_t)mask) != 0;
#else
  int32_t any = 0;
  for (int i = 0; i < HRI_LANES; i++) any |= mask[i];
  return any != 0;
#endif
}

INLINE hri_vu load_random(const uint16_t *random) {
#if defined(__AVX512F__)
  return (hri_vu)_mm512_cvtepu16_epi32((__m256i) * (const hri_vh16_memory *)random);
#elif defined(__AVX2__)
  return (hri_vu)_mm256_cvtepu16_epi32((__m128i) * (const hri_vh16_memory *)random);
#else
  return __builtin_convertvector(*(const hri_vh16_memory *)random, hri_vu);
#endif
}

/* hri_bf16_round_random lane by lane; the result stands in the upper halves, the lower are of no account. */
INLINE hri_vu round_random(hri_vf v, const uint16_t *random) {
  hri_vu bits = (hri_vu)v, rounded = bits + load_random(random);
  if (__builtin_expect(beyond_bf16(bits), 0)) {
    hri_vi beyond = (hri_vi)(bits & 0x7FFFFFFFu) > 0x7F7F0000;
    rounded = (hri_vu)hri_vselect(beyond, hri_vwiden(hri_vround_bf16(v)), (hri_vf)rounded);
  }
  return rounded;
}

INLINE void store_state(void *p, int64_t index, hri_vf v, int64_t n, hri_real real, const uint16_t *random) {
  if (real == HRI_REAL_F32) hri_vstore_n((float *)p + index, v, n);
  else hri_vstore_narrow_n((hri_bf16 *)p + index, hri_vupper(round_random(v, random)), n);
}

/* Weights: narrow ones are rounded at random, or (`split`) the high halves of fp32 numbers whose low ones stand in a->low. */
INLINE hri_vf load_weight(const hri_update_args *a, int64_t i, int64_t n, hri_real real, bool split) {
  if (!split) return hri_vload_real_n(a->w, i, n, real);
  return hri_vjoin(hri_vload_narrow_n((const hri_bf16 *)a->w + i, n), hri_vload_narrow_n(a->low + i, n));
}
INLINE void store_weight(const hri_update_args *a, int64_t i, hri_vf v, int64_t n, hri_real real, bool split,
                         const uint16_t *random) {
  hri_vh16 high, low;
  if (!split) {
    store_state(a->w, i, v, n, real, random);
    return;
  }
  high = hri_vsplit(v, &low);
  hri_vstore_narrow_n((hri_bf16 *)a->w + i, high, n);
  hri_vstore_narrow_n(a->low + i, low, n);
}

/* Stores past the caches, where the processor can and p is a multiple of what is stored; else as ever. For what nobody
 * reads before other data has pushed it out: a plain store first reads its line from memory. What hands work to other
 * threads does not order such stores; stream_end, between the last of them and that, does. */
INLINE void stream_narrow(uint16_t *p, hri_vh16 half) {
#if defined(__AVX2__)
  if ((uintptr_t)p % sizeof half == 0) {
#if defined(__AVX512F__)
    _mm256_stream_si256((__m256i *)(void *)p, (__m256i)half);
#else
    _mm_stream_si128((__m128i *)(void *)p, (__m128i)half);
#endif
    return;
  }
#endif
  *(hri_vh16_memory *)p = (hri_vh16_memory)half;
}

INLINE void stream_end(void) {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

#endif
