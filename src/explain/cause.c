/* From figures to one cause.
 *
 * D total, F free, T requested, A allocated (with private pools P), U reserved but unallocated, R = A + U, S this
 * process,
 * O other processes. The printed figures are rounded, so each comparison is held against the slack of its figures: what
 * the slack leaves open is not certain. The order of the tests is the order in which PyTorch's allocator itself refuses
 * (a cap first, then the driver), after that from the strongest evidence to the weakest:
 *   T > D                         too big, certain: no state of the device could hold it
 *   R + T > cap                   the cap; certain only when the device would have had the memory (F >= T)
 *   F >= T                        the figures do not explain it
 *   A - P + T > D                 too big, certain: live tensors and the request exceed the device
 *   O large and F + O >= T        another process
 *   P large and F + P >= T        private pools
 *   F + U >= T, U >= T or 4 % of R   fragmented, never certain
 *   S - R large                   this process, past the allocator
 *   D - F - R large               another process or this one's own libraries: the text cannot tell
 *   else                          too big
 * "Large" is a tenth of the device. */
#include "base/mem.h"
#include "base/text.h"
#include "explain/cause.h"

/* ---- which bytes are whose ---- */

static uint64_t sub(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* Sums the listed processes, leaving out one that must be this very process under another id: with all that this
 * process reserves, it would not fit into what is used. */
static void sum_processes(hri_oom_message *m) {
  hr_oom_failure *f = &m->failure;
  hr_oom_value *v = f->figures;
  bool used_known = hri_oom_known(&v[HR_OOM_TOTAL]) && hri_oom_known(&v[HR_OOM_FREE]);
  uint64_t used = sub(v[HR_OOM_TOTAL].bytes, v[HR_OOM_FREE].bytes);
  uint64_t mine = hri_oom_known(&v[HR_OOM_THIS_PROCESS]) ? v[HR_OOM_THIS_PROCESS].bytes : 0;
  const uint64_t least_context = 64ull << 20;
  uint64_t sum = 0, slack = 0;
  if (hri_oom_known(&v[HR_OOM_RESERVED]) && v[HR_OOM_RESERVED].bytes > mine) mine = v[HR_OOM_RESERVED].bytes;
  if (hri_oom_known(&v[HR_OOM_ALLOCATED]) && v[HR_OOM_ALLOCATED].bytes > mine) mine = v[HR_OOM_ALLOCATED].bytes;
  if (mine < least_context) mine = least_context; /* whoever asked a device for memory has a context on it */
  for (uint32_t i = 0; i < m->process_count; i++) {
    uint64_t margin = v[HR_OOM_TOTAL].slack_bytes + v[HR_OOM_FREE].slack_bytes + m->process_slack[i] +
                      v[HR_OOM_RESERVED].slack_bytes + v[HR_OOM_THIS_PROCESS].slack_bytes;
    if (used_known && m->processes[i] + mine > used + margin) {
      hri_oom_line(f,
                   "a listed process with %s is this very process under another id: %s + %s would exceed the %s in use",
                   HRI_OOM_SIZE(m->processes[i]), HRI_OOM_SIZE(m->processes[i]), HRI_OOM_SIZE(mine),
                   HRI_OOM_SIZE(used));
      if (!hri_oom_known(&v[HR_OOM_THIS_PROCESS]))
        v[HR_OOM_THIS_PROCESS] = (hr_oom_value){HR_OOM_DERIVED, m->processes[i], m->process_slack[i]};
      continue;
    }
    sum += m->processes[i];
    slack += m->process_slack[i];
    f->process_count++;
  }
  if (f->process_count > 0) v[HR_OOM_OTHER_PROCESSES] = (hr_oom_value){HR_OOM_DERIVED, sum, slack};
}

/* Where the text lists all processes by their ids in another namespace, this one is among them: the one whose bytes are
 * what it reserves and a context, if no other is like it. */
static void find_mine(hri_oom_message *m) {
  const uint64_t context = 2ull << 30;
  hr_oom_value *v = m->failure.figures;
  uint32_t mine = m->process_count, alike = 0;
  if (v[HR_OOM_THIS_PROCESS].state != HR_OOM_ABSENT || m->process_count < 2 || !hri_oom_known(&v[HR_OOM_RESERVED]))
    return;
  for (uint32_t i = 0; i < m->process_count; i++) {
    uint64_t least = v[HR_OOM_RESERVED].bytes,
             has = m->processes[i] + m->process_slack[i] + v[HR_OOM_RESERVED].slack_bytes;
    if (has < least || has - least > context) continue;
    alike++;
    mine = i;
  }
  if (alike != 1) return;
  hri_oom_line(&m->failure, "of the listed processes the one with %s is this one: it alone can hold the %s reserved",
               HRI_OOM_SIZE(m->processes[mine]), HRI_OOM_SIZE(v[HR_OOM_RESERVED].bytes));
  v[HR_OOM_THIS_PROCESS] = (hr_oom_value){HR_OOM_DERIVED, m->processes[mine], m->process_slack[mine]};
  m->process_count--;
  m->processes[mine] = m->processes[m->process_count];
  m->process_slack[mine] = m->process_slack[m->process_count];
}

/* The device's bytes by owner; exactly the total. What rounding or spilling adds comes off the largest share. */
void hri_oom_divide(hr_oom_failure *f) {
  const hr_oom_value *v = f->figures;
  uint64_t total = v[HR_OOM_TOTAL].bytes, sum = 0, excess;
  uint64_t pools = v[HR_OOM_PRIVATE_POOLS].bytes;
  bool mine = hri_oom_known(&v[HR_OOM_THIS_PROCESS]);
  if (!hri_oom_known(&v[HR_OOM_TOTAL])) return;
  f->share_total_bytes = total;
  hri_oom_share(f, "live tensors of this process", sub(v[HR_OOM_ALLOCATED].bytes, pools));
  hri_oom_share(f, "private pools of this process", pools);
  hri_oom_share(f, "reserved by this process, not allocated", v[HR_OOM_UNALLOCATED].bytes);
  if (mine)
    hri_oom_share(f, "this process outside the allocator", sub(v[HR_OOM_THIS_PROCESS].bytes, v[HR_OOM_RESERVED].bytes));
  hri_oom_share(f, "other processes listed", v[HR_OOM_OTHER_PROCESSES].bytes);
  hri_oom_share(f, "free", v[HR_OOM_FREE].bytes);
  for (uint32_t i = 0; i < f->share_count; i++) sum += f->shares[i].bytes;
  hri_oom_share(f,
                mine ? "unknown: processes not listed, driver"
                     : "unknown: other processes, this one's context and libraries",
                sub(total, sum));
  for (excess = f->excess_bytes = sub(sum, total); excess > 0;) {
    uint32_t largest = 0;
    uint64_t take;
    for (uint32_t i = 1; i < f->share_count; i++)
      if (f->shares[i].bytes > f->shares[largest].bytes) largest = i;
    take = f->shares[largest].bytes < excess ? f->shares[largest].bytes : excess;
    f->shares[largest].bytes -= take;
    excess -= take;
  }
}

/* ---- the caching allocator ---- */

typedef struct ledger {
  uint64_t total, free, requested, allocated, unallocated, reserved, mine, others, pools;
  uint64_t slack; /* of total + free + requested + allocated: for sums of those */
  bool knows_requested, knows_total, knows_free, knows_allocated, knows_unallocated, knows_mine;
} ledger;

static ledger ledger_of(const hr_oom_value *v) {
  ledger l = {.total = v[HR_OOM_TOTAL].bytes,
              .free = v[HR_OOM_FREE].bytes,
              .requested = v[HR_OOM_REQUESTED].bytes,
              .allocated = v[HR_OOM_ALLOCATED].bytes,
              .unallocated = v[HR_OOM_UNALLOCATED].bytes,
              .reserved = v[HR_OOM_RESERVED].bytes,
              .mine = v[HR_OOM_THIS_PROCESS].bytes,
              .others = v[HR_OOM_OTHER_PROCESSES].bytes,
              .pools = v[HR_OOM_PRIVATE_POOLS].bytes,
              .knows_requested = hri_oom_known(&v[HR_OOM_REQUESTED]),
              .knows_total = hri_oom_known(&v[HR_OOM_TOTAL]),
              .knows_free = hri_oom_known(&v[HR_OOM_FREE]),
              .knows_allocated = hri_oom_known(&v[HR_OOM_ALLOCATED]),
              .knows_unallocated = hri_oom_known(&v[HR_OOM_UNALLOCATED]),
              .knows_mine = hri_oom_known(&v[HR_OOM_THIS_PROCESS])};
  l.slack = v[HR_OOM_TOTAL].slack_bytes + v[HR_OOM_FREE].slack_bytes + v[HR_OOM_REQUESTED].slack_bytes +
            v[HR_OOM_ALLOCATED].slack_bytes + v[HR_OOM_PRIVATE_POOLS].slack_bytes;
  return l;
}

bool hri_oom_is_wrong_size(const hr_oom_failure *f) {
  const hr_oom_value *request = &f->figures[HR_OOM_REQUESTED], *total = &f->figures[HR_OOM_TOTAL];
  return hri_oom_known(request) &&
         (request->bytes >= 1ull << 60 || (hri_oom_known(total) && request->bytes / 1000 > total->bytes));
}

static bool judge_absurd(hr_oom_failure *f, const ledger *l) {
  bool wrapped = l->requested >= 1ull << 60, absurd = hri_oom_is_wrong_size(f);
  if (!wrapped && !(l->knows_total && l->requested > l->total + l->slack)) return false;
  if (wrapped) {
    hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_CERTAIN,
                "the request is absurd: no device has this much; a size was computed wrongly");
    hri_oom_line(f, "close below 2^64 bytes is a negative size that wrapped around");
  } else if (absurd) {
    hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_CERTAIN,
                "the request of %s is %.0f times the whole device: a size was computed wrongly",
                HRI_OOM_SIZE(l->requested), (double)l->requested / (double)l->total);
    hri_oom_line(f,
                 "requested %s, total %s: such a size comes from corrupted gathered objects, a wrong shape or length",
                 HRI_OOM_SIZE(l->requested), HRI_OOM_SIZE(l->total));
  } else {
    hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_CERTAIN, "one request of %s is larger than the whole device (%s), by %s",
                HRI_OOM_SIZE(l->requested), HRI_OOM_SIZE(l->total), HRI_OOM_SIZE(l->requested - l->total));
    hri_oom_line(f, "requested %s > total %s: no setting and no empty device would make it fit",
                 HRI_OOM_SIZE(l->requested), HRI_OOM_SIZE(l->total));
    hri_oom_line(
        f, "many times the device often comes from wrong sizes: corrupted gathered objects, a wrong shape or length");
  }
  return true;
}

/* Whether what is cached is much, and enough for the request if it were in one piece. */
static bool could_serve_cached(const ledger *l) {
  return l->unallocated >= l->requested && l->unallocated >= l->reserved / 4;
}

/* Whether only the cap can have refused it. What is cached would have served a request as well if it were not in pieces;
 * where the text does not say how much that is, what is allocated must have come close to the cap. */
static bool is_cap_alone(const hr_oom_failure *f, const ledger *l, uint64_t have, uint64_t slack) {
  uint64_t cap = f->figures[HR_OOM_ALLOWED].bytes;
  if (!l->knows_free || l->free < l->requested + l->slack) return false;
  if (l->reserved == 0) return have + l->requested >= cap - cap / 10;
  return !could_serve_cached(l) && have + l->requested > cap + slack;
}

static bool judge_cap(hr_oom_failure *f, const ledger *l) {
  const hr_oom_value *cap = &f->figures[HR_OOM_ALLOWED];
  const char *held = l->reserved > 0 ? "reserved" : "allocated";
  uint64_t have = l->reserved > 0 ? l->reserved : l->allocated;
  uint64_t slack = cap->slack_bytes + f->figures[HR_OOM_REQUESTED].slack_bytes +
                   f->figures[l->reserved > 0 ? HR_OOM_RESERVED : HR_OOM_ALLOCATED].slack_bytes;
  if (!hri_oom_known(cap)) return false;
  if (l->knows_requested && l->knows_free && l->free >= l->requested + l->slack && cap->bytes < l->total &&
      l->requested > cap->bytes + cap->slack_bytes + f->figures[HR_OOM_REQUESTED].slack_bytes) {
    hri_oom_line(f, "requested %s > allowed %s, whatever was held before; the device itself had %s free",
                 HRI_OOM_SIZE(l->requested), HRI_OOM_SIZE(cap->bytes), HRI_OOM_SIZE(l->free));
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_CERTAIN, "a cap of %s refused it, with %s free on the device",
                HRI_OOM_SIZE(cap->bytes), HRI_OOM_SIZE(l->free));
    return true;
  }
  if (!l->knows_allocated && l->reserved == 0) {
    hri_oom_line(f, "a cap of %s is printed; what was held of it is not in the text", HRI_OOM_SIZE(cap->bytes));
    return false;
  }
  if (have + l->requested <= cap->bytes && have + l->requested + slack > cap->bytes) {
    hri_oom_line(f, "%s %s + requested %s reach the cap of %s within the rounding of the figures: it may be the cause",
                 held, HRI_OOM_SIZE(have), HRI_OOM_SIZE(l->requested), HRI_OOM_SIZE(cap->bytes));
    if (!l->knows_free || l->free < l->requested) return false;
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_LIKELY, "a cap of %s refused it", HRI_OOM_SIZE(cap->bytes));
    return true;
  }
  if (have + l->requested <= cap->bytes && !l->knows_unallocated && l->reserved == 0 && l->knows_free &&
      l->free >= l->requested + l->slack && cap->bytes < l->total) {
    hri_oom_line(f, "a cap of %s is printed, and the device had %s free; what is cached of it is not in the text",
                 HRI_OOM_SIZE(cap->bytes), HRI_OOM_SIZE(l->free));
    hri_oom_say(f, HR_OOM_CAP, is_cap_alone(f, l, have, slack) ? HR_OOM_CERTAIN : HR_OOM_LIKELY,
                "a cap of %s refused it, with what is cached", HRI_OOM_SIZE(cap->bytes));
    return true;
  }
  if (have + l->requested <= cap->bytes) {
    hri_oom_line(f, "a cap of %s is printed but is not the cause: %s %s + requested %s stay below it",
                 HRI_OOM_SIZE(cap->bytes), held, HRI_OOM_SIZE(have), HRI_OOM_SIZE(l->requested));
    return false;
  }
  hri_oom_line(f, "%s %s + requested %s = %s > allowed %s", held, HRI_OOM_SIZE(have), HRI_OOM_SIZE(l->requested),
               HRI_OOM_SIZE(have + l->requested), HRI_OOM_SIZE(cap->bytes));
  if (l->knows_total && cap->bytes >= l->total) return false;
  if (is_cap_alone(f, l, have, slack)) {
    hri_oom_line(f, "the device itself had %s free", HRI_OOM_SIZE(l->free));
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_CERTAIN, "a cap of %s refused it, with %s free on the device",
                HRI_OOM_SIZE(cap->bytes), HRI_OOM_SIZE(l->free));
  } else {
    if (!l->knows_free) hri_oom_line(f, "how much the device had free is not in the text");
    else if (l->free < l->requested) hri_oom_line(f, "without the cap the device would not have had the memory either");
    else if (could_serve_cached(l))
      hri_oom_line(f, "but %s are reserved and unallocated: in one piece they would have served it",
                   HRI_OOM_SIZE(l->unallocated));
    else
      hri_oom_line(f, "the device itself had %s free; the figures are rounded, so this is close",
                   HRI_OOM_SIZE(l->free));
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_LIKELY, "a cap of %s refused it", HRI_OOM_SIZE(cap->bytes));
  }
  return true;
}

/* What free memory serves: an expandable segment of tensors above 1 MiB grows by chunks of 20 MiB. */
static uint64_t usable_free(const hri_oom_message *m, const ledger *l) {
  return m->expandable && l->requested > 2ull << 20 ? l->free / (20ull << 20) * (20ull << 20) : l->free;
}

static bool judge_free_enough(const hri_oom_message *m, hr_oom_failure *f, const ledger *l) {
  if (!l->knows_free || !l->knows_requested || l->free < l->requested) return false;
  if (usable_free(m, l) < l->requested) {
    hri_oom_line(f, "free %s, of which expandable segments can use %s: they grow by 20 MiB at a time",
                 HRI_OOM_SIZE(l->free), HRI_OOM_SIZE(usable_free(m, l)));
    return false;
  }
  hri_oom_line(f, "free %s >= requested %s, and it failed all the same", HRI_OOM_SIZE(l->free),
               HRI_OOM_SIZE(l->requested));
  hri_oom_line(
      f,
      "what can do that: another process or rank that took memory and gave it back; a limit of a container, MIG or vGPU");
  hri_oom_line(
      f,
      "or figures read a moment after the failure; address space of the driver in pieces; a cap that is not printed");
  hri_oom_undecided(f,
                    HRI_OOM_COULD(OTHER_PROCESS) | HRI_OOM_COULD(CAP) | HRI_OOM_COULD(FRAGMENTED) |
                        HRI_OOM_COULD(OUTSIDE_ALLOCATOR),
                    "not explained by the figures: more was free than requested");
  return true;
}

/* The job fitted for some steps: a text cannot tell what grew from a batch that was larger than those before. */
static void judge_late(hr_oom_failure *f) {
  hri_oom_line(f, "steps were done before it failed: the job as such fits");
  hri_oom_line(f, "a leak makes the allocated bytes rise from step to step; a long batch fails whenever it comes");
  hri_oom_undecided(f, HRI_OOM_COULD(GROWTH) | HRI_OOM_COULD(OUTLIER_BATCH),
                    "steps were done before: memory grew, or this batch was larger than those");
}

/* `m` may be NULL: the request is not known. */
static bool judge_live(const hri_oom_message *m, hr_oom_failure *f, const ledger *l) {
  uint64_t live = sub(l->allocated, l->pools), least;
  if (!l->knows_allocated || !l->knows_total) return false;
  if (l->allocated > l->total + l->slack) {
    hri_oom_line(f, "allocated %s > total %s: the driver has spilled %s into host memory", HRI_OOM_SIZE(l->allocated),
                 HRI_OOM_SIZE(l->total), HRI_OOM_SIZE(l->allocated - l->total));
    hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_CERTAIN, "live memory alone exceeds the device by %s",
                HRI_OOM_SIZE(l->allocated - l->total));
    return true;
  }
  if (!l->knows_requested) return false;
  /* The request printed is a segment: the least that the tensor itself can have been. */
  least = l->requested <= 2ull << 20 ? 0 : l->requested <= 20ull << 20 ? 1ull << 20 : l->requested - (2ull << 20);
  if (live + least <= l->total + l->slack) return false;
  hri_oom_line(f, "live tensors %s + requested %s = %s > total %s", HRI_OOM_SIZE(live), HRI_OOM_SIZE(l->requested),
               HRI_OOM_SIZE(live + l->requested), HRI_OOM_SIZE(l->total));
  if (m && m->has_run) {
    judge_late(f);
    return true;
  }
  hri_oom_line(
      f, "whether what is live belongs there or piled up (a leak, one long batch) a text cannot tell: a snapshot does");
  if (m && m->pools_cut)
    hri_oom_line(f, "how much of what is allocated lies free in private pools is cut from the text");
  hri_oom_say(f, HR_OOM_TOO_BIG, m && m->pools_cut ? HR_OOM_LIKELY : HR_OOM_CERTAIN,
              "live tensors and the request exceed the whole device by %s",
              HRI_OOM_SIZE(live + l->requested - l->total));
  return true;
}

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
static uint64_t others_at_least(const hri_oom_message *m, const ledger *l) {
  uint64_t used = sub(l->total, l->free), largest = 0, rest;
  for (uint32_t i = 0; i < m->process_count; i++)
    if (m->processes[i] > largest) largest = m->processes[i];
  rest = sub(used, largest);
  return m->process_count < 2 ? 0 : rest < l->others ? rest : l->others;
}

/* Whether a cap may have refused it as well, within the rounding of what is held and requested. */
static bool is_cap_close(const hr_oom_failure *f, const ledger *l) {
  const hr_oom_value *v = f->figures, *cap = &v[HR_OOM_ALLOWED];
  const uint64_t slack = cap->slack_bytes + v[HR_OOM_REQUESTED].slack_bytes + v[HR_OOM_RESERVED].slack_bytes;
  return cap->state == HR_OOM_NOT_KNOWN || (hri_oom_known(cap) && l->reserved + l->requested + slack >= cap->bytes);
}

static bool judge_others(hri_oom_message *m, const ledger *l) {
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
  if (is_cap_close(f, l)) proven = false;
  if (l->free + l->others < l->requested + l->slack + f->figures[HR_OOM_OTHER_PROCESSES].slack_bytes) proven = false;
  hri_oom_say(f, HR_OOM_OTHER_PROCESS, proven && l->others >= l->total / 4 ? HR_OOM_CERTAIN : HR_OOM_LIKELY,
              "%u other process%s %s %s of the device's %s", f->process_count, f->process_count == 1 ? "" : "es",
              f->process_count == 1 ? "holds" : "hold", HRI_OOM_SIZE(l->others), HRI_OOM_SIZE(l->total));
  return true;
}

static bool judge_pools(hr_oom_failure *f, const ledger *l) {
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

static bool judge_pieces(hri_oom_message *m, const ledger *l) {
  hr_oom_failure *f = &m->failure;
  double percent = l->reserved > 0 ? 100.0 * (double)l->unallocated / (double)l->reserved : 0;
  /* what is cached would have served the request by itself; a small one comes from a pool of its own */
  uint64_t slack =
      m->failure.figures[HR_OOM_UNALLOCATED].slack_bytes + m->failure.figures[HR_OOM_REQUESTED].slack_bytes;
  bool serves = l->unallocated >= l->requested + slack && l->requested > 2ull << 20, normal = percent < 4 && !serves;
  if (!l->knows_unallocated || l->unallocated == 0) return false;
  if (l->free + l->unallocated < l->requested) return false;
  if (l->knows_free)
    hri_oom_line(f, "free %s + reserved but unallocated %s >= requested %s", HRI_OOM_SIZE(l->free),
                 HRI_OOM_SIZE(l->unallocated), HRI_OOM_SIZE(l->requested));
  else
    hri_oom_line(f, "reserved but unallocated %s >= requested %s, whatever was free", HRI_OOM_SIZE(l->unallocated),
                 HRI_OOM_SIZE(l->requested));
  hri_oom_line(f, "unallocated is %.1f %% of reserved; below 4 %% is normal", percent);
  if (normal && !m->capturing) return false;
  if (m->capturing) {
    hri_oom_line(f, "a CUDA graph was being captured or a MemPool in use: cached blocks are not returned then");
    hri_oom_say(f, HR_OOM_CACHED_NOT_RETURNED, HR_OOM_LIKELY, "%s are cached and could not be returned",
                HRI_OOM_SIZE(l->unallocated));
  } else {
    hri_oom_line(f, "a message cannot prove it: only a snapshot shows the pieces");
    hri_oom_say(f, HR_OOM_FRAGMENTED, HR_OOM_LIKELY, "%s are reserved but in pieces too small for %s",
                HRI_OOM_SIZE(l->unallocated), HRI_OOM_SIZE(l->requested));
  }
  return true;
}

/* The most that context and libraries of one process take on such a device. It does not grow with the device's memory:
 * messages that print both figures have 0.1 to 1.3 GiB outside the allocator, on 4 GiB as on 80, and one of 40 GiB 1.9. So
 * 1.5 GiB, 2 GiB from 32 GiB on; on a small device no more than a quarter, but 768 MiB on any. */
static uint64_t context_most(uint64_t total) {
  const uint64_t most = total >= 32ull << 30 ? 2ull << 30 : 3ull << 29, least = 3ull << 28;
  const uint64_t quarter = total / 4 > least ? total / 4 : least;
  return quarter < most ? quarter : most;
}

/* What this process has past the allocator, and what neither it nor a listed process has. */
static bool judge_outside(hr_oom_failure *f, const ledger *l) {
  uint64_t outside = sub(l->mine, l->reserved), missing = sub(l->total, l->free + l->mine + l->others);
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
static bool judge_gap(hr_oom_failure *f, const ledger *l) {
  const uint64_t context = 3ull << 29;
  uint64_t gap = sub(l->total, l->free + l->reserved + l->others);
  if (l->knows_mine || !l->knows_total || !l->knows_free || !l->knows_allocated || !l->knows_unallocated) return false;
  if (gap < context_most(l->total) || l->free + gap < l->requested) return false;
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

/* Next to nothing of the device: what cannot hold more than a context, or a tenth. */
static bool is_full(const ledger *l) {
  const uint64_t rest = sub(l->total, l->allocated), tenth = l->total / 10, context = context_most(l->total);
  return rest <= (tenth > context ? tenth : context);
}

static void judge_full(const hri_oom_message *m, hr_oom_failure *f, const ledger *l) {
  uint64_t have = l->free + l->unallocated;
  if (!l->knows_free && l->knows_allocated && l->knows_total && is_full(l)) {
    hri_oom_line(f, "how much was free is cut; total %s - allocated %s = %s is all that can be free, cached or others'",
                 HRI_OOM_SIZE(l->total), HRI_OOM_SIZE(l->allocated), HRI_OOM_SIZE(sub(l->total, l->allocated)));
    if (m->has_run) judge_late(f);
    else
      hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_LIKELY, "live tensors fill the device: %s of %s",
                  HRI_OOM_SIZE(l->allocated), HRI_OOM_SIZE(l->total));
    return;
  }
  if (l->knows_free && !l->knows_allocated && l->requested - l->free >= l->total / 4 && l->knows_total &&
      m->process_count == 0) {
    hri_oom_line(f,
                 "requested %s - free %s: for pieces or a context to be the cause, %s would have to be cached or lost",
                 HRI_OOM_SIZE(l->requested), HRI_OOM_SIZE(l->free), HRI_OOM_SIZE(l->requested - l->free));
    hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_LIKELY, "too big: one request of %s, more than a quarter of the device",
                HRI_OOM_SIZE(l->requested));
    return;
  }
  if (!l->knows_free || !l->knows_allocated) {
    hri_oom_line(f, "how much was free is needed to tell a full device from one in pieces or in use by others");
    hri_oom_undecided(f,
                      HRI_OOM_COULD(TOO_BIG) | HRI_OOM_COULD(FRAGMENTED) | HRI_OOM_COULD(OTHER_PROCESS) |
                          HRI_OOM_COULD(CAP),
                      "the text lacks the figures to decide");
    return;
  }
  if (have < l->requested)
    hri_oom_line(f, "free %s + unallocated %s = %s < requested %s: short by %s", HRI_OOM_SIZE(l->free),
                 HRI_OOM_SIZE(l->unallocated), HRI_OOM_SIZE(have), HRI_OOM_SIZE(l->requested),
                 HRI_OOM_SIZE(l->requested - have));
  if (m->has_run) {
    judge_late(f);
    return;
  }
  if (have < l->requested) {
    hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_LIKELY, "too big by %s: live tensors fill the device",
                HRI_OOM_SIZE(l->requested - have));
  } else {
    hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_LIKELY, "live tensors fill the device: %s of %s", HRI_OOM_SIZE(l->allocated),
                HRI_OOM_SIZE(l->total));
  }
}

/* The request was cut from the text: what other figures decide, whatever it was. */
static bool judge_without_request(hr_oom_failure *f, const ledger *l) {
  const hr_oom_value *cap = &f->figures[HR_OOM_ALLOWED];
  uint64_t others = sub(l->total, l->free + cap->bytes), context = 3ull << 29;
  if (l->knows_requested) return false;
  if (l->knows_total && l->knows_allocated && judge_live(NULL, f, l)) return true;
  if (hri_oom_known(cap) && l->knows_total && l->knows_free && l->allocated <= cap->bytes &&
      others >= l->total / 2 + context) {
    hri_oom_line(f, "total %s - free %s - allowed to this process %s = %s held by others, whatever was requested",
                 HRI_OOM_SIZE(l->total), HRI_OOM_SIZE(l->free), HRI_OOM_SIZE(cap->bytes), HRI_OOM_SIZE(others));
    hri_oom_line(f, "the cap may have refused it all the same: how much was requested is cut");
    hri_oom_say(f, HR_OOM_OTHER_PROCESS, HR_OOM_LIKELY, "other processes hold %s of the device's %s or more",
                HRI_OOM_SIZE(others), HRI_OOM_SIZE(l->total));
    return true;
  }
  hri_oom_line(f, "the message is cut: what was requested is not in it");
  hri_oom_undecided(f,
                    HRI_OOM_COULD(TOO_BIG) | HRI_OOM_COULD(OTHER_PROCESS) | HRI_OOM_COULD(OUTSIDE_ALLOCATOR) |
                        HRI_OOM_COULD(FRAGMENTED),
                    "undecidable: what was requested is missing");
  return true;
}

static void note_segment(hr_oom_failure *f) {
  uint64_t t = f->figures[HR_OOM_REQUESTED].bytes;
  if (t == 2ull << 20) hri_oom_line(f, "2 MiB is the segment that PyTorch asks for: the tensor itself was up to 1 MiB");
  if (t == 20ull << 20)
    hri_oom_line(f, "20 MiB is the segment that PyTorch asks for: the tensor itself was 1 to 10 MiB");
}

void hri_oom_judge_caching(hri_oom_message *m) {
  hr_oom_failure *f = &m->failure;
  ledger l;
  find_mine(m);
  sum_processes(m);
  l = ledger_of(f->figures);
  hri_oom_divide(f);
  note_segment(f);
  if (m->exact)
    hri_oom_line(f, "a log line of the allocator: it lets go of cached blocks and asks again, which may have worked");
  if (judge_without_request(f, &l) || judge_absurd(f, &l) || judge_cap(f, &l) || judge_free_enough(m, f, &l) ||
      judge_live(m, f, &l) || judge_others(m, &l) || judge_pools(f, &l) || judge_gap(f, &l) || judge_pieces(m, &l) ||
      judge_outside(f, &l))
    return;
  judge_full(m, f, &l);
}

void hri_oom_judge_async(hri_oom_message *m) {
  hr_oom_failure *f = &m->failure;
  ledger l = ledger_of(f->figures);
  hri_oom_divide(f);
  if (f->figures[HR_OOM_ALLOWED].state == HR_OOM_NOT_KNOWN)
    hri_oom_line(f, "\"would exceed allowed memory\" is this backend's wording; no cap is set");
  if (judge_without_request(f, &l) || judge_absurd(f, &l) || judge_cap(f, &l) || judge_free_enough(m, f, &l) ||
      judge_live(m, f, &l))
    return;
  l.knows_unallocated = true; /* the driver's pool has no such figure */
  l.reserved = l.allocated;
  if (!judge_gap(f, &l) && !judge_outside(f, &l)) judge_full(m, f, &l);
}

void hri_oom_judge_mps(hri_oom_message *m) {
  hr_oom_failure *f = &m->failure;
  const hr_oom_value *v = f->figures;
  uint64_t sum = v[HR_OOM_ALLOCATED].bytes + m->aside.bytes + v[HR_OOM_REQUESTED].bytes;
  uint64_t slack = v[HR_OOM_ALLOCATED].slack_bytes + m->aside.slack_bytes + v[HR_OOM_REQUESTED].slack_bytes +
                   v[HR_OOM_ALLOWED].slack_bytes;
  if (hri_oom_known(&v[HR_OOM_ALLOWED]) && v[HR_OOM_REQUESTED].state == HR_OOM_ABSENT) {
    hri_oom_line(f, "the watermark allows %s; what was requested is not in the text, but only the watermark speaks so",
                 HRI_OOM_SIZE(v[HR_OOM_ALLOWED].bytes));
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_CERTAIN, "the MPS watermark of %s refused it",
                HRI_OOM_SIZE(v[HR_OOM_ALLOWED].bytes));
    return;
  }
  if (!hri_oom_known(&v[HR_OOM_ALLOWED]) || !hri_oom_known(&v[HR_OOM_ALLOCATED])) {
    hri_oom_line(f, "without a watermark, MPS stops where the machine's memory, shared with all programs, ends");
    hri_oom_undecided(f, HRI_OOM_COULD(TOO_BIG) | HRI_OOM_COULD(CAP),
                      "no watermark is in the text: the machine's memory may be full");
    return;
  }
  hri_oom_line(f, "MPS %s + other %s + requested %s = %s; the watermark allows %s",
               HRI_OOM_SIZE(v[HR_OOM_ALLOCATED].bytes), HRI_OOM_SIZE(m->aside.bytes),
               HRI_OOM_SIZE(v[HR_OOM_REQUESTED].bytes), HRI_OOM_SIZE(sum), HRI_OOM_SIZE(v[HR_OOM_ALLOWED].bytes));
  hri_oom_line(f, "\"private pool\" is a storage mode of Metal here, not a pool of CUDA graphs");
  if (sum > v[HR_OOM_ALLOWED].bytes + slack)
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_CERTAIN, "the MPS watermark of %s refused it",
                HRI_OOM_SIZE(v[HR_OOM_ALLOWED].bytes));
  else if (sum + slack >= v[HR_OOM_ALLOWED].bytes)
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_LIKELY, "the MPS watermark of %s refused it, within rounding",
                HRI_OOM_SIZE(v[HR_OOM_ALLOWED].bytes));
  else
    hri_oom_undecided(f, HRI_OOM_COULD(CAP) | HRI_OOM_COULD(OTHER_PROCESS) | HRI_OOM_COULD(TOO_BIG),
                      "not explained by the figures: below the watermark");
}

/* Somebody's allocation failed; whose it is and of which memory the text does not say, or only that it was a device's. */
void hri_oom_judge_report(hr_oom_failure *f) {
  ledger l = ledger_of(f->figures);
  uint32_t host = strcmp(f->source, "device") == 0 ? 0 : HRI_OOM_COULD(HOST_MEMORY);
  hri_oom_divide(f);
  if (judge_absurd(f, &l)) return;
  if (hri_oom_known(&f->figures[HR_OOM_REQUESTED]))
    hri_oom_line(f, "requested %s; the text does not say what else was held", HRI_OOM_SIZE(l.requested));
  else hri_oom_line(f, "the message has no figures");
  hri_oom_line(f, host ? "an allocation failed; of which memory, and by whom, the text does not say"
                       : "an allocation of device memory failed; by whom, the text does not say");
  hri_oom_undecided(f, HRI_OOM_COULD(TOO_BIG) | HRI_OOM_COULD(OTHER_PROCESS) | HRI_OOM_COULD(OUTSIDE_ALLOCATOR) | host,
                    host ? "undecidable: an allocation failed, of memory that is not named"
                         : "undecidable: an allocation on the device failed, without the figures to decide");
}
