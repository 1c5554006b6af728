/* Layer norm and RMS norm over the last dimension; with a residual operand the sum is formed, kept and normalised. */
#include "ops/rules.h"

#include <headroom/model.h>

hr_status hri_check_norm(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *x = hri_at(job, node, 0), *w = hri_at(job, node, 1), *b = hri_at(job, node, 2), *residual = hri_at(job, node, 3),
                   *sum = hri_at(job, node, 4), *y = hri_at(job, node, 5), *stats = hri_at(job, node, 6);
  HRI_SHAPE(hri_tensor_elements(w) == hri_columns(x) && w->dtype == HRI_F32);
  if (b) HRI_SHAPE(hri_tensor_elements(b) == hri_columns(x) && b->dtype == HRI_F32);
  HRI_SHAPE(hri_tensor_bytes(x) == hri_tensor_bytes(y) && x->dtype == y->dtype);
  HRI_SHAPE((residual == NULL) == (sum == NULL));
  if (residual) HRI_SHAPE(hri_tensor_bytes(residual) == hri_tensor_bytes(x) && hri_tensor_bytes(sum) == hri_tensor_bytes(x));
  if (residual) HRI_SHAPE(residual->dtype == x->dtype && sum->dtype == x->dtype);
  HRI_SHAPE(stats->dtype == HRI_F32 && hri_tensor_elements(stats) == hri_rows(x) * (node->attr.i[0] == HR_NORM_LAYER ? 2 : 1));
  return HR_OK;
}

void hri_back_norm(hri_autodiff *ad, hri_id node) {
  hri_job *job = ad->job;
  hri_id x = hri_id_at(job, node, 0), w = hri_id_at(job, node, 1), b = hri_id_at(job, node, 2), y = hri_id_at(job, node, 5),
         stats = hri_id_at(job, node, 6), dy = hri_ad_gradient(ad, y), dx;
  hri_attr attr = job->nodes.items[node].attr;
  if (!hri_ad_needed(ad, x) && !hri_ad_needed(ad, w) && !hri_ad_needed(ad, b)) return;
  dx = hri_ad_like(ad, x, ".grad");
  hri_ad_emit(ad, HRI_OP_NORM_BACKWARD, &attr,
              (hri_operand[]){HRI_R(dy), HRI_R(x), HRI_R(stats), HRI_R(w), HRI_ABSENT, HRI_W(dx), hri_ad_param(ad, w), hri_ad_param(ad, b)}, 8);
  hri_ad_contribute(ad, x, dx);
}

double hri_flops_norm(const hri_job *job, const hri_node *node) { return 6.0 * (double)hri_tensor_elements(hri_at(job, node, 0)); }
double hri_flops_norm_backward(const hri_job *job, const hri_node *node) { return 12.0 * (double)hri_tensor_elements(hri_at(job, node, 0)); }

hr_status hri_check_norm_backward(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *dy = hri_at(job, node, 0), *x = hri_at(job, node, 1), *w = hri_at(job, node, 3), *extra = hri_at(job, node, 4),
                   *dx = hri_at(job, node, 5);
  HRI_SHAPE(hri_tensor_bytes(dy) == hri_tensor_bytes(x) && hri_tensor_bytes(dx) == hri_tensor_bytes(x));
  HRI_SHAPE(dy->dtype == x->dtype && dx->dtype == x->dtype);
  HRI_SHAPE(hri_tensor_elements(w) == hri_columns(x) && w->dtype == HRI_F32 && hri_at(job, node, 2)->dtype == HRI_F32);
  if (extra) HRI_SHAPE(hri_tensor_bytes(extra) == hri_tensor_bytes(x) && extra->dtype == x->dtype);
  for (uint32_t at = 6; at < 8; at++)
    if (hri_at(job, node, at)) HRI_SHAPE(hri_at(job, node, at)->dtype == HRI_F32);
  return HR_OK;
}
