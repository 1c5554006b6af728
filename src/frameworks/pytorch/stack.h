/* Who runs the steps, as far as that changes them: defaults of the stacks that stand on transformers' Trainer. */
#ifndef HRI_PYTORCH_STACK_H
#define HRI_PYTORCH_STACK_H

#include <headroom/pytorch.h>

#include "frameworks/pytorch/module.h"

typedef struct hri_torch_stack {
  const char *name, *title;
  const char *version; /* whose defaults they are; NULL: none of its own */
  bool trainer;        /* transformers' */
  bool checkpointing;  /* on unless the job says otherwise */
  bool reentrant;      /* unless a setting says otherwise */
  bool fused_head;     /* log-probabilities in tiles, no logits */
  bool half_weights;   /* what is trained in 16 bits under autocast has weights in 16 bits too */
  bool recipes;        /* torchtune's: models and loops of its own, nothing of transformers */
  hri_module_prepared prepared;
  hri_module_loading loading;
  bool empties_cache;       /* behind the load */
  bool adapted_input;       /* embeddings require a gradient beside adapters, also without checkpointing */
  bool checkpoints_trained; /* blocks in which nothing trains are not checkpointed */
  bool wide_trained;        /* 16-bit weights of which what trains becomes fp32 */
  bool counts_tokens;       /* in compute_loss, instead of items of a batch */
  bool lora_kernels;        /* functions of its own in place of PEFT's modules, unless it is told otherwise */
  bool packs;               /* has sample_packing */
  bool upcasts_norms;       /* has upcast_layernorm */
  bool unused_stay;         /* ddp_find_unused_parameters=False, whatever trains */
  bool unused_stay_adapted; /* the same beside adapters */
  const char *alloc_conf;   /* what it puts into PYTORCH_ALLOC_CONF where nobody did; NULL: nothing */
  bool recorded;            /* else its defaults are from its source */
} hri_torch_stack;

const hri_torch_stack *hri_torch_stack_of(hr_pytorch_stack stack);
/* Whether DistributedDataParallel looks for unused parameters where no setting says it. */
bool hri_torch_stack_finds_unused(const hri_torch_stack *stack, bool adapted, bool checkpoint);

#endif
