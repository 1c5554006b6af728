/* A list schedule over lanes and waits, and its critical path (timing.h). */
#include "plan/timing.h"

#include <assert.h>
#include <string.h>

#include "program/ops.h"

typedef struct scheduler {
  const hri_job *job;
  const hri_program *program;
  hri_timing *timing;
  uint32_t *reason;      /* per position: the position whose end it began at, UINT32_MAX at the program's begin */
  uint32_t *position_of; /* per node, UINT32_MAX: not issued yet; NULL for a program without waits */
  uint32_t lane_last[HRI_LANE_COUNT];
} scheduler;

static bool any_wait(const hri_job *job, const hri_program *p) {
  for (size_t at = 0; at < p->order.count; at++)
    if (job->nodes.items[p->order.items[at]].wait_count) return true;
  return false;
}

static hr_status place_node(scheduler *s, uint32_t at, hr_error *error) {
  const hri_id id = s->program->order.items[at];
  const hri_node *node = &s->job->nodes.items[id];
  hri_timing *t = s->timing;
  uint32_t reason = s->lane_last[node->lane];
  const double seconds = t->seconds[at];
  double begin = reason == UINT32_MAX ? t->from : t->end[reason];
  for (uint32_t w = 0; w < node->wait_count; w++) {
    hri_id awaited = s->job->waits.items[node->wait_begin + w].node;
    uint32_t on = s->position_of[awaited];
    if (on == UINT32_MAX)
      return hri_fail(error, HR_ERROR_INTERNAL, "rule 3: node %u (%s) waits for node %u, which is not issued before it",
                      id, hri_op_name(node->op), awaited);
    if (t->end[on] <= begin) continue;
    begin = t->end[on];
    reason = on;
  }
  assert(seconds >= 0);
  t->begin[at] = begin;
  t->end[at] = begin + seconds;
  t->lane_seconds[node->lane] += seconds;
  s->reason[at] = reason;
  s->lane_last[node->lane] = at;
  if (s->position_of) s->position_of[id] = at;
  return HR_OK;
}

/* From the node that ends last back to one that began with the program. */
static void find_critical(const scheduler *s, hri_timing *t) {
  uint32_t last = UINT32_MAX, count = 0;
  for (uint32_t at = 0; at < t->count; at++)
    if (last == UINT32_MAX || t->end[at] > t->end[last]) last = at;
  for (uint32_t at = last; at != UINT32_MAX; at = s->reason[at]) {
    assert(s->reason[at] == UINT32_MAX ? t->begin[at] == t->from : t->begin[at] == t->end[s->reason[at]]);
    t->critical[count++] = at;
  }
  for (uint32_t k = 0; k < count / 2; k++) {
    uint32_t swap = t->critical[k];
    t->critical[k] = t->critical[count - 1 - k];
    t->critical[count - 1 - k] = swap;
  }
  t->critical_count = count;
  t->until = last == UINT32_MAX ? t->from : t->end[last];
}

hr_status hri_timing_make(const hri_job *job, uint8_t program, const double *seconds, double from, hri_timing *t,
                          hr_error *error) {
  scheduler s = {.job = job, .program = &job->programs[program], .timing = t};
  size_t count = s.program->order.count;
  bool waits = any_wait(job, s.program);
  hr_status status = HR_OK;
  *t = (hri_timing){.count = (uint32_t)count, .from = from, .until = from};
  memset(s.lane_last, 0xFF, sizeof s.lane_last);
  t->seconds = hri_alloc((count + 1) * sizeof *t->seconds);
  t->begin = hri_alloc((count + 1) * sizeof *t->begin);
  t->end = hri_alloc((count + 1) * sizeof *t->end);
  t->critical = hri_alloc((count + 1) * sizeof *t->critical);
  s.reason = hri_alloc((count + 1) * sizeof *s.reason);
  if (waits) s.position_of = hri_alloc(job->nodes.count * sizeof *s.position_of);
  if (!t->seconds || !t->begin || !t->end || !t->critical || !s.reason || (waits && !s.position_of)) {
    status = hri_fail_memory(error, count * 32, "the timing of a program");
    goto out;
  }
  if (count) memcpy(t->seconds, seconds, count * sizeof *seconds);
  if (waits) memset(s.position_of, 0xFF, job->nodes.count * sizeof *s.position_of);
  for (uint32_t at = 0; at < count; at++) HRI_TRY_OUT(place_node(&s, at, error));
  find_critical(&s, t);
out:
  hri_free(s.reason);
  hri_free(s.position_of);
  if (status != HR_OK) hri_timing_deinit(t);
  return status;
}

void hri_timing_deinit(hri_timing *timing) {
  hri_free(timing->seconds);
  hri_free(timing->begin);
  hri_free(timing->end);
  hri_free(timing->critical);
  *timing = (hri_timing){0};
}
