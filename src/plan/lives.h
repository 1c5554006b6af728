/* Lives: when each storage is needed, and how many bytes are alive when. What placement, breakdowns, timelines and the
 * search say of memory over time is read off these two. */
#ifndef HRI_PLAN_LIVES_H
#define HRI_PLAN_LIVES_H

#include "program/check.h"

/* Life of a storage, both ends included, on the virtual timeline of the job (all programs one after the other).
 * Unused: begin > end. */
typedef struct hri_storage_life {
  uint32_t begin, end;
} hri_storage_life;

typedef struct hri_program_span {
  uint32_t begin, end;
} hri_program_span;

/* When a node may run, as an interval of ticks on its program's timeline; *end is the tick behind the last.
 *
 * The compute lane is the spine: its c-th node runs alone at tick start + 2c. A node of another lane may run anywhere
 * between the last spine node that must precede it (lo) and the first that must follow it (hi); the odd ticks are those
 * gaps, so it covers start + 2 lo + 1 .. start + 2 hi - 1. Storages whose hulls of ticks are disjoint are therefore
 * never touched at the same time, whatever the lanes do, and may share bytes. That is the claim on which placement
 * rests; it is proved without ticks, from happens-before alone, by hri_placement_verify. Linear in nodes and waits. */
hr_status hri_node_ticks(const hri_job *job, uint8_t program, uint32_t start, hri_storage_life *ticks, uint32_t *end,
                         hr_error *error);

/* Lives of all storages (storages.count entries): the hull of the touchers' ticks, of a carried one also of its
 * programs. */
hr_status hri_storage_lives(const hri_job *job, hri_storage_life *lives, hri_program_span spans[HRI_PROGRAM_COUNT],
                            hr_error *error);

/* Bytes that a storage takes in an arena, with `guard` bytes kept free behind it. */
static inline uint64_t hri_placed_bytes(const hri_storage *storage, uint64_t guard) {
  return hri_round_up(storage->bytes + guard, HRI_STORAGE_ALIGN);
}

/* Live bytes of a tier at every tick. */
typedef struct hri_live_series {
  uint32_t ticks;
  uint64_t *total;     /* per tick */
  uint64_t *by_role;   /* [tick * HRI_ROLE_COUNT + role]; NULL unless asked for */
  uint64_t peak_bytes; /* the largest total: no placement can do with less */
} hri_live_series;
hr_status hri_live_series_make(const hri_job *job, const hri_storage_life *lives,
                               const hri_program_span spans[HRI_PROGRAM_COUNT], uint8_t tier, uint64_t guard,
                               bool by_role, hri_live_series *series, hr_error *error);
void hri_live_series_deinit(hri_live_series *series);

#endif
