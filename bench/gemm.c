/* Rate of the matrix products of GPT-2 124M, library and portable code interleaved, in GFLOP/s.
 *
 *   bench_gemm [rows [repeats]]     rows: tokens per product (1024); repeats per measurement (5, the best counts)
 *
 * One line per product, team and kind. The machine's rate may swing with its neighbours: compare within a line. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "kernel/gemm.h"

typedef struct variant {
  const char *name;
  hri_gemm_cache *cache;
} variant;

typedef struct operands {
  float *x, *w, *y; /* [M,K], [N,K], [M,N] */
} operands;

static double now(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(hr_status status, const hr_error *error) {
  if (status == HR_OK) return;
  (void)fprintf(stderr, "bench_gemm: %s\n", error->message);
  exit(1);
}

static float *filled(int64_t count) {
  float *p = aligned_alloc(4096, hri_round_up((uint64_t)count * sizeof(float), 4096));
  if (!p) exit(1);
  for (int64_t i = 0; i < count; i++) p[i] = (float)(i * 2654435761u % 1024u) / 1024.0f - 0.5f;
  return p;
}

static double once(hri_gemm *gemm, const hri_gemm_shape *s, const operands *o, void *scratch) {
  const float *a = s->kind == HRI_GEMM_FORWARD ? o->x : o->y, *b = s->kind == HRI_GEMM_DW ? o->x : o->w;
  float *c = s->kind == HRI_GEMM_FORWARD ? o->y : s->kind == HRI_GEMM_DX ? o->x : o->w;
  hr_error error;
  double start = now();
  check(hri_gemm_run(gemm, a, b, NULL, c, scratch, &error), &error);
  return now() - start;
}

static void measure(const variant *variants, int count, const hri_gemm_shape *s, const operands *o, int repeats) {
  double flop = 2.0 * (double)s->m * (double)s->n * (double)s->k, best[2] = {0};
  static const char *const kinds[] = {"forward", "dx", "dw"};
  hri_gemm *gemm[2];
  void *scratch[2];
  uint64_t bytes[2];
  hr_error error;
  for (int v = 0; v < count; v++) {
    check(hri_gemm_workspace(variants[v].cache, s, &bytes[v], &error), &error);
    check(hri_gemm_prepare(variants[v].cache, s, &gemm[v], &error), &error);
    scratch[v] = bytes[v] ? aligned_alloc(4096, hri_round_up(bytes[v], 4096)) : NULL;
  }
  for (int i = 0; i <= repeats; i++)
    for (int v = 0; v < count; v++) {
      double seconds = once(gemm[v], s, o, scratch[v]);
      if (i > 0 && flop / seconds > best[v]) best[v] = flop / seconds; /* the first warms up */
    }
  printf("%6lld %6lld %6lld  %-7s %s %7d", (long long)s->m, (long long)s->n, (long long)s->k, kinds[s->kind], s->accumulate ? "+=" : " =", s->threads);
  for (int v = 0; v < count; v++) {
    printf("  %8.1f %10llu %-22s", best[v] * 1e-9, (unsigned long long)bytes[v], hri_gemm_implementation(gemm[v]));
    free(scratch[v]);
  }
  printf("\n");
  (void)fflush(stdout);
}

int main(int argc, char **argv) {
  static const int64_t sides[][2] = {{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}, {50304, 768}};
  int64_t rows = argc > 1 ? atoll(argv[1]) : 1024;
  int repeats = argc > 2 ? atoi(argv[2]) : 5;
  variant variants[2] = {{"library", NULL}, {"portable", NULL}};
  hri_gemm_options portable = {.provider = HRI_GEMM_PORTABLE};
  hri_isa isa;
  hr_error error;
  check(hri_cpu_isa_choose(getenv("HEADROOM_ISA"), &isa, &error), &error);
  check(hri_gemm_cache_create(isa, &variants[0].cache, &error), &error);
  check(hri_gemm_cache_create_with(isa, &portable, &variants[1].cache, &error), &error);
  printf("%s, %s; GFLOP/s, best of %d; scratch in bytes\n", hri_gemm_library_text(), hri_isa_name(isa), repeats);
  printf("     M      N      K  kind       threads   library    scratch implementation          portable    scratch implementation\n");
  for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
    int64_t n = sides[i][0], k = sides[i][1];
    operands o = {filled(rows * k), filled(n * k), filled(rows * n)};
    for (int kind = 0; kind < HRI_GEMM_KIND_COUNT; kind++)
      for (int accumulate = 0; accumulate <= (kind == HRI_GEMM_DW); accumulate++)
        for (int threads = 1; threads <= 2; threads++) {
          hri_gemm_shape s = {.kind = (hri_gemm_kind)kind, .m = rows, .n = n, .k = k, .accumulate = accumulate, .threads = threads};
          measure(variants, 2, &s, &o, repeats);
        }
    free(o.x);
    free(o.w);
    free(o.y);
  }
  hri_gemm_cache_destroy(variants[0].cache);
  hri_gemm_cache_destroy(variants[1].cache);
  return 0;
}
