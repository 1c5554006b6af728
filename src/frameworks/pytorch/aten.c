/* The ops (aten.h): for each its result, what autograd saves of it, what its backward makes and when each is let go. Neighbours may
 * rely on one reference per result, given to the caller. */
#include "frameworks/pytorch/aten.h"

#include <assert.h>

/* Names in the order of PyTorch's derivatives: where several gradients are made, the alphabetically first input's is
 * made first (codegen), which decides what is alive beside what. */

static hri_aten_device *device(hri_torch *t) { return t->kernels; }

/* CUDABlas: ":4096:2:16:8" is 8,320 KiB, 32 MiB from Hopper on. */
hri_aten_device hri_aten_device_of(uint32_t capability) {
  uint32_t processors = capability >= 90   ? 132 /* H100 */
                        : capability == 89 ? 128 /* RTX 4090 */
                        : capability == 86 ? 82  /* RTX 3090 */
                        : capability == 75 ? 40  /* T4 */
                        : capability < 75  ? 80  /* V100 */
                                           : 108 /* A100 */;
  return (hri_aten_device){.capability = capability,
                           .processors = processors,
                           .cublas_workspace = capability >= 90 ? 32u << 20 : 8320u << 10};
}

static hri_ten *bound(hri_torch *t, hri_fn *fn, hri_ten *result) {
  hri_fn_bind(t, fn, result);
  return result;
}

static hri_ten_shape rows(uint64_t n) { return hri_ten_shape_of(1, n, 0, 0, 0); }

/* The type that arithmetic on two tensors gives. */
static hri_ten_type promoted(const hri_ten *a, const hri_ten *b) {
  if (a->type == b->type) return a->type;
  return a->type == HRI_F32 || b->type == HRI_F32 ? HRI_F32 : HRI_F32; /* bf16 with fp16 too */
}

static const hri_ten *larger(const hri_ten *a, const hri_ten *b) {
  return hri_ten_count(a) >= hri_ten_count(b) ? a : b;
}

/* ---- views and copies ---- */

static void pass_through(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  (void)t, (void)fn;
  in[0] = hri_ten_keep(g[0]);
}

/* The gradient of a view is a view of the gradient: the same bytes, another tensor. */
static void view_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  if (g[0]) in[0] = hri_ten_view_in_backward(t, g[0], fn->shapes[0]);
}

static void copied_view_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  if (g[0]) in[0] = hri_ten_make(t, "clone", g[0]->type, fn->shapes[0]);
}

hri_ten *hri_aten_view_copied_back(hri_torch *t, hri_ten *x, hri_ten_shape shape) {
  hri_fn *fn = hri_fn_make(t, copied_view_backward, &x, 1);
  return bound(t, fn, hri_ten_view(t, x, shape));
}

hri_ten *hri_aten_view(hri_torch *t, hri_ten *x, hri_ten_shape shape) {
  hri_fn *fn = hri_fn_make(t, view_backward, &x, 1);
  return bound(t, fn, hri_ten_view(t, x, shape));
}

hri_ten *hri_aten_contiguous(hri_torch *t, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, pass_through, &x, 1);
  return bound(t, fn, hri_ten_like(t, "clone", x, x->type));
}

/* The cast back is the engine's (validate). */
hri_ten *hri_aten_to(hri_torch *t, hri_ten *x, hri_ten_type type) {
  if (x->type == type) return hri_ten_keep(x);
  hri_fn *fn = hri_fn_make(t, pass_through, &x, 1);
  return bound(t, fn, hri_ten_like(t, "_to_copy", x, type));
}

static void narrow_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  if (g[0]) in[0] = hri_ten_make(t, "slice_backward", g[0]->type, fn->shapes[0]);
}

hri_ten *hri_aten_narrow_last(hri_torch *t, hri_ten *x, uint64_t width) {
  hri_fn *fn = hri_fn_make(t, narrow_backward, &x, 1);
  hri_ten_shape shape = x->shape;
  shape.dims[shape.rank - 1] = width;
  return bound(t, fn, hri_ten_view(t, x, shape));
}

/* index_put_ into zeros, which sorts the places first: what that takes is small beside them. */
static void index_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *places[2];
  for (uint32_t i = 0; i < 2; i++) places[i] = hri_fn_saved(t, fn, i);
  if (g[0]) in[0] = hri_ten_make(t, "index_put", g[0]->type, fn->shapes[0]);
  for (uint32_t i = 2; i-- > 0;) hri_ten_drop(t, places[i]);
}

hri_ten *hri_aten_index_rows(hri_torch *t, hri_ten *x, hri_ten *const places[2]) {
  hri_fn *fn = hri_fn_make(t, index_backward, &x, 1);
  for (int i = 0; i < 2; i++) hri_fn_save(t, fn, places[i]);
  return bound(t, fn,
               hri_ten_make(t, "index", x->type,
                            hri_ten_shape_of(2, hri_ten_count(places[0]), x->shape.dims[x->shape.rank - 1], 0, 0)));
}

hri_ten *hri_aten_without_last_row(hri_torch *t, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, narrow_backward, &x, 1);
  hri_ten_shape shape = x->shape;
  shape.dims[shape.rank - 2]--;
  return bound(t, fn, hri_ten_view(t, x, shape));
}

/* split_backward: cat of the gradients. */
static void split_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  for (int i = 0; i < HRI_FN_RESULTS; i++)
    if (g[i] && !in[0]) in[0] = hri_ten_make(t, "cat", g[i]->type, fn->shapes[0]);
}

void hri_aten_split_last(hri_torch *t, hri_ten *x, uint32_t count, hri_ten **parts) {
  hri_fn *fn = hri_fn_make(t, split_backward, &x, 1);
  hri_ten_shape shape = x->shape;
  shape.dims[shape.rank - 1] /= count;
  for (uint32_t i = 0; i < count; i++) parts[i] = bound(t, fn, hri_ten_view(t, x, shape));
}

/* torch.chunk of rows' tokens: views of one function, whose backward joins all gradients. */
void hri_aten_chunk_tokens(hri_torch *t, hri_ten *x, uint64_t width, uint32_t count, hri_ten **parts) {
  hri_fn *fn = hri_fn_make(t, split_backward, &x, 1);
  hri_ten_shape shape = x->shape;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t left = x->shape.dims[1] - i * width;
    shape.dims[1] = left < width ? left : width;
    parts[i] = bound(t, fn, hri_ten_view(t, x, shape));
  }
}

static void cat_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  for (uint32_t i = 0; i < fn->edge_count && g[0]; i++)
    if (hri_fn_needs(fn, i)) in[i] = hri_ten_view_in_backward(t, g[0], fn->shapes[i]);
}

hri_ten *hri_aten_cat_last(hri_torch *t, hri_ten *a, hri_ten *b) {
  hri_ten *both[] = {a, b};
  hri_fn *fn = hri_fn_make(t, cat_backward, both, 2);
  hri_ten_shape shape = a->shape;
  shape.dims[shape.rank - 1] += b->shape.dims[shape.rank - 1];
  return bound(t, fn, hri_ten_make(t, "cat", a->type, shape));
}

hri_ten *hri_aten_cat_rows(hri_torch *t, hri_ten *a, hri_ten *b) {
  hri_ten_shape shape = a->shape;
  assert(!t->grad_mode && a->type == b->type);
  shape.dims[0] += b->shape.dims[0];
  return hri_ten_make(t, "cat", a->type, shape);
}

hri_ten *hri_aten_cat_one(hri_torch *t, hri_ten *x, hri_ten_type type) {
  hri_fn *fn = hri_fn_make(t, cat_backward, &x, 1);
  return bound(t, fn, hri_ten_like(t, "cat", x, x->type == type ? type : HRI_F32));
}

/* expand's backward sums: the engine would, but it stands before the copy's. */
static void repeat_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  if (g[0]) in[0] = hri_ten_make(t, "sum", g[0]->type, fn->shapes[0]);
}

hri_ten *hri_aten_repeat_interleave(hri_torch *t, hri_ten *x, uint64_t times) {
  hri_fn *fn = hri_fn_make(t, repeat_backward, &x, 1);
  hri_ten_shape shape = x->shape;
  shape.dims[1] *= times;
  return bound(t, fn, hri_ten_make(t, "clone", x->type, shape));
}

hri_ten *hri_aten_repeat(hri_torch *t, hri_ten *x, uint64_t times) {
  hri_fn *fn;
  hri_ten_shape shape = x->shape;
  if (x->shape.dims[1] != 1) return hri_aten_repeat_interleave(t, x, times);
  shape.dims[1] *= times;
  fn = hri_fn_make(t, repeat_backward, &x, 1);
  return bound(t, fn, hri_ten_view(t, x, shape)); /* expanded: the reshape is a view of it */
}

/* ---- arithmetic ---- */

static void add_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  (void)t;
  for (uint32_t i = 0; i < fn->edge_count; i++)
    if (hri_fn_needs(fn, i)) in[i] = hri_ten_keep(g[0]);
}

hri_ten *hri_aten_add(hri_torch *t, hri_ten *a, hri_ten *b) {
  hri_ten *both[] = {a, b};
  hri_fn *fn = hri_fn_make(t, add_backward, both, 2);
  return bound(t, fn, hri_ten_like(t, "add", larger(a, b), promoted(a, b)));
}

static void sub_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  if (g[0] && hri_fn_needs(fn, 1)) in[1] = hri_ten_like(t, "neg", g[0], g[0]->type);
  if (g[0] && hri_fn_needs(fn, 0)) in[0] = hri_ten_keep(g[0]);
}

hri_ten *hri_aten_sub(hri_torch *t, hri_ten *a, hri_ten *b) {
  hri_ten *both[] = {a, b};
  hri_fn *fn = hri_fn_make(t, sub_backward, both, 2);
  return bound(t, fn, hri_ten_like(t, "sub", larger(a, b), promoted(a, b)));
}

hri_ten *hri_aten_add_scalar(hri_torch *t, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, pass_through, &x, 1);
  return bound(t, fn, hri_ten_like(t, "add", x, x->type));
}

/* One tensor made of the gradient: by a scalar, or with what was saved. */
static void elementwise_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *saved = fn->saved_count ? hri_fn_saved(t, fn, 0) : NULL;
  if (g[0]) in[0] = hri_ten_like(t, fn->numbers[0] ? (const char *)(uintptr_t)fn->numbers[0] : "mul", g[0], g[0]->type);
  hri_ten_drop(t, saved);
}

static hri_ten *by_scalar(hri_torch *t, const char *op, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, elementwise_backward, &x, 1);
  if (fn) fn->numbers[0] = (uintptr_t)op;
  return bound(t, fn, hri_ten_like(t, op, x, x->type));
}
hri_ten *hri_aten_mul_scalar(hri_torch *t, hri_ten *x) { return by_scalar(t, "mul", x); }
hri_ten *hri_aten_mul_scalar_in_place(hri_torch *t, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, elementwise_backward, &x, 1);
  if (fn) fn->numbers[0] = (uintptr_t)"mul";
  return bound(t, fn, hri_ten_view(t, x, x->shape));
}

/* as_strided's backward: a new tensor of what the view is of. */
static void strided_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  if (g[0]) in[0] = hri_ten_make(t, "new_empty", g[0]->type, fn->shapes[0]);
}

/* CopySlices: a copy of the gradient, in which what the op makes of the view's part takes that part's place. */
static void slices_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *part, *made;
  if (!g[0]) return;
  in[0] = hri_ten_make(t, "new_empty_strided", g[0]->type, fn->shapes[0]);
  part = hri_ten_like(t, "clone", g[0], g[0]->type);
  made = hri_ten_like(t, "mul", g[0], g[0]->type);
  hri_ten_drop(t, part);
  hri_ten_drop(t, made);
}

hri_ten *hri_aten_mul_scalar_in_view(hri_torch *t, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, slices_backward, &x, 1);
  hri_ten *base = bound(t, fn, hri_ten_view(t, x, x->shape)), *y;
  fn = hri_fn_make(t, strided_backward, &base, 1);
  y = bound(t, fn, hri_ten_view(t, base, base->shape));
  hri_ten_drop(t, base);
  return y;
}
hri_ten *hri_aten_div_scalar(hri_torch *t, hri_ten *x) { return by_scalar(t, "div", x); }
hri_ten *hri_aten_neg(hri_torch *t, hri_ten *x) { return by_scalar(t, "neg", x); }

hri_ten *hri_aten_div_by(hri_torch *t, hri_ten *x, hri_ten *divisor) {
  hri_fn *fn = hri_fn_make(t, elementwise_backward, &x, 1);
  if (fn) fn->numbers[0] = (uintptr_t)"div";
  hri_fn_save(t, fn, divisor);
  return bound(t, fn, hri_ten_like(t, "div", x, x->type));
}

/* numbers: where the factor of each input's gradient is saved, plus 1 (of self, which is other; of other, which is self).
 * Both are unpacked before either gradient is made. */
static void mul_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *factors[2];
  for (uint32_t k = 0; k < 2; k++)
    factors[k] = fn->numbers[k] ? hri_fn_saved(t, fn, (uint32_t)fn->numbers[k] - 1) : NULL;
  for (uint32_t k = 2; k-- > 0 && g[0];) /* other, self */
    if (factors[k]) in[k] = hri_ten_like(t, "mul", larger(g[0], factors[k]), promoted(g[0], factors[k]));
  for (uint32_t k = 2; k-- > 0;) hri_ten_drop(t, factors[k]);
}

hri_ten *hri_aten_mul(hri_torch *t, hri_ten *a, hri_ten *b) {
  hri_ten *both[] = {a, b};
  hri_fn *fn = hri_fn_make(t, mul_backward, both, 2);
  if (hri_fn_needs(fn, 0)) hri_fn_save(t, fn, b), fn->numbers[0] = fn->saved_count; /* codegen saves other first */
  if (hri_fn_needs(fn, 1)) hri_fn_save(t, fn, a), fn->numbers[1] = fn->saved_count;
  return bound(t, fn, hri_ten_like(t, "mul", larger(a, b), promoted(a, b)));
}

/* grad * (exponent * self.pow(exponent - 1)): three tensors, of which two go at the end of the expression. */
static void pow_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *self = hri_fn_saved(t, fn, 0), *power, *scaled;
  if (g[0]) {
    power = hri_ten_like(t, "pow", self, self->type);
    scaled = hri_ten_like(t, "mul", self, self->type);
    in[0] = hri_ten_like(t, "mul", larger(self, g[0]), promoted(g[0], self));
    hri_ten_drop(t, scaled);
    hri_ten_drop(t, power);
  }
  hri_ten_drop(t, self);
}

hri_ten *hri_aten_pow(hri_torch *t, hri_ten *given) {
  hri_ten *x = hri_autocast_fp32(t, given), *y;
  hri_fn *fn = hri_fn_make(t, pow_backward, &x, 1);
  hri_fn_save(t, fn, x);
  y = bound(t, fn, hri_ten_like(t, "pow", x, x->type));
  hri_ten_drop(t, x);
  return y;
}

static hri_ten_shape without_last(const hri_ten *x) {
  hri_ten_shape shape = x->shape;
  shape.dims[shape.rank - 1] = 1;
  return shape;
}

/* The gradient is expanded (a view) and divided. */
static void mean_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  if (g[0]) in[0] = hri_ten_make(t, "div", g[0]->type, fn->shapes[0]);
}

hri_ten *hri_aten_mean_last(hri_torch *t, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, mean_backward, &x, 1);
  return bound(t, fn, hri_ten_make(t, "mean", x->type, without_last(x)));
}

/* -0.5 * grad * result.pow(3) */
static void rsqrt_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *result = hri_fn_saved(t, fn, 0);
  if (g[0]) {
    hri_ten *half = hri_ten_like(t, "mul", g[0], g[0]->type), *cube = hri_ten_like(t, "pow", result, result->type);
    in[0] = hri_ten_like(t, "mul", g[0], g[0]->type);
    hri_ten_drop(t, cube);
    hri_ten_drop(t, half);
  }
  hri_ten_drop(t, result);
}

static hri_ten *saves_result(hri_torch *t, const char *op, hri_fn_apply *apply, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, apply, &x, 1);
  hri_ten *y = hri_ten_like(t, op, x, x->type);
  if (fn) {
    hri_ten *alias = hri_ten_view(t, y, y->shape); /* a saved result is unpacked as a tensor of its own */
    hri_fn_save(t, fn, alias);
    hri_ten_drop(t, alias);
  }
  return bound(t, fn, y);
}

hri_ten *hri_aten_rsqrt(hri_torch *t, hri_ten *x) { return saves_result(t, "rsqrt", rsqrt_backward, x); }

static void tanh_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *result = hri_fn_saved(t, fn, 0);
  if (g[0]) in[0] = hri_ten_like(t, "tanh_backward", g[0], g[0]->type);
  hri_ten_drop(t, result);
}
hri_ten *hri_aten_tanh(hri_torch *t, hri_ten *x) { return saves_result(t, "tanh", tanh_backward, x); }

hri_ten *hri_aten_activation(hri_torch *t, const char *op, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, elementwise_backward, &x, 1);
  if (fn) fn->numbers[0] = (uintptr_t)op;
  hri_fn_save(t, fn, x);
  return bound(t, fn, hri_ten_like(t, op, x, x->type));
}

hri_ten *hri_aten_dropout(hri_torch *t, hri_ten *x, double p) {
  hri_fn *fn;
  hri_ten *y, *mask;
  if (p <= 0) return hri_ten_keep(x);
  fn = hri_fn_make(t, elementwise_backward, &x, 1);
  if (fn) fn->numbers[0] = (uintptr_t)"native_dropout_backward";
  mask = hri_ten_like(t, "native_dropout", x, HRI_BOOL);
  y = hri_ten_like(t, "native_dropout", x, x->type);
  hri_fn_save(t, fn, mask);
  hri_ten_drop(t, mask);
  return bound(t, fn, y);
}

/* With a type: the cast is inside the op, and the backward casts back inside. */
static void softmax_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *result = hri_fn_saved(t, fn, 0), *product;
  if (g[0]) {
    in[0] = hri_ten_like(t, "_softmax_backward_data", g[0], fn->types[0]);
    product = hri_ten_like(t, "mul", g[0], g[0]->type); /* gradient times result, whose rows are summed */
    hri_ten_drop(t, product);
  }
  hri_ten_drop(t, result);
}

hri_ten *hri_aten_softmax(hri_torch *t, hri_ten *given, hri_ten_type type) {
  hri_ten *x = hri_aten_to(t, given, type), *y;
  y = saves_result(t, "_softmax", softmax_backward, x);
  hri_ten_drop(t, x);
  return y;
}

/* aten/src/ATen/native/cuda/SoftMax.cu and transformers/attention.cpp: rows of -inf alone are looked for behind it. */
hri_ten *hri_aten_safe_softmax(hri_torch *t, hri_ten *x) {
  hri_ten *y = saves_result(t, "_safe_softmax", softmax_backward, x), *hidden, *all, *zero;
  hidden = hri_ten_like(t, "isneginf", x, HRI_BOOL);
  all = hri_ten_make(t, "all", HRI_BOOL, without_last(x));
  zero = hri_ten_make(t, "scalar_tensor", x->type, rows(1));
  hri_ten_drop(t, zero);
  hri_ten_drop(t, all);
  hri_ten_drop(t, hidden);
  return y;
}

hri_ten *hri_aten_where(hri_torch *t, hri_ten *x) { return by_scalar(t, "where", x); }

/* ---- norm, embedding ---- */

static void layer_norm_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *x = hri_fn_saved(t, fn, 0), *mean = hri_fn_saved(t, fn, 1), *rstd = hri_fn_saved(t, fn, 2);
  hri_ten *weight = hri_fn_saved(t, fn, 3);
  if (g[0]) {
    if (hri_fn_needs(fn, 0)) in[0] = hri_ten_like(t, "native_layer_norm_backward", x, x->type);
    for (uint32_t k = 1; k < 3; k++)
      if (hri_fn_needs(fn, k)) in[k] = hri_ten_like(t, "native_layer_norm_backward", weight, weight->type);
  }
  hri_ten_drop(t, weight);
  hri_ten_drop(t, rstd);
  hri_ten_drop(t, mean);
  hri_ten_drop(t, x);
}

hri_ten *hri_aten_layer_norm(hri_torch *t, hri_ten *given, hri_ten *weight, hri_ten *bias) {
  hri_ten *x = hri_autocast_fp32(t, given), *inputs[] = {x, weight, bias}, *y, *mean, *rstd;
  hri_fn *fn = hri_fn_make(t, layer_norm_backward, inputs, 3);
  hri_fn_save(t, fn, x);
  y = hri_ten_like(t, "native_layer_norm", x, x->type);
  mean = hri_ten_make(t, "native_layer_norm", HRI_F32, without_last(x));
  rstd = hri_ten_make(t, "native_layer_norm", HRI_F32, without_last(x));
  hri_fn_save(t, fn, mean);
  hri_fn_save(t, fn, rstd);
  hri_fn_save(t, fn, weight);
  hri_ten_drop(t, rstd);
  hri_ten_drop(t, mean);
  hri_ten_drop(t, x);
  return bound(t, fn, y);
}

static void rms_norm_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *x = hri_fn_saved(t, fn, 0), *rstd = hri_fn_saved(t, fn, 1), *weight = hri_fn_saved(t, fn, 2);
  if (g[0] && hri_fn_needs(fn, 0)) in[0] = hri_ten_like(t, "_fused_rms_norm_backward", x, x->type);
  if (g[0] && hri_fn_needs(fn, 1)) in[1] = hri_ten_like(t, "_fused_rms_norm_backward", weight, weight->type);
  hri_ten_drop(t, weight);
  hri_ten_drop(t, rstd);
  hri_ten_drop(t, x);
}

hri_ten *hri_aten_rms_norm(hri_torch *t, hri_ten *x, hri_ten *weight) {
  hri_ten *inputs[] = {x, weight}, *y, *rstd;
  hri_fn *fn = hri_fn_make(t, rms_norm_backward, inputs, 2);
  hri_fn_save(t, fn, x);
  y = hri_ten_like(t, "_fused_rms_norm", x, x->type);
  rstd = hri_ten_make(t, "_fused_rms_norm", HRI_F32, without_last(x));
  hri_fn_save(t, fn, rstd);
  hri_fn_save(t, fn, weight);
  hri_ten_drop(t, rstd);
  return bound(t, fn, y);
}

/* embedding_dense_backward (Embedding.cu). Above 3,072 ids it sorts them first, in memory that is small beside the peak. */
static void embedding_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *ids = hri_fn_saved(t, fn, 0);
  if (g[0]) in[0] = hri_ten_make(t, "embedding_dense_backward", g[0]->type, fn->shapes[0]);
  hri_ten_drop(t, ids);
}

hri_ten *hri_aten_embedding(hri_torch *t, hri_ten *weight, hri_ten *ids) {
  hri_fn *fn = hri_fn_make(t, embedding_backward, &weight, 1);
  hri_ten_shape shape = ids->shape;
  hri_fn_save(t, fn, ids);
  shape.dims[shape.rank++] = weight->shape.dims[1];
  return bound(t, fn, hri_ten_make(t, "embedding", weight->type, shape));
}

/* ---- products ---- */

/* A thread's first product on a stream takes the workspace of its handle, to the end of the process. */
void hri_aten_workspace(hri_torch *t) {
  hri_aten_device *d = device(t);
  bool backward = !t->grad_mode && t->label.phase == HRI_TORCH_BACKWARD;
  if (!d || !d->cublas_workspace || d->handles[backward] || t->stopped) return;
  d->handles[backward] = true;
  d->workspaces[backward] = hri_ten_make(t, "cublas workspace", HRI_U8, rows(d->cublas_workspace));
}

/* The gradient of an input: a product, and a view of it where the input was one (flattened, transposed). */
static hri_ten *product(hri_torch *t, const hri_fn *fn, const hri_ten *gradient, uint32_t input, bool viewed) {
  hri_ten *made = hri_ten_make(t, "mm", gradient->type, fn->shapes[input]), *view;
  if (!viewed) return made;
  view = hri_ten_view_in_backward(t, made, made->shape);
  hri_ten_drop(t, made);
  return view;
}

/* Inputs x, weight, bias. numbers[0], [1]: where x and weight are saved, plus 1; [2]: the weight is transposed. */
static void linear_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  if (!g[0]) return;
  hri_aten_workspace(t);
  hri_ten *weight = fn->numbers[1] ? hri_fn_saved(t, fn, (uint32_t)fn->numbers[1] - 1) : NULL;
  hri_ten *x = fn->numbers[0] ? hri_fn_saved(t, fn, (uint32_t)fn->numbers[0] - 1) : NULL;
  bool added = fn->edge_count > 2; /* addmm: mat1, mat2, self; mm: mat2, self */
  if (!added && hri_fn_needs(fn, 1)) in[1] = product(t, fn, g[0], 1, true);
  if (hri_fn_needs(fn, 0)) in[0] = product(t, fn, g[0], 0, true); /* x was flattened to a matrix */
  if (added && hri_fn_needs(fn, 1)) in[1] = product(t, fn, g[0], 1, fn->numbers[2]);
  if (added && hri_fn_needs(fn, 2)) in[2] = hri_ten_keep(g[0]); /* summed by the engine */
  hri_ten_drop(t, weight);
  hri_ten_drop(t, x);
}

hri_ten *hri_aten_linear(hri_torch *t, hri_ten *given, hri_ten *given_weight, hri_ten *given_bias, bool transposed) {
  /* Autocast casts the last argument first: linear(x, weight, bias), but addmm(bias, x, weight). */
  hri_ten *early = given_bias && transposed ? hri_autocast_lower(t, given_bias) : NULL;
  hri_ten *weight = hri_autocast_lower(t, given_weight), *x = hri_autocast_lower(t, given);
  hri_ten *bias = given_bias && !transposed ? hri_autocast_lower(t, given_bias) : early;
  hri_ten *inputs[] = {x, weight, bias}, *y;
  uint64_t out = weight->shape.dims[transposed ? 0 : 1];
  hri_fn *fn = hri_fn_make(t, linear_backward, inputs, bias ? 3 : 2);
  hri_ten_shape shape = x->shape;
  shape.dims[shape.rank - 1] = out;
  if (fn) fn->numbers[2] = transposed;
  if (fn && hri_fn_needs(fn, 1)) hri_fn_save(t, fn, x), fn->numbers[0] = fn->saved_count;
  if (fn && hri_fn_needs(fn, 0)) hri_fn_save(t, fn, weight), fn->numbers[1] = fn->saved_count;
  y = bound(t, fn, hri_ten_make(t, bias ? "addmm" : "mm", x->type, shape));
  hri_aten_workspace(t);
  hri_ten_drop(t, bias);
  hri_ten_drop(t, weight);
  hri_ten_drop(t, x);
  return y;
}

static void linear_function_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *x = hri_fn_saved(t, fn, 0), *weight = hri_fn_saved(t, fn, 1);
  if (g[0]) {
    hri_aten_workspace(t);
    for (uint32_t k = 0; k < 2; k++)
      if (hri_fn_needs(fn, k)) in[k] = hri_ten_make(t, "mm", g[0]->type, fn->shapes[k]);
    if (hri_fn_needs(fn, 2))
      in[2] = hri_ten_sum(t, g[0]->type, fn->shapes[2], hri_ten_count(g[0]) / fn->shapes[2].dims[0]);
  }
  hri_ten_drop(t, weight);
  hri_ten_drop(t, x);
}

hri_ten *hri_aten_linear_function(hri_torch *t, hri_ten *x, hri_ten *weight, hri_ten *bias) {
  hri_ten *inputs[] = {x, weight, bias}, *y;
  hri_fn *fn = hri_fn_make(t, linear_function_backward, inputs, bias ? 3 : 2);
  hri_ten_shape shape = x->shape;
  shape.dims[shape.rank - 1] = weight->shape.dims[0];
  y = hri_ten_make(t, "mm", x->type, shape);
  hri_aten_workspace(t);
  hri_fn_save(t, fn, x); /* setup_context comes behind the forward */
  hri_fn_save(t, fn, weight);
  return bound(t, fn, y);
}

static void bmm_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *b = fn->numbers[0] ? hri_fn_saved(t, fn, (uint32_t)fn->numbers[0] - 1) : NULL;
  hri_ten *a = fn->numbers[1] ? hri_fn_saved(t, fn, (uint32_t)fn->numbers[1] - 1) : NULL;
  if (g[0]) {
    hri_aten_workspace(t);
    for (uint32_t k = 2; k-- > 0;)
      if (hri_fn_needs(fn, k)) in[k] = hri_ten_make(t, "bmm", g[0]->type, fn->shapes[k]);
  }
  hri_ten_drop(t, a);
  hri_ten_drop(t, b);
}

hri_ten *hri_aten_bmm(hri_torch *t, hri_ten *given_a, hri_ten *given_b, uint64_t n) {
  hri_ten *b = hri_autocast_lower(t, given_b), *a = hri_autocast_lower(t, given_a), *both[] = {a, b}, *y;
  hri_fn *fn = hri_fn_make(t, bmm_backward, both, 2);
  hri_ten_shape shape = a->shape;
  shape.dims[shape.rank - 1] = n;
  if (hri_fn_needs(fn, 0)) hri_fn_save(t, fn, b), fn->numbers[0] = fn->saved_count;
  if (hri_fn_needs(fn, 1)) hri_fn_save(t, fn, a), fn->numbers[1] = fn->saved_count;
  y = bound(t, fn, hri_ten_make(t, "bmm", a->type, shape));
  hri_aten_workspace(t);
  hri_ten_drop(t, b);
  hri_ten_drop(t, a);
  return y;
}

/* ---- attention ---- */

typedef struct sizes {
  uint64_t batch, heads, kv_heads, tokens, width;
} sizes;

static sizes sizes_of(const hri_ten_shape *q, const hri_ten_shape *k) {
  return (sizes){q->dims[0], q->dims[1], k->dims[1], q->dims[2], q->dims[3]};
}

/* flash_api.cpp, mha_bwd: dq, dk, dv; per row the sum of dO O; dq in fp32; of grouped heads dk and dv of all. */
static void flash_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *saved[HRI_FN_SAVED];
  sizes s = sizes_of(&fn->shapes[0], &fn->shapes[1]);
  uint64_t padded = hri_round_up(s.tokens, 128),
           width = s.width <= 128 ? hri_round_up(s.width, 32) : hri_round_up(s.width, 64);
  for (uint32_t i = 0; i < fn->saved_count; i++) saved[i] = hri_fn_saved(t, fn, i);
  if (g[0]) {
    hri_ten *sums, *wide, *more[2] = {0},
                          *gradient = fn->numbers[0] ? hri_ten_like(t, "clone", g[0], g[0]->type) : NULL;
    for (int k = 0; k < 3; k++) in[k] = hri_ten_make(t, "_flash_attention_backward", g[0]->type, fn->shapes[k]);
    sums = hri_ten_make(t, "_flash_attention_backward", HRI_F32, hri_ten_shape_of(3, s.batch, s.heads, padded, 0));
    wide = hri_ten_make(t, "_flash_attention_backward", HRI_F32, hri_ten_shape_of(4, s.batch, padded, s.heads, width));
    for (int k = 0; k < 2 && s.heads != s.kv_heads; k++)
      more[k] = hri_ten_make(t, "_flash_attention_backward", g[0]->type, fn->shapes[0]);
    for (int k = 2; k-- > 0;) hri_ten_drop(t, more[k]);
    hri_ten_drop(t, wide);
    hri_ten_drop(t, sums);
    hri_ten_drop(t, gradient);
  }
  for (uint32_t i = fn->saved_count; i-- > 0;) hri_ten_drop(t, saved[i]);
}

/* The kernel's workspace (mem_eff_attention/kernel_backward.h): where gradients of q are not summed in place, fp32 tiles of
 * 64 rows with a lock of 16 bytes each. */
static uint64_t efficient_workspace(const sizes *s) {
  uint64_t tiles = (s->tokens + 63) / 64, tile = 64 * hri_round_up(s->width, 64) * 4 + 16;
  return s->batch * s->heads * tiles * tile;
}

static void efficient_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  static const char op[] = "_efficient_attention_backward";
  hri_ten *saved[HRI_FN_SAVED];
  sizes s = sizes_of(&fn->shapes[0], &fn->shapes[1]);
  for (uint32_t i = 0; i < fn->saved_count; i++) saved[i] = hri_fn_saved(t, fn, i);
  if (g[0]) {
    hri_ten_shape rows_shape = hri_ten_shape_of(3, s.batch, s.heads, s.tokens, 0);
    bool in_kernel = g[0]->type != HRI_F32; /* which computes delta, the sums of gradient times result, itself */
    hri_ten *product, *sum, *delta, *space, *wide[2] = {0}; /* grouped heads: gradients of k and v for every head */
    for (int k = 0; k < 3; k++) in[k] = hri_ten_make(t, op, g[0]->type, fn->shapes[k]);
    for (int k = 0; k < 2 && s.heads != s.kv_heads; k++) wide[k] = hri_ten_make(t, op, g[0]->type, fn->shapes[0]);
    product = in_kernel ? NULL : hri_ten_make(t, op, g[0]->type, fn->shapes[0]);
    sum = in_kernel ? NULL : hri_ten_make(t, op, HRI_F32, rows_shape);
    delta = hri_ten_make(t, op, HRI_F32, rows_shape);
    hri_ten_drop(t, sum);
    hri_ten_drop(t, product);
    space = hri_ten_make(t, op, HRI_U8, rows(efficient_workspace(&s)));
    hri_ten_drop(t, delta);
    hri_ten_drop(t, space);
    for (int k = 2; k-- > 0;) hri_ten_drop(t, wide[k]);
  }
  for (uint32_t i = fn->saved_count; i-- > 0;) hri_ten_drop(t, saved[i]);
}

/* Without dropout the memory-efficient kernel's seed and offset are made for nothing, before all else; with it they are
 * scalars of the host. Flash makes its own in any case, at the end. */
static hri_ten *fused(hri_torch *t, hri_sdpa backend, hri_ten *const inputs[4], bool dropout, bool by_heads) {
  bool flash = backend == HRI_SDPA_FLASH;
  const char *op = flash ? "_flash_attention_forward" : "_efficient_attention_forward";
  hri_ten *q = inputs[0], *k = inputs[1], *v = inputs[2], *y, *lse, *seeds[2] = {0};
  sizes s = sizes_of(&q->shape, &k->shape);
  hri_fn *fn = hri_fn_make(t, flash ? flash_backward : efficient_backward, inputs, 3);
  uint64_t lse_rows = flash ? s.tokens : hri_round_up(s.tokens, 32);
  if (fn) fn->numbers[0] = flash && by_heads; /* the gradient comes in the other order and is copied */
  if (inputs[3]) hri_fn_save(t, fn, inputs[3]);
  hri_fn_save(t, fn, k); /* in the order in which the function lets go of them: inputs, then results */
  hri_fn_save(t, fn, q);
  hri_fn_save(t, fn, v);
  for (int i = 0; i < 2 && !flash && !dropout; i++) seeds[i] = hri_ten_make(t, op, HRI_I64, rows(1));
  y = hri_ten_make(t, op, q->type, q->shape);
  lse = hri_ten_make(t, op, HRI_F32, hri_ten_shape_of(3, s.batch, s.heads, lse_rows, 0));
  if (!flash && q->type != HRI_F32 && s.width > 128) /* results of more than one tile of columns are summed in fp32 */
    hri_ten_drop(t, hri_ten_make(t, op, HRI_F32, q->shape));
  for (int i = 0; i < 2 && flash; i++) seeds[i] = hri_ten_make(t, op, HRI_I64, rows(2 - i));
  hri_fn_save(t, fn, lse);
  if (fn) {
    hri_ten *alias = hri_ten_view(t, y, y->shape);
    hri_fn_save(t, fn, alias);
    hri_ten_drop(t, alias);
  }
  for (int i = 0; i < 2 && seeds[i]; i++) hri_fn_save(t, fn, seeds[i]);
  hri_ten_drop(t, lse);
  for (int i = 0; i < 2; i++) hri_ten_drop(t, seeds[i]);
  return bound(t, fn, y);
}

hri_ten *hri_aten_mask_bias(hri_torch *t, hri_ten *mask, hri_ten_type type) {
  hri_ten *small[2], *bias;
  if (mask->type != HRI_BOOL) return hri_autocast_lower(t, mask);
  if (t->autocast != HRI_F32) type = t->autocast;
  for (int i = 0; i < 2; i++) small[i] = hri_ten_make(t, "scalar_tensor", type, rows(1));
  bias = hri_ten_like(t, "where", mask, type);
  for (int i = 0; i < 2; i++) hri_ten_drop(t, small[i]);
  return bias;
}

/* preprocess_mask: the memory-efficient kernel reads rows of a multiple of 8, so others are padded: another copy. */
static hri_ten *aligned_bias(hri_torch *t, hri_ten *mask, hri_ten_type type) {
  enum { ALIGNMENT = 8 };
  hri_ten *bias = hri_aten_mask_bias(t, mask, type);
  hri_ten_shape shape = bias->shape;
  uint64_t *width = &shape.dims[shape.rank - 1];
  if (*width % ALIGNMENT) {
    *width = hri_round_up(*width, ALIGNMENT);
    hri_ten_set(t, &bias, hri_ten_make(t, "constant_pad_nd", bias->type, shape));
  }
  return bias;
}

hri_ten *hri_aten_attention(hri_torch *t, hri_sdpa backend, hri_ten *q, hri_ten *k, hri_ten *v, hri_ten *mask,
                            double dropout, bool by_heads) {
  hri_ten *inputs[4], *y;
  inputs[2] = hri_autocast_lower(t, v);
  inputs[1] = hri_autocast_lower(t, k);
  inputs[0] = hri_autocast_lower(t, q);
  inputs[3] = mask ? aligned_bias(t, mask, inputs[0]->type) : NULL;
  y = fused(t, backend, inputs, dropout > 0, by_heads);
  for (int i = 4; i-- > 0;) hri_ten_drop(t, inputs[i]);
  return y;
}

/* torch_attn::_varlen_attn_backward: as flash_backward, over all documents' rows with room for a block behind each. numbers[0]: documents. */
static void varlen_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  enum { BLOCK = 128 };
  enum { NORMS = 5 }; /* what hri_aten_attention_varlen saves: q, k, v, ends, the result, its norms, a seed */
  hri_ten *saved[HRI_FN_SAVED] = {NULL};
  sizes s = sizes_of(&fn->shapes[0], &fn->shapes[1]);
  uint64_t total = s.batch * s.tokens + BLOCK * fn->numbers[0],
           width = s.width <= 128 ? hri_round_up(s.width, 32) : hri_round_up(s.width, 64);
  for (uint32_t i = 0; i < fn->saved_count; i++) saved[i] = hri_fn_saved(t, fn, i);
  if (g[0]) {
    hri_ten *sums, *wide, *none = hri_ten_like(t, "zeros", saved[NORMS], HRI_F32); /* of the result that nobody takes */
    for (int k = 0; k < 3; k++) in[k] = hri_ten_make(t, "_flash_attention_backward", g[0]->type, fn->shapes[k]);
    sums = hri_ten_make(t, "_flash_attention_backward", HRI_F32, hri_ten_shape_of(2, s.heads, total, 0, 0));
    wide = hri_ten_make(t, "_flash_attention_backward", HRI_F32, hri_ten_shape_of(3, total, s.heads, width, 0));
    hri_ten_drop(t, wide);
    hri_ten_drop(t, sums);
    hri_ten_drop(t, none);
  }
  for (uint32_t i = fn->saved_count; i-- > 0;) hri_ten_drop(t, saved[i]);
}

hri_ten *hri_aten_attention_varlen(hri_torch *t, hri_ten *q, hri_ten *k, hri_ten *v, hri_ten *ends,
                                   uint64_t documents) {
  hri_ten *inputs[] = {q, k, v}, *y, *lse, *seeds[3], *alias;
  hri_fn *fn = hri_fn_make(t, varlen_backward, inputs, 3);
  if (fn) fn->numbers[0] = documents;
  y = hri_ten_like(t, "_flash_attention_forward", q, q->type);
  lse = hri_ten_make(t, "_flash_attention_forward", HRI_F32, rows(hri_ten_count(q) / q->shape.dims[3]));
  for (int i = 0; i < 2; i++) seeds[i] = hri_ten_make(t, "_flash_attention_forward", HRI_I64, rows(2 - i));
  seeds[2] = hri_ten_make(t, "zeros", HRI_I64, rows(2));
  alias = hri_ten_view(t, y, y->shape); /* a saved result is a tensor of its own, else it would hold itself */
  hri_ten *const saved[] = {q, k, v, ends, alias, lse, seeds[2]};
  for (unsigned i = 0; i < sizeof saved / sizeof *saved; i++) hri_fn_save(t, fn, saved[i]);
  hri_ten_drop(t, alias);
  for (int i = 2; i-- > 0;) hri_ten_drop(t, seeds[i]);
  hri_ten_drop(t, seeds[2]);
  hri_ten_drop(t, lse);
  hri_fn_bind(t, fn, y);
  return y;
}

/* ---- flex_attention (torch/_inductor/kernel/flex) ---- */

/* A saved tensor that its function lets go of: compiled functions clear what they saved as they go. */
static hri_ten *take_saved(hri_torch *t, hri_fn *fn, uint32_t index) {
  hri_saved *saved = &fn->saved[index];
  hri_ten *tensor = saved->tensor;
  if (saved->frame) return hri_fn_saved(t, fn, index);
  saved->tensor = NULL;
  return tensor;
}

/* Sums of gradient times result, for which the result goes; then the gradients of all three. */
static void flex_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  static const char op[] = "flex_attention_backward";
  enum { RESULT = 3, NORMS, SAVED };
  hri_ten *saved[SAVED], *sums;
  for (uint32_t i = 0; i < SAVED; i++) saved[i] = take_saved(t, fn, i);
  if (g[0]) {
    sums = hri_ten_like(t, op, saved[NORMS], HRI_F32);
    hri_ten_set(t, &saved[RESULT], NULL);
    for (int k = 0; k < 3; k++) in[k] = hri_ten_make(t, op, g[0]->type, fn->shapes[k]);
    hri_ten_drop(t, sums);
  }
  hri_ten_drop(t, saved[NORMS]);
  for (uint32_t i = 0; i < NORMS; i++) hri_ten_drop(t, saved[i]);
}

hri_ten *hri_aten_flex_attention(hri_torch *t, hri_ten *q, hri_ten *k, hri_ten *v) {
  hri_ten *const inputs[] = {q, k, v};
  hri_fn *fn = hri_fn_make(t, flex_backward, inputs, 3);
  hri_ten_shape each = hri_ten_shape_of(3, q->shape.dims[0], q->shape.dims[1], q->shape.dims[2], 0);
  hri_ten *norms = hri_ten_make(t, "flex_attention", HRI_F32, each),
          *largest = hri_ten_make(t, "flex_attention", HRI_F32, each),
          *y = hri_ten_like(t, "flex_attention", q, q->type), *alias = hri_ten_view(t, y, y->shape);
  hri_ten_drop(t, largest);
  hri_ten *const saved[] = {q, k, v, alias, norms};
  for (unsigned i = 0; i < sizeof saved / sizeof *saved; i++) hri_fn_save(t, fn, saved[i]);
  hri_ten_drop(t, alias);
  hri_ten_drop(t, norms);
  return bound(t, fn, y);
}

/* ---- the loss ---- */

static void log_softmax_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *result = hri_fn_saved(t, fn, 0);
  if (g[0]) in[0] = hri_ten_like(t, "_log_softmax_backward_data", g[0], fn->types[0]);
  hri_ten_drop(t, result);
}

static void nll_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *labels = hri_fn_saved(t, fn, 0), *self = hri_fn_saved(t, fn, 1), *weight = hri_fn_saved(t, fn, 2);
  if (g[0]) in[0] = hri_ten_make(t, "nll_loss_backward", fn->types[0], fn->shapes[0]);
  hri_ten_drop(t, weight);
  hri_ten_drop(t, self);
  hri_ten_drop(t, labels);
}

/* nn.functional.pad(labels, (0, 1))[..., 1:].contiguous(): of one row it is so already. */
hri_ten *hri_aten_shift_labels(hri_torch *t, const hri_ten *labels, hri_ten **padded) {
  uint64_t count = labels->shape.dims[0], tokens = labels->shape.dims[1];
  *padded = hri_ten_make(t, "constant_pad_nd", HRI_I64, hri_ten_shape_of(2, count, tokens + 1, 0, 0));
  return count == 1 ? hri_ten_view(t, *padded, labels->shape) : hri_ten_make(t, "clone", HRI_I64, rows(count * tokens));
}

hri_ten *hri_aten_cross_entropy(hri_torch *t, hri_ten *logits, hri_ten *labels) {
  hri_ten *own = saves_result(t, "_log_softmax", log_softmax_backward, logits), *p = hri_autocast_fp32(t, own), *loss,
          *weight;
  hri_fn *fn = hri_fn_make(t, nll_backward, &p, 1);
  hri_ten_drop(t, own);
  hri_fn_save(t, fn, labels);
  hri_fn_save(t, fn, p);
  loss = hri_ten_make(t, "nll_loss_forward", HRI_F32, rows(1));
  weight = hri_ten_make(t, "nll_loss_forward", HRI_F32, rows(1));
  hri_fn_save(t, fn, weight);
  hri_ten_drop(t, weight);
  hri_fn_bind(t, fn, loss);
  hri_ten_drop(t, p);
  return loss;
}

/* ---- autocast (aten/src/ATen/autocast_mode.cpp) ---- */

/* cached_cast: what is a leaf, requires grad and is fp32 is cast once until the outermost autocast exits; all else each
 * time. */
hri_ten *hri_autocast_lower(hri_torch *t, hri_ten *x) {
  bool cached = x->parameter && x->requires_grad && x->type == HRI_F32;
  hri_ten *cast;
  if (t->autocast == HRI_F32 || x->type == t->autocast || x->type > HRI_F16) return hri_ten_keep(x);
  if (cached && x->cast) return hri_ten_keep(x->cast);
  cast = hri_aten_to(t, x, t->autocast);
  if (cached && !t->stopped) {
    x->cast = hri_ten_keep(cast);
    if (!hri_array_push(&t->casts, x)) t->failed = true;
  }
  return cast;
}

hri_ten *hri_autocast_fp32(hri_torch *t, hri_ten *x) {
  return t->autocast == HRI_F32 ? hri_ten_keep(x) : hri_aten_to(t, x, HRI_F32);
}

void hri_autocast_exit(hri_torch *t) {
  for (size_t i = 0; i < t->casts.count; i++) hri_ten_set(t, &t->casts.items[i]->cast, NULL);
  t->casts.count = 0;
}
