/* Flash attention: scores are made tile by tile and never stored (Dao et al., 2022; the order of loops is our own).
 *
 * Forward: a block has 64 queries of a head, a warp 16 of them; tiles of keys pass by, with a running maximum and sum of each
 * query. Backward: one kernel has a tile of keys and all queries of its group of heads pass by (dk, dv), another has a tile of
 * queries and keys pass by (dq). Scores are made once more than with one kernel; nothing is added by two blocks, so the bits
 * are always the same. Before both, delta = rowsum(dy o y).
 *
 * A head of any size to 256 lies in tiles of 64, 128 or 256 columns behind which is zero. Of 256 columns a block makes 128,
 * since all do not find room in registers. Keys that no query of a tile sees - behind it, before its window, in other
 * documents - are left out tile by tile; within a tile scores are masked. */
#include "ops/cuda.h"
#include "ops/elements.cuh"
#include "ops/attention/tiles.cuh"

struct attention_args {
  int64_t batch;
  int sequence, window; /* positions have 31 bits: registers are what the kernels run short of */
  int heads, kv_heads, head_dim;
  float scale, softcap;
  bool vector; /* rows of q, k, v, y and dy lie at multiples of 16 bytes */
  const void *qkv;
  const int32_t *doc_start;
  void *y; /* result of the forward, operand of the backward */
  float *lse;
  const void *dy;
  float *delta; /* [B,H,T] */
  void *dqkv;
};

/* Sizes of tiles for an element type and padded head size, so that a block's shared memory is 99 KiB at most. */
template <class T, int COLUMNS> struct attention_tiles {
  enum {
    BYTES = COLUMNS * sizeof(T),
    STRIDE = COLUMNS + tile_math<T>::PAD,
    ROWS = BYTES >= 1024 ? 32 : 64,                  /* that stay: queries, or keys in the backward of dk and dv */
    KEYS = 16384 / BYTES < 64 ? 16384 / BYTES : 64,  /* that pass, in the forward */
    PASSING = 8192 / BYTES < 32 ? 8192 / BYTES : 32, /* that pass, in the backward */
    WIDTH = COLUMNS < 128 ? COLUMNS : 128,           /* columns of a result that a block makes */
    SPLITS = COLUMNS / WIDTH,
    THREADS = ROWS / 16 * HRI_WARP,
    FORWARD_BYTES = (ROWS + 2 * KEYS) * STRIDE * sizeof(T),
    BACKWARD_BYTES = 2 * (ROWS + PASSING) * STRIDE * sizeof(T)
  };
};

/* Where head `head` of qkv begins in row (b, t), in elements: queries 0 .. H - 1, then keys, then values. */
__device__ __forceinline__ int64_t pitch_of(const attention_args &a) {
  return (int64_t)(a.heads + 2 * a.kv_heads) * a.head_dim;
}
__device__ __forceinline__ int64_t qkv_at(const attention_args &a, int64_t b, int t, int head) {
  return (b * a.sequence + t) * pitch_of(a) + (int64_t)head * a.head_dim;
}
__device__ __forceinline__ int64_t y_at(const attention_args &a, int64_t b, int t, int head) {
  return ((b * a.sequence + t) * a.heads + head) * a.head_dim;
}

/* The first key that query t sees; one behind the last where there is no such query. */
__device__ __forceinline__ int first_key(const attention_args &a, const hri_global<const int32_t> &doc_start, int64_t b,
                                         int t) {
  if (t >= a.sequence) return a.sequence;
  int first = a.doc_start ? (int)doc_start[b * a.sequence + t] : 0;
  if (a.window > 0 && t - a.window + 1 > first) first = t - a.window + 1;
  if (first < 0) first = 0;
  return first > t ? t : first;
}

/* `first` of queries begin .. begin + count - 1, and the least of them in all threads. */
__device__ __forceinline__ int load_first(const attention_args &a, const hri_shared<int> &first, int64_t b, int begin,
                                          int count) {
  hri_global<const int32_t> doc_start(a.doc_start, a.batch * a.sequence);
  __syncthreads(); /* whoever still reads the last ones */
  for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) first[i] = first_key(a, doc_start, b, begin + i);
  __syncthreads();
  int least = first[0];
  for (int i = 1; i < count; i++) least = least < (int)first[i] ? least : (int)first[i];
  return least;
}

/* The score for q.k, and its derivative by scale * q.k. */
__device__ __forceinline__ float score_of(const attention_args &a, float dot, float *slope) {
  float score = dot * a.scale;
  *slope = 1;
  if (a.softcap <= 0) return score;
  float bent = tanhf(score / a.softcap);
  *slope = 1 - bent * bent;
  return a.softcap * bent;
}

/* ---- forward ---- */

/* Of the 4 lanes that have a row together. */
__device__ __forceinline__ float quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(HRI_ALL_LANES, v, 1));
  return fmaxf(v, __shfl_xor_sync(HRI_ALL_LANES, v, 2));
}
__device__ __forceinline__ float quad_sum(float v) {
  v += __shfl_xor_sync(HRI_ALL_LANES, v, 1);
  return v + __shfl_xor_sync(HRI_ALL_LANES, v, 2);
}

/* A lane's two rows: maximum and sum so far. */
struct running {
  float most[2], sum[2];
};

/* Dots of the lane's rows with keys become probabilities by the maximum so far; what was summed before is scaled by the
 * result's factors. */
template <int n>
__device__ __forceinline__ void soften(const attention_args &a, float (*s)[4], running *r, float *factor,
                                       const int *first, int query, int key) {
  int t = (int)threadIdx.x % 4;
  float most[2] = {r->most[0], r->most[1]}, slope;
  HRI_UNROLL for (int i = 0; i < n; i++) HRI_UNROLL for (int e = 0; e < 4; e++) {
    int k = key + i * 8 + t * 2 + e % 2, q = query + e / 2 * 8;
    s[i][e] = k >= first[e / 2] && k <= q ? score_of(a, s[i][e], &slope) : -INFINITY;
    most[e / 2] = fmaxf(most[e / 2], s[i][e]);
  }
  HRI_UNROLL for (int h = 0; h < 2; h++) {
    most[h] = quad_max(most[h]);
    factor[h] = most[h] == -INFINITY ? 1 : expf(r->most[h] - most[h]);
    r->most[h] = most[h];
    r->sum[h] *= factor[h];
  }
  HRI_UNROLL for (int i = 0; i < n; i++) HRI_UNROLL for (int e = 0; e < 4; e++) {
    s[i][e] = s[i][e] == -INFINITY ? 0 : expf(s[i][e] - most[e / 2]);
    r->sum[e / 2] += s[i][e];
  }
}

template <class T, int COLUMNS>
__global__ void __launch_bounds__((int)attention_tiles<T, COLUMNS>::THREADS) attention_kernel(attention_args a) {
  using tiles = attention_tiles<T, COLUMNS>;
  constexpr int stride = tiles::STRIDE, rows = tiles::ROWS, keys = tiles::KEYS, width = tiles::WIDTH;
  HRI_DYNAMIC_SHARED(T, q, 0, rows * stride);
  HRI_DYNAMIC_SHARED(T, k, rows * stride * sizeof(T), keys * stride);
  HRI_DYNAMIC_SHARED(T, v, (rows + keys) * stride * sizeof(T), keys * stride);
  HRI_SHARED(int, firsts, rows);
  int64_t all = a.batch * a.sequence * pitch_of(a), b = blockIdx.z / tiles::SPLITS;
  int head = (int)blockIdx.y, kv = a.heads + head / (a.heads / a.kv_heads), D = a.head_dim;
  int begin = (int)(blockIdx.z % tiles::SPLITS) * width, lane = (int)threadIdx.x % HRI_WARP;
  int query = (int)(gridDim.x - 1 - blockIdx.x) * rows, end = query + rows < a.sequence ? query + rows : a.sequence;
  hri_global<const T> qkv(static_cast<const T *>(a.qkv), all);
  int key = load_first(a, firsts, b, query, rows) / keys * keys;
  int row = (int)threadIdx.x / HRI_WARP * 16, first[2] = {firsts[row + lane / 4], firsts[row + lane / 4 + 8]};
  float sums[width / 8][4] = {}, s[keys / 8][4], factor[2];
  running r = {{-INFINITY, -INFINITY}, {0, 0}};
  tile_load<T, COLUMNS>(q, rows, qkv, qkv_at(a, b, query, head), pitch_of(a), a.sequence - query, D, a.vector);
  tile_load<T, COLUMNS>(k, keys, qkv, qkv_at(a, b, key, kv), pitch_of(a), a.sequence - key, D, a.vector);
  hri_copy_commit();
  for (; key < end; key += keys) { /* keys arrive while the last values are summed, values while scores are made */
    int next = key + keys;
    tile_load<T, COLUMNS>(v, keys, qkv, qkv_at(a, b, key, kv + a.kv_heads), pitch_of(a), a.sequence - key, D, a.vector);
    hri_copy_commit();
    hri_copy_wait<1>();
    __syncthreads();
    tile_scores<T, COLUMNS, keys / 8>(s, q, row, k);
    soften<keys / 8>(a, s, &r, factor, first, query + row + lane / 4, key);
    HRI_UNROLL for (int i = 0; i < width / 8; i++) HRI_UNROLL for (int e = 0; e < 4; e++) sums[i][e] *= factor[e / 2];
    __syncthreads();
    if (next < end)
      tile_load<T, COLUMNS>(k, keys, qkv, qkv_at(a, b, next, kv), pitch_of(a), a.sequence - next, D, a.vector);
    hri_copy_commit();
    hri_copy_wait<1>();
    __syncthreads();
    tile_sums<T, COLUMNS, width, keys / 8>(sums, s, v, begin);
    __syncthreads();
  }
  hri_global<T> y(static_cast<T *>(a.y), a.batch * a.sequence * a.heads * D);
  hri_global<float> lse(a.lse, a.batch * a.heads * a.sequence);
  for (int h = 0; h < 2; h++) {
    int t = query + row + lane / 4 + h * 8;
    float sum = quad_sum(r.sum[h]);
    if (t >= a.sequence) continue;
    if (lane % 4 == 0 && begin == 0) lse[(b * a.heads + head) * a.sequence + t] = r.most[h] + logf(sum);
    HRI_UNROLL for (int i = 0; i < width / 8; i++) HRI_UNROLL for (int e = 0; e < 2; e++) {
      int d = begin + i * 8 + lane % 4 * 2 + e;
      if (d < D) y[y_at(a, b, t, head) + d] = hri_narrow<T>(sums[i][2 * h + e] / sum);
    }
  }
}

/* ---- backward ---- */

/* delta = rowsum(dy o y): a warp a row. */
template <class T> __global__ void attention_delta_kernel(attention_args a) {
  int64_t n = a.batch * a.sequence * a.heads, row = hri_thread_index() / HRI_WARP;
  hri_global<const T> dy(static_cast<const T *>(a.dy), n * a.head_dim), y(static_cast<const T *>(a.y), n * a.head_dim);
  hri_global<float> delta(a.delta, n);
  float sum = 0;
  if (row >= n) return; /* the whole warp */
  for (int d = (int)threadIdx.x % HRI_WARP; d < a.head_dim; d += HRI_WARP)
    sum += hri_widen((T)dy[row * a.head_dim + d]) * hri_widen((T)y[row * a.head_dim + d]);
  sum = hri_warp_sum(sum);
  int64_t b = row / a.heads / a.sequence, t = row / a.heads % a.sequence, head = row % a.heads;
  if (threadIdx.x % HRI_WARP == 0) delta[(b * a.heads + head) * a.sequence + t] = sum;
}

/* From the dots q.k (s) and dy.v (dp) of a query and key: p to s, and ds / scale to dp. */
__device__ __forceinline__ void score_gradient(const attention_args &a, bool seen, float lse, float delta, float *s,
                                               float *dp) {
  float slope, p = seen ? expf(score_of(a, *s, &slope) - lse) : 0;
  *s = p;
  *dp = seen ? p * (*dp - delta) * slope : 0;
}

/* A warp's 16 rows of a gradient, times `factor`, into their place in dqkv: by way of rows `row` .. of a tile that nobody else
 * reads any more, so that stores lie side by side, and need few registers. */
template <class T, int COLUMNS, int WIDTH>
__device__ __forceinline__ void store_rows(const attention_args &a, const hri_shared<T> &tile, int row,
                                           const float (*sums)[4], int64_t b, int t, int head, int begin,
                                           float factor) {
  constexpr int stride = COLUMNS + tile_math<T>::PAD;
  hri_global<T> to(static_cast<T *>(a.dqkv), a.batch * a.sequence * pitch_of(a));
  int lane = (int)threadIdx.x % HRI_WARP;
  __syncwarp();
  HRI_UNROLL for (int i = 0; i < WIDTH / 8; i++) HRI_UNROLL for (int e = 0; e < 4; e++)
      tile[(row + lane / 4 + e / 2 * 8) * stride + i * 8 + lane % 4 * 2 + e % 2] = hri_narrow<T>(sums[i][e] * factor);
  __syncwarp();
  HRI_NO_UNROLL for (int i = lane; i < 16 * WIDTH; i += HRI_WARP) {
    int r = i / WIDTH, d = begin + i % WIDTH;
    if (d < a.head_dim && t + row + r < a.sequence)
      to[qkv_at(a, b, t + row + r, head) + d] = (T)tile[(row + r) * stride + i % WIDTH];
  }
}

/* dk and dv of a tile of keys: rows of all products are keys, columns of the first two are queries. */
template <class T, int COLUMNS>
__global__ void __launch_bounds__((int)attention_tiles<T, COLUMNS>::THREADS) attention_keys_kernel(attention_args a) {
  using tiles = attention_tiles<T, COLUMNS>;
  constexpr int stride = tiles::STRIDE, rows = tiles::ROWS, passing = tiles::PASSING, width = tiles::WIDTH;
  HRI_DYNAMIC_SHARED(T, k, 0, rows * stride);
  HRI_DYNAMIC_SHARED(T, v, rows * stride * sizeof(T), rows * stride);
  HRI_DYNAMIC_SHARED(T, q, 2 * rows * stride * sizeof(T), passing * stride);
  HRI_DYNAMIC_SHARED(T, dy, (2 * rows + passing) * stride * sizeof(T), passing * stride);
  HRI_SHARED(int, first, passing);
  HRI_SHARED(float, lses, passing);
  HRI_SHARED(float, deltas, passing);
  int64_t tokens = a.batch * a.sequence, b = blockIdx.z / tiles::SPLITS;
  int kv = (int)blockIdx.y, group = a.heads / a.kv_heads, D = a.head_dim;
  int begin = (int)(blockIdx.z % tiles::SPLITS) * width, lane = (int)threadIdx.x % HRI_WARP;
  int row = (int)threadIdx.x / HRI_WARP * 16, key = (int)blockIdx.x * rows;
  hri_global<const T> qkv(static_cast<const T *>(a.qkv), tokens * pitch_of(a));
  hri_global<const T> gradient(static_cast<const T *>(a.dy), tokens * a.heads * D);
  hri_global<const float> lse(a.lse, tokens * a.heads), delta(a.delta, tokens * a.heads);
  float dk[width / 8][4] = {}, dv[width / 8][4] = {}, s[passing / 8][4], dp[passing / 8][4];
  tile_load<T, COLUMNS>(k, rows, qkv, qkv_at(a, b, key, a.heads + kv), pitch_of(a), a.sequence - key, D, a.vector);
  tile_load<T, COLUMNS>(v, rows, qkv, qkv_at(a, b, key, a.heads + a.kv_heads + kv), pitch_of(a), a.sequence - key, D,
                        a.vector);
  for (int head = kv * group; head < (kv + 1) * group; head++)
    for (int query = key / passing * passing; query < a.sequence; query += passing) {
      if (load_first(a, first, b, query, passing) >= key + rows) continue; /* nobody sees these keys */
      int64_t at = (b * a.heads + head) * a.sequence + query;
      for (int i = (int)threadIdx.x; i < passing; i += (int)blockDim.x) {
        lses[i] = query + i < a.sequence ? (float)lse[at + i] : 0;
        deltas[i] = query + i < a.sequence ? (float)delta[at + i] : 0;
      }
      tile_load<T, COLUMNS>(q, passing, qkv, qkv_at(a, b, query, head), pitch_of(a), a.sequence - query, D, a.vector);
      tile_load<T, COLUMNS>(dy, passing, gradient, y_at(a, b, query, head), (int64_t)a.heads * D, a.sequence - query, D,
                            a.vector);
      hri_copy_commit();
      hri_copy_wait<0>();
      __syncthreads();
      tile_scores<T, COLUMNS, passing / 8>(s, k, row, q);
      tile_scores<T, COLUMNS, passing / 8>(dp, v, row, dy);
      HRI_UNROLL for (int i = 0; i < passing / 8; i++) HRI_UNROLL for (int e = 0; e < 4; e++) {
        int column = i * 8 + lane % 4 * 2 + e % 2;
        int mine = key + row + lane / 4 + e / 2 * 8;
        bool seen = mine >= first[column] && mine <= query + column && query + column < a.sequence;
        score_gradient(a, seen, lses[column], deltas[column], &s[i][e], &dp[i][e]);
      }
      tile_sums<T, COLUMNS, width, passing / 8>(dv, s, dy, begin);
      tile_sums<T, COLUMNS, width, passing / 8>(dk, dp, q, begin);
    }
  store_rows<T, COLUMNS, width>(a, k, row, dk, b, key, a.heads + kv, begin, a.scale);
  store_rows<T, COLUMNS, width>(a, v, row, dv, b, key, a.heads + a.kv_heads + kv, begin, 1);
}

/* dq of a tile of queries. */
template <class T, int COLUMNS>
__global__ void __launch_bounds__((int)attention_tiles<T, COLUMNS>::THREADS)
    attention_queries_kernel(attention_args a) {
  using tiles = attention_tiles<T, COLUMNS>;
  constexpr int stride = tiles::STRIDE, rows = tiles::ROWS, passing = tiles::PASSING, width = tiles::WIDTH;
  HRI_DYNAMIC_SHARED(T, q, 0, rows * stride);
  HRI_DYNAMIC_SHARED(T, dy, rows * stride * sizeof(T), rows * stride);
  HRI_DYNAMIC_SHARED(T, k, 2 * rows * stride * sizeof(T), passing * stride);
  HRI_DYNAMIC_SHARED(T, v, (2 * rows + passing) * stride * sizeof(T), passing * stride);
  HRI_SHARED(int, firsts, rows);
  int64_t tokens = a.batch * a.sequence, b = blockIdx.z / tiles::SPLITS;
  int head = (int)blockIdx.y, kv = a.heads + head / (a.heads / a.kv_heads), D = a.head_dim;
  int begin = (int)(blockIdx.z % tiles::SPLITS) * width, lane = (int)threadIdx.x % HRI_WARP;
  int query = (int)(gridDim.x - 1 - blockIdx.x) * rows, end = query + rows < a.sequence ? query + rows : a.sequence;
  int row = (int)threadIdx.x / HRI_WARP * 16;
  hri_global<const T> qkv(static_cast<const T *>(a.qkv), tokens * pitch_of(a));
  hri_global<const T> gradient(static_cast<const T *>(a.dy), tokens * a.heads * D);
  hri_global<const float> lse(a.lse, tokens * a.heads), delta(a.delta, tokens * a.heads);
  float dq[width / 8][4] = {}, s[passing / 8][4], dp[passing / 8][4], lses[2], deltas[2];
  int key = load_first(a, firsts, b, query, rows) / passing * passing;
  int64_t at = (b * a.heads + head) * a.sequence + query;
  int first[2];
  for (int h = 0; h < 2; h++) {
    int mine = row + lane / 4 + h * 8;
    first[h] = firsts[mine];
    lses[h] = query + mine < a.sequence ? (float)lse[at + mine] : 0;
    deltas[h] = query + mine < a.sequence ? (float)delta[at + mine] : 0;
  }
  tile_load<T, COLUMNS>(q, rows, qkv, qkv_at(a, b, query, head), pitch_of(a), a.sequence - query, D, a.vector);
  tile_load<T, COLUMNS>(dy, rows, gradient, y_at(a, b, query, head), (int64_t)a.heads * D, a.sequence - query, D,
                        a.vector);
  for (; key < end; key += passing) {
    __syncthreads(); /* whoever still reads the last keys */
    tile_load<T, COLUMNS>(k, passing, qkv, qkv_at(a, b, key, kv), pitch_of(a), a.sequence - key, D, a.vector);
    tile_load<T, COLUMNS>(v, passing, qkv, qkv_at(a, b, key, kv + a.kv_heads), pitch_of(a), a.sequence - key, D,
                          a.vector);
    hri_copy_commit();
    hri_copy_wait<0>();
    __syncthreads();
    tile_scores<T, COLUMNS, passing / 8>(s, q, row, k);
    tile_scores<T, COLUMNS, passing / 8>(dp, dy, row, v);
    HRI_UNROLL for (int i = 0; i < passing / 8; i++) HRI_UNROLL for (int e = 0; e < 4; e++) {
      int k_at = key + i * 8 + lane % 4 * 2 + e % 2, q_at = query + row + lane / 4 + e / 2 * 8;
      bool seen = k_at >= first[e / 2] && k_at <= q_at && q_at < a.sequence;
      score_gradient(a, seen, lses[e / 2], deltas[e / 2], &s[i][e], &dp[i][e]);
    }
    tile_sums<T, COLUMNS, width, passing / 8>(dq, dp, k, begin);
  }
  store_rows<T, COLUMNS, width>(a, q, row, dq, b, query, head, begin, a.scale);
}

/* ---- launchers ---- */

static attention_args args_of(const hri_attention_shape *s, float scale, const void *qkv, const int32_t *doc_start) {
  attention_args a = {};
  a.batch = s->batch, a.sequence = (int)s->sequence, a.window = (int)s->window;
  a.heads = (int)s->heads, a.kv_heads = (int)s->kv_heads, a.head_dim = (int)s->head_dim;
  a.scale = scale, a.softcap = (float)s->softcap;
  a.qkv = qkv, a.doc_start = doc_start;
  return a;
}

static bool rows_aligned(const hri_attention_shape *s, const void *x, const void *y) {
  return s->head_dim * hri_real_bytes(s->real) % 16 == 0 && ((uintptr_t)x | (uintptr_t)y) % 16 == 0;
}

template <class T, int COLUMNS> static int forward_of(const attention_args *a, void *stream) {
  using tiles = attention_tiles<T, COLUMNS>;
  dim3 blocks(hri_blocks(a->sequence, tiles::ROWS), (unsigned)a->heads, (unsigned)a->batch * tiles::SPLITS);
  return HRI_LAUNCH((attention_kernel<T, COLUMNS>), blocks, (unsigned)tiles::THREADS, tiles::FORWARD_BYTES, stream, *a);
}

template <class T, int COLUMNS> static int backward_of(const attention_args *a, void *stream) {
  using tiles = attention_tiles<T, COLUMNS>;
  unsigned rows = hri_blocks(a->sequence, tiles::ROWS), batch = (unsigned)a->batch * tiles::SPLITS;
  int64_t deltas = a->batch * a->sequence * a->heads;
  int bad = HRI_LAUNCH(attention_delta_kernel<T>, hri_blocks(deltas, HRI_ELEMENT_THREADS / HRI_WARP),
                       HRI_ELEMENT_THREADS, 0, stream, *a);
  bad |= HRI_LAUNCH((attention_keys_kernel<T, COLUMNS>), dim3(rows, (unsigned)a->kv_heads, batch),
                    (unsigned)tiles::THREADS, tiles::BACKWARD_BYTES, stream, *a);
  return bad | HRI_LAUNCH((attention_queries_kernel<T, COLUMNS>), dim3(rows, (unsigned)a->heads, batch),
                          (unsigned)tiles::THREADS, tiles::BACKWARD_BYTES, stream, *a);
}

template <class T> static int forward(const attention_args *a, void *stream) {
  if (a->head_dim <= 64) return forward_of<T, 64>(a, stream);
  return a->head_dim <= 128 ? forward_of<T, 128>(a, stream) : forward_of<T, 256>(a, stream);
}
template <class T> static int backward(const attention_args *a, void *stream) {
  if (a->head_dim <= 64) return backward_of<T, 64>(a, stream);
  return a->head_dim <= 128 ? backward_of<T, 128>(a, stream) : backward_of<T, 256>(a, stream);
}

extern "C" int hri_cuda_attention(const hri_attention_shape *shape, float scale, const void *qkv,
                                  const int32_t *doc_start, void *y, float *lse, void *stream) {
  attention_args a = args_of(shape, scale, qkv, doc_start);
  if (shape->head_dim > 256 || shape->dropout > 0) return -1;
  if (shape->batch * shape->sequence == 0) return 0;
  a.y = y, a.lse = lse;
  a.vector = rows_aligned(shape, qkv, nullptr);
  return HRI_BY_TYPE(shape->real, forward<REAL>(&a, stream));
}

extern "C" uint64_t hri_cuda_attention_backward_scratch_bytes(const hri_attention_shape *shape) {
  return (uint64_t)(shape->batch * shape->heads * shape->sequence) * sizeof(float);
}

extern "C" int hri_cuda_attention_backward(const hri_attention_shape *shape, float scale, const void *dy,
                                           const void *qkv, const void *y, const float *lse, const int32_t *doc_start,
                                           void *dqkv, void *scratch, void *stream) {
  attention_args a = args_of(shape, scale, qkv, doc_start);
  if (shape->head_dim > 256 || shape->dropout > 0) return -1;
  if (shape->batch * shape->sequence == 0) return 0;
  a.dy = dy, a.y = const_cast<void *>(y), a.lse = const_cast<float *>(lse); /* read alone */
  a.delta = static_cast<float *>(scratch), a.dqkv = dqkv;
  a.vector = rows_aligned(shape, qkv, dy);
  return HRI_BY_TYPE(shape->real, backward<REAL>(&a, stream));
}
