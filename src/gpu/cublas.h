/* The functions of cuBLASLt that products need, as a table: loaded from the library, or a test's own. */
#ifndef HRI_GPU_CUBLAS_H
#define HRI_GPU_CUBLAS_H

#include <stddef.h>

#include "gpu/product.h"

typedef struct hri_cublas_algorithm {
  uint64_t words[8];
} hri_cublas_algorithm;
typedef struct hri_cublas_found {
  hri_cublas_algorithm algorithm;
  size_t workspace_bytes;
  int status; /* 0: the rest counts */
  float waves;
  int reserved[4];
} hri_cublas_found;

/* X(function, name in the library, parameters); every one but the version returns 0 for success. Descriptors, layouts
 * and preferences are the library's own; prototypes are those of cublasLt.h (scripts/cuda.sh compares names and
 * numbers). */
/* clang-format off */
#define HRI_CUBLAS(X)                                                                                        \
  X(create, int, "cublasLtCreate", (void **handle))                                                          \
  X(destroy, int, "cublasLtDestroy", (void *handle))                                                         \
  X(version, size_t, "cublasLtGetVersion", (void))                                                           \
  X(desc_create, int, "cublasLtMatmulDescCreate", (void **desc, int compute, int scale))                     \
  X(desc_destroy, int, "cublasLtMatmulDescDestroy", (void *desc))                                            \
  X(desc_set, int, "cublasLtMatmulDescSetAttribute", (void *desc, int name, const void *value, size_t bytes)) \
  X(layout_create, int, "cublasLtMatrixLayoutCreate", (void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld)) \
  X(layout_destroy, int, "cublasLtMatrixLayoutDestroy", (void *layout))                                      \
  X(wish_create, int, "cublasLtMatmulPreferenceCreate", (void **wish))                                       \
  X(wish_destroy, int, "cublasLtMatmulPreferenceDestroy", (void *wish))                                      \
  X(wish_set, int, "cublasLtMatmulPreferenceSetAttribute", (void *wish, int name, const void *value, size_t bytes)) \
  X(heuristic, int, "cublasLtMatmulAlgoGetHeuristic",                                                        \
    (void *handle, void *desc, void *a, void *b, void *c, void *d, void *wish, int asked, hri_cublas_found *found, int *count)) \
  X(way_check, int, "cublasLtMatmulAlgoCheck",                                                               \
    (void *handle, void *desc, void *a, void *b, void *c, void *d, const hri_cublas_algorithm *algorithm, hri_cublas_found *found)) \
  X(matmul, int, "cublasLtMatmul",                                                                           \
    (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b, void *b_layout, \
     const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const hri_cublas_algorithm *algorithm, \
     void *workspace, size_t workspace_bytes, void *stream))
/* clang-format on */

typedef struct hri_cublas {
#define HRI_CUBLAS_FUNCTION(member, type, name, parameters) type(*member) parameters;
  HRI_CUBLAS(HRI_CUBLAS_FUNCTION)
#undef HRI_CUBLAS_FUNCTION
} hri_cublas;

enum { /* values of the enumerators of cublasLt.h, cublas_api.h and library_types.h */
       HRI_CUBLAS_COMPUTE_32F = 68,
       HRI_CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
       HRI_CUDA_R_32F = 0,
       HRI_CUDA_R_16F = 2,
       HRI_CUDA_R_16BF = 14,
       HRI_CUBLASLT_MATMUL_DESC_TRANSA = 3,
       HRI_CUBLASLT_MATMUL_DESC_TRANSB = 4,
       HRI_CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
       HRI_CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
       HRI_CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
       HRI_CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,
       HRI_CUBLASLT_EPILOGUE_BIAS = 4,
       HRI_CUBLASLT_EPILOGUE_BGRADB = 512,
       HRI_CUBLASLT_EPILOGUE_DGELU = 64 | 128,
       HRI_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
       HRI_CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
       HRI_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
       HRI_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
       HRI_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
       HRI_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
       HRI_CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2,
       HRI_CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE = 4,
       HRI_CUBLAS_OP_T = 1
};

/* Products by these functions. `library`: a handle of dlopen, which goes with them; NULL: none. */
hr_status hri_gpu_cublas_from(const hri_cublas *functions, void *library, hri_gpu_products **products, hr_error *error);

#endif
