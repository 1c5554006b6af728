/* Double reference of the cross-entropy; meaning and shapes as in ops/cpu.h. */
#ifndef HRI_OPS_LOSS_REF_H
#define HRI_OPS_LOSS_REF_H

#include <stdint.h>

/* The softmax is that of softcap tanh(logits / softcap), unless softcap is 0. dlogits may alias logits, or be NULL. */
void hri_ref_cross_entropy(double *losses, double *dlogits, const double *logits, const int32_t *labels, double softcap,
                           double smoothing, double gradient_scale, int64_t rows, int64_t vocabulary, int64_t stored);

#endif
