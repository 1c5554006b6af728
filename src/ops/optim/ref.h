/* Double references of the optimizer steps, written as the papers and torch.optim do; shapes as in ops/cpu.h. */
#ifndef HRI_OPS_OPTIM_REF_H
#define HRI_OPS_OPTIM_REF_H

#include <stdint.h>

double hri_ref_square_sum(const double *g, int64_t n);
/* AdamW (Loshchilov and Hutter, 2019), step t from 1; g is multiplied by gradient_scale. */
void hri_ref_adamw(double *w, double *m, double *v, const double *g, int64_t n, double learning_rate, double beta1,
                   double beta2, double epsilon, double weight_decay, int64_t t, double gradient_scale);
/* buffer may be NULL. */
void hri_ref_sgd(double *w, double *buffer, const double *g, int64_t n, double learning_rate, double weight_decay,
                 double momentum, double gradient_scale);

#endif
