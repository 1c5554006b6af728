/* The tile of our matrix products by AMX, for bf16: 32 x 32 sums stand in four tile registers, two hold rows of a, two
 * columns of b (ops/amx.h).
 *
 * b comes in panels of pairs as for the dot instruction: 16 words of depth are a tile of 16 rows. a comes in *rows*
 * (hri_gemm_pack_rows): for 16 words of depth in turn 32 rows, each a line of the cache. Both are padded to whole tiles
 * with zeros, and so is the depth: the last tiles add nothing to what does not exist.
 *
 * Bits: within 32 terms the instruction sums even and odd ones apart and then adds both to c. Blocks of the depth begin
 * at multiples of 32 terms, so the order does not depend on them, on threads or on packing. Where blocks are chains of
 * their own (in_blocks) they are those of the shape alone.
 *
 * This file is compiled twice: for processors that have AMX, and with the operations on tiles written out in C, by which
 * the layouts and edges are tested anywhere. It never ran on a processor with AMX: isa.c compares a product before the
 * level is offered. */
#include "backend/cpu/gemm_ours.h"
#include "ops/amx.h"
#include "ops/cpu.h"

#define INLINE static inline __attribute__((always_inline))
enum { SIDE = HRI_TILE_SIDE, ROW_BYTES = HRI_TILE_ROW_BYTES, TILE = 2 * SIDE };

void HRI_ISA_NAME(hri_gemm_begin)(void) { hri_tiles_begin(); }
void HRI_ISA_NAME(hri_gemm_end)(void) { hri_tiles_end(); }

INLINE void load_sums(const float *sums, int64_t stride) {
  const float *below = sums + SIDE * stride;
  HRI_TILE_LOAD(0, sums, stride * 4);
  HRI_TILE_LOAD(1, sums + SIDE, stride * 4);
  HRI_TILE_LOAD(2, below, stride * 4);
  HRI_TILE_LOAD(3, below + SIDE, stride * 4);
}

INLINE void store_sums(float *sums, int64_t stride) {
  float *below = sums + SIDE * stride;
  HRI_TILE_STORE(0, sums, stride * 4);
  HRI_TILE_STORE(1, sums + SIDE, stride * 4);
  HRI_TILE_STORE(2, below, stride * 4);
  HRI_TILE_STORE(3, below + SIDE, stride * 4);
}

/* The sums of a whole tile, from and to `sums`. */
static void whole(const hri_gemm_tile *t, float *sums, int64_t stride) {
  const char *a = t->a, *b = t->b;
  if (t->go_on && !t->apart) {
    load_sums(sums, stride);
  } else {
    HRI_TILE_ZERO(0);
    HRI_TILE_ZERO(1);
    HRI_TILE_ZERO(2);
    HRI_TILE_ZERO(3);
  }
  for (int64_t word = 0; word < t->depth; word += SIDE, a += TILE * ROW_BYTES, b += TILE * ROW_BYTES) {
    HRI_TILE_LOAD(4, a, ROW_BYTES);
    HRI_TILE_LOAD(6, b, 2 * ROW_BYTES);
    HRI_TILE_LOAD(5, a + SIDE * ROW_BYTES, ROW_BYTES);
    HRI_TILE_LOAD(7, b + ROW_BYTES, 2 * ROW_BYTES);
    HRI_TILE_MULTIPLY(0, 4, 6);
    HRI_TILE_MULTIPLY(1, 4, 7);
    HRI_TILE_MULTIPLY(2, 5, 6);
    HRI_TILE_MULTIPLY(3, 5, 7);
  }
  store_sums(sums, stride);
}

/* With a bias, a rounding, an edge or something that is added at the end the tile stands in a buffer of its own, and what exists of it goes to c. */
static void by_buffer(const hri_gemm_tile *t) {
  float buffer[TILE * TILE];
  hri_gemm_tile inner = *t;
  inner.go_on = hri_gemm_has_begun(t);
  for (int64_t r = 0; inner.go_on && !t->apart && r < TILE; r++)
    for (int64_t j = 0; j < TILE; j++)
      buffer[r * TILE + j] = r < t->rows && j < t->columns ? hri_gemm_began(t, r, j) : 0;
  whole(&inner, buffer, TILE);
  for (int64_t r = 0; r < t->rows; r++)
    for (int64_t j = 0; j < t->columns; j++) {
      float v = buffer[r * TILE + j];
      if (t->apart && inner.go_on) v += hri_gemm_began(t, r, j);
      if (t->bias) v += t->bias[j];
      if (t->rounded) t->rounded[r * t->rounded_stride + j] = hri_bf16_round(v); /* no fp16 comes here */
      else t->sums[r * t->stride + j] = v;
    }
}

void HRI_ISA_NAME(hri_gemm_tile)(const hri_gemm_tile *t) {
  bool added = t->apart && hri_gemm_has_begun(t);
  if (t->rows == TILE && t->columns == TILE && !t->bias && !t->rounded && !t->start && !added)
    whole(t, t->sums, t->stride);
  else by_buffer(t);
}
