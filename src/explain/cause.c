/* From figures to one cause.
 *
 * D total, F free, T requested, A allocated (with private pools P), U reserved but unallocated, R = A + U, S this
 * process, O other processes. The printed figures are rounded, so each comparison is held against the slack of its
 * figures: what the slack leaves open is not certain. The order of the tests is the order in which PyTorch's allocator
 * itself refuses (a cap first, then the driver), after that from the strongest evidence to the weakest:
 *   T > D                         too big, certain: no state of the device could hold it
 *   R + T > cap                   the cap; certain only when the device would have had the memory (F >= T): cause_cap.c
 *   F >= T                        the figures do not explain it
 *   A - P + T > D                 too big, certain: live tensors and the request exceed the device
 *   O large and F + O >= T        another process: this row and the next two are in cause_held.c
 *   P large and F + P >= T        private pools
 *   D - F - R above a context     S is not printed: another process or this one's own libraries, the text cannot tell
 *   F + U >= T, U >= T or 4 % of R   fragmented, never certain
 *   S - R large                   this process, past the allocator: this row and the next are in cause_held.c
 *   D - F - S - O large           a process that is not listed
 *   else                          too big
 * "Large" is a tenth of the device. Whose bytes are whose is settled before (cause_owners.c). */
#include "explain/cause_parts.h"

/* ---- the caching allocator ---- */

bool hri_oom_is_wrong_size(const hr_oom_failure *f) {
  const hr_oom_value *request = &f->figures[HR_OOM_REQUESTED], *total = &f->figures[HR_OOM_TOTAL];
  return hri_oom_known(request) &&
         (request->bytes >= 1ull << 60 || (hri_oom_known(total) && request->bytes / 1000 > total->bytes));
}

static bool judge_absurd(hr_oom_failure *f, const hri_oom_ledger *l) {
  bool wrapped = l->requested >= 1ull << 60, absurd = hri_oom_is_wrong_size(f);
  if (!wrapped && !(l->knows_total && l->requested > l->total + l->request_slack)) return false;
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

/* What free memory serves: an expandable segment of tensors above 1 MiB grows by chunks of 20 MiB. */
static uint64_t usable_free(const hri_oom_message *m, const hri_oom_ledger *l) {
  return m->expandable && l->requested > 2ull << 20 ? l->free / (20ull << 20) * (20ull << 20) : l->free;
}

static bool judge_free_enough(const hri_oom_message *m, hr_oom_failure *f, const hri_oom_ledger *l) {
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
static bool judge_live(const hri_oom_message *m, hr_oom_failure *f, const hri_oom_ledger *l) {
  uint64_t live = hri_oom_less(l->allocated, l->pools), least;
  if (!l->knows_allocated || !l->knows_total) return false;
  if (l->allocated > l->total + l->held_slack) {
    hri_oom_line(f, "allocated %s > total %s: the driver has spilled %s into host memory", HRI_OOM_SIZE(l->allocated),
                 HRI_OOM_SIZE(l->total), HRI_OOM_SIZE(l->allocated - l->total));
    hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_CERTAIN, "live memory alone exceeds the device by %s",
                HRI_OOM_SIZE(l->allocated - l->total));
    return true;
  }
  if (!l->knows_requested) return false;
  /* The request printed is a segment: the least that the tensor itself can have been. */
  least = l->requested <= 2ull << 20 ? 0 : l->requested <= 20ull << 20 ? 1ull << 20 : l->requested - (2ull << 20);
  if (live + least <= l->total + l->live_slack) return false;
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

static bool judge_pieces(hri_oom_message *m, const hri_oom_ledger *l) {
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

/* Next to nothing of the device: what cannot hold more than a context, or a tenth. */
static bool is_full(const hri_oom_ledger *l) {
  const uint64_t rest = hri_oom_less(l->total, l->allocated), tenth = l->total / 10,
                 context = hri_oom_context_most(l->total);
  return rest <= (tenth > context ? tenth : context);
}

static void judge_full(const hri_oom_message *m, hr_oom_failure *f, const hri_oom_ledger *l) {
  uint64_t have = l->free + l->unallocated;
  if (!l->knows_free && l->knows_allocated && l->knows_total && is_full(l)) {
    hri_oom_line(f, "how much was free is cut; total %s - allocated %s = %s is all that can be free, cached or others'",
                 HRI_OOM_SIZE(l->total), HRI_OOM_SIZE(l->allocated),
                 HRI_OOM_SIZE(hri_oom_less(l->total, l->allocated)));
    if (m->has_run) judge_late(f);
    else
      hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_LIKELY, "live tensors fill the device: %s of %s",
                  HRI_OOM_SIZE(l->allocated), HRI_OOM_SIZE(l->total));
    return;
  }
  if (l->knows_free && !l->knows_allocated && hri_oom_less(l->requested, l->free) >= l->total / 4 && l->knows_total &&
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
static bool judge_without_request(hr_oom_failure *f, const hri_oom_ledger *l) {
  const hr_oom_value *cap = &f->figures[HR_OOM_ALLOWED];
  uint64_t others = hri_oom_less(l->total, l->free + cap->bytes), context = 3ull << 29;
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
  hri_oom_ledger l;
  hri_oom_find_owners(m);
  l = hri_oom_ledger_of(f->figures);
  hri_oom_divide(f);
  note_segment(f);
  if (m->exact)
    hri_oom_line(f, "a log line of the allocator: it lets go of cached blocks and asks again, which may have worked");
  if (judge_without_request(f, &l) || judge_absurd(f, &l) || hri_oom_judge_cap(f, &l) || judge_free_enough(m, f, &l) ||
      judge_live(m, f, &l) || hri_oom_judge_others(m, &l) || hri_oom_judge_pools(f, &l) || hri_oom_judge_gap(f, &l) ||
      judge_pieces(m, &l) || hri_oom_judge_outside(f, &l))
    return;
  judge_full(m, f, &l);
}

void hri_oom_judge_async(hri_oom_message *m) {
  hr_oom_failure *f = &m->failure;
  hri_oom_ledger l = hri_oom_ledger_of(f->figures);
  hri_oom_divide(f);
  if (f->figures[HR_OOM_ALLOWED].state == HR_OOM_NOT_KNOWN)
    hri_oom_line(f, "\"would exceed allowed memory\" is this backend's wording; no cap is set");
  if (judge_without_request(f, &l) || judge_absurd(f, &l) || hri_oom_judge_cap(f, &l) || judge_free_enough(m, f, &l) ||
      judge_live(m, f, &l))
    return;
  l.knows_unallocated = true; /* the driver's pool has no such figure */
  l.reserved = l.allocated;
  if (!hri_oom_judge_gap(f, &l) && !hri_oom_judge_outside(f, &l)) judge_full(m, f, &l);
}

void hri_oom_judge_mps(hri_oom_message *m) {
  hr_oom_failure *f = &m->failure;
  const hr_oom_value *v = f->figures;
  uint64_t sum = v[HR_OOM_ALLOCATED].bytes + m->aside.bytes + v[HR_OOM_REQUESTED].bytes;
  uint64_t slack = v[HR_OOM_ALLOCATED].slack_bytes + m->aside.slack_bytes + v[HR_OOM_REQUESTED].slack_bytes +
                   v[HR_OOM_ALLOWED].slack_bytes;
  const hri_oom_ledger l = hri_oom_ledger_of(v);
  if (judge_absurd(f, &l)) return;
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

/* Somebody's allocation failed; whose it is and of which memory the text does not say, or only that it was a
 * device's. */
void hri_oom_judge_report(hr_oom_failure *f) {
  hri_oom_ledger l = hri_oom_ledger_of(f->figures);
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
