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

int64_t hri_head_norm_key_size(const hri_node *node) { return node->attr.i[node->attr.i[3] ? 3 : 2]; }

static bool head_rows_fit(const hri_node *node, const hri_tensor *qkv) {
  const int64_t *i = node->attr.i;
  return i[0] > 0 && i[1] > 0 && i[2] > 0 && i[3] >= 0 &&
         hri_columns(qkv) == (uint64_t)(i[0] * i[2] + 2 * i[1] * hri_head_norm_key_size(node));
}

static bool head_weight_fits(const hri_node *node, const hri_tensor *w, bool keys) {
  return w->dtype == HRI_F32 &&
         hri_tensor_elements(w) == (uint64_t)(keys ? hri_head_norm_key_size(node) : node->attr.i[2]);
}

static bool head_stats_fit(const hri_node *node, const hri_tensor *qkv, const hri_tensor *stats) {
  return stats->dtype == HRI_F32 &&
         hri_tensor_elements(stats) == hri_rows(qkv) * (uint64_t)(node->attr.i[0] + node->attr.i[1]);
}

hr_status hri_check_head_norm(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *qkv = hri_at(job, node, 0), *y = hri_at(job, node, 3);
  HRI_SHAPE(head_rows_fit(node, qkv));
  HRI_SHAPE(hri_tensor_bytes(qkv) == hri_tensor_bytes(y) && qkv->dtype == y->dtype);
  HRI_SHAPE(head_weight_fits(node, hri_at(job, node, 1), false) && head_weight_fits(node, hri_at(job, node, 2), true));
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
  HRI_SHAPE(head_weight_fits(node, hri_at(job, node, 3), false) && head_weight_fits(node, hri_at(job, node, 4), true));
  for (uint32_t at = 6; at < 8; at++)
    if (hri_at(job, node, at)) HRI_SHAPE(head_weight_fits(node, hri_at(job, node, at), at == 7));
  return HR_OK;
}

/* ---- DoRA ---- */

enum { DORA_PARTS = 3, DORA_A = 1, DORA_B = 4 };

/* Whether the parts add up to `all`; *with: rows of those that have magnitudes. */
static bool parts_fit(const hri_node *node, uint64_t all, uint64_t *with) {
  uint64_t sum = 0;
  *with = 0;
  for (int p = 0; p < DORA_PARTS; p++) {
    if (node->attr.i[p] < 0) return false;
    sum += (uint64_t)node->attr.i[p];
    if (node->attr.i[3] >> p & 1) *with += (uint64_t)node->attr.i[p];
  }
  return sum == all && *with > 0 && node->attr.i[3] >> DORA_PARTS == 0;
}

static bool is_vector(const hri_tensor *t, uint64_t elements) {
  return t->dtype == HRI_F32 && hri_tensor_stored_elements(t) == elements;
}

hr_status hri_check_dora_begin(const hri_job *job, const hri_node *node, hr_error *error) {
  uint64_t with;
  HRI_SHAPE(parts_fit(node, hri_rows(hri_at(job, node, 0)), &with));
  HRI_SHAPE(is_vector(hri_at(job, node, 1), with));
  return HR_OK;
}

hr_status hri_check_dora_lengths(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *w = hri_at(job, node, 0);
  uint64_t with;
  HRI_SHAPE(parts_fit(node, hri_rows(w), &with));
  HRI_SHAPE(is_vector(hri_at(job, node, 7), with));
  for (uint32_t p = 0; p < DORA_PARTS; p++) {
    const hri_tensor *a = hri_at(job, node, DORA_A + p), *b = hri_at(job, node, DORA_B + p);
    bool has = node->attr.i[3] >> p & 1;
    HRI_SHAPE((a != NULL) == has && (b != NULL) == has);
    if (!has) continue;
    HRI_SHAPE(a->dtype == HRI_F32 && b->dtype == HRI_F32 && hri_columns(a) == hri_columns(w));
    HRI_SHAPE(hri_rows(b) == (uint64_t)node->attr.i[p] && hri_columns(b) == hri_rows(a));
  }
  return HR_OK;
}

/* Of DORA_BEGIN the square of each weight; of DORA_LENGTHS the product B A too. */
double hri_flops_dora_lengths(const hri_job *job, const hri_node *node) {
  const hri_tensor *w = hri_at(job, node, 0);
  double flops = 2.0 * (double)hri_tensor_elements(w);
  for (uint32_t p = 0; node->op == HRI_OP_DORA_LENGTHS && p < DORA_PARTS; p++)
    if (hri_at(job, node, DORA_B + p))
      flops += 2.0 * (double)hri_tensor_elements(hri_at(job, node, DORA_B + p)) * (double)hri_columns(w);
  return flops;
}

hr_status hri_check_dora(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *z = hri_at(job, node, 0), *bias = hri_at(job, node, 3), *y = hri_at(job, node, 4);
  uint64_t with;
  HRI_SHAPE(parts_fit(node, hri_columns(z), &with));
  HRI_SHAPE(is_vector(hri_at(job, node, 1), with) && is_vector(hri_at(job, node, 2), with));
  HRI_SHAPE(hri_tensor_bytes(z) == hri_tensor_bytes(y) && z->dtype == y->dtype);
  if (bias) HRI_SHAPE(is_vector(bias, hri_columns(z)));
  return HR_OK;
}

double hri_flops_dora(const hri_job *job, const hri_node *node) {
  return 2.0 * (double)hri_tensor_elements(hri_at(job, node, 0));
}

static void dora_bias_gradient(hri_autodiff *ad, hri_id dy, hri_operand gradient, hri_id other) {
  (void)other;
  hri_ad_emit(ad, HRI_OP_BIAS_GRADIENT, NULL, (hri_operand[]){HRI_R(dy), gradient}, 2);
}

/* Lengths are constants to the gradient (Liu et al. 2024, section 4.3), so nothing is contributed to them. */
void hri_back_dora(hri_autodiff *ad, hri_id node) {
  hri_job *job = ad->job;
  hri_id z = hri_id_at(job, node, 0), m = hri_id_at(job, node, 1), lengths = hri_id_at(job, node, 2),
         bias = hri_id_at(job, node, 3), dy = hri_ad_gradient(ad, hri_id_at(job, node, 4)), dz;
  hri_attr attr = job->nodes.items[node].attr;
  hri_ad_param_rows(ad, bias, dy, HRI_NONE, dora_bias_gradient);
  if (!hri_ad_needed(ad, z) && !hri_ad_needed(ad, m)) return;
  dz = hri_ad_like(ad, z, ".grad");
  hri_ad_emit(ad, HRI_OP_DORA_BACKWARD, &attr,
              (hri_operand[]){HRI_R(dy), HRI_R(z), HRI_R(m), HRI_R(lengths), HRI_W(dz), hri_ad_param(ad, m)}, 6);
  hri_ad_contribute_own(ad, z, dz);
}

hr_status hri_check_dora_backward(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_tensor *dy = hri_at(job, node, 0), *z = hri_at(job, node, 1), *dz = hri_at(job, node, 4),
                   *dm = hri_at(job, node, 5);
  uint64_t with;
  HRI_SHAPE(parts_fit(node, hri_columns(z), &with));
  HRI_SHAPE(is_vector(hri_at(job, node, 2), with) && is_vector(hri_at(job, node, 3), with));
  HRI_SHAPE(hri_tensor_bytes(dy) == hri_tensor_bytes(z) && hri_tensor_bytes(dz) == hri_tensor_bytes(z));
  HRI_SHAPE(dy->dtype == z->dtype && dz->dtype == z->dtype);
  if (dm) HRI_SHAPE(is_vector(dm, with));
  return HR_OK;
}
