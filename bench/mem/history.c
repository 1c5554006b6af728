/* What recording costs: one event, in memory and into a mapped file, and reading a file of a million events.
 *
 *   bench_history [rounds]
 *
 * The median over rounds of one million events each; the first round of a ring also pays for its pages and is shown
 * apart. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "alloc/history.h"

enum { EVENTS = 1000000, ROUNDS_MAX = 101 };

static double now(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int order(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void fail(const char *what, const hr_error *error) {
  fprintf(stderr, "%s: %s\n", what, error->message);
  exit(1);
}

/* Seconds for a million events, as the allocator records them. */
static double record(hr_alloc *alloc) {
  const double begin = now();
  for (uint64_t k = 0; k < EVENTS; k++)
    hri_history_record(alloc, k & 1 ? HR_TRACE_FREE_REQUESTED : HR_TRACE_ALLOC, 512 * (k & 1023), 1000, 1024, 0, 0,
                       k & 7);
  return now() - begin;
}

static void measure(hr_alloc *alloc, const char *name, const char *path, int rounds) {
  const hr_alloc_history_options options = {path, EVENTS};
  double seconds[ROUNDS_MAX], first;
  hr_error error = {0};
  if (hr_alloc_history_start(alloc, &options, &error) != HR_OK) fail("start", &error);
  first = record(alloc);
  for (int k = 0; k < rounds; k++) seconds[k] = record(alloc);
  qsort(seconds, (size_t)rounds, sizeof *seconds, order);
  printf("%-12s %6.1f ns per event (first round %.1f)\n", name, seconds[rounds / 2] / EVENTS * 1e9,
         first / EVENTS * 1e9);
  if (hr_alloc_history_stop(alloc, &error) != HR_OK) fail("stop", &error);
}

/* Real calls, so that the file holds a state that agrees with its events. */
static void fill(hr_alloc *alloc, const char *path) {
  const hr_alloc_history_options options = {path, EVENTS};
  uint64_t live[1000] = {0}, seed = 1;
  hr_error error = {0};
  if (hr_alloc_history_start(alloc, &options, &error) != HR_OK) fail("start", &error);
  for (int k = 0; k < EVENTS / 3 + 2000; k++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    uint64_t *place = &live[seed >> 32 & 511];
    const hr_alloc_label label = {.category = "activation",
                                  .phase = "forward",
                                  .name = "linear",
                                  .layer = (int32_t)(seed >> 48 & 31),
                                  .step = (uint64_t)k >> 12};
    if (hr_alloc_set_label(alloc, &label, &error) != HR_OK) fail("label", &error);
    if (*place && hr_alloc_free(alloc, *place, &error) != HR_OK) fail("free", &error);
    if (hr_alloc_malloc(alloc, 1 + (seed >> 40 & 0xfffff), 0, place, &error) != HR_OK) fail("malloc", &error);
  }
  if (hr_alloc_history_stop(alloc, &error) != HR_OK) fail("stop", &error);
}

static void read_back(const char *path, int rounds) {
  double seconds[ROUNDS_MAX];
  hr_error error = {0};
  uint64_t events = 0;
  for (int k = 0; k < rounds; k++) {
    hr_snapshot *s;
    const double begin = now();
    if (hr_snapshot_read(path, NULL, &s, &error) != HR_OK) fail("read", &error);
    seconds[k] = now() - begin;
    events = s->event_count;
    hr_snapshot_destroy(s);
  }
  qsort(seconds, (size_t)rounds, sizeof *seconds, order);
  printf("reading %llu events: %.0f ms\n", (unsigned long long)events, seconds[rounds / 2] * 1e3);
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 11;
  char path[] = "/tmp/headroom-bench-XXXXXX";
  hr_alloc_hooks hooks;
  hr_alloc_config config = hr_alloc_config_default();
  hr_alloc *alloc = NULL;
  hr_error error = {0};
  int fd = mkstemp(path);
  if (rounds < 1 || rounds > ROUNDS_MAX) rounds = 11;
  if (fd < 0 || close(fd) != 0) return 1;
  if (hr_alloc_fake_hooks(0, &hooks, &error) != HR_OK || hr_alloc_create(&hooks, &config, &alloc, &error) != HR_OK)
    fail("create", &error);
  measure(alloc, "in memory", NULL, rounds);
  measure(alloc, "mapped file", path, rounds);
  fill(alloc, path);
  read_back(path, rounds);
  hr_alloc_destroy(alloc);
  hr_alloc_hooks_destroy(&hooks);
  (void)unlink(path);
  return 0;
}
