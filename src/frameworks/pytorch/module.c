/* The models of transformers 5 (module.h), family by family, op by op in the order of their forward, with the adapters of PEFT: that
 * order and what Python still holds decide what is alive. Shapes are [rows, tokens, width]; heads [rows, heads, tokens, width]. */
#include "frameworks/pytorch/module.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frameworks/pytorch/checkpoint.h"

/* ---- what layers are made of ---- */

/* peft's Linear.forward: result + B(A(dropout(x))) * scaling, in the adapter's type, then cast back. `x` is bound anew there,
 * so the cast lives to the end. */
static hri_ten *adapted(hri_torch *t, const hri_module *module, const hri_module_linear *linear, hri_ten *given,
                        hri_ten *result) {
  hri_ten_type type = result->type;
  hri_ten *x = hri_aten_to(t, given, linear->a->type), *part = hri_aten_dropout(t, x, module->lora_dropout);
  hri_ten_set(t, &part, hri_aten_linear(t, part, linear->a, NULL, true));
  hri_ten_set(t, &part, hri_aten_linear(t, part, linear->b, NULL, true));
  hri_ten_set(t, &part, hri_aten_mul_scalar(t, part));
  hri_ten *sum = hri_aten_add(t, result, part), *back;
  hri_ten_drop(t, part);
  hri_ten_drop(t, result);
  back = hri_aten_to(t, sum, type);
  hri_ten_drop(t, sum);
  hri_ten_drop(t, x);
  return back;
}

/* The same beside 4-bit weights: the result is cloned, and x is cast and the sum cast back without autocast alone. */
static hri_ten *adapted_4bit(hri_torch *t, const hri_module *module, const hri_module_linear *linear, hri_ten *given,
                             hri_ten *result) {
  bool converts = t->autocast == HRI_F32;
  hri_ten *copy = hri_aten_contiguous(t, result), *x, *part, *sum;
  hri_ten_drop(t, result);
  x = converts ? hri_aten_to(t, given, linear->a->type) : hri_ten_keep(given);
  part = hri_aten_dropout(t, x, module->lora_dropout);
  hri_ten_set(t, &part, hri_aten_linear(t, part, linear->a, NULL, true));
  hri_ten_set(t, &part, hri_aten_linear(t, part, linear->b, NULL, true));
  hri_ten_set(t, &part, hri_aten_mul_scalar(t, part));
  if (converts) hri_ten_set(t, &part, hri_aten_to(t, part, copy->type));
  sum = hri_aten_add(t, copy, part);
  hri_ten_drop(t, copy);
  hri_ten_drop(t, part);
  hri_ten_drop(t, x);
  return sum;
}

/* A module's turn begins: what it gets instead of `x`, a new reference; and ends: `*y` is what its caller gets. */
static hri_ten *begins(hri_torch *t, const hri_module *module, const char *name, hri_ten *a, hri_ten *b, hri_ten *x) {
  hri_ten *const parameters[] = {a, b};
  hri_ten *given = module->watch ? module->watch->enter(t, module->watch_context, parameters, x) : hri_ten_keep(x);
  if (name) hri_torch_at(t, name, -2);
  return given;
}

static void ends(hri_torch *t, const hri_module *module, hri_ten *a, hri_ten *b, hri_ten **y) {
  hri_ten *const parameters[] = {a, b};
  if (module->watch) hri_ten_set(t, y, module->watch->leave(t, module->watch_context, parameters, *y));
}

/* A module that has its turn and changes nothing (dropout that is off), or whose result needs no gradient. */
static void passes(hri_torch *t, const hri_module *module) {
  hri_ten *none = NULL;
  hri_ten_drop(t, begins(t, module, NULL, NULL, NULL, NULL));
  ends(t, module, NULL, NULL, &none);
}

/* nn.Dropout */
static hri_ten *drops(hri_torch *t, const hri_module *module, hri_ten *x) {
  hri_ten *given = begins(t, module, NULL, NULL, NULL, x), *y = hri_aten_dropout(t, given, module->dropout);
  hri_ten_drop(t, given);
  ends(t, module, NULL, NULL, &y);
  return y;
}

static hri_ten *apply_plain(hri_torch *t, const hri_module *module, const char *name, const hri_module_linear *linear,
                            hri_ten *given) {
  hri_ten *x = begins(t, module, name, linear->weight, linear->bias, given), *y;
  if (module->watch && !linear->conv1d) y = hri_aten_linear_function(t, x, linear->weight, linear->bias);
  else y = hri_aten_linear(t, x, linear->weight, linear->bias, !linear->conv1d);
  hri_ten_drop(t, x);
  ends(t, module, linear->weight, linear->bias, &y);
  return y;
}

static hri_ten *apply(hri_torch *t, const hri_module *module, const char *name, const hri_module_linear *linear,
                      hri_ten *x) {
  hri_ten *y;
  hri_torch_at(t, name, -2);
  if (linear->packed) {
    y = hri_bnb_linear(t, linear->packed, x, linear->bias);
    return linear->a ? adapted_4bit(t, module, linear, x, y) : y;
  }
  y = apply_plain(t, module, name, linear, x);
  return linear->a ? adapted(t, module, linear, x, y) : y;
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
static hri_ten *gemma_norm(hri_torch *t, const char *name, hri_ten *given, hri_ten *weight) {
  hri_ten *x, *square, *variance, *normed, *wide, *factor, *y;
  hri_torch_at(t, name, -2);
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

static hri_ten *rms(hri_torch *t, const hri_module *module, const char *name, hri_ten *x, hri_ten *weight) {
  return module->model->norm_weight_offset != 0 ? gemma_norm(t, name, x, weight) : rms_norm(t, name, x, weight);
}

static hri_ten *any_norm(hri_torch *t, const hri_module *module, const char *name, hri_ten *given,
                         hri_ten *const weights[2]) {
  hri_ten *x = begins(t, module, name, weights[0], weights[1], given), *y;
  if (module->model->norm == HR_NORM_RMS) y = rms(t, module, name, x, weights[0]);
  else y = hri_aten_layer_norm(t, x, weights[0], weights[1]);
  hri_ten_drop(t, x);
  ends(t, module, weights[0], weights[1], &y);
  return y;
}

/* Of each head. */
static hri_ten *head_norm(hri_torch *t, const hri_module *module, const char *name, hri_ten *given, hri_ten *weight) {
  hri_ten *x = begins(t, module, name, weight, NULL, given), *y = rms(t, module, name, x, weight);
  hri_ten_drop(t, x);
  ends(t, module, weight, NULL, &y);
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

/* What a block needs beside its input. Checkpointed regions hold it until they ran again. */
typedef struct hri_module_pass {
  hri_module *module;
  hri_ten *cos[2], *sin[2]; /* [1]: of layers that slide, where those have a rotary embedding of their own */
  hri_ten *masks[2]; /* [rows, 1, tokens, tokens], where attention wants one; NULL: none. [1]: of layers that slide */
  hri_ten *mask;     /* of the layer at hand */
  int kind;          /* its place in cos and sin */
} pass;

/* Which of the fused kernels scaled_dot_product_attention takes (sdp_utils.cpp): flash for 16 bits on compute capability
 * 8.0 and later, head sizes up to 256 and causal attention that needs no mask; else the memory-efficient one. */
static hri_sdpa backend(hri_torch *t, const pass *p, const hri_ten *q) {
  hri_ten_type type = t->autocast != HRI_F32 ? t->autocast : q->type;
  bool flash = type != HRI_F32 && p->module->capability >= 80 && q->shape.dims[3] <= 256 && !p->mask;
  return flash ? HRI_SDPA_FLASH : HRI_SDPA_EFFICIENT;
}

/* sdpa_attention_forward. Beside a mask the kernels know no grouped heads, so keys and values are repeated. */
static hri_ten *attend_fused(hri_torch *t, pass *p, hri_ten *q, hri_ten *k, hri_ten *v) {
  uint64_t groups = q->shape.dims[1] / k->shape.dims[1];
  bool by_heads = p->module->model->family == HR_FAMILY_PHI3; /* what cat made of q */
  hri_sdpa kind = backend(t, p, q);
  hri_ten *keys = p->mask && groups > 1 ? hri_aten_repeat(t, k, groups) : hri_ten_keep(k);
  hri_ten *values = p->mask && groups > 1 ? hri_aten_repeat(t, v, groups) : hri_ten_keep(v);
  hri_ten *y = hri_aten_attention(t, kind, q, keys, values, p->mask, p->module->dropout, by_heads);
  if (kind == HRI_SDPA_FLASH && by_heads)
    hri_ten_set(t, &y, hri_aten_contiguous(t, y)); /* transpose(1, 2).contiguous() */
  hri_ten_drop(t, keys);
  hri_ten_drop(t, values);
  return y;
}

/* eager_attention_forward. Heads are transposed views, which a product over batches of matrices copies unless repeat_kv
 * has made them contiguous. */
static hri_ten *attend_eager(hri_torch *t, pass *p, hri_ten *q, hri_ten *k, hri_ten *v) {
  uint64_t groups = q->shape.dims[1] / k->shape.dims[1];
  bool copies = groups == 1;
  hri_ten *keys = groups > 1 ? hri_aten_repeat(t, k, groups) : hri_ten_keep(k);
  hri_ten *values = groups > 1 ? hri_aten_repeat(t, v, groups) : hri_ten_keep(v);
  hri_ten *queries = hri_aten_contiguous(t, q), *scores, *weights, *y, *wide;
  wide = copies ? hri_aten_contiguous(t, keys) : hri_ten_keep(keys);
  scores = hri_aten_bmm(t, queries, wide, k->shape.dims[2]);
  hri_ten_drop(t, wide);
  hri_ten_drop(t, queries);
  hri_ten_set(t, &scores, hri_aten_mul_scalar(t, scores));
  if (p->module->model->attention_softcap > 0) {
    hri_ten_set(t, &scores, hri_aten_div_scalar(t, scores));
    hri_ten_set(t, &scores, hri_aten_tanh(t, scores));
    hri_ten_set(t, &scores, hri_aten_mul_scalar(t, scores));
  }
  if (p->mask) hri_ten_set(t, &scores, hri_aten_add(t, scores, p->mask));
  weights = hri_aten_softmax(t, scores, p->module->model->family == HR_FAMILY_GPT2 ? scores->type : HRI_F32);
  hri_ten_drop(t, scores);
  hri_ten_set(t, &weights, hri_aten_to(t, weights, q->type));
  hri_ten_set(t, &weights, hri_aten_dropout(t, weights, p->module->dropout));
  wide = copies ? hri_aten_contiguous(t, values) : hri_ten_keep(values);
  y = hri_aten_bmm(t, weights, wide, v->shape.dims[3]);
  hri_ten_drop(t, wide);
  hri_ten_set(t, &y, hri_aten_view_copied_back(t, y, y->shape));
  hri_ten_set(t, &y, hri_aten_contiguous(t, y));
  hri_ten_drop(t, keys);
  hri_ten_drop(t, values);
  hri_ten_drop(t, weights);
  return y;
}

static hri_ten *attend(hri_torch *t, pass *p, hri_ten *q, hri_ten *k, hri_ten *v) {
  hri_ten_shape flat = hri_ten_shape_of(3, q->shape.dims[0], q->shape.dims[2], q->shape.dims[1] * q->shape.dims[3], 0);
  hri_ten *y;
  hri_torch_at(t, "attention", -2);
  y = p->module->attention == HRI_TORCH_EAGER ? attend_eager(t, p, q, k, v) : attend_fused(t, p, q, k, v);
  hri_ten_set(t, &y, hri_aten_view(t, y, flat));
  return y;
}

/* ---- GPT-2 ---- */

static hri_ten *gpt2_attention(hri_torch *t, pass *p, const hri_module_layer *l, hri_ten *given) {
  hri_ten *x = begins(t, p->module, NULL, NULL, NULL, given);
  hri_ten *fused = apply(t, p->module, "attn.c_attn", &l->q, x), *parts[3], *y;
  hri_ten_drop(t, x);
  hri_aten_split_last(t, fused, 3, parts);
  hri_ten_drop(t, fused);
  for (int i = 0; i < 3; i++)
    hri_ten_set(t, &parts[i],
                heads_of(t, parts[i], p->module->model->head_count, i != 1 && p->module->attention == HRI_TORCH_EAGER));
  y = attend(t, p, parts[0], parts[1], parts[2]);
  hri_ten_set(t, &y, apply(t, p->module, "attn.c_proj", &l->o, y));
  hri_ten_set(t, &y, drops(t, p->module, y));
  for (int i = 0; i < 3; i++) hri_ten_drop(t, parts[i]);
  ends(t, p->module, NULL, NULL, &y);
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
  hri_ten *x = begins(t, p->module, NULL, NULL, NULL, given), *y = apply(t, p->module, "mlp.c_fc", &l->gate, x);
  hri_ten_drop(t, x);
  hri_ten_set(t, &y, begins(t, p->module, "mlp.act", NULL, NULL, y));
  hri_ten_set(t, &y, new_gelu(t, y));
  ends(t, p->module, NULL, NULL, &y);
  hri_ten_set(t, &y, apply(t, p->module, "mlp.c_proj", &l->down, y));
  hri_ten_set(t, &y, drops(t, p->module, y));
  ends(t, p->module, NULL, NULL, &y);
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
  attended = gpt2_attention(t, p, l, hidden);
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
  hri_ten *y = apply(t, module, name, linear, x);
  hri_ten_set(t, &y, heads_of(t, y, heads, turned));
  return y;
}

/* Phi-3's one product: q, k and v are slices of its columns, each a function of its own. */
static void sliced(hri_torch *t, pass *p, const hri_module_layer *l, hri_ten *x, hri_ten *parts[3]) {
  const hr_model *m = p->module->model;
  const uint64_t heads[] = {m->head_count, m->kv_head_count, m->kv_head_count};
  hri_ten *fused = apply(t, p->module, "self_attn.qkv_proj", &l->q, x);
  for (int i = 0; i < 3; i++) parts[i] = hri_aten_narrow_last(t, fused, heads[i] * m->head_size);
  for (int i = 0; i < 3; i++) {
    hri_ten_set(t, &parts[i], heads_of(t, parts[i], heads[i], i < 2 || p->module->attention == HRI_TORCH_EAGER));
  }
  hri_ten_drop(t, fused);
}

/* Qwen 3 norms each behind its product, Gemma 3 behind all three. */
static void separate(hri_torch *t, pass *p, const hri_module_layer *l, hri_ten *x, hri_ten *parts[3]) {
  const hr_model *m = p->module->model;
  bool early = m->family == HR_FAMILY_QWEN3;
  parts[0] = projected(t, p->module, "self_attn.q_proj", &l->q, x, m->head_count, true);
  if (early) hri_ten_set(t, &parts[0], head_norm(t, p->module, "self_attn.q_norm", parts[0], l->qk_norms[0]));
  parts[1] = projected(t, p->module, "self_attn.k_proj", &l->k, x, m->kv_head_count, true);
  if (early) hri_ten_set(t, &parts[1], head_norm(t, p->module, "self_attn.k_norm", parts[1], l->qk_norms[1]));
  parts[2] =
      projected(t, p->module, "self_attn.v_proj", &l->v, x, m->kv_head_count, p->module->attention == HRI_TORCH_EAGER);
  if (!l->qk_norms[0] || early) return;
  hri_ten_set(t, &parts[0], head_norm(t, p->module, "self_attn.q_norm", parts[0], l->qk_norms[0]));
  hri_ten_set(t, &parts[1], head_norm(t, p->module, "self_attn.k_norm", parts[1], l->qk_norms[1]));
}

/* Phi-3 turns a slice of each head and joins it with what is left, even where nothing is; both are sliced first. */
static void turn(hri_torch *t, pass *p, hri_ten *const parts[2], hri_ten *out[2]) {
  uint64_t width = parts[0]->shape.dims[3], turned = p->module->model->rotary_size;
  hri_ten *sliced_off[2][2];
  bool slices = p->module->model->family == HR_FAMILY_PHI3;
  for (int i = 0; i < 2 && slices; i++) {
    sliced_off[i][0] = hri_aten_narrow_last(t, parts[i], turned);
    sliced_off[i][1] = width > turned ? hri_aten_narrow_last(t, parts[i], width - turned) : NULL;
  }
  for (int i = 0; i < 2; i++) {
    out[i] = rotate(t, slices ? sliced_off[i][0] : parts[i], p->cos[p->kind], p->sin[p->kind]);
    if (!slices) continue;
    if (sliced_off[i][1]) hri_ten_set(t, &out[i], hri_aten_cat_last(t, out[i], sliced_off[i][1]));
    else hri_ten_set(t, &out[i], hri_aten_cat_one(t, out[i]));
  }
  for (int i = 0; i < 2 && slices; i++)
    for (int k = 0; k < 2; k++) hri_ten_drop(t, sliced_off[i][k]);
}

static hri_ten *llama_attention(hri_torch *t, pass *p, const hri_module_layer *l, hri_ten *x) {
  hri_ten *parts[3], *turned[2], *y;
  hri_ten_drop(t, begins(t, p->module, NULL, NULL, NULL, NULL)); /* called by keywords */
  if (p->module->model->family == HR_FAMILY_PHI3) sliced(t, p, l, x, parts);
  else separate(t, p, l, x, parts);
  hri_torch_at(t, "self_attn.rotary", -2);
  turn(t, p, parts, turned);
  for (int i = 0; i < 2; i++) hri_ten_set(t, &parts[i], turned[i]);
  y = attend(t, p, parts[0], parts[1], parts[2]);
  hri_ten_set(t, &y, apply(t, p->module, "self_attn.o_proj", &l->o, y));
  for (int i = 0; i < 3; i++) hri_ten_drop(t, parts[i]);
  ends(t, p->module, NULL, NULL, &y);
  return y;
}

/* down(act(gate(x)) * up(x)) */
static hri_ten *activated(hri_torch *t, const hri_module *module, const char *name, const char *act, hri_ten *given) {
  hri_ten *x = begins(t, module, name, NULL, NULL, given), *y;
  hri_torch_at(t, name, -2);
  y = hri_aten_activation(t, act, x);
  hri_ten_drop(t, x);
  ends(t, module, NULL, NULL, &y);
  return y;
}

static hri_ten *llama_mlp(hri_torch *t, pass *p, const hri_module_layer *l, hri_ten *given) {
  const char *act = p->module->model->activation == HR_ACTIVATION_SILU ? "silu" : "gelu";
  hri_ten *x = begins(t, p->module, NULL, NULL, NULL, given);
  hri_ten *gate = apply(t, p->module, "mlp.gate_proj", &l->gate, x), *up, *y;
  hri_ten_set(t, &gate, activated(t, p->module, "mlp.act_fn", act, gate));
  up = apply(t, p->module, "mlp.up_proj", &l->up, x);
  y = hri_aten_mul(t, gate, up);
  hri_ten_drop(t, gate);
  hri_ten_drop(t, up);
  hri_ten_drop(t, x);
  hri_ten_set(t, &y, apply(t, p->module, "mlp.down_proj", &l->down, y));
  ends(t, p->module, NULL, NULL, &y);
  return y;
}

/* gate, up = gate_up(x).chunk(2); up = up * act(gate); down(up) */
static hri_ten *phi3_mlp(hri_torch *t, pass *p, const hri_module_layer *l, hri_ten *given) {
  hri_ten *x = begins(t, p->module, NULL, NULL, NULL, given), *act, *y;
  hri_ten *parts[2], *fused = apply(t, p->module, "mlp.gate_up_proj", &l->gate, x);
  hri_ten_drop(t, x);
  hri_aten_split_last(t, fused, 2, parts);
  hri_ten_drop(t, fused);
  act = activated(t, p->module, "mlp.activation_fn", "silu", parts[0]);
  hri_ten_set(t, &parts[1], hri_aten_mul(t, parts[1], act));
  hri_ten_drop(t, act);
  y = apply(t, p->module, "mlp.down_proj", &l->down, parts[1]);
  hri_ten_drop(t, parts[1]);
  hri_ten_drop(t, parts[0]);
  ends(t, p->module, NULL, NULL, &y);
  return y;
}

/* With a dropout that only Phi-3 has, and norms behind attention and MLP that only Gemma has. */
static hri_ten *behind(hri_torch *t, pass *p, const char *name, hri_ten *x, hri_ten *const weights[2]) {
  hri_ten *y = hri_ten_keep(x);
  if (p->module->model->post_norms) hri_ten_set(t, &y, any_norm(t, p->module, name, x, weights));
  if (p->module->model->family == HR_FAMILY_PHI3) hri_ten_set(t, &y, drops(t, p->module, y));
  return y;
}

static hri_ten *llama_block(hri_torch *t, hri_ten *residual, void *context, uint32_t index) {
  pass *p = context;
  p->mask = p->masks[p->module->model->sliding[index] != 0];
  p->kind = hri_module_rotary_kinds(p->module->model) > 1 && p->module->model->sliding[index];
  const hri_module_layer *l = &p->module->layers[index];
  bool gemma = p->module->model->post_norms, phi3 = p->module->model->family == HR_FAMILY_PHI3;
  const char *before = gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm";
  hri_ten *hidden = any_norm(t, p->module, "input_layernorm", residual, l->norms[0]), *sum;
  hri_ten_set(t, &hidden, llama_attention(t, p, l, hidden));
  hri_ten_set(t, &hidden, behind(t, p, "post_attention_layernorm", hidden, l->norms[1]));
  hri_torch_at(t, "residual", -2);
  hri_ten_set(t, &hidden, hri_aten_add(t, residual, hidden));
  sum = hri_ten_keep(hidden);
  hri_ten_set(t, &hidden, any_norm(t, p->module, before, sum, l->norms[gemma ? 2 : 1]));
  hri_ten_set(t, &hidden, phi3 ? phi3_mlp(t, p, l, hidden) : llama_mlp(t, p, l, hidden));
  hri_ten_set(t, &hidden, behind(t, p, "post_feedforward_layernorm", hidden, l->norms[3]));
  hri_torch_at(t, "residual", -2);
  hri_ten_set(t, &hidden, hri_aten_add(t, sum, hidden));
  hri_ten_drop(t, sum);
  return hidden;
}

/* ---- the whole ---- */

/* position_ids = arange(T) + 0, unsqueezed. */
static hri_ten *position_ids(hri_torch *t, uint64_t tokens) {
  hri_ten *range = hri_ten_make(t, "arange", HRI_I64, hri_ten_shape_of(2, 1, tokens, 0, 0));
  hri_ten *ids = hri_ten_like(t, "add", range, HRI_I64);
  hri_ten_drop(t, range);
  return ids;
}

/* LlamaRotaryEmbedding.forward, without gradient and in fp32. */
static void rotary(hri_torch *t, pass *p, hri_ten *ids, hri_ten_type type, int kind) {
  uint64_t tokens = ids->shape.dims[1], width = p->module->model->rotary_size;
  hri_ten *numbers, *angles, *both, **out[] = {&p->cos[kind], &p->sin[kind]};
  bool before = t->grad_mode;
  hri_torch_at(t, "rotary_emb", -1);
  t->grad_mode = false;
  numbers = hri_ten_like(t, "_to_copy", ids, HRI_F32);
  angles = hri_ten_make(t, "mul", HRI_F32, hri_ten_shape_of(3, 1, tokens, width / 2, 0));
  hri_ten_drop(t, numbers);
  both = hri_ten_make(t, "cat", HRI_F32, hri_ten_shape_of(3, 1, tokens, width, 0));
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

static hri_ten *of_shape(hri_torch *t, const char *op, hri_ten_type type, uint32_t rank, uint64_t a, uint64_t b,
                         uint64_t c, uint64_t d) {
  return hri_ten_make(t, op, type, hri_ten_shape_of(rank, a, b, c, d));
}

static void drop_all(hri_torch *t, hri_ten *const *tensors, int count) {
  for (int i = 0; i < count; i++) hri_ten_drop(t, tensors[i]);
}

/* fast_all: whether the batch's mask is of ones, found out by looking. */
static void look_at_mask(hri_torch *t, hri_ten *mask) {
  hri_ten *sum = of_shape(t, "sum", HRI_I64, 1, 1, 0, 0, 0), *wide = hri_ten_like(t, "_to_copy", mask, HRI_I64), *same;
  hri_ten_drop(t, wide);
  same = of_shape(t, "eq", HRI_BOOL, 1, 1, 0, 0, 0);
  hri_ten_drop(t, sum);
  hri_ten_drop(t, same);
}

/* A condition on pairs of positions, and'ed with what there was (`before`, or one element that is true). */
static hri_ten *also(hri_torch *t, const char *op, hri_ten *before, uint64_t tokens) {
  hri_ten *condition = of_shape(t, op, HRI_BOOL, 2, tokens, tokens, 0, 0);
  hri_ten *both = hri_ten_like(t, "bitwise_and", condition, HRI_BOOL);
  hri_ten_drop(t, condition);
  hri_ten_drop(t, before);
  return both;
}

/* The key is not too far back: k > q - window. */
static hri_ten *near(hri_torch *t, uint64_t tokens) {
  hri_ten *one = of_shape(t, "new_empty", HRI_BOOL, 1, 1, 0, 0, 0);
  hri_ten *border = of_shape(t, "sub", HRI_I64, 1, tokens, 0, 0, 0);
  hri_ten *condition = of_shape(t, "gt", HRI_BOOL, 2, tokens, tokens, 0, 0), *both;
  hri_ten_drop(t, border);
  both = hri_ten_like(t, "bitwise_and", condition, HRI_BOOL);
  hri_ten_drop(t, condition);
  hri_ten_drop(t, one);
  return both;
}

/* sdpa_mask: which keys a query sees, [rows, 1, tokens, tokens]. */
static hri_ten *visible(hri_torch *t, hri_ten *mask, uint64_t batch, uint64_t tokens, bool slides) {
  hri_ten *all[4], *causal, *index[2], *padding, *one, *y;
  all[0] = of_shape(t, "arange", HRI_I64, 1, batch, 0, 0, 0);
  all[1] = of_shape(t, "arange", HRI_I64, 1, 1, 0, 0, 0);
  for (int k = 0; k < 2; k++) {
    hri_ten *range = of_shape(t, "arange", HRI_I64, 1, tokens, 0, 0, 0);
    all[2 + k] = of_shape(t, "add", HRI_I64, 1, tokens, 0, 0, 0);
    hri_ten_drop(t, range);
  }
  one = of_shape(t, "new_empty", HRI_BOOL, 1, 1, 0, 0, 0);
  if (slides) {
    causal = also(t, "le", near(t, tokens), tokens);
    y = hri_ten_like(t, "bitwise_and", causal, HRI_BOOL);
    hri_ten_set(t, &causal, y);
  } else {
    causal = also(t, "le", NULL, tokens);
  }
  hri_ten_drop(t, one);
  y = causal;
  if (mask) {
    for (int k = 0; k < 2; k++) index[k] = hri_ten_like(t, "clone", mask, HRI_I64);
    padding = hri_ten_like(t, "index", mask, HRI_BOOL);
    drop_all(t, index, 2);
    y = of_shape(t, "bitwise_and", HRI_BOOL, 4, batch, 1, tokens, tokens);
    hri_ten_drop(t, padding);
    hri_ten_drop(t, causal);
  }
  drop_all(t, all, 4);
  return y;
}

/* create_causal_mask and create_sliding_window_causal_mask. Fused attention needs none where nothing is padded and the
 * window holds all tokens; eager attention adds 0 or the lowest number. */
static hri_ten *make_mask(hri_torch *t, const pass *p, const hri_module_batch *batch, hri_ten_type type, bool slides) {
  const uint64_t *d = batch->ids->shape.dims;
  bool cut = slides && d[1] >= p->module->model->sliding_window;
  hri_ten *own = NULL, *seen, *small[2], *mask = NULL;
  hri_torch_at(t, "create_causal_mask", -1);
  if (batch->mask) own = hri_ten_like(t, "_to_copy", batch->mask, HRI_BOOL);
  if (p->module->attention == HRI_TORCH_SDPA) {
    if (own && !cut) look_at_mask(t, own);
    if (batch->padded || cut) mask = visible(t, own, d[0], d[1], slides);
  } else {
    seen = visible(t, own, d[0], d[1], slides);
    small[0] = of_shape(t, "zeros", type, 1, 1, 0, 0, 0);
    small[1] = of_shape(t, "scalar_tensor", type, 1, 1, 0, 0, 0);
    mask = of_shape(t, "where", type, 4, own ? d[0] : 1, 1, d[1], d[1]);
    drop_all(t, small, 2);
    hri_ten_drop(t, seen);
  }
  hri_ten_drop(t, own);
  return mask;
}

/* Families whose layers are of two kinds make both masks, the others the one that all their layers have. */
static void make_masks(hri_torch *t, pass *p, const hri_module_batch *batch, hri_ten_type type) {
  const hr_model *m = p->module->model;
  bool some, all;
  hri_module_kinds_of_layers(m, &some, &all);
  bool both = some && m->family != HR_FAMILY_MISTRAL && m->family != HR_FAMILY_PHI3;
  if (!all || both) p->masks[0] = make_mask(t, p, batch, type, false);
  if (some) p->masks[1] = make_mask(t, p, batch, type, true);
}

/* Token embeddings and, as gpt2 has them, those of positions: all of them live to the end of the model's forward. */
typedef struct beginning {
  hri_ten *embeds, *positions, *position_embeds, *hidden;
} beginning;

static beginning embedded(hri_torch *t, pass *p, const hri_module_batch *batch) {
  hri_module *m = p->module;
  beginning b = {0};
  hri_torch_at(t, "embed_tokens", -1);
  hri_ten_drop(t, enter(t, m, HRI_MODULE_EMBEDDING, NULL));
  hri_ten_drop(t, begins(t, m, "embed_tokens", m->embed, NULL, NULL));
  b.embeds = hri_aten_embedding(t, m->embed, batch->ids);
  ends(t, m, m->embed, NULL, &b.embeds);
  leave(t, m, HRI_MODULE_EMBEDDING, b.embeds);
  if (m->model->embedding_scale != 1) hri_ten_set(t, &b.embeds, hri_aten_mul_scalar(t, b.embeds));
  b.positions = position_ids(t, batch->ids->shape.dims[1]);
  if (!m->model->learned_positions) {
    make_masks(t, p, batch, b.embeds->type);
    for (int k = 0; k < hri_module_rotary_kinds(m->model); k++) rotary(t, p, b.positions, b.embeds->type, k);
    passes(t, m);
    b.hidden = hri_ten_keep(b.embeds);
    return b;
  }
  hri_ten_drop(t, begins(t, m, "wpe", m->positions, NULL, NULL));
  hri_torch_at(t, "wpe", -1);
  b.position_embeds = hri_aten_embedding(t, m->positions, b.positions);
  ends(t, m, m->positions, NULL, &b.position_embeds);
  hri_torch_at(t, "embed_tokens", -1);
  b.hidden = hri_aten_add(t, b.embeds, b.position_embeds);
  make_masks(t, p, batch, b.embeds->type);
  hri_torch_at(t, "drop", -1);
  hri_ten_set(t, &b.hidden, drops(t, m, b.hidden));
  return b;
}

/* ForCausalLMLoss: labels padded by one and shifted, logits in fp32. */
static hri_ten *loss_of(hri_torch *t, hri_ten *logits, hri_ten *labels, const hri_ten *items) {
  uint64_t rows = labels->shape.dims[0], tokens = labels->shape.dims[1], vocabulary = logits->shape.dims[2];
  hri_ten *wide, *padded, *shifted, *flat, *loss;
  if (t->label.phase != HRI_TORCH_EVALUATE) hri_torch_phase_begin(t, HRI_TORCH_LOSS);
  hri_torch_at(t, "loss", -1);
  wide = hri_aten_to(t, logits, HRI_F32);
  padded = hri_ten_make(t, "constant_pad_nd", HRI_I64, hri_ten_shape_of(2, rows, tokens + 1, 0, 0));
  /* labels[..., 1:].contiguous(): of one row it is so already */
  shifted = rows == 1 ? hri_ten_view(t, padded, labels->shape)
                      : hri_ten_make(t, "clone", HRI_I64, hri_ten_shape_of(1, rows * tokens, 0, 0, 0));
  flat = hri_aten_view(t, wide, hri_ten_shape_of(2, rows * tokens, vocabulary, 0, 0));
  hri_ten_drop(t, wide);
  loss = hri_aten_cross_entropy(t, flat, shifted);
  if (items) hri_ten_set(t, &loss, hri_aten_div_scalar(t, loss));
  hri_ten_drop(t, flat);
  hri_ten_drop(t, shifted);
  hri_ten_drop(t, padded);
  return loss;
}

static hri_ten *plain_block(hri_torch *t, hri_ten *given, void *context, uint32_t index) {
  const hri_module *module = ((pass *)context)->module;
  hri_ten *hidden = begins(t, module, NULL, NULL, NULL, given), *y;
  hri_torch_at(t, NULL, (int32_t)index);
  y = (module->model->family == HR_FAMILY_GPT2 ? gpt2_block : llama_block)(t, hidden, context, index);
  hri_ten_drop(t, hidden);
  ends(t, module, NULL, NULL, &y);
  return y;
}

/* A block with its hooks, as it stands in a checkpointed region. */
static hri_ten *hooked_block(hri_torch *t, hri_ten *hidden, void *context, uint32_t index) {
  const hri_module *module = ((pass *)context)->module;
  hri_ten *input = enter(t, module, (int32_t)index, hidden), *output;
  hri_torch_at(t, NULL, (int32_t)index);
  output = plain_block(t, input, context, index);
  hri_ten_drop(t, input);
  leave(t, module, (int32_t)index, output);
  return output;
}

static hri_ten *run_block(hri_torch *t, pass *p, uint32_t index, hri_ten *hidden,
                          hri_ten *const arguments[HRI_FN_HELD]) {
  const hri_module *module = p->module;
  bool outside = module->hooks && module->hooks_outside;
  hri_ten *input, *output;
  if (!module->checkpoint) return hooked_block(t, hidden, p, index);
  if (!outside) return hri_checkpoint(t, module->reentrant, hooked_block, p, index, hidden, arguments);
  input = enter(t, module, (int32_t)index, hidden);
  hri_torch_at(t, NULL, (int32_t)index);
  output = hri_checkpoint(t, module->reentrant, plain_block, p, index, input, arguments);
  hri_ten_drop(t, input);
  leave(t, module, (int32_t)index, output);
  return output;
}

hri_module_output hri_module_forward(hri_torch *t, hri_module *module, const hri_module_batch *batch) {
  hri_module_output out = {0};
  beginning b;
  hri_ten *hidden;
  pass *p;
  p = hri_alloc_zero(1,
                     sizeof *p); /* regions may run again long after this returned: it lives as long as the process */
  if (!p || !hri_array_push(&t->blocks, (void *)p)) {
    hri_free(p);
    t->failed = true;
    return out;
  }
  p->module = module;
  hri_ten_drop(t, enter(t, module, HRI_MODULE_WHOLE, NULL));
  for (int k = 0; k < 2; k++)
    hri_ten_drop(t, begins(t, module, NULL, NULL, NULL, NULL)); /* the model with its head, and without */
  b = embedded(t, p, batch);
  if (module->model->lora.rank && module->checkpoint) b.embeds->requires_grad = true; /* enable_input_require_grads */
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
  ends(t, module, NULL, NULL, &hidden);
  hri_ten_drop(t, b.embeds);
  hri_ten_drop(t, b.positions);
  hri_ten_drop(t, b.position_embeds);
  drop_all(t, p->masks, 2); /* the pointers stay for regions that hold them */
  drop_all(t, p->cos, 2);
  drop_all(t, p->sin, 2);
  hri_ten_set(t, &hidden, enter(t, module, HRI_MODULE_HEAD, hidden));
  hri_torch_at(t, "lm_head", -1);
  {
    hri_module_linear head = {.weight = module->head ? module->head : module->embed};
    out.logits = apply_plain(t, module, "lm_head", &head, hidden);
  }
  leave(t, module, HRI_MODULE_HEAD, out.logits);
  if (module->model->logit_softcap > 0) {
    hri_ten_set(t, &out.logits, hri_aten_div_scalar(t, out.logits));
    hri_ten_set(t, &out.logits, hri_aten_tanh(t, out.logits));
    hri_ten_set(t, &out.logits, hri_aten_mul_scalar(t, out.logits));
  }
  if (batch->labels) out.loss = loss_of(t, out.logits, batch->labels, batch->items);
  ends(t, module, NULL, NULL, &out.loss);
  hri_ten_drop(t, hidden);
  return out;
}
