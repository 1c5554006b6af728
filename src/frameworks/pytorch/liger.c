/* Liger's kernels (liger.h). Inside a function of theirs nothing has a graph, and autocast holds for what is written as a product. */
#include "frameworks/pytorch/liger.h"

#include "frameworks/pytorch/aten.h"
#include "frameworks/pytorch/autocast.h"
#include "frameworks/pytorch/device.h"

static hri_ten *matrix(hri_torch *t, const char *op, hri_ten_type type, uint64_t rows, uint64_t columns) {
  return hri_ten_make(t, op, type, hri_ten_shape_of(2, rows, columns, 0, 0));
}

/* x.contiguous() without gradient: a new reference. */
static hri_ten *contiguous(hri_torch *t, hri_ten *x, bool copies) {
  return copies ? hri_ten_like(t, "clone", x, x->type) : hri_ten_keep(x);
}

/* ---- RMSNorm ---- */

/* Inputs x, weight. numbers[0]: the gradient of x is a tensor of its own; [1]: that of the result is copied first. Sums of the weight's gradient are made by
 * each multiprocessor. */
static void norm_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  const hri_aten_device *device = t->device;
  hri_ten *x = hri_fn_saved(t, fn, 0), *weight = hri_fn_saved(t, fn, 1), *rstd = hri_fn_saved(t, fn, 2);
  if (g[0]) {
    hri_ten *gradient = contiguous(t, g[0], fn->numbers[1]), *sums = NULL, *sum, *place;
    if (hri_fn_needs(fn, 1)) sums = matrix(t, "empty", HRI_F32, device ? device->processors : 1, weight->shape.dims[0]);
    place = fn->numbers[0] ? hri_ten_like(t, "zeros_like", gradient, gradient->type) : hri_ten_keep(gradient);
    in[0] = hri_ten_view_in_backward(t, place, fn->shapes[0]);
    hri_ten_drop(t, place);
    if (sums) {
      sum = hri_ten_sum(t, HRI_F32, weight->shape, sums->shape.dims[0]);
      in[1] = weight->type == HRI_F32 ? hri_ten_keep(sum) : hri_ten_like(t, "_to_copy", weight, weight->type);
      hri_ten_drop(t, sum);
      hri_ten_drop(t, sums);
    }
    hri_ten_drop(t, gradient);
  }
  hri_ten_drop(t, rstd);
  hri_ten_drop(t, weight);
  hri_ten_drop(t, x);
}

hri_ten *hri_liger_norm(hri_torch *t, hri_ten *given, hri_ten *weight, bool copies, bool in_place) {
  hri_ten *inputs[] = {given, weight}, *x, *y, *rstd;
  hri_fn *fn = hri_fn_make(t, norm_backward, inputs, 2);
  if (fn) fn->numbers[0] = !in_place, fn->numbers[1] = copies;
  x = contiguous(t, given, copies);
  y = hri_ten_like(t, "rms_norm", x, x->type);
  rstd = hri_ten_flat(t, "rms_norm", HRI_F32, hri_ten_count(x) / x->shape.dims[x->shape.rank - 1]);
  hri_fn_save(t, fn, x);
  hri_fn_save(t, fn, weight);
  hri_fn_save(t, fn, rstd);
  hri_ten_drop(t, x);
  hri_ten_drop(t, rstd);
  return hri_fn_bind(t, fn, y);
}

/* ---- SwiGLU, GeGLU ---- */

/* Gradients take the places of what was saved. */
static void gated_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *saved[2];
  for (uint32_t i = 0; i < 2; i++) saved[i] = hri_fn_saved(t, fn, i);
  for (uint32_t i = 0; i < 2 && g[0]; i++) in[i] = hri_ten_view_in_backward(t, saved[i], fn->shapes[i]);
  for (uint32_t i = 2; i-- > 0;) hri_ten_drop(t, saved[i]);
}

hri_ten *hri_liger_gated(hri_torch *t, hri_ten *gate, hri_ten *up, bool copies) {
  hri_ten *inputs[] = {gate, up}, *parts[2], *y;
  hri_fn *fn = hri_fn_make(t, gated_backward, inputs, 2);
  for (int i = 0; i < 2; i++) parts[i] = contiguous(t, inputs[i], copies);
  y = hri_ten_like(t, "glu", gate, gate->type);
  for (int i = 0; i < 2; i++) hri_fn_save(t, fn, parts[i]);
  for (int i = 0; i < 2; i++) hri_ten_drop(t, parts[i]);
  return hri_fn_bind(t, fn, y);
}

/* ---- rotary embedding ---- */

/* numbers[k]: the gradient is copied, else turned where it is. */
static void rope_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *saved[2];
  for (uint32_t i = 0; i < 2; i++) saved[i] = hri_fn_saved(t, fn, i);
  for (uint32_t k = 0; k < 2; k++)
    if (g[k])
      in[k] = fn->numbers[k] ? hri_ten_make(t, "clone", g[k]->type, fn->shapes[k])
                             : hri_ten_view_in_backward(t, g[k], fn->shapes[k]);
  for (uint32_t i = 2; i-- > 0;) hri_ten_drop(t, saved[i]);
}

void hri_liger_rope(hri_torch *t, hri_ten *const given[2], hri_ten *cos, hri_ten *sin, const hri_liger_order *order,
                    hri_ten *out[2]) {
  hri_fn *fn = hri_fn_make(t, rope_backward, given, 2);
  for (int k = 0; k < 2; k++) {
    if (fn) fn->numbers[k] = order->turns_gradient[k];
    out[k] = order->copies[k] ? hri_ten_like(t, "clone", given[k], given[k]->type)
                              : hri_ten_view(t, given[k], given[k]->shape);
  }
  hri_fn_save(t, fn, cos);
  hri_fn_save(t, fn, sin);
  for (int k = 0; k < 2; k++) hri_fn_bind(t, fn, out[k]);
}

/* ---- the head with its loss ---- */

static uint64_t divided(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

/* So many tokens that their logits take about what all hidden states take: a power of two. */
static uint64_t chunk_of(uint64_t tokens, uint64_t width, uint64_t vocabulary) {
  uint64_t wanted = divided(tokens, divided(vocabulary, width)), chunk = 1;
  while (chunk < wanted) chunk *= 2;
  return chunk < tokens ? chunk : tokens;
}

typedef struct head {
  hri_ten *weight, *hidden, *gradient; /* gradient: of the weight; NULL: none */
  hri_ten_type type;                   /* of products */
  bool gradients, in_place;            /* gradients are wanted; products go to where they belong: no cast is between */
} head;

/* A product's argument under autocast: a new reference. */
static hri_ten *lowered(hri_torch *t, const head *h, hri_ten *x) {
  return x->type == h->type ? hri_ten_keep(x) : hri_ten_like(t, "_to_copy", x, h->type);
}

/* logits = chunk @ weight.t(): a transposed weight is a view, whose cast is not kept. */
static hri_ten *logits_of(hri_torch *t, const head *h, hri_ten *chunk, uint64_t tokens) {
  hri_ten *weight = lowered(t, h, h->weight), *x = lowered(t, h, chunk), *logits;
  logits = matrix(t, "mm", h->type, tokens, h->weight->shape.dims[0]);
  hri_ten_drop(t, x);
  hri_ten_drop(t, weight);
  return logits;
}

/* grad_input[chunk] = grad_logits @ weight */
static void add_input(hri_torch *t, const head *h, uint64_t tokens) {
  hri_ten *weight = hri_autocast_lower(t, h->weight);
  hri_ten_drop(t, matrix(t, "mm", h->type, tokens, weight->shape.dims[1]));
  hri_ten_drop(t, weight);
}

/* Into the gradient by addmm; where that has no such types, or the device is older, by a product of its own and its fp32 copy. */
static void add_weight(hri_torch *t, const head *h, hri_ten *chunk) {
  const hri_aten_device *device = t->device;
  bool half = h->type != HRI_F32, newer = device && device->capability >= 80;
  hri_ten *x = lowered(t, h, chunk), *product;
  if (!half || !newer) {
    product = hri_ten_like(t, "mm", h->weight, h->type);
    hri_ten_set(t, &x, NULL);
    if (half) hri_ten_set(t, &product, hri_ten_like(t, "_to_copy", product, HRI_F32));
    hri_ten_drop(t, product);
  }
  hri_ten_drop(t, x);
}

static void go_through(hri_torch *t, const head *h, uint64_t chunk_tokens) {
  uint64_t count = h->hidden->shape.dims[0], vocabulary = h->weight->shape.dims[0];
  hri_ten *logits = h->in_place ? matrix(t, "empty", h->type, chunk_tokens, vocabulary) : NULL;
  hri_aten_workspace(t);
  for (uint64_t from = 0; from < count; from += chunk_tokens) {
    uint64_t tokens = count - from < chunk_tokens ? count - from : chunk_tokens;
    hri_ten *chunk = hri_ten_view(t, h->hidden, hri_ten_shape_of(2, tokens, h->hidden->shape.dims[1], 0, 0));
    if (!h->in_place) logits = logits_of(t, h, chunk, tokens);
    if (h->gradients && !h->in_place) add_input(t, h, tokens);
    if (h->gradient) add_weight(t, h, chunk);
    if (!h->in_place) hri_ten_set(t, &logits, NULL);
    hri_ten_drop(t, chunk);
  }
  hri_ten_drop(t, logits);
}

/* torch.equal(grad_output, 1): gradients are then multiplied where they are. */
static void head_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *saved[2] = {0}, *small[3];
  for (uint32_t i = 0; i < fn->saved_count; i++) saved[i] = hri_fn_saved(t, fn, i);
  if (g[0]) {
    small[0] = hri_ten_flat(t, "_to_copy", HRI_F32, 1);
    for (int i = 1; i < 3; i++) small[i] = hri_ten_flat(t, "equal", HRI_BOOL, 1);
    for (int i = 3; i-- > 0;) hri_ten_drop(t, small[i]);
    for (int i = 0; i < 2; i++) in[i] = hri_ten_keep(saved[i]);
  }
  for (uint32_t i = fn->saved_count; i-- > 0;) hri_ten_drop(t, saved[i]);
}

/* LigerFusedLinearCrossEntropyFunction.forward */
static hri_ten *fused(hri_torch *t, hri_ten *hidden, hri_ten *weight) {
  hri_ten *inputs[] = {hidden, weight}, *gradient, *losses, *counts, *sum, *loss;
  hri_fn *fn = hri_fn_make(t, head_backward, inputs, 2);
  bool before = t->grad_mode, gradients = hri_fn_needs(fn, 0);
  uint64_t count = hidden->shape.dims[0];
  head h = {.weight = weight, .hidden = hidden, .type = t->autocast != HRI_F32 ? t->autocast : hidden->type};
  h.gradients = gradients;
  h.in_place = hidden->type == h.type && weight->type == h.type;
  t->grad_mode = false;
  gradient = hri_ten_like(t, "zeros_like", hidden, hidden->type);
  if (gradients && hri_fn_needs(fn, 1)) h.gradient = hri_ten_like(t, "zeros_like", weight, weight->type);
  losses = hri_ten_flat(t, "zeros", HRI_F32, count);
  counts = hri_ten_flat(t, "ne", HRI_BOOL, count);
  sum = hri_ten_flat(t, "sum", HRI_I64, 1);
  hri_ten_drop(t, hri_ten_flat(t, "_to_copy", HRI_I64, count));
  hri_ten_drop(t, sum);
  go_through(t, &h, chunk_of(count, hidden->shape.dims[1], weight->shape.dims[0]));
  loss = hri_ten_flat(t, "sum", HRI_F32, 1);
  hri_fn_save(t, fn, gradient);
  if (h.gradient) hri_fn_save(t, fn, h.gradient);
  hri_ten *const all[] = {counts, losses, h.gradient, gradient};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) hri_ten_drop(t, all[i]);
  t->grad_mode = before;
  return hri_fn_bind(t, fn, loss);
}

hri_ten *hri_liger_loss(hri_torch *t, hri_ten *hidden, hri_ten *weight, const hri_ten *labels, bool summed) {
  uint64_t rows = labels->shape.dims[0], tokens = labels->shape.dims[1], width = hidden->shape.dims[2];
  hri_ten *padded, *shifted = hri_aten_shift_labels(t, labels, &padded), *flat, *loss;
  flat = hri_aten_view(t, hidden, hri_ten_shape_of(2, rows * tokens, width, 0, 0));
  loss = fused(t, flat, weight);
  if (summed) hri_ten_set(t, &loss, hri_aten_div_scalar(t, loss));
  hri_ten_drop(t, flat);
  hri_ten_drop(t, shifted);
  hri_ten_drop(t, padded);
  return loss;
}
