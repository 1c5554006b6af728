/* What PyTorch would need for a job: its allocator's bytes, for people who train with another engine than this one.
 *
 * A plan (headroom/plan.h) is of Headroom's own programs. Here the same job is run as eager PyTorch runs it, without
 * numbers: the rules of transformers' modules, autograd's saved tensors and the optimizer make the requests, in order,
 * and PyTorch's caching allocator (headroom/alloc.h) answers them. docs/pytorch.md says what the rules were recorded
 * from, how far they are off, and what they do not know.
 *
 *   hr_pytorch *pytorch; hr_pytorch_create(&job, NULL, &pytorch, &error); hr_pytorch_get(pytorch)->reserved_bytes ...
 *
 * Threads: answers may be made at the same time, and one does not change once it is made. */
#ifndef HEADROOM_PYTORCH_H
#define HEADROOM_PYTORCH_H

#include <headroom/job.h>
#include <headroom/plan.h>
#include <headroom/snapshot.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Who runs the steps. */
typedef enum hr_pytorch_stack {
  HR_PYTORCH_TRAINER = 0, /* transformers' Trainer with its defaults */
  HR_PYTORCH_PLAIN,       /* a loop of one's own: loss = model(**batch).loss; loss.backward(); optimizer.step() */
  HR_PYTORCH_TRL,         /* TRL's SFTTrainer, with its fused head */
  HR_PYTORCH_AXOLOTL,
  HR_PYTORCH_LLAMA_FACTORY,
  HR_PYTORCH_TORCHTUNE, /* its recipes for one device: full_finetune_single_device, lora_finetune_single_device */
  HR_PYTORCH_STACKS
} hr_pytorch_stack;
/* "trainer", "plain", "trl", "axolotl", "llama-factory", "torchtune"; for people: "Trainer", "TRL's SFTTrainer". Static. */
HR_API const char *hr_pytorch_stack_name(hr_pytorch_stack stack);
HR_API const char *hr_pytorch_stack_title(hr_pytorch_stack stack);
/* Whether it checkpoints every block unless the job says otherwise. */
HR_API bool hr_pytorch_stack_checkpoints(hr_pytorch_stack stack);
/* What it sets PYTORCH_ALLOC_CONF to where nobody did; NULL: nothing. Static. */
HR_API const char *hr_pytorch_stack_alloc_conf(hr_pytorch_stack stack);

typedef enum hr_pytorch_phase {
  HR_PYTORCH_LOAD = 0,
  HR_PYTORCH_FORWARD,
  HR_PYTORCH_LOSS,
  HR_PYTORCH_BACKWARD,
  HR_PYTORCH_CLIP,
  HR_PYTORCH_OPTIMIZER,
  HR_PYTORCH_ZERO_GRAD,
  HR_PYTORCH_EVALUATE, /* behind the last step, where the options ask for it */
  HR_PYTORCH_PHASES
} hr_pytorch_phase;
HR_API const char *hr_pytorch_phase_name(hr_pytorch_phase phase);

typedef struct hr_pytorch_options {
  hr_pytorch_stack stack;
  const char *alloc_conf; /* as in PYTORCH_ALLOC_CONF; "": PyTorch's defaults; NULL: those of the stack */
  const char *conf; /* settings without an option of the job, by TrainingArguments' names: "optim=paged_adamw_8bit,
                       use_reentrant=true"; NULL: none. docs/pytorch.md lists them */
  uint32_t ranks;   /* processes with a GPU each, of which the first is answered for; 0, 1: one; 1,048,576 at most. They
                       share the job by DistributedDataParallel, or as conf says: "fsdp=true" */
} hr_pytorch_options;
/* Defaults: all zero. */
HR_API void hr_pytorch_options_init(hr_pytorch_options *options);

/* The answer and what is known of its error. */
typedef enum hr_pytorch_verdict {
  HR_PYTORCH_FITS = 0,          /* also where PyTorch needs as much more as it did in any recording */
  HR_PYTORCH_FITS_WITHIN_ERROR, /* as computed, but not with that reserve */
  HR_PYTORCH_DOES_NOT_FIT,
  HR_PYTORCH_VERDICTS
} hr_pytorch_verdict;
/* "fits", "fits_within_error", "does_not_fit" */
HR_API const char *hr_pytorch_verdict_name(hr_pytorch_verdict verdict);

enum { HR_PYTORCH_TEXT_BYTES = 512 };
/* One of the settings in the framework's own words: "TrainingArguments(bf16=True, ...)", "LoraConfig(r=16, ...)". */
typedef struct hr_pytorch_argument {
  const char *text; /* as long as the answer */
} hr_pytorch_argument;
typedef struct hr_pytorch_info {
  const char *versions;                 /* static: of PyTorch and transformers, that the rules are of */
  char settings[HR_PYTORCH_TEXT_BYTES]; /* the job in the framework's words: "bf16 autocast, fp32 weights, ..." */
  char unlike[HR_PYTORCH_TEXT_BYTES]; /* options of the job without a counterpart, and what stands for them; "": none */
  uint64_t allocated_bytes;           /* torch.cuda.max_memory_allocated() after the second step */
  uint64_t reserved_bytes;            /* max_memory_reserved(); on a device with more memory than it ever wants */
  uint64_t context_bytes;             /* of CUDA's context and kernels, estimated by the number of multiprocessors */
  uint64_t device_used_bytes;         /* reserved and context: what nvidia-smi shows of the process */
  bool recorded; /* all rules of it were held against recordings; false: some are from the framework's source alone */
  double error_low, error_high; /* in all that was recorded (docs/pytorch.md), PyTorch's own allocated peak lies between
                                   (1 + error_low) and (1 + error_high) times allocated_bytes */
  uint32_t ranks;               /* all figures are of one of them */
  uint64_t host_bytes;          /* of weights, gradients and states that the settings keep on the host, for this rank */
  uint64_t budget_bytes;
  bool fits; /* every request is met within the budget less the context, cached memory returned where it runs out */
  hr_pytorch_verdict verdict;
  uint64_t reserve_missing_bytes; /* fits within the error: so much more budget and it fits in any case */
  uint64_t missing_bytes; /* does not fit: how much the allocated peak and the context are over the budget; 0: pieces */
  uint64_t retries;       /* fits: how often cached memory was returned on the way (each costs a synchronisation) */
  uint64_t allocated_by_phase[HR_PYTORCH_PHASES]; /* peak of each, the higher of both steps */
  uint64_t reserved_by_phase[HR_PYTORCH_PHASES];
  hr_pytorch_phase peak_phase;
  uint32_t peak_step; /* 1 or 2 */
  uint64_t at_peak_by_role[HR_ROLE_COUNT];
  uint64_t request_count;
  uint32_t live_count;
  /* The job as it ran: what options say, and what the stack, or --micro-batch auto, took where they say nothing. */
  uint32_t micro_batch, accumulate, sequence_length; /* rows of a micro-step, micro-steps of a step, tokens of a row */
  const char *optim, *attention;                     /* static, by the framework's names: "adamw_torch_fused", "sdpa" */
  bool checkpointing, reentrant;
  uint64_t parameter_count,
      trainable_parameter_count; /* with adapters; of the whole model, also where ranks share it */
} hr_pytorch_info;

typedef struct hr_pytorch_live {
  const char *op, *module; /* static: "mm", "mlp.down_proj" */
  int32_t layer;           /* -1: of no layer */
  hr_role role;
  uint64_t bytes; /* of the allocator's blocks */
  uint32_t count; /* so many of these */
} hr_pytorch_live;

typedef struct hr_pytorch hr_pytorch;
/* `job` is finished (hr_job_finish) and its rows are known; `options` may be NULL. UNSUPPORTED names the option or the
 * family for which there are no rules; USAGE a setting of alloc_conf or conf, or rows that are OPEN: who wants the most
 * that fit sets micro_batch and asks for each. */
HR_CHECKED hr_status hr_pytorch_create(const hr_job *job, const hr_pytorch_options *options, hr_pytorch **pytorch,
                                       hr_error *error);
HR_API const hr_pytorch_info *hr_pytorch_get(const hr_pytorch *pytorch);
/* What is live at the allocated peak, alike tensors of all layers taken together, the most bytes first; false behind the
 * last. */
HR_API bool hr_pytorch_live_get(const hr_pytorch *pytorch, uint32_t index, hr_pytorch_live *live);
/* Memory over the course of both steps: a moment behind each request and each free. */
typedef struct hr_pytorch_moment {
  uint64_t allocated_bytes, reserved_bytes;
  uint32_t step; /* 1, 2; loading is in the first */
  hr_pytorch_phase phase;
  const char *op, *module; /* static: of the request; of a free, of the request that it ends; "empty_cache" and "" */
  int32_t layer;           /* -1: of no layer */
  bool free;
} hr_pytorch_moment;
/* On a device with more memory than it ever wants. The caller frees `*moments` with hr_free. */
HR_CHECKED hr_status hr_pytorch_course(const hr_pytorch *pytorch, hr_pytorch_moment **moments, uint64_t *count,
                                       hr_error *error);
/* The settings that were run, to be copied; false behind the last. */
HR_API bool hr_pytorch_argument_get(const hr_pytorch *pytorch, uint32_t index, hr_pytorch_argument *argument);
/* As PyTorch would dump it after the last step: opens in its viewer and in hr_inspect. The caller owns it. */
HR_CHECKED hr_status hr_pytorch_snapshot(const hr_pytorch *pytorch, hr_snapshot **snapshot, hr_error *error);
HR_API void hr_pytorch_destroy(hr_pytorch *pytorch); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
