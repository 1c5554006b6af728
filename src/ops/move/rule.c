/* Moving bytes: shapes, and the gradients of those that may stand in a forward. */
#include "ops/rules.h"

hr_status hri_check_any(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_tensor_bytes(hri_at(job, node, 0)) > 0);
  return HR_OK;
}

hr_status hri_check_copy(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *from = hri_at(job, node, 0), *to = hri_at(job, node, 1);
  HRI_SHAPE(hri_tensor_bytes(from) == hri_tensor_bytes(to));
  if (from->stride || to->stride) HRI_SHAPE(hri_rows(from) == hri_rows(to) && from->dtype == to->dtype);
  return HR_OK;
}

void hri_back_copy(hri_autodiff *ad, hri_id node) {
  hri_id from = hri_id_at(ad->job, node, 0), to = hri_id_at(ad->job, node, 1);
  if (hri_ad_needed(ad, from)) hri_ad_contribute(ad, from, hri_ad_gradient(ad, to));
}

/* Either may be columns, so rows must agree, not bytes alone; each of the two has its own type. */
hr_status hri_check_accumulate(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *x = hri_at(job, node, 0), *y = hri_at(job, node, 1);
  HRI_SHAPE(hri_rows(x) == hri_rows(y) && hri_columns(x) == hri_columns(y));
  HRI_SHAPE(hri_dtype_is_real(x->dtype) && hri_dtype_is_real(y->dtype));
  return HR_OK;
}

/* The summand gets the gradient of what it was added to, in its own type. */
void hri_back_accumulate(hri_autodiff *ad, hri_id node) {
  hri_job *job = ad->job;
  hri_id x = hri_id_at(job, node, 0), dy = hri_ad_gradient(ad, hri_id_at(job, node, 1)), dx;
  if (!hri_ad_needed(ad, x) || dy == HRI_NONE) return;
  if (job->tensors.items[dy].dtype != job->tensors.items[x].dtype) {
    dx = hri_ad_like(ad, x, ".grad");
    hri_ad_emit(ad, HRI_OP_ACCUMULATE, NULL, (hri_operand[]){HRI_R(dy), HRI_W(dx)}, 2);
    dy = dx;
  }
  hri_ad_contribute(ad, x, dy);
}

hr_status hri_check_cast(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *from = hri_at(job, node, 0), *to = hri_at(job, node, 1);
  HRI_SHAPE(hri_tensor_stored_elements(from) == hri_tensor_stored_elements(to));
  HRI_SHAPE(hri_dtype_is_real(from->dtype) && hri_dtype_is_real(to->dtype));
  return HR_OK;
}

static hr_status check_halves(const hri_job *job, const hri_node *node, uint32_t whole, uint32_t high,
                              hr_error *error) {
  const hri_tensor *w = hri_at(job, node, whole), *h = hri_at(job, node, high), *l = hri_at(job, node, high + 1);
  HRI_SHAPE(w->dtype == HRI_F32 && h->dtype == HRI_BF16 && l->dtype == HRI_F32_LOW);
  HRI_SHAPE(hri_tensor_stored_elements(w) == hri_tensor_stored_elements(h) &&
            hri_tensor_stored_elements(w) == hri_tensor_stored_elements(l));
  return HR_OK;
}
hr_status hri_check_split(const hri_job *job, const hri_node *node, hr_error *error) {
  return check_halves(job, node, 0, 1, error);
}
hr_status hri_check_join(const hri_job *job, const hri_node *node, hr_error *error) {
  return check_halves(job, node, 2, 0, error);
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
  HRI_SHAPE(hri_columns(hri_at(job, node, 0)) == hri_columns(hri_at(job, node, 2)) &&
            hri_at(job, node, 0)->dtype == hri_at(job, node, 2)->dtype);
  return HR_OK;
}
