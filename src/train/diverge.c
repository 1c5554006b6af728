/* Only looked for when a run has ended badly: one pass over weights and states. */
#include "train/diverge.h"

#include <stdio.h>

#include "ops/cpu.h"

bool hri_first_nonfinite(const hri_session *s, char *out, uint64_t out_bytes) {
  const hri_job *job = &s->plan->job;
  const hri_cpu *cpu = s->plan->cpu;
  for (uint32_t r = 0; r < job->ranges.count; r++) {
    const hri_range *range = &job->ranges.items[r];
    const char *name = hri_name_get(job, job->params.items[range->param].key);
    for (uint32_t what = HRI_MOVED_WEIGHT; what < HRI_MOVED_STATE + HRI_STATE_TENSORS; what++) {
      hri_id tensor = hri_moved_tensor(range, what);
      int64_t at;
      if (tensor == HRI_NONE) continue;
      at = hri_cpu_table(cpu)->first_nonfinite(hri_executor_pointer(s->executor, tensor), (int64_t)hri_tensor_stored_elements(&job->tensors.items[tensor]), hri_real_of(job, r, what), (int)hri_cpu_threads(cpu));
      if (at < 0) continue;
      if (what == HRI_MOVED_WEIGHT) (void)snprintf(out, out_bytes, "%s at element %lld", name, (long long)(range->first + (uint64_t)at));
      else (void)snprintf(out, out_bytes, "%s (%s) at element %lld", name, hri_optimizer_get(job->parts.items[range->part_begin].state_kind)->tensors[what - HRI_MOVED_STATE].name, (long long)(range->first + (uint64_t)at));
      return true;
    }
  }
  return false;
}
