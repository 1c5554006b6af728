/* What of linear layers is no large product: bias gradients. */
#include "ops/columns.cuh"

template <class T> __global__ void column_sums_kernel(float *partial, const T *gradient, int64_t rows, int64_t n) {
  int64_t c = hri_thread_index();
  hri_row_range range = hri_rows_of_block(rows);
  hri_global<const T> dy(gradient, rows * n);
  hri_global<float> sums(partial, (int64_t)gridDim.y * n);
  float sum = 0;
  if (c >= n) return;
  HRI_UNROLL_BY(8) for (int64_t row = range.begin; row < range.end; row++) sum += hri_widen((T)dy[row * n + c]);
  sums[(int64_t)blockIdx.y * n + c] = sum;
}

extern "C" int hri_cuda_bias_gradient(float *db, const void *dy, int64_t rows, int64_t columns, bool accumulate,
                                      float *scratch, hri_real real, void *stream) {
  int64_t blocks = hri_row_blocks(rows);
  int bad = 0;
  if (rows * columns > 0) {
    dim3 grid(hri_blocks(columns, HRI_COLUMN_THREADS), (unsigned)blocks);
    bad = HRI_BY_TYPE(real, HRI_LAUNCH(column_sums_kernel<REAL>, grid, HRI_COLUMN_THREADS, 0, stream, scratch,
                                       static_cast<const REAL *>(dy), rows, columns));
  }
  return bad | hri_fold_columns(db, scratch, columns, blocks, accumulate, stream);
}
