/* Linear modules in 4 and in 8 bits as bitsandbytes has them on a GPU: how transformers loads one, and its product. In 4 bits that makes
 * the whole weight again in 16 bits beside what it multiplies, forward and backward; in 8 bits (LLM.int8()) the input becomes 8 bits too,
 * and the weight is made again in the backward.
 *
 * Sources: bitsandbytes 0.50 (nn/modules.py Linear4bit, autograd/_functions.py MatMul4Bit, backends/cuda/ops.py, functional.py
 * quantize_4bit), transformers 5.23 (integrations/bitsandbytes.py). */
#ifndef HRI_PYTORCH_BNB_H
#define HRI_PYTORCH_BNB_H

#include "frameworks/pytorch/eager.h"

enum { HRI_BNB_BLOCK = 64, HRI_BNB_NESTED_BLOCK = 256 }; /* elements with one scale; scales with one scale */

typedef struct hri_torch_4bit {
  uint64_t out, in;
  hri_ten_type compute; /* of the checkpoint, of the products */
  bool nested;          /* bnb_4bit_use_double_quant */
  bool turned;          /* Conv1D's in the file: [in, out], copied when it is turned */
  hri_ten_type storage; /* bnb_4bit_quant_storage, of the codes */
  bool held;      /* by the graph: codes that somebody takes away by giving the parameter other bytes live on in it */
  hri_ten *codes; /* two elements a byte; the parameter that the model has */
} hri_torch_4bit;

/* The parameter: codes of [out, in]. Without bytes where the device is "meta". */
hri_ten *hri_bnb_parameter(hri_torch *t, hri_torch_4bit *weight);
/* Params4bit.to(device): the weight comes in 16 bits, is quantized, and goes. `first`: of the process, which brings the table of
 * 8-bit scales. */
void hri_bnb_quantize(hri_torch *t, hri_torch_4bit *weight, bool first);
/* Linear4bit.forward: x cast to the type of products, the result cast back. bias may be NULL. `weight` must live until the backward. */
hri_ten *hri_bnb_linear(hri_torch *t, hri_torch_4bit *weight, hri_ten *x, hri_ten *bias);

/* Linear8bitLt: codes of [out, in], each row with a scale. */
typedef struct hri_torch_8bit {
  uint64_t out, in;
  hri_ten_type checkpoint; /* what the file has */
  bool turned;
  hri_ten *codes;
} hri_torch_8bit;

hri_ten *hri_bnb8_parameter(hri_torch *t, hri_torch_8bit *weight);
/* The weight is on the device already, goes to the host and comes back in fp16 to be quantized. */
void hri_bnb8_quantize(hri_torch *t, hri_torch_8bit *weight);
/* Linear8bitLt.forward, without outliers: the result has the type of x. bias may be NULL. `weight` must live until the backward. */
hri_ten *hri_bnb8_linear(hri_torch *t, hri_torch_8bit *weight, hri_ten *x, hri_ten *bias);

/* dequantize_module_weight of PEFT: the whole weight. */
hri_ten *hri_bnb_whole(hri_torch *t, const hri_torch_4bit *weight);
hri_ten *hri_bnb8_whole(hri_torch *t, const hri_torch_8bit *weight);

#endif
