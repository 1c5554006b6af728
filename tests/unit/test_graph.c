/* Programs built op by op: frozen parameters, update in the backward, check mode, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/headroom.h>

enum { ROWS = 12, WIDTH = 10, CLASSES = 5 };

typedef struct net { hr_graph *graph; hr_tensor ids, targets, table, head; } net;

static net make_net(bool frozen) {
  net n;
  hr_error error = {0};
  hr_tensor x;
  assert_int_equal(hr_graph_create(&n.graph, &error), HR_OK);
  n.ids = hr_graph_input(n.graph, "ids", ROWS);
  n.targets = hr_graph_input(n.graph, "targets", ROWS);
  n.table = frozen ? hr_graph_frozen(n.graph, "table", 7, WIDTH, 0.5) : hr_graph_parameter(n.graph, "table", 7, WIDTH, 0.5, true);
  n.head = hr_graph_parameter(n.graph, "head", CLASSES, WIDTH, 0.3, true);
  hr_graph_layer(n.graph, 0);
  x = hr_graph_embed(n.graph, n.ids, n.table);
  x = hr_graph_linear(n.graph, x, hr_graph_parameter(n.graph, "w", WIDTH, WIDTH, 0.3, true), hr_graph_parameter(n.graph, "b", WIDTH, 0, 0, false));
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
  if (hr_graph_plan(n->graph, job, &plan, &error) != HR_OK || hr_run_create(n->graph, plan, &run, &error) != HR_OK) fail_msg("%s", error.message);
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(frozen_parameters_stay), cmocka_unit_test(trained_parameters_move_the_same_either_way), cmocka_unit_test(wrong_graphs_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
