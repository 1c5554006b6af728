/* The optimizer: updates and norms act on (segment, ranges): one node for what lies in a segment, whose operands are
 * groups of the ranges' tensors. The ranges of a node are attributes, so that kernels know where each begins: blocks of
 * the norm start anew at each, and the random bits of stochastic rounding go by parameter and element, whatever
 * segments there are.
 *
 * After the backward: partial sums of squares, the clip factor, then the updates; the schedule moves each of the sums up
 * to the gradient that it is of. Inside the backward: each range has an update of its own, behind the last node that
 * touches its gradient or reads its weight, so that the gradient dies there. With several micro-steps the gradients that
 * `begin` zeroed and `micro` added to are used in `update`.
 *
 * A step that may be skipped takes the norm whether it clips or not: a sum of squares is finite exactly when every
 * gradient is (squares of fp32 numbers are far from overflow in fp64), so the norm and the loss together say whether
 * the step is sound. found_inf holds the answer, and guards what changes anything that a later step reads: the count of
 * applied steps (Adam's t, the key of stochastic rounding) and every update. What runs without a guard writes only
 * values of this step. Where the loss is scaled (fp16) the norm sees the scaled gradients, fp32 sums that hold any
 * overflow of the backward; norm and updates divide by the scale, so that there is no pass of unscaling; and the last
 * node makes the next step's scale of found_inf, so that the host has no part in it. */
#include <assert.h>
#include <string.h>

#include "pass/pass.h"

static hri_emit update_emit(uint8_t program, const hri_param *param) {
  return (hri_emit){.program = program,
                    .lane = HRI_COMPUTE,
                    .phase = HRI_PHASE_OPTIMIZER,
                    .layer = param ? param->layer : -1,
                    .unit = param ? param->unit : HRI_NONE,
                    .site = param ? param->site : 0,
                    .origin = HRI_NONE};
}

/* Ranges that one node acts on: [begin, begin + count) of job->laid_out, all of one segment. */
typedef struct ranges {
  uint32_t begin, count;
} ranges;
typedef HRI_ARRAY(ranges) ranges_list;

static const hri_param_range *range_at(const hri_job *job, uint32_t at) {
  return &job->ranges.items[job->laid_out.items[at]];
}
static const hri_param *param_at(const hri_job *job, uint32_t at) {
  return &job->params.items[range_at(job, at)->param];
}

static ranges one_range(const hri_job *job, uint32_t range) {
  uint32_t at = job->segments.items[job->ranges.items[range].segment].range_begin;
  while (job->laid_out.items[at] != range) at++;
  return (ranges){at, 1};
}

typedef enum thing { WEIGHT = 0, GRADIENT, MASTER, STATE } thing;

static hri_id thing_of(const hri_param_range *r, uint32_t what) {
  return what == WEIGHT     ? r->weight
         : what == GRADIENT ? r->gradient
         : what == MASTER   ? r->master
                            : r->state[what - STATE];
}

/* One operand for a thing of all ranges; `list` has room for them. HRI_NONE when they have none. */
static hri_id group(hri_job *job, ranges r, uint32_t what, hri_id *list) {
  assert(r.count > 0);
  for (uint32_t k = 0; k < r.count; k++) {
    list[k] = thing_of(range_at(job, r.begin + k), what);
    assert((list[k] == HRI_NONE) == (list[0] == HRI_NONE)); /* the ranges of a segment are alike */
  }
  return list[0] == HRI_NONE ? HRI_NONE : hri_tensor_group(job, list, r.count);
}

/* `guard`: a flag, HRI_NONE for an update that is never skipped. */
static hri_id make_update(hri_job *job, const hri_update_options *o, uint8_t program, ranges r, hri_id guard,
                          hri_id *list) {
  const hri_part *part = &job->parts.items[range_at(job, r.begin)->part_begin];
  const hri_optimizer *row = hri_optimizer_get(part->state_kind);
  hri_attr attr = {.i = {range_at(job, r.begin)->segment, r.begin, r.count}};
  bool master = range_at(job, r.begin)->master != HRI_NONE, split = hri_range_split(job, range_at(job, r.begin));
  uint32_t w = master && !split ? MASTER : WEIGHT, beside = split ? MASTER : WEIGHT;
  uint32_t states = row->tensor_count, count = 5 + states;
  hri_operand operands[5 + HRI_STATE_TENSORS] = {HRI_R(group(job, r, GRADIENT, list)), HRI_R(job->control),
                                                 HRI_U(group(job, r, w, list))};
  for (uint32_t k = 0; k < HRI_STATE_NUMBERS; k++) attr.f[k] = o->numbers[part->state_kind][k];
  attr.f[HRI_STATE_NUMBERS] = part->decay ? o->weight_decay : 0;
  for (uint32_t k = 0; k < states; k++) operands[3 + k] = HRI_U(group(job, r, STATE + k, list));
  operands[3 + states] = (hri_operand){master ? group(job, r, beside, list) : HRI_NONE, HRI_UPDATE_ACCESS};
  operands[4 + states] = HRI_R(guard);
  return hri_node_new(job, row->op, update_emit(program, param_at(job, r.begin)), &attr, operands, count);
}

static hri_id make_advance(hri_job *job, uint8_t program, hri_id guard) {
  return hri_node_new(job, HRI_OP_ADVANCE, update_emit(program, NULL), NULL,
                      (hri_operand[]){HRI_U(job->control), HRI_R(guard)}, 2);
}

static uint64_t norm_blocks(const hri_param_range *r) { return (r->elements + HRI_NORM_BLOCK - 1) / HRI_NORM_BLOCK; }

/* The norm of all gradients, and the clip factor where there is a limit. Partial sums lie, and are folded, in the order
 * of parameters: the sum does not depend on segments. `at`: room for a number per range. */
static void emit_norm(hri_job *job, uint8_t program, const ranges_list *nodes, uint64_t *at, hri_id *list) {
  uint64_t blocks = 0;
  hri_id partials;
  hri_place place = {.program = program, .tier = HRI_DEVICE, .role = HRI_ROLE_WORKSPACE, .layer = -1, .unit = HRI_NONE};
  for (size_t r = 0; r < job->ranges.count; r++) {
    at[r] = blocks;
    if (job->ranges.items[r].gradient != HRI_NONE) blocks += norm_blocks(&job->ranges.items[r]);
  }
  partials = hri_tensor_new(job, place, hri_name(job, "gradient.square_sums"), HRI_F64, 1, &blocks, NULL);
  for (size_t n = 0; n < nodes->count && !job->failed; n++) {
    const ranges r = nodes->items[n];
    hri_attr attr = {.i = {range_at(job, r.begin)->segment, r.begin, r.count}};
    hri_id gradient = group(job, r, GRADIENT, list), sums;
    for (uint32_t k = 0; k < r.count; k++)
      list[k] =
          hri_tensor_rows(job, partials, at[job->laid_out.items[r.begin + k]], norm_blocks(range_at(job, r.begin + k)));
    sums = hri_tensor_group(job, list, r.count);
    hri_node_append(job, HRI_OP_SQUARE_NORM, update_emit(program, param_at(job, r.begin)), &attr,
                    (hri_operand[]){HRI_R(gradient), HRI_W(sums)}, 2);
  }
  hri_node_append(job, HRI_OP_CLIP, update_emit(program, NULL), NULL,
                  (hri_operand[]){HRI_R(partials), HRI_U(job->control)}, 2);
}

/* The flag that says whether this step is skipped; its node writes it in every step, so none is left from the last. */
static hri_id emit_found_inf(hri_job *job, uint8_t program) {
  hri_id norm = HRI_CONTROL_DOUBLE(job, grad_norm), loss = HRI_CONTROL_DOUBLE(job, loss_sum),
         found = HRI_CONTROL_DOUBLE(job, found_inf);
  hri_node_append(job, HRI_OP_FOUND_INF, update_emit(program, NULL), NULL,
                  (hri_operand[]){HRI_R(norm), HRI_R(loss), HRI_W(found)}, 3);
  return found;
}

/* Numbers of torch.amp.GradScaler. */
static void emit_loss_scale(hri_job *job, uint8_t program, uint32_t growth_interval) {
  hri_attr attr = {.i = {growth_interval}, .f = {2, 0.5}};
  hri_node_append(job, HRI_OP_LOSS_SCALE, update_emit(program, NULL), &attr, (hri_operand[]){HRI_U(job->control)}, 1);
}

/* Where each value is touched last, or where 0 when it is not. */
static void last_touches(const hri_job *job, const hri_program *p, uint32_t *last) {
  for (uint32_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &job->nodes.items[p->order.items[at]];
    for (uint32_t i = 0; i < node->operand_count; i++) {
      hri_id t = hri_operands(job, node)[i].tensor;
      if (t != HRI_NONE) last[job->tensors.items[t].value] = at;
    }
  }
}

/* Rebuilds the step's order with each update behind the last use of its gradient and of the weight that it is in. */
static hr_status insert_in_backward(hri_job *job, const hri_update_options *o, hr_error *error) {
  hri_program *p = &job->programs[HRI_STEP];
  size_t values = job->storages.count, nodes = p->order.count;
  uint32_t *last = hri_alloc_zero(values, sizeof *last), *next = hri_alloc((job->ranges.count + 1) * sizeof *next),
           *head = hri_alloc((nodes + 1) * sizeof *head);
  hri_order order = {0};
  hr_status status = HR_OK;
  hri_id advance = make_advance(job, HRI_STEP, HRI_NONE), one;
  if (!last || !next || !head || !hri_array_push(&order, advance)) {
    status = hri_fail_memory(error, values * 4, "updates in the backward");
    goto out;
  }
  memset(head, 0xFF, (nodes + 1) * sizeof *head);
  last_touches(job, p, last);
  for (uint32_t r = (uint32_t)job->ranges.count; r-- > 0;) { /* lists of ranges by position of their last use */
    const hri_param_range *range = &job->ranges.items[r];
    uint32_t at;
    if (range->gradient == HRI_NONE) continue; /* frozen */
    at = last[job->tensors.items[job->params.items[range->param].weight].value];
    if (last[job->tensors.items[range->gradient].value] > at) at = last[job->tensors.items[range->gradient].value];
    next[r] = head[at];
    head[at] = r;
  }
  for (uint32_t at = 0; at < nodes && !job->failed; at++) {
    if (!hri_array_push(&order, p->order.items[at])) job->failed = true;
    for (uint32_t r = head[at]; r != HRI_NONE; r = next[r]) {
      const ranges alone = one_range(job, r);
      assert(alone.count == 1); /* `one` has room for it */
      if (!hri_array_push(&order, make_update(job, o, HRI_STEP, alone, HRI_NONE, &one))) job->failed = true;
    }
  }
  status = hri_job_ok(job, error);
  if (status == HR_OK) hri_order_replace(job, HRI_STEP, &order);
out:
  hri_array_free(&order);
  hri_free(last);
  hri_free(next);
  hri_free(head);
  return status;
}

static hri_id storage_of(const hri_job *job, hri_id tensor) { return job->tensors.items[tensor].storage; }

/* What of two ranges of a segment one operand can stand for: a fused weight, or the gradient of rows whose parts
 * differ, may lie with another segment. */
static bool together(const hri_job *job, const hri_param_range *a, const hri_param_range *b) {
  return storage_of(job, a->weight) == storage_of(job, b->weight) &&
         storage_of(job, a->gradient) == storage_of(job, b->gradient);
}

/* The ranges of each node. In a program of its own the update has a node for all of a segment. Behind a backward it has
 * one per range, in the order of parameters, so that each sum of squares can follow its own gradient. */
static bool divide(const hri_job *job, bool whole_segments, ranges_list *nodes) {
  for (size_t s = 0; whole_segments && s < job->segments.count; s++) {
    const hri_segment *segment = &job->segments.items[s];
    for (uint32_t at = 0; segment->trainable && at < segment->range_count;) {
      ranges r = {segment->range_begin + at, 1};
      while (at + r.count < segment->range_count &&
             together(job, range_at(job, r.begin), range_at(job, r.begin + r.count)))
        r.count++;
      if (!hri_array_push(nodes, r)) return false;
      at += r.count;
    }
  }
  for (uint32_t r = 0; !whole_segments && r < job->ranges.count; r++)
    if (job->ranges.items[r].gradient != HRI_NONE && !hri_array_push(nodes, one_range(job, r))) return false;
  return true;
}

/* Behind the backward, or in a program of its own. */
static hr_status append_updates(hri_job *job, const hri_update_options *o, uint8_t program, hr_error *error) {
  hri_id guard = HRI_NONE, *list = hri_alloc((job->ranges.count + 1) * sizeof *list);
  uint64_t *at = hri_alloc((job->ranges.count + 1) * sizeof *at);
  ranges_list nodes = {0};
  hr_status status = list && at && divide(job, program == HRI_UPDATE, &nodes)
                         ? HR_OK
                         : hri_fail_memory(error, job->ranges.count * sizeof *at, "updates");
  if (status == HR_OK) {
    if (o->clip || o->skip) emit_norm(job, program, &nodes, at, list);
    if (o->skip) guard = emit_found_inf(job, program);
    hri_order_push(job, program, make_advance(job, program, guard));
    for (size_t n = 0; n < nodes.count && !job->failed; n++)
      hri_order_push(job, program, make_update(job, o, program, nodes.items[n], guard, list));
    if (o->growth_interval) emit_loss_scale(job, program, o->growth_interval);
    status = hri_job_ok(job, error);
  }
  hri_array_free(&nodes);
  hri_free(list);
  hri_free(at);
  return status;
}

hr_status hri_pass_update(hri_job *job, const hri_update_options *options, hr_error *error) {
  bool many = job->programs[HRI_MICRO].present;
  job->current_pass = HRI_PASS_UPDATE;
  if (!options->in_backward) return append_updates(job, options, many ? HRI_UPDATE : HRI_STEP, error);
  if (many || options->clip || options->skip)
    return hri_fail(error, HR_ERROR_USAGE, "the update cannot run inside the backward with %s",
                    many            ? "gradient accumulation"
                    : options->clip ? "a global gradient norm"
                                    : "steps that may be skipped");
  return insert_in_backward(job, options, error);
}
