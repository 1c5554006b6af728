/* Programs built op by op: frozen parameters, update in the backward, check mode, and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/headroom.h>

enum { ROWS = 12, WIDTH = 10, CLASSES = 5 };

typedef struct net {
  hr_graph *graph;
  hr_tensor ids, targets, table, head;
} net;

static net make_net(bool frozen) {
  net n;
  hr_error error = {0};
  hr_tensor x;
  assert_int_equal(hr_graph_create(&n.graph, &error), HR_OK);
  n.ids = hr_graph_input(n.graph, "ids", ROWS);
  n.targets = hr_graph_input(n.graph, "targets", ROWS);
  n.table = frozen ? hr_graph_frozen(n.graph, "table", 7, WIDTH, 0.5)
                   : hr_graph_parameter(n.graph, "table", 7, WIDTH, 0.5, true);
  n.head = hr_graph_parameter(n.graph, "head", CLASSES, WIDTH, 0.3, true);
  hr_graph_layer(n.graph, 0);
  x = hr_graph_embed(n.graph, n.ids, n.table);
  x = hr_graph_linear(n.graph, x, hr_graph_parameter(n.graph, "w", WIDTH, WIDTH, 0.3, true),
                      hr_graph_parameter(n.graph, "b", WIDTH, 0, 0, false));
  x = hr_graph_activation(n.graph, x, HR_ACTIVATION_SILU);
  hr_graph_layer(n.graph, -1);
  hr_graph_loss(n.graph, x, n.head, n.targets);
  return n;
}

static double train_net(const net *n, hr_job *job, int steps, float *table) {
  hr_error error = {0};
  hr_plan *plan = NULL;
  hr_run *run = NULL;
  double loss = 0;
  assert_int_equal(hr_device_find("cpu", &job->device, &error), HR_OK);
  job->check = true;
  if (hr_graph_plan(n->graph, job, &plan, &error) != HR_OK || hr_run_create(n->graph, plan, &run, &error) != HR_OK)
    fail_msg("%s", error.message);
  assert_int_equal(hr_run_reserved_bytes(run, HR_TIER_DEVICE), hr_plan_get(plan)->tiers[HR_TIER_DEVICE].reserved_bytes);
  for (int s = 0; s < steps; s++) {
    for (int r = 0; r < ROWS; r++) {
      hr_run_input(run, n->ids)[r] = r % 7;
      hr_run_input(run, n->targets)[r] = r % 7 % CLASSES;
    }
    if (hr_run_step(run, 1e-2, &loss, &error) != HR_OK) fail_msg("%s", error.message);
  }
  assert_int_equal(hr_run_get_parameter(run, n->table, table, 7 * WIDTH, &error), HR_OK);
  hr_run_destroy(run);
  hr_plan_destroy(plan);
  return loss;
}

static void frozen_parameters_stay(void **state) {
  (void)state;
  for (int in_backward = 0; in_backward < 2; in_backward++) {
    net n = make_net(true);
    float before[7 * WIDTH], after[7 * WIDTH];
    hr_job job;
    hr_job_init(&job);
    job.update = in_backward ? HR_UPDATE_IN_BACKWARD : HR_UPDATE_AFTER;
    assert_true(train_net(&n, &job, 1, before) > 1);
    assert_true(train_net(&n, &job, 200, after) < 0.5);
    assert_memory_equal(before, after, sizeof before);
    hr_graph_destroy(n.graph);
  }
}

static void trained_parameters_move_the_same_either_way(void **state) {
  float after[2][7 * WIDTH];
  (void)state;
  for (int in_backward = 0; in_backward < 2; in_backward++) {
    net n = make_net(false);
    hr_job job;
    hr_job_init(&job);
    job.clip = 0;
    job.given = HR_GIVEN_CLIP;
    job.recompute.kind = in_backward ? HR_RECOMPUTE_BLOCK : HR_RECOMPUTE_NONE;
    job.update = in_backward ? HR_UPDATE_IN_BACKWARD : HR_UPDATE_AFTER;
    train_net(&n, &job, 20, after[in_backward]);
    hr_graph_destroy(n.graph);
  }
  assert_memory_equal(after[0], after[1], sizeof after[0]);
}

/* Each storage of a parameter goes by the name that the user gave it; of a model's segments by unit, and says what it
 * holds. */
static void live_sets_name_what_is_in_them(void **state) {
  static const char *const names[] = {"table", "head", "w", "b", "table.exp_avg", "w.exp_avg_sq"};
  static const char *const held[] = {"qkv.weight", "attention_output.weight", "mlp_in.weight", "mlp_out.weight"};
  hr_error error = {0};
  hr_plan *plan = NULL;
  uint32_t found = 0, segments = 0;
  hr_live live;
  hr_job job;
  char *dump;
  net n = make_net(false);
  (void)state;
  hr_job_init(&job);
  assert_int_equal(hr_device_find("cpu", &job.device, &error), HR_OK);
  if (hr_graph_plan(n.graph, &job, &plan, &error) != HR_OK) fail_msg("%s", error.message);
  for (uint32_t i = 0; hr_plan_live(plan, HR_TIER_DEVICE, i, &live); i++) {
    const char *parameter = hr_plan_live_holds(plan, HR_TIER_DEVICE, i, 0);
    assert_null(strstr(live.name, "matrices"));
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) found += strcmp(live.name, names[k]) == 0;
    if (!parameter) continue;
    assert_int_equal(strncmp(live.name, parameter, strlen(parameter)), 0);
    assert_null(hr_plan_live_holds(plan, HR_TIER_DEVICE, i, 1));
  }
  assert_int_equal(found, sizeof names / sizeof *names);
  assert_int_equal(hr_plan_dump(plan, false, &dump, &error), HR_OK);
  assert_non_null(strstr(dump, "segment 0: "));
  assert_null(strstr(dump, "unit ")); /* its parameters are of none */
  hr_free(dump);
  hr_plan_destroy(plan);
  hr_graph_destroy(n.graph);
  assert_int_equal(hr_model_open("micro-llama-bytes", &job.model, &error), HR_OK);
  if (hr_job_finish(&job, &error) != HR_OK || hr_plan_create(&job, &plan, &error) != HR_OK)
    fail_msg("%s", error.message);
  for (uint32_t i = 0; hr_plan_live(plan, HR_TIER_DEVICE, i, &live); i++) {
    if (strcmp(live.name, "layers.0.matrices.weight") != 0) continue;
    for (uint32_t k = 0; k < 4; k++) {
      const char *name = hr_plan_live_holds(plan, HR_TIER_DEVICE, i, k);
      assert_non_null(name);
      assert_non_null(strstr(name, held[k]));
    }
    assert_null(hr_plan_live_holds(plan, HR_TIER_DEVICE, i, 4));
    segments++;
  }
  assert_int_equal(segments, 1);
  assert_null(hr_plan_live_holds(plan, HR_TIER_DEVICE, UINT32_MAX, 0));
  hr_plan_destroy(plan);
}

/* An input that no node reads has no place in the arena: a step takes nothing of it there. */
static void an_input_that_nobody_reads_touches_nothing(void **state) {
  float values[2][7 * WIDTH], before[7 * WIDTH];
  (void)state;
  for (int spare = 0; spare < 2; spare++) {
    hr_error error = {0};
    hr_plan *plan = NULL;
    hr_run *run = NULL;
    double loss = 0;
    hr_job job;
    net n = make_net(false);
    hr_tensor unread = spare ? hr_graph_input(n.graph, "unread", 1 << 20) : HR_NO_TENSOR;
    hr_job_init(&job);
    assert_int_equal(hr_device_find("cpu", &job.device, &error), HR_OK);
    if (hr_graph_plan(n.graph, &job, &plan, &error) != HR_OK || hr_run_create(n.graph, plan, &run, &error) != HR_OK)
      fail_msg("%s", error.message);
    for (int r = 0; r < ROWS; r++) hr_run_input(run, n.ids)[r] = r % 7, hr_run_input(run, n.targets)[r] = r % CLASSES;
    for (int r = 0; spare && r < 1 << 20; r++) hr_run_input(run, unread)[r] = r;
    assert_int_equal(hr_run_get_parameter(run, n.table, before, 7 * WIDTH, &error), HR_OK);
    if (hr_run_evaluate(run, &loss, &error) != HR_OK) fail_msg("%s", error.message);
    assert_int_equal(hr_run_get_parameter(run, n.table, values[spare], 7 * WIDTH, &error), HR_OK);
    assert_memory_equal(before, values[spare], sizeof before);
    if (hr_run_step(run, 1e-2, &loss, &error) != HR_OK) fail_msg("%s", error.message);
    assert_int_equal(hr_run_get_parameter(run, n.table, values[spare], 7 * WIDTH, &error), HR_OK);
    hr_run_destroy(run);
    hr_plan_destroy(plan);
    hr_graph_destroy(n.graph);
  }
  assert_memory_equal(values[0], values[1], sizeof values[0]);
}

static void wrong_graphs_are_refused(void **state) {
  hr_error error = {0};
  hr_plan *plan = NULL;
  hr_job job;
  net n = make_net(false);
  hr_graph *empty;
  (void)state;
  hr_job_init(&job);
  assert_int_equal(hr_device_find("cpu", &job.device, &error), HR_OK);
  assert_int_equal(hr_graph_input(n.graph, "ids", ROWS), HR_NO_TENSOR); /* the name is taken: sticky */
  assert_int_equal(hr_graph_plan(n.graph, &job, &plan, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "ids"));
  hr_graph_destroy(n.graph);
  n = make_net(false); /* settings that mean nothing to a graph, or to each other */
  job.recompute.kind = HR_RECOMPUTE_AUTO;
  assert_int_equal(hr_graph_plan(n.graph, &job, &plan, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "recomputation"));
  job.recompute.kind = HR_RECOMPUTE_NONE;
  job.moments = HR_MOMENTS_BF16;
  assert_int_equal(hr_graph_plan(n.graph, &job, &plan, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "bf16-pure"));
  job.moments = HR_MOMENTS_FP32;
  hr_graph_destroy(n.graph);
  assert_int_equal(hr_graph_create(&empty, &error), HR_OK);
  assert_int_equal(hr_graph_plan(empty, &job, &plan, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "loss"));
  hr_graph_destroy(empty);
}

/* A graph that `add` puts an op into, of `layers` empty layers; then what hr_graph_plan says of it and of the job: USAGE
 * with that word, and for a word of NULL nothing. */
static void planned(hr_tensor (*add)(hr_graph *g, hr_tensor x), uint32_t layers, void (*change)(hr_job *job),
                    const char *word) {
  hr_error error = {0};
  hr_plan *plan = NULL;
  hr_graph *g;
  hr_tensor ids, targets, x, head;
  hr_job job;
  hr_job_init(&job);
  if (change) change(&job);
  assert_int_equal(hr_graph_create(&g, &error), HR_OK);
  ids = hr_graph_input(g, "ids", ROWS);
  targets = hr_graph_input(g, "targets", ROWS);
  x = hr_graph_embed(g, ids, hr_graph_parameter(g, "table", 7, WIDTH, 0.5, true));
  head = hr_graph_parameter(g, "head", CLASSES, WIDTH, 0.3, true);
  if (add) x = add(g, x);
  for (uint32_t k = 0; k < layers; k++) {
    hr_graph_layer(g, (int32_t)k);
    x = hr_graph_activation(g, x, HR_ACTIVATION_GELU_TANH);
  }
  hr_graph_layer(g, -1);
  hr_graph_loss(g, x, head, targets);
  if (hr_graph_plan(g, &job, &plan, &error) != (word ? HR_ERROR_USAGE : HR_OK) ||
      (word && !strstr(error.message, word) && !strstr(error.hint, word)))
    fail_msg("wanted '%s', got '%s' '%s'", word ? word : "a plan", error.message, error.hint);
  assert_true((plan == NULL) == (word != NULL));
  hr_plan_destroy(plan);
  hr_graph_destroy(g);
}

static void refused(hr_tensor (*add)(hr_graph *g, hr_tensor x), void (*change)(hr_job *job), const char *word) {
  planned(add, 0, change, word);
}

static hr_tensor no_heads(hr_graph *g, hr_tensor x) { return hr_graph_attention(g, x, 1, ROWS, 0, 1, WIDTH / 2, 1); }
static hr_tensor no_scale(hr_graph *g, hr_tensor x) {
  return hr_graph_attention(g, x, 1, ROWS, 3, 1, 2, strtod("nan", NULL));
}
static hr_tensor no_kind(hr_graph *g, hr_tensor x) { return hr_graph_activation(g, x, (hr_activation)77); }
static hr_tensor no_gate(hr_graph *g, hr_tensor x) { return hr_graph_glu(g, x, (hr_activation)77); }
static hr_tensor no_epsilon(hr_graph *g, hr_tensor x) {
  return hr_graph_norm(g, x, hr_graph_parameter(g, "n", WIDTH, 0, -1, false), HR_NO_TENSOR, HR_NORM_RMS,
                       strtod("inf", NULL));
}
static hr_tensor one_for_both(hr_graph *g, hr_tensor x) {
  hr_tensor both = hr_graph_parameter(g, "both", WIDTH, 0, -1, false);
  return hr_graph_norm(g, x, both, both, HR_NORM_LAYER, 1e-5);
}
static hr_tensor frozen_for_both(hr_graph *g, hr_tensor x) {
  hr_tensor both = hr_graph_frozen(g, "both", WIDTH, 0, -1);
  return hr_graph_norm(g, x, both, both, HR_NORM_LAYER, 1e-5);
}
static void optimizer(hr_job *job) { job->optimizer = (hr_optimizer)99; }
static void packing(hr_job *job) { job->weight_packing = (hr_weight_packing)99; }
static void precision(hr_job *job) { job->precision = (hr_precision)99; }
static void tf32(hr_job *job) { job->precision = HR_PRECISION_TF32; }
static void levels(hr_job *job) {
  job->recompute = (hr_recompute){.kind = HR_RECOMPUTE_LEVELS, .levels = {99}, .level_count = 1};
}
static void layers(hr_job *job) { job->recompute = (hr_recompute){.kind = HR_RECOMPUTE_EVERY, .every = UINT32_MAX}; }
static void no_layers(hr_job *job) { job->recompute = (hr_recompute){.kind = HR_RECOMPUTE_EVERY}; }
static void deep_levels(hr_job *job) { job->recompute = (hr_recompute){.kind = HR_RECOMPUTE_LEVELS, .level_count = 9}; }
static void every_layer(hr_job *job) { job->recompute = (hr_recompute){.kind = HR_RECOMPUTE_EVERY, .every = 1}; }
static void two_layers(hr_job *job) { job->recompute = (hr_recompute){.kind = HR_RECOMPUTE_EVERY, .every = 2}; }
static void beta(hr_job *job) { job->beta1 = strtod("nan", NULL); }
static void threads(hr_job *job) { job->threads = 1u << 31; }
static void device(hr_job *job) {
  hr_error error;
  assert_int_equal(hr_device_find("h100", &job->device, &error), HR_OK);
  job->device.node_seconds = strtod("nan", NULL);
}
/* Seconds that were seen, and none that were assumed: an infinite ratio. */
static void seen(hr_job *job) {
  hr_error error;
  assert_int_equal(hr_device_find("cpu", &job->device, &error), HR_OK);
  job->device.rates = (hr_device_rates){.threads = 1, .seen = true, .taken = {1e-3}};
}

/* What a caller describes is a USAGE error, never a crash and never a run of something else. */
static void graphs_and_jobs_out_of_range_are_refused(void **state) {
  (void)state;
  refused(no_heads, NULL, "heads");
  refused(no_scale, NULL, "scale");
  refused(no_kind, NULL, "known kind");
  refused(no_gate, NULL, "known kind");
  refused(no_epsilon, NULL, "epsilon");
  refused(one_for_both, NULL, "both cannot be weight and bias at once");
  planned(frozen_for_both, 0, NULL, NULL); /* it has none */
  refused(NULL, optimizer, "--optimizer");
  refused(NULL, packing, "--weight-packing");
  refused(NULL, precision, "--precision");
  refused(NULL, tf32, "a CPU multiplies all of them");
  refused(NULL, levels, "--recompute");
  refused(NULL, layers, "give 1 to 512, or HR_RECOMPUTE_BLOCK");
  refused(NULL, no_layers, "recompute.every is 0, and the graph has 0 layers");
  planned(NULL, 1, two_layers, "recompute.every is 2, and the graph has 1 layer");
  planned(NULL, 1, two_layers, "hr_graph_layer");
  planned(NULL, 3, deep_levels, "recompute.level_count is 9, and the graph has 3 layers");
  planned(NULL, 3, deep_levels, "give at most 3, or HR_RECOMPUTE_BLOCK");
  planned(NULL, 2, two_layers, NULL);
  planned(NULL, 0, every_layer, NULL); /* what has no layers takes any number of them */
  planned(NULL, 0, two_layers, NULL);
  planned(NULL, 0, deep_levels, NULL);
  refused(NULL, beta, "--betas");
  refused(NULL, threads, "--threads");
  refused(NULL, device, "the device h100");
  refused(NULL, seen, "from 1e-4 to 1e4");
}

/* Each chunk of the loss is nodes of its own: rows by the hundred million in chunks of 16 took all memory there is. */
static void losses_in_too_many_chunks_are_refused(void **state) {
  enum { MOST = 4096 };
  static const struct {
    uint32_t chunk, rows, least; /* 0: as given */
  } cases[] = {{16, 16 * MOST, 0}, {16, 16 * MOST + 1, 17}, {16, 16 * MOST + 16, 17}, {16, 20 * MOST, 20},
               {20, 20 * MOST, 0}, {16, 20 * MOST + 1, 21}, {1, MOST + 1, 2}};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    const uint32_t rows = cases[k].rows;
    char least[40];
    hr_error error = {0};
    hr_plan *plan = NULL;
    hr_graph *g;
    hr_tensor ids, targets, table;
    hr_job job;
    hr_job_init(&job);
    job.loss_chunk = cases[k].chunk;
    assert_int_equal(hr_graph_create(&g, &error), HR_OK);
    ids = hr_graph_input(g, "ids", rows);
    targets = hr_graph_input(g, "targets", rows);
    table = hr_graph_parameter(g, "table", CLASSES, WIDTH, 0.5, true);
    hr_graph_loss(g, hr_graph_embed(g, ids, table), table, targets);
    assert_int_equal(hr_graph_plan(g, &job, &plan, &error), cases[k].least ? HR_ERROR_USAGE : HR_OK);
    (void)snprintf(least, sizeof least, "--loss-chunk %u or more", cases[k].least);
    if (cases[k].least) assert_non_null(strstr(error.hint, least));
    hr_plan_destroy(plan);
    hr_graph_destroy(g);
  }
}

static hr_tensor no_deviation(hr_graph *g, hr_tensor x) {
  (void)hr_graph_parameter(g, "wild", WIDTH, 0, strtod("inf", NULL), false);
  return x;
}

static void a_graph_without_anything_to_train_is_refused(void **state) {
  hr_error error = {0};
  hr_plan *plan = NULL;
  hr_graph *g;
  hr_tensor x;
  hr_job job;
  (void)state;
  hr_job_init(&job);
  refused(no_deviation, NULL, "wild: init_std is inf");
  assert_int_equal(hr_graph_create(&g, &error), HR_OK);
  x = hr_graph_embed(g, hr_graph_input(g, "ids", ROWS), hr_graph_frozen(g, "table", 7, WIDTH, 0.5));
  hr_graph_loss(g, x, hr_graph_frozen(g, "head", CLASSES, WIDTH, 0.3), hr_graph_input(g, "targets", ROWS));
  assert_int_equal(hr_graph_plan(g, &job, &plan, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "nothing to train"));
  assert_null(plan);
  hr_graph_destroy(g);
}

/* An input that is both rows of a small table and targets of a larger head: each id must be right for both, and a row of a
 * table is never negative, which a target may be. Memory beyond the table was read. */
static void ids_that_are_targets_too_stay_in_their_table(void **state) {
  static const int32_t wrong[] = {7, CLASSES + 20, -1, INT32_MIN};
  (void)state;
  for (int after = 0; after < 2; after++) { /* the loss is described behind the table, or before */
    hr_error error = {0};
    hr_plan *plan = NULL;
    hr_run *run = NULL;
    double loss;
    hr_graph *g;
    hr_tensor ids, table, head, x;
    hr_job job;
    hr_job_init(&job);
    assert_int_equal(hr_graph_create(&g, &error), HR_OK);
    ids = hr_graph_input(g, "ids", ROWS);
    table = hr_graph_parameter(g, "table", 7, WIDTH, 0.5, true);
    head = hr_graph_parameter(g, "head", CLASSES + 100, WIDTH, 0.3, true);
    x = hr_graph_embed(g, after ? ids : hr_graph_input(g, "others", ROWS), table);
    hr_graph_loss(g, x, head, ids);
    if (!after) (void)hr_graph_embed(g, ids, table);
    if (hr_graph_plan(g, &job, &plan, &error) != HR_OK || hr_run_create(g, plan, &run, &error) != HR_OK)
      fail_msg("%s", error.message);
    for (int r = 0; r < ROWS; r++) hr_run_input(run, ids)[r] = r % 7;
    if (hr_run_step(run, 1e-2, &loss, &error) != HR_OK) fail_msg("%s", error.message);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
      hr_run_input(run, ids)[ROWS - 1] = wrong[k];
      assert_int_equal(hr_run_step(run, 1e-2, &loss, &error), HR_ERROR_INPUT);
      assert_non_null(strstr(error.message, "outside of [0, 7)"));
    }
    hr_run_destroy(run);
    hr_plan_destroy(plan);
    hr_graph_destroy(g);
  }
}

/* What a run finds by its place in the plan must be there: of another graph's plan, of a model's, and of what is
 * described after the plan was made. */
static void a_run_is_of_the_graph_that_was_planned(void **state) {
  hr_error error = {0};
  hr_plan *plan = NULL, *of_model = NULL;
  hr_run *run = NULL;
  hr_tensor later;
  double loss;
  float value[WIDTH];
  hr_job job;
  net n = make_net(false), other = make_net(true);
  (void)state;
  (void)hr_graph_parameter(other.graph, "spare", WIDTH, 0, 0, false);
  hr_job_init(&job);
  if (hr_graph_plan(n.graph, &job, &plan, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(hr_run_create(other.graph, plan, &run, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "no parameter spare"));
  hr_job_init(&job);
  assert_int_equal(hr_model_open("micro-llama-bytes", &job.model, &error), HR_OK);
  if (hr_job_finish(&job, &error) != HR_OK || hr_plan_create(&job, &of_model, &error) != HR_OK)
    fail_msg("%s", error.message);
  assert_int_equal(hr_run_create(n.graph, of_model, &run, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "no input ids"));
  hr_graph *nothing;
  assert_int_equal(hr_graph_create(&nothing, &error), HR_OK);
  assert_int_equal(hr_run_create(nothing, of_model, &run, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "no loss"));
  (void)hr_graph_input(nothing, "ids", 0); /* what went wrong first is what is told */
  assert_int_equal(hr_run_create(nothing, of_model, &run, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "ids"));
  hr_graph_destroy(nothing);
  hr_plan_destroy(of_model);
  if (hr_run_create(n.graph, plan, &run, &error) != HR_OK) fail_msg("%s", error.message);
  later = hr_graph_parameter(n.graph, "later", WIDTH, 0, 0, false);
  assert_null(hr_run_input(run, hr_graph_input(n.graph, "more", ROWS)));
  assert_int_equal(hr_run_get_parameter(run, later, value, WIDTH, &error), HR_ERROR_USAGE);
  if (hr_run_step(run, 1e-2, &loss, &error) != HR_OK) fail_msg("%s", error.message);
  if (hr_run_step(run, 1e-2, NULL, &error) != HR_OK) fail_msg("%s", error.message); /* nobody needs to want the loss */
  if (hr_run_evaluate(run, NULL, &error) != HR_OK) fail_msg("%s", error.message);
  hr_run_destroy(run);
  hr_plan_destroy(plan);
  hr_graph_destroy(n.graph);
  hr_graph_destroy(other.graph);
}

/* A step that is not finite is an error, as it ends a run of hr_train: nobody goes on from parameters that are NaN because a status
 * said OK. Where the job skips such steps they are fine and change nothing. */
static void a_step_that_is_not_finite_is_told(void **state) {
  static const double rates[] = {NAN, INFINITY, -1e-3};
  float table[7 * WIDTH], again[7 * WIDTH];
  (void)state;
  for (int skip = 0; skip < 2; skip++) {
    hr_error error = {0};
    hr_plan *plan = NULL;
    hr_run *run = NULL;
    hr_job job;
    double loss = 0;
    net n = make_net(false);
    hr_job_init(&job);
    assert_int_equal(hr_job_set(&job, "on-nonfinite", skip ? "skip" : "stop", &error), HR_OK);
    if (hr_graph_plan(n.graph, &job, &plan, &error) != HR_OK || hr_run_create(n.graph, plan, &run, &error) != HR_OK)
      fail_msg("%s", error.message);
    assert_int_equal(hr_run_get_parameter(run, n.table, table, 7 * WIDTH, &error), HR_OK);
    for (size_t k = 0; k < sizeof rates / sizeof *rates; k++) {
      assert_int_equal(hr_run_step(run, rates[k], &loss, &error), HR_ERROR_USAGE);
      assert_non_null(strstr(error.message, "learning rate"));
    }
    assert_int_equal(hr_run_get_parameter(run, n.table, again, 7 * WIDTH, &error), HR_OK);
    assert_memory_equal(table, again, sizeof table);
    table[0] = INFINITY; /* row 0 of the ids, which are all 0 to begin with */
    assert_int_equal(hr_run_set_parameter(run, n.table, table, 7 * WIDTH, &error), HR_OK);
    if (skip) {
      assert_int_equal(hr_run_step(run, 1e-2, &loss, &error), HR_OK);
      assert_int_equal(hr_run_get_parameter(run, n.table, again, 7 * WIDTH, &error), HR_OK);
      assert_memory_equal(table, again, sizeof table);
    } else {
      assert_int_equal(hr_run_step(run, 1e-2, &loss, &error), HR_ERROR_DIVERGED);
      assert_non_null(strstr(error.message, "its loss is not finite"));
      for (int r = 0; r < ROWS; r++) hr_run_input(run, n.targets)[r] = -1; /* nothing to learn is no divergence */
      assert_int_equal(hr_run_step(run, 1e-2, &loss, &error), HR_OK);
    }
    assert_false(isfinite(loss));
    hr_run_destroy(run);
    hr_plan_destroy(plan);
    hr_graph_destroy(n.graph);
  }
}

/* hr_plan_job gives a job without a model. */
static void the_job_of_a_graph_is_no_job_of_a_model(void **state) {
  static hr_fix fixes[HR_MAX_FIXES];
  hr_error error = {0};
  hr_plan *plan = NULL, *again = NULL;
  hr_job job, of_plan;
  uint32_t count;
  net n = make_net(false);
  (void)state;
  hr_job_init(&job);
  if (hr_graph_plan(n.graph, &job, &plan, &error) != HR_OK) fail_msg("%s", error.message);
  of_plan = *hr_plan_job(plan);
  assert_int_equal(hr_plan_create(&of_plan, &again, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.hint, "hr_graph_plan"));
  assert_int_equal(hr_plan_fixes(&of_plan, fixes, &count, &error), HR_ERROR_USAGE);
  assert_int_equal(hr_plan_recompute(&of_plan, &again, NULL, &error), HR_ERROR_USAGE);
  assert_int_equal(hr_plan_auto(&of_plan, &again, NULL, &error), HR_ERROR_USAGE);
  assert_null(again);
  hr_plan_destroy(plan);
  hr_graph_destroy(n.graph);
}

static void a_head_is_no_weight_of_a_linear(void **state) {
  hr_error error = {0};
  hr_plan *plan = NULL;
  hr_job job;
  net n = make_net(false);
  (void)state;
  hr_job_init(&job);
  assert_int_equal(hr_graph_linear(n.graph, 4, n.head, HR_NO_TENSOR), HR_NO_TENSOR); /* described behind the loss */
  assert_int_equal(hr_graph_plan(n.graph, &job, &plan, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "head"));
  hr_graph_destroy(n.graph);
}

/* hr_job_init and hr_job_set are enough: a device of which the name is there, and a share of it. */
static void a_job_of_names_and_shares_plans_a_graph(void **state) {
  hr_error error = {0};
  hr_plan *plan = NULL;
  hr_device h100;
  hr_job job;
  net n = make_net(false);
  (void)state;
  hr_job_init(&job);
  if (hr_graph_plan(n.graph, &job, &plan, &error) != HR_OK) fail_msg("%s", error.message);
  assert_true(hr_plan_get(plan)->fits && hr_plan_get(plan)->budget_bytes > 0 && hr_plan_get(plan)->step_seconds > 0);
  hr_plan_destroy(plan);
  assert_int_equal(hr_device_find("h100", &h100, &error), HR_OK);
  assert_int_equal(hr_job_set(&job, "device", "h100", &error), HR_OK);
  assert_int_equal(hr_job_set(&job, "budget", "50%", &error), HR_OK);
  if (hr_graph_plan(n.graph, &job, &plan, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(hr_plan_get(plan)->budget_bytes, h100.usable_bytes / 2);
  hr_plan_destroy(plan);
  hr_graph_destroy(n.graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(frozen_parameters_stay),
                                     cmocka_unit_test(trained_parameters_move_the_same_either_way),
                                     cmocka_unit_test(live_sets_name_what_is_in_them),
                                     cmocka_unit_test(an_input_that_nobody_reads_touches_nothing),
                                     cmocka_unit_test(wrong_graphs_are_refused),
                                     cmocka_unit_test(graphs_and_jobs_out_of_range_are_refused),
                                     cmocka_unit_test(losses_in_too_many_chunks_are_refused),
                                     cmocka_unit_test(a_graph_without_anything_to_train_is_refused),
                                     cmocka_unit_test(ids_that_are_targets_too_stay_in_their_table),
                                     cmocka_unit_test(a_run_is_of_the_graph_that_was_planned),
                                     cmocka_unit_test(a_step_that_is_not_finite_is_told),
                                     cmocka_unit_test(the_job_of_a_graph_is_no_job_of_a_model),
                                     cmocka_unit_test(a_head_is_no_weight_of_a_linear),
                                     cmocka_unit_test(a_job_of_names_and_shares_plans_a_graph)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
