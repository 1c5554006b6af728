/* TRL's fused head: log-probabilities of the labels from the last hidden states, tile by tile, so that logits are never whole.
 * Source: trl 1.16 (trainer/utils.py add_fused_lm_head, kernels/chunked_logprob.py ChunkedLogProbFunction). */
#ifndef HRI_PYTORCH_FUSED_HEAD_H
#define HRI_PYTORCH_FUSED_HEAD_H

#include "frameworks/pytorch/eager.h"

/* The loss of hidden [rows, tokens, width] with `weight` [vocabulary, width]; all labels count. A new reference. */
hri_ten *hri_fused_head(hri_torch *t, hri_ten *hidden, hri_ten *weight);

#endif
