#include "ops/rules.h"

static bool fp32_or_bf16(const hri_tensor *t) { return t->dtype == HRI_F32 || t->dtype == HRI_BF16; }

/* The k-th tensor that an operand stands for; NULL when it is absent or stands for fewer. */
static const hri_tensor *piece_at(const hri_job *job, const hri_node *node, uint32_t index, uint32_t k) {
  hri_id id = hri_operands(job, node)[index].tensor;
  return id == HRI_NONE || k >= hri_piece_count(job, id) ? NULL : &job->tensors.items[hri_piece(job, id, k)];
}

static uint32_t pieces(const hri_job *job, const hri_node *node, uint32_t index) {
  return hri_piece_count(job, hri_operands(job, node)[index].tensor);
}

static double elements_at(const hri_job *job, const hri_node *node, uint32_t index) {
  double sum = 0;
  for (uint32_t k = 0; k < pieces(job, node, index); k++)
    sum += (double)hri_tensor_elements(piece_at(job, node, index, k));
  return sum;
}

hr_status hri_check_square_norm(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(pieces(job, node, 0) == pieces(job, node, 1));
  for (uint32_t k = 0; k < pieces(job, node, 0); k++) {
    const hri_tensor *g = piece_at(job, node, 0, k), *sums = piece_at(job, node, 1, k);
    HRI_SHAPE(fp32_or_bf16(g) && sums->dtype == HRI_F64);
    HRI_SHAPE(hri_tensor_elements(sums) == (hri_tensor_stored_elements(g) + HRI_NORM_BLOCK - 1) / HRI_NORM_BLOCK);
  }
  return HR_OK;
}

double hri_flops_square_norm(const hri_job *job, const hri_node *node) { return 2.0 * elements_at(job, node, 0); }

hr_status hri_check_found_inf(const hri_job *job, const hri_node *node, hr_error *error) {
  for (uint32_t i = 0; i < 3; i++)
    HRI_SHAPE(hri_at(job, node, i)->dtype == HRI_F64 && hri_tensor_stored_elements(hri_at(job, node, i)) == 1);
  return HR_OK;
}

hr_status hri_check_control_only(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(hri_tensor_bytes(hri_at(job, node, 0)) == sizeof(hri_control));
  return HR_OK;
}

/* Entries of a state of a range: factors are those of logical rows. */
static uint64_t entries_of(const hri_job *job, const hri_param_range *range, const hri_state_tensor *state) {
  uint64_t columns = range->elements / range->rows;
  return hri_state_entries(state,
                           state->per == HRI_STATE_FACTORS ? hri_range_logical(job, range) / columns : range->rows,
                           columns);
}

/* One range. The states are what the optimizer's row says, those that may be narrow all of one type; beside an fp32
 * master stands its fp16 copy, beside a bf16 weight the low half of its master. */
static hr_status check_range(const hri_job *job, const hri_node *node, const hri_optimizer *row, uint32_t index,
                             hr_error *error) {
  const hri_tensor *g = piece_at(job, node, 0, index), *w = piece_at(job, node, 2, index),
                   *beside = piece_at(job, node, 3 + row->tensor_count, index), *narrow = NULL;
  const hri_param_range *range = &job->ranges.items[job->laid_out.items[node->attr.i[1] + index]];
  uint64_t elements;
  HRI_SHAPE(g && w && fp32_or_bf16(g) && fp32_or_bf16(w));
  elements = hri_tensor_stored_elements(g);
  HRI_SHAPE(hri_tensor_stored_elements(w) == elements && range->elements == elements);
  for (uint32_t k = 0; k < row->tensor_count; k++) {
    const hri_tensor *state = piece_at(job, node, 3 + k, index);
    HRI_SHAPE(state && hri_tensor_stored_elements(state) == entries_of(job, range, &row->tensors[k]));
    if (!row->tensors[k].narrow) HRI_SHAPE(state->dtype == row->tensors[k].dtype);
    else
      HRI_SHAPE((state->dtype == HRI_BF16 || state->dtype == row->tensors[k].dtype) &&
                (!narrow || narrow->dtype == state->dtype));
    if (row->tensors[k].narrow) narrow = state;
  }
  if (beside)
    HRI_SHAPE(
        ((w->dtype == HRI_F32 && beside->dtype == HRI_F16) || (w->dtype == HRI_BF16 && beside->dtype == HRI_F32_LOW)) &&
        g->dtype == HRI_F32 && hri_tensor_stored_elements(beside) == elements);
  return HR_OK;
}

/* g, control, w, states, what stands beside w?, guard?; i0 segment, i1 and i2 its ranges in job->laid_out. */
hr_status hri_check_update(const hri_job *job, const hri_node *node, hr_error *error) {
  const hri_optimizer *row = hri_optimizer_get(hri_optimizer_of(node->op));
  const hri_operand *o = hri_operands(job, node);
  HRI_SHAPE(hri_tensor_bytes(hri_at(job, node, 1)) == sizeof(hri_control));
  HRI_SHAPE(node->attr.i[2] == pieces(job, node, 0));
  for (uint32_t k = 2; k < 4 + row->tensor_count; k++)
    HRI_SHAPE(o[k].tensor == HRI_NONE || pieces(job, node, k) == pieces(job, node, 0));
  for (uint32_t k = 0; k < pieces(job, node, 0); k++) HRI_TRY(check_range(job, node, row, k, error));
  return HR_OK;
}

double hri_flops_update(const hri_job *job, const hri_node *node) { return 12.0 * elements_at(job, node, 0); }
