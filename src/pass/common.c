/* What several passes share: their names, where each storage is first and last touched, and merging storages. */
#include <assert.h>
#include <string.h>

#include "pass/pass.h"

static const char *const names[HRI_PASS_COUNT] = {"build",     "precision", "head",   "autodiff", "layout",
                                                  "recompute", "transient", "update", "offload",  "fuse",
                                                  "inplace",   "schedule",  "pack",   "workspace"};
const char *hri_pass_name(hri_pass pass) { return pass < HRI_PASS_COUNT ? names[pass] : "?"; }

hr_status hri_touch_range(const hri_job *job, uint8_t program, uint32_t **first, uint32_t **last, hr_error *error) {
  size_t count = job->storages.count;
  const hri_program *p = &job->programs[program];
  *first = hri_alloc(count * sizeof **first);
  *last = hri_alloc(count * sizeof **last);
  if (!*first || !*last) {
    hri_free(*first);
    hri_free(*last);
    *first = *last = NULL;
    return hri_fail_memory(error, count * sizeof **first, "touch ranges");
  }
  memset(*first, 0xFF, count * sizeof **first);
  memset(*last, 0xFF, count * sizeof **last);
  for (uint32_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &job->nodes.items[p->order.items[at]];
    const hri_operand *operands = hri_operands(job, node);
    for (uint32_t i = 0; i < node->operand_count; i++) {
      hri_id storage;
      if (operands[i].tensor == HRI_NONE) continue;
      storage = job->tensors.items[operands[i].tensor].storage;
      if ((*first)[storage] == UINT32_MAX) (*first)[storage] = at;
      (*last)[storage] = at;
    }
  }
  return HR_OK;
}

hr_status hri_merge_init(hri_merge *merge, const hri_job *job, hr_error *error) {
  merge->count = job->storages.count;
  merge->to = hri_alloc(merge->count * sizeof *merge->to);
  merge->add = hri_alloc_zero(merge->count, sizeof *merge->add);
  if (!merge->to || !merge->add) {
    hri_merge_deinit(merge);
    return hri_fail_memory(error, merge->count * 12, "merging storages");
  }
  for (size_t s = 0; s < merge->count; s++) merge->to[s] = (hri_id)s;
  return HR_OK;
}

void hri_merge_set(hri_merge *merge, hri_id from, hri_id to, uint64_t add) {
  assert(from < merge->count && merge->to[from] == from);                /* a storage is merged once */
  assert(to >= merge->count || hri_merge_find(merge, to, NULL) != from); /* and not into itself */
  merge->to[from] = to;
  merge->add[from] = add;
}

hri_id hri_merge_find(const hri_merge *merge, hri_id storage, uint64_t *add) {
  uint64_t sum = 0;
  while (storage < merge->count && merge->to[storage] != storage) {
    sum += merge->add[storage];
    storage = merge->to[storage];
  }
  if (add) *add = sum;
  return storage;
}

void hri_merge_apply(hri_merge *merge, hri_job *job) {
  for (size_t t = 0; t < job->tensors.count; t++) {
    hri_tensor *tensor = &job->tensors.items[t];
    uint64_t add;
    tensor->storage = hri_merge_find(merge, tensor->storage, &add);
    tensor->offset += add;
    assert(tensor->offset + hri_tensor_bytes(tensor) <= job->storages.items[tensor->storage].bytes);
  }
  for (size_t s = 0; s < merge->count; s++)
    if (merge->to[s] != s) job->storages.items[s].dead = true;
}

void hri_merge_deinit(hri_merge *merge) {
  hri_free(merge->to);
  hri_free(merge->add);
  memset(merge, 0, sizeof *merge);
}
