/* The search for scales and codes of Q4_K, Q5_K and Q6_K, for a block at a time; included once for each width of vectors.
 *
 * A sub-block tries some scales around the plain one, refits each by least squares, weighted, and keeps the best: sums over
 * its elements in their order, whose bits decide. So vectors do not run along a sub-block but across: a lane is one of
 * the 8 sub-blocks of Q4_K and Q5_K, or of 8 of the 16 of Q6_K. Each lane then computes what the scalar reference does, step by
 * step, and a branch of it is a choice between lanes. Nothing here may be fused or reordered (no -mfma, no -ffast-math).
 *
 * Source of the arithmetic: ggml-org/ggml, src/ggml-quants.c, make_qkx2_quants and make_qx_quants as
 * quantize_row_q4_K_ref, quantize_row_q5_K_ref and quantize_row_q6_K_ref call them. */
#ifndef HRI_FORMATS_QUANT_SEARCH_H
#define HRI_FORMATS_QUANT_SEARCH_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "formats/dtype.h"
#include "formats/quant.h"

enum { HRI_SEARCH_LANES = 8 };
#define HRI_SEARCH_LEAST 1e-15f /* smaller magnitudes are zeros to Q6_K */

#define HRI_SEARCH static inline __attribute__((always_inline))

typedef float hri_lanes __attribute__((vector_size(32)));
typedef int32_t hri_whole __attribute__((vector_size(32)));

/* ---- lanes ---- */

HRI_SEARCH hri_lanes lanes_of(float value) {
  return (hri_lanes){value, value, value, value, value, value, value, value};
}

/* a where the mask is set, else b. */
HRI_SEARCH hri_whole pick_whole(hri_whole mask, hri_whole a, hri_whole b) { return (mask & a) | (~mask & b); }
HRI_SEARCH hri_lanes pick(hri_whole mask, hri_lanes a, hri_lanes b) {
  return (hri_lanes)pick_whole(mask, (hri_whole)a, (hri_whole)b);
}

HRI_SEARCH hri_lanes absolute(hri_lanes v) { return (hri_lanes)((hri_whole)v & 0x7FFFFFFF); }

/* The nearest whole number, halves to even, of at most 2^22 in magnitude: the sum with 1.5 x 2^23 has no room for a
 * fraction. What is larger, or no number, becomes some whole number, the same everywhere. */
HRI_SEARCH hri_whole nearest(hri_lanes v) { return ((hri_whole)(v + 12582912.0f) & 0x007FFFFF) - 0x00400000; }

HRI_SEARCH hri_whole clamp(hri_whole v, int32_t low, int32_t high) {
  v = pick_whole(v < low, (hri_whole){low, low, low, low, low, low, low, low}, v);
  return pick_whole(v > high, (hri_whole){high, high, high, high, high, high, high, high}, v);
}

HRI_SEARCH hri_lanes real(hri_whole v) { return __builtin_convertvector(v, hri_lanes); }

HRI_SEARCH int32_t nearest_one(float v) {
  float sum = v + 12582912.0f;
  int32_t bits;
  memcpy(&bits, &sum, sizeof bits);
  return (bits & 0x007FFFFF) - 0x00400000;
}

HRI_SEARCH float through_half(float value, uint8_t *at) {
  uint16_t half;
  hri_f16_from_f32(&half, &value, 1);
  memcpy(at, &half, sizeof half);
  hri_f32_from_f16(&value, &half, 1);
  return value;
}

/* ---- Q4_K and Q5_K: x ~ scale * code + minimum, code from 0 on, minimum at most 0 ---- */

typedef struct hri_fit {
  hri_lanes scale, minimum;
  hri_whole codes[32];
} hri_fit;

/* The weighted error of codes against x. */
HRI_SEARCH hri_lanes error_of(const hri_lanes x[32], const hri_lanes weight[32], const hri_whole codes[32],
                              hri_lanes scale, hri_lanes minimum) {
  hri_lanes sum = {0};
  for (int i = 0; i < 32; i++) {
    hri_lanes difference = scale * real(codes[i]) + minimum - x[i];
    sum += weight[i] * (difference * difference);
  }
  return sum;
}

/* One trial: codes as if the range had `steps` steps, the line of least squares through them, and its error. */
HRI_SEARCH void try_steps(const hri_lanes x[32], const hri_lanes weight[32], hri_lanes most, hri_lanes sum_w,
                          hri_lanes sum_x, float steps, int32_t top, hri_fit *best, hri_lanes *best_error) {
  hri_lanes inverse = steps / (most - best->minimum), sum_l = {0}, sum_l2 = {0}, sum_xl = {0}, by, scale, minimum,
            error;
  hri_whole codes[32], above, better;
  for (int i = 0; i < 32; i++) {
    hri_lanes l, wl;
    codes[i] = clamp(nearest(inverse * (x[i] - best->minimum)), 0, top);
    l = real(codes[i]);
    wl = weight[i] * l;
    sum_l += wl;
    sum_l2 += wl * l;
    sum_xl += wl * x[i];
  }
  by = sum_w * sum_l2 - sum_l * sum_l;
  scale = (sum_w * sum_xl - sum_x * sum_l) / by;
  minimum = (sum_l2 * sum_x - sum_l * sum_xl) / by;
  above = minimum > 0.0f;
  minimum = pick(above, (hri_lanes){0}, minimum);
  scale = pick(above, sum_xl / sum_l2, scale);
  error = error_of(x, weight, codes, scale, minimum);
  better = (by > 0.0f) & (error < *best_error);
  for (int i = 0; i < 32; i++) best->codes[i] = pick_whole(better, codes[i], best->codes[i]);
  *best_error = pick(better, error, *best_error);
  best->scale = pick(better, scale, best->scale);
  best->minimum = pick(better, minimum, best->minimum);
}

/* Elements weigh their magnitude and the root mean square of their sub-block. */
HRI_SEARCH void weigh(const hri_lanes x[32], hri_lanes weight[32]) {
  hri_lanes squares = {0}, mean;
  for (int i = 0; i < 32; i++) squares += x[i] * x[i];
  squares /= 32.0f;
  for (int k = 0; k < HRI_SEARCH_LANES; k++) mean[k] = sqrtf(squares[k]);
  for (int i = 0; i < 32; i++) weight[i] = mean + absolute(x[i]);
}

/* How far a type looks: its largest code, and trials of so many steps in the range, 0.1 more each time. */
typedef struct hri_line {
  int32_t top;
  float first;
  int last;
} hri_line;

HRI_SEARCH void fit_line(const hri_lanes x[32], hri_line line, hri_fit *best) {
  hri_lanes weight[32], most = x[0], least = x[0], sum_w, sum_x, error, inverse;
  hri_whole flat;
  weigh(x, weight);
  sum_w = weight[0];
  sum_x = sum_w * x[0];
  for (int i = 1; i < 32; i++) {
    least = pick(x[i] < least, x[i], least);
    most = pick(x[i] > most, x[i], most);
    sum_w += weight[i];
    sum_x += weight[i] * x[i];
  }
  least = pick(least > 0.0f, (hri_lanes){0}, least);
  flat = most == least; /* 0 everywhere, and no trial is better than an error below 0 */
  inverse = (float)line.top / (most - least);
  best->minimum = least;
  best->scale = 1.0f / inverse;
  for (int i = 0; i < 32; i++) best->codes[i] = clamp(nearest(inverse * (x[i] - least)), 0, line.top) & ~flat;
  error = error_of(x, weight, best->codes, best->scale, least);
  error = pick(flat, lanes_of(-1.0f), error);
  best->scale = pick(flat, (hri_lanes){0}, best->scale);
  for (int k = 0; k <= line.last; k++)
    try_steps(x, weight, most, sum_w, sum_x, line.first + 0.1f * (float)k + (float)line.top, line.top, best, &error);
}

/* Six bits of scale and minimum of sub-block k in the 12 bytes (formats/quant.c, scale_and_minimum). */
HRI_SEARCH void pack_six(uint8_t packed[12], int k, uint8_t scale, uint8_t minimum) {
  if (k < 4) {
    packed[k] = scale;
    packed[k + 4] = minimum;
    return;
  }
  packed[k + 4] = (uint8_t)((scale & 15) | (minimum & 15) << 4);
  packed[k - 4] = (uint8_t)(packed[k - 4] | scale >> 4 << 6);
  packed[k] = (uint8_t)(packed[k] | minimum >> 4 << 6);
}

/* Scales and minima of all sub-blocks as multiples of one half each; what they are then. */
HRI_SEARCH void share_line(uint8_t *block, const hri_fit *fit, hri_lanes *scale, hri_lanes *minimum) {
  float top_scale = 0, top_minimum = 0, by_scale, by_minimum, d, least;
  for (int k = 0; k < HRI_SEARCH_LANES; k++) {
    if (fit->scale[k] > top_scale) top_scale = fit->scale[k];
    if (-fit->minimum[k] > top_minimum) top_minimum = -fit->minimum[k];
  }
  by_scale = top_scale > 0 ? 63.0f / top_scale : 0.0f;
  by_minimum = top_minimum > 0 ? 63.0f / top_minimum : 0.0f;
  d = through_half(top_scale / 63.0f, block);
  least = through_half(top_minimum / 63.0f, block + 2);
  for (int k = 0; k < HRI_SEARCH_LANES; k++) {
    uint8_t s = (uint8_t)nearest_one(by_scale * fit->scale[k]), m = (uint8_t)nearest_one(by_minimum * -fit->minimum[k]);
    if (s > 63) s = 63;
    if (m > 63) m = 63;
    pack_six(block + 4, k, s, m);
    (*scale)[k] = d * (float)s;
    (*minimum)[k] = least * (float)m;
  }
}

/* 256 values to the head of a block, its scales, and a code for each. */
HRI_SEARCH void search_line(uint8_t *block, hri_whole codes[32], const float from[256], hri_line line) {
  hri_lanes x[32], scale = {0}, minimum = {0};
  hri_fit fit;
  for (int i = 0; i < 32; i++)
    for (int k = 0; k < HRI_SEARCH_LANES; k++) x[i][k] = from[k * 32 + i];
  fit_line(x, line, &fit);
  share_line(block, &fit, &scale, &minimum);
  for (int i = 0; i < 32; i++) {
    hri_whole code = clamp(nearest((x[i] + minimum) / scale), 0, line.top);
    codes[i] = pick_whole(scale != 0.0f, code, fit.codes[i]);
  }
}

/* A block of 144 bytes. */
HRI_SEARCH void search_q4_k(uint8_t *block, const float from[256]) {
  hri_whole codes[32];
  search_line(block, codes, from, (hri_line){15, -1.0f, 20});
  for (int i = 0; i < 32; i++)
    for (int k = 0; k < HRI_SEARCH_LANES; k += 2)
      block[16 + k * 16 + i] = (uint8_t)(codes[i][k] | codes[i][k + 1] << 4);
}

/* A block of 176 bytes: the fifth bit of element i of sub-block k is bit k of byte i. */
HRI_SEARCH void search_q5_k(uint8_t *block, const float from[256]) {
  hri_whole codes[32];
  search_line(block, codes, from, (hri_line){31, -0.5f, 15});
  for (int i = 0; i < 32; i++) {
    int32_t fifth = 0;
    for (int k = 0; k < HRI_SEARCH_LANES; k++) fifth |= codes[i][k] >> 4 << k;
    block[16 + i] = (uint8_t)fifth;
    for (int k = 0; k < HRI_SEARCH_LANES; k += 2)
      block[48 + k * 16 + i] = (uint8_t)((codes[i][k] & 15) | (codes[i][k + 1] & 15) << 4);
  }
}

/* ---- Q6_K: x ~ scale * code, code from -32 to 31 ---- */

/* One trial, as try_steps. */
HRI_SEARCH void try_inverse(const hri_lanes x[16], hri_lanes inverse, hri_whole allowed, hri_lanes *scale,
                            hri_lanes *best, hri_whole codes[16]) {
  hri_lanes sum_xl = {0}, sum_l2 = {0};
  hri_whole own[16], better;
  for (int i = 0; i < 16; i++) {
    hri_lanes l, weight = x[i] * x[i];
    own[i] = clamp(nearest(inverse * x[i]), -32, 31);
    l = real(own[i]);
    sum_xl += weight * x[i] * l;
    sum_l2 += weight * l * l;
  }
  better = allowed & (sum_l2 > 0.0f) & (sum_xl * sum_xl > *best * sum_l2);
  for (int i = 0; i < 16; i++) codes[i] = pick_whole(better, own[i], codes[i]);
  *scale = pick(better, sum_xl / sum_l2, *scale);
  *best = pick(better, *scale * sum_xl, *best);
}

/* The plain scale first, then 18 around it. Where all is nearly 0 the scale is 0 and no trial is taken. */
HRI_SEARCH hri_lanes fit_q6_k(const hri_lanes x[16], hri_whole codes[16]) {
  hri_lanes top = {0}, most = {0}, scale = {0}, best = {0}, sum_xl = {0}, sum_l2 = {0}, inverse;
  hri_whole some;
  for (int i = 0; i < 16; i++) {
    hri_whole more = absolute(x[i]) > most;
    most = pick(more, absolute(x[i]), most);
    top = pick(more, x[i], top);
  }
  some = most >= HRI_SEARCH_LEAST;
  inverse = -32.0f / top;
  for (int i = 0; i < 16; i++) {
    hri_lanes l, weight = x[i] * x[i];
    codes[i] = clamp(nearest(inverse * x[i]), -32, 31);
    l = real(codes[i]);
    sum_xl += weight * x[i] * l;
    sum_l2 += weight * l * l;
  }
  scale = pick(some & (sum_l2 != 0.0f), sum_xl / sum_l2, (hri_lanes){0});
  best = scale * sum_xl;
  for (int k = -9; k <= 9; k++)
    if (k != 0) try_inverse(x, -(32.0f + 0.1f * (float)k) / top, some, &scale, &best, codes);
  for (int i = 0; i < 16; i++)
    codes[i] = pick_whole(some, codes[i], (hri_whole){-32, -32, -32, -32, -32, -32, -32, -32});
  return scale;
}

/* Scales as multiples of one half; what they are then. False: all are zeros. */
HRI_SEARCH bool share_q6_k(uint8_t *block, hri_lanes scales[2]) {
  float top = 0, most = 0, inverse, d;
  for (int k = 0; k < 16; k++) {
    float scale = scales[k / 8][k % 8];
    if (fabsf(scale) > most) most = fabsf(scale), top = scale;
  }
  if (most < HRI_SEARCH_LEAST) return false;
  inverse = -128.0f / top;
  d = through_half(1 / inverse, block + 208);
  for (int k = 0; k < 16; k++) {
    int32_t times = nearest_one(inverse * scales[k / 8][k % 8]);
    int8_t byte = (int8_t)(times < 127 ? times : 127);
    memcpy(block + 192 + k, &byte, sizeof byte);
    scales[k / 8][k % 8] = d * (float)byte;
  }
  return true;
}

/* Halves of 128: four groups of 32 share nibbles of 64 bytes and pairs of bits of 32 (formats/quant.c, from_q6_k). */
HRI_SEARCH void pack_q6_k(uint8_t *block, const uint8_t codes[256]) {
  for (int half = 0; half < 2; half++)
    for (int i = 0; i < 32; i++) {
      const uint8_t *c = codes + half * 128 + i;
      block[half * 64 + i] = (uint8_t)((c[0] & 15) | (c[64] & 15) << 4);
      block[half * 64 + 32 + i] = (uint8_t)((c[32] & 15) | (c[96] & 15) << 4);
      block[128 + half * 32 + i] = (uint8_t)(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 | c[96] >> 4 << 6);
    }
}

/* 256 values to a block of 210 bytes. */
HRI_SEARCH void search_q6_k(uint8_t *block, const float from[256]) {
  hri_lanes x[2][16], scales[2];
  hri_whole codes[2][16];
  uint8_t bytes[256];
  for (int g = 0; g < 2; g++) {
    for (int i = 0; i < 16; i++)
      for (int k = 0; k < HRI_SEARCH_LANES; k++) x[g][i][k] = from[(g * 8 + k) * 16 + i];
    scales[g] = fit_q6_k(x[g], codes[g]);
  }
  memset(block, 0, 210);
  if (!share_q6_k(block, scales)) return;
  for (int g = 0; g < 2; g++)
    for (int i = 0; i < 16; i++) {
      hri_whole code = clamp(nearest(x[g][i] / scales[g]), -32, 31);
      code = pick_whole(scales[g] != 0.0f, code, codes[g][i]) + 32;
      for (int k = 0; k < HRI_SEARCH_LANES; k++) bytes[(g * 8 + k) * 16 + i] = (uint8_t)code[k];
    }
  pack_q6_k(block, bytes);
}

/* Whole blocks of one of these types. */
HRI_SEARCH void hri_quant_search_here(uint32_t type, uint8_t *to, const float *from, uint64_t elements) {
  for (uint64_t i = 0; i < elements; i += 256, to += hri_ggml_block_bytes(type))
    if (type == HRI_GGML_Q4_K) search_q4_k(to, from + i);
    else if (type == HRI_GGML_Q5_K) search_q5_k(to, from + i);
    else search_q6_k(to, from + i);
}

/* The same, compiled for AVX2 (quant_avx2.c). */
void hri_quant_search_avx2(uint32_t type, uint8_t *to, const float *from, uint64_t elements);

#endif
