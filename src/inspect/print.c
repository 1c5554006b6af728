/* The report for people: the verdict first, then where the bytes are, what was live, what grows, what is fragmented. */
#include "inspect/inside.h"
#include "inspect/shortage.h"

#include <string.h>

enum { DEFAULT_TOP = 10, LINE = 100, LEAST_LINE = 59, WIDE = 1024, PINNED_SHOWN = 3, FRAMES = 2, WIDE_FRAMES = 8 };
enum { COLUMNS_SHIFT = 16, COLUMNS_MASK = 0xFF }; /* in by_mask */
#define SIZE(bytes) hri_size_text((bytes), (char[32]){0})

static double share(uint64_t part, uint64_t whole) { return whole ? 100.0 * (double)part / (double)whole : 0; }

/* The text and whether its lines may have any length. */
typedef struct sheet {
  hri_text text;
  bool wide;
  size_t columns; /* of a line */
} sheet;

/* A stack in short behind `used` columns; below them where a line would have no room for a frame. */
static void add_brief(hri_text *t, const hr_inspection *p, uint32_t stack, size_t used) {
  enum { LEAST = 24, BELOW = 13 };
  const sheet *page = (const sheet *)t; /* the text is its first member */
  size_t columns = page->columns > used ? page->columns - used : 0;
  char brief[WIDE];
  if (columns < LEAST && !page->wide && stack) {
    hri_text_add(t, "\n%*s", BELOW, "");
    columns = page->columns - BELOW;
  }
  if (!stack) {
    hri_text_add(t, "%s\n", hri_inspection_no_stack(p));
    return;
  }
  hri_stack_text(p->snapshot, stack, page->wide ? WIDE_FRAMES : FRAMES, brief, page->wide ? WIDE : columns);
  hri_text_add(t, "%s\n", brief);
}

static const char *category_name(const hr_inspection *p, uint16_t category) {
  return category < p->category_count ? p->categories[category] : "unknown";
}

/* ---- verdict ---- */

/* What is free, and in what pieces: the pool's largest block, or what the device has. */
static void say_pieces(hri_text *t, const hri_shortage *s) {
  uint64_t pool = s->in->fragmentation.pool_largest_free_bytes;
  bool fragmented = hri_short_by_pieces(s) > 0;
  hri_text_add(t, "%s: %s free, %sin pieces of at most %s\n", fragmented ? "FRAGMENTED" : "NEARLY FULL",
               SIZE(s->device_free + s->cached), fragmented ? "but " : "",
               SIZE(pool > s->device_free ? pool : s->device_free));
}

/* One sentence, from the tests that the explainer judges by as well, in its order. */
static void say_cause(hri_text *t, const hri_shortage *s) {
  const hr_fragmentation *f = &s->in->fragmentation;
  uint64_t have = s->device_free + s->cached, lost;
  if (!f->request_bytes) return;
  if (f->fits_block)
    hri_text_add(t, "A FREE BLOCK OF %s would take it as things stand: max_split_size or a stream's rules kept it\n",
                 SIZE(f->pool_largest_free_bytes));
  else if (s->device_free >= s->need)
    hri_text_add(t, "NOT THE DEVICE: it has the %s needed; %s\n", SIZE(s->need),
                 hri_short_by_limit(s) ? "most likely a limit below its memory (a fraction) was reached"
                                       : "what refused it the snapshot does not say");
  else if (f->fits_after_return) hri_text_add(t, "CACHED MEMORY, if returned to the device, would make room\n");
  else if (hri_short_by_pools(s))
    hri_text_add(t,
                 f->in_private_pool ? "OTHER POOLS hold %s free, which a request of a private pool may not use\n"
                                    : "PRIVATE POOLS hold %s free, where nobody else may use them\n",
                 SIZE(s->pools_free));
  else if ((lost = hri_short_by_loss(s)))
    hri_text_add(t, "HELD ELSEWHERE: %s that this allocator had before went to somebody else\n", SIZE(lost));
  else if (hri_short_by_growth(s))
    hri_text_add(t, "GROWTH: without the %s that stay behind it would have been enough\n", SIZE(s->growing));
  else if (hri_short_by_blocks(s) && !hri_short_by_pieces(s))
    hri_text_add(t, "LARGER BLOCKS: %s beyond what was asked for, by %s, would have been enough\n", SIZE(s->unasked),
                 hri_larger_blocks_by(s));
  else if (have < s->need)
    hri_text_add(t, "TOO BIG by %s: %s free, and the device is asked for %s\n", SIZE(s->need - have), SIZE(have),
                 SIZE(s->need));
  else say_pieces(t, s);
}

static void say_failure(hri_text *t, const hr_inspection *p, const hri_shortage *shortage) {
  const hr_oom_event *oom = shortage->oom;
  hri_text_add(t, "OUT OF MEMORY");
  if (oom->stage) hri_text_add(t, " in %s", hr_stage_name(oom->stage));
  hri_text_add(t, ": %s asked for, %s free on the device\n", SIZE(oom->size), SIZE(oom->device_free_bytes));
  say_cause(t, shortage);
  hri_text_add(t, "  %s live in %s reserved", SIZE(oom->live_bytes), SIZE(oom->reserved_bytes));
  if (p->oom_total > 1) hri_text_add(t, "; the last of %llu failures", (unsigned long long)p->oom_total);
  hri_text_add(t, "\n");
  if (oom->stack) hri_text_add(t, "  at "), add_brief(t, p, oom->stack, 5);
}

static void say_instant(hri_text *t, const hr_inspection *p) {
  const bool peak = p->at_event == p->peak_event && !hri_lacks_allocs(p);
  if (!p->event_count) hri_text_add(t, "LAST STATE");
  else if (peak) hri_text_add(t, "PEAK");
  else hri_text_add(t, "INSTANT");
  if (p->event_count && p->at_event == UINT64_MAX) hri_text_add(t, " before the first event");
  else if (p->event_count)
    hri_text_add(t, " after event %llu of %llu", (unsigned long long)p->at_event + 1,
                 (unsigned long long)p->event_count);
  if (p->at_stage) hri_text_add(t, ", in %s", hr_stage_name(p->at_stage));
  hri_text_add(t, ": %s live", SIZE(p->at.requested_bytes));
  if (p->has_state) hri_text_add(t, " in %s reserved", SIZE(p->at.reserved_bytes));
  hri_text_add(t, "\n");
  if (hri_lacks_allocs(p)) hri_text_add(t, "  the peak is not known: the recording holds frees and no allocations\n");
  else if (!peak) hri_text_add(t, "  the peak was %s live\n", SIZE(p->peak_live_bytes));
}

static void say_verdict(hri_text *t, const hr_inspection *p) {
  const hri_shortage s = hri_shortage_of(p);
  if (s.oom && s.oom->event == p->at_event) say_failure(t, p, &s);
  else say_instant(t, p);
  if (s.largest) {
    double per_step = 0;
    bool steps = hr_growth_by_step(s.largest->kind);
    for (uint32_t k = 0; k < p->growth_count; k++)
      if (hr_growth_goes_on(p->growth[k].kind)) per_step += p->growth[k].bytes_per_step;
    if (s.largest->kind == HR_GROWTH_LARGER)
      hri_text_add(t, "GROWS by %s each time that it is made anew: a tensor, %s larger in all (below)\n",
                   SIZE((uint64_t)s.largest->bytes_per_step), SIZE(s.largest->bytes));
    else if (s.largest->from_before)
      hri_text_add(t, "GROWS: %s outlive their %s, of which %s are from before the recording began (below)\n",
                   SIZE(s.growing), steps ? "steps" : "passes",
                   2 * s.largest->from_before > s.largest->count ? "most" : "some");
    else
      hri_text_add(t, "GROWS by %s %s: %s outlive their %s (below)\n", SIZE((uint64_t)per_step),
                   !steps                            ? "every pass"
                   : hr_growth_every_step(s.largest) ? "every step"
                                                     : "per step on average",
                   SIZE(s.growing), steps ? "steps" : "passes");
  }
  if (p->outlier_step != UINT64_MAX)
    hri_text_add(t, "STEP %llu STANDS OUT: its peak is %s, that of other steps %s\n",
                 (unsigned long long)p->outlier_step + 1, SIZE(p->steps[p->outlier_step].peak_live_bytes),
                 SIZE(p->usual_peak_bytes));
}

/* ---- fragmentation in words ---- */

static void say_fit(hri_text *t, const hr_inspection *p) {
  const hr_fragmentation *f = &p->fragmentation;
  if (!f->request_bytes) return;
  hri_text_add(t, "\nwould %s fit?\n", SIZE(f->request_bytes));
  hri_text_add(t, "  in a free block of its pool: %-3s (free in the pool %s, largest block %s)\n",
               f->fits_block ? "yes" : "no", SIZE(f->pool_free_bytes), SIZE(f->pool_largest_free_bytes));
  hri_text_add(t, "  if the pool's free memory were contiguous: %s\n", f->fits_contiguous ? "yes" : "no");
  hri_text_add(t, "  if cached blocks were returned: %-3s (free %s + returnable %s, needed %s)\n",
               f->fits_after_return ? "yes" : "no", SIZE(f->device_free_bytes), SIZE(f->returnable_bytes),
               SIZE(f->segment_bytes));
  hri_text_add(t, "  if all free memory were one piece: %s\n", f->fits_compacted ? "yes" : "no");
}

static void list_pinned(hri_text *t, const hr_inspection *p) {
  const hr_fragmentation *f = &p->fragmentation;
  uint64_t pinned = p->at.free_pinned_bytes;
  /* Below a twentieth of what is reserved it is no subject. */
  if (!f->pinned_count || (!f->request_bytes && pinned < p->at.reserved_bytes / 20)) return;
  hri_text_add(t, "\npinned: %s free in segments that live blocks keep\n", SIZE(pinned));
  for (uint32_t k = 0; k < f->pinned_count && k < PINNED_SHOWN; k++) {
    const hr_pinned_segment *g = &f->pinned[k];
    hri_text_add(t, "  %10s of %s free (largest %s), kept by %llu block%s of %s\n", SIZE(g->free_bytes),
                 SIZE(g->total_bytes), SIZE(g->largest_free_bytes), (unsigned long long)g->live_count,
                 g->live_count == 1 ? "" : "s", SIZE(g->live_bytes));
    hri_text_add(t, "             %.40s, ", category_name(p, g->category));
    add_brief(t, p, g->stack, 32);
  }
  if (f->pinned_count > PINNED_SHOWN) hri_text_add(t, "  and %u more segments\n", f->pinned_count - PINNED_SHOWN);
}

/* ---- tables ---- */

static void add_sum(hri_text *t, const char *name, uint64_t bytes, uint64_t whole) {
  const sheet *page = (const sheet *)t;
  if (page->columns < 67) hri_text_add(t, " %-41s%11s%4.0f %%\n", name, SIZE(bytes), share(bytes, whole));
  else hri_text_add(t, "  %-42s%12s%8.1f %%\n", name, SIZE(bytes), share(bytes, whole));
}

static void add_sums(hri_text *t, const hr_inspection *p) {
  const hr_memory_sums *m = &p->at;
  if (!p->has_state) return;
  hri_text_add(t, "\nreserved memory\n");
  for (int part = 0; part < HR_PART_COUNT; part++) {
    uint64_t bytes = hr_memory_part_bytes(m, (hr_memory_part)part);
    if (bytes || part != HR_PART_PENDING) /* that some wait is rare */
      add_sum(t, hr_memory_part_name((hr_memory_part)part), bytes, m->reserved_bytes);
  }
  add_sum(t, "total", m->reserved_bytes, m->reserved_bytes);
  if (m->private_pool_bytes)
    hri_text_add(t, "  of it in private pools %s, %s free and unusable by others\n", SIZE(m->private_pool_bytes),
                 SIZE(m->private_pool_free_bytes));
}

static void add_rest(hri_text *t, const hr_live_group *groups, uint64_t from, uint64_t count) {
  uint64_t bytes = 0, blocks = 0;
  for (uint64_t k = from; k < count; k++) bytes += groups[k].bytes, blocks += groups[k].count;
  if (from < count)
    hri_text_add(t, "  %10s %6llu x  in %llu more\n", SIZE(bytes), (unsigned long long)blocks,
                 (unsigned long long)(count - from));
}

static void add_group(hri_text *t, const hr_inspection *p, hr_group_by by, const hr_live_group *g) {
  hri_text_add(t, "  %10s %6llu x  ", SIZE(g->bytes), (unsigned long long)g->count);
  if (by == HR_BY_CATEGORY)
    hri_text_add(t, "%-16.40s%6.1f %%\n", category_name(p, g->category), share(g->bytes, p->at.requested_bytes));
  if (by == HR_BY_CATEGORY) return;
  if (by == HR_BY_SIZE) hri_text_add(t, "%10s each  ", SIZE(g->size));
  if (g->mixed) hri_text_add(t, "%.40s, mixed ", category_name(p, g->category));
  else hri_text_add(t, "%-15.40s ", category_name(p, g->category));
  add_brief(t, p, g->stack, by == HR_BY_SIZE ? 56 : 40);
}

static void add_groups(hri_text *t, const hr_inspection *p, hr_group_by by, uint64_t top) {
  static const char *const titles[HR_BY_COUNT] = {"stack", "category", "size"};
  uint64_t count = p->group_count[by], shown = by == HR_BY_CATEGORY ? count : count < top ? count : top;
  hri_text_add(t, "\nlive by %s", titles[by]);
  if (p->categories_inferred) hri_text_add(t, by == HR_BY_CATEGORY ? " (inferred)" : " (categories inferred)");
  hri_text_add(t, "\n");
  for (uint64_t k = 0; k < shown; k++) add_group(t, p, by, &p->groups[by][k]);
  add_rest(t, p->groups[by], shown, count);
}

static void add_largest(hri_text *t, const hr_inspection *p, uint32_t top) {
  uint32_t shown = p->largest_count < top ? p->largest_count : top;
  if (shown) hri_text_add(t, "\nlargest tensors\n");
  for (uint32_t k = 0; k < shown; k++) {
    const hr_live_tensor *x = &p->largest[k];
    hri_text_add(t, "  %10s  %-15.40s ", SIZE(x->bytes), category_name(p, x->category));
    add_brief(t, p, x->stack, 31);
  }
}

static void add_growth(hri_text *t, const hr_inspection *p, uint32_t top) {
  uint32_t shown = p->growth_count < top ? p->growth_count : top;
  if (!p->step_count && !shown) return;
  if (!p->step_count) hri_text_add(t, "\nno training steps; what the passes of a model leave behind:\n");
  else
    hri_text_add(t, "\n%u steps (from %s), usual peak %s", p->step_count, p->steps_from,
                 SIZE(p->usual_peak_bytes ? p->usual_peak_bytes : p->steps[0].peak_live_bytes));
  if (p->step_count)
    hri_text_add(t, p->step_count < 4 && !shown ? "; too few to tell growth\n"
                    : shown                     ? "; what outlives its step:\n"
                                                : "; nothing outlives its step\n");
  for (uint32_t k = 0; k < shown; k++) {
    const hr_growth *g = &p->growth[k];
    hri_text_add(t, "  %10s %6llu x  %-8s", SIZE(g->bytes), (unsigned long long)g->count, hr_growth_name(g->kind));
    if (g->from_before) hri_text_add(t, "%llu from before the recording  ", (unsigned long long)g->from_before);
    else if (hr_growth_goes_on(g->kind))
      hri_text_add(t, "%10s per %s, in %u of %u  ", SIZE((uint64_t)g->bytes_per_step), hr_growth_unit(g->kind),
                   g->steps_grown, g->steps_seen);
    else hri_text_add(t, "%-15.40s ", category_name(p, g->category));
    add_brief(t, p, g->stack, hr_growth_goes_on(g->kind) ? 66 : 48);
  }
}

/* Which device this is of, where it is the CPU: PyTorch's own snapshots have what is pinned there, others all. */
static void add_device(hri_text *t, const hr_inspection *p) {
  const bool pinned = strncmp(p->snapshot->format, "pytorch-2", 9) == 0;
  if (p->device >= 0) hri_text_add(t, "device %d: ", p->device);
  else hri_text_add(t, "%s (device -1): ", pinned ? "pinned memory of the host" : "the CPU");
}

static void add_trace(hri_text *t, const hr_inspection *p) {
  uint32_t with_events = 0;
  for (uint32_t k = 0; k < p->snapshot->trace_count; k++) with_events += p->snapshot->traces[k].count > 0;
  hri_text_add(t, "\n%s, ", hr_snapshot_versions(p->snapshot));
  add_device(t, p);
  if (!p->event_count)
    hri_text_add(t, "no events, only the last state: neither peak nor failure is known\n  to have them, call "
                    "torch.cuda.memory._record_memory_history() before the work begins\n");
  else {
    hri_text_add(t, "%llu events", (unsigned long long)p->event_count);
    if (p->last_time_us > p->first_time_us)
      hri_text_add(t, " in %.3g s", ((double)p->last_time_us - (double)p->first_time_us) / 1e6);
    hri_text_add(
        t,
        p->began_empty
            ? ", from an empty allocator\n"
            : "\n  the trace does not begin with an empty allocator: what lived before is found from the last state\n");
  }
  if (hri_lacks_allocs(p))
    hri_text_add(
        t, "  no allocations are recorded: what was live before the end is not known\n  to have them, record without "
           "\"alloc\" in skip_actions\n");
  if (with_events > 1) hri_text_add(t, "  one of %u devices with events: --device shows another\n", with_events);
  if (p->odd_count)
    hri_text_add(t, "  %llu events contradict others (lost or left out): figures before the end are estimates\n",
                 (unsigned long long)p->odd_count);
}

hr_status hr_inspect_text(const hr_inspection *p, uint32_t top, uint32_t by_mask, char **text, hr_error *error) {
  const uint32_t columns = by_mask >> COLUMNS_SHIFT & COLUMNS_MASK;
  sheet page = {.wide = (by_mask & HR_INSPECT_WIDE) != 0, .columns = columns ? columns : LINE};
  hri_text *t = &page.text;
  uint32_t rows = top ? top : DEFAULT_TOP;
  *text = NULL;
  by_mask &= ~(HR_INSPECT_WIDE | HR_INSPECT_COLUMNS(COLUMNS_MASK));
  if (page.columns < LEAST_LINE) page.columns = LEAST_LINE;
  say_verdict(t, p);
  add_sums(t, p);
  if (!by_mask) {
    add_groups(t, p, HR_BY_CATEGORY, rows);
    add_groups(t, p, HR_BY_STACK, rows);
    add_largest(t, p, rows / 2);
  }
  for (int by = 0; by < HR_BY_COUNT; by++)
    if (by_mask >> by & 1) add_groups(t, p, (hr_group_by)by, rows);
  say_fit(t, p);
  list_pinned(t, p);
  add_growth(t, p, rows / 2 + 1);
  add_trace(t, p);
  if (t->failed || !t->chars) {
    hri_text_deinit(t);
    return hri_fail_memory(error, 4096, "the text of an inspection");
  }
  hri_plain_text(t->chars, "\n");
  *text = t->chars;
  return HR_OK;
}
