/* Flash attention: scores are made tile by tile and never stored (Dao et al., 2022; the order of loops is our own).
 *
 * Forward: a block has 64 queries of a head, a warp 16 of them; tiles of keys pass by, with a running maximum and sum of each
 * query. Backward: one kernel has a tile of keys and all queries of its group of heads pass by (dk, dv), another has a tile of
 * queries and keys pass by (dq). Scores are made once more than with one kernel; nothing is added by two blocks, so the bits
 * are always the same. Before both, delta = rowsum(dy o y).
 *
 * A head of any size to 256 lies in tiles of 64, 128 or 256 columns behind which is zero. Of 256 columns a block makes 128,
 * since all do not find room in registers. Keys that no query of a tile sees - behind it, before its window, in other
 * documents - are left out tile by tile; within a tile scores are masked. The backward is cuda_backward.cu. */
#include "ops/attention/scores.cuh"

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

/* Clears probabilities of the lane's two rows, the first of which is `row` of the tile. */
template <int KEYS>
__device__ __forceinline__ void drop(float (*s)[4], const hri_shared<uint32_t> &kept, int row, int key) {
  HRI_UNROLL for (int h = 0; h < 2; h++) HRI_UNROLL for (int i = 0; i < KEYS / 8; i++) {
    uint32_t bits = kept_of<KEYS>(kept, row + 8 * h, i * 8 / HRI_DRAW_CHUNK, key) >> i * 8 % HRI_DRAW_CHUNK;
    if (!(bits & 1)) s[i][2 * h] = 0;
    if (!(bits & 2)) s[i][2 * h + 1] = 0;
  }
}

template <class T, int COLUMNS>
__global__ void __launch_bounds__((int)attention_tiles<T, COLUMNS>::THREADS, 1) attention_kernel(attention_args a) {
  using tiles = attention_tiles<T, COLUMNS>;
  constexpr int stride = tiles::STRIDE, rows = tiles::ROWS, keys = tiles::KEYS, width = tiles::WIDTH;
  HRI_DYNAMIC_SHARED(T, q, 0, rows * stride);
  HRI_DYNAMIC_SHARED(T, k, rows * stride * sizeof(T), keys * stride);
  HRI_DYNAMIC_SHARED(T, v, (rows + keys) * stride * sizeof(T), keys * stride);
  HRI_SHARED(int, firsts, rows);
  HRI_SHARED(uint32_t, kept, rows * drop_words<keys>::COUNT);
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
    if (a.control) load_kept<keys>(a, kept, b, head, query, rows, key);
    hri_copy_wait<1>();
    __syncthreads();
    tile_scores<T, COLUMNS, keys / 8>(s, q, row, k);
    soften<keys / 8>(a, s, &r, factor, first, query + row + lane / 4, key);
    if (a.control) drop<keys>(s, kept, row + lane / 4, key);
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
      if (d < D) y[y_at(a, b, t, head) + d] = hri_narrow<T>(sums[i][2 * h + e] * a.factor / sum);
    }
  }
}

/* ---- launching ---- */

template <class T, int COLUMNS> static int forward_of(const attention_args *a, void *stream) {
  using tiles = attention_tiles<T, COLUMNS>;
  dim3 blocks(hri_blocks(a->sequence, tiles::ROWS), (unsigned)a->heads, (unsigned)a->batch * tiles::SPLITS);
  return HRI_LAUNCH((attention_kernel<T, COLUMNS>), blocks, (unsigned)tiles::THREADS, tiles::FORWARD_BYTES, stream, *a);
}

template <class T> static int forward(const attention_args *a, void *stream) {
  if (a->head_dim <= 64) return forward_of<T, 64>(a, stream);
  return a->head_dim <= 128 ? forward_of<T, 128>(a, stream) : forward_of<T, 256>(a, stream);
}
extern "C" int hri_cuda_attention(const hri_attention_shape *shape, float scale, const void *qkv,
                                  const int32_t *doc_start, void *y, float *lse,
                                  const hri_control *control, void *stream) {
  attention_args a = attention_args_of(shape, scale, qkv, doc_start, control);
  if (attention_refused(shape, control)) return -1;
  if (shape->batch * shape->sequence == 0) return 0;
  a.y = y, a.lse = lse;
  a.vector = attention_rows_aligned(shape, qkv, nullptr);
  return HRI_BY_TYPE(shape->real, forward<REAL>(&a, stream));
}
