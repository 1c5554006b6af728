/* Placement: where each storage lies in its tier's arena. The result is a pure function of sizes and lives
 * (lives.h). */
#ifndef HRI_PLAN_PLACE_H
#define HRI_PLAN_PLACE_H

#include "plan/lives.h"
#include "plan/solved.h"

typedef struct hri_placement {
  uint64_t *offsets;                   /* per storage, bytes into its tier's arena; multiples of HRI_STORAGE_ALIGN */
  uint64_t peak_bytes[HRI_TIER_COUNT]; /* highest end of any storage */
  uint64_t lower_bound_bytes[HRI_TIER_COUNT]; /* most live bytes at any tick; never above the peak */
  hri_storage_life *lives;
  hri_program_span spans[HRI_PROGRAM_COUNT];
} hri_placement;

/* Lives, spans and bounds alone, and then the rest: a placement is made in these two steps, or in one.
 * `guard` bytes are kept free behind every storage (check mode), else 0. Deterministic. `solved`: programs that others
 * placed and may place again, or NULL; the result is the same. */
hr_status hri_placement_bound(const hri_job *job, uint64_t guard, hri_placement *placement, hr_error *error);
hr_status hri_placement_make(const hri_job *job, uint64_t guard, hri_solved *solved, hri_placement *placement,
                             hr_error *error);
hr_status hri_place_job(const hri_job *job, uint64_t guard, hri_placement *placement, hr_error *error);
void hri_placement_deinit(hri_placement *placement);

/* Independent proof by happens-before (prove.c): no two storages whose touchers may run at the same time or interleave
 * share a byte. Quadratic; for tests and check mode. */
hr_status hri_placement_verify(const hri_job *job, const hri_placement *placement, hr_error *error);

#endif
