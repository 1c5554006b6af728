/* Sums over rows, a column a thread: blocks of HRI_CUDA_NORM_ROWS rows have partial sums in scratch, which are folded in an order
 * that depends on nothing but their number, so that the bits are always the same. */
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

enum { HRI_FOLD_GROUPS = 16, HRI_FOLD_THREADS = HRI_FOLD_GROUPS * HRI_WARP };

/* to[n] (+)= the sums[blocks, n]. A warp has 32 columns and every 16th row of sums, since one thread a column would wait for each of
 * a thousand loads; the warps' sums are added in their order. */
static __global__ void hri_fold_columns_kernel(float *target, const float *from, int64_t n, int64_t blocks,
                                               bool accumulate) {
  HRI_SHARED(float, partial, HRI_FOLD_THREADS);
  hri_global<float> to(target, n);
  hri_global<const float> sums(from, blocks * n);
  int group = (int)threadIdx.x / HRI_WARP;
  int64_t c = (int64_t)blockIdx.x * HRI_WARP + threadIdx.x % HRI_WARP;
  float sum = 0;
  for (int64_t b = group; c < n && b < blocks; b += HRI_FOLD_GROUPS) sum += sums[b * n + c];
  partial[(int)threadIdx.x] = sum;
  __syncthreads();
  if (group != 0 || c >= n) return;
  for (int g = 1; g < HRI_FOLD_GROUPS; g++) sum += partial[g * HRI_WARP + (int)threadIdx.x];
  to[c] = accumulate ? to[c] + sum : sum;
}

inline int hri_fold_columns(float *to, const float *sums, int64_t n, int64_t blocks, bool accumulate, void *stream) {
  if (n == 0) return 0;
  return HRI_LAUNCH(hri_fold_columns_kernel, hri_blocks(n, HRI_WARP), HRI_FOLD_THREADS, 0, stream, to, sums, n, blocks,
                    accumulate);
}

#endif
