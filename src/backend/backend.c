/* What all backends share: the end of their life, and check mode: what is done beside a node, and the words for what it
 * finds. */
#include "backend/backend.h"

#include <assert.h>

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

hr_status hri_take_care(hri_carer *c, uint32_t at, bool before, hr_error *error) {
  for (; c->cares && c->next < c->cares->list.count; c->next++) {
    const hri_care *care = &c->cares->list.items[c->next];
    assert(care->at >= at); /* rising */
    if (care->at != at || (care->kind == HRI_PAINT_BEFORE) != before) break;
    HRI_TRY(c->take(c->run, c->program, care, error));
  }
  return HR_OK;
}
