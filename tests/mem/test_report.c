/* The HTML report as a file: its data, read back here by other code, must give the inspection's live sets; nothing that
 * a snapshot names may become markup; the file is whole or not there. What a browser makes of it: tests/report. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>
#include <headroom/report.h>
#include <jansson.h>

#include "base/file.h"
#include "inspect/lives.h"
#include "mem/made_snapshot.h"
#include "report/facts.h"
#include "report/page.h"
#include "report/sha256.h"
#include "support/files.h"

#define ATTACK "</script><img src=x onerror=\"document.title='owned'\"><!--{{script}}"

static char path[PATH_BYTES];

/* ---- Reading a report ---- */

typedef struct reading {
  char *html;
  uint64_t html_bytes;
  unsigned char *bytes;
  size_t count, at;
} reading;

static int digit(char c) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *found = strchr(digits, c);
  return found && c ? (int)(found - digits) : -1;
}

static unsigned char *decode_base64(const char *text, size_t length, size_t *count) {
  unsigned char *out = malloc(length);
  uint32_t bits = 0, held = 0;
  *count = 0;
  for (size_t i = 0; i < length && text[i] != '='; i++) {
    assert_true(digit(text[i]) >= 0);
    bits = bits << 6 | (uint32_t)digit(text[i]);
    held += 6;
    if (held >= 8) held -= 8, out[(*count)++] = (unsigned char)(bits >> held);
  }
  return out;
}

static void inflate_all(reading *r, unsigned char *packed, size_t count) {
  z_stream z = {.next_in = packed, .avail_in = (unsigned)count};
  size_t capacity = count * 1100 + 100000; /* deflate reaches at most 1032:1 */
  r->bytes = malloc(capacity);
  z.next_out = r->bytes;
  z.avail_out = (unsigned)capacity;
  assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
  assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
  assert_int_equal(z.avail_in, 0);
  r->count = z.total_out;
  inflateEnd(&z);
}

static reading read_report(const char *from) {
  static const char opening[] = "<script type=\"application/octet-stream\" id=\"data\">";
  reading r = {0};
  hr_error error;
  const char *start, *end;
  unsigned char *packed;
  size_t count;
  assert_int_equal(hri_file_read(from, 1 << 28, &r.html, &r.html_bytes, &error), HR_OK);
  start = strstr(r.html, opening);
  assert_non_null(start);
  start += sizeof opening - 1;
  end = strchr(start, '<');
  assert_int_equal(memcmp(end, "</script>", 9), 0);
  packed = decode_base64(start, (size_t)(end - start), &count);
  inflate_all(&r, packed, count);
  free(packed);
  return r;
}

static void forget(reading *r) {
  hri_free(r->html);
  free(r->bytes);
}

static uint64_t u64(reading *r) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    assert_true(r->at < r->count && shift < 64);
    value |= (uint64_t)(r->bytes[r->at] & 127) << shift;
    if (r->bytes[r->at++] < 128) return value;
  }
}
static uint64_t i64(reading *r) {
  uint64_t value = u64(r);
  return value >> 1 ^ (0 - (value & 1));
}
static json_t *facts_of(reading *r) {
  uint64_t length = u64(r);
  json_t *facts = json_loadb((const char *)r->bytes + r->at, length, 0, NULL);
  assert_non_null(facts);
  r->at += length;
  return facts;
}
static uint64_t number(const json_t *facts, const char *key) {
  assert_true(json_is_integer(json_object_get(facts, key)));
  return (uint64_t)json_integer_value(json_object_get(facts, key));
}

static hr_inspection *inspect(const hr_snapshot *snapshot) {
  hr_inspection *in;
  hr_error error;
  assert_int_equal(hr_inspect(snapshot, NULL, &in, &error), HR_OK);
  return in;
}

static reading report_of(const hr_inspection *in, const hr_report_options *options) {
  hr_error error = {0};
  hr_status status = hr_report_html(in, options, path, &error);
  if (status != HR_OK) print_error("%s\n", error.message);
  assert_int_equal(status, HR_OK);
  return read_report(path);
}

static const made_options lost = {.seed = 7,
                                  .event_count = 3000,
                                  .device_count = 1,
                                  .segment_count = 12,
                                  .slot_count = 20,
                                  .stack_count = 40,
                                  .stack_depth = 6,
                                  .category_count = 5,
                                  .pool_count = 2,
                                  .times = true,
                                  .annotations = true};
static const made_options whole = {.seed = 11,
                                   .event_count = 2000,
                                   .first_device = 1,
                                   .device_count = 1,
                                   .segment_count = 9,
                                   .slot_count = 30,
                                   .stack_count = 9,
                                   .stack_depth = 3,
                                   .pool_count = 1,
                                   .began_empty = true};

/* ---- The data is the inspection's ---- */

typedef struct column_life {
  uint64_t alloc, end, request, addr, size, block, stack, category, pool, stream;
} column_life;

/* Instants count from 1 in the columns, and 0 is before the trace. */
static void check_lives(reading *r, const hri_lives *truth, uint64_t events) {
  column_life *lives = calloc(truth->count + 1, sizeof *lives);
  uint64_t base = u64(r) << 32, shift, last = 0, i;
  base |= u64(r);
  shift = u64(r);
  (void)i64(r); /* the first time */
  for (i = 0; i < events; i++) (void)u64(r);
  for (i = 0; i < truth->count; i++) lives[i].alloc = last += u64(r);
  for (i = 0; i < truth->count; i++) lives[i].end = u64(r);
  for (i = 0; i < truth->count; i++) lives[i].request = u64(r);
  for (i = 0, last = 0; i < truth->count; i++) lives[i].addr = base + ((last += i64(r)) << shift);
  for (i = 0; i < truth->count; i++) lives[i].size = u64(r);
  for (i = 0; i < truth->count; i++) lives[i].block = u64(r);
  for (i = 0; i < truth->count; i++) lives[i].stack = u64(r);
  for (i = 0; i < truth->count; i++) lives[i].category = u64(r);
  for (i = 0; i < truth->count; i++) lives[i].pool = u64(r);
  for (i = 0, last = 0; i < truth->count; i++) lives[i].stream = last += i64(r);
  for (i = 0; i < truth->count; i++) {
    const hri_life *life = &truth->lives[i];
    assert_int_equal(lives[i].alloc, life->alloc + 1);
    assert_int_equal(lives[i].end ? lives[i].alloc + lives[i].end : 0, life->end == HRI_NEVER ? 0 : life->end + 1);
    assert_int_equal(lives[i].addr, life->addr);
    assert_int_equal(lives[i].size, life->size);
    assert_int_equal(lives[i].block, (life->block_size - life->size) << 1 | life->seen);
    assert_int_equal(lives[i].pool, life->pool);
    assert_int_equal(lives[i].stream, life->stream);
    assert_true((lives[i].stack == 0) == (life->stack == 0));
    if (life->request == HRI_NEVER && !life->pending_before) assert_int_equal(lives[i].request, 0);
    else {
      uint64_t request = life->pending_before ? 0 : life->request + 1;
      assert_int_equal(lives[i].request, 1 + (life->end == HRI_NEVER ? request : life->end + 1 - request));
    }
  }
  free(lives);
}

static void test_columns_hold_the_lives(void **state) {
  const made_options *all[] = {&lost, &whole};
  (void)state;
  for (int k = 0; k < 2; k++) {
    hr_snapshot *snapshot = make_snapshot(all[k]);
    hr_inspection *in = inspect(snapshot);
    const hri_lives *truth = hri_inspection_lives(in);
    reading r = report_of(in, NULL);
    json_t *facts = facts_of(&r);
    assert_int_equal(number(facts, "events"), truth->event_count);
    assert_int_equal(number(facts, "lives"), truth->count);
    assert_int_equal(number(facts, "peakLive"), in->peak_live_bytes);
    assert_int_equal(number(facts, "startReserved"), truth->start_reserved_bytes);
    assert_int_equal(json_array_size(json_object_get(facts, "categories")), in->category_count);
    check_lives(&r, truth, truth->event_count);
    json_decref(facts);
    forget(&r);
    hr_inspection_destroy(in);
    hr_snapshot_destroy(snapshot);
  }
}

static void test_facts_of_the_instant_and_lines(void **state) {
  hr_report_line lines[] = {{"capacity", (uint64_t)80 << 30}, {"budget", 12345}};
  hr_report_options options = {.title = "T", .verdict = "V", .lines = lines, .line_count = 2};
  hr_snapshot *snapshot = make_snapshot(&lost);
  hr_inspection *in = inspect(snapshot);
  reading r = report_of(in, &options);
  json_t *facts = facts_of(&r), *oom, *list = json_object_get(facts, "lines");
  (void)state;
  assert_int_equal(number(facts, "atEvent"), in->at_event);
  assert_int_equal(number(facts, "oomTotal"), 1);
  oom = json_array_get(json_object_get(facts, "ooms"), 0);
  assert_int_equal(number(oom, "size"), 20 << 20);
  assert_int_equal(number(oom, "deviceFree"), 123456789);
  assert_int_equal(json_array_size(list), 2);
  assert_int_equal(number(json_array_get(list, 0), "bytes"), (uint64_t)80 << 30);
  assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "name")), "budget");
  json_decref(facts);
  forget(&r);
  hr_inspection_destroy(in);
  hr_snapshot_destroy(snapshot);
}

/* A snapshot of one name. `action_count` pairs of an alloc and its free, and one that stays. */
static hr_snapshot *small_snapshot(const char *name, uint32_t action_count) {
  hri_snapshot_builder b;
  hr_error error;
  hr_snapshot *snapshot;
  uint32_t frame, stack;
  hr_segment segment = {.address = 0x7f0000000000, .total_size = 20 << 20, .large = true};
  assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
  frame = hri_snapshot_add_frame(&b, hri_snapshot_add_string(&b, name, strlen(name)),
                                 hri_snapshot_add_string(&b, name, strlen(name)), 3);
  stack = hri_snapshot_add_stack(&b, &frame, 1);
  hri_snapshot_add_trace(&b, 0);
  for (uint32_t i = 0; i < action_count; i++) {
    hr_trace_event e = {.addr = segment.address + (2 << 20), .size = 1 << 20, .stack = stack, .action = HR_TRACE_ALLOC};
    hri_snapshot_add_event(&b, &e);
    e.action = HR_TRACE_FREE_REQUESTED;
    hri_snapshot_add_event(&b, &e);
    e.action = HR_TRACE_FREE_COMPLETED;
    hri_snapshot_add_event(&b, &e);
  }
  hri_snapshot_add_segment(&b, &segment);
  hri_snapshot_add_block(&b, &(hr_block){.address = segment.address,
                                         .size = 2 << 20,
                                         .requested_size = 2000000,
                                         .stack = stack,
                                         .state = HR_BLOCK_ALLOCATED});
  hri_snapshot_add_block(&b, &(hr_block){.address = segment.address + (2 << 20), .size = 18 << 20});
  assert_int_equal(hri_snapshot_build_end(&b, &snapshot, &error), HR_OK);
  return snapshot;
}

static void test_no_events_and_no_state(void **state) {
  hri_snapshot_builder b;
  hr_snapshot *snapshot = small_snapshot("f", 0);
  hr_inspection *in = inspect(snapshot);
  reading r = report_of(in, NULL);
  json_t *facts = facts_of(&r);
  hr_error error;
  (void)state;
  assert_int_equal(number(facts, "events"), 0);
  assert_int_equal(number(facts, "lives"), 1);
  assert_int_equal(json_integer_value(json_object_get(facts, "peakEvent")), -1);
  json_decref(facts);
  forget(&r);
  hr_inspection_destroy(in);
  hr_snapshot_destroy(snapshot);
  assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
  assert_int_equal(hri_snapshot_build_end(&b, &snapshot, &error), HR_OK);
  in = inspect(snapshot);
  r = report_of(in, NULL);
  facts = facts_of(&r);
  assert_int_equal(number(facts, "lives"), 0);
  json_decref(facts);
  forget(&r);
  hr_inspection_destroy(in);
  hr_snapshot_destroy(snapshot);
}

/* ---- Nothing that is named becomes markup, and nothing is asked of a network ---- */

static uint32_t occurrences(const char *text, const char *part) {
  uint32_t count = 0;
  for (; (text = strstr(text, part)); text += strlen(part)) count++;
  return count;
}

static void test_hostile_names_stay_text(void **state) {
  hr_report_line line = {ATTACK, 1};
  const hr_report_note notes[] = {{ATTACK, ATTACK}, {"\"quoted\" 'single' & more", NULL}};
  const hr_report_section sections[] = {{ATTACK, notes, 2}, {"advice", notes, 2}};
  hr_report_options options = {.title = ATTACK "\xff\x01",
                               .verdict = ATTACK,
                               .sections = sections,
                               .section_count = 2,
                               .numbered_from = 1,
                               .lines = &line,
                               .line_count = 1};
  hr_snapshot *snapshot = small_snapshot(ATTACK, 3);
  hr_inspection *in = inspect(snapshot);
  reading r = report_of(in, &options);
  (void)state;
  assert_int_equal(occurrences(r.html, "<script"), 2);
  assert_int_equal(occurrences(r.html, "</script"), 2);
  assert_int_equal(occurrences(r.html, "<img"), 0);
  assert_int_equal(occurrences(r.html, "<!--"), 0);
  assert_int_equal(occurrences(r.html, "&lt;img src=x onerror=&quot;document.title=&#39;owned&#39;&quot;&gt;"),
                   8); /* title twice, verdict, the section's title, a note of each section with what is said of it */
  assert_int_equal(occurrences(r.html, "<li>&quot;quoted&quot; &#39;single&#39; &amp; more</li>"), 2);
  assert_int_equal(occurrences(r.html, "<h3>advice</h3><ol start=\"1\"><li>"), 1);
  assert_int_equal(occurrences(r.html, "\xff"), 0);
  assert_int_equal(occurrences(r.html, "\xef\xbf\xbd\xef\xbf\xbd"),
                   2); /* the two bytes after the title's attack, in both places */
  forget(&r);
  hr_inspection_destroy(in);
  hr_snapshot_destroy(snapshot);
}

/* The other snapshot's highest instant is never lost, however many events a part has; and differences are those of the
 * comparison. */
static void test_two_snapshots(void **state) {
  hr_snapshot *snapshots[] = {make_snapshot(&whole), make_snapshot(&lost)};
  hr_inspection *before = inspect(snapshots[0]), *after = inspect(snapshots[1]);
  hr_report_options options = {.before = before, .before_title = ATTACK};
  reading r = report_of(after, &options);
  json_t *facts = facts_of(&r), *against = json_object_get(facts, "against"), *part, *list;
  uint64_t most = 0, last = 0, count;
  hr_difference *rows;
  hr_error error;
  size_t k;
  (void)state;
  assert_int_equal(occurrences(r.html, "<img"), 0);
  assert_string_equal(json_string_value(json_object_get(against, "title")), ATTACK);
  assert_true(json_array_size(json_object_get(against, "levels")) <= 2048);
  json_array_foreach(json_object_get(against, "levels"), k, part) {
    assert_true((uint64_t)json_integer_value(json_array_get(part, 0)) > last);
    last = (uint64_t)json_integer_value(json_array_get(part, 0));
    if ((uint64_t)json_integer_value(json_array_get(part, 2)) > most)
      most = (uint64_t)json_integer_value(json_array_get(part, 2));
  }
  assert_int_equal(last, before->event_count);
  assert_int_equal(most, before->peak_live_bytes);
  assert_int_equal(hr_inspect_compare(before, after, HR_BY_STACK, &rows, &count, &error), HR_OK);
  list = json_object_get(against, "byStack");
  assert_int_equal(number(against, "stackRows"), count);
  assert_true(json_array_size(list) > 5 && json_array_size(list) <= count);
  json_array_foreach(list, k, part) {
    assert_int_equal(json_integer_value(json_array_get(part, 1)), rows[k].before_bytes);
    assert_int_equal(json_integer_value(json_array_get(part, 3)), rows[k].after_bytes);
  }
  hr_free(rows);
  json_decref(facts);
  forget(&r);
  for (k = 0; k < 2; k++) {
    hr_inspection_destroy(k ? after : before);
    hr_snapshot_destroy(snapshots[k]);
  }
}

static void hash_text(const char *from, const char *to, char text[45]) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint8_t digest[33] = {0};
  hri_sha256(from, (size_t)(to - from), digest);
  for (int i = 0; i < 11; i++) {
    uint32_t bits = (uint32_t)digest[3 * i] << 16 | (uint32_t)digest[3 * i + 1] << 8 | digest[3 * i + 2];
    for (int j = 0; j < 4; j++) text[4 * i + j] = digits[bits >> (18 - 6 * j) & 63];
  }
  memcpy(text + 43, "=", 2);
}

static void test_policy_admits_the_one_script_and_style(void **state) {
  hr_snapshot *snapshot = small_snapshot("f", 1);
  hr_inspection *in = inspect(snapshot);
  reading r = report_of(in, NULL);
  char hash[45], wanted[80];
  const char *script = strstr(r.html, "<script type=\"module\">") + 22, *css = strstr(r.html, "<style>") + 7;
  (void)state;
  hash_text(script, strstr(script, "</script>"), hash);
  (void)snprintf(wanted, sizeof wanted, "script-src 'sha256-%s'\"", hash);
  assert_int_equal(occurrences(r.html, wanted), 1);
  hash_text(css, strstr(css, "</style>"), hash);
  (void)snprintf(wanted, sizeof wanted, "style-src 'sha256-%s';", hash);
  assert_int_equal(occurrences(r.html, wanted), 1);
  assert_int_equal(occurrences(r.html, "default-src 'none'"), 1);
  assert_true(strstr(r.html, "Content-Security-Policy") < strstr(r.html, "<style>"));
  assert_int_equal(occurrences(r.html, "http:") + occurrences(r.html, "https:") + occurrences(r.html, " src=") +
                       occurrences(r.html, "@import"),
                   0);
  assert_int_equal(occurrences(r.html, "innerHTML") + occurrences(r.html, "outerHTML") +
                       occurrences(r.html, "insertAdjacentHTML") + occurrences(r.html, "eval("),
                   0);
  assert_int_equal(occurrences(r.html, "{{"), 0);
  forget(&r);
  hr_inspection_destroy(in);
  hr_snapshot_destroy(snapshot);
}

static void test_same_input_same_file(void **state) {
  hr_snapshot *snapshot = make_snapshot(&lost);
  hr_inspection *in = inspect(snapshot);
  reading first = report_of(in, NULL), second = report_of(in, NULL);
  (void)state;
  assert_int_equal(first.html_bytes, second.html_bytes);
  assert_memory_equal(first.html, second.html, first.html_bytes);
  forget(&first);
  forget(&second);
  hr_inspection_destroy(in);
  hr_snapshot_destroy(snapshot);
}

/* ---- Whole or not there ---- */

static uint32_t files_in_directory(void) {
  char command[PATH_BYTES + 32], line[16] = "";
  FILE *pipe;
  (void)snprintf(command, sizeof command, "ls -A %s | wc -l", directory);
  pipe = popen(command, "r");
  assert_non_null(fgets(line, sizeof line, pipe));
  pclose(pipe);
  return (uint32_t)atoi(line);
}

static void test_refused_memory_leaves_the_old_file(void **state) {
  hr_snapshot *snapshot = make_snapshot(&whole);
  hr_inspection *in = inspect(snapshot);
  const hr_report_options options = {.before = in};
  uint64_t live = hri_mem_live_bytes(), failures = 0;
  hr_status status = HR_ERROR_MEMORY;
  (void)state;
  for (uint64_t n = 1; status != HR_OK; n++) {
    hr_error error = {0};
    char *bytes;
    uint64_t count;
    assert_int_equal(hri_file_replace(path, "old", 3, NULL), HR_OK);
    hri_mem_fail_after(n);
    status = hr_report_html(in, &options, path, &error);
    hri_mem_fail_after(0);
    assert_int_equal(hri_mem_live_bytes(), live);
    assert_int_equal(files_in_directory(), 1);
    if (status == HR_OK) break;
    assert_int_equal(status, HR_ERROR_MEMORY);
    assert_true(error.message[0] != 0);
    assert_int_equal(hri_file_read(path, 1 << 20, &bytes, &count, NULL), HR_OK);
    assert_string_equal(bytes, "old");
    hri_free(bytes);
    failures++;
  }
  assert_true(failures > 10);
  hr_inspection_destroy(in);
  hr_snapshot_destroy(snapshot);
}

static bool is_file(const char *name) {
  struct stat info;
  return stat(name, &info) == 0 && S_ISREG(info.st_mode);
}

/* Data that no browser would open: the page is not made, and nothing else is in its place. */
static void test_too_much_data(void **state) {
  enum { PART = 1 << 16, MOST = 1 << 20 };
  static unsigned char noise[PART];
  uint32_t next = 1;
  hri_page *page;
  hr_error error = {0};
  (void)state;
  for (size_t i = 0; i < PART; i++) noise[i] = (unsigned char)((next = next * 1664525u + 1013904223u) >> 24);
  for (uint64_t most = MOST; most <= 2 * MOST; most += MOST) {
    (void)unlink(path);
    assert_int_equal(hri_page_begin(path, &page, NULL), HR_OK);
    hri_page_data_begin(page, most);
    for (int k = 0; k < MOST / PART; k++) { /* base64 of 1 MiB */
      noise[k] ^= 0x55;
      hri_page_data(page, noise, PART);
    }
    hri_page_data_end(page);
    if (most == MOST) {
      assert_int_equal(hri_page_end(page, &error), HR_ERROR_INPUT);
      assert_non_null(strstr(error.message, "more than 1.00 MiB of data"));
      assert_int_equal(access(path, F_OK), -1);
    } else assert_int_equal(hri_page_end(page, &error), HR_OK);
  }
}

static void test_bad_paths(void **state) {
  hr_snapshot *snapshot = small_snapshot("f", 1);
  hr_inspection *in = inspect(snapshot);
  hr_error error = {0};
  const char *missing = in_directory("missing/r.html");
  char *long_path = malloc(5001);
  (void)state;
  assert_int_equal(hr_report_html(in, NULL, directory, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, directory));
  assert_int_equal(hr_report_html(in, NULL, "", &error), HR_ERROR_USAGE);
  assert_int_equal(hr_report_html(in, NULL, missing, &error), HR_ERROR_IO);
  assert_non_null(strstr(error.message, "missing"));
  memset(long_path, 'a', 5000);
  long_path[5000] = 0;
  assert_int_equal(hr_report_html(in, NULL, long_path, &error), HR_ERROR_IO);
  assert_int_equal(hr_report_html(in, NULL, "/dev/null", &error), HR_OK); /* written to, not replaced */
  assert_true(access("/dev/null", W_OK) == 0 && !is_file("/dev/null"));
  free(long_path);
  hr_inspection_destroy(in);
  hr_snapshot_destroy(snapshot);
}

static void test_full_disk(void **state) {
  hr_snapshot *snapshot = small_snapshot("f", 1);
  hr_inspection *in = inspect(snapshot);
  hr_error error = {0};
  (void)state;
  struct rlimit was, tight;
  const char *full = in_directory("full.html");
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
  tight = was;
  tight.rlim_cur = 10000; /* writes fail behind it, as on a full disk; the page is longer */
  (void)signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
  assert_int_equal(hr_report_html(in, NULL, full, &error), HR_ERROR_IO);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
  assert_false(hri_path_exists(full));
  assert_no_scratch(directory);
  hr_inspection_destroy(in);
  hr_snapshot_destroy(snapshot);
}

/* ---- Verdict ---- */

static void test_verdict_tells_failure_or_peak(void **state) {
  hr_snapshot *failed = make_snapshot(&lost), *fine = small_snapshot("f", 2);
  hr_inspection *in = inspect(failed);
  hri_text text = {0};
  (void)state;
  hri_report_verdict(in, &text);
  assert_int_equal(strncmp(text.chars, "Out of memory: a request of 20.00 MiB failed with ", 50), 0);
  hri_text_deinit(&text);
  hr_inspection_destroy(in);
  in = inspect(fine);
  text = (hri_text){0};
  hri_report_verdict(in, &text);
  assert_int_equal(strncmp(text.chars,
                           "Peak: 2.91 MiB live after event 1; at most 20.00 MiB reserved. No request failed.", 81),
                   0);
  hri_text_deinit(&text);
  hr_inspection_destroy(in);
  hr_snapshot_destroy(failed);
  hr_snapshot_destroy(fine);
}

static void test_verdict_by_what_would_have_fit(void **state) {
  static const struct {
    bool block, contiguous, after_return, compacted;
    const char *says;
  } cases[] = {{true, true, true, true, "would have taken it"},
               {false, true, false, true, "in pieces of at most 1.00 MiB"},
               {false, false, true, true, "(7.00 MiB) would have made room"},
               {false, false, false, true, "9.00 MiB of them lie in segments that live blocks pin"},
               {false, false, false, false, "fall short of the request by 1.00 MiB"},
               {false, false, true, true, "The device reported 3.00 MiB free, enough for it"},
               {false, false, false, true, "(3.00 MiB) and its pool's (18.00 MiB) together would have been enough"}};
  hr_oom_event oom = {.event = 5, .size = 20 * 1048576, .live_bytes = 100, .reserved_bytes = 200};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    hr_inspection in = {.ooms = &oom, .oom_count = 1, .oom_total = 3, .at_event = 5};
    hri_text text = {0};
    in.at.free_returnable_bytes = k == 5 ? 0 : 7 << 20;
    in.at.free_pinned_bytes = 9 << 20;
    in.fragmentation = (hr_fragmentation){.request_bytes = 20 << 20,
                                          .device_free_bytes = 3 << 20,
                                          .device_free_known = true,
                                          .returnable_bytes = k == 5 ? 0 : 7 << 20,
                                          .fits_block = cases[k].block,
                                          .fits_contiguous = cases[k].contiguous,
                                          .fits_after_return = cases[k].after_return,
                                          .fits_compacted = cases[k].compacted,
                                          .in_private_pool = k == 6,
                                          .pool_free_bytes = (k == 6 ? 18 : 30) << 20,
                                          .pool_largest_free_bytes = 1 << 20};
    hri_report_verdict(&in, &text);
    assert_non_null(strstr(text.chars, cases[k].says));
    assert_non_null(strstr(text.chars, "the last of 3"));
    for (size_t other = 0; other < sizeof cases / sizeof *cases; other++)
      if (other != k) assert_null(strstr(text.chars, cases[other].says));
    hri_text_deinit(&text);
  }
}

/* What a ring of few steps shows of growth is no rate. */
static void test_verdict_of_growth(void **state) {
  hr_growth growth = {.kind = HR_GROWTH_LEAK, .bytes = 24 << 20, .count = 12, .bytes_per_step = 2 << 20};
  (void)state;
  for (uint64_t before = 0; before <= 10; before += 10) {
    hr_inspection in = {.growth = &growth, .growth_count = 1, .event_count = 9, .peak_event = UINT64_MAX};
    hri_text text = {0};
    growth.from_before = before;
    hri_report_verdict(&in, &text);
    assert_int_equal(strstr(text.chars, "by 2.00 MiB per step") != NULL, before == 0);
    assert_int_equal(strstr(text.chars, "10 tensors are from before the recording began") != NULL, before == 10);
    hri_text_deinit(&text);
  }
}

/* ---- SHA-256: the examples of FIPS 180-2, appendix B, and the empty message ---- */

static void test_sha256(void **state) {
  static const struct {
    const char *text;
    uint8_t starts[4], ends[4];
  } cases[] = {{"", {0xe3, 0xb0, 0xc4, 0x42}, {0x78, 0x52, 0xb8, 0x55}},
               {"abc", {0xba, 0x78, 0x16, 0xbf}, {0xf2, 0x00, 0x15, 0xad}},
               {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                {0x24, 0x8d, 0x6a, 0x61},
                {0x19, 0xdb, 0x06, 0xc1}}};
  uint8_t digest[32];
  char *many = malloc(1000000);
  (void)state;
  for (int k = 0; k < 3; k++) {
    hri_sha256(cases[k].text, strlen(cases[k].text), digest);
    assert_memory_equal(digest, cases[k].starts, 4);
    assert_memory_equal(digest + 28, cases[k].ends, 4);
  }
  memset(many, 'a', 1000000);
  hri_sha256(many, 1000000, digest);
  assert_memory_equal(digest, ((uint8_t[]){0xcd, 0xc7, 0x6e, 0x5c}), 4);
  assert_memory_equal(digest + 28, ((uint8_t[]){0xc7, 0x11, 0x2c, 0xd0}), 4);
  free(many);
}

static int set_up(void **state) {
  if (make_directory(state) != 0) return -1;
  (void)snprintf(path, sizeof path, "%s/r.html", directory);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_columns_hold_the_lives),
                                     cmocka_unit_test(test_facts_of_the_instant_and_lines),
                                     cmocka_unit_test(test_no_events_and_no_state),
                                     cmocka_unit_test(test_hostile_names_stay_text),
                                     cmocka_unit_test(test_two_snapshots),
                                     cmocka_unit_test(test_policy_admits_the_one_script_and_style),
                                     cmocka_unit_test(test_same_input_same_file),
                                     cmocka_unit_test(test_refused_memory_leaves_the_old_file),
                                     cmocka_unit_test(test_too_much_data),
                                     cmocka_unit_test(test_bad_paths),
                                     cmocka_unit_test(test_full_disk),
                                     cmocka_unit_test(test_verdict_tells_failure_or_peak),
                                     cmocka_unit_test(test_verdict_by_what_would_have_fit),
                                     cmocka_unit_test(test_verdict_of_growth),
                                     cmocka_unit_test(test_sha256)};
  return cmocka_run_group_tests(tests, set_up, remove_directory);
}
