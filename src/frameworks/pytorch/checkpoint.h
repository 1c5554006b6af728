/* Activation checkpointing, both kinds (torch/utils/checkpoint.py).
 *
 * Without reentry (use_reentrant=False) the region runs as always, but what its functions save is given away: a frame
 * counts the saved tensors. The first backward function that asks for one makes the region run again, up to the last one
 * that was counted, and each is kept until its own function has taken it.
 *
 * With reentry the region runs without a graph and is one function of the outer one, which runs it again in full, and a
 * backward of its own over that. */
#ifndef HRI_PYTORCH_CHECKPOINT_H
#define HRI_PYTORCH_CHECKPOINT_H

#include "frameworks/pytorch/eager.h"

/* A region: its result (a new reference) of its input (borrowed). `context` must live until the backward. */
typedef hri_ten *hri_region(hri_torch *torch, hri_ten *input, void *context, uint32_t index);

/* Runs a region under checkpointing; a new reference. `arguments` (NULL entries: fewer) are what else it is called with:
 * they live until it cannot run again. */
hri_ten *hri_checkpoint(hri_torch *torch, bool reentrant, hri_region *region, void *context, uint32_t index,
                        hri_ten *input, hri_ten *const arguments[HRI_FN_HELD]);

#endif
