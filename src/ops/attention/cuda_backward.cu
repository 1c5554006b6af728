/* The backward of flash attention (cuda.cu): delta; dk and dv of tiles of keys; dq of tiles of queries. */
#include "ops/attention/scores.cuh"

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

/* From the dots q.k (s) and dy.v (dp) of a query and key: p to s, and ds / scale to dp. Where dropout took the probability
 * away, no p reaches dv, and no dy v the score. */
__device__ __forceinline__ void score_gradient(const attention_args &a, bool seen, bool stays, float lse, float delta,
                                               float *s, float *dp) {
  float slope, p = seen ? expf(score_of(a, *s, &slope) - lse) : 0;
  *s = stays ? p : 0;
  *dp = seen ? p * ((stays ? *dp * a.factor : 0) - delta) * slope : 0;
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
__global__ void __launch_bounds__((int)attention_tiles<T, COLUMNS>::THREADS, 1)
    attention_keys_kernel(attention_args a) {
  using tiles = attention_tiles<T, COLUMNS>;
  constexpr int stride = tiles::STRIDE, rows = tiles::ROWS, passing = tiles::PASSING, width = tiles::WIDTH;
  HRI_DYNAMIC_SHARED(T, k, 0, rows * stride);
  HRI_DYNAMIC_SHARED(T, v, rows * stride * sizeof(T), rows * stride);
  HRI_DYNAMIC_SHARED(T, q, 2 * rows * stride * sizeof(T), passing * stride);
  HRI_DYNAMIC_SHARED(T, dy, (2 * rows + passing) * stride * sizeof(T), passing * stride);
  HRI_SHARED(int, first, passing);
  HRI_SHARED(float, lses, passing);
  HRI_SHARED(float, deltas, passing);
  HRI_SHARED(uint32_t, kept, passing *drop_words<rows>::COUNT);
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
      if (a.control) load_kept<rows>(a, kept, b, head, query, passing, key);
      hri_copy_commit();
      hri_copy_wait<0>();
      __syncthreads();
      tile_scores<T, COLUMNS, passing / 8>(s, k, row, q);
      tile_scores<T, COLUMNS, passing / 8>(dp, v, row, dy);
      HRI_UNROLL for (int i = 0; i < passing / 8; i++) HRI_UNROLL for (int e = 0; e < 4; e++) {
        int column = i * 8 + lane % 4 * 2 + e % 2;
        int at_row = row + lane / 4 + e / 2 * 8, mine = key + at_row;
        bool seen = mine >= first[column] && mine <= query + column && query + column < a.sequence;
        bool stays =
            !a.control ||
            ((uint32_t)kept[column * drop_words<rows>::COUNT + at_row / HRI_DRAW_CHUNK] >> at_row % HRI_DRAW_CHUNK & 1);
        score_gradient(a, seen, stays, lses[column], deltas[column], &s[i][e], &dp[i][e]);
      }
      tile_sums<T, COLUMNS, width, passing / 8>(dv, s, dy, begin);
      tile_sums<T, COLUMNS, width, passing / 8>(dk, dp, q, begin);
    }
  store_rows<T, COLUMNS, width>(a, k, row, dk, b, key, a.heads + kv, begin, a.scale);
  store_rows<T, COLUMNS, width>(a, v, row, dv, b, key, a.heads + a.kv_heads + kv, begin, a.factor);
}

/* dq of a tile of queries. */
template <class T, int COLUMNS>
__global__ void __launch_bounds__((int)attention_tiles<T, COLUMNS>::THREADS, 1)
    attention_queries_kernel(attention_args a) {
  using tiles = attention_tiles<T, COLUMNS>;
  constexpr int stride = tiles::STRIDE, rows = tiles::ROWS, passing = tiles::PASSING, width = tiles::WIDTH;
  HRI_DYNAMIC_SHARED(T, q, 0, rows * stride);
  HRI_DYNAMIC_SHARED(T, dy, rows * stride * sizeof(T), rows * stride);
  HRI_DYNAMIC_SHARED(T, k, 2 * rows * stride * sizeof(T), passing * stride);
  HRI_DYNAMIC_SHARED(T, v, (2 * rows + passing) * stride * sizeof(T), passing * stride);
  HRI_SHARED(int, firsts, rows);
  HRI_SHARED(uint32_t, kept, rows *drop_words<passing>::COUNT);
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
    if (a.control) load_kept<passing>(a, kept, b, head, query, rows, key);
    hri_copy_commit();
    hri_copy_wait<0>();
    __syncthreads();
    tile_scores<T, COLUMNS, passing / 8>(s, q, row, k);
    tile_scores<T, COLUMNS, passing / 8>(dp, dy, row, v);
    HRI_UNROLL for (int i = 0; i < passing / 8; i++) HRI_UNROLL for (int e = 0; e < 4; e++) {
      int k_at = key + i * 8 + lane % 4 * 2 + e % 2, q_at = query + row + lane / 4 + e / 2 * 8;
      bool seen = k_at >= first[e / 2] && k_at <= q_at && q_at < a.sequence;
      bool stays =
          !a.control ||
          (kept_of<passing>(kept, q_at - query, i * 8 / HRI_DRAW_CHUNK, key) >> (i * 8 % HRI_DRAW_CHUNK + e % 2) & 1);
      score_gradient(a, seen, stays, lses[e / 2], deltas[e / 2], &s[i][e], &dp[i][e]);
    }
    tile_sums<T, COLUMNS, width, passing / 8>(dq, dp, k, begin);
  }
  store_rows<T, COLUMNS, width>(a, q, row, dq, b, query, head, begin, a.scale);
}

/* ---- launching ---- */

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

template <class T> static int backward(const attention_args *a, void *stream) {
  if (a->head_dim <= 64) return backward_of<T, 64>(a, stream);
  return a->head_dim <= 128 ? backward_of<T, 128>(a, stream) : backward_of<T, 256>(a, stream);
}

extern "C" int hri_cuda_attention_backward(const hri_attention_shape *shape, float scale, const void *dy,
                                           const void *qkv, const void *y, const float *lse, const int32_t *doc_start,
                                           void *dqkv, const hri_control *control, void *scratch, void *stream) {
  attention_args a = attention_args_of(shape, scale, qkv, doc_start, control);
  if (attention_refused(shape, control)) return -1;
  if (shape->batch * shape->sequence == 0) return 0;
  a.dy = dy, a.y = const_cast<void *>(y), a.lse = const_cast<float *>(lse); /* read alone */
  a.delta = static_cast<float *>(scratch), a.dqkv = dqkv;
  a.vector = attention_rows_aligned(shape, qkv, dy);
  return HRI_BY_TYPE(shape->real, backward<REAL>(&a, stream));
}
