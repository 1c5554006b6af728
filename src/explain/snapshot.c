/* From what a snapshot shows to one cause.
 *
 * At the failing request, R is reserved, F free on the device (the event states it), N what the request makes the
 * allocator ask of the driver, W the cached bytes in wholly free segments, C all cached bytes of the default pools, P
 * those of private pools. A snapshot states no total of the device and no other process, so what R + F leaves out is
 * known only when the caller knows the total. In order, from what allows no other reading to what remains:
 *   request > total                  too big, certain; > R + F and > R ever before, where the total is not known:
 *                                    too big, likely
 *   F >= N                           a cap; which one only settings or several such failures tell
 *   F + W >= N                       cached but not returned, certain: PyTorch returns W before it fails, but for
 *   captures
 *   F + C < N <= F + C + P           private pools
 *   R was larger before than R + F   another process or this one past the allocator: no snapshot can tell which
 *   stacks that grow with each step  growth, where without them the request would fit
 *   total - R - F > total / 4        another process or past the allocator
 *   F + C >= N, met in replay        fragmented, certain, unless the device was nearly full anyway (hri_short_by_pieces)
 *   live + request >> other steps    an outlier batch, never certain
 *   F + C >= N                       fragmented, likely, from 5 % of R on and with the same exception
 *   total - R - F > total / 10       another process or past the allocator
 *   else                             too big: certain where the total could not hold what is live and the request, and
 *                                    steps as large as this one show no growth */
#include "explain/evidence.h"

#include "base/mem.h"
#include "inspect/inside.h"

#define MIB(x) ((uint64_t)(x) << 20)
#define SIZE HRI_OOM_SIZE

static bool judge_absurd(hr_oom_failure *f, const hri_oom_facts *k) {
  const uint64_t room = k->reserved + k->device_free, before = k->i->peak_reserved_bytes;
  bool larger = k->total && k->request > k->total;
  /* What the allocator held before it could hold again: less than that is no absurd size. */
  if (!k->total && k->knows_free && k->request > room && k->request > before && k->request < 1ull << 60) {
    hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_LIKELY,
                "one request of %s is larger than what this process has reserved and what is free together, %s",
                SIZE(k->request), SIZE(room));
    hri_oom_line(f, "requested %s > reserved %s + free %s: a size was computed wrongly, or the batch is far too large",
                 SIZE(k->request), SIZE(k->reserved), SIZE(k->device_free));
    if (before > room) hri_oom_line(f, "nor were more than %s ever reserved in this trace", SIZE(before));
    return true;
  }
  if (!larger && k->request < 1ull << 60) return false;
  hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_CERTAIN, "one request of %s is larger than the whole device", SIZE(k->request));
  hri_oom_line(f, "requested %s > total %s: a size was computed wrongly, or the model needs another device",
               SIZE(k->request), k->total ? SIZE(k->total) : "of any device");
  return true;
}

static bool judge_cap(hr_oom_failure *f, const hri_oom_facts *k) {
  double fraction = hri_stated_fraction(&k->shortage);
  uint64_t allowed = (uint64_t)(fraction * (double)k->total);
  uint32_t alike = hri_failures_with_room(&k->shortage);
  if (!k->knows_free || k->device_free < k->need) return false;
  hri_oom_line(f, "free on the device %s >= %s asked of the driver, and it failed all the same", SIZE(k->device_free),
               SIZE(k->need));
  if (fraction > 0 && allowed > 0 && k->reserved <= allowed && k->reserved + k->need > allowed) {
    hri_oom_set(f, HR_OOM_ALLOWED, HR_OOM_DERIVED, allowed);
    hri_oom_line(f, "reserved %s + %s > allowed %s (%.3g of the device, from the recorded settings)", SIZE(k->reserved),
                 SIZE(k->need), SIZE(allowed), fraction);
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_CERTAIN, "a cap of %s refused it, with %s free on the device", SIZE(allowed),
                SIZE(k->device_free));
  } else if (fraction > 0 && (!k->total || k->reserved + k->need > allowed)) {
    hri_oom_line(f, "the recorded settings cap this process at %.3g of the device", fraction);
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_LIKELY, "a cap refused it, with %s free on the device", SIZE(k->device_free));
  } else if (alike >= 2) {
    hri_oom_line(f, "%u of %u recorded failures came with enough free memory: no passing shortage does that", alike,
                 k->i->oom_count);
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_LIKELY, "a limit near %s refused it, with %s free on the device",
                SIZE(k->reserved), SIZE(k->device_free));
  } else {
    hri_oom_line(
        f, "a cap (set_per_process_memory_fraction, a container, MIG), or memory that was free again a moment later");
    hri_oom_undecided(f, HRI_OOM_COULD(CAP) | HRI_OOM_COULD(OTHER_PROCESS) | HRI_OOM_COULD(OUTSIDE_ALLOCATOR),
                      "not explained by the snapshot: more was free than requested");
  }
  return true;
}

static bool judge_cached(hr_oom_failure *f, const hri_oom_facts *k) {
  const uint64_t segment = k->i->fragmentation.segment_bytes, asked = segment ? segment : k->need;
  bool fits = k->device_free + k->returnable >= asked || k->i->fragmentation.fits_after_return;
  uint64_t back = k->returnable;
  if (!k->knows_free || back == 0 || !fits) return false;
  hri_oom_line(f, "free %s + wholly free segments %s >= %s asked of the driver", SIZE(k->device_free), SIZE(back),
               SIZE(asked));
  hri_oom_line(
      f,
      "PyTorch returns such segments before it fails, except while a graph is captured or a MemPool is active, or with "
      "throw_on_cudamalloc_oom");
  hri_oom_say(f, HR_OOM_CACHED_NOT_RETURNED, HR_OOM_CERTAIN,
              "%s were cached in wholly free segments and were not returned", SIZE(back));
  return true;
}

static bool judge_pools(hr_oom_failure *f, const hri_oom_facts *k) {
  uint64_t without = k->device_free + k->cached;
  bool only = without < k->need;
  if (!hri_short_by_pools(&k->shortage)) return false;
  if (k->i->fragmentation.in_private_pool) {
    hri_oom_line(f, "free %s + cached in its own pool %s %s %s asked of the driver; %s more lie free in other pools",
                 SIZE(k->device_free), SIZE(k->cached), only ? "<" : "(in pieces) and", SIZE(k->need),
                 SIZE(k->pools_free));
    hri_oom_say(f, HR_OOM_PRIVATE_POOL, HR_OOM_LIKELY,
                "%s lie free in other pools, which a request of a private pool (CUDA graphs, MemPool) may not use",
                SIZE(k->pools_free));
    return true;
  }
  hri_oom_line(f, "free %s + cached %s %s %s asked of the driver; %s more lie free in private pools",
               SIZE(k->device_free), SIZE(k->cached), only ? "<" : "(in pieces) and", SIZE(k->need),
               SIZE(k->pools_free));
  hri_oom_say(f, HR_OOM_PRIVATE_POOL, HR_OOM_LIKELY,
              "%s lie free in private pools (CUDA graphs, MemPool), where nobody else may use them",
              SIZE(k->pools_free));
  return true;
}

static bool judge_shrunk(hr_oom_failure *f, const hri_oom_facts *k) {
  uint64_t now = k->reserved + k->device_free, lost = hri_short_by_loss(&k->shortage);
  if (lost == 0) return false;
  hri_oom_line(f, "the allocator held %s before; now reserved %s + free %s = %s: %s went to somebody else",
               SIZE(k->i->peak_reserved_bytes), SIZE(k->reserved), SIZE(k->device_free), SIZE(now), SIZE(lost));
  hri_oom_line(f, "a snapshot shows neither other processes nor this one's libraries (NCCL, cuBLAS): nvidia-smi does");
  hri_oom_undecided(
      f, HRI_OOM_COULD(OTHER_PROCESS) | HRI_OOM_COULD(OUTSIDE_ALLOCATOR),
      "memory that this allocator had before is held by another process, or by this one past the allocator");
  return true;
}

static void note_pinned(hr_oom_failure *f, const hri_oom_facts *k) {
  const hr_fragmentation *g = &k->i->fragmentation;
  char where[160];
  hri_oom_line(f, "free %s + cached %s >= %s asked of the driver, but no segment of it is wholly free",
               SIZE(k->device_free), SIZE(k->cached), SIZE(k->need));
  if (g->pool_largest_free_bytes)
    hri_oom_line(f, "the largest free block of the request's pool has %s of %s", SIZE(g->pool_largest_free_bytes),
                 SIZE(g->pool_free_bytes));
  if (g->pinned_count == 0) return;
  hri_oom_stack_text(k->i->snapshot, g->pinned[0].stack, where, sizeof where);
  hri_oom_line(f, "%s live pin a segment with %s free: %s", SIZE(g->pinned[0].live_bytes),
               SIZE(g->pinned[0].free_bytes), where);
}

static const uint32_t NO_STEP = UINT32_MAX;

/* The step that an event is in; behind the last boundary step_count, for one that has hardly begun. */
static uint32_t step_of(const hr_inspection *i, uint64_t event) {
  for (uint32_t s = 0; s < i->step_count; s++)
    if (event >= i->steps[s].first_event && event - i->steps[s].first_event < i->steps[s].event_count) return s;
  return i->step_count > 0 && event >= i->steps[i->step_count - 1].first_event ? i->step_count : NO_STEP;
}

static uint64_t peak_of(const hri_oom_facts *k, uint32_t step) { return k->i->steps[step].peak_live_bytes; }

/* Whether the steps before need more and more, as batches that get longer do: each of the last three peaks is above the
 * one before by 1 in 256, or all of the last third of the steps are above all of the first third, the first step aside.
 * They leave rests of other sizes each time, and what is lacking next time is more than pieces. */
static bool rises(const hri_oom_facts *k) {
  const uint32_t step = step_of(k->i, k->oom->event), third = step > 1 && step != NO_STEP ? (step - 1) / 3 : 0;
  uint64_t early = 0, late = UINT64_MAX;
  bool each = true;
  if (step < 3 || step == NO_STEP) return false;
  for (uint32_t s = step - 2; s < step; s++)
    each = each && peak_of(k, s) >= peak_of(k, s - 1) + peak_of(k, s - 1) / 256;
  for (uint32_t s = 0; s < third; s++) {
    if (peak_of(k, 1 + s) > early) early = peak_of(k, 1 + s);
    if (peak_of(k, step - 1 - s) < late) late = peak_of(k, step - 1 - s);
  }
  return each || (third >= 2 && late >= early + early / 64);
}

/* What the last whole step left behind more than the second did. */
static uint64_t left_more(const hr_inspection *i) {
  if (i->step_count < 3) return 0;
  return hri_oom_less(i->steps[i->step_count - 2].end_live_bytes, i->steps[1].end_live_bytes);
}

enum { LONG_TRACE = 1000 }; /* events, in which a training's steps come back */

/* What keeps pieces from being the certain cause, though a quarter of the memory or more would have stayed free; NULL:
 * nothing does. */
static const char *doubt_of_pieces(const hri_oom_facts *k) {
  if (rises(k)) return "but the peaks of the steps rise: what fits into pieces now will be too big";
  if (left_more(k->i) >= k->live / 10)
    return "but the steps leave more behind: what fits into pieces now will be too big";
  if (k->i->step_count >= 4 && k->oom->stack && k->evidence->replay && !k->evidence->replay->step_need_step)
    return "but no step before is like this one: what it asks for next is not known";
  if (k->i->step_count < 2 && k->oom->stage == HR_STAGE_OPTIMIZER)
    return "but this is the optimizer's first step: how many more states it makes is not recorded";
  if (k->i->step_count < 2 && !k->oom->stack && k->i->event_count >= LONG_TRACE)
    return "but no two steps of this recording are alike: whether they need more each time is not known";
  return NULL;
}

/* Hardly anything would have been left, and all the same replay carries the rest of the step under another setting: then
 * pieces were lacking, unless the steps need more and more. */
static bool step_is_carried(const hri_oom_facts *k) {
  return k->i->step_count >= 2 && k->knows_free && k->cached > 0 && k->device_free + k->cached >= k->need &&
         hri_oom_step_carried(k) && !rises(k) && left_more(k->i) < k->live / 10;
}

/* What the failing step would need in one piece, by a whole step before it, where no setting is known to carry it; 0: it is not
 * known. */
static uint64_t step_need(const hri_oom_facts *k) {
  const hr_replay *r = k->evidence->replay;
  if (!r || r->trust == HR_REPLAY_ROUGH || !k->knows_free || hri_oom_rest_is_met(k)) return 0;
  return r->step_need_bytes;
}

/* ... where that is a twentieth more than there is: then it would fail however its blocks lay. 0: it would do. */
static uint64_t step_too_big(const hri_oom_facts *k) {
  const uint64_t room = k->reserved + k->device_free;
  return step_need(k) > room + room / 20 ? step_need(k) : 0;
}

/* ... where that is all there is but for a twentieth, and more than was live before: then little is lost in pieces. */
static uint64_t step_fills(const hri_oom_facts *k) {
  const uint64_t room = k->reserved + k->device_free;
  return step_need(k) > room - room / 20 && step_need(k) > hri_live_before(&k->shortage) ? step_need(k) : 0;
}

static bool judge_pieces(hr_oom_failure *f, const hri_oom_facts *k, bool only_proven) {
  const bool carried = hri_oom_carried_count(k) > 0, proven = carried && !hri_oom_rest_fails(k);
  int weight = hri_short_by_pieces(&k->shortage) > 0 ? hri_short_by_pieces(&k->shortage) : step_is_carried(k);
  const char *doubt = proven && weight == 2 ? doubt_of_pieces(k) : NULL;
  if (step_fills(k)) return false;
  if (weight == 0 || (only_proven && !proven) || (!proven && k->cached < k->reserved / 20)) return false;
  note_pinned(f, k);
  if (k->oom->live_bytes + k->request <= hri_live_before(&k->shortage))
    hri_oom_line(f, "live %s + request %s is not more than was live before, %s", SIZE(k->oom->live_bytes),
                 SIZE(k->request), SIZE(hri_live_before(&k->shortage)));
  else hri_oom_line(f, "in one piece it would have fit, with %s to spare", SIZE(k->device_free + k->cached - k->need));
  if (proven)
    hri_oom_line(f, "replayed under other settings, this request %s met: see below",
                 hri_oom_step_carried(k) ? "and the rest of its step are" : "is");
  else if (carried)
    hri_oom_line(f, "replayed under other settings, this request is met, and the rest of its step fails all the same");
  else hri_oom_line(f, hri_oom_can_prove(k) ? "but replay found no setting that avoids it" : "not proven by a replay");
  if (doubt) hri_oom_line(f, "%s", doubt);
  hri_oom_say(f, HR_OOM_FRAGMENTED, proven && weight == 2 && !doubt ? HR_OOM_CERTAIN : HR_OOM_LIKELY,
              k->cached < k->request ? "%s were free or cached, but in pieces too small for %s"
                                     : "%s were cached, but in pieces too small for %s",
              SIZE(k->cached < k->request ? k->device_free + k->cached : k->cached), SIZE(k->request));
  return true;
}

/* Blocks that the settings keep whole hold what is missing, and under others the request is met, and the rest of its step
 * where that is known. */
static bool judge_blocks(hr_oom_failure *f, const hri_oom_facts *k) {
  const uint64_t unasked = k->shortage.unasked;
  const char *by = hri_larger_blocks_by(&k->shortage);
  if (!hri_short_by_blocks(&k->shortage) || hri_oom_carried_count(k) == 0) return false;
  if (hri_oom_rest_fails(k)) return false;
  hri_oom_line(f, "free %s + cached %s + what blocks have beyond what was asked for %s >= %s asked of the driver",
               SIZE(k->device_free), SIZE(k->cached), SIZE(unasked), SIZE(k->need));
  hri_oom_line(f, "replayed under other settings, this request %s met: see below",
               hri_oom_step_carried(k) ? "and the rest of its step are" : "is");
  hri_oom_say(f, HR_OOM_FRAGMENTED, HR_OOM_LIKELY, "%s of the %s live are larger blocks than was asked for, by %s",
              SIZE(unasked), SIZE(k->live), by);
  return true;
}

/* Of growth within a step all stacks together, for a pass keeps the whole of its graph. */
static void note_passes(hr_oom_failure *f, const hri_oom_facts *k, const char *where) {
  double each = 0;
  for (uint32_t g = 0; g < k->i->growth_count; g++)
    if (k->i->growth[g].kind == k->leak->kind) each += k->i->growth[g].bytes_per_step;
  hri_oom_line(f, "%s more with every %s, in %u of them, %s left at the end; most by %s", SIZE((uint64_t)each),
               k->leak->kind == HR_GROWTH_CACHE ? "token" : "pass of the model", k->leak->steps_seen,
               SIZE(k->leak_bytes), where);
  if (k->leak->from_before)
    hri_oom_line(f, "%llu tensors of it are from before the recording began", (unsigned long long)k->leak->from_before);
  if (k->leak->freed_in_steps)
    hri_oom_line(f, "in the steps before, what such passes keep was freed again: this one has more of them");
  else if (k->leak->may_train)
    hri_oom_line(
        f, "no backward is recorded at all: these passes may be training that comes to one behind them, or layers "
           "of a model that the program calls one by one");
  else if (k->leak->kind == HR_GROWTH_GRAPH && k->leak->among_backwards)
    hri_oom_line(f, "backwards ran among these passes, and what their forward saved is kept all the same");
  else if (k->leak->kind == HR_GROWTH_GRAPH)
    hri_oom_line(f, "no backward follows these passes, and what their forward saved for it is kept");
}

/* Whether all of it is from before the recording, and only its size says that it belongs together. */
static bool is_only_size(const hr_growth *leak) { return leak->from_before && leak->from_before == leak->count; }

static void note_leak(hr_oom_failure *f, const hri_oom_facts *k) {
  char where[160];
  hri_oom_stack_text(k->i->snapshot, k->leak->stack, where, sizeof where);
  if (k->leak->kind == HR_GROWTH_LARGER) {
    hri_oom_line(f, "made anew %u times, larger by %s each time, %s in all: %s", k->leak->steps_grown,
                 SIZE((uint64_t)k->leak->bytes_per_step), SIZE(k->leak->bytes), where);
    return;
  }
  if (!hr_growth_by_step(k->leak->kind)) {
    note_passes(f, k, where);
    return;
  }
  if (is_only_size(k->leak)) {
    hri_oom_line(
        f,
        "%llu tensors of one size are from before the recording began, and went one after the other behind the "
        "failure, %s in all; which line made them is not recorded",
        (unsigned long long)k->leak->count, SIZE(k->leak->bytes));
    return;
  }
  if (k->leak->from_before) {
    hri_oom_line(
        f, "%llu tensors of it are from before the recording began, and it made %llu more in %u steps, %s in all: %s",
        (unsigned long long)k->leak->from_before, (unsigned long long)(k->leak->count - k->leak->from_before),
        k->leak->steps_seen, SIZE(k->leak->bytes), where);
    return;
  }
  hri_oom_line(f, "%s more %s, in %u of %u steps, %s left at the end: %s", SIZE((uint64_t)k->leak->bytes_per_step),
               hr_growth_every_step(k->leak) ? "every step" : "per step on average", k->leak->steps_grown,
               k->leak->steps_seen, SIZE(k->leak->bytes), where);
  if (k->leak->gives_back)
    hri_oom_line(
        f, "but as many of it go by now as come: a window of the last N that has filled grows only by larger ones");
}

static const char *what_grows(const hri_oom_facts *k) {
  switch (k->leak->kind) {
  case HR_GROWTH_GRAPH: return "every pass of the model keeps its graph";
  case HR_GROWTH_OUTPUTS: return "every pass of the model leaves results behind";
  case HR_GROWTH_CACHE: return "a cache grows with every token";
  case HR_GROWTH_LARGER: return "a tensor is made anew again and again, each time larger";
  default:
    return hr_growth_every_step(k->leak) && !k->leak->from_before ? "memory grows with every step"
                                                                  : "memory grows from step to step";
  }
}

static bool is_training(hr_stage stage) {
  return stage == HR_STAGE_UNKNOWN || stage == HR_STAGE_FORWARD || stage == HR_STAGE_LOSS ||
         stage == HR_STAGE_BACKWARD || stage == HR_STAGE_DATA;
}

/* Whether the three steps before rose, and this one goes on at most twice as steeply: batches that get larger, not
 * one. */
static bool goes_on_rising(const hri_oom_facts *k, uint32_t step, uint64_t wanted) {
  const hr_step_sums *before = &k->i->steps[step - 3];
  uint64_t a = before[0].peak_live_bytes, b = before[1].peak_live_bytes, c = before[2].peak_live_bytes;
  return a < b && b < c && wanted - c <= 2 * (c - b);
}

/* Whether the same place of the program asked for about as much in an earlier step and was refused as well: then it is not
 * this step that needs more. */
static bool failed_there_before(const hri_oom_facts *k, uint32_t step) {
  const uint64_t least = k->oom->stack ? k->oom->size - k->oom->size / 10 : k->oom->size;
  const hr_step_sums *before = &k->i->steps[step - 1];
  for (uint32_t n = 0; n < k->i->oom_count; n++) {
    const hr_oom_event *o = &k->i->ooms[n];
    if (o->event < before->first_event + before->event_count && o->stack == k->oom->stack && o->size >= least)
      return true;
  }
  return false;
}

/* Whether the places of the program ask for more than in the steps before, for an eighth at least of what this step needs
 * beyond them. If not, it is no batch: something is kept for longer, or made for the first time. */
static bool asks_for_more(const hri_oom_facts *k, uint64_t wanted) {
  return !k->i->asked_known || k->i->asked_more_bytes >= (wanted - k->i->usual_peak_bytes) / 8;
}

/* What the step at hand needs, where that is a fifth above the median of the steps and a tenth above each of the three before: what
 * grows slowly is no outlier. 0: it is not. */
static uint64_t need_that_stands_out(const hri_oom_facts *k) {
  const uint64_t so_far = k->oom->live_bytes + k->request, whole = step_fills(k), usual = k->i->usual_peak_bytes;
  const uint64_t wanted = whole > so_far ? whole : so_far;
  const uint32_t step = step_of(k->i, k->oom->event);
  if (step < 3 || step == NO_STEP || usual == 0 || !is_training(k->oom->stage)) return 0;
  if (wanted < usual + usual / 5 || failed_there_before(k, step)) return 0;
  for (uint32_t s = step - 3; s < step; s++)
    if (wanted < k->i->steps[s].peak_live_bytes + k->i->steps[s].peak_live_bytes / 10) return 0;
  return wanted;
}

/* Whether the passes of a step keep what such passes gave back in the steps before, and this step has more of them at the same
 * places, by far, but no more batches: a sequence that is much longer than the others. */
static bool is_longer_step(const hri_oom_facts *k) {
  const bool longer = k->leak->freed_in_steps && !k->leak->more_batches && k->i->asked_known;
  const uint64_t wanted = longer ? need_that_stands_out(k) : 0;
  return wanted && !goes_on_rising(k, step_of(k->i, k->oom->event), wanted) && asks_for_more(k, wanted);
}

static bool judge_outlier(hr_oom_failure *f, const hri_oom_facts *k) {
  const uint64_t so_far = k->oom->live_bytes + k->request, whole = step_fills(k), usual = k->i->usual_peak_bytes;
  const uint64_t wanted = need_that_stands_out(k);
  const uint32_t step = step_of(k->i, k->oom->event);
  if (!wanted) return false;
  if (goes_on_rising(k, step, wanted)) {
    hri_oom_line(f, "this step: live %s + request %s = %s; the three before rose to %s: the batches get larger",
                 SIZE(k->oom->live_bytes), SIZE(k->request), SIZE(so_far), SIZE(k->i->steps[step - 1].peak_live_bytes));
    return false;
  }
  hri_oom_line(f, "this step: live %s + request %s = %s; the other steps peaked at %s (median of %u)",
               SIZE(k->oom->live_bytes), SIZE(k->request), SIZE(so_far), SIZE(usual), k->i->step_count);
  if (!asks_for_more(k, wanted)) {
    hri_oom_line(
        f, "but no line asks for more than in the steps before: what it needs beyond them is kept for longer (layers "
           "that train from here on), or made for the first time (states, another model)");
    return false;
  }
  if (whole)
    hri_oom_line(f, "its rest as in step %u, in the sizes of this one, would come to %s",
                 k->evidence->replay->step_need_step, SIZE(whole));
  hri_oom_say(f, HR_OOM_OUTLIER_BATCH, HR_OOM_LIKELY, "step %u needs %.0f %% more than the others: an outlier batch",
              step + 1, 100.0 * (double)wanted / (double)usual - 100.0);
  return true;
}

/* Whether the same place counts as settled over the steps: then it keeps the last N. */
static bool is_settled_too(const hri_oom_facts *k) {
  for (uint32_t g = 0; g < k->i->growth_count; g++)
    if (k->i->growth[g].kind == HR_GROWTH_SETTLED && k->leak->stack && k->i->growth[g].stack == k->leak->stack)
      return true;
  return false;
}

/* What was seen to be left: not what is from before the recording, and only by its stack or size belongs to it, nor what may be a
 * window. */
static uint64_t leak_seen(const hri_oom_facts *k) {
  uint64_t bytes = 0;
  for (uint32_t n = 0; n < k->i->growth_count; n++) {
    const hr_growth *g = &k->i->growth[n];
    if (!hr_growth_goes_on(g->kind) || g->gives_back) continue;
    bytes += g->from_before ? g->bytes / g->count * (g->count - g->from_before) : g->bytes;
  }
  return bytes;
}

static bool judge_growth(hr_oom_failure *f, const hri_oom_facts *k) {
  uint64_t missing = k->knows_free ? hri_oom_less(k->total, k->reserved + k->device_free) : 0;
  bool every;
  if (!hri_short_by_growth(&k->shortage)) return false;
  if (is_longer_step(k)) return judge_outlier(f, k);
  if (k->leak->from_before && (step_too_big(k) || need_that_stands_out(k))) return false;
  note_leak(f, k);
  /* Steps that are only repetition can be the layers of a model that loads. */
  every = k->leak->steps_seen >= 5 && hr_growth_every_step(k->leak) &&
          (k->leak->kind >= HR_GROWTH_GRAPH || !hri_steps_repeat(k->i)) && k->leak->kind != HR_GROWTH_LARGER &&
          k->leak->kind != HR_GROWTH_CACHE && /* which a long text needs */
          !k->leak->freed_in_steps &&         /* ... or a long step */
          !k->leak->may_train && !k->leak->gives_back && !is_settled_too(k);
  hri_oom_line(f, "without the %s that stay behind, free %s + cached %s would have been enough for %s",
               SIZE(k->leak_bytes), SIZE(k->device_free), SIZE(k->cached), SIZE(k->need));
  if (missing >= k->total / 4 && k->total) {
    hri_oom_line(f, "but %s of the device are held by others or past the allocator, and would have been enough as well",
                 SIZE(missing));
    every = false;
  }
  every = every && leak_seen(k) >= k->live / 4 &&
          k->device_free + k->cached + leak_seen(k) >= k->need; /* without what size alone says of what was before */
  hri_oom_say(f, HR_OOM_GROWTH, every ? HR_OOM_CERTAIN : HR_OOM_LIKELY, "%s: %s of the %s live are %s", what_grows(k),
              SIZE(k->leak_bytes), SIZE(k->live),
              k->leak->kind == HR_GROWTH_LARGER  ? "what it grew by"
              : hr_growth_by_step(k->leak->kind) ? "left over from earlier steps"
              : k->leak->kind == HR_GROWTH_CACHE ? "left over from earlier tokens"
                                                 : "left over from earlier passes");
  return true;
}

static bool judge_missing(hr_oom_failure *f, const hri_oom_facts *k, uint64_t part) {
  uint64_t missing = hri_oom_less(k->total, k->reserved + k->device_free);
  if (!k->total || !k->knows_free || missing < k->total / part || k->device_free + k->cached + missing < k->need)
    return false;
  hri_oom_line(f, "total %s - reserved %s - free %s = %s held by others or past the allocator", SIZE(k->total),
               SIZE(k->reserved), SIZE(k->device_free), SIZE(missing));
  hri_oom_line(f, "a snapshot shows neither other processes nor this one's libraries (NCCL, cuBLAS): nvidia-smi does");
  hri_oom_undecided(f,
                    HRI_OOM_COULD(OTHER_PROCESS) | HRI_OOM_COULD(OUTSIDE_ALLOCATOR) |
                        (hri_short_by_pieces(&k->shortage) ? HRI_OOM_COULD(FRAGMENTED) : 0),
                    "much of the device is held by something outside this allocator");
  return true;
}

/* Whether the steps before needed about as much and left behind less than is lacking: then neither growth nor this batch
 * is the cause. */
static bool is_usual_step(const hri_oom_facts *k, uint64_t lacking) {
  const hr_inspection *i = k->i;
  return i->step_count >= 4 && hri_steps_are_even(&k->shortage) && left_more(i) < lacking &&
         is_training(k->oom->stage) &&
         k->oom->live_bytes + k->request <= i->usual_peak_bytes + i->usual_peak_bytes / 10;
}

/* Whether a tenth of the memory would have stayed free, but less than the request: layers ask for the same again. */
static bool leaves_one_layer(const hri_oom_facts *k) {
  const uint64_t have = k->device_free + k->cached, room = k->reserved + k->device_free;
  return have >= k->need && have - k->need >= room / 10 && have - k->need < k->request;
}

enum { STEPS_OF_GROWTH = 4 };

static void judge_full(hr_oom_failure *f, const hri_oom_facts *k) {
  uint64_t have = k->device_free + k->cached, missing = hri_oom_less(k->total, k->reserved + k->device_free);
  bool never = k->total && have + missing + k->pools_free < k->request;
  if (have < k->need)
    hri_oom_line(f, "free %s + cached %s = %s < %s asked of the driver: short by %s%s", SIZE(k->device_free),
                 SIZE(k->cached), SIZE(have), SIZE(k->need), SIZE(k->need - have),
                 hri_oom_carried_count(k) ? "; the settings below carry this request, but hardly much more" : "");
  else
    hri_oom_line(f, "in one piece it would have fit, with %s left of %s: %s%s", SIZE(have - k->need),
                 SIZE(k->reserved + k->device_free),
                 step_fills(k)         ? "less than the rest of its step needs"
                 : leaves_one_layer(k) ? "less than another such request"
                                       : "nearly full",
                 hri_oom_carried_count(k) ? ", so the settings below carry this request, but hardly much more" : "");
  if (k->i->step_count == 0)
    hri_oom_line(f, "no steps were found in the trace: growth and outliers cannot be told from it");
  else if (k->i->step_count < STEPS_OF_GROWTH && !k->i->began_empty)
    hri_oom_line(f, "the recording has no beginning and %u steps: growth cannot be told from it", k->i->step_count);
  if (!k->total)
    hri_oom_line(f, "the device's total is not in a snapshot: what other processes hold of it is not known");
  hri_oom_note_live(f, k);
  if (have < k->need)
    hri_oom_say(f, HR_OOM_TOO_BIG,
                never && is_usual_step(k, k->need - have) && !hri_oom_carried_count(k) ? HR_OOM_CERTAIN : HR_OOM_LIKELY,
                "too big by %s: live tensors fill what this process has", SIZE(k->need - have));
  else if (step_fills(k))
    hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_LIKELY,
                step_too_big(k)
                    ? "with its rest as in step %u this step needs %s, and this process has %s"
                    : "with its rest as in step %u this step needs %s, nearly all of %s that this process has",
                k->evidence->replay->step_need_step, SIZE(step_fills(k)), SIZE(k->reserved + k->device_free));
  else
    hri_oom_say(
        f, HR_OOM_TOO_BIG, HR_OOM_LIKELY,
        leaves_one_layer(k)
            ? "what is live and this request leave no room for another such one in what this process has: %s + %s of %s"
            : "what is live and this request nearly fill what this process has: %s + %s of %s",
        SIZE(k->live), SIZE(k->request), SIZE(k->reserved + k->device_free));
}

/* A tenth of what is reserved and more that nobody asked for: mostly what roundup_power2_divisions adds, or what
 * max_split_size keeps whole. */
static void note_rounding(hr_oom_failure *f, const hri_oom_facts *k) {
  const uint64_t rounding = k->i->at.rounding_bytes;
  if (rounding < k->reserved / 10 || rounding == 0) return;
  hri_oom_line(f, "%s of what is live are rounding of blocks, which nobody asked for%s%s%s", SIZE(rounding),
               k->shortage.unasked ? ": " : "", k->shortage.unasked ? hri_larger_blocks_by(&k->shortage) : "",
               k->shortage.unasked ? " is set" : "");
}

/* Whose request it was. */
static void note_request(hr_oom_failure *f, const hri_oom_facts *k) {
  char where[160];
  if (!k->oom->stack) return;
  hri_oom_stack_text(k->i->snapshot, k->oom->stack, where, sizeof where);
  hri_oom_line(f, "asked for by %s", where);
}

static void judge_failure(hr_oom_failure *f, const hri_oom_facts *k) {
  note_request(f, k);
  if (!k->knows_free) hri_oom_line(f, "how much the device had free is not in the snapshot");
  if (k->need > k->request && k->request < MIB(10) && !k->shortage.settings.expandable_segments)
    hri_oom_line(f, "for %s PyTorch asks the driver for a segment of %s, which is the size that its error names",
                 SIZE(k->request), SIZE(k->need));
  note_rounding(f, k);
  if (judge_absurd(f, k) || judge_cap(f, k) || judge_cached(f, k) || judge_pools(f, k) || judge_shrunk(f, k) ||
      judge_growth(f, k) || judge_missing(f, k, 4) || judge_pieces(f, k, true) || judge_blocks(f, k) ||
      judge_outlier(f, k) || judge_pieces(f, k, false) || judge_missing(f, k, 10))
    return;
  judge_full(f, k);
}

/* A trace of the profiler has a mark where a request was refused, and nothing else about it. */
static bool has_failure_mark(const hr_snapshot *s) {
  for (uint64_t k = 0; k < s->annotation_count; k++)
    if (strcmp(hr_snapshot_string(s, s->annotations[k].name), "[OutOfMemory]") == 0) return true;
  return false;
}

static void judge_peak(hr_oom_failure *f, const hri_oom_facts *k) {
  static const uint32_t unseen = HRI_OOM_COULD(TOO_BIG) | HRI_OOM_COULD(FRAGMENTED) | HRI_OOM_COULD(GROWTH);
  const hr_inspection *i = k->i;
  if (i->event_count == 0) {
    hri_oom_undecided(f, HRI_OOM_COULD(NO_FAILURE) | unseen,
                      "no events are recorded, only the last state: whether a request failed is not in it");
    hri_oom_line(f, "live then %s, reserved %s; the peak is not known", SIZE(i->at.requested_bytes), SIZE(k->reserved));
    hri_oom_note_live(f, k);
    return;
  }
  if (hri_lacks_allocs(i) && !has_failure_mark(i->snapshot)) {
    hri_oom_undecided(
        f, HRI_OOM_COULD(NO_FAILURE) | unseen,
        "no failure is recorded, nor any allocation: what was live before the end, the peak with it, is not known");
    hri_oom_line(
        f,
        "the recording holds frees alone: record without \"alloc\" in skip_actions; or what went behind the failure filled a "
        "short ring: record more (max_entries=1000000)");
    hri_oom_line(f, "live at its end %s, reserved %s", SIZE(i->end.requested_bytes), SIZE(i->end.reserved_bytes));
    return;
  }
  if (has_failure_mark(i->snapshot)) {
    hri_oom_undecided(f, unseen, "a request failed, but a profile does not say what was free then");
    hri_oom_line(f, "needed: the text of the error, or a memory snapshot taken when it fails");
  } else if (k->leak && k->leak_bytes >= i->peak_live_bytes / 10) {
    note_leak(f, k);
    hri_oom_say(f, HR_OOM_GROWTH, HR_OOM_LIKELY, "nothing failed yet, but %s: %s are %s", what_grows(k),
                SIZE(k->leak_bytes), k->leak->kind == HR_GROWTH_LARGER ? "what it grew by" : "left over");
  } else {
    hri_oom_say(f, HR_OOM_NO_FAILURE, HR_OOM_CERTAIN, "no failure is recorded; the peak was %s of live tensors",
                SIZE(i->peak_live_bytes));
  }
  hri_oom_line(f, "peak of live tensors %s; peak of what was reserved %s", SIZE(i->peak_live_bytes),
               SIZE(i->peak_reserved_bytes));
  hri_oom_note_live(f, k);
}

/* Whether it is passes that failed which are kept: a program that tries again. */
static bool passes_failed(const hri_oom_facts *k) {
  return (k->leak->kind == HR_GROWTH_GRAPH || k->leak->kind == HR_GROWTH_OUTPUTS) && k->i->oom_total > 1 &&
         (k->i->oom_total - 1) * 2 >= k->leak->steps_grown;
}

/* Of a kept graph, whose passes an advice is for. */
typedef enum graph_of { GRAPH_ANY, GRAPH_EVALUATION, GRAPH_SUMMED, GRAPH_RETAINED } graph_of;

static bool is_graph_of(const hr_growth *leak, graph_of of) {
  switch (of) {
  case GRAPH_EVALUATION: return !leak->freed_in_steps;
  case GRAPH_SUMMED: return !leak->among_backwards;
  case GRAPH_RETAINED: return leak->among_backwards;
  default: return true;
  }
}

/* What grows within a step has advice of its own, in place of that for leaks over steps. */
static void advise_passes(hr_oom_failure *f, const hri_oom_facts *facts) {
  const hr_growth *leak = facts->leak;
  static const struct {
    hr_growth_kind kind;
    graph_of of;
    const char *text, *cost;
  } tips[] = {
      {HR_GROWTH_GRAPH, GRAPH_EVALUATION,
       "evaluate and generate under torch.no_grad() or torch.inference_mode(): no pass keeps a graph then", "none"},
      {HR_GROWTH_GRAPH, GRAPH_RETAINED,
       "backward without retain_graph=True; where it was set because the next pass goes on from this one's results, "
       "detach those (h = h.detach()): the graph of all passes before hangs on them",
       "none"},
      {HR_GROWTH_GRAPH, GRAPH_SUMMED,
       "where these passes are training: (loss / n).backward() for each batch, not one backward for the sum of n losses",
       "none"},
      {HR_GROWTH_GRAPH, GRAPH_ANY,
       "keep numbers, not tensors with a graph: total += loss.item(), outputs.append(x.detach().cpu())", "none"},
      {HR_GROWTH_LARGER, GRAPH_ANY,
       "make it once, as large as it will be (a buffer, cache_implementation=\"static\"), and write into it: each new size "
       "needs the old one beside it",
       "none"},
      {HR_GROWTH_LARGER, GRAPH_ANY,
       "collect in a list on the host and join once at the end, or keep the last N: torch.cat of all so far needs old and new at once",
       "small"},
      {HR_GROWTH_OUTPUTS, GRAPH_ANY,
       "move what is kept off the device: outputs.append(x.detach().cpu()); keep numbers by .item()", "small"},
      {HR_GROWTH_OUTPUTS, GRAPH_ANY,
       "keep what is needed of each pass (argmax, loss) and not the logits; write results out as they come", "none"},
      {HR_GROWTH_CACHE, GRAPH_ANY,
       "cap the length: max_new_tokens, a sliding window; generate for fewer sequences at once", "small"},
      {HR_GROWTH_CACHE, GRAPH_ANY,
       "a cache of fixed size (cache_implementation=\"static\"), quantized or offloaded, which growing by torch.cat is not",
       "some speed"},
      {HR_GROWTH_CACHE, GRAPH_ANY,
       "where no cache is wanted: use_cache=False, and torch.no_grad() with .detach() for what is kept", "some speed"},
  };
  if (passes_failed(facts))
    hr_oom_add_advice(
        f, HR_OOM_ADVICE,
        "the passes that failed are still there: an exception keeps its frames and all their tensors. Retry behind the "
        "except block, not in it, and keep str(e), not e",
        "none", "", 0);
  for (size_t k = 0; k < sizeof tips / sizeof *tips; k++)
    if (tips[k].kind == leak->kind && is_graph_of(leak, tips[k].of))
      hr_oom_add_advice(f, HR_OOM_ADVICE, tips[k].text, tips[k].cost, "", 0);
}

/* What a line of the program's own keeps, tensor by tensor, where that is half of what is live and there are no steps: a data
 * set or a list, of which smaller batches make nothing less. Weights that such a line loads look the same. */
static bool is_pile(const hri_oom_facts *k) {
  enum { LEAST_TENSORS = 32 };
  const hr_live_group *most = k->i->group_count[HR_BY_STACK] ? &k->i->groups[HR_BY_STACK][0] : NULL;
  if (!most || most->count < LEAST_TENSORS || most->bytes < k->live / 2) return false;
  if (k->i->step_count || !hri_stack_is_own(k->i->snapshot, most->stack)) return false;
  return most->stage == HR_STAGE_UNKNOWN || most->stage == HR_STAGE_DATA || most->stage == HR_STAGE_BETWEEN;
}

static void advise_too_big(hr_oom_failure *f, const hri_oom_facts *k) {
  if (is_pile(k))
    hr_oom_add_advice(
        f, HR_OOM_ADVICE,
        "most of what is live is kept by one line, named above: unless these are weights, keep it on the host "
        "(pin_memory()) and move what a step needs, or keep less of it; where each step adds to it, it is growth",
        "small", "", 0);
  if (k->i->event_count && !k->i->began_empty && k->i->step_count < STEPS_OF_GROWTH)
    hr_oom_add_advice(
        f, HR_OOM_ADVICE,
        "the recording has no beginning and too few steps to tell growth: record more of them (max_entries=1000000), and take "
        "the snapshot before the exception leaves the training loop, while what was kept is still there",
        "none", "", 0);
}

uint32_t hr_explain_trace(const hr_snapshot *snapshot) { return hri_failed_trace(snapshot); }

hr_status hr_explain_snapshot(const hr_oom_evidence *evidence, const hr_explain_options *options,
                              hr_explanation **explanation, hr_error *error) {
  hri_oom_facts k = hri_oom_facts_of(evidence);
  hr_explanation *e = hri_alloc_zero(1, sizeof *e);
  hr_oom_failure *f = hri_alloc_zero(1, sizeof *f);
  *explanation = NULL;
  if (!e || !f) {
    hri_free(e);
    hri_free(f);
    return hri_fail_memory(error, sizeof *e + sizeof *f, "an explanation");
  }
  f->source = "snapshot";
  f->wording = f->framework = f->phase = "";
  if (options && options->framework) f->framework = options->framework;
  f->rank = -1;
  f->device_index = k.i->device;
  f->event = k.oom ? k.oom->event : k.i->at_event;
  if (k.oom && k.oom->stage != HR_STAGE_UNKNOWN) f->phase = hr_stage_name(k.oom->stage);
  if (!k.oom && k.i->at_stage != HR_STAGE_UNKNOWN) f->phase = hr_stage_name(k.i->at_stage);
  f->repeats = k.i->oom_total > 1 ? k.i->oom_total - 1 : 0;
  hri_oom_fill(f, &k);
  if (k.oom) judge_failure(f, &k);
  else judge_peak(f, &k);
  if (f->certainty == HR_OOM_CERTAIN && k.i->odd_count > k.i->event_count / 100) {
    f->certainty = HR_OOM_LIKELY;
    hri_oom_line(f, "%llu of %llu events contradict each other, so nothing here is certain",
                 (unsigned long long)k.i->odd_count, (unsigned long long)k.i->event_count);
  }
  if (k.total && k.reserved + k.device_free > k.total) {
    if (f->certainty == HR_OOM_CERTAIN) f->certainty = HR_OOM_LIKELY;
    hri_oom_line(f, "the total given, %s, is less than the %s that the snapshot accounts for: it is another device's",
                 SIZE(k.total), SIZE(k.reserved + k.device_free));
  }
  hri_oom_add_proofs(f, &k);
  if (f->cause == HR_OOM_GROWTH) advise_passes(f, &k);
  if (k.i->event_count == 0)
    hr_oom_add_advice(
        f, HR_OOM_ADVICE,
        "record events too: torch.cuda.memory._record_memory_history(max_entries=1000000) before the work "
        "begins, and the snapshot at the failure",
        "none", "", 0);
  if (f->cause == HR_OOM_TOO_BIG) advise_too_big(f, &k);
  hri_oom_advise(f, k.shortage.settings.expandable_segments);
  e->failures = f;
  e->failure_count = 1;
  *explanation = e;
  return HR_OK;
}
