/* Adafactor as transformers has it (optimization.py) and as torch.optim has it: second moments by row and column, and what a step
 * makes beside them, one parameter after the other. */
#ifndef HRI_PYTORCH_ADAFACTOR_H
#define HRI_PYTORCH_ADAFACTOR_H

#include "frameworks/pytorch/eager.h"

/* States of each parameter, borrowed lists of `count`: of a matrix its rows and columns, of a vector all of it in `rows`; `norms`
 * is transformers' alone. NULL entries: it has not stepped. */
typedef struct hri_adafactor {
  hri_ten *const *parameters;
  hri_ten **rows, **columns, **norms;
  uint32_t count;
} hri_adafactor;

void hri_adafactor_step(hri_torch *t, const hri_adafactor *a);
void hri_adafactor_step_of_torch(hri_torch *t, const hri_adafactor *a);

#endif
