/* Flash attention by mma.sync on the GPU in software against the double reference: every head size of tiles, odd sizes, groups
 * of heads, windows, documents, soft-cap, in fp32, bf16 and fp16; the same bits for every seed; nothing found.
 *
 * The yardstick is a plain fp32 implementation that rounds probabilities and score gradients to the element type where the
 * products take them, as any implementation on tensor cores must. */
#include "gpu/kernels.h"

#include "ops/attention/ref.h"

typedef struct attention_case {
  int64_t b, t, h, k, d, window;
  double softcap;
  bool documents;
  double dropout;
} attention_case;

static const attention_case cases[] = {
    {1, 70, 2, 1, 64, 0, 0, false, 0},  /* whole vectors, groups, more than a tile */
    {2, 37, 3, 3, 20, 9, 3, false, 0},  /* rows that are no vectors, a window, a cap */
    {1, 45, 2, 2, 80, 0, 0, true, 0},   /* documents, padded to 128 columns */
    {1, 150, 1, 1, 8, 40, 0, true, 0},  /* tiles of keys that nobody sees */
    {1, 35, 2, 1, 136, 0, 0, false, 0}, /* 256 columns in two halves */
    {1, 20, 4, 2, 16, 0, 0, false, 0},  /* two groups of two */
    {20, 1, 3, 3, 33, 0, 0, false, 0},    {2, 75, 2, 1, 64, 0, 0, false, 0.3}, /* dropout: more than a tile of keys */
    {1, 41, 1, 1, 72, 30, 4, true, 0.5},  /* padded to 128 columns, with all the rest */
    {1, 39, 2, 2, 136, 0, 0, false, 0.2}, /* tiles of fewer keys than share blocks of random numbers */
};
enum { CASES = sizeof cases / sizeof *cases };

static float round_to(float x, hri_real real) {
  return real == HRI_REAL_F32 ? x : hri_narrow_widen(hri_narrow_round(x, real), real);
}

/* One query: of keys first .. t the scores, exponentials, and the derivative of the cap. */
typedef struct plain_row {
  int64_t q, first, count;
  float s[256], p[256], slope[256], lse;
} plain_row;

/* Of dropout: seed 11, step 3, row 5 of the data in front, site 9. */
static const hri_control dropping = {.seed = 11, .step = 3, .row_base = 5};

static bool plain_stays(const attention_case *c, int64_t b, int64_t h, int64_t t, int64_t key) {
  hri_draw draw = {11, 3, 9, 5};
  return c->dropout == 0 ||
         hri_draw_word(&draw, (uint32_t)b, (uint32_t)t, (uint32_t)h, (uint32_t)key) >= hri_drop_threshold(c->dropout);
}

static int64_t plain_key(const attention_case *c, int64_t b, int64_t h, int64_t t) {
  return ((b * c->t + t) * (c->h + 2 * c->k) + c->h + h / (c->h / c->k)) * c->d;
}

static void plain_scores(const attention_case *c, const float *qkv, float scale, int64_t b, int64_t h, int64_t t,
                         int64_t first, plain_row *r) {
  float most = -INFINITY, sum = 0;
  r->q = ((b * c->t + t) * (c->h + 2 * c->k) + h) * c->d, r->first = first, r->count = t - first + 1;
  for (int64_t j = 0; j < r->count; j++) {
    float s = 0;
    for (int64_t i = 0; i < c->d; i++) s += qkv[r->q + i] * qkv[plain_key(c, b, h, first + j) + i];
    s *= scale, r->slope[j] = 1;
    if (c->softcap > 0) {
      float bent = tanhf(s / (float)c->softcap);
      r->slope[j] = 1 - bent * bent, s = (float)c->softcap * bent;
    }
    r->s[j] = s, most = fmaxf(most, s);
  }
  for (int64_t j = 0; j < r->count; j++) sum += r->p[j] = expf(r->s[j] - most);
  r->lse = most + logf(sum);
}

/* y, lse and dqkv (cleared) in fp32; the backward from the y and lse that are given. */
static void plain(const attention_case *c, hri_real real, float scale, const float *qkv, const int32_t *first,
                  const float *dy, const float *given, const float *given_lse, float *y, float *lse, float *dqkv) {
  plain_row *r = take(sizeof *r);
  for (int64_t b = 0; b < c->b; b++)
    for (int64_t h = 0; h < c->h; h++)
      for (int64_t t = 0; t < c->t; t++) {
        int64_t at = ((b * c->t + t) * c->h + h) * c->d, v = c->k * c->d;
        float sum = 0, delta = 0, factor = hri_drop_factor(c->dropout);
        plain_scores(c, qkv, scale, b, h, t, first[b * c->t + t], r);
        for (int64_t j = 0; j < r->count; j++) sum += r->p[j];
        lse[(b * c->h + h) * c->t + t] = r->lse;
        for (int64_t i = 0; i < c->d; i++) {
          float out = 0;
          for (int64_t j = 0; j < r->count; j++)
            if (plain_stays(c, b, h, t, r->first + j))
              out += round_to(r->p[j], real) * qkv[plain_key(c, b, h, r->first + j) + v + i];
          y[at + i] = out * factor / sum;
        }
        /* from behind: summed like dp it would be equal to it to the bit where a query sees one key */
        for (int64_t i = c->d - 1; i >= 0; i--) delta += dy[at + i] * given[at + i];
        for (int64_t j = 0; j < r->count; j++) {
          int64_t k = plain_key(c, b, h, r->first + j);
          float p = expf(r->s[j] - given_lse[(b * c->h + h) * c->t + t]), dp = 0, ds;
          for (int64_t i = 0; i < c->d; i++) dp += dy[at + i] * qkv[k + v + i];
          float stays = plain_stays(c, b, h, t, r->first + j) ? factor : 0;
          ds = scale * round_to(p * (stays * dp - delta) * r->slope[j], real);
          for (int64_t i = 0; i < c->d; i++) {
            dqkv[r->q + i] += ds * qkv[k + i];
            dqkv[k + i] += ds * qkv[r->q + i];
            dqkv[k + v + i] += stays * round_to(p, real) * dy[at + i];
          }
        }
      }
}

/* Documents of 1 to 19 tokens; 0 where there are none. Also what each query sees first. */
static void make_documents(const attention_case *c, int32_t *doc_start, int32_t *first) {
  for (int64_t b = 0; b < c->b; b++)
    for (int32_t t = 0, start = 0, left = 0; t < c->t; t++, left--) {
      if (c->documents && left == 0) start = t, left = 1 + (int32_t)(b * 7 + t * 5) % 19;
      doc_start[b * c->t + t] = start;
      first[b * c->t + t] = c->window && t - c->window + 1 > start ? (int32_t)(t - c->window + 1) : start;
    }
}

typedef struct run {
  array qkv, dy, y, lse, dqkv;
} run;

static hri_attention_shape shape_of(const attention_case *c, hri_real real) {
  return (hri_attention_shape){.batch = c->b,
                               .sequence = c->t,
                               .heads = c->h,
                               .kv_heads = c->k,
                               .head_dim = c->d,
                               .window = c->window,
                               .softcap = c->softcap,
                               .real = real,
                               .dropout = c->dropout,
                               .draw = {11, 3, 9, 5}};
}

/* Forward and backward; the backward gets the double reference's y (as the type has it) and lse. */
static run attend(soft_test *t, const attention_case *c, hri_real real) {
  int64_t tokens = c->b * c->t, width = (c->h + 2 * c->k) * c->d;
  int32_t *doc_start = take(tokens * 4), *first = take(tokens * 4);
  double scale = 1 / sqrt((double)c->d);
  hri_attention_shape s = shape_of(c, real);
  const hri_control *control = c->dropout > 0 ? soft_upload(t, &dropping, sizeof dropping) : NULL;
  run r = {.qkv = array_random(t, tokens * width, real, 1, 0), .dy = array_random(t, tokens * c->h * c->d, real, 1, 0)};
  r.y = array_result(t, tokens * c->h * c->d, real), r.lse = array_result(t, tokens * c->h, HRI_REAL_F32);
  r.dqkv = array_result(t, tokens * width, real);
  make_documents(c, doc_start, first);
  int32_t *documents = c->documents ? soft_upload(t, doc_start, tokens * 4) : NULL;
  assert_int_equal(hri_cuda_attention(&s, (float)scale, r.qkv.device, documents, r.y.device, r.lse.device, control,
                                      t->stream),
                   0);
  hri_attention_ref_forward(&s, scale, r.qkv.d, c->documents ? doc_start : NULL, r.y.d, r.lse.d, NULL);
  array y = array_of(t, r.y.n, real, r.y.d), lse = array_of(t, r.lse.n, HRI_REAL_F32, r.lse.d);
  void *scratch = soft_memory(t, hri_cuda_attention_backward_scratch_bytes(&s));
  assert_int_equal(hri_cuda_attention_backward(&s, (float)scale, r.dy.device, r.qkv.device, y.device, lse.device,
                                               documents, r.dqkv.device, control, scratch, t->stream),
                   0);
  hri_attention_ref_backward(&s, scale, r.dy.d, r.qkv.d, y.d, lse.d, c->documents ? doc_start : NULL, r.dqkv.d);
  plain(c, real, (float)scale, r.qkv.f, first, r.dy.f, y.f, lse.f, r.y.f, r.lse.f, r.dqkv.f);
  return r;
}

/* The materialized one: y and probabilities, and dqkv from probabilities as the type has them. */
static void materialize(soft_test *t, const attention_case *c, hri_real real, const run *r) {
  int64_t tokens = c->b * c->t, width = (c->h + 2 * c->k) * c->d, pairs = tokens * c->h * c->t;
  int32_t *doc_start = take(tokens * 4), *first = take(tokens * 4);
  double scale = 1 / sqrt((double)c->d), *ys = take(r->y.n * 8), *lses = take(r->lse.n * 8), error = 0;
  hri_attention_shape s = shape_of(c, real);
  array probs = array_result(t, pairs, real), y = r->y, dqkv = array_result(t, tokens * width, real);
  const hri_control *control = c->dropout > 0 ? soft_upload(t, &dropping, sizeof dropping) : NULL;
  make_documents(c, doc_start, first);
  int32_t *documents = c->documents ? soft_upload(t, doc_start, tokens * 4) : NULL;
  y.device = soft_memory(t, y.n * hri_real_bytes(real));
  assert_int_equal(hri_cuda_attention_full(&s, (float)scale, r->qkv.device, documents, y.device, probs.device, control,
                                           t->stream),
                   0);
  hri_attention_ref_forward(&s, scale, r->qkv.d, c->documents ? doc_start : NULL, ys, lses, probs.d);
  for (int64_t i = 0; i < pairs; i++) probs.f[i] = (float)probs.d[i];
  expect(t, "materialized y", &y);
  expect_within(t, "probabilities", &probs, 1e-6);
  array given = array_of(t, pairs, real, probs.d);
  assert_int_equal(hri_cuda_attention_full_backward(&s, (float)scale, r->dy.device, r->qkv.device, given.device,
                                                    dqkv.device, control,
                                                    soft_memory(t, hri_cuda_attention_backward_scratch_bytes(&s)),
                                                    t->stream),
                   0);
  memcpy(dqkv.d, r->dqkv.d, r->dqkv.n * sizeof(double));
  memcpy(dqkv.f, r->dqkv.f, r->dqkv.n * sizeof(float));
  for (int64_t i = 0; i < dqkv.n; i++) error = fmax(error, fabs(dqkv.d[i]));
  /* probabilities are rounded, by half a step of the type each, and so is their gradient */
  expect_within(t, "materialized dqkv", &dqkv, real == HRI_REAL_F32 ? 1e-6 * error : error * half_ulp(4, real));
}

static void attention_of(hri_real real) {
  for (int i = 0; i < CASES; i++) {
    soft_test t = soft_open((uint64_t)i);
    run r = attend(&t, &cases[i], real);
    char what[64];
    (void)snprintf(what, sizeof what, "case %d, type %d, y", i, real);
    expect(&t, what, &r.y);
    (void)snprintf(what, sizeof what, "case %d, type %d, lse", i, real);
    expect(&t, what, &r.lse);
    (void)snprintf(what, sizeof what, "case %d, type %d, dqkv", i, real);
    expect(&t, what, &r.dqkv);
    if (i == 1 || i == 2 || i == 5 || i == 8) materialize(&t, &cases[i], real, &r);
    soft_close(&t);
    give_all();
  }
}

static void in_fp32(void **state) {
  (void)state;
  attention_of(HRI_REAL_F32);
}
static void in_bf16(void **state) {
  (void)state;
  attention_of(HRI_REAL_BF16);
}
static void in_fp16(void **state) {
  (void)state;
  attention_of(HRI_REAL_F16);
}

static void same_bits(void **state) {
  uint64_t at = array_seed;
  unsigned char *first = NULL;
  (void)state;
  for (uint64_t seed = 0; seed < 3; seed++) {
    soft_test t = soft_open(seed);
    array_seed = at;
    run r = attend(&t, &cases[1], HRI_REAL_BF16);
    unsigned char *bits = take(r.dqkv.n * 2);
    soft_clean(&t);
    soft_download(&t, bits, r.dqkv.device, r.dqkv.n * 2);
    if (first) assert_memory_equal(bits, first, r.dqkv.n * 2);
    first = bits;
    soft_close(&t);
  }
  give_all();
}

/* Forward of a key that has no number in its last column, in one of the two ways: y is none where the key is seen. */
static void poisoned(hri_real real, bool full) {
  enum { BAD = 11 };
  const attention_case *c = &cases[1];
  soft_test t = soft_open((uint64_t)real);
  hri_attention_shape s = shape_of(c, real);
  int64_t tokens = c->b * c->t, n = tokens * (c->h + 2 * c->k) * c->d;
  double *values = take(n * sizeof *values);
  for (int64_t i = 0; i < n; i++) values[i] = hri_normal(array_seed, 7, (uint64_t)i);
  values[plain_key(c, 0, 0, BAD) + c->d - 1] = NAN;
  array qkv = array_of(&t, n, real, values), y = array_result(&t, tokens * c->h * c->d, real);
  void *other = soft_memory(&t, tokens * c->h * (full ? c->t * hri_real_bytes(real) : 4)), *got = take(y.n * 4);
  assert_int_equal(full ? hri_cuda_attention_full(&s, 0.2f, qkv.device, NULL, y.device, other, NULL, t.stream)
                        : hri_cuda_attention(&s, 0.2f, qkv.device, NULL, y.device, other, NULL, t.stream),
                   0);
  soft_clean(&t);
  soft_download(&t, got, y.device, y.n * hri_real_bytes(real));
  for (int64_t i = 0; i < y.n; i++) {
    int64_t token = i / (c->h * c->d), head = i / c->d % c->h;
    bool seen = head == 0 && token >= BAD && token < BAD + c->window;
    if (isnan(hri_real_get(got, i, real)) != seen) fail_msg("type %d, full %d, element %d", real, full, (int)i);
  }
  soft_close(&t);
  give_all();
}
static void a_nan_stays(void **state) {
  (void)state;
  for (int r = 0; r < 3; r++) poisoned(reals[r], false), poisoned(reals[r], true);
}

/* Head sizes that there is no kernel for are refused, and dropout without a control block. */
static void refused(void **state) {
  soft_test t = soft_open(0);
  hri_attention_shape s = {.batch = 1, .sequence = 1, .heads = 1, .kv_heads = 1, .head_dim = 257};
  (void)state;
  assert_int_equal(hri_cuda_attention(&s, 1, NULL, NULL, NULL, NULL, NULL, t.stream), -1);
  s.head_dim = 64, s.dropout = 0.1;
  assert_int_equal(hri_cuda_attention(&s, 1, NULL, NULL, NULL, NULL, NULL, t.stream), -1);
  assert_int_equal(hri_cuda_attention_backward(&s, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, t.stream), -1);
  soft_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(in_fp32),     cmocka_unit_test(in_bf16),
                                     cmocka_unit_test(in_fp16),     cmocka_unit_test(same_bits),
                                     cmocka_unit_test(a_nan_stays), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
