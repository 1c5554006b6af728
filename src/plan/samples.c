/* A plan over time: what is alive, and when each node runs, read off the placement and the predicted timing once for
 * all nodes. */
#include <string.h>

#include "plan/plan.h"

typedef struct sampler {
  const hr_plan *plan;
  hri_live_series live; /* by role */
  hr_sample *samples;   /* of the program at hand */
} sampler;

static void sample_node(const sampler *s, uint8_t kind, uint32_t at, uint32_t tick) {
  const hri_job *job = &s->plan->job;
  const hri_node *node = &job->nodes.items[job->programs[kind].order.items[at]];
  hr_sample *out = &s->samples[at];
  *out = (hr_sample){.program = hri_program_name((hri_program_kind)kind),
                     .op = hri_op_name(node->op),
                     .phase = node->phase,
                     .layer = node->layer,
                     .lane = node->lane};
  memcpy(out->by_role, s->live.by_role + (size_t)tick * HRI_ROLE_COUNT, sizeof out->by_role);
  out->live_bytes = s->live.total[tick];
}

static hr_status sample_program(const sampler *s, uint8_t kind, hr_error *error) {
  const hr_plan *plan = s->plan;
  const uint32_t count = (uint32_t)plan->job.programs[kind].order.count;
  hri_storage_life *ticks = hri_alloc(((size_t)count + 1) * sizeof *ticks);
  hri_timing timing;
  uint32_t end;
  hr_status status = ticks ? hri_node_ticks(&plan->job, kind, plan->placement.spans[kind].begin, ticks, &end, error)
                           : hri_fail_memory(error, count * sizeof *ticks, "the timeline");
  if (status == HR_OK) status = hri_program_timing(&plan->job, kind, &plan->spec.device, 1, 0, &timing, error);
  for (uint32_t at = 0; at < count && status == HR_OK; at++) {
    sample_node(s, kind, at, ticks[at].begin);
    s->samples[at].begin_seconds = timing.begin[at];
    s->samples[at].end_seconds = timing.end[at];
  }
  if (status == HR_OK) {
    for (uint32_t k = 0; k < timing.critical_count; k++) s->samples[timing.critical[k]].critical = true;
    hri_timing_deinit(&timing);
  }
  hri_free(ticks);
  return status;
}

hr_status hr_plan_samples(const hr_plan *plan, uint32_t tier, hr_sample **samples, uint32_t *count, hr_error *error) {
  sampler s = {.plan = plan};
  uint32_t nodes = 0;
  hr_status status;
  if (tier >= HR_TIER_COUNT) return hri_fail(error, HR_ERROR_USAGE, "a plan has no tier %u", tier);
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) nodes += (uint32_t)plan->job.programs[kind].order.count;
  *samples = s.samples = hri_alloc_zero((uint64_t)nodes + 1, sizeof *s.samples);
  if (!*samples) return hri_fail_memory(error, nodes * sizeof *s.samples, "the timeline");
  HRI_TRY_OUT(hri_live_series_make(&plan->job, plan->placement.lives, plan->placement.spans, (uint8_t)tier, 0, true,
                                   &s.live, error));
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    if (!plan->job.programs[kind].present) continue;
    HRI_TRY_OUT(sample_program(&s, kind, error));
    s.samples += plan->job.programs[kind].order.count;
  }
  *count = nodes;
out:
  hri_live_series_deinit(&s.live);
  if (status != HR_OK) {
    hri_free(*samples);
    *samples = NULL;
  }
  return status;
}
