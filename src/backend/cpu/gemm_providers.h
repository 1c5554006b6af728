/* What gemm.c knows of the two providers behind it. Private to src/backend/cpu. */
#ifndef HRI_BACKEND_CPU_GEMM_PROVIDERS_H
#define HRI_BACKEND_CPU_GEMM_PROVIDERS_H

#include "backend/cpu/gemm.h"
#include "ops/linear/pack.h"

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

/* FORWARD with so few rows (generation) is bound by reading w, which dot products do once and in order: what ours takes. */
enum { HRI_GEMM_DOT_ROWS = 8 };
static inline bool hri_gemm_takes_dots(const hri_gemm_shape *s) { return s->kind == HRI_GEMM_FORWARD && s->m <= HRI_GEMM_DOT_ROWS; }
/* The library gathers blocks of w first. With one row it reads w at half the rate of ours, with two rows at two thirds
 * (fp32) or the same (bf16), with four at the same (fp32) or faster (bf16). */
static inline bool hri_gemm_dots_are_faster(const hri_gemm_shape *s) {
  return s->kind == HRI_GEMM_FORWARD && s->m <= (s->type == HRI_REAL_BF16 ? 2 : 4);
}

/* The product whose packed b all products with the same kind, type, b and team share. */
static inline hri_gemm_shape hri_gemm_pack_shape(const hri_gemm_shape *s) {
  hri_gemm_shape model = {.kind = s->kind, .type = s->type, .out = s->kind == HRI_GEMM_DW ? HRI_REAL_F32 : s->type, .m = s->m, .n = s->n,
                          .k = s->k, .packed = true, .threads = s->threads};
  *(s->kind == HRI_GEMM_DW ? &model.n : &model.m) = 1024;
  return model;
}

/* ---- ours: gemm_portable.c, compiled once per instruction level ---- */

typedef struct hri_gemm_portable {
  uint64_t (*scratch_bytes)(const hri_gemm_shape *shape); /* UINT64_MAX: does not fit 64 bits */
  void (*run)(const hri_gemm_shape *shape, const void *a, const void *b, const float *bias, void *c, void *scratch);
  /* c (=|+=) sums, by the team; c of type `out`. */
  void (*finish)(const float *sums, void *c, hri_real out, int64_t count, bool accumulate, int threads);
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
/* For the measurement of what the library needs (bench_pressure): the room to prove before each call; 0: none. */
void hri_onednn_set_room(uint64_t bytes);

hr_status hri_onednn_create(hri_onednn **onednn, hr_error *error);
void hri_onednn_destroy(hri_onednn *onednn);

/* What the library has for a shape, exactly as the shape stands. */
typedef struct hri_onednn_answer {
  bool served; /* by an implementation that is known to keep to its stated scratch */
  uint64_t scratch_bytes;
  char name[48];
  hri_packing packing; /* of b, when the shape is packed and served */
} hri_onednn_answer;
hr_status hri_onednn_query(hri_onednn *onednn, const hri_gemm_shape *shape, hri_onednn_answer *answer, hr_error *error);
hr_status hri_onednn_gemm_create(hri_onednn *onednn, const hri_gemm_shape *shape, hri_onednn_gemm **gemm, hr_error *error);
void hri_onednn_gemm_destroy(hri_onednn_gemm *gemm);
hr_status hri_onednn_gemm_run(hri_onednn *onednn, hri_onednn_gemm *gemm, const void *a, const void *b, const void *bias,
                              void *c, void *scratch, hr_error *error);

#endif
