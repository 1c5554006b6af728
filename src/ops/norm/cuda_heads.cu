/* The RMS norm of each q and k head, a warp a head, and its backward. Sums over rows for the weights are those of norms
 * (ops/columns.cuh). */
#include "ops/columns.cuh"

enum { THREADS = 256 };

/* Heads of a row: H of D elements, then K of E that are normed, then K that are not. */
struct heads {
  int64_t rows, queries, keys, size, key_size;

  __device__ int64_t count() const { return queries + 2 * keys; }
  __device__ int64_t width() const { return queries * size + 2 * keys * key_size; }
  __device__ int64_t begin(int64_t h) const {
    return h < queries ? h * size : queries * size + (h - queries) * key_size;
  }
  __device__ int64_t size_of(int64_t h) const { return h < queries ? size : key_size; }
};

static heads heads_of(int64_t rows, int64_t queries, int64_t keys, int64_t size, int64_t key_size) {
  return {rows, queries, keys, size, key_size ? key_size : size};
}

/* Blocks of whole warps, each of which has a head. */
static unsigned head_blocks(const heads *h) {
  return hri_blocks(h->rows * (h->queries + 2 * h->keys), THREADS / HRI_WARP);
}

template <class T> __global__ void head_norm_kernel(hri_head_norm_args a, heads l) {
  int64_t item = hri_thread_index() / HRI_WARP, row = item / l.count(), head = item % l.count(),
          all = l.rows * l.width();
  int lane = (int)threadIdx.x % HRI_WARP;
  if (row >= l.rows) return; /* the whole warp */
  bool query = head < l.queries, normed = head < l.queries + l.keys;
  int64_t at = row * l.width() + l.begin(head), n = l.size_of(head);
  hri_global<const T> x(static_cast<const T *>(a.x), all);
  hri_global<T> y(static_cast<T *>(a.y), all);
  hri_global<const float> w(query ? a.wq : a.wk, n);
  hri_global<float> stats(a.stats, l.rows * (l.queries + l.keys));
  float squares = 0, rstd = 1;
  if (normed) {
    for (int64_t d = lane; d < n; d += HRI_WARP) {
      float v = hri_widen((T)x[at + d]);
      squares += v * v;
    }
    rstd = 1 / sqrtf(hri_warp_sum(squares) / (float)n + (float)a.eps);
    if (lane == 0 && stats) stats[row * (l.queries + l.keys) + head] = rstd;
  }
  for (int64_t d = lane; d < n; d += HRI_WARP) {
    float v = hri_widen((T)x[at + d]);
    y[at + d] = hri_narrow<T>(normed ? v * rstd * (w[d] + (float)a.weight_offset) : v);
  }
}

extern "C" int hri_cuda_head_norm(const hri_head_norm_args *args, void *stream) {
  heads l = heads_of(args->rows, args->heads, args->kv_heads, args->head_size, args->key_size);
  if (head_blocks(&l) == 0) return 0;
  return HRI_BY_TYPE(args->real, HRI_LAUNCH(head_norm_kernel<REAL>, head_blocks(&l), THREADS, 0, stream, *args, l));
}

/* ---- backward ---- */

template <class T> __global__ void head_norm_backward_kernel(hri_head_norm_backward_args a, heads l) {
  int64_t item = hri_thread_index() / HRI_WARP, row = item / l.count(), head = item % l.count(),
          all = l.rows * l.width();
  int lane = (int)threadIdx.x % HRI_WARP;
  if (row >= l.rows) return; /* the whole warp */
  bool query = head < l.queries, normed = head < l.queries + l.keys;
  int64_t at = row * l.width() + l.begin(head), n = l.size_of(head);
  hri_global<const T> dy(static_cast<const T *>(a.dy), all), x(static_cast<const T *>(a.x), all);
  hri_global<T> dx(static_cast<T *>(a.dx), all);
  hri_global<const float> w(query ? a.wq : a.wk, n), stats(a.stats, l.rows * (l.queries + l.keys));
  float rstd = normed ? (float)stats[row * (l.queries + l.keys) + head] : 1, along = 0, offset = (float)a.weight_offset;
  for (int64_t d = lane; normed && d < n; d += HRI_WARP)
    along += hri_widen((T)dy[at + d]) * (w[d] + offset) * hri_widen((T)x[at + d]) * rstd;
  along = hri_warp_sum(along) / (float)n;
  for (int64_t d = lane; d < n; d += HRI_WARP) {
    float g = hri_widen((T)dy[at + d]);
    if (normed) g = rstd * (g * (w[d] + offset) - hri_widen((T)x[at + d]) * rstd * along);
    dx[at + d] = hri_narrow<T>(g);
  }
}

/* Sums of dy xhat over heads [first, end) and the rows of a block, an element of a head a thread. */
template <class T>
__global__ void head_rows_kernel(hri_head_norm_backward_args a, heads l, int64_t first, int64_t end, float *partial) {
  int64_t d = hri_thread_index(), n = l.size_of(first), all = l.rows * l.width();
  hri_row_range range = hri_rows_of_block(l.rows);
  hri_global<const T> dy(static_cast<const T *>(a.dy), all), x(static_cast<const T *>(a.x), all);
  hri_global<const float> stats(a.stats, l.rows * (l.queries + l.keys));
  hri_global<float> sums(partial, (int64_t)gridDim.y * n);
  float sum = 0;
  if (d >= n) return;
  for (int64_t row = range.begin; row < range.end; row++)
    for (int64_t head = first; head < end; head++) {
      int64_t at = row * l.width() + l.begin(head) + d;
      sum += hri_widen((T)dy[at]) * hri_widen((T)x[at]) * stats[row * (l.queries + l.keys) + head];
    }
  sums[(int64_t)blockIdx.y * n + d] = sum;
}

template <class T>
static int weight_gradient(const hri_head_norm_backward_args *a, const heads *l, bool query, float *scratch,
                           void *stream) {
  int64_t n = query ? l->size : l->key_size, blocks = hri_row_blocks(l->rows);
  int64_t first = query ? 0 : l->queries, end = query ? l->queries : l->queries + l->keys;
  float *to = query ? a->dwq : a->dwk;
  int bad = 0;
  if (!to || n == 0) return 0;
  if (blocks)
    bad = HRI_LAUNCH(head_rows_kernel<T>, dim3(hri_blocks(n, HRI_COLUMN_THREADS), (unsigned)blocks), HRI_COLUMN_THREADS,
                     0, stream, *a, *l, first, end, scratch);
  return bad | hri_fold_columns(to, scratch, n, blocks, a->accumulate, stream);
}

/* The sums first: dx may lie over dy or x. */
template <class T>
static int head_norm_backward_of(const hri_head_norm_backward_args *a, const heads *l, void *stream) {
  int bad = weight_gradient<T>(a, l, true, a->scratch, stream);
  bad |= weight_gradient<T>(a, l, false, a->scratch + hri_row_blocks(l->rows) * l->size, stream);
  if (head_blocks(l) == 0) return bad;
  return bad | HRI_LAUNCH(head_norm_backward_kernel<T>, head_blocks(l), THREADS, 0, stream, *a, *l);
}

extern "C" int hri_cuda_head_norm_backward(const hri_head_norm_backward_args *args, void *stream) {
  heads l = heads_of(args->rows, args->heads, args->kv_heads, args->head_size, args->key_size);
  return HRI_BY_TYPE(args->real, head_norm_backward_of<REAL>(args, &l, stream));
}
