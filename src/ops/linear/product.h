/* Matrix products of linear layers, as planning and the kernels both see them: shapes, which code computes one, in how
 * many pieces, and the scratch that takes. No product is computed here, so that a plan needs no kernels.
 *
 * All operands are row-major and contiguous, but b may be packed.
 *
 *   FORWARD  y [M,N] (=|+=) x [M,K]   . w[N,K]^T  (+ bias[N])      a = x,  b = w, c = y
 *   DX       dx[M,K] (=|+=) dy[M,N]   . w[N,K]                     a = dy, b = w, c = dx
 *   DW       dw[N,K] (=|+=) dy[M,N]^T . x[M,K]                     a = dy, b = x, c = dw
 *
 * a and b are fp32 or narrow (bf16 or fp16), each by itself (an adapter's weights stay fp32 beside narrow activations),
 * the bias always fp32, c either. Rows of a, b and c may be columns of something wider. What is mixed is multiplied in
 * fp32, and fp16 always: it is widened when it is packed. A narrow c that is added to is widened, goes through the chain,
 * and is rounded once. */
#ifndef HRI_OPS_LINEAR_PRODUCT_H
#define HRI_OPS_LINEAR_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/device.h>

#include "base/error.h"
#include "base/real.h"
#include "ops/isa.h"

typedef enum hri_gemm_kind { HRI_GEMM_FORWARD = 0, HRI_GEMM_DX, HRI_GEMM_DW, HRI_GEMM_KIND_COUNT } hri_gemm_kind;

typedef struct hri_gemm_shape {
  hri_gemm_kind kind;
  hri_real type;                        /* of a, and of b unless they are mixed */
  bool mixed;                           /* b is of the type `other`: one of a and b is fp32 */
  hri_real other;                       /* fp32 where they are not mixed */
  hri_real out;                         /* of c */
  int64_t m, n, k;                      /* as above, each >= 1 */
  int64_t a_stride, b_stride, c_stride; /* elements from row to row; 0: contiguous. A packed b is contiguous */
  bool bias;                            /* FORWARD only */
  bool accumulate;                      /* c += , else c = */
  bool packed;                          /* b comes from hri_gemm_pack */
  bool in_blocks;                       /* DX only: sums of HRI_GEMM_BLOCK_TERMS terms begin at zero, then are added */
  int threads;                          /* the team, >= 1; 1 runs in the calling thread */
} hri_gemm_shape;

/* One entry of a cache of products serves both. */
static inline bool hri_gemm_shape_same(const hri_gemm_shape *a, const hri_gemm_shape *b) {
  return a->kind == b->kind && a->type == b->type && a->mixed == b->mixed && a->other == b->other && a->out == b->out &&
         a->m == b->m && a->n == b->n && a->k == b->k && a->a_stride == b->a_stride && a->b_stride == b->b_stride &&
         a->c_stride == b->c_stride && a->bias == b->bias && a->accumulate == b->accumulate && a->packed == b->packed &&
         a->in_blocks == b->in_blocks && a->threads == b->threads;
}
static inline hri_real hri_gemm_b_type(const hri_gemm_shape *s) { return s->mixed ? s->other : s->type; }
/* a and b of one type, all rows contiguous, nothing narrow that is added to: what has a packed form and every code. */
static inline bool hri_gemm_is_plain(const hri_gemm_shape *s) {
  return !s->mixed && !s->a_stride && !s->b_stride && !s->c_stride &&
         (s->out == HRI_REAL_F32 || (s->out == s->type && !s->accumulate));
}

enum { HRI_GEMM_ALIGNMENT = 64 }; /* of scratch, bytes; operands need 4 */
/* Most terms in a block of a product whose sums go in blocks, on every level: what the narrowest levels take anyway. The
 * rounding of a chain grows with its length, and dx of a vocabulary has 32 to 256 thousand terms (docs/decisions/0011). */
enum { HRI_GEMM_BLOCK_TERMS = 384 };

/* A shape as a plain product c[rows,columns] (=|+=) a . b over `depth` terms:
 *   a(r,i) = a[r * a_row + i * a_depth],   b(i,j) = b[i * b_depth + j * b_column],   c(r,j) = c[r * c_row + j]. */
typedef struct hri_gemm_product {
  int64_t rows, columns, depth;
  int64_t a_row, a_depth, b_depth, b_column, c_row;
} hri_gemm_product;

static inline int64_t hri_gemm_stride(int64_t stride, int64_t columns) { return stride ? stride : columns; }

static inline hri_gemm_product hri_gemm_product_of(const hri_gemm_shape *s) {
  int64_t a = hri_gemm_stride(s->a_stride, s->kind == HRI_GEMM_FORWARD ? s->k : s->n),
          b = hri_gemm_stride(s->b_stride, s->k),
          c = hri_gemm_stride(s->c_stride, s->kind == HRI_GEMM_FORWARD ? s->n : s->k);
  switch (s->kind) {
  case HRI_GEMM_DX: return (hri_gemm_product){s->m, s->k, s->n, a, 1, b, 1, c};
  case HRI_GEMM_DW: return (hri_gemm_product){s->n, s->k, s->m, 1, a, b, 1, c};
  default: return (hri_gemm_product){s->m, s->n, s->k, a, 1, 1, b, c};
  }
}

/* FORWARD with so few rows (generation, small batches) is bound by reading w, which dot products of rows do once, in
 * order and without packing: what ours takes. */
enum { HRI_GEMM_DOT_ROWS = 16 };
static inline bool hri_gemm_takes_dots(const hri_gemm_shape *s) {
  return s->kind == HRI_GEMM_FORWARD && s->m <= HRI_GEMM_DOT_ROWS && hri_gemm_is_plain(s);
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
                          .in_blocks = s->in_blocks,
                          .threads = s->threads};
  *(s->kind == HRI_GEMM_DW ? &model.n : &model.m) = 1024;
  return model;
}

/* Whether packing b before every single product was measured to be faster than the plain product (docs/performance.md).
 * By kind, type and sizes alone. */
bool hri_gemm_packing_pays(const hri_gemm_shape *shape);

/* ---- ours: how a product is cut, and what scratch that takes ---- */

/* The code that computes a product: multiply-adds of fp32 (bf16 and fp16 are widened), the dot instruction of bf16 pairs, tiles of
 * bf16 (AMX). */
typedef enum hri_gemm_code { HRI_GEMM_FMA = 0, HRI_GEMM_DOT, HRI_GEMM_TILES, HRI_GEMM_CODE_COUNT } hri_gemm_code;

/* Rows of a register tile, and words per vector, by instruction level; a tile is two vectors wide. Arm has registers
 * for more rows. */
enum {
  HRI_GEMM_ROWS_BASE = 6,
  HRI_GEMM_LANES_BASE = 4,
  HRI_GEMM_ROWS_AVX2 = 6,
  HRI_GEMM_LANES_AVX2 = 8,
  HRI_GEMM_ROWS_AVX512 = 14,
  HRI_GEMM_LANES_AVX512 = 16,
  HRI_GEMM_ROWS_NEON = 12,
  HRI_GEMM_LANES_NEON = 4,
  HRI_GEMM_ROWS_TILES = 32, /* and as many columns; always whole: a is padded with zeros, and the depth */
  HRI_GEMM_WORDS_TILES = 16 /* of the depth, that one instruction takes */
};

/* The depth goes in blocks of `block_words`; a is packed for `rows` rows and one block at a time and shared by the
 * team; each thread packs b for `group` panels and one block. Sizes of tiles in words (gemm_ours.h). */
typedef struct hri_gemm_layout {
  hri_gemm_product p;
  bool few;                                    /* dot products of rows instead; a is x widened, or nothing */
  bool whole_rows;                             /* the last panel of a is as high as the others, with rows of zeros */
  int64_t tile_rows, tile_columns, word_terms; /* terms in a word */
  int64_t words, block_words, rows, group;     /* group: most panels */
  int64_t stage_columns;                       /* 0: c takes unfinished sums itself; else they stand in the stage */
  uint64_t a_floats, stage_floats, b_floats;   /* shared, shared, per thread */
} hri_gemm_layout;
hri_gemm_layout hri_gemm_layout_of(hri_isa level, hri_gemm_code code, const hri_gemm_shape *shape);
/* Bytes; UINT64_MAX when they do not fit 64 bits. */
uint64_t hri_gemm_scratch(hri_isa level, hri_gemm_code code, const hri_gemm_shape *shape);
/* Of all of b in panels: blocks of the depth one after the other, in each all panels. */
uint64_t hri_gemm_panel_bytes(hri_isa level, hri_gemm_code code, const hri_gemm_shape *shape);

/* ---- which code ---- */

/* Products of bf16 go by class: by row (few rows of FORWARD, else by kind) and by width, which is k, the inputs of the
 * layer. All that the team, packing, recomputation, loss chunks, accumulation, fused and cut weights or placement can
 * choose between changes m and n and the cut, never k and the kind, so alternatives of one product stand in one class
 * (docs/decisions/0011). */
enum { HRI_GEMM_ROW_COUNT = HR_PRODUCT_ROWS, HRI_GEMM_WIDTH_COUNT = HR_PRODUCT_WIDTHS };
typedef struct hri_gemm_table {
  bool given; /* else it is the shipped one */
  uint8_t code[HRI_GEMM_ROW_COUNT][HRI_GEMM_WIDTH_COUNT];
} hri_gemm_table;

/* What the code is a function of, beside the shape. */
typedef struct hri_gemm_machine {
  hri_isa level;
  hri_pairs pairs;
  hri_gemm_table table;
} hri_gemm_machine;

typedef struct hri_gemm_decision {
  hri_gemm_code code;
  uint64_t scratch_bytes;
  uint64_t packed_bytes; /* of a packed shape; 0: it has no packed form */
} hri_gemm_decision;

uint32_t hri_gemm_row_of(const hri_gemm_shape *shape);
uint32_t hri_gemm_width_of(const hri_gemm_shape *shape);
/* Whether a level has a code that is its own for a row: few rows have no tiles. */
bool hri_gemm_has(hri_isa level, hri_gemm_code code, uint32_t row);
/* The machine's table, or the shipped one by what was measured (docs/decisions/0011), by level and class of
 * processor. */
hri_gemm_table hri_gemm_table_of(const hri_gemm_machine *machine);
/* One code for every class that has it; few rows go by dot beside tiles. */
hri_gemm_table hri_gemm_table_by(hri_isa level, hri_gemm_code code);
/* The fastest of each class by measured rates, and the shipped one unless another is more than 5 % faster. */
hri_gemm_table hri_gemm_table_fastest(hri_isa level, const hri_gemm_table *shipped, const hr_code_rates *rates);

/* What the bits of products depend on, for the record of a job and for stored rates: "products 2, bf16 by dot"; a table
 * that mixes codes has a letter of each width: "products 2, bf16 by few ddd, forward fdd, dx fdd, dw ddd". Another
 * number, other sums or other scratch. Returns `out`. */
enum { HRI_GEMM_TEXT_BYTES = 64 };
const char *hri_gemm_text(const hri_gemm_machine *machine, char out[HRI_GEMM_TEXT_BYTES]);
/* Reads it back. False: it is no such text, of other sums, or names a code that the level does not have. */
bool hri_gemm_parse(const char *text, hri_isa level, hri_gemm_table *table);
/* Takes what a device names (hr_device.products): "shipped" or such a text. USAGE when it is neither. */
hr_status hri_gemm_ask(const char *asked, hri_gemm_machine *machine, hr_error *error);
const char *hri_gemm_code_name(hri_gemm_code code); /* "fma", "dot", "tiles" */
const char *hri_gemm_row_name(uint32_t row);        /* "few", "forward", "dx", "dw" */

/* INTERNAL when it is no shape; USAGE when operands do not fit the address space, or the scratch 64 bits. */
hr_status hri_gemm_decide(const hri_gemm_machine *machine, const hri_gemm_shape *shape, hri_gemm_decision *out,
                          hr_error *error);
/* The same with a code of the caller's (tests, comparisons); where level or type have no use for it, multiply-adds. */
hr_status hri_gemm_decide_for(hri_isa level, hri_gemm_code code, const hri_gemm_shape *shape, hri_gemm_decision *out,
                              hr_error *error);

#endif
