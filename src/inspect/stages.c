/* The stage after every event: that of the last allocation whose stack tells one.
 *
 * With stacks="python" the autograd engine's own thread has no stack at all (on a GPU backward runs there), so where most
 * allocations of a trace have stacks and none of them shows the engine, one without is taken for backward. */
#include "inspect/inside.h"

static bool silent_is_backward(const hri_inside *in) {
  uint64_t allocs = 0, silent = 0, forward = 0, backward = 0;
  for (uint64_t k = 0; k < in->lives->event_count; k++) {
    const hr_trace_event *e = &in->lives->events[k];
    if (e->action != HR_TRACE_ALLOC) continue;
    allocs++;
    silent += e->stack == 0;
    forward += in->stacks[e->stack].stage == HR_STAGE_FORWARD;
    backward += in->stacks[e->stack].stage == HR_STAGE_BACKWARD;
  }
  return silent > 0 && forward > 0 && backward == 0 && silent < allocs - allocs / 4;
}

hr_status hri_stages_find(hri_inside *in, hr_error *error) {
  uint64_t count = in->lives->event_count;
  bool silent;
  uint8_t stage = HR_STAGE_UNKNOWN;
  in->stages = hri_alloc((size_t)count + 1);
  if (!in->stages) return hri_fail_memory(error, count + 1, "the stages of a trace");
  silent = silent_is_backward(in);
  if (silent) in->stacks[0].stage = HR_STAGE_BACKWARD;
  for (uint64_t k = 0; k < count; k++) {
    const hr_trace_event *e = &in->lives->events[k];
    uint8_t own = in->stacks[e->stack].stage;
    if ((e->action == HR_TRACE_ALLOC || e->action == HR_TRACE_OOM) && own) stage = own, in->has_stacks = true;
    in->stages[k] = stage;
  }
  return HR_OK;
}
