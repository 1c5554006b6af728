/* Joins nodes that would otherwise pass over memory twice.
 *
 * Neighbours, where the rule of an op takes a sum in front of it or behind it:
 *   add(a, b) -> s ; norm(s) -> y              =>  norm with residual: s and y in one pass
 *   norm_backward -> t ; add(r, t) -> g        =>  norm_backward with the residual gradient added
 *
 * Products of the backward, where the backend computes more with them (hri_pass_fuse_products):
 *   bias_gradient(dy) -> db ; linear_dw(dy, x) -> dw      =>  linear_dw_bias: db beside dw
 *   linear_dx(dy, w) -> t ; activation_backward(t, x)     =>  linear_dx_activation: t is never rounded, nor there
 * These two have other bits than the nodes apart. So they are looked for right behind the differentiation, by which
 * values nodes touch: what is chosen for memory or time later - what is made again, what goes to the host, where updates
 * stand - finds the same products, and changes no bit. The forward's activation is not joined with its product for the
 * same reason: it would be computed from a sum that is not rounded, and a recomputation that makes it again from the kept
 * value, which is, would have other bits.
 * The slope of an activation that a library has may be an approximation: it is asked for in bf16 alone, whose rounding is
 * coarser, and of gelu by tanh alone, which is the one that libraries have. */
#include <assert.h>

#include "pass/pass.h"

static bool same_tensor(const hri_job *job, hri_id a, hri_id b) {
  const hri_tensor *x, *y;
  if (a == HRI_NONE || b == HRI_NONE) return false;
  x = &job->tensors.items[a];
  y = &job->tensors.items[b];
  return x->storage == y->storage && x->offset == y->offset && x->value == y->value &&
         hri_tensor_bytes(x) == hri_tensor_bytes(y);
}

/* add(a, b) -> s; op(s) -> y  =>  op(a, residual b) -> s, y, where the rule of the op takes a sum before it. */
static bool fuse_before(hri_job *job, hri_id first, hri_id second) {
  hri_operand *add = hri_operands(job, &job->nodes.items[first]), *into = hri_operands(job, &job->nodes.items[second]);
  const hri_rule *rule = hri_rule_get(job->nodes.items[second].op);
  uint8_t x = rule->takes_sum_before.x, residual = rule->takes_sum_before.residual, to = rule->takes_sum_before.to;
  if (!hri_rule_get(job->nodes.items[first].op)->sum || residual == 0) return false;
  if (into[residual].tensor != HRI_NONE || !same_tensor(job, add[2].tensor, into[x].tensor)) return false;
  assert(into[to].tensor == HRI_NONE);
  into[x].tensor = add[0].tensor;
  into[residual] = HRI_R(add[1].tensor);
  into[to] = HRI_W(add[2].tensor);
  return true;
}

/* op -> t; add(r, t) -> g  =>  op(residual r) -> g, where the rule of the op takes a sum behind it. The intermediate
 * result must have no other reader: the caller passes its count. */
static bool fuse_behind(hri_job *job, hri_id first, hri_id second, const uint32_t *reads) {
  hri_operand *from = hri_operands(job, &job->nodes.items[first]), *add = hri_operands(job, &job->nodes.items[second]);
  const hri_rule *rule = hri_rule_get(job->nodes.items[first].op);
  uint8_t residual = rule->takes_sum_behind.residual, to = rule->takes_sum_behind.to;
  int other;
  if (!hri_rule_get(job->nodes.items[second].op)->sum || residual == 0 || from[residual].tensor != HRI_NONE)
    return false;
  if (same_tensor(job, from[to].tensor, add[1].tensor)) other = 0;
  else if (same_tensor(job, from[to].tensor, add[0].tensor)) other = 1;
  else return false;
  if (reads[job->tensors.items[from[to].tensor].value] != 1) return false;
  from[residual] = HRI_R(add[other].tensor);
  from[to] = HRI_W(add[2].tensor);
  return true;
}

static void count_reads(const hri_job *job, const hri_program *p, uint32_t *reads) {
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &job->nodes.items[p->order.items[at]];
    for (uint32_t i = 0; i < node->operand_count; i++) {
      hri_operand o = hri_operands(job, node)[i];
      if (o.tensor != HRI_NONE && hri_access_reads((hri_access)o.access)) reads[job->tensors.items[o.tensor].value]++;
    }
  }
}

hr_status hri_pass_fuse(hri_job *job, hr_error *error) {
  uint32_t *reads = hri_alloc_zero(job->storages.count, sizeof *reads);
  hri_id *becomes = hri_alloc(job->nodes.count * sizeof *becomes); /* the node that does a removed node's work */
  job->current_pass = HRI_PASS_FUSE;
  if (!reads || !becomes) {
    hri_free(reads);
    hri_free(becomes);
    return hri_fail_memory(error, job->storages.count * sizeof *reads, "fusion");
  }
  for (hri_id id = 0; id < job->nodes.count; id++) becomes[id] = id;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) count_reads(job, &job->programs[kind], reads);
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    hri_program *p = &job->programs[kind];
    size_t kept = 0;
    for (size_t at = 0; at < p->order.count; at++) {
      hri_id id = p->order.items[at];
      hri_id before = kept > 0 ? p->order.items[kept - 1] : HRI_NONE;
      bool waits =
          job->nodes.items[id].wait_count > 0 || (before != HRI_NONE && job->nodes.items[before].wait_count > 0);
      if (before != HRI_NONE && !waits && job->nodes.items[before].lane == job->nodes.items[id].lane) {
        if (fuse_before(job, before, id)) {
          p->order.items[kept - 1] = id;
          becomes[before] = id;
          continue;
        }
        if (fuse_behind(job, before, id, reads)) {
          becomes[id] = before;
          continue;
        }
      }
      p->order.items[kept++] = id;
    }
    p->order.count = kept;
  }
  for (size_t w = 0; w < job->waits.count; w++) job->waits.items[w].node = becomes[job->waits.items[w].node];
  hri_free(reads);
  hri_free(becomes);
  return HR_OK;
}

/* ---- products ---- */

typedef struct finder {
  hri_job *job;
  hri_program *program;
  uint32_t *touches; /* per value: operands of the program's nodes */
} finder;

static hri_node *node_at(const finder *f, size_t at) { return &f->job->nodes.items[f->program->order.items[at]]; }
static const hri_tensor *operand_at(const finder *f, const hri_node *node, uint32_t index) {
  return &f->job->tensors.items[hri_operands(f->job, node)[index].tensor];
}
static uint8_t type_at(const finder *f, const hri_node *node, uint32_t index) {
  return operand_at(f, node, index)->dtype;
}
static bool writes(const finder *f, const hri_node *node, uint32_t index) {
  return hri_operands(f->job, node)[index].access == HRI_WRITE;
}

/* The sums of dy and the weight gradient right behind them, of the same dy: both write, and neither rounds. */
static bool has_bias(const finder *f, const hri_node *bias, const hri_node *dw) {
  if (!hri_rule_get(bias->op)->column_sums || !hri_rule_get(dw->op)->with_sums) return false;
  return same_tensor(f->job, hri_operands(f->job, bias)[0].tensor, hri_operands(f->job, dw)[0].tensor) &&
         writes(f, bias, 1) && writes(f, dw, 2) && type_at(f, dw, 2) == HRI_F32 &&
         type_at(f, dw, 0) == type_at(f, dw, 1);
}

static bool is_bf16(const finder *f, const hri_node *node, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (type_at(f, node, i) != HRI_BF16) return false;
  return true;
}

/* The position of the node that takes a slope of what a product makes for it alone; 0: there is none. */
static size_t slope_behind(const finder *f, size_t at) {
  const hri_node *dx = node_at(f, at);
  if (!hri_rule_get(dx->op)->with_slope || !writes(f, dx, 2) || !is_bf16(f, dx, 3) ||
      f->touches[operand_at(f, dx, 2)->value] != 2)
    return 0;
  for (size_t k = at + 1; k < f->program->order.count; k++) {
    const hri_node *slope = node_at(f, k);
    if (hri_rule_get(slope->op)->slope && slope->attr.i[0] == HR_ACTIVATION_GELU_TANH &&
        same_tensor(f->job, hri_operands(f->job, slope)[0].tensor, hri_operands(f->job, dx)[2].tensor))
      return is_bf16(f, slope, 3) ? k : 0;
  }
  return 0;
}

static void join_slope(const finder *f, size_t at, size_t slope_at) {
  hri_id id = f->program->order.items[at];
  hri_operand *slope = hri_operands(f->job, node_at(f, slope_at)), x = slope[1];
  hri_id dx = slope[2].tensor;
  hri_node_add_operand(f->job, id, dx, HRI_WRITE);
  hri_operands(f->job, &f->job->nodes.items[id])[2] = x;
  f->job->nodes.items[id].op = hri_rule_get(f->job->nodes.items[id].op)->with_slope;
  f->job->nodes.items[id].attr = node_at(f, slope_at)->attr;
}

static void join_bias(const finder *f, size_t bias_at, size_t at) {
  hri_id id = f->program->order.items[at], db = hri_operands(f->job, node_at(f, bias_at))[1].tensor;
  hri_node_add_operand(f->job, id, db, HRI_WRITE);
  f->job->nodes.items[id].op = hri_rule_get(f->job->nodes.items[id].op)->with_sums;
}

static void count_touches(const finder *f) {
  for (size_t at = 0; at < f->program->order.count; at++) {
    const hri_node *node = node_at(f, at);
    for (uint32_t i = 0; i < node->operand_count; i++)
      if (hri_operands(f->job, node)[i].tensor != HRI_NONE) f->touches[operand_at(f, node, i)->value]++;
  }
}

hr_status hri_pass_fuse_products(hri_job *job, uint8_t program, uint32_t epilogues, hr_error *error) {
  finder f = {.job = job, .program = &job->programs[program]};
  hri_order *order = &f.program->order;
  bool *gone;
  size_t kept = 0;
  job->current_pass = HRI_PASS_FUSE;
  if (epilogues == 0) return HR_OK;
  assert(job->waits.count == 0); /* lanes come later */
  f.touches = hri_alloc_zero(job->storages.count, sizeof *f.touches);
  gone = hri_alloc_zero(order->count + 1, sizeof *gone);
  if (f.touches && gone) {
    count_touches(&f);
    for (size_t at = 0; at < order->count; at++) {
      size_t slope = (epilogues & HRI_EPILOGUE_GELU_BACKWARD) ? slope_behind(&f, at) : 0;
      if (slope) join_slope(&f, at, slope), gone[slope] = true;
      if (!(epilogues & HRI_EPILOGUE_BIAS_GRADIENT) || at == 0 || !has_bias(&f, node_at(&f, at - 1), node_at(&f, at)))
        continue;
      join_bias(&f, at - 1, at);
      gone[at - 1] = true;
    }
    for (size_t at = 0; at < order->count; at++)
      if (!gone[at]) order->items[kept++] = order->items[at];
    order->count = kept;
  } else {
    (void)hri_fail_memory(error, job->storages.count * sizeof *f.touches, "fusion");
  }
  hri_free(f.touches);
  hri_free(gone);
  return kept ? hri_job_ok(job, error) : HR_ERROR_MEMORY;
}
