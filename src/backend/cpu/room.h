/* Whether there is room for what a job will take, asked before data and weights are read. An arena that is larger than
 * what there is would end in the kernel's OOM killer when it is touched, not in a message; what is refused here is
 * BUDGET, with the limit's name (docs/memory-model.md, "Limits of the process"). */
#ifndef HRI_BACKEND_CPU_ROOM_H
#define HRI_BACKEND_CPU_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Compares with every limit that can be read: the machine's memory, control groups, address space, data. `what` needs
 * it: "the job". */
hr_status hri_room_check(uint64_t bytes, const char *what, hr_error *error);

/* Asks the kernel itself, by a mapping that is given back at once: what counts is what it counts, strict overcommit
 * included (control groups it does not: they end a process instead of refusing). 0 bytes are always there. */
hr_status hri_room_prove(uint64_t bytes, const char *what, hr_error *error);

#endif
