#include "ops/rules.h"

static bool fp32_or_bf16(const hri_tensor *t) { return t->dtype == HRI_F32 || t->dtype == HRI_BF16; }

hr_status hri_check_square_norm(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(fp32_or_bf16(hri_at(job, node, 0)));
  HRI_SHAPE(hri_at(job, node, 1)->dtype == HRI_F64);
  HRI_SHAPE(hri_tensor_elements(hri_at(job, node, 1)) == (hri_tensor_stored_elements(hri_at(job, node, 0)) + HRI_NORM_BLOCK - 1) / HRI_NORM_BLOCK);
  return HR_OK;
}

double hri_flops_square_norm(const hri_job *job, const hri_node *node) { return 2.0 * (double)hri_tensor_elements(hri_at(job, node, 0)); }

hr_status hri_check_found_inf(const hri_job *job, const hri_node *node, hr_error *error) {
  for (uint32_t i = 0; i < 3; i++) HRI_SHAPE(hri_at(job, node, i)->dtype == HRI_F64 && hri_tensor_stored_elements(hri_at(job, node, i)) == 1);
  return HR_OK;
}

hr_status hri_check_control_only(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_tensor_bytes(hri_at(job, node, 0)) == sizeof(hri_control));
  return HR_OK;
}

/* g, control, w, states, bf16 copy of w?, guard?. The states are what the optimizer's row says, those that may be narrow all
 * of one type; a copy mirrors an fp32 master. */
hr_status hri_check_update(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_optimizer *row = hri_optimizer_get(hri_optimizer_of(node->op));
  uint32_t states = row->tensor_count;
  const hri_tensor *narrow = NULL;
  const hri_tensor *g = hri_at(job, node, 0), *w = hri_at(job, node, 2), *copy = hri_at(job, node, 3 + states);
  uint64_t elements = hri_tensor_stored_elements(g);
  HRI_SHAPE(hri_tensor_bytes(hri_at(job, node, 1)) == sizeof(hri_control));
  HRI_SHAPE(fp32_or_bf16(g) && fp32_or_bf16(w));
  HRI_SHAPE(hri_tensor_stored_elements(w) == elements);
  for (uint32_t k = 0; k < states; k++) {
    const hri_tensor *state = hri_at(job, node, 3 + k);
    HRI_SHAPE(hri_tensor_stored_elements(state) == hri_state_entries(&row->tensors[k], elements));
    if (!row->tensors[k].narrow) HRI_SHAPE(state->dtype == row->tensors[k].dtype);
    else HRI_SHAPE((state->dtype == HRI_BF16 || state->dtype == row->tensors[k].dtype) && (!narrow || narrow->dtype == state->dtype));
    if (row->tensors[k].narrow) narrow = state;
  }
  if (copy) HRI_SHAPE(w->dtype == HRI_F32 && copy->dtype == HRI_BF16 && hri_tensor_stored_elements(copy) == elements);
  return HR_OK;
}

double hri_flops_update(const hri_job *job, const hri_node *node) { return 12.0 * (double)hri_tensor_elements(hri_at(job, node, 0)); }
