/* Double quantization, compiled once for all instruction levels: it is a 64th of the work, and its bits are torch's and
 * bitsandbytes' (the mean, the nearest code). */
#include "ops/quant/nested.h"

#include <math.h>
#include <string.h>

#include "program/quantization.h"

/* ---- the mean ---- */

enum { LANES = 8, SIDE = 4, ROW = LANES * SIDE, LEVELS = 4 };

static void add_row(float *to, const float *from) {
  for (int i = 0; i < ROW; i++) to[i] += from[i];
}

/* Rows that go up a level together, as a power of two: a quarter of the bits of their number, at least 4. */
static int level_power(int64_t rows) {
  int bits = 0;
  while (((int64_t)1 << bits) < rows) bits++;
  return bits / LEVELS > 4 ? bits / LEVELS : 4;
}

/* sums = the sum of `rows` rows of x. Every 2^power rows go up a level, so that large sums meet small ones late. */
static void sum_rows(float sums[ROW], const float *x, int64_t rows) {
  float level[LEVELS][ROW];
  int power = level_power(rows);
  int64_t step = (int64_t)1 << power, i = 0;
  memset(level, 0, sizeof level);
  while (i + step <= rows) {
    for (int64_t end = i + step; i < end; i++) add_row(level[0], x + i * ROW);
    for (int j = 1; j < LEVELS; j++) {
      add_row(level[j], level[j - 1]);
      memset(level[j - 1], 0, sizeof level[j - 1]);
      if (i & ((step - 1) << (j * power))) break;
    }
  }
  for (; i < rows; i++) add_row(level[0], x + i * ROW);
  for (int j = 1; j < LEVELS; j++) add_row(level[0], level[j]);
  memcpy(sums, level[0], sizeof level[0]);
}

/* Fewer than a vector: four sums side by side, and what is left of fours into the first. */
static float sum_few(const float *x, int64_t n) {
  float sums[SIDE] = {0};
  for (int64_t i = 0; i < n; i++) sums[i < n / SIDE * SIDE ? i % SIDE : 0] += x[i];
  for (int k = 1; k < SIDE; k++) sums[0] += sums[k];
  return sums[0];
}

/* Rows, then whole vectors into the first of a row's, the four of them together, what is left, and the lanes. */
float hri_quant_mean(const float *x, int64_t n) {
  float sums[ROW], sum = 0;
  int64_t i = n / ROW * ROW;
  if (n < LANES) return sum_few(x, n) / (float)n;
  sum_rows(sums, x, n / ROW);
  for (; i + LANES <= n; i += LANES)
    for (int lane = 0; lane < LANES; lane++) sums[lane] += x[i + lane];
  for (int k = 1; k < SIDE; k++)
    for (int lane = 0; lane < LANES; lane++) sums[lane] += sums[k * LANES + lane];
  for (; i < n; i++) sum += x[i];
  for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
  return sum / (float)n;
}

/* ---- codes ---- */

enum { STEPS = 65535 };

/* The entry of the map for v in [-1, 1]: v becomes the nearest of 65,536 steps, and that the number of midpoints of the
 * map below it. A NaN, which 0 / (a subnormal whose reciprocal is infinite) is, takes the first. */
static uint8_t code_of(const float *middles, float v) {
  float scaled, step;
  uint32_t below = 0;
  if (!(v >= -1.0f)) return 0;
  if (v > 1.0f) v = 1.0f;
  scaled = (v + 1.0f) * 0.5f * (float)STEPS;
  scaled = scaled + 0.5f;
  step = 2.0f * (float)(int)scaled / (float)STEPS;
  step = -1.0f + step;
  for (uint32_t half = HRI_QUANT_MAP / 2; half > 0; half /= 2) below += middles[below + half - 1] < step ? half : 0;
  return (uint8_t)below;
}

typedef struct nest {
  uint8_t *codes;
  float *nested, *absmax;
  float offset;
  int64_t n;
} nest;

static void nest_blocks(void *context, int64_t begin, int64_t end, int thread) {
  const nest *m = context;
  const float *map = hri_quant_map();
  float middles[HRI_QUANT_MAP - 1];
  (void)thread;
  for (int i = 0; i < HRI_QUANT_MAP - 1; i++) middles[i] = 0.5f * (map[i] + map[i + 1]);
  for (int64_t block = begin; block < end; block++) {
    int64_t first = block * HRI_QUANT_NESTED_BLOCK, stop = first + HRI_QUANT_NESTED_BLOCK;
    float most = 0, inverse;
    if (stop > m->n) stop = m->n;
    for (int64_t i = first; i < stop; i++) {
      m->absmax[i] -= m->offset;
      if (fabsf(m->absmax[i]) > most) most = fabsf(m->absmax[i]);
    }
    m->nested[block] = most;
    inverse = 1.0f / most;
    for (int64_t i = first; i < stop; i++) m->codes[i] = most == 0 ? 0 : code_of(middles, m->absmax[i] * inverse);
  }
}

void hri_quant_nest(uint8_t *codes, float *nested, float *absmax, int64_t n, hri_team *team) {
  nest m = {.codes = codes, .nested = nested, .absmax = absmax, .n = n};
  int64_t blocks = (n + HRI_QUANT_NESTED_BLOCK - 1) / HRI_QUANT_NESTED_BLOCK;
  m.offset = nested[blocks] = hri_quant_mean(absmax, n);
  if (isfinite(m.offset)) hri_team_each(team, blocks, 8, nest_blocks, &m);
}

/* Product and sum are statements of their own: no compiler may make one rounding of the two. */
void hri_quant_unnest(float *to, const uint8_t *codes, const float *nested, float offset, int64_t first,
                      int64_t count) {
  const float *map = hri_quant_map();
  for (int64_t i = first, end = first + count; i < end;) {
    int64_t block = i / HRI_QUANT_NESTED_BLOCK, stop = (block + 1) * HRI_QUANT_NESTED_BLOCK;
    float scale = nested[block];
    if (stop > end) stop = end;
    for (; i < stop; i++) {
      float product = map[codes[i]] * scale;
      *to++ = product + offset;
    }
  }
}
