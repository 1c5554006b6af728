/* A few steps of a small job through the executor, on the CPU and on another backend: what both make of the same
 * weights and rows, and whether they agree.
 *
 * Who includes it says what the other backend's device is (steps_device), and has hri_backend_open choose by its
 * name. */
#ifndef HRI_TEST_STEPS_H
#define HRI_TEST_STEPS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "device/cpu.h"
#include "train/session.h"

/* Makes of the CPU's device that of the other backend. */
static void steps_device(hr_device *device);

static void must(hr_status status, const hr_error *error) {
  if (status != HR_OK) fail_msg("%s: %s (%s)", hr_status_name(status), error->message, error->hint);
}

enum { STEPS = 3, SEQUENCE = 12, MICRO_BATCH = 2, MOST = 1 << 20 };

typedef struct variant {
  const char *model, *recompute, *lora;
  hr_optimizer optimizer;
  hr_precision precision;
  hr_quantize quantize;
  uint32_t accumulate;
  bool on_other, check, skip, in_backward;
  double
      bound; /* of the weights' difference, as a part of what training moved them by; 0: as rounding in the products */
  hri_compile_options compile;
} variant;

typedef struct outcome {
  double loss[STEPS], grad_norm;
  float *before, *after; /* all weights */
  size_t count;
  uint64_t host_bytes;
} outcome;

static void describe(const variant *v, hr_job *job) {
  hr_error error = {0};
  hr_job_init(job);
  must(hr_model_open(v->model, &job->model, &error), &error);
  hri_device_cpu(&job->device);
  if (v->on_other) steps_device(&job->device);
  job->model.layer_count = 2;
  job->sequence_length = SEQUENCE;
  job->micro_batch = MICRO_BATCH;
  job->accumulate = v->accumulate ? v->accumulate : 1;
  job->threads = 1;
  job->optimizer = v->optimizer;
  job->precision = v->precision;
  job->quantize = v->quantize;
  job->weight_packing = HR_WEIGHT_PACKING_OFF;
  job->learning_rate = v->optimizer == HR_OPTIMIZER_ADAMW ? 1e-3 : 0.1;
  job->clip = v->in_backward ? 0 : 0.5;
  job->check = v->check;
  job->update = v->in_backward ? HR_UPDATE_IN_BACKWARD : HR_UPDATE_AFTER;
  job->on_nonfinite = v->skip ? HR_ON_NONFINITE_SKIP : HR_ON_NONFINITE_STOP;
  job->lora = v->lora;
  if (v->recompute) must(hr_recompute_parse(v->recompute, &job->recompute, &error), &error);
  must(hr_job_finish(job, &error), &error);
}

/* ---- steps, through the executor ---- */

static void feed(hri_session *s, uint64_t step, uint32_t accumulate) {
  const hri_job *job = &s->plan->job;
  const hri_id inputs[4] = {job->input_ids, job->input_targets, job->input_positions, job->input_doc_start};
  hr_error error = {0};
  for (uint64_t row = 0; row < (uint64_t)accumulate * MICRO_BATCH; row++) {
    int32_t values[4][SEQUENCE];
    for (uint32_t t = 0; t < SEQUENCE; t++) {
      uint32_t word[4];
      hri_philox(3, step * 100 + row, t, word);
      values[0][t] = (int32_t)(word[0] % 200);
      values[1][t] = (int32_t)(word[1] % 200);
      values[2][t] = (int32_t)t;
      values[3][t] = 0;
    }
    for (int k = 0; k < 4; k++) { /* the memory is ours again at once */
      must(hri_executor_write(s->executor, inputs[k], row * sizeof values[k], values[k], sizeof values[k], &error),
           &error);
      memset(values[k], 0x7F, sizeof values[k]);
    }
  }
}

/* Queued as a whole; what it left comes with the mark. */
static void launch_step(hri_session *s, const variant *v, uint64_t step, hri_control *left, hri_mark *mark) {
  uint32_t accumulate = v->accumulate ? v->accumulate : 1;
  hr_error error = {0};
  feed(s, step, accumulate);
  HRI_CONTROL_SET(s->executor, step, (int64_t)step);
  HRI_CONTROL_SET(s->executor, learning_rate, s->plan->spec.learning_rate);
  HRI_CONTROL_SET(s->executor, inv_tokens, 1.0 / (accumulate * MICRO_BATCH * SEQUENCE));
  HRI_CONTROL_SET(s->executor, clip_norm, s->plan->spec.clip);
  HRI_CONTROL_SET(s->executor, clip_scale, 1);
  HRI_CONTROL_SET(s->executor, loss_sum, 0);
  HRI_CONTROL_SET(s->executor, micro_index, 0);
  must(hri_executor_launch(s->executor, accumulate == 1 ? HRI_STEP : HRI_BEGIN, &error), &error);
  for (uint32_t k = 0; accumulate > 1 && k < accumulate; k++) {
    HRI_CONTROL_SET(s->executor, micro_index, k);
    must(hri_executor_launch(s->executor, HRI_MICRO, &error), &error);
  }
  if (accumulate > 1) must(hri_executor_launch(s->executor, HRI_UPDATE, &error), &error);
  must(hri_executor_fetch(s->executor, left, mark, &error), &error);
}

/* Of all parameters but those that lie in codes, in fp32. */
static float *weights(hri_session *s, size_t *count) {
  const hri_job *job = &s->plan->job;
  float *all = malloc(MOST * sizeof *all), *read = malloc(MOST * sizeof *read);
  hr_error error = {0};
  *count = 0;
  assert_non_null(all);
  assert_non_null(read);
  for (size_t p = 0; p < job->params.count; p++) {
    const hri_param *param = &job->params.items[p];
    bool whole = param->range_count == 1 && hri_param_whole(job, param)->master != HRI_NONE;
    hri_id id = whole ? hri_moved_tensor(job, hri_param_whole(job, param), HRI_MOVED_WEIGHT) : param->weight;
    hri_real real = hri_dtype_real(job->tensors.items[id].dtype);
    bool split = whole && hri_range_split(job, hri_param_whole(job, param));
    if (param->codes != HRI_NONE) continue; /* frozen, and no longer there */
    assert_true(*count + param->elements <= MOST);
    must(hri_executor_read(s->executor, id, 0, read, param->elements * hri_real_bytes(real), &error), &error);
    for (uint64_t k = 0; k < param->elements; k++) all[*count + k] = hri_real_get(read, (int64_t)k, real);
    if (split)
      must(hri_executor_read(s->executor, hri_param_whole(job, param)->master, 0, read, param->elements * 2, &error),
           &error);
    for (uint64_t k = 0; split && k < param->elements; k++)
      all[*count + k] = hri_join(hri_bf16_round(all[*count + k]), ((const uint16_t *)read)[k]);
    *count += param->elements;
  }
  free(read);
  return all;
}

static outcome train(const variant *v) {
  hri_session s = {0};
  hri_control left[STEPS];
  hri_mark marks[STEPS];
  hr_job job;
  hr_error error = {0};
  outcome out = {0};
  describe(v, &job);
  must(hri_session_plan(&s, &job, &v->compile, &error), &error);
  must(hri_session_load(&s, NULL, NULL, &error), &error);
  out.before = weights(&s, &out.count);
  for (uint64_t step = 0; step < STEPS; step++) launch_step(&s, v, step, &left[step], &marks[step]);
  for (uint64_t step = 0; step < STEPS; step++) { /* all are launched: the host is a whole run ahead */
    must(hri_executor_wait(s.executor, marks[step], &error), &error);
    out.loss[step] = left[step].loss_sum * left[step].inv_tokens;
  }
  out.grad_norm = left[STEPS - 1].grad_norm;
  assert_int_equal(left[STEPS - 1].applied_steps, STEPS);
  out.after = weights(&s, &out.count);
  out.host_bytes = s.plan->info.tiers[HR_TIER_HOST].peak_bytes;
  {
    uint64_t reserved[HR_TIER_COUNT], planned[HR_TIER_COUNT];
    must(hri_session_compare(&s, reserved, planned, &error), &error);
  }
  hri_session_close(&s);
  return out;
}

static void drop(outcome *o) {
  free(o->before);
  free(o->after);
}

static double rms(const float *a, const float *b, size_t count) {
  double sum = 0;
  for (size_t k = 0; k < count; k++) sum += ((double)a[k] - b[k]) * ((double)a[k] - b[k]);
  return sqrt(sum / (double)count);
}

static bool same_bits(const outcome *a, const outcome *b) {
  return a->count == b->count && memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
         memcmp(&a->grad_norm, &b->grad_norm, sizeof a->grad_norm) == 0 &&
         memcmp(a->after, b->after, a->count * sizeof *a->after) == 0;
}

static void compare_with_cpu(variant v, const char *what) {
  bool codes = v.optimizer == HR_OPTIMIZER_ADAMW8BIT || v.optimizer == HR_OPTIMIZER_LION8BIT;
  bool wide = v.precision == HR_PRECISION_FP32 && !codes; /* a code is as coarse as bf16 */
  double loss_bound = wide ? 1e-6 : 1e-3, bound = v.bound > 0 ? v.bound : wide ? 1e-5 : 0.05, moved;
  outcome cpu, other;
  v.on_other = false;
  cpu = train(&v);
  v.on_other = true;
  other = train(&v);
  assert_int_equal(cpu.count, other.count);
  moved = rms(cpu.before, cpu.after, cpu.count);
  assert_true(moved > 0);
  if (v.lora) assert_true(rms(cpu.before, other.before, cpu.count) <= bound * moved); /* DoRA begins with sums */
  else
    assert_memory_equal(cpu.before, other.before,
                        cpu.count * sizeof(float)); /* loaded through windows, without an address */
  for (int k = 0; k < STEPS; k++)
    if (!(fabs(cpu.loss[k] - other.loss[k]) <= loss_bound * fabs(cpu.loss[k])))
      fail_msg("%s, %s: the loss of step %d is %.9g, and %.9g on the CPU", v.model, what, k, other.loss[k],
               cpu.loss[k]);
  if (!(rms(cpu.after, other.after, cpu.count) <= bound * moved))
    fail_msg("%s, %s: weights differ by %g (%g are allowed, training moved them by %g)", v.model, what,
             rms(cpu.after, other.after, cpu.count), bound * moved, moved);
  drop(&cpu);
  drop(&other);
}

/* Of two runs in the same arenas one is released: what it asked for is not handed over any more, what the other asked for is. */
static void a_release_keeps_reads_of_other_runs(void **state) {
  const variant v = {.model = "micro-gpt2-bytes", .optimizer = HR_OPTIMIZER_ADAMW, .on_other = true};
  hri_executor *beside;
  hri_control left, now, gone, untouched;
  hri_mark mark, other;
  hri_session s = {0};
  hr_job job;
  hr_error error = {0};
  (void)state;
  describe(&v, &job);
  must(hri_session_plan(&s, &job, &v.compile, &error), &error);
  must(hri_session_load(&s, NULL, NULL, &error), &error);
  must(hri_executor_create_beside(s.executor, &s.plan->job, &s.plan->placement, HRI_IN(HRI_STEP), &beside, &error),
       &error);
  launch_step(&s, &v, 0, &left, &mark);
  must(hri_executor_fetch(beside, &gone, &other, &error), &error);
  memset(&gone, 0x55, sizeof gone);
  memset(&untouched, 0x55, sizeof untouched);
  hri_executor_destroy(beside);
  must(hri_executor_wait(s.executor, mark, &error), &error);
  must(hri_executor_read(s.executor, s.plan->job.control, 0, &now, sizeof now, &error), &error);
  assert_true(isfinite(now.loss_sum) && now.loss_sum > 0);
  assert_memory_equal(&left, &now, sizeof now);
  assert_memory_equal(&gone, &untouched, sizeof gone);
  hri_session_close(&s);
}

#endif
