/* Joins neighbours that would otherwise pass over memory twice:
 *   add(a, b) -> s ; norm(s) -> y              =>  norm with residual: s and y in one pass
 *   norm_backward -> t ; add(r, t) -> g        =>  norm_backward with the residual gradient added */
#include "pass/pass.h"

static bool same_tensor(const hri_job *job, hri_id a, hri_id b) {
  const hri_tensor *x, *y;
  if (a == HRI_NONE || b == HRI_NONE) return false;
  x = &job->tensors.items[a];
  y = &job->tensors.items[b];
  return x->storage == y->storage && x->offset == y->offset && x->value == y->value && hri_tensor_bytes(x) == hri_tensor_bytes(y);
}

static bool fuse_add_norm(hri_job *job, hri_id first, hri_id second) {
  hri_operand *add = hri_operands(job, &job->nodes.items[first]), *norm = hri_operands(job, &job->nodes.items[second]);
  if (job->nodes.items[first].op != HRI_OP_ADD || job->nodes.items[second].op != HRI_OP_NORM) return false;
  if (norm[3].tensor != HRI_NONE || !same_tensor(job, add[2].tensor, norm[0].tensor)) return false;
  norm[0].tensor = add[0].tensor;
  norm[3] = HRI_R(add[1].tensor);
  norm[4] = HRI_W(add[2].tensor);
  return true;
}

/* The intermediate gradient must have no other reader: the caller passes its count. */
static bool fuse_norm_backward(hri_job *job, hri_id first, hri_id second, const uint32_t *reads) {
  hri_operand *back = hri_operands(job, &job->nodes.items[first]), *add = hri_operands(job, &job->nodes.items[second]);
  int other;
  if (job->nodes.items[first].op != HRI_OP_NORM_BACKWARD || job->nodes.items[second].op != HRI_OP_ADD || back[4].tensor != HRI_NONE) return false;
  if (same_tensor(job, back[5].tensor, add[1].tensor)) other = 0;
  else if (same_tensor(job, back[5].tensor, add[0].tensor)) other = 1;
  else return false;
  if (reads[job->tensors.items[back[5].tensor].value] != 1) return false;
  back[4] = HRI_R(add[other].tensor);
  back[5] = HRI_W(add[2].tensor);
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
      bool waits = job->nodes.items[id].wait_count > 0 || (before != HRI_NONE && job->nodes.items[before].wait_count > 0);
      if (before != HRI_NONE && !waits && job->nodes.items[before].lane == job->nodes.items[id].lane) {
        if (fuse_add_norm(job, before, id)) {
          p->order.items[kept - 1] = id;
          becomes[before] = id;
          continue;
        }
        if (fuse_norm_backward(job, before, id, reads)) {
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
