/* --micro-batch auto: rows of a micro-step for a budget.
 *
 * More rows take less time per token, for weights are read less often, and more bytes. With --batch-tokens a step keeps its
 * rows, and each divisor is tried. Else the step grows with its micro-steps, so only the budget ends it: rows are doubled
 * until they do not fit, and the largest number that fits is found by halving what lies between. Products of odd sizes can
 * be slower, so powers of two, and those and a half, are tried below it. All are drafted; what a bound leaves open is
 * placed.
 *
 * An evaluation computes the same whatever its rows are, and soon gains next to nothing by more of them: of those that
 * take at most AS_FAST longer the fewest are taken, and doubling ends where it gained no more than that ENOUGH times: by
 * measured rates one step up may gain nothing and the next one much. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "job/job.h"
#include "search/search.h"

static const double AS_FAST = 0.01;
enum { ENOUGH = 3 };

/* Rows that fit, and their time per token. */
typedef struct tried {
  uint32_t count;
  double seconds;
} tried;

typedef struct rows {
  const hr_job *asked;
  hr_plan *lender;
  hr_job best;
  bool any, fits; /* there is a best; it fits */
  double seconds; /* of it, per token */
  uint64_t need;
  uint64_t allowance; /* of all levels that are chosen */
  HRI_ARRAY(tried) fitting;
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

/* Keeps what fits, for settle. */
static hr_status remember(rows *r, uint32_t count, double seconds, hr_error *error) {
  const tried one = {count, seconds};
  return hri_array_push(&r->fitting, one) ? HR_OK : hri_fail_memory(error, sizeof one, "the search");
}

/* *fits: false also where there is no such job. */
static hr_status try_rows(rows *r, uint32_t count, bool splits, bool *fits, hr_error *error) {
  hr_plan *plan;
  hr_job job;
  hr_status status;
  *fits = false;
  if (!job_of(r, count, splits, &job)) return HR_OK;
  if (job.recompute.kind == HR_RECOMPUTE_AUTO) {
    const hri_rival nobody = hri_nobody(&r->allowance);
    hri_choice choice;
    status = hri_choose_levels(&job, r->lender, &nobody, &choice, NULL, error);
    if (status != HR_OK) return status == HR_ERROR_MEMORY || status == HR_ERROR_INTERNAL ? status : HR_OK;
    job.recompute = choice.recompute;
    job.levels_chosen = true;
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
  if (*fits) status = remember(r, count, plan->info.step_seconds / (double)hri_job_tokens(&job), error);
  hr_plan_destroy(plan);
  return status;
}

static hr_status try_divisors(rows *r, hr_error *error) {
  const uint64_t all = (uint64_t)r->asked->micro_batch * r->asked->accumulate, cut = hri_job_cut_rows(r->asked);
  bool fits, any = false;
  for (uint64_t k = 1; k <= all && k * r->asked->sequence_length <= INT32_MAX; k++) {
    if (all % k) continue;
    HRI_TRY(try_rows(r, (uint32_t)k, true, &fits, error));
    /* more rows need more, but for those whose loss is cut and for the step without micro-steps */
    if (any && !fits && k < all) k = k + 1 < cut && cut < all ? cut - 1 : all - 1;
    any = any || fits;
  }
  return HR_OK;
}

static bool evaluates(const rows *r) { return r->asked->purpose == HR_PURPOSE_EVALUATE; }

/* Doubles from `first` on. *refused: the fewest rows that were found not to fit; 0: there were none. */
static hr_status grow_from(rows *r, uint64_t first, uint64_t *refused, hr_error *error) {
  const uint64_t most = INT32_MAX / r->asked->sequence_length;
  uint64_t low = 0, high = first; /* low fits, high does not */
  uint32_t idle = 0;              /* doublings in a row that gained nothing that counts */
  bool fits = true;
  *refused = 0;
  for (; fits && high <= most; high *= 2) {
    const double before = r->seconds;
    HRI_TRY(try_rows(r, (uint32_t)high, false, &fits, error));
    if (!fits) break;
    low = high;
    if (high > 1 && high + high / 2 <= most) HRI_TRY(try_rows(r, (uint32_t)(high + high / 2), false, &fits, error));
    fits = true;
    idle = high > 1 && r->seconds > before * (1 - AS_FAST) ? idle + 1 : 0;
    if (evaluates(r) && idle == ENOUGH) return HR_OK;
  }
  if (high > most) high = most + 1;
  while (low && high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    HRI_TRY(try_rows(r, (uint32_t)middle, false, &fits, error));
    if (fits) low = middle;
    else high = middle;
  }
  *refused = high;
  return HR_OK;
}

static hr_status try_growing(rows *r, hr_error *error) {
  const uint64_t cut = hri_job_cut_rows(r->asked);
  uint64_t refused;
  HRI_TRY(grow_from(r, 1, &refused, error));
  return refused && refused < cut ? grow_from(r, cut, &refused, error) : HR_OK;
}

/* The fewest rows of an evaluation that are as fast as the fastest. */
static hr_status settle(rows *r, hr_error *error) {
  const double limit = r->seconds * (1 + AS_FAST);
  uint32_t fewest = r->best.micro_batch;
  bool fits;
  if (!evaluates(r) || !r->fits) return HR_OK;
  for (size_t k = 0; k < r->fitting.count; k++)
    if (r->fitting.items[k].seconds <= limit && r->fitting.items[k].count < fewest) fewest = r->fitting.items[k].count;
  if (fewest == r->best.micro_batch) return HR_OK;
  r->any = false;
  return try_rows(r, fewest, false, &fits, error);
}

hr_status hr_plan_rows(hr_job *job, hr_plan **plan, hr_error *error) {
  rows *r;
  hr_job first = *job;
  hr_status status;
  HRI_TRY(hri_job_finished(job, error));
  if (job->rows_choice != HR_ROWS_OPEN)
    return hri_fail(error, HR_ERROR_USAGE, "the rows of a micro-step are not to be chosen: --micro-batch is %u",
                    job->micro_batch);
  r = hri_alloc_zero(1, sizeof *r);
  if (!r) return hri_fail_memory(error, sizeof *r, "the search");
  r->asked = job;
  r->allowance = HRI_ALLOWANCE;
  first.rows_choice = HR_ROWS_CHOSEN;
  if (first.recompute.kind == HR_RECOMPUTE_AUTO) first.recompute.kind = HR_RECOMPUTE_NONE;
  hri_mem_keep(true);
  status = hri_plan_draft(&first, NULL, &r->lender, error);
  if (status == HR_OK)
    status = job->given & HR_GIVEN_BATCH_TOKENS && !evaluates(r) ? try_divisors(r, error) : try_growing(r, error);
  if (status == HR_OK) status = settle(r, error);
  hr_plan_destroy(r->lender);
  hri_mem_keep(false);
  if (status == HR_OK && !r->any)
    status = hri_fail(error, HR_ERROR_USAGE, "--micro-batch auto found no number of rows that can be planned");
  if (status == HR_OK && plan) status = hr_plan_create(&r->best, plan, error);
  if (status == HR_OK) *job = r->best;
  hri_array_free(&r->fitting);
  hri_free(r);
  return status;
}
