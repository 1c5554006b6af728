/* torchao's NF4Tensor, in which torchtune has the frozen weights of QLoRA: always with scales that are quantized too. A product makes the whole
 * weight again, forward and backward, out of indices in 64 bits.
 *
 * Source: torchao 0.10 (dtypes/nf4tensor.py). The description is bitsandbytes' (bnb.h), whose codes take as much. */
#ifndef HRI_PYTORCH_NF4_H
#define HRI_PYTORCH_NF4_H

#include "frameworks/pytorch/bnb.h"

/* LoRALinear, FrozenNF4Linear: a weight that is made whole, quantized, and goes; `codes` is what is left. */
hri_ten *hri_nf4_parameter(hri_torch *t, hri_torch_4bit *weight);
/* load_state_dict: NF4Tensor.copy_ brings the weight to the device whole, quantizes it once more and copies that. */
void hri_nf4_load(hri_torch *t, const hri_torch_4bit *weight);
/* weight.to(dtype): the whole weight. */
hri_ten *hri_nf4_whole(hri_torch *t, const hri_torch_4bit *weight);
/* linear_nf4. `weight` must live until the backward. */
hri_ten *hri_nf4_linear(hri_torch *t, hri_torch_4bit *weight, hri_ten *x);

#endif
