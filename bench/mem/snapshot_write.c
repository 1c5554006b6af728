/* Writing snapshots: seconds for pickle, gzip of it and JSON, by events. Also makes and rewrites files for
 * check_viz.py.
 *
 *   bench_snapshot_write [events, default 1000000 [stack depth, default 40 [directory, default .]]]
 *   bench_snapshot_write make SEED EVENTS OUT [PROTOCOL]   a random snapshot, as the tests have them
 *   bench_snapshot_write json IN OUT                       a snapshot as JSON
 *   bench_snapshot_write rewrite IN OUT [PROTOCOL]         reads a snapshot and writes it anew */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../tests/mem/made_snapshot.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int stop(const hr_error *error) {
  (void)fprintf(stderr, "bench_snapshot_write: %s\n", error->message);
  return 1;
}

static hr_status write_as(const hr_snapshot *s, int form, const char *path, hr_error *error) {
  return form < 2 ? hr_snapshot_write(s, path, NULL, error) : hr_snapshot_export(s, HR_EXPORT_JSON, 0, 0, path, error);
}

static int order(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static int measure(uint64_t events, uint32_t depth, const char *directory) {
  static const char *const names[] = {"bench.pickle", "bench.pickle.gz", "bench.json"};
  const made_options o = {.seed = 7,
                          .event_count = events,
                          .device_count = 1,
                          .segment_count = 60,
                          .slot_count = 60,
                          .stack_count = 4000,
                          .stack_depth = depth,
                          .category_count = 6,
                          .times = true};
  hr_snapshot *s = make_snapshot(&o);
  if (!s) return 1;
  for (int form = 0; form < (events * depth > 4000000 ? 2 : 3); form++) { /* JSON repeats each stack */
    double seconds[5];
    char path[4096];
    struct stat info = {0};
    (void)snprintf(path, sizeof path, "%s/%s", directory, names[form]);
    for (int k = 0; k < 5; k++) {
      hr_error error = {0};
      double begin = now();
      if (write_as(s, form, path, &error) != HR_OK) return stop(&error);
      seconds[k] = now() - begin;
    }
    qsort(seconds, 5, sizeof *seconds, order);
    (void)stat(path, &info);
    (void)unlink(path);
    (void)printf("%-16s %9llu events  %.3f s (median of 5)  %.1f MB  %.1f bytes per event\n", names[form],
                 (unsigned long long)events, seconds[2], (double)info.st_size / 1e6,
                 (double)info.st_size / (double)s->event_count);
  }
  hr_snapshot_destroy(s);
  return 0;
}

static int make(uint64_t seed, uint64_t events, const char *out, int protocol) {
  const made_options o = {.seed = seed,
                          .event_count = events,
                          .high_addresses = seed % 6 == 5,
                          .first_device = seed % 5 == 4 ? -1 : 0,
                          .device_count = 1 + seed % 3,
                          .segment_count = 5 + (uint32_t)seed % 11,
                          .slot_count = 10,
                          .stack_count = 30,
                          .stack_depth = (uint32_t)seed % 12,
                          .category_count = seed % 4 ? (uint32_t)seed % 9 : 0,
                          .pool_count = seed % 2 ? 2 : 0,
                          .times = seed % 3 != 2,
                          .notes = seed % 2,
                          .settings = true,
                          .annotations = seed % 3 == 0,
                          .all_categories = seed % 8 == 7,
                          .began_empty = seed % 2};
  const hr_snapshot_write_options options = {.protocol = protocol};
  hr_snapshot *s = make_snapshot(&o);
  hr_error error = {0};
  if (!s) return 1;
  if (hr_snapshot_write(s, out, &options, &error) != HR_OK) return stop(&error);
  hr_snapshot_destroy(s);
  return 0;
}

/* As JSON when protocol is below 0. */
static int rewrite(const char *in, const char *out, int protocol) {
  const hr_snapshot_write_options options = {.protocol = protocol};
  hr_snapshot *s = NULL;
  hr_error error = {0};
  hr_status status = hr_snapshot_read(in, NULL, &s, &error);
  if (status == HR_OK && protocol >= 0) status = hr_snapshot_write(s, out, &options, &error);
  else if (status == HR_OK) status = hr_snapshot_export(s, HR_EXPORT_JSON, 0, 0, out, &error);
  hr_snapshot_destroy(s);
  return status == HR_OK ? 0 : stop(&error);
}

int main(int count, char **words) {
  if (count >= 5 && strcmp(words[1], "make") == 0)
    return make(strtoull(words[2], NULL, 10), strtoull(words[3], NULL, 10), words[4], count > 5 ? atoi(words[5]) : 0);
  if (count == 4 && strcmp(words[1], "json") == 0) return rewrite(words[2], words[3], -1);
  if (count >= 4 && strcmp(words[1], "rewrite") == 0)
    return rewrite(words[2], words[3], count > 4 ? atoi(words[4]) : 0);
  return measure(count > 1 ? strtoull(words[1], NULL, 10) : 1000000, count > 2 ? (uint32_t)atoi(words[2]) : 40,
                 count > 3 ? words[3] : ".");
}
