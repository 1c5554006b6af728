/* Rate of the matrix products of GPT-2 124M and SmolLM2-135M layers.
 *
 *   bench_gemm [rows [repeats [what [threads]]]]     rows: tokens per product (1024); repeats: the best of so many
 *     counts (5) what = library    the library with plain and with packed b, alone and together with the packing (the
 *     default) what = portable   the library beside the code of ours
 *     what = few        forward with 1 to 16 rows (generation), library and ours, as GB/s of reading w; rows do not
 *     matter threads           1 and 2 unless given; one thread is timed by its own processor time
 *
 * One line per product, team, kind and types. What is compared is measured in turns, since the machine's rate may swing
 * with its neighbours: compare within a line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "backend/cpu/gemm_providers.h"

static const char *const kinds[] = {"forward", "dx", "dw"};
static const int64_t sides[][2] = {{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}, {50304, 768},
                                   {960, 576},  {576, 576}, {3072, 576}, {576, 1536}, {49152, 576}};
enum { SIDES = sizeof sides / sizeof *sides };

static hri_isa isa;
static int64_t rows = 1024;
static int repeats = 5, first_team = 1, last_team = 2;

static double now(int threads) {
  struct timespec t;
  (void)clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(hr_status status, const hr_error *error) {
  if (status == HR_OK) return;
  (void)fprintf(stderr, "bench_gemm: %s\n", error->message);
  exit(1);
}

static void *room(uint64_t bytes) {
  void *p = aligned_alloc(4096, hri_round_up(bytes + 1, 4096));
  if (!p) exit(1);
  return p;
}
static void *filled(int64_t count, hri_real type) {
  void *p = room((uint64_t)count * hri_real_bytes(type));
  for (int64_t i = 0; i < count; i++) {
    float value = (float)((uint64_t)i * 2654435761u % 1024u) / 1024.0f - 0.5f;
    if (type == HRI_REAL_BF16) ((hri_bf16 *)p)[i] = hri_bf16_round(value);
    else ((float *)p)[i] = value;
  }
  return p;
}

typedef struct operands {
  void *a, *b, *c;
} operands;

static operands operands_make(const hri_gemm_shape *s) {
  hri_gemm_product p = hri_gemm_product_of(s);
  return (operands){filled(p.rows * p.depth, s->type), filled(p.depth * p.columns, s->type),
                    filled(p.rows * p.columns, s->out)};
}
static void operands_free(operands *o) {
  free(o->a);
  free(o->b);
  free(o->c);
}

/* One way to run a product: by a cache, with b packed or not, the packing included or not. */
typedef struct contender {
  hri_gemm *gemm;
  int threads;
  void *scratch, *packed;
  double best, best_packing;
} contender;

static contender contender_make(hri_gemm_cache *cache, hri_gemm_shape s, const operands *o) {
  contender c = {.threads = s.threads, .best = 1e9, .best_packing = 1e9};
  uint64_t bytes, packed_bytes = 0;
  hr_error error;
  if (s.packed) {
    check(hri_gemm_packed_bytes(cache, &s, &packed_bytes, &error), &error);
    if (!packed_bytes) return c;
    c.packed = room(packed_bytes);
  }
  check(hri_gemm_workspace(cache, &s, &bytes, &error), &error);
  check(hri_gemm_prepare(cache, &s, &c.gemm, &error), &error);
  c.scratch = room(bytes);
  if (c.packed) hri_gemm_pack(c.gemm, o->b, c.packed);
  return c;
}
static void contender_free(contender *c) {
  free(c->scratch);
  free(c->packed);
}

static double least(double a, double b) { return a < b ? a : b; }

static void once(contender *c, const operands *o) {
  double start = now(c->threads), packed;
  hr_error error;
  if (!c->gemm) return;
  if (c->packed) hri_gemm_pack(c->gemm, o->b, c->packed);
  packed = now(c->threads);
  check(hri_gemm_run(c->gemm, o->a, c->packed ? c->packed : o->b, NULL, o->c, c->scratch, &error), &error);
  c->best = least(c->best, now(c->threads) - packed);
  c->best_packing = least(c->best_packing, packed - start);
}

static void print_shape(const hri_gemm_shape *s) {
  static const char *const names[] = {"f32", "bf16"};
  printf("%6lld %6lld %6lld  %-7s %-4s %-4s %s %2d", (long long)s->m, (long long)s->n, (long long)s->k, kinds[s->kind],
         names[s->type], names[s->out], s->accumulate ? "+=" : " =", s->threads);
}

static void line_library(hri_gemm_cache *const caches[2], hri_gemm_shape s) {
  hri_gemm_product p = hri_gemm_product_of(&s);
  double flop = 2e-9 * (double)s.m * (double)s.n * (double)s.k,
         bytes = 2e-9 * (double)(p.depth * p.columns) * (double)hri_real_bytes(s.type);
  operands o = operands_make(&s);
  contender plain = contender_make(caches[0], s, &o), packed;
  s.packed = true;
  packed = contender_make(caches[0], s, &o);
  for (int i = 0; i < repeats; i++) {
    once(&plain, &o);
    once(&packed, &o);
  }
  s.packed = false;
  print_shape(&s);
  printf("  %7.1f", flop / plain.best);
  if (packed.gemm)
    printf("  %7.1f  %7.1f (%+5.1f %%)  %6.1f GB/s%s", flop / packed.best, flop / (packed.best + packed.best_packing),
           100 * (plain.best / (packed.best + packed.best_packing) - 1), bytes / packed.best_packing,
           hri_gemm_packing_pays(&s) ? "  pays" : "      ");
  printf("  %s\n", hri_gemm_implementation(plain.gemm));
  contender_free(&plain);
  contender_free(&packed);
  operands_free(&o);
}

static void line_portable(hri_gemm_cache *const caches[2], hri_gemm_shape s) {
  double flop = 2e-9 * (double)s.m * (double)s.n * (double)s.k;
  operands o = operands_make(&s);
  contender two[2];
  for (int i = 0; i < 2; i++) two[i] = contender_make(caches[i], s, &o);
  for (int i = 0; i < repeats; i++)
    for (int v = 0; v < 2; v++) once(&two[v], &o);
  print_shape(&s);
  for (int i = 0; i < 2; i++) {
    printf("  %7.1f %-22s", flop / two[i].best, hri_gemm_implementation(two[i].gemm));
    contender_free(&two[i]);
  }
  printf("\n");
  operands_free(&o);
}

static void each_product(hri_gemm_cache *const caches[2], void (*line)(hri_gemm_cache *const *, hri_gemm_shape)) {
  for (int i = 0; i < SIDES; i++)
    for (int type = 0; type < 2; type++)
      for (int kind = 0; kind < HRI_GEMM_KIND_COUNT; kind++)
        for (int threads = first_team; threads <= last_team; threads++) {
          hri_gemm_shape s = {.kind = (hri_gemm_kind)kind,
                              .type = (hri_real)type,
                              .out = kind == HRI_GEMM_DW ? HRI_REAL_F32 : (hri_real)type,
                              .m = rows,
                              .n = sides[i][0],
                              .k = sides[i][1],
                              .threads = threads};
          line(caches, s);
          (void)fflush(stdout);
        }
}

/* The library beside dot products, whichever of them hri_gemm_run would take. */
static void line_few(hri_onednn *onednn, hri_gemm_shape s) {
  const hri_gemm_portable ours = isa == HRI_ISA_BASE ? hri_gemm_portable_base()
#if defined(__x86_64__)
                                 : isa == HRI_ISA_AVX2 ? hri_gemm_portable_avx2()
                                                       : hri_gemm_portable_avx512();
#else
                                                     : hri_gemm_portable_base();
#endif
  double gigabytes = 1e-9 * (double)s.n * (double)s.k * (double)hri_real_bytes(s.type), best[2] = {1e9, 1e9};
  operands o = operands_make(&s);
  void *scratch = room(hri_portable_scratch(isa, &s)), *theirs = NULL;
#if defined(HRI_HAVE_ONEDNN)
  hri_onednn_answer answer;
  hri_onednn_gemm *gemm = NULL;
  hr_error error;
  check(hri_onednn_query(onednn, &s, &answer, &error), &error);
  if (answer.served) {
    check(hri_onednn_gemm_create(onednn, &s, &gemm, &error), &error);
    theirs = room(answer.scratch_bytes);
  }
#endif
  for (int i = 0; i < repeats; i++) {
    double start = now(s.threads);
    ours.run(&s, o.a, o.b, NULL, o.c, scratch);
    best[1] = least(best[1], now(s.threads) - start);
#if defined(HRI_HAVE_ONEDNN)
    start = now(s.threads);
    if (gemm) check(hri_onednn_gemm_run(onednn, gemm, o.a, o.b, NULL, o.c, theirs, &error), &error);
    if (gemm) best[0] = least(best[0], now(s.threads) - start);
#endif
  }
#if defined(HRI_HAVE_ONEDNN)
  hri_onednn_gemm_destroy(gemm);
#else
  (void)onednn;
#endif
  print_shape(&s);
  printf("  %7.1f  %7.1f\n", gigabytes / best[0], gigabytes / best[1]);
  free(scratch);
  free(theirs);
  operands_free(&o);
}

static void few_rows(void) {
  hri_onednn *onednn = NULL;
#if defined(HRI_HAVE_ONEDNN)
  hr_error error;
  if (hri_onednn_within_isa(isa)) check(hri_onednn_create(&onednn, &error), &error);
#endif
  printf("     M      N      K  kind    types            library     ours  (GB/s of w)\n");
  for (int i = 0; i < SIDES; i++)
    for (int type = 0; type < 2; type++)
      for (int threads = first_team; threads <= last_team; threads++)
        for (int64_t m = 1; m <= 16; m *= 2)
          line_few(onednn, (hri_gemm_shape){.kind = HRI_GEMM_FORWARD,
                                            .type = (hri_real)type,
                                            .out = (hri_real)type,
                                            .m = m,
                                            .n = sides[i][0],
                                            .k = sides[i][1],
                                            .threads = threads});
#if defined(HRI_HAVE_ONEDNN)
  hri_onednn_destroy(onednn);
#endif
}

int main(int argc, char **argv) {
  const char *what = argc > 3 ? argv[3] : "library";
  hri_gemm_options portable = {.provider = HRI_GEMM_PORTABLE};
  hri_gemm_cache *caches[2];
  hr_error error;
  if (argc > 1) rows = atoll(argv[1]);
  if (argc > 2) repeats = atoi(argv[2]);
  if (argc > 4) first_team = last_team = atoi(argv[4]);
  check(hri_cpu_isa_choose(getenv("HEADROOM_ISA"), &isa, &error), &error);
  check(hri_gemm_cache_create(isa, &caches[0], &error), &error);
  check(hri_gemm_cache_create_with(isa, &portable, &caches[1], &error), &error);
  printf("%s, %s; GFLOP/s, best of %d\n", hri_gemm_library_text(), hri_isa_name(isa), repeats);
  if (strcmp(what, "few") == 0) few_rows();
  else if (strcmp(what, "portable") == 0) {
    printf("     M      N      K  kind    types           library                         portable\n");
    each_product(caches, line_portable);
  } else {
    printf("     M      N      K  kind    types             plain   packed  with packing          packing\n");
    each_product(caches, line_library);
  }
  hri_gemm_cache_destroy(caches[0]);
  hri_gemm_cache_destroy(caches[1]);
  return 0;
}
