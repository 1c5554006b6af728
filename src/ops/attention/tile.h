/* Building blocks of the CPU attention kernels: vectors, exp2 and log2, tile products, packing, masks.
 * Included by cpu*.c only, which are compiled once per instruction level (HRI_ISA).
 *
 * Every product is C[m][lanes] += A[m][depth] * B[depth][lanes] with a register block of TILE_BLOCK x 2 vectors: A is
 * broadcast, read by rows (element k of row i at a[i*lda + k]) or by columns (at a[k*lda + i]); B is read in vectors.
 *
 * Tiles hold words of 32 bits along the depth. For fp32 a word is an element. Where the processor multiplies pairs of
 * bf16 (TILE_PAIRS: two products and sums per lane and instruction, fp32 accumulators, subnormals taken as zero) and
 * the operands are bf16, a word is two elements that follow each other along the depth, the first one in the low half:
 * half the words, half the instructions, the same loops. Elsewhere bf16 operands are widened to fp32 tiles, and fp16 ones always.
 * With AMX (HRI_AMX) pairs are multiplied by its tiles, which take a and b as they stand here but nothing by columns: there
 * kernels turn an operand instead, once for many products, and keep sums turned.
 *
 * The two instructions for pairs round differently. vdpbf16ps of x86 adds one product after the other to the sum, each
 * time to nearest. BFDOT of Arm adds the two products, then the sum, each time to odd (inexact results get an odd last
 * bit; Arm's FPDot of bf16 without FPCR.EBF, which Linux leaves clear): off by less than a unit in the last place
 * instead of half of one, and not to one side. Either way a term costs at most about one unit of the sum. */
#ifndef HRI_OPS_ATTENTION_TILE_H
#define HRI_OPS_ATTENTION_TILE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "ops/amx.h"
#if HRI_AMX
#include "ops/linear/transpose.h"
#endif
#include "ops/attention/scratch.h"
#include "ops/attention/shape.h"
#include "ops/scratch.h"
#include "ops/vmath.h"

#ifndef HRI_ISA
#define HRI_ISA base
#endif
#ifndef HRI_ISA_NAME /* the same as in ops/cpu.h */
#define HRI_ISA_PASTE_(name, isa) name##_##isa
#define HRI_ISA_PASTE(name, isa) HRI_ISA_PASTE_(name, isa)
#define HRI_ISA_NAME(name) HRI_ISA_PASTE(name, HRI_ISA)
#endif

/* Floats per vector, and accumulator rows that fit the registers beside two B vectors and a broadcast (TILE_BLOCK).
 * TILE_ROWS is the granularity of row counts, see tile_product; with AMX the terms of a tile, since rows of one product are
 * the depth of the next. */
#if HRI_AMX
#define TILE_VECTOR HRI_TILE_VECTOR_AVX512
#define TILE_BLOCK 8
#define TILE_ROWS HRI_TILE_TERMS
#define TILE_KEYS HRI_TILE_KEYS_AVX512
#elif defined(__AVX512F__)
#define TILE_VECTOR HRI_TILE_VECTOR_AVX512
#define TILE_ROWS 8
#define TILE_KEYS HRI_TILE_KEYS_AVX512
#elif defined(__AVX2__)
#define TILE_VECTOR HRI_TILE_VECTOR_AVX2
#define TILE_ROWS 4
#define TILE_KEYS HRI_TILE_KEYS_AVX2
#elif defined(HRI_NEON)
#define TILE_VECTOR HRI_TILE_VECTOR_NEON
#define TILE_ROWS 8
#define TILE_KEYS HRI_TILE_KEYS_NEON
#else
#define TILE_VECTOR HRI_TILE_VECTOR_BASE
#define TILE_ROWS 4
#define TILE_KEYS HRI_TILE_KEYS_BASE
#endif
#ifndef TILE_BLOCK
#define TILE_BLOCK TILE_ROWS
#endif
/* Lanes of a panel: queries (forward) or keys (backward) are taken TILE_LANES at a time. TILE_KEYS, the keys packed at
 * a time, is a multiple of it. */
#define TILE_LANES (2 * TILE_VECTOR)

/* The level that this file is compiled for, as hri_attention_cut_of takes it. */
#if HRI_AMX
#define TILE_LEVEL HRI_ISA_AMX
#elif defined(__AVX512BF16__)
#define TILE_LEVEL HRI_ISA_AVX512_BF16
#elif defined(__AVX512F__)
#define TILE_LEVEL HRI_ISA_AVX512
#elif defined(__AVX2__)
#define TILE_LEVEL HRI_ISA_AVX2
#elif defined(HRI_NEON_BF16)
#define TILE_LEVEL HRI_ISA_NEON_BF16
#elif defined(HRI_NEON)
#define TILE_LEVEL HRI_ISA_NEON
#else
#define TILE_LEVEL HRI_ISA_BASE
#endif
/* Whether the level multiplies pairs of bf16, as hri_attention_cut_of says. */
#if HRI_AMX || defined(__AVX512BF16__) || defined(HRI_NEON_BF16)
#define TILE_PAIRS 1
#else
#define TILE_PAIRS 0
#endif

#define TILE_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define TILE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TILE_UNROLL _Pragma("GCC unroll 8")
#endif

typedef float tile_vf __attribute__((vector_size(4 * TILE_VECTOR), aligned(4), may_alias));
typedef int32_t tile_vi __attribute__((vector_size(4 * TILE_VECTOR), aligned(4), may_alias));
typedef uint32_t tile_vu __attribute__((vector_size(4 * TILE_VECTOR), aligned(4), may_alias));
typedef uint16_t tile_vh __attribute__((vector_size(4 * TILE_VECTOR), aligned(2), may_alias)); /* TILE_LANES of them */
typedef float tile_v4 __attribute__((vector_size(16), aligned(4), may_alias));

TILE_INLINE tile_vf tile_load(const float *p) { return *(const tile_vf *)p; }
TILE_INLINE void tile_store(float *p, tile_vf v) { *(tile_vf *)p = v; }
/* x - 0 is x for every x; 0 + x is not for -0, and costs an addition. */
TILE_INLINE tile_vf tile_splat(float x) { return x - (tile_vf){0}; }
TILE_INLINE tile_vi tile_splat_int(int32_t x) { return (tile_vi){0} + x; }

/* a > b ? a : b per lane; like the x86 instruction, b when either is a NaN. */
TILE_INLINE tile_vf tile_max(tile_vf a, tile_vf b) {
#if defined(__AVX512F__)
  return (tile_vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif HRI_VECTOR_BYTES == 32
  return (tile_vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__) && HRI_VECTOR_BYTES == 16
  return (tile_vf)_mm_max_ps((__m128)a, (__m128)b);
#else
  tile_vi greater = a > b;
  return (tile_vf)(((tile_vi)a & greater) | ((tile_vi)b & ~greater));
#endif
}

/* 0 .. TILE_VECTOR - 1 */
TILE_INLINE tile_vi tile_iota(void) {
  tile_vi v = {0};
  for (int i = 0; i < TILE_VECTOR; i++) v[i] = i;
  return v;
}

/* 2^x: round to the nearest integer n by adding 1.5 * 2^23, then a minimax polynomial of degree 6 for 2^(x-n) (relative
 * error 2e-9 before rounding; exact at 0), times 2^n. Results below 2^-126 become 0, which is also what a masked score
 * (-inf) must give. x <= 127. A NaN stays one, whatever its other bits are: so 2^n is multiplied, not added to the
 * exponent, which of a NaN that has bits at its end would make a number. */
TILE_INLINE tile_vf tile_exp2(tile_vf x) {
  const tile_vf magic = tile_splat(12582912.0f), low = tile_splat(-126.0f);
  tile_vi tiny = x < low;
  tile_vf shifted = tile_max(low, x) + magic, n = shifted - magic;
  tile_vf f = tile_max(low, x) - n;
  tile_vf p = f * 1.535336206e-04f + 1.339887456e-03f;
  p = p * f + 9.618437358e-03f;
  p = p * f + 5.550332471e-02f;
  p = p * f + 2.402264791e-01f;
  p = p * f + 6.931472029e-01f;
  p = p * f + 1.0f;
#if defined(__AVX512F__)
  p = (tile_vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  p = p * (tile_vf)(((tile_vu)shifted << 23) + 0x3F800000u);
#endif
  return (tile_vf)((tile_vi)p & ~tiny);
}

#if TILE_PAIRS
/* x - floor(x). */
TILE_INLINE tile_vf tile_fraction(tile_vf x) {
#if defined(__AVX512F__)
  return (tile_vf)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#elif defined(HRI_AMX_EMULATED)
  for (int i = 0; i < TILE_VECTOR; i++) x[i] -= __builtin_floorf(x[i]); /* NaN for -inf, where the instruction has 0 */
  return x;
#else
  return x - (tile_vf)vrndmq_f32((float32x4_t)x);
#endif
}
/* p * 2^floor(x) for p in [1, 2]: 0 for x = -inf. Arm has no instruction that scales, and goes by the exponent: results
 * below 2^-126 become 0, elsewhere they underflow gradually. */
TILE_INLINE tile_vf tile_scale(tile_vf p, tile_vf x) {
#if defined(__AVX512F__)
  return (tile_vf)_mm512_scalef_ps((__m512)p, (__m512)x);
#elif defined(HRI_AMX_EMULATED)
  for (int i = 0; i < TILE_VECTOR; i++)
    p[i] = x[i] < -200 ? 0 : x[i] <= 200 ? __builtin_ldexpf(p[i], (int)__builtin_floorf(x[i])) : x[i];
  return p;
#else
  tile_vi tiny = x < tile_splat(-126.0f), whole = (tile_vi)vcvtmq_s32_f32((float32x4_t)x);
  return (tile_vf)((tile_vi)((tile_vu)p + ((tile_vu)whole << 23)) & ~tiny);
#endif
}
/* 2^x where the result is rounded to bf16 anyway: floor and fraction by the processor, a minimax polynomial of degree 4
 * on [0, 1) (relative error 3e-6). */
TILE_INLINE tile_vf tile_exp2_short(tile_vf x) {
  tile_vf f = tile_fraction(x);
  tile_vf p = f * 1.353416775e-02f + 5.201146094e-02f;
  p = p * f + 2.414427567e-01f;
  p = p * f + 6.930038345e-01f;
  p = p * f + 1.000002593f;
  return tile_scale(p, x);
}
#endif

/* log2(x) for normal x > 0: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), then the series of atanh((m-1)/(m+1)). */
TILE_INLINE tile_vf tile_log2(tile_vf x) {
  tile_vu bits = (tile_vu)x - 0x3f3504f3u;
  tile_vi exponent = (tile_vi)bits >> 23;
  tile_vf m = (tile_vf)((bits & 0x007fffffu) + 0x3f3504f3u);
  tile_vf s = (m - 1.0f) / (m + 1.0f), z = s * s;
  tile_vf p = z * 2.2222222e-01f + 2.8571429e-01f;
  p = p * z + 4.0e-01f;
  p = p * z + 6.6666667e-01f;
  p = p * z + 2.0f;
  return __builtin_convertvector(exponent, tile_vf) + s * p * 1.44269504f;
}

/* The soft-cap of `rows` rows of TILE_LANES scores, `stride` apart: limit * tanh(score / limit) to `capped`, its slope
 * to `slopes`; each may be NULL or the scores themselves. The limit is in units of the scores. tanh: ops/vmath.h. */
TILE_INLINE void tile_cap_scores(const float *scores, int64_t rows, int64_t stride, float limit, float *capped,
                                 float *slopes) {
  float inverse = 1.0f / limit;
  for (int64_t i = 0; i < rows * stride; i += stride) {
    TILE_UNROLL for (int v = 0; v < 2; v++) {
      hri_vf slope, t = hri_vtanh_slope((hri_vf)tile_load(scores + i + v * TILE_VECTOR) * inverse, &slope);
      if (capped) tile_store(capped + i + v * TILE_VECTOR, (tile_vf)(t * limit));
      if (slopes) tile_store(slopes + i + v * TILE_VECTOR, (tile_vf)slope);
    }
  }
}
/* In place, rows next to each other. */
__attribute__((noinline, unused)) static void tile_cap(float *scores, int64_t rows, float limit) {
  tile_cap_scores(scores, rows, TILE_LANES, limit, scores, NULL);
}

#define TILE_LOG2E 1.44269504088896341f
#define TILE_LN2 0.693147180559945309f
/* Below every score, yet finite: differences with it stay defined where no key has been seen. */
#define TILE_LOWEST (-1e30f)

/* Score where start <= key <= query, else -inf. */
TILE_INLINE tile_vf tile_mask(tile_vf score, tile_vi query, tile_vi start, int32_t key) {
  tile_vi k = tile_splat_int(key);
  tile_vi keep = (query >= k) & (start <= k);
  tile_vi minus_inf = (tile_vi)tile_splat(-__builtin_inff());
  return (tile_vf)(((tile_vi)score & keep) | (minus_inf & ~keep));
}

TILE_INLINE int64_t tile_min(int64_t a, int64_t b) { return a < b ? a : b; }
TILE_INLINE int64_t tile_max_int(int64_t a, int64_t b) { return a > b ? a : b; }
TILE_INLINE int64_t tile_round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/* sum += x * lanes, a word of each. */
TILE_INLINE tile_vf tile_multiply_add(const bool pairs, tile_vf sum, tile_vf x, tile_vf lanes) {
#if defined(__AVX512BF16__)
  if (pairs) return (tile_vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)lanes);
#elif defined(HRI_NEON_BF16)
  if (pairs) return (tile_vf)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)x, (bfloat16x8_t)lanes);
#endif
  (void)pairs;
  return sum + x * lanes;
}

/* C[rows][vectors] = or += A[rows][depth] * B[depth][vectors]; depth in words; B in memory as `real` when it is not
 * packed. pairs, real, rows, vectors (at most 8) and by_columns are constants. */
TILE_INLINE void tile_kernel(const bool pairs, const hri_real real, const int rows, const int vectors,
                             const bool by_columns, bool add, int64_t depth, const float *restrict a, int64_t lda,
                             const void *restrict b, int64_t ldb, float *restrict c, int64_t ldc) {
  tile_vf sum[8][8];
  TILE_UNROLL for (int i = 0; i < rows; i++) {
    TILE_UNROLL for (int v = 0; v < vectors; v++) {
      sum[i][v] = add ? tile_load(c + i * ldc + v * TILE_VECTOR) : (tile_vf){0};
    }
  }
  for (int64_t k = 0; k < depth; k++) {
    tile_vf lanes[8];
    TILE_UNROLL for (int v = 0; v < vectors; v++) lanes[v] = hri_vload_real(b, k * ldb + v * TILE_VECTOR, real);
    TILE_UNROLL for (int i = 0; i < rows; i++) {
      tile_vf x = tile_splat(by_columns ? a[k * lda + i] : a[i * lda + k]);
      TILE_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] = tile_multiply_add(pairs, sum[i][v], x, lanes[v]);
    }
  }
  TILE_UNROLL for (int i = 0; i < rows; i++) {
    TILE_UNROLL for (int v = 0; v < vectors; v++) tile_store(c + i * ldc + v * TILE_VECTOR, sum[i][v]);
  }
}

/* The products as calls: `m` rows, a multiple of TILE_BLOCK; B and C one or two vectors wide. With 16 registers a block
 * of 6 rows is the fastest, so rows are taken by sixes as far as fours can end it. */
#define TILE_PRODUCT(name, pairs, vectors, by_columns)                                                                 \
  __attribute__((noinline, unused)) static void name(bool add, int64_t m, int64_t depth, const float *a, int64_t lda,  \
                                                     const float *b, int64_t ldb, float *c, int64_t ldc) {             \
    for (int64_t i = 0, rows; i < m; i += rows) {                                                                      \
      const float *at = a + (by_columns ? i : i * lda);                                                                \
      rows = TILE_VECTOR == 8 && m - i >= 6 && m - i != 8 ? 6 : TILE_BLOCK;                                            \
      if (rows == TILE_BLOCK)                                                                                          \
        tile_kernel(pairs, HRI_REAL_F32, TILE_BLOCK, vectors, by_columns, add, depth, at, lda, b, ldb, c + i * ldc,    \
                    ldc);                                                                                              \
      else tile_kernel(pairs, HRI_REAL_F32, 6, vectors, by_columns, add, depth, at, lda, b, ldb, c + i * ldc, ldc);    \
    }                                                                                                                  \
  }
TILE_PRODUCT(tile_rows_2, false, 2, false)
TILE_PRODUCT(tile_rows_1, false, 1, false)
TILE_PRODUCT(tile_columns_2, false, 2, true)
TILE_PRODUCT(tile_columns_1, false, 1, true)
#if TILE_PAIRS
#define TILE_CHOOSE(pairs, name) ((pairs) ? name##_pairs : name)
#else
#define TILE_CHOOSE(pairs, name) ((void)(pairs), name)
#endif

#if HRI_AMX

/* Up to 32 x 32 sums: `rows` and `columns` tiles of them, 1 or 2, constants. */
TILE_INLINE void tile_amx_sums(const int rows, const int columns, bool add, int64_t depth, const float *a, int64_t lda,
                               const float *b, int64_t ldb, float *c, int64_t ldc) {
  enum { SIDE = HRI_TILE_SIDE };
  const float *a2 = a + SIDE * lda, *b2 = b + SIDE;
  float *c2 = c + SIDE * ldc;
  if (add) {
    HRI_TILE_LOAD(0, c, ldc * 4);
    if (columns > 1) HRI_TILE_LOAD(1, c + SIDE, ldc * 4);
    if (rows > 1) HRI_TILE_LOAD(2, c2, ldc * 4);
    if (rows > 1 && columns > 1) HRI_TILE_LOAD(3, c2 + SIDE, ldc * 4);
  } else {
    HRI_TILE_ZERO(0);
    HRI_TILE_ZERO(1);
    HRI_TILE_ZERO(2);
    HRI_TILE_ZERO(3);
  }
  for (int64_t k = 0; k < depth; k += SIDE) {
    HRI_TILE_LOAD(4, a + k, lda * 4);
    HRI_TILE_LOAD(6, b + k * ldb, ldb * 4);
    HRI_TILE_MULTIPLY(0, 4, 6);
    if (columns > 1) HRI_TILE_LOAD(7, b2 + k * ldb, ldb * 4);
    if (columns > 1) HRI_TILE_MULTIPLY(1, 4, 7);
    if (rows > 1) HRI_TILE_LOAD(5, a2 + k, lda * 4);
    if (rows > 1) HRI_TILE_MULTIPLY(2, 5, 6);
    if (rows > 1 && columns > 1) HRI_TILE_MULTIPLY(3, 5, 7);
  }
  HRI_TILE_STORE(0, c, ldc * 4);
  if (columns > 1) HRI_TILE_STORE(1, c + SIDE, ldc * 4);
  if (rows > 1) HRI_TILE_STORE(2, c2, ldc * 4);
  if (rows > 1 && columns > 1) HRI_TILE_STORE(3, c2 + SIDE, ldc * 4);
}

/* C[m][width] = or += A B of pairs, between tile_begin and tile_end. All three sides are multiples of 16 words; what does
 * not exist of an operand is zero. Where a piece of the depth follows another the sums go through C, in its type: the bits
 * are those of one chain over groups of 32 terms. */
__attribute__((noinline, unused)) static void tile_amx_product(bool add, int64_t m, int64_t depth, const float *a,
                                                               int64_t lda, const float *b, int64_t ldb, float *c,
                                                               int64_t ldc, int64_t width) {
  enum { SIDE = HRI_TILE_SIDE };
  assert(m % SIDE == 0 && depth % SIDE == 0 && width % SIDE == 0);
  for (int64_t i = 0; i < m; i += 2 * SIDE)
    for (int64_t j = 0; j < width; j += 2 * SIDE) {
      bool tall = i + 2 * SIDE <= m, wide = j + 2 * SIDE <= width;
      const float *at = a + i * lda, *bt = b + j;
      float *ct = c + i * ldc + j;
      if (tall && wide) tile_amx_sums(2, 2, add, depth, at, lda, bt, ldb, ct, ldc);
      else if (tall) tile_amx_sums(2, 1, add, depth, at, lda, bt, ldb, ct, ldc);
      else if (wide) tile_amx_sums(1, 2, add, depth, at, lda, bt, ldb, ct, ldc);
      else tile_amx_sums(1, 1, add, depth, at, lda, bt, ldb, ct, ldc);
    }
}

#elif TILE_PAIRS
TILE_PRODUCT(tile_rows_2_pairs, true, 2, false)
TILE_PRODUCT(tile_rows_1_pairs, true, 1, false)
TILE_PRODUCT(tile_columns_2_pairs, true, 2, true)
TILE_PRODUCT(tile_columns_1_pairs, true, 1, true)
#endif
#if TILE_PAIRS && !HRI_AMX
#define TILE_CHOOSE_PRODUCT(pairs, name) TILE_CHOOSE(pairs, name)
#else
#define TILE_CHOOSE_PRODUCT(pairs, name) ((void)(pairs), name)
#endif

/* Around the products of a task. */
static inline void tile_begin(const hri_attention_cut *cut) {
#if HRI_AMX
  if (cut->tiles) hri_tiles_begin();
#endif
  (void)cut;
}
static inline void tile_end(const hri_attention_cut *cut) {
#if HRI_AMX
  if (cut->tiles) hri_tiles_end();
#endif
  (void)cut;
}

/* C[m][width] = or += A B for any width that is a multiple of TILE_VECTOR. */
static inline void tile_product(bool pairs, bool by_columns, bool add, int64_t m, int64_t depth, const float *a,
                                int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, int64_t width) {
  int64_t at = 0;
#if HRI_AMX
  assert(!pairs || !by_columns);
  if (pairs) {
    tile_amx_product(add, m, depth, a, lda, b, ldb, c, ldc, width);
    return;
  }
#endif
  for (; at + TILE_LANES <= width; at += TILE_LANES)
    (by_columns ? TILE_CHOOSE_PRODUCT(pairs, tile_columns_2)
                : TILE_CHOOSE_PRODUCT(pairs, tile_rows_2))(add, m, depth, a, lda, b + at, ldb, c + at, ldc);
  if (at < width)
    (by_columns ? TILE_CHOOSE_PRODUCT(pairs, tile_columns_1)
                : TILE_CHOOSE_PRODUCT(pairs, tile_rows_1))(add, m, depth, a, lda, b + at, ldb, c + at, ldc);
}

/* dst[j*ldd + i] = src[i*lds + j] for i < m, j < n: words, moved as integers. */
static inline void tile_transpose(const float *restrict src, int64_t lds, int64_t m, int64_t n, float *restrict dst,
                                  int64_t ldd) {
  int64_t m4 = m / 4 * 4, n4 = n / 4 * 4;
  for (int64_t i = 0; i < m4; i += 4) {
    const float *s = src + i * lds;
    for (int64_t j = 0; j < n4; j += 4) {
      tile_v4 r0 = *(const tile_v4 *)(s + j), r1 = *(const tile_v4 *)(s + lds + j);
      tile_v4 r2 = *(const tile_v4 *)(s + 2 * lds + j), r3 = *(const tile_v4 *)(s + 3 * lds + j);
      tile_v4 a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), b = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
      tile_v4 c = __builtin_shufflevector(r0, r1, 2, 6, 3, 7), d = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
      tile_v4 out[4] = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
                        __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
      TILE_UNROLL for (int e = 0; e < 4; e++) * (tile_v4 *)(dst + (j + e) * ldd + i) = out[e];
    }
  }
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = i < m4 ? n4 : 0; j < n; j++) memcpy(dst + j * ldd + i, src + i * lds + j, sizeof *dst);
}

#if HRI_AMX
/* The same for m and n that are multiples of 16, in registers. */
static inline void tile_turn(const float *src, int64_t lds, int64_t m, int64_t n, float *dst, int64_t ldd) {
  assert(m % HRI_LANES == 0 && n % HRI_LANES == 0);
  for (int64_t j = 0; j < n; j += HRI_LANES)
    for (int64_t i = 0; i < m; i += HRI_LANES) {
      hri_words v[HRI_LANES];
      for (int r = 0; r < HRI_LANES; r++) v[r] = (hri_words)hri_vload(src + (i + r) * lds + j);
      hri_transpose(v);
      for (int r = 0; r < HRI_LANES; r++) hri_vstore(dst + (j + r) * ldd + i, (hri_vf)v[r]);
    }
}
#endif

/* `rows` rows as panels of TILE_LANES lanes: dst[panel][depth][TILE_LANES]. */
static inline void tile_pack_panels(const float *src, int64_t lds, int64_t rows, int64_t depth, float *dst) {
  for (int64_t i = 0; i < rows; i += TILE_LANES)
    tile_transpose(src + i * lds, lds, TILE_LANES, depth, dst + i * depth, TILE_LANES);
}

/* Words that `count` elements of a row take, and what a packed row of them takes: whole vectors. */
TILE_INLINE int64_t tile_words(bool pairs, int64_t count) { return pairs ? (count + 1) / 2 : count; }
TILE_INLINE int64_t tile_row_words(bool pairs, int64_t count) {
  return (tile_words(pairs, count) + TILE_VECTOR - 1) / TILE_VECTOR * TILE_VECTOR;
}

/* One row of `width` elements at src to packed words, zero up to tile_row_words. */
TILE_INLINE void tile_pack_row(const bool pairs, const hri_real real, const void *src, int64_t width, float *dst) {
#if defined(__AVX512BF16__)
  if (pairs) {
    const hri_bf16 *from = src;
    for (int64_t j = 0; j < width; j += 2 * TILE_VECTOR) {
      int64_t left = width - j < 32 ? width - j : 32;
      __mmask32 mask = (__mmask32)(UINT32_MAX >> (32 - left));
      _mm512_storeu_si512(dst + j / 2, _mm512_maskz_loadu_epi16(mask, from + j));
    }
    return;
  }
#elif TILE_PAIRS
  if (pairs) {
    const hri_bf16 *from = src;
    int64_t whole = width / TILE_LANES * TILE_LANES;
    for (int64_t j = 0; j < whole; j += TILE_LANES) *(tile_vh *)(dst + j / 2) = *(const tile_vh *)(from + j);
    if (whole < width) {
      tile_vh last = {0};
      for (int64_t j = whole; j < width; j++) last[j - whole] = from[j];
      *(tile_vh *)(dst + whole / 2) = last;
    }
    return;
  }
#endif
  (void)pairs;
  for (int64_t j = 0; j < width; j += TILE_VECTOR)
    tile_store(dst + j, hri_vload_real_n(src, j, width - j < TILE_VECTOR ? width - j : TILE_VECTOR, real));
}

/* `count` rows of `width` elements, lds apart, to packed rows of ldd words; rows from count to `rows` are zero. Rows of
 * qkv lie pages apart, out of reach of the hardware's prefetch: ask for them ahead. */
static inline void tile_pack_rows(bool pairs, hri_real real, const void *src, int64_t lds, int64_t count, int64_t width,
                                  int64_t rows, float *dst, int64_t ldd) {
  for (int64_t i = 0; i < count; i++) {
    const void *from = hri_real_from(src, i * lds, real),
               *next = hri_real_from(src, tile_min(i + 12, count - 1) * lds, real);
    for (int64_t j = 0; j < width * (int64_t)hri_real_bytes(real); j += 64) __builtin_prefetch((const char *)next + j);
    if (pairs) tile_pack_row(true, HRI_REAL_BF16, from, width, dst + i * ldd);
    else HRI_BY_REAL(real, tile_pack_row(false, REAL, from, width, dst + i * ldd));
  }
  memset(dst + count * ldd, 0, (size_t)((rows - count) * ldd) * sizeof *dst);
}

#if TILE_PAIRS
TILE_INLINE tile_vh tile_load_halves(const float *p) { return *(const tile_vh *)p; }
TILE_INLINE void tile_store_halves(float *p, tile_vh v) { *(tile_vh *)p = v; }
/* Two rows of TILE_LANES bf16 as as many words: word i holds element i of both. */
TILE_INLINE void tile_interleave(tile_vh even, tile_vh odd, tile_vf words[2]) {
#if defined(__AVX512F__)
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                       5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  words[0] = (tile_vf)_mm512_permutex2var_epi16((__m512i)even, low, (__m512i)odd);
  words[1] = (tile_vf)_mm512_permutex2var_epi16((__m512i)even, high, (__m512i)odd);
#elif defined(HRI_AMX_EMULATED)
  uint32_t joined[TILE_LANES];
  for (int i = 0; i < TILE_LANES; i++) joined[i] = even[i] | (uint32_t)odd[i] << 16;
  memcpy(words, joined, sizeof joined);
#else
  words[0] = (tile_vf)vzip1q_u16((uint16x8_t)even, (uint16x8_t)odd);
  words[1] = (tile_vf)vzip2q_u16((uint16x8_t)even, (uint16x8_t)odd);
#endif
}
/* Two vectors of fp32 as TILE_LANES bf16, to nearest. */
TILE_INLINE tile_vh tile_round_pairs(const tile_vf v[2]) {
#if defined(__AVX512F__)
  return (tile_vh)_mm512_cvtne2ps_pbh((__m512)v[1], (__m512)v[0]);
#elif defined(HRI_AMX_EMULATED)
  tile_vh rounded;
  for (int i = 0; i < TILE_LANES; i++) rounded[i] = hri_bf16_round(v[i / TILE_VECTOR][i % TILE_VECTOR]);
  return rounded;
#else
  return (tile_vh)vcvtq_high_bf16_f32(vcvtq_low_bf16_f32((float32x4_t)v[0]), (float32x4_t)v[1]);
#endif
}
#endif

/* Packed rows turned for use as B along the rows: dst[rows/2][width] of pairs. For words of one element the packed rows
 * are that already, and there is nothing to do. `width` is a multiple of TILE_VECTOR, `rows` of 2. */
static inline void tile_pair_rows(bool pairs, const float *src, int64_t lds, int64_t rows, int64_t width, float *dst) {
#if TILE_PAIRS
  for (int64_t i = 0; pairs && i < rows; i += 2) {
    for (int64_t j = 0; j < width; j += TILE_LANES) {
      tile_vf words[2];
      tile_interleave(tile_load_halves(src + i * lds + j / 2), tile_load_halves(src + (i + 1) * lds + j / 2), words);
      tile_store(dst + i / 2 * width + j, words[0]);
      if (j + TILE_VECTOR < width) tile_store(dst + i / 2 * width + j + TILE_VECTOR, words[1]);
    }
  }
#endif
  (void)pairs, (void)src, (void)lds, (void)rows, (void)width, (void)dst;
}

/* `count` floats times `factor` to elements [index, index + count) of `to`. */
static inline void tile_store_row(hri_real real, const float *from, int64_t count, float factor, void *to,
                                  int64_t index) {
  for (int64_t j = 0; j < count; j += TILE_VECTOR) {
    int64_t left = tile_min(count - j, TILE_VECTOR);
    tile_vf v = hri_vload_n(from + j, left) * factor;
    HRI_BY_REAL(real, hri_vstore_real_n(to, index + j, v, left, REAL));
  }
}

/* The first key that query t sees. */
static inline int32_t tile_first_key(const hri_attention_shape *shape, const int32_t *doc_start, int64_t t) {
  int64_t start = doc_start ? doc_start[t] : 0;
  if (shape->window > 0) start = tile_max_int(start, t - shape->window + 1);
  return (int32_t)tile_min(tile_max_int(start, 0), t);
}

/* What the TILE_LANES queries from `first` on may see. Lanes past the end of the sequence repeat the last query. */
typedef struct tile_span {
  int32_t start[TILE_LANES]; /* the first key of each lane */
  int32_t least, most;       /* of start */
  int32_t first;             /* the query of lane 0 */
} tile_span;
_Static_assert(sizeof(tile_span) == (TILE_LANES + 3) * sizeof(int32_t), "as hri_forward_tiles_take lays it out");

static inline void tile_span_fill(tile_span *span, const hri_attention_shape *shape, const int32_t *doc_start,
                                  int64_t first) {
  span->first = (int32_t)first;
  span->least = INT32_MAX;
  span->most = 0;
  for (int64_t i = 0; i < TILE_LANES; i++) {
    int32_t start = tile_first_key(shape, doc_start, tile_min(first + i, shape->sequence - 1));
    span->start[i] = start;
    if (start < span->least) span->least = start;
    if (start > span->most) span->most = start;
  }
}

/* The rows [begin, end) of the key tile from `key` on that any lane sees, in multiples of TILE_ROWS; false if none.
 * `masked` tells whether some lane does not see some of them. */
static inline bool tile_span_rows(const tile_span *span, int64_t sequence, int64_t key, int64_t *begin, int64_t *end,
                                  bool *masked) {
  int64_t last = tile_min(span->first + TILE_LANES, sequence) - key;
  *begin = tile_max_int(span->least - key, 0) / TILE_ROWS * TILE_ROWS;
  *end = tile_round_up(tile_min(last, TILE_KEYS), TILE_ROWS);
  if (last <= 0 || *begin >= *end) return false;
  *masked = key + *end - 1 > span->first || key + *begin < span->most;
  return true;
}

#endif
