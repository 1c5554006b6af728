/* Attention as transformers calls it (pass.h): which kernel PyTorch takes, what is repeated and copied before it, and the two ways
 * that are ops and no kernel: eager, and the math of scaled_dot_product_attention. */
#include "frameworks/pytorch/pass.h"

#include "frameworks/pytorch/aten.h"
#include "frameworks/pytorch/attention_kernels.h"
#include "frameworks/pytorch/autocast.h"

/* ---- the choice (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp) ---- */

bool hri_attention_has_kernel(hri_sdpa kernel, uint32_t capability, hri_ten_type type, uint64_t width, bool mask) {
  switch (kernel) {
  case HRI_SDPA_FLASH: return type != HRI_F32 && capability >= 80 && width <= 256 && !mask;
  case HRI_SDPA_EFFICIENT: return type != HRI_BF16 || capability >= 80;
  default: return true;
  }
}

/* axolotl's sdpa_varlen_forward takes varlen_attn for packed rows where flash attention can; q has been turned by cos. */
static bool is_varlen(const hri_module_pass *p, hri_ten_type type) {
  return p->packed && type != HRI_F32 && p->cos[p->kind]->type != HRI_F32;
}

/* There is a mask, or there will be one of the documents of a row. */
static bool is_masked(const hri_module_pass *p, hri_ten_type type) {
  return p->mask || (p->packed && !is_varlen(p, type));
}

static hri_sdpa kernel_of(const hri_torch *t, const hri_module_pass *p, hri_ten_type type) {
  static const hri_sdpa order[] = {HRI_SDPA_FLASH, HRI_SDPA_EFFICIENT, HRI_SDPA_MATH};
  const hri_module *m = p->module;
  bool mask = is_masked(p, type);
  if (t->autocast != HRI_F32) type = t->autocast;
  if (m->kernel_forced) return m->kernel;
  for (int i = 0; i < 2; i++)
    if (hri_attention_has_kernel(order[i], m->capability, type, m->model->head_size, mask)) return order[i];
  return HRI_SDPA_MATH;
}

/* DynamicCache of 4.57 and later joins keys and values with an empty tensor of the keys' type, which copies them in the order of heads;
 * before that it keeps them as they are. */
static bool cached(const hri_module_pass *p) { return p->cache && p->module->version <= HRI_TRANSFORMERS_4_57; }

void hri_module_update_cache(hri_torch *t, hri_module_pass *p, uint32_t layer, hri_ten **k, hri_ten **v) {
  hri_ten **both[] = {k, v};
  hri_ten_type type = (*k)->type;
  if (!p->cache) return;
  for (int i = 0; i < 2; i++) {
    if (cached(p)) hri_ten_set(t, both[i], hri_aten_cat_one(t, *both[i], type));
    hri_ten_set(t, &p->cache->layers[layer][i], hri_ten_keep(*both[i]));
  }
}

/* Phi-3's rotary embedding of transformers joins parts of q and k by torch.cat, which leaves them in the order of heads. */
static bool joins_heads(const hri_module *m) {
  return m->model->family == HR_FAMILY_PHI3 && m->version < HRI_TRANSFORMERS_4_46 && !m->liger;
}

/* sdpa_attention_forward: grouped heads are the kernel's since 4.50 unless there is a mask; 4.48 to 4.49 make all three contiguous,
 * the classes before them beside a mask alone, and gpt2's never. */
hri_attention_way hri_attention_way_of(const hri_torch *t, const hri_module_pass *p, hri_ten_type type) {
  const hri_module *m = p->module;
  const hr_model *d = m->model;
  bool groups = d->head_count > d->kv_head_count, sdpa = m->attention == HRI_TORCH_SDPA;
  hri_attention_way way = {.kernel = kernel_of(t, p, type)};
  if (!sdpa) {
    way.repeats = groups;
    way.turns_value = way.turns_all = true;
    return way;
  }
  way.repeats = groups && (p->packed || p->mask || m->version >= HRI_TRANSFORMERS_4_49);
  way.copies = m->version == HRI_TRANSFORMERS_4_49 ||
               (m->version == HRI_TRANSFORMERS_4_46 && p->mask && d->family != HR_FAMILY_GPT2);
  way.by_heads = way.copies || joins_heads(m);
  way.turns_all = way.kernel == HRI_SDPA_MATH || (way.kernel == HRI_SDPA_FLASH && way.copies);
  way.turns_value = way.turns_all || cached(p) || way.repeats;
  return way;
}

/* A new reference to x, contiguous in the order of heads. `is`: it is so already. */
static hri_ten *in_order(hri_torch *t, hri_ten *x, bool is) { return is ? hri_ten_keep(x) : hri_aten_contiguous(t, x); }

/* ---- the math of scaled_dot_product_attention (_scaled_dot_product_attention_math) ---- */

static hri_ten *small(hri_torch *t, const char *op, hri_ten_type type, uint64_t rows, uint64_t columns) {
  return hri_ten_make(t, op, type, hri_ten_shape_of(2, rows, columns, 0, 0));
}

/* ones(L, S).tril(), then as numbers to add. */
static hri_ten *causal_bias(hri_torch *t, uint64_t tokens) {
  hri_ten *ones = small(t, "ones", HRI_BOOL, tokens, tokens), *lower = small(t, "tril", HRI_BOOL, tokens, tokens);
  hri_ten *scalars[2], *bias;
  hri_ten_drop(t, ones);
  for (int i = 0; i < 2; i++) scalars[i] = small(t, "scalar_tensor", HRI_F32, 1, 1);
  bias = small(t, "where", HRI_F32, tokens, tokens);
  for (int i = 2; i-- > 0;) hri_ten_drop(t, scalars[i]);
  hri_ten_drop(t, lower);
  return bias;
}

/* What a product over batches of matrices reads: of one row, or in the order of heads, x itself. */
static hri_ten *as_batches(hri_torch *t, hri_ten *x, bool by_heads) {
  return in_order(t, x, by_heads || x->shape.dims[0] == 1);
}

/* In fp32 whatever comes; by_heads[]: of q, k, v. The mask is added in place. */
static hri_ten *math(hri_torch *t, const hri_module_pass *p, hri_ten *const given[3], const bool by_heads[3]) {
  uint64_t groups = given[0]->shape.dims[1] / given[1]->shape.dims[1], tokens = given[0]->shape.dims[2];
  hri_ten_type type = given[0]->type;
  hri_ten *wide[3], *query, *bias, *key, *value, *scaled, *flat[2], *scores, *weights, *returned, *y;
  for (int i = 0; i < 3; i++) wide[i] = hri_aten_to(t, given[i], HRI_F32);
  query = hri_aten_mul_scalar(t, wide[0]);
  bias = p->mask ? NULL : causal_bias(t, tokens);
  key = groups > 1 ? hri_aten_repeat_interleave(t, wide[1], groups) : hri_ten_keep(wide[1]);
  value = groups > 1 ? hri_aten_repeat_interleave(t, wide[2], groups) : hri_ten_keep(wide[2]);
  scaled = hri_aten_mul_scalar(t, key);
  flat[0] = as_batches(t, query, by_heads[0]);
  flat[1] = as_batches(t, scaled, by_heads[1] || groups > 1);
  scores = hri_aten_bmm(t, flat[0], flat[1], tokens);
  for (int i = 0; i < 2; i++) hri_ten_drop(t, flat[i]);
  hri_ten_drop(t, scaled);
  weights = hri_aten_safe_softmax(t, scores);
  hri_ten_drop(t, scores);
  hri_ten_set(t, &weights, hri_aten_dropout(t, weights, p->module->dropout.attention));
  returned = hri_aten_to(t, weights, type); /* the second result, which nobody takes */
  flat[0] = as_batches(t, value, by_heads[2] || groups > 1);
  y = hri_aten_bmm(t, weights, flat[0], given[2]->shape.dims[3]);
  hri_ten_drop(t, flat[0]);
  hri_ten_set(t, &y, hri_aten_view_copied_back(t, y, y->shape));
  hri_ten_set(t, &y, hri_aten_to(t, y, type));
  hri_ten *const all[] = {value, key, query, bias, wide[2], wide[1], wide[0], returned, weights};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) hri_ten_drop(t, all[i]);
  return y;
}

static hri_ten *attend_math(hri_torch *t, const hri_module_pass *p, hri_ten *const given[3], const bool by_heads[3]) {
  hri_ten_type autocast = t->autocast;
  hri_ten *bias = p->mask ? hri_aten_mask_bias(t, p->mask, given[0]->type) : NULL, *lower[3], *y;
  for (int i = 3; i-- > 0;) lower[i] = hri_autocast_lower(t, given[i]);
  t->autocast = HRI_F32; /* it was applied to the arguments */
  y = math(t, p, lower, by_heads);
  t->autocast = autocast;
  for (int i = 3; i-- > 0;) hri_ten_drop(t, lower[i]);
  hri_ten_drop(t, bias);
  return y;
}

/* ---- the kernels ---- */

static hri_ten *repeated(hri_torch *t, const hri_attention_way *way, hri_ten *x, uint64_t groups) {
  return way->repeats && groups > 1 ? hri_aten_repeat(t, x, groups) : hri_ten_keep(x);
}

static hri_ten *attend_fused(hri_torch *t, hri_module_pass *p, hri_ten *q, hri_ten *k, hri_ten *v) {
  hri_attention_way way = hri_attention_way_of(t, p, q->type);
  const hri_module *m = p->module;
  bool joined = joins_heads(m);
  uint64_t groups = q->shape.dims[1] / k->shape.dims[1];
  hri_ten *ready[3], *y;
  bool many = way.repeats && groups > 1;
  const bool kept = cached(p), is[] = {joined, joined || many || kept, many || kept},
             by_heads[] = {way.by_heads, way.by_heads || many || kept, way.copies || many || kept};
  ready[0] = hri_ten_keep(q);
  ready[1] = repeated(t, &way, k, groups);
  ready[2] = repeated(t, &way, v, groups);
  for (int i = 0; i < 3 && way.copies; i++) hri_ten_set(t, &ready[i], in_order(t, ready[i], is[i]));
  if (way.kernel == HRI_SDPA_MATH) {
    y = attend_math(t, p, ready, by_heads);
  } else {
    y = hri_aten_attention(t, way.kernel, ready[0], ready[1], ready[2], p->mask, m->dropout.attention, way.by_heads);
  }
  if (way.kernel == HRI_SDPA_MATH || (way.kernel == HRI_SDPA_FLASH && way.by_heads))
    hri_ten_set(t, &y, hri_aten_contiguous(t, y)); /* transpose(1, 2).contiguous() */
  for (int i = 0; i < 3; i++) hri_ten_drop(t, ready[i]);
  return y;
}

/* ---- eager ---- */

/* Before 5 gpt2 has a mask of its own in each layer, a buffer, and divides by a number on the device. */
static hri_ten *older_gpt2_scores(hri_torch *t, const hri_module_pass *p, hri_ten *scores) {
  hri_ten *root = small(t, "full", scores->type, 1, 1), *lowest;
  hri_ten *divided = hri_aten_div_scalar(t, scores);
  hri_ten_drop(t, root);
  hri_ten_drop(t, scores);
  lowest = small(t, "full", divided->type, 1, 1);
  hri_ten_set(t, &divided, hri_aten_where(t, divided));
  hri_ten_drop(t, lowest);
  if (p->mask) hri_ten_set(t, &divided, hri_aten_add(t, divided, p->mask));
  return divided;
}

static hri_ten *scores_of(hri_torch *t, const hri_module_pass *p, hri_ten *scores) {
  const hri_module *m = p->module;
  if (m->model->family == HR_FAMILY_GPT2 && m->version >= HRI_TRANSFORMERS_4_57) return older_gpt2_scores(t, p, scores);
  hri_ten_set(t, &scores, hri_aten_mul_scalar(t, scores));
  if (m->model->attention_softcap > 0) {
    hri_ten_set(t, &scores, hri_aten_div_scalar(t, scores));
    hri_ten_set(t, &scores, hri_aten_tanh(t, scores));
    hri_ten_set(t, &scores, hri_aten_mul_scalar(t, scores));
  }
  if (p->mask) hri_ten_set(t, &scores, hri_aten_add(t, scores, p->mask));
  return scores;
}

/* eager_attention_forward. Heads are transposed views, which a product over batches of matrices copies unless repeat_kv
 * has made them contiguous. */
static hri_ten *attend_eager(hri_torch *t, hri_module_pass *p, hri_ten *q, hri_ten *k, hri_ten *v) {
  uint64_t groups = q->shape.dims[1] / k->shape.dims[1];
  bool copies = groups == 1 && !cached(p);
  hri_ten *keys = groups > 1 ? hri_aten_repeat(t, k, groups) : hri_ten_keep(k);
  hri_ten *values = groups > 1 ? hri_aten_repeat(t, v, groups) : hri_ten_keep(v);
  hri_ten *queries = as_batches(t, q, false), *scores, *weights, *y, *wide;
  wide = as_batches(t, keys, !copies);
  scores = hri_aten_bmm(t, queries, wide, k->shape.dims[2]);
  hri_ten_drop(t, wide);
  hri_ten_drop(t, queries);
  scores = scores_of(t, p, scores);
  weights = hri_aten_softmax(t, scores, p->module->model->family == HR_FAMILY_GPT2 ? scores->type : HRI_F32);
  hri_ten_drop(t, scores);
  hri_ten_set(t, &weights, hri_aten_to(t, weights, q->type));
  hri_ten_set(t, &weights, hri_aten_dropout(t, weights, p->module->dropout.attention));
  wide = as_batches(t, values, !copies);
  y = hri_aten_bmm(t, weights, wide, v->shape.dims[3]);
  hri_ten_drop(t, wide);
  hri_ten_set(t, &y, hri_aten_view_copied_back(t, y, y->shape));
  hri_ten_set(t, &y, hri_aten_contiguous(t, y));
  hri_ten_drop(t, keys);
  hri_ten_drop(t, values);
  hri_ten_drop(t, weights);
  return y;
}

/* ---- documents that share rows (axolotl, monkeypatch/attention/sdpa_varlen.py) ---- */

static hri_ten *positions_like(hri_torch *t, const hri_module_pass *p, const char *op, hri_ten_type type) {
  return hri_ten_like(t, op, p->positions, type);
}

/* (position_ids == 0).sum() */
static void count_documents(hri_torch *t, const hri_module_pass *p) {
  hri_ten *first = positions_like(t, p, "eq", HRI_BOOL), *sum = small(t, "sum", HRI_I64, 1, 1);
  hri_ten_drop(t, positions_like(t, p, "_to_copy", HRI_I64));
  hri_ten_drop(t, first);
  hri_ten_drop(t, sum);
}

/* _block_diagonal_causal_mask: [rows, 1, tokens, tokens] of truth values. */
static hri_ten *of_documents(hri_torch *t, const hri_module_pass *p) {
  uint64_t rows = p->positions->shape.dims[0], tokens = p->positions->shape.dims[1];
  hri_ten_shape square = hri_ten_shape_of(4, rows, 1, tokens, tokens);
  hri_ten *first = positions_like(t, p, "eq", HRI_BOOL), *number = positions_like(t, p, "cumsum", HRI_I64), *same,
          *range, *causal, *both;
  hri_ten_drop(t, positions_like(t, p, "_to_copy", HRI_I64));
  hri_ten_drop(t, first);
  same = hri_ten_make(t, "eq", HRI_BOOL, square);
  range = small(t, "arange", HRI_I64, 1, tokens);
  causal = small(t, "ge", HRI_BOOL, tokens, tokens);
  both = hri_ten_make(t, "bitwise_and", HRI_BOOL, square);
  hri_ten *const all[] = {number, same, range, causal};
  for (int i = 0; i < 4; i++) hri_ten_drop(t, all[i]);
  return both;
}

/* varlen_attn over the rows one behind the other: keys and values of grouped heads are repeated, and copied into that order. */
static hri_ten *attend_varlen(hri_torch *t, hri_ten *q, hri_ten *const given[2]) {
  enum { DOCUMENTS = 4 };
  uint64_t groups = q->shape.dims[1] / given[0]->shape.dims[1];
  hri_ten *repeated[2], *flat[2], *ends = small(t, "cat", HRI_I32, 1, q->shape.dims[0] * DOCUMENTS + 1), *y;
  for (int i = 0; i < 2; i++)
    repeated[i] = groups > 1 ? hri_aten_repeat_interleave(t, given[i], groups) : hri_ten_keep(given[i]);
  for (int i = 0; i < 2; i++) flat[i] = groups > 1 ? hri_aten_contiguous(t, repeated[i]) : hri_ten_keep(repeated[i]);
  y = hri_aten_attention_varlen(t, q, flat[0], flat[1], ends, q->shape.dims[0] * DOCUMENTS);
  for (int i = 2; i-- > 0;) hri_ten_drop(t, flat[i]);
  for (int i = 2; i-- > 0;) hri_ten_drop(t, repeated[i]);
  hri_ten_drop(t, ends);
  return y;
}

static hri_ten *attend_packed(hri_torch *t, hri_module_pass *p, hri_ten *q, hri_ten *k, hri_ten *v) {
  hri_ten *const given[] = {k, v};
  hri_ten *y;
  count_documents(t, p);
  if (is_varlen(p, q->type)) return attend_varlen(t, q, given);
  p->mask = of_documents(t, p);
  y = attend_fused(t, p, q, k, v);
  hri_ten_set(t, &p->mask, NULL);
  return y;
}

hri_ten *hri_module_attend(hri_torch *t, hri_module_pass *p, hri_ten *q, hri_ten *k, hri_ten *v) {
  hri_ten_shape flat = hri_ten_shape_of(3, q->shape.dims[0], q->shape.dims[2], q->shape.dims[1] * q->shape.dims[3], 0);
  hri_ten *y;
  hri_torch_at(t, "attention", -2);
  y = p->packed                                 ? attend_packed(t, p, q, k, v)
      : p->module->attention == HRI_TORCH_EAGER ? attend_eager(t, p, q, k, v)
                                                : attend_fused(t, p, q, k, v);
  hri_ten_set(t, &y, hri_aten_view(t, y, flat));
  return y;
}
