/* Why a machine refused memory to a process of ours: the least limit is the cause, and the shares add up to the
 * machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/explain.h>

static const uint64_t GIB_BYTES = 1u << 30;
#define GIB(n) ((uint64_t)(n) * GIB_BYTES)

/* A machine of 64 GiB, of which 20 are available, 2 this process's and 30 others'; no limits. */
static hr_host_facts machine(uint64_t requested) {
  hr_host_facts h = {.requested_bytes = requested,
                     .total_bytes = GIB(64),
                     .available_bytes = GIB(20),
                     .group_room_bytes = UINT64_MAX,
                     .address_space_room_bytes = UINT64_MAX,
                     .data_room_bytes = UINT64_MAX,
                     .process_resident_bytes = GIB(2),
                     .other_bytes = GIB(30),
                     .other_count = 2};
  h.others[0] = (hr_host_process){.pid = 4711, .resident_bytes = GIB(25), .name = "browser"};
  h.others[1] = (hr_host_process){.pid = 4712, .resident_bytes = GIB(5), .name = "editor"};
  return h;
}

static bool says(const hr_oom_failure *f, const char *words) {
  bool found = strstr(f->verdict, words) != NULL;
  for (uint32_t k = 0; k < f->arithmetic_count; k++) found |= strstr(f->arithmetic[k], words) != NULL;
  return found;
}

static hr_oom_failure explain(const hr_host_facts *h, hr_oom_cause cause, hr_oom_certainty certainty) {
  hr_oom_failure f;
  uint64_t sum = 0;
  hr_explain_host(h, &f);
  if (f.cause != cause || f.certainty != certainty)
    fail_msg("cause %d, certainty %d: %s", (int)f.cause, (int)f.certainty, f.verdict);
  for (uint32_t k = 0; k < f.share_count; k++) {
    assert_true(f.shares[k].bytes > 0);
    sum += f.shares[k].bytes;
  }
  assert_int_equal(sum, h->total_bytes);
  assert_int_equal(f.share_total_bytes, h->total_bytes);
  assert_int_equal(f.figures[HR_OOM_REQUESTED].bytes, h->requested_bytes);
  assert_true(f.verdict[0] != 0 && f.arithmetic_count > 0);
  return f;
}

static void test_other_processes_hold_it(void **state) {
  hr_host_facts h = machine(GIB(40));
  hr_oom_failure f = explain(&h, HR_OOM_OTHER_PROCESS, HR_OOM_LIKELY);
  (void)state;
  assert_int_equal(f.process_count, 2);
  assert_int_equal(f.figures[HR_OOM_OTHER_PROCESSES].bytes, GIB(30));
  assert_true(says(&f, "process 4711 (browser) has 25.00 GiB") && says(&f, "50.00 GiB would be available"));
  assert_int_equal(f.advice_count, 1);
  assert_int_equal(f.share_count, 4);
  assert_int_equal(f.shares[3].bytes, GIB(12)); /* unknown */
}

static void test_too_big_even_without_the_others(void **state) {
  hr_host_facts h = machine(GIB(51));
  hr_oom_failure f = explain(&h, HR_OOM_TOO_BIG, HR_OOM_CERTAIN);
  (void)state;
  assert_true(says(&f, "by 31.00 GiB") && says(&f, "would still not fit"));
  h = machine(GIB(50)); /* one byte decides */
  (void)explain(&h, HR_OOM_OTHER_PROCESS, HR_OOM_LIKELY);
  h.requested_bytes++;
  (void)explain(&h, HR_OOM_TOO_BIG, HR_OOM_CERTAIN);
  h = machine(GIB(21));
  h.other_bytes = 0;
  h.other_count = 0;
  (void)explain(&h, HR_OOM_TOO_BIG, HR_OOM_CERTAIN);
}

static void test_a_limit_of_the_process(void **state) {
  hr_host_facts h = machine(GIB(10));
  hr_oom_failure f;
  (void)state;
  h.group_room_bytes = GIB(4);
  f = explain(&h, HR_OOM_CAP, HR_OOM_CERTAIN);
  assert_true(says(&f, "control group") && says(&f, "leaves 4.00 GiB"));
  assert_int_equal(f.figures[HR_OOM_ALLOWED].bytes, GIB(4));
  h.address_space_room_bytes = GIB(3);
  f = explain(&h, HR_OOM_CAP, HR_OOM_CERTAIN);
  assert_true(says(&f, "RLIMIT_AS") && says(&f, "leaves 3.00 GiB"));
  assert_int_equal(f.figures[HR_OOM_ALLOWED].bytes, GIB(3));
  h.group_room_bytes = UINT64_MAX;
  f = explain(&h, HR_OOM_CAP, HR_OOM_CERTAIN);
  assert_non_null(strstr(f.advice[0].text, "ulimit -v"));
  h.data_room_bytes = GIB(1);
  f = explain(&h, HR_OOM_CAP, HR_OOM_CERTAIN);
  assert_true(says(&f, "RLIMIT_DATA"));
  h.data_room_bytes = UINT64_MAX;
  h.address_space_room_bytes = GIB(10); /* room for it: no limit in the way */
  (void)explain(&h, HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE);
}

/* A limit that would refuse it too is not the cause where the machine has even less. */
static void test_the_least_room_is_the_cause(void **state) {
  hr_host_facts h = machine(GIB(40));
  hr_oom_failure f;
  (void)state;
  h.group_room_bytes = GIB(39);
  h.address_space_room_bytes = GIB(38);
  f = explain(&h, HR_OOM_OTHER_PROCESS, HR_OOM_LIKELY);
  assert_false(says(&f, "not the machine"));
  h.group_room_bytes = GIB(19);
  (void)explain(&h, HR_OOM_CAP, HR_OOM_CERTAIN);
}

static void test_figures_that_explain_nothing(void **state) {
  hr_host_facts h = machine(GIB(20));
  hr_oom_failure f = explain(&h, HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE);
  (void)state;
  assert_true(f.candidates != 0 && says(&f, "overcommit"));
  assert_int_equal(f.advice_count, 1);
}

/* Pages that processes share are counted for each: the sum is cut to the machine. */
static void test_shares_never_exceed_the_machine(void **state) {
  hr_host_facts h = machine(GIB(40));
  hr_oom_failure f;
  (void)state;
  h.other_bytes = GIB(500);
  f = explain(&h, HR_OOM_OTHER_PROCESS, HR_OOM_LIKELY);
  assert_int_equal(f.shares[2].bytes, GIB(42));
  h.process_resident_bytes = GIB(500);
  f = explain(&h, HR_OOM_OTHER_PROCESS, HR_OOM_LIKELY);
  assert_int_equal(f.share_count, 2);
  h = (hr_host_facts){.requested_bytes = 1,
                      .group_room_bytes = UINT64_MAX,
                      .address_space_room_bytes = UINT64_MAX,
                      .data_room_bytes = UINT64_MAX}; /* nothing is known */
  f = explain(&h, HR_OOM_TOO_BIG, HR_OOM_CERTAIN);
  assert_int_equal(f.share_count, 0);
  assert_int_equal(f.figures[HR_OOM_TOTAL].state, HR_OOM_ABSENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_other_processes_hold_it),      cmocka_unit_test(test_too_big_even_without_the_others),
      cmocka_unit_test(test_a_limit_of_the_process),       cmocka_unit_test(test_the_least_room_is_the_cause),
      cmocka_unit_test(test_figures_that_explain_nothing), cmocka_unit_test(test_shares_never_exceed_the_machine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
