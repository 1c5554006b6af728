/* What is read off the table of optimizers (optimizer.h). */
#include "program/optimizer.h"

#include <assert.h>

#include "program/ops.h"

static const hri_optimizer rows[HR_OPTIMIZER_COUNT] = {
#define HRI_ROW(id, word, operands, ...) [HR_OPTIMIZER_##id] = {.op = HRI_OP_##id, __VA_ARGS__},
    HRI_OPTIMIZERS(HRI_ROW)
#undef HRI_ROW
};

const hri_optimizer *hri_optimizer_get(uint32_t kind) {
  assert(kind < HR_OPTIMIZER_COUNT && rows[kind].op); /* every value of hr_optimizer has a row */
  return &rows[kind];
}

hr_optimizer hri_state_kind(hr_optimizer optimizer, uint64_t elements, bool sensitive, bool all) {
  const hri_optimizer *row = hri_optimizer_get(optimizer);
  bool wide = row->least_elements && (elements < row->least_elements || (sensitive && !all));
  return wide ? row->wide : optimizer;
}

uint32_t hri_optimizer_of(uint16_t op) {
  for (uint32_t kind = 0; kind < HR_OPTIMIZER_COUNT; kind++)
    if (rows[kind].op == op) return kind;
  return HRI_NONE;
}

uint64_t hri_state_entries(const hri_state_tensor *tensor, uint64_t elements) {
  return elements / tensor->per + (elements % tensor->per != 0);
}

uint32_t hri_state_block(uint32_t kind) {
  uint32_t block = 1;
  for (uint32_t k = 0; k < rows[kind].tensor_count; k++)
    if (rows[kind].tensors[k].per > block) block = rows[kind].tensors[k].per;
  return block;
}

uint64_t hri_state_bytes(uint32_t kind, uint64_t elements, bool narrow) {
  const hri_optimizer *row = hri_optimizer_get(kind);
  uint64_t bytes = 0;
  for (uint32_t k = 0; k < row->tensor_count; k++)
    bytes += hri_state_entries(&row->tensors[k], elements) *
             hri_dtype_bytes(narrow && row->tensors[k].narrow ? HRI_BF16 : row->tensors[k].dtype);
  return bytes;
}
