/* kill -9 at random moments, once or several times in a row, from outside: between any two instructions, not only
 * around calls. */
#include "torture/parts.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

enum { SAMPLE = 250, FULL = 1500, IN_A_ROW = 3 };

typedef struct span {
  uint64_t wall_us;
} span;

static uint64_t measure(void) {
  static launch l;
  struct timespec begin, end;
  world w;
  command c;
  heard h;
  world_open(&w, 94);
  world_lay(&w, JOB_FRESH, false, &h);
  c = start_words(&w, JOB_FRESH);
  l = (launch){0};
  (void)clock_gettime(CLOCK_MONOTONIC, &begin);
  launch_run(&w, &c, &l);
  (void)clock_gettime(CLOCK_MONOTONIC, &end);
  remove_tree(w.root);
  return (uint64_t)(end.tv_sec - begin.tv_sec) * 1000000 + (uint64_t)(end.tv_nsec / 1000) -
         (uint64_t)(begin.tv_nsec / 1000);
}

static void try_case(world *w, size_t index, const void *context) {
  static launch l;
  const span *s = context;
  uint64_t state = seed + index;
  char name[32], why[WHY_ROOM];
  heard h;
  (void)snprintf(name, sizeof name, "%zu", index);
  world_lay(w, JOB_FRESH, false, &h);
  for (int k = 0; k < IN_A_ROW; k++) {
    command c = h.count ? resume_words(w, JOB_FRESH, NULL) : start_words(w, JOB_FRESH);
    bool any = roll(&state) % 4 == 0; /* else while it trains and saves: before, there is little to break */
    l = (launch){.kill_after_us = 1 + roll(&state) % (any ? s->wall_us : s->wall_us * 2 / 3),
                 .kill_behind = any ? NULL : "\nloaded "};
    launch_run(w, &c, &l);
    hear_more(&h, &l.heard);
    if (l.signal == SIGKILL && !l.hung) remark("killed");
    if (!ended_well(&l, why)) {
      finding(w, name, "%s", why);
      return;
    }
    if (l.code != 2 && l.signal != SIGKILL && l.code != 0)
      finding(w, name, "exit %d: %.300s", l.code, l.err); /* 2: saved, not announced */
    if (roll(&state) % 2) break;
  }
  if (!recovers(w, JOB_FRESH, &h, AFTER_FAULT, why)) finding(w, name, "%s", why);
}

size_t part_kills(void) {
  span s = {measure()};
  size_t runs = full ? FULL : sampled(SAMPLE);
  (void)printf("kills: %zu runs of %.1f ms\n", runs, (double)s.wall_us / 1e3);
  return run_cases("kills", runs, try_case, &s);
}
