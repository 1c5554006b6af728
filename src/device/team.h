/* The team of a job: its OpenMP threads, started before anything depends on them. */
#ifndef HRI_DEVICE_TEAM_H
#define HRI_DEVICE_TEAM_H

#include <stdint.h>

#include "base/error.h"

/* Starts `threads` threads (>= 1, the caller is one of them); nothing happens when the calling thread's team has that size
 * already. MEMORY when the system refuses one of them. Call it before the first parallel region of that size. */
hr_status hri_team_start(uint32_t threads, hr_error *error);

#endif
