/* Reading history files that were made by hand (tests/alloc/make_histories.py): what the format says, and what comes of
 * damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/account.h"
#include "base/file.h"
#include "snapshot/history_format.h"

#define MIB(n) ((uint64_t)(n) << 20)

static const char *text_of(const hr_snapshot *s, uint32_t stack) {
  static char text[400];
  size_t at = 0;
  text[0] = 0;
  for (uint32_t k = 0; k < s->stacks[stack].count; k++) {
    const hr_frame *frame = &s->frames[s->stack_frames[s->stacks[stack].first + k]];
    at += (size_t)snprintf(text + at, 400 - at, "%s;", hr_snapshot_string(s, frame->name));
  }
  return text;
}

static hr_snapshot *read_made(const char *name) {
  char file[256];
  hr_snapshot *s;
  hr_error error = {0};
  (void)snprintf(file, sizeof file, "%s/fuzz/corpus/history/%s", HR_TEST_DATA, name);
  if (hr_snapshot_read(file, NULL, &s, &error) != HR_OK) fail_msg("%s", error.message);
  return s;
}

static void check_block(const hr_snapshot *s, uint64_t k, uint64_t offset, uint64_t size, uint64_t requested,
                        int state) {
  const hr_block *b = &s->blocks[k];
  assert_true(k < s->block_count);
  assert_int_equal(b->address, UINT64_C(0x7f0000000000) + offset);
  assert_int_equal(b->size, size);
  assert_int_equal(b->requested_size, requested);
  assert_int_equal(b->state, state);
}

static void reads_what_the_format_says(void **state) {
  hr_snapshot *s = read_made("plain");
  (void)state;
  assert_int_equal(s->event_count, 6);
  assert_int_equal(s->block_count, 3);
  check_block(s, 0, 0, 1024, 0, HR_BLOCK_INACTIVE);
  check_block(s, 1, 1024, 512, 512, HR_BLOCK_PENDING_FREE);
  check_block(s, 2, 1536, MIB(2) - 1536, 0, HR_BLOCK_INACTIVE);
  assert_string_equal(text_of(s, s->blocks[1].stack), "gate;layer 3;forward;step 12;");
  assert_string_equal(hr_snapshot_string(s, s->settings.text), "expandable_segments:True");
  assert_true(s->settings.garbage_collection_threshold == 0.5 && s->settings.roundup_power2_divisions[15] == 15);
  hr_snapshot_destroy(s);
  s = read_made("grown"); /* the unmapped part lies under the end of the second range */
  assert_int_equal(s->segment_count, 2);
  assert_true(s->segments[0].total_size == MIB(2) && !s->segments[0].large && s->segments[0].expandable);
  assert_true(s->segments[1].total_size == MIB(18) && s->segments[1].large);
  assert_int_equal(s->repaired_count, 1); /* the block reaches across both: not believed */
  hr_snapshot_destroy(s);
  s = read_made("wrapped");
  assert_int_equal(s->event_count, 5);
  check_block(s, 0, 0, 1024, 0, HR_BLOCK_INACTIVE);
  check_block(s, 1, 1024, 512, 512, HR_BLOCK_PENDING_FREE);
  check_block(s, 3, 4096, 512, 500, HR_BLOCK_PENDING_FREE);
  assert_int_equal(s->pools[s->segments[0].pool].id[1], 9);
  hr_snapshot_destroy(s);
  s = read_made("state");
  assert_int_equal(s->segment_count, 2);
  check_block(s, 1, MIB(1), MIB(1), 5, HR_BLOCK_ALLOCATED);
  assert_string_equal(hr_snapshot_category(s, s->blocks[1].category), "weight");
  hr_snapshot_destroy(s);
  s = read_made("lost"); /* events since the state were overwritten: they are all there is */
  assert_int_equal(s->event_count, 6);
  assert_int_equal(s->segment_count, 0);
  assert_int_equal(s->unknown_count, 1);
  hr_snapshot_destroy(s);
  s = read_made("overlap");
  assert_int_equal(s->segment_count, 1);
  assert_int_equal(s->block_count, 3);
  check_block(s, 0, 0, 512, 0, HR_BLOCK_INACTIVE);
  check_block(s, 1, 512, 512, 512, HR_BLOCK_ALLOCATED);
  assert_int_equal(s->repaired_count, 4);
  hr_snapshot_destroy(s);
  s = read_made("unknown");
  assert_int_equal(s->events[0].action, HR_TRACE_OTHER);
  assert_int_equal(s->unknown_count, 4); /* a note, an action, a label, a pool */
  hr_snapshot_destroy(s);
}

/* ---- damage ---- */

static bool check_damaged(const char *bytes, uint64_t count) {
  hr_snapshot *s = NULL;
  hr_error error = {0};
  hri_account account;
  hr_status status;
  hri_account_begin(&account, UINT64_C(256) << 20);
  status = hri_account_end(&account, hri_history_parse(bytes, count, "damaged", &s, &error), "damaged", &error);
  if (status == HR_OK) {
    for (uint64_t k = 0; k < s->segment_count; k++) { /* whatever the file said, blocks tile segments */
      const hr_segment *g = &s->segments[k];
      uint64_t at = g->address;
      for (uint64_t n = 0; n < g->block_count; n++) {
        const hr_block *b = &s->blocks[g->first_block + n];
        assert_true(b->address == at && b->size > 0);
        at += b->size;
      }
      assert_true(at == g->address + g->total_size);
      assert_true(!k || s->segments[k - 1].address + s->segments[k - 1].total_size <= g->address);
    }
  } else {
    assert_true(status == HR_ERROR_INPUT && error.message[0] && strstr(error.message, "damaged: history: byte "));
  }
  hr_snapshot_destroy(s);
  return status == HR_OK;
}

static const char *const made[] = {"empty", "plain", "grown", "wrapped", "state", "lost", "overlap", "unknown"};

static void damage_is_an_error_or_an_answer(void **state) {
  const uint64_t live = hri_mem_live_bytes();
  int answers = 0, errors = 0;
  (void)state;
  for (size_t file = 0; file < sizeof made / sizeof made[0]; file++) {
    char path[256], *bytes, *copy;
    uint64_t count;
    (void)snprintf(path, sizeof path, "%s/fuzz/corpus/history/%s", HR_TEST_DATA, made[file]);
    assert_int_equal(hri_file_read(path, 1 << 20, &bytes, &count, NULL), HR_OK);
    copy = malloc(count + 1);
    memcpy(copy + 1, bytes, count);
    assert_true(check_damaged(copy + 1, count)); /* at an odd address */
    for (uint64_t cut = 0; cut < count;
         cut++) {                         /* cut off: in front of its end each file has something that it needs */
      char *part = malloc(cut ? cut : 1); /* of its own, so that a sanitizer sees its end */
      memcpy(part, bytes, cut);
      assert_false(check_damaged(part, cut));
      free(part);
    }
    for (uint64_t at = 0; at < count; at++) { /* one byte changed */
      if (at >= sizeof(hri_history_header) && at < HRI_HISTORY_HEADER_BYTES) continue;
      for (int change = 0; change < 3; change++) {
        const char before = bytes[at];
        bytes[at] = (char)(change == 0 ? 0xff : change == 1 ? before ^ 1 : before ^ 0x80);
        memcpy(copy, bytes, count);
        if (check_damaged(copy, count)) answers++;
        else errors++;
        bytes[at] = before;
      }
    }
    free(copy);
    hri_free(bytes);
  }
  assert_true(answers > 1000 && errors > 1000);
  assert_int_equal(hri_mem_live_bytes(), live);
}

static void errors_name_the_place(void **state) {
  static const struct {
    size_t offset;
    uint64_t value;
    const char *message;
  } rows[] = {
      {0, 0x2047504a, "byte 0: no history file begins like this"},
      {8, UINT64_C(0x0102030400000002), "byte 8: this version reads histories of version 1 (found 2)"},
      {8, UINT64_C(0x0403020100000001), "byte 12: the file was written by a machine with another byte order"},
      {16, 4096, "byte 20: an event must have 48 bytes (found 0)"},
      {40, UINT64_C(1) << 40, "byte 40: the ring must begin within the file"},
      {48, 1 << 30, "byte 48: the ring must lie within the file (found 1073741824)"},
      {56, UINT64_MAX, "byte 56: more events than can be"},
      {64, 2000, "byte 64: the state cannot be newer than the last event (found 999)"},
      {72, 12345678, "byte 72: the state must lie within the file (found 12345678)"},
      {104, 49, "byte 104: there are at most 48 chunks of notes (found 49)"},
      {112, 3, "byte 112: a chunk of notes must lie within the file (found 3)"},
      {128, 1 << 20, "byte 112: a chunk cannot hold more than its size"},
      {24, 0x8000, "byte 24: a device is -1 (the CPU) to 32767 (found 32768)"},
      {24, 0xfffffff9, "byte 24: a device is -1 (the CPU) to 32767 (found 4294967289)"},
  };
  char path[256], *bytes;
  uint64_t count;
  (void)state;
  (void)snprintf(path, sizeof path, "%s/fuzz/corpus/history/plain", HR_TEST_DATA);
  assert_int_equal(hri_file_read(path, 1 << 20, &bytes, &count, NULL), HR_OK);
  for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
    hr_snapshot *s;
    hr_error error = {0};
    uint64_t before;
    memcpy(&before, bytes + rows[k].offset, 8);
    memcpy(bytes + rows[k].offset, &rows[k].value, 8);
    assert_int_equal(hri_history_parse(bytes, count, "FILE", &s, &error), HR_ERROR_INPUT);
    if (!strstr(error.message, rows[k].message) || strncmp(error.message, "FILE: history: ", 15) != 0)
      fail_msg("%s", error.message);
    assert_non_null(strstr(error.hint, "copy it again"));
    memcpy(bytes + rows[k].offset, &before, 8);
  }
  hri_free(bytes);
}

static void keeps_within_the_limit(void **state) {
  const hr_snapshot_limits limits = {600};
  char path[256];
  hr_snapshot *s;
  hr_error error = {0};
  (void)state;
  (void)snprintf(path, sizeof path, "%s/fuzz/corpus/history/plain", HR_TEST_DATA);
  assert_int_equal(hr_snapshot_read(path, &limits, &s, &error), HR_ERROR_MEMORY);
  assert_null(s);
}

/* ---- files that would take much more time or memory than their length ---- */

typedef struct image {
  unsigned char *bytes;
  uint64_t count;
} image;

/* A header, a ring of event_count events (filled by the caller) and one place more, and behind it `rest` bytes. */
static image make_image(uint64_t event_count, uint64_t rest, hri_history_header **head, hri_history_event **ring) {
  image m = {.count = HRI_HISTORY_HEADER_BYTES + (event_count + 1) * sizeof(hri_history_event) + rest};
  m.bytes = calloc(1, m.count);
  assert_non_null(m.bytes);
  *head = (void *)m.bytes;
  **head = (hri_history_header){.magic = HRI_HISTORY_MAGIC,
                                .version = HRI_HISTORY_VERSION,
                                .order = HRI_HISTORY_ORDER,
                                .header_bytes = HRI_HISTORY_HEADER_BYTES,
                                .event_bytes = sizeof(hri_history_event),
                                .ring_offset = HRI_HISTORY_HEADER_BYTES,
                                .ring_capacity = event_count + 1,
                                .published = event_count};
  *ring = (void *)(m.bytes + HRI_HISTORY_HEADER_BYTES);
  return m;
}

/* A name of megabytes is read once, not with each step that uses it. */
static void long_names_take_linear_time(void **state) {
  enum { EVENTS = 20000, NAME = 4 << 20 };
  hri_history_header *head;
  hri_history_event *ring;
  const uint64_t note_bytes = sizeof(hri_history_label) + NAME;
  image m = make_image(EVENTS, note_bytes, &head, &ring);
  hri_history_label *label = (void *)(m.bytes + m.count - note_bytes);
  struct timespec begin, end;
  hr_snapshot *s;
  hr_error error = {0};
  (void)state;
  *label = (hri_history_label){.note = {HRI_HISTORY_LABEL, (uint32_t)note_bytes}, .layer = -1, .name_bytes = NAME};
  memset(label->text, 'x', NAME);
  head->chunk_count = 1;
  head->chunks[0].extent = (hri_history_extent){m.count - note_bytes, note_bytes};
  head->chunks[0].used = note_bytes;
  for (uint64_t k = 0; k < EVENTS; k++)
    ring[k] = (hri_history_event){.addr = 4096 + 512 * k,
                                  .size = 512,
                                  .label = (k + 1) << 32 | 1,
                                  .rest = hri_history_rest(HR_TRACE_ALLOC, 0, 512)};
  (void)clock_gettime(CLOCK_MONOTONIC, &begin);
  if (hri_history_parse(m.bytes, m.count, "long", &s, &error) != HR_OK) fail_msg("%s", error.message);
  (void)clock_gettime(CLOCK_MONOTONIC, &end);
  assert_int_equal(s->stack_count, EVENTS + 1);
  assert_int_equal(strlen(hr_snapshot_string(s, s->frames[s->stack_frames[s->stacks[s->events[EVENTS - 1].stack].first]]
                                                    .name)),
                   NAME);
  assert_in_range(end.tv_sec - begin.tv_sec, 0, 5); /* half a minute if each step read it */
  hr_snapshot_destroy(s);
  /* Chunks that lie over each other would multiply what they hold. */
  head->chunk_count = 3;
  head->chunks[1] = head->chunks[2] = head->chunks[0];
  assert_int_equal(hri_history_parse(m.bytes, m.count, "long", &s, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "byte 136: chunks of notes lie over each other"));
  free(m.bytes);
}

/* What rebuilding a state takes counts, too. */
static void states_keep_within_the_limit(void **state) {
  enum { EVENTS = 100000 };
  const hr_snapshot_limits tight = {16 << 20}, enough = {64 << 20};
  hri_history_header *head;
  hri_history_event *ring;
  image m = make_image(EVENTS, sizeof(hri_history_state), &head, &ring);
  void *ballast = hri_alloc(hri_mem_peak_bytes() - hri_mem_live_bytes() + 1); /* all above it shows */
  const uint64_t before = hri_mem_peak_bytes();
  hr_snapshot *s;
  hr_error error = {0};
  (void)state;
  head->state = 1 << 1;
  head->states[0] = (hri_history_extent){m.count - sizeof(hri_history_state), sizeof(hri_history_state)};
  for (uint64_t k = 0; k < EVENTS; k++)
    ring[k] = (hri_history_event){.addr = 4096 + k * 8192,
                                  .size = 4096,
                                  .rest = hri_history_rest(HR_TRACE_SEGMENT_MAP, 0, 0)};
  assert_int_equal(hr_snapshot_parse(m.bytes, m.count, "map", &tight, &s, &error), HR_ERROR_MEMORY);
  assert_int_equal(error.available_bytes, tight.memory_bytes);
  assert_in_range(hri_mem_peak_bytes() - before, 4 << 20, 16 << 20);
  if (hr_snapshot_parse(m.bytes, m.count, "map", &enough, &s, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(s->segment_count, EVENTS);
  assert_in_range(hri_mem_peak_bytes() - before, 16 << 20, 64 << 20);
  hr_snapshot_destroy(s);
  hri_free(ballast);
  free(m.bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reads_what_the_format_says),
                                     cmocka_unit_test(damage_is_an_error_or_an_answer),
                                     cmocka_unit_test(errors_name_the_place),
                                     cmocka_unit_test(keeps_within_the_limit),
                                     cmocka_unit_test(long_names_take_linear_time),
                                     cmocka_unit_test(states_keep_within_the_limit)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
