/* The cases of tests/explain/cases, a file for each family of speakers: other frameworks, servers with limits of their own,
 * batch systems and kernels, other languages' run times, device libraries, speakers that nobody has met; messages of
 * which parts were left out; and texts that hold the same words and report nothing. */
#include "explain/cases.h"

typedef struct tally {
  size_t right, silent;
} tally;

static void visit(const explain_case *c, void *context) {
  tally *t = context;
  t->right += is_case_right(c);
  t->silent += strcmp(c->head, "no") == 0;
}

/* All cases of a file, of which at least `least` are failures and `silent` are none. */
static void check(const char *name, size_t least, size_t silent) {
  static char buffer[EXPLAIN_CASE_BYTES];
  tally t = {0};
  size_t cases = each_case(name, buffer, visit, &t);
  assert_true(cases - t.silent >= least && t.silent >= silent);
  assert_int_equal(t.right, cases);
}

static void test_frameworks(void **state) {
  (void)state;
  check("frameworks", 20, 0);
}
static void test_caps(void **state) {
  (void)state;
  check("caps", 8, 0);
}
static void test_parts(void **state) {
  (void)state;
  check("parts", 10, 0);
}
static void test_hosts(void **state) {
  (void)state;
  check("hosts", 28, 0);
}
static void test_devices(void **state) {
  (void)state;
  check("devices", 18, 0);
}
static void test_reports(void **state) {
  (void)state;
  check("reports", 80, 0);
}
static void test_silent(void **state) {
  (void)state;
  check("silent", 0, 60);
}
static void test_talk(void **state) {
  (void)state;
  check("talk", 0, 250);
}
static void test_speakers(void **state) {
  (void)state;
  check("speakers", 170, 130);
}
static void test_survey(void **state) {
  (void)state;
  check("survey", 120, 12);
}
static void test_named(void **state) {
  (void)state;
  check("named", 25, 70);
}
static void test_survey2(void **state) {
  (void)state;
  check("survey2", 200, 40);
}
static void test_survey3(void **state) {
  (void)state;
  check("survey3", 100, 17);
}
static void test_families(void **state) {
  (void)state;
  check("families", 40, 10);
}

static void test_sentences(void **state) {
  (void)state;
  check("sentences", 150, 50);
}

static void test_numbers(void **state) {
  (void)state;
  check("numbers", 26, 0);
}

static void test_source(void **state) {
  (void)state;
  check("source", 0, 19);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_frameworks), cmocka_unit_test(test_caps),     cmocka_unit_test(test_parts),
      cmocka_unit_test(test_hosts),      cmocka_unit_test(test_devices),  cmocka_unit_test(test_reports),
      cmocka_unit_test(test_silent),     cmocka_unit_test(test_talk),     cmocka_unit_test(test_speakers),
      cmocka_unit_test(test_survey),     cmocka_unit_test(test_survey2),  cmocka_unit_test(test_survey3),
      cmocka_unit_test(test_named),      cmocka_unit_test(test_families), cmocka_unit_test(test_sentences),
      cmocka_unit_test(test_source),     cmocka_unit_test(test_numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
