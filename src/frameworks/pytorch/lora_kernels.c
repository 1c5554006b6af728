/* axolotl's LoRA functions (lora_kernels.h). Source: axolotl, kernels/lora.py (LoRA_QKV, LoRA_O, LoRA_MLP, matmul_lora), kernels/quantize.py,
 * kernels/swiglu.py. Inside a function nothing has a graph; what it returns of the adapters' gradients are transposed, which a parameter copies. */
#include "frameworks/pytorch/lora_kernels.h"

#include "frameworks/pytorch/aten.h"
#include "frameworks/pytorch/device.h"

enum { MOST = 3 }; /* projections of a function */

static bool adapted(const hri_module_linear *linear) { return linear->a && !linear->magnitude && !linear->narrow; }

bool hri_lora_kernel_of_qkv(const hri_module *m, const hri_module_layer *l) {
  return m->qkv_kernel && adapted(&l->q) && adapted(&l->k) && adapted(&l->v);
}

bool hri_lora_kernel_of_o(const hri_module *m, const hri_module_layer *l) { return m->o_kernel && adapted(&l->o); }

bool hri_lora_kernel_of_mlp(const hri_module *m, const hri_module_layer *l) {
  return m->mlp_kernel && adapted(&l->gate) && adapted(&l->up) && adapted(&l->down);
}

static uint64_t rows_of(const hri_ten *x) { return hri_ten_count(x) / x->shape.dims[x->shape.rank - 1]; }

static hri_ten *matrix(hri_torch *t, const char *op, hri_ten_type type, uint64_t rows, uint64_t columns) {
  return hri_ten_make(t, op, type, hri_ten_shape_of(2, rows, columns, 0, 0));
}

static hri_ten_shape wide(const hri_ten *x, uint64_t width) {
  hri_ten_shape shape = x->shape;
  shape.dims[shape.rank - 1] = width;
  return shape;
}

/* dequantize(W): of doubly quantized weights by axolotl itself, the result first; NULL: they are whole. */
static hri_ten *whole_of(hri_torch *t, const hri_module_linear *w) {
  hri_ten *whole, *scales;
  if (!w->packed) return NULL;
  if (!w->packed->nested) return hri_bnb_whole(t, w->packed);
  whole = matrix(t, "nf4_dequantize", w->packed->compute, w->out, w->in);
  hri_ten_role(t, whole, HR_ROLE_WORKSPACE);
  scales = matrix(t, "nf4_dequantize", HRI_F32, 1, w->out * w->in / HRI_BNB_BLOCK);
  hri_ten_drop(t, scales);
  return whole;
}

/* parameter.to(dtype): a new reference. */
static hri_ten *lowered(hri_torch *t, hri_ten *parameter, hri_ten_type type) {
  return parameter->type == type ? hri_ten_keep(parameter) : hri_ten_like(t, "_to_copy", parameter, type);
}

/* matmul_lora: X W, to which (X A) B is added in place. */
static hri_ten *product(hri_torch *t, const hri_module_linear *w, hri_ten *x) {
  hri_ten *whole = whole_of(t, w), *y, *a, *b;
  hri_aten_workspace(t);
  y = hri_ten_make(t, "mm", x->type, wide(x, w->out));
  hri_ten_drop(t, whole);
  a = lowered(t, w->a, x->type);
  b = lowered(t, w->b, x->type);
  hri_ten_drop(t, matrix(t, "mm", x->type, rows_of(x), w->a->shape.dims[0]));
  hri_ten_drop(t, b);
  hri_ten_drop(t, a);
  return y;
}

/* One mask for all projections of an input; NULL: no dropout. */
static hri_ten *dropped(hri_torch *t, const hri_module *module, hri_ten *x) {
  return module->lora_dropout > 0 ? hri_aten_dropout(t, x, module->lora_dropout) : NULL;
}

static hri_fn *function(hri_torch *t, hri_fn_apply *apply, const hri_module_linear *const *all, uint32_t count,
                        hri_ten *x, hri_ten *drop) {
  hri_ten *inputs[2 + 2 * MOST] = {x, drop};
  for (uint32_t i = 0; i < count; i++) {
    inputs[2 + 2 * i] = all[i]->a;
    inputs[3 + 2 * i] = all[i]->b;
  }
  return hri_fn_make(t, apply, inputs, 2 + 2 * count);
}

/* save_for_backward of adapters in the type of the input: copies that live as long as the function. */
static void save_adapters(hri_torch *t, hri_fn *fn, const hri_module_linear *const *all, uint32_t count,
                          hri_ten_type type) {
  hri_ten *copies[2 * MOST];
  for (uint32_t i = 0; i < 2 * count; i++) copies[i] = lowered(t, i % 2 ? all[i / 2]->b : all[i / 2]->a, type);
  for (uint32_t i = 0; i < 2 * count; i++) hri_fn_save(t, fn, copies[i]);
  for (uint32_t i = 2 * count; i-- > 0;) hri_ten_drop(t, copies[i]);
}

/* grad @ B, which is used again, then the gradients of A and B by addmm_ into new tensors. Returns grad @ B. */
static hri_ten *adapter_gradients(hri_torch *t, const hri_module_linear *w, hri_ten *gradient, hri_ten *in[2]) {
  uint64_t rank = w->a->shape.dims[0], rows = rows_of(gradient);
  hri_ten *part = matrix(t, "mm", gradient->type, rows, rank);
  in[0] = hri_ten_make(t, "empty_like", gradient->type, w->a->shape);
  in[1] = hri_ten_make(t, "empty_like", gradient->type, w->b->shape);
  for (int i = 0; i < 2; i++) in[i]->turned = true;
  hri_ten_drop(t, matrix(t, "mm", gradient->type, rank, rows));
  return part;
}

/* x.view(batch, seq_len, -1) at the end. Takes it. */
static hri_ten *shaped(hri_torch *t, hri_ten *made, hri_ten_shape shape) {
  hri_ten *view = hri_ten_view_in_backward(t, made, shape);
  hri_ten_drop(t, made);
  return view;
}

/* ---- q, k, v ---- */

static void projections_of(const hri_module_layer *l, const hri_module_linear *all[MOST]) {
  all[0] = &l->q;
  all[1] = &l->k;
  all[2] = &l->v;
}

/* numbers[0]: the layer. Saved: x, what dropout left of it, adapters. */
static void qkv_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  const hri_module_layer *l = (const hri_module_layer *)(uintptr_t)fn->numbers[0];
  const hri_module_linear *all[MOST];
  const uint32_t count = fn->saved_count;
  hri_ten *saved[2 + 2 * MOST], *parts[MOST], *made = NULL, *whole;
  projections_of(l, all);
  for (uint32_t i = 0; i < count; i++) saved[i] = hri_fn_saved(t, fn, i);
  hri_aten_workspace(t);
  for (int k = 0; k < MOST; k++) parts[k] = adapter_gradients(t, all[k], g[k], &in[2 + 2 * k]);
  for (int k = 0; k < MOST; k++) {
    whole = whole_of(t, all[k]);
    if (k == 0) made = hri_ten_make(t, "mm", g[0]->type, fn->shapes[0]);
    hri_ten_drop(t, whole);
  }
  if (hri_fn_needs(fn, 1)) in[1] = shaped(t, hri_ten_make(t, "zeros_like", g[0]->type, fn->shapes[0]), fn->shapes[0]);
  in[0] = shaped(t, made, fn->shapes[0]);
  for (int k = 0; k < MOST; k++) hri_ten_drop(t, parts[k]);
  for (uint32_t i = count; i-- > 0;) hri_ten_drop(t, saved[i]);
}

void hri_lora_qkv(hri_torch *t, const hri_module *module, const hri_module_layer *l, hri_ten *x, hri_ten *out[3]) {
  const hri_module_linear *all[MOST];
  hri_ten *drop = dropped(t, module, x);
  hri_fn *fn;
  projections_of(l, all);
  hri_torch_at(t, "self_attn.apply_qkv", -2);
  fn = function(t, qkv_backward, all, MOST, x, drop);
  if (fn) fn->numbers[0] = (uintptr_t)l;
  for (int k = 0; k < MOST; k++) out[k] = product(t, all[k], x);
  hri_fn_save(t, fn, x);
  hri_fn_save(t, fn, drop ? drop : x);
  save_adapters(t, fn, all, MOST, x->type);
  for (int k = 0; k < MOST; k++) hri_fn_bind(t, fn, out[k]);
  hri_ten_drop(t, drop);
}

/* ---- o ---- */

/* numbers[0]: the module. Saved: the adapter, x, what dropout left of it. */
static void o_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  const hri_module_linear *w = (const hri_module_linear *)(uintptr_t)fn->numbers[0];
  hri_ten *saved[4], *part, *whole, *made;
  for (uint32_t i = 0; i < 4; i++) saved[i] = hri_fn_saved(t, fn, i);
  hri_aten_workspace(t);
  part = adapter_gradients(t, w, g[0], &in[2]);
  whole = whole_of(t, w);
  made = hri_ten_make(t, "mm", g[0]->type, fn->shapes[0]);
  hri_ten_drop(t, whole);
  if (hri_fn_needs(fn, 1)) { /* grad_B @ A * s */
    hri_ten *given = hri_ten_make(t, "mm", g[0]->type, fn->shapes[0]),
            *scaled = hri_ten_like(t, "mul", given, given->type);
    hri_ten_drop(t, given);
    in[1] = shaped(t, scaled, fn->shapes[0]);
  }
  in[0] = shaped(t, made, fn->shapes[0]);
  hri_ten_drop(t, part);
  for (uint32_t i = 4; i-- > 0;) hri_ten_drop(t, saved[i]);
}

hri_ten *hri_lora_o(hri_torch *t, const hri_module *module, const hri_module_layer *l, hri_ten *x) {
  const hri_module_linear *all[] = {&l->o};
  hri_ten *drop = dropped(t, module, x), *y;
  hri_fn *fn;
  hri_torch_at(t, "self_attn.apply_o", -2);
  fn = function(t, o_backward, all, 1, x, drop);
  if (fn) fn->numbers[0] = (uintptr_t)&l->o;
  y = product(t, &l->o, x);
  save_adapters(t, fn, all, 1, x->type);
  hri_fn_save(t, fn, x);
  hri_fn_save(t, fn, drop ? drop : x);
  hri_fn_bind(t, fn, y);
  hri_ten_drop(t, drop);
  return y;
}

/* ---- the MLP ---- */

static void gated_of(const hri_module_layer *l, const hri_module_linear *all[MOST]) {
  all[0] = &l->gate;
  all[1] = &l->up;
  all[2] = &l->down;
}

/* The gradient of the activation's result takes its place, then that result; those of gate and up theirs. */
static void mlp_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  enum { SAVED = 4 + 2 * MOST };
  const hri_module_layer *l = (const hri_module_layer *)(uintptr_t)fn->numbers[0];
  const hri_module_linear *all[MOST];
  hri_ten *saved[SAVED], *hidden, *parts[MOST], *made, *whole;
  gated_of(l, all);
  for (uint32_t i = 0; i < SAVED; i++) saved[i] = hri_fn_saved(t, fn, i);
  whole = whole_of(t, all[2]);
  hri_aten_workspace(t);
  hidden = hri_ten_make(t, "mm", g[0]->type, saved[2]->shape);
  hri_ten_drop(t, whole);
  hri_ten_drop(t, matrix(t, "mm", g[0]->type, rows_of(g[0]), all[2]->a->shape.dims[0]));
  parts[2] = adapter_gradients(t, all[2], g[0], &in[6]);
  parts[1] = adapter_gradients(t, all[1], saved[3], &in[4]);
  parts[0] = adapter_gradients(t, all[0], saved[2], &in[2]);
  if (hri_fn_needs(fn, 0)) {
    whole = whole_of(t, all[1]);
    made = hri_ten_make(t, "mm", g[0]->type, fn->shapes[0]);
    hri_ten_drop(t, whole);
    hri_ten_drop(t, whole_of(t, all[0]));
    if (hri_fn_needs(fn, 1)) in[1] = shaped(t, hri_ten_make(t, "zeros_like", g[0]->type, fn->shapes[0]), fn->shapes[0]);
    in[0] = shaped(t, made, fn->shapes[0]);
  }
  for (int k = 0; k < MOST; k++) hri_ten_drop(t, parts[k]);
  hri_ten_drop(t, hidden);
  for (uint32_t i = SAVED; i-- > 0;) hri_ten_drop(t, saved[i]);
}

hri_ten *hri_lora_mlp(hri_torch *t, const hri_module *module, const hri_module_layer *l, hri_ten *x) {
  const hri_module_linear *all[MOST];
  hri_ten *drop = dropped(t, module, x), *gate, *up, *hidden, *y;
  hri_fn *fn;
  gated_of(l, all);
  hri_torch_at(t, "mlp.forward", -2);
  fn = function(t, mlp_backward, all, MOST, x, drop);
  if (fn) fn->numbers[0] = (uintptr_t)l;
  gate = product(t, all[0], x);
  up = product(t, all[1], x);
  hidden = hri_ten_like(t, "swiglu_fwd", gate, gate->type);
  y = product(t, all[2], hidden);
  hri_fn_save(t, fn, x);
  hri_fn_save(t, fn, drop ? drop : x);
  hri_fn_save(t, fn, gate);
  hri_fn_save(t, fn, up);
  save_adapters(t, fn, all, MOST, x->type);
  hri_ten *const locals[] = {gate, up, hidden};
  for (int i = 0; i < MOST; i++) hri_ten_drop(t, locals[i]);
  hri_fn_bind(t, fn, y);
  hri_ten_drop(t, drop);
  return y;
}
