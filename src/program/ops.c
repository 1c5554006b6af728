#include "program/ops.h"

#include <assert.h>
#include <string.h>

#include "ops/rules.h"

static const hri_rule rules[HRI_OP_COUNT] = {
#define HRI_OP_RULE(id, name_text, operand_text) [HRI_OP_##id] = {.name = name_text, .operands = operand_text, HRI_RULE_##id},
    HRI_OPS(HRI_OP_RULE)
#undef HRI_OP_RULE
#define HRI_OPTIMIZER_RULE(id, name_text, operand_text, ...) [HRI_OP_##id] = {.name = name_text, .operands = operand_text, HRI_RULE_OF_OPTIMIZERS},
    HRI_OPTIMIZERS(HRI_OPTIMIZER_RULE)
#undef HRI_OPTIMIZER_RULE
};

const hri_rule *hri_rule_get(uint16_t op) { return &rules[op]; }
const char *hri_op_name(uint16_t op) { return op < HRI_OP_COUNT ? rules[op].name : "?"; }

uint32_t hri_guard_position(uint16_t op) {
  const char *letters = rules[op].operands, *guard = strchr(letters, 'g');
  assert(!guard || !guard[1]); /* the last letter, so that no other operand moves with it */
  return guard ? (uint32_t)(guard - letters) : HRI_NONE;
}

hri_id hri_node_guard(const hri_job *job, const hri_node *node) {
  uint32_t at = hri_guard_position(node->op);
  if (at == HRI_NONE) return HRI_NONE;
  assert(at < node->operand_count); /* check_form: an absent one has its place all the same */
  return hri_operands(job, node)[at].tensor;
}

double hri_node_bytes(const hri_job *job, const hri_node *node) {
  const hri_operand *operands = hri_operands(job, node);
  double bytes = 0;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    double one;
    if (operands[i].tensor == HRI_NONE || operands[i].access == HRI_SCRATCH) continue;
    one = (double)hri_tensor_bytes(&job->tensors.items[operands[i].tensor]);
    if (rules[node->op].gathers >> i & 1) one = 0; /* as many bytes as its result, which is counted */
    bytes += operands[i].access == HRI_ADD || operands[i].access == HRI_UPDATE_ACCESS ? 2 * one : one;
  }
  return bytes;
}

double hri_node_flops(const hri_job *job, const hri_node *node) {
  return rules[node->op].flops ? rules[node->op].flops(job, node) : 0;
}

/* ---- autodiff services ---- */

static size_t value_of(const hri_autodiff *ad, hri_id tensor) { return ad->job->tensors.items[tensor].value; }

hri_id hri_ad_gradient(const hri_autodiff *ad, hri_id tensor) {
  size_t value;
  if (tensor == HRI_NONE) return HRI_NONE;
  value = value_of(ad, tensor);
  return value < ad->value_count ? ad->gradient[value] : HRI_NONE;
}

bool hri_ad_needed(const hri_autodiff *ad, hri_id tensor) {
  size_t value;
  if (tensor == HRI_NONE) return false;
  value = value_of(ad, tensor);
  return value < ad->value_count && ad->needed[value];
}

hri_id hri_ad_like(hri_autodiff *ad, hri_id like, const char *suffix) {
  hri_tensor tensor;
  hri_place place = {.program = ad->program, .tier = HRI_DEVICE, .role = HRI_ROLE_ACTIVATION, .layer = ad->emit.layer, .unit = ad->emit.unit};
  if (ad->job->failed || like == HRI_NONE) return HRI_NONE;
  tensor = ad->job->tensors.items[like];
  return hri_tensor_new(ad->job, place, hri_name(ad->job, "%s%s", hri_name_get(ad->job, tensor.key), suffix), (hri_dtype)tensor.dtype,
                        tensor.rank, tensor.dims, tensor.stored);
}

hri_id hri_ad_emit(hri_autodiff *ad, hri_op op, const hri_attr *attr, const hri_operand *operands, uint32_t count) {
  return hri_node_append(ad->job, (uint16_t)op, ad->emit, attr, operands, count);
}

void hri_ad_contribute(hri_autodiff *ad, hri_id tensor, hri_id gradient) {
  size_t value;
  hri_id before, sum;
  if (ad->job->failed || tensor == HRI_NONE || gradient == HRI_NONE) return;
  value = value_of(ad, tensor);
  before = ad->gradient[value];
  if (before == HRI_NONE) {
    ad->gradient[value] = gradient;
    return;
  }
  sum = hri_ad_like(ad, tensor, ".grad");
  hri_ad_emit(ad, HRI_OP_ADD, NULL, (hri_operand[]){HRI_R(before), HRI_R(gradient), HRI_W(sum)}, 3);
  ad->gradient[value] = sum;
}

hri_operand hri_ad_param(hri_autodiff *ad, hri_id tensor) {
  size_t value;
  uint32_t param;
  hri_operand operand = HRI_ABSENT;
  if (ad->job->failed || tensor == HRI_NONE || !hri_ad_needed(ad, tensor)) return operand;
  value = value_of(ad, tensor);
  param = ad->param_of[value];
  operand.tensor = ad->job->params.items[param].gradient;
  operand.access = ad->accumulate || ad->touched[param] ? HRI_ADD : HRI_WRITE;
  ad->touched[param] = true;
  return operand;
}
