/* Optimizer steps beside an in-place update of the same streams.
 *
 *   bench_optim [part of a name of instruction set, size or step, default all]
 *
 * A step reads the gradient, reads and writes weight (or its two halves) and moments, and writes the fp16 copy of the
 * weight if there is one. GB/s count each of these once. The yardstick moves the very same arrays in the same way (x = x + (g & 0), the
 * copy cut from w) with next to no arithmetic; both are timed in turns, so that neighbours disturb both alike, and the
 * best of several turns counts. Arrays stand on huge pages, as in the arena of a run.
 *
 * "8-bit": steps with states of 8 bits beside the same step in fp32, in turns too, where the fp32 states are 1 GiB (AdamW)
 * or half of it (Lion); "factors": Adafactor of a matrix of 4,096 columns beside AdamW. program/optimizer.h has its
 * `effort` of what these say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ops/cpu.h"
#include "ops/move/random.h"
#include "ops/scratch.h"
#include "support/team.h"

enum { TURNS = 9, UNIT = 64 /* elements that fill whole vectors in every type */ };

typedef uint32_t line __attribute__((vector_size(64), may_alias));

typedef struct step {
  const char *name;
  int states; /* moments: 2 AdamW, 1 momentum, 0 plain SGD */
  hri_real w, moment, gradient;
  bool split, copy; /* bf16 weights with the low halves of their masters, fp32 masters with their fp16 copies */
} step;

static const step steps[] = {
    {"adamw f32", 2, HRI_REAL_F32, HRI_REAL_F32, HRI_REAL_F32, false, false},
    {"adamw f32, g bf16", 2, HRI_REAL_F32, HRI_REAL_F32, HRI_REAL_BF16, false, false},
    {"adamw f32, mv bf16", 2, HRI_REAL_F32, HRI_REAL_BF16, HRI_REAL_F32, false, false},
    {"adamw f32, g mv bf16", 2, HRI_REAL_F32, HRI_REAL_BF16, HRI_REAL_BF16, false, false},
    {"adamw master in halves", 2, HRI_REAL_BF16, HRI_REAL_F32, HRI_REAL_F32, true, false},
    {"adamw master + copy", 2, HRI_REAL_F32, HRI_REAL_F32, HRI_REAL_F32, false, true},
    {"adamw bf16, g mv f32", 2, HRI_REAL_BF16, HRI_REAL_F32, HRI_REAL_F32, false, false},
    {"adamw bf16, mv f32", 2, HRI_REAL_BF16, HRI_REAL_F32, HRI_REAL_BF16, false, false},
    {"adamw bf16, g f32", 2, HRI_REAL_BF16, HRI_REAL_BF16, HRI_REAL_F32, false, false},
    {"adamw bf16", 2, HRI_REAL_BF16, HRI_REAL_BF16, HRI_REAL_BF16, false, false},
    {"momentum f32", 1, HRI_REAL_F32, HRI_REAL_F32, HRI_REAL_F32, false, false},
    {"momentum bf16", 1, HRI_REAL_BF16, HRI_REAL_BF16, HRI_REAL_BF16, false, false},
    {"sgd f32", 0, HRI_REAL_F32, HRI_REAL_F32, HRI_REAL_F32, false, false},
    {"sgd bf16", 0, HRI_REAL_BF16, HRI_REAL_F32, HRI_REAL_BF16, false, false},
};

typedef struct arrays {
  void *w, *m, *v, *g, *beside;
  double *partials;
  int64_t n; /* a multiple of UNIT */
} arrays;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double bytes_per_element(const step *s) {
  return 2.0 * (double)hri_real_bytes(s->w) + 2.0 * s->states * (double)hri_real_bytes(s->moment) +
         (double)hri_real_bytes(s->gradient) + (s->split ? 4.0 : 0.0) + (s->copy ? 2.0 : 0.0);
}

/* ---- the yardstick: one function per vector width, one loop per combination of sizes ---- */

#define INLINE static inline __attribute__((always_inline))

/* Lines of a unit of elements: 4 of fp32, 2 of bf16. */
INLINE void add_unit(line *x, int lines, const line *g, int gradient_lines, uint32_t mask) {
  for (int j = 0; j < lines; j++) x[j] += g[j % gradient_lines] & mask;
}

INLINE void update_units(const arrays *a, int64_t begin, int64_t end, int states, int w, int moment, int gradient,
                         bool split, bool copy, uint32_t mask) {
  for (int64_t unit = begin; unit < end; unit++) {
    line *weight = (line *)a->w + unit * w;
    const line *g = (const line *)a->g + unit * gradient;
    if (states > 0) add_unit((line *)a->m + unit * moment, moment, g, gradient, mask);
    if (states > 1) add_unit((line *)a->v + unit * moment, moment, g, gradient, mask);
    add_unit(weight, w, g, gradient, mask);
    if (split) add_unit((line *)a->beside + unit * 2, 2, g, gradient, mask);
    for (int j = 0; copy && j < 2; j++)
      ((line *)a->beside)[unit * 2 + j] = weight[2 * j] >> 16 | (weight[2 * j + 1] & 0xFFFF0000u);
  }
}

INLINE void with_gradient(const arrays *a, const step *s, int64_t begin, int64_t end, int states, int w, int moment,
                          uint32_t mask) {
  if (s->gradient == HRI_REAL_BF16) update_units(a, begin, end, states, w, moment, 2, false, false, mask);
  else update_units(a, begin, end, states, w, moment, 4, false, false, mask);
}
INLINE void with_moment(const arrays *a, const step *s, int64_t begin, int64_t end, int states, int w, uint32_t mask) {
  if (s->moment == HRI_REAL_BF16) with_gradient(a, s, begin, end, states, w, 2, mask);
  else with_gradient(a, s, begin, end, states, w, 4, mask);
}
INLINE void with_weight(const arrays *a, const step *s, int64_t begin, int64_t end, int states, uint32_t mask) {
  if (s->split) update_units(a, begin, end, states, 2, 4, 4, true, false, mask);
  else if (s->copy) update_units(a, begin, end, states, 4, 4, 4, false, true, mask);
  else if (s->w == HRI_REAL_BF16) with_moment(a, s, begin, end, states, 2, mask);
  else with_moment(a, s, begin, end, states, 4, mask);
}
INLINE void plain_range(const arrays *a, const step *s, int64_t begin, int64_t end, uint32_t mask) {
  if (s->states == 2) with_weight(a, s, begin, end, 2, mask);
  else if (s->states == 1) with_weight(a, s, begin, end, 1, mask);
  else with_weight(a, s, begin, end, 0, mask);
}

typedef void plain_update(const arrays *a, const step *s, int64_t begin, int64_t end, uint32_t mask);
static void plain_base(const arrays *a, const step *s, int64_t begin, int64_t end, uint32_t mask) {
  plain_range(a, s, begin, end, mask);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void plain_avx2(const arrays *a, const step *s, int64_t begin, int64_t end,
                                                       uint32_t mask) {
  plain_range(a, s, begin, end, mask);
}
__attribute__((target("avx512f"))) static void plain_avx512(const arrays *a, const step *s, int64_t begin, int64_t end,
                                                            uint32_t mask) {
  plain_range(a, s, begin, end, mask);
}
#endif

static volatile uint32_t zero_mask; /* 0, but the compiler does not know */

typedef struct plain_job {
  plain_update *plain;
  const arrays *a;
  const step *s;
} plain_job;

static void plain_units(void *context, int64_t begin, int64_t end, int thread) {
  const plain_job *job = context;
  (void)thread;
  job->plain(job->a, job->s, begin, end, zero_mask);
}

static void run_plain(plain_update *plain, const arrays *a, const step *s, int threads) {
  plain_job job = {.plain = plain, .a = a, .s = s};
  hri_team_each(team_of(threads), a->n / UNIT, 1, plain_units, &job);
}

/* ---- measuring ---- */

static void run_step(const hri_cpu_kernels *k, const arrays *a, const step *s, int threads) {
  hri_update_args u = {.n = a->n,
                       .w = a->w,
                       .w_real = s->w,
                       .low = s->split ? a->beside : NULL,
                       .copy = s->copy ? a->beside : NULL,
                       .state_real = s->moment,
                       .g = a->g,
                       .gradient_real = s->gradient,
                       .rounding = {.seed = 1, .step = 10, .site = 3},
                       .team = team_of(threads)};
  hri_update_numbers adamw = {.number = {0.9, 0.999, 1e-8},
                              .learning_rate = 1e-4,
                              .weight_decay = 0.01,
                              .gradient_scale = 1,
                              .t = 10};
  hri_update_numbers sgd = {.number = {0.9}, .learning_rate = 1e-4, .weight_decay = 0.01, .gradient_scale = 1, .t = 10};
  if (s->states > 0) u.state[0] = a->m;
  if (s->states > 1) u.state[1] = a->v;
  if (s->states == 2) k->update[HR_OPTIMIZER_ADAMW](&u, &adamw);
  else k->update[s->states ? HR_OPTIMIZER_MOMENTUM : HR_OPTIMIZER_SGD](&u, &sgd);
}

static void fill(void *x, int64_t n, hri_real real, bool square, uint64_t stream) {
  enum { PIECE = 4096 };
  float piece[PIECE];
  for (int64_t i = 0; i < n; i += PIECE) {
    int64_t count = n - i < PIECE ? n - i : PIECE;
    hri_fill_normal(piece, count, 0.1, 1, stream, i, NULL);
    for (int64_t j = 0; j < count; j++) {
      float value = square ? piece[j] * piece[j] : piece[j];
      if (real == HRI_REAL_BF16) ((hri_bf16 *)x)[i + j] = hri_bf16_round(value);
      else ((float *)x)[i + j] = value;
    }
  }
}

static void measure_step(const char *isa, const hri_cpu_kernels *k, plain_update *plain, const arrays *a, const step *s,
                         int threads) {
  double best = 1e9, plain_best = 1e9, gigabytes = bytes_per_element(s) * (double)a->n * 1e-9;
  fill(a->w, a->n, s->w, false, 1);
  fill(a->m, a->n, s->moment, false, 2);
  fill(a->v, a->n, s->moment, true, 3);
  fill(a->g, a->n, s->gradient, false, 4);
  for (int turn = 0; turn < TURNS; turn++) {
    double start = now(), middle, end;
    run_plain(plain, a, s, threads);
    middle = now();
    run_step(k, a, s, threads);
    end = now();
    plain_best = middle - start < plain_best ? middle - start : plain_best;
    best = end - middle < best ? end - middle : best;
  }
  printf("%-7s %9lld x %d  %-32s %4.0f B %7.1f GB/s  %4.0f %% of in-place update (%.1f)\n", isa, (long long)a->n,
         threads, s->name, bytes_per_element(s), gigabytes / best, 100.0 * plain_best / best, gigabytes / plain_best);
}

static void measure_norm(const char *isa, const hri_cpu_kernels *k, const arrays *a, hri_real real, int threads) {
  double best = 1e9;
  fill(a->g, a->n, real, false, 4);
  for (int turn = 0; turn < TURNS; turn++) {
    double start = now(), time;
    k->square_sum(a->partials, a->g, real, a->n, team_of(threads));
    time = now() - start;
    best = time < best ? time : best;
  }
  printf("%-7s %9lld x %d  %-32s %4d B %7.1f GB/s\n", isa, (long long)a->n, threads,
         real == HRI_REAL_BF16 ? "square sum, g bf16" : "square sum, g f32", (int)hri_real_bytes(real),
         (double)hri_real_bytes(real) * (double)a->n * 1e-9 / best);
}

/* ---- states of 8 bits beside fp32 ---- */

enum { MANY = 1 << 27 };

typedef struct eight {
  float *w, *m, *v, *g;
  uint8_t *codes[2];
  float *scales[2];
} eight;

static double one_eight(const hri_cpu_kernels *k, const eight *e, hr_optimizer optimizer, int threads, double best) {
  static const hri_update_numbers numbers = {.number = {0.9, 0.999, 1e-8},
                                             .learning_rate = 1e-4,
                                             .weight_decay = 0.01,
                                             .gradient_scale = 1,
                                             .t = 10},
                                  factored = {.number = {-0.8, 0x1p-23, 1e-3, 1},
                                              .learning_rate = 1e-2,
                                              .gradient_scale = 1,
                                              .t = 10,
                                              .columns = 4096};
  hri_update_args u = {.n = MANY, .w = e->w, .g = e->g, .state = {e->m, e->v}, .team = team_of(threads)};
  double start = now(), time;
  if (optimizer == HR_OPTIMIZER_ADAMW8BIT)
    memcpy(u.state, (void *[]){e->codes[0], e->codes[1], e->scales[0], e->scales[1]}, sizeof u.state);
  if (optimizer == HR_OPTIMIZER_LION8BIT) memcpy(u.state, (void *[]){e->codes[0], e->scales[0]}, 2 * sizeof(void *));
  k->update[optimizer](&u, optimizer == HR_OPTIMIZER_ADAFACTOR ? &factored : &numbers);
  time = now() - start;
  return time < best ? time : best;
}

static void compare_eight(const char *isa, const hri_cpu_kernels *k, const eight *e, hr_optimizer wide,
                          hr_optimizer narrow, int threads) {
  double best = 1e9, wide_best = 1e9;
  fill(e->w, MANY, HRI_REAL_F32, false, 1);
  fill(e->g, MANY, HRI_REAL_F32, false, 4);
  memset(e->m, 0, (size_t)MANY * 4);
  memset(e->v, 0, (size_t)MANY * 4);
  for (int turn = 0; turn < TURNS; turn++) {
    wide_best = one_eight(k, e, wide, threads, wide_best);
    best = one_eight(k, e, narrow, threads, best);
  }
  printf("%-7s %9d x %d  %s: %-9s %6.2f ns, %-6s %6.2f ns per element: %.2f x\n", isa, MANY, threads,
         narrow == HR_OPTIMIZER_ADAFACTOR ? "factors" : "8-bit", hr_optimizer_name(narrow), 1e9 * best / MANY,
         hr_optimizer_name(wide), 1e9 * wide_best / MANY, best / wide_best);
}

static bool wanted(const char *only, const char *isa, const char *size, const char *name) {
  return !only || strstr(isa, only) || strstr(size, only) || strstr(name, only);
}

static void measure(const char *isa, const hri_cpu_kernels *k, plain_update *plain, arrays *a, const char *only) {
  /* 16M; the embedding, an MLP matrix and the attention's input matrix of GPT-2 124M */
  static const int64_t sizes[] = {1 << 24, 50304 * 768, 3072 * 768, 2304 * 768};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char size[32];
    a->n = sizes[i];
    (void)snprintf(size, sizeof size, "%lld", (long long)a->n);
    for (int threads = 1; threads <= 2; threads++) {
      for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
        if (wanted(only, isa, size, steps[s].name)) measure_step(isa, k, plain, a, &steps[s], threads);
      if (!wanted(only, isa, size, "square sum")) continue;
      measure_norm(isa, k, a, HRI_REAL_F32, threads);
      measure_norm(isa, k, a, HRI_REAL_BF16, threads);
    }
  }
}

static void measure_eight(const char *isa, const hri_cpu_kernels *k, const eight *e, const char *only) {
  for (int threads = 1; threads <= 2; threads++) {
    if (wanted(only, isa, "134217728", "factors"))
      compare_eight(isa, k, e, HR_OPTIMIZER_ADAMW, HR_OPTIMIZER_ADAFACTOR, threads);
    if (!wanted(only, isa, "134217728", "8-bit")) continue;
    compare_eight(isa, k, e, HR_OPTIMIZER_ADAMW, HR_OPTIMIZER_ADAMW8BIT, threads);
    compare_eight(isa, k, e, HR_OPTIMIZER_LION, HR_OPTIMIZER_LION8BIT, threads);
  }
}

static void *need(size_t bytes) {
  void *memory = NULL;
  if (posix_memalign(&memory, 1u << 21, bytes) != 0) exit(1);
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  memset(memory, 0, bytes);
  return memory;
}

#define MEASURE(isa)                                                                                                   \
  do {                                                                                                                 \
    hri_cpu_kernels k;                                                                                                 \
    hri_optim_kernels_##isa(&k);                                                                                       \
    measure(#isa, &k, plain_##isa, &a, only);                                                                          \
    measure_eight(#isa, &k, &e, only);                                                                                 \
  } while (0)

int main(int argc, char **argv) {
  const char *only = argc > 1 ? argv[1] : NULL;
  size_t elements = (size_t)50304 * 768;
  arrays a = {.w = need(elements * 4),
              .m = need(elements * 4),
              .v = need(elements * 4),
              .g = need(elements * 4),
              .beside = need(elements * 2),
              .partials = need(sizeof(double) * (size_t)hri_square_sum_count((int64_t)elements))};
  eight e = {.w = need((size_t)MANY * 4),
             .m = need((size_t)MANY * 4),
             .v = need((size_t)MANY * 4),
             .g = need((size_t)MANY * 4),
             .codes = {need(MANY), need(MANY)},
             .scales = {need(MANY / 64), need(MANY / 64)}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) MEASURE(avx512);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) MEASURE(avx2);
#endif
  MEASURE(base);
  return 0;
}
