/* Who runs the steps, as far as that changes them: the stacks' defaults, and what they make of a job where no setting says it. */
#ifndef HRI_PYTORCH_STACK_H
#define HRI_PYTORCH_STACK_H

#include <headroom/pytorch.h>

#include "frameworks/pytorch/module.h"
#include "frameworks/pytorch/settings.h"

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
  bool adapters_alike;      /* has no rank_pattern and alpha_pattern */
  bool
      evaluates_as_trains; /* in rows of a micro-step, and what it keeps goes to the host behind as many batches as a step has micro-steps */
  bool
      keeps_losses; /* of an evaluation: no compute_metrics is given, or one of numbers that were made of logits before */
  bool unused_stay;         /* ddp_find_unused_parameters=False, whatever trains */
  bool unused_stay_adapted; /* the same beside adapters */
  const char *alloc_conf;   /* what it puts into PYTORCH_ALLOC_CONF where nobody did; NULL: nothing */
} hri_torch_stack;

const hri_torch_stack *hri_torch_stack_of(hr_pytorch_stack stack);
/* Settings that nobody named become the stack's. */
void hri_torch_stack_defaults(const hri_torch_stack *stack, const hr_job *job, hri_torch_settings *settings);
/* The optimizer by the framework's name: the setting's, or what the stack takes for the job's; never OF_JOB. */
hri_torch_optim hri_torch_stack_optim(const hri_torch_stack *stack, const hr_job *job,
                                      const hri_torch_settings *settings);
/* Whether DistributedDataParallel looks for unused parameters where no setting says it. */
bool hri_torch_stack_finds_unused(const hri_torch_stack *stack, bool adapted, bool checkpoint);

#endif
