/* --micro-batch auto: rows of a micro-step for a budget.
 *
 * More rows take less time per token, for weights are read less often, and more bytes. With --batch-tokens a step keeps its
 * rows, and each divisor is tried. Else the step grows with its micro-steps, so only the budget ends it: rows are doubled
 * until they do not fit, and the largest number that fits is found by halving what lies between. Products of odd sizes can
 * be slower, so powers of two, and those and a half, are tried below it. All are drafted; what a bound leaves open is
 * placed. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "job/job.h"
#include "search/search.h"

typedef struct rows {
  const hr_job *asked;
  hr_plan *lender;
  hr_job best;
  bool any, fits; /* there is a best; it fits */
  double seconds; /* of it, per token */
  uint64_t need;
} rows;

/* The job with so many rows at a time; false where there is none. */
static bool job_of(const rows *r, uint32_t count, bool splits, hr_job *job) {
  const hri_change change = {.micro_batch = count};
  *job = *r->asked;
  job->rows_choice = HR_ROWS_CHOSEN;
  if (count == job->micro_batch) return true;
  if (splits) return hri_change_apply(&change, job);
  job->micro_batch = count;
  if (!(job->given & HR_GIVEN_LOSS_CHUNK)) job->loss_chunk = HR_LOSS_CHUNK_AUTO;
  return hr_job_finish(job, NULL) == HR_OK;
}

/* Fits before not; then the faster, or, where neither fits, the smaller. */
static void consider(rows *r, const hr_job *job, bool fits, double seconds, uint64_t need) {
  if (r->any && (fits < r->fits || (fits == r->fits && (fits ? seconds >= r->seconds : need >= r->need)))) return;
  r->best = *job;
  r->any = true;
  r->fits = fits;
  r->seconds = seconds;
  r->need = need;
}

/* *fits: false also where there is no such job. */
static hr_status try_rows(rows *r, uint32_t count, bool splits, bool *fits, hr_error *error) {
  hr_plan *plan;
  hr_job job;
  hr_status status;
  *fits = false;
  if (!job_of(r, count, splits, &job)) return HR_OK;
  if (job.recompute.kind == HR_RECOMPUTE_AUTO) {
    hri_choice choice;
    status = hri_choose_levels(&job, r->lender, NULL, &choice, NULL, error);
    if (status != HR_OK) return status == HR_ERROR_MEMORY || status == HR_ERROR_INTERNAL ? status : HR_OK;
    job.recompute = choice.recompute;
    *fits = choice.fits;
    consider(r, &job, *fits, choice.step_seconds / (double)hri_job_tokens(&job), choice.need_bytes);
    return HR_OK;
  }
  status = hri_plan_draft(&job, r->lender, &plan, error);
  if (status != HR_OK) return status == HR_ERROR_MEMORY || status == HR_ERROR_INTERNAL ? status : HR_OK;
  if (plan->info.fits || !r->fits) status = hri_plan_place(plan, error);
  *fits = status == HR_OK && plan->info.fits;
  if (status == HR_OK && plan->placed)
    consider(r, &job, *fits, plan->info.step_seconds / (double)hri_job_tokens(&job), hri_plan_need(plan));
  hr_plan_destroy(plan);
  return status;
}

static hr_status try_divisors(rows *r, hr_error *error) {
  const uint64_t all = (uint64_t)r->asked->micro_batch * r->asked->accumulate;
  bool fits, any = false;
  for (uint64_t k = 1; k <= all && k * r->asked->sequence_length <= INT32_MAX; k++) {
    if (all % k) continue;
    HRI_TRY(try_rows(r, (uint32_t)k, true, &fits, error));
    if (any && !fits && k < all) k = all - 1; /* more rows need more, but for the step without micro-steps */
    any = any || fits;
  }
  return HR_OK;
}

static hr_status try_growing(rows *r, hr_error *error) {
  const uint64_t most = INT32_MAX / r->asked->sequence_length;
  uint64_t low = 0, high = 1; /* low fits, high does not */
  bool fits = true;
  for (; fits && high <= most; high *= 2) {
    HRI_TRY(try_rows(r, (uint32_t)high, false, &fits, error));
    if (!fits) break;
    low = high;
    if (high > 1 && high + high / 2 <= most) HRI_TRY(try_rows(r, (uint32_t)(high + high / 2), false, &fits, error));
    fits = true;
  }
  if (high > most) high = most + 1;
  while (low && high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    HRI_TRY(try_rows(r, (uint32_t)middle, false, &fits, error));
    if (fits) low = middle;
    else high = middle;
  }
  return HR_OK;
}

hr_status hr_plan_rows(hr_job *job, hr_plan **plan, hr_error *error) {
  rows *r;
  hr_job first = *job;
  hr_status status;
  if (job->rows_choice != HR_ROWS_OPEN)
    return hri_fail(error, HR_ERROR_USAGE, "the rows of a micro-step are not to be chosen: --micro-batch is %u",
                    job->micro_batch);
  r = hri_alloc_zero(1, sizeof *r);
  if (!r) return hri_fail_memory(error, sizeof *r, "the search");
  r->asked = job;
  first.rows_choice = HR_ROWS_CHOSEN;
  if (first.recompute.kind == HR_RECOMPUTE_AUTO) first.recompute.kind = HR_RECOMPUTE_NONE;
  hri_mem_keep(true);
  status = hri_plan_draft(&first, NULL, &r->lender, error);
  if (status == HR_OK) status = job->given & HR_GIVEN_BATCH_TOKENS ? try_divisors(r, error) : try_growing(r, error);
  hr_plan_destroy(r->lender);
  hri_mem_keep(false);
  if (status == HR_OK && !r->any)
    status = hri_fail(error, HR_ERROR_USAGE, "--micro-batch auto found no number of rows that can be planned");
  if (status == HR_OK && plan) status = hr_plan_create(&r->best, plan, error);
  if (status == HR_OK) *job = r->best;
  hri_free(r);
  return status;
}
