/* How parameters come to the device (module.h): model.to("cuda"), or from_pretrained with bitsandbytes' 4 bits and peft's preparation.
 * The order decides where they lie, and what is alive beside them while the model loads. */
#include <stdlib.h>
#include <string.h>

#include "frameworks/pytorch/adapters.h"
#include "model/freeze.h"
#include "model/params.h"

/* A tensor of the checkpoint, by its name: module (of a layer; -1: of none), and weight or bias. */
typedef struct piece {
  const char *module;
  int32_t layer;
  bool bias, of_gpt2;
  hri_ten *tensor;
  hri_torch_4bit *packed; /* NULL: it stays as it is, or has 8 bits */
  hri_torch_8bit *narrow;
} piece;

typedef struct maker {
  hri_torch *torch;
  hri_module *module;
  hri_ten_type type;
  uint32_t capacity;
  piece *pieces; /* beside module->parameters */
  bool biases;   /* what is made is one */
  bool by_names; /* from_pretrained brings weights in the order of their names, and buffers behind them */
} maker;

static hri_ten *listed(maker *m, hri_ten *tensor, hri_torch_4bit *weight, hri_torch_8bit *narrow) {
  hri_module *module = m->module;
  piece made = {m->torch->label.module,
                m->torch->label.layer,
                m->biases,
                module->model->learned_positions,
                tensor,
                weight,
                narrow};
  if (module->parameter_count == m->capacity) return m->torch->failed = true, tensor;
  m->pieces[module->parameter_count] = made;
  module->layer_of[module->parameter_count] = made.layer;
  module->parameters[module->parameter_count++] = tensor;
  return tensor;
}

static hri_ten *parameter(maker *m, uint32_t rank, uint64_t a, uint64_t b) {
  bool trains = m->module->model->lora.rank == 0;
  return listed(m, hri_ten_parameter(m->torch, m->type, hri_ten_shape_of(rank, a, b, 0, 0), trains), NULL, NULL);
}

static hri_ten *bias(maker *m, uint64_t width) {
  hri_ten *made;
  m->biases = true;
  made = parameter(m, 1, width, 0);
  m->biases = false;
  return made;
}

/* Linear4bit in place of Linear (replace_with_bnb_linear). */
static hri_ten *packed(maker *m, hri_module_linear *linear) {
  hri_torch_4bit *weight = &m->module->packed[m->module->packed_count++];
  *weight = (hri_torch_4bit){.out = linear->out, .in = linear->in, .compute = m->type};
  weight->nested = m->module->quantized == HRI_TORCH_NF4_DOUBLE;
  weight->turned = linear->conv1d;
  weight->storage = m->module->storage;
  linear->packed = weight;
  return listed(m, hri_bnb_parameter(m->torch, weight), weight, NULL);
}

static hri_ten *narrow(maker *m, hri_module_linear *linear) {
  hri_torch_8bit *weight = &m->module->narrow[m->module->packed_count++];
  *weight = (hri_torch_8bit){.out = linear->out, .in = linear->in, .checkpoint = m->type};
  weight->turned = linear->conv1d;
  linear->narrow = weight;
  return listed(m, hri_bnb8_parameter(m->torch, weight), NULL, weight);
}

static hri_module_linear linear(maker *m, const char *name, uint64_t out, uint64_t in, bool with_bias) {
  hri_module_linear made = {.out = out, .in = in};
  hri_torch_at(m->torch, name, -2);
  made.conv1d = m->module->model->family == HR_FAMILY_GPT2;
  if (m->module->quantized == HRI_TORCH_INT8) made.weight = narrow(m, &made);
  else if (m->module->quantized) made.weight = packed(m, &made);
  else made.weight = made.conv1d ? parameter(m, 2, in, out) : parameter(m, 2, out, in);
  if (with_bias) made.bias = bias(m, out);
  return made;
}

static void norm(maker *m, const char *name, hri_ten *made[2], uint64_t width) {
  hri_torch_at(m->torch, name, -2);
  made[0] = parameter(m, 1, width, 0);
  if (m->module->model->norm == HR_NORM_LAYER) made[1] = bias(m, width);
}

static hri_ten *buffer(maker *m, hri_ten_type type, uint64_t count) {
  return hri_ten_flat(m->torch, "buffer", type, count);
}

static void gpt2_layer(maker *m, hri_module_layer *l) {
  const hr_model *d = m->module->model;
  uint64_t h = d->hidden_size;
  norm(m, "ln_1", l->norms[0], h);
  l->q = linear(m, "attn.c_attn", 3 * h, h, true);
  l->o = linear(m, "attn.c_proj", h, h, true);
  if (m->module->version >= HRI_TRANSFORMERS_4_57) {
    l->buffers[0] = buffer(m, HRI_BOOL, (uint64_t)d->max_positions * d->max_positions); /* bias: the causal mask */
    l->buffers[1] = buffer(m, HRI_F32, 1);                                              /* masked_bias */
  }
  norm(m, "ln_2", l->norms[1], h);
  l->gate = linear(m, "mlp.c_fc", d->mlp_size, h, true);
  l->down = linear(m, "mlp.c_proj", h, d->mlp_size, true);
}

/* In 4.46 each attention has a rotary embedding of its own, whether it asks it or not. */
static void older_rotary(maker *m, hri_module_layer *l) {
  if (m->module->version == HRI_TRANSFORMERS_4_46)
    l->buffers[0] = buffer(m, HRI_F32, m->module->model->rotary_size / 2);
}

static void llama_layer(maker *m, hri_module_layer *l) {
  const hr_model *d = m->module->model;
  uint64_t h = d->hidden_size, q = (uint64_t)d->head_count * d->head_size,
           kv = (uint64_t)d->kv_head_count * d->head_size;
  if (d->family == HR_FAMILY_PHI3) {
    l->o = linear(m, "self_attn.o_proj", h, q, false);
    l->q = linear(m, "self_attn.qkv_proj", q + 2 * kv, h, false);
    older_rotary(m, l);
    l->gate = linear(m, "mlp.gate_up_proj", 2 * (uint64_t)d->mlp_size, h, false);
    l->down = linear(m, "mlp.down_proj", h, d->mlp_size, false);
  } else {
    l->q = linear(m, "self_attn.q_proj", q, h, d->qkv_bias);
    l->k = linear(m, "self_attn.k_proj", kv, h, d->qkv_bias);
    l->v = linear(m, "self_attn.v_proj", kv, h, d->qkv_bias);
    l->o = linear(m, "self_attn.o_proj", h, q, d->attention_output_bias);
    older_rotary(m, l);
    if (d->qk_norm)
      for (int k = 0; k < 2; k++)
        hri_torch_at(m->torch, k ? "self_attn.k_norm" : "self_attn.q_norm", -2),
            l->qk_norms[k] = parameter(m, 1, d->head_size, 0);
    l->gate = linear(m, "mlp.gate_proj", d->mlp_size, h, d->mlp_bias);
    l->up = linear(m, "mlp.up_proj", d->mlp_size, h, d->mlp_bias);
    l->down = linear(m, "mlp.down_proj", h, d->mlp_size, d->mlp_bias);
  }
  norm(m, "input_layernorm", l->norms[0], h);
  norm(m, "post_attention_layernorm", l->norms[1], h);
  if (!d->post_norms) return;
  norm(m, "pre_feedforward_layernorm", l->norms[2], h);
  norm(m, "post_feedforward_layernorm", l->norms[3], h);
}

void hri_module_kinds_of_layers(const hr_model *model, bool *some, bool *all) {
  *some = false;
  *all = true;
  for (uint32_t i = 0; i < model->layer_count; i++)
    *some = *some || model->sliding[i], *all = *all && model->sliding[i];
}

int hri_module_rotary_kinds(const hr_model *model) {
  bool some, all;
  hri_module_kinds_of_layers(model, &some, &all);
  if (model->learned_positions) return 0;
  return model->has_local_rope && some && !all ? 2 : 1;
}

/* get_peft_model: A [rank, in] and B [out, rank] beside each target, in the order of modules. */
static void adapt(maker *m, hri_module_linear *linear, uint32_t layer, hr_module module) {
  const hr_lora *lora = &m->module->model->lora;
  uint8_t kind = lora->kinds[layer][module];
  uint64_t rank = kind ? lora->own[kind - 1].rank : lora->rank;
  if (!(lora->modules[layer] & (1u << module))) return;
  hri_torch_at(m->torch, "lora", (int32_t)layer);
  linear->a = parameter(m, 2, rank, linear->in);
  linear->b = parameter(m, 2, linear->out, rank);
  linear->a->requires_grad = linear->b->requires_grad = true;
  if (!lora->dora) return;
  linear->magnitude = hri_dora_begin(m->torch, linear, m->type);
  linear->magnitude->parameter = linear->magnitude->requires_grad = true;
  (void)listed(m, linear->magnitude, NULL, NULL);
}

static bool is_magnitude(const maker *m, const hri_ten *tensor) {
  for (uint32_t i = 0; i < m->module->model->layer_count; i++) {
    const hri_module_layer *l = &m->module->layers[i];
    const hri_module_linear *const all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    for (int k = 0; k < HR_MODULE_COUNT; k++)
      if (all[k]->magnitude == tensor) return true;
  }
  return false;
}

/* ModulesToSaveWrapper.update: a copy that trains, in the type of what it copies. */
static void add_saved(maker *m) {
  const hr_model *model = m->module->model;
  const struct {
    hri_slot slot;
    const char *name;
    hri_ten *from, **to;
  } all[] = {{HRI_SLOT_TOKEN_EMBEDDING, "embed_tokens", m->module->embed, &m->module->saved_embed},
             {HRI_SLOT_HEAD_WEIGHT, "lm_head", m->module->head, &m->module->saved_head}};
  for (int i = 0; i < 2; i++) {
    if (!(model->lora.saved & (1u << all[i].slot)) || !all[i].from) continue;
    hri_torch_at(m->torch, all[i].name, -1);
    *all[i].to = listed(m, hri_ten_parameter(m->torch, all[i].from->type, all[i].from->shape, true), NULL, NULL);
  }
}

/* SFTTrainer.__init__ of a quantized model: what trains becomes bf16, but for magnitudes. */
static void narrow_trained(maker *m, uint32_t from) {
  for (uint32_t i = from; i < m->module->parameter_count; i++) {
    hri_ten *tensor = m->module->parameters[i];
    if (tensor->requires_grad && !is_magnitude(m, tensor)) hri_ten_retype(m->torch, tensor, HRI_BF16);
  }
}

/* Adapters come in the type of the weights; cast_adapter_dtype then makes them fp32. */
static void add_adapters(maker *m) {
  uint32_t before = m->module->parameter_count;
  if (m->module->quantized == HRI_TORCH_INT8)
    m->type = HRI_F32; /* 8 bits are no type for them: they stay as they were made */
  for (uint32_t i = 0; i < m->module->model->layer_count; i++) {
    hri_module_layer *l = &m->module->layers[i];
    hri_module_linear *const all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    for (int k = 0; k < HR_MODULE_COUNT; k++)
      if (all[k]->weight) adapt(m, all[k], i, (hr_module)k);
  }
  uint32_t after = m->module->parameter_count;
  add_saved(m);
  for (uint32_t i = before; i < after && !m->module->narrow_adapters; i++)
    hri_ten_retype(m->torch, m->module->parameters[i], HRI_F32);
  if (m->module->prepared == HRI_PREPARED_BY_TRL && m->module->quantized) narrow_trained(m, before);
}

/* ---- model.parameters() with adapters ---- */

typedef struct ordered {
  uint32_t key;
  int32_t layer;
  hri_ten *tensor;
} ordered;

static int by_key(const void *a, const void *b) {
  const ordered *x = a, *y = b;
  return (x->key > y->key) - (x->key < y->key);
}

/* Adapters stand behind the weight and bias of their module: A before B. */
static uint32_t key_of(const hri_module *module, const hri_ten *tensor, uint32_t index) {
  enum { ROOM = 4 };
  for (uint32_t i = 0; i < module->model->layer_count; i++) {
    const hri_module_layer *l = &module->layers[i];
    const hri_module_linear *const all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    for (int k = 0; k < HR_MODULE_COUNT; k++) {
      const hri_ten *last = all[k]->bias ? all[k]->bias : all[k]->weight;
      if (!all[k]->a || (all[k]->a != tensor && all[k]->b != tensor)) continue;
      for (uint32_t p = 0; p < index; p++)
        if (module->parameters[p] == last) return ROOM * p + (all[k]->a == tensor ? 1 : 2);
    }
  }
  return ROOM * index;
}

static void put_in_order(maker *m) {
  hri_module *module = m->module;
  ordered *all = hri_alloc_zero(module->parameter_count, sizeof *all);
  if (!all) {
    m->torch->failed = true;
    return;
  }
  for (uint32_t i = 0; i < module->parameter_count; i++)
    all[i] = (ordered){key_of(module, module->parameters[i], i), module->layer_of[i], module->parameters[i]};
  qsort(all, module->parameter_count, sizeof *all, by_key);
  for (uint32_t i = 0; i < module->parameter_count; i++) {
    module->parameters[i] = all[i].tensor;
    module->layer_of[i] = all[i].layer;
  }
  hri_free(all);
}

static void add_layers(maker *m) {
  for (uint32_t i = 0; i < m->module->model->layer_count; i++) {
    hri_torch_at(m->torch, NULL, (int32_t)i);
    if (m->module->model->family == HR_FAMILY_GPT2) gpt2_layer(m, &m->module->layers[i]);
    else llama_layer(m, &m->module->layers[i]);
  }
  hri_torch_at(m->torch, NULL, -1);
  norm(m, "norm", m->module->norm, m->module->model->hidden_size);
}

/* inv_freq and, since 5, original_inv_freq of each rotary embedding, the scale of embeddings. */
static void add_buffers(maker *m) {
  const hr_model *model = m->module->model;
  int each = m->module->version == HRI_TRANSFORMERS_5 ? 2 : 1;
  for (int k = 0; k < each * hri_module_rotary_kinds(model); k++) {
    hri_torch_at(m->torch, "rotary_emb", -1);
    m->module->frequencies[k] = buffer(m, HRI_F32, model->rotary_size / 2);
  }
  if (model->embedding_scale == 1 || (model->family == HR_FAMILY_GEMMA2 && each == 1)) return;
  hri_torch_at(m->torch, "embed_tokens", -1);
  m->module->scale = buffer(m, m->type, 1);
}

static void add_all(maker *m) {
  const hr_model *model = m->module->model;
  hri_torch_at(m->torch, "embed_tokens", -1);
  m->module->embed = parameter(m, 2, model->vocabulary_size, model->hidden_size);
  if (model->learned_positions) {
    hri_torch_at(m->torch, "wpe", -1);
    m->module->positions = parameter(m, 2, model->max_positions, model->hidden_size);
  }
  add_layers(m);
  if (!m->by_names) add_buffers(m);
  if (model->tied_embeddings) return;
  hri_torch_at(m->torch, "lm_head", -1);
  m->module->head = parameter(m, 2, model->vocabulary_size, model->hidden_size);
}

/* ---- from_pretrained, quantized ---- */

/* Names sorted as transformers sorts them (dot_natural_key): "lm_head" before "model.embed_tokens", layers by number, "model.norm"
 * last; in a layer by name, biases before weights. gpt2 calls them h, ln_f, wpe, wte. */
static int section(const piece *p) {
  if (p->layer >= 0) return 2;
  if (strcmp(p->module, "lm_head") == 0) return 0;
  if (strcmp(p->module, "wpe") == 0) return 4;
  if (strcmp(p->module, "embed_tokens") == 0) return p->of_gpt2 ? 5 : 1;
  return 3;
}

static int by_name(const void *a, const void *b) {
  const piece *x = a, *y = b;
  int order = section(x) - section(y);
  if (order == 0) order = x->layer - y->layer;
  if (order == 0) order = strcmp(x->module, y->module);
  return order ? order : (int)y->bias - (int)x->bias;
}

/* caching_allocator_warmup: a tensor as large as what is to come, dropped at once, so that one segment takes most of it. */
static void warm_up(maker *m) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < m->module->parameter_count; i++) bytes += hri_ten_bytes(m->module->parameters[i]);
  hri_torch_at(m->torch, "caching_allocator_warmup", -1);
  hri_ten_drop(m->torch, hri_ten_flat(m->torch, "empty", HRI_U8, bytes));
}

static void load_pieces(maker *m) {
  const uint32_t count = m->module->parameter_count;
  piece *sorted = hri_alloc_zero(count, sizeof *sorted);
  bool first = true;
  if (!sorted) {
    m->torch->failed = true;
    return;
  }
  memcpy(sorted, m->pieces, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, by_name);
  for (uint32_t i = 0; i < count; i++) {
    const piece *p = &sorted[i];
    hri_torch_at(m->torch, p->module, p->layer);
    if (p->narrow) {
      hri_bnb8_quantize(m->torch, p->narrow);
      continue;
    }
    if (!p->packed) {
      hri_ten_materialize(m->torch, "_to_copy", p->tensor);
      continue;
    }
    hri_bnb_quantize(m->torch, p->packed, first);
    first = false;
  }
  hri_free(sorted);
}

/* prepare_model_for_kbit_training: what is not in 4 bits becomes fp32, embeddings and head too, and the cache is emptied. */
static void prepare(maker *m) {
  for (uint32_t i = 0; i < m->module->parameter_count; i++) {
    hri_ten *tensor = m->module->parameters[i];
    if (tensor->type != HRI_U8) hri_ten_retype(m->torch, tensor, HRI_F32);
  }
  hri_torch_empty_cache(m->torch);
}

static void load_by_names(maker *m) {
  m->torch->meta = true;
  add_all(m);
  m->torch->meta = false;
  warm_up(m);
  load_pieces(m);
  add_buffers(m);
}

static void load_quantized(maker *m) {
  load_by_names(m);
  hri_torch_at(m->torch, "prepare_model_for_kbit_training", -1);
  if (m->module->prepared == HRI_PREPARED_BY_PEFT || m->module->prepared == HRI_PREPARED_BY_AXOLOTL) prepare(m);
}

/* Axolotl's _convert_embedding_modules_dtype. */
static void retype_ends(maker *m, hri_ten_type type) {
  for (uint32_t i = 0; i < m->module->parameter_count; i++) {
    const piece *p = &m->pieces[i];
    bool end = strcmp(p->module, "embed_tokens") == 0 || strcmp(p->module, "lm_head") == 0;
    if (end || (strstr(p->module, "norm") && !p->of_gpt2)) hri_ten_retype(m->torch, p->tensor, type);
  }
}

static void prepare_for_axolotl(maker *m) {
  hri_torch_at(m->torch, "_convert_embedding_modules_dtype", -1);
  if (!m->module->quantized) retype_ends(m, HRI_F32);
  if (m->module->model->lora.rank) retype_ends(m, m->type);
}

/* LLaMA-Factory's prepare_model_for_training. */
static void widen_norms(maker *m) {
  hri_torch_at(m->torch, "prepare_model_for_training", -1);
  for (uint32_t i = 0; i < m->module->parameter_count; i++) {
    const piece *p = &m->pieces[i];
    if (strstr(p->module, "norm") || strncmp(p->module, "ln_", 3) == 0) hri_ten_retype(m->torch, p->tensor, HRI_F32);
  }
}

/* LLaMA-Factory's _setup_full_tuning, _setup_freeze_tuning: param.data.to(torch.float32) of what trains. */
static void widen_trained(maker *m) {
  for (uint32_t i = 0; i < m->module->parameter_count; i++)
    if (m->module->parameters[i]->requires_grad) hri_ten_retype(m->torch, m->module->parameters[i], HRI_F32);
}

/* ---- requires_grad_(False) ---- */

/* The name in files of a piece's module: "embed_tokens" of gpt2 is wte, "norm" ln_f. */
static bool is_called(const hr_model *model, const piece *p, const hri_param_spec *spec, const hri_param_part *part) {
  const char *module = p->module, *end = strrchr(part->name, '.'), *at;
  size_t length;
  if (spec->layer != p->layer || (end && strcmp(end, ".bias") == 0) != p->bias) return false;
  if (model->learned_positions && strcmp(module, "embed_tokens") == 0) module = "wte";
  if (model->learned_positions && strcmp(module, "norm") == 0) module = "ln_f";
  at = strstr(part->name, module);
  length = strlen(module);
  return at && (at == part->name || at[-1] == '.') && at + length == end;
}

/* Those of a layer stand side by side: `first` says where they begin. */
static piece *piece_of(maker *m, const uint32_t *first, const hri_param_spec *spec, const hri_param_part *part) {
  const uint32_t count = m->module->parameter_count;
  for (uint32_t i = spec->layer < 0 ? 0 : first[spec->layer]; i < count; i++) {
    if (spec->layer >= 0 && m->pieces[i].layer != spec->layer) break;
    if (is_called(m->module->model, &m->pieces[i], spec, part)) return &m->pieces[i];
  }
  return NULL;
}

/* Each part of the model's parameters once, since there are thousands of both. */
static void freeze_some(maker *m, const char *freeze, const char *train_only) {
  const hr_model *model = m->module->model;
  uint32_t *first = hri_alloc_zero(model->layer_count, sizeof *first);
  if (!first) {
    m->torch->failed = true;
    return;
  }
  for (uint32_t i = m->module->parameter_count; i-- > 0;)
    if (m->pieces[i].layer >= 0) first[m->pieces[i].layer] = i;
  for (uint32_t i = 0; i < hri_param_count(model); i++) {
    hri_param_spec spec;
    hri_param_get(model, i, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++) {
      piece *p = piece_of(m, first, &spec, &spec.parts[k]);
      if (p) p->tensor->requires_grad = hri_part_trains(model, &spec, &spec.parts[k], freeze, train_only);
    }
  }
  hri_free(first);
}

bool hri_module_init(hri_torch *torch, hri_module *module, const hr_model *model, hri_ten_type type,
                     const hri_module_frozen *frozen) {
  maker m = {.torch = torch, .module = module, .type = type, .capacity = 40 * model->layer_count + 8};
  bool moved = module->moves_late && !module->on_host && !module->quantized;
  module->model = model;
  module->parameters = hri_alloc_zero(m.capacity, sizeof(hri_ten *));
  module->layer_of = hri_alloc_zero(m.capacity, sizeof *module->layer_of);
  module->layers = hri_alloc_zero(model->layer_count, sizeof *module->layers);
  module->packed = hri_alloc_zero(HR_MODULE_COUNT * model->layer_count, sizeof *module->packed);
  module->narrow = hri_alloc_zero(HR_MODULE_COUNT * model->layer_count, sizeof *module->narrow);
  m.pieces = hri_alloc_zero(m.capacity, sizeof *m.pieces);
  m.by_names = module->quantized || module->loading == HRI_LOADED_BY_MAP;
  torch->meta = module->on_host || moved;
  if (!module->parameters || !module->layer_of || !module->layers || !module->packed || !module->narrow || !m.pieces)
    torch->failed = true;
  else if (module->quantized) load_quantized(&m);
  else if (m.by_names) load_by_names(&m);
  else add_all(&m);
  if (!torch->failed && module->prepared == HRI_PREPARED_BY_AXOLOTL) prepare_for_axolotl(&m);
  if (!torch->failed && module->wide_norms) widen_norms(&m);
  if (!torch->failed && model->lora.rank) add_adapters(&m);
  else if (!torch->failed && (frozen->freeze || frozen->train_only))
    freeze_some(&m, frozen->freeze, frozen->train_only);
  if (!torch->failed && module->wide_trained) widen_trained(&m);
  torch->meta = false;
  if (!torch->failed && module->in_order) put_in_order(&m);
  for (uint32_t i = 0; moved && !torch->failed && i < module->parameter_count; i++)
    hri_ten_materialize(torch, "to", module->parameters[i]);
  if (moved && !torch->failed) hri_module_place_buffers(torch, module);
  if (!torch->failed && module->empties_cache) hri_torch_empty_cache(torch);
  hri_free(m.pieces);
  return !torch->failed;
}

uint32_t hri_module_buffers(const hri_module *module, hri_ten **buffers) {
  hri_ten *const all[HRI_MODULE_BUFFERS] = {module->frequencies[0], module->frequencies[1], module->frequencies[2],
                                            module->frequencies[3], module->scale};
  uint32_t count = 0;
  for (unsigned k = 0; k < HRI_MODULE_BUFFERS; k++)
    if (all[k]) buffers[count++] = all[k];
  return count;
}

void hri_module_place_buffers(hri_torch *torch, hri_module *module) {
  hri_ten *buffers[HRI_MODULE_BUFFERS];
  uint32_t count = hri_module_buffers(module, buffers);
  for (uint32_t k = 0; k < count; k++)
    if (buffers[k]->storage == 0) hri_ten_materialize(torch, "to", buffers[k]);
}

void hri_module_deinit(hri_module *module) {
  hri_free(module->layer_of);
  hri_free(module->parameters);
  hri_free(module->layers);
  hri_free(module->packed);
  hri_free(module->narrow);
}
