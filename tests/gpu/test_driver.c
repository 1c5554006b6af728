/* What `headroom devices` says of the GPUs of this machine, with a driver that shows some (fake_driver.c) and
 * without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char said[1 << 16];

static void ask(const char *environment, const char *options) {
  char command[2048];
  FILE *pipe;
  (void)snprintf(command, sizeof command, "LD_LIBRARY_PATH='%s' '%s' devices %s", environment, HR_PROGRAM, options);
  pipe = popen(command, "r");
  assert_non_null(pipe);
  said[fread(said, 1, sizeof said - 1, pipe)] = 0;
  assert_int_equal(pclose(pipe), 0);
}

static void expect(const char *words) {
  if (!strstr(said, words)) fail_msg("no '%s' in:\n%s", words, said);
}

static void cards_of_a_driver_are_listed(void **state) {
  (void)state;
  ask(HR_FAKE_DRIVER, "");
  expect(
      "GPUs of this machine\n  0  NVIDIA GeForce RTX 4090, 12.00 GiB, compute capability 8.9, 128\n     multiprocessors\n");
  expect(
      "     train on it with --device cuda\n  1  NVIDIA Something New, 24.00 GiB, compute "
      "capability 12.0, 128\n     multiprocessors\n     train on it with --device cuda:1\n\n"); /* and none that is too old */
  ask(HR_FAKE_DRIVER, "--json");
  expect("\"gpus\": [");
  expect("\"title\": \"NVIDIA GeForce RTX 4090\"");
  expect("\"name\": \"rtx-4090\"");
  expect("\"compute_capability\": 120");
  expect("\"total_bytes\": 25769803776");
  expect("\"gpus_missing\": null");
}

/* A machine that has a driver sees its own. */
static void what_is_missing_is_said(void **state) {
  (void)state;
  ask("", "");
  if (strstr(said, "GPUs of this machine")) skip();
  expect("no GPU of this machine can be seen: ");
  ask("", "--json");
  expect("\"gpus\": []");
  expect("\"gpus_missing\": \"");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cards_of_a_driver_are_listed),
                                     cmocka_unit_test(what_is_missing_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
