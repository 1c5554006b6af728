/* How long a run will still take: pauses count as often as they are due, and not as part of the steps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/pace.h"

/* Runs the trainer's order of things in made-up seconds; at each step the prediction must be what is really left, once every
 * kind of pause was met. */
static void walk(uint64_t steps, uint64_t evaluate_every, bool at_end, uint64_t save_every, bool evaluate_first) {
  const double step_seconds = 0.25, evaluation = 40, save = 3;
  hri_pace pace = {evaluate_every, save_every, at_end, true, {0, 0}, {0, 0}};
  double clock = 0, left[64], at[64], end;
  bool evaluated = evaluate_first, saved = false, known[64];
  if (evaluate_first) hri_pause_add(&pace.evaluations, clock = evaluation);
  for (uint64_t s = 1; s <= steps; s++) {
    bool last = s == steps, evaluates = (evaluate_every && s % evaluate_every == 0) || (last && at_end),
         saves = last || (save_every && s % save_every == 0);
    clock += step_seconds;
    left[s] = hri_pace_left(&pace, s, steps, s, clock);
    at[s] = clock;
    known[s] = saved && (evaluated || (!evaluate_every && !at_end));
    if (evaluates) hri_pause_add(&pace.evaluations, evaluation), clock += evaluation;
    if (saves) hri_pause_add(&pace.saves, save), clock += save;
    evaluated |= evaluates;
    saved |= saves;
  }
  end = clock;
  for (uint64_t s = 1; s <= steps; s++) {
    if (known[s] && fabs(left[s] - (end - at[s])) > 1e-9)
      fail_msg("step %d of %d: %g s are predicted, %g are left", (int)s, (int)steps, left[s], end - at[s]);
    assert_true(left[s] <= end - at[s] + 1e-9); /* what is not known yet counts for nothing */
  }
}

static void test_pauses_are_no_steps(void **state) {
  (void)state;
  for (uint64_t steps = 1; steps < 40; steps += 3)
    for (uint64_t every = 0; every < 9; every++)
      for (uint64_t save = 0; save < 7; save += 2)
        for (int how = 0; how < 4; how++) walk(steps, every, how & 1, save, how & 2);
}

/* An evaluation of 40 s before the first of a thousand steps: it was read as ten hours. */
static void test_the_first_step(void **state) {
  hri_pace pace = {0, 0, false, false, {40, 40}, {0, 0}};
  (void)state;
  assert_true(fabs(hri_pace_left(&pace, 1, 1000, 1, 40.1) - 99.9) < 1e-6);
  assert_true(hri_pace_left(&pace, 500, 1000, 0, 0) == 0); /* resumed: no step was done yet */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pauses_are_no_steps), cmocka_unit_test(test_the_first_step)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
