/* The arithmetic of pace.h: steps go on at the mean of those done, what interrupts them is counted by when it is due. The
 * neighbours may rely on this: nothing is measured here and no state is kept but what they add (hri_pause_add). */
#include "train/pace.h"

#include <assert.h>

/* Multiples of `every` in [step, steps], and the end. */
static double due_from(uint64_t every, bool at_end, uint64_t step, uint64_t steps) {
  uint64_t count = every ? steps / every - (step > 0 ? (step - 1) / every : 0) : 0;
  return (double)(count + (at_end && (every == 0 || steps % every != 0)));
}

double hri_pace_left(const hri_pace *pace, uint64_t step, uint64_t steps, uint64_t done, double elapsed) {
  double stepping = elapsed - pace->evaluations.all - pace->saves.all;
  assert(step > 0 && step <= steps);
  if (done == 0) return 0;
  return stepping / (double)done * (double)(steps - step) +
         due_from(pace->evaluate_every, pace->evaluates_at_end, step, steps) * pace->evaluations.last +
         due_from(pace->save_every, pace->saves_at_end, step, steps) * pace->saves.last;
}
