/* --on-nonfinite skip, and --precision fp16, on real programs: a step whose loss or gradients are infinite or NaN leaves weights, their
 * 16-bit copies, master weights, optimizer states and the count of applied steps as they were, bit for bit, and the
 * steps behind it are those of a run that never saw it. Over every optimizer, precision, accumulation, with and without
 * clipping.
 *
 * How a step becomes bad here: 1/tokens, which scales every gradient and no loss, is infinite; a weight is infinite
 * while the step runs; a gradient is overwritten between two programs; a token of the data leads to an overflow
 * (trap_model.h). In fp16 the next scale is the one thing that a skipped step changes; it is put back before the steps
 * behind it are compared. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/rng.h"
#include "support/scratch.h"
#include "support/trap_model.h"

enum { SEQUENCE = 19, MICRO_BATCH = 2, SCALE = 256 /* of which no sound step here overflows */ };

typedef struct mode {
  const char *model;
  hr_optimizer optimizer;
  hr_precision precision;
  hr_moments moments;
  uint32_t accumulate;
  double clip;
  hr_on_nonfinite on_nonfinite;
  bool check;
  uint32_t growth_interval; /* 0: the default */
} mode;

static void must(hr_status status, const hr_error *error) {
  if (status != HR_OK) fail_msg("%s: %s (%s)", hr_status_name(status), error->message, error->hint);
}

static const char *words(const mode *m) {
  static char text[160];
  (void)snprintf(text, sizeof text, "%s, %s, %s, moments %s, accumulate %u, clip %g", m->model,
                 hr_optimizer_name(m->optimizer), hr_precision_name(m->precision), hr_moments_name(m->moments),
                 m->accumulate, m->clip);
  return text;
}

static void describe(const mode *m, hr_job *job) {
  hr_error error = {0};
  hr_job_init(job);
  must(hr_model_open(m->model, &job->model, &error), &error);
  must(hr_device_find("cpu", &job->device, &error), &error);
  job->sequence_length = SEQUENCE;
  job->micro_batch = MICRO_BATCH;
  job->accumulate = m->accumulate;
  job->threads = 1;
  job->optimizer = m->optimizer;
  job->precision = m->precision;
  job->moments = m->moments;
  job->weight_decay = 0.1;
  job->clip = m->clip;
  job->on_nonfinite = m->on_nonfinite;
  job->check = m->check;
  job->loss_scale = SCALE;
  if (m->precision != HR_PRECISION_FP16) job->loss_scale = 65536; /* it has none, and may not be given one */
  if (m->growth_interval) job->growth_interval = m->growth_interval;
  must(hr_job_finish(job, &error), &error);
}

static void open_session(const mode *m, hri_session *s) {
  hri_compile_options options = {.check_each = true};
  hr_error error = {0};
  hr_job job;
  memset(s, 0, sizeof *s);
  describe(m, &job);
  must(hri_session_plan(s, &job, &options, &error), &error);
  must(hri_session_load(s, NULL, NULL, &error), &error);
}

/* ---- steps ---- */

/* Rows of random bytes; `token`, when >= 0, is the very first of them. */
static void feed(const mode *m, hri_session *s, uint64_t step, int32_t token) {
  const hri_job *job = &s->plan->job;
  int32_t *ids = hri_executor_view(s->executor, job->input_ids),
          *targets = hri_executor_view(s->executor, job->input_targets),
          *positions = hri_executor_view(s->executor, job->input_positions),
          *starts = hri_executor_view(s->executor, job->input_doc_start);
  for (uint64_t at = 0; at < (uint64_t)m->accumulate * MICRO_BATCH * SEQUENCE; at++) {
    uint32_t word[4];
    hri_philox(9, step, at, word);
    ids[at] = (int32_t)(word[0] % 200);
    targets[at] = (int32_t)(word[1] % 200);
    positions[at] = (int32_t)(at % SEQUENCE);
    starts[at] = 0;
  }
  if (token >= 0) ids[0] = token;
}

static void run(hri_session *s, hri_program_kind kind) {
  hr_error error = {0};
  must(hri_executor_run(s->executor, kind, &error), &error);
}

static void put(hri_session *s, hri_id tensor, uint64_t index, float value) {
  hri_real_put(hri_executor_view(s->executor, tensor), (int64_t)index, value,
               hri_dtype_real(s->plan->job.tensors.items[tensor].dtype));
}

static float get(hri_session *s, hri_id tensor, uint64_t index) {
  return hri_real_get(hri_executor_view(s->executor, tensor), (int64_t)index,
                      hri_dtype_real(s->plan->job.tensors.items[tensor].dtype));
}

/* What is wrong with a step. */
typedef enum harm { NOTHING, GRADIENTS, ONE_GRADIENT, LOSS, HARM_COUNT } harm;

static void train_step(const mode *m, hri_session *s, uint64_t step, harm what, int32_t token) {
  const hri_param *last = &s->plan->job.params.items[s->plan->job.params.count - 1];
  const hri_param_range *last_whole = hri_param_whole(&s->plan->job, last);
  float kept = get(s, last->weight, 3);
  feed(m, s, step, token);
  HRI_CONTROL_SET(s->executor, step, (int64_t)step);
  HRI_CONTROL_SET(s->executor, learning_rate, 1e-2 / (double)(step + 1));
  HRI_CONTROL_SET(s->executor, inv_tokens,
                  what == GRADIENTS ? INFINITY : 1.0 / (double)(m->accumulate * MICRO_BATCH * SEQUENCE));
  HRI_CONTROL_SET(s->executor, clip_norm, s->plan->spec.clip);
  HRI_CONTROL_SET(s->executor, clip_scale, 1);
  HRI_CONTROL_SET(s->executor, loss_sum, 0);
  if (what == LOSS) put(s, last->weight, 3, INFINITY);
  if (m->accumulate == 1) run(s, HRI_STEP);
  else run(s, HRI_BEGIN);
  for (uint32_t k = 0; m->accumulate > 1 && k < m->accumulate; k++) {
    HRI_CONTROL_SET(s->executor, micro_index, k);
    run(s, HRI_MICRO);
    if (what == ONE_GRADIENT && k == 0) put(s, last_whole->gradient, 5, NAN);
  }
  if (m->accumulate > 1) run(s, HRI_UPDATE);
  if (what != LOSS) return;
  assert_true(isinf(get(s, last->weight, 3))); /* as it was, also in the step that read it */
  put(s, last->weight, 3, kept);
}

/* ---- what must stay: a copy of every byte that a later step reads ---- */

typedef struct copy {
  unsigned char *bytes;
  size_t count;
} copy;

static void take_tensor(const hri_session *s, hri_id tensor, copy *c) {
  uint64_t bytes;
  if (tensor == HRI_NONE) return;
  bytes = hri_tensor_bytes(&s->plan->job.tensors.items[tensor]);
  c->bytes = realloc(c->bytes, c->count + bytes);
  assert_non_null(c->bytes);
  memcpy(c->bytes + c->count, hri_executor_view(s->executor, tensor), bytes);
  c->count += bytes;
}

static copy take(const hri_session *s) {
  copy c = {0};
  for (size_t p = 0; p < s->plan->job.params.count; p++) {
    const hri_param *param = &s->plan->job.params.items[p];
    take_tensor(s, param->weight, &c);
    for (uint32_t r = 0; r < param->range_count; r++) {
      const hri_param_range *range = &s->plan->job.ranges.items[param->range_begin + r];
      take_tensor(s, range->master, &c);
      for (int k = 0; k < HRI_STATE_TENSORS; k++) take_tensor(s, range->state[k], &c);
    }
  }
  assert_true(c.count > 1000);
  return c;
}

static bool same(const copy *a, const copy *b) {
  return a->count == b->count && memcmp(a->bytes, b->bytes, a->count) == 0;
}

/* ---- copies ---- */

/* In fp16 what products read is the master, rounded to nearest: whatever updated it. */
static void copies_are_rounded_masters(hri_session *s) {
  const hri_job *job = &s->plan->job;
  uint64_t looked_at = 0;
  for (size_t r = 0; r < job->ranges.count; r++) {
    const hri_param_range *range = &job->ranges.items[r];
    for (uint64_t i = 0; range->master != HRI_NONE && i < hri_range_logical(job, range); i++, looked_at++)
      if (get(s, range->weight, i) != hri_f16_widen(hri_f16_round(get(s, range->master, i))))
        fail_msg("%s: the copy of element %llu", hri_name_get(job, job->params.items[range->param].key),
                 (unsigned long long)i);
  }
  assert_true(looked_at > 1000);
}

/* ---- a skipped step ---- */

/* Steps 0 and 1, a bad one in between or not, and step 2. */
static copy three_steps(const mode *m, harm what) {
  hri_session s;
  const hri_control *control;
  copy before, after;
  open_session(m, &s);
  control = hri_executor_control(s.executor);
  for (uint64_t step = 0; step < 2; step++) train_step(m, &s, step, NOTHING, -1);
  assert_true(control->found_inf == 0 && control->applied_steps == 2 && isfinite(control->grad_norm) &&
              control->grad_norm > 0);
  assert_true(m->clip > 0 || control->clip_scale == 1);
  before = take(&s);
  if (what != NOTHING) {
    train_step(m, &s, 7, what, -1);
    assert_int_equal(isfinite(control->loss_sum), what != LOSS);
    assert_int_equal(isfinite(control->grad_norm), 0);
    assert_true(control->found_inf == 1 && control->applied_steps == 2);
    after = take(&s);
    if (!same(&before, &after)) fail_msg("%s, harm %d: the skipped step changed something", words(m), (int)what);
    free(after.bytes);
    if (m->precision == HR_PRECISION_FP16) {
      assert_true(control->loss_scale == SCALE / 2 && control->growth_tracker == 0);
      HRI_CONTROL_SET(s.executor, loss_scale, SCALE);
    }
  }
  assert_true(control->loss_scale == (m->precision == HR_PRECISION_FP16 ? SCALE : 1));
  train_step(m, &s, 2, NOTHING, -1);
  assert_true(control->found_inf == 0 && control->applied_steps == 3);
  after = take(&s);
  assert_false(same(&before, &after)); /* and a step does change something */
  if (m->precision == HR_PRECISION_FP16) copies_are_rounded_masters(&s);
  free(before.bytes);
  hri_session_close(&s);
  return after;
}

static const struct {
  hr_precision precision;
  hr_moments moments;
} types[] = {{HR_PRECISION_FP32, HR_MOMENTS_FP32},
             {HR_PRECISION_BF16, HR_MOMENTS_FP32},
             {HR_PRECISION_BF16_PURE, HR_MOMENTS_FP32},
             {HR_PRECISION_BF16_PURE, HR_MOMENTS_BF16},
             {HR_PRECISION_FP16, HR_MOMENTS_FP32}};
enum { TYPES = sizeof types / sizeof *types };

/* Every optimizer x precision x accumulation x clip, in turn. */
static bool next_mode(mode *m, uint32_t *turn) {
  uint32_t k = (*turn)++;
  uint32_t each = HR_OPTIMIZER_COUNT * TYPES, rest = k / each;
  *m = (mode){.model = rest / 4 ? "micro-gpt2-bytes" : "micro-llama-bytes",
              .optimizer = (hr_optimizer)(k % HR_OPTIMIZER_COUNT),
              .precision = types[k / HR_OPTIMIZER_COUNT % TYPES].precision,
              .moments = types[k / HR_OPTIMIZER_COUNT % TYPES].moments,
              .accumulate = rest % 2 ? 3 : 1,
              .clip = rest / 2 % 2 ? 1.0 : 0,
              .on_nonfinite = HR_ON_NONFINITE_SKIP,
              .check = k % 5 == 0};
  return k < 8 * each;
}

static void a_skipped_step_leaves_no_trace(void **state) {
  mode m;
  (void)state;
  for (uint32_t turn = 0; next_mode(&m, &turn);) {
    copy whole = three_steps(&m, NOTHING);
    for (harm what = GRADIENTS; what < HARM_COUNT; what++) {
      copy with;
      if (what == ONE_GRADIENT && m.accumulate == 1) continue; /* a gradient of one program dies in it */
      with = three_steps(&m, what);
      if (!same(&whole, &with))
        fail_msg("%s, harm %d: the steps behind a skipped one are others", words(&m), (int)what);
      free(with.bytes);
    }
    free(whole.bytes);
  }
}

/* The comparison can fail: without skip the same step spoils the weights. */
static void a_step_that_is_not_skipped_spoils_the_weights(void **state) {
  mode m;
  (void)state;
  for (uint32_t turn = 0; next_mode(&m, &turn); turn += 6) {
    hri_session s;
    copy before, after;
    if (m.precision == HR_PRECISION_FP16) continue;
    m.on_nonfinite = HR_ON_NONFINITE_STOP;
    open_session(&m, &s);
    train_step(&m, &s, 0, NOTHING, -1);
    before = take(&s);
    train_step(&m, &s, 1, GRADIENTS, -1);
    after = take(&s);
    assert_false(same(&before, &after));
    assert_true(hri_executor_control(s.executor)->found_inf == 0); /* nobody looked */
    free(before.bytes);
    free(after.bytes);
    hri_session_close(&s);
  }
}

/* ---- one bad element, wherever it stands ---- */

static void expect_found(hri_session *s, hri_id gradient, uint64_t index, float value) {
  float kept = get(s, gradient, index);
  HRI_CONTROL_SET(s->executor, loss_scale, s->plan->spec.precision == HR_PRECISION_FP16 ? SCALE : 1);
  put(s, gradient, index, value);
  run(s, HRI_UPDATE);
  if (hri_executor_control(s->executor)->found_inf != 1)
    fail_msg("%g at element %llu of %s was not found", (double)value, (unsigned long long)index,
             hri_name_get(&s->plan->job, s->plan->job.tensors.items[gradient].key));
  put(s, gradient, index, kept);
}

static void find_bad_elements(hr_precision precision) {
  static const float values[] = {NAN, INFINITY, -INFINITY};
  mode m = {.model = "micro-llama-bytes",
            .accumulate = 2,
            .clip = 1,
            .precision = precision,
            .on_nonfinite = HR_ON_NONFINITE_SKIP};
  hri_session s;
  copy before, after;
  open_session(&m, &s);
  train_step(&m, &s, 0, NOTHING, -1);
  before = take(&s);
  for (size_t p = 0; p < s.plan->job.params.count; p++) {
    hri_id gradient = hri_param_whole(&s.plan->job, &s.plan->job.params.items[p])->gradient;
    uint64_t count = s.plan->job.params.items[p].elements, places[] = {0, 1, count / 2 | 1, count - 2, count - 1};
    for (size_t k = 0; k < sizeof places / sizeof *places; k++)
      for (size_t v = 0; v < 3; v++) expect_found(&s, gradient, places[k], values[v]);
    put(&s, gradient, 0, get(&s, gradient, 0) + 1e30f); /* large, and no overflow: its square is taken in fp64 */
  }
  HRI_CONTROL_SET(s.executor, loss_sum, NAN); /* sound gradients do not make up for the loss */
  run(&s, HRI_UPDATE);
  assert_true(hri_executor_control(s.executor)->found_inf == 1 &&
              isfinite(hri_executor_control(s.executor)->grad_norm));
  HRI_CONTROL_SET(s.executor, loss_sum, 0);
  after = take(&s);
  assert_true(same(&before, &after));
  run(&s, HRI_UPDATE);
  assert_true(hri_executor_control(s.executor)->found_inf == 0 &&
              hri_executor_control(s.executor)->grad_norm > 1e30 / SCALE);
  assert_int_equal(hri_executor_control(s.executor)->applied_steps, 2);
  free(before.bytes);
  free(after.bytes);
  hri_session_close(&s);
}

static void one_bad_element_of_any_parameter_is_found(void **state) {
  (void)state;
  find_bad_elements(HR_PRECISION_FP32);
  find_bad_elements(HR_PRECISION_FP16);
}

/* ---- torch.amp.GradScaler ---- */

/* As tests/parity/record_scaler.py has them. */
enum { SCALED_TENSORS = 3, SCALED_ELEMENTS = 8, SCALED_MICRO = 3 };

static float share_of(uint64_t step, uint64_t tensor, uint64_t micro, uint64_t element) {
  return (float)((int64_t)((step * 31 + tensor * 7 + micro * 13 + element * 5) % 17) - 8) / 16;
}

/* The first matrices of a model: they decay. */
static const hri_param_range *scaled_range(const hri_session *s, uint32_t tensor) {
  const hri_job *job = &s->plan->job;
  for (size_t p = 0; p < job->params.count; p++)
    if (job->tensors.items[job->params.items[p].weight].rank == 2 && tensor-- == 0)
      return hri_param_whole(job, &job->params.items[p]);
  fail_msg("the model has fewer matrices");
  return NULL;
}

/* A step of the real programs whose labels count for nothing, so that gradients are 0, and what is added to them. */
static void scaled_step(const mode *m, hri_session *s, uint64_t step, bool skipped, uint32_t bad) {
  static const float kinds[] = {INFINITY, -INFINITY, NAN};
  const float scale = (float)hri_executor_control(s->executor)->loss_scale;
  feed(m, s, step, -1);
  HRI_CONTROL_SET(s->executor, step, (int64_t)step);
  HRI_CONTROL_SET(s->executor, learning_rate, 1e-2);
  HRI_CONTROL_SET(s->executor, inv_tokens, 0);
  HRI_CONTROL_SET(s->executor, clip_norm, s->plan->spec.clip);
  HRI_CONTROL_SET(s->executor, loss_sum, 0);
  run(s, HRI_BEGIN);
  for (uint32_t micro = 0; micro < SCALED_MICRO; micro++) {
    HRI_CONTROL_SET(s->executor, micro_index, micro);
    run(s, HRI_MICRO);
    for (uint32_t t = 0; t < SCALED_TENSORS; t++) {
      hri_id gradient = scaled_range(s, t)->gradient;
      for (uint32_t e = 0; e < SCALED_ELEMENTS; e++)
        put(s, gradient, e, get(s, gradient, e) + share_of(step, t, micro, e) * scale);
      if (skipped && t == bad % SCALED_TENSORS && micro == bad / SCALED_TENSORS % SCALED_MICRO)
        put(s, gradient, bad % SCALED_ELEMENTS,
            get(s, gradient, bad % SCALED_ELEMENTS) + kinds[bad / (SCALED_TENSORS * SCALED_MICRO) % 3]);
    }
  }
  run(s, HRI_UPDATE);
}

static void read_floats(const char *text, float *out, size_t count) {
  assert_int_equal(strlen(text), 8 * count);
  for (size_t i = 0; i < 4 * count; i++) {
    unsigned value;
    assert_int_equal(sscanf(text + 2 * i, "%2x", &value), 1);
    ((unsigned char *)out)[i] = (unsigned char)value;
  }
}

/* The rounding of some operations of a step apart: torch multiplies the gradient by 1/scale and then by the clip factor,
 * and divides where our AdamW multiplies by a reciprocal. Steps add up. */
static void compare_weights(hri_session *s, const char *text, uint64_t step) {
  float want[SCALED_TENSORS * SCALED_ELEMENTS];
  read_floats(text, want, SCALED_TENSORS * SCALED_ELEMENTS);
  for (uint32_t t = 0; t < SCALED_TENSORS; t++) {
    const hri_param_range *range = scaled_range(s, t);
    for (uint32_t e = 0; e < SCALED_ELEMENTS; e++) {
      float got = get(s, range->master, e), expect = want[t * SCALED_ELEMENTS + e];
      if (!(fabsf(got - expect) <= 2e-7f * (float)(step + 1)))
        fail_msg("step %llu: weight %u of tensor %u is %.9g, torch has %.9g", (unsigned long long)step, e, t,
                 (double)got, (double)expect);
      assert_true(get(s, range->weight, e) == hri_f16_widen(hri_f16_round(got)));
    }
  }
}

static void compare_with_recorded(const hri_json *root, hri_session *s, const mode *m) {
  const hri_control *control = hri_executor_control(s->executor);
  hr_error error = {0};
  hri_json list;
  uint32_t bad = 0;
  int64_t applied = 0;
  must(hri_json_get_array(root, "steps", &list, &error), &error);
  for (uint64_t step = 0; step < hri_json_count(&list); step++) {
    hri_json item = hri_json_item(&list, step);
    bool skipped = json_is_true(json_object_get(item.value, "skipped"));
    copy before = take(s), after;
    scaled_step(m, s, step, skipped, bad);
    after = take(s);
    bad += skipped;
    applied += !skipped;
    assert_int_equal(same(&before, &after), skipped);
    assert_true(control->found_inf == skipped && control->applied_steps == applied);
    assert_true(control->loss_scale == json_number_value(json_object_get(item.value, "scale")));
    assert_int_equal(control->growth_tracker, json_integer_value(json_object_get(item.value, "tracker")));
    compare_weights(s, json_string_value(json_object_get(item.value, "weights")), step);
    free(before.bytes);
    free(after.bytes);
  }
  assert_true(bad >= SCALED_TENSORS * SCALED_MICRO * 3 && applied > 60); /* every tensor, micro-step and kind */
}

/* Where the scale meets the ends of fp32. */
static void compare_edges(const hri_json *root, hri_session *s) {
  hr_error error = {0};
  hri_json list;
  must(hri_json_get_array(root, "edges", &list, &error), &error);
  assert_true(hri_json_count(&list) > 4);
  for (uint64_t k = 0; k < 2 * hri_json_count(&list); k++) {
    hri_json item = hri_json_item(&list, k / 2);
    HRI_CONTROL_SET(s->executor, loss_scale, json_number_value(json_object_get(item.value, "scale")));
    HRI_CONTROL_SET(s->executor, growth_tracker, s->plan->spec.growth_interval - 1);
    HRI_CONTROL_SET(s->executor, loss_sum, k % 2 ? INFINITY : 0);
    run(s, HRI_BEGIN); /* gradients of 0 */
    run(s, HRI_UPDATE);
    assert_true(hri_executor_control(s->executor)->loss_scale ==
                json_number_value(json_object_get(item.value, k % 2 ? "overflow" : "sound")));
    assert_int_equal(hri_executor_control(s->executor)->growth_tracker, 0);
  }
}

static void scales_are_those_of_gradscaler(void **state) {
  mode m = {.model = "micro-llama-bytes",
            .accumulate = SCALED_MICRO,
            .clip = 1,
            .precision = HR_PRECISION_FP16,
            .growth_interval = 2};
  hri_session s;
  hri_json root = {0};
  hr_error error = {0};
  (void)state;
  must(hri_json_read(HR_TEST_DATA "/parity/optim/scaler.json", 1 << 20, &root, &error), &error);
  open_session(&m, &s);
  HRI_CONTROL_SET(s.executor, loss_scale, 65536);
  for (uint32_t t = 0; t < SCALED_TENSORS; t++)
    for (uint32_t e = 0; e < SCALED_ELEMENTS; e++) {
      float value = (float)((int)((t * SCALED_ELEMENTS + e) * 37 % 23) - 11) / 32;
      put(&s, scaled_range(&s, t)->master, e, value);
      put(&s, scaled_range(&s, t)->weight, e, value);
    }
  compare_with_recorded(&root, &s, &m);
  compare_edges(&root, &s);
  hri_session_close(&s);
  hri_json_deinit(&root);
}

/* ---- without a bad step ---- */

static copy plain_steps(const mode *m, double norms[3]) {
  hri_session s;
  copy c;
  open_session(m, &s);
  for (uint64_t step = 0; step < 3; step++) {
    train_step(m, &s, step, NOTHING, -1);
    norms[step] = hri_executor_control(s.executor)->grad_norm;
  }
  c = take(&s);
  hri_session_close(&s);
  return c;
}

static void skip_without_a_bad_step_has_the_bits_of_stop(void **state) {
  mode m;
  (void)state;
  for (uint32_t turn = 0; next_mode(&m, &turn);) {
    double norms[2][3];
    copy skip, stop;
    if (m.precision == HR_PRECISION_FP16) continue;
    skip = plain_steps(&m, norms[0]);
    m.on_nonfinite = HR_ON_NONFINITE_STOP;
    stop = plain_steps(&m, norms[1]);
    if (!same(&skip, &stop)) fail_msg("%s: other bits with skip", words(&m));
    for (int k = 0; k < 3; k++)
      assert_true(norms[0][k] > 0 && norms[1][k] == (m.clip > 0 ? norms[0][k] : 0)); /* no norm without clip and skip */
    free(skip.bytes);
    free(stop.bytes);
  }
}

/* ---- what it costs ---- */

static uint64_t partial_bytes(const hri_job *job) {
  for (size_t s = 0; s < job->storages.count; s++)
    if (strcmp(hri_name_get(job, job->storages.items[s].key), "gradient.square_sums") == 0)
      return job->storages.items[s].bytes;
  return 0;
}

static uint32_t count_ops(const hri_job *job, hri_op op) {
  uint32_t count = 0;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    for (size_t at = 0; at < job->programs[kind].order.count; at++)
      count += job->nodes.items[job->programs[kind].order.items[at]].op == op;
  return count;
}

static void the_norm_without_a_clip_is_in_the_plan(void **state) {
  (void)state;
  for (uint32_t k = 0; k < 8; k++) {
    mode m = {.model = "micro-gpt2-bytes",
              .accumulate = k & 1 ? 2 : 1,
              .clip = k & 2 ? 1 : 0,
              .on_nonfinite = (hr_on_nonfinite)(k >> 2)};
    bool norm = m.clip > 0 || m.on_nonfinite == HR_ON_NONFINITE_SKIP;
    uint64_t want = 0;
    hr_error error = {0};
    hr_plan *plan;
    hr_job job;
    describe(&m, &job);
    must(hr_plan_create(&job, &plan, &error), &error);
    for (size_t p = 0; p < plan->job.params.count; p++)
      want += (plan->job.params.items[p].elements + HRI_NORM_BLOCK - 1) / HRI_NORM_BLOCK * sizeof(double);
    assert_int_equal(partial_bytes(&plan->job), norm ? want : 0);
    assert_int_equal(count_ops(&plan->job, HRI_OP_SQUARE_NORM), !norm              ? 0
                                                                : m.accumulate > 1 ? plan->job.segments.count
                                                                                   : plan->job.params.count);
    assert_int_equal(count_ops(&plan->job, HRI_OP_FOUND_INF), m.on_nonfinite);
    hr_plan_destroy(plan);
  }
}

/* ---- end to end: a model directory of finite weights, and one token ---- */

/* The row of 1e38, which is no number of fp16. */
static void fp16_refuses(const mode *m) {
  hri_session s = {0};
  hr_error error = {0};
  hr_job job;
  describe(m, &job);
  must(hri_session_plan(&s, &job, NULL, &error), &error);
  assert_int_equal(hri_session_load(&s, NULL, NULL, &error), HR_ERROR_INPUT);
  if (!strstr(error.message, "token_embedding.weight") || !strstr(error.message, "65504") ||
      !strstr(error.hint, "--precision bf16"))
    fail_msg("%s (%s)", error.message, error.hint);
  hri_session_close(&s);
}

static void a_token_that_overflows_is_skipped(void **state) {
  const char *directory = scratch_make("skip");
  enum { TRAP = 250 };
  (void)state;
  make_trap_model(directory, TRAP);
  for (size_t t = 0; t < TYPES; t++) {
    mode m = {.model = directory,
              .accumulate = t % 2 ? 2 : 1,
              .clip = 1,
              .precision = types[t].precision,
              .moments = types[t].moments,
              .on_nonfinite = HR_ON_NONFINITE_SKIP};
    hri_session s;
    const hri_control *control;
    if (m.precision == HR_PRECISION_FP16) {
      fp16_refuses(&m);
      continue;
    }
    open_session(&m, &s);
    control = hri_executor_control(s.executor);
    for (uint64_t step = 0; step < 6; step++) {
      bool trapped = step == 2 || step == 4;
      train_step(&m, &s, step, NOTHING, trapped ? TRAP : -1);
      assert_int_equal(isfinite(control->loss_sum), !trapped);
      assert_true(control->found_inf == trapped);
    }
    assert_int_equal(control->applied_steps, 4);
    hri_session_close(&s);
  }
  scratch_remove(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_skipped_step_leaves_no_trace),
      cmocka_unit_test(a_step_that_is_not_skipped_spoils_the_weights),
      cmocka_unit_test(one_bad_element_of_any_parameter_is_found),
      cmocka_unit_test(scales_are_those_of_gradscaler),
      cmocka_unit_test(skip_without_a_bad_step_has_the_bits_of_stop),
      cmocka_unit_test(the_norm_without_a_clip_is_in_the_plan),
      cmocka_unit_test(a_token_that_overflows_is_skipped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
