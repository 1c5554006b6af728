/* The amounts at a failed request, and what can be read off them. */
#include "inspect/shortage.h"

#include "alloc/sizes.h"
#include "inspect/lives.h"

#define MIB ((uint64_t)1 << 20)

static void find_growth(hri_shortage *s) {
  for (uint32_t k = 0; k < s->in->growth_count; k++) {
    const hr_growth *g = &s->in->growth[k];
    if (!hr_growth_goes_on(g->kind)) continue;
    s->growing += g->bytes;
    if (!s->largest || g->bytes > s->largest->bytes) s->largest = g;
  }
}

/* Without such settings a block has a rest of 1 MiB at most, which no setting gives back. */
static bool makes_larger_blocks(const hr_alloc_config *settings) {
  bool larger = settings->max_split_bytes != UINT64_MAX;
  for (int n = 0; n < HR_ALLOC_DIVISION_COUNT; n++) larger |= settings->roundup_power2_divisions[n] > 1;
  return larger;
}

hri_shortage hri_shortage_of(const hr_inspection *in) {
  const hr_memory_sums *at = &in->at;
  const hr_fragmentation *f = &in->fragmentation;
  uint64_t cached = at->free_returnable_bytes + at->free_pinned_bytes;
  hri_shortage s = {.in = in, .reserved = at->reserved_bytes};
  s.live = at->requested_bytes + at->rounding_bytes + at->pending_bytes;
  s.pools_free = at->private_pool_free_bytes < cached ? at->private_pool_free_bytes : cached;
  if (f->in_private_pool) s.pools_free = cached - (f->pool_free_bytes < cached ? f->pool_free_bytes : cached);
  s.cached = cached - s.pools_free;
  hri_recorded_settings(in->snapshot, NULL, 0, &s.settings);
  if (makes_larger_blocks(&s.settings)) s.unasked = at->rounding_bytes;
  find_growth(&s);
  if (in->oom_count == 0) return s;
  s.oom = &in->ooms[in->oom_count - 1];
  for (uint32_t k = 0; k < in->oom_count; k++)
    if (in->ooms[k].event == in->at_event) s.oom = &in->ooms[k];
  s.request = f->request_bytes ? f->request_bytes : s.oom->size;
  s.need = f->segment_bytes ? f->segment_bytes : hri_alloc_segment_bytes(&s.settings, s.request);
  /* An expandable segment grows by less: the rest of the request is among the cached bytes. */
  if (s.need < s.request) s.need = s.request;
  s.knows_free = f->device_free_known || s.oom->device_free_bytes > 0;
  s.device_free = s.oom->device_free_bytes;
  return s;
}

bool hri_lacks_allocs(const hr_inspection *in) {
  return in->action_counts[HR_TRACE_ALLOC] == 0 &&
         in->action_counts[HR_TRACE_FREE_REQUESTED] + in->action_counts[HR_TRACE_FREE_COMPLETED] > 0;
}

double hri_stated_fraction(const hri_shortage *s) {
  const double fraction = s->settings.memory_fraction;
  return fraction > 0 && fraction < 1 ? fraction : 0;
}

uint32_t hri_failures_with_room(const hri_shortage *s) {
  uint32_t count = 0;
  for (uint32_t k = 0; k < s->in->oom_count; k++)
    count += s->in->ooms[k].device_free_bytes >= hri_alloc_driver_bytes(&s->settings, s->in->ooms[k].size);
  return count;
}

bool hri_short_by_limit(const hri_shortage *s) { return hri_stated_fraction(s) > 0 || hri_failures_with_room(s) >= 2; }

uint64_t hri_short_by_loss(const hri_shortage *s) {
  uint64_t now = s->reserved + s->device_free, before = s->in->peak_reserved_bytes,
           lost = before > now ? before - now : 0;
  return s->knows_free && lost >= 2 * MIB && lost >= before / 100 && s->device_free + lost >= s->need ? lost : 0;
}

bool hri_short_by_pools(const hri_shortage *s) {
  uint64_t without = s->device_free + s->cached;
  bool only = without < s->need && without + s->pools_free >= s->need;
  bool most = s->pools_free > s->cached && s->device_free + s->pools_free >= s->need;
  return s->pools_free > 0 && s->knows_free && (only || most);
}

enum { STEPS_OF_A_WINDOW = 8 };

/* What fewer steps than that left, a window of the last N may hold: where it is little beside all that was to be live, and more than it
 * would stay free in one piece, it is pieces that are lacking. */
bool hri_short_by_growth(const hri_shortage *s) {
  const uint64_t have = s->device_free + s->cached;
  const bool little = s->growing < (s->live + s->request) / 10 && have >= s->need + s->growing;
  if (!s->largest || s->growing < s->live / 10 || have + s->growing < s->need) return false;
  return !little || s->largest->steps_grown >= STEPS_OF_A_WINDOW;
}

bool hri_steps_are_even(const hri_shortage *s) {
  const hr_inspection *in = s->in;
  const hr_step_sums *second, *last;
  if (in->step_count < 3 || s->largest) return false;
  second = &in->steps[1];
  last = &in->steps[in->step_count - 2];
  return last->end_live_bytes <= second->end_live_bytes + s->live / 10 &&
         last->peak_live_bytes <= second->peak_live_bytes + second->peak_live_bytes / 10;
}

/* In the whole steps before the failure and what came before them. Without steps all before it may be this one's. */
static uint64_t live_in_steps_before(const hri_shortage *s) {
  const hr_inspection *in = s->in;
  const uint64_t failed = s->oom->event;
  const bool at_start = in->peak_event == UINT64_MAX;
  uint64_t start = 0, most = 0;
  if (in->step_count < 2) return 0;
  for (uint32_t k = 0; k < in->step_count; k++) {
    const hr_step_sums *step = &in->steps[k];
    const uint64_t end = step->first_event + step->event_count;
    if (step->first_event <= failed) start = end <= failed ? end : step->first_event;
    if (end <= failed && step->peak_live_bytes > most) most = step->peak_live_bytes;
  }
  return (at_start || in->peak_event < start) && in->peak_live_bytes > most ? in->peak_live_bytes : most;
}

uint64_t hri_live_before(const hri_shortage *s) {
  const hr_inspection *in = s->in;
  const uint64_t most = live_in_steps_before(s), wanted = s->oom->live_bytes + s->request;
  const bool before = in->peak_event == UINT64_MAX || in->peak_event < s->oom->event;
  const bool in_this_step = before && in->peak_live_bytes > most;
  return in_this_step && in->peak_live_bytes >= wanted + (s->reserved + s->device_free) / 10 ? in->peak_live_bytes
                                                                                             : most;
}

/* Whether steps show what the one at hand comes to: two before it at least, and one that needed two thirds of what this one has by now. */
static bool steps_tell(const hri_shortage *s) {
  const uint64_t most = live_in_steps_before(s);
  return s->in->step_count >= 3 && s->oom->live_bytes + s->request <= most + most / 2;
}

/* While a device fills up there is always a request that would have gone well in one piece, and the next one fails. As much
 * was live before, and it went well: that speaks for pieces, and where the steps are known and none of them leaves more
 * behind, it is enough. Else by what would stay free after the request; within the first steps, and in one that is far larger
 * than all before, more is to come that nobody has seen yet, so more must stay, and another such request have room too: layers
 * ask for the same again. */
int hri_short_by_pieces(const hri_shortage *s) {
  uint64_t have = s->device_free + s->cached, capacity = s->reserved + s->device_free, spare;
  if (!s->knows_free || s->cached == 0 || have < s->need) return 0;
  spare = have - s->need;
  if (spare >= capacity / 4) return 2;
  if (s->oom->live_bytes + s->request <= live_in_steps_before(s))
    return s->in->step_count >= 4 && hri_steps_are_even(s) ? 2 : 1;
  if (s->oom->live_bytes + s->request <= hri_live_before(s)) return 1;
  if (steps_tell(s)) return spare >= capacity / 10;
  return spare >= capacity / 6 && spare >= s->request;
}

const char *hri_larger_blocks_by(const hri_shortage *s) {
  return s->settings.max_split_bytes != UINT64_MAX ? "max_split_size_mb" : "roundup_power2_divisions";
}

bool hri_short_by_blocks(const hri_shortage *s) {
  const uint64_t have = s->device_free + s->cached + s->unasked, capacity = s->reserved + s->device_free;
  if (!s->knows_free || s->unasked < s->reserved / 10 || have < s->need) return false;
  if (s->in->step_count < 2) return have - s->need >= capacity / 6;
  return s->oom->live_bytes + s->request <= live_in_steps_before(s);
}
