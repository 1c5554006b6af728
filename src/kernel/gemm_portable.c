/* fp32 matrix product of our own: the path without a library, and for shapes that the library serves badly.
 * Compiled once per instruction level (HRI_ISA).
 *
 * The classical scheme (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008): b is packed
 * in panels of TILE_COLUMNS columns for DEPTH_BLOCK terms at a time, shared by the team; each thread packs a block of
 * rows of a in panels of TILE_ROWS and multiplies the two, one register tile at a time. A panel of b stays in the first
 * cache, a block of a in the second. Packing also resolves all three transpositions, so that one inner loop serves them.
 *
 * Bits: an element of c is the sum over blocks of DEPTH_BLOCK terms, each block summed in order by one thread in one
 * lane, and the blocks added in order. How rows and columns are dealt out, by tiles or threads, does not enter. Tiles at
 * the edge compute with zeros and go through the same operations. FORWARD with few rows (generation) reads w once with
 * plain dot products instead; that is chosen by the shape alone. */
#include <string.h>

#include <omp.h>

#include "base/mem.h"
#include "kernel/gemm_providers.h"

#ifndef HRI_ISA
#define HRI_ISA base
#endif
#define PASTE_(name, isa) name##_##isa
#define PASTE(name, isa) PASTE_(name, isa)

/* TILE_ROWS x 2 vectors of sums, two vectors of b and a broadcast fill the registers. */
#if defined(__AVX512F__)
#define LANES 16
#define TILE_ROWS 14
#elif defined(__AVX2__)
#define LANES 8
#define TILE_ROWS 6
#else
#define LANES 4
#define TILE_ROWS 6
#endif
#define TILE_COLUMNS (2 * LANES)

enum {
  DEPTH_BLOCK = 256,                                       /* terms summed before c is touched */
  ROW_BLOCK = 24 * TILE_ROWS,                              /* rows of a packed by a thread at a time */
  COLUMN_BLOCK = 2048,                                     /* columns of b packed by the team at a time */
  DOT_ROWS = 4,                                            /* FORWARD with at most so many rows takes dot products */
  DOT_SUMS = 4                                             /* vectors of sums per dot product */
};

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE vf load(const float *p) { return *(const vf *)p; }
INLINE void store(float *p, vf v) { *(vf *)p = v; }
INLINE vf splat(float x) { return x - (vf){0}; } /* not 0 + x: that loses the sign of -0 */
INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t blocks(int64_t count, int64_t size) { return (count + size - 1) / size; }

/* ---- packing ---- */

/* to[i * width + r] = from(r, i) for `width` rows or columns r, of which `count` exist (the rest are zero), and `depth`
 * terms i. `across` is the distance of neighbours r, `along` that of neighbours i; one of them is 1. */
INLINE void pack_panel(float *to, const float *from, int64_t across, int64_t along, int64_t count, int64_t depth, int64_t width) {
  enum { LINE = 16 };
  if (across == 1) {
    for (int64_t i = 0; i < depth; i++, to += width, from += along) {
      if (count == width) {
        for (int64_t r = 0; r < width; r++) to[r] = from[r];
      } else {
        for (int64_t r = 0; r < count; r++) to[r] = from[r];
        for (int64_t r = count; r < width; r++) to[r] = 0;
      }
    }
    return;
  }
  /* Transposed: a cache line of each row at a time, so that lines are fetched once and writes stay in the first cache. */
  for (int64_t i = 0; i < depth; i += LINE) {
    int64_t some = least(LINE, depth - i);
    for (int64_t r = 0; r < width; r++) {
      const float *line = from + r * across + i;
      float *column = to + i * width + r;
      if (r >= count) {
        for (int64_t j = 0; j < some; j++) column[j * width] = 0;
      } else if (some == LINE) {
        UNROLL for (int64_t j = 0; j < LINE; j++) column[j * width] = line[j];
      } else {
        for (int64_t j = 0; j < some; j++) column[j * width] = line[j];
      }
    }
  }
}

/* ---- register tile ---- */

/* Where a tile of c goes and how. */
typedef struct target {
  float *c; /* first element */
  int64_t stride;
  const float *bias; /* of the first column, or NULL */
  bool add;
  int64_t rows, columns; /* that exist */
} target;

INLINE void finish_full(const target *t, vf sums[TILE_ROWS][2]) {
  UNROLL for (int r = 0; r < TILE_ROWS; r++) {
    float *c = t->c + r * t->stride;
    UNROLL for (int j = 0; j < 2; j++) {
      vf v = sums[r][j];
      if (t->bias) v += load(t->bias + j * LANES);
      if (t->add) v = load(c + j * LANES) + v;
      store(c + j * LANES, v);
    }
  }
}

static __attribute__((noinline)) void finish_part(const target *t, const float *sums) {
  for (int64_t r = 0; r < t->rows; r++)
    for (int64_t j = 0; j < t->columns; j++) {
      float v = sums[r * TILE_COLUMNS + j], *c = t->c + r * t->stride + j;
      if (t->bias) v += t->bias[j];
      *c = t->add ? *c + v : v;
    }
}

/* c tile (=|+=) a panel . b panel over `depth` terms. */
static void tile(int64_t depth, const float *a, const float *b, const target *t) {
  vf sums[TILE_ROWS][2];
  UNROLL for (int r = 0; r < TILE_ROWS; r++) sums[r][0] = sums[r][1] = (vf){0};
  for (int64_t i = 0; i < depth; i++, a += TILE_ROWS, b += TILE_COLUMNS) {
    vf b0 = load(b), b1 = load(b + LANES);
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
      vf x = splat(a[r]);
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

typedef struct layout {
  hri_gemm_product p;
  int64_t depth, rows, columns;    /* of the largest blocks, rows and columns in whole tiles */
  uint64_t b_floats, a_floats;     /* packed b, shared; packed a, per thread */
} layout;

static layout layout_of(const hri_gemm_shape *s) {
  layout l = {.p = hri_gemm_product_of(s)};
  l.depth = least(l.p.depth, DEPTH_BLOCK);
  l.rows = least(blocks(l.p.rows, TILE_ROWS) * TILE_ROWS, ROW_BLOCK);
  l.columns = least(blocks(l.p.columns, TILE_COLUMNS) * TILE_COLUMNS, COLUMN_BLOCK);
  l.b_floats = hri_round_up((uint64_t)(l.columns * l.depth), HRI_GEMM_ALIGNMENT / sizeof(float));
  l.a_floats = hri_round_up((uint64_t)(l.rows * l.depth), HRI_GEMM_ALIGNMENT / sizeof(float));
  return l;
}

static bool takes_dots(const hri_gemm_shape *s) { return s->kind == HRI_GEMM_FORWARD && s->m <= DOT_ROWS; }

static uint64_t scratch_bytes(const hri_gemm_shape *s) {
  layout l = layout_of(s);
  uint64_t floats, bytes;
  if (takes_dots(s)) return 0;
  if (!hri_mul(l.a_floats, (uint64_t)s->threads, &floats) || !hri_add(floats, l.b_floats, &floats)) return UINT64_MAX;
  return hri_mul(floats, sizeof(float), &bytes) ? bytes : UINT64_MAX;
}

typedef struct work {
  layout l;
  const float *a, *b, *bias;
  float *c, *packed_b, *packed_a;
  bool accumulate;
} work;

/* One thread's share of packing columns [column, column + columns) and terms [first, first + depth) of b. */
static void pack_b(const work *w, int64_t column, int64_t columns, int64_t first, int64_t depth, int thread, int team) {
  const hri_gemm_product *p = &w->l.p;
  int64_t panels = blocks(columns, TILE_COLUMNS), begin = panels * thread / team, end = panels * (thread + 1) / team;
  for (int64_t panel = begin; panel < end; panel++) {
    int64_t at = panel * TILE_COLUMNS;
    const float *from = w->b + first * p->b_depth + (column + at) * p->b_column;
    float *to = w->packed_b + at * depth;
    pack_panel(to, from, p->b_column, p->b_depth, least(TILE_COLUMNS, columns - at), depth, TILE_COLUMNS);
  }
}

static void pack_a(const work *w, float *to, int64_t row, int64_t rows, int64_t first, int64_t depth) {
  const hri_gemm_product *p = &w->l.p;
  for (int64_t at = 0; at < rows; at += TILE_ROWS) {
    const float *from = w->a + (row + at) * p->a_row + first * p->a_depth;
    pack_panel(to + at * depth, from, p->a_row, p->a_depth, least(TILE_ROWS, rows - at), depth, TILE_ROWS);
  }
}

/* How the rows and the packed columns are dealt out: `row_parts` blocks of `rows` rows times `column_parts` groups of
 * panels. Large products cut rows evenly over the team; when there are too few rows, columns are cut as well. */
typedef struct deal {
  int64_t rows, row_parts, column_parts;
} deal;

static deal deal_out(const work *w, int64_t panels, int team) {
  deal d = {.row_parts = blocks(w->l.p.rows, w->l.rows), .column_parts = 1};
  int64_t tiles = blocks(w->l.p.rows, TILE_ROWS);
  if (tiles >= team) d.row_parts = blocks(d.row_parts, team) * team;
  d.rows = blocks(tiles, d.row_parts) * TILE_ROWS;
  d.row_parts = blocks(w->l.p.rows, d.rows);
  if (d.row_parts % team != 0) d.column_parts = least(panels, d.row_parts < team ? blocks(team, d.row_parts) : team);
  return d;
}

/* All tiles of one row block and one group of panels. */
static void multiply(const work *w, const float *packed_a, int64_t row, int64_t rows, int64_t column, int64_t columns,
                     int64_t first_panel, int64_t end_panel, int64_t first, int64_t depth) {
  int64_t width = w->l.p.columns;
  bool begins = first == 0;
  for (int64_t panel = first_panel; panel < end_panel; panel++) {
    int64_t at = panel * TILE_COLUMNS;
    target t = {.stride = width, .bias = begins && w->bias ? w->bias + column + at : NULL, .add = w->accumulate || !begins,
                .columns = least(TILE_COLUMNS, columns - at)};
    for (int64_t r = 0; r < rows; r += TILE_ROWS) {
      t.c = w->c + (row + r) * width + column + at;
      t.rows = least(TILE_ROWS, rows - r);
      tile(depth, packed_a + r * depth, w->packed_b + at * depth, &t);
    }
  }
}

static void multiply_block(const work *w, int64_t column, int64_t columns, int64_t first, int64_t depth, int thread, int team) {
  int64_t panels = blocks(columns, TILE_COLUMNS), packed = -1;
  deal d = deal_out(w, panels, team);
  float *packed_a = w->packed_a + (int64_t)w->l.a_floats * thread;
  int64_t tasks = d.row_parts * d.column_parts, begin = tasks * thread / team, end = tasks * (thread + 1) / team;
  for (int64_t task = begin; task < end; task++) {
    int64_t part = task / d.column_parts, group = task % d.column_parts;
    int64_t row = part * d.rows, rows = least(d.rows, w->l.p.rows - row);
    if (part != packed) pack_a(w, packed_a, row, rows, first, depth);
    packed = part;
    multiply(w, packed_a, row, rows, column, columns, panels * group / d.column_parts, panels * (group + 1) / d.column_parts,
             first, depth);
  }
}

/* What each thread of the team does. Nobody may overwrite packed b before all have used it: hence two barriers. */
static void product_thread(const work *w, int thread, int team) {
  const hri_gemm_product *p = &w->l.p;
  for (int64_t column = 0; column < p->columns; column += COLUMN_BLOCK)
    for (int64_t first = 0; first < p->depth; first += DEPTH_BLOCK) {
      int64_t columns = least(COLUMN_BLOCK, p->columns - column), depth = least(DEPTH_BLOCK, p->depth - first);
      pack_b(w, column, columns, first, depth, thread, team);
      if (team > 1) {
#pragma omp barrier
      }
      multiply_block(w, column, columns, first, depth, thread, team);
      if (team > 1) {
#pragma omp barrier
      }
    }
}

/* ---- few rows: dot products ---- */

INLINE float fold(vf v) {
  float lanes[LANES];
  store(lanes, v);
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
  return lanes[0];
}

static float dot(const float *x, const float *y, int64_t depth) {
  vf sums[DOT_SUMS] = {{0}};
  float tail = 0;
  int64_t i = 0;
  for (; i + DOT_SUMS * LANES <= depth; i += DOT_SUMS * LANES) {
    UNROLL for (int j = 0; j < DOT_SUMS; j++) sums[j] += load(x + i + j * LANES) * load(y + i + j * LANES);
  }
  for (; i + LANES <= depth; i += LANES) sums[0] += load(x + i) * load(y + i);
  for (; i < depth; i++) tail += x[i] * y[i];
  return fold((sums[0] + sums[1]) + (sums[2] + sums[3])) + tail;
}

static void dots_thread(const work *w, int thread, int team) {
  const hri_gemm_product *p = &w->l.p;
  int64_t begin = p->columns * thread / team, end = p->columns * (thread + 1) / team;
  for (int64_t j = begin; j < end; j++)
    for (int64_t r = 0; r < p->rows; r++) {
      float v = dot(w->a + r * p->a_row, w->b + j * p->b_column, p->depth), *c = w->c + r * p->columns + j;
      if (w->bias) v += w->bias[j];
      *c = w->accumulate ? *c + v : v;
    }
}

/* ---- entry ---- */

static void run(const hri_gemm_shape *s, const float *a, const float *b, const float *bias, float *c, void *scratch) {
  work w = {.l = layout_of(s), .a = a, .b = b, .bias = s->bias ? bias : NULL, .c = c, .packed_b = scratch, .accumulate = s->accumulate};
  void (*part)(const work *, int, int) = takes_dots(s) ? dots_thread : product_thread;
  if (!takes_dots(s)) w.packed_a = w.packed_b + w.l.b_floats;
  if (s->threads == 1) {
    part(&w, 0, 1);
    return;
  }
#pragma omp parallel num_threads(s->threads)
  part(&w, omp_get_thread_num(), omp_get_num_threads());
}

hri_gemm_portable PASTE(hri_gemm_portable, HRI_ISA)(void) {
  return (hri_gemm_portable){.scratch_bytes = scratch_bytes, .run = run};
}
