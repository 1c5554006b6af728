/* A training as PyTorch runs it: loading, steps of forward, loss, backward, clipping, optimizer, zero_grad, and an evaluation. */
#ifndef HRI_PYTORCH_LOOP_H
#define HRI_PYTORCH_LOOP_H

#include "frameworks/pytorch/ddp.h"
#include "frameworks/pytorch/fsdp.h"
#include "frameworks/pytorch/zero.h"
#include "frameworks/pytorch/zero3.h"

/* How ranks share the job. */
typedef enum hri_torch_sharing {
  HRI_TORCH_ALONE = 0,
  HRI_TORCH_DDP,
  HRI_TORCH_FSDP2,
  HRI_TORCH_ZERO,
  HRI_TORCH_ZERO3
} hri_torch_sharing;

typedef enum hri_torch_optimizer {
  HRI_TORCH_ADAMW = 0, /* foreach, the default on a GPU */
  HRI_TORCH_ADAMW_FUSED,
  HRI_TORCH_ADAMW_LOOP,
  HRI_TORCH_ADAMW_8BIT, /* bitsandbytes */
  HRI_TORCH_SGD,
  HRI_TORCH_SGD_MOMENTUM,
  HRI_TORCH_ADAFACTOR,      /* transformers' */
  HRI_TORCH_ADAFACTOR_TORCH /* torch.optim's */
} hri_torch_optimizer;

/* Trainer.evaluate(), once behind the last step. `batches` 0: none. */
typedef struct hri_torch_evaluation {
  uint64_t rows;    /* per_device_eval_batch_size */
  uint32_t batches; /* of the evaluation data */
  bool metrics;     /* compute_metrics is given: logits of all batches are kept */
  uint32_t to_host; /* eval_accumulation_steps: as many batches on the device; 0: all of them */
  bool middle;      /* eval_strategy="steps": behind each step, its batch still there */
} hri_torch_evaluation;

/* torchtune's recipes for one device (torchtune.h). */
typedef struct hri_torch_recipe {
  bool runs;        /* one of them runs the job, with models of its own */
  bool in_backward; /* optimizer_in_bwd: each parameter's step when its gradient is there */
  bool packed;      /* dataset.packed: attention by compiled flex_attention */
  uint32_t chunks;  /* CEWithChunkedOutputLoss.num_output_chunks; 0: CrossEntropyLoss */
} hri_torch_recipe;

typedef struct hri_torch_job {
  const hr_model *model;
  hri_transformers version;
  hri_module_frozen frozen;
  uint64_t batch, tokens;
  uint32_t accumulate, steps;
  hri_ten_type weights;          /* of parameters: fp32, or 16 bits alone */
  hri_ten_type autocast;         /* HRI_F32: none */
  hri_torch_quantized quantized; /* then `weights` is the type of the checkpoint and of products */
  hri_module_prepared prepared;
  hri_module_loading loading;
  bool wide_norms, wide_trained, empties_cache, adapted_input, checkpoints_trained; /* as of hri_module */
  hri_ten_type storage; /* of codes of 4 bits; HRI_F32: bytes, as usual */
  bool scaler;          /* GradScaler (fp16) */
  hri_torch_optimizer optimizer;
  bool paged;           /* bitsandbytes' paged optimizers */
  bool wide_embeddings; /* 8 bits: embeddings keep 32-bit states, as the Trainer asks */
  bool clip;
  bool checkpoint, reentrant;
  bool mask;    /* the batch has an attention_mask */
  bool padded;  /* with zeros: rows are of different lengths */
  bool trainer; /* the Trainer's own scalars, and accelerate's fp32 logits under autocast */
  bool liger;   /* Liger's kernels (liger.h) */
  bool packed;  /* documents share rows: the batch has positions in place of a mask (axolotl's sample_packing) */
  bool
      counts_tokens; /* axolotl's Trainer: tokens are counted in the forward, and no items for the loss, which is a mean */
  bool qkv_kernel, o_kernel, mlp_kernel; /* axolotl's LoRA kernels */
  bool fused_head;                       /* TRL's: log-probabilities in tiles, no logits */
  bool resumed;                          /* from a checkpoint: AdamW's states are there before the first step */
  bool use_cache;     /* model.config.use_cache: keys and values of all layers are among the outputs */
  bool keeps_outputs; /* outputs = model(...): logits live on until the next ones are there */
  hri_torch_attention attention;
  bool kernel_forced; /* sdpa_kernel(...) around it all: `kernel` */
  hri_sdpa kernel;
  hri_dropout dropout;
  uint32_t capability;
  hri_torch_evaluation evaluation;
  hri_torch_sharing sharing;
  uint32_t ranks;
  hri_ddp_settings ddp;
  hri_fsdp_settings fsdp;
  hri_zero_settings zero;
  hri_zero3_settings zero3;
  bool wrapped; /* fsdp: checkpoint_wrapper inside the units (activation_checkpointing of its configuration) */
  hri_torch_recipe recipe;
} hri_torch_job;

/* Runs it. False: memory for the lists was refused. */
bool hri_torch_run(hri_torch *torch, const hri_torch_job *job);

#endif
