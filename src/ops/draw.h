/* Random numbers of training's forward: which elements dropout takes away, the noise of NEFTune.
 *
 * They are a function of (seed, step, site, row, line, element) alone, so nothing is kept of them: the backward, and a
 * clone that recomputes, make them again. Threads, the instruction set, padding, packing of weights and how the rows of
 * a step are cut into micro-batches have no part in it.
 *
 *   seed, step  of the job, and the optimizer step that is tried (a skipped one counts): hri_control
 *   site        of the node; a clone, and the node's backward, share it
 *   row         of the data in the step, over all its micro-batches: control.row_base + row of the micro-batch
 *   line        position in the row
 *   element     column of the activation; in attention the key, below HRI_DRAW_ELEMENTS, of the head
 *
 * Philox4x32-10 (base/rng.h). Key: (seed ^ HRI_DRAW_KEY) + step * HRI_DRAW_STEP, apart from the keys of other uses;
 * counter: site, row, line, head << 20 | block. A block's four words serve four elements, 32 elements share 8 blocks,
 * dealt so that vectors of any width which compute several blocks side by side get them in order without a
 * transposition (as in ops/optim/rounding.h): element e takes
 *
 *   block e / 32 * 8 + e % 16 / 2, word e / 16 % 2 * 2 + e % 2. */
#ifndef HRI_OPS_DRAW_H
#define HRI_OPS_DRAW_H

#include <assert.h>
#include <stdint.h>

#include "base/rng.h"

#define HRI_DRAW_KEY 0x64726F706F757473u /* "dropouts" */
#define HRI_DRAW_STEP 0xD1342543DE82EF95u
enum {
  HRI_DRAW_CHUNK = 32, /* elements that share blocks */
  HRI_DRAW_CHUNK_BLOCKS = 8,
  HRI_DRAW_HEAD_SHIFT = 20,
  HRI_DRAW_ELEMENTS = 1 << 22, /* of a line */
  HRI_DRAW_HEADS = 1 << 12
};

/* Whose numbers. */
typedef struct hri_draw {
  uint64_t seed, step;
  uint32_t site;
  uint32_t row; /* of the first row of data that a kernel is given */
} hri_draw;

HRI_BOTH static inline uint64_t hri_draw_key(const hri_draw *d) {
  return (d->seed ^ HRI_DRAW_KEY) + d->step * HRI_DRAW_STEP;
}

/* The 32 random bits of an element; `row` counts from d->row. */
HRI_BOTH static inline uint32_t hri_draw_word(const hri_draw *d, uint32_t row, uint32_t line, uint32_t head,
                                              uint32_t element) {
  uint32_t word[4];
  uint32_t block = element / HRI_DRAW_CHUNK * HRI_DRAW_CHUNK_BLOCKS + element % 16 / 2;
  assert(element < HRI_DRAW_ELEMENTS && head < HRI_DRAW_HEADS);
  block |= head << HRI_DRAW_HEAD_SHIFT;
  hri_philox(hri_draw_key(d), (uint64_t)d->site << 32 | (uint32_t)(d->row + row), (uint64_t)line << 32 | block, word);
  return word[element / 16 % 2 * 2 + element % 2];
}

/* Uniform in [-1, 1). The word is taken as a signed number, whose rounding to fp32 every processor does alike. */
HRI_BOTH static inline float hri_draw_signed(uint32_t word) { return (float)(int32_t)word * 0x1p-31f; }

/* An element goes when its word is below this: with probability p, 0 <= p < 1, to 2^-33. */
HRI_BOTH static inline uint32_t hri_drop_threshold(double p) {
  double words = p * 4294967296.0 + 0.5;
  assert(p >= 0 && p < 1);
  return words >= 4294967295.0 ? 0xFFFFFFFFu : (uint32_t)words;
}

/* What the others are multiplied by (those that go, by 0): as torch, the mean stays. */
HRI_BOTH static inline float hri_drop_factor(double p) { return (float)(1.0 / (1.0 - p)); }

#endif
