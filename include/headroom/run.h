/* Run directories (docs/run-directory.md): what a run was asked for, whether its files are whole, and reading beside a
 * run.
 *
 * Threads: what was read does not change; calls on one hr_hold must not overlap. Runs go on in other threads and
 * processes meanwhile. */
#ifndef HEADROOM_RUN_H
#define HEADROOM_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What RUN/run.json says. */
typedef struct hr_run_record hr_run_record;

/* Reads RUN/run.json. `from`: the checkpoint that a run is to go on from ("step-000100"), NULL: the newest; it matters
 * only where the model is gone.
 * USAGE when `directory` is no run directory; INPUT when run.json is damaged or of a newer version. */
HR_CHECKED hr_status hr_run_open(const char *directory, const char *from, hr_run_record **run, hr_error *error);
HR_API void hr_run_close(hr_run_record *run); /* NULL is fine */

/* The index-th value of an option of the run as text, as the command line takes it: "lr", "data" (a list), "model".
 * NULL: the run
 * does not say. Paths are absolute where something still lies there, else as they were given; for a model that is gone
 * stands the checkpoint that the run goes on from. What a person did not give and the machine decides (threads, budget)
 * is not said. Borrowed. */
HR_API const char *hr_run_option(const hr_run_record *run, const char *name, uint32_t index);
HR_API const char *hr_run_state(
    const hr_run_record *run); /* running, finished, interrupted, diverged, failed; "" in runs of schema_version 1 */

/* ---- verifying ---- */

typedef enum hr_run_file_state {
  HR_RUN_FILE_WHOLE = 0, /* its bytes have the digest they were written with */
  HR_RUN_FILE_DAMAGED,   /* they do not; or it is missing, or of another length */
  HR_RUN_FILE_UNVERIFIED, /* nothing says what its bytes were: runs of schema_version 1, files that change while a run goes on */
  HR_RUN_FILE_UNKNOWN /* not the run's; left alone */
} hr_run_file_state;

typedef struct hr_run_verification {
  uint64_t file_count, bytes; /* verified */
  uint32_t whole, damaged, unverified, unknown;
  char newest_whole[64]; /* name of the newest checkpoint without damage, "" when there is none */
} hr_run_verification;

/* Reads every file of a run and compares it with the manifests of its checkpoints and with run.json. `on_file` (may be
 * NULL) gets each one, with what is wrong in words. Needs no lock. OK also when files are damaged: see the result. */
HR_CHECKED hr_status hr_run_verify(const char *directory,
                                   void (*on_file)(void *context, const char *path, hr_run_file_state state,
                                                   const char *text),
                                   void *context, hr_run_verification *result, hr_error *error);

/* ---- reading beside a run ---- */

/* While it is held, a run does not remove the checkpoint `directory` for --keep. Links (last, best) are followed first,
 * and may lead elsewhere a moment later: read what `path` (at least 4096 bytes) says. NULL when the directory is no
 * checkpoint, or cannot be held; reading works all the same, and `path` is `directory`. */
typedef struct hr_hold hr_hold;
HR_API hr_hold *hr_hold_take(const char *directory, char *path);
HR_API void hr_hold_release(hr_hold *hold); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
