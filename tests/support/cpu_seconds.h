/* Time for tests of how work grows: of this process alone, not by a wall clock, so that what else runs on the machine does not
 * decide what passes. */
#ifndef HRI_TEST_CPU_SECONDS_H
#define HRI_TEST_CPU_SECONDS_H

#include <time.h>

/* What all threads of this process have computed so far. */
static inline double cpu_seconds(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
