/* Only looked for when a run has ended badly: one pass over weights and states. And in fp16 at the beginning: one over
 * weights. */
#include "train/diverge.h"

#include <stdio.h>

/* Index of the first element that is not finite, piece by piece where the tensor has no address; -1: all are, or it
 * cannot be read. */
static int64_t first_in(const hri_session *s, hri_id tensor, uint64_t elements, hri_real real) {
  enum { PIECE = 4096 };
  const hri_elements *with = &s->plan->backend->elements;
  const void *values = hri_executor_view(s->executor, tensor);
  float piece[PIECE]; /* of either type */
  /* Steps may be in flight, and an address counts after a wait. */
  if (values && hri_executor_read(s->executor, tensor, 0, piece, hri_real_bytes(real), NULL) != HR_OK) return -1;
  if (values) return with->first_nonfinite(values, (int64_t)elements, real, with->team);
  for (uint64_t done = 0; done < elements; done += PIECE) {
    uint64_t n = elements - done < PIECE ? elements - done : PIECE, each = hri_real_bytes(real);
    int64_t at;
    if (hri_executor_read(s->executor, tensor, done * each, piece, n * each, NULL) != HR_OK) return -1;
    at = with->first_nonfinite(piece, (int64_t)n, real, NULL);
    if (at >= 0) return (int64_t)done + at;
  }
  return -1;
}

bool hri_first_nonfinite(const hri_session *s, char *out, uint64_t out_bytes) {
  const hri_job *job = &s->plan->job;
  for (uint32_t r = 0; r < job->ranges.count; r++) {
    const hri_param_range *range = &job->ranges.items[r];
    const char *name = hri_name_get(job, job->params.items[range->param].key);
    for (uint32_t what = HRI_MOVED_WEIGHT; what < HRI_MOVED_STATE + HRI_STATE_TENSORS; what++) {
      hri_id tensor = hri_moved_tensor(job, range, what);
      int64_t at;
      if (tensor == HRI_NONE || hri_is_codes(job, r, what)) continue; /* every code is finite */
      at = first_in(s, tensor, hri_tensor_stored_elements(&job->tensors.items[tensor]),
                    hri_dtype_real(job->tensors.items[tensor].dtype));
      if (at < 0) continue;
      if (what == HRI_MOVED_WEIGHT)
        (void)snprintf(out, out_bytes, "%s at element %lld", name, (long long)(range->first + (uint64_t)at));
      else
        (void)snprintf(
            out, out_bytes, "%s (%s) at element %lld", name,
            hri_optimizer_get(job->parts.items[range->part_begin].state_kind)->tensors[what - HRI_MOVED_STATE].name,
            (long long)(range->first + (uint64_t)at));
      return true;
    }
  }
  return false;
}

hr_status hri_check_fp16(const hri_session *s, hr_error *error) {
  const hri_job *job = &s->plan->job;
  for (uint32_t p = 0; p < job->params.count; p++) {
    const hri_param *param = &job->params.items[p];
    const hri_tensor *weight = &job->tensors.items[param->weight];
    int64_t at;
    if (weight->dtype != HRI_F16 || !hri_executor_has(s->executor, param->weight)) continue;
    at = first_in(s, param->weight, hri_tensor_stored_elements(weight), HRI_REAL_F16);
    if (at < 0) continue;
    (void)hri_fail(error, HR_ERROR_INPUT,
                   "weight %s holds a number at element %lld that fp16 cannot hold: its largest is 65504",
                   hri_name_get(job, param->key), (long long)at);
    return hri_hint(error, HR_ERROR_INPUT, "give --precision bf16, which has the range of fp32");
  }
  return HR_OK;
}
