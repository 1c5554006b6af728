/* axolotl's functions for modules with adapters (lora_qkv_kernel, lora_o_kernel, lora_mlp_kernel), which it puts in place of PEFT's modules unless it is
 * told otherwise: products and adapters of q, k and v, and of a gated MLP, are one function of autograd each. */
#ifndef HRI_PYTORCH_LORA_KERNELS_H
#define HRI_PYTORCH_LORA_KERNELS_H

#include "frameworks/pytorch/module.h"

/* Whether the functions can stand in a layer: all of their modules have an adapter. */
bool hri_lora_kernel_of_qkv(const hri_module *module, const hri_module_layer *layer);
bool hri_lora_kernel_of_o(const hri_module *module, const hri_module_layer *layer);
bool hri_lora_kernel_of_mlp(const hri_module *module, const hri_module_layer *layer);

/* [rows, tokens, width] each, new references. The layer must live until the backward. */
void hri_lora_qkv(hri_torch *t, const hri_module *module, const hri_module_layer *layer, hri_ten *x, hri_ten *out[3]);
hri_ten *hri_lora_o(hri_torch *t, const hri_module *module, const hri_module_layer *layer, hri_ten *x);
hri_ten *hri_lora_mlp(hri_torch *t, const hri_module *module, const hri_module_layer *layer, hri_ten *x);

#endif
