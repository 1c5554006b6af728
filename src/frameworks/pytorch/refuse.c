/* What there are no rules for, by the job's own words (refuse.h). */
#include "frameworks/pytorch/refuse.h"

#include "base/error.h"
#include "frameworks/pytorch/pass.h"
#include "frameworks/pytorch/translate.h"
#include "model/freeze.h"

/* Beside adapters of linear modules the embedding and the head may train whole. */
static bool other_adapters(const hr_lora *lora) {
  uint32_t known = 1u << HRI_SLOT_TOKEN_EMBEDDING | 1u << HRI_SLOT_HEAD_WEIGHT;
  return lora->rank && (lora->bias != HR_LORA_BIAS_NONE || (lora->saved & ~known) || lora->embedding);
}

/* Families that were recorded, of which there are rules, with the activations that they were recorded with. */
static bool family_has_rules(const hr_model *m) {
  bool gelu = m->family == HR_FAMILY_GPT2 || m->family == HR_FAMILY_GEMMA2 || m->family == HR_FAMILY_GEMMA3;
  if (m->family > HR_FAMILY_GEMMA3) return false; /* in the order in which they were added */
  return m->activation == (gelu ? HR_ACTIVATION_GELU_TANH : HR_ACTIVATION_SILU);
}

/* Recorded are 16-bit products, and 8 bits with families of plain Linear modules. */
static const char *refuse_quantized(const hr_job *job) {
  hr_family family = job->model.family;
  hr_quantize files = job->model.quantization;
  bool plain = family != HR_FAMILY_GPT2 && family != HR_FAMILY_GEMMA2 && family != HR_FAMILY_GEMMA3;
  if (job->quantize == HR_QUANTIZE_NONE && files == HR_QUANTIZE_NONE) return NULL;
  if (hri_torch_quantized_as(job->quantize) == HRI_TORCH_WHOLE || (files != HR_QUANTIZE_NONE && files != job->quantize))
    return "no rules for these quantized weights; there are for --quantize nf4, fp4, either with +dq, and int8";
  if (hri_torch_quantized_as(job->quantize) == HRI_TORCH_INT8 && !plain)
    return "no rules for 8-bit weights of this family; there are for llama, mistral, qwen2, qwen3 and phi3";
  if (job->precision == HR_PRECISION_FP32 || job->precision == HR_PRECISION_TF32)
    return "rules for quantized weights with products in 16 bits alone (--precision bf16, fp16 or bf16-pure)";
  return NULL;
}

static const char *refuse_device(const hr_job *job) {
  if (job->device.compute_capability == 0) return "rules for GPUs of NVIDIA's alone";
  if (job->device.compute_capability < 70) return "no rules for compute capability below 7.0";
  return NULL;
}

/* Of products: what autocast or the weights make them. */
static hri_ten_type type_of(hr_precision precision) {
  if (precision == HR_PRECISION_FP16) return HRI_F16;
  return precision == HR_PRECISION_BF16 || precision == HR_PRECISION_BF16_PURE ? HRI_BF16 : HRI_F32;
}

/* A kernel that is asked for must be able to. A window that some rows do not fit in is a mask. */
static const char *refuse_attention(const hr_job *job, const hri_torch_settings *s) {
  const hr_model *m = &job->model;
  bool forced = s->kernel != HRI_KERNEL_CHOSEN || s->implementation == HRI_IMPLEMENTATION_FLASH_2, some, all, mask;
  hri_module_kinds_of_layers(m, &some, &all);
  mask = job->packing == HR_PACKING_OFF || (some && job->sequence_length >= m->sliding_window);
  if (m->attention_softcap > 0 && !hri_torch_is_eager(job, s))
    return "no rules for soft-capped scores in fused attention; attn_implementation=eager";
  if (s->kernel != HRI_KERNEL_CHOSEN && hri_torch_is_eager(job, s))
    return "no kernel to choose in eager attention: sdpa_kernel is of attn_implementation=sdpa";
  if (forced && !hri_attention_has_kernel(hri_torch_kernel_of(s), job->device.compute_capability,
                                          type_of(job->precision), m->head_size, mask))
    return "no such attention here: flash and cuDNN take 16 bits without a mask of padding or window from compute "
           "capability 8.0 on, the memory-efficient kernel no bf16 below 8.0; sdpa_kernel=math takes all";
  return NULL;
}

/* Families as versions have them. */
static const char *refuse_version(const hr_job *job, const hri_torch_settings *s) {
  const hr_family family = job->model.family;
  if (s->version < HRI_TRANSFORMERS_4_49) return NULL;
  if (family == HR_FAMILY_QWEN3) return "no qwen3 in transformers before 4.51; transformers=4.57 or 5";
  if (family == HR_FAMILY_GEMMA3) return "no gemma3_text in transformers before 4.50; transformers=4.57 or 5";
  if (job->quantize != HR_QUANTIZE_NONE) return "rules for quantized weights of transformers=5 alone";
  return NULL;
}

/* Liger's kernels as the newest Trainer puts them into families that they know. Where the head trains as a copy, Liger takes the one that does not. */
static const char *refuse_liger(const hr_job *job, const hri_torch_settings *s) {
  if (!s->liger) return NULL;
  if (job->model.family == HR_FAMILY_GPT2)
    return "no kernels of Liger's for gpt2: there are for llama, mistral, qwen2, qwen3, phi3, gemma2 and gemma3_text";
  if (s->version != HRI_TRANSFORMERS_5) return "rules for use_liger_kernel=true with transformers=5 alone";
  if (job->model.lora.saved) return "no rules for use_liger_kernel=true beside whole modules (modules_to_save)";
  return NULL;
}

/* Reentrant checkpointing runs a block without a graph where its input needs no gradient. */
static bool freezes_input(const hr_job *job, const hri_torch_settings *s) {
  bool reentrant = s->reentrant && s->checkpointing && !s->checkpoints_trained && job->model.lora.rank == 0;
  hri_param_spec spec;
  hri_param_get(&job->model, 0, &spec);
  return reentrant && !hri_part_trains(&job->model, &spec, &spec.parts[0], job->freeze, job->train_only);
}

/* Whether a setting names another optimizer than the option does; it may name an implementation of the same. */
static bool other_optimizer(const hr_job *job, hri_torch_optim optim) {
  bool narrow = optim == HRI_OPTIM_ADAMW_BNB_8BIT || optim == HRI_OPTIM_PAGED_ADAMW_8BIT;
  if (!(job->given & HR_GIVEN_OPTIMIZER) || optim == HRI_OPTIM_OF_JOB) return false;
  switch (job->optimizer) {
  case HR_OPTIMIZER_ADAMW: return !narrow && optim != HRI_OPTIM_ADAMW_TORCH && optim != HRI_OPTIM_ADAMW_TORCH_FUSED;
  case HR_OPTIMIZER_ADAMW8BIT: return !narrow;
  case HR_OPTIMIZER_SGD:
  case HR_OPTIMIZER_MOMENTUM: return optim != HRI_OPTIM_SGD;
  case HR_OPTIMIZER_ADAFACTOR: return optim != HRI_OPTIM_ADAFACTOR && optim != HRI_OPTIM_ADAFACTOR_TORCH;
  default: return true;
  }
}

static hr_status refuse_two_optimizers(const hr_job *job, hri_torch_optim optim, hr_error *error) {
  if (!other_optimizer(job, optim)) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "--optimizer %s and --engine-conf name two optimizers: leave one of them out",
                  hr_optimizer_name(job->optimizer));
}

/* Models and optimizers as transformers has them, whatever runs them. */
static hr_status refuse_job(const hr_job *job, const hri_torch_settings *settings, hr_error *error) {
  const char *what = NULL;
  bool known = job->optimizer == HR_OPTIMIZER_ADAMW || job->optimizer == HR_OPTIMIZER_SGD ||
               job->optimizer == HR_OPTIMIZER_MOMENTUM || job->optimizer == HR_OPTIMIZER_ADAMW8BIT ||
               job->optimizer == HR_OPTIMIZER_ADAFACTOR;
  if (!family_has_rules(&job->model))
    return hri_fail(
        error, HR_ERROR_UNSUPPORTED,
        "--engine pytorch has no rules for the family %s%s: gpt2, llama, mistral, qwen2, qwen3, phi3, gemma2 "
        "and gemma3_text, each with its usual activation, were recorded",
        hr_family_name(job->model.family), job->model.family > HR_FAMILY_GEMMA3 ? "" : " with this activation");
  HRI_TRY(refuse_two_optimizers(job, settings->optim, error));
  if (job->purpose != HR_PURPOSE_TRAIN) what = "no rules for anything but training";
  else if (other_adapters(&job->model.lora))
    what =
        "rules for adapters of linear modules, beside which the embedding and the head may train whole, alone (no bias, "
        "no adapter of the embedding, no other modules_to_save)";
  else if (freezes_input(job, settings))
    what = "nothing to train here: with frozen embeddings use_reentrant=true cuts the graph; use_reentrant=false";
  else if (!known && settings->optim == HRI_OPTIM_OF_JOB)
    what = "no rules for this --optimizer; there are for adamw, adamw8bit, adafactor, sgd and momentum";
  else what = refuse_device(job);
  if (!what) what = refuse_version(job, settings);
  if (!what) what = refuse_attention(job, settings);
  if (!what) what = refuse_quantized(job);
  if (!what) what = refuse_liger(job, settings);
  if (!what) return HR_OK;
  return hri_fail(error, HR_ERROR_UNSUPPORTED, "--engine pytorch has %s", what);
}

/* ---- torchtune's recipes ---- */

/* Models of its builders, whose sizes are arguments: what else a description says must be as they have it. */
static const char *refuse_recipe_model(const hr_model *m) {
  bool gemma = m->family == HR_FAMILY_GEMMA2 || m->family == HR_FAMILY_GEMMA,
       scaled = m->rope.scaling == HR_ROPE_LLAMA3;
  bool width = (uint64_t)m->head_count * m->head_size == m->hidden_size;
  if (m->family != HR_FAMILY_LLAMA && m->family != HR_FAMILY_MISTRAL && m->family != HR_FAMILY_QWEN2 &&
      m->family != HR_FAMILY_PHI3 && !gemma)
    return "no rules for this family; of torchtune 0.6's there are for llama, mistral, qwen2, phi3, gemma and gemma2";
  if ((m->rope.scaling != HR_ROPE_DEFAULT && !(scaled && m->family == HR_FAMILY_LLAMA)) ||
      m->rotary_size != m->head_size)
    return "no rules for this rotary embedding, of which torchtune 0.6 has no module for the family";
  if ((!width && !gemma) || m->attention_output_bias || m->mlp_bias || m->qkv_bias != (m->family == HR_FAMILY_QWEN2))
    return "no rules for these linear modules: torchtune 0.6 has no builder with such heads or biases";
  if (m->tied_embeddings && !scaled && m->family != HR_FAMILY_QWEN2 && !gemma)
    return "no rules for a tied head here: torchtune 0.6 ties it in llama3_2, qwen2, gemma and gemma2";
  return NULL;
}

/* All layers have the same adapters, and MLPs all three of them or none. */
static const char *refuse_recipe_adapters(const hr_model *m) {
  const uint32_t attention =
      1u << HR_MODULE_Q | 1u << HR_MODULE_K | 1u << HR_MODULE_V | 1u << HR_MODULE_ATTENTION_OUTPUT;
  const uint32_t up = m->family == HR_FAMILY_PHI3 ? 0 : 1u << HR_MODULE_MLP_UP;
  const uint32_t mlp = 1u << HR_MODULE_MLP_GATE | up | 1u << HR_MODULE_MLP_DOWN;
  const hr_lora *lora = &m->lora;
  if (!lora->rank) return NULL;
  if (lora->bias != HR_LORA_BIAS_NONE || lora->saved || lora->embedding)
    return "rules for adapters of linear modules alone: its recipe has no bias, no modules_to_save and no adapter of the embedding";
  if (lora->own[0].rank) return "rules for adapters of one rank alone, as its recipe has them (model.lora_rank)";
  for (uint32_t i = 0; i < m->layer_count; i++) {
    if (lora->modules[i] != lora->modules[0]) return "rules for adapters in all layers alone, as its recipe has them";
    if ((lora->modules[i] & mlp) && (lora->modules[i] & mlp) != mlp)
      return "adapters of all three products of an MLP or of none (model.apply_lora_to_mlp)";
    if (!(lora->modules[i] & attention)) return "no adapters without some in attention (model.lora_attn_modules)";
  }
  return NULL;
}

/* NF4Tensor of torchao's; its builder of qwen2 leaves MLPs as they are, and nobody makes a model of that. */
static const char *refuse_recipe_quantized(const hr_job *job) {
  const hr_quantize files = job->model.quantization;
  if (job->quantize == HR_QUANTIZE_NONE && files == HR_QUANTIZE_NONE) return NULL;
  if (job->quantize != HR_QUANTIZE_NF4_DQ || (files != HR_QUANTIZE_NONE && files != job->quantize))
    return "rules for quantized weights of torchao's NF4Tensor alone, whose scales are quantized too (--quantize nf4+dq)";
  return job->model.family == HR_FAMILY_QWEN2 ? "no quantized qwen2, as torchtune 0.6 has none" : NULL;
}

static const char *refuse_recipe(const hr_job *job, const hri_torch_settings *s) {
  bool known = job->optimizer == HR_OPTIMIZER_ADAMW || job->optimizer == HR_OPTIMIZER_ADAMW8BIT ||
               job->optimizer == HR_OPTIMIZER_SGD;
  const hr_model *m = &job->model;
  const char *what = refuse_device(job);
  if (job->purpose != HR_PURPOSE_TRAIN) return "no rules for anything but training";
  if (!what) what = refuse_recipe_model(m);
  if (!what) what = refuse_recipe_adapters(m);
  if (what) return what;
  if (!known && s->optim == HRI_OPTIM_OF_JOB)
    return "no rules for this --optimizer; there are for adamw, adamw8bit and sgd, or optimizer._component_";
  if (job->precision == HR_PRECISION_FP16)
    return "no fp16: its recipes take dtype=bf16 and fp32 (--precision bf16-pure, fp32)";
  if (type_of(job->precision) == HRI_BF16 && job->device.compute_capability < 80)
    return "no rules for dtype=bf16 below compute capability 8.0; --precision fp32";
  if (!what) what = refuse_recipe_quantized(job);
  if (what) return what;
  if (job->freeze || job->train_only) return "no --freeze and --train-only: its recipes train all, or adapters alone";
  if (job->dropout > 0) return "no rules for --dropout (attn_dropout of its builders)";
  if (job->update == HR_UPDATE_IN_BACKWARD && m->lora.rank)
    return "no --update in-backward beside adapters: optimizer_in_bwd is of full_finetune_single_device";
  if (s->recipe.packed && m->family == HR_FAMILY_GEMMA2)
    return "no dataset.packed=True with Gemma 2, whose attention takes no block masks";
  if (s->recipe.packed && job->device.compute_capability < 75)
    return "no rules for dataset.packed=True below compute capability 7.5, where it has no flex_attention";
  if (job->sequence_length > m->max_positions) return "no rows longer than the model's max_seq_len, which it refuses";
  return NULL;
}

static hr_status refuse_torchtune(const hr_job *job, const hri_torch_settings *settings, uint32_t ranks,
                                  hr_error *error) {
  const char *what =
      ranks > 1 ? "rules for its recipes of one device alone, not for --ranks" : refuse_recipe(job, settings);
  HRI_TRY(refuse_two_optimizers(job, settings->optim, error));
  if (settings->recipe.fused && settings->optim == HRI_OPTIM_OF_JOB && job->optimizer != HR_OPTIMIZER_ADAMW)
    return hri_fail(error, HR_ERROR_USAGE,
                    "--optimizer %s and optimizer.fused of --engine-conf exclude each other: the kernel is of "
                    "torch.optim.AdamW here; leave one of them out",
                    hr_optimizer_name(job->optimizer));
  return what ? hri_fail(error, HR_ERROR_UNSUPPORTED, "--engine pytorch:torchtune has %s", what) : HR_OK;
}

/* ---- stacks ---- */

/* What axolotl itself does not start with, or with what its kernels have other rules. */
static const char *refuse_kernels(const hr_job *job, const hri_torch_settings *s, const hri_torch_stack *stack) {
  hri_torch_lora_kernels on = hri_torch_lora_kernels_of(job, s, stack);
  bool any = on.qkv || on.o || on.mlp,
       fused = job->model.family == HR_FAMILY_PHI3 || job->model.family == HR_FAMILY_GPT2;
  if (hri_torch_names_lora_kernels(s) && !stack->lora_kernels)
    return "rules for lora_mlp_kernel, lora_qkv_kernel and lora_o_kernel by axolotl alone; --engine pytorch:axolotl";
  if (hri_torch_names_lora_kernels(s) && job->model.lora.rank == 0)
    return "rules for lora_mlp_kernel, lora_qkv_kernel and lora_o_kernel beside adapters alone; --lora r=16, or leave them out";
  if (any && job->quantize == HR_QUANTIZE_INT8)
    return "no LoRA kernels of axolotl's beside 8-bit weights, as axolotl itself; leave lora_*_kernel=true out";
  if ((on.qkv || on.o) && fused)
    return "no LoRA kernels of axolotl's for fused q, k and v, with which axolotl itself stops; "
           "lora_mlp_kernel=false,lora_qkv_kernel=false,lora_o_kernel=false";
  if (any && job->model.lora.dora)
    return "no rules for DoRA by axolotl's LoRA kernels; lora_mlp_kernel=false,lora_qkv_kernel=false,lora_o_kernel=false";
  return NULL;
}

/* Rows that documents share are told apart by varlen_attn, or by a mask, in models whose layers see all tokens. */
static const char *refuse_packing(const hr_job *job, const hri_torch_settings *s, const hri_torch_stack *stack) {
  bool some, all;
  if (!s->packing) return NULL;
  hri_module_kinds_of_layers(&job->model, &some, &all);
  if (!stack->packs) return "rules for sample_packing=true by axolotl alone; --engine pytorch:axolotl";
  if (job->packing == HR_PACKING_OFF) return "no way for sample_packing=true beside --packing off: rows are full";
  if (some || job->model.learned_positions)
    return "rules for sample_packing=true with llama, qwen2 and qwen3 alone, whose layers have no sliding window";
  if (hri_torch_is_eager(job, s) || s->kernel != HRI_KERNEL_CHOSEN || s->implementation == HRI_IMPLEMENTATION_FLASH_2)
    return "rules for sample_packing=true with attn_implementation=sdpa and PyTorch's own choice of its kernel alone";
  if (job->device.compute_capability < 80) return "rules for sample_packing=true from compute capability 8.0 on";
  return s->version == HRI_TRANSFORMERS_5 ? NULL : "rules for sample_packing=true with transformers=5 alone";
}

/* Gradients of 16-bit weights in fp16 are what GradScaler stops at. */
static bool trains_fp16(const hr_job *job, const hri_torch_stack *stack) {
  return stack->half_weights && job->precision == HR_PRECISION_FP16 && job->model.lora.rank == 0;
}

/* What optimizers load was recorded of AdamW. */
static bool resumes(hri_torch_optim optim) {
  return optim == HRI_OPTIM_ADAMW_TORCH || optim == HRI_OPTIM_ADAMW_TORCH_FUSED;
}

/* Settings of what only some stacks have. */
static hr_status refuse_settings(const hr_job *job, const hri_torch_settings *s, const hri_torch_stack *stack,
                                 hr_error *error) {
  if (s->eval_batches && !stack->trainer)
    return hri_fail(error, HR_ERROR_UNSUPPORTED,
                    "--engine pytorch:plain has no evaluation; that of the Trainer is pytorch:trainer's");
  if (stack->fused_head && (s->metrics || s->predict))
    return hri_fail(error, HR_ERROR_UNSUPPORTED,
                    "--engine pytorch:trl has no rules for logits of an evaluation (compute_metrics, predict)");
  if (stack->keeps_losses && s->metrics)
    return hri_fail(error, HR_ERROR_UNSUPPORTED,
                    "--engine pytorch:%s has no logits of an evaluation to keep: %s; leave compute_metrics out, or "
                    "--engine pytorch:trainer",
                    stack->name,
                    stack->evaluates_as_trains ? "its Trainer is given no compute_metrics"
                                               : "its compute_accuracy makes token ids of them first");
  if (stack->evaluates_as_trains && (s->predict || s->eval_to_host))
    return hri_fail(error, HR_ERROR_UNSUPPORTED, "--engine pytorch:%s has no %s: %s; leave it out", stack->name,
                    s->predict ? "predict" : "eval_accumulation_steps",
                    s->predict ? "its evaluation is of losses alone" : "it takes gradient_accumulation_steps for it");
  if (s->liger && stack->fused_head)
    return hri_fail(error, HR_ERROR_UNSUPPORTED,
                    "--engine pytorch:trl has no rules for use_liger_kernel=true: its own head makes no logits either");
  if (s->use_cache && stack->trainer)
    return hri_fail(error, HR_ERROR_UNSUPPORTED,
                    "use_cache=true is of --engine pytorch:plain: the Trainer turns it off for training");
  if (s->resumed && (!stack->trainer || !resumes(hri_torch_stack_optim(stack, job, s))))
    return hri_fail(error, HR_ERROR_UNSUPPORTED,
                    "--engine pytorch has rules for resume_from_checkpoint=true with the Trainer and PyTorch's AdamW "
                    "alone");
  return HR_OK;
}

/* What only some stacks do. */
static hr_status refuse_stack(const hr_job *job, const hri_torch_settings *s, const hri_torch_stack *stack,
                              hr_error *error) {
  const char *what = refuse_kernels(job, s, stack);
  if (!what) what = refuse_packing(job, s, stack);
  if (!what && s->wide_norms && !stack->upcasts_norms)
    what = "rules for upcast_layernorm=true by LLaMA-Factory alone; --engine pytorch:llama-factory";
  if (!what && s->wide_norms && job->precision == HR_PRECISION_BF16_PURE)
    what = "no way for upcast_layernorm=true without autocast, as LLaMA-Factory itself; --precision bf16";
  if (!what && stack->half_weights && job->precision == HR_PRECISION_BF16_PURE)
    what =
        "no 16 bits without autocast by axolotl, which has no setting for it (bf16: true trains 16-bit weights under "
        "autocast); --precision bf16";
  if (!what && stack->adapters_alike && job->model.lora.own[0].rank)
    what =
        "no ranks and alphas of single modules by this stack, whose configuration has no key for them (rank_pattern, "
        "alpha_pattern); --engine pytorch:trainer";
  if (!what && stack->version && !stack->fused_head && s->optim == HRI_OPTIM_ADAFACTOR_TORCH)
    what = "no optim=adafactor_torch by this stack, whose configuration has no name for it; optim=adafactor";
  if (!what && trains_fp16(job, stack))
    what =
        "no way for fp16: true without an adapter, as axolotl itself: GradScaler takes no gradients of fp16 weights; "
        "--precision bf16, or --lora";
  return what ? hri_fail(error, HR_ERROR_UNSUPPORTED, "--engine pytorch has %s", what) : HR_OK;
}

/* ---- several ranks ---- */

static bool is_adafactor(const hr_job *job, const hri_torch_settings *s) {
  if (s->optim != HRI_OPTIM_OF_JOB) return s->optim == HRI_OPTIM_ADAFACTOR || s->optim == HRI_OPTIM_ADAFACTOR_TORCH;
  return job->optimizer == HR_OPTIMIZER_ADAFACTOR;
}

/* Adapters and quantized weights whose base is shared, or whose adapters are. */
static const char *refuse_shared_adapters(const hr_job *job, const hri_torch_settings *settings,
                                          const hri_torch_stack *stack) {
  const hri_torch_shared *s = &settings->shared;
  hri_torch_quantized quantized = hri_torch_quantized_as(job->quantize);
  bool older = s->fsdp_version == 1;
  if (job->model.lora.dora || job->model.lora.saved)
    return "no rules for DoRA and whole modules beside adapters under fsdp=true and zero_stage";
  if (job->model.lora.rank && older && !stack->trainer && job->precision != HR_PRECISION_FP32 &&
      job->precision != HR_PRECISION_TF32)
    return "no such job: FullyShardedDataParallel of blocks flattens adapters in fp32 with a 16-bit base (\"Must flatten tensors with "
           "uniform dtype\"); the Trainer makes each adapter a unit (pytorch:trainer), or fsdp_version=2";
  if (quantized == HRI_TORCH_WHOLE) return NULL;
  if (quantized == HRI_TORCH_INT8 && s->fsdp == HRI_TRUE)
    return "no such job: fully_shard leaves bitsandbytes' 8-bit weights without what they carry (\"'Parameter' object has no "
           "attribute 'CB'\"); --quantize nf4";
  if (quantized == HRI_TORCH_INT8) return "no rules for 8-bit weights under zero_stage; --quantize nf4";
  if (s->fsdp == HRI_TRUE && !stack->trainer)
    return "no rules for 4-bit weights under fsdp=true in a loop of one's own: accelerate leaves out codes in bytes, fully_shard by "
           "itself does not; pytorch:trainer";
  if (s->fsdp == HRI_TRUE && older && !settings->bf16_storage)
    return "no such job: FullyShardedDataParallel flattens no codes in bytes (\"Cannot flatten integer dtype tensors\"); "
           "bnb_4bit_quant_storage=bf16, or fsdp_version=2";
  if (s->offload == HRI_TRUE || s->offload_optimizer) return "no rules for quantized weights with parts on the host";
  return NULL;
}

/* Blocks that run again have no graph to find their parameters in: each is ready at once, and again when its gradient is there. */
static bool is_ready_twice(const hr_job *job, const hri_torch_settings *settings, const hri_torch_stack *stack) {
  hri_torch_choice named = settings->shared.find_unused;
  bool usual = hri_torch_stack_finds_unused(stack, job->model.lora.rank > 0, true);
  return settings->checkpointing && settings->reentrant && (named ? named == HRI_TRUE : usual);
}

/* What there are no rules for on several ranks. */
static const char *refuse_ranks(const hr_job *job, const hri_torch_settings *settings, const hri_torch_stack *stack) {
  if (settings->use_cache) return "no rules for use_cache=true on several ranks";
  if (settings->shared.bucket_view && (stack->packs || stack->upcasts_norms))
    return "no gradient_as_bucket_view by this stack, whose configuration has no key for it";
  if (stack->fused_head) return "no rules for TRL's fused head on several ranks; --engine pytorch:trainer";
  if (settings->shared.fsdp != HRI_TRUE && !settings->shared.zero_stage)
    return is_ready_twice(job, settings, stack)
               ? "no such job: DistributedDataParallel looks for unused parameters, which the Trainer has it do of PEFT's models, "
                 "in no block that runs again (\"has been marked as ready twice\"); use_reentrant=false, or "
                 "ddp_find_unused_parameters=false"
               : NULL;
  if (settings->version != HRI_TRANSFORMERS_5) return "rules for fsdp=true and zero_stage with transformers=5 alone";
  if (settings->liger) return "no rules for use_liger_kernel=true under fsdp=true and zero_stage";
  if (settings->resumed) return "no rules for resume_from_checkpoint=true under fsdp=true and zero_stage";
  if (stack->version)
    return "rules for fsdp=true and zero_stage by the Trainer and a plain loop alone; --engine pytorch:trainer";
  if (is_adafactor(job, settings)) return "no rules for Adafactor under fsdp=true and zero_stage";
  if (job->precision == HR_PRECISION_FP16 && settings->shared.fsdp_version == 1 && stack->trainer)
    return "no such job: ShardedGradScaler's found_inf has a shape that AdamW fused, the Trainer's, does not take (\"output with "
           "shape [] doesn't match the broadcast shape [1]\"); fsdp_version=2, or --precision bf16";
  return refuse_shared_adapters(job, settings, stack);
}

/* Settings of several ranks that do not go together, by their names. */
static hr_status check_shared(const hr_job *job, const hri_torch_settings *settings, const hri_torch_stack *stack,
                              uint32_t ranks, hr_error *error) {
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
  if (ranks <= 1 && any) {
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
  if ((s->param || s->reduce) && stack->trainer)
    return hri_fail(
        error, HR_ERROR_USAGE,
        "settings of --engine pytorch: param_dtype and reduce_dtype are of a loop of one's own (pytorch:plain); the Trainer takes "
        "both from --precision");
  if (s->fsdp_version == 1 && (s->offload == HRI_TRUE || s->wrapped == HRI_TRUE))
    return hri_fail(
        error, HR_ERROR_USAGE,
        "settings of --engine pytorch: fsdp_version=1 is there without cpu_offload and activation_checkpointing");
  if (s->fsdp_version == 1 && stack->trainer && s->reshards == HRI_FALSE)
    return hri_fail(
        error, HR_ERROR_USAGE,
        "settings of --engine pytorch: reshard_after_forward=false does nothing with fsdp_version=1 by the Trainer: accelerate "
        "takes FULL_SHARD unless the environment has FSDP_SHARDING_STRATEGY");
  if (settings->bf16_storage &&
      (!(fsdp || s->zero_stage == 3) || hri_torch_quantized_as(job->quantize) < HRI_TORCH_NF4 ||
       job->quantize == HR_QUANTIZE_INT8 || job->precision == HR_PRECISION_FP16)) {
    hri_fail(
        error, HR_ERROR_USAGE,
        "settings of --engine pytorch: bnb_4bit_quant_storage=bf16 is of 4 bits that fully_shard or zero_stage=3 shares, with products in bf16");
    return hri_hint(error, HR_ERROR_USAGE, "--quantize nf4 --precision bf16 and fsdp=true beside it");
  }
  if (s->reduce && !s->param)
    return hri_fail(error, HR_ERROR_USAGE, "settings of --engine pytorch: reduce_dtype goes with param_dtype");
  return HR_OK;
}

static hr_status refuse_shared(const hr_job *job, const hri_torch_settings *settings, const hri_torch_stack *stack,
                               uint32_t ranks, hr_error *error) {
  const char *what;
  HRI_TRY(check_shared(job, settings, stack, ranks, error));
  what = ranks > 1 ? refuse_ranks(job, settings, stack) : NULL;
  return what ? hri_fail(error, HR_ERROR_UNSUPPORTED, "--engine pytorch has %s", what) : HR_OK;
}

/* Gradients are gone through rank by rank (zero.c): billions of them would take minutes. */
static hr_status refuse_many_ranks(uint32_t ranks, hr_error *error) {
  enum { MOST = 1 << 20 };
  if (ranks <= MOST) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--ranks is %u; --engine pytorch counts %d at most", ranks, MOST);
  return hri_hint(error, HR_ERROR_USAGE, "--ranks 8: so many processes, each with a GPU");
}

hr_status hri_torch_refuse(const hr_job *job, const hri_torch_settings *settings, const hri_torch_stack *stack,
                           uint32_t ranks, hr_error *error) {
  HRI_TRY(refuse_many_ranks(ranks, error));
  if (stack->recipes) return refuse_torchtune(job, settings, ranks, error);
  HRI_TRY(refuse_settings(job, settings, stack, error));
  HRI_TRY(refuse_job(job, settings, error));
  HRI_TRY(refuse_stack(job, settings, stack, error));
  return refuse_shared(job, settings, stack, ranks, error);
}
