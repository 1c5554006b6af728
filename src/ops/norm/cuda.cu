/* RMS norm and layer norm with the residual's sum, and their backward.
 *
 * A block has a row. Statistics are sums over the row by threads, warps and warps in order. In the backward the sums over
 * rows, dweight and dbias, are made by blocks of HRI_CUDA_NORM_ROWS rows, one thread a column, and folded by
 * a second kernel: no atomics, the same bits always. */
#include "ops/columns.cuh"

enum { MOST_THREADS = 256 };

/* Threads for a row of which each takes `wide` elements at once: whole warps, no more than there are vectors. */
static unsigned row_threads(int64_t columns, int wide) {
  int64_t warps = (columns / wide + HRI_WARP - 1) / HRI_WARP;
  return (unsigned)((warps > MOST_THREADS / HRI_WARP ? MOST_THREADS / HRI_WARP : warps) * HRI_WARP);
}

/* The columns of a thread, `wide` at a time. */
#define EACH_OF_ROW(c)                                                                                                 \
  for (int64_t c = (int64_t)threadIdx.x * wide, c##_step = (int64_t)blockDim.x * wide; c < n; c += c##_step)

template <class T, bool layer, int wide> __global__ void norm_kernel(hri_norm_args a) {
  HRI_SHARED(float, partial, HRI_WARP);
  int64_t n = a.columns, row = blockIdx.x, base = row * n, all = a.rows * n;
  hri_global<const T> x(static_cast<const T *>(a.x), all), residual(static_cast<const T *>(a.residual), all);
  hri_global<T> s(static_cast<T *>(a.s), a.residual ? all : 0), y(static_cast<T *>(a.y), all);
  hri_global<const float> weight(a.weight, n), bias(a.bias, n);
  hri_global<float> stats(a.stats, a.rows * (layer ? 2 : 1));
  float mean = 0, squares = 0, offset = (float)a.weight_offset, v[wide], w[wide];
  if (a.residual) EACH_OF_ROW(c) {
      hri_get<wide>(v, x, base + c);
      hri_get<wide>(w, residual, base + c);
      for (int k = 0; k < wide; k++) v[k] += w[k];
      hri_put<wide>(s, base + c, v);
    }
  auto get_values = [&](int64_t c) {
    if (a.residual) hri_get<wide>(v, s, base + c);
    else hri_get<wide>(v, x, base + c);
  };
  if (layer) {
    EACH_OF_ROW(c) {
      get_values(c);
      for (int k = 0; k < wide; k++) mean += v[k];
    }
    mean = hri_block_sum(mean, partial) / (float)n;
  }
  EACH_OF_ROW(c) {
    get_values(c);
    for (int k = 0; k < wide; k++) squares += (v[k] - mean) * (v[k] - mean);
  }
  float rstd = 1 / sqrtf(hri_block_sum(squares, partial) / (float)n + (float)a.eps);
  EACH_OF_ROW(c) {
    get_values(c);
    hri_get_wide<wide>(w, weight, c);
    for (int k = 0; k < wide; k++) v[k] = (v[k] - mean) * rstd * (w[k] + offset);
    if (bias) {
      hri_get_wide<wide>(w, bias, c);
      for (int k = 0; k < wide; k++) v[k] += w[k];
    }
    hri_put<wide>(y, base + c, v);
  }
  if (threadIdx.x != 0 || !a.stats) return;
  if (layer) stats[2 * row] = mean;
  stats[layer ? 2 * row + 1 : row] = rstd;
}

template <class T, bool layer> static int norm_of(const hri_norm_args *a, void *stream) {
  constexpr int wide = hri_vector<T>();
  if (hri_vectors(a->columns, wide, a->x, a->residual, a->y) && hri_vectors(0, wide, a->s, a->weight, a->bias))
    return HRI_LAUNCH((norm_kernel<T, layer, wide>), (unsigned)a->rows, row_threads(a->columns, wide), 0, stream, *a);
  return HRI_LAUNCH((norm_kernel<T, layer, 1>), (unsigned)a->rows, row_threads(a->columns, 1), 0, stream, *a);
}

template <bool layer> static int norm(const hri_norm_args *a, void *stream) {
  if (a->rows * a->columns == 0) return 0;
  return HRI_BY_TYPE(a->real, (norm_of<REAL, layer>(a, stream)));
}

extern "C" int hri_cuda_rmsnorm(const hri_norm_args *args, void *stream) { return norm<false>(args, stream); }
extern "C" int hri_cuda_layernorm(const hri_norm_args *args, void *stream) { return norm<true>(args, stream); }

/* ---- backward ---- */

/* `extra` is the gradient of the residual's path. */
template <class T, bool layer, int wide> __global__ void norm_backward_kernel(hri_norm_backward_args a) {
  HRI_SHARED(float, partial, HRI_WARP);
  int64_t n = a.columns, row = blockIdx.x, base = row * n, all = a.rows * n;
  hri_global<const T> dy(static_cast<const T *>(a.dy), all), x(static_cast<const T *>(a.x), all);
  hri_global<const T> extra(static_cast<const T *>(a.extra), all);
  hri_global<T> dx(static_cast<T *>(a.dx), all);
  hri_global<const float> weight(a.weight, n), stats(a.stats, a.rows * (layer ? 2 : 1));
  float mean = layer ? (float)stats[2 * row] : 0, rstd = stats[layer ? 2 * row + 1 : row];
  float sum = 0, along = 0, offset = (float)a.weight_offset, g[wide], xhat[wide], w[wide];
  auto get_values = [&](int64_t c) {
    hri_get<wide>(g, dy, base + c);
    hri_get<wide>(xhat, x, base + c);
    hri_get_wide<wide>(w, weight, c);
    for (int k = 0; k < wide; k++) g[k] *= w[k] + offset, xhat[k] = (xhat[k] - mean) * rstd;
  };
  EACH_OF_ROW(c) {
    get_values(c);
    for (int k = 0; k < wide; k++) sum += g[k], along += g[k] * xhat[k];
  }
  sum = layer ? hri_block_sum(sum, partial) / (float)n : 0;
  along = hri_block_sum(along, partial) / (float)n;
  EACH_OF_ROW(c) {
    get_values(c);
    if (extra) hri_get<wide>(w, extra, base + c);
    for (int k = 0; k < wide; k++) {
      g[k] = rstd * (g[k] - sum - xhat[k] * along);
      if (extra) g[k] = hri_round_to<T>(g[k]) + w[k];
    }
    hri_put<wide>(dx, base + c, g);
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
  HRI_UNROLL_BY(8) for (int64_t row = range.begin; row < range.end; row++) {
    float mean = layer ? (float)stats[2 * row] : 0, rstd = stats[layer ? 2 * row + 1 : row];
    float g = hri_widen((T)dy[row * n + c]);
    dweight += g * (hri_widen((T)x[row * n + c]) - mean) * rstd;
    dbias += g;
  }
  sums[block * n + c] = dweight;
  sums[(gridDim.y + block) * n + c] = dbias;
}

template <class T, bool layer> static int norm_rows_backward(const hri_norm_backward_args *a, void *stream) {
  constexpr int wide = hri_vector<T>();
  unsigned rows = (unsigned)a->rows;
  if (hri_vectors(a->columns, wide, a->dy, a->x, a->extra) && hri_vectors(0, wide, a->dx, a->weight))
    return HRI_LAUNCH((norm_backward_kernel<T, layer, wide>), rows, row_threads(a->columns, wide), 0, stream, *a);
  return HRI_LAUNCH((norm_backward_kernel<T, layer, 1>), rows, row_threads(a->columns, 1), 0, stream, *a);
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
  return a->rows ? bad | norm_rows_backward<T, layer>(a, stream) : bad;
}

extern "C" int hri_cuda_rmsnorm_backward(const hri_norm_backward_args *args, void *stream) {
  return HRI_BY_TYPE(args->real, (norm_backward_of<REAL, false>(args, stream)));
}
extern "C" int hri_cuda_layernorm_backward(const hri_norm_backward_args *args, void *stream) {
  return HRI_BY_TYPE(args->real, (norm_backward_of<REAL, true>(args, stream)));
}
