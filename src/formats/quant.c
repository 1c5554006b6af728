/* Block formats of GGUF.
 *
 * In the blocks of 32, quant j and quant j + 16 share a byte (low and high nibble); fifth bits are a u32 with bit j for
 * quant j. The K formats and IQ4_XS have 256 elements in sub-blocks of 32 (16 in Q2_K, Q3_K and Q6_K), whose scales and
 * minima are 6 bits (4 in Q2_K, 8 in Q6_K) times one fp16 each. The codes of IQ4_NL and IQ4_XS are places in a table of 16
 * uneven steps. The loops have constant counts and no branches, so that compilers turn them into vectors;
 * the order of the
 * fp32 operations is the reference's, because the results shall be its bits. */
#include "formats/quant.h"

#include <string.h>

#include "formats/dtype.h"

static const struct {
  char name[8];
  uint16_t block, bytes;
} types[] = {
    [HRI_GGML_F32] = {"F32", 1, 4},
    [HRI_GGML_F16] = {"F16", 1, 2},
    [HRI_GGML_Q4_0] = {"Q4_0", 32, 18},
    [HRI_GGML_Q4_1] = {"Q4_1", 32, 20},
    [HRI_GGML_Q5_0] = {"Q5_0", 32, 22},
    [HRI_GGML_Q5_1] = {"Q5_1", 32, 24},
    [HRI_GGML_Q8_0] = {"Q8_0", 32, 34},
    [9] = {"Q8_1", 32, 40},
    [HRI_GGML_Q2_K] = {"Q2_K", 256, 84},
    [HRI_GGML_Q3_K] = {"Q3_K", 256, 110},
    [HRI_GGML_Q4_K] = {"Q4_K", 256, 144},
    [HRI_GGML_Q5_K] = {"Q5_K", 256, 176},
    [HRI_GGML_Q6_K] = {"Q6_K", 256, 210},
    [15] = {"Q8_K", 256, 292},
    [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98},
    [19] = {"IQ1_S", 256, 50},
    [HRI_GGML_IQ4_NL] = {"IQ4_NL", 32, 18},
    [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},
    [HRI_GGML_IQ4_XS] = {"IQ4_XS", 256, 136},
    [24] = {"I8", 1, 1},
    [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},
    [27] = {"I64", 1, 8},
    [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},
    [HRI_GGML_BF16] = {"BF16", 1, 2},
    [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},
    [39] = {"MXFP4", 32, 17},
    [40] = {"NVFP4", 64, 36},
    [41] = {"Q1_0", 128, 18},
};

bool hri_ggml_known(uint32_t type) { return type < sizeof types / sizeof *types && types[type].block > 0; }
const char *hri_ggml_name(uint32_t type) { return hri_ggml_known(type) ? types[type].name : "unknown"; }
uint32_t hri_ggml_block(uint32_t type) { return hri_ggml_known(type) ? types[type].block : 0; }
uint32_t hri_ggml_block_bytes(uint32_t type) { return hri_ggml_known(type) ? types[type].bytes : 0; }

bool hri_ggml_bytes(uint32_t type, uint64_t elements, uint64_t *bytes) {
  if (!hri_ggml_known(type) || elements % types[type].block != 0) return false;
  return hri_mul(elements / types[type].block, types[type].bytes, bytes);
}

/* ---- pieces of blocks ---- */

static float half_at(const uint8_t *at) {
  uint16_t half;
  float value;
  memcpy(&half, at, sizeof half);
  hri_f32_from_f16(&value, &half, 1);
  return value;
}

static uint32_t word_at(const uint8_t *at) {
  uint32_t word;
  memcpy(&word, at, sizeof word);
  return word;
}

/* Scale and minimum of sub-block k of 8: 6 bits each in 12 bytes (k < 4: bytes k and k + 4; above: nibbles of byte k +
 * 4 and the upper two bits of bytes k - 4 and k). */
static void scale_and_minimum(const uint8_t *packed, unsigned k, float *scale, float *minimum) {
  if (k < 4) {
    *scale = (float)(packed[k] & 63);
    *minimum = (float)(packed[k + 4] & 63);
  } else {
    *scale = (float)((packed[k + 4] & 15) | (packed[k - 4] >> 6) << 4);
    *minimum = (float)((packed[k + 4] >> 4) | (packed[k] >> 6) << 4);
  }
}

/* ---- one block to fp32 ---- */

static void from_q4_0(float *restrict to, const uint8_t *restrict block) {
  float d = half_at(block);
  for (int j = 0; j < 16; j++) to[j] = d * (float)((block[2 + j] & 15) - 8);
  for (int j = 0; j < 16; j++) to[j + 16] = d * (float)((block[2 + j] >> 4) - 8);
}

static void from_q4_1(float *restrict to, const uint8_t *restrict block) {
  float d = half_at(block), m = half_at(block + 2);
  for (int j = 0; j < 16; j++) to[j] = d * (float)(block[4 + j] & 15) + m;
  for (int j = 0; j < 16; j++) to[j + 16] = d * (float)(block[4 + j] >> 4) + m;
}

static void from_q5_0(float *restrict to, const uint8_t *restrict block) {
  float d = half_at(block);
  uint32_t high = word_at(block + 2);
  for (int j = 0; j < 16; j++) to[j] = d * (float)((int)((block[6 + j] & 15) | (high >> j & 1) << 4) - 16);
  for (int j = 0; j < 16; j++) to[j + 16] = d * (float)((int)((block[6 + j] >> 4u) | (high >> (j + 16) & 1) << 4) - 16);
}

static void from_q5_1(float *restrict to, const uint8_t *restrict block) {
  float d = half_at(block), m = half_at(block + 2);
  uint32_t high = word_at(block + 4);
  for (int j = 0; j < 16; j++) to[j] = d * (float)(int)((block[8 + j] & 15) | (high >> j & 1) << 4) + m;
  for (int j = 0; j < 16; j++) to[j + 16] = d * (float)(int)((block[8 + j] >> 4u) | (high >> (j + 16) & 1) << 4) + m;
}

static void from_q8_0(float *restrict to, const uint8_t *restrict block) {
  float d = half_at(block);
  for (int j = 0; j < 32; j++) to[j] = (float)(int8_t)block[2 + j] * d;
}

/* Halves of 128: sub-blocks 2g and 2g + 1 are bits 2g and 2g + 1 of 32 bytes. A byte for each sub-block has its scale in
 * the low nibble and its minimum in the high one. */
static void from_q2_k(float *restrict to, const uint8_t *restrict block) {
  float d = half_at(block + 80), least = half_at(block + 82);
  for (unsigned k = 0; k < 16; k++) {
    const uint8_t *quants = block + 16 + k / 8 * 32 + k % 2 * 16;
    unsigned shift = k % 8 / 2 * 2;
    float scale = d * (float)(block[k] & 15), minimum = least * (float)(block[k] >> 4);
    for (unsigned j = 0; j < 16; j++) to[k * 16 + j] = scale * (float)(int)(quants[j] >> shift & 3) - minimum;
  }
}

/* Two bits as in Q2_K; the third one of sub-blocks 2g and 2g + 1 is bit g of 32 bytes, and 4 is taken away where it is 0.
 * Scales have the bias 32: nibbles of the first 8 bytes (low ones, then high ones), upper two bits in the last 4. */
static void from_q3_k(float *restrict to, const uint8_t *restrict block) {
  const uint8_t *packed = block + 96;
  float d = half_at(block + 108);
  for (unsigned k = 0; k < 16; k++) {
    const uint8_t *high = block + k % 2 * 16, *quants = block + 32 + k / 8 * 32 + k % 2 * 16;
    unsigned shift = k % 8 / 2 * 2, bit = k / 2;
    int six = (packed[k % 8] >> (k / 8 * 4) & 15) | (packed[8 + k % 4] >> (k / 4 * 2) & 3) << 4;
    float scale = d * (float)(six - 32);
    for (unsigned j = 0; j < 16; j++)
      to[k * 16 + j] = scale * (float)((int)(quants[j] >> shift & 3) - (high[j] >> bit & 1 ? 0 : 4));
  }
}

/* Sub-blocks 2i and 2i + 1 are the low and high nibbles of 32 bytes. */
static void from_q4_k(float *restrict to, const uint8_t *restrict block) {
  float d = half_at(block), least = half_at(block + 2), scale, minimum;
  for (unsigned k = 0; k < 8; k++) {
    const uint8_t *quants = block + 16 + k / 2 * 32;
    unsigned shift = k % 2 * 4;
    scale_and_minimum(block + 4, k, &scale, &minimum);
    scale *= d;
    minimum *= least;
    for (unsigned j = 0; j < 32; j++) to[k * 32 + j] = scale * (float)(int)(quants[j] >> shift & 15) - minimum;
  }
}

/* As Q4_K; the fifth bit of element j of sub-block k is bit k of byte j. */
static void from_q5_k(float *restrict to, const uint8_t *restrict block) {
  float d = half_at(block), least = half_at(block + 2), scale, minimum;
  for (unsigned k = 0; k < 8; k++) {
    const uint8_t *high = block + 16, *quants = block + 48 + k / 2 * 32;
    unsigned shift = k % 2 * 4;
    scale_and_minimum(block + 4, k, &scale, &minimum);
    scale *= d;
    minimum *= least;
    for (unsigned j = 0; j < 32; j++)
      to[k * 32 + j] = scale * (float)(int)((quants[j] >> shift & 15) | (high[j] >> k & 1) << 4) - minimum;
  }
}

/* Halves of 128: four groups of 32, group g with nibbles of bytes 32 (g % 2) and bits 2g of the 32 bytes of upper
 * bits. */
static void from_q6_k(float *restrict to, const uint8_t *restrict block) {
  float d = half_at(block + 208);
  for (unsigned group = 0; group < 8; group++) {
    const uint8_t *low = block + group / 4 * 64 + group % 2 * 32, *high = block + 128 + group / 4 * 32;
    unsigned shift = group % 4 / 2 * 4, bits = group % 4 * 2;
    float scales[2] = {d * (float)(int8_t)block[192 + group * 2], d * (float)(int8_t)block[193 + group * 2]};
    for (unsigned part = 0; part < 2; part++)
      for (unsigned j = part * 16; j < part * 16 + 16; j++)
        to[group * 32 + j] = scales[part] * (float)((int)((low[j] >> shift & 15) | (high[j] >> bits & 3) << 4) - 32);
  }
}

/* Steps of IQ4_NL and IQ4_XS. */
static const int8_t uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void from_iq4_nl(float *restrict to, const uint8_t *restrict block) {
  float d = half_at(block);
  for (int j = 0; j < 16; j++) to[j] = d * (float)uneven[block[2 + j] & 15];
  for (int j = 0; j < 16; j++) to[j + 16] = d * (float)uneven[block[2 + j] >> 4];
}

/* Sub-blocks as blocks of IQ4_NL; scales have the bias 32, their low nibbles in 4 bytes, upper two bits in a u16. */
static void from_iq4_xs(float *restrict to, const uint8_t *restrict block) {
  float d = half_at(block);
  for (unsigned k = 0; k < 8; k++) {
    const uint8_t *quants = block + 8 + k * 16;
    int six = (block[4 + k / 2] >> (k % 2 * 4) & 15) | (block[2 + k / 4] >> (k % 4 * 2) & 3) << 4;
    float scale = d * (float)(six - 32);
    for (unsigned j = 0; j < 16; j++) to[k * 32 + j] = scale * (float)uneven[quants[j] & 15];
    for (unsigned j = 0; j < 16; j++) to[k * 32 + j + 16] = scale * (float)uneven[quants[j] >> 4];
  }
}

typedef void (*decode)(float *restrict to, const uint8_t *restrict block);

static const decode decoders[] = {
    [HRI_GGML_Q4_0] = from_q4_0, [HRI_GGML_Q4_1] = from_q4_1,     [HRI_GGML_Q5_0] = from_q5_0,
    [HRI_GGML_Q5_1] = from_q5_1, [HRI_GGML_Q8_0] = from_q8_0,     [HRI_GGML_Q2_K] = from_q2_k,
    [HRI_GGML_Q3_K] = from_q3_k, [HRI_GGML_Q4_K] = from_q4_k,     [HRI_GGML_Q5_K] = from_q5_k,
    [HRI_GGML_Q6_K] = from_q6_k, [HRI_GGML_IQ4_NL] = from_iq4_nl, [HRI_GGML_IQ4_XS] = from_iq4_xs,
};

static decode decoder_of(uint32_t type) { return type < sizeof decoders / sizeof *decoders ? decoders[type] : NULL; }

/* ---- whole runs ---- */

bool hri_ggml_decodes(uint32_t type) {
  return type == HRI_GGML_F32 || type == HRI_GGML_F16 || type == HRI_GGML_BF16 || decoder_of(type);
}

/* The 16-bit conversions want aligned halves: odd addresses go through a small buffer. */
static void halves_to_f32(uint32_t type, float *to, const uint8_t *from, uint64_t elements) {
  uint16_t part[512];
  for (uint64_t done = 0; done < elements;) {
    uint64_t n = elements - done < 512 ? elements - done : 512;
    memcpy(part, from + done * 2, (size_t)(n * 2));
    if (type == HRI_GGML_F16) hri_f32_from_f16(to + done, part, n);
    else hri_f32_from_bf16(to + done, part, n);
    done += n;
  }
}

bool hri_ggml_to_f32(uint32_t type, float *to, const void *from, uint64_t elements) {
  decode one = decoder_of(type);
  const uint8_t *block = from;
  if (!hri_ggml_decodes(type)) return false;
  if (type == HRI_GGML_F32) memcpy(to, from, (size_t)(elements * sizeof *to));
  else if (!one) halves_to_f32(type, to, from, elements);
  else
    for (uint64_t i = 0; i < elements; i += types[type].block, block += types[type].bytes) one(to + i, block);
  return true;
}
