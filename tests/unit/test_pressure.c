/* Too little memory, by limits that the process can know before it begins: from next to none up to plenty, in steps, of
 * data (RLIMIT_DATA), address space (RLIMIT_AS) and stack. Every run ends with 0, or with 3 and a message that names the
 * limit (4 where there is not even the memory to plan); by no signal, and soon. From the least limit in which a run succeeds on all succeed, and it is not
 * far above what the run takes. And files that may not grow: a message, and nothing under a final name.
 *
 * The least limits are in docs/memory-model.md, "Limits of the process". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/child.h"

#if defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 }; /* the shadow does not fit under such limits */
#else
enum { SANITIZED = 0 };
#endif

enum {
  KIB = 1 << 10,
  MIB = 1 << 20,
  STEP = 128 * KIB,
  STACK = 512 * KIB
}; /* STACK: the least that the program takes */
typedef enum limit { DATA = 0, SPACE, THREAD } limit;

static const char *directory, *data, *model;
static int made;

/* What ld.so, the kernel and the program's own stack need: below, a process may end before it is ours. That which `headroom --version`
 * runs with, which grows with the program and is another with other libraries (find_start). */
static uint64_t least_start[2];
static const char *const limit_names[] = {"RLIMIT_DATA", "RLIMIT_AS", "RLIMIT_STACK"};

/* Runs a command line (%d data, %m a model, %o an output) under a limit. */
static child run(const char *line, limit which, uint64_t bytes) {
  child c = {.deadline_seconds = 60};
  char text[2048];
  const char *out = path_of("%s/out-%d", directory, made++);
  size_t used = 0;
  if (which == DATA) c.data_bytes = bytes;
  else if (which == SPACE) c.address_space_bytes = bytes;
  else c.stack_bytes = bytes;
  for (const char *at = line; *at; at++) {
    if (*at == '%') used += (size_t)sprintf(text + used, "%s", at[1] == 'd' ? data : at[1] == 'm' ? model : out), at++;
    else text[used++] = *at;
  }
  text[used] = 0;
  child_words(&c, text);
  child_run(&c, HR_PROGRAM, directory);
  scratch_remove(out);
  return c;
}

/* The loader says 127, the kernel kills. A step more, for longer arguments. */
static void find_start(limit which) {
  uint64_t bytes = STEP;
  while (bytes < 64 * MIB && run("--version", which, bytes).code != 0) bytes += STEP;
  assert_true(bytes < 64 * MIB);
  least_start[which] = bytes + STEP;
  print_message("headroom --version: runs from %s of %.2f MiB on\n", limit_names[which], (double)bytes / MIB);
}

/* A job that was planned is refused with 3, also where the limit leaves nothing for the advice that goes with it. Below
 * that the planner itself may be refused its memory, which is 4. */
static void check(const char *line, limit which, uint64_t bytes, const child *c) {
  bool refused = c->code == 3 || (c->code == 4 && bytes < least_start[which] + MIB);
  if (c->code != 0 && !refused)
    fail_msg("%s with %s of %llu KiB: exit %d: %s", line, limit_names[which], (unsigned long long)(bytes / KIB),
             c->code, c->err);
  if (refused && !strstr(c->err, limit_names[which]))
    fail_msg("%s with %s of %llu KiB: exit %d does not name it: %s", line, limit_names[which],
             (unsigned long long)(bytes / KIB), c->code, c->err);
}

/* The least limit that runs, to a step; every run on the way is checked. */
static uint64_t least(const char *line, limit which, uint64_t low, uint64_t high) {
  while (high - low > STEP) {
    uint64_t middle = low + (high - low) / 2;
    child c = run(line, which, middle);
    check(line, which, middle, &c);
    if (c.code == 0) high = middle;
    else low = middle;
  }
  return high;
}

/* Points from the start on, then those around and above the threshold. */
static void sweep(const char *line, limit which, uint64_t most_bytes) {
  uint64_t start = least_start[which], step = quick() ? 8 * MIB : 3 * MIB,
           threshold = least(line, which, start, start + 64 * MIB);
  child c;
  for (uint64_t bytes = start; bytes < threshold; bytes += step) {
    c = run(line, which, bytes);
    check(line, which, bytes, &c);
    if (c.code == 0)
      fail_msg("%s runs with %llu KiB of %s, but not with more", line, (unsigned long long)(bytes / KIB),
               limit_names[which]);
  }
  for (uint64_t above = 64 * KIB; above <= 16 * MIB; above *= 4) {
    c = run(line, which, threshold + above);
    if (c.code != 0)
      fail_msg("%s with %s of %llu KiB: exit %d: %s", line, limit_names[which],
               (unsigned long long)((threshold + above) / KIB), c.code, c.err);
  }
  print_message("%s: runs from %s of %.2f MiB on, %.2f above the start\n", line, limit_names[which],
                (double)threshold / MIB, (double)(threshold - start) / MIB);
  if (threshold - start > most_bytes)
    fail_msg("%s: not before %.2f MiB of %s, %.2f above what a process begins with", line, (double)threshold / MIB,
             limit_names[which], (double)(threshold - start) / MIB);
}

/* The bounds: what the job needs beyond what a process begins with, as measured here (docs/memory-model.md), and 3 MiB, for other scratch,
 * arenas and pages of the heap. What a process begins with is the machine's, its libraries' and the compiler's. */
static void test_limits_of_memory(void **state) {
  static const struct {
    const char *line;
    uint64_t most;
  } jobs[] = {
      {"train micro-llama-bytes -q --seq 16 --threads 1 --steps 2 --data %d --out %o --budget 1GiB", 7},
      {"train micro-gpt2-bytes -q --seq 128 --micro-batch 3 --threads 2 --precision bf16 --packing off --steps 2 --data %d --out %o --budget 1GiB",
       11},
      {"evaluate %m -q --seq 16 --threads 2 --data %d --budget 1GiB", 7},
      {"generate %m -q --threads 2 --prompt hello --max-tokens 3", 11},
  };
  (void)state;
  if (SANITIZED) skip();
  for (size_t k = 0; k < sizeof jobs / sizeof *jobs; k++)
    for (int which = DATA; which <= SPACE; which++) sweep(jobs[k].line, (limit)which, jobs[k].most * MIB);
}

/* Plans take little; without --budget the limit is the budget, and says so. */
static void test_plans_and_default_budgets(void **state) {
  static const char *const lines[] = {"plan micro-llama-bytes --seq 16 -q --no-fixes --budget 1GiB",
                                      "train micro-llama-bytes -q --seq 16 --threads 2 --steps 1 --data %d --out %o"};
  (void)state;
  if (SANITIZED) skip();
  for (size_t k = 0; k < 2; k++)
    for (uint64_t bytes = least_start[DATA]; bytes <= 24 * MIB; bytes += 3 * MIB / 2) {
      child c = run(lines[k], DATA, bytes);
      check(lines[k], DATA, bytes, &c);
    }
}

static void test_stacks(void **state) {
  static const uint64_t sizes[] = {64 * KIB,  128 * KIB, 256 * KIB, 511 * KIB,         STACK,
                                   600 * KIB, 8 * MIB,   512 * MIB, UINT64_C(1) << 40, UINT64_MAX};
  /* The search for what fits goes deepest: for a list of fixes, and for --auto. */
  static const struct {
    const char *line;
    int code;
  } deep[] = {{"plan gpt2-124m --threads 2 --budget 1GiB", 3},
              {"plan gpt2-124m --threads 2 --budget 2GiB --auto", 0},
              {"train micro-llama-bytes -q --seq 16 --threads 2 --steps 1 --auto --budget 1GiB --data %d --out %o", 0}};
  (void)state;
  if (SANITIZED) skip();
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    child c = {.deadline_seconds = 60,
               .stack_bytes = sizes[k],
               .data_bytes = 40 * MIB}; /* a team of 4 has stacks of 1 MiB, whatever the limit */
    const char *out = path_of("%s/stack-%zu", directory, k);
    child_words(&c,
                path_of("train micro-llama-bytes -q --seq 16 --threads 4 --steps 1 --data %s --out %s --budget 1GiB",
                        data, out));
    child_run(&c, HR_PROGRAM, directory);
    if (sizes[k] < STACK ? c.code != 3 || !strstr(c.err, "RLIMIT_STACK") : c.code != 0)
      fail_msg("a stack of %llu KiB: exit %d: %s", (unsigned long long)(sizes[k] / KIB), c.code, c.err);
    scratch_remove(out);
  }
  for (size_t k = 0; k < sizeof deep / sizeof *deep; k++) {
    child c = run(deep[k].line, THREAD, STACK);
    if (c.code != deep[k].code)
      fail_msg("%s with a stack of %d KiB: exit %d: %s", deep[k].line, STACK / KIB, c.code, c.err);
  }
}

static void test_files_that_may_not_grow(void **state) {
  static const char *const lines[] = {
      "train micro-llama-bytes -q --seq 16 --threads 1 --steps 2 --save-every 1 --data %d --out %o",
      "train micro-llama-bytes -q --seq 16 --threads 1 --steps 2 --record-memory --data %d --out %o --profile %o.json",
      "convert %m %o.gguf",
      "devices --probe --probe-seconds 1 --threads 1",
      "inspect " HR_TEST_DATA "/snapshots/real/2.15/backward-oom.pickle.gz --html %o.html",
      "inspect " HR_TEST_DATA "/snapshots/real/2.15/backward-oom.pickle.gz --export speedscope %o.json",
      "replay " HR_TEST_DATA "/snapshots/real/2.15/backward-oom.pickle.gz --json",
      "help --man",
  };
  static const uint64_t limits[] = {1, 700, 3000, 200000};
  (void)state;
  for (size_t k = 0; k < sizeof lines / sizeof *lines; k++)
    for (size_t n = 0; n < sizeof limits / sizeof *limits; n++) {
      const char *place = path_of("%s/files", directory), *names[] = {"x.json", "x.gguf", "x.html", "x/final", "cache"};
      child c = {.deadline_seconds = 300, .file_bytes = limits[n]}; /* a probe takes 15 s, alone */
      char text[2048];
      size_t used = 0;
      if (strncmp(lines[k], "devices", 7) == 0 && (n != 1 || SANITIZED))
        continue; /* it takes seconds, and a sanitizer's minutes */
      assert_int_equal(mkdir(place, 0755), 0);
      assert_int_equal(setenv("HEADROOM_CACHE", path_of("%s/cache", place), 1), 0);
      for (const char *at = lines[k]; *at; at++) {
        if (*at == '%')
          used += (size_t)sprintf(text + used, "%s%s",
                                  at[1] == 'd'   ? data
                                  : at[1] == 'm' ? model
                                                 : place,
                                  at[1] == 'o' ? "/x" : ""),
              at++;
        else text[used++] = *at;
      }
      text[used] = 0;
      child_words(&c, text);
      child_run(&c, HR_PROGRAM, directory);
      if (c.code != 0 && c.code != 1)
        fail_msg("%s with files of %llu bytes: exit %d: %s", text, (unsigned long long)limits[n], c.code, c.err);
      /* what the child says is a file too: at 1 byte, its message does not fit either */
      if (c.code == 1 && limits[n] >= 3000 && !strstr(c.err, "ulimit -f"))
        fail_msg("%s with files of %llu bytes: %s", text, (unsigned long long)limits[n], c.err);
      for (size_t i = 0; c.code == 1 && !strstr(c.err, "standard output") && i < sizeof names / sizeof *names; i++) {
        DIR *cache = i == 4 ? opendir(path_of("%s/cache", place)) : NULL;
        if (i < 4 && exists(path_of("%s/%s", place, names[i])))
          fail_msg("%s with files of %llu bytes: %s is there: %s", text, (unsigned long long)limits[n], names[i],
                   c.err);
        for (struct dirent *entry; cache && (entry = readdir(cache));)
          if (entry->d_name[0] != '.') fail_msg("%s: %s is in the cache", text, entry->d_name);
        if (cache) (void)closedir(cache);
      }
      scratch_remove(place);
    }
}

static int set_up(void **state) {
  child c = {0};
  (void)state;
  directory = scratch_make("pressure");
  data = strdup(path_of("%s/data.txt", directory));
  model = strdup(path_of("%s/model/final", directory));
  if (!data || !model) return -1;
  put_words(data, 4000, 1);
  child_words(&c, path_of("train micro-llama-bytes -q --seq 16 --threads 1 --steps 1 --data %s --out %s/model", data,
                          directory));
  child_run(&c, HR_PROGRAM, directory);
  if (c.code != 0) fail_msg("%s", c.err);
  for (int which = DATA; !SANITIZED && which <= SPACE; which++) find_start((limit)which);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  scratch_remove(directory);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_limits_of_memory),
      cmocka_unit_test(test_plans_and_default_budgets),
      cmocka_unit_test(test_stacks),
      cmocka_unit_test(test_files_that_may_not_grow),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
