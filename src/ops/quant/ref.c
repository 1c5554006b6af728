/* Quantizing one tensor in plain loops, operation by operation as bitsandbytes rounds them: what the kernels are held to. */
#include "ops/quant/ref.h"

#include <math.h>

#include "ops/quant/nested.h"
#include "program/quantization.h"

enum { BLOCK = HRI_QUANT_BLOCK, NESTED = HRI_QUANT_NESTED_BLOCK };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static float largest(const float *x, int64_t n) {
  float most = 0;
  for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
  return most;
}

/* The code whose value is nearest to v; half way the lower value, and in FP4 code 8, whose value is 0 too, for what is
 * above 0 (the bounds are half way between neighbours, and that between the two zeros is 0). */
static int nearest(uint32_t kind, float v) {
  const float *values = hri_quant_values(kind);
  int low = -1, high = -1; /* neighbours of v: values[low] < v <= values[high] */
  for (int k = 0; k < HRI_QUANT_VALUES; k++) {
    if (values[k] < v && (low < 0 || values[k] >= values[low])) low = k;
    if (values[k] >= v && (high < 0 || values[k] < values[high])) high = k;
  }
  if (high < 0) return low;
  if (low < 0) return high;
  return v > (values[low] + values[high]) / 2 ? high : low;
}

static void put_code(uint8_t *codes, int64_t i, int code) {
  codes[i / 2] = (uint8_t)(i % 2 ? codes[i / 2] | code : code << 4);
}

static void quantize_blocks(uint32_t kind, const float *w, int64_t n, uint8_t *codes, float *absmax) {
  for (int64_t first = 0; first < n; first += BLOCK) {
    int64_t count = least(BLOCK, n - first);
    float most = largest(w + first, count), clamped = fmaxf(most, 1e-38f), inverse = 1.0f / clamped;
    absmax[first / BLOCK] = count < BLOCK ? clamped : most;
    for (int64_t i = first; i < first + count; i++)
      put_code(codes, i, nearest(kind, fminf(1, fmaxf(-1, count < BLOCK ? w[i] / clamped : w[i] * inverse))));
  }
  if (n % 2) put_code(codes, n, nearest(kind, 0));
}

/* As written down for the CPU by bitsandbytes: a table of 65,536 steps. */
static void quantize_absmax(const float *absmax, int64_t n, uint8_t *codes, float *nested) {
  static const float steps = 65535;
  const float *map = hri_quant_map();
  int64_t blocks = (n + NESTED - 1) / NESTED;
  float offset = hri_quant_mean(absmax, n);
  nested[blocks] = offset;
  for (int64_t block = 0; block < blocks; block++) {
    float most = 0;
    int64_t first = block * NESTED, end = least(n, first + NESTED);
    for (int64_t i = first; i < end; i++) most = fmaxf(most, fabsf(absmax[i] - offset));
    nested[block] = most;
    for (int64_t i = first; i < end; i++) {
      float distance = absmax[i] - offset, v = fminf(1, fmaxf(-1, distance * (1.0f / most)));
      int step = (int)((v + 1.0f) * 0.5f * steps + 0.5f), code = 0;
      if (most == 0 || isnan(distance * (1.0f / most))) step = 0;
      while (code < HRI_QUANT_MAP - 1 && 0.5f * (map[code] + map[code + 1]) < -1.0f + 2.0f * (float)step / steps)
        code++;
      codes[i] = (uint8_t)code;
    }
  }
}

/* The nearest multiple of a fp16's last place. */
static float to_half(float x) {
  int exponent;
  float unit;
  if (x == 0) return x;
  (void)frexpf(x, &exponent); /* x = f 2^exponent, f in [1/2, 1) */
  unit = ldexpf(1, (exponent - 1 < -14 ? -14 : exponent - 1) - 10);
  return rintf(x / unit) * unit;
}

static void quantize_rows(const float *w, int64_t rows, int64_t columns, int8_t *codes, float *absmax) {
  for (int64_t r = 0; r < rows; r++) {
    float inverse;
    absmax[r] = 0;
    for (int64_t c = 0; c < columns; c++) absmax[r] = fmaxf(absmax[r], fabsf(to_half(w[r * columns + c])));
    inverse = 1.0f / absmax[r];
    inverse = inverse * 127.0f;
    for (int64_t c = 0; c < columns; c++)
      codes[r * columns + c] = (int8_t)(absmax[r] > 0 ? rintf(to_half(w[r * columns + c]) * inverse) : 0);
  }
}

void hri_ref_quantize(uint32_t kind, const float *w, int64_t rows, int64_t columns, uint8_t *codes, void *absmax,
                      float *nested, float *scratch) {
  int64_t n = rows * columns;
  if (kind == HRI_QUANTIZATION_INT8) {
    quantize_rows(w, rows, columns, (int8_t *)codes, absmax);
    return;
  }
  quantize_blocks(kind, w, n, codes, hri_quant_is_double(kind) ? scratch : absmax);
  if (hri_quant_is_double(kind)) quantize_absmax(scratch, (n + BLOCK - 1) / BLOCK, absmax, nested);
}

static float scale_of(uint32_t kind, const void *absmax, const float *nested, int64_t block, int64_t blocks) {
  float product;
  if (!hri_quant_is_double(kind)) return ((const float *)absmax)[block];
  product = hri_quant_map()[((const uint8_t *)absmax)[block]] * nested[block / NESTED];
  return product + nested[(blocks + NESTED - 1) / NESTED];
}

void hri_ref_dequantize(uint32_t kind, const uint8_t *codes, const void *absmax, const float *nested, int64_t rows,
                        int64_t columns, float *w) {
  int64_t n = rows * columns, blocks = (n + BLOCK - 1) / BLOCK;
  for (int64_t i = 0; i < n; i++) {
    if (kind == HRI_QUANTIZATION_INT8) {
      float product = (float)((const int8_t *)codes)[i] * ((const float *)absmax)[i / columns];
      w[i] = product * (1.0f / 127.0f);
    } else {
      int code = i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
      w[i] = hri_quant_values(kind)[code] * scale_of(kind, absmax, nested, i / BLOCK, blocks);
    }
  }
}
