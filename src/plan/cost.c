#include "plan/cost.h"

#include <string.h>

/* Shares of the GEMM rate that other arithmetic reaches, and of the bandwidth that gathers reach: assumptions, to be
 * replaced by a probe of the machine. */
static const double ATTENTION_SHARE = 0.5, NODE_OVERHEAD_GPU = 4e-6, NODE_OVERHEAD_CPU = 5e-6;

double hri_node_seconds(const hri_job *job, const hri_node *node, const hr_device *device) {
  double rate = device->flops_fp32 * device->gemm_efficiency, bandwidth = device->memory_bytes_per_second * device->memory_efficiency;
  double flops = hri_node_flops(job, node), bytes = hri_node_bytes(job, node), seconds;
  bool product = node->op == HRI_OP_LINEAR || node->op == HRI_OP_LINEAR_DX || node->op == HRI_OP_LINEAR_DW;
  bool attention = node->op >= HRI_OP_ATTENTION && node->op <= HRI_OP_ATTENTION_CACHED;
  if (node->lane != HRI_COMPUTE && device->link_bytes_per_second > 0) bandwidth = device->link_bytes_per_second;
  if (attention) rate *= ATTENTION_SHARE;
  if (!product && !attention) flops = 0; /* element-wise work is bound by memory */
  seconds = rate > 0 ? flops / rate : 0;
  if (bandwidth > 0 && bytes / bandwidth > seconds) seconds = bytes / bandwidth;
  return seconds + (device->is_cpu ? NODE_OVERHEAD_CPU : NODE_OVERHEAD_GPU);
}

static void add_program(const hri_job *job, const hr_job *spec, uint8_t kind, double times, hri_cost *cost) {
  const hri_program *p = &job->programs[kind];
  double lanes[HRI_LANE_COUNT] = {0}, longest = 0;
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &job->nodes.items[p->order.items[at]];
    double seconds = times * hri_node_seconds(job, node, &spec->device);
    lanes[node->lane] += seconds;
    cost->phase_seconds[node->phase] += seconds;
    cost->flops += times * hri_node_flops(job, node);
  }
  for (int lane = 0; lane < HRI_LANE_COUNT; lane++) {
    cost->lane_seconds[lane] += lanes[lane];
    if (lanes[lane] > longest) longest = lanes[lane];
  }
  cost->step_seconds += longest;
}

hri_cost hri_job_cost(const hri_job *job, const hr_job *spec) {
  hri_cost cost;
  memset(&cost, 0, sizeof cost);
  if (spec->purpose == HR_PURPOSE_TRAIN && spec->accumulate > 1) {
    add_program(job, spec, HRI_BEGIN, 1, &cost);
    add_program(job, spec, HRI_MICRO, spec->accumulate, &cost);
    add_program(job, spec, HRI_UPDATE, 1, &cost);
  } else if (spec->purpose == HR_PURPOSE_TRAIN) {
    add_program(job, spec, HRI_STEP, 1, &cost);
  } else if (spec->purpose == HR_PURPOSE_EVALUATE) {
    add_program(job, spec, HRI_EVALUATE, 1, &cost);
  } else {
    add_program(job, spec, HRI_DECODE, 1, &cost);
  }
  return cost;
}
