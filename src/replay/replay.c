/* What a replay says, and the search for better settings. */
#include "replay/rest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- how far it can be believed ---- */

static void reason(hr_replay *r, const char *text) {
  size_t used = strlen(r->trust_reason);
  (void)snprintf(r->trust_reason + used, sizeof r->trust_reason - used, "%s%s", used ? "; " : "", text);
}

static void judge(const hri_recording *rec, const hr_replay_options *o, const hri_agreement *a, hr_replay *r) {
  char text[200];
  uint64_t moved = a->compared_count - a->same_address_count, difference;
  r->trust = HR_REPLAY_EXACT;
  difference = r->recorded.reserved_peak_bytes > r->trace_reserved_peak_bytes
                   ? r->recorded.reserved_peak_bytes - r->trace_reserved_peak_bytes
                   : r->trace_reserved_peak_bytes - r->recorded.reserved_peak_bytes;
  if (o->empty_start && !rec->lives->began_empty) {
    r->trust = HR_REPLAY_ROUGH;
    reason(r, "it began empty on request, while the recorded process held memory before the first event");
  } else if (!rec->lives->began_empty) {
    r->trust = HR_REPLAY_CLOSE;
    (void)snprintf(
        text, sizeof text,
        "the trace does not begin with an empty allocator: its start (%llu bytes live) was found by going back from its end, and when blocks were "
        "last used is not known",
        (unsigned long long)rec->lives->start_live_bytes);
    reason(r, text);
  }
  if (moved || a->same_segment_count != a->segment_count || difference) {
    if (r->trust == HR_REPLAY_EXACT) r->trust = HR_REPLAY_CLOSE;
    if (moved * 20 > a->compared_count || difference > r->trace_reserved_peak_bytes / 20) r->trust = HR_REPLAY_ROUGH;
    (void)snprintf(
        text, sizeof text,
        "under the recorded settings %llu of %llu blocks and %llu of %llu segments came out as recorded, the reserved peak differs by %llu bytes",
        (unsigned long long)a->same_address_count, (unsigned long long)a->compared_count,
        (unsigned long long)a->same_segment_count, (unsigned long long)a->segment_count,
        (unsigned long long)difference);
    reason(r, text);
  }
  if (rec->lives->odd_count) {
    r->trust = rec->lives->odd_count * 100 > rec->lives->event_count ? HR_REPLAY_ROUGH
               : r->trust == HR_REPLAY_EXACT                         ? HR_REPLAY_CLOSE
                                                                     : r->trust;
    (void)snprintf(text, sizeof text, "%llu events contradict others", (unsigned long long)rec->lives->odd_count);
    reason(r, text);
  }
  if (rec->lives->single_frees) {
    if (r->trust == HR_REPLAY_EXACT) r->trust = HR_REPLAY_CLOSE;
    reason(
        r,
        "only one of the two events of a free was recorded, so whether blocks waited for other streams is not known");
  }
  if (r->recorded_failed != r->recorded.failed) {
    r->trust = HR_REPLAY_ROUGH;
    reason(r, r->recorded_failed ? "the recorded failure does not come out again under the recorded settings"
                                 : "a failure came out that was not recorded");
  }
}

/* ---- how far a setting carries ---- */

/* A block whose free is not completed at once was in use on another stream. */
static uint64_t count_late_frees(const hri_lives *l) {
  uint64_t count = 0;
  for (uint64_t k = 0; k < l->count && !l->single_frees; k++) /* of which nothing is known */
    count +=
        l->lives[k].pending_before || (l->lives[k].request != HRI_NEVER && l->lives[k].end != l->lives[k].request + 1);
  return count;
}

static bool can_prove(const hr_replay *r) {
  if (r->trust == HR_REPLAY_ROUGH || !r->began_empty) return false;
  return !r->recorded_failed || (r->recorded.failed && r->recorded.failed_event == r->recorded_failed_event);
}

static hr_status find_reach(const hri_recording *rec, const hri_rest *rest, const hr_alloc_config *config,
                            const hr_replay *r, hr_replay_result *result, hr_error *error) {
  hr_replay_result longer = {.failed = true};
  if (result->failed) return HR_OK;
  if (!can_prove(r) || hri_replay_needs_more(r, result) || hri_replay_returns_in_pools(r, result))
    result->reach = HR_REPLAY_UNPROVEN;
  else result->reach = r->recorded_failed ? HR_REPLAY_REQUEST : HR_REPLAY_RECORDING;
  if (result->reach != HR_REPLAY_REQUEST || !rest->step) return HR_OK;
  if (rest->recorded) HRI_TRY(hri_replay_held(rec, config, rest, &longer, error));
  if (!longer.failed && !hri_replay_returns_in_pools(r, &longer)) {
    *result = longer;
    result->reach = HR_REPLAY_RECORDING;
    result->reach_step = rest->step;
    return HR_OK;
  }
  result->reach_step = rest->step;
  HRI_TRY(hri_replay_rest(rec, config, rest, &longer, error));
  if (longer.failed) result->rest_failed_bytes = longer.failed_bytes;
  else if (!rest->unlike) result->reach = HR_REPLAY_STEP;
  return HR_OK;
}

/* What the failing step comes to where nothing refuses it. */
static hr_status find_need(const hri_recording *rec, const hri_rest *rest, hr_replay *r, hr_error *error) {
  hri_recording wide = *rec;
  hr_replay_result whole;
  if (!rest->step) return HR_OK;
  wide.capacity_bytes = UINT64_MAX;
  HRI_TRY(hri_replay_rest(&wide, &rec->config, rest, &whole, error));
  r->step_need_bytes = whole.allocated_peak_bytes;
  r->step_need_step = rest->step;
  return HR_OK;
}

/* ---- one replay ---- */

/* Versions differ in which of equal blocks they take, and a file does not name its version: the order that agrees best
 * is the recorded one. What-if passes then use it too. */
static hr_status find_order(hri_recording *rec, hr_replay_result *result, hri_agreement *best, hr_error *error) {
  static const hr_alloc_order orders[] = {HR_ALLOC_ORDER_SEGMENT, HR_ALLOC_ORDER_ADDRESS, HR_ALLOC_ORDER_BLOCK};
  for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
    hr_alloc_config config = rec->config;
    hri_agreement agreement;
    hr_replay_result one;
    config.order = orders[k];
    HRI_TRY(hri_replay_pass(rec, &config, &one, &agreement, error));
    if (k > 0 && agreement.same_address_count <= best->same_address_count) continue;
    *best = agreement;
    *result = one;
    rec->config.order = orders[k];
    if (agreement.same_address_count == agreement.compared_count) return HR_OK;
  }
  return HR_OK;
}

static hr_status follow(hri_recording *rec, const hr_replay_options *o, hr_replay *r, hr_error *error) {
  hri_agreement agreement;
  memset(r, 0, sizeof *r);
  r->trace = rec->lives->trace;
  r->device = rec->lives->device;
  r->capacity_bytes = rec->capacity_bytes;
  r->capacity_from = rec->capacity_from;
  r->recorded_failed = rec->oom_recorded;
  r->recorded_failed_event = rec->oom_event;
  r->recorded_failed_count = rec->oom_count;
  r->trace_reserved_peak_bytes = rec->lives->peak_reserved_bytes;
  r->began_empty = rec->lives->began_empty;
  r->start_live_bytes = rec->lives->start_live_bytes;
  r->start_reserved_bytes = rec->lives->start_reserved_bytes;
  r->late_free_count = count_late_frees(rec->lives);
  HRI_TRY(find_order(rec, &r->recorded, &agreement, error));
  r->same_address_count = agreement.same_address_count;
  r->compared_count = agreement.compared_count;
  r->same_segment_count = agreement.same_segment_count;
  r->segment_count = agreement.segment_count;
  judge(rec, o, &agreement, r);
  if (!r->recorded.failed) r->recorded.reach = can_prove(r) ? HR_REPLAY_RECORDING : HR_REPLAY_UNPROVEN;
  r->asked = r->recorded;
  return HR_OK;
}

void hr_replay_options_init(hr_replay_options *options) { *options = (hr_replay_options){.trace = UINT32_MAX}; }

hr_status hr_replay_run(const hr_snapshot *snapshot, const hr_replay_options *options, hr_replay *replay,
                        hr_error *error) {
  hr_replay_options usual;
  const hr_replay_options *o = options ? options : &usual;
  hr_alloc_config config = hr_alloc_config_default();
  hri_recording rec;
  hri_rest rest = {0};
  hr_status status;
  hr_replay_options_init(&usual);
  if (o->alloc_conf) HRI_TRY(hr_alloc_config_parse(o->alloc_conf, &config, error));
  HRI_TRY(hri_recording_open(snapshot, o, &rec, error));
  status = follow(&rec, o, replay, error);
  config.order = rec.config.order;
  if (status == HR_OK && o->alloc_conf) status = hri_replay_pass(&rec, &config, &replay->asked, NULL, error);
  if (status == HR_OK && o->alloc_conf && !replay->asked.failed) status = hri_rest_find(&rec, &rest, error);
  if (status == HR_OK && o->alloc_conf) status = find_reach(&rec, &rest, &config, replay, &replay->asked, error);
  hri_rest_deinit(&rest);
  hri_recording_close(&rec);
  return status;
}

/* ---- the search ---- */

/* Garbage collection is not among them: it acts only where the program sets a memory fraction. */
static const char *const settings[] = {
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:16",
    "max_split_size_mb:128,roundup_power2_divisions:8",
    "expandable_segments:True,roundup_power2_divisions:16",
    "max_split_size_mb:128,roundup_power2_divisions:16",
};
enum { SETTINGS = sizeof settings / sizeof *settings };

/* One setting is plainer than two. */
static bool is_plain(const hr_replay_result *r) { return strchr(r->alloc_conf, ',') == NULL; }

/* The recorded settings win a draw, then what comes first in the list. */
typedef struct ranked {
  hr_replay_result result;
  uint32_t place;
} ranked;

static int better(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  const hr_replay_result *p = &x->result, *q = &y->result;
  if (p->failed != q->failed) return p->failed ? 1 : -1;
  if (p->failed && p->failed_event != q->failed_event)
    return p->failed_event > q->failed_event ? -1 : 1; /* the later, the nearer */
  if (p->reach != q->reach) return p->reach > q->reach ? -1 : 1;
  if (p->rest_failed_bytes && q->rest_failed_bytes == 0) return 1;
  if (q->rest_failed_bytes && p->rest_failed_bytes == 0) return -1;
  if (is_plain(p) != is_plain(q)) return is_plain(p) ? -1 : 1;
  if (p->reserved_peak_bytes != q->reserved_peak_bytes) return p->reserved_peak_bytes < q->reserved_peak_bytes ? -1 : 1;
  if (p->device_allocs + p->device_frees != q->device_allocs + q->device_frees)
    return p->device_allocs + p->device_frees < q->device_allocs + q->device_frees ? -1 : 1;
  return (x->place > y->place) - (x->place < y->place);
}

static hr_status try_all(const hri_recording *rec, const hri_rest *rest, const hr_replay *replay, ranked *rows,
                         uint32_t *count, hr_error *error) {
  rows[(*count)++] = (ranked){.result = replay->recorded};
  for (uint32_t k = 0; k < SETTINGS; k++) {
    hr_alloc_config config = hr_alloc_config_default();
    ranked row = {.place = k + 1};
    config.memory_fraction =
        rec->config.memory_fraction; /* a cap is no layout: a failure that lifting it avoids is no proof */
    HRI_TRY(hr_alloc_config_parse(settings[k], &config, error));
    config.order = rec->config.order;
    HRI_TRY(hri_replay_pass(rec, &config, &row.result, NULL, error));
    if (strcmp(row.result.alloc_conf, replay->recorded.alloc_conf) == 0) continue;
    HRI_TRY(find_reach(rec, rest, &config, replay, &row.result, error));
    rows[(*count)++] = row;
  }
  qsort(rows, *count, sizeof *rows, better);
  return HR_OK;
}

hr_status hr_replay_search(const hr_snapshot *snapshot, const hr_replay_options *options, hr_replay *replay,
                           hr_replay_result **results, uint32_t *count, hr_error *error) {
  hr_replay_options usual;
  const hr_replay_options *o = options ? options : &usual;
  hri_recording rec;
  hri_rest rest = {0};
  ranked *rows = NULL;
  hr_status status;
  hr_replay_options_init(&usual);
  *results = NULL;
  *count = 0;
  HRI_TRY(hri_recording_open(snapshot, o, &rec, error));
  HRI_TRY_OUT(follow(&rec, o, replay, error));
  rows = hri_alloc_zero(SETTINGS + 1, sizeof *rows);
  *results = hri_alloc_zero(SETTINGS + 1, sizeof **results);
  if (!rows || !*results) {
    status = hri_fail_memory(error, (SETTINGS + 1) * sizeof *rows, "the results of a search");
    goto out;
  }
  HRI_TRY_OUT(hri_rest_find(&rec, &rest, error));
  HRI_TRY_OUT(find_need(&rec, &rest, replay, error));
  HRI_TRY_OUT(try_all(&rec, &rest, replay, rows, count, error));
  for (uint32_t k = 0; k < *count; k++) (*results)[k] = rows[k].result;
out:
  hri_rest_deinit(&rest);
  hri_recording_close(&rec);
  hri_free(rows);
  if (status != HR_OK) {
    hri_free(*results);
    *results = NULL;
    *count = 0;
  }
  return status;
}
