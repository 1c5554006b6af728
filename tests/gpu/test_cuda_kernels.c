/* The CUDA kernels on the GPU in software, against the double references, on odd shapes: values within the tolerance that
 * the CPU's kernels have, and nothing found (bounds, races, order). */
#include "gpu/kernels.h"

#include "ops/embed/ref.h"
#include "ops/loss/ref.h"
#include "ops/norm/ref.h"
#include "ops/pointwise/ref.h"
#include "ops/pointwise/rope_table.h"

#include "ops/embed/ref.c"
#include "ops/loss/ref.c"
#include "ops/norm/ref.c"
#include "ops/pointwise/ref.c"

/* ---- move ---- */

static void casts_(soft_test *t, hri_real from, int variant) {
  int64_t n = variant ? 1024 : 333;
  array x = array_random(t, n, from, 3, 0);
  for (int r = 0; r < 3; r++) {
    array y = array_result(t, n, reals[r]);
    void *bytes = take(n * hri_real_bytes(reals[r]));
    assert_int_equal(hri_cuda_cast(y.device, reals[r], x.device, from, n, t->stream), 0);
    soft_download(t, bytes, y.device, n * hri_real_bytes(reals[r]));
    for (int64_t i = 0; i < n; i++) {
      uint32_t expected = 0;
      hri_real_put(&expected, 0, x.f[i], reals[r]);
      assert_memory_equal((char *)bytes + i * hri_real_bytes(reals[r]), &expected, hri_real_bytes(reals[r]));
    }
    soft_clean(t);
  }
}
static void casts(void **state) {
  (void)state;
  each(casts_, 2);
}

/* ---- pointwise ---- */

static void elements_(soft_test *t, hri_real real, int variant) {
  int64_t n = variant ? 2048 : 1003;
  array a = array_random(t, n, real, 2, 0), b = array_random(t, n, real, 2, 0), y = array_result(t, n, real);
  assert_int_equal(hri_cuda_add(y.device, a.device, b.device, n, real, t->stream), 0);
  hri_ref_add(y.d, a.d, b.d, n);
  naive_add(y.f, a.f, b.f, n);
  expect(t, "add", &y);
  assert_int_equal(hri_cuda_scale(y.device, a.device, -1.7f, n, real, t->stream), 0);
  hri_ref_scale(y.d, a.d, -1.7f, n);
  naive_scale(y.f, a.f, -1.7f, n);
  expect(t, "scale", &y);
  assert_int_equal(hri_cuda_softcap(y.device, a.device, 1.5f, n, real, t->stream), 0);
  hri_ref_softcap(y.d, a.d, 1.5, n);
  naive_softcap(y.f, a.f, 1.5f, n);
  expect(t, "softcap", &y);
  for (int kind = 0; kind < HR_ACTIVATION_COUNT; kind++) {
    array s = array_result(t, n, real);
    assert_int_equal(hri_cuda_activation(kind, y.device, a.device, n, real, t->stream), 0);
    hri_ref_activation(kind, y.d, a.d, n);
    naive_activation(kind, y.f, a.f, n);
    expect(t, "activation", &y);
    assert_int_equal(hri_cuda_activation_backward(kind, s.device, b.device, a.device, n, real, t->stream), 0);
    hri_ref_activation_backward(kind, s.d, b.d, a.d, n);
    naive_activation_backward(kind, s.f, b.f, a.f, n);
    expect(t, "activation_backward", &s);
  }
}
static void elements(void **state) {
  (void)state;
  each(elements_, 2);
}

static void gated_(soft_test *t, hri_real real, int variant) {
  int64_t rows = 7, width = variant ? 64 : 37;
  array gu = array_random(t, rows * 2 * width, real, 2, 0), dy = array_random(t, rows * width, real, 1, 0);
  for (int kind = 0; kind < HR_ACTIVATION_COUNT; kind++) {
    array y = array_result(t, rows * width, real), d = array_result(t, rows * 2 * width, real);
    assert_int_equal(hri_cuda_glu(kind, y.device, gu.device, rows, width, real, t->stream), 0);
    hri_ref_glu(kind, y.d, gu.d, rows, width);
    naive_glu(kind, y.f, gu.f, rows, width);
    expect(t, "glu", &y);
    assert_int_equal(hri_cuda_glu_backward(kind, d.device, dy.device, gu.device, rows, width, real, t->stream), 0);
    hri_ref_glu_backward(kind, d.d, dy.d, gu.d, rows, width);
    naive_glu_backward(kind, d.f, dy.f, gu.f, rows, width);
    expect(t, "glu_backward", &d);
  }
}
static void gated(void **state) {
  (void)state;
  each(gated_, 2);
}

/* Also over its operand, and back. */
static void rope_(soft_test *t, hri_real real, int variant) {
  enum { ROWS = 11, H = 3, K = 1, POSITIONS = 20 };
  const int64_t D = variant < 2 ? 10 : variant == 2 ? 160 : 24, rotary = variant == 1 ? 6 : variant == 3 ? 16 : D;
  int64_t n = ROWS * (H + 2 * K) * D, pairs = POSITIONS * rotary / 2;
  int32_t position[ROWS];
  array x = array_random(t, n, real, 2, 0), c = array_random(t, pairs, HRI_REAL_F32, 1, 0);
  array s = array_random(t, pairs, HRI_REAL_F32, 1, 0), y = array_result(t, n, real);
  for (int i = 0; i < ROWS; i++) position[i] = i * 7 % POSITIONS;
  for (int inverse = 0; inverse < 2; inverse++) {
    hri_rope_args a = {.rows = ROWS, .heads = H, .kv_heads = K, .head_size = D, .rotary_size = rotary, .real = real};
    a.x = x.device, a.y = y.device, a.cosines = c.device, a.sines = s.device, a.inverse = inverse;
    a.position = device_ids(t, position, ROWS);
    if (inverse) a.y = y.device = x.device;
    assert_int_equal(hri_cuda_rope(&a, t->stream), 0);
    hri_ref_rope(y.d, x.d, c.d, s.d, position, ROWS, H, K, D, rotary, inverse);
    naive_rope(y.f, x.f, c.f, s.f, position, ROWS, H, K, D, rotary, inverse);
    expect(t, "rope", &y);
  }
}
static void rope(void **state) {
  (void)state;
  each(rope_, 4);
}

/* The CPU's tables but for the last bit of a cosine or a sine by double. */
static void rope_table(void **state) {
  enum { PAIRS = 13, POSITIONS = 50, ALL = PAIRS * POSITIONS };
  double inverse[PAIRS];
  float cosines[ALL], sines[ALL], got[2 * ALL];
  soft_test t = soft_open(0);
  float *table = soft_memory(&t, sizeof got);
  (void)state;
  for (int i = 0; i < PAIRS; i++) inverse[i] = pow(10000, -(double)i / PAIRS);
  hri_rope_table(inverse, PAIRS, 1.1, POSITIONS, cosines, sines, NULL);
  assert_int_equal(hri_cuda_rope_table(inverse, PAIRS, 1.1, POSITIONS, table, table + ALL, t.stream), 0);
  soft_clean(&t);
  soft_download(&t, got, table, sizeof got);
  for (int i = 0; i < ALL; i++) {
    assert_true(fabsf(got[i] - cosines[i]) <= fabsf(cosines[i]) * 0x1p-23f);
    assert_true(fabsf(got[ALL + i] - sines[i]) <= fabsf(sines[i]) * 0x1p-23f);
  }
  assert_int_equal(hri_cuda_rope_table(inverse, 257, 1, 1, table, table, t.stream), -1);
  soft_close(&t);
}

static void dropout_(soft_test *t, hri_real real, int variant) {
  int64_t rows = 12, columns = variant ? 96 : 45, n = rows * columns;
  hri_control control = {.seed = 99, .step = 17, .row_base = 5};
  hri_cuda_dropout_args a =
      {.rows = rows, .columns = columns, .sequence = 4, .real = real, .probability = 0.3, .site = 3};
  hri_draw draw = {.seed = 99, .step = 17, .site = 3, .row = 5};
  array x = array_random(t, n, real, 1, 2), y = array_result(t, n, real);
  void *bytes = take(n * hri_real_bytes(real));
  a.x = x.device, a.y = y.device, a.control = device_control(t, &control);
  assert_int_equal(hri_cuda_dropout(&a, t->stream), 0);
  hri_ref_dropout(y.d, x.d, 0.3, &draw, 4, rows, columns);
  naive_dropout(y.f, x.f, 0.3, &draw, 4, rows, columns);
  expect(t, "dropout", &y);
  soft_download(t, bytes, y.device, n * hri_real_bytes(real));
  for (int64_t i = 0; i < n; i++) assert_int_equal(hri_real_get(bytes, i, real) == 0, y.d[i] == 0); /* the CPU's mask */
}
static void dropout(void **state) {
  (void)state;
  each(dropout_, 2);
}

static void noise_(soft_test *t, hri_real real, int variant) {
  int64_t rows = 12, columns = variant ? 96 : 45, n = rows * columns;
  hri_control control = {.seed = 7, .step = 4, .row_base = 6};
  hri_cuda_noise_args a = {.rows = rows, .columns = columns, .sequence = 3, .real = real, .amplitude = 0.25, .site = 2};
  hri_draw draw = {.seed = 7, .step = 4, .site = 2, .row = 6};
  array x = array_random(t, n, real, 1, 0), y = array_result(t, n, real);
  a.x = x.device, a.y = y.device, a.control = device_control(t, &control);
  assert_int_equal(hri_cuda_noise(&a, t->stream), 0);
  hri_ref_noise(y.d, x.d, 0.25, &draw, 3, rows, columns);
  naive_noise(y.f, x.f, 0.25f, &draw, 3, rows, columns);
  expect(t, "noise", &y);
}
static void noise(void **state) {
  (void)state;
  each(noise_, 2);
}

/* ---- columns and slices ---- */

/* Columns 2 to 8 of rows of 11 in one type onto, or in place of, rows of 9 in every other. */
static void accumulate_(soft_test *t, hri_real from, int adds) {
  enum { ROWS = 13, COLUMNS = 7, FROM = 11, TO = 9 };
  array x = array_random(t, ROWS * FROM, from, 1, 0);
  for (int r = 0; r < 3; r++) {
    array y = array_random(t, ROWS * TO, reals[r], 1, 0);
    hri_cuda_accumulate_args a = {.y_real = reals[r], .x_real = from, .y_stride = TO, .x_stride = FROM};
    a.rows = ROWS, a.columns = COLUMNS, a.adds = adds, a.y = y.device;
    a.x = hri_real_from(x.device, 2, from);
    assert_int_equal(hri_cuda_accumulate(&a, t->stream), 0);
    for (int m = 0; m < ROWS; m++)
      for (int c = 0; c < COLUMNS; c++) {
        int i = m * TO + c, j = m * FROM + 2 + c;
        y.d[i] = x.d[j] + (adds ? y.d[i] : 0);
        y.f[i] = x.f[j] + (adds ? y.f[i] : 0);
      }
    expect(t, "accumulate", &y);
  }
}
static void accumulate(void **state) {
  (void)state;
  each(accumulate_, 2);
}

/* Bytes of every unit: pitches and addresses that are multiples of 16, 4, 2 and of nothing. */
static void copies(void **state) {
  static const int cases[][3] = {{64, 96, 32}, {36, 40, 12}, {38, 22, 10}, {21, 13, 9}}; /* pitches, width */
  unsigned char bytes[5 * 96], got[5 * 96];
  (void)state;
  for (int i = 0; i < (int)sizeof bytes; i++) bytes[i] = (unsigned char)(i * 7 + i / 251);
  for (int k = 0; k < 4; k++) {
    int to_pitch = cases[k][0], from_pitch = cases[k][1], width = cases[k][2];
    soft_test t = soft_open((uint64_t)k);
    unsigned char *from = soft_upload(&t, bytes, sizeof bytes), *to;
    hri_control control = {.micro_index = 3, .row_count = 2}, *on_device = device_control(&t, &control);
    memset(got, 0, sizeof got);
    to = soft_upload(&t, got, sizeof got);
    assert_int_equal(hri_cuda_copy_rows(to, to_pitch, from, from_pitch, width, 5, t.stream), 0);
    soft_clean(&t);
    soft_download(&t, got, to, sizeof got);
    for (int i = 0; i < (int)sizeof got; i++) {
      int row = i / to_pitch, column = i % to_pitch;
      assert_int_equal(got[i], row < 5 && column < width ? bytes[row * from_pitch + column] : 0);
    }
    assert_int_equal(hri_cuda_select(to, from, 4, width, on_device, t.stream), 0);
    assert_int_equal(hri_cuda_last_row(to + 2 * from_pitch, from, 4, width, on_device, t.stream), 0);
    soft_clean(&t);
    soft_download(&t, got, to, sizeof got);
    assert_memory_equal(got, bytes + 3 * width, (size_t)width);
    assert_memory_equal(got + 2 * from_pitch, bytes + width, (size_t)width);
    soft_close(&t);
  }
}

/* ---- norm ---- */

typedef void ref_forward(double *, double *, double *, const double *, const double *, const double *, double,
                         const double *, double, int64_t, int64_t);
typedef void naive_forward(float *, float *, float *, const float *, const float *, const float *, float, const float *,
                           float, int64_t, int64_t);
typedef void ref_backward(double *, double *, double *, const double *, const double *, const double *, const double *,
                          double, const double *, int64_t, int64_t);
typedef void naive_backward(float *, float *, float *, const float *, const float *, const float *, const float *,
                            float, const float *, int64_t, int64_t);
static const struct norm_kind {
  int (*run)(const hri_norm_args *, void *);
  int (*back)(const hri_norm_backward_args *, void *);
  ref_forward *ref;
  naive_forward *naive;
  ref_backward *ref_back;
  naive_backward *naive_back;
} norm_kinds[] = {{hri_cuda_rmsnorm, hri_cuda_rmsnorm_backward, hri_ref_rmsnorm, naive_rmsnorm,
                   hri_ref_rmsnorm_backward, naive_rmsnorm_backward},
                  {hri_cuda_layernorm, hri_cuda_layernorm_backward, hri_ref_layernorm, naive_layernorm,
                   hri_ref_layernorm_backward, naive_layernorm_backward}};

/* Bits of variant: layer norm; with residual and bias; many columns. */
static void norm_(soft_test *t, hri_real real, int variant) {
  const struct norm_kind *k = &norm_kinds[variant & 1];
  bool sums = variant >> 1 & 1;
  int64_t rows = 5, n = variant & 4 ? 2312 : 23, each_stats = 1 + (variant & 1);
  array x = array_random(t, rows * n, real, 1, 0.5), r = array_random(t, rows * n, real, 1, 0);
  array w = array_random(t, n, HRI_REAL_F32, 0.3, 1), b = array_random(t, n, HRI_REAL_F32, 1, 0);
  array s = array_result(t, rows * n, real), y = array_result(t, rows * n, real);
  array stats = array_result(t, rows * each_stats, HRI_REAL_F32);
  hri_norm_args a = {.rows = rows, .columns = n, .real = real, .x = x.device, .weight = w.device, .eps = 1e-5};
  a.y = y.device, a.stats = stats.device, a.weight_offset = variant & 1 ? 0 : 1;
  if (sums) a.residual = r.device, a.s = s.device, a.bias = b.device;
  assert_int_equal(k->run(&a, t->stream), 0);
  if (sums) { /* what is normalised is the sum as it was rounded */
    for (int64_t i = 0; i < rows * n; i++) s.d[i] = s.f[i] = x.f[i] + r.f[i];
    expect(t, "norm, sum", &s);
    double *exact = take(rows * n * sizeof(double));
    memcpy(exact, s.d, rows * n * sizeof(double));
    s = array_of(t, rows * n, real, exact);
  }
  k->ref(y.d, take(rows * n * 8), stats.d, sums ? s.d : x.d, NULL, w.d, a.weight_offset, sums ? b.d : NULL, 1e-5, rows,
         n);
  k->naive(y.f, take(rows * n * 4), stats.f, sums ? s.f : x.f, NULL, w.f, (float)a.weight_offset, sums ? b.f : NULL,
           1e-5f, rows, n);
  expect(t, "norm", &y);
  expect(t, "norm, statistics", &stats);
}
static void norms(void **state) {
  (void)state;
  each(norm_, 8);
}

/* Bits of variant: layer norm; with extra, bias, sums added, over dy; many rows. */
static void norm_backward_(soft_test *t, hri_real real, int variant) {
  const struct norm_kind *k = &norm_kinds[variant & 1];
  bool more = variant >> 1 & 1;
  int64_t rows = variant & 4 ? 150 : 6, n = variant & 4 ? 40 : 139, each_stats = 1 + (variant & 1);
  array x = array_random(t, rows * n, real, 1, 0.5), dy = array_random(t, rows * n, real, 1, 0);
  array w = array_random(t, n, HRI_REAL_F32, 0.3, 1), extra = array_random(t, rows * n, real, 1, 0);
  array dw = array_random(t, n, HRI_REAL_F32, 1, 0), db = array_random(t, n, HRI_REAL_F32, 1, 0);
  array dx = array_result(t, rows * n, real);
  double *statistics = take(rows * each_stats * sizeof(double)), *scrap = take(rows * n * 8);
  k->ref(scrap, take(rows * n * 8), statistics, x.d, NULL, w.d, 0, NULL, 1e-5, rows, n);
  array stats = array_of(t, rows * each_stats, HRI_REAL_F32, statistics);
  hri_norm_backward_args a = {.rows = rows, .columns = n, .real = real, .dy = dy.device, .x = x.device};
  a.stats = stats.device, a.weight = w.device, a.dx = dx.device, a.dweight = dw.device;
  a.scratch = soft_memory(t, hri_cuda_norm_backward_scratch_bytes(rows, n));
  if (more) a.extra = extra.device, a.dbias = db.device, a.accumulate = true, a.dx = dx.device = dy.device;
  if (!more) memset(dw.d, 0, n * 8), memset(dw.f, 0, n * 4);
  assert_int_equal(k->back(&a, t->stream), 0);
  k->ref_back(dx.d, dw.d, more ? db.d : NULL, dy.d, x.d, stats.d, w.d, 0, more ? extra.d : NULL, rows, n);
  k->naive_back(dx.f, dw.f, more ? db.f : NULL, dy.f, x.f, stats.f, w.f, 0, more ? extra.f : NULL, rows, n);
  expect(t, "norm backward, dweight", &dw);
  if (more) expect(t, "norm backward, dbias", &db);
  if (!more) {
    expect(t, "norm backward, dx", &dx);
    return;
  }
  /* dx is rounded before extra is added: half an ulp of what was there before, which may be larger than the sum */
  double largest = 0;
  for (int64_t i = 0; i < rows * n; i++) largest = fmax(largest, fabs(dx.d[i] - extra.d[i]));
  expect_within(t, "norm backward, dx with extra", &dx, half_ulp(largest, real));
}
static void norms_backward(void **state) {
  (void)state;
  each(norm_backward_, 8);
}

/* ---- embed ---- */

static void embed_(soft_test *t, hri_real real, int variant) {
  enum { ROWS = 19, V = 30, P = 8, C = 33 };
  int32_t ids[ROWS], positions[ROWS];
  array table = array_random(t, V * C, real, 1, 0), at = array_random(t, P * C, real, 1, 0),
        y = array_result(t, ROWS * C, real);
  hri_embed_args a = {.rows = ROWS, .columns = C, .real = real, .tokens = table.device, .factor = variant ? 2.5 : 1};
  for (int i = 0; i < ROWS; i++) ids[i] = i * 13 % V, positions[i] = i % P;
  a.ids = device_ids(t, ids, ROWS), a.y = y.device;
  if (variant) a.positions = at.device, a.position = device_ids(t, positions, ROWS);
  assert_int_equal(hri_cuda_embed(&a, t->stream), 0);
  hri_ref_embed(y.d, table.d, a.factor, variant ? at.d : NULL, ids, positions, ROWS, C);
  naive_embed(y.f, table.f, (float)a.factor, variant ? at.f : NULL, ids, positions, ROWS, C);
  expect(t, "embed", &y);
}
static void embed(void **state) {
  (void)state;
  each(embed_, 2);
}

/* Variant 1: more rows than a tile, indices of two digits, added to what is there. */
static void embed_backward_(soft_test *t, hri_real real, int variant) {
  int64_t rows = variant ? 1100 : 21, v = variant ? 700 : 30, c = variant ? 3 : 37;
  int32_t *ids = take(rows * sizeof *ids);
  array dy = array_random(t, rows * c, real, 1, 0), table = array_random(t, v * c, HRI_REAL_F32, 1, 0);
  hri_embed_backward_args a =
      {.rows = rows, .columns = c, .real = real, .dy = dy.device, .factor = 1.5, .skip_index = 4};
  for (int64_t i = 0; i < rows; i++) ids[i] = (int32_t)(i % 5 == 0 ? 2 : i * 97 % v);
  a.index = device_ids(t, ids, rows), a.dtable = table.device, a.stored_rows = v, a.accumulate = variant;
  if (!variant) memset(table.d, 0, v * c * 8), memset(table.f, 0, v * c * 4);
  assert_int_equal(hri_cuda_embed_backward(&a, soft_memory(t, hri_cuda_embed_backward_scratch_bytes(rows)), t->stream),
                   0);
  hri_ref_embed_backward(table.d, dy.d, 1.5, ids, 4, rows, c);
  naive_embed_backward(table.f, dy.f, 1.5f, ids, 4, rows, c);
  expect(t, "embed_backward", &table);
  float *bits = take(v * c * 4); /* rows are added in their order: the plain sum's bits, but for fused multiply-adds */
  soft_download(t, bits, table.device, v * c * 4);
  for (int64_t i = 0; real != HRI_REAL_F32 && i < v * c; i++) assert_true(bits[i] == table.f[i]);
}
static void embed_backward(void **state) {
  (void)state;
  each(embed_backward_, 2);
}

/* ---- loss ---- */

/* Rows of an array of which only the first `columns` were ever written. */
static void *rows_written(soft_test *t, const array *x, int64_t rows, int64_t columns) {
  int64_t size = hri_real_bytes(x->real), pitch = x->n / rows * size;
  unsigned char *to = soft_memory(t, x->n * size), *host;
  assert_int_equal(t->gpu->calls->allocate_host(t->gpu, x->n * size, (void **)&host, NULL), HR_OK);
  for (int64_t i = 0; i < x->n; i++) hri_real_put(host, i, x->f[i], x->real);
  for (int64_t row = 0; row < rows; row++)
    assert_int_equal(t->gpu->calls->copy(t->gpu, to + row * pitch, host + row * pitch, columns * size, t->stream, NULL),
                     HR_OK);
  soft_clean(t);
  assert_int_equal(t->gpu->calls->release_host(t->gpu, host, NULL), HR_OK);
  return to;
}

/* Bits of variant: cap and smoothing; over the logits. */
static void cross_entropy_(soft_test *t, hri_real real, int variant) {
  enum { ROWS = 5 };
  const int64_t V = variant == 5 ? 9001 : 301, STORED = variant == 4 ? 323 : variant == 5 ? 9008 : 320;
  const int32_t labels[ROWS] = {0, (int32_t)V - 1, -1, 17, 5};
  hri_control control = {.inv_tokens = 0.25, .loss_scale = 2, .loss_sum = 1.5};
  double cap = variant & 1 ? 5 : 0, smoothing = variant & 1 ? 0.1 : 0;
  array x = array_random(t, ROWS * STORED, real, 3, 0), losses = array_result(t, ROWS, HRI_REAL_F32);
  array dx = array_result(t, ROWS * STORED, real);
  x.device = rows_written(t, &x, ROWS, V); /* nobody looks behind the vocabulary */
  hri_cuda_cross_entropy_args a =
      {.rows = ROWS, .vocabulary = V, .stored = STORED, .softcap = cap, .smoothing = smoothing, .real = real};
  hri_control *on_device = device_control(t, &control);
  a.logits = x.device, a.labels = device_ids(t, labels, ROWS), a.control = on_device, a.losses = losses.device;
  a.dlogits = variant & 2 ? (dx.device = x.device) : dx.device;
  assert_int_equal(hri_cuda_cross_entropy(&a, t->stream), 0);
  hri_ref_cross_entropy(losses.d, dx.d, x.d, labels, cap, smoothing, 0.5, ROWS, V, STORED);
  naive_cross_entropy(losses.f, dx.f, x.f, labels, (float)cap, (float)smoothing, 0.5f, ROWS, V, STORED);
  expect(t, "losses", &losses);
  expect(t, "dlogits", &dx);
  assert_int_equal(hri_cuda_loss_sum(losses.device, ROWS, on_device, t->stream), 0);
  soft_clean(t);
  soft_download(t, &control, on_device, sizeof control);
  double sum = 1.5;
  for (int i = 0; i < ROWS; i++) sum += losses.d[i];
  assert_true(fabs(control.loss_sum - sum) < 1e-5);
}

/* Logits that overflowed downwards: no part of the sum, even where a thread has no others. */
static void lowest_logits_(soft_test *t, hri_real real, int variant) {
  enum { ROWS = 3, LOWEST = 8, V = 300 };
  const int32_t labels[ROWS] = {LOWEST, V - 1, 17};
  hri_control control = {.inv_tokens = 0.25, .loss_scale = 2};
  const int64_t stored = variant ? 301 : 320; /* an element at a time, or a vector */
  array x = array_random(t, ROWS * stored, real, 3, 0), losses = array_result(t, ROWS, HRI_REAL_F32);
  array dx = array_result(t, ROWS * stored, real);
  for (int64_t row = 0; row < ROWS; row++)
    for (int64_t v = 0; v < LOWEST; v++) x.f[row * stored + v] = -INFINITY, x.d[row * stored + v] = -INFINITY;
  x.device = rows_written(t, &x, ROWS, V);
  hri_cuda_cross_entropy_args a = {.rows = ROWS, .vocabulary = V, .stored = stored, .real = real};
  a.logits = x.device, a.labels = device_ids(t, labels, ROWS), a.control = device_control(t, &control);
  a.losses = losses.device, a.dlogits = dx.device;
  assert_int_equal(hri_cuda_cross_entropy(&a, t->stream), 0);
  hri_ref_cross_entropy(losses.d, dx.d, x.d, labels, 0, 0, 0.5, ROWS, V, stored);
  naive_cross_entropy(losses.f, dx.f, x.f, labels, 0, 0, 0.5f, ROWS, V, stored);
  expect(t, "losses", &losses);
  expect(t, "dlogits", &dx);
}

static void cross_entropy(void **state) {
  (void)state;
  each(cross_entropy_, 6);
  each(lowest_logits_, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(casts),          cmocka_unit_test(elements),
                                     cmocka_unit_test(gated),          cmocka_unit_test(rope),
                                     cmocka_unit_test(rope_table),     cmocka_unit_test(dropout),
                                     cmocka_unit_test(noise),          cmocka_unit_test(accumulate),
                                     cmocka_unit_test(copies),         cmocka_unit_test(norms),
                                     cmocka_unit_test(norms_backward), cmocka_unit_test(embed),
                                     cmocka_unit_test(embed_backward), cmocka_unit_test(cross_entropy)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
