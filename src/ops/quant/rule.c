/* Quantizing and dequantizing a weight: shapes. Neither has a gradient: a quantized weight is frozen. */
#include "ops/rules.h"
#include "program/quantization.h"

/* Operands w, and codes, absmax, nested? from `codes` on. Sizes are those of the layout, so that two parts of a weight
 * can not be taken for one: their blocks would be others. */
static hr_status check_quantized(const hri_job *job, const hri_node *node, uint32_t w_at, uint32_t codes_at,
                                 hr_error *error) {
  const hri_tensor *w = hri_at(job, node, w_at), *codes = hri_at(job, node, codes_at),
                   *absmax = hri_at(job, node, codes_at + 1), *nested = hri_at(job, node, codes_at + 2);
  hri_quant_layout layout;
  uint64_t rows = 0;
  HRI_SHAPE(w->layout == HRI_PLAIN && hri_dtype_is_real(w->dtype));
  HRI_SHAPE(hri_quant_layout_of(&node->attr, hri_columns(w), &layout));
  for (uint32_t k = 0; k < layout.part_count; k++) rows += layout.part[k].rows;
  HRI_SHAPE(rows == hri_rows(w));
  HRI_SHAPE(codes->dtype == HRI_U8 && hri_tensor_stored_elements(codes) == layout.code_bytes);
  HRI_SHAPE((absmax != NULL) == (layout.absmax_count > 0));
  if (absmax) HRI_SHAPE(absmax->dtype == hri_quant_absmax_dtype((uint32_t)node->attr.i[0]));
  if (absmax) HRI_SHAPE(hri_tensor_stored_elements(absmax) == layout.absmax_count);
  HRI_SHAPE((nested != NULL) == (layout.nested_count > 0));
  if (nested) HRI_SHAPE(nested->dtype == HRI_F32 && hri_tensor_stored_elements(nested) == layout.nested_count);
  return HR_OK;
}

hr_status hri_check_quantize(const hri_job *job, const hri_node *node, hr_error *error) {
  HRI_SHAPE(node->attr.i[0] != HRI_QUANTIZATION_KEEP); /* files alone have such blocks */
  return check_quantized(job, node, 0, 1, error);
}

hr_status hri_check_dequantize(const hri_job *job, const hri_node *node, hr_error *error) {
  return check_quantized(job, node, 3, 0, error);
}
