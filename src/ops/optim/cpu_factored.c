/* Adafactor, as torch.optim.Adafactor steps one tensor: the averages of squares of rows and columns, the update, its root
 * mean square, the weight.
 *
 *   r_i, c_j  <- averages over steps of the means of g^2 over a row, a column (weight of step t: t^decay)
 *   u_ij       = g_ij / sqrt(max(r_i c_j / max(mean r, e1), e1^2));  of a vector r_i alone is below the root
 *   w          = w (1 - lr decay) - u max(e2, rms w) min(lr, 1/sqrt(t)) / max(1, rms(u) / clip)
 *
 * A gradient is read four times (rows, columns, rms(u), step) and nothing as large as it is made. Sums are in double, of
 * parts that the shape alone decides: no bit depends on the team. A NaN or infinite gradient shows in the weights. */
#include <math.h>

#include "ops/cpu.h"
#include "ops/optim/kernels.h"
#include "ops/optim/vround.h"
#include "ops/scratch.h"

enum {
  PARTS = 64,  /* of rows, or of a vector's elements: each has sums of its own */
  COLUMNS = 64 /* whose sums are made at a time */
};

typedef struct kind {
  hri_real w, gradient;
  bool split, copy; /* a weight in two halves, an fp16 copy of an fp32 one; neither with a bf16 gradient */
} kind;

typedef struct factored {
  hri_update_args args;
  int64_t rows, columns; /* a vector is one row */
  bool vector;
  float *row, *column; /* averages; of a vector all are in column */
  float scale, share, least, floor, decay, step;
  double over_mean; /* 1 / max(mean r, e1) */
  double weight_squares[PARTS], update_squares[PARTS];
} factored;

/* torch.lerp */
INLINE float average(float old, float fresh, float share) {
  return share < 0.5f ? old + share * (fresh - old) : fresh - (fresh - old) * (1 - share);
}

INLINE hri_vf gradient_at(const factored *f, int64_t i, int64_t n, kind k) {
  return hri_vload_real_n(f->args.g, i, n, k.gradient) * f->scale;
}

INLINE void add_squares(hri_vd sums[2], hri_vf x) {
  hri_vd wide[2];
  widen_doubles(wide, x);
  sums[0] += wide[0] * wide[0];
  sums[1] += wide[1] * wide[1];
}

INLINE int64_t at_most(int64_t n, int64_t limit) { return n < limit ? n : limit; }

/* The elements of a part: whole rows, or some of a vector's. */
typedef struct extent {
  int64_t row, row_end, begin, end; /* of these rows the columns from begin to end */
} extent;
INLINE extent extent_of(const factored *f, int64_t part) {
  int64_t all = f->vector ? f->columns : f->rows, first = all / PARTS * part + at_most(part, all % PARTS),
          count = all / PARTS + (part < all % PARTS);
  return f->vector ? (extent){0, 1, first, first + count} : (extent){first, first + count, 0, f->columns};
}

/* ---- sums of squares ---- */

/* Rows' averages, and the squares of the weights; of a vector the elements' averages. */
INLINE void sum_rows(factored *f, int64_t part, kind k) {
  const extent e = extent_of(f, part);
  hri_vd weights[2] = {{0}};
  for (int64_t r = e.row; r < e.row_end; r++) {
    hri_vd sums[2] = {{0}};
    for (int64_t c = e.begin; c < e.end; c += HRI_LANES) {
      int64_t n = at_most(e.end - c, HRI_LANES), i = r * f->columns + c;
      hri_vf g = gradient_at(f, i, n, k);
      add_squares(weights, load_weight(&f->args, i, n, k.w, k.split));
      if (!f->vector) add_squares(sums, g);
      for (int64_t j = 0; f->vector && j < n; j++) f->column[c + j] = average(f->column[c + j], g[j] * g[j], f->share);
    }
    if (!f->vector)
      f->row[r] = average(f->row[r], (float)(hri_vsum_double(sums[0] + sums[1]) / (double)f->columns), f->share);
  }
  f->weight_squares[part] = hri_vsum_double(weights[0] + weights[1]);
}

INLINE void sum_columns(factored *f, int64_t block, kind k) {
  int64_t begin = block * COLUMNS, width = at_most(f->columns - begin, COLUMNS);
  hri_vd sums[2 * COLUMNS / HRI_LANES] = {{0}};
  _Alignas(64) double all[COLUMNS];
  for (int64_t r = 0; r < f->rows; r++)
    for (int64_t c = 0; c < width; c += HRI_LANES)
      add_squares(sums + 2 * (c / HRI_LANES),
                  gradient_at(f, r * f->columns + begin + c, at_most(width - c, HRI_LANES), k));
  memcpy(all, sums, sizeof all);
  for (int64_t c = 0; c < width; c++)
    f->column[begin + c] = average(f->column[begin + c], (float)(all[c] / (double)f->rows), f->share);
}

/* ---- the step ---- */

/* u of the elements from i on, which are row r's from column c on. */
INLINE hri_vf update_at(const factored *f, float row, int64_t i, int64_t c, int64_t n, kind k) {
  hri_vf second = hri_vload_n(f->column + c, n) * row;
  return gradient_at(f, i, n, k) / hri_vsqrt(hri_vmax(hri_vset(f->floor), second)); /* NaN stays */
}

INLINE float row_factor(const factored *f, int64_t r) {
  return f->vector ? 1.0f : (float)((double)f->row[r] * f->over_mean);
}

INLINE void sum_updates(factored *f, int64_t part, kind k) {
  const extent e = extent_of(f, part);
  hri_vd sums[2] = {{0}};
  for (int64_t r = e.row; r < e.row_end; r++) {
    const float row = row_factor(f, r);
    for (int64_t c = e.begin; c < e.end; c += HRI_LANES)
      add_squares(sums, update_at(f, row, r * f->columns + c, c, at_most(e.end - c, HRI_LANES), k));
  }
  f->update_squares[part] = hri_vsum_double(sums[0] + sums[1]);
}

/* Columns [c, end) of a row. Random bits go by the element of the parameter, a span at a time. */
INLINE void step_row(const factored *f, int64_t r, int64_t c, int64_t end, const hri_philox_keys *keys, kind k) {
  const float row = row_factor(f, r);
  const bool random = k.w == HRI_REAL_BF16 && !k.split;
  _Alignas(64) span_bits bits[HRI_ROUNDED_COUNT];
  while (c < end) {
    int64_t element = f->args.first_element + r * f->columns + c, chunk = element / HRI_ROUNDING_CHUNK,
            at = random ? element % HRI_ROUNDING_CHUNK : 0, stop = random ? at_most(end, c + SPAN - at) : end;
    for (int64_t drawn = 0; random && drawn < at + stop - c; drawn += HRI_ROUNDING_CHUNK)
      draw_chunk(bits, drawn, &f->args.rounding, keys, chunk++, true, false, false);
    for (; c < stop; c += HRI_LANES, at += random ? HRI_LANES : 0) {
      int64_t n = at_most(stop - c, HRI_LANES), i = r * f->columns + c;
      hri_vf w = hri_vrounded(load_weight(&f->args, i, n, k.w, k.split) * f->decay) - /* the same bits in all types */
                 hri_vrounded(update_at(f, row, i, c, n, k) * f->step);
      store_weight(&f->args, i, w, n, k.w, k.split, bits[HRI_ROUNDED_WEIGHT] + at);
      if (k.copy) hri_vstore_real_n(f->args.copy, i, w, n, HRI_REAL_F16);
    }
    c = stop;
  }
}

INLINE void step_part(factored *f, int64_t part, kind k) {
  const extent e = extent_of(f, part);
  hri_philox_keys keys = {{0}, {0}};
  if (k.w == HRI_REAL_BF16 && !k.split) keys = hri_philox_keys_make(f->args.rounding.seed ^ HRI_ROUNDING_KEY);
  for (int64_t r = e.row; r < e.row_end; r++) step_row(f, r, e.begin, e.end, &keys, k);
}

/* ---- types, threads ---- */

/* A pass over the parts with the types of the call as constants. */
#define PASS(name, body)                                                                                               \
  static void name(void *context, int64_t first, int64_t last, int thread) {                                           \
    factored *f = context;                                                                                             \
    bool narrow = f->args.w_real == HRI_REAL_BF16, narrow_g = f->args.gradient_real == HRI_REAL_BF16;                  \
    (void)thread;                                                                                                      \
    for (int64_t item = first; item < last; item++) {                                                                  \
      if (f->args.low) body(f, item, (kind){.w = HRI_REAL_BF16, .split = true});                                       \
      else if (f->args.copy) body(f, item, (kind){.copy = true});                                                      \
      else if (narrow && narrow_g) body(f, item, (kind){.w = HRI_REAL_BF16, .gradient = HRI_REAL_BF16});               \
      else if (narrow) body(f, item, (kind){.w = HRI_REAL_BF16, .gradient = HRI_REAL_F32});                            \
      else if (narrow_g) body(f, item, (kind){.gradient = HRI_REAL_BF16});                                             \
      else body(f, item, (kind){.w = HRI_REAL_F32});                                                                   \
    }                                                                                                                  \
  }
PASS(row_pass, sum_rows)
PASS(column_pass, sum_columns)
PASS(update_pass, sum_updates)
PASS(step_pass, step_part)

/* sqrt(sum / n) */
static double root_mean(const double *sums, int64_t n) {
  double sum = 0;
  for (int part = 0; part < PARTS; part++) sum += sums[part];
  return sqrt(sum / (double)n);
}

static double mean_of(const float *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)x[i];
  return sum / (double)n;
}

void hri_optim_adafactor(const hri_update_args *args, const hri_update_numbers *n) {
  const bool vector = n->columns <= 1;
  const int64_t columns = vector ? args->n : n->columns, grain = hri_grain((args->n + PARTS - 1) / PARTS);
  const double t = (double)n->t, least = n->number[1], rate = fmin(n->learning_rate, 1 / sqrt(t));
  double mean, alpha, excess;
  factored f = {.args = *args,
                .rows = columns ? args->n / columns : 0,
                .columns = columns,
                .vector = vector,
                .row = args->state[0],
                .scale = (float)n->gradient_scale,
                .share = (float)pow(t, n->number[0]),
                .floor = (float)(least * least),
                .decay = (float)(1.0 - n->learning_rate * n->weight_decay)};
  if (args->n == 0) return;
  f.column = vector ? f.row : f.row + f.rows;
  hri_team_each(args->team, PARTS, grain, row_pass, &f);
  if (!vector) {
    hri_team_each(args->team, (columns + COLUMNS - 1) / COLUMNS, hri_grain(COLUMNS * f.rows), column_pass, &f);
    mean = mean_of(f.row, f.rows);
    f.over_mean = 1 / (mean < least ? least : mean);
  }
  hri_team_each(args->team, PARTS, grain, update_pass, &f);
  excess = root_mean(f.update_squares, args->n) / n->number[3];
  alpha = root_mean(f.weight_squares, args->n);
  alpha = (alpha > n->number[2] ? alpha : n->number[2]) * rate;
  f.step = (float)(alpha / (excess > 1 ? excess : 1));
  hri_team_each(args->team, PARTS, grain, step_pass, &f);
}
