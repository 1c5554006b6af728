/* Status codes and the error value that every fallible call fills.
 *
 * Ownership: an hr_error lives with the caller (usually on the stack), is plain data and needs no clean-up. A call that
 * returns HR_OK leaves it untouched; a call that fails fills it whole. Passing NULL is allowed everywhere.
 * The library never prints, exits or aborts on input, I/O or memory: what went wrong is only told here. */
#ifndef HEADROOM_STATUS_H
#define HEADROOM_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hr_status {
  HR_OK = 0,
  HR_ERROR_MEMORY,      /* the host refused memory, or a run-time limit was met (exit 4) */
  HR_ERROR_IO,          /* reading or writing failed: permission, full disk, ... (exit 1) */
  HR_ERROR_USAGE,       /* an option or argument is wrong or inconsistent (exit 2) */
  HR_ERROR_BUDGET,      /* the job does not fit its budget (exit 3) */
  HR_ERROR_INPUT,       /* a file is malformed; file, field and reason are named (exit 5) */
  HR_ERROR_MISMATCH,    /* plan and run disagree: a bug of ours, always reported (exit 6) */
  HR_ERROR_INTERRUPTED, /* stopped on request after saving (exit 130) */
  HR_ERROR_UNSUPPORTED, /* a valid request that this version or backend declares missing (exit 2) */
  HR_ERROR_INTERNAL,    /* an invariant of ours does not hold (exit 1) */
  HR_ERROR_DIVERGED     /* a loss, gradient, weight or state of the run is not finite (exit 7) */
} hr_status;

enum { HR_ERROR_MESSAGE_BYTES = 768, HR_ERROR_HINT_BYTES = 384 };

typedef struct hr_error {
  hr_status code;
  char message[HR_ERROR_MESSAGE_BYTES]; /* what is wrong: names file, field, value */
  char hint[HR_ERROR_HINT_BYTES];       /* what to do about it; may be empty */
  uint64_t requested_bytes;             /* for MEMORY and BUDGET: what was asked for, else 0 */
  uint64_t available_bytes;             /* for MEMORY and BUDGET: what there was, else 0 */
} hr_error;

/* Name of a status for messages and JSON, e.g. "budget". Never NULL. */
const char *hr_status_name(hr_status status);

/* Exit code of the command line for a status (see docs/cli.md). */
int hr_status_exit_code(hr_status status);

/* Version of the library, "major.minor.patch". */
const char *hr_version(void);

/* Releases strings that the library returned as owned by the caller. NULL is fine. */
void hr_free(void *memory);

#ifdef __cplusplus
}
#endif
#endif
