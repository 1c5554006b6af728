/* Matrix products: values against a double reference, exact scratch, the same bits for every team, no hidden memory, and
 * clean refusals. HEADROOM_GEMM_SWEEP=n sets the number of random shapes of the sweep over teams (40). */
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

#include <omp.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/gemm.h"

/* ---- an allocator that counts: this program's malloc stands before the C library's, also for shared libraries ---- */

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_COUNTING 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
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
  while (bytes > largest && !atomic_compare_exchange_weak(&largest_allocation, &largest, bytes)) {
  }
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

enum { GUARD = 64, TEAM_COUNT = 6 };
static const int teams[TEAM_COUNT] = {1, 2, 3, 4, 8, 16};
static const uint32_t guard_word = 0x7fc0beefu; /* a NaN */

static hri_isa processor_isa(void) {
  hri_isa isa;
  hr_error error;
  assert_int_equal(hri_cpu_isa_choose(getenv("HEADROOM_ISA"), &isa, &error), HR_OK);
  return isa;
}

static void fill(float *p, int64_t count, uint64_t stream) {
  for (int64_t i = 0; i < count; i += 4) {
    uint32_t words[4];
    hri_philox(7, stream, (uint64_t)i, words);
    for (int64_t j = i; j < count && j < i + 4; j++) p[j] = (float)(int32_t)words[j - i] * 0x1p-31f;
  }
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
  float *a, *b, *bias, *start; /* start: c before the call */
} problem;

static problem problem_make(hri_gemm_shape s) {
  problem p = {.shape = s};
  p.a_count = s.kind == HRI_GEMM_FORWARD ? s.m * s.k : s.m * s.n;
  p.b_count = s.kind == HRI_GEMM_DW ? s.m * s.k : s.n * s.k;
  p.c_count = s.kind == HRI_GEMM_FORWARD ? s.m * s.n : s.kind == HRI_GEMM_DX ? s.m * s.k : s.n * s.k;
  p.a = malloc((size_t)p.a_count * 4);
  p.b = malloc((size_t)p.b_count * 4);
  p.bias = malloc((size_t)s.n * 4);
  p.start = malloc((size_t)p.c_count * 4);
  fill(p.a, p.a_count, 1);
  fill(p.b, p.b_count, 2);
  fill(p.bias, s.n, 3);
  fill(p.start, p.c_count, 4);
  return p;
}
static void problem_free(problem *p) {
  free(p->a);
  free(p->b);
  free(p->bias);
  free(p->start);
}

/* Runs it with scratch of exactly the stated size, full of NaN; c (guarded) is the caller's to free. */
static float *problem_run(const problem *p, hri_gemm_cache *cache, int threads) {
  hri_gemm_shape s = p->shape;
  float *c = guarded_alloc((uint64_t)p->c_count * 4);
  uint64_t bytes, again;
  hri_gemm *gemm, *same;
  uint32_t *scratch;
  hr_error error;
  s.threads = threads;
  assert_int_equal(hri_gemm_workspace(cache, &s, &bytes, &error), HR_OK);
  assert_int_equal(hri_gemm_prepare(cache, &s, &gemm, &error), HR_OK);
  assert_int_equal(hri_gemm_prepare(cache, &s, &same, &error), HR_OK);
  assert_ptr_equal(gemm, same);
  assert_int_equal(hri_gemm_workspace(cache, &s, &again, &error), HR_OK);
  assert_int_equal(bytes, again);
  scratch = guarded_alloc(bytes);
  for (uint64_t i = 0; i < bytes / 4; i++) scratch[i] = guard_word;
  for (int64_t i = 0; i < p->c_count; i++)
    if (s.accumulate) c[i] = p->start[i];
    else memcpy(&c[i], &guard_word, 4);
  assert_int_equal(hri_gemm_run(gemm, p->a, p->b, s.bias ? p->bias : NULL, c, bytes ? scratch : NULL, &error), HR_OK);
  guarded_check(scratch, bytes);
  guarded_check(c, (uint64_t)p->c_count * 4);
  guarded_free(scratch);
  return c;
}

/* ---- values ---- */

/* Element (r, j) of the result in double and in plain fp32. */
static void reference(const problem *p, int64_t r, int64_t j, double *exact, float *plain) {
  const hri_gemm_shape *s = &p->shape;
  int64_t depth = s->kind == HRI_GEMM_FORWARD ? s->k : s->kind == HRI_GEMM_DX ? s->n : s->m;
  int64_t columns = s->kind == HRI_GEMM_FORWARD ? s->n : s->k;
  *exact = s->accumulate ? p->start[r * columns + j] : 0;
  *plain = s->accumulate ? p->start[r * columns + j] : 0;
  for (int64_t i = 0; i < depth; i++) {
    float a = s->kind == HRI_GEMM_FORWARD ? p->a[r * s->k + i] : s->kind == HRI_GEMM_DX ? p->a[r * s->n + i] : p->a[i * s->n + r];
    float b = s->kind == HRI_GEMM_FORWARD ? p->b[j * s->k + i] : p->b[i * s->k + j];
    *exact += (double)a * b;
    *plain += a * b;
  }
  if (!s->bias) return;
  *exact += p->bias[j];
  *plain += p->bias[j];
}

/* Holds a result to 4 times the error of plain fp32 sums, or of one rounding of the largest value. */
static void check_values(const problem *p, const float *c) {
  int64_t columns = p->shape.kind == HRI_GEMM_FORWARD ? p->shape.n : p->shape.k, rows = p->c_count / columns;
  double plain_error = 0, own_error = 0, largest = 0;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < columns; j++) {
      double exact;
      float plain;
      reference(p, r, j, &exact, &plain);
      assert_true(isfinite(c[r * columns + j]));
      plain_error = fmax(plain_error, fabs(plain - exact));
      own_error = fmax(own_error, fabs(c[r * columns + j] - exact));
      largest = fmax(largest, fabs(exact));
    }
  if (own_error > 4 * fmax(plain_error, largest * FLT_EPSILON / 2))
    fail_msg("kind %d, %lld x %lld x %lld, bias %d, accumulate %d: error %g, plain fp32 %g", p->shape.kind, (long long)p->shape.m,
             (long long)p->shape.n, (long long)p->shape.k, p->shape.bias, p->shape.accumulate, own_error, plain_error);
}

static const int64_t value_shapes[][3] = {{1, 1, 1},  {1, 7, 3},    {2, 33, 17},  {4, 64, 100}, {5, 5, 5},   {14, 32, 256}, {15, 33, 257},
                                          {3, 1, 40}, {40, 3, 1},   {1, 300, 70}, {67, 1, 129}, {129, 65, 31}, {96, 96, 64}, {350, 40, 300},
                                          {1921, 9, 17}, {4100, 20, 6}, {6, 2100, 30}, {30, 6, 2100}};

static void values_of(hri_gemm_cache *cache, int threads) {
  for (size_t i = 0; i < sizeof value_shapes / sizeof *value_shapes; i++)
    for (int variant = 0; variant < 8; variant++) {
      hri_gemm_shape s = {.kind = variant < 4 ? HRI_GEMM_FORWARD : variant < 6 ? HRI_GEMM_DX : HRI_GEMM_DW, .m = value_shapes[i][0],
                          .n = value_shapes[i][1], .k = value_shapes[i][2], .accumulate = variant & 1, .bias = variant == 2 || variant == 3};
      problem p = problem_make(s);
      float *c = problem_run(&p, cache, threads);
      check_values(&p, c);
      guarded_free(c);
      problem_free(&p);
    }
}

static void test_values(void **state) {
  hri_gemm_options portable = {.provider = HRI_GEMM_PORTABLE};
  hri_gemm_cache *cache;
  hr_error error;
  (void)state;
  assert_int_equal(hri_gemm_cache_create(processor_isa(), &cache, &error), HR_OK);
  values_of(cache, 2);
  hri_gemm_cache_destroy(cache);
  for (int isa = 0; isa <= (int)processor_isa(); isa++) {
    assert_int_equal(hri_gemm_cache_create_with((hri_isa)isa, &portable, &cache, &error), HR_OK);
    values_of(cache, 1 + isa);
    hri_gemm_cache_destroy(cache);
  }
}

/* NaN and infinity in an operand reach exactly the elements that depend on them. */
static void test_nonfinite(void **state) {
  for (int provider = 0; provider < 2; provider++) {
    hri_gemm_options options = {.provider = (hri_gemm_provider)provider};
    problem p = problem_make((hri_gemm_shape){.kind = HRI_GEMM_FORWARD, .m = 20, .n = 40, .k = 30});
    hri_gemm_cache *cache;
    hr_error error;
    float *c;
    (void)state;
    assert_int_equal(hri_gemm_cache_create_with(processor_isa(), &options, &cache, &error), HR_OK);
    p.a[3 * 30 + 7] = NAN;
    p.b[5 * 30 + 29] = INFINITY;
    c = problem_run(&p, cache, 2);
    for (int64_t r = 0; r < 20; r++)
      for (int64_t j = 0; j < 40; j++) assert_int_equal(!isfinite(c[r * 40 + j]), r == 3 || j == 5);
    guarded_free(c);
    problem_free(&p);
    hri_gemm_cache_destroy(cache);
  }
}

/* ---- the same bits for every team ---- */

static void same_bits(hri_gemm_cache *cache, int64_t m, int64_t n, int64_t k) {
  for (int variant = 0; variant < 6; variant++) {
    hri_gemm_shape s = {.kind = (hri_gemm_kind)(variant / 2), .m = m, .n = n, .k = k, .accumulate = variant & 1, .bias = variant < 2};
    problem p = problem_make(s);
    float *first = problem_run(&p, cache, teams[0]);
    for (int i = 1; i < TEAM_COUNT; i++) {
      float *c = problem_run(&p, cache, teams[i]);
      if (memcmp(c, first, (size_t)p.c_count * 4) != 0)
        fail_msg("kind %d, %lld x %lld x %lld, accumulate %d: %d threads differ from 1", s.kind, (long long)m, (long long)n, (long long)k,
                 s.accumulate, teams[i]);
      guarded_free(c);
    }
    guarded_free(first);
    problem_free(&p);
  }
}

/* Small, middling, round and long sides alike, of at most `limit` multiply-adds. */
static void random_sides(uint64_t *counter, int64_t sides[3], int64_t limit) {
  static const int64_t marks[] = {512, 768, 1920, 1921, 2047, 2048, 2049, 3072, 4096, 8192, 16384, 20000, 32000, 50304};
  do
    for (int i = 0; i < 3; i++) {
      uint32_t w[4];
      hri_philox(11, 0, (*counter)++, w);
      sides[i] = w[0] % 4 == 0 ? 1 + w[1] % 64 : w[0] % 4 == 1 ? 1 + w[1] % 600 : w[0] % 4 == 2 ? 16 * (1 + w[1] % 128) : marks[w[1] % 14];
    }
  while (sides[0] * sides[1] * sides[2] > limit);
}

static void test_same_bits_for_every_team(void **state) {
  static const int64_t chosen[][3] = {{8192, 64, 64}, {64, 64, 8192}, {64, 8192, 64}, {2048, 128, 192}, {2304, 96, 40}, {4096, 51, 41},
                                      {32, 50304, 16}, {50304, 16, 16}, {24, 24, 32000}, {1, 4096, 64}, {1, 64, 4096}, {4096, 1, 64}, {4096, 64, 1}};
  const char *text = getenv("HEADROOM_GEMM_SWEEP");
  long count = text ? atol(text) : 40;
  uint64_t counter = 0;
  (void)state;
  for (int provider = 0; provider < 2; provider++) {
    hri_gemm_options options = {.provider = (hri_gemm_provider)provider, .max_prepared = UINT32_MAX};
    hri_gemm_cache *cache;
    hr_error error;
    assert_int_equal(hri_gemm_cache_create_with(processor_isa(), &options, &cache, &error), HR_OK);
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) same_bits(cache, chosen[i][0], chosen[i][1], chosen[i][2]);
    for (long i = 0; i < (provider == HRI_GEMM_AUTO ? count : count / 4); i++) {
      int64_t sides[3];
      random_sides(&counter, sides, 20000000);
      same_bits(cache, sides[0], sides[1], sides[2]);
    }
    hri_gemm_cache_destroy(cache);
  }
}

/* The state of OpenMP around a call neither matters nor changes. */
static void test_openmp_state(void **state) {
  int before = omp_get_max_threads(), wrong = 0;
  problem p = problem_make((hri_gemm_shape){.kind = HRI_GEMM_DW, .m = 2100, .n = 48, .k = 80});
  hri_gemm_cache *cache;
  hr_error error;
  float *first, *second;
  (void)state;
  assert_int_equal(hri_gemm_cache_create(processor_isa(), &cache, &error), HR_OK);
  first = problem_run(&p, cache, 3);
  omp_set_dynamic(1);
  omp_set_num_threads(7);
  second = problem_run(&p, cache, 3);
  assert_int_equal(omp_get_max_threads(), 7);
  assert_int_equal(omp_get_dynamic(), 1);
  omp_set_dynamic(0);
  omp_set_num_threads(before);
  assert_memory_equal(first, second, (size_t)p.c_count * 4);
  guarded_free(first);
  guarded_free(second);
  problem_free(&p);

  /* One thread each, different shapes, inside a parallel region; a team there must not give a wrong result. */
  {
    problem small[4];
    hri_gemm *gemms[4], *team;
    float *c[4], *expected[4];
    void *scratch[4];
    for (int i = 0; i < 4; i++) {
      hri_gemm_shape s = {.kind = HRI_GEMM_FORWARD, .m = 30 + i, .n = 50, .k = 64, .threads = 1};
      uint64_t bytes;
      small[i] = problem_make(s);
      expected[i] = problem_run(&small[i], cache, 1);
      c[i] = malloc((size_t)small[i].c_count * 4);
      assert_int_equal(hri_gemm_workspace(cache, &s, &bytes, &error), HR_OK);
      assert_int_equal(hri_gemm_prepare(cache, &s, &gemms[i], &error), HR_OK);
      scratch[i] = aligned_alloc(64, hri_round_up(bytes + 1, 64));
      s.threads = 2;
      if (i == 0) assert_int_equal(hri_gemm_prepare(cache, &s, &team, &error), HR_OK);
    }
#pragma omp parallel num_threads(4) reduction(+ : wrong)
    {
      int i = omp_get_thread_num();
      for (int times = 0; times < 20; times++) {
        wrong += hri_gemm_run(gemms[i], small[i].a, small[i].b, NULL, c[i], scratch[i], NULL) != HR_OK;
        wrong += memcmp(c[i], expected[i], (size_t)small[i].c_count * 4) != 0;
      }
    }
    assert_int_equal(wrong, 0);
    if (strncmp(hri_gemm_implementation(team), "brg", 3) == 0) {
      hr_status refused = HR_OK;
#pragma omp parallel num_threads(2)
#pragma omp single
      refused = hri_gemm_run(team, small[0].a, small[0].b, NULL, c[0], NULL, NULL);
      assert_int_equal(refused, HR_ERROR_INTERNAL);
    }
    for (int i = 0; i < 4; i++) {
      guarded_free(expected[i]);
      free(c[i]);
      free(scratch[i]);
      problem_free(&small[i]);
    }
  }
  hri_gemm_cache_destroy(cache);
}

/* ---- memory ---- */

/* Shapes of GPT-2, Llama and their heads with few rows: which code serves them does not depend on how many. */
static void test_no_hidden_memory(void **state) {
#if HAVE_COUNTING
  static const int64_t shapes[][3] = {{256, 2304, 768}, {256, 768, 3072}, {32, 50304, 256}, {2500, 192, 256}, {64, 576, 1536}, {37, 51, 77},
                                      {1, 768, 768},    {8, 2048, 512},   {24, 24, 32000}};
  void *volatile kept; /* or the compiler drops the call */
  hri_gemm_cache *cache;
  hr_error error;
  (void)state;
  assert_int_equal(hri_gemm_cache_create(processor_isa(), &cache, &error), HR_OK);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int variant = 0; variant < 6; variant++) {
      hri_gemm_shape s = {.kind = (hri_gemm_kind)(variant / 2), .m = shapes[i][0], .n = shapes[i][1], .k = shapes[i][2],
                          .accumulate = variant & 1, .bias = variant < 2, .threads = 2};
      problem p = problem_make(s);
      float *c = problem_run(&p, cache, 2); /* the first call may set threads up */
      hri_gemm *gemm;
      uint64_t bytes, live = hri_mem_live_bytes(), calls = hri_mem_allocation_count();
      void *scratch;
      assert_int_equal(hri_gemm_prepare(cache, &s, &gemm, &error), HR_OK);
      assert_int_equal(hri_gemm_workspace(cache, &s, &bytes, &error), HR_OK);
      scratch = aligned_alloc(64, hri_round_up(bytes + 1, 64));
      atomic_store(&largest_allocation, 0);
      atomic_store(&counting, true);
      assert_int_equal(hri_gemm_run(gemm, p.a, p.b, p.bias, c, scratch, &error), HR_OK);
      atomic_store(&counting, false);
      if (atomic_load(&largest_allocation) > 4096)
        fail_msg("%s: kind %d, %lld x %lld x %lld allocates %zu bytes", hri_gemm_implementation(gemm), s.kind, (long long)s.m,
                 (long long)s.n, (long long)s.k, atomic_load(&largest_allocation));
      assert_int_equal(hri_mem_live_bytes(), live);
      assert_int_equal(hri_mem_allocation_count(), calls);
      guarded_free(c);
      free(scratch);
      problem_free(&p);
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
    status = hri_gemm_cache_create(processor_isa(), &cache, &error);
    if (status == HR_OK) status = hri_gemm_workspace(cache, &s, &bytes, &error);
    if (status == HR_OK) status = hri_gemm_prepare(cache, &s, &gemm, &error);
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
  hri_gemm_options options = {.max_prepared = 2};
  hri_gemm_cache *cache;
  hri_gemm *gemm;
  uint64_t bytes;
  hr_error error;
  hri_gemm_shape s;
  (void)state;
  assert_int_equal(hri_gemm_cache_create_with(processor_isa(), &options, &cache, &error), HR_OK);
  for (int field = 0; field < 7; field++) {
    s = good;
    if (field == 0) s.m = 0;
    if (field == 1) s.n = -1;
    if (field == 2) s.k = 0;
    if (field == 3) s.threads = 0;
    if (field == 4) s.kind = HRI_GEMM_DX, s.bias = true;
    if (field == 5) s.kind = HRI_GEMM_KIND_COUNT;
    if (field == 6) s.type = (hri_real)7;
    assert_int_equal(hri_gemm_workspace(cache, &s, &bytes, &error), HR_ERROR_INTERNAL);
  }
  s = good;
  s.k = INT64_MAX / 2;
  assert_int_equal(hri_gemm_workspace(cache, &s, &bytes, &error), HR_ERROR_USAGE);
  s = good;
  s.m = INT32_MAX; /* too large for a library with 32-bit sizes, not for planning */
  s.k = 4;
  assert_int_equal(hri_gemm_workspace(cache, &s, &bytes, &error), HR_OK);
  for (int i = 0; i < 2; i++) {
    s = good;
    s.m += i;
    assert_int_equal(hri_gemm_prepare(cache, &s, &gemm, &error), HR_OK);
  }
  s.m = 100;
  assert_int_equal(hri_gemm_workspace(cache, &s, &bytes, &error), HR_OK); /* asking never fills it */
  assert_int_equal(hri_gemm_prepare(cache, &s, &gemm, &error), HR_ERROR_USAGE);
  assert_int_equal(hri_gemm_prepare(cache, &good, &gemm, &error), HR_OK);
  assert_int_equal(hri_gemm_prepared_count(cache), 2);
  hri_gemm_cache_destroy(cache);
  hri_gemm_cache_destroy(NULL);
}

/* Many shapes: the table grows and still finds each. */
static void test_many_shapes(void **state) {
  hri_gemm_options options = {.provider = HRI_GEMM_PORTABLE};
  hri_gemm *gemms[1000];
  hri_gemm_cache *cache;
  hr_error error;
  (void)state;
  assert_int_equal(hri_gemm_cache_create_with(HRI_ISA_BASE, &options, &cache, &error), HR_OK);
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < 1000; i++) {
      hri_gemm_shape s = {.kind = (hri_gemm_kind)(i % 3), .m = 1 + i / 3, .n = 2, .k = 3, .threads = 1};
      hri_gemm *gemm;
      assert_int_equal(hri_gemm_prepare(cache, &s, &gemm, &error), HR_OK);
      if (pass == 0) gemms[i] = gemm;
      assert_ptr_equal(gemm, gemms[i]);
    }
  assert_int_equal(hri_gemm_prepared_count(cache), 1000);
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
  assert_false(hri_isa_parse("avx", &isa));
  assert_false(hri_isa_parse(NULL, &isa));
  assert_int_equal(hri_cpu_isa_choose("sse9", &isa, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "sse9"));
  assert_int_equal(hri_cpu_isa_choose("", &isa, &error), HR_OK);
  assert_true(strlen(hri_gemm_library_text()) > 0);
#if defined(HRI_HAVE_ONEDNN)
  assert_int_equal(strncmp(hri_gemm_library_text(), "oneDNN ", 7), 0);
#endif
}

/* A cache below the level at which the library already runs keeps to its own level. Last: the library was used above. */
static void test_lower_isa(void **state) {
  problem p = problem_make((hri_gemm_shape){.kind = HRI_GEMM_FORWARD, .m = 32, .n = 32, .k = 32, .threads = 1});
  hri_gemm_cache *cache;
  hri_gemm *gemm;
  hr_error error;
  (void)state;
  assert_int_equal(hri_gemm_cache_create(HRI_ISA_BASE, &cache, &error), HR_OK);
  assert_int_equal(hri_gemm_prepare(cache, &p.shape, &gemm, &error), HR_OK);
  assert_string_equal(hri_gemm_implementation(gemm), "portable:base");
  hri_gemm_cache_destroy(cache);
  problem_free(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_isa),
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_nonfinite),
      cmocka_unit_test(test_same_bits_for_every_team),
      cmocka_unit_test(test_openmp_state),
      cmocka_unit_test(test_no_hidden_memory),
      cmocka_unit_test(test_refused_memory),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_many_shapes),
      cmocka_unit_test(test_lower_isa),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
