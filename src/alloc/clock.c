/* A clock that is read in a few nanoseconds: the processor's time stamp counter, scaled.
 *
 * The rate is measured against the monotonic clock over at least a millisecond, again and again, so neither a changed
 * frequency nor a step of the wall clock does harm for longer than one interval of 20 ms. Until the first millisecond
 * is over, and on processors without such a counter, the system's clock is asked each time. */
#include "alloc/history.h"

#include <time.h>

enum { MEASURE_NS = 1000000, BELIEVE_US = 20000 };

static uint64_t nanoseconds(clockid_t which) {
  struct timespec t = {0};
  (void)clock_gettime(which, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int64_t hri_clock_adjust(hri_clock *clock, uint64_t ticks) {
  const uint64_t now_ns = nanoseconds(CLOCK_MONOTONIC), span_ns = now_ns - clock->start_ns,
                 span_ticks = ticks - clock->start_ticks;
  clock->base_us = (int64_t)(nanoseconds(CLOCK_REALTIME) / 1000);
  clock->base_ticks = ticks;
  clock->valid_ticks = 0;
  if (!clock->start_ns || ticks < clock->start_ticks) {
    clock->start_ns = now_ns;
    clock->start_ticks = ticks;
  } else if (span_ns >= MEASURE_NS && span_ticks > span_ns / 1000) { /* a counter above 1 MHz */
    clock->rate = (uint64_t)((double)span_ns / 1000 / (double)span_ticks * 4294967296.0);
    clock->valid_ticks = (uint64_t)((double)BELIEVE_US * (double)span_ticks * 1000 / (double)span_ns);
    clock->start_ns = now_ns;
    clock->start_ticks = ticks;
  }
  return clock->base_us;
}
