/* Settings as people write them (arguments.h). */
#include "frameworks/pytorch/arguments.h"

#include <stdarg.h>
#include <string.h>

#include "frameworks/pytorch/translate.h"
#include "model/params.h"

/* What goes on with the last argument. Texts are as long as they must be: patterns of --freeze may be many. */
HRI_PRINTF(2, 3) static void add(hri_torch_arguments *out, const char *format, ...) {
  va_list args;
  if (out->failed) return;
  va_start(args, format);
  hri_text_add_args(&out->texts.items[out->texts.count - 1], format, args);
  va_end(args);
}

/* A new one. */
HRI_PRINTF(2, 3) static void begin(hri_torch_arguments *out, const char *format, ...) {
  va_list args;
  if (out->failed || !hri_array_push(&out->texts, (hri_text){0})) {
    out->failed = true;
    return;
  }
  va_start(args, format);
  hri_text_add_args(&out->texts.items[out->texts.count - 1], format, args);
  va_end(args);
}

static const char *dtype_name(hri_ten_type type) {
  return type == HRI_BF16 ? "torch.bfloat16" : type == HRI_F16 ? "torch.float16" : "torch.float32";
}

static bool is_fp4(const hr_job *job) {
  return job->quantize == HR_QUANTIZE_FP4 || job->quantize == HR_QUANTIZE_FP4_DQ;
}

static void write_model(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_job *t = of->torch;
  const char *type = of->settings->version == HRI_TRANSFORMERS_5 ? "dtype" : "torch_dtype"; /* its older name */
  begin(out, "from_pretrained(..., %s=%s, attn_implementation=\"%s\"", type, dtype_name(t->weights),
        hri_torch_attention_name(of->torch, of->settings));
  if (t->quantized == HRI_TORCH_INT8) add(out, ", quantization_config=BitsAndBytesConfig(load_in_8bit=True)");
  else if (t->quantized)
    add(out,
        ", quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"%s\", "
        "bnb_4bit_use_double_quant=%s, bnb_4bit_compute_dtype=%s%s)",
        is_fp4(of->job) ? "fp4" : "nf4", t->quantized == HRI_TORCH_NF4_DOUBLE ? "True" : "False",
        dtype_name(t->weights), t->storage == HRI_BF16 ? ", bnb_4bit_quant_storage=torch.bfloat16" : "");
  add(out, ")");
}

static const char *target_name(const hr_model *m, int module) {
  static const char *const llama[] = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  static const char *const gpt2[] = {"c_attn", NULL, NULL, "attn.c_proj", "c_fc", NULL, "mlp.c_proj"};
  static const char *const phi3[] = {"qkv_proj", NULL, NULL, "o_proj", "gate_up_proj", NULL, "down_proj"};
  if (m->family == HR_FAMILY_GPT2) return gpt2[module];
  return m->family == HR_FAMILY_PHI3 ? phi3[module] : llama[module];
}

/* ---- adapters ---- */

/* Of a layer those modules with adapters that have a name of their own: a bit for each hr_module. */
static uint32_t targets_of(const hr_model *m, uint32_t layer) {
  uint32_t set = 0;
  for (int k = 0; k < HR_MODULE_COUNT; k++)
    if (m->lora.modules[layer] & (1u << k) && target_name(m, k)) set |= 1u << k;
  return set;
}

/* Layers with adapters, of those with the most, and whether all of them have the same. */
typedef struct spread {
  uint32_t set, layers;
  bool alike;
} spread;

static spread spread_of(const hr_model *m) {
  spread s = {.alike = true};
  for (uint32_t i = 0; i < m->layer_count; i++) {
    uint32_t set = targets_of(m, i);
    if (!set) continue;
    s.alike = s.alike && (s.layers == 0 || set == s.set);
    s.set |= set;
    s.layers++;
  }
  return s;
}

typedef struct list {
  const char *quote, *between;
  bool started;
} list;

static void add_name(hri_torch_arguments *out, list *l, const char *name) {
  add(out, "%s%s%s%s", l->started ? l->between : "", l->quote, name, l->quote);
  l->started = true;
}

/* Names of the modules that adapters stand beside: of one layer for all, or, where layers differ or `by_layer` asks for it, of each. */
static void add_targets(const hr_model *m, list l, bool by_layer, hri_torch_arguments *out) {
  const spread s = spread_of(m);
  for (int k = 0; k < HR_MODULE_COUNT && s.alike && !by_layer; k++)
    if (s.set & (1u << k)) add_name(out, &l, target_name(m, k));
  for (uint32_t i = 0; i < m->layer_count && (!s.alike || by_layer); i++)
    for (int k = 0; k < HR_MODULE_COUNT; k++) {
      char name[96];
      if (targets_of(m, i) & (1u << k) && hri_module_name(m, (hr_module)k, (int32_t)i, name)) add_name(out, &l, name);
    }
}

/* Some layers have adapters, all of them the same: which. */
static bool names_layers(const hr_model *m) {
  const spread s = spread_of(m);
  return s.alike && s.layers < m->layer_count;
}

static void add_layers(const hr_model *m, hri_torch_arguments *out) {
  bool first = true;
  for (uint32_t i = 0; i < m->layer_count; i++) {
    if (!targets_of(m, i)) continue;
    add(out, "%s%u", first ? "" : ", ", i);
    first = false;
  }
}

/* Whether an adapter has another rank than the rest (another alpha). */
static bool is_own(const hr_lora *lora, uint8_t kind, bool alpha) {
  if (kind == 0) return false;
  return alpha ? lora->own[kind - 1].alpha != lora->alpha : lora->own[kind - 1].rank != lora->rank;
}

static bool has_own(const hr_model *m, bool alpha) {
  for (uint32_t i = 0; i < m->layer_count; i++)
    for (int k = 0; k < HR_MODULE_COUNT; k++)
      if (targets_of(m, i) & (1u << k) && is_own(&m->lora, m->lora.kinds[i][k], alpha)) return true;
  return false;
}

/* A module has the same kind of adapter in all layers where it has one. */
static bool is_alike(const hr_model *m, int module) {
  uint32_t first = m->layer_count;
  for (uint32_t i = 0; i < m->layer_count; i++) {
    if (!(targets_of(m, i) & (1u << module))) continue;
    if (first == m->layer_count) first = i;
    if (m->lora.kinds[i][module] != m->lora.kinds[first][module]) return false;
  }
  return true;
}

static void add_entry(const hr_lora *lora, uint8_t kind, bool alpha, const char *name, list *l,
                      hri_torch_arguments *out) {
  add_name(out, l, name);
  add(out, ": %g", alpha ? lora->own[kind - 1].alpha : (double)lora->own[kind - 1].rank);
}

/* Entries of rank_pattern or alpha_pattern: by module, or by module and layer. */
static void add_own(const hr_model *m, const char *quote, bool alpha, hri_torch_arguments *out) {
  const hr_lora *lora = &m->lora;
  list l = {quote, ", ", false};
  for (int k = 0; k < HR_MODULE_COUNT; k++) {
    const bool alike = is_alike(m, k);
    bool told = false;
    for (uint32_t i = 0; i < m->layer_count && !told; i++) {
      char name[96];
      if (!(targets_of(m, i) & (1u << k)) || !is_own(lora, lora->kinds[i][k], alpha)) continue;
      if (!hri_module_name(m, (hr_module)k, (int32_t)i, name)) continue;
      add_entry(lora, lora->kinds[i][k], alpha, alike ? target_name(m, k) : name, &l, out);
      told = alike;
    }
  }
}

/* Embedding and head, where they train whole. */
static void add_saved(const hr_model *m, const char *quote, const char *between, hri_torch_arguments *out) {
  bool embedding = m->lora.saved & 1u << HRI_SLOT_TOKEN_EMBEDDING, head = m->lora.saved & 1u << HRI_SLOT_HEAD_WEIGHT;
  if (embedding) add(out, "%s%s%s", quote, m->family == HR_FAMILY_GPT2 ? "wte" : "embed_tokens", quote);
  if (head) add(out, "%s%slm_head%s", embedding ? between : "", quote, quote);
}

static void write_adapters(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hr_model *m = of->torch->model;
  if (!m->lora.rank) return;
  begin(out, "LoraConfig(r=%u, lora_alpha=%g, lora_dropout=%g, task_type=\"CAUSAL_LM\", target_modules=[", m->lora.rank,
        m->lora.alpha, m->lora.dropout);
  add_targets(m, (list){"\"", ", ", false}, false, out);
  add(out, "]");
  if (names_layers(m)) {
    add(out, ", layers_to_transform=[");
    add_layers(m, out);
    add(out, "]");
  }
  for (int alpha = 0; alpha < 2; alpha++) {
    if (!has_own(m, alpha)) continue;
    add(out, ", %s={", alpha ? "alpha_pattern" : "rank_pattern");
    add_own(m, "\"", alpha, out);
    add(out, "}");
  }
  if (m->lora.rslora) add(out, ", use_rslora=True");
  if (m->lora.dora) add(out, ", use_dora=True");
  if (m->lora.saved) {
    add(out, ", modules_to_save=[");
    add_saved(m, "\"", ", ", out);
    add(out, "]");
  }
  add(out, ")");
}

/* ---- several ranks ---- */

static const char *truth(bool is) { return is ? "True" : "False"; }

static void add_zero(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_shared *s = &of->settings->shared;
  add(out, "{\"zero_optimization\": {\"stage\": %u", s->zero_stage);
  if (s->reduce_elements)
    add(out, ", \"reduce_bucket_size\": %u, \"allgather_bucket_size\": %u", s->reduce_elements, s->reduce_elements);
  if (s->prefetch_elements) add(out, ", \"stage3_prefetch_bucket_size\": %u", s->prefetch_elements);
  if (s->offload_optimizer) add(out, ", \"offload_optimizer\": {\"device\": \"cpu\"}");
  if (s->offload_param) add(out, ", \"offload_param\": {\"device\": \"cpu\"}");
  add(out, "}, \"%s\": {\"enabled\": %s}, \"gradient_clipping\": %g", of->torch->weights == HRI_F16 ? "fp16" : "bf16",
      of->torch->weights != HRI_F32 ? "True" : "False", of->job->clip);
  if (s->offload_optimizer) add(out, ", \"zero_force_ds_cpu_optimizer\": False"); /* the optimizer is torch's */
  add(out, "}");
}

/* Among the Trainer's arguments. */
static void add_ranks(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_shared *s = &of->settings->shared;
  const hri_torch_job *t = of->torch;
  if (t->sharing == HRI_TORCH_DDP) {
    add(out, ", ddp_find_unused_parameters=%s", truth(t->ddp.find_unused));
    if (s->bucket_mb) add(out, ", ddp_bucket_cap_mb=%u", s->bucket_mb);
  } else if (t->sharing == HRI_TORCH_FSDP2 && t->fsdp.flat) {
    add(out, ", fsdp=True, fsdp_config={\"version\": 1}");
  } else if (t->sharing == HRI_TORCH_FSDP2) {
    add(out,
        ", fsdp=True, fsdp_config={\"reshard_after_forward\": %s, \"cpu_offload\": %s, \"activation_checkpointing\": %s}",
        truth(!t->fsdp.keeps), truth(t->fsdp.offload), truth(t->wrapped));
  } else if (t->sharing != HRI_TORCH_ALONE) {
    add(out, ", deepspeed=");
    add_zero(of, out);
  }
}

/* Around the model of a loop of one's own. */
static void write_wrapper(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_job *t = of->torch;
  if (t->sharing == HRI_TORCH_DDP) {
    begin(out, "DistributedDataParallel(model, find_unused_parameters=%s, gradient_as_bucket_view=%s",
          truth(t->ddp.find_unused), truth(t->ddp.bucket_view));
    if (of->settings->shared.bucket_mb) add(out, ", bucket_cap_mb=%u", of->settings->shared.bucket_mb);
    add(out, ")");
  } else if (t->sharing == HRI_TORCH_FSDP2 && t->fsdp.flat) {
    begin(out, "FullyShardedDataParallel(model, auto_wrap_policy of each block, sharding_strategy=ShardingStrategy.%s",
          t->fsdp.keeps ? "SHARD_GRAD_OP" : "FULL_SHARD");
    if (t->fsdp.mixed)
      add(out, ", mixed_precision=MixedPrecision(param_dtype=%s, reduce_dtype=%s)", dtype_name(t->fsdp.param),
          dtype_name(t->fsdp.reduce));
    add(out, ")");
  } else if (t->sharing == HRI_TORCH_FSDP2) {
    begin(out, "fully_shard(...) of each block, then of the model: reshard_after_forward=%s", truth(!t->fsdp.keeps));
    if (t->fsdp.mixed)
      add(out, ", mp_policy=MixedPrecisionPolicy(param_dtype=%s, reduce_dtype=%s)", dtype_name(t->fsdp.param),
          dtype_name(t->fsdp.reduce));
    if (t->fsdp.offload) add(out, ", offload_policy=CPUOffloadPolicy()");
    if (t->wrapped) begin(out, "checkpoint_wrapper(block) of each block before it");
  } else if (t->sharing != HRI_TORCH_ALONE) {
    begin(out, "deepspeed.initialize(config=");
    add_zero(of, out);
    add(out, ")");
  }
}

/* --dropout where it is said: the model's own otherwise. */
static void write_dropout(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hr_family family = of->job->model.family;
  const hri_dropout *d = &of->torch->dropout;
  const bool gpt2 = family == HR_FAMILY_GPT2;
  if (of->job->dropout <= 0 || of->torch->recipe.runs) return;
  begin(out, "config.json: {\"%s\": %g", gpt2 ? "attn_pdrop" : "attention_dropout", d->attention);
  if (hri_family_drops_residual(family) || hri_family_drops_mlp(family))
    add(out, ", \"resid_pdrop\": %g", of->job->dropout);
  if (hri_family_drops_embedding(family)) add(out, ", \"embd_pdrop\": %g", d->embedding);
  add(out, "}");
}

/* What no class of the framework's says. */
static void write_beside(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  static const char *const kernels[HRI_KERNELS] = {"", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION",
                                                   "MATH"};
  const hri_torch_settings *s = of->settings;
  if (of->job->freeze) begin(out, "requires_grad_(False) of %s", of->job->freeze);
  if (of->job->train_only) begin(out, "requires_grad_(False) of all parameters but %s", of->job->train_only);
  write_dropout(of, out);
  if (of->torch->use_cache) begin(out, "model.config.use_cache = True");
  if (s->kernel != HRI_KERNEL_CHOSEN) begin(out, "with sdpa_kernel(SDPBackend.%s): around it all", kernels[s->kernel]);
  if (of->torch->ranks > 1) begin(out, "torchrun --nproc-per-node=%u (or as many on several nodes)", of->torch->ranks);
  if (!s->resumed) return;
  if (of->stack == HR_PYTORCH_AXOLOTL || of->stack == HR_PYTORCH_LLAMA_FACTORY)
    begin(out, "resume_from_checkpoint: PATH");
  else begin(out, "trainer.train(resume_from_checkpoint=True)");
}

/* fully_shard casts by a policy, DeepSpeed has weights of the type. */
static hri_ten_type type_of_products(const hri_torch_job *t) {
  if (t->sharing >= HRI_TORCH_ZERO) return t->weights;
  return t->sharing == HRI_TORCH_FSDP2 && t->fsdp.casts_output ? t->fsdp.param : t->autocast;
}

/* Optimizers that TrainingArguments have no words for: SGD's momentum before optim_args said it, and torch's Adafactor. */
static const char *own_optimizer(const hri_torch_arguments_of *of) {
  if (of->optim == HRI_OPTIM_ADAFACTOR_TORCH) return "torch.optim.Adafactor(model.parameters()";
  if (of->torch->optimizer == HRI_TORCH_SGD_MOMENTUM && of->settings->version != HRI_TRANSFORMERS_5)
    return "torch.optim.SGD(model.parameters()";
  return NULL;
}

static void add_optimizer(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  if (own_optimizer(of)) return;
  add(out, ", optim=\"%s\"", hri_torch_optim_name(of->optim));
  if (of->torch->optimizer == HRI_TORCH_SGD_MOMENTUM) add(out, ", optim_args=\"momentum=%g\"", of->job->momentum);
}

static void add_evaluation(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_evaluation *e = &of->torch->evaluation;
  if (!e->batches) return;
  if (e->middle) add(out, ", eval_strategy=\"steps\"");
  add(out, ", per_device_eval_batch_size=%u", (unsigned)e->rows);
  if (e->to_host) add(out, ", eval_accumulation_steps=%u", e->to_host);
}

/* Behind the class of its arguments: what is given to the Trainer, and called. */
static void write_around_trainer(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const char *optimizer = own_optimizer(of);
  if (optimizer) {
    begin(out, "Trainer.create_optimizer() makes %s", optimizer);
    if (of->torch->optimizer == HRI_TORCH_SGD_MOMENTUM) add(out, ", momentum=%g", of->job->momentum);
    add(out, ")");
  }
  if (!of->torch->evaluation.batches) return;
  if (of->settings->metrics) begin(out, "Trainer(..., compute_metrics=...)");
  begin(out, "trainer.%s()", of->settings->predict ? "predict" : "evaluate");
}

static void write_trainer(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_job *t = of->torch;
  bool trl = of->stack == HR_PYTORCH_TRL;
  hri_ten_type type = type_of_products(t);
  begin(out, "%s(per_device_train_batch_size=%u, gradient_accumulation_steps=%u",
        trl ? "SFTConfig" : "TrainingArguments", (unsigned)t->batch, t->accumulate);
  if (trl) add(out, ", max_length=%u", (unsigned)t->tokens); /* 1,024 unless it is said */
  if (type != HRI_F32) add(out, ", %s=True", type == HRI_BF16 ? "bf16" : "fp16");
  else if (trl) add(out, ", bf16=False"); /* on unless it is said, as checkpointing is */
  if (of->job->precision == HR_PRECISION_TF32) add(out, ", tf32=True");
  if (t->checkpoint && !t->wrapped)
    add(out, ", gradient_checkpointing=True, gradient_checkpointing_kwargs={\"use_reentrant\": %s}",
        t->reentrant ? "True" : "False");
  else if (trl) add(out, ", gradient_checkpointing=False");
  add_optimizer(of, out);
  add(out, ", max_grad_norm=%g", of->job->clip);
  if (t->liger) add(out, ", use_liger_kernel=True");
  add_evaluation(of, out);
  add_ranks(of, out);
  add(out, ")");
  write_around_trainer(of, out);
}

static void write_loop(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  static const char *const optims[HRI_OPTIMS] = {"",
                                                 "torch.optim.AdamW(model.parameters(), foreach=True)",
                                                 "torch.optim.AdamW(model.parameters(), fused=True)",
                                                 "bitsandbytes.optim.AdamW8bit(model.parameters())",
                                                 "bitsandbytes.optim.PagedAdamW8bit(model.parameters())",
                                                 "torch.optim.SGD(model.parameters())",
                                                 "transformers.optimization.Adafactor(model.parameters())",
                                                 "torch.optim.Adafactor(model.parameters())"};
  const hri_torch_job *t = of->torch;
  if (t->checkpoint && !t->wrapped)
    begin(out, "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={\"use_reentrant\": %s})",
          t->reentrant ? "True" : "False");
  if (t->liger) begin(out, "apply_liger_kernel_to_%s(model=model)", hr_family_name(t->model->family));
  write_wrapper(of, out);
  if (t->optimizer == HRI_TORCH_SGD_MOMENTUM)
    begin(out, "torch.optim.SGD(model.parameters(), momentum=%g)", of->job->momentum);
  else begin(out, "%s", optims[of->optim]);
  if (t->clip && t->sharing < HRI_TORCH_ZERO) /* else it is among the engine's */
    begin(out, "torch.nn.utils.clip_grad_norm_(model.parameters(), %g)", of->job->clip);
  begin(out, "batches of %u rows, %u of them for each optimizer.step()", (unsigned)t->batch, t->accumulate);
  if (t->autocast != HRI_F32)
    add(out, ", under torch.autocast(\"cuda\", dtype=%s)%s", dtype_name(t->autocast),
        t->scaler ? " with torch.amp.GradScaler()" : "");
}

static const char *word(bool is) { return is ? "true" : "false"; }

/* Lines of a configuration file. Its 4 bits are nf4 with double quantization unless it is told otherwise. */
static void write_axolotl_adapters(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hr_model *m = of->torch->model;
  const hri_torch_quantized quantized = of->torch->quantized;
  bool bits4 = quantized == HRI_TORCH_NF4 || quantized == HRI_TORCH_NF4_DOUBLE;
  if (!m->lora.rank) return;
  begin(out, "adapter: %s", bits4 ? "qlora" : "lora");
  begin(out, "lora_r: %u", m->lora.rank);
  begin(out, "lora_alpha: %g", m->lora.alpha);
  begin(out, "lora_dropout: %g", m->lora.dropout);
  begin(out, "lora_target_modules: [");
  add_targets(m, (list){"", ", ", false}, false, out);
  add(out, "]");
  if (names_layers(m)) {
    begin(out, "peft_layers_to_transform: [");
    add_layers(m, out);
    add(out, "]");
  }
  for (int alpha = 0; alpha < 2; alpha++) {
    if (!has_own(m, alpha)) continue;
    begin(out, "%s: {", alpha ? "lora_alpha_pattern" : "lora_rank_pattern");
    add_own(m, "", alpha, out);
    add(out, "}");
  }
  if (m->lora.rslora) begin(out, "peft_use_rslora: true");
  if (m->lora.dora) begin(out, "peft_use_dora: true");
  if (m->lora.saved) {
    begin(out, "lora_modules_to_save: [");
    add_saved(m, "", ", ", out);
    add(out, "]");
  }
  if (quantized == HRI_TORCH_INT8) begin(out, "load_in_8bit: true");
  else if (!of->torch->qkv_kernel || !of->torch->o_kernel ||
           !of->torch->mlp_kernel) /* else they are what it takes itself */
    begin(out, "lora_mlp_kernel: %s, lora_qkv_kernel: %s, lora_o_kernel: %s, lora_embedding_kernel: false",
          word(of->torch->mlp_kernel), word(of->torch->qkv_kernel), word(of->torch->o_kernel));
  if (!bits4) return;
  begin(out, "load_in_4bit: true");
  if (quantized == HRI_TORCH_NF4 || is_fp4(of->job))
    begin(out, "bnb_config_kwargs: {bnb_4bit_quant_type: %s, bnb_4bit_use_double_quant: %s}",
          is_fp4(of->job) ? "fp4" : "nf4", quantized == HRI_TORCH_NF4 ? "false" : "true");
}

/* Keys of both stacks that are configured by YAML. */
static void write_ddp_keys(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_shared *s = &of->settings->shared;
  if (of->torch->sharing != HRI_TORCH_DDP) return;
  begin(out, "ddp_find_unused_parameters: %s", of->torch->ddp.find_unused ? "true" : "false");
  if (s->bucket_mb) begin(out, "ddp_bucket_cap_mb: %u", s->bucket_mb);
}

/* Keys that both have by the names of TrainingArguments. */
static void write_shared_keys(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_job *t = of->torch;
  if (t->optimizer == HRI_TORCH_SGD_MOMENTUM) begin(out, "optim_args: momentum=%g", of->job->momentum);
  begin(out, "max_grad_norm: %g", of->job->clip);
  if (of->job->precision == HR_PRECISION_TF32) begin(out, "tf32: true");
  write_ddp_keys(of, out);
  if (t->evaluation.batches) begin(out, "eval_strategy: %s", t->evaluation.middle ? "steps" : "epoch");
}

static void write_axolotl(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_job *t = of->torch;
  write_axolotl_adapters(of, out);
  begin(out, "micro_batch_size: %u", (unsigned)t->batch);
  begin(out, "gradient_accumulation_steps: %u", t->accumulate);
  begin(out, "sequence_len: %u", (unsigned)t->tokens);
  if (t->packed) begin(out, "sample_packing: true");
  begin(out, "attn_implementation: %s", hri_torch_attention_name(of->torch, of->settings));
  begin(out, "%s",
        t->autocast == HRI_BF16  ? "bf16: true"
        : t->autocast == HRI_F16 ? "fp16: true"
        : t->weights == HRI_BF16 ? "bf16: full"
                                 : "bf16: false");
  begin(out, "optimizer: %s", hri_torch_optim_name(of->optim));
  begin(out, "gradient_checkpointing: %s", t->checkpoint ? "true" : "false");
  if (t->checkpoint && !t->reentrant) begin(out, "gradient_checkpointing_kwargs: {use_reentrant: false}");
  write_shared_keys(of, out);
  if (t->evaluation.batches) begin(out, "eval_batch_size: %u", (unsigned)t->evaluation.rows);
  if (!t->liger) return;
  begin(out, "plugins: [axolotl.integrations.liger.LigerPlugin]");
  begin(out, "liger_rope: true");
  begin(out, "liger_rms_norm: true");
  begin(out, "liger_glu_activation: true");
  begin(out, "liger_fused_linear_cross_entropy: true");
}

static void write_llama_factory_adapters(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hr_model *m = of->torch->model;
  const hri_torch_quantized quantized = of->torch->quantized;
  begin(out, "finetuning_type: %s", m->lora.rank ? "lora" : "full");
  if (!m->lora.rank) return;
  begin(out, "lora_rank: %u", m->lora.rank);
  begin(out, "lora_alpha: %g", m->lora.alpha);
  begin(out, "lora_dropout: %g", m->lora.dropout);
  begin(out, "lora_target: ");
  add_targets(m, (list){"", ", ", false}, names_layers(m), out); /* it has no key for layers */
  if (m->lora.rslora) begin(out, "use_rslora: true");
  if (m->lora.dora) begin(out, "use_dora: true");
  if (m->lora.saved) {
    begin(out, "additional_target: ");
    add_saved(m, "", ",", out);
  }
  if (quantized) begin(out, "quantization_bit: %d", quantized == HRI_TORCH_INT8 ? 8 : 4);
  if (quantized == HRI_TORCH_NF4) begin(out, "double_quantization: false");
  if (quantized && is_fp4(of->job)) begin(out, "quantization_type: fp4");
}

static void write_llama_factory(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_job *t = of->torch;
  bool flash_2 = of->settings->implementation == HRI_IMPLEMENTATION_FLASH_2;
  write_llama_factory_adapters(of, out);
  begin(out, "per_device_train_batch_size: %u", (unsigned)t->batch);
  begin(out, "gradient_accumulation_steps: %u", t->accumulate);
  begin(out, "cutoff_len: %u", (unsigned)t->tokens);
  begin(out, "flash_attn: %s", flash_2 ? "fa2" : t->attention == HRI_TORCH_EAGER ? "disabled" : "sdpa");
  begin(out, "%s",
        t->autocast == HRI_BF16  ? "bf16: true"
        : t->autocast == HRI_F16 ? "fp16: true"
        : t->weights == HRI_BF16 ? "pure_bf16: true"
                                 : "bf16: false");
  if (t->autocast == HRI_F32 && t->weights == HRI_F32) /* without a word of it weights have the type of their file */
    begin(out, "config.json: {\"torch_dtype\": \"float32\"}");
  begin(out, "optim: %s", hri_torch_optim_name(of->optim));
  begin(out, "disable_gradient_checkpointing: %s", t->checkpoint ? "false" : "true");
  if (t->checkpoint && !t->reentrant) begin(out, "use_reentrant_gc: false");
  if (t->wide_norms) begin(out, "upcast_layernorm: true");
  if (t->liger) begin(out, "enable_liger_kernel: true");
  write_shared_keys(of, out);
  if (!t->evaluation.batches) return;
  begin(out, "per_device_eval_batch_size: %u", (unsigned)t->evaluation.rows);
  if (t->evaluation.to_host) begin(out, "eval_accumulation_steps: %u", t->evaluation.to_host);
  if (of->settings->predict) begin(out, "do_predict: true");
}

/* Keys of a recipe's configuration, as `tune run RECIPE --config ...` takes them behind it. */
static void write_torchtune_adapters(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  static const char *const names[] = {"q_proj", "k_proj", "v_proj", "output_proj"};
  const hr_model *m = of->torch->model;
  uint32_t set = m->lora.modules[0];
  bool first = true;
  if (!m->lora.rank) return;
  if (m->family == HR_FAMILY_PHI3 && !(set & (1u << HR_MODULE_K | 1u << HR_MODULE_V)) && (set & 1u << HR_MODULE_Q))
    set |= 1u << HR_MODULE_K | 1u << HR_MODULE_V; /* one product of transformers', three here */
  begin(out, "model.lora_attn_modules=[");
  for (int k = 0; k < 4; k++) {
    if (!(set & 1u << k)) continue;
    add(out, "%s%s", first ? "" : ",", names[k]);
    first = false;
  }
  add(out, "]");
  begin(out, "model.apply_lora_to_mlp=%s", truth(set & 1u << HR_MODULE_MLP_DOWN));
  begin(out, "model.lora_rank=%u", m->lora.rank);
  begin(out, "model.lora_alpha=%g", m->lora.alpha);
  begin(out, "model.lora_dropout=%g", m->lora.dropout);
  if (m->lora.dora) begin(out, "model.use_dora=True");
  if (of->torch->quantized) begin(out, "model.quantize_base=True"); /* what its qlora_ builders say */
}

static void write_torchtune(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  const hri_torch_job *t = of->torch;
  bool lora = t->model->lora.rank > 0, adamw = t->optimizer <= HRI_TORCH_ADAMW_FUSED;
  begin(out, "tune run %s_finetune_single_device", lora ? "lora" : "full");
  write_torchtune_adapters(of, out);
  begin(out, "dtype=%s", t->weights == HRI_BF16 ? "bf16" : "fp32");
  begin(out, "batch_size=%u", (unsigned)t->batch);
  begin(out, "gradient_accumulation_steps=%u", t->accumulate);
  begin(out, "tokenizer.max_seq_len=%u", (unsigned)t->tokens);
  if (t->recipe.packed) begin(out, "dataset.packed=True");
  begin(out, "enable_activation_checkpointing=%s", truth(t->checkpoint));
  begin(out, "optimizer._component_=%s", hri_recipe_optimizer(of->optim));
  if (adamw) begin(out, "optimizer.fused=%s", truth(t->optimizer == HRI_TORCH_ADAMW_FUSED));
  if (!lora) begin(out, "optimizer_in_bwd=%s", truth(t->recipe.in_backward));
  if (t->clip) begin(out, "clip_grad_norm=%g", of->job->clip);
  else begin(out, "clip_grad_norm=null");
  begin(out, "loss._component_=%s", hri_recipe_loss(&of->settings->recipe));
  if (t->recipe.chunks) begin(out, "loss.num_output_chunks=%u", t->recipe.chunks);
}

bool hri_torch_arguments_write(const hri_torch_arguments_of *of, hri_torch_arguments *out) {
  memset(out, 0, sizeof *out);
  if (of->stack == HR_PYTORCH_AXOLOTL) {
    write_axolotl(of, out);
  } else if (of->stack == HR_PYTORCH_TORCHTUNE) {
    write_torchtune(of, out);
  } else if (of->stack == HR_PYTORCH_LLAMA_FACTORY) {
    write_llama_factory(of, out);
  } else {
    write_model(of, out);
    write_adapters(of, out);
    if (of->stack == HR_PYTORCH_PLAIN) write_loop(of, out);
    else write_trainer(of, out);
  }
  write_beside(of, out);
  if (of->alloc_conf && *of->alloc_conf) begin(out, "PYTORCH_ALLOC_CONF=%s", of->alloc_conf);
  for (size_t i = 0; i < out->texts.count; i++) out->failed = out->failed || out->texts.items[i].failed;
  return !out->failed;
}

void hri_torch_arguments_deinit(hri_torch_arguments *arguments) {
  for (size_t i = 0; i < arguments->texts.count; i++) hri_text_deinit(&arguments->texts.items[i]);
  hri_array_free(&arguments->texts);
}
