/* evaluate: a job without an optimizer. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "device/host.h"
#include "job/job.h"
#include "train/doubt.h"
#include "train/session.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* No number that a script could go on with. */
static hr_status no_loss(const hr_job *job, const hr_run_result *result, hr_error *error) {
  if (result->eval_tokens == 0) {
    hri_fail(error, HR_ERROR_INPUT, "no label counts in what was evaluated");
    return hri_hint(error, HR_ERROR_INPUT, "evaluate more of it: without --eval-batches all rows are");
  }
  hri_fail(error, HR_ERROR_DIVERGED, "the loss of %s is not finite: %g over %llu tokens", job->model.name,
           result->eval_loss, (unsigned long long)result->eval_tokens);
  return hri_hint(error, HR_ERROR_DIVERGED,
                  job->precision == HR_PRECISION_FP16
                      ? "fp16 ends at 65504: try --precision bf16 or fp32"
                      : "the weights or an adapter make numbers beyond what fp32 holds: use an earlier checkpoint");
}

hr_status hr_evaluate(const hr_job *job, const hr_run_options *options, hr_run_result *result, hr_error *error) {
  hri_session session;
  hri_dataset *data = NULL;
  hr_status status = HR_OK;
  double begin;
  memset(&session, 0, sizeof session);
  memset(result, 0, sizeof *result);
  session.on_event = options->on_event;
  session.context = options->context;
  if (options->data_path_count == 0) {
    status = hri_fail(error, HR_ERROR_USAGE, "evaluate needs data");
    return hri_hint(error, status, "add --data FILE");
  }
  HRI_TRY_OUT(hri_job_finished(job, error));
  HRI_TRY_OUT(hri_session_need_weights(job, error));
  HRI_TRY_OUT(hr_data_find(options->data_paths, options->data_path_count, error));
  HRI_TRY_OUT(hri_session_plan(&session, job, NULL, error));
  HRI_TRY_OUT(hri_session_prepare(&session, error));
  HRI_TRY_OUT(hri_session_data(&session, options->data_paths, options->data_path_count, &options->data, NULL, NULL,
                               &data, error));
  hri_doubt_words(&session, data);
  HRI_TRY_OUT(hri_session_load(&session, NULL, NULL, error));
  begin = now();
  HRI_TRY_OUT(
      hri_session_evaluate(&session, data, options->eval_batches, &result->eval_loss, &result->eval_tokens, error));
  result->seconds = now() - begin;
  result->perplexity = exp(result->eval_loss);
  result->tokens_per_second = (double)result->eval_tokens / fmax(result->seconds, 1e-9);
  result->process_peak_bytes = hri_host_peak_resident_bytes();
  HRI_TRY_OUT(hri_session_compare(&session, result->reserved_bytes, result->planned_bytes, error));
  if (!isfinite(result->eval_loss)) status = no_loss(job, result, error);
out:
  hri_dataset_destroy(data);
  hri_session_close(&session);
  return status;
}
