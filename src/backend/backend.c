/* What all backends share: the end of their life, and the words for what a run finds wrong. */
#include "backend/backend.h"

#include "ops/rules.h"
#include "program/quantization.h"

void hri_backend_close(hri_backend *backend) {
  if (backend) backend->close(backend);
}

hr_status hri_care_broken(const hri_job *job, hri_program_kind program, const hri_care *care, uint64_t beyond,
                          hr_error *error) {
  const hri_node *node = &job->nodes.items[job->programs[program].order.items[care->at]];
  const hri_storage *s = &job->storages.items[care->storage];
  return hri_fail(error, HR_ERROR_MISMATCH, "check mode: %s (layer %d) wrote %llu bytes behind the end of %s",
                  hri_op_name(node->op), node->layer, (unsigned long long)(care->begin + beyond - s->bytes + 1),
                  hri_name_get(job, s->key));
}

/* An error names the weight and the row and column of what has no code; the loader knows the file. */
hr_status hri_quantize_broken(const hri_job *job, const hri_node *node, uint64_t element, float value,
                              hr_error *error) {
  const hri_tensor *w = hri_at(job, node, 0);
  (void)hri_fail(error, HR_ERROR_INPUT, "weight %s has %g at row %llu, column %llu, which has no code in %s",
                 hri_name_get(job, w->key), (double)value, (unsigned long long)(element / hri_columns(w)),
                 (unsigned long long)(element % hri_columns(w)), hri_quantization_name((uint32_t)node->attr.i[0]));
  return hri_hint(error, HR_ERROR_INPUT, "look for a damaged file, or leave --quantize away");
}
