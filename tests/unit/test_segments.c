/* What optimizers keep, and how parameters lie: the table of states, segments, parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/real.h"
#include "backend/backend.h"
#include "model/build.h"
#include "ops/cpu.h"
#include "ops/optim/ref.h"
#include "pass/pass.h"
#include "plan/place.h"
#include "program/check.h"
#include "run/executor.h"
#include "support/scratch.h"
#include "train/weights.h"

#define HOLDS(call)                                                                                                    \
  do {                                                                                                                 \
    hr_error error_ = {0}, *error = &error_;                                                                           \
    if ((call) != HR_OK) fail_msg("%s: %s", #call, error_.message);                                                    \
  } while (0)

/* ---- the table of states ---- */

static void every_optimizer_has_a_row_that_fits_its_op(void **state) {
  (void)state;
  for (uint32_t kind = 0; kind < HR_OPTIMIZER_COUNT; kind++) {
    const hri_optimizer *row = hri_optimizer_get(kind);
    const char *letters = hri_rule_get(row->op)->operands;
    bool narrow = false;
    assert_string_equal(hri_op_name(row->op), hr_optimizer_name((hr_optimizer)kind));
    assert_int_equal(hri_optimizer_of(row->op), kind);
    assert_int_equal(strlen(letters), 5 + row->tensor_count);
    assert_int_equal(strncmp(letters, "RRU", 3), 0);
    assert_string_equal(letters + 3 + row->tensor_count, "ug");
    assert_true(row->tensor_count <= HRI_STATE_TENSORS);
    for (uint32_t k = 0; k < row->tensor_count; k++) {
      assert_int_equal(letters[3 + k], 'U');
      assert_non_null(row->tensors[k].name);
      assert_int_equal(HRI_SEGMENT_ALIGN_ELEMENTS % hri_state_share(&row->tensors[k]),
                       0); /* parts begin with a whole entry */
      assert_true(!row->tensors[k].narrow || row->tensors[k].dtype == HRI_F32);
      for (uint32_t j = 0; j < k; j++) assert_string_not_equal(row->tensors[j].name, row->tensors[k].name);
      narrow = narrow || row->tensors[k].narrow;
    }
    assert_int_equal(hri_state_bytes(kind, 50, 20, true) < hri_state_bytes(kind, 50, 20, false), narrow);
  }
  assert_int_equal(hri_optimizer_of(HRI_OP_LINEAR), HRI_NONE);
  assert_int_equal(hri_state_bytes(HR_OPTIMIZER_ADAMW, 50, 20, false), 8000);
  assert_int_equal(hri_state_bytes(HR_OPTIMIZER_ADAMW, 1000, 1, true), 4000);
  assert_int_equal(hri_state_bytes(HR_OPTIMIZER_MOMENTUM, 3, 1, false), 12);
  assert_int_equal(hri_state_bytes(HR_OPTIMIZER_SGD, 1000, 1, false), 0);
  assert_int_equal(hri_state_bytes(HR_OPTIMIZER_ADAFACTOR, 50, 20, true), 70 * 4); /* a row and a column */
  assert_int_equal(hri_state_bytes(HR_OPTIMIZER_ADAFACTOR, 50, 1, true), 50 * 4);  /* of a vector all */
}

/* The arithmetic of states with scales: codes of one byte, and an fp32 scale for each begun block of 256. */
static void entries_are_shared_by_blocks(void **state) {
  static const hri_state_tensor codes = {"codes", HRI_U8, false, 1}, scales = {"absmax", HRI_F32, false, 256};
  static const uint64_t elements[] = {0, 1, 255, 256, 257, 1u << 20, UINT64_MAX},
                        blocks[] = {0, 1, 1, 1, 2, 4096, (uint64_t)1 << 56};
  (void)state;
  for (size_t k = 0; k < sizeof elements / sizeof *elements; k++) {
    assert_int_equal(hri_state_entries(&codes, elements[k], 1), elements[k]);
    assert_int_equal(hri_state_entries(&scales, elements[k], 1), blocks[k]);
  }
}

/* ---- parts ----
 *
 * Four parameters of one block, of which only v of qkv (weight and bias), up of gate and up, and out are trained; v and
 * out alike, up without decay and by momentum, v's bias without decay. Sizes are no multiples of anything. */

enum { QKV = 0, BIAS, GATE_UP, OUT, PARAMS, RUNS = 4, MOST = 12 * 70 };

typedef struct given {
  const char *name;
  uint32_t rank;
  uint64_t dims[2];
  uint32_t part_count;
  hri_part_request parts[3];
} given;

static const given given_params[PARAMS] = {
    {"qkv.weight",
     2,
     {12, 70},
     3,
     {{"q", 0, 5, false, true, HR_OPTIMIZER_ADAMW, 0, 0},
      {"k", 5, 3, false, true, HR_OPTIMIZER_ADAMW, 0, 0},
      {"v", 8, 4, true, true, HR_OPTIMIZER_ADAMW, 0, 0}}},
    {"qkv.bias",
     1,
     {12, 1},
     3,
     {{"q.bias", 0, 5, false, false, HR_OPTIMIZER_ADAMW, 0, 0},
      {"k.bias", 5, 3, false, false, HR_OPTIMIZER_ADAMW, 0, 0},
      {"v.bias", 8, 4, true, false, HR_OPTIMIZER_ADAMW, 0, 0}}},
    {"gate_up.weight",
     2,
     {18, 33},
     2,
     {{"gate", 0, 9, false, true, HR_OPTIMIZER_ADAMW, 0, 0}, {"up", 9, 9, true, false, HR_OPTIMIZER_MOMENTUM, 0, 0}}},
    {"out.weight", 2, {6, 50}, 1, {{"out", 0, 6, true, true, HR_OPTIMIZER_ADAMW, 0, 0}}},
};

typedef struct parts_job {
  hr_job spec;
  hri_job job;
  hri_id inputs[RUNS];
  hri_executor *executor;
} parts_job;

static float value(uint64_t stream, uint64_t i) { return (float)sin((double)(1 + stream) * 12.9898 + (double)i * 0.7); }

static hr_status fill_parts(void *context, uint32_t index, uint32_t what, const hri_window *tensor, void *staging,
                            uint64_t bytes, hr_error *error) {
  const hri_job *job = context;
  const hri_param_range *r = &job->ranges.items[index];
  const hri_tensor *t = &job->tensors.items[hri_moved_tensor(job, r, what)];
  (void)staging, (void)bytes, (void)error;
  for (uint64_t i = 0; i < hri_tensor_stored_elements(t); i++) {
    float x = what == HRI_MOVED_WEIGHT ? value(r->param, r->first + i) : 0;
    if (t->dtype == HRI_BF16 && r->master == HRI_NONE) ((hri_bf16 *)tensor->memory)[i] = hri_bf16_round(x);
    else ((float *)tensor->memory)[i] = x;
  }
  return HR_OK;
}

static const hri_update_options update_options =
    {.numbers = {[HR_OPTIMIZER_ADAMW] = {0.9, 0.99, 1e-8}, [HR_OPTIMIZER_MOMENTUM] = {0.8}}, .weight_decay = 0.1};

/* Gradients come from inputs, one per run: into what `begin` zeroed, or written in a step. */
static void open_parts(parts_job *p, uint32_t accumulate, bool masters) {
  uint8_t program = accumulate > 1 ? HRI_MICRO : HRI_STEP;
  memset(p, 0, sizeof *p);
  hr_job_init(&p->spec);
  p->spec.accumulate = accumulate;
  hri_job_init(&p->job);
  hri_build_control(&p->job, hri_programs_of(&p->spec));
  for (uint32_t k = 0; k < PARAMS; k++) {
    const given *g = &given_params[k];
    hri_param_request request = {.name = g->name,
                                 .layer = 0,
                                 .unit = 1,
                                 .rank = g->rank,
                                 .dims = {g->dims[0], g->dims[1]},
                                 .stored = {g->dims[0], g->dims[1]},
                                 .parts = g->parts,
                                 .part_count = g->part_count,
                                 .spec = HRI_NONE};
    assert_int_equal(hri_build_parameter(&p->job, &p->spec, &request), k);
  }
  if (masters)
    HOLDS(hri_pass_precision(&p->job, &(hri_precision_options){.masters = true, .narrow = HRI_BF16, .head = HRI_NONE},
                             error));
  hri_build_transfers(&p->job, true, false, HRI_DEVICE);
  if (accumulate > 1) hri_build_zero_gradients(&p->job);
  assert_int_equal(p->job.runs.count, RUNS);
  for (uint32_t k = 0; k < RUNS; k++) {
    const hri_tensor like = p->job.tensors.items[p->job.runs.items[k].gradient];
    hri_place place = {.program = program,
                       .scope = (uint16_t)HRI_IN(program),
                       .tier = HRI_DEVICE,
                       .role = HRI_ROLE_INPUT,
                       .layer = -1,
                       .unit = HRI_NONE};
    hri_emit emit = {.program = program, .phase = HRI_PHASE_BACKWARD, .layer = 0, .unit = 1, .origin = HRI_NONE};
    p->inputs[k] =
        hri_tensor_new(&p->job, place, hri_name(&p->job, "input"), HRI_F32, like.rank, like.dims, like.stored);
    hri_node_append(&p->job, HRI_OP_ACCUMULATE, emit, NULL,
                    (hri_operand[]){HRI_R(p->inputs[k]),
                                    {p->job.runs.items[k].gradient, accumulate > 1 ? HRI_ADD : HRI_WRITE}},
                    2);
  }
  HOLDS(hri_job_ok(&p->job, error));
  HOLDS(hri_job_check(&p->job, error));
}

static const hri_param_range *range_of_part(const parts_job *p, uint32_t param, uint32_t part) {
  const hri_param *owner = &p->job.params.items[param];
  for (uint32_t r = 0; r < owner->range_count; r++) {
    const hri_param_range *range = &p->job.ranges.items[owner->range_begin + r];
    if (owner->part_begin + part >= range->part_begin &&
        owner->part_begin + part < range->part_begin + range->part_count)
      return range;
  }
  fail_msg("no range has part %u", part);
  return NULL;
}

/* What lies in segments: not a master that is whole while it is loaded. */
static uint64_t bytes_of_role(const hri_job *job, hri_role role) {
  uint64_t sum = 0;
  for (size_t s = 0; s < job->storages.count; s++) {
    const hri_storage *storage = &job->storages.items[s];
    if (!storage->dead && storage->role == role && storage->segment != HRI_NONE) sum += storage->bytes;
  }
  return sum;
}

static void parts_have_ranges_runs_and_segments(void **state) {
  static const uint64_t trained[] = {4 * 70, 4, 9 * 33, 6 * 50};
  parts_job p;
  uint64_t gradients = 0;
  (void)state;
  open_parts(&p, 2, true);
  HOLDS(hri_pass_layout(&p.job, false, error));
  HOLDS(hri_job_check(&p.job, error));
  assert_int_equal(p.job.ranges.count, 7); /* q k | v, twice; gate | up; out */
  for (uint32_t k = 0; k < PARAMS; k++) {
    uint32_t count;
    const hri_param_run *runs = hri_param_runs(&p.job, k, &count);
    const hri_tensor *weight = &p.job.tensors.items[p.job.params.items[k].weight];
    assert_int_equal(count, 1);
    assert_int_equal(hri_tensor_elements(&p.job.tensors.items[runs->gradient]), trained[k]);
    assert_int_equal(weight->dtype, weight->rank == 2 ? HRI_BF16 : HRI_F32);
    gradients += hri_round_up(trained[k], HRI_SEGMENT_ALIGN_ELEMENTS) * 4;
  }
  /* nothing is kept for frozen rows: momentum has one state, AdamW two */
  assert_int_equal(bytes_of_role(&p.job, HRI_ROLE_GRADIENT), gradients);
  assert_int_equal(bytes_of_role(&p.job, HRI_ROLE_OPTIMIZER_STATE), (2 * 512 + 2 * 256 + 512 + 2 * 512) * 4);
  assert_int_equal(bytes_of_role(&p.job, HRI_ROLE_MASTER_WEIGHT), (512 + 512 + 512) * 2); /* low halves */
  for (size_t r = 0; r < p.job.ranges.count; r++) {
    const hri_param_range *range = &p.job.ranges.items[r];
    const hri_param *param = &p.job.params.items[range->param];
    const hri_tensor *view = &p.job.tensors.items[range->weight], *weight = &p.job.tensors.items[param->weight];
    assert_int_equal(view->storage, weight->storage); /* a weight is one piece, whatever its parts */
    assert_int_equal(view->offset, weight->offset + range->first * hri_dtype_bytes((hri_dtype)weight->dtype));
    assert_int_equal(range->offset % HRI_SEGMENT_ALIGN_ELEMENTS, 0);
    assert_int_equal(range->gradient != HRI_NONE, p.job.parts.items[range->part_begin].trainable);
    for (uint32_t t = 0; t < HRI_STATE_TENSORS; t++)
      if (range->state[t] != HRI_NONE)
        assert_int_equal(p.job.tensors.items[range->state[t]].offset % (HRI_SEGMENT_ALIGN_ELEMENTS * 4), 0);
  }
  assert_int_equal(range_of_part(&p, QKV, 2)->segment, range_of_part(&p, OUT, 0)->segment);
  assert_int_not_equal(range_of_part(&p, QKV, 0)->segment, range_of_part(&p, QKV, 2)->segment);
  assert_int_not_equal(range_of_part(&p, GATE_UP, 1)->segment, range_of_part(&p, OUT, 0)->segment);
  assert_ptr_equal(range_of_part(&p, QKV, 0), range_of_part(&p, QKV, 1));
  for (size_t a = 0; a < p.job.storages.count; a++) /* names tell storages of one role apart */
    for (size_t b = 0; b < a; b++)
      if (!p.job.storages.items[a].dead && !p.job.storages.items[b].dead &&
          p.job.storages.items[a].segment != HRI_NONE && p.job.storages.items[b].segment != HRI_NONE)
        assert_string_not_equal(hri_name_get(&p.job, p.job.storages.items[a].key),
                                hri_name_get(&p.job, p.job.storages.items[b].key));
  hri_job_deinit(&p.job);
}

/* A step over the whole of it against the double reference of each part; frozen rows keep their bits. */
static void parts_are_updated_alone(void **state) {
  (void)state;
  for (int masters = 0; masters < 2; masters++) {
    const double rate = 0.05, limit = 2;
    hri_executor_options options = {.check = true};
    hri_update_options update = update_options;
    hri_transfer transfer;
    hri_placement placement;
    const hri_control start = {.loss_scale = 1, .clip_scale = 1, .clip_norm = limit, .learning_rate = rate};
    hri_backend *cpu;
    hr_device device;
    parts_job p;
    double square = 0, scale;
    open_parts(&p, 2, masters);
    update.clip = true;
    transfer = (hri_transfer){.context = &p.job, .fill = fill_parts};
    HOLDS(hri_pass_layout(&p.job, false, error));
    HOLDS(hri_pass_update(&p.job, &update, error));
    HOLDS(hri_job_check(&p.job, error));
    HOLDS(hr_device_find("cpu", &device, error));
    HOLDS(hri_backend_open(&device, 2, &cpu, error));
    HOLDS(hri_place_job(&p.job, HRI_CHECK_GUARD, &placement, error));
    HOLDS(hri_placement_verify(&p.job, &placement, error));
    HOLDS(hri_executor_create(&p.job, &placement, cpu, &transfer, &options, &p.executor, error));
    hri_executor_control_set(p.executor, 0, &start, sizeof start);
    HOLDS(hri_executor_run(p.executor, HRI_LOAD, error));
    HOLDS(hri_executor_run(p.executor, HRI_BEGIN, error));
    for (int micro = 0; micro < 2; micro++) {
      for (uint32_t k = 0; k < RUNS; k++)
        for (uint64_t i = 0; i < hri_tensor_elements(&p.job.tensors.items[p.inputs[k]]); i++) {
          float g = value(10 + k, i);
          ((float *)hri_executor_view(p.executor, p.inputs[k]))[i] = g;
          square += micro ? 4 * (double)g * (double)g : 0; /* both micro-steps add the same */
        }
      HOLDS(hri_executor_run(p.executor, HRI_MICRO, error));
    }
    HOLDS(hri_executor_run(p.executor, HRI_UPDATE, error));
    assert_true(fabs(hri_executor_control(p.executor)->grad_norm - sqrt(square)) <
                1e-6 * sqrt(square)); /* frozen rows and padding have no part in it */
    scale = limit / (sqrt(square) + 1e-6);
    for (size_t index = 0; index < p.job.ranges.count; index++) {
      const hri_param_range *r = &p.job.ranges.items[index];
      const hri_part *part = &p.job.parts.items[r->part_begin];
      const hri_optimizer *row = hri_optimizer_get(part->state_kind);
      const hri_tensor *weight = &p.job.tensors.items[r->weight];
      const void *got = hri_executor_view(p.executor, r->weight);
      double w[MOST], g[MOST], first[MOST] = {0}, second[MOST] = {0}, *const states[] = {first, second};
      hri_update_numbers numbers = {.learning_rate = rate,
                                    .weight_decay = part->decay ? 0.1 : 0,
                                    .gradient_scale = scale,
                                    .t = 1};
      memcpy(numbers.number, update.numbers[part->state_kind], sizeof numbers.number);
      for (uint64_t i = 0; i < r->elements; i++) {
        w[i] = (double)value(r->param, r->first + i);
        g[i] = 2 * (double)value(10 + r->param, i); /* run k is of parameter k, and begins where its range does */
      }
      if (part->trainable) hri_ref_update(part->state_kind, w, states, g, (int64_t)r->elements, &numbers);
      for (uint64_t i = 0; i < r->elements; i++) {
        bool narrow = weight->dtype == HRI_BF16, split = hri_range_split(&p.job, r);
        double is = split    ? (double)hri_join(((const hri_bf16 *)got)[i],
                                                ((const uint16_t *)hri_executor_view(p.executor, r->master))[i])
                    : narrow ? (double)hri_bf16_widen(((const hri_bf16 *)got)[i])
                             : (double)((const float *)got)[i];
        assert_int_equal(split, masters && narrow && part->trainable);
        if (!part->trainable)
          assert_true(is == (double)(narrow ? hri_bf16_widen(hri_bf16_round((float)w[i])) : (float)w[i]));
        else assert_true(fabs(is - w[i]) <= 1e-6 * (1 + fabs(w[i])));
        for (uint32_t t = 0; part->trainable && t < row->tensor_count; t++)
          assert_true(fabs((double)((const float *)hri_executor_view(p.executor, r->state[t]))[i] - states[t][i]) <=
                      1e-6 * (1e-3 + fabs(states[t][i])));
      }
    }
    hri_executor_destroy(p.executor);
    hri_placement_deinit(&placement);
    hri_backend_close(cpu);
    hri_job_deinit(&p.job);
  }
}

/* Inside the backward each range is updated behind the last node that touches its gradient, and frozen ones are not. */
static void ranges_are_updated_in_the_backward(void **state) {
  hri_update_options update = update_options;
  parts_job p;
  (void)state;
  open_parts(&p, 1, false);
  update.in_backward = true;
  HOLDS(hri_pass_layout(&p.job, true, error));
  HOLDS(hri_pass_update(&p.job, &update, error));
  HOLDS(hri_job_check(&p.job, error));
  const hri_order *order = &p.job.programs[HRI_STEP].order;
  assert_int_equal(order->count, 1 + 2 * RUNS);
  for (uint32_t k = 0; k < RUNS; k++) {
    const hri_node *add = &p.job.nodes.items[order->items[1 + 2 * k]],
                   *node = &p.job.nodes.items[order->items[2 + 2 * k]];
    const hri_param_range *r = &p.job.ranges.items[p.job.laid_out.items[node->attr.i[1]]];
    assert_int_equal(add->op, HRI_OP_ACCUMULATE);
    assert_int_equal(node->op, hri_optimizer_get(k == GATE_UP ? HR_OPTIMIZER_MOMENTUM : HR_OPTIMIZER_ADAMW)->op);
    assert_int_equal(r->param, k);
    assert_true(node->attr.f[HRI_STATE_NUMBERS] == (k == QKV || k == OUT ? 0.1 : 0));
    assert_int_equal(hri_operands(&p.job, node)[0].tensor, r->gradient);
    assert_int_equal(p.job.storages.items[p.job.tensors.items[r->gradient].storage].segment,
                     HRI_NONE); /* it dies alone */
  }
  hri_job_deinit(&p.job);
}

/* ---- parts and files ---- */

typedef struct stored {
  hr_model model;
  hr_job spec;
  hri_job job;
  hri_placement placement;
  hri_backend *cpu;
  hri_source source;
  hri_sink sink;
  hri_transfer transfer;
  hri_executor *executor;
} stored;

static hr_status fill_stored(void *context, uint32_t range, uint32_t what, const hri_window *tensor, void *staging,
                             uint64_t bytes, hr_error *error) {
  return hri_source_fill(&((stored *)context)->source, range, what, tensor, staging, bytes, error);
}
static hr_status sink_stored(void *context, uint32_t range, uint32_t what, const hri_window *tensor, void *staging,
                             uint64_t bytes, hr_error *error) {
  return hri_sink_write(&((stored *)context)->sink, range, what, tensor, staging, bytes, error);
}

/* Load and save of a small llama in bf16 with masters; with `parts` only q, v, up and the embedding are trained. */
static void open_stored(stored *s, bool parts, const char *directory) {
  char states[512];
  hr_device device;
  memset(s, 0, sizeof *s);
  HOLDS(hr_model_open("micro-llama-bytes", &s->model, error));
  hr_job_init(&s->spec);
  hri_job_init(&s->job);
  hri_build_control(&s->job, hri_programs_of(&s->spec));
  for (uint32_t k = 0; k < hri_param_count(&s->model); k++) {
    hri_part_request requests[HRI_PARAM_PARTS];
    hri_param_spec spec;
    hri_param_get(&s->model, k, &spec);
    for (uint32_t i = 0; i < spec.part_count; i++) {
      bool trained = strstr(spec.parts[i].name, "q_proj") || strstr(spec.parts[i].name, "v_proj") ||
                     strstr(spec.parts[i].name, "up_proj") || strstr(spec.parts[i].name, "embed");
      requests[i] = (hri_part_request){.name = spec.parts[i].name,
                                       .row = spec.parts[i].row,
                                       .rows = spec.parts[i].rows,
                                       .trainable = trained || !parts,
                                       .decay = spec.decay};
    }
    hri_param_request request = {.name = spec.name,
                                 .layer = spec.layer,
                                 .unit = spec.unit,
                                 .rank = spec.rank,
                                 .dims = {spec.dims[0], spec.dims[1]},
                                 .stored = {spec.dims[0], spec.dims[1]},
                                 .parts = requests,
                                 .part_count = spec.part_count,
                                 .init = spec.init,
                                 .init_std = spec.init_std,
                                 .spec = k};
    if (spec.slot == HRI_SLOT_TOKEN_EMBEDDING) request.stored[0] = hri_round_up(spec.dims[0], HRI_VOCABULARY_ALIGN);
    assert_int_equal(hri_build_parameter(&s->job, &s->spec, &request), k);
  }
  HOLDS(hri_pass_precision(&s->job, &(hri_precision_options){.masters = true, .narrow = HRI_BF16, .head = HRI_NONE},
                           error));
  hri_build_transfers(&s->job, true, false, HRI_DEVICE);
  hri_build_transfers(&s->job, false, false, HRI_DEVICE);
  HOLDS(hri_pass_layout(&s->job, false, error));
  HOLDS(hri_job_check(&s->job, error));
  HOLDS(hr_device_find("cpu", &device, error));
  HOLDS(hri_backend_open(&device, 2, &s->cpu, error));
  (void)snprintf(states, sizeof states, "%s/optimizer.safetensors", directory ? directory : "");
  HOLDS(hri_source_open(&s->source, &s->model, &s->job, &s->cpu->elements, directory, directory ? states : NULL, 7,
                        error));
  s->transfer = (hri_transfer){.context = s, .fill = fill_stored, .sink = sink_stored};
  HOLDS(hri_place_job(&s->job, HRI_CHECK_GUARD, &s->placement, error));
  HOLDS(hri_executor_create(&s->job, &s->placement, s->cpu, &s->transfer, &(hri_executor_options){.check = true},
                            &s->executor, error));
  HOLDS(hri_executor_run(s->executor, HRI_LOAD, error));
}

static void close_stored(stored *s) {
  hri_executor_destroy(s->executor);
  hri_placement_deinit(&s->placement);
  hri_source_close(&s->source);
  hri_backend_close(s->cpu);
  hri_job_deinit(&s->job);
}

static void same_bytes(const stored *a, hri_id x, const stored *b, hri_id y) {
  const hri_tensor *t = &a->job.tensors.items[x];
  assert_int_equal(hri_tensor_bytes(t), hri_tensor_bytes(&b->job.tensors.items[y]));
  if (memcmp(hri_executor_view(a->executor, x), hri_executor_view(b->executor, y), hri_tensor_bytes(t)) != 0)
    fail_msg("%s differs", hri_name_get(&a->job, t->key));
}

/* A part's values do not depend on what it is trained with: neither those from the seed, nor those from files. */
static void parts_are_stored_under_their_names(void **state) {
  const char *out = scratch_make("parts");
  hri_carry carry = {.dtype = HRI_FILE_F32};
  hri_sink_options options = {.carry = &carry, .dtype = HRI_FILE_F32, .states = true};
  stored whole, parts, again;
  uint32_t found = 0;
  (void)state;
  open_stored(&whole, false, NULL);
  open_stored(&parts, true, NULL);
  assert_true(parts.job.ranges.count > whole.job.ranges.count);
  for (size_t k = 0; k < whole.job.params.count; k++)
    same_bytes(&whole, whole.job.params.items[k].weight, &parts, parts.job.params.items[k].weight);
  for (size_t r = 0; r < parts.job.ranges.count; r++)
    for (uint32_t t = 0; t < HRI_STATE_TENSORS && parts.job.ranges.items[r].state[t] != HRI_NONE; t++) {
      const hri_tensor *tensor = &parts.job.tensors.items[parts.job.ranges.items[r].state[t]];
      for (uint64_t i = 0; i < hri_tensor_elements(tensor); i++)
        ((float *)hri_executor_view(parts.executor, parts.job.ranges.items[r].state[t]))[i] = value(r * 4 + t, i);
    }
  HOLDS(hri_sink_open(&parts.sink, &parts.model, &parts.job, &parts.cpu->elements, out, &options, error));
  HOLDS(hri_executor_run(parts.executor, HRI_SAVE, error));
  HOLDS(hri_sink_finish(&parts.sink, NULL, error));
  hri_sink_abort(&parts.sink);
  open_stored(&again, true, out);
  for (size_t k = 0; k < parts.job.params.count; k++)
    same_bytes(&parts, parts.job.params.items[k].weight, &again, again.job.params.items[k].weight);
  for (size_t r = 0; r < parts.job.ranges.count; r++) {
    const hri_param_range *a = &parts.job.ranges.items[r], *b = &again.job.ranges.items[r];
    if (a->master != HRI_NONE) same_bytes(&parts, a->master, &again, b->master);
    for (uint32_t t = 0; t < HRI_STATE_TENSORS && a->state[t] != HRI_NONE; t++)
      same_bytes(&parts, a->state[t], &again, b->state[t]);
  }
  for (uint32_t i = 0; i < hri_weights_count(again.source.states); i++) {
    const hri_safetensor *t = hri_weights_get(again.source.states, i);
    found += strcmp(t->name, "model.layers.0.self_attn.v_proj.weight.exp_avg_sq") == 0 && t->rank == 2;
    found += strcmp(t->name, "token_embedding.weight.exp_avg") == 0; /* all of a parameter: by our name, as ever */
    assert_null(strstr(t->name, "k_proj"));
  }
  assert_int_equal(found, 2);
  close_stored(&again);
  close_stored(&parts);
  close_stored(&whole);
  scratch_remove(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_optimizer_has_a_row_that_fits_its_op),
      cmocka_unit_test(entries_are_shared_by_blocks),
      cmocka_unit_test(parts_have_ranges_runs_and_segments),
      cmocka_unit_test(parts_are_updated_alone),
      cmocka_unit_test(ranges_are_updated_in_the_backward),
      cmocka_unit_test(parts_are_stored_under_their_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
