/* Only looked for when a run has ended badly: one pass over weights and states. */
#include "train/diverge.h"

#include <stdio.h>

#include "ops/cpu.h"

bool hri_first_nonfinite(const hri_session *s, char *out, uint64_t out_bytes) {
  const hri_job *job = &s->plan->job;
  const hri_cpu *cpu = s->plan->cpu;
  for (size_t p = 0; p < job->params.count; p++) {
    const hri_param *param = &job->params.items[p];
    for (uint32_t what = HRI_MOVED_WEIGHT; what < HRI_MOVED_STATE + HRI_STATE_TENSORS; what++) {
      hri_id tensor = hri_moved_tensor(param, what);
      int64_t at;
      if (tensor == HRI_NONE) continue;
      at = hri_cpu_table(cpu)->first_nonfinite(hri_executor_pointer(s->executor, tensor), (int64_t)param->elements, hri_real_of(job, (uint32_t)p, what), (int)hri_cpu_threads(cpu));
      if (at < 0) continue;
      if (what == HRI_MOVED_WEIGHT) (void)snprintf(out, out_bytes, "%s at element %lld", hri_name_get(job, param->key), (long long)at);
      else (void)snprintf(out, out_bytes, "%s (%s) at element %lld", hri_name_get(job, param->key), hri_optimizer_get(param->state_kind)->tensors[what - HRI_MOVED_STATE].name, (long long)at);
      return true;
    }
  }
  return false;
}
