/* Memory throughput of the element-wise and reduction kernels, in fp32 and in bf16, beside a loop that moves the same
 * bytes.
 *
 *   bench_kernels [threads, default 2 [part of a kernel's name, default "" for all [instruction set, default the
 *   best]]]
 *
 * Prints GB/s of the necessary traffic (each operand read or written once) and its share of what the yardstick moves:
 * as
 * many arrays read and written, in place or elsewhere as in the kernel (a write to a line that is not cached reads it
 * first), with next to no arithmetic. Both are timed in turns, so that neighbours disturb both alike, and the best of
 * several turns counts. Arrays are of 64 MiB, more than the last cache, and of 786 KiB; both hold whole rows of logits
 * and, nearly, of 768 columns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ops/cpu.h"
#include "ops/move/random.h"
#include "ops/scratch.h"
#include "support/team.h"

#define ISA_KERNELS(suffix, table)                                                                                     \
  (hri_norm_kernels_##suffix(table), hri_pointwise_kernels_##suffix(table), hri_embed_kernels_##suffix(table),         \
   hri_loss_kernels_##suffix(table), hri_move_kernels_##suffix(table))
#include "support/isas.h"

enum { COLUMNS = 768, VOCABULARY = 50257, STORED = 50304, HIDDEN = 2048, HEAD = 128, POSITIONS = 1024, ARRAYS = 5 };

/* Operands of one size and type. All arrays have n elements; kernels over rows take n / (their columns) of them. */
typedef struct operands {
  hri_real real;
  hri_team *team;
  int64_t n;
  void *array[ARRAYS];
  float *scratch, *stats, *table, *angles;
  int32_t *index, *position;
} operands;

typedef struct kernel_case {
  const char *name;
  void (*run)(const hri_cpu_kernels *k, const operands *m);
  int reads, writes; /* arrays */
  bool in_place;     /* the first one written is the first one read */
  double share;      /* of the n elements of each array */
} kernel_case;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the yardstick ---- */

typedef uint64_t line __attribute__((vector_size(64), may_alias));
enum { BLOCK = 512 }; /* lines per item */

static HRI_INLINE void move_block(line *const *array, int64_t i, int64_t end, int reads, int writes, bool in_place,
                                  line *seen) {
  for (; i < end; i++) {
    line v = ~array[0][i]; /* the complement: else nothing would be stored in place */
    for (int r = 1; r < reads; r++) v ^= array[r][i];
    if (writes > 0) array[in_place ? 0 : 3][i] = v;
    if (writes > 1) array[4][i] = v;
    if (writes == 0) *seen ^= v;
  }
}

typedef struct moved {
  const kernel_case *c;
  line *array[ARRAYS];
  int64_t lines;
} moved;

static void move_blocks(void *context, int64_t first, int64_t last, int thread) {
  const moved *m = context;
  const kernel_case *c = m->c;
  line *const *array = m->array, all = {0};
  (void)thread;
  for (int64_t begin = first * BLOCK; begin < last * BLOCK && begin < m->lines; begin += BLOCK) {
    int64_t end = begin + BLOCK < m->lines ? begin + BLOCK : m->lines;
    line seen = {0};
#define MOVE(r, w, p)                                                                                                  \
  if (c->reads == r && c->writes == w && c->in_place == p) move_block(array, begin, end, r, w, p, &seen)
    MOVE(1, 0, false);
    MOVE(1, 1, false);
    MOVE(1, 1, true);
    MOVE(2, 1, false);
    MOVE(2, 1, true);
    MOVE(2, 2, false);
    MOVE(3, 1, false);
    MOVE(3, 2, false);
#undef MOVE
    if (c->reads == 0)
      for (int64_t i = begin; i < end; i++) array[3][i] = all;
    if (seen[0] == 1 && seen[1] == 77) abort(); /* the sums are used */
  }
}

static void move_lines(const operands *m, const kernel_case *c) {
  moved all = {.c = c, .lines = (int64_t)((double)m->n * c->share) * (int64_t)hri_real_bytes(m->real) / 64};
  for (int i = 0; i < ARRAYS; i++) all.array[i] = m->array[i];
  hri_team_each(m->team, (all.lines + BLOCK - 1) / BLOCK, 1, move_blocks, &all);
}

/* ---- the kernels ---- */

static int64_t rows_of(const operands *m, int64_t columns) { return m->n / columns; }

static hri_norm_args norm_args(const operands *m) {
  return (hri_norm_args){.rows = rows_of(m, COLUMNS),
                         .columns = COLUMNS,
                         .real = m->real,
                         .x = m->array[0],
                         .residual = m->array[1],
                         .s = m->array[3],
                         .weight = m->table,
                         .bias = m->table,
                         .eps = 1e-5,
                         .y = m->array[4],
                         .stats = m->stats,
                         .team = m->team};
}
static hri_norm_backward_args norm_backward_args(const operands *m) {
  return (hri_norm_backward_args){.rows = rows_of(m, COLUMNS),
                                  .columns = COLUMNS,
                                  .real = m->real,
                                  .dy = m->array[0],
                                  .x = m->array[1],
                                  .stats = m->stats,
                                  .weight = m->table,
                                  .extra = m->array[2],
                                  .dx = m->array[3],
                                  .dweight = m->table + COLUMNS,
                                  .dbias = m->table + 2 * COLUMNS,
                                  .scratch = m->scratch,
                                  .team = m->team};
}
static void run_rmsnorm(const hri_cpu_kernels *k, const operands *m) {
  hri_norm_args a = norm_args(m);
  a.bias = NULL;
  k->rmsnorm(&a);
}
static void run_layernorm(const hri_cpu_kernels *k, const operands *m) {
  hri_norm_args a = norm_args(m);
  k->layernorm(&a);
}
static void run_rmsnorm_backward(const hri_cpu_kernels *k, const operands *m) {
  hri_norm_backward_args a = norm_backward_args(m);
  a.dbias = NULL;
  k->rmsnorm_backward(&a);
}
static void run_layernorm_backward(const hri_cpu_kernels *k, const operands *m) {
  hri_norm_backward_args a = norm_backward_args(m);
  k->layernorm_backward(&a);
}
/* 16 heads of queries, 8 of keys and values, of HEAD elements. */
static void run_head_norm(const hri_cpu_kernels *k, const operands *m) {
  k->head_norm(&(hri_head_norm_args){.rows = rows_of(m, 32 * HEAD),
                                     .heads = 16,
                                     .kv_heads = 8,
                                     .head_size = HEAD,
                                     .real = m->real,
                                     .x = m->array[0],
                                     .wq = m->table,
                                     .wk = m->table,
                                     .eps = 1e-6,
                                     .y = m->array[3],
                                     .stats = m->stats,
                                     .team = m->team});
}
static void run_head_norm_backward(const hri_cpu_kernels *k, const operands *m) {
  k->head_norm_backward(&(hri_head_norm_backward_args){.rows = rows_of(m, 32 * HEAD),
                                                       .heads = 16,
                                                       .kv_heads = 8,
                                                       .head_size = HEAD,
                                                       .real = m->real,
                                                       .dy = m->array[0],
                                                       .x = m->array[1],
                                                       .stats = m->stats,
                                                       .wq = m->table,
                                                       .wk = m->table,
                                                       .dx = m->array[3],
                                                       .dwq = m->table + COLUMNS,
                                                       .dwk = m->table + 2 * COLUMNS,
                                                       .scratch = m->scratch,
                                                       .team = m->team});
}
static void run_add(const hri_cpu_kernels *k, const operands *m) {
  k->add(m->array[0], m->array[0], m->array[1], m->n, m->real, m->team);
}
static void run_copy(const hri_cpu_kernels *k, const operands *m) {
  k->copy(m->array[3], m->array[0], m->n * (int64_t)hri_real_bytes(m->real), m->team);
}
static void run_zero(const hri_cpu_kernels *k, const operands *m) {
  k->zero(m->array[3], m->n * (int64_t)hri_real_bytes(m->real), m->team);
}
/* From the type to the other one, over as many bytes as one array read and one written. */
static void run_cast(const hri_cpu_kernels *k, const operands *m) {
  if (m->real == HRI_REAL_F32) k->cast(m->array[3], HRI_REAL_BF16, m->array[0], HRI_REAL_F32, m->n, m->team);
  else k->cast(m->array[3], HRI_REAL_F32, m->array[0], HRI_REAL_BF16, m->n / 2, m->team);
}
static void run_bias(const hri_cpu_kernels *k, const operands *m) {
  k->bias_gradient(m->table, m->array[0], rows_of(m, COLUMNS), COLUMNS, false, m->scratch, m->real, m->team);
}
static void run_gelu(const hri_cpu_kernels *k, const operands *m) {
  k->activation(HR_ACTIVATION_GELU_TANH, m->array[3], m->array[0], m->n, m->real, m->team);
}
static void run_gelu_backward(const hri_cpu_kernels *k, const operands *m) {
  k->activation_backward(HR_ACTIVATION_GELU_TANH, m->array[3], m->array[0], m->array[1], m->n, m->real, m->team);
}
static void run_swiglu(const hri_cpu_kernels *k, const operands *m) {
  k->glu(HR_ACTIVATION_SILU, m->array[3], m->array[0], rows_of(m, 2 * HIDDEN), HIDDEN, m->real, m->team);
}
static void run_swiglu_backward(const hri_cpu_kernels *k, const operands *m) {
  k->glu_backward(HR_ACTIVATION_SILU, m->array[3], m->array[1], m->array[0], rows_of(m, 2 * HIDDEN), HIDDEN, m->real,
                  m->team);
}
/* In place, where the quarter of a row that holds the values is not touched. */
static void run_rope(const hri_cpu_kernels *k, const operands *m) {
  k->rope(&(hri_rope_args){.rows = rows_of(m, 48 * 64),
                           .heads = 24,
                           .kv_heads = 12,
                           .head_size = 64,
                           .rotary_size = 64,
                           .real = m->real,
                           .x = m->array[0],
                           .y = m->array[0],
                           .cosines = m->angles,
                           .sines = m->angles + POSITIONS * 32,
                           .position = m->position,
                           .team = m->team});
}
static void run_embed(const hri_cpu_kernels *k, const operands *m) {
  k->embed(&(hri_embed_args){.rows = rows_of(m, COLUMNS),
                             .columns = COLUMNS,
                             .real = m->real,
                             .tokens = m->array[0],
                             .factor = 1,
                             .positions = m->array[1],
                             .ids = m->index,
                             .position = m->position,
                             .y = m->array[3],
                             .team = m->team});
}
/* The table is fp32: half the rows of a bf16 array fit. (Its traffic is counted, here and in the yardstick, as if it
 * were of the type too: in bf16 five bytes move for three.) */
static void run_embed_backward(const hri_cpu_kernels *k, const operands *m) {
  k->embed_backward(&(hri_embed_backward_args){.rows = rows_of(m, COLUMNS) / 2,
                                               .columns = COLUMNS,
                                               .real = m->real,
                                               .dy = m->array[1],
                                               .factor = 1,
                                               .index = m->index + rows_of(m, COLUMNS),
                                               .skip_index = -1,
                                               .dtable = m->array[0],
                                               .stored_rows = rows_of(m, COLUMNS) / 2,
                                               .accumulate = true,
                                               .team = m->team});
}
static hri_cross_entropy_args loss_args(const operands *m) {
  return (hri_cross_entropy_args){.rows = rows_of(m, STORED),
                                  .vocabulary = VOCABULARY,
                                  .stored = STORED,
                                  .real = m->real,
                                  .logits = m->array[0],
                                  .labels = m->index,
                                  .gradient_scale = 1e-3,
                                  .losses = m->stats,
                                  .team = m->team};
}
static void run_loss(const hri_cpu_kernels *k, const operands *m) {
  hri_cross_entropy_args a = loss_args(m);
  a.dlogits = m->array[0];
  k->cross_entropy(&a);
}
static void run_evaluation(const hri_cpu_kernels *k, const operands *m) {
  hri_cross_entropy_args a = loss_args(m);
  k->cross_entropy(&a);
}
static void run_capped_loss(const hri_cpu_kernels *k, const operands *m) {
  hri_cross_entropy_args a = loss_args(m);
  a.dlogits = m->array[0];
  a.softcap = 30;
  k->cross_entropy(&a);
}
static void run_softcap(const hri_cpu_kernels *k, const operands *m) {
  k->softcap(m->array[0], m->array[0], 30.0f, m->n, m->real, m->team);
}
static void run_finite(const hri_cpu_kernels *k, const operands *m) {
  k->first_nonfinite(m->array[0], m->n, m->real, m->team);
}

static const kernel_case cases[] = {
    {"copy", run_copy, 1, 1, false, 1.0},
    {"zero", run_zero, 0, 1, false, 1.0},
    {"cast to the other type", run_cast, 1, 1, false, 0.75},
    {"first nonfinite", run_finite, 1, 0, false, 1.0},
    {"add", run_add, 2, 1, true, 1.0},
    {"bias gradient", run_bias, 1, 0, false, 1.0},
    {"rmsnorm + residual", run_rmsnorm, 2, 2, false, 1.0},
    {"layernorm + residual", run_layernorm, 2, 2, false, 1.0},
    {"rmsnorm backward + residual", run_rmsnorm_backward, 3, 1, false, 1.0},
    {"layernorm backward + residual", run_layernorm_backward, 3, 1, false, 1.0},
    {"head norm", run_head_norm, 1, 1, false, 1.0},
    {"head norm backward", run_head_norm_backward, 2, 1, false, 1.0},
    {"gelu", run_gelu, 1, 1, false, 1.0},
    {"gelu backward", run_gelu_backward, 2, 1, false, 1.0},
    {"swiglu", run_swiglu, 2, 1, false, 0.5},
    {"swiglu backward", run_swiglu_backward, 3, 2, false, 0.5},
    {"rope", run_rope, 1, 1, true, 0.75},
    {"embed", run_embed, 1, 1, false, 1.0},
    {"embed backward", run_embed_backward, 2, 1, true, 0.5},
    {"cross entropy", run_loss, 1, 1, true, 1.0},
    {"cross entropy, soft-cap", run_capped_loss, 1, 1, true, 1.0},
    {"softcap", run_softcap, 1, 1, true, 1.0},
    {"cross entropy, evaluation", run_evaluation, 1, 0, false, 1.0},
};

/* ---- measuring ---- */

static void *need(size_t bytes) {
  size_t room = (bytes + (2u << 20) - 1) / (2u << 20) * (2u << 20);
  void *memory = NULL;
  if (posix_memalign(&memory, 2u << 20, room) != 0) exit(1);
  (void)madvise(memory, room, MADV_HUGEPAGE);
  return memset(memory, 0, bytes);
}

static void refill(const hri_cpu_kernels *k, const operands *m) {
  float *values = need((size_t)m->n * sizeof *values);
  for (int i = 0; i < 3; i++) {
    hri_fill_normal(values, m->n, 1.0, 1, (uint64_t)i, 0, m->team);
    k->cast(m->array[i], m->real, values, HRI_REAL_F32, m->n, m->team);
  }
  free(values);
}

static void measure(const hri_cpu_kernels *k, const operands *m, const kernel_case *c, int turns) {
  double best = 1e9, yard_best = 1e9, bytes;
  for (int turn = 0; turn < turns; turn++) {
    double start = now(), middle, time;
    move_lines(m, c);
    middle = now();
    c->run(k, m);
    time = now() - middle;
    best = time < best ? time : best;
    yard_best = middle - start < yard_best ? middle - start : yard_best;
  }
  bytes = (double)m->n * c->share * (double)hri_real_bytes(m->real) * (c->reads + c->writes);
  printf("  %6.1f GB/s %4.0f %%", bytes / best * 1e-9, 100.0 * yard_best / best);
}

static void make_operands(operands *m, hri_real real, int64_t bytes, int threads) {
  int64_t rows;
  m->real = real;
  m->team = team_of(threads);
  m->n = bytes / (int64_t)hri_real_bytes(real);
  rows = rows_of(m, COLUMNS);
  for (int i = 0; i < ARRAYS; i++) m->array[i] = need((size_t)bytes);
  m->scratch = need(hri_norm_backward_scratch_bytes(rows, COLUMNS, true, true, threads));
  m->stats = need((size_t)(m->n / HEAD) * sizeof(float)); /* of head norms the most: one per head */
  m->table = need(sizeof(float) * 3 * COLUMNS);
  m->angles = need(sizeof(float) * 2 * 32 * POSITIONS);
  m->index = need((size_t)(2 * rows) * sizeof(int32_t));
  m->position = need((size_t)rows * sizeof(int32_t));
  for (int64_t i = 0; i < rows; i++) { /* the second half for the table of half the rows */
    m->index[i] = (int32_t)((uint64_t)i * 2654435761u % (uint64_t)rows);
    m->index[rows + i] = (int32_t)((uint64_t)i * 2654435761u % (uint64_t)(rows / 2));
    m->position[i] = (int32_t)(i % (rows < POSITIONS ? rows : POSITIONS));
  }
}

static void measure_all(const isa *level, int threads, const char *only) {
  const hri_cpu_kernels *k = &level->kernels;
  operands m[4];
  for (int i = 0; i < 4; i++)
    make_operands(&m[i], i < 2 ? HRI_REAL_F32 : HRI_REAL_BF16, (i % 2 ? 4 : 334) * (int64_t)STORED * 4, threads);
  printf("%s, %d threads; GB/s and share of a plain loop over the same bytes\n%-30s  %18s  %18s  %18s  %18s\n",
         level->name, threads, "", "fp32, 64 MiB", "fp32, 786 KiB", "bf16, 64 MiB", "bf16, 786 KiB");
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    if (only && !strstr(cases[c].name, only)) continue;
    printf("%-30s", cases[c].name);
    for (int i = 0; i < 4; i++) {
      refill(k, &m[i]);
      measure(k, &m[i], &cases[c], i % 2 ? 200 : 7);
    }
    printf("\n");
    (void)fflush(stdout);
  }
}

int main(int argc, char **argv) {
  const char *only = argc > 2 ? argv[2] : NULL;
  const isa *level = isa_asked(argv[0], argc > 3 ? argv[3] : NULL);
  if (!level) return 2;
  measure_all(level, argc > 1 ? atoi(argv[1]) : 2, only);
  return 0;
}
