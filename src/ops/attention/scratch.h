/* The scratch of the CPU attention kernels: what each thread and the team lay out, and so how much it is.
 *
 * Sizes depend on the instruction level, which here is an argument: kernels are compiled once per level and lay out
 * their own, planning asks for any. Both call the same functions, so that the size and the layout cannot disagree. A
 * level's vectors and key tiles are written down once, below; tile.h takes them from here. */
#ifndef HRI_OPS_ATTENTION_SCRATCH_H
#define HRI_OPS_ATTENTION_SCRATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/attention/shape.h"
#include "ops/isa.h"

/* Floats per vector, and keys packed at a time: a multiple of the lanes of a panel, which are two vectors. */
enum {
  HRI_TILE_VECTOR_BASE = 4,
  HRI_TILE_KEYS_BASE = 64,
  HRI_TILE_VECTOR_AVX2 = 8,
  HRI_TILE_KEYS_AVX2 = 96,
  HRI_TILE_VECTOR_AVX512 = 16,
  HRI_TILE_KEYS_AVX512 = 128,
  HRI_TILE_VECTOR_NEON = 4,
  HRI_TILE_KEYS_NEON = 64
};

/* How a level takes heads of D elements apart. A word is an element, or with `pairs` two of them (tile.h); `tiles`: pairs,
 * and AMX multiplies them. */
typedef struct hri_attention_cut {
  int64_t vector, lanes, keys;
  bool pairs, tiles;
  int64_t words, row; /* words of a head, those of a tile with zeros behind it, and of a packed row */
  int64_t wide;       /* D rounded up to a vector */
  int64_t stride; /* of rows of P and dS in the backward: more than the keys, or columns would share few cache sets */
} hri_attention_cut;
hri_attention_cut hri_attention_cut_of(hri_isa level, hri_real real, int64_t head_dim);

/* ---- laying out ---- */

/* hri_carve hands out 64-byte aligned pieces. With base NULL it only adds up the size. Saturates at UINT64_MAX. */
typedef struct hri_carver {
  unsigned char *base;
  uint64_t used;
} hri_carver;

/* The piece of one thread where each has so many bytes from `base` on. */
static inline hri_carver hri_carver_of(void *base, uint64_t bytes_each, int thread) {
  return (hri_carver){.base = (unsigned char *)base + (uint64_t)thread * bytes_each};
}

enum { HRI_FORWARD_QUERIES = 128 };
typedef struct hri_forward_tiles {
  float *rows;        /* [HRI_FORWARD_QUERIES][row]: the queries before they are turned */
  float *q;           /* [panel][words][lanes] */
  float *out;         /* [HRI_FORWARD_QUERIES][wide]; by tiles [panel][wide][lanes] */
  float *keys;        /* [keys][row] */
  float *values;      /* the same */
  float *value_pairs; /* what the product takes: `values`, or of pairs [keys/2][wide] */
  float *scores;      /* [keys][lanes] of one panel */
  float *highest;     /* [panel][lanes]: running maximum */
  float *sum;         /* [panel][lanes]: running sum of exp2(score - highest) */
  float *turned; /* by tiles, else NULL: [wide][keys/2], value_pairs turned; in the end [lanes][wide], rows of `out` */
  void *spans;   /* [panel] of tile_span */
} hri_forward_tiles;
hri_forward_tiles hri_forward_tiles_take(hri_carver *carver, const hri_attention_cut *cut);

enum {
  HRI_BACKWARD_QUERIES = 64,
  HRI_BACKWARD_SLOTS = 2 /* kv heads in flight per thread: enough that a wait is rare */
};
/* P and dS are [HRI_BACKWARD_QUERIES][stride], of pairs half the rows. */
typedef struct hri_backward_tiles {
  float *rows;               /* [keys][row]: K or V of the tile before they are turned */
  float *keys, *values;      /* [panel][words][lanes] */
  float *key_pairs;          /* [keys][row], or of pairs [keys/2][wide]: K for dQ */
  float *dkeys, *dvalues;    /* [keys][wide]; by tiles [wide][keys] */
  float *q, *dy;             /* [HRI_BACKWARD_QUERIES][row] */
  float *q_pairs, *dy_pairs; /* the same tiles, or of pairs [HRI_BACKWARD_QUERIES/2][wide]; by tiles that turned */
  float *turned;             /* by tiles, else NULL: what is turned next, of at most [lanes][wide] */
  float *probs, *dscores;    /* first S and dP, then P and dS for use by columns */
  float *slopes;             /* like `probs`, of the soft-cap: first S if P is given; NULL without one */
  float *dscore_rows; /* dS by rows: `dscores` itself, or of pairs HRI_BACKWARD_QUERIES rows of half the stride */
  float *lse, *delta; /* [HRI_BACKWARD_QUERIES]; lse in log2, so high where there is no query that P is 0 */
  int32_t *start;     /* [HRI_BACKWARD_QUERIES]: the first key that each query sees */
} hri_backward_tiles;
hri_backward_tiles hri_backward_tiles_take(hri_carver *carver, const hri_attention_cut *cut, bool capped);

/* What the team shares, in front of the tiles of the threads. */
typedef struct hri_backward_shared {
  float *delta;                 /* [B,H,T] */
  int32_t *least;               /* [B][blocks]: the first key that any query of a block sees */
  int64_t *turns;               /* [slots][group][blocks] */
  float *dq;                    /* [slots][group][blocks * HRI_BACKWARD_QUERIES][wide]: sums of the heads in flight */
  int64_t group, slots, blocks; /* query heads per kv head, kv heads in flight, query blocks per row */
} hri_backward_shared;
hri_backward_shared hri_backward_shared_take(hri_carver *carver, const hri_attention_cut *cut,
                                             const hri_attention_shape *shape, int threads);

typedef struct hri_full_tiles {
  float *rows;    /* [keys or lanes][wide]: keys or values, before them the queries */
  float *q, *out; /* [D][lanes], [lanes][wide] */
  float *scores;  /* [T rounded up to keys][lanes] */
  float *turned;  /* [lanes][keys]: probabilities on their way out */
} hri_full_tiles;
hri_full_tiles hri_full_tiles_take(hri_carver *carver, const hri_attention_cut *cut, const hri_attention_shape *shape);

enum {
  HRI_CACHED_ROWS = 48, /* a multiple of every row count of its products */
  HRI_CACHED_KEYS = 256,
  HRI_CACHED_SPLIT = 512,       /* positions per split */
  HRI_CACHED_ENOUGH_TASKS = 32, /* with fewer, keys are split */
};
typedef struct hri_cached_tiles {
  float *q;             /* [HRI_CACHED_ROWS][D], times scale * log2(e) */
  float *out;           /* [HRI_CACHED_ROWS][wide] */
  float *scores;        /* [HRI_CACHED_ROWS][HRI_CACHED_KEYS] */
  float *tail;          /* [HRI_CACHED_KEYS][vector]: the last elements of the values, zero padded */
  float *highest, *sum; /* [HRI_CACHED_ROWS] */
} hri_cached_tiles;
hri_cached_tiles hri_cached_tiles_take(hri_carver *carver, const hri_attention_cut *cut, int64_t head_dim);

typedef struct hri_cached_parts {
  float *parts; /* [B, K, splits][rows * group][wide + 2]: output, maximum, sum; NULL with one split */
  int64_t group, row_groups, splits; /* splits 1: results go to y directly */
} hri_cached_parts;
hri_cached_parts hri_cached_parts_take(hri_carver *carver, const hri_attention_cut *cut,
                                       const hri_attention_cache_shape *shape);

/* ---- sizes in bytes for a team; UINT64_MAX when they do not fit 64 bits ---- */

uint64_t hri_attention_forward_scratch(hri_isa level, const hri_attention_shape *shape, int threads);
uint64_t hri_attention_backward_scratch(hri_isa level, const hri_attention_shape *shape,
                                        int threads); /* either backward */
uint64_t hri_attention_materialized_scratch(hri_isa level, const hri_attention_shape *shape, int threads);
uint64_t hri_attention_cached_scratch(hri_isa level, const hri_attention_cache_shape *shape, int threads);

#endif
