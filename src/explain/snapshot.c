/* From what a snapshot shows to one cause.
 *
 * At the failing request, R is reserved, F free on the device (the event states it), N what the request makes the allocator
 * ask of the driver, W the cached bytes in wholly free segments, C all cached bytes of the default pools, P those of private
 * pools. A snapshot states no total of the device and no other process, so what R + F leaves out is known only when the caller
 * knows the total. In order, from what allows no other reading to what remains:
 *   request > total                  too big, certain
 *   F >= N                           a cap; which one only settings or several such failures tell
 *   F + W >= N                       cached but not returned, certain: PyTorch returns W before it fails, but for captures
 *   F + C < N <= F + C + P           private pools
 *   R was larger before than R + F   another process or this one past the allocator: no snapshot can tell which
 *   stacks that grow with each step  growth, where without them the request would fit
 *   total - R - F > total / 4        another process or past the allocator
 *   F + C >= N, proven by replay     fragmented, certain, unless the device was nearly full anyway (in_pieces)
 *   live + request >> other steps    an outlier batch, never certain
 *   F + C >= N                       fragmented, likely, from 5 % of R on and with the same exception
 *   total - R - F > total / 10       another process or past the allocator
 *   else                             too big: certain with a known total and steps that show no growth */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "explain/message.h"

#define MIB(x) ((uint64_t)(x) << 20)
#define SIZE HRI_OOM_SIZE

typedef struct facts {
  const hr_oom_evidence *evidence;
  const hr_inspection *i;
  const hr_oom_event *oom; /* NULL: no failure is recorded */
  uint64_t request, need;  /* rounded to blocks; what the driver is asked for */
  uint64_t total, device_free, reserved, live, returnable, cached, pools_free;
  uint64_t leak_bytes;
  const hr_growth *leak; /* the largest */
  bool knows_free;
} facts;

static uint64_t sub(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static uint64_t segment_bytes(uint64_t request) {
  if (request <= MIB(1)) return MIB(2);
  return request < MIB(10) ? MIB(20) : hri_round_up(request, MIB(2));
}

static facts facts_of(const hr_oom_evidence *evidence) {
  const hr_inspection *i = evidence->inspection;
  const hr_memory_sums *at = &i->at;
  facts f = {.evidence = evidence, .i = i, .total = evidence->device_total_bytes, .reserved = at->reserved_bytes};
  uint64_t cached = at->free_returnable_bytes + at->free_pinned_bytes;
  f.live = at->requested_bytes + at->rounding_bytes + at->pending_bytes;
  f.pools_free = at->private_pool_free_bytes < cached ? at->private_pool_free_bytes : cached;
  f.cached = cached - f.pools_free;
  f.returnable = sub(at->free_returnable_bytes, f.pools_free); /* at least: which pool a wholly free segment is of, is not told */
  if (i->oom_count > 0) {
    f.oom = &i->ooms[i->oom_count - 1];
    f.request = i->fragmentation.request_bytes ? i->fragmentation.request_bytes : f.oom->size;
    f.need = segment_bytes(f.request);
    f.knows_free = i->fragmentation.device_free_known || f.oom->device_free_bytes > 0;
    f.device_free = f.oom->device_free_bytes;
  }
  for (uint32_t g = 0; g < i->growth_count; g++) {
    if (i->growth[g].kind != HR_GROWTH_LEAK) continue;
    f.leak_bytes += i->growth[g].bytes;
    if (!f.leak || i->growth[g].bytes > f.leak->bytes) f.leak = &i->growth[g];
  }
  return f;
}

/* ---- figures, shares, what is live ---- */

static void set(hr_oom_failure *f, hr_oom_figure figure, hr_oom_state state, uint64_t bytes) {
  f->figures[figure] = (hr_oom_value){state, bytes, 0};
}

static void fill_figures(hr_oom_failure *f, const facts *k) {
  if (k->oom) set(f, HR_OOM_REQUESTED, HR_OOM_READ, k->request);
  if (k->knows_free) set(f, HR_OOM_FREE, HR_OOM_READ, k->device_free);
  if (k->total) set(f, HR_OOM_TOTAL, HR_OOM_READ, k->total);
  if (!k->i->has_state && k->reserved == 0) return;
  set(f, HR_OOM_ALLOCATED, HR_OOM_DERIVED, k->live);
  set(f, HR_OOM_RESERVED, HR_OOM_DERIVED, k->reserved);
  set(f, HR_OOM_UNALLOCATED, HR_OOM_DERIVED, k->cached + k->pools_free);
  if (k->i->at.private_pool_bytes) set(f, HR_OOM_PRIVATE_POOLS, HR_OOM_DERIVED, k->i->at.private_pool_bytes);
}

static void divide(hr_oom_failure *f, const facts *k) {
  const hr_memory_sums *at = &k->i->at;
  hri_oom_share(f, "live tensors", at->requested_bytes);
  hri_oom_share(f, "rounding of their blocks", at->rounding_bytes);
  hri_oom_share(f, "freed, waiting for other streams", at->pending_bytes);
  hri_oom_share(f, "cached, in segments that hold live blocks", at->free_pinned_bytes);
  hri_oom_share(f, "cached, in wholly free segments", at->free_returnable_bytes);
  if (k->knows_free) hri_oom_share(f, "free", k->device_free);
  if (k->total && k->knows_free)
    hri_oom_share(f, "unknown: other processes, this one's context and libraries", sub(k->total, k->reserved + k->device_free));
  else if (k->total)
    hri_oom_share(f, "unknown: free, or held by others", sub(k->total, k->reserved));
  for (uint32_t s = 0; s < f->share_count; s++)
    f->share_total_bytes += f->shares[s].bytes;
  if (k->total) f->excess_bytes = sub(f->share_total_bytes, k->total);
}

static bool is_python(const char *file) {
  size_t length = strlen(file);
  return length > 3 && strcmp(file + length - 3, ".py") == 0;
}

/* The frame that says most to a person: the innermost of Python that is not PyTorch's own, else of Python, else the innermost. */
static void describe_stack(const hr_snapshot *s, uint32_t stack, char *out, size_t capacity) {
  const hr_stack *st = &s->stacks[stack];
  const hr_frame *best = NULL;
  int best_rank = 0;
  for (uint32_t i = 0; i < st->count; i++) {
    const hr_frame *frame = &s->frames[s->stack_frames[st->first + i]];
    const char *file = hr_snapshot_string(s, frame->file);
    int rank = !is_python(file) ? 1 : strstr(file, "/torch/") ? 2 : 3;
    if (rank > best_rank) {
      best = frame;
      best_rank = rank;
    }
  }
  if (!best) {
    (void)snprintf(out, capacity, "no stack was recorded");
    return;
  }
  const char *file = hr_snapshot_string(s, best->file), *slash = strrchr(file, '/');
  (void)snprintf(out, capacity, file[0] ? "%.60s (%.60s:%u)" : "%.60s", hr_snapshot_string(s, best->name), slash ? slash + 1 : file, best->line);
}

static void note_live(hr_oom_failure *f, const facts *k) {
  const hr_inspection *i = k->i;
  char where[160];
  for (uint64_t g = 0; g < i->group_count[HR_BY_CATEGORY] && g < 2; g++) {
    const hr_live_group *group = &i->groups[HR_BY_CATEGORY][g];
    const char *category = group->category < i->category_count ? i->categories[group->category] : "unknown";
    hri_oom_line(f, "live: %s in %llu tensors of category %s%s", SIZE(group->bytes), (unsigned long long)group->count, category,
                 i->categories_inferred ? " (inferred)" : "");
  }
  if (i->group_count[HR_BY_STACK] == 0) return;
  describe_stack(i->snapshot, i->groups[HR_BY_STACK][0].stack, where, sizeof where);
  hri_oom_line(f, "most by one stack: %s in %llu tensors, %s", SIZE(i->groups[HR_BY_STACK][0].bytes),
               (unsigned long long)i->groups[HR_BY_STACK][0].count, where);
}

/* ---- proofs ---- */

/* A replay that repeats the recorded failure: only against it does another outcome prove anything. */
static bool can_prove(const facts *k) {
  const hr_replay *r = k->evidence->replay;
  return r && k->oom && r->recorded.failed && r->recorded.failed_event == r->recorded_failed_event && r->trust != HR_REPLAY_ROUGH;
}

static uint32_t proof_count(const facts *k) {
  uint32_t count = 0;
  for (uint32_t r = 0; can_prove(k) && r < k->evidence->result_count; r++)
    if (!k->evidence->results[r].failed) count++;
  return count;
}

static void add_proof(hr_oom_failure *f, const facts *k, const hr_replay_result *result) {
  const hr_replay *r = k->evidence->replay;
  char text[HR_OOM_LINE_BYTES], proof[HR_OOM_LINE_BYTES];
  if (result->alloc_conf[0])
    (void)snprintf(text, sizeof text, "set PYTORCH_ALLOC_CONF=%.170s (PYTORCH_CUDA_ALLOC_CONF before 2.9)", result->alloc_conf);
  else
    (void)snprintf(text, sizeof text, "leave PYTORCH_ALLOC_CONF unset: PyTorch's defaults");
  (void)snprintf(proof, sizeof proof, "replay of %llu requests: reserved peak %s (%s recorded)%s%s%s", (unsigned long long)result->request_count,
                 SIZE(result->reserved_peak_bytes), SIZE(r->recorded.reserved_peak_bytes), k->oom ? ", no failure up to where the recording ends within " : "",
                 k->oom ? SIZE(r->capacity_bytes) : "", r->trust == HR_REPLAY_EXACT ? "" : "; close, not exact");
  hr_oom_add_advice(f, HR_OOM_PROVEN, text, "none", proof, result->reserved_peak_bytes);
}

/* Whether a setting only adds to one that is listed already, and saves no more. */
static bool adds_nothing(const hr_replay_result *result, const hr_replay_result *const *listed, uint32_t count) {
  for (uint32_t k = 0; k < count; k++)
    if (strstr(result->alloc_conf, listed[k]->alloc_conf) && result->reserved_peak_bytes >= listed[k]->reserved_peak_bytes) return true;
  return false;
}

static void add_proofs(hr_oom_failure *f, const facts *k) {
  enum { LISTED = 3 };
  const hr_replay *r = k->evidence->replay;
  const hr_replay_result *listed[LISTED];
  uint32_t proofs = proof_count(k), count = 0;
  if (!r) return;
  if (k->oom && r->trust == HR_REPLAY_ROUGH)
    hri_oom_line(f, "replay is only rough, so it proves nothing: %.170s", r->trust_reason);
  else if (k->oom && !can_prove(k))
    hri_oom_line(f, "replay does not repeat the failure under the recorded settings, so it proves nothing here");
  else if (k->oom && k->evidence->result_count && proofs == 0)
    hri_oom_line(f, "replay: it fails under all %u settings tried, so no setting of the allocator helps", k->evidence->result_count);
  for (uint32_t n = 0; n < k->evidence->result_count && count < LISTED; n++) {
    const hr_replay_result *result = &k->evidence->results[n];
    bool helps = k->oom ? proofs > 0 && !result->failed
                        : r->trust != HR_REPLAY_ROUGH && result->reserved_peak_bytes < r->recorded.reserved_peak_bytes / 20 * 19;
    if (!helps || adds_nothing(result, listed, count)) continue;
    add_proof(f, k, result);
    listed[count++] = result;
  }
}

/* ---- the judges ---- */

static bool judge_absurd(hr_oom_failure *f, const facts *k) {
  bool larger = k->total && k->request > k->total;
  if (!larger && k->request < 1ull << 60) return false;
  hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_CERTAIN, "one request of %s is larger than the whole device", SIZE(k->request));
  hri_oom_line(f, "requested %s > total %s: a size was computed wrongly, or the model needs another device", SIZE(k->request),
               k->total ? SIZE(k->total) : "of any device");
  return true;
}

/* The share of the device that the recorded settings allow; 0 when they state none. */
static double stated_fraction(const hr_snapshot *s) {
  static const char key[] = "per_process_memory_fraction:";
  const char *at = strstr(hr_snapshot_string(s, s->settings.text), key);
  double fraction = at ? strtod(at + strlen(key), NULL) : 0;
  return fraction > 0 && fraction < 1 ? fraction : 0;
}

static bool judge_cap(hr_oom_failure *f, const facts *k) {
  double fraction = stated_fraction(k->i->snapshot);
  uint64_t allowed = (uint64_t)(fraction * (double)k->total);
  uint32_t alike = 0;
  if (!k->knows_free || k->device_free < k->need) return false;
  hri_oom_line(f, "free on the device %s >= %s asked of the driver, and it failed all the same", SIZE(k->device_free), SIZE(k->need));
  for (uint32_t n = 0; n < k->i->oom_count; n++)
    if (k->i->ooms[n].device_free_bytes >= segment_bytes(k->i->ooms[n].size)) alike++;
  if (fraction > 0 && allowed > 0 && k->reserved <= allowed && k->reserved + k->need > allowed) {
    set(f, HR_OOM_ALLOWED, HR_OOM_DERIVED, allowed);
    hri_oom_line(f, "reserved %s + %s > allowed %s (%.3g of the device, from the recorded settings)", SIZE(k->reserved), SIZE(k->need),
                 SIZE(allowed), fraction);
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_CERTAIN, "a cap of %s refused it, with %s free on the device", SIZE(allowed), SIZE(k->device_free));
  } else if (fraction > 0) {
    hri_oom_line(f, "the recorded settings cap this process at %.3g of the device", fraction);
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_LIKELY, "a cap refused it, with %s free on the device", SIZE(k->device_free));
  } else if (alike >= 2) {
    hri_oom_line(f, "%u of %u recorded failures came with enough free memory: no passing shortage does that", alike, k->i->oom_count);
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_LIKELY, "a limit near %s refused it, with %s free on the device", SIZE(k->reserved), SIZE(k->device_free));
  } else {
    hri_oom_line(f, "a cap (set_per_process_memory_fraction, a container, MIG), or memory that was free again a moment later");
    hri_oom_undecided(f, HRI_OOM_COULD(CAP) | HRI_OOM_COULD(OTHER_PROCESS) | HRI_OOM_COULD(OUTSIDE_ALLOCATOR),
                      "not explained by the snapshot: more was free than requested");
  }
  return true;
}

static bool judge_cached(hr_oom_failure *f, const facts *k) {
  bool fits = k->device_free + k->returnable >= k->need || k->i->fragmentation.fits_after_return;
  uint64_t back = k->returnable ? k->returnable : k->i->at.free_returnable_bytes;
  if (!k->knows_free || back == 0 || !fits) return false;
  hri_oom_line(f, "free %s + wholly free segments %s >= %s asked of the driver", SIZE(k->device_free), SIZE(back), SIZE(k->need));
  hri_oom_line(f, "PyTorch returns such segments before it fails, except while a graph is captured or a MemPool is active, or with throw_on_cudamalloc_oom");
  hri_oom_say(f, HR_OOM_CACHED_NOT_RETURNED, HR_OOM_CERTAIN, "%s were cached in wholly free segments and were not returned", SIZE(back));
  return true;
}

static bool judge_pools(hr_oom_failure *f, const facts *k) {
  uint64_t without = k->device_free + k->cached;
  bool only = without < k->need && without + k->pools_free >= k->need;
  bool most = k->pools_free > k->cached && k->device_free + k->pools_free >= k->need;
  if (k->pools_free == 0 || !k->knows_free || !(only || most)) return false;
  hri_oom_line(f, "free %s + cached %s %s %s asked of the driver; %s more lie free in private pools", SIZE(k->device_free), SIZE(k->cached),
               only ? "<" : "(in pieces) and", SIZE(k->need), SIZE(k->pools_free));
  hri_oom_say(f, HR_OOM_PRIVATE_POOL, HR_OOM_LIKELY, "%s lie free in private pools (CUDA graphs, MemPool), where nobody else may use them",
              SIZE(k->pools_free));
  return true;
}

static bool judge_shrunk(hr_oom_failure *f, const facts *k) {
  uint64_t now = k->reserved + k->device_free, lost = sub(k->i->peak_reserved_bytes, now);
  if (!k->knows_free || lost < MIB(2) || lost < k->i->peak_reserved_bytes / 100 || k->device_free + lost < k->need) return false;
  hri_oom_line(f, "the allocator held %s before; now reserved %s + free %s = %s: %s went to somebody else", SIZE(k->i->peak_reserved_bytes),
               SIZE(k->reserved), SIZE(k->device_free), SIZE(now), SIZE(lost));
  hri_oom_line(f, "a snapshot shows neither other processes nor this one's libraries (NCCL, cuBLAS): nvidia-smi does");
  hri_oom_undecided(f, HRI_OOM_COULD(OTHER_PROCESS) | HRI_OOM_COULD(OUTSIDE_ALLOCATOR),
                    "memory that this allocator had before is held by another process, or by this one past the allocator");
  return true;
}

static void note_pinned(hr_oom_failure *f, const facts *k) {
  const hr_fragmentation *g = &k->i->fragmentation;
  char where[160];
  hri_oom_line(f, "free %s + cached %s >= %s asked of the driver, but no segment of it is wholly free", SIZE(k->device_free), SIZE(k->cached),
               SIZE(k->need));
  if (g->pool_largest_free_bytes)
    hri_oom_line(f, "the largest free block of the request's pool has %s of %s", SIZE(g->pool_largest_free_bytes), SIZE(g->pool_free_bytes));
  if (g->pinned_count == 0) return;
  describe_stack(k->i->snapshot, g->pinned[0].stack, where, sizeof where);
  hri_oom_line(f, "%s live pin a segment with %s free: %s", SIZE(g->pinned[0].live_bytes), SIZE(g->pinned[0].free_bytes), where);
}

/* Whether pieces are the cause and not just the last straw of a device that fills up: there is always a request then that would
 * have gone well in one piece, and the next one fails. 0: no, or too little to say; 1: likely; 2: a proof makes it certain. As much
 * was live before, and it went well: that speaks for pieces, and where the steps are known and none of them leaves more
 * behind, it is enough. Else by what would stay free after the request; within the first steps more is to come that nobody has
 * seen yet, so more must stay. */
static int in_pieces(const facts *k) {
  uint64_t have = k->device_free + k->cached, capacity = k->reserved + k->device_free, spare;
  if (!k->knows_free || k->cached == 0 || have < k->need) return 0;
  spare = have - k->need;
  if (spare >= capacity / 4) return 2;
  if (k->oom->live_bytes + k->request <= k->i->peak_live_bytes) return k->i->step_count >= 4 && !k->leak ? 2 : 1;
  return spare >= (k->i->step_count >= 2 ? capacity / 10 : capacity / 6);
}

static bool judge_pieces(hr_oom_failure *f, const facts *k, bool only_proven) {
  bool proven = proof_count(k) > 0;
  int weight = in_pieces(k);
  if (weight == 0 || (only_proven && !proven) || (!proven && k->cached < k->reserved / 20)) return false;
  note_pinned(f, k);
  if (k->oom->live_bytes + k->request <= k->i->peak_live_bytes)
    hri_oom_line(f, "live %s + request %s is not more than was live before, %s", SIZE(k->oom->live_bytes), SIZE(k->request), SIZE(k->i->peak_live_bytes));
  else
    hri_oom_line(f, "in one piece it would have fit, with %s to spare", SIZE(k->device_free + k->cached - k->need));
  if (proven) hri_oom_line(f, "the same requests, replayed under other settings, do not fail: see below");
  else hri_oom_line(f, can_prove(k) ? "but replay found no setting that avoids it" : "not proven by a replay");
  hri_oom_say(f, HR_OOM_FRAGMENTED, proven && weight == 2 ? HR_OOM_CERTAIN : HR_OOM_LIKELY, "%s were cached, but in pieces too small for %s",
              SIZE(k->cached), SIZE(k->request));
  return true;
}

static void note_leak(hr_oom_failure *f, const facts *k) {
  char where[160];
  describe_stack(k->i->snapshot, k->leak->stack, where, sizeof where);
  hri_oom_line(f, "%s more every step, in %u of %u steps, %s left at the end: %s", SIZE((uint64_t)k->leak->bytes_per_step), k->leak->steps_grown,
               k->leak->steps_seen, SIZE(k->leak->bytes), where);
}

static bool judge_growth(hr_oom_failure *f, const facts *k) {
  uint64_t missing = k->knows_free ? sub(k->total, k->reserved + k->device_free) : 0;
  bool every, enough;
  if (!k->leak || k->leak_bytes < k->live / 10) return false;
  enough = k->device_free + k->cached + k->leak_bytes >= k->need;
  if (!enough) return false;
  note_leak(f, k);
  every = k->leak->steps_seen >= 5 && k->leak->steps_grown + 2 >= k->leak->steps_seen;
  hri_oom_line(f, "without the %s that stay behind, free %s + cached %s would have been enough for %s", SIZE(k->leak_bytes), SIZE(k->device_free),
               SIZE(k->cached), SIZE(k->need));
  if (missing >= k->total / 4 && k->total) {
    hri_oom_line(f, "but %s of the device are held by others or past the allocator, and would have been enough as well", SIZE(missing));
    every = false;
  }
  hri_oom_say(f, HR_OOM_GROWTH, every && k->leak_bytes >= k->live / 4 ? HR_OOM_CERTAIN : HR_OOM_LIKELY,
              "memory grows with every step: %s of the %s live are left over from earlier steps", SIZE(k->leak_bytes), SIZE(k->live));
  return true;
}

static bool is_training(hr_stage stage) {
  return stage == HR_STAGE_UNKNOWN || stage == HR_STAGE_FORWARD || stage == HR_STAGE_LOSS || stage == HR_STAGE_BACKWARD ||
         stage == HR_STAGE_DATA;
}

/* The step that an event is in; behind the last boundary, that one's. step_count when it is in none. */
static uint32_t step_of(const hr_inspection *i, uint64_t event) {
  for (uint32_t s = 0; s < i->step_count; s++)
    if (event >= i->steps[s].first_event && event - i->steps[s].first_event < i->steps[s].event_count) return s;
  return i->step_count > 0 && event >= i->steps[i->step_count - 1].first_event ? i->step_count - 1 : i->step_count;
}

/* A fifth above the median of the steps and a tenth above each of the three before: what grows slowly is no outlier. */
static bool judge_outlier(hr_oom_failure *f, const facts *k) {
  uint64_t wanted = k->oom->live_bytes + k->request, usual = k->i->usual_peak_bytes;
  uint32_t step = step_of(k->i, k->oom->event);
  if (k->i->step_count < 4 || step < 3 || step == k->i->step_count || usual == 0 || !is_training(k->oom->stage)) return false;
  if (wanted < usual + usual / 5) return false;
  for (uint32_t s = step - 3; s < step; s++)
    if (wanted < k->i->steps[s].peak_live_bytes + k->i->steps[s].peak_live_bytes / 10) return false;
  hri_oom_line(f, "this step: live %s + request %s = %s; the other steps peaked at %s (median of %u)", SIZE(k->oom->live_bytes), SIZE(k->request),
               SIZE(wanted), SIZE(usual), k->i->step_count);
  hri_oom_say(f, HR_OOM_OUTLIER_BATCH, HR_OOM_LIKELY, "step %u needs %.0f %% more than the others: an outlier batch", step + 1,
              100.0 * (double)wanted / (double)usual - 100.0);
  return true;
}

static bool judge_missing(hr_oom_failure *f, const facts *k, uint64_t part) {
  uint64_t missing = sub(k->total, k->reserved + k->device_free);
  if (!k->total || !k->knows_free || missing < k->total / part || k->device_free + k->cached + missing < k->need) return false;
  hri_oom_line(f, "total %s - reserved %s - free %s = %s held by others or past the allocator", SIZE(k->total), SIZE(k->reserved),
               SIZE(k->device_free), SIZE(missing));
  hri_oom_line(f, "a snapshot shows neither other processes nor this one's libraries (NCCL, cuBLAS): nvidia-smi does");
  hri_oom_undecided(f, HRI_OOM_COULD(OTHER_PROCESS) | HRI_OOM_COULD(OUTSIDE_ALLOCATOR) | (in_pieces(k) ? HRI_OOM_COULD(FRAGMENTED) : 0),
                    "much of the device is held by something outside this allocator");
  return true;
}

static void judge_full(hr_oom_failure *f, const facts *k) {
  uint64_t have = k->device_free + k->cached, missing = sub(k->total, k->reserved + k->device_free);
  bool steps_known = k->i->step_count >= 3 && !k->leak;
  bool whole = k->total && missing < k->total / 10;
  if (have < k->need)
    hri_oom_line(f, "free %s + cached %s = %s < %s asked of the driver: short by %s", SIZE(k->device_free), SIZE(k->cached), SIZE(have),
                 SIZE(k->need), SIZE(k->need - have));
  else
    hri_oom_line(f, "in one piece it would have fit, with %s left of %s: nearly full%s", SIZE(have - k->need), SIZE(k->reserved + k->device_free),
                 proof_count(k) ? ", so the settings below carry this request, but hardly much more" : "");
  if (k->i->step_count == 0) hri_oom_line(f, "no steps were found in the trace: growth and outliers cannot be told from it");
  if (!k->total) hri_oom_line(f, "the device's total is not in a snapshot: what other processes hold of it is not known");
  note_live(f, k);
  if (have < k->need)
    hri_oom_say(f, HR_OOM_TOO_BIG, whole && steps_known ? HR_OOM_CERTAIN : HR_OOM_LIKELY, "too big by %s: live tensors fill what this process has",
                SIZE(k->need - have));
  else
    hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_LIKELY, "live tensors fill what this process has: %s of %s", SIZE(k->live), SIZE(k->reserved + k->device_free));
}

static void judge_failure(hr_oom_failure *f, const facts *k) {
  if (!k->knows_free) hri_oom_line(f, "how much the device had free is not in the snapshot");
  if (judge_absurd(f, k) || judge_cap(f, k) || judge_cached(f, k) || judge_pools(f, k) || judge_shrunk(f, k) || judge_growth(f, k) ||
      judge_missing(f, k, 4) || judge_pieces(f, k, true) || judge_outlier(f, k) || judge_pieces(f, k, false) || judge_missing(f, k, 10))
    return;
  judge_full(f, k);
}

static void judge_peak(hr_oom_failure *f, const facts *k) {
  const hr_inspection *i = k->i;
  if (k->leak && k->leak_bytes >= i->peak_live_bytes / 10) {
    note_leak(f, k);
    hri_oom_say(f, HR_OOM_GROWTH, HR_OOM_LIKELY, "nothing failed yet, but memory grows with every step: %s are left over", SIZE(k->leak_bytes));
  } else {
    hri_oom_say(f, HR_OOM_NO_FAILURE, HR_OOM_CERTAIN, "no failure is recorded; the peak was %s of live tensors", SIZE(i->peak_live_bytes));
  }
  hri_oom_line(f, "peak of live tensors %s; peak of what was reserved %s", SIZE(i->peak_live_bytes), SIZE(i->peak_reserved_bytes));
  note_live(f, k);
}

uint32_t hr_explain_trace(const hr_snapshot *snapshot) {
  uint32_t best = HR_TRACE_MOST;
  for (uint32_t t = 0; t < snapshot->trace_count; t++) {
    const hr_trace *trace = &snapshot->traces[t];
    uint64_t k = 0;
    if (best != HR_TRACE_MOST && trace->count <= snapshot->traces[best].count) continue;
    while (k < trace->count && snapshot->events[trace->first + k].action != HR_TRACE_OOM) k++;
    if (k < trace->count) best = t;
  }
  return best;
}

hr_status hr_explain_snapshot(const hr_oom_evidence *evidence, const hr_explain_options *options, hr_explanation **explanation,
                              hr_error *error) {
  facts k = facts_of(evidence);
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
  fill_figures(f, &k);
  divide(f, &k);
  if (k.oom) judge_failure(f, &k);
  else judge_peak(f, &k);
  if (f->certainty == HR_OOM_CERTAIN && k.i->odd_count > k.i->event_count / 100) {
    f->certainty = HR_OOM_LIKELY;
    hri_oom_line(f, "%llu of %llu events contradict each other, so nothing here is certain", (unsigned long long)k.i->odd_count,
                 (unsigned long long)k.i->event_count);
  }
  add_proofs(f, &k);
  hri_oom_advise(f);
  e->failures = f;
  e->failure_count = 1;
  *explanation = e;
  return HR_OK;
}
