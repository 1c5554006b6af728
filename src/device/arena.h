/* Arenas: the one reservation that a run makes in a tier. */
#ifndef HRI_DEVICE_ARENA_H
#define HRI_DEVICE_ARENA_H

#include "base/error.h"

enum { HRI_GRANULE = 4096 };

typedef struct hri_arena {
  unsigned char *base; /* NULL: nothing is reserved */
  uint64_t bytes;      /* exactly what was reserved: the request rounded up to the granule */
} hri_arena;

/* Reserves `bytes` (rounded up to the granule, and not a byte of address space more), and touches every page with
 * `threads` threads, so that a run never meets a page that the host cannot give: it is refused here or not at all.
 * Huge pages are asked for where they fit. MEMORY when the host refuses. `arena` may hold nothing before. */
hr_status hri_arena_reserve(hri_arena *arena, uint64_t bytes, uint32_t threads, hr_error *error);
void hri_arena_release(hri_arena *arena);

#endif
