/* What hri_solved_find returns was kept for just these items and a goal that its search would have ended at; everything
 * that a placement reads makes a difference, what it does not read makes none. */
#include "plan/solved.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 3, ALL = 5 };

typedef struct sample {
  hri_shelf_item items[ALL];
  hri_solved_program program;
} sample;

/* Three to be placed and two that lie; lives begin at tick 100. */
static void fill(sample *s) {
  *s = (sample){.items = {{.bytes = 512, .begin = 100, .end = 110, .low = 1024, .storage = 1},
                          {.bytes = 512, .begin = 104, .end = 104, .low = 2048, .storage = 2},
                          {.bytes = 4096, .begin = 101, .end = 103, .low = 4096, .storage = 3},
                          {.bytes = 1024, .begin = 100, .end = 120, .low = 0, .storage = 4},
                          {.bytes = 64, .begin = 118, .end = 120, .low = 1024, .storage = 5}}};
  s->program = (hri_solved_program){s->items, COUNT, ALL, 100};
}

static void keep(hri_solved *solved, hri_solved_range goals) {
  hr_error e = {0};
  sample s;
  fill(&s);
  assert_int_equal(hri_solved_add(solved, &s.program, goals, &e), HR_OK);
}

static void same_items_are_found(void **state) {
  const uint64_t before = hri_mem_live_bytes();
  const hri_shelf_item *known;
  hri_solved solved = {0};
  sample s;
  (void)state;
  fill(&s);
  assert_null(hri_solved_find(&solved, &s.program, 8192));
  keep(&solved, (hri_solved_range){8192, 9000});
  for (uint32_t i = 0; i < ALL; i++) { /* later in the job, of other storages, not placed yet */
    s.items[i].begin += 50;
    s.items[i].end += 50;
    s.items[i].storage += 7;
    if (i < COUNT) s.items[i].low = 0;
  }
  s.program.first_tick += 50;
  known = hri_solved_find(&solved, &s.program, 8192);
  assert_non_null(known);
  assert_int_equal(known[0].low, 1024);
  assert_int_equal(known[1].low, 2048);
  assert_int_equal(known[2].low, 4096);
  hri_solved_deinit(&solved);
  assert_int_equal(hri_mem_live_bytes(), before);
}

static void any_difference_counts(void **state) {
  hri_solved solved = {0};
  sample s;
  (void)state;
  keep(&solved, (hri_solved_range){0, UINT64_MAX});
  for (uint32_t i = 0; i < ALL; i++)
    for (int what = 0; what < 4; what++) {
      bool found;
      fill(&s);
      if (what == 0) s.items[i].bytes += 64;
      if (what == 1) s.items[i].begin++;
      if (what == 2) s.items[i].end++;
      if (what == 3) s.items[i].low += 64;
      found = hri_solved_find(&solved, &s.program, 1) != NULL;
      assert_int_equal(found, what == 3 && i < COUNT); /* where it shall lie is the answer, not the question */
    }
  fill(&s);
  s.program.count--; /* one more that lies */
  assert_null(hri_solved_find(&solved, &s.program, 1));
  fill(&s);
  s.program.all--;
  assert_null(hri_solved_find(&solved, &s.program, 1));
  fill(&s);
  s.program.first_tick--;
  assert_null(hri_solved_find(&solved, &s.program, 1));
  hri_solved_deinit(&solved);
}

/* Three searches of the same items for different goals stand side by side. */
static void goals_choose(void **state) {
  static const hri_solved_range ranges[] = {{700, UINT64_MAX}, {600, 700}, {0, 600}};
  static const struct {
    uint64_t goal;
    uint32_t kept; /* from so many on, it is found */
  } cases[] = {{UINT64_MAX - 1, 1}, {700, 1}, {699, 2}, {600, 2}, {599, 3}, {0, 3}};
  hri_solved solved = {0};
  sample s;
  (void)state;
  fill(&s);
  for (uint32_t kept = 0; kept <= 3; kept++) {
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
      const hri_shelf_item *known = hri_solved_find(&solved, &s.program, cases[k].goal);
      assert_int_equal(known != NULL, kept >= cases[k].kept);
      if (known) assert_ptr_equal(known, solved.entries.items[cases[k].kept - 1].items);
    }
    if (kept < 3) keep(&solved, ranges[kept]);
  }
  hri_solved_deinit(&solved);
}

static void memory_is_refused(void **state) {
  const uint64_t before = hri_mem_live_bytes();
  (void)state;
  for (uint64_t n = 1; n <= 2; n++) {
    hri_solved solved = {0};
    hr_error e = {0};
    sample s;
    fill(&s);
    hri_mem_fail_after(n);
    assert_int_equal(hri_solved_add(&solved, &s.program, (hri_solved_range){0, 1}, &e), HR_ERROR_MEMORY);
    hri_mem_fail_after(0);
    assert_int_equal(solved.entries.count, 0);
    hri_solved_deinit(&solved);
    assert_int_equal(hri_mem_live_bytes(), before);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(same_items_are_found),
      cmocka_unit_test(any_difference_counts),
      cmocka_unit_test(goals_choose),
      cmocka_unit_test(memory_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
