/* The dynamic maps of 8-bit optimizer states, those of bitsandbytes (Dettmers et al., 2022; create_dynamic_map), and
 * what quantizes to them.
 *
 * A map is 256 rising fp32 values in [-1, 1]: decade i of seven holds the midpoints of 2^i equal cells of [0.1, 1]
 * (2^(i+1) in the unsigned map), times 10^(i-6), of both signs in the signed map; and 0 and 1. A block of
 * HRI_STATE_BLOCK elements has an fp32 scale, its largest magnitude; an element is map[code] * scale.
 *
 * Quantizing x = value / scale takes the nearest value of the map; between two at the same distance the one with the
 * even index (a binary search that starts at 127 and halves its steps ends at an even index, and leaves it only for
 * what is strictly nearer). A signed value keeps its sign: a negative one, -0 too, that would become 0 becomes the
 * largest negative value. 0 / 0, the element of a block of zeros, has the code that the search ends with on a NaN,
 * moved by the rule of signs: 0 below zero and in the unsigned map, 255 else; the scale is 0, so it reads as 0.
 *
 * All of that is in one table per map, by the leading bits of the magnitude: a bucket of them holds one threshold at
 * most, so that an entry is the code at its beginning, and from which of the trailing bits on it is the next.
 *
 * Where registers hold tables there is a way without the table: within a decade the thresholds of magnitudes are as good
 * as equally spaced, so that a code is a product and a sum, cut. What comes out within HRI_DYNAMIC_NEAR of a whole number
 * may be on the wrong side of its threshold, and is looked up. Segments are zero, six decades, the seventh but for its
 * last code, and that code and 1; a power of two has the beginning of one at most, and so have two powers below the
 * seventh decade. On the line of a segment the first threshold of the next is a whole number too (that of a decade is a
 * step behind the last of the decade below), so a value near it is looked up whichever segment it is taken for;
 * hri_dynamic_segments.next is a little above it.
 */
#ifndef HRI_OPS_OPTIM_DYNAMIC_H
#define HRI_OPS_OPTIM_DYNAMIC_H

#include <stdint.h>

enum {
  HRI_STATE_BLOCK = 256,           /* elements that share a scale */
  HRI_DYNAMIC_LOWEST = 104 << 23,  /* bits of 2^-23: below lies no threshold */
  HRI_DYNAMIC_SIGNED_SHIFT = 17,   /* trailing bits of a bucket: 64 buckets from one power of two to the next, */
  HRI_DYNAMIC_UNSIGNED_SHIFT = 16, /* and 128, since the unsigned map is twice as fine */
  HRI_DYNAMIC_SIGNED_BUCKETS = 23 * 64 + 2, /* 2^-23 to 1, 1 itself, and what is no number */
  HRI_DYNAMIC_UNSIGNED_BUCKETS = 23 * 128 + 2,
  HRI_DYNAMIC_CODE = 24 /* an entry: code << 24 | trailing bits; 2^shift of them: the bucket has no threshold */
};

enum { HRI_DYNAMIC_SEGMENTS = 9, HRI_DYNAMIC_POWERS = 32 };
/* What a line gives has 16 bits of fraction below the code. NEAR, in units of the last, is three times what the roundings
 * of map, thresholds, line and reciprocal make at most; it is added, so that within NEAR of a whole number not a bit of
 * AROUND is set. */
enum { HRI_DYNAMIC_FRACTION = 16, HRI_DYNAMIC_NEAR = 16, HRI_DYNAMIC_AROUND = 0xFFE0 };

/* Of magnitudes; arrays as long as registers are read. Codes of the signed map are those of positive values: a negative
 * one has 254 - code, of a code from 128 to 254. */
typedef struct hri_dynamic_segments {
  uint32_t of_power[HRI_DYNAMIC_POWERS]; /* the segment in which a power of two lies, by its exponent's last 5 bits */
  uint8_t of_pair[16];                   /* that of an even exponent's, by its last 5 bits but one; 7 at most */
  float next[16];                        /* where the segment behind begins; infinity behind the last */
  float factor[16], offset[16];          /* the code, its fraction and NEAR: factor * x + offset, cut, */
  uint32_t last[16];                     /* but this at most */
} hri_dynamic_segments;

typedef struct hri_dynamic_maps {
  float signed_map[256], unsigned_map[256];
  /* For magnitudes of values that are not negative, and then of negative ones, whose codes fall. */
  uint32_t signed_entries[2 * HRI_DYNAMIC_SIGNED_BUCKETS], unsigned_entries[HRI_DYNAMIC_UNSIGNED_BUCKETS];
  hri_dynamic_segments signed_segments, unsigned_segments;
  uint16_t signed_halves[2][256], unsigned_halves[2][256]; /* of the bits of the map's values, the lower ones first */
} hri_dynamic_maps;

/* Made by the first call, from whatever thread; never freed. */
const hri_dynamic_maps *hri_dynamic_maps_get(void);

/* The code of x = value / scale by the rule above; `negative`: the sign of value. By search: what the tables are made
 * with. */
uint32_t hri_dynamic_code_signed(const float *map, float x, int negative);
uint32_t hri_dynamic_code_unsigned(const float *map, float x);

#endif
