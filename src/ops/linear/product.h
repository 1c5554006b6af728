/* Matrix products of linear layers, as planning and the kernels both see them: shapes, which code computes one, in how
 * many pieces, and the scratch that takes. No product is computed here, so that a plan needs neither kernels nor
 * library.
 *
 * All operands are row-major and contiguous, but b may be packed.
 *
 *   FORWARD  y [M,N] (=|+=) x [M,K]   . w[N,K]^T  (+ bias[N])      a = x,  b = w, c = y
 *   DX       dx[M,K] (=|+=) dy[M,N]   . w[N,K]                     a = dy, b = w, c = dx
 *   DW       dw[N,K] (=|+=) dy[M,N]^T . x[M,K]                     a = dy, b = x, c = dw
 *
 * a and b are both fp32 or both bf16, the bias always fp32. c is fp32, or bf16 where a and b are. */
#ifndef HRI_OPS_LINEAR_PRODUCT_H
#define HRI_OPS_LINEAR_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/real.h"
#include "ops/isa.h"
#include "ops/linear/pack.h"

typedef enum hri_gemm_kind { HRI_GEMM_FORWARD = 0, HRI_GEMM_DX, HRI_GEMM_DW, HRI_GEMM_KIND_COUNT } hri_gemm_kind;

typedef struct hri_gemm_shape {
  hri_gemm_kind kind;
  hri_real type;   /* of a and b */
  hri_real out;    /* of c: fp32, or that of a and b */
  int64_t m, n, k; /* as above, each >= 1 */
  bool bias;       /* FORWARD only */
  bool accumulate; /* c += , else c = ; fp32 only */
  bool packed;     /* b comes from hri_gemm_pack */
  int threads;     /* the team, >= 1; 1 runs inside the calling thread, also within a parallel region */
} hri_gemm_shape;

/* One prepared product serves both. */
static inline bool hri_gemm_shape_same(const hri_gemm_shape *a, const hri_gemm_shape *b) {
  return a->kind == b->kind && a->type == b->type && a->out == b->out && a->m == b->m && a->n == b->n && a->k == b->k &&
         a->bias == b->bias && a->accumulate == b->accumulate && a->packed == b->packed && a->threads == b->threads;
}

enum { HRI_GEMM_ALIGNMENT = 64 }; /* of scratch, bytes; operands need 4 */

/* INTERNAL when it is no shape, USAGE when it does not fit the address space. */
hr_status hri_gemm_shape_check(const hri_gemm_shape *shape, hr_error *error);

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

/* FORWARD with so few rows (generation) is bound by reading w, which dot products do once and in order: what ours
 * takes. */
enum { HRI_GEMM_DOT_ROWS = 8 };
static inline bool hri_gemm_takes_dots(const hri_gemm_shape *s) {
  return s->kind == HRI_GEMM_FORWARD && s->m <= HRI_GEMM_DOT_ROWS;
}
/* The library gathers blocks of w first. With one row it reads w at half the rate of ours, with two rows at two thirds
 * (fp32) or the same (bf16), with four at the same (fp32) or faster (bf16). */
static inline bool hri_gemm_dots_are_faster(const hri_gemm_shape *s) {
  return s->kind == HRI_GEMM_FORWARD && s->m <= (s->type == HRI_REAL_BF16 ? 2 : 4);
}

/* The product whose packed b all products with the same kind, type, b and team share. */
static inline hri_gemm_shape hri_gemm_pack_shape(const hri_gemm_shape *s) {
  hri_gemm_shape model = {.kind = s->kind,
                          .type = s->type,
                          .out = s->kind == HRI_GEMM_DW ? HRI_REAL_F32 : s->type,
                          .m = s->m,
                          .n = s->n,
                          .k = s->k,
                          .packed = true,
                          .threads = s->threads};
  *(s->kind == HRI_GEMM_DW ? &model.n : &model.m) = 1024;
  return model;
}

/* Whether packing b before every single product was measured to be faster than the plain product (docs/performance.md).
 * By kind, type and sizes alone. */
bool hri_gemm_packing_pays(const hri_gemm_shape *shape);

/* ---- ours: how the portable product lays out its scratch ---- */

/* Rows of a register tile, and floats per vector, by instruction level. Arm has registers for more rows. */
enum {
#if defined(__aarch64__)
  HRI_PORTABLE_ROWS_BASE = 12,
#else
  HRI_PORTABLE_ROWS_BASE = 6,
#endif
  HRI_PORTABLE_LANES_BASE = 4,
  HRI_PORTABLE_ROWS_AVX2 = 6,
  HRI_PORTABLE_LANES_AVX2 = 8,
  HRI_PORTABLE_ROWS_AVX512 = 14,
  HRI_PORTABLE_LANES_AVX512 = 16,
  HRI_PORTABLE_DEPTH = 256,    /* terms summed before c is touched */
  HRI_PORTABLE_COLUMNS = 2048, /* columns of b packed by the team at a time */
};

typedef struct hri_portable_layout {
  hri_gemm_product p;
  int64_t depth, rows, columns;              /* of the largest blocks, rows and columns in whole tiles */
  int64_t stage_rows;                        /* 0: c takes the sums itself */
  uint64_t b_floats, stage_floats, a_floats; /* packed b and stage, shared; packed a, per thread */
} hri_portable_layout;
hri_portable_layout hri_portable_layout_of(hri_isa level, const hri_gemm_shape *shape);
/* Bytes; UINT64_MAX when they do not fit 64 bits. */
uint64_t hri_portable_scratch(hri_isa level, const hri_gemm_shape *shape);

/* ---- the library's, and which of the two ---- */

/* What the library has for a shape, exactly as the shape stands. */
typedef struct hri_onednn_answer {
  bool served; /* by an implementation that is known to keep to its stated scratch */
  uint64_t scratch_bytes;
  char name[48];
  hri_packing packing; /* of b, when the shape is packed and served */
} hri_onednn_answer;

/* Who answers for the library: the library itself, or what was recorded of it. */
typedef struct hri_gemm_library {
  void *self;
  hr_status (*ask)(void *self, const hri_gemm_shape *shape, hri_onednn_answer *answer, hr_error *error);
} hri_gemm_library;

/* Some equal pieces of a product along M, in order. */
typedef struct hri_gemm_part {
  int64_t pieces, rows;
  bool accumulate;
} hri_gemm_part;

enum { HRI_GEMM_PARTS = 3 }; /* the first piece, those between, the last */
typedef struct hri_gemm_decision {
  bool portable;
  int library_threads;
  hri_gemm_part parts[HRI_GEMM_PARTS]; /* of the library */
  uint64_t sums_bytes, scratch_bytes;  /* the first part of the scratch: fp32 sums of pieces, when c cannot take them */
  hri_packing packing;                 /* of a packed shape; no bytes: it has no packed form */
  char implementation[48];             /* "brg:avx512_core", "portable:avx2" */
} hri_gemm_decision;

/* For a shape that hri_gemm_shape_check let pass. `library` NULL: there is none. */
hr_status hri_gemm_decide(hri_isa level, const hri_gemm_library *library, const hri_gemm_shape *shape,
                          hri_gemm_decision *out, hr_error *error);
/* The piece of a part, as the library is asked for it. */
hri_gemm_shape hri_gemm_part_shape(const hri_gemm_decision *how, const hri_gemm_shape *shape,
                                   const hri_gemm_part *part);

#endif
