/* headroom explain --json. */
#include "cli/explain.h"
#include "cli/json.h"
#include "cli/ranks.h"

static void write_index(json_writer *json, const char *key, int32_t index) {
  if (index < 0) json_write_null(json, key);
  else json_write_integer(json, key, index);
}

static void write_figures(json_writer *json, const hr_oom_failure *f) {
  static const char *const states[] = {"absent", "read", "derived", "not_known"};
  json_write_open(json, "figures", '{');
  for (unsigned i = 0; i < HR_OOM_FIGURE_COUNT; i++) {
    const hr_oom_value *v = &f->figures[i];
    if (v->state == HR_OOM_ABSENT) continue;
    json_write_open_flat(json, hr_oom_figure_name((hr_oom_figure)i), '{');
    if (v->state == HR_OOM_NOT_KNOWN) json_write_null(json, "bytes");
    else json_write_count(json, "bytes", v->bytes);
    json_write_count(json, "slack_bytes", v->slack_bytes);
    json_write_text(json, "state", states[v->state]);
    json_write_close(json, '}');
  }
  json_write_close(json, '}');
}

static void write_failure(json_writer *json, const hr_oom_failure *f) {
  json_write_open(json, NULL, '{');
  json_write_text(json, "source", f->source);
  json_write_text(json, "wording", f->wording);
  json_write_text(json, "framework", f->framework[0] ? f->framework : NULL);
  json_write_text(json, "phase", f->phase[0] ? f->phase : NULL);
  write_index(json, "rank", f->rank);
  write_index(json, "device_index", f->device_index);
  if (f->line) json_write_count(json, "line", f->line);
  else json_write_null(json, "line");
  if (f->event != UINT64_MAX) json_write_count(json, "event", f->event);
  else json_write_null(json, "event");
  json_write_count(json, "repeats", f->repeats);
  json_write_bool(json, "asked_again", f->asked_again);
  json_write_count(json, "process_count", f->process_count);
  json_write_text(json, "cause", hr_oom_cause_name(f->cause));
  json_write_text(json, "certainty", hr_oom_certainty_name(f->certainty));
  json_write_open_flat(json, "candidates", '[');
  for (unsigned c = 0; c < HR_OOM_CAUSE_COUNT; c++)
    if (f->candidates >> c & 1) json_write_text(json, NULL, hr_oom_cause_name((hr_oom_cause)c));
  json_write_close(json, ']');
  json_write_text(json, "verdict", f->verdict);
  write_figures(json, f);
  json_write_open(json, "arithmetic", '[');
  for (uint32_t i = 0; i < f->arithmetic_count; i++) json_write_text(json, NULL, f->arithmetic[i]);
  json_write_close(json, ']');
  json_write_open(json, "shares", '[');
  for (uint32_t i = 0; i < f->share_count; i++) {
    json_write_open_flat(json, NULL, '{');
    json_write_text(json, "name", f->shares[i].name);
    json_write_count(json, "bytes", f->shares[i].bytes);
    json_write_close(json, '}');
  }
  json_write_close(json, ']');
  json_write_count(json, "share_total_bytes", f->share_total_bytes);
  json_write_count(json, "excess_bytes", f->excess_bytes);
  json_write_open(json, "advice", '[');
  for (uint32_t i = 0; i < f->advice_count; i++) {
    json_write_open_flat(json, NULL, '{');
    json_write_text(json, "text", f->advice[i].text);
    json_write_text(json, "cost", f->advice[i].cost);
    json_write_bool(json, "proven", f->advice[i].basis == HR_OOM_PROVEN);
    json_write_text(json, "basis", hr_oom_basis_name(f->advice[i].basis));
    if (f->advice[i].basis != HR_OOM_ADVICE) {
      json_write_text(json, "proof", f->advice[i].proof);
      json_write_count(json, "need_bytes", f->advice[i].need_bytes);
    }
    json_write_close(json, '}');
  }
  json_write_close(json, ']');
  json_write_text(json, "snippet", hr_oom_snippet(f));
  json_write_close(json, '}');
}

static void write_run(json_writer *json, const hr_run_explanation *run) {
  json_write_open(json, "run", '{');
  json_write_text(json, "end", hr_run_end_name(run->end));
  json_write_count(json, "step", run->step);
  json_write_count(json, "steps", run->steps);
  if (run->saved_step >= 0) json_write_count(json, "saved_step", (uint64_t)run->saved_step);
  else json_write_null(json, "saved_step");
  json_write_text(json, "last", run->last[0] ? run->last : NULL);
  json_write_text(json, "message", run->message[0] ? run->message : NULL);
  json_write_count(json, "budget_bytes", run->budget_bytes);
  json_write_count(json, "process_resident_bytes", run->resident_bytes);
  json_write_count(json, "process_peak_bytes", run->resident_peak_bytes);
  json_write_count(json, "usable_bytes", run->usable_bytes);
  json_write_open(json, "tiers", '{');
  for (uint32_t t = 0; t < run->tier_count; t++) {
    json_write_open_flat(json, run->tiers[t].name, '{');
    json_write_count(json, "planned_bytes", run->tiers[t].planned_bytes);
    json_write_count(json, "reserved_bytes", run->tiers[t].reserved_bytes);
    json_write_count(json, "peak_bytes", run->tiers[t].peak_bytes);
    json_write_count(json, "fixed_bytes", run->tiers[t].fixed_bytes);
    json_write_close(json, '}');
  }
  json_write_close(json, '}');
  json_write_close(json, '}');
}

void explain_write_json(const explain_result *result) {
  const hr_explanation *e = result->explanation;
  json_writer json;
  json_write_begin(&json, stdout);
  json_write_count(&json, "line_count", e->line_count);
  json_write_count(&json, "byte_count", e->byte_count);
  json_write_count(&json, "primary", e->primary);
  json_write_count(&json, "more", e->more);
  if (result->run) write_run(&json, result->run);
  if (result->ranks) ranks_write(result->ranks, &json);
  if (result->planned_for[0]) {
    json_write_open_flat(&json, "planned", '{');
    json_write_text(&json, "job", result->planned_for);
    json_write_text(&json, "precision", result->planned_precision);
    json_write_count(&json, "need_bytes", result->planned_bytes);
    json_write_bool(&json, "fits", result->planned_fits);
    json_write_close(&json, '}');
  }
  json_write_open(&json, "failures", '[');
  for (uint32_t i = 0; i < e->failure_count; i++) write_failure(&json, &e->failures[i]);
  json_write_close(&json, ']');
  json_write_end(&json);
}
