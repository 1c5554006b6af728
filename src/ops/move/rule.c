#include "ops/rules.h"

hr_status hri_check_any(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_tensor_bytes(hri_at(job, node, 0)) > 0);
  return HR_OK;
}

hr_status hri_check_copy(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_tensor_bytes(hri_at(job, node, 0)) == hri_tensor_bytes(hri_at(job, node, 1)));
  return HR_OK;
}

hr_status hri_check_select(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *from = hri_at(job, node, 0), *to = hri_at(job, node, 2);
  HRI_SHAPE(hri_tensor_bytes(from) == from->stored[0] * hri_tensor_bytes(to));
  return HR_OK;
}

hr_status hri_check_last_row(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_columns(hri_at(job, node, 0)) == hri_columns(hri_at(job, node, 2)));
  return HR_OK;
}
