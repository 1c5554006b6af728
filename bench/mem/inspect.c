/* How fast a snapshot is inspected: reading, lives, one state in the middle, the whole inspection, its text.
 *
 *   bench_inspect SNAPSHOT [ROUNDS]      default 5 rounds; the medians are printed, and what reading and inspecting
 *   held at most
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "inspect/lives.h"

enum { PARTS = 5, MOST_ROUNDS = 101 };
static const char *const names[PARTS] = {"read", "lives", "one state", "inspection", "text"};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int order(const void *a, const void *b) {
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static hr_status once(const char *path, double seconds[PARTS], uint64_t *events, hr_error *error) {
  hr_snapshot *snapshot = NULL;
  hr_inspection *inspection = NULL;
  hri_lives *lives = NULL;
  hri_state state = {0};
  char *text = NULL;
  double at[PARTS + 1];
  hr_status status;
  at[0] = now();
  HRI_TRY_OUT(hr_snapshot_read(path, NULL, &snapshot, error));
  at[1] = now();
  HRI_TRY_OUT(hri_lives_build(snapshot, 0, &lives, error));
  at[2] = now();
  HRI_TRY_OUT(hri_state_at(lives, lives->event_count / 2, &state, error));
  at[3] = now();
  hri_lives_destroy(lives);
  lives = NULL;
  HRI_TRY_OUT(hr_inspect(snapshot, NULL, &inspection, error));
  at[4] = now();
  HRI_TRY_OUT(hr_inspect_text(inspection, 0, 0, &text, error));
  at[5] = now();
  for (int k = 0; k < PARTS; k++) seconds[k] = at[k + 1] - at[k];
  *events = snapshot->event_count;
out:
  hr_free(text);
  hr_inspection_destroy(inspection);
  hri_state_deinit(&state);
  hri_lives_destroy(lives);
  hr_snapshot_destroy(snapshot);
  return status;
}

int main(int count, char **words) {
  int rounds = count > 2 ? atoi(words[2]) : 5;
  double part[MOST_ROUNDS], all[MOST_ROUNDS][PARTS];
  uint64_t events = 0;
  hr_error error;
  if (count < 2 || rounds < 1 || rounds > MOST_ROUNDS) return fprintf(stderr, "bench_inspect SNAPSHOT [ROUNDS]\n"), 2;
  for (int r = 0; r < rounds; r++)
    if (once(words[1], all[r], &events, &error) != HR_OK) return fprintf(stderr, "%s\n", error.message), 1;
  printf("%llu events, median of %d\n", (unsigned long long)events, rounds);
  for (int k = 0; k < PARTS; k++) {
    for (int r = 0; r < rounds; r++) part[r] = all[r][k];
    qsort(part, (size_t)rounds, sizeof *part, order);
    printf("%-12s %8.3f s\n", names[k], part[rounds / 2]);
  }
  printf("%-12s %8.1f MiB\n", "held at most", (double)hri_mem_peak_bytes() / 1048576);
  return 0;
}
