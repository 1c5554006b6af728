/* How far a setting is known to carry, and the sentence that says it: the same for replay and explain. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "replay/replay.h"

const char *hr_replay_reach_name(hr_replay_reach reach) {
  static const char *const names[] = {"fails", "unproven", "request", "step", "recording"};
  return (unsigned)reach <= HR_REPLAY_RECORDING ? names[reach] : "fails";
}

/* The recorded settings ran as they did: nothing about their moments is open. */
static bool moves_frees(const hr_replay *r, const hr_replay_result *x) {
  return r->late_free_count > 0 && strcmp(x->alloc_conf, r->recorded.alloc_conf) != 0;
}

bool hr_replay_is_proven(const hr_replay *r, const hr_replay_result *x) {
  return x->reach == HR_REPLAY_RECORDING && r->trust == HR_REPLAY_EXACT && !moves_frees(r, x);
}

/* A failure states the device's room, and so may the caller; that segments were returned says only what is too much. */
bool hri_replay_needs_more(const hr_replay *r, const hr_replay_result *x) {
  return !r->recorded_failed && strcmp(r->capacity_from, "given") != 0 &&
         x->reserved_peak_bytes > r->trace_reserved_peak_bytes;
}

bool hri_replay_returns_in_pools(const hr_replay *r, const hr_replay_result *x) {
  return x->returned_for_pools > r->recorded.returned_for_pools;
}

static const char *no_proof(const hr_replay *r, const hr_replay_result *x) {
  if (r->trust == HR_REPLAY_ROUGH) return "the replay is only rough";
  if (!r->began_empty) return "the recording lost its beginning";
  if (hr_replay_failed_before(r))
    return "what the program would have done without its earlier failures is not recorded";
  if (r->recorded_failed && !r->recorded.failed)
    return "under the recorded settings the failure does not come out again";
  if (hri_replay_returns_in_pools(r, x))
    return "cached memory is returned for a private pool, which cannot be where a graph is captured";
  return "it reserves more than was recorded, and what the device has is not known";
}

static void say_reach(const hr_replay *r, const hr_replay_result *x, char *text, size_t capacity) {
  char size[32];
  switch (x->reach) {
  case HR_REPLAY_FAILS:
    (void)snprintf(text, capacity, "fails at a request of %s", hri_size_text(x->failed_bytes, size));
    return;
  case HR_REPLAY_UNPROVEN:
    (void)snprintf(text, capacity, "does not fail in replay, but that is no proof: %s", no_proof(r, x));
    return;
  case HR_REPLAY_REQUEST:
    if (x->rest_failed_bytes)
      (void)snprintf(text, capacity,
                     "carries this request only: the rest of the step, as in step %u, fails at a request of %s",
                     x->reach_step, hri_size_text(x->rest_failed_bytes, size));
    else if (x->reach_step)
      (void)snprintf(
          text, capacity,
          "carries this request only: the rest of step %u would be met, but this step asks for more than that one",
          x->reach_step);
    else
      (void)snprintf(text, capacity,
                     "carries this request only: no whole step is recorded that tells what would follow");
    return;
  case HR_REPLAY_STEP:
    (void)snprintf(text, capacity, "replayed, rest of the step as in step %u: likely", x->reach_step);
    return;
  default: break;
  }
  (void)snprintf(text, capacity, "%s all %llu recorded requests are met%s",
                 hr_replay_is_proven(r, x) ? "proven by replay:" : "replayed, likely:",
                 (unsigned long long)x->request_count, r->trust == HR_REPLAY_EXACT ? "" : " (close, not exact)");
}

void hr_replay_sentence(const hr_replay *r, const hr_replay_result *x, char *text, size_t capacity) {
  size_t used;
  say_reach(r, x, text, capacity);
  used = strlen(text);
  if (x->reach < HR_REPLAY_REQUEST || !moves_frees(r, x)) return;
  (void)snprintf(text + used, capacity - used,
                 "; %llu frees waited for other streams, and replay cannot know when they end under this setting",
                 (unsigned long long)r->late_free_count);
}
