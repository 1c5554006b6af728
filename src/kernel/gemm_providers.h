/* What gemm.c knows of the two providers behind it. Private to src/kernel. */
#ifndef HRI_KERNEL_GEMM_PROVIDERS_H
#define HRI_KERNEL_GEMM_PROVIDERS_H

#include "kernel/gemm.h"

/* A shape as a plain product c[rows,columns] (=|+=) a . b over `depth` terms:
 *   a(r,i) = a[r * a_row + i * a_depth],   b(i,j) = b[i * b_depth + j * b_column]. */
typedef struct hri_gemm_product {
  int64_t rows, columns, depth;
  int64_t a_row, a_depth, b_depth, b_column;
} hri_gemm_product;

static inline hri_gemm_product hri_gemm_product_of(const hri_gemm_shape *s) {
  switch (s->kind) {
  case HRI_GEMM_DX: return (hri_gemm_product){s->m, s->k, s->n, s->n, 1, s->k, 1};
  case HRI_GEMM_DW: return (hri_gemm_product){s->n, s->k, s->m, 1, s->n, s->k, 1};
  default: return (hri_gemm_product){s->m, s->n, s->k, s->k, 1, 1, s->k};
  }
}

/* ---- ours: gemm_portable.c, compiled once per instruction level ---- */

typedef struct hri_gemm_portable {
  uint64_t (*scratch_bytes)(const hri_gemm_shape *shape); /* UINT64_MAX: does not fit 64 bits */
  void (*run)(const hri_gemm_shape *shape, const float *a, const float *b, const float *bias, float *c, void *scratch);
} hri_gemm_portable;

hri_gemm_portable hri_gemm_portable_base(void);
hri_gemm_portable hri_gemm_portable_avx2(void);   /* x86-64 builds only */
hri_gemm_portable hri_gemm_portable_avx512(void); /* x86-64 builds only */

/* ---- oneDNN: gemm_onednn.c, when HRI_HAVE_ONEDNN is defined ---- */

typedef struct hri_onednn hri_onednn;           /* engine and stream */
typedef struct hri_onednn_gemm hri_onednn_gemm; /* one primitive with its memory objects */

void hri_onednn_cap_isa(hri_isa isa);
/* Whether the library keeps to `isa` in this process. */
bool hri_onednn_within_isa(hri_isa isa);
const char *hri_onednn_text(void); /* "oneDNN 2.6.3" */

hr_status hri_onednn_create(hri_onednn **onednn, hr_error *error);
void hri_onednn_destroy(hri_onednn *onednn);

/* Asks for the implementation of a shape, exactly as the shape stands. *served is false when the library has none that
 * is free of hidden memory. Else its scratch, and its name (at most `name_bytes`, cut). */
hr_status hri_onednn_query(hri_onednn *onednn, const hri_gemm_shape *shape, bool *served, uint64_t *scratch_bytes,
                           char *name, uint32_t name_bytes, hr_error *error);
hr_status hri_onednn_gemm_create(hri_onednn *onednn, const hri_gemm_shape *shape, hri_onednn_gemm **gemm, hr_error *error);
void hri_onednn_gemm_destroy(hri_onednn_gemm *gemm);
hr_status hri_onednn_gemm_run(hri_onednn *onednn, hri_onednn_gemm *gemm, const void *a, const void *b, const void *bias,
                              void *c, void *scratch, hr_error *error);

#endif
