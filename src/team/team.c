/* How a loop is published, joined and closed.
 *
 * One word, `state`, holds a counter of loops, a bit that says whether the present loop may be joined, and how many
 * threads are inside. The caller fills in the loop, then stores (counter + 1, open, 0). A thread joins by raising the
 * number inside, by compare and exchange, so only while the loop is open; it leaves by lowering it. The caller works
 * too; when no chunk is left it closes the loop and waits until nobody is inside. A thread that comes later finds the
 * loop closed and cannot join: hence the caller never waits for a thread that has not begun.
 *
 * Sleeping. A sleeper counts itself in `sleepers` before its last look at `state`, under the mutex; the caller looks at
 * `sleepers` after it has stored `state`. All are sequentially consistent, so one of the two sees the other, and the
 * mutex makes the signal come after the wait has begun. The same holds for the caller, who sleeps in `waiting`.
 *
 * Numbers. Bodies compute in the standard floating-point setting (base/float_env.h) in every thread, or bits would depend on
 * which thread did what; the caller's own setting is back when the loop returns. */
#include "team/team.h"

#include <assert.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/float_env.h"
#include "base/mem.h"

enum {
#if defined(__aarch64__)
  LINE = 128, /* of some processors of Arm */
#else
  LINE = 64,
#endif
  CHUNKS_PER_THREAD = 4, /* of a share: few enough to be cheap to take, enough to be taken over by others */
  LOOKS = 16             /* at the state between two looks at the clock */
};
#define INSIDE UINT64_C(0xFFFFFFFF)
#define OPEN (UINT64_C(1) << 32)
#define LOOP (UINT64_C(1) << 33)  /* one loop further */
#define STOP (UINT64_MAX & ~OPEN) /* no loop ever has this many inside */
/* Who saw the last loop open may come to join only when the team ends: that would count the end away for a moment, in which
 * others fall asleep for good. */
_Static_assert((STOP & OPEN) == 0, "the end of a team cannot be joined");

/* The chunks of one thread's share: [next, end). Each stands in cache lines of its own. */
typedef struct share {
  _Atomic int64_t next;
  int64_t end;
  char apart[LINE - 2 * sizeof(int64_t)];
} share;

typedef struct worker {
  hri_team *team;
  pthread_t id;
  int thread;
} worker;

struct hri_team {
  /* The present loop; written by the caller while nobody is inside. */
  hri_team_body *body;
  void *context;
  int64_t count, chunk;
  share *shares; /* one per thread */
  char apart[LINE];
  _Atomic uint64_t state;
  char from_the_rest[LINE];
  _Atomic uint32_t sleepers;
  _Atomic bool waiting, busy;
  pthread_mutex_t mutex;
  pthread_cond_t work, done;
  int threads, running; /* running: with the caller; 1 until it is started */
  unsigned forks;
  int64_t spin_ns;
  worker *workers;
};

/* ---- once per process ---- */

static _Atomic unsigned forks; /* how often this process came out of a fork */
static size_t stack_bytes;     /* of each thread */

static void forked(void) { atomic_fetch_add(&forks, 1); }

static int add_thread_local(struct dl_phdr_info *object, size_t size, void *bytes) {
  (void)size;
  for (int k = 0; k < object->dlpi_phnum; k++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[k];
    if (part->p_type == PT_TLS) *(uint64_t *)bytes += part->p_memsz + part->p_align;
  }
  return 0;
}

/* The C library puts the thread-local variables of the whole process into a thread's stack: those of a host may be some MiB
 * (arrays of Fortran that are private to threads), where a stack of ours would be refused or end within a kernel. */
static void prepare(void) {
  enum { SPARE = 64 << 10 }; /* of our own stacks, that none of it counts */
  uint64_t bytes = 0;
  (void)dl_iterate_phdr(add_thread_local, &bytes);
  stack_bytes = HRI_TEAM_STACK_BYTES + (bytes > SPARE ? hri_round_up(bytes, (uint64_t)sysconf(_SC_PAGESIZE)) : 0);
  (void)pthread_atfork(NULL, NULL, forked);
}
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

/* ---- waiting ---- */

static inline void rest(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory"); /* `yield` does nothing on most cores */
#endif
}

static int64_t clock_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Looks until (state & mask) is no longer `unwanted`, for the team's bounded time. Whether it has changed. */
static bool look(const hri_team *team, uint64_t mask, uint64_t unwanted) {
  int64_t begin = 0;
  for (;;) {
    for (int i = 0; i < LOOKS; i++) {
      if ((atomic_load(&team->state) & mask) != unwanted) return true;
      rest();
    }
    if (team->spin_ns == 0) return false;
    if (!begin) begin = clock_ns();
    else if (clock_ns() - begin > team->spin_ns) return false;
  }
}

/* Until another loop than that of `seen` is there. */
static void await_loop(hri_team *team, uint64_t seen) {
  const uint64_t mask = ~(INSIDE | OPEN);
  if (look(team, mask, seen & mask)) return;
  pthread_mutex_lock(&team->mutex);
  atomic_fetch_add(&team->sleepers, 1);
  while ((atomic_load(&team->state) & mask) == (seen & mask)) pthread_cond_wait(&team->work, &team->mutex);
  atomic_fetch_sub(&team->sleepers, 1);
  pthread_mutex_unlock(&team->mutex);
}

/* Until nobody is inside the closed loop. */
static void await_end(hri_team *team) {
  for (int i = 0; i < LOOKS; i++)
    if ((atomic_load(&team->state) & INSIDE) == 0) return;
  int64_t begin = clock_ns();
  while (team->spin_ns && clock_ns() - begin < team->spin_ns)
    for (int i = 0; i < LOOKS; i++, rest())
      if ((atomic_load(&team->state) & INSIDE) == 0) return;
  pthread_mutex_lock(&team->mutex);
  atomic_store(&team->waiting, true);
  while ((atomic_load(&team->state) & INSIDE) != 0) pthread_cond_wait(&team->done, &team->mutex);
  atomic_store(&team->waiting, false);
  pthread_mutex_unlock(&team->mutex);
}

/* ---- a thread's part of a loop ---- */

static void work(const hri_team *team, int thread) {
  for (int k = 0; k < team->running; k++) {
    share *s = &team->shares[(thread + k) % team->running];
    for (;;) {
      int64_t chunk, begin, end;
      if (atomic_load_explicit(&s->next, memory_order_relaxed) >= s->end) break;
      chunk = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
      if (chunk >= s->end) break;
      begin = chunk * team->chunk;
      end = begin + team->chunk < team->count ? begin + team->chunk : team->count;
      team->body(team->context, begin, end, thread);
    }
  }
}

static bool join(hri_team *team, uint64_t *state) {
  while (*state & OPEN)
    if (atomic_compare_exchange_weak(&team->state, state, *state + 1)) return true;
  return false;
}

static void leave(hri_team *team) {
  uint64_t left = atomic_fetch_sub(&team->state, 1) - 1;
  if ((left & (INSIDE | OPEN)) != 0 || !atomic_load(&team->waiting)) return;
  pthread_mutex_lock(&team->mutex);
  pthread_cond_signal(&team->done);
  pthread_mutex_unlock(&team->mutex);
}

static void *thread_main(void *self) {
  const worker *w = self;
  hri_team *team = w->team;
  uint64_t seen = 0;
  (void)hri_float_enter(); /* not as it is in the host's thread that began this one */
  for (;;) {
    uint64_t state;
    await_loop(team, seen);
    state = seen = atomic_load(&team->state);
    if (state == STOP) return NULL;
    if (!join(team, &state)) continue;
    work(team, w->thread);
    leave(team);
  }
}

/* ---- loops ---- */

/* Deals `chunks` out in even shares, in order. */
static void deal(hri_team *team, int64_t chunks) {
  for (int k = 0; k < team->running; k++) {
    atomic_store_explicit(&team->shares[k].next, chunks * k / team->running, memory_order_relaxed);
    team->shares[k].end = chunks * (k + 1) / team->running;
  }
}

static void publish(hri_team *team) {
  uint64_t state = atomic_load(&team->state);
  assert((state & (INSIDE | OPEN)) == 0); /* nobody reads the loop that was filled in */
  state += LOOP;
  if (state >> 33 == STOP >> 33) state = LOOP;
  atomic_store(&team->state, state | OPEN);
  if (atomic_load(&team->sleepers) == 0) return;
  pthread_mutex_lock(&team->mutex);
  pthread_cond_broadcast(&team->work);
  pthread_mutex_unlock(&team->mutex);
}

static bool alone(hri_team *team, int64_t count, int64_t grain) {
  return !team || team->running == 1 || count <= grain ||
         team->forks != atomic_load_explicit(&forks, memory_order_relaxed) ||
         atomic_exchange_explicit(&team->busy, true, memory_order_acquire);
}

static void together(hri_team *team, int64_t count, int64_t grain, hri_team_body *body, void *context) {
  const int64_t chunk = count / ((int64_t)team->running * CHUNKS_PER_THREAD);
  team->chunk = chunk > grain ? chunk : grain;
  team->count = count;
  team->body = body;
  team->context = context;
  deal(team, (count - 1) / team->chunk + 1);
  publish(team);
  work(team, 0);
  atomic_fetch_and(&team->state, ~OPEN);
  await_end(team);
  atomic_store_explicit(&team->busy, false, memory_order_release);
}

void hri_team_each(hri_team *team, int64_t count, int64_t grain, hri_team_body *body, void *context) {
  hri_float_env before;
  assert(grain >= 1);
  if (count <= 0) return;
  before = hri_float_enter();
  if (alone(team, count, grain)) body(context, 0, count, 0);
  else together(team, count, grain, body, context);
  hri_float_leave(before);
}

typedef struct queue {
  hri_team_body *body;
  void *context;
  int64_t count;
  _Atomic int64_t next;
} queue;

/* One of these items a thread is enough; whoever takes a second one finds the queue empty. */
static void take_in_order(void *context, int64_t begin, int64_t end, int thread) {
  queue *q = context;
  (void)begin, (void)end;
  for (;;) {
    int64_t item = atomic_fetch_add_explicit(&q->next, 1, memory_order_relaxed);
    if (item >= q->count) break;
    q->body(q->context, item, item + 1, thread);
  }
}

void hri_team_in_order(hri_team *team, int64_t count, hri_team_body *body, void *context) {
  queue q = {.body = body, .context = context, .count = count};
  int threads = hri_team_threads(team);
  hri_team_each(team, count < threads ? count : threads, 1, take_in_order, &q);
}

/* ---- life ---- */

int hri_team_threads(const hri_team *team) { return team ? team->threads : 1; }

uint64_t hri_team_start_bytes(const hri_team *team) {
  return (uint64_t)(team->threads - team->running) *
         (stack_bytes + (uint64_t)sysconf(_SC_PAGESIZE)) /* with its guard page */;
}

hr_status hri_team_create(uint32_t threads, hri_team **out, hr_error *error) {
  hri_team *team = hri_alloc_zero(1, sizeof *team);
  assert(threads >= 1);
  *out = NULL;
  if (!team) return hri_fail_memory(error, sizeof *team, "the team");
  team->threads = (int)threads;
  team->running = 1;
  team->forks = atomic_load(&forks);
  (void)pthread_once(&prepared, prepare);
  (void)pthread_mutex_init(&team->mutex, NULL);
  (void)pthread_cond_init(&team->work, NULL);
  (void)pthread_cond_init(&team->done, NULL);
  team->shares = hri_alloc_zero(threads, sizeof *team->shares);
  team->workers = hri_alloc_zero(threads, sizeof *team->workers);
  if (!team->shares || !team->workers) {
    hri_team_destroy(team);
    return hri_fail_memory(error, threads * (sizeof *team->shares + sizeof *team->workers), "the team");
  }
  *out = team;
  return HR_OK;
}

/* The processors that this process may use, 0 when the system does not say. */
static int processors(void) {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? (int)online : 0;
}

/* Ends the first `count` workers. */
static void stop(hri_team *team, int count) {
  atomic_store(&team->state, STOP);
  pthread_mutex_lock(&team->mutex);
  pthread_cond_broadcast(&team->work);
  pthread_mutex_unlock(&team->mutex);
  for (int k = 1; k < count; k++) (void)pthread_join(team->workers[k].id, NULL);
  atomic_store(&team->state, 0);
  team->running = 1;
}

/* How many threads there are with the caller; less than wanted: *reason says why. */
static int start_workers(hri_team *team, int *reason) {
  pthread_attr_t attributes;
  sigset_t all, before;
  int made = 1;
  if ((*reason = pthread_attr_init(&attributes)) != 0) return made;
  (void)pthread_attr_setstacksize(&attributes, stack_bytes);
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* inherited: the host's handlers run in the host's threads */
  for (; made < team->threads; made++) {
    worker *w = &team->workers[made];
    *w = (worker){.team = team, .thread = made};
    if ((*reason = pthread_create(&w->id, &attributes, thread_main, w)) != 0) break;
  }
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  (void)pthread_attr_destroy(&attributes);
  return made;
}

hr_status hri_team_start(hri_team *team, hr_error *error) {
  char text[128];
  int made, reason = 0, cpus = processors();
  hr_status status;
  if (team->running == team->threads) return HR_OK;
  team->forks = atomic_load(&forks); /* threads that begin now are this process's, whatever it came out of */
  team->spin_ns = cpus && cpus < team->threads ? 0 : HRI_TEAM_SPIN_NS; /* who looks would keep others from working */
  made = start_workers(team, &reason);
  if (made == team->threads) {
    team->running = made;
    return HR_OK;
  }
  stop(team, made);
  status = hri_fail(error, HR_ERROR_BUDGET, "the system refused thread %d of %d: %s", made + 1, team->threads,
                    strerror_r(reason, text, sizeof text));
  return hri_hint(
      error, status,
      "give fewer --threads, or raise the limit of processes (ulimit -u, pids.max of the control group) or of "
      "the address space (ulimit -v)");
}

void hri_team_destroy(hri_team *team) {
  if (!team) return;
  if (team->forks == atomic_load(&forks)) { /* in a child of a fork there are neither threads nor locks to rely on */
    if (team->running > 1) stop(team, team->running);
    (void)pthread_cond_destroy(&team->done);
    (void)pthread_cond_destroy(&team->work);
    (void)pthread_mutex_destroy(&team->mutex);
  }
  hri_free(team->workers);
  hri_free(team->shares);
  hri_free(team);
}
