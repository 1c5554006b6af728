/* Memory of the device that the request could not have, though nothing live of this process's allocator is in it: what
 * other processes hold, what lies in private pools, what this process took past the allocator, and what no figure
 * names.
 *
 * The neighbours may rely on this: each is the cause only where it is large and where the request would have been met
 * without it; it is certain only for other processes, where the text tells them from this one and nothing else would
 * explain it. */
#include "explain/cause_parts.h"

/* Many equal small entries are the contexts that sibling ranks opened on the first device. */
static void note_siblings(hri_oom_message *m) {
  uint32_t equal = 0;
  for (uint32_t i = 1; i < m->process_count; i++)
    if (m->processes[i] == m->processes[0]) equal++;
  if (m->process_count > 2 && equal + 1 == m->process_count)
    hri_oom_line(&m->failure,
                 "%u processes with %s each: probably sibling ranks that all opened a context on this device",
                 m->process_count, HRI_OOM_SIZE(m->processes[0]));
}

/* What other processes hold at the least, where the text does not say which process is this one: it may be the largest
 * of those listed, or none of them. */
static uint64_t others_at_least(const hri_oom_message *m, const hri_oom_ledger *l) {
  uint64_t used = hri_oom_less(l->total, l->free), largest = 0, rest;
  for (uint32_t i = 0; i < m->process_count; i++)
    if (m->processes[i] > largest) largest = m->processes[i];
  rest = hri_oom_less(used, largest);
  return m->process_count < 2 ? 0 : rest < l->others ? rest : l->others;
}

bool hri_oom_judge_others(hri_oom_message *m, const hri_oom_ledger *l) {
  hr_oom_failure *f = &m->failure;
  uint64_t least = l->knows_mine ? 0 : others_at_least(m, l);
  bool proven = (l->knows_mine && l->mine + f->figures[HR_OOM_THIS_PROCESS].slack_bytes >= l->reserved) ||
                (least >= l->total / 4 && l->free + least >= l->requested + l->slack);
  if (l->others == 0 || !l->knows_total || !l->knows_free) return false;
  note_siblings(m);
  if (l->others < l->total / 10 || l->free + l->others < l->requested) return false;
  hri_oom_line(f, "other processes hold %s of %s; free %s + %s >= requested %s", HRI_OOM_SIZE(l->others),
               HRI_OOM_SIZE(l->total), HRI_OOM_SIZE(l->free), HRI_OOM_SIZE(l->others), HRI_OOM_SIZE(l->requested));
  if (!proven && m->process_count == 1 && l->others >= l->reserved) {
    hri_oom_line(
        f,
        "this process's own figure is missing: the one process listed can be this very process (container ids differ)");
    hri_oom_undecided(f, HRI_OOM_COULD(OTHER_PROCESS) | HRI_OOM_COULD(OUTSIDE_ALLOCATOR) | HRI_OOM_COULD(TOO_BIG),
                      "the one listed process may be another one or this very process");
    return true;
  }
  if (l->knows_unallocated && l->free + l->unallocated >= l->requested) {
    hri_oom_line(f, "but free %s + reserved and unallocated %s would do as well: pieces may be part of it",
                 HRI_OOM_SIZE(l->free), HRI_OOM_SIZE(l->unallocated));
    proven = false;
  }
  if (!l->knows_allocated || !l->knows_unallocated || m->abridged) { /* a cap stands between those and the processes */
    hri_oom_line(f, "whether a cap or pieces refused it as well is cut from the text");
    proven = false;
  }
  if (hri_oom_is_cap_close(f, l)) proven = false;
  if (l->free + l->others < l->requested + l->fit_slack + f->figures[HR_OOM_OTHER_PROCESSES].slack_bytes)
    proven = false;
  hri_oom_say(f, HR_OOM_OTHER_PROCESS, proven && l->others >= l->total / 4 ? HR_OOM_CERTAIN : HR_OOM_LIKELY,
              "%u other process%s %s %s of the device's %s", f->process_count, f->process_count == 1 ? "" : "es",
              f->process_count == 1 ? "holds" : "hold", HRI_OOM_SIZE(l->others), HRI_OOM_SIZE(l->total));
  return true;
}

bool hri_oom_judge_pools(hr_oom_failure *f, const hri_oom_ledger *l) {
  if (l->pools == 0 || l->pools < l->total / 10 || l->free + l->pools < l->requested) return false;
  if (l->knows_unallocated && l->unallocated >= l->requested && l->unallocated > l->pools)
    return false; /* more lies in pieces than in pools */
  hri_oom_line(f, "private pools hold %s of the %s allocated; their free blocks serve nobody else",
               HRI_OOM_SIZE(l->pools), HRI_OOM_SIZE(l->allocated));
  hri_oom_line(f, "free %s + pools %s >= requested %s", HRI_OOM_SIZE(l->free), HRI_OOM_SIZE(l->pools),
               HRI_OOM_SIZE(l->requested));
  hri_oom_say(f, HR_OOM_PRIVATE_POOL, HR_OOM_LIKELY, "%s are in private pools (CUDA graphs, MemPool)",
              HRI_OOM_SIZE(l->pools));
  return true;
}

/* The most that context and libraries of one process take on such a device. It does not grow with the device's memory:
 * messages that print both figures have 0.1 to 1.3 GiB outside the allocator, on 4 GiB as on 80, and one of 40 GiB 1.9.
 * So 1.5 GiB, 2 GiB from 32 GiB on; on a small device no more than a quarter, but 768 MiB on any. */
uint64_t hri_oom_context_most(uint64_t total) {
  const uint64_t most = total >= 32ull << 30 ? 2ull << 30 : 3ull << 29, least = 3ull << 28;
  const uint64_t quarter = total / 4 > least ? total / 4 : least;
  return quarter < most ? quarter : most;
}

/* What this process has past the allocator, and what neither it nor a listed process has. */
bool hri_oom_judge_outside(hr_oom_failure *f, const hri_oom_ledger *l) {
  uint64_t outside = hri_oom_less(l->mine, l->reserved),
           missing = hri_oom_less(l->total, l->free + l->mine + l->others);
  if (!l->knows_total || !l->knows_free || !l->knows_mine) return false;
  if (l->knows_allocated && l->knows_unallocated && outside >= l->total / 10 && outside >= 3ull << 28 &&
      l->free + outside >= l->requested) { /* more than a context */
    hri_oom_line(f, "this process %s - reserved %s = %s outside the allocator", HRI_OOM_SIZE(l->mine),
                 HRI_OOM_SIZE(l->reserved), HRI_OOM_SIZE(outside));
    hri_oom_say(f, HR_OOM_OUTSIDE_ALLOCATOR, HR_OOM_LIKELY, "%s of this process are outside PyTorch's allocator",
                HRI_OOM_SIZE(outside));
    return true;
  }
  if (missing < l->total / 10 || l->free + missing < l->requested) return false;
  hri_oom_line(f, "total %s - free %s - this process %s - listed %s = %s that nobody listed holds",
               HRI_OOM_SIZE(l->total), HRI_OOM_SIZE(l->free), HRI_OOM_SIZE(l->mine), HRI_OOM_SIZE(l->others),
               HRI_OOM_SIZE(missing));
  hri_oom_line(f, "the list of processes is often incomplete (containers, other users)");
  hri_oom_say(f, HR_OOM_OTHER_PROCESS, HR_OOM_LIKELY, "%s are held by something that the message does not list",
              HRI_OOM_SIZE(missing));
  return true;
}

/* What no figure names, where this process's own is not printed: much of it is no context of its own. */
bool hri_oom_judge_gap(hr_oom_failure *f, const hri_oom_ledger *l) {
  const uint64_t context = 3ull << 29;
  uint64_t gap = hri_oom_less(l->total, l->free + l->reserved + l->others);
  if (l->knows_mine || !l->knows_total || !l->knows_free || !l->knows_allocated || !l->knows_unallocated) return false;
  if (gap < hri_oom_context_most(l->total) || l->free + gap < l->requested) return false;
  hri_oom_line(f, "total %s - free %s - reserved %s = %s held by others or past the allocator", HRI_OOM_SIZE(l->total),
               HRI_OOM_SIZE(l->free), HRI_OOM_SIZE(l->reserved), HRI_OOM_SIZE(gap));
  if (gap >= l->total / 2 && gap >= context) {
    hri_oom_line(f, "that is more than half of the device and more than one process's context and libraries take");
    hri_oom_say(f, HR_OOM_OTHER_PROCESS, HR_OOM_LIKELY,
                "%s of %s are held by something else than this process's allocator", HRI_OOM_SIZE(gap),
                HRI_OOM_SIZE(l->total));
    return true;
  }
  hri_oom_line(f, "the text cannot tell another process from this process's own context and libraries");
  hri_oom_undecided(f, HRI_OOM_COULD(OTHER_PROCESS) | HRI_OOM_COULD(OUTSIDE_ALLOCATOR),
                    "much of the device is held by something the text does not name");
  return true;
}
