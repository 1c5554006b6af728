/* The library in a process that is not ours: one that has a team of OpenMP threads at work, and has set what OpenMP may do.
 * Training there, from inside parallel regions too and in a child of a fork, gives the weights of a process of its own; the
 * host's settings and threads stay as they were, and its loops go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include <headroom/train.h>

#include "support/fork.h"
#include "support/scratch.h"

enum { CALLERS = 3, HOST_THREADS = 4 };
static const char *work;

typedef struct weights {
  char *bytes; /* of final/model.safetensors */
  size_t count;
} weights;

/* Some steps of a small job by `threads`, in run directory `name`. No assertion, since it may be called in a parallel
 * region: NULL, or what went wrong. */
static const char *train(const char *name, uint32_t threads, weights *out) {
  static _Thread_local char said[300];
  char text[PATH_BYTES + 16], run[PATH_BYTES + 64], final[PATH_BYTES + 128];
  const char *paths[1] = {text};
  hr_run_options options = {.data_paths = paths, .data_path_count = 1, .out_directory = run};
  hr_run_result result;
  hr_job *job = malloc(sizeof *job);
  hr_error error = {0};
  hr_status status = HR_ERROR_MEMORY;
  (void)snprintf(text, sizeof text, "%s/text", work);
  (void)snprintf(run, sizeof run, "%s/%s", work, name);
  (void)snprintf(final, sizeof final, "%s/final/model.safetensors", run);
  *out = (weights){0};
  if (job) {
    hr_job_init(job);
    status = hr_model_open("micro-gpt2-bytes", &job->model, &error);
    if (status == HR_OK) status = hr_device_find("cpu", &job->device, &error);
    job->sequence_length = 64;
    job->micro_batch = 8;
    job->threads = threads;
    job->steps = 4;
    job->learning_rate = 1e-2;
    if (status == HR_OK) status = hr_job_finish(job, &error);
    if (status == HR_OK) status = hr_train(job, &options, &result, &error);
    free(job);
  }
  if (status == HR_OK) out->bytes = get_file(final, &out->count);
  (void)snprintf(said, sizeof said, "%s: %.250s", name, status == HR_OK ? "there are no weights" : error.message);
  return out->bytes ? NULL : said;
}

static bool same(const weights *a, const weights *b) {
  return a->bytes && b->bytes && a->count == b->count && memcmp(a->bytes, b->bytes, a->count) == 0;
}

static weights alone; /* by one thread, before anything of OpenMP ran */

static int setup(void **state) {
  const char *wrong;
  (void)state;
  work = scratch_make("host");
  put_words(path_of("%s/text", work), 20000, 3);
  wrong = train("alone", 1, &alone);
  if (wrong) fail_msg("%s", wrong);
  return 0;
}
static int teardown(void **state) {
  (void)state;
  free(alone.bytes);
  scratch_remove(work);
  return 0;
}

#if defined(_OPENMP)
/* What a host's own loop computes, by all its threads. */
static long host_loop(void) {
  long sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(HOST_THREADS)
  for (int i = 0; i < 100000; i++) sum += i % 7;
  return sum;
}

typedef struct settings {
  int threads, dynamic, levels, limit;
  omp_sched_t schedule;
  int chunk;
} settings;

static settings settings_now(void) {
  settings s = {omp_get_max_threads(), omp_get_dynamic(), omp_get_max_active_levels(), omp_get_thread_limit(), 0, 0};
  omp_get_schedule(&s.schedule, &s.chunk);
  return s;
}

static void assert_settings(const settings *s) {
  settings now = settings_now();
  assert_int_equal(now.threads, s->threads);
  assert_int_equal(now.dynamic, s->dynamic);
  assert_int_equal(now.levels, s->levels);
  assert_int_equal(now.limit, s->limit);
  assert_int_equal(now.schedule, s->schedule);
  assert_int_equal(now.chunk, s->chunk);
}

static int threads_now(void) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  assert_non_null(tasks);
  for (const struct dirent *task = readdir(tasks); task; task = readdir(tasks)) count += task->d_name[0] != '.';
  closedir(tasks);
  return count;
}

static void test_beside_a_host_s_team(void **state) {
  const long sum = host_loop();
  settings before;
  int threads;
  (void)state;
  omp_set_dynamic(0);
  omp_set_schedule(omp_sched_guided, 5);
  before = settings_now();
  threads = threads_now();
  assert_true(threads >= HOST_THREADS); /* its team waits, spinning at first */
  for (uint32_t team = 1; team <= 4; team++) {
    weights got;
    const char *wrong = train(path_of("beside-%u", team), team, &got);
    if (wrong) fail_msg("%s", wrong);
    assert_true(same(&got, &alone));
    free(got.bytes);
    assert_settings(&before);
    assert_int_equal(threads_now(), threads); /* ours ended, its did not */
    assert_int_equal(host_loop(), sum);
  }
}

static void test_inside_parallel_regions(void **state) {
  const char *wrong[CALLERS] = {0};
  weights got[CALLERS] = {{0}};
  settings before = settings_now();
  (void)state;
#pragma omp parallel for num_threads(CALLERS) schedule(static, 1)
  for (int k = 0; k < CALLERS; k++) {
    char name[32];
    (void)snprintf(name, sizeof name, "inside-%d", k);
    wrong[k] = train(name, 1 + (uint32_t)k, &got[k]); /* in memory of a thread of the pool, which stays */
  }
  for (int k = 0; k < CALLERS; k++) {
    if (wrong[k]) fail_msg("%s", wrong[k]);
    assert_true(same(&got[k], &alone));
    free(got[k].bytes);
  }
  assert_settings(&before);
}

static int train_forked(void *context) {
  weights got;
  (void)context;
  if (train("forked", 3, &got)) return 1;
  return same(&got, &alone) ? 0 : 2;
}

/* In the child none of the host's threads is left, and none of ours: a run starts its own. */
static void test_after_a_fork(void **state) {
  const long sum = host_loop();
  (void)state;
#if defined(__SANITIZE_THREAD__)
  skip(); /* it allows no threads after a fork */
#endif
  assert_int_equal(in_child(train_forked, NULL, 60), 0);
  assert_int_equal(host_loop(), sum);
}
#else
static void test_without_openmp(void **state) {
  (void)state;
  (void)same;
  print_message("skipped: this compiler has no OpenMP, so no host can be made\n");
  skip();
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
#if defined(_OPENMP)
      cmocka_unit_test(test_beside_a_host_s_team),
      cmocka_unit_test(test_inside_parallel_regions),
      cmocka_unit_test(test_after_a_fork),
#else
      cmocka_unit_test(test_without_openmp),
#endif
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
