/* The stage after every event: that of the last allocation whose stack tells one.
 *
 * On a GPU backward runs in a thread of the autograd engine, and with stacks="python" that thread has no frames (but
 * for recomputation, which is Python). So where most allocations of a trace have stacks and none shows the engine, one
 * without a stack is taken for backward.
 *
 * A forward pass without gradients looks like any other. What tells it is that backward never frees anything of what it
 * made: that is asked of each place in the program that calls a model (its "site"). */
#include "inspect/inside.h"

static bool silent_is_backward(const hri_inside *in) {
  uint64_t allocs = 0, silent = 0, forward = 0, engine = 0;
  for (uint64_t k = 0; k < in->lives->event_count; k++) {
    const hr_trace_event *e = &in->lives->events[k];
    if (e->action != HR_TRACE_ALLOC) continue;
    allocs++;
    silent += e->stack == 0;
    forward += in->stacks[e->stack].stage == HR_STAGE_FORWARD || in->stacks[e->stack].stage == HR_STAGE_OPTIMIZER;
    engine += (in->stacks[e->stack].marks & HRI_MARK_ENGINE) != 0;
  }
  return silent > 0 && forward > 0 && engine == 0 && silent < allocs - allocs / 4;
}

static void spread(hri_inside *in) {
  uint8_t stage = HR_STAGE_UNKNOWN;
  in->work_end = HRI_NEVER;
  for (uint64_t k = 0; k < in->lives->event_count; k++) {
    const hr_trace_event *e = &in->lives->events[k];
    uint8_t own = in->stacks[e->stack].stage;
    bool makes = e->action == HR_TRACE_ALLOC || e->action == HR_TRACE_OOM;
    if (makes) in->work_end = k;
    /* A request that failed in the autograd thread is as silent as those before it. */
    if (makes && own) stage = own, in->has_stacks = true;
    /* What a program does itself after a model was built is no building of it: a loop that knows no modules. */
    else if (makes && e->stack && stage == HR_STAGE_INIT) stage = HR_STAGE_UNKNOWN;
    in->stages[k] = stage;
  }
}

hr_stage hri_stage_asked(const hri_inside *in, uint64_t event) {
  const hr_stage stage = hri_stage_at(in, event);
  const hr_trace_event *e;
  if (stage != HR_STAGE_OPTIMIZER) return stage;
  e = &in->lives->events[event];
  if ((e->action != HR_TRACE_ALLOC && e->action != HR_TRACE_OOM) || !e->stack || in->stacks[e->stack].stage)
    return stage;
  for (uint32_t k = 0; k < in->public.snapshot->stack_count; k++)
    if (in->stacks[k].stage == HR_STAGE_FORWARD) return HR_STAGE_BETWEEN;
  return HR_STAGE_UNKNOWN; /* without modules a forward cannot be told from it */
}

/* ---- evaluation ---- */

typedef struct site {
  uint64_t bytes, saved, open; /* made; of it freed in backward; of it not freed in time to tell */
} site;

static bool is_forward(const hri_stack_info *stack) {
  return stack->site && (stack->stage == HR_STAGE_FORWARD || stack->stage == HR_STAGE_LOSS);
}

static void sum_sites(const hri_inside *in, site *sites) {
  for (uint64_t k = in->lives->before_count; k < in->lives->count; k++) {
    const hri_life *life = &in->lives->lives[k];
    const hri_stack_info *stack = &in->stacks[life->stack];
    if (!is_forward(stack)) continue;
    sites[stack->site].bytes += life->size;
    if (hri_life_kept(in, life)) sites[stack->site].open += life->size;
    else if (in->stages[life->end] == HR_STAGE_BACKWARD) sites[stack->site].saved += life->size;
  }
}

/* Less than a hundredth freed in backward, and most of it gone: only where backward frees what another place made. */
static hr_status find_evaluation(hri_inside *in, hr_error *error) {
  const hr_snapshot *s = in->public.snapshot;
  site *sites = hri_alloc_zero((size_t)s->frame_count + 1, sizeof *sites);
  uint64_t saved = 0;
  bool changed = false;
  if (!sites) return hri_fail_memory(error, s->frame_count * sizeof *sites, "the places that call a model");
  sum_sites(in, sites);
  for (uint32_t k = 0; k <= s->frame_count; k++) saved += sites[k].saved;
  for (uint32_t k = 0; k < s->stack_count && saved; k++) {
    const site *at = &sites[in->stacks[k].site];
    if (!is_forward(&in->stacks[k]) || at->saved > at->bytes / 100 || at->open > at->bytes / 2) continue;
    if (at->saved == saved) continue; /* of the only one that backward knows: the rest of it is frozen */
    in->stacks[k].stage = HR_STAGE_EVALUATION;
    changed = true;
  }
  hri_free(sites);
  if (changed) spread(in);
  return HR_OK;
}

hr_status hri_stages_find(hri_inside *in, hr_error *error) {
  uint64_t count = in->lives->event_count;
  in->stages = hri_alloc((size_t)count + 1);
  if (!in->stages) return hri_fail_memory(error, count + 1, "the stages of a trace");
  in->silent_backward = silent_is_backward(in);
  if (in->silent_backward) in->stacks[0].stage = HR_STAGE_BACKWARD;
  spread(in);
  return in->has_stacks ? find_evaluation(in, error) : HR_OK;
}
