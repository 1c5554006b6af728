/* Which code computes a matrix product, how it is cut, and the scratch that takes.
 *
 * Every code has one order of sums per element, whatever the team, the cut and the packing (backend/cpu/gemm_ours.c). So
 * all products of a class go by one code, by a table: the shipped one, or one that a probe measured and stored. */
#include "ops/linear/product.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static bool fits(int64_t a, int64_t b) {
  uint64_t bytes;
  return hri_mul((uint64_t)a, (uint64_t)b, &bytes) && hri_mul(bytes, sizeof(float), &bytes) && bytes <= INT64_MAX;
}

static bool types_fit(const hri_gemm_shape *s) {
  hri_real narrow = s->type == HRI_REAL_F32 && s->mixed ? s->other : s->type; /* of the operands, where one is */
  return (unsigned)s->type <= HRI_REAL_F16 && (unsigned)s->out <= HRI_REAL_F16 && (unsigned)s->other <= HRI_REAL_F16 &&
         (s->mixed ? (s->type == HRI_REAL_F32) != (s->other == HRI_REAL_F32) : s->other == HRI_REAL_F32) &&
         (s->out == HRI_REAL_F32 || narrow == HRI_REAL_F32 || s->out == narrow) &&
         !(s->packed && !hri_gemm_is_plain(s));
}

static bool strides_fit(const hri_gemm_shape *s) {
  int64_t a = s->kind == HRI_GEMM_FORWARD ? s->k : s->n, c = s->kind == HRI_GEMM_FORWARD ? s->n : s->k;
  return (s->a_stride == 0 || s->a_stride >= a) && (s->b_stride == 0 || s->b_stride >= s->k) &&
         (s->c_stride == 0 || s->c_stride >= c);
}

static hr_status check(const hri_gemm_shape *s, hr_error *error) {
  if ((unsigned)s->kind >= HRI_GEMM_KIND_COUNT || !types_fit(s) || !strides_fit(s) || s->m < 1 || s->n < 1 ||
      s->k < 1 || s->threads < 1 || (s->bias && s->kind != HRI_GEMM_FORWARD) ||
      (s->in_blocks && s->kind != HRI_GEMM_DX))
    return hri_fail(
        error, HR_ERROR_INTERNAL,
        "matrix product: kind %d, types %d to %d, %lld x %lld x %lld, bias %d, accumulate %d, in blocks %d, %d threads is "
        "no shape",
        (int)s->kind, (int)s->type, (int)s->out, (long long)s->m, (long long)s->n, (long long)s->k, (int)s->bias,
        (int)s->accumulate, (int)s->in_blocks, s->threads);
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
    [HRI_ISA_AVX2] = {HRI_GEMM_ROWS_AVX2, HRI_GEMM_LANES_AVX2, 576, 5},
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
  l->a_floats = s->type != HRI_REAL_F32 && code == HRI_GEMM_FMA ? (uint64_t)(s->m * rounded(s->k, l->tile_columns)) : 0;
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
  cut_depth(&l, s->in_blocks ? HRI_GEMM_BLOCK_TERMS / l.word_terms : t->block_words, tiles ? HRI_GEMM_WORDS_TILES : 1);
  if (hri_gemm_takes_dots(s)) {
    lay_out_few(&l, code, s);
    return l;
  }
  l.rows = (A_WORDS + least(s->threads, 1024) * A_WORDS_PER_THREAD) / l.block_words;
  l.rows = least(l.p.rows, most(l.rows / l.tile_rows, 1) * l.tile_rows);
  l.group = least(panels, t->group);
  if (s->out != HRI_REAL_F32 && l.words > l.block_words)
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

/* ---- classes ---- */

static const char *const code_names[HRI_GEMM_CODE_COUNT] = {"fma", "dot", "tiles"};
static const char *const row_names[HRI_GEMM_ROW_COUNT] = {"few", "forward", "dx", "dw"};

const char *hri_gemm_code_name(hri_gemm_code code) { return code_names[code]; }
const char *hri_gemm_row_name(uint32_t row) { return row_names[row]; }

uint32_t hri_gemm_row_of(const hri_gemm_shape *s) { return hri_gemm_takes_dots(s) ? 0 : 1 + (uint32_t)s->kind; }

/* Halfway (in powers) between what the probe measures: 64, 256 and 1024. */
uint32_t hri_gemm_width_of(const hri_gemm_shape *s) { return s->k < 128 ? 0 : s->k < 512 ? 1 : 2; }

bool hri_gemm_has(hri_isa level, hri_gemm_code code, uint32_t row) {
  static const hri_isa least_level[HRI_GEMM_CODE_COUNT] =
      {[HRI_GEMM_FMA] = HRI_ISA_BASE, [HRI_GEMM_DOT] = HRI_ISA_AVX512_BF16, [HRI_GEMM_TILES] = HRI_ISA_AMX};
  return hri_isa_has(level, least_level[code]) && (code != HRI_GEMM_TILES || row > 0);
}

/* ---- tables ---- */

/* `code`, or what stands in for it: few rows go by the dot instruction where the others go by tiles. */
static hri_gemm_code code_for(hri_isa level, hri_gemm_code code, uint32_t row) {
  return hri_gemm_has(level, code, row) ? code : hri_gemm_has(level, code, 1) ? HRI_GEMM_DOT : HRI_GEMM_FMA;
}

hri_gemm_table hri_gemm_table_by(hri_isa level, hri_gemm_code code) {
  hri_gemm_table t = {.given = true};
  for (uint32_t row = 0; row < HRI_GEMM_ROW_COUNT; row++)
    for (int width = 0; width < HRI_GEMM_WIDTH_COUNT; width++) t.code[row][width] = (uint8_t)code_for(level, code, row);
  return t;
}

static hri_gemm_code shipped_code(const hri_gemm_machine *m) {
  if (!hri_isa_has(m->level, HRI_ISA_AVX512_BF16)) return HRI_GEMM_FMA;
  if (hri_isa_has(m->level, HRI_ISA_AMX)) return HRI_GEMM_TILES;
  return m->pairs == HRI_PAIRS_FULL ? HRI_GEMM_DOT : HRI_GEMM_FMA;
}

hri_gemm_table hri_gemm_table_of(const hri_gemm_machine *m) {
  return m->table.given ? m->table : hri_gemm_table_by(m->level, shipped_code(m));
}

static const double TIE = 1.05;

hri_gemm_table hri_gemm_table_fastest(hri_isa level, const hri_gemm_table *shipped, const hr_code_rates *rates) {
  hri_gemm_table t = *shipped;
  for (uint32_t row = 0; row < HRI_GEMM_ROW_COUNT; row++)
    for (int width = 0; width < HRI_GEMM_WIDTH_COUNT; width++) {
      double best = rates->flops[t.code[row][width]][row][width] * TIE;
      if (!(best > 0)) continue; /* nothing to compare with */
      for (int code = 0; code < HRI_GEMM_CODE_COUNT; code++)
        if (hri_gemm_has(level, (hri_gemm_code)code, row) && rates->flops[code][row][width] > best) {
          best = rates->flops[code][row][width];
          t.code[row][width] = (uint8_t)code;
        }
    }
  return t;
}

/* ---- tables as text ---- */

#define VERSION "products 2, bf16 by "

static bool same_codes(const hri_gemm_table *a, const hri_gemm_table *b) {
  return memcmp(a->code, b->code, sizeof a->code) == 0;
}

const char *hri_gemm_text(const hri_gemm_machine *m, char out[HRI_GEMM_TEXT_BYTES]) {
  hri_gemm_table t = hri_gemm_table_of(m);
  size_t used = (size_t)snprintf(out, HRI_GEMM_TEXT_BYTES, VERSION);
  for (int code = 0; code < HRI_GEMM_CODE_COUNT; code++) {
    hri_gemm_table uniform = hri_gemm_table_by(m->level, (hri_gemm_code)code);
    if (!same_codes(&t, &uniform)) continue;
    (void)snprintf(out + used, HRI_GEMM_TEXT_BYTES - used, "%s", code_names[code]);
    return out;
  }
  for (int row = 0; row < HRI_GEMM_ROW_COUNT; row++) {
    used += (size_t)snprintf(out + used, HRI_GEMM_TEXT_BYTES - used, "%s%s ", row ? ", " : "", row_names[row]);
    for (int width = 0; width < HRI_GEMM_WIDTH_COUNT; width++) out[used++] = code_names[t.code[row][width]][0];
    out[used] = 0;
  }
  assert(used < HRI_GEMM_TEXT_BYTES);
  return out;
}

/* One row, "dx fdd"; what follows it, NULL when it is none. */
static const char *parse_row(const char *at, uint32_t row, hri_isa level, hri_gemm_table *t) {
  size_t length = strlen(row_names[row]);
  if (strncmp(at, row_names[row], length) != 0 || at[length] != ' ') return NULL;
  at += length + 1;
  for (int width = 0; width < HRI_GEMM_WIDTH_COUNT; width++, at++) {
    int code = 0;
    while (code < HRI_GEMM_CODE_COUNT && code_names[code][0] != *at) code++;
    if (code == HRI_GEMM_CODE_COUNT || !hri_gemm_has(level, (hri_gemm_code)code, row)) return NULL;
    t->code[row][width] = (uint8_t)code;
  }
  return at;
}

bool hri_gemm_parse(const char *text, hri_isa level, hri_gemm_table *table) {
  hri_gemm_table t = {.given = true};
  if (strncmp(text, VERSION, strlen(VERSION)) != 0) return false;
  text += strlen(VERSION);
  for (int code = 0; code < HRI_GEMM_CODE_COUNT; code++) {
    if (strcmp(text, code_names[code]) != 0) continue;
    if (!hri_gemm_has(level, (hri_gemm_code)code, 1)) return false;
    *table = hri_gemm_table_by(level, (hri_gemm_code)code);
    return true;
  }
  for (uint32_t row = 0; row < HRI_GEMM_ROW_COUNT && text; row++) {
    if (row && strncmp(text, ", ", 2) != 0) return false;
    text = parse_row(text + (row ? 2 : 0), row, level, &t);
  }
  if (!text || *text) return false;
  *table = t;
  return true;
}

hr_status hri_gemm_ask(const char *asked, hri_gemm_machine *m, hr_error *error) {
  m->table.given = false;
  if (strcmp(asked, "shipped") == 0 || hri_gemm_parse(asked, m->level, &m->table)) return HR_OK;
  (void)hri_fail(error, HR_ERROR_USAGE, "the products of the device are '%.63s', which %s does not compute", asked,
                 hri_isa_name(m->level));
  return hri_hint(error, HR_ERROR_USAGE, "\"shipped\", or what a plan for such a CPU says: \"" VERSION "fma\"");
}

/* ---- decisions ---- */

/* What a level and a shape have no use for goes by multiply-adds. */
static hri_gemm_code possible(hri_isa level, hri_gemm_code code, const hri_gemm_shape *s) {
  if (s->type != HRI_REAL_BF16 || s->mixed) return HRI_GEMM_FMA;
  return code_for(level, code, hri_gemm_row_of(s));
}

hr_status hri_gemm_decide_for(hri_isa level, hri_gemm_code code, const hri_gemm_shape *s, hri_gemm_decision *how,
                              hr_error *error) {
  memset(how, 0, sizeof *how);
  HRI_TRY(check(s, error));
  how->code = possible(level, code, s);
  how->scratch_bytes = hri_gemm_scratch(level, how->code, s);
  how->packed_bytes = s->packed ? hri_gemm_panel_bytes(level, how->code, s) : 0;
  return how->scratch_bytes < INT64_MAX
             ? HR_OK
             : hri_fail(error, HR_ERROR_USAGE, "the scratch of a matrix product does not fit 64 bits");
}

/* The code of a shape's class, without making the whole table. */
static hri_gemm_code chosen(const hri_gemm_machine *m, const hri_gemm_shape *s) {
  const uint32_t row = hri_gemm_row_of(s);
  return m->table.given ? (hri_gemm_code)m->table.code[row][hri_gemm_width_of(s)]
                        : code_for(m->level, shipped_code(m), row);
}

hr_status hri_gemm_decide(const hri_gemm_machine *m, const hri_gemm_shape *s, hri_gemm_decision *how, hr_error *error) {
  HRI_TRY(check(s, error));
  return hri_gemm_decide_for(m->level, chosen(m, s), s, how, error);
}
