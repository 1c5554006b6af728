/* Attention in double precision (HRI_REAL, see ops/reference.h): the formulas of the definition, one (batch row, head,
 * query) at a time. */
#include "ops/attention/ref.h"

#include <math.h>
#include <tgmath.h>

#include "ops/reference.h"

static int64_t stride(const hri_attention_shape *s) { return (s->heads + 2 * s->kv_heads) * s->head_dim; }

/* Offsets in qkv of a query, its key/value head's keys, and values. */
static int64_t q_at(const hri_attention_shape *s, int64_t b, int64_t h, int64_t t) {
  return (b * s->sequence + t) * stride(s) + h * s->head_dim;
}
static int64_t k_at(const hri_attention_shape *s, int64_t b, int64_t h, int64_t t) {
  return q_at(s, b, s->heads + h / (s->heads / s->kv_heads), t);
}
static int64_t v_at(const hri_attention_shape *s, int64_t b, int64_t h, int64_t t) {
  return q_at(s, b, s->heads + s->kv_heads + h / (s->heads / s->kv_heads), t);
}

/* The first key that query t of row b sees. */
static int64_t first_key(const hri_attention_shape *s, const int32_t *doc_start, int64_t b, int64_t t) {
  int64_t first = doc_start ? doc_start[b * s->sequence + t] : 0;
  if (s->window > 0 && t - s->window + 1 > first) first = t - s->window + 1;
  if (first < 0) first = 0;
  return first > t ? t : first;
}

static HRI_REAL dot(const HRI_REAL *a, const HRI_REAL *b, int64_t count) {
  HRI_REAL sum = 0;
  for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

/* The score for scale * q.k, and its derivative with respect to that. */
static HRI_REAL cap_score(double softcap, HRI_REAL score, HRI_REAL *slope) {
  HRI_REAL t;
  *slope = 1;
  if (softcap == 0) return score;
  t = tanh(score / (HRI_REAL)softcap);
  *slope = 1 - t * t;
  return (HRI_REAL)softcap * t;
}

/* What a probability is multiplied by before the product with V. */
static HRI_REAL kept(const hri_attention_shape *s, int64_t b, int64_t h, int64_t t, int64_t j) {
  if (s->dropout == 0) return 1;
  if (hri_draw_word(&s->draw, (uint32_t)b, (uint32_t)t, (uint32_t)h, (uint32_t)j) < hri_drop_threshold(s->dropout))
    return 0;
  return 1 / (1 - (HRI_REAL)s->dropout);
}

static void forward_query(const hri_attention_shape *s, HRI_REAL scale, const HRI_REAL *qkv, int64_t first, int64_t b,
                          int64_t h, int64_t t, HRI_REAL *y, HRI_REAL *lse, HRI_REAL *probs) {
  const HRI_REAL *q = qkv + q_at(s, b, h, t);
  int64_t d = s->head_dim;
  HRI_REAL highest = -INFINITY, sum = 0, slope;
  for (int64_t j = first; j <= t; j++)
    highest = fmax(highest, cap_score(s->softcap, scale * dot(q, qkv + k_at(s, b, h, j), d), &slope));
  for (int64_t i = 0; i < d; i++) y[i] = 0;
  for (int64_t j = first; j <= t; j++) {
    HRI_REAL e = exp(cap_score(s->softcap, scale * dot(q, qkv + k_at(s, b, h, j), d), &slope) - highest);
    sum += e;
    for (int64_t i = 0; i < d; i++) y[i] += e * kept(s, b, h, t, j) * qkv[v_at(s, b, h, j) + i];
    if (probs) probs[j] = e;
  }
  for (int64_t i = 0; i < d; i++) y[i] /= sum;
  if (lse) *lse = highest + log(sum);
  for (int64_t j = 0; probs && j < s->sequence; j++) probs[j] = j >= first && j <= t ? probs[j] / sum : 0;
}

void hri_attention_ref_forward(const hri_attention_shape *s, HRI_REAL scale, const HRI_REAL *qkv,
                               const int32_t *doc_start, HRI_REAL *y, HRI_REAL *lse, HRI_REAL *probs) {
  for (int64_t b = 0; b < s->batch; b++) {
    for (int64_t h = 0; h < s->heads; h++) {
      for (int64_t t = 0; t < s->sequence; t++) {
        int64_t row = (b * s->heads + h) * s->sequence + t;
        forward_query(s, scale, qkv, first_key(s, doc_start, b, t), b, h, t,
                      y + ((b * s->sequence + t) * s->heads + h) * s->head_dim, lse ? lse + row : 0,
                      probs ? probs + row * s->sequence : 0);
      }
    }
  }
}

static void backward_query(const hri_attention_shape *s, HRI_REAL scale, const HRI_REAL *dy, const HRI_REAL *y,
                           HRI_REAL lse, const HRI_REAL *qkv, int64_t first, int64_t b, int64_t h, int64_t t,
                           HRI_REAL *dqkv) {
  int64_t d = s->head_dim, q = q_at(s, b, h, t);
  HRI_REAL delta = dot(dy, y, d);
  for (int64_t j = first; j <= t; j++) {
    int64_t k = k_at(s, b, h, j), v = v_at(s, b, h, j);
    HRI_REAL slope, p = exp(cap_score(s->softcap, scale * dot(qkv + q, qkv + k, d), &slope) - lse);
    HRI_REAL m = kept(s, b, h, t, j), ds = scale * slope * p * (m * dot(dy, qkv + v, d) - delta);
    for (int64_t i = 0; i < d; i++) {
      dqkv[q + i] += ds * qkv[k + i];
      dqkv[k + i] += ds * qkv[q + i];
      dqkv[v + i] += p * m * dy[i];
    }
  }
}

void hri_attention_ref_backward(const hri_attention_shape *s, HRI_REAL scale, const HRI_REAL *dy, const HRI_REAL *qkv,
                                const HRI_REAL *y, const HRI_REAL *lse, const int32_t *doc_start, HRI_REAL *dqkv) {
  for (int64_t i = 0; i < s->batch * s->sequence * stride(s); i++) dqkv[i] = 0;
  for (int64_t b = 0; b < s->batch; b++) {
    for (int64_t h = 0; h < s->heads; h++) {
      for (int64_t t = 0; t < s->sequence; t++) {
        int64_t at = ((b * s->sequence + t) * s->heads + h) * s->head_dim;
        backward_query(s, scale, dy + at, y + at, lse[(b * s->heads + h) * s->sequence + t], qkv,
                       first_key(s, doc_start, b, t), b, h, t, dqkv);
      }
    }
  }
}

/* Key j of the cache is strided: element i at keys[i * HRI_ATTENTION_CACHE_BLOCK]. */
static HRI_REAL cached_score(const HRI_REAL *q, const HRI_REAL *keys, int64_t count) {
  HRI_REAL sum = 0;
  for (int64_t i = 0; i < count; i++) sum += q[i] * keys[i * HRI_ATTENTION_CACHE_BLOCK];
  return sum;
}

static void cached_query(const hri_attention_cache_shape *s, HRI_REAL scale, const HRI_REAL *q, int64_t b, int64_t kv,
                         int64_t position, const HRI_REAL *cache_keys, const HRI_REAL *cache_values, HRI_REAL *y) {
  int64_t first = s->window > 0 && position >= s->window ? position - s->window + 1 : 0, d = s->head_dim;
  HRI_REAL highest = -INFINITY, sum = 0, slope;
  for (int64_t j = first; j <= position; j++)
    highest =
        fmax(highest, cap_score(s->softcap,
                                scale * cached_score(q, cache_keys + hri_attention_cache_key(s, b, kv, j), d), &slope));
  for (int64_t i = 0; i < d; i++) y[i] = 0;
  for (int64_t j = first; j <= position; j++) {
    HRI_REAL e = exp(
        cap_score(s->softcap, scale * cached_score(q, cache_keys + hri_attention_cache_key(s, b, kv, j), d), &slope) -
        highest);
    sum += e;
    for (int64_t i = 0; i < d; i++) y[i] += e * cache_values[hri_attention_cache_value(s, b, kv, j) + i];
  }
  for (int64_t i = 0; i < d; i++) y[i] /= sum;
}

void hri_attention_ref_cached(const hri_attention_cache_shape *s, HRI_REAL scale, const HRI_REAL *qkv, int64_t past,
                              int64_t rows_valid, HRI_REAL *cache_keys, HRI_REAL *cache_values, HRI_REAL *y) {
  int64_t d = s->head_dim, width = (s->heads + 2 * s->kv_heads) * d, group = s->heads / s->kv_heads;
  for (int64_t i = 0; i < s->batch * s->rows * s->heads * d; i++) y[i] = 0;
  for (int64_t b = 0; b < s->batch; b++) {
    for (int64_t row = 0; row < rows_valid; row++) {
      const HRI_REAL *in = qkv + (b * s->rows + row) * width;
      for (int64_t kv = 0; kv < s->kv_heads; kv++) {
        for (int64_t i = 0; i < d; i++) {
          cache_keys[hri_attention_cache_key(s, b, kv, past + row) + i * HRI_ATTENTION_CACHE_BLOCK] =
              in[(s->heads + kv) * d + i];
          cache_values[hri_attention_cache_value(s, b, kv, past + row) + i] = in[(s->heads + s->kv_heads + kv) * d + i];
        }
      }
      /* Rows are causal: those after this one need not be in the cache yet. */
      for (int64_t h = 0; h < s->heads; h++)
        cached_query(s, scale, in + h * d, b, h / group, past + row, cache_keys, cache_values,
                     y + ((b * s->rows + row) * s->heads + h) * d);
    }
  }
}
