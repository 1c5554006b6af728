/* The ops (aten.h): for each its result, what autograd saves of it, what its backward makes and when each is let go. Neighbours may
 * rely on one reference per result, given to the caller.
 *
 * Where several gradients are made, that of the alphabetically first input of PyTorch's derivatives comes first (codegen),
 * which decides what is alive beside what. */
#include "frameworks/pytorch/aten.h"

#include <assert.h>

#include "frameworks/pytorch/autocast.h"
#include "frameworks/pytorch/device.h"

/* The type that arithmetic on two tensors gives. */
static hri_ten_type promoted(const hri_ten *a, const hri_ten *b) {
  return a->type == b->type ? a->type : HRI_F32; /* also of bf16 with fp16 */
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
  return hri_fn_bind(t, fn, hri_ten_view(t, x, shape));
}

hri_ten *hri_aten_view(hri_torch *t, hri_ten *x, hri_ten_shape shape) {
  hri_fn *fn = hri_fn_make(t, view_backward, &x, 1);
  return hri_fn_bind(t, fn, hri_ten_view(t, x, shape));
}

hri_ten *hri_aten_contiguous(hri_torch *t, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, pass_through, &x, 1);
  return hri_fn_bind(t, fn, hri_ten_like(t, "clone", x, x->type));
}

/* The cast back is the engine's (validate). */
hri_ten *hri_aten_to(hri_torch *t, hri_ten *x, hri_ten_type type) {
  if (x->type == type) return hri_ten_keep(x);
  hri_fn *fn = hri_fn_make(t, pass_through, &x, 1);
  return hri_fn_bind(t, fn, hri_ten_like(t, "_to_copy", x, type));
}

static void narrow_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  if (g[0]) in[0] = hri_ten_make(t, "slice_backward", g[0]->type, fn->shapes[0]);
}

hri_ten *hri_aten_narrow_last(hri_torch *t, hri_ten *x, uint64_t width) {
  hri_fn *fn = hri_fn_make(t, narrow_backward, &x, 1);
  hri_ten_shape shape = x->shape;
  shape.dims[shape.rank - 1] = width;
  return hri_fn_bind(t, fn, hri_ten_view(t, x, shape));
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
  return hri_fn_bind(t, fn,
                     hri_ten_make(t, "index", x->type,
                                  hri_ten_shape_of(2, hri_ten_count(places[0]), x->shape.dims[x->shape.rank - 1], 0,
                                                   0)));
}

hri_ten *hri_aten_without_last_row(hri_torch *t, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, narrow_backward, &x, 1);
  hri_ten_shape shape = x->shape;
  shape.dims[shape.rank - 2]--;
  return hri_fn_bind(t, fn, hri_ten_view(t, x, shape));
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
  for (uint32_t i = 0; i < count; i++) parts[i] = hri_fn_bind(t, fn, hri_ten_view(t, x, shape));
}

void hri_aten_chunk_tokens(hri_torch *t, hri_ten *x, uint64_t width, uint32_t count, hri_ten **parts) {
  hri_fn *fn = hri_fn_make(t, split_backward, &x, 1);
  hri_ten_shape shape = x->shape;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t left = x->shape.dims[1] - i * width;
    shape.dims[1] = left < width ? left : width;
    parts[i] = hri_fn_bind(t, fn, hri_ten_view(t, x, shape));
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
  return hri_fn_bind(t, fn, hri_ten_make(t, "cat", a->type, shape));
}

hri_ten *hri_aten_cat_rows(hri_torch *t, hri_ten *a, hri_ten *b) {
  hri_ten_shape shape = a->shape;
  assert(!t->grad_mode && a->type == b->type);
  shape.dims[0] += b->shape.dims[0];
  return hri_ten_make(t, "cat", a->type, shape);
}

hri_ten *hri_aten_cat_one(hri_torch *t, hri_ten *x, hri_ten_type type) {
  hri_fn *fn = hri_fn_make(t, cat_backward, &x, 1);
  return hri_fn_bind(t, fn, hri_ten_like(t, "cat", x, x->type == type ? type : HRI_F32));
}

/* expand's backward sums: the engine would, but it stands before the copy's. */
static void repeat_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  if (g[0]) in[0] = hri_ten_make(t, "sum", g[0]->type, fn->shapes[0]);
}

hri_ten *hri_aten_repeat_interleave(hri_torch *t, hri_ten *x, uint64_t times) {
  hri_fn *fn = hri_fn_make(t, repeat_backward, &x, 1);
  hri_ten_shape shape = x->shape;
  shape.dims[1] *= times;
  return hri_fn_bind(t, fn, hri_ten_make(t, "clone", x->type, shape));
}

hri_ten *hri_aten_repeat(hri_torch *t, hri_ten *x, uint64_t times) {
  hri_fn *fn;
  hri_ten_shape shape = x->shape;
  if (x->shape.dims[1] != 1) return hri_aten_repeat_interleave(t, x, times);
  shape.dims[1] *= times;
  fn = hri_fn_make(t, repeat_backward, &x, 1);
  return hri_fn_bind(t, fn, hri_ten_view(t, x, shape)); /* expanded: the reshape is a view of it */
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
  return hri_fn_bind(t, fn, hri_ten_like(t, "add", larger(a, b), promoted(a, b)));
}

static void sub_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  if (g[0] && hri_fn_needs(fn, 1)) in[1] = hri_ten_like(t, "neg", g[0], g[0]->type);
  if (g[0] && hri_fn_needs(fn, 0)) in[0] = hri_ten_keep(g[0]);
}

hri_ten *hri_aten_sub(hri_torch *t, hri_ten *a, hri_ten *b) {
  hri_ten *both[] = {a, b};
  hri_fn *fn = hri_fn_make(t, sub_backward, both, 2);
  return hri_fn_bind(t, fn, hri_ten_like(t, "sub", larger(a, b), promoted(a, b)));
}

hri_ten *hri_aten_add_scalar(hri_torch *t, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, pass_through, &x, 1);
  return hri_fn_bind(t, fn, hri_ten_like(t, "add", x, x->type));
}

/* One tensor made of the gradient: by a scalar, or with what was saved. numbers[0]: the op, a name. */
static void elementwise_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *saved = fn->saved_count ? hri_fn_saved(t, fn, 0) : NULL;
  if (g[0]) in[0] = hri_ten_like(t, (const char *)(uintptr_t)fn->numbers[0], g[0], g[0]->type);
  hri_ten_drop(t, saved);
}

/* A function of x alone, whose backward is the op `backward`. */
static hri_fn *elementwise(hri_torch *t, const char *backward, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, elementwise_backward, &x, 1);
  if (fn) fn->numbers[0] = (uintptr_t)backward;
  return fn;
}

static hri_ten *by_scalar(hri_torch *t, const char *op, hri_ten *x) {
  hri_fn *fn = elementwise(t, op, x);
  return hri_fn_bind(t, fn, hri_ten_like(t, op, x, x->type));
}

hri_ten *hri_aten_mul_scalar(hri_torch *t, hri_ten *x) { return by_scalar(t, "mul", x); }
hri_ten *hri_aten_div_scalar(hri_torch *t, hri_ten *x) { return by_scalar(t, "div", x); }
hri_ten *hri_aten_neg(hri_torch *t, hri_ten *x) { return by_scalar(t, "neg", x); }
hri_ten *hri_aten_where(hri_torch *t, hri_ten *x) { return by_scalar(t, "where", x); }

hri_ten *hri_aten_mul_scalar_in_place(hri_torch *t, hri_ten *x) {
  hri_fn *fn = elementwise(t, "mul", x);
  return hri_fn_bind(t, fn, hri_ten_view(t, x, x->shape));
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
  hri_ten *base = hri_fn_bind(t, fn, hri_ten_view(t, x, x->shape)), *y;
  fn = hri_fn_make(t, strided_backward, &base, 1);
  y = hri_fn_bind(t, fn, hri_ten_view(t, base, base->shape));
  hri_ten_drop(t, base);
  return y;
}

hri_ten *hri_aten_div_by(hri_torch *t, hri_ten *x, hri_ten *divisor) {
  hri_fn *fn = elementwise(t, "div", x);
  hri_fn_save(t, fn, divisor);
  return hri_fn_bind(t, fn, hri_ten_like(t, "div", x, x->type));
}

/* A product's gradient of one input is made with the other, which is saved only where that gradient is needed. numbers[input]:
 * where it is saved, plus 1; 0: it is not. */
static void save_for(hri_torch *t, hri_fn *fn, uint32_t input, hri_ten *other) {
  if (!fn || !hri_fn_needs(fn, input)) return;
  hri_fn_save(t, fn, other);
  fn->numbers[input] = fn->saved_count;
}

static hri_ten *saved_for(hri_torch *t, hri_fn *fn, uint32_t input) {
  return fn->numbers[input] ? hri_fn_saved(t, fn, (uint32_t)fn->numbers[input] - 1) : NULL;
}

/* Both factors are unpacked before either gradient is made. */
static void mul_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *factors[2];
  for (uint32_t k = 0; k < 2; k++) factors[k] = saved_for(t, fn, k);
  for (uint32_t k = 2; k-- > 0 && g[0];) /* other, self */
    if (factors[k]) in[k] = hri_ten_like(t, "mul", larger(g[0], factors[k]), promoted(g[0], factors[k]));
  for (uint32_t k = 2; k-- > 0;) hri_ten_drop(t, factors[k]);
}

hri_ten *hri_aten_mul(hri_torch *t, hri_ten *a, hri_ten *b) {
  hri_ten *both[] = {a, b};
  hri_fn *fn = hri_fn_make(t, mul_backward, both, 2);
  save_for(t, fn, 0, b); /* codegen saves other first */
  save_for(t, fn, 1, a);
  return hri_fn_bind(t, fn, hri_ten_like(t, "mul", larger(a, b), promoted(a, b)));
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
  y = hri_fn_bind(t, fn, hri_ten_like(t, "pow", x, x->type));
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
  return hri_fn_bind(t, fn, hri_ten_make(t, "mean", x->type, without_last(x)));
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
  hri_fn_save_result(t, fn, y);
  return hri_fn_bind(t, fn, y);
}

hri_ten *hri_aten_rsqrt(hri_torch *t, hri_ten *x) { return saves_result(t, "rsqrt", rsqrt_backward, x); }

static void tanh_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *result = hri_fn_saved(t, fn, 0);
  if (g[0]) in[0] = hri_ten_like(t, "tanh_backward", g[0], g[0]->type);
  hri_ten_drop(t, result);
}
hri_ten *hri_aten_tanh(hri_torch *t, hri_ten *x) { return saves_result(t, "tanh", tanh_backward, x); }

hri_ten *hri_aten_activation(hri_torch *t, const char *op, hri_ten *x) {
  hri_fn *fn = elementwise(t, op, x);
  hri_fn_save(t, fn, x);
  return hri_fn_bind(t, fn, hri_ten_like(t, op, x, x->type));
}

hri_ten *hri_aten_dropout(hri_torch *t, hri_ten *x, double p) {
  hri_fn *fn;
  hri_ten *y, *mask;
  if (p <= 0) return hri_ten_keep(x);
  fn = elementwise(t, "native_dropout_backward", x);
  mask = hri_ten_like(t, "native_dropout", x, HRI_BOOL);
  y = hri_ten_like(t, "native_dropout", x, x->type);
  hri_fn_save(t, fn, mask);
  hri_ten_drop(t, mask);
  return hri_fn_bind(t, fn, y);
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
  zero = hri_ten_flat(t, "scalar_tensor", x->type, 1);
  hri_ten_drop(t, zero);
  hri_ten_drop(t, all);
  hri_ten_drop(t, hidden);
  return y;
}

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
  return hri_fn_bind(t, fn, y);
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
  return hri_fn_bind(t, fn, y);
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
  return hri_fn_bind(t, fn, hri_ten_make(t, "embedding", weight->type, shape));
}

/* ---- products ---- */

/* The gradient of an input: a product, and a view of it where the input was one (flattened, transposed). */
static hri_ten *product(hri_torch *t, const hri_fn *fn, const hri_ten *gradient, uint32_t input, bool viewed) {
  hri_ten *made = hri_ten_make(t, "mm", gradient->type, fn->shapes[input]), *view;
  if (!viewed) return made;
  view = hri_ten_view_in_backward(t, made, made->shape);
  hri_ten_drop(t, made);
  return view;
}

/* Inputs x, weight, bias. numbers[0], [1]: as save_for has them; [2]: the weight is transposed. */
static void linear_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  if (!g[0]) return;
  hri_aten_workspace(t);
  hri_ten *weight = saved_for(t, fn, 0), *x = saved_for(t, fn, 1);
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
  save_for(t, fn, 1, x);
  save_for(t, fn, 0, weight);
  y = hri_fn_bind(t, fn, hri_ten_make(t, bias ? "addmm" : "mm", x->type, shape));
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
  return hri_fn_bind(t, fn, y);
}

static void bmm_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *b = saved_for(t, fn, 0), *a = saved_for(t, fn, 1);
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
  save_for(t, fn, 0, b);
  save_for(t, fn, 1, a);
  y = hri_fn_bind(t, fn, hri_ten_make(t, "bmm", a->type, shape));
  hri_aten_workspace(t);
  hri_ten_drop(t, b);
  hri_ten_drop(t, a);
  return y;
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
  return count == 1 ? hri_ten_view(t, *padded, labels->shape) : hri_ten_flat(t, "clone", HRI_I64, count * tokens);
}

hri_ten *hri_aten_cross_entropy(hri_torch *t, hri_ten *logits, hri_ten *labels) {
  hri_ten *own = saves_result(t, "_log_softmax", log_softmax_backward, logits), *p = hri_autocast_fp32(t, own), *loss,
          *weight;
  hri_fn *fn = hri_fn_make(t, nll_backward, &p, 1);
  hri_ten_drop(t, own);
  hri_fn_save(t, fn, labels);
  hri_fn_save(t, fn, p);
  loss = hri_ten_flat(t, "nll_loss_forward", HRI_F32, 1);
  weight = hri_ten_flat(t, "nll_loss_forward", HRI_F32, 1);
  hri_fn_save(t, fn, weight);
  hri_ten_drop(t, weight);
  hri_fn_bind(t, fn, loss);
  hri_ten_drop(t, p);
  return loss;
}
