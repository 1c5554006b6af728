/* libgomp ends the process when the system refuses it a thread (an address-space limit, a limit of processes), and a
 * library of ours may not. So the threads are tried first with calls that can fail: all at once, each held until the last
 * one stands. Their stacks then stay in the C library's cache, where the threads of the real team, which is started right
 * after, find them; nothing new is asked of the system. */
#include "device/team.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

typedef struct gate {
  pthread_mutex_t mutex;
  pthread_cond_t opened;
  bool open;
} gate;

static _Thread_local uint32_t started = 1; /* OpenMP keeps a pool of threads for each thread that asks */

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
  pthread_t *tried = hri_alloc_zero(threads, sizeof *tried);
  uint32_t made;
  int reason = 0;
  if (!tried) return hri_fail_memory(error, threads * sizeof *tried, "the team");
  made = try_threads(tried, threads - 1, &reason);
  hri_free(tried);
  if (made < threads - 1) {
    char text[128];
    hr_status status = hri_fail(error, HR_ERROR_MEMORY, "the system refused thread %u of %u: %s", made + 2, threads, strerror_r(reason, text, sizeof text));
    return hri_hint(error, status, "give fewer --threads, or raise the process's limits of address space and processes");
  }
  return HR_OK;
}

hr_status hri_team_start(uint32_t threads, hr_error *error) {
  uint32_t teams = 0;
  if (threads == started) return HR_OK;
  if (threads > started) HRI_TRY(prove(threads, error));
#pragma omp parallel num_threads((int)threads) reduction(+ : teams)
  teams += 1;
  started = teams;
  return HR_OK;
}
