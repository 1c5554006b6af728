/* Reverse-mode differentiation of the forward nodes of a program.
 *
 * A forward sweep finds what requires a gradient (trainable parameters and everything made from them); a backward sweep
 * calls each op's rule, which emits gradient nodes and contributes to the gradients of its inputs. "Saved" is not a
 * list: it is whatever those nodes read. */
#include <string.h>

#include "pass/pass.h"

/* A result has one node that writes it and any number that add to it; the gradient of the result is the gradient of
 * each. */
static bool makes(uint8_t access) { return access == HRI_WRITE || access == HRI_ADD; }

static void requires_grad(hri_autodiff *ad, const hri_program *p, size_t node_count) {
  hri_job *job = ad->job;
  for (uint32_t i = 0; i < job->params.count; i++) {
    size_t value = job->tensors.items[job->params.items[i].weight].value;
    ad->whole[value] = job->params.items[i].weight;
    ad->param_of[value] = i;
    ad->needed[value] = job->params.items[i].trainable;
  }
  for (size_t at = 0; at < node_count; at++) {
    const hri_node *node = &job->nodes.items[p->order.items[at]];
    const hri_operand *operands = hri_operands(job, node);
    bool needed = false;
    for (uint32_t i = 0; i < node->operand_count; i++)
      if (operands[i].tensor != HRI_NONE && hri_tensor_is_whole(job, &job->tensors.items[operands[i].tensor]))
        ad->whole[job->tensors.items[operands[i].tensor].value] = operands[i].tensor;
    if (!hri_rule_get(node->op)->backward) continue;
    for (uint32_t i = 0; i < node->operand_count; i++)
      if (operands[i].tensor != HRI_NONE && operands[i].access == HRI_READ &&
          ad->needed[job->tensors.items[operands[i].tensor].value])
        needed = true;
    for (uint32_t i = 0; needed && i < node->operand_count; i++)
      if (operands[i].tensor != HRI_NONE && makes(operands[i].access))
        ad->needed[job->tensors.items[operands[i].tensor].value] = true;
  }
}

/* Parameters whose gradient the loss head wrote already: a gradient is a value of its own, so each is found by that.
 * `param_of_gradient`: room for all values. */
static void already_touched(hri_autodiff *ad, const hri_id *nodes, size_t count, uint32_t *param_of_gradient) {
  const hri_job *job = ad->job;
  memset(param_of_gradient, 0xFF, ad->value_count * sizeof *param_of_gradient); /* HRI_NONE */
  for (uint32_t p = 0; p < job->params.count; p++) {
    uint32_t runs;
    const hri_param_run *run = hri_param_runs(job, p, &runs);
    for (uint32_t r = 0; r < runs; r++) param_of_gradient[job->tensors.items[run[r].gradient].value] = p;
  }
  for (size_t at = 0; at < count; at++) {
    const hri_node *node = &job->nodes.items[nodes[at]];
    const hri_operand *operands = hri_operands(job, node);
    for (uint32_t i = 0; i < node->operand_count; i++) {
      uint32_t param = operands[i].tensor == HRI_NONE || !makes(operands[i].access)
                           ? HRI_NONE
                           : param_of_gradient[job->tensors.items[operands[i].tensor].value];
      if (param != HRI_NONE) ad->touched[param] = true;
    }
  }
}

hr_status hri_pass_autodiff(hri_job *job, uint8_t program, hri_id hidden, hri_id hidden_gradient, bool accumulate,
                            hr_error *error) {
  hri_program *p = &job->programs[program];
  size_t values = job->storages.count, forward_count = p->order.count, loss = forward_count;
  uint32_t *param_of_gradient = hri_alloc(values * sizeof *param_of_gradient);
  hri_autodiff ad = {.job = job, .program = program, .accumulate = accumulate, .value_count = values};
  hr_status status = HR_OK;
  job->current_pass = HRI_PASS_AUTODIFF;
  ad.gradient = hri_alloc(values * sizeof *ad.gradient);
  ad.param_of = hri_alloc(values * sizeof *ad.param_of);
  ad.whole = hri_alloc(values * sizeof *ad.whole);
  ad.needed = hri_alloc_zero(values, sizeof *ad.needed);
  ad.gathered = hri_alloc_zero(values, sizeof *ad.gathered);
  ad.owned = hri_alloc_zero(values, sizeof *ad.owned);
  ad.touched = hri_alloc_zero(job->params.count, sizeof *ad.touched);
  if (!ad.gradient || !ad.param_of || !ad.whole || !ad.gathered || !ad.needed || !ad.owned || !ad.touched ||
      !param_of_gradient || job->failed) {
    status = hri_fail_memory(error, values * 19, "differentiation");
    goto out;
  }
  memset(ad.gradient, 0xFF, values * sizeof *ad.gradient);
  memset(ad.param_of, 0xFF, values * sizeof *ad.param_of);
  memset(ad.whole, 0xFF, values * sizeof *ad.whole);
  requires_grad(&ad, p, forward_count);
  /* only the head's nodes write gradients so far; those of the loss phase are the last */
  while (loss > 0 && job->nodes.items[p->order.items[loss - 1]].phase == HRI_PHASE_LOSS) loss--;
  already_touched(&ad, p->order.items + loss, forward_count - loss, param_of_gradient);
  ad.gradient[job->tensors.items[hidden].value] = hidden_gradient;
  for (size_t at = forward_count; at-- > 0;) {
    hri_id id = p->order.items[at];
    hri_node node = job->nodes.items[id];
    const hri_rule *rule = hri_rule_get(node.op);
    bool reached = false;
    if (node.phase != HRI_PHASE_FORWARD || !rule->backward) continue;
    for (uint32_t i = 0; i < node.operand_count; i++) {
      hri_operand o = job->operands.items[node.operand_begin + i];
      if (o.tensor != HRI_NONE && makes(o.access) && ad.gradient[job->tensors.items[o.tensor].value] != HRI_NONE)
        reached = true;
    }
    if (!reached) continue;
    ad.emit = (hri_emit){.program = program,
                         .lane = HRI_COMPUTE,
                         .phase = HRI_PHASE_BACKWARD,
                         .layer = node.layer,
                         .unit = node.unit,
                         .site = node.site,
                         .origin = HRI_NONE};
    rule->backward(&ad, id);
    if (job->failed) break;
  }
  /* a trainable parameter that the loss does not reach would keep an undefined gradient */
  for (uint32_t i = 0; i < job->params.count && status == HR_OK; i++)
    if (job->params.items[i].trainable && !ad.touched[i] && !job->failed)
      status = hri_fail(error, HR_ERROR_USAGE, "the loss does not depend on the trainable parameter %s",
                        hri_name_get(job, job->params.items[i].key));
  if (status == HR_OK) status = hri_job_ok(job, error);
out:
  hri_free(param_of_gradient);
  hri_free(ad.gradient);
  hri_free(ad.param_of);
  hri_free(ad.whole);
  hri_free(ad.gathered);
  hri_free(ad.needed);
  hri_free(ad.owned);
  hri_free(ad.touched);
  return status;
}
