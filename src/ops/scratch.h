/* What the CPU kernels agree on with their callers before they run: fixed reduction blocks, scratch sizes, and the
 * factors of an optimizer step. Compiled once, for no particular instruction set.
 *
 * Reductions over rows (weight gradients of norms, bias gradients) cut the rows into blocks whose number depends on the
 * rows alone. Each block is summed by one thread into its own partial in scratch; a second pass folds the partials in
 * block order. That makes the bits independent of the team, for at most HRI_ROW_BLOCKS rows of scratch. */
#ifndef HRI_OPS_SCRATCH_H
#define HRI_OPS_SCRATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/cpu.h"

enum {
  HRI_ROW_BLOCKS = 32,         /* most blocks of rows of a reduction: enough for any team, few enough to stay small */
  HRI_ROW_BLOCK_MIN = 16,      /* fewest rows of a block */
  HRI_SQUARE_SUM_BLOCK = 65536 /* elements per partial of square_sum */
};

/* Kernels that take fp32, bf16 or fp16 are written once, as always-inline functions of an hri_real, and instantiated by
 * calling them with a constant: HRI_BY_REAL(args->real, row(args, i, REAL)) stands for three calls, one for each REAL. */
#define HRI_INLINE inline __attribute__((always_inline))
#define HRI_BY_REAL(real, ...)                                                                                         \
  do {                                                                                                                 \
    if ((real) == HRI_REAL_BF16) {                                                                                     \
      const hri_real REAL = HRI_REAL_BF16;                                                                             \
      __VA_ARGS__;                                                                                                     \
    } else if ((real) == HRI_REAL_F16) {                                                                               \
      const hri_real REAL = HRI_REAL_F16;                                                                              \
      __VA_ARGS__;                                                                                                     \
    } else {                                                                                                           \
      const hri_real REAL = HRI_REAL_F32;                                                                              \
      __VA_ARGS__;                                                                                                     \
    }                                                                                                                  \
  } while (0)

/* Rows per block (a multiple of 4) and number of blocks of a reduction over `rows` rows. */
static inline int64_t hri_row_block(int64_t rows) {
  int64_t size = (rows + HRI_ROW_BLOCKS - 1) / HRI_ROW_BLOCKS;
  size = (size + 3) / 4 * 4;
  return size < HRI_ROW_BLOCK_MIN ? (int64_t)HRI_ROW_BLOCK_MIN : size;
}
static inline int64_t hri_row_block_count(int64_t rows) {
  int64_t size = hri_row_block(rows);
  return (rows + size - 1) / size;
}

/* The grain of a loop of memory-bound work (hri_team_each) over items of so many elements: fewer are done before another
 * thread has taken them. */
static inline int64_t hri_grain(int64_t elements) {
  enum { WORTH_A_THREAD = 16384 };
  return elements < 1 ? (int64_t)WORTH_A_THREAD : (WORTH_A_THREAD + elements - 1) / elements;
}

/* Number of partials that square_sum writes for n elements. */
static inline int64_t hri_square_sum_count(int64_t n) { return (n + HRI_SQUARE_SUM_BLOCK - 1) / HRI_SQUARE_SUM_BLOCK; }

/* Scratch in bytes; UINT64_MAX when the size does not fit 64 bits. `threads` is part of the signature because scratch
 * may depend on the team; with fixed blocks it does not. */
uint64_t hri_norm_backward_scratch_bytes(int64_t rows, int64_t columns, bool with_dweight, bool with_dbias,
                                         int threads);
uint64_t hri_head_norm_backward_scratch_bytes(int64_t rows, int64_t head_size, int64_t key_size, int threads);
/* The factor of each column, and in the backward partial sums. */
uint64_t hri_dora_scratch_bytes(int64_t rows, int64_t columns, bool backward, int threads);
uint64_t hri_bias_gradient_scratch_bytes(int64_t rows, int64_t columns, int threads);

/* The factors of AdamW step t (from 1, applied steps), computed in double. */
hri_adamw_factors hri_adamw_factors_make(double learning_rate, double beta1, double beta2, double epsilon,
                                         double weight_decay, int64_t t, double gradient_scale);

#endif
