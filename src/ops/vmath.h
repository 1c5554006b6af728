/* Vectors of the native width, and exp, log, tanh, sigmoid on them, in fp32.
 *
 * Plain C loops would vectorize too, but then the compiler chooses how a reduction is split, and it may split it by the
 * address of the operand (peeling for alignment): the bits would depend on where a tensor was placed. With explicit
 * vectors the order is ours: lane l of an accumulator takes elements l, l + HRI_LANES, ... and the lanes are folded by
 * halves. GCC's and clang's vector extensions express everything but square root, max and scaling by a power of two,
 * for which x86 intrinsics or a lane loop are used.
 *
 * Tails go through the same operations as full vectors: hri_vload_n fills the missing lanes with zeros.
 *
 * Transcendental functions: argument reduction plus a minimax polynomial (coefficients by Lawson's iteration in
 * extended precision). Largest errors, stated and (measured over every fifth float): exp 1.25 ulp (1.01), log 1 (0.83),
 * tanh 1.5 (1.34), sigmoid 2.75 (2.47). tests/unit/test_kernels.c holds them to it on every instruction set.
 * exp overflows to infinity, underflows gradually to 0; NaN stays NaN; log(0) = -inf, log(< 0) = NaN. A sigmoid below
 * the smallest normal float may come out as 0. */
#ifndef HRI_OPS_VMATH_H
#define HRI_OPS_VMATH_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/real.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* AMX written out in C (ops/amx.h) has vectors as wide as its processors', and is tested without their instructions. */
#if defined(__AVX512F__) || defined(HRI_AMX_EMULATED)
#define HRI_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define HRI_VECTOR_BYTES 32
#else
#define HRI_VECTOR_BYTES 16
#endif
enum {
  HRI_LANES = HRI_VECTOR_BYTES / 4,
  HRI_HALF_LANES = HRI_LANES / 2,
#if defined(__AVX512F__) || defined(HRI_NEON)
  HRI_GROUP = 4 /* vectors side by side in a long chain of operations: as registers allow */
#else
  HRI_GROUP = 2
#endif
};
#define HRI_VECTOR_INLINE inline __attribute__((always_inline))

typedef float hri_vf __attribute__((vector_size(HRI_VECTOR_BYTES)));
typedef int32_t hri_vi __attribute__((vector_size(HRI_VECTOR_BYTES)));
typedef uint32_t hri_vu __attribute__((vector_size(HRI_VECTOR_BYTES))); /* where sums may wrap */
typedef double hri_vd __attribute__((vector_size(HRI_VECTOR_BYTES)));   /* HRI_HALF_LANES doubles */
/* The same in memory: any float's address, overlapping accesses of other types allowed. */
typedef float hri_vf_memory __attribute__((vector_size(HRI_VECTOR_BYTES), aligned(4), may_alias));

static inline hri_vf hri_vset(float x) {
  hri_vf zero = {0};
  return x - zero; /* not zero + x: that would lose the sign of -0 */
}
static inline hri_vf hri_vload(const float *p) { return *(const hri_vf_memory *)p; }
static inline void hri_vstore(float *p, hri_vf v) { *(hri_vf_memory *)p = v; }

/* The first n lanes (0 <= n <= HRI_LANES), the rest 0. With a constant n = HRI_LANES this is a plain load. */
static inline hri_vf hri_vload_n(const float *p, int64_t n) {
  if (n == HRI_LANES) return hri_vload(p);
#if defined(__AVX512F__)
  return (hri_vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1u), p);
#else
  float lanes[HRI_LANES] = {0};
  for (int64_t i = 0; i < n; i++) lanes[i] = p[i];
  return hri_vload(lanes);
#endif
}
static inline void hri_vstore_n(float *p, hri_vf v, int64_t n) {
  if (n == HRI_LANES) {
    hri_vstore(p, v);
    return;
  }
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), (__m512)v);
#else
  for (int64_t i = 0; i < n; i++) p[i] = v[i];
#endif
}

/* Asks for bytes that will be read soon. Worth it in bf16, where more operations stand between two cache lines and the
 * processor looks less far ahead: 1.1 to 1.5 times as fast from memory. In fp32 it gains nothing where one goes
 * straight on. Always inline: compilers take a function that does nothing else for one without effects, and drop its
 * calls. */
static HRI_VECTOR_INLINE void hri_fetch(const void *from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)from + i);
}

/* v, which a compiler may not join with what is done next: kernels are compiled so that it makes one rounding of a product
 * and the sum that takes it, and where bits are defined there are two. */
static HRI_VECTOR_INLINE hri_vf hri_vrounded(hri_vf v) {
#if defined(__AVX512F__)
  __asm__("" : "+v"(v));
#elif defined(__x86_64__) && HRI_VECTOR_BYTES <= 32
  __asm__("" : "+x"(v));
#elif defined(__aarch64__)
  __asm__("" : "+w"(v));
#else
  volatile hri_vf settled = v;
  v = settled;
#endif
  return v;
}

/* mask ? a : b per lane, for the result of a comparison. */
static inline hri_vf hri_vselect(hri_vi mask, hri_vf a, hri_vf b) {
  return (hri_vf)((mask & (hri_vi)a) | (~mask & (hri_vi)b));
}
/* Lanes [0, n) of v, the others replaced by `other`. */
static inline hri_vf hri_vkeep_n(hri_vf v, int64_t n, float other) {
  hri_vi index;
  if (n == HRI_LANES) return v;
  for (int32_t i = 0; i < HRI_LANES; i++) index[i] = i;
  return hri_vselect(index < (int32_t)n, v, hri_vset(other));
}

/* a > b ? a : b, and a < b ? a : b: the second operand when either is NaN. */
static inline hri_vf hri_vmax(hri_vf a, hri_vf b) {
#if defined(__AVX512F__)
  return (hri_vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif HRI_VECTOR_BYTES == 32
  return (hri_vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__) && HRI_VECTOR_BYTES == 16
  return (hri_vf)_mm_max_ps((__m128)a, (__m128)b);
#else
  return hri_vselect(a > b, a, b);
#endif
}
static inline hri_vf hri_vmin(hri_vf a, hri_vf b) {
#if defined(__AVX512F__)
  return (hri_vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif HRI_VECTOR_BYTES == 32
  return (hri_vf)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__) && HRI_VECTOR_BYTES == 16
  return (hri_vf)_mm_min_ps((__m128)a, (__m128)b);
#else
  return hri_vselect(a < b, a, b);
#endif
}

static inline hri_vf hri_vsqrt(hri_vf a) {
#if defined(__AVX512F__)
  return (hri_vf)_mm512_sqrt_ps((__m512)a);
#elif HRI_VECTOR_BYTES == 32
  return (hri_vf)_mm256_sqrt_ps((__m256)a);
#elif defined(__x86_64__) && HRI_VECTOR_BYTES == 16
  return (hri_vf)_mm_sqrt_ps((__m128)a);
#elif defined(__aarch64__)
  return (hri_vf)vsqrtq_f32((float32x4_t)a);
#else
  for (int i = 0; i < HRI_LANES; i++) a[i] = __builtin_sqrtf(a[i]);
  return a;
#endif
}

/* Folds of the lanes in a fixed order: upper half onto lower half until one is left. */
static inline float hri_vsum(hri_vf v) {
#if defined(__AVX512DQ__)
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
  __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
#else
  float a[HRI_LANES];
  memcpy(a, &v, sizeof a);
  for (int width = HRI_LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) a[i] += a[i + width];
  return a[0];
#endif
}
static inline double hri_vsum_double(hri_vd v) {
  double a[HRI_HALF_LANES];
  memcpy(a, &v, sizeof a);
  for (int width = HRI_HALF_LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) a[i] += a[i + width];
  return a[0];
}
static inline float hri_vmax_fold(hri_vf v) {
  float a[HRI_LANES], best;
  memcpy(a, &v, sizeof a);
  best = a[0];
  for (int i = 1; i < HRI_LANES; i++) best = a[i] > best ? a[i] : best;
  return best;
}

/* y * 2^n for n integral in fp32, |n| <= 252; overflow to infinity, gradual underflow. */
static inline hri_vf hri_vscale2(hri_vf y, hri_vf n) {
#if defined(__AVX512F__)
  return (hri_vf)_mm512_scalef_ps((__m512)y, (__m512)n);
#else
  hri_vi whole = __builtin_convertvector(n, hri_vi), half = whole >> 1; /* 2^n alone may not be a float */
  hri_vf first = (hri_vf)((half + 127) << 23), second = (hri_vf)((whole - half + 127) << 23);
  return y * first * second;
#endif
}

/* Nearest integer, ties to even, for |x| < 2^22. */
static inline hri_vf hri_vround(hri_vf x) {
  const float magic = 12582912.0f; /* 1.5 * 2^23: the sum has no fraction bits left */
  hri_vf shifted = x + magic;
  return shifted - magic;
}

/* x[k] = exp(x[k]) for k < count (a constant), of lanes in [HRI_EXP_LOWEST, 89] or NaN.
 * exp(x) = 2^n exp(r), r = x - n ln 2 in [-ln2/2, ln2/2]. Each step takes all vectors before the next one starts: the
 * chain of one is some 60 cycles long, more than a processor looks ahead over. */
#define HRI_EXP_LOWEST (-104.0f) /* 0 there */
static HRI_VECTOR_INLINE void hri_vexp_each(hri_vf *x, int count) {
  const float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f; /* n * ln2_high is exact */
  static const float factors[] = {0x1.123fc6p-7f, 0x1.555916p-5f, 0x1.55548ap-3f, 0x1.fffffcp-2f};
  hri_vf n[HRI_GROUP], p[HRI_GROUP];
  for (int k = 0; k < count; k++) n[k] = hri_vround(x[k] * 0x1.715476p+0f);
  for (int k = 0; k < count; k++) x[k] = x[k] - n[k] * ln2_high;
  for (int k = 0; k < count; k++) x[k] = x[k] - n[k] * ln2_low;
  for (int k = 0; k < count; k++) p[k] = hri_vset(0x1.6a1a72p-10f);
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < count; k++) p[k] = p[k] * x[k] + factors[i];
  for (int k = 0; k < count; k++) p[k] = x[k] + x[k] * x[k] * p[k];
  for (int k = 0; k < count; k++) x[k] = hri_vscale2(1.0f + p[k], n[k]);
}
static inline hri_vf hri_vexp(hri_vf x) {
  x = hri_vmin(hri_vset(89.0f), hri_vmax(hri_vset(HRI_EXP_LOWEST), x)); /* exp is inf beyond 89; NaN passes */
  hri_vexp_each(&x, 1);
  return x;
}

/* 1 / (1 + exp(-x)). */
static inline hri_vf hri_vsigmoid(hri_vf x) { return 1.0f / (1.0f + hri_vexp(-x)); }

/* x + x^3 T(x^2) near 0, else 1 - q with the sign of x, q = 2 / (exp(2|x|) + 1). The slope 1 - tanh^2 is q (2 - q),
 * which does not cancel where tanh is nearly 1. */
static inline hri_vf hri_vtanh_slope(hri_vf x, hri_vf *slope) {
  hri_vi sign = (hri_vi)x & INT32_MIN;
  hri_vf a = (hri_vf)((hri_vi)x & INT32_MAX), z = x * x, t, q, far, near;
  t = z * -0x1.76ac1ap-8f + 0x1.5256d8p-6f;
  t = t * z - 0x1.b84448p-5f;
  t = t * z + 0x1.110768p-3f;
  t = t * z - 0x1.555534p-2f;
  near = x + x * (z * t);
  q = 2.0f / (hri_vexp(a + a) + 1.0f);
  *slope = q * (2.0f - q);
  far = 1.0f - q;
  far = (hri_vf)((hri_vi)far | sign);
  return hri_vselect(a < 0.625f, near, far);
}
static inline hri_vf hri_vtanh(hri_vf x) {
  hri_vf slope;
  return hri_vtanh_slope(x, &slope);
}

/* log(2^e m) = e ln 2 + log(1 + f), f = m - 1 in [sqrt(1/2) - 1, sqrt(2) - 1]. */
static inline hri_vf hri_vlog(hri_vf x) {
  const float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
  hri_vi tiny = x < 0x1p-126f, exponent;
  hri_vu bits;
  hri_vf e, f, z, q, result, nan = hri_vset(__builtin_nanf("")), infinity = hri_vset(__builtin_inff());
  bits = (hri_vu)hri_vselect(tiny, x * 0x1p23f, x);
  exponent = (hri_vi)(bits - 0x3f3504f3u) >> 23; /* 0x3f3504f3 is sqrt(1/2): the mantissa then starts there */
  f = (hri_vf)(bits - ((hri_vu)exponent << 23)) - 1.0f;
  e = __builtin_convertvector(exponent - (tiny & 23), hri_vf);
  q = f * 0x1.1457acp-4f - 0x1.de3c18p-4f;
  q = q * f + 0x1.e6f06ap-4f;
  q = q * f - 0x1.fc2208p-4f;
  q = q * f + 0x1.233768p-3f;
  q = q * f - 0x1.555c4ep-3f;
  q = q * f + 0x1.99a4b6p-3f;
  q = q * f - 0x1.000006p-2f;
  q = q * f + 0x1.555548p-2f;
  z = f * f;
  result = f * z * q + e * ln2_low;
  result = result - 0.5f * z;
  result = result + f;
  result = result + e * ln2_high;
  result = hri_vselect(x == infinity, infinity, result);
  result = hri_vselect(x == 0.0f, -infinity, result);
  return hri_vselect(x >= 0.0f, result, nan); /* negative or NaN */
}

/* ---- bf16 in memory, fp32 in registers ---- */

typedef uint16_t hri_vh16 __attribute__((vector_size(HRI_VECTOR_BYTES / 2)));
typedef uint16_t hri_vh16_memory __attribute__((vector_size(HRI_VECTOR_BYTES / 2), aligned(2), may_alias));

static inline hri_vf hri_vwiden(hri_vh16 half) {
#if defined(__AVX512F__)
  return (hri_vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)half), 16);
#elif HRI_VECTOR_BYTES == 32
  return (hri_vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)half), 16);
#else
  return (hri_vf)(__builtin_convertvector(half, hri_vu) << 16);
#endif
}
/* The upper halves of 32-bit lanes. */
static inline hri_vh16 hri_vupper(hri_vu bits) {
#if defined(__AVX512BW__)
  const __m512i upper_halves =
      _mm512_set_epi64(0, 0, 0, 0, 0x1f001d001b0019, 0x17001500130011, 0xf000d000b0009, 0x7000500030001);
  return (hri_vh16)_mm512_castsi512_si256(_mm512_permutexvar_epi16(upper_halves, (__m512i)bits));
#elif HRI_VECTOR_BYTES == 32
  __m256i upper = _mm256_srli_epi32((__m256i)bits, 16);
  return (hri_vh16)_mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(upper, upper), 0x08));
#else
  return __builtin_convertvector(bits >> 16, hri_vh16);
#endif
}
/* Rounds to nearest even like hri_bf16_round, lane by lane; the lower halves that come out mean nothing. */
static inline hri_vu hri_vround_upper(hri_vf v) {
#if defined(__AVX512BW__)
  __m512i bits = (__m512i)v, half = _mm512_set1_epi32(0x7FFF);
  __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  __mmask16 is_nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
  half = _mm512_mask_mov_epi32(half, odd, _mm512_set1_epi32(0x8000));
  return (hri_vu)_mm512_mask_or_epi32(_mm512_add_epi32(bits, half), is_nan, bits, _mm512_set1_epi32(0x400000));
#else
  hri_vu bits = (hri_vu)v, rounded = bits + 0x7FFFu + (bits >> 16 & 1u);
  hri_vi is_nan = v != v;
  return (hri_vu)hri_vselect(is_nan, (hri_vf)(bits | 0x400000u), (hri_vf)rounded);
#endif
}
static inline hri_vh16 hri_vround_bf16(hri_vf v) { return hri_vupper(hri_vround_upper(v)); }

/* Whether a lane is NaN. */
static inline bool hri_vany_nan(hri_vf v) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q) != 0;
#elif HRI_VECTOR_BYTES == 32
  return _mm256_movemask_ps(_mm256_cmp_ps((__m256)v, (__m256)v, _CMP_UNORD_Q)) != 0;
#elif defined(__x86_64__) && HRI_VECTOR_BYTES == 16
  return _mm_movemask_ps(_mm_cmpunord_ps((__m128)v, (__m128)v)) != 0;
#elif defined(__aarch64__) && HRI_VECTOR_BYTES == 16
  return vminvq_u32(vceqq_f32((float32x4_t)v, (float32x4_t)v)) == 0;
#else
  hri_vi nan = v != v;
  int32_t any = 0;
  for (int i = 0; i < HRI_LANES; i++) any |= nan[i];
  return any != 0;
#endif
}
/* hri_split and hri_join, lane by lane. */
static inline hri_vh16 hri_vsplit(hri_vf v, hri_vh16 *low) {
  hri_vu bits = (hri_vu)v;
  if (__builtin_expect(hri_vany_nan(v), 0))
    bits = (hri_vu)hri_vselect((hri_vi)(v != v), (hri_vf)((bits & 0xFFFF0000u) | 0x400000u), v);
#if defined(__AVX512F__)
  *low = (hri_vh16)_mm512_cvtepi32_epi16((__m512i)bits);
  return hri_vupper(bits + 0x8000u);
#elif HRI_VECTOR_BYTES == 32
  __m256i upper = _mm256_srli_epi32((__m256i)(bits + 0x8000u), 16),
          lower = _mm256_blend_epi16((__m256i)bits, _mm256_setzero_si256(), 0xAA),
          both = _mm256_permute4x64_epi64(_mm256_packus_epi32(upper, lower), 0xD8);
  *low = (hri_vh16)_mm256_extracti128_si256(both, 1);
  return (hri_vh16)_mm256_castsi256_si128(both);
#else
  *low = __builtin_convertvector(bits, hri_vh16);
  return hri_vupper(bits + 0x8000u);
#endif
}
static inline hri_vf hri_vjoin(hri_vh16 high, hri_vh16 low) {
#if defined(__AVX512F__)
  return (hri_vf)((hri_vu)hri_vwiden(high) + (hri_vu)_mm512_cvtepi16_epi32((__m256i)low));
#elif HRI_VECTOR_BYTES == 32
  return (hri_vf)((hri_vu)hri_vwiden(high) + (hri_vu)_mm256_cvtepi16_epi32((__m128i)low));
#else
  return (hri_vf)((hri_vu)hri_vwiden(high) + (hri_vu)((hri_vi)hri_vwiden(low) >> 16));
#endif
}

/* ---- fp16 in memory, fp32 in registers ---- */

/* As hri_f16_widen and hri_f16_round, lane by lane. Processors do it in one instruction or two (AVX512F, F16C beside AVX2,
 * Arm), to the same bits; no arithmetic in fp16 is needed. */
static inline hri_vf hri_vwiden_f16(hri_vh16 half) {
#if defined(__AVX512F__)
  return (hri_vf)_mm512_cvtph_ps((__m256i)half);
#elif defined(__F16C__) && HRI_VECTOR_BYTES == 32
  return (hri_vf)_mm256_cvtph_ps((__m128i)half);
#elif defined(__aarch64__)
  return (hri_vf)vcvt_f32_f16((float16x4_t)half);
#else
  hri_vu bits = __builtin_convertvector(half, hri_vu), rest = bits & 0x7FFFu;
  hri_vf scaled = (hri_vf)(rest << 13) * 0x1p112f; /* exact, of subnormals too; infinity and NaN are 65536 or more */
  hri_vu special = (hri_vu)scaled | 0x7F800000u, quiet = special | 0x00400000u;
  scaled = hri_vselect((hri_vi)rest >= 0x7C00, (hri_vf)special, scaled);
  scaled = hri_vselect((hri_vi)rest > 0x7C00, (hri_vf)quiet, scaled);
  return (hri_vf)((hri_vu)scaled | (bits & 0x8000u) << 16);
#endif
}
static inline hri_vh16 hri_vround_f16(hri_vf v) {
#if defined(__AVX512F__)
  return (hri_vh16)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__F16C__) && HRI_VECTOR_BYTES == 32
  return (hri_vh16)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__aarch64__)
  return (hri_vh16)vcvt_f16_f32((float32x4_t)v);
#else
  hri_vu bits = (hri_vu)v, rest = bits & 0x7FFFFFFFu, nan = 0x7E00u | (rest >> 13 & 0x03FFu);
  hri_vu half = (rest - ((127u - 15) << 23) + 0x0FFFu + (rest >> 13 & 1u)) >> 13, infinity = {0};
  hri_vf small = (hri_vf)rest + 0.5f; /* rounds to multiples of 2^-24 */
  infinity |= 0x7C00u;
  half = (hri_vu)hri_vselect((hri_vi)rest < 0x38800000, (hri_vf)((hri_vu)small - 0x3F000000u), (hri_vf)half);
  half = (hri_vu)hri_vselect((hri_vi)rest >= 0x47800000, (hri_vf)infinity, (hri_vf)half);
  half = (hri_vu)hri_vselect((hri_vi)rest > 0x7F800000, (hri_vf)nan, (hri_vf)half);
  return __builtin_convertvector(half | (bits >> 16 & 0x8000u), hri_vh16);
#endif
}

/* ---- any type in memory ---- */

static inline hri_vf hri_vwiden_real(hri_vh16 half, hri_real real) {
  return real == HRI_REAL_F16 ? hri_vwiden_f16(half) : hri_vwiden(half);
}
static inline hri_vh16 hri_vround_real(hri_vf v, hri_real real) {
  return real == HRI_REAL_F16 ? hri_vround_f16(v) : hri_vround_bf16(v);
}

/* HRI_LANES elements of 16 bits as they are, or the first n of them and zeros. */
static inline hri_vh16 hri_vload_narrow_n(const uint16_t *p, int64_t n) {
  if (n == HRI_LANES) return (hri_vh16) * (const hri_vh16_memory *)p;
#if defined(__AVX512F__)
  return (hri_vh16)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1u), p);
#else
  uint16_t lanes[HRI_LANES] = {0};
  for (int64_t i = 0; i < n; i++) lanes[i] = p[i];
  return (hri_vh16) * (const hri_vh16_memory *)lanes;
#endif
}
static inline void hri_vstore_narrow_n(uint16_t *p, hri_vh16 half, int64_t n) {
  if (n == HRI_LANES) {
    *(hri_vh16_memory *)p = (hri_vh16_memory)half;
    return;
  }
#if defined(__AVX512F__)
  _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1u), (__m256i)half);
#else
  for (int64_t i = 0; i < n; i++) p[i] = half[i];
#endif
}

/* Element `index` on of an array of any type. With a constant `real`, after inlining, no branch is left. */
static inline hri_vf hri_vload_real_n(const void *p, int64_t index, int64_t n, hri_real real) {
  return real == HRI_REAL_F32 ? hri_vload_n((const float *)p + index, n)
                              : hri_vwiden_real(hri_vload_narrow_n((const uint16_t *)p + index, n), real);
}
static inline void hri_vstore_real_n(void *p, int64_t index, hri_vf v, int64_t n, hri_real real) {
  if (real == HRI_REAL_F32) hri_vstore_n((float *)p + index, v, n);
  else hri_vstore_narrow_n((uint16_t *)p + index, hri_vround_real(v, real), n);
}
static inline hri_vf hri_vload_real(const void *p, int64_t index, hri_real real) {
  return hri_vload_real_n(p, index, HRI_LANES, real);
}
static inline void hri_vstore_real(void *p, int64_t index, hri_vf v, hri_real real) {
  hri_vstore_real_n(p, index, v, HRI_LANES, real);
}

#endif
