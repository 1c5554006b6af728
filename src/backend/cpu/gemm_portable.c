/* Matrix product of our own: the path without a library, and for shapes that the library serves badly.
 * Compiled once per instruction level (HRI_ISA).
 *
 * The classical scheme (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008): b is packed
 * in panels of TILE_COLUMNS columns for DEPTH_BLOCK terms at a time, shared by the team; each thread packs a block of
 * rows of a in panels of TILE_ROWS and multiplies the two, one register tile at a time. A panel of b stays in the first
 * cache, a block of a in the second. Packing also resolves all three transpositions, so that one inner loop serves
 * them, and widens bf16: all arithmetic is fp32.
 *
 * Bits: an element of c is the sum over blocks of DEPTH_BLOCK terms, each block summed in order by one thread in one
 * lane, and the blocks added in order. How rows and columns are dealt out, by tiles or threads, does not enter. Tiles
 * at the edge compute with zeros and go through the same operations. Where c is bf16 and there are several blocks of
 * terms, their sums stand in fp32 scratch until the last one (for some rows at a time), so that c is rounded once.
 *
 * FORWARD with few rows (generation) is bound by reading w and reads it once, with plain dot products. bf16 comes in
 * pairs: as the upper and lower half of 32-bit words, both are widened by one operation on a whole vector, and the few
 * rows of x are brought into the same order beforehand. */
#include <string.h>

#include <omp.h>

#include "base/mem.h"
#include "backend/cpu/gemm_providers.h"
#include "ops/vmath.h"

#ifndef HRI_ISA
#define HRI_ISA base
#endif
#define PASTE_(name, isa) name##_##isa
#define PASTE(name, isa) PASTE_(name, isa)

/* TILE_ROWS x 2 vectors of sums, two vectors of b and a broadcast fill the registers (32, else 16). */
#if defined(__AVX512F__)
#define LEVEL HRI_ISA_AVX512
#define TILE_ROWS HRI_PORTABLE_ROWS_AVX512
_Static_assert((int)HRI_LANES == (int)HRI_PORTABLE_LANES_AVX512, "as scratch is laid out");
#elif defined(__AVX2__)
#define LEVEL HRI_ISA_AVX2
#define TILE_ROWS HRI_PORTABLE_ROWS_AVX2
_Static_assert((int)HRI_LANES == (int)HRI_PORTABLE_LANES_AVX2, "as scratch is laid out");
#else
#define LEVEL HRI_ISA_BASE
#define TILE_ROWS HRI_PORTABLE_ROWS_BASE
_Static_assert((int)HRI_LANES == (int)HRI_PORTABLE_LANES_BASE, "as scratch is laid out");
#endif
#define LANES HRI_LANES
#define TILE_COLUMNS (2 * LANES)

enum {
  DEPTH_BLOCK = HRI_PORTABLE_DEPTH,
  COLUMN_BLOCK = HRI_PORTABLE_COLUMNS,
  DOT_TOGETHER = 4, /* rows of x multiplied with one row of w at a time */
  DOT_SUMS = 4      /* vectors of sums per dot product */
};

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline))

typedef hri_vf vf;

INLINE vf load(const float *p) { return hri_vload(p); }
INLINE void store(float *p, vf v) { hri_vstore(p, v); }
INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t blocks(int64_t count, int64_t size) { return (count + size - 1) / size; }

/* ---- packing ---- */

/* to[i * width + r] = from(r, i) for `width` rows or columns r, of which `count` exist (the rest are zero), and `depth`
 * terms i. `across` is the distance of neighbours r, `along` that of neighbours i; one of them is 1. */
INLINE void pack_straight(float *to, const void *from, hri_real type, int64_t along, int64_t count, int64_t depth,
                          int64_t width) {
  for (int64_t i = 0; i < depth; i++, to += width) {
    const void *line = hri_real_from(from, i * along, type);
    if (count == width) {
      for (int64_t r = 0; r < width; r++) to[r] = hri_real_get(line, r, type);
    } else {
      for (int64_t r = 0; r < count; r++) to[r] = hri_real_get(line, r, type);
      for (int64_t r = count; r < width; r++) to[r] = 0;
    }
  }
}

/* Transposed: a cache line of each row at a time, so that lines are fetched once and writes stay in the first cache. */
INLINE void pack_transposed(float *to, const void *from, hri_real type, int64_t across, int64_t count, int64_t depth,
                            int64_t width) {
  enum { LINE = 16 };
  for (int64_t i = 0; i < depth; i += LINE) {
    int64_t some = least(LINE, depth - i);
    for (int64_t r = 0; r < width; r++) {
      const void *line = hri_real_from(from, r * across + i, type);
      float *column = to + i * width + r;
      if (r >= count) {
        for (int64_t j = 0; j < some; j++) column[j * width] = 0;
      } else if (some == LINE) {
        UNROLL for (int64_t j = 0; j < LINE; j++) column[j * width] = hri_real_get(line, j, type);
      } else {
        for (int64_t j = 0; j < some; j++) column[j * width] = hri_real_get(line, j, type);
      }
    }
  }
}

INLINE void pack_panel(float *to, const void *from, hri_real type, int64_t across, int64_t along, int64_t count,
                       int64_t depth, int64_t width) {
  if (across == 1 && type == HRI_REAL_BF16) pack_straight(to, from, HRI_REAL_BF16, along, count, depth, width);
  else if (across == 1) pack_straight(to, from, HRI_REAL_F32, along, count, depth, width);
  else if (type == HRI_REAL_BF16) pack_transposed(to, from, HRI_REAL_BF16, across, count, depth, width);
  else pack_transposed(to, from, HRI_REAL_F32, across, count, depth, width);
}

/* ---- register tile ---- */

/* Where a tile of sums goes and how. */
typedef struct target {
  float *sums; /* first element of what stands there in fp32, and of where it goes unless `rounded` is set */
  int64_t stride;
  hri_bf16 *rounded; /* first element of the finished tile in bf16, or NULL */
  int64_t rounded_stride;
  const float *bias; /* of the first column, or NULL */
  bool add;
  int64_t rows, columns; /* that exist */
} target;

INLINE void finish_full(const target *t, vf sums[TILE_ROWS][2]) {
  UNROLL for (int r = 0; r < TILE_ROWS; r++) {
    float *c = t->sums + r * t->stride;
    UNROLL for (int j = 0; j < 2; j++) {
      vf v = sums[r][j];
      if (t->bias) v += load(t->bias + j * LANES);
      if (t->add) v = load(c + j * LANES) + v;
      if (t->rounded) hri_vstore_bf16(t->rounded + r * t->rounded_stride + j * LANES, v);
      else store(c + j * LANES, v);
    }
  }
}

static __attribute__((noinline)) void finish_part(const target *t, const float *sums) {
  for (int64_t r = 0; r < t->rows; r++)
    for (int64_t j = 0; j < t->columns; j++) {
      float v = sums[r * TILE_COLUMNS + j], *c = t->sums + r * t->stride + j;
      if (t->bias) v += t->bias[j];
      if (t->add) v = *c + v;
      if (t->rounded) t->rounded[r * t->rounded_stride + j] = hri_bf16_round(v);
      else *c = v;
    }
}

/* c tile (=|+=) a panel . b panel over `depth` terms. */
static void tile(int64_t depth, const float *a, const float *b, const target *t) {
  vf sums[TILE_ROWS][2];
  UNROLL for (int r = 0; r < TILE_ROWS; r++) sums[r][0] = sums[r][1] = (vf){0};
  for (int64_t i = 0; i < depth; i++, a += TILE_ROWS, b += TILE_COLUMNS) {
    vf b0 = load(b), b1 = load(b + LANES);
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
      vf x = hri_vset(a[r]);
      sums[r][0] += x * b0;
      sums[r][1] += x * b1;
    }
  }
  if (t->rows == TILE_ROWS && t->columns == TILE_COLUMNS) {
    finish_full(t, sums);
  } else {
    float part[TILE_ROWS * TILE_COLUMNS];
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
      store(part + r * TILE_COLUMNS, sums[r][0]);
      store(part + r * TILE_COLUMNS + LANES, sums[r][1]);
    }
    finish_part(t, part);
  }
}

/* ---- the blocked product ---- */

typedef struct work {
  hri_portable_layout l;
  hri_real type, out;
  const void *a, *b;
  const float *bias;
  void *c;
  float *packed_b, *stage, *packed_a;
  bool accumulate;
} work;

/* One thread's share of packing columns [column, column + columns) and terms [first, first + depth) of b. */
static void pack_b(const work *w, int64_t column, int64_t columns, int64_t first, int64_t depth, int thread, int team) {
  const hri_gemm_product *p = &w->l.p;
  int64_t panels = blocks(columns, TILE_COLUMNS), begin = panels * thread / team, end = panels * (thread + 1) / team;
  for (int64_t panel = begin; panel < end; panel++) {
    int64_t at = panel * TILE_COLUMNS;
    const void *from = hri_real_from(w->b, first * p->b_depth + (column + at) * p->b_column, w->type);
    float *to = w->packed_b + at * depth;
    pack_panel(to, from, w->type, p->b_column, p->b_depth, least(TILE_COLUMNS, columns - at), depth, TILE_COLUMNS);
  }
}

static void pack_a(const work *w, float *to, int64_t row, int64_t rows, int64_t first, int64_t depth) {
  const hri_gemm_product *p = &w->l.p;
  for (int64_t at = 0; at < rows; at += TILE_ROWS) {
    const void *from = hri_real_from(w->a, (row + at) * p->a_row + first * p->a_depth, w->type);
    pack_panel(to + at * depth, from, w->type, p->a_row, p->a_depth, least(TILE_ROWS, rows - at), depth, TILE_ROWS);
  }
}

/* The part of the product between two barriers: a block of columns, a block of terms, and the rows of c (all of them,
 * or as many as the stage holds). */
typedef struct step {
  int64_t row, rows, column, columns, first, depth;
} step;

/* How the rows and the packed columns are dealt out: `row_parts` blocks of `rows` rows times `column_parts` groups of
 * panels. Large products cut rows evenly over the team; when there are too few rows, columns are cut as well. */
typedef struct deal {
  int64_t rows, row_parts, column_parts;
} deal;

static deal deal_out(const work *w, int64_t rows, int64_t panels, int team) {
  deal d = {.row_parts = blocks(rows, w->l.rows), .column_parts = 1};
  int64_t tiles = blocks(rows, TILE_ROWS);
  if (tiles >= team) d.row_parts = blocks(d.row_parts, team) * team;
  d.rows = blocks(tiles, d.row_parts) * TILE_ROWS;
  d.row_parts = blocks(rows, d.rows);
  if (d.row_parts % team != 0) d.column_parts = least(panels, d.row_parts < team ? blocks(team, d.row_parts) : team);
  return d;
}

/* The target of the tile at the step's row `row` (counted from its first) and column `column`. */
INLINE target target_of(const work *w, const step *at, int64_t row, int64_t column) {
  int64_t width = w->l.p.columns, in_c = (at->row + row) * width + at->column + column;
  bool begins = at->first == 0, ends = at->first + at->depth == w->l.p.depth;
  target t = {.stride = width,
              .rounded_stride = width,
              .bias = begins && w->bias ? w->bias + at->column + column : NULL,
              .add = w->accumulate || !begins,
              .rows = least(TILE_ROWS, at->rows - row),
              .columns = least(TILE_COLUMNS, at->columns - column)};
  if (w->out == HRI_REAL_F32) {
    t.sums = (float *)w->c + in_c;
    return t;
  }
  if (ends) t.rounded = (hri_bf16 *)w->c + in_c;
  t.stride = w->l.columns;
  t.sums = w->stage + row * t.stride + column; /* untouched when there is only one block of terms */
  return t;
}

/* All tiles of one row block and one group of panels. */
static void multiply(const work *w, const step *at, const float *packed_a, int64_t row, int64_t rows,
                     int64_t first_panel, int64_t end_panel) {
  for (int64_t panel = first_panel; panel < end_panel; panel++)
    for (int64_t r = 0; r < rows; r += TILE_ROWS) {
      target t = target_of(w, at, row + r, panel * TILE_COLUMNS);
      tile(at->depth, packed_a + r * at->depth, w->packed_b + panel * TILE_COLUMNS * at->depth, &t);
    }
}

static void multiply_step(const work *w, const step *at, int thread, int team) {
  int64_t panels = blocks(at->columns, TILE_COLUMNS), packed = -1;
  deal d = deal_out(w, at->rows, panels, team);
  float *packed_a = w->packed_a + (int64_t)w->l.a_floats * thread;
  int64_t tasks = d.row_parts * d.column_parts, begin = tasks * thread / team, end = tasks * (thread + 1) / team;
  for (int64_t task = begin; task < end; task++) {
    int64_t part = task / d.column_parts, group = task % d.column_parts;
    int64_t row = part * d.rows, rows = least(d.rows, at->rows - row);
    if (part != packed) pack_a(w, packed_a, at->row + row, rows, at->first, at->depth);
    packed = part;
    multiply(w, at, packed_a, row, rows, panels * group / d.column_parts, panels * (group + 1) / d.column_parts);
  }
}

/* What each thread of the team does. Nobody may overwrite packed b before all have used it: hence two barriers. */
static void product_thread(const work *w, int thread, int team) {
  const hri_gemm_product *p = &w->l.p;
  int64_t rows = w->l.stage_rows ? w->l.stage_rows : p->rows;
  for (int64_t row = 0; row < p->rows; row += rows)
    for (int64_t column = 0; column < p->columns; column += COLUMN_BLOCK)
      for (int64_t first = 0; first < p->depth; first += DEPTH_BLOCK) {
        step at = {row,   least(rows, p->rows - row),          column, least(COLUMN_BLOCK, p->columns - column),
                   first, least(DEPTH_BLOCK, p->depth - first)};
        pack_b(w, column, at.columns, first, at.depth, thread, team);
        if (team > 1) {
#pragma omp barrier
        }
        multiply_step(w, &at, thread, team);
        if (team > 1) {
#pragma omp barrier
        }
      }
}

/* ---- few rows: dot products ---- */

/* Vector number `i` of a row of w: elements i * LANES on; in bf16 the even ones of a pair of vectors, then the odd
 * ones. */
INLINE vf row_vector(const void *row, int64_t i, hri_real type) {
  typedef hri_vu words __attribute__((aligned(2), may_alias));
  hri_vu pair;
  if (type == HRI_REAL_F32) return load((const float *)row + i * LANES);
  pair = *(const words *)((const hri_bf16 *)row + (i & ~1) * LANES);
  return (vf)(i & 1 ? pair & 0xFFFF0000u : pair << 16);
}

/* x in fp32, in the order of row_vector, zeros behind it. */
static void widen_row(float *to, const hri_bf16 *x, int64_t depth) {
  for (int64_t i = 0; i < depth; i += 2 * LANES)
    for (int64_t j = 0; j < 2 * LANES; j++)
      to[i + (j & 1) * LANES + j / 2] = i + j < depth ? hri_bf16_widen(x[i + j]) : 0;
}

/* Dot products of `count` rows of x, `stride` apart, with one row of w. Vector i goes to sum i % DOT_SUMS. */
INLINE void dots(const float *x, int64_t stride, const void *row, hri_real type, int64_t depth, int count,
                 float *results) {
  vf sums[DOT_TOGETHER][DOT_SUMS] = {{{0}}};
  int64_t whole = depth / (DOT_SUMS * LANES) * DOT_SUMS, i = 0;
  _Alignas(float) unsigned char rest[DOT_SUMS * LANES * sizeof(float)] = {0};
  for (; i < whole; i += DOT_SUMS) {
    UNROLL for (int j = 0; j < DOT_SUMS; j++) {
      vf b = row_vector(row, i + j, type);
      UNROLL for (int r = 0; r < count; r++) sums[r][j] += load(x + r * stride + (i + j) * LANES) * b;
    }
  }
  if (whole * LANES < depth) {
    int64_t left = depth - whole * LANES;
    memcpy(rest, hri_real_from(row, whole * LANES, type), (size_t)left * hri_real_bytes(type));
    for (int j = 0; j < DOT_SUMS && j / 2 * 2 * LANES < left; j++) {
      vf b = row_vector(rest, j, type);
      for (int r = 0; r < count; r++) {
        const float *at = x + r * stride + (whole + j) * LANES;
        int64_t there = type == HRI_REAL_BF16 ? LANES : least(LANES, left - j * LANES);
        if (there > 0) sums[r][j] += hri_vload_n(at, there) * b;
      }
    }
  }
  UNROLL for (int r = 0; r < count; r++) results[r] = hri_vsum((sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3]));
}

INLINE void dots_of_type(const work *w, const float *x, int64_t stride, const void *row, hri_real type,
                         float *results) {
  int64_t depth = w->l.p.depth, r = 0;
  for (; r + DOT_TOGETHER <= w->l.p.rows; r += DOT_TOGETHER)
    dots(x + r * stride, stride, row, type, depth, DOT_TOGETHER, results + r);
  switch (w->l.p.rows - r) {
  case 1: dots(x + r * stride, stride, row, type, depth, 1, results + r); break;
  case 2: dots(x + r * stride, stride, row, type, depth, 2, results + r); break;
  case 3: dots(x + r * stride, stride, row, type, depth, 3, results + r); break;
  default: break;
  }
}

static void dots_thread(const work *w, int thread, int team) {
  const hri_gemm_product *p = &w->l.p;
  int64_t begin = p->columns * thread / team, end = p->columns * (thread + 1) / team, stride = p->depth;
  const float *x = w->a;
  if (w->type == HRI_REAL_BF16) {
    float *wide = w->packed_a + (int64_t)w->l.a_floats * thread;
    stride = blocks(p->depth, 2 * LANES) * 2 * LANES;
    for (int64_t r = 0; r < p->rows; r++) widen_row(wide + r * stride, (const hri_bf16 *)w->a + r * p->depth, p->depth);
    x = wide;
  }
  for (int64_t j = begin; j < end; j++) {
    float results[HRI_GEMM_DOT_ROWS];
    const void *row = hri_real_from(w->b, j * p->depth, w->type);
    if (w->type == HRI_REAL_BF16) dots_of_type(w, x, stride, row, HRI_REAL_BF16, results);
    else dots_of_type(w, x, stride, row, HRI_REAL_F32, results);
    for (int64_t r = 0; r < p->rows; r++) {
      float v = results[r];
      if (w->bias) v += w->bias[j];
      if (w->accumulate) v = ((float *)w->c)[r * p->columns + j] + v;
      hri_real_put(w->c, r * p->columns + j, v, w->out);
    }
  }
}

/* ---- finishing sums of pieces ---- */

static void finish_range(const float *sums, void *c, hri_real out, int64_t begin, int64_t end, bool accumulate) {
  for (int64_t i = begin; i < end; i += LANES) {
    int64_t n = least(LANES, end - i);
    vf v = hri_vload_n(sums + i, n);
    if (accumulate) v = hri_vload_real_n(c, i, n, out) + v;
    hri_vstore_real_n(c, i, v, n, out);
  }
}

static void finish(const float *sums, void *c, hri_real out, int64_t count, bool accumulate, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    int64_t thread = omp_get_thread_num(), team = omp_get_num_threads();
    finish_range(sums, c, out, count * thread / team, count * (thread + 1) / team, accumulate);
  }
}

/* ---- entry ---- */

static void run(const hri_gemm_shape *s, const void *a, const void *b, const float *bias, void *c, void *scratch) {
  work w = {.l = hri_portable_layout_of(LEVEL, s),
            .type = s->type,
            .out = s->out,
            .a = a,
            .b = b,
            .bias = s->bias ? bias : NULL,
            .c = c,
            .packed_b = scratch,
            .accumulate = s->accumulate};
  void (*part)(const work *, int, int) = hri_gemm_takes_dots(s) ? dots_thread : product_thread;
  if (scratch) {
    w.stage = w.packed_b + w.l.b_floats;
    w.packed_a = w.stage + w.l.stage_floats;
  }
  if (s->threads == 1) {
    part(&w, 0, 1);
    return;
  }
#pragma omp parallel num_threads(s->threads)
  part(&w, omp_get_thread_num(), omp_get_num_threads());
}

hri_gemm_portable PASTE(hri_gemm_portable, HRI_ISA)(void) { return (hri_gemm_portable){.run = run, .finish = finish}; }
