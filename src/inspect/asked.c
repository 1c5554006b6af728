/* Whether the step that failed asks for more than the steps before, place by place.
 *
 * A batch that stands out shows in what it asks for: the lines that make a tensor of each batch make a larger one, or more of
 * them. A step that needs more for another reason asks the same of the same lines, and keeps what they gave for longer (layers
 * that are trained from here on), or asks for something at lines that no step had before (states that are made late). So of
 * each place that a usual step has, what the failing one asks for beyond all usual ones is summed up: of single tensors, and
 * of all tensors of a place together, the larger of the two. Tensors without a stack have no place. Where most of the step is at
 * places of the same call of the model that are new, nothing can be compared (a compiler makes other code for another shape). */
#include "inspect/inside.h"

enum { LEAST_STEPS = 3 };

typedef struct place {
  uint64_t largest, most; /* of the usual steps: one tensor, all of a step */
  uint64_t sum, beyond;   /* of the step at hand; of single tensors, beyond the largest */
  uint32_t step;          /* that `sum` is of, plus one */
} place;

/* A step that stood out itself is no measure. */
static bool is_usual(const hr_inspection *p, uint32_t step) {
  return p->steps[step].peak_live_bytes <= p->usual_peak_bytes + p->usual_peak_bytes / 10;
}

static void ask_usually(place *at, uint32_t step, uint64_t size) {
  if (at->step != step + 1) at->step = step + 1, at->sum = 0;
  at->sum += size;
  if (size > at->largest) at->largest = size;
  if (at->sum > at->most) at->most = at->sum;
}

static void ask_now(place *at, uint32_t step, uint64_t size) {
  if (at->step != step + 1) at->step = step + 1, at->sum = at->beyond = 0;
  at->sum += size;
  if (at->most && size > at->largest) at->beyond += size - at->largest;
}

static uint64_t beyond_usual(const place *at, uint32_t step) {
  const uint64_t more = at->step == step + 1 && at->sum > at->most ? at->sum - at->most : 0;
  if (at->most == 0 || at->step != step + 1) return 0;
  return more > at->beyond ? more : at->beyond;
}

/* Whether most bytes of the step are asked for within a call of the model that usual steps have, or in its backward, of which no
 * call is known, at places that none of them has: code that was made for other shapes. What it asks for beyond the usual code
 * nothing tells. Another model is called from somewhere else. `sites`: all false, one for each call. */
static bool is_elsewhere(const hri_inside *in, const place *places, uint32_t step, bool *sites) {
  const uint32_t stacks = in->public.snapshot->stack_count;
  uint64_t all = 0, elsewhere = 0;
  for (uint32_t k = 0; k < stacks; k++)
    if (places[in->stacks[k].plain].most) sites[in->stacks[k].site] = true;
  sites[0] = false;
  for (uint32_t k = 0; k < stacks; k++) {
    if (places[k].step != step + 1) continue;
    all += places[k].sum;
    if (places[k].most == 0 && (sites[in->stacks[k].site] || in->stacks[k].stage == HR_STAGE_BACKWARD))
      elsewhere += places[k].sum;
  }
  return elsewhere > all / 2;
}

hr_status hri_asked_find(hri_inside *in, hr_error *error) {
  hr_inspection *p = &in->public;
  const hri_lives *l = in->lives;
  const hr_oom_event *oom = hri_failure_at(p);
  const uint32_t step = oom ? hri_step_of(p, oom->event) : 0, stacks = p->snapshot->stack_count;
  uint32_t usual = 0;
  place *places;
  bool *sites;
  if (!in->has_stacks || !oom || !oom->stack || step < LEAST_STEPS) return HR_OK;
  for (uint32_t k = 0; k < step; k++) usual += is_usual(p, k);
  if (usual < LEAST_STEPS) return HR_OK;
  places = hri_alloc_zero(stacks, sizeof *places);
  sites = hri_alloc_zero((size_t)p->snapshot->frame_count + 1, sizeof *sites);
  if (!places || !sites) {
    hri_free(places);
    hri_free(sites);
    return hri_fail_memory(error, stacks * sizeof *places + p->snapshot->frame_count, "what a step asks for");
  }
  for (uint64_t k = l->before_count; k < l->count && l->lives[k].alloc < oom->event; k++) {
    const hri_life *life = &l->lives[k];
    const uint32_t own = life->stack && life->alloc >= p->steps[0].first_event ? hri_step_of(p, life->alloc) : step;
    place *at = &places[in->stacks[life->stack].plain];
    if (own < step && is_usual(p, own)) ask_usually(at, own, life->size);
    else if (own == step && life->stack && life->alloc >= hri_step_end(&p->steps[step - 1]))
      ask_now(at, step, life->size);
  }
  ask_now(&places[in->stacks[oom->stack].plain], step, oom->size);
  p->asked_known = !is_elsewhere(in, places, step, sites);
  for (uint32_t k = 0; k < stacks && p->asked_known; k++) p->asked_more_bytes += beyond_usual(&places[k], step);
  hri_free(places);
  hri_free(sites);
  return HR_OK;
}
