/* Matrix products of the GPU in software: the reference, as an operation of a stream. */
#ifndef HRI_GPU_SOFT_PRODUCT_H
#define HRI_GPU_SOFT_PRODUCT_H

#include "gpu/product.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ways of each product, of which it chooses the first. */
enum { HRI_SOFT_WAYS = 3 };

hr_status hri_gpu_soft_products(hri_gpu_products **products, hr_error *error);

#ifdef __cplusplus
}
#endif
#endif
