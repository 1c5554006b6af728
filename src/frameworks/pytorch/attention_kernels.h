/* Attention in one kernel, as PyTorch has it: scaled_dot_product_attention by flash or memory-efficient, varlen_attn over documents, and
 * flex_attention. For each its result, what autograd saves, and what its backward works in.
 *
 * Which of them is taken, and what is copied before it, is the callers' (attention.c of transformers, torchtune.c). Sources:
 * aten/src/ATen/native/transformers, torch/nn/attention/varlen.py, torch/_inductor/kernel/flex. */
#ifndef HRI_PYTORCH_ATTENTION_KERNELS_H
#define HRI_PYTORCH_ATTENTION_KERNELS_H

#include "frameworks/pytorch/eager.h"

/* Which attention the dispatcher takes (sdp_utils.cpp); MATH is ops and none of these kernels (attention.c). */
typedef enum hri_sdpa { HRI_SDPA_FLASH = 0, HRI_SDPA_EFFICIENT, HRI_SDPA_MATH } hri_sdpa;

/* A mask as sdpa adds it: of truth values made numbers of `type`, under autocast in its type. */
hri_ten *hri_aten_mask_bias(hri_torch *t, hri_ten *mask, hri_ten_type type);
/* q [B, H, T, D], k and v [B, KV, T, D]: [B, H, T, D]. mask: [B, 1, T, T] of truth values or numbers, or NULL; the memory-efficient
 * kernel alone takes one. by_heads: q lies in that order (else in [B, T, H, D], transposed), and
 * flash's result like it. */
hri_ten *hri_aten_attention(hri_torch *t, hri_sdpa backend, hri_ten *q, hri_ten *k, hri_ten *v, hri_ten *mask,
                            double dropout, bool by_heads);
/* varlen_attn of q, k, v alike [B, H, T, D], all in the order of [B, T, H, D]: `documents` rows of attention, which end at `ends`. */
hri_ten *hri_aten_attention_varlen(hri_torch *t, hri_ten *q, hri_ten *k, hri_ten *v, hri_ten *ends, uint64_t documents);
/* flex_attention as torch.compile makes it, of as many heads each: q, k, v [B, H, T, D]. */
hri_ten *hri_aten_flex_attention(hri_torch *t, hri_ten *q, hri_ten *k, hri_ten *v);

#endif
