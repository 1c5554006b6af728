/* The masks of transformers (pass.h): truth values by masking_utils.py since 4.53, numbers to add before that. */
#include "frameworks/pytorch/pass.h"

typedef hri_module_pass pass;

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

/* ---- before 4.53: _update_causal_mask ---- */

/* [tokens, tokens] of the lowest number above the diagonal and, of layers that slide, beyond the window. */
static hri_ten *older_causal(hri_torch *t, const pass *p, hri_ten_type type, uint64_t tokens, bool slides) {
  hri_ten *full = of_shape(t, "full", type, 2, tokens, tokens, 0, 0), *range, *above, *far;
  if (!slides) hri_ten_set(t, &full, of_shape(t, "triu", type, 2, tokens, tokens, 0, 0));
  range = of_shape(t, "arange", HRI_I64, 1, tokens, 0, 0, 0);
  above = of_shape(t, "gt", HRI_BOOL, 2, tokens, tokens, 0, 0);
  hri_ten_drop(t, range);
  if (slides && tokens > p->module->model->sliding_window) {
    far = of_shape(t, "le", HRI_BOOL, 2, tokens, tokens, 0, 0);
    hri_ten_drop(t, far); /* or'ed in place */
  }
  hri_ten_drop(t, above); /* multiplied in place */
  return full;
}

/* The batch's mask in it: the sum of both, where it is 0, and the lowest number there, copied back. */
static void older_padding(hri_torch *t, hri_ten *mask) {
  hri_ten *sum = hri_ten_like(t, "add", mask, mask->type), *hidden = hri_ten_like(t, "eq", mask, HRI_BOOL);
  hri_ten_drop(t, sum);
  hri_ten_drop(t, hri_ten_like(t, "masked_fill", mask, mask->type));
  hri_ten_drop(t, hidden);
}

/* _unmask_unattended: rows of which nothing is seen see all. */
static hri_ten *older_unmask(hri_torch *t, hri_ten *mask) {
  const uint64_t *d = mask->shape.dims;
  hri_ten *same = hri_ten_like(t, "eq", mask, HRI_BOOL), *all = of_shape(t, "all", HRI_BOOL, 4, d[0], 1, d[2], 1);
  hri_ten *kept, *y;
  hri_ten_drop(t, same);
  kept = hri_ten_like(t, "bitwise_not", all, HRI_BOOL);
  hri_ten_drop(t, all);
  y = hri_ten_like(t, "mul", mask, mask->type);
  hri_ten_drop(t, kept);
  hri_ten_drop(t, mask);
  return y;
}

/* gpt2's eager attention has its causal mask in each layer, and of the batch's one row for all queries. */
static hri_ten *older_row(hri_torch *t, const hri_ten *given, hri_ten_type type) {
  const uint64_t *d = given->shape.dims;
  hri_ten *row = of_shape(t, "_to_copy", type, 4, d[0], 1, 1, d[1]), *turned = hri_ten_like(t, "rsub", row, type), *y;
  hri_ten_drop(t, row);
  y = hri_ten_like(t, "mul", turned, type);
  hri_ten_drop(t, turned);
  return y;
}

/* Fused attention needs none where nothing is padded and the window holds all tokens; Gemma 2 makes one in any case. */
static hri_ten *older_mask(hri_torch *t, const pass *p, const hri_module_batch *batch, hri_ten_type type, bool slides) {
  const uint64_t *d = batch->ids->shape.dims;
  const hr_model *m = p->module->model;
  bool cut = slides && d[1] >= m->sliding_window, eager = p->module->attention == HRI_TORCH_EAGER;
  hri_ten *small, *mask, *whole;
  hri_torch_at(t, "_update_causal_mask", -1);
  if (m->family == HR_FAMILY_GPT2 && eager)
    return batch->mask ? older_row(t, batch->mask, p->module->embed->type) : NULL;
  if (!eager && batch->mask && !cut) { /* torch.all(attention_mask == 1) */
    small = hri_ten_like(t, "eq", batch->mask, HRI_BOOL);
    hri_ten_drop(t, of_shape(t, "all", HRI_BOOL, 1, 1, 0, 0, 0));
    hri_ten_drop(t, small);
  }
  if (!eager && !batch->padded && !cut) return NULL;
  mask = older_causal(t, p, type, d[1], slides);
  if (!batch->mask) return mask;
  whole = of_shape(t, "clone", type, 4, d[0], 1, d[1], d[1]);
  hri_ten_drop(t, mask);
  older_padding(t, whole);
  return eager ? whole : older_unmask(t, whole);
}

hri_ten *hri_module_mask_of_layer(hri_torch *t, const pass *p, uint32_t layer) {
  const hri_module *m = p->module;
  hri_ten *mask = p->masks[0], *ones, *lower, *scalar, *y;
  if (!mask || m->model->family != HR_FAMILY_GEMMA2 || m->version < HRI_TRANSFORMERS_4_49) return NULL;
  if (!m->model->sliding[layer]) return NULL;
  ones = hri_ten_like(t, "ones_like", mask, HRI_BOOL);
  lower = hri_ten_like(t, "tril", mask, HRI_BOOL);
  hri_ten_drop(t, ones);
  scalar = of_shape(t, "scalar_tensor", mask->type, 1, 1, 0, 0, 0);
  y = hri_ten_like(t, "where", mask, mask->type);
  hri_ten_drop(t, scalar);
  hri_ten_drop(t, lower);
  return y;
}

/* ---- all of a pass ---- */

/* Families whose layers are of two kinds make both masks, the others the one that all their layers have. */
void hri_module_make_masks(hri_torch *t, pass *p, const hri_module_batch *batch, hri_ten_type type) {
  const hr_model *m = p->module->model;
  bool some, all, older = p->module->version >= HRI_TRANSFORMERS_4_49;
  hri_module_kinds_of_layers(m, &some, &all);
  if (older && m->family == HR_FAMILY_GEMMA2) { /* one for all layers; those that slide add to it (mask_of_layer) */
    p->masks[0] = older_mask(t, p, batch, type, false);
    p->masks[1] = hri_ten_keep(p->masks[0]);
    return;
  }
  if (older) {
    p->masks[some] = older_mask(t, p, batch, type, some);
    return;
  }
  bool both = some && m->family != HR_FAMILY_MISTRAL && m->family != HR_FAMILY_PHI3;
  if (!all || both) p->masks[0] = make_mask(t, p, batch, type, false);
  if (some) p->masks[1] = make_mask(t, p, batch, type, true);
}
