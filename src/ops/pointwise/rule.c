/* Rules of the element-wise ops. */
#include <assert.h>

#include "ops/draw.h"
#include "ops/rules.h"

hr_status hri_check_same2(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_tensor_bytes(hri_at(job, node, 0)) == hri_tensor_bytes(hri_at(job, node, 1)));
  HRI_SHAPE(hri_at(job, node, 0)->dtype == hri_at(job, node, 1)->dtype);
  return HR_OK;
}

hr_status hri_check_same3(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_tensor_bytes(hri_at(job, node, 0)) == hri_tensor_bytes(hri_at(job, node, 1)));
  HRI_SHAPE(hri_tensor_bytes(hri_at(job, node, 0)) == hri_tensor_bytes(hri_at(job, node, 2)));
  HRI_SHAPE(hri_at(job, node, 0)->dtype == hri_at(job, node, 1)->dtype &&
            hri_at(job, node, 0)->dtype == hri_at(job, node, 2)->dtype);
  return HR_OK;
}

double hri_flops_add(const hri_job *job, const hri_node *node) {
  return (double)hri_tensor_elements(hri_at(job, node, 0));
}
double hri_flops_activation(const hri_job *job, const hri_node *node) {
  return 20.0 * (double)hri_tensor_elements(hri_at(job, node, 0));
}

/* Both summands get the very gradient of the sum: no copy. */
void hri_back_add(hri_autodiff *ad, hri_id node) {
  hri_id a = hri_id_at(ad->job, node, 0), b = hri_id_at(ad->job, node, 1),
         dy = hri_ad_gradient(ad, hri_id_at(ad->job, node, 2));
  if (hri_ad_needed(ad, a)) hri_ad_contribute(ad, a, dy);
  if (hri_ad_needed(ad, b)) hri_ad_contribute(ad, b, dy);
}

void hri_back_scale(hri_autodiff *ad, hri_id node) {
  hri_job *job = ad->job;
  hri_id x = hri_id_at(job, node, 0), dy = hri_ad_gradient(ad, hri_id_at(job, node, 1)), dx;
  hri_attr attr = job->nodes.items[node].attr;
  if (!hri_ad_needed(ad, x)) return;
  dx = hri_ad_like(ad, x, ".grad");
  hri_ad_emit(ad, HRI_OP_SCALE, &attr, (hri_operand[]){HRI_R(dy), HRI_W(dx)}, 2);
  hri_ad_contribute(ad, x, dx);
}

/* Limits of the counter that the numbers are made from (ops/draw.h). */
static hr_status check_drawn(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *x = hri_at(job, node, 0), *y = hri_at(job, node, 2);
  HRI_SHAPE(hri_tensor_bytes(x) == hri_tensor_bytes(y) && x->dtype == y->dtype);
  HRI_SHAPE(node->attr.i[0] > 0 && hri_rows(x) % (uint64_t)node->attr.i[0] == 0);
  HRI_SHAPE(hri_columns(x) <= HRI_DRAW_ELEMENTS && hri_columns(x) == hri_columns(y));
  return HR_OK;
}

hr_status hri_check_dropout(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(node->attr.f[0] >= 0 && node->attr.f[0] < 1);
  return check_drawn(job, node, error);
}

hr_status hri_check_noise(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(node->attr.f[0] >= 0);
  return check_drawn(job, node, error);
}

/* A constant is added: the gradient goes on as it is. */
void hri_back_noise(hri_autodiff *ad, hri_id node) {
  hri_id x = hri_id_at(ad->job, node, 0), dy = hri_ad_gradient(ad, hri_id_at(ad->job, node, 2));
  if (hri_ad_needed(ad, x)) hri_ad_contribute(ad, x, dy);
}

/* The same mask on the gradient: the emitted node has the site of this one. Nothing of the forward is needed. */
void hri_back_dropout(hri_autodiff *ad, hri_id node) {
  hri_job *job = ad->job;
  hri_id x = hri_id_at(job, node, 0), control = hri_id_at(job, node, 1),
         dy = hri_ad_gradient(ad, hri_id_at(job, node, 2)), dx;
  hri_attr attr = job->nodes.items[node].attr;
  if (!hri_ad_needed(ad, x)) return;
  assert(ad->emit.site == job->nodes.items[node].site);
  dx = hri_ad_like(ad, x, ".grad");
  hri_ad_emit(ad, HRI_OP_DROPOUT, &attr, (hri_operand[]){HRI_R(dy), HRI_R(control), HRI_W(dx)}, 3);
  hri_ad_contribute(ad, x, dx);
}

/* Ten rounds of a few operations for four elements. */
double hri_flops_dropout(const hri_job *job, const hri_node *node) {
  return 20.0 * (double)hri_tensor_elements(hri_at(job, node, 0));
}

static void backward_of_one(hri_autodiff *ad, hri_id node, hri_op op) {
  hri_job *job = ad->job;
  hri_id x = hri_id_at(job, node, 0), dy = hri_ad_gradient(ad, hri_id_at(job, node, 1)), dx;
  hri_attr attr = job->nodes.items[node].attr;
  if (!hri_ad_needed(ad, x)) return;
  dx = hri_ad_like(ad, x, ".grad");
  hri_ad_emit(ad, op, &attr, (hri_operand[]){HRI_R(dy), HRI_R(x), HRI_W(dx)}, 3);
  hri_ad_contribute(ad, x, dx);
}

void hri_back_activation(hri_autodiff *ad, hri_id node) { backward_of_one(ad, node, HRI_OP_ACTIVATION_BACKWARD); }
void hri_back_glu(hri_autodiff *ad, hri_id node) { backward_of_one(ad, node, HRI_OP_GLU_BACKWARD); }

hr_status hri_check_glu(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_columns(hri_at(job, node, 0)) == 2 * hri_columns(hri_at(job, node, 1)));
  HRI_SHAPE(hri_rows(hri_at(job, node, 0)) == hri_rows(hri_at(job, node, 1)));
  HRI_SHAPE(hri_at(job, node, 0)->dtype == hri_at(job, node, 1)->dtype);
  return HR_OK;
}

hr_status hri_check_glu_backward(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_columns(hri_at(job, node, 1)) == 2 * hri_columns(hri_at(job, node, 0)));
  HRI_SHAPE(hri_rows(hri_at(job, node, 1)) == hri_rows(hri_at(job, node, 0)));
  HRI_SHAPE(hri_tensor_bytes(hri_at(job, node, 1)) == hri_tensor_bytes(hri_at(job, node, 2)));
  HRI_SHAPE(hri_at(job, node, 0)->dtype == hri_at(job, node, 1)->dtype &&
            hri_at(job, node, 0)->dtype == hri_at(job, node, 2)->dtype);
  return HR_OK;
}

hr_status hri_check_softcap(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(node->attr.f[0] > 0);
  return hri_check_same2(job, node, error);
}

hr_status hri_check_rope(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *x = hri_at(job, node, 0), *positions = hri_at(job, node, 1), *table = hri_at(job, node, 2);
  HRI_SHAPE(hri_tensor_bytes(x) == hri_tensor_bytes(hri_at(job, node, 3)) && x->dtype == hri_at(job, node, 3)->dtype);
  HRI_SHAPE((uint64_t)((node->attr.i[0] + 2 * node->attr.i[1]) * node->attr.i[2]) == hri_columns(x));
  HRI_SHAPE(hri_tensor_elements(positions) == hri_rows(x));
  HRI_SHAPE(node->attr.i[4] > 0 && node->attr.i[4] <= node->attr.i[2] && node->attr.i[4] % 2 == 0);
  HRI_SHAPE(table->dtype == HRI_F32 && hri_columns(table) * 2 == (uint64_t)node->attr.i[4]);
  return HR_OK;
}

/* A rotation: its transpose turns back. Nothing of the forward is needed. */
void hri_back_rope(hri_autodiff *ad, hri_id node) {
  hri_job *job = ad->job;
  hri_id x = hri_id_at(job, node, 0), positions = hri_id_at(job, node, 1), table = hri_id_at(job, node, 2),
         dy = hri_ad_gradient(ad, hri_id_at(job, node, 3)), dx;
  hri_attr attr = job->nodes.items[node].attr;
  if (!hri_ad_needed(ad, x)) return;
  attr.i[3] = !attr.i[3];
  dx = hri_ad_like(ad, x, ".grad");
  hri_ad_emit(ad, HRI_OP_ROPE, &attr, (hri_operand[]){HRI_R(dy), HRI_R(positions), HRI_R(table), HRI_W(dx)}, 4);
  hri_ad_contribute(ad, x, dx);
}

double hri_flops_rope(const hri_job *job, const hri_node *node) {
  return 3.0 * (double)hri_tensor_elements(hri_at(job, node, 0));
}

hr_status hri_check_rope_table(const hri_job *job, const hri_node *node, hr_error *error) {
  const int64_t *i = node->attr.i;
  HRI_SHAPE(hri_tensor_elements(hri_at(job, node, 0)) == (uint64_t)(i[0] * i[1]));
  HRI_SHAPE(i[2] >= 0 && (uint64_t)i[2] < job->ropes.count && job->ropes.items[i[2]].pairs * 2 == (uint64_t)i[1]);
  return HR_OK;
}
