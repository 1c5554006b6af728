/* Random devices, the message that PyTorch prints of a request refused there, and what logs make of it: cut on either side,
 * broken by a terminal's width, wrapped between words, set into a box, interleaved with other workers' under the prefixes of launchers.
 * Asked of each answer: a figure is one of the message's own, within its rounding, or is not there; the figures of one
 * failure are all of one worker; and what is called certain is so on the device. Wordings: c10/cuda/CUDACachingAllocator.cpp
 * of 1.1, 1.4, 1.8, 2.0, 2.1, 2.2, 2.4.
 *
 * HEADROOM_TEST_QUICK: a tenth. HEADROOM_TEST_SEED=N: only the text that N draws, printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/explain.h>

#include "support/roll.h"

#define MIB UINT64_C(1048576)
#define GIB UINT64_C(1073741824)

enum { MOST_OTHERS = 3, MOST_TEXT = 4096, MOST_WORKERS = 3 };

static uint64_t below(uint64_t *state, uint64_t bound) { return bound ? roll(state) % bound : 0; }
static bool once_in(uint64_t *state, uint64_t times) { return below(state, times) == 0; }
static uint64_t part_of(uint64_t *state, uint64_t whole) {
  return (uint64_t)((double)whole * (double)below(state, 1000) / 1000);
}

/* ---- a device on which a request was refused ---- */

typedef struct world {
  uint64_t total, free, requested, reserved, allocated, unallocated, pools; /* pools: of what is allocated */
  uint64_t cap, mine, others[MOST_OTHERS], others_bytes;                    /* cap 0: none; bytes with hidden ones */
  unsigned other_count;
  bool by_cap, by_device;
} world;

static uint64_t draw_request(uint64_t *s) {
  switch (below(s, 4)) {
  case 0: return 2 * MIB;
  case 1: return 20 * MIB;
  case 2: return 2 * MIB * (5 + below(s, 4000));
  default: return 2 * MIB * (5 + below(s, UINT64_C(1) << (3 + below(s, 14))));
  }
}

/* What is reserved within `room`: anything, or so much that the request hardly does not fit below the room or the cap. */
static uint64_t draw_reserved(const world *w, uint64_t room, uint64_t *s) {
  uint64_t reserved = part_of(s, room), near = below(s, w->requested + w->requested / 8);
  if (once_in(s, 2)) reserved = room > near ? room - near : 0;
  if (w->cap && once_in(s, 2)) reserved = w->cap > near ? w->cap - near : 0;
  if (w->cap && reserved > w->cap) reserved = w->cap;
  if (reserved > room) reserved = room;
  return reserved - reserved % (2 * MIB);
}

static bool try_world(world *w, uint64_t *s) {
  static const uint8_t sizes[] = {4, 6, 8, 11, 12, 16, 24, 40, 48, 80};
  const bool in_pools = once_in(s, 6), in_pieces = once_in(s, 4);
  uint64_t past = 100 * MIB + below(s, 900 * MIB), room; /* context and libraries */
  memset(w, 0, sizeof *w);
  w->total = sizes[below(s, sizeof sizes)] * GIB - below(s, 900 * MIB);
  w->requested = draw_request(s);
  if (once_in(s, 5)) past += below(s, w->total / 2);
  if (once_in(s, 3)) w->other_count = 1 + (unsigned)below(s, MOST_OTHERS);
  for (unsigned i = 0; i < w->other_count; i++)
    w->others_bytes += w->others[i] = 64 * MIB + below(s, w->total / (2 + below(s, 6)));
  if (once_in(s, 6)) w->others_bytes += below(s, w->total / 3);
  if (past + w->others_bytes + 64 * MIB >= w->total) return false;
  room = w->total - past - w->others_bytes;
  if (once_in(s, 4)) w->cap = w->total / 20 + part_of(s, w->total - w->total / 10);
  w->reserved = draw_reserved(w, room, s);
  w->free = room - w->reserved;
  w->unallocated = part_of(s, w->reserved / (in_pieces ? 3 : 20)) / 512 * 512;
  w->allocated = w->reserved - w->unallocated;
  w->pools = in_pools ? part_of(s, w->allocated) / 512 * 512 : 0;
  w->mine = past + w->reserved;
  w->by_cap = w->cap && w->reserved + w->requested > w->cap;
  w->by_device = w->free < w->requested;
  return w->by_cap || w->by_device;
}

static void draw_world(world *w, uint64_t *s) {
  while (!try_world(w, s)) {}
}

/* Whether what is called certain is so. A request of 2 MiB stands for any tensor up to 1 MiB, one of 20 for 1 to 10. */
static bool holds(const world *w, const hr_oom_failure *f) {
  const uint64_t least = w->requested <= 2 * MIB ? 1 : w->requested <= 20 * MIB ? MIB : w->requested - 2 * MIB;
  switch (f->cause) {
  case HR_OOM_TOO_BIG: return w->requested > w->total || w->allocated - w->pools + least > w->total;
  case HR_OOM_CAP: return w->by_cap && w->free >= w->requested;
  case HR_OOM_OTHER_PROCESS: return !w->by_cap && w->free + w->others_bytes >= w->requested;
  default: return false;
  }
}

/* ---- its message ---- */

typedef struct message {
  char text[MOST_TEXT];
  uint64_t figures[HR_OOM_FIGURE_COUNT];
  bool printed[HR_OOM_FIGURE_COUNT];
} message;

static void add(message *m, const char *words) {
  assert_true(strlen(m->text) + strlen(words) < sizeof m->text);
  strcat(m->text, words);
}

/* c10's format_size, between words; `figure` HR_OOM_FIGURE_COUNT: another process's. */
static void add_size(message *m, const char *before, uint64_t bytes, const char *behind, hr_oom_figure figure) {
  char size[40];
  if (bytes <= 1024) (void)snprintf(size, sizeof size, "%llu bytes", (unsigned long long)bytes);
  else if (bytes <= MIB) (void)snprintf(size, sizeof size, "%.2f KiB", (double)bytes / 1024);
  else if (bytes <= GIB) (void)snprintf(size, sizeof size, "%.2f MiB", (double)bytes / (double)MIB);
  else (void)snprintf(size, sizeof size, "%.2f GiB", (double)bytes / (double)GIB);
  add(m, before);
  add(m, size);
  add(m, behind);
  if (figure == HR_OOM_FIGURE_COUNT) return;
  m->figures[figure] = bytes;
  m->printed[figure] = true;
}

static void print_old(message *m, world *w, uint64_t *s) {
  const unsigned version = (unsigned)below(s, 3); /* 1.1, 1.4, 1.8 to 2.0 */
  add(m, "CUDA out of memory. Tried to allocate");
  add_size(m, " ", w->requested, " (GPU 0; ", HR_OOM_REQUESTED);
  add_size(m, "", w->total, " total capacity; ", HR_OOM_TOTAL);
  add_size(m, "", w->allocated, " already allocated; ", HR_OOM_ALLOCATED);
  add_size(m, "", w->free, " free; ", HR_OOM_FREE);
  if (version == 0) {
    add_size(m, "", w->unallocated, " cached)", HR_OOM_UNALLOCATED);
    return;
  }
  if (version == 2 && w->cap) add_size(m, "", w->cap, " allowed; ", HR_OOM_ALLOWED);
  add_size(m, "", w->reserved, " reserved in total by PyTorch)", HR_OOM_RESERVED);
  if (version == 2)
    add(m, " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See "
           "documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF");
}

static void print_new(message *m, world *w, bool pools, uint64_t *s) {
  const bool listed = !once_in(s, 4);
  add(m, pools && once_in(s, 4) ? "HIP" : "CUDA");
  add_size(m, " out of memory. Tried to allocate ", w->requested, ". GPU 1 has a total ", HR_OOM_REQUESTED);
  add_size(m, !pools && once_in(s, 2) ? "capacty of " : "capacity of ", w->total, " of which ", HR_OOM_TOTAL);
  add_size(m, "", w->free, " is free. ", HR_OOM_FREE);
  for (unsigned i = 0; listed && i < w->other_count; i++) {
    char process[40];
    (void)snprintf(process, sizeof process, "Process %u has ", 1000 + (unsigned)below(s, 900000));
    add_size(m, process, w->others[i], " memory in use. ", HR_OOM_FIGURE_COUNT);
  }
  if (!once_in(s, 5))
    add_size(m, "Including non-PyTorch memory, this process has ", w->mine, " memory in use. ", HR_OOM_THIS_PROCESS);
  if (w->cap) add_size(m, "", w->cap, " allowed; ", HR_OOM_ALLOWED);
  add_size(m, "Of the allocated memory ", w->allocated, " is allocated by PyTorch, ", HR_OOM_ALLOCATED);
  if (w->pools)
    add_size(m, "with ", w->pools, " allocated in private pools (e.g., CUDA Graphs), ", HR_OOM_PRIVATE_POOLS);
  add_size(m, "and ", w->unallocated, " is reserved by PyTorch but unallocated. ", HR_OOM_UNALLOCATED);
  add(m,
      "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
      "fragmentation.  See documentation for Memory Management  "
      "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)");
}

static void print(message *m, world *w, uint64_t *s) {
  static const char *const classes[] = {"RuntimeError: ", "torch.cuda.OutOfMemoryError: ", "torch.OutOfMemoryError: ",
                                        ""};
  const bool old = once_in(s, 2), pools = !old && !once_in(s, 3);
  memset(m, 0, sizeof *m);
  if (!pools) { /* before 2.4 what pools hold free counts as cached */
    w->allocated -= w->pools;
    w->unallocated += w->pools;
    w->pools = 0;
  }
  add(m, classes[below(s, 4)]);
  if (old) print_old(m, w, s);
  else print_new(m, w, pools, s);
}

/* ---- what a log makes of it ---- */

/* Lines of at most `width`, between words or anywhere, each behind `prefix`. */
static void break_lines(const char *from, size_t width, bool anywhere, const char *prefix, char *to, size_t room) {
  size_t put = 0;
  while (*from) {
    size_t count = strlen(from) < width ? strlen(from) : width, next = count;
    if (!anywhere && strlen(from) > width) {
      while (count > 1 && from[count] != ' ') count--;
      next = count + 1;
    }
    put += (size_t)snprintf(to + put, room - put, "%s%.*s\n", prefix, (int)count, from);
    assert_true(put < room);
    from += next;
  }
}

/* Lines that were broken, each in a row of a box as wide as the widest of them. */
static void box(const char *lines, size_t width, char *to, size_t room) {
  size_t put = 0;
  for (const char *end; (end = strchr(lines, '\n')); lines = end + 1) {
    put += (size_t)snprintf(to + put, room - put, "| %-*.*s |\n", (int)width, (int)(end - lines), lines);
    assert_true(put < room);
  }
}

static void dress(const message *m, char *to, size_t room, uint64_t *s) {
  static const uint8_t widths[] = {60, 80, 100, 120};
  const size_t length = strlen(m->text);
  char lines[2 * MOST_TEXT];
  size_t at;
  switch (below(s, 7)) {
  case 0: (void)snprintf(to, room, "%.*s", 60 + (int)below(s, length - 60), m->text); break;
  case 1: (void)snprintf(to, room, "%s", m->text + 1 + below(s, length - 100)); break;
  case 2: break_lines(m->text, widths[below(s, sizeof widths)], true, "", to, room); break;
  case 3: break_lines(m->text, widths[below(s, sizeof widths)], false, "", to, room); break;
  case 4:
    at = 20 + below(s, length - 20);
    (void)snprintf(to, room, "%.*s...%s", (int)at, m->text, m->text + at + below(s, length - at));
    break;
  case 5:
    break_lines(m->text, 76, once_in(s, 2), "", lines, sizeof lines);
    box(lines, 76, to, room);
    break;
  default: (void)snprintf(to, room, "%s\n", m->text); break;
  }
}

/* What a launcher puts before a worker's lines. */
static void tag_of(unsigned launcher, unsigned worker, char tag[64]) {
  static const char *const tags[] = {"[rank%u]: ",
                                     "[rank%u]:",
                                     "rank %u: ",
                                     "[default%u]:",
                                     "%u: ",
                                     "[1,%u]<stderr>:",
                                     "(RayTrainWorker pid=90%u) ",
                                     "(RayTrainWorker pid=900, ip=10.0.0.%u) ",
                                     "(VllmWorkerProcess pid=91%u) ",
                                     "worker-%u: ",
                                     "10.0.0.%u: ",
                                     "gpu%u.cluster.local: ",
                                     "trainer-%u  | ",
                                     "[pod/trainer-%u/pytorch] ",
                                     "[gpu%u] ",
                                     "GPU%u: ",
                                     "[node%u:0]: "};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  (void)snprintf(tag, 64, tags[launcher % (sizeof tags / sizeof *tags)], worker);
#pragma GCC diagnostic pop
}

/* The workers' lines, each whole, in any order that keeps each worker's. */
static void interleave(const message *m, unsigned count, char *to, uint64_t *s) {
  const unsigned launcher = (unsigned)below(s, 1000);
  const size_t width = 50 + below(s, 60);
  char lines[MOST_WORKERS][MOST_TEXT * 2], *next[MOST_WORKERS], tag[64];
  unsigned left = count;
  for (unsigned k = 0; k < count; k++) {
    tag_of(launcher, k, tag);
    break_lines(m[k].text, width, false, tag, lines[k], sizeof lines[k]);
    next[k] = lines[k];
  }
  for (*to = 0; left > 0;) {
    unsigned k = (unsigned)below(s, count);
    char *end = strchr(next[k], '\n');
    if (!end) continue;
    strncat(to, next[k], (size_t)(end - next[k]) + 1);
    next[k] = end + 1;
    left -= !*next[k];
  }
}

/* ---- what the explainer makes of that ---- */

/* Whether all that was read of a failure stands in this message. */
static bool is_of(const hr_oom_failure *f, const message *m) {
  for (int k = 0; k < HR_OOM_FIGURE_COUNT; k++) {
    const hr_oom_value *v = &f->figures[k];
    const uint64_t apart = v->bytes > m->figures[k] ? v->bytes - m->figures[k] : m->figures[k] - v->bytes;
    if (v->state == HR_OOM_READ && (!m->printed[k] || apart > v->slack_bytes + 1)) return false;
  }
  return true;
}

static const char *fault_of(const hr_oom_failure *f, const message *m, const world *w, unsigned count) {
  bool one = false, certain = f->certainty == HR_OOM_CERTAIN;
  for (unsigned k = 0; k < count; k++) {
    if (!is_of(f, &m[k])) continue;
    one = true;
    certain &= !holds(&w[k], f);
  }
  return !one ? "figures that are no message's" : certain ? "certain and wrong" : NULL;
}

static void check(const char *text, const message *m, const world *w, unsigned count, uint64_t seed, bool show) {
  hr_explanation *e = NULL;
  hr_error error = {0};
  assert_int_equal(hr_explain_text(text, strlen(text), NULL, &e, &error), HR_OK);
  if (show) print_message("%s\n", text);
  for (uint32_t i = 0; i < e->failure_count; i++) {
    const hr_oom_failure *f = &e->failures[i];
    const char *fault = fault_of(f, m, w, count);
    if (show || fault)
      print_message("%s, %s: %s\n", hr_oom_cause_name(f->cause), hr_oom_certainty_name(f->certainty), f->verdict);
    if (fault) fail_msg("HEADROOM_TEST_SEED=%llu: %s in\n%s", (unsigned long long)seed, fault, text);
  }
  hr_explanation_destroy(e);
}

static void check_seed(uint64_t seed, bool show) {
  static message messages[MOST_WORKERS];
  static char text[MOST_WORKERS * MOST_TEXT * 2];
  world worlds[MOST_WORKERS];
  uint64_t s = seed;
  const unsigned count = once_in(&s, 3) ? 2 + (unsigned)below(&s, MOST_WORKERS - 1) : 1;
  for (unsigned k = 0; k < count; k++) {
    draw_world(&worlds[k], &s);
    print(&messages[k], &worlds[k], &s);
  }
  if (count == 1) dress(&messages[0], text, sizeof text, &s);
  else interleave(messages, count, text, &s);
  check(text, messages, worlds, count, seed, show);
}

static void test_worlds(void **state) {
  const char *only = getenv("HEADROOM_TEST_SEED");
  const uint64_t count = getenv("HEADROOM_TEST_QUICK") ? 3000 : 30000;
  (void)state;
  if (only) check_seed(strtoull(only, NULL, 10), true);
  for (uint64_t seed = 1; !only && seed <= count; seed++) check_seed(seed, false);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_worlds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
