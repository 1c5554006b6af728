/* The one reservation that a run makes in a tier of host memory.
 *
 * The bytes asked for, rounded up to the granule, are all the address space and, once touched, all the memory it takes:
 * what a plan states is what the kernel counts. Nothing else grows or shrinks an arena. */
#ifndef HRI_BACKEND_CPU_ARENA_H
#define HRI_BACKEND_CPU_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "team/team.h"

/* The kernel's page: 4 KiB on x86-64, up to 64 KiB on Arm. */
uint64_t hri_arena_granule(void);

/* All zero is an arena that holds nothing; releasing it does nothing. */
typedef struct hri_arena {
  unsigned char *base; /* aligned to the granule, to 2 MiB where that costs nothing; NULL for 0 bytes */
  uint64_t bytes;      /* reserved: a multiple of the granule */
} hri_arena;

typedef struct hri_arena_options {
  bool small_pages; /* do not ask for huge pages */
  bool untouched;   /* leave the pages to their first use */
} hri_arena_options;

/* The bytes that a request reserves; UINT64_MAX when that does not fit 64 bits. */
uint64_t hri_arena_round(uint64_t bytes);

/* Reserves and zeroes, touched by the team, so that no page fault is left for the run. `options` may be NULL.
 * MEMORY, with what was requested and what the host could give, when the kernel refuses; the arena is then empty.
 * The caller compares with hri_host_memory_now before: a kernel that overcommits kills instead of refusing. */
hr_status hri_arena_reserve(hri_arena *arena, uint64_t bytes, hri_team *team, const hri_arena_options *options,
                            hr_error *error);
void hri_arena_release(hri_arena *arena);

#endif
