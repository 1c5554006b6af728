/* Double references of the element-wise ops; meaning and shapes as in ops/cpu.h. */
#ifndef HRI_OPS_POINTWISE_REF_H
#define HRI_OPS_POINTWISE_REF_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/model.h>

#include "ops/draw.h"

void hri_ref_add(double *y, const double *a, const double *b, int64_t n);
void hri_ref_scale(double *y, const double *x, double factor, int64_t n);
/* Rows of data of `sequence` positions each; `draw` says whose mask, as in hri_dropout_args. */
void hri_ref_dropout(double *y, const double *x, double probability, const hri_draw *draw, int64_t sequence,
                     int64_t rows, int64_t columns);
void hri_ref_noise(double *y, const double *x, double amplitude, const hri_draw *draw, int64_t sequence, int64_t rows,
                   int64_t columns);
/* db[N] is added to. */
void hri_ref_bias_gradient(double *db, const double *dy, int64_t rows, int64_t columns);
void hri_ref_activation(hr_activation kind, double *y, const double *x, int64_t n);
void hri_ref_activation_backward(hr_activation kind, double *dx, const double *dy, const double *x, int64_t n);
void hri_ref_glu(hr_activation kind, double *y, const double *gu, int64_t rows, int64_t width);
void hri_ref_glu_backward(hr_activation kind, double *dgu, const double *dy, const double *gu, int64_t rows,
                          int64_t width);
void hri_ref_rope(double *y, const double *x, const double *cosines, const double *sines, const int32_t *position,
                  int64_t rows, int64_t heads, int64_t kv_heads, int64_t head_size, int64_t rotary_size, bool inverse);
/* y[n] = cap tanh(x / cap) */
void hri_ref_softcap(double *y, const double *x, double cap, int64_t n);

#endif
