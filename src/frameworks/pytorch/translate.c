/* The translation (translate.h) for transformers' models, in the Trainer and its stacks or in a loop of one's own. A setting is said where it is
 * decided, so that the words are in the order of the steps of `translate`. */
#include "frameworks/pytorch/translate.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

void hri_torch_say(hri_torch_translation *out, const char *format, ...) {
  size_t used = strlen(out->settings);
  va_list args;
  va_start(args, format);
  (void)hri_vsnprintf(out->settings + used, sizeof out->settings - used, format, args);
  va_end(args);
}

void hri_torch_say_unlike(hri_torch_translation *out, const char *what) {
  size_t used = strlen(out->unlike);
  (void)snprintf(out->unlike + used, sizeof out->unlike - used, "%s%s", used ? "; " : "", what);
}

/* ---- what is decided in one place for all ---- */

/* fp4 has nf4's sizes. */
hri_torch_quantized hri_torch_quantized_as(hr_quantize quantize) {
  if (quantize == HR_QUANTIZE_INT8) return HRI_TORCH_INT8;
  if (quantize == HR_QUANTIZE_NF4 || quantize == HR_QUANTIZE_FP4) return HRI_TORCH_NF4;
  return quantize == HR_QUANTIZE_NF4_DQ || quantize == HR_QUANTIZE_FP4_DQ ? HRI_TORCH_NF4_DOUBLE : HRI_TORCH_WHOLE;
}

bool hri_torch_is_eager(const hr_job *job, const hri_torch_settings *s) {
  if (s->implementation != HRI_IMPLEMENTATION_OF_JOB) return s->implementation == HRI_IMPLEMENTATION_EAGER;
  /* transformers has soft-capped scores there alone */
  return job->attention == HR_ATTENTION_MATERIALIZED || job->model.attention_softcap > 0;
}

hri_sdpa hri_torch_kernel_of(const hri_torch_settings *s) {
  static const hri_sdpa kernels[HRI_KERNELS] = {HRI_SDPA_FLASH, HRI_SDPA_FLASH, HRI_SDPA_EFFICIENT, HRI_SDPA_FLASH,
                                                HRI_SDPA_MATH};
  return s->implementation == HRI_IMPLEMENTATION_FLASH_2 ? HRI_SDPA_FLASH : kernels[s->kernel];
}

const char *hri_torch_attention_name(const hri_torch_job *job, const hri_torch_settings *s) {
  if (job->recipe.packed) return "flex_attention";
  if (s->implementation == HRI_IMPLEMENTATION_FLASH_2) return "flash_attention_2";
  return job->attention == HRI_TORCH_EAGER ? "eager" : "sdpa";
}

hri_torch_lora_kernels hri_torch_lora_kernels_of(const hr_job *job, const hri_torch_settings *s,
                                                 const hri_torch_stack *stack) {
  bool usual = !hri_torch_names_lora_kernels(s) && job->quantize != HR_QUANTIZE_INT8;
  if (!stack->lora_kernels || job->model.lora.rank == 0) return (hri_torch_lora_kernels){0};
  if (usual) return (hri_torch_lora_kernels){true, true, true};
  return (hri_torch_lora_kernels){s->qkv_kernel == HRI_TRUE, s->o_kernel == HRI_TRUE, s->mlp_kernel == HRI_TRUE};
}

void hri_torch_set_optimizer(hri_torch_translation *out, hri_torch_optim optim, bool momentum) {
  static const struct {
    hri_torch_optimizer optimizer;
    const char *text;
  } of[HRI_OPTIMS] = {
      [HRI_OPTIM_ADAMW_TORCH] = {HRI_TORCH_ADAMW, "AdamW foreach"},
      [HRI_OPTIM_ADAMW_TORCH_FUSED] = {HRI_TORCH_ADAMW_FUSED, "AdamW fused"},
      [HRI_OPTIM_ADAMW_BNB_8BIT] = {HRI_TORCH_ADAMW_8BIT, "AdamW 8-bit by bitsandbytes"},
      [HRI_OPTIM_PAGED_ADAMW_8BIT] = {HRI_TORCH_ADAMW_8BIT, "paged AdamW 8-bit by bitsandbytes"},
      [HRI_OPTIM_SGD] = {HRI_TORCH_SGD, "SGD"},
      [HRI_OPTIM_ADAFACTOR] = {HRI_TORCH_ADAFACTOR, "Adafactor by transformers"},
      [HRI_OPTIM_ADAFACTOR_TORCH] = {HRI_TORCH_ADAFACTOR_TORCH, "Adafactor by torch"},
  };
  out->job.optimizer = momentum ? HRI_TORCH_SGD_MOMENTUM : of[optim].optimizer;
  out->job.paged = optim == HRI_OPTIM_PAGED_ADAMW_8BIT;
  hri_torch_say(out, ", %s%s", of[optim].text, momentum ? " with momentum" : "");
  if (out->job.paged) hri_torch_say_unlike(out, "paged states are host memory as far as the device's figures go");
}

/* Which tensors have states of 8 bits is nobody's to choose there. */
static void say_states(hri_torch_translation *out, const hr_job *job) {
  const bool wide =
      out->job.wide_embeddings && out->job.sharing < HRI_TORCH_ZERO; /* DeepSpeed's tensors are joined ones */
  if (job->optimizer != HR_OPTIMIZER_ADAMW8BIT || wide == (job->states_8bit == HR_STATES_8BIT_WEIGHTS)) return;
  hri_torch_say_unlike(out, wide ? "embeddings keep states of 32 bits, as the Trainer asks"
                                 : "embeddings have states of 8 bits too");
}

void hri_torch_say_left_out(hri_torch_translation *out, const hr_job *job) {
  say_states(out, job);
  if (job->workspace != HR_WORKSPACE_AUTO) hri_torch_say_unlike(out, "cuBLAS takes its usual workspace");
  if (job->neftune_alpha > 0 || job->label_smoothing > 0) hri_torch_say_unlike(out, "without noise and smoothing");
}

/* ---- the model and its weights ---- */

static void set_batch(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hr_job *job = asked->job;
  hri_torch_job *t = &out->job;
  t->model = &job->model;
  t->version = asked->settings->version;
  t->batch = job->micro_batch;
  t->tokens = job->sequence_length;
  t->accumulate = job->accumulate;
  t->steps = 2;
  t->clip = job->clip > 0;
  t->dropout = hri_model_dropout(&job->model, job->dropout > 0 ? job->dropout : HR_DROPOUT_CONFIG); /* holds there */
  t->mask = true;
  t->padded = job->packing == HR_PACKING_OFF;
  t->capability = job->device.compute_capability;
  t->resumed = asked->settings->resumed;
  t->liger = asked->settings->liger;
}

/* Names of tensors may be longer than all that is said; arguments have them whole. */
static void say_names(hri_torch_translation *out, const char *before, const char *names) {
  enum { MOST = 100 };
  const size_t length = strlen(names);
  size_t shown = length > MOST ? MOST - 3 : length;
  while (shown < length && ((unsigned char)names[shown] & 0xC0) == 0x80) shown--; /* no part of a character */
  hri_torch_say(out, "%s%.*s%s", before, (int)shown, names, shown < length ? "..." : "");
}

static void set_frozen(const hr_job *job, hri_torch_translation *out) {
  out->job.frozen = (hri_module_frozen){job->freeze, job->train_only};
  if (job->freeze) say_names(out, "", job->freeze);
  if (job->train_only) say_names(out, job->freeze ? ", all but " : "all but ", job->train_only);
  if (job->freeze || job->train_only) hri_torch_say(out, " without gradient, ");
}

/* 16 bits under autocast. */
static bool is_half(const hr_job *job) {
  return job->precision == HR_PRECISION_BF16 || job->precision == HR_PRECISION_FP16;
}

/* What a stack does beside the Trainer's own. */
static void set_stack(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hri_torch_settings *s = asked->settings;
  const hri_torch_stack *stack = asked->stack;
  hri_torch_lora_kernels kernels = hri_torch_lora_kernels_of(asked->job, s, stack);
  bool adapted = asked->job->model.lora.rank > 0;
  hri_torch_job *t = &out->job;
  t->trainer = stack->trainer;
  t->prepared = stack->prepared;
  t->loading = stack->loading;
  t->empties_cache = stack->empties_cache;
  t->adapted_input = stack->adapted_input;
  t->checkpoints_trained = stack->checkpoints_trained;
  t->counts_tokens = stack->counts_tokens;
  t->packed = s->packing;
  t->fused_head = stack->fused_head;
  t->keeps_outputs = !stack->trainer;
  t->wide_norms = s->wide_norms;
  t->wide_trained = stack->wide_trained && is_half(asked->job) && !adapted;
  t->qkv_kernel = kernels.qkv;
  t->o_kernel = kernels.o;
  t->mlp_kernel = kernels.mlp;
  if (stack->half_weights && s->implementation == HRI_IMPLEMENTATION_FLASH_2 && !adapted)
    t->prepared = HRI_PREPARED_BY_NOBODY; /* attn_needs_dtype_cast: 16 bits again */
}

static void set_attention(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hri_torch_settings *s = asked->settings;
  out->job.attention = hri_torch_is_eager(asked->job, s) ? HRI_TORCH_EAGER : HRI_TORCH_SDPA;
  out->job.kernel_forced = s->kernel != HRI_KERNEL_CHOSEN || s->implementation == HRI_IMPLEMENTATION_FLASH_2;
  out->job.kernel = hri_torch_kernel_of(s);
}

static void set_quantized(const hri_torch_asked *asked, hri_torch_translation *out) {
  static const char *const words[][2] = {{"nf4", "nf4 with double quantization"},
                                         {"fp4", "fp4 with double quantization"}};
  const hr_job *job = asked->job;
  hri_torch_job *t = &out->job;
  bool fp4 = job->quantize == HR_QUANTIZE_FP4 || job->quantize == HR_QUANTIZE_FP4_DQ;
  t->quantized = hri_torch_quantized_as(job->quantize);
  if (t->quantized == HRI_TORCH_WHOLE) return;
  t->weights = job->precision == HR_PRECISION_FP16 ? HRI_F16 : HRI_BF16;
  if (asked->settings->bf16_storage) { /* what lies beside the codes must have their type: nobody makes it fp32 */
    t->storage = HRI_BF16;
    t->prepared = HRI_PREPARED_BY_NOBODY;
    hri_torch_say(out, "codes kept in bf16 (bnb_4bit_quant_storage), ");
  }
  hri_torch_say(out, "base in %s by bitsandbytes, products in %s, %s",
                t->quantized == HRI_TORCH_INT8 ? "8 bits" : words[fp4][t->quantized == HRI_TORCH_NF4_DOUBLE],
                t->weights == HRI_F16 ? "fp16" : "bf16",
                t->prepared == HRI_PREPARED_BY_PEFT || t->prepared == HRI_PREPARED_BY_AXOLOTL
                    ? "prepare_model_for_kbit_training, "
                    : "");
  if (t->quantized == HRI_TORCH_INT8) hri_torch_say_unlike(out, "inputs of 8-bit modules have no outliers here");
}

/* ---- precision ---- */

/* fully_shard by accelerate, whose policy casts. */
static bool shards_without_autocast(const hri_torch_asked *asked) {
  const hri_torch_shared *s = &asked->settings->shared;
  return asked->stack->trainer && s->fsdp == HRI_TRUE && s->fsdp_version != 1;
}

/* Under autocast: weights in fp32, or in 16 bits, of which what trains may be fp32. */
static void set_autocast(const hri_torch_asked *asked, hri_torch_translation *out, hri_ten_type type,
                         const char *word) {
  bool narrow = asked->stack->half_weights && type == HRI_BF16;
  const char *scaled = type == HRI_F16 ? " with GradScaler" : "";
  out->job.autocast = type;
  out->job.scaler = type == HRI_F16;
  if (narrow || out->job.wide_trained) out->job.weights = type;
  if (shards_without_autocast(asked)) hri_torch_say(out, "%s=True%s, fp32 weights", word, scaled);
  else hri_torch_say(out, "autocast to %s%s, %s weights", word, scaled, narrow ? word : "fp32");
}

/* The same beside adapters, where the frozen base is loaded in 16 bits. */
static void set_autocast_of_adapters(const hri_torch_asked *asked, hri_torch_translation *out, hri_ten_type type,
                                     const char *word) {
  out->job.weights = out->job.autocast = type;
  out->job.scaler = type == HRI_F16;
  if (shards_without_autocast(asked)) hri_torch_say(out, "%s=True, %s base", word, word);
  else if (out->job.quantized) hri_torch_say(out, "autocast to %s", word);
  else hri_torch_say(out, "%s base under autocast", word);
}

static void set_pure(const hr_job *job, hri_torch_translation *out) {
  out->job.weights = HRI_BF16;
  if (job->model.lora.rank) {
    hri_torch_say(out, "no autocast, adapters and their states in fp32");
    return;
  }
  hri_torch_say(out, "bf16 weights and optimizer states");
  if (job->moments != HR_MOMENTS_BF16) hri_torch_say_unlike(out, "optimizer states have the weights' type in PyTorch");
}

static void set_precision(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hr_job *job = asked->job;
  bool fp16 = job->precision == HR_PRECISION_FP16, pure = job->precision == HR_PRECISION_BF16_PURE;
  hri_ten_type type = fp16 ? HRI_F16 : HRI_BF16;
  const char *word = fp16 ? "fp16" : "bf16";
  if (!is_half(job) && !pure) {
    hri_torch_say(out, job->precision == HR_PRECISION_TF32 ? "tf32" : "fp32");
  } else if (asked->settings->shared.zero_stage) { /* the engine's own */
    out->job.weights = type;
    hri_torch_say(out, "%s weights with fp32 ones for the optimizer", word);
  } else if (pure) {
    set_pure(job, out);
  } else if (job->model.lora.rank) {
    set_autocast_of_adapters(asked, out, type, word);
  } else {
    set_autocast(asked, out, type, word);
  }
  if (out->job.prepared == HRI_PREPARED_BY_AXOLOTL && !job->model.lora.rank && out->job.weights != HRI_F32)
    hri_torch_say(out, ", embeddings, head and norms in fp32");
}

/* ---- the loop ---- */

static void set_optimizer(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hr_job *job = asked->job;
  hri_torch_optim optim = hri_torch_stack_optim(asked->stack, job, asked->settings);
  hri_torch_set_optimizer(out, optim, optim == HRI_OPTIM_SGD && job->optimizer == HR_OPTIMIZER_MOMENTUM);
  out->job.wide_embeddings = out->job.optimizer == HRI_TORCH_ADAMW_8BIT && asked->stack->trainer;
  if (job->update == HR_UPDATE_IN_BACKWARD) hri_torch_say_unlike(out, "updates are behind the backward");
}

static void set_recompute(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hr_recompute_kind kind = asked->job->recompute.kind;
  if (!asked->settings->checkpointing) return;
  out->job.checkpoint = true;
  out->job.reentrant = asked->settings->reentrant;
  hri_torch_say(out, ", gradient checkpointing%s", out->job.reentrant ? " with use_reentrant" : "");
  if (kind != HR_RECOMPUTE_BLOCK && kind != HR_RECOMPUTE_NONE)
    hri_torch_say_unlike(out, "gradient checkpointing is of every block");
}

static void set_cache(const hri_torch_settings *s, hri_torch_translation *out) {
  if (!s->use_cache) return;
  if (out->job.checkpoint) {
    hri_torch_say_unlike(out, "gradient checkpointing turns use_cache off");
    return;
  }
  out->job.use_cache = true;
  hri_torch_say(out, ", use_cache left on");
}

static void set_evaluation(const hri_torch_asked *asked, hri_torch_translation *out) {
  enum { USUAL = 8 }; /* TrainingArguments.per_device_eval_batch_size */
  const hri_torch_settings *s = asked->settings;
  const bool alike = asked->stack->evaluates_as_trains;
  const uint64_t usual = alike ? out->job.batch : USUAL;
  hri_torch_evaluation *e = &out->job.evaluation;
  if (s->eval_batches == 0) return;
  *e = (hri_torch_evaluation){s->eval_rows ? s->eval_rows : usual, s->eval_batches, s->metrics || s->predict,
                              alike ? out->job.accumulate : s->eval_to_host, s->eval_steps};
  hri_torch_say(out, ", evaluation of %u batches of %u%s", e->batches, (unsigned)e->rows,
                s->metrics ? " with compute_metrics" : "");
  if (s->predict) hri_torch_say(out, ", predict()");
  if (e->middle) hri_torch_say(out, ", between steps too");
  if (e->to_host) hri_torch_say(out, ", eval_accumulation_steps=%u", e->to_host);
  if (!e->metrics && !e->to_host && e->batches > 3) e->batches = 3; /* the third asks for what all others ask for */
}

/* ---- what was set, in words ---- */

static void say_attention(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hri_torch_settings *s = asked->settings;
  hri_torch_say(out, ", attention %s", hri_torch_attention_name(&out->job, s));
  if (s->kernel != HRI_KERNEL_CHOSEN) hri_torch_say(out, " by %s", hri_torch_kernel_name(s->kernel));
  if (out->job.padded) hri_torch_say(out, " with a padding mask");
}

static void say_adapters(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hr_lora *lora = &asked->job->model.lora;
  bool narrow = asked->stack->prepared == HRI_PREPARED_BY_TRL && out->job.quantized;
  if (!lora->rank) return;
  hri_torch_say(out, ", %sadapters of rank %u by PEFT in %s", lora->dora ? "DoRA's " : "", lora->rank,
                narrow ? "bf16" : "fp32");
  if (lora->saved) hri_torch_say(out, " beside whole modules");
}

/* One number where all places have it. */
static void say_dropout(hri_torch_translation *out) {
  const hri_dropout d = out->job.dropout;
  const double residual = fmax(d.attention_output, d.mlp);
  if (d.attention == 0 && residual == 0 && d.embedding == 0) return;
  if (d.attention == residual && residual == d.embedding) hri_torch_say(out, ", dropout %g", d.attention);
  else
    hri_torch_say(out, ", dropout %g of attention, %g of residuals, %g of embeddings", d.attention, residual,
                  d.embedding);
}

static void say_stack(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hri_torch_stack *stack = asked->stack;
  const hri_torch_job *t = &out->job;
  if (t->fused_head) hri_torch_say(out, ", fused head");
  if (t->qkv_kernel || t->o_kernel || t->mlp_kernel)
    hri_torch_say(out, ", axolotl's LoRA kernels (%s%s%s)", t->mlp_kernel ? "mlp" : "",
                  t->qkv_kernel ? (t->mlp_kernel ? ", qkv" : "qkv") : "", t->o_kernel ? ", o" : "");
  if (t->wide_norms) hri_torch_say(out, ", norms in fp32");
  if (t->packed) hri_torch_say(out, ", sample packing");
  if (t->packed) hri_torch_say_unlike(out, "rows have four documents each");
  if (t->wide_trained && (t->frozen.freeze || t->frozen.train_only))
    hri_torch_say(out, ", what trains in fp32, the rest in 16 bits");
  if (!asked->alloc_conf && stack->alloc_conf) hri_torch_say(out, ", %s", stack->alloc_conf);
  if (stack->version) hri_torch_say(out, ", defaults of %s", stack->version);
}

/* ---- several ranks ---- */

static hri_ten_type type_of(hri_torch_word_type word) {
  return word == HRI_TYPE_BF16 ? HRI_BF16 : word == HRI_TYPE_FP16 ? HRI_F16 : HRI_F32;
}

static const char *type_word(hri_ten_type type) {
  return type == HRI_BF16 ? "bf16" : type == HRI_F16 ? "fp16" : "fp32";
}

static void set_ddp(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hri_torch_shared *s = &asked->settings->shared;
  hri_ddp_settings *ddp = &out->job.ddp;
  bool usual = hri_torch_stack_finds_unused(asked->stack, asked->job->model.lora.rank > 0, out->job.checkpoint);
  out->job.sharing = HRI_TORCH_DDP;
  ddp->ranks = out->job.ranks;
  ddp->bucket_view = s->bucket_view == HRI_TRUE;
  ddp->find_unused = s->find_unused ? s->find_unused == HRI_TRUE : usual;
  ddp->bucket_bytes = (uint64_t)s->bucket_mb << 20;
  hri_torch_say(out, ", DistributedDataParallel over %u ranks%s%s", ddp->ranks,
                ddp->find_unused ? " with find_unused_parameters" : "",
                ddp->bucket_view ? ", gradient_as_bucket_view" : "");
  if (s->bucket_mb) hri_torch_say(out, ", buckets of %u MiB", s->bucket_mb);
}

static void set_fsdp(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hri_torch_shared *s = &asked->settings->shared;
  hri_torch_job *t = &out->job;
  hri_fsdp_settings *fsdp = &t->fsdp;
  bool trainer = t->trainer;
  t->sharing = HRI_TORCH_FSDP2;
  fsdp->ranks = t->ranks;
  fsdp->by_accelerate = trainer;
  fsdp->flat = s->fsdp_version == 1;
  fsdp->keeps = s->reshards == HRI_FALSE;
  fsdp->offload = s->offload == HRI_TRUE;
  fsdp->mixed = trainer ? t->autocast != HRI_F32 : s->param != HRI_TYPE_UNSAID;
  fsdp->param = trainer ? t->autocast : type_of(s->param);
  fsdp->reduce = trainer || !s->reduce ? fsdp->param : type_of(s->reduce);
  fsdp->casts_output = trainer && fsdp->mixed && !fsdp->flat;
  if (shards_without_autocast(asked)) t->autocast = HRI_F32;
  t->wrapped = s->wrapped == HRI_TRUE;
  t->checkpoint = t->checkpoint || t->wrapped;
  hri_torch_say(out, ", %s over %u ranks%s%s%s", fsdp->flat ? "FullyShardedDataParallel" : "fully_shard", t->ranks,
                fsdp->keeps ? ", reshard_after_forward=False" : "", fsdp->offload ? ", CPUOffloadPolicy" : "",
                t->wrapped ? ", its activation_checkpointing" : "");
  if (fsdp->mixed)
    hri_torch_say(out, ", param_dtype %s, reduce_dtype %s", type_word(fsdp->param), type_word(fsdp->reduce));
}

static void set_zero(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hri_torch_shared *s = &asked->settings->shared;
  hri_torch_job *t = &out->job;
  t->zero = (hri_zero_settings){t->ranks, s->zero_stage, s->offload_optimizer, t->trainer, s->reduce_elements};
  t->zero3 = (hri_zero3_settings){t->ranks,   s->offload_optimizer, s->offload_param,
                                  t->trainer, s->reduce_elements,   s->prefetch_elements};
  t->sharing = s->zero_stage == 3 ? HRI_TORCH_ZERO3 : HRI_TORCH_ZERO;
  hri_torch_say(out, ", DeepSpeed's ZeRO-%u over %u ranks%s%s", s->zero_stage, t->ranks,
                s->offload_optimizer ? ", offload_optimizer to cpu" : "",
                s->offload_param ? ", offload_param to cpu" : "");
}

static void set_ranks(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hri_torch_shared *s = &asked->settings->shared;
  out->job.ranks = asked->ranks ? asked->ranks : 1;
  if (out->job.ranks == 1) return;
  if (s->fsdp == HRI_TRUE) set_fsdp(asked, out);
  else if (s->zero_stage) set_zero(asked, out);
  else set_ddp(asked, out);
  hri_torch_say_unlike(out, "what NCCL takes beside the allocator is not counted");
}

/* ---- all of it ---- */

static void translate(const hri_torch_asked *asked, hri_torch_translation *out) {
  const hr_job *job = asked->job;
  const hri_torch_job *t = &out->job;
  set_batch(asked, out);
  set_frozen(job, out);
  set_stack(asked, out);
  set_attention(asked, out);
  set_quantized(asked, out);
  set_precision(asked, out);
  set_optimizer(asked, out);
  set_recompute(asked, out);
  say_attention(asked, out);
  say_adapters(asked, out);
  set_cache(asked->settings, out);
  if (t->resumed) hri_torch_say(out, ", resumed from a checkpoint");
  say_dropout(out);
  if (t->liger) hri_torch_say(out, ", kernels of liger-kernel 0.8.5");
  say_stack(asked, out);
  set_evaluation(asked, out);
  if (job->loss_chunk < (uint64_t)job->micro_batch * job->sequence_length && !t->fused_head && !t->liger)
    hri_torch_say_unlike(out, "the loss is not chunked");
  set_ranks(asked, out);
  hri_torch_say_left_out(out, job);
}

void hri_torch_translate(const hri_torch_asked *asked, hri_torch_translation *out) {
  memset(out, 0, sizeof *out);
  if (asked->stack->recipes) hri_torch_translate_recipe(asked, out);
  else translate(asked, out);
}
