/* Bias gradients, norms of heads and DoRA on the GPU in software, against the double references: sizes that fill no warp, rows
 * that fill no block of sums, in place, added to and overwritten. */
#include "gpu/kernels.h"

#include "ops/norm/ref.h"
#include "ops/pointwise/ref.h"

#include "ops/norm/ref.c"
#include "ops/pointwise/ref.c"

/* Overwritten, or added to what is there. */
static void clear(array *a) {
  memset(a->d, 0, (size_t)a->n * sizeof *a->d);
  memset(a->f, 0, (size_t)a->n * sizeof *a->f);
}

static void bias_(soft_test *t, hri_real real, int adds) {
  int64_t rows = adds ? 1200 : 64, n = 139; /* more blocks of rows than a fold has warps; one */
  array dy = array_random(t, rows * n, real, 1, 0), db = array_random(t, n, HRI_REAL_F32, 1, 0);
  float *scratch = soft_memory(t, hri_cuda_bias_gradient_scratch_bytes(rows, n));
  if (!adds) clear(&db);
  assert_int_equal(hri_cuda_bias_gradient(db.device, dy.device, rows, n, adds, scratch, real, t->stream), 0);
  hri_ref_bias_gradient(db.d, dy.d, rows, n);
  naive_bias_gradient(db.f, dy.f, rows, n);
  expect(t, "bias_gradient", &db);
}
static void bias(void **state) {
  (void)state;
  each(bias_, 2);
}

/* Variants: heads of 40; keys of another size, in place; all heads as one. */
static const struct {
  int64_t rows, heads, keys, size, key_size;
} head_kinds[] = {{9, 3, 1, 40, 0}, {70, 4, 2, 6, 10}, {5, 1, 1, 96, 36}};

static void heads_(soft_test *t, hri_real real, int variant) {
  int64_t rows = head_kinds[variant].rows, h = head_kinds[variant].heads, k = head_kinds[variant].keys;
  int64_t d = head_kinds[variant].size, e = head_kinds[variant].key_size ? head_kinds[variant].key_size : d;
  int64_t n = rows * (h * d + 2 * k * e);
  array x = array_random(t, n, real, 1, 0.25), dy = array_random(t, n, real, 1, 0);
  array wq = array_random(t, d, HRI_REAL_F32, 0.3, 1), wk = array_random(t, e, HRI_REAL_F32, 0.3, 1);
  array y = array_result(t, n, real), stats = array_result(t, rows * (h + k), HRI_REAL_F32);
  hri_head_norm_args a = {.rows = rows, .heads = h, .kv_heads = k, .head_size = d, .real = real};
  a.key_size = head_kinds[variant].key_size, a.x = x.device, a.y = y.device, a.wq = wq.device, a.wk = wk.device;
  a.weight_offset = variant, a.eps = 1e-5, a.stats = stats.device;
  assert_int_equal(hri_cuda_head_norm(&a, t->stream), 0);
  hri_ref_head_norm(y.d, stats.d, x.d, wq.d, wk.d, variant, 1e-5, rows, h, k, d, e);
  naive_head_norm(y.f, stats.f, x.f, wq.f, wk.f, (float)variant, 1e-5f, rows, h, k, d, e);
  expect(t, "head_norm", &y);
  expect(t, "head_norm, stats", &stats);
  array exact = array_of(t, stats.n, HRI_REAL_F32, stats.d), dx = array_result(t, n, real);
  array dq = array_random(t, d, HRI_REAL_F32, 1, 0), dk = array_random(t, e, HRI_REAL_F32, 1, 0);
  hri_head_norm_backward_args b = {.rows = rows, .heads = h, .kv_heads = k, .head_size = d, .real = real};
  b.key_size = a.key_size, b.dy = dy.device, b.x = x.device, b.stats = exact.device, b.wq = wq.device, b.wk = wk.device;
  b.weight_offset = variant, b.dwq = dq.device, b.dwk = dk.device, b.accumulate = variant == 1;
  b.dx = variant == 1 ? (dx.device = dy.device) : dx.device;
  b.scratch = soft_memory(t, hri_cuda_head_norm_backward_scratch_bytes(rows, d, a.key_size));
  if (!b.accumulate) clear(&dq), clear(&dk);
  assert_int_equal(hri_cuda_head_norm_backward(&b, t->stream), 0);
  hri_ref_head_norm_backward(dx.d, dq.d, dk.d, dy.d, x.d, exact.d, wq.d, wk.d, variant, rows, h, k, d, e);
  naive_head_norm_backward(dx.f, dq.f, dk.f, dy.f, x.f, exact.f, wq.f, wk.f, (float)variant, rows, h, k, d, e);
  expect(t, "head_norm_backward, dx", &dx);
  expect(t, "head_norm_backward, dwq", &dq);
  expect(t, "head_norm_backward, dwk", &dk);
}
static void heads(void **state) {
  (void)state;
  each(heads_, 3);
}

/* Variants: of w alone where there is none yet; with an adapter. */
static void lengths_(soft_test *t, hri_real real, int variant) {
  enum { ROWS = 7, COLUMNS = 301, RANK = 5 };
  array w = array_random(t, ROWS * COLUMNS, real, 1, 0), a = array_random(t, RANK * COLUMNS, HRI_REAL_F32, 1, 0);
  array b = array_random(t, ROWS * RANK, HRI_REAL_F32, 1, 0), lengths = array_random(t, ROWS, HRI_REAL_F32, 1, 9);
  double *fresh = take(ROWS * sizeof *fresh);
  float *fresh_naive = take(ROWS * sizeof *fresh_naive);
  hri_row_lengths_args args = {.rows = ROWS, .columns = COLUMNS, .real = real, .w = w.device};
  if (variant) args.a = a.device, args.b = b.device, args.rank = RANK, args.scale = 0.5f;
  hri_ref_row_lengths(fresh, w.d, a.d, variant ? b.d : NULL, 0.5, ROWS, COLUMNS, RANK);
  naive_row_lengths(fresh_naive, w.f, a.f, variant ? b.f : NULL, 0.5f, ROWS, COLUMNS, RANK);
  args.missing = !variant;
  if (!variant) lengths.d[2] = lengths.d[5] = NAN;
  lengths = array_of(t, ROWS, HRI_REAL_F32, lengths.d);
  args.lengths = lengths.device;
  for (int i = 0; i < ROWS; i++)
    if (variant || lengths.d[i] != lengths.d[i]) lengths.d[i] = fresh[i], lengths.f[i] = fresh_naive[i];
  assert_int_equal(hri_cuda_row_lengths(&args, t->stream), 0);
  expect(t, "row_lengths", &lengths);
}
static void lengths(void **state) {
  (void)state;
  each(lengths_, 2);
}

/* Three parts of which the second has no magnitudes; a length of 0. Bits of variant: bias and added to; over dy. */
static void dora_(soft_test *t, hri_real real, int variant) {
  const int64_t parts[3] = {37, 20, 9}, rows = variant & 1 ? 150 : 6, n = 66, with = 46;
  array z = array_random(t, rows * n, real, 1, 0), dy = array_random(t, rows * n, real, 1, 0);
  array m = array_random(t, with, HRI_REAL_F32, 1, 2), l = array_random(t, with, HRI_REAL_F32, 0.1, 2);
  array bias = array_random(t, n, HRI_REAL_F32, 1, 0), y = array_result(t, rows * n, real);
  array dz = array_result(t, rows * n, real), dm = array_random(t, with, HRI_REAL_F32, 1, 0);
  hri_dora_args a = {.rows = rows, .columns = n, .real = real, .parts = {37, 20, 9}, .having = 5, .z = z.device};
  l.d[40] = 0;
  l = array_of(t, with, HRI_REAL_F32, l.d);
  a.magnitudes = m.device, a.lengths = l.device, a.bias = variant & 1 ? bias.device : NULL, a.y = y.device;
  assert_int_equal(hri_cuda_dora(&a, t->stream), 0);
  hri_ref_dora(y.d, z.d, m.d, l.d, variant & 1 ? bias.d : NULL, parts, 5, rows);
  naive_dora(y.f, z.f, m.f, l.f, variant & 1 ? bias.f : NULL, parts, 5, rows);
  expect(t, "dora", &y);
  a.dy = dy.device, a.dz = variant & 2 ? (dz.device = dy.device) : dz.device, a.dmagnitudes = dm.device;
  a.accumulate = variant & 1, a.scratch = soft_memory(t, hri_cuda_dora_backward_scratch_bytes(rows, n));
  if (!a.accumulate) clear(&dm);
  assert_int_equal(hri_cuda_dora_backward(&a, t->stream), 0);
  hri_ref_dora_backward(dz.d, dm.d, dy.d, z.d, m.d, l.d, parts, 5, rows);
  naive_dora_backward(dz.f, dm.f, dy.f, z.f, m.f, l.f, parts, 5, rows);
  expect(t, "dora_backward, dz", &dz);
  expect(t, "dora_backward, dm", &dm);
}
static void dora(void **state) {
  (void)state;
  each(dora_, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bias), cmocka_unit_test(heads), cmocka_unit_test(lengths),
                                     cmocka_unit_test(dora)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
