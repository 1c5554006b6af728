/* How long reserving and touching an arena takes: huge pages (what a run asks for) beside 4 KiB pages, interleaved.
 *
 *   bench_arena [GiB [threads [rounds]]]     default 3 GiB, the physical cores, 3 rounds */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <headroom/device.h>

#include "backend/cpu/arena.h"
#include "support/team.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one reservation, < 0 when it is refused. */
static double reserve(uint64_t bytes, uint32_t threads, bool small_pages) {
  hri_arena_options options = {.small_pages = small_pages};
  hri_arena arena;
  hr_error error;
  double begin = now(), end;
  if (hri_arena_reserve(&arena, bytes, team_of((int)threads), &options, &error) != HR_OK) {
    (void)fprintf(stderr, "bench_arena: %s\n", error.message);
    return -1;
  }
  end = now();
  hri_arena_release(&arena);
  return end - begin;
}

int main(int count, char **words) {
  double gib = count > 1 ? atof(words[1]) : 3, best[2] = {1e9, 1e9};
  uint32_t threads = count > 2 ? (uint32_t)atoi(words[2]) : hr_device_cpu_threads(),
           rounds = count > 3 ? (uint32_t)atoi(words[3]) : 3;
  for (uint32_t r = 0; r < rounds; r++)
    for (int small = 0; small < 2; small++) {
      double seconds = reserve((uint64_t)(gib * 1073741824.0), threads, small != 0);
      if (seconds < 0) return 1;
      if (seconds < best[small]) best[small] = seconds;
    }
  (void)printf("%.3g GiB, %u threads, best of %u: huge pages %.2f s, 4 KiB pages %.2f s\n", gib, threads, rounds,
               best[0], best[1]);
  return 0;
}
