#include "ops/rules.h"

hr_status hri_check_square_norm(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_at(job, node, 1)->dtype == HRI_F64);
  HRI_SHAPE(hri_tensor_elements(hri_at(job, node, 1)) == (hri_tensor_stored_elements(hri_at(job, node, 0)) + HRI_NORM_BLOCK - 1) / HRI_NORM_BLOCK);
  return HR_OK;
}

double hri_flops_square_norm(const hri_job *job, const hri_node *node) { return 2.0 * (double)hri_tensor_elements(hri_at(job, node, 0)); }

hr_status hri_check_control_only(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_tensor_bytes(hri_at(job, node, 0)) == sizeof(hri_control));
  return HR_OK;
}

hr_status hri_check_update(const hri_job *job, const hri_node *node, hr_error *error) {
  uint64_t elements = hri_tensor_stored_elements(hri_at(job, node, 0));
  for (uint32_t k = 2; k < node->operand_count; k++) HRI_SHAPE(hri_tensor_stored_elements(hri_at(job, node, k)) == elements);
  return HR_OK;
}

double hri_flops_update(const hri_job *job, const hri_node *node) { return 12.0 * (double)hri_tensor_elements(hri_at(job, node, 0)); }
