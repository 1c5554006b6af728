/* Double references of the optimizer steps, written as the papers and torch.optim do; shapes as in ops/cpu.h. */
#ifndef HRI_OPS_OPTIM_REF_H
#define HRI_OPS_OPTIM_REF_H

#include <stdint.h>

#include "ops/cpu.h"

double hri_ref_square_sum(const double *g, int64_t n);
/* One step of an hr_optimizer: w[n] and the tensors of its state, in the order of its row. */
void hri_ref_update(uint32_t optimizer, double *w, double *const *state, const double *g, int64_t n,
                    const hri_update_numbers *numbers);

#endif
