/* The sums at the failing request as figures and shares, and what was live then in words. */
#include "explain/evidence.h"

#include <stdio.h>

#define SIZE HRI_OOM_SIZE

hri_oom_facts hri_oom_facts_of(const hr_oom_evidence *evidence) {
  const hri_shortage s = hri_shortage_of(evidence->inspection);
  const hr_fragmentation *g = &s.in->fragmentation;
  uint64_t returnable = g->request_bytes ? g->returnable_bytes : s.in->at.free_returnable_bytes;
  return (hri_oom_facts){.evidence = evidence,
                         .i = s.in,
                         .oom = s.oom,
                         .request = s.request,
                         .need = s.need,
                         .total = evidence->device_total_bytes,
                         .device_free = s.device_free,
                         .reserved = s.reserved,
                         .live = s.live,
                         .returnable = returnable,
                         .cached = s.cached,
                         .pools_free = s.pools_free,
                         .leak_bytes = s.growing,
                         .leak = s.largest,
                         .knows_free = s.knows_free,
                         .shortage = s};
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
  for (int part = 0; part < HR_PART_COUNT; part++)
    hri_oom_share(f, hr_memory_part_name((hr_memory_part)part), hr_memory_part_bytes(at, (hr_memory_part)part));
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
