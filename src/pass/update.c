/* The optimizer: one update node per (segment, range), the range of one parameter.
 *
 * After the backward: partial sums of squares, the clip factor, then the updates. Inside the backward: each update stands
 * behind the last node that touches its gradient or reads its weight, so that the gradient dies there. With several
 * micro-steps the gradients that `begin` zeroed and `micro` added to are used in `update`.
 *
 * A step that may be skipped takes the norm whether it clips or not: a sum of squares is finite exactly when every
 * gradient is (squares of fp32 numbers are far from overflow in fp64), so the norm and the loss together say whether the
 * step is sound. found_inf holds the answer, and guards what changes anything that a later step reads: the count of applied
 * steps (Adam's t, the key of stochastic rounding) and every update. What runs without a guard writes only values of this step. */
#include <string.h>

#include "pass/pass.h"

static hri_emit update_emit(uint8_t program, const hri_param *param) {
  return (hri_emit){.program = program, .lane = HRI_COMPUTE, .phase = HRI_PHASE_OPTIMIZER, .layer = param ? param->layer : -1,
                    .unit = param ? param->unit : HRI_NONE, .site = param ? param->site : 0, .origin = HRI_NONE};
}

/* `guard`: a flag, HRI_NONE for an update that is never skipped. */
static hri_id make_update(hri_job *job, const hri_update_options *o, uint8_t program, const hri_param *param, hri_id guard) {
  const hri_optimizer *row = hri_optimizer_get(param->state_kind);
  hri_attr attr = {.i = {param->segment, (int64_t)param->segment_offset, (int64_t)param->elements}};
  bool master = param->master != HRI_NONE;
  uint32_t states = row->tensor_count, count = 5 + states;
  hri_operand operands[5 + HRI_STATE_TENSORS] = {HRI_R(param->gradient), HRI_R(job->control), HRI_U(master ? param->master : param->weight)};
  for (uint32_t k = 0; k < HRI_STATE_NUMBERS; k++) attr.f[k] = o->numbers[param->state_kind][k];
  attr.f[HRI_STATE_NUMBERS] = param->decay ? o->weight_decay : 0;
  for (uint32_t k = 0; k < states; k++) operands[3 + k] = HRI_U(param->state[k]);
  operands[3 + states] = (hri_operand){master ? param->weight : HRI_NONE, HRI_UPDATE_ACCESS};
  operands[4 + states] = HRI_R(guard);
  return hri_node_new(job, row->op, update_emit(program, param), &attr, operands, count);
}

static hri_id make_advance(hri_job *job, uint8_t program, hri_id guard) {
  return hri_node_new(job, HRI_OP_ADVANCE, update_emit(program, NULL), NULL, (hri_operand[]){HRI_U(job->control), HRI_R(guard)}, 2);
}

/* The norm of all gradients, and the clip factor where there is a limit. */
static void emit_norm(hri_job *job, uint8_t program) {
  uint64_t blocks = 0, at = 0;
  hri_id partials;
  hri_place place = {.program = program, .tier = HRI_DEVICE, .role = HRI_ROLE_WORKSPACE, .layer = -1, .unit = HRI_NONE};
  for (size_t p = 0; p < job->params.count; p++)
    if (job->params.items[p].trainable) blocks += (job->params.items[p].elements + HRI_NORM_BLOCK - 1) / HRI_NORM_BLOCK;
  partials = hri_tensor_new(job, place, hri_name(job, "gradient.square_sums"), HRI_F64, 1, &blocks, NULL);
  for (size_t p = 0; p < job->params.count && !job->failed; p++) {
    const hri_param param = job->params.items[p];
    uint64_t count = (param.elements + HRI_NORM_BLOCK - 1) / HRI_NORM_BLOCK;
    if (!param.trainable) continue;
    hri_node_append(job, HRI_OP_SQUARE_NORM, update_emit(program, &param), NULL, (hri_operand[]){HRI_R(param.gradient), HRI_W(hri_tensor_rows(job, partials, at, count))}, 2);
    at += count;
  }
  hri_node_append(job, HRI_OP_CLIP, update_emit(program, NULL), NULL, (hri_operand[]){HRI_R(partials), HRI_U(job->control)}, 2);
}

/* The flag that says whether this step is skipped; its node writes it in every step, so none is left from the last. */
static hri_id emit_found_inf(hri_job *job, uint8_t program) {
  hri_id norm = HRI_CONTROL_DOUBLE(job, grad_norm), loss = HRI_CONTROL_DOUBLE(job, loss_sum), found = HRI_CONTROL_DOUBLE(job, found_inf);
  hri_node_append(job, HRI_OP_FOUND_INF, update_emit(program, NULL), NULL, (hri_operand[]){HRI_R(norm), HRI_R(loss), HRI_W(found)}, 3);
  return found;
}

/* Rebuilds the step's order with each update behind the last use of its gradient and weight. */
static hr_status insert_in_backward(hri_job *job, const hri_update_options *o, hr_error *error) {
  hri_program *p = &job->programs[HRI_STEP];
  size_t tensors = job->tensors.count, nodes = p->order.count;
  uint32_t *param_of = hri_alloc(tensors * sizeof *param_of), *last = hri_alloc_zero(job->params.count, sizeof *last), *next = hri_alloc(job->params.count * sizeof *next),
           *head = hri_alloc(nodes * sizeof *head);
  HRI_ARRAY(hri_id) order = {0};
  hr_status status = HR_OK;
  hri_id advance = make_advance(job, HRI_STEP, HRI_NONE);
  if (!param_of || !last || !next || !head || !hri_array_push(&order, advance)) {
    status = hri_fail_memory(error, tensors * 4, "updates in the backward");
    goto out;
  }
  memset(param_of, 0xFF, tensors * sizeof *param_of);
  memset(head, 0xFF, nodes * sizeof *head);
  for (uint32_t q = 0; q < job->params.count; q++) {
    param_of[job->params.items[q].weight] = q;
    if (job->params.items[q].gradient != HRI_NONE) param_of[job->params.items[q].gradient] = q; /* frozen ones have none */
  }
  for (uint32_t at = 0; at < nodes; at++) {
    const hri_node *node = &job->nodes.items[p->order.items[at]];
    for (uint32_t i = 0; i < node->operand_count; i++) {
      hri_id t = hri_operands(job, node)[i].tensor;
      if (t != HRI_NONE && t < tensors && param_of[t] != HRI_NONE) last[param_of[t]] = at;
    }
  }
  for (uint32_t q = (uint32_t)job->params.count; q-- > 0;) { /* lists of parameters by position of their last use */
    next[q] = head[last[q]];
    head[last[q]] = q;
  }
  for (uint32_t at = 0; at < nodes && !job->failed; at++) {
    if (!hri_array_push(&order, p->order.items[at])) job->failed = true;
    for (uint32_t q = head[at]; q != HRI_NONE; q = next[q]) {
      const hri_param param = job->params.items[q];
      if (param.trainable && !hri_array_push(&order, make_update(job, o, HRI_STEP, &param, HRI_NONE))) job->failed = true;
    }
  }
  status = hri_job_ok(job, error);
  if (status == HR_OK) {
    hri_array_free(&p->order);
    p->order.items = order.items;
    p->order.count = order.count;
    p->order.capacity = order.capacity;
    memset(&order, 0, sizeof order);
  }
out:
  hri_array_free(&order);
  hri_free(param_of);
  hri_free(last);
  hri_free(next);
  hri_free(head);
  return status;
}

hr_status hri_pass_update(hri_job *job, const hri_update_options *options, hr_error *error) {
  bool many = job->programs[HRI_MICRO].present;
  uint8_t program = many ? HRI_UPDATE : HRI_STEP;
  hri_id guard = HRI_NONE;
  job->current_pass = HRI_PASS_UPDATE;
  if (options->in_backward) {
    if (many || options->clip || options->skip)
      return hri_fail(error, HR_ERROR_USAGE, "the update cannot run inside the backward with %s",
                      many ? "gradient accumulation" : options->clip ? "a global gradient norm" : "steps that may be skipped");
    return insert_in_backward(job, options, error);
  }
  if (options->clip || options->skip) emit_norm(job, program);
  if (options->skip) guard = emit_found_inf(job, program);
  hri_order_push(job, program, make_advance(job, program, guard));
  for (size_t p = 0; p < job->params.count && !job->failed; p++) {
    const hri_param param = job->params.items[p];
    if (param.trainable) hri_order_push(job, program, make_update(job, options, program, &param, guard));
  }
  return hri_job_ok(job, error);
}
