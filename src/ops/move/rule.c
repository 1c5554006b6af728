#include "ops/rules.h"

hr_status hri_check_any(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_tensor_bytes(hri_at(job, node, 0)) > 0);
  return HR_OK;
}

hr_status hri_check_copy(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_tensor_bytes(hri_at(job, node, 0)) == hri_tensor_bytes(hri_at(job, node, 1)));
  return HR_OK;
}

hr_status hri_check_cast(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *from = hri_at(job, node, 0), *to = hri_at(job, node, 1);
  HRI_SHAPE(hri_tensor_stored_elements(from) == hri_tensor_stored_elements(to));
  HRI_SHAPE((from->dtype == HRI_F32 || from->dtype == HRI_BF16) && (to->dtype == HRI_F32 || to->dtype == HRI_BF16));
  return HR_OK;
}

hr_status hri_check_pack(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *from = hri_at(job, node, 0), *to = hri_at(job, node, 1);
  HRI_SHAPE(from->layout == HRI_PLAIN && to->layout == HRI_PACKED && from->dtype == to->dtype);
  HRI_SHAPE(hri_rows(from) == hri_rows(to) && hri_columns(from) == hri_columns(to));
  return HR_OK;
}

hr_status hri_check_select(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *from = hri_at(job, node, 0), *to = hri_at(job, node, 2);
  HRI_SHAPE(hri_tensor_bytes(from) == from->stored[0] * hri_tensor_bytes(to));
  return HR_OK;
}

hr_status hri_check_last_row(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_columns(hri_at(job, node, 0)) == hri_columns(hri_at(job, node, 2)) && hri_at(job, node, 0)->dtype == hri_at(job, node, 2)->dtype);
  return HR_OK;
}
