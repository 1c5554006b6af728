/* What it costs to share a short loop: a team of ours, beside an OpenMP region where the compiler offers it, and beside
 * one thread that does all. On an idle machine and with as many other processes at work as the team has threads.
 *
 *   bench_team [threads [rounds]]     default 2 threads, 99 rounds
 *
 * A loop has one chunk for each thread; its work is said in the time that one thread takes for all of it. The ways take
 * turns within a round of some hundred loops each; figures are the mean of the best round, the mean of all rounds,
 * and the slowest loop. */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/team.h"

enum { MOST_THREADS = 64, MOST_ROUNDS = 9999, WAYS = 3 };

static double now_us(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* ---- work ---- */

/* Results, so that the work is done; a thread's own line each. */
static struct {
  volatile double value;
  char apart[64 - sizeof(double)];
} seen[MOST_THREADS];

static void work(int64_t steps, int thread) {
  double x = 1;
  for (int64_t k = 0; k < steps; k++) x = x * 0.999 + 1; /* a chain: each step waits for the one before */
  seen[thread].value = x;
}

static double steps_per_us(void) {
  double best = 0;
  for (int k = 0; k < 20; k++) {
    double begin = now_us(), rate;
    work(100000, 0);
    rate = 100000 / (now_us() - begin);
    best = rate > best ? rate : best;
  }
  return best;
}

static void chunks(void *context, int64_t begin, int64_t end, int thread) {
  for (int64_t k = begin; k < end; k++) work(*(const int64_t *)context, thread);
}

typedef void way(int threads, int64_t steps);
static void alone(int threads, int64_t steps) { hri_team_each(NULL, threads, 1, chunks, &steps); }
static void ours(int threads, int64_t steps) { hri_team_each(team_of(threads), threads, 1, chunks, &steps); }
static void openmp(int threads, int64_t steps) {
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static)
#endif
  for (int k = 0; k < threads; k++) work(steps, k);
}

/* ---- measuring ---- */

typedef struct figure {
  double best, sum, most;
} figure;

static void measure(figure *f, way *run, int threads, int64_t steps, int loops) {
  double begin = now_us(), last = begin, t;
  for (int k = 0; k < loops; k++, last = t) {
    run(threads, steps);
    t = now_us();
    if (t - last > f->most) f->most = t - last;
  }
  f->sum += (last - begin) / loops;
  if (f->best == 0 || (last - begin) / loops < f->best) f->best = (last - begin) / loops;
}

static void row(const char *name, double work_us, double rate, int threads, int rounds) {
  static way *const ways[WAYS] = {alone, ours, openmp};
  static figure figures[WAYS];
  int64_t steps = (int64_t)(work_us * rate / threads);
  for (int w = 0; w < WAYS; w++) figures[w] = (figure){0};
  for (int round = 0; round < rounds; round++)
    for (int w = 0; w < WAYS; w++) measure(&figures[w], ways[w], threads, steps, work_us > 50 ? 30 : 100);
  (void)printf("%-22s %5.0f us", name, work_us);
  for (int w = 0; w < WAYS; w++)
    (void)printf("  %8.2f %8.2f %8.0f", figures[w].best, figures[w].sum / rounds, figures[w].most);
  (void)printf("\n");
  (void)fflush(stdout);
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 2, rounds = argc > 2 ? atoi(argv[2]) : 99;
  double rate;
  pid_t others[MOST_THREADS];
  if (threads < 1 || threads > MOST_THREADS || rounds < 1 || rounds > MOST_ROUNDS) {
    (void)fprintf(stderr, "usage: bench_team [threads, at most %d [rounds, at most %d]]\n", MOST_THREADS, MOST_ROUNDS);
    return 2;
  }
  rate = steps_per_us();
  (void)printf("%d threads; us per loop: best, mean, slowest\n%-30s  %26s  %26s  %26s\n", threads, "", "one thread",
               "our team",
#ifdef _OPENMP
               "OpenMP"
#else
               "(no OpenMP: one thread)"
#endif
  );
  for (int busy = 0; busy < 2; busy++) {
    const char *name = busy ? "cores wanted by others" : "idle";
    for (int k = 0; busy && k < threads; k++)
      if ((others[k] = fork()) == 0)
        for (;;) work(1000000, 0);
    row(name, 0, rate, threads, rounds);
    row(name, 20, rate, threads, rounds);
    row(name, 200, rate, threads, rounds);
    for (int k = 0; busy && k < threads; k++) (void)kill(others[k], SIGKILL), (void)waitpid(others[k], NULL, 0);
  }
  return 0;
}
