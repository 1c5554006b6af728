/* Optimizer steps whose states are codes of 8 bits with an fp32 scale per block of 256 (ops/optim/dynamic.h): decode,
 * the step in fp32, the largest magnitudes, encode, while the block lies in the cache.
 *
 * The new states are made of products and sums that are rounded one by one, on every instruction level: contracted they
 * would round otherwise, and a code would depend on the level. Weights follow the level's arithmetic as all else does.
 *
 * What differs from the kernels of bitsandbytes: AdamW decays before its step, as torch.optim.AdamW does. What does not:
 * an element whose gradient is infinite or NaN gets states of 0, and keeps its weight. */
#include <math.h>

#include "ops/cpu.h"
#include "ops/optim/dynamic.h"
#include "ops/optim/kernels.h"
#include "ops/optim/vround.h"
#include "ops/scratch.h"

enum { ITEM = 8192 }; /* elements dealt out at a time: whole blocks */

typedef enum rule { ADAMW8BIT, LION8BIT } rule;
typedef struct kind {
  rule rule;
  hri_real w, gradient;
  hri_real copy; /* HRI_REAL_F32: there is none */
} kind;

typedef struct numbers {
  float decay, beta1, beta2, one_minus_beta1, one_minus_beta2;
  float step, epsilon; /* AdamW: the corrections of both averages are in them; Lion: step is the learning rate */
  float gradient_scale;
} numbers;

/* x, rounded to fp32 here and now: what follows cannot be contracted with what made it. */
INLINE hri_vf rounded(hri_vf x) {
#if defined(__AVX512F__)
  __asm__("" : "+v"(x));
#elif defined(__x86_64__)
  __asm__("" : "+x"(x));
#elif defined(__aarch64__)
  __asm__("" : "+w"(x));
#endif
  return x;
}

INLINE hri_vf magnitude(hri_vf x) { return (hri_vf)((hri_vu)x & 0x7FFFFFFFu); }

/* ---- codes ---- */

typedef uint8_t byte_lanes __attribute__((vector_size(HRI_LANES), aligned(1), may_alias));

INLINE void store_codes(uint8_t *codes, hri_vu v) {
#if defined(__AVX512F__)
  _mm_storeu_si128((__m128i *)(void *)codes, _mm512_cvtepi32_epi8((__m512i)v));
#elif defined(__AVX2__)
  __m128i words = _mm_packus_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
  _mm_storel_epi64((__m128i *)(void *)codes, _mm_packus_epi16(words, words));
#else
  *(byte_lanes *)codes = __builtin_convertvector(v, byte_lanes);
#endif
}

INLINE hri_vu gather(const uint32_t *table, hri_vu index) {
#if defined(__AVX512F__)
  return (hri_vu)_mm512_i32gather_epi32((__m512i)index, table, 4);
#elif defined(__AVX2__)
  return (hri_vu)_mm256_i32gather_epi32((const int *)table, (__m256i)index, 4);
#else
  hri_vu out;
  for (int i = 0; i < HRI_LANES; i++) out[i] = table[index[i]];
  return out;
#endif
}

INLINE hri_vu least(hri_vu a, hri_vu b) {
#if defined(__AVX512F__)
  return (hri_vu)_mm512_min_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (hri_vu)_mm256_min_epu32((__m256i)a, (__m256i)b);
#else
  hri_vu mask = (hri_vu)(a < b);
  return (a & mask) | (b & ~mask);
#endif
}

#if defined(__AVX512F__)
/* A lookup in 256 entries of 16 bits, which fill 8 registers, for 32 indices. */
INLINE __m512i look_up(const __m512i *table, __m512i index) {
  __mmask32 upper = _mm512_movepi16_mask(_mm512_slli_epi16(index, 8)),
            odd = _mm512_movepi16_mask(_mm512_slli_epi16(index, 9));
  __m512i first = _mm512_mask_blend_epi16(odd, _mm512_permutex2var_epi16(table[0], index, table[1]),
                                          _mm512_permutex2var_epi16(table[2], index, table[3])),
          second = _mm512_mask_blend_epi16(odd, _mm512_permutex2var_epi16(table[4], index, table[5]),
                                           _mm512_permutex2var_epi16(table[6], index, table[7]));
  return _mm512_mask_blend_epi16(upper, first, second);
}

/* The halves of 32 values are looked up apart and put together; indices are arranged so that they come out in order. */
INLINE void decode_all(float *out, const uint8_t *codes, const hri_dynamic_maps *maps, bool is_signed, float scale) {
  const uint16_t (*halves)[256] = is_signed ? maps->signed_halves : maps->unsigned_halves;
  const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
  __m512i low[8], high[8];
  for (int k = 0; k < 8; k++) {
    low[k] = _mm512_loadu_si512(halves[0] + 32 * k);
    high[k] = _mm512_loadu_si512(halves[1] + 32 * k);
  }
  for (int64_t i = 0; i < HRI_STATE_BLOCK; i += 2 * HRI_LANES) {
    __m512i index = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(codes + i)));
    index = _mm512_permutexvar_epi64(order, index);
    __m512i a = look_up(low, index), b = look_up(high, index);
    hri_vstore(out + i, (hri_vf)_mm512_unpacklo_epi16(a, b) * scale);
    hri_vstore(out + i + HRI_LANES, (hri_vf)_mm512_unpackhi_epi16(a, b) * scale);
  }
}
#elif defined(__AVX2__)
/* Entry by entry: on the processors with AVX2 alone that were measured (Zen 3) a gather of 8 takes three times as long. */
INLINE void decode_all(float *out, const uint8_t *codes, const hri_dynamic_maps *maps, bool is_signed, float scale) {
  const int32_t *map = (const int32_t *)(const void *)(is_signed ? maps->signed_map : maps->unsigned_map);
  for (int64_t i = 0; i < HRI_STATE_BLOCK; i += HRI_LANES) {
    uint64_t c;
    __m256i bits;
    memcpy(&c, codes + i, sizeof c);
    bits = _mm256_setr_epi32(map[c & 255], map[c >> 8 & 255], map[c >> 16 & 255], map[c >> 24 & 255],
                             map[c >> 32 & 255], map[c >> 40 & 255], map[c >> 48 & 255], map[c >> 56]);
    hri_vstore(out + i, (hri_vf)bits * scale);
  }
}
#else
INLINE hri_vu load_codes(const uint8_t *codes) { return __builtin_convertvector(*(const byte_lanes *)codes, hri_vu); }

INLINE void decode_all(float *out, const uint8_t *codes, const hri_dynamic_maps *maps, bool is_signed, float scale) {
  const float *map = is_signed ? maps->signed_map : maps->unsigned_map;
  for (int64_t i = 0; i < HRI_STATE_BLOCK; i += HRI_LANES)
    hri_vstore(out + i, (hri_vf)gather((const uint32_t *)(const void *)map, load_codes(codes + i)) * scale);
}
#endif

/* map[code] * scale of a block; elements from n on are 0. */
INLINE void decode(float *out, const uint8_t *codes, int64_t n, const hri_dynamic_maps *maps, bool is_signed,
                   float scale) {
  uint8_t padded[HRI_STATE_BLOCK] = {0};
  if (n < HRI_STATE_BLOCK) codes = memcpy(padded, codes, (size_t)n);
  decode_all(out, codes, maps, is_signed, scale);
  for (int64_t i = n; i < HRI_STATE_BLOCK; i++) out[i] = 0;
}

/* Codes of values by the table of their map. */
INLINE hri_vu code_of(hri_vf value, float scale, const uint32_t *entries, uint32_t shift, uint32_t buckets,
                      bool is_signed) {
  hri_vu zero = {0}, lowest = zero + HRI_DYNAMIC_LOWEST, bits = (hri_vu)(magnitude(value) / scale);
  hri_vu at = bits - least(bits, lowest), bucket, entry, next;
  bucket = least(at >> shift, zero + (buckets - 1));
  if (is_signed) bucket += ((hri_vu)value >> 31) * buckets;
  entry = gather(entries, bucket);
  next = (hri_vu)((hri_vi)(at & ((1u << shift) - 1)) >= (hri_vi)(entry & ((1u << HRI_DYNAMIC_CODE) - 1))); /* 0, -1 */
  if (!is_signed) return (entry >> HRI_DYNAMIC_CODE) - next;
  return (entry >> HRI_DYNAMIC_CODE) - ((next ^ (hri_vu)((hri_vi)value >> 31)) - (hri_vu)((hri_vi)value >> 31));
}

INLINE hri_vu code_by_table(hri_vf value, float scale, const hri_dynamic_maps *maps, bool is_signed) {
  return is_signed
             ? code_of(value, scale, maps->signed_entries, HRI_DYNAMIC_SIGNED_SHIFT, HRI_DYNAMIC_SIGNED_BUCKETS, true)
             : code_of(value, scale, maps->unsigned_entries, HRI_DYNAMIC_UNSIGNED_SHIFT, HRI_DYNAMIC_UNSIGNED_BUCKETS,
                       false);
}

#if defined(__AVX512F__)
/* By segments, which lie in registers; by the table where a value is near a threshold or is no number, and where the
 * reciprocal of the scale is not as exact as a float can be. */
INLINE void encode_all(uint8_t *codes, const float *values, float scale, const hri_dynamic_maps *maps, bool is_signed) {
  const hri_dynamic_segments *s = is_signed ? &maps->signed_segments : &maps->unsigned_segments;
  const __m512i powers = _mm512_loadu_si512(s->of_power), more_powers = _mm512_loadu_si512(s->of_power + 16),
                last = _mm512_loadu_si512(s->last), lowest = _mm512_set1_epi32(HRI_DYNAMIC_LOWEST);
  const __m512 next = _mm512_loadu_ps(s->next), factor = _mm512_loadu_ps(s->factor),
               offset = _mm512_loadu_ps(s->offset),
               reciprocal = _mm512_set1_ps(scale > 0x1p-100f && scale < 0x1p100f ? 1 / scale : NAN);
  for (int64_t i = 0; i < HRI_STATE_BLOCK; i += HRI_LANES) {
    hri_vf value = hri_vload(values + i);
    __m512 x = _mm512_mul_ps((__m512)magnitude(value), reciprocal), steps, rest;
    __m512i segment = _mm512_srli_epi32(_mm512_max_epi32((__m512i)x, lowest), 23), code;
    segment = _mm512_permutex2var_epi32(powers, segment, more_powers);
    segment = _mm512_mask_add_epi32(segment, _mm512_cmp_ps_mask(x, _mm512_permutexvar_ps(segment, next), _CMP_GE_OQ),
                                    segment, _mm512_set1_epi32(1));
    steps = _mm512_fmadd_ps(_mm512_permutexvar_ps(segment, factor), x, _mm512_permutexvar_ps(segment, offset));
    rest = _mm512_abs_ps(_mm512_reduce_ps(steps, 0)); /* from the nearest whole number */
    if (__builtin_expect(_mm512_cmp_ps_mask(rest, _mm512_set1_ps(HRI_DYNAMIC_NEAR), _CMP_NGE_UQ) != 0, 0)) {
      store_codes(codes + i, code_by_table(value, scale, maps, is_signed));
      continue;
    }
    code = _mm512_min_epu32(_mm512_cvttps_epi32(steps), _mm512_permutexvar_epi32(segment, last));
    if (is_signed) {
      __mmask16 negative = _mm512_movepi32_mask((__m512i)value);
      code = _mm512_mask_max_epi32(code, negative, code, _mm512_set1_epi32(128));
      code = _mm512_mask_min_epi32(code, negative, code, _mm512_set1_epi32(254));
      code = _mm512_mask_sub_epi32(code, negative, _mm512_set1_epi32(254), code);
    }
    store_codes(codes + i, (hri_vu)code);
  }
}
#elif defined(__AVX2__)
/* The same with registers of 8 entries: the segment comes from pairs of powers of two by bytes, and the ninth, which has
 * the last code, is taken for the eighth first. The rule of signs is applied to 32 codes at once, as bytes. */
typedef struct lines {
  __m256i of_pair, last;
  __m256 next, factor, offset, reciprocal, end, end_factor, end_offset;
} lines;

INLINE lines lines_make(const hri_dynamic_segments *s, float scale) {
  enum { END = HRI_DYNAMIC_SEGMENTS - 1 };
  const __m256 next = _mm256_loadu_ps(s->next);
  return (lines){.of_pair = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)s->of_pair)),
                 .last = _mm256_loadu_si256((const __m256i *)(const void *)s->last),
                 .next = _mm256_blend_ps(next, _mm256_set1_ps(INFINITY), 0x80),
                 .factor = _mm256_loadu_ps(s->factor),
                 .offset = _mm256_loadu_ps(s->offset),
                 .reciprocal = _mm256_set1_ps(scale > 0x1p-100f && scale < 0x1p100f ? 1 / scale : NAN),
                 .end = _mm256_set1_ps(s->next[END - 1]),
                 .end_factor = _mm256_set1_ps(s->factor[END]),
                 .end_offset = _mm256_set1_ps(s->offset[END])};
}

/* Codes of 8 magnitudes. *unsure gets lanes that have to be looked up. */
INLINE __m256i code_by_line(const lines *l, hri_vf value, __m256 *unsure) {
  __m256 x = _mm256_mul_ps((__m256)magnitude(value), l->reciprocal), steps, rest, at_end;
  __m256i segment = _mm256_max_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(HRI_DYNAMIC_LOWEST)), last;
  segment = _mm256_shuffle_epi8(l->of_pair, _mm256_srli_epi32(segment, 24));
  segment =
      _mm256_sub_epi32(segment,
                       _mm256_castps_si256(_mm256_cmp_ps(x, _mm256_permutevar8x32_ps(l->next, segment), _CMP_GE_OQ)));
  at_end = _mm256_cmp_ps(x, l->end, _CMP_GE_OQ);
  steps =
      _mm256_fmadd_ps(_mm256_permutevar8x32_ps(l->factor, segment), x, _mm256_permutevar8x32_ps(l->offset, segment));
  steps = _mm256_blendv_ps(steps, _mm256_fmadd_ps(l->end_factor, x, l->end_offset), at_end);
  last = _mm256_sub_epi32(_mm256_permutevar8x32_epi32(l->last, segment), _mm256_castps_si256(at_end));
  rest = _mm256_sub_ps(steps, _mm256_round_ps(steps, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  rest = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), rest); /* from the nearest whole number */
  *unsure = _mm256_or_ps(*unsure, _mm256_cmp_ps(rest, _mm256_set1_ps(HRI_DYNAMIC_NEAR), _CMP_NGE_UQ));
  return _mm256_min_epu32(_mm256_cvttps_epi32(steps), last);
}

/* The low bytes of 32 numbers from 0 to 255 (`with_sign`: the signs of any), in the order that sort_bytes expects. */
INLINE __m256i bytes_of(const __m256i v[4], bool with_sign) {
  return with_sign ? _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]))
                   : _mm256_packus_epi16(_mm256_packus_epi32(v[0], v[1]), _mm256_packus_epi32(v[2], v[3]));
}
INLINE __m256i sort_bytes(__m256i bytes) {
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

INLINE void encode_all(uint8_t *codes, const float *values, float scale, const hri_dynamic_maps *maps, bool is_signed) {
  const lines l = lines_make(is_signed ? &maps->signed_segments : &maps->unsigned_segments, scale);
  for (int64_t i = 0; i < HRI_STATE_BLOCK; i += 4 * HRI_LANES) {
    __m256 unsure = _mm256_setzero_ps();
    __m256i code[4], value[4], all, negative;
    for (int k = 0; k < 4; k++) {
      value[k] = (__m256i)hri_vload(values + i + k * HRI_LANES);
      code[k] = code_by_line(&l, (hri_vf)value[k], &unsure);
    }
    if (__builtin_expect(_mm256_movemask_ps(unsure) != 0, 0)) {
      for (int64_t k = i; k < i + 4 * HRI_LANES; k += HRI_LANES)
        store_codes(codes + k, code_by_table(hri_vload(values + k), scale, maps, is_signed));
      continue;
    }
    all = bytes_of(code, false);
    if (is_signed) {
      negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), bytes_of(value, true));
      all = _mm256_max_epu8(all, _mm256_and_si256(negative, _mm256_set1_epi8((char)128)));
      all = _mm256_min_epu8(all, _mm256_add_epi8(negative, _mm256_set1_epi8((char)255)));
      all = _mm256_sub_epi8(_mm256_xor_si256(all, negative), _mm256_and_si256(negative, _mm256_set1_epi8(1)));
    }
    _mm256_storeu_si256((__m256i *)(void *)(codes + i), sort_bytes(all));
  }
}
#else
INLINE void encode_all(uint8_t *codes, const float *values, float scale, const hri_dynamic_maps *maps, bool is_signed) {
  for (int64_t i = 0; i < HRI_STATE_BLOCK; i += HRI_LANES)
    store_codes(codes + i, code_by_table(hri_vload(values + i), scale, maps, is_signed));
}
#endif

INLINE void encode(uint8_t *codes, const float *values, int64_t n, float scale, const hri_dynamic_maps *maps,
                   bool is_signed) {
  uint8_t padded[HRI_STATE_BLOCK], *to = n < HRI_STATE_BLOCK ? padded : codes;
  encode_all(to, values, scale, maps, is_signed);
  if (to == padded) memcpy(codes, padded, (size_t)n);
}

/* ---- a block ---- */

typedef struct block {
  _Alignas(64) float first[HRI_STATE_BLOCK], second[HRI_STATE_BLOCK];
  hri_vf largest_first, largest_second; /* NaN never wins */
} block;

/* New states at [at, at + HRI_LANES) of the block, and the weight's new value. raw: the gradient as it came; that a lane
 * of it is no number is rare, and costs where it is. */
INLINE hri_vf adamw_part(block *b, const numbers *f, int64_t at, hri_vf raw, hri_vf weight) {
  hri_vf g = rounded(raw * f->gradient_scale), old = weight, step, first = hri_vload(b->first + at),
         second = hri_vload(b->second + at);
  first = rounded(first * f->beta1) + rounded(g * f->one_minus_beta1);
  second = rounded(second * f->beta2) + rounded(rounded(g * f->one_minus_beta2) * g);
  step = f->step * (first / (hri_vsqrt(second) + f->epsilon));
  weight = weight * f->decay - step;
  if (__builtin_expect(beyond_bf16((hri_vu)raw), 0)) {
    hri_vi finite = (hri_vi)((hri_vu)raw & 0x7FFFFFFFu) < 0x7F800000;
    first = (hri_vf)((hri_vi)first & finite);
    second = (hri_vf)((hri_vi)second & finite);
    weight = hri_vselect(finite, weight, old);
  }
  b->largest_first = hri_vmax(magnitude(first), b->largest_first);
  b->largest_second = hri_vmax(second, b->largest_second);
  hri_vstore(b->first + at, first);
  hri_vstore(b->second + at, second);
  return weight;
}

INLINE hri_vf lion_part(block *b, const numbers *f, int64_t at, hri_vf raw, hri_vf weight) {
  hri_vf g = rounded(raw * f->gradient_scale), old = weight, zero = {0}, first = hri_vload(b->first + at);
  hri_vf smooth = rounded(first * f->beta1) + rounded(g * f->one_minus_beta1);
  hri_vf step = hri_vselect(smooth > zero, hri_vset(f->step), hri_vselect(smooth < zero, hri_vset(-f->step), zero));
  first = rounded(first * f->beta2) + rounded(g * f->one_minus_beta2);
  weight = weight * f->decay - step;
  if (__builtin_expect(beyond_bf16((hri_vu)raw), 0)) {
    hri_vi finite = (hri_vi)((hri_vu)raw & 0x7FFFFFFFu) < 0x7F800000;
    first = (hri_vf)((hri_vi)first & finite);
    weight = hri_vselect(finite, weight, old);
  }
  b->largest_first = hri_vmax(magnitude(first), b->largest_first);
  hri_vstore(b->first + at, first);
  return weight;
}

INLINE float fold_largest(hri_vf v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)v);
#endif
  float most = 0;
  for (int i = 0; i < HRI_LANES; i++) most = v[i] > most ? v[i] : most;
  return most;
}

/* Elements [i, i + n) of the slice: one block. random: bits for the weights, where those are bf16. */
INLINE void block_step(const hri_update_args *a, const numbers *f, const hri_dynamic_maps *maps, kind k, int64_t i,
                       int64_t n, const uint16_t *random) {
  bool two = k.rule == ADAMW8BIT;
  uint8_t *first_codes = (uint8_t *)a->state[0] + i, *second_codes = two ? (uint8_t *)a->state[1] + i : NULL;
  float *first_scale = (float *)a->state[two ? 2 : 1] + i / HRI_STATE_BLOCK,
        *second_scale = two ? (float *)a->state[3] + i / HRI_STATE_BLOCK : NULL;
  block b;
  hri_vf zero = {0};
  b.largest_first = b.largest_second = zero;
  decode(b.first, first_codes, n, maps, true, *first_scale);
  if (two) decode(b.second, second_codes, n, maps, false, *second_scale);
  for (int64_t at = 0; at < n; at += HRI_LANES) {
    int64_t count = n - at < HRI_LANES ? n - at : HRI_LANES;
    hri_vf raw = hri_vload_real_n(a->g, i + at, count, k.gradient), w = hri_vload_real_n(a->w, i + at, count, k.w);
    w = two ? adamw_part(&b, f, at, raw, w) : lion_part(&b, f, at, raw, w);
    store_state(a->w, i + at, w, count, k.w, random + at);
    if (k.copy != HRI_REAL_F32) hri_vstore_real_n(a->copy, i + at, w, count, k.copy);
  }
  *first_scale = fold_largest(b.largest_first);
  encode(first_codes, b.first, n, *first_scale, maps, true);
  if (!two) return;
  *second_scale = fold_largest(b.largest_second);
  encode(second_codes, b.second, n, *second_scale, maps, false);
}

/* ---- blocks, types, threads ---- */

/* Elements [i, end), from the beginning of a block on. */
INLINE void step_range(const hri_update_args *args, const numbers *all, const hri_dynamic_maps *maps, int64_t i,
                       int64_t end, kind k) {
  hri_update_args a = *args; /* copies: stores through w must not make the compiler reload them */
  numbers f = *all;
  bool random = k.w == HRI_REAL_BF16;
  _Alignas(64) span_bits bits[HRI_ROUNDED_COUNT];
  hri_philox_keys keys = {{0}, {0}};
  if (random) keys = hri_philox_keys_make(a.rounding.seed ^ HRI_ROUNDING_KEY);
  for (; i < end; i += HRI_STATE_BLOCK) {
    int64_t n = end - i < HRI_STATE_BLOCK ? end - i : HRI_STATE_BLOCK, element = a.first_element + i,
            chunk = element / HRI_ROUNDING_CHUNK, at = random ? element % HRI_ROUNDING_CHUNK : 0;
    for (int64_t drawn = 0; random && drawn < at + n; drawn += HRI_ROUNDING_CHUNK)
      draw_chunk(bits, drawn, &a.rounding, &keys, chunk++, true, false, false);
    if (n == HRI_STATE_BLOCK) block_step(&a, &f, maps, k, i, HRI_STATE_BLOCK, bits[HRI_ROUNDED_WEIGHT] + at);
    else block_step(&a, &f, maps, k, i, n, bits[HRI_ROUNDED_WEIGHT] + at);
  }
}

/* The types of the call as constants, one after the other. */
INLINE void with_gradient(const hri_update_args *a, const numbers *f, const hri_dynamic_maps *maps, int64_t begin,
                          int64_t end, kind k) {
  if (a->gradient_real == HRI_REAL_BF16) {
    k.gradient = HRI_REAL_BF16;
    step_range(a, f, maps, begin, end, k);
  } else {
    k.gradient = HRI_REAL_F32;
    step_range(a, f, maps, begin, end, k);
  }
}
INLINE void with_weight(const hri_update_args *a, const numbers *f, const hri_dynamic_maps *maps, int64_t begin,
                        int64_t end, rule of) {
  if (a->w_real == HRI_REAL_BF16) with_gradient(a, f, maps, begin, end, (kind){.rule = of, .w = HRI_REAL_BF16});
  else if (a->copy && a->copy_real == HRI_REAL_F16)
    step_range(a, f, maps, begin, end, (kind){.rule = of, .copy = HRI_REAL_F16});
  else if (a->copy) with_gradient(a, f, maps, begin, end, (kind){.rule = of, .copy = HRI_REAL_BF16});
  else with_gradient(a, f, maps, begin, end, (kind){.rule = of, .w = HRI_REAL_F32});
}

typedef struct blocks_job {
  const hri_update_args *args;
  const numbers *numbers;
  const hri_dynamic_maps *maps;
  rule rule;
} blocks_job;

static void step_items(void *context, int64_t first, int64_t last, int thread) {
  const blocks_job *job = context;
  int64_t begin = first * ITEM, end = last * ITEM < job->args->n ? last * ITEM : job->args->n;
  (void)thread;
  if (job->rule == ADAMW8BIT) with_weight(job->args, job->numbers, job->maps, begin, end, ADAMW8BIT);
  else with_weight(job->args, job->numbers, job->maps, begin, end, LION8BIT);
}

static void step(const hri_update_args *a, const numbers *f, rule of) {
  blocks_job job = {.args = a, .numbers = f, .maps = hri_dynamic_maps_get(), .rule = of};
  hri_team_each(a->team, (a->n + ITEM - 1) / ITEM, hri_grain(ITEM), step_items, &job);
}

/* 1 - beta is a difference of floats, as in the kernels that it has to equal. */
static numbers numbers_make(const hri_update_numbers *n) {
  float beta1 = (float)n->number[0], beta2 = (float)n->number[1];
  return (numbers){.decay = (float)(1.0 - n->learning_rate * n->weight_decay),
                   .beta1 = beta1,
                   .beta2 = beta2,
                   .one_minus_beta1 = 1.0f - beta1,
                   .one_minus_beta2 = 1.0f - beta2,
                   .step = (float)n->learning_rate,
                   .gradient_scale = (float)n->gradient_scale};
}

void hri_optim_adamw8bit(const hri_update_args *args, const hri_update_numbers *n) {
  numbers f = numbers_make(n);
  double bias1 = 1.0 - pow(n->number[0], (double)n->t), root2 = sqrt(1.0 - pow(n->number[1], (double)n->t));
  f.step = (float)(n->learning_rate * root2 / bias1);
  f.epsilon = (float)(n->number[2] * root2);
  step(args, &f, ADAMW8BIT);
}

void hri_optim_lion8bit(const hri_update_args *args, const hri_update_numbers *n) {
  numbers f = numbers_make(n);
  step(args, &f, LION8BIT);
}
