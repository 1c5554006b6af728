/* What replay says of other settings, and what of that is a proof. */
#include "explain/evidence.h"

#include <stdio.h>

#define SIZE HRI_OOM_SIZE

static bool repeats_request(const hr_replay *r) {
  return r->recorded.failed && r->recorded.failed_event == r->recorded_failed_event;
}

/* A replay that repeats the recorded failure: only against it does another outcome say anything. */
static bool repeats_failure(const hri_oom_facts *k) {
  const hr_replay *r = k->evidence->replay;
  return r && k->oom && repeats_request(r) && r->trust != HR_REPLAY_ROUGH;
}

/* Where the recording lost its beginning, other settings are replayed from a state that came about under the recorded
 * ones; a process that starts under them comes to another state. That proves nothing. */
bool hri_oom_can_prove(const hri_oom_facts *k) { return repeats_failure(k) && k->evidence->replay->began_empty; }

uint32_t hri_oom_carried_count(const hri_oom_facts *k) {
  uint32_t count = 0;
  for (uint32_t r = 0; hri_oom_can_prove(k) && r < k->evidence->result_count; r++)
    if (!k->evidence->results[r].failed) count++;
  return count;
}

bool hri_oom_step_carried(const hri_oom_facts *k) {
  for (uint32_t r = 0; hri_oom_can_prove(k) && r < k->evidence->result_count; r++)
    if (k->evidence->results[r].reach >= HR_REPLAY_STEP) return true;
  return false;
}

bool hri_oom_rest_is_met(const hri_oom_facts *k) {
  for (uint32_t r = 0; hri_oom_can_prove(k) && r < k->evidence->result_count; r++) {
    const hr_replay_result *result = &k->evidence->results[r];
    if (result->reach >= HR_REPLAY_STEP) return true;
    if (result->reach == HR_REPLAY_REQUEST && result->reach_step && !result->rest_failed_bytes) return true;
  }
  return false;
}

bool hri_oom_rest_fails(const hri_oom_facts *k) {
  uint32_t carried = hri_oom_carried_count(k), failing = 0;
  for (uint32_t r = 0; carried && r < k->evidence->result_count; r++)
    failing += !k->evidence->results[r].failed && k->evidence->results[r].rest_failed_bytes > 0;
  return carried > 0 && failing == carried;
}

static hr_oom_basis basis_of(const hr_replay *r, const hr_replay_result *result) {
  if (hr_replay_is_proven(r, result)) return HR_OOM_PROVEN;
  return result->reach >= HR_REPLAY_STEP ? HR_OOM_REPLAYED : HR_OOM_REQUEST;
}

static void add_setting(hr_oom_failure *f, const hri_oom_facts *k, const hr_replay_result *result) {
  const hr_replay *r = k->evidence->replay;
  const char *now = r->recorded.alloc_conf;
  char text[HR_OOM_LINE_BYTES], proof[HR_OOM_LINE_BYTES], sentence[HR_OOM_LINE_BYTES];
  if (result->alloc_conf[0])
    (void)snprintf(text, sizeof text, "set PYTORCH_ALLOC_CONF=%.140s%s (PYTORCH_CUDA_ALLOC_CONF before 2.9)",
                   result->alloc_conf, now[0] ? " in place of what is set" : "");
  else (void)snprintf(text, sizeof text, "leave PYTORCH_ALLOC_CONF unset, now %.120s: PyTorch's defaults", now);
  hr_replay_sentence(r, result, sentence, sizeof sentence);
  (void)snprintf(proof, sizeof proof, "%.200s (reserved peak %s", sentence, SIZE(result->reserved_peak_bytes));
  if (strlen(proof) + 40 < sizeof proof)
    (void)snprintf(proof + strlen(proof), sizeof proof - strlen(proof), ", %s recorded",
                   SIZE(r->recorded.reserved_peak_bytes));
  (void)snprintf(proof + strlen(proof), sizeof proof - strlen(proof), ")");
  hr_oom_add_advice(f, basis_of(r, result), text, "none", proof, result->reserved_peak_bytes);
}

/* Whether a setting is no news beside those that are listed: it comes to the same, or adds to one and saves no more. */
static bool adds_nothing(const hr_replay_result *result, const hr_replay_result *const *listed, uint32_t count) {
  for (uint32_t k = 0; k < count; k++) {
    if (result->reserved_peak_bytes == listed[k]->reserved_peak_bytes) return true;
    if (strstr(result->alloc_conf, listed[k]->alloc_conf) &&
        result->reserved_peak_bytes >= listed[k]->reserved_peak_bytes)
      return true;
  }
  return false;
}

/* No setting is proven: none helps, or the recording does not allow a proof. */
static void advise_untested(hr_oom_failure *f, const hri_oom_facts *k) {
  const hr_replay_result *best = &k->evidence->results[0];
  char text[HR_OOM_LINE_BYTES];
  if (best->failed) {
    hri_oom_line(f, "replay: it fails under all %u settings tried, so no setting of the allocator helps",
                 k->evidence->result_count);
    return;
  }
  hri_oom_line(
      f,
      "the recording lost its beginning: from the state found by going back, replay under %.80s does not fail, but that is no proof",
      best->alloc_conf[0] ? best->alloc_conf : "the defaults");
  if (!best->alloc_conf[0]) return;
  (void)snprintf(text, sizeof text, "try PYTORCH_ALLOC_CONF=%.170s (PYTORCH_CUDA_ALLOC_CONF before 2.9)",
                 best->alloc_conf);
  hr_oom_add_advice(f, HR_OOM_ADVICE, text, "none", "", 0);
}

void hri_oom_add_proofs(hr_oom_failure *f, const hri_oom_facts *k) {
  enum { LISTED = 3 };
  const hr_replay *r = k->evidence->replay;
  const hr_replay_result *listed[LISTED];
  uint32_t proofs = hri_oom_carried_count(k), count = 0;
  if (!r) return;
  if (k->oom && !repeats_request(r) && hr_replay_failed_before(r))
    hri_oom_line(
        f,
        "%llu failures are recorded, and replay repeats the first; what the program would have done without the "
        "earlier ones is not recorded, so replay proves nothing of the last",
        (unsigned long long)r->recorded_failed_count);
  else if (k->oom && !repeats_request(r))
    hri_oom_line(f, "replay does not repeat the failure under the recorded settings, so it proves nothing here");
  else if (k->oom && r->trust == HR_REPLAY_ROUGH)
    hri_oom_line(f, "replay is only rough, so it proves nothing: %.150s%s", r->trust_reason,
                 strlen(r->trust_reason) > 150 ? "..." : "");
  else if (k->oom && k->evidence->result_count && proofs == 0) advise_untested(f, k);
  if (f->cause == HR_OOM_GROWTH) { /* what grows fills any arrangement: the leak is to be mended first */
    if (k->oom && proofs) hri_oom_line(f, "replay: other settings carry this request; what grows will fill them too");
    return;
  }
  if (k->oom && k->knows_free &&
      k->device_free >= k->need) { /* room was there: a limit is to be raised, not to be lived with */
    if (proofs)
      hri_oom_line(f, "replay: other settings carry this request within the %s that the process got",
                   SIZE(r->capacity_bytes));
    return;
  }
  for (uint32_t n = 0; n < k->evidence->result_count && count < LISTED; n++) {
    const hr_replay_result *result = &k->evidence->results[n];
    bool helps = k->oom ? proofs > 0 && result->reach >= HR_REPLAY_REQUEST
                        : result->reach == HR_REPLAY_RECORDING &&
                              result->reserved_peak_bytes < r->recorded.reserved_peak_bytes / 20 * 19;
    if (!helps || strlen(result->alloc_conf) > 140 || adds_nothing(result, listed, count))
      continue;                                    /* a setting cut short is another one */
    if (result->rest_failed_bytes && count) break; /* others go further, or one of this kind is enough */
    add_setting(f, k, result);
    listed[count++] = result;
  }
}
