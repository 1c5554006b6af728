/* Which code computes a matrix product, how it is cut, and the scratch that takes.
 *
 * Every code has one order of sums per element, whatever the team, the cut and the packing (backend/cpu/gemm_ours.c). So
 * of a type all products of a machine go by one code, by the table of hri_gemm_preferred. */
#include "ops/linear/product.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static bool fits(int64_t a, int64_t b) {
  uint64_t bytes;
  return hri_mul((uint64_t)a, (uint64_t)b, &bytes) && hri_mul(bytes, sizeof(float), &bytes) && bytes <= INT64_MAX;
}

static bool types_fit(const hri_gemm_shape *s) {
  return (s->type == HRI_REAL_F32 || s->type == HRI_REAL_BF16) && (s->out == HRI_REAL_F32 || s->out == HRI_REAL_BF16) &&
         !(s->packed && !hri_gemm_is_plain(s));
}

static bool strides_fit(const hri_gemm_shape *s) {
  int64_t a = s->kind == HRI_GEMM_FORWARD ? s->k : s->n, c = s->kind == HRI_GEMM_FORWARD ? s->n : s->k;
  return (s->a_stride == 0 || s->a_stride >= a) && (s->b_stride == 0 || s->b_stride >= s->k) &&
         (s->c_stride == 0 || s->c_stride >= c);
}

static hr_status check(const hri_gemm_shape *s, hr_error *error) {
  if ((unsigned)s->kind >= HRI_GEMM_KIND_COUNT || !types_fit(s) || !strides_fit(s) || s->m < 1 || s->n < 1 ||
      s->k < 1 || s->threads < 1 || (s->bias && s->kind != HRI_GEMM_FORWARD))
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

/* Packed b saves a product of ours the packing of its groups: 0 to 6 %, 2.5 % in the median of GPT-2's and SmolLM2's
 * products with 1024 tokens; packing it before every single product costs as much or more (-6 to +1 %; Zen 5, one
 * thread, `./dev bench gemm 1024 5 packed 1`). Only dw of a vocabulary gains (+1 to +3 %), whose b would be packed
 * again for every thousand rows of c. What stays packed for several products gains everywhere (src/pass/pack.c). */
bool hri_gemm_packing_pays(const hri_gemm_shape *s) {
  enum { VOCABULARY_ROWS = 16384 };
  return s->kind == HRI_GEMM_DW && hri_gemm_is_plain(s) && hri_gemm_product_of(s).rows >= VOCABULARY_ROWS;
}

/* ---- ours ---- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t blocks(int64_t count, int64_t size) { return (count + size - 1) / size; }
static int64_t rounded(int64_t count, int64_t size) { return blocks(count, size) * size; }
static uint64_t whole_lines(int64_t floats) {
  return hri_round_up((uint64_t)floats, HRI_GEMM_ALIGNMENT / sizeof(float));
}

/* Measured, see docs/decisions/0011. A group of panels of b is to stay in the second cache with a panel of a. */
enum { A_WORDS = 768 * 1024, A_WORDS_PER_THREAD = 32 * 1024, STAGE_WORDS = 1024 * 1024 };
typedef struct tiling {
  int64_t rows, lanes, block_words, group;
} tiling;
static const tiling tilings[HRI_ISA_COUNT] = {
    [HRI_ISA_BASE] = {HRI_GEMM_ROWS_BASE, HRI_GEMM_LANES_BASE, 384, 16},
    [HRI_ISA_AVX2] = {HRI_GEMM_ROWS_AVX2, HRI_GEMM_LANES_AVX2, 384, 8},
    [HRI_ISA_AVX512] = {HRI_GEMM_ROWS_AVX512, HRI_GEMM_LANES_AVX512, 768, 4},
    [HRI_ISA_AVX512_BF16] = {HRI_GEMM_ROWS_AVX512, HRI_GEMM_LANES_AVX512, 768, 4},
    [HRI_ISA_AMX] = {HRI_GEMM_ROWS_AVX512, HRI_GEMM_LANES_AVX512, 768, 4},
    [HRI_ISA_NEON] = {HRI_GEMM_ROWS_NEON, HRI_GEMM_LANES_NEON, 384, 16},
    [HRI_ISA_NEON_BF16] = {HRI_GEMM_ROWS_NEON, HRI_GEMM_LANES_NEON, 384, 16},
};

/* Blocks of about equal depth, in whole steps of the code. */
static void cut_depth(hri_gemm_layout *l, int64_t most_words, int64_t step) {
  l->words = rounded(blocks(l->p.depth, l->word_terms), step);
  l->block_words = rounded(blocks(l->words, blocks(l->words, most_words)), step);
}

static void lay_out_few(hri_gemm_layout *l, hri_gemm_code code, const hri_gemm_shape *s) {
  l->few = true;
  l->a_floats =
      s->type == HRI_REAL_BF16 && code == HRI_GEMM_FMA ? (uint64_t)(s->m * rounded(s->k, l->tile_columns)) : 0;
}

hri_gemm_layout hri_gemm_layout_of(hri_isa level, hri_gemm_code code, const hri_gemm_shape *s) {
  const tiling *t = &tilings[level];
  bool tiles = code == HRI_GEMM_TILES;
  hri_gemm_layout l = {.p = hri_gemm_product_of(s),
                       .whole_rows = tiles,
                       .tile_rows = tiles ? HRI_GEMM_ROWS_TILES : t->rows,
                       .tile_columns = 2 * t->lanes,
                       .word_terms = code == HRI_GEMM_FMA ? 1 : 2};
  int64_t panels = blocks(l.p.columns, l.tile_columns);
  cut_depth(&l, t->block_words, tiles ? HRI_GEMM_WORDS_TILES : 1);
  if (hri_gemm_takes_dots(s)) {
    lay_out_few(&l, code, s);
    return l;
  }
  l.rows = (A_WORDS + least(s->threads, 1024) * A_WORDS_PER_THREAD) / l.block_words;
  l.rows = least(l.p.rows, most(l.rows / l.tile_rows, 1) * l.tile_rows);
  l.group = least(panels, t->group);
  if (s->out == HRI_REAL_BF16 && (l.words > l.block_words || s->accumulate))
    l.stage_columns = least(panels, most(blocks(STAGE_WORDS / l.rows, l.tile_columns), l.group)) * l.tile_columns;
  l.a_floats = whole_lines((l.whole_rows ? rounded(l.rows, l.tile_rows) : l.rows) * l.block_words);
  l.stage_floats = whole_lines(l.rows * l.stage_columns);
  l.b_floats = s->packed ? 0 : whole_lines(l.group * l.tile_columns * l.block_words);
  return l;
}

uint64_t hri_gemm_scratch(hri_isa level, hri_gemm_code code, const hri_gemm_shape *s) {
  hri_gemm_layout l = hri_gemm_layout_of(level, code, s);
  uint64_t floats, bytes;
  if (!hri_mul(l.b_floats, (uint64_t)s->threads, &floats) || !hri_add(floats, l.a_floats + l.stage_floats, &floats))
    return UINT64_MAX;
  return hri_mul(floats, sizeof(float), &bytes) ? bytes : UINT64_MAX;
}

uint64_t hri_gemm_panel_bytes(hri_isa level, hri_gemm_code code, const hri_gemm_shape *s) {
  hri_gemm_layout l = hri_gemm_layout_of(level, code, s);
  uint64_t bytes;
  if (l.few || !hri_mul((uint64_t)l.words, (uint64_t)rounded(l.p.columns, l.tile_columns), &bytes)) return 0;
  return hri_mul(bytes, sizeof(float), &bytes) ? bytes : 0;
}

/* ---- which code ---- */

hri_gemm_code hri_gemm_preferred(const hri_gemm_machine *m, hri_real type) {
  if (type == HRI_REAL_F32 || !hri_isa_has(m->level, HRI_ISA_AVX512_BF16)) return HRI_GEMM_FMA;
  if (hri_isa_has(m->level, HRI_ISA_AMX)) return HRI_GEMM_TILES;
  return m->pairs == HRI_PAIRS_FULL ? HRI_GEMM_DOT : HRI_GEMM_FMA;
}

const char *hri_gemm_text(const hri_gemm_machine *m) {
  static const char *const texts[HRI_GEMM_CODE_COUNT] = {[HRI_GEMM_FMA] = "products 1, bf16 by fma",
                                                         [HRI_GEMM_DOT] = "products 1, bf16 by dot",
                                                         [HRI_GEMM_TILES] = "products 1, bf16 by tiles"};
  return texts[hri_gemm_preferred(m, HRI_REAL_BF16)];
}

/* Few rows go by the dot instruction also where the others go by tiles. */
static hri_gemm_code possible(hri_isa level, hri_gemm_code code, const hri_gemm_shape *s) {
  static const hri_isa least_level[HRI_GEMM_CODE_COUNT] =
      {[HRI_GEMM_FMA] = HRI_ISA_BASE, [HRI_GEMM_DOT] = HRI_ISA_AVX512_BF16, [HRI_GEMM_TILES] = HRI_ISA_AMX};
  bool fits = s->type == HRI_REAL_BF16 && !s->mixed && hri_isa_has(level, least_level[code]);
  if (fits && code == HRI_GEMM_TILES && hri_gemm_takes_dots(s)) return HRI_GEMM_DOT;
  return fits ? code : HRI_GEMM_FMA;
}

hr_status hri_gemm_decide_for(hri_isa level, hri_gemm_code code, const hri_gemm_shape *s, hri_gemm_decision *how,
                              hr_error *error) {
  static const char *const names[HRI_GEMM_CODE_COUNT] =
      {[HRI_GEMM_FMA] = "fma", [HRI_GEMM_DOT] = "dot", [HRI_GEMM_TILES] = "tiles"};
  memset(how, 0, sizeof *how);
  HRI_TRY(check(s, error));
  how->code = possible(level, code, s);
  how->scratch_bytes = hri_gemm_scratch(level, how->code, s);
  how->packed_bytes = s->packed ? hri_gemm_panel_bytes(level, how->code, s) : 0;
  (void)snprintf(how->implementation, sizeof how->implementation, "%s:%s", names[how->code], hri_isa_name(level));
  return how->scratch_bytes < INT64_MAX
             ? HR_OK
             : hri_fail(error, HR_ERROR_USAGE, "the scratch of a matrix product does not fit 64 bits");
}

hr_status hri_gemm_decide(const hri_gemm_machine *m, const hri_gemm_shape *s, hri_gemm_decision *how, hr_error *error) {
  return hri_gemm_decide_for(m->level, hri_gemm_preferred(m, s->type), s, how, error);
}
