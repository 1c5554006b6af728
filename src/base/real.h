/* The element types in which kernels take activations, weights, gradients and optimizer states; arithmetic is fp32.
 *
 * bf16 is the upper half of an IEEE-754 single: 8 bits of exponent, 7 of mantissa. Rounding to it is to nearest, ties
 * to even; what is beyond the largest finite value becomes infinity, subnormals are made, NaNs stay NaN, become quiet
 * and keep their sign. (The processor's own conversion flushes subnormals to zero. Attention rounds with it what
 * stays inside it; everything else rounds as here, on every processor alike.)
 *
 * fp16 is IEEE-754 binary16: 5 bits of exponent, 10 of mantissa. Rounding is the same: what is 65520 or more becomes
 * infinity, multiples of 2^-24 below 2^-14 are made and read. Processors convert it to these bits, NaNs' too. */
#ifndef HRI_BASE_REAL_H
#define HRI_BASE_REAL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/both.h"

typedef enum hri_real { HRI_REAL_F32 = 0, HRI_REAL_BF16, HRI_REAL_F16 } hri_real;
typedef uint16_t hri_bf16, hri_f16;

HRI_BOTH static inline uint64_t hri_real_bytes(hri_real real) { return real == HRI_REAL_F32 ? 4 : 2; }

HRI_BOTH static inline float hri_bf16_widen(hri_bf16 half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

HRI_BOTH static inline hri_bf16 hri_bf16_round(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (hri_bf16)(bits >> 16 | 0x40u);
  return (hri_bf16)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

/* A float in two halves: a bf16 number, which is the nearest (of two, the one away from zero), and the low 16 bits of
 * the float, which the bf16 number and they make again, exactly. A NaN becomes quiet and keeps of its rest what bf16
 * holds. */
HRI_BOTH static inline hri_bf16 hri_split(float value, uint16_t *low) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) bits = (bits & 0xFFFF0000u) | 0x400000u;
  *low = (uint16_t)bits;
  return (hri_bf16)((bits + 0x8000u) >> 16);
}
/* Of low halves from 0x8000 on the number was rounded up: they count as negative. */
HRI_BOTH static inline float hri_join(hri_bf16 high, uint16_t low) {
  uint32_t bits = ((uint32_t)high << 16) + ((low ^ 0x8000u) - 0x8000u);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* `yes` where the condition holds, else `no`; both are computed, so that loops of conversions have no branch. */
HRI_BOTH static inline uint32_t hri_choose(bool condition, uint32_t yes, uint32_t no) {
  uint32_t mask = 0u - (uint32_t)condition;
  return (yes & mask) | (no & ~mask);
}

HRI_BOTH static inline float hri_f16_widen(hri_f16 half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7FFF, bits;
  uint32_t normal = (rest << 13) + ((127u - 15) << 23);
  uint32_t special = rest << 13 | 0x7F800000 | (rest > 0x7C00 ? 0x00400000u : 0); /* infinity, quiet NaN */
  float small = (float)(int32_t)rest * 0x1p-24f, value;                           /* subnormal; zero too */
  memcpy(&bits, &small, sizeof bits);
  bits = sign | hri_choose(rest < 0x0400, bits, rest >= 0x7C00 ? special : normal);
  memcpy(&value, &bits, sizeof value);
  return value;
}

HRI_BOTH static inline hri_f16 hri_f16_round(float value) {
  uint32_t bits, sign, rest, normal, subnormal, nan, half;
  float small;
  memcpy(&bits, &value, sizeof bits);
  sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
  normal = (rest - ((127u - 15) << 23) + 0x0FFF + (rest >> 13 & 1)) >> 13;
  /* Floats in [0.5, 1) are 2^-24 apart, as are subnormal halves: the addition rounds to them. */
  memcpy(&small, &rest, sizeof small);
  small += 0.5f;
  memcpy(&subnormal, &small, sizeof subnormal);
  subnormal -= 0x3F000000;
  nan = 0x7E00 | (rest >> 13 & 0x03FF);
  half = rest > 0x7F800000 ? nan : rest >= 0x47800000 ? 0x7C00 : normal;
  return (hri_f16)(sign | hri_choose(rest < 0x38800000, subnormal, half));
}

/* One element of a type of 16 bits. */
static inline float hri_narrow_widen(uint16_t half, hri_real real) {
  return real == HRI_REAL_F16 ? hri_f16_widen(half) : hri_bf16_widen(half);
}
static inline uint16_t hri_narrow_round(float value, hri_real real) {
  return real == HRI_REAL_F16 ? hri_f16_round(value) : hri_bf16_round(value);
}

/* Byte address of element `index`. */
static inline void *hri_real_at(void *base, int64_t index, hri_real real) {
  return (unsigned char *)base + index * (int64_t)hri_real_bytes(real);
}
static inline const void *hri_real_from(const void *base, int64_t index, hri_real real) {
  return (const unsigned char *)base + index * (int64_t)hri_real_bytes(real);
}
/* Element `index` as fp32, and fp32 rounded into it. */
static inline float hri_real_get(const void *base, int64_t index, hri_real real) {
  return real == HRI_REAL_F32 ? ((const float *)base)[index] : hri_narrow_widen(((const uint16_t *)base)[index], real);
}
static inline void hri_real_put(void *base, int64_t index, float value, hri_real real) {
  if (real == HRI_REAL_F32) ((float *)base)[index] = value;
  else ((uint16_t *)base)[index] = hri_narrow_round(value, real);
}

#endif
