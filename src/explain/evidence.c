/* The sums at the failing request as figures and shares, and what was live then in words. */
#include "explain/evidence.h"

#include <stdio.h>

#include "base/mem.h"

#define MIB(x) ((uint64_t)(x) << 20)
#define SIZE HRI_OOM_SIZE

uint64_t hri_oom_segment(uint64_t request) {
  if (request <= MIB(1)) return MIB(2);
  return request < MIB(10) ? MIB(20) : hri_round_up(request, MIB(2));
}

hri_oom_facts hri_oom_facts_of(const hr_oom_evidence *evidence) {
  const hr_inspection *i = evidence->inspection;
  const hr_memory_sums *at = &i->at;
  hri_oom_facts f = {.evidence = evidence,
                     .i = i,
                     .total = evidence->device_total_bytes,
                     .reserved = at->reserved_bytes};
  uint64_t cached = at->free_returnable_bytes + at->free_pinned_bytes;
  f.live = at->requested_bytes + at->rounding_bytes + at->pending_bytes;
  f.pools_free = at->private_pool_free_bytes < cached ? at->private_pool_free_bytes : cached;
  f.cached = cached - f.pools_free;
  f.returnable = hri_oom_less(at->free_returnable_bytes,
                              f.pools_free); /* at least: which pool a wholly free segment is of, is not told */
  if (i->oom_count > 0) {
    f.oom = &i->ooms[i->oom_count - 1];
    f.request = i->fragmentation.request_bytes ? i->fragmentation.request_bytes : f.oom->size;
    f.need = i->fragmentation.segment_bytes ? i->fragmentation.segment_bytes : hri_oom_segment(f.request);
    if (f.need < f.request)
      f.need = f.request; /* an expandable segment grows by less: the rest of the request is among the cached bytes */
    f.knows_free = i->fragmentation.device_free_known || f.oom->device_free_bytes > 0;
    f.device_free = f.oom->device_free_bytes;
  }
  for (uint32_t g = 0; g < i->growth_count; g++) {
    if (!hr_growth_goes_on(i->growth[g].kind)) continue;
    f.leak_bytes += i->growth[g].bytes;
    if (!f.leak || i->growth[g].bytes > f.leak->bytes) f.leak = &i->growth[g];
  }
  return f;
}

/* ---- figures, shares, what is live ---- */

static void fill_figures(hr_oom_failure *f, const hri_oom_facts *k) {
  if (k->oom) hri_oom_set(f, HR_OOM_REQUESTED, HR_OOM_READ, k->request);
  if (k->knows_free) hri_oom_set(f, HR_OOM_FREE, HR_OOM_READ, k->device_free);
  if (k->total) hri_oom_set(f, HR_OOM_TOTAL, HR_OOM_READ, k->total);
  if (!k->i->has_state && k->reserved == 0) return;
  hri_oom_set(f, HR_OOM_ALLOCATED, HR_OOM_DERIVED, k->live);
  hri_oom_set(f, HR_OOM_RESERVED, HR_OOM_DERIVED, k->reserved);
  hri_oom_set(f, HR_OOM_UNALLOCATED, HR_OOM_DERIVED, k->cached + k->pools_free);
  if (k->i->at.private_pool_bytes) hri_oom_set(f, HR_OOM_PRIVATE_POOLS, HR_OOM_DERIVED, k->i->at.private_pool_bytes);
}

static void divide(hr_oom_failure *f, const hri_oom_facts *k) {
  const hr_memory_sums *at = &k->i->at;
  hri_oom_share(f, "live tensors", at->requested_bytes);
  hri_oom_share(f, "rounding of their blocks", at->rounding_bytes);
  hri_oom_share(f, "freed, waiting for other streams", at->pending_bytes);
  hri_oom_share(f, "cached, in segments that hold live blocks", at->free_pinned_bytes);
  hri_oom_share(f, "cached, in wholly free segments", at->free_returnable_bytes);
  if (k->knows_free) hri_oom_share(f, "free", k->device_free);
  if (k->total && k->knows_free)
    hri_oom_share(f, "unknown: other processes, this one's context and libraries",
                  hri_oom_less(k->total, k->reserved + k->device_free));
  else if (k->total) hri_oom_share(f, "unknown: free, or held by others", hri_oom_less(k->total, k->reserved));
  for (uint32_t s = 0; s < f->share_count; s++) f->share_total_bytes += f->shares[s].bytes;
  if (k->total) f->excess_bytes = hri_oom_less(f->share_total_bytes, k->total);
}

void hri_oom_stack_text(const hr_snapshot *s, uint32_t stack, char *out, size_t capacity) {
  if (s->stacks[stack].count) hr_inspect_stack_text(s, stack, out, capacity);
  else (void)snprintf(out, capacity, "no stack was recorded");
}

/* Of the stacks, the largest that says where it is: what has none is only counted. */
static void note_stacks(hr_oom_failure *f, const hr_inspection *i) {
  const hr_live_group *groups = i->groups[HR_BY_STACK];
  uint64_t bytes = 0, count = 0, g = 0;
  char where[160];
  for (; g < i->group_count[HR_BY_STACK] && i->snapshot->stacks[groups[g].stack].count == 0; g++) {
    bytes += groups[g].bytes;
    count += groups[g].count;
  }
  if (count)
    hri_oom_line(f, "%s in %llu tensors have no stack%s", SIZE(bytes), (unsigned long long)count,
                 g < i->group_count[HR_BY_STACK] ? " (backward runs in threads without a Python stack)" : "");
  if (g == i->group_count[HR_BY_STACK]) return;
  hri_oom_stack_text(i->snapshot, groups[g].stack, where, sizeof where);
  hri_oom_line(f, "most by one stack: %s in %llu tensors, %s", SIZE(groups[g].bytes),
               (unsigned long long)groups[g].count, where);
}

void hri_oom_note_live(hr_oom_failure *f, const hri_oom_facts *k) {
  const hr_inspection *i = k->i;
  for (uint64_t g = 0; g < i->group_count[HR_BY_CATEGORY] && g < 2; g++) {
    const hr_live_group *group = &i->groups[HR_BY_CATEGORY][g];
    const char *category = group->category < i->category_count ? i->categories[group->category] : "unknown";
    hri_oom_line(f, "live: %s in %llu tensors of category %s%s", SIZE(group->bytes), (unsigned long long)group->count,
                 category, i->categories_inferred ? " (inferred)" : "");
  }
  note_stacks(f, i);
}

void hri_oom_fill(hr_oom_failure *f, const hri_oom_facts *k) {
  fill_figures(f, k);
  divide(f, k);
}
