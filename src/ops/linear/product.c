/* Which code runs a matrix product, and what is remembered of it.
 *
 * Same bits for every team. oneDNN sums along the contraction in blocks of fixed length, whatever the team - except
 * where it splits the contraction over threads. By its heuristics (in its sources from 2.5 to 3.x) and by sweeps over
 * shapes and 1 to 16 threads with 2.6.3 (test_gemm.c repeats a short one), that can happen only
 *   - when a is transposed (DW), the contraction has at least 2048 terms, and the team is larger than the number of
 *     column blocks of c. The library sums such a product in blocks of 512 terms. Hence a team that large runs it as
 *     that many products, each added to the one before: the very same sums.
 *   - in later 3.x, when the contraction has at least 20000 terms and c has at most 512 rows and columns;
 *   - in later 3.x, when one operand is a vector and the matrix is read across its rows;
 *   - with AMX, when the contraction has more than 1024 terms and the team 16 threads or more.
 * The second and third are rare and small (heads of tiny models) and take the portable code, which has fixed blocks;
 * for
 * the last the library gets no more than 15 threads.
 *
 * The portable code also serves what oneDNN would only serve with memory of its own (all of fp32 below AVX-512 in 2.x,
 * bf16 without AVX512_BF16), sizes beyond 32 bits, and products of few rows. */
#include "ops/linear/product.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum {
  BLOCK_TERMS = 512,  /* of the library's sums in DW */
  SPLIT_TERMS = 2048, /* from here on it may split them */
  COLUMN_BLOCK = 64,  /* its widest block of columns */
  AMX_TERMS = 1024,
  AMX_TEAM = 15,
  LONG_CONTRACTION = 16384, /* < 20000 */
  SMALL_SIDE = 512
};

static bool fits(int64_t a, int64_t b) {
  uint64_t bytes;
  return hri_mul((uint64_t)a, (uint64_t)b, &bytes) && hri_mul(bytes, sizeof(float), &bytes) && bytes <= INT64_MAX;
}

static bool types_fit(const hri_gemm_shape *s) {
  bool known = (s->type == HRI_REAL_F32 || s->type == HRI_REAL_BF16) && (s->out == HRI_REAL_F32 || s->out == s->type);
  return known && !(s->accumulate && s->out != HRI_REAL_F32);
}

hr_status hri_gemm_shape_check(const hri_gemm_shape *s, hr_error *error) {
  if ((unsigned)s->kind >= HRI_GEMM_KIND_COUNT || !types_fit(s) || s->m < 1 || s->n < 1 || s->k < 1 || s->threads < 1 ||
      (s->bias && s->kind != HRI_GEMM_FORWARD))
    return hri_fail(
        error, HR_ERROR_INTERNAL,
        "matrix product: kind %d, types %d to %d, %lld x %lld x %lld, bias %d, accumulate %d, %d threads is no shape",
        (int)s->kind, (int)s->type, (int)s->out, (long long)s->m, (long long)s->n, (long long)s->k, (int)s->bias,
        (int)s->accumulate, s->threads);
  if (!fits(s->m, s->n) || !fits(s->m, s->k) || !fits(s->n, s->k))
    return hri_fail(error, HR_ERROR_USAGE, "matrix product: %lld x %lld x %lld does not fit the address space",
                    (long long)s->m, (long long)s->n, (long long)s->k);
  return HR_OK;
}

/* Packing costs two passes over b; the product saves its own gathering, which it repeats for every few rows of c.
 * Measured
 * with 1024 tokens on a 2-core Zen 4 (oneDNN 2.6.3, bench_gemm, one thread, layers and vocabularies of GPT-2 124M and
 * SmolLM2-135M), packed against plain, without the packing / with it:
 *   fp32  forward +1 to +7 / -4 to +4 %   dx +2 to +10 / -2 to +6 %   vocabulary dx +10 to +35 / +5 to +34 %   dW -1 to
 *   +8 / -5 to +5 % bf16  forward +2 to +8 / +1 to +5 %, with 1024 terms or more 0 to +5 / -3 to +1 %   dx +5 to +16 /
 *   +2 to +11 %   dW +3 to +9 / +1 to +7 %
 * The packing's share falls with the rows of c: from how many on at least 1.5 % remain for most. */
bool hri_gemm_packing_pays(const hri_gemm_shape *s) {
  enum { NEVER = -1, LONG_SUMS = 1024 };
  static const int64_t least_rows[HRI_GEMM_KIND_COUNT][2] =
      {[HRI_GEMM_FORWARD] = {2048, 1024}, [HRI_GEMM_DX] = {1024, 512}, [HRI_GEMM_DW] = {NEVER, 512}};
  hri_gemm_product p = hri_gemm_product_of(s);
  int64_t least = least_rows[s->kind][s->type == HRI_REAL_BF16];
  if (s->kind == HRI_GEMM_FORWARD && p.depth >= LONG_SUMS) return false;
  return least != NEVER && p.rows >= least;
}

/* ---- ours ---- */

enum {
  ROW_BLOCK = 24, /* register tiles of a packed by a thread at a time */
  STAGE_ROWS = 6  /* blocks of rows of a bf16 c whose sums stand in scratch */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t blocks(int64_t count, int64_t size) { return (count + size - 1) / size; }
static uint64_t whole_lines(int64_t floats) {
  return hri_round_up((uint64_t)floats, HRI_GEMM_ALIGNMENT / sizeof(float));
}

hri_portable_layout hri_portable_layout_of(hri_isa level, const hri_gemm_shape *s) {
  static const int64_t tiles[HRI_ISA_COUNT][2] = {[HRI_ISA_BASE] = {HRI_PORTABLE_ROWS_BASE, HRI_PORTABLE_LANES_BASE},
                                                  [HRI_ISA_AVX2] = {HRI_PORTABLE_ROWS_AVX2, HRI_PORTABLE_LANES_AVX2},
                                                  [HRI_ISA_AVX512] = {HRI_PORTABLE_ROWS_AVX512,
                                                                      HRI_PORTABLE_LANES_AVX512},
                                                  [HRI_ISA_AVX512_BF16] = {HRI_PORTABLE_ROWS_AVX512,
                                                                           HRI_PORTABLE_LANES_AVX512}};
  int64_t tile_rows = tiles[level][0], pair = 2 * tiles[level][1];
  hri_portable_layout l = {.p = hri_gemm_product_of(s)};
  l.depth = least(l.p.depth, HRI_PORTABLE_DEPTH);
  l.rows = least(blocks(l.p.rows, tile_rows), ROW_BLOCK) * tile_rows;
  l.columns = least(blocks(l.p.columns, pair) * pair, HRI_PORTABLE_COLUMNS);
  l.stage_rows = s->out == HRI_REAL_BF16 && l.p.depth > HRI_PORTABLE_DEPTH
                     ? least(l.p.rows, STAGE_ROWS * ROW_BLOCK * tile_rows)
                     : 0;
  l.b_floats = whole_lines(l.columns * l.depth);
  l.stage_floats = whole_lines(l.stage_rows * l.columns);
  l.a_floats = whole_lines(l.rows * l.depth);
  if (!hri_gemm_takes_dots(s)) return l;
  /* Dot products: x in fp32, per thread. */
  l.b_floats = l.stage_floats = 0;
  l.a_floats = s->type == HRI_REAL_BF16 ? (uint64_t)(s->m * blocks(s->k, pair) * pair) : 0;
  return l;
}

uint64_t hri_portable_scratch(hri_isa level, const hri_gemm_shape *s) {
  hri_portable_layout l = hri_portable_layout_of(level, s);
  uint64_t floats, bytes;
  if (!hri_mul(l.a_floats, (uint64_t)s->threads, &floats) || !hri_add(floats, l.b_floats + l.stage_floats, &floats))
    return UINT64_MAX;
  return hri_mul(floats, sizeof(float), &bytes) ? bytes : UINT64_MAX;
}

/* ---- the library's ---- */

/* Whether the library's bits could depend on the team (see the top) in ways that cutting does not help, or its 32-bit
 * sizes overflow; or ours is faster. */
static bool unsuited(const hri_gemm_shape *s) {
  hri_gemm_product p = hri_gemm_product_of(s);
  bool vector = s->kind == HRI_GEMM_DX ? p.rows == 1 : s->kind == HRI_GEMM_DW && (p.rows == 1 || p.columns == 1);
  bool split = p.depth >= LONG_CONTRACTION && p.rows <= SMALL_SIDE && p.columns <= SMALL_SIDE;
  bool overflow = s->m > INT32_MAX / s->n || s->m > INT32_MAX / s->k || s->n > INT32_MAX / s->k;
  return hri_gemm_dots_are_faster(s) || vector || split || overflow;
}

static bool may_split(const hri_gemm_shape *s) {
  return s->kind == HRI_GEMM_DW && s->m >= SPLIT_TERMS &&
         s->threads > (hri_gemm_product_of(s).columns + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
}

/* All of M in one piece, or in the library's own blocks. */
static void cut(hri_gemm_decision *how, const hri_gemm_shape *s, int64_t rows) {
  int64_t pieces = (s->m + rows - 1) / rows;
  bool apart = pieces > 1 && (s->accumulate || s->out != HRI_REAL_F32);
  how->sums_bytes = apart ? hri_round_up((uint64_t)(s->n * s->k) * sizeof(float), HRI_GEMM_ALIGNMENT) : 0;
  how->parts[0] = (hri_gemm_part){.pieces = 1, .rows = rows, .accumulate = s->accumulate && !apart};
  how->parts[1] = (hri_gemm_part){.pieces = pieces > 2 ? pieces - 2 : 0, .rows = rows, .accumulate = true};
  how->parts[2] = (hri_gemm_part){.pieces = pieces > 1, .rows = s->m - (pieces - 1) * rows, .accumulate = true};
}

hri_gemm_shape hri_gemm_part_shape(const hri_gemm_decision *how, const hri_gemm_shape *s, const hri_gemm_part *part) {
  hri_gemm_shape shape = *s;
  shape.m = part->rows;
  shape.accumulate = part->accumulate;
  shape.threads = how->library_threads;
  if (how->sums_bytes) shape.out = HRI_REAL_F32;
  return shape;
}

/* Asks the library for every part; *served only when it has them all. */
static hr_status ask(const hri_gemm_library *library, const hri_gemm_shape *s, hri_gemm_decision *how, bool *served,
                     hr_error *error) {
  how->scratch_bytes = 0;
  *served = true;
  for (int i = 0; i < HRI_GEMM_PARTS && *served; i++) {
    hri_gemm_shape shape = hri_gemm_part_shape(how, s, &how->parts[i]);
    hri_onednn_answer answer;
    if (!how->parts[i].pieces) continue;
    HRI_TRY(library->ask(library->self, &shape, &answer, error));
    *served = answer.served;
    how->packing = answer.packing;
    memcpy(how->implementation, answer.name, sizeof answer.name);
    if (answer.scratch_bytes > how->scratch_bytes) how->scratch_bytes = answer.scratch_bytes;
  }
  return hri_add(how->scratch_bytes, how->sums_bytes, &how->scratch_bytes)
             ? HR_OK
             : hri_fail(error, HR_ERROR_USAGE, "the scratch of a matrix product does not fit 64 bits");
}

static hr_status decide_library(const hri_gemm_library *library, const hri_gemm_shape *s, hri_gemm_decision *how,
                                bool *served, hr_error *error) {
  how->library_threads = s->threads;
  cut(how, s, s->m);
  HRI_TRY(ask(library, s, how, served, error));
  if (!*served) return HR_OK;
  if (strstr(how->implementation, "amx")) {
    if (s->threads <= AMX_TEAM || hri_gemm_product_of(s).depth <= AMX_TERMS) return HR_OK;
    how->library_threads = AMX_TEAM;
    return ask(library, s, how, served, error);
  }
  if (!may_split(s)) return HR_OK;
  *served = !s->packed; /* a piece of packed b is not contiguous */
  if (s->packed) return HR_OK;
  cut(how, s, BLOCK_TERMS);
  return ask(library, s, how, served, error);
}

hr_status hri_gemm_decide(hri_isa level, const hri_gemm_library *library, const hri_gemm_shape *shape,
                          hri_gemm_decision *how, hr_error *error) {
  memset(how, 0, sizeof *how);
  if (library && !unsuited(shape)) {
    bool served = false;
    HRI_TRY(decide_library(library, shape, how, &served, error));
    if (served) return HR_OK;
  }
  how->portable = true;
  how->packing.bytes = 0;
  how->scratch_bytes = hri_portable_scratch(level, shape);
  (void)snprintf(how->implementation, sizeof how->implementation, "portable:%s", hri_isa_name(level));
  return how->scratch_bytes < INT64_MAX
             ? HR_OK
             : hri_fail(error, HR_ERROR_USAGE, "the scratch of a matrix product does not fit 64 bits");
}
