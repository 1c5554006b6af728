/* Linear modules in 4 bits as bitsandbytes has them on a GPU: how transformers loads one, and its product, which makes the whole
 * weight again in 16 bits beside what it multiplies, forward and backward.
 *
 * Sources: bitsandbytes 0.50 (nn/modules.py Linear4bit, autograd/_functions.py MatMul4Bit, backends/cuda/ops.py, functional.py
 * quantize_4bit), transformers 5.23 (integrations/bitsandbytes.py). */
#ifndef HRI_PYTORCH_BNB_H
#define HRI_PYTORCH_BNB_H

#include "frameworks/pytorch/aten.h"

enum { HRI_BNB_BLOCK = 64, HRI_BNB_NESTED_BLOCK = 256 }; /* elements with one scale; scales with one scale */

typedef struct hri_torch_4bit {
  uint64_t out, in;
  hri_ten_type compute; /* of the checkpoint, of the products */
  bool nested;          /* bnb_4bit_use_double_quant */
  hri_ten *codes;       /* two elements a byte; the parameter that the model has */
} hri_torch_4bit;

/* The parameter: codes of [out, in]. Without bytes where the device is "meta". */
hri_ten *hri_bnb_parameter(hri_torch *t, hri_torch_4bit *weight);
/* Params4bit.to(device): the weight comes in 16 bits, is quantized, and goes. `first`: of the process, which brings the table of
 * 8-bit scales. */
void hri_bnb_quantize(hri_torch *t, hri_torch_4bit *weight, bool first);
/* Linear4bit.forward: x cast to the type of products, the result cast back. bias may be NULL. `weight` must live until the backward. */
hri_ten *hri_bnb_linear(hri_torch *t, hri_torch_4bit *weight, hri_ten *x, hri_ten *bias);

#endif
