/* Attention over a generation cache, and thin and mixed products, on the GPU in software against the double references. */
#include "gpu/kernels.h"

#include "ops/attention/ref.h"

/* ---- the cache ---- */

static const struct {
  int64_t batch, rows, capacity, heads, kv_heads, d, window, past, valid;
  double softcap;
} caches[] = {{1, 1, 320, 4, 2, 33, 0, 300, 1, 0},    /* two runs, groups */
              {2, 5, 64, 2, 2, 16, 0, 0, 3, 2},       /* from nothing, rows that are not there */
              {1, 3, 800, 2, 1, 136, 100, 700, 3, 0}, /* a window: runs that nobody sees */
              {1, 2, 320, 12, 2, 128, 0, 289, 2, 0},  /* groups of more heads than a block has, a last key alone */
              {2, 1, 32, 1, 1, 200, 0, 30, 1, 0}};    /* wide rows, fewer of them than threads */

/* The plain fp32 one: a query's scores, probabilities, output. */
static void naive_cached(const hri_attention_cache_shape *s, float scale, const float *q, const float *keys,
                         const float *values, int64_t b, int64_t kv, int64_t position, float *y) {
  int64_t first = s->window > 0 && position >= s->window ? position - s->window + 1 : 0;
  float *p = take((uint64_t)(position + 1) * sizeof *p), most = -INFINITY, sum = 0;
  for (int64_t j = first; j <= position; j++) {
    float score = 0;
    for (int64_t i = 0; i < s->head_dim; i++)
      score += q[i] * keys[hri_attention_cache_key(s, b, kv, j) + i * HRI_ATTENTION_CACHE_BLOCK];
    p[j] = score * scale;
    if (s->softcap > 0) p[j] = (float)s->softcap * tanhf(p[j] / (float)s->softcap);
    most = fmaxf(most, p[j]);
  }
  for (int64_t j = first; j <= position; j++) sum += p[j] = expf(p[j] - most);
  for (int64_t i = 0; i < s->head_dim; i++) {
    float out = 0;
    for (int64_t j = first; j <= position; j++) out += p[j] * values[hri_attention_cache_value(s, b, kv, j) + i];
    y[i] = out / sum;
  }
}

/* A cache in memory of its own in which nothing was written behind `count` positions. */
static void *written_to(soft_test *t, const hri_attention_cache_shape *s, const array *cache, int64_t count,
                        bool values) {
  const int64_t each = HRI_ATTENTION_CACHE_BLOCK, D = s->head_dim, size = hri_real_bytes(cache->real);
  int64_t whole = values ? count : count / each * each;
  unsigned char *bytes = take(cache->n * size), *to = soft_memory(t, cache->n * size), *host;
  soft_download(t, bytes, cache->device, cache->n * size);
  assert_int_equal(t->gpu->calls->allocate_host(t->gpu, cache->n * size, (void **)&host, NULL), HR_OK);
  memcpy(host, bytes, cache->n * size);
  for (int64_t head = 0; head < s->batch * s->kv_heads; head++) {
    int64_t at = head * s->capacity * D * size;
    assert_int_equal(t->gpu->calls->copy(t->gpu, to + at, host + at, whole * D * size, t->stream, NULL), HR_OK);
    at += whole * D * size;
    for (int64_t d = 0; d < D && whole < count; d++, at += each * size)
      assert_int_equal(t->gpu->calls->copy(t->gpu, to + at, host + at, (count - whole) * size, t->stream, NULL), HR_OK);
  }
  soft_clean(t);
  assert_int_equal(t->gpu->calls->release_host(t->gpu, host, NULL), HR_OK);
  return to;
}

static void cached_(soft_test *t, hri_real real, int v) {
  hri_attention_cache_shape s = {.batch = caches[v].batch, .rows = caches[v].rows, .capacity = caches[v].capacity};
  s.heads = caches[v].heads, s.kv_heads = caches[v].kv_heads, s.head_dim = caches[v].d, s.window = caches[v].window;
  s.softcap = caches[v].softcap, s.real = real;
  int64_t width = (s.heads + 2 * s.kv_heads) * s.head_dim, n = hri_attention_cache_elements(&s);
  hri_control control = {.cache_length = caches[v].past, .row_count = caches[v].valid};
  array qkv = array_random(t, s.batch * s.rows * width, real, 1, 0);
  array keys = array_random(t, n, real, 1, 0), values = array_random(t, n, real, 1, 0);
  array y = array_result(t, s.batch * s.rows * s.heads * s.head_dim, real);
  double scale = 1 / sqrt((double)s.head_dim);
  assert_int_equal(hri_cuda_attention_cached(&s, (float)scale, qkv.device, keys.device, values.device,
                                             device_control(t, &control), y.device,
                                             soft_memory(t, hri_cuda_attention_cached_scratch_bytes(&s)), t->stream),
                   0);
  hri_attention_ref_cached(&s, scale, qkv.d, caches[v].past, caches[v].valid, keys.d, values.d, y.d);
  for (int64_t i = 0; i < n; i++) keys.f[i] = (float)keys.d[i], values.f[i] = (float)values.d[i];
  expect(t, "cached keys", &keys);
  expect(t, "cached values", &values);
  for (int64_t b = 0; b < s.batch; b++)
    for (int64_t row = 0; row < caches[v].valid; row++)
      for (int64_t h = 0; h < s.heads; h++) {
        int64_t at = b * s.rows + row;
        naive_cached(&s, (float)scale, qkv.f + at * width + h * s.head_dim, keys.f, values.f, b,
                     h / (s.heads / s.kv_heads), caches[v].past + row, y.f + (at * s.heads + h) * s.head_dim);
      }
  expect(t, "attention_cached", &y);
  /* what was never written is not read: the same bits */
  void *again = soft_memory(t, y.n * hri_real_bytes(real)), *bits = take(y.n * 4), *other = take(y.n * 4);
  void *few_keys = written_to(t, &s, &keys, caches[v].past, false);
  void *few_values = written_to(t, &s, &values, caches[v].past, true);
  assert_int_equal(hri_cuda_attention_cached(&s, (float)scale, qkv.device, few_keys, few_values,
                                             device_control(t, &control), again,
                                             soft_memory(t, hri_cuda_attention_cached_scratch_bytes(&s)), t->stream),
                   0);
  soft_clean(t);
  soft_download(t, bits, y.device, y.n * hri_real_bytes(real));
  soft_download(t, other, again, y.n * hri_real_bytes(real));
  assert_memory_equal(bits, other, y.n * hri_real_bytes(real));
}
static void cached(void **state) {
  (void)state;
  each(cached_, sizeof caches / sizeof *caches);
}

/* A new key without a number that is alone in its run, behind a run of numbers. */
static void cached_nan_(soft_test *t, hri_real real, int variant) {
  hri_attention_cache_shape s = {.batch = 1, .rows = 1, .capacity = HRI_CUDA_CACHE_RUN + 32, .heads = 2, .kv_heads = 1};
  s.head_dim = variant ? 64 : 33, s.real = real;
  int64_t width = (s.heads + 2 * s.kv_heads) * s.head_dim, n = hri_attention_cache_elements(&s);
  hri_control control = {.cache_length = HRI_CUDA_CACHE_RUN, .row_count = 1};
  array keys = array_random(t, n, real, 1, 0), values = array_random(t, n, real, 1, 0);
  array y = array_result(t, s.heads * s.head_dim, real);
  double *row = take(width * sizeof *row);
  void *got = take(y.n * 4);
  for (int64_t i = 0; i < width; i++) row[i] = i % 7 - 3;
  row[s.heads * s.head_dim + 5] = NAN;
  array qkv = array_of(t, width, real, row);
  assert_int_equal(hri_cuda_attention_cached(&s, 0.2f, qkv.device, keys.device, values.device,
                                             device_control(t, &control), y.device,
                                             soft_memory(t, hri_cuda_attention_cached_scratch_bytes(&s)), t->stream),
                   0);
  soft_clean(t);
  soft_download(t, got, y.device, y.n * hri_real_bytes(real));
  for (int64_t i = 0; i < y.n; i++) assert_true(isnan(hri_real_get(got, i, real)));
}
static void cached_nan(void **state) {
  (void)state;
  each(cached_nan_, 2);
}

/* ---- products ---- */

typedef enum product { FORWARD, DX, DW } product;

/* M tokens, N outputs, K inputs, and elements between rows: rows of a token or two, an adapter's rank, a depth that is cut; rows
 * of whole vectors, and of more than are taken at once; several tiles each way. */
static const int64_t sizes[][4] = {{1, 37, 100, 3},  {7, 41, 130, 3},  {45, 8, 70, 3},
                                   {40, 5, 1700, 3}, {1300, 6, 33, 3}, {8, 9, 72, 8},
                                   {3, 5, 1416, 24}, {1, 3, 2048, 0},  {70, 41, 50, 3}};

/* As src/ops/linear/cuda_product.cu states it, of each element by itself: a plain sum's K roundings, one each of bias and what
 * was there, half an ulp of the result. */
static void expect_bound(soft_test *t, const hri_cuda_product_args *p, const array *a, const array *b, const array *c,
                         const double *before) {
  unsigned char *got = take(c->n * hri_real_bytes(c->real));
  soft_download(t, got, c->device, c->n * hri_real_bytes(c->real));
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t j = 0; j < p->n; j++) {
      double size = fabs(c->d[i * p->c_row + j]), off, bound;
      for (int64_t e = 0; e < p->k; e++)
        size += fabs(a->d[i * p->a_row + e * p->a_column] * b->d[j * p->b_row + e * p->b_column]);
      size += p->accumulate ? fabs(before[i * p->c_row + j]) : 0;
      bound = (double)(p->k + 3) * 0x1p-24 * size;
      off = fabs(hri_real_get(got, i * p->c_row + j, c->real) - c->d[i * p->c_row + j]);
      if (!(off <= bound + half_ulp(fabs(c->d[i * p->c_row + j]) + bound, c->real)))
        fail_msg("product, element %d, %d: off by %.3g, and the bound is %.3g", (int)i, (int)j, off, bound);
    }
}

/* Values of many sizes, so that what a sum loses of the small ones shows where they stand alone. */
static array array_wide(soft_test *t, int64_t n, hri_real real, double spread) {
  double *values = take(n * sizeof(double));
  for (int64_t i = 0; i < n; i++)
    values[i] =
        hri_normal(array_seed, 7, (uint64_t)i) * ldexp(1, (int)(hri_normal(array_seed, 8, (uint64_t)i) * spread));
  array_seed++;
  return array_of(t, n, real, values);
}

/* The three products of a linear layer by one kernel. */
static void product_of(soft_test *t, product which, const int64_t size[4], hri_real a_real, hri_real b_real,
                       hri_real c_real, bool more) {
  int64_t m = size[0], n = size[1], k = size[2], gap = size[3];
  int64_t a_rows = m, a_columns = which == FORWARD ? k : n, b_rows = which == DW ? m : n, b_columns = k;
  int64_t c_rows = which == DW ? n : m, c_columns = which == FORWARD ? n : k;
  double spread = c_real == HRI_REAL_F16 ? 1 : 3; /* sums are to stay below its 65504 */
  array a = array_wide(t, a_rows * (a_columns + gap), a_real, spread);
  array b = array_wide(t, b_rows * (b_columns + gap), b_real, spread);
  array c = array_random(t, c_rows * (c_columns + gap), c_real, 1, 0), bias = array_random(t, n, HRI_REAL_F32, 1, 0);
  double *before = take(c.n * sizeof(double));
  hri_cuda_product_args p = {.a = a.device, .b = b.device, .c = c.device, .c_row = c_columns + gap};
  p.a_real = a_real, p.b_real = b_real, p.c_real = c_real, p.m = c_rows, p.n = c_columns, p.accumulate = more;
  p.k = which == FORWARD ? k : which == DX ? n : m;
  p.a_row = which == DW ? 1 : a_columns + gap, p.a_column = which == DW ? a_columns + gap : 1;
  p.b_row = which == FORWARD ? b_columns + gap : 1, p.b_column = which == FORWARD ? 1 : b_columns + gap;
  p.bias = which == FORWARD && more ? bias.device : NULL;
  uint64_t scratch = hri_cuda_product_scratch_bytes(&p);
  memcpy(before, c.d, c.n * sizeof *before);
  if (scratch) p.scratch = soft_memory(t, scratch);
  assert_int_equal(hri_cuda_product(&p, t->stream), 0);
  for (int64_t i = 0; i < c_rows; i++)
    for (int64_t j = 0; j < c_columns; j++) {
      int64_t at = i * p.c_row + j;
      double sum = p.bias ? bias.d[j] : 0;
      float naive = p.bias ? bias.f[j] : 0;
      for (int64_t e = 0; e < p.k; e++) {
        sum += a.d[i * p.a_row + e * p.a_column] * b.d[j * p.b_row + e * p.b_column];
        naive += a.f[i * p.a_row + e * p.a_column] * b.f[j * p.b_row + e * p.b_column];
      }
      c.d[at] = sum + (more ? c.d[at] : 0);
      c.f[at] = naive + (more ? c.f[at] : 0);
    }
  expect(t, "product", &c);
  expect_bound(t, &p, &a, &b, &c, before);
}

static void products(void **state) {
  static const hri_real mixes[][3] = {{HRI_REAL_F32, HRI_REAL_F32, HRI_REAL_F32},
                                      {HRI_REAL_BF16, HRI_REAL_F32, HRI_REAL_F32},
                                      {HRI_REAL_F32, HRI_REAL_F16, HRI_REAL_F16},
                                      {HRI_REAL_BF16, HRI_REAL_BF16, HRI_REAL_BF16}};
  (void)state;
  for (int size = 0; size < (int)(sizeof sizes / sizeof *sizes); size++)
    for (int which = FORWARD; which <= DW; which++)
      for (int mix = 0; mix < 4; mix++) {
        soft_test t = soft_open((uint64_t)(size * 16 + which * 4 + mix));
        product_of(&t, (product)which, sizes[size], mixes[mix][0], mixes[mix][1], mixes[mix][2], (size + mix) % 2);
        soft_close(&t);
        give_all();
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cached), cmocka_unit_test(cached_nan),
                                     cmocka_unit_test(products)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
