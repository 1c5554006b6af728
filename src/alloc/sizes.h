/* What PyTorch's allocator takes from the driver for a request: for the allocator itself, and for who judges recorded
 * ones. */
#ifndef HRI_ALLOC_SIZES_H
#define HRI_ALLOC_SIZES_H

#include <headroom/alloc.h>

#include "base/mem.h"

enum {
  HRI_ALLOC_UNIT = 512,              /* sizes and addresses are multiples of it */
  HRI_ALLOC_SMALL_LIMIT = 1 << 20,   /* largest request of the small pool */
  HRI_ALLOC_SMALL_SEGMENT = 2 << 20, /* segment (or chunk, when expandable) of the small pool */
  HRI_ALLOC_LARGE_MIN = 10 << 20,    /* a large request below it shares a segment */
  HRI_ALLOC_LARGE_ROUND = 2 << 20    /* and from there on has one, rounded to this */
};

/* A plain segment for a request of `size` rounded bytes. */
static inline uint64_t hri_alloc_segment_bytes(const hr_alloc_config *config, uint64_t size) {
  if (size <= HRI_ALLOC_SMALL_LIMIT) return HRI_ALLOC_SMALL_SEGMENT;
  if (size < HRI_ALLOC_LARGE_MIN) return config->large_segment_bytes;
  return hri_round_up(size, HRI_ALLOC_LARGE_ROUND);
}

/* What an expandable segment grows by. */
static inline uint64_t hri_alloc_chunk_bytes(const hr_alloc_config *config, bool small) {
  return small ? HRI_ALLOC_SMALL_SEGMENT : config->large_segment_bytes;
}

/* At most what the driver is asked for: a new segment, or whole chunks where they grow. */
static inline uint64_t hri_alloc_driver_bytes(const hr_alloc_config *config, uint64_t size) {
  if (!config->expandable_segments) return hri_alloc_segment_bytes(config, size);
  return hri_round_up(size, hri_alloc_chunk_bytes(config, size <= HRI_ALLOC_SMALL_LIMIT));
}

#endif
