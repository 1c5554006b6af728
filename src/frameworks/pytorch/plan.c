/* The public interface (headroom/pytorch.h): a job in the framework's settings, its run, and what is told of it. */
#include <headroom/pytorch.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "frameworks/pytorch/loop.h"
#include "frameworks/pytorch/replay.h"
#include "frameworks/pytorch/settings.h"

/* What the rules were recorded from (tests/memory/README.md). */
static const char versions[] = "PyTorch 2.14, transformers 5";

enum { MIB = 1 << 20 };

struct hr_pytorch {
  hr_pytorch_info info;
  hri_torch torch;
  hri_aten_device device;
  hr_model model; /* the job's: the run refers to it */
  hri_torch_job job;
  hri_torch_settings settings;
  hr_alloc_config config;
  hri_torch_replay replay;
  HRI_ARRAY(hr_pytorch_live) live;
};

_Static_assert((int)HR_PYTORCH_EVALUATE == (int)HRI_TORCH_EVALUATE, "phases in one order");

const char *hr_pytorch_stack_name(hr_pytorch_stack stack) {
  static const char *const names[] = {"trainer", "plain"};
  return (unsigned)stack < HR_PYTORCH_STACKS ? names[stack] : "unknown";
}

const char *hr_pytorch_phase_name(hr_pytorch_phase phase) {
  static const char *const names[] = {"load", "forward",   "loss",      "backward",
                                      "clip", "optimizer", "zero_grad", "evaluate"};
  return (unsigned)phase < HR_PYTORCH_PHASES ? names[phase] : "unknown";
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

static bool other_adapters(const hr_lora *lora) {
  return lora->rank && (lora->dora || lora->bias != HR_LORA_BIAS_NONE || lora->saved || lora->embedding);
}

/* Families that were recorded, of which there are rules, with the activations that they were recorded with. */
static bool family_has_rules(const hr_model *m) {
  bool gelu = m->family == HR_FAMILY_GPT2 || m->family == HR_FAMILY_GEMMA2 || m->family == HR_FAMILY_GEMMA3;
  if (m->family > HR_FAMILY_GEMMA3) return false; /* in the order in which they were added */
  return m->activation == (gelu ? HR_ACTIVATION_GELU_TANH : HR_ACTIVATION_SILU);
}

/* Kept as bitsandbytes' four bits; fp4 has nf4's sizes. */
static hri_torch_quantized quantized_as(hr_quantize quantize) {
  if (quantize == HR_QUANTIZE_NF4 || quantize == HR_QUANTIZE_FP4) return HRI_TORCH_NF4;
  return quantize == HR_QUANTIZE_NF4_DQ || quantize == HR_QUANTIZE_FP4_DQ ? HRI_TORCH_NF4_DOUBLE : HRI_TORCH_WHOLE;
}

/* Recorded of QLoRA are families of plain Linear modules, with 16-bit products. */
static const char *refuse_quantized(const hr_job *job) {
  hr_family family = job->model.family;
  hr_quantize files = job->model.quantization;
  if (job->quantize == HR_QUANTIZE_NONE && files == HR_QUANTIZE_NONE) return NULL;
  if (quantized_as(job->quantize) == HRI_TORCH_WHOLE || (files != HR_QUANTIZE_NONE && files != job->quantize))
    return "no rules for these quantized weights; there are for --quantize nf4, fp4, and either with +dq";
  if (family == HR_FAMILY_GPT2 || family == HR_FAMILY_GEMMA2 || family == HR_FAMILY_GEMMA3)
    return "no rules for quantized weights of this family; there are for llama, mistral, qwen2, qwen3 and phi3";
  if (job->precision == HR_PRECISION_FP32 || job->precision == HR_PRECISION_TF32)
    return "rules for quantized weights with products in 16 bits alone (--precision bf16, fp16 or bf16-pure)";
  return NULL;
}

static const char *refuse_device(const hr_job *job) {
  bool bf16 = job->precision == HR_PRECISION_BF16 || job->precision == HR_PRECISION_BF16_PURE;
  if (job->device.compute_capability == 0) return "rules for GPUs of NVIDIA's alone";
  if (job->device.compute_capability < 70) return "no rules for compute capability below 7.0";
  if (job->device.compute_capability < 80 && bf16)
    return "no rules for bf16 on compute capability below 8.0, which has no such products; --precision fp16";
  return NULL;
}

/* What there are no rules for on several ranks. */
static const char *refuse_ranks(const hr_job *job, const hri_torch_settings *settings,
                                const hr_pytorch_options *options) {
  bool adapters =
      job->model.lora.rank || job->quantize != HR_QUANTIZE_NONE || job->model.quantization != HR_QUANTIZE_NONE;
  if (options->ranks <= 1) return NULL;
  if (settings->eval_batches)
    return "no rules for an evaluation on several ranks, which gathers the logits of all of them";
  if (settings->shared.fsdp != HRI_TRUE && !settings->shared.zero_stage) return NULL;
  if (adapters) return "no rules for adapters and quantized weights under fsdp=true and zero_stage";
  if (job->precision == HR_PRECISION_FP16) return "no rules for fp16 under fsdp=true and zero_stage; --precision bf16";
  if (settings->shared.offload_optimizer && job->accumulate > 1)
    return "no rules for --accumulate with offload_optimizer";
  if (settings->shared.fsdp_version == 1 && job->accumulate > 1)
    return "no rules for --accumulate under fsdp_version=1";
  if (settings->shared.fsdp == HRI_TRUE && settings->reentrant)
    return "no rules for reentrant checkpointing under fsdp=true";
  return NULL;
}

static hr_status refuse(const hr_job *job, const hri_torch_settings *settings, const hr_pytorch_options *options,
                        hr_error *error) {
  const char *what = NULL;
  bool known = job->optimizer == HR_OPTIMIZER_ADAMW || job->optimizer == HR_OPTIMIZER_SGD ||
               job->optimizer == HR_OPTIMIZER_MOMENTUM || job->optimizer == HR_OPTIMIZER_ADAMW8BIT;
  if (!family_has_rules(&job->model))
    return hri_fail(
        error, HR_ERROR_UNSUPPORTED,
        "--engine pytorch has no rules for the family %s%s: gpt2, llama, mistral, qwen2, qwen3, phi3, gemma2 "
        "and gemma3_text, each with its usual activation, were recorded",
        hr_family_name(job->model.family), job->model.family > HR_FAMILY_GEMMA3 ? "" : " with this activation");
  if (job->purpose != HR_PURPOSE_TRAIN) what = "no rules for anything but training";
  else if (other_adapters(&job->model.lora))
    what = "rules for plain adapters of linear modules alone (no dora, bias, modules_to_save, embeddings)";
  else if (job->freeze || job->train_only) what = "no rules for frozen tensors (--freeze, --train-only)";
  else if (!known && settings->optim == HRI_OPTIM_OF_JOB)
    what = "no rules for this --optimizer; there are for adamw, adamw8bit, sgd and momentum";
  else what = refuse_device(job);
  if (!what) what = refuse_quantized(job);
  if (!what) what = refuse_ranks(job, settings, options);
  if (!what) return HR_OK;
  return hri_fail(error, HR_ERROR_UNSUPPORTED, "--engine pytorch has %s", what);
}

static void set_quantized(hr_pytorch *p, const hr_job *job) {
  static const char *const words[][2] = {{"nf4", "nf4 with double quantization"},
                                         {"fp4", "fp4 with double quantization"}};
  bool fp4 = job->quantize == HR_QUANTIZE_FP4 || job->quantize == HR_QUANTIZE_FP4_DQ;
  p->job.quantized = quantized_as(job->quantize);
  if (p->job.quantized == HRI_TORCH_WHOLE) return;
  p->job.weights = job->precision == HR_PRECISION_FP16 ? HRI_F16 : HRI_BF16;
  add(p->info.settings, "base in %s by bitsandbytes, products in %s, prepare_model_for_kbit_training, ",
      words[fp4][p->job.quantized == HRI_TORCH_NF4_DOUBLE], p->job.weights == HRI_F16 ? "fp16" : "bf16");
}

static void set_precision(hr_pytorch *p, const hr_job *job) {
  hri_torch_job *out = &p->job;
  char *text = p->info.settings;
  bool half = job->precision == HR_PRECISION_BF16 || job->precision == HR_PRECISION_FP16;
  if (half && job->model.lora.rank) { /* the base is loaded in 16 bits where it is frozen */
    out->weights = out->autocast = job->precision == HR_PRECISION_BF16 ? HRI_BF16 : HRI_F16;
    out->scaler = job->precision == HR_PRECISION_FP16;
    if (p->job.quantized) add(text, "autocast to %s", job->precision == HR_PRECISION_BF16 ? "bf16" : "fp16");
    else add(text, "%s base under autocast", job->precision == HR_PRECISION_BF16 ? "bf16" : "fp16");
    return;
  }
  if (p->settings.shared.zero_stage && (half || job->precision == HR_PRECISION_BF16_PURE)) { /* the engine's own bf16 */
    out->weights = HRI_BF16;
    add(text, "bf16 weights with fp32 ones for the optimizer");
    return;
  }
  switch (job->precision) {
  case HR_PRECISION_BF16:
    out->autocast = HRI_BF16;
    add(text, p->job.trainer && p->settings.shared.fsdp == HRI_TRUE ? "bf16=True, fp32 weights"
                                                                    : "autocast to bf16, fp32 weights");
    break;
  case HR_PRECISION_FP16:
    out->autocast = HRI_F16;
    out->scaler = true;
    add(text, "autocast to fp16 with GradScaler, fp32 weights");
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
static hri_torch_optim optim_of(const hr_job *job, const hri_torch_settings *settings, hr_pytorch_stack stack) {
  if (settings->optim != HRI_OPTIM_OF_JOB) return settings->optim;
  if (job->optimizer == HR_OPTIMIZER_SGD || job->optimizer == HR_OPTIMIZER_MOMENTUM) return HRI_OPTIM_SGD;
  if (job->optimizer == HR_OPTIMIZER_ADAMW8BIT) return HRI_OPTIM_ADAMW_BNB_8BIT;
  return stack == HR_PYTORCH_TRAINER ? HRI_OPTIM_ADAMW_TORCH_FUSED : HRI_OPTIM_ADAMW_TORCH;
}

static void set_optimizer(hr_pytorch *p, const hr_job *job, hr_pytorch_stack stack) {
  static const char *const texts[HRI_OPTIMS] =
      {"", "AdamW foreach", "AdamW fused", "AdamW 8-bit by bitsandbytes", "paged AdamW 8-bit by bitsandbytes", "SGD"};
  hri_torch_optim optim = optim_of(job, &p->settings, stack);
  bool momentum = optim == HRI_OPTIM_SGD && job->optimizer == HR_OPTIMIZER_MOMENTUM;
  switch (optim) {
  case HRI_OPTIM_SGD: p->job.optimizer = momentum ? HRI_TORCH_SGD_MOMENTUM : HRI_TORCH_SGD; break;
  case HRI_OPTIM_ADAMW_TORCH_FUSED: p->job.optimizer = HRI_TORCH_ADAMW_FUSED; break;
  case HRI_OPTIM_ADAMW_BNB_8BIT:
  case HRI_OPTIM_PAGED_ADAMW_8BIT: p->job.optimizer = HRI_TORCH_ADAMW_8BIT; break;
  default: p->job.optimizer = HRI_TORCH_ADAMW;
  }
  p->job.paged = optim == HRI_OPTIM_PAGED_ADAMW_8BIT;
  p->job.wide_embeddings = p->job.optimizer == HRI_TORCH_ADAMW_8BIT && stack == HR_PYTORCH_TRAINER;
  add(p->info.settings, ", %s%s", texts[optim], momentum ? " with momentum" : "");
  if (p->job.paged) unlike(&p->info, "paged states are host memory as far as the device's figures go");
  if (job->update == HR_UPDATE_IN_BACKWARD) unlike(&p->info, "updates are behind the backward");
}

static void set_recompute(hr_pytorch *p, const hr_job *job) {
  if (job->recompute.kind == HR_RECOMPUTE_NONE) return;
  p->job.checkpoint = true;
  p->job.reentrant = p->settings.reentrant;
  add(p->info.settings, ", gradient checkpointing%s", p->job.reentrant ? " with use_reentrant" : "");
  if (job->recompute.kind != HR_RECOMPUTE_BLOCK) unlike(&p->info, "gradient checkpointing is of every block");
}

static void set_evaluation(hr_pytorch *p) {
  enum { USUAL = 8 }; /* TrainingArguments.per_device_eval_batch_size */
  const hri_torch_settings *s = &p->settings;
  hri_torch_evaluation *e = &p->job.evaluation;
  if (s->eval_batches == 0) return;
  *e = (hri_torch_evaluation){s->eval_rows ? s->eval_rows : USUAL, s->eval_batches, s->metrics, s->eval_to_host};
  add(p->info.settings, ", evaluation of %u batches of %u%s", e->batches, (unsigned)e->rows,
      e->metrics ? " with compute_metrics" : "");
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

/* The Trainer looks for unused parameters unless it checkpoints. */
static void set_ddp(hr_pytorch *p, hr_pytorch_stack stack) {
  const hri_torch_shared *s = &p->settings.shared;
  hri_ddp_settings *ddp = &p->job.ddp;
  bool usual = stack == HR_PYTORCH_TRAINER && !p->job.checkpoint;
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

static void set_fsdp(hr_pytorch *p, hr_pytorch_stack stack) {
  const hri_torch_shared *s = &p->settings.shared;
  hri_fsdp_settings *fsdp = &p->job.fsdp;
  bool trainer = stack == HR_PYTORCH_TRAINER;
  p->job.sharing = HRI_TORCH_FSDP2;
  fsdp->ranks = p->job.ranks;
  fsdp->by_accelerate = trainer;
  fsdp->flat = s->fsdp_version == 1;
  fsdp->keeps = s->reshards == HRI_FALSE;
  fsdp->offload = s->offload == HRI_TRUE;
  fsdp->mixed = trainer ? p->job.autocast != HRI_F32 : s->param != HRI_TYPE_UNSAID;
  fsdp->param = trainer ? p->job.autocast : type_of(s->param);
  fsdp->reduce = trainer || !s->reduce ? fsdp->param : type_of(s->reduce);
  fsdp->casts_output = trainer && fsdp->mixed;
  if (trainer) p->job.autocast = HRI_F32; /* accelerate puts none around such a model: the policy casts */
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

/* The rules that stand for what was not recorded are PyTorch's source's alone. */
static bool was_recorded(const hr_pytorch *p, hr_pytorch_stack stack) {
  bool adamw = p->job.optimizer <= HRI_TORCH_ADAMW_LOOP;
  if (p->job.sharing == HRI_TORCH_DDP) return adamw && !p->job.quantized;
  if (p->job.sharing >= HRI_TORCH_ZERO)
    return adamw && !(stack == HR_PYTORCH_TRAINER && p->settings.shared.offload_optimizer);
  return adamw && !p->job.reentrant && !(stack == HR_PYTORCH_TRAINER && p->job.fsdp.offload);
}

static void set_ranks(hr_pytorch *p, const hr_pytorch_options *options) {
  p->job.ranks = p->info.ranks = options->ranks ? options->ranks : 1;
  p->info.recorded = true;
  if (p->job.ranks == 1) return;
  if (p->settings.shared.fsdp == HRI_TRUE) set_fsdp(p, options->stack);
  else if (p->settings.shared.zero_stage) set_zero(p);
  else set_ddp(p, options->stack);
  p->info.recorded = was_recorded(p, options->stack);
  if (!p->info.recorded) unlike(&p->info, "from source, not recorded");
  unlike(&p->info, "what NCCL takes beside the allocator is not counted");
}

/* Settings of several ranks that do not go together, by their names. */
static hr_status check_shared(const hri_torch_settings *settings, const hr_pytorch_options *options, hr_error *error) {
  const hri_torch_shared *s = &settings->shared;
  bool fsdp = s->fsdp == HRI_TRUE, zero = s->zero_stage > 0;
  const char *of_ddp = hri_torch_shared_ddp(s), *of_fsdp = hri_torch_shared_fsdp(s),
             *of_zero = hri_torch_shared_zero(s);
  const char *any = of_ddp    ? of_ddp
                    : of_fsdp ? of_fsdp
                    : of_zero ? of_zero
                    : fsdp    ? "fsdp"
                    : zero    ? "zero_stage"
                              : NULL;
  if (options->ranks <= 1 && any) {
    hri_fail(error, HR_ERROR_USAGE, "settings of --engine pytorch: %s is of several ranks", any);
    return hri_hint(error, HR_ERROR_USAGE, "--ranks 8 beside it: so many processes, each with a GPU");
  }
  if (fsdp && zero)
    return hri_fail(error, HR_ERROR_USAGE,
                    "settings of --engine pytorch: fsdp=true and zero_stage are two ways to share a job; one of them");
  if ((fsdp || zero) && of_ddp)
    return hri_fail(error, HR_ERROR_USAGE,
                    "settings of --engine pytorch: %s is of DistributedDataParallel, which %s is not", of_ddp,
                    fsdp ? "fsdp=true" : "zero_stage");
  if ((!fsdp && of_fsdp) || (!zero && of_zero)) {
    bool first = !fsdp && of_fsdp;
    hri_fail(error, HR_ERROR_USAGE, "settings of --engine pytorch: %s is of %s", first ? of_fsdp : of_zero,
             first ? "fully_shard" : "DeepSpeed's ZeRO");
    return hri_hint(error, HR_ERROR_USAGE, first ? "fsdp=true,%s=..." : "zero_stage=2,%s=...",
                    first ? of_fsdp : of_zero);
  }
  if (zero && s->zero_stage < 3 && hri_torch_shared_zero3(s))
    return hri_fail(error, HR_ERROR_USAGE, "settings of --engine pytorch: %s is of zero_stage=3",
                    hri_torch_shared_zero3(s));
  if (s->offload_param && !s->offload_optimizer)
    return hri_fail(error, HR_ERROR_USAGE,
                    "settings of --engine pytorch: offload_param goes with offload_optimizer=cpu here");
  if ((s->param || s->reduce) && options->stack == HR_PYTORCH_TRAINER)
    return hri_fail(
        error, HR_ERROR_USAGE,
        "settings of --engine pytorch: param_dtype and reduce_dtype are of a loop of one's own (pytorch:plain); the Trainer takes "
        "both from --precision");
  if (s->fsdp_version == 1 &&
      (options->stack == HR_PYTORCH_TRAINER || s->offload == HRI_TRUE || s->wrapped == HRI_TRUE))
    return hri_fail(
        error, HR_ERROR_USAGE,
        "settings of --engine pytorch: fsdp_version=1 is of a loop of one's own (pytorch:plain), without cpu_offload and "
        "activation_checkpointing");
  if (s->reduce && !s->param)
    return hri_fail(error, HR_ERROR_USAGE, "settings of --engine pytorch: reduce_dtype goes with param_dtype");
  return HR_OK;
}

static void set_job(hr_pytorch *p, const hr_job *job, hr_pytorch_stack stack) {
  p->model = job->model;
  p->job.model = &p->model;
  p->job.batch = job->micro_batch;
  p->job.tokens = job->sequence_length;
  p->job.accumulate = job->accumulate;
  p->job.steps = 2;
  p->job.clip = job->clip > 0;
  p->job.dropout = job->dropout > 0 ? job->dropout : job->model.dropout; /* the config's holds there */
  p->job.mask = true;
  p->job.padded = job->packing == HR_PACKING_OFF;
  p->job.trainer = stack == HR_PYTORCH_TRAINER;
  p->job.keeps_outputs = stack == HR_PYTORCH_PLAIN;
  p->job.capability = job->device.compute_capability;
  p->job.attention = job->attention == HR_ATTENTION_MATERIALIZED || job->model.attention_softcap > 0
                         ? HRI_TORCH_EAGER /* transformers has soft-capped scores there alone */
                         : HRI_TORCH_SDPA;
  set_quantized(p, job);
  set_precision(p, job);
  set_optimizer(p, job, stack);
  set_recompute(p, job);
  add(p->info.settings, ", attention %s%s", p->job.attention == HRI_TORCH_EAGER ? "eager" : "sdpa",
      p->job.padded ? " with a padding mask" : "");
  if (p->model.lora.rank) add(p->info.settings, ", adapters of rank %u by PEFT in fp32", p->model.lora.rank);
  if (p->job.dropout > 0) add(p->info.settings, ", dropout %g", p->job.dropout);
  set_evaluation(p);
  if (job->loss_chunk < (uint64_t)job->micro_batch * job->sequence_length) unlike(&p->info, "the loss is not chunked");
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

static hr_status answer(hr_pytorch *p, const hr_job *job, hr_error *error) {
  hr_pytorch_info *info = &p->info;
  hri_torch_replay within;
  uint64_t room;
  HRI_TRY(hri_torch_replay_run(&p->torch, &p->config, 0, &p->replay, error));
  info->allocated_bytes = p->replay.whole.allocated_bytes;
  info->reserved_bytes = p->replay.whole.reserved_bytes;
  info->error_low = HRI_TORCH_ERROR_LOW;
  info->error_high = HRI_TORCH_ERROR_HIGH;
  info->context_bytes = job->device.fixed_bytes;
  info->device_used_bytes = info->reserved_bytes + info->context_bytes;
  info->budget_bytes = job->budget_bytes;
  info->peak_phase = (hr_pytorch_phase)p->replay.peak_phase;
  info->peak_step = p->replay.peak_step;
  info->request_count = p->torch.requests.count;
  info->host_bytes = host_bytes(p);
  tell_phases(p);
  HRI_TRY(list_live(p, error));
  room = info->budget_bytes > info->context_bytes ? info->budget_bytes - info->context_bytes : 0;
  info->fits = info->reserved_bytes <= room;
  if (info->fits || info->allocated_bytes > room) {
    if (!info->fits) info->missing_bytes = info->allocated_bytes - room;
    return HR_OK;
  }
  HRI_TRY(hri_torch_replay_run(&p->torch, &p->config, room, &within, error));
  info->fits = within.fits;
  info->retries = within.retries > 0 ? (uint64_t)within.retries : 0;
  return HR_OK;
}

hr_status hr_pytorch_create(const hr_job *job, const hr_pytorch_options *options, hr_pytorch **pytorch,
                            hr_error *error) {
  hr_pytorch_options usual;
  hri_torch_settings settings;
  hr_pytorch *p;
  hr_status status = HR_OK;
  *pytorch = NULL;
  hr_pytorch_options_init(&usual);
  if (!options) options = &usual;
  HRI_TRY(hri_torch_settings_parse(options->conf, &settings, error));
  if (settings.eval_batches && options->stack != HR_PYTORCH_TRAINER)
    return hri_fail(error, HR_ERROR_UNSUPPORTED,
                    "--engine pytorch:plain has no evaluation; that of the Trainer is pytorch:trainer's");
  HRI_TRY(check_shared(&settings, options, error));
  HRI_TRY(refuse(job, &settings, options, error));
  p = hri_alloc_zero(1, sizeof *p);
  if (!p) return hri_fail_memory(error, sizeof *p, "what PyTorch would need");
  p->info.versions = versions;
  p->settings = settings;
  hri_torch_init(&p->torch);
  p->config = hr_alloc_config_default();
  HRI_TRY_OUT(hr_alloc_config_parse(options->alloc_conf, &p->config, error));
  set_job(p, job, options->stack);
  set_ranks(p, options);
  p->device = hri_aten_device_of(job->device.compute_capability);
  p->torch.kernels = &p->device;
  if (!hri_torch_run(&p->torch, &p->job)) status = hri_fail_memory(error, 32 * MIB, "PyTorch's requests");
  if (status == HR_OK) status = answer(p, job, error);
out:
  if (status != HR_OK) hr_pytorch_destroy(p);
  else *pytorch = p;
  return status;
}

const hr_pytorch_info *hr_pytorch_get(const hr_pytorch *pytorch) { return &pytorch->info; }

bool hr_pytorch_live_get(const hr_pytorch *pytorch, uint32_t index, hr_pytorch_live *live) {
  if (index >= pytorch->live.count) return false;
  *live = pytorch->live.items[index];
  return true;
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
