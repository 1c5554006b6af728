/* The public interface (headroom/pytorch.h): a job in the framework's settings, its run, and what is told of it. */
#include <headroom/pytorch.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "frameworks/pytorch/arguments.h"
#include "frameworks/pytorch/device.h"
#include "frameworks/pytorch/loop.h"
#include "frameworks/pytorch/refuse.h"
#include "frameworks/pytorch/replay.h"
#include "frameworks/pytorch/settings.h"
#include "frameworks/pytorch/stack.h"
#include "frameworks/pytorch/torchtune.h"

/* What the rules were recorded from (tests/memory/README.md). */
static const char *const versions[HRI_TRANSFORMERS_VERSIONS] = {"PyTorch 2.14, transformers 5",
                                                                "PyTorch 2.14, transformers 4.57",
                                                                "PyTorch 2.14, transformers 4.49",
                                                                "PyTorch 2.14, transformers 4.46"};

enum { MIB = 1 << 20 };

struct hr_pytorch {
  hr_pytorch_info info;
  hri_torch torch;
  hri_aten_device device;
  hr_model model; /* the job's: the run refers to it */
  hri_torch_job job;
  hri_torch_settings settings;
  const hri_torch_stack *stack;
  hr_alloc_config config;
  hri_torch_replay replay;
  HRI_ARRAY(hr_pytorch_live) live;
  hri_torch_arguments arguments;
};

_Static_assert((int)HR_PYTORCH_EVALUATE == (int)HRI_TORCH_EVALUATE, "phases in one order");

const char *hr_pytorch_phase_name(hr_pytorch_phase phase) {
  static const char *const names[] = {"load", "forward",   "loss",      "backward",
                                      "clip", "optimizer", "zero_grad", "evaluate"};
  return (unsigned)phase < HR_PYTORCH_PHASES ? names[phase] : "unknown";
}

const char *hr_pytorch_verdict_name(hr_pytorch_verdict verdict) {
  static const char *const names[] = {"fits", "fits_within_error", "does_not_fit"};
  return (unsigned)verdict < HR_PYTORCH_VERDICTS ? names[verdict] : "unknown";
}

void hr_pytorch_options_init(hr_pytorch_options *options) { memset(options, 0, sizeof *options); }

/* ---- the job in its words ---- */

__attribute__((format(printf, 2, 3))) static void add(char *text, const char *format, ...) {
  size_t used = strlen(text);
  va_list args;
  va_start(args, format);
  (void)vsnprintf(text + used, HR_PYTORCH_TEXT_BYTES - used, format, args);
  va_end(args);
}

static void unlike(hr_pytorch_info *info, const char *what) {
  add(info->unlike, "%s%s", *info->unlike ? "; " : "", what);
}

static void set_quantized(hr_pytorch *p, const hr_job *job) {
  static const char *const words[][2] = {{"nf4", "nf4 with double quantization"},
                                         {"fp4", "fp4 with double quantization"}};
  bool fp4 = job->quantize == HR_QUANTIZE_FP4 || job->quantize == HR_QUANTIZE_FP4_DQ;
  p->job.quantized = hri_torch_quantized_as(job->quantize);
  if (p->job.quantized == HRI_TORCH_WHOLE) return;
  p->job.weights = job->precision == HR_PRECISION_FP16 ? HRI_F16 : HRI_BF16;
  if (p->settings.bf16_storage) { /* what lies beside the codes must have their type: nobody makes it fp32 */
    p->job.storage = HRI_BF16;
    p->job.prepared = HRI_PREPARED_BY_NOBODY;
    add(p->info.settings, "codes kept in bf16 (bnb_4bit_quant_storage), ");
  }
  add(p->info.settings, "base in %s by bitsandbytes, products in %s, %s",
      p->job.quantized == HRI_TORCH_INT8 ? "8 bits" : words[fp4][p->job.quantized == HRI_TORCH_NF4_DOUBLE],
      p->job.weights == HRI_F16 ? "fp16" : "bf16",
      p->job.prepared == HRI_PREPARED_BY_PEFT || p->job.prepared == HRI_PREPARED_BY_AXOLOTL
          ? "prepare_model_for_kbit_training, "
          : "");
  if (p->job.quantized == HRI_TORCH_INT8) unlike(&p->info, "inputs of 8-bit modules have no outliers here");
}

/* fully_shard by accelerate, whose policy casts. */
static bool shards_without_autocast(const hr_pytorch *p) {
  const hri_torch_shared *s = &p->settings.shared;
  return p->job.trainer && s->fsdp == HRI_TRUE && s->fsdp_version != 1;
}

static void set_precision(hr_pytorch *p, const hr_job *job) {
  hri_torch_job *out = &p->job;
  char *text = p->info.settings;
  bool half = job->precision == HR_PRECISION_BF16 || job->precision == HR_PRECISION_FP16;
  const char *word = job->precision == HR_PRECISION_FP16 ? "fp16" : "bf16";
  if (p->settings.shared.zero_stage && (half || job->precision == HR_PRECISION_BF16_PURE)) { /* the engine's own */
    out->weights = job->precision == HR_PRECISION_FP16 ? HRI_F16 : HRI_BF16;
    add(text, "%s weights with fp32 ones for the optimizer", word);
    return;
  }
  if (half && job->model.lora.rank) { /* the base is loaded in 16 bits where it is frozen */
    out->weights = out->autocast = job->precision == HR_PRECISION_BF16 ? HRI_BF16 : HRI_F16;
    out->scaler = job->precision == HR_PRECISION_FP16;
    if (shards_without_autocast(p)) add(text, "%s=True, %s base", word, word);
    else if (p->job.quantized) add(text, "autocast to %s", job->precision == HR_PRECISION_BF16 ? "bf16" : "fp16");
    else add(text, "%s base under autocast", job->precision == HR_PRECISION_BF16 ? "bf16" : "fp16");
    return;
  }
  switch (job->precision) {
  case HR_PRECISION_BF16:
    out->autocast = HRI_BF16;
    if (p->stack->half_weights || out->wide_trained) out->weights = HRI_BF16;
    if (shards_without_autocast(p)) add(text, "bf16=True, fp32 weights");
    else add(text, "autocast to bf16, %s weights", p->stack->half_weights ? "bf16" : "fp32");
    break;
  case HR_PRECISION_FP16:
    out->autocast = HRI_F16;
    if (out->wide_trained) out->weights = HRI_F16;
    out->scaler = true;
    if (shards_without_autocast(p)) add(text, "fp16=True with GradScaler, fp32 weights");
    else add(text, "autocast to fp16 with GradScaler, fp32 weights");
    break;
  case HR_PRECISION_BF16_PURE:
    out->weights = HRI_BF16;
    if (job->model.lora.rank) {
      add(text, "no autocast, adapters and their states in fp32");
      break;
    }
    add(text, "bf16 weights and optimizer states");
    if (job->moments != HR_MOMENTS_BF16) unlike(&p->info, "optimizer states have the weights' type in PyTorch");
    break;
  default: add(text, job->precision == HR_PRECISION_TF32 ? "tf32" : "fp32");
  }
}

/* By the job's name of it, or the framework's. */
static hri_torch_optim optim_of(const hr_job *job, const hri_torch_settings *settings, const hri_torch_stack *stack) {
  if (settings->optim != HRI_OPTIM_OF_JOB) return settings->optim;
  if (job->optimizer == HR_OPTIMIZER_SGD || job->optimizer == HR_OPTIMIZER_MOMENTUM) return HRI_OPTIM_SGD;
  if (job->optimizer == HR_OPTIMIZER_ADAMW8BIT) return HRI_OPTIM_ADAMW_BNB_8BIT;
  if (job->optimizer == HR_OPTIMIZER_ADAFACTOR) return stack->trainer ? HRI_OPTIM_ADAFACTOR : HRI_OPTIM_ADAFACTOR_TORCH;
  return stack->trainer && settings->version <= HRI_TRANSFORMERS_4_57 ? HRI_OPTIM_ADAMW_TORCH_FUSED
                                                                      : HRI_OPTIM_ADAMW_TORCH;
}

static void set_optimizer(hr_pytorch *p, const hr_job *job, const hri_torch_stack *stack) {
  static const char *const texts[HRI_OPTIMS] = {"",
                                                "AdamW foreach",
                                                "AdamW fused",
                                                "AdamW 8-bit by bitsandbytes",
                                                "paged AdamW 8-bit by bitsandbytes",
                                                "SGD",
                                                "Adafactor by transformers",
                                                "Adafactor by torch"};
  hri_torch_optim optim = optim_of(job, &p->settings, stack);
  bool momentum = optim == HRI_OPTIM_SGD && job->optimizer == HR_OPTIMIZER_MOMENTUM;
  switch (optim) {
  case HRI_OPTIM_SGD: p->job.optimizer = momentum ? HRI_TORCH_SGD_MOMENTUM : HRI_TORCH_SGD; break;
  case HRI_OPTIM_ADAMW_TORCH_FUSED: p->job.optimizer = HRI_TORCH_ADAMW_FUSED; break;
  case HRI_OPTIM_ADAFACTOR: p->job.optimizer = HRI_TORCH_ADAFACTOR; break;
  case HRI_OPTIM_ADAFACTOR_TORCH: p->job.optimizer = HRI_TORCH_ADAFACTOR_TORCH; break;
  case HRI_OPTIM_ADAMW_BNB_8BIT:
  case HRI_OPTIM_PAGED_ADAMW_8BIT: p->job.optimizer = HRI_TORCH_ADAMW_8BIT; break;
  default: p->job.optimizer = HRI_TORCH_ADAMW;
  }
  p->job.paged = optim == HRI_OPTIM_PAGED_ADAMW_8BIT;
  p->job.wide_embeddings = p->job.optimizer == HRI_TORCH_ADAMW_8BIT && stack->trainer;
  add(p->info.settings, ", %s%s", texts[optim], momentum ? " with momentum" : "");
  if (p->job.paged) unlike(&p->info, "paged states are host memory as far as the device's figures go");
  if (job->update == HR_UPDATE_IN_BACKWARD) unlike(&p->info, "updates are behind the backward");
}

static void set_recompute(hr_pytorch *p, const hr_job *job) {
  if (!p->settings.checkpointing) return;
  p->job.checkpoint = true;
  p->job.reentrant = p->settings.reentrant;
  add(p->info.settings, ", gradient checkpointing%s", p->job.reentrant ? " with use_reentrant" : "");
  if (job->recompute.kind != HR_RECOMPUTE_BLOCK && job->recompute.kind != HR_RECOMPUTE_NONE)
    unlike(&p->info, "gradient checkpointing is of every block");
}

static void set_cache(hr_pytorch *p) {
  if (!p->settings.use_cache || p->job.checkpoint) return; /* which turns it off */
  p->job.use_cache = true;
  add(p->info.settings, ", use_cache left on");
}

static void set_evaluation(hr_pytorch *p) {
  enum { USUAL = 8 }; /* TrainingArguments.per_device_eval_batch_size */
  const hri_torch_settings *s = &p->settings;
  hri_torch_evaluation *e = &p->job.evaluation;
  if (s->eval_batches == 0) return;
  *e = (hri_torch_evaluation){s->eval_rows ? s->eval_rows : USUAL, s->eval_batches, s->metrics || s->predict,
                              s->eval_to_host, s->eval_steps};
  add(p->info.settings, ", evaluation of %u batches of %u%s", e->batches, (unsigned)e->rows,
      s->metrics ? " with compute_metrics" : "");
  if (s->predict) add(p->info.settings, ", predict()");
  if (e->middle) add(p->info.settings, ", between steps too");
  if (e->to_host) add(p->info.settings, ", eval_accumulation_steps=%u", e->to_host);
  if (!e->metrics && !e->to_host && e->batches > 3) e->batches = 3; /* the third asks for what all others ask for */
}

/* ---- several ranks ---- */

static hri_ten_type type_of(hri_torch_word_type word) {
  return word == HRI_TYPE_BF16 ? HRI_BF16 : word == HRI_TYPE_FP16 ? HRI_F16 : HRI_F32;
}

static const char *type_word(hri_ten_type type) {
  return type == HRI_BF16 ? "bf16" : type == HRI_F16 ? "fp16" : "fp32";
}

static void set_ddp(hr_pytorch *p) {
  const hri_torch_shared *s = &p->settings.shared;
  hri_ddp_settings *ddp = &p->job.ddp;
  bool usual = hri_torch_stack_finds_unused(p->stack, p->job.model->lora.rank > 0, p->job.checkpoint);
  p->job.sharing = HRI_TORCH_DDP;
  ddp->ranks = p->job.ranks;
  ddp->bucket_view = s->bucket_view == HRI_TRUE;
  ddp->find_unused = s->find_unused ? s->find_unused == HRI_TRUE : usual;
  ddp->bucket_bytes = (uint64_t)s->bucket_mb * MIB;
  add(p->info.settings, ", DistributedDataParallel over %u ranks%s%s", p->job.ranks,
      ddp->find_unused ? " with find_unused_parameters" : "", ddp->bucket_view ? ", gradient_as_bucket_view" : "");
  if (s->bucket_mb) add(p->info.settings, ", buckets of %u MiB", s->bucket_mb);
}

/* Parts of parameters that are on the host, with their gradients and the optimizer's states of them. */
static uint64_t host_bytes(const hr_pytorch *p) {
  uint64_t states = 2;
  if (p->job.optimizer == HRI_TORCH_SGD) states = 0;
  if (p->job.optimizer == HRI_TORCH_SGD_MOMENTUM) states = 1;
  return p->torch.host_bytes * (2 + states) + p->torch.host_buffer_bytes;
}

static void set_fsdp(hr_pytorch *p) {
  const hri_torch_shared *s = &p->settings.shared;
  hri_fsdp_settings *fsdp = &p->job.fsdp;
  bool trainer = p->job.trainer;
  p->job.sharing = HRI_TORCH_FSDP2;
  fsdp->ranks = p->job.ranks;
  fsdp->by_accelerate = trainer;
  fsdp->flat = s->fsdp_version == 1;
  fsdp->keeps = s->reshards == HRI_FALSE;
  fsdp->offload = s->offload == HRI_TRUE;
  fsdp->mixed = trainer ? p->job.autocast != HRI_F32 : s->param != HRI_TYPE_UNSAID;
  fsdp->param = trainer ? p->job.autocast : type_of(s->param);
  fsdp->reduce = trainer || !s->reduce ? fsdp->param : type_of(s->reduce);
  fsdp->casts_output = trainer && fsdp->mixed && !fsdp->flat;
  if (trainer && !fsdp->flat)
    p->job.autocast = HRI_F32; /* accelerate puts none around such a model: the policy casts */
  p->job.wrapped = s->wrapped == HRI_TRUE;
  p->job.checkpoint = p->job.checkpoint || p->job.wrapped;
  add(p->info.settings, ", %s over %u ranks%s%s%s", fsdp->flat ? "FullyShardedDataParallel" : "fully_shard",
      p->job.ranks, fsdp->keeps ? ", reshard_after_forward=False" : "", fsdp->offload ? ", CPUOffloadPolicy" : "",
      p->job.wrapped ? ", its activation_checkpointing" : "");
  if (fsdp->mixed)
    add(p->info.settings, ", param_dtype %s, reduce_dtype %s", type_word(fsdp->param), type_word(fsdp->reduce));
}

static void set_zero(hr_pytorch *p) {
  const hri_torch_shared *s = &p->settings.shared;
  p->job.zero =
      (hri_zero_settings){p->job.ranks, s->zero_stage, s->offload_optimizer, p->job.trainer, s->reduce_elements};
  p->job.zero3 = (hri_zero3_settings){p->job.ranks,   s->offload_optimizer, s->offload_param,
                                      p->job.trainer, s->reduce_elements,   s->prefetch_elements};
  p->job.sharing = s->zero_stage == 3 ? HRI_TORCH_ZERO3 : HRI_TORCH_ZERO;
  add(p->info.settings, ", DeepSpeed's ZeRO-%u over %u ranks%s%s", s->zero_stage, p->job.ranks,
      s->offload_optimizer ? ", offload_optimizer to cpu" : "", s->offload_param ? ", offload_param to cpu" : "");
}

/* What was recorded of several ranks; else the rules are those of one, and of the source. */
static bool was_recorded(const hr_pytorch *p) {
  const hri_torch_job *job = &p->job;
  bool adamw = job->optimizer <= HRI_TORCH_ADAMW_LOOP, own_kernel = job->kernel_forced;
  if (job->ranks == 1) return true;
  if (!adamw || own_kernel || job->version != HRI_TRANSFORMERS_5 || p->stack->version) return false;
  if (job->evaluation.middle || p->settings.predict) return false;
  if (job->quantized == HRI_TORCH_INT8 || (job->quantized && !job->trainer && job->sharing < HRI_TORCH_ZERO))
    return false;
  if (job->sharing == HRI_TORCH_DDP) return !job->resumed && !job->model->lora.dora && !job->model->lora.saved;
  if (job->sharing >= HRI_TORCH_ZERO) return true;
  return !(job->trainer && job->fsdp.offload) && !(job->fsdp.flat && job->scaler);
}

static void set_ranks(hr_pytorch *p, uint32_t ranks) {
  p->job.ranks = p->info.ranks = ranks ? ranks : 1;
  if (p->job.ranks == 1) return;
  if (p->settings.shared.fsdp == HRI_TRUE) set_fsdp(p);
  else if (p->settings.shared.zero_stage) set_zero(p);
  else set_ddp(p);
  unlike(&p->info, "what NCCL takes beside the allocator is not counted");
}

static void set_attention(hr_pytorch *p, const hr_job *job) {
  const hri_torch_settings *s = &p->settings;
  p->job.attention = hri_torch_is_eager(job, s) ? HRI_TORCH_EAGER : HRI_TORCH_SDPA;
  p->job.kernel_forced = s->kernel != HRI_KERNEL_CHOSEN || s->implementation == HRI_IMPLEMENTATION_FLASH_2;
  p->job.kernel = hri_torch_kernel_of(s);
}

static void say_attention(hr_pytorch *p) {
  const hri_torch_settings *s = &p->settings;
  bool flash_2 = s->implementation == HRI_IMPLEMENTATION_FLASH_2;
  add(p->info.settings, ", attention %s",
      p->job.attention == HRI_TORCH_EAGER ? "eager"
      : flash_2                           ? "flash_attention_2"
                                          : "sdpa");
  if (s->kernel != HRI_KERNEL_CHOSEN) add(p->info.settings, " by %s", hri_torch_kernel_name(s->kernel));
  if (p->job.padded) add(p->info.settings, " with a padding mask");
}

/* One number where all places have it. */
static void tell_dropout(hr_pytorch *p) {
  const hri_dropout d = p->job.dropout;
  const double residual = fmax(d.attention_output, d.mlp);
  if (d.attention == 0 && residual == 0 && d.embedding == 0) return;
  if (d.attention == residual && residual == d.embedding) add(p->info.settings, ", dropout %g", d.attention);
  else
    add(p->info.settings, ", dropout %g of attention, %g of residuals, %g of embeddings", d.attention, residual,
        d.embedding);
}

/* What a stack does beside the Trainer's own. */
static void set_stack(hr_pytorch *p, const hr_job *job, const hri_torch_stack *stack) {
  hri_torch_lora_kernels kernels = hri_torch_lora_kernels_of(job, &p->settings, stack);
  bool half = job->precision == HR_PRECISION_BF16 || job->precision == HR_PRECISION_FP16;
  p->job.trainer = stack->trainer;
  p->job.prepared = stack->prepared;
  p->job.loading = stack->loading;
  p->job.empties_cache = stack->empties_cache;
  p->job.adapted_input = stack->adapted_input;
  p->job.checkpoints_trained = stack->checkpoints_trained;
  p->job.counts_tokens = stack->counts_tokens;
  p->job.packed = p->settings.packing;
  p->job.fused_head = stack->fused_head;
  p->job.keeps_outputs = !stack->trainer;
  p->job.wide_norms = p->settings.wide_norms;
  p->job.wide_trained = stack->wide_trained && half && p->model.lora.rank == 0;
  p->job.qkv_kernel = kernels.qkv;
  p->job.o_kernel = kernels.o;
  p->job.mlp_kernel = kernels.mlp;
  if (stack->half_weights && p->settings.implementation == HRI_IMPLEMENTATION_FLASH_2 && !p->model.lora.rank)
    p->job.prepared = HRI_PREPARED_BY_NOBODY; /* attn_needs_dtype_cast: 16 bits again */
}

/* What was set of it, in words. */
static void say_stack(hr_pytorch *p, const char *alloc_conf) {
  const hri_torch_job *job = &p->job;
  if (job->fused_head) add(p->info.settings, ", fused head");
  if (job->qkv_kernel || job->o_kernel || job->mlp_kernel)
    add(p->info.settings, ", axolotl's LoRA kernels (%s%s%s)", job->mlp_kernel ? "mlp" : "",
        job->qkv_kernel ? (job->mlp_kernel ? ", qkv" : "qkv") : "", job->o_kernel ? ", o" : "");
  if (job->wide_norms) add(p->info.settings, ", norms in fp32");
  if (job->packed) add(p->info.settings, ", sample packing");
  if (job->packed) unlike(&p->info, "rows have four documents each");
  if (job->wide_trained && (job->frozen.freeze || job->frozen.train_only))
    add(p->info.settings, ", what trains in fp32, the rest in 16 bits");
  if (!alloc_conf && p->stack->alloc_conf) add(p->info.settings, ", %s", p->stack->alloc_conf);
  if (p->stack->version) add(p->info.settings, ", defaults of %s", p->stack->version);
}

static void set_job(hr_pytorch *p, const hr_job *job, const hri_torch_stack *stack, const char *alloc_conf) {
  p->model = job->model;
  p->job.model = &p->model;
  p->job.version = p->settings.version;
  p->job.frozen = (hri_module_frozen){job->freeze, job->train_only};
  if (job->freeze || job->train_only)
    add(p->info.settings, "%s%s%s%s without gradient, ", job->freeze ? job->freeze : "",
        job->freeze && job->train_only ? ", " : "", job->train_only ? "all but " : "",
        job->train_only ? job->train_only : "");
  p->job.batch = job->micro_batch;
  p->job.tokens = job->sequence_length;
  p->job.accumulate = job->accumulate;
  p->job.steps = 2;
  p->job.clip = job->clip > 0;
  p->job.dropout = hri_model_dropout(&p->model, job->dropout > 0 ? job->dropout : HR_DROPOUT_CONFIG); /* holds there */
  p->job.mask = true;
  p->job.padded = job->packing == HR_PACKING_OFF;
  set_stack(p, job, stack);
  p->job.capability = job->device.compute_capability;
  set_attention(p, job);
  set_quantized(p, job);
  set_precision(p, job);
  if (p->job.prepared == HRI_PREPARED_BY_AXOLOTL && !p->model.lora.rank && p->job.weights != HRI_F32)
    add(p->info.settings, ", embeddings, head and norms in fp32");
  set_optimizer(p, job, stack);
  set_recompute(p, job);
  say_attention(p);
  if (p->model.lora.rank)
    add(p->info.settings, ", %sadapters of rank %u by PEFT in %s", p->model.lora.dora ? "DoRA's " : "",
        p->model.lora.rank, stack->prepared == HRI_PREPARED_BY_TRL && p->job.quantized ? "bf16" : "fp32");
  if (p->model.lora.rank && p->model.lora.saved) add(p->info.settings, " beside whole modules");
  set_cache(p);
  p->job.resumed = p->settings.resumed;
  if (p->job.resumed) add(p->info.settings, ", resumed from a checkpoint");
  tell_dropout(p);
  p->job.liger = p->settings.liger;
  if (p->job.liger) add(p->info.settings, ", kernels of liger-kernel 0.8.5");
  say_stack(p, alloc_conf);
  set_evaluation(p);
  if (job->loss_chunk < (uint64_t)job->micro_batch * job->sequence_length && !p->job.fused_head && !p->job.liger)
    unlike(&p->info, "the loss is not chunked");
  if (job->neftune_alpha > 0 || job->label_smoothing > 0) unlike(&p->info, "without noise and smoothing");
}

/* ---- torchtune's recipes ---- */

/* By the job's name of it, or the recipe's key. */
static hri_torch_optim recipe_optim_of(const hr_job *job, const hri_torch_settings *settings) {
  hri_torch_optim optim = settings->optim;
  if (optim == HRI_OPTIM_OF_JOB && job->optimizer == HR_OPTIMIZER_SGD) optim = HRI_OPTIM_SGD;
  if (optim == HRI_OPTIM_OF_JOB && job->optimizer == HR_OPTIMIZER_ADAMW8BIT) optim = HRI_OPTIM_ADAMW_BNB_8BIT;
  if (optim != HRI_OPTIM_OF_JOB && optim != HRI_OPTIM_ADAMW_TORCH) return optim;
  return settings->recipe.fused == HRI_FALSE ? HRI_OPTIM_ADAMW_TORCH : HRI_OPTIM_ADAMW_TORCH_FUSED;
}

static void set_recipe_precision(hr_pytorch *p, const hr_job *job) {
  bool half = job->precision == HR_PRECISION_BF16 || job->precision == HR_PRECISION_BF16_PURE;
  p->job.weights = half ? HRI_BF16 : HRI_F32;
  add(p->info.settings, "dtype=%s", half ? "bf16" : "fp32");
  if (job->precision == HR_PRECISION_BF16)
    unlike(&p->info, "weights, gradients and states are bf16: its recipes have no autocast");
  if (job->precision == HR_PRECISION_TF32) unlike(&p->info, "tf32 is not its recipes' to set");
}

/* Its configurations have AdamW fused, and clip nothing unless they are told to. */
static void set_recipe_optimizer(hr_pytorch *p, const hr_job *job) {
  static const char *const texts[HRI_OPTIMS] = {[HRI_OPTIM_ADAMW_TORCH] = "AdamW foreach",
                                                [HRI_OPTIM_ADAMW_TORCH_FUSED] = "AdamW fused",
                                                [HRI_OPTIM_ADAMW_BNB_8BIT] = "AdamW 8-bit by bitsandbytes",
                                                [HRI_OPTIM_PAGED_ADAMW_8BIT] = "paged AdamW 8-bit by bitsandbytes",
                                                [HRI_OPTIM_SGD] = "SGD"};
  hri_torch_optim optim = recipe_optim_of(job, &p->settings);
  p->job.optimizer = optim == HRI_OPTIM_SGD                 ? HRI_TORCH_SGD
                     : optim == HRI_OPTIM_ADAMW_TORCH       ? HRI_TORCH_ADAMW
                     : optim == HRI_OPTIM_ADAMW_TORCH_FUSED ? HRI_TORCH_ADAMW_FUSED
                                                            : HRI_TORCH_ADAMW_8BIT;
  p->job.paged = optim == HRI_OPTIM_PAGED_ADAMW_8BIT;
  p->job.recipe.in_backward = job->update == HR_UPDATE_IN_BACKWARD;
  p->job.clip = job->clip > 0 && (job->given & HR_GIVEN_CLIP);
  add(p->info.settings, ", %s%s%s", texts[optim], p->job.recipe.in_backward ? " in the backward" : "",
      p->job.clip ? "" : ", no clipping");
  if (p->job.paged) unlike(&p->info, "paged states are host memory as far as the device's figures go");
}

static void set_recipe(hr_pytorch *p, const hr_job *job) {
  hri_torch_job *out = &p->job;
  p->model = job->model;
  out->model = &p->model;
  out->batch = job->micro_batch;
  out->tokens = job->sequence_length;
  out->accumulate = job->accumulate;
  out->steps = 2;
  out->ranks = p->info.ranks = 1;
  out->capability = job->device.compute_capability;
  out->recipe.runs = true;
  if (p->model.attention_softcap > 0) out->attention = HRI_TORCH_EAGER; /* Gemma2Attention's own products */
  set_recipe_precision(p, job);
  set_recipe_optimizer(p, job);
  out->checkpoint = p->settings.checkpointing;
  if (out->checkpoint) add(p->info.settings, ", activation checkpointing");
  p->job.quantized = hri_torch_quantized_as(job->quantize);
  if (p->job.quantized) add(p->info.settings, ", base in NF4Tensor");
  if (p->model.lora.rank)
    add(p->info.settings, ", %sadapters of rank %u in the type of the weights", p->model.lora.dora ? "DoRA's " : "",
        p->model.lora.rank);
  out->recipe.chunks = p->settings.recipe.whole_loss   ? 0
                       : p->settings.recipe.chunks > 0 ? p->settings.recipe.chunks
                                                       : HRI_TUNE_CHUNKS;
  if (out->recipe.chunks) add(p->info.settings, ", the loss in %u chunks", out->recipe.chunks);
  else add(p->info.settings, ", the loss of whole logits in fp32");
  out->recipe.packed = p->settings.recipe.packed;
  if (out->recipe.packed) add(p->info.settings, ", packed rows by flex_attention");
  if (job->recompute.kind != HR_RECOMPUTE_BLOCK && job->recompute.kind != HR_RECOMPUTE_NONE)
    unlike(&p->info, "activation checkpointing is of every layer");
  if (job->attention == HR_ATTENTION_MATERIALIZED && (job->given & HR_GIVEN_ATTENTION) &&
      p->model.attention_softcap <= 0)
    unlike(&p->info, "attention is scaled_dot_product_attention");
  if (p->model.sliding_window > 0 && p->model.family != HR_FAMILY_GEMMA2 &&
      job->sequence_length > p->model.sliding_window)
    unlike(&p->info, "attention has no window");
  if (job->given & HR_GIVEN_LOSS_CHUNK) unlike(&p->info, "chunks of the loss are loss.num_output_chunks");
  if (job->neftune_alpha > 0 || job->label_smoothing > 0) unlike(&p->info, "without noise and smoothing");
}

/* ---- what is told ---- */

static bool same_group(const hr_pytorch_live *a, const hri_torch_label *l, hr_role role, uint64_t bytes) {
  return a->op == l->op && a->module == l->module && a->role == role && a->bytes / a->count == bytes;
}

static bool add_live(hr_pytorch *p, const hri_torch_request *request, uint64_t bytes) {
  const hri_torch_label *l = &p->torch.labels.items[request->label];
  hr_role role = (hr_role)p->torch.storages.items[request->storage].role;
  hr_pytorch_live one = {l->op, l->module, l->layer, role, bytes, 1};
  p->info.at_peak_by_role[role] += bytes;
  for (size_t i = 0; i < p->live.count; i++) {
    hr_pytorch_live *group = &p->live.items[i];
    if (!same_group(group, l, role, bytes)) continue;
    group->count++;
    group->bytes += bytes;
    if (group->layer != l->layer) group->layer = -1;
    return true;
  }
  return hri_array_push(&p->live, one);
}

static int by_bytes(const void *a, const void *b) {
  const hr_pytorch_live *x = a, *y = b;
  return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* What begins before the peak and does not end before it. */
static hr_status list_live(hr_pytorch *p, hr_error *error) {
  const hri_torch_request *requests = p->torch.requests.items;
  uint64_t *begun = hri_alloc_zero(p->torch.storages.count, sizeof *begun);
  bool ok = begun != NULL;
  for (uint64_t i = 0; ok && i <= p->replay.peak_request; i++)
    begun[requests[i].storage] = requests[i].bytes ? i + 1 : 0;
  for (size_t s = 1; ok && s < p->torch.storages.count; s++)
    if (begun[s]) ok = add_live(p, &requests[begun[s] - 1], hri_round_up(requests[begun[s] - 1].bytes, 512));
  hri_free(begun);
  if (!ok) return hri_fail_memory(error, p->torch.storages.count * 8, "tensors at the peak");
  qsort(p->live.items, p->live.count, sizeof *p->live.items, by_bytes);
  p->info.live_count = (uint32_t)p->live.count;
  return HR_OK;
}

static void tell_phases(hr_pytorch *p) {
  for (int phase = 0; phase < HR_PYTORCH_PHASES; phase++)
    for (int step = 0; step < 2; step++) {
      const hri_torch_usage *usage = &p->replay.phases[step][phase];
      if (usage->allocated_bytes > p->info.allocated_by_phase[phase])
        p->info.allocated_by_phase[phase] = usage->allocated_bytes;
      if (usage->reserved_bytes > p->info.reserved_by_phase[phase])
        p->info.reserved_by_phase[phase] = usage->reserved_bytes;
    }
}

/* What tests/memory/stacks.json has of axolotl and LLaMA-Factory; beside it their rules are the Trainer's, and their source's. */
static bool stack_was_recorded(const hr_pytorch *p) {
  const hri_torch_job *job = &p->job;
  bool axolotl = p->stack->half_weights, frozen = job->frozen.freeze || job->frozen.train_only;
  bool optimizer = job->optimizer == HRI_TORCH_ADAMW_FUSED || job->optimizer == HRI_TORCH_ADAMW_8BIT;
  if (job->version != HRI_TRANSFORMERS_5 || job->model->family == HR_FAMILY_GPT2 || !optimizer) return false;
  if (job->evaluation.batches || job->resumed || job->padded || job->kernel_forced) return false;
  if (job->scaler && !job->quantized) return false;
  if (job->model->lora.rank && job->weights == HRI_F32)
    return false; /* LLaMA-Factory's base keeps the type of its file */
  if (job->packed && (job->liger || job->autocast == HRI_F32)) return false;
  return !job->model->lora.saved && !(axolotl && (frozen || job->model->lora.dora));
}

/* Kernels that no recording has: cuDNN's and those of the package flash_attn. TRL was recorded with the newest transformers. */
static bool is_recorded(const hr_pytorch *p) {
  const hri_torch_settings *s = &p->settings;
  bool trl = p->job.fused_head && (s->version != HRI_TRANSFORMERS_5 || p->job.quantized == HRI_TORCH_INT8);
  bool stack = p->stack->version && !p->job.fused_head;
  if (p->stack->recipes) return true; /* what tests/memory/tune.json has not is refused */
  if (stack && !stack_was_recorded(p)) return false;
  return p->stack->recorded && !trl && s->kernel != HRI_KERNEL_CUDNN && s->implementation != HRI_IMPLEMENTATION_FLASH_2;
}

/* Whether every request is met in `room`, cached memory returned where it runs out. */
static hr_status fits_in(hr_pytorch *p, uint64_t room, bool *fits, uint64_t *retries, hr_error *error) {
  hri_torch_replay within;
  *retries = 0;
  *fits = p->info.reserved_bytes <= room;
  if (*fits || p->info.allocated_bytes > room) return HR_OK;
  HRI_TRY(hri_torch_replay_run(&p->torch, &p->config, room, &within, error));
  *fits = within.fits;
  *retries = within.retries > 0 ? (uint64_t)within.retries : 0;
  return HR_OK;
}

/* What fits is sure where it would also fit if PyTorch's requests were larger by as much as they ever were: in so much less room. Else
 * what is missing is the room that makes it sure. */
static hr_status judge(hr_pytorch *p, uint64_t room, hr_error *error) {
  hr_pytorch_info *info = &p->info;
  double reserve = 1 + info->error_high;
  uint64_t wanted, retries;
  bool sure;
  info->verdict = info->fits ? HR_PYTORCH_FITS : HR_PYTORCH_DOES_NOT_FIT;
  if (!info->fits) return HR_OK;
  HRI_TRY(fits_in(p, (uint64_t)((double)room / reserve), &sure, &retries, error));
  if (sure) return HR_OK;
  wanted = (uint64_t)(reserve * (double)(info->reserved_bytes < room ? info->reserved_bytes : room)) + 1;
  info->verdict = HR_PYTORCH_FITS_WITHIN_ERROR;
  info->reserve_missing_bytes = wanted - room;
  return HR_OK;
}

/* CUDA's context of a PyTorch process with its kernels loaded as they are needed. Four cards were told of: RTX 3090 256 MiB (82
 * multiprocessors, torch 2.7), RTX 6000 Ada 426 (142, 2.10), A100 481 (108, 2.1), H200 612 (132). It grows with what the driver keeps for each
 * multiprocessor, more where 2,048 threads live on one: 25 MiB and 2.8 or 4.4 MiB each are within 4 % of all four. A fifth, a T4 (40) of 141
 * MiB, was not looked at for it and has 137 here. */
static uint64_t context_bytes(const hr_device *device) {
  uint32_t c = device->compute_capability;
  bool wide = c == 70 || c == 80 || c == 90 || c == 100 || c == 103; /* 2,048 threads */
  uint64_t tenths = 250 + (uint64_t)device->multiprocessors * (wide ? 44 : 28);
  return device->multiprocessors ? tenths * MIB / 10 : device->fixed_bytes;
}

/* The job as it ran. */
static void tell_job(hr_pytorch *p, const hr_job *job) {
  hr_pytorch_info *info = &p->info;
  bool flash_2 = p->settings.implementation == HRI_IMPLEMENTATION_FLASH_2;
  info->micro_batch = (uint32_t)p->job.batch;
  info->accumulate = p->job.accumulate;
  info->sequence_length = (uint32_t)p->job.tokens;
  info->optim = p->stack->recipes ? hri_recipe_optimizer(recipe_optim_of(job, &p->settings))
                                  : hri_torch_optim_name(optim_of(job, &p->settings, p->stack));
  info->attention = flash_2 ? "flash_attention_2" : p->job.attention == HRI_TORCH_EAGER ? "eager" : "sdpa";
  if (p->job.recipe.packed) info->attention = "flex_attention";
  info->checkpointing = p->job.checkpoint;
  info->reentrant = p->job.checkpoint && p->job.reentrant;
  info->parameter_count = p->torch.parameter_count;
  info->trainable_parameter_count = p->torch.trained_count;
}

static hr_status answer(hr_pytorch *p, const hr_job *job, hr_error *error) {
  hr_pytorch_info *info = &p->info;
  uint64_t room;
  HRI_TRY(hri_torch_replay_run(&p->torch, &p->config, 0, &p->replay, error));
  info->allocated_bytes = p->replay.whole.allocated_bytes;
  info->reserved_bytes = p->replay.whole.reserved_bytes;
  info->recorded = is_recorded(p) && was_recorded(p);
  info->error_low = info->recorded ? HRI_TORCH_ERROR_LOW : HRI_TORCH_ERROR_OF_SOURCE_LOW;
  info->error_high = info->recorded ? HRI_TORCH_ERROR_HIGH : HRI_TORCH_ERROR_OF_SOURCE_HIGH;
  info->context_bytes = context_bytes(&job->device);
  info->device_used_bytes = info->reserved_bytes + info->context_bytes;
  info->budget_bytes = job->budget_bytes;
  info->peak_phase = (hr_pytorch_phase)p->replay.peak_phase;
  info->peak_step = p->replay.peak_step;
  info->request_count = p->torch.requests.count;
  info->host_bytes = host_bytes(p);
  tell_phases(p);
  tell_job(p, job);
  HRI_TRY(list_live(p, error));
  room = info->budget_bytes > info->context_bytes ? info->budget_bytes - info->context_bytes : 0;
  HRI_TRY(fits_in(p, room, &info->fits, &info->retries, error));
  if (!info->fits && info->allocated_bytes > room) info->missing_bytes = info->allocated_bytes - room;
  return judge(p, room, error);
}

/* What nobody said is the stack's to say; the Trainer's own checkpointing has been without reentry since 5. */
static void take_defaults(const hr_job *job, const hri_torch_stack *stack, hri_torch_settings *s) {
  bool older = stack->trainer && s->version >= HRI_TRANSFORMERS_4_57;
  bool partly = stack->half_weights && (job->freeze || job->train_only); /* axolotl's unfrozen_parameters */
  s->checkpoints_trained = stack->checkpoints_trained;
  if (!s->reentrant_named) s->reentrant = (stack->reentrant && !partly) || older;
  s->checkpointing =
      job->recompute.kind != HR_RECOMPUTE_NONE || (stack->checkpointing && !(job->given & HR_GIVEN_RECOMPUTE));
}

/* What optimizers load was recorded of AdamW. */
static bool resumes(hri_torch_optim optim) {
  return optim == HRI_OPTIM_ADAMW_TORCH || optim == HRI_OPTIM_ADAMW_TORCH_FUSED;
}

/* One row stands in micro_batch until somebody has chosen, which is nobody's job. */
static hr_status refuse_open_rows(const hr_job *job, hr_error *error) {
  if (job->rows_choice != HR_ROWS_OPEN) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--micro-batch auto: the rows of a micro-step have not been chosen");
  return hri_hint(error, HR_ERROR_USAGE,
                  "set micro_batch to the rows that PyTorch is to take, or call hr_plan_rows first for those that "
                  "Headroom would take");
}

/* What the options' settings are, and whether there are rules for the job with them. */
static hr_status read_usual(const hr_job *job, const hr_pytorch_options *options, const hri_torch_stack *stack,
                            hri_torch_settings *out, hr_error *error) {
  hri_torch_settings settings;
  HRI_TRY(hri_torch_settings_parse(options->conf, &settings, error));
  take_defaults(job, stack, &settings);
  if (settings.eval_batches && !stack->trainer)
    return hri_fail(error, HR_ERROR_UNSUPPORTED,
                    "--engine pytorch:plain has no evaluation; that of the Trainer is pytorch:trainer's");
  if (stack->fused_head && (settings.metrics || settings.predict))
    return hri_fail(error, HR_ERROR_UNSUPPORTED,
                    "--engine pytorch:trl has no rules for logits of an evaluation (compute_metrics, predict)");
  if (settings.liger && stack->fused_head)
    return hri_fail(error, HR_ERROR_UNSUPPORTED,
                    "--engine pytorch:trl has no rules for use_liger_kernel=true: its own head makes no logits either");
  if (settings.use_cache && stack->trainer)
    return hri_fail(error, HR_ERROR_UNSUPPORTED,
                    "use_cache=true is of --engine pytorch:plain: the Trainer turns it off for training");
  if (settings.resumed && (!stack->trainer || !resumes(optim_of(job, &settings, stack))))
    return hri_fail(error, HR_ERROR_UNSUPPORTED,
                    "--engine pytorch has rules for resume_from_checkpoint=true with the Trainer and PyTorch's AdamW "
                    "alone");
  HRI_TRY(hri_torch_refuse(job, &settings, error));
  HRI_TRY(hri_torch_refuse_stack(job, &settings, stack, error));
  HRI_TRY(hri_torch_refuse_ranks(job, &settings, stack, options->ranks, error));
  *out = settings;
  return HR_OK;
}

static hr_status read_settings(const hr_job *job, const hr_pytorch_options *options, const hri_torch_stack *stack,
                               hri_torch_settings *out, hr_error *error) {
  if (!stack->recipes) return read_usual(job, options, stack, out, error);
  HRI_TRY(hri_recipe_settings_parse(options->conf, out, error));
  take_defaults(job, stack, out);
  return hri_torch_refuse_recipe(job, out, options->ranks, error);
}

hr_status hr_pytorch_create(const hr_job *job, const hr_pytorch_options *options, hr_pytorch **pytorch,
                            hr_error *error) {
  hr_pytorch_options usual;
  hri_torch_settings settings;
  hri_torch_optim optim;
  const hri_torch_stack *stack;
  hr_pytorch *p;
  hr_status status = HR_OK;
  *pytorch = NULL;
  hr_pytorch_options_init(&usual);
  if (!options) options = &usual;
  HRI_TRY(refuse_open_rows(job, error));
  stack = hri_torch_stack_of(options->stack);
  HRI_TRY(read_settings(job, options, stack, &settings, error));
  p = hri_alloc_zero(1, sizeof *p);
  if (!p) return hri_fail_memory(error, sizeof *p, "what PyTorch would need");
  p->info.versions = stack->recipes ? "PyTorch 2.14, torchtune 0.6" : versions[settings.version];
  p->settings = settings;
  p->stack = stack;
  hri_torch_init(&p->torch);
  p->config = hr_alloc_config_default();
  HRI_TRY_OUT(hr_alloc_config_parse(options->alloc_conf ? options->alloc_conf : stack->alloc_conf, &p->config, error));
  if (stack->recipes) {
    set_recipe(p, job);
  } else {
    set_job(p, job, stack, options->alloc_conf);
    set_ranks(p, options->ranks);
  }
  optim = stack->recipes ? recipe_optim_of(job, &p->settings) : optim_of(job, &p->settings, stack);
  hri_torch_arguments_write(&(hri_torch_arguments_of){job, &p->job, &p->settings, optim, options->stack,
                                                      options->alloc_conf},
                            &p->arguments);
  p->device = hri_aten_device_of(job->device.compute_capability);
  p->torch.device = &p->device;
  if (!hri_torch_run(&p->torch, &p->job)) status = hri_fail_memory(error, 32 * MIB, "PyTorch's requests");
  if (status == HR_OK) status = answer(p, job, error);
out:
  if (status != HR_OK) hr_pytorch_destroy(p);
  else *pytorch = p;
  return status;
}

const hr_pytorch_info *hr_pytorch_get(const hr_pytorch *pytorch) { return &pytorch->info; }

bool hr_pytorch_argument_get(const hr_pytorch *pytorch, uint32_t index, hr_pytorch_argument *argument) {
  if (index >= pytorch->arguments.count) return false;
  argument->text = pytorch->arguments.texts[index];
  return true;
}

bool hr_pytorch_live_get(const hr_pytorch *pytorch, uint32_t index, hr_pytorch_live *live) {
  if (index >= pytorch->live.count) return false;
  *live = pytorch->live.items[index];
  return true;
}

hr_status hr_pytorch_course(const hr_pytorch *pytorch, hr_pytorch_moment **moments, uint64_t *count, hr_error *error) {
  const hri_torch *t = &pytorch->torch;
  hri_torch_moment *found = hri_alloc_zero(t->requests.count, sizeof *found);
  hr_pytorch_moment *out = hri_alloc_zero(t->requests.count, sizeof *out);
  uint32_t *labels = hri_alloc_zero(t->storages.count, sizeof *labels); /* of the request that each storage came with */
  hr_status status = HR_OK;
  if (!found || !out || !labels)
    status = hri_fail_memory(error, t->requests.count * sizeof *out, "the course of PyTorch's memory");
  if (status == HR_OK) status = hri_torch_replay_course(t, &pytorch->config, found, error);
  for (size_t i = 0; status == HR_OK && i < t->requests.count; i++) {
    const hri_torch_request *request = &t->requests.items[i];
    const hri_torch_label *label;
    hr_pytorch_moment *moment = &out[i];
    if (request->bytes) labels[request->storage] = request->label;
    label = &t->labels.items[request->bytes ? request->label : labels[request->storage]];
    *moment = (hr_pytorch_moment){.allocated_bytes = found[i].allocated_bytes,
                                  .reserved_bytes = found[i].reserved_bytes,
                                  .step = found[i].step ? found[i].step : 1,
                                  .phase = (hr_pytorch_phase)found[i].phase,
                                  .op = "empty_cache",
                                  .module = "",
                                  .layer = -1};
    if (request->storage == 0) continue; /* of no tensor (replay.c) */
    moment->op = label->op;
    moment->module = label->module;
    moment->layer = label->layer;
    moment->free = request->bytes == 0;
  }
  hri_free(found);
  hri_free(labels);
  *moments = status == HR_OK ? out : NULL;
  *count = status == HR_OK ? t->requests.count : 0;
  if (status != HR_OK) hri_free(out);
  return status;
}

hr_status hr_pytorch_snapshot(const hr_pytorch *pytorch, hr_snapshot **snapshot, hr_error *error) {
  return hri_torch_replay_snapshot(&pytorch->torch, &pytorch->config, 0, snapshot, error);
}

void hr_pytorch_destroy(hr_pytorch *pytorch) {
  if (!pytorch) return;
  hri_torch_deinit(&pytorch->torch);
  hri_array_free(&pytorch->live);
  hri_free(pytorch);
}
