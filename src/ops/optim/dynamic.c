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

static void make(void) {
  make_signed(maps.signed_map);
  make_unsigned(maps.unsigned_map);
  make_entries(maps.signed_map, true, false, HRI_DYNAMIC_SIGNED_SHIFT, HRI_DYNAMIC_SIGNED_BUCKETS, maps.signed_entries);
  make_entries(maps.signed_map, true, true, HRI_DYNAMIC_SIGNED_SHIFT, HRI_DYNAMIC_SIGNED_BUCKETS,
               maps.signed_entries + HRI_DYNAMIC_SIGNED_BUCKETS);
  make_entries(maps.unsigned_map, false, false, HRI_DYNAMIC_UNSIGNED_SHIFT, HRI_DYNAMIC_UNSIGNED_BUCKETS,
               maps.unsigned_entries);
}

const hri_dynamic_maps *hri_dynamic_maps_get(void) {
  (void)pthread_once(&once, make);
  return &maps;
}
