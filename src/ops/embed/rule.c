#include "ops/rules.h"

hr_status hri_check_embed(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *ids = hri_at(job, node, 0), *table = hri_at(job, node, 1), *positions = hri_at(job, node, 2),
                   *position_table = hri_at(job, node, 3), *y = hri_at(job, node, 4);
  HRI_SHAPE(ids->dtype == HRI_I32 && hri_tensor_elements(ids) == hri_rows(y));
  HRI_SHAPE(hri_columns(table) == hri_columns(y) && table->dtype == y->dtype);
  HRI_SHAPE((positions == NULL) == (position_table == NULL));
  if (positions)
    HRI_SHAPE(hri_tensor_elements(positions) == hri_rows(y) && hri_columns(position_table) == hri_columns(y) &&
              position_table->dtype == y->dtype);
  return HR_OK;
}

void hri_back_embed(hri_autodiff *ad, hri_id node) {
  hri_job *job = ad->job;
  hri_id ids = hri_id_at(job, node, 0), table = hri_id_at(job, node, 1), positions = hri_id_at(job, node, 2),
         position_table = hri_id_at(job, node, 3), dy = hri_ad_gradient(ad, hri_id_at(job, node, 4));
  hri_attr attr = {.i = {job->nodes.items[node].attr.i[0]}, .f = {job->nodes.items[node].attr.f[0]}};
  if (hri_ad_needed(ad, table))
    hri_ad_emit(ad, HRI_OP_EMBED_BACKWARD, &attr, (hri_operand[]){HRI_R(ids), HRI_R(dy), hri_ad_param(ad, table)}, 3);
  attr.i[0] = -1; /* positions have neither a padding row nor a factor */
  attr.f[0] = 1;
  if (hri_ad_needed(ad, position_table))
    hri_ad_emit(ad, HRI_OP_EMBED_BACKWARD, &attr,
                (hri_operand[]){HRI_R(positions), HRI_R(dy), hri_ad_param(ad, position_table)}, 3);
}

hr_status hri_check_embed_backward(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *index = hri_at(job, node, 0), *dy = hri_at(job, node, 1), *table = hri_at(job, node, 2);
  HRI_SHAPE(index->dtype == HRI_I32 && hri_tensor_elements(index) == hri_rows(dy));
  HRI_SHAPE(hri_columns(dy) == hri_columns(table) && table->dtype == HRI_F32);
  return HR_OK;
}
