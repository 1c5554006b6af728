/* The register tile of our matrix products. Compiled once per instruction level (HRI_ISA); for avx512bf16 its words are
 * pairs of bf16, multiplied by the dot instruction.
 *
 * TILE_ROWS x 2 vectors of sums, two vectors of b and a broadcast fill the registers (32, else 16). A row of words of b
 * is read once for all rows of the tile, a word of a is broadcast. The tile before the last ones may have fewer rows,
 * each count in code of its own, so that no row is computed for nothing.
 *
 * Bits: the multiply-add is one operation with one rounding wherever the processor has it, said explicitly and not left
 * to the compiler's contraction; so AVX2, AVX-512 and NEON give the same bits, and fmaf() too. Base x86-64 has none and
 * rounds twice. */
#include <assert.h>

#include "backend/cpu/gemm_ours.h"
#include "ops/cpu.h"
#include "ops/vmath.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define TILE_ROWS HRI_GEMM_ROWS_AVX512
_Static_assert((int)HRI_LANES == (int)HRI_GEMM_LANES_AVX512, "as scratch is laid out");
#elif defined(__AVX2__)
#define TILE_ROWS HRI_GEMM_ROWS_AVX2
_Static_assert((int)HRI_LANES == (int)HRI_GEMM_LANES_AVX2, "as scratch is laid out");
#elif defined(HRI_NEON)
#define TILE_ROWS HRI_GEMM_ROWS_NEON
_Static_assert((int)HRI_LANES == (int)HRI_GEMM_LANES_NEON, "as scratch is laid out");
#else
#define TILE_ROWS HRI_GEMM_ROWS_BASE
_Static_assert((int)HRI_LANES == (int)HRI_GEMM_LANES_BASE, "as scratch is laid out");
#endif
#define LANES HRI_LANES

enum { TILE_COLUMNS = 2 * LANES, STEPS = HRI_GEMM_STEPS, FETCHES = HRI_VECTOR_BYTES == 64 };

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline))

typedef hri_vf vf;

/* sum + a . b in every lane, a and b as words. Said in assembly where the sums fill the registers: in eight steps in a row
 * compilers let sums wander from register to register, and some into memory. */
INLINE vf multiply_add(vf a, vf b, vf sum) {
#if defined(__AVX512BF16__)
  return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#elif defined(__AVX512F__)
  __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
#elif defined(__FMA__)
  __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  return sum;
#elif defined(__aarch64__)
  return (vf)vfmaq_f32((float32x4_t)sum, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + sum;
#endif
}

INLINE vf broadcast(const float *word) {
#if defined(__AVX512F__)
  return (vf)_mm512_set1_ps(*word);
#elif defined(__AVX2__)
  return (vf)_mm256_broadcast_ss(word);
#else
  return hri_vset(*word);
#endif
}

/* One word of the depth. */
INLINE void step(int rows, const float *a, const float *b, vf sums[TILE_ROWS][2]) {
  vf b0 = hri_vload(b), b1 = hri_vload(b + LANES);
  UNROLL for (int r = 0; r < rows; r++) {
    vf x = broadcast(a + r);
    sums[r][0] = multiply_add(x, b0, sums[r][0]);
    sums[r][1] = multiply_add(x, b1, sums[r][1]);
  }
}

/* `type` is a constant. */
INLINE void put_rounded(const hri_gemm_tile *t, int rows, vf sums[TILE_ROWS][2], hri_real type) {
  UNROLL for (int r = 0; r < rows; r++) {
    hri_vstore_real(t->rounded, r * t->rounded_stride, sums[r][0], type);
    hri_vstore_real(t->rounded, r * t->rounded_stride + LANES, sums[r][1], type);
  }
}

INLINE void put(const hri_gemm_tile *t, int rows, vf sums[TILE_ROWS][2]) {
  if (t->bias) {
    vf bias[2] = {hri_vload(t->bias), hri_vload(t->bias + LANES)};
    UNROLL for (int r = 0; r < rows; r++) sums[r][0] += bias[0], sums[r][1] += bias[1];
  }
  if (t->rounded && t->rounded_to == HRI_REAL_F16) {
    put_rounded(t, rows, sums, HRI_REAL_F16);
  } else if (t->rounded) {
    put_rounded(t, rows, sums, HRI_REAL_BF16);
  } else {
    UNROLL for (int r = 0; r < rows; r++) {
      hri_vstore(t->sums + r * t->stride, sums[r][0]);
      hri_vstore(t->sums + r * t->stride + LANES, sums[r][1]);
    }
  }
}

/* Sums from a narrow c; `type` is a constant. */
INLINE void take_narrow(const hri_gemm_tile *t, int rows, vf sums[TILE_ROWS][2], hri_real type) {
  UNROLL for (int r = 0; r < rows; r++) {
    sums[r][0] = hri_vload_real(t->start, r * t->rounded_stride, type);
    sums[r][1] = hri_vload_real(t->start, r * t->rounded_stride + LANES, type);
  }
}

/* What the chains begin with. */
INLINE void take(const hri_gemm_tile *t, int rows, vf sums[TILE_ROWS][2]) {
  if (t->start && t->rounded_to == HRI_REAL_F16) {
    take_narrow(t, rows, sums, HRI_REAL_F16);
  } else if (t->start) {
    take_narrow(t, rows, sums, HRI_REAL_BF16);
  } else {
    UNROLL for (int r = 0; r < rows; r++) {
      sums[r][0] = t->go_on ? hri_vload(t->sums + r * t->stride) : (vf){0};
      sums[r][1] = t->go_on ? hri_vload(t->sums + r * t->stride + LANES) : (vf){0};
    }
  }
}

/* Into the second cache: much else passes through the first one before it is wanted. */
INLINE void fetch_line(hri_gemm_ahead *source) {
  if (source->left <= 0) return;
  __builtin_prefetch(source->at, 0, 2);
  source->at += 64;
  source->left--;
  if (--source->row_left == 0) source->at += source->jump, source->row_left = source->row_lines;
}

/* A whole tile of `rows`, a constant. Between some steps a row of the next tile is fetched, and over the whole depth what
 * this tile is to fetch of the next panel of a, so that those reads do not queue up before the ones of b. */
INLINE void whole(const hri_gemm_tile *t, int rows) {
  vf sums[TILE_ROWS][2];
  const float *a = t->a, *b = t->b;
  const char *next = t->next, *ahead = t->ahead;
  int64_t left = t->depth;
  hri_gemm_ahead source = FETCHES && t->source ? *t->source : (hri_gemm_ahead){0};
  take(t, rows, sums);
  for (int row = 0; left >= STEPS; row++, left -= STEPS) {
    if (row < TILE_ROWS) {
      __builtin_prefetch(next, 1);
      __builtin_prefetch(next + sizeof(vf), 1);
      next += t->next_stride;
    }
    for (int64_t i = 0; i < t->ahead_lines; i++, ahead += 64) __builtin_prefetch(ahead, 0, 3);
    for (int64_t i = 0; FETCHES && i < t->source_lines; i++) fetch_line(&source);
    for (int i = 0; i < STEPS; i++, a += rows, b += TILE_COLUMNS) step(rows, a, b, sums);
  }
  for (; left > 0; left--, a += rows, b += TILE_COLUMNS) step(rows, a, b, sums);
  if (FETCHES && t->source) *t->source = source;
  put(t, rows, sums);
}

#define CASE(n)                                                                                                        \
  case n: whole(t, n); break;

static void by_rows(const hri_gemm_tile *t) {
  switch (t->rows) {
    CASE(1)
    CASE(2)
    CASE(3)
    CASE(4)
    CASE(5)
    CASE(6)
#if HRI_VECTOR_BYTES == 64 || defined(HRI_NEON)
    CASE(7)
    CASE(8)
    CASE(9)
    CASE(10)
    CASE(11)
    CASE(12)
#endif
#if HRI_VECTOR_BYTES == 64
    CASE(13)
    CASE(14)
#endif
  default: assert(false); /* no such number of rows */
  }
}

/* Whole, and added to what there was: its sums stand in a buffer first, so that the code of all other tiles has nothing of it. */
static __attribute__((noinline)) void whole_apart(const hri_gemm_tile *t) {
  float buffer[TILE_ROWS * TILE_COLUMNS];
  hri_gemm_tile inner = *t;
  assert(!t->bias); /* of FORWARD alone */
  inner.go_on = false;
  inner.start = NULL;
  inner.sums = buffer;
  inner.stride = TILE_COLUMNS;
  inner.rounded = NULL;
  by_rows(&inner);
  for (int64_t r = 0; !t->start && !t->rounded && r < t->rows; r++) {
    float *sums = t->sums + r * t->stride;
    hri_vstore(sums, hri_vload(sums) + hri_vload(buffer + r * TILE_COLUMNS));
    hri_vstore(sums + LANES, hri_vload(sums + LANES) + hri_vload(buffer + r * TILE_COLUMNS + LANES));
  }
  for (int64_t r = 0; (t->start || t->rounded) && r < t->rows; r++)
    for (int64_t j = 0; j < TILE_COLUMNS; j += LANES) {
      vf sum = hri_vload(buffer + r * TILE_COLUMNS + j) +
               (t->start ? hri_vload_real(t->start, r * t->rounded_stride + j, t->rounded_to)
                         : hri_vload(t->sums + r * t->stride + j));
      if (t->rounded) hri_vstore_real(t->rounded, r * t->rounded_stride + j, sum, t->rounded_to);
      else hri_vstore(t->sums + r * t->stride + j, sum);
    }
}

/* At the right edge: the tile stands in a buffer of its own, and what exists of it is copied. */
static __attribute__((noinline)) void part(const hri_gemm_tile *t) {
  float buffer[TILE_ROWS * TILE_COLUMNS], bias[TILE_COLUMNS] = {0};
  hri_gemm_tile inner = *t;
  inner.go_on = hri_gemm_has_begun(t) && !t->apart;
  inner.start = NULL;
  for (int64_t r = 0; inner.go_on && r < t->rows; r++)
    for (int64_t j = 0; j < TILE_COLUMNS; j++)
      buffer[r * TILE_COLUMNS + j] = j < t->columns ? hri_gemm_began(t, r, j) : 0;
  for (int64_t j = 0; t->bias && j < t->columns; j++) bias[j] = t->bias[j];
  inner.sums = buffer;
  inner.stride = TILE_COLUMNS;
  inner.bias = t->bias ? bias : NULL;
  inner.rounded = NULL;
  by_rows(&inner);
  for (int64_t r = 0; r < t->rows; r++)
    for (int64_t j = 0; j < t->columns; j++) {
      float sum = buffer[r * TILE_COLUMNS + j];
      if (t->apart && hri_gemm_has_begun(t)) sum += hri_gemm_began(t, r, j);
      if (t->rounded) t->rounded[r * t->rounded_stride + j] = hri_narrow_round(sum, t->rounded_to);
      else t->sums[r * t->stride + j] = sum;
    }
}

void HRI_ISA_NAME(hri_gemm_tile)(const hri_gemm_tile *t) {
  if (t->columns < TILE_COLUMNS) part(t);
  else if (t->apart && hri_gemm_has_begun(t)) whole_apart(t);
  else by_rows(t);
}
