/* A program built from ops: a two-layer residual network over token embeddings learns to add two digits. Its training
 * step is derived, planned to the byte, and gets the same techniques as any other job.
 *
 * Introduces: hr_graph_create, hr_graph_input, hr_graph_parameter, hr_graph_layer, hr_graph_embed, hr_graph_add,
 * hr_graph_norm, hr_graph_linear, hr_graph_activation, hr_graph_loss, hr_graph_plan, hr_run_create, hr_run_input,
 * hr_run_step, hr_run_evaluate, hr_run_get_parameter. */
#include <stdio.h>

#include <headroom/headroom.h>

enum { ROWS = 100, WIDTH = 48, HIDDEN = 96, SUMS = 19 };

static int complain(const hr_error *error) {
  fprintf(stderr, "%s\n  try: %s\n", error->message, error->hint);
  return hr_status_exit_code(error->code);
}

static hr_tensor block(hr_graph *g, hr_tensor x, int layer) {
  char name[4][32];
  hr_tensor h;
  for (int k = 0; k < 4; k++)
    (void)snprintf(name[k], sizeof name[k], "layer%d.%s", layer, ((const char *[]){"norm", "in", "in.bias", "out"})[k]);
  hr_graph_layer(g, layer);
  h = hr_graph_norm(g, x, hr_graph_parameter(g, name[0], WIDTH, 0, -1, false), HR_NO_TENSOR, HR_NORM_RMS, 1e-6);
  h = hr_graph_linear(g, h, hr_graph_parameter(g, name[1], HIDDEN, WIDTH, 0.1, true),
                      hr_graph_parameter(g, name[2], HIDDEN, 0, 0, false));
  h = hr_graph_activation(g, h, HR_ACTIVATION_GELU_TANH);
  h = hr_graph_linear(g, h, hr_graph_parameter(g, name[3], WIDTH, HIDDEN, 0.1, true), HR_NO_TENSOR);
  return hr_graph_add(g, x, h);
}

int main(void) {
  hr_graph *g = NULL;
  hr_plan *plan = NULL;
  hr_run *run = NULL;
  hr_error error = {0};
  hr_tensor a, b, sum, x, weight;
  float first[WIDTH];
  double loss = 0;
  hr_job job;

  if (hr_graph_create(&g, &error) != HR_OK) return complain(&error);
  a = hr_graph_input(g, "a", ROWS);
  b = hr_graph_input(g, "b", ROWS);
  sum = hr_graph_input(g, "sum", ROWS);
  weight = hr_graph_parameter(g, "digit.a", 10, WIDTH, 0.5, true);
  x = hr_graph_add(g, hr_graph_embed(g, a, weight),
                   hr_graph_embed(g, b, hr_graph_parameter(g, "digit.b", 10, WIDTH, 0.5, true)));
  for (int layer = 0; layer < 2; layer++) x = block(g, x, layer);
  hr_graph_layer(g, -1);
  hr_graph_loss(g, x, hr_graph_parameter(g, "head", SUMS, WIDTH, 0.1, true), sum);

  hr_job_init(&job);
  if (hr_device_find("cpu", &job.device, &error) != HR_OK) return complain(&error);
  job.recompute.kind = HR_RECOMPUTE_BLOCK;
  if (hr_graph_plan(g, &job, &plan, &error) != HR_OK) return complain(&error);
  printf("%llu parameters, %llu bytes planned\n", (unsigned long long)hr_plan_get(plan)->parameter_count,
         (unsigned long long)hr_plan_get(plan)->tiers[HR_TIER_DEVICE].reserved_bytes);

  if (hr_run_create(g, plan, &run, &error) != HR_OK) return complain(&error);
  for (int step = 0; step < 300; step++) {
    for (int r = 0; r < ROWS; r++) { /* an input's content lasts for one step */
      hr_run_input(run, a)[r] = r / 10;
      hr_run_input(run, b)[r] = r % 10;
      hr_run_input(run, sum)[r] = r / 10 + r % 10;
    }
    if (hr_run_step(run, 3e-3, &loss, &error) != HR_OK) return complain(&error);
    if (step % 100 == 0) printf("step %d loss %.4f\n", step, loss);
  }
  printf("last loss %.4f\n", loss);
  if (hr_run_get_parameter(run, weight, (float[10 * WIDTH]){0}, 10 * WIDTH, &error) != HR_OK) return complain(&error);
  if (hr_run_get_parameter(run, weight, first, WIDTH, &error) != HR_ERROR_USAGE) return 1; /* the size is checked */
  hr_run_destroy(run);
  hr_plan_destroy(plan);
  hr_graph_destroy(g);
  return loss < 0.1 ? 0 : 1;
}
