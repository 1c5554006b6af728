#include "base/json.h"
#include "report/facts.h"
#include "report/against.h"

/* Instants are event numbers; -1 is before the first event. */
static int64_t instant(uint64_t event) { return event > INT64_MAX ? -1 : (int64_t)event; }

static void put_trace(hri_json_writer *w, const hr_inspection *in, const hri_lives *lives) {
  hri_json_field_string(w, "format", hr_snapshot_versions(in->snapshot));
  hri_json_field_i64(w, "device", in->device);
  hri_json_field_u64(w, "events", lives->event_count);
  hri_json_field_u64(w, "lives", lives->count);
  hri_json_field_bool(w, "hasState", in->has_state);
  hri_json_field_bool(w, "beganEmpty", in->began_empty);
  hri_json_field_u64(w, "odd", in->odd_count);
  hri_json_field_bool(w, "categoriesInferred", in->categories_inferred);
  hri_json_field_string(w, "noStack", hri_inspection_no_stack(in));
  hri_json_field_i64(w, "peakEvent", instant(in->peak_event));
  hri_json_field_u64(w, "peakLive", in->peak_live_bytes);
  hri_json_field_u64(w, "peakReserved", in->peak_reserved_bytes);
  hri_json_field_i64(w, "atEvent", instant(in->at_event));
  hri_json_field_u64(w, "startReserved", lives->start_reserved_bytes);
}

/* The sums of the inspected instant, and the names of their parts: the script sums up other instants in the same way. */
static void put_sums(hri_json_writer *w, const hr_inspection *in) {
  hri_json_key(w, "parts");
  hri_json_begin_array(w);
  for (int part = 0; part < HR_PART_COUNT; part++) hri_json_put_string(w, hr_memory_part_name((hr_memory_part)part));
  hri_json_end_array(w);
  hri_json_key(w, "sums");
  hri_json_begin_array(w);
  for (int part = 0; part < HR_PART_COUNT; part++)
    hri_json_put_u64(w, hr_memory_part_bytes(&in->at, (hr_memory_part)part));
  hri_json_end_array(w);
  hri_json_field_u64(w, "atReserved", in->at.reserved_bytes);
  hri_json_field_u64(w, "privatePools", in->at.private_pool_bytes);
  hri_json_field_u64(w, "privateFree", in->at.private_pool_free_bytes);
  hri_json_field_i64(w, "maxSplit", in->snapshot->settings.max_split_size);
  hri_json_field_u64(w, "largeSegment", hri_inspection_lives(in)->config.large_segment_bytes);
}

static void put_stage_names(hri_json_writer *w) {
  int stage;
  hri_json_key(w, "stages");
  hri_json_begin_array(w);
  for (stage = 0; stage < HR_STAGE_COUNT; stage++) hri_json_put_string(w, hr_stage_name((hr_stage)stage));
  hri_json_end_array(w);
}

static void put_lines(hri_json_writer *w, const hr_report_options *options) {
  uint32_t i;
  hri_json_key(w, "lines");
  hri_json_begin_array(w);
  for (i = 0; options && i < options->line_count; i++) {
    hri_json_begin_object(w);
    hri_json_field_string(w, "name", options->lines[i].name ? options->lines[i].name : "");
    hri_json_field_u64(w, "bytes", options->lines[i].bytes);
    hri_json_end_object(w);
  }
  hri_json_end_array(w);
}

static void put_categories(hri_json_writer *w, const hr_inspection *in) {
  uint32_t i;
  hri_json_key(w, "categories");
  hri_json_begin_array(w);
  if (in->category_count == 0) hri_json_put_string(w, "unknown");
  for (i = 0; i < in->category_count; i++) hri_json_put_string(w, in->categories[i]);
  hri_json_end_array(w);
}

static void put_ooms(hri_json_writer *w, const hr_inspection *in, hri_report_tables *tables) {
  uint32_t i;
  hri_json_field_u64(w, "oomTotal", in->oom_total);
  hri_json_key(w, "ooms");
  hri_json_begin_array(w);
  for (i = 0; i < in->oom_count; i++) {
    const hr_oom_event *oom = &in->ooms[i];
    hri_json_begin_object(w);
    hri_json_field_i64(w, "event", instant(oom->event));
    hri_json_field_u64(w, "size", oom->size);
    hri_json_field_u64(w, "deviceFree", oom->device_free_bytes);
    hri_json_field_u64(w, "live", oom->live_bytes);
    hri_json_field_u64(w, "reserved", oom->reserved_bytes);
    hri_json_field_u64(w, "stack", hri_report_stack(tables, oom->stack));
    hri_json_field_string(w, "stage", hr_stage_name(oom->stage));
    hri_json_end_object(w);
  }
  hri_json_end_array(w);
}

static void put_steps(hri_json_writer *w, const hr_inspection *in) {
  uint32_t i;
  hri_json_field_string(w, "stepsFrom", in->steps_from ? in->steps_from : "");
  hri_json_field_i64(w, "outlierStep", instant(in->outlier_step));
  hri_json_field_u64(w, "usualPeak", in->usual_peak_bytes);
  hri_json_key(w, "steps"); /* first event, events, peak, bytes left at its end */
  hri_json_begin_array(w);
  for (i = 0; i < in->step_count; i++) {
    hri_json_begin_array(w);
    hri_json_put_u64(w, in->steps[i].first_event);
    hri_json_put_u64(w, in->steps[i].event_count);
    hri_json_put_u64(w, in->steps[i].peak_live_bytes);
    hri_json_put_u64(w, in->steps[i].end_live_bytes);
    hri_json_end_array(w);
  }
  hri_json_end_array(w);
}

static void put_growth(hri_json_writer *w, const hr_inspection *in, hri_report_tables *tables) {
  uint32_t i;
  hri_json_key(w, "growth");
  hri_json_begin_array(w);
  for (i = 0; i < in->growth_count; i++) {
    const hr_growth *growth = &in->growth[i];
    hri_json_begin_object(w);
    hri_json_field_string(w, "kind", hr_growth_name(growth->kind));
    hri_json_field_bool(w, "goesOn", hr_growth_goes_on(growth->kind));
    hri_json_field_string(w, "by", hr_growth_unit(growth->kind));
    hri_json_field_u64(w, "grown", growth->steps_grown);
    hri_json_field_u64(w, "seen", growth->steps_seen);
    hri_json_field_u64(w, "fromBefore", growth->from_before);
    hri_json_field_u64(w, "stack", hri_report_stack(tables, growth->stack));
    hri_json_field_u64(w, "category", growth->category);
    hri_json_field_u64(w, "bytes", growth->bytes);
    hri_json_field_u64(w, "count", growth->count);
    hri_json_field_u64(w, "perStep", (uint64_t)growth->bytes_per_step);
    hri_json_end_object(w);
  }
  hri_json_end_array(w);
}

static void put_pools(hri_json_writer *w, const hr_snapshot *s) {
  uint32_t i;
  char name[48];
  hri_json_key(w, "pools");
  hri_json_begin_array(w);
  for (i = 0; i < s->pool_count; i++) {
    (void)snprintf(name, sizeof name, "%llu.%llu", (unsigned long long)s->pools[i].id[0],
                   (unsigned long long)s->pools[i].id[1]);
    hri_json_put_string(w, i == 0 ? "default" : name);
  }
  hri_json_end_array(w);
}

hr_status hri_report_facts(const hr_inspection *in, const hri_lives *lives, const hr_report_options *options,
                           hri_report_tables *tables, hri_text *json, hr_error *error) {
  hri_json_writer w = hri_json_writer_init(json, 0);
  hri_json_begin_object(&w);
  put_trace(&w, in, lives);
  put_sums(&w, in);
  put_lines(&w, options);
  put_categories(&w, in);
  put_stage_names(&w);
  put_ooms(&w, in, tables);
  put_steps(&w, in);
  put_growth(&w, in, tables);
  put_pools(&w, in->snapshot);
  if (options && options->before) HRI_TRY(hri_report_against(&w, in, options, error));
  hri_json_end_object(&w);
  return json->failed ? hri_fail_memory(error, json->length, "the report's facts") : HR_OK;
}
