/* Matrix products of our own: how a product is cut into tiles, packed, and dealt out to the team.
 *
 * The classical scheme (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008) with its roles
 * turned: for some rows and one block of the depth the team packs a into panels that all share; then each thread takes
 * groups of columns, packs b for them into the second cache of its core, and goes over all the rows: a panel of a stays
 * in the first cache for the tiles of a group. So b is packed once, by who uses it, and there is one wait per block of
 * the depth. A thread by itself packs a while it multiplies the first group, and its tiles fetch what is packed next.
 * Packing also resolves the transpositions, so that one inner loop serves all three kinds.
 *
 * Bits: an element of c is one chain of multiply-adds over its terms, ascending, from zero or, when it accumulates,
 * from c. Then comes the bias, and the rounding where c is narrow. A block of the depth continues the chain where the one
 * before stopped: in c, or where that is narrow in fp32 scratch (the stage); a narrow c that is added to is widened as a tile takes it up. So the bits do not depend on tiles, blocks,
 * threads, rows or columns computed beside, nor on whether b came packed. Where the shape says so (in_blocks), a block of
 * the depth is a chain from zero, to which what there was before is added; such blocks are the same on every level. */
#include "backend/cpu/gemm_ours.h"

#include <assert.h>

enum {
  CHUNKS_PER_THREAD = 3,
  TOGETHER = 7,       /* panels of a whose lines lie across, packed at once: so lines of memory are read whole */
  FEW_LINES = 2,      /* at a time, of what the next panels of a are packed from */
  LEAST_TILES = 8,    /* of rows, that a group of b is packed for */
  FEW_BYTES = 1 << 20 /* of w, that a chunk of few rows reads: 15 us and more, or a second thread costs what it gains */
};

typedef struct work {
  const hri_gemm_kernels *kernels;
  const hri_gemm_shape *shape;
  hri_gemm_layout l;
  hri_gemm_words how_a, how_b;
  const void *a, *b;
  const float *bias;
  void *c;
  float *packed_a, *stage, *packed_b;
  /* what is being done */
  int64_t row, rows, column, columns; /* of c */
  int64_t word, words;                /* of the depth */
  int64_t panels_a, groups, parts;    /* groups of columns, parts of rows */
  int threads;
  bool fused; /* the first group is multiplied while a is packed */
} work;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t blocks(int64_t count, int64_t size) { return (count + size - 1) / size; }

/* The first row of panel `i`. All are whole but the last two, which share what is left - or are whole too, with rows
 * beyond `rows`. */
static int64_t panel_row(const work *w, int64_t i) {
  int64_t height = w->l.tile_rows, rest = w->rows % height;
  if (w->l.whole_rows) return i * height;
  if (i < w->panels_a - 1 || i == 0 || !rest) return least(i * height, w->rows);
  if (i == w->panels_a) return w->rows;
  return w->rows - (height + rest) / 2;
}

/* ---- blocks ---- */

/* Enough pieces for every thread to take some, whoever of them is slow. Groups of b first: they are packed once. A
 * thread by itself packs a while it multiplies; several would each pack the first group, which costs what it gains. */
static void deal_out(work *w) {
  int64_t panels = blocks(w->columns, w->l.tile_columns),
          wanted = w->threads > 1 ? (int64_t)w->threads * CHUNKS_PER_THREAD : 1;
  w->panels_a = blocks(w->rows, w->l.tile_rows);
  w->fused = w->kernels->fetches && w->threads == 1;
  w->groups = least(panels, most(blocks(panels, w->l.group), wanted));
  w->parts = most(1, least(blocks(wanted, w->groups), w->panels_a / LEAST_TILES));
}

/* The block that begins at w->row, w->column, w->word; false behind the last one. */
static bool cut_block(work *w) {
  if (w->row >= w->l.p.rows) return false;
  w->rows = least(w->l.rows, w->l.p.rows - w->row);
  w->columns = least(w->l.stage_columns ? w->l.stage_columns : w->l.p.columns, w->l.p.columns - w->column);
  w->words = least(w->l.block_words, w->l.words - w->word);
  deal_out(w);
  return true;
}

/* The next one: the depth first, since the chains go on, then columns, then rows. */
static bool next_block(work *w) {
  w->word += w->words;
  if (w->word >= w->l.words) w->word = 0, w->column += w->columns;
  if (w->column >= w->l.p.columns) w->column = 0, w->row += w->rows;
  return cut_block(w);
}

/* ---- packing ---- */

/* The lines that packing will read. Where it begins within a line, the last one of a row is left out. */
static hri_gemm_ahead lines_of(const hri_gemm_panels *p) {
  int64_t size = (int64_t)hri_real_bytes(hri_gemm_words_type(p->how)), rows = p->along == 1 ? p->lines : p->terms,
          bytes = (p->along == 1 ? p->terms : p->lines) * size, stride = (p->along == 1 ? p->across : p->along) * size,
          lines = blocks(bytes, HRI_GEMM_ALIGNMENT);
  if (rows <= 0 || bytes <= 0) return (hri_gemm_ahead){0};
  return (hri_gemm_ahead){p->from, rows * lines, lines, lines, stride - lines * HRI_GEMM_ALIGNMENT};
}

/* Rows [row, row + lines) of a, for the words at hand; where they go is the caller's. */
static hri_gemm_panels lines_of_a(const work *w, int64_t row, int64_t lines) {
  const hri_gemm_product *p = &w->l.p;
  int64_t term = w->word * w->l.word_terms;
  return (hri_gemm_panels){.how = w->how_a,
                           .from = hri_real_from(w->a, (w->row + row) * p->a_row + term * p->a_depth, w->shape->type),
                           .across = p->a_row,
                           .along = p->a_depth,
                           .lines = lines,
                           .terms = least(p->depth - term, w->words * w->l.word_terms),
                           .words = w->words};
}

/* What panels [begin, end) are packed from. */
static hri_gemm_ahead lines_of_panels(const work *w, int64_t begin, int64_t end) {
  int64_t row = panel_row(w, begin);
  hri_gemm_panels a = lines_of_a(w, row, least(panel_row(w, end), w->rows) - row);
  return lines_of(&a);
}

static void pack_a(void *context, int64_t begin, int64_t end, int thread) {
  const work *w = context;
  int64_t full = 0;
  (void)thread;
  /* Panels of one height together. */
  for (int64_t i = begin; i < end; i += full) {
    int64_t row = panel_row(w, i), height = panel_row(w, i + 1) - row;
    hri_gemm_panels panels;
    for (full = 1; i + full < end && panel_row(w, i + full + 1) - panel_row(w, i + full) == height;) full++;
    panels = lines_of_a(w, row, least(full * height, w->rows - row));
    panels.width = height;
    panels.panels = full;
    panels.to = (uint32_t *)(void *)(w->packed_a + row * w->words);
    panels.panel_stride = height * w->words;
    w->kernels->pack_a(&panels);
  }
}

/* Panels [first, first + count) of b, counted from column `column` of c, for `words` words from `word` on. */
static hri_gemm_panels panels_of_b(const work *w, int64_t column, int64_t first, int64_t count, int64_t word,
                                   int64_t words, float *to) {
  const hri_gemm_product *p = &w->l.p;
  int64_t term = word * w->l.word_terms;
  column += first * w->l.tile_columns;
  return (hri_gemm_panels){.how = w->how_b,
                           .from =
                               hri_real_from(w->b, term * p->b_depth + column * p->b_column, hri_gemm_b_type(w->shape)),
                           .across = p->b_column,
                           .along = p->b_depth,
                           .lines = least(p->columns - column, count * w->l.tile_columns),
                           .terms = least(p->depth - term, words * w->l.word_terms),
                           .panels = count,
                           .width = w->l.tile_columns,
                           .words = words,
                           .to = (uint32_t *)(void *)to,
                           .panel_stride = words * w->l.tile_columns};
}

/* ---- tiles ---- */

/* What all tiles of one multiplication share. */
static hri_gemm_tile tile_of(const work *w) {
  bool rounds = w->shape->out != HRI_REAL_F32, ends = w->word + w->words == w->l.words;
  hri_gemm_tile t = {.depth = w->words,
                     .go_on = w->word > 0 || (w->shape->accumulate && !rounds),
                     .apart = w->shape->in_blocks,
                     .rounded_to = w->shape->out,
                     .rounded_stride = w->l.p.c_row,
                     .stride = rounds ? w->l.stage_columns : w->l.p.c_row};
  t.next_stride = rounds && ends && !t.go_on ? t.rounded_stride * 2 : t.stride * 4;
  return t;
}

/* Row `row` of those packed, column `column` of c. */
static void target(const work *w, int64_t row, int64_t column, hri_gemm_tile *t) {
  int64_t in_c = (w->row + row) * w->l.p.c_row + column;
  bool ends = w->word + w->words == w->l.words, rounds = w->shape->out != HRI_REAL_F32;
  t->columns = least(w->l.tile_columns, w->l.p.columns - column);
  t->bias = ends && w->bias ? w->bias + column : NULL;
  t->rounded = ends && rounds ? (uint16_t *)w->c + in_c : NULL;
  t->start = rounds && w->shape->accumulate && w->word == 0 ? (const uint16_t *)w->c + in_c : NULL;
  t->sums = rounds ? w->stage + row * t->stride + column - w->column : (float *)w->c + in_c;
}

/* Panels [first, first + count) of b, at `b`, times panels [begin, end) of a. Where a tile goes is found while the one
 * before is computed, which fetches it. The tiles of one panel of a fetch the next one, those of the last one panel
 * `behind`: a is too large for the second cache, and no processor foresees a panel's end. Of `source` they fetch `rate`
 * lines at a time, what comes first first. */
static void multiply(const work *w, const float *b, int64_t first, int64_t count, int64_t begin, int64_t end,
                     int64_t behind, hri_gemm_ahead source[2], int64_t rate) {
  int64_t panel_floats = w->words * w->l.tile_columns, left = w->column + first * w->l.tile_columns,
          fetches = w->words / HRI_GEMM_STEPS;
  hri_gemm_tile t = tile_of(w), next = t;
  t.source_lines = rate;
  t.ahead_lines = blocks(blocks(w->l.tile_rows * w->words * (int64_t)sizeof(float), HRI_GEMM_ALIGNMENT),
                         most(count, 1) * most(fetches, 1));
  if (begin < end) target(w, panel_row(w, begin), left, &next);
  for (int64_t i = begin; i < end; i++) {
    int64_t row = panel_row(w, i), height = panel_row(w, i + 1) - row, column = left;
    t.a = w->packed_a + row * w->words;
    t.rows = least(height, w->rows - row);
    t.ahead = (const char *)(w->packed_a + (i + 1 < end ? row + height : panel_row(w, behind)) * w->words);
    t.b = b;
    for (int64_t j = 0; j < count; j++, t.b = (const float *)t.b + panel_floats) {
      bool last = j + 1 == count;
      t.columns = next.columns, t.bias = next.bias, t.rounded = next.rounded, t.sums = next.sums, t.start = next.start;
      column = last ? left : column + w->l.tile_columns;
      target(w, last && i + 1 < end ? row + height : row, column, &next);
      t.next = next.rounded && !t.go_on ? (const char *)next.rounded : (const char *)next.sums;
      t.source = source[0].left > 0 ? &source[0] : &source[1];
      w->kernels->tile(&t);
      t.ahead += t.ahead_lines * fetches * HRI_GEMM_ALIGNMENT;
    }
  }
}

/* The panels of a group of columns: from which on, and what they are packed from. */
static int64_t group_begin(const work *w, int64_t group) {
  return blocks(w->columns, w->l.tile_columns) * group / w->groups;
}
static hri_gemm_panels group_of_b(const work *w, int64_t group, float *to) {
  int64_t first = group_begin(w, group);
  return panels_of_b(w, w->column, first, group_begin(w, group + 1) - first, w->word, w->words, to);
}

/* The panels of b of a group at hand, packed in `own` unless they are or came packed. */
static const float *packed_group(const work *w, int64_t group, bool there, float *own) {
  hri_gemm_panels panels = group_of_b(w, group, own);
  int64_t all = blocks(w->l.p.columns, w->l.tile_columns) * w->l.tile_columns;
  if (w->shape->packed)
    return (const float *)w->b + w->word * all + (w->column + group_begin(w, group) * w->l.tile_columns) * w->words;
  if (!there) w->kernels->pack(&panels);
  return own;
}

/* What the group of b behind `group` is packed from. */
static hri_gemm_ahead lines_behind_group(const work *w, int64_t group) {
  work next = *w;
  bool more = ++group < w->groups;
  hri_gemm_panels b;
  if (!more) more = next_block(&next), group = 0;
  if (!more || w->shape->packed) return (hri_gemm_ahead){0};
  b = group_of_b(&next, group, NULL);
  return lines_of(&b);
}

/* Panels of a are packed, a few at a time, and multiplied by the first group of b at once, while the tiles fetch what
 * the next ones are packed from, then the next group of b. So packing reads no slow memory. */
static void pack_and_multiply(work *w) {
  const float *b = packed_group(w, 0, false, w->packed_b);
  int64_t few = blocks(w->panels_a, blocks(w->panels_a, w->l.p.a_depth == 1 ? 1 : TOGETHER));
  hri_gemm_ahead source[2] = {{0}, lines_behind_group(w, 0)};
  if (w->kernels->begin) w->kernels->begin();
  for (int64_t i = 0, end; i < w->panels_a; i = end) {
    end = least(i + few, w->panels_a);
    pack_a(w, i, end, 0);
    if (end < w->panels_a) source[0] = lines_of_panels(w, end, least(end + few, w->panels_a));
    multiply(w, b, 0, group_begin(w, 1), i, end, least(end, w->panels_a - 1), source, FEW_LINES);
  }
  if (w->kernels->end) w->kernels->end();
}

/* Groups of columns times parts of rows; those of one group side by side. */
static void multiply_groups(void *context, int64_t begin, int64_t end, int thread) {
  const work *w = context;
  int64_t packed = -1;
  float *own = w->packed_b + (int64_t)w->l.b_floats * thread;
  if (w->kernels->begin) w->kernels->begin();
  for (int64_t at = begin; at < end; at++) {
    int64_t group = at / w->parts, part = at % w->parts, first = group_begin(w, group),
            row = w->panels_a * part / w->parts, row_end = w->panels_a * (part + 1) / w->parts;
    hri_gemm_ahead source[2] = {w->fused ? lines_behind_group(w, group) : (hri_gemm_ahead){0}, {0}};
    multiply(w, packed_group(w, group, group == packed, own), first, group_begin(w, group + 1) - first, row, row_end,
             row, source, 1);
    packed = group;
  }
  if (w->kernels->end) w->kernels->end();
}

/* ---- the blocked product ---- */

static void blocked(work *w, hri_team *team) {
  w->threads = hri_team_threads(team);
  for (bool more = cut_block(w); more; more = next_block(w)) {
    if (w->fused) {
      pack_and_multiply(w);
      multiply_groups(w, w->parts, w->groups * w->parts, 0);
    } else {
      hri_team_each(team, w->panels_a, most(1, w->panels_a / (4 * w->threads)), pack_a, w);
      hri_team_each(team, w->groups * w->parts, 1, multiply_groups, w);
    }
  }
}

/* ---- few rows ---- */

static void few_columns(void *context, int64_t begin, int64_t end, int thread) {
  const work *w = context;
  hri_gemm_few few = {w->shape, w->a, w->shape->k, w->b, w->bias, w->c};
  (void)thread;
  if (w->l.a_floats) few.x = w->packed_a, few.stride = (int64_t)w->l.a_floats / w->shape->m;
  w->kernels->few(&few, begin, end);
}

static void few_rows(work *w, hri_team *team) {
  const hri_gemm_shape *s = w->shape;
  int64_t stride = (int64_t)w->l.a_floats / s->m, least_columns;
  if (w->l.a_floats)
    for (int64_t r = 0; r < s->m; r++)
      w->kernels->widen(w->packed_a + r * stride, (const uint16_t *)w->a + r * s->k, s->type, s->k);
  least_columns = FEW_BYTES / (s->k * (int64_t)hri_real_bytes(s->type));
  hri_team_each(team, s->n, most(most(1, least_columns), s->n / (8 * hri_team_threads(team))), few_columns, w);
}

/* ---- entry ---- */

#define PARTS(isa)                                                                                                     \
  (hri_gemm_kernels) {                                                                                                 \
    .tile = hri_gemm_tile_##isa, .pack_a = hri_gemm_pack_##isa, .pack = hri_gemm_pack_##isa,                           \
    .few = hri_gemm_few_##isa, .widen = hri_gemm_widen_##isa                                                           \
  }

hri_gemm_ours hri_gemm_ours_at(hri_isa level, hri_gemm_code code) {
  hri_gemm_ours ours = {.level = level, .code = code, .kernels = PARTS(base)};
#if defined(__x86_64__)
  if (hri_isa_has(level, HRI_ISA_AVX2)) ours.kernels = PARTS(avx2);
  if (hri_isa_has(level, HRI_ISA_AVX512)) {
    ours.kernels = PARTS(avx512);
    ours.kernels.fetches = true;
  }
#elif defined(__aarch64__)
  if (hri_isa_has(level, HRI_ISA_NEON)) ours.kernels = PARTS(neon);
#endif
  if (code != HRI_GEMM_FMA) ours.kernels.tile = NULL;
#if defined(__x86_64__)
  if (code == HRI_GEMM_DOT && hri_isa_has(level, HRI_ISA_AVX512_BF16)) {
    ours.kernels.tile = hri_gemm_tile_avx512bf16;
    ours.kernels.few = hri_gemm_few_avx512bf16;
  }
#endif
#if defined(HRI_HAVE_AMX)
  if (code == HRI_GEMM_TILES && hri_isa_has(level, HRI_ISA_AMX)) {
    ours.kernels.tile = hri_gemm_tile_amx;
    ours.kernels.fetches = false;
    ours.kernels.begin = hri_gemm_begin_amx;
    ours.kernels.end = hri_gemm_end_amx;
    ours.kernels.pack_a = hri_gemm_pack_rows_avx512;
  }
#endif
  return ours;
}

hri_gemm_ours hri_gemm_ours_emulated(hri_isa level) {
  hri_gemm_ours ours = hri_gemm_ours_at(HRI_ISA_AMX, HRI_GEMM_TILES);
  (void)level;
#if defined(__x86_64__)
  ours.kernels.tile = hri_gemm_tile_amx_emulated;
  ours.kernels.fetches = false;
  ours.kernels.begin = hri_gemm_begin_amx_emulated;
  ours.kernels.end = hri_gemm_end_amx_emulated;
  ours.kernels.pack_a = hri_gemm_pack_rows_avx512;
  if (!hri_isa_has(level, HRI_ISA_AVX512)) {
    ours.kernels.pack_a = hri_gemm_pack_rows_amx_emulated;
    ours.kernels.pack = hri_gemm_pack_amx_emulated;
  }
#endif
  return ours;
}

static hri_gemm_words words_of(const hri_gemm_ours *ours, hri_real type) {
  if (ours->code != HRI_GEMM_FMA) return HRI_GEMM_WORDS_PAIRS;
  return type == HRI_REAL_BF16  ? HRI_GEMM_WORDS_WIDENED
         : type == HRI_REAL_F16 ? HRI_GEMM_WORDS_HALVES
                                : HRI_GEMM_WORDS_F32;
}

static work work_of(const hri_gemm_ours *ours, const hri_gemm_shape *s) {
  return (work){.kernels = &ours->kernels,
                .shape = s,
                .l = hri_gemm_layout_of(ours->level, ours->code, s),
                .how_a = words_of(ours, s->type),
                .how_b = words_of(ours, hri_gemm_b_type(s))};
}

void hri_gemm_ours_run(const hri_gemm_ours *ours, const hri_gemm_shape *s, hri_team *team, const void *a, const void *b,
                       const float *bias, void *c, void *scratch) {
  work w = work_of(ours, s);
  assert(!w.l.few || ours->code != HRI_GEMM_TILES);
  assert(hri_team_threads(team) <= s->threads && ours->kernels.tile);
  w.a = a;
  w.b = b;
  w.bias = s->bias ? bias : NULL;
  w.c = c;
  if (scratch) {
    w.packed_a = scratch;
    w.stage = w.packed_a + w.l.a_floats;
    w.packed_b = w.stage + w.l.stage_floats;
  }
  if (w.l.few) few_rows(&w, team);
  else blocked(&w, team);
}

/* One panel of one block of the depth at a time. */
static void pack_some(void *context, int64_t begin, int64_t end, int thread) {
  const work *w = context;
  int64_t panels = blocks(w->l.p.columns, w->l.tile_columns);
  (void)thread;
  for (int64_t at = begin; at < end; at++) {
    int64_t word = at / panels * w->l.block_words, words = least(w->l.block_words, w->l.words - word);
    float *to = (float *)w->c + word * panels * w->l.tile_columns + at % panels * w->l.tile_columns * words;
    hri_gemm_panels one = panels_of_b(w, 0, at % panels, 1, word, words, to);
    w->kernels->pack(&one);
  }
}

void hri_gemm_ours_pack(const hri_gemm_ours *ours, const hri_gemm_shape *s, hri_team *team, const void *b, void *to) {
  work w = work_of(ours, s);
  w.b = b;
  w.c = to;
  hri_team_each(team, blocks(w.l.words, w.l.block_words) * blocks(w.l.p.columns, w.l.tile_columns), 1, pack_some, &w);
}
