/* Only looked for when a run has ended badly: one pass over weights and states. */
#include "train/diverge.h"

#include <stdio.h>

#include "ops/cpu.h"

static const char *const suffixes[] = {[HRI_PART_WEIGHT] = "", [HRI_PART_STATE0] = " (exp_avg)", [HRI_PART_STATE1] = " (exp_avg_sq)"};

static hri_id tensor_of(const hri_param *p, hri_part_kind kind) {
  if (kind != HRI_PART_WEIGHT) return p->state[kind - HRI_PART_STATE0];
  return p->master != HRI_NONE ? p->master : p->weight;
}

bool hri_first_nonfinite(const hri_session *s, char *out, uint64_t out_bytes) {
  const hri_job *job = &s->plan->job;
  const hri_cpu *cpu = s->plan->cpu;
  for (size_t p = 0; p < job->params.count; p++) {
    const hri_param *param = &job->params.items[p];
    for (int kind = HRI_PART_WEIGHT; kind <= HRI_PART_STATE1; kind++) {
      hri_id tensor = tensor_of(param, (hri_part_kind)kind);
      int64_t at;
      if (tensor == HRI_NONE) continue;
      at = hri_cpu_table(cpu)->first_nonfinite(hri_executor_pointer(s->executor, tensor), (int64_t)param->elements, hri_real_of(job, (uint32_t)p, (hri_part_kind)kind), (int)hri_cpu_threads(cpu));
      if (at < 0) continue;
      (void)snprintf(out, out_bytes, "%s%s at element %lld", hri_name_get(job, param->key), suffixes[kind], (long long)at);
      return true;
    }
  }
  return false;
}
