/* The CPU attention kernels of every instruction level that this processor has, in both types, against the double
 * reference (for bf16 on the widened operands).
 *
 * The rule for a tolerance: at most 4 times the error of a plain implementation (naive_row below: the definition, one
 * float at a time, libm expf) against the double reference. With bf16 the plain one rounds what the definition of the
 * kernels rounds: P and dS before their second product, and what is stored. Errors are maxima over a whole output.
 *
 * The floor is there for queries that see one or two keys, where the plain one is exact by luck: its sums for dP and
 * delta = dy.y run in the same order, so that dP - delta is exactly 0, while sums of another order differ by their
 * rounding. It is 4 units of 2^-24 of the largest value, or of the largest term p * sum|dy_i v_i| * scale * |q or k|
 * that this difference cancels; for lse (T = 1: a few single scores), the largest sum|q_i k_i| * scale, the size of the
 * terms of a dot product, whose order differs as well. With bf16, exp is allowed a relative error of 3e-6 (tile.h),
 * which is an absolute one of lse. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/isa.h"
#include "base/rng.h"
#include "ops/attention/cpu.h"
#include "ops/attention/ref.h"
#include "support/team.h"

/* Sizes in the order of the struct, without dropout. */
#define SHAPE(b, t, h, k, d, w, c, r)                                                                                  \
  {.batch = b, .sequence = t, .heads = h, .kv_heads = k, .head_dim = d, .window = w, .softcap = c, .real = r}

#define GUARD 64 /* floats before and after each buffer */
#define GUARD_BYTE 0xA5

typedef struct variant {
  const char *name;
  hri_attention_kernels_table table;
} variant;

static variant variants[6];
static int variant_count;

/* Buffers with guard zones; the contents start as guard bytes too (as floats: tiny negative numbers, never a NaN). */
static void *guarded(uint64_t bytes) {
  uint64_t all = (bytes + 63) / 64 * 64 + 2 * GUARD * sizeof(float);
  unsigned char *memory = aligned_alloc(64, (all + 63) / 64 * 64);
  assert_non_null(memory);
  memset(memory, GUARD_BYTE, all);
  return memory + GUARD * sizeof(float);
}
static float *guarded_floats(int64_t count) { return guarded((uint64_t)count * sizeof(float)); }

static void check_guards(const void *buffer, uint64_t bytes, const char *what) {
  const unsigned char *p = buffer;
  for (uint64_t i = 0; i < GUARD * sizeof(float); i++) {
    if (*(p - 1 - i) != GUARD_BYTE || p[bytes + i] != GUARD_BYTE) fail_msg("%s: written outside its bounds", what);
  }
}
static void release(void *buffer) {
  if (buffer) free((unsigned char *)buffer - GUARD * sizeof(float));
}
static void release_checked(void *buffer, uint64_t bytes, const char *what) {
  check_guards(buffer, bytes, what);
  release(buffer);
}

/* A guarded copy in the type of the kernels, and back. */
static void *narrowed(const float *values, int64_t count, hri_real real) {
  void *copy = guarded((uint64_t)count * hri_real_bytes(real));
  if (real == HRI_REAL_F32) memcpy(copy, values, (size_t)count * sizeof *values);
  for (int64_t i = 0; real != HRI_REAL_F32 && i < count; i++) hri_real_put(copy, i, values[i], real);
  return copy;
}
static void *not_numbers(int64_t count, hri_real real) {
  void *values = guarded((uint64_t)count * hri_real_bytes(real));
  memset(values, 0xFF, (size_t)count * hri_real_bytes(real));
  return values;
}
/* Frees the narrow one. */
static float *widened(void *values, int64_t count, hri_real real, const char *what) {
  float *wide = guarded_floats(count);
  if (real == HRI_REAL_F32) memcpy(wide, values, (size_t)count * sizeof *wide);
  for (int64_t i = 0; real != HRI_REAL_F32 && i < count; i++) wide[i] = hri_real_get(values, i, real);
  release_checked(values, (uint64_t)count * hri_real_bytes(real), what);
  return wide;
}
static float stored(hri_real real, float value) {
  return real == HRI_REAL_F32 ? value : hri_narrow_widen(hri_narrow_round(value, real), real);
}

static const hri_real reals[3] = {HRI_REAL_F32, HRI_REAL_BF16, HRI_REAL_F16};
static const char *const real_names[3] = {"fp32", "bf16", "fp16"};

typedef enum documents { DOCS_NONE, DOCS_SHORT, DOCS_LONG } documents;

typedef struct problem {
  hri_attention_shape shape;
  documents docs;
  float scale;
  int64_t qkv_count, y_count, lse_count, probs_count;
  float *qkv, *dy;    /* values of the type of the shape */
  int32_t *doc_start; /* NULL without documents */
  double *qkv64, *dy64, *y64, *lse64, *dqkv64, *probs64;
  float naive_y, naive_lse, naive_dqkv, naive_probs; /* largest errors of the plain implementation */
  float cancelled;   /* the largest term of dq and dk before dP - delta cancels (see above) */
  float score_terms; /* the largest sum of |terms| of a score */
} problem;

static int64_t width(const hri_attention_shape *s) { return (s->heads + 2 * s->kv_heads) * s->head_dim; }

static double *doubles(int64_t count) {
  double *p = calloc((size_t)count, sizeof *p);
  assert_non_null(p);
  return p;
}

static void fill_documents(problem *p, uint64_t seed) {
  const hri_attention_shape *s = &p->shape;
  uint32_t words[4];
  if (p->docs == DOCS_NONE) return;
  p->doc_start = malloc((size_t)(s->batch * s->sequence) * sizeof *p->doc_start);
  assert_non_null(p->doc_start);
  for (int64_t b = 0; b < s->batch; b++) {
    int32_t start = 0, left = 0;
    for (int32_t t = 0; t < s->sequence; t++) {
      if (left-- == 0) {
        hri_philox(seed, 99, (uint64_t)(b * s->sequence + t), words);
        start = t;
        left = (int32_t)(words[0] % (p->docs == DOCS_SHORT ? 9u : 150u));
      }
      p->doc_start[b * s->sequence + t] = start;
    }
  }
}

static int32_t first_key(const problem *p, int64_t b, int64_t t) {
  int64_t first = p->doc_start ? p->doc_start[b * p->shape.sequence + t] : 0;
  if (p->shape.window > 0 && t - p->shape.window + 1 > first) first = t - p->shape.window + 1;
  return (int32_t)first;
}

/* The score of scale * q.k, and its derivative. */
static float naive_score(const hri_attention_shape *s, float score, float *slope) {
  float c = (float)s->softcap, t = c > 0 ? tanhf(score / c) : 0;
  *slope = 1 - t * t;
  return c > 0 ? c * t : score;
}

/* What dropout multiplies a probability by. */
static float naive_kept(const hri_attention_shape *s, int64_t b, int64_t h, int64_t t, int64_t j) {
  if (s->dropout == 0) return 1;
  if (hri_draw_word(&s->draw, (uint32_t)b, (uint32_t)t, (uint32_t)h, (uint32_t)j) < hri_drop_threshold(s->dropout))
    return 0;
  return hri_drop_factor(s->dropout);
}

/* The plain fp32 implementation: forward, its probabilities, and backward from them. */
static void naive_row(problem *p, int64_t b, int64_t h, int64_t t, float *y, float *lse, float *probs, float *dqkv) {
  const hri_attention_shape *s = &p->shape;
  int64_t d = s->head_dim, w = width(s), kv = h / (s->heads / s->kv_heads), q = (b * s->sequence + t) * w + h * d;
  float top = -INFINITY, sum = 0, delta = 0, slope;
  const float *dy = p->dy + ((b * s->sequence + t) * s->heads + h) * d;
  for (int64_t j = first_key(p, b, t); j <= t; j++) {
    const float *k = p->qkv + (b * s->sequence + j) * w + (s->heads + kv) * d;
    float score = 0, terms = 0;
    for (int64_t i = 0; i < d; i++) {
      score += p->qkv[q + i] * k[i];
      terms += fabsf(p->qkv[q + i] * k[i]);
    }
    p->score_terms = fmaxf(p->score_terms, terms * p->scale);
    probs[j] = naive_score(s, score * p->scale, &slope);
    top = fmaxf(top, probs[j]);
  }
  for (int64_t j = first_key(p, b, t); j <= t; j++) sum += probs[j] = expf(probs[j] - top);
  *lse = top + logf(sum);
  for (int64_t i = 0; i < d; i++) y[i] = 0;
  for (int64_t j = first_key(p, b, t); j <= t; j++) {
    probs[j] = stored(s->real, probs[j] / sum);
    for (int64_t i = 0; i < d; i++)
      y[i] += probs[j] * naive_kept(s, b, h, t, j) *
              p->qkv[(b * s->sequence + j) * w + (s->heads + s->kv_heads + kv) * d + i];
  }
  for (int64_t i = 0; i < d; i++) delta += dy[i] * (y[i] = stored(s->real, y[i]));
  for (int64_t j = first_key(p, b, t); j <= t; j++) {
    int64_t k = (b * s->sequence + j) * w + (s->heads + kv) * d, v = k + s->kv_heads * d;
    float dp = 0, terms = 0, top_qk = 0, score = 0, ds, m = naive_kept(s, b, h, t, j);
    for (int64_t i = 0; i < d; i++) {
      score += p->qkv[q + i] * p->qkv[k + i];
      dp += dy[i] * p->qkv[v + i];
      terms += fabsf(dy[i] * p->qkv[v + i]);
      top_qk = fmaxf(top_qk, fmaxf(fabsf(p->qkv[q + i]), fabsf(p->qkv[k + i])));
    }
    p->cancelled = fmaxf(p->cancelled, probs[j] * fmaxf(m, 1) * terms * p->scale * top_qk);
    (void)naive_score(s, score * p->scale, &slope);
    ds = stored(s->real, probs[j] * (m * dp - delta) * slope);
    for (int64_t i = 0; i < d; i++) {
      dqkv[q + i] += ds * p->scale * p->qkv[k + i];
      dqkv[k + i] += ds * p->scale * p->qkv[q + i];
      dqkv[v + i] += probs[j] * m * dy[i];
    }
  }
}

static float largest(const float *a, const double *b, int64_t count) {
  double most = 0;
  for (int64_t i = 0; i < count; i++) {
    double error = fabs((double)a[i] - b[i]);
    if (!(error <= most)) most = error; /* a NaN stays */
  }
  return (float)most;
}

static void measure_naive(problem *p) {
  const hri_attention_shape *s = &p->shape;
  float *y = calloc((size_t)p->y_count, 4), *lse = calloc((size_t)p->lse_count, 4);
  float *probs = calloc((size_t)p->probs_count, 4), *dqkv = calloc((size_t)p->qkv_count, 4);
  assert_true(y && lse && probs && dqkv);
  p->cancelled = p->score_terms = 0;
  for (int64_t b = 0; b < s->batch; b++)
    for (int64_t h = 0; h < s->heads; h++)
      for (int64_t t = 0; t < s->sequence; t++) {
        int64_t row = (b * s->heads + h) * s->sequence + t;
        naive_row(p, b, h, t, y + ((b * s->sequence + t) * s->heads + h) * s->head_dim, lse + row,
                  probs + row * s->sequence, dqkv);
      }
  for (int64_t i = 0; i < p->qkv_count; i++) dqkv[i] = stored(s->real, dqkv[i]);
  p->naive_y = largest(y, p->y64, p->y_count);
  p->naive_lse = largest(lse, p->lse64, p->lse_count);
  p->naive_probs = largest(probs, p->probs64, p->probs_count);
  p->naive_dqkv = largest(dqkv, p->dqkv64, p->qkv_count);
  free(y), free(lse), free(probs), free(dqkv);
}

static problem make_problem(hri_attention_shape shape, documents docs, uint64_t seed) {
  problem p = {.shape = shape, .docs = docs, .scale = 1.0f / sqrtf((float)shape.head_dim)};
  const hri_attention_shape *s = &p.shape;
  p.qkv_count = s->batch * s->sequence * width(s);
  p.y_count = s->batch * s->sequence * s->heads * s->head_dim;
  p.lse_count = s->batch * s->heads * s->sequence;
  p.probs_count = p.lse_count * s->sequence;
  p.qkv = guarded_floats(p.qkv_count);
  p.dy = guarded_floats(p.y_count);
  p.qkv64 = doubles(p.qkv_count);
  p.dqkv64 = doubles(p.qkv_count);
  p.dy64 = doubles(p.y_count);
  p.y64 = doubles(p.y_count);
  p.lse64 = doubles(p.lse_count);
  p.probs64 = doubles(p.probs_count);
  fill_documents(&p, seed);
  for (int64_t i = 0; i < p.qkv_count; i++)
    p.qkv64[i] = p.qkv[i] = stored(s->real, (float)(1.5 * hri_normal(seed, 1, (uint64_t)i)));
  for (int64_t i = 0; i < p.y_count; i++)
    p.dy64[i] = p.dy[i] = stored(s->real, (float)hri_normal(seed, 2, (uint64_t)i));
  hri_attention_ref_forward(s, (double)p.scale, p.qkv64, p.doc_start, p.y64, p.lse64, p.probs64);
  hri_attention_ref_backward(s, (double)p.scale, p.dy64, p.qkv64, p.y64, p.lse64, p.doc_start, p.dqkv64);
  measure_naive(&p);
  return p;
}

static void free_problem(problem *p) {
  release(p->qkv), release(p->dy), free(p->doc_start);
  free(p->qkv64), free(p->dy64), free(p->y64), free(p->lse64), free(p->dqkv64), free(p->probs64);
}

static void check_close(const problem *p, const variant *v, const char *what, const float *got, const double *want,
                        int64_t count, float naive) {
  double top = want == p->dqkv64 ? (double)p->cancelled : want == p->lse64 ? (double)p->score_terms : 0;
  for (int64_t i = 0; i < count; i++) top = fmax(top, fabs(want[i]));
  float error = largest(got, want, count), allowed = fmaxf(4 * naive, (float)(4 * top / 16777216));
  if (want == p->lse64 && p->shape.real == HRI_REAL_BF16) allowed += 3e-6f;
  if (!(error <= allowed)) {
    const hri_attention_shape *s = &p->shape;
    fail_msg("%s %s %s: B %d T %d H %d K %d D %d window %d soft-cap %g docs %d: error %g, allowed %g (plain %g)",
             v->name, real_names[s->real], what, (int)s->batch, (int)s->sequence, (int)s->heads, (int)s->kv_heads,
             (int)s->head_dim, (int)s->window, s->softcap, (int)p->docs, (double)error, (double)allowed, (double)naive);
  }
}

static void check_same(const variant *v, const char *what, const float *a, const float *b, int64_t count, int threads) {
  if (memcmp(a, b, (size_t)count * sizeof *a) != 0)
    fail_msg("%s %s: other bits with %d threads", v->name, what, threads);
}

/* Every kernel that trains, with `threads`; outputs in fresh guarded buffers. */
typedef struct outputs {
  float *y, *lse, *dqkv, *full_y, *probs, *full_dqkv;
} outputs;

static outputs run_all(const problem *p, const variant *v, int threads) {
  const hri_attention_shape *s = &p->shape;
  const hri_attention_kernels_table *t = &v->table;
  hri_real real = s->real;
  uint64_t bytes[4] = {hri_attention_forward_scratch(t->level, s, threads),
                       hri_attention_backward_scratch(t->level, s, threads),
                       hri_attention_materialized_scratch(t->level, s, threads),
                       hri_attention_backward_scratch(t->level, s, threads)};
  static const char *const names[4] = {"forward scratch", "backward scratch", "materialized scratch",
                                       "materialized backward scratch"};
  void *scratch[4], *qkv = narrowed(p->qkv, p->qkv_count, real), *dy = narrowed(p->dy, p->y_count, real);
  /* every element must be written, whatever lay there: NaNs would show */
  void *y = not_numbers(p->y_count, real), *dqkv = not_numbers(p->qkv_count, real);
  void *full_y = not_numbers(p->y_count, real), *full_dqkv = not_numbers(p->qkv_count, real);
  void *probs = not_numbers(p->probs_count, real);
  outputs o = {.lse = not_numbers(p->lse_count, HRI_REAL_F32)};
  for (int i = 0; i < 4; i++) scratch[i] = guarded(bytes[i]);
  t->forward(s, p->scale, qkv, p->doc_start, y, o.lse, scratch[0], team_of(threads));
  t->backward(s, p->scale, dy, qkv, y, o.lse, p->doc_start, dqkv, scratch[1], team_of(threads));
  t->materialized(s, p->scale, qkv, p->doc_start, full_y, probs, scratch[2], team_of(threads));
  t->materialized_backward(s, p->scale, dy, qkv, probs, p->doc_start, full_dqkv, scratch[3], team_of(threads));
  for (int i = 0; i < 4; i++) release_checked(scratch[i], bytes[i], names[i]);
  release_checked(qkv, (uint64_t)p->qkv_count * hri_real_bytes(real), "qkv");
  release_checked(dy, (uint64_t)p->y_count * hri_real_bytes(real), "dy");
  o.y = widened(y, p->y_count, real, "y");
  o.dqkv = widened(dqkv, p->qkv_count, real, "dqkv");
  o.full_y = widened(full_y, p->y_count, real, "materialized y");
  o.full_dqkv = widened(full_dqkv, p->qkv_count, real, "materialized dqkv");
  o.probs = widened(probs, p->probs_count, real, "probs");
  return o;
}

static void free_outputs(const problem *p, outputs *o) {
  release_checked(o->lse, (uint64_t)p->lse_count * 4, "lse");
  release(o->y), release(o->dqkv), release(o->full_y), release(o->probs), release(o->full_dqkv);
}

static void check_variant(const problem *p, const variant *v) {
  outputs one = run_all(p, v, 1);
  check_close(p, v, "y", one.y, p->y64, p->y_count, p->naive_y);
  check_close(p, v, "lse", one.lse, p->lse64, p->lse_count, p->naive_lse);
  check_close(p, v, "dqkv", one.dqkv, p->dqkv64, p->qkv_count, p->naive_dqkv);
  check_close(p, v, "materialized y", one.full_y, p->y64, p->y_count, p->naive_y);
  check_close(p, v, "probs", one.probs, p->probs64, p->probs_count, p->naive_probs);
  check_close(p, v, "materialized dqkv", one.full_dqkv, p->dqkv64, p->qkv_count, p->naive_dqkv);
  for (int64_t i = 0; i < p->probs_count; i++)
    if (p->probs64[i] == 0) assert_true(one.probs[i] == 0);
  for (int threads = 2; threads <= 4; threads++) {
    outputs more = run_all(p, v, threads);
    check_same(v, "y", one.y, more.y, p->y_count, threads);
    check_same(v, "lse", one.lse, more.lse, p->lse_count, threads);
    check_same(v, "dqkv", one.dqkv, more.dqkv, p->qkv_count, threads);
    check_same(v, "materialized y", one.full_y, more.full_y, p->y_count, threads);
    check_same(v, "probs", one.probs, more.probs, p->probs_count, threads);
    check_same(v, "materialized dqkv", one.full_dqkv, more.full_dqkv, p->qkv_count, threads);
    free_outputs(p, &more);
  }
  free_outputs(p, &one);
}

/* In both types. */
static void check_shape(hri_attention_shape shape, documents docs, uint64_t seed) {
  for (int r = 0; r < 2; r++) {
    shape.real = reals[r];
    problem p = make_problem(shape, docs, seed);
    for (int i = 0; i < variant_count; i++) check_variant(&p, &variants[i]);
    free_problem(&p);
  }
}

static bool quick(void) { return getenv("HEADROOM_TEST_QUICK") != NULL; }
/* On an emulated processor, which takes a hundred times as long. */
static bool emulated(void) { return getenv("HEADROOM_TEST_EMULATED") != NULL; }

static void test_agrees_with_reference_on_odd_shapes(void **state) {
  static const int64_t lengths[] = {1, 2, 17, 63, 64, 65, 130, 257}, dims[] = {8, 10, 20, 64, 80};
  static const int64_t heads[][2] = {{2, 2}, {4, 1}, {6, 2}};
  (void)state;
  for (int t = 0; t < 8; t++) {
    for (int d = 0; d < 5; d++) {
      /* Every length with every D; heads and documents in turn, so that each meets each over the loop. */
      int turn = t * 5 + d;
      const int64_t *h = heads[turn % 3];
      if (quick() && turn % 7 != 3) continue;
      if (emulated() && lengths[t] > 130) continue;
      check_shape((hri_attention_shape)SHAPE(1 + turn % 2, lengths[t], h[0], h[1], dims[d], 0, 0, HRI_REAL_F32),
                  (documents)(turn / 3 % 3), (uint64_t)turn);
    }
  }
}

static void test_windows_and_documents(void **state) {
  static const int64_t windows[] = {1, 5, 7, 64, 100, 1000};
  (void)state;
  for (int i = 0; i < 6; i++) {
    if (emulated() && i % 2) continue;
    check_shape((hri_attention_shape)SHAPE(2, 130, 6, 2, 20, windows[i], 0, HRI_REAL_F32), (documents)(i % 3),
                100 + (uint64_t)i);
    if (quick()) continue;
    check_shape((hri_attention_shape)SHAPE(1, 300, 2, 1, 16, windows[i], 0, HRI_REAL_F32), (documents)((i + 1) % 3),
                200 + (uint64_t)i);
  }
}

/* Soft-caps that hardly bend, that bend, and that flatten nearly all scores; with windows and documents, too. */
static void test_soft_caps(void **state) {
  static const struct {
    int64_t sequence, heads, kv_heads, head_dim, window;
    double softcap;
  } cases[] = {{1, 2, 2, 8, 0, 50},     {33, 2, 1, 20, 0, 2},    {130, 4, 2, 40, 0, 0.5},  {150, 2, 2, 64, 7, 3},
               {97, 2, 1, 256, 64, 50}, {257, 2, 1, 80, 100, 1}, {300, 1, 1, 96, 1000, 4}, {140, 6, 2, 10, 1, 2}};
  (void)state;
  for (int i = 0; i < 8; i++) {
    if (quick() && i % 3 != 1) continue;
    check_shape((hri_attention_shape)SHAPE(1 + i % 2, cases[i].sequence, cases[i].heads, cases[i].kv_heads,
                                           cases[i].head_dim, cases[i].window, cases[i].softcap, HRI_REAL_F32),
                (documents)(i % 3), 1100 + (uint64_t)i);
  }
}

/* Masks over tiles, panels, groups of heads, batches, windows and documents, of which each kernel makes its own. */
static void test_dropout(void **state) {
  static const struct {
    int64_t sequence, heads, kv_heads, head_dim, window;
    double softcap, dropout;
  } cases[] = {{1, 2, 2, 8, 0, 0, 0.5},       {33, 2, 1, 20, 0, 0, 0.1},  {130, 4, 2, 40, 0, 0, 0.5},
               {150, 2, 2, 64, 7, 3, 0.3},    {97, 2, 1, 80, 64, 0, 0.1}, {257, 2, 1, 16, 100, 1, 0.9},
               {300, 1, 1, 96, 1000, 0, 0.1}, {140, 6, 2, 10, 0, 0, 0.2}};
  (void)state;
  for (int i = 0; i < 8; i++) {
    hri_attention_shape s = SHAPE(1 + i % 2, cases[i].sequence, cases[i].heads, cases[i].kv_heads, cases[i].head_dim,
                                  cases[i].window, cases[i].softcap, HRI_REAL_F32);
    if (quick() && i % 3 != 1) continue;
    s.dropout = cases[i].dropout;
    s.draw = (hri_draw){.seed = 11, .step = (uint64_t)i, .site = 65543, .row = 6};
    check_shape(s, (documents)(i % 3), 1200 + (uint64_t)i);
  }
}

/* The mean over steps of what dropout leaves is what there is without it: each y within 5 standard errors, by the
 * variance p / (1 - p) sum P^2 v^2. */
static void test_dropout_keeps_the_mean(void **state) {
  enum { STEPS = 400, T = 24, D = 8 };
  hri_attention_shape s = SHAPE(1, T, 1, 1, D, 0, 0, HRI_REAL_F32);
  problem p = make_problem(s, DOCS_NONE, 1300);
  double *sum = doubles(p.y_count);
  int beyond = 0;
  (void)state;
  p.shape.dropout = 0.25;
  for (int step = 0; step < STEPS; step++) {
    outputs o;
    p.shape.draw = (hri_draw){.seed = 1, .step = (uint64_t)step, .site = 7};
    o = run_all(&p, &variants[variant_count - 1], 1);
    for (int64_t i = 0; i < p.y_count; i++) sum[i] += (double)o.y[i] / STEPS;
    free_outputs(&p, &o);
  }
  for (int64_t t = 0; t < T; t++)
    for (int64_t i = 0; i < D; i++) {
      double variance = 0;
      for (int64_t j = 0; j <= t; j++)
        variance += pow(p.probs64[t * T + j] * p.qkv64[j * 3 * D + 2 * D + i], 2) * 0.25 / 0.75 / STEPS;
      beyond += fabs(sum[t * D + i] - p.y64[t * D + i]) > 5 * sqrt(variance) + 1e-5;
    }
  assert_int_equal(beyond, 0);
  free(sum);
  free_problem(&p);
}

static void test_wide_heads(void **state) {
  static const int64_t dims[] = {96, 128, 256, 255, 1, 3};
  (void)state;
  for (int i = 0; i < 6; i += emulated() ? 2 : 1)
    check_shape((hri_attention_shape)SHAPE(1, 97, 2, 1, dims[i], 0, 0, HRI_REAL_F32), DOCS_LONG, 300 + (uint64_t)i);
}

/* Scores far apart: the running maximum moves, exponents underflow, and lse is large. */
static void test_large_scores(void **state) {
  (void)state;
  for (int r = 0; r < 4; r++) { /* with a soft-cap most of them are at its ends, where the slope is nearly 0 */
    problem p = make_problem((hri_attention_shape)SHAPE(1, 200, 2, 2, 32, 0, r / 2 * 25, reals[r % 3]), DOCS_NONE, 400);
    p.scale *= 20;
    hri_attention_ref_forward(&p.shape, (double)p.scale, p.qkv64, NULL, p.y64, p.lse64, p.probs64);
    hri_attention_ref_backward(&p.shape, (double)p.scale, p.dy64, p.qkv64, p.y64, p.lse64, NULL, p.dqkv64);
    measure_naive(&p);
    for (int i = 0; i < variant_count; i++) check_variant(&p, &variants[i]);
    free_problem(&p);
  }
}

/* What a query does not see must not reach it, not even as the last bit: change every key and value of the first
 * document and of the future. */
static void test_masked_keys_leave_no_trace(void **state) {
  enum { T = 150, CUT = 70, END = 120 };
  (void)state;
  for (int n = 0; n < 2 * variant_count; n++) {
    int i = n / 2;
    problem p = make_problem((hri_attention_shape)SHAPE(1, T, 2, 1, 24, 0, 0, reals[n % 3]), DOCS_NONE, 500);
    p.doc_start = malloc(T * sizeof *p.doc_start);
    assert_non_null(p.doc_start);
    for (int32_t t = 0; t < T; t++) p.doc_start[t] = t < CUT ? 0 : CUT;
    outputs before = run_all(&p, &variants[i], 2);
    for (int64_t t = 0; t < T; t++)
      for (int64_t j = 0; j < width(&p.shape); j++)
        if (t < CUT || t >= END) p.qkv[t * width(&p.shape) + j] = 1e4f * (float)(j % 3 - 1);
    outputs after = run_all(&p, &variants[i], 2);
    check_same(&variants[i], "y", before.y + CUT * 48, after.y + CUT * 48, (END - CUT) * 48, 2);
    check_same(&variants[i], "materialized y", before.full_y + CUT * 48, after.full_y + CUT * 48, (END - CUT) * 48, 2);
    assert_memory_not_equal(before.y, after.y, (size_t)CUT * 48 * sizeof(float));
    free_outputs(&p, &before);
    free_outputs(&p, &after);
    free_problem(&p);
  }
}

/* A NaN in the input must show in the output, not be taken for a masked score. */
static void test_nan_propagates(void **state) {
  static const uint32_t numbers[] = {0x7FC00000u, 0x7FC00001u, 0x7FFFFFFFu, 0xFFFFFFFFu}; /* check mode's is the last */
  (void)state;
  for (int n = 0; n < 32 * variant_count; n++) {
    int i = n / 32;
    bool query = n & 1;
    problem p = make_problem((hri_attention_shape)SHAPE(1, 40, 1, 1, 16, 0, n / 2 % 2, reals[n % 3]), DOCS_NONE, 600);
    memcpy(&p.qkv[20 * 48 + (query ? 0 : 16) + 3], &numbers[n / 4 % 4], sizeof *p.qkv); /* query or key 20 */
    outputs o = run_all(&p, &variants[i], 1);
    for (int t = 0; t < 40; t++) {
      bool lost = query ? t == 20 : t >= 20;
      assert_int_equal(isnan(o.y[t * 16]) != 0, lost);
      assert_int_equal(isnan(o.full_y[t * 16]) != 0, lost);
      assert_true(!lost || (isnan(o.dqkv[t * 48]) && isnan(o.full_dqkv[t * 48])));
    }
    free_outputs(&p, &o);
    free_problem(&p);
  }
}

/* The double backward against the double forward: the derivative of sum(dy * y) along a random direction. */
static void test_reference_backward_is_the_derivative(void **state) {
  static const hri_attention_shape shapes[] = {SHAPE(2, 17, 4, 1, 10, 0, 0, 0), SHAPE(1, 33, 6, 2, 8, 5, 0, 0),
                                               SHAPE(1, 20, 2, 2, 3, 0, 0, 0),  SHAPE(1, 1, 1, 1, 4, 0, 0, 0),
                                               SHAPE(2, 17, 4, 1, 10, 0, 3, 0), SHAPE(1, 33, 6, 2, 8, 5, 0.7, 0)};
  (void)state;
  for (int n = 0; n < 6; n++) {
    problem p = make_problem(shapes[n], (documents)(n % 2), 700 + (uint64_t)n);
    double *moved = doubles(p.qkv_count), *y = doubles(p.y_count), value[2] = {0, 0}, analytic = 0, size = 0;
    const double h = 1e-5;
    for (int side = 0; side < 2; side++) {
      for (int64_t i = 0; i < p.qkv_count; i++) moved[i] = p.qkv64[i] + (side ? h : -h) * hri_normal(5, 5, (uint64_t)i);
      hri_attention_ref_forward(&p.shape, (double)p.scale, moved, p.doc_start, y, NULL, NULL);
      for (int64_t i = 0; i < p.y_count; i++) value[side] += p.dy64[i] * y[i];
    }
    for (int64_t i = 0; i < p.qkv_count; i++) {
      double term = p.dqkv64[i] * hri_normal(5, 5, (uint64_t)i);
      analytic += term;
      size += fabs(term);
    }
    /* The central difference is off by h^2 times a third derivative and by rounding over h: 1e-16 / 1e-5. */
    if (fabs((value[1] - value[0]) / (2 * h) - analytic) > 1e-8 * size)
      fail_msg("shape %d: difference %g, derivative %g", n, (value[1] - value[0]) / (2 * h), analytic);
    free(moved), free(y);
    free_problem(&p);
  }
}

/* The fast backward along the same kind of direction, against differences of the double forward. */
static void test_backward_is_the_derivative(void **state) {
  (void)state;
  for (int r = 0; r < 2; r++) {
    problem p = make_problem((hri_attention_shape)SHAPE(2, 65, 6, 2, 20, 40, 7, reals[r]), DOCS_LONG, 800);
    double *moved = doubles(p.qkv_count), *y = doubles(p.y_count), value[2] = {0, 0};
    const double h = 1e-5;
    for (int side = 0; side < 2; side++) {
      for (int64_t i = 0; i < p.qkv_count; i++) moved[i] = p.qkv64[i] + (side ? h : -h) * hri_normal(6, 6, (uint64_t)i);
      hri_attention_ref_forward(&p.shape, (double)p.scale, moved, p.doc_start, y, NULL, NULL);
      for (int64_t i = 0; i < p.y_count; i++) value[side] += p.dy64[i] * y[i];
    }
    for (int n = 0; n < variant_count; n++) {
      outputs o = run_all(&p, &variants[n], 3);
      double analytic = 0, allowed = 0;
      for (int64_t i = 0; i < p.qkv_count; i++) {
        double step = hri_normal(6, 6, (uint64_t)i);
        analytic += (double)o.dqkv[i] * step;
        allowed += 4 * (double)p.naive_dqkv * fabs(step); /* each element at its own tolerance */
      }
      assert_true(fabs((value[1] - value[0]) / (2 * h) - analytic) <= allowed);
      free_outputs(&p, &o);
    }
    free(moved), free(y);
    free_problem(&p);
  }
}

/* Any positions that a piecewise run reads must be the ones it wrote: the cache starts as NaN. */
typedef struct cache_run {
  hri_attention_cache_shape shape;
  int64_t elements;
  void *keys, *values;
} cache_run;

static cache_run open_cache(const problem *p, int64_t rows, int64_t capacity) {
  const hri_attention_shape *s = &p->shape;
  cache_run c = {
      .shape = {s->batch, rows, capacity, s->heads, s->kv_heads, s->head_dim, s->window, s->softcap, s->real}};
  c.elements = hri_attention_cache_elements(&c.shape);
  c.keys = not_numbers(c.elements, s->real);
  c.values = not_numbers(c.elements, s->real);
  return c;
}
static void close_cache(cache_run *c) {
  release_checked(c->keys, (uint64_t)c->elements * hri_real_bytes(c->shape.real), "key cache");
  release_checked(c->values, (uint64_t)c->elements * hri_real_bytes(c->shape.real), "value cache");
}

/* One call for positions past .. past + valid - 1; the rows go to their places in y [B*T, H*D]. */
static void call_cached(const problem *p, const variant *v, cache_run *c, int64_t rows, int64_t past, int64_t valid,
                        float *y, int threads) {
  const hri_attention_shape *s = &p->shape;
  int64_t w = width(s), out = s->heads * s->head_dim;
  c->shape.rows = rows;
  float *rows_in = guarded_floats(s->batch * rows * w), *got;
  uint64_t bytes = hri_attention_cached_scratch(v->table.level, &c->shape, threads);
  void *scratch = guarded(bytes), *in, *out_rows = not_numbers(s->batch * rows * out, s->real);
  for (int64_t i = 0; i < s->batch * rows * w; i++) rows_in[i] = NAN;
  for (int64_t b = 0; b < s->batch; b++)
    memcpy(rows_in + b * rows * w, p->qkv + (b * s->sequence + past) * w, (size_t)(valid * w) * sizeof *rows_in);
  in = narrowed(rows_in, s->batch * rows * w, s->real);
  v->table.cached(&c->shape, p->scale, in, past, valid, c->keys, c->values, out_rows, scratch, team_of(threads));
  got = widened(out_rows, s->batch * rows * out, s->real, "cached y");
  for (int64_t b = 0; b < s->batch; b++) {
    memcpy(y + (b * s->sequence + past) * out, got + b * rows * out, (size_t)(valid * out) * sizeof *y);
    for (int64_t i = valid * out; i < rows * out; i++) assert_true(got[b * rows * out + i] == 0);
  }
  release_checked(scratch, bytes, "cached scratch");
  release_checked(in, (uint64_t)(s->batch * rows * w) * hri_real_bytes(s->real), "cached qkv");
  release(rows_in), release(got);
}

/* Prefill in pieces of several sizes, some not full, then one token at a time. */
static float *run_cached(const problem *p, const variant *v, int64_t capacity, int threads) {
  static const int64_t rows[] = {40, 40, 7, 64}, valid[] = {40, 33, 7, 1};
  cache_run c = open_cache(p, 1, capacity);
  float *y = guarded_floats(p->y_count);
  int64_t past = 0;
  for (int i = 0; i < 4 && past + valid[i] <= p->shape.sequence; i++) {
    call_cached(p, v, &c, rows[i], past, valid[i], y, threads);
    past += valid[i];
  }
  int64_t bulk = p->shape.sequence - past - 12; /* the last dozen are decoded one by one */
  if (bulk > 0) {
    call_cached(p, v, &c, bulk, past, bulk, y, threads);
    past += bulk;
  }
  for (; past < p->shape.sequence; past++) call_cached(p, v, &c, 1, past, 1, y, threads);
  close_cache(&c);
  return y;
}

static void test_cached_pieces_equal_the_whole(void **state) {
  static const hri_attention_shape shapes[] = {SHAPE(1, 130, 4, 4, 64, 0, 0, 0),   SHAPE(2, 97, 6, 2, 20, 0, 0, 0),
                                               SHAPE(1, 700, 4, 1, 80, 0, 0, 0),   SHAPE(1, 1100, 2, 2, 10, 300, 0, 0),
                                               SHAPE(1, 9, 2, 1, 8, 0, 0, 0),      SHAPE(1, 90, 32, 32, 8, 0, 0, 0),
                                               SHAPE(1, 600, 8, 8, 40, 100, 0, 0), SHAPE(3, 64, 3, 1, 128, 0, 0, 0),
                                               SHAPE(2, 97, 6, 2, 20, 0, 2, 0),    SHAPE(1, 600, 4, 1, 40, 1, 9, 0),
                                               SHAPE(1, 700, 2, 1, 256, 64, 4, 0), SHAPE(1, 300, 2, 2, 96, 7, 0, 0)};
  (void)state;
  for (int turn = 0; turn < 24; turn++) {
    int n = turn / 2;
    hri_attention_shape shape = shapes[n];
    shape.real = reals[turn % 3];
    if (quick() && shape.sequence > 200) continue;
    problem p = make_problem(shape, DOCS_NONE, 900 + (uint64_t)n);
    int64_t capacity = (p.shape.sequence + 31) / 32 * 32 + 32 * (n % 3);
    for (int i = 0; i < variant_count; i++) {
      float *one = run_cached(&p, &variants[i], capacity, 1);
      check_close(&p, &variants[i], "cached y", one, p.y64, p.y_count, p.naive_y);
      for (int threads = 2; threads <= 4; threads++) {
        float *more = run_cached(&p, &variants[i], capacity, threads);
        check_same(&variants[i], "cached y", one, more, p.y_count, threads);
        release_checked(more, (uint64_t)p.y_count * 4, "y");
      }
      release_checked(one, (uint64_t)p.y_count * 4, "y");
    }
    free_problem(&p);
  }
}

/* The double cached reference, in two pieces, equals the double forward. */
static void test_cached_reference(void **state) {
  (void)state;
  problem p = make_problem((hri_attention_shape)SHAPE(1, 40, 6, 2, 10, 7, 3, HRI_REAL_F32), DOCS_NONE, 1000);
  hri_attention_cache_shape c = {1, 25, 64, 6, 2, 10, 7, 3, HRI_REAL_F32};
  int64_t elements = hri_attention_cache_elements(&c), w = width(&p.shape);
  double *keys = doubles(elements), *values = doubles(elements), *y = doubles(25 * 60);
  hri_attention_ref_cached(&c, (double)p.scale, p.qkv64, 0, 25, keys, values, y);
  for (int i = 0; i < 25 * 60; i++) assert_true(fabs(y[i] - p.y64[i]) < 1e-13);
  double *padded = doubles(25 * w);
  memcpy(padded, p.qkv64 + 25 * w, (size_t)(15 * w) * sizeof *padded);
  hri_attention_ref_cached(&c, (double)p.scale, padded, 25, 15, keys, values, y);
  for (int i = 0; i < 15 * 60; i++) assert_true(fabs(y[i] - p.y64[25 * 60 + i]) < 1e-13);
  for (int i = 15 * 60; i < 25 * 60; i++) assert_true(y[i] == 0);
  free(keys), free(values), free(y), free(padded);
  free_problem(&p);
}

/* O(T) memory: the scratch beyond the per-thread tiles grows by 4 bytes per (head, query) and the turns; it never falls
 * with more threads; absurd shapes saturate instead of wrapping. */
static void test_scratch_sizes(void **state) {
  (void)state;
  for (int i = 0; i < variant_count; i++) {
    const hri_attention_kernels_table *t = &variants[i].table;
    hri_attention_shape small = SHAPE(1, 1024, 12, 12, 64, 0, 0, HRI_REAL_F32),
                        large = SHAPE(1, 16384, 12, 12, 64, 0, 0, HRI_REAL_F32);
    hri_attention_shape narrow = large;
    assert_int_equal(hri_attention_forward_scratch(t->level, &small, 2),
                     hri_attention_forward_scratch(t->level, &large, 2));
    uint64_t growth =
        hri_attention_backward_scratch(t->level, &large, 2) - hri_attention_backward_scratch(t->level, &small, 2);
    /* delta, turns, and the dq sums of 4 heads of 64 in flight */
    assert_true(growth >= (12 + 4 * 64) * 15360 * 4 && growth <= (12 * 5 + 4 * 65 * 4) * 15360);
    narrow.real = HRI_REAL_BF16; /* keeps the same sums in fp32, and tiles that are no larger */
    assert_true(hri_attention_backward_scratch(t->level, &narrow, 2) -
                    hri_attention_backward_scratch(t->level, &small, 2) <=
                growth);
    for (int threads = 1; threads < 8; threads++)
      assert_true(hri_attention_backward_scratch(t->level, &small, threads) <
                  hri_attention_backward_scratch(t->level, &small, threads + 1));
    hri_attention_shape absurd = SHAPE(INT64_MAX / 4, INT64_MAX / 4, 1, 1, 64, 0, 0, HRI_REAL_F32);
    assert_int_equal(hri_attention_backward_scratch(t->level, &absurd, 1), UINT64_MAX);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_agrees_with_reference_on_odd_shapes),
      cmocka_unit_test(test_windows_and_documents),
      cmocka_unit_test(test_soft_caps),
      cmocka_unit_test(test_dropout),
      cmocka_unit_test(test_dropout_keeps_the_mean),
      cmocka_unit_test(test_wide_heads),
      cmocka_unit_test(test_large_scores),
      cmocka_unit_test(test_masked_keys_leave_no_trace),
      cmocka_unit_test(test_nan_propagates),
      cmocka_unit_test(test_reference_backward_is_the_derivative),
      cmocka_unit_test(test_backward_is_the_derivative),
      cmocka_unit_test(test_cached_pieces_equal_the_whole),
      cmocka_unit_test(test_cached_reference),
      cmocka_unit_test(test_scratch_sizes),
  };
  variants[variant_count].name = "base";
  hri_attention_kernels_base(&variants[variant_count++].table);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    variants[variant_count].name = "avx2";
    hri_attention_kernels_avx2(&variants[variant_count++].table);
    variants[variant_count].name = "amx emulated";
    hri_attention_kernels_amx_emulated(&variants[variant_count++].table);
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    variants[variant_count].name = "avx512";
    hri_attention_kernels_avx512(&variants[variant_count++].table);
    if (__builtin_cpu_supports("avx512bf16")) {
      variants[variant_count].name = "avx512bf16";
      hri_attention_kernels_avx512bf16(&variants[variant_count++].table);
    }
  }
#elif defined(__aarch64__)
  variants[variant_count].name = "neon";
  hri_attention_kernels_neon(&variants[variant_count++].table);
  if (hri_isa_has(hri_cpu_isa_detect(HRI_ISA_NEON_BF16), HRI_ISA_NEON_BF16)) {
    variants[variant_count].name = "neonbf16";
    hri_attention_kernels_neonbf16(&variants[variant_count++].table);
  }
#endif
  return cmocka_run_group_tests(tests, NULL, NULL);
}
