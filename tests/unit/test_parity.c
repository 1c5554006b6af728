/* The whole engine against recorded PyTorch results (tests/parity/README.md): rows, loss, gradients, ten optimizer
 * steps, logits, greedy text, for six models. Truth is a double reference; a result passes when its error is at most 4
 * times that of plain float32 PyTorch, or with --precision bf16 and bf16-pure of PyTorch's bfloat16. No tolerance is
 * stated here.
 *
 * Gradients are those that the optimizer nodes read: a hook behind each of these nodes copies its gradient operand, so
 * that one way of looking serves a fused step, accumulation and updates inside the backward. Final weights are compared
 * as the save program writes them, under Hugging Face names.
 *
 * HEADROOM_TEST_QUICK=1: variants on two models instead of six. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <headroom/train.h>

#include "backend/cpu/isa.h"
#include "support/parity_case.h"
#include "support/scratch.h"
#include "train/schedule.h"
#include "train/session.h"

/* ---- jobs ---- */

/* What a test changes of the plain job. Zero is the plain job. */
typedef struct variant {
  const char *name;
  const char *recompute; /* as --recompute takes it */
  uint32_t loss_chunk;   /* 0: all at once */
  hr_attention attention;
  hr_update update;
  uint32_t threads; /* 0: 1 */
  hr_precision precision;
  hr_moments moments;
  bool check;      /* dead storage is poisoned, guard zones are verified */
  const char *isa; /* HEADROOM_ISA */
  hri_compile_options options;
} variant;

static const variant plain = {.name = "plain"};

/* Where expected.json says how far PyTorch is off (README.md): float32; a bfloat16 model with fp32 masters; the same
 * without.
 * Without optimizer steps the last two are one and the same. */
static const char *yardstick(hr_precision precision, bool trained) {
  if (precision == HR_PRECISION_FP32) return "fp32_error";
  return trained && precision != HR_PRECISION_BF16_PURE ? "bf16_error_masters" : "bf16_error_plain";
}

/* fp16 rounds by an eighth of what bf16 does (11 bits, 8). Before the first step it is held to a quarter of bf16's error;
 * behind steps of AdamW, where noise decides the sign of what is near 0 and errors do not go with roundings, to all of it
 * (kernels compiled at another level of optimization, whose sums round otherwise, reached 59 % of bf16's tolerance). */
static double in_fp16(double bf16_error, bool trained) { return bf16_error / (trained ? 1 : 4); }

/* The number at `path`/<yardstick>. */
static double first_error(const parity_case *c, const variant *v, const char *path) {
  char whole[200];
  (void)snprintf(whole, sizeof whole, "%s/%s", path, yardstick(v->precision, false));
  if (v->precision == HR_PRECISION_FP16) return in_fp16(parity_number(c, whole, -1), false);
  return parity_number(c, whole, -1);
}

/* The number at runs/`run`/`what`_<yardstick>, or with index -1 at runs/`run`/`what`/<yardstick>. */
static double trained_error(const parity_case *c, const variant *v, const char *run, const char *what, int64_t index) {
  char whole[240];
  (void)snprintf(whole, sizeof whole, "runs/%s/%s%c%s", run, what, index < 0 ? '/' : '_',
                 yardstick(v->precision, true));
  if (v->precision == HR_PRECISION_FP16) return in_fp16(parity_number(c, whole, index), true);
  return parity_number(c, whole, index);
}

static void base_job(const parity_case *c, hr_job *job) {
  hr_job_init(job);
  job->model = c->model;
  HOLDS(hr_device_find("cpu", &job->device, error));
  job->sequence_length = c->sequence;
  job->schedule = HR_SCHEDULE_CONSTANT;
  job->loss_chunk = HR_LOSS_CHUNK_OFF;
  job->threads = 1;
  job->steps = 1;
  job->given = HR_GIVEN_CLIP;
}

static double run_number(const parity_case *c, const char *run, const char *key, int64_t index) {
  char path[128];
  (void)snprintf(path, sizeof path, "runs/%s/%s", run, key);
  return parity_number(c, path, index);
}

static bool run_has(const parity_case *c, const char *run, const char *key) {
  char path[128];
  hri_json at;
  (void)snprintf(path, sizeof path, "runs/%s", run);
  at = parity_at(c, path);
  return hri_json_has(&at, key);
}

/* The job of a recorded run, with what `v` changes of it. */
static void run_job(const parity_case *c, const char *run, const variant *v, hr_job *job) {
  char path[128];
  hri_json at;
  const char *optimizer;
  base_job(c, job);
  (void)snprintf(path, sizeof path, "runs/%s", run);
  at = parity_at(c, path);
  HOLDS(hri_json_get_string(&at, "optimizer", &optimizer, error));
  job->optimizer = strcmp(optimizer, "adamw") == 0 ? HR_OPTIMIZER_ADAMW
                   : strcmp(optimizer, "sgd") == 0 ? HR_OPTIMIZER_SGD
                                                   : HR_OPTIMIZER_MOMENTUM;
  assert_string_equal(hr_optimizer_name(job->optimizer), optimizer);
  job->micro_batch = (uint32_t)run_number(c, run, "micro_batch", -1);
  job->accumulate = (uint32_t)run_number(c, run, "accumulate", -1);
  job->steps = (uint64_t)run_number(c, run, "steps", -1);
  job->learning_rate = run_number(c, run, "learning_rate", -1);
  job->weight_decay = run_number(c, run, "weight_decay", -1);
  job->clip = run_has(c, run, "clip") ? run_number(c, run, "clip", -1) : 0;
  if (job->optimizer == HR_OPTIMIZER_ADAMW) {
    job->beta1 = run_number(c, run, "betas", 0);
    job->beta2 = run_number(c, run, "betas", 1);
    job->epsilon = run_number(c, run, "eps", -1);
  } else {
    job->momentum = run_number(c, run, "momentum", -1);
  }
  if (v->recompute) HOLDS(hr_recompute_parse(v->recompute, &job->recompute, error));
  if (v->loss_chunk) job->loss_chunk = v->loss_chunk;
  if (v->threads) job->threads = v->threads;
  job->attention = v->attention;
  job->update = v->update;
  job->precision = v->precision;
  if (v->precision == HR_PRECISION_FP16) job->loss_scale = 1024; /* no step overflows, and little is lost below */
  job->moments = v->moments;
  job->check = v->check;
  HOLDS(hr_job_finish(job, error));
}

/* ---- the engine under test ---- */

typedef struct engine {
  parity_case *c;
  hri_session session;
  hri_dataset *data;
  float **gradients;  /* per parameter: what its optimizer node read last; stored elements */
  uint32_t *captured; /* per parameter: how often */
  uint64_t step;
} engine;

static bool is_update(uint16_t op) { return hri_optimizer_of(op) != HRI_NONE; }

/* The first `count` elements of a tensor in the arena, widened. */
static void widened(const engine *e, hri_id id, uint64_t count, float *to) {
  const void *from = hri_executor_view(e->session.executor, id);
  hri_real real = hri_dtype_real(e->session.plan->job.tensors.items[id].dtype);
  for (uint64_t i = 0; i < count; i++) to[i] = hri_real_get(from, (int64_t)i, real);
}

static void capture(void *context, const hri_job *job, hri_id id, double seconds) {
  engine *e = context;
  const hri_node *node = &job->nodes.items[id];
  (void)seconds;
  if (!is_update(node->op)) return;
  for (uint32_t k = 0; k < hri_piece_count(job, hri_operands(job, node)[0].tensor); k++) {
    const hri_param_range *range = &job->ranges.items[job->laid_out.items[node->attr.i[1] + k]];
    assert_int_equal(hri_piece(job, hri_operands(job, node)[0].tensor, k), range->gradient);
    widened(e, range->gradient, range->elements, e->gradients[range->param]);
    for (uint64_t i = 0; e->session.plan->spec.precision == HR_PRECISION_FP16 && i < range->elements; i++)
      e->gradients[range->param][i] /= (float)e->session.plan->spec.loss_scale; /* a power of two */
    e->captured[range->param]++;
  }
}

static hr_status fill(void *context, uint32_t param, uint32_t what, const hri_window *tensor, void *staging,
                      uint64_t bytes, hr_error *error) {
  engine *e = context;
  return hri_source_fill(&e->session.source, param, what, tensor, staging, bytes, error);
}

static hr_status sink(void *context, uint32_t param, uint32_t what, const hri_window *tensor, void *staging,
                      uint64_t bytes, hr_error *error) {
  engine *e = context;
  return hri_sink_write(e->session.sink, param, what, tensor, staging, bytes, error);
}

/* hri_session_load with a hook in the executor. */
static void load_with_hook(engine *e) {
  hri_session *s = &e->session;
  hri_executor_options options = {.check = s->plan->spec.check, .after_node = capture, .context = e};
  const hri_control control = {.loss_scale =
                                   s->plan->spec.precision == HR_PRECISION_FP16 ? s->plan->spec.loss_scale : 1,
                               .clip_scale = 1};
  HOLDS(hri_source_open(&s->source, &s->plan->spec.model, &s->plan->job, &s->plan->backend->elements, NULL, NULL,
                        s->plan->spec.seed, error));
  s->transfer = (hri_transfer){.context = e, .fill = fill, .sink = sink};
  HOLDS(hri_executor_create(&s->plan->job, &s->plan->placement, s->plan->backend, &s->transfer, &options, &s->executor,
                            error));
  hri_executor_control_set(s->executor, 0, &control, sizeof control);
  HOLDS(hri_executor_run(s->executor, HRI_LOAD, error));
  hri_source_close(&s->source);
}

static void engine_open(engine *e, parity_case *c, const hr_job *job, const hri_compile_options *options, bool hook) {
  hri_compile_options made = *options;
  const char *paths[1] = {c->jsonl};
  memset(e, 0, sizeof *e);
  e->c = c;
  made.check_each = true;
  HOLDS(hri_session_plan(&e->session, job, &made, error));
  HOLDS(hri_session_data(&e->session, paths, 1, &(hr_data_options){0}, NULL, NULL, &e->data, error));
  if (hook) load_with_hook(e);
  else HOLDS(hri_session_load(&e->session, NULL, NULL, error));
  e->gradients = parity_buffer(c, e->session.plan->job.params.count * sizeof *e->gradients);
  e->captured = parity_buffer(c, e->session.plan->job.params.count * sizeof *e->captured);
  for (uint32_t p = 0; p < e->session.plan->job.params.count; p++)
    e->gradients[p] = parity_buffer(c, e->session.plan->job.params.items[p].elements * 4);
}

static void engine_close(engine *e) {
  hri_dataset_destroy(e->data);
  hri_session_close(&e->session);
}

/* The rows of the next step, and the control block as the train loop sets it. Returns the labels that count. */
static uint64_t feed(engine *e) {
  const hr_job *job = &e->session.plan->spec;
  const hri_job *made = &e->session.plan->job;
  hri_executor *x = e->session.executor;
  int32_t *ids = hri_executor_view(x, made->input_ids), *targets = hri_executor_view(x, made->input_targets),
          *positions = hri_executor_view(x, made->input_positions),
          *doc_start = hri_executor_view(x, made->input_doc_start);
  uint64_t rows = (uint64_t)job->micro_batch * job->accumulate, counted = 0, one;
  for (uint64_t r = 0; r < rows; r++) {
    uint64_t at = r * job->sequence_length;
    HOLDS(hri_dataset_row(e->data, e->step * rows + r, ids + at, targets + at, positions + at, doc_start + at, &one,
                          error));
    counted += one;
  }
  HRI_CONTROL_SET(x, step, (int64_t)e->step);
  HRI_CONTROL_SET(x, learning_rate, job->learning_rate * hri_schedule_factor(job, e->step, job->steps));
  HRI_CONTROL_SET(x, inv_tokens, 1.0 / (double)counted);
  HRI_CONTROL_SET(x, clip_norm, job->clip);
  HRI_CONTROL_SET(x, clip_scale, 1);
  HRI_CONTROL_SET(x, loss_sum, 0);
  return counted;
}

/* One optimizer step; the loss before it. */
static double step(engine *e) {
  hri_executor *x = e->session.executor;
  const hri_control *control = hri_executor_control(x);
  uint64_t counted = feed(e);
  uint32_t accumulate = e->session.plan->spec.accumulate;
  if (accumulate == 1) {
    HRI_CONTROL_SET(x, micro_index, 0);
    HOLDS(hri_executor_run(x, HRI_STEP, error));
  } else {
    HOLDS(hri_executor_run(x, HRI_BEGIN, error));
    for (uint32_t k = 0; k < accumulate; k++) {
      HRI_CONTROL_SET(x, micro_index, k);
      HRI_CONTROL_SET(x, row_base, (int64_t)k * e->session.plan->spec.micro_batch);
      HOLDS(hri_executor_run(x, HRI_MICRO, error));
    }
    HOLDS(hri_executor_run(x, HRI_UPDATE, error));
  }
  e->step++;
  return control->loss_sum / (double)counted;
}

/* ---- comparisons ---- */

/* Every gradient that the last step used, tensor by tensor of the Hugging Face files. */
static void check_gradients(engine *e, const variant *v, parity_margin *margin, const char *run) {
  parity_case *c = e->c;
  const hri_job *job = &e->session.plan->job;
  for (uint32_t p = 0; p < job->params.count; p++) {
    hri_param_spec spec;
    hri_param_get(&c->model, job->params.items[p].spec, &spec);
    assert_int_equal(e->captured[p], e->step);
    for (uint32_t k = 0; k < spec.part_count; k++) {
      char name[128], path[160];
      uint64_t count, expected_count;
      double *got = parity_part(c, &spec, &spec.parts[k], e->gradients[p], &count), *truth;
      (void)snprintf(name, sizeof name, "grad.%s", spec.parts[k].name);
      truth = parity_expected(c, name, &expected_count);
      assert_int_equal(count, expected_count);
      (void)snprintf(path, sizeof path, "gradient/tensors/%s", spec.parts[k].name);
      parity_within(c, margin, run, name, parity_distance(got, truth, NULL, count), first_error(c, v, path));
    }
  }
}

/* Norm of all gradients that the last step used. Vocabulary rows that only pad the storage have none. */
static double gradient_norm(const engine *e) {
  const hri_job *job = &e->session.plan->job;
  double sum = 0;
  for (uint32_t p = 0; p < job->params.count; p++) {
    uint64_t logical = hri_tensor_elements(&job->tensors.items[job->params.items[p].weight]);
    for (uint64_t i = 0; i < job->params.items[p].elements; i++) {
      double g = (double)e->gradients[p][i];
      if (i >= logical && g != 0)
        fail_msg("%s: the padding of %s has a gradient", e->c->name, hri_name_get(job, job->params.items[p].key));
      sum += g * g;
    }
  }
  return sqrt(sum);
}

/* The weights as the optimizer keeps them, one of our parameters: its masters where it has some. */
static const float *true_weight(parity_case *c, const engine *e, uint32_t p) {
  const hri_param *param = &e->session.plan->job.params.items[p];
  const hri_param_range *whole = hri_param_whole(&e->session.plan->job, param);
  float *to = parity_buffer(c, param->elements * sizeof *to);
  const bool split = hri_range_split(&e->session.plan->job, whole);
  const uint16_t *low = split ? hri_executor_view(e->session.executor, whole->master) : NULL;
  widened(e, hri_moved_tensor(&e->session.plan->job, whole, HRI_MOVED_WEIGHT), param->elements, to);
  for (uint64_t i = 0; split && i < param->elements; i++) to[i] = hri_join(hri_bf16_round(to[i]), low[i]);
  return to;
}

/* Weights against the end of `run`: those in `directory`, or with NULL those in the engine's arena. */
static void check_weights(parity_case *c, const char *directory, const engine *e, const variant *v, const char *run,
                          parity_margin *margin, const char *label) {
  hri_weights *weights = NULL;
  hri_json at;
  const char *final;
  char path[160];
  uint32_t compared = 0;
  (void)snprintf(path, sizeof path, "runs/%s", run);
  at = parity_at(c, path);
  HOLDS(hri_json_get_string(&at, "final", &final, error));
  if (directory) HOLDS(hri_weights_open(directory, &weights, error));
  for (uint32_t p = 0; p < hri_param_count(&c->model); p++) {
    hri_param_spec spec;
    hri_param_get(&c->model, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++, compared++) {
      char name[160];
      uint64_t count, truth_count, from_count;
      double *from = parity_weight(c, c->initial, spec.parts[k].name, &from_count), *got, *truth;
      if (directory) got = parity_weight(c, weights, spec.parts[k].name, &count);
      else got = parity_part(c, &spec, &spec.parts[k], true_weight(c, e, p), &count);
      (void)snprintf(name, sizeof name, "%s.final.%s", final, spec.parts[k].name);
      truth = parity_expected(c, name, &truth_count);
      assert_int_equal(count, truth_count);
      assert_int_equal(count, from_count);
      parity_leave_out(c, spec.parts[k].name, got, truth, from);
      (void)snprintf(path, sizeof path, "tensors/%s", spec.parts[k].name);
      parity_within(c, margin, label, name, parity_distance(got, truth, from, count),
                    trained_error(c, v, run, path, -1));
    }
  }
  (void)snprintf(path, sizeof path, "runs/%s/tensors", run);
  at = parity_at(c, path);
  assert_int_equal(compared, json_object_size(at.value)); /* nothing that was recorded is left out */
  hri_weights_close(weights);
}

static void check_saved_weights(engine *e, const variant *v, const char *run, parity_margin *margin,
                                const char *label) {
  const char *directory = scratch_make("parity");
  HOLDS(hri_session_save(&e->session, directory, HRI_FILE_F32, false, NULL, error));
  check_weights(e->c, directory, NULL, v, run, margin, label);
  scratch_remove(directory);
}

static void is_as_named(const variant *v, const char *what, bool holds) {
  if (!holds) fail_msg("variant '%s': the program has another %s than its name says", v->name, what);
}

/* The program really is what the variant's name says. */
static void check_program(const engine *e, const variant *v) {
  const hri_job *job = &e->session.plan->job;
  const hr_job *spec = &e->session.plan->spec;
  uint8_t kind = spec->accumulate > 1 ? HRI_MICRO : HRI_STEP;
  uint64_t rows = (uint64_t)spec->micro_batch * spec->sequence_length, chunk = v->loss_chunk ? v->loss_chunk : rows;
  uint32_t clones = 0, heads = 0, copies = 0, fused = 0, full = 0, early = 0, updates = 0, narrow = 0, masters = 0;
  bool backward_after = false;
  for (size_t at = job->programs[kind].order.count; at-- > 0;) {
    const hri_node *node = &job->nodes.items[job->programs[kind].order.items[at]];
    narrow += node->op == HRI_OP_LINEAR && job->tensors.items[hri_operands(job, node)[0].tensor].dtype != HRI_F32;
    clones += node->origin != HRI_NONE;
    heads += node->op == HRI_OP_CROSS_ENTROPY;
    copies += node->lane == HRI_COPY_OUT;
    fused += node->op == HRI_OP_NORM && hri_operands(job, node)[3].tensor != HRI_NONE;
    full += node->op == HRI_OP_ATTENTION_FULL;
    if (node->phase == HRI_PHASE_BACKWARD) backward_after = true;
    updates += is_update(node->op);
    early += is_update(node->op) && backward_after;
  }
  for (size_t p = 0; p < job->params.count; p++)
    masters += hri_param_whole(job, &job->params.items[p])->master != HRI_NONE;
  is_as_named(v, "precision", (narrow > 0) == (v->precision != HR_PRECISION_FP32));
  is_as_named(v, "kind of weight",
              (masters > 0) == (v->precision == HR_PRECISION_BF16 || v->precision == HR_PRECISION_FP16));
  is_as_named(v, "recomputation", (clones > 0) == (v->recompute != NULL));
  is_as_named(v, "loss chunks", heads == (rows + chunk - 1) / chunk);
  is_as_named(v, "offload", (copies > 0) == (v->options.offload_bytes > 0));
  is_as_named(v, "fusion",
              v->options.offload_bytes > 0 || (fused > 0) == !v->options.no_fuse); /* copies stand between neighbours */
  is_as_named(v, "attention", (full > 0) == (v->attention == HR_ATTENTION_MATERIALIZED));
  is_as_named(v, "update", v->update == HR_UPDATE_IN_BACKWARD ? early > updates / 2 : early == 0);
  is_as_named(v, "team", job->team == (v->threads ? v->threads : 1));
  is_as_named(v, "instruction set", !v->isa || strcmp(job->instruction_set, v->isa) == 0);
}

/* A recorded run: first loss and gradients, loss and norm of each step, final weights, as saved or in place. */
static void check_run(parity_case *c, const char *run, const variant *v, bool save, parity_margin *margin) {
  parity_block *mark = c->blocks;
  hr_job job;
  engine e;
  char label[96], what[32];
  (void)snprintf(label, sizeof label, "%s (%s)", run, v->name);
  run_job(c, run, v, &job);
  engine_open(&e, c, &job, &v->options, true);
  check_program(&e, v);
  for (uint64_t s = 0; s < job.steps; s++) {
    double loss = step(&e), norm = gradient_norm(&e);
    if (s == 0) {
      parity_within(c, margin, label, "first loss", parity_relative(loss, parity_number(c, "first_batch/loss", -1)),
                    first_error(c, v, "first_batch"));
      parity_within(c, margin, label, "gradient norm", parity_relative(norm, parity_number(c, "gradient/norm", -1)),
                    first_error(c, v, "gradient"));
      check_gradients(&e, v, margin, label);
    }
    (void)snprintf(what, sizeof what, "loss of step %u", (unsigned)s);
    parity_within(c, margin, label, what, parity_relative(loss, run_number(c, run, "losses", (int64_t)s)),
                  trained_error(c, v, run, "loss", (int64_t)s));
    (void)snprintf(what, sizeof what, "norm of step %u", (unsigned)s);
    parity_within(c, margin, label, what, parity_relative(norm, run_number(c, run, "grad_norms", (int64_t)s)),
                  trained_error(c, v, run, "grad_norm", (int64_t)s));
    if (job.clip > 0) { /* as the program itself took it: norm, and the factor of the formula that README.md gives */
      const hri_control *control = hri_executor_control(e.session.executor);
      parity_within(c, margin, label, "clip's norm",
                    parity_relative(control->grad_norm, run_number(c, run, "grad_norms", (int64_t)s)),
                    trained_error(c, v, run, "grad_norm", (int64_t)s));
      assert_true(control->clip_scale == fmin(1, job.clip / (control->grad_norm + 1e-6)) && control->clip_scale < 1);
    }
  }
  assert_int_equal(hri_executor_control(e.session.executor)->applied_steps, job.steps);
  if (save) check_saved_weights(&e, v, run, margin, label);
  else check_weights(c, NULL, &e, v, run, margin, label);
  engine_close(&e);
  parity_release(c, mark);
}

static void tell(const parity_case *c, const parity_margin *m) {
  print_message("  %s: %u values, the nearest used %.0f %% of its tolerance (%s)\n", c->name, m->compared,
                100 * m->share, m->what);
}

/* ---- tests: one case each ---- */

static const variant precisions[] = {
    {.name = "fp32"},
    {.name = "bf16", .precision = HR_PRECISION_BF16},
    {.name = "bf16-pure", .precision = HR_PRECISION_BF16_PURE},
    {.name = "fp16", .precision = HR_PRECISION_FP16},
};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

/* The data set gives the recorded rows: packing, shifted labels, positions, starts of documents. */
static void rows_are_those_recorded(void **state) {
  parity_case *c = parity_open(*state);
  const char *paths[1] = {c->jsonl};
  hri_dataset_options options = {.paths = paths,
                                 .path_count = 1,
                                 .sequence = c->sequence,
                                 .vocabulary = c->model.vocabulary_size,
                                 .eos_token = -1,
                                 .packing = true};
  int32_t *ids = parity_input(c, "input_ids"), *labels = parity_input(c, "labels"),
          *position = parity_input(c, "position_ids"), *starts = parity_input(c, "doc_start");
  int32_t got[4][64];
  hri_dataset *data;
  uint64_t counted, first_batch = 0;
  assert_true(c->sequence <= 64);
  HOLDS(hri_dataset_open(&options, &data, error));
  assert_int_equal(hri_dataset_row_count(data), c->rows);
  for (uint32_t r = 0; r < c->rows; r++) {
    uint64_t at = (uint64_t)r * c->sequence, kept = 0;
    HOLDS(hri_dataset_row(data, r, got[0], got[1], got[2], got[3], &counted, error));
    assert_memory_equal(got[0], ids + at, c->sequence * 4);
    assert_memory_equal(got[2], position + at, c->sequence * 4);
    assert_memory_equal(got[3], starts + at, c->sequence * 4);
    for (uint32_t t = 0; t < c->sequence; t++) {
      int32_t want = t + 1 < c->sequence ? labels[at + t + 1] : HRI_LABEL_IGNORED;
      assert_int_equal(got[1][t], want);
      kept += want != HRI_LABEL_IGNORED;
    }
    assert_int_equal(counted, kept);
    if (r < c->batch) first_batch += counted;
  }
  assert_int_equal(first_batch, (uint64_t)parity_number(c, "first_batch/counted_labels", -1));
  hri_dataset_destroy(data);
  parity_close(c);
}

/* Every recorded run: AdamW with a clip, with and without accumulation; without a clip, SGD and momentum where they
 * were recorded. */
static void runs_are_those_recorded(void **state) {
  parity_case *c = parity_open(*state);
  parity_margin margin = {0};
  hri_json runs = parity_at(c, "runs");
  const char *run;
  json_t *ignored;
  uint32_t count = 0;
  json_object_foreach(runs.value, run, ignored) {
    check_run(c, run, &plain, true, &margin);
    count++;
  }
  assert_true(count >= 2);
  tell(c, &margin);
  parity_close(c);
}

/* How far the gradients of the first batch are off, in units of what PyTorch is off. */
static void tell_gradients(parity_case *c, const variant *v) {
  double worst[2] = {0, 0}, sum[2] = {0, 0};
  uint32_t count = 0;
  hr_job job;
  engine e;
  run_job(c, "adamw_clip", v, &job); /* gradients before the clip, which no node changes */
  engine_open(&e, c, &job, &v->options, true);
  (void)step(&e);
  for (uint32_t p = 0; p < e.session.plan->job.params.count; p++) {
    hri_param_spec spec;
    hri_param_get(&c->model, e.session.plan->job.params.items[p].spec, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++, count++) {
      static const char *const ways[] = {"plain", "autocast"};
      char name[160];
      uint64_t elements;
      double *got = parity_part(c, &spec, &spec.parts[k], e.gradients[p], &elements), error;
      (void)snprintf(name, sizeof name, "grad.%s", spec.parts[k].name);
      error = parity_distance(got, parity_expected(c, name, &elements), NULL, elements);
      for (int w = 0; w < 2; w++) {
        double theirs;
        (void)snprintf(name, sizeof name, "gradient/tensors/%s/bf16_error_%s", spec.parts[k].name, ways[w]);
        theirs = parity_number(c, name, -1);
        sum[w] += error / theirs;
        worst[w] = fmax(worst[w], error / theirs);
      }
    }
  }
  engine_close(&e);
  print_message(
      "  %s, %s: errors of gradients are %.2f (at most %.2f) of PyTorch's in bfloat16, %.2f (at most %.2f) of autocast's\n",
      c->name, v->name, sum[0] / count, worst[0], sum[1] / count, worst[1]);
}

/* Every recorded run again with bf16 and fp16 weights and activations. */
static void narrow_runs_are_as_near_as_pytorch_s(void **state) {
  static const variant kinds[] = {
      {.name = "bf16", .precision = HR_PRECISION_BF16},
      {.name = "bf16-pure", .precision = HR_PRECISION_BF16_PURE},
      {.name = "bf16-pure, bf16 moments", .precision = HR_PRECISION_BF16_PURE, .moments = HR_MOMENTS_BF16},
      {.name = "fp16", .precision = HR_PRECISION_FP16},
  };
  parity_case *c = parity_open(*state);
  hri_json runs = parity_at(c, "runs");
  const char *run;
  json_t *ignored;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    parity_margin margin = {0};
    json_object_foreach(runs.value, run, ignored) check_run(c, run, &kinds[k], true, &margin);
    tell(c, &margin);
    if (kinds[k].moments == HR_MOMENTS_FP32) tell_gradients(c, &kinds[k]);
  }
  parity_close(c);
}

/* The evaluate program gives the first batch's loss, whatever the size of the batches that it is cut into. */
static void evaluation_gives_the_loss(void **state) {
  parity_case *c = parity_open(*state);
  parity_margin margin = {0};
  for (uint32_t k = 0; k < (uint32_t)c->batch * PRECISIONS; k++) {
    const variant *v = &precisions[k % PRECISIONS];
    uint32_t micro = k / PRECISIONS + 1;
    hr_job job;
    engine e;
    double loss;
    uint64_t tokens;
    if (c->batch % micro) continue;
    base_job(c, &job);
    job.purpose = HR_PURPOSE_EVALUATE;
    job.precision = v->precision;
    job.micro_batch = micro;
    job.check = true;
    HOLDS(hr_job_finish(&job, error));
    engine_open(&e, c, &job, &plain.options, false);
    HOLDS(hri_session_evaluate(&e.session, e.data, c->batch / micro, &loss, &tokens, error));
    assert_int_equal(tokens, (uint64_t)parity_number(c, "first_batch/counted_labels", -1));
    parity_within(c, &margin, "evaluate", v->name, parity_relative(loss, parity_number(c, "first_batch/loss", -1)),
                  first_error(c, v, "first_batch"));
    engine_close(&e);
  }
  tell(c, &margin);
  parity_close(c);
}

static void open_generation(engine *e, parity_case *c, hr_precision precision, uint32_t context, uint32_t threads,
                            hr_purpose purpose) {
  hr_job job;
  base_job(c, &job);
  job.precision = precision;
  job.purpose = purpose;
  job.with_generation = purpose == HR_PURPOSE_TRAIN;
  job.context_length = context;
  job.threads = threads;
  job.check = true;
  HOLDS(hr_job_finish(&job, error));
  engine_open(e, c, &job, &plain.options, false);
}

/* How the tokens before a position reach the cache. */
typedef enum feeding { TOKEN_BY_TOKEN = 0, ALL_AT_ONCE, IN_TWO_PIECES, FEEDINGS } feeding;

/* Logits of the last of `count` tokens. */
static void logits_after(engine *e, const int32_t *ids, uint64_t count, feeding how, double *out) {
  uint64_t length = 0, done = 0, vocabulary = e->c->model.vocabulary_size;
  const float *logits = NULL;
  while (done < count) {
    uint64_t piece = how == TOKEN_BY_TOKEN ? 1
                     : how == ALL_AT_ONCE  ? count
                     : done == 0           ? (count + 1) / 2
                                           : count - done;
    HOLDS(hri_session_feed(&e->session, ids + done, piece, &length, &logits, error));
    done += piece;
  }
  assert_int_equal(length, count);
  for (uint64_t v = 0; v < vocabulary; v++) out[v] = (double)logits[v];
}

/* Logits of row 0 at every position from the prefill and decode programs. A packed document has the logits that it has
 * alone, so each one is fed by itself. */
static void logits_are_those_recorded(void **state) {
  parity_case *c = parity_open(*state);
  parity_margin margin = {0};
  static const char *const names[FEEDINGS] = {"token by token", "all at once", "in two pieces"};
  int32_t *ids = parity_input(c, "input_ids"), *starts = parity_input(c, "doc_start");
  uint64_t count;
  double *truth = parity_expected(c, "logits.0", &count), *got = parity_buffer(c, count * sizeof *got);
  assert_int_equal(count, (uint64_t)c->sequence * c->model.vocabulary_size);
  assert_int_equal((int)parity_number(c, "logits/row", -1), 0);
  for (int k = 0; k < FEEDINGS * PRECISIONS; k++) {
    const variant *v = &precisions[k % PRECISIONS];
    int how = k / PRECISIONS;
    char label[32];
    engine e;
    (void)snprintf(label, sizeof label, "logits (%s)", v->name);
    open_generation(&e, c, v->precision, c->sequence, 1, HR_PURPOSE_GENERATE);
    for (uint32_t t = 0; t < c->sequence; t++)
      logits_after(&e, ids + starts[t], t - (uint32_t)starts[t] + 1, (feeding)how,
                   got + (uint64_t)t * c->model.vocabulary_size);
    parity_within(c, &margin, label, names[how], parity_distance(got, truth, NULL, count), first_error(c, v, "logits"));
    engine_close(&e);
  }
  tell(c, &margin);
  parity_close(c);
}

/* Greedy text from the recorded prompt, from a job made for it and from a training job that can also sample. */
static void greedy_text_is_the_same(void **state) {
  parity_case *c = parity_open(*state);
  hri_json prompt = parity_at(c, "greedy/prompt"), want = parity_at(c, "greedy/continuation");
  uint64_t prompt_count = hri_json_count(&prompt), new_count = hri_json_count(&want);
  hri_sampler sampler = {.temperature = 0, .top_p = 1};
  int32_t ids[64];
  assert_true(prompt_count >= 2 && new_count >= 2 && prompt_count < 64);
  for (uint64_t k = 0; k < prompt_count; k++) ids[k] = (int32_t)parity_number(c, "greedy/prompt", (int64_t)k);
  for (uint32_t threads = 1; threads <= 2; threads++) {
    engine e;
    uint64_t length = 0;
    const float *logits = NULL;
    open_generation(&e, c, HR_PRECISION_FP32, (uint32_t)(prompt_count + new_count), threads,
                    threads == 1 ? HR_PURPOSE_GENERATE : HR_PURPOSE_TRAIN);
    HOLDS(hri_session_feed(&e.session, ids, prompt_count, &length, &logits, error));
    for (uint64_t k = 0; k < new_count; k++) {
      int32_t token = -1;
      HOLDS(hri_sample(&sampler, logits, c->model.vocabulary_size, k, &token, error));
      assert_int_equal(token, (int32_t)parity_number(c, "greedy/continuation", (int64_t)k));
      HOLDS(hri_session_feed(&e.session, &token, 1, &length, &logits, error));
    }
    engine_close(&e);
  }
  parity_close(c);
}

/* ---- the public call: hr_train from files to files ---- */

typedef struct followed {
  parity_case *c;
  parity_margin *margin;
  const char *run;
  uint64_t steps;
} followed;

static void follow(void *context, const hr_event *event) {
  followed *f = context;
  int64_t s;
  if (event->kind != HR_EVENT_STEP) return;
  s = (int64_t)f->steps++;
  parity_within(f->c, f->margin, "hr_train", "loss",
                parity_relative(event->metrics->loss, run_number(f->c, f->run, "losses", s)),
                trained_error(f->c, &plain, f->run, "loss", s));
  parity_within(f->c, f->margin, "hr_train", "norm",
                parity_relative(event->metrics->grad_norm, run_number(f->c, f->run, "grad_norms", s)),
                trained_error(f->c, &plain, f->run, "grad_norm", s));
}

static void hr_train_ends_where_pytorch_ends(void **state) {
  parity_case *c = parity_open(*state);
  parity_margin margin = {0};
  followed f = {.c = c, .margin = &margin, .run = "adamw_clip_accumulate"};
  const char *paths[1] = {c->jsonl};
  const char *directory = scratch_make("parity"), *out = path_of("%s/run", directory),
             *final = path_of("%s/final", out);
  hr_run_options options = {.data_paths = paths,
                            .data_path_count = 1,
                            .save_dtype = "f32",
                            .on_event = follow,
                            .context = &f};
  hr_run_result result;
  hr_job job;
  run_job(c, f.run, &plain, &job);
  job.given |= HR_GIVEN_SHUFFLE; /* rows in the order that PyTorch had them */
  options.out_directory = out;
  HOLDS(hr_train(&job, &options, &result, error));
  assert_int_equal(f.steps, job.steps);
  assert_int_equal(result.steps, job.steps);
  assert_int_equal(result.reserved_bytes[HR_TIER_DEVICE], result.planned_bytes[HR_TIER_DEVICE]);
  check_weights(c, final, NULL, &plain, f.run, &margin, "hr_train");
  scratch_remove(directory);
  tell(c, &margin);
  parity_close(c);
}

/* ---- variants: techniques and choices that must not change what is computed ---- */

static const variant variants[] = {
    {.name = "recompute block", .recompute = "block"},
    {.name = "recompute every:2", .recompute = "every:2"},
    {.name = "recompute sqrt", .recompute = "sqrt"},
    {.name = "level cheap", .recompute = "levels:cheap"},
    {.name = "level mlp", .recompute = "levels:mlp"},
    {.name = "level attention", .recompute = "levels:attention"},
    {.name = "levels keep,block", .recompute = "levels:keep,block"},
    {.name = "levels attention,cheap", .recompute = "levels:attention,cheap"},
    {.name = "loss in chunks of 16", .loss_chunk = 16},
    {.name = "materialized attention", .attention = HR_ATTENTION_MATERIALIZED},
    {.name = "materialized, recompute block", .attention = HR_ATTENTION_MATERIALIZED, .recompute = "block"},
    {.name = "2 threads", .threads = 2},
    {.name = "2 threads, materialized, chunks", .threads = 2, .attention = HR_ATTENTION_MATERIALIZED, .loss_chunk = 16},
    {.name = "check mode", .check = true},
    {.name = "check mode, 2 threads, block, chunks",
     .check = true,
     .threads = 2,
     .recompute = "block",
     .loss_chunk = 16},
    {.name = "no fusion", .options = {.no_fuse = true}},
    {.name = "nothing in place", .options = {.no_inplace = true}},
    {.name = "offload", .check = true, .options = {.offload_bytes = 1, .offload_distance = 2}},
    {.name = "offload, recompute cheap",
     .recompute = "levels:cheap",
     .check = true,
     .options = {.offload_bytes = 1024, .offload_distance = 5}},
    {.name = "base kernels", .isa = "base"},
    {.name = "avx2 kernels", .isa = "avx2"},
    {.name = "update in backward", .update = HR_UPDATE_IN_BACKWARD},
    {.name = "update in backward, 2 threads", .update = HR_UPDATE_IN_BACKWARD, .threads = 2, .check = true},
    {.name = "update in backward, block, chunks, materialized",
     .update = HR_UPDATE_IN_BACKWARD,
     .recompute = "block",
     .loss_chunk = 16,
     .attention = HR_ATTENTION_MATERIALIZED,
     .check = true},
};

/* What test_bits.c does not hold to the same bits: other kernels, other sums. */
static const variant bf16_variants[] = {
    {.name = "bf16, loss in chunks of 16", .precision = HR_PRECISION_BF16, .loss_chunk = 16},
    {.name = "bf16, materialized attention",
     .precision = HR_PRECISION_BF16,
     .attention = HR_ATTENTION_MATERIALIZED,
     .check = true},
    {.name = "bf16, base kernels", .precision = HR_PRECISION_BF16, .isa = "base"},
    {.name = "bf16, avx2 kernels", .precision = HR_PRECISION_BF16, .isa = "avx2"},
    {.name = "bf16-pure, loss in chunks of 16", .precision = HR_PRECISION_BF16_PURE, .loss_chunk = 16},
    {.name = "bf16-pure, base kernels", .precision = HR_PRECISION_BF16_PURE, .isa = "base"},
    {.name = "bf16-pure, avx2 kernels",
     .precision = HR_PRECISION_BF16_PURE,
     .isa = "avx2",
     .recompute = "levels:mlp",
     .check = true},
    {.name = "bf16-pure, update in backward",
     .precision = HR_PRECISION_BF16_PURE,
     .update = HR_UPDATE_IN_BACKWARD,
     .check = true},
};

static void check_variants(parity_case *c, const variant *list, size_t count) {
  parity_margin margin = {0};
  bool all_runs = parity_at(c, "runs/adamw").value != NULL; /* few were recorded of some models */
  for (size_t i = 0; i < count; i++) {
    const variant *v = &list[i];
    hri_isa isa;
    if (v->isa) {
      if (hri_cpu_isa_choose(v->isa, &isa, NULL) != HR_OK) continue; /* this processor cannot */
      assert_int_equal(setenv("HEADROOM_ISA", v->isa, 1), 0);
    }
    if (v->update != HR_UPDATE_IN_BACKWARD) {
      check_run(c, "adamw_clip", v, false, &margin);
      check_run(c, all_runs ? "adamw_accumulate" : "adamw_clip_accumulate", v, false, &margin);
    } else if (all_runs) {
      check_run(c, "adamw", v, false, &margin);
    }
    if (v->isa) assert_int_equal(unsetenv("HEADROOM_ISA"), 0);
  }
  tell(c, &margin);
}

static void variants_compute_the_same(void **state) {
  parity_case *c = parity_open(*state);
  check_variants(c, variants, sizeof variants / sizeof *variants);
  check_variants(c, bf16_variants, sizeof bf16_variants / sizeof *bf16_variants);
  parity_close(c);
}

/* SGD and momentum inside the backward, where they were recorded. */
static void other_optimizers_run_in_the_backward(void **state) {
  static const variant v = {.name = "update in backward", .update = HR_UPDATE_IN_BACKWARD, .check = true};
  parity_case *c = parity_open("llama-b");
  parity_margin margin = {0};
  (void)state;
  check_run(c, "sgd", &v, false, &margin);
  check_run(c, "momentum", &v, false, &margin);
  parity_close(c);
}

/* A wrong gradient does not pass: the comparison is given one element that is off by a part in 10000 of the norm. */
static void comparison_can_fail(void **state) {
  parity_case *c = parity_open("llama-a");
  uint64_t count;
  double *truth = parity_expected(c, "grad.model.norm.weight", &count), *got = parity_buffer(c, count * sizeof *got),
         norm = 0, error;
  (void)state;
  memcpy(got, truth, count * sizeof *got);
  for (uint64_t i = 0; i < count; i++) norm += truth[i] * truth[i];
  assert_true(parity_distance(got, truth, NULL, count) == 0);
  got[count / 2] += 1e-4 * sqrt(norm);
  error = parity_distance(got, truth, NULL, count);
  assert_true(error > 0.99e-4 && error < 1.01e-4);
  assert_true(error > PARITY_FACTOR * parity_number(c, "gradient/tensors/model.norm.weight/fp32_error", -1));
  got[0] = NAN; /* and a NaN is never within a tolerance */
  assert_false(parity_distance(got, truth, NULL, count) <= 1);
  parity_close(c);
}

/* ---- the list: each test for each case ---- */

typedef struct entry {
  const char *name;
  CMUnitTestFunction function;
} entry;

int main(void) {
  static const entry entries[] = {
      {"rows are those recorded", rows_are_those_recorded},
      {"runs are those recorded", runs_are_those_recorded},
      {"bf16 and fp16 runs are as near as PyTorch's", narrow_runs_are_as_near_as_pytorch_s},
      {"evaluation gives the loss", evaluation_gives_the_loss},
      {"logits are those recorded", logits_are_those_recorded},
      {"greedy text is the same", greedy_text_is_the_same},
      {"hr_train ends where PyTorch ends", hr_train_ends_where_pytorch_ends},
      {"variants compute the same", variants_compute_the_same},
  };
  enum { ENTRIES = sizeof entries / sizeof *entries };
  static char names[ENTRIES * PARITY_CASES][96];
  static struct CMUnitTest tests[ENTRIES * PARITY_CASES + 2];
  const char *quick = getenv("HEADROOM_TEST_QUICK");
  size_t count = 0;
  for (size_t t = 0; t < ENTRIES; t++)
    for (size_t c = 0; c < PARITY_CASES; c++) {
      bool both = strcmp(parity_cases[c], "llama-c") == 0 || strcmp(parity_cases[c], "gpt2-packed") == 0;
      if (quick && *quick && entries[t].function == variants_compute_the_same && !both) continue;
      (void)snprintf(names[count], sizeof names[count], "%s: %s", entries[t].name, parity_cases[c]);
      tests[count] = (struct CMUnitTest){.name = names[count],
                                         .test_func = entries[t].function,
                                         .initial_state = (void *)(uintptr_t)parity_cases[c]};
      count++;
    }
  tests[count++] = (struct CMUnitTest)cmocka_unit_test(other_optimizers_run_in_the_backward);
  tests[count++] = (struct CMUnitTest)cmocka_unit_test(comparison_can_fail);
  return _cmocka_run_group_tests("parity", tests, count, NULL, NULL);
}
