/* Layer norm and RMS norm over the last dimension; with a residual operand the sum is formed, kept and normalised. Head
 * norm is the RMS norm of each query and key head inside of the fused q,k,v rows; values pass through. */
#include "ops/rules.h"

#include <headroom/model.h>

hr_status hri_check_norm(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *x = hri_at(job, node, 0), *w = hri_at(job, node, 1), *b = hri_at(job, node, 2),
                   *residual = hri_at(job, node, 3), *sum = hri_at(job, node, 4), *y = hri_at(job, node, 5),
                   *stats = hri_at(job, node, 6);
  HRI_SHAPE(hri_tensor_elements(w) == hri_columns(x) && w->dtype == HRI_F32);
  if (b) HRI_SHAPE(hri_tensor_elements(b) == hri_columns(x) && b->dtype == HRI_F32);
  HRI_SHAPE(hri_tensor_bytes(x) == hri_tensor_bytes(y) && x->dtype == y->dtype);
  HRI_SHAPE((residual == NULL) == (sum == NULL));
  if (residual)
    HRI_SHAPE(hri_tensor_bytes(residual) == hri_tensor_bytes(x) && hri_tensor_bytes(sum) == hri_tensor_bytes(x));
  if (residual) HRI_SHAPE(residual->dtype == x->dtype && sum->dtype == x->dtype);
  HRI_SHAPE(stats->dtype == HRI_F32 &&
            hri_tensor_elements(stats) == hri_rows(x) * (node->attr.i[0] == HR_NORM_LAYER ? 2 : 1));
  HRI_SHAPE(node->attr.i[0] == HR_NORM_RMS || node->attr.f[1] == 0);
  return HR_OK;
}

void hri_back_norm(hri_autodiff *ad, hri_id node) {
  hri_job *job = ad->job;
  hri_id x = hri_id_at(job, node, 0), w = hri_id_at(job, node, 1), b = hri_id_at(job, node, 2),
         y = hri_id_at(job, node, 5), stats = hri_id_at(job, node, 6), dy = hri_ad_gradient(ad, y), dx;
  hri_attr attr = job->nodes.items[node].attr;
  if (!hri_ad_needed(ad, x) && !hri_ad_needed(ad, w) && !hri_ad_needed(ad, b)) return;
  dx = hri_ad_like(ad, x, ".grad");
  hri_ad_emit(ad, HRI_OP_NORM_BACKWARD, &attr,
              (hri_operand[]){HRI_R(dy), HRI_R(x), HRI_R(stats), HRI_R(w), HRI_ABSENT, HRI_W(dx), hri_ad_param(ad, w),
                              hri_ad_param(ad, b)},
              8);
  hri_ad_contribute(ad, x, dx);
}

double hri_flops_norm(const hri_job *job, const hri_node *node) {
  return 6.0 * (double)hri_tensor_elements(hri_at(job, node, 0));
}
double hri_flops_norm_backward(const hri_job *job, const hri_node *node) {
  return 12.0 * (double)hri_tensor_elements(hri_at(job, node, 0));
}

hr_status hri_check_norm_backward(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *dy = hri_at(job, node, 0), *x = hri_at(job, node, 1), *w = hri_at(job, node, 3),
                   *extra = hri_at(job, node, 4), *dx = hri_at(job, node, 5);
  HRI_SHAPE(hri_tensor_bytes(dy) == hri_tensor_bytes(x) && hri_tensor_bytes(dx) == hri_tensor_bytes(x));
  HRI_SHAPE(dy->dtype == x->dtype && dx->dtype == x->dtype);
  HRI_SHAPE(hri_tensor_elements(w) == hri_columns(x) && w->dtype == HRI_F32 && hri_at(job, node, 2)->dtype == HRI_F32);
  if (extra) HRI_SHAPE(hri_tensor_bytes(extra) == hri_tensor_bytes(x) && extra->dtype == x->dtype);
  for (uint32_t at = 6; at < 8; at++)
    if (hri_at(job, node, at)) HRI_SHAPE(hri_at(job, node, at)->dtype == HRI_F32);
  return HR_OK;
}

/* ---- heads ---- */

static bool head_rows_fit(const hri_node *node, const hri_tensor *qkv) {
  const int64_t *i = node->attr.i;
  return i[0] > 0 && i[1] > 0 && i[2] > 0 && hri_columns(qkv) == (uint64_t)((i[0] + 2 * i[1]) * i[2]);
}

static bool head_weight_fits(const hri_node *node, const hri_tensor *w) {
  return w->dtype == HRI_F32 && hri_tensor_elements(w) == (uint64_t)node->attr.i[2];
}

static bool head_stats_fit(const hri_node *node, const hri_tensor *qkv, const hri_tensor *stats) {
  return stats->dtype == HRI_F32 &&
         hri_tensor_elements(stats) == hri_rows(qkv) * (uint64_t)(node->attr.i[0] + node->attr.i[1]);
}

hr_status hri_check_head_norm(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *qkv = hri_at(job, node, 0), *y = hri_at(job, node, 3);
  HRI_SHAPE(head_rows_fit(node, qkv));
  HRI_SHAPE(hri_tensor_bytes(qkv) == hri_tensor_bytes(y) && qkv->dtype == y->dtype);
  HRI_SHAPE(head_weight_fits(node, hri_at(job, node, 1)) && head_weight_fits(node, hri_at(job, node, 2)));
  HRI_SHAPE(head_stats_fit(node, qkv, hri_at(job, node, 4)));
  return HR_OK;
}

void hri_back_head_norm(hri_autodiff *ad, hri_id node) {
  hri_job *job = ad->job;
  hri_id qkv = hri_id_at(job, node, 0), wq = hri_id_at(job, node, 1), wk = hri_id_at(job, node, 2),
         y = hri_id_at(job, node, 3), stats = hri_id_at(job, node, 4), dy = hri_ad_gradient(ad, y), dqkv;
  hri_attr attr = job->nodes.items[node].attr;
  if (!hri_ad_needed(ad, qkv) && !hri_ad_needed(ad, wq) && !hri_ad_needed(ad, wk)) return;
  dqkv = hri_ad_like(ad, qkv, ".grad");
  hri_ad_emit(ad, HRI_OP_HEAD_NORM_BACKWARD, &attr,
              (hri_operand[]){HRI_R(dy), HRI_R(qkv), HRI_R(stats), HRI_R(wq), HRI_R(wk), HRI_W(dqkv),
                              hri_ad_param(ad, wq), hri_ad_param(ad, wk)},
              8);
  hri_ad_contribute(ad, qkv, dqkv);
}

hr_status hri_check_head_norm_backward(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *dy = hri_at(job, node, 0), *qkv = hri_at(job, node, 1), *dqkv = hri_at(job, node, 5);
  HRI_SHAPE(head_rows_fit(node, qkv));
  HRI_SHAPE(hri_tensor_bytes(dy) == hri_tensor_bytes(qkv) && hri_tensor_bytes(dqkv) == hri_tensor_bytes(qkv));
  HRI_SHAPE(dy->dtype == qkv->dtype && dqkv->dtype == qkv->dtype);
  HRI_SHAPE(head_stats_fit(node, qkv, hri_at(job, node, 2)));
  HRI_SHAPE(head_weight_fits(node, hri_at(job, node, 3)) && head_weight_fits(node, hri_at(job, node, 4)));
  for (uint32_t at = 6; at < 8; at++)
    if (hri_at(job, node, at)) HRI_SHAPE(head_weight_fits(node, hri_at(job, node, at)));
  return HR_OK;
}
