/* The launchers of ops/cuda.h as one table: they lie in a library of their own, libheadroom-cuda, which nvcc makes and
 * which is loaded when a device is opened; tests link those that were compiled for the GPU in software. */
#ifndef HRI_BACKEND_CUDA_KERNELS_H
#define HRI_BACKEND_CUDA_KERNELS_H

#include <headroom/status.h>

#include "ops/cuda.h"

/* X(name): of hri_cuda_<name>. */
/* clang-format off */
#define HRI_CUDA_KERNELS(X)                                                                       \
  X(cast) X(split) X(join) X(accumulate) X(copy_rows) X(select) X(last_row)                      \
  X(product) X(bias_gradient)                                                                   \
  X(add) X(scale) X(softcap) X(activation) X(activation_backward) X(glu) X(glu_backward) X(rope)  \
  X(dropout) X(noise)                                                                             \
  X(rmsnorm) X(layernorm) X(rmsnorm_backward) X(layernorm_backward)                              \
  X(head_norm) X(head_norm_backward)                                                             \
  X(row_lengths) X(dora) X(dora_backward)                                                        \
  X(embed) X(embed_backward)                                                                     \
  X(cross_entropy) X(loss_sum)                                                                    \
  X(square_sum) X(clip) X(found_inf) X(advance) X(loss_scale) X(update)                           \
  X(attention) X(attention_backward)                                                             \
  X(attention_full) X(attention_full_backward)                                                    \
  X(attention_cached)                                                                            \
  X(quantize) X(dequantize)
/* clang-format on */

typedef struct hri_cuda_kernels {
#define HRI_CUDA_KERNEL(name) __typeof__(hri_cuda_##name) *name;
  HRI_CUDA_KERNELS(HRI_CUDA_KERNEL)
#undef HRI_CUDA_KERNEL
} hri_cuda_kernels;

#endif
