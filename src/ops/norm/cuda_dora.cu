/* DoRA: lengths of rows of w + scale b a, a block a row; and columns times magnitude / length, with their backward. */
#include "ops/columns.cuh"

enum { THREADS = 256 };

template <class T> __global__ void row_lengths_kernel(hri_row_lengths_args a) {
  HRI_SHARED(double, partial, HRI_WARP);
  int64_t row = blockIdx.x, n = a.columns;
  hri_global<const T> w(static_cast<const T *>(a.w), a.rows * n);
  hri_global<const float> left(a.b, a.rows * a.rank), right(a.a, a.rank * n);
  hri_global<float> lengths(a.lengths, a.rows);
  double sum = 0;
  if (a.missing) {
    float there = lengths[row];
    if (there == there) return; /* the whole block */
  }
  for (int64_t k = threadIdx.x; k < n; k += blockDim.x) {
    float v = hri_widen((T)w[row * n + k]);
    for (int64_t r = 0; left && r < a.rank; r++) v += a.scale * left[row * a.rank + r] * right[r * n + k];
    sum += (double)(v * v);
  }
  sum = hri_block_sum(sum, partial); /* by whose barriers all have looked at what was there */
  if (threadIdx.x == 0) lengths[row] = (float)sqrt(sum);
}

extern "C" int hri_cuda_row_lengths(const hri_row_lengths_args *args, void *stream) {
  if (args->rows == 0) return 0;
  return HRI_BY_TYPE(args->real, HRI_LAUNCH(row_lengths_kernel<REAL>, (unsigned)args->rows, THREADS, 0, stream, *args));
}

/* Place of column c among magnitudes and lengths; -1 in a part that has none. */
__device__ __forceinline__ int64_t place_of(const hri_dora_args &a, int64_t c) {
  int64_t with = 0;
  for (int p = 0; p < HRI_DORA_PARTS; p++) {
    bool has = a.having >> p & 1;
    if (c < a.parts[p]) return has ? with + c : -1;
    c -= a.parts[p];
    if (has) with += a.parts[p];
  }
  return -1;
}

/* How many columns have magnitudes. */
static __host__ __device__ int64_t with_of(const hri_dora_args &a) {
  int64_t with = 0;
  for (int p = 0; p < HRI_DORA_PARTS; p++) with += a.having >> p & 1 ? a.parts[p] : 0;
  return with;
}

__device__ __forceinline__ float factor_of(const hri_dora_args &a, int64_t c) {
  int64_t at = place_of(a, c);
  hri_global<const float> magnitudes(a.magnitudes, with_of(a)), lengths(a.lengths, with_of(a));
  if (at < 0) return 1;
  float length = lengths[at];
  return length > 0 ? magnitudes[at] / length : 0;
}

template <class T> __global__ void dora_kernel(hri_dora_args a) {
  int64_t i = hri_thread_index(), all = a.rows * a.columns, c = i % a.columns;
  hri_global<const T> z(static_cast<const T *>(a.z), all);
  hri_global<T> y(static_cast<T *>(a.y), all);
  hri_global<const float> bias(a.bias, a.columns);
  if (i >= all) return;
  float v = hri_widen((T)z[i]) * factor_of(a, c);
  y[i] = hri_narrow<T>(bias ? v + bias[c] : v);
}

extern "C" int hri_cuda_dora(const hri_dora_args *args, void *stream) {
  int64_t n = args->rows * args->columns;
  if (n == 0) return 0;
  return HRI_BY_TYPE(args->real, HRI_LAUNCH(dora_kernel<REAL>, hri_blocks(n, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS,
                                            0, stream, *args));
}

/* Sums of dy z / length over the rows of a block, by the place of the column. */
template <class T> __global__ void dora_rows_kernel(hri_dora_args a) {
  int64_t c = hri_thread_index(), all = a.rows * a.columns, with = with_of(a);
  hri_row_range range = hri_rows_of_block(a.rows);
  hri_global<const T> dy(static_cast<const T *>(a.dy), all), z(static_cast<const T *>(a.z), all);
  hri_global<const float> lengths(a.lengths, with);
  hri_global<float> sums(a.scratch, (int64_t)gridDim.y * with);
  int64_t at = c < a.columns ? place_of(a, c) : -1;
  float sum = 0;
  if (at < 0) return;
  for (int64_t row = range.begin; row < range.end; row++)
    sum += hri_widen((T)dy[row * a.columns + c]) * hri_widen((T)z[row * a.columns + c]);
  float length = lengths[at];
  sums[(int64_t)blockIdx.y * with + at] = length > 0 ? sum / length : 0;
}

template <class T> __global__ void dora_backward_kernel(hri_dora_args a) {
  int64_t i = hri_thread_index(), all = a.rows * a.columns;
  hri_global<const T> dy(static_cast<const T *>(a.dy), all);
  hri_global<T> dz(static_cast<T *>(a.dz), all);
  if (i < all) dz[i] = hri_narrow<T>(hri_widen((T)dy[i]) * factor_of(a, i % a.columns));
}

/* The sums first: dz may lie over dy or z. */
template <class T> static int dora_backward_of(const hri_dora_args *a, void *stream) {
  int64_t n = a->rows * a->columns, blocks = hri_row_blocks(a->rows), with = with_of(*a);
  int bad = 0;
  if (a->dmagnitudes && with > 0) {
    if (blocks)
      bad |= HRI_LAUNCH(dora_rows_kernel<T>, dim3(hri_blocks(a->columns, HRI_COLUMN_THREADS), (unsigned)blocks),
                        HRI_COLUMN_THREADS, 0, stream, *a);
    bad |= hri_fold_columns(a->dmagnitudes, a->scratch, with, blocks, a->accumulate, stream);
  }
  if (n == 0) return bad;
  return bad |
         HRI_LAUNCH(dora_backward_kernel<T>, hri_blocks(n, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS, 0, stream, *a);
}

extern "C" int hri_cuda_dora_backward(const hri_dora_args *args, void *stream) {
  return HRI_BY_TYPE(args->real, dora_backward_of<REAL>(args, stream));
}
