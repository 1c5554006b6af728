/* Lets an output take over the storage of an input that dies at the same node, where the op allows it element by
 * element. Only storages local to one program and touched by the compute lane alone take part: there the issue order is
 * the order of execution. */
#include <assert.h>
#include <string.h>

#include "pass/pass.h"

/* Marks storages that another lane touches. */
static void mark_foreign(const hri_job *job, const hri_program *p, bool *foreign) {
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &job->nodes.items[p->order.items[at]];
    if (node->lane == HRI_COMPUTE) continue;
    for (uint32_t i = 0; i < node->operand_count; i++)
      if (hri_operands(job, node)[i].tensor != HRI_NONE)
        foreign[job->tensors.items[hri_operands(job, node)[i].tensor].storage] = true;
  }
}

static bool whole(const hri_job *job, const hri_tensor *t) {
  return t->offset == 0 && hri_tensor_bytes(t) == job->storages.items[t->storage].bytes;
}

/* One node: the first pair of the rule that fits. */
static void merge_node(hri_job *job, const hri_node *node, uint32_t at, hri_merge *merge, const uint32_t *first,
                       uint32_t *last, const bool *foreign) {
  const hri_rule *rule = hri_rule_get(node->op);
  hri_operand *operands = hri_operands(job, node);
  for (uint8_t k = 0; k < rule->in_place_count; k++) {
    uint32_t in = rule->in_place[k].in, out = rule->in_place[k].out, unless = rule->in_place[k].unless;
    const hri_tensor *x, *y;
    hri_id x_root, y_root;
    if (in >= node->operand_count || out >= node->operand_count || operands[in].tensor == HRI_NONE ||
        operands[out].tensor == HRI_NONE)
      continue;
    if (operands[out].access != HRI_WRITE) continue;
    if (unless && unless < node->operand_count && operands[unless].tensor != HRI_NONE)
      continue; /* that one takes the input's place */
    x = &job->tensors.items[operands[in].tensor];
    y = &job->tensors.items[operands[out].tensor];
    x_root = hri_merge_find(merge, x->storage, NULL);
    y_root = hri_merge_find(merge, y->storage, NULL);
    if (x_root == y_root || y_root != y->storage || foreign[x->storage] || foreign[y->storage]) continue;
    if (job->storages.items[x_root].scope || job->storages.items[y->storage].scope) continue;
    if (job->storages.items[x_root].tier != job->storages.items[y->storage].tier) continue;
    if (!whole(job, x) || !whole(job, y) ||
        job->storages.items[x->storage].bytes != job->storages.items[y->storage].bytes)
      continue;
    if (job->storages.items[x_root].bytes != job->storages.items[y->storage].bytes) continue;
    if (last[x_root] != at || first[y->storage] != at) continue;
    assert(x->value != y->value); /* a value is not written over itself */
    hri_merge_set(merge, y->storage, x_root, 0);
    last[x_root] = last[y->storage];
    return;
  }
}

hr_status hri_pass_inplace(hri_job *job, hr_error *error) {
  hri_merge merge;
  bool *foreign = hri_alloc_zero(job->storages.count, sizeof *foreign);
  hr_status status;
  job->current_pass = HRI_PASS_INPLACE;
  if (!foreign) return hri_fail_memory(error, job->storages.count, "in-place analysis");
  status = hri_merge_init(&merge, job, error);
  if (status != HR_OK) {
    hri_free(foreign);
    return status;
  }
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT && status == HR_OK; kind++) {
    const hri_program *p = &job->programs[kind];
    uint32_t *first, *last;
    if (!p->present) continue;
    status = hri_touch_range(job, kind, &first, &last, error);
    if (status != HR_OK) break;
    mark_foreign(job, p, foreign);
    for (uint32_t at = 0; at < p->order.count; at++) {
      const hri_node *node = &job->nodes.items[p->order.items[at]];
      if (node->lane == HRI_COMPUTE) merge_node(job, node, at, &merge, first, last, foreign);
    }
    hri_free(first);
    hri_free(last);
  }
  if (status == HR_OK) hri_merge_apply(&merge, job);
  hri_merge_deinit(&merge);
  hri_free(foreign);
  return status;
}
