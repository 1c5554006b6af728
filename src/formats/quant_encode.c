/* Blocks of GGUF from fp32 values.
 *
 * The blocks of 32 take their scale from the largest magnitude and round; the order of the fp32 operations is that of the
 * reference (quantize_row_q8_0_ref and the like in ggml-quants.c, and the package gguf), because the blocks shall be its bytes. Those
 * of the K formats look for their scales (quant_search.h). No product may be fused with a sum: a fused one has other
 * bits (CMakeLists.txt: -ffp-contract=off). */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "formats/dtype.h"
#include "formats/quant.h"
#include "formats/quant_search.h"

/* ---- blocks of 32 ---- */

/* Magnitudes are compared as bits: integer selections become vectors where those of floats, which know NaNs, do not. */
static int32_t magnitude(float x) {
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits & 0x7FFFFFFF;
}

/* Nearest integer, halves away from zero, at most 127 in magnitude; a NaN becomes 0. */
static int8_t round_away(float x) {
  int32_t bits = magnitude(x), sign, whole;
  float a;
  bits = bits > 0x7F800000 ? 0 : bits > 0x42FE0000 ? 0x42FE0000 : bits; /* 127.0f */
  memcpy(&a, &bits, sizeof a);
  memcpy(&sign, &x, sizeof sign);
  sign >>= 31;
  whole = (int32_t)a;
  whole += a - (float)whole >= 0.5f;
  return (int8_t)((whole ^ sign) - sign);
}

static void to_q8_0(uint8_t *restrict block, const float *restrict from) {
  int32_t largest = 0;
  float d, inverse;
  uint16_t half;
  for (int j = 0; j < 32; j++) largest = magnitude(from[j]) > largest ? magnitude(from[j]) : largest;
  memcpy(&d, &largest, sizeof d);
  d /= 127.0f;
  inverse = d != 0 ? 1.0f / d : 0.0f;
  hri_f16_from_f32(&half, &d, 1);
  memcpy(block, &half, sizeof half);
  for (int j = 0; j < 32; j++) block[2 + j] = (uint8_t)round_away(from[j] * inverse);
}

/* The value of largest magnitude, the first of several. */
static float extreme(const float *from) {
  float found = 0;
  for (int j = 0; j < 32; j++)
    if (fabsf(from[j]) > fabsf(found)) found = from[j];
  return found;
}

/* Codes from 0 to `most` around `middle` in steps of the value of largest magnitude, which has the code 0. */
static void codes_around(uint8_t codes[32], uint8_t *half, const float *from, float middle, float most) {
  float d = extreme(from) / -middle, inverse = d != 0 ? 1.0f / d : 0.0f;
  uint16_t bits;
  hri_f16_from_f32(&bits, &d, 1);
  memcpy(half, &bits, sizeof bits);
  for (int j = 0; j < 32; j++) {
    float code = from[j] * inverse + (middle + 0.5f);
    codes[j] = (uint8_t)(code > 0 ? code < most ? code : most : 0); /* also of what is no number */
  }
}

static void to_q4_0(uint8_t *restrict block, const float *restrict from) {
  uint8_t codes[32];
  codes_around(codes, block, from, 8, 15);
  for (int j = 0; j < 16; j++) block[2 + j] = (uint8_t)(codes[j] | codes[j + 16] << 4);
}

static void to_q5_0(uint8_t *restrict block, const float *restrict from) {
  uint32_t high = 0;
  uint8_t codes[32];
  codes_around(codes, block, from, 16, 31);
  for (int j = 0; j < 32; j++) high |= (uint32_t)(codes[j] >> 4) << j;
  memcpy(block + 2, &high, sizeof high);
  for (int j = 0; j < 16; j++) block[6 + j] = (uint8_t)((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}

/* From the least value on, in steps of a 31st of the range. */
static void to_q5_1(uint8_t *restrict block, const float *restrict from) {
  float least = from[0], most = from[0], d, inverse;
  uint32_t high = 0;
  uint16_t halves[2];
  uint8_t codes[32];
  for (int j = 1; j < 32; j++) {
    if (from[j] < least) least = from[j];
    if (from[j] > most) most = from[j];
  }
  d = (most - least) / 31.0f;
  inverse = d != 0 ? 1.0f / d : 0.0f;
  hri_f16_from_f32(halves, (const float[]){d, least}, 2);
  for (int j = 0; j < 32; j++) {
    float code = (from[j] - least) * inverse + 0.5f;
    codes[j] = (uint8_t)(code > 0 ? code < 31 ? code : 31 : 0);
    high |= (uint32_t)(codes[j] >> 4) << j;
  }
  memcpy(block, halves, sizeof halves);
  memcpy(block + 4, &high, sizeof high);
  for (int j = 0; j < 16; j++) block[8 + j] = (uint8_t)((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}

/* ---- blocks of 256 ---- */

static void search(uint32_t type, uint8_t *to, const float *from, uint64_t elements) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    hri_quant_search_avx2(type, to, from, elements);
    return;
  }
#endif
  hri_quant_search_here(type, to, from, elements);
}

/* ---- whole runs ---- */

/* The types that are made, and where their halves end: in Q8_0, Q4_0 and Q5_0 at 65520 steps of the largest value, in Q5_1 at
 * the least value; scales of the K formats are fitted, and no fit comes that far from values below these. */
static const struct {
  void (*one)(uint8_t *restrict block, const float *restrict from);
  bool searched;
  float reach;
} encoders[] = {
    [HRI_GGML_F32] = {.reach = INFINITY},
    [HRI_GGML_F16] = {.reach = 65520.0f},
    [HRI_GGML_BF16] = {.reach = 0x1.FFp127f},
    [HRI_GGML_Q4_0] = {.one = to_q4_0, .reach = 65519.996f * 8},
    [HRI_GGML_Q5_0] = {.one = to_q5_0, .reach = 65519.996f * 16},
    [HRI_GGML_Q8_0] = {.one = to_q8_0, .reach = 65519.996f * 127},
    [HRI_GGML_Q5_1] = {.one = to_q5_1, .reach = 65520.0f},
    [HRI_GGML_Q4_K] = {.searched = true, .reach = 3.6e6f},
    [HRI_GGML_Q5_K] = {.searched = true, .reach = 3.6e6f},
    [HRI_GGML_Q6_K] = {.searched = true, .reach = 2.5e8f},
};

bool hri_ggml_encodes(uint32_t type) { return type < sizeof encoders / sizeof *encoders && encoders[type].reach > 0; }

float hri_ggml_reach(uint32_t type) { return hri_ggml_encodes(type) ? encoders[type].reach : 0.0f; }

/* The 16-bit conversions want aligned halves: odd addresses go through a small buffer. */
static void halves_from_f32(uint32_t type, uint8_t *to, const float *from, uint64_t elements) {
  uint16_t part[512];
  for (uint64_t done = 0; done < elements;) {
    uint64_t n = elements - done < 512 ? elements - done : 512;
    if (type == HRI_GGML_F16) hri_f16_from_f32(part, from + done, n);
    else hri_bf16_from_f32(part, from + done, n);
    memcpy(to + done * 2, part, (size_t)(n * 2));
    done += n;
  }
}

bool hri_ggml_from_f32(uint32_t type, void *to, const float *from, uint64_t elements) {
  uint8_t *block = to;
  if (!hri_ggml_encodes(type)) return false;
  assert(elements % hri_ggml_block(type) == 0);
  if (type == HRI_GGML_F32) memcpy(to, from, (size_t)(elements * sizeof *from));
  else if (hri_ggml_block(type) == 1) halves_from_f32(type, to, from, elements);
  else if (encoders[type].searched) search(type, to, from, elements);
  else
    for (uint64_t i = 0; i < elements; i += hri_ggml_block(type), block += hri_ggml_block_bytes(type))
      encoders[type].one(block, from + i);
  return true;
}
