/* Attention of a few new positions over a generation cache (layout: shape.h).
 *
 * New keys and values are written first. Then the cache is cut into runs of SPLIT positions: a block has a run and up to HEADS
 * queries that share its keys and values, so that the cache is read once for them. Scores: a thread has two positions, which lie
 * side by side in a line of the cache for each element of the head. Output: neighbouring threads have a row of values, some rows
 * side by side; what they sum is added in their order. Maximum, sum and an unscaled output are left in scratch, and a last kernel
 * folds the runs in order. How a cache is cut depends on its capacity alone, so the bits do not depend on the length, and a captured
 * graph fits every step: blocks behind the length end at once. */
#include "ops/cuda.h"
#include "ops/elements.cuh"

enum { THREADS = 128, SPLIT = HRI_CUDA_CACHE_RUN, HEADS = 4, MOST_COLUMNS = 256 };

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

/* What a block has to do: positions first .. end - 1 of its run are there and seen. */
struct cached_block {
  int64_t b, item, kv, begin, first, end;
  int head, heads, D;
};

/* Queries of the heads into shared memory, [element][head], 0 behind the last head. */
template <class T>
__device__ __forceinline__ void load_queries(const cached_args &a, const cached_block &w, const hri_shared<float> &q) {
  const hri_attention_cache_shape &s = a.s;
  int64_t width = (s.heads + 2 * s.kv_heads) * w.D;
  hri_global<const T> from(static_cast<const T *>(a.qkv), s.batch * s.rows * width);
  for (int i = (int)threadIdx.x; i < HEADS * w.D; i += THREADS) {
    int h = i / w.D, d = i % w.D;
    q[d * HEADS + h] = h < w.heads ? hri_widen((T)from[w.item * width + (w.head + h) * w.D + d]) : 0;
  }
  __syncthreads();
}

/* score[h][e] of positions j and j + 1; what is behind the end is not looked at. */
template <class T>
__device__ __forceinline__ void scores_of(const cached_args &a, const cached_block &w, const hri_shared<float> &q,
                                          int64_t j, float (*score)[2]) {
  hri_global<const T> keys(static_cast<const T *>(a.keys), cache_elements(a.s));
  int64_t at = key_at(a.s, w.b, w.kv, j, 0);
  HRI_UNROLL_BY(8) for (int d = 0; d < w.D; d++) {
    hri_pack<T, 2> k = {};
    if (j + 1 < w.end) k = keys.template load<2>(at + d * HRI_ATTENTION_CACHE_BLOCK);
    else k.v[0] = (T)keys[at + d * HRI_ATTENTION_CACHE_BLOCK];
    hri_pack<float, HEADS> x = q.template load<HEADS>(d * HEADS);
    for (int h = 0; h < HEADS; h++)
      for (int e = 0; e < 2; e++) score[h][e] += x.v[h] * hri_widen(k.v[e]);
  }
  for (int h = 0; h < HEADS; h++)
    for (int e = 0; e < 2; e++) {
      float cap = (float)a.s.softcap;
      score[h][e] *= a.scale;
      if (cap > 0) score[h][e] = cap * tanhf(score[h][e] / cap);
      if (j + e < w.first || j + e >= w.end) score[h][e] = -INFINITY;
    }
}

/* Sums of rows of values times p[position][head], by rows `row`, row + rows, ... : columns d .. d + WIDE - 1. */
template <class T, int WIDE>
__device__ __forceinline__ void values_of(const cached_args &a, const cached_block &w, const hri_shared<float> &p,
                                          int row, int rows, int d, float (*out)[WIDE]) {
  hri_global<const T> values(static_cast<const T *>(a.values), cache_elements(a.s));
  int64_t at = value_at(a.s, w.b, w.kv, w.begin, d);
  int count = (int)(w.end - w.begin);
  HRI_UNROLL_BY(4) for (int j = row; j < count; j += rows) {
    hri_pack<T, WIDE> v = values.template load<WIDE>(at + (int64_t)j * w.D);
    hri_pack<float, HEADS> x = p.template load<HEADS>(j * HEADS);
    for (int h = 0; h < HEADS; h++)
      for (int e = 0; e < WIDE; e++) out[h][e] += x.v[h] * hri_widen(v.v[e]);
  }
}

/* Block (run, heads of a key head, row of the batch). WIDE: elements of a row of values that a thread takes at once. */
template <class T, int WIDE> __global__ void cached_kernel(cached_args a, int parts_of_group) {
  enum { SUMS = THREADS * WIDE > MOST_COLUMNS ? THREADS * WIDE : MOST_COLUMNS };
  const hri_attention_cache_shape &s = a.s;
  HRI_SHARED(float, p, SPLIT *HEADS);
  HRI_SHARED(float, q, MOST_COLUMNS *HEADS);
  HRI_SHARED(float, sums, SUMS *HEADS); /* [rows side by side][head][element] */
  HRI_SHARED(float, partial, HRI_WARP);
  int group = (int)(s.heads / s.kv_heads), part = (int)blockIdx.y % parts_of_group * HEADS;
  cached_block w = {};
  w.item = blockIdx.z, w.b = w.item / s.rows, w.kv = blockIdx.y / parts_of_group, w.D = (int)s.head_dim;
  w.head = (int)w.kv * group + part, w.heads = group - part < HEADS ? group - part : (int)HEADS;
  int64_t row = w.item % s.rows, splits = splits_of(s);
  hri_global<float> parts(a.parts, s.batch * s.rows * s.heads * splits * (w.D + 2));
  cached_now now = now_of(a);
  int64_t position = now.past + row, begin = (int64_t)blockIdx.x * SPLIT;
  w.first = s.window > 0 && position >= s.window ? position - s.window + 1 : 0;
  w.begin = begin, w.end = begin + SPLIT < position + 1 ? begin + SPLIT : position + 1;
  if (row >= now.rows || position >= s.capacity) return;
  auto to = [&](int h) { return ((w.item * s.heads + w.head + h) * splits + blockIdx.x) * (w.D + 2); };
  if (w.end <= w.first || w.end <= begin) { /* the whole block */
    if ((int)threadIdx.x < w.heads)
      parts[to((int)threadIdx.x) + w.D] = -INFINITY, parts[to((int)threadIdx.x) + w.D + 1] = 0;
    return;
  }
  load_queries<T>(a, w, q);
  float score[HEADS][2] = {};
  int local = 2 * (int)threadIdx.x;
  if (begin + local < w.end) scores_of<T>(a, w, q, begin + local, score);
  for (int h = 0; h < HEADS; h++) {
    bool there = begin + local < w.end;
    float most = hri_block_max(there ? fmaxf(score[h][0], score[h][1]) : -INFINITY, partial), total = 0;
    for (int e = 0; e < 2; e++) {
      float x = !there || score[h][e] == -INFINITY ? 0 : expf(score[h][e] - most);
      p[(local + e) * HEADS + h] = x;
      total += x;
    }
    float sum = hri_block_sum(total, partial); /* behind its barriers all of p[..][h] is there */
    if (threadIdx.x == 0 && h < w.heads) parts[to(h) + w.D] = most, parts[to(h) + w.D + 1] = sum;
  }
  int wide = w.D / WIDE, across = wide < THREADS ? wide : (int)THREADS, rows = THREADS / across;
  for (int d = (int)threadIdx.x % across; d < wide && (int)threadIdx.x < rows * across; d += across) {
    float out[HEADS][WIDE] = {};
    int mine = (int)threadIdx.x / across;
    values_of<T, WIDE>(a, w, p, mine, rows, d * WIDE, out);
    for (int h = 0; h < HEADS; h++)
      for (int e = 0; e < WIDE; e++) sums[(mine * HEADS + h) * w.D + d * WIDE + e] = out[h][e];
  }
  __syncthreads();
  for (int i = (int)threadIdx.x; i < w.heads * w.D; i += THREADS) {
    float out = 0;
    for (int r = 0; r < rows; r++) out += sums[r * HEADS * w.D + i];
    parts[to(i / w.D) + i % w.D] = out;
  }
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
      float own = parts[at + D], own_sum = parts[at + D + 1];
      if (own == -INFINITY && own_sum == 0) continue; /* nothing is there; NaN alone has no maximum, and a sum of NaN */
      float factor = expf(own - most);
      out += parts[at + d] * factor;
      sum += own_sum * factor;
    }
    y[to + d] = hri_narrow<T>(there ? out / sum : 0);
  }
}

template <class T> static int cached(const cached_args *a, void *stream) {
  const hri_attention_cache_shape *s = &a->s;
  unsigned items = (unsigned)(s->batch * s->rows), heads = (unsigned)s->heads;
  int64_t fresh = s->batch * s->rows * s->kv_heads * s->head_dim;
  int parts = (int)((s->heads / s->kv_heads + HEADS - 1) / HEADS);
  dim3 blocks((unsigned)splits_of(*s), (unsigned)(s->kv_heads * parts), items);
  int bad = HRI_LAUNCH(append_kernel<T>, hri_blocks(fresh, THREADS), THREADS, 0, stream, *a);
  if (hri_vectors(s->head_dim, hri_vector<T>(), a->values))
    bad |= HRI_LAUNCH((cached_kernel<T, hri_vector<T>()>), blocks, THREADS, 0, stream, *a, parts);
  else bad |= HRI_LAUNCH((cached_kernel<T, 1>), blocks, THREADS, 0, stream, *a, parts);
  return bad | HRI_LAUNCH(fold_kernel<T>, dim3(heads, items), THREADS, 0, stream, *a);
}

extern "C" int hri_cuda_attention_cached(const hri_attention_cache_shape *shape, float scale, const void *qkv,
                                         void *keys, void *values, const hri_control *control, void *y, void *scratch,
                                         void *stream) {
  cached_args a = {*shape, scale, qkv, keys, values, y, control, static_cast<float *>(scratch)};
  if (shape->head_dim > MOST_COLUMNS) return -1;
  if (shape->batch * shape->rows == 0) return 0;
  return HRI_BY_TYPE(shape->real, cached<REAL>(&a, stream));
}
