/* Liger's kernels, which stand in place of ops where use_liger_kernel is set: what each makes and saves.
 * Source: liger-kernel 0.8.5 (ops/rms_norm.py, swiglu.py, geglu.py, rope.py, fused_linear_cross_entropy.py, transformers/monkey_patch.py). */
#ifndef HRI_PYTORCH_LIGER_H
#define HRI_PYTORCH_LIGER_H

#include "frameworks/pytorch/eager.h"

/* LigerRMSNormFunction over the last dimension. `copies`: x does not lie in the order of its shape. `in_place`: the gradient of x takes the place of
 * that of the result. */
hri_ten *hri_liger_norm(hri_torch *t, hri_ten *x, hri_ten *weight, bool copies, bool in_place);

/* LigerSiLUMulFunction, LigerGELUMulFunction: act(gate) * up. `copies`: both are columns of something wider. */
hri_ten *hri_liger_gated(hri_torch *t, hri_ten *gate, hri_ten *up, bool copies);

/* How queries and keys [rows, heads, tokens, width] lie: in another order than [rows, tokens, heads, width], so that they are copied. */
typedef struct hri_liger_order {
  bool copies[2];         /* they themselves */
  bool turns_gradient[2]; /* their gradients */
} hri_liger_order;
/* LigerRopeFunction: turns queries and keys where they are. */
void hri_liger_rope(hri_torch *t, hri_ten *const given[2], hri_ten *cos, hri_ten *sin, const hri_liger_order *order,
                    hri_ten *out[2]);

/* LigerForCausalLMLoss of hidden [rows, tokens, width] with `weight` [vocabulary, width]: chunks of logits, and with gradients on those of hidden and weight
 * from the forward. `summed`: the sum is divided by num_items_in_batch. */
hri_ten *hri_liger_loss(hri_torch *t, hri_ten *hidden, hri_ten *weight, const hri_ten *labels, bool summed);

#endif
