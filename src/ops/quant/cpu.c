/* Weights to codes and back. Codes, scales and values are defined bit by bit (program/quantization.h), so there is no sum
 * here, and no product that a compiler could join with one. What is summed is in nested.c.
 *
 * Dequantizing is bound by the memory that it writes: per block of 64 the 16 possible values are made (and rounded to
 * bf16) first, and each code looks one up. */
#include <math.h>
#include <stdatomic.h>

#include "ops/cpu.h"
#include "ops/quant/kernels.h"
#include "ops/quant/nested.h"

enum { BLOCK = HRI_QUANT_BLOCK, VALUES = HRI_QUANT_VALUES };

/* ---- quantizing ---- */

typedef struct to_codes {
  const hri_quant_args *a;
  const hri_quant_part *p;
  uint8_t *codes; /* of the part, as the next */
  float *absmax;
  _Atomic int64_t bad; /* the first element without a code; INT64_MAX: none yet */
} to_codes;

static float of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The largest |w| of n elements as its bits: positive floats are in the order of their bits, and NaN is beyond all, so
 * that one never hides. */
static HRI_INLINE uint32_t largest(const void *w, int64_t first, int64_t n, hri_real real) {
  int32_t lanes[HRI_LANES], most = 0;
  hri_vi best = {0};
  for (int64_t i = 0; i < n; i += HRI_LANES) {
    hri_vf v = n - i >= HRI_LANES ? hri_vload_real(w, first + i, real) : hri_vload_real_n(w, first + i, n - i, real);
    hri_vi bits = (hri_vi)v & INT32_MAX, more = bits > best;
    best = (bits & more) | (best & ~more);
  }
  memcpy(lanes, &best, sizeof lanes);
  for (int i = 0; i < HRI_LANES; i++) most = lanes[i] > most ? lanes[i] : most;
  return (uint32_t)most;
}

/* Remembers the first element at or beyond `limit` (bits of |w|) in a range that has one. */
static void found_bad(to_codes *m, int64_t first, int64_t n, uint32_t limit) {
  int64_t i = first, before = atomic_load_explicit(&m->bad, memory_order_relaxed);
  for (; i < first + n; i++) {
    float value = hri_real_get(m->a->w, i, m->a->real);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & INT32_MAX) >= limit) break;
  }
  while (i < before && !atomic_compare_exchange_weak(&m->bad, &before, i)) {}
}

/* The low byte of each lane, as so many bytes. */
static HRI_INLINE void store_bytes(uint8_t *to, hri_vi v) {
#if defined(__AVX512F__)
  _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8((__m512i)v));
#elif defined(__AVX2__)
  __m256i pairs = _mm256_packs_epi32((__m256i)v, (__m256i)v), bytes = _mm256_packs_epi16(pairs, pairs);
  int32_t low = _mm256_extract_epi32(bytes, 0), high = _mm256_extract_epi32(bytes, 4);
  memcpy(to, &low, sizeof low), memcpy(to + 4, &high, sizeof high);
#elif defined(__x86_64__)
  __m128i pairs = _mm_packs_epi32((__m128i)v, (__m128i)v);
  int32_t bytes = _mm_cvtsi128_si32(_mm_packs_epi16(pairs, pairs));
  memcpy(to, &bytes, sizeof bytes);
#else
  for (int i = 0; i < HRI_LANES; i++) to[i] = (uint8_t)v[i];
#endif
}

/* How many of the 15 ascending bounds are below each lane. */
static HRI_INLINE hri_vi rank_of(hri_vf v, const float *bounds) {
#if defined(__AVX512F__)
  const __m512 table = _mm512_maskz_loadu_ps(0x7fff, bounds);
  __m512i rank = _mm512_setzero_si512();
  for (int step = 8; step > 0; step /= 2) {
    __m512i next = _mm512_add_epi32(rank, _mm512_set1_epi32(step));
    __m512 bound = _mm512_permutexvar_ps(_mm512_sub_epi32(next, _mm512_set1_epi32(1)), table);
    rank = _mm512_mask_mov_epi32(rank, _mm512_cmp_ps_mask((__m512)v, bound, _CMP_GT_OQ), next);
  }
  return (hri_vi)rank;
#else
  hri_vi rank = {0};
  for (int k = 0; k < VALUES - 1; k++) rank -= v > hri_vset(bounds[k]);
  return rank;
#endif
}

/* Ranks of up to 64 elements at w[first]. Behind the last of an odd number is that of 0, which shares its byte: lanes
 * without an element are 0. */
static HRI_INLINE void ranks_of(uint8_t ranks[BLOCK], const to_codes *m, int64_t first, int64_t n, float factor,
                                float divisor, const float *bounds, hri_real real) {
  for (int64_t i = 0; i < n; i += HRI_LANES) {
    hri_vf v = n - i >= HRI_LANES ? hri_vload_real(m->a->w, first + i, real)
                                  : hri_vload_real_n(m->a->w, first + i, n - i, real);
    store_bytes(ranks + i, rank_of(divisor > 0 ? v / divisor : v * factor, bounds));
  }
}

/* Blocks of a part; full ones are scaled by a reciprocal, a part block at its end is divided (and its absmax is never
 * less than 1e-38, which a full block's only is in its reciprocal). */
static HRI_INLINE void quantize_blocks(to_codes *m, int64_t begin, int64_t end, hri_real real) {
  const float *bounds = hri_quant_bounds(m->a->kind), least = 1e-38f;
  const uint8_t *order = hri_quant_order(m->a->kind);
  bool sorted = hri_quant_is_nf4(m->a->kind);
  uint8_t ranks[BLOCK] = {0};
  for (int64_t block = begin; block < end; block++) {
    int64_t at = block * BLOCK, n = (int64_t)m->p->elements - at, first = (int64_t)m->p->first + at;
    uint8_t *codes = m->codes + at / 2;
    uint32_t bits = largest(m->a->w, first, n < BLOCK ? n : BLOCK, real);
    float most = of_bits(bits);
    if (bits >= 0x7f800000u) {
      found_bad(m, first, n < BLOCK ? n : BLOCK, 0x7f800000u);
      continue;
    }
    m->absmax[block] = n < BLOCK && most < least ? least : most;
    if (most < least) most = least;
    if (n >= BLOCK) {
      n = BLOCK;
      ranks_of(ranks, m, first, BLOCK, 1.0f / most, 0, bounds, real);
    } else {
      ranks_of(ranks, m, first, n, 0, most, bounds, real);
    }
    if (sorted)
      for (int64_t i = 0; i < (n + 1) / 2; i++) codes[i] = (uint8_t)(ranks[2 * i] << 4 | ranks[2 * i + 1]);
    else
      for (int64_t i = 0; i < (n + 1) / 2; i++)
        codes[i] = (uint8_t)(order[ranks[2 * i]] << 4 | order[ranks[2 * i + 1]]);
  }
}

static void quantize_some_blocks(void *context, int64_t begin, int64_t end, int thread) {
  to_codes *m = context;
  (void)thread;
  HRI_BY_REAL(m->a->real, quantize_blocks(m, begin, end, REAL));
}

/* To the nearest fp16, kept as fp32. */
static HRI_INLINE hri_vf to_half(hri_vf v) { return hri_vwiden_f16(hri_vround_f16(v)); }

/* Rows of LLM.int8: of the weight in fp16, times 127 times the reciprocal of the largest. */
static HRI_INLINE void quantize_rows(to_codes *m, int64_t begin, int64_t end, hri_real real) {
  const uint32_t limit = 0x477ff000u; /* 65520, which rounds beyond the largest fp16 */
  int64_t columns = (int64_t)m->p->columns;
  for (int64_t row = begin; row < end; row++) {
    int64_t first = (int64_t)m->p->first + row * columns, i = 0;
    uint8_t *codes = m->codes + row * columns;
    uint32_t bits = largest(m->a->w, first, columns, real);
    float inverse;
    if (bits >= limit) {
      found_bad(m, first, columns, limit);
      continue;
    }
    m->absmax[row] = to_half(hri_vset(of_bits(bits)))[0];
    inverse = 1.0f / m->absmax[row];
    inverse = m->absmax[row] > 0 ? inverse * 127.0f : 0;
    for (; i < columns; i += HRI_LANES) {
      int64_t n = columns - i < HRI_LANES ? columns - i : HRI_LANES;
      hri_vf v = hri_vrounded(to_half(hri_vload_real_n(m->a->w, first + i, n, real)) * inverse);
      hri_vi code = __builtin_convertvector(hri_vround(v), hri_vi);
      uint8_t tail[HRI_LANES];
      store_bytes(n == HRI_LANES ? codes + i : tail, code);
      if (n < HRI_LANES) memcpy(codes + i, tail, (size_t)n);
    }
  }
}

static void quantize_some_rows(void *context, int64_t begin, int64_t end, int thread) {
  to_codes *m = context;
  (void)thread;
  HRI_BY_REAL(m->a->real, quantize_rows(m, begin, end, REAL));
}

/* Where a mean overflows: the largest element of the part, which is its largest block's. */
static int64_t largest_of_part(const hri_quant_args *a, const hri_quant_part *p) {
  int64_t at = (int64_t)p->first;
  for (int64_t i = at; i < (int64_t)(p->first + p->elements); i++)
    if (fabsf(hri_real_get(a->w, i, a->real)) > fabsf(hri_real_get(a->w, at, a->real))) at = i;
  return at;
}

static int64_t quantize_part(const hri_quant_args *a, const hri_quant_part *p) {
  bool nested = hri_quant_is_double(a->kind), rows = !hri_quant_is_4bit(a->kind);
  to_codes m = {.a = a, .p = p, .codes = a->codes + p->codes, .bad = INT64_MAX};
  float *states = nested ? a->nested + p->nested : NULL;
  m.absmax = nested ? a->scratch : (float *)a->absmax + p->absmax;
  hri_team_each(a->team, (int64_t)p->absmax_count, hri_grain(rows ? (int64_t)p->columns : BLOCK),
                rows ? quantize_some_rows : quantize_some_blocks, &m);
  if (m.bad != INT64_MAX) return m.bad;
  if (!nested) return -1;
  hri_quant_nest((uint8_t *)a->absmax + p->absmax, states, a->scratch, (int64_t)p->absmax_count, a->team);
  return isfinite(states[p->nested_count]) ? -1 : largest_of_part(a, p);
}

static int64_t quantize(const hri_quant_args *a) {
  for (uint32_t k = 0; k < a->layout->part_count; k++) {
    int64_t bad = quantize_part(a, &a->layout->part[k]);
    if (bad >= 0) return bad;
  }
  return -1;
}

/* ---- dequantizing ---- */

typedef struct to_weights {
  const hri_quant_args *a;
  const hri_quant_part *p;
} to_weights;

/* Elements of a block one by one: the tail of a part, and where the processor cannot permute. */
static HRI_INLINE void look_up_few(void *w, int64_t first, const uint8_t *codes, int64_t n, const float *values,
                                   float absmax, hri_real real) {
  float scaled[VALUES];
  for (int i = 0; i < VALUES; i++) scaled[i] = values[i] * absmax;
  for (int64_t i = 0; i < n; i++)
    hri_real_put(w, first + i, scaled[i & 1 ? codes[i / 2] & 15 : codes[i / 2] >> 4], real);
}

/* 64 codes by the permutations of each processor, from the 16 values of the block. Indices are the halves of each byte,
 * the high one first; permutations that look at their low four or five bits alone are given the table twice, and what
 * stands above. */
#if defined(__AVX512BW__)
static HRI_INLINE void look_up_narrow(uint16_t *to, const uint8_t *codes, const float *values, float absmax,
                                      hri_real real) {
  __m512i table = _mm512_broadcast_i64x4((__m256i)hri_vround_real(hri_vload(values) * absmax, real));
  for (int i = 0; i < BLOCK / 32; i++) {
    __m512i c = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)codes + i));
    __m512i index = _mm512_or_si512(_mm512_srli_epi32(c, 4), _mm512_slli_epi32(c, 16));
    _mm512_storeu_si512(to + 32 * i, _mm512_permutexvar_epi16(index, table));
  }
}
static HRI_INLINE void look_up_wide(float *to, const uint8_t *codes, const float *values, float absmax) {
  __m512 table = (__m512)(hri_vload(values) * absmax);
  for (int i = 0; i < BLOCK / 16; i++) {
    __m512i c = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(codes + 8 * i)));
    __m512i index = _mm512_or_si512(_mm512_srli_epi64(c, 4), _mm512_slli_epi64(c, 32));
    _mm512_storeu_ps(to + 16 * i, _mm512_permutexvar_ps(index, table));
  }
}
#elif defined(__AVX2__)
static HRI_INLINE void look_up_narrow(uint16_t *to, const uint8_t *codes, const float *values, float absmax,
                                      hri_real real) {
  __m128i a = (__m128i)hri_vround_real(hri_vload(values) * absmax, real);
  __m128i b = (__m128i)hri_vround_real(hri_vload(values + 8) * absmax, real), bytes = _mm_set1_epi16(255);
  __m128i low = _mm_packus_epi16(_mm_and_si128(a, bytes), _mm_and_si128(b, bytes)), mask = _mm_set1_epi8(15);
  __m128i high = _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8));
  for (int i = 0; i < BLOCK / 32; i++) {
    __m128i c = _mm_loadu_si128((const __m128i *)codes + i), *out = (__m128i *)(to + 32 * i);
    __m128i even = _mm_and_si128(_mm_srli_epi16(c, 4), mask), odd = _mm_and_si128(c, mask);
    __m128i front = _mm_unpacklo_epi8(even, odd), back = _mm_unpackhi_epi8(even, odd);
    __m128i front_low = _mm_shuffle_epi8(low, front), front_high = _mm_shuffle_epi8(high, front);
    __m128i back_low = _mm_shuffle_epi8(low, back), back_high = _mm_shuffle_epi8(high, back);
    _mm_storeu_si128(out, _mm_unpacklo_epi8(front_low, front_high));
    _mm_storeu_si128(out + 1, _mm_unpackhi_epi8(front_low, front_high));
    _mm_storeu_si128(out + 2, _mm_unpacklo_epi8(back_low, back_high));
    _mm_storeu_si128(out + 3, _mm_unpackhi_epi8(back_low, back_high));
  }
}
static HRI_INLINE void look_up_wide(float *to, const uint8_t *codes, const float *values, float absmax) {
  __m256 low = (__m256)(hri_vload(values) * absmax), high = (__m256)(hri_vload(values + 8) * absmax);
  for (int i = 0; i < BLOCK / 8; i++) {
    int32_t four;
    __m256i c, index;
    __m256 below, above;
    memcpy(&four, codes + 4 * i, sizeof four);
    c = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four));
    index = _mm256_or_si256(_mm256_srli_epi64(c, 4), _mm256_slli_epi64(c, 32));
    below = _mm256_permutevar8x32_ps(low, index), above = _mm256_permutevar8x32_ps(high, index);
    _mm256_storeu_ps(to + 8 * i, _mm256_blendv_ps(below, above, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28))));
  }
}
#else
#if defined(__aarch64__)
static HRI_INLINE void look_up_narrow(uint16_t *to, const uint8_t *codes, const float *values, float absmax,
                                      hri_real real) {
  uint16_t table[VALUES];
  uint8x16x2_t bytes;
  for (int i = 0; i < VALUES; i += HRI_LANES) hri_vstore_real(table, i, hri_vload(values + i) * absmax, real);
  bytes = vld2q_u8((const uint8_t *)table); /* low and high halves */
  for (int i = 0; i < BLOCK / 32; i++) {
    uint8x16_t c = vld1q_u8(codes + 16 * i), even = vshrq_n_u8(c, 4), odd = vandq_u8(c, vdupq_n_u8(15));
    uint8x16_t front = vzip1q_u8(even, odd), back = vzip2q_u8(even, odd);
    uint8x16x2_t first = {{vqtbl1q_u8(bytes.val[0], front), vqtbl1q_u8(bytes.val[1], front)}};
    uint8x16x2_t second = {{vqtbl1q_u8(bytes.val[0], back), vqtbl1q_u8(bytes.val[1], back)}};
    vst2q_u8((uint8_t *)(to + 32 * i), first);
    vst2q_u8((uint8_t *)(to + 32 * i + 16), second);
  }
}
#else
static HRI_INLINE void look_up_narrow(uint16_t *to, const uint8_t *codes, const float *values, float absmax,
                                      hri_real real) {
  uint16_t table[VALUES];
  for (int i = 0; i < VALUES; i += HRI_LANES) hri_vstore_real(table, i, hri_vload(values + i) * absmax, real);
  for (int i = 0; i < BLOCK / 2; i++) to[2 * i] = table[codes[i] >> 4], to[2 * i + 1] = table[codes[i] & 15];
}
#endif
static HRI_INLINE void look_up_wide(float *to, const uint8_t *codes, const float *values, float absmax) {
  float table[VALUES];
  for (int i = 0; i < VALUES; i += HRI_LANES) hri_vstore(table + i, hri_vload(values + i) * absmax);
  for (int i = 0; i < BLOCK / 2; i++) to[2 * i] = table[codes[i] >> 4], to[2 * i + 1] = table[codes[i] & 15];
}
#endif

enum { CHUNK = 128 }; /* scales made at a time */

static HRI_INLINE void dequantize_blocks(const to_weights *m, int64_t begin, int64_t end, hri_real real) {
  const hri_quant_args *a = m->a;
  const float *values = hri_quant_values(a->kind), *states = a->nested;
  bool nested = hri_quant_is_double(a->kind);
  float made[CHUNK];
  if (nested) states += m->p->nested;
  for (int64_t block = begin; block < end; block++) {
    int64_t at = block * BLOCK, n = (int64_t)m->p->elements - at, first = (int64_t)m->p->first + at;
    const uint8_t *codes = a->codes + m->p->codes + at / 2;
    int64_t k = (block - begin) % CHUNK;
    float absmax;
    if (nested && k == 0)
      hri_quant_unnest(made, (const uint8_t *)a->absmax + m->p->absmax, states, states[m->p->nested_count], block,
                       end - block < CHUNK ? end - block : CHUNK);
    absmax = nested ? made[k] : ((const float *)a->absmax)[m->p->absmax + (uint64_t)block];
    if (n < BLOCK) look_up_few(a->w, first, codes, n, values, absmax, real);
    else if (real != HRI_REAL_F32) look_up_narrow((uint16_t *)a->w + first, codes, values, absmax, real);
    else look_up_wide((float *)a->w + first, codes, values, absmax);
  }
}

static void dequantize_some_blocks(void *context, int64_t begin, int64_t end, int thread) {
  const to_weights *m = context;
  (void)thread;
  HRI_BY_REAL(m->a->real, dequantize_blocks(m, begin, end, REAL));
}

static HRI_INLINE void dequantize_row(const to_weights *m, int64_t row, hri_real real) {
  int64_t columns = (int64_t)m->p->columns, first = (int64_t)m->p->first + row * columns, i = 0;
  const int8_t *codes = (const int8_t *)m->a->codes + m->p->codes + row * columns;
  float absmax = ((const float *)m->a->absmax)[m->p->absmax + (uint64_t)row];
  const float unit = 1.0f / 127.0f;
  for (; i + 2 * HRI_LANES <= columns; i += 2 * HRI_LANES)
    hri_vstore_pair(m->a->w, first + i, __builtin_convertvector(hri_vload_bytes(codes + i), hri_vf) * absmax * unit,
                    __builtin_convertvector(hri_vload_bytes(codes + i + HRI_LANES), hri_vf) * absmax * unit, real);
  for (; i < columns; i += HRI_LANES) {
    int64_t few = columns - i < HRI_LANES ? columns - i : HRI_LANES;
    int8_t tail[HRI_LANES] = {0};
    memcpy(tail, codes + i, (size_t)few);
    hri_vstore_real_n(m->a->w, first + i, __builtin_convertvector(hri_vload_bytes(tail), hri_vf) * absmax * unit, few,
                      real);
  }
}

static void dequantize_some_rows(void *context, int64_t begin, int64_t end, int thread) {
  const to_weights *m = context;
  (void)thread;
  for (int64_t row = begin; row < end; row++) HRI_BY_REAL(m->a->real, dequantize_row(m, row, REAL));
}

static void dequantize(const hri_quant_args *a) {
  bool rows = !hri_quant_is_4bit(a->kind);
  if (a->kind == HRI_QUANTIZATION_KEEP) {
    hri_quant_dequantize_kept(a);
    return;
  }
  for (uint32_t k = 0; k < a->layout->part_count; k++) {
    to_weights m = {.a = a, .p = &a->layout->part[k]};
    hri_team_each(a->team, (int64_t)m.p->absmax_count, hri_grain(rows ? (int64_t)m.p->columns : BLOCK),
                  rows ? dequantize_some_rows : dequantize_some_blocks, &m);
  }
}

void HRI_ISA_NAME(hri_quant_kernels)(hri_cpu_kernels *table) {
  table->quantize = quantize;
  table->dequantize = dequantize;
}
