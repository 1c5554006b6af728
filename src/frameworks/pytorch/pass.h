/* One forward of a model, as its blocks see it: what they need beside their input, the attention that all families share, and the
 * masks that it is given. Checkpointed regions hold a pass until they ran again. */
#ifndef HRI_PYTORCH_PASS_H
#define HRI_PYTORCH_PASS_H

#include "frameworks/pytorch/module.h"

typedef struct hri_module_pass {
  hri_module *module;
  hri_ten *positions;       /* [1, tokens] */
  hri_ten *cos[2], *sin[2]; /* [1]: of layers that slide, where those have a rotary embedding of their own */
  hri_ten *masks[2]; /* [rows, 1, tokens, tokens], where attention wants one; NULL: none. [1]: of layers that slide */
  hri_ten *mask;     /* of the layer at hand */
  int kind;          /* its place in cos and sin */
  bool packed;       /* documents share rows: positions say where each begins (axolotl's sample_packing) */
  hri_module_cache *cache; /* NULL: not asked for */
} hri_module_pass;

/* How scaled_dot_product_attention, or the eager function in its place, goes about q, k and v of a layer. */
typedef struct hri_attention_way {
  hri_sdpa kernel;
  bool repeats;     /* keys and values are repeated to as many heads as queries have */
  bool copies;      /* q, k and v are made contiguous first, in the order of heads */
  bool by_heads;    /* q lies in that order (else in [rows, tokens, heads, width], transposed) */
  bool turns_value; /* the gradient of v comes in that order: the view back copies it */
  bool turns_all;   /* so do those of q and k */
} hri_attention_way;

/* `type`: of q, before autocast. */
hri_attention_way hri_attention_way_of(const hri_torch *t, const hri_module_pass *p, hri_ten_type type);
/* Whether PyTorch has the kernel for products of `type`; a mask rules flash out. */
bool hri_attention_has_kernel(hri_sdpa kernel, uint32_t capability, hri_ten_type type, uint64_t width, bool mask);
/* q [rows, heads, tokens, width], k and v likewise: [rows, tokens, heads x width]. */
hri_ten *hri_module_attend(hri_torch *t, hri_module_pass *p, hri_ten *q, hri_ten *k, hri_ten *v);

/* past_key_values.update: keys and values of a layer, bound anew where they are joined with what there was, nothing. */
void hri_module_update_cache(hri_torch *t, hri_module_pass *p, uint32_t layer, hri_ten **k, hri_ten **v);

/* Makes the pass's masks, in the type of embeddings where they are numbers to add. */
void hri_module_make_masks(hri_torch *t, hri_module_pass *p, const hri_module_batch *batch, hri_ten_type type);
/* Gemma's norm: in fp32, times one more than the weight. */
hri_ten *hri_module_gemma_norm(hri_torch *t, hri_ten *given, hri_ten *weight);
/* Gemma 2 before transformers 4.50 makes the mask of a layer that slides in the layer: a new reference, or NULL. */
hri_ten *hri_module_mask_of_layer(hri_torch *t, const hri_module_pass *p, uint32_t layer);

#endif
