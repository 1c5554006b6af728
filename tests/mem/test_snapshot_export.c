/* Exports, held against levels and live sets that are computed here anew: backwards from the last state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "made_snapshot.h"
#include "support/scratch.h"

static const char *scratch;

static const made_options small = {.seed = 3,
                                   .event_count = 900,
                                   .device_count = 2,
                                   .segment_count = 9,
                                   .slot_count = 12,
                                   .stack_count = 20,
                                   .stack_depth = 6,
                                   .category_count = 5,
                                   .pool_count = 2,
                                   .times = true,
                                   .notes = true,
                                   .settings = true,
                                   .annotations = true};

static char *export_text(const hr_snapshot *s, hr_export_format format, uint32_t trace, uint64_t at, size_t *count) {
  const char *path = path_of("%s/export", scratch);
  hr_error error = {0};
  char *text;
  if (hr_snapshot_export(s, format, trace, at, path, &error) != HR_OK) fail_msg("%s", error.message);
  text = get_file(path, count);
  assert_non_null(text);
  return text;
}

static hri_json export_json(const hr_snapshot *s, hr_export_format format, uint32_t trace, uint64_t at) {
  size_t count = 0;
  char *text = export_text(s, format, trace, at, &count);
  hri_json root = {0};
  hr_error error = {0};
  if (hri_json_parse(text, count, "export", &root, &error) != HR_OK) fail_msg("%s", error.message);
  free(text);
  return root;
}

static uint64_t u64_of(const hri_json *object, const char *key) {
  uint64_t value = 0;
  hr_error error = {0};
  if (hri_json_get_u64(object, key, 0, UINT64_MAX, &value, &error) != HR_OK) fail_msg("%s", error.message);
  return value;
}

static int64_t i64_of(const hri_json *object, const char *key) {
  int64_t value = 0;
  hr_error error = {0};
  if (hri_json_get_i64(object, key, INT64_MIN, INT64_MAX, &value, &error) != HR_OK) fail_msg("%s", error.message);
  return value;
}

static const char *string_of(const hri_json *object, const char *key) {
  const char *value = "";
  hr_error error = {0};
  if (hri_json_get_string(object, key, &value, &error) != HR_OK) fail_msg("%s", error.message);
  return value;
}

/* ---- the truth ---- */

typedef struct truth {
  const hr_trace_event *events;
  uint64_t count, *live, *reserved; /* after n events: [0 .. count] */
} truth;

static truth truth_of(const hr_snapshot *s, uint32_t trace) {
  const hr_trace *t = &s->traces[trace];
  truth it = {.events = s->events + t->first, .count = t->count};
  uint64_t live = 0, reserved = 0;
  it.live = calloc(t->count + 1, sizeof *it.live);
  it.reserved = calloc(t->count + 1, sizeof *it.reserved);
  for (uint64_t k = 0; k < s->segment_count; k++) {
    const hr_segment *g = &s->segments[k];
    if (g->device != t->device) continue;
    reserved += g->total_size;
    for (uint64_t n = g->first_block; n < g->first_block + g->block_count; n++)
      if (s->blocks[n].state == HR_BLOCK_ALLOCATED) live += s->blocks[n].requested_size;
  }
  for (uint64_t k = t->count + 1; k-- > 0;) {
    it.live[k] = live;
    it.reserved[k] = reserved;
    if (k == 0) break;
    const hr_trace_event *e = &it.events[k - 1];
    if (e->action == HR_TRACE_ALLOC) live -= e->size;
    if (e->action == HR_TRACE_FREE_REQUESTED) live += e->size;
    if (e->action == HR_TRACE_SEGMENT_ALLOC || e->action == HR_TRACE_SEGMENT_MAP) reserved -= e->size;
  }
  return it;
}

static void truth_free(truth *t) {
  free(t->live);
  free(t->reserved);
}

/* Bytes that the last state holds for one category and stack; any stack where it is UINT32_MAX. */
static uint64_t bytes_at_end(const hr_snapshot *s, int32_t device, uint16_t category, uint32_t stack) {
  uint64_t bytes = 0;
  for (uint64_t k = 0; k < s->segment_count; k++)
    for (uint64_t j = 0; j < s->segments[k].block_count && s->segments[k].device == device; j++) {
      const hr_block *block = &s->blocks[s->segments[k].first_block + j];
      if (block->state == HR_BLOCK_ALLOCATED && block->category == category &&
          (stack == UINT32_MAX || block->stack == stack))
        bytes += block->requested_size;
    }
  return bytes;
}

/* ---- Chrome ---- */

static void chrome_totals_are_those_of_the_trace(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 6; seed++) {
    made_options o = small;
    o.seed = seed;
    o.began_empty = seed % 2;
    o.times = seed != 3;
    hr_snapshot *s = make_snapshot(&o);
    truth t = truth_of(s, 1);
    hri_json root = export_json(s, HR_EXPORT_CHROME_TRACE, 1, 0), records = {0};
    uint64_t instants = 0, changes = 0, last_allocated = 0, ooms = 0, levels = 0;
    hr_error error = {0};
    assert_int_equal(i64_of(&root, "baseTimeNanoseconds"), o.times ? t.events[0].time_us * 1000 : 0);
    assert_int_equal(hri_json_get_array(&root, "traceEvents", &records, &error), HR_OK);
    for (uint64_t k = 0; k < t.count; k++)
      changes += t.events[k].action == HR_TRACE_ALLOC || t.events[k].action == HR_TRACE_FREE_REQUESTED;
    for (uint64_t k = 0; k < hri_json_count(&records); k++) {
      hri_json r = hri_json_item(&records, k), args = hri_json_member(&r, "args");
      const char *name = string_of(&r, "name");
      if (strcmp(name, "memory") == 0) last_allocated = u64_of(&args, "allocated"), levels++;
      if (strcmp(name, "[memory]") != 0 && strcmp(name, "[OutOfMemory]") != 0) continue;
      const uint64_t event = u64_of(&args, "Ev Idx");
      const hr_trace_event *e = &t.events[event];
      assert_string_equal(string_of(&r, "ph"), "i");
      assert_int_equal(u64_of(&args, "Total Allocated"), t.live[event + 1]);
      assert_int_equal(u64_of(&args, "Total Reserved"), t.reserved[event + 1]);
      assert_int_equal(i64_of(&r, "ts"), o.times ? e->time_us - t.events[0].time_us : (int64_t)event);
      assert_int_equal(u64_of(&args, "Device Id"), 1);
      assert_int_equal(u64_of(&args, "Device Type"), 1);
      if (e->action == HR_TRACE_OOM) {
        ooms++;
        assert_false(hri_json_has(&args, "Addr"));
        continue;
      }
      instants++;
      assert_int_equal(u64_of(&args, "Addr"), e->addr);
      assert_int_equal(i64_of(&args, "Bytes"), e->action == HR_TRACE_ALLOC ? (int64_t)e->size : -(int64_t)e->size);
    }
    assert_int_equal(instants, changes);
    assert_int_equal(ooms, 1);
    assert_true(levels > 0);
    assert_int_equal(last_allocated, t.live[t.count]);
    hri_json_deinit(&root);
    truth_free(&t);
    hr_snapshot_destroy(s);
  }
}

static void chrome_counts_categories(void **state) {
  hr_snapshot *s = make_snapshot(&small);
  hri_json root = export_json(s, HR_EXPORT_CHROME_TRACE, 0, 0), records = {0};
  uint64_t last[8] = {0}, seen[8] = {0};
  hr_error error = {0};
  (void)state;
  assert_int_equal(hri_json_get_array(&root, "traceEvents", &records, &error), HR_OK);
  for (uint64_t k = 0; k < hri_json_count(&records); k++) {
    hri_json r = hri_json_item(&records, k), args = hri_json_member(&r, "args");
    for (uint16_t c = 0; c < s->category_count; c++)
      if (c && strcmp(string_of(&r, "name"), hr_snapshot_category(s, c)) == 0)
        last[c] = u64_of(&args, "bytes"), seen[c]++;
  }
  for (uint16_t c = 1; c < s->category_count; c++) {
    assert_int_equal(last[c], bytes_at_end(s, 0, c, UINT32_MAX));
    assert_true(seen[c] > 10);
  }
  hri_json_deinit(&root);
  s->categories_stated = false; /* inferred ones are not written */
  root = export_json(s, HR_EXPORT_CHROME_TRACE, 0, 0);
  assert_int_equal(hri_json_get_array(&root, "traceEvents", &records, &error), HR_OK);
  for (uint64_t k = 0; k < hri_json_count(&records); k++) {
    hri_json r = hri_json_item(&records, k);
    assert_string_not_equal(string_of(&r, "name"), hr_snapshot_category(s, 1));
  }
  hri_json_deinit(&root);
  hr_snapshot_destroy(s);
}

static void chrome_marks_annotations(void **state) {
  hr_snapshot *s = make_snapshot(&small);
  hri_json root = export_json(s, HR_EXPORT_CHROME_TRACE, 0, 0), records = {0};
  uint64_t count = 0;
  hr_error error = {0};
  (void)state;
  assert_int_equal(hri_json_get_array(&root, "traceEvents", &records, &error), HR_OK);
  for (uint64_t k = 0; k < hri_json_count(&records); k++) {
    hri_json r = hri_json_item(&records, k), args = hri_json_member(&r, "args");
    if (!hri_json_has(&r, "cat") || strcmp(string_of(&r, "cat"), "user_annotation") != 0) continue;
    assert_string_equal(string_of(&r, "name"), hr_snapshot_string(s, s->annotations[count].name));
    assert_string_equal(string_of(&args, "stage"), s->annotations[count].end ? "END" : "START");
    assert_int_equal(i64_of(&r, "ts"), s->annotations[count].time_us - s->events[0].time_us);
    count++;
  }
  assert_int_equal(count, s->annotation_count);
  hri_json_deinit(&root);
  hr_snapshot_destroy(s);
}

/* Times that no clock shows must not make the difference overflow. */
static void chrome_takes_any_times(void **state) {
  hr_snapshot *s = make_snapshot(&small);
  hri_json root;
  (void)state;
  s->events[0].time_us = INT64_MAX;
  s->events[1].time_us = INT64_MIN;
  s->annotations[0].time_us = INT64_MIN;
  root = export_json(s, HR_EXPORT_CHROME_TRACE, 0, 0);
  hri_json_deinit(&root);
  hr_snapshot_destroy(s);
}

/* ---- flame graphs ---- */

/* The stack of a sample as text, outermost first, with the category in front. */
static void expect_frames(const hr_snapshot *s, uint16_t category, uint32_t stack, hri_text *text) {
  hri_text_add(text, "%s", hr_snapshot_category(s, category));
  if (!s->stacks[stack].count) hri_text_add(text, ";(no stack recorded)");
  for (uint32_t k = s->stacks[stack].count; k-- > 0;)
    hri_text_add(text, ";%s", hr_snapshot_string(s, s->frames[s->stack_frames[s->stacks[stack].first + k]].name));
}

static void speedscope_weighs_the_live_set(void **state) {
  hr_snapshot *s = make_snapshot(&small);
  truth t = truth_of(s, 0);
  hri_json root = export_json(s, HR_EXPORT_SPEEDSCOPE, 0, t.count), shared, frames, profiles, profile, samples, weights;
  uint64_t total = 0, found = 0, expected = 0;
  (void)state;
  shared = hri_json_member(&root, "shared");
  frames = hri_json_member(&shared, "frames");
  profiles = hri_json_member(&root, "profiles");
  assert_int_equal(hri_json_count(&profiles), 1);
  profile = hri_json_item(&profiles, 0);
  assert_string_equal(string_of(&profile, "name"), "live bytes of device 0 after 902 events");
  samples = hri_json_member(&profile, "samples");
  weights = hri_json_member(&profile, "weights");
  assert_string_equal(string_of(&profile, "type"), "sampled");
  assert_string_equal(string_of(&profile, "unit"), "bytes");
  assert_int_equal(hri_json_count(&samples), hri_json_count(&weights));
  for (uint64_t k = 0; k < hri_json_count(&weights); k++)
    total += (uint64_t)json_integer_value(hri_json_item(&weights, k).value);
  assert_int_equal(total, t.live[t.count]);
  assert_int_equal(u64_of(&profile, "endValue"), total);
  for (uint16_t c = 0; c < s->category_count; c++)
    for (uint32_t stack = 0; stack < s->stack_count; stack++) {
      uint64_t bytes = bytes_at_end(s, 0, c, stack);
      hri_text want = {0};
      if (!bytes) continue;
      expected++;
      expect_frames(s, c, stack, &want);
      for (uint64_t k = 0; k < hri_json_count(&samples); k++) {
        hri_json sample = hri_json_item(&samples, k);
        hri_text have = {0};
        for (uint64_t j = 0; j < hri_json_count(&sample); j++) {
          hri_json frame = hri_json_item(&frames, (uint64_t)json_integer_value(hri_json_item(&sample, j).value));
          hri_text_add(&have, "%s%s", j ? ";" : "", string_of(&frame, "name"));
        }
        if (strcmp(hri_text_get(&have), hri_text_get(&want)) == 0) {
          found++;
          assert_int_equal(json_integer_value(hri_json_item(&weights, k).value), bytes);
        }
        hri_text_deinit(&have);
      }
      hri_text_deinit(&want);
    }
  assert_int_equal(found, expected);
  assert_int_equal(hri_json_count(&samples), expected);
  hri_json_deinit(&root);
  truth_free(&t);
  hr_snapshot_destroy(s);
}

/* The number behind the last blank of each line. */
static uint64_t sum_of_lines(const char *text, uint64_t *lines) {
  uint64_t sum = 0;
  *lines = 0;
  for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
    const char *end = strchr(line, '\n'), *blank = end;
    while (*blank != ' ') blank--;
    sum += strtoull(blank, NULL, 10);
    (*lines)++;
  }
  return sum;
}

static void collapsed_adds_up_at_any_instant(void **state) {
  hr_snapshot *s = make_snapshot(&small);
  truth t = truth_of(s, 1);
  uint64_t lines, peak = 0;
  char *text;
  (void)state;
  for (uint64_t at = 0; at <= t.count; at += 61) {
    text = export_text(s, HR_EXPORT_COLLAPSED, 1, at, NULL);
    assert_int_equal(sum_of_lines(text, &lines), t.live[at]);
    free(text);
  }
  for (uint64_t k = 0; k <= t.count; k++)
    if (t.live[k] > peak) peak = t.live[k];
  text = export_text(s, HR_EXPORT_COLLAPSED, 1, UINT64_MAX, NULL);
  assert_int_equal(sum_of_lines(text, &lines), peak);
  free(text);
  truth_free(&t);
  hr_snapshot_destroy(s);
}

/* One block whose frames hold what separates frames and lines; one of our own frames; then without categories. */
static hr_snapshot *odd_names(void) {
  hri_snapshot_builder b;
  hr_error error = {0};
  hr_snapshot *s;
  const hr_segment segment = {.address = 4096, .total_size = 1024};
  hr_block block = {.address = 4096, .size = 1024, .requested_size = 1000, .state = HR_BLOCK_ALLOCATED};
  hr_trace_event event = {.action = HR_TRACE_SNAPSHOT, .size = 1000};
  uint32_t frames[3];
  assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
  frames[0] = hri_snapshot_add_frame(&b, hri_snapshot_add_string(&b, "wte", 3),
                                     hri_snapshot_add_string(&b, "headroom/name", 13), 0);
  frames[1] = hri_snapshot_add_frame(&b, hri_snapshot_add_string(&b, "f;\"g\"\n,h", 8),
                                     hri_snapshot_add_string(&b, "a b.py", 6), 12);
  frames[2] =
      hri_snapshot_add_frame(&b, hri_snapshot_add_string(&b, "main", 4), hri_snapshot_add_string(&b, "none", 4), 0);
  block.stack = event.stack = hri_snapshot_add_stack(&b, frames + 1, 2);
  block.category = hri_snapshot_add_category(&b, hri_snapshot_add_string(&b, "a;b", 3));
  event.note = hri_snapshot_add_string(&b, "x,\"y\"", 5);
  hri_snapshot_add_segment(&b, &segment);
  hri_snapshot_add_block(&b, &block);
  hri_snapshot_add_trace(&b, 0);
  hri_snapshot_add_event(&b, &event);
  event.stack = hri_snapshot_add_stack(&b, frames, 1);
  hri_snapshot_add_event(&b, &event);
  assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
  s->categories_stated = true;
  return s;
}

static void collapsed_keeps_separators_out_of_names(void **state) {
  hr_snapshot *s = odd_names();
  char *text = export_text(s, HR_EXPORT_COLLAPSED, 0, UINT64_MAX, NULL);
  (void)state;
  assert_string_equal(text, "a,b;main;f,\"g\" ,h (a b.py:12) 1000\n");
  free(text);
  s->categories_stated = false;
  text = export_text(s, HR_EXPORT_COLLAPSED, 0, 0, NULL);
  assert_string_equal(text, "main;f,\"g\" ,h (a b.py:12) 1000\n");
  free(text);
  hr_snapshot_destroy(s);
}

static void frames_of_ours_name_no_file(void **state) {
  hr_snapshot *s = odd_names();
  hri_json root, shared, frames, frame;
  (void)state;
  for (int k = 0; k < 2; k++) {
    s->blocks[0].stack = s->events[1 - k].stack;
    root = export_json(s, HR_EXPORT_SPEEDSCOPE, 0, UINT64_MAX);
    shared = hri_json_member(&root, "shared");
    frames = hri_json_member(&shared, "frames");
    frame = hri_json_item(&frames, hri_json_count(&frames) - 1);
    assert_string_equal(string_of(&frame, "name"), k ? "f;\"g\"\n,h" : "wte");
    assert_int_equal(hri_json_has(&frame, "file"), k);
    assert_int_equal(hri_json_has(&frame, "line"), k);
    hri_json_deinit(&root);
  }
  hr_snapshot_destroy(s);
}

static void a_snapshot_without_traces_has_a_live_set(void **state) {
  hr_snapshot *s = odd_names();
  char *text;
  (void)state;
  s->trace_count = 0;
  text = export_text(s, HR_EXPORT_COLLAPSED, 0, UINT64_MAX, NULL);
  assert_string_equal(text, "a,b;main;f,\"g\" ,h (a b.py:12) 1000\n");
  free(text);
  text = export_text(s, HR_EXPORT_CSV, 0, UINT64_MAX, NULL);
  assert_null(strchr(strchr(text, '\n') + 1, '\n')); /* the heading alone */
  free(text);
  hr_snapshot_destroy(s);
}

/* ---- CSV and JSON ---- */

static void csv_has_a_row_per_event(void **state) {
  hr_snapshot *s = make_snapshot(&small);
  truth t = truth_of(s, 1);
  char *text = export_text(s, HR_EXPORT_CSV, 1, 0, NULL), *line = strchr(text, '\n') + 1;
  (void)state;
  for (uint64_t k = 0; k < t.count; k++, line = strchr(line, '\n') + 1) {
    const hr_trace_event *e = &t.events[k];
    unsigned long long event, addr, size, stream, pools[2], live, reserved;
    char action[32], category[32];
    long long time_us;
    int read = sscanf(line, "%llu,%31[^,],%llx,%llu,%llx,%lld,%llu:%llu,%31[^,],%llu,%llu,", &event, action, &addr,
                      &size, &stream, &time_us, &pools[0], &pools[1], category, &live, &reserved);
    if (!e->category) { /* sscanf takes no empty field */
      category[0] = 0;
      read = 1 + sscanf(line, "%llu,%31[^,],%llx,%llu,%llx,%lld,%llu:%llu,,%llu,%llu,", &event, action, &addr, &size,
                        &stream, &time_us, &pools[0], &pools[1], &live, &reserved);
    }
    assert_int_equal(read, 11);
    assert_int_equal(event, k);
    assert_string_equal(action, hr_trace_action_name((hr_trace_action)e->action));
    assert_true(addr == e->addr && size == e->size && stream == e->stream && time_us == e->time_us);
    assert_int_equal(pools[1], s->pools[e->pool].id[1]);
    assert_string_equal(category, hr_snapshot_category(s, e->category));
    assert_int_equal(live, t.live[k + 1]);
    assert_int_equal(reserved, t.reserved[k + 1]);
  }
  assert_int_equal(*line, 0);
  free(text);
  truth_free(&t);
  hr_snapshot_destroy(s);
}

static void csv_quotes_what_needs_it(void **state) {
  hr_snapshot *s = odd_names();
  char *text = export_text(s, HR_EXPORT_CSV, 0, 0, NULL);
  (void)state;
  assert_string_equal(
      text, "event,action,address,size_bytes,stream,time_us,pool,category,live_bytes,reserved_bytes,stack,frame,note\n"
            "0,snapshot,0,1000,0,,0:0,,1000,1024,1,\"f;\"\"g\"\"\n,h (a b.py:12)\",\"x,\"\"y\"\"\"\n"
            "1,snapshot,0,1000,0,,0:0,,1000,1024,2,wte,\"x,\"\"y\"\"\"\n");
  free(text);
  hr_snapshot_destroy(s);
}

static void json_has_the_layout_of_the_pickle(void **state) {
  hr_snapshot *s = make_snapshot(&small);
  hri_json root, traces, segments, first, blocks, event, pool;
  (void)state;
  s->events[5].addr = INT64_MAX;                 /* no pickle for the viewer holds it */
  root = export_json(s, HR_EXPORT_JSON, 99, 99); /* the whole snapshot: neither trace nor instant matter */
  traces = hri_json_member(&root, "device_traces");
  segments = hri_json_member(&root, "segments");
  assert_int_equal(hri_json_count(&traces), 2);
  assert_int_equal(hri_json_count(&segments), s->segment_count);
  first = hri_json_item(&traces, 0);
  assert_int_equal(hri_json_count(&first), s->traces[0].count);
  event = hri_json_item(&first, 5);
  assert_int_equal(u64_of(&event, "addr"), INT64_MAX);
  assert_string_equal(string_of(&event, "action"), hr_trace_action_name((hr_trace_action)s->events[5].action));
  pool = hri_json_member(&event, "pool_id");
  assert_int_equal(hri_json_count(&pool), 2);
  first = hri_json_item(&segments, 0);
  assert_int_equal(u64_of(&first, "address"), s->segments[0].address);
  blocks = hri_json_member(&first, "blocks");
  assert_int_equal(hri_json_count(&blocks), s->segments[0].block_count);
  hri_json_deinit(&root);
  s->blocks[0].size += 512;
  hr_error error = {0};
  assert_int_equal(hr_snapshot_export(s, HR_EXPORT_JSON, 0, 0, path_of("%s/no.json", scratch), &error), HR_ERROR_INPUT);
  assert_false(exists(path_of("%s/no.json", scratch)));
  hr_snapshot_destroy(s);
}

/* ---- failures ---- */

static void wrong_requests_are_refused(void **state) {
  hr_snapshot *s = make_snapshot(&small);
  const char *path = path_of("%s/never", scratch);
  hr_error error = {0};
  (void)state;
  assert_int_equal(hr_snapshot_export(s, HR_EXPORT_CSV, 2, 0, path, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "no trace 2: the snapshot has 2"));
  assert_int_equal(hr_snapshot_export(s, HR_EXPORT_SPEEDSCOPE, 0, s->traces[0].count + 1, path, &error),
                   HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "the trace has 902"));
  assert_int_equal(hr_snapshot_export(s, (hr_export_format)17, 0, 0, path, &error), HR_ERROR_USAGE);
  assert_int_equal(hr_snapshot_export(s, HR_EXPORT_CSV, 0, 0, path_of("%s/a/b", scratch), &error), HR_ERROR_IO);
  assert_false(exists(path));
  hr_snapshot_destroy(s);
}

static void refused_memory_leaves_nothing(void **state) {
  made_options o = small;
  hr_snapshot *s;
  (void)state;
  o.event_count = 300;
  s = make_snapshot(&o);
  for (int format = HR_EXPORT_CHROME_TRACE; format <= HR_EXPORT_JSON; format++) {
    uint64_t nth = 0, live = hri_mem_live_bytes();
    hr_status status;
    do {
      const char *path = path_of("%s/memory-%d.gz", scratch, format);
      hr_error error = {0};
      hri_mem_fail_after(++nth);
      status = hr_snapshot_export(s, (hr_export_format)format, 0, UINT64_MAX, path, &error);
      hri_mem_fail_after(0);
      assert_int_equal(hri_mem_live_bytes(), live);
      assert_int_equal(exists(path), status == HR_OK);
      if (status != HR_OK) assert_int_equal(status, HR_ERROR_MEMORY);
    } while (status != HR_OK);
    assert_true(nth > 5);
  }
  hr_snapshot_destroy(s);
}

/* Whatever the reader takes can be written, or is refused for what it holds: files with some bytes changed at
 * random. */
static void damaged_snapshots_are_written_or_refused(void **state) {
  made_options o = small;
  hr_snapshot *s, *damaged;
  const char *path = path_of("%s/damaged", scratch);
  hr_error error = {0};
  uint64_t random = 12345, written = 0, read = 0;
  size_t count = 0;
  char *bytes, *changed;
  (void)state;
  o.event_count = 60, o.segment_count = 3, o.slot_count = 4, o.stack_count = 4, o.stack_depth = 3;
  s = make_snapshot(&o);
  assert_int_equal(hr_snapshot_write(s, path, NULL, &error), HR_OK);
  bytes = get_file(path, &count);
  changed = malloc(count);
  for (int k = 0; k < 400; k++) { /* each writes six files to disk */
    memcpy(changed, bytes, count);
    for (int j = 0; j <= k % 3; j++) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      changed[(random >> 20) % count] = (char)(random >> 50);
    }
    if (hr_snapshot_parse(changed, count, "damaged", NULL, &damaged, &error) != HR_OK) continue;
    read++;
    hr_status status = hr_snapshot_write(damaged, path, NULL, &error);
    assert_true(status == HR_OK || status == HR_ERROR_INPUT);
    written += status == HR_OK;
    for (int format = HR_EXPORT_CHROME_TRACE; format <= HR_EXPORT_JSON; format++) {
      status = hr_snapshot_export(damaged, (hr_export_format)format, 0, UINT64_MAX, path, &error);
      assert_true(status == HR_OK || (status == HR_ERROR_INPUT && format == HR_EXPORT_JSON));
    }
    hr_snapshot_destroy(damaged);
  }
  assert_true(read > 80 && written > 50);
  free(bytes);
  free(changed);
  hr_snapshot_destroy(s);
}

static int make_scratch(void **state) {
  (void)state;
  scratch = scratch_make("snapshot-export");
  return 0;
}

static int remove_scratch(void **state) {
  (void)state;
  scratch_remove(scratch);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chrome_totals_are_those_of_the_trace),
      cmocka_unit_test(chrome_counts_categories),
      cmocka_unit_test(chrome_marks_annotations),
      cmocka_unit_test(chrome_takes_any_times),
      cmocka_unit_test(speedscope_weighs_the_live_set),
      cmocka_unit_test(collapsed_adds_up_at_any_instant),
      cmocka_unit_test(collapsed_keeps_separators_out_of_names),
      cmocka_unit_test(frames_of_ours_name_no_file),
      cmocka_unit_test(a_snapshot_without_traces_has_a_live_set),
      cmocka_unit_test(csv_has_a_row_per_event),
      cmocka_unit_test(csv_quotes_what_needs_it),
      cmocka_unit_test(json_has_the_layout_of_the_pickle),
      cmocka_unit_test(wrong_requests_are_refused),
      cmocka_unit_test(refused_memory_leaves_nothing),
      cmocka_unit_test(damaged_snapshots_are_written_or_refused),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
