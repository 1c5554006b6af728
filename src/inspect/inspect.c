/* The inspection as a whole: which trace, which instant, and the order in which its parts are found. */
#include "inspect/inside.h"
#include "inspect/shortage.h"

#include <string.h>

enum { KEPT_OOMS = 64, DEFAULT_TOP = 10 };

static uint32_t choose_trace(const hr_snapshot *s) {
  uint32_t best = 0;
  for (uint32_t k = 1; k < s->trace_count; k++)
    if (s->traces[k].count > s->traces[best].count) best = k;
  return s->trace_count && s->traces[best].count ? best : s->trace_count;
}

static void count_events(hri_inside *in) {
  hr_inspection *p = &in->public;
  p->event_count = in->lives->event_count;
  for (uint64_t k = 0; k < p->event_count; k++) {
    const hr_trace_event *e = &in->lives->events[k];
    p->action_counts[e->action < HR_TRACE_ACTION_COUNT ? e->action : HR_TRACE_OTHER]++;
    if (!(e->flags & HR_EVENT_HAS_TIME)) continue;
    if (!p->first_time_us) p->first_time_us = e->time_us;
    p->last_time_us = e->time_us;
  }
  p->oom_total = p->action_counts[HR_TRACE_OOM];
}

typedef struct oom_walk {
  hri_inside *in;
  uint64_t met;
} oom_walk;

static void keep_oom(void *context, const hri_level *level) {
  oom_walk *w = context;
  hr_inspection *p = &w->in->public;
  const hr_trace_event *e = &w->in->lives->events[level->event];
  if (e->action != HR_TRACE_OOM || ++w->met + KEPT_OOMS <= p->oom_total) return;
  p->ooms[p->oom_count++] = (hr_oom_event){level->event,      e->time_us,
                                           e->size,           e->addr,
                                           level->live_bytes, level->reserved_bytes,
                                           e->stack,          hri_stage_asked(w->in, level->event)};
}

static hr_status list_ooms(hri_inside *in, hr_error *error) {
  hr_inspection *p = &in->public;
  oom_walk w = {in, 0};
  if (!p->oom_total) return HR_OK;
  p->ooms = hri_alloc_zero(KEPT_OOMS, sizeof *p->ooms);
  if (!p->ooms) return hri_fail_memory(error, KEPT_OOMS * sizeof *p->ooms, "the out-of-memory events");
  hri_lives_walk(in->lives, keep_oom, &w);
  return HR_OK;
}

static hr_status choose_instant(hri_inside *in, uint64_t at, hr_error *error) {
  hr_inspection *p = &in->public;
  if (at == HR_AT_OOM && p->oom_count) p->at_event = p->ooms[p->oom_count - 1].event;
  else if ((at == HR_AT_PEAK || at == HR_AT_OOM) && hri_lacks_allocs(p))
    p->at_event = p->event_count - 1; /* the last state is known */
  else if (at == HR_AT_PEAK || at == HR_AT_OOM) p->at_event = in->lives->peak_event;
  else if (at == HR_AT_END) p->at_event = p->event_count - 1; /* without events: before the first, UINT64_MAX */
  else if (at <= p->event_count) p->at_event = at - 1;
  else {
    hri_fail(error, HR_ERROR_USAGE, "the trace has %llu events, so there is no instant after %llu",
             (unsigned long long)p->event_count, (unsigned long long)at);
    return hri_hint(error, HR_ERROR_USAGE, "name an instant from 0 (before the first event) to %llu",
                    (unsigned long long)p->event_count);
  }
  p->at_stage = hri_stage_asked(in, p->at_event);
  return HR_OK;
}

static hr_status find_end(hri_inside *in, hr_error *error) {
  uint64_t last = in->lives->event_count - 1;
  if (in->public.at_event == last) {
    in->public.end = in->public.at;
    return HR_OK;
  }
  {
    hri_state state;
    HRI_TRY(hri_state_at(in->lives, last, &state, error));
    hri_memory_sums(in->lives, &state, last, &in->public.end);
    hri_state_deinit(&state);
  }
  return HR_OK;
}

static hr_status find_all(hri_inside *in, const hr_inspect_options *o, hr_error *error) {
  hr_inspection *p = &in->public;
  HRI_TRY(hri_lives_build(p->snapshot, p->trace, &in->lives, error));
  p->device = in->lives->device;
  p->has_state = in->lives->has_state;
  p->began_empty = in->lives->began_empty;
  p->odd_count = in->lives->odd_count;
  p->peak_event = in->lives->peak_event;
  p->peak_live_bytes = in->lives->peak_live_bytes;
  p->peak_reserved_bytes = in->lives->peak_reserved_bytes;
  count_events(in);
  HRI_TRY(hri_stacks_read(p->snapshot, &in->stacks, error));
  HRI_TRY(hri_stages_find(in, error));
  HRI_TRY(list_ooms(in, error));
  HRI_TRY(choose_instant(in, o->at, error));
  HRI_TRY(hri_steps_find(in, error));
  HRI_TRY(hri_categories_find(in, o->exact_only, error));
  HRI_TRY(hri_state_at(in->lives, p->at_event, &in->state, error));
  hri_memory_sums(in->lives, &in->state, p->at_event, &p->at);
  HRI_TRY(find_end(in, error));
  HRI_TRY(hri_groups_find(in, o->top ? o->top : DEFAULT_TOP, error));
  HRI_TRY(hri_growth_find(in, error));
  HRI_TRY(hri_older_find(in, error));
  HRI_TRY(hri_within_find(in, error));
  HRI_TRY(hri_asked_find(in, error));
  return hri_fragmentation_find(in, p->has_state ? hri_failure_at(p) : NULL, error);
}

void hr_inspect_options_init(hr_inspect_options *options) {
  *options = (hr_inspect_options){.at = HR_AT_OOM, .trace = HR_TRACE_MOST};
}

hr_status hr_inspect(const hr_snapshot *snapshot, const hr_inspect_options *options, hr_inspection **inspection,
                     hr_error *error) {
  hr_inspect_options o;
  hri_inside *in;
  hr_status status;
  *inspection = NULL;
  hr_inspect_options_init(&o);
  if (options) o = *options;
  if (o.trace == HR_TRACE_MOST) o.trace = choose_trace(snapshot);
  if (o.trace > snapshot->trace_count)
    return hri_fail(error, HR_ERROR_USAGE, "the snapshot has %u traces, not %u", snapshot->trace_count, o.trace);
  in = hri_alloc_zero(1, sizeof *in);
  if (!in) return hri_fail_memory(error, sizeof *in, "an inspection");
  in->public.snapshot = snapshot;
  in->public.trace = o.trace;
  status = find_all(in, &o, error);
  if (status != HR_OK) hr_inspection_destroy(&in->public);
  else *inspection = &in->public;
  return status;
}

void hr_inspection_destroy(hr_inspection *p) {
  hri_inside *in = (hri_inside *)p;
  if (!p) return;
  hri_lives_destroy(in->lives);
  hri_state_deinit(&in->state);
  hri_free(in->stacks);
  hri_free(in->stages);
  hri_free(p->categories);
  hri_free(p->life_category);
  for (int by = 0; by < HR_BY_COUNT; by++) hri_free(p->groups[by]);
  hri_free(p->largest);
  hri_free(p->ooms);
  hri_free(p->fragmentation.pinned);
  hri_free(p->steps);
  hri_free(p->growth);
  hri_free(in);
}

const hri_lives *hri_inspection_lives(const hr_inspection *p) { return ((const hri_inside *)p)->lives; }
const uint8_t *hri_inspection_stages(const hr_inspection *p) { return ((const hri_inside *)p)->stages; }
const hri_state *hri_inspection_state(const hr_inspection *p) { return &((const hri_inside *)p)->state; }

const char *hri_inspection_no_stack(const hr_inspection *p) {
  return ((const hri_inside *)p)->silent_backward ? "(no stack: the autograd thread)" : "(no stack)";
}

uint32_t hri_inspection_plain_stack(const hr_inspection *p, uint32_t stack) {
  return ((const hri_inside *)p)->stacks[stack].plain;
}
