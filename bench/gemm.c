/* Rate of matrix products: of GPT-2 124M and SmolLM2-135M layers, of sides that are powers of two, and of small ones.
 *
 *   bench_gemm [rows [repeats [what [threads]]]]     rows: tokens per product (1024); repeats: rounds, of which the
 *                                                    median counts (7)
 *     what = providers  each code that the level has (the default)
 *     what = packed     the one that the shipped table chooses, with plain and with packed b, alone and together with
 *                       the packing
 *     what = few        forward with 1 to 16 rows (generation), as GB/s of reading w; rows do not matter
 *     threads           1 and 2 unless given; one thread is timed by its own processor time
 *
 * One line per product, team, kind and types. What is compared is measured in turns, since the machine's rate may swing
 * with its neighbours: compare within a line. In each round the peak is measured too, of multiply-adds on fp32 vectors
 * of the level and of the dot instruction, by the same team in registers alone; a share is the median of the rounds'. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "backend/cpu/gemm.h"
#include "support/team.h"

static const char *const kinds[] = {"forward", "dx", "dw"};
/* Rows (0: as asked for), N, K. */
static const int64_t sides[][3] = {{0, 2304, 768}, {0, 768, 768}, {0, 3072, 768}, {0, 768, 3072}, {0, 50304, 768},
                                   {0, 960, 576},  {0, 576, 576}, {0, 3072, 576}, {0, 576, 1536}, {0, 49152, 576}};
static const int64_t squares[][3] = {{512, 512, 512},    {1024, 1024, 1024}, {2048, 2048, 2048}, {1024, 4096, 1024},
                                     {1024, 1024, 4096}, {32, 32, 32},       {64, 64, 64},       {128, 128, 128},
                                     {256, 256, 256},    {16, 768, 768},     {64, 768, 768},     {77, 100, 91}};
enum { SIDES = sizeof sides / sizeof *sides, SQUARES = sizeof squares / sizeof *squares, MOST_ROUNDS = 64 };

static hri_isa isa;
static int64_t rows = 1024;
static int repeats = 7, first_team = 1, last_team = 2;
static hri_team *team; /* of the line's threads */

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

/* ---- the peak ---- */

enum { PEAK_LOOPS = 40000, PEAK_CHAINS = 24 };
#if defined(__x86_64__)
/* 24 operations on 12 chains; the operands are ordinary numbers, since zeros would draw less power. */
#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define LOOP(X, spread)                                                                                                \
  __asm__ volatile("movd %1, %%xmm12\n\tmovd %2, %%xmm13\n\t" spread "1:\n\t" TWELVE(X) TWELVE(X) "dec %0\n\tjnz 1b"   \
                   : "+r"(loops)                                                                                       \
                   : "r"(0x3a8341a7), "r"(0x3b93b2c9)                                                                  \
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
                     "xmm12", "xmm13")
#define FMA_YMM(i) "vfmadd231ps %%ymm12, %%ymm13, %%ymm" #i "\n\t"
#define FMA_ZMM(i) "vfmadd231ps %%zmm12, %%zmm13, %%zmm" #i "\n\t"
#define DOT_ZMM(i) "vdpbf16ps %%zmm12, %%zmm13, %%zmm" #i "\n\t"
#define SPREAD_YMM "vbroadcastss %%xmm12, %%ymm12\n\tvbroadcastss %%xmm13, %%ymm13\n\t"
#define SPREAD_ZMM "vbroadcastss %%xmm12, %%zmm12\n\tvbroadcastss %%xmm13, %%zmm13\n\t"
static void fma_ymm(int64_t loops) { LOOP(FMA_YMM, SPREAD_YMM); }
static void fma_zmm(int64_t loops) { LOOP(FMA_ZMM, SPREAD_ZMM); }
static void dot_zmm(int64_t loops) { LOOP(DOT_ZMM, SPREAD_ZMM); }
#endif

typedef struct peak {
  void (*run)(int64_t loops); /* NULL: the level has no such instruction */
  double flops;               /* of an operation */
} peak;

static peak peak_of(bool dot) {
#if defined(__x86_64__)
  if (dot && isa >= HRI_ISA_AVX512_BF16) return (peak){dot_zmm, 64};
  if (!dot && isa >= HRI_ISA_AVX512) return (peak){fma_zmm, 32};
  if (!dot && isa == HRI_ISA_AVX2) return (peak){fma_ymm, 16};
#endif
  (void)dot;
  return (peak){NULL, 0};
}

static void peak_body(void *context, int64_t begin, int64_t end, int thread) {
  const peak *p = context;
  (void)thread;
  for (; begin < end; begin++) p->run(PEAK_LOOPS);
}

/* GFLOP/s; 0: none. */
static double peak_rate(bool dot, int threads) {
  peak p = peak_of(dot);
  double start = now(threads);
  if (!p.run) return 0;
  hri_team_each(team, threads, 1, peak_body, &p);
  return 1e-9 * threads * PEAK_LOOPS * PEAK_CHAINS * p.flops / (now(threads) - start);
}

static void *room_for(uint64_t bytes) {
  void *p = aligned_alloc(4096, hri_round_up(bytes + 1, 4096));
  if (!p) exit(1);
  return p;
}
static void *filled(int64_t count, hri_real type) {
  void *p = room_for((uint64_t)count * hri_real_bytes(type));
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

/* ---- contenders ---- */

/* One way to run a product: by a cache, with b packed or not. */
typedef struct contender {
  hri_gemm *gemm; /* NULL: it is not offered */
  int threads;
  void *scratch, *packed;
  double seconds[MOST_ROUNDS], packing[MOST_ROUNDS], share[MOST_ROUNDS];
  int rounds;
} contender;

static void contender_make(contender *c, hri_gemm_cache *cache, hri_gemm_shape s, const operands *o) {
  uint64_t bytes, packed_bytes = 0;
  hr_error error;
  *c = (contender){.threads = s.threads};
  if (s.packed) {
    check(hri_gemm_packed_bytes(cache, &s, &packed_bytes, &error), &error);
    if (!packed_bytes) return;
    c->packed = room_for(packed_bytes);
  }
  check(hri_gemm_workspace(cache, &s, &bytes, &error), &error);
  check(hri_gemm_prepare(cache, &s, &c->gemm, &error), &error);
  c->scratch = room_for(bytes);
  if (c->packed) hri_gemm_pack(c->gemm, team, o->b, c->packed);
}
static void contender_free(contender *c) {
  free(c->scratch);
  free(c->packed);
}

static void once(contender *c, const operands *o, double flop, double most) {
  double start = now(c->threads), packed, end;
  if (!c->gemm) return;
  if (c->packed) hri_gemm_pack(c->gemm, team, o->b, c->packed);
  packed = now(c->threads);
  hri_gemm_run(c->gemm, team, o->a, c->packed ? c->packed : o->b, NULL, o->c, c->scratch);
  end = now(c->threads);
  c->packing[c->rounds] = packed - start;
  c->seconds[c->rounds] = end - packed;
  c->share[c->rounds++] = most > 0 ? flop / (end - packed) / most : 0;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static double median(const double *values, int count) {
  double sorted[MOST_ROUNDS];
  memcpy(sorted, values, (size_t)count * sizeof *values);
  qsort(sorted, (size_t)count, sizeof *sorted, ascending);
  return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static void print_shape(const hri_gemm_shape *s) {
  static const char *const names[] = {"f32", "bf16"};
  printf("%6lld %6lld %6lld  %-7s %-4s %-4s %2d", (long long)s->m, (long long)s->n, (long long)s->k, kinds[s->kind],
         names[s->type], names[s->out], s->threads);
}

static double giga(const hri_gemm_shape *s) { return 2e-9 * (double)s->m * (double)s->n * (double)s->k; }

/* ---- lines ---- */

enum { CACHES = HRI_GEMM_PROVIDER_COUNT };
typedef void line(hri_gemm_cache *const caches[CACHES], hri_gemm_shape s);

/* GFLOP/s, and the share of the peak of its instruction. */
static void print_rate(const contender *c, double flop) {
  if (c->rounds) printf("  %7.1f %5.1f %%", flop / median(c->seconds, c->rounds), 100 * median(c->share, c->rounds));
  else printf("  %15s", "-");
}

static void line_providers(hri_gemm_cache *const caches[CACHES], hri_gemm_shape s) {
  double flop = giga(&s), peaks[2][MOST_ROUNDS];
  operands o = operands_make(&s);
  static contender each[CACHES];
  bool bf16 = s.type == HRI_REAL_BF16;
  for (int v = HRI_GEMM_BY_FMA; v < CACHES; v++) {
    contender_make(&each[v], caches[v], s, &o);
    /* What falls back to ours is not shown twice. */
    if (v == HRI_GEMM_BY_DOT && strncmp(hri_gemm_implementation(each[v].gemm), "dot", 3) != 0) each[v].gemm = NULL;
    if (v == HRI_GEMM_BY_TILES && strncmp(hri_gemm_implementation(each[v].gemm), "tiles", 5) != 0) each[v].gemm = NULL;
    once(&each[v], &o, flop, 1);
    each[v].rounds = 0;
  }
  for (int i = 0; i < repeats; i++) {
    double fma = peaks[0][i] = peak_rate(false, s.threads), dot = peaks[1][i] = bf16 ? peak_rate(true, s.threads) : 0;
    for (int v = HRI_GEMM_BY_FMA; v < CACHES; v++) once(&each[v], &o, flop, v == HRI_GEMM_BY_FMA || !bf16 ? fma : dot);
  }
  print_shape(&s);
  printf("  %6.1f %6.1f", median(peaks[0], repeats), median(peaks[1], repeats));
  for (int v = HRI_GEMM_BY_FMA; v < CACHES; v++) {
    print_rate(&each[v], flop);
    contender_free(&each[v]);
  }
  printf("\n");
  operands_free(&o);
}

static void line_packed(hri_gemm_cache *const caches[CACHES], hri_gemm_shape s) {
  hri_gemm_product p = hri_gemm_product_of(&s);
  double flop = giga(&s), bytes = 1e-9 * (double)(p.depth * p.columns) * (double)hri_real_bytes(s.type);
  operands o = operands_make(&s);
  static contender plain, packed;
  contender_make(&plain, caches[HRI_GEMM_AUTO], s, &o);
  s.packed = true;
  contender_make(&packed, caches[HRI_GEMM_AUTO], s, &o);
  s.packed = false;
  for (int i = 0; i < repeats; i++) {
    double both = 0;
    once(&plain, &o, flop, 1);
    once(&packed, &o, flop, 1);
    if (packed.gemm) both = packed.seconds[i] + packed.packing[i];
    packed.share[i] = both > 0 ? plain.seconds[i] / both : 0; /* with the packing, against plain */
    plain.share[i] = packed.gemm ? plain.seconds[i] / packed.seconds[i] : 0;
  }
  print_shape(&s);
  printf("  %7.1f", flop / median(plain.seconds, repeats));
  if (packed.gemm)
    printf("  %7.1f (%+5.1f %%)  with packing (%+5.1f %%)  %6.1f GB/s%s", flop / median(packed.seconds, repeats),
           100 * (median(plain.share, repeats) - 1), 100 * (median(packed.share, repeats) - 1),
           bytes / median(packed.packing, repeats), hri_gemm_packing_pays(&s) ? "  pays" : "      ");
  printf("  %s\n", hri_gemm_implementation(plain.gemm));
  contender_free(&plain);
  contender_free(&packed);
  operands_free(&o);
}

static void line_few(hri_gemm_cache *const caches[CACHES], hri_gemm_shape s) {
  double gigabytes = 1e-9 * (double)s.n * (double)s.k * (double)hri_real_bytes(s.type);
  operands o = operands_make(&s);
  static contender ours;
  contender_make(&ours, caches[HRI_GEMM_AUTO], s, &o);
  for (int i = 0; i < repeats; i++) once(&ours, &o, 1, 1);
  print_shape(&s);
  printf("  %7.1f %s\n", gigabytes / median(ours.seconds, repeats), hri_gemm_implementation(ours.gemm));
  contender_free(&ours);
  operands_free(&o);
}

/* ---- all of them ---- */

static void each_kind(hri_gemm_cache *const caches[CACHES], const int64_t side[3], line *of) {
  for (int type = 0; type < 2; type++)
    for (int kind = 0; kind < HRI_GEMM_KIND_COUNT; kind++)
      for (int threads = first_team; threads <= last_team; threads++) {
        team = team_of(threads);
        of(caches, (hri_gemm_shape){.kind = (hri_gemm_kind)kind,
                                    .type = (hri_real)type,
                                    .out = kind == HRI_GEMM_DW ? HRI_REAL_F32 : (hri_real)type,
                                    .m = side[0] ? side[0] : rows,
                                    .n = side[1],
                                    .k = side[2],
                                    .threads = threads});
        (void)fflush(stdout);
      }
}

static void few_rows(hri_gemm_cache *const caches[CACHES]) {
  for (int i = 0; i < SIDES; i++)
    for (int type = 0; type < 2; type++)
      for (int threads = first_team; threads <= last_team; threads++)
        for (int64_t m = 1; m <= 16; m += m < 8 ? 1 : 8) {
          team = team_of(threads);
          line_few(caches, (hri_gemm_shape){.kind = HRI_GEMM_FORWARD,
                                            .type = (hri_real)type,
                                            .out = (hri_real)type,
                                            .m = m,
                                            .n = sides[i][1],
                                            .k = sides[i][2],
                                            .threads = threads});
          (void)fflush(stdout);
        }
}

int main(int argc, char **argv) {
  const char *what = argc > 3 ? argv[3] : "providers";
  hri_gemm_cache *caches[CACHES];
  char text[HRI_GEMM_TEXT_BYTES];
  hr_error error;
  if (argc > 1) rows = atoll(argv[1]);
  if (argc > 2) repeats = atoi(argv[2]) < MOST_ROUNDS ? atoi(argv[2]) : MOST_ROUNDS;
  if (argc > 4) first_team = last_team = atoi(argv[4]);
  if (rows < 1 || repeats < 1 || first_team < 1) return 2;
  check(hri_cpu_isa_choose(getenv("HEADROOM_ISA"), &isa, &error), &error);
  for (int v = 0; v < CACHES; v++) {
    check(hri_gemm_cache_create(isa, (hri_gemm_provider)v, &caches[v], &error), &error);
  }
  printf("%s, %s; GFLOP/s, medians of %d\n",
         hri_gemm_text(&(hri_gemm_machine){.level = isa, .pairs = hri_cpu_pairs()}, text), hri_isa_name(isa), repeats);
  if (strcmp(what, "few") == 0) {
    printf("     M      N      K  kind    types    T     GB/s of w\n");
    few_rows(caches);
  } else if (strcmp(what, "packed") == 0) {
    printf("     M      N      K  kind    types    T    plain   packed\n");
    for (int i = 0; i < SIDES; i++) each_kind(caches, sides[i], line_packed);
  } else {
    printf(
        "     M      N      K  kind    types    T    peak    dot     multiply-adds              dot            tiles\n");
    for (int i = 0; i < SIDES; i++) each_kind(caches, sides[i], line_providers);
    for (int i = 0; i < SQUARES; i++) each_kind(caches, squares[i], line_providers);
  }
  for (int v = 0; v < CACHES; v++) hri_gemm_cache_destroy(caches[v]);
  return 0;
}
