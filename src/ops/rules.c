#include "ops/rules.h"

hr_status hri_shape_error(const hri_job *job, const hri_node *node, hr_error *error, const char *what) {
  (void)job;
  return hri_fail(error, HR_ERROR_INTERNAL, "%s node of layer %d in program %s: operands do not fit: %s",
                  hri_op_name(node->op), node->layer, hri_program_name((hri_program_kind)node->program), what);
}
