/* One handler for every signal that asks the work at hand to stop: it notes when the first came and writes the words that
 * say so; the work looks between its steps.
 *
 * The neighbours may rely on this: the handler calls nothing that a signal may not interrupt and keeps errno, and of all
 * signals only Ctrl-C ever leaves at once. What stands here is one for the process: a second stop_begin only changes the
 * words. */
#include "cli/stop.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const long long AGAIN_NS = 500 * 1000 * 1000;

/* A signal handler may touch no atomic that is a lock underneath. */
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "long long is not always lock-free here");
static _Atomic long long asked_at; /* when the first request came, by the monotonic clock; 0: none did */
static const char *said;
static size_t said_bytes;

/* Only calls that are safe in a signal handler. */
static void on_signal(int number) {
  const int before = errno;
  struct timespec t = {.tv_nsec = 1};
  long long now, first = 0;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  now = (long long)t.tv_sec * 1000000000 + t.tv_nsec;
  if (!atomic_compare_exchange_strong(&asked_at, &first, now)) {
    if (number == SIGINT && now - first >= AGAIN_NS) _exit(130);
  } else if (said_bytes) {
    const ssize_t written = write(STDERR_FILENO, said, said_bytes);
    (void)written; /* where nobody listens, the stop counts all the same */
  }
  errno = before;
}

static bool was_asked(void *context) {
  (void)context;
  return atomic_load(&asked_at) != 0;
}

stop_test *stop_begin(const char *words, bool in_background) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGUSR1, SIGUSR2};
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;
  said = words ? words : isatty(STDERR_FILENO) ? "\n" : "";
  said_bytes = strlen(said);
  (void)sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if (sigaction(numbers[i], NULL, &old) != 0) continue;
    if (old.sa_handler != SIG_IGN || (numbers[i] == SIGINT && in_background))
      (void)sigaction(numbers[i], &action, NULL);
  }
  return was_asked;
}
