/* No kernel touches memory beyond its operands. Every operand lies against a page that cannot be read or written: once
 * with its last byte before that page, once with its first byte behind it. All kernels of src/ops, both types, every
 * instruction level of this processor, teams of 1 to 3, and sizes around the widths of vectors and blocks.
 *
 * Scratch is aligned to 64 bytes by contract, so its end may be up to 63 bytes away from the page. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "ops/attention/cpu.h"
#include "ops/cpu.h"
#include "backend/cpu/gemm_ours.h"
#include "ops/move/random.h"
#include "ops/scratch.h"
#include "program/optimizer.h"
#include "support/team.h"

/* ---- operands against a page of no access ---- */

typedef struct fenced {
  void *pages;
  size_t bytes;
} fenced;

static fenced pool[64];
static int pool_count;
static bool at_end;
static char where[160]; /* what runs, for the message of a fault */

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static void *take_aligned(uint64_t bytes, uint64_t alignment) {
  size_t page = page_bytes(), body = (size_t)hri_round_up(bytes ? bytes : 1, page);
  unsigned char *pages = mmap(NULL, body + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(pages != MAP_FAILED && pool_count < 64);
  pool[pool_count++] = (fenced){pages, body + 2 * page};
  assert_int_equal(mprotect(pages + page, body, PROT_READ | PROT_WRITE), 0);
  return at_end ? pages + page + body - hri_round_up(bytes, alignment) : pages + page;
}
static void *take(uint64_t bytes) { return take_aligned(bytes, 1); }
static void *scratch(uint64_t bytes) { return take_aligned(bytes, 64); }

/* n elements between -1 and 1. */
static void *reals(int64_t n, hri_real real) {
  void *x = take((uint64_t)n * hri_real_bytes(real));
  for (int64_t i = 0; i < n; i++) hri_real_put(x, i, (float)(i * 37 % 101) / 50.0f - 1.0f, real);
  return x;
}
static float *floats(int64_t n) { return reals(n, HRI_REAL_F32); }
static int32_t *indices(int64_t n, int64_t below) {
  int32_t *x = take((uint64_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = (int32_t)(i * 7 % below);
  x[n - 1] = (int32_t)below - 1; /* the last row of the table, which ends at the page */
  return x;
}

static void release(void) {
  while (pool_count > 0) {
    pool_count--;
    (void)munmap(pool[pool_count].pages, pool[pool_count].bytes);
  }
}

/* The fault may be in a thread of the team: there is no way back into the test, only out. */
static void faulted(int signal_number) {
  static const char text[] = "memory beyond an operand was touched: ";
  (void)signal_number;
  if (write(2, text, sizeof text - 1) < 0 || write(2, where, strlen(where)) < 0 || write(2, "\n", 1) < 0) _exit(2);
  _exit(1);
}

/* ---- levels ---- */

typedef struct level {
  const char *name;
  hri_cpu_kernels kernels;
  hri_attention_kernels_table attention;
} level;

static level levels[4];
static int level_count;

#define ADD_LEVEL(isa, attention_isa)                                                                                  \
  do {                                                                                                                 \
    level *l = &levels[level_count++];                                                                                 \
    l->name = #attention_isa;                                                                                          \
    hri_norm_kernels_##isa(&l->kernels);                                                                               \
    hri_pointwise_kernels_##isa(&l->kernels);                                                                          \
    hri_embed_kernels_##isa(&l->kernels);                                                                              \
    hri_loss_kernels_##isa(&l->kernels);                                                                               \
    hri_optim_kernels_##isa(&l->kernels);                                                                              \
    hri_move_kernels_##isa(&l->kernels);                                                                               \
    hri_attention_kernels_##attention_isa(&l->attention);                                                              \
  } while (0)

static int setup(void **state) {
  (void)state;
  ADD_LEVEL(base, base);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) ADD_LEVEL(avx2, avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    ADD_LEVEL(avx512, avx512);
    if (__builtin_cpu_supports("avx512bf16")) ADD_LEVEL(avx512, avx512bf16);
  }
#endif
  return 0;
}

/* One run of a kernel: `variant` counts what a case has of its own. */
typedef struct run_case {
  const level *l;
  hri_real real;
  int threads;
  int64_t rows, columns;
  int variant;
} run_case;

typedef void (*kernel_case)(const run_case *r);

/* On every level, in both types, for each team, at both ends. */
static void run_everywhere(const char *name, kernel_case run, int64_t rows, int64_t columns, int variants) {
  int runs = level_count * 2 * 3 * 2 * variants;
  (void)signal(SIGSEGV, faulted); /* here and not once: cmocka sets its own around each test */
  (void)signal(SIGBUS, faulted);
  for (int i = 0; i < runs; i++) {
    run_case r = {&levels[i % level_count], (hri_real)(i / level_count % 2), i / level_count / 2 % 3 + 1, rows, columns,
                  i / level_count / 12};
    at_end = i / level_count / 6 % 2 == 0;
    (void)snprintf(where, sizeof where, "%s on %s, %s, %d threads, %lld x %lld, variant %d, fence at the %s", name,
                   r.l->name, r.real == HRI_REAL_BF16 ? "bf16" : "fp32", r.threads, (long long)rows, (long long)columns,
                   r.variant, at_end ? "end" : "start");
    run(&r);
    release();
  }
}

/* Shapes around the widths of vectors; the last has enough elements for a team. */
static void over_shapes(const char *name, kernel_case run, int variants) {
  static const int64_t shapes[][2] = {{1, 1}, {3, 17}, {5, 31}, {2, 64}, {4, 100}, {33, 513}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    run_everywhere(name, run, shapes[i][0], shapes[i][1], variants);
}

/* ---- norms ---- */

static void norm_case(const run_case *r) {
  int64_t n = r->rows * r->columns;
  bool layer = r->variant & 1, residual = r->variant & 2;
  const hri_cpu_kernels *k = &r->l->kernels;
  hri_norm_args a = {.rows = r->rows,
                     .columns = r->columns,
                     .real = r->real,
                     .x = reals(n, r->real),
                     .weight = floats(r->columns),
                     .weight_offset = layer ? 0 : 1,
                     .bias = residual ? floats(r->columns) : NULL,
                     .eps = 1e-5,
                     .y = reals(n, r->real),
                     .stats = floats(layer ? 2 * r->rows : r->rows),
                     .team = team_of(r->threads)};
  if (residual) a.residual = reals(n, r->real), a.s = reals(n, r->real);
  (layer ? k->layernorm : k->rmsnorm)(&a);
}

static void norm_backward_case(const run_case *r) {
  int64_t n = r->rows * r->columns;
  bool layer = r->variant & 1, all = r->variant & 2;
  const hri_cpu_kernels *k = &r->l->kernels;
  hri_norm_backward_args a = {.rows = r->rows,
                              .columns = r->columns,
                              .real = r->real,
                              .dy = reals(n, r->real),
                              .x = reals(n, r->real),
                              .stats = floats(layer ? 2 * r->rows : r->rows),
                              .weight = floats(r->columns),
                              .weight_offset = layer ? 0 : 1,
                              .extra = all ? reals(n, r->real) : NULL,
                              .dx = reals(n, r->real),
                              .dweight = floats(r->columns),
                              .dbias = all ? floats(r->columns) : NULL,
                              .accumulate = all,
                              .scratch =
                                  scratch(hri_norm_backward_scratch_bytes(r->rows, r->columns, true, all, r->threads)),
                              .team = team_of(r->threads)};
  (layer ? k->layernorm_backward : k->rmsnorm_backward)(&a);
}

/* `columns` is the size of a head; 3 heads of queries, 1 of keys and values, or 2 and 2, or as many with longer keys. */
static void head_norm_case(const run_case *r) {
  int64_t heads = r->variant ? 2 : 3, kv = r->variant ? 2 : 1, d = r->columns, e = r->variant == 2 ? d + 3 : d,
          n = r->rows * (heads * d + 2 * kv * e);
  hri_head_norm_args a = {.rows = r->rows,
                          .heads = heads,
                          .kv_heads = kv,
                          .head_size = d,
                          .key_size = e,
                          .real = r->real,
                          .x = reals(n, r->real),
                          .wq = floats(d),
                          .wk = floats(e),
                          .weight_offset = 1,
                          .eps = 1e-6,
                          .y = reals(n, r->real),
                          .stats = floats(r->rows * (heads + kv)),
                          .team = team_of(r->threads)};
  hri_head_norm_backward_args b = {.rows = r->rows,
                                   .heads = heads,
                                   .kv_heads = kv,
                                   .head_size = d,
                                   .key_size = e,
                                   .real = r->real,
                                   .dy = reals(n, r->real),
                                   .x = a.x,
                                   .stats = a.stats,
                                   .wq = a.wq,
                                   .wk = a.wk,
                                   .weight_offset = 1,
                                   .dx = reals(n, r->real),
                                   .dwq = floats(d),
                                   .dwk = floats(e),
                                   .scratch = scratch(hri_head_norm_backward_scratch_bytes(r->rows, d, e, r->threads)),
                                   .team = team_of(r->threads)};
  r->l->kernels.head_norm(&a);
  r->l->kernels.head_norm_backward(&b);
}

/* Three parts, of which two or all have magnitudes; lengths of rows with two columns more, of products of rank 3. */
static void dora_case(const run_case *r) {
  int64_t n = r->rows * r->columns, first = r->columns / 2, second = r->columns / 3;
  int64_t third = r->columns - first - second, with = r->variant ? first + third : r->columns, inner = r->columns + 2;
  const hri_cpu_kernels *k = &r->l->kernels;
  hri_dora_args a = {.rows = r->rows,
                     .columns = r->columns,
                     .real = r->real,
                     .parts = {first, second, third},
                     .having = r->variant ? 5 : 7,
                     .magnitudes = floats(with),
                     .lengths = floats(with),
                     .z = reals(n, r->real),
                     .bias = r->variant ? NULL : floats(r->columns),
                     .y = reals(n, r->real),
                     .dy = reals(n, r->real),
                     .dz = reals(n, r->real),
                     .dmagnitudes = floats(with),
                     .accumulate = r->variant,
                     .scratch = scratch(hri_dora_scratch_bytes(r->rows, r->columns, true, r->threads)),
                     .team = team_of(r->threads)};
  hri_row_lengths_args b = {.rows = r->columns,
                            .columns = inner,
                            .rank = 3,
                            .real = r->real,
                            .w = reals(r->columns * inner, r->real),
                            .a = r->variant ? NULL : floats(3 * inner),
                            .b = r->variant ? NULL : floats(r->columns * 3),
                            .scale = 0.5f,
                            .lengths = floats(r->columns),
                            .team = team_of(r->threads)};
  k->dora_backward(&a);
  a.scratch = scratch(hri_dora_scratch_bytes(r->rows, r->columns, false, r->threads));
  k->dora(&a);
  k->row_lengths(&b);
}

static void norms_stay_inside(void **state) {
  (void)state;
  over_shapes("norm", norm_case, 4);
  over_shapes("norm backward", norm_backward_case, 4);
  over_shapes("head norm", head_norm_case, 3);
  over_shapes("dora", dora_case, 2);
}

/* ---- pointwise ---- */

static void flat_case(const run_case *r) {
  const hri_cpu_kernels *k = &r->l->kernels;
  int64_t n = r->rows * r->columns;
  void *a = reals(n, r->real), *b = reals(n, r->real), *y = reals(n, r->real);
  hr_activation kind = (hr_activation)r->variant;
  k->add(y, a, b, n, r->real, team_of(r->threads));
  k->scale(y, a, 2.0f, n, r->real, team_of(r->threads));
  k->softcap(y, a, 3.0f, n, r->real, team_of(r->threads));
  k->activation(kind, y, a, n, r->real, team_of(r->threads));
  k->activation_backward(kind, y, a, b, n, r->real, team_of(r->threads));
  k->math((hri_math)(r->variant % HRI_MATH_COUNT), floats(n), floats(n), n);
}

static void dropout_case(const run_case *r) {
  int64_t n = r->rows * r->columns;
  hri_dropout_args a = {.rows = r->rows,
                        .columns = r->columns,
                        .sequence = r->rows,
                        .real = r->real,
                        .probability = r->variant ? 0.9 : 0.1,
                        .draw = {.seed = 5, .step = 2, .site = 77},
                        .x = reals(n, r->real),
                        .y = reals(n, r->real),
                        .team = team_of(r->threads)};
  hri_noise_args b = {.rows = r->rows,
                      .columns = r->columns,
                      .sequence = 1,
                      .real = r->real,
                      .amplitude = 0.3,
                      .draw = a.draw,
                      .x = reals(n, r->real),
                      .y = reals(n, r->real),
                      .team = team_of(r->threads)};
  r->l->kernels.dropout(&a);
  r->l->kernels.noise(&b);
}

static void gated_case(const run_case *r) {
  const hri_cpu_kernels *k = &r->l->kernels;
  int64_t n = r->rows * r->columns;
  void *gu = reals(2 * n, r->real), *y = reals(n, r->real), *dgu = reals(2 * n, r->real);
  k->glu((hr_activation)r->variant, y, gu, r->rows, r->columns, r->real, team_of(r->threads));
  k->glu_backward((hr_activation)r->variant, dgu, y, gu, r->rows, r->columns, r->real, team_of(r->threads));
}

static void bias_case(const run_case *r) {
  r->l->kernels.bias_gradient(floats(r->columns), reals(r->rows * r->columns, r->real), r->rows, r->columns, r->variant,
                              scratch(hri_bias_gradient_scratch_bytes(r->rows, r->columns, r->threads)), r->real,
                              team_of(r->threads));
}

/* Heads of 2 * columns elements, of which all, or all but 2 * (columns / 3), are turned. */
static void rope_case(const run_case *r) {
  int64_t d = 2 * r->columns, rotary = r->variant ? d - 2 * (r->columns / 3) : d, n = r->rows * (3 + 2) * d,
          positions = 9;
  hri_rope_args a = {.rows = r->rows,
                     .heads = 3,
                     .kv_heads = 1,
                     .head_size = d,
                     .rotary_size = rotary,
                     .real = r->real,
                     .x = reals(n, r->real),
                     .y = reals(n, r->real),
                     .cosines = floats(positions * rotary / 2),
                     .sines = floats(positions * rotary / 2),
                     .position = indices(r->rows, positions),
                     .team = team_of(r->threads)};
  r->l->kernels.rope(&a);
  a.x = a.y;
  a.inverse = true;
  r->l->kernels.rope(&a);
}

static void pointwise_kernels_stay_inside(void **state) {
  (void)state;
  over_shapes("flat", flat_case, HR_ACTIVATION_COUNT);
  over_shapes("dropout", dropout_case, 2);
  over_shapes("gated unit", gated_case, HR_ACTIVATION_COUNT);
  over_shapes("bias gradient", bias_case, 2);
  over_shapes("rope", rope_case, 2);
}

/* ---- embedding and loss ---- */

static void embed_case(const run_case *r) {
  int64_t n = r->rows * r->columns, vocabulary = 11, positions = 5;
  hri_embed_args a = {.rows = r->rows,
                      .columns = r->columns,
                      .real = r->real,
                      .tokens = reals(vocabulary * r->columns, r->real),
                      .factor = r->variant & 2 ? 3 : 1,
                      .positions = r->variant & 1 ? reals(positions * r->columns, r->real) : NULL,
                      .ids = indices(r->rows, vocabulary),
                      .position = indices(r->rows, positions),
                      .y = reals(n, r->real),
                      .team = team_of(r->threads)};
  hri_embed_backward_args b = {.rows = r->rows,
                               .columns = r->columns,
                               .real = r->real,
                               .dy = reals(n, r->real),
                               .index = a.ids,
                               .factor = a.factor,
                               .skip_index = -1,
                               .dtable = floats(vocabulary * r->columns),
                               .stored_rows = vocabulary,
                               .accumulate = r->variant & 1,
                               .team = team_of(r->threads)};
  r->l->kernels.embed(&a);
  r->l->kernels.embed_backward(&b);
}

/* `columns` with padding up to a multiple of 8, without it in odd variants; not in place, in place, evaluation. */
static void loss_case(const run_case *r) {
  int64_t stored = r->variant & 1 ? r->columns : (r->columns + 7) / 8 * 8, n = r->rows * stored;
  hri_cross_entropy_args a = {.rows = r->rows,
                              .vocabulary = r->columns,
                              .stored = stored,
                              .softcap = r->variant & 2 ? 5 : 0,
                              .smoothing = r->variant & 1 ? 0.1 : 0,
                              .real = r->real,
                              .logits = reals(n, r->real),
                              .labels = indices(r->rows, r->columns),
                              .gradient_scale = 0.5,
                              .losses = floats(r->rows),
                              .team = team_of(r->threads)};
  r->l->kernels.cross_entropy(&a);
  a.dlogits = reals(n, r->real);
  r->l->kernels.cross_entropy(&a);
  a.logits = a.dlogits;
  r->l->kernels.cross_entropy(&a);
  (void)r->l->kernels.loss_sum(a.losses, r->rows);
}

static void embedding_and_loss_stay_inside(void **state) {
  (void)state;
  over_shapes("embedding", embed_case, 4);
  over_shapes("cross entropy", loss_case, 4);
  run_everywhere("cross entropy", loss_case, 2, 2049, 4); /* more than a chunk */
}

/* ---- optimizer and moves ---- */

/* Odd variants: bf16 weights, or fp32 weights with a bf16 copy. */
static void update_case(const run_case *r) {
  int64_t n = r->rows * r->columns;
  hri_update_numbers numbers = {.number = {0.9, 0.99, 1e-8, 1},
                                .learning_rate = 1e-3,
                                .weight_decay = 0.1,
                                .gradient_scale = 1,
                                .t = 3,
                                .columns = r->columns};
  hri_real w_real = r->variant & 1 ? r->real : HRI_REAL_F32;
  hri_update_args a = {.n = n,
                       .w = reals(n, w_real),
                       .w_real = w_real,
                       .state = {reals(n, r->real), reals(n, r->real)},
                       .state_real = r->real,
                       .g = reals(n, r->real),
                       .gradient_real = r->real,
                       .rounding = {1, 2, 3},
                       .first_element = r->variant & 2 ? 5 : 0,
                       .team = team_of(r->threads)};
  if (r->real == HRI_REAL_F32 && r->variant & 1) {
    a.w_real = r->variant & 4 ? HRI_REAL_F32 : HRI_REAL_BF16;
    a.w = reals(n, a.w_real);
    *(a.w_real == HRI_REAL_BF16 ? &a.low : &a.copy) = take((uint64_t)n * sizeof *a.low);
  }
  for (int64_t i = 0; i < n; i++) hri_real_put(a.state[1], i, 1, r->real);
  for (uint32_t k = 0; k < HR_OPTIMIZER_COUNT; k++) {
    hri_update_args own = a;
    for (uint32_t t = 0; t < HRI_STATE_TENSORS && hri_state_apart(k); t++) {
      const hri_state_tensor *state = &hri_optimizer_get(k)->tensors[t];
      own.state[t] = NULL;
      if (t < hri_optimizer_get(k)->tensor_count)
        own.state[t] =
            take(hri_state_entries(state, (uint64_t)r->rows, (uint64_t)r->columns) * hri_dtype_bytes(state->dtype));
    }
    r->l->kernels.update[k](&own, &numbers);
  }
  double *partials = take((uint64_t)hri_square_sum_count(n) * sizeof *partials);
  r->l->kernels.square_sum(partials, a.g, r->real, n, team_of(r->threads));
  (void)r->l->kernels.partial_sum(partials, hri_square_sum_count(n));
}

static void move_case(const run_case *r) {
  const hri_cpu_kernels *k = &r->l->kernels;
  hri_real other = r->variant ? HRI_REAL_F32 : HRI_REAL_BF16;
  int64_t n = r->rows * r->columns, bytes = 3 * n + r->variant;
  void *x = reals(n, r->real);
  k->copy(take((uint64_t)bytes), take((uint64_t)bytes), bytes, team_of(r->threads));
  k->zero(take((uint64_t)bytes), bytes, team_of(r->threads));
  k->fill(floats(n), 1.5f, n, team_of(r->threads));
  k->cast(reals(n, other), other, x, r->real, n, team_of(r->threads));
  uint16_t *high = take((uint64_t)n * sizeof *high), *low = take((uint64_t)n * sizeof *low);
  k->split(high, low, floats(n), n, team_of(r->threads));
  k->join(floats(n), high, low, n, team_of(r->threads));
  (void)k->argmax(x, n, r->real);
  (void)k->first_nonfinite(x, n, r->real, team_of(r->threads));
  hri_fill_normal(floats(n), n, 1.0, 1, 2, r->variant, team_of(r->threads));
}

/* `variant` & 1: columns along memory; & 2: blocks of other sizes. */
/* `variant` % 3: the kind; 3: also packed. At the highest level bf16 goes by the dot instruction. */
static void product_case(const run_case *r) {
  hri_gemm_shape s = {.kind = (hri_gemm_kind)(r->variant % 3),
                      .type = r->real,
                      .out = r->real,
                      .m = r->rows,
                      .n = r->columns,
                      .k = r->rows + 14,
                      .packed = r->variant / 3,
                      .threads = r->threads};
  hri_gemm_product p = hri_gemm_product_of(&s);
  hri_isa isa = HRI_ISA_BASE;
  hri_gemm_ours ours;
  void *b = reals(p.depth * p.columns, r->real), *panels;
  if (s.packed && hri_gemm_takes_dots(&s)) return;
  assert_true(hri_isa_parse(r->l->name, &isa));
  ours = hri_gemm_ours_at(isa, r->real == HRI_REAL_BF16 && isa == HRI_ISA_AVX512_BF16 ? HRI_GEMM_DOT : HRI_GEMM_FMA);
  if (s.packed) {
    panels = scratch(hri_gemm_panel_bytes(isa, ours.code, &s));
    hri_gemm_ours_pack(&ours, &s, team_of(r->threads), b, panels);
    b = panels;
  }
  hri_gemm_ours_run(&ours, &s, team_of(r->threads), reals(p.rows * p.depth, r->real), b, NULL,
                    reals(p.rows * p.columns, r->real), scratch(hri_gemm_scratch(isa, ours.code, &s)));
}

static void products_stay_inside(void **state) {
  (void)state;
  over_shapes("product", product_case, 6);
  run_everywhere("product", product_case, 129, 66, 6);
}

static void optimizer_and_moves_stay_inside(void **state) {
  (void)state;
  over_shapes("update", update_case, 8);
  over_shapes("move", move_case, 2);
}

/* ---- attention ---- */

/* `rows` positions of 4 query and 2 key heads of size `columns`; variants: with a window, documents, a soft-cap. */
static void attention_case(const run_case *r) {
  const hri_attention_kernels_table *t = &r->l->attention;
  hri_attention_shape s = {.batch = 1,
                           .sequence = r->rows,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = r->columns,
                           .window = r->variant & 1 ? 9 : 0,
                           .softcap = r->variant & 2 ? 2 : 0,
                           .real = r->real};
  int64_t q = s.sequence * 8 * s.head_dim, n = s.sequence * 4 * s.head_dim;
  void *qkv = reals(q, r->real), *y = reals(n, r->real), *dy = reals(n, r->real), *dqkv = reals(q, r->real);
  void *probs = reals(4 * s.sequence * s.sequence, r->real);
  float *lse = floats(4 * s.sequence);
  int32_t *doc_start = NULL;
  if (r->variant & 1) {
    doc_start = take((uint64_t)s.sequence * sizeof *doc_start);
    for (int32_t i = 0; i < (int32_t)s.sequence; i++) doc_start[i] = i / 13 * 13;
  }
  t->forward(&s, 0.3f, qkv, doc_start, y, lse, scratch(hri_attention_forward_scratch(t->level, &s, r->threads)),
             team_of(r->threads));
  t->backward(&s, 0.3f, dy, qkv, y, lse, doc_start, dqkv,
              scratch(hri_attention_backward_scratch(t->level, &s, r->threads)), team_of(r->threads));
  t->materialized(&s, 0.3f, qkv, doc_start, y, probs,
                  scratch(hri_attention_materialized_scratch(t->level, &s, r->threads)), team_of(r->threads));
  t->materialized_backward(&s, 0.3f, dy, qkv, probs, doc_start, dqkv,
                           scratch(hri_attention_backward_scratch(t->level, &s, r->threads)), team_of(r->threads));
}

/* A full cache: prefill of all but the last position in rows of 40, then that one alone. */
static void cached_case(const run_case *r) {
  const hri_attention_kernels_table *t = &r->l->attention;
  hri_attention_cache_shape s = {.batch = 1,
                                 .rows = 40,
                                 .capacity = r->rows,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = r->columns,
                                 .window = r->variant & 1 ? 9 : 0,
                                 .softcap = r->variant & 2 ? 2 : 0,
                                 .real = r->real};
  void *keys = reals(hri_attention_cache_elements(&s), r->real),
       *values = reals(hri_attention_cache_elements(&s), r->real);
  void *qkv = reals(s.rows * 8 * s.head_dim, r->real), *y = reals(s.rows * 4 * s.head_dim, r->real),
       *room = scratch(hri_attention_cached_scratch(t->level, &s, r->threads));
  for (int64_t past = 0; past < s.capacity - 1; past += 40) {
    int64_t valid = s.capacity - 1 - past < 40 ? s.capacity - 1 - past : 40;
    t->cached(&s, 0.3f, qkv, past, valid, keys, values, y, room, team_of(r->threads));
  }
  s.rows = 1;
  t->cached(&s, 0.3f, reals(8 * s.head_dim, r->real), s.capacity - 1, 1, keys, values, reals(4 * s.head_dim, r->real),
            scratch(hri_attention_cached_scratch(t->level, &s, r->threads)), team_of(r->threads));
}

static void attention_stays_inside(void **state) {
  static const int64_t sizes[] = {2, 10, 20, 33, 64, 80, 96};
  (void)state;
  for (int i = 0; i < 7; i++) {
    run_everywhere("attention", attention_case, 1 + i * 23, sizes[i], 4);
    run_everywhere("cached attention", cached_case, 32 + 64 * (i % 3), sizes[i], 4);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(norms_stay_inside),
      cmocka_unit_test(pointwise_kernels_stay_inside),
      cmocka_unit_test(embedding_and_loss_stay_inside),
      cmocka_unit_test(optimizer_and_moves_stay_inside),
      cmocka_unit_test(products_stay_inside),
      cmocka_unit_test(attention_stays_inside),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
