/* The executor: hands a placed job to a backend and its programs to the backend's queue. It knows no technique, and no
 * backend: whatever shapes memory has happened to the program before it came here, and how nodes run is the contract's
 * (backend/backend.h).
 *
 * The host's side of the control block is kept here. What the host sets (HRI_CONTROL_SET) is written before the next
 * launch; what programs write is fetched when somebody asks, so that nobody waits who need not. */
#ifndef HRI_RUN_EXECUTOR_H
#define HRI_RUN_EXECUTOR_H

#include "backend/backend.h"
#include "plan/place.h"

typedef struct hri_executor hri_executor;

typedef struct hri_executor_options {
  bool check; /* poison dead storage, verify guard zones (the placement must have been made with HRI_CHECK_GUARD) */
  /* as in hri_work: profile, record of a run, tests */
  void (*after_node)(void *context, const hri_job *job, hri_id node, double seconds);
  void *context;
  bool times;
} hri_executor_options;

enum { HRI_CHECK_GUARD = 256 };

/* Makes everything that nodes need to run, the team's threads included; reserves nothing. BUDGET where a limit leaves no
 * room for it; UNSUPPORTED when jobs can only be planned for the backend. The job, placement, backend and transfer must
 * outlive the executor. */
hr_status hri_executor_prepare(const hri_job *job, const hri_placement *placement, hri_backend *backend,
                               const hri_transfer *transfer, const hri_executor_options *options,
                               hri_executor **executor, hr_error *error);
/* An executor of another job in the arenas of `base`, which must outlive it: what both carry through all their programs
 * must have the same offsets, and the placement must fit the arenas (INTERNAL otherwise). Prepares the `programs` (set
 * of HRI_IN) alone, and runs no others. The control block is the base's. */
hr_status hri_executor_prepare_beside(const hri_executor *base, const hri_job *job, const hri_placement *placement,
                                      uint16_t programs, hri_executor **executor, hr_error *error);
/* Reserves exactly placement->peak_bytes per tier (rounded up to the granule), once, before the first run; for an
 * executor beside another one it takes over that one's arenas, which must be there. MEMORY when the host refuses. */
hr_status hri_executor_reserve(hri_executor *executor, hr_error *error);
/* Both in one, for those who have nothing to do in between. */
hr_status hri_executor_create(const hri_job *job, const hri_placement *placement, hri_backend *backend,
                              const hri_transfer *transfer, const hri_executor_options *options,
                              hri_executor **executor, hr_error *error);
hr_status hri_executor_create_beside(const hri_executor *base, const hri_job *job, const hri_placement *placement,
                                     uint16_t programs, hri_executor **executor, hr_error *error);
void hri_executor_destroy(hri_executor *executor);

/* ---- running ---- */

/* Queues a program, with what the host set of the control block before it. */
hr_status hri_executor_launch(hri_executor *executor, hri_program_kind program, hr_error *error);
/* Queues the control block as the programs launched so far leave it; it is in `to` once the mark was waited for. */
hr_status hri_executor_fetch(hri_executor *executor, hri_control *to, hri_mark *mark, hr_error *error);
hr_status hri_executor_wait(hri_executor *executor, hri_mark mark, hr_error *error);
/* Launches, and waits until all is done and hri_executor_control shows it. */
hr_status hri_executor_run(hri_executor *executor, hri_program_kind program, hr_error *error);

/* The control block as the last hri_executor_run left it, with what the host set since. */
const hri_control *hri_executor_control(const hri_executor *executor);
/* Sets fields of it for the next launch. */
void hri_executor_control_set(hri_executor *executor, size_t offset, const void *value, size_t bytes);
#define HRI_CONTROL_SET(executor, field, value)                                                                        \
  do {                                                                                                                 \
    hri_control control_;                                                                                              \
    control_.field = (value);                                                                                          \
    hri_executor_control_set((executor), offsetof(hri_control, field), &control_.field, sizeof control_.field);        \
  } while (0)

/* ---- tensors ---- */

/* Whether a tensor has a place. What no node touches has none, and its offset is another's: it is not to be written,
 * read or viewed. */
bool hri_executor_has(const hri_executor *executor, hri_id tensor);
/* Bytes into a tensor, behind what was launched; `from` is the caller's again at once. */
hr_status hri_executor_write(hri_executor *executor, hri_id tensor, uint64_t offset, const void *from, uint64_t bytes,
                             hr_error *error);
/* Bytes out of a tensor as what was launched leaves it; waits. */
hr_status hri_executor_read(hri_executor *executor, hri_id tensor, uint64_t offset, void *to, uint64_t bytes,
                            hr_error *error);
/* The host's address of a tensor, to spare a copy; NULL where the backend has none. Valid only while its storage is
 * alive. */
void *hri_executor_view(const hri_executor *executor, hri_id tensor);
/* Address of an arena for reports alone; 0: none. */
uint64_t hri_executor_address(const hri_executor *executor, hri_tier tier);
uint64_t hri_executor_reserved_bytes(const hri_executor *executor, hri_tier tier);

#endif
