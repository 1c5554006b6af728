/* Matrix products of a GPU: one interface, two implementations: cuBLASLt, loaded when it is there (cublas.c), and the
 * reference product on the GPU in software (soft/product.c).
 *
 * A product is chosen once, by its shape and by what of a workspace it may have, and then always run as it was chosen:
 * what was chosen is a function of both, of the library and of the device, so a plan can state its workspace, and the
 * same job has the same bits. No chosen way adds into its result in an order that changes from run to run. */
#ifndef HRI_GPU_PRODUCT_H
#define HRI_GPU_PRODUCT_H

#include "base/real.h"
#include "gpu/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is done with a sum before it is rounded, or beside it, with an array of its own (`beside` of run). */
typedef enum hri_gpu_epilogue {
  HRI_GPU_NO_EPILOGUE = 0,
  HRI_GPU_BIAS,          /* + bias[n], of the result's type, in each row */
  HRI_GPU_GELU_BACKWARD, /* times gelu'(x[m,n]) by tanh; x has the result's type and rows as far apart */
  HRI_GPU_BIAS_GRADIENT /* beside d: the sums [m] of a over k become a result of d's type, which need not be there before */
} hri_gpu_epilogue;

/* d[m,n] = a[m,k] b[k,n], + d where it accumulates (with no epilogue but a bias). Matrices lie in rows; sums are fp32, and a
 * result is rounded once. All of it takes part in comparisons: begin with memset. */
typedef struct hri_gpu_product {
  int64_t m, n, k;
  int64_t a_stride, b_stride, d_stride; /* elements from row to row, as stored */
  hri_real operands, result;            /* of a and b; of d and what lies beside */
  uint32_t alignment; /* bytes that divide every address and every row's length: a power of two, 16 at most */
  bool a_turned;      /* a is stored as [k,m] */
  bool b_turned;      /* b is stored as [n,k] */
  bool accumulate;
  hri_gpu_epilogue epilogue;
  bool tf32; /* operands of fp32 may be rounded to tf32 */
} hri_gpu_product;

enum { HRI_GPU_LIBRARY_BYTES = 48 };

/* How a product is computed. */
typedef struct hri_gpu_algorithm {
  uint64_t workspace_bytes; /* of device memory, aligned to 256, undefined before and after */
  uint64_t words[8];        /* the implementation's */
} hri_gpu_algorithm;

typedef struct hri_gpu_products hri_gpu_products;
typedef struct hri_gpu_product_calls {
  void (*close)(hri_gpu_products *products); /* before the device is closed; NULL is fine */
  /* UNSUPPORTED where the library has no way for it within that workspace. */
  hr_status (*choose)(hri_gpu_products *products, const hri_gpu_product *product, uint64_t workspace_bytes,
                      hri_gpu_algorithm *algorithm, hr_error *error);
  /* Whether it can be run as it was chosen once, by this library or one of the same version: UNSUPPORTED, with why. */
  hr_status (*check)(hri_gpu_products *products, const hri_gpu_product *product, const hri_gpu_algorithm *algorithm,
                     hr_error *error);
  /* Queues it. d overlaps no operand. `beside`: the epilogue's array, written for a bias gradient, else read; NULL without
   * one. */
  hr_status (*run)(hri_gpu_products *products, const hri_gpu_product *product, const hri_gpu_algorithm *algorithm,
                   const void *a, const void *b, void *beside, void *d, void *workspace, hri_gpu_stream *stream,
                   hr_error *error);
} hri_gpu_product_calls;

/* Every implementation begins with this. */
struct hri_gpu_products {
  const hri_gpu_product_calls *calls;
  char library[HRI_GPU_LIBRARY_BYTES]; /* with its version: part of what a plan is exact for */
};

/* cuBLASLt for the device of CUDA's driver that was opened last. UNSUPPORTED: the library or a function of it is not
 * there; the message says which. */
hr_status hri_gpu_cublas_open(hri_gpu_products **products, hr_error *error);
/* Its name and version without a device, as hri_gpu_products.library has them. UNSUPPORTED as above; *text is then "". */
hr_status hri_gpu_cublas_look(char text[HRI_GPU_LIBRARY_BYTES], hr_error *error);

#ifdef __cplusplus
}
#endif
#endif
