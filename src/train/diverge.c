/* Only looked for when a run has ended badly: one pass over weights and states. */
#include "train/diverge.h"

#include <stdio.h>

static const char *const suffixes[] = {[HRI_PART_WEIGHT] = "", [HRI_PART_STATE0] = " (exp_avg)", [HRI_PART_STATE1] = " (exp_avg_sq)"};

static hri_id tensor_of(const hri_param *p, hri_part_kind kind) {
  if (kind != HRI_PART_WEIGHT) return p->state[kind - HRI_PART_STATE0];
  return p->master != HRI_NONE ? p->master : p->weight;
}

/* Index of the first element that is not finite, piece by piece where the tensor has no address; -1: all are, or it cannot be read. */
static int64_t first_in(const hri_session *s, hri_id tensor, uint64_t elements, hri_real real) {
  enum { PIECE = 4096 };
  const hri_elements *with = &s->plan->backend->elements;
  const void *values = hri_executor_view(s->executor, tensor);
  float piece[PIECE]; /* of either type */
  if (values) return with->first_nonfinite(values, (int64_t)elements, real, with->threads);
  for (uint64_t done = 0; done < elements; done += PIECE) {
    uint64_t n = elements - done < PIECE ? elements - done : PIECE, each = hri_real_bytes(real);
    int64_t at;
    if (hri_executor_read(s->executor, tensor, done * each, piece, n * each, NULL) != HR_OK) return -1;
    at = with->first_nonfinite(piece, (int64_t)n, real, 1);
    if (at >= 0) return (int64_t)done + at;
  }
  return -1;
}

bool hri_first_nonfinite(const hri_session *s, char *out, uint64_t out_bytes) {
  const hri_job *job = &s->plan->job;
  for (size_t p = 0; p < job->params.count; p++) {
    const hri_param *param = &job->params.items[p];
    for (int kind = HRI_PART_WEIGHT; kind <= HRI_PART_STATE1; kind++) {
      hri_id tensor = tensor_of(param, (hri_part_kind)kind);
      int64_t at;
      if (tensor == HRI_NONE) continue;
      at = first_in(s, tensor, param->elements, hri_real_of(job, (uint32_t)p, (hri_part_kind)kind));
      if (at < 0) continue;
      (void)snprintf(out, out_bytes, "%s%s at element %lld", hri_name_get(job, param->key), suffixes[kind], (long long)at);
      return true;
    }
  }
  return false;
}
