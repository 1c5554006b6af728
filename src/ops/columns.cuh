/* Sums over rows, a column a thread: blocks of HRI_CUDA_NORM_ROWS rows have partial sums in scratch, which are folded in their
 * order, so that the bits are always the same. */
#ifndef HRI_OPS_COLUMNS_CUH
#define HRI_OPS_COLUMNS_CUH

#include "ops/cuda.h"
#include "ops/elements.cuh"

enum { HRI_COLUMN_THREADS = 128 };

inline int64_t hri_row_blocks(int64_t rows) { return hri_cuda_blocks_of(rows, HRI_CUDA_NORM_ROWS); }

/* The rows of block blockIdx.y. */
struct hri_row_range {
  int64_t begin, end;
};
__device__ __forceinline__ hri_row_range hri_rows_of_block(int64_t rows) {
  int64_t begin = (int64_t)blockIdx.y * HRI_CUDA_NORM_ROWS, end = begin + HRI_CUDA_NORM_ROWS;
  return {begin, end < rows ? end : rows};
}

/* to[n] (+)= the sums[blocks, n]. */
static __global__ void hri_fold_columns_kernel(float *target, const float *partial, int64_t n, int64_t blocks,
                                               bool accumulate) {
  hri_global<float> to(target, n);
  hri_global<const float> sums(partial, blocks * n);
  int64_t c = hri_thread_index();
  float sum = 0;
  if (c >= n) return;
  for (int64_t b = 0; b < blocks; b++) sum += sums[b * n + c];
  to[c] = accumulate ? to[c] + sum : sum;
}

inline int hri_fold_columns(float *to, const float *sums, int64_t n, int64_t blocks, bool accumulate, void *stream) {
  if (n == 0) return 0;
  return HRI_LAUNCH(hri_fold_columns_kernel, hri_blocks(n, HRI_COLUMN_THREADS), HRI_COLUMN_THREADS, 0, stream, to, sums,
                    n, blocks, accumulate);
}

#endif
