/* The inspection as JSON. Fields: docs/inspect.md. */
#include "inspect/inside.h"
#include "inspect/shortage.h"

#include <string.h>

#include "base/json.h"

enum { STACK_FRAMES_SHOWN = 64 };

static void put_event(hri_json_writer *w, const char *key, uint64_t event) {
  hri_json_key(w, key);
  if (event == UINT64_MAX) hri_json_put_null(w);
  else hri_json_put_u64(w, event);
}

static void put_bounded(hri_json_writer *w, const char *key, const char *text) {
  hri_json_key(w, key);
  hri_json_put_chars(w, text, strnlen(text, HRI_NAME_BYTES));
}

/* A stack as its frames, innermost first, and in short. */
static void put_stack(hri_json_writer *w, const hr_snapshot *s, uint32_t stack) {
  const hr_stack *at = &s->stacks[stack];
  char brief[160];
  hr_inspect_stack_text(s, stack, brief, sizeof brief);
  hri_json_field_string(w, "where", brief);
  hri_json_key(w, "frames");
  hri_json_begin_array(w);
  for (uint32_t k = 0; k < at->count && k < STACK_FRAMES_SHOWN; k++) {
    const hr_frame *f = &s->frames[s->stack_frames[at->first + k]];
    hri_json_begin_object(w);
    put_bounded(w, "name", hr_snapshot_string(s, f->name));
    put_bounded(w, "filename", hr_snapshot_string(s, f->file));
    hri_json_field_u64(w, "line", f->line);
    hri_json_end_object(w);
  }
  hri_json_end_array(w);
}

static void put_category(hri_json_writer *w, const hr_inspection *p, uint16_t category) {
  put_bounded(w, "category", category < p->category_count ? p->categories[category] : "unknown");
}

static void put_sums(hri_json_writer *w, const char *key, const hr_memory_sums *m) {
  hri_json_key(w, key);
  hri_json_begin_object(w);
  hri_json_field_u64(w, "reserved_bytes", m->reserved_bytes);
  hri_json_field_u64(w, "requested_bytes", m->requested_bytes);
  hri_json_field_u64(w, "rounding_bytes", m->rounding_bytes);
  hri_json_field_u64(w, "pending_bytes", m->pending_bytes);
  hri_json_field_u64(w, "free_returnable_bytes", m->free_returnable_bytes);
  hri_json_field_u64(w, "free_pinned_bytes", m->free_pinned_bytes);
  hri_json_field_u64(w, "private_pool_bytes", m->private_pool_bytes);
  hri_json_field_u64(w, "private_pool_free_bytes", m->private_pool_free_bytes);
  hri_json_field_u64(w, "largest_free_bytes", m->largest_free_bytes);
  hri_json_field_u64(w, "segment_count", m->segment_count);
  hri_json_field_u64(w, "live_count", m->live_count);
  hri_json_end_object(w);
}

static void put_groups(hri_json_writer *w, const hr_inspection *p, hr_group_by by, uint64_t top) {
  static const char *const keys[HR_BY_COUNT] = {"by_stack", "by_category", "by_size"};
  hri_json_key(w, keys[by]);
  hri_json_begin_array(w);
  for (uint64_t k = 0; k < p->group_count[by] && k < top; k++) {
    const hr_live_group *g = &p->groups[by][k];
    hri_json_begin_object(w);
    hri_json_field_u64(w, "bytes", g->bytes);
    hri_json_field_u64(w, "count", g->count);
    put_category(w, p, g->category);
    if (by != HR_BY_CATEGORY) hri_json_field_bool(w, "mixed", g->mixed);
    if (by == HR_BY_SIZE) hri_json_field_u64(w, "size_bytes", g->size);
    if (by == HR_BY_STACK) {
      hri_json_field_string(w, "stage", hr_stage_name(g->stage));
      put_stack(w, p->snapshot, g->stack);
    }
    hri_json_end_object(w);
  }
  hri_json_end_array(w);
  if (p->group_count[by] <= top) return;
  {
    uint64_t bytes = 0;
    char key[32];
    for (uint64_t k = top; k < p->group_count[by]; k++) bytes += p->groups[by][k].bytes;
    (void)snprintf(key, sizeof key, "%s_more_bytes", keys[by]);
    hri_json_field_u64(w, key, bytes);
  }
}

static void put_largest(hri_json_writer *w, const hr_inspection *p, uint32_t top) {
  hri_json_key(w, "largest");
  hri_json_begin_array(w);
  for (uint32_t k = 0; k < p->largest_count && k < top; k++) {
    const hr_live_tensor *t = &p->largest[k];
    hri_json_begin_object(w);
    hri_json_field_u64(w, "address", t->addr);
    hri_json_field_u64(w, "bytes", t->bytes);
    put_event(w, "alloc_event", t->alloc_event);
    put_category(w, p, t->category);
    hri_json_field_string(w, "stage", hr_stage_name(t->stage));
    put_stack(w, p->snapshot, t->stack);
    hri_json_end_object(w);
  }
  hri_json_end_array(w);
}

static void put_fragmentation(hri_json_writer *w, const hr_inspection *p, uint32_t top) {
  const hr_fragmentation *f = &p->fragmentation;
  hri_json_key(w, "fragmentation");
  hri_json_begin_object(w);
  if (f->request_bytes) {
    hri_json_field_u64(w, "request_bytes", f->request_bytes);
    hri_json_field_u64(w, "segment_bytes", f->segment_bytes);
    hri_json_field_u64(w, "device_free_bytes", f->device_free_bytes);
    hri_json_field_u64(w, "pool_free_bytes", f->pool_free_bytes);
    hri_json_field_u64(w, "pool_largest_free_bytes", f->pool_largest_free_bytes);
    hri_json_field_bool(w, "fits_block", f->fits_block);
    hri_json_field_bool(w, "fits_contiguous", f->fits_contiguous);
    hri_json_field_bool(w, "fits_after_return", f->fits_after_return);
    hri_json_field_bool(w, "fits_compacted", f->fits_compacted);
  }
  hri_json_key(w, "pinned");
  hri_json_begin_array(w);
  for (uint32_t k = 0; k < f->pinned_count && k < top; k++) {
    const hr_pinned_segment *g = &f->pinned[k];
    hri_json_begin_object(w);
    hri_json_field_u64(w, "address", g->address);
    hri_json_field_u64(w, "total_bytes", g->total_bytes);
    hri_json_field_u64(w, "free_bytes", g->free_bytes);
    hri_json_field_u64(w, "largest_free_bytes", g->largest_free_bytes);
    hri_json_field_u64(w, "live_bytes", g->live_bytes);
    hri_json_field_u64(w, "live_count", g->live_count);
    put_category(w, p, g->category);
    put_stack(w, p->snapshot, g->stack);
    hri_json_end_object(w);
  }
  hri_json_end_array(w);
  hri_json_end_object(w);
}

static void put_ooms(hri_json_writer *w, const hr_inspection *p) {
  hri_json_field_u64(w, "oom_count", p->oom_total);
  hri_json_key(w, "ooms");
  hri_json_begin_array(w);
  for (uint32_t k = 0; k < p->oom_count; k++) {
    const hr_oom_event *o = &p->ooms[k];
    hri_json_begin_object(w);
    hri_json_field_u64(w, "event", o->event);
    hri_json_field_u64(w, "request_bytes", o->size);
    hri_json_field_u64(w, "device_free_bytes", o->device_free_bytes);
    hri_json_field_u64(w, "live_bytes", o->live_bytes);
    hri_json_field_u64(w, "reserved_bytes", o->reserved_bytes);
    hri_json_field_string(w, "stage", hr_stage_name(o->stage));
    put_stack(w, p->snapshot, o->stack);
    hri_json_end_object(w);
  }
  hri_json_end_array(w);
}

static void put_steps(hri_json_writer *w, const hr_inspection *p, uint32_t top) {
  static const char *const kinds[] = {"leak", "settled", "once", "larger", "graph", "outputs", "cache"};
  hri_json_field_string(w, "steps_from", p->steps_from);
  put_event(w, "outlier_step", p->outlier_step);
  hri_json_field_u64(w, "usual_peak_bytes", p->usual_peak_bytes);
  hri_json_key(w, "steps");
  hri_json_begin_array(w);
  for (uint32_t k = 0; k < p->step_count; k++) {
    hri_json_begin_object(w);
    hri_json_field_u64(w, "first_event", p->steps[k].first_event);
    hri_json_field_u64(w, "event_count", p->steps[k].event_count);
    hri_json_field_u64(w, "peak_live_bytes", p->steps[k].peak_live_bytes);
    hri_json_field_u64(w, "end_live_bytes", p->steps[k].end_live_bytes);
    hri_json_end_object(w);
  }
  hri_json_end_array(w);
  hri_json_key(w, "growth");
  hri_json_begin_array(w);
  for (uint32_t k = 0; k < p->growth_count && k < top; k++) {
    const hr_growth *g = &p->growth[k];
    hri_json_begin_object(w);
    hri_json_field_string(w, "kind", kinds[g->kind]);
    hri_json_field_u64(w, "bytes", g->bytes);
    hri_json_field_u64(w, "count", g->count);
    hri_json_field_double(w, "bytes_per_step", g->bytes_per_step);
    hri_json_field_u64(w, "steps_grown", g->steps_grown);
    hri_json_field_u64(w, "from_before", g->from_before);
    put_category(w, p, g->category);
    put_stack(w, p->snapshot, g->stack);
    hri_json_end_object(w);
  }
  hri_json_end_array(w);
}

static void put_trace(hri_json_writer *w, const hr_inspection *p) {
  hri_json_field_string(w, "format", p->snapshot->format);
  hri_json_field_string(w, "versions", hr_snapshot_versions(p->snapshot));
  hri_json_field_i64(w, "device", p->device);
  hri_json_field_u64(w, "event_count", p->event_count);
  hri_json_key(w, "actions");
  hri_json_begin_object(w);
  for (int k = 0; k < HR_TRACE_ACTION_COUNT; k++)
    if (p->action_counts[k]) hri_json_field_u64(w, hr_trace_action_name((hr_trace_action)k), p->action_counts[k]);
  hri_json_end_object(w);
  hri_json_field_i64(w, "first_time_us", p->first_time_us);
  hri_json_field_i64(w, "last_time_us", p->last_time_us);
  hri_json_field_bool(w, "has_state", p->has_state);
  hri_json_field_bool(w, "began_empty", p->began_empty);
  hri_json_field_bool(w, "allocations_recorded", !hri_lacks_allocs(p));
  hri_json_field_u64(w, "odd_count", p->odd_count);
}

hr_status hr_inspect_json(const hr_inspection *p, uint32_t top, char **text, hr_error *error) {
  hri_text t = {0};
  hri_json_writer w = hri_json_writer_init(&t, 2);
  uint32_t rows = top ? top : 10;
  *text = NULL;
  hri_json_begin_object(&w);
  hri_json_field_u64(&w, "schema_version", 1);
  put_trace(&w, p);
  put_event(&w, "peak_event", p->peak_event);
  hri_json_field_u64(&w, "peak_live_bytes", p->peak_live_bytes);
  hri_json_field_u64(&w, "peak_reserved_bytes", p->peak_reserved_bytes);
  put_event(&w, "at_event", p->at_event);
  hri_json_field_string(&w, "at_stage", hr_stage_name(p->at_stage));
  put_sums(&w, "at", &p->at);
  put_sums(&w, "end", &p->end);
  hri_json_field_bool(&w, "categories_inferred", p->categories_inferred);
  for (int by = 0; by < HR_BY_COUNT; by++) put_groups(&w, p, (hr_group_by)by, by == HR_BY_CATEGORY ? UINT64_MAX : rows);
  put_largest(&w, p, rows);
  put_fragmentation(&w, p, rows);
  put_ooms(&w, p);
  put_steps(&w, p, rows);
  hri_json_end_object(&w);
  hri_text_add(&t, "\n");
  if (t.failed) {
    hri_text_deinit(&t);
    return hri_fail_memory(error, 65536, "the JSON of an inspection");
  }
  *text = t.chars;
  return HR_OK;
}
