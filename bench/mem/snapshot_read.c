/* How fast a snapshot is read, and what it takes: a trace as CPython pickles it (protocol 4: frames are shared through
 * the memo, lists come in batches of a thousand), written to a file first.
 *
 *   bench_snapshot_read [events [depth [rounds]]]     default 1,000,000 events, 40 frames, 5 rounds
 *   bench_snapshot_read FILE [rounds]                 any snapshot
 *
 * Prints the median, by the clock and of the processor (what a loaded machine distorts less). The peak is of the
 * process (resident) and of the library's heap. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <headroom/snapshot.h>

#include "base/mem.h"

enum { FRAMES = 5000, STACKS = 4000, BATCH = 1000, LIVE = 3000, MAX_ROUNDS = 99 };

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t random_below(uint64_t *state, uint64_t n) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (*state >> 33) % n;
}

/* ---- writing like CPython ---- */

typedef struct out {
  FILE *file;
  uint32_t memo;           /* next slot */
  uint32_t words[32];      /* slot + 1 of each word of `names` */
  uint32_t frames[FRAMES]; /* slot + 1 of each frame's dict */
} out;

enum {
  ACTION,
  ADDR,
  SIZE,
  STREAM,
  TIME_US,
  FRAMES_KEY,
  CONTEXT,
  METADATA,
  NOT_AVAILABLE,
  EMPTY,
  ALLOC,
  REQUESTED,
  COMPLETED,
  NAME,
  FILENAME,
  LINE
};
static const char *const names[] =
    {"action", "addr", "size",  "stream",         "time_us",        "frames", "compile_context", "user_metadata",
     "N/A",    "",     "alloc", "free_requested", "free_completed", "name",   "filename",        "line"};

static void put(out *o, uint64_t value, int bytes) {
  for (int k = 0; k < bytes; k++) putc((int)(value >> 8 * k & 255), o->file);
}
static void op(out *o, int opcode) { putc(opcode, o->file); }
static void get(out *o, uint32_t slot) { slot < 256 ? (op(o, 'h'), put(o, slot, 1)) : (op(o, 'j'), put(o, slot, 4)); }
static uint32_t memoize(out *o) { return op(o, 0x94), o->memo++; }

static void put_text(out *o, const char *text) {
  op(o, 0x8c);
  put(o, strlen(text), 1);
  fputs(text, o->file);
  memoize(o);
}

static void word(out *o, int which) {
  if (o->words[which]) {
    get(o, o->words[which] - 1);
    return;
  }
  o->words[which] = o->memo + 1;
  put_text(o, names[which]);
}

static void integer(out *o, uint64_t value) {
  if (value < 256) op(o, 'K'), put(o, value, 1);
  else if (value < 65536) op(o, 'M'), put(o, value, 2);
  else if (value < 1u << 31) op(o, 'J'), put(o, value, 4);
  else op(o, 0x8a), put(o, 7, 1), put(o, value, 7);
}

static void frame(out *o, uint32_t which) {
  char text[120];
  if (o->frames[which]) {
    get(o, o->frames[which] - 1);
    return;
  }
  op(o, '}');
  o->frames[which] = memoize(o) + 1;
  op(o, '(');
  word(o, NAME);
  snprintf(text, sizeof text, "function_%u", which);
  put_text(o, text);
  word(o, FILENAME);
  snprintf(text, sizeof text, "lib/python3.11/site-packages/package/module_%u.py", which / 20);
  put_text(o, text);
  word(o, LINE);
  integer(o, 10 + which % 900);
  op(o, 'u');
}

static void event(out *o, int action, uint64_t addr, uint64_t size, uint64_t time_us, uint32_t stack, uint32_t depth) {
  uint64_t state = stack;
  op(o, '}'), memoize(o), op(o, '(');
  word(o, ACTION), word(o, action);
  word(o, ADDR), integer(o, addr);
  word(o, SIZE), integer(o, size);
  word(o, STREAM), integer(o, 0);
  word(o, TIME_US), integer(o, time_us);
  word(o, CONTEXT), word(o, NOT_AVAILABLE);
  word(o, METADATA), word(o, EMPTY);
  word(o, FRAMES_KEY), op(o, ']'), memoize(o);
  if (depth) {
    op(o, '(');
    for (uint32_t k = 0; k < depth; k++) frame(o, (uint32_t)random_below(&state, FRAMES));
    op(o, 'e');
  }
  op(o, 'u');
}

static void trace(out *o, uint64_t events, uint32_t depth) {
  uint64_t state = 1, addresses[LIVE] = {0}, sizes[LIVE];
  int pending = -1;
  for (uint64_t k = 0; k < events; k++) {
    uint32_t stack = (uint32_t)random_below(&state, STACKS);
    int slot = pending >= 0 ? pending : (int)random_below(&state, LIVE);
    if (k % BATCH == 0) op(o, '(');
    if (!addresses[slot]) {
      addresses[slot] = 0x7f0000000000 + (uint64_t)slot * (64u << 20);
      sizes[slot] = 1 + random_below(&state, 1 << 24);
      event(o, ALLOC, addresses[slot], sizes[slot], 1700000000000000 + k * 3, stack, depth);
    } else {
      event(o, pending >= 0 ? COMPLETED : REQUESTED, addresses[slot], sizes[slot], 1700000000000000 + k * 3, stack,
            depth);
      if (pending >= 0) addresses[slot] = 0;
      pending = pending >= 0 ? -1 : slot;
    }
    if (k % BATCH == BATCH - 1 || k + 1 == events) op(o, 'e');
  }
}

static int generate(FILE *file, uint64_t events, uint32_t depth) {
  out o = {.file = file};
  op(&o, 0x80), put(&o, 4, 1);
  op(&o, '}'), memoize(&o), op(&o, '(');
  put_text(&o, "segments"), op(&o, ']'), memoize(&o);
  put_text(&o, "device_traces"), op(&o, ']'), memoize(&o), op(&o, ']'), memoize(&o);
  trace(&o, events, depth);
  op(&o, 'a'); /* the trace into the list of traces */
  op(&o, 'u'), op(&o, '.');
  return ferror(file) ? 1 : 0;
}

/* ---- measuring ---- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int measure(const char *path, int rounds) {
  double seconds[MAX_ROUNDS], processor[MAX_ROUNDS];
  struct rusage usage;
  struct stat info;
  uint64_t events = 0, stacks = 0, bytes = 0;
  if (stat(path, &info) != 0) return perror(path), 1;
  for (int k = 0; k < rounds; k++) {
    hr_error error = {0};
    hr_snapshot *snapshot = NULL;
    double start = now(CLOCK_MONOTONIC), began = now(CLOCK_PROCESS_CPUTIME_ID);
    if (hr_snapshot_read(path, NULL, &snapshot, &error) != HR_OK) return fprintf(stderr, "%s\n", error.message), 1;
    seconds[k] = now(CLOCK_MONOTONIC) - start;
    processor[k] = now(CLOCK_PROCESS_CPUTIME_ID) - began;
    events = snapshot->event_count, stacks = snapshot->stack_count, bytes = snapshot->byte_count;
    hr_snapshot_destroy(snapshot);
  }
  qsort(seconds, (size_t)rounds, sizeof *seconds, by_value);
  qsort(processor, (size_t)rounds, sizeof *processor, by_value);
  getrusage(RUSAGE_SELF, &usage);
  printf("%llu events, %llu stacks, %.1f MB (%.1f bytes per event)\n", (unsigned long long)events,
         (unsigned long long)stacks, (double)bytes / 1e6, events ? (double)bytes / (double)events : 0.0);
  printf("read in %.3f s (median of %d; best %.3f): %.0f MB/s, %.0f ns per event\n", seconds[rounds / 2], rounds,
         seconds[0], (double)bytes / 1e6 / seconds[rounds / 2],
         events ? 1e9 * seconds[rounds / 2] / (double)events : 0.0);
  printf("processor time %.3f s (median; least %.3f): %.0f MB/s\n", processor[rounds / 2], processor[0],
         (double)bytes / 1e6 / processor[rounds / 2]);
  printf("peak %.1f MB resident, %.1f MB on the heap: %.1f bytes per event\n", (double)usage.ru_maxrss * 1024 / 1e6,
         (double)hri_mem_peak_bytes() / 1e6, events ? (double)hri_mem_peak_bytes() / (double)events : 0.0);
  return 0;
}

int main(int count, char **arguments) {
  uint64_t events = count > 1 ? strtoull(arguments[1], NULL, 10) : 1000000;
  uint32_t depth = count > 2 ? (uint32_t)strtoul(arguments[2], NULL, 10) : 40;
  char path[] = "/tmp/bench_snapshot_XXXXXX";
  FILE *file;
  int status, rounds = count > 3 ? atoi(arguments[3]) : 5, fd;
  if (rounds < 1 || rounds > MAX_ROUNDS) rounds = 5;
  if (count > 1 && !events) return measure(arguments[1], count > 2 && depth ? (int)depth : 5);
  fd = mkstemp(path);
  file = fd < 0 ? NULL : fdopen(fd, "wb");
  if (!file) return perror(path), 1;
  status = generate(file, events, depth);
  if (fclose(file) != 0 || status) return perror(path), 1;
  status = measure(path, rounds);
  if (count <= 4) unlink(path);
  else puts(path);
  return status;
}
