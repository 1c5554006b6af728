/* The team of a job: its OpenMP threads, started before anything depends on them. */
#ifndef HRI_BACKEND_CPU_TEAM_H
#define HRI_BACKEND_CPU_TEAM_H

#include <stdint.h>

#include "base/error.h"

/* Address space and private memory that starting such a team would take: the stacks of threads that do not run yet. */
uint64_t hri_team_bytes(uint32_t threads);

/* Starts `threads` threads (>= 1, the caller is one of them); nothing happens when the calling thread's team has that
 * size already. BUDGET when a limit leaves no room for their stacks, or refuses one of them. Call it before the first
 * parallel region of that size. */
hr_status hri_team_start(uint32_t threads, hr_error *error);

#endif
