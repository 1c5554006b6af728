/* The models of transformers (module.h), family by family, op by op in the order of their forward, with the adapters of PEFT: that
 * order and what Python still holds decide what is alive. Shapes are [rows, tokens, width]; heads [rows, heads, tokens, width]. */
#include "frameworks/pytorch/module.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frameworks/pytorch/adapters.h"
#include "frameworks/pytorch/aten.h"
#include "frameworks/pytorch/checkpoint.h"
#include "frameworks/pytorch/fused_head.h"
#include "frameworks/pytorch/liger.h"
#include "frameworks/pytorch/lora_kernels.h"
#include "frameworks/pytorch/pass.h"

typedef hri_module_pass pass;

/* ---- what layers are made of ---- */

/* A module that has its turn and changes nothing (dropout that is off), or whose result needs no gradient. */
static void passes(hri_torch *t, const hri_module *module) {
  hri_ten *none = NULL;
  hri_ten_drop(t, hri_module_begins(t, module, NULL, NULL, NULL, NULL));
  hri_module_ends(t, module, NULL, NULL, &none);
}

/* nn.Dropout */
static hri_ten *drops(hri_torch *t, const hri_module *module, double rate, hri_ten *x) {
  hri_ten *given = hri_module_begins(t, module, NULL, NULL, NULL, x), *y = hri_aten_dropout(t, given, rate);
  hri_ten_drop(t, given);
  hri_module_ends(t, module, NULL, NULL, &y);
  return y;
}

/* LlamaRMSNorm: cast to fp32, x * rsqrt(mean(x^2) + eps), cast back, times weight. */
static hri_ten *rms_norm(hri_torch *t, const char *name, hri_ten *given, hri_ten *weight) {
  hri_ten *x, *square, *variance, *shifted, *root, *normed, *back, *y;
  hri_torch_at(t, name, -2);
  x = hri_aten_to(t, given, HRI_F32);
  square = hri_aten_pow(t, x);
  variance = hri_aten_mean_last(t, square);
  hri_ten_drop(t, square);
  shifted = hri_aten_add_scalar(t, variance);
  root = hri_aten_rsqrt(t, shifted);
  hri_ten_drop(t, shifted);
  normed = hri_aten_mul(t, x, root);
  hri_ten_drop(t, root);
  hri_ten_drop(t, x);
  back = hri_aten_to(t, normed, given->type);
  y = hri_aten_mul(t, weight, back);
  hri_ten_drop(t, back);
  hri_ten_drop(t, normed);
  hri_ten_drop(t, variance);
  return y;
}

/* Gemma's: x.float() normed, times (1 + weight.float()), cast back at the end. */
hri_ten *hri_module_gemma_norm(hri_torch *t, hri_ten *given, hri_ten *weight) {
  hri_ten *x, *square, *variance, *normed, *wide, *factor, *y;
  x = hri_aten_to(t, given, HRI_F32);
  square = hri_aten_pow(t, x);
  variance = hri_aten_mean_last(t, square);
  hri_ten_drop(t, square);
  hri_ten_set(t, &variance, hri_aten_add_scalar(t, variance));
  hri_ten_set(t, &variance, hri_aten_rsqrt(t, variance));
  normed = hri_aten_mul(t, x, variance);
  hri_ten_drop(t, variance);
  hri_ten_drop(t, x);
  wide = hri_aten_to(t, weight, HRI_F32);
  factor = hri_aten_add_scalar(t, wide);
  hri_ten_drop(t, wide);
  hri_ten_set(t, &normed, hri_aten_mul(t, normed, factor));
  hri_ten_drop(t, factor);
  y = hri_aten_to(t, normed, given->type);
  hri_ten_drop(t, normed);
  return y;
}

/* Gemma 3 norms heads that are turned already: Liger copies them, and the gradient, where there is more than one. */
static bool norms_turned_heads(const hri_module *module, const hri_ten *x) {
  return module->model->family == HR_FAMILY_GEMMA3 && x->shape.rank == 4 && x->shape.dims[1] > 1;
}

static hri_ten *rms(hri_torch *t, const hri_module *module, const char *name, hri_ten *x, hri_ten *weight) {
  hri_torch_at(t, name, -2);
  if (module->liger)
    return hri_liger_norm(t, x, weight, norms_turned_heads(module, x), module->model->norm_weight_offset == 0);
  return module->model->norm_weight_offset != 0 ? hri_module_gemma_norm(t, x, weight) : rms_norm(t, name, x, weight);
}

static hri_ten *any_norm(hri_torch *t, const hri_module *module, const char *name, hri_ten *given,
                         hri_ten *const weights[2]) {
  hri_ten *x = hri_module_begins(t, module, name, weights[0], weights[1], given), *y;
  if (module->model->norm == HR_NORM_RMS) y = rms(t, module, name, x, weights[0]);
  else y = hri_aten_layer_norm(t, x, weights[0], weights[1]);
  hri_ten_drop(t, x);
  hri_module_ends(t, module, weights[0], weights[1], &y);
  return y;
}

/* Of each head. */
static hri_ten *head_norm(hri_torch *t, const hri_module *module, const char *name, hri_ten *given, hri_ten *weight) {
  hri_ten *x = hri_module_begins(t, module, name, weight, NULL, given), *y = rms(t, module, name, x, weight);
  hri_ten_drop(t, x);
  hri_module_ends(t, module, weight, NULL, &y);
  return y;
}

/* view(rows, tokens, heads, width).transpose(1, 2). Gradients of what was turned come in the order of heads (slices are
 * filled into zeros of that order), as do all of eager attention's: the view back copies them. */
static hri_ten *heads_of(hri_torch *t, hri_ten *x, uint64_t heads, bool turned) {
  const uint64_t *d = x->shape.dims;
  hri_ten_shape shape = hri_ten_shape_of(4, d[0], heads, d[1], d[2] / heads);
  return turned ? hri_aten_view_copied_back(t, x, shape) : hri_aten_view(t, x, shape);
}

/* x cos + rotate_half(x) sin */
static hri_ten *rotate(hri_torch *t, hri_ten *x, hri_ten *cos, hri_ten *sin) {
  hri_ten *straight = hri_aten_mul(t, x, cos), *first, *second, *minus, *half, *turned, *y;
  first = hri_aten_narrow_last(t, x, x->shape.dims[3] / 2);
  second = hri_aten_narrow_last(t, x, x->shape.dims[3] / 2);
  minus = hri_aten_neg(t, second);
  half = hri_aten_cat_last(t, minus, first);
  hri_ten_drop(t, minus);
  hri_ten_drop(t, second);
  hri_ten_drop(t, first);
  turned = hri_aten_mul(t, half, sin);
  hri_ten_drop(t, half);
  y = hri_aten_add(t, straight, turned);
  hri_ten_drop(t, straight);
  hri_ten_drop(t, turned);
  return y;
}

/* ---- GPT-2 ---- */

static hri_ten *gpt2_attention(hri_torch *t, pass *p, uint32_t index, hri_ten *given) {
  const hri_module_layer *l = &p->module->layers[index];
  hri_ten *x = hri_module_begins(t, p->module, NULL, NULL, NULL, given);
  hri_ten *fused = hri_module_apply(t, p->module, "attn.c_attn", &l->q, x), *parts[3], *y;
  bool eager = p->module->attention == HRI_TORCH_EAGER;
  hri_attention_way way = hri_attention_way_of(t, p, fused->type);
  hri_ten_drop(t, x);
  hri_aten_split_last(t, fused, 3, parts);
  hri_ten_drop(t, fused);
  for (int i = 0; i < 3; i++)
    hri_ten_set(t, &parts[i],
                heads_of(t, parts[i], p->module->model->head_count,
                         eager    ? i != 1
                         : i == 0 ? way.turns_all
                                  : way.turns_value));
  hri_module_update_cache(t, p, index, &parts[1], &parts[2]);
  y = hri_module_attend(t, p, parts[0], parts[1], parts[2]);
  hri_ten_set(t, &y, hri_module_apply(t, p->module, "attn.c_proj", &l->o, y));
  hri_ten_set(t, &y, drops(t, p->module, p->module->dropout.attention_output, y));
  for (int i = 0; i < 3; i++) hri_ten_drop(t, parts[i]);
  hri_module_ends(t, p->module, NULL, NULL, &y);
  return y;
}

/* NewGELUActivation: 0.5 x (1 + tanh(c (x + 0.044715 x^3))), op by op. */
static hri_ten *new_gelu(hri_torch *t, hri_ten *x) {
  hri_ten *half = hri_aten_mul_scalar(t, x), *cube = hri_aten_pow(t, x), *part = hri_aten_mul_scalar(t, cube), *y;
  hri_ten_drop(t, cube);
  hri_ten_set(t, &part, hri_aten_add(t, x, part));
  hri_ten_set(t, &part, hri_aten_mul_scalar(t, part));
  hri_ten_set(t, &part, hri_aten_tanh(t, part));
  hri_ten_set(t, &part, hri_aten_add_scalar(t, part));
  y = hri_aten_mul(t, half, part);
  hri_ten_drop(t, part);
  hri_ten_drop(t, half);
  return y;
}

static hri_ten *gpt2_mlp(hri_torch *t, pass *p, const hri_module_layer *l, hri_ten *given) {
  hri_ten *x = hri_module_begins(t, p->module, NULL, NULL, NULL, given),
          *y = hri_module_apply(t, p->module, "mlp.c_fc", &l->gate, x);
  hri_ten_drop(t, x);
  hri_ten_set(t, &y, hri_module_begins(t, p->module, "mlp.act", NULL, NULL, y));
  hri_ten_set(t, &y, new_gelu(t, y));
  hri_module_ends(t, p->module, NULL, NULL, &y);
  hri_ten_set(t, &y, hri_module_apply(t, p->module, "mlp.c_proj", &l->down, y));
  hri_ten_set(t, &y, drops(t, p->module, p->module->dropout.mlp, y));
  hri_module_ends(t, p->module, NULL, NULL, &y);
  return y;
}

/* Hooks around a module: what it gets instead of `input`, a new reference; and what it gave. */
static hri_ten *enter(hri_torch *t, const hri_module *module, int32_t which, hri_ten *input) {
  return module->hooks ? module->hooks->enter(t, module->hooks_context, which, input) : hri_ten_keep(input);
}

static void leave(hri_torch *t, const hri_module *module, int32_t which, hri_ten *output) {
  if (module->hooks) module->hooks->leave(t, module->hooks_context, which, output);
}

static hri_ten *gpt2_block(hri_torch *t, hri_ten *residual, void *context, uint32_t index) {
  pass *p = context;
  p->mask = p->masks[0];
  const hri_module_layer *l = &p->module->layers[index];
  hri_ten *hidden = any_norm(t, p->module, "ln_1", residual, l->norms[0]), *attended, *fed, *sum;
  attended = gpt2_attention(t, p, index, hidden);
  hri_torch_at(t, "residual", -2);
  hri_ten_set(t, &hidden, hri_aten_add(t, attended, residual));
  sum = hri_ten_keep(hidden);
  hri_ten_set(t, &hidden, any_norm(t, p->module, "ln_2", sum, l->norms[1]));
  fed = gpt2_mlp(t, p, l, hidden);
  hri_torch_at(t, "residual", -2);
  hri_ten_set(t, &hidden, hri_aten_add(t, sum, fed));
  hri_ten_drop(t, fed);
  hri_ten_drop(t, sum);
  hri_ten_drop(t, attended);
  return hidden;
}

/* ---- Llama and its family ---- */

static hri_ten *projected(hri_torch *t, const hri_module *module, const char *name, const hri_module_linear *linear,
                          hri_ten *x, uint64_t heads, bool turned) {
  hri_ten *y = hri_module_apply(t, module, name, linear, x);
  hri_ten_set(t, &y, heads_of(t, y, heads, turned));
  return y;
}

/* Phi-3's one product: q, k and v are slices of its columns, each a function of its own. */
static void sliced(hri_torch *t, pass *p, const hri_module_layer *l, hri_ten *x, hri_ten *parts[3]) {
  const hr_model *m = p->module->model;
  const uint64_t heads[] = {m->head_count, m->kv_head_count, m->kv_head_count};
  hri_ten *fused = hri_module_apply(t, p->module, "self_attn.qkv_proj", &l->q, x);
  bool turns = hri_attention_way_of(t, p, fused->type).turns_value;
  for (int i = 0; i < 3; i++) parts[i] = hri_aten_narrow_last(t, fused, heads[i] * m->head_size);
  for (int i = 0; i < 3; i++) {
    hri_ten_set(t, &parts[i], heads_of(t, parts[i], heads[i], i < 2 ? !p->module->liger : turns));
  }
  hri_ten_drop(t, fused);
}

/* Gradients of queries and keys come from Liger in the order of their products, but for norms of turned heads. */
static bool turns_back(const hri_module *m, uint64_t heads) {
  return !m->liger || (m->model->family == HR_FAMILY_GEMMA3 && heads > 1);
}

/* The same by axolotl's function of all three. */
static void together(hri_torch *t, pass *p, const hri_module_layer *l, hri_ten *x, hri_ten *parts[3]) {
  static const char *const norms[] = {"self_attn.q_norm", "self_attn.k_norm"};
  const hri_module *m = p->module;
  const uint64_t heads[] = {m->model->head_count, m->model->kv_head_count, m->model->kv_head_count};
  hri_lora_qkv(t, m, l, x, parts);
  for (int i = 0; i < 3; i++) {
    bool turned = i < 2 ? turns_back(m, heads[i]) : hri_attention_way_of(t, p, parts[0]->type).turns_value;
    hri_ten_set(t, &parts[i], heads_of(t, parts[i], heads[i], turned));
  }
  for (int i = 0; i < 2 && l->qk_norms[0]; i++)
    hri_ten_set(t, &parts[i], head_norm(t, m, norms[i], parts[i], l->qk_norms[i]));
}

/* Qwen 3 norms each behind its product, Gemma 3 behind all three. */
static void separate(hri_torch *t, pass *p, const hri_module_layer *l, hri_ten *x, hri_ten *parts[3]) {
  const hr_model *m = p->module->model;
  bool early = m->family == HR_FAMILY_QWEN3;
  if (hri_lora_kernel_of_qkv(p->module, l)) {
    together(t, p, l, x, parts);
    return;
  }
  parts[0] = projected(t, p->module, "self_attn.q_proj", &l->q, x, m->head_count, turns_back(p->module, m->head_count));
  if (early) hri_ten_set(t, &parts[0], head_norm(t, p->module, "self_attn.q_norm", parts[0], l->qk_norms[0]));
  parts[1] =
      projected(t, p->module, "self_attn.k_proj", &l->k, x, m->kv_head_count, turns_back(p->module, m->kv_head_count));
  if (early) hri_ten_set(t, &parts[1], head_norm(t, p->module, "self_attn.k_norm", parts[1], l->qk_norms[1]));
  parts[2] = projected(t, p->module, "self_attn.v_proj", &l->v, x, m->kv_head_count,
                       hri_attention_way_of(t, p, parts[0]->type).turns_value);
  if (!l->qk_norms[0] || early) return;
  hri_ten_set(t, &parts[0], head_norm(t, p->module, "self_attn.q_norm", parts[0], l->qk_norms[0]));
  hri_ten_set(t, &parts[1], head_norm(t, p->module, "self_attn.k_norm", parts[1], l->qk_norms[1]));
}

/* Phi-3 turns a slice of each head and joins it with what is left, even where nothing is; both are sliced first. */
static void turn(hri_torch *t, pass *p, hri_ten *const parts[2], hri_ten *out[2]) {
  uint64_t width = parts[0]->shape.dims[3], turned = p->module->model->rotary_size;
  hri_ten *sliced_off[2][2];
  bool slices = p->module->model->family == HR_FAMILY_PHI3 && p->module->version < HRI_TRANSFORMERS_4_46;
  for (int i = 0; i < 2 && slices; i++) {
    sliced_off[i][0] = hri_aten_narrow_last(t, parts[i], turned);
    sliced_off[i][1] = width > turned ? hri_aten_narrow_last(t, parts[i], width - turned) : NULL;
  }
  for (int i = 0; i < 2; i++) {
    out[i] = rotate(t, slices ? sliced_off[i][0] : parts[i], p->cos[p->kind], p->sin[p->kind]);
    if (!slices) continue;
    if (sliced_off[i][1]) hri_ten_set(t, &out[i], hri_aten_cat_last(t, out[i], sliced_off[i][1]));
    else hri_ten_set(t, &out[i], hri_aten_cat_one(t, out[i], out[i]->type));
  }
  for (int i = 0; i < 2 && slices; i++)
    for (int k = 0; k < 2; k++) hri_ten_drop(t, sliced_off[i][k]);
}

/* The same by Liger. Phi-3's are columns of one product, Gemma 3's are left by norms in the order of heads. */
static void liger_turn(hri_torch *t, pass *p, hri_ten *const parts[2], hri_ten *out[2]) {
  hri_attention_way way = hri_attention_way_of(t, p, parts[0]->type);
  const hr_family family = p->module->model->family;
  const bool turned[] = {way.turns_all, way.turns_value};
  hri_liger_order order;
  for (int k = 0; k < 2; k++) {
    bool many = parts[k]->shape.dims[1] > 1;
    order.copies[k] = family == HR_FAMILY_PHI3 || (family == HR_FAMILY_GEMMA3 && many);
    order.turns_gradient[k] = turned[k] && many;
  }
  hri_liger_rope(t, parts, p->cos[p->kind], p->sin[p->kind], &order, out);
}

/* LlamaRotaryEmbedding.forward, without gradient and in fp32. */
static void rotary(hri_torch *t, pass *p, hri_ten *ids, hri_ten_type type, int kind) {
  uint64_t rows = ids->shape.dims[0], tokens = ids->shape.dims[1], width = p->module->model->rotary_size;
  hri_ten *numbers, *angles, *both, **out[] = {&p->cos[kind != 0], &p->sin[kind != 0]};
  bool before = t->grad_mode;
  hri_torch_at(t, "rotary_emb", -2);
  t->grad_mode = false;
  numbers = hri_ten_like(t, "_to_copy", ids, HRI_F32);
  angles = hri_ten_make(t, "mul", HRI_F32, hri_ten_shape_of(3, rows, tokens, width / 2, 0));
  hri_ten_drop(t, numbers);
  both = hri_ten_make(t, "cat", HRI_F32, hri_ten_shape_of(3, rows, tokens, width, 0));
  for (int k = 0; k < 2; k++) {
    hri_ten *turned = hri_ten_like(t, k ? "sin" : "cos", both, HRI_F32);
    *out[k] = hri_ten_like(t, "mul", turned, HRI_F32);
    hri_ten_drop(t, turned);
  }
  for (int k = 0; k < 2; k++) hri_ten_set(t, out[k], hri_aten_to(t, *out[k], type));
  hri_ten_drop(t, both);
  hri_ten_drop(t, angles);
  t->grad_mode = before;
}

/* Families whose attention of 4.46 has the rotary embedding, in the type of its values. */
static bool rotary_of_layer(const hri_module *m) {
  const hr_family family = m->model->family;
  return m->version == HRI_TRANSFORMERS_4_46 &&
         (family == HR_FAMILY_MISTRAL || family == HR_FAMILY_PHI3 || family == HR_FAMILY_GEMMA2);
}

static hri_ten *llama_attention(hri_torch *t, pass *p, uint32_t index, hri_ten *x) {
  const hri_module_layer *l = &p->module->layers[index];
  hri_ten *parts[3], *turned[2], *y;
  hri_ten_drop(t, hri_module_begins(t, p->module, NULL, NULL, NULL, NULL)); /* called by keywords */
  if (p->module->model->family == HR_FAMILY_PHI3) sliced(t, p, l, x, parts);
  else separate(t, p, l, x, parts);
  bool own = rotary_of_layer(p->module);
  if (own) rotary(t, p, p->positions, parts[2]->type, p->kind);
  hri_torch_at(t, "self_attn.rotary", -2);
  (p->module->liger ? liger_turn : turn)(t, p, parts, turned);
  for (int i = 0; i < 2; i++) hri_ten_set(t, &parts[i], turned[i]);
  hri_module_update_cache(t, p, index, &parts[1], &parts[2]);
  y = hri_module_attend(t, p, parts[0], parts[1], parts[2]);
  hri_ten_set(t, &y,
              hri_lora_kernel_of_o(p->module, l) ? hri_lora_o(t, p->module, l, y)
                                                 : hri_module_apply(t, p->module, "self_attn.o_proj", &l->o, y));
  for (int i = 0; i < 3; i++) hri_ten_drop(t, parts[i]);
  if (own) {
    hri_ten_set(t, &p->cos[p->kind], NULL);
    hri_ten_set(t, &p->sin[p->kind], NULL);
  }
  hri_module_ends(t, p->module, NULL, NULL, &y);
  return y;
}

/* down(act(gate(x)) * up(x)) */
static hri_ten *activated(hri_torch *t, const hri_module *module, const char *name, const char *act, hri_ten *given) {
  hri_ten *x = hri_module_begins(t, module, name, NULL, NULL, given), *y;
  hri_torch_at(t, name, -2);
  y = hri_aten_activation(t, act, x);
  hri_ten_drop(t, x);
  hri_module_ends(t, module, NULL, NULL, &y);
  return y;
}

/* down(glu(gate(x), up(x))) by Liger; Phi-3's two are columns of one product. */
static hri_ten *liger_mlp(hri_torch *t, pass *p, const hri_module_layer *l, hri_ten *x) {
  bool phi3 = p->module->model->family == HR_FAMILY_PHI3;
  hri_ten *parts[2], *fused, *y;
  fused = hri_module_apply(t, p->module, phi3 ? "mlp.gate_up_proj" : "mlp.gate_proj", &l->gate, x);
  if (phi3) {
    hri_aten_split_last(t, fused, 2, parts);
    hri_ten_drop(t, fused);
  } else {
    parts[0] = fused;
    parts[1] = hri_module_apply(t, p->module, "mlp.up_proj", &l->up, x);
  }
  hri_torch_at(t, "mlp.act_fn", -2);
  y = hri_liger_gated(t, parts[0], parts[1], phi3);
  for (int i = 0; i < 2 && !phi3; i++) hri_ten_set(t, &parts[i], NULL);
  hri_ten_set(t, &y, hri_module_apply(t, p->module, "mlp.down_proj", &l->down, y));
  for (int i = 0; i < 2; i++) hri_ten_drop(t, parts[i]);
  return y;
}

static hri_ten *llama_mlp(hri_torch *t, pass *p, const hri_module_layer *l, hri_ten *given) {
  const char *act = p->module->model->activation == HR_ACTIVATION_SILU ? "silu" : "gelu";
  hri_ten *x = hri_module_begins(t, p->module, NULL, NULL, NULL, given);
  hri_ten *gate = hri_module_apply(t, p->module, "mlp.gate_proj", &l->gate, x), *up, *y;
  hri_ten_set(t, &gate, activated(t, p->module, "mlp.act_fn", act, gate));
  up = hri_module_apply(t, p->module, "mlp.up_proj", &l->up, x);
  y = hri_aten_mul(t, gate, up);
  hri_ten_drop(t, gate);
  hri_ten_drop(t, up);
  hri_ten_drop(t, x);
  hri_ten_set(t, &y, hri_module_apply(t, p->module, "mlp.down_proj", &l->down, y));
  hri_module_ends(t, p->module, NULL, NULL, &y);
  return y;
}

/* gate, up = gate_up(x).chunk(2); up = up * act(gate); down(up) */
static hri_ten *phi3_mlp(hri_torch *t, pass *p, const hri_module_layer *l, hri_ten *given) {
  hri_ten *x = hri_module_begins(t, p->module, NULL, NULL, NULL, given), *act, *y;
  hri_ten *parts[2], *fused = hri_module_apply(t, p->module, "mlp.gate_up_proj", &l->gate, x);
  hri_ten_drop(t, x);
  hri_aten_split_last(t, fused, 2, parts);
  hri_ten_drop(t, fused);
  act = activated(t, p->module, "mlp.activation_fn", "silu", parts[0]);
  hri_ten_set(t, &parts[1], hri_aten_mul(t, parts[1], act));
  hri_ten_drop(t, act);
  y = hri_module_apply(t, p->module, "mlp.down_proj", &l->down, parts[1]);
  hri_ten_drop(t, parts[1]);
  hri_ten_drop(t, parts[0]);
  hri_module_ends(t, p->module, NULL, NULL, &y);
  return y;
}

/* With a dropout that only Phi-3 has, and norms behind attention and MLP that only Gemma has. */
static hri_ten *behind(hri_torch *t, pass *p, const char *name, hri_ten *x, hri_ten *const weights[2]) {
  hri_ten *y = hri_ten_keep(x);
  if (p->module->model->post_norms) hri_ten_set(t, &y, any_norm(t, p->module, name, x, weights));
  if (p->module->model->family == HR_FAMILY_PHI3) hri_ten_set(t, &y, drops(t, p->module, p->module->dropout.mlp, y));
  return y;
}

static hri_ten *llama_block(hri_torch *t, hri_ten *residual, void *context, uint32_t index) {
  pass *p = context;
  hri_ten *own = hri_module_mask_of_layer(t, p, index);
  p->mask = own ? own : p->masks[p->module->model->sliding[index] != 0];
  p->kind = hri_module_rotary_kinds(p->module->model) > 1 && p->module->model->sliding[index];
  const hri_module_layer *l = &p->module->layers[index];
  bool gemma = p->module->model->post_norms, phi3 = p->module->model->family == HR_FAMILY_PHI3;
  const char *before = gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm";
  hri_ten *hidden = any_norm(t, p->module, "input_layernorm", residual, l->norms[0]), *sum;
  hri_ten_set(t, &hidden, llama_attention(t, p, index, hidden));
  hri_ten_set(t, &hidden, behind(t, p, "post_attention_layernorm", hidden, l->norms[1]));
  hri_torch_at(t, "residual", -2);
  hri_ten_set(t, &hidden, hri_aten_add(t, residual, hidden));
  sum = hri_ten_keep(hidden);
  hri_ten_set(t, &hidden, any_norm(t, p->module, before, sum, l->norms[gemma ? 2 : 1]));
  if (hri_lora_kernel_of_mlp(p->module, l)) hri_ten_set(t, &hidden, hri_lora_mlp(t, p->module, l, hidden));
  else hri_ten_set(t, &hidden, (p->module->liger ? liger_mlp : phi3 ? phi3_mlp : llama_mlp)(t, p, l, hidden));
  hri_ten_set(t, &hidden, behind(t, p, "post_feedforward_layernorm", hidden, l->norms[3]));
  hri_torch_at(t, "residual", -2);
  hri_ten_set(t, &hidden, hri_aten_add(t, sum, hidden));
  hri_ten_drop(t, sum);
  hri_ten_drop(t, own);
  return hidden;
}

/* ---- the whole ---- */

/* position_ids = arange(T) + 0, unsqueezed; before 5 the range itself. */
static hri_ten *position_ids(hri_torch *t, uint64_t tokens, bool older) {
  hri_ten *range = hri_ten_make(t, "arange", HRI_I64, hri_ten_shape_of(2, 1, tokens, 0, 0)), *ids;
  if (older) return range;
  ids = hri_ten_like(t, "add", range, HRI_I64);
  hri_ten_drop(t, range);
  return ids;
}

static void drop_all(hri_torch *t, hri_ten *const *tensors, int count) {
  for (int i = 0; i < count; i++) hri_ten_drop(t, tensors[i]);
}

/* Token embeddings and, as gpt2 has them, those of positions: all of them live to the end of the model's forward. */
typedef struct beginning {
  hri_ten *embeds, *positions, *position_embeds, *hidden;
} beginning;

/* find_packed_sequence_indices: where positions do not go on. No mask comes of it. */
static void look_for_documents(hri_torch *t, const hri_ten *positions) {
  uint64_t rows = positions->shape.dims[0], tokens = positions->shape.dims[1];
  hri_ten *before = hri_ten_make(t, "sub", HRI_I64, hri_ten_shape_of(2, rows, 1, 0, 0)),
          *longer = hri_ten_make(t, "cat", HRI_I64, hri_ten_shape_of(2, rows, tokens + 1, 0, 0)),
          *steps = hri_ten_like(t, "sub", positions, HRI_I64), *breaks, *numbers;
  hri_torch_at(t, "create_causal_mask", -1);
  hri_ten_drop(t, longer);
  breaks = hri_ten_like(t, "ne", positions, HRI_BOOL);
  numbers = hri_ten_like(t, "cumsum", positions, HRI_I64);
  hri_ten_drop(t, hri_ten_like(t, "_to_copy", positions, HRI_I64));
  hri_ten *const all[] = {breaks, numbers, steps, before};
  drop_all(t, all, 4);
}

static beginning embedded(hri_torch *t, pass *p, const hri_module_batch *batch) {
  hri_module *m = p->module;
  beginning b = {0};
  bool scales =
      m->model->family == HR_FAMILY_GEMMA2 && m->version >= HRI_TRANSFORMERS_4_49; /* the model, not the embedding */
  hri_torch_at(t, "embed_tokens", -1);
  hri_ten_drop(t, enter(t, m, HRI_MODULE_EMBEDDING, NULL));
  hri_ten_drop(t, hri_module_begins(t, m, "embed_tokens", m->embed, NULL, NULL));
  b.embeds = hri_aten_embedding(t, m->saved_embed ? m->saved_embed : m->embed, batch->ids);
  if (m->model->embedding_scale != 1 && !scales) hri_ten_set(t, &b.embeds, hri_aten_mul_scalar(t, b.embeds));
  if (m->model->lora.rank && ((m->checkpoint && !m->wrapped) || m->adapted_input))
    b.embeds->requires_grad = true; /* enable_input_require_grads: the first hook */
  hri_module_ends(t, m, m->embed, NULL, &b.embeds);
  leave(t, m, HRI_MODULE_EMBEDDING, b.embeds);
  p->packed = batch->positions != NULL;
  if (p->packed) look_for_documents(t, batch->positions);
  p->positions = b.positions = p->packed
                                   ? hri_ten_keep(batch->positions)
                                   : position_ids(t, batch->ids->shape.dims[1], m->version >= HRI_TRANSFORMERS_4_49);
  if (!m->model->learned_positions) {
    if (!p->packed) hri_module_make_masks(t, p, batch, b.embeds->type);
    for (int k = 0; k < hri_module_rotary_kinds(m->model) && !rotary_of_layer(m); k++)
      rotary(t, p, b.positions, b.embeds->type, k);
    passes(t, m);
    b.hidden = scales ? hri_aten_mul_scalar(t, b.embeds) : hri_ten_keep(b.embeds);
    return b;
  }
  hri_ten_drop(t, hri_module_begins(t, m, "wpe", m->positions, NULL, NULL));
  hri_torch_at(t, "wpe", -1);
  b.position_embeds = hri_aten_embedding(t, m->positions, b.positions);
  hri_module_ends(t, m, m->positions, NULL, &b.position_embeds);
  hri_torch_at(t, "embed_tokens", -1);
  b.hidden = hri_aten_add(t, b.embeds, b.position_embeds);
  hri_module_make_masks(t, p, batch, b.embeds->type);
  hri_torch_at(t, "drop", -1);
  hri_ten_set(t, &b.hidden, drops(t, m, m->dropout.embedding, b.hidden));
  return b;
}

/* Up to 4.48: the logits of all tokens but the last, copied, against labels without the first. gpt2 does it itself, in the type of
 * its logits, and so does mistral, whose logits in fp32 are then what the model returns. */
static hri_ten *older_loss(hri_torch *t, const hr_model *m, hri_ten **logits, const hri_ten *labels,
                           const hri_ten *items) {
  uint64_t rows = labels->shape.dims[0], tokens = labels->shape.dims[1] - 1, vocabulary = (*logits)->shape.dims[2];
  hri_ten *wide, *shifted, *targets, *flat, *loss;
  bool own = m->family == HR_FAMILY_GPT2;
  wide = own ? hri_ten_keep(*logits) : hri_aten_to(t, *logits, HRI_F32);
  if (m->family == HR_FAMILY_MISTRAL) hri_ten_set(t, logits, hri_ten_keep(wide));
  shifted = hri_aten_without_last_row(t, wide); /* logits[..., :-1, :].contiguous(): of one row it is so already */
  if (rows > 1) hri_ten_set(t, &shifted, hri_aten_contiguous(t, shifted));
  targets = rows == 1 ? NULL : hri_ten_flat(t, "clone", HRI_I64, rows * tokens);
  flat = hri_aten_view(t, shifted, hri_ten_shape_of(2, rows * tokens, vocabulary, 0, 0));
  loss = hri_aten_cross_entropy(t, flat, targets);
  if (items && m->family != HR_FAMILY_GPT2 && m->family != HR_FAMILY_MISTRAL)
    hri_ten_set(t, &loss, hri_aten_div_scalar(t, loss));
  hri_ten *const all[] = {flat, targets, shifted, wide};
  drop_all(t, all, 4);
  return loss;
}

/* ForCausalLMLoss: labels padded by one and shifted, logits in fp32. */
static hri_ten *loss_of(hri_torch *t, hri_ten *logits, hri_ten *labels, const hri_ten *items) {
  uint64_t rows = labels->shape.dims[0], tokens = labels->shape.dims[1], vocabulary = logits->shape.dims[2];
  hri_ten *wide, *padded, *shifted, *flat, *loss;
  wide = hri_aten_to(t, logits, HRI_F32);
  shifted = hri_aten_shift_labels(t, labels, &padded);
  flat = hri_aten_view(t, wide, hri_ten_shape_of(2, rows * tokens, vocabulary, 0, 0));
  hri_ten_drop(t, wide);
  loss = hri_aten_cross_entropy(t, flat, shifted);
  if (items) hri_ten_set(t, &loss, hri_aten_div_scalar(t, loss));
  hri_ten_drop(t, flat);
  hri_ten_drop(t, shifted);
  hri_ten_drop(t, padded);
  return loss;
}

static hri_ten *bare_block(hri_torch *t, hri_ten *hidden, void *context, uint32_t index) {
  bool gpt2 = ((pass *)context)->module->model->family == HR_FAMILY_GPT2;
  hri_torch_at(t, NULL, (int32_t)index);
  return (gpt2 ? gpt2_block : llama_block)(t, hidden, context, index);
}

static bool trains(const hri_module *module, uint32_t index) {
  for (uint32_t i = 0; i < module->parameter_count; i++)
    if (module->layer_of[i] == (int32_t)index && module->parameters[i]->requires_grad) return true;
  return false;
}

/* GradientCheckpointingLayer checkpoints `forward` and not `__call__`: what is put around modules stands outside of the region. */
static hri_ten *run_block(hri_torch *t, pass *p, uint32_t index, hri_ten *hidden,
                          hri_ten *const arguments[HRI_FN_HELD]) {
  const hri_module *module = p->module;
  bool partly = module->checkpoint && module->checkpoints_trained;
  hri_ten *input = enter(t, module, (int32_t)index, hidden), *output;
  hri_ten_set(t, &input, hri_module_begins(t, module, NULL, NULL, NULL, input));
  if (!module->checkpoint || (partly && !trains(module, index))) output = bare_block(t, input, p, index);
  else {
    if (partly) input->requires_grad = true; /* custom_gradient_checkpointing_func: arg.requires_grad_(True) */
    output = hri_checkpoint(t, module->reentrant, bare_block, p, index, input, arguments);
  }
  hri_ten_drop(t, input);
  hri_module_ends(t, module, NULL, NULL, &output);
  leave(t, module, (int32_t)index, output);
  return output;
}

/* A tied head stays the embedding that was, also where that has a copy. */
static hri_ten *head_of(const hri_module *m) {
  if (m->saved_head) return m->saved_head;
  return m->head ? m->head : m->embed;
}

void hri_module_cache_drop(hri_torch *t, const hri_module *module, hri_module_cache **cache) {
  for (uint32_t i = 0; *cache && i < module->model->layer_count; i++) drop_all(t, (*cache)->layers[i], 2);
  hri_free(*cache);
  *cache = NULL;
}

hri_module_output hri_module_forward(hri_torch *t, hri_module *module, const hri_module_batch *batch) {
  hri_module_output out = {0};
  const int around = module->model->lora.rank ? 2 : 0; /* PeftModelForCausalLM, LoraModel */
  beginning b;
  hri_ten *hidden;
  pass *p;
  p = hri_alloc_zero(1,
                     sizeof *p); /* regions may run again long after this returned: it lives as long as the process */
  if (!p || !hri_array_push(&t->blocks, (void *)p)) {
    hri_free(p);
    t->failed = true;
    out.loss = hri_ten_flat(t, "loss", HRI_F32, 1); /* what goes on with it is a no-op */
    return out;
  }
  p->module = module;
  if (module->use_cache && !module->checkpoint && !(p->cache = hri_alloc_zero(1, sizeof *p->cache))) t->failed = true;
  hri_ten_drop(t, enter(t, module, HRI_MODULE_WHOLE, NULL));
  for (int k = 0; k < around + 2; k++)
    hri_ten_drop(t, hri_module_begins(t, module, NULL, NULL, NULL, NULL)); /* the model with its head, and without */
  b = embedded(t, p, batch);
  hidden = b.hidden;
  for (uint32_t i = 0; i < module->model->layer_count; i++) {
    hri_torch_at(t, NULL, (int32_t)i);
    bool slides = module->model->sliding[i] != 0, local = slides && hri_module_rotary_kinds(module->model) > 1;
    hri_ten *arguments[] = {p->cos[local], p->sin[local], b.positions, p->masks[slides]};
    hri_ten_set(t, &hidden, run_block(t, p, i, hidden, arguments));
  }
  hri_torch_at(t, NULL, -1);
  hri_ten_set(t, &hidden, enter(t, module, HRI_MODULE_NORM, hidden));
  hri_ten_set(t, &hidden, any_norm(t, module, "norm", hidden, module->norm));
  leave(t, module, HRI_MODULE_NORM, hidden);
  hri_module_ends(t, module, NULL, NULL, &hidden);
  hri_ten_drop(t, b.embeds);
  hri_ten_drop(t, b.positions);
  hri_ten_drop(t, b.position_embeds);
  drop_all(t, p->masks, 2); /* the pointers stay for regions that hold them */
  drop_all(t, p->cos, 2);
  drop_all(t, p->sin, 2);
  hri_ten_set(t, &hidden, enter(t, module, HRI_MODULE_HEAD, hidden));
  hri_torch_at(t, "lm_head", -1);
  if (module->fused_head) {
    out.loss = hri_fused_head(t, hidden, head_of(module));
    hri_ten_drop(t, hidden);
    return out;
  }
  if (module->liger && !module->keeps_logits) {
    out.loss = hri_liger_loss(t, hidden, head_of(module), batch->labels, batch->items != NULL);
    hri_ten_drop(t, hidden);
    out.cache = p->cache;
    p->cache = NULL;
    return out;
  }
  {
    hri_module_linear head = {.weight = head_of(module)};
    out.logits = hri_module_apply_whole(t, module, "lm_head", &head, hidden);
  }
  leave(t, module, HRI_MODULE_HEAD, out.logits);
  if (module->model->logit_softcap > 0) {
    hri_ten_set(t, &out.logits, hri_aten_div_scalar(t, out.logits));
    hri_ten_set(t, &out.logits, hri_aten_tanh(t, out.logits));
    hri_ten_set(t, &out.logits, hri_aten_mul_scalar(t, out.logits));
  }
  if (batch->labels) {
    bool phase = t->label.phase != HRI_TORCH_EVALUATE && module->version < HRI_TRANSFORMERS_4_46;
    if (phase) hri_torch_phase_begin(t, HRI_TORCH_LOSS);
    hri_torch_at(t, "loss", -1);
    if (module->version < HRI_TRANSFORMERS_4_46) out.loss = loss_of(t, out.logits, batch->labels, batch->items);
    else out.loss = older_loss(t, module->model, &out.logits, batch->labels, batch->items);
  }
  for (int k = 0; k < around + 1; k++) hri_module_ends(t, module, NULL, NULL, &out.loss);
  hri_ten_drop(t, hidden);
  out.cache = p->cache;
  p->cache = NULL;
  return out;
}
