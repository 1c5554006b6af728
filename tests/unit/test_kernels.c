/* The element-wise and reduction kernels of src/ops, for every instruction set that this machine has:
 *   - each result is as near to the double reference as a plain fp32 implementation, times 4;
 *   - the bits are the same for 1, 2, 3 and 4 threads and for every allowed aliasing;
 *   - each backward reference is the directional derivative of its forward reference;
 *   - vector math keeps the errors stated in ops/vmath.h;
 *   - a fused node gives the bits of the nodes that it replaces.
 * Most run three times: with activations in fp32, in bf16 and in fp16.
 *
 * Tolerances. The plain fp32 implementation is the reference itself, compiled for float (ops/reference.h). Per output
 * array the largest absolute error may be 4 times the plain one's, which is at least half an ulp of the largest value
 * (the error of rounding the right result, below which nothing can be asked). No tolerance is a chosen number.
 * In bf16 and fp16 all inputs are exact in the type, so the references see what the kernel sees. The kernel computes in fp32, as
 * near as above, and rounds once, which moves an element by half an ulp of itself at most: that much is added. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "ops/cpu.h"
#include "ops/embed/ref.h"
#include "ops/loss/ref.h"
#include "ops/move/random.h"
#include "ops/move/ref.h"
#include "ops/norm/ref.h"
#include "ops/optim/ref.h"
#include "ops/pointwise/ref.h"
#include "ops/pointwise/rope_table.h"
#include "ops/reference.h"
#include "ops/scratch.h"
#include "program/optimizer.h"

/* The plain fp32 implementations: naive_<op>. */
#undef HRI_REAL
#undef HRI_REF
#undef HRI_REF_API
#define HRI_REAL float
#define HRI_REF(name) naive_##name
#define HRI_REF_API static __attribute__((unused))
#include "ops/embed/ref.c"
#include "ops/loss/ref.c"
#include "ops/norm/ref.c"
#include "ops/optim/ref.c"
#include "ops/pointwise/ref.c"
#include "support/team.h"
/* tgmath.h is in force from here on, with doubles as arguments: the ordinary functions. */

/* ---- memory: everything a test takes is given back after it ---- */

static void *pool[4096];
static size_t pool_count;

static void *take(size_t bytes) {
  void *memory = NULL;
  assert_true(pool_count < sizeof pool / sizeof *pool);
  assert_int_equal(posix_memalign(&memory, 64, bytes ? bytes : 1), 0);
  pool[pool_count++] = memory;
  return memory;
}

static void release_to(size_t mark) {
  while (pool_count > mark) free(pool[--pool_count]);
}

/* The type of activations in the test that runs. */
static hri_real type = HRI_REAL_F32;

static int in_bf16(void **state) {
  (void)state;
  type = HRI_REAL_BF16;
  return 0;
}

static int in_fp16(void **state) {
  (void)state;
  type = HRI_REAL_F16;
  return 0;
}

static int teardown(void **state) {
  (void)state;
  release_to(0);
  type = HRI_REAL_F32;
  return 0;
}

static uint64_t draw_stream = 1;

static float in_type(float x) { return type == HRI_REAL_F32 ? x : hri_narrow_widen(hri_narrow_round(x, type), type); }

/* n values that are exact in the type, uniform in [-range, range). */
static float *floats(int64_t n, double range) {
  float *x = take((size_t)n * sizeof *x);
  uint64_t stream = draw_stream++;
  for (int64_t i = 0; i < n; i++) {
    uint32_t word[4];
    hri_philox(2024, stream, (uint64_t)i, word);
    x[i] = in_type((float)(range * (2.0 * hri_uniform(word[0], word[1]) - 1.0)));
  }
  return x;
}

static int32_t *integers(int64_t n, int32_t below) {
  int32_t *x = take((size_t)n * sizeof *x);
  uint64_t stream = draw_stream++;
  for (int64_t i = 0; i < n; i++) {
    uint32_t word[4];
    hri_philox(2025, stream, (uint64_t)i, word);
    x[i] = (int32_t)(word[0] % (uint32_t)below);
  }
  return x;
}

static float *copy_of(const float *x, int64_t n) {
  float *y = take((size_t)n * sizeof *y);
  if (n) memcpy(y, x, (size_t)n * sizeof *y);
  return y;
}

/* x[n] as an array of the type; an array of the type that nothing was written to (NaN); and its values in fp32. */
static void *operand(const float *x, int64_t n) {
  void *y = take((size_t)n * hri_real_bytes(type));
  for (int64_t i = 0; i < n; i++) hri_real_put(y, i, x[i], type);
  return y;
}
static void *unwritten(int64_t n) {
  return memset(take((size_t)n * hri_real_bytes(type)), 0xff, (size_t)n * hri_real_bytes(type));
}
static void values(float *to, const void *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = hri_real_get(y, i, type);
}

static double *doubles(const float *x, int64_t n) {
  double *y = take((size_t)n * sizeof *y);
  for (int64_t i = 0; i < n; i++) y[i] = (double)x[i];
  return y;
}

static double *double_zeros(int64_t n) {
  double *y = take((size_t)n * sizeof *y);
  for (int64_t i = 0; i < n; i++) y[i] = 0.0;
  return y;
}

/* ---- instruction sets ---- */

#define ISA_KERNELS(suffix, table)                                                                                     \
  do {                                                                                                                 \
    hri_norm_kernels_##suffix(table);                                                                                  \
    hri_pointwise_kernels_##suffix(table);                                                                             \
    hri_embed_kernels_##suffix(table);                                                                                 \
    hri_loss_kernels_##suffix(table);                                                                                  \
    hri_optim_kernels_##suffix(table);                                                                                 \
    hri_move_kernels_##suffix(table);                                                                                  \
  } while (0)
#include "support/isas.h"

/* ---- comparison ---- */

enum { MOST_PIECES = 4 };

/* Outputs of an op, one after the other in one array. */
typedef struct pieces {
  int count;
  int64_t n[MOST_PIECES];
  int narrow; /* the first `narrow` of them are of the type of activations, the others always fp32 */
} pieces;

static int64_t total(const pieces *p) {
  int64_t n = 0;
  for (int i = 0; i < p->count; i++) n += p->n[i];
  return n;
}

/* Half an ulp of x in the type, which is narrow: 8 bits and normal down to 2^-126, or 11 and 2^-14. */
static double half_ulp(double x) {
  int exponent, least = type == HRI_REAL_F16 ? -13 : -125;
  (void)frexp(x, &exponent);
  return ldexp(1.0, (exponent < least ? least : exponent) - (type == HRI_REAL_F16 ? 12 : 9));
}

/* With `rounded`, less what rounding to the type accounts for. */
static double largest_error(const float *got, const double *want, int64_t n, bool rounded) {
  double worst = 0.0;
  for (int64_t i = 0; i < n; i++) {
    double error = fabs((double)got[i] - want[i]);
    if (rounded) error -= half_ulp(fmax(fabs((double)got[i]), fabs(want[i])));
    if (!(error <= worst)) worst = error; /* a NaN stays */
    if (isnan(error)) return HUGE_VAL;
  }
  return worst;
}

static double largest(const double *x, int64_t n) {
  double worst = 0.0;
  for (int64_t i = 0; i < n; i++) worst = fabs(x[i]) > worst ? fabs(x[i]) : worst;
  return worst;
}

static void check_near(const char *name, const char *isa_name, const pieces *p, const float *got, const float *naive,
                       const double *want) {
  for (int i = 0; i < p->count; i++) {
    double plain = largest_error(naive, want, p->n[i], false);
    double error = largest_error(got, want, p->n[i], type != HRI_REAL_F32 && i < p->narrow);
    double rounding = 0.5 * (double)FLT_EPSILON * largest(want, p->n[i]);
    double limit = 4.0 * (plain > rounding ? plain : rounding);
    if (!(error <= limit))
      fail_msg("%s on %s, output %d: error %.3g, allowed %.3g (plain fp32 %.3g)", name, isa_name, i, error, limit,
               plain);
    got += p->n[i];
    naive += p->n[i];
    want += p->n[i];
  }
}

/* Runs an op into out (as laid out by `pieces`), with operands aliased in way `alias`. */
typedef void (*runner)(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out);

/* The op is near the reference on every instruction set, and has the same bits for all teams and aliasings. */
static void hold(const char *name, runner run, const void *context, int aliases, const pieces *p, const float *naive,
                 const double *want) {
  int64_t n = total(p);
  size_t mark = pool_count;
  float *first = take((size_t)n * sizeof *first), *out = take((size_t)n * sizeof *out);
  for (int i = 0; i < isa_count; i++) {
    memset(first, 0xff, (size_t)n * sizeof *first); /* NaN: what is not written shows */
    run(&isas[i].kernels, 1, 0, context, first);
    check_near(name, isas[i].name, p, first, naive, want);
    for (int threads = 1; threads <= 4; threads++)
      for (int alias = 0; alias < aliases; alias++) {
        size_t inner = pool_count;
        memset(out, 0xff, (size_t)n * sizeof *out);
        run(&isas[i].kernels, threads, alias, context, out);
        if (memcmp(out, first, (size_t)n * sizeof *out) != 0)
          fail_msg("%s on %s: other bits with %d threads, aliasing %d", name, isas[i].name, threads, alias);
        release_to(inner);
      }
  }
  release_to(mark);
}

/* ---- directional derivatives ---- */

/* A scalar function of p[n]; the test compares its derivative along a random direction with grad . direction. */
typedef double (*scalar)(const double *p, const void *context);

static double slope(scalar f, const void *context, const double *p, const double *direction, int64_t n, double h) {
  size_t mark = pool_count;
  double *q = double_zeros(n), up, down;
  for (int64_t i = 0; i < n; i++) q[i] = p[i] + h * direction[i];
  up = f(q, context);
  for (int64_t i = 0; i < n; i++) q[i] = p[i] - h * direction[i];
  down = f(q, context);
  release_to(mark);
  return (up - down) / (2.0 * h);
}

/* Extrapolated central difference (error h^4); its error is estimated by what the extrapolation changed at half the
 * step, plus the rounding of f itself: n terms of a sum of size `magnitude`, divided by the step. */
static void check_gradient(const char *name, scalar f, const void *context, const double *p, const double *grad,
                           int64_t n, double magnitude) {
  double *direction = doubles(floats(n, 1.0), n), dot = 0.0, h = 1e-3;
  double d1 = slope(f, context, p, direction, n, h), d2 = slope(f, context, p, direction, n, h / 2);
  double d3 = slope(f, context, p, direction, n, h / 4), coarse = (4 * d2 - d1) / 3, fine = (4 * d3 - d2) / 3;
  double limit = fabs(fine - coarse) + 16.0 * DBL_EPSILON * magnitude / h;
  for (int64_t i = 0; i < n; i++) dot += grad[i] * direction[i];
  if (!(fabs(dot - fine) <= limit))
    fail_msg("%s: derivative %.12g, differences give %.12g, allowed error %.3g", name, dot, fine, limit);
  assert_true(limit < 1e-4 * (fabs(fine) + 1e-3 * magnitude)); /* the comparison says something */
}

static double dot_product(const double *a, const double *b, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}
static double size_of_sum(const double *a, const double *b, int64_t n) {
  double sum = 1.0;
  for (int64_t i = 0; i < n; i++) sum += fabs(a[i] * b[i]);
  return sum;
}

/* ---- norm ---- */

typedef struct norm_case {
  bool layer, residual, bias, extra, accumulate;
  float offset; /* of the weight */
  int64_t rows, columns;
  float *x, *r, *w, *b, *dy, *e, *stats, *dw, *db;
} norm_case;

static norm_case make_norm(bool layer, int variant, int64_t rows, int64_t columns) {
  norm_case c = {.layer = layer, .rows = rows, .columns = columns};
  c.residual = variant & 1;
  c.bias = variant & 2;
  c.extra = variant & 1;
  c.accumulate = variant & 2;
  c.offset = !layer && (variant == 1 || variant == 2) ? 1.0f : 0.0f;
  c.x = floats(rows * columns, 2.0);
  for (int64_t i = 0; i < rows * columns; i++) c.x[i] = in_type(c.x[i] + 0.5f); /* a mean to take away */
  c.r = floats(rows * columns, 1.0);
  c.w = floats(columns, 1.0);
  c.b = floats(columns, 1.0);
  c.dy = floats(rows * columns, 1.0);
  c.e = floats(rows * columns, 1.0);
  c.dw = floats(columns, 1.0);
  c.db = floats(columns, 1.0);
  return c;
}

/* Output: y, s (x without residual), stats. */
static void run_norm(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const norm_case *c = context;
  int64_t n = c->rows * c->columns;
  void *x = operand(c->x, n), *r = operand(c->r, n), *s = unwritten(n), *y = unwritten(n);
  if (alias && c->residual) s = alias == 1 ? x : r; /* s over x, s over r */
  if (alias && c->residual) y = alias == 1 ? r : x;
  if (alias && !c->residual) y = x;
  (c->layer ? k->layernorm : k->rmsnorm)(&(hri_norm_args){.rows = c->rows,
                                                          .columns = c->columns,
                                                          .real = type,
                                                          .x = x,
                                                          .residual = c->residual ? r : NULL,
                                                          .s = s,
                                                          .weight = c->w,
                                                          .weight_offset = (double)c->offset,
                                                          .bias = c->bias ? c->b : NULL,
                                                          .eps = 1e-5,
                                                          .y = y,
                                                          .stats = out + 2 * n,
                                                          .team = team_of(threads)});
  values(out, y, n);
  if (c->residual) values(out + n, s, n);
  else memcpy(out + n, c->x, (size_t)n * sizeof *out);
}

/* Output: dx, dw, db. */
static void run_norm_backward(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const norm_case *c = context;
  int64_t n = c->rows * c->columns;
  void *dy = operand(c->dy, n), *x = operand(c->x, n), *e = operand(c->e, n), *dx = unwritten(n);
  float *dw = out + n, *db = dw + c->columns;
  if (alias == 1) dx = dy;
  if (alias == 2) dx = x;
  if (alias == 3 && c->extra) dx = e;
  if (c->accumulate) memcpy(dw, c->dw, (size_t)c->columns * sizeof *dw);
  if (c->accumulate) memcpy(db, c->db, (size_t)c->columns * sizeof *db);
  (c->layer ? k->layernorm_backward : k->rmsnorm_backward)(&(
      hri_norm_backward_args){.rows = c->rows,
                              .columns = c->columns,
                              .real = type,
                              .dy = dy,
                              .x = x,
                              .stats = c->stats,
                              .weight = c->w,
                              .weight_offset = (double)c->offset,
                              .extra = c->extra ? e : NULL,
                              .dx = dx,
                              .dweight = dw,
                              .dbias = c->bias ? db : NULL,
                              .accumulate = c->accumulate,
                              .team = team_of(threads),
                              .scratch =
                                  take(hri_norm_backward_scratch_bytes(c->rows, c->columns, true, c->bias, threads))});
  values(out, dx, n);
  if (!c->bias) memset(db, 0, (size_t)c->columns * sizeof *db);
}

static const float *rounded_sum(const float *a, const float *b, int64_t n) {
  float *sum = take((size_t)n * sizeof *sum);
  for (int64_t i = 0; i < n; i++) sum[i] = in_type(a[i] + b[i]);
  return sum;
}

static void hold_norm(norm_case *c) {
  int64_t rows = c->rows, columns = c->columns, n = rows * columns, stats = c->layer ? 2 * rows : rows;
  const float *x = c->x, *residual = c->residual ? c->r : NULL;
  pieces forward = {3, {n, n, stats}, 2}, backward = {3, {n, columns, columns}, 1};
  float *plain = take((size_t)(2 * n + stats) * sizeof *plain),
        *plain_back = take((size_t)(n + 2 * columns) * sizeof *plain);
  double *want = double_zeros(2 * n + stats), *want_back = double_zeros(n + 2 * columns);
  double *stats64;
  if (type != HRI_REAL_F32 && residual) { /* the sum is rounded before it is normalised */
    x = rounded_sum(c->x, c->r, n);
    residual = NULL;
  }
  (c->layer ? naive_layernorm : naive_rmsnorm)(plain, plain + n, plain + 2 * n, x, residual, c->w, c->offset,
                                               c->bias ? c->b : NULL, 1e-5f, rows, columns);
  (c->layer ? hri_ref_layernorm : hri_ref_rmsnorm)(want, want + n, want + 2 * n, doubles(x, n),
                                                   residual ? doubles(residual, n) : NULL, doubles(c->w, columns),
                                                   (double)c->offset, c->bias ? doubles(c->b, columns) : NULL, 1e-5,
                                                   rows, columns);
  hold(c->layer ? "layernorm" : "rmsnorm", run_norm, c, c->residual ? 3 : 2, &forward, plain, want);

  c->stats = plain + 2 * n; /* any statistics will do, as long as all three get the same */
  stats64 = doubles(c->stats, stats);
  for (int64_t i = 0; i < 2 * columns; i++) {
    plain_back[n + i] = !c->accumulate || (i >= columns && !c->bias) ? 0.0f
                        : i < columns                                ? c->dw[i]
                                                                     : c->db[i - columns];
    want_back[n + i] = (double)plain_back[n + i];
  }
  (c->layer ? naive_layernorm_backward
            : naive_rmsnorm_backward)(plain_back, plain_back + n, c->bias ? plain_back + n + columns : NULL, c->dy,
                                      c->x, c->stats, c->w, c->offset, c->extra ? c->e : NULL, rows, columns);
  (c->layer ? hri_ref_layernorm_backward
            : hri_ref_rmsnorm_backward)(want_back, want_back + n, c->bias ? want_back + n + columns : NULL,
                                        doubles(c->dy, n), doubles(c->x, n), stats64, doubles(c->w, columns),
                                        (double)c->offset, c->extra ? doubles(c->e, n) : NULL, rows, columns);
  hold(c->layer ? "layernorm backward" : "rmsnorm backward", run_norm_backward, c, 4, &backward, plain_back, want_back);
}

static void norms_match_the_reference(void **state) {
  static const int64_t shapes[][2] = {{1, 1}, {3, 17}, {17, 3}, {257, 64}, {33, 1000}, {5, 4096}, {600, 96}};
  (void)state;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int variant = 0; variant < 4; variant++)
      for (int layer = 0; layer < 2; layer++) {
        /* a layer norm of one column has a gradient of 0 by cancellation alone: no size to measure an error by */
        if (layer && shapes[i][1] == 1) continue;
        norm_case c = make_norm(layer, variant, shapes[i][0], shapes[i][1]);
        if (type != HRI_REAL_F32) c.extra = false; /* dx is rounded before the sum: see fused_norms_... */
        hold_norm(&c);
        release_to(0);
      }
}

/* add, then norm; norm backward, then add: each pair against the one kernel that stands for it. */
static void fused_norms_have_the_bits_of_the_pair(void **state) {
  static const int64_t shapes[][2] = {{1, 5}, {33, 100}, {9, 1000}, {300, 64}};
  (void)state;
  for (int i = 0; i < 16 * isa_count; i++) {
    const hri_cpu_kernels *k = &isas[i / 16].kernels;
    int64_t rows = shapes[i % 4][0], columns = shapes[i % 4][1], n = rows * columns;
    size_t bytes = (size_t)n * hri_real_bytes(type);
    norm_case c = make_norm(i & 4, i & 8 ? 2 : 0, rows, columns);
    void *x = operand(c.x, n), *r = operand(c.r, n), *s = unwritten(n), *s2 = unwritten(n), *y = unwritten(n),
         *y2 = unwritten(n);
    float *stats = floats(2 * rows, 1.0), *stats2 = copy_of(stats, 2 * rows), *dw = floats(columns, 1.0);
    hri_norm_args a = {.rows = rows,
                       .columns = columns,
                       .real = type,
                       .x = x,
                       .residual = r,
                       .s = s,
                       .weight = c.w,
                       .bias = c.bias ? c.b : NULL,
                       .eps = 1e-5,
                       .y = y,
                       .stats = stats,
                       .team = team_of(2)};
    hri_norm_backward_args b = {.rows = rows,
                                .columns = columns,
                                .real = type,
                                .dy = r,
                                .x = x,
                                .stats = stats,
                                .weight = c.w,
                                .extra = s,
                                .dx = y,
                                .dweight = dw,
                                .team = team_of(2),
                                .scratch = take(hri_norm_backward_scratch_bytes(rows, columns, true, false, 2))};
    (c.layer ? k->layernorm : k->rmsnorm)(&a);
    k->add(s2, x, r, n, type, team_of(2));
    a.x = s2, a.residual = NULL, a.s = NULL, a.y = y2, a.stats = stats2;
    (c.layer ? k->layernorm : k->rmsnorm)(&a);
    assert_memory_equal(s, s2, bytes);
    assert_memory_equal(y, y2, bytes);
    assert_memory_equal(stats, stats2, (size_t)(c.layer ? 2 * rows : rows) * sizeof *stats);
    (c.layer ? k->layernorm_backward : k->rmsnorm_backward)(&b);
    b.extra = NULL, b.dx = y2;
    (c.layer ? k->layernorm_backward : k->rmsnorm_backward)(&b);
    k->add(y2, y2, s, n, type, team_of(2));
    assert_memory_equal(y, y2, bytes);
    release_to(0);
  }
}

/* A frozen norm has no weight gradient, and an evaluation needs no statistics: NULL skips both. */
static void norms_skip_what_is_not_asked(void **state) {
  norm_case c = make_norm(true, 0, 9, 33);
  int64_t n = c.rows * c.columns;
  (void)state;
  for (int i = 0; i < isa_count; i++) {
    float *stats = take(18 * sizeof *stats), *y = floats(n, 1), *y2 = floats(n, 1), *dx = floats(n, 1),
          *dx2 = floats(n, 1);
    float *dw = floats(33, 1), *scratch = take(hri_norm_backward_scratch_bytes(9, 33, true, false, 1));
    hri_norm_args forward =
        {.rows = 9, .columns = 33, .x = c.x, .weight = c.w, .eps = 1e-5, .y = y, .stats = stats, .team = NULL};
    hri_norm_backward_args back = {.rows = 9,
                                   .columns = 33,
                                   .dy = c.dy,
                                   .x = c.x,
                                   .stats = stats,
                                   .weight = c.w,
                                   .dx = dx,
                                   .dweight = dw,
                                   .scratch = scratch,
                                   .team = NULL};
    isas[i].kernels.layernorm(&forward);
    forward.y = y2;
    forward.stats = NULL;
    isas[i].kernels.layernorm(&forward);
    assert_memory_equal(y, y2, (size_t)n * sizeof *y);
    isas[i].kernels.layernorm_backward(&back);
    back.dx = dx2;
    back.dweight = NULL;
    back.scratch = NULL;
    isas[i].kernels.layernorm_backward(&back);
    assert_memory_equal(dx, dx2, (size_t)n * sizeof *dx);
  }
  assert_int_equal(hri_norm_backward_scratch_bytes(9, 33, false, false, 4), 0);
}

/* p: x [M,C], weight [C], bias [C]. */
typedef struct norm_scalar {
  bool layer;
  int64_t rows, columns;
  const double *dy;
} norm_scalar;

static double norm_value(const double *p, const void *context) {
  const norm_scalar *c = context;
  int64_t n = c->rows * c->columns;
  double *y = double_zeros(n), *s = double_zeros(n), *stats = double_zeros(2 * c->rows);
  (c->layer ? hri_ref_layernorm : hri_ref_rmsnorm)(y, s, stats, p, NULL, p + n, 0.0, p + n + c->columns, 1e-5, c->rows,
                                                   c->columns);
  return dot_product(y, c->dy, n);
}

static void norm_backward_is_the_derivative(void **state) {
  (void)state;
  for (int layer = 0; layer < 2; layer++)
    for (int64_t columns = 2; columns < 40; columns += 5) {
      int64_t rows = 3, n = rows * columns, all = n + 2 * columns;
      double *p = doubles(floats(all, 1.0), all), *dy = doubles(floats(n, 1.0), n), *grad = double_zeros(all);
      double *y = double_zeros(n), *s = double_zeros(n), *stats = double_zeros(2 * rows);
      norm_scalar c = {layer, rows, columns, dy};
      (layer ? hri_ref_layernorm : hri_ref_rmsnorm)(y, s, stats, p, NULL, p + n, 0.0, p + n + columns, 1e-5, rows,
                                                    columns);
      (layer ? hri_ref_layernorm_backward : hri_ref_rmsnorm_backward)(grad, grad + n, grad + n + columns, dy, p, stats,
                                                                      p + n, 0.0, NULL, rows, columns);
      check_gradient(layer ? "layernorm" : "rmsnorm", norm_value, &c, p, grad, all, size_of_sum(y, dy, n));
    }
}

/* ---- head norm ---- */

typedef struct head_case {
  int64_t rows, heads, kv_heads, size, key_size;
  float offset;
  bool accumulate, frozen; /* frozen: no gradients of the weights */
  float *x, *wq, *wk, *dy, *stats, *dw;
} head_case;

static int64_t head_width(int64_t heads, int64_t kv_heads, int64_t size, int64_t key_size) {
  return heads * size + 2 * kv_heads * key_size;
}

/* Output: y, stats. */
static void run_head_norm(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const head_case *c = context;
  int64_t n = c->rows * head_width(c->heads, c->kv_heads, c->size, c->key_size);
  void *x = operand(c->x, n), *y = alias ? x : unwritten(n);
  k->head_norm(&(hri_head_norm_args){.rows = c->rows,
                                     .heads = c->heads,
                                     .kv_heads = c->kv_heads,
                                     .head_size = c->size,
                                     .key_size = c->key_size,
                                     .real = type,
                                     .x = x,
                                     .wq = c->wq,
                                     .wk = c->wk,
                                     .weight_offset = (double)c->offset,
                                     .eps = 1e-6,
                                     .y = y,
                                     .stats = out + n,
                                     .team = team_of(threads)});
  values(out, y, n);
}

/* Output: dx, dwq, dwk. */
static void run_head_norm_backward(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const head_case *c = context;
  int64_t n = c->rows * head_width(c->heads, c->kv_heads, c->size, c->key_size), weights = c->size + c->key_size;
  void *x = operand(c->x, n), *dy = operand(c->dy, n), *dx = alias == 0 ? unwritten(n) : alias == 1 ? dy : x;
  memset(out + n, 0, (size_t)weights * sizeof *out);
  if (c->accumulate) memcpy(out + n, c->dw, (size_t)weights * sizeof *out);
  k->head_norm_backward(
      &(hri_head_norm_backward_args){.rows = c->rows,
                                     .heads = c->heads,
                                     .kv_heads = c->kv_heads,
                                     .head_size = c->size,
                                     .key_size = c->key_size == c->size ? 0 : c->key_size, /* 0 says the same */
                                     .real = type,
                                     .dy = dy,
                                     .x = x,
                                     .stats = c->stats,
                                     .wq = c->wq,
                                     .wk = c->wk,
                                     .weight_offset = (double)c->offset,
                                     .dx = dx,
                                     .dwq = c->frozen ? NULL : out + n,
                                     .dwk = c->frozen ? NULL : out + n + c->size,
                                     .accumulate = c->accumulate,
                                     .scratch = take(
                                         hri_head_norm_backward_scratch_bytes(c->rows, c->size, c->key_size, threads)),
                                     .team = team_of(threads)});
  values(out, dx, n);
}

static void hold_head_norm(head_case *c) {
  int64_t d = c->size, e = c->key_size, n = c->rows * head_width(c->heads, c->kv_heads, d, e),
          stats = c->rows * (c->heads + c->kv_heads), all = n + d + e;
  pieces forward = {2, {n, stats}, 1}, backward = {3, {n, d, e}, 1};
  float *plain = floats(n + stats, 1.0), *plain_back = floats(all, 1.0);
  double *want = double_zeros(n + stats), *want_back = double_zeros(all), *wq = doubles(c->wq, d),
         *wk = doubles(c->wk, e);
  naive_head_norm(plain, plain + n, c->x, c->wq, c->wk, c->offset, 1e-6f, c->rows, c->heads, c->kv_heads, d, e);
  hri_ref_head_norm(want, want + n, doubles(c->x, n), wq, wk, (double)c->offset, 1e-6, c->rows, c->heads, c->kv_heads,
                    d, e);
  hold("head norm", run_head_norm, c, 2, &forward, plain, want);
  c->stats = plain + n;
  for (int64_t i = 0; i < d + e; i++) {
    plain_back[n + i] = c->accumulate ? c->dw[i] : 0.0f;
    want_back[n + i] = (double)plain_back[n + i];
  }
  naive_head_norm_backward(plain_back, c->frozen ? NULL : plain_back + n, c->frozen ? NULL : plain_back + n + d, c->dy,
                           c->x, c->stats, c->wq, c->wk, c->offset, c->rows, c->heads, c->kv_heads, d, e);
  hri_ref_head_norm_backward(want_back, c->frozen ? NULL : want_back + n, c->frozen ? NULL : want_back + n + d,
                             doubles(c->dy, n), doubles(c->x, n), doubles(c->stats, stats), wq, wk, (double)c->offset,
                             c->rows, c->heads, c->kv_heads, d, e);
  hold("head norm backward", run_head_norm_backward, c, 3, &backward, plain_back, want_back);
}

/* The last three: all heads of queries at once, and all of keys. */
static void head_norm_matches_the_reference(void **state) {
  static const int64_t shapes[][5] = {{1, 1, 1, 2, 2},      {3, 4, 2, 20, 20},     {17, 3, 1, 40, 40},
                                      {65, 6, 2, 80, 80},   {9, 2, 2, 96, 96},     {300, 3, 1, 33, 33},
                                      {40, 4, 1, 256, 256}, {33, 16, 8, 128, 128}, {17, 1, 1, 60, 20},
                                      {130, 1, 1, 6, 2},    {33, 1, 1, 384, 128}};
  (void)state;
  for (size_t i = 0; i < 4 * sizeof shapes / sizeof *shapes; i++) {
    const int64_t *s = shapes[i / 4];
    int64_t n = s[0] * head_width(s[1], s[2], s[3], s[4]);
    head_case c = {.rows = s[0],
                   .heads = s[1],
                   .kv_heads = s[2],
                   .size = s[3],
                   .key_size = s[4],
                   .offset = i & 1 ? 1.0f : 0.0f,
                   .accumulate = i & 2,
                   .frozen = i % 4 == 3,
                   .x = floats(n, 2.0),
                   .wq = floats(s[3], 1.0),
                   .wk = floats(s[4], 1.0),
                   .dy = floats(n, 1.0),
                   .dw = floats(s[3] + s[4], 1.0)};
    hold_head_norm(&c);
    release_to(0);
  }
}

/* p: x [M,HD+2KE], then the weights. */
typedef struct head_scalar {
  int64_t rows, heads, kv_heads, size, key_size;
  const double *dy;
} head_scalar;

static double head_norm_value(const double *p, const void *context) {
  const head_scalar *c = context;
  int64_t n = c->rows * head_width(c->heads, c->kv_heads, c->size, c->key_size);
  double *y = double_zeros(n), *stats = double_zeros(c->rows * (c->heads + c->kv_heads));
  hri_ref_head_norm(y, stats, p, p + n, p + n + c->size, 1.0, 1e-6, c->rows, c->heads, c->kv_heads, c->size,
                    c->key_size);
  return dot_product(y, c->dy, n);
}

static void head_norm_backward_is_the_derivative(void **state) {
  (void)state;
  for (int64_t size = 2; size < 40; size += 9)
    for (int64_t key_size = size; key_size <= size + 3; key_size += 3) {
      int64_t rows = 3, n = rows * head_width(4, 2, size, key_size), all = n + size + key_size;
      double *p = doubles(floats(all, 1.0), all), *dy = doubles(floats(n, 1.0), n), *grad = double_zeros(all);
      double *y = double_zeros(n), *stats = double_zeros(rows * 6);
      head_scalar c = {rows, 4, 2, size, key_size, dy};
      hri_ref_head_norm(y, stats, p, p + n, p + n + size, 1.0, 1e-6, rows, 4, 2, size, key_size);
      hri_ref_head_norm_backward(grad, grad + n, grad + n + size, dy, p, stats, p + n, p + n + size, 1.0, rows, 4, 2,
                                 size, key_size);
      check_gradient("head norm", head_norm_value, &c, p, grad, all, size_of_sum(y, dy, n));
    }
}

/* ---- DoRA ---- */

typedef struct dora_case {
  int64_t rows, columns, parts[3]; /* of activations */
  int64_t rank;
  uint32_t having;
  bool accumulate, frozen;
  float *z, *dy, *bias, *magnitudes, *lengths, *dm;
  float *w, *a, *b; /* row lengths: [columns,inner], [rank,inner], [columns,rank] or NULL */
  int64_t inner;
} dora_case;

/* Columns that have magnitudes. */
static int64_t dora_with(const dora_case *c) {
  int64_t n = 0;
  for (int p = 0; p < 3; p++) n += c->having >> p & 1 ? c->parts[p] : 0;
  return n;
}

static hri_dora_args dora_args_of(const dora_case *c, bool backward, int threads) {
  hri_dora_args a = {.rows = c->rows,
                     .columns = c->columns,
                     .real = type,
                     .having = c->having,
                     .magnitudes = c->magnitudes,
                     .lengths = c->lengths,
                     .scratch = take(hri_dora_scratch_bytes(c->rows, c->columns, backward, threads)),
                     .team = team_of(threads)};
  memcpy(a.parts, c->parts, sizeof a.parts);
  return a;
}

static void run_dora(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const dora_case *c = context;
  int64_t n = c->rows * c->columns;
  hri_dora_args a = dora_args_of(c, false, threads);
  void *z = operand(c->z, n);
  a.z = z, a.y = alias ? z : unwritten(n), a.bias = c->bias;
  k->dora(&a);
  values(out, a.y, n);
}

/* Output: dz, then the gradient of the magnitudes. */
static void run_dora_backward(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const dora_case *c = context;
  int64_t n = c->rows * c->columns, with = dora_with(c);
  hri_dora_args a = dora_args_of(c, true, threads);
  void *z = operand(c->z, n), *dy = operand(c->dy, n);
  a.z = z, a.dy = dy, a.dz = alias == 0 ? unwritten(n) : alias == 1 ? dy : z;
  a.dmagnitudes = c->frozen ? NULL : out + n, a.accumulate = c->accumulate;
  if (c->accumulate) memcpy(out + n, c->dm, (size_t)with * sizeof *out);
  if (c->frozen) memset(out + n, 0, (size_t)with * sizeof *out);
  k->dora_backward(&a);
  values(out, a.dz, n);
}

static void run_row_lengths(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const dora_case *c = context;
  (void)alias;
  k->row_lengths(&(hri_row_lengths_args){.rows = c->columns,
                                         .columns = c->inner,
                                         .rank = c->rank,
                                         .real = type,
                                         .w = operand(c->w, c->columns * c->inner),
                                         .a = c->a,
                                         .b = c->b,
                                         .scale = 0.5f,
                                         .lengths = out,
                                         .team = team_of(threads)});
}

static void hold_dora(dora_case *c) {
  int64_t n = c->rows * c->columns, with = dora_with(c), inner = c->inner;
  pieces lengths = {1, {c->columns}, 0}, forward = {1, {n}, 1}, backward = {2, {n, with}, 1};
  float *plain = floats(n + with, 1.0), *plain_lengths = floats(c->columns, 1.0);
  double *want = double_zeros(n + with), *want_lengths = double_zeros(c->columns),
         *magnitudes = doubles(c->magnitudes, with), *of_rows = doubles(c->lengths, with);
  naive_row_lengths(plain_lengths, c->w, c->a, c->b, 0.5f, c->columns, inner, c->rank);
  hri_ref_row_lengths(want_lengths, doubles(c->w, c->columns * inner), doubles(c->a, c->rank * inner),
                      c->b ? doubles(c->b, c->columns * c->rank) : NULL, 0.5, c->columns, inner, c->rank);
  hold("row lengths", run_row_lengths, c, 1, &lengths, plain_lengths, want_lengths);
  naive_dora(plain, c->z, c->magnitudes, c->lengths, c->bias, c->parts, c->having, c->rows);
  hri_ref_dora(want, doubles(c->z, n), magnitudes, of_rows, c->bias ? doubles(c->bias, c->columns) : NULL, c->parts,
               c->having, c->rows);
  hold("dora", run_dora, c, 2, &forward, plain, want);
  for (int64_t i = 0; i < with; i++) {
    plain[n + i] = c->accumulate && !c->frozen ? c->dm[i] : 0;
    want[n + i] = (double)plain[n + i];
  }
  naive_dora_backward(plain, c->frozen ? NULL : plain + n, c->dy, c->z, c->magnitudes, c->lengths, c->parts, c->having,
                      c->rows);
  hri_ref_dora_backward(want, c->frozen ? NULL : want + n, doubles(c->dy, n), doubles(c->z, n), magnitudes, of_rows,
                        c->parts, c->having, c->rows);
  hold("dora backward", run_dora_backward, c, 3, &backward, plain, want);
}

static void dora_matches_the_reference(void **state) {
  static const int64_t shapes[][4] = {{1, 1, 0, 0},     {3, 20, 17, 5},  {17, 3, 0, 40},
                                      {65, 64, 32, 32}, {300, 0, 33, 1}, {33, 129, 64, 65}}; /* rows, parts */
  (void)state;
  for (int i = 0; i < 24; i++) {
    const int64_t *s = shapes[i / 4], columns = s[1] + s[2] + s[3], n = s[0] * columns;
    dora_case c = {.rows = s[0],
                   .columns = columns,
                   .parts = {s[1], s[2], s[3]},
                   .rank = 1 + i % 5,
                   .having = i % 4 == 0   ? 7
                             : i % 4 == 1 ? 5
                             : i % 4 == 2 ? 2
                                          : 6,
                   .accumulate = i & 2,
                   .frozen = i % 4 == 3,
                   .inner = 1 + 37 * (i / 4)};
    c.z = floats(n, 2.0), c.dy = floats(n, 1.0), c.bias = i & 1 ? floats(columns, 1.0) : NULL;
    c.magnitudes = floats(columns, 2.0), c.lengths = floats(columns, 1.0), c.dm = floats(columns, 1.0);
    for (int64_t k = 0; k < columns; k++) c.lengths[k] = k % 19 == 18 ? 0 : 0.25f + fabsf(c.lengths[k]);
    c.w = floats(columns * c.inner, 1.0), c.a = floats(c.rank * c.inner, 1.0);
    c.b = i % 4 == 2 ? NULL : floats(columns * c.rank, 1.0);
    hold_dora(&c);
    release_to(0);
  }
}

/* Only lengths that are NaN are made where just those are missing. */
static void row_lengths_fill_what_is_missing(void **state) {
  (void)state;
  for (int s = 0; s < isa_count; s++) {
    float w[] = {3, 4, 6, 8, 5, 12}, lengths[] = {NAN, 1, NAN};
    isas[s].kernels.row_lengths(&(hri_row_lengths_args){.rows = 3,
                                                        .columns = 2,
                                                        .real = HRI_REAL_F32,
                                                        .w = w,
                                                        .missing = true,
                                                        .lengths = lengths,
                                                        .team = team_of(1)});
    assert_true(lengths[0] == 5 && lengths[1] == 1 && lengths[2] == 13);
  }
}

/* p: z [M,N], then the magnitudes. */
static double dora_value(const double *p, const void *context) {
  const dora_case *c = context;
  int64_t n = c->rows * c->columns;
  double *y = double_zeros(n);
  hri_ref_dora(y, p, p + n, doubles(c->lengths, dora_with(c)), NULL, c->parts, c->having, c->rows);
  return dot_product(y, doubles(c->dy, n), n);
}

static void dora_backward_is_the_derivative(void **state) {
  (void)state;
  for (uint32_t having = 1; having < 8; having++) {
    dora_case c = {.rows = 3, .columns = 16, .parts = {7, 5, 4}, .having = having};
    int64_t n = c.rows * c.columns, with = dora_with(&c);
    double *p = doubles(floats(n + with, 1.0), n + with), *grad = double_zeros(n + with), *dy, *y = double_zeros(n);
    c.dy = floats(n, 1.0), c.lengths = floats(with, 1.0), dy = doubles(c.dy, n);
    for (int64_t k = 0; k < with; k++) c.lengths[k] = 0.25f + fabsf(c.lengths[k]);
    hri_ref_dora(y, p, p + n, doubles(c.lengths, with), NULL, c.parts, having, c.rows);
    hri_ref_dora_backward(grad, grad + n, dy, p, p + n, doubles(c.lengths, with), c.parts, having, c.rows);
    check_gradient("dora", dora_value, &c, p, grad, n + with, size_of_sum(y, dy, n));
  }
}

/* ---- pointwise ---- */

typedef struct flat_case {
  hr_activation kind;
  int64_t n, rows, width; /* glu: n unused */
  float factor;
  bool accumulate;
  float *a, *b, *c;
} flat_case;

static void run_add(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const flat_case *c = context;
  void *a = operand(c->a, c->n), *b = operand(c->b, c->n), *y = alias == 0 ? unwritten(c->n) : alias == 1 ? a : b;
  k->add(y, a, b, c->n, type, team_of(threads));
  values(out, y, c->n);
}

static void run_scale(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const flat_case *c = context;
  void *a = operand(c->a, c->n), *y = alias ? a : unwritten(c->n);
  k->scale(y, a, c->factor, c->n, type, team_of(threads));
  values(out, y, c->n);
}

static void run_activation(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const flat_case *c = context;
  void *a = operand(c->a, c->n), *y = alias ? a : unwritten(c->n);
  k->activation(c->kind, y, a, c->n, type, team_of(threads));
  values(out, y, c->n);
}

static void run_activation_backward(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const flat_case *c = context;
  void *x = operand(c->a, c->n), *dy = operand(c->b, c->n), *dx = alias == 0 ? unwritten(c->n) : alias == 1 ? x : dy;
  k->activation_backward(c->kind, dx, dy, x, c->n, type, team_of(threads));
  values(out, dx, c->n);
}

static const int64_t flat_sizes[] = {0, 1, 3, 15, 16, 17, 257, 1000, 8191, 40001};
enum { FLAT_SIZES = sizeof flat_sizes / sizeof *flat_sizes };

static void add_and_scale_match_the_reference(void **state) {
  (void)state;
  for (int i = 0; i < FLAT_SIZES; i++) {
    int64_t n = flat_sizes[i];
    flat_case c = {.n = n, .factor = -1.7f, .a = floats(n, 3.0), .b = floats(n, 1.0)};
    float *plain = floats(n, 1.0);
    double *want = double_zeros(n);
    pieces p = {1, {n}, 1};
    naive_add(plain, c.a, c.b, n);
    hri_ref_add(want, doubles(c.a, n), doubles(c.b, n), n);
    hold("add", run_add, &c, 3, &p, plain, want);
    naive_scale(plain, c.a, c.factor, n);
    hri_ref_scale(want, doubles(c.a, n), (double)c.factor, n);
    hold("scale", run_scale, &c, 2, &p, plain, want);
    release_to(0);
  }
}

static void activations_match_the_reference(void **state) {
  (void)state;
  for (int i = 0; i < 2 * HR_ACTIVATION_COUNT * FLAT_SIZES; i++) {
    int64_t n = flat_sizes[i / (2 * HR_ACTIVATION_COUNT)];
    double range = i / HR_ACTIVATION_COUNT % 2
                       ? 1.0
                       : 8.0; /* the small range tells errors near 0 apart; farther out see the next test */
    flat_case c = {.kind = (hr_activation)(i % HR_ACTIVATION_COUNT),
                   .n = n,
                   .a = floats(n, range),
                   .b = floats(n, 1.0)};
    float *plain = floats(n, 1.0);
    double *want = double_zeros(n);
    pieces p = {1, {n}, 1};
    naive_activation(c.kind, plain, c.a, n);
    hri_ref_activation(c.kind, want, doubles(c.a, n), n);
    hold("activation", run_activation, &c, 2, &p, plain, want);
    naive_activation_backward(c.kind, plain, c.b, c.a, n);
    hri_ref_activation_backward(c.kind, want, doubles(c.b, n), doubles(c.a, n), n);
    hold("activation backward", run_activation_backward, &c, 3, &p, plain, want);
    release_to(0);
  }
}

static void run_softcap(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const flat_case *c = context;
  void *a = operand(c->a, c->n), *y = alias ? a : unwritten(c->n);
  k->softcap(y, a, c->factor, c->n, type, team_of(threads));
  values(out, y, c->n);
}

static void softcap_matches_the_reference(void **state) {
  static const float caps[] = {0.3f, 5.0f, 30.0f, 1000.0f};
  (void)state;
  for (int i = 0; i < 4 * FLAT_SIZES; i++) {
    int64_t n = flat_sizes[i / 4];
    flat_case c = {.n = n, .factor = caps[i % 4], .a = floats(n, 20.0)};
    float *plain = floats(n, 1.0);
    double *want = double_zeros(n);
    pieces p = {1, {n}, 1};
    naive_softcap(plain, c.a, c.factor, n);
    hri_ref_softcap(want, doubles(c.a, n), (double)c.factor, n);
    hold("softcap", run_softcap, &c, 2, &p, plain, want);
    release_to(0);
  }
}

static void softcap_at_the_extremes(void **state) {
  float x[] = {INFINITY, -INFINITY, 0x1p100f, -0x1p100f, NAN, 0.0f}, y[6];
  (void)state;
  for (int i = 0; i < isa_count; i++) {
    void *result = operand(x, 6);
    isas[i].kernels.softcap(result, result, 50.0f, 6, type, NULL);
    values(y, result, 6);
    for (int j = 0; j < 4; j++) assert_true(y[j] == (j % 2 ? -50.0f : 50.0f));
    assert_true(isnan(y[4]) && y[5] == 0.0f);
  }
}

/* ---- dropout ---- */

typedef struct dropout_case {
  int64_t rows, columns, sequence;
  double p;
  hri_draw draw;
  float *x;
} dropout_case;

static void run_dropout(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const dropout_case *c = context;
  int64_t n = c->rows * c->columns;
  void *x = operand(c->x, n), *y = alias ? x : unwritten(n);
  k->dropout(&(hri_dropout_args){.rows = c->rows,
                                 .columns = c->columns,
                                 .sequence = c->sequence,
                                 .real = type,
                                 .probability = c->p,
                                 .draw = c->draw,
                                 .x = x,
                                 .y = y,
                                 .team = team_of(threads)});
  values(out, y, n);
}

static void dropout_matches_the_reference(void **state) {
  static const double p[] = {0.0, 0.1, 0.5, 0.999};
  static const int64_t shapes[][3] = {{1, 1, 1}, {6, 31, 3}, {12, 33, 4}, {5, 1000, 5}, {64, 257, 8}, {0, 8, 1}};
  (void)state;
  for (int i = 0; i < 24; i++) {
    const int64_t *s = shapes[i % 6], n = s[0] * s[1];
    dropout_case c = {s[0], s[1], s[2], p[i / 6], {77, 5 + (uint64_t)i, 65539, 3}, floats(n, 3.0)};
    float *plain = floats(n, 1.0);
    double *want = double_zeros(n);
    pieces out = {1, {n}, 1};
    naive_dropout(plain, c.x, c.p, &c.draw, c.sequence, c.rows, c.columns);
    hri_ref_dropout(want, doubles(c.x, n), c.p, &c.draw, c.sequence, c.rows, c.columns);
    hold("dropout", run_dropout, &c, 2, &out, plain, want);
    for (int k = 1; k < isa_count; k++) { /* here the instruction set has no part in the bits */
      float *first = floats(n, 1.0), *other = floats(n, 1.0);
      run_dropout(&isas[0].kernels, 1, 0, &c, first);
      run_dropout(&isas[k].kernels, 2, 0, &c, other);
      assert_memory_equal(first, other, (size_t)n * sizeof *first);
    }
    release_to(0);
  }
}

static void run_noise(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const dropout_case *c = context;
  int64_t n = c->rows * c->columns;
  void *x = operand(c->x, n), *y = alias ? x : unwritten(n);
  k->noise(&(hri_noise_args){.rows = c->rows,
                             .columns = c->columns,
                             .sequence = c->sequence,
                             .real = type,
                             .amplitude = c->p,
                             .draw = c->draw,
                             .x = x,
                             .y = y,
                             .team = team_of(threads)});
  values(out, y, n);
}

static void noise_matches_the_reference(void **state) {
  static const int64_t shapes[][3] = {{1, 1, 1}, {6, 31, 3}, {12, 33, 4}, {5, 1000, 5}, {64, 257, 8}, {0, 8, 1}};
  (void)state;
  for (int i = 0; i < 6; i++) {
    const int64_t *s = shapes[i], n = s[0] * s[1];
    dropout_case c = {s[0], s[1], s[2], 0.25, {77, 5 + (uint64_t)i, 65536, 3}, floats(n, 0.1)};
    float *plain = floats(n, 1.0);
    double *want = double_zeros(n);
    pieces out = {1, {n}, 1};
    naive_noise(plain, c.x, (float)c.p, &c.draw, c.sequence, c.rows, c.columns);
    hri_ref_noise(want, doubles(c.x, n), c.p, &c.draw, c.sequence, c.rows, c.columns);
    hold("noise", run_noise, &c, 2, &out, plain, want);
    release_to(0);
  }
}

/* Mean 0, variance 1/3, inside of [-1, 1), and as many in each eighth. */
static void noise_is_uniform(void **state) {
  enum { LINES = 256, COLUMNS = 512, BINS = 8 };
  const hri_draw d = {42, 3, 65536, 0};
  double n = (double)LINES * COLUMNS, sum = 0, squares = 0, bins[BINS] = {0};
  (void)state;
  for (uint32_t line = 0; line < LINES; line++)
    for (uint32_t c = 0; c < COLUMNS; c++) {
      double u = (double)hri_draw_signed(hri_draw_word(&d, 0, line, 0, c));
      assert_true(u >= -1 && u <= 1);
      sum += u;
      squares += u * u;
      bins[u < 1 ? (int)((u + 1) * BINS / 2) : BINS - 1]++;
    }
  assert_true(fabs(sum / n) < 5 * sqrt(1.0 / 3 / n));
  assert_true(fabs(squares / n - 1.0 / 3) < 5 * sqrt(4.0 / 45 / n)); /* the variance of u^2 is 1/5 - 1/9 */
  for (int k = 0; k < BINS; k++) assert_true(fabs(bins[k] - n / BINS) < 5 * sqrt(n / BINS));
}

/* Rows of a step have the same mask in one micro-batch and in several, in rows of any padded length. */
static void dropout_goes_by_row_and_position(void **state) {
  enum { ROWS = 4, LONG = 9, SHORT = 5, COLUMNS = 48 };
  dropout_case all = {ROWS * LONG, COLUMNS, LONG, 0.4, {1, 2, 3, 0}, floats(ROWS * LONG * COLUMNS, 1.0)};
  float *whole = floats(ROWS * LONG * COLUMNS, 1.0), *part = floats(LONG * COLUMNS, 1.0);
  (void)state;
  for (int64_t i = 0; i < ROWS * LONG * COLUMNS; i++) all.x[i] = 1.0f;
  run_dropout(&isas[isa_count - 1].kernels, 2, 0, &all, whole);
  for (uint32_t row = 0; row < ROWS; row++)
    for (int64_t length = SHORT; length <= LONG; length += LONG - SHORT) {
      dropout_case one = {length, COLUMNS, length, 0.4, {1, 2, 3, row}, all.x};
      run_dropout(&isas[isa_count - 1].kernels, 1, 0, &one, part);
      assert_memory_equal(part, whole + row * LONG * COLUMNS, (size_t)(length * COLUMNS) * sizeof *part);
    }
}

/* Masks of two draws as +1 (goes) and -1: their means and their correlation, in standard errors. */
static void hold_independent(const hri_draw *a, const hri_draw *b, double p) {
  enum { ROWS = 64, COLUMNS = 1024 };
  double n = ROWS * COLUMNS, goes[2] = {0}, both = 0, deviation = sqrt(p * (1 - p));
  for (uint32_t row = 0; row < ROWS; row++)
    for (uint32_t c = 0; c < COLUMNS; c++) {
      bool first = hri_draw_word(a, row / 8, row % 8, 0, c) < hri_drop_threshold(p);
      bool second = hri_draw_word(b, row / 8, row % 8, 0, c) < hri_drop_threshold(p);
      goes[0] += first;
      goes[1] += second;
      both += ((double)first - p) * ((double)second - p);
    }
  for (int k = 0; k < 2; k++) assert_true(fabs(goes[k] / n - p) < 5 * deviation / sqrt(n));
  assert_true(fabs(both / n) < 5 * p * (1 - p) / sqrt(n));
}

/* As many elements go as p says, and whether one goes tells nothing of another site, step, seed, row or head. */
static void dropout_is_independent(void **state) {
  static const double p[] = {0.05, 0.1, 0.5, 0.8};
  const hri_draw here = {42, 7, 65540, 0};
  (void)state;
  for (int i = 0; i < 4; i++) {
    hri_draw other[] = {here, here, here, here, here};
    other[0].site++;
    other[1].step++;
    other[2].seed++;
    other[3].row += 8; /* of which the first has 8 */
    other[4].site += 1 << 16;
    for (int k = 0; k < 5; k++) hold_independent(&here, &other[k], p[i]);
  }
}

/* Neighbours in a row, in a column, and in another head. */
static void dropout_is_white(void **state) {
  enum { LINES = 256, COLUMNS = 256 };
  static const uint32_t steps[][3] = {{0, 0, 1}, {0, 0, 2}, {0, 0, 16}, {0, 0, 32}, {1, 0, 0}, {0, 1, 0}};
  const hri_draw d = {3, 9, 70000, 2};
  double n = (double)LINES * COLUMNS, p = 0.25;
  (void)state;
  for (int k = 0; k < 6; k++) {
    double both = 0;
    for (uint32_t line = 0; line < LINES; line++)
      for (uint32_t c = 0; c < COLUMNS; c++) {
        bool a = hri_draw_word(&d, 1, line, 5, c) < hri_drop_threshold(p);
        bool b = hri_draw_word(&d, 1, line + steps[k][0], 5 + steps[k][1], c + steps[k][2]) < hri_drop_threshold(p);
        both += ((double)a - p) * ((double)b - p);
      }
    assert_true(fabs(both / n) < 5 * p * (1 - p) / sqrt(n));
  }
}

/* What one version of the program draws, every later one does: a resumed run goes on with the same masks. */
static void dropout_is_pinned(void **state) {
  const hri_draw d = {1234, 56, 65536, 7};
  (void)state;
  assert_int_equal(hri_draw_word(&d, 0, 0, 0, 0), 449850106);
  assert_int_equal(hri_draw_word(&d, 1, 2, 3, 45), 3787058493);
  assert_int_equal(hri_drop_threshold(0.1), 429496730);
  assert_true(hri_drop_threshold(0) == 0 && hri_drop_threshold(1 - 1e-12) == 0xFFFFFFFFu);
}

/* Far from 0 an activation is x or 0, its slope 1 or 0; nothing overflows on the way. NaN stays NaN. */
static void activations_at_the_extremes(void **state) {
  const float most = type == HRI_REAL_F16 ? 60000.0f : 0x1p100f;
  float x[] = {0x1p13f, -0x1p13f, most, -most, 100.0f, -100.0f, NAN, 0.0f}, ones[8], y[8], d[8];
  void *input = operand(x, 8), *gradient, *result = unwritten(8);
  (void)state;
  for (int i = 0; i < 8; i++) ones[i] = 1.0f;
  gradient = operand(ones, 8);
  for (int i = 0; i < isa_count; i++)
    for (int kind = 0; kind < HR_ACTIVATION_COUNT; kind++) {
      isas[i].kernels.activation((hr_activation)kind, result, input, 8, type, NULL);
      values(y, result, 8);
      isas[i].kernels.activation_backward((hr_activation)kind, result, gradient, input, 8, type, NULL);
      values(d, result, 8);
      for (int j = 0; j < 6; j++) {
        assert_true(fabs((double)y[j] - (x[j] > 0 ? (double)x[j] : 0.0)) <= 1e-30);
        if (fabsf(x[j]) < 1e19f) assert_true(fabs((double)d[j] - (x[j] > 0 ? 1.0 : 0.0)) <= 1e-20);
      }
      assert_true(isnan(y[6]) && isnan(d[6]));
      assert_true(y[7] == 0.0f && d[7] == (kind == HR_ACTIVATION_RELU ? 0.0f : 0.5f));
    }
}

static void run_glu(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const flat_case *c = context;
  int64_t n = c->rows * c->width;
  void *y = unwritten(n);
  (void)alias;
  k->glu(c->kind, y, operand(c->a, 2 * n), c->rows, c->width, type, team_of(threads));
  values(out, y, n);
}

static void run_glu_backward(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const flat_case *c = context;
  int64_t n = 2 * c->rows * c->width;
  void *gu = operand(c->a, n), *dgu = alias ? gu : unwritten(n);
  k->glu_backward(c->kind, dgu, operand(c->b, n / 2), gu, c->rows, c->width, type, team_of(threads));
  values(out, dgu, n);
}

static void glu_matches_the_reference(void **state) {
  static const int64_t shapes[][2] = {{1, 1}, {3, 17}, {17, 3}, {257, 96}, {9, 1000}};
  (void)state;
  for (size_t i = 0; i < HR_ACTIVATION_COUNT * sizeof shapes / sizeof *shapes; i++) {
    const int64_t *shape = shapes[i / HR_ACTIVATION_COUNT];
    int64_t rows = shape[0], width = shape[1], n = rows * width;
    flat_case c = {.kind = (hr_activation)(i % HR_ACTIVATION_COUNT),
                   .rows = rows,
                   .width = width,
                   .a = floats(2 * n, 4.0),
                   .b = floats(n, 1.0)};
    float *plain = floats(2 * n, 1.0);
    double *want = double_zeros(2 * n);
    pieces p = {1, {n}, 1}, back = {1, {2 * n}, 1};
    naive_glu(c.kind, plain, c.a, rows, width);
    hri_ref_glu(c.kind, want, doubles(c.a, 2 * n), rows, width);
    hold("glu", run_glu, &c, 1, &p, plain, want);
    naive_glu_backward(c.kind, plain, c.b, c.a, rows, width);
    hri_ref_glu_backward(c.kind, want, doubles(c.b, n), doubles(c.a, 2 * n), rows, width);
    hold("glu backward", run_glu_backward, &c, 2, &back, plain, want);
    release_to(0);
  }
}

static void run_bias_gradient(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const flat_case *c = context;
  (void)alias;
  if (c->accumulate) memcpy(out, c->b, (size_t)c->width * sizeof *out);
  k->bias_gradient(out, operand(c->a, c->rows * c->width), c->rows, c->width, c->accumulate,
                   take(hri_bias_gradient_scratch_bytes(c->rows, c->width, threads)), type, team_of(threads));
}

static void bias_gradient_matches_the_reference(void **state) {
  static const int64_t shapes[][2] = {{1, 1}, {3, 17}, {17, 3}, {257, 96}, {1000, 257}, {4099, 5}};
  (void)state;
  for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
    int64_t rows = shapes[i / 2][0], columns = shapes[i / 2][1], n = rows * columns;
    flat_case c = {.rows = rows, .width = columns, .accumulate = i & 1, .a = floats(n, 1.0), .b = floats(columns, 1.0)};
    float *plain = copy_of(c.b, columns);
    double *want = doubles(c.b, columns);
    pieces p = {1, {columns}, 0};
    if (!c.accumulate) memset(plain, 0, (size_t)columns * sizeof *plain);
    if (!c.accumulate) want = double_zeros(columns);
    naive_bias_gradient(plain, c.a, rows, columns);
    hri_ref_bias_gradient(want, doubles(c.a, n), rows, columns);
    hold("bias gradient", run_bias_gradient, &c, 1, &p, plain, want);
    release_to(0);
  }
}

typedef struct rope_case {
  int64_t rows, heads, kv_heads, head_size, rotary_size;
  float *x, *cosines, *sines;
  int32_t *position;
  bool inverse;
} rope_case;

static void run_rope(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const rope_case *c = context;
  int64_t n = c->rows * (c->heads + 2 * c->kv_heads) * c->head_size;
  void *x = operand(c->x, n), *y = alias ? x : unwritten(n);
  k->rope(&(hri_rope_args){.rows = c->rows,
                           .real = type,
                           .heads = c->heads,
                           .kv_heads = c->kv_heads,
                           .head_size = c->head_size,
                           .rotary_size = c->rotary_size,
                           .x = x,
                           .y = y,
                           .cosines = c->cosines,
                           .sines = c->sines,
                           .position = c->position,
                           .inverse = c->inverse,
                           .team = team_of(threads)});
  values(out, y, n);
}

static void rope_matches_the_reference(void **state) {
  static const int64_t shapes[][5] = {{1, 1, 1, 2, 2},    {3, 4, 2, 6, 6},   {17, 3, 1, 34, 34}, {65, 6, 2, 64, 64},
                                      {9, 2, 2, 80, 80},  {5, 3, 1, 20, 14}, {65, 4, 2, 96, 72}, {7, 2, 2, 40, 2},
                                      {9, 2, 1, 256, 64}, {3, 2, 2, 33, 30}, {4, 2, 1, 256, 256}};
  double inverse[128];
  (void)state;
  for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
    const int64_t *s = shapes[i / 2];
    int64_t half = s[4] / 2, n = s[0] * (s[1] + 2 * s[2]) * s[3], table = 100 * half;
    rope_case c =
        {s[0], s[1], s[2], s[3], s[4], floats(n, 1.0), floats(table, 1), floats(table, 1), integers(s[0], 100), i & 1};
    float *plain = floats(n, 1.0);
    double *want = double_zeros(n);
    pieces p = {1, {n}, 1};
    for (int64_t pair = 0; pair < half; pair++) inverse[pair] = pow(10000.0, -(double)pair / (double)half);
    hri_rope_table(inverse, half, 1, 100, c.cosines, c.sines, team_of(2));
    naive_rope(plain, c.x, c.cosines, c.sines, c.position, s[0], s[1], s[2], s[3], s[4], c.inverse);
    hri_ref_rope(want, doubles(c.x, n), doubles(c.cosines, table), doubles(c.sines, table), c.position, s[0], s[1],
                 s[2], s[3], s[4], c.inverse);
    hold("rope", run_rope, &c, 2, &p, plain, want);
    release_to(0);
  }
}

static void rope_table_is_of_the_fp32_angle(void **state) {
  double inverse[64];
  float cosines[3 * 64], sines[3 * 64];
  (void)state;
  for (int64_t pair = 0; pair < 64; pair++) inverse[pair] = (double)(float)pow(500000.0, -(double)pair / 64.0);
  for (int turn = 0; turn < 2; turn++) {
    float factor = turn ? 1.25f : 1.0f;
    hri_rope_table(inverse, 64, (double)factor, 3, cosines, sines, team_of(2));
    for (int64_t i = 0; i < 3 * 64; i++) {
      double angle = (double)((float)(i / 64) * (float)inverse[i % 64]);
      assert_true(cosines[i] == (float)cos(angle) * factor && sines[i] == (float)sin(angle) * factor);
    }
  }
}

/* Kinds: activations; GATED + those, gated units; TURNED, rope. p: x (or gu, qkv). */
enum { GATED = HR_ACTIVATION_COUNT, TURNED = 2 * HR_ACTIVATION_COUNT };
typedef struct flat_scalar {
  int kind;
  const double *dy, *cosines, *sines;
  const int32_t *position;
} flat_scalar;

static double flat_value(const double *p, const void *context) {
  const flat_scalar *c = context;
  double *y = double_zeros(120);
  bool gated = c->kind >= GATED && c->kind < TURNED;
  if (c->kind < GATED) hri_ref_activation((hr_activation)c->kind, y, p, 120);
  if (gated) hri_ref_glu((hr_activation)(c->kind - GATED), y, p, 4, 15);
  if (c->kind == TURNED) hri_ref_rope(y, p, c->cosines, c->sines, c->position, 3, 2, 1, 10, 10, false);
  return dot_product(y, c->dy, gated ? 60 : 120);
}

static void pointwise_backward_is_the_derivative(void **state) {
  double cosines[20 * 5], sines[20 * 5];
  (void)state;
  for (int i = 0; i < 100; i++) cosines[i] = cos(0.37 * i), sines[i] = sin(0.37 * i);
  for (int kind = 0; kind <= TURNED; kind++) {
    double *p = doubles(floats(120, 3.0), 120), *dy = doubles(floats(120, 1.0), 120), *grad = double_zeros(120);
    int32_t *position = integers(3, 20);
    flat_scalar c = {kind, dy, cosines, sines, position};
    if (kind < GATED) hri_ref_activation_backward((hr_activation)kind, grad, dy, p, 120);
    if (kind >= GATED && kind < TURNED) hri_ref_glu_backward((hr_activation)(kind - GATED), grad, dy, p, 4, 15);
    if (kind == TURNED) hri_ref_rope(grad, dy, cosines, sines, position, 3, 2, 1, 10, 10, true);
    check_gradient("pointwise", flat_value, &c, p, grad, 120, 400.0);
  }
}

/* ---- embed ---- */

typedef struct embed_case {
  int64_t rows, columns, vocabulary, stored, skip;
  float *tokens, *positions, *dy, *dtable;
  int32_t *ids, *position;
  bool accumulate;
  float factor;
} embed_case;

static void run_embed(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const embed_case *c = context;
  void *y = unwritten(c->rows * c->columns);
  (void)alias;
  k->embed(&(hri_embed_args){.rows = c->rows,
                             .columns = c->columns,
                             .real = type,
                             .tokens = operand(c->tokens, c->stored * c->columns),
                             .factor = (double)c->factor,
                             .positions = c->positions ? operand(c->positions, 20 * c->columns) : NULL,
                             .ids = c->ids,
                             .position = c->position,
                             .y = y,
                             .team = team_of(threads)});
  values(out, y, c->rows * c->columns);
}

static void run_embed_backward(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const embed_case *c = context;
  (void)alias;
  if (c->accumulate) memcpy(out, c->dtable, (size_t)(c->stored * c->columns) * sizeof *out);
  k->embed_backward(&(hri_embed_backward_args){.rows = c->rows,
                                               .columns = c->columns,
                                               .real = type,
                                               .dy = operand(c->dy, c->rows * c->columns),
                                               .index = c->ids,
                                               .factor = (double)c->factor,
                                               .skip_index = c->skip,
                                               .dtable = out,
                                               .stored_rows = c->stored,
                                               .accumulate = c->accumulate,
                                               .team = team_of(threads)});
}

static void embedding_matches_the_reference(void **state) {
  static const int64_t shapes[][3] = {{1, 1, 1}, {3, 17, 5}, {300, 65, 7}, {257, 768, 33}, {1000, 24, 300}};
  (void)state;
  for (size_t i = 0; i < 8 * sizeof shapes / sizeof *shapes; i++) {
    int64_t rows = shapes[i / 8][0], columns = shapes[i / 8][1], vocabulary = shapes[i / 8][2], n = rows * columns;
    int64_t stored = (vocabulary + 63) / 64 * 64, table = stored * columns;
    embed_case c = {rows,
                    columns,
                    vocabulary,
                    stored,
                    i & 2 ? vocabulary / 2 : -1,
                    floats(table, 1.0),
                    i & 1 ? floats(20 * columns, 1.0) : NULL,
                    floats(n, 1.0),
                    floats(table, 1.0),
                    integers(rows, (int32_t)vocabulary),
                    integers(rows, 20),
                    i & 1,
                    i & 4 ? in_type(9.7f) : 1.0f};
    float *plain = floats(n, 1.0), *plain_back = copy_of(c.dtable, table);
    double *want = double_zeros(n), *want_back = c.accumulate ? doubles(c.dtable, table) : double_zeros(table);
    pieces p = {1, {n}, 1}, back = {1, {table}, 0};
    naive_embed(plain, c.tokens, c.factor, c.positions, c.ids, c.position, rows, columns);
    hri_ref_embed(want, doubles(c.tokens, table), (double)c.factor,
                  c.positions ? doubles(c.positions, 20 * columns) : NULL, c.ids, c.position, rows, columns);
    hold("embed", run_embed, &c, 1, &p, plain, want);
    if (!c.accumulate) memset(plain_back, 0, (size_t)table * sizeof *plain_back);
    naive_embed_backward(plain_back, c.dy, c.factor, c.ids, c.skip, rows, columns);
    hri_ref_embed_backward(want_back, doubles(c.dy, n), (double)c.factor, c.ids, c.skip, rows, columns);
    hold("embed backward", run_embed_backward, &c, 1, &back, plain_back, want_back);
    release_to(0);
  }
}

/* The embedding is linear in its table, so <dy, embed(d)> = <embed_backward(dy), d> exactly up to rounding. */
static void embed_backward_is_the_transpose(void **state) {
  int32_t *ids = integers(50, 9);
  double *dy = doubles(floats(50 * 7, 1.0), 50 * 7), *d = doubles(floats(9 * 7, 1.0), 9 * 7);
  double *y = double_zeros(50 * 7), *grad = double_zeros(9 * 7);
  (void)state;
  hri_ref_embed(y, d, 3.5, NULL, ids, NULL, 50, 7);
  hri_ref_embed_backward(grad, dy, 3.5, ids, -1, 50, 7);
  assert_true(fabs(dot_product(y, dy, 350) - dot_product(grad, d, 63)) <= 350 * DBL_EPSILON * size_of_sum(y, dy, 350));
}

/* ---- loss ---- */

typedef struct loss_case {
  int64_t rows, vocabulary, stored;
  float *logits;
  int32_t *labels;
  bool gradient;
  float softcap, smoothing;
} loss_case;

/* Output: dlogits (or, in an evaluation, the logits, which must be untouched), losses. */
static void run_cross_entropy(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const loss_case *c = context;
  int64_t n = c->rows * c->stored;
  void *logits = operand(c->logits, n), *d = alias ? logits : unwritten(n);
  k->cross_entropy(&(hri_cross_entropy_args){.rows = c->rows,
                                             .vocabulary = c->vocabulary,
                                             .stored = c->stored,
                                             .softcap = (double)c->softcap,
                                             .smoothing = (double)c->smoothing,
                                             .real = type,
                                             .logits = logits,
                                             .labels = c->labels,
                                             .gradient_scale = 0.01,
                                             .losses = out + n,
                                             .dlogits = c->gradient ? d : NULL,
                                             .team = team_of(threads)});
  values(out, c->gradient ? d : logits, n);
}

static void hold_smoothed(int64_t rows, int64_t vocabulary, bool gradient, double range, float softcap,
                          float smoothing) {
  int64_t stored = (vocabulary + 63) / 64 * 64, n = rows * stored;
  loss_case c = {rows,     vocabulary, stored,   floats(n, range), integers(rows, (int32_t)vocabulary),
                 gradient, softcap,    smoothing};
  float *plain = floats(n + rows, 1.0);
  double *want = double_zeros(n + rows);
  pieces p = {2, {n, rows}, 1}, losses = {1, {rows}, 0};
  for (int64_t r = 0; r < rows; r++) {
    if (r % 5 == 1) c.labels[r] = r % 2 ? -100 : -1;
    for (int64_t v = vocabulary; v < stored; v++)
      c.logits[r * stored + v] = v % 2 ? in_type(0x1p100f) : NAN; /* must not be seen */
  }
  naive_cross_entropy(plain + n, gradient ? plain : NULL, c.logits, c.labels, softcap, smoothing, 0.01f, rows,
                      vocabulary, stored);
  hri_ref_cross_entropy(want + n, gradient ? want : NULL, doubles(c.logits, n), c.labels, (double)softcap,
                        (double)smoothing, 0.01, rows, vocabulary, stored);
  if (!gradient) { /* the logits are compared as bits; NaN padding would never be "near" */
    for (int i = 0; i < isa_count; i++) {
      float *out = floats(n + rows, 1.0);
      run_cross_entropy(&isas[i].kernels, 2, 0, &c, out);
      assert_memory_equal(out, c.logits, (size_t)n * sizeof *out);
      check_near("cross entropy without gradient", isas[i].name, &losses, out + n, plain + n, want + n);
    }
  } else {
    hold("cross entropy", run_cross_entropy, &c, 2, &p, plain, want);
  }
  release_to(0);
}

static void hold_cross_entropy(int64_t rows, int64_t vocabulary, bool gradient, double range, float softcap) {
  hold_smoothed(rows, vocabulary, gradient, range, softcap, 0.0f);
}

static void smoothed_cross_entropy_matches_the_reference(void **state) {
  (void)state;
  for (int gradient = 0; gradient < 2; gradient++) {
    hold_smoothed(1, 1, gradient, 1.0, 0.0f, 0.3f);
    hold_smoothed(7, 3, gradient, 4.0, 0.0f, 0.1f);
    hold_smoothed(129, 257, gradient, 10.0, 0.0f, 0.1f);
    hold_smoothed(9, 2049, gradient, 1.0, 0.0f, 0.5f);
    hold_smoothed(5, 50257, gradient, 5.0, 0.0f, 0.1f);
    hold_smoothed(9, 2049, gradient, 10.0, 2.0f, 0.1f);
    hold_smoothed(2, 600000, gradient, 5.0, 0.0f, 0.1f);
  }
}

static void cross_entropy_matches_the_reference(void **state) {
  (void)state;
  for (int gradient = 0; gradient < 2; gradient++) {
    hold_cross_entropy(1, 1, gradient, 1.0, 0.0f);
    hold_cross_entropy(7, 3, gradient, 4.0, 0.0f);
    hold_cross_entropy(129, 257, gradient, 10.0, 0.0f);
    hold_cross_entropy(11, 1000, gradient, 100.0, 0.0f); /* most terms underflow */
    hold_cross_entropy(9, 2049, gradient, 1.0, 0.0f);    /* one element more than a chunk */
    hold_cross_entropy(3, 50257, gradient, 10.0, 0.0f);
    hold_cross_entropy(2, 600001, gradient, 5.0, 0.0f); /* chunks longer than usual */
    hold_cross_entropy(1, 1, gradient, 1.0, 30.0f);
    hold_cross_entropy(7, 3, gradient, 4.0, 2.0f);
    hold_cross_entropy(129, 257, gradient, 10.0, 30.0f);
    hold_cross_entropy(11, 1000, gradient, 40.0, 20.0f);
    hold_cross_entropy(9, 2049, gradient, 5.0, 1.5f);
    hold_cross_entropy(3, 50257, gradient, 40.0, 30.0f);
  }
}

/* PyTorch's fp32 loss over 49k classes is 8e-6 low. Ours must be nearer than 1e-7 relative: the rounding of the result.
 */
static void cross_entropy_has_no_bias(void **state) {
  int64_t rows = 64, vocabulary = 49152, n = rows * vocabulary;
  float *logits = floats(n, 4.0), *losses = floats(rows, 1.0);
  int32_t *labels = integers(rows, (int32_t)vocabulary);
  double *want = double_zeros(rows);
  const void *input = operand(logits, n);
  (void)state;
  hri_ref_cross_entropy(want, NULL, doubles(logits, n), labels, 0.0, 0.0, 1.0, rows, vocabulary, vocabulary);
  for (int i = 0; i < isa_count; i++) {
    double bias = 0.0;
    isas[i].kernels.cross_entropy(&(hri_cross_entropy_args){.rows = rows,
                                                            .vocabulary = vocabulary,
                                                            .stored = vocabulary,
                                                            .real = type,
                                                            .logits = input,
                                                            .labels = labels,
                                                            .gradient_scale = 1.0,
                                                            .losses = losses,
                                                            .team = team_of(2)});
    for (int64_t r = 0; r < rows; r++) bias += ((double)losses[r] - want[r]) / want[r] / (double)rows;
    assert_true(fabs(bias) <= (double)FLT_EPSILON / 2.0);
    bias = 0.0;
    for (int64_t r = 0; r < rows; r++) bias += (double)losses[r];
    assert_true(isas[i].kernels.loss_sum(losses, rows) == bias);
  }
}

/* NaN and infinite logits must show in the loss of their row and nowhere else; -inf is a class with no weight. A
 * soft-cap takes infinities, with no slope there; NaN it does not. */
static void cross_entropy_shows_bad_logits(void **state) {
  (void)state;
  for (int i = 0; i < 2 * isa_count; i++) {
    bool capped = i >= isa_count;
    float x[4 * 20], d[4 * 20], losses[4];
    int32_t labels[4] = {3, 3, 3, 3};
    void *result;
    for (int j = 0; j < 80; j++) x[j] = 0.0f;
    x[0 * 20 + 18] = NAN;
    x[1 * 20 + 5] = INFINITY;
    x[2 * 20 + 7] = -INFINITY;
    result = operand(x, 80);
    isas[i % isa_count].kernels.cross_entropy(&(hri_cross_entropy_args){.rows = 4,
                                                                        .vocabulary = 19,
                                                                        .stored = 20,
                                                                        .softcap = capped ? 2.0 : 0.0,
                                                                        .real = type,
                                                                        .logits = result,
                                                                        .labels = labels,
                                                                        .gradient_scale = 1.0,
                                                                        .losses = losses,
                                                                        .dlogits = result,
                                                                        .team = NULL});
    values(d, result, 80);
    assert_true(isnan(losses[0]) && isnan(d[0]));
    assert_true(capped ? fabs((double)losses[1] - log(18.0 + exp(2.0))) < 1e-6 && d[20 + 5] == 0.0f
                       : isnan(losses[1]) && isnan(d[20]));
    assert_true(fabs((double)losses[2] - log(18.0 + (capped ? exp(-2.0) : 0.0))) < 1e-6 &&
                fabs((double)losses[3] - log(19.0)) < 1e-6);
    assert_true(d[2 * 20 + 7] == 0.0f && d[2 * 20 + 19] == 0.0f);
  }
}

/* torch 2.13, float64: torch.nn.functional.cross_entropy(x, labels, label_smoothing=0.3), its gradient by backward. */
static void smoothing_is_that_of_torch(void **state) {
  static const double x[15] = {0.0, 0.5, -1.0, 1.5, -2.0, 0.75, 0.25, 1.75, -0.75, 2.75, 1.5, 2.0, 0.5, 3.0, -0.5},
                      wanted[15] = {0.035499680127500585,
                                    0.0779907158502647,
                                    -0.35590401427778684,
                                    0.26354920053805875,
                                    -0.021135582238037173,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0.035499680127500585,
                                    0.0779907158502647,
                                    -0.005904014277786859,
                                    0.26354920053805875,
                                    -0.37113558223803716},
                      wanted_loss = 3.1425628393425193;
  const int32_t labels[3] = {2, -100, 4};
  double losses[3], gradient[15];
  (void)state;
  hri_ref_cross_entropy(losses, gradient, x, labels, 0, 0.3, 0.5, 3, 5, 5);
  assert_true(fabs((losses[0] + losses[2]) / 2 - wanted_loss) < 1e-14 && losses[1] == 0);
  for (int i = 0; i < 15; i++) assert_true(fabs(gradient[i] - wanted[i]) < 1e-15);
}

typedef struct loss_scalar {
  const int32_t *labels;
  double softcap, smoothing;
} loss_scalar;

static double loss_value(const double *p, const void *context) {
  const loss_scalar *c = context;
  double losses[6], sum = 0.0;
  hri_ref_cross_entropy(losses, NULL, p, c->labels, c->softcap, c->smoothing, 1.0, 6, 13, 16);
  for (int r = 0; r < 6; r++) sum += losses[r];
  return 0.25 * sum;
}

static void cross_entropy_gradient_is_the_derivative(void **state) {
  int32_t labels[6] = {0, 12, -100, 5, 7, -1};
  (void)state;
  for (int turn = 0; turn < 4; turn++) {
    double *p = doubles(floats(96, 2.0), 96), *grad = double_zeros(96), losses[6];
    loss_scalar c = {labels, turn & 1 ? 1.5 : 0.0, turn & 2 ? 0.2 : 0.0};
    hri_ref_cross_entropy(losses, grad, p, labels, c.softcap, c.smoothing, 0.25, 6, 13, 16);
    check_gradient("cross entropy", loss_value, &c, p, grad, 96, 20.0);
  }
}

/* ---- optim ---- */

enum { STATES = HRI_STATE_TENSORS };

typedef struct optim_case {
  uint32_t optimizer, states;
  int64_t n;
  float *w, *state[STATES], *g;
  hri_update_numbers numbers;
} optim_case;

/* Output: w, states. */
static void run_update(const hri_cpu_kernels *k, int threads, int alias, const void *context, float *out) {
  const optim_case *c = context;
  hri_update_args a = {.n = c->n, .w = out, .g = c->g, .team = team_of(threads)};
  (void)alias;
  memcpy(out, c->w, (size_t)c->n * sizeof *out);
  for (uint32_t s = 0; s < c->states; s++) {
    a.state[s] = out + (s + 1) * c->n;
    memcpy(a.state[s], c->state[s], (size_t)c->n * sizeof *out);
  }
  k->update[c->optimizer](&a, &c->numbers);
}

/* Each state begins with numbers as it may hold: squares are not negative, and step 1 finds zeros. */
static void fill_states(optim_case *c) {
  for (uint32_t s = 0; s < c->states; s++) {
    bool squares = strstr(hri_optimizer_get(c->optimizer)->tensors[s].name, "_sq") != NULL;
    c->state[s] = floats(c->n, squares ? 0.01 : 1.0);
    for (int64_t j = 0; j < c->n; j++)
      c->state[s][j] = c->numbers.t == 1 ? 0 : squares ? fabsf(c->state[s][j]) : c->state[s][j];
  }
}

/* Numbers are what a float holds: both references take the same. */
static void updates_match_the_references(void **state) {
  (void)state;
  for (int i = 0; i < HR_OPTIMIZER_COUNT * 3 * FLAT_SIZES; i++) {
    if (hri_state_apart((uint32_t)(i / 3 / FLAT_SIZES))) continue; /* test_optim_blocks.c, test_adafactor.c */
    int64_t n = flat_sizes[i / 3 % FLAT_SIZES], t = i % 3 == 0 ? 1 : i % 3 == 1 ? 7 : 100000;
    optim_case c = {.optimizer = (uint32_t)(i / 3 / FLAT_SIZES),
                    .n = n,
                    .w = floats(n, 1.0),
                    .g = floats(n, 1.0),
                    .numbers = {.number = {(double)0.9f, (double)0.999f, (double)1e-8f},
                                .learning_rate = (double)3e-2f,
                                .weight_decay = (double)0.01f,
                                .gradient_scale = (double)0.37f,
                                .t = t}};
    for (int64_t j = 0; j < n; j++)
      c.w[j] = 1 + c.w[j] / 4; /* what a step leaves is no cancellation, whose error has no measure in itself */
    c.states = hri_optimizer_get(c.optimizer)->tensor_count;
    assert_true(c.states <= STATES);
    float *plain = take((size_t)((1 + STATES) * n) * sizeof *plain + 1), *plain_states[STATES];
    double *want = double_zeros((1 + STATES) * n), *want_states[STATES];
    pieces p = {1 + (int)c.states, {n, n, n}, 0};
    for (int s = 0; s < STATES; s++) plain_states[s] = plain + (s + 1) * n, want_states[s] = want + (s + 1) * n;
    fill_states(&c);
    for (int64_t j = 0; j < n; j++) want[j] = (double)(plain[j] = c.w[j]);
    for (uint32_t s = 0; s < c.states; s++)
      for (int64_t j = 0; j < n; j++) want_states[s][j] = (double)(plain_states[s][j] = c.state[s][j]);
    naive_update(c.optimizer, plain, plain_states, c.g, n, &c.numbers);
    hri_ref_update(c.optimizer, want, want_states, doubles(c.g, n), n, &c.numbers);
    hold(hr_optimizer_name((hr_optimizer)c.optimizer), run_update, &c, 1, &p, plain, want);
    release_to(0);
  }
}

static void square_sum_is_exact_and_shows_bad_values(void **state) {
  int64_t n = 3 * HRI_SQUARE_SUM_BLOCK + 77, count = hri_square_sum_count(n);
  float *g = floats(n, 1.0);
  (void)state;
  assert_int_equal(count, 4);
  for (int i = 0; i < isa_count; i++) {
    const hri_cpu_kernels *k = &isas[i].kernels;
    double first[4], partials[4], want = hri_ref_square_sum(doubles(g, n), n);
    k->square_sum(first, g, HRI_REAL_F32, n, NULL);
    /* all in double: a sum of n terms of one sign is off by n/2 roundings at most, in practice by their root */
    assert_true(fabs(k->partial_sum(first, count) / want - 1.0) < (double)n * DBL_EPSILON);
    for (int threads = 2; threads <= 4; threads++) {
      k->square_sum(partials, g, HRI_REAL_F32, n, team_of(threads));
      assert_memory_equal(partials, first, sizeof partials);
    }
    g[HRI_SQUARE_SUM_BLOCK + 5] = 1e30f; /* its square is no float, but no error either */
    k->square_sum(partials, g, HRI_REAL_F32, n, team_of(2));
    assert_true(isfinite(partials[1]) && partials[1] > 1e59);
    g[HRI_SQUARE_SUM_BLOCK + 5] = NAN;
    g[n - 1] = -INFINITY;
    k->square_sum(partials, g, HRI_REAL_F32, n, team_of(2));
    assert_true(isfinite(partials[0]) && isnan(partials[1]) && isfinite(partials[2]) && isinf(partials[3]));
    g[HRI_SQUARE_SUM_BLOCK + 5] = 0.25f;
    g[n - 1] = 0.25f;
  }
}

/* ---- move ---- */

static void copy_zero_and_fill_touch_just_their_range(void **state) {
  static const int64_t sizes[] = {0, 1, 7, 64, 1001, 262144, 1000003};
  (void)state;
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int i = 0; i < isa_count; i++) {
      int64_t bytes = sizes[s], n = bytes / 4;
      unsigned char *from = take((size_t)bytes + 1), *to = take((size_t)bytes + 2);
      float *y = floats(n + 1, 1.0), last = y[n];
      for (int64_t j = 0; j < bytes; j++) from[j] = (unsigned char)(j * 131 % 251);
      to[bytes] = 0xAB;
      isas[i].kernels.copy(to, from, bytes, team_of(3));
      for (int64_t j = 0; j < bytes; j++) assert_int_equal(to[j], from[j]);
      isas[i].kernels.zero(to, bytes, team_of(3));
      for (int64_t j = 0; j < bytes; j++) assert_int_equal(to[j], 0);
      assert_int_equal(to[bytes], 0xAB);
      isas[i].kernels.fill(y, -0.0f, n, team_of(3));
      for (int64_t j = 0; j < n; j++) assert_true(y[j] == 0.0f && signbit(y[j]));
      assert_true(y[n] == last);
      release_to(0);
    }
}

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* Between two neighbours of bf16 the nearer, of two equally near the one with an even last bit. */
static double nearest_bf16(float x) {
  double below = (double)hri_bf16_widen((hri_bf16)(bits_of(x) >> 16)), above, middle;
  uint32_t upper = bits_of(x) >> 16;
  if ((double)x == below) return below;
  above =
      (upper & 0x7fffu) + 1 == 0x7f80u ? copysign(0x1p128, (double)x) : (double)hri_bf16_widen((hri_bf16)(upper + 1));
  middle = (below + above) / 2; /* exact in double */
  if (fabs((double)x) < fabs(middle)) return below;
  if ((double)x == middle && upper % 2 == 0) return below;
  return fabs(above) == 0x1p128 ? copysign(HUGE_VAL, above) : above;
}

static void cast_rounds_to_nearest_even(void **state) {
  static const int64_t sizes[] = {0, 1, 15, 17, 1000, 100003};
  static const uint32_t special[] = {0x3f808000u, 0x3f818000u, 0x3f808001u, 0x3f817fffu, 0xbf808000u,
                                     0x7f7f8000u, 0x7f7f7fffu, 0xff7fffffu, 0x7f800000u, 0xff800000u,
                                     0x7f800001u, 0xffc00000u, 0x7fffffffu, 0x00008000u, 0x00018000u,
                                     0x00000001u, 0x80000000u, 0x007fffffu, 0x80008001u};
  enum { SPECIAL = sizeof special / sizeof *special };
  (void)state;
  for (int i = 0; i < isa_count * 6; i++) {
    const hri_cpu_kernels *k = &isas[i / 6].kernels;
    int64_t n = sizes[i % 6];
    float *x = floats(n + 1, 3.0), *back = floats(n + 1, 1.0), last = back[n];
    hri_bf16 *half = take((size_t)(n + 1) * sizeof *half), *again = take((size_t)(n + 1) * sizeof *half);
    for (int64_t j = 0; j < n; j++)
      if (j % 3 == 0) memcpy(x + j, &special[j / 3 % SPECIAL], sizeof *x);
    for (int threads = 1; threads <= 4; threads++) {
      half[n] = again[n] = 0x1234;
      k->cast(half, HRI_REAL_BF16, x, HRI_REAL_F32, n, team_of(threads));
      k->cast(back, HRI_REAL_F32, half, HRI_REAL_BF16, n, team_of(threads));
      k->cast(again, HRI_REAL_BF16, half, HRI_REAL_BF16, n, team_of(threads));
      assert_true(half[n] == 0x1234 && again[n] == 0x1234 && memcmp(&back[n], &last, sizeof last) == 0);
      assert_memory_equal(half, again, (size_t)n * sizeof *half);
      for (int64_t j = 0; j < n; j++) {
        if (isnan(x[j])) assert_true((half[j] & 0x7fc0) == 0x7fc0 && half[j] >> 15 == bits_of(x[j]) >> 31);
        else assert_true((double)back[j] == nearest_bf16(x[j]) && !signbit(back[j]) == !signbit(x[j]));
      }
    }
    release_to(0);
  }
}

/* Of a bf16 pattern, infinity as what it rounds for. */
static double bf16_as_real(uint32_t high) {
  return (high & 0x7FFFu) == 0x7F80u ? copysign(0x1p128, high >> 15 ? -1 : 1) : (double)hri_bf16_widen((hri_bf16)high);
}

/* The nearer of the two numbers around a float that is none of them; of equals the one away from zero. */
static uint32_t nearest_of_two(float x) {
  const uint32_t below = bits_of(x) >> 16;
  if (!isfinite(x) || (bits_of(x) & 0xFFFFu) == 0) return below;
  return fabs(bf16_as_real(below) - (double)x) < fabs(bf16_as_real(below + 1) - (double)x) ? below : below + 1;
}

/* Floats of all exponents, in steps that are odd, and those around ties: the nearest bf16 number, of two the one away from
 * zero; halves that make the float again; NaNs stay NaN on their side; and tails write nothing beside. */
static void halves_are_the_float(void **state) {
  enum { STEP = 4099, TIES = 1 << 10, AROUND = 9, EXTRA = AROUND * TIES };
  const int64_t n = (int64_t)(UINT32_MAX / STEP) + 1 + EXTRA;
  (void)state;
  for (int i = 0; i < isa_count; i++) {
    const hri_cpu_kernels *k = &isas[i].kernels;
    float *x = floats(n, 1.0), *back = floats(n + 1, 1.0), last = back[n];
    uint16_t *high = take((size_t)(n + 1) * sizeof *high), *low = take((size_t)(n + 1) * sizeof *low);
    for (int64_t j = 0; j < n; j++) {
      int64_t tie = j - (n - EXTRA);
      uint32_t bits =
          tie < 0 ? (uint32_t)j * STEP : ((uint32_t)(tie / AROUND) << 22 | 0x7FFCu) + (uint32_t)(tie % AROUND);
      memcpy(x + j, &bits, sizeof bits);
    }
    high[n] = low[n] = 0x1234;
    k->split(high, low, x, n, team_of(1 + i % 3));
    k->join(back, high, low, n, team_of(1 + i % 3));
    assert_true(high[n] == 0x1234 && low[n] == 0x1234 && memcmp(&back[n], &last, sizeof last) == 0);
    for (int64_t j = 0; j < n; j++) {
      uint16_t rest;
      bool as_scalar = high[j] == hri_split(x[j], &rest) && low[j] == rest &&
                       bits_of(back[j]) == bits_of(hri_join(high[j], low[j])),
           right = isnan(x[j]) ? isnan(hri_bf16_widen(high[j])) && isnan(back[j]) && !signbit(back[j]) == !signbit(x[j])
                               : high[j] == nearest_of_two(x[j]) && bits_of(back[j]) == bits_of(x[j]);
      if (!as_scalar || !right) fail_msg("%s: %08x is %04x and %04x", isas[i].name, bits_of(x[j]), high[j], low[j]);
    }
    release_to(0);
  }
}

/* Every fp16 number, and its neighbourhood: the middle to the next one and the floats beside that. As the scalar
 * conversions, which tests/plan/test_dtype.c holds to the definition. */
static void casts_of_fp16_have_the_bits_of_the_definition(void **state) {
  enum { ALL = 65536 };
  (void)state;
  for (int i = 0; i < isa_count; i++) {
    const hri_cpu_kernels *k = &isas[i].kernels;
    hri_f16 *half = take(ALL * sizeof *half), *back = take(3 * ALL * sizeof *back);
    hri_bf16 *other = take(ALL * sizeof *other);
    float *wide = take(ALL * sizeof *wide), *x = take(3 * ALL * sizeof *x);
    for (int h = 0; h < ALL; h++) {
      float middle = (hri_f16_widen((hri_f16)h) + hri_f16_widen((hri_f16)(h + 1))) / 2;
      half[h] = (hri_f16)h;
      if ((h & 0x7fff) == 0x7bff) middle = h >> 15 ? -65520.0f : 65520.0f; /* from here on infinity */
      x[3 * h] = middle;
      x[3 * h + 1] = nextafterf(middle, INFINITY);
      x[3 * h + 2] = nextafterf(middle, -INFINITY);
    }
    for (int threads = 1; threads <= 3; threads++) {
      k->cast(wide, HRI_REAL_F32, half, HRI_REAL_F16, ALL, team_of(threads));
      k->cast(back, HRI_REAL_F16, x, HRI_REAL_F32, 3 * ALL - 1, team_of(threads)); /* a tail too */
      k->cast(other, HRI_REAL_BF16, half, HRI_REAL_F16, ALL, team_of(threads));
      for (int h = 0; h < ALL; h++) {
        if (bits_of(wide[h]) != bits_of(hri_f16_widen(half[h])))
          fail_msg("%s: fp16 %04x widens to %a", isas[i].name, h, wide[h]);
        assert_int_equal(other[h], hri_bf16_round(wide[h]));
      }
      for (int j = 0; j < 3 * ALL - 1; j++)
        if (back[j] != hri_f16_round(x[j])) fail_msg("%s: %a rounds to %04x", isas[i].name, (double)x[j], back[j]);
    }
    assert_true(hri_f16_round(65520.0f) == 0x7c00 && hri_f16_round(65519.0f) == 0x7bff && hri_f16_round(0x1p-24f) == 1);
    release_to(0);
  }
}

static void searches_match_the_reference(void **state) {
  static const int64_t sizes[] = {1, 3, 16, 17, 257, 1000, 65536, 300001};
  (void)state;
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int trial = 0; trial < 12; trial++) {
      int64_t n = sizes[s];
      float *x = floats(n, 1.0);
      for (int64_t j = 0; j < n; j++) x[j] = floorf(x[j] * 50.0f); /* many equal largest values: the first counts */
      if (trial > 2) x[n * trial / 12] = trial % 3 == 0 ? NAN : trial % 3 == 1 ? INFINITY : -INFINITY;
      if (trial > 8) x[n - 1] = NAN;
      if (trial == 11) /* nothing but NaN */
        for (int64_t j = 0; j < n; j++) x[j] = NAN;
      for (int i = 0; i < isa_count; i++) {
        const void *input = operand(x, n);
        assert_int_equal(isas[i].kernels.argmax(input, n, type), hri_ref_argmax(doubles(x, n), n));
        for (int threads = 1; threads <= 4; threads++)
          assert_int_equal(isas[i].kernels.first_nonfinite(input, n, type, team_of(threads)),
                           hri_ref_first_nonfinite(doubles(x, n), n));
      }
      release_to(0);
    }
}

/* ---- random ---- */

static void normal_fill_does_not_depend_on_how_it_is_cut(void **state) {
  int64_t n = 20011;
  float *all = floats(n, 1.0), *part = floats(n, 1.0);
  (void)state;
  hri_fill_normal(all, n, 0.02, 7, 3, 0, NULL);
  for (int threads = 2; threads <= 4; threads++) {
    hri_fill_normal(part, n, 0.02, 7, 3, 0, team_of(threads));
    assert_memory_equal(part, all, (size_t)n * sizeof *all);
  }
  for (int64_t begin = 0; begin < n; begin += 997) { /* slices at every offset modulo 4 */
    int64_t count = n - begin < 997 ? n - begin : 997;
    hri_fill_normal(part, count, 0.02, 7, 3, begin, team_of(2));
    assert_memory_equal(part, all + begin, (size_t)count * sizeof *all);
  }
  hri_fill_normal(part, n, 0.02, 7, 4, 0, NULL);
  assert_memory_not_equal(part, all, 64);
  hri_fill_normal(part, n, 0.02, 8, 3, 0, NULL);
  assert_memory_not_equal(part, all, 64);
}

/* Box-Muller by libm, from the words that the fill uses: element 4 b + lane of block b. */
static void normal_fill_is_box_muller(void **state) {
  float *y = floats(40000, 1.0);
  (void)state;
  hri_fill_normal(y, 40000, 1.0, 11, 5, 0, team_of(2));
  for (int64_t i = 0; i < 40000; i++) {
    uint32_t word[4];
    double radius, angle, want;
    hri_philox(11, 5, (uint64_t)i / 4, word);
    radius = sqrt(-2.0 * log(((double)word[i % 4 / 2 * 2] + 0.5) * 0x1p-32));
    angle = 2.0 * acos(-1.0) * (double)word[i % 4 / 2 * 2 + 1] * 0x1p-32;
    want = radius * (i % 2 ? sin(angle) : cos(angle));
    assert_true(fabs((double)y[i] - want) <= (double)FLT_EPSILON * fabs(want) + 1e-12);
  }
}

/* Moments and tails of 4 million values: each within 5 standard errors. */
static void normal_fill_is_normal(void **state) {
  int64_t n = 1 << 22, beyond = 0;
  float *y = take((size_t)n * sizeof *y);
  double m1 = 0.0, m2 = 0.0, m3 = 0.0, m4 = 0.0, root = sqrt((double)n), tail = erfc(2.0 / sqrt(2.0));
  (void)state;
  hri_fill_normal(y, n, 1.0, 1, 1, 0, team_of(2));
  for (int64_t i = 0; i < n; i++) {
    double z = (double)y[i];
    m1 += z, m2 += z * z, m3 += z * z * z, m4 += z * z * z * z;
    beyond += fabs(z) > 2.0;
  }
  assert_true(fabs(m1 / (double)n) < 5.0 / root);
  assert_true(fabs(m2 / (double)n - 1.0) < 5.0 * sqrt(2.0) / root);
  assert_true(fabs(m3 / (double)n) < 5.0 * sqrt(15.0) / root);
  assert_true(fabs(m4 / (double)n - 3.0) < 5.0 * sqrt(96.0) / root);
  assert_true(fabs((double)beyond / (double)n - tail) < 5.0 * sqrt(tail * (1 - tail)) / root);
}

/* The values are part of the promise "same seed, same model": three of them, recorded. */
static void normal_fill_is_pinned(void **state) {
  float y[8];
  uint32_t bits[8];
  (void)state;
  hri_fill_normal(y, 8, 1.0, 42, 9, 1000, NULL);
  memcpy(bits, y, sizeof bits);
  assert_int_equal(bits[0], 0x3bb370dbu);
  assert_int_equal(bits[3], 0xbe6714f3u);
  assert_int_equal(bits[6], 0xbf62dd88u);
}

/* ---- vector math ---- */

static double ulp_of(double want) {
  int exponent;
  if (fabs(want) < 0x1p-126) return 0x1p-149;
  frexp(want, &exponent);
  return ldexp(1.0, exponent - 24);
}

static double math_value(hri_math f, double x) {
  if (f == HRI_MATH_EXP) return exp(x);
  if (f == HRI_MATH_LOG) return log(x);
  if (f == HRI_MATH_TANH) return tanh(x);
  return 1.0 / (1.0 + exp(-x));
}

/* In ulp; infinities and NaN must be exactly right. */
static double math_error(hri_math f, float x, float got) {
  double want = math_value(f, (double)x);
  if (isnan(want)) return isnan(got) ? 0.0 : HUGE_VAL;
  if (isinf((float)want)) return got == (float)want ? 0.0 : (double)got < 3.40e38 ? HUGE_VAL : 1.0;
  if (!isfinite(got)) return HUGE_VAL;
  return fabs((double)got - want) / ulp_of(want);
}

static void hold_math(hri_math f, double limit, const float *x, int64_t n) {
  float *y = take((size_t)n * sizeof *y);
  for (int i = 0; i < isa_count; i++) {
    isas[i].kernels.math(f, y, x, n);
    for (int64_t j = 0; j < n; j++) {
      double error = math_error(f, x[j], y[j]);
      double allowed = limit;
      if (f == HRI_MATH_SIGMOID && math_value(f, (double)x[j]) < 0x1p-126) allowed = 0x1p23; /* flushed to 0 */
      if (!(error <= allowed))
        fail_msg("math %d on %s at %a: %a, off by %.3g ulp", (int)f, isas[i].name, (double)x[j], (double)y[j], error);
    }
  }
}

/* Every float is too many for a test that runs often; a stride that is prime to everything takes all binades. */
static void vector_math_keeps_its_stated_error(void **state) {
  static const double limits[HRI_MATH_COUNT] = {1.25, 1.0, 1.5, 2.75};
  static const float special[] = {0.0f,       -0.0f,      INFINITY,   -INFINITY, NAN,      1.0f,    -1.0f,
                                  88.722839f, 88.722847f, -87.33655f, -103.97f,  -103.98f, -150.0f, 200.0f,
                                  FLT_MAX,    -FLT_MAX,   FLT_MIN,    0x1p-149f, 0.625f};
  uint32_t stride = getenv("HEADROOM_TEST_QUICK") ? 65521 : getenv("HEADROOM_TEST_LONG") ? 17 : 1021;
  int64_t n = 0;
  float *x = take((size_t)(UINT32_MAX / stride + 1) * sizeof *x);
  (void)state;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += stride) {
    uint32_t word = (uint32_t)bits;
    memcpy(x + n++, &word, sizeof word);
  }
  for (int f = 0; f < HRI_MATH_COUNT; f++) {
    hold_math((hri_math)f, limits[f], x, n);
    hold_math((hri_math)f, limits[f], special, (int64_t)(sizeof special / sizeof *special));
  }
}

/* ---- scratch ---- */

static void row_blocks_cover_all_rows(void **state) {
  (void)state;
  for (int64_t rows = 0; rows < 5000; rows++) {
    int64_t size = hri_row_block(rows), count = hri_row_block_count(rows);
    assert_true(count <= HRI_ROW_BLOCKS && size % 4 == 0 && size * count >= rows &&
                size * (count - 1) < (rows ? rows : 1));
  }
  assert_int_equal(hri_bias_gradient_scratch_bytes(INT64_MAX / 2, INT64_MAX / 2, 1), UINT64_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_teardown(name, teardown)
#define NARROW(name)                                                                                                   \
  {#name " in bf16", name, in_bf16, teardown, NULL}, {#name " in fp16", name, in_fp16, teardown, NULL}
      TEST(norms_match_the_reference),
      NARROW(norms_match_the_reference),
      TEST(fused_norms_have_the_bits_of_the_pair),
      NARROW(fused_norms_have_the_bits_of_the_pair),
      TEST(norms_skip_what_is_not_asked),
      TEST(norm_backward_is_the_derivative),
      TEST(head_norm_matches_the_reference),
      NARROW(head_norm_matches_the_reference),
      TEST(head_norm_backward_is_the_derivative),
      TEST(dora_matches_the_reference),
      NARROW(dora_matches_the_reference),
      TEST(row_lengths_fill_what_is_missing),
      TEST(dora_backward_is_the_derivative),
      TEST(add_and_scale_match_the_reference),
      NARROW(add_and_scale_match_the_reference),
      TEST(activations_match_the_reference),
      NARROW(activations_match_the_reference),
      TEST(activations_at_the_extremes),
      NARROW(activations_at_the_extremes),
      TEST(dropout_matches_the_reference),
      NARROW(dropout_matches_the_reference),
      TEST(noise_matches_the_reference),
      NARROW(noise_matches_the_reference),
      TEST(noise_is_uniform),
      TEST(dropout_goes_by_row_and_position),
      TEST(dropout_is_independent),
      TEST(dropout_is_white),
      TEST(dropout_is_pinned),
      TEST(softcap_matches_the_reference),
      NARROW(softcap_matches_the_reference),
      TEST(softcap_at_the_extremes),
      NARROW(softcap_at_the_extremes),
      TEST(glu_matches_the_reference),
      NARROW(glu_matches_the_reference),
      TEST(bias_gradient_matches_the_reference),
      NARROW(bias_gradient_matches_the_reference),
      TEST(rope_matches_the_reference),
      NARROW(rope_matches_the_reference),
      TEST(rope_table_is_of_the_fp32_angle),
      TEST(pointwise_backward_is_the_derivative),
      TEST(embedding_matches_the_reference),
      NARROW(embedding_matches_the_reference),
      TEST(embed_backward_is_the_transpose),
      TEST(cross_entropy_matches_the_reference),
      NARROW(cross_entropy_matches_the_reference),
      TEST(smoothed_cross_entropy_matches_the_reference),
      NARROW(smoothed_cross_entropy_matches_the_reference),
      TEST(smoothing_is_that_of_torch),
      TEST(cross_entropy_has_no_bias),
      NARROW(cross_entropy_has_no_bias),
      TEST(cross_entropy_shows_bad_logits),
      NARROW(cross_entropy_shows_bad_logits),
      TEST(cross_entropy_gradient_is_the_derivative),
      TEST(updates_match_the_references),
      TEST(square_sum_is_exact_and_shows_bad_values),
      TEST(copy_zero_and_fill_touch_just_their_range),
      TEST(cast_rounds_to_nearest_even),
      TEST(halves_are_the_float),
      TEST(casts_of_fp16_have_the_bits_of_the_definition),
      TEST(searches_match_the_reference),
      NARROW(searches_match_the_reference),
      TEST(normal_fill_does_not_depend_on_how_it_is_cut),
      TEST(normal_fill_is_box_muller),
      TEST(normal_fill_is_normal),
      TEST(normal_fill_is_pinned),
      TEST(vector_math_keeps_its_stated_error),
      TEST(row_blocks_cover_all_rows),
  };
  return cmocka_run_group_tests_name("kernels", tests, setup_isas, NULL);
}
