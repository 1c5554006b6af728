/* Element-wise kernels, bias gradients, activations, gated units and rotary embedding.
 *
 * Activations as x * sigmoid(z): gelu_tanh(x) = x/2 (1 + tanh u) = x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3);
 * silu(x) = x * sigmoid(x). One exp and one division, and no cancellation for negative x, where 1 + tanh(u) cancels.
 * Derivative: act' = s + x z' s (1 - s), where 1 - s = e^-z s. x is held above where e^-z would overflow: act and act'
 * are below 1e-35 there. gelu(x) = x P(x) with P the normal distribution function: P(-a) = e^(-a^2/2) m(a) for a >= 0,
 * where m, a Mills ratio, is smooth: (a + 4) m(a) is a polynomial in (a - 4) / (a + 4), and P(a) = 1 - P(-a). HRI_GROUP vectors go side by side, else the chain of operations decides and not their
 * number. */
#include "ops/cpu.h"
#include "ops/scratch.h"
#include "ops/vdraw.h"
#include "ops/vmath.h"

enum {
  BLOCK = 8192,                 /* elements per item of flat kernels; a multiple of every lane count */
  WIDE = HRI_GROUP * HRI_LANES, /* elements that go side by side */
  TURNED = 4                    /* vectors of cosines kept in registers */
};

static inline int64_t block_count(int64_t n) { return (n + BLOCK - 1) / BLOCK; }
static inline int64_t block_end(int64_t begin, int64_t n) { return begin + BLOCK < n ? begin + BLOCK : n; }

/* What the loop of a kernel is given; not all of it by each. */
typedef struct operands {
  void *y;
  const void *a, *b;
  int64_t n; /* elements, or rows of `columns` */
  hri_real real;
  float factor;
  hr_activation kind;
  int64_t columns;
} operands;

static void each_block(hri_team *team, operands *o, hri_team_body *body) {
  hri_team_each(team, block_count(o->n), hri_grain(BLOCK), body, o);
}
static void each_row(hri_team *team, operands *o, hri_team_body *body) {
  hri_team_each(team, o->n, hri_grain(o->columns), body, o);
}

/* Elements of the vector at i. */
static inline int64_t vector_length(int64_t i, int64_t end) { return end - i < HRI_LANES ? end - i : HRI_LANES; }

/* ---- add, scale ---- */

static HRI_INLINE void add_part(void *y, const void *a, const void *b, int64_t i, int64_t n, hri_real real) {
  hri_vstore_real_n(y, i, hri_vload_real_n(a, i, n, real) + hri_vload_real_n(b, i, n, real), n, real);
}

static HRI_INLINE void add_range(void *y, const void *a, const void *b, int64_t i, int64_t end, hri_real real) {
  for (; i + HRI_LANES <= end; i += HRI_LANES) add_part(y, a, b, i, HRI_LANES, real);
  if (i < end) add_part(y, a, b, i, end - i, real);
}

static void add_blocks(void *context, int64_t begin, int64_t end, int thread) {
  const operands *o = context;
  (void)thread;
  for (int64_t block = begin; block < end; block++)
    HRI_BY_REAL(o->real, add_range(o->y, o->a, o->b, block * BLOCK, block_end(block * BLOCK, o->n), REAL));
}

static void add(void *y, const void *a, const void *b, int64_t n, hri_real real, hri_team *team) {
  each_block(team, &(operands){.y = y, .a = a, .b = b, .n = n, .real = real}, add_blocks);
}

static HRI_INLINE void accumulate_row(void *y, hri_real y_real, const void *x, hri_real x_real, int64_t begin_y,
                                      int64_t begin_x, int64_t columns, bool adds) {
  for (int64_t i = 0; i < columns; i += HRI_LANES) {
    int64_t n = vector_length(i, columns);
    hri_vf v = hri_vload_real_n(x, begin_x + i, n, x_real);
    if (adds) v = hri_vload_real_n(y, begin_y + i, n, y_real) + v;
    hri_vstore_real_n(y, begin_y + i, v, n, y_real);
  }
}

typedef struct accumulation {
  void *y;
  const void *x;
  hri_real y_real, x_real;
  int64_t y_stride, x_stride, columns;
  bool adds;
} accumulation;

/* y_real is a constant, and x_real becomes one. */
static HRI_INLINE void accumulate_to(const accumulation *a, hri_real y_real, int64_t y, int64_t x) {
  HRI_BY_REAL(a->x_real, accumulate_row(a->y, y_real, a->x, REAL, y, x, a->columns, a->adds));
}

static void accumulate_rows(void *context, int64_t begin, int64_t end, int thread) {
  const accumulation *a = context;
  (void)thread;
  for (int64_t row = begin; row < end; row++) {
    int64_t y = row * a->y_stride, x = row * a->x_stride;
    HRI_BY_REAL(a->y_real, accumulate_to(a, REAL, y, x));
  }
}

static void accumulate(void *y, hri_real y_real, int64_t y_stride, const void *x, hri_real x_real, int64_t x_stride,
                       int64_t rows, int64_t columns, bool adds, hri_team *team) {
  accumulation a = {.y = y,
                    .x = x,
                    .y_real = y_real,
                    .x_real = x_real,
                    .y_stride = y_stride,
                    .x_stride = x_stride,
                    .columns = columns,
                    .adds = adds};
  hri_team_each(team, rows, hri_grain(columns), accumulate_rows, &a);
}

static HRI_INLINE void scale_range(void *y, const void *x, float factor, int64_t i, int64_t end, hri_real real) {
  for (; i + HRI_LANES <= end; i += HRI_LANES) hri_vstore_real(y, i, hri_vload_real(x, i, real) * factor, real);
  if (i < end) hri_vstore_real_n(y, i, hri_vload_real_n(x, i, end - i, real) * factor, end - i, real);
}

static void scale_blocks(void *context, int64_t begin, int64_t end, int thread) {
  const operands *o = context;
  (void)thread;
  for (int64_t block = begin; block < end; block++)
    HRI_BY_REAL(o->real, scale_range(o->y, o->a, o->factor, block * BLOCK, block_end(block * BLOCK, o->n), REAL));
}

static void scale(void *y, const void *x, float factor, int64_t n, hri_real real, hri_team *team) {
  each_block(team, &(operands){.y = y, .a = x, .n = n, .real = real, .factor = factor}, scale_blocks);
}

/* ---- dropout ---- */

typedef struct dropping {
  const hri_dropout_args *args;
  hri_philox_keys keys;
  uint32_t threshold;
  float factor;
} dropping;

/* A NaN or infinity that goes is NaN, as a product with 0 is. */
static HRI_INLINE void drop_row(const dropping *d, int64_t row, hri_real real) {
  const hri_dropout_args *a = d->args;
  uint32_t words[HRI_DRAW_CHUNK], data = (uint32_t)(row / a->sequence), line = (uint32_t)(row % a->sequence);
  int64_t at = row * a->columns;
  for (int64_t i = 0; i < a->columns; i += HRI_DRAW_CHUNK) {
    hri_vdraw_chunk(words, &d->keys, a->draw.site, a->draw.row + data, line, 0, (uint32_t)(i / HRI_DRAW_CHUNK));
    for (int64_t k = 0; k < HRI_DRAW_CHUNK && i + k < a->columns; k += HRI_LANES) {
      int64_t n = vector_length(i + k, a->columns);
      hri_vf factor = hri_vkept(words + k, d->threshold, d->factor);
      hri_vstore_real_n(a->y, at + i + k, hri_vload_real_n(a->x, at + i + k, n, real) * factor, n, real);
    }
  }
}

static void drop_rows(void *context, int64_t begin, int64_t end, int thread) {
  const dropping *d = context;
  (void)thread;
  for (int64_t row = begin; row < end; row++) HRI_BY_REAL(d->args->real, drop_row(d, row, REAL));
}

static void dropout(const hri_dropout_args *args) {
  dropping d = {.args = args,
                .keys = hri_philox_keys_make(hri_draw_key(&args->draw)),
                .threshold = hri_drop_threshold(args->probability),
                .factor = hri_drop_factor(args->probability)};
  hri_team_each(args->team, args->rows, hri_grain(args->columns), drop_rows, &d);
}

/* ---- noise ---- */

typedef struct adding {
  const hri_noise_args *args;
  hri_philox_keys keys;
} adding;

static HRI_INLINE void noise_row(const adding *d, int64_t row, hri_real real) {
  const hri_noise_args *a = d->args;
  uint32_t words[HRI_DRAW_CHUNK], data = (uint32_t)(row / a->sequence), line = (uint32_t)(row % a->sequence);
  float unit = (float)a->amplitude * 0x1p-31f;
  int64_t at = row * a->columns;
  for (int64_t i = 0; i < a->columns; i += HRI_DRAW_CHUNK) {
    hri_vdraw_chunk(words, &d->keys, a->draw.site, a->draw.row + data, line, 0, (uint32_t)(i / HRI_DRAW_CHUNK));
    for (int64_t k = 0; k < HRI_DRAW_CHUNK && i + k < a->columns; k += HRI_LANES) {
      int64_t n = vector_length(i + k, a->columns);
      hri_vf u = __builtin_convertvector((hri_vi) * (const hri_vu_memory *)(words + k), hri_vf);
      hri_vstore_real_n(a->y, at + i + k, hri_vload_real_n(a->x, at + i + k, n, real) + u * unit, n, real);
    }
  }
}

static void noise_rows(void *context, int64_t begin, int64_t end, int thread) {
  const adding *d = context;
  (void)thread;
  for (int64_t row = begin; row < end; row++) HRI_BY_REAL(d->args->real, noise_row(d, row, REAL));
}

static void noise(const hri_noise_args *args) {
  adding d = {.args = args, .keys = hri_philox_keys_make(hri_draw_key(&args->draw))};
  hri_team_each(args->team, args->rows, hri_grain(args->columns), noise_rows, &d);
}

/* ---- bias gradient ---- */

/* sum[columns] = the sum of rows [begin, end) of dy, in row order. */
static HRI_INLINE void sum_rows(float *sum, const void *dy, int64_t begin, int64_t end, int64_t columns,
                                hri_real real) {
  memset(sum, 0, (size_t)columns * sizeof *sum);
  for (int64_t row = begin; row < end; row++) {
    int64_t at = row * columns, i = 0;
    for (; i + HRI_LANES <= columns; i += HRI_LANES)
      hri_vstore(sum + i, hri_vload(sum + i) + hri_vload_real(dy, at + i, real));
    if (i < columns)
      hri_vstore_n(sum + i, hri_vload_n(sum + i, columns - i) + hri_vload_real_n(dy, at + i, columns - i, real),
                   columns - i);
  }
}

typedef struct column_sums {
  const void *dy;
  int64_t rows, columns;
  hri_real real;
  float *partials; /* one row of them per block of rows */
} column_sums;

static void sum_blocks(void *context, int64_t first, int64_t last, int thread) {
  const column_sums *s = context;
  int64_t size = hri_row_block(s->rows);
  (void)thread;
  for (int64_t block = first; block < last; block++) {
    int64_t begin = block * size, end = s->rows - begin < size ? s->rows : begin + size;
    HRI_BY_REAL(s->real, sum_rows(s->partials + block * s->columns, s->dy, begin, end, s->columns, REAL));
  }
}

static void bias_gradient(float *db, const void *dy, int64_t rows, int64_t columns, bool accumulate, float *scratch,
                          hri_real real, hri_team *team) {
  int64_t blocks = hri_row_block_count(rows);
  column_sums sums = {.dy = dy, .rows = rows, .columns = columns, .real = real, .partials = scratch};
  hri_team_each(team, blocks, hri_grain(hri_row_block(rows) * columns), sum_blocks, &sums);
  for (int64_t j = 0; j < columns; j += HRI_LANES) {
    int64_t n = columns - j < HRI_LANES ? columns - j : HRI_LANES;
    hri_vf sum = {0};
    for (int64_t block = 0; block < blocks; block++) sum += hri_vload_n(scratch + block * columns + j, n);
    if (accumulate) sum += hri_vload_n(db + j, n);
    hri_vstore_n(db + j, sum, n);
  }
}

/* ---- soft-cap ---- */

static HRI_INLINE hri_vf softcap_value(hri_vf x, float cap, float inverse) { return cap * hri_vtanh(x * inverse); }

static HRI_INLINE void softcap_range(void *y, const void *x, float cap, int64_t i, int64_t end, hri_real real) {
  float inverse = 1.0f / cap;
  for (; i + HRI_LANES <= end; i += HRI_LANES)
    hri_vstore_real(y, i, softcap_value(hri_vload_real(x, i, real), cap, inverse), real);
  if (i < end)
    hri_vstore_real_n(y, i, softcap_value(hri_vload_real_n(x, i, end - i, real), cap, inverse), end - i, real);
}

static void softcap_blocks(void *context, int64_t begin, int64_t end, int thread) {
  const operands *o = context;
  (void)thread;
  for (int64_t block = begin; block < end; block++)
    HRI_BY_REAL(o->real, softcap_range(o->y, o->a, o->factor, block * BLOCK, block_end(block * BLOCK, o->n), REAL));
}

static void softcap(void *y, const void *x, float cap, int64_t n, hri_real real, hri_team *team) {
  each_block(team, &(operands){.y = y, .a = x, .n = n, .real = real, .factor = cap}, softcap_blocks);
}

/* ---- activations ---- */

/* As HRI_BY_REAL, for the activations: KIND is the constant. */
#define BY_KIND(kind, ...)                                                                                             \
  do {                                                                                                                 \
    if ((kind) == HR_ACTIVATION_SILU) {                                                                                \
      const hr_activation KIND = HR_ACTIVATION_SILU;                                                                   \
      __VA_ARGS__;                                                                                                     \
    } else if ((kind) == HR_ACTIVATION_GELU) {                                                                         \
      const hr_activation KIND = HR_ACTIVATION_GELU;                                                                   \
      __VA_ARGS__;                                                                                                     \
    } else if ((kind) == HR_ACTIVATION_RELU) {                                                                         \
      const hr_activation KIND = HR_ACTIVATION_RELU;                                                                   \
      __VA_ARGS__;                                                                                                     \
    } else {                                                                                                           \
      const hr_activation KIND = HR_ACTIVATION_GELU_TANH;                                                              \
      __VA_ARGS__;                                                                                                     \
    }                                                                                                                  \
  } while (0)

#define GELU_SCALE 1.5957691216057308f /* 2 sqrt(2/pi) */
#define GELU_CUBIC 0.044715f

/* z with act(x) = x * sigmoid(z). */
static HRI_INLINE hri_vf act_exponent(hr_activation kind, hri_vf x) {
  return kind == HR_ACTIVATION_SILU ? x : GELU_SCALE * (x + GELU_CUBIC * (x * x * x));
}
static HRI_INLINE hri_vf act_exponent_slope(hr_activation kind, hri_vf x) {
  return kind == HR_ACTIVATION_SILU ? hri_vset(1.0f) : GELU_SCALE * (1.0f + 3.0f * GELU_CUBIC * (x * x));
}

/* The functions below take `count` vectors (a constant), each with n lanes in memory. */

static HRI_INLINE void load_each(hri_vf *v, const void *p, int64_t at, int count, int64_t n, hri_real real) {
  for (int k = 0; k < count; k++) v[k] = hri_vload_real_n(p, at + k * HRI_LANES, n, real);
}

/* e[k] = e^-z(x[k]), x[k] held above the lowest value for which that is finite; NaN passes. */
static HRI_INLINE void act_exponentials(hr_activation kind, hri_vf *x, hri_vf *e, int count) {
  const float lowest = kind == HR_ACTIVATION_SILU ? -87.0f : -10.0f;
  for (int k = 0; k < count; k++) {
    x[k] = hri_vmax(hri_vset(lowest), x[k]);
    e[k] = hri_vmax(hri_vset(HRI_EXP_LOWEST), -act_exponent(kind, x[k]));
  }
  hri_vexp_each(e, count);
}

/* below[k] = the normal distribution function of x[k], density[k] = its slope times sqrt(2 pi), x[k] held above where
 * both are below 1e-39; NaN passes. The square of a rounded to 12 bits is exact, so that what -a^2/2 lost when it was rounded is known,
 * and 1 + lost mends the exponential: without, P(-5) would be 8 units of the last place off. Largest error of P 3.2 of them. */
static HRI_INLINE void normal_each(hri_vf *x, hri_vf *below, hri_vf *density, int count) {
  static const float factors[] = {0x1.83316ap-13f, 0x1.9c0da2p-10f, -0x1.ccb734p-9f, -0x1.ed4586p-8f, 0x1.eed4acp-5f,
                                  -0x1.7dffe0p-3f, 0x1.8c6d9cp-2f,  -0x1.373e3ap-1f, 0x1.82b4bcp-1f};
  hri_vf a[HRI_GROUP], lost[HRI_GROUP];
  for (int k = 0; k < count; k++) {
    hri_vf high, square, rest;
    x[k] = hri_vmax(hri_vset(-13.5f), x[k]);
    a[k] = hri_vmin(hri_vset(13.5f), (hri_vf)((hri_vi)x[k] & INT32_MAX));
    high = (hri_vf)((hri_vi)a[k] & ~0xFFF);
    square = 0.5f * high * high;
    rest = hri_vrounded(0.5f * (a[k] - high) * (a[k] + high));
    density[k] = -(square + rest);
    lost[k] = (-density[k] - square) - rest;
  }
  hri_vexp_each(density, count);
  for (int k = 0; k < count; k++) {
    hri_vf r = 1.0f / (a[k] + 4.0f), s = (a[k] - 4.0f) * r, p = hri_vset(-0x1.0fa486p-13f);
    for (int i = 0; i < 9; i++) p = p * s + factors[i];
    density[k] = density[k] + density[k] * lost[k];
    p = density[k] * (r * p);
    below[k] = hri_vselect(x[k] < 0.0f, p, 1.0f - p);
  }
}

/* x[k] = act(x[k]). */
static HRI_INLINE void act_each(hr_activation kind, hri_vf *x, int count) {
  hri_vf e[HRI_GROUP], below[HRI_GROUP];
  if (kind == HR_ACTIVATION_RELU) {
    for (int k = 0; k < count; k++) x[k] = hri_vmax(hri_vset(0.0f), x[k]);
    return;
  }
  if (kind == HR_ACTIVATION_GELU) {
    normal_each(x, below, e, count);
    for (int k = 0; k < count; k++) x[k] = x[k] * below[k];
    return;
  }
  act_exponentials(kind, x, e, count);
  for (int k = 0; k < count; k++) x[k] = x[k] / (1.0f + e[k]);
}

/* value[k] = act(x[k]), slope[k] = act'(x[k]), from one exponential; value may be x. */
static HRI_INLINE void act_slope_each(hr_activation kind, hri_vf *x, hri_vf *value, hri_vf *slope, int count) {
  hri_vf e[HRI_GROUP];
  if (kind == HR_ACTIVATION_RELU) {
    for (int k = 0; k < count; k++) {
      slope[k] = hri_vselect(x[k] == x[k], hri_vselect(x[k] > 0.0f, hri_vset(1.0f), hri_vset(0.0f)), x[k]);
      value[k] = hri_vmax(hri_vset(0.0f), x[k]);
    }
    return;
  }
  if (kind == HR_ACTIVATION_GELU) {
    normal_each(x, slope, e, count);
    for (int k = 0; k < count; k++) {
      hri_vf below = slope[k];
      slope[k] = below + x[k] * (e[k] * 0.3989422804f);
      value[k] = x[k] * below;
    }
    return;
  }
  act_exponentials(kind, x, e, count);
  for (int k = 0; k < count; k++) {
    hri_vf s = 1.0f / (1.0f + e[k]);
    value[k] = x[k] * s;
    slope[k] = s + value[k] * (e[k] * s) * act_exponent_slope(kind, x[k]);
  }
}

static HRI_INLINE void act_part(hr_activation kind, void *y, const void *x, int64_t i, int count, int64_t n,
                                hri_real real) {
  hri_vf v[HRI_GROUP];
  load_each(v, x, i, count, n, real);
  act_each(kind, v, count);
  for (int k = 0; k < count; k++) hri_vstore_real_n(y, i + k * HRI_LANES, v[k], n, real);
}

static HRI_INLINE void act_range(hr_activation kind, void *y, const void *x, int64_t i, int64_t end, hri_real real) {
  for (; i + WIDE <= end; i += WIDE) act_part(kind, y, x, i, HRI_GROUP, HRI_LANES, real);
  for (; i < end; i += HRI_LANES) act_part(kind, y, x, i, 1, vector_length(i, end), real);
}

static void activation_blocks(void *context, int64_t begin, int64_t end, int thread) {
  const operands *o = context;
  (void)thread;
  for (int64_t block = begin; block < end; block++)
    BY_KIND(o->kind,
            HRI_BY_REAL(o->real, act_range(KIND, o->y, o->a, block * BLOCK, block_end(block * BLOCK, o->n), REAL)));
}

static void activation(hr_activation kind, void *y, const void *x, int64_t n, hri_real real, hri_team *team) {
  each_block(team, &(operands){.y = y, .a = x, .n = n, .real = real, .kind = kind}, activation_blocks);
}

static HRI_INLINE void act_backward_part(hr_activation kind, void *dx, const void *dy, const void *x, int64_t i,
                                         int count, int64_t n, hri_real real) {
  hri_vf v[HRI_GROUP], value[HRI_GROUP], slope[HRI_GROUP];
  load_each(v, x, i, count, n, real);
  act_slope_each(kind, v, value, slope, count);
  for (int k = 0; k < count; k++) {
    int64_t at = i + k * HRI_LANES;
    hri_vstore_real_n(dx, at, hri_vload_real_n(dy, at, n, real) * slope[k], n, real);
  }
}

static HRI_INLINE void act_backward_range(hr_activation kind, void *dx, const void *dy, const void *x, int64_t i,
                                          int64_t end, hri_real real) {
  for (; i + WIDE <= end; i += WIDE) act_backward_part(kind, dx, dy, x, i, HRI_GROUP, HRI_LANES, real);
  for (; i < end; i += HRI_LANES) act_backward_part(kind, dx, dy, x, i, 1, vector_length(i, end), real);
}

static void activation_backward_blocks(void *context, int64_t begin, int64_t end, int thread) {
  const operands *o = context;
  (void)thread;
  for (int64_t block = begin; block < end; block++)
    BY_KIND(o->kind, HRI_BY_REAL(o->real, act_backward_range(KIND, o->y, o->a, o->b, block * BLOCK,
                                                             block_end(block * BLOCK, o->n), REAL)));
}

static void activation_backward(hr_activation kind, void *dx, const void *dy, const void *x, int64_t n, hri_real real,
                                hri_team *team) {
  each_block(team, &(operands){.y = dx, .a = dy, .b = x, .n = n, .real = real, .kind = kind},
             activation_backward_blocks);
}

/* ---- gated units ---- */

/* Asks for the vectors of the next row of gu below those at `gate`, if there is one. */
static HRI_INLINE void fetch_below(const void *gu, int64_t gate, int64_t width, bool last, hri_real real) {
  if (real == HRI_REAL_F32 || last) return;
  hri_fetch(hri_real_from(gu, gate + 2 * width, real), WIDE * 2);
  hri_fetch(hri_real_from(gu, gate + 3 * width, real), WIDE * 2);
}

/* Vectors of row `row` from element i on; the gate of a row stands before its `up`. */
static HRI_INLINE void glu_part(hr_activation kind, void *y, const void *gu, int64_t row, int64_t width, int64_t i,
                                int count, int64_t n, bool last, hri_real real) {
  int64_t gate = row * 2 * width + i, up = gate + width;
  hri_vf v[HRI_GROUP];
  fetch_below(gu, gate, width, last, real);
  load_each(v, gu, gate, count, n, real);
  act_each(kind, v, count);
  for (int k = 0; k < count; k++) {
    int64_t step = k * HRI_LANES;
    hri_vstore_real_n(y, row * width + i + step, v[k] * hri_vload_real_n(gu, up + step, n, real), n, real);
  }
}

static HRI_INLINE void glu_row(hr_activation kind, void *y, const void *gu, int64_t row, int64_t width, bool last,
                               hri_real real) {
  int64_t i = 0;
  for (; i + WIDE <= width; i += WIDE) glu_part(kind, y, gu, row, width, i, HRI_GROUP, HRI_LANES, last, real);
  for (; i < width; i += HRI_LANES) glu_part(kind, y, gu, row, width, i, 1, vector_length(i, width), last, real);
}

static HRI_INLINE void glu_backward_part(hr_activation kind, void *dgu, const void *dy, const void *gu, int64_t row,
                                         int64_t width, int64_t i, int count, int64_t n, bool last, hri_real real) {
  int64_t gate = row * 2 * width + i, up = gate + width;
  hri_vf v[HRI_GROUP], value[HRI_GROUP], slope[HRI_GROUP];
  fetch_below(gu, gate, width, last, real);
  load_each(v, gu, gate, count, n, real);
  act_slope_each(kind, v, value, slope, count);
  for (int k = 0; k < count; k++) {
    int64_t step = k * HRI_LANES;
    hri_vf g = hri_vload_real_n(dy, row * width + i + step, n, real), u = hri_vload_real_n(gu, up + step, n, real);
    hri_vstore_real_n(dgu, gate + step, g * u * slope[k], n, real);
    hri_vstore_real_n(dgu, up + step, g * value[k], n, real);
  }
}

static HRI_INLINE void glu_backward_row(hr_activation kind, void *dgu, const void *dy, const void *gu, int64_t row,
                                        int64_t width, bool last, hri_real real) {
  int64_t i = 0;
  for (; i + WIDE <= width; i += WIDE)
    glu_backward_part(kind, dgu, dy, gu, row, width, i, HRI_GROUP, HRI_LANES, last, real);
  for (; i < width; i += HRI_LANES)
    glu_backward_part(kind, dgu, dy, gu, row, width, i, 1, vector_length(i, width), last, real);
}

static void glu_rows(void *context, int64_t begin, int64_t end, int thread) {
  const operands *o = context;
  (void)thread;
  for (int64_t row = begin; row < end; row++)
    BY_KIND(o->kind, HRI_BY_REAL(o->real, glu_row(KIND, o->y, o->a, row, o->columns, row + 1 == o->n, REAL)));
}

static void glu(hr_activation kind, void *y, const void *gu, int64_t rows, int64_t width, hri_real real,
                hri_team *team) {
  each_row(team, &(operands){.y = y, .a = gu, .n = rows, .columns = width, .real = real, .kind = kind}, glu_rows);
}

static void glu_backward_rows(void *context, int64_t begin, int64_t end, int thread) {
  const operands *o = context;
  (void)thread;
  for (int64_t row = begin; row < end; row++)
    BY_KIND(o->kind,
            HRI_BY_REAL(o->real, glu_backward_row(KIND, o->y, o->a, o->b, row, o->columns, row + 1 == o->n, REAL)));
}

static void glu_backward(hr_activation kind, void *dgu, const void *dy, const void *gu, int64_t rows, int64_t width,
                         hri_real real, hri_team *team) {
  each_row(team, &(operands){.y = dgu, .a = dy, .b = gu, .n = rows, .columns = width, .real = real, .kind = kind},
           glu_backward_rows);
}

/* ---- rotary embedding ---- */

/* Pairs (a, b) of a row's heads -> (a cos - b sin, b cos + a sin). */
typedef struct turn {
  const void *x;
  void *y;
  const float *cosines, *sines;
  float sign;
  int64_t begin, end, size, half; /* elements of the heads to turn, of one head; pairs to turn in each */
  int64_t ahead;                  /* elements from here to the next row, 0 in the last one */
} turn;

/* `count` vectors of pairs from i on, each with n lanes, in every head. */
static HRI_INLINE void turn_heads(const turn *t, int64_t i, int count, int64_t n, hri_real real) {
  hri_vf c[TURNED], s[TURNED];
  for (int k = 0; k < count; k++) {
    c[k] = hri_vload_n(t->cosines + i + k * HRI_LANES, n);
    s[k] = hri_vload_n(t->sines + i + k * HRI_LANES, n) * t->sign;
  }
  for (int64_t head = t->begin + i; head < t->end; head += t->size) {
    if (real != HRI_REAL_F32) hri_fetch(hri_real_from(t->x, head + t->ahead, real), 4 * t->half);
    for (int k = 0; k < count; k++) {
      int64_t at = head + k * HRI_LANES;
      hri_vf a = hri_vload_real_n(t->x, at, n, real), b = hri_vload_real_n(t->x, at + t->half, n, real);
      hri_vstore_real_n(t->y, at, a * c[k] - b * s[k], n, real);
      hri_vstore_real_n(t->y, at + t->half, b * c[k] + a * s[k], n, real);
    }
  }
}

static HRI_INLINE void rope_row(const hri_rope_args *args, int64_t row, hri_real real) {
  int64_t size = args->head_size, half = args->rotary_size / 2, turned = (args->heads + args->kv_heads) * size;
  int64_t kept = args->kv_heads * size, begin = row * (turned + kept), i = 0;
  turn t = {.x = args->x,
            .y = args->y,
            .cosines = args->cosines + args->position[row] * half,
            .sines = args->sines + args->position[row] * half,
            .sign = args->inverse ? -1.0f : 1.0f,
            .begin = begin,
            .end = begin + turned,
            .size = size,
            .half = half,
            .ahead = row + 1 < args->rows ? turned + kept : 0};
  for (; i + TURNED * HRI_LANES <= half; i += TURNED * HRI_LANES) turn_heads(&t, i, TURNED, HRI_LANES, real);
  for (; i + 2 * HRI_LANES <= half; i += 2 * HRI_LANES) turn_heads(&t, i, 2, HRI_LANES, real);
  for (; i < half; i += HRI_LANES) turn_heads(&t, i, 1, vector_length(i, half), real);
  if (t.y == t.x) return;
  for (int64_t at = begin + 2 * half; at < t.end && 2 * half < size; at += size)
    memcpy(hri_real_at(t.y, at, real), hri_real_from(t.x, at, real), (size_t)(size - 2 * half) * hri_real_bytes(real));
  memcpy(hri_real_at(t.y, t.end, real), hri_real_from(t.x, t.end, real), (size_t)kept * hri_real_bytes(real));
}

static void rope_rows(void *context, int64_t begin, int64_t end, int thread) {
  const hri_rope_args *args = context;
  (void)thread;
  for (int64_t row = begin; row < end; row++) HRI_BY_REAL(args->real, rope_row(args, row, REAL));
}

static void rope(const hri_rope_args *args) {
  int64_t width = (args->heads + 2 * args->kv_heads) * args->head_size;
  hri_team_each(args->team, args->rows, hri_grain(width), rope_rows, (void *)args);
}

/* ---- vector math on arrays ---- */

static inline hri_vf math_apply(hri_math function, hri_vf x) {
  switch (function) {
  case HRI_MATH_EXP: return hri_vexp(x);
  case HRI_MATH_LOG: return hri_vlog(x);
  case HRI_MATH_TANH: return hri_vtanh(x);
  case HRI_MATH_SIGMOID: return hri_vsigmoid(x);
  case HRI_MATH_COUNT: break;
  }
  return x;
}

static void math(hri_math function, float *y, const float *x, int64_t n) {
  int64_t i = 0;
  for (; i + HRI_LANES <= n; i += HRI_LANES) hri_vstore(y + i, math_apply(function, hri_vload(x + i)));
  if (i < n) hri_vstore_n(y + i, math_apply(function, hri_vload_n(x + i, n - i)), n - i);
}

void HRI_ISA_NAME(hri_pointwise_kernels)(hri_cpu_kernels *table) {
  table->add = add;
  table->accumulate = accumulate;
  table->scale = scale;
  table->dropout = dropout;
  table->noise = noise;
  table->bias_gradient = bias_gradient;
  table->activation = activation;
  table->activation_backward = activation_backward;
  table->glu = glu;
  table->glu_backward = glu_backward;
  table->rope = rope;
  table->softcap = softcap;
  table->math = math;
}
