/* Double references of the linear products; shapes as in program/ops.h. Outputs are added to: the caller zeroes them
 * unless it accumulates. */
#ifndef HRI_OPS_LINEAR_REF_H
#define HRI_OPS_LINEAR_REF_H

#include <stdint.h>

/* y[M,N] += x[M,K] w[N,K]^T + bias[N]; bias may be NULL. */
void hri_ref_linear(double *y, const double *x, const double *w, const double *bias, int64_t m, int64_t n, int64_t k);
/* dx[M,K] += dy[M,N] w[N,K] */
void hri_ref_linear_dx(double *dx, const double *dy, const double *w, int64_t m, int64_t n, int64_t k);
/* dw[N,K] += dy[M,N]^T x[M,K] */
void hri_ref_linear_dw(double *dw, const double *dy, const double *x, int64_t m, int64_t n, int64_t k);

#endif
