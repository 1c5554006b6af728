/* Stochastic rounding of fp32 to bf16, for weights without a master and for moments.
 *
 * Rounding to nearest loses every change below half a step of bf16, which is 1/256 of the value: with beta2 = 0.999 the
 * second moment could never fall. Here x becomes the neighbour above with the probability of its distance from the one
 * below, so that the expectation of the result is x: a uniform 16-bit number is added to the low half of the bits and
 * the sum is cut. Values that bf16 holds stay as they are. Between the largest finite value and infinity rounding is to
 * nearest, as IEEE 754 overflows; infinities stay, NaNs stay NaN and become quiet.
 *
 * The random bits are a function of (seed, step, site, array, logical element) alone: threads, slices, alignment and
 * the instruction set have no part in it. Philox4x32-10 (base/rng.h), key seed ^ HRI_ROUNDING_KEY, which keeps them
 * apart from the numbers that initialize weights with the same seed; the counter is site << 32 | step, block.
 *
 * A block's 128 bits serve 8 elements. Elements are dealt to blocks so that vectors of any width that compute several
 * blocks side by side get them in order without a transposition: 64 elements share 8 blocks, element e takes
 *
 *   block e / 64 * 8 + e % 32 / 4, word e / 32 % 2 * 2 + e / 2 % 2, half e % 2 (0: the lower).
 *
 * The arrays of a parameter share these 16 bits, bytes (h, l), in three arrangements: the weight takes (h, l), the
 * first moment (l, h), the second (h xor l, l). Each is uniform by itself; whether two of them round up depends on
 * leading bytes that are independent, so that any two are uncorrelated but for 2^-8. A draw for each would cost more
 * time than the memory traffic of the step. */
#ifndef HRI_OPS_OPTIM_ROUNDING_H
#define HRI_OPS_OPTIM_ROUNDING_H

#include <stdint.h>

#include "base/real.h"
#include "base/rng.h"
#include "ops/cpu.h"

#define HRI_ROUNDING_KEY 0x726F756E64696E67u /* "rounding" */
enum { HRI_ROUNDING_CHUNK = 64, HRI_ROUNDING_CHUNK_BLOCKS = 8 };

/* Which of a parameter's arrays is rounded. */
typedef enum hri_rounded {
  HRI_ROUNDED_WEIGHT = 0,
  HRI_ROUNDED_FIRST,
  HRI_ROUNDED_SECOND,
  HRI_ROUNDED_COUNT
} hri_rounded;

HRI_BOTH static inline uint64_t hri_rounding_high(const hri_rounding *r) {
  return (uint64_t)r->site << 32 | (r->step & 0xFFFFFFFFu);
}

/* An array's arrangement of the 16 bits of an element. */
HRI_BOTH static inline uint32_t hri_rounding_arrange(uint32_t bits, hri_rounded array) {
  if (array == HRI_ROUNDED_FIRST) return (bits << 8 | bits >> 8) & 0xFFFFu;
  return array == HRI_ROUNDED_SECOND ? (bits ^ bits << 8) & 0xFFFFu : bits;
}

/* The 16 random bits of a logical element. */
HRI_BOTH static inline uint32_t hri_rounding_bits(const hri_rounding *r, hri_rounded array, int64_t element) {
  uint32_t word[4];
  int64_t block = element / HRI_ROUNDING_CHUNK * HRI_ROUNDING_CHUNK_BLOCKS + element % 32 / 4;
  hri_philox(r->seed ^ HRI_ROUNDING_KEY, hri_rounding_high(r), (uint64_t)block, word);
  return hri_rounding_arrange(word[element / 32 % 2 * 2 + element / 2 % 2] >> (element % 2 * 16) & 0xFFFFu, array);
}

/* `random` below 2^16. */
HRI_BOTH static inline hri_bf16 hri_bf16_round_random(float value, uint32_t random) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7FFFFFFFu) > 0x7F7F0000u) return hri_bf16_round(value);
  return (hri_bf16)((bits + random) >> 16);
}

#endif
