/* Speed of the CPU attention kernels, both types, beside the matrix products of the same machine.
 *
 *   bench_attention [seconds per case, default 0.5 [threads, default 1 and 2 [variant, default all]]]
 *   bench_attention pass <sequence> <heads> <head size> <f32 | bf16> <threads> <repeats>
 *
 * Prints GFLOP/s of forward (4 D flops per visible pair: causal, within the window) and backward (10 D), the share of
 * the rate of one large matrix product of the type and team, and for decoding the bytes of cache read per second beside
 * those that a copy reads.
 * `pass` makes one pass to warm up and prints the nanoseconds of the forward and the backward of the fastest of
 * `repeats` further ones, at batch 1 on the best variant, for bench/attention.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "backend/cpu/gemm.h"
#include "ops/attention/cpu.h"
#include "support/team.h"

typedef struct variant {
  const char *name;
  void (*fill)(hri_attention_kernels_table *);
} variant;

static const char *const type_names[] = {"f32", "bf16"};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Room for `count` elements, of small random numbers. */
static void *random_reals(int64_t count, hri_real real) {
  void *values = aligned_alloc(64, hri_round_up((uint64_t)count * hri_real_bytes(real) + 1, 64));
  uint32_t state = 12345;
  if (!values) {
    fprintf(stderr, "out of memory\n");
    exit(1);
  }
  for (int64_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    float value = (float)(int32_t)state * (1.0f / 1073741824.0f);
    if (real == HRI_REAL_BF16) ((hri_bf16 *)values)[i] = hri_bf16_round(value);
    else ((float *)values)[i] = value;
  }
  return values;
}
static void *random_floats(int64_t count) { return random_reals(count, HRI_REAL_F32); }

/* GFLOP/s of a product of 2048 x 768 x 3072 at the processor's highest level; 0 when it cannot be made. */
static double product_rate(hri_real real, int threads) {
  hri_gemm_shape shape =
      {.kind = HRI_GEMM_FORWARD, .type = real, .out = real, .m = 2048, .n = 3072, .k = 768, .threads = threads};
  hri_gemm_cache *cache = NULL;
  hri_gemm *gemm = NULL;
  hr_error error;
  uint64_t bytes = 0;
  double best = 1e30;
  if (hri_gemm_cache_create(hri_cpu_isa_detect((hri_isa)(HRI_ISA_COUNT - 1)), HRI_GEMM_AUTO, &cache, &error) != HR_OK)
    return 0;
  if (hri_gemm_workspace(cache, &shape, &bytes, &error) == HR_OK &&
      hri_gemm_prepare(cache, &shape, &gemm, &error) == HR_OK) {
    void *a = random_reals(2048 * 768, real), *b = random_reals(3072 * 768, real), *c = random_reals(2048 * 3072, real);
    void *scratch = random_floats((int64_t)bytes / 4 + 16);
    for (int n = 0; n < 8; n++) {
      double t = now();
      hri_gemm_run(gemm, team_of(threads), a, b, NULL, c, scratch);
      t = now() - t;
      best = t < best ? t : best;
    }
    free(a), free(b), free(c), free(scratch);
  }
  hri_gemm_cache_destroy(cache);
  return 2e-9 * 2048 * 768 * 3072 / best;
}

enum { COPY_BYTES = 256 << 20, COPY_PIECE = 1 << 20 };
typedef struct copied {
  char *to;
  const char *from;
} copied;

static void copy_pieces(void *context, int64_t begin, int64_t end, int thread) {
  const copied *c = context;
  (void)thread;
  memcpy(c->to + begin * COPY_PIECE, c->from + begin * COPY_PIECE, (size_t)((end - begin) * COPY_PIECE));
}

/* GB/s that the copy of a block far larger than the caches reads. */
static double copy_rate(int threads) {
  copied c = {.to = random_floats(COPY_BYTES / 4), .from = random_floats(COPY_BYTES / 4)};
  double best = 1e30;
  for (int n = 0; n < 5; n++) {
    double t = now();
    hri_team_each(team_of(threads), COPY_BYTES / COPY_PIECE, 1, copy_pieces, &c);
    t = now() - t;
    best = t < best ? t : best;
  }
  free((void *)c.from), free(c.to);
  return COPY_BYTES * 1e-9 / best;
}

typedef struct bench_case {
  hri_attention_shape shape;
  hri_attention_kernels_table table;
  void *qkv, *y, *dy, *dqkv, *probs, *scratch;
  float *lse;
  int threads;
} bench_case;

static void run_forward(bench_case *c) {
  c->table.forward(&c->shape, 0.125f, c->qkv, NULL, c->y, c->lse, c->scratch, team_of(c->threads));
}
static void run_backward(bench_case *c) {
  c->table.backward(&c->shape, 0.125f, c->dy, c->qkv, c->y, c->lse, NULL, c->dqkv, c->scratch, team_of(c->threads));
}
static void run_full(bench_case *c) {
  c->table.materialized(&c->shape, 0.125f, c->qkv, NULL, c->y, c->probs, c->scratch, team_of(c->threads));
}
static void run_full_backward(bench_case *c) {
  c->table.materialized_backward(&c->shape, 0.125f, c->dy, c->qkv, c->probs, NULL, c->dqkv, c->scratch,
                                 team_of(c->threads));
}

/* Seconds of the fastest of as many calls as fit `seconds` (at least two). */
static double fastest(void (*call)(bench_case *), bench_case *c, double seconds) {
  double best = 1e30, start = now();
  for (int n = 0; n < 2 || now() - start < seconds; n++) {
    double t = now();
    call(c);
    t = now() - t;
    best = t < best ? t : best;
  }
  return best;
}

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static bench_case make_case(const variant *v, hri_attention_shape shape, int threads) {
  bench_case c = {.shape = shape, .threads = threads};
  int64_t rows = shape.batch * shape.sequence, d = shape.head_dim;
  v->fill(&c.table);
  c.qkv = random_reals(rows * (shape.heads + 2 * shape.kv_heads) * d, shape.real);
  c.dqkv = random_reals(rows * (shape.heads + 2 * shape.kv_heads) * d, shape.real);
  c.y = random_reals(rows * shape.heads * d, shape.real);
  c.dy = random_reals(rows * shape.heads * d, shape.real);
  c.lse = random_floats(rows * shape.heads);
  uint64_t bytes = most(most(hri_attention_forward_scratch(c.table.level, &shape, threads),
                             hri_attention_backward_scratch(c.table.level, &shape, threads)),
                        most(hri_attention_materialized_scratch(c.table.level, &shape, threads),
                             hri_attention_backward_scratch(c.table.level, &shape, threads)));
  c.scratch = random_floats((int64_t)bytes / 4);
  return c;
}
static void free_case(bench_case *c) {
  free(c->qkv), free(c->dqkv), free(c->y), free(c->dy), free(c->lse), free(c->scratch), free(c->probs);
}

/* Pairs of a query and a key that it sees. */
static double visible_pairs(const hri_attention_shape *s) {
  double window = s->window > 0 && s->window < s->sequence ? (double)s->window : (double)s->sequence,
         t = (double)s->sequence;
  return (double)(s->batch * s->heads) * (t * window - window * (window - 1) / 2);
}

static void bench_shape(const variant *v, hri_attention_shape shape, int threads, double product, double seconds) {
  bench_case c = make_case(v, shape, threads);
  int64_t d = shape.head_dim, full = shape.batch * shape.heads * shape.sequence * shape.sequence;
  double flops = 1e-9 * (double)d * visible_pairs(&shape);
  double forward = flops * 4 / fastest(run_forward, &c, seconds),
         backward = flops * 10 / fastest(run_backward, &c, seconds);
  printf(
      "%-10s %-4s B %-2lld T %-5lld H %-2lld K %-2lld D %-3lld window %-4lld cap %-2.0f threads %d: forward %6.1f (%3.0f %%)  backward %6.1f (%3.0f %%)",
      v->name, type_names[shape.real], (long long)shape.batch, (long long)shape.sequence, (long long)shape.heads,
      (long long)shape.kv_heads, (long long)d, (long long)shape.window, shape.softcap, threads, forward,
      product > 0 ? 100 * forward / product : 0, backward, product > 0 ? 100 * backward / product : 0);
  if (full < 64 << 20) {
    c.probs = random_reals(full, shape.real);
    printf("  materialized %6.1f %6.1f", flops * 4 / fastest(run_full, &c, seconds / 2),
           flops * 10 / fastest(run_full_backward, &c, seconds / 2));
  }
  printf("  GFLOP/s\n");
  fflush(stdout);
  free_case(&c);
}

static void bench_decode(const variant *v, int64_t kv_heads, int64_t rows, hri_real real, int threads, double copy,
                         double seconds) {
  hri_attention_cache_shape shape =
      {.batch = 1, .rows = rows, .capacity = 16384, .heads = 32, .kv_heads = kv_heads, .head_dim = 64, .real = real};
  hri_attention_kernels_table table;
  v->fill(&table);
  int64_t elements = hri_attention_cache_elements(&shape), past = shape.capacity - rows;
  void *keys = random_reals(elements, real), *values = random_reals(elements, real);
  void *qkv = random_reals(rows * (32 + 2 * kv_heads) * 64, real), *y = random_reals(rows * 32 * 64, real);
  void *scratch = random_floats((int64_t)hri_attention_cached_scratch(table.level, &shape, threads) / 4);
  double best = 1e30, start = now(), bytes = 2e-9 * (double)elements * (double)hri_real_bytes(real);
  for (int n = 0; n < 2 || now() - start < seconds; n++) {
    double t = now();
    table.cached(&shape, 0.125f, qkv, past, rows, keys, values, y, scratch, team_of(threads));
    t = now() - t;
    best = t < best ? t : best;
  }
  printf(
      "%-10s %-4s cached: rows %-3lld past %lld H 32 K %-2lld D 64 threads %d: %6.1f GB/s of cache (a copy reads %.1f), %6.1f GFLOP/s\n",
      v->name, type_names[real], (long long)rows, (long long)past, (long long)kv_heads, threads, bytes / best, copy,
      4e-9 * 64 * 32 * (double)rows * (double)past / best);
  fflush(stdout);
  free(keys), free(values), free(qkv), free(y), free(scratch);
}

static void bench_variant(const variant *v, int threads, double seconds) {
  /* batch, sequence, heads, kv heads, head size, window, soft-cap */
  static const int64_t shapes[][7] = {{4, 256, 12, 12, 64, 0, 0},    {1, 1024, 12, 12, 64, 0, 0},
                                      {1, 4096, 12, 12, 64, 0, 0},   {1, 4096, 1, 1, 64, 0, 0},
                                      {4, 256, 9, 3, 64, 0, 0},      {1, 2048, 12, 12, 32, 0, 0},
                                      {1, 2048, 8, 8, 80, 0, 0},     {1, 2048, 8, 8, 96, 0, 0},
                                      {1, 1024, 32, 8, 128, 0, 0},   {1, 2048, 4, 4, 256, 0, 0},
                                      {1, 4096, 12, 12, 64, 512, 0}, {1, 16384, 4, 4, 64, 512, 0},
                                      {1, 4096, 12, 12, 64, 0, 50},  {1, 2048, 4, 4, 256, 0, 50},
                                      {1, 4096, 4, 4, 256, 512, 50}};
  double copy = copy_rate(threads);
  for (int real = 0; real < 2; real++) {
    double product = product_rate((hri_real)real, threads);
    printf("%s, %s, %d threads: a matrix product runs at %.1f GFLOP/s\n", v->name, type_names[real], threads, product);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
      const int64_t *s = shapes[i];
      bench_shape(v,
                  (hri_attention_shape){.batch = s[0],
                                        .sequence = s[1],
                                        .heads = s[2],
                                        .kv_heads = s[3],
                                        .head_dim = s[4],
                                        .window = s[5],
                                        .softcap = (double)s[6],
                                        .real = (hri_real)real},
                  threads, product, seconds);
    }
    for (int64_t rows = 1; rows <= 256; rows *= 16) {
      bench_decode(v, 32, rows, (hri_real)real, threads, copy, seconds);
      bench_decode(v, 8, rows, (hri_real)real, threads, copy, seconds);
    }
  }
}

/* The variants that this processor has, the best one first. */
static int find_variants(variant *variants) {
  int count = 0;
#if defined(__x86_64__)
  hri_isa isa = hri_cpu_isa_detect((hri_isa)(HRI_ISA_COUNT - 1));
  if (isa >= HRI_ISA_AVX512_BF16) variants[count++] = (variant){"avx512bf16", hri_attention_kernels_avx512bf16};
  if (isa >= HRI_ISA_AVX512) variants[count++] = (variant){"avx512", hri_attention_kernels_avx512};
  if (isa >= HRI_ISA_AVX2) variants[count++] = (variant){"avx2", hri_attention_kernels_avx2};
#elif defined(__aarch64__)
  if (hri_isa_has(hri_cpu_isa_detect(HRI_ISA_NEON_BF16), HRI_ISA_NEON_BF16))
    variants[count++] = (variant){"neonbf16", hri_attention_kernels_neonbf16};
  variants[count++] = (variant){"neon", hri_attention_kernels_neon};
#endif
  variants[count++] = (variant){"base", hri_attention_kernels_base};
  return count;
}

static int run_pass(const variant *v, char **args) {
  int64_t heads = atoll(args[1]);
  hri_attention_shape shape = {.batch = 1,
                               .sequence = atoll(args[0]),
                               .heads = heads,
                               .kv_heads = heads,
                               .head_dim = atoll(args[2]),
                               .real = strcmp(args[3], "bf16") == 0 ? HRI_REAL_BF16 : HRI_REAL_F32};
  bench_case c = make_case(v, shape, atoi(args[4]));
  double forward = 1e30, backward = 1e30;
  for (int n = -1; n < atoi(args[5]); n++) {
    double start = now(), middle, end;
    run_forward(&c);
    middle = now();
    run_backward(&c);
    end = now();
    if (n < 0 || end - start >= forward + backward) continue;
    forward = middle - start;
    backward = end - middle;
  }
  printf("%.0f %.0f\n", forward * 1e9, backward * 1e9);
  free_case(&c);
  return 0;
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? strtod(argv[1], NULL) : 0.5;
  int least = argc > 2 ? atoi(argv[2]) : 1, most_threads = argc > 2 ? atoi(argv[2]) : 2;
  variant variants[4];
  int count = find_variants(variants);
  if (argc == 8 && strcmp(argv[1], "pass") == 0) return run_pass(&variants[0], argv + 2);
  for (int i = 0; i < count; i++) {
    if (argc > 3 && strcmp(argv[3], variants[i].name) != 0) continue;
    for (int threads = least; threads <= most_threads && threads <= sysconf(_SC_NPROCESSORS_ONLN); threads++)
      bench_variant(&variants[i], threads, seconds);
  }
  return 0;
}
