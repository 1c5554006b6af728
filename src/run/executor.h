/* The executor: reserves one arena per tier, then runs programs node by node. It knows no technique: whatever shapes
 * memory has happened to the program before it came here. */
#ifndef HRI_RUN_EXECUTOR_H
#define HRI_RUN_EXECUTOR_H

#include "kernel/cpu.h"
#include "plan/place.h"

typedef struct hri_executor hri_executor;

typedef struct hri_executor_options {
  bool check; /* poison dead storage, verify guard zones (the placement must have been made with HRI_CHECK_GUARD) */
  /* called after each node when set, also after one whose guard left its work out: profile, record of a run, tests */
  void (*after_node)(void *context, const hri_job *job, hri_id node, double seconds);
  void *context;
} hri_executor_options;

enum { HRI_CHECK_GUARD = 256 };

/* Starts the team and makes everything that nodes need to run, the code of matrix products included; reserves nothing. After
 * this nothing of the library is made any more. BUDGET where a limit leaves no room for it. The job, placement, cpu and
 * transfer must outlive the executor. */
hr_status hri_executor_prepare(const hri_job *job, const hri_placement *placement, hri_cpu *cpu, const hri_transfer *transfer,
                               const hri_executor_options *options, hri_executor **executor, hr_error *error);
/* An executor of another job in the arenas of `base`, which must outlive it: what both carry through all their programs must
 * have the same offsets, and the placement must fit the arenas (INTERNAL otherwise). Prepares the `programs` (set of HRI_IN)
 * alone, and runs no others. */
hr_status hri_executor_prepare_beside(const hri_executor *base, const hri_job *job, const hri_placement *placement, uint16_t programs,
                                      hri_executor **executor, hr_error *error);
/* Reserves exactly placement->peak_bytes per tier (rounded up to the granule), once, before the first run; for an executor
 * beside another one it takes over that one's arenas, which must be there. MEMORY when the host refuses. */
hr_status hri_executor_reserve(hri_executor *executor, hr_error *error);
/* Both in one, for those who have nothing to do in between. */
hr_status hri_executor_create(const hri_job *job, const hri_placement *placement, hri_cpu *cpu, const hri_transfer *transfer,
                              const hri_executor_options *options, hri_executor **executor, hr_error *error);
hr_status hri_executor_create_beside(const hri_executor *base, const hri_job *job, const hri_placement *placement, uint16_t programs,
                                     hri_executor **executor, hr_error *error);
void hri_executor_destroy(hri_executor *executor);

hr_status hri_executor_run(hri_executor *executor, hri_program_kind program, hr_error *error);
/* Runs the nodes of a program in another order (positions into its issue order): any order that respects
 * happens-before must give the same bits. */
hr_status hri_executor_run_order(hri_executor *executor, hri_program_kind program, const uint32_t *positions, hr_error *error);

/* Address of a tensor in its arena. Valid only while the tensor's storage is alive. */
void *hri_executor_pointer(const hri_executor *executor, hri_id tensor);
hri_control *hri_executor_control(const hri_executor *executor);
uint64_t hri_executor_reserved_bytes(const hri_executor *executor, hri_tier tier);

#endif
