/* How the CUDA kernels cut their work, as far as scratch depends on it: kernels and launchers (.cu) cut by what stands
 * here, plans count by it (cuda_demand.c). All of it is a function of sizes alone, so that scratch can be planned where
 * no card is and results have the same bits wherever they run. */
#ifndef HRI_OPS_CUDA_SIZES_H
#define HRI_OPS_CUDA_SIZES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define HRI_SIZES __host__ __device__ __forceinline__
#else
#define HRI_SIZES static inline
#endif

enum {
  /* Sums over rows (norms, biases, DoRA) are made in blocks of so many rows and folded in an order that never changes. */
  HRI_CUDA_NORM_ROWS = 64,
  /* Up to so many rows, of operands whose depth lies side by side, a warp reads its row of b once for all of them. */
  HRI_CUDA_FEW_ROWS = 8,
  /* Own products: rows and columns of a block's results; the least depth of a piece where the depth is cut; blocks that are
   * enough to leave it whole, of which a multiprocessor has several at a time; pieces at most. */
  HRI_CUDA_PRODUCT_ROWS = 64,
  HRI_CUDA_PRODUCT_COLUMNS = 32,
  HRI_CUDA_PRODUCT_PIECE = 512,
  HRI_CUDA_PRODUCT_ENOUGH = 528,
  HRI_CUDA_PRODUCT_PIECES = 64,
  /* Rows that one thread sorts by a digit, and digits. */
  HRI_CUDA_SORT_TILE = 1024,
  HRI_CUDA_SORT_DIGITS = 256,
  /* Positions of a cache in one run. */
  HRI_CUDA_CACHE_RUN = 256,
  /* Rows of a weight in one block of Adafactor's columns. */
  HRI_CUDA_FACTOR_ROWS = 512,
  /* Blocks of a launch in its second and third direction, at most, on every card. */
  HRI_CUDA_MOST_BLOCKS = 65535
};

HRI_SIZES int64_t hri_cuda_blocks_of(int64_t n, int64_t each) { return (n + each - 1) / each; }

/* How often the depth of an own product is cut. */
HRI_SIZES int64_t hri_cuda_product_pieces(int64_t m, int64_t n, int64_t k) {
  int64_t tiles = hri_cuda_blocks_of(m, HRI_CUDA_PRODUCT_ROWS) * hri_cuda_blocks_of(n, HRI_CUDA_PRODUCT_COLUMNS);
  int64_t pieces = hri_cuda_blocks_of(k, HRI_CUDA_PRODUCT_PIECE);
  if (tiles == 0 || tiles >= HRI_CUDA_PRODUCT_ENOUGH || pieces < 2) return 1;
  if (pieces > hri_cuda_blocks_of(HRI_CUDA_PRODUCT_ENOUGH, tiles))
    pieces = hri_cuda_blocks_of(HRI_CUDA_PRODUCT_ENOUGH, tiles);
  return pieces < HRI_CUDA_PRODUCT_PIECES ? pieces : (int64_t)HRI_CUDA_PRODUCT_PIECES;
}

/* An own product by the kernel of few rows, which needs no scratch. */
HRI_SIZES bool hri_cuda_product_thin(int64_t m, int64_t a_column, int64_t b_column) {
  return m <= HRI_CUDA_FEW_ROWS && a_column == 1 && b_column == 1;
}

/* Blocks that share the columns of a head in attention: each makes 128 of them at most. */
HRI_SIZES int64_t hri_cuda_head_splits(int64_t head_size) { return head_size > 128 ? 2 : 1; }

#undef HRI_SIZES
#endif
