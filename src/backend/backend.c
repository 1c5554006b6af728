/* What all backends share: the end of their life, and the words for what check mode finds. */
#include "backend/backend.h"

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
