/* The writer of snapshots: one test per rule of docs/snapshots.md, and every field held against the snapshot
 * written. */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unpickle.h"

#include <zlib.h>

#include "made_snapshot.h"
#include "support/scratch.h"

static const char *scratch;

/* ---- writing ---- */

static const made_options small = {.seed = 1,
                                   .event_count = 700,
                                   .device_count = 2,
                                   .segment_count = 9,
                                   .slot_count = 12,
                                   .stack_count = 40,
                                   .stack_depth = 9,
                                   .category_count = 5,
                                   .pool_count = 2,
                                   .times = true,
                                   .notes = true,
                                   .settings = true,
                                   .annotations = true};

static hr_status write_to(const hr_snapshot *s, const char *path, int protocol, hr_error *error) {
  const hr_snapshot_write_options options = {.protocol = protocol};
  return hr_snapshot_write(s, path, &options, error);
}

typedef struct written {
  char *bytes;
  size_t count;
  unpickled u;
} written;

static written write_and_read(const hr_snapshot *s, int protocol) {
  const char *path = path_of("%s/snapshot.pickle", scratch);
  hr_error error = {0};
  written w = {0};
  if (write_to(s, path, protocol, &error) != HR_OK) fail_msg("%s", error.message);
  w.bytes = get_file(path, &w.count);
  assert_non_null(w.bytes);
  w.u = unpickle(w.bytes, w.count);
  return w;
}

static void written_free(written *w) {
  unpickled_free(&w->u);
  free(w->bytes);
}

static void assert_refused(const hr_snapshot *s, const char *part) {
  const char *path = path_of("%s/refused.pickle", scratch);
  hr_error error = {0};
  assert_int_equal(write_to(s, path, 4, &error), HR_ERROR_INPUT);
  if (!strstr(error.message, part)) fail_msg("'%s' does not say '%s'", error.message, part);
  assert_false(exists(path));
  assert_no_scratch(scratch);
}

/* A snapshot of one event or one segment, to be changed at will. */
static hr_snapshot *tiny(uint64_t event_count, uint64_t block_count) {
  hri_snapshot_builder b;
  hr_error error = {0};
  hr_snapshot *s;
  const hr_segment segment = {.address = 4096, .total_size = block_count * 512};
  assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
  hri_snapshot_add_trace(&b, 0);
  for (uint64_t k = 0; k < event_count; k++) {
    const hr_trace_event e = {.addr = 4096 + k, .size = 512, .flags = HR_EVENT_HAS_TIME, .time_us = 1};
    hri_snapshot_add_event(&b, &e);
  }
  if (block_count) hri_snapshot_add_segment(&b, &segment);
  for (uint64_t k = 0; k < block_count; k++) {
    const hr_block block = {.address = 4096 + k * 512, .size = 512, .requested_size = 500, .state = HR_BLOCK_ALLOCATED};
    hri_snapshot_add_block(&b, &block);
  }
  assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
  return s;
}

/* ---- every field ---- */

static void assert_text(const node *n, const char *text) {
  if (!text_is(n, text)) fail_msg("'%.*s' is not '%s'", (int)n->text_bytes, n->text, text);
}

static void assert_frames(const hr_snapshot *s, uint32_t stack, const node *list) {
  assert_int_equal(list->kind, NODE_LIST);
  assert_int_equal(list->count, s->stacks[stack].count);
  for (uint32_t k = 0; k < list->count; k++) {
    const hr_frame *frame = &s->frames[s->stack_frames[s->stacks[stack].first + k]];
    assert_int_equal(list->items[k]->count, 6);
    assert_text(get(list->items[k], "name"), hr_snapshot_string(s, frame->name));
    assert_text(get(list->items[k], "filename"), hr_snapshot_string(s, frame->file));
    assert_int_equal(get_int(list->items[k], "line"), frame->line);
  }
}

static void assert_pool(const hr_snapshot *s, uint32_t pool, const node *pair) {
  assert_int_equal(pair->kind, NODE_TUPLE);
  assert_int_equal(pair->items[0]->integer, s->pools[pool].id[0]);
  assert_int_equal(pair->items[1]->integer, s->pools[pool].id[1]);
}

static void assert_event(const hr_snapshot *s, const hr_trace_event *e, const node *map) {
  const char *note = e->flags & HR_EVENT_NOTE_IS_METADATA ? "user_metadata" : "compile_context";
  uint32_t keys = 4 + 1 + (e->note != 0) + (e->flags & HR_EVENT_HAS_TIME ? 1 : 0) + (e->stack != 0) +
                  (find(map, "category") != NULL);
  assert_int_equal(map->count, 2 * keys); /* and no other */
  assert_text(get(map, "action"), hr_trace_action_name((hr_trace_action)e->action));
  assert_int_equal(get_int(map, e->action == HR_TRACE_OOM ? "device_free" : "addr"), e->addr);
  assert_int_equal(get_int(map, "size"), e->size);
  assert_int_equal(get_int(map, "stream"), e->stream);
  if (e->flags & HR_EVENT_HAS_TIME) assert_int_equal(get_int(map, "time_us"), e->time_us);
  if (e->note) assert_text(get(map, note), hr_snapshot_string(s, e->note));
  assert_pool(s, e->pool, get(map, "pool_id"));
  if (e->category) assert_text(get(map, "category"), hr_snapshot_category(s, e->category));
  if (e->stack) assert_frames(s, e->stack, get(map, "frames"));
}

static void assert_segment(const hr_snapshot *s, const hr_segment *segment, const node *map) {
  static const char *const states[] = {"inactive", "active_allocated", "active_pending_free"};
  const node *blocks = get(map, "blocks");
  uint64_t next = segment->address;
  assert_int_equal(map->count, 2 * 12);
  assert_int_equal(get_int(map, "device"), segment->device);
  assert_int_equal(get_int(map, "address"), segment->address);
  assert_int_equal(get_int(map, "total_size"), segment->total_size);
  assert_int_equal(get_int(map, "allocated_size"), segment->allocated_size);
  assert_int_equal(get_int(map, "active_size"), segment->active_size);
  assert_int_equal(get_int(map, "requested_size"), segment->requested_size);
  assert_int_equal(get_int(map, "stream"), segment->stream);
  assert_text(get(map, "segment_type"), segment->large ? "large" : "small");
  assert_pool(s, segment->pool, get(map, "segment_pool_id"));
  assert_int_equal(get(map, "is_expandable")->kind, NODE_BOOL);
  assert_int_equal(get(map, "is_expandable")->integer, segment->expandable);
  assert_frames(s, segment->stack, get(map, "frames"));
  assert_int_equal(blocks->count, segment->block_count);
  for (uint32_t k = 0; k < blocks->count; k++) {
    const hr_block *block = &s->blocks[segment->first_block + k];
    const node *of = blocks->items[k];
    assert_int_equal(get_int(of, "address"), next);
    assert_int_equal(get_int(of, "size"), block->size);
    assert_int_equal(get_int(of, "requested_size"), block->requested_size);
    assert_text(get(of, "state"), states[block->state]);
    if (block->category) assert_text(get(of, "category"), hr_snapshot_category(s, block->category));
    else assert_null(find(of, "category"));
    assert_frames(s, block->stack, get(of, "frames"));
    next += block->size;
  }
  assert_int_equal(next, segment->address + segment->total_size);
}

static void assert_settings(const hr_snapshot *s, const node *map) {
  const node *divisions = get(map, "roundup_power2_divisions");
  char key[16];
  assert_text(get(map, "PYTORCH_CUDA_ALLOC_CONF"), hr_snapshot_string(s, s->settings.text));
  assert_int_equal(get_int(map, "max_split_size"), s->settings.max_split_size);
  assert_int_equal(get(map, "garbage_collection_threshold")->kind, NODE_DOUBLE);
  assert_true(get(map, "garbage_collection_threshold")->real == s->settings.garbage_collection_threshold);
  assert_int_equal(get(map, "expandable_segments")->integer, s->settings.expandable_segments);
  assert_int_equal(divisions->count, 32);
  for (int k = 0; k < 16; k++) {
    (void)snprintf(key, sizeof key, "%d", 1 << k);
    assert_int_equal(get_int(divisions, key), s->settings.roundup_power2_divisions[k]);
  }
}

static void assert_all(const hr_snapshot *s, const node *root) {
  const node *segments = get(root, "segments"), *traces = get(root, "device_traces"),
             *annotations = get(root, "external_annotations");
  assert_int_equal(segments->count, s->segment_count);
  for (uint32_t k = 0; k < segments->count; k++) assert_segment(s, &s->segments[k], segments->items[k]);
  assert_int_equal(traces->count, s->trace_count);
  for (uint32_t t = 0; t < traces->count; t++) {
    assert_int_equal(traces->items[t]->count, s->traces[t].count);
    for (uint32_t k = 0; k < traces->items[t]->count; k++)
      assert_event(s, &s->events[s->traces[t].first + k], traces->items[t]->items[k]);
  }
  assert_settings(s, get(root, "allocator_settings"));
  assert_int_equal(annotations->count, s->annotation_count);
  for (uint32_t k = 0; k < annotations->count; k++) {
    const hr_annotation *a = &s->annotations[k];
    assert_text(get(annotations->items[k], "name"), hr_snapshot_string(s, a->name));
    assert_text(get(annotations->items[k], "stage"), a->end ? "END" : "START");
    assert_int_equal(get_int(annotations->items[k], "device"), a->device);
    assert_int_equal(get_int(annotations->items[k], "time_us"), a->time_us);
  }
}

static void every_field_is_written(void **state) {
  (void)state;
  for (int protocol = 2; protocol <= 4; protocol++)
    for (uint64_t seed = 1; seed <= 8; seed++) {
      made_options o = small;
      hr_snapshot *s;
      written w;
      o.seed = seed;
      o.times = seed % 2;
      o.began_empty = seed % 3 == 0;
      o.stack_depth = (uint32_t)seed * 3;
      s = make_snapshot(&o);
      assert_non_null(s);
      w = write_and_read(s, protocol);
      assert_int_equal(w.u.protocol, protocol);
      assert_all(s, w.u.root);
      written_free(&w);
      hr_snapshot_destroy(s);
    }
}

/* Read by our reader and written anew, a file has the same bytes. */
static void what_is_written_reads_back(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 12; seed++) {
    const char *path = path_of("%s/snapshot.pickle", scratch);
    made_options o = small;
    hr_snapshot *s, *again;
    hr_error error = {0};
    written first, second;
    o.seed = seed;
    o.category_count = seed % 4;
    o.all_categories = seed % 4 == 3;
    o.stack_depth = (uint32_t)seed % 5;
    s = make_snapshot(&o);
    first = write_and_read(s, 2 + (int)seed % 3);
    if (hr_snapshot_read(path, NULL, &again, &error) != HR_OK) fail_msg("%s", error.message);
    second = write_and_read(again, 2 + (int)seed % 3);
    assert_int_equal(first.count, second.count);
    assert_memory_equal(first.bytes, second.bytes, first.count);
    written_free(&first);
    written_free(&second);
    hr_snapshot_destroy(s);
    hr_snapshot_destroy(again);
  }
}

/* ---- opcodes, numbers, strings, lists ---- */

static void each_protocol_has_its_own_opcodes(void **state) {
  hr_snapshot *s = make_snapshot(&small);
  (void)state;
  for (int protocol = 2; protocol <= 4; protocol++) { /* unpickle() fails on an opcode that the viewer has not */
    written w = write_and_read(s, protocol);
    assert_int_equal(w.u.opcode_counts[0x8c] > 0, protocol == 4); /* SHORT_BINUNICODE */
    assert_int_equal(w.u.opcode_counts[0x95] > 0, protocol == 4); /* FRAME */
    assert_int_equal(w.u.opcode_counts[0x94] > 0, protocol == 4); /* MEMOIZE; else BINPUT and LONG_BINPUT */
    assert_int_equal(w.u.opcode_counts['q'], protocol == 4 ? 0 : 256);
    assert_int_equal(w.u.opcode_counts['r'] > 0, protocol < 4);
    assert_true(w.u.opcode_counts['h'] > 0 && w.u.opcode_counts['j'] > 0);
    written_free(&w);
  }
  hr_snapshot_destroy(s);
}

static void protocols_the_viewer_rejects_are_refused(void **state) {
  static const int wrong[] = {-1, 1, 5, 6};
  hr_snapshot *s = tiny(1, 1);
  hr_error error = {0};
  written w;
  (void)state;
  for (size_t k = 0; k < 4; k++)
    assert_int_equal(write_to(s, path_of("%s/wrong", scratch), wrong[k], &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.hint, "2 to 4"));
  assert_false(exists(path_of("%s/wrong", scratch)));
  w = write_and_read(s, 0);
  assert_int_equal(w.u.protocol, 4);
  written_free(&w);
  hr_snapshot_destroy(s);
}

static void integers_take_the_shortest_form(void **state) {
  static const struct {
    uint64_t value;
    unsigned char op;
  } rows[] = {{0, 'K'},
              {255, 'K'},
              {256, 'M'},
              {65535, 'M'},
              {65536, 'J'},
              {INT32_MAX, 'J'},
              {1u << 31, 0x8a},
              {UINT32_MAX, 0x8a},
              {(1ull << 39) - 1, 0x8a},
              {1ull << 39, 0x8a},
              {(1ull << 47) - 1, 0x8a},
              {1ull << 47, 0x8a},
              {(1ull << 53) - 1, 0x8a}};
  uint64_t before[256];
  hr_snapshot *s = tiny(1, 0);
  (void)state;
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    written w;
    s->events[0].addr = 7;
    w = write_and_read(s, 4);
    memcpy(before, w.u.opcode_counts, sizeof before);
    written_free(&w);
    s->events[0].addr = rows[k].value;
    w = write_and_read(s, 4);
    assert_int_equal(get_int(get(w.u.root, "device_traces")->items[0]->items[0], "addr"), rows[k].value);
    assert_int_equal(w.u.opcode_counts[rows[k].op], before[rows[k].op] + (rows[k].op != 'K'));
    written_free(&w);
  }
  hr_snapshot_destroy(s);
}

static void negative_numbers_keep_their_sign(void **state) {
  static const int64_t rows[] =
      {-1, -128, -129, INT32_MIN, INT32_MIN - 1ll, -(1ll << 39), -(1ll << 39) - 1, -(1ll << 53) + 1};
  hr_snapshot *s = tiny(1, 0);
  (void)state;
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    written w;
    s->events[0].stream = (uint64_t)rows[k];
    s->events[0].time_us = rows[k];
    w = write_and_read(s, 2);
    assert_int_equal(get_int(get(w.u.root, "device_traces")->items[0]->items[0], "stream"), rows[k]);
    assert_int_equal(get_int(get(w.u.root, "device_traces")->items[0]->items[0], "time_us"), rows[k]);
    written_free(&w);
  }
  hr_snapshot_destroy(s);
}

/* Intel's GPUs have their memory there. */
static void addresses_at_the_top_are_negative(void **state) {
  const uint64_t top = 0xffff800200000000;
  hr_snapshot *s = tiny(1, 2), *again;
  hr_error error = {0};
  node *segment;
  written w;
  (void)state;
  s->events[0].addr = s->segments[0].address = s->blocks[0].address = top;
  s->blocks[1].address = top + 512;
  w = write_and_read(s, 4);
  segment = get(w.u.root, "segments")->items[0];
  assert_int_equal(get_int(get(w.u.root, "device_traces")->items[0]->items[0], "addr"), (int64_t)top);
  assert_int_equal(get_int(segment, "address"), (int64_t)top);
  assert_int_equal(get_int(get(segment, "blocks")->items[1], "address"), (int64_t)top + 512);
  written_free(&w);
  assert_int_equal(hr_snapshot_read(path_of("%s/snapshot.pickle", scratch), NULL, &again, &error), HR_OK);
  assert_true(again->events[0].addr == top && again->blocks[1].address == top + 512);
  hr_snapshot_destroy(again);
  hr_snapshot_destroy(s);
}

static void numbers_no_double_holds_are_refused(void **state) {
  const uint64_t large = 1ull << 53;
  hr_snapshot *s = tiny(2, 2);
  hr_snapshot was = *s;
  hr_trace_event event = s->events[1];
  hr_block block = s->blocks[1];
  hr_segment segment = s->segments[0];
  hr_pool pool = s->pools[0];
  (void)state;
  s->events[1].addr = large, assert_refused(s, "event 1 cannot be written: its address is 9007199254740992"),
  s->events[1] = event;
  s->events[1].size = large, assert_refused(s, "event 1 cannot be written: its size"), s->events[1] = event;
  s->events[1].stream = large, assert_refused(s, "its stream"), s->events[1] = event;
  s->events[1].stream = 0 - large, assert_refused(s, "its stream is -9007199254740992"), s->events[1] = event;
  s->events[1].time_us = (int64_t)large, assert_refused(s, "its time"), s->events[1] = event;
  s->blocks[1].requested_size = large, assert_refused(s, "block 1 cannot be written: its requested size"),
  s->blocks[1] = block;
  s->segments[0].stream = large, assert_refused(s, "segment 0 cannot be written: its stream"), s->segments[0] = segment;
  s->segments[0].requested_size = large, assert_refused(s, "its requested size"), s->segments[0] = segment;
  s->pools[0].id[1] = large, assert_refused(s, "its pool"), s->pools[0] = pool;
  s->settings.max_split_size = (int64_t)large, assert_refused(s, "max_split_size"), s->settings = was.settings;
  s->settings.roundup_power2_divisions[3] = large, assert_refused(s, "interval 3"), s->settings = was.settings;
  s->events[1].action = HR_TRACE_OOM, s->events[1].addr = 0 - 4096ull,
  assert_refused(s, "its address is 18446744073709547520"), s->events[1] = event;
  s->segments[0].address = large - 512, s->blocks[0].address = large - 512, s->blocks[1].address = large;
  assert_refused(s, "segment 0 cannot be written: its end is 9007199254741504");
  hr_snapshot_destroy(s);
}

static void lists_come_in_batches(void **state) {
  static const uint64_t counts[] = {0, 1, 999, 1000, 1001, 2000, 2500};
  (void)state;
  for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
    hr_snapshot *s = tiny(counts[k], counts[k]);
    written w = write_and_read(s, 4);
    uint64_t batches = counts[k] ? (counts[k] + 999) / 1000 : 0;
    assert_true(w.u.largest_batch <= 1000);
    assert_int_equal(w.u.opcode_counts['e'], 1 + 2 * batches + (counts[k] > 0)); /* traces, events, blocks, segments */
    assert_int_equal(get(w.u.root, "device_traces")->items[0]->count, counts[k]);
    if (counts[k]) assert_int_equal(get(get(w.u.root, "segments")->items[0], "blocks")->count, counts[k]);
    written_free(&w);
    hr_snapshot_destroy(s);
  }
}

static void long_stacks_come_in_batches_too(void **state) {
  made_options o = small;
  hr_snapshot *s;
  written w;
  (void)state;
  o.stack_depth = 2300;
  s = make_snapshot(&o);
  w = write_and_read(s, 4);
  assert_int_equal(w.u.largest_batch, 1000);
  assert_all(s, w.u.root);
  written_free(&w);
  hr_snapshot_destroy(s);
}

/* Names of every length around the limits of the opcodes and of the pieces; no BINUNICODE8 for the longest. */
static void strings_of_all_lengths(void **state) {
  static const size_t lengths[] = {1, 255, 256, 4095, 4096, 4097, 65535, 65536, 300000};
  const size_t count = sizeof lengths / sizeof *lengths;
  (void)state;
  for (int protocol = 2; protocol <= 4; protocol++) {
    hri_snapshot_builder b;
    hr_snapshot *s;
    hr_error error = {0};
    written w;
    char *text = malloc(300001);
    assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
    hri_snapshot_add_trace(&b, 0);
    for (size_t k = 0; k < count; k++) {
      memset(text, 'a' + (int)k, lengths[k]);
      const uint32_t frame = hri_snapshot_add_frame(&b, hri_snapshot_add_string(&b, text, lengths[k]), 0, 1);
      const hr_trace_event e = {.stack = hri_snapshot_add_stack(&b, &frame, 1)};
      hri_snapshot_add_event(&b, &e);
    }
    assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
    w = write_and_read(s, protocol);
    for (size_t k = 0; k < count; k++) {
      const node *name = get(get(get(w.u.root, "device_traces")->items[0]->items[k], "frames")->items[0], "name");
      assert_int_equal(name->text_bytes, lengths[k]);
      for (size_t j = 0; j < lengths[k]; j++) assert_int_equal(name->text[j], 'a' + (int)k);
    }
    free(text);
    written_free(&w);
    hr_snapshot_destroy(s);
  }
}

static void text_is_utf8(void **state) {
  static const char *const rows[][2] = {{"größe", "größe"},
                                        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
                                        {"a\xff z", "a\xef\xbf\xbd z"},
                                        {"\xc3", "\xef\xbf\xbd"},
                                        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}};
  (void)state;
  for (size_t k = 0; k < 5; k++) {
    hri_snapshot_builder b;
    hr_snapshot *s;
    hr_error error = {0};
    hr_trace_event e = {0};
    written w;
    assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
    hri_snapshot_add_trace(&b, 0);
    e.note = hri_snapshot_add_string(&b, rows[k][0], strlen(rows[k][0]));
    hri_snapshot_add_event(&b, &e);
    assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
    w = write_and_read(s, 4);
    assert_text(get(get(w.u.root, "device_traces")->items[0]->items[0], "compile_context"), rows[k][1]);
    written_free(&w);
    hr_snapshot_destroy(s);
  }
}

/* ---- sharing and framing ---- */

static void frames_and_stacks_are_written_once(void **state) {
  hr_snapshot *s = make_snapshot(&small);
  bool *used = calloc(s->frame_count, 1), *stacks = calloc(s->stack_count, 1);
  uint64_t maps = 2 + s->event_count + s->segment_count + s->block_count + s->annotation_count + 1, lists = 0;
  written w = write_and_read(s, 4);
  (void)state;
  for (uint64_t k = 0; k < s->event_count; k++) stacks[s->events[k].stack] |= s->events[k].stack != 0;
  for (uint64_t k = 0; k < s->segment_count; k++) stacks[s->segments[k].stack] = true;
  for (uint64_t k = 0; k < s->block_count; k++) stacks[s->blocks[k].stack] = true;
  for (uint32_t k = 0; k < s->stack_count; k++) {
    lists += stacks[k];
    for (uint32_t j = 0; j < s->stacks[k].count && stacks[k]; j++) used[s->stack_frames[s->stacks[k].first + j]] = true;
  }
  for (uint32_t k = 0; k < s->frame_count; k++) maps += used[k];
  assert_int_equal(w.u.map_count, maps);
  assert_int_equal(w.u.opcode_counts[']'], lists + 3 + s->trace_count + s->segment_count);
  written_free(&w);
  free(used);
  free(stacks);
  hr_snapshot_destroy(s);
}

/* unpickle() fails where an opcode lies across the end of a frame, or a frame within another. */
static void frames_of_protocol_4_are_small(void **state) {
  made_options o = small;
  hr_snapshot *s;
  written w;
  (void)state;
  o.event_count = 20000;
  s = make_snapshot(&o);
  w = write_and_read(s, 4);
  assert_in_range(w.u.frame_bytes, 60000, 65536);
  assert_true(w.u.opcode_counts[0x95] >= w.count / 65536);
  assert_all(s, w.u.root);
  written_free(&w);
  hr_snapshot_destroy(s);
}

/* ---- blocks, devices ---- */

static void blocks_must_tile(void **state) {
  hr_snapshot *s = tiny(1, 3);
  (void)state;
  s->blocks[1].address += 512, assert_refused(s, "segment 0 cannot be written: its block 1 is at 0x1400"),
      s->blocks[1].address -= 512;
  s->blocks[1].size += 512, assert_refused(s, "its block 2 is at 0x1400"), s->blocks[1].size -= 512;
  s->segments[0].total_size += 512, assert_refused(s, "it has 2048 bytes and its blocks have 1536"),
      s->segments[0].total_size -= 512;
  s->segments[0].address -= 512, assert_refused(s, "its block 0"), s->segments[0].address += 512;
  s->blocks[2].size = UINT64_MAX, assert_refused(s, "its block 2"), s->blocks[2].size = 512;
  s->segments[0].device = 4096, assert_refused(s, "device 4096"), s->segments[0].device = 0;
  s->traces[0].device = INT32_MAX, assert_refused(s, "trace 0 cannot be written: device 2147483647"),
  s->traces[0].device = 0;
  s->traces[0].device = -2, assert_refused(s, "device -2"), s->traces[0].device = 0;
  hr_snapshot_destroy(s);
}

static void devices_have_their_places(void **state) {
  hr_snapshot *s = tiny(3, 1);
  written w;
  (void)state;
  s->traces[0].device = 2; /* others have no trace: empty lists keep the places */
  w = write_and_read(s, 4);
  assert_int_equal(get(w.u.root, "device_traces")->count, 3);
  assert_int_equal(get(w.u.root, "device_traces")->items[0]->count, 0);
  assert_int_equal(get(w.u.root, "device_traces")->items[2]->count, 3);
  written_free(&w);
  hr_snapshot_destroy(s);
}

static void the_cpu_is_the_last_device(void **state) {
  made_options o = small;
  hr_snapshot *s;
  written w;
  (void)state;
  o.first_device = -1;
  o.device_count = 3;
  s = make_snapshot(&o);
  w = write_and_read(s, 4);
  assert_int_equal(get(w.u.root, "device_traces")->count, 3);
  assert_event(s, &s->events[s->traces[0].first], get(w.u.root, "device_traces")->items[2]->items[0]);
  assert_event(s, &s->events[s->traces[1].first], get(w.u.root, "device_traces")->items[0]->items[0]);
  assert_int_equal(get_int(get(w.u.root, "segments")->items[0], "device"), 2);
  assert_int_equal(get_int(get(w.u.root, "external_annotations")->items[0], "device"), 2);
  assert_null(find(w.u.root, "host_traces"));
  written_free(&w);
  hr_snapshot_destroy(s);
}

static void pinned_memory_keeps_its_keys(void **state) {
  made_options o = small;
  hr_snapshot *s;
  written w;
  (void)state;
  o.first_device = -1;
  o.format = "pytorch-2.15";
  s = make_snapshot(&o);
  w = write_and_read(s, 4);
  assert_int_equal(get(w.u.root, "device_traces")->count, 1);
  assert_int_equal(get(w.u.root, "host_traces")->count, 1);
  assert_int_equal(get(w.u.root, "host_traces")->items[0]->count, s->traces[0].count);
  assert_int_equal(get(w.u.root, "host_segments")->count + get(w.u.root, "segments")->count, s->segment_count);
  assert_int_equal(get_int(get(w.u.root, "host_segments")->items[0], "device"), -1);
  assert_int_equal(get_int(get(w.u.root, "segments")->items[0], "device"), 0);
  written_free(&w);
  hr_snapshot_destroy(s);
}

/* ---- categories ---- */

typedef struct tally {
  uint32_t stated, unknown;
  const node *first_unknown;
} tally;

static tally count_categories(const node *root) {
  const node *traces = get(root, "device_traces");
  tally t = {0};
  for (uint32_t d = 0; d < traces->count; d++)
    for (uint32_t k = 0; k < traces->items[d]->count; k++) {
      const node *category = find(traces->items[d]->items[k], "category");
      t.stated += category != NULL;
      if (!category || !text_is(category, "unknown")) continue;
      if (t.unknown++ == 0) t.first_unknown = traces->items[d]->items[k];
    }
  return t;
}

static void no_category_is_written_where_none_is_stated(void **state) {
  made_options o = small;
  hr_snapshot *s;
  written w;
  (void)state;
  o.category_count = 0;
  s = make_snapshot(&o);
  w = write_and_read(s, 4);
  assert_int_equal(count_categories(w.u.root).stated, 0);
  written_free(&w);
  s->events[0].category = 0, s->categories_stated = true; /* stated, but for no event */
  w = write_and_read(s, 4);
  assert_int_equal(count_categories(w.u.root).stated, 0);
  written_free(&w);
  hr_snapshot_destroy(s);
  s = make_snapshot(&small); /* inferred ones are not the file's */
  s->categories_stated = false;
  w = write_and_read(s, 4);
  assert_int_equal(count_categories(w.u.root).stated, 0);
  written_free(&w);
  hr_snapshot_destroy(s);
}

static void one_event_is_unknown_where_categories_are_stated(void **state) {
  hr_snapshot *s = make_snapshot(&small);
  uint64_t stated = 0;
  written w = write_and_read(s, 4);
  tally t = count_categories(w.u.root);
  (void)state;
  for (uint64_t k = 0; k < s->event_count; k++) stated += s->events[k].category != 0;
  assert_int_equal(t.unknown, 1);
  assert_int_equal(t.stated, stated + 1);
  written_free(&w);
  for (uint64_t k = 0; k < s->event_count; k++) /* an allocation that states none is the best choice */
    if (s->events[k].action == HR_TRACE_ALLOC && k > s->event_count / 2) {
      s->events[k].category = 0;
      w = write_and_read(s, 4);
      t = count_categories(w.u.root);
      assert_int_equal(t.unknown, 1);
      assert_text(get(t.first_unknown, "action"), "alloc");
      assert_int_equal(get_int(t.first_unknown, "addr"), s->events[k].addr);
      written_free(&w);
      break;
    }
  hr_snapshot_destroy(s);
}

static void a_stated_unknown_is_enough(void **state) {
  hri_snapshot_builder b;
  hr_snapshot *s;
  hr_error error = {0};
  hr_trace_event e = {.size = 1};
  written w;
  (void)state;
  assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
  hri_snapshot_add_trace(&b, 0);
  for (int k = 0; k < 3; k++) {
    e.category = k == 1 ? hri_snapshot_add_category(&b, hri_snapshot_add_string(&b, "unknown", 7)) : 0;
    hri_snapshot_add_event(&b, &e);
  }
  assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
  s->categories_stated = true;
  w = write_and_read(s, 4);
  assert_int_equal(count_categories(w.u.root).stated, 1);
  assert_int_equal(count_categories(w.u.root).unknown, 1);
  written_free(&w);
  hr_snapshot_destroy(s);
}

static void an_unknown_event_is_added_where_all_state_theirs(void **state) {
  made_options o = small;
  hr_snapshot *s;
  const node *last;
  uint64_t active = 0;
  written w;
  (void)state;
  o.all_categories = true;
  s = make_snapshot(&o);
  for (uint64_t k = 0; k < s->event_count; k++)
    if (!s->events[k].category) s->events[k].category = 1;
  w = write_and_read(s, 4);
  assert_int_equal(count_categories(w.u.root).unknown, 1);
  assert_int_equal(count_categories(w.u.root).stated, s->event_count + 1);
  assert_int_equal(get(w.u.root, "device_traces")->items[1]->count, s->traces[1].count + 1);
  last = get(w.u.root, "device_traces")->items[1]->items[s->traces[1].count];
  assert_text(get(last, "category"), "unknown");
  assert_text(get(last, "action"), "snapshot");
  for (uint64_t k = 0; k < s->segment_count; k++) active += s->segments[k].device == 1 ? s->segments[k].active_size : 0;
  assert_int_equal(get_int(last, "size"), active);
  assert_int_equal(get_int(last, "time_us"), s->events[s->event_count - 1].time_us);
  written_free(&w);
  hr_snapshot_destroy(s);
}

/* ---- the file ---- */

static void gzip_holds_the_same(void **state) {
  hr_snapshot *s = make_snapshot(&small);
  written w = write_and_read(s, 4);
  const char *path = path_of("%s/snapshot.pickle.gz", scratch);
  hr_error error = {0};
  char *plain = malloc(w.count + 1);
  size_t packed;
  gzFile file;
  (void)state;
  assert_int_equal(hr_snapshot_write(s, path, NULL, &error), HR_OK);
  file = gzopen(path, "rb");
  assert_non_null(file);
  assert_false(gzdirect(file));
  assert_int_equal(gzread(file, plain, (unsigned)w.count + 1), w.count);
  assert_memory_equal(plain, w.bytes, w.count);
  assert_int_equal(gzclose(file), Z_OK);
  free(get_file(path, &packed));
  assert_true(packed < w.count / 2);
  free(plain);
  written_free(&w);
  hr_snapshot_destroy(s);
}

/* For every allocation that may fail: the error is memory, all is given back, and the old file is whole. */
static void refused_memory_leaves_the_old_file(void **state) {
  static const char *const names[] = {"old.pickle", "old.pickle.gz"};
  hr_snapshot *s = make_snapshot(&small);
  (void)state;
  for (int k = 0; k < 2; k++) {
    const char *path = path_of("%s/%s", scratch, names[k]);
    uint64_t nth = 0, live = hri_mem_live_bytes();
    hr_status status;
    put_text(path, "old");
    do {
      hr_error error = {0};
      char *bytes;
      hri_mem_fail_after(++nth);
      status = hr_snapshot_write(s, path, NULL, &error);
      hri_mem_fail_after(0);
      assert_int_equal(hri_mem_live_bytes(), live);
      assert_no_scratch(scratch);
      bytes = get_file(path, NULL);
      assert_int_equal(strcmp(bytes, "old") == 0, status != HR_OK);
      if (status != HR_OK) assert_int_equal(status, HR_ERROR_MEMORY);
      free(bytes);
    } while (status != HR_OK);
    assert_true(nth > 4);
  }
  hr_snapshot_destroy(s);
}

static void a_full_disk_leaves_the_old_file(void **state) {
  static const char *const names[] = {"full.pickle", "full.pickle.gz"};
  made_options o = small;
  struct rlimit was, tight;
  hr_snapshot *s;
  (void)state;
  o.event_count = 40000;
  s = make_snapshot(&o);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
  tight = was;
  tight.rlim_cur = 100000; /* writes fail behind it, as on a full disk */
  (void)signal(SIGXFSZ, SIG_IGN);
  for (int k = 0; k < 2; k++) {
    const char *path = path_of("%s/%s", scratch, names[k]);
    hr_error error = {0};
    char *bytes;
    hr_status status;
    put_text(path, "old");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    status = hr_snapshot_write(s, path, NULL, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(status, HR_ERROR_IO);
    assert_non_null(strstr(error.message, names[k]));
    assert_no_scratch(scratch);
    bytes = get_file(path, NULL);
    assert_string_equal(bytes, "old");
    free(bytes);
  }
  hr_snapshot_destroy(s);
}

/* Names that were once taken for temporary files belong to whoever made them. */
static void names_beside_are_left_alone(void **state) {
  const char *path = path_of("%s/beside.pickle", scratch), *mine = path_of("%s/.beside.pickle.tmp", scratch);
  hr_snapshot *s = tiny(1, 1);
  char *text;
  (void)state;
  put_text(mine, "mine");
  assert_int_equal(hr_snapshot_write(s, path, NULL, NULL), HR_OK);
  text = get_file(mine, NULL);
  assert_string_equal(text, "mine");
  free(text);
  assert_no_scratch(scratch);
  hr_snapshot_destroy(s);
}

static void wrong_paths_are_named(void **state) {
  hr_snapshot *s = tiny(1, 1);
  hr_error error = {0};
  (void)state;
  assert_int_equal(hr_snapshot_write(s, path_of("%s/no/such/a.pickle", scratch), NULL, &error), HR_ERROR_IO);
  assert_non_null(strstr(error.message, "no/such"));
  assert_int_equal(hr_snapshot_write(s, scratch, NULL, &error), HR_ERROR_USAGE);
  assert_int_equal(hr_snapshot_write(s, path_of("%s/", scratch), NULL, &error), HR_ERROR_USAGE);
  assert_int_equal(hr_snapshot_write(s, "", NULL, &error), HR_ERROR_USAGE);
  hr_snapshot_destroy(s);
}

/* A pipe, or /dev/null of who may do anything, gets the bytes and stays what it is. */
static void a_pipe_is_written_to(void **state) {
  static const char *const names[] = {"pipe", "pipe.gz"};
  struct stat led;
  hr_snapshot *s = tiny(1, 1);
  hr_error error = {0};
  (void)state;
  for (int k = 0; k < 2; k++) {
    const char *path = path_of("%s/%s", scratch, names[k]);
    unsigned char head[2];
    struct stat info;
    int reader;
    assert_int_equal(mkfifo(path, 0600), 0);
    reader = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    if (hr_snapshot_write(s, path, NULL, &error) != HR_OK) fail_msg("%s", error.message);
    assert_int_equal(stat(path, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    assert_int_equal(read(reader, head, 2), 2);
    assert_int_equal(head[0], k ? 0x1f : 0x80);
    close(reader);
    assert_no_scratch(scratch);
  }
  assert_int_equal(symlink("/dev/full", path_of("%s/full", scratch)),
                   0); /* named by a link: a mistake here must not cost the device */
  assert_int_equal(hr_snapshot_write(s, path_of("%s/full", scratch), NULL, &error), HR_ERROR_IO);
  assert_non_null(strstr(error.message, "/full"));
  assert_int_equal(symlink("led-to.pickle", path_of("%s/link", scratch)), 0);
  put_file(path_of("%s/led-to.pickle", scratch), "mine", 4);
  assert_int_equal(hr_snapshot_write(s, path_of("%s/link", scratch), NULL, &error), HR_ERROR_USAGE);
  assert_true(stat(path_of("%s/link", scratch), &led) == 0 && led.st_size == 4);
  hr_snapshot_destroy(s);
}

/* What writing takes at most. A ballast lifts what is live to the highest it ever was, so that all above it shows. */
static uint64_t bytes_to_write(uint64_t event_count, const char *name) {
  made_options o = small;
  hr_error error = {0};
  uint64_t before;
  hr_snapshot *s;
  void *ballast;
  o.event_count = event_count;
  s = make_snapshot(&o);
  ballast = hri_alloc(hri_mem_peak_bytes() - hri_mem_live_bytes());
  before = hri_mem_peak_bytes();
  assert_int_equal(hri_mem_live_bytes(), before);
  assert_int_equal(hr_snapshot_write(s, path_of("%s/%s", scratch, name), NULL, &error), HR_OK);
  hri_free(ballast);
  hr_snapshot_destroy(s);
  return hri_mem_peak_bytes() - before;
}

static void memory_does_not_grow_with_events(void **state) {
  (void)state;
  assert_in_range(bytes_to_write(20000, "a.pickle"), 65536,
                  100000); /* a piece, and four bytes per string, frame and stack */
  assert_int_equal(bytes_to_write(400000, "b.pickle"), bytes_to_write(20000, "c.pickle"));
  assert_in_range(bytes_to_write(400000, "d.pickle.gz"), 65536, 600000); /* zlib's window and tables are 260 KiB */
}

static int make_scratch(void **state) {
  (void)state;
  scratch = scratch_make("snapshot-write");
  return 0;
}

static int remove_scratch(void **state) {
  (void)state;
  scratch_remove(scratch);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_field_is_written),
      cmocka_unit_test(what_is_written_reads_back),
      cmocka_unit_test(each_protocol_has_its_own_opcodes),
      cmocka_unit_test(protocols_the_viewer_rejects_are_refused),
      cmocka_unit_test(integers_take_the_shortest_form),
      cmocka_unit_test(negative_numbers_keep_their_sign),
      cmocka_unit_test(addresses_at_the_top_are_negative),
      cmocka_unit_test(numbers_no_double_holds_are_refused),
      cmocka_unit_test(lists_come_in_batches),
      cmocka_unit_test(long_stacks_come_in_batches_too),
      cmocka_unit_test(strings_of_all_lengths),
      cmocka_unit_test(text_is_utf8),
      cmocka_unit_test(frames_and_stacks_are_written_once),
      cmocka_unit_test(frames_of_protocol_4_are_small),
      cmocka_unit_test(blocks_must_tile),
      cmocka_unit_test(devices_have_their_places),
      cmocka_unit_test(the_cpu_is_the_last_device),
      cmocka_unit_test(pinned_memory_keeps_its_keys),
      cmocka_unit_test(no_category_is_written_where_none_is_stated),
      cmocka_unit_test(one_event_is_unknown_where_categories_are_stated),
      cmocka_unit_test(a_stated_unknown_is_enough),
      cmocka_unit_test(an_unknown_event_is_added_where_all_state_theirs),
      cmocka_unit_test(gzip_holds_the_same),
      cmocka_unit_test(refused_memory_leaves_the_old_file),
      cmocka_unit_test(a_full_disk_leaves_the_old_file),
      cmocka_unit_test(names_beside_are_left_alone),
      cmocka_unit_test(wrong_paths_are_named),
      cmocka_unit_test(a_pipe_is_written_to),
      cmocka_unit_test(memory_does_not_grow_with_events),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
