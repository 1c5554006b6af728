/* One Philox block (four words) gives four values by two Box-Muller transforms:
 *   r = sqrt(-2 ln u), u = (word + 1/2) / 2^32; (r cos a, r sin a), a = 2 pi word' / 2^32.
 * The largest value is sqrt(2 ln 2^33) = 6.76.
 *
 * The values must be the same on every machine. The C library's log and cos are not (their last bit depends on version
 * and processor), so both are polynomials here, in double, from additions, multiplications, a division and a square
 * root alone, which IEEE 754 fixes to the bit. One operation per statement, because a compiler may fuse a product and
 * a sum of one expression into one rounding; this file is compiled once, without -ffp-contract=fast.
 * Errors of the polynomials are below 1e-13, far below fp32. */
#include "ops/move/random.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

enum { PART = 4096 }; /* elements per item; a multiple of 4 */

/* ln(u) for u in (0, 1): u = 2^e m, m in [sqrt(1/2), sqrt(2)), ln m = 2 s + s^3 L(s^2), s = (m - 1) / (m + 1). */
static inline double log_unit(double u) {
  uint64_t bits;
  int64_t exponent;
  double m, s, z, p;
  memcpy(&bits, &u, sizeof bits);
  exponent = (int64_t)(bits - 0x3FE6A09E667F3BCDu) >> 52; /* the constant is sqrt(1/2) */
  bits -= (uint64_t)exponent << 52;
  memcpy(&m, &bits, sizeof m);
  s = (m - 1.0) / (m + 1.0);
  z = s * s;
  p = z * 0x1.9114e78775e8ep-3;
  p = p + 0x1.c62b1f2a4b67ep-3;
  p = p * z;
  p = p + 0x1.249411d1ade88p-2;
  p = p * z;
  p = p + 0x1.999996a9851b0p-2;
  p = p * z;
  p = p + 0x1.555555561e319p-1;
  p = p * z;
  p = p + 2.0;
  p = p * s;
  m = (double)exponent * 0x1.62e42fefa39efp-1;
  return m + p;
}

/* cos and sin of 2 pi word / 2^32: t quarter turns from the nearest multiple of a quarter turn, |t| <= 1/2. */
static inline void turn(uint32_t word, double *cosine, double *sine) {
  uint32_t quarter = (word + 0x20000000u) >> 30; /* 0..3; the sum wraps, as angles do */
  double t = (double)(int32_t)(word - (quarter << 30)) * 0x1p-30, z = t * t, c, s, swap;
  c = z * -0x1.a0ee4b4b2f13cp-16;
  c = c + 0x1.e1e7cde49b81ap-11;
  c = c * z;
  c = c - 0x1.55d3ba31f49cfp-6;
  c = c * z;
  c = c + 0x1.03c1f074e1854p-2;
  c = c * z;
  c = c - 0x1.3bd3cc9bd2c8ap+0;
  c = c * z;
  c = c + 1.0;
  s = z * -0x1.dd54bb38bb58ep-19;
  s = s + 0x1.5071cede5bad8p-13;
  s = s * z;
  s = s - 0x1.32d2c645ae985p-8;
  s = s * z;
  s = s + 0x1.466bc67125669p-4;
  s = s * z;
  s = s - 0x1.4abbce6257a40p-1;
  s = s * z;
  s = s + 0x1.921fb54442cfap+0;
  s = s * t;
  swap = c;
  c = quarter & 1 ? -s : c;
  s = quarter & 1 ? swap : s;
  *cosine = quarter & 2 ? -c : c;
  *sine = quarter & 2 ? -s : s;
}

static inline void pair(uint32_t a, uint32_t b, double std, float out[2]) {
  double u = ((double)a + 0.5) * 0x1p-32, radius = sqrt(-2.0 * log_unit(u)) * std, cosine, sine;
  turn(b, &cosine, &sine);
  out[0] = (float)(radius * cosine);
  out[1] = (float)(radius * sine);
}

/* Values of the block that holds elements 4 * block .. 4 * block + 3. */
static inline void block_values(uint64_t seed, uint64_t stream, uint64_t block, double std, float out[4]) {
  uint32_t word[4];
  hri_philox(seed, stream, block, word);
  pair(word[0], word[1], std, out);
  pair(word[2], word[3], std, out + 2);
}

static void fill_part(float *y, int64_t n, double std, uint64_t seed, uint64_t stream, uint64_t first) {
  float values[4];
  int64_t i = 0;
  while (i < n) {
    uint64_t at = first + (uint64_t)i, lane = at % 4;
    if (lane == 0 && n - i >= 4) {
      block_values(seed, stream, at / 4, std, y + i);
      i += 4;
      continue;
    }
    block_values(seed, stream, at / 4, std, values);
    for (; lane < 4 && i < n; lane++) y[i++] = values[lane];
  }
}

static void fill_even(float *y, int64_t n, double bound, uint64_t seed, uint64_t stream, uint64_t first) {
  uint32_t word[4];
  for (int64_t i = 0; i < n; i++) {
    uint64_t at = first + (uint64_t)i;
    if (i == 0 || at % 4 == 0) hri_philox(seed, stream, at / 4, word);
    y[i] = (float)(bound * (((double)word[at % 4] + 0.5) * 0x1p-31 - 1));
  }
}

typedef struct filling {
  void (*part)(float *y, int64_t n, double scale, uint64_t seed, uint64_t stream, uint64_t first);
  float *y;
  int64_t n;
  double std;
  uint64_t seed, stream, first;
} filling;

static void fill_parts(void *context, int64_t begin, int64_t end, int thread) {
  const filling *f = context;
  int64_t i = begin * PART, stop = end * PART < f->n ? end * PART : f->n;
  (void)thread;
  f->part(f->y + i, stop - i, f->std, f->seed, f->stream, f->first + (uint64_t)i);
}

void hri_fill_normal(float *y, int64_t n, double std, uint64_t seed, uint64_t stream, int64_t first, hri_team *team) {
  filling f = {.part = fill_part, .y = y, .n = n, .std = std, .seed = seed, .stream = stream, .first = (uint64_t)first};
  hri_team_each(team, (n + PART - 1) / PART, 1, fill_parts, &f);
}

void hri_fill_uniform(float *y, int64_t n, double bound, uint64_t seed, uint64_t stream, int64_t first,
                      hri_team *team) {
  filling f =
      {.part = fill_even, .y = y, .n = n, .std = bound, .seed = seed, .stream = stream, .first = (uint64_t)first};
  hri_team_each(team, (n + PART - 1) / PART, 1, fill_parts, &f);
}
