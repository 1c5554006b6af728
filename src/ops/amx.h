/* The operations of AMX on tiles of bf16: eight registers of 16 rows of 16 words (64 bytes). HRI_TILE_MULTIPLY adds the
 * products of 16 rows, 16 columns and 32 terms, TDPBF16PS (Intel, "Intel Architecture Instruction Set Extensions and
 * Future Features", chapter 3): a holds rows of pairs of terms, b for each pair of terms in turn a row of columns, c sums
 * in fp32. Within 32 terms even and odd ones are summed apart, then both are added to c.
 *
 * Included by code that is compiled twice: for processors that have AMX, and with the operations written out in C
 * (HRI_AMX_EMULATED), by which layouts and edges are tested where there is none. That build needs AVX2 with FMA; its
 * vectors are as wide as those of AVX-512, and the compiler takes them apart (ops/vmath.h). What the emulation leaves out:
 * the processor takes subnormal terms as zero and makes subnormal sums zero.
 *
 * HRI_AMX is 1 in both builds; elsewhere there is nothing here. Strides are in bytes. */
#ifndef HRI_OPS_AMX_H
#define HRI_OPS_AMX_H

#include <stdint.h>
#include <string.h>

enum { HRI_TILE_SIDE = 16, HRI_TILE_ROW_BYTES = 64, HRI_TILE_TERMS = 32 };

#if defined(HRI_AMX_EMULATED)

#define HRI_AMX 1

typedef struct hri_tile_register {
  uint32_t words[HRI_TILE_SIDE][HRI_TILE_SIDE];
} hri_tile_register;
static _Thread_local hri_tile_register hri_tile_registers[8];

static inline void hri_tiles_begin(void) {}
static inline void hri_tiles_end(void) {}

static inline void hri_tile_load(int t, const void *from, int64_t stride) {
  for (int r = 0; r < HRI_TILE_SIDE; r++)
    memcpy(hri_tile_registers[t].words[r], (const char *)from + r * stride, HRI_TILE_ROW_BYTES);
}
static inline void hri_tile_store(int t, void *to, int64_t stride) {
  for (int r = 0; r < HRI_TILE_SIDE; r++)
    memcpy((char *)to + r * stride, hri_tile_registers[t].words[r], HRI_TILE_ROW_BYTES);
}

/* The product of two bf16 is exact in fp32, so that it does not matter here whether its sum is fused. */
static inline void hri_tile_multiply(int c, int a, int b) {
  typedef float sums __attribute__((vector_size(HRI_TILE_ROW_BYTES), aligned(4), may_alias));
  typedef uint32_t words __attribute__((vector_size(HRI_TILE_ROW_BYTES), aligned(4)));
  for (int r = 0; r < HRI_TILE_SIDE; r++) {
    sums even = {0}, odd = {0};
    for (int k = 0; k < HRI_TILE_SIDE; k++) {
      words x = hri_tile_registers[a].words[r][k] + (words){0}, y = *(words *)hri_tile_registers[b].words[k];
      even += (sums)(x << 16) * (sums)(y << 16);
      odd += (sums)(x & 0xFFFF0000u) * (sums)(y & 0xFFFF0000u);
    }
    *(sums *)(void *)hri_tile_registers[c].words[r] += even + odd;
  }
}

#define HRI_TILE_ZERO(t) memset(&hri_tile_registers[t], 0, sizeof hri_tile_registers[t])
#define HRI_TILE_LOAD(t, from, stride) hri_tile_load(t, from, stride)
#define HRI_TILE_STORE(t, to, stride) hri_tile_store(t, to, stride)
#define HRI_TILE_MULTIPLY(c, a, b) hri_tile_multiply(c, a, b)

#elif defined(__AMX_BF16__) || defined(__AMXBF16__) /* as clang before 15 spells it */

#define HRI_AMX 1

#include <immintrin.h>

/* Around what one thread does with tiles: somebody else's code may use other shapes of them in between. Palette 1: eight
 * tiles of 16 rows of 64 bytes. */
static inline void hri_tiles_begin(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } c = {.palette = 1};
  for (int t = 0; t < 8; t++) c.row_bytes[t] = HRI_TILE_ROW_BYTES, c.rows[t] = HRI_TILE_SIDE;
  _tile_loadconfig(&c);
}
static inline void hri_tiles_end(void) { _tile_release(); }
/* Which register is part of the instruction. GCC is not told that a load reads memory: what was written must be there. */
#define HRI_TILE_ZERO(t) _tile_zero(t)
#define HRI_TILE_LOAD(t, from, stride)                                                                                 \
  do {                                                                                                                 \
    __asm__ volatile("" ::: "memory");                                                                                 \
    _tile_loadd(t, from, stride);                                                                                      \
  } while (0)
#define HRI_TILE_STORE(t, to, stride) _tile_stored(t, to, stride)
#define HRI_TILE_MULTIPLY(c, a, b) _tile_dpbf16ps(c, a, b)

#else

#define HRI_AMX 0

#endif
#endif
