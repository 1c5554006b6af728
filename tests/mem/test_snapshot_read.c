/* Snapshots of every version and notation are read to what tests/snapshots/read.py says that they hold; hostile and
 * damaged ones give an error that says where. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include <headroom/snapshot.h>

#include "base/file.h"
#include "base/text.h"
#include "support/cpu_seconds.h"
#include "support/scratch.h"

#define DIRECTORY HR_TEST_DATA "/snapshots/read/"

/* ---- a snapshot as text, in the words of read.py ---- */

static void put_stack(hri_text *t, const hr_snapshot *s, uint32_t stack) {
  hri_text_add(t, " [");
  for (uint32_t k = 0; k < s->stacks[stack].count; k++) {
    const hr_frame *f = &s->frames[s->stack_frames[s->stacks[stack].first + k]];
    hri_text_add(t, "%s%s@%s:%u", k ? ";" : "", hr_snapshot_string(s, f->name), hr_snapshot_string(s, f->file),
                 f->line);
  }
  hri_text_add(t, "]\n");
}

static void put_event(hri_text *t, const hr_snapshot *s, const hr_trace_event *e) {
  char time[32] = "-";
  if (e->flags & HR_EVENT_HAS_TIME) snprintf(time, sizeof time, "%lld", (long long)e->time_us);
  hri_text_add(t, "  %s 0x%llx %llu stream 0x%llx time %s pool %llu:%llu category '%s' note %s%s%s",
               hr_trace_action_name(e->action), (unsigned long long)e->addr, (unsigned long long)e->size,
               (unsigned long long)e->stream, time, (unsigned long long)s->pools[e->pool].id[0],
               (unsigned long long)s->pools[e->pool].id[1], hr_snapshot_category(s, e->category),
               !e->note                               ? "-"
               : e->flags & HR_EVENT_NOTE_IS_METADATA ? "metadata "
                                                      : "context ",
               hr_snapshot_string(s, e->note), e->flags & HR_EVENT_NO_ADDRESS ? " no-address" : "");
  put_stack(t, s, e->stack);
}

static void put_segment(hri_text *t, const hr_snapshot *s, const hr_segment *g) {
  static const char *const states[] = {"inactive", "allocated", "pending"};
  hri_text_add(t, "segment %d 0x%llx %llu stream 0x%llx %s%s pool %llu:%llu sums %llu %llu %llu", g->device,
               (unsigned long long)g->address, (unsigned long long)g->total_size, (unsigned long long)g->stream,
               g->large ? "large" : "small", g->expandable ? " expandable" : "",
               (unsigned long long)s->pools[g->pool].id[0], (unsigned long long)s->pools[g->pool].id[1],
               (unsigned long long)g->allocated_size, (unsigned long long)g->active_size,
               (unsigned long long)g->requested_size);
  put_stack(t, s, g->stack);
  for (uint64_t k = 0; k < g->block_count; k++) {
    const hr_block *b = &s->blocks[g->first_block + k];
    hri_text_add(t, "  block 0x%llx %llu %s %llu category '%s'", (unsigned long long)b->address,
                 (unsigned long long)b->size, states[b->state], (unsigned long long)b->requested_size,
                 hr_snapshot_category(s, b->category));
    put_stack(t, s, b->stack);
  }
}

static hri_text describe(const hr_snapshot *s) {
  hri_text t = {0};
  hri_text_add(&t, "format %s\nunknown %llu repaired %llu\n", s->format, (unsigned long long)s->unknown_count,
               (unsigned long long)s->repaired_count);
  for (uint32_t k = 0; k < s->trace_count; k++) {
    hri_text_add(&t, "trace %d %llu\n", s->traces[k].device, (unsigned long long)s->traces[k].count);
    for (uint64_t e = 0; e < s->traces[k].count; e++) put_event(&t, s, &s->events[s->traces[k].first + e]);
  }
  for (uint64_t k = 0; k < s->segment_count; k++) put_segment(&t, s, &s->segments[k]);
  for (uint64_t k = 0; k < s->annotation_count; k++)
    hri_text_add(&t, "annotation %lld %d %s %s\n", (long long)s->annotations[k].time_us, s->annotations[k].device,
                 s->annotations[k].end ? "END" : "START", hr_snapshot_string(s, s->annotations[k].name));
  if (s->settings.present) {
    hri_text_add(&t, "settings '%s' split %lld gc %g expandable %d divisions", hr_snapshot_string(s, s->settings.text),
                 (long long)s->settings.max_split_size, s->settings.garbage_collection_threshold,
                 s->settings.expandable_segments);
    for (int k = 0; k < 16; k++) hri_text_add(&t, " %llu", (unsigned long long)s->settings.roundup_power2_divisions[k]);
    hri_text_add(&t, "\n");
  }
  return t;
}

/* Says which line differs; prints nothing when none does. */
static void assert_same_text(const char *name, const char *got, const char *wanted) {
  unsigned line = 1;
  if (strcmp(got, wanted) == 0) return;
  for (; *got && *got == *wanted; got++, wanted++) line += *got == '\n';
  fail_msg("%s differs in line %u at '%.200s'; wanted '%.200s'", name, line, got, wanted);
}

static char *read_expected(const char *name) {
  char path[600];
  size_t capacity = 1 << 20;
  char *text = malloc(capacity);
  gzFile file;
  int count;
  snprintf(path, sizeof path, DIRECTORY "%.*s.txt", (int)strcspn(name, "."), name);
  if (access(path, R_OK) != 0) strcat(path, ".gz");
  file = gzopen(path, "rb"); /* reads plain files too */
  assert_non_null(file);
  count = gzread(file, text, (unsigned)capacity - 1);
  assert_true(count > 0);
  text[count] = 0;
  gzclose(file);
  return text;
}

static void for_each_file(void (*each)(const char *name, const char *path)) {
  DIR *directory = opendir(DIRECTORY);
  struct dirent *entry;
  unsigned count = 0;
  char path[600];
  assert_non_null(directory);
  while ((entry = readdir(directory))) {
    if (entry->d_name[0] == '.' || strstr(entry->d_name, ".txt")) continue;
    snprintf(path, sizeof path, DIRECTORY "%s", entry->d_name);
    each(entry->d_name, path);
    count++;
  }
  closedir(directory);
  assert_in_range(count, 32, 1000);
}

/* ---- invariants of every snapshot ---- */

static void check(const hr_snapshot *s) {
  uint64_t events = 0, blocks = 0;
  for (uint32_t k = 0; k < s->trace_count; k++) {
    assert_true(s->traces[k].first == events);
    events += s->traces[k].count;
  }
  assert_true(events == s->event_count);
  for (uint64_t k = 0; k < s->event_count; k++) {
    const hr_trace_event *e = &s->events[k];
    assert_true(e->stack < s->stack_count && e->pool < s->pool_count && e->category < s->category_count &&
                e->note < s->string_count);
    assert_true(e->action < HR_TRACE_ACTION_COUNT);
  }
  for (uint64_t k = 0; k < s->segment_count; k++) {
    uint64_t at = s->segments[k].address;
    for (uint64_t b = 0; b < s->segments[k].block_count; b++) {
      const hr_block *block = &s->blocks[s->segments[k].first_block + b];
      assert_true(block->address == at && block->size > 0 && block->requested_size <= block->size);
      at += block->size;
    }
    assert_true(at - s->segments[k].address == s->segments[k].total_size);
    blocks += s->segments[k].block_count;
  }
  assert_true(blocks == s->block_count);
}

/* ---- every version and notation ---- */

static void check_file(const char *name, const char *path) {
  hr_snapshot *s;
  hr_error error = {0};
  hri_text got;
  char *wanted = read_expected(name), *bytes;
  uint64_t count;
  if (hr_snapshot_read(path, NULL, &s, &error) != HR_OK) fail_msg("%s", error.message);
  check(s);
  got = describe(s);
  assert_same_text(name, got.chars, wanted);
  hri_text_deinit(&got);
  hr_snapshot_destroy(s);
  assert_int_equal(hri_file_read(path, 1 << 20, &bytes, &count, &error), HR_OK);
  assert_true(hr_snapshot_recognise(bytes, count));
  assert_true(hr_snapshot_recognise(bytes, count < 512 ? count : 512));
  assert_int_equal(hr_snapshot_parse(bytes, count, name, NULL, &s, &error), HR_OK);
  got = describe(s);
  assert_same_text(name, got.chars, wanted);
  hri_text_deinit(&got);
  hr_snapshot_destroy(s);
  hri_free(bytes);
  free(wanted);
}

static void test_files(void **state) {
  uint64_t live = hri_mem_live_bytes();
  (void)state;
  for_each_file(check_file);
  assert_true(hri_mem_live_bytes() == live);
}

/* ---- damage ---- */

/* A reader that goes on behind a cut would call the rest of a trace complete. */
static void cut_file(const char *name, const char *path) {
  char *bytes, *part;
  uint64_t count, step;
  hr_error error = {0};
  assert_int_equal(hri_file_read(path, 1 << 20, &bytes, &count, &error), HR_OK);
  step = count > 5000 ? 97 : 1;
  for (uint64_t k = 0; k < count; k += step) {
    hr_snapshot *s = (hr_snapshot *)&error;
    part = malloc(k ? k : 1); /* exactly as long, for the sanitizer */
    memcpy(part, bytes, k);
    error = (hr_error){0};
    if (hr_snapshot_parse(part, k, "cut", NULL, &s, &error) != HR_ERROR_INPUT)
      fail_msg("%s cut at %llu: %s", name, (unsigned long long)k, error.message);
    assert_null(s);
    assert_non_null(strstr(error.message, "cut"));
    assert_true(error.hint[0]);
    free(part);
  }
  hri_free(bytes);
}

static void test_cut(void **state) {
  uint64_t live = hri_mem_live_bytes();
  (void)state;
  for_each_file(cut_file);
  assert_true(hri_mem_live_bytes() == live);
}

/* Any byte changed to some others: an error or a snapshot that holds together. */
static void test_changed_bytes(void **state) {
  static const char *const names[] = {"python-2-14.pickle", "cpp-2-0.pickle", "protocol-0.pickle", "viewer.json",
                                      "gzip.pickle.gz"};
  static const unsigned char others[] = {0, 1, 'h', 'e', 'u', 0x94, 0xff, '(', 'a', '0', '2'};
  uint64_t live = hri_mem_live_bytes();
  (void)state;
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    char path[600], *bytes;
    uint64_t count;
    hr_error error = {0};
    snprintf(path, sizeof path, DIRECTORY "%s", names[n]);
    assert_int_equal(hri_file_read(path, 1 << 20, &bytes, &count, &error), HR_OK);
    for (uint64_t k = 0; k < count; k++) {
      char old = bytes[k];
      for (size_t o = 0; o < sizeof others; o++) {
        hr_snapshot *s = NULL;
        bytes[k] = (char)others[o];
        if (hr_snapshot_parse(bytes, count, names[n], NULL, &s, &error) == HR_OK) check(s);
        else assert_int_equal(error.code, HR_ERROR_INPUT);
        hr_snapshot_destroy(s);
      }
      bytes[k] = old;
    }
    hri_free(bytes);
  }
  assert_true(hri_mem_live_bytes() == live);
}

/* ---- refused pickles ---- */

typedef struct refusal {
  const char *bytes;
  size_t count;
  const char *word; /* of the message */
} refusal;
#define PICKLE(text, word) {text, sizeof text - 1, word}

static void test_refused(void **state) {
  static const refusal cases[] = {
      PICKLE("\x80\x04"
             "cos\nsystem\nX\x02\0\0\0id\x85R.",
             "GLOBAL of the module 'os'"),
      PICKLE("\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.", "STACK_GLOBAL of 'os.system'"),
      PICKLE("(dp0\nI1\nR.", "REDUCE"),
      PICKLE("(dp0\nI1\nb.", "BUILD"),
      PICKLE("(dp0\n(ios\nsystem\n.", "INST of the module 'os'"),
      PICKLE("\x80\x02(o.", "OBJ"),
      PICKLE("\x80\x02K\1K\1\x81.", "NEWOBJ"),
      PICKLE("\x80\x02K\1K\1K\1\x92.", "NEWOBJ_EX"),
      PICKLE("\x80\x02\x82\1.", "EXT1"),
      PICKLE("\x80\x02\x83\1\1.", "EXT2"),
      PICKLE("\x80\x02\x84\1\1\1\1.", "EXT4"),
      PICKLE("\x80\x02Pid\n.", "PERSID"),
      PICKLE("\x80\x02K\1Q.", "BINPERSID"),
      PICKLE("\x80\x05\x97.", "NEXT_BUFFER"),
      PICKLE("\x80\x05K\1\x98.", "READONLY_BUFFER"),
      PICKLE("\x80\x04\xee.", "0xee is no opcode"),
      PICKLE("\x80\x02"
             "\x80\x06N.",
             "protocol 6"),
  };
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    hr_snapshot *s;
    hr_error error = {0};
    assert_int_equal(hr_snapshot_parse(cases[k].bytes, cases[k].count, "evil.pickle", NULL, &s, &error),
                     HR_ERROR_INPUT);
    if (!strstr(error.message, cases[k].word) || !strstr(error.message, "evil.pickle: byte "))
      fail_msg("case %zu: %s", k, error.message);
  }
}

static void test_malformed(void **state) {
  static const refusal cases[] = {
      PICKLE("", "is empty"),
      PICKLE("Traceback (most recent call last):", "no memory snapshot"),
      PICKLE("PK\3\4....", "zip archive"),
      PICKLE("\x80\x04N.", "holds None"),
      PICKLE("\x80\x04}.", "holds an empty dict"),
      PICKLE("\x80\x04]\x94(h\0e.", "complete already"),        /* l = []; l.append(l) */
      PICKLE("\x80\x04}\x94(\x8c\1ah\0u.", "complete already"), /* d["a"] = d */
      PICKLE("\x80\x04]\x94]\x94(h\0e"
             "a.",
             "complete already"), /* a cycle of two */
      PICKLE("\x80\x04h\0.", "never stored"),
      PICKLE("\x80\x04j\xff\xff\xff\xff.", "never stored"),
      PICKLE("\x80\x04"
             "Nr\xff\xff\xff\xff.",
             "memo slot 4294967295 is beyond"),
      PICKLE("\x80\x04]\x94\x94.", "stored in the memo twice"),
      PICKLE("\x80\x04]2.", "DUP of a container"),
      PICKLE("\x80\x04]\x94"
             "0h\0.",
             "holds nothing"),
      PICKLE("\x80\x04"
             "e.",
             "no MARK"),
      PICKLE("\x80\x04(e.", "nothing below its MARK"),
      PICKLE("\x80\x04"
             "0.",
             "POP needs 1 values"),
      PICKLE("\x80\x04K\1(a.", "APPEND needs 2 values"),
      PICKLE("\x80\x04}(K\1u.", "a key without a value"),
      PICKLE("\x80\x04K\1(K\1e.", "items are added to 1"),
      PICKLE("\x80\x04](K\1K\1u.", "keys are added to a list"),
      PICKLE("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
             "a.",
             "ends in the middle"),
      PICKLE("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x3f"
             "a.",
             "ends in the middle"),
      PICKLE("\x80\x04\x8b\xff\xff\xff\xff.", "negative length"),
      PICKLE("(dp0\nI12x\n.", "'12x' is no integer"),
      PICKLE("(dp0\nF1.5x\n.", "'1.5x' is no number"),
      PICKLE("(dp0\nS1\n.", "without its quotes"),
      PICKLE("(dp0\ng-1\n.", "no memo slot"),
      PICKLE("{\"segments\": [1, {}]}", "'segments' is something else"),
      PICKLE("{\"segments\": 5}", "'segments' is 5"),
      PICKLE("{\"segments\": [{\"blocks\": [{\"size\": -5, \"state\": \"inactive\"}]}]}", "'size' of a block is -5"),
      PICKLE("{\"segments\": [{\"blocks\": [{\"size\": null, \"state\": \"inactive\"}]}]}",
             "'size' of a block is None"),
      PICKLE(
          "{\"segments\": [{\"address\": 0, \"blocks\": [{\"size\": 9223372036854775807, \"state\": \"inactive\"}, {\"size\": 9223372036854775807, "
          "\"state\": \"inactive\"}, {\"size\": 2, \"state\": \"inactive\"}, {\"size\": 5, \"state\": \"inactive\"}]}]}",
          "blocks of 2^64 bytes"),
      PICKLE(
          "{\"segments\": [{\"address\": 18446744073709551000, \"blocks\": [{\"size\": 4096, \"state\": \"inactive\"}]}]}",
          "above 2^64"),
      PICKLE("{\"segments\": [{\"device\": 99999999, \"blocks\": []}]}", "'device' of a segment is 99999999"),
      PICKLE(
          "{\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 1, \"size\": 2}, {\"action\": \"alloc\", \"addr\": 1, \"size\": \"big\"}]]}",
          "event 1: 'size' is the string 'big'"),
      PICKLE("{\"device_traces\": [[{\"action\": \"alloc\", \"addr\": [1], \"size\": 2}]]}",
             "'addr' is something else"),
      PICKLE("{\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 1, \"size\": 2, \"time_us\": \"now\"}]]}",
             "'time_us' is the string 'now'"),
      PICKLE("{\"device_traces\": [{\"segments\": []}]}", "'device_traces' holds a snapshot"),
      PICKLE("{\"a\": 1}", "holds something else"),
      PICKLE("{\"segments\": [}", "line 1, column 15"),
      PICKLE("{\"segments\": []} x", "expected the end"),
  };
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    hr_snapshot *s;
    hr_error error = {0};
    hr_status status = hr_snapshot_parse(cases[k].bytes, cases[k].count, "bad", NULL, &s, &error);
    if (status != HR_ERROR_INPUT || !strstr(error.message, cases[k].word))
      fail_msg("case %zu: '%s', wanted '%s'", k, error.message, cases[k].word);
    assert_non_null(strstr(error.message, "bad"));
  }
}

/* ---- values at their edges ---- */

static hr_snapshot *parse(const char *bytes, size_t count) {
  hr_snapshot *s = NULL;
  hr_error error = {0};
  if (hr_snapshot_parse(bytes, count, "case", NULL, &s, &error) != HR_OK) fail_msg("%s", error.message);
  check(s);
  return s;
}

/* One event with an address written by `op`. */
static uint64_t address_of(const char *op, size_t count) {
  static const char head[] = "\x80\x02}U\rdevice_traces]](}(U\6actionU\5allocU\4size", middle[] = "U\4addrK\7ueas.";
  char bytes[200];
  hr_snapshot *s;
  uint64_t size;
  memcpy(bytes, head, sizeof head - 1);
  memcpy(bytes + sizeof head - 1, op, count);
  memcpy(bytes + sizeof head - 1 + count, middle, sizeof middle - 1);
  s = parse(bytes, sizeof head - 1 + count + sizeof middle - 1);
  assert_int_equal(s->event_count, 1);
  size = s->events[0].size;
  hr_snapshot_destroy(s);
  return size;
}

static void test_integers(void **state) {
  static const char binary[] = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
                    seven[] = "\x8a\x07\xff\xff\xff\xff\xff\xff\x7f", none[] = "\x8a\0";
  (void)state;
  assert_true(address_of("K\xff", 2) == 255);
  assert_true(address_of("M\xff\xff", 3) == 65535);
  assert_true(address_of("J\xff\xff\xff\x7f", 5) == INT32_MAX);
  assert_true(address_of(none, 2) == 0);
  assert_true(address_of(seven, 9) == (1ull << 55) - 1);
  assert_true(address_of(binary, 10) == INT64_MAX);
  assert_true(address_of("\x8b\3\0\0\0\1\2\3", 8) == 0x030201);
  assert_true(address_of("I9223372036854775807\n", 21) == INT64_MAX);
  assert_true(address_of("L576460752303423488L\n", 21) == 1ull << 59);
  assert_true(address_of("F1e3\n", 5) == 1000);
  assert_true(address_of("G\x40\x8f\x40\0\0\0\0\0", 9) == 1000);
  assert_true(address_of("I01\n", 4) == 1);
  assert_true(address_of("N", 1) == 0);
}

static void test_strings(void **state) {
  static const char bytes[] =
      "(dp0\nS'segments'\n(lp1\nsS'device_traces'\n(lp2\n(lp3\n(dp4\nS'action'\nS'alloc'\nsS'size'\nI5\nsS'user_metadata'\n"
      "S'a\\n\\x41\\101\\\\ \\'q\\''\nsaa(lp5\n(dp6\nS'action'\nS'alloc'\nsS'size'\nI5\nsS'user_metadata'\nVsnow \\u2603 \\U0001F600 "
      "\xe9\nsaas.";
  hr_snapshot *s;
  (void)state;
  s = parse(bytes, sizeof bytes - 1);
  assert_int_equal(s->event_count, 2);
  assert_string_equal(hr_snapshot_string(s, s->events[0].note), "a\nAA\\ 'q'");
  assert_string_equal(hr_snapshot_string(s, s->events[1].note), "snow \xe2\x98\x83 \xf0\x9f\x98\x80 \xc3\xa9");
  hr_snapshot_destroy(s);
}

/* What is like a profiler's snapshot but for one thing is none: its last device is no CPU. */
static void test_profiler(void **state) {
  static const char *const cases[] = {
      "{\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 1, \"size\": 2, \"category\": \"input\", \"frames\": []}]]}",
      "{\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 1, \"size\": 2, \"category\": \"input\"}]]}",
      "{\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 1, \"size\": 2, \"frames\": []}]]}",
      "{\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 1, \"size\": 2, \"category\": \"input\", \"frames\": [], \"time_us\": 3}]]}",
      "{\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 1, \"size\": 2, \"category\": \"input\", \"frames\": []}]], \"allocator_settings\": "
      "{\"max_split_size\": -1}}",
      "{\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 1, \"size\": 2, \"category\": \"input\", \"frames\": []}]], \"segments\": "
      "[{\"address\": 0, \"segment_type\": \"large\", \"blocks\": []}]}",
  };
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    hr_snapshot *s = parse(cases[k], strlen(cases[k]));
    assert_int_equal(strcmp(s->format, "pytorch-profiler") == 0, k == 0);
    assert_int_equal(s->traces[0].device, k == 0 ? -1 : 0);
    hr_snapshot_destroy(s);
  }
}

/* ---- sizes ---- */

typedef struct buffer {
  char *bytes;
  size_t count, capacity;
} buffer;

static void put(buffer *b, const char *bytes, size_t count) {
  if (b->count + count > b->capacity) {
    b->capacity = (b->count + count) * 2;
    b->bytes = realloc(b->bytes, b->capacity);
    assert_non_null(b->bytes);
  }
  memcpy(b->bytes + b->count, bytes, count);
  b->count += count;
}
#define PUT(b, text) put((b), text, sizeof text - 1)

/* A list of lists of lists ... of twice the one before: 2^40 values to whoever expands it. */
static void test_billion_laughs(void **state) {
  buffer b = {0};
  hr_snapshot *s;
  hr_error error = {0};
  (void)state;
  PUT(&b, "\x80\x02}(U\1x]q\0(}(U\6actionU\1aU\4sizeK\1ue");
  for (int k = 1; k < 40; k++) {
    char level[] = "U\1x]q.(h.h.h.h.e";
    level[5] = (char)k;
    level[8] = level[10] = level[12] = level[14] = (char)(k - 1);
    put(&b, level, sizeof level - 1);
  }
  PUT(&b, "U\rdevice_traces](h\1h\1eu.");
  assert_int_equal(hr_snapshot_parse(b.bytes, b.count, "laughs", NULL, &s, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "'device_traces' holds"));
  b.count = 0;
  PUT(&b, "\x80\x02}(U\1x]q\0(}(U\6actionU\1aU\4sizeK\1ueU\rdevice_traces](h\0h\0eu.");
  assert_int_equal(hr_snapshot_parse(b.bytes, b.count, "laughs", NULL, &s, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "stands in the snapshot twice"));
  free(b.bytes);
}

/* A deep nest costs memory by its length only. */
static void test_depth(void **state) {
  const hr_snapshot_limits limits = {64 << 20};
  buffer b = {0};
  hr_snapshot *s;
  hr_error error = {0};
  (void)state;
  PUT(&b, "\x80\x02");
  for (int k = 0; k < 100000; k++) PUT(&b, "](");
  for (int k = 0; k < 100000; k++) PUT(&b, "e");
  PUT(&b, ".");
  assert_int_equal(hr_snapshot_parse(b.bytes, b.count, "deep", &limits, &s, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "'segments' holds a list"));
  free(b.bytes);
}

/* What grows with each of many small things is refused by the limit, and not before. */
static void test_limit(void **state) {
  const hr_snapshot_limits small = {1 << 20}, enough = {8 << 20};
  uint64_t live = hri_mem_live_bytes();
  buffer b = {0};
  hr_snapshot *s;
  hr_error error = {0};
  (void)state;
  PUT(&b, "\x80\x02}U\rdevice_traces](](");
  for (int k = 0; k < 50000; k++) PUT(&b, "}(U\6actionU\5allocU\4sizeK\1u");
  PUT(&b, "ees.");
  assert_int_equal(hr_snapshot_parse(b.bytes, b.count, "many", &small, &s, &error), HR_ERROR_MEMORY);
  assert_null(s);
  assert_true(hri_mem_live_bytes() == live);
  assert_int_equal(hr_snapshot_parse(b.bytes, b.count, "many", &enough, &s, &error), HR_OK);
  assert_int_equal(s->event_count, 50000);
  hr_snapshot_destroy(s);
  assert_true(hri_mem_live_bytes() == live);
  free(b.bytes);
}

/* More pools and categories than any search from one end could bear; categories have 16 bits. */
static void test_many_names(void **state) {
  enum { COUNT = 70000 };
  buffer b = {0};
  hr_snapshot *s;
  (void)state;
  PUT(&b, "\x80\x02}U\rdevice_traces](](");
  for (int k = 0; k < COUNT; k++) {
    char event[100];
    put(&b, event,
        (size_t)sprintf(event, "}(U\6actionU\5allocU\4sizeI%d\nU\7pool_idI%d\nI%d\n\x86U\bcategoryV%d\nu", k, k, k * 7,
                        k));
  }
  PUT(&b, "ees.");
  s = parse(b.bytes, b.count);
  assert_int_equal(s->event_count, COUNT);
  assert_int_equal(s->pool_count, COUNT); /* {0, 0} is the default one */
  assert_int_equal(s->pools[s->events[COUNT - 1].pool].id[1], (COUNT - 1) * 7);
  assert_int_equal(s->category_count, 65536);
  assert_int_equal(s->unknown_count, COUNT - 65535);
  assert_string_equal(hr_snapshot_category(s, s->events[65000].category), "65000");
  assert_int_equal(s->events[COUNT - 1].category, 0);
  hr_snapshot_destroy(s);
  free(b.bytes);
}

/* Strings that would all have one hash if hashes were the same in every process: as many comparisons as pairs. */
static void test_colliding_names(void **state) {
  enum { COUNT = 60000 };
  const uint64_t factor = 0xff51afd7ed558ccdu, meet = 0x1122334455667788u;
  uint64_t random = 1, found = 0;
  double begin;
  buffer b = {0};
  hr_snapshot *s;
  (void)state;
  PUT(&b, "\x80\x02](");
  while (found < COUNT) { /* 16 letters: the second half leads every first half to the same place */
    uint64_t half[2], h;
    random = random * 6364136223846793005u + 1442695040888963407u;
    half[0] = (random >> 1 & 0x3f3f3f3f3f3f3f3fu) | 0x4040404040404040u;
    h = (0x9e3779b97f4a7c15u ^ 16 ^ half[0]) * factor;
    half[1] = (h ^ h >> 32) ^ meet;
    if (half[1] & 0x8080808080808080u || memchr(half, 0, sizeof half)) continue;
    PUT(&b, "U\x10");
    put(&b, (const char *)half, sizeof half);
    PUT(&b, "0");
    found++;
  }
  PUT(&b, "e.");
  begin = cpu_seconds();
  s = parse(b.bytes, b.count);
  assert_true(cpu_seconds() - begin < 6); /* half a minute without the secret, and four times that for twice as many */
  assert_true(s->string_count > COUNT - 100);
  hr_snapshot_destroy(s);
  free(b.bytes);
}

static uint64_t peak_above(const char *path, uint64_t limit, hr_status wanted) {
  const hr_snapshot_limits limits = {limit};
  hr_snapshot *s = NULL;
  hr_error error = {0};
  void *ballast = hri_alloc(hri_mem_peak_bytes() - hri_mem_live_bytes() + 1); /* all above it shows */
  uint64_t before = hri_mem_peak_bytes();
  assert_non_null(ballast);
  if (hr_snapshot_read(path, &limits, &s, &error) != wanted) fail_msg("%s", error.message);
  hr_snapshot_destroy(s);
  hri_free(ballast);
  return hri_mem_peak_bytes() - before;
}

/* The limit holds for the window of a long string and for what sorting takes, too. */
static void test_limit_of_everything(void **state) {
  const char *directory = scratch_make("snapshot"), *path = path_of("%s/s", directory);
  const uint32_t length = 7 << 20;
  buffer b = {0};
  (void)state;
  PUT(&b, "\x80\x02]((");
  for (int k = 0; k < 100000; k++) PUT(&b, "}(U\6actionU\5allocU\4sizeK\1u");
  PUT(&b, "X");
  put(&b, (const char *)&length, 4);
  for (uint32_t k = 0; k < length / 8; k++) PUT(&b, "abcdefgh");
  PUT(&b, "ee.");
  put_file(path, b.bytes, b.count);
  assert_in_range(peak_above(path, 8 << 20, HR_ERROR_MEMORY), 1 << 20, 9 << 20);
  b.count = 0;
  PUT(&b, "\x80\x02}(U\24external_annotations](");
  for (int k = 0; k < 100000; k++) PUT(&b, "}(U\5stageU\5STARTU\4nameU\1au");
  PUT(&b, "eU\10segments]u.");
  put_file(path, b.bytes, b.count);
  assert_in_range(peak_above(path, 7 << 20, HR_ERROR_MEMORY), 1 << 20, 8 << 20);
  assert_in_range(peak_above(path, 64 << 20, HR_OK), 1 << 20, 64 << 20);
  scratch_remove(directory);
  free(b.bytes);
}

/* A line of protocol 0 that is longer than half of the file, across the edge of the window. */
static void test_long_line(void **state) {
  const char *directory = scratch_make("snapshot"), *path = path_of("%s/s", directory);
  buffer b = {0};
  hr_snapshot *s;
  hr_error error = {0};
  (void)state;
  PUT(&b, "(dp0\nVsegments\np1\n(lp2\nsV");
  for (int k = 0; k < 300000; k++) PUT(&b, "x");
  put_file(path, b.bytes, b.count);
  assert_int_equal(hr_snapshot_read(path, NULL, &s, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "ends in the middle"));
  PUT(&b, "\np3\nI1\ns.");
  put_file(path, b.bytes, b.count);
  if (hr_snapshot_read(path, NULL, &s, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(s->byte_count, b.count);
  hr_snapshot_destroy(s);
  scratch_remove(directory);
  free(b.bytes);
}

/* A pipe is refused, also one that nobody writes to: opening that would never end. */
static void test_pipe(void **state) {
  const char *directory = scratch_make("snapshot"), *path = path_of("%s/pipe", directory);
  hr_snapshot *s;
  hr_error error = {0};
  (void)state;
  assert_int_equal(mkfifo(path, 0600), 0);
  (void)alarm(60);
  assert_int_equal(hr_snapshot_read(path, NULL, &s, &error), HR_ERROR_INPUT);
  (void)alarm(0);
  assert_non_null(strstr(error.message, "not a regular file"));
  scratch_remove(directory);
}

/* Words of the file in an error do not reach the terminal as commands. */
static void test_errors_are_plain(void **state) {
  static const char text[] = "\x80\x02]}(U\7addressK\1U\ntotal_sizeU\x0a\x1b[31m\n\x7f\r\x07zua.";
  hr_snapshot *s;
  hr_error error = {0};
  (void)state;
  assert_int_equal(hr_snapshot_parse(text, sizeof text - 1, "plain", NULL, &s, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "is the string '?[31m????z'"));
}

/* gzip that inflates a thousandfold stops at the limit. */
static void test_bomb(void **state) {
  const hr_snapshot_limits small = {1 << 20};
  buffer plain = {0};
  uLongf count = 1 << 20;
  unsigned char *packed = malloc(count);
  z_stream zip = {0};
  hr_snapshot *s;
  hr_error error = {0};
  (void)state;
  PUT(&plain, "\x80\x02");
  for (int k = 0; k < 20 << 20; k++) PUT(&plain, "N0");
  assert_int_equal(deflateInit2(&zip, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  zip.next_in = (unsigned char *)plain.bytes, zip.avail_in = (unsigned)plain.count;
  zip.next_out = packed, zip.avail_out = (unsigned)count;
  assert_int_equal(deflate(&zip, Z_FINISH), Z_STREAM_END);
  assert_int_equal(hr_snapshot_parse(packed, zip.total_out, "bomb", &small, &s, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "more than 16777216 bytes (decompressed)"));
  deflateEnd(&zip);
  free(packed);
  free(plain.bytes);
}

/* A file much longer than the window, with strings across its edges and one longer than it. */
static void test_long_file(void **state) {
  const char *directory = scratch_make("snapshot"), *path = path_of("%s/s", directory);
  buffer b = {0};
  hr_snapshot *s, *t;
  hr_error error = {0};
  hri_text from_file, from_memory;
  (void)state;
  PUT(&b, "\x80\x02}U\rdevice_traces](](");
  for (int k = 0; k < 30000; k++) {
    char line[100];
    uint32_t length = k == 15000 ? 700000 : (uint32_t)k % 50;
    PUT(&b, "}(U\6actionU\5allocU\4sizeK\1U\ruser_metadataX");
    put(&b, (const char *)&length, 4); /* little-endian, as every machine that this runs on */
    for (uint32_t c = 0; c < length; c++) put(&b, &"abcdefghijklmnopqrstuvwxyz"[c % 26], 1);
    put(&b, line, (size_t)snprintf(line, sizeof line, "U\4addrI%d\nu", k));
  }
  PUT(&b, "ees.");
  put_file(path, b.bytes, b.count);
  if (hr_snapshot_read(path, NULL, &s, &error) != HR_OK) fail_msg("%s", error.message);
  t = parse(b.bytes, b.count);
  assert_int_equal(s->event_count, 30000);
  assert_int_equal(strlen(hr_snapshot_string(s, s->events[15000].note)), 700000);
  from_file = describe(s), from_memory = describe(t);
  assert_same_text("file", from_file.chars, from_memory.chars);
  hri_text_deinit(&from_file), hri_text_deinit(&from_memory);
  hr_snapshot_destroy(s), hr_snapshot_destroy(t);
  assert_int_equal(truncate(path, (off_t)b.count - 1), 0);
  assert_int_equal(hr_snapshot_read(path, NULL, &s, &error), HR_ERROR_INPUT);
  scratch_remove(directory);
  assert_int_equal(hr_snapshot_read(path, NULL, &s, &error), HR_ERROR_IO);
  assert_non_null(strstr(error.message, path));
  free(b.bytes);
}

/* The n-th allocation fails, for every n: MEMORY, and all is given back. */
static void test_allocation_failures(void **state) {
  static const char *const names[] = {"python-2-14.pickle", "protocol-0.pickle", "cpp-2-0.pickle",
                                      "viewer.json",        "gzip.pickle.gz",    "odd-4.pickle.gz"};
  (void)state;
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    char path[600];
    uint64_t live = hri_mem_live_bytes(), tries = 0;
    hr_status status;
    snprintf(path, sizeof path, DIRECTORY "%s", names[n]);
    do {
      hr_snapshot *s = NULL;
      hr_error error = {0};
      hri_mem_fail_after(++tries);
      status = hr_snapshot_read(path, NULL, &s, &error);
      hri_mem_fail_after(0);
      hr_snapshot_destroy(s);
      if (status != HR_OK && status != HR_ERROR_MEMORY)
        fail_msg("%s, allocation %llu: %s", names[n], (unsigned long long)tries, error.message);
      assert_true(hri_mem_live_bytes() == live);
    } while (status != HR_OK && tries < 100000);
    assert_int_equal(status, HR_OK);
    assert_in_range(tries, 20, 99999);
  }
}

/* Empty members before the first that holds something: 4 KiB of them may begin a snapshot, a few or damaged ones do not. */
static void test_empty_members(void **state) {
  static const unsigned char empty[20] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3};
  unsigned char bytes[4096];
  (void)state;
  for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = empty[k % sizeof empty];
  assert_true(hr_snapshot_recognise(bytes, sizeof bytes));
  assert_false(hr_snapshot_recognise(bytes, 100 * sizeof empty));
  bytes[2000] = 0x1e; /* no member follows */
  assert_false(hr_snapshot_recognise(bytes, sizeof bytes));
  bytes[2000] = 0x1f;
  bytes[2010] = 0xff; /* no block is of that kind */
  assert_false(hr_snapshot_recognise(bytes, sizeof bytes));
}

/* Of files that were joined the first is the oldest: it is not read as if it were all. Other bytes behind a snapshot are no matter. */
static void test_several_in_one_file(void **state) {
  static const char one[] = "\x80\x02}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces]u.";
  enum { ONE = sizeof one - 1 };
  char two[2 * ONE + 1];
  hr_snapshot *s;
  hr_error error = {0};
  (void)state;
  memcpy(two, one, ONE);
  memcpy(two + ONE, one, ONE);
  assert_int_equal(hr_snapshot_parse(two, 2 * ONE, "two", NULL, &s, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "two: byte 39: behind the end of a pickle another one begins"));
  assert_non_null(strstr(error.hint, "pickle.load"));
  assert_int_equal(hr_snapshot_parse(two, ONE + 1, "two", NULL, &s, &error), HR_OK); /* half a sign is none */
  hr_snapshot_destroy(s);
  two[ONE] = '\n';
  assert_int_equal(hr_snapshot_parse(two, 2 * ONE, "two", NULL, &s, &error), HR_OK);
  hr_snapshot_destroy(s);
}

static void test_recognise(void **state) {
  static const char *const logs[] =
      {"",         "x",   "Traceback", "[rank0]: torch.cuda.OutOfMemoryError", "{\"loss\": 1.5}", "(gdb) bt", "PK\3\4",
       "\x1f\x8b", "]]]", "}"};
  (void)state;
  for (size_t k = 0; k < sizeof logs / sizeof *logs; k++) assert_false(hr_snapshot_recognise(logs[k], strlen(logs[k])));
  assert_true(hr_snapshot_recognise(" {\"segments\": [", 15));
  assert_true(hr_snapshot_recognise("\x80\x04\x95", 3));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_files),
      cmocka_unit_test(test_cut),
      cmocka_unit_test(test_changed_bytes),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_malformed),
      cmocka_unit_test(test_integers),
      cmocka_unit_test(test_strings),
      cmocka_unit_test(test_billion_laughs),
      cmocka_unit_test(test_depth),
      cmocka_unit_test(test_limit),
      cmocka_unit_test(test_bomb),
      cmocka_unit_test(test_long_file),
      cmocka_unit_test(test_recognise),
      cmocka_unit_test(test_several_in_one_file),
      cmocka_unit_test(test_empty_members),
      cmocka_unit_test(test_many_names),
      cmocka_unit_test(test_allocation_failures),
      cmocka_unit_test(test_profiler),
      cmocka_unit_test(test_colliding_names),
      cmocka_unit_test(test_limit_of_everything),
      cmocka_unit_test(test_long_line),
      cmocka_unit_test(test_errors_are_plain),
      cmocka_unit_test(test_pipe),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
