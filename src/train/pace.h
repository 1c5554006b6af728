/* How long a run will still take: its steps at their pace so far, and evaluations and checkpoints, which are no part of that
 * pace - the first evaluation comes before the first step - by how often they are still due and what the last one took. */
#ifndef HRI_TRAIN_PACE_H
#define HRI_TRAIN_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* Seconds spent on one kind of interruption, in all and the last time. */
typedef struct hri_pause {
  double all, last;
} hri_pause;

/* `every`: steps between two, 0: none is; `at_end`: one more behind the last step, unless one is due there anyway. */
typedef struct hri_pace {
  uint64_t evaluate_every, save_every;
  bool evaluates_at_end, saves_at_end;
  hri_pause evaluations, saves;
} hri_pace;

/* Seconds from the end of step `step` (what is due there is still to come) to the end of the run of `steps`; `done` steps took
 * `elapsed` seconds, pauses included. A kind of pause that was not met yet counts for nothing. */
double hri_pace_left(const hri_pace *pace, uint64_t step, uint64_t steps, uint64_t done, double elapsed);

static inline void hri_pause_add(hri_pause *pause, double seconds) {
  pause->all += seconds;
  pause->last = seconds;
}

#endif
