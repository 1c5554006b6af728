/* Predicted time. Per node the larger of arithmetic over reachable rate and bytes over reachable bandwidth: a simple
 * roofline with the device's published (or assumed) rates and a stated efficiency. Lanes overlap perfectly. */
#ifndef HRI_PLAN_COST_H
#define HRI_PLAN_COST_H

#include <headroom/job.h>

#include "program/ops.h"

double hri_node_seconds(const hri_job *job, const hri_node *node, const hr_device *device);

typedef struct hri_cost {
  double step_seconds;                  /* one optimizer step, one evaluation batch or one decoded token */
  double lane_seconds[HRI_LANE_COUNT];
  double phase_seconds[HRI_PHASE_COUNT];
  double flops;
} hri_cost;
hri_cost hri_job_cost(const hri_job *job, const hr_job *spec);

#endif
