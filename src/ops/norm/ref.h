/* Double references of the norms; meaning and shapes as in ops/cpu.h (hri_norm_args, hri_norm_backward_args). */
#ifndef HRI_OPS_NORM_REF_H
#define HRI_OPS_NORM_REF_H

#include <stdbool.h>
#include <stdint.h>

/* y[M,C] of x[M,C] + residual[M,C] (or NULL), which is also written to s[M,C]; offset is added to the weight; bias may
 * be
 * NULL. stats: rstd[M], or mean and rstd [M,2]. */
void hri_ref_rmsnorm(double *y, double *s, double *stats, const double *x, const double *residual, const double *weight,
                     double offset, const double *bias, double eps, int64_t rows, int64_t columns);
void hri_ref_layernorm(double *y, double *s, double *stats, const double *x, const double *residual,
                       const double *weight, double offset, const double *bias, double eps, int64_t rows,
                       int64_t columns);
/* dx[M,C] (+ extra[M,C] unless NULL); dweight[C] and dbias[C] (each may be NULL) are added to. */
void hri_ref_rmsnorm_backward(double *dx, double *dweight, double *dbias, const double *dy, const double *x,
                              const double *stats, const double *weight, double offset, const double *extra,
                              int64_t rows, int64_t columns);
void hri_ref_layernorm_backward(double *dx, double *dweight, double *dbias, const double *dy, const double *x,
                                const double *stats, const double *weight, double offset, const double *extra,
                                int64_t rows, int64_t columns);
/* y[M,HD+2KE]: q heads of D and k heads of E elements normalised, v copied; stats[M,H+K]. */
void hri_ref_head_norm(double *y, double *stats, const double *x, const double *wq, const double *wk, double offset,
                       double eps, int64_t rows, int64_t heads, int64_t kv_heads, int64_t q_size, int64_t k_size);
/* dx as y; dwq[D] and dwk[E] (each may be NULL) are added to. */
void hri_ref_head_norm_backward(double *dx, double *dwq, double *dwk, const double *dy, const double *x,
                                const double *stats, const double *wq, const double *wk, double offset, int64_t rows,
                                int64_t heads, int64_t kv_heads, int64_t q_size, int64_t k_size);

/* DoRA: lengths[N] = |w_i + scale b_i a| of w[N,K], a[r,K], b[N,r] (NULL: of w alone). */
void hri_ref_row_lengths(double *lengths, const double *w, const double *a, const double *b, double scale, int64_t rows,
                         int64_t columns, int64_t rank);
/* y[M,N] = z g + bias (NULL: none), N the columns of three parts; g = magnitude / length in parts whose bit of `having` is
 * set, whose magnitudes and lengths stand side by side, else 1. */
void hri_ref_dora(double *y, const double *z, const double *magnitudes, const double *lengths, const double *bias,
                  const int64_t parts[3], int64_t having, int64_t rows);
/* dz[M,N]; dm (NULL: none) is added to. */
void hri_ref_dora_backward(double *dz, double *dm, const double *dy, const double *z, const double *magnitudes,
                           const double *lengths, const int64_t parts[3], int64_t having, int64_t rows);

#endif
