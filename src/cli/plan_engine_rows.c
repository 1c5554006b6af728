/* --micro-batch auto by --engine pytorch: the most rows of a micro-step that surely fit. */
#include "cli/plan_engine.h"

enum { MOST_ROWS = 4096 };

/* With `splits` the step keeps its rows: `rows` divides them. */
static hr_status take(cli_config *config, uint32_t rows, bool splits, hr_error *error) {
  hr_job *job = &config->job;
  if (splits) job->accumulate = (uint32_t)((uint64_t)job->accumulate * job->micro_batch / rows);
  job->micro_batch = rows;
  if (!(job->given & HR_GIVEN_LOSS_CHUNK)) job->loss_chunk = HR_LOSS_CHUNK_AUTO;
  return hr_job_finish(job, error);
}

static hr_status try_rows(cli_config *config, uint32_t rows, bool splits, bool *fits, hr_error *error) {
  hr_pytorch *pytorch = NULL;
  hr_status status;
  *fits = false;
  status = take(config, rows, splits, error);
  if (status == HR_ERROR_USAGE && rows > 1) return HR_OK; /* more tokens than a micro-step may have */
  HRI_TRY(status);
  status = plan_engine_make(config, &config->job, &pytorch, error);
  if (status == HR_ERROR_UNSUPPORTED) return HR_OK; /* more than is counted; with one row it is told what is wrong */
  HRI_TRY(status);
  /* nor is the allocator to give back and ask anew in each step */
  *fits = hr_pytorch_get(pytorch)->verdict == HR_PYTORCH_FITS && hr_pytorch_get(pytorch)->retries == 0;
  hr_pytorch_destroy(pytorch);
  return HR_OK;
}

/* The largest divisor of a step's rows. */
static hr_status split(cli_config *config, uint32_t *best, hr_error *error) {
  uint64_t all = (uint64_t)config->job.micro_batch * config->job.accumulate;
  uint32_t first = all < MOST_ROWS ? (uint32_t)all : MOST_ROWS;
  bool fits = false;
  for (uint32_t rows = first; rows > 0 && !fits; rows--) {
    if (all % rows) continue;
    HRI_TRY(try_rows(config, rows, true, &fits, error));
    *best = rows;
  }
  return HR_OK;
}

static hr_status grow(cli_config *config, uint32_t *best, hr_error *error) {
  uint32_t fitting = 0, above = 1;
  bool fits = true;
  while (fits && above <= MOST_ROWS) {
    HRI_TRY(try_rows(config, above, false, &fits, error));
    if (fits) fitting = above, above *= 2;
  }
  while (above - fitting > 1 && fitting < MOST_ROWS) {
    uint32_t middle = fitting + (above - fitting) / 2;
    HRI_TRY(try_rows(config, middle, false, &fits, error));
    if (fits) fitting = middle;
    else above = middle;
  }
  *best = fitting ? fitting : 1;
  return HR_OK;
}

hr_status plan_engine_rows(cli_config *config, hr_error *error) {
  bool splits = (config->job.given & HR_GIVEN_BATCH_TOKENS) != 0;
  uint32_t rows = 1;
  config->job.rows_choice = HR_ROWS_CHOSEN;
  if (config->job.automatic) return HR_OK; /* among its choices */
  if (splits) HRI_TRY(split(config, &rows, error));
  else HRI_TRY(grow(config, &rows, error));
  return take(config, rows, splits, error);
}
