/* torchtune's TransformerDecoder (torchtune.h), statement by statement: modules/transformer.py, attention.py, feed_forward.py, rms_norm.py,
 * position_embeddings.py, peft/lora.py, and what models/{qwen2,phi3,gemma,gemma2} have instead; loss/ce_chunked_output_loss.py. Shapes are
 * [rows, tokens, width]; heads [rows, tokens, heads, width] until attention turns them. */
#include "frameworks/pytorch/torchtune.h"

#include "frameworks/pytorch/adapters.h"
#include "frameworks/pytorch/aten.h"
#include "frameworks/pytorch/attention_kernels.h"
#include "frameworks/pytorch/checkpoint.h"
#include "frameworks/pytorch/nf4.h"
#include "frameworks/pytorch/pass.h"

/* ---- norms ---- */

/* rms_norm of fp32 with a weight in another type, which PyTorch's kernel does not take. The square lives to the end of its expression. */
static hri_ten *mixed_rms(hri_torch *t, hri_ten *x, hri_ten *weight) {
  hri_ten *square = hri_aten_pow(t, x), *mean = hri_aten_mean_last(t, square), *root, *y;
  root = hri_aten_rsqrt(t, mean); /* eps is added in place */
  hri_ten_drop(t, mean);
  hri_ten_drop(t, square);
  y = hri_aten_mul(t, x, root);
  hri_ten_set(t, &y, hri_aten_mul(t, y, weight));
  hri_ten_drop(t, root);
  return y;
}

/* RMSNorm.forward: rms_norm(x.float(), weight).to(x.dtype) */
static hri_ten *rms(hri_torch *t, hri_ten *given, hri_ten *weight) {
  hri_ten *x = hri_aten_to(t, given, HRI_F32), *normed, *y;
  normed = x->type == weight->type ? hri_aten_rms_norm(t, x, weight) : mixed_rms(t, x, weight);
  hri_ten_drop(t, x);
  y = hri_aten_to(t, normed, given->type);
  hri_ten_drop(t, normed);
  return y;
}

static hri_ten *norm(hri_torch *t, const hri_module *m, const char *name, hri_ten *x, hri_ten *weight) {
  hri_torch_at(t, name, -2);
  return m->model->norm_weight_offset != 0 ? hri_module_gemma_norm(t, x, weight) : rms(t, x, weight);
}

/* ---- linear modules ---- */

/* The module without an adapter: nn.Linear, or FrozenNF4Linear. */
static hri_ten *base_of(hri_torch *t, const hri_module_linear *linear, hri_ten *x) {
  hri_ten *flattened, *y;
  if (linear->packed) return hri_nf4_linear(t, linear->packed, x);
  /* addmm of what was flattened: the gradient goes through that when those of weight and bias are where they belong */
  flattened = linear->bias ? hri_aten_view(t, x, x->shape) : hri_ten_keep(x);
  y = hri_aten_linear(t, flattened, linear->weight, linear->bias, true);
  hri_ten_drop(t, flattened);
  return y;
}

/* lora_b(lora_a(x)) of what its caller holds: DoRA's input, or the unit matrix. */
static hri_ten *through_adapter(hri_torch *t, const hri_module_linear *linear, hri_ten *x) {
  hri_ten *part = hri_aten_linear(t, x, linear->a, NULL, true);
  hri_ten_set(t, &part, hri_aten_linear(t, part, linear->b, NULL, true));
  return part;
}

/* LoRALinear.forward: all of it in the type of the weights. */
static hri_ten *with_lora(hri_torch *t, const hri_module *m, const hri_module_linear *linear, hri_ten *x,
                          hri_ten *out) {
  hri_ten *part = hri_aten_dropout(t, x, m->lora_dropout), *sum;
  hri_ten_set(t, &part, hri_aten_linear(t, part, linear->a, NULL, true));
  hri_ten_set(t, &part, hri_aten_linear(t, part, linear->b, NULL, true));
  hri_ten_set(t, &part, hri_aten_mul_scalar(t, part));
  sum = hri_aten_add(t, out, part);
  hri_ten_drop(t, part);
  return sum;
}

static hri_ten *matrix(hri_torch *t, const char *op, const hri_module_linear *linear) {
  return hri_ten_make(t, op, linear->a->type, hri_ten_shape_of(2, linear->out, linear->in, 0, 0));
}

hri_ten *hri_tune_weight(hri_torch *t, const hri_module_linear *linear) {
  return linear->packed ? hri_nf4_whole(t, linear->packed) : hri_ten_keep(linear->weight);
}

hri_ten *hri_tune_weight_norm(hri_torch *t, const hri_module_linear *linear) {
  hri_ten *scaled = matrix(t, "mul", linear), *sum = matrix(t, "add", linear), *norm;
  hri_ten_drop(t, scaled);
  norm = hri_ten_flat(t, "linalg_vector_norm", linear->a->type, linear->out);
  hri_ten_drop(t, sum);
  return norm;
}

/* DoRALinear.forward. Every variable lives until it returns, the graph of B A of the unit matrix too, which nobody asks for. */
static hri_ten *with_dora(hri_torch *t, const hri_module *m, const hri_module_linear *linear, hri_ten *x,
                          hri_ten *base) {
  hri_ten *dropped = hri_aten_dropout(t, x, m->lora_dropout), *lora = through_adapter(t, linear, dropped), *eye,
          *adapted, *weight, *norm, *scale, *sum, *y;
  eye = hri_ten_make(t, "eye", x->type, hri_ten_shape_of(2, linear->in, linear->in, 0, 0));
  adapted = through_adapter(t, linear, eye);
  weight = hri_tune_weight(t, linear);
  norm = hri_tune_weight_norm(t, linear);
  scale = hri_aten_div_by(t, linear->magnitude, norm);
  sum = hri_dora_combined(t, scale, base, lora);
  y = hri_aten_add(t, sum, base);
  hri_ten *const all[] = {dropped, lora, eye, adapted, weight, norm, scale, sum};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) hri_ten_drop(t, all[i]);
  return y;
}

static hri_ten *apply(hri_torch *t, const hri_module *m, const char *name, const hri_module_linear *linear,
                      hri_ten *x) {
  hri_ten *base, *y;
  hri_torch_at(t, name, -2);
  base = base_of(t, linear, x);
  if (!linear->a) return base;
  y = (linear->magnitude ? with_dora : with_lora)(t, m, linear, x, base);
  hri_ten_drop(t, base);
  return y;
}

/* ---- rotary embeddings ---- */

/* The table's rows that are asked for: of packed rows a copy for each of theirs, else a view. */
static hri_ten *table_of(hri_torch *t, const hri_module *m, const hri_ten *x, uint64_t width) {
  uint64_t rows = m->packed_rows ? x->shape.dims[0] : 1;
  hri_ten_shape shape = hri_ten_shape_of(3, rows, x->shape.dims[1], width, 0);
  return m->packed_rows ? hri_ten_make(t, "index", HRI_F32, shape) : hri_ten_view(t, m->frequencies[0], shape);
}

/* One of each pair, times cosines or sines. */
static hri_ten *turned_part(hri_torch *t, hri_ten *table, hri_ten *pairs) {
  hri_ten *part = hri_aten_narrow_last(t, pairs, 1), *row, *y;
  hri_ten_shape shape = part->shape;
  shape.dims[0] = table->shape.dims[0];
  shape.dims[2] = 1;
  row = hri_ten_view(t, table, shape);
  y = hri_aten_mul(t, part, row);
  hri_ten_drop(t, row);
  hri_ten_drop(t, part);
  return y;
}

/* RotaryPositionalEmbeddings.forward: pairs of neighbours, in fp32. */
static hri_ten *turn_pairs(hri_torch *t, const hri_module *m, hri_ten *x) {
  hri_ten_shape shape = x->shape;
  hri_ten *table = table_of(t, m, x, x->shape.dims[3]), *wide = hri_aten_to(t, x, HRI_F32), *pairs, *halves[2], *y,
          *back;
  shape.rank = 5;
  shape.dims[3] = x->shape.dims[3] / 2;
  shape.dims[4] = 2;
  pairs = hri_aten_view(t, wide, shape);
  hri_ten_drop(t, wide);
  for (int k = 0; k < 2; k++) {
    hri_ten *first = turned_part(t, table, pairs), *second = turned_part(t, table, pairs);
    halves[k] = (k ? hri_aten_add : hri_aten_sub)(t, first, second);
    hri_ten_drop(t, second);
    hri_ten_drop(t, first);
  }
  y = hri_aten_cat_last(t, halves[0], halves[1]); /* stack */
  for (int k = 0; k < 2; k++) hri_ten_drop(t, halves[k]);
  hri_ten_set(t, &y, hri_aten_view(t, y, x->shape));
  back = hri_aten_to(t, y, x->type);
  hri_ten *const all[] = {table, pairs, y};
  for (int k = 0; k < 3; k++) hri_ten_drop(t, all[k]);
  return back;
}

/* Qwen2's and Phi-3's: x cos + (-x2, x1) sin, with cosines in the type of x, or in fp32. */
static hri_ten *turn_halves(hri_torch *t, const hri_module *m, hri_ten *x) {
  hri_ten_type type = m->model->family == HR_FAMILY_PHI3 ? HRI_F32 : x->type;
  hri_ten *table = table_of(t, m, x, 2 * x->shape.dims[3]), *tables[2], *first, *second, *minus, *rotated, *straight,
          *turned, *y, *back;
  hri_ten_shape row = hri_ten_shape_of(4, table->shape.dims[0], x->shape.dims[1], 1, x->shape.dims[3]);
  for (int k = 0; k < 2; k++)
    tables[k] = type == HRI_F32 ? hri_ten_view(t, table, row) : hri_ten_make(t, "_to_copy", type, row);
  first = hri_aten_narrow_last(t, x, x->shape.dims[3] / 2);
  second = hri_aten_narrow_last(t, x, x->shape.dims[3] / 2);
  minus = hri_aten_neg(t, second);
  rotated = hri_aten_cat_last(t, minus, first);
  hri_ten_drop(t, minus);
  straight = hri_aten_mul(t, x, tables[0]);
  turned = hri_aten_mul(t, rotated, tables[1]);
  y = hri_aten_add(t, straight, turned);
  hri_ten_drop(t, turned);
  hri_ten_drop(t, straight);
  back = hri_aten_to(t, y, x->type);
  hri_ten *const all[] = {table, tables[0], tables[1], first, second, rotated, y};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) hri_ten_drop(t, all[i]);
  return back;
}

static hri_ten *turn(hri_torch *t, const hri_module *m, hri_ten *x) {
  bool halves = m->model->family == HR_FAMILY_QWEN2 || m->model->family == HR_FAMILY_PHI3;
  hri_torch_at(t, "attn.pos_embeddings", -2);
  return (halves ? turn_halves : turn_pairs)(t, m, x);
}

/* ---- attention ---- */

/* view(rows, tokens, heads, width). `copies`: its gradient comes in the order of heads, and is copied into that of the product. */
static hri_ten *heads_of(hri_torch *t, hri_ten *x, uint64_t heads, bool copies) {
  const uint64_t *d = x->shape.dims;
  hri_ten_shape shape = hri_ten_shape_of(4, d[0], d[1], heads, d[2] / heads);
  return copies ? hri_aten_view_copied_back(t, x, shape) : hri_aten_view(t, x, shape);
}

/* transpose(1, 2) */
static hri_ten *transposed(hri_torch *t, hri_ten *x) {
  const uint64_t *d = x->shape.dims;
  return hri_aten_view(t, x, hri_ten_shape_of(4, d[0], d[2], d[1], d[3]));
}

static hri_sdpa kernel_of(const hri_module *m, hri_ten_type type) {
  bool flash = hri_attention_has_kernel(HRI_SDPA_FLASH, m->capability, type, m->model->head_size, false);
  return flash ? HRI_SDPA_FLASH : HRI_SDPA_EFFICIENT;
}

/* MultiHeadAttention.forward: keys and values are expanded to as many heads as queries have, a copy each. */
static hri_ten *attend(hri_torch *t, const hri_module *m, const hri_module_layer *l, hri_ten *x) {
  const hr_model *d = m->model;
  uint64_t groups = d->head_count / d->kv_head_count;
  bool many = groups > 1, halves = d->family == HR_FAMILY_QWEN2 || d->family == HR_FAMILY_PHI3;
  hri_ten *q = apply(t, m, "attn.q_proj", &l->q, x), *k, *v, *y;
  hri_ten_set(t, &q, heads_of(t, q, d->head_count, false));
  hri_ten_set(t, &q, turn(t, m, q));
  hri_ten_set(t, &q, transposed(t, q));
  k = apply(t, m, "attn.k_proj", &l->k, x);
  v = apply(t, m, "attn.v_proj", &l->v, x);
  bool turned = many && d->kv_head_count > 1; /* gradients of one head lie in either order */
  hri_ten_set(t, &k, heads_of(t, k, d->kv_head_count, turned && halves));
  hri_ten_set(t, &v, heads_of(t, v, d->kv_head_count, turned));
  hri_ten_set(t, &k, turn(t, m, k));
  hri_torch_at(t, "attn", -2);
  hri_ten_set(t, &k, transposed(t, k));
  hri_ten_set(t, &v, transposed(t, v));
  if (many) {
    hri_ten_set(t, &k, hri_aten_repeat(t, k, groups));
    hri_ten_set(t, &v, hri_aten_repeat(t, v, groups));
  }
  if (m->packed_rows) y = hri_aten_flex_attention(t, q, k, v);
  else y = hri_aten_attention(t, kernel_of(m, q->type), q, k, v, NULL, 0, false);
  hri_ten_set(t, &y, hri_aten_view(t, y, hri_ten_shape_of(3, x->shape.dims[0], x->shape.dims[1], l->o.in, 0)));
  hri_ten_set(t, &y, apply(t, m, "attn.output_proj", &l->o, y));
  hri_ten_drop(t, v);
  hri_ten_drop(t, k);
  hri_ten_drop(t, q);
  return y;
}

/* ---- Gemma 2's attention, without a kernel ---- */

static hri_ten *square(hri_torch *t, const char *op, hri_ten_type type, uint64_t tokens) {
  return hri_ten_make(t, op, type, hri_ten_shape_of(2, tokens, tokens, 0, 0));
}

/* What attention adds to scores, and the variables that it was made with, which live as long. */
typedef struct gemma_mask {
  hri_ten *mask, *ones, *band;
} gemma_mask;

/* tril(ones) as numbers to add, out of which a window is cut in every second layer. */
static gemma_mask causal_mask(hri_torch *t, uint32_t layer, uint64_t tokens) {
  hri_ten *given = square(t, "_to_copy", HRI_BOOL, tokens), *lower = square(t, "tril", HRI_BOOL, tokens), *above,
          *bands[2], *inside, *cut;
  gemma_mask made = {0};
  hri_ten_drop(t, given);
  above = square(t, "logical_not", HRI_BOOL, tokens);
  made.mask = square(t, "where", HRI_F32, tokens);
  hri_ten_drop(t, above);
  hri_ten_drop(t, lower);
  if (layer % 2) return made;
  made.ones = square(t, "ones_like", HRI_F32, tokens);
  bands[0] = square(t, "triu", HRI_F32, tokens);
  bands[1] = square(t, "tril", HRI_F32, tokens);
  made.band = square(t, "mul", HRI_F32, tokens);
  for (int k = 2; k-- > 0;) hri_ten_drop(t, bands[k]);
  inside = square(t, "eq", HRI_BOOL, tokens);
  cut = square(t, "where", HRI_F32, tokens);
  hri_ten_drop(t, inside);
  hri_ten_set(t, &made.mask, cut);
  return made;
}

/* What a product over batches of matrices reads: of one row x itself, of more a copy. */
static hri_ten *as_batches(hri_torch *t, hri_ten *x) {
  return x->shape.dims[0] == 1 ? hri_ten_keep(x) : hri_aten_contiguous(t, x);
}

/* TanhSoftCapping, whose argument its caller holds. */
static hri_ten *soft_capped(hri_torch *t, hri_ten *x) {
  hri_ten *y = hri_aten_div_scalar(t, x);
  hri_ten_set(t, &y, hri_aten_tanh(t, y));
  hri_ten_set(t, &y, hri_aten_mul_scalar(t, y));
  return y;
}

/* Of turned heads, b and, unless they are weights, a. */
static hri_ten *product(hri_torch *t, hri_ten *a, bool turned, hri_ten *b, uint64_t width) {
  hri_ten *left = turned ? as_batches(t, a) : hri_ten_keep(a), *right = as_batches(t, b),
          *y = hri_aten_bmm(t, left, right, width);
  hri_ten_drop(t, right);
  hri_ten_drop(t, left);
  return y;
}

/* Keys and values of as many heads as queries have, [rows, tokens, heads, width]. */
static hri_ten *expanded(hri_torch *t, hri_ten *x, uint64_t groups) {
  hri_ten *turned, *y;
  if (groups == 1) return hri_ten_keep(x);
  turned = transposed(t, x); /* the copy is as large whatever the order */
  y = hri_aten_repeat(t, turned, groups);
  hri_ten_drop(t, turned);
  hri_ten_set(t, &y, transposed(t, y));
  return y;
}

/* Gemma2Attention.forward */
static hri_ten *attend_eager(hri_torch *t, const hri_module *m, uint32_t layer, hri_ten *x) {
  const hr_model *d = m->model;
  const hri_module_layer *l = &m->layers[layer];
  uint64_t groups = d->head_count / d->kv_head_count, tokens = x->shape.dims[1];
  hri_ten *q = apply(t, m, "attn.q_proj", &l->q, x), *k, *v, *scores, *weights, *y;
  gemma_mask mask;
  hri_ten_set(t, &q, heads_of(t, q, d->head_count, false));
  hri_ten_set(t, &q, turn(t, m, q));
  hri_ten_set(t, &q, transposed(t, q));
  k = apply(t, m, "attn.k_proj", &l->k, x);
  v = apply(t, m, "attn.v_proj", &l->v, x);
  hri_ten_set(t, &k, heads_of(t, k, d->kv_head_count, false));
  hri_ten_set(t, &k, turn(t, m, k));
  hri_torch_at(t, "attn", -2);
  hri_ten_set(t, &v, heads_of(t, v, d->kv_head_count, groups == 1));
  hri_ten_set(t, &k, expanded(t, k, groups));
  hri_ten_set(t, &v, expanded(t, v, groups));
  hri_ten_set(t, &k, transposed(t, k));
  hri_ten_set(t, &v, transposed(t, v));
  hri_ten_set(t, &q, hri_aten_mul_scalar_in_view(t, q));
  scores = product(t, q, true, k, tokens);
  mask = causal_mask(t, layer, tokens);
  hri_ten_set(t, &scores, hri_aten_div_scalar(t, scores));
  hri_ten_set(t, &scores, hri_aten_tanh(t, scores));
  hri_ten_set(t, &scores, hri_aten_mul_scalar(t, scores));
  hri_ten_set(t, &scores, hri_aten_add(t, scores, mask.mask));
  weights = hri_aten_softmax(t, scores, HRI_F32);
  hri_ten_set(t, &weights, hri_aten_to(t, weights, q->type));
  hri_ten_set(t, &scores, weights);
  y = product(t, scores, false, v, d->head_size);
  hri_ten_set(t, &scores, NULL);
  hri_ten_set(t, &y, hri_aten_view_copied_back(t, y, y->shape));
  hri_ten_set(t, &y, hri_aten_contiguous(t, y)); /* transpose(1, 2).contiguous() */
  hri_ten_set(t, &y, hri_aten_view(t, y, hri_ten_shape_of(3, x->shape.dims[0], tokens, l->o.in, 0)));
  hri_ten_set(t, &y, apply(t, m, "attn.output_proj", &l->o, y));
  hri_ten *const all[] = {mask.mask, q, k, v, mask.ones, mask.band};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) hri_ten_drop(t, all[i]);
  return y;
}

/* ---- a layer ---- */

/* FeedForward.forward: w2(act(w1(x)) * w3(x)) */
static hri_ten *feed(hri_torch *t, const hri_module *m, const hri_module_layer *l, hri_ten *x) {
  hri_ten *h = apply(t, m, "mlp.w1", &l->gate, x), *up, *y;
  hri_torch_at(t, "mlp.activation", -2);
  hri_ten_set(t, &h, hri_aten_activation(t, m->model->activation == HR_ACTIVATION_SILU ? "silu" : "gelu", h));
  up = apply(t, m, "mlp.w3", &l->up, x);
  hri_ten_set(t, &h, hri_aten_mul(t, h, up));
  hri_ten_drop(t, up);
  y = apply(t, m, "mlp.w2", &l->down, h);
  hri_ten_drop(t, h);
  return y;
}

/* Identity, or a norm of Gemma 2's. */
static hri_ten *scaled(hri_torch *t, const hri_module *m, const char *name, hri_ten *x, hri_ten *weight) {
  return weight ? norm(t, m, name, x, weight) : hri_ten_keep(x);
}

/* TransformerSelfAttentionLayer.forward: what attention gave is a variable to the end. */
static hri_ten *layer(hri_torch *t, hri_ten *x, void *context, uint32_t index) {
  const hri_module *m = context;
  const hri_module_layer *l = &m->layers[index];
  hri_ten *h, *attended, *part, *normed, *fed, *y;
  hri_torch_at(t, NULL, (int32_t)index);
  h = norm(t, m, "sa_norm", x, l->norms[0][0]);
  attended = m->model->attention_softcap > 0 ? attend_eager(t, m, index, h) : attend(t, m, l, h);
  part = scaled(t, m, "sa_scale", attended, l->norms[2][0]);
  hri_torch_at(t, "residual", -2);
  hri_ten_set(t, &h, hri_aten_add(t, part, x));
  hri_ten_drop(t, part);
  normed = norm(t, m, "mlp_norm", h, l->norms[1][0]);
  fed = feed(t, m, l, normed);
  hri_ten_drop(t, normed);
  part = scaled(t, m, "mlp_scale", fed, l->norms[3][0]);
  hri_torch_at(t, "residual", -2);
  y = hri_aten_add(t, h, part);
  hri_ten *const all[] = {part, fed, attended, h};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) hri_ten_drop(t, all[i]);
  return y;
}

/* ---- the whole ---- */

void hri_tune_drop(hri_torch *t, hri_tune_logits *logits) {
  for (uint32_t i = 0; i < logits->count; i++) hri_ten_drop(t, logits->items[i]);
  logits->count = 0;
}

static hri_ten *head_of(const hri_module *m) { return m->head ? m->head : m->embed; }

/* A chunk of several rows lies apart: beside a head that trains it is copied to be one matrix, beside one that does not it stays, and is
 * multiplied row by row. */
static hri_ten *head(hri_torch *t, const hri_module *m, hri_ten *x, bool apart) {
  hri_ten *weight = head_of(m), *flat = apart && weight->requires_grad ? hri_aten_contiguous(t, x) : hri_ten_keep(x),
          *y = hri_aten_linear(t, flat, weight, NULL, true);
  hri_ten_drop(t, flat);
  return y;
}

/* chunked_output: last_hidden_state.chunk(n, dim=1), of as many tokens each as it takes */
static void chunked(hri_torch *t, const hri_module *m, hri_ten *hidden, uint32_t chunks, hri_tune_logits *out) {
  uint64_t tokens = hidden->shape.dims[1], width = (tokens + chunks - 1) / chunks;
  hri_ten *parts[HRI_FN_RESULTS];
  out->count = (uint32_t)((tokens + width - 1) / width);
  hri_aten_chunk_tokens(t, hidden, width, out->count, parts);
  for (uint32_t i = 0; i < out->count; i++)
    out->items[i] = head(t, m, parts[i], hidden->shape.dims[0] > 1 && out->count > 1);
  for (uint32_t i = 0; i < out->count; i++) hri_ten_drop(t, parts[i]);
}

hri_tune_logits hri_tune_forward(hri_torch *t, hri_module *m, hri_ten *tokens, uint32_t chunks) {
  hri_ten *const none[HRI_FN_HELD] = {0};
  hri_tune_logits out = {0};
  hri_ten *h, *hidden;
  hri_torch_at(t, "tok_embeddings", -1);
  h = hri_aten_embedding(t, m->embed, tokens);
  if (m->model->embedding_scale != 1) hri_ten_set(t, &h, hri_aten_mul_scalar(t, h));
  for (uint32_t i = 0; i < m->model->layer_count; i++)
    hri_ten_set(t, &h, m->checkpoint ? hri_checkpoint(t, false, layer, m, i, h, none) : layer(t, h, m, i));
  hri_torch_at(t, NULL, -1);
  hidden = norm(t, m, "norm", h, m->norm[0]);
  if (m->model->logit_softcap > 0) hri_ten_set(t, &hidden, soft_capped(t, hidden)); /* Gemma2FinalNorm: not of logits */
  hri_torch_at(t, "output", -1);
  if (chunks) {
    chunked(t, m, hidden, chunks, &out);
  } else {
    hri_ten *logits = head(t, m, hidden, false);
    out.items[out.count++] = hri_aten_to(t, logits, HRI_F32);
    hri_ten_drop(t, logits);
  }
  hri_ten_drop(t, hidden);
  hri_ten_drop(t, h);
  return out;
}

/* ---- the loss ---- */

static hri_ten *flat(hri_torch *t, hri_ten *logits) {
  const uint64_t *d = logits->shape.dims;
  return hri_aten_view(t, logits, hri_ten_shape_of(2, d[0] * d[1], d[2], 0, 0));
}

/* The labels of each chunk: of several rows a copy. */
static hri_ten *labels_of(hri_torch *t, hri_ten *labels, const hri_ten *logits) {
  hri_ten_shape shape = hri_ten_shape_of(1, logits->shape.dims[0] * logits->shape.dims[1], 0, 0, 0);
  bool copied = labels->shape.dims[0] > 1 && logits->shape.dims[1] < labels->shape.dims[1];
  return copied ? hri_ten_make(t, "clone", HRI_I64, shape) : hri_ten_view(t, labels, shape);
}

/* How many labels count. */
static hri_ten *count(hri_torch *t, hri_ten *labels) {
  hri_ten *counts = hri_ten_like(t, "ne", labels, HRI_BOOL), *sum = hri_ten_flat(t, "sum", HRI_I64, 1);
  hri_ten_drop(t, counts);
  return sum;
}

static hri_ten *whole_loss(hri_torch *t, const hri_tune_logits *logits, hri_ten *labels) {
  hri_ten *all = flat(t, logits->items[0]), *targets = labels_of(t, labels, logits->items[0]),
          *loss = hri_aten_cross_entropy(t, all, targets);
  hri_ten_drop(t, targets);
  hri_ten_drop(t, all);
  return loss;
}

hri_ten *hri_tune_loss(hri_torch *t, const hri_tune_logits *logits, hri_ten *labels, uint32_t chunks) {
  hri_ten *total, *targets[HRI_FN_RESULTS], *parts[HRI_FN_RESULTS], *loss = NULL, *wide, *one;
  if (chunks == 0) return whole_loss(t, logits, labels);
  total = count(t, labels);
  for (uint32_t i = 0; i < logits->count; i++) targets[i] = labels_of(t, labels, logits->items[i]);
  for (uint32_t i = 0; i < logits->count; i++) parts[i] = flat(t, logits->items[i]);
  for (uint32_t i = 0; i < logits->count; i++) {
    wide = hri_aten_to(t, parts[i], HRI_F32);
    one = hri_aten_cross_entropy(t, wide, targets[i]);
    hri_ten_drop(t, wide);
    hri_ten_set(t, &loss, loss ? hri_aten_add(t, loss, one) : hri_aten_add_scalar(t, one));
    hri_ten_drop(t, one);
  }
  hri_ten_set(t, &loss, hri_aten_div_by(t, loss, total));
  for (uint32_t i = 0; i < logits->count; i++) {
    hri_ten_drop(t, parts[i]);
    hri_ten_drop(t, targets[i]);
  }
  hri_ten_drop(t, total);
  return loss;
}
