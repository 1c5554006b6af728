/* From a job in words to programs: build, then every pass in its fixed order. */
#ifndef HRI_PLAN_COMPILE_H
#define HRI_PLAN_COMPILE_H

#include <headroom/job.h>

#include "model/build.h"
#include "pass/pass.h"

/* Things that the command line never needs: tests turn them on, and drafts leave the check to whoever finishes them. */
typedef struct hri_compile_options {
  bool no_check;            /* no hri_job_check at the end: the caller makes it before anything rests on the job */
  bool check_each;          /* hri_job_check after every pass */
  bool no_inplace, no_fuse; /* leave a pass out (same-bits tests) */
  uint64_t offload_bytes;   /* simulated host tier: saved activations of at least this size; 0 = off */
  uint32_t offload_distance;
} hri_compile_options;

/* `job` is initialised here and, on failure, left empty. */
hr_status hri_compile(const hr_job *spec, const hri_backend *backend, const hri_compile_options *options, hri_job *job,
                      hr_error *error);

/* The passes alone, for a job that was built (by hri_build or op by op) with its forward parts. */
hr_status hri_compile_built(const hr_job *spec, const hri_backend *backend, const hri_compile_options *options,
                            const hri_forward *forwards, hri_job *job, hr_error *error);

#endif
