/* libgomp ends the process when the system refuses it a thread (an address-space limit, a limit of processes), and a
 * library of ours may not. So the threads are tried first with calls that can fail: all at once, each held until the
 * last one stands. Their stacks then stay in the C library's cache, where the threads of the real team, which is
 * started right after, find them; nothing new is asked of the system.
 *
 * Stacks count in full against limits of address space and data, and would be as large as `ulimit -s` says: 8 MiB for
 * 16 KiB that were ever used (largest of all kernels and of oneDNN's, smaps of teams of 4), gigabytes where somebody
 * raised it, too few bytes where somebody lowered it. So a team's threads are started with a stack of our choice, which
 * is the C library's default while they start; OMP_STACKSIZE, which OpenMP puts above that default, still holds. */
#include "backend/cpu/team.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "backend/cpu/room.h"

enum { STACK_BYTES = 1 << 20, GUARD_BYTES = 4096 };

typedef struct gate {
  pthread_mutex_t mutex;
  pthread_cond_t opened;
  bool open;
} gate;

static _Thread_local uint32_t started = 1; /* OpenMP keeps a pool of threads for each thread that asks */

/* ---- stacks ---- */

/* What OpenMP was told in the environment, in its words: a number and B, K, M or G, KiB without one. 0: nothing. */
static uint64_t told_stack_bytes(void) {
  const char *text = getenv("OMP_STACKSIZE");
  char unit = 'K', *end;
  uint64_t number;
  if (!text) text = getenv("GOMP_STACKSIZE");
  if (!text) return 0;
  number = strtoull(text, &end, 10);
  (void)sscanf(end, " %c", &unit);
  switch (unit | 0x20) {
  case 'b': return number;
  case 'm': return number << 20;
  case 'g': return number << 30;
  default: return number << 10;
  }
}

static uint64_t stack_bytes(void) {
  uint64_t told = told_stack_bytes();
  return told ? told : STACK_BYTES;
}

uint64_t hri_team_bytes(uint32_t threads) {
  return threads > started ? (threads - started) * (stack_bytes() + GUARD_BYTES) : 0;
}

/* Makes our stack the default of new threads; the one before comes back with stack_leave. */
static void stack_enter(pthread_attr_t *before, bool *changed) {
  *changed = false;
#if defined(__GLIBC__)
  pthread_attr_t ours;
  if (pthread_getattr_default_np(before) != 0 || pthread_getattr_default_np(&ours) != 0) return;
  *changed = pthread_attr_setstacksize(&ours, stack_bytes()) == 0 && pthread_setattr_default_np(&ours) == 0;
  (void)pthread_attr_destroy(&ours);
#else
  (void)before;
#endif
}

static void stack_leave(pthread_attr_t *before, bool changed) {
#if defined(__GLIBC__)
  if (changed) (void)pthread_setattr_default_np(before);
#else
  (void)before, (void)changed;
#endif
}

/* ---- threads ---- */

static void *wait_at(void *context) {
  gate *g = context;
  pthread_mutex_lock(&g->mutex);
  while (!g->open) pthread_cond_wait(&g->opened, &g->mutex);
  pthread_mutex_unlock(&g->mutex);
  return NULL;
}

/* Creates `count` threads that exist at the same time and ends them again; how many there were. */
static uint32_t try_threads(pthread_t *threads, uint32_t count, int *reason) {
  gate g = {.mutex = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
  uint32_t made = 0;
  while (made < count && (*reason = pthread_create(&threads[made], NULL, wait_at, &g)) == 0) made++;
  pthread_mutex_lock(&g.mutex);
  g.open = true;
  pthread_cond_broadcast(&g.opened);
  pthread_mutex_unlock(&g.mutex);
  for (uint32_t k = 0; k < made; k++) (void)pthread_join(threads[k], NULL);
  return made;
}

static hr_status prove(uint32_t threads, hr_error *error) {
  uint32_t wanted = threads - started, made;
  pthread_t *tried = hri_alloc_zero(wanted, sizeof *tried);
  int reason = 0;
  if (!tried) return hri_fail_memory(error, wanted * sizeof *tried, "the team");
  made = try_threads(tried, wanted, &reason);
  hri_free(tried);
  if (made < wanted) {
    char text[128];
    hr_status status =
        hri_fail(error, HR_ERROR_BUDGET, "the system refused thread %u of %u, for whose stacks there is room: %s",
                 started + made + 1, threads, strerror_r(reason, text, sizeof text));
    return hri_hint(error, status,
                    "give fewer --threads, or raise the limit of processes (ulimit -u, pids.max of the control group)");
  }
  return HR_OK;
}

hr_status hri_team_start(uint32_t threads, hr_error *error) {
  pthread_attr_t before;
  uint32_t teams = 0;
  bool changed;
  hr_status status;
  if (threads == started) return HR_OK;
  HRI_TRY(hri_room_prove(hri_team_bytes(threads), "the team of threads", error));
  stack_enter(&before, &changed);
  status = threads > started ? prove(threads, error) : HR_OK;
  if (status == HR_OK) {
#pragma omp parallel num_threads((int)threads) reduction(+ : teams)
    teams += 1;
    started = teams;
  }
  stack_leave(&before, changed);
  return status;
}
