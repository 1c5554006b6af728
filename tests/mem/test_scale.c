/* What an inspection costs grows with a recording as one walk over its events does: shapes on which rules of it went over all
 * steps for each size that stays behind, or over a stack for each allocation that it made. Both are measured in this process, in
 * seconds of its processor, so that neither the machine nor its load matters: such rules took 40 walks and more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "inspect/lives.h"
#include "mem/shapes.h"

enum { ROUNDS = 3 };

static double seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

static void walk(const hr_snapshot *snapshot) {
  hri_lives *lives;
  hr_error error;
  assert_int_equal(hri_lives_build(snapshot, 0, &lives, &error), HR_OK);
  hri_lives_destroy(lives);
}

static void inspect(const hr_snapshot *snapshot) {
  hr_inspection *inspection;
  hr_error error;
  assert_int_equal(hr_inspect(snapshot, NULL, &inspection, &error), HR_OK);
  hr_inspection_destroy(inspection);
}

/* The least of some rounds: what interrupts one does not interrupt all. */
static double least_of(void (*work)(const hr_snapshot *snapshot), const hr_snapshot *snapshot) {
  double least = 0;
  for (int k = 0; k < ROUNDS; k++) {
    const double start = seconds();
    work(snapshot);
    if (k == 0 || seconds() - start < least) least = seconds() - start;
  }
  return least;
}

static void test_scale(void **state) {
  static const struct {
    const char *shape;
    uint64_t events;
  } cases[] = {{"rounds", 100000}, {"windows", 60000}, {"sizes", 600000}};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    hr_snapshot *snapshot;
    hr_error error;
    assert_int_equal(shape_make(shape_by_name(cases[k].shape), cases[k].events, &snapshot, &error), HR_OK);
    const double one = least_of(walk, snapshot), all = least_of(inspect, snapshot);
    print_message("%s: an inspection takes %.1f walks over its events (%.4f s)\n", cases[k].shape, all / one, one);
    assert_true(all < 20 * one);
    hr_snapshot_destroy(snapshot);
  }
}

/* Allocations at addresses that are `apart` from each other. */
static hr_snapshot *addresses(uint64_t apart) {
  hri_snapshot_builder b;
  hr_snapshot *snapshot;
  hr_error error;
  assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
  b.snapshot->format = "pytorch-2.7";
  assert_true(hri_snapshot_add_trace(&b, 0));
  for (uint64_t k = 0; k < 100000; k++) {
    const hr_trace_event e = {.addr = 512 + (k * apart & UINT64_MAX >> 2), .size = 1, .action = HR_TRACE_ALLOC};
    assert_true(hri_snapshot_add_event(&b, &e));
  }
  assert_int_equal(hri_snapshot_build_end(&b, &snapshot, &error), HR_OK);
  return snapshot;
}

/* A table of addresses is as fast whichever of their bits differ. */
static void test_addresses(void **state) {
  hr_snapshot *usual = addresses(512), *near = addresses(1), *far = addresses((uint64_t)1 << 40 | 512);
  const double one = least_of(walk, usual);
  (void)state;
  print_message("addresses: %.1f and %.1f of the usual time\n", least_of(walk, near) / one, least_of(walk, far) / one);
  assert_true(least_of(walk, near) < 10 * one);
  assert_true(least_of(walk, far) < 10 * one);
  hr_snapshot_destroy(usual);
  hr_snapshot_destroy(near);
  hr_snapshot_destroy(far);
}

/* Steps are told by a name that comes behind hundreds of others. */
static void test_many_names(void **state) {
  hr_snapshot *snapshot;
  hr_inspection *inspection;
  hr_error error;
  (void)state;
  assert_int_equal(shape_make(shape_by_name("names"), 20000, &snapshot, &error), HR_OK);
  assert_true(snapshot->string_count > 10000);
  assert_int_equal(hr_inspect(snapshot, NULL, &inspection, &error), HR_OK);
  assert_string_equal(inspection->steps_from, "annotations");
  assert_true(inspection->step_count > 1000);
  hr_inspection_destroy(inspection);
  hr_snapshot_destroy(snapshot);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_scale), cmocka_unit_test(test_addresses),
                                     cmocka_unit_test(test_many_names)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
