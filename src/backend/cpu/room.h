/* Whether there is room, asked before something that could not say so itself.
 *
 * Libraries of others end the process when they are refused memory: by a signal, or by ending it. They are therefore
 * called only after the room for what they are known to need was proven; the needs are measured (bench_pressure,
 * docs/memory-model.md). What is refused here was known before the job began: BUDGET, with the limit's name. */
#ifndef HRI_BACKEND_CPU_ROOM_H
#define HRI_BACKEND_CPU_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Compares with every limit that can be read: the machine's memory, control groups, address space, data. `what` needs
 * it:
 * "the job", "the GEMM library". */
hr_status hri_room_check(uint64_t bytes, const char *what, hr_error *error);

/* Asks the kernel itself, by a mapping that is given back at once: what counts is what it counts, strict overcommit
 * included (control groups it does not: they end a process instead of refusing). 0 bytes are always there. */
hr_status hri_room_prove(uint64_t bytes, const char *what, hr_error *error);

/* Whether `bytes` of the heap are free in one piece, or could be had: small allocations of the same thread right after
 * it, of at most so much in all, are then not refused. Takes nothing; about 50 ns. */
bool hri_room_heap(size_t bytes);

#endif
