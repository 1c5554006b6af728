/* Causal attention over fused q,k,v rows [B*T, (H+2K)*D]; keys doc_start[q] <= k <= q. with a window W also q - W < k.
 * FLOPs count the pairs that are seen. */
#include <assert.h>

#include "ops/draw.h"
#include "ops/rules.h"

static bool qkv_fits(const hri_node *node, const hri_tensor *qkv) {
  const int64_t *i = node->attr.i;
  return hri_rows(qkv) == (uint64_t)(i[0] * i[1]) && hri_columns(qkv) == (uint64_t)((i[2] + 2 * i[3]) * i[4]);
}
static bool y_fits(const hri_node *node, const hri_tensor *y) {
  const int64_t *i = node->attr.i;
  return hri_rows(y) == (uint64_t)(i[0] * i[1]) && hri_columns(y) == (uint64_t)(i[2] * i[4]);
}

/* The kernels take one type per call, fp32, bf16 or fp16; lse is fp32. */
static bool same_type(const hri_tensor *a, const hri_tensor *b) {
  return a->dtype == b->dtype && hri_dtype_is_real(a->dtype);
}

/* Dropout reads the control block, and its masks are numbered (ops/draw.h). */
static bool drops_soundly(const hri_job *job, const hri_node *node, uint32_t control) {
  const int64_t *i = node->attr.i;
  double p = node->attr.f[2];
  if (p == 0) return hri_at(job, node, control) == NULL;
  return p > 0 && p < 1 && hri_at(job, node, control) && i[1] <= HRI_DRAW_ELEMENTS && i[2] < HRI_DRAW_HEADS;
}

hr_status hri_check_attention(const hri_job *job, const hri_node *node, hr_error *error) {
  const int64_t *i = node->attr.i;
  const hri_tensor *doc_start = hri_at(job, node, 1);
  HRI_SHAPE(qkv_fits(node, hri_at(job, node, 0)));
  HRI_SHAPE(y_fits(node, hri_at(job, node, 2)));
  HRI_SHAPE(hri_tensor_elements(hri_at(job, node, 3)) == (uint64_t)(i[0] * i[1] * i[2]));
  HRI_SHAPE(i[3] > 0 && i[2] % i[3] == 0);
  HRI_SHAPE(drops_soundly(job, node, 4));
  HRI_SHAPE(same_type(hri_at(job, node, 0), hri_at(job, node, 2)) && hri_at(job, node, 3)->dtype == HRI_F32);
  if (doc_start) HRI_SHAPE(doc_start->dtype == HRI_I32 && hri_tensor_elements(doc_start) == (uint64_t)(i[0] * i[1]));
  return HR_OK;
}

void hri_back_attention(hri_autodiff *ad, hri_id node) {
  hri_job *job = ad->job;
  hri_id qkv = hri_id_at(job, node, 0), doc_start = hri_id_at(job, node, 1), y = hri_id_at(job, node, 2),
         lse = hri_id_at(job, node, 3), control = hri_id_at(job, node, 4);
  hri_id dy = hri_ad_gradient(ad, y), dqkv;
  hri_attr attr = job->nodes.items[node].attr;
  if (!hri_ad_needed(ad, qkv)) return;
  assert(ad->emit.site == job->nodes.items[node].site); /* the same mask */
  dqkv = hri_ad_like(ad, qkv, ".grad");
  hri_ad_emit(ad, HRI_OP_ATTENTION_BACKWARD, &attr,
              (hri_operand[]){HRI_R(dy), HRI_R(qkv), HRI_R(y), HRI_R(lse), HRI_R(doc_start), HRI_W(dqkv),
                              HRI_R(control)},
              7);
  hri_ad_contribute(ad, qkv, dqkv);
}

/* Pairs of a query and a key that it sees in one head of one row, without documents: query t sees min(t + 1, W)
 * keys. */
static double visible_pairs(const int64_t *i) {
  double t = (double)i[1], w = i[5] > 0 && i[5] < i[1] ? (double)i[5] : t;
  return w * (w + 1) / 2 + (t - w) * w;
}

double hri_flops_attention(const hri_job *job, const hri_node *node) {
  const int64_t *i = node->attr.i;
  double drawn = node->attr.f[2] > 0 ? 20 : 0; /* a random number for each pair, as hri_flops_dropout has it */
  (void)job;
  return (4.0 * (double)i[4] + drawn) * (double)(i[0] * i[2]) * visible_pairs(i);
}

double hri_flops_attention_backward(const hri_job *job, const hri_node *node) {
  return 2.5 * hri_flops_attention(job, node);
}

hr_status hri_check_attention_backward(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(y_fits(node, hri_at(job, node, 0)) && y_fits(node, hri_at(job, node, 2)));
  HRI_SHAPE(qkv_fits(node, hri_at(job, node, 1)) && qkv_fits(node, hri_at(job, node, 5)));
  for (uint32_t at = 1; at <= 5; at += at == 2 ? 3 : 1)
    HRI_SHAPE(same_type(hri_at(job, node, 0), hri_at(job, node, at)));
  HRI_SHAPE(hri_at(job, node, 3)->dtype == HRI_F32);
  HRI_SHAPE(drops_soundly(job, node, 6));
  return HR_OK;
}

hr_status hri_check_attention_full(const hri_job *job, const hri_node *node, hr_error *error) {
  const int64_t *i = node->attr.i;
  HRI_SHAPE(qkv_fits(node, hri_at(job, node, 0)));
  HRI_SHAPE(y_fits(node, hri_at(job, node, 2)));
  HRI_SHAPE(hri_tensor_elements(hri_at(job, node, 3)) == (uint64_t)(i[0] * i[2]) * (uint64_t)(i[1] * i[1]));
  HRI_SHAPE(same_type(hri_at(job, node, 0), hri_at(job, node, 2)) &&
            same_type(hri_at(job, node, 0), hri_at(job, node, 3)));
  HRI_SHAPE(drops_soundly(job, node, 4));
  return HR_OK;
}

void hri_back_attention_full(hri_autodiff *ad, hri_id node) {
  hri_job *job = ad->job;
  hri_id qkv = hri_id_at(job, node, 0), doc_start = hri_id_at(job, node, 1), y = hri_id_at(job, node, 2),
         probs = hri_id_at(job, node, 3), control = hri_id_at(job, node, 4);
  hri_id dy = hri_ad_gradient(ad, y), dqkv;
  hri_attr attr = job->nodes.items[node].attr;
  if (!hri_ad_needed(ad, qkv)) return;
  assert(ad->emit.site == job->nodes.items[node].site); /* the same mask */
  dqkv = hri_ad_like(ad, qkv, ".grad");
  hri_ad_emit(ad, HRI_OP_ATTENTION_FULL_BACKWARD, &attr,
              (hri_operand[]){HRI_R(dy), HRI_R(qkv), HRI_R(probs), HRI_R(doc_start), HRI_W(dqkv), HRI_R(control)}, 6);
  hri_ad_contribute(ad, qkv, dqkv);
}

hr_status hri_check_attention_full_backward(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(y_fits(node, hri_at(job, node, 0)));
  HRI_SHAPE(qkv_fits(node, hri_at(job, node, 1)) && qkv_fits(node, hri_at(job, node, 4)));
  for (uint32_t at = 1; at <= 4; at += at == 2 ? 2 : 1)
    HRI_SHAPE(same_type(hri_at(job, node, 0), hri_at(job, node, at)));
  HRI_SHAPE(drops_soundly(job, node, 5));
  return HR_OK;
}

hr_status hri_check_attention_cached(const hri_job *job, const hri_node *node, hr_error *error) {
  const int64_t *i = node->attr.i;
  HRI_SHAPE(qkv_fits(node, hri_at(job, node, 0)));
  HRI_SHAPE(y_fits(node, hri_at(job, node, 4)));
  HRI_SHAPE(hri_tensor_elements(hri_at(job, node, 1)) == (uint64_t)(i[6] * i[3] * i[4]));
  HRI_SHAPE(hri_tensor_elements(hri_at(job, node, 2)) == (uint64_t)(i[6] * i[3] * i[4]));
  for (uint32_t at = 1; at <= 4; at += at == 2 ? 2 : 1)
    HRI_SHAPE(same_type(hri_at(job, node, 0), hri_at(job, node, at)));
  return HR_OK;
}

double hri_flops_attention_cached(const hri_job *job, const hri_node *node) {
  const int64_t *i = node->attr.i;
  (void)job;
  return 4.0 * (double)(i[1] * i[2] * i[4]) * (double)(i[5] > 0 && i[5] < i[6] ? i[5] : i[6]);
}
