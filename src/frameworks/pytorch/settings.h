/* Settings of the framework that no option of a job stands for (hr_pytorch_options.conf): "optim=paged_adamw_8bit,use_reentrant=true",
 * by the names that TrainingArguments has where it has one. */
#ifndef HRI_PYTORCH_SETTINGS_H
#define HRI_PYTORCH_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/status.h>

#include "frameworks/pytorch/module.h"

typedef enum hri_torch_optim {
  HRI_OPTIM_OF_JOB = 0, /* none was named */
  HRI_OPTIM_ADAMW_TORCH,
  HRI_OPTIM_ADAMW_TORCH_FUSED,
  HRI_OPTIM_ADAMW_BNB_8BIT,
  HRI_OPTIM_PAGED_ADAMW_8BIT,
  HRI_OPTIM_SGD,
  HRI_OPTIM_ADAFACTOR,       /* transformers' */
  HRI_OPTIM_ADAFACTOR_TORCH, /* torch.optim's, which the Trainer has no name for */
  HRI_OPTIMS
} hri_torch_optim;

typedef enum hri_torch_kernel {                        /* sdpa_kernel(SDPBackend...) around the loop */
                                HRI_KERNEL_CHOSEN = 0, /* by PyTorch */
                                HRI_KERNEL_FLASH,
                                HRI_KERNEL_EFFICIENT,
                                HRI_KERNEL_CUDNN,
                                HRI_KERNEL_MATH,
                                HRI_KERNELS
} hri_torch_kernel;

typedef enum hri_torch_implementation { /* attn_implementation */
                                        HRI_IMPLEMENTATION_OF_JOB = 0,
                                        HRI_IMPLEMENTATION_SDPA,
                                        HRI_IMPLEMENTATION_EAGER,
                                        HRI_IMPLEMENTATION_FLASH_2,
                                        HRI_IMPLEMENTATIONS
} hri_torch_implementation;

typedef enum hri_torch_choice { HRI_UNSAID = 0, HRI_FALSE, HRI_TRUE } hri_torch_choice;
typedef enum hri_torch_word_type {
  HRI_TYPE_UNSAID = 0,
  HRI_TYPE_FP32,
  HRI_TYPE_BF16,
  HRI_TYPE_FP16
} hri_torch_word_type;

/* How several ranks share a job: of DistributedDataParallel, of fully_shard as fsdp_config has it. */
typedef struct hri_torch_shared {
  hri_torch_choice find_unused, bucket_view; /* ddp_find_unused_parameters; gradient_as_bucket_view */
  uint32_t bucket_mb;                        /* ddp_bucket_cap_mb; 0: not named */
  hri_torch_choice fsdp, reshards, offload,
      wrapped;                                 /* fsdp; reshard_after_forward, cpu_offload, activation_checkpointing */
  hri_torch_word_type param, reduce;           /* param_dtype, reduce_dtype of a MixedPrecisionPolicy */
  uint32_t fsdp_version;                       /* 1: FullyShardedDataParallel; 0: not named */
  uint32_t zero_stage;                         /* DeepSpeed's zero_optimization: stage; 0: not named */
  bool offload_optimizer, offload_param;       /* its offload_optimizer, offload_param: cpu */
  uint32_t reduce_elements, prefetch_elements; /* its reduce_bucket_size, stage3_prefetch_bucket_size; 0: not named */
} hri_torch_shared;

/* Of torchtune's recipes, by the keys of their configurations (recipe_settings.c). */
enum { HRI_MOST_OUTPUT_CHUNKS = HRI_FN_RESULTS };
typedef struct hri_recipe_settings {
  hri_torch_choice fused; /* optimizer.fused */
  bool packed;            /* dataset.packed */
  bool whole_loss;        /* loss._component_: CrossEntropyLoss */
  uint32_t chunks;        /* loss.num_output_chunks; 0: not named */
} hri_recipe_settings;

typedef struct hri_torch_settings {
  hri_torch_optim optim;
  hri_transformers version;
  hri_torch_kernel kernel;
  hri_torch_implementation implementation;
  bool reentrant, reentrant_named;
  bool checkpointing; /* of the job, or of the stack where the job does not say */
  bool
      checkpoints_trained; /* of the stack: blocks in which something trains, whose input is made to require a gradient */
  uint32_t eval_rows, eval_batches, eval_to_host;    /* per_device_eval_batch_size, 0: not named; eval_batches; ... */
  bool metrics;                                      /* compute_metrics */
  bool predict;                                      /* trainer.predict(), which keeps what it predicts */
  bool eval_steps;                                   /* eval_strategy=steps: evaluation between steps */
  bool resumed;                                      /* trainer.train(resume_from_checkpoint=True) */
  bool use_cache;                                    /* model.config.use_cache is left on */
  bool liger;                                        /* use_liger_kernel */
  bool packing;                                      /* axolotl's sample_packing */
  bool wide_norms;                                   /* LLaMA-Factory's upcast_layernorm */
  hri_torch_choice mlp_kernel, qkv_kernel, o_kernel; /* axolotl's lora_mlp_kernel, lora_qkv_kernel, lora_o_kernel */
  bool bf16_storage; /* bnb_4bit_quant_storage=bf16: codes of 4 bits that can be shared as weights are */
  hri_recipe_settings recipe;
  hri_torch_shared shared;
} hri_torch_settings;

/* One setting of a text "name=value, name = value", without the blanks around either; value "": none is given. */
typedef struct hri_torch_setting {
  const char *name;
  size_t name_length;
  const char *value;
  size_t value_length;
} hri_torch_setting;

/* Takes the next one off `text`, which may be NULL. */
bool hri_torch_setting_next(const char **text, hri_torch_setting *setting);

/* text NULL or "": defaults. USAGE names the setting, the value and what there is. */
hr_status hri_torch_settings_parse(const char *text, hri_torch_settings *out, hr_error *error);
/* The same of torchtune's recipes, which share none of the settings above. UNSUPPORTED where one is known and there are no rules for it. */
hr_status hri_recipe_settings_parse(const char *text, hri_torch_settings *out, hr_error *error);
const char *hri_recipe_optimizer(hri_torch_optim optim); /* "torch.optim.AdamW" */
const char *hri_recipe_loss(const hri_recipe_settings *settings);
/* A setting that only several ranks have, or only those of the other way to share, by its name; NULL: none is named. */
const char *hri_torch_shared_ddp(const hri_torch_shared *shared);
const char *hri_torch_shared_fsdp(const hri_torch_shared *shared);
const char *hri_torch_shared_zero(const hri_torch_shared *shared);
const char *hri_torch_shared_zero3(const hri_torch_shared *shared); /* of stage 3 alone */
/* One of lora_mlp_kernel, lora_qkv_kernel and lora_o_kernel is named. */
bool hri_torch_names_lora_kernels(const hri_torch_settings *settings);
const char *hri_torch_optim_name(hri_torch_optim optim);
const char *hri_torch_kernel_name(hri_torch_kernel kernel);

#endif
