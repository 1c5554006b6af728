/* RUN/memory: what a run leaves about its memory.
 *
 *   trail              a mapped page: the last node, step and resident bytes; survives kill -9 (snapshot/trail.h)
 *   plan.pickle.gz     the plan's timeline as a snapshot, times predicted
 *   snapshot.pickle.gz with --record-memory: the last steps as they ran, written at the end, also of a failed run
 *
 * Recording takes its memory at the start (at most 640 KiB) and allocates nothing while the run goes on. */
#ifndef HRI_TRAIN_MEMORY_H
#define HRI_TRAIN_MEMORY_H

#include "train/session.h"

typedef struct hri_memory hri_memory;

/* Makes RUN/memory with the trail and the plan's timeline. The plan must outlive it. */
hr_status hri_memory_open(const char *directory, const hr_plan *plan, bool record, hri_memory **memory,
                          hr_error *error);
void hri_memory_close(hri_memory *memory); /* NULL is fine */

void hri_memory_stand(hri_memory *memory, uint64_t step,
                      uint64_t steps); /* steps that are done, by an earlier part of the run, of all */
void hri_memory_begin_step(hri_memory *memory, uint64_t step);                      /* that is about to run, from 1 */
void hri_memory_program(hri_memory *memory, hri_program_kind kind, uint32_t micro); /* a program of the step begins */
void hri_memory_node(hri_memory *memory, const hri_job *job, hri_id node);
void hri_memory_end_step(hri_memory *memory, const hr_metrics *metrics);
void hri_memory_usable(hri_memory *memory, uint64_t usable_bytes); /* what the machine could still give */
/* How the run ended; `error` is of a failure. Writes the recorded steps when there are any: IO or MEMORY when it
 * cannot. */
hr_status hri_memory_end(hri_memory *memory, const hri_executor *executor, hr_status outcome, const hr_error *failure,
                         hr_error *error);

#endif
