/* Attention of a few new positions over a generation cache (layout: shape.h).
 *
 * New keys and values are written first. Then the cache is cut into runs of SPLIT positions: a block has a query and a run, its
 * threads the keys, 32 side by side in a line of the cache; it leaves maximum, sum and an unscaled output in scratch. A last
 * kernel folds the runs in order. How a cache is cut depends on its capacity alone, so the bits do not depend on the length,
 * and a captured graph fits every step: blocks behind the length end at once. */
#include "ops/cuda.h"
#include "ops/elements.cuh"

enum { THREADS = 128, SPLIT = HRI_CUDA_CACHE_RUN };

struct cached_args {
  hri_attention_cache_shape s;
  float scale;
  const void *qkv;
  void *keys, *values, *y;
  const hri_control *control;
  float *parts; /* [B, rows, H, splits, D + 2]: output, maximum, sum */
};

/* What of the cache is there. */
struct cached_now {
  int64_t past, rows;
};
__device__ __forceinline__ cached_now now_of(const cached_args &a) {
  hri_global<const hri_control> control(a.control, 1);
  hri_control c = control[0];
  return {c.cache_length, c.row_count};
}

static __host__ __device__ int64_t splits_of(const hri_attention_cache_shape &s) {
  return hri_cuda_blocks_of(s.capacity, SPLIT);
}
__device__ __forceinline__ int64_t cache_elements(const hri_attention_cache_shape &s) {
  return s.batch * s.kv_heads * s.capacity * s.head_dim;
}
/* Element d of key and value at a position (hri_attention_cache_key and _value). */
__device__ __forceinline__ int64_t key_at(const hri_attention_cache_shape &s, int64_t b, int64_t kv, int64_t position,
                                          int64_t d) {
  int64_t lane = position % HRI_ATTENTION_CACHE_BLOCK, begin = position - lane;
  return ((b * s.kv_heads + kv) * s.capacity + begin) * s.head_dim + d * HRI_ATTENTION_CACHE_BLOCK + lane;
}
__device__ __forceinline__ int64_t value_at(const hri_attention_cache_shape &s, int64_t b, int64_t kv, int64_t position,
                                            int64_t d) {
  return ((b * s.kv_heads + kv) * s.capacity + position) * s.head_dim + d;
}

template <class T> __global__ void append_kernel(cached_args a) {
  const hri_attention_cache_shape &s = a.s;
  int64_t i = hri_thread_index(), d = i % s.head_dim, kv = i / s.head_dim % s.kv_heads;
  int64_t item = i / s.head_dim / s.kv_heads, row = item % s.rows, b = item / s.rows;
  int64_t width = (s.heads + 2 * s.kv_heads) * s.head_dim, at = item * width + (s.heads + kv) * s.head_dim + d;
  hri_global<const T> qkv(static_cast<const T *>(a.qkv), s.batch * s.rows * width);
  hri_global<T> keys(static_cast<T *>(a.keys), cache_elements(s)),
      values(static_cast<T *>(a.values), cache_elements(s));
  cached_now now = now_of(a);
  if (b >= s.batch || row >= now.rows || now.past + row >= s.capacity) return;
  keys[key_at(s, b, kv, now.past + row, d)] = (T)qkv[at];
  values[value_at(s, b, kv, now.past + row, d)] = (T)qkv[at + s.kv_heads * s.head_dim];
}

/* Block (run, head, row of the batch). */
template <class T> __global__ void cached_kernel(cached_args a) {
  const hri_attention_cache_shape &s = a.s;
  HRI_SHARED(float, p, SPLIT);
  HRI_SHARED(float, partial, HRI_WARP);
  int64_t head = blockIdx.y, item = blockIdx.z, b = item / s.rows, row = item % s.rows, D = s.head_dim;
  int64_t kv = head / (s.heads / s.kv_heads), width = (s.heads + 2 * s.kv_heads) * D, splits = splits_of(s);
  hri_global<const T> q(static_cast<const T *>(a.qkv), s.batch * s.rows * width);
  hri_global<T> keys(static_cast<T *>(a.keys), cache_elements(s)),
      values(static_cast<T *>(a.values), cache_elements(s));
  hri_global<float> parts(a.parts, s.batch * s.rows * s.heads * splits * (D + 2));
  int64_t to = ((item * s.heads + head) * splits + blockIdx.x) * (D + 2);
  cached_now now = now_of(a);
  int64_t position = now.past + row, first = s.window > 0 && position >= s.window ? position - s.window + 1 : 0;
  int64_t begin = (int64_t)blockIdx.x * SPLIT, end = begin + SPLIT < position + 1 ? begin + SPLIT : position + 1;
  float most = -INFINITY, sum = 0, cap = (float)s.softcap;
  if (row >= now.rows || position >= s.capacity) return;
  if (end <= first || end <= begin) {
    if (threadIdx.x == 0) parts[to + D] = -INFINITY, parts[to + D + 1] = 0;
    return; /* the whole block */
  }
  for (int64_t j = begin + threadIdx.x; j < end; j += THREADS) {
    float score = 0;
    for (int64_t d = 0; d < D; d++)
      score += hri_widen((T)q[item * width + head * D + d]) * hri_widen((T)keys[key_at(s, b, kv, j, d)]);
    score *= a.scale;
    if (cap > 0) score = cap * tanhf(score / cap);
    if (j < first) score = -INFINITY;
    p[(int)(j - begin)] = score;
    most = fmaxf(most, score);
  }
  most = hri_block_max(most, partial);
  for (int64_t j = begin + threadIdx.x; j < end; j += THREADS) {
    float e = expf(p[(int)(j - begin)] - most);
    p[(int)(j - begin)] = e;
    sum += e;
  }
  sum = hri_block_sum(sum, partial); /* behind its barriers all probabilities are there */
  for (int64_t d = threadIdx.x; d < D; d += THREADS) {
    float out = 0;
    for (int64_t j = begin; j < end; j++) out += p[(int)(j - begin)] * hri_widen((T)values[value_at(s, b, kv, j, d)]);
    parts[to + d] = out;
  }
  if (threadIdx.x == 0) parts[to + D] = most, parts[to + D + 1] = sum;
}

/* Block (head, row of the batch). */
template <class T> __global__ void fold_kernel(cached_args a) {
  const hri_attention_cache_shape &s = a.s;
  int64_t head = blockIdx.x, item = blockIdx.y, D = s.head_dim, splits = splits_of(s), row = item % s.rows;
  int64_t from = (item * s.heads + head) * splits * (D + 2), to = (item * s.heads + head) * D;
  hri_global<const float> parts(a.parts, s.batch * s.rows * s.heads * splits * (D + 2));
  hri_global<T> y(static_cast<T *>(a.y), s.batch * s.rows * s.heads * D);
  cached_now now = now_of(a);
  bool there = row < now.rows && now.past + row < s.capacity;
  float most = -INFINITY;
  for (int64_t k = 0; there && k < splits; k++) most = fmaxf(most, parts[from + k * (D + 2) + D]);
  for (int64_t d = threadIdx.x; d < D; d += THREADS) {
    float out = 0, sum = 0;
    for (int64_t k = 0; there && k < splits; k++) {
      int64_t at = from + k * (D + 2);
      float own = parts[at + D];
      if (own == -INFINITY) continue; /* nothing is there */
      float factor = expf(own - most);
      out += parts[at + d] * factor;
      sum += parts[at + D + 1] * factor;
    }
    y[to + d] = hri_narrow<T>(there ? out / sum : 0);
  }
}

template <class T> static int cached(const cached_args *a, void *stream) {
  const hri_attention_cache_shape *s = &a->s;
  unsigned items = (unsigned)(s->batch * s->rows), heads = (unsigned)s->heads;
  int64_t fresh = s->batch * s->rows * s->kv_heads * s->head_dim;
  int bad = HRI_LAUNCH(append_kernel<T>, hri_blocks(fresh, THREADS), THREADS, 0, stream, *a);
  bad |= HRI_LAUNCH(cached_kernel<T>, dim3((unsigned)splits_of(*s), heads, items), THREADS, 0, stream, *a);
  return bad | HRI_LAUNCH(fold_kernel<T>, dim3(heads, items), THREADS, 0, stream, *a);
}

extern "C" int hri_cuda_attention_cached(const hri_attention_cache_shape *shape, float scale, const void *qkv,
                                         void *keys, void *values, const hri_control *control, void *y, void *scratch,
                                         void *stream) {
  cached_args a = {*shape, scale, qkv, keys, values, y, control, static_cast<float *>(scratch)};
  if (shape->batch * shape->rows == 0) return 0;
  return HRI_BY_TYPE(shape->real, cached<REAL>(&a, stream));
}
