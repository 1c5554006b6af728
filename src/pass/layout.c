/* Gathers the parameters of each unit into segments: contiguous runs with the same (dtypes, trainable, decay, state
 * kind), each parameter aligned to 256 elements, so that blockwise quantizers never cross a parameter and do not depend
 * on the rank count. Gradients and states mirror the segments. */
#include <string.h>

#include "pass/pass.h"

static hri_dtype dtype_of(const hri_job *job, hri_id tensor) { return tensor == HRI_NONE ? HRI_DTYPE_COUNT : (hri_dtype)job->tensors.items[tensor].dtype; }

static bool same_segment(const hri_segment *s, const hri_job *job, const hri_param *p) {
  const hri_param *first = &job->params.items[s->param_begin];
  for (uint32_t k = 0; k < HRI_STATE_TENSORS; k++)
    if (dtype_of(job, first->state[k]) != dtype_of(job, p->state[k])) return false;
  return s->unit == p->unit && s->dtype == dtype_of(job, p->weight) && s->trainable == p->trainable && s->decay == p->decay && s->state_kind == p->state_kind &&
         dtype_of(job, first->gradient) == dtype_of(job, p->gradient);
}

/* Parameters are sorted by segment: execution order of units, decayed matrices first. */
static hr_status assign(hri_job *job, hr_error *error) {
  for (uint32_t p = 0; p < job->params.count; p++) {
    hri_param *param = &job->params.items[p];
    uint32_t s;
    for (s = (uint32_t)job->segments.count; s-- > 0;) { /* units come in order: the match is near the end */
      if (same_segment(&job->segments.items[s], job, param)) break;
      if (job->segments.count - s > 8) {
        s = HRI_NONE;
        break;
      }
    }
    if (s == HRI_NONE) {
      hri_segment fresh = {.unit = param->unit, .layer = param->layer, .dtype = job->tensors.items[param->weight].dtype, .trainable = param->trainable,
                           .decay = param->decay, .state_kind = param->state_kind, .weight = HRI_NONE, .gradient = HRI_NONE, .master = HRI_NONE,
                           .param_begin = p};
      memset(fresh.state, 0xFF, sizeof fresh.state); /* HRI_NONE */
      s = (uint32_t)job->segments.count;
      if (!hri_array_push(&job->segments, fresh)) return hri_fail_memory(error, sizeof fresh, "segments");
    }
    param->segment = s;
    param->segment_offset = job->segments.items[s].elements;
    job->segments.items[s].elements += hri_round_up(param->elements, HRI_SEGMENT_ALIGN_ELEMENTS);
    job->segments.items[s].param_count++;
  }
  return HR_OK;
}

/* One storage for so many entries of a segment, labelled like the first member's own storage. */
static hri_id gather(hri_job *job, const hri_segment *segment, hri_id member, uint64_t entries, const char *what) {
  hri_storage storage;
  uint64_t bytes;
  if (member == HRI_NONE || job->failed) return HRI_NONE;
  storage = job->storages.items[job->tensors.items[member].storage];
  if (!hri_mul(entries, hri_dtype_bytes((hri_dtype)job->tensors.items[member].dtype), &bytes)) job->failed = true;
  storage.bytes = bytes;
  storage.segment = (uint32_t)(segment - job->segments.items);
  storage.key = segment->layer >= 0 ? hri_name(job, "layers.%d.%s.%s", segment->layer, segment->decay ? "matrices" : "vectors", what)
                                    : hri_name(job, "%s.%s.%s", segment->unit == 0 ? "embed" : "head", segment->decay ? "matrices" : "vectors", what);
  if (job->failed || !hri_array_push(&job->storages, storage)) {
    job->failed = true;
    return HRI_NONE;
  }
  return (hri_id)job->storages.count - 1;
}

static void redirect(const hri_job *job, hri_merge *merge, hri_id tensor, hri_id storage, uint64_t elements_before) {
  const hri_tensor *t;
  if (tensor == HRI_NONE || storage == HRI_NONE) return;
  t = &job->tensors.items[tensor];
  hri_merge_set(merge, t->storage, storage, elements_before * hri_dtype_bytes((hri_dtype)t->dtype));
}

hr_status hri_pass_layout(hri_job *job, bool gradients_apart, hr_error *error) {
  hri_merge merge;
  hr_status status;
  job->current_pass = HRI_PASS_LAYOUT;
  HRI_TRY(assign(job, error));
  for (size_t s = 0; s < job->segments.count; s++) {
    hri_segment *segment = &job->segments.items[s];
    const hri_param first = job->params.items[segment->param_begin];
    const hri_optimizer *row = hri_optimizer_get(segment->state_kind);
    segment->weight = gather(job, segment, first.weight, segment->elements, "weight");
    segment->master = gather(job, segment, first.master, segment->elements, "master");
    if (!gradients_apart) segment->gradient = gather(job, segment, first.gradient, segment->elements, "gradient");
    for (uint32_t k = 0; segment->trainable && k < row->tensor_count; k++)
      segment->state[k] = gather(job, segment, first.state[k], hri_state_entries(&row->tensors[k], segment->elements), row->tensors[k].name);
  }
  HRI_TRY(hri_job_ok(job, error));
  status = hri_merge_init(&merge, job, error);
  if (status != HR_OK) return status;
  for (size_t p = 0; p < job->params.count; p++) {
    const hri_param *param = &job->params.items[p];
    const hri_segment *segment = &job->segments.items[param->segment];
    redirect(job, &merge, param->weight, segment->weight, param->segment_offset);
    redirect(job, &merge, param->master, segment->master, param->segment_offset);
    redirect(job, &merge, param->gradient, segment->gradient, param->segment_offset);
    for (uint32_t k = 0; k < hri_optimizer_get(param->state_kind)->tensor_count; k++)
      redirect(job, &merge, param->state[k], segment->state[k], param->segment_offset / hri_optimizer_get(param->state_kind)->tensors[k].per);
  }
  hri_merge_apply(&merge, job);
  hri_merge_deinit(&merge);
  return HR_OK;
}
