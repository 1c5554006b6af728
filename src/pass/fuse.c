/* Joins neighbours that would otherwise pass over memory twice, where the rule of an op takes a sum in front of it or
 * behind it:
 *   add(a, b) -> s ; norm(s) -> y              =>  norm with residual: s and y in one pass
 *   norm_backward -> t ; add(r, t) -> g        =>  norm_backward with the residual gradient added */
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
