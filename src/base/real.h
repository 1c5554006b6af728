/* The element types in which kernels take activations, weights, gradients and optimizer states; arithmetic is fp32.
 *
 * bf16 is the upper half of an IEEE-754 single: 8 bits of exponent, 7 of mantissa. Rounding to it is to nearest, ties
 * to even; what is beyond the largest finite value becomes infinity, subnormals are made, NaNs stay NaN, become quiet
 * and keep their sign. (The processor's own conversion flushes subnormals to zero. Attention rounds with it what
 * stays inside it; everything else rounds as here, on every processor alike.) */
#ifndef HRI_BASE_REAL_H
#define HRI_BASE_REAL_H

#include <stdint.h>
#include <string.h>

typedef enum hri_real { HRI_REAL_F32 = 0, HRI_REAL_BF16 } hri_real;
typedef uint16_t hri_bf16;

static inline uint64_t hri_real_bytes(hri_real real) { return real == HRI_REAL_BF16 ? 2 : 4; }

static inline float hri_bf16_widen(hri_bf16 half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline hri_bf16 hri_bf16_round(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (hri_bf16)(bits >> 16 | 0x40u);
  return (hri_bf16)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
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
  return real == HRI_REAL_BF16 ? hri_bf16_widen(((const hri_bf16 *)base)[index]) : ((const float *)base)[index];
}
static inline void hri_real_put(void *base, int64_t index, float value, hri_real real) {
  if (real == HRI_REAL_BF16) ((hri_bf16 *)base)[index] = hri_bf16_round(value);
  else ((float *)base)[index] = value;
}

#endif
