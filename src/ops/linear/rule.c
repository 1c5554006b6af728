/* y[M,N] = x[M,K] w[N,K]^T (+ bias). The weight gradient is emitted before the input gradient: x dies first, so that
 * its bytes can hold dx. Operands are fp32, or of one type of 16 bits, each by itself. */
#include "ops/rules.h"

hr_status hri_check_linear(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *x = hri_at(job, node, 0), *w = hri_at(job, node, 1), *bias = hri_at(job, node, 2),
                   *y = hri_at(job, node, 3);
  HRI_SHAPE(hri_columns(x) == hri_columns(w));
  HRI_SHAPE(hri_rows(w) == hri_columns(y));
  HRI_SHAPE(hri_rows(x) == hri_rows(y));
  if (bias) HRI_SHAPE(hri_tensor_stored_elements(bias) == hri_columns(y) && bias->dtype == HRI_F32);
  return HR_OK;
}

double hri_flops_linear(const hri_job *job, const hri_node *node) {
  const hri_tensor *a = hri_at(job, node, 0), *b = hri_at(job, node, 1);
  return 2.0 * (double)hri_rows(a) * (double)hri_rows(b) * (double)hri_columns(b);
}
double hri_flops_linear_dw(const hri_job *job, const hri_node *node) {
  const hri_tensor *a = hri_at(job, node, 0), *b = hri_at(job, node, 1);
  return 2.0 * (double)hri_rows(a) * (double)hri_columns(a) * (double)hri_columns(b);
}

static void bias_gradient(hri_autodiff *ad, hri_id dy, hri_operand gradient, hri_id x) {
  (void)x;
  hri_ad_emit(ad, HRI_OP_BIAS_GRADIENT, NULL, (hri_operand[]){HRI_R(dy), gradient}, 2);
}

static void weight_gradient(hri_autodiff *ad, hri_id dy, hri_operand gradient, hri_id x) {
  hri_ad_emit(ad, HRI_OP_LINEAR_DW, NULL, (hri_operand[]){HRI_R(dy), HRI_R(x), gradient}, 3);
}

void hri_back_linear(hri_autodiff *ad, hri_id node) {
  hri_job *job = ad->job;
  hri_id x = hri_id_at(job, node, 0), w = hri_id_at(job, node, 1), bias = hri_id_at(job, node, 2),
         y = hri_id_at(job, node, 3);
  hri_id dy = hri_ad_gradient(ad, y);
  hri_ad_param_rows(ad, bias, dy, HRI_NONE, bias_gradient);
  hri_ad_param_rows(ad, w, dy, x, weight_gradient);
  if (hri_ad_needed(ad, x)) {
    hri_id dx = hri_ad_own_gradient(ad, x);
    if (dx != HRI_NONE) {
      hri_ad_emit(ad, HRI_OP_LINEAR_DX, NULL, (hri_operand[]){HRI_R(dy), HRI_R(w), HRI_A(dx)}, 3);
      return;
    }
    dx = hri_ad_like(ad, x, ".grad");
    hri_ad_emit(ad, HRI_OP_LINEAR_DX, NULL, (hri_operand[]){HRI_R(dy), HRI_R(w), HRI_W(dx)}, 3);
    hri_ad_contribute_own(ad, x, dx);
  }
}

hr_status hri_check_linear_dx(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *dy = hri_at(job, node, 0), *w = hri_at(job, node, 1), *dx = hri_at(job, node, 2);
  HRI_SHAPE(hri_columns(dy) == hri_rows(w));
  HRI_SHAPE(hri_columns(w) == hri_columns(dx));
  HRI_SHAPE(hri_rows(dy) == hri_rows(dx));
  return HR_OK;
}

hr_status hri_check_linear_dw(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *dy = hri_at(job, node, 0), *x = hri_at(job, node, 1), *dw = hri_at(job, node, 2);
  HRI_SHAPE(hri_rows(dy) == hri_rows(x));
  HRI_SHAPE(hri_columns(dy) == hri_rows(dw));
  HRI_SHAPE(hri_columns(x) == hri_columns(dw));
  return HR_OK;
}

hr_status hri_check_bias_gradient(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_columns(hri_at(job, node, 0)) == hri_tensor_stored_elements(hri_at(job, node, 1)));
  HRI_SHAPE(hri_at(job, node, 1)->dtype == HRI_F32);
  return HR_OK;
}

/* Of narrow values alone: the slope that a library has may be an approximation (src/pass/fuse.c). */
hr_status hri_check_linear_dx_activation(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *dy = hri_at(job, node, 0), *w = hri_at(job, node, 1), *x = hri_at(job, node, 2),
                   *dx = hri_at(job, node, 3);
  HRI_SHAPE(hri_columns(dy) == hri_rows(w));
  HRI_SHAPE(hri_columns(w) == hri_columns(dx));
  HRI_SHAPE(hri_rows(dy) == hri_rows(dx));
  HRI_SHAPE(hri_rows(x) == hri_rows(dx) && hri_columns(x) == hri_columns(dx) && x->dtype == dx->dtype);
  HRI_SHAPE(dx->dtype == HRI_BF16 && dy->dtype == dx->dtype && w->dtype == dx->dtype);
  HRI_SHAPE(node->attr.i[0] == HR_ACTIVATION_GELU_TANH);
  return HR_OK;
}

hr_status hri_check_linear_dw_bias(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *dw = hri_at(job, node, 2), *db = hri_at(job, node, 3);
  HRI_TRY(hri_check_linear_dw(job, node, error));
  HRI_SHAPE(hri_tensor_stored_elements(db) == hri_rows(dw));
  HRI_SHAPE(dw->dtype == HRI_F32 && db->dtype == HRI_F32);
  HRI_SHAPE(hri_at(job, node, 0)->dtype == hri_at(job, node, 1)->dtype);
  return HR_OK;
}
