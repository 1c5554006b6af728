/* Maps and tables of dynamic.h. The products and sums that make a map are those of torch.linspace, each rounded to fp32
 * (step * k + begin once, as its vector code does), since states are exchanged bit by bit. */
#include "ops/optim/dynamic.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { DECADES = 7 };

static hri_dynamic_maps maps;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Border k of `cells` equal cells of [0.1, 1]; counted from the nearer end. */
static float border(int k, int cells) {
  float step = (1.0f - 0.1f) / (float)cells;
  return k < (cells + 1) / 2 ? fmaf(step, (float)k, 0.1f) : fmaf(-step, (float)(cells - k), 1.0f);
}

/* The positive values but 1, rising; returns how many. */
static int positive_values(float *out, int least_cells) {
  static const float tens[DECADES] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  int count = 0;
  for (int decade = 0; decade < DECADES; decade++) {
    int cells = least_cells << decade;
    for (int k = 0; k < cells; k++) {
      float sum = border(k, cells) + border(k + 1, cells);
      out[count++] = tens[decade] * (sum / 2.0f);
    }
  }
  return count;
}

static void make_signed(float *map) {
  float values[128];
  int count = positive_values(values, 1);
  assert(count == 127);
  for (int k = 0; k < count; k++) {
    map[126 - k] = -values[k];
    map[128 + k] = values[k];
  }
  map[127] = 0;
  map[255] = 1;
}

static void make_unsigned(float *map) {
  int count = positive_values(map + 1, 2);
  assert(count == 254);
  (void)count;
  map[0] = 0;
  map[255] = 1;
}

/* The nearest; ties to even indices. NaN, which is nearest to nothing: 0. */
static uint32_t nearest(const float *map, float x) {
  for (uint32_t code = 0; code < 255; code++) {
    float middle = (map[code] + map[code + 1]) * 0.5f;
    if (!(x > middle) && (x != middle || code % 2 == 0)) return x != x ? 0 : code;
  }
  return 255;
}

uint32_t hri_dynamic_code_unsigned(const float *map, float x) { return nearest(map, x); }

uint32_t hri_dynamic_code_signed(const float *map, float x, int negative) {
  if (x != x) return negative ? 0 : 255;
  if (!negative) return nearest(map, x);
  return nearest(map, x) == 127 ? 126 : nearest(map, x);
}

static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* One bucket; `negative` of the signed map. */
static uint32_t code_of(const float *map, bool is_signed, bool negative, uint32_t bits) {
  float x = float_of(bits);
  return is_signed ? hri_dynamic_code_signed(map, negative ? -x : x, negative) : hri_dynamic_code_unsigned(map, x);
}

static uint32_t make_entry(const float *map, bool is_signed, bool negative, uint32_t begin, uint32_t size) {
  uint32_t code = code_of(map, is_signed, negative, begin), low = 0, high = size;
  if (code_of(map, is_signed, negative, begin + size - 1) == code) return code << HRI_DYNAMIC_CODE | size;
  assert(code_of(map, is_signed, negative, begin + size - 1) == (negative ? code - 1 : code + 1));
  while (high - low > 1) { /* the code changes between low and high */
    uint32_t middle = (low + high) / 2;
    if (code_of(map, is_signed, negative, begin + middle) == code) low = middle;
    else high = middle;
  }
  return code << HRI_DYNAMIC_CODE | high;
}

static void make_entries(const float *map, bool is_signed, bool negative, uint32_t shift, uint32_t buckets,
                         uint32_t *entries) {
  const uint32_t size = 1u << shift;
  for (uint32_t k = 0; k + 2 < buckets; k++)
    entries[k] = make_entry(map, is_signed, negative, HRI_DYNAMIC_LOWEST + k * size, size);
  /* What is below the lowest bucket is taken for its beginning. */
  assert(code_of(map, is_signed, negative, 1) == entries[0] >> HRI_DYNAMIC_CODE);
  entries[buckets - 2] = code_of(map, is_signed, negative, 0x3F800000u) << HRI_DYNAMIC_CODE | size;
  entries[buckets - 1] = code_of(map, is_signed, negative, 0x7FC00000u) << HRI_DYNAMIC_CODE | size;
}

/* The least magnitude that has this code of a positive value, or a later one. */
static float begin_of(const float *map, uint32_t code) {
  uint32_t low = 0, high = 0x3F800000u;
  while (high - low > 1) {
    uint32_t middle = (low + high) / 2;
    if (nearest(map, float_of(middle)) < code) low = middle;
    else high = middle;
  }
  return float_of(high);
}

_Static_assert((HRI_DYNAMIC_AROUND | (2 * HRI_DYNAMIC_NEAR - 1)) == (1 << HRI_DYNAMIC_FRACTION) - 1,
               "all of a fraction");

/* The line on which `begin` is `code` and `end` is `end_code`. */
static void make_line(hri_dynamic_segments *s, uint32_t segment, double begin, double code, double end, double end_code,
                      uint32_t last) {
  const double one = 1 << HRI_DYNAMIC_FRACTION, factor = one * (end_code - code) / (end - begin);
  s->factor[segment] = (float)factor;
  s->offset[segment] = (float)(one * code - begin * factor + HRI_DYNAMIC_NEAR);
  s->last[segment] = last << HRI_DYNAMIC_FRACTION | ((1u << HRI_DYNAMIC_FRACTION) - 1);
}

/* `zero`: the code of 0; decade d has least_cells << d codes. */
static void make_segments(const float *map, uint32_t zero, uint32_t least_cells, hri_dynamic_segments *s) {
  const double almost = 1 - 0.9 / (least_cells << (DECADES - 1)); /* where the last code of the decades begins */
  uint32_t code = zero + 1, segment = 0;
  double begin = 1e-7;
  make_line(s, 0, 0, zero + 0.5, (double)begin_of(map, code), zero + 1, zero);
  for (uint32_t decade = 0; decade < DECADES; decade++, begin *= 10) {
    uint32_t cells = least_cells << decade;
    s->next[decade] = begin_of(map, code) * (1 + 0x1p-20f);
    make_line(s, decade + 1, begin, code, 10 * begin, code + cells, code + cells - 1);
    code += cells;
  }
  assert(code == 255);
  s->next[DECADES] = begin_of(map, 254) * (1 + 0x1p-20f);
  make_line(s, DECADES + 1, almost, 254, (double)begin_of(map, 255), 255, 255);
  for (uint32_t k = DECADES + 1; k < 16; k++) s->next[k] = INFINITY;
  for (int power = -23; power <= 0; power++) {
    while (segment < HRI_DYNAMIC_SEGMENTS - 1 && ldexpf(1, power) >= s->next[segment]) segment++;
    s->of_power[(power + 127) % HRI_DYNAMIC_POWERS] = segment;
    assert(power == 0 || segment + 1 >= HRI_DYNAMIC_SEGMENTS || ldexpf(1, power + 1) < s->next[segment + 1]);
    if ((power + 127) % 2) continue;
    s->of_pair[(power + 127) / 2 % 16] = (uint8_t)(segment < DECADES ? segment : DECADES);
    assert(segment >= DECADES || ldexpf(1, power + 2) <= s->next[segment + 1]);
  }
}

static void make_halves(const float *map, uint16_t halves[2][256]) {
  for (uint32_t code = 0; code < 256; code++) {
    uint32_t bits;
    memcpy(&bits, &map[code], sizeof bits);
    halves[0][code] = (uint16_t)bits;
    halves[1][code] = (uint16_t)(bits >> 16);
  }
}

static void make(void) {
  make_signed(maps.signed_map);
  make_unsigned(maps.unsigned_map);
  make_entries(maps.signed_map, true, false, HRI_DYNAMIC_SIGNED_SHIFT, HRI_DYNAMIC_SIGNED_BUCKETS, maps.signed_entries);
  make_entries(maps.signed_map, true, true, HRI_DYNAMIC_SIGNED_SHIFT, HRI_DYNAMIC_SIGNED_BUCKETS,
               maps.signed_entries + HRI_DYNAMIC_SIGNED_BUCKETS);
  make_entries(maps.unsigned_map, false, false, HRI_DYNAMIC_UNSIGNED_SHIFT, HRI_DYNAMIC_UNSIGNED_BUCKETS,
               maps.unsigned_entries);
  make_segments(maps.signed_map, 127, 1, &maps.signed_segments);
  make_segments(maps.unsigned_map, 0, 2, &maps.unsigned_segments);
  make_halves(maps.signed_map, maps.signed_halves);
  make_halves(maps.unsigned_map, maps.unsigned_halves);
}

const hri_dynamic_maps *hri_dynamic_maps_get(void) {
  (void)pthread_once(&once, make);
  return &maps;
}
