/* Same bits (architecture.md section 5, promise 4): one test per row of the promise. A small model is trained for some
 * steps on packed rows of odd length; what a memory technique, another placement, another legal order of execution or
 * another team leaves behind in the weights, the optimizer states and the losses must be the same to the last bit.
 *
 * The first two tests show that the comparison can fail: other data or another chunk of the loss gives other bits.
 *
 * All of it for each precision, and for bf16 at each instruction level: levels and precisions are held to themselves,
 * not to each other. A backend reads the level from the environment, so each regime runs in a child of its own. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "backend/cpu/cpu.h"
#include "support/scratch.h"
#include "train/session.h"

enum { SEQUENCE = 37, MICRO_BATCH = 3, STEPS = 6, SHORT_STEPS = 3 };

/* What everything is tested for. */
typedef struct regime {
  const char *name;
  hr_precision precision;
  hr_moments moments;
  const char *isa; /* HEADROOM_ISA; NULL: the best */
  bool in_short;   /* fewer steps, orders and rows: where another regime has shown the same of the passes */
  bool emulated;   /* smaller still, and by its name alone: an emulated processor takes a hundred times as long */
} regime;

static const regime regimes[] = {
    {.name = "fp32"},
    {.name = "bf16", .precision = HR_PRECISION_BF16},
    {.name = "bf16-pure, bf16 moments", .precision = HR_PRECISION_BF16_PURE, .moments = HR_MOMENTS_BF16},
    {.name = "bf16-pure", .precision = HR_PRECISION_BF16_PURE, .in_short = true},
    {.name = "bf16, avx512", .precision = HR_PRECISION_BF16, .isa = "avx512", .in_short = true},
    {.name = "bf16-pure, avx512", .precision = HR_PRECISION_BF16_PURE, .isa = "avx512", .in_short = true},
    {.name = "bf16, avx2", .precision = HR_PRECISION_BF16, .isa = "avx2", .in_short = true},
    {.name = "bf16-pure, bf16 moments, avx2",
     .precision = HR_PRECISION_BF16_PURE,
     .moments = HR_MOMENTS_BF16,
     .isa = "avx2",
     .in_short = true},
    {.name = "fp16", .precision = HR_PRECISION_FP16},
    {.name = "fp16, avx2", .precision = HR_PRECISION_FP16, .isa = "avx2", .in_short = true},
    {.name = "fp16, base", .precision = HR_PRECISION_FP16, .isa = "base", .in_short = true},
    {.name = "bf16, base", .precision = HR_PRECISION_BF16, .isa = "base", .in_short = true},
    {.name = "bf16-pure, base", .precision = HR_PRECISION_BF16_PURE, .isa = "base", .in_short = true},
    {.name = "bf16-emulated", .precision = HR_PRECISION_BF16, .in_short = true, .emulated = true},
};
static const regime *now = &regimes[0];

/* In what way the nodes of a program are executed; all respect lane order and waits. */
typedef enum order_kind { ORDER_ISSUE = 0, ORDER_RANDOM, ORDER_COPIES_EARLY, ORDER_COPIES_LATE } order_kind;

/* Where storages lie. */
typedef enum place_kind { PLACE_PLANNED = 0, PLACE_APART, PLACE_APART_REVERSED } place_kind;

typedef struct variant {
  const char *model;
  const char *recompute; /* NULL: none */
  uint32_t accumulate, threads, layers;
  uint32_t sequence, micro_batch, steps;
  uint32_t loss_chunk;
  uint64_t data_seed, order_seed;
  order_kind order;
  place_kind place;
  bool in_backward, check, clip, skip;
  bool drawn;        /* dropout, noise on the embeddings, smoothed labels */
  bool by_place;     /* the dropout is what the model asks for, in all places alike */
  bool ignore_waits; /* breaks the rules, to show that orders matter */
  hr_optimizer optimizer;
  hr_weight_packing weight_packing;
  hri_compile_options compile;
} variant;

typedef struct outcome {
  uint64_t hash; /* of all weights and optimizer states, parameter by parameter */
  double loss[STEPS], grad_norm;
  uint64_t reserved[HR_TIER_COUNT];
  uint32_t copies;     /* nodes off the compute lane, all programs */
  uint32_t recomputed; /* clones */
  uint32_t packed;     /* PACK nodes */
  uint32_t nodes, storages;
  uint32_t moved; /* positions executed elsewhere than in issue order, over the run */
} outcome;

static void must(hr_status status, const hr_error *error) {
  if (status != HR_OK) fail_msg("%s: %s (%s)", hr_status_name(status), error->message, error->hint);
}

/* One thread, because a team that waits for a busy machine takes minutes; the tests of threads take more. */
static variant usual(const char *model) {
  variant v = {.model = model,
               .accumulate = 1,
               .threads = 1,
               .sequence = now->emulated ? 13 : SEQUENCE,
               .micro_batch = now->emulated ? 2 : MICRO_BATCH,
               .steps = now->in_short ? SHORT_STEPS : STEPS,
               .loss_chunk = HR_LOSS_CHUNK_AUTO,
               .data_seed = 5,
               .clip = true};
  return v;
}

static void describe_job(const variant *v, hr_job *job) {
  hr_error error = {0};
  hr_job_init(job);
  must(hr_model_open(v->model, &job->model, &error), &error);
  must(hr_device_find("cpu", &job->device, &error), &error);
  if (v->layers) job->model.layer_count = v->layers;
  job->sequence_length = v->sequence;
  job->micro_batch = v->micro_batch;
  job->accumulate = v->accumulate;
  job->threads = v->threads;
  job->loss_chunk = v->loss_chunk;
  job->optimizer = v->optimizer;
  job->precision = now->precision;
  job->moments = now->moments;
  job->weight_packing = v->weight_packing;
  job->learning_rate = 1e-2;
  job->weight_decay = 0.1;
  job->clip = v->clip ? 0.5 : 0;
  job->update = v->in_backward ? HR_UPDATE_IN_BACKWARD : HR_UPDATE_AFTER;
  if (now->precision == HR_PRECISION_FP16) job->growth_interval = 2; /* the scale changes, and some steps overflow */
  job->on_nonfinite = v->skip ? HR_ON_NONFINITE_SKIP : HR_ON_NONFINITE_STOP;
  job->check = v->check;
  if (v->by_place) job->model.dropout = (hr_dropout){0.2, 0.2, 0.2};
  job->dropout = v->by_place ? HR_DROPOUT_CONFIG : v->drawn ? 0.2 : 0;
  job->neftune_alpha = v->drawn ? 5 : 0;
  job->label_smoothing = v->drawn ? 0.1 : 0;
  if (v->recompute) must(hr_recompute_parse(v->recompute, &job->recompute, &error), &error);
  must(hr_job_finish(job, &error), &error);
}

/* ---- placement ---- */

/* Every storage in bytes of its own: nothing that dies makes room, so a result that depends on reuse would show. */
static void spread(hr_plan *plan, bool reversed) {
  uint64_t end[HRI_TIER_COUNT] = {0};
  size_t count = plan->job.storages.count;
  for (size_t k = 0; k < count; k++) {
    size_t s = reversed ? count - 1 - k : k;
    const hri_storage *storage = &plan->job.storages.items[s];
    end[storage->tier] = hri_round_up(end[storage->tier], HRI_STORAGE_ALIGN);
    plan->placement.offsets[s] = end[storage->tier];
    end[storage->tier] += storage->bytes;
  }
  for (int tier = 0; tier < HRI_TIER_COUNT; tier++) {
    plan->placement.peak_bytes[tier] = end[tier];
    plan->info.tiers[tier].reserved_bytes = hri_round_up(end[tier], 4096);
  }
}

/* ---- orders ---- */

typedef struct lanes {
  uint32_t *positions[HRI_LANE_COUNT], count[HRI_LANE_COUNT], next[HRI_LANE_COUNT];
  bool *done; /* per node id */
} lanes;

static bool ready(const variant *v, const hri_job *job, const lanes *l, const hri_program *p, int lane) {
  const hri_node *node;
  if (l->next[lane] == l->count[lane]) return false;
  if (v->ignore_waits) return true;
  node = &job->nodes.items[p->order.items[l->positions[lane][l->next[lane]]]];
  for (uint32_t w = 0; w < node->wait_count; w++)
    if (!l->done[job->waits.items[node->wait_begin + w].node]) return false;
  return true;
}

/* The lane whose next node runs now, among those that may. */
static int pick(const variant *v, const bool *may, uint64_t draw) {
  uint32_t word[4];
  int from, able = 0;
  if (v->order == ORDER_COPIES_LATE && may[HRI_COMPUTE]) return HRI_COMPUTE;
  if (v->order == ORDER_COPIES_EARLY)
    for (int lane = HRI_LANE_COUNT - 1; lane >= 0; lane--)
      if (may[lane]) return lane;
  for (int lane = 0; lane < HRI_LANE_COUNT; lane++) able += may[lane];
  assert_true(able > 0); /* lane order and waits leave a way */
  hri_philox(v->order_seed, 77, draw, word);
  from = (int)(word[0] % (uint32_t)able);
  for (int lane = 0; lane < HRI_LANE_COUNT; lane++)
    if (may[lane] && from-- == 0) return lane;
  return HRI_COMPUTE;
}

/* A linear extension of happens-before (lane order and waits). Positions into the issue order; freed by the caller. */
static uint32_t *extension(const variant *v, const hri_job *job, hri_program_kind kind, uint64_t run, outcome *out) {
  const hri_program *p = &job->programs[kind];
  uint32_t count = (uint32_t)p->order.count, *order = calloc(count, sizeof *order);
  lanes l = {.done = calloc(job->nodes.count, 1)};
  assert_non_null(order);
  assert_non_null(l.done);
  for (int lane = 0; lane < HRI_LANE_COUNT; lane++) assert_non_null(l.positions[lane] = calloc(count, sizeof *order));
  for (uint32_t at = 0; at < count; at++) {
    uint8_t lane = job->nodes.items[p->order.items[at]].lane;
    l.positions[lane][l.count[lane]++] = at;
  }
  for (uint32_t k = 0; k < count; k++) {
    bool may[HRI_LANE_COUNT];
    int lane;
    for (int i = 0; i < HRI_LANE_COUNT; i++) may[i] = ready(v, job, &l, p, i);
    lane = pick(v, may, run << 32 | k);
    order[k] = l.positions[lane][l.next[lane]++];
    l.done[p->order.items[order[k]]] = true;
    out->moved += order[k] != k;
  }
  for (int lane = 0; lane < HRI_LANE_COUNT; lane++) free(l.positions[lane]);
  free(l.done);
  return order;
}

static void run_program(const variant *v, hri_session *s, hri_program_kind kind, uint64_t run, outcome *out) {
  hr_error error = {0};
  uint32_t *order = NULL;
  if (v->order != ORDER_ISSUE) order = extension(v, &s->plan->job, kind, run, out);
  hri_cpu_order_next(s->plan->backend, order);
  must(hri_executor_run(s->executor, kind, &error), &error);
  free(order);
}

/* ---- data: documents of odd lengths, labels that do not count ---- */

static void feed(const variant *v, hri_session *s, uint64_t step, uint64_t *counted) {
  const hri_job *job = &s->plan->job;
  uint64_t rows = (uint64_t)v->accumulate * v->micro_batch;
  int32_t *ids = hri_executor_view(s->executor, job->input_ids),
          *targets = hri_executor_view(s->executor, job->input_targets),
          *positions = hri_executor_view(s->executor, job->input_positions),
          *doc_start = hri_executor_view(s->executor, job->input_doc_start);
  *counted = 0;
  for (uint64_t r = 0; r < rows; r++) {
    uint32_t start = 0;
    for (uint32_t t = 0; t < v->sequence; t++) {
      uint32_t word[4];
      uint64_t at = r * v->sequence + t;
      hri_philox(v->data_seed, step * rows + r, t, word);
      if (t > 0 && word[1] % 11 == 0) start = t; /* a new document */
      ids[at] = (int32_t)(word[0] % s->plan->spec.model.vocabulary_size);
      targets[at] = word[2] % 7 == 0 ? HRI_LABEL_IGNORED : (int32_t)(word[3] % s->plan->spec.model.vocabulary_size);
      positions[at] = (int32_t)(t - start);
      doc_start[at] = (int32_t)start;
      *counted += targets[at] != HRI_LABEL_IGNORED;
    }
  }
}

static void one_step(const variant *v, hri_session *s, uint64_t step, outcome *out) {
  const hri_control *control = hri_executor_control(s->executor);
  uint64_t counted;
  feed(v, s, step, &counted);
  HRI_CONTROL_SET(s->executor, step, (int64_t)step);
  HRI_CONTROL_SET(s->executor, learning_rate, 1e-2 / (double)(step + 1));
  HRI_CONTROL_SET(s->executor, inv_tokens, 1.0 / (double)counted);
  HRI_CONTROL_SET(s->executor, clip_norm, s->plan->spec.clip);
  HRI_CONTROL_SET(s->executor, clip_scale, 1);
  HRI_CONTROL_SET(s->executor, loss_sum, 0);
  HRI_CONTROL_SET(s->executor, micro_index, 0);
  if (v->accumulate == 1) run_program(v, s, HRI_STEP, step * 100, out);
  else run_program(v, s, HRI_BEGIN, step * 100, out);
  for (uint32_t k = 0; v->accumulate > 1 && k < v->accumulate; k++) {
    HRI_CONTROL_SET(s->executor, micro_index, k);
    HRI_CONTROL_SET(s->executor, row_base, (int64_t)k * v->micro_batch);
    run_program(v, s, HRI_MICRO, step * 100 + 1 + k, out);
  }
  if (v->accumulate > 1) run_program(v, s, HRI_UPDATE, step * 100 + 99, out);
  out->loss[step] = control->loss_sum / (double)counted;
  out->grad_norm = control->grad_norm;
}

/* ---- one run ---- */

static uint64_t hash_bytes(uint64_t hash, const void *bytes, uint64_t count) {
  const unsigned char *next = bytes;
  for (uint64_t k = 0; k < count; k++) hash = (hash ^ next[k]) * UINT64_C(0x100000001B3);
  return hash;
}

static uint64_t hash_tensor(uint64_t hash, const hri_session *s, hri_id tensor) {
  if (tensor == HRI_NONE) return hash;
  return hash_bytes(hash, hri_executor_view(s->executor, tensor),
                    hri_tensor_bytes(&s->plan->job.tensors.items[tensor]));
}

static uint64_t hash_parameters(const hri_session *s) {
  const hri_job *job = &s->plan->job;
  uint64_t hash = UINT64_C(0xCBF29CE484222325);
  for (size_t p = 0; p < job->params.count; p++) {
    const hri_param *param = &job->params.items[p];
    hash = hash_tensor(hash, s, param->weight);
    for (uint32_t r = 0; r < param->range_count; r++) {
      const hri_param_range *range = &job->ranges.items[param->range_begin + r];
      hash = hash_tensor(hash, s, range->master);
      for (int k = 0; k < HRI_STATE_TENSORS; k++) hash = hash_tensor(hash, s, range->state[k]);
    }
  }
  return hash;
}

static void count_nodes(const hri_job *job, outcome *out) {
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    for (size_t at = 0; at < job->programs[kind].order.count; at++) {
      const hri_node *node = &job->nodes.items[job->programs[kind].order.items[at]];
      out->copies += node->lane != HRI_COMPUTE;
      out->recomputed += node->origin != HRI_NONE;
      out->packed += node->op == HRI_OP_PACK;
    }
}

static outcome train(const variant *v) {
  hri_session s = {0};
  hr_job job;
  hr_error error = {0};
  outcome out = {0};
  describe_job(v, &job);
  must(hri_session_plan(&s, &job, &v->compile, &error), &error);
  if (v->place != PLACE_PLANNED) spread(s.plan, v->place == PLACE_APART_REVERSED);
  must(hri_session_load(&s, NULL, NULL, &error), &error);
  count_nodes(&s.plan->job, &out);
  for (uint64_t step = 0; step < v->steps; step++) one_step(v, &s, step, &out);
  for (int tier = 0; tier < HR_TIER_COUNT; tier++)
    out.reserved[tier] = hri_executor_reserved_bytes(s.executor, (hri_tier)tier);
  out.hash = hash_bytes(hash_parameters(&s), &hri_executor_control(s.executor)->loss_scale, sizeof(double));
  assert_true(v->ignore_waits || hri_executor_control(s.executor)->applied_steps > 0); /* in fp16 some may be skipped */
  out.nodes = s.plan->info.node_count;
  out.storages = s.plan->info.storage_count;
  hri_session_close(&s);
  return out;
}

static bool same(const outcome *a, const outcome *b) {
  return a->hash == b->hash && memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
         memcmp(&a->grad_norm, &b->grad_norm, sizeof a->grad_norm) == 0;
}

/* Gives what *v left behind, for what else a test wants of that run. */
static outcome assert_same_bits(const outcome *reference, const variant *v, const char *what) {
  outcome got = train(v);
  if (same(reference, &got)) return got;
  for (int k = 0; k < STEPS; k++)
    if (memcmp(&reference->loss[k], &got.loss[k], sizeof got.loss[k]) != 0)
      fail_msg("%s, %s, %s: the loss of step %d is %.17g and was %.17g", now->name, v->model, what, k, got.loss[k],
               reference->loss[k]);
  fail_msg("%s, %s, %s: the losses agree and the parameters do not", now->name, v->model, what);
  return got;
}

/* The last two: four norms, caps, a window shorter than the rows; norms of heads. */
static const char *const models[] = {"micro-llama-bytes", "micro-gpt2-bytes", "micro-gemma2-bytes",
                                     "micro-qwen3-bytes"};
static int model_count(void) { return now->in_short || now->precision == HR_PRECISION_BF16_PURE || quick() ? 2 : 4; }

/* ---- the comparison can fail ---- */

static void test_training_changes_weights_and_other_data_other_bits(void **state) {
  (void)state;
  for (int m = 0; m < model_count(); m++) {
    variant a = usual(models[m]), b = a;
    outcome first = train(&a), second;
    b.data_seed++;
    second = train(&b);
    assert_true(first.hash != second.hash);
    assert_true(first.loss[a.steps - 1] != first.loss[0]);
    second = train(&a);
    assert_true(same(&first, &second)); /* and the same run gives the same bits */
  }
}

static void test_loss_chunks_may_round_differently(void **state) {
  variant a = usual(models[0]), b = a;
  outcome first = train(&a), second;
  (void)state;
  b.loss_chunk = 16;
  second = train(&b);
  /* Effect class 1: not a row of the promise, though products of ours add up alike. */
  assert_true(fabs(first.loss[0] - second.loss[0]) < 1e-5); /* the same logits, another order of the sum */
}

/* ---- rows ---- */

static void test_recompute(void **state) {
  static const char *const ways[] = {"levels:cheap",
                                     "levels:mlp",
                                     "levels:attention",
                                     "block",
                                     "every:2",
                                     "every:3",
                                     "sqrt",
                                     "levels:keep,block,mlp,attention,cheap"};
  (void)state;
  for (int m = 0; m < model_count(); m++)
    for (uint32_t accumulate = 1; accumulate <= (now->emulated ? 1 : 2); accumulate++) {
      variant v = usual(models[m]);
      outcome reference;
      v.layers = 5;
      v.accumulate = accumulate;
      reference = train(&v);
      assert_int_equal(reference.recomputed, 0);
      for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        outcome got;
        v.recompute = ways[k];
        got = assert_same_bits(&reference, &v, ways[k]);
        assert_true(got.recomputed > 0);
      }
    }
}

static void test_in_place(void **state) {
  (void)state;
  for (int m = 0; m < model_count(); m++) {
    variant v = usual(models[m]);
    outcome reference = train(&v), got;
    v.compile.no_inplace = true;
    got = assert_same_bits(&reference, &v, "not in place");
    assert_true(got.storages > reference.storages); /* the pass does something */
    v.recompute = "block";
    assert_same_bits(&reference, &v, "not in place, recomputed");
  }
}

static void test_fused(void **state) {
  (void)state;
  for (int m = 0; m < model_count(); m++) {
    variant v = usual(models[m]);
    outcome reference = train(&v), got;
    v.compile.no_fuse = true;
    got = assert_same_bits(&reference, &v, "not fused");
    assert_true(got.nodes > reference.nodes);
    v.compile.no_inplace = true;
    assert_same_bits(&reference, &v, "neither fused nor in place");
  }
}

static void test_host_tier(void **state) {
  static const uint32_t distances[] = {1, 2, 5, 13, 40};
  (void)state;
  for (int m = 0; m < model_count(); m++) {
    variant v = usual(models[m]);
    outcome reference = train(&v);
    for (size_t d = 0; d < sizeof distances / sizeof *distances; d++) {
      outcome got;
      v.compile.offload_bytes = 1;
      v.compile.offload_distance = distances[d];
      got = assert_same_bits(&reference, &v, "host tier");
      if (distances[d] <= 5) assert_true(got.copies > 0 && got.reserved[HR_TIER_HOST] > 0);
    }
  }
}

static void test_orders_that_do_not_wait_give_other_bits(void **state) {
  variant v = usual(models[0]);
  outcome reference = train(&v), got;
  (void)state;
  v.compile.offload_bytes = 1;
  v.compile.offload_distance = 3;
  v.order = ORDER_COPIES_EARLY;
  v.ignore_waits = true;
  got = train(&v);
  assert_false(same(&reference, &got));
}

/* Whatever the lanes do, as long as they wait where they must. */
static void test_host_tier_in_every_legal_order(void **state) {
  static const uint32_t distances[] = {1, 3, 9};
  uint64_t seeds = now->emulated ? 1 : quick() || now->precision != HR_PRECISION_FP32 ? 3 : 20;
  (void)state;
  for (int m = 0; m < model_count(); m++)
    for (int recompute = 0; recompute < 2; recompute++) {
      variant v = usual(models[m]);
      outcome reference = train(&v), got;
      v.compile.offload_bytes = 1;
      v.recompute = recompute ? "levels:mlp" : NULL;
      for (size_t d = 0; d < sizeof distances / sizeof *distances; d++) {
        v.compile.offload_distance = distances[d];
        v.order = ORDER_COPIES_EARLY;
        assert_same_bits(&reference, &v, "copies as early as they may");
        v.order = ORDER_COPIES_LATE;
        assert_same_bits(&reference, &v, "copies as late as they may");
        v.order = ORDER_RANDOM;
        for (v.order_seed = 1; v.order_seed <= seeds; v.order_seed++) {
          char what[64];
          (void)snprintf(what, sizeof what, "distance %u, order seed %llu", distances[d],
                         (unsigned long long)v.order_seed);
          assert_same_bits(&reference, &v, what);
        }
        got = train(&v);
        assert_true(got.moved > 0);
      }
    }
}

static void test_placement(void **state) {
  (void)state;
  for (int m = 0; m < model_count(); m++) {
    variant v = usual(models[m]);
    outcome reference = train(&v), got;
    v.place = PLACE_APART;
    got = assert_same_bits(&reference, &v, "nothing shares a byte");
    assert_true(got.reserved[HR_TIER_DEVICE] > reference.reserved[HR_TIER_DEVICE]);
    v.place = PLACE_APART_REVERSED;
    assert_same_bits(&reference, &v, "nothing shares a byte, in reversed order");
    v.compile.offload_bytes = 1;
    v.compile.offload_distance = 3;
    assert_same_bits(&reference, &v, "the same with the host tier");
  }
}

static void test_check_mode(void **state) {
  static const char *const ways[] = {NULL, "block", "levels:mlp"};
  (void)state;
  for (int m = 0; m < model_count(); m++)
    for (uint32_t accumulate = 1; accumulate <= 2; accumulate++) {
      variant v = usual(models[m]);
      outcome reference, got;
      v.accumulate = accumulate;
      reference = train(&v);
      v.check = true;
      for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        v.recompute = ways[k];
        assert_same_bits(&reference, &v, "poisoned, with guard zones");
      }
      got = train(&v);
      assert_true(got.reserved[HR_TIER_DEVICE] > 0);
      v.compile.offload_bytes = 1;
      v.compile.offload_distance = 2;
      assert_same_bits(&reference, &v, "poisoned, with the host tier");
    }
}

static void test_threads(void **state) {
  (void)state;
  for (int m = 0; m < model_count(); m++)
    for (uint32_t accumulate = 1; accumulate <= 2; accumulate++) {
      variant v = usual(models[m]);
      outcome reference;
      v.accumulate = accumulate;
      v.threads = 1;
      reference = train(&v);
      for (v.threads = 2; v.threads <= 4; v.threads++) {
        char what[32];
        (void)snprintf(what, sizeof what, "%u threads", v.threads);
        assert_same_bits(&reference, &v, what);
      }
    }
}

/* More rows than a block of a matrix product's depth holds (dw sums over rows; ops/linear/product.c), more heads, more
 * columns, and a head that is not tied. */
static void test_threads_with_many_rows(void **state) {
  static const char *const wide[] =
      {"micro-llama-bytes",
       "custom:family=llama,layers=1,hidden=96,heads=6,kv-heads=3,mlp=200,vocab=300,positions=256,tied=false"};
  (void)state;
  for (size_t m = 0; m < sizeof wide / sizeof *wide; m++) {
    variant v = usual(wide[m]);
    outcome reference, got;
    v.sequence = 211;
    v.micro_batch = now->in_short ? 3 : 10;
    v.steps = now->emulated ? 1 : 2;
    v.threads = 1;
    reference = train(&v);
    for (v.threads = 2; v.threads <= 4; v.threads++) assert_same_bits(&reference, &v, "many rows, more threads");
    v.recompute = "block";
    assert_same_bits(&reference, &v, "many rows, recomputed");
    v.weight_packing = HR_WEIGHT_PACKING_OFF;
    assert_same_bits(&reference, &v, "many rows, not packed");
    v.accumulate = 2;
    reference = train(&v);
    v.weight_packing = HR_WEIGHT_PACKING_PERSISTENT;
    got = train(&v);
    assert_true(same(&reference, &got));
    assert_true(got.packed > 0);
  }
}

static void test_update_inside_the_backward(void **state) {
  (void)state;
  if (now->precision == HR_PRECISION_FP16) skip(); /* refused: an overflow is known too late */
  for (int m = 0; m < model_count(); m++)
    for (int o = 0; o < HR_OPTIMIZER_COUNT; o++) {
      variant v = usual(models[m]);
      outcome reference;
      v.clip = false;
      v.optimizer = (hr_optimizer)o;
      reference = train(&v);
      v.in_backward = true;
      assert_same_bits(&reference, &v, hr_optimizer_name(v.optimizer));
      v.recompute = "block";
      assert_same_bits(&reference, &v, "recomputed");
      v.threads = 3;
      v.recompute = NULL;
      assert_same_bits(&reference, &v, "3 threads");
    }
}

/* A guard that never closes: the norm that is then taken in any case changes nothing, with a clip or without. */
static void test_skip_of_no_step(void **state) {
  (void)state;
  for (int m = 0; m < model_count(); m++)
    for (uint32_t k = 0; k < 4; k++) {
      variant v = usual(models[m]);
      outcome reference, got;
      v.accumulate = 1 + k % 2;
      v.clip = k / 2;
      reference = train(&v);
      v.skip = true;
      got = train(&v);
      if (!v.clip && now->precision != HR_PRECISION_FP16) { /* which always takes it */
        assert_true(got.grad_norm > 0 && got.nodes > reference.nodes);
        reference.grad_norm = got.grad_norm; /* stop takes none */
      }
      assert_same_bits(&reference, &v, "skip");
      v.threads = 3;
      v.check = true;
      assert_same_bits(&reference, &v, "skip, 3 threads, poisoned");
    }
}

/* Operands rearranged before they are multiplied, or once for all micro-steps. */
static void test_weight_packing(void **state) {
  static const hr_weight_packing ways[] = {HR_WEIGHT_PACKING_AUTO, HR_WEIGHT_PACKING_TRANSIENT,
                                           HR_WEIGHT_PACKING_PERSISTENT};
  (void)state;
  for (int m = 0; m < model_count(); m++)
    for (uint32_t accumulate = 1; accumulate <= 3; accumulate += 2)
      for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        variant v = usual(models[m]);
        outcome reference, got;
        v.accumulate = accumulate;
        v.weight_packing = HR_WEIGHT_PACKING_OFF;
        reference = train(&v);
        assert_int_equal(reference.packed, 0);
        v.weight_packing = ways[w];
        assert_same_bits(&reference, &v, hr_weight_packing_name(ways[w]));
        v.threads = 3;
        v.check = true;
        assert_same_bits(&reference, &v, "packed, 3 threads, poisoned");
        v.recompute = "block";
        v.loss_chunk = v.sequence * v.micro_batch; /* as AUTO decides */
        got = assert_same_bits(&reference, &v, "packed, recomputed");
        if (ways[w] == HR_WEIGHT_PACKING_PERSISTENT && accumulate > 1) assert_true(got.packed > 0);
      }
}

/* A run that stopped half-way and went on leaves the files that a run in one go leaves: rounding is keyed by the step,
 * and a checkpoint holds everything that a step reads. */
static bool stop_half_way(void *context) { return ++*(uint64_t *)context == 2; }

static void resume_job(const char *model, hr_job *job) {
  variant v = usual(model);
  v.drawn = true; /* the masks of a step are those of the step that it is */
  describe_job(&v, job);
  job->steps = 4;
  job->learning_rate = 1e-2;
}

static void train_files(const char *model, const char *text, const char *out, const char *resume, uint64_t *stop) {
  hr_run_options options = {.data_paths = &text,
                            .data_path_count = 1,
                            .out_directory = out,
                            .resume_directory = resume,
                            .should_stop = stop ? stop_half_way : NULL,
                            .context = stop,
                            .save_every = 4,
                            .keep = 1};
  hr_run_result result;
  hr_job job;
  hr_error error = {0};
  hr_status status;
  resume_job(model, &job);
  status = hr_train(&job, &options, &result, &error);
  if (stop && status == HR_ERROR_INTERRUPTED) return;
  must(status, &error);
  assert_null(stop);
}

static void test_resume(void **state) {
  static const char *const files[] = {"final/model.safetensors", "checkpoints/step-000004/model.safetensors",
                                      "checkpoints/step-000004/optimizer.safetensors"};
  (void)state;
  for (int m = 0; m < model_count(); m++) {
    const char *directory = scratch_make("bits"), *text = path_of("%s/text", directory),
               *whole = path_of("%s/whole", directory), *cut = path_of("%s/cut", directory);
    uint64_t polls = 0;
    put_words(text, 4000, 3);
    train_files(models[m], text, whole, NULL, NULL);
    train_files(models[m], text, cut, NULL, &polls);
    assert_false(exists(path_of("%s/final", cut)));
    train_files(models[m], text, cut, cut, NULL);
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
      assert_same_file(path_of("%s/%s", whole, files[f]), path_of("%s/%s", cut, files[f]));
    scratch_remove(directory);
  }
}

/* Everything at once, because techniques meet. */
static uint32_t count_drawn(const variant *v, hri_program_kind kind, bool backward) {
  hri_session s = {0};
  hr_job job;
  hr_error error = {0};
  uint32_t count = 0;
  describe_job(v, &job);
  must(hri_session_plan(&s, &job, &v->compile, &error), &error);
  for (size_t at = 0; at < s.plan->job.programs[kind].order.count; at++) {
    const hri_node *n = &s.plan->job.nodes.items[s.plan->job.programs[kind].order.items[at]];
    bool attention = hri_rule_get(n->op)->attention != HRI_NO_ATTENTION && n->attr.f[2] > 0;
    count += (n->op == HRI_OP_DROPOUT || n->op == HRI_OP_NOISE || attention ||
              (n->op == HRI_OP_CROSS_ENTROPY && n->attr.f[1] > 0)) &&
             n->origin == HRI_NONE && backward == (n->phase == HRI_PHASE_BACKWARD);
  }
  hri_session_close(&s);
  return count;
}

/* What is drawn is drawn again: recomputed, in another place, by another team, in check mode; and rows that are cut into
 * micro-batches otherwise have the same masks, so that the loss differs by rounding alone. An evaluation draws nothing. */
static void test_dropout_and_noise(void **state) {
  static const char *const ways[] = {"levels:cheap", "levels:mlp,attention", "block", "every:2"};
  (void)state;
  for (int m = 0; m < model_count(); m++) {
    variant v = usual(models[m]), w;
    outcome reference, plain, got;
    bool gpt2 = m == 1;
    v.layers = 3;
    plain = train(&v);
    v.drawn = true;
    reference = train(&v);
    assert_true(reference.loss[0] != plain.loss[0]);
    /* attention in 3 layers, noise, loss; gpt2: the embedding and two residuals in each layer */
    assert_int_equal(count_drawn(&v, HRI_STEP, false), gpt2 ? 3 + 2 + 1 + 6 : 3 + 2);
    assert_int_equal(count_drawn(&v, HRI_STEP, true), gpt2 ? 3 + 1 + 6 : 3);
    assert_int_equal(count_drawn(&v, HRI_EVALUATE, false), 0);
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
      w = v;
      w.recompute = ways[k];
      assert_same_bits(&reference, &w, ways[k]);
    }
    w = v;
    w.by_place = true;
    assert_same_bits(&reference, &w, "dropout, by place");
    w = v;
    w.compile.no_inplace = w.compile.no_fuse = true;
    w.place = PLACE_APART_REVERSED;
    assert_same_bits(&reference, &w, "dropout, apart");
    w = v;
    w.check = true;
    w.threads = 3;
    assert_same_bits(&reference, &w, "dropout, 3 threads, check mode");
    w = v;
    w.accumulate = w.micro_batch;
    w.micro_batch = 1;
    got = train(&w);
    if (now->precision != HR_PRECISION_FP32) continue; /* elsewhere rounding hides what other masks would do */
    assert_true(fabs(got.loss[0] - reference.loss[0]) < 1e-5);
    assert_true(fabs(plain.loss[0] - reference.loss[0]) > 100 * fabs(got.loss[0] - reference.loss[0]));
  }
}

static void test_all_together(void **state) {
  (void)state;
  for (int m = 0; m < model_count(); m++) {
    variant v = usual(models[m]);
    outcome reference;
    v.layers = 4;
    v.clip = false;
    reference = train(&v);
    v.recompute = "levels:keep,cheap,attention,block";
    v.in_backward = now->precision != HR_PRECISION_FP16;
    v.check = true;
    v.weight_packing = HR_WEIGHT_PACKING_PERSISTENT;
    v.threads = 4;
    v.compile =
        (hri_compile_options){.check_each = true, .no_inplace = true, .offload_bytes = 1, .offload_distance = 3};
    assert_same_bits(&reference, &v, "all together");
    v.check = false;
    v.compile.no_inplace = false;
    v.order = ORDER_RANDOM;
    for (v.order_seed = 1; v.order_seed <= 3; v.order_seed++)
      assert_same_bits(&reference, &v, "all together, other orders");
  }
}

static int run_all(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_training_changes_weights_and_other_data_other_bits),
      cmocka_unit_test(test_loss_chunks_may_round_differently),
      cmocka_unit_test(test_recompute),
      cmocka_unit_test(test_in_place),
      cmocka_unit_test(test_fused),
      cmocka_unit_test(test_host_tier),
      cmocka_unit_test(test_orders_that_do_not_wait_give_other_bits),
      cmocka_unit_test(test_host_tier_in_every_legal_order),
      cmocka_unit_test(test_placement),
      cmocka_unit_test(test_check_mode),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_threads_with_many_rows),
      cmocka_unit_test(test_update_inside_the_backward),
      cmocka_unit_test(test_skip_of_no_step),
      cmocka_unit_test(test_weight_packing),
      cmocka_unit_test(test_resume),
      cmocka_unit_test(test_dropout_and_noise),
      cmocka_unit_test(test_all_together),
  };
  return _cmocka_run_group_tests(now->name, tests, sizeof tests / sizeof *tests, NULL, NULL);
}

/* Whether another regime is this one on a processor whose highest level is this one's. */
static bool repeats_another(const regime *this) {
  hri_isa best, own;
  if (!this->isa || hri_cpu_isa_choose(NULL, &best, NULL) != HR_OK) return false;
  if (hri_cpu_isa_choose(this->isa, &own, NULL) != HR_OK || own != best) return false;
  for (size_t k = 0; k < sizeof regimes / sizeof *regimes; k++)
    if (!regimes[k].isa && regimes[k].precision == this->precision && regimes[k].moments == this->moments) return true;
  return false;
}

/* Exit code of a child that tests *now. */
static int run_child(void) {
  int status = 0;
  pid_t child;
  (void)fflush(NULL);
  child = fork();
  if (child == 0) {
    hri_isa isa;
    int failed = 0;
    if (now->isa) (void)setenv("HEADROOM_ISA", now->isa, 1);
    if (hri_cpu_isa_choose(now->isa, &isa, NULL) == HR_OK) failed = run_all();
    else print_message("%s: this processor cannot\n", now->name);
    (void)fflush(NULL);
    _exit(failed != 0);
  }
  if (child < 0 || waitpid(child, &status, 0) != child) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* An argument is the name of the one regime to test. */
int main(int argc, char **argv) {
  int failed = 0, known = 0;
  for (size_t k = 0; k < sizeof regimes / sizeof *regimes; k++) {
    now = &regimes[k];
    if (argc > 1 ? strcmp(argv[1], now->name) != 0 : now->emulated) continue;
    known++;
    if (quick() && argc == 1 && now->in_short && k % 4 != 3) continue;
    if (argc == 1 && repeats_another(now)) {
      print_message("%s: what this processor does unasked, tested above\n", now->name);
      continue;
    }
    failed += run_child() != 0;
  }
  if (known == 0) print_error("there is no regime %s\n", argv[1]);
  return known ? failed : 2;
}
