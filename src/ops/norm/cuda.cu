/* RMS norm and layer norm with the residual's sum, and their backward.
 *
 * A block has a row. Statistics are sums over the row by threads, warps and warps in order. In the backward the sums over
 * rows, dweight and dbias, are made by blocks of HRI_CUDA_NORM_ROWS rows, one thread a column, and folded in their order by
 * a second kernel: no atomics, the same bits always. */
#include "ops/columns.cuh"

enum { MOST_THREADS = 256 };

/* Threads for a row: whole warps, no more than elements. */
static unsigned row_threads(int64_t columns) {
  int64_t warps = (columns + HRI_WARP - 1) / HRI_WARP;
  return (unsigned)((warps > MOST_THREADS / HRI_WARP ? MOST_THREADS / HRI_WARP : warps) * HRI_WARP);
}

template <class T, bool layer> __global__ void norm_kernel(hri_norm_args a) {
  HRI_SHARED(float, partial, HRI_WARP);
  int64_t n = a.columns, row = blockIdx.x, base = row * n, all = a.rows * n;
  hri_global<const T> x(static_cast<const T *>(a.x), all), residual(static_cast<const T *>(a.residual), all);
  hri_global<T> s(static_cast<T *>(a.s), a.residual ? all : 0), y(static_cast<T *>(a.y), all);
  hri_global<const float> weight(a.weight, n), bias(a.bias, n);
  hri_global<float> stats(a.stats, a.rows * (layer ? 2 : 1));
  float mean = 0, squares = 0, offset = (float)a.weight_offset;
  if (a.residual) {
    for (int64_t c = threadIdx.x; c < n; c += blockDim.x)
      s[base + c] = hri_narrow<T>(hri_widen((T)x[base + c]) + hri_widen((T)residual[base + c]));
  }
  auto value = [&](int64_t c) { return hri_widen(a.residual ? (T)s[base + c] : (T)x[base + c]); };
  if (layer) {
    for (int64_t c = threadIdx.x; c < n; c += blockDim.x) mean += value(c);
    mean = hri_block_sum(mean, partial) / (float)n;
  }
  for (int64_t c = threadIdx.x; c < n; c += blockDim.x) {
    float v = value(c) - mean;
    squares += v * v;
  }
  float rstd = 1 / sqrtf(hri_block_sum(squares, partial) / (float)n + (float)a.eps);
  for (int64_t c = threadIdx.x; c < n; c += blockDim.x) {
    float v = (value(c) - mean) * rstd * (weight[c] + offset);
    y[base + c] = hri_narrow<T>(bias ? v + bias[c] : v);
  }
  if (threadIdx.x != 0 || !a.stats) return;
  if (layer) stats[2 * row] = mean;
  stats[layer ? 2 * row + 1 : row] = rstd;
}

template <bool layer> static int norm(const hri_norm_args *a, void *stream) {
  if (a->rows * a->columns == 0) return 0;
  return HRI_BY_TYPE(a->real,
                     HRI_LAUNCH((norm_kernel<REAL, layer>), (unsigned)a->rows, row_threads(a->columns), 0, stream, *a));
}

extern "C" int hri_cuda_rmsnorm(const hri_norm_args *args, void *stream) { return norm<false>(args, stream); }
extern "C" int hri_cuda_layernorm(const hri_norm_args *args, void *stream) { return norm<true>(args, stream); }

/* ---- backward ---- */

template <class T, bool layer> __global__ void norm_backward_kernel(hri_norm_backward_args a) {
  HRI_SHARED(float, partial, HRI_WARP);
  int64_t n = a.columns, row = blockIdx.x, base = row * n, all = a.rows * n;
  hri_global<const T> dy(static_cast<const T *>(a.dy), all), x(static_cast<const T *>(a.x), all);
  hri_global<const T> extra(static_cast<const T *>(a.extra), all);
  hri_global<T> dx(static_cast<T *>(a.dx), all);
  hri_global<const float> weight(a.weight, n), stats(a.stats, a.rows * (layer ? 2 : 1));
  float mean = layer ? (float)stats[2 * row] : 0, rstd = stats[layer ? 2 * row + 1 : row];
  float sum = 0, along = 0, offset = (float)a.weight_offset;
  for (int64_t c = threadIdx.x; c < n; c += blockDim.x) {
    float g = hri_widen((T)dy[base + c]) * (weight[c] + offset);
    sum += g;
    along += g * (hri_widen((T)x[base + c]) - mean) * rstd;
  }
  sum = layer ? hri_block_sum(sum, partial) / (float)n : 0;
  along = hri_block_sum(along, partial) / (float)n;
  for (int64_t c = threadIdx.x; c < n; c += blockDim.x) {
    float g = hri_widen((T)dy[base + c]) * (weight[c] + offset), xhat = (hri_widen((T)x[base + c]) - mean) * rstd;
    float v = rstd * (g - sum - xhat * along);
    if (extra) v = hri_round_to<T>(v) + hri_widen((T)extra[base + c]);
    dx[base + c] = hri_narrow<T>(v);
  }
}

/* Sums over the rows of a block, for each column: of dweight in the first half of scratch, of dbias in the second. */
template <class T, bool layer> __global__ void norm_rows_kernel(hri_norm_backward_args a) {
  int64_t n = a.columns, all = a.rows * n, c = hri_thread_index(), block = blockIdx.y;
  hri_row_range range = hri_rows_of_block(a.rows);
  hri_global<const T> dy(static_cast<const T *>(a.dy), all), x(static_cast<const T *>(a.x), all);
  hri_global<const float> stats(a.stats, a.rows * (layer ? 2 : 1));
  hri_global<float> sums(a.scratch, 2 * (int64_t)gridDim.y * n);
  float dweight = 0, dbias = 0;
  if (c >= n) return;
  for (int64_t row = range.begin; row < range.end; row++) {
    float mean = layer ? (float)stats[2 * row] : 0, rstd = stats[layer ? 2 * row + 1 : row];
    float g = hri_widen((T)dy[row * n + c]);
    dweight += g * (hri_widen((T)x[row * n + c]) - mean) * rstd;
    dbias += g;
  }
  sums[block * n + c] = dweight;
  sums[(gridDim.y + block) * n + c] = dbias;
}

/* The sums first: dx may lie over dy or x. */
template <class T, bool layer> static int norm_backward_of(const hri_norm_backward_args *a, void *stream) {
  unsigned columns = hri_blocks(a->columns, HRI_COLUMN_THREADS), blocks = (unsigned)hri_row_blocks(a->rows);
  int bad = 0;
  if (a->columns == 0) return 0;
  if (a->dweight || a->dbias) {
    if (blocks)
      bad |= HRI_LAUNCH((norm_rows_kernel<T, layer>), dim3(columns, blocks), HRI_COLUMN_THREADS, 0, stream, *a);
    if (a->dweight) bad |= hri_fold_columns(a->dweight, a->scratch, a->columns, blocks, a->accumulate, stream);
    if (a->dbias)
      bad |= hri_fold_columns(a->dbias, a->scratch + blocks * a->columns, a->columns, blocks, a->accumulate, stream);
  }
  if (a->rows)
    bad |= HRI_LAUNCH((norm_backward_kernel<T, layer>), (unsigned)a->rows, row_threads(a->columns), 0, stream, *a);
  return bad;
}

extern "C" int hri_cuda_rmsnorm_backward(const hri_norm_backward_args *args, void *stream) {
  return HRI_BY_TYPE(args->real, (norm_backward_of<REAL, false>(args, stream)));
}
extern "C" int hri_cuda_layernorm_backward(const hri_norm_backward_args *args, void *stream) {
  return HRI_BY_TYPE(args->real, (norm_backward_of<REAL, true>(args, stream)));
}
