/* A clock that is read in a few nanoseconds: the processor's time stamp counter, scaled.
 *
 * The rate is measured against the monotonic clock over at least a millisecond, again and again, so neither a changed
 * frequency nor a step of the wall clock does harm for longer than one interval of 20 ms. Until the first millisecond
 * is over, and on processors without such a counter, the system's clock is asked each time.
 *
 * A thread may be put aside between a reading of the counter and one of the clock beside it. A rate measured from such a pair would be
 * wrong many times over, and be believed the longer the slower it is: ten milliseconds aside put the clock two tenths of a second behind.
 * So the monotonic clock is read on both sides of the counter, and what passed between them is how wrong a pair may be. */
#include "alloc/history.h"

#include <time.h>

/* Two pairs together may be wrong by 1 / SHARE of the span between them, and so may the rate. */
enum { MEASURE_NS = 1000000, BELIEVE_US = 20000, SHARE = 32 };

static uint64_t nanoseconds(clockid_t which) {
  struct timespec t = {0};
  (void)clock_gettime(which, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void hri_clock_learn(hri_clock *clock, const hri_clock_reading *now) {
  const hri_clock_reading *start = &clock->start;
  const uint64_t span_ns = now->before_ns - start->before_ns, span_ticks = now->ticks - start->ticks,
                 width_ns = now->after_ns - now->before_ns, start_width_ns = start->after_ns - start->before_ns;
  clock->base_us = now->us;
  clock->base_ticks = now->ticks;
  clock->valid_ticks = 0;
  if (!start->before_ns || now->ticks < start->ticks) {
    clock->start = *now;
  } else if (span_ns >= MEASURE_NS && span_ticks > span_ns / 1000 &&
             width_ns + start_width_ns <= span_ns / SHARE) { /* a counter above 1 MHz */
    clock->rate = (uint64_t)((double)span_ns / 1000 / (double)span_ticks * 4294967296.0);
    clock->valid_ticks = (uint64_t)((double)BELIEVE_US * (double)span_ticks * 1000 / (double)span_ns);
    clock->start = *now;
  } else if (width_ns < start_width_ns) {
    clock->start = *now; /* nothing is measured sooner from the wider */
  }
}

int64_t hri_clock_adjust(hri_clock *clock) {
  hri_clock_reading now = {.before_ns = nanoseconds(CLOCK_MONOTONIC)};
  now.ticks = hri_clock_ticks();
  now.us = (int64_t)(nanoseconds(CLOCK_REALTIME) / 1000);
  now.after_ns = nanoseconds(CLOCK_MONOTONIC);
  hri_clock_learn(clock, &now);
  return now.us;
}
