/* Arithmetic on rows of bytes; see region.h. All cases go back to two: how many bytes of a region lie below a point,
 * and one rectangle less another in the coordinates (row, column) of one pitch. */
#include "program/region.h"

#include <assert.h>

hri_region hri_region_of(const hri_tensor *t) {
  uint64_t bytes = hri_tensor_bytes(t), rows;
  if (t->stride == 0 || bytes == 0) return (hri_region){.begin = t->offset, .width = bytes, .rows = 1};
  rows = hri_tensor_stored_elements(t) / t->stored[t->rank - 1];
  assert(t->stride >= t->stored[t->rank - 1]);
  if (rows == 1) return (hri_region){.begin = t->offset, .width = bytes, .rows = 1};
  return (hri_region){.begin = t->offset,
                      .width = bytes / rows,
                      .pitch = hri_dtype_size((hri_dtype)t->dtype, t->stride),
                      .rows = rows};
}

/* Bytes of a region that lie below x. */
static uint64_t below(const hri_region *r, uint64_t x) {
  uint64_t row, column;
  if (x <= r->begin) return 0;
  if (r->rows == 1) return x - r->begin < r->width ? x - r->begin : r->width;
  row = (x - r->begin) / r->pitch;
  column = (x - r->begin) % r->pitch;
  if (row >= r->rows) return r->rows * r->width;
  return row * r->width + (column < r->width ? column : r->width);
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t sooner(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows [top, bottom), columns [left, right) of a grid of one pitch. */
typedef struct rect {
  int64_t top, bottom, left, right;
} rect;

static bool is_empty(const rect *r) { return r->top >= r->bottom || r->left >= r->right; }

static rect meet(const rect *a, const rect *b) {
  return (rect){later(a->top, b->top), sooner(a->bottom, b->bottom), later(a->left, b->left),
                sooner(a->right, b->right)};
}

/* A region of the same pitch on the grid that begins at `origin`: its rows may wrap around the grid's, so there are two
 * rectangles; the second is empty when they do not. */
static void on_grid(const hri_region *r, uint64_t origin, uint64_t pitch, rect out[2]) {
  int64_t distance = (int64_t)(r->begin - origin), p = (int64_t)pitch, row = distance / p, column = distance % p, right;
  if (column < 0) row--, column += p;
  right = column + (int64_t)r->width;
  out[0] = (rect){row, row + (int64_t)r->rows, column, sooner(right, p)};
  out[1] = (rect){row + 1, row + 1 + (int64_t)r->rows, 0, right - p};
}

/* A contiguous region on a grid: the rest of its first row, whole rows, the beginning of its last one. */
static void line_on_grid(const hri_region *r, uint64_t origin, uint64_t pitch, rect out[3]) {
  rect row[2];
  int64_t p = (int64_t)pitch, first, column, last;
  on_grid(&(hri_region){.begin = r->begin, .width = 0, .rows = 1}, origin, pitch, row);
  first = row[0].top;
  column = row[0].left;
  last = first + (column + (int64_t)r->width) / p;
  out[0] = (rect){first, first + 1, column, sooner(p, column + (int64_t)r->width)};
  out[1] = (rect){first + 1, last, 0, p};
  out[2] = (rect){last, last > first ? last + 1 : last, 0, (column + (int64_t)r->width) % p};
}

uint64_t hri_region_overlap(const hri_region *a, const hri_region *b) {
  uint64_t sum = 0;
  assert(a->rows && b->rows);
  if (a->begin >= hri_region_end(b) || b->begin >= hri_region_end(a)) return 0;
  if (a->rows == 1) return below(b, a->begin + a->width) - below(b, a->begin);
  if (b->rows == 1) return below(a, b->begin + b->width) - below(a, b->begin);
  if (a->pitch == b->pitch) {
    rect x = {0, (int64_t)a->rows, 0, (int64_t)a->width}, y[2];
    on_grid(b, a->begin, a->pitch, y);
    for (int k = 0; k < 2; k++) {
      rect both = meet(&x, &y[k]);
      if (!is_empty(&both)) sum += (uint64_t)(both.bottom - both.top) * (uint64_t)(both.right - both.left);
    }
    return sum;
  }
  if (a->rows > b->rows) return hri_region_overlap(b, a);
  for (uint64_t row = 0; row < a->rows; row++) {
    uint64_t begin = a->begin + row * a->pitch;
    sum += below(b, begin + a->width) - below(b, begin);
  }
  return sum;
}

static bool push(hri_regions *out, uint64_t origin, uint64_t pitch, rect r) {
  hri_region made = {.begin = origin + (uint64_t)(r.top * (int64_t)pitch + r.left),
                     .width = (uint64_t)(r.right - r.left),
                     .pitch = pitch,
                     .rows = (uint64_t)(r.bottom - r.top)};
  if (is_empty(&r)) return true;
  if (made.rows == 1) made.pitch = 0;
  return hri_array_push(out, made);
}

/* r less the first of the cuts, and each of the four pieces less the others. */
static bool cut(hri_regions *out, uint64_t origin, uint64_t pitch, rect r, const rect *cuts, int count) {
  rect both;
  if (is_empty(&r)) return true;
  if (count == 0) return push(out, origin, pitch, r);
  both = meet(&r, &cuts[0]);
  if (is_empty(&both)) return cut(out, origin, pitch, r, cuts + 1, count - 1);
  return cut(out, origin, pitch, (rect){r.top, both.top, r.left, r.right}, cuts + 1, count - 1) &&
         cut(out, origin, pitch, (rect){both.bottom, r.bottom, r.left, r.right}, cuts + 1, count - 1) &&
         cut(out, origin, pitch, (rect){both.top, both.bottom, r.left, both.left}, cuts + 1, count - 1) &&
         cut(out, origin, pitch, (rect){both.top, both.bottom, both.right, r.right}, cuts + 1, count - 1);
}

/* A line less rows: before them, between them, behind them. */
static bool line_less_rows(const hri_region *a, const hri_region *b, hri_regions *out) {
  uint64_t begin = a->begin, end = a->begin + a->width, from, to, first, last;
  from = b->begin >= begin ? 0 : (begin - b->begin) / b->pitch; /* the first row that does not end before the line */
  if (b->begin + from * b->pitch + b->width <= begin) from++;
  to = end <= b->begin
           ? 0
           : least(b->rows, (end - b->begin + b->pitch - 1) / b->pitch); /* rows that begin before its end */
  if (from >= to) return hri_array_push(out, *a);
  first = b->begin + from * b->pitch;
  last = b->begin + (to - 1) * b->pitch;
  if (first > begin && !hri_array_push(out, ((hri_region){.begin = begin, .width = first - begin, .rows = 1})))
    return false;
  if (to - from > 1 && b->pitch > b->width &&
      !push(out, first + b->width, b->pitch, (rect){0, (int64_t)(to - from - 1), 0, (int64_t)(b->pitch - b->width)}))
    return false;
  return last + b->width >= end ||
         hri_array_push(out, ((hri_region){.begin = last + b->width, .width = end - last - b->width, .rows = 1}));
}

bool hri_region_subtract(const hri_region *a, const hri_region *b, hri_regions *out) {
  rect whole = {0, (int64_t)a->rows, 0, (int64_t)a->width}, cuts[3];
  if (hri_region_overlap(a, b) == 0) return hri_array_push(out, *a);
  if (a->rows == 1 && b->rows == 1) {
    if (b->begin > a->begin &&
        !hri_array_push(out, ((hri_region){.begin = a->begin, .width = b->begin - a->begin, .rows = 1})))
      return false;
    return b->begin + b->width >= a->begin + a->width ||
           hri_array_push(out, ((hri_region){.begin = b->begin + b->width,
                                             .width = a->begin + a->width - b->begin - b->width,
                                             .rows = 1}));
  }
  if (a->rows == 1) return line_less_rows(a, b, out);
  if (b->rows == 1) {
    line_on_grid(b, a->begin, a->pitch, cuts);
    return cut(out, a->begin, a->pitch, whole, cuts, 3);
  }
  if (a->pitch == b->pitch) {
    on_grid(b, a->begin, a->pitch, cuts);
    return cut(out, a->begin, a->pitch, whole, cuts, 2);
  }
  for (uint64_t row = 0; row < a->rows; row++) { /* two pitches: row by row */
    hri_region line = {.begin = a->begin + row * a->pitch, .width = a->width, .rows = 1};
    if (hri_region_overlap(&line, b) == 0 ? !hri_array_push(out, line) : !line_less_rows(&line, b, out)) return false;
  }
  return true;
}
