/* What our own matrix products are made of. Private to src/backend/cpu/gemm*.c.
 *
 * The kernels (register tile, packing of panels, few rows) are compiled once per instruction level and handed out as a
 * table of functions; the loops around them (gemm_ours.c) are the same for all.
 *
 * A *word* is what one lane multiplies at a time: one term in fp32 (bf16 and fp16 are widened when they are packed), or with the dot
 * instruction a pair of neighbouring terms in bf16. A *panel* holds, for each word of the depth in turn, the words of
 * `width` neighbouring rows of a, or columns of b. */
#ifndef HRI_BACKEND_CPU_GEMM_OURS_H
#define HRI_BACKEND_CPU_GEMM_OURS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/real.h"
#include "ops/linear/product.h"
#include "team/team.h"

enum { HRI_GEMM_STEPS = 8 }; /* words between two fetches of a tile */

/* Memory that is to be in a near cache soon, by rows: lines of 64 bytes that are still to be fetched, in order. */
typedef struct hri_gemm_ahead {
  const char *at; /* the next one */
  int64_t left;   /* lines */
  int64_t row_left, row_lines;
  int64_t jump; /* bytes from behind the last line of a row to the next row */
} hri_gemm_ahead;

/* c tile (=|+=) a panel . b panel. Each element is one chain of operations, terms ascending, from what it begins with; or
 * `apart`, from zero, and what it began with is added to the end of it. */
typedef struct hri_gemm_tile {
  int64_t depth;         /* words */
  const void *a, *b;     /* panels of `rows` and of the level's tile columns */
  int64_t rows, columns; /* of the tile, at most the level's; columns that exist */
  float *sums;           /* its first element: where the chain comes from when it goes on, and goes to unless rounded */
  int64_t stride;        /* elements between rows of sums */
  bool go_on;            /* from sums, else from zero or from `start` */
  bool apart;            /* never from either: what stands there is added at the end */
  const uint16_t *start; /* a narrow c that is added to, where its chain begins: laid out as `rounded`; or NULL */
  const float *bias;     /* added at the end, of the first column; or NULL */
  uint16_t *rounded;     /* where the finished tile goes in 16 bits, or NULL */
  hri_real rounded_to;   /* bf16 or fp16; of `start` too */
  int64_t rounded_stride;
  const char *next; /* first byte of what the next tile will touch, fetched meanwhile */
  int64_t next_stride;
  const char *ahead;      /* of the panel of a behind this one: what this tile fetches of it */
  int64_t ahead_lines;    /* so many lines of 64 bytes at each HRI_GEMM_STEPS words */
  hri_gemm_ahead *source; /* what is packed next, while there is any; or NULL */
  int64_t source_lines;   /* so many of it at each HRI_GEMM_STEPS words */
} hri_gemm_tile;

/* Whether there is something before this tile's terms. */
static inline bool hri_gemm_has_begun(const hri_gemm_tile *t) { return t->go_on || t->start; }
/* That: what the chain of an element begins with, or what is added to it. */
static inline float hri_gemm_began(const hri_gemm_tile *t, int64_t row, int64_t column) {
  return t->start ? hri_narrow_widen(t->start[row * t->rounded_stride + column], t->rounded_to)
                  : t->sums[row * t->stride + column];
}

/* How terms become words: fp32 as it is; WIDENED from bf16, HALVES from fp16; PAIRS of bf16 as they are. */
typedef enum hri_gemm_words {
  HRI_GEMM_WORDS_F32 = 0,
  HRI_GEMM_WORDS_WIDENED,
  HRI_GEMM_WORDS_HALVES,
  HRI_GEMM_WORDS_PAIRS
} hri_gemm_words;

/* What such terms are in memory. */
static inline hri_real hri_gemm_words_type(hri_gemm_words how) {
  return how == HRI_GEMM_WORDS_F32 ? HRI_REAL_F32 : how == HRI_GEMM_WORDS_HALVES ? HRI_REAL_F16 : HRI_REAL_BF16;
}

/* Some panels side by side: line r of panel p is number p * width + r. Lines and terms that do not exist are zero. */
typedef struct hri_gemm_panels {
  hri_gemm_words how;
  const void *from;      /* term 0 of line 0 */
  int64_t across, along; /* elements between neighbouring lines and terms; one of them is 1 */
  int64_t lines, terms;  /* that exist */
  int64_t panels, width;
  int64_t words; /* of the depth */
  uint32_t *to;
  int64_t panel_stride; /* words between panels */
} hri_gemm_panels;

/* FORWARD with few rows, by dot products of rows: columns [begin, end) of c. `x` in rows of `stride` elements: as it
 * is, or for multiply-adds of bf16 or fp16 in fp32, as `widen` writes it. */
typedef struct hri_gemm_few {
  const hri_gemm_shape *shape;
  const void *x;
  int64_t stride;
  const void *w;
  const float *bias;
  void *c;
} hri_gemm_few;

typedef struct hri_gemm_kernels {
  void (*tile)(const hri_gemm_tile *tile);
  bool fetches; /* tiles fetch their `source`. It pays where packing has much of the time: with AVX-512, 4 to 6 % */
  void (*begin)(void), (*end)(void); /* around some tiles of one thread; NULL: nothing to do */
  void (*pack_a)(const hri_gemm_panels *panels);
  void (*pack)(const hri_gemm_panels *panels); /* b, and a where it is packed alike */
  void (*few)(const hri_gemm_few *few, int64_t begin, int64_t end);
  void (*widen)(float *to, const uint16_t *x, hri_real type, int64_t depth);
} hri_gemm_kernels;

/* A code at a level; kernels.tile is NULL where the level does not have it. */
typedef struct hri_gemm_ours {
  hri_isa level;
  hri_gemm_code code;
  hri_gemm_kernels kernels;
} hri_gemm_ours;
hri_gemm_ours hri_gemm_ours_at(hri_isa level, hri_gemm_code code);
/* Tiles with the operations of AMX written out in C, for a processor with AVX2: for tests. Where `level` has AVX-512, it
 * packs. */
hri_gemm_ours hri_gemm_ours_emulated(hri_isa level);

/* `scratch` as laid out for `shape`; a team of at most shape->threads, NULL: the calling thread. */
void hri_gemm_ours_run(const hri_gemm_ours *ours, const hri_gemm_shape *shape, hri_team *team, const void *a,
                       const void *b, const float *bias, void *c, void *scratch);
/* All of b in panels, hri_gemm_panel_bytes of them. */
void hri_gemm_ours_pack(const hri_gemm_ours *ours, const hri_gemm_shape *shape, hri_team *team, const void *b,
                        void *to);

/* The parts, each in a file of its own, and what gemm.c picks from. */
#define HRI_GEMM_PARTS_OF(isa)                                                                                         \
  void hri_gemm_tile_##isa(const hri_gemm_tile *tile);                                                                 \
  void hri_gemm_pack_##isa(const hri_gemm_panels *panels);                                                             \
  void hri_gemm_few_##isa(const hri_gemm_few *few, int64_t begin, int64_t end);                                        \
  void hri_gemm_widen_##isa(float *to, const uint16_t *x, hri_real type, int64_t depth);
HRI_GEMM_PARTS_OF(base)
HRI_GEMM_PARTS_OF(avx2)       /* x86-64 builds only */
HRI_GEMM_PARTS_OF(avx512)     /* x86-64 builds only */
HRI_GEMM_PARTS_OF(neon)       /* Arm builds only */
HRI_GEMM_PARTS_OF(avx512bf16) /* x86-64 builds only; the tile and few rows alone, of pairs */

/* Pairs of a in rows instead of panels, as tiles of AMX take them: for 16 words in turn `width` lines of 16 words. `words`
 * is a multiple of 16. x86-64 builds only. */
void hri_gemm_pack_rows_avx512(const hri_gemm_panels *panels);
void hri_gemm_pack_rows_amx_emulated(const hri_gemm_panels *panels);
void hri_gemm_pack_amx_emulated(const hri_gemm_panels *panels);
void hri_gemm_tile_amx(const hri_gemm_tile *tile); /* where the compiler knows AMX; needs hri_gemm_begin_amx */
void hri_gemm_begin_amx(void);
void hri_gemm_end_amx(void);
void hri_gemm_tile_amx_emulated(const hri_gemm_tile *tile);
void hri_gemm_begin_amx_emulated(void);
void hri_gemm_end_amx_emulated(void);

#endif
