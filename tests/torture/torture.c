/* Nothing lost, nothing silent: the run directory under every fault of the file system, loss of power, damage and kill
 * -9.
 *
 *   torture                 all parts, a sample of each (a minute); HEADROOM_TORTURE=full takes every case (ten
 *   minutes) torture PART...         calls, resume, faults, power, flips, kills
 *   torture PART CASE       one case, as a finding names it, with all that the program says; faults, power and flips
 *
 * HEADROOM_TORTURE_SEED=N chooses the sample, _JOBS=N the workers, _REPORT=FILE takes all findings, _KEEP=1 leaves the
 * files, _ROOT=DIR says where they lie (/dev/shm, else TMPDIR). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "torture/parts.h"

static void need_shim(void) {
  if (have_shim()) return;
  print_message("with sanitizers nothing is preloaded: not run\n");
  skip();
}

static void every_call_is_seen(void **state) {
  (void)state;
  need_shim();
  assert_int_equal(part_calls(), 0);
}

static void resume_needs_no_other_word(void **state) {
  (void)state;
  if (!resume_alone) fail_msg("train --resume RUN alone is refused; the other parts give all the options");
}

static void every_call_may_fail(void **state) {
  (void)state;
  need_shim();
  assert_int_equal(part_faults(), 0);
}

static void the_power_may_go_out(void **state) {
  (void)state;
  need_shim();
  assert_int_equal(part_power(), 0);
}

static void files_may_be_damaged(void **state) {
  (void)state;
  assert_int_equal(part_flips(), 0);
}

static void it_may_be_killed(void **state) {
  (void)state;
  assert_int_equal(part_kills(), 0);
}

typedef struct part {
  const char *name;
  void (*test)(void **state);
  void (*one)(world *w, const char *text);
} part;
static const part parts[] = {{"calls", every_call_is_seen, NULL},          {"resume", resume_needs_no_other_word, NULL},
                             {"faults", every_call_may_fail, case_faults}, {"power", the_power_may_go_out, case_power},
                             {"flips", files_may_be_damaged, case_flips},  {"kills", it_may_be_killed, NULL}};
enum { PARTS = sizeof parts / sizeof *parts };

static const part *find_part(const char *name) {
  for (size_t k = 0; k < PARTS; k++)
    if (strcmp(parts[k].name, name) == 0) return &parts[k];
  return NULL;
}

static void read_environment(void) {
  const char *how = getenv("HEADROOM_TORTURE"), *number = getenv("HEADROOM_TORTURE_SEED");
  full = how && strcmp(how, "full") == 0;
  seed = number ? strtoull(number, NULL, 10) : (uint64_t)time(NULL);
  (void)printf("torture: %s, HEADROOM_TORTURE_SEED=%llu\n", full ? "every case" : "a sample", (unsigned long long)seed);
}

static int run_one(const part *p, const char *text) {
  world w;
  world_set_up();
  world_open(&w, 0);
  w.tell = true;
  p->one(&w, text);
  (void)printf("the files: %s\n", base); /* for looking at; not removed */
  return 0;
}

static int set_up(void **state) {
  (void)state;
  world_set_up();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  world_tear_down();
  return 0;
}

int main(int count, char **words) {
  struct CMUnitTest tests[PARTS];
  const part *first = count > 1 ? find_part(words[1]) : NULL;
  size_t chosen = 0;
  (void)setvbuf(stdout, NULL, _IOLBF, 0);
  read_environment();
  if (count == 3 && first && first->one && !find_part(words[2])) return run_one(first, words[2]);
  for (size_t k = 0; k < PARTS; k++) {
    bool wanted = count == 1;
    for (int m = 1; m < count; m++) wanted = wanted || find_part(words[m]) == &parts[k];
    if (wanted) tests[chosen++] = (struct CMUnitTest){.name = parts[k].name, .test_func = parts[k].test};
  }
  for (int m = 1; m < count; m++)
    if (!find_part(words[m])) broken("no part '%s'", words[m]);
  return _cmocka_run_group_tests("torture", tests, chosen, set_up, tear_down);
}
