/* Our allocator beside PyTorch's own: recordings of libc10_cuda.so on a fake device (tests/oracle) are played again,
 * and each address, each call to the driver, each statistic, each block of each snapshot and each trace entry has to be
 * the same.
 *
 * The device here follows the same rules as the fake one: the lowest gap of 2 MiB multiples in one space for segments
 * and one for address ranges, a stated capacity, events that end when the script says so or when somebody waits.
 *
 * test_alloc_oracle FILE plays one recording and prints all differences. */
#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include <headroom/alloc.h>

#include "oracle/space.h"

enum { STREAMS = 64, LIVE = 8192, GRANULE = 2 << 20, NO_STREAM = -1 };

/* ---- text that grows ---- */

typedef struct text {
  char *bytes;
  size_t length, capacity;
} text;

__attribute__((format(printf, 2, 3))) static void add(text *t, const char *format, ...) {
  va_list arguments;
  if (t->capacity - t->length < 128) {
    t->capacity = 2 * t->capacity + 256;
    t->bytes = realloc(t->bytes, t->capacity);
    assert_non_null(t->bytes);
  }
  va_start(arguments, format);
  t->length += (size_t)vsnprintf(t->bytes + t->length, t->capacity - t->length, format, arguments);
  va_end(arguments);
}

/* ---- the device ---- */

typedef struct device {
  space segments, reservations;
  uint64_t capacity, used;
  uint64_t handles[STREAMS], recorded[STREAMS], completed[STREAMS];
  int stream_count;
  text log;
  size_t grows_at; /* where the last word starts if that is a map or an unmap that a neighbour can extend */
  char grows;      /* 'M', 'U' or 0 */
  uint64_t grows_first, grows_end;
} device;

static uint64_t granules(uint64_t bytes) { return (bytes + GRANULE - 1) / GRANULE * GRANULE; }

static void log_range(device *d, char kind, uint64_t address, uint64_t bytes) {
  add(&d->log, " %c%" PRIx64 ",%" PRIx64, kind, address, bytes);
  d->grows = 0;
}

static void log_growing(device *d, char kind, uint64_t address, uint64_t bytes) {
  if (d->grows == kind && d->grows_end == address) {
    d->log.length = d->grows_at;
  } else {
    d->grows_at = d->log.length;
    d->grows_first = address;
  }
  log_range(d, kind, d->grows_first, address + bytes - d->grows_first);
  d->grows = kind;
  d->grows_end = address + bytes;
}

static uint64_t reserve(void *context, uint64_t bytes, uint64_t stream) {
  device *d = context;
  (void)stream;
  if (granules(bytes) > d->capacity - d->used) {
    add(&d->log, " x%" PRIx64, bytes);
    d->grows = 0;
    return 0;
  }
  d->used += granules(bytes);
  uint64_t address = space_take(&d->segments, granules(bytes));
  log_range(d, 'm', address, bytes);
  return address;
}

static void release(void *context, uint64_t address, uint64_t bytes) {
  device *d = context;
  uint64_t size = space_give_back(&d->segments, address);
  assert_int_equal(size, granules(bytes));
  d->used -= size;
  log_range(d, 'f', address, bytes);
}

static uint64_t reserve_range(void *context, uint64_t bytes, uint64_t stream) {
  device *d = context;
  (void)stream;
  uint64_t address = space_take(&d->reservations, bytes);
  log_range(d, 'R', address, bytes);
  return address;
}

static void release_range(void *context, uint64_t address, uint64_t bytes) {
  device *d = context;
  assert_int_equal(space_give_back(&d->reservations, address), bytes);
  log_range(d, 'F', address, bytes);
}

static bool map(void *context, uint64_t address, uint64_t bytes) {
  device *d = context;
  if (bytes > d->capacity - d->used) {
    add(&d->log, " X");
    d->grows = 0;
    return false;
  }
  d->used += bytes;
  log_growing(d, 'M', address, bytes);
  return true;
}

static void unmap(void *context, uint64_t address, uint64_t bytes) {
  device *d = context;
  d->used -= bytes;
  log_growing(d, 'U', address, bytes);
}

static void device_memory(void *context, uint64_t *free_bytes, uint64_t *total_bytes) {
  const device *d = context;
  *free_bytes = d->capacity - d->used;
  *total_bytes = d->capacity;
}

static int stream_index(device *d, uint64_t handle) {
  for (int i = 0; i < d->stream_count; i++) {
    if (d->handles[i] == handle) return i;
  }
  assert_true(d->stream_count < STREAMS);
  d->handles[d->stream_count] = handle;
  return d->stream_count++;
}

/* A mark is the event's number on its stream, times the streams, plus the stream. */
static uint64_t record_event(void *context, uint64_t stream) {
  device *d = context;
  int i = stream_index(d, stream);
  add(&d->log, " v%" PRIx64, stream);
  d->grows = 0;
  return ++d->recorded[i] * STREAMS + (uint64_t)i;
}

static bool event_done(void *context, uint64_t mark) {
  const device *d = context;
  return mark / STREAMS <= d->completed[mark % STREAMS];
}

static void event_wait(void *context, uint64_t mark) {
  device *d = context;
  if (!event_done(d, mark)) d->completed[mark % STREAMS] = mark / STREAMS;
}

static void complete_events(device *d, uint64_t stream, uint64_t count) {
  int i = stream_index(d, stream);
  uint64_t open = d->recorded[i] - d->completed[i];
  d->completed[i] += count < open ? count : open;
}

static int64_t no_clock(void *context) {
  (void)context;
  return 1;
}

/* ---- one recording ---- */

enum { STAT_COUNT = 122 };

/* What differs between the versions that recordings are of; tests/oracle/README.md. */
typedef struct version {
  const char *name;
  hr_alloc_order order;
  bool pools_are_captures; /* an open pool counts as a graph capture */
} version;

typedef struct player {
  const version *version;
  device device;
  hr_alloc *alloc;
  hr_alloc_config config;
  uint64_t live[LIVE]; /* address by id, 0: none */
  uint64_t oom_free;   /* UINT64_MAX: the observer was not called */
  int64_t stats[STAT_COUNT];
  hr_error error;
} player;

static void add_stat(int64_t *values, size_t *count, const hr_alloc_stat *s) {
  values[(*count)++] = s->current;
  values[(*count)++] = s->peak;
  values[(*count)++] = s->allocated;
  values[(*count)++] = s->freed;
}

/* In the order of the recorder. */
static void stat_values(const hr_alloc *alloc, int64_t values[STAT_COUNT]) {
  hr_alloc_stats s;
  hr_alloc_get_stats(alloc, &s);
  const hr_alloc_stat *families[] = {s.allocation,      s.segment,        s.active,       s.inactive_split,
                                     s.allocated_bytes, s.reserved_bytes, s.active_bytes, s.inactive_split_bytes,
                                     s.requested_bytes};
  size_t count = 0;
  for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
    for (int kind = 0; kind < HR_ALLOC_POOL_KINDS; kind++) add_stat(values, &count, &families[f][kind]);
  }
  add_stat(values, &count, &s.oversize_allocations);
  add_stat(values, &count, &s.oversize_segments);
  values[count++] = s.num_alloc_retries;
  values[count++] = s.num_ooms;
  values[count++] = s.max_split_size;
  values[count++] = s.num_sync_all_streams;
  values[count++] = s.num_device_alloc;
  values[count++] = s.num_device_free;
  assert_int_equal(count, STAT_COUNT);
}

static void play_stats(player *p, text *out) {
  int64_t now[STAT_COUNT];
  stat_values(p->alloc, now);
  for (int i = 0; i < STAT_COUNT; i++) {
    if (now[i] != p->stats[i]) add(out, " %d=%" PRId64, i, now[i]);
  }
  memcpy(p->stats, now, sizeof now);
}

static void add_segments(text *out, const hr_snapshot *snapshot) {
  for (uint64_t i = 0; i < snapshot->segment_count; i++) {
    const hr_segment *s = &snapshot->segments[i];
    add(out, " [%" PRIx64 " %c%c%" PRIx64, s->address >> 9, s->large ? 'L' : 'S', s->expandable ? 'E' : 'e', s->stream);
    const uint64_t *id = snapshot->pools[s->pool].id;
    if (id[0] || id[1]) add(out, " %" PRIx64 ".%" PRIx64, id[0], id[1]);
    for (uint64_t b = s->first_block; b < s->first_block + s->block_count; b++) {
      const hr_block *block = &snapshot->blocks[b];
      add(out, " %" PRIx64, block->size >> 9);
      if (block->state != HR_BLOCK_INACTIVE) {
        add(out, "%c%" PRIx64, block->state == HR_BLOCK_ALLOCATED ? 'a' : 'p', block->requested_size);
      }
    }
    add(out, "]");
  }
}

static void add_trace(text *out, const hr_snapshot *snapshot) {
  static const char letters[] = "afcmuMUso"; /* by hr_trace_action */
  for (uint64_t i = 0; i < snapshot->event_count; i++) {
    const hr_trace_event *e = &snapshot->events[i];
    assert_true(e->action <= HR_TRACE_OOM);
    uint64_t address = e->action == HR_TRACE_OOM ? e->addr : e->addr >> 9;
    add(out, " %c%" PRIx64 ",%" PRIx64 ",%" PRIx64, letters[e->action], address, e->size, e->stream);
  }
}

static uint64_t hash_of(const text *t) { /* FNV-1a */
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < t->length; i++) hash = (hash ^ (unsigned char)t->bytes[i]) * 0x100000001b3;
  return hash;
}

static void play_snapshot(player *p, char op, text *out) {
  hr_snapshot *snapshot = NULL;
  text made = {0};
  if (hr_alloc_snapshot(p->alloc, &snapshot, &p->error) != HR_OK) {
    add(out, " ?%s", p->error.message);
    return;
  }
  bool segments = op == 'S' || op == 'H';
  (segments ? add_segments : add_trace)(&made, snapshot);
  if (op == 'S' || op == 'T') {
    for (size_t i = 0; i < made.length; i += 100) add(out, "%.100s", made.bytes + i);
  } else {
    add(out, " %" PRIx64, hash_of(&made));
  }
  free(made.bytes);
  hr_snapshot_destroy(snapshot);
}

static void on_oom(void *context, hr_alloc *alloc, uint64_t requested_bytes, uint64_t device_free_bytes) {
  player *p = context;
  (void)alloc;
  (void)requested_bytes;
  p->oom_free = device_free_bytes;
}

static void take_log(player *p, text *out) {
  if (p->device.log.length) {
    p->device.log.bytes[p->device.log.length] = 0;
    for (size_t i = 0; i < p->device.log.length; i += 100) add(out, "%.100s", p->device.log.bytes + i);
  }
  p->device.log.length = 0;
  p->device.grows = 0;
}

static void play_malloc(player *p, uint64_t id, uint64_t bytes, uint64_t stream, text *out) {
  uint64_t address = 0;
  p->oom_free = UINT64_MAX;
  hr_status status = hr_alloc_malloc(p->alloc, bytes, stream, &address, &p->error);
  take_log(p, out);
  if (status == HR_OK) {
    p->live[id] = address;
    add(out, " =%" PRIx64, address >> 9);
  } else if (status == HR_ERROR_MEMORY && p->oom_free == UINT64_MAX) {
    add(out, " !");
  } else if (status == HR_ERROR_MEMORY) {
    add(out, " !%" PRIx64, p->oom_free);
  } else {
    add(out, " ?%s", p->error.message);
  }
}

static hr_status play_pool(player *p, char op, uint64_t first, uint64_t second, bool capture) {
  uint32_t pool = 0;
  hr_status status = hr_alloc_pool_create(p->alloc, first, second, &pool, &p->error);
  if (status != HR_OK || op == 'P') return status;
  if (op == 'B') return hr_alloc_pool_begin(p->alloc, pool, capture || p->version->pools_are_captures, &p->error);
  /* The create above was only to learn the number. */
  status = hr_alloc_pool_release(p->alloc, pool, &p->error);
  if (status != HR_OK) return status;
  if (op == 'E') return hr_alloc_pool_end(p->alloc, pool, &p->error);
  return hr_alloc_pool_release(p->alloc, pool, &p->error);
}

/* New settings leave the old ones as they are, but for the divisions, which every change clears first. */
static hr_status play_config(player *p, const char *conf) {
  memset(p->config.roundup_power2_divisions, 0, sizeof p->config.roundup_power2_divisions);
  hr_status status = hr_alloc_config_parse(conf, &p->config, &p->error);
  return status == HR_OK && p->alloc ? hr_alloc_set_config(p->alloc, &p->config, &p->error) : status;
}

/* A fraction of 1 is no limit (since 2.10). */
static void set_fraction(player *p, double fraction) {
  hr_alloc_set_allowed(p->alloc, fraction < 1 ? (uint64_t)(fraction * (double)p->device.capacity) : 0);
}

static hr_status play_simple(player *p, const char *line, const uint64_t n[3]) {
  uint64_t address = n[0] < LIVE ? p->live[n[0]] : 0;
  switch (line[0]) {
  case 'C': return play_config(p, line[1] ? line + 2 : "");
  case 'F': set_fraction(p, strtod(line + 2, NULL)); return HR_OK;
  case 'f':
    if (!address) return HR_OK;
    p->live[n[0]] = 0;
    return hr_alloc_free(p->alloc, address, &p->error);
  case 'r': return address ? hr_alloc_record_stream(p->alloc, address, n[1], &p->error) : HR_OK;
  case 't': complete_events(&p->device, n[0], n[1]); return HR_OK;
  case 'e': return hr_alloc_empty_cache(p->alloc, &p->error);
  case 'z': hr_alloc_reset_peak_stats(p->alloc); return HR_OK;
  case 'Z': hr_alloc_reset_accumulated_stats(p->alloc); return HR_OK;
  case 'h': return hr_alloc_history_start(p->alloc, NULL, &p->error);
  case 'B':
  case 'E':
  case 'P':
  case 'X': return play_pool(p, line[0], n[0], n[1], n[2] != 0);
  default: fail_msg("no such operation: %s", line); return HR_OK;
  }
}

static void start(player *p) {
  hr_alloc_hooks hooks = {.context = &p->device,
                          .reserve = reserve,
                          .release = release,
                          .reserve_range = reserve_range,
                          .release_range = release_range,
                          .map = map,
                          .unmap = unmap,
                          .device_memory = device_memory,
                          .record_event = record_event,
                          .event_done = event_done,
                          .event_wait = event_wait,
                          .clock_us = no_clock};
  p->device.segments.base = 0x700000000000;
  p->device.reservations.base = 0x100000000000;
  assert_int_equal(hr_alloc_create(&hooks, &p->config, &p->alloc, &p->error), HR_OK);
  hr_alloc_on_oom(p->alloc, on_oom, p);
}

static void play(player *p, char *line, text *out) {
  uint64_t n[3] = {0};
  char *at = line + 1;
  for (int i = 0; i < 3 && line[0] != 'C' && line[0] != 'F'; i++) n[i] = strtoull(at, &at, 16);
  if (line[0] == 'D') {
    p->device.capacity = n[0];
    return;
  }
  if (!p->alloc && line[0] != 'C') start(p); /* settings before it are the environment's */
  switch (line[0]) {
  case 'a': play_malloc(p, n[0], n[1], n[2], out); return;
  case 's': play_stats(p, out); return;
  case 'S':
  case 'H':
  case 'T':
  case 'G': play_snapshot(p, line[0], out); break;
  default:
    if (play_simple(p, line, n) != HR_OK) add(out, " ?%s", p->error.message);
    break;
  }
  take_log(p, out);
}

/* ---- comparison ---- */

static int compare_words(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Events that one free records are in no order: PyTorch keeps the streams of a block in a hash set. Sorts runs of
 * them. */
static void sort_events(char *words) {
  char *run[STREAMS], copy[STREAMS * 24];
  for (char *at = words; (at = strstr(at, " v")) != NULL;) {
    int count = 0;
    char *end = at;
    while (end[0] == ' ' && end[1] == 'v' && count < STREAMS) {
      end += 2 + strspn(end + 2, "0123456789abcdef");
      count++;
    }
    size_t length = (size_t)(end - at);
    assert_true(length < sizeof copy);
    memcpy(copy, at, length);
    copy[length] = 0;
    char *save = NULL;
    count = 0;
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) run[count++] = word;
    qsort(run, (size_t)count, sizeof *run, compare_words);
    for (int i = 0; i < count; i++) {
      *at++ = ' ';
      memcpy(at, run[i], strlen(run[i]));
      at += strlen(run[i]);
    }
  }
}

/* The recorded refusal has the size that was wanted from the driver, the limit and the free bytes; ours has the free
 * bytes. (The size that was asked for is in the trace.) */
static void keep_free_bytes(char *words) {
  char *refused = strstr(words, " !"), *last = refused ? strrchr(refused, ',') : NULL;
  if (last) memmove(refused + 2, last + 1, strlen(last + 1) + 1);
}

/* "# loose" in a recording: PyTorch goes through streams and released pools in the order of a hash table. So what one
 * call returns to the driver is compared as a set, and what depends on the order in which blocks become free is left
 * out: the trace, and the statistics of split blocks. */
enum { INACTIVE_SPLIT = 36, INACTIVE_SPLIT_BYTES = 84, STATS_OF_A_FAMILY = 12 };

static bool of_split_blocks(const char *word) {
  int index = atoi(word);
  return (index >= INACTIVE_SPLIT && index < INACTIVE_SPLIT + STATS_OF_A_FAMILY) ||
         (index >= INACTIVE_SPLIT_BYTES && index < INACTIVE_SPLIT_BYTES + STATS_OF_A_FAMILY);
}

static bool same_loosely(char op, char *expected, char *got) {
  enum { WORDS = 4096 };
  static char *words[2][WORDS];
  size_t counts[2] = {0};
  char *texts[2] = {expected, got};
  if (op == 'T' || op == 'G') return true;
  for (int side = 0; side < 2; side++) {
    char *save = NULL;
    for (char *word = strtok_r(texts[side], " ", &save); word; word = strtok_r(NULL, " ", &save)) {
      if (op == 's' && of_split_blocks(word)) continue;
      assert_true(counts[side] < WORDS);
      words[side][counts[side]++] = word;
    }
    if (op != 's' && op != 'S') qsort(words[side], counts[side], sizeof *words[side], compare_words);
  }
  if (counts[0] != counts[1]) return false;
  for (size_t i = 0; i < counts[0]; i++) {
    if (strcmp(words[0][i], words[1][i]) != 0) return false;
  }
  return true;
}

static bool same(const char *expected, const char *got) {
  if (strncmp(expected, " ?", 2) == 0) return strncmp(got, " ?", 2) == 0; /* refused, in words of our own */
  return strcmp(expected, got) == 0;
}

static void show_difference(const char *file, int number, const char *line, const char *expected, const char *got) {
  size_t at = 0;
  while (expected[at] && expected[at] == got[at]) at++;
  size_t from = at < 60 ? 0 : at - 60;
  print_error("%s:%d: %s\n  PyTorch: ...%.160s\n  ours:    ...%.160s\n", file, number, line, expected + from,
              got + from);
}

static char *read_all(const char *path) {
  gzFile file = gzopen(path, "rb");
  assert_non_null(file);
  size_t capacity = (size_t)64 << 20, length = 0;
  char *bytes = malloc(capacity);
  assert_non_null(bytes);
  int count;
  while ((count = gzread(file, bytes + length, 1 << 20)) > 0) {
    length += (size_t)count;
    assert_true(length + (1 << 20) < capacity);
  }
  assert_int_equal(count, 0);
  gzclose(file);
  bytes[length] = 0;
  return bytes;
}

/* The number of differences, at most `limit`: after one the two states are no longer the same. */
static int play_file(const version *of, const char *path, int limit) {
  player *p = calloc(1, sizeof *p);
  assert_non_null(p);
  p->version = of;
  p->config = hr_alloc_config_default();
  p->config.order = of->order;
  char *bytes = read_all(path), *save = NULL;
  text out = {0};
  int number = 0, differences = 0;
  bool loose = false;
  for (char *line = strtok_r(bytes, "\n", &save); line && differences < limit; line = strtok_r(NULL, "\n", &save)) {
    number++;
    if (line[0] == '#') {
      loose |= strcmp(line, "# loose") == 0;
      continue;
    }
    char *expected = strstr(line, " |");
    assert_non_null(expected);
    *expected = 0;
    expected += 2;
    out.length = 0;
    add(&out, "%s", "");
    play(p, line, &out);
    out.bytes[out.length] = 0;
    sort_events(expected);
    sort_events(out.bytes);
    keep_free_bytes(expected);
    if (!same(expected, out.bytes) && !(loose && same_loosely(line[0], expected, out.bytes))) {
      differences++;
      show_difference(path, number, line, expected, out.bytes);
    }
  }
  if (!p->alloc) start(p);
  if (hr_alloc_check(p->alloc, &p->error) != HR_OK) {
    print_error("%s: %s\n", path, p->error.message);
    differences++;
  }
  hr_alloc_destroy(p->alloc);
  if (!differences) assert_int_equal(p->device.used, 0);
  free(p->device.log.bytes);
  free(p->device.segments.ranges);
  free(p->device.reservations.ranges);
  free(p);
  free(out.bytes);
  free(bytes);
  return differences;
}

static const version versions[] = {
    {.name = "2.15", .order = HR_ALLOC_ORDER_SEGMENT},
    {.name = "2.12", .order = HR_ALLOC_ORDER_BLOCK, .pools_are_captures = true},
    {.name = "2.11", .order = HR_ALLOC_ORDER_ADDRESS, .pools_are_captures = true},
};
enum { VERSIONS = sizeof versions / sizeof *versions };

static const version *version_of(const char *path) {
  for (int i = 0; i < VERSIONS; i++) {
    char folder[16];
    snprintf(folder, sizeof folder, "/%s/", versions[i].name);
    if (strstr(path, folder)) return &versions[i];
  }
  return &versions[0];
}

static void play_folder(const char *folder, int *files, int *wrong) {
  DIR *directory = opendir(folder);
  assert_non_null(directory);
  for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    char path[8192];
    if (!strstr(entry->d_name, ".gz")) continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    ++*files;
    if (play_file(version_of(path), path, 1)) ++*wrong;
  }
  closedir(directory);
}

static void test_recordings(void **state) {
  (void)state;
  int files = 0, wrong = 0;
  for (int i = 0; i < VERSIONS; i++) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/alloc/oracle/%s", HR_TEST_DATA, versions[i].name);
    play_folder(folder, &files, &wrong);
  }
  print_message("%d recordings, %d differ\n", files, wrong);
  assert_true(files >= 60);
  assert_int_equal(wrong, 0);
}

int main(int argc, char **argv) {
  if (argc > 1) return play_file(version_of(argv[1]), argv[1], 10) != 0;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_recordings)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
