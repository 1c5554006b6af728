/* Which bytes of a storage a tensor shows: rows of equal width at one leading stride. A contiguous tensor is one row.
 *
 * Everything that reasons about bytes (the check, hazards, what a view may be) asks these functions, so that the
 * columns of a fused result (q of qkv) and their neighbours are known to be apart although their spans interleave.
 * Exact: no
 * function here ever rounds to a span. */
#ifndef HRI_PROGRAM_REGION_H
#define HRI_PROGRAM_REGION_H

#include "program/job.h"

typedef struct hri_region {
  uint64_t begin, width; /* bytes; of the first row and of every row */
  uint64_t pitch, rows;  /* bytes from row to row, >= width; 0 with one row */
} hri_region;

typedef HRI_ARRAY(hri_region) hri_regions;

/* The bytes of its storage that a tensor shows. */
hri_region hri_region_of(const hri_tensor *tensor);
static inline uint64_t hri_region_bytes(const hri_region *r) { return r->width * r->rows; }
/* The first byte behind the last row. */
static inline uint64_t hri_region_end(const hri_region *r) { return r->begin + (r->rows - 1) * r->pitch + r->width; }

/* Bytes that both hold. Constant time but for two different pitches, which take a step per row of the shorter one. */
uint64_t hri_region_overlap(const hri_region *a, const hri_region *b);
/* Appends what of `a` is not in `b`, as disjoint regions. False when memory is refused. */
bool hri_region_subtract(const hri_region *a, const hri_region *b, hri_regions *pieces);

#endif
