/* What is read off the table of optimizers (optimizer.h). */
#include "program/optimizer.h"

#include <assert.h>

#include "program/ops.h"

static const hri_optimizer optimizers[HR_OPTIMIZER_COUNT] = {
#define HRI_ROW(id, word, operands, ...) [HR_OPTIMIZER_##id] = {.op = HRI_OP_##id, __VA_ARGS__},
    HRI_OPTIMIZERS(HRI_ROW)
#undef HRI_ROW
};

const hri_optimizer *hri_optimizer_get(uint32_t kind) {
  assert(kind < HR_OPTIMIZER_COUNT && optimizers[kind].op); /* every value of hr_optimizer has a row */
  return &optimizers[kind];
}

hr_optimizer hri_state_kind(hr_optimizer optimizer, uint64_t elements, bool sensitive, bool all) {
  const hri_optimizer *row = hri_optimizer_get(optimizer);
  bool wide = row->least_elements && (elements < row->least_elements || (sensitive && !all));
  return wide ? row->wide : optimizer;
}

uint32_t hri_optimizer_of(uint16_t op) {
  for (uint32_t kind = 0; kind < HR_OPTIMIZER_COUNT; kind++)
    if (optimizers[kind].op == op) return kind;
  return HRI_NONE;
}

uint64_t hri_state_entries(const hri_state_tensor *tensor, uint64_t rows, uint64_t columns) {
  uint64_t elements = rows * columns;
  if (tensor->per == HRI_STATE_FACTORS) return columns > 1 ? rows + columns : rows;
  return elements / tensor->per + (elements % tensor->per != 0);
}

bool hri_state_apart(uint32_t kind) {
  bool apart = false;
  for (uint32_t k = 0; k < optimizers[kind].tensor_count; k++)
    apart = apart || !hri_state_shaped(&optimizers[kind].tensors[k]);
  return apart;
}

uint64_t hri_state_bytes(uint32_t kind, uint64_t rows, uint64_t columns, bool narrow) {
  const hri_optimizer *row = hri_optimizer_get(kind);
  uint64_t bytes = 0;
  for (uint32_t k = 0; k < row->tensor_count; k++)
    bytes += hri_state_entries(&row->tensors[k], rows, columns) *
             hri_dtype_bytes(narrow && row->tensors[k].narrow ? HRI_BF16 : row->tensors[k].dtype);
  return bytes;
}
