/* How well rates that one training run saw predict another job, on times that were measured once (seen.txt): what a watch
 * makes of the nodes of one job is held against the nodes of all others. Nothing is timed or run here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/field.h>
#include <headroom/plan.h>

#include "device/host.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "support/scratch.h"
#include "train/rates.h"

enum { JOBS = 16, KEYS = 80, KEY = 96 };

typedef struct measured {
  char name[48], rank[24];
  hr_precision precision;
  double step_seconds;
  char keys[KEYS][KEY];
  double seconds[KEYS];
  size_t key_count;
  hr_plan *plan;
  hr_device_rates rates; /* that a run of it leaves */
} measured;

static measured jobs[JOBS];
static size_t job_count;
static const char *directory;

/* ---- reading ---- */

static void set(hr_job *job, const char *name, const char *text) {
  hr_error error = {0};
  if (hr_job_set(job, name, text, &error) != HR_OK) fail_msg("%s %s: %s", name, text, error.message);
}

/* The processor that was measured, whatever this one is; what it computes with does not change the nodes. */
static void describe(hr_device *d) {
  memset(&d->rates, 0, sizeof d->rates);
  d->flops_fp32 = 258e9;
  d->flops_bf16 = 516e9;
  d->rated_threads = 1;
  d->memory_bytes_per_second = 60e9;
  d->node_seconds = 1e-6;
}

static void plan_job(measured *m, const char *model, const char *rows, const char *tokens, const char *precision,
                     const char *rank) {
  hr_error error = {0};
  hr_job job;
  hr_job_init(&job);
  assert_int_equal(hr_model_open(model, &job.model, &error), HR_OK);
  assert_int_equal(hr_device_find("cpu", &job.device, &error), HR_OK);
  describe(&job.device);
  set(&job, "micro-batch", rows);
  set(&job, "seq", tokens);
  set(&job, "threads", "1");
  set(&job, "steps", "5");
  set(&job, "precision", precision);
  m->precision = job.precision;
  (void)snprintf(m->rank, sizeof m->rank, "r=%s", rank);
  if (strcmp(rank, "0") != 0) set(&job, "lora", m->rank);
  if (hr_job_finish(&job, &error) != HR_OK || hr_plan_create(&job, &m->plan, &error) != HR_OK)
    fail_msg("%s", error.message);
}

static void read_job(const char *line) {
  measured *m = &jobs[job_count];
  char model[48], rows[16], tokens[16], precision[16], rank[16];
  assert_true(job_count < JOBS);
  assert_int_equal(sscanf(line, "job %47s %47s %15s %15s %15s %15s %lf", m->name, model, rows, tokens, precision, rank,
                          &m->step_seconds),
                   7);
  plan_job(m, model, rows, tokens, precision, rank);
  job_count++;
}

static void read_node(const char *line) {
  measured *m = &jobs[job_count - 1];
  const char *space = strrchr(line, ' ');
  assert_true(job_count > 0 && space && space - line < KEY && m->key_count < KEYS);
  (void)snprintf(m->keys[m->key_count], KEY, "%.*s", (int)(space - line), line);
  m->seconds[m->key_count++] = atof(space) * 1e-6;
}

static int read_all(void **state) {
  FILE *file = fopen(HR_TEST_DATA "/unit/seen.txt", "r");
  char line[256];
  (void)state;
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    if (line[0] == '#') continue;
    if (strncmp(line, "job ", 4) == 0) read_job(line);
    else read_node(line);
  }
  assert_int_equal(fclose(file), 0);
  return 0;
}

/* ---- nodes ---- */

static void key_of(const hri_job *job, const hri_node *node, char key[KEY]) {
  size_t used = (size_t)snprintf(key, KEY, "%s", hri_op_name(node->op));
  uint32_t found = 0;
  for (uint32_t k = 0; k < node->operand_count && found < 2; k++) {
    const hri_operand o = hri_operands(job, node)[k];
    const hri_tensor *t = o.tensor == HRI_NONE ? NULL : &job->tensors.items[o.tensor];
    unsigned long long columns;
    if (!t || o.access == HRI_SCRATCH) continue;
    columns = t->stored[t->rank - 1];
    used += (size_t)snprintf(key + used, KEY - used, " %s:%llux%llu", hri_dtype_name(t->dtype),
                             (unsigned long long)hri_tensor_stored_elements(t) / columns, columns);
    found++;
  }
  for (; found < 2; found++) used += (size_t)snprintf(key + used, KEY - used, " -");
}

/* < 0: such a node was not measured: another instruction set packs other operands. */
static double seconds_of(const measured *m, const hri_node *node) {
  char key[KEY];
  key_of(&m->plan->job, node, key);
  for (size_t k = 0; k < m->key_count; k++)
    if (strcmp(m->keys[k], key) == 0) return m->seconds[k];
  return -1;
}

/* One step of it runs under the eyes of a watch. */
static bool step(const measured *m, hri_rate_watch *w) {
  const hri_program *p = &m->plan->job.programs[HRI_STEP];
  hri_rate_watch_begin_step(w);
  for (size_t at = 0; at < p->order.count; at++) {
    const double seconds = seconds_of(m, &m->plan->job.nodes.items[p->order.items[at]]);
    if (seconds >= 0) hri_rate_watch_node(w, &m->plan->job, p->order.items[at], seconds);
  }
  return hri_rate_watch_end_step(w, fmax(m->step_seconds, 0.2));
}

static void run(measured *m) {
  hri_rate_watch *w;
  hr_error error = {0};
  uint32_t count = 0;
  hri_host_set_root(directory); /* what others do on this machine is of no interest */
  assert_int_equal(hri_rate_watch_begin(m->plan, &w, &error), HR_OK);
  assert_non_null(w);
  while (!step(m, w)) assert_true(++count < 100);
  hri_host_set_root(NULL);
  assert_int_equal(hri_rate_watch_state(w), HRI_RATES_NEW);
  m->rates = *hri_rate_watch_rates(w);
  hri_rate_watch_end(w);
}

/* What is predicted of the nodes that were measured, by what they took. The measured ones are nearly all of the step. */
static double predicted(const measured *m, const hr_device_rates *rates) {
  const hri_program *p = &m->plan->job.programs[HRI_STEP];
  hr_device device = m->plan->spec.device;
  double taken = 0, told = 0;
  if (rates) device.rates = *rates;
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &m->plan->job.nodes.items[p->order.items[at]];
    const double seconds = seconds_of(m, node);
    if (seconds < 0) continue;
    taken += seconds;
    told += hri_node_seconds(&m->plan->job, node, &device);
  }
  if (fabs(taken / m->step_seconds - 1) > 0.07)
    fail_msg("%s: nodes took %g s of a step of %g s", m->name, taken, m->step_seconds);
  return told / taken;
}

/* ---- how far off ---- */

typedef struct errors {
  double all[JOBS * JOBS], worst;
  size_t count;
  const char *seen, *asked;
} errors;

static void add(errors *e, double share, const measured *seen, const measured *asked) {
  const double error = fabs(share - 1);
  if (error > e->worst) e->worst = error, e->seen = seen ? seen->name : "nothing", e->asked = asked->name;
  e->all[e->count++] = error;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void check(const char *what, errors *e, double median, double worst) {
  double middle;
  assert_true(e->count > 0);
  qsort(e->all, e->count, sizeof *e->all, ascending);
  middle = e->all[e->count / 2];
  print_message("%s: %zu pairs, median %.1f %%, worst %.1f %% (%s after %s)\n", what, e->count, middle * 100,
                e->worst * 100, e->asked, e->seen);
  if (middle > median || e->worst > worst) fail_msg("%s: over %g and %g", what, median, worst);
}

static void test_before_anything_was_seen(void **state) {
  errors e = {0};
  (void)state;
  for (size_t k = 0; k < job_count; k++) add(&e, predicted(&jobs[k], NULL), NULL, &jobs[k]);
  check("assumed", &e, 0.06, 0.1);
}

/* The job again, others of its type, and those of the other type. */
static void test_one_run_tells_of_other_sizes(void **state) {
  errors same = {0}, other = {0}, types = {0};
  (void)state;
  for (size_t x = 0; x < job_count; x++) {
    run(&jobs[x]);
    for (size_t y = 0; y < job_count; y++)
      add(x == y                                   ? &same
          : jobs[x].precision == jobs[y].precision ? &other
                                                   : &types,
          predicted(&jobs[y], &jobs[x].rates), &jobs[x], &jobs[y]);
  }
  check("the same job", &same, 0.01, 0.02);
  check("another job", &other, 0.05, 0.18);
  check("another type", &types, 0.06, 0.2);
}

/* A processor that is half or twice as fast as it is taken for: what was seen corrects that for all sizes. */
static void test_a_wrong_assumption_is_corrected(void **state) {
  static const double factors[][2] = {{0.5, 1}, {1, 0.5}, {2, 2}};
  (void)state;
  for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
    errors e = {0};
    for (size_t k = 0; k < job_count; k++) {
      jobs[k].plan->spec.device.flops_fp32 = 258e9 * factors[f][0];
      jobs[k].plan->spec.device.flops_bf16 = 516e9 * factors[f][0];
      jobs[k].plan->spec.device.memory_bytes_per_second = 60e9 * factors[f][1];
    }
    for (size_t x = 0; x < job_count; x++) {
      run(&jobs[x]);
      for (size_t y = 0; y < job_count; y++)
        if (jobs[x].precision == jobs[y].precision) add(&e, predicted(&jobs[y], &jobs[x].rates), &jobs[x], &jobs[y]);
    }
    check("a wrong assumption", &e, 0.05, 0.18);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_before_anything_was_seen),
                                     cmocka_unit_test(test_one_run_tells_of_other_sizes),
                                     cmocka_unit_test(test_a_wrong_assumption_is_corrected)};
  int failed;
  directory = scratch_make("seen");
  if (setenv("HEADROOM_CACHE", directory, 1) != 0) return 1;
  failed = cmocka_run_group_tests(tests, read_all, NULL);
  for (size_t k = 0; k < job_count; k++) hr_plan_destroy(jobs[k].plan);
  scratch_remove(directory);
  return failed;
}
