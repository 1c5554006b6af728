/* Dequantizing and quantizing weights, blocks of GGUF files that are kept too, beside a copy.
 *
 *   bench_quant [threads, default 2 [part of a kind's name, default "" for all [instruction set, default the best]]]
 *
 * GB/s count each byte that a kernel must move once: codes and scales read (or written), weights written (or read). The
 * yardstick is a plain copy, each byte read and each written counted, as large as the weight: both are timed in turns,
 * so that neighbours disturb both alike, and the best of several turns counts. The share is the quotient of the two
 * rates. Weights are 11008 x 4096 (a large one of a model of 7 billion) and 768 x 768, which stays in the cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ops/cpu.h"
#include "ops/move/random.h"
#include "ops/scratch.h"
#include "support/team.h"

#define ISA_KERNELS(suffix, table) (hri_move_kernels_##suffix(table), hri_quant_kernels_##suffix(table))
#include "support/isas.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *need(uint64_t bytes) {
  uint64_t room = hri_round_up(bytes, 2u << 20);
  void *memory = NULL;
  if (posix_memalign(&memory, 2u << 20, room) != 0) exit(1);
  (void)madvise(memory, room, MADV_HUGEPAGE);
  return memset(memory, 1, room);
}

/* ---- the yardstick: whole lines, stored as dequantizing stores them ---- */

typedef uint64_t line __attribute__((vector_size(64), may_alias));
enum { BLOCK = 512 }; /* lines per item */

typedef struct copied {
  line *to;
  const line *from;
  int64_t lines;
} copied;

static void copy_lines(void *context, int64_t begin, int64_t end, int thread) {
  const copied *c = context;
  (void)thread;
  for (int64_t i = begin * BLOCK; i < end * BLOCK && i < c->lines; i++) c->to[i] = ~c->from[i]; /* no memcpy of this */
}

/* ---- measuring ---- */

typedef struct shape {
  uint64_t rows, columns;
  int turns;
} shape;

/* `type`: of blocks that are kept (hri_dtype). */
static void measure(const hri_cpu_kernels *k, uint32_t kind, uint8_t type, hri_real real, const shape *s, int threads) {
  hri_quant_layout layout;
  hri_quant_args a = {.kind = kind, .layout = &layout, .real = real, .team = team_of(threads)};
  uint64_t n = s->rows * s->columns, weight_bytes = n * hri_real_bytes(real);
  double best[3] = {1e9, 1e9, 1e9}, moved;
  float *values = need(n * sizeof *values);
  copied yard = {.lines = (int64_t)(weight_bytes / 64)};
  bool kept = kind == HRI_QUANTIZATION_KEEP;
  if (!hri_quant_layout_make(kind, &s->rows, kept ? &type : NULL, 1, s->columns, &layout)) abort();
  a.w = need(weight_bytes), a.codes = need(layout.code_bytes), a.absmax = need(layout.absmax_count * 4);
  a.nested = need(layout.nested_count * 4 + 1), a.scratch = need(layout.absmax_count * 4);
  yard.to = need(weight_bytes), yard.from = a.w;
  hri_fill_normal(values, (int64_t)n, 0.02, 1, 0, 0, a.team);
  k->cast(a.w, real, values, HRI_REAL_F32, (int64_t)n, a.team);
  if (kept) memset(a.codes, 0x20, layout.code_bytes); /* scales of 0.008 */
  for (int turn = 0; turn < s->turns; turn++) {
    double at[4];
    at[0] = now();
    hri_team_each(a.team, (yard.lines + BLOCK - 1) / BLOCK, 1, copy_lines, &yard);
    at[1] = now();
    if (!kept && k->quantize(&a) >= 0) abort();
    at[2] = now();
    k->dequantize(&a);
    at[3] = now();
    for (int i = 0; i < 3; i++) best[i] = at[i + 1] - at[i] < best[i] ? at[i + 1] - at[i] : best[i];
  }
  moved = (double)(layout.bytes + weight_bytes);
  printf("  %6.1f", 2e-9 * (double)weight_bytes / best[0]);
  if (kept) printf(" %6s", "-");
  else printf(" %6.1f", moved / best[1] * 1e-9);
  printf(" %6.1f %4.0f %%", moved / best[2] * 1e-9, 100 * moved / best[2] / (2 * (double)weight_bytes / best[0]));
  free(a.w), free(a.codes), free(a.absmax), free(a.nested), free(a.scratch), free(yard.to), free(values);
}

static const shape shapes[] = {{11008, 4096, 7}, {768, 768, 300}};

static void measure_row(const hri_cpu_kernels *k, uint32_t kind, uint8_t type, const char *name, int threads) {
  printf("%-8s", name);
  for (int i = 0; i < 4; i++) {
    measure(k, kind, type, i < 2 ? HRI_REAL_BF16 : HRI_REAL_F32, &shapes[i % 2], threads);
    (void)fflush(stdout);
  }
  printf("\n");
}

static void measure_all(const isa *level, int threads, const char *only) {
  const hri_cpu_kernels *k = &level->kernels;
  printf("%s, %d threads: GB/s of a copy, quantizing, dequantizing, and the last over the first\n%-8s", level->name,
         threads, "");
  for (int i = 0; i < 4; i++)
    printf("  %-28s", i == 0   ? "bf16, 11008 x 4096"
                      : i == 1 ? "bf16, 768 x 768"
                      : i == 2 ? "fp32, 11008 x 4096"
                               : "fp32, 768 x 768");
  printf("\n");
  for (uint32_t kind = HRI_QUANTIZATION_NF4; kind <= HRI_QUANTIZATION_INT8; kind++) {
    if (only && !strstr(hri_quantization_name(kind), only)) continue;
    measure_row(k, kind, HRI_U8, hri_quantization_name(kind), threads);
  }
  for (uint8_t type = HRI_Q4_0; type <= HRI_IQ4_XS; type++) {
    if (only && !strstr(hri_dtype_name((hri_dtype)type), only)) continue;
    measure_row(k, HRI_QUANTIZATION_KEEP, type, hri_dtype_name((hri_dtype)type), threads);
  }
}

int main(int argc, char **argv) {
  const char *only = argc > 2 ? argv[2] : NULL;
  const isa *level = isa_asked(argv[0], argc > 3 ? argv[3] : NULL);
  if (!level) return 2;
  measure_all(level, argc > 1 ? atoi(argv[1]) : 2, only);
  return 0;
}
