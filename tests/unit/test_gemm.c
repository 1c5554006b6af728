/* Matrix products in fp32 and bf16: values against a double reference, our own bit by bit against the order of sums that
 * they state, exact scratch, the same bits for every team and for packed operands, no hidden memory, clean refusals. HEADROOM_GEMM_SWEEP=n sets the number of random shapes of
 * the sweep over teams (20). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>

#include "base/mem.h"
#include "base/rng.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/gemm_ours.h"
#include "support/team.h"

/* ---- an allocator that counts: this program's malloc stands before the C library's, also for shared libraries ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAVE_COUNTING 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAVE_COUNTING 0
#endif
#endif
#if !defined(HAVE_COUNTING) && defined(__GLIBC__)
#define HAVE_COUNTING 1

static atomic_size_t largest_allocation;
static atomic_bool counting;

static void note(size_t bytes) {
  size_t largest = atomic_load(&largest_allocation);
  if (!atomic_load(&counting)) return;
  while (bytes > largest && !atomic_compare_exchange_weak(&largest_allocation, &largest, bytes)) {}
}

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
void *malloc(size_t bytes) { return note(bytes), __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { return note(count * bytes), __libc_calloc(count, bytes); }
void *realloc(void *memory, size_t bytes) { return note(bytes), __libc_realloc(memory, bytes); }
void *memalign(size_t alignment, size_t bytes) { return note(bytes), __libc_memalign(alignment, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { return note(bytes), __libc_memalign(alignment, bytes); }
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  note(bytes);
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}
#endif

/* ---- operands ---- */

enum { GUARD = 64, TEAM_COUNT = 6, PROVIDERS = HRI_GEMM_PROVIDER_COUNT };
static const int teams[TEAM_COUNT] = {1, 2, 3, 4, 8, 16};
static const uint32_t guard_word = 0x7fc0beefu; /* a NaN */

static hri_isa processor_isa(void) {
  hri_isa isa;
  hr_error error;
  assert_int_equal(hri_cpu_isa_choose(getenv("HEADROOM_ISA"), &isa, &error), HR_OK);
  return isa;
}

/* A level is that of a processor with all that its code is compiled with: a virtual machine may withhold any of it, and what it
 * withholds ends the process. */
static void a_level_needs_all_of_its_instructions(void **state) {
  const hri_processor all = {true, true, true, true, true, true, true, true};
  (void)state;
  assert_int_equal(hri_cpu_isa_of(&all), HRI_ISA_AVX512_BF16);
  for (size_t k = 0; k < 8; k++) {
    hri_processor less = all;
    bool *const members[] = {&less.avx2,     &less.fma,      &less.f16c,     &less.avx512f,
                             &less.avx512bw, &less.avx512dq, &less.avx512vl, &less.avx512bf16};
    *members[k] = false;
    assert_int_equal(hri_cpu_isa_of(&less), k < 3 ? HRI_ISA_BASE : k < 7 ? HRI_ISA_AVX2 : HRI_ISA_AVX512);
  }
}

/* The pairs of types: of a and b, and of c. */
typedef struct types {
  hri_real type, out;
} types;
enum { TYPES_COUNT = 5 };
static const types all_types[TYPES_COUNT] = {{HRI_REAL_F32, HRI_REAL_F32},
                                             {HRI_REAL_BF16, HRI_REAL_F32},
                                             {HRI_REAL_BF16, HRI_REAL_BF16},
                                             {HRI_REAL_F16, HRI_REAL_F32},
                                             {HRI_REAL_F16, HRI_REAL_F16}};

static float value_at(const void *p, int64_t i, hri_real type) { return hri_real_get(p, i, type); }
static void set_value(void *p, int64_t i, hri_real type, float value) { hri_real_put(p, i, value, type); }

static void *filled(int64_t count, hri_real type, uint64_t stream) {
  void *p = malloc((size_t)count * hri_real_bytes(type));
  assert_non_null(p);
  for (int64_t i = 0; i < count; i += 4) {
    uint32_t words[4];
    hri_philox(7, stream, (uint64_t)i, words);
    for (int64_t j = i; j < count && j < i + 4; j++) set_value(p, j, type, (float)(int32_t)words[j - i] * 0x1p-31f);
  }
  return p;
}

/* A buffer with words of NaN before and behind `bytes`. */
static void *guarded_alloc(uint64_t bytes) {
  char *p = aligned_alloc(64, hri_round_up(bytes + 2 * GUARD, 64));
  assert_non_null(p);
  for (uint64_t i = 0; i < GUARD / 4; i++) memcpy(p + 4 * i, &guard_word, 4);
  for (uint64_t i = 0; i < GUARD; i++) p[GUARD + bytes + i] = (char)0xA5;
  return p + GUARD;
}
static void guarded_check(const void *memory, uint64_t bytes) {
  const unsigned char *p = (const unsigned char *)memory - GUARD;
  for (uint64_t i = 0; i < GUARD / 4; i++) assert_memory_equal(p + 4 * i, &guard_word, 4);
  for (uint64_t i = 0; i < GUARD; i++) assert_int_equal(p[GUARD + bytes + i], 0xA5);
}
static void guarded_free(void *memory) { free((char *)memory - GUARD); }

typedef struct problem {
  hri_gemm_shape shape;
  int64_t a_count, b_count, c_count;
  uint64_t c_bytes;
  void *a, *b;         /* of shape.type */
  float *bias, *start; /* start: c before the call, when it accumulates */
} problem;

static problem problem_make(hri_gemm_shape s) {
  problem p = {.shape = s};
  p.a_count = s.kind == HRI_GEMM_FORWARD ? s.m * s.k : s.m * s.n;
  p.b_count = s.kind == HRI_GEMM_DW ? s.m * s.k : s.n * s.k;
  p.c_count = s.kind == HRI_GEMM_FORWARD ? s.m * s.n : s.kind == HRI_GEMM_DX ? s.m * s.k : s.n * s.k;
  p.c_bytes = (uint64_t)p.c_count * hri_real_bytes(s.out);
  p.a = filled(p.a_count, s.type, 1);
  p.b = filled(p.b_count, s.type, 2);
  p.bias = filled(s.n, HRI_REAL_F32, 3);
  p.start = filled(p.c_count, HRI_REAL_F32, 4);
  return p;
}
static void problem_free(problem *p) {
  free(p->a);
  free(p->b);
  free(p->bias);
  free(p->start);
}

static void *full_of_nan(uint64_t bytes) {
  uint32_t *p = guarded_alloc(bytes);
  for (uint64_t i = 0; i < bytes / 4; i++) p[i] = guard_word;
  return p;
}

/* b in packed form, in a buffer of exactly the stated size; NULL when it has none. */
static void *packed_b(const problem *p, hri_gemm_cache *cache, const hri_gemm_shape *s, uint64_t *bytes) {
  hri_gemm *gemm;
  hr_error error;
  void *packed;
  assert_int_equal(hri_gemm_packed_bytes(cache, s, bytes, &error), HR_OK);
  if (!*bytes) return NULL;
  packed = full_of_nan(*bytes);
  assert_int_equal(hri_gemm_prepare_pack(cache, s, &gemm, &error), HR_OK);
  hri_gemm_pack(gemm, team_of(s->threads), p->b, packed);
  guarded_check(packed, *bytes);
  return packed;
}

/* Runs it with scratch of exactly the stated size, full of NaN; c (guarded) is the caller's to free. NULL when b should
 * be packed and has no such form. */
static void *problem_run(const problem *p, hri_gemm_cache *cache, int threads) {
  hri_gemm_shape s = p->shape;
  uint64_t bytes, again, packed_bytes = 0;
  void *c, *scratch, *packed = NULL;
  hri_gemm *gemm, *same;
  hr_error error;
  s.threads = threads;
  if (s.packed && !(packed = packed_b(p, cache, &s, &packed_bytes))) return NULL;
  assert_int_equal(hri_gemm_workspace(cache, &s, &bytes, &error), HR_OK);
  assert_int_equal(hri_gemm_prepare(cache, &s, &gemm, &error), HR_OK);
  assert_int_equal(hri_gemm_prepare(cache, &s, &same, &error), HR_OK);
  assert_ptr_equal(gemm, same);
  assert_int_equal(hri_gemm_workspace(cache, &s, &again, &error), HR_OK);
  assert_int_equal(bytes, again);
  scratch = full_of_nan(bytes);
  c = full_of_nan(p->c_bytes);
  if (s.accumulate) memcpy(c, p->start, p->c_bytes);
  hri_gemm_run(gemm, team_of(threads), p->a, packed ? packed : p->b, s.bias ? p->bias : NULL, c,
               bytes ? scratch : NULL);
  guarded_check(scratch, bytes);
  guarded_check(c, p->c_bytes);
  if (packed) guarded_check(packed, packed_bytes);
  guarded_free(scratch);
  if (packed) guarded_free(packed);
  return c;
}

/* ---- values ---- */

/* The operands of term i of element (r, j). */
static void term(const problem *p, int64_t r, int64_t j, int64_t i, float *a, float *b) {
  const hri_gemm_shape *s = &p->shape;
  int64_t in_a = s->kind == HRI_GEMM_FORWARD ? r * s->k + i : s->kind == HRI_GEMM_DX ? r * s->n + i : i * s->n + r;
  int64_t in_b = s->kind == HRI_GEMM_FORWARD ? j * s->k + i : i * s->k + j;
  *a = value_at(p->a, in_a, s->type);
  *b = value_at(p->b, in_b, s->type);
}
static int64_t depth_of(const hri_gemm_shape *s) {
  return s->kind == HRI_GEMM_FORWARD ? s->k : s->kind == HRI_GEMM_DX ? s->n : s->m;
}

/* Element (r, j) of the result in double and in plain fp32. */
static void reference(const problem *p, int64_t r, int64_t j, double *exact, float *plain) {
  const hri_gemm_shape *s = &p->shape;
  int64_t depth = depth_of(s), columns = s->kind == HRI_GEMM_FORWARD ? s->n : s->k;
  *exact = s->accumulate ? p->start[r * columns + j] : 0;
  *plain = s->accumulate ? p->start[r * columns + j] : 0;
  for (int64_t i = 0; i < depth; i++) {
    float a, b;
    term(p, r, j, i, &a, &b);
    *exact += (double)a * b;
    *plain += a * b;
  }
  if (!s->bias) return;
  *exact += p->bias[j];
  *plain += p->bias[j];
}

/* Holds a result to 4 times the error of plain fp32 sums, or of as many roundings of the largest value as a sum has terms,
 * which add like a random walk (few elements may all be lucky in plain sums); in bf16 each element may be off by its own
 * rounding as well, 2^-9 of the power of two above it, in fp16 2^-12. */
static void check_values(const problem *p, const void *c) {
  int64_t columns = p->shape.kind == HRI_GEMM_FORWARD ? p->shape.n : p->shape.k, rows = p->c_count / columns;
  double plain_error = 0, own_error = 0, largest = 0;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < columns; j++) {
      double exact, got = value_at(c, r * columns + j, p->shape.out), rounding;
      float plain;
      int exponent;
      reference(p, r, j, &exact, &plain);
      assert_true(isfinite(got));
      (void)frexp(fmax(fabs(exact), fabs(got)), &exponent);
      rounding = p->shape.out == HRI_REAL_BF16  ? ldexp(1, exponent - 9)
                 : p->shape.out == HRI_REAL_F16 ? ldexp(1, (exponent < -13 ? -13 : exponent) - 12)
                                                : 0;
      plain_error = fmax(plain_error, fabs(plain - exact));
      own_error = fmax(own_error, fabs(got - exact) - rounding);
      largest = fmax(largest, fabs(exact));
    }
  if (own_error > 4 * fmax(plain_error, sqrt((double)depth_of(&p->shape)) * largest * FLT_EPSILON / 2))
    fail_msg("kind %d, types %d to %d, %lld x %lld x %lld, bias %d, accumulate %d: error %g, plain fp32 %g",
             p->shape.kind, p->shape.type, p->shape.out, (long long)p->shape.m, (long long)p->shape.n,
             (long long)p->shape.k, p->shape.bias, p->shape.accumulate, own_error, plain_error);
}

static const int64_t value_shapes[][3] = {{1, 1, 1},     {1, 7, 3},     {2, 33, 17},   {4, 64, 100},   {5, 5, 5},
                                          {14, 32, 256}, {15, 33, 257}, {3, 1, 40},    {40, 3, 1},     {1, 300, 70},
                                          {67, 1, 129},  {129, 65, 31}, {96, 96, 64},  {350, 40, 300}, {1921, 9, 17},
                                          {4100, 20, 6}, {6, 2100, 30}, {30, 6, 2100}, {8, 70, 67},    {9, 70, 67},
                                          {2600, 34, 40}};

/* On an emulated processor, which takes a hundred times as long. */
static bool emulated(void) { return getenv("HEADROOM_TEST_EMULATED") != NULL; }

static void values_of(hri_gemm_cache *cache, int threads) {
  for (size_t i = 0; i < sizeof value_shapes / sizeof *value_shapes; i++)
    for (int variant = 0; variant < 8 * TYPES_COUNT; variant++) {
      types t = all_types[variant / 8];
      int v = variant % 8;
      hri_gemm_shape s = {.kind = v < 4   ? HRI_GEMM_FORWARD
                                  : v < 6 ? HRI_GEMM_DX
                                          : HRI_GEMM_DW,
                          .type = t.type,
                          .out = t.out,
                          .m = value_shapes[i][0],
                          .n = value_shapes[i][1],
                          .k = value_shapes[i][2],
                          .accumulate = v & 1,
                          .bias = v == 2 || v == 3};
      problem p;
      void *c;
      if (s.accumulate && s.out != HRI_REAL_F32) continue;
      if (emulated() && s.m * s.n * s.k > 100000 && variant % 8 != (int)i % 8) continue; /* each type once */
      p = problem_make(s);
      c = problem_run(&p, cache, threads);
      check_values(&p, c);
      guarded_free(c);
      problem_free(&p);
    }
}

static hri_gemm_cache *cache_by(hri_isa isa, hri_gemm_provider provider) {
  hri_gemm_cache *cache;
  hr_error error;
  assert_int_equal(hri_gemm_cache_create(isa, provider, &cache, &error), HR_OK);
  return cache;
}

static void test_values(void **state) {
  (void)state;
  for (int provider = 0; provider < PROVIDERS; provider++) {
    hri_gemm_cache *cache = cache_by(processor_isa(), (hri_gemm_provider)provider);
    values_of(cache, 1 + provider);
    hri_gemm_cache_destroy(cache);
  }
  for (int isa = 0; isa < HRI_ISA_COUNT; isa++) {
    if (!hri_isa_has(processor_isa(), (hri_isa)isa)) continue;
    hri_gemm_cache *cache = cache_by((hri_isa)isa, HRI_GEMM_BY_FMA);
    values_of(cache, 1 + isa);
    hri_gemm_cache_destroy(cache);
  }
}

/* ---- mixed types, and rows of something wider ---- */

static int64_t pick(uint32_t *state, int64_t below) {
  *state = *state * 1664525u + 1013904223u;
  return (int64_t)(*state >> 8) % below;
}

/* `rows` lists of `columns` values, `stride` apart, of any type; wide: the same in fp32, side by side. */
typedef struct matrix {
  void *values;
  float *wide;
  int64_t rows, columns, stride;
  hri_real type;
} matrix;

static matrix matrix_make(uint32_t *state, int64_t rows, int64_t columns, int64_t stride, hri_real type) {
  matrix m = {.rows = rows, .columns = columns, .stride = stride ? stride : columns, .type = type};
  m.values = calloc((size_t)(rows * m.stride), 4);
  m.wide = calloc((size_t)(rows * columns), 4);
  assert_true(m.values && m.wide);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < m.stride; c++) {
      float value = (float)pick(state, 4097) / 1024 - 2;
      set_value(m.values, r * m.stride + c, type, value);
      if (c < columns) m.wide[r * columns + c] = value_at(m.values, r * m.stride + c, type);
    }
  return m;
}

static void matrix_free(matrix *m) {
  free(m->values);
  free(m->wide);
}

static void run_shape(hri_gemm_cache *cache, const hri_gemm_shape *s, const void *a, const void *b, void *c) {
  hri_gemm *gemm;
  hr_error error;
  uint64_t bytes;
  void *scratch;
  assert_int_equal(hri_gemm_prepare(cache, s, &gemm, &error), HR_OK);
  assert_int_equal(hri_gemm_workspace(cache, s, &bytes, &error), HR_OK);
  scratch = aligned_alloc(HRI_GEMM_ALIGNMENT, hri_round_up(bytes + 1, HRI_GEMM_ALIGNMENT));
  assert_non_null(scratch);
  hri_gemm_run(gemm, team_of(s->threads), a, b, NULL, c, scratch);
  free(scratch);
}

/* The same bits as the product in fp32 of the widened, contiguous operands, rounded where c is narrow; and what lies
 * between the rows of c stays. */
static void one_mixed(hri_gemm_cache *cache, const hri_gemm_shape *s, uint32_t *state) {
  int64_t m = s->m, n = s->n, k = s->k;
  bool forward = s->kind == HRI_GEMM_FORWARD, weight = s->kind == HRI_GEMM_DW;
  matrix a = matrix_make(state, m, forward ? k : n, s->a_stride, s->type),
         b = matrix_make(state, weight ? m : n, k, s->b_stride, hri_gemm_b_type(s)),
         c = matrix_make(state, weight ? n : m, forward ? n : k, s->c_stride, s->out);
  uint64_t bytes = (uint64_t)(c.rows * c.stride) * hri_real_bytes(c.type);
  void *before = malloc(bytes);
  hri_gemm_shape plain = {.kind = s->kind,
                          .type = HRI_REAL_F32,
                          .out = HRI_REAL_F32,
                          .m = m,
                          .n = n,
                          .k = k,
                          .accumulate = true,
                          .threads = 1,
                          .c_stride = c.columns + 1}; /* a stride, so that few rows take the same way */
  float *wide = calloc((size_t)(c.rows * (c.columns + 1)), 4);
  assert_true(before && wide);
  memcpy(before, c.values, bytes);
  for (int64_t r = 0; s->accumulate && r < c.rows; r++)
    memcpy(wide + r * (c.columns + 1), c.wide + r * c.columns, (size_t)c.columns * 4);
  run_shape(cache, &plain, a.wide, b.wide, wide);
  run_shape(cache, s, a.values, b.values, c.values);
  for (int64_t r = 0; r < c.rows; r++)
    for (int64_t j = 0; j < c.stride; j++) {
      int64_t at = r * c.stride + j;
      float expect = wide[r * (c.columns + 1) + (j < c.columns ? j : 0)];
      if (c.type == HRI_REAL_F32) {
        if (j >= c.columns) expect = ((float *)before)[at];
        if (((float *)c.values)[at] != expect) fail_msg("row %d column %d differs", (int)r, (int)j);
      } else {
        uint16_t rounded = j < c.columns ? hri_narrow_round(expect, c.type) : ((uint16_t *)before)[at];
        if (((uint16_t *)c.values)[at] != rounded)
          fail_msg("row %d column %d differs in type %d", (int)r, (int)j, (int)c.type);
      }
    }
  free(before);
  free(wide);
  matrix_free(&a);
  matrix_free(&b);
  matrix_free(&c);
}

/* What adapters need: low ranks, columns of a fused result, bf16 or fp16 beside fp32, sums into either. */
static void test_mixed(void **state) {
  static const int64_t sizes[] = {1, 3, 8, 16, 33, 64, 130};
  uint32_t random = 7;
  (void)state;
  for (int isa = 0; isa < HRI_ISA_COUNT; isa++) {
    hri_gemm_cache *cache;
    if (!hri_isa_has(processor_isa(), (hri_isa)isa)) continue;
    cache = cache_by((hri_isa)isa, HRI_GEMM_BY_FMA);
    for (int round = 0; round < 600; round++) {
      const hri_real narrow = round % 2 ? HRI_REAL_F16 : HRI_REAL_BF16;
      hri_gemm_shape s = {.kind = (hri_gemm_kind)pick(&random, 3),
                          .type = pick(&random, 2) ? narrow : HRI_REAL_F32,
                          .mixed = pick(&random, 2),
                          .out = pick(&random, 2) ? narrow : HRI_REAL_F32,
                          .m = sizes[pick(&random, 7)],
                          .n = sizes[pick(&random, 7)],
                          .k = round % 10 ? sizes[pick(&random, 7)] : 900,
                          .accumulate = pick(&random, 2),
                          .threads = 1 + (int)pick(&random, 3)};
      bool forward = s.kind == HRI_GEMM_FORWARD;
      if (s.mixed) s.other = s.type == HRI_REAL_F32 ? narrow : HRI_REAL_F32;
      if (pick(&random, 2)) s.a_stride = (forward ? s.k : s.n) + pick(&random, 9);
      if (pick(&random, 2)) s.b_stride = s.k + pick(&random, 9);
      s.c_stride = (forward ? s.n : s.k) + pick(&random, 9); /* never plain: few rows go another way there */
      if (hri_gemm_is_plain(&s)) continue;
      one_mixed(cache, &s, &random);
    }
    hri_gemm_cache_destroy(cache);
  }
}

/* ---- the order of sums ---- */

/* The chain that gemm_ours.c states, operation by operation. The dot instruction takes pairs of terms, the second first;
 * tiles take 32 terms, sum even and odd ones apart and add both. Base x86-64 multiplies and adds in two roundings. */
typedef enum sum_order { PLAIN = 0, FUSED, PAIRS, TILES } sum_order;
static const char *const order_names[] = {"multiply and add", "fma", "dot", "tiles"};

static float tiles_chain(const problem *p, int64_t r, int64_t j, int64_t begin, int64_t end, float sum) {
  for (int64_t block = begin; block < end; block += 32) {
    float halves[2] = {0, 0};
    for (int64_t i = block; i < block + 32 && i < end; i++) {
      float a, b;
      term(p, r, j, i, &a, &b);
      halves[i % 2] = fmaf(a, b, halves[i % 2]);
    }
    sum += halves[0] + halves[1];
  }
  return sum;
}

/* Terms [begin, end). */
static float chain_of(const problem *p, int64_t r, int64_t j, sum_order order, int64_t begin, int64_t end, float from) {
  int64_t depth = depth_of(&p->shape);
  volatile float sum = order == TILES ? tiles_chain(p, r, j, begin, end, from) : from;
  for (int64_t i = begin; i < end && order != TILES; i++) {
    int64_t at = order == PAIRS && (i | 1) < depth ? i ^ 1 : i;
    float a, b;
    term(p, r, j, at, &a, &b);
    if (order == PLAIN) {
      volatile float product = a * b;
      sum = product + sum;
    } else {
      sum = fmaf(a, b, sum);
    }
  }
  return sum;
}

/* Sums in blocks: as many as it takes for 384 terms, as even as pairs (or 32 terms) let them be. */
static float block_sums(const problem *p, int64_t r, int64_t j, sum_order order) {
  int64_t depth = depth_of(&p->shape),
          unit = order == TILES   ? 32
                 : order == PAIRS ? 2
                                  : 1,
          units = (depth + unit - 1) / unit, most = 384 / unit, blocks = (units + most - 1) / most,
          terms = (units + blocks - 1) / blocks * unit;
  volatile float sum = p->shape.accumulate ? p->start[r * p->shape.k + j] : 0;
  for (int64_t at = 0; at < depth; at += terms) {
    volatile float block = chain_of(p, r, j, order, at, at + terms < depth ? at + terms : depth, 0);
    sum = at == 0 && !p->shape.accumulate ? block : sum + block;
  }
  return sum;
}

static float chain(const problem *p, int64_t r, int64_t j, sum_order order) {
  const hri_gemm_shape *s = &p->shape;
  int64_t columns = s->kind == HRI_GEMM_FORWARD ? s->n : s->k;
  volatile float sum = s->in_blocks
                           ? block_sums(p, r, j, order)
                           : chain_of(p, r, j, order, 0, depth_of(s), s->accumulate ? p->start[r * columns + j] : 0);
  if (s->bias) sum = sum + p->bias[j];
  return s->out == HRI_REAL_F32 ? sum : hri_narrow_widen(hri_narrow_round(sum, s->out), s->out);
}

/* Every element, or some thousand of them spread over c. */
static void check_order(const problem *p, const void *c, sum_order order) {
  const hri_gemm_shape *s = &p->shape;
  int64_t columns = s->kind == HRI_GEMM_FORWARD ? s->n : s->k, step = 1 + p->c_count * depth_of(s) / 800000;
  for (int64_t i = 0; i < p->c_count; i += i + 5 < p->c_count ? step : 1) {
    float expected = chain(p, i / columns, i % columns, order), got = value_at(c, i, s->out);
    if (memcmp(&expected, &got, sizeof got) != 0)
      fail_msg(
          "%s, kind %d, types %d to %d, %lld x %lld x %lld, bias %d, accumulate %d, packed %d, in blocks %d: element %lld "
          "is %a, not %a",
          order_names[order], s->kind, s->type, s->out, (long long)s->m, (long long)s->n, (long long)s->k, s->bias,
          s->accumulate, s->packed, s->in_blocks, (long long)i, got, expected);
  }
}

/* Some sides beyond one block of each kind: of the depth, of rows of a, of groups and of the stage's columns. */
static const int64_t order_shapes[][3] = {{9, 1, 1},       {9, 17, 3},        {13, 33, 17},      {14, 32, 64},
                                          {15, 31, 65},    {29, 47, 257},     {41, 100, 769},    {64, 200, 1537},
                                          {27, 2310, 30},  {2310, 27, 31},    {33, 770, 40},     {770, 35, 18},
                                          {1100, 16, 800}, {1153, 1201, 801}, {801, 1153, 1201}, {1201, 801, 1153},
                                          {100, 1601, 60}};

/* Tiles with their operations written out, as problem_run runs the others. */
static void *run_emulated(const problem *p, int threads) {
  hri_gemm_ours tiles = hri_gemm_ours_emulated(processor_isa());
  hri_gemm_shape s = p->shape;
  uint64_t bytes, packed_bytes;
  void *c = full_of_nan(p->c_bytes), *scratch, *packed = NULL;
  s.threads = threads;
  bytes = hri_gemm_scratch(HRI_ISA_AMX, HRI_GEMM_TILES, &s);
  packed_bytes = hri_gemm_panel_bytes(HRI_ISA_AMX, HRI_GEMM_TILES, &s);
  scratch = full_of_nan(bytes);
  if (s.accumulate) memcpy(c, p->start, p->c_bytes);
  if (s.packed) {
    packed = full_of_nan(packed_bytes);
    hri_gemm_ours_pack(&tiles, &s, team_of(threads), p->b, packed);
    guarded_check(packed, packed_bytes);
  }
  hri_gemm_ours_run(&tiles, &s, team_of(threads), p->a, packed ? packed : p->b, p->bias, c, scratch);
  guarded_check(scratch, bytes);
  guarded_check(c, p->c_bytes);
  guarded_free(scratch);
  if (packed) guarded_free(packed);
  return c;
}

/* Of large shapes every fourth variant is tried; in short one or two of each, since an emulated processor takes minutes for
 * one. */
static bool left_out(const hri_gemm_shape *s, int v, bool tiles) {
  static const int64_t rows[] = {1153, 801, 1201};
  if (s->m * s->n * s->k <= 100000000) return false;
  if (getenv("HEADROOM_TEST_QUICK")) return tiles || v % 21 || s->m != rows[v / 21 % 3];
  return tiles || (v / 4 + v) % 4;
}

/* All variants of a shape: kinds, types, bias, accumulation, packing, dx by blocks. `cache` NULL: emulated tiles. */
static void orders_of(hri_gemm_cache *cache, const int64_t sides[3], sum_order order, int *threads) {
  for (int v = 0; v < 20 * TYPES_COUNT; v++) {
    types t = all_types[v / 20];
    hri_gemm_shape s = {.kind = v % 20 < 8    ? HRI_GEMM_FORWARD
                                : v % 20 < 16 ? HRI_GEMM_DX
                                              : HRI_GEMM_DW,
                        .in_blocks = v % 20 >= 12 && v % 20 < 16,
                        .type = t.type,
                        .out = t.out,
                        .m = sides[0],
                        .n = sides[1],
                        .k = sides[2],
                        .accumulate = v & 1,
                        .packed = v & 2,
                        .bias = v % 20 < 8 && v & 4};
    bool pairs = t.type == HRI_REAL_BF16;
    problem p;
    void *c;
    if ((s.accumulate && s.out != HRI_REAL_F32) || left_out(&s, v, !cache)) continue;
    if (hri_gemm_takes_dots(&s) || (!cache && !pairs)) continue; /* dot products of rows */
    p = problem_make(s);
    c = cache ? problem_run(&p, cache, 1 + *threads % 7) : run_emulated(&p, 1 + *threads % 7);
    ++*threads;
    assert_non_null(c);
    check_order(&p, c, pairs || order == PLAIN ? order : FUSED);
    guarded_free(c);
    problem_free(&p);
  }
}

static void test_order_of_sums(void **state) {
  (void)state;
  for (int provider = HRI_GEMM_BY_FMA; provider < PROVIDERS; provider++)
    for (int isa = 0; isa < HRI_ISA_COUNT; isa++) {
      static const hri_isa lowest[PROVIDERS] = {
          [HRI_GEMM_BY_FMA] = HRI_ISA_BASE, [HRI_GEMM_BY_DOT] = HRI_ISA_AVX512_BF16, [HRI_GEMM_BY_TILES] = HRI_ISA_AMX};
#if defined(__aarch64__)
      sum_order fma = FUSED;
#else
      sum_order fma = isa == HRI_ISA_BASE ? PLAIN : FUSED;
#endif
      sum_order order = provider == HRI_GEMM_BY_FMA ? fma : provider == HRI_GEMM_BY_DOT ? PAIRS : TILES;
      hri_gemm_cache *cache;
      int threads = 0;
      if (!hri_isa_has(processor_isa(), (hri_isa)isa) || !hri_isa_has((hri_isa)isa, lowest[provider])) continue;
      cache = cache_by((hri_isa)isa, (hri_gemm_provider)provider);
      for (size_t i = 0; i < sizeof order_shapes / sizeof *order_shapes; i++)
        orders_of(cache, order_shapes[i], order, &threads);
      hri_gemm_cache_destroy(cache);
    }
}

/* The layouts and edges of AMX's tiles, where there is no such processor: the same files with its operations in C. */
static void test_order_of_emulated_tiles(void **state) {
  int threads = 0;
  (void)state;
  if (!hri_isa_has(processor_isa(), HRI_ISA_AVX2)) skip(); /* what the emulation is compiled for */
  for (size_t i = 0; i < sizeof order_shapes / sizeof *order_shapes; i++)
    orders_of(NULL, order_shapes[i], TILES, &threads);
  assert_true(threads > 200);
}

/* A narrow c that is added to: the chain of the same c in fp32, rounded once. It takes no more scratch than one that is not. */
static void narrow_sums(const hri_gemm_ours *ours, hri_gemm_shape s) {
  hri_gemm_shape wide = s, fresh = s;
  wide.out = HRI_REAL_F32;
  fresh.accumulate = false;
  problem p = problem_make(s);
  uint64_t bytes = hri_gemm_scratch(ours->level, ours->code, &s),
           most = hri_gemm_scratch(ours->level, ours->code, &wide);
  void *narrow_scratch = full_of_nan(bytes), *wide_scratch = full_of_nan(most);
  float *c = full_of_nan((uint64_t)p.c_count * 4);
  hri_bf16 *rounded = full_of_nan(p.c_bytes);
  assert_int_equal(bytes, hri_gemm_scratch(ours->level, ours->code, &fresh));
  for (int64_t i = 0; i < p.c_count; i++) c[i] = hri_bf16_widen(rounded[i] = hri_bf16_round(p.start[i]));
  hri_gemm_ours_run(ours, &s, team_of(s.threads), p.a, p.b, NULL, rounded, narrow_scratch);
  hri_gemm_ours_run(ours, &wide, team_of(s.threads), p.a, p.b, NULL, c, wide_scratch);
  for (int64_t i = 0; i < p.c_count; i++) assert_int_equal(rounded[i], hri_bf16_round(c[i]));
  guarded_check(narrow_scratch, bytes);
  guarded_check(rounded, p.c_bytes);
  guarded_free(narrow_scratch), guarded_free(wide_scratch), guarded_free(c), guarded_free(rounded);
  problem_free(&p);
}

static void test_narrow_sums(void **state) {
  static const int64_t sizes[][3] = {{33, 47, 40},   {20, 64, 100},  {64, 32, 16},
                                     {40, 33, 1700}, {1700, 17, 21}, {35, 1700, 50}};
  hri_gemm_ours each[HRI_ISA_COUNT + 2];
  int count = 0;
  (void)state;
  for (int isa = 0; isa < HRI_ISA_COUNT; isa++)
    if (hri_isa_has(processor_isa(), (hri_isa)isa)) each[count++] = hri_gemm_ours_at((hri_isa)isa, HRI_GEMM_FMA);
  if (hri_isa_has(processor_isa(), HRI_ISA_AVX512_BF16))
    each[count++] = hri_gemm_ours_at(processor_isa(), HRI_GEMM_DOT);
  if (hri_isa_has(processor_isa(), HRI_ISA_AVX2)) each[count++] = hri_gemm_ours_emulated(processor_isa());
  for (int i = 0; i < count; i++)
    for (size_t k = 0; k < 3 * sizeof sizes / sizeof *sizes; k++) {
      const int64_t *n = sizes[k / 3];
      hri_gemm_shape s = {.kind = (hri_gemm_kind)(k % 3),
                          .type = HRI_REAL_BF16,
                          .out = HRI_REAL_BF16,
                          .m = n[0],
                          .n = n[1],
                          .k = n[2]};
      s.accumulate = true;
      s.in_blocks = s.kind == HRI_GEMM_DX && k / 3 % 2;
      s.threads = 1 + (int)(k % 4);
      narrow_sums(&each[i], s);
    }
}

/* Why there are blocks: the rounding of a chain grows with its length, and the dx of a vocabulary is long. The blocks of
 * SmolLM2's lie within a tenth of what the chain is off, whatever the level. */
static void test_blocks_are_more_exact(void **state) {
  hri_gemm_shape s = {.kind = HRI_GEMM_DX, .m = 5, .n = emulated() ? 12288 : 49152, .k = 19};
  problem p = problem_make(s);
  (void)state;
  for (int isa = 0; isa < HRI_ISA_COUNT; isa++) {
    double off[2] = {0, 0};
    if (!hri_isa_has(processor_isa(), (hri_isa)isa)) continue;
    for (int blocks = 0; blocks < 2; blocks++) {
      hri_gemm_cache *cache = cache_by((hri_isa)isa, HRI_GEMM_BY_FMA);
      float *c;
      p.shape.in_blocks = blocks;
      c = problem_run(&p, cache, 2);
      for (int64_t i = 0; i < p.c_count; i++) {
        double exact;
        float plain;
        reference(&p, i / s.k, i % s.k, &exact, &plain);
        off[blocks] += (c[i] - exact) * (c[i] - exact);
      }
      guarded_free(c);
      hri_gemm_cache_destroy(cache);
    }
    assert_true(off[1] * 25 < off[0]); /* squares: a fifth, where a tenth was measured */
  }
  problem_free(&p);
}

/* Rows and columns computed beside do not matter: a part of the product alone has the same bits. */
static void test_parts_have_the_bits_of_the_whole(void **state) {
  (void)state;
  for (int dot = 0; dot < 2; dot++)
    for (int v = 0; v < 2 * TYPES_COUNT; v++) {
      const types t = all_types[v / 2];
      hri_gemm_shape s =
          {.kind = HRI_GEMM_DX, .type = t.type, .out = t.out, .m = 150, .n = 1000, .k = 90, .in_blocks = v % 2};
      hri_gemm_cache *cache = cache_by(processor_isa(), dot ? HRI_GEMM_BY_DOT : HRI_GEMM_BY_FMA);
      problem whole = problem_make(s), part;
      void *c = problem_run(&whole, cache, 3), *of_part;
      part = whole;
      part.shape.m = 61;
      part.a = hri_real_at(whole.a, 70 * s.n, s.type);
      part.c_count = part.shape.m * s.k;
      part.c_bytes = (uint64_t)part.c_count * hri_real_bytes(s.out);
      of_part = problem_run(&part, cache, 2);
      assert_memory_equal(of_part, hri_real_at(c, 70 * s.k, s.out), part.c_bytes);
      guarded_free(of_part);
      guarded_free(c);
      problem_free(&whole);
      hri_gemm_cache_destroy(cache);
    }
}

/* NaN and infinity in an operand reach exactly the elements that depend on them. */
static void nonfinite_with(hri_gemm_cache *cache, hri_gemm_shape s) {
  problem p = problem_make(s);
  void *c;
  set_value(p.a, 3 * s.k + 7, s.type, NAN);
  set_value(p.b, 5 * s.k + s.k - 1, s.type, INFINITY);
  if ((c = problem_run(&p, cache, 2))) {
    for (int64_t r = 0; r < s.m; r++)
      for (int64_t j = 0; j < s.n; j++) assert_int_equal(!isfinite(value_at(c, r * s.n + j, s.out)), r == 3 || j == 5);
    guarded_free(c);
  }
  problem_free(&p);
}

static void test_nonfinite(void **state) {
  (void)state;
  for (int provider = 0; provider < PROVIDERS; provider++) {
    hri_gemm_cache *cache = cache_by(processor_isa(), (hri_gemm_provider)provider);
    for (int t = 0; t < TYPES_COUNT; t++)
      for (int variant = 0; variant < 4; variant++)
        nonfinite_with(cache, (hri_gemm_shape){.kind = HRI_GEMM_FORWARD,
                                               .type = all_types[t].type,
                                               .out = all_types[t].out,
                                               .m = variant & 1 ? 20 : 5,
                                               .n = 40,
                                               .k = 29,
                                               .packed = variant & 2});
    hri_gemm_cache_destroy(cache);
  }
}

/* The largest finite sums round to infinity in bf16 only where fp32 is beyond the middle; halves go to even. */
static void test_rounding_of_results(void **state) {
  static const float products[][2] = {{0x1.FEFFFEp127f, 0x1.FEp127f},
                                      {0x1.FFp127f, INFINITY},
                                      {0x1.01p0f, 0x1p0f},
                                      {0x1.03p0f, 0x1.04p0f}};
  (void)state;
  for (size_t i = 0; i < 4 * PROVIDERS; i++) {
    hri_gemm_shape s =
        {.kind = HRI_GEMM_FORWARD, .type = HRI_REAL_BF16, .out = HRI_REAL_BF16, .m = 20, .n = 3, .k = 1, .bias = true};
    problem p = problem_make(s);
    hri_gemm_cache *cache = cache_by(processor_isa(), (hri_gemm_provider)(i / 4));
    hri_bf16 *c;
    memset(p.a, 0, (size_t)p.a_count * 2);
    for (int j = 0; j < 3; j++) p.bias[j] = products[i % 4][0];
    c = problem_run(&p, cache, 2);
    for (int j = 0; j < 60; j++) assert_true(hri_bf16_widen(c[j]) == products[i % 4][1]);
    guarded_free(c);
    problem_free(&p);
    hri_gemm_cache_destroy(cache);
  }
}

/* ---- the same bits for every team ---- */

static bool same_bits_in(hri_gemm_cache *cache, hri_gemm_shape s) {
  problem p = problem_make(s), packed = p;
  void *first = problem_run(&p, cache, teams[0]);
  bool compared = false;
  packed.shape.packed = true;
  for (int i = 0; i < 2 * TEAM_COUNT; i++) {
    void *c = problem_run(i < TEAM_COUNT ? &p : &packed, cache, teams[i % TEAM_COUNT]);
    if (!c) continue; /* no packed form */
    if (memcmp(c, first, p.c_bytes) != 0)
      fail_msg("kind %d, types %d to %d, %lld x %lld x %lld, accumulate %d: %d threads%s differ from 1", s.kind, s.type,
               s.out, (long long)s.m, (long long)s.n, (long long)s.k, s.accumulate, teams[i % TEAM_COUNT],
               i < TEAM_COUNT ? "" : " and packed b");
    guarded_free(c);
    compared = compared || i >= TEAM_COUNT;
  }
  guarded_free(first);
  problem_free(&p);
  return compared;
}

/* Returns in how many of the cases b has a packed form, which then gave the same bits too. */
static int same_bits(hri_gemm_cache *cache, int64_t m, int64_t n, int64_t k) {
  int packed = 0;
  for (int t = 0; t < TYPES_COUNT; t++)
    for (int variant = 0; variant < 8; variant++) {
      hri_gemm_shape s = {.kind = variant < 6 ? (hri_gemm_kind)(variant / 2) : HRI_GEMM_DX,
                          .type = all_types[t].type,
                          .out = all_types[t].out,
                          .m = m,
                          .n = n,
                          .k = k,
                          .accumulate = variant & 1,
                          .in_blocks = variant >= 6,
                          .bias = variant < 2};
      if (!s.accumulate || s.out == HRI_REAL_F32) packed += same_bits_in(cache, s);
    }
  return packed;
}

/* Small, middling, round and long sides alike, of at most `limit` multiply-adds. */
static void random_sides(uint64_t *counter, int64_t sides[3], int64_t limit) {
  static const int64_t marks[] = {512, 768, 1920, 1921, 2047, 2048, 2049, 3072, 4096, 8192, 16384, 20000, 32000, 50304};
  do
    for (int i = 0; i < 3; i++) {
      uint32_t w[4];
      hri_philox(11, 0, (*counter)++, w);
      sides[i] = w[0] % 4 == 0   ? 1 + w[1] % 64
                 : w[0] % 4 == 1 ? 1 + w[1] % 600
                 : w[0] % 4 == 2 ? 16 * (1 + w[1] % 128)
                                 : marks[w[1] % 14];
    }
  while (sides[0] * sides[1] * sides[2] > limit);
}

static void test_same_bits_for_every_team(void **state) {
  static const int64_t chosen[][3] = {{8192, 64, 64},  {64, 64, 8192},  {64, 8192, 64},  {2048, 128, 192},
                                      {2304, 96, 40},  {4096, 51, 41},  {32, 50304, 16}, {50304, 16, 16},
                                      {24, 24, 32000}, {1, 4096, 64},   {1, 64, 4096},   {4096, 1, 64},
                                      {4096, 64, 1},   {4096, 72, 200}, {2049, 40, 640}, {3000, 33, 130}};
  const char *text = getenv("HEADROOM_GEMM_SWEEP");
  const int64_t most = getenv("HEADROOM_TEST_QUICK") ? 1000000 : 20000000; /* products of a shape drawn */
  long count = text ? atol(text) : 20;
  uint64_t counter = 0;
  int packed = 0;
  (void)state;
  for (int provider = HRI_GEMM_BY_FMA; provider < PROVIDERS; provider++) {
    hri_gemm_cache *cache = cache_by(processor_isa(), (hri_gemm_provider)provider);
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++)
      if (!getenv("HEADROOM_TEST_QUICK") || chosen[i][0] * chosen[i][1] * chosen[i][2] <= most)
        packed += same_bits(cache, chosen[i][0], chosen[i][1], chosen[i][2]);
    for (long i = 0; i < (provider == HRI_GEMM_BY_FMA ? count : count / 2); i++) {
      int64_t sides[3];
      random_sides(&counter, sides, most);
      packed += same_bits(cache, sides[0], sides[1], sides[2]);
    }
    hri_gemm_cache_destroy(cache);
  }
  assert_true(packed > (getenv("HEADROOM_TEST_QUICK") ? 50 : 100));
}

/* ---- packing ---- */

/* Word `word` of line `line`, as gemm_ours.h states it. */
static uint32_t word_of(const hri_gemm_panels *p, int64_t line, int64_t word) {
  const uint16_t *halves = p->from;
  uint32_t v = 0;
  if (line >= p->lines) return 0;
  if (p->how == HRI_GEMM_WORDS_PAIRS) {
    for (int64_t h = 0; h < 2 && 2 * word + h < p->terms; h++)
      v |= (uint32_t)halves[line * p->across + (2 * word + h) * p->along] << 16 * h;
    return v;
  }
  if (word >= p->terms) return 0;
  if (p->how == HRI_GEMM_WORDS_WIDENED) return (uint32_t)halves[line * p->across + word * p->along] << 16;
  if (p->how == HRI_GEMM_WORDS_HALVES) {
    float value = hri_f16_widen(halves[line * p->across + word * p->along]);
    memcpy(&v, &value, sizeof v);
    return v;
  }
  return ((const uint32_t *)p->from)[line * p->across + word * p->along];
}

/* A request drawn: whole panels and edges, both directions, sizes about those of vectors. */
static hri_gemm_panels panels_drawn(uint64_t *counter) {
  static const int64_t widths[] = {6, 8, 12, 14, 16, 32, 1, 13};
  uint32_t w[8];
  hri_gemm_panels p = {0};
  int64_t terms;
  for (int i = 0; i < 8; i += 4) hri_philox(7, 0, (*counter)++, w + i);
  p.how = (hri_gemm_words)(w[0] % 4);
  p.width = widths[w[1] % 8];
  p.panels = 1 + w[2] % 5;
  p.words = 1 + w[3] % 70;
  p.lines = p.panels * p.width - (w[4] % 2 ? w[5] % p.width : 0);
  terms = p.how == HRI_GEMM_WORDS_PAIRS ? 2 * p.words : p.words;
  p.terms = w[4] & 2 ? terms - (int64_t)(w[6] % 3) : terms;
  if (p.terms < 0) p.terms = 0;
  p.along = w[4] & 4 ? 1 : p.lines + w[7] % 9;
  p.across = w[4] & 4 ? p.terms + w[7] % 9 : 1;
  p.panel_stride = p.words * p.width + w[7] % 3;
  return p;
}

/* Every word of every panel, from a source and into a place of exactly the bytes that there are. */
static void test_panels(void **state) {
  const long count = getenv("HEADROOM_TEST_QUICK") ? 1000 : 10000;
  uint64_t counter = 0;
  (void)state;
  for (int isa = 0; isa < HRI_ISA_COUNT; isa++)
    for (long i = 0; i < count && hri_isa_has(processor_isa(), (hri_isa)isa); i++) {
      hri_gemm_ours ours = hri_gemm_ours_at((hri_isa)isa, HRI_GEMM_FMA);
      hri_gemm_panels p = panels_drawn(&counter);
      int64_t last = p.along == 1 ? (p.lines - 1) * p.across + p.terms : (p.terms - 1) * p.along + p.lines;
      uint64_t from_bytes = p.terms ? (uint64_t)last * (p.how == HRI_GEMM_WORDS_F32 ? 4 : 2) : 0;
      uint64_t to_bytes = (uint64_t)((p.panels - 1) * p.panel_stride + p.words * p.width) * 4;
      uint8_t *from = guarded_alloc(from_bytes ? from_bytes : 1);
      for (uint64_t at = 0; at < from_bytes; at++) from[at] = (uint8_t)(at * 131 + at / 251 + (uint64_t)i);
      p.from = from;
      p.to = guarded_alloc(to_bytes);
      ours.kernels.pack(&p);
      guarded_check(p.to, to_bytes);
      for (int64_t panel = 0; panel < p.panels; panel++)
        for (int64_t at = 0; at < p.words * p.width; at++)
          assert_int_equal(p.to[panel * p.panel_stride + at],
                           word_of(&p, panel * p.width + at % p.width, at / p.width));
      guarded_free(p.to);
      guarded_free(from);
    }
}

/* Different products at once, each in a thread of its own. */
typedef struct alone {
  const hri_gemm *gemm;
  problem p;
  void *c, *expected, *scratch;
  int wrong;
} alone;

static void *run_alone(void *context) {
  alone *one = context;
  for (int times = 0; times < 20; times++) {
    hri_gemm_run(one->gemm, NULL, one->p.a, one->p.b, NULL, one->c, one->scratch);
    one->wrong += memcmp(one->c, one->expected, one->p.c_bytes) != 0;
  }
  return NULL;
}

static void test_several_at_once(void **state) {
  enum { COUNT = 4 };
  hri_gemm_cache *cache = cache_by(processor_isa(), HRI_GEMM_AUTO);
  pthread_t threads[COUNT];
  alone each[COUNT] = {0};
  (void)state;
  for (int i = 0; i < COUNT; i++) {
    hri_gemm_shape s = {.kind = HRI_GEMM_FORWARD, .m = 30 + i, .n = 50, .k = 64, .threads = 1};
    uint64_t bytes;
    hri_gemm *gemm;
    hr_error error;
    each[i].p = problem_make(s);
    each[i].expected = problem_run(&each[i].p, cache, 1);
    each[i].c = full_of_nan(each[i].p.c_bytes);
    assert_int_equal(hri_gemm_workspace(cache, &s, &bytes, &error), HR_OK);
    assert_int_equal(hri_gemm_prepare(cache, &s, &gemm, &error), HR_OK);
    each[i].scratch = full_of_nan(bytes);
    each[i].gemm = gemm;
  }
  for (int i = 0; i < COUNT; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_alone, &each[i]), 0);
  for (int i = 0; i < COUNT; i++) {
    assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(each[i].wrong, 0);
    guarded_free(each[i].c);
    guarded_free(each[i].expected);
    guarded_free(each[i].scratch);
    problem_free(&each[i].p);
  }
  hri_gemm_cache_destroy(cache);
}

/* ---- memory ---- */

#if HAVE_COUNTING
static void expect_quiet(const char *what, const hri_gemm_shape *s) {
  atomic_store(&counting, false);
  if (atomic_load(&largest_allocation) > 4096)
    fail_msg("%s: kind %d, types %d to %d, %lld x %lld x %lld allocates %zu bytes", what, s->kind, s->type, s->out,
             (long long)s->m, (long long)s->n, (long long)s->k, atomic_load(&largest_allocation));
}

static void hidden_memory_of(hri_gemm_cache *cache, hri_gemm_shape s) {
  problem p = problem_make(s);
  void *c = problem_run(&p, cache, s.threads), *scratch, *packed = NULL; /* the first call may set threads up */
  uint64_t bytes, packed_bytes, live = hri_mem_live_bytes(), calls = hri_mem_allocation_count();
  hri_gemm *gemm;
  hr_error error;
  if (c) {
    assert_int_equal(hri_gemm_prepare(cache, &s, &gemm, &error), HR_OK);
    assert_int_equal(hri_gemm_workspace(cache, &s, &bytes, &error), HR_OK);
    assert_int_equal(hri_gemm_packed_bytes(cache, &s, &packed_bytes, &error), HR_OK);
    scratch = aligned_alloc(64, hri_round_up(bytes + 1, 64));
    if (s.packed) packed = aligned_alloc(64, hri_round_up(packed_bytes, 64));
    live = hri_mem_live_bytes();
    calls = hri_mem_allocation_count();
    atomic_store(&largest_allocation, 0);
    atomic_store(&counting, true);
    if (packed) hri_gemm_pack(gemm, team_of(s.threads), p.b, packed);
    expect_quiet("packing", &s);
    atomic_store(&counting, true);
    hri_gemm_run(gemm, team_of(s.threads), p.a, packed ? packed : p.b, p.bias, c, scratch);
    expect_quiet(hri_gemm_implementation(gemm), &s);
    assert_int_equal(hri_mem_live_bytes(), live);
    assert_int_equal(hri_mem_allocation_count(), calls);
    free(packed);
    free(scratch);
    guarded_free(c);
  }
  problem_free(&p);
}
#endif

/* Shapes of GPT-2, Llama and their heads with few rows: which code serves them does not depend on how many. */
static void test_no_hidden_memory(void **state) {
#if HAVE_COUNTING
  static const int64_t shapes[][3] = {{256, 2304, 768}, {256, 768, 3072}, {32, 50304, 256}, {2500, 192, 256},
                                      {64, 576, 1536},  {37, 51, 77},     {1, 768, 768},    {8, 2048, 512},
                                      {24, 24, 32000},  {2500, 96, 64}};
  void *volatile kept; /* or the compiler drops the call */
  hri_gemm_cache *cache;
  (void)state;
  cache = cache_by(processor_isa(), HRI_GEMM_AUTO);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int variant = 0; variant < 12 * TYPES_COUNT; variant++) {
      types t = all_types[variant / 12];
      hri_gemm_shape s = {.kind = (hri_gemm_kind)(variant / 2 % 3),
                          .type = t.type,
                          .out = t.out,
                          .m = shapes[i][0],
                          .n = shapes[i][1],
                          .k = shapes[i][2],
                          .accumulate = variant & 1,
                          .packed = variant / 6 & 1,
                          .bias = variant / 2 % 3 == 0,
                          .threads = 2};
      if (getenv("HEADROOM_TEST_QUICK") && s.m * s.n * s.k > 20000000) break;
      if (!s.accumulate || s.out == HRI_REAL_F32) hidden_memory_of(cache, s);
    }
  /* The counter does count. */
  atomic_store(&counting, true);
  kept = malloc(5000);
  free(kept);
  atomic_store(&counting, false);
  assert_true(atomic_load(&largest_allocation) >= 5000);
  hri_gemm_cache_destroy(cache);
#else
  (void)state;
  skip();
#endif
}

static void test_refused_memory(void **state) {
  hri_gemm_shape s = {.kind = HRI_GEMM_DW, .m = 4000, .n = 16, .k = 32, .threads = 2};
  uint64_t live = hri_mem_live_bytes();
  hr_status status = HR_ERROR_MEMORY;
  (void)state;
  for (uint64_t nth = 1; status != HR_OK; nth++) {
    hri_gemm_cache *cache = NULL;
    hri_gemm *gemm;
    uint64_t bytes;
    hr_error error;
    hri_mem_fail_after(nth);
    status = hri_gemm_cache_create(processor_isa(), HRI_GEMM_AUTO, &cache, &error);
    if (status == HR_OK) status = hri_gemm_workspace(cache, &s, &bytes, &error);
    if (status == HR_OK) status = hri_gemm_prepare(cache, &s, &gemm, &error);
    if (status == HR_OK) status = hri_gemm_packed_bytes(cache, &s, &bytes, &error);
    hri_mem_fail_after(0);
    assert_true(status == HR_OK || status == HR_ERROR_MEMORY);
    /* What a refusal left behind is whole: the same cache serves the shape afterwards. */
    if (cache) assert_int_equal(hri_gemm_prepare(cache, &s, &gemm, &error), HR_OK);
    hri_gemm_cache_destroy(cache);
    assert_int_equal(hri_mem_live_bytes(), live);
    assert_true(nth < 100);
  }
}

/* ---- refusals and names ---- */

static void test_refusals(void **state) {
  static const hri_gemm_shape good = {.kind = HRI_GEMM_FORWARD, .m = 8, .n = 8, .k = 8, .threads = 1};
  hri_gemm_cache *cache;
  hri_gemm *gemm;
  uint64_t bytes;
  hr_error error;
  hri_gemm_shape s;
  (void)state;
  cache = cache_by(processor_isa(), HRI_GEMM_AUTO);
  for (int field = 0; field < 14; field++) {
    s = good;
    if (field == 0) s.m = 0;
    if (field == 1) s.n = -1;
    if (field == 2) s.k = 0;
    if (field == 3) s.threads = 0;
    if (field == 4) s.kind = HRI_GEMM_DX, s.bias = true;
    if (field == 5) s.kind = HRI_GEMM_KIND_COUNT;
    if (field == 6) s.type = (hri_real)7;
    if (field == 7) s.out = (hri_real)7;
    if (field == 8) s.mixed = s.packed = true, s.other = HRI_REAL_BF16; /* only what is plain has a packed form */
    if (field == 9) s.c_stride = s.n - 1;
    if (field == 10) s.type = HRI_REAL_F16, s.out = HRI_REAL_BF16; /* one narrow type in a product */
    if (field == 11) s.type = HRI_REAL_F16, s.mixed = true, s.other = HRI_REAL_BF16;
    if (field == 12) s.other = HRI_REAL_F16; /* not mixed */
    if (field == 13) s.in_blocks = true;     /* of DX alone */
    assert_int_equal(hri_gemm_workspace(cache, &s, &bytes, &error), HR_ERROR_INTERNAL);
  }
  s = good;
  s.k = INT64_MAX / 2;
  assert_int_equal(hri_gemm_workspace(cache, &s, &bytes, &error), HR_ERROR_USAGE);
  s = good;
  s.m = INT32_MAX;
  s.k = 4;
  assert_int_equal(hri_gemm_workspace(cache, &s, &bytes, &error), HR_OK);
  hri_gemm_cache_destroy(cache);
  hri_gemm_cache_destroy(NULL);

  /* Dot products of rows take no packed b. */
  cache = cache_by(processor_isa(), HRI_GEMM_BY_FMA);
  s = good;
  assert_int_equal(hri_gemm_packed_bytes(cache, &s, &bytes, &error), HR_OK);
  assert_int_equal(bytes, 0);
  s.packed = true;
  assert_int_equal(hri_gemm_workspace(cache, &s, &bytes, &error), HR_ERROR_USAGE);
  assert_int_equal(hri_gemm_prepare(cache, &s, &gemm, &error), HR_ERROR_USAGE);
  hri_gemm_cache_destroy(cache);
}

/* Many shapes: the table grows and still finds each. */
static void test_many_shapes(void **state) {
  hri_gemm_cache *cache = cache_by(HRI_ISA_BASE, HRI_GEMM_BY_FMA);
  hri_gemm *gemms[1000];
  hr_error error;
  (void)state;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < 1000; i++) {
      hri_gemm_shape s = {.kind = (hri_gemm_kind)(i % 3), .m = 1 + i / 3, .n = 2, .k = 3, .threads = 1};
      hri_gemm *gemm;
      assert_int_equal(hri_gemm_prepare(cache, &s, &gemm, &error), HR_OK);
      if (pass == 0) gemms[i] = gemm;
      assert_ptr_equal(gemm, gemms[i]);
    }
  hri_gemm_cache_destroy(cache);
}

static void test_isa(void **state) {
  hri_isa isa;
  hr_error error;
  (void)state;
  for (int i = 0; i < HRI_ISA_COUNT; i++) {
    assert_true(hri_isa_parse(hri_isa_name((hri_isa)i), &isa));
    assert_int_equal(isa, i);
  }
  for (int high = 0; high < HRI_ISA_COUNT; high++)
    for (int low = 0; low < HRI_ISA_COUNT; low++) {
      bool arm = high >= HRI_ISA_NEON, same = arm == (low >= HRI_ISA_NEON);
      assert_int_equal(hri_isa_has((hri_isa)high, (hri_isa)low), low == HRI_ISA_BASE || (same && low <= high));
    }
  assert_false(hri_isa_parse("avx", &isa));
  assert_false(hri_isa_parse(NULL, &isa));
  assert_int_equal(hri_cpu_isa_choose("sse9", &isa, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "sse9"));
  assert_int_equal(hri_cpu_isa_choose("", &isa, &error), HR_OK);
}

/* What the shipped table says, for each level and class of processor. */
static void test_the_table(void **state) {
  (void)state;
  for (int v = 0; v < HRI_ISA_COUNT * 2 * 3 * HRI_GEMM_KIND_COUNT; v++) {
    hri_gemm_machine m = {.level = (hri_isa)(v % HRI_ISA_COUNT), .pairs = (hri_pairs)(v / HRI_ISA_COUNT % 2)};
    hri_real type = (hri_real)(v / (HRI_ISA_COUNT * 2) % 3);
    hri_gemm_shape s = {.kind = (hri_gemm_kind)(v / (HRI_ISA_COUNT * 6)),
                        .type = type,
                        .out = type,
                        .m = 64,
                        .n = 96,
                        .k = 128,
                        .threads = 2};
    bool bf16 = type == HRI_REAL_BF16;
    hri_gemm_code expected = bf16 && m.level == HRI_ISA_AMX                                        ? HRI_GEMM_TILES
                             : bf16 && m.level == HRI_ISA_AVX512_BF16 && m.pairs == HRI_PAIRS_FULL ? HRI_GEMM_DOT
                                                                                                   : HRI_GEMM_FMA;
    char text[HRI_GEMM_TEXT_BYTES];
    hri_gemm_decision how;
    if (bf16) /* what is recorded tells the orders of sums apart */
      assert_string_equal(hri_gemm_text(&m, text), expected == HRI_GEMM_TILES ? "products 2, bf16 by tiles"
                                                   : expected == HRI_GEMM_DOT ? "products 2, bf16 by dot"
                                                                              : "products 2, bf16 by fma");
    for (int packed = 0; packed < 2; packed++) {
      s.packed = packed;
      assert_int_equal(hri_gemm_decide(&m, &s, &how, NULL), HR_OK);
      assert_int_equal(how.code, expected);
      if (packed) assert_true(how.packed_bytes > 0);
    }
    /* Few rows read w once, with dot products of ours, whoever multiplies more. */
    s = (hri_gemm_shape){.kind = HRI_GEMM_FORWARD, .type = type, .out = type, .m = 1, .n = 96, .k = 128, .threads = 2};
    assert_int_equal(hri_gemm_decide(&m, &s, &how, NULL), HR_OK);
    assert_int_equal(how.code, expected == HRI_GEMM_TILES ? HRI_GEMM_DOT : expected);
  }
}

/* ---- tables ---- */

static void test_tables_as_text(void **state) {
  static const char *const wrong[] = {"",
                                      "products 1, bf16 by dot",
                                      "products 2, bf16 by",
                                      "products 2, bf16 by dots",
                                      "products 2, bf16 by few fff",
                                      "products 2, bf16 by few fff, forward fff, dx fff, dw ff",
                                      "products 2, bf16 by few fff, forward fff, dx fff, dw ffff",
                                      "products 2, bf16 by few fff, forward fxf, dx fff, dw fff",
                                      "products 2, bf16 by few ttt, forward fff, dx fff, dw fff",
                                      "products 2, bf16 by forward fff, few fff, dx fff, dw fff"};
  (void)state;
  for (int level = 0; level < HRI_ISA_COUNT; level++)
    for (uint32_t seed = 0; seed < 200; seed++) {
      hri_gemm_machine m = {.level = (hri_isa)level, .pairs = (hri_pairs)(seed % 2)}, again = m;
      char text[HRI_GEMM_TEXT_BYTES], other[HRI_GEMM_TEXT_BYTES];
      bool possible = true;
      m.table = hri_gemm_table_by(m.level, (hri_gemm_code)(seed % HRI_GEMM_CODE_COUNT));
      for (uint32_t k = 0; seed > 3 && k < HRI_GEMM_ROW_COUNT * HRI_GEMM_WIDTH_COUNT; k++) {
        hri_gemm_code code = (hri_gemm_code)((seed * 2654435761u >> (k + 3)) % HRI_GEMM_CODE_COUNT);
        if (hri_gemm_has(m.level, code, k / HRI_GEMM_WIDTH_COUNT))
          m.table.code[k / HRI_GEMM_WIDTH_COUNT][k % HRI_GEMM_WIDTH_COUNT] = (uint8_t)code;
      }
      assert_true(hri_gemm_parse(hri_gemm_text(&m, text), m.level, &again.table));
      assert_memory_equal(&m.table, &again.table, sizeof m.table);
      assert_string_equal(hri_gemm_text(&again, other), text);
      for (uint32_t k = 0; k < HRI_GEMM_ROW_COUNT * HRI_GEMM_WIDTH_COUNT; k++)
        possible =
            possible &&
            hri_gemm_has(HRI_ISA_AVX2, (hri_gemm_code)m.table.code[k / HRI_GEMM_WIDTH_COUNT][k % HRI_GEMM_WIDTH_COUNT],
                         k / HRI_GEMM_WIDTH_COUNT);
      assert_int_equal(hri_gemm_parse(text, HRI_ISA_AVX2, &again.table), possible); /* not where the level lacks it */
    }
  for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
    hri_gemm_table t;
    if (hri_gemm_parse(wrong[k], HRI_ISA_AMX, &t)) fail_msg("'%s' is taken for products", wrong[k]);
  }
}

/* The shipped one unless another is more than 5 % faster; what was not measured or cannot run is never chosen. */
static void test_the_fastest_wins_but_for_ties(void **state) {
  (void)state;
  for (int level = 0; level < HRI_ISA_COUNT; level++)
    for (int shipped = 0; shipped < HRI_GEMM_CODE_COUNT; shipped++)
      for (int other = 0; other < HRI_GEMM_CODE_COUNT; other++) {
        hri_gemm_table from = hri_gemm_table_by((hri_isa)level, (hri_gemm_code)shipped), t;
        hr_code_rates rates;
        for (int v = 0; v < 3; v++) { /* nothing measured, a tie, more than a tie */
          memset(&rates, 0, sizeof rates);
          for (uint32_t row = 0; row < HRI_GEMM_ROW_COUNT && v; row++) {
            rates.flops[other][row][1] = v == 1 ? 1.049e11 : 1.051e11;
            rates.flops[from.code[row][1]][row][1] = 1e11;
          }
          t = hri_gemm_table_fastest((hri_isa)level, &from, &rates);
          for (uint32_t row = 0; row < HRI_GEMM_ROW_COUNT; row++) {
            bool wins = v == 2 && hri_gemm_has((hri_isa)level, (hri_gemm_code)other, row);
            assert_int_equal(t.code[row][1], wins ? other : from.code[row][1]);
            assert_int_equal(t.code[row][0], from.code[row][0]);
          }
        }
      }
}

/* By kind and k alone, so that all cuts of one product agree: rows, columns of w, threads, packing, accumulation. Few
 * rows of FORWARD, which sum in an order of their own anyway, may differ. */
static void test_classes_do_not_see_the_cut(void **state) {
  static const int64_t ks[] = {1, 64, 127, 128, 511, 512, 4096}, cuts[] = {17, 64, 1000, 50304};
  (void)state;
  for (int kind = 0; kind < HRI_GEMM_KIND_COUNT; kind++)
    for (size_t k = 0; k < sizeof ks / sizeof *ks; k++)
      for (int v = 0; v < 16 * 16; v++) {
        hri_gemm_shape s = {.kind = (hri_gemm_kind)kind,
                            .type = HRI_REAL_BF16,
                            .out = v & 16 ? HRI_REAL_F32 : HRI_REAL_BF16,
                            .m = cuts[v & 3],
                            .n = cuts[v >> 2 & 3],
                            .k = ks[k],
                            .packed = v & 32,
                            .accumulate = v & 64,
                            .threads = 1 + (v & 7)},
                       pack = hri_gemm_pack_shape(&s);
        assert_int_equal(hri_gemm_row_of(&s), 1 + kind);
        assert_int_equal(hri_gemm_width_of(&s), k < 3 ? 0 : k < 5 ? 1 : 2);
        assert_true(hri_gemm_row_of(&pack) == hri_gemm_row_of(&s) && hri_gemm_width_of(&pack) == hri_gemm_width_of(&s));
      }
}

/* A table is nothing but its codes: bits, scratch and packed bytes of each class are those of the code when forced. */
static void test_a_table_computes_as_its_codes(void **state) {
  static const int64_t ks[] = {64, 300, 640};
  hri_isa own = processor_isa();
  hri_gemm_machine m = {.level = own, .table = hri_gemm_table_by(own, HRI_GEMM_FMA)};
  hri_gemm_cache *cache = cache_by(own, HRI_GEMM_AUTO), *forced[HRI_GEMM_CODE_COUNT];
  uint32_t codes_seen = 0;
  (void)state;
  for (int code = 0; code < HRI_GEMM_CODE_COUNT; code++)
    forced[code] = cache_by(own, (hri_gemm_provider)(HRI_GEMM_BY_FMA + code));
  for (uint32_t k = 0; k < HRI_GEMM_ROW_COUNT * HRI_GEMM_WIDTH_COUNT; k++)
    for (int code = (int)(k + k / HRI_GEMM_WIDTH_COUNT) % HRI_GEMM_CODE_COUNT, turn = 0; turn < HRI_GEMM_CODE_COUNT;
         turn++, code = (code + 1) % HRI_GEMM_CODE_COUNT)
      if (hri_gemm_has(own, (hri_gemm_code)code, k / HRI_GEMM_WIDTH_COUNT)) {
        m.table.code[k / HRI_GEMM_WIDTH_COUNT][k % HRI_GEMM_WIDTH_COUNT] = (uint8_t)code;
        break;
      }
  hri_gemm_cache_choose(cache, &m.table);
  for (uint32_t row = 0; row < HRI_GEMM_ROW_COUNT; row++)
    for (uint32_t width = 0; width < HRI_GEMM_WIDTH_COUNT; width++)
      for (int packed = 0; packed < (row ? 2 : 1); packed++) {
        hri_gemm_shape s = {.kind = (hri_gemm_kind)(row ? row - 1 : 0),
                            .type = HRI_REAL_BF16,
                            .out = row == 3 ? HRI_REAL_F32 : HRI_REAL_BF16,
                            .m = row ? 70 : 9,
                            .n = 210,
                            .k = ks[width],
                            .packed = packed};
        hri_gemm_code code = (hri_gemm_code)m.table.code[row][width];
        hri_gemm_decision a, b;
        problem p = problem_make(s);
        void *by_code = problem_run(&p, forced[code], 1);
        assert_non_null(by_code);
        for (int threads = 1; threads < 4; threads++) {
          void *by_table = problem_run(&p, cache, threads);
          assert_non_null(by_table);
          assert_memory_equal(by_table, by_code, p.c_bytes);
          guarded_free(by_table);
        }
        s.threads = 2;
        assert_int_equal(hri_gemm_decide(&m, &s, &a, NULL), HR_OK);
        assert_int_equal(hri_gemm_decide_for(own, code, &s, &b, NULL), HR_OK);
        assert_memory_equal(&a, &b, sizeof a);
        codes_seen |= 1u << code;
        guarded_free(by_code);
        problem_free(&p);
      }
  if (hri_isa_has(own, HRI_ISA_AVX512_BF16)) assert_true((codes_seen & 3) == 3);
  for (int code = 0; code < HRI_GEMM_CODE_COUNT; code++) hri_gemm_cache_destroy(forced[code]);
  hri_gemm_cache_destroy(cache);
}

/* Each provider computes what it is asked to where it can. */
static void test_who_computes(void **state) {
  hri_isa own = processor_isa();
  (void)state;
  for (int isa = 0; isa < HRI_ISA_COUNT; isa++)
    for (int v = 0; hri_isa_has(own, (hri_isa)isa) && v < HRI_GEMM_KIND_COUNT * TYPES_COUNT * PROVIDERS; v++) {
      types t = all_types[v / HRI_GEMM_KIND_COUNT % TYPES_COUNT];
      int provider = v / (HRI_GEMM_KIND_COUNT * TYPES_COUNT);
      hri_gemm_shape s = {.kind = (hri_gemm_kind)(v % HRI_GEMM_KIND_COUNT),
                          .type = t.type,
                          .out = t.out,
                          .m = 64,
                          .n = 96,
                          .k = 128,
                          .threads = 2};
      hri_gemm_cache *cache = cache_by((hri_isa)isa, (hri_gemm_provider)provider);
      bool bf16 = t.type == HRI_REAL_BF16,
           dot = bf16 && provider == HRI_GEMM_BY_DOT && hri_isa_has((hri_isa)isa, HRI_ISA_AVX512_BF16),
           tiles = bf16 && provider == HRI_GEMM_BY_TILES && hri_isa_has((hri_isa)isa, HRI_ISA_AMX);
      char expected[32];
      hri_gemm *gemm;
      hr_error error;
      (void)snprintf(expected, sizeof expected, "%s:%s",
                     dot     ? "dot"
                     : tiles ? "tiles"
                             : "fma",
                     hri_isa_name((hri_isa)isa));
      assert_int_equal(hri_gemm_prepare(cache, &s, &gemm, &error), HR_OK);
      if (provider != HRI_GEMM_AUTO) assert_string_equal(hri_gemm_implementation(gemm), expected);
      hri_gemm_cache_destroy(cache);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_level_needs_all_of_its_instructions),
      cmocka_unit_test(test_isa),
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_mixed),
      cmocka_unit_test(test_order_of_sums),
      cmocka_unit_test(test_order_of_emulated_tiles),
      cmocka_unit_test(test_narrow_sums),
      cmocka_unit_test(test_blocks_are_more_exact),
      cmocka_unit_test(test_parts_have_the_bits_of_the_whole),
      cmocka_unit_test(test_nonfinite),
      cmocka_unit_test(test_rounding_of_results),
      cmocka_unit_test(test_panels),
      cmocka_unit_test(test_same_bits_for_every_team),
      cmocka_unit_test(test_several_at_once),
      cmocka_unit_test(test_no_hidden_memory),
      cmocka_unit_test(test_refused_memory),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_many_shapes),
      cmocka_unit_test(test_the_table),
      cmocka_unit_test(test_tables_as_text),
      cmocka_unit_test(test_the_fastest_wins_but_for_ties),
      cmocka_unit_test(test_classes_do_not_see_the_cut),
      cmocka_unit_test(test_a_table_computes_as_its_codes),
      cmocka_unit_test(test_who_computes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
