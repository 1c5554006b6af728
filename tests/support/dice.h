/* Draws of a test of its own: DICE_STREAM, defined before this is included, tells its numbers from another test's. */
#ifndef HRI_TEST_DICE_H
#define HRI_TEST_DICE_H

#include <stdint.h>

#include "base/rng.h"

typedef struct dice {
  uint64_t seed, count;
} dice;

static inline uint32_t roll(dice *d, uint32_t sides) {
  uint32_t w[4];
  hri_philox(d->seed, DICE_STREAM, d->count++, w);
  return w[0] % sides;
}

#endif
