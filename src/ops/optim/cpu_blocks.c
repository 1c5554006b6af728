/* Optimizer steps whose states are codes of 8 bits with an fp32 scale per block of 256 (ops/optim/dynamic.h): decode,
 * the step in fp32, the largest magnitudes, and, while the next block is decoded and stepped, encode.
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
  bool split, copy; /* a weight in two halves, an fp16 copy of an fp32 one; neither with a bf16 gradient */
} kind;

typedef struct numbers {
  float decay, beta1, beta2, one_minus_beta1, one_minus_beta2;
  float step, epsilon; /* AdamW: the corrections of both averages are in them; Lion: step is the learning rate */
  float gradient_scale;
} numbers;

INLINE hri_vf magnitude(hri_vf x) { return (hri_vf)((hri_vu)x & 0x7FFFFFFFu); }

/* ---- codes ---- */

enum {
  SLICE = 64,
  SLICE_VECTORS = SLICE / HRI_LANES
}; /* elements of a block that are decoded, or encoded, at a time */

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

INLINE hri_vu most(hri_vu a, hri_vu b) {
#if defined(__AVX512F__)
  return (hri_vu)_mm512_max_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (hri_vu)_mm256_max_epu32((__m256i)a, (__m256i)b);
#else
  hri_vu mask = (hri_vu)(a > b);
  return (a & mask) | (b & ~mask);
#endif
}

#if defined(__AVX512F__)
/* Entries of 16 bits in registers of 32. The signed map has those of its upper half, which are the magnitudes of the
 * lower one: code 126 - k is the value of 128 + k with the other sign. */
typedef struct decoder {
  __m512i low[8], high[8];
} decoder;

INLINE decoder decoder_make(const hri_dynamic_maps *maps, bool is_signed) {
  const uint16_t (*halves)[256] = is_signed ? maps->signed_halves : maps->unsigned_halves;
  decoder d;
  for (int k = 0; k < 8; k++) {
    int at = is_signed ? 128 + k % 4 * 32 : k * 32;
    d.low[k] = _mm512_loadu_si512(halves[0] + at);
    d.high[k] = _mm512_loadu_si512(halves[1] + at);
  }
  return d;
}

/* A lookup in 128 entries, and in all 256. */
INLINE __m512i look_up(const __m512i *table, __m512i index, __mmask32 upper) {
  return _mm512_mask_blend_epi16(upper, _mm512_permutex2var_epi16(table[0], index, table[1]),
                                 _mm512_permutex2var_epi16(table[2], index, table[3]));
}
INLINE __m512i look_up_all(const __m512i *table, __m512i index, __mmask32 upper, __mmask32 second) {
  return _mm512_mask_blend_epi16(second, look_up(table, index, upper), look_up(table + 4, index, upper));
}

/* The halves of 32 values are looked up apart and put together; indices are arranged so that they come out in order. */
INLINE void decode_pair(hri_vf *out, const uint8_t *codes, const decoder *d, bool is_signed, float scale) {
  const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0), bit6 = _mm512_set1_epi16(64),
                zero = _mm512_set1_epi16(127);
  __m512i index = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)codes)), low, high;
  index = _mm512_permutexvar_epi64(order, index);
  if (is_signed) {
    __mmask32 negative = _mm512_cmplt_epu16_mask(index, zero), used = _mm512_cmpneq_epu16_mask(index, zero), upper;
    index = _mm512_mask_sub_epi16(index, negative, _mm512_set1_epi16(126), index);
    upper = _mm512_test_epi16_mask(index, bit6);
    low = _mm512_maskz_mov_epi16(used, look_up(d->low, index, upper));
    high = _mm512_maskz_mov_epi16(used, look_up(d->high, index, upper));
    high = _mm512_mask_add_epi16(high, negative, high, _mm512_set1_epi16(INT16_MIN));
  } else {
    __mmask32 upper = _mm512_test_epi16_mask(index, bit6),
              second = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
    low = look_up_all(d->low, index, upper, second);
    high = look_up_all(d->high, index, upper, second);
  }
  out[0] = (hri_vf)_mm512_unpacklo_epi16(low, high) * scale;
  out[1] = (hri_vf)_mm512_unpackhi_epi16(low, high) * scale;
}

INLINE void decode_slice(hri_vf *out, const uint8_t *codes, const decoder *d, bool is_signed, float scale) {
  decode_pair(out, codes, d, is_signed, scale);
  decode_pair(out + 2, codes + SLICE / 2, d, is_signed, scale);
}
#else
typedef struct decoder {
  const uint32_t *map; /* bits of its values */
} decoder;

INLINE decoder decoder_make(const hri_dynamic_maps *maps, bool is_signed) {
  return (decoder){.map = (const uint32_t *)(const void *)(is_signed ? maps->signed_map : maps->unsigned_map)};
}

#if defined(__AVX2__)
/* Entry by entry: on the processors with AVX2 alone that were measured (Zen 3) a gather of 8 takes three times as long. */
INLINE hri_vu decode_codes(const int32_t *map, const uint8_t *codes) {
  uint64_t c;
  memcpy(&c, codes, sizeof c);
  return (hri_vu)_mm256_setr_epi32(map[c & 255], map[c >> 8 & 255], map[c >> 16 & 255], map[c >> 24 & 255],
                                   map[c >> 32 & 255], map[c >> 40 & 255], map[c >> 48 & 255], map[c >> 56]);
}
#else
INLINE hri_vu decode_codes(const uint32_t *map, const uint8_t *codes) {
  return gather(map, __builtin_convertvector(*(const byte_lanes *)codes, hri_vu));
}
#endif

INLINE void decode_slice(hri_vf *out, const uint8_t *codes, const decoder *d, bool is_signed, float scale) {
  (void)is_signed;
  for (int k = 0; k < SLICE_VECTORS; k++)
    out[k] = (hri_vf)decode_codes((const void *)d->map, codes + k * HRI_LANES) * scale;
}
#endif

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
typedef struct encoder {
  __m512i powers, more_powers, last;
  __m512 next, factor, offset, reciprocal;
  float scale;
} encoder;

INLINE encoder encoder_make(const hri_dynamic_maps *maps, bool is_signed, float scale) {
  const hri_dynamic_segments *s = is_signed ? &maps->signed_segments : &maps->unsigned_segments;
  return (encoder){.powers = _mm512_loadu_si512(s->of_power),
                   .more_powers = _mm512_loadu_si512(s->of_power + 16),
                   .last = _mm512_loadu_si512(s->last),
                   .next = _mm512_loadu_ps(s->next),
                   .factor = _mm512_loadu_ps(s->factor),
                   .offset = _mm512_loadu_ps(s->offset),
                   .reciprocal = _mm512_set1_ps(scale > 0x1p-100f && scale < 0x1p100f ? 1 / scale : NAN),
                   .scale = scale};
}

/* Codes of 16 magnitudes, in the upper halves. *unsure gets lanes that have to be looked up. */
INLINE __m512i code_by_line(const encoder *e, hri_vf value, __mmask16 *unsure) {
  __m512 x = _mm512_mul_ps((__m512)magnitude(value), e->reciprocal), steps;
  __m512i segment = _mm512_srli_epi32(_mm512_max_epi32((__m512i)x, _mm512_set1_epi32(HRI_DYNAMIC_LOWEST)), 23), code;
  segment = _mm512_permutex2var_epi32(e->powers, segment, e->more_powers);
  segment = _mm512_mask_add_epi32(segment, _mm512_cmp_ps_mask(x, _mm512_permutexvar_ps(segment, e->next), _CMP_GE_OQ),
                                  segment, _mm512_set1_epi32(1));
  steps = _mm512_fmadd_ps(_mm512_permutexvar_ps(segment, e->factor), x, _mm512_permutexvar_ps(segment, e->offset));
  code = _mm512_cvttps_epi32(steps);
  *unsure = _mm512_testn_epi32_mask(code, _mm512_set1_epi32(HRI_DYNAMIC_AROUND));
  return _mm512_min_epu32(code, _mm512_permutexvar_epi32(segment, e->last));
}

/* The upper halves of 4 vectors as bytes, in the order that sort_bytes expects: numbers from 0 to 255, or (`with_sign`)
 * the signs of any. */
INLINE __m512i bytes_of(const __m512i v[4], bool with_sign) {
  static const uint16_t upper_halves[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                            33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  const __m512i index = _mm512_loadu_si512(upper_halves);
  __m512i a = _mm512_permutex2var_epi16(v[0], index, v[1]), b = _mm512_permutex2var_epi16(v[2], index, v[3]);
  return with_sign ? _mm512_packs_epi16(a, b) : _mm512_packus_epi16(a, b);
}
INLINE __m512i sort_bytes(__m512i bytes) {
  return _mm512_permutexvar_epi64(_mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0), bytes);
}

INLINE void encode_slice(uint8_t *codes, const float *values, const encoder *e, const hri_dynamic_maps *maps,
                         bool is_signed) {
  __m512i value[4], code[4], all;
  __mmask16 unsure[4];
  for (int k = 0; k < 4; k++) {
    value[k] = (__m512i)hri_vload(values + k * HRI_LANES);
    code[k] = code_by_line(e, (hri_vf)value[k], &unsure[k]);
  }
  all = bytes_of(code, false);
  if (is_signed) {
    __mmask64 negative = _mm512_movepi8_mask(bytes_of(value, true));
    all = _mm512_mask_subs_epu8(all, negative, _mm512_set1_epi8((char)254), all);
    all = _mm512_mask_min_epu8(all, negative, all, _mm512_set1_epi8(126));
  }
  _mm512_storeu_si512(codes, sort_bytes(all));
  if (__builtin_expect((unsure[0] | unsure[1] | unsure[2] | unsure[3]) != 0, 0))
    for (int k = 0; k < 4; k++)
      if (unsure[k])
        store_codes(codes + k * HRI_LANES, code_by_table(hri_vload(values + k * HRI_LANES), e->scale, maps, is_signed));
}
#elif defined(__AVX2__)
/* The same with registers of 8 entries: the segment comes from pairs of powers of two by bytes, and the ninth, which has
 * the last code, is taken for the eighth first. The rule of signs is applied to 32 codes at once, as bytes. */
typedef struct encoder {
  __m256i of_pair, last;
  __m256 next, factor, offset, reciprocal, end, end_factor, end_offset;
  float scale;
} encoder;

INLINE encoder encoder_make(const hri_dynamic_maps *maps, bool is_signed, float scale) {
  enum { END = HRI_DYNAMIC_SEGMENTS - 1 };
  const hri_dynamic_segments *s = is_signed ? &maps->signed_segments : &maps->unsigned_segments;
  const __m256 next = _mm256_loadu_ps(s->next);
  return (encoder){.of_pair = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)s->of_pair)),
                   .last = _mm256_loadu_si256((const __m256i *)(const void *)s->last),
                   .next = _mm256_blend_ps(next, _mm256_set1_ps(INFINITY), 0x80),
                   .factor = _mm256_loadu_ps(s->factor),
                   .offset = _mm256_loadu_ps(s->offset),
                   .reciprocal = _mm256_set1_ps(scale > 0x1p-100f && scale < 0x1p100f ? 1 / scale : NAN),
                   .end = _mm256_set1_ps(s->next[END - 1]),
                   .end_factor = _mm256_set1_ps(s->factor[END]),
                   .end_offset = _mm256_set1_ps(s->offset[END]),
                   .scale = scale};
}

/* Codes of 8 magnitudes. *unsure gets lanes that have to be looked up. */
INLINE __m256i code_by_line(const encoder *e, hri_vf value, __m256i *unsure) {
  __m256 x = _mm256_mul_ps((__m256)magnitude(value), e->reciprocal), steps, at_end;
  __m256i segment = _mm256_max_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(HRI_DYNAMIC_LOWEST)), last, code;
  segment = _mm256_shuffle_epi8(e->of_pair, _mm256_srli_epi32(segment, 24));
  segment =
      _mm256_sub_epi32(segment,
                       _mm256_castps_si256(_mm256_cmp_ps(x, _mm256_permutevar8x32_ps(e->next, segment), _CMP_GE_OQ)));
  at_end = _mm256_cmp_ps(x, e->end, _CMP_GE_OQ);
  steps =
      _mm256_fmadd_ps(_mm256_permutevar8x32_ps(e->factor, segment), x, _mm256_permutevar8x32_ps(e->offset, segment));
  steps = _mm256_blendv_ps(steps, _mm256_fmadd_ps(e->end_factor, x, e->end_offset), at_end);
  last = _mm256_sub_epi32(_mm256_permutevar8x32_epi32(e->last, segment), /* the code behind it */
                          _mm256_slli_epi32(_mm256_castps_si256(at_end), HRI_DYNAMIC_FRACTION));
  code = _mm256_cvttps_epi32(steps);
  *unsure = _mm256_or_si256(*unsure, _mm256_cmpeq_epi32(_mm256_and_si256(code, _mm256_set1_epi32(HRI_DYNAMIC_AROUND)),
                                                        _mm256_setzero_si256()));
  return _mm256_srli_epi32(_mm256_min_epu32(code, last), HRI_DYNAMIC_FRACTION);
}

/* The low bytes of 32 numbers from 0 to 255 (`with_sign`: the signs of any), in the order that sort_bytes expects. */
INLINE __m256i bytes_of(const __m256i v[4], bool with_sign) {
  return with_sign ? _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]))
                   : _mm256_packus_epi16(_mm256_packus_epi32(v[0], v[1]), _mm256_packus_epi32(v[2], v[3]));
}
INLINE __m256i sort_bytes(__m256i bytes) {
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

INLINE void encode_slice(uint8_t *codes, const float *values, const encoder *e, const hri_dynamic_maps *maps,
                         bool is_signed) {
  for (int64_t i = 0; i < SLICE; i += 4 * HRI_LANES) {
    __m256i code[4], value[4], all, negative, unsure = _mm256_setzero_si256();
    for (int k = 0; k < 4; k++) {
      value[k] = (__m256i)hri_vload(values + i + k * HRI_LANES);
      code[k] = code_by_line(e, (hri_vf)value[k], &unsure);
    }
    if (__builtin_expect(_mm256_movemask_epi8(unsure) != 0, 0)) {
      for (int64_t k = i; k < i + 4 * HRI_LANES; k += HRI_LANES)
        store_codes(codes + k, code_by_table(hri_vload(values + k), e->scale, maps, is_signed));
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
typedef struct encoder {
  float scale;
} encoder;

INLINE encoder encoder_make(const hri_dynamic_maps *maps, bool is_signed, float scale) {
  (void)maps;
  (void)is_signed;
  return (encoder){.scale = scale};
}

INLINE void encode_slice(uint8_t *codes, const float *values, const encoder *e, const hri_dynamic_maps *maps,
                         bool is_signed) {
  for (int64_t i = 0; i < SLICE; i += HRI_LANES)
    store_codes(codes + i, code_by_table(hri_vload(values + i), e->scale, maps, is_signed));
}
#endif

/* ---- a block ---- */

/* New states that wait for their codes. */
typedef struct block {
  _Alignas(64) float values[2][HRI_STATE_BLOCK];
  uint8_t *codes[2]; /* where they go; NULL: nothing waits */
  float scales[2];   /* their largest magnitudes; NaN never wins */
} block;

/* Where a lane of the gradient, as it came, is no number: states of 0, and the weight as it was. */
INLINE void forget(hri_vf raw, hri_vf *first, hri_vf *second, hri_vf *weight, hri_vf old) {
  hri_vi finite = (hri_vi)((hri_vu)raw & 0x7FFFFFFFu) < 0x7F800000;
  *first = (hri_vf)((hri_vi)*first & finite);
  *second = (hri_vf)((hri_vi)*second & finite);
  *weight = hri_vselect(finite, *weight, old);
}

/* The weight's new value; *first and *second become new. */
INLINE hri_vf adamw_part(const numbers *f, hri_vf raw, hri_vf weight, hri_vf *first, hri_vf *second) {
  hri_vf g = hri_vrounded(raw * f->gradient_scale), step;
  *first = hri_vrounded(*first * f->beta1) + hri_vrounded(g * f->one_minus_beta1);
  *second = hri_vrounded(*second * f->beta2) + hri_vrounded(hri_vrounded(g * f->one_minus_beta2) * g);
  step = f->step * (*first / (hri_vsqrt(*second) + f->epsilon));
  return weight * f->decay - step;
}

INLINE hri_vf lion_part(const numbers *f, hri_vf raw, hri_vf weight, hri_vf *first) {
  hri_vf g = hri_vrounded(raw * f->gradient_scale), zero = {0};
  hri_vf smooth = hri_vrounded(*first * f->beta1) + hri_vrounded(g * f->one_minus_beta1);
  hri_vf step = hri_vselect(smooth > zero, hri_vset(f->step), hri_vselect(smooth < zero, hri_vset(-f->step), zero));
  *first = hri_vrounded(*first * f->beta2) + hri_vrounded(g * f->one_minus_beta2);
  return weight * f->decay - step;
}

INLINE float fold_largest(hri_vf v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)v);
#endif
  float largest = 0;
  for (int i = 0; i < HRI_LANES; i++) largest = v[i] > largest ? v[i] : largest;
  return largest;
}

/* What a call has in common for all its blocks. */
typedef struct tables {
  const hri_dynamic_maps *maps;
  decoder of_signed, of_unsigned;
} tables;

/* Of `left` elements, those of one vector. */
INLINE int64_t lanes_of(int64_t left) { return left < 0 ? 0 : left < HRI_LANES ? left : HRI_LANES; }

/* Elements [i, i + n) of the slice: one block, read from `codes` and scales, whose new states then wait in `b`; beside
 * it, slice by slice, those that wait in `before` are encoded. That waits for nothing that is in hand, and uses other
 * units than a step does: apart, one after the other, they take a sixth more of AdamW's time on Zen 5.
 * random: bits for the weights, where those are bf16. */
INLINE void block_step(const hri_update_args *a, const numbers *f, const tables *t, kind k, int64_t i, int64_t n,
                       const uint16_t *random, const uint8_t *const codes[2], const float scales[2], block *b,
                       const block *before) {
  const bool two = k.rule == ADAMW8BIT;
  const encoder first_encoder = encoder_make(t->maps, true, before->scales[0]),
                second_encoder = encoder_make(t->maps, false, before->scales[1]);
  hri_vf zero = {0}, largest_first = zero, largest_second = zero;
  for (int64_t at = 0; at < HRI_STATE_BLOCK; at += SLICE) {
    hri_vf first[SLICE_VECTORS], second[SLICE_VECTORS], raw[SLICE_VECTORS];
    hri_vu worst = {0};
    bool wild;
    decode_slice(first, codes[0] + at, &t->of_signed, true, scales[0]);
    if (two) decode_slice(second, codes[1] + at, &t->of_unsigned, false, scales[1]);
    for (int v = 0; v < SLICE_VECTORS; v++) {
      raw[v] = hri_vload_real_n(a->g, i + at + v * HRI_LANES, lanes_of(n - at - v * HRI_LANES), k.gradient);
      worst = most(worst, (hri_vu)magnitude(raw[v]));
    }
    wild = beyond_bf16(worst); /* one question for all: no number is rare */
    for (int v = 0; v < SLICE_VECTORS; v++) {
      int64_t from = at + v * HRI_LANES, count = lanes_of(n - from);
      hri_vf old, w, m = first[v], s = two ? second[v] : zero;
      if (count == 0) break;
      old = load_weight(a, i + from, count, k.w, k.split);
      if (count < HRI_LANES) m = hri_vkeep_n(m, count, 0), s = hri_vkeep_n(s, count, 0);
      w = two ? adamw_part(f, raw[v], old, &m, &s) : lion_part(f, raw[v], old, &m);
      if (__builtin_expect(wild, 0)) forget(raw[v], &m, &s, &w, old);
      store_weight(a, i + from, w, count, k.w, k.split, random + from);
      if (k.copy) hri_vstore_real_n(a->copy, i + from, w, count, HRI_REAL_F16);
      hri_vstore(b->values[0] + from, m);
      largest_first = hri_vmax(magnitude(m), largest_first);
      if (!two) continue;
      hri_vstore(b->values[1] + from, s);
      largest_second = hri_vmax(s, largest_second);
    }
    if (!before->codes[0]) continue;
    encode_slice(before->codes[0] + at, before->values[0] + at, &first_encoder, t->maps, true);
    if (two) encode_slice(before->codes[1] + at, before->values[1] + at, &second_encoder, t->maps, false);
  }
  b->scales[0] = fold_largest(largest_first);
  b->scales[1] = fold_largest(largest_second);
}

/* What waits in a block, alone. */
INLINE void encode_rest(const block *b, const tables *t, rule of) {
  const encoder first = encoder_make(t->maps, true, b->scales[0]), second = encoder_make(t->maps, false, b->scales[1]);
  for (int64_t at = 0; b->codes[0] && at < HRI_STATE_BLOCK; at += SLICE) {
    encode_slice(b->codes[0] + at, b->values[0] + at, &first, t->maps, true);
    if (of == ADAMW8BIT) encode_slice(b->codes[1] + at, b->values[1] + at, &second, t->maps, false);
  }
}

/* ---- blocks, types, threads ---- */

/* Elements [i, end), from the beginning of a block on. A last block that is not full has its codes in an array of its
 * own while it is worked on. */
INLINE void step_range(const hri_update_args *args, const numbers *all, const hri_dynamic_maps *maps, int64_t i,
                       int64_t end, kind k) {
  hri_update_args a = *args; /* copies: stores through w must not make the compiler reload them */
  numbers f = *all;
  const bool random = k.w == HRI_REAL_BF16 && !k.split, two = k.rule == ADAMW8BIT;
  const tables t = {maps, decoder_make(maps, true), decoder_make(maps, false)};
  _Alignas(64) span_bits bits[HRI_ROUNDED_COUNT];
  hri_philox_keys keys = {{0}, {0}};
  block blocks[2];
  uint8_t padded[2][HRI_STATE_BLOCK] = {{0}};
  int64_t n = HRI_STATE_BLOCK;
  int which = 0;
  blocks[1].codes[0] = NULL;
  blocks[1].scales[0] = blocks[1].scales[1] = 0;
  if (random) keys = hri_philox_keys_make(a.rounding.seed ^ HRI_ROUNDING_KEY);
  for (; i < end; i += HRI_STATE_BLOCK, which ^= 1) {
    block *b = &blocks[which], *before = &blocks[which ^ 1];
    uint8_t *codes[2] = {(uint8_t *)a.state[0] + i, two ? (uint8_t *)a.state[1] + i : NULL};
    float *scales[2] = {(float *)a.state[two ? 2 : 1] + i / HRI_STATE_BLOCK,
                        two ? (float *)a.state[3] + i / HRI_STATE_BLOCK : NULL};
    const float old_scales[2] = {*scales[0], two ? *scales[1] : 0};
    int64_t element = a.first_element + i, chunk = element / HRI_ROUNDING_CHUNK,
            at = random ? element % HRI_ROUNDING_CHUNK : 0;
    n = end - i < HRI_STATE_BLOCK ? end - i : HRI_STATE_BLOCK;
    for (int64_t drawn = 0; random && drawn < at + n; drawn += HRI_ROUNDING_CHUNK)
      draw_chunk(bits, drawn, &a.rounding, &keys, chunk++, true, false, false);
    b->codes[0] = codes[0], b->codes[1] = codes[1];
    if (n == HRI_STATE_BLOCK) {
      block_step(&a, &f, &t, k, i, HRI_STATE_BLOCK, bits[HRI_ROUNDED_WEIGHT] + at, (const uint8_t *const *)codes,
                 old_scales, b, before);
    } else {
      for (int s = 0; s < 1 + two; s++) b->codes[s] = memcpy(padded[s], codes[s], (size_t)n);
      memset(b->values, 0, sizeof b->values);
      block_step(&a, &f, &t, k, i, n, bits[HRI_ROUNDED_WEIGHT] + at, (const uint8_t *const *)b->codes, old_scales, b,
                 before);
    }
    *scales[0] = b->scales[0]; // NOLINT(clang-analyzer-core.uninitialized.Assign): block_step left it
    if (two) *scales[1] = b->scales[1];
  }
  encode_rest(&blocks[which ^ 1], &t, k.rule);
  for (int s = 0; n < HRI_STATE_BLOCK && s < 1 + two; s++)
    memcpy((uint8_t *)a.state[s] + end - n, padded[s], (size_t)n);
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
  if (a->low) step_range(a, f, maps, begin, end, (kind){.rule = of, .w = HRI_REAL_BF16, .split = true});
  else if (a->copy) step_range(a, f, maps, begin, end, (kind){.rule = of, .copy = true});
  else if (a->w_real == HRI_REAL_BF16) with_gradient(a, f, maps, begin, end, (kind){.rule = of, .w = HRI_REAL_BF16});
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
