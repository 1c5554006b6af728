/* A mapped history after SIGKILL at random instants. The child writes down every call in shared memory before and after
 * it makes it; what the file says must be the state after the calls that were over, give or take what the call under
 * way had done of its work. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <headroom/alloc.h>

#include "base/file.h"
#include "support/files.h"
#include "support/roll.h"

enum { CALLS = 1 << 20, LIVE = 400, KILLS = 48 };

typedef enum kind { ALLOCATE = 1, FREE, EMPTY } kind;

typedef struct call {
  uint64_t address; /* known when the call is over */
  uint32_t size;    /* ALLOCATE: bytes; FREE: number of the call that allocated */
  uint32_t kind;
} call;

typedef struct book {
  uint64_t begun, done; /* calls */
  uint64_t failed;
  call calls[CALLS];
} book;

static char path[PATH_BYTES];
static book *shared;

/* ---- the child ---- */

static bool make_call(hr_alloc *alloc, uint64_t number, call *c) {
  if (c->kind == EMPTY) return hr_alloc_empty_cache(alloc, NULL) == HR_OK;
  if (c->kind == FREE) return hr_alloc_free(alloc, shared->calls[c->size].address, NULL) == HR_OK;
  const hr_alloc_label label = {.category = number % 3 ? "activation" : "weight",
                                .name = number % 5 ? "a" : "b",
                                .layer = (int32_t)(number % 1000)};
  return hr_alloc_set_label(alloc, &label, NULL) == HR_OK &&
         hr_alloc_malloc(alloc, c->size, number % 2, &c->address, NULL) == HR_OK;
}

static void run_child(uint64_t seed, const char *conf) {
  hr_alloc_hooks hooks;
  hr_alloc_config config = hr_alloc_config_default();
  hr_alloc *alloc;
  uint32_t live[LIVE];
  uint64_t count = 0;
  const hr_alloc_history_options options = {path, 1000};
  if (hr_alloc_fake_hooks(0, &hooks, NULL) != HR_OK || hr_alloc_config_parse(conf, &config, NULL) != HR_OK) _exit(1);
  if (hr_alloc_create(&hooks, &config, &alloc, NULL) != HR_OK || hr_alloc_history_start(alloc, &options, NULL) != HR_OK)
    _exit(1);
  for (uint64_t number = 0; number < CALLS; number++) {
    const uint64_t r = roll(&seed);
    call *c = &shared->calls[number];
    *c = (call){0, (uint32_t)(1 + (r >> 20) % ((r & 3) ? 300000 : 30000000)), ALLOCATE};
    if (r % 5000 == 1) {
      *c = (call){0, 0, EMPTY};
    } else if (count == LIVE || (count && (r >> 8) % 100 < 48)) {
      const uint64_t pick = (r >> 30) % count;
      *c = (call){0, live[pick], FREE};
      live[pick] = live[--count];
    } else {
      live[count++] = (uint32_t)number;
    }
    __atomic_store_n(&shared->begun, number + 1, __ATOMIC_RELEASE);
    if (!make_call(alloc, number, c)) __atomic_store_n(&shared->failed, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&shared->done, number + 1, __ATOMIC_RELEASE);
  }
  for (;;) (void)pause();
}

/* ---- the parent ---- */

typedef struct place {
  uint64_t address, size;
} place;

static int by_address(const void *a, const void *b) {
  const place *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

/* What the book says is allocated after the calls that were over, by address. */
static uint64_t expected_live(place *live) {
  static unsigned char alive[CALLS];
  uint64_t count = 0;
  memset(alive, 0, sizeof alive);
  for (uint64_t k = 0; k < shared->done; k++) {
    if (shared->calls[k].kind == ALLOCATE) alive[k] = 1;
    if (shared->calls[k].kind == FREE) alive[shared->calls[k].size] = 0;
  }
  for (uint64_t k = 0; k < shared->done; k++) {
    if (!alive[k]) continue;
    assert_true(count < LIVE);
    live[count++] = (place){shared->calls[k].address, shared->calls[k].size};
  }
  qsort(live, count, sizeof *live, by_address);
  return count;
}

/* The call under way may have had its effect, or not. */
static bool excused_extra(const hr_block *b) {
  const call *c = &shared->calls[shared->begun - 1];
  return shared->begun > shared->done && c->kind == ALLOCATE && b->requested_size == c->size;
}

static bool excused_missing(const place *p) {
  const call *c = &shared->calls[shared->begun - 1];
  return shared->begun > shared->done && c->kind == FREE && shared->calls[c->size].address == p->address;
}

static void compare_live(const hr_snapshot *s) {
  place live[LIVE];
  uint64_t count = expected_live(live), next = 0;
  int excused = 0;
  for (uint64_t k = 0; k < s->block_count; k++) {
    const hr_block *b = &s->blocks[k];
    if (b->state == HR_BLOCK_INACTIVE) continue;
    while (next < count && live[next].address < b->address && excused_missing(&live[next])) next++, excused++;
    if (next < count && live[next].address == b->address) {
      if (b->requested_size != live[next].size)
        fail_msg("block %lx: %lu bytes, not %lu", (long)b->address, (long)b->requested_size, (long)live[next].size);
      assert_true(b->state == HR_BLOCK_ALLOCATED || excused_missing(&live[next]));
      next++;
    } else {
      if (!excused_extra(b))
        fail_msg("after %lu calls: a block at %lx that nobody allocated", (unsigned long)shared->done,
                 (long)b->address);
      excused++;
    }
  }
  while (next < count && excused_missing(&live[next])) next++, excused++;
  if (next < count)
    fail_msg("after %lu calls: the block at %lx is missing", (unsigned long)shared->done, (long)live[next].address);
  assert_true(excused <= 1);
}

static void nap(uint64_t ns) {
  struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  (void)nanosleep(&t, NULL);
}

static void kill_one(uint64_t seed, const char *conf, uint64_t after_ns, uint64_t *longest) {
  hr_snapshot *s;
  hr_error error = {0};
  int status;
  pid_t child;
  shared->begun = shared->done = shared->failed = 0;
  child = fork();
  assert_true(child >= 0);
  if (child == 0) run_child(seed, conf);
  for (int k = 0; k < 100000 && !__atomic_load_n(&shared->begun, __ATOMIC_ACQUIRE); k++) nap(100000);
  nap(after_ns);
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(shared->failed, 0);
  assert_true(shared->begun > 0 && shared->begun - shared->done <= 1);
  if (hr_snapshot_read(path, NULL, &s, &error) != HR_OK)
    fail_msg("after %lu calls: %s", (unsigned long)shared->done, error.message);
  assert_int_equal(s->repaired_count, 0);
  assert_int_equal(s->unknown_count, 0);
  compare_live(s);
  if (s->event_count > *longest) *longest = s->event_count;
  for (uint64_t k = 1; k < s->event_count; k++) assert_true(s->events[k].time_us >= s->events[k - 1].time_us);
  hr_snapshot_destroy(s);
}

static void the_last_state_survives_a_kill(void **state) {
  static const char *const settings[] = {"", "expandable_segments:True", "max_split_size_mb:20"};
  uint64_t seed = (uint64_t)time(NULL), longest = 0, calls = 0;
  (void)state;
  print_message("seed %lu\n", (unsigned long)seed);
  for (uint64_t k = 0; k < KILLS; k++) {
    kill_one(seed + k, settings[k % 3], roll(&seed) % (k % 4 ? 4000000 : 60000000), &longest);
    calls += shared->done;
  }
  print_message("%d kills, %lu calls\n", KILLS, (unsigned long)calls);
  assert_int_equal(longest, 1000);
}

static int set_up(void **state) {
  if (make_directory(state) != 0) return -1;
  (void)snprintf(path, sizeof path, "%s/history", directory);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return shared == MAP_FAILED ? -1 : 0;
}

static int tear_down(void **state) {
  (void)munmap(shared, sizeof *shared);
  return remove_directory(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_last_state_survives_a_kill)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
