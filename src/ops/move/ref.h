/* References of the searches over an array; meaning as in ops/cpu.h. */
#ifndef HRI_OPS_MOVE_REF_H
#define HRI_OPS_MOVE_REF_H

#include <stdint.h>

int64_t hri_ref_argmax(const double *x, int64_t n);
int64_t hri_ref_first_nonfinite(const double *x, int64_t n);

#endif
