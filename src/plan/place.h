/* Lives and placement: when each storage is needed, and where it lies in its tier's arena. */
#ifndef HRI_PLAN_PLACE_H
#define HRI_PLAN_PLACE_H

#include "program/check.h"

/* Life of a storage on the virtual timeline of the job (all programs one after the other). Unused: begin > end. */
typedef struct hri_storage_life { uint32_t begin, end; } hri_storage_life;

typedef struct hri_program_span { uint32_t begin, end; } hri_program_span;

/* Lives of all storages (storages.count entries). A spine (compute) node c of a program that starts at tick t covers
 * [t + 2c, t + 2c]; a node off the spine covers [t + 2 lo + 1, t + 2 hi - 1], lo the last spine node before it and hi the
 * first after it in happens-before. A storage lives over the hull of its touchers, a carried one over its programs. */
hr_status hri_storage_lives(const hri_job *job, hri_storage_life *lives, hri_program_span spans[HRI_PROGRAM_COUNT], hr_error *error);

/* Ticks of each position of one program that starts at tick `start`; *end is the tick behind its last node. */
hr_status hri_node_ticks(const hri_job *job, uint8_t program, uint32_t start, hri_storage_life *ticks, uint32_t *end, hr_error *error);

typedef struct hri_placement {
  uint64_t *offsets;                       /* per storage, bytes into its tier's arena */
  uint64_t peak_bytes[HRI_TIER_COUNT];     /* highest end of any storage */
  uint64_t lower_bound_bytes[HRI_TIER_COUNT]; /* most live bytes at any tick */
  hri_storage_life *lives;
  hri_program_span spans[HRI_PROGRAM_COUNT];
  uint32_t rounds;                         /* improvement rounds that were run */
} hri_placement;

/* `guard` bytes are kept free behind every storage (check mode), else 0. Deterministic. */
hr_status hri_place_job(const hri_job *job, uint64_t guard, hri_placement *placement, hr_error *error);
void hri_placement_deinit(hri_placement *placement);

/* The live-bytes bound alone: what the search compares. */
hr_status hri_live_bound(const hri_job *job, uint64_t bound[HRI_TIER_COUNT], hr_error *error);

/* Independent proof by happens-before: no two storages whose touchers may run at the same time or interleave share a
 * byte. Quadratic; for tests and check mode. */
hr_status hri_placement_verify(const hri_job *job, const hri_placement *placement, hr_error *error);

#endif
