/* A matrix b [depth, columns] of a product in blocks, as the matrix-product library reads it.
 *
 * A block holds `depth_block` x `column_block` elements in the order [depth_block / group][column_block][group]:
 * `group`
 * neighbours along the depth stand together (2 in bf16, which the processor multiplies in pairs). What lies beyond
 * depth or columns is zero. */
#ifndef HRI_OPS_LINEAR_PACK_H
#define HRI_OPS_LINEAR_PACK_H

#include <stdint.h>

#include "base/real.h"

typedef struct hri_packing {
  int64_t depth_block, column_block, group;
  int64_t depth_blocks, column_blocks; /* counts */
  int64_t depth_stride, column_stride; /* elements between neighbouring blocks */
  uint64_t bytes;
} hri_packing;

typedef struct hri_pack_args {
  const hri_packing *packing;
  hri_real type;
  int64_t depth, columns;
  int64_t depth_step, column_step; /* elements between neighbours in plain b; one of them is 1 */
  const void *from;
  void *to;
  int threads;
} hri_pack_args;

typedef void (*hri_pack_kernel)(const hri_pack_args *args);
hri_pack_kernel hri_pack_kernel_base(void);
hri_pack_kernel hri_pack_kernel_avx2(void);   /* x86-64 builds only */
hri_pack_kernel hri_pack_kernel_avx512(void); /* x86-64 builds only */

#endif
