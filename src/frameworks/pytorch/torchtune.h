/* torchtune's models and their loss: a TransformerDecoder of its own, which shares no module with transformers. The recipes' loop is in loop.c.
 * Source: torchtune 0.6.1 (modules/, models/, training/). */
#ifndef HRI_PYTORCH_TORCHTUNE_H
#define HRI_PYTORCH_TORCHTUNE_H

#include "frameworks/pytorch/module.h"

enum { HRI_TUNE_CHUNKS = 8 }; /* CEWithChunkedOutputLoss.num_output_chunks */

/* Makes the parameters where the recipe makes them, on the device, in the order of the builders (torchtune_load.c); adapters among them. False:
 * memory. */
bool hri_tune_init(hri_torch *torch, hri_module *module, const hr_model *model, hri_ten_type type);

/* DoRALinear's whole weight, and _get_weight_norm of it and of B A. */
hri_ten *hri_tune_weight(hri_torch *torch, const hri_module_linear *linear);
hri_ten *hri_tune_weight_norm(hri_torch *torch, const hri_module_linear *linear);

/* model(tokens): logits in chunks of tokens, or whole and in fp32 (chunks 0). */
typedef struct hri_tune_logits {
  hri_ten *items[HRI_FN_RESULTS]; /* new references */
  uint32_t count;
} hri_tune_logits;
hri_tune_logits hri_tune_forward(hri_torch *torch, hri_module *module, hri_ten *tokens, uint32_t chunks);
void hri_tune_drop(hri_torch *torch, hri_tune_logits *logits);
/* CEWithChunkedOutputLoss, or CrossEntropyLoss of whole logits. labels [rows, tokens]. */
hri_ten *hri_tune_loss(hri_torch *torch, const hri_tune_logits *logits, hri_ten *labels, uint32_t chunks);

#endif
