/* How torchtune's recipes make a model: on the device at once, module by module in the order of the builders (models/<family>/_component_builders.py),
 * and then copy a checkpoint into it, which makes nothing there. The lists are in the order of model.parameters(). */
#include <stdlib.h>

#include "frameworks/pytorch/device.h"
#include "frameworks/pytorch/nf4.h"
#include "frameworks/pytorch/torchtune.h"

typedef struct maker {
  hri_torch *t;
  hri_module *module;
  hri_ten_type type;
} maker;

static hri_ten *parameter(maker *m, uint32_t rank, uint64_t a, uint64_t b, bool adapter) {
  bool trains = adapter || m->module->model->lora.rank == 0;
  return hri_ten_parameter(m->t, m->type, hri_ten_shape_of(rank, a, b, 0, 0), trains);
}

/* ---- rotary embeddings ---- */

static hri_ten *table(maker *m, const char *op, uint64_t rows, uint64_t columns) {
  return hri_ten_make(m->t, op, HRI_F32, hri_ten_shape_of(2, rows, columns, 0, 0));
}

/* Qwen2RotaryPositionalEmbeddings, and Phi-3's: cosines and sines of each half twice. */
static bool turns_halves(const hr_model *model) {
  return model->family == HR_FAMILY_QWEN2 || model->family == HR_FAMILY_PHI3;
}

/* build_rope_cache: fp32 for all positions that the model was made for, kept to the end. */
static void rotary(maker *m) {
  const hr_model *model = m->module->model;
  uint64_t rows = model->max_positions, half = model->head_size / 2;
  hri_ten *theta, *positions, *angles, *both = NULL, *cos, *sin;
  hri_torch_at(m->t, "pos_embeddings", -2);
  theta = table(m, "div", half, 1);
  positions = table(m, "arange", rows, 1);
  angles = table(m, "mul", rows, half);
  if (turns_halves(model)) both = table(m, "cat", rows, 2 * half);
  cos = table(m, "cos", rows, both ? 2 * half : half);
  sin = table(m, "sin", rows, both ? 2 * half : half);
  m->module->frequencies[0] = table(m, "cat", rows, both ? 4 * half : 2 * half);
  hri_ten *const all[] = {sin, cos, both, angles, positions};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) hri_ten_drop(m->t, all[i]);
  m->module->frequencies[1] = theta;
}

/* Builders with adapters make one for each layer, but for the two that scale frequencies. */
static bool rotary_of_layer(const hr_model *model) { return model->lora.rank && model->rope.scaling != HR_ROPE_LLAMA3; }

/* ---- linear modules ---- */

static bool is_adapted(const hr_model *model, uint32_t layer, hr_module kind) {
  return model->lora.rank && (model->lora.modules[layer] & (1u << kind));
}

/* Phi-3's q, k and v, and gate and up, are modules of their own here: the one that transformers has stands for all of them, unless they
 * are named. */
static hr_module described_as(const hr_model *model, uint32_t layer, hr_module kind) {
  const uint32_t set = model->lora.modules[layer], own = 1u << HR_MODULE_K | 1u << HR_MODULE_V;
  if (model->family != HR_FAMILY_PHI3) return kind;
  if ((kind == HR_MODULE_K || kind == HR_MODULE_V) && !(set & own)) return HR_MODULE_Q;
  return kind == HR_MODULE_MLP_UP ? HR_MODULE_MLP_GATE : kind;
}

/* FrozenNF4Linear, or what a LoRALinear makes of its nn.Linear. */
static hri_ten *packed(maker *m, hri_module_linear *linear) {
  hri_torch_4bit *weight = &m->module->packed[m->module->packed_count++];
  *weight = (hri_torch_4bit){.out = linear->out, .in = linear->in, .compute = m->type, .nested = true};
  linear->packed = weight;
  return hri_nf4_parameter(m->t, weight);
}

/* nn.Linear, or LoRALinear around one. */
static hri_module_linear linear(maker *m, const char *name, hr_module kind, uint32_t layer, uint64_t out, uint64_t in,
                                bool bias) {
  const hr_lora *lora = &m->module->model->lora;
  hri_module_linear made = {.out = out, .in = in};
  hri_torch_at(m->t, name, (int32_t)layer);
  made.weight = m->module->quantized ? packed(m, &made) : parameter(m, 2, out, in, false);
  if (bias) made.bias = parameter(m, 1, out, 0, false);
  kind = described_as(m->module->model, layer, kind);
  if (!is_adapted(m->module->model, layer, kind)) return made;
  uint8_t own = lora->kinds[layer][kind];
  uint64_t rank = own ? lora->own[own - 1].rank : lora->rank;
  hri_torch_at(m->t, "lora", (int32_t)layer);
  made.a = parameter(m, 2, rank, in, true);
  made.b = parameter(m, 2, out, rank, true);
  if (lora->dora) made.magnitude = parameter(m, 1, out, 0, true);
  return made;
}

static void attention(maker *m, uint32_t i) {
  const hr_model *d = m->module->model;
  hri_module_layer *l = &m->module->layers[i];
  uint64_t h = d->hidden_size, q = (uint64_t)d->head_count * d->head_size,
           kv = (uint64_t)d->kv_head_count * d->head_size;
  l->q = linear(m, "attn.q_proj", HR_MODULE_Q, i, q, h, d->qkv_bias);
  l->k = linear(m, "attn.k_proj", HR_MODULE_K, i, kv, h, d->qkv_bias);
  l->v = linear(m, "attn.v_proj", HR_MODULE_V, i, kv, h, d->qkv_bias);
  l->o = linear(m, "attn.output_proj", HR_MODULE_ATTENTION_OUTPUT, i, h, q, false);
  if (rotary_of_layer(d)) rotary(m);
}

static void mlp(maker *m, uint32_t i) {
  const hr_model *d = m->module->model;
  hri_module_layer *l = &m->module->layers[i];
  l->gate = linear(m, "mlp.w1", HR_MODULE_MLP_GATE, i, d->mlp_size, d->hidden_size, false);
  l->down = linear(m, "mlp.w2", HR_MODULE_MLP_DOWN, i, d->hidden_size, d->mlp_size, false);
  l->up = linear(m, "mlp.w3", HR_MODULE_MLP_UP, i, d->mlp_size, d->hidden_size, false);
}

static hri_ten *norm(maker *m, const char *name) {
  hri_torch_at(m->t, name, -2);
  return parameter(m, 1, m->module->model->hidden_size, 0, false);
}

static void layer(maker *m, uint32_t i) {
  static const char *const names[] = {"sa_norm", "mlp_norm", "sa_scale", "mlp_scale"};
  bool gemma = m->module->model->post_norms;
  hri_torch_at(m->t, NULL, (int32_t)i);
  if (gemma) mlp(m, i);
  attention(m, i);
  if (!gemma) mlp(m, i);
  for (int k = 0; k < (gemma ? 4 : 2); k++) m->module->layers[i].norms[k][0] = norm(m, names[k]);
}

static void embedding(maker *m) {
  const hr_model *d = m->module->model;
  hri_torch_at(m->t, "tok_embeddings", -1);
  m->module->embed = parameter(m, 2, d->vocabulary_size, d->hidden_size, false);
}

/* ---- the whole ---- */

static void list(hri_module *m, hri_ten *tensor, int32_t layer) {
  if (!tensor) return;
  tensor->place = m->parameter_count;
  m->layer_of[m->parameter_count] = layer;
  m->parameters[m->parameter_count++] = tensor;
}

/* A module's own parameters stand before those of the modules in it. */
static void list_linear(hri_module *m, const hri_module_linear *linear, int32_t layer) {
  hri_ten *const all[] = {linear->weight, linear->bias, linear->magnitude, linear->a, linear->b};
  for (int k = 0; k < 5; k++) list(m, all[k], layer);
}

static void list_all(hri_module *m) {
  list(m, m->embed, -1);
  for (uint32_t i = 0; i < m->model->layer_count; i++) {
    const hri_module_layer *l = &m->layers[i];
    const hri_module_linear *const all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->down, &l->up};
    for (unsigned k = 0; k < sizeof all / sizeof *all; k++) list_linear(m, all[k], (int32_t)i);
    for (int k = 0; k < 4; k++) list(m, l->norms[k][0], (int32_t)i);
  }
  list(m, m->norm[0], -1);
  list(m, m->head, -1);
}

static void make_all(maker *m) {
  const hr_model *d = m->module->model;
  bool early = d->lora.rank && d->family == HR_FAMILY_GEMMA2; /* lora_gemma2 begins with the embedding */
  if (!rotary_of_layer(d)) rotary(m);
  if (early) embedding(m);
  for (uint32_t i = 0; i < d->layer_count; i++) layer(m, i);
  hri_torch_at(m->t, NULL, -1);
  if (!early) embedding(m);
  if (!d->tied_embeddings) {
    hri_torch_at(m->t, "output", -1);
    m->module->head = parameter(m, 2, d->vocabulary_size, d->hidden_size, false);
  }
  m->module->norm[0] = norm(m, "norm");
}

typedef void each_linear(maker *m, const hri_module_linear *linear);

static void for_each(maker *m, const char *name, each_linear *act) {
  for (uint32_t i = 0; i < m->module->model->layer_count; i++) {
    const hri_module_layer *l = &m->module->layers[i];
    const hri_module_linear *const all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->down, &l->up};
    hri_torch_at(m->t, name, (int32_t)i);
    for (unsigned k = 0; k < sizeof all / sizeof *all; k++) act(m, all[k]);
  }
}

/* load_state_dict, whose names are in the order of the lists. */
static void load_packed(maker *m, const hri_module_linear *linear) {
  if (linear->packed) hri_nf4_load(m->t, linear->packed);
}

/* initialize_dora_magnitude, behind it. */
static void begin_magnitude(maker *m, const hri_module_linear *linear) {
  hri_ten *weight, *product, *norm;
  if (!linear->magnitude) return;
  weight = hri_tune_weight(m->t, linear);
  product = hri_ten_make(m->t, "mm", m->type, hri_ten_shape_of(2, linear->out, linear->in, 0, 0));
  hri_aten_workspace(m->t);
  norm = hri_tune_weight_norm(m->t, linear);
  hri_ten *const all[] = {norm, weight, product};
  for (int i = 0; i < 3; i++) hri_ten_drop(m->t, all[i]);
}

bool hri_tune_init(hri_torch *t, hri_module *module, const hr_model *model, hri_ten_type type) {
  maker m = {t, module, type};
  uint32_t capacity = 40 * model->layer_count + 3;
  module->model = model;
  module->parameters = hri_alloc_zero(capacity, sizeof(hri_ten *));
  module->layer_of = hri_alloc_zero(capacity, sizeof *module->layer_of);
  module->layers = hri_alloc_zero(model->layer_count, sizeof *module->layers);
  module->packed = hri_alloc_zero(HR_MODULE_COUNT * model->layer_count, sizeof *module->packed);
  if (!module->parameters || !module->layer_of || !module->layers || !module->packed) return t->failed = true, false;
  make_all(&m);
  if (t->failed) return false; /* tensors are one and the same then */
  list_all(module);
  for_each(&m, "load_state_dict", load_packed);
  for_each(&m, "initialize_dora_magnitude", begin_magnitude);
  return !t->failed;
}
