/* Placements of programs that were made already. Alternatives of a job differ in one thing, and most of their programs
 * are then the same lives of the same bytes: another optimizer changes no program's activations, and few changes meet
 * the programs that load and save. What is found here is what the greedy would have made, byte for byte. */
#ifndef HRI_PLAN_SOLVED_H
#define HRI_PLAN_SOLVED_H

#include "plan/shelf.h"

/* Items of a program, of which the first `count` are to be placed and those behind them lie already. Only the distance of
 * lives from first_tick counts; the items' storages do not. */
typedef struct hri_solved_program {
  const hri_shelf_item *items;
  uint32_t count, all;
  uint32_t first_tick;
} hri_solved_program;

/* A search for a peak of at most `goal` ends as this one did for from <= goal < below. */
typedef struct hri_solved_range {
  uint64_t from, below;
} hri_solved_range;

typedef struct hri_solved_entry {
  uint64_t digest;
  hri_solved_range goals;
  hri_shelf_item *items; /* with their offsets; lives from tick 0 */
  uint32_t count, all;
} hri_solved_entry;

/* Begins as zeros. */
typedef struct hri_solved {
  HRI_ARRAY(hri_solved_entry) entries;
} hri_solved;

/* Items with the offsets of the first `count`, valid until the next add; NULL when it was not placed for such a goal. */
const hri_shelf_item *hri_solved_find(const hri_solved *solved, const hri_solved_program *program, uint64_t goal);
/* Keeps `program`, whose items have their offsets. */
hr_status hri_solved_add(hri_solved *solved, const hri_solved_program *program, hri_solved_range goals,
                         hr_error *error);
void hri_solved_deinit(hri_solved *solved);

#endif
