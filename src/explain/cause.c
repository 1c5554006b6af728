/* From figures to one cause.
 *
 * D total, F free, T requested, A allocated (with private pools P), U reserved but unallocated, R = A + U, S this process,
 * O other processes. The printed figures are rounded, so each comparison is held against the slack of its figures: what
 * the slack leaves open is not certain. The order of the tests is the order in which PyTorch's allocator itself refuses
 * (a cap first, then the driver), after that from the strongest evidence to the weakest:
 *   T > D                         too big, certain: no state of the device could hold it
 *   R + T > cap                   the cap; certain only when the device would have had the memory (F >= T)
 *   F >= T                        the figures do not explain it
 *   A - P + T > D                 too big, certain: live tensors and the request exceed the device
 *   O large and F + O >= T        another process
 *   P large and F + P >= T        private pools
 *   F + U >= T, U >= 5 % of R     fragmented, never certain
 *   S - R large                   this process, past the allocator
 *   D - F - R large               another process or this one's own libraries: the text cannot tell
 *   else                          too big
 * "Large" is a tenth of the device. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/text.h"
#include "explain/message.h"

static void line(hr_oom_failure *f, const char *format, ...) HRI_PRINTF(2, 3);
static void line(hr_oom_failure *f, const char *format, ...) {
  va_list arguments;
  if (f->arithmetic_count == HR_OOM_MAX_LINES) return;
  va_start(arguments, format);
  (void)vsnprintf(f->arithmetic[f->arithmetic_count++], HR_OOM_LINE_BYTES, format, arguments);
  va_end(arguments);
}

#define SIZE(bytes) hri_size_text((bytes), (char[32]){0})

static void say(hr_oom_failure *f, hr_oom_cause cause, hr_oom_certainty certainty, const char *format, ...) HRI_PRINTF(4, 5);
static void say(hr_oom_failure *f, hr_oom_cause cause, hr_oom_certainty certainty, const char *format, ...) {
  va_list arguments;
  f->cause = cause;
  f->certainty = certainty;
  va_start(arguments, format);
  (void)vsnprintf(f->verdict, sizeof f->verdict, format, arguments);
  va_end(arguments);
}

#define COULD(name) (1u << HR_OOM_##name)

static void undecided(hr_oom_failure *f, uint32_t candidates, const char *verdict) {
  f->candidates = candidates;
  say(f, HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE, "%s", verdict);
}

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
  uint64_t sum = 0, slack = 0;
  if (hri_oom_known(&v[HR_OOM_RESERVED]) && v[HR_OOM_RESERVED].bytes > mine) mine = v[HR_OOM_RESERVED].bytes;
  for (uint32_t i = 0; i < m->process_count; i++) {
    uint64_t margin = v[HR_OOM_TOTAL].slack_bytes + v[HR_OOM_FREE].slack_bytes + m->process_slack[i] +
                      v[HR_OOM_RESERVED].slack_bytes + v[HR_OOM_THIS_PROCESS].slack_bytes;
    if (used_known && mine > 0 && m->processes[i] + mine > used + margin) {
      line(f, "a listed process with %s is this very process under another id: %s + %s would exceed the %s in use",
           SIZE(m->processes[i]), SIZE(m->processes[i]), SIZE(mine), SIZE(used));
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

static void share(hr_oom_failure *f, const char *name, uint64_t bytes) {
  if (bytes == 0 || f->share_count == HR_OOM_MAX_SHARES) return;
  f->shares[f->share_count].name = name;
  f->shares[f->share_count++].bytes = bytes;
}

/* The device's bytes by owner; exactly the total. What rounding or spilling adds comes off the largest share. */
static void divide(hr_oom_failure *f) {
  const hr_oom_value *v = f->figures;
  uint64_t total = v[HR_OOM_TOTAL].bytes, sum = 0, excess;
  uint64_t pools = v[HR_OOM_PRIVATE_POOLS].bytes;
  bool mine = hri_oom_known(&v[HR_OOM_THIS_PROCESS]);
  if (!hri_oom_known(&v[HR_OOM_TOTAL])) return;
  share(f, "live tensors of this process", sub(v[HR_OOM_ALLOCATED].bytes, pools));
  share(f, "private pools of this process", pools);
  share(f, "reserved by this process, not allocated", v[HR_OOM_UNALLOCATED].bytes);
  if (mine) share(f, "this process outside the allocator", sub(v[HR_OOM_THIS_PROCESS].bytes, v[HR_OOM_RESERVED].bytes));
  share(f, "other processes listed", v[HR_OOM_OTHER_PROCESSES].bytes);
  share(f, "free", v[HR_OOM_FREE].bytes);
  for (uint32_t i = 0; i < f->share_count; i++)
    sum += f->shares[i].bytes;
  share(f, mine ? "unknown: processes not listed, driver" : "unknown: other processes, this one's context and libraries",
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
  bool knows_total, knows_free, knows_allocated, knows_unallocated, knows_mine;
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
              .knows_total = hri_oom_known(&v[HR_OOM_TOTAL]),
              .knows_free = hri_oom_known(&v[HR_OOM_FREE]),
              .knows_allocated = hri_oom_known(&v[HR_OOM_ALLOCATED]),
              .knows_unallocated = hri_oom_known(&v[HR_OOM_UNALLOCATED]),
              .knows_mine = hri_oom_known(&v[HR_OOM_THIS_PROCESS])};
  l.slack = v[HR_OOM_TOTAL].slack_bytes + v[HR_OOM_FREE].slack_bytes + v[HR_OOM_REQUESTED].slack_bytes +
            v[HR_OOM_ALLOCATED].slack_bytes + v[HR_OOM_PRIVATE_POOLS].slack_bytes;
  return l;
}

static bool judge_absurd(hr_oom_failure *f, const ledger *l) {
  bool wrapped = l->requested >= 1ull << 60;
  if (!wrapped && !(l->knows_total && l->requested > l->total + l->slack)) return false;
  if (wrapped) {
    say(f, HR_OOM_TOO_BIG, HR_OOM_CERTAIN, "the request is absurd: no device has this much; a size was computed wrongly");
    line(f, "close below 2^64 bytes is a negative size that wrapped around");
  } else {
    say(f, HR_OOM_TOO_BIG, HR_OOM_CERTAIN, "one request of %s is larger than the whole device (%s), by %s",
        SIZE(l->requested), SIZE(l->total), SIZE(l->requested - l->total));
    line(f, "requested %s > total %s: no setting and no empty device would make it fit", SIZE(l->requested), SIZE(l->total));
    line(f, "many times the device often comes from wrong sizes: corrupted gathered objects, a wrong shape or length");
  }
  return true;
}

static bool judge_cap(hr_oom_failure *f, const ledger *l) {
  const hr_oom_value *cap = &f->figures[HR_OOM_ALLOWED];
  const char *held = l->reserved > 0 ? "reserved" : "allocated";
  uint64_t have = l->reserved > 0 ? l->reserved : l->allocated;
  uint64_t slack = cap->slack_bytes + l->slack + f->figures[HR_OOM_RESERVED].slack_bytes;
  if (!hri_oom_known(cap)) return false;
  if (have + l->requested <= cap->bytes) {
    line(f, "a cap of %s is printed but is not the cause: %s %s + requested %s stay below it", SIZE(cap->bytes), held,
         SIZE(have), SIZE(l->requested));
    return false;
  }
  line(f, "%s %s + requested %s = %s > allowed %s", held, SIZE(have), SIZE(l->requested), SIZE(have + l->requested),
       SIZE(cap->bytes));
  if (l->knows_total && cap->bytes >= l->total) return false;
  if (l->knows_free && l->free >= l->requested + l->slack && have + l->requested > cap->bytes + slack) {
    line(f, "the device itself had %s free", SIZE(l->free));
    say(f, HR_OOM_CAP, HR_OOM_CERTAIN, "a cap of %s refused it, with %s free on the device", SIZE(cap->bytes), SIZE(l->free));
  } else {
    line(f, l->knows_free ? "without the cap the device would not have had the memory either"
                          : "how much the device had free is not in the text");
    say(f, HR_OOM_CAP, HR_OOM_LIKELY, "a cap of %s refused it", SIZE(cap->bytes));
  }
  return true;
}

static bool judge_free_enough(hr_oom_failure *f, const ledger *l) {
  if (!l->knows_free || l->free < l->requested) return false;
  line(f, "free %s >= requested %s, and it failed all the same", SIZE(l->free), SIZE(l->requested));
  line(f, "what can do that: another process or rank that took memory and gave it back; a limit of a container, MIG or vGPU");
  line(f, "or figures read a moment after the failure; address space of the driver in pieces; a cap that is not printed");
  undecided(f, COULD(OTHER_PROCESS) | COULD(CAP) | COULD(FRAGMENTED) | COULD(OUTSIDE_ALLOCATOR),
            "not explained by the figures: more was free than requested");
  return true;
}

static bool judge_live(hr_oom_failure *f, const ledger *l) {
  uint64_t live = sub(l->allocated, l->pools);
  if (!l->knows_allocated || !l->knows_total) return false;
  if (l->allocated > l->total + l->slack) {
    line(f, "allocated %s > total %s: the driver has spilled %s into host memory", SIZE(l->allocated), SIZE(l->total),
         SIZE(l->allocated - l->total));
    say(f, HR_OOM_TOO_BIG, HR_OOM_LIKELY, "live memory alone exceeds the device by %s", SIZE(l->allocated - l->total));
    return true;
  }
  if (live + l->requested <= l->total + l->slack) return false;
  line(f, "live tensors %s + requested %s = %s > total %s", SIZE(live), SIZE(l->requested), SIZE(live + l->requested),
       SIZE(l->total));
  say(f, HR_OOM_TOO_BIG, HR_OOM_CERTAIN, "live tensors and the request exceed the whole device by %s",
      SIZE(live + l->requested - l->total));
  return true;
}

/* Many equal small entries are the contexts that sibling ranks opened on the first device. */
static void note_siblings(hri_oom_message *m) {
  uint32_t equal = 0;
  for (uint32_t i = 1; i < m->process_count; i++)
    if (m->processes[i] == m->processes[0]) equal++;
  if (m->process_count > 2 && equal + 1 == m->process_count)
    line(&m->failure, "%u processes with %s each: probably sibling ranks that all opened a context on this device",
         m->process_count, SIZE(m->processes[0]));
}

static bool judge_others(hri_oom_message *m, const ledger *l) {
  hr_oom_failure *f = &m->failure;
  bool proven = l->knows_mine && l->mine + f->figures[HR_OOM_THIS_PROCESS].slack_bytes >= l->reserved;
  if (l->others == 0 || !l->knows_total || !l->knows_free) return false;
  note_siblings(m);
  if (l->others < l->total / 10 || l->free + l->others < l->requested) return false;
  line(f, "other processes hold %s of %s; free %s + %s >= requested %s", SIZE(l->others), SIZE(l->total), SIZE(l->free),
       SIZE(l->others), SIZE(l->requested));
  if (!proven && m->process_count == 1 && l->others >= l->reserved) {
    line(f, "this process's own figure is missing: the one process listed can be this very process (container ids differ)");
    undecided(f, COULD(OTHER_PROCESS) | COULD(OUTSIDE_ALLOCATOR) | COULD(TOO_BIG),
              "the one listed process may be another one or this very process");
    return true;
  }
  say(f, HR_OOM_OTHER_PROCESS, proven && l->others >= l->total / 4 ? HR_OOM_CERTAIN : HR_OOM_LIKELY,
      "%u other process%s %s %s of the device's %s", f->process_count, f->process_count == 1 ? "" : "es",
      f->process_count == 1 ? "holds" : "hold", SIZE(l->others), SIZE(l->total));
  return true;
}

static bool judge_pools(hr_oom_failure *f, const ledger *l) {
  if (l->pools == 0 || l->pools < l->total / 10 || l->free + l->pools < l->requested) return false;
  line(f, "private pools hold %s of the %s allocated; their free blocks serve nobody else", SIZE(l->pools), SIZE(l->allocated));
  line(f, "free %s + pools %s >= requested %s", SIZE(l->free), SIZE(l->pools), SIZE(l->requested));
  say(f, HR_OOM_PRIVATE_POOL, HR_OOM_LIKELY, "%s are in private pools (CUDA graphs, MemPool)", SIZE(l->pools));
  return true;
}

static bool judge_pieces(hri_oom_message *m, const ledger *l) {
  hr_oom_failure *f = &m->failure;
  double percent = l->reserved > 0 ? 100.0 * (double)l->unallocated / (double)l->reserved : 0;
  if (!l->knows_free || !l->knows_unallocated || l->unallocated == 0) return false;
  if (l->free + l->unallocated < l->requested) return false;
  line(f, "free %s + reserved but unallocated %s >= requested %s", SIZE(l->free), SIZE(l->unallocated), SIZE(l->requested));
  line(f, "unallocated is %.1f %% of reserved; below 5 %% is normal", percent);
  if (percent < 5) return false;
  if (m->capturing) {
    line(f, "a CUDA graph was being captured or a MemPool in use: cached blocks are not returned then");
    say(f, HR_OOM_CACHED_NOT_RETURNED, HR_OOM_LIKELY, "%s are cached and could not be returned", SIZE(l->unallocated));
  } else {
    line(f, "a message cannot prove it: only a snapshot shows the pieces");
    say(f, HR_OOM_FRAGMENTED, HR_OOM_LIKELY, "%s are reserved but in pieces too small for %s", SIZE(l->unallocated),
        SIZE(l->requested));
  }
  return true;
}

static bool judge_outside(hr_oom_failure *f, const ledger *l) {
  uint64_t outside = l->knows_mine ? sub(l->mine, l->reserved) : sub(l->total, l->free + l->reserved + l->others);
  if (!l->knows_total || !l->knows_free || !l->knows_allocated || !l->knows_unallocated) return false;
  if (l->knows_mine) {
    uint64_t missing = sub(l->total, l->free + l->mine + l->others);
    if (outside >= l->total / 10 && l->free + outside >= l->requested) {
      line(f, "this process %s - reserved %s = %s outside the allocator", SIZE(l->mine), SIZE(l->reserved), SIZE(outside));
      say(f, HR_OOM_OUTSIDE_ALLOCATOR, HR_OOM_LIKELY, "%s of this process are outside PyTorch's allocator", SIZE(outside));
      return true;
    }
    if (missing >= l->total / 10 && l->free + missing >= l->requested) {
      line(f, "total %s - free %s - this process %s - listed %s = %s that nobody listed holds", SIZE(l->total), SIZE(l->free),
           SIZE(l->mine), SIZE(l->others), SIZE(missing));
      line(f, "the list of processes is often incomplete (containers, other users)");
      say(f, HR_OOM_OTHER_PROCESS, HR_OOM_LIKELY, "%s are held by something that the message does not list", SIZE(missing));
      return true;
    }
    return false;
  }
  if (outside < l->total / 10 || l->free + outside < l->requested) return false;
  line(f, "total %s - free %s - reserved %s = %s held by others or past the allocator", SIZE(l->total), SIZE(l->free),
       SIZE(l->reserved), SIZE(outside));
  line(f, "the text cannot tell another process from this process's own context and libraries");
  undecided(f, COULD(OTHER_PROCESS) | COULD(OUTSIDE_ALLOCATOR), "much of the device is held by something the text does not name");
  return true;
}

static void judge_full(hr_oom_failure *f, const ledger *l) {
  uint64_t have = l->free + l->unallocated;
  if (!l->knows_free || !l->knows_allocated) {
    line(f, "how much was free is needed to tell a full device from one in pieces or in use by others");
    undecided(f, COULD(TOO_BIG) | COULD(FRAGMENTED) | COULD(OTHER_PROCESS) | COULD(CAP), "the text lacks the figures to decide");
    return;
  }
  if (have < l->requested) {
    line(f, "free %s + unallocated %s = %s < requested %s: short by %s", SIZE(l->free), SIZE(l->unallocated), SIZE(have),
         SIZE(l->requested), SIZE(l->requested - have));
    say(f, HR_OOM_TOO_BIG, HR_OOM_LIKELY, "too big by %s: live tensors fill the device", SIZE(l->requested - have));
  } else {
    say(f, HR_OOM_TOO_BIG, HR_OOM_LIKELY, "live tensors fill the device: %s of %s", SIZE(l->allocated), SIZE(l->total));
  }
}

static void note_segment(hr_oom_failure *f) {
  uint64_t t = f->figures[HR_OOM_REQUESTED].bytes;
  if (t == 2ull << 20) line(f, "2 MiB is the segment that PyTorch asks for: the tensor itself was up to 1 MiB");
  if (t == 20ull << 20) line(f, "20 MiB is the segment that PyTorch asks for: the tensor itself was 1 to 10 MiB");
}

static void judge_caching(hri_oom_message *m) {
  hr_oom_failure *f = &m->failure;
  ledger l;
  sum_processes(m);
  l = ledger_of(f->figures);
  divide(f);
  note_segment(f);
  if (judge_absurd(f, &l) || judge_cap(f, &l) || judge_free_enough(f, &l) || judge_live(f, &l) || judge_others(m, &l) ||
      judge_pools(f, &l) || judge_pieces(m, &l) || judge_outside(f, &l))
    return;
  judge_full(f, &l);
}

static void judge_async(hri_oom_message *m) {
  hr_oom_failure *f = &m->failure;
  ledger l = ledger_of(f->figures);
  divide(f);
  if (f->figures[HR_OOM_ALLOWED].state == HR_OOM_NOT_KNOWN)
    line(f, "\"would exceed allowed memory\" is this backend's wording; no cap is set");
  if (judge_absurd(f, &l) || judge_cap(f, &l) || judge_free_enough(f, &l) || judge_live(f, &l)) return;
  l.knows_unallocated = true; /* the driver's pool has no such figure */
  l.reserved = l.allocated;
  if (!judge_outside(f, &l)) judge_full(f, &l);
}

static void judge_mps(hri_oom_message *m) {
  hr_oom_failure *f = &m->failure;
  const hr_oom_value *v = f->figures;
  uint64_t sum = v[HR_OOM_ALLOCATED].bytes + v[HR_OOM_OTHER_PROCESSES].bytes + v[HR_OOM_REQUESTED].bytes;
  uint64_t slack = v[HR_OOM_ALLOCATED].slack_bytes + v[HR_OOM_OTHER_PROCESSES].slack_bytes + v[HR_OOM_REQUESTED].slack_bytes +
                   v[HR_OOM_ALLOWED].slack_bytes;
  if (!hri_oom_known(&v[HR_OOM_ALLOWED]) || !hri_oom_known(&v[HR_OOM_ALLOCATED])) {
    line(f, "without a watermark, MPS stops where the machine's memory, shared with all programs, ends");
    undecided(f, COULD(TOO_BIG) | COULD(CAP), "no watermark is in the text: the machine's memory may be full");
    return;
  }
  line(f, "MPS %s + other %s + requested %s = %s; the watermark allows %s", SIZE(v[HR_OOM_ALLOCATED].bytes),
       SIZE(v[HR_OOM_OTHER_PROCESSES].bytes), SIZE(v[HR_OOM_REQUESTED].bytes), SIZE(sum), SIZE(v[HR_OOM_ALLOWED].bytes));
  line(f, "\"private pool\" is a storage mode of Metal here, not a pool of CUDA graphs");
  if (sum > v[HR_OOM_ALLOWED].bytes + slack)
    say(f, HR_OOM_CAP, HR_OOM_CERTAIN, "the MPS watermark of %s refused it", SIZE(v[HR_OOM_ALLOWED].bytes));
  else if (sum + slack >= v[HR_OOM_ALLOWED].bytes)
    say(f, HR_OOM_CAP, HR_OOM_LIKELY, "the MPS watermark of %s refused it, within rounding", SIZE(v[HR_OOM_ALLOWED].bytes));
  else
    undecided(f, COULD(CAP) | COULD(OTHER_PROCESS) | COULD(TOO_BIG), "not explained by the figures: below the watermark");
}

/* ---- what the wording alone decides ---- */

static void judge_host(hri_oom_message *m, hr_oom_certainty certainty) {
  hr_oom_failure *f = &m->failure;
  const hr_oom_value *t = &f->figures[HR_OOM_REQUESTED];
  if (hri_oom_known(t)) line(f, "requested from the machine's memory: %s", SIZE(t->bytes));
  if (t->bytes >= 1ull << 50) line(f, "that much is a wrongly computed size");
  line(f, "this message is about the memory of the machine (RAM, cgroup limit, shared memory), not about the GPU's");
  if (certainty == HR_OOM_LIKELY) line(f, "a kill has other possible reasons: look into the kernel log for \"Out of memory\"");
  say(f, HR_OOM_HOST_MEMORY, certainty, m->kind == HRI_OOM_PINNED ? "page-locked host memory ran out" : "host memory ran out");
}

static void judge_library(hr_oom_failure *f, hr_oom_certainty certainty) {
  line(f, "%s allocates device memory by itself, past PyTorch's caching allocator", f->source);
  if (certainty == HR_OOM_LIKELY)
    line(f, "the same error also follows from an earlier failure (a bad index, a device assert) or a wrong shape");
  say(f, HR_OOM_OUTSIDE_ALLOCATOR, certainty, "an allocation by %s failed, outside PyTorch's allocator", f->source);
}

static void judge_busy(hr_oom_failure *f) {
  divide(f);
  line(f, "vLLM refuses when less is free at its start than gpu_memory_utilization asks for");
  say(f, HR_OOM_OTHER_PROCESS, HR_OOM_LIKELY, "too little of the device was free when vLLM started");
}

void hri_oom_judge(hri_oom_message *m) {
  hr_oom_failure *f = &m->failure;
  switch (m->kind) {
  case HRI_OOM_NOTHING: break;
  case HRI_OOM_CACHING: judge_caching(m); break;
  case HRI_OOM_ASYNC: judge_async(m); break;
  case HRI_OOM_MPS: judge_mps(m); break;
  case HRI_OOM_BARE:
    line(f, "the message has no figures");
    undecided(f, COULD(TOO_BIG) | COULD(OTHER_PROCESS) | COULD(OUTSIDE_ALLOCATOR) | COULD(FRAGMENTED),
              "undecidable: the message has no figures");
    break;
  case HRI_OOM_DRIVER: judge_library(f, HR_OOM_LIKELY); break;
  case HRI_OOM_PINNED: judge_host(m, HR_OOM_LIKELY); break;
  case HRI_OOM_HOST: judge_host(m, HR_OOM_CERTAIN); break;
  case HRI_OOM_HOST_LIKELY: judge_host(m, HR_OOM_LIKELY); break;
  case HRI_OOM_LIBRARY: judge_library(f, HR_OOM_CERTAIN); break;
  case HRI_OOM_LIBRARY_LIKELY: judge_library(f, HR_OOM_LIKELY); break;
  case HRI_OOM_VLLM_CAP:
    line(f, "vLLM keeps to gpu_memory_utilization x total; what is left for the KV cache is too little. No allocation failed");
    say(f, HR_OOM_CAP, HR_OOM_LIKELY, "refused by vLLM's own limit, gpu_memory_utilization");
    break;
  case HRI_OOM_VLLM_BUSY: judge_busy(f); break;
  case HRI_OOM_CHIP:
    line(f, "shared memory and registers belong to a kernel's block on the chip; the device's memory is not involved");
    say(f, HR_OOM_ON_CHIP, HR_OOM_CERTAIN, "a kernel needs more on-chip memory than this GPU has: no allocation failed");
    break;
  case HRI_OOM_FOREIGN:
    line(f, "the message is %s's; its allocator and its settings are not PyTorch's", f->source);
    say(f, HR_OOM_NOT_PYTORCH, HR_OOM_CERTAIN, "this is %s's message, not PyTorch's: Headroom does not explain it", f->source);
    break;
  }
}
