/* Speed of the CPU attention kernels against what the core can do.
 *
 *   bench_attention [seconds per case, default 0.5 [threads, default 1 and 2 [variant, default all]]]
 *
 * Prints GFLOP/s of forward (4 D flops per visible pair) and backward (10 D), the share of the peak of as many cores,
 * and for decoding the bytes of cache read per second. The peak is measured by a loop of independent multiply-adds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <omp.h>

#include "base/mem.h"
#include "ops/attention/cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx512f"))) static float spin_avx512(int64_t rounds) {
  __m512 a = _mm512_set1_ps(1), x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
  __m512 b = a, c = a, d = a, e = a, f = a, g = a, h = a;
  for (int64_t n = 0; n < rounds; n++) {
    a = _mm512_fmadd_ps(a, x, y), b = _mm512_fmadd_ps(b, x, y), c = _mm512_fmadd_ps(c, x, y);
    d = _mm512_fmadd_ps(d, x, y), e = _mm512_fmadd_ps(e, x, y), f = _mm512_fmadd_ps(f, x, y);
    g = _mm512_fmadd_ps(g, x, y), h = _mm512_fmadd_ps(h, x, y);
    __asm__ volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h));
  }
  return _mm512_cvtss_f32(a) + _mm512_cvtss_f32(b) + _mm512_cvtss_f32(c) + _mm512_cvtss_f32(d) + _mm512_cvtss_f32(e) +
         _mm512_cvtss_f32(f) + _mm512_cvtss_f32(g) + _mm512_cvtss_f32(h);
}
__attribute__((target("avx2,fma"))) static float spin_avx2(int64_t rounds) {
  __m256 a = _mm256_set1_ps(1), x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
  __m256 b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a;
  for (int64_t n = 0; n < rounds; n++) {
    a = _mm256_fmadd_ps(a, x, y), b = _mm256_fmadd_ps(b, x, y), c = _mm256_fmadd_ps(c, x, y);
    d = _mm256_fmadd_ps(d, x, y), e = _mm256_fmadd_ps(e, x, y), f = _mm256_fmadd_ps(f, x, y);
    g = _mm256_fmadd_ps(g, x, y), h = _mm256_fmadd_ps(h, x, y), i = _mm256_fmadd_ps(i, x, y);
    j = _mm256_fmadd_ps(j, x, y);
    __asm__ volatile("" : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e), "+x"(f), "+x"(g), "+x"(h), "+x"(i), "+x"(j));
  }
  return _mm256_cvtss_f32(a) + _mm256_cvtss_f32(b) + _mm256_cvtss_f32(c) + _mm256_cvtss_f32(d) + _mm256_cvtss_f32(e) +
         _mm256_cvtss_f32(f) + _mm256_cvtss_f32(g) + _mm256_cvtss_f32(h) + _mm256_cvtss_f32(i) + _mm256_cvtss_f32(j);
}
#endif

typedef struct variant {
  const char *name;
  void (*fill)(hri_attention_kernels_table *);
  float (*spin)(int64_t rounds); /* NULL: no peak to compare with */
  double flops_per_round;
} variant;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double peak(const variant *v, int threads) {
  double best = 0;
  for (int round = 0; v->spin && round < 3; round++) {
    double start = now();
    volatile float sink = 0;
#pragma omp parallel num_threads(threads)
    {
      float value = v->spin(20000000);
#pragma omp critical
      sink = sink + value;
    }
    double rate = 2e7 * v->flops_per_round * threads / (now() - start);
    best = rate > best ? rate : best;
  }
  return best * 1e-9;
}

static float *random_floats(int64_t count) {
  float *values = aligned_alloc(64, hri_round_up((uint64_t)count * sizeof *values, 64));
  uint32_t state = 12345;
  if (!values) {
    fprintf(stderr, "out of memory\n");
    exit(1);
  }
  for (int64_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    values[i] = (float)(int32_t)state * (1.0f / 1073741824.0f);
  }
  return values;
}

typedef struct bench_case {
  hri_attention_shape shape;
  hri_attention_kernels_table table;
  float *qkv, *y, *lse, *dy, *dqkv, *probs;
  void *scratch;
  int threads;
} bench_case;

static void run_forward(bench_case *c) {
  c->table.forward(&c->shape, 0.125f, c->qkv, NULL, c->y, c->lse, c->scratch, c->threads);
}
static void run_backward(bench_case *c) {
  c->table.backward(&c->shape, 0.125f, c->dy, c->qkv, c->y, c->lse, NULL, c->dqkv, c->scratch, c->threads);
}
static void run_full(bench_case *c) {
  c->table.materialized(&c->shape, 0.125f, c->qkv, NULL, c->y, c->probs, c->scratch, c->threads);
}
static void run_full_backward(bench_case *c) {
  c->table.materialized_backward(&c->shape, 0.125f, c->dy, c->qkv, c->probs, NULL, c->dqkv, c->scratch, c->threads);
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

static void bench_shape(const variant *v, hri_attention_shape shape, int threads, double peak_rate, double seconds) {
  bench_case c = {.shape = shape, .threads = threads};
  int64_t rows = shape.batch * shape.sequence, d = shape.head_dim, pairs = shape.batch * shape.heads * shape.sequence;
  int64_t full = pairs * shape.sequence;
  double visible = (double)pairs * (double)(shape.sequence + 1) / 2;
  v->fill(&c.table);
  c.qkv = random_floats(rows * (shape.heads + 2 * shape.kv_heads) * d);
  c.dqkv = random_floats(rows * (shape.heads + 2 * shape.kv_heads) * d);
  c.y = random_floats(rows * shape.heads * d);
  c.dy = random_floats(rows * shape.heads * d);
  c.lse = random_floats(pairs);
  uint64_t bytes = most(most(c.table.forward_scratch(&shape, threads), c.table.backward_scratch(&shape, threads)),
                        most(c.table.materialized_scratch(&shape, threads),
                             c.table.materialized_backward_scratch(&shape, threads)));
  c.scratch = random_floats((int64_t)bytes / 4);
  double forward = visible * 4e-9 * (double)d / fastest(run_forward, &c, seconds);
  double backward = visible * 1e-8 * (double)d / fastest(run_backward, &c, seconds);
  printf("%-6s B %-2lld T %-5lld H %-2lld K %-2lld D %-3lld threads %d: "
         "forward %6.1f (%3.0f %%)  backward %6.1f (%3.0f %%)", v->name, (long long)shape.batch, (long long)shape.sequence, (long long)shape.heads, (long long)shape.kv_heads,
         (long long)d, threads, forward, peak_rate > 0 ? 100 * forward / peak_rate : 0, backward,
         peak_rate > 0 ? 100 * backward / peak_rate : 0);
  if (full * 4 < 512 << 20) {
    c.probs = random_floats(full);
    printf("  materialized %6.1f %6.1f", visible * 4e-9 * (double)d / fastest(run_full, &c, seconds / 2),
           visible * 1e-8 * (double)d / fastest(run_full_backward, &c, seconds / 2));
  }
  printf("  GFLOP/s\n");
  fflush(stdout);
  free(c.qkv), free(c.dqkv), free(c.y), free(c.dy), free(c.lse), free(c.scratch), free(c.probs);
}

static void bench_decode(const variant *v, int64_t kv_heads, int64_t rows, int threads, double seconds) {
  hri_attention_cache_shape shape = {.batch = 1, .rows = rows, .capacity = 16384, .heads = 32, .kv_heads = kv_heads,
                                     .head_dim = 64};
  hri_attention_kernels_table table;
  v->fill(&table);
  int64_t elements = hri_attention_cache_elements(&shape), past = shape.capacity - rows;
  float *keys = random_floats(elements), *values = random_floats(elements);
  float *qkv = random_floats(rows * (32 + 2 * kv_heads) * 64), *y = random_floats(rows * 32 * 64);
  void *scratch = random_floats((int64_t)table.cached_scratch(&shape, threads) / 4);
  double best = 1e30, start = now();
  for (int n = 0; n < 2 || now() - start < seconds; n++) {
    double t = now();
    table.cached(&shape, 0.125f, qkv, past, rows, keys, values, y, scratch, threads);
    t = now() - t;
    best = t < best ? t : best;
  }
  printf("%-6s cached: rows %-3lld past %lld H 32 K %-2lld D 64 threads %d: %6.1f GB/s of cache, %6.1f GFLOP/s\n",
         v->name, (long long)rows, (long long)past, (long long)kv_heads, threads, (double)elements * 8e-9 / best,
         4e-9 * 64 * 32 * (double)rows * (double)past / best);
  fflush(stdout);
  free(keys), free(values), free(qkv), free(y), free(scratch);
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? strtod(argv[1], NULL) : 0.5;
  int least = argc > 2 ? atoi(argv[2]) : 1, most_threads = argc > 2 ? atoi(argv[2]) : 2;
  variant variants[3];
  int count = 0;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    variants[count++] = (variant){"avx512", hri_attention_kernels_avx512, spin_avx512, 8 * 32};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    variants[count++] = (variant){"avx2", hri_attention_kernels_avx2, spin_avx2, 10 * 16};
#endif
  variants[count++] = (variant){"base", hri_attention_kernels_base, NULL, 0};
  for (int i = 0; i < count; i++) {
    if (argc > 3 && strcmp(argv[3], variants[i].name) != 0) continue;
    for (int threads = least; threads <= most_threads && threads <= omp_get_num_procs(); threads++) {
      double peak_rate = peak(&variants[i], threads);
      printf("%s, %d threads: peak %.1f GFLOP/s\n", variants[i].name, threads, peak_rate);
      bench_shape(&variants[i], (hri_attention_shape){4, 256, 12, 12, 64, 0, HRI_REAL_F32}, threads, peak_rate, seconds);
      bench_shape(&variants[i], (hri_attention_shape){1, 1024, 12, 12, 64, 0, HRI_REAL_F32}, threads, peak_rate, seconds);
      bench_shape(&variants[i], (hri_attention_shape){1, 4096, 12, 12, 64, 0, HRI_REAL_F32}, threads, peak_rate, seconds);
      bench_shape(&variants[i], (hri_attention_shape){1, 4096, 1, 1, 64, 0, HRI_REAL_F32}, threads, peak_rate, seconds);
      bench_shape(&variants[i], (hri_attention_shape){1, 1024, 32, 8, 128, 0, HRI_REAL_F32}, threads, peak_rate, seconds);
      bench_shape(&variants[i], (hri_attention_shape){4, 256, 9, 3, 80, 0, HRI_REAL_F32}, threads, peak_rate, seconds);
      for (int64_t rows = 1; rows <= 256; rows *= 16) {
        bench_decode(&variants[i], 32, rows, threads, seconds);
        bench_decode(&variants[i], 8, rows, threads, seconds);
      }
    }
  }
  return 0;
}
