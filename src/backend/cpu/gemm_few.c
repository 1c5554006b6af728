/* FORWARD with few rows (generation, small batches): bound by reading w, which dot products of rows do once, in order
 * and without packing. Compiled once per instruction level (HRI_ISA); for avx512bf16 bf16 is multiplied by the dot
 * instruction, pair by pair as it stands in memory.
 *
 * Up to ALONE rows of x go along one row of w at a time, which is the fastest way to read it; four vectors of sums each
 * hide the latency. More rows take some rows of w at a time, so that a vector that was loaded serves several sums; these
 * stay in the first cache for the other rows of x. Meanwhile the rows of w behind them are fetched one after the other,
 * since reading at several places at once is what memory does slowly.
 *
 * Where bf16 is widened it comes in pairs: as the upper and lower half of 32-bit words, both are widened by one operation
 * on a whole vector, and the few rows of x are brought into the same order beforehand. fp16 is widened as it comes.
 *
 * Bits: an element is SUMS x LANES sums, or LANES with more rows than ALONE, each of every so many words in order, folded
 * in a fixed order. */
#include <assert.h>
#include <string.h>

#include "backend/cpu/gemm_ours.h"
#include "ops/cpu.h"
#include "ops/vmath.h"

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline))

enum {
  LANES = HRI_LANES,
#if defined(__AVX512F__) || defined(HRI_NEON)
  ALONE = 3, /* rows of x, at most, that go along one row of w */
#else
  ALONE = 2,
#endif
  SUMS = 4, /* vectors of sums of an element then */
  BY_COLUMN = -1,
  COLUMNS = 4, /* rows of w together, at most */
  LINE = 64,   /* bytes that are fetched at a time */
  BLOCK = 64   /* columns of c that are finished together; a multiple of LANES */
};

typedef hri_vf vf;

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows of w and, at most, of x together: 32 registers hold 24 sums, 16 hold 12, or 8 beside widened pairs. */
#if defined(__AVX512F__) || defined(HRI_NEON)
#define MOST_TOGETHER 6
INLINE int columns_together(hri_gemm_words how) { return (void)how, COLUMNS; }
INLINE int rows_together(hri_gemm_words how) { return (void)how, MOST_TOGETHER; }
#else
#define MOST_TOGETHER 4
INLINE int columns_together(hri_gemm_words how) { return how == HRI_GEMM_WORDS_WIDENED ? 2 : COLUMNS; }
INLINE int rows_together(hri_gemm_words how) { return how == HRI_GEMM_WORDS_WIDENED ? 4 : 3; }
#endif

INLINE vf multiply_add(vf a, vf b, vf sum, hri_gemm_words how) {
#if defined(__AVX512BF16__)
  if (how == HRI_GEMM_WORDS_PAIRS) return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#endif
  (void)how;
  return a * b + sum;
}

/* Terms in one step along a row. */
INLINE int64_t step_terms(hri_gemm_words how) {
  return how == HRI_GEMM_WORDS_F32 || how == HRI_GEMM_WORDS_HALVES ? LANES : 2 * LANES;
}

/* The words of one step, of which `terms` terms exist; `half`: which, of widened pairs. */
INLINE vf row_vector(const char *row, int64_t terms, int half, hri_gemm_words how) {
  typedef hri_vu words __attribute__((aligned(2), may_alias));
  uint16_t some[2 * LANES] = {0};
  hri_vu pair;
  if (how == HRI_GEMM_WORDS_F32) return hri_vload_n((const float *)(const void *)row, terms);
  if (how == HRI_GEMM_WORDS_HALVES) return hri_vload_real_n(row, 0, terms, HRI_REAL_F16);
  if (terms == 2 * LANES) {
    pair = *(const words *)(const void *)row;
  } else {
    memcpy(some, row, (size_t)terms * sizeof *some);
    pair = *(const words *)some;
  }
  if (how == HRI_GEMM_WORDS_PAIRS) return (vf)pair;
  return (vf)(half ? pair & 0xFFFF0000u : pair << 16);
}

#if !defined(__AVX512BF16__)
/* x in fp32, in the order of row_vector, zeros behind it. */
void HRI_ISA_NAME(hri_gemm_widen)(float *to, const uint16_t *x, hri_real type, int64_t depth) {
  for (int64_t i = 0; type == HRI_REAL_F16 && i < depth; i += LANES)
    hri_vstore(to + i, hri_vload_real_n(x, i, least(depth - i, LANES), HRI_REAL_F16));
  for (int64_t i = 0; type != HRI_REAL_F16 && i < depth; i += 2 * LANES)
    for (int64_t j = 0; j < 2 * LANES; j++)
      to[i + (j & 1) * LANES + j / 2] = i + j < depth ? hri_bf16_widen(x[i + j]) : 0;
}
#endif

/* Rows of x and of w, one after the other; `next`: what is to be fetched meanwhile, or NULL. */
typedef struct rows {
  const char *x, *w, *next;
  int64_t x_bytes, w_bytes; /* from row to row */
  int64_t depth;
} rows;

/* One step at term `at`, of which `terms` exist. The sums of row r: with column j at [r][j], or of ALONE at [r][sum], the
 * next for the second half. */
INLINE void step(const rows *t, int64_t at, int64_t terms, int count, int columns, int sum, hri_gemm_words how,
                 vf sums[MOST_TOGETHER][COLUMNS]) {
  int64_t in_w = at * (how == HRI_GEMM_WORDS_F32 ? 4 : 2), in_x = at * (how == HRI_GEMM_WORDS_PAIRS ? 2 : 4);
  UNROLL for (int half = 0; half < 2; half++) {
    vf b[COLUMNS];
    if (half && how != HRI_GEMM_WORDS_WIDENED) break;
    UNROLL for (int j = 0; j < columns; j++) b[j] = row_vector(t->w + j * t->w_bytes + in_w, terms, half, how);
    UNROLL for (int r = 0; r < count; r++) {
      const char *x = t->x + r * t->x_bytes + in_x;
      vf a;
      if (how == HRI_GEMM_WORDS_WIDENED) a = hri_vload((const float *)(const void *)x + half * LANES);
      else a = row_vector(x, terms, 0, how == HRI_GEMM_WORDS_HALVES ? HRI_GEMM_WORDS_F32 : how);
      UNROLL for (int j = 0; j < columns; j++) {
        int to = sum == BY_COLUMN ? j : sum + half;
        sums[r][to] = multiply_add(a, b[j], sums[r][to], how);
      }
    }
  }
}

/* The sums of the lanes of v[0] to v[3], each in the order of hri_vsum. */
INLINE void fold_four(const vf *v, float *to) {
#if defined(__AVX512F__)
  const __m512i firsts = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
  __m512 a = (__m512)v[0], b = (__m512)v[1], c = (__m512)v[2], d = (__m512)v[3];
  a = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  c = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
  a = _mm512_add_ps(_mm512_shuffle_f32x4(a, c, 0x88), _mm512_shuffle_f32x4(a, c, 0xDD));
  a = _mm512_add_ps(a, _mm512_permute_ps(a, 0x4E));
  a = _mm512_add_ps(a, _mm512_permute_ps(a, 0xB1));
  _mm_storeu_ps(to, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, a)));
#elif defined(__AVX2__)
  __m256 a = (__m256)v[0], b = (__m256)v[1], c = (__m256)v[2], d = (__m256)v[3];
  a = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  c = _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
  a = _mm256_add_ps(_mm256_shuffle_ps(a, c, 0x44), _mm256_shuffle_ps(a, c, 0xEE)); /* a0 c0, b0 d0 */
  a = _mm256_add_ps(_mm256_shuffle_ps(a, a, 0x88), _mm256_shuffle_ps(a, a, 0xDD)); /* a c a c, b d b d */
  _mm_storeu_ps(to, _mm_unpacklo_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)));
#else
  for (int j = 0; j < 4; j++) to[j] = hri_vsum(v[j]);
#endif
}

INLINE void clear(vf sums[MOST_TOGETHER][COLUMNS], int count) {
  UNROLL for (int r = 0; r < count; r++) UNROLL for (int j = 0; j < COLUMNS; j++) sums[r][j] = (vf){0};
}

/* Dot products of `count` rows of x with one row of w; the results of a row of x BLOCK apart. */
INLINE void dots_alone(const rows *t, int count, hri_gemm_words how, float *results) {
  vf sums[MOST_TOGETHER][COLUMNS];
  const int one = how == HRI_GEMM_WORDS_WIDENED ? 2 : 1, /* sums that a step takes */
      steps = SUMS / one; /* not in the loops' heads: checked, a division leaves them rolled */
  rows own = *t;
  int64_t terms = step_terms(how), round = terms * steps, at = 0;
  clear(sums, count);
  for (; at + round <= own.depth; at += round)
    UNROLL for (int i = 0; i < steps; i++) step(&own, at + i * terms, terms, count, 1, i * one, how, sums);
  UNROLL for (int i = 0; i < steps; i++) if (at + i * terms < own.depth)
      step(&own, at + i * terms, least(terms, own.depth - at - i * terms), count, 1, i * one, how, sums);
  UNROLL for (int r = 0; r < count; r++) results[r * BLOCK] =
      hri_vsum((sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3]));
}

/* The same with `columns` rows of w, whose results stand side by side. All counts are constants. */
INLINE void dots(const rows *t, int count, int columns, hri_gemm_words how, float *results) {
  vf sums[MOST_TOGETHER][COLUMNS];
  rows own = *t;
  int64_t terms = step_terms(how), whole = own.depth / terms * terms;
  clear(sums, count);
  for (int64_t at = 0; at < whole; at += terms) {
    if (own.next)
      UNROLL for (int i = 0; i < columns * (int)sizeof(vf); i += LINE, own.next += LINE)
          __builtin_prefetch(own.next, 0, 2);
    step(&own, at, terms, count, columns, BY_COLUMN, how, sums);
  }
  if (whole < own.depth) step(&own, whole, own.depth - whole, count, columns, BY_COLUMN, how, sums);
  UNROLL for (int r = 0; r < count; r++) {
    if (columns == 4) fold_four(sums[r], results + r * BLOCK);
    else UNROLL for (int j = 0; j < columns; j++) results[r * BLOCK + j] = hri_vsum(sums[r][j]);
  }
}

INLINE void columns_of(const rows *t, int64_t columns, int count, hri_gemm_words how, float *results) {
  rows at = *t;
  if (columns == columns_together(how)) {
    dots(t, count, columns_together(how), how, results);
  } else {
    at.next = NULL;
    for (int64_t j = 0; j < columns; j++, at.w += at.w_bytes) dots(&at, count, 1, how, results + j);
  }
}

/* `columns` rows of w with `count` rows of x. */
INLINE void dots_together(const rows *t, int64_t columns, int64_t count, hri_gemm_words how, float *results) {
  switch (count) {
  case 2: columns_of(t, columns, 2, how, results); break;
  case 3: columns_of(t, columns, 3, how, results); break;
#if MOST_TOGETHER > 3
  case 4: columns_of(t, columns, 4, how, results); break;
#endif
#if MOST_TOGETHER > 4
  case 5: columns_of(t, columns, 5, how, results); break;
  case 6: columns_of(t, columns, 6, how, results); break;
#endif
  default: assert(false); /* no such number of rows */
  }
}

INLINE rows rows_of(const hri_gemm_few *f, int64_t row, int64_t column, hri_gemm_words how) {
  int64_t x_bytes = f->stride * (how == HRI_GEMM_WORDS_PAIRS ? 2 : 4);
  return (rows){.x = (const char *)f->x + row * x_bytes,
                .w = hri_real_from(f->w, column * f->shape->k, f->shape->type),
                .x_bytes = x_bytes,
                .w_bytes = f->shape->k * (int64_t)hri_real_bytes(f->shape->type),
                .depth = f->shape->k};
}

INLINE void block_alone(const hri_gemm_few *f, int64_t first, int64_t columns, hri_gemm_words how, float *results) {
  for (int64_t j = 0; j < columns; j++) {
    rows t = rows_of(f, 0, first + j, how);
    if (f->shape->m == 1) dots_alone(&t, 1, how, results + j);
    else if (f->shape->m == 2) dots_alone(&t, 2, how, results + j);
    else dots_alone(&t, 3, how, results + j);
  }
}

/* Rows of x in groups of about the same size. */
INLINE void block_together(const hri_gemm_few *f, int64_t first, int64_t columns, hri_gemm_words how, float *results) {
  int64_t m = f->shape->m, groups = (m + rows_together(how) - 1) / rows_together(how);
  for (int64_t j = 0; j < columns; j += columns_together(how))
    for (int64_t g = 0; g < groups; g++) {
      int64_t r = m * g / groups, count = m * (g + 1) / groups - r;
      rows t = rows_of(f, r, first + j, how);
      if (g == 0 && first + j + columns_together(how) < f->shape->n) t.next = t.w + columns_together(how) * t.w_bytes;
      dots_together(&t, least(columns_together(how), columns - j), count, how, results + r * BLOCK + j);
    }
}

INLINE void block(const hri_gemm_few *f, int64_t first, int64_t columns, hri_gemm_words how, float *results) {
  if (f->shape->m <= ALONE) block_alone(f, first, columns, how, results);
  else block_together(f, first, columns, how, results);
}

/* Bias, what c holds, rounding. */
static void finish(const hri_gemm_few *f, int64_t first, int64_t columns, const float *results) {
  const hri_gemm_shape *s = f->shape;
  for (int64_t r = 0; r < s->m; r++)
    for (int64_t j = 0; j < columns; j += LANES) {
      int64_t n = least(LANES, columns - j), at = r * s->n + first + j;
      vf v = hri_vload(results + r * BLOCK + j);
      if (f->bias) v += hri_vload_n(f->bias + first + j, n);
      if (s->accumulate) v = hri_vload_n((const float *)f->c + at, n) + v;
      hri_vstore_real_n(f->c, at, v, n, s->out);
    }
}

void HRI_ISA_NAME(hri_gemm_few)(const hri_gemm_few *f, int64_t begin, int64_t end) {
  float results[HRI_GEMM_DOT_ROWS * BLOCK];
  for (int64_t j = begin; j < end; j += BLOCK) {
    int64_t columns = least(BLOCK, end - j);
#if defined(__AVX512BF16__)
    assert(f->shape->type == HRI_REAL_BF16);
    block(f, j, columns, HRI_GEMM_WORDS_PAIRS, results);
#else
    if (f->shape->type == HRI_REAL_BF16) block(f, j, columns, HRI_GEMM_WORDS_WIDENED, results);
    else if (f->shape->type == HRI_REAL_F16) block(f, j, columns, HRI_GEMM_WORDS_HALVES, results);
    else block(f, j, columns, HRI_GEMM_WORDS_F32, results);
#endif
    finish(f, j, columns, results);
  }
}
