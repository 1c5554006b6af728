/* The precision pass (docs/decisions/0003-precision-and-packing.md): which types everything has afterwards, node by
 * node, how many bytes that makes for each role, and that the rules notice a type that is wrong. Compiled for a table
 * device: no kernel runs here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/field.h>
#include <headroom/graph.h>

#include "job/job.h"
#include "model/build.h"
#include "plan/plan.h"
#include "program/check.h"

/* ---- jobs ---- */

typedef struct setting {
  const char *model;
  hr_precision precision;
  hr_moments moments;
  uint32_t accumulate, loss_chunk;
  hr_optimizer optimizer;
  hr_purpose purpose;
  bool materialized;
} setting;

static void must(hr_status status, const hr_error *error) {
  if (status != HR_OK) fail_msg("%s: %s (%s)", hr_status_name(status), error->message, error->hint);
}

static hr_plan *plan_of(const setting *s) {
  static const hri_compile_options options = {.check_each = true};
  hr_plan *plan = NULL;
  hr_error error = {0};
  hr_job job;
  hr_job_init(&job);
  must(hr_model_open(s->model, &job.model, &error), &error);
  must(hr_device_find("h100", &job.device, &error), &error);
  job.sequence_length = 64;
  job.micro_batch = 2;
  job.purpose = s->purpose;
  job.accumulate = s->accumulate ? s->accumulate : 1;
  job.precision = s->precision;
  job.moments = s->moments;
  job.optimizer = s->optimizer;
  job.loss_chunk = s->loss_chunk ? s->loss_chunk : HR_LOSS_CHUNK_OFF;
  job.attention = s->materialized ? HR_ATTENTION_MATERIALIZED : HR_ATTENTION_FLASH;
  must(hr_job_finish(&job, &error), &error);
  must(hri_plan_create(&job, &options, &plan, &error), &error);
  return plan;
}

static const char *const shapes[] = {
    "micro-gpt2-bytes",  /* tied, biases */
    "micro-llama-bytes", /* tied */
    "custom:family=llama,layers=2,hidden=48,heads=4,kv-heads=2,mlp=80,vocab=300,positions=128,tied=false",
    "micro-gemma2-bytes",
    "custom:family=gemma3_text,layers=2,hidden=48,heads=4,kv-heads=2,mlp=80,vocab=300,positions=128",
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static uint8_t type_at(const hri_job *job, const hri_node *node, uint32_t operand) {
  hri_id id = hri_operands(job, node)[operand].tensor;
  return id == HRI_NONE ? (uint8_t)HRI_DTYPE_COUNT : job->tensors.items[id].dtype;
}

/* ---- nodes ---- */

/* What an operand of an op is with --precision bf16: n bf16 (fp16 with fp16), w fp32, g the type of a
 * gradient, l bf16 but for the logits that generation hands out; - something else. As long as the op's operands. */
static const struct {
  uint16_t op;
  const char *types;
} types_of[] = {
    {HRI_OP_EMBED, "-n-nn"},
    {HRI_OP_EMBED_BACKWARD, "-nw"},
    {HRI_OP_LINEAR, "nnwl"},
    {HRI_OP_LINEAR_DX, "nnn"},
    {HRI_OP_LINEAR_DW, "nng"},
    {HRI_OP_BIAS_GRADIENT, "nw"},
    {HRI_OP_NORM, "nwwnnnw"},
    {HRI_OP_NORM_BACKWARD, "nnwwnnww"},
    {HRI_OP_ADD, "nnn"},
    {HRI_OP_ACTIVATION, "nn"},
    {HRI_OP_ACTIVATION_BACKWARD, "nnn"},
    {HRI_OP_GLU, "nn"},
    {HRI_OP_GLU_BACKWARD, "nnn"},
    {HRI_OP_ROPE, "n-wn"},
    {HRI_OP_ROPE_TABLE, "w"},
    {HRI_OP_ATTENTION, "n-nw-"},
    {HRI_OP_ATTENTION_BACKWARD, "nnnw-n-"},
    {HRI_OP_ATTENTION_FULL, "n-nn-"},
    {HRI_OP_ATTENTION_FULL_BACKWARD, "nnn-n-"},
    {HRI_OP_ATTENTION_CACHED, "nnn-n"},
    {HRI_OP_CROSS_ENTROPY, "n--nw"},
    {HRI_OP_LOSS_SUM, "w-"},
    {HRI_OP_HEAD_NORM, "nwwnw"},
    {HRI_OP_HEAD_NORM_BACKWARD, "nnwwwnww"},
    {HRI_OP_SOFTCAP, "ww"},
};

static bool holds(char want, uint8_t type, hr_precision precision) {
  bool pure = precision == HR_PRECISION_BF16_PURE;
  if (want == '-' || type == HRI_DTYPE_COUNT) return true;
  if (precision == HR_PRECISION_FP32 || want == 'w') return type == HRI_F32;
  if (want == 'g') return type == HRI_F32 || (pure && type == HRI_BF16);
  return type == (precision == HR_PRECISION_FP16 ? HRI_F16 : HRI_BF16);
}

/* How many operands of this op were looked at. */
static uint32_t check_node(const hri_job *job, const hri_node *node, hr_precision precision) {
  for (size_t k = 0; k < sizeof types_of / sizeof *types_of; k++) {
    if (types_of[k].op != node->op) continue;
    assert_int_equal(strlen(types_of[k].types), strlen(hri_rule_get(node->op)->operands));
    for (uint32_t i = 0; i < node->operand_count && types_of[k].types[i]; i++) { /* scratch stands behind */
      char want = types_of[k].types[i];
      hri_id id = hri_operands(job, node)[i].tensor;
      if (want == 'l') {
        bool sampled = (node->program == HRI_PREFILL || node->program == HRI_DECODE) &&
                       job->storages.items[job->tensors.items[id].storage].role == HRI_ROLE_LOGITS;
        want = sampled ? 'w' : 'n';
      }
      if (!holds(want, type_at(job, node, i), precision))
        fail_msg("%s: operand %u of %s is %s", hr_precision_name(precision), i, hri_op_name(node->op),
                 hri_dtype_name(type_at(job, node, i)));
    }
    return node->operand_count;
  }
  return 0;
}

static void test_types_of_all_operands(void **state) {
  uint32_t looked_at = 0;
  (void)state;
  for (uint32_t k = 0; k < SHAPES * 4 * 3 * 2 * 2; k++) {
    setting s = {.model = shapes[k % SHAPES],
                 .precision = (hr_precision)(k / SHAPES % 4),
                 .purpose = (hr_purpose)(k / SHAPES / 4 % 3),
                 .accumulate = k / SHAPES / 12 % 2 ? 4 : 1,
                 .materialized = k / SHAPES / 24 % 2};
    hr_plan *plan = plan_of(&s);
    const hri_job *job = &plan->job;
    for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
      for (size_t at = 0; at < job->programs[kind].order.count; at++)
        looked_at += check_node(job, &job->nodes.items[job->programs[kind].order.items[at]], s.precision);
    hr_plan_destroy(plan);
  }
  assert_true(looked_at > 10000);
}

/* ---- parameters ---- */

/* In bf16-pure: the gradient is written once, by one product. */
static bool narrow_gradient(const setting *s, const hr_plan *plan, const hri_param *param) {
  const char *name = hri_name_get(&plan->job, param->key);
  bool embedding = strstr(name, "embed") != NULL,
       head = strstr(name, "head") != NULL || (embedding && plan->spec.model.tied_embeddings);
  uint32_t rows = plan->spec.micro_batch * plan->spec.sequence_length;
  if (s->precision != HR_PRECISION_BF16_PURE || s->accumulate > 1 || embedding) return false;
  return !head || hri_loss_chunk(&plan->spec) >= rows;
}

static void check_param(const setting *s, const hr_plan *plan, const hri_param *param) {
  const hri_param_range *whole = hri_param_whole(&plan->job, param);
  const hri_tensor *t = plan->job.tensors.items;
  const char *name = hri_name_get(&plan->job, param->key);
  bool matrix = t[param->weight].rank == 2, narrow = matrix && s->precision != HR_PRECISION_FP32;
  uint8_t state = narrow && s->moments == HR_MOMENTS_BF16 ? HRI_BF16 : HRI_F32,
          gradient = matrix && narrow_gradient(s, plan, param) ? HRI_BF16 : HRI_F32;
  if (t[param->weight].dtype != (!narrow ? HRI_F32 : s->precision == HR_PRECISION_FP16 ? HRI_F16 : HRI_BF16))
    fail_msg("%s: weight %s is %s", s->model, name, hri_dtype_name(t[param->weight].dtype));
  if ((whole->master != HRI_NONE) !=
      (narrow && s->precision != HR_PRECISION_BF16_PURE && s->purpose == HR_PURPOSE_TRAIN))
    fail_msg("%s: the master of %s", s->model, name);
  if (whole->master != HRI_NONE) {
    assert_int_equal(t[whole->master].dtype, s->precision == HR_PRECISION_BF16 ? HRI_F32_LOW : HRI_F32);
    assert_int_equal(hri_tensor_stored_elements(&t[whole->master]), hri_tensor_stored_elements(&t[param->weight]));
    assert_int_equal(plan->job.storages.items[t[whole->master].storage].role, HRI_ROLE_MASTER_WEIGHT);
  }
  if (s->purpose != HR_PURPOSE_TRAIN) return;
  if (t[whole->gradient].dtype != gradient)
    fail_msg("%s, accumulate %u, %s: the gradient of %s is %s", s->model, s->accumulate,
             hr_precision_name(s->precision), name, hri_dtype_name(t[whole->gradient].dtype));
  for (int k = 0; k < HRI_STATE_TENSORS; k++)
    if (whole->state[k] != HRI_NONE && t[whole->state[k]].dtype != state)
      fail_msg("%s: state %d of %s is %s", s->model, k, name, hri_dtype_name(t[whole->state[k]].dtype));
}

/* Bytes of the storages in which parameters' tensors of one sort lie. A segment is as long as its parameters, each
 * padded. */
static uint64_t role_bytes(const hri_job *job, hri_role role) {
  uint64_t sum = 0;
  for (size_t k = 0; k < job->storages.count; k++) {
    const hri_storage *storage = &job->storages.items[k];
    if (!storage->dead && storage->role == role && storage->segment != HRI_NONE) sum += storage->bytes;
  }
  return sum;
}

static uint64_t expected_bytes(const hri_job *job, hri_id tensor, uint64_t elements) {
  return tensor == HRI_NONE ? 0 : elements * hri_dtype_bytes((hri_dtype)job->tensors.items[tensor].dtype);
}

static void check_bytes(const setting *s, const hri_job *job) {
  uint64_t weight = 0, master = 0, gradient = 0, states = 0;
  for (size_t p = 0; p < job->params.count; p++) {
    const hri_param *param = &job->params.items[p];
    const hri_param_range *whole = hri_param_whole(job, param);
    uint64_t elements = hri_round_up(param->elements, HRI_SEGMENT_ALIGN_ELEMENTS);
    weight += expected_bytes(job, param->weight, elements);
    master += expected_bytes(job, whole->master, elements);
    gradient += expected_bytes(job, whole->gradient, elements);
    for (int k = 0; k < HRI_STATE_TENSORS; k++) states += expected_bytes(job, whole->state[k], elements);
  }
  assert_int_equal(role_bytes(job, HRI_ROLE_WEIGHT), weight);
  assert_int_equal(role_bytes(job, HRI_ROLE_MASTER_WEIGHT), master);
  assert_int_equal(role_bytes(job, HRI_ROLE_GRADIENT), gradient);
  assert_int_equal(role_bytes(job, HRI_ROLE_OPTIMIZER_STATE), states);
  assert_true((master > 0) == (s->precision == HR_PRECISION_BF16 || s->precision == HR_PRECISION_FP16));
}

static void test_types_and_bytes_of_all_parameters(void **state) {
  (void)state;
  for (uint32_t k = 0; k < SHAPES * 5 * 2 * 2 * 3; k++) {
    static const hr_precision precisions[] = {HR_PRECISION_FP32, HR_PRECISION_BF16, HR_PRECISION_BF16_PURE,
                                              HR_PRECISION_BF16_PURE, HR_PRECISION_FP16};
    uint32_t precision = k / SHAPES % 5;
    setting s = {.model = shapes[k % SHAPES],
                 .precision = precisions[precision],
                 .moments = precision == 3 ? HR_MOMENTS_BF16 : HR_MOMENTS_FP32,
                 .accumulate = k / SHAPES / 5 % 2 ? 4 : 1,
                 .loss_chunk = k / SHAPES / 10 % 2 ? 16 : 0,
                 .optimizer = (hr_optimizer)(k / SHAPES / 20)};
    hr_plan *plan = plan_of(&s);
    for (size_t p = 0; p < plan->job.params.count; p++) check_param(&s, plan, &plan->job.params.items[p]);
    check_bytes(&s, &plan->job);
    hr_plan_destroy(plan);
  }
}

/* Bytes per parameter of GPT-2 124M, vectors and padding included, as the documents state them. */
static void test_bytes_per_parameter(void **state) {
  static const struct {
    setting s;
    double low, high;
  } cases[] = {
      {{.accumulate = 2}, 16, 16.1},
      {{.precision = HR_PRECISION_BF16, .accumulate = 2}, 16, 16.1}, /* 2 + 2 + 4 + 8 */
      {{.precision = HR_PRECISION_BF16}, 16, 16.1},
      {{.precision = HR_PRECISION_FP16}, 18, 18.1},                       /* 2 + 4 + 4 + 8 */
      {{.precision = HR_PRECISION_BF16_PURE, .accumulate = 2}, 14, 14.1}, /* 2 + 4 + 8 */
      {{.precision = HR_PRECISION_BF16_PURE}, 12, 13}, /* but for the embeddings' gradient 2 + 2 + 8 */
      {{.precision = HR_PRECISION_BF16_PURE, .moments = HR_MOMENTS_BF16, .accumulate = 2}, 10, 10.1}, /* 2 + 4 + 4 */
      {{.precision = HR_PRECISION_BF16_PURE, .moments = HR_MOMENTS_BF16}, 8, 9},
  };
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    setting s = cases[k].s;
    hr_plan *plan;
    double bytes;
    s.model = "gpt2-124m";
    plan = plan_of(&s);
    bytes = (double)(role_bytes(&plan->job, HRI_ROLE_WEIGHT) + role_bytes(&plan->job, HRI_ROLE_MASTER_WEIGHT) +
                     role_bytes(&plan->job, HRI_ROLE_GRADIENT) + role_bytes(&plan->job, HRI_ROLE_OPTIMIZER_STATE)) /
            (double)plan->info.parameter_count;
    print_message("%s, moments %s, accumulate %u: %.2f bytes per parameter\n", hr_precision_name(s.precision),
                  hr_moments_name(s.moments), plan->spec.accumulate, bytes);
    if (bytes < cases[k].low || bytes > cases[k].high)
      fail_msg("%.3f bytes per parameter, wanted %g to %g", bytes, cases[k].low, cases[k].high);
    hr_plan_destroy(plan);
  }
}

/* Evaluation and generation hold the weights once, and a cache of half the size. */
static void test_inference_holds_no_masters(void **state) {
  (void)state;
  for (int purpose = HR_PURPOSE_EVALUATE; purpose <= HR_PURPOSE_GENERATE; purpose++) {
    uint64_t weights[4], cache[4];
    for (int precision = 0; precision < 4; precision++) {
      setting s = {.model = "gpt2-124m", .precision = (hr_precision)precision, .purpose = (hr_purpose)purpose};
      hr_plan *plan = plan_of(&s);
      weights[precision] = role_bytes(&plan->job, HRI_ROLE_WEIGHT);
      cache[precision] = plan->info.tiers[HR_TIER_DEVICE].max_by_role[HRI_ROLE_CACHE];
      for (size_t p = 0; p < plan->job.params.count; p++) check_param(&s, plan, &plan->job.params.items[p]);
      hr_plan_destroy(plan);
    }
    assert_int_equal(weights[1], weights[2]);
    assert_true(weights[3] == weights[1] && cache[3] == cache[1]);
    assert_true(weights[1] > weights[0] / 2 && weights[1] < weights[0] / 2 + weights[0] / 500); /* vectors stay fp32 */
    assert_int_equal(cache[1], cache[2]);
    assert_int_equal(2 * cache[1], cache[0]);
    assert_true((cache[0] > 0) == (purpose == HR_PURPOSE_GENERATE));
  }
}

/* ---- frozen parameters ---- */

/* They become bf16 or fp16 like others and have neither master, gradient nor states: nothing will ever change them. */
static void test_frozen_matrices_have_no_master(void **state) {
  (void)state;
  for (int precision = 0; precision < 4; precision++) {
    hr_graph *g;
    const uint8_t type = precision == HR_PRECISION_FP32 ? HRI_F32 : precision == HR_PRECISION_FP16 ? HRI_F16 : HRI_BF16;
    hr_plan *plan = NULL;
    hr_error error = {0};
    hr_job job;
    hr_tensor ids, targets, table, frozen, bias, x, head;
    const hri_param *params;
    must(hr_graph_create(&g, &error), &error);
    ids = hr_graph_input(g, "ids", 12);
    targets = hr_graph_input(g, "targets", 12);
    table = hr_graph_frozen(g, "table", 9, 8, 0.5);
    frozen = hr_graph_frozen(g, "frozen", 8, 8, 0.5);
    bias = hr_graph_parameter(g, "bias", 8, 0, 0, false);
    head = hr_graph_parameter(g, "head", 9, 8, 0.5, true);
    x = hr_graph_linear(g, hr_graph_embed(g, ids, table), frozen, bias);
    hr_graph_loss(g, x, head, targets);
    hr_job_init(&job);
    must(hr_device_find("h100", &job.device, &error), &error);
    job.precision = (hr_precision)precision;
    must(hr_graph_plan(g, &job, &plan, &error), &error);
    params = plan->job.params.items; /* in the order in which the graph got them */
    assert_int_equal(plan->job.params.count, 4);
    for (int p = 0; p < 2; p++) {
      assert_int_equal(plan->job.tensors.items[params[p].weight].dtype, type);
      assert_int_equal(hri_param_whole(&plan->job, &params[p])->master, HRI_NONE);
      assert_false(params[p].trainable);
    }
    assert_int_equal(plan->job.tensors.items[params[2].weight].dtype, HRI_F32);
    assert_int_equal(hri_param_whole(&plan->job, &params[2])->master, HRI_NONE);
    assert_int_equal(plan->job.tensors.items[params[3].weight].dtype, type);
    assert_true((hri_param_whole(&plan->job, &params[3])->master != HRI_NONE) ==
                (precision == HR_PRECISION_BF16 || precision == HR_PRECISION_FP16));
    hr_plan_destroy(plan);
    hr_graph_destroy(g);
  }
}

/* ---- masters in halves on their way to and from files ---- */

/* Whole masters beside bf16 copies, as runs had them before, took two bytes of each element more in every program. Loading and
 * saving make one of them whole again, and must stay within what those took. */
static void assert_within_older(const hr_plan *plan, const char *what) {
  uint64_t halves = 0, staging = 0, moving, others;
  uint32_t count;
  hr_sample *samples;
  hr_error error = {0};
  const hri_job *job = &plan->job;
  for (size_t r = 0; r < job->ranges.count; r++) {
    const hri_param_range *range = &job->ranges.items[r];
    const bool split = hri_range_split(job, range);
    const uint64_t bytes = hri_tensor_bytes(&job->tensors.items[range->weight]),
                   piece = hri_staging_bytes(split ? 2 * bytes : bytes, job->team);
    if (split) halves += bytes;
    if (piece > staging) staging = piece;
  }
  assert_true(halves > 0);
  for (uint32_t tier = 0; tier < 2; tier++) {
    if (hr_plan_samples(plan, tier, &samples, &count, &error) != HR_OK) continue; /* a tier of other jobs */
    moving = 0;
    others = tier == 0 ? 0 : staging; /* all that the host has of them, beside a card */
    for (uint32_t k = 0; k < count; k++) {
      const bool moves = strcmp(samples[k].program, "load") == 0 || strcmp(samples[k].program, "save") == 0;
      uint64_t *most = moves ? &moving : &others;
      if (samples[k].live_bytes > *most) *most = samples[k].live_bytes;
    }
    hr_free(samples);
    assert_true(tier > 0 || (moving > 0 && others > 0));
    if (moving > others + (tier == 0 ? halves : 0))
      fail_msg("%s: tier %u: files take %llu bytes, a step %llu, and halves save %llu", what, tier,
               (unsigned long long)moving, (unsigned long long)others, (unsigned long long)halves);
  }
}

static void test_files_take_no_more_than_whole_masters_did(void **state) {
  static const char *const models[] =
      {"micro-gpt2-bytes",
       "micro-llama-bytes",
       "gpt2-124m",
       "qwen2.5-0.5b",
       "custom:family=llama,layers=1,hidden=64,heads=2,mlp=64,vocab=200000",
       "custom:family=llama,layers=1,hidden=64,heads=2,mlp=64,vocab=4000"}; /* nearly all of it is one matrix */
  static const struct {
    const char *names[4], *values[4];
  } jobs[] = {{{"optimizer"}, {"adamw"}},
              {{"optimizer"}, {"sgd"}},
              {{"optimizer", "update", "clip"}, {"sgd", "in-backward", "0"}},
              {{"optimizer", "accumulate"}, {"lion", "3"}},
              {{"optimizer", "train-only"}, {"sgd", "embed"}},
              {{"optimizer", "train-only"}, {"adafactor", "layers.0"}},
              {{"optimizer", "device", "threads"}, {"sgd", "cpu", "2"}},
              {{"optimizer", "device", "train-only", "loss-chunk"}, {"sgd", "cpu", "embed", "16"}},
              {{"optimizer", "loss-chunk", "micro-batch"}, {"sgd", "16", "1"}}};
  uint32_t planned = 0;
  (void)state;
  for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
    for (size_t j = 0; j < sizeof jobs / sizeof *jobs; j++) {
      hr_plan *plan = NULL;
      hr_error error = {0};
      hr_job job;
      hr_job_init(&job);
      must(hr_model_open(models[m], &job.model, &error), &error);
      must(hr_device_find("h100", &job.device, &error), &error);
      must(hr_job_set(&job, "precision", "bf16", &error), &error);
      must(hr_job_set(&job, "seq", "16", &error), &error);
      for (size_t k = 0; k < 4 && jobs[j].names[k]; k++)
        must(hr_job_set(&job, jobs[j].names[k], jobs[j].values[k], &error), &error);
      must(hr_job_finish(&job, &error), &error);
      must(hri_plan_create(&job, NULL, &plan, &error), &error);
      assert_within_older(plan, models[m]);
      hr_plan_destroy(plan);
      planned++;
    }
  }
  assert_int_equal(planned, sizeof models / sizeof *models * (sizeof jobs / sizeof *jobs));
}

/* ---- the rules notice ---- */

/* Each tensor of the first node of an op turned into the other type, one at a time: some rule refuses it. */
static void test_a_wrong_type_is_noticed(void **state) {
  static const uint16_t ops[] = {HRI_OP_LINEAR, HRI_OP_LINEAR_DX, HRI_OP_LINEAR_DW,     HRI_OP_NORM, HRI_OP_ATTENTION,
                                 HRI_OP_GLU,    HRI_OP_ROPE,      HRI_OP_CROSS_ENTROPY, HRI_OP_ADAMW};
  setting s = {.model = "micro-llama-bytes", .precision = HR_PRECISION_BF16};
  (void)state;
  for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
    hr_plan *plan = plan_of(&s);
    hri_job *job = &plan->job;
    const hri_program *p = &job->programs[HRI_STEP];
    hr_error error = {0};
    uint32_t tried = 0;
    for (size_t at = 0; at < p->order.count && tried == 0; at++) {
      const hri_node *node = &job->nodes.items[p->order.items[at]];
      if (node->op != ops[o]) continue;
      for (uint32_t i = 0; i < node->operand_count; i++) {
        hri_id id = hri_operands(job, node)[i].tensor;
        uint8_t type = id == HRI_NONE ? (uint8_t)HRI_U8 : job->tensors.items[id].dtype;
        bool gradient =
            (node->op == HRI_OP_LINEAR_DW && i == 2) || (node->op == HRI_OP_ADAMW && i == 0); /* legal in either type */
        if ((type != HRI_F32 && type != HRI_BF16) || gradient) continue;
        job->tensors.items[id].dtype = type == HRI_F32 ? HRI_BF16 : HRI_F32;
        if (hri_job_check(job, &error) == HR_OK)
          fail_msg("operand %u of %s may be %s", i, hri_op_name(node->op),
                   hri_dtype_name(job->tensors.items[id].dtype));
        job->tensors.items[id].dtype = type;
        tried++;
      }
    }
    assert_true(tried >= 2);
    must(hri_job_check(job, &error), &error); /* and back, all is well */
    hr_plan_destroy(plan);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_types_of_all_operands),
      cmocka_unit_test(test_types_and_bytes_of_all_parameters),
      cmocka_unit_test(test_bytes_per_parameter),
      cmocka_unit_test(test_inference_holds_no_masters),
      cmocka_unit_test(test_frozen_matrices_have_no_master),
      cmocka_unit_test(test_files_take_no_more_than_whole_masters_did),
      cmocka_unit_test(test_a_wrong_type_is_noticed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
