/* Weights out of the blocks of GGUF files, which are kept as the files have them. Layouts: ggml-org/llama.cpp, ggml/src/
 * ggml-common.h; values: formats/quant.c, bit for bit, on every level.
 *
 * Each type comes down to 32 codes of a byte at a time, taken out 16 bytes at once, and
 *
 *   w = scale * (code - bias) - minimum
 *
 * In the blocks of 32, codes j and j + 16 share a byte (low and high nibble); fifth bits are a u32 with bit j for code j.
 * The K formats have 8 sub-blocks of 32 (Q2_K, Q3_K and Q6_K 16 of 16), whose scales and minima are 6 bits (4 in Q2_K, 8 in
 * Q6_K) times one fp16 each. Codes of IQ4_NL and IQ4_XS are looked up in a table of 16 bytes.
 *
 * Whether a compiler joins the product with the difference behind it makes no bit: what is subtracted from is the
 * product of an fp16 (11 bits) with integers of 11 bits together at most, which fp32 holds exactly. A minimum of 0 keeps
 * the sign of a zero. */
#include "ops/quant/kernels.h"

enum { CHUNK = 1024 }; /* elements: whole blocks of every type */

typedef uint64_t bytes16 __attribute__((vector_size(16)));
#define EACH(byte) ((byte) * UINT64_C(0x0101010101010101)) /* of 8 */

static HRI_INLINE bytes16 load16(const uint8_t *from) {
  bytes16 v;
  memcpy(&v, from, sizeof v);
  return v;
}

static HRI_INLINE float half_at(const uint8_t *at) {
  uint16_t half;
  memcpy(&half, at, sizeof half);
#ifdef __F16C__
  return _cvtsh_ss(half);
#else
  return hri_f16_widen(half);
#endif
}

static HRI_INLINE uint32_t word_at(const uint8_t *at) {
  uint32_t word;
  memcpy(&word, at, sizeof word);
  return word;
}

static HRI_INLINE bytes16 low_nibbles(bytes16 v) { return v & EACH(15); }
static HRI_INLINE bytes16 high_nibbles(bytes16 v) { return v >> 4 & EACH(15); }

/* 8 bits, the lowest first, as 16 or 0 in 8 bytes: a bit in each copy of the byte, and a carry from it to the top. */
static HRI_INLINE uint64_t fifth_bits(uint32_t bits) {
  return ((((bits & 255) * EACH(1) & UINT64_C(0x8040201008040201)) + EACH(127)) & EACH(128)) >> 3;
}
static HRI_INLINE bytes16 fifth16(uint32_t bits) { return (bytes16){fifth_bits(bits), fifth_bits(bits >> 8)}; }

static HRI_INLINE bytes16 less(bytes16 codes, int8_t bias) {
  typedef int8_t lanes __attribute__((vector_size(16)));
  return (bytes16)((lanes)codes - bias);
}

/* Steps of IQ4_NL and IQ4_XS at the places that the low nibbles of 16 bytes say; high nibbles are 0. */
static HRI_INLINE bytes16 uneven(bytes16 places) {
  static const int8_t steps[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
#if defined(__AVX2__)
  return (bytes16)_mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)steps), (__m128i)places);
#elif defined(__aarch64__)
  return (bytes16)vqtbl1q_s8(vld1q_s8(steps), (uint8x16_t)places);
#else
  uint8_t at[16];
  memcpy(at, &places, sizeof at);
  for (int j = 0; j < 16; j++) at[j] = (uint8_t)steps[at[j]];
  return load16(at);
#endif
}

static HRI_INLINE hri_vf value_of(const int8_t *codes, float scale, float minimum) {
  return __builtin_convertvector(hri_vload_bytes(codes), hri_vf) * scale - minimum;
}

#if defined(__AVX2__) && !defined(__AVX512F__)
/* 16 values as bf16. Codes come to the tops of lanes, those of even places in one vector, of odd ones in the other, so
 * that their halves fall into place without being packed; 2^24 times too large, for which a scale that is a product of an
 * fp16 makes up exactly. No value is a NaN. */
static HRI_INLINE void put16(uint16_t *to, const int8_t *codes, float scale, float minimum) {
  const __m256i even = _mm256_set_epi32(0x0e808080, 0x0c808080, 0x0a808080, 0x08808080, 0x06808080, 0x04808080,
                                        0x02808080, 0x00808080),
                one = _mm256_set1_epi32(0x01000000);
  __m256i all = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)codes));
  __m256i tops = _mm256_shuffle_epi8(all, even), others = _mm256_shuffle_epi8(all, _mm256_add_epi32(even, one));
  hri_vu a = (hri_vu)(__builtin_convertvector((hri_vi)tops, hri_vf) * (scale * 0x1p-24f) - minimum);
  hri_vu b = (hri_vu)(__builtin_convertvector((hri_vi)others, hri_vf) * (scale * 0x1p-24f) - minimum);
  a = (a + 0x7FFFu + (a >> 16 & 1u)) >> 16, b = b + 0x7FFFu + (b >> 16 & 1u);
  _mm256_storeu_si256((__m256i *)(void *)to, _mm256_blend_epi16((__m256i)a, (__m256i)b, 0xAA));
}
#endif

/* n values of codes: 16 or 32. */
static HRI_INLINE void put(void *w, int64_t at, const int8_t *codes, int n, float scale, float minimum, hri_real real) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  if (real == HRI_REAL_BF16) {
    for (int i = 0; i < n; i += 16) put16((uint16_t *)w + at + i, codes + i, scale, minimum);
    return;
  }
#endif
  for (int i = 0; i < n; i += 2 * HRI_LANES) { /* the last may have one half: 16 codes fill one vector of AVX-512 */
    hri_vf first = value_of(codes + i, scale, minimum);
    if (i + HRI_LANES >= n) hri_vstore_real(w, at + i, first, real);
    else hri_vstore_pair(w, at + i, first, value_of(codes + i + HRI_LANES, scale, minimum), real);
  }
}

static HRI_INLINE void put32(void *w, int64_t at, bytes16 first, bytes16 second, float scale, float minimum,
                             hri_real real) {
  int8_t codes[32];
  memcpy(codes, &first, 16);
  memcpy(codes + 16, &second, 16);
  put(w, at, codes, 32, scale, minimum, real);
}

/* ---- blocks of 32 ---- */

static HRI_INLINE void from_q4_0(void *w, int64_t at, const uint8_t *b, hri_real real) {
  bytes16 v = load16(b + 2);
  put32(w, at, less(low_nibbles(v), 8), less(high_nibbles(v), 8), half_at(b), 0, real);
}

static HRI_INLINE void from_q4_1(void *w, int64_t at, const uint8_t *b, hri_real real) {
  bytes16 v = load16(b + 4);
  put32(w, at, low_nibbles(v), high_nibbles(v), half_at(b), -half_at(b + 2), real);
}

static HRI_INLINE void from_q5_0(void *w, int64_t at, const uint8_t *b, hri_real real) {
  bytes16 v = load16(b + 6);
  uint32_t high = word_at(b + 2);
  put32(w, at, less(low_nibbles(v) | fifth16(high), 16), less(high_nibbles(v) | fifth16(high >> 16), 16), half_at(b), 0,
        real);
}

static HRI_INLINE void from_q5_1(void *w, int64_t at, const uint8_t *b, hri_real real) {
  bytes16 v = load16(b + 8);
  uint32_t high = word_at(b + 4);
  put32(w, at, low_nibbles(v) | fifth16(high), high_nibbles(v) | fifth16(high >> 16), half_at(b), -half_at(b + 2),
        real);
}

static HRI_INLINE void from_q8_0(void *w, int64_t at, const uint8_t *b, hri_real real) {
  put(w, at, (const int8_t *)b + 2, 32, half_at(b), 0, real);
}

static HRI_INLINE void from_iq4_nl(void *w, int64_t at, const uint8_t *b, hri_real real) {
  bytes16 v = load16(b + 2);
  put32(w, at, uneven(low_nibbles(v)), uneven(high_nibbles(v)), half_at(b), 0, real);
}

/* ---- K formats ---- */

static HRI_INLINE void put_sixteen(void *w, int64_t at, bytes16 code, float scale, float minimum, hri_real real) {
  int8_t codes[16];
  memcpy(codes, &code, sizeof codes);
  put(w, at, codes, 16, scale, minimum, real);
}

/* Scales and minima of 8 sub-blocks, of 6 bits: those of the first four in the low bits of bytes 0 to 3 and 4 to 7, those
 * of the others in the nibbles of bytes 8 to 11, whose upper two bits are those above the first ones. */
static HRI_INLINE void take_scales(float scales[8], float minima[8], const uint8_t *b) {
  const uint32_t first = word_at(b + 4), second = word_at(b + 8), third = word_at(b + 12), four = 0x01010101u;
  const uint32_t packed[4] = {first & 63 * four, (third & 15 * four) | (first >> 2 & 48 * four), second & 63 * four,
                              (third >> 4 & 15 * four) | (second >> 2 & 48 * four)};
  float d = half_at(b), least = half_at(b + 2);
  uint8_t bytes[16];
  memcpy(bytes, packed, sizeof bytes);
  for (int k = 0; k < 8; k++) scales[k] = (float)bytes[k] * d;
  for (int k = 0; k < 8; k++) minima[k] = (float)bytes[8 + k] * least;
}

/* Sub-blocks 2i and 2i + 1 are the low and high nibbles of 32 bytes. */
static HRI_INLINE void from_q4_k(void *w, int64_t at, const uint8_t *b, hri_real real) {
  float scales[8], minima[8];
  take_scales(scales, minima, b);
  for (int k = 0; k < 8; k += 2) {
    bytes16 first = load16(b + 16 + k * 16), second = load16(b + 32 + k * 16);
    put32(w, at + k * 32, low_nibbles(first), low_nibbles(second), scales[k], minima[k], real);
    put32(w, at + k * 32 + 32, high_nibbles(first), high_nibbles(second), scales[k + 1], minima[k + 1], real);
  }
}

/* As Q4_K; the fifth bit of element j of sub-block k is bit k of byte j. */
static HRI_INLINE void from_q5_k(void *w, int64_t at, const uint8_t *b, hri_real real) {
  const bytes16 bits = load16(b + 16), more = load16(b + 32);
  float scales[8], minima[8];
  take_scales(scales, minima, b);
  for (int k = 0; k < 8; k += 2) {
    bytes16 first = load16(b + 48 + k * 16), second = load16(b + 64 + k * 16);
    put32(w, at + k * 32, low_nibbles(first) | (bits >> k & EACH(1)) << 4,
          low_nibbles(second) | (more >> k & EACH(1)) << 4, scales[k], minima[k], real);
    put32(w, at + k * 32 + 32, high_nibbles(first) | (bits >> (k + 1) & EACH(1)) << 4,
          high_nibbles(second) | (more >> (k + 1) & EACH(1)) << 4, scales[k + 1], minima[k + 1], real);
  }
}

/* Halves of 128: four groups of 32, group g with nibbles of bytes 32 (g % 2) and bits 2g of the 32 bytes of upper
 * bits; a scale for each 16. */
static HRI_INLINE void from_q6_k(void *w, int64_t at, const uint8_t *b, hri_real real) {
  float d = half_at(b + 208);
  for (int k = 0; k < 16; k++) {
    const int group = k / 2, in = k % 2 * 16;
    bytes16 low = load16(b + group / 4 * 64 + group % 2 * 32 + in), high = load16(b + 128 + group / 4 * 32 + in);
    bytes16 code =
        less((group % 4 < 2 ? low_nibbles(low) : high_nibbles(low)) | (high >> group % 4 * 2 & EACH(3)) << 4, 32);
    put_sixteen(w, at + k * 16, code, d * (float)(int8_t)b[192 + k], 0, real);
  }
}

/* Halves of 128: sub-blocks 2g and 2g + 1 are bits 2g and 2g + 1 of 32 bytes; a byte for each has scale and minimum. */
static HRI_INLINE void from_q2_k(void *w, int64_t at, const uint8_t *b, hri_real real) {
  float d = half_at(b + 80), least = half_at(b + 82);
  for (int k = 0; k < 16; k++) {
    bytes16 two = load16(b + 16 + k / 8 * 32 + k % 2 * 16) >> (k % 8 / 2 * 2) & EACH(3);
    put_sixteen(w, at + k * 16, two, d * (float)(b[k] & 15), least * (float)(b[k] >> 4), real);
  }
}

/* Scales of 16 sub-blocks, of 6 bits with the bias 32: nibbles of 8 bytes, the low ones first; pairs of bits of 4. */
static HRI_INLINE void take_scales_q3_k(int8_t scales[16], const uint8_t *b) {
  const uint32_t first = word_at(b), second = word_at(b + 4), upper = word_at(b + 8), four = 0x01010101u;
  const uint32_t packed[4] = {(first & 15 * four) | (upper << 4 & 48 * four),
                              (second & 15 * four) | (upper << 2 & 48 * four),
                              (first >> 4 & 15 * four) | (upper & 48 * four),
                              (second >> 4 & 15 * four) | (upper >> 2 & 48 * four)};
  bytes16 codes;
  memcpy(&codes, packed, sizeof codes);
  codes = less(codes, 32);
  memcpy(scales, &codes, sizeof codes);
}

/* Two bits as in Q2_K; the third one of sub-blocks 2g and 2g + 1 is bit g of 32 bytes. */
static HRI_INLINE void from_q3_k(void *w, int64_t at, const uint8_t *b, hri_real real) {
  float d = half_at(b + 108);
  int8_t scales[16];
  take_scales_q3_k(scales, b + 96);
  for (int k = 0; k < 16; k++) {
    bytes16 two = load16(b + 32 + k / 8 * 32 + k % 2 * 16) >> (k % 8 / 2 * 2) & EACH(3),
            third = (load16(b + k % 2 * 16) >> (k / 2) & EACH(1)) << 2;
    put_sixteen(w, at + k * 16, less(two | third, 4), d * (float)scales[k], 0, real);
  }
}

/* Sub-blocks as blocks of IQ4_NL, with scales of 6 bits with the bias 32: nibbles of 4 bytes, and a u16 of pairs. */
static HRI_INLINE void from_iq4_xs(void *w, int64_t at, const uint8_t *b, hri_real real) {
  float d = half_at(b);
  for (int k = 0; k < 8; k++) {
    bytes16 v = load16(b + 8 + k * 16);
    int six = (b[4 + k / 2] >> (k % 2 * 4) & 15) | (b[2 + k / 4] >> (k % 4 * 2) & 3) << 4;
    put32(w, at + k * 32, uneven(low_nibbles(v)), uneven(high_nibbles(v)), d * (float)(six - 32), 0, real);
  }
}

/* ---- elements of 16 or 32 bits ---- */

static HRI_INLINE void from_plain(void *w, int64_t at, const uint8_t *codes, hri_dtype type, int64_t n, hri_real real) {
  hri_real own = hri_dtype_real((uint8_t)type);
  for (int64_t i = 0; i < n; i += HRI_LANES) {
    const int64_t few = n - i < HRI_LANES ? n - i : HRI_LANES;
    float list[HRI_LANES]; /* codes need no alignment */
    memcpy(list, codes + (uint64_t)i * hri_real_bytes(own), (uint64_t)few * hri_real_bytes(own));
    hri_vstore_real_n(w, at + i, hri_vload_real_n(list, 0, few, own), few, real);
  }
}

#define BLOCKS(one, elements, bytes)                                                                                   \
  for (int64_t i = 0; i < n / (elements); i++) one(w, at + i * (elements), codes + i * (bytes), real)

/* n elements, whole blocks, to w[at]. */
static HRI_INLINE void from_blocks(void *w, int64_t at, const uint8_t *codes, hri_dtype type, int64_t n,
                                   hri_real real) {
  switch (type) {
  case HRI_Q4_0: BLOCKS(from_q4_0, 32, 18); break;
  case HRI_Q4_1: BLOCKS(from_q4_1, 32, 20); break;
  case HRI_Q5_0: BLOCKS(from_q5_0, 32, 22); break;
  case HRI_Q5_1: BLOCKS(from_q5_1, 32, 24); break;
  case HRI_Q8_0: BLOCKS(from_q8_0, 32, 34); break;
  case HRI_Q4_K: BLOCKS(from_q4_k, 256, 144); break;
  case HRI_Q5_K: BLOCKS(from_q5_k, 256, 176); break;
  case HRI_Q6_K: BLOCKS(from_q6_k, 256, 210); break;
  case HRI_Q2_K: BLOCKS(from_q2_k, 256, 84); break;
  case HRI_Q3_K: BLOCKS(from_q3_k, 256, 110); break;
  case HRI_IQ4_NL: BLOCKS(from_iq4_nl, 32, 18); break;
  case HRI_IQ4_XS: BLOCKS(from_iq4_xs, 256, 136); break;
  default: from_plain(w, at, codes, type, n, real);
  }
}

typedef struct to_weights {
  const hri_quant_args *a;
  const hri_quant_part *p;
} to_weights;

/* An item is a chunk of the part. */
static void dequantize_some(void *context, int64_t begin, int64_t end, int thread) {
  const to_weights *m = context;
  const hri_dtype type = (hri_dtype)m->p->type;
  int64_t at = begin * CHUNK, n = end * CHUNK - at;
  const uint8_t *codes = m->a->codes + m->p->codes + hri_dtype_size(type, (uint64_t)at);
  (void)thread;
  if (n > (int64_t)m->p->elements - at) n = (int64_t)m->p->elements - at;
  HRI_BY_REAL(m->a->real, from_blocks(m->a->w, (int64_t)m->p->first + at, codes, type, n, REAL));
}

void hri_quant_dequantize_kept(const hri_quant_args *a) {
  for (uint32_t k = 0; k < a->layout->part_count; k++) {
    to_weights m = {.a = a, .p = &a->layout->part[k]};
    hri_team_each(a->team, ((int64_t)m.p->elements + CHUNK - 1) / CHUNK, hri_grain(CHUNK), dequantize_some, &m);
  }
}
