/* Building blocks of the CPU attention kernels: vectors, exp2 and log2, fp32 tile products, transposes, masks.
 * Included by cpu*.c only, which are compiled once per instruction level (HRI_ISA).
 *
 * All attention products are written with queries (or head elements) as vector lanes and with the other operand
 * broadcast, C[m][lanes] += A[m][depth] * B[depth][lanes]: scores are kept transposed, S^T[key][query]. Then no operand
 * but the queries is ever transposed, the softmax runs down the lanes without horizontal sums, and one register-blocked
 * kernel (TILE_ROWS x 2 vectors of accumulators) serves the two products of the forward and the five of the backward.
 * A is read by rows (element k of row i at a[i*lda + k]) or by columns (at a[k*lda + i]). */
#ifndef HRI_OPS_ATTENTION_TILE_H
#define HRI_OPS_ATTENTION_TILE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/mem.h"
#include "ops/attention/shape.h"

#ifndef HRI_ISA
#define HRI_ISA base
#endif
#ifndef HRI_ISA_NAME /* the same as in ops/cpu.h */
#define HRI_ISA_PASTE_(name, isa) name##_##isa
#define HRI_ISA_PASTE(name, isa) HRI_ISA_PASTE_(name, isa)
#define HRI_ISA_NAME(name) HRI_ISA_PASTE(name, HRI_ISA)
#endif

/* Floats per vector, and accumulator rows that fit the registers beside two B vectors and a broadcast. */
#if defined(__AVX512F__)
#define TILE_VECTOR 16
#define TILE_ROWS 8
#define TILE_KEYS 128
#elif defined(__AVX2__)
#define TILE_VECTOR 8
#define TILE_ROWS 6
#define TILE_KEYS 96
#else
#define TILE_VECTOR 4
#define TILE_ROWS 4
#define TILE_KEYS 64
#endif
/* Lanes of a panel: queries are taken TILE_LANES at a time. TILE_KEYS, the keys packed at a time, is a multiple of
 * TILE_ROWS. */
#define TILE_LANES (2 * TILE_VECTOR)

#define TILE_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define TILE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TILE_UNROLL _Pragma("GCC unroll 8")
#endif

typedef float tile_vf __attribute__((vector_size(4 * TILE_VECTOR), aligned(4), may_alias));
typedef int32_t tile_vi __attribute__((vector_size(4 * TILE_VECTOR), aligned(4), may_alias));
typedef uint32_t tile_vu __attribute__((vector_size(4 * TILE_VECTOR), aligned(4), may_alias));
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
#elif defined(__AVX2__)
  return (tile_vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
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
 * error 2e-9 before rounding; exact at 0), then n goes into the exponent. Results below 2^-126 become 0, which is also
 * what a masked score (-inf) must give; a NaN stays one. x <= 127. */
TILE_INLINE tile_vf tile_exp2(tile_vf x) {
  const tile_vf magic = tile_splat(12582912.0f), low = tile_splat(-126.0f);
  tile_vi tiny = x < low;
  tile_vf shifted = tile_max(low, x) + magic;
  tile_vf f = tile_max(low, x) - (shifted - magic);
  tile_vf p = f * 1.535336206e-04f + 1.339887456e-03f;
  p = p * f + 9.618437358e-03f;
  p = p * f + 5.550332471e-02f;
  p = p * f + 2.402264791e-01f;
  p = p * f + 6.931472029e-01f;
  p = p * f + 1.0f;
  return (tile_vf)((tile_vi)((tile_vu)p + ((tile_vu)shifted << 23)) & ~tiny);
}

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

/* C[rows][vectors] = or += A[rows][depth] * B[depth][vectors]; rows and vectors, at most 8, are constants. */
TILE_INLINE void tile_kernel(const int rows, const int vectors, const bool by_columns, const bool add, int64_t depth,
                             const float *restrict a, int64_t lda, const float *restrict b, int64_t ldb,
                             float *restrict c, int64_t ldc) {
  tile_vf sum[8][8];
  TILE_UNROLL for (int i = 0; i < rows; i++) {
    TILE_UNROLL for (int v = 0; v < vectors; v++) {
      sum[i][v] = add ? tile_load(c + i * ldc + v * TILE_VECTOR) : (tile_vf){0};
    }
  }
  for (int64_t k = 0; k < depth; k++) {
    tile_vf lanes[8];
    TILE_UNROLL for (int v = 0; v < vectors; v++) lanes[v] = tile_load(b + k * ldb + v * TILE_VECTOR);
    TILE_UNROLL for (int i = 0; i < rows; i++) {
      tile_vf x = tile_splat(by_columns ? a[k * lda + i] : a[i * lda + k]);
      TILE_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] += x * lanes[v];
    }
  }
  TILE_UNROLL for (int i = 0; i < rows; i++) {
    TILE_UNROLL for (int v = 0; v < vectors; v++) tile_store(c + i * ldc + v * TILE_VECTOR, sum[i][v]);
  }
}

/* The products as calls: `m` rows, a multiple of TILE_ROWS; A by rows or by columns; C set or added to; B and C one or
 * two vectors wide. */
#define TILE_PRODUCT(name, vectors, by_columns, add)                                                                  \
  __attribute__((noinline, unused)) static void name(int64_t m, int64_t depth, const float *a, int64_t lda,           \
                                                     const float *b, int64_t ldb, float *c, int64_t ldc) {            \
    for (int64_t i = 0; i < m; i += TILE_ROWS)                                                                        \
      tile_kernel(TILE_ROWS, vectors, by_columns, add, depth, a + (by_columns ? i : i * lda), lda, b, ldb,            \
                  c + i * ldc, ldc);                                                                                  \
  }
TILE_PRODUCT(tile_product_rows, 2, false, false)
TILE_PRODUCT(tile_product_rows_add, 2, false, true)
TILE_PRODUCT(tile_product_rows_add_narrow, 1, false, true)
TILE_PRODUCT(tile_product_columns, 2, true, false)
TILE_PRODUCT(tile_product_columns_add, 2, true, true)

/* dst[j*ldd + i] = or += factor * src[i*lds + j] for i < m, j < n. */
TILE_INLINE void tile_transpose_(const bool add, const float *restrict src, int64_t lds, int64_t m, int64_t n,
                                 float factor, float *restrict dst, int64_t ldd) {
  int64_t m4 = m / 4 * 4, n4 = n / 4 * 4;
  for (int64_t i = 0; i < m4; i += 4) {
    const float *s = src + i * lds;
    for (int64_t j = 0; j < n4; j += 4) {
      tile_v4 r0 = *(const tile_v4 *)(s + j) * factor, r1 = *(const tile_v4 *)(s + lds + j) * factor;
      tile_v4 r2 = *(const tile_v4 *)(s + 2 * lds + j) * factor, r3 = *(const tile_v4 *)(s + 3 * lds + j) * factor;
      tile_v4 a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), b = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
      tile_v4 c = __builtin_shufflevector(r0, r1, 2, 6, 3, 7), d = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
      tile_v4 out[4] = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
                        __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
      TILE_UNROLL for (int e = 0; e < 4; e++) {
        tile_v4 *to = (tile_v4 *)(dst + (j + e) * ldd + i);
        *to = add ? (tile_v4)(*to + out[e]) : (tile_v4)out[e];
      }
    }
  }
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = i < m4 ? n4 : 0; j < n; j++) {
      float value = src[i * lds + j] * factor;
      dst[j * ldd + i] = add ? dst[j * ldd + i] + value : value;
    }
  }
}

/* Rows of float, `count` of them `width` wide, to a tile of stride `ldd` >= width, the rest of each row zeroed. Rows of
 * qkv lie pages apart, out of reach of the hardware's prefetch: ask for them ahead. */
TILE_INLINE void tile_copy_rows(const float *restrict src, int64_t lds, int64_t count, int64_t width, float factor,
                                float *restrict dst, int64_t ldd) {
  for (int64_t i = 0; i < count; i++) {
    int64_t j = 0, ahead = tile_min(i + 12, count - 1);
    for (; j + TILE_VECTOR <= width; j += TILE_VECTOR) {
      __builtin_prefetch(src + ahead * lds + j);
      tile_store(dst + i * ldd + j, tile_load(src + i * lds + j) * factor);
    }
    for (; j < width; j++) dst[i * ldd + j] = src[i * lds + j] * factor;
    for (; j < ldd; j++) dst[i * ldd + j] = 0;
  }
}

/* What the TILE_LANES queries from `first` on may see. Lanes past the end of the sequence repeat the last query. */
typedef struct tile_span {
  int32_t start[TILE_LANES]; /* the first key of each lane */
  int32_t least, most;       /* of start */
  int32_t first;             /* the query of lane 0 */
} tile_span;

static inline void tile_span_fill(tile_span *span, const hri_attention_shape *shape, const int32_t *doc_start,
                                  int64_t first) {
  span->first = (int32_t)first;
  span->least = INT32_MAX;
  span->most = 0;
  for (int64_t i = 0; i < TILE_LANES; i++) {
    int64_t t = tile_min(first + i, shape->sequence - 1), start = doc_start ? doc_start[t] : 0;
    if (shape->window > 0) start = tile_max_int(start, t - shape->window + 1);
    start = tile_min(tile_max_int(start, 0), t);
    span->start[i] = (int32_t)start;
    if (start < span->least) span->least = (int32_t)start;
    if (start > span->most) span->most = (int32_t)start;
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

/* The parts of a scratch block: tile_take hands out 64-byte aligned pieces. With base NULL it only adds up the size,
 * so that the size function and the carving cannot disagree. Saturates. */
typedef struct tile_carver {
  unsigned char *base;
  uint64_t used;
} tile_carver;

static inline void *tile_take(tile_carver *carver, uint64_t count, uint64_t bytes_each) {
  void *piece = carver->base ? carver->base + carver->used : NULL;
  uint64_t bytes;
  if (!hri_mul(count, bytes_each, &bytes) || bytes > UINT64_MAX / 2 || carver->used > UINT64_MAX / 2) {
    carver->used = UINT64_MAX;
    return NULL;
  }
  carver->used += hri_round_up(bytes, 64);
  return piece;
}
static inline float *tile_take_floats(tile_carver *carver, int64_t count) {
  return tile_take(carver, (uint64_t)count, sizeof(float));
}

static inline int tile_thread(void) {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

/* The next task of a team that shares `counter`: handed out in order, so that a task may wait for earlier ones. */
static inline int64_t tile_next(int64_t *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

#endif
