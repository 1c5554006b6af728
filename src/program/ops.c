/* The table of rules, what is read off it, and the services that rules use: plain copies beside column views,
 * gradients. */
#include "program/ops.h"

#include <assert.h>
#include <string.h>

#include "ops/rules.h"

static const hri_rule rules[HRI_OP_COUNT] = {
#define HRI_OP_RULE(id, name_text, operand_text)                                                                       \
  [HRI_OP_##id] = {.name = name_text, .operands = operand_text, HRI_RULE_##id},
    HRI_OPS(HRI_OP_RULE)
#undef HRI_OP_RULE
#define HRI_OPTIMIZER_RULE(id, name_text, operand_text, ...)                                                           \
  [HRI_OP_##id] = {.name = name_text, .operands = operand_text, HRI_RULE_OF_OPTIMIZERS},
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

static double bytes_of(const hri_job *job, hri_id tensor) {
  double bytes = 0;
  for (uint32_t k = 0; k < hri_piece_count(job, tensor); k++)
    bytes += (double)hri_tensor_bytes(&job->tensors.items[hri_piece(job, tensor, k)]);
  return bytes;
}

/* Operand i, which rows are added to: elements of operand 1 are read and written, and all of it is cleared before unless
 * it holds something. */
static double scattered_bytes(const hri_job *job, const hri_node *node, uint32_t i) {
  const hri_operand *operands = hri_operands(job, node);
  double elements = (double)hri_tensor_elements(&job->tensors.items[operands[1].tensor]),
         bytes = 2 * elements * (double)hri_dtype_bytes(job->tensors.items[operands[i].tensor].dtype);
  return operands[i].access == HRI_WRITE ? bytes + bytes_of(job, operands[i].tensor) : bytes;
}

double hri_node_bytes(const hri_job *job, const hri_node *node) {
  const hri_operand *operands = hri_operands(job, node);
  double bytes = 0;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    double one;
    if (operands[i].tensor == HRI_NONE || operands[i].access == HRI_SCRATCH) continue;
    if (rules[node->op].scatters >> i & 1) {
      bytes += scattered_bytes(job, node, i);
      continue;
    }
    one = bytes_of(job, operands[i].tensor);
    if (rules[node->op].gathers >> i & 1) one = 0; /* as many bytes as its result, which is counted */
    bytes += operands[i].access == HRI_ADD || operands[i].access == HRI_UPDATE_ACCESS ? 2 * one : one;
  }
  return bytes;
}

double hri_node_flops(const hri_job *job, const hri_node *node) {
  return rules[node->op].flops ? rules[node->op].flops(job, node) : 0;
}

/* ---- column views ---- */

/* A contiguous tensor of the shape and type of a view. */
static hri_id plain_like(hri_job *job, hri_emit emit, hri_id like) {
  const hri_tensor t = job->tensors.items[like];
  hri_place place = {.program = emit.program,
                     .tier = job->storages.items[t.storage].tier,
                     .role = job->storages.items[t.storage].role,
                     .layer = emit.layer,
                     .unit = emit.unit};
  return hri_tensor_new(job, place, hri_name(job, "%s.columns", hri_name_get(job, t.key)), (hri_dtype)t.dtype, t.rank,
                        t.dims, t.stored);
}

hri_id hri_node_append_plain(hri_job *job, uint16_t op, hri_emit emit, const hri_attr *attr,
                             const hri_operand *operands, uint32_t count) {
  hri_operand plain[HRI_MAX_OPERANDS] = {{0}};
  hri_id node;
  assert(count <= HRI_MAX_OPERANDS);
  for (uint32_t i = 0; i < count && !job->failed; i++) {
    hri_id view = operands[i].tensor;
    plain[i] = operands[i];
    if (view == HRI_NONE || job->tensors.items[view].stride == 0 || (rules[op].views >> i & 1)) continue;
    assert(operands[i].access != HRI_UPDATE_ACCESS &&
           operands[i].access != HRI_SCRATCH); /* no op updates columns that it cannot take */
    plain[i].tensor = plain_like(job, emit, view);
    if (operands[i].access == HRI_ADD) plain[i].access = HRI_WRITE;
    if (operands[i].access == HRI_READ)
      hri_node_append(job, HRI_OP_COPY, emit, NULL, (hri_operand[]){HRI_R(view), HRI_W(plain[i].tensor)}, 2);
  }
  if (job->failed) return HRI_NONE;
  node = hri_node_append(job, op, emit, attr, plain, count);
  for (uint32_t i = 0; i < count && !job->failed; i++) {
    if (plain[i].tensor == operands[i].tensor || operands[i].access == HRI_READ) continue;
    if (operands[i].access == HRI_ADD)
      hri_node_append(job, HRI_OP_ACCUMULATE, emit, NULL, (hri_operand[]){HRI_R(plain[i].tensor), operands[i]}, 2);
    else hri_node_append(job, HRI_OP_COPY, emit, NULL, (hri_operand[]){HRI_R(plain[i].tensor), operands[i]}, 2);
  }
  return node;
}

/* ---- autodiff services ---- */

static size_t value_of(const hri_autodiff *ad, hri_id tensor) { return ad->job->tensors.items[tensor].value; }

/* What of the gradient of a value belongs to a view of the value. */
static hri_id view_of(hri_autodiff *ad, hri_id gradient, hri_id tensor) {
  hri_job *job = ad->job;
  hri_tensor view = job->tensors.items[gradient];
  const hri_tensor *like = &job->tensors.items[tensor];
  if (hri_tensor_is_whole(job, like)) return gradient;
  assert(view.stride == 0 && view.dtype == like->dtype); /* the gradient of a value lies as the value does */
  view.offset += like->value_offset;
  view.value_offset += like->value_offset;
  view.rank = like->rank;
  view.stride = like->stride;
  memcpy(view.dims, like->dims, sizeof view.dims);
  memcpy(view.stored, like->stored, sizeof view.stored);
  if (!hri_array_push(&job->tensors, view)) {
    job->failed = true;
    return HRI_NONE;
  }
  return (hri_id)job->tensors.count - 1;
}

hri_id hri_ad_gradient(hri_autodiff *ad, hri_id tensor) {
  size_t value;
  if (tensor == HRI_NONE || ad->job->failed) return HRI_NONE;
  value = value_of(ad, tensor);
  if (value >= ad->value_count || ad->gradient[value] == HRI_NONE) return HRI_NONE;
  return view_of(ad, ad->gradient[value], tensor);
}

bool hri_ad_needed(const hri_autodiff *ad, hri_id tensor) {
  size_t value;
  if (tensor == HRI_NONE) return false;
  value = value_of(ad, tensor);
  return value < ad->value_count && ad->needed[value];
}

hri_id hri_ad_like(hri_autodiff *ad, hri_id like, const char *suffix) {
  hri_tensor tensor;
  hri_place place = {.program = ad->program,
                     .tier = HRI_DEVICE,
                     .role = HRI_ROLE_ACTIVATION,
                     .layer = ad->emit.layer,
                     .unit = ad->emit.unit};
  if (ad->job->failed || like == HRI_NONE) return HRI_NONE;
  tensor = ad->job->tensors.items[like];
  return hri_tensor_new(ad->job, place, hri_name(ad->job, "%s%s", hri_name_get(ad->job, tensor.key), suffix),
                        (hri_dtype)tensor.dtype, tensor.rank, tensor.dims, tensor.stored);
}

hri_id hri_ad_emit(hri_autodiff *ad, hri_op op, const hri_attr *attr, const hri_operand *operands, uint32_t count) {
  return hri_node_append_plain(ad->job, (uint16_t)op, ad->emit, attr, operands, count);
}

/* The gradient of a whole value, to which parts are added: begun as zero, or as a copy of what was contributed to all
 * of it (which may be another value's gradient too, so it is not added to in place). */
static void begin_gathering(hri_autodiff *ad, size_t value) {
  hri_id before = ad->gradient[value], whole;
  assert(ad->whole[value] !=
         HRI_NONE); /* a value that the forward reads in parts was written or read in one piece somewhere */
  whole = hri_ad_like(ad, ad->whole[value], ".grad");
  if (before == HRI_NONE) hri_ad_emit(ad, HRI_OP_ZERO, NULL, (hri_operand[]){HRI_W(whole)}, 1);
  else hri_ad_emit(ad, HRI_OP_COPY, NULL, (hri_operand[]){HRI_R(before), HRI_W(whole)}, 2);
  ad->gradient[value] = whole;
  ad->gathered[value] = true;
}

void hri_ad_contribute(hri_autodiff *ad, hri_id tensor, hri_id gradient) {
  size_t value;
  hri_id before, sum;
  if (ad->job->failed || tensor == HRI_NONE || gradient == HRI_NONE) return;
  value = value_of(ad, tensor);
  if (!hri_tensor_is_whole(ad->job, &ad->job->tensors.items[tensor])) {
    if (!ad->gathered[value]) begin_gathering(ad, value);
    if (ad->job->failed) return;
    hri_ad_emit(ad, HRI_OP_ACCUMULATE, NULL,
                (hri_operand[]){HRI_R(gradient), HRI_A(view_of(ad, ad->gradient[value], tensor))}, 2);
    return;
  }
  before = ad->gradient[value];
  if (before == HRI_NONE &&
      ad->job->tensors.items[gradient].stride) { /* columns of another value's gradient: gradients are whole */
    sum = hri_ad_like(ad, tensor, ".grad");
    hri_ad_emit(ad, HRI_OP_COPY, NULL, (hri_operand[]){HRI_R(gradient), HRI_W(sum)}, 2);
    ad->gradient[value] = sum;
    return;
  }
  if (before == HRI_NONE) {
    ad->gradient[value] = gradient;
    return;
  }
  sum = hri_ad_like(ad, tensor, ".grad");
  hri_ad_emit(ad, HRI_OP_ADD, NULL, (hri_operand[]){HRI_R(before), HRI_R(gradient), HRI_W(sum)}, 3);
  ad->gradient[value] = sum;
  ad->owned[value] = false;
  ad->gathered[value] = false;
}

/* It stays the tensor's own until the tensor's producer is differentiated, which is behind all that read it. */
void hri_ad_contribute_own(hri_autodiff *ad, hri_id tensor, hri_id gradient) {
  if (ad->job->failed || tensor == HRI_NONE) return;
  hri_ad_contribute(ad, tensor, gradient);
  if (!ad->job->failed && ad->gradient[value_of(ad, tensor)] == gradient) ad->owned[value_of(ad, tensor)] = true;
}

hri_id hri_ad_own_gradient(hri_autodiff *ad, hri_id tensor) {
  const hri_tensor *t;
  if (ad->job->failed || tensor == HRI_NONE) return HRI_NONE;
  t = &ad->job->tensors.items[tensor];
  return ad->owned[t->value] && hri_tensor_is_whole(ad->job, t) ? ad->gradient[t->value] : HRI_NONE;
}

hri_operand hri_ad_param(hri_autodiff *ad, hri_id tensor) {
  size_t value;
  uint32_t param;
  hri_operand operand = HRI_ABSENT;
  if (ad->job->failed || tensor == HRI_NONE || !hri_ad_needed(ad, tensor)) return operand;
  value = value_of(ad, tensor);
  param = ad->param_of[value];
  assert(param != HRI_NONE && ad->job->params.items[param].run_count ==
                                  1); /* what is needed and no result is a parameter; all of it is trainable */
  operand.tensor = ad->job->runs.items[ad->job->params.items[param].run_begin].gradient;
  operand.access = ad->accumulate || ad->touched[param] ? HRI_ADD : HRI_WRITE;
  ad->touched[param] = true;
  return operand;
}

void hri_ad_param_rows(hri_autodiff *ad, hri_id tensor, hri_id dy, hri_id other, hri_ad_rows emit) {
  hri_job *job = ad->job;
  hri_access access;
  uint32_t param, count;
  uint64_t columns;
  if (job->failed || tensor == HRI_NONE || dy == HRI_NONE || !hri_ad_needed(ad, tensor)) return;
  param = ad->param_of[value_of(ad, tensor)];
  assert(param != HRI_NONE);
  columns = job->tensors.items[dy].stored[job->tensors.items[dy].rank - 1];
  access = ad->accumulate || ad->touched[param] ? HRI_ADD : HRI_WRITE;
  (void)hri_param_runs(job, param, &count);
  for (uint32_t k = 0; k < count && !job->failed; k++) {
    const hri_param_run run = hri_param_runs(job, param, &count)[k]; /* emitting moves pools */
    hri_id part = run.rows == columns ? dy : hri_tensor_columns(job, dy, run.row, run.rows);
    assert(run.row + run.rows <= columns);
    emit(ad, part, (hri_operand){run.gradient, (uint8_t)access}, other);
  }
  ad->touched[param] = true;
}
