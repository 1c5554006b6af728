/* headroom replay: a recorded trace under other allocator settings. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <headroom/replay.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/reading.h"
#include "cli/text.h"

static const char *trust_name(hr_replay_trust trust) {
  static const char *const names[] = {"exact", "close", "rough"};
  return names[trust];
}

static const char *conf_name(const hr_replay_result *r) {
  return r->alloc_conf[0] ? r->alloc_conf : "PyTorch's defaults";
}

/* ---- text ---- */

/* Where a terminal has no room for them, failures and settings stand below the figures. */
static bool is_narrow(void) {
  enum { WITH_SETTINGS = 112 };
  return isatty(STDOUT_FILENO) && screen_columns(stdout) < WITH_SETTINGS;
}

static void print_head(void) {
  if (is_narrow())
    (void)printf("%12s %12s %8s %12s\n    settings; fails\n", "reserved", "allocated", "retries", "driver calls");
  else
    (void)printf("%12s %12s %8s %12s  %-26s %s\n", "reserved", "allocated", "retries", "driver calls", "fails",
                 "settings");
}

static void print_row(const hr_replay_result *r, const char *note) {
  char fails[64];
  if (r->failed)
    (void)snprintf(fails, sizeof fails, "%s at event %llu", FIGURE_TEXT(r->failed_bytes),
                   (unsigned long long)r->failed_event + 1); /* as inspect's --at counts */
  else (void)snprintf(fails, sizeof fails, "no");
  (void)printf("%12s %12s %8llu %12llu", FIGURE_TEXT(r->reserved_peak_bytes), FIGURE_TEXT(r->allocated_peak_bytes),
               (unsigned long long)r->retries, (unsigned long long)r->device_allocs + r->device_frees);
  if (is_narrow()) {
    char text[HR_REPLAY_CONF_BYTES + 384];
    (void)snprintf(text, sizeof text, "%s%s; %s%s", conf_name(r), note, r->failed ? "fails: " : "",
                   r->failed ? fails : "fits");
    (void)putchar('\n');
    screen_wrap(stdout, 4, text);
  } else {
    (void)printf("  %-26s %s%s\n", fails, conf_name(r), note);
  }
}

/* Of several devices it is told which one this is about. */
static void print_facts(const char *path, const hr_snapshot *s, const hr_replay *r) {
  hri_text t = {0};
  uint32_t with_events = 0;
  for (uint32_t k = 0; k < s->trace_count; k++) with_events += s->traces[k].count > 0;
  hri_text_add(&t, "%s", path);
  if (with_events > 1) hri_text_add(&t, ", device %d of %u", (int)r->device, with_events);
  hri_text_add(&t, ": %llu requests", (unsigned long long)r->recorded.request_count);
  if (r->capacity_bytes == UINT64_MAX) hri_text_add(&t, ", no limit known\n");
  else hri_text_add(&t, ", room for %s (%s)\n", FIGURE_TEXT(r->capacity_bytes), r->capacity_from);
  hri_text_add(&t, "trust: %s%s%s\n", trust_name(r->trust),
               r->trust_reason[0] ? ": " : ": the recorded settings give every block and segment as recorded",
               r->trust_reason);
  if (!r->began_empty)
    hri_text_add(&t, "       %s were live and %s reserved before the first event\n", FIGURE_TEXT(r->start_live_bytes),
                 FIGURE_TEXT(r->start_reserved_bytes));
  if (t.failed) text_refused(t.length);
  screen_fold(stdout, t.chars);
  hri_text_deinit(&t);
  (void)printf("\n");
}

/* A search recommends what saves something, or where something failed. */
static bool saves_little(const hr_replay_result *best, const hr_replay_result *was, bool searched) {
  if (was->failed || best->reserved_peak_bytes > was->reserved_peak_bytes) return false;
  if (best->reserved_peak_bytes == was->reserved_peak_bytes) return searched;
  return was->reserved_peak_bytes - best->reserved_peak_bytes < was->reserved_peak_bytes / 100;
}

static void print_verdict(const hr_replay *r, const hr_replay_result *best, bool searched) {
  const hr_replay_result *was = &r->recorded;
  char sentence[256], line[HR_REPLAY_CONF_BYTES + 640];
  (void)printf("\n");
  if (strcmp(best->alloc_conf, was->alloc_conf) == 0)
    (void)printf("%s\n", was->failed ? "no settings that were tried avoid the failure: less memory must be asked for"
                                     : "nothing that was tried is better than the recorded settings");
  else if (best->failed) (void)printf("it would %s\n", was->failed ? "still fail" : "fail");
  else if (saves_little(best, was, searched))
    (void)printf("no settings that were tried save as much as one percent of what was reserved\n");
  else {
    hr_replay_sentence(r, best, sentence, sizeof sentence);
    (void)snprintf(line, sizeof line, "PYTORCH_ALLOC_CONF=%s: %s; %s reserved at the peak, %s as recorded",
                   conf_name(best), sentence, FIGURE_TEXT(best->reserved_peak_bytes),
                   FIGURE_TEXT(was->reserved_peak_bytes));
    screen_wrap(stdout, 0, line);
  }
}

/* ---- JSON ---- */

static void write_result(json_writer *json, const char *key, const hr_replay *replay, const hr_replay_result *r) {
  char sentence[256];
  json_write_open(json, key, '{');
  json_write_text(json, "alloc_conf", r->alloc_conf);
  json_write_count(json, "request_count", r->request_count);
  json_write_count(json, "reserved_peak_bytes", r->reserved_peak_bytes);
  json_write_count(json, "allocated_peak_bytes", r->allocated_peak_bytes);
  json_write_count(json, "active_peak_bytes", r->active_peak_bytes);
  json_write_count(json, "requested_peak_bytes", r->requested_peak_bytes);
  json_write_count(json, "reserved_end_bytes", r->reserved_end_bytes);
  json_write_count(json, "retries", r->retries);
  json_write_count(json, "device_allocs", r->device_allocs);
  json_write_count(json, "device_frees", r->device_frees);
  json_write_bool(json, "failed", r->failed);
  json_write_text(json, "reach", hr_replay_reach_name(r->reach));
  json_write_bool(json, "proven", hr_replay_is_proven(replay, r));
  hr_replay_sentence(replay, r, sentence, sizeof sentence);
  json_write_text(json, "sentence", sentence);
  if (r->failed) {
    json_write_count(json, "failed_event", r->failed_event);
    json_write_count(json, "failed_bytes", r->failed_bytes);
    json_write_count(json, "past_failure_events", r->past_failure_events);
  }
  json_write_close(json, '}');
}

static void write_replay(const hr_replay *r, const hr_replay_result *results, uint32_t count, bool asked) {
  json_writer json;
  json_write_begin(&json, stdout);
  json_write_integer(&json, "device", r->device);
  json_write_text(&json, "trust", trust_name(r->trust));
  json_write_text(&json, "trust_reason", r->trust_reason);
  if (r->capacity_bytes == UINT64_MAX) json_write_null(&json, "capacity_bytes");
  else json_write_count(&json, "capacity_bytes", r->capacity_bytes);
  json_write_text(&json, "capacity_from", r->capacity_from);
  json_write_bool(&json, "began_empty", r->began_empty);
  json_write_count(&json, "start_live_bytes", r->start_live_bytes);
  json_write_count(&json, "start_reserved_bytes", r->start_reserved_bytes);
  json_write_count(&json, "trace_reserved_peak_bytes", r->trace_reserved_peak_bytes);
  json_write_bool(&json, "recorded_failed", r->recorded_failed);
  if (r->recorded_failed) json_write_count(&json, "recorded_failed_event", r->recorded_failed_event);
  json_write_count(&json, "recorded_failed_count", r->recorded_failed_count);
  json_write_count(&json, "same_address_count", r->same_address_count);
  json_write_count(&json, "compared_count", r->compared_count);
  json_write_count(&json, "same_segment_count", r->same_segment_count);
  json_write_count(&json, "segment_count", r->segment_count);
  write_result(&json, "recorded", r, &r->recorded);
  if (asked) write_result(&json, "asked", r, &r->asked);
  if (results) {
    json_write_open(&json, "search", '[');
    for (uint32_t k = 0; k < count; k++) write_result(&json, NULL, r, &results[k]);
    json_write_close(&json, ']');
  }
  json_write_end(&json);
}

/* ---- the command ---- */

/* Whether two rows of the table say the same. */
static bool same_outcome(const hr_replay_result *a, const hr_replay_result *b) {
  return a->failed == b->failed && a->failed_event == b->failed_event && a->reach == b->reach &&
         a->rest_failed_bytes == b->rest_failed_bytes && a->reserved_peak_bytes == b->reserved_peak_bytes &&
         a->allocated_peak_bytes == b->allocated_peak_bytes && a->retries == b->retries &&
         a->device_allocs + a->device_frees == b->device_allocs + b->device_frees;
}

static bool listed_before(const hr_replay_result *results, uint32_t k) {
  for (uint32_t n = 0; n < k; n++)
    if (same_outcome(&results[n], &results[k])) return true;
  return false;
}

/* Settings that come to the same are listed once, by the plainest; the recorded ones always. */
static void print_search(const hr_replay *r, const hr_replay_result *results, uint32_t count) {
  uint32_t left_out = 0;
  for (uint32_t k = 0; k < count; k++) {
    bool recorded = strcmp(results[k].alloc_conf, r->recorded.alloc_conf) == 0;
    if (!recorded && listed_before(results, k)) left_out++;
    else print_row(&results[k], recorded ? "  (recorded)" : "");
  }
  if (left_out) (void)printf("%u more come to the same as one above\n", left_out);
}

static hr_status check_words(const cli_config *config, hr_error *error) {
  if (config->operand_count == 0) {
    hri_fail(error, HR_ERROR_USAGE, "there is nothing to replay");
    return hri_hint(error, HR_ERROR_USAGE, "headroom replay SNAPSHOT --search");
  }
  if (!config->own.alloc_conf || !config->own.search) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--search tries settings of its own, and --alloc-conf names some");
  return hri_hint(error, HR_ERROR_USAGE, "leave one of the two out");
}

static void print_results(const char *path, const hr_snapshot *snapshot, const hr_replay *r,
                          const hr_replay_result *results, uint32_t count, bool asked) {
  print_facts(path, snapshot, r);
  print_head();
  if (!results) {
    print_row(&r->recorded, "  (recorded)");
    if (asked) print_row(&r->asked, "");
    if (asked) print_verdict(r, &r->asked, false);
    return;
  }
  print_search(r, results, count);
  print_verdict(r, &results[0], true);
}

hr_status command_replay(cli_config *config, hr_error *error) {
  hr_replay_options options;
  hr_replay replay = {0};
  hr_replay_result *results = NULL;
  hr_snapshot *snapshot = NULL;
  uint32_t count = 0;
  bool asked = config->own.alloc_conf != NULL;
  reading r;
  hr_status status = check_words(config, error);
  if (status != HR_OK) return status;
  hr_replay_options_init(&options);
  options.alloc_conf = config->own.alloc_conf;
  options.capacity_bytes = config->own.capacity_bytes;
  options.empty_start = config->own.empty_start;
  if (config_chosen(config, &config->own.trace)) options.trace = config->own.trace;
  reading_begin(&r, config, config->operands[0]);
  status = reading_snapshot(config->operands[0], &r.limits, &snapshot, error);
  if (status == HR_OK) {
    status = config->own.search ? hr_replay_search(snapshot, &options, &replay, &results, &count, error)
                                : hr_replay_run(snapshot, &options, &replay, error);
    if (status == HR_ERROR_INPUT) (void)hri_context(error, status, "%s: ", r.file);
  }
  status = reading_end(&r, status, error);
  if (status == HR_OK) {
    if (config->own.json) write_replay(&replay, results, count, asked);
    else print_results(r.file, snapshot, &replay, results, count, asked);
  }
  hr_free(results);
  hr_snapshot_destroy(snapshot);
  return status;
}
