/* The team of threads: every item once, whatever the team and the grain; callers at the same time, loops in loops,
 * forks, more threads than processors, threads that sleep, threads that the system refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "support/fork.h"
#include "team/team.h"

enum { MOST = 5000 };

/* A host's thread-local variables, which the C library puts into each thread's stack: more than a stack of ours, in all tests here. */
static _Thread_local volatile char of_the_host[3 << 20];

static hri_team *started(uint32_t threads) {
  hri_team *team;
  hr_error error = {0};
  assert_int_equal(hri_team_create(threads, &team, &error), HR_OK);
  assert_int_equal(hri_team_start(team, &error), HR_OK);
  return team;
}

/* Counts how often each item is done, and whether two threads are at work under the same number. */
typedef struct tally {
  _Atomic uint8_t done[MOST];
  _Atomic int at_work[64];
  _Atomic bool twice;
  int threads, pause_us;
  _Atomic int64_t bodies, inside, most;
} tally;

static void count(void *context, int64_t begin, int64_t end, int thread) {
  tally *t = context;
  int64_t inside = atomic_fetch_add(&t->inside, 1) + 1;
  if (inside > atomic_load(&t->most)) atomic_store(&t->most, inside);
  if (thread < 0 || thread >= t->threads || atomic_fetch_add(&t->at_work[thread], 1) != 0)
    atomic_store(&t->twice, true);
  for (int64_t i = begin; i < end; i++) atomic_fetch_add(&t->done[i], 1);
  if (t->pause_us) usleep((useconds_t)t->pause_us);
  atomic_fetch_add(&t->bodies, 1);
  atomic_fetch_sub(&t->at_work[thread], 1);
  atomic_fetch_sub(&t->inside, 1);
}

static void all_once(const tally *t, int64_t items) {
  assert_false(atomic_load(&t->twice));
  for (int64_t i = 0; i < MOST; i++) assert_int_equal(atomic_load(&t->done[i]), i < items);
}

static void test_every_item_once(void **state) {
  (void)state;
  for (uint32_t threads = 1; threads <= 9; threads++) {
    hri_team *team = started(threads);
    assert_int_equal(hri_team_threads(team), threads);
    assert_int_equal(hri_team_start_bytes(team), 0);
    for (int round = 0; round < 400; round++) {
      uint32_t random[4];
      hri_philox(7, threads, (uint64_t)round, random);
      int64_t items = random[0] % (round % 2 ? 40 : MOST), grain = 1 + random[1] % 64;
      static tally t;
      memset(&t, 0, sizeof t);
      t.threads = (int)threads;
      hri_team_each(team, items, grain, count, &t);
      all_once(&t, items);
      if (items) assert_true(t.bodies <= (items - 1) / grain + 1);
    }
    hri_team_destroy(team);
  }
}

/* Each item waits for the one before it, which must have been begun. */
typedef struct line {
  tally t;
  _Atomic int64_t finished;
} line;

static void wait_for_the_last(void *context, int64_t begin, int64_t end, int thread) {
  line *l = context;
  while (atomic_load(&l->finished) < begin) (void)sched_yield();
  count(&l->t, begin, end, thread);
  atomic_store(&l->finished, end);
}

static void test_in_order(void **state) {
  (void)state;
  for (int threads = 0; threads <= 9; threads++) {
    hri_team *team = threads ? started((uint32_t)threads) : NULL;
    for (int64_t items = 0; items < 60; items++) {
      static line l;
      memset(&l, 0, sizeof l);
      l.t.threads = hri_team_threads(team);
      hri_team_in_order(team, items, wait_for_the_last, &l);
      all_once(&l.t, items);
      assert_int_equal(l.t.bodies, items); /* one at a time */
      assert_int_equal(l.finished, items);
    }
    hri_team_destroy(team);
  }
}

static void test_alone(void **state) {
  hri_team *team;
  hr_error error = {0};
  static tally t;
  (void)state;
  t.threads = 1;
  assert_int_equal(hri_team_threads(NULL), 1);
  hri_team_each(NULL, 100, 1, count, &t);
  all_once(&t, 100);
  assert_int_equal(t.bodies, 1);
  assert_int_equal(hri_team_create(4, &team, &error), HR_OK);
  assert_int_equal(hri_team_threads(team), 4);
  assert_in_range(hri_team_start_bytes(team),
                  3 * (uint64_t)(HRI_TEAM_STACK_BYTES + sizeof of_the_host + (size_t)sysconf(_SC_PAGESIZE)),
                  3 * (uint64_t)(HRI_TEAM_STACK_BYTES + sizeof of_the_host + (1 << 20)));
  memset(&t, 0, sizeof t);
  t.threads = 1;
  hri_team_each(team, 100, 1, count, &t); /* not started */
  all_once(&t, 100);
  hri_team_destroy(team);
  hri_team_destroy(NULL);
}

/* The others sleep between loops and wake up for the next one: bodies that pause are at work side by side. */
static void test_sleepers_wake(void **state) {
  hri_team *team = started(4);
  int64_t together = 0;
  (void)state;
  for (int round = 0; round < 20; round++) {
    static tally t;
    memset(&t, 0, sizeof t);
    t.threads = 4;
    t.pause_us = 20000;
    usleep(2000); /* far beyond the time that they look for work */
    hri_team_each(team, 4, 1, count, &t);
    all_once(&t, 4);
    together += t.most;
  }
  assert_true(together > 40); /* of 80; 20 if none ever woke */
  hri_team_destroy(team);
}

/* A body that waits until it is let go. */
typedef struct gate {
  _Atomic int inside;
  _Atomic bool open;
} gate;
static void hold(void *context, int64_t begin, int64_t end, int thread) {
  gate *g = context;
  (void)begin, (void)end, (void)thread;
  atomic_fetch_add(&g->inside, 1);
  while (!atomic_load(&g->open)) usleep(100);
}
typedef struct call {
  hri_team *team;
  gate *g;
} call;
static void *hold_team(void *context) {
  call *c = context;
  hri_team_each(c->team, 4, 1, hold, c->g);
  return NULL;
}

/* While a team is busy, another thread's loop is done by that thread alone. */
static void test_busy(void **state) {
  gate g = {0};
  call c = {.team = started(4), .g = &g};
  pthread_t other;
  static tally t;
  (void)state;
  assert_int_equal(pthread_create(&other, NULL, hold_team, &c), 0);
  while (atomic_load(&g.inside) < 4) usleep(100);
  t.threads = 1;
  hri_team_each(c.team, 1000, 1, count, &t);
  all_once(&t, 1000);
  assert_int_equal(t.bodies, 1);
  atomic_store(&g.open, true);
  assert_int_equal(pthread_join(other, NULL), 0);
  hri_team_destroy(c.team);
}

typedef struct nested {
  hri_team *team;
  _Atomic int64_t sum;
} nested;
static void add(void *context, int64_t begin, int64_t end, int thread) {
  nested *n = context;
  (void)thread;
  for (int64_t i = begin; i < end; i++) atomic_fetch_add(&n->sum, i);
}
static void outer(void *context, int64_t begin, int64_t end, int thread) {
  nested *n = context;
  (void)thread;
  for (int64_t i = begin; i < end; i++) hri_team_each(n->team, 100, 1, add, n);
}

static void test_loop_in_loop(void **state) {
  nested n = {.team = started(3)};
  (void)state;
  hri_team_each(n.team, 50, 1, outer, &n);
  assert_int_equal(n.sum, 50 * 4950);
  hri_team_destroy(n.team);
}

/* Several threads of a host, each with loops on the one team and on one of its own. */
typedef struct host {
  hri_team *shared;
  bool failed;
} host;
static void *host_main(void *context) {
  host *h = context;
  hri_team *own = NULL;
  hr_error error = {0};
  h->failed = hri_team_create(2, &own, &error) != HR_OK || hri_team_start(own, &error) != HR_OK;
  for (int round = 0; round < 2000 && !h->failed; round++) {
    nested n = {0};
    hri_team_each(round % 2 ? own : h->shared, 64, 4, add, &n);
    h->failed = n.sum != 64 * 63 / 2;
  }
  hri_team_destroy(own);
  return NULL;
}
static void test_callers_at_once(void **state) {
  host hosts[4];
  pthread_t threads[4];
  hri_team *shared = started(3);
  (void)state;
  for (int k = 0; k < 4; k++) {
    hosts[k] = (host){.shared = shared};
    assert_int_equal(pthread_create(&threads[k], NULL, host_main, &hosts[k]), 0);
  }
  for (int k = 0; k < 4; k++) {
    assert_int_equal(pthread_join(threads[k], NULL), 0);
    assert_false(hosts[k].failed);
  }
  hri_team_destroy(shared);
}

static int with_a_copy(void *context) {
  hri_team *team = context, *fresh = NULL;
  nested n = {0};
  hr_error error = {0};
  hri_team_each(team, 1000, 1, add, &n);
  hri_team_destroy(team);
  if (n.sum != 499500 || hri_team_create(4, &fresh, &error) != HR_OK || hri_team_start(fresh, &error) != HR_OK)
    return 1;
  n.sum = 0;
  hri_team_each(fresh, 1000, 1, add, &n);
  hri_team_destroy(fresh);
  return n.sum == 499500 ? 0 : 1;
}

/* How many threads this process has. */
static int threads_here(void) {
  DIR *tasks = opendir("/proc/self/task");
  int count = 0;
  if (!tasks) return -1;
  for (const struct dirent *entry = readdir(tasks); entry; entry = readdir(tasks)) count += entry->d_name[0] != '.';
  (void)closedir(tasks);
  return count;
}

/* A thread that was joined may be counted for a moment. */
static bool alone_soon(void) {
  for (int k = 0; k < 2000 && threads_here() > 1; k++) usleep(1000);
  return threads_here() == 1;
}

static int begun_in_child(void *context) {
  hri_team *team = context;
  hr_error error = {0};
  int64_t together = 0;
  if (hri_team_start(team, &error) != HR_OK || threads_here() != 4) return 1;
  for (int round = 0; round < 20; round++) {
    static tally t;
    memset(&t, 0, sizeof t);
    t.threads = 4;
    t.pause_us = 2000;
    hri_team_each(team, 40, 1, count, &t);
    if (atomic_load(&t.twice) || t.done[0] != 1 || t.done[39] != 1) return 2;
    together += t.most;
  }
  if (together <= 40) return 3; /* of 80; 20 if the calling thread did all */
  hri_team_destroy(team);
  return alone_soon() ? 0 : 4; /* none waits in memory that is gone */
}

/* A team that was made before a fork and begins in the child has threads of the child's, which work and end with it. */
static void test_begun_after_fork(void **state) {
  hri_team *team = NULL;
  hr_error error = {0};
  (void)state;
#if defined(__SANITIZE_THREAD__)
  skip(); /* it allows no threads after a fork */
#endif
  assert_int_equal(hri_team_create(4, &team, &error), HR_OK);
  assert_int_equal(in_child(begun_in_child, team, 60), 0);
  hri_team_destroy(team);
}

/* A child has no workers: its copy of the team still does every loop, can be ended, and a new one can be started. */
static void test_fork(void **state) {
  hri_team *team = started(4);
  nested n = {0};
  (void)state;
#if defined(__SANITIZE_THREAD__)
  skip(); /* it allows no threads after a fork */
#endif
  assert_int_equal(in_child(with_a_copy, team, 60), 0);
  hri_team_each(team, 1000, 1, add, &n);
  assert_int_equal(n.sum, 499500);
  hri_team_destroy(team);
}

static int without_room(void *context) {
  struct rlimit limit = {.rlim_cur = (rlim_t)64 << 20, .rlim_max = (rlim_t)64 << 20};
  hri_team *team = NULL;
  hr_error error = {0};
  nested n = {0};
  (void)context;
  if (setrlimit(RLIMIT_AS, &limit) != 0 || hri_team_create(200, &team, &error) != HR_OK) return 1;
  if (hri_team_start(team, &error) != HR_ERROR_BUDGET || !strstr(error.message, "of 200")) return 2;
  hri_team_each(team, 1000, 1, add, &n);
  if (n.sum != 499500 || hri_team_start_bytes(team) == 0) return 3;
  hri_team_destroy(team);
  return 0;
}

/* The system refuses the threads: said as such, and the team still works, alone. In a child, whose limit may be lowered. */
static void test_refused(void **state) {
  (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  skip(); /* address space is not to be limited there */
#endif
  assert_int_equal(in_child(without_room, NULL, 60), 0);
}

/* Signals that the process gets are handled by its own threads. */
static pthread_t handled_by;
static void handle(int number) {
  (void)number;
  handled_by = pthread_self();
}
static void test_signals(void **state) {
  struct sigaction action = {.sa_handler = handle}, before;
  hri_team *team = started(4);
  (void)state;
  assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
  for (int k = 0; k < 20; k++) {
    memset(&handled_by, 0, sizeof handled_by);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    usleep(200);
    assert_true(pthread_equal(handled_by, pthread_self()));
  }
  assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
  hri_team_destroy(team);
}

/* Quotients that round and one by zero, by each of a team: an item waits until all are begun. */
enum { DIVIDERS = 4 };
typedef struct quotients {
  _Atomic int begun, right;
} quotients;
static volatile float one = 1, ten = 10, none = 0; /* not at compile time */
static void divide(void *context, int64_t begin, int64_t end, int thread) {
  quotients *q = context;
  (void)begin, (void)end, (void)thread;
  atomic_fetch_add(&q->begun, 1);
  while (atomic_load(&q->begun) % DIVIDERS) usleep(100);
  if (one / ten == 0x1.99999ap-4f && -one / ten == -0x1.99999ap-4f && one / none > 1) atomic_fetch_add(&q->right, 1);
}

/* What a host set its thread to, before the team began or since, is no matter of the bodies', in no thread; and it is there
 * again behind the loop. */
static void test_rounding_of_the_host(void **state) {
  (void)state;
  for (int early = 0; early < 2; early++) {
    hri_team *team = NULL;
    hr_error error = {0};
    quotients q = {0}, alone = {.begun = DIVIDERS - 1};
    if (early) (void)fesetround(FE_UPWARD);
    assert_int_equal(hri_team_create(DIVIDERS, &team, &error), HR_OK);
    assert_int_equal(hri_team_start(team, &error), HR_OK);
    if (!early) (void)fesetround(FE_DOWNWARD);
    hri_team_each(team, DIVIDERS, 1, divide, &q);
    hri_team_each(team, 1, 1, divide, &alone);
    assert_int_equal(fegetround(), early ? FE_UPWARD : FE_DOWNWARD);
    (void)fesetround(FE_TONEAREST);
    assert_int_equal(q.right, DIVIDERS);
    assert_int_equal(alone.right, 1);
    hri_team_destroy(team);
  }
}

#if defined(__x86_64__) && defined(__GLIBC__)
static int with_traps(void *context) {
  hri_team *team = NULL;
  hr_error error = {0};
  quotients q = {0};
  (void)context;
  if (feenableexcept(FE_DIVBYZERO) == -1) return 1;
  if (hri_team_create(DIVIDERS, &team, &error) != HR_OK || hri_team_start(team, &error) != HR_OK) return 2;
  hri_team_each(team, DIVIDERS, 1, divide, &q);
  hri_team_destroy(team);
  return q.right == DIVIDERS && fegetexcept() == FE_DIVBYZERO ? 0 : 3;
}

/* A host that wants to be ended by a division by zero is not ended by ours. */
static void test_traps_of_the_host(void **state) {
  (void)state;
  assert_int_equal(in_child(with_traps, NULL, 60), 0);
}
#endif

/* All of a stack of ours is there beside them. */
static void fill_a_stack(void *context, int64_t begin, int64_t end, int thread) {
  volatile char of_a_kernel[HRI_TEAM_STACK_BYTES / 2];
  (void)context, (void)end, (void)thread;
  for (size_t k = 0; k < sizeof of_a_kernel; k += 1024) of_a_kernel[k] = (char)begin;
  of_the_host[begin] = of_a_kernel[1024];
  usleep(1000);
}
static void test_variables_of_the_host(void **state) {
  hri_team *team = started(4);
  (void)state;
  hri_team_each(team, 40, 1, fill_a_stack, NULL);
  hri_team_destroy(team);
}

static void test_no_memory(void **state) {
  hri_team *team;
  hr_error error = {0};
  uint64_t live = hri_mem_live_bytes();
  (void)state;
  for (uint64_t nth = 1; nth <= 3; nth++) {
    hri_mem_fail_after(nth);
    assert_int_equal(hri_team_create(3, &team, &error), HR_ERROR_MEMORY);
    hri_mem_fail_after(0);
    assert_null(team);
    assert_int_equal(hri_mem_live_bytes(), live);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_item_once),
                                     cmocka_unit_test(test_in_order),
                                     cmocka_unit_test(test_alone),
                                     cmocka_unit_test(test_sleepers_wake),
                                     cmocka_unit_test(test_busy),
                                     cmocka_unit_test(test_loop_in_loop),
                                     cmocka_unit_test(test_callers_at_once),
                                     cmocka_unit_test(test_fork),
                                     cmocka_unit_test(test_begun_after_fork),
#if defined(__x86_64__) && defined(__GLIBC__)
                                     cmocka_unit_test(test_traps_of_the_host),
#endif
                                     cmocka_unit_test(test_rounding_of_the_host),
                                     cmocka_unit_test(test_variables_of_the_host),
                                     cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_signals),
                                     cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
