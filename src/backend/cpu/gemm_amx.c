/* The tile of our matrix products by AMX, for bf16: 32 x 32 sums stand in four tile registers, two hold rows of a, two
 * columns of b. One instruction, TDPBF16PS, adds the products of 16 rows, 16 columns and 32 terms (Intel, "Intel
 * Architecture Instruction Set Extensions and Future Features", chapter 3).
 *
 * b comes in panels of pairs as for the dot instruction: 16 words of depth are a tile of 16 rows. a comes in *rows*
 * (hri_gemm_pack_rows): for 16 words of depth in turn 32 rows, each a line of the cache. Both are padded to whole tiles
 * with zeros, and so is the depth: the last tiles add nothing to what does not exist.
 *
 * Bits: within 32 terms the instruction sums even and odd ones apart and then adds both to c. Blocks of the depth begin
 * at multiples of 32 terms, so the order does not depend on them, on threads or on packing.
 *
 * This file is compiled twice: for processors that have AMX, and with the four operations written out in C, by which the
 * layouts and edges are tested anywhere. It never ran on a processor with AMX: hri_amx_works (isa.c) compares a product
 * before the level is offered. */
#include <string.h>

#include "backend/cpu/gemm_ours.h"

#define INLINE static inline __attribute__((always_inline))
enum { SIDE = 16, ROW_BYTES = 64, TILE = 2 * SIDE };

#if defined(HRI_AMX_EMULATED)

#include <math.h>

#define NAME(name) name##_amx_emulated

typedef struct tile_register {
  uint32_t words[SIDE][SIDE];
} tile_register;
static _Thread_local tile_register registers[8];

static float half(uint32_t word, int which) {
  uint32_t bits = which ? word & 0xFFFF0000u : word << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

INLINE void configure(void) {}
INLINE void let_go(void) {}
#define TILE_ZERO(t) memset(&registers[t], 0, sizeof registers[t])
#define TILE_LOAD(t, from, stride)                                                                                     \
  for (int r_ = 0; r_ < SIDE; r_++) memcpy(registers[t].words[r_], (const char *)(from) + r_ * (stride), ROW_BYTES)
#define TILE_STORE(t, to, stride)                                                                                      \
  for (int r_ = 0; r_ < SIDE; r_++) memcpy((char *)(to) + r_ * (stride), registers[t].words[r_], ROW_BYTES)
#define TILE_MULTIPLY(c, a, b) multiply(&registers[c], &registers[a], &registers[b])

static void multiply(tile_register *c, const tile_register *a, const tile_register *b) {
  for (int r = 0; r < SIDE; r++)
    for (int j = 0; j < SIDE; j++) {
      float sum, even = 0, odd = 0;
      memcpy(&sum, &c->words[r][j], sizeof sum);
      for (int k = 0; k < SIDE; k++) {
        even = fmaf(half(a->words[r][k], 0), half(b->words[k][j], 0), even);
        odd = fmaf(half(a->words[r][k], 1), half(b->words[k][j], 1), odd);
      }
      sum += even + odd;
      memcpy(&c->words[r][j], &sum, sizeof sum);
    }
}

#else

#include <immintrin.h>

#define NAME(name) name##_amx

/* Palette 1: eight tiles of 16 rows of 64 bytes. */
INLINE void configure(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } c = {.palette = 1};
  for (int t = 0; t < 8; t++) c.row_bytes[t] = ROW_BYTES, c.rows[t] = SIDE;
  _tile_loadconfig(&c);
}
INLINE void let_go(void) { _tile_release(); }
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_LOAD(t, from, stride) _tile_loadd(t, from, stride)
#define TILE_STORE(t, to, stride) _tile_stored(t, to, stride)
#define TILE_MULTIPLY(c, a, b) _tile_dpbf16ps(c, a, b)

#endif

/* Before and after some tiles of one thread: somebody else's code may use other shapes of tiles in between. */
void NAME(hri_gemm_begin)(void) { configure(); }
void NAME(hri_gemm_end)(void) { let_go(); }

INLINE void load_sums(const float *sums, int64_t stride) {
  const float *below = sums + SIDE * stride;
  TILE_LOAD(0, sums, stride * 4);
  TILE_LOAD(1, sums + SIDE, stride * 4);
  TILE_LOAD(2, below, stride * 4);
  TILE_LOAD(3, below + SIDE, stride * 4);
}

INLINE void store_sums(float *sums, int64_t stride) {
  float *below = sums + SIDE * stride;
  TILE_STORE(0, sums, stride * 4);
  TILE_STORE(1, sums + SIDE, stride * 4);
  TILE_STORE(2, below, stride * 4);
  TILE_STORE(3, below + SIDE, stride * 4);
}

/* The sums of a whole tile, from and to `sums`. */
static void whole(const hri_gemm_tile *t, float *sums, int64_t stride) {
  const char *a = t->a, *b = t->b;
  if (t->go_on) {
    load_sums(sums, stride);
  } else {
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
  }
  for (int64_t word = 0; word < t->depth; word += SIDE, a += TILE * ROW_BYTES, b += TILE * ROW_BYTES) {
    TILE_LOAD(4, a, ROW_BYTES);
    TILE_LOAD(6, b, 2 * ROW_BYTES);
    TILE_LOAD(5, a + SIDE * ROW_BYTES, ROW_BYTES);
    TILE_LOAD(7, b + ROW_BYTES, 2 * ROW_BYTES);
    TILE_MULTIPLY(0, 4, 6);
    TILE_MULTIPLY(1, 4, 7);
    TILE_MULTIPLY(2, 5, 6);
    TILE_MULTIPLY(3, 5, 7);
  }
  store_sums(sums, stride);
}

/* With a bias, a rounding or an edge the tile stands in a buffer of its own, and what exists of it goes to c. */
static void by_buffer(const hri_gemm_tile *t) {
  float buffer[TILE * TILE];
  for (int64_t r = 0; t->go_on && r < TILE; r++)
    for (int64_t j = 0; j < TILE; j++)
      buffer[r * TILE + j] = r < t->rows && j < t->columns ? t->sums[r * t->stride + j] : 0;
  whole(t, buffer, TILE);
  for (int64_t r = 0; r < t->rows; r++)
    for (int64_t j = 0; j < t->columns; j++) {
      float v = buffer[r * TILE + j];
      if (t->bias) v += t->bias[j];
      if (t->rounded) t->rounded[r * t->rounded_stride + j] = hri_bf16_round(v); /* no fp16 comes here */
      else t->sums[r * t->stride + j] = v;
    }
}

void NAME(hri_gemm_tile)(const hri_gemm_tile *t) {
  if (t->rows == TILE && t->columns == TILE && !t->bias && !t->rounded) whole(t, t->sums, t->stride);
  else by_buffer(t);
}
