/* Status codes, the error value that every fallible call fills, the version, and what all headers share.
 *
 * Ownership: an hr_error lives with the caller (usually on the stack), is plain data and needs no clean-up. A call that
 * returns HR_OK leaves it untouched; a call that fails fills it whole. Passing NULL is allowed everywhere.
 * The library never prints, exits or aborts on input, I/O or memory: what went wrong is only told here.
 *
 * Numbers in texts have '.' as the decimal point, read and written, whatever locale the program has set.
 *
 * Threads: the library keeps no state between calls that callers could share by accident. Calls on different objects
 * may overlap; calls on one object must not, unless its header says so. An hr_error belongs to one call at a time.
 *
 * Releasing: one block of memory that a call gave (a text, a list) goes to hr_free; an object to its hr_X_destroy, or
 * hr_X_close where it reads or writes files; what lies inside a struct of the caller's to hr_X_deinit. All take NULL.
 *
 * Structs grow, at any place, with the version. Those that a caller makes are made by their function (hr_job_init,
 * hr_run_options_init, ...) and filled by the names of members, so that such code stays right when it is compiled
 * again; a program is compiled with the headers of the library that it is linked with (hr_version_number() ==
 * HR_VERSION_NUMBER). */
#ifndef HEADROOM_STATUS_H
#define HEADROOM_STATUS_H

#include <stdint.h>

/* HR_API: what the library offers; everything else in it is hidden. HR_CHECKED: and its result must be looked at. */
#if defined(__GNUC__)
#define HR_API __attribute__((visibility("default")))
#define HR_CHECKED __attribute__((visibility("default"), warn_unused_result))
#else
#define HR_API
#define HR_CHECKED
#endif

#define HR_VERSION_MAJOR 0
#define HR_VERSION_MINOR 1
#define HR_VERSION_PATCH 0
#define HR_VERSION "0.1.0"
#define HR_VERSION_NUMBER (HR_VERSION_MAJOR * 10000 + HR_VERSION_MINOR * 100 + HR_VERSION_PATCH)

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
  int system_error;                     /* of a system call that failed: its errno, else 0 */
} hr_error;

/* Name of a status for messages and JSON, e.g. "budget". Never NULL. */
HR_API const char *hr_status_name(hr_status status);

/* Exit code of the command line for a status (see docs/cli.md). */
HR_API int hr_status_exit_code(hr_status status);

/* The version of the library itself, as HR_VERSION and HR_VERSION_NUMBER are those of the headers. */
HR_API const char *hr_version(void);
HR_API uint32_t hr_version_number(void);

/* Releases one block of memory that a call gave to the caller. NULL is fine. */
HR_API void hr_free(void *memory);

#ifdef __cplusplus
}
#endif
#endif
