/* The plan object: a compiled job, its placement, and what is read off it.
 *
 * A plan is made in steps. A draft is compiled and has lives, the bound of its bytes and its time, all exactly those of
 * the whole plan, but is neither checked nor placed: less than 1 ms for a model of 7B. Placing it takes some ten times
 * as long, and gives the bytes that a run would reserve. Checked and described, as hr_plan_create makes it, it can be
 * shown and run. The search compares drafts and places those whose bytes it will tell. */
#ifndef HRI_PLAN_PLAN_H
#define HRI_PLAN_PLAN_H

#include <assert.h>

#include <headroom/plan.h>

#include "backend/backend.h"
#include "plan/breakdown.h"
#include "plan/compile.h"
#include "plan/cost.h"

struct hr_plan {
  hr_job spec;
  hr_plan_info info;
  hri_backend *backend; /* of the job's device */
  bool borrows;         /* the backend is another plan's */
  bool placed;
  hri_job job;
  hri_placement placement; /* of a draft: lives, spans and bounds */
  hri_solved solved;       /* programs of the drafts beside it and of its own, where it is a draft */
  hri_solved *known;       /* what placing looks up: its own or its lender's; NULL: nothing */
  hri_breakdown breakdown[HR_TIER_COUNT];
};

/* hr_plan_create with test options (check after each pass, passes left out, the simulated host tier). */
hr_status hri_plan_create(const hr_job *spec, const hri_compile_options *options, hr_plan **plan, hr_error *error);

/* Of a draft: info has its time, and what it needs at least, in place of what it needs; where info.fits is false, it
 * stays so. `beside`: a plan for the same device and threads that lives longer and lends its backend, and the
 * placements that were made for drafts beside it; NULL: one of its own. */
hr_status hri_plan_draft(const hr_job *spec, const hr_plan *beside, hr_plan **draft, hr_error *error);
/* Makes the bounds of a draft the bytes that it needs. */
hr_status hri_plan_place(hr_plan *draft, hr_error *error);

/* Of a draft with nothing packed: the least live bytes of the device tier that any plan of the same work has, and
 * hr_plan_layers_get likewise (with the least seconds), whatever is free of packing and of the pieces of the loss. `free`
 * NULL: nothing is. */
hr_status hri_plan_least_live(const hr_plan *plan, const hri_freedom *free, uint64_t *bytes, hr_error *error);
hr_status hri_plan_layers_least(const hr_plan *plan, const hri_freedom *free, hr_plan_layers *layers, hr_error *error);

/* Numbers per token of a row of data on its way into a program's inputs: id, target, position, document start. A run
 * keeps one row of the longest shape (train/session.h), which is among the plan's fixed bytes. */
enum { HRI_ROW_NUMBERS = 4 };

/* What a budget must hold. */
static inline uint64_t hri_plan_need(const hr_plan *plan) {
  assert(plan);
  const hr_tier_plan *t = &plan->info.tiers[HR_TIER_DEVICE];
  return t->reserved_bytes + t->fixed_bytes;
}

static inline uint64_t hri_plan_host_need(const hr_plan *plan) {
  const hr_tier_plan *t = &plan->info.tiers[HR_TIER_HOST];
  return t->reserved_bytes + t->fixed_bytes;
}

/* hri_plan_create for a job that `build` makes (as hri_build does for models). */
typedef hr_status (*hri_build_fn)(void *context, hri_job *job, const hr_job *spec, hri_forward *forwards,
                                  hr_error *error);
hr_status hri_plan_create_with(const hr_job *spec, const hri_compile_options *options, hri_build_fn build,
                               void *context, hr_plan **plan, hr_error *error);

/* How often an optimizer step of a training plan runs a program. */
static inline uint32_t hri_runs_per_step(const hr_plan *plan, hri_program_kind program) {
  return hri_job_runs(&plan->spec, (uint8_t)program);
}

#endif
