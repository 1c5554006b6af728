#include "ops/rules.h"

hr_status hri_check_cross_entropy(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *logits = hri_at(job, node, 0), *targets = hri_at(job, node, 1), *dlogits = hri_at(job, node, 3),
                   *losses = hri_at(job, node, 4);
  HRI_SHAPE(targets->dtype == HRI_I32 && hri_tensor_elements(targets) == hri_rows(logits));
  HRI_SHAPE(losses->dtype == HRI_F32 && hri_tensor_elements(losses) == hri_rows(logits));
  HRI_SHAPE((uint64_t)node->attr.i[0] <= hri_columns(logits));
  HRI_SHAPE(node->attr.f[1] >= 0 && node->attr.f[1] < 1);
  if (dlogits) HRI_SHAPE(hri_tensor_bytes(dlogits) == hri_tensor_bytes(logits) && dlogits->dtype == logits->dtype);
  return HR_OK;
}

double hri_flops_cross_entropy(const hri_job *job, const hri_node *node) {
  return 20.0 * (double)hri_tensor_elements(hri_at(job, node, 0));
}

hr_status hri_check_loss_sum(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_at(job, node, 0)->dtype == HRI_F32);
  return HR_OK;
}
