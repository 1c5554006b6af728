/* Memory throughput of the element-wise and reduction kernels, beside the plainest loop of the same kind.
 *
 *   bench_kernels [threads, default 2 [part of a kernel's name]]
 *
 * Prints per instruction set and kernel the GB/s of its necessary traffic (each operand read or written once), and its
 * share of what a yardstick moves: an in-place scale for kernels that write over an operand, a copy for those that
 * write elsewhere (a write to a line that is not cached reads it first), a scan for those that only read. Both are
 * timed in turns, so that neighbours disturb both alike. Arrays are larger than the last cache; the best of several
 * turns counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "ops/cpu.h"
#include "ops/move/random.h"
#include "ops/scratch.h"

enum { ROWS = 16384, COLUMNS = 768, VOCABULARY = 50257, STORED = 50304, LOSS_ROWS = 512, HIDDEN = 2048, TURNS = 7 };
static const int64_t N = (int64_t)ROWS * COLUMNS; /* 12.6M elements, 50 MB */

typedef struct arrays {
  float *a, *b, *c, *d, *logits, *scratch, *stats, *losses, *table;
  int32_t *labels, *position;
  int threads;
} arrays;

typedef enum yardstick { SCALE = 0, COPY, SCAN } yardstick;

typedef struct kernel_case {
  const char *name;
  void (*run)(const hri_cpu_kernels *k, const arrays *m);
  double bytes; /* per element of N */
  yardstick yardstick;
} kernel_case;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static hri_norm_args norm_args(const arrays *m) {
  return (hri_norm_args){.rows = ROWS,
                         .columns = COLUMNS,
                         .x = m->a,
                         .residual = m->b,
                         .s = m->c,
                         .weight = m->table,
                         .bias = m->table,
                         .eps = 1e-5,
                         .y = m->d,
                         .stats = m->stats,
                         .threads = m->threads};
}
static hri_norm_backward_args norm_backward_args(const arrays *m) {
  return (hri_norm_backward_args){.rows = ROWS,
                                  .columns = COLUMNS,
                                  .dy = m->a,
                                  .x = m->b,
                                  .stats = m->stats,
                                  .weight = m->table,
                                  .extra = m->c,
                                  .dx = m->d,
                                  .dweight = m->table + COLUMNS,
                                  .dbias = m->table + 2 * COLUMNS,
                                  .scratch = m->scratch,
                                  .threads = m->threads};
}

static void run_rmsnorm(const hri_cpu_kernels *k, const arrays *m) {
  hri_norm_args a = norm_args(m);
  a.bias = NULL;
  k->rmsnorm(&a);
}
static void run_layernorm(const hri_cpu_kernels *k, const arrays *m) {
  hri_norm_args a = norm_args(m);
  k->layernorm(&a);
}
static void run_rmsnorm_backward(const hri_cpu_kernels *k, const arrays *m) {
  hri_norm_backward_args a = norm_backward_args(m);
  a.dbias = NULL;
  k->rmsnorm_backward(&a);
}
static void run_layernorm_backward(const hri_cpu_kernels *k, const arrays *m) {
  hri_norm_backward_args a = norm_backward_args(m);
  k->layernorm_backward(&a);
}
static void run_add(const hri_cpu_kernels *k, const arrays *m) { k->add(m->a, m->a, m->b, N, HRI_REAL_F32, m->threads); }
static void run_copy(const hri_cpu_kernels *k, const arrays *m) { k->copy(m->a, m->b, N * 4, m->threads); }
static void run_zero(const hri_cpu_kernels *k, const arrays *m) { k->zero(m->d, N * 4, m->threads); }
static void run_bias(const hri_cpu_kernels *k, const arrays *m) {
  k->bias_gradient(m->table, m->a, ROWS, COLUMNS, false, m->scratch, HRI_REAL_F32, m->threads);
}
static void run_gelu(const hri_cpu_kernels *k, const arrays *m) {
  k->activation(HR_ACTIVATION_GELU_TANH, m->d, m->a, N, HRI_REAL_F32, m->threads);
}
static void run_gelu_backward(const hri_cpu_kernels *k, const arrays *m) {
  k->activation_backward(HR_ACTIVATION_GELU_TANH, m->d, m->b, m->a, N, HRI_REAL_F32, m->threads);
}
static void run_swiglu(const hri_cpu_kernels *k, const arrays *m) {
  k->glu(HR_ACTIVATION_SILU, m->d, m->a, N / 2 / HIDDEN, HIDDEN, HRI_REAL_F32, m->threads);
}
static void run_swiglu_backward(const hri_cpu_kernels *k, const arrays *m) {
  k->glu_backward(HR_ACTIVATION_SILU, m->d, m->b, m->a, N / 2 / HIDDEN, HIDDEN, HRI_REAL_F32, m->threads);
}
static void run_rope(const hri_cpu_kernels *k, const arrays *m) {
  k->rope(&(hri_rope_args){.rows = ROWS / 4,
                           .heads = 24,
                           .kv_heads = 12,
                           .head_size = 64,
                           .x = m->d,
                           .y = m->d,
                           .cosines = m->b,
                           .sines = m->c,
                           .position = m->position,
                           .threads = m->threads});
}
static void run_embed(const hri_cpu_kernels *k, const arrays *m) {
  k->embed(&(hri_embed_args){.rows = ROWS,
                             .columns = COLUMNS,
                             .tokens = m->a,
                             .positions = m->b,
                             .ids = m->labels,
                             .position = m->position,
                             .y = m->d,
                             .threads = m->threads});
}
static void run_embed_backward(const hri_cpu_kernels *k, const arrays *m) {
  k->embed_backward(&(hri_embed_backward_args){.rows = ROWS,
                                               .columns = COLUMNS,
                                               .dy = m->a,
                                               .index = m->labels,
                                               .skip_index = -1,
                                               .dtable = m->d,
                                               .stored_rows = ROWS,
                                               .accumulate = true,
                                               .threads = m->threads});
}
static hri_cross_entropy_args loss_args(const arrays *m) {
  return (hri_cross_entropy_args){.rows = LOSS_ROWS,
                                  .vocabulary = VOCABULARY,
                                  .stored = STORED,
                                  .logits = m->logits,
                                  .labels = m->labels,
                                  .gradient_scale = 1e-3,
                                  .losses = m->losses,
                                  .threads = m->threads};
}
static void run_loss(const hri_cpu_kernels *k, const arrays *m) {
  hri_cross_entropy_args a = loss_args(m);
  a.dlogits = m->logits;
  k->cross_entropy(&a);
}
static void run_evaluation(const hri_cpu_kernels *k, const arrays *m) {
  hri_cross_entropy_args a = loss_args(m);
  k->cross_entropy(&a);
}
static void run_square_sum(const hri_cpu_kernels *k, const arrays *m) {
  k->square_sum((double *)m->scratch, m->a, HRI_REAL_F32, N, m->threads);
}
static void run_adamw(const hri_cpu_kernels *k, const arrays *m) {
  hri_adamw_factors f = hri_adamw_factors_make(1e-4, 0.9, 0.999, 1e-8, 0.01, 10, 1.0);
  k->adamw(&(hri_update_args){.n = N, .w = m->a, .m = m->b, .v = m->c, .g = m->d, .threads = m->threads}, &f);
}
static void run_finite(const hri_cpu_kernels *k, const arrays *m) { k->first_nonfinite(m->a, N, HRI_REAL_F32, m->threads); }

static void run_scale(const hri_cpu_kernels *k, const arrays *m) {
  k->scale(m->logits, m->logits, 0.999f, N, HRI_REAL_F32, m->threads);
}

static const kernel_case yardsticks[] = {
    {"scale", run_scale, 8.0, SCALE}, {"copy", run_copy, 8.0, COPY}, {"scan", run_finite, 4.0, SCAN}};

#define LOSS_SHARE (LOSS_ROWS * (double)STORED / ((double)ROWS * COLUMNS))
static const kernel_case cases[] = {
    {"add", run_add, 12.0, SCALE},
    {"zero", run_zero, 4.0, SCALE},
    {"bias gradient", run_bias, 4.0, SCAN},
    {"rmsnorm + residual", run_rmsnorm, 16.0, COPY},
    {"layernorm + residual", run_layernorm, 16.0, COPY},
    {"rmsnorm backward", run_rmsnorm_backward, 16.0, COPY},
    {"layernorm backward", run_layernorm_backward, 16.0, COPY},
    {"gelu", run_gelu, 8.0, COPY},
    {"gelu backward", run_gelu_backward, 12.0, COPY},
    {"swiglu", run_swiglu, 6.0, COPY},
    {"swiglu backward", run_swiglu_backward, 10.0, COPY},
    {"rope", run_rope, 6.0, SCALE},
    {"embed", run_embed, 8.0, COPY},
    {"embed backward", run_embed_backward, 12.0, SCALE},
    {"cross entropy", run_loss, 8.0 * LOSS_SHARE, SCALE},
    {"cross entropy, evaluation", run_evaluation, 4.0 * LOSS_SHARE, SCAN},
    {"square sum", run_square_sum, 4.0, SCAN},
    {"adamw", run_adamw, 28.0, SCALE},
};

static double timed(const kernel_case *c, const hri_cpu_kernels *k, const arrays *m) {
  double start = now();
  c->run(k, m);
  return now() - start;
}

static void refill(const arrays *m) {
  float *all[4] = {m->a, m->b, m->c, m->d};
  for (int i = 0; i < 4; i++)
    hri_fill_normal(all[i], N, 1.0, 1, (uint64_t)i, 0, m->threads);
  for (int64_t i = 0; i < N; i++)
    m->c[i] *= m->c[i]; /* second moments are positive */
  hri_fill_normal(m->logits, (int64_t)LOSS_ROWS * STORED, 2.0, 1, 9, 0, m->threads);
}

static void measure(const char *isa, const hri_cpu_kernels *k, const arrays *m, const char *only) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const kernel_case *c = &cases[i], *yard = &yardsticks[c->yardstick];
    double best = 1e9, yard_best = 1e9, rate, yard_rate;
    if (only && !strstr(c->name, only)) continue;
    refill(m);
    for (int turn = 0; turn < TURNS; turn++) {
      double time = timed(yard, k, m);
      yard_best = time < yard_best ? time : yard_best;
      time = timed(c, k, m);
      best = time < best ? time : best;
    }
    rate = c->bytes * (double)N / best * 1e-9;
    yard_rate = yard->bytes * (double)N / yard_best * 1e-9;
    printf("%-8s %-28s %7.1f GB/s  %5.0f %% of %s (%.1f)\n", isa, c->name, rate, 100 * rate / yard_rate, yard->name,
           yard_rate);
  }
}

#define MEASURE(isa)                                                                                                   \
  do {                                                                                                                 \
    hri_cpu_kernels k;                                                                                                 \
    hri_norm_kernels_##isa(&k);                                                                                        \
    hri_pointwise_kernels_##isa(&k);                                                                                   \
    hri_embed_kernels_##isa(&k);                                                                                       \
    hri_loss_kernels_##isa(&k);                                                                                        \
    hri_optim_kernels_##isa(&k);                                                                                       \
    hri_move_kernels_##isa(&k);                                                                                        \
    measure(#isa, &k, &m, only);                                                                                       \
  } while (0)

static void *need(size_t bytes) {
  void *memory = NULL;
  if (posix_memalign(&memory, 256, bytes) != 0) exit(1);
  memset(memory, 0, bytes);
  return memory;
}

int main(int argc, char **argv) {
  arrays m = {.threads = argc > 1 ? atoi(argv[1]) : 2};
  const char *only = argc > 2 ? argv[2] : NULL;
  size_t bytes = (size_t)N * sizeof(float);
  double start;
  m.a = need(bytes), m.b = need(bytes), m.c = need(bytes), m.d = need(bytes);
  m.logits = need(sizeof(float) * LOSS_ROWS * STORED);
  m.scratch = need(hri_norm_backward_scratch_bytes(ROWS, COLUMNS, true, true, m.threads));
  m.stats = need(sizeof(float) * 2 * ROWS), m.losses = need(sizeof(float) * LOSS_ROWS);
  m.table = need(sizeof(float) * 3 * COLUMNS);
  m.labels = need(sizeof(int32_t) * ROWS), m.position = need(sizeof(int32_t) * ROWS);
  for (int i = 0; i < ROWS; i++)
    m.labels[i] = (int32_t)((unsigned)i * 2654435761u % ROWS), m.position[i] = i % 1024;
  start = now();
  hri_fill_normal(m.a, N, 1.0, 1, 1, 0, m.threads);
  printf("normal fill: %.0f M values/s\n", (double)N / (now() - start) * 1e-6);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) MEASURE(avx512);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) MEASURE(avx2);
#endif
  MEASURE(base);
  return 0;
}
