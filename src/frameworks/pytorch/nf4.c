/* NF4Tensor (nf4.h), statement by statement. What lives as long as the process is dropped by nobody. */
#include "frameworks/pytorch/nf4.h"

#include "frameworks/pytorch/device.h"

enum { CODES = 16, BLOCK = 64, SCALES_BLOCK = 256, CHUNK = 1 << 20 };

static void drop(hri_torch *t, hri_ten *const *all, unsigned count) {
  for (unsigned i = 0; i < count; i++) hri_ten_drop(t, all[i]);
}

/* ---- quantizing ---- */

/* What an NF4Tensor is of. */
typedef struct parts {
  hri_ten *table, *scales, *factors, *mean, *codes;
} parts;

/* get_block_absmax: blocks.abs().max(dim=1).values */
static hri_ten *largest(hri_torch *t, hri_ten_type type, uint64_t count, uint64_t block) {
  hri_ten *magnitudes = hri_ten_flat(t, "abs", type, count), *values = hri_ten_flat(t, "max", type, count / block),
          *places = hri_ten_flat(t, "max", HRI_I64, count / block);
  hri_ten_drop(t, magnitudes);
  hri_ten_drop(t, places);
  return values;
}

/* double_quantize_scalers */
static void quantize_scales(hri_torch *t, hri_ten_type type, uint64_t count, parts *out) {
  uint64_t scales = count / BLOCK, groups = scales / SCALES_BLOCK;
  hri_ten *given = largest(t, type, count, BLOCK), *shifted, *most, *doubled, *inverse, *factor, *codes;
  out->mean = hri_ten_flat(t, "mean", type, 1);
  shifted = hri_ten_flat(t, "sub", type, scales);
  hri_ten_drop(t, given);
  most = largest(t, type, scales, SCALES_BLOCK);
  doubled = hri_ten_flat(t, "mul", type, scales); /* expanded to all that they stand for */
  inverse = hri_ten_flat(t, "reciprocal", type, scales);
  factor = hri_ten_flat(t, "mul", type, scales);
  hri_ten_drop(t, inverse);
  hri_ten_drop(t, doubled);
  codes = hri_ten_flat(t, "mul", type, scales);
  hri_ten_set(t, &codes, hri_ten_flat(t, "round", type, scales));
  hri_ten_set(t, &codes, hri_ten_flat(t, "clamp", type, scales));
  out->scales = hri_ten_flat(t, "_to_copy", HRI_U8, scales);
  out->factors = hri_ten_flat(t, "clone", type, groups);
  hri_ten *const rest[] = {codes, factor, most, shifted};
  drop(t, rest, 4);
}

/* quantize_tensor_nearest of a chunk: its distance from each of the 16 values. */
static void nearest(hri_torch *t, hri_ten_type type, uint64_t count) {
  hri_ten *less = hri_ten_flat(t, "sub", type, CODES * count), *distance = hri_ten_flat(t, "abs", type, CODES * count),
          *values, *places;
  hri_ten_drop(t, less);
  values = hri_ten_flat(t, "min", type, count);
  places = hri_ten_flat(t, "min", HRI_I64, count);
  hri_ten_drop(t, values);
  hri_ten_drop(t, distance);
  hri_ten_drop(t, hri_ten_flat(t, "_to_copy", HRI_U8, count));
  hri_ten_drop(t, places);
}

/* convert_to_norm_float_weight: chunks ask for the same, all but the last. */
static hri_ten *quantize_codes(hri_torch *t, hri_ten_type type, uint64_t count) {
  hri_ten *scales = largest(t, type, count, BLOCK), *scaled = hri_ten_flat(t, "div", type, count),
          *codes = hri_ten_flat(t, "empty", HRI_U8, count), *high, *both;
  if (count >= CHUNK) nearest(t, type, CHUNK);
  if (count % CHUNK) nearest(t, type, count % CHUNK);
  high = hri_ten_flat(t, "lshift", HRI_U8, count / 2);
  both = hri_ten_flat(t, "bitwise_or", HRI_U8, count / 2);
  hri_ten *const rest[] = {high, codes, scaled, scales};
  drop(t, rest, 4);
  return both;
}

static parts quantized(hri_torch *t, hri_ten_type type, uint64_t count) {
  parts out = {.table = hri_ten_flat(t, "tensor", type, CODES)};
  quantize_scales(t, type, count, &out);
  out.codes = quantize_codes(t, type, count);
  return out;
}

static uint64_t elements(const hri_torch_4bit *w) { return w->out * w->in; }

static hri_ten *whole(hri_torch *t, const char *op, const hri_torch_4bit *w) {
  return hri_ten_make(t, op, w->compute, hri_ten_shape_of(2, w->out, w->in, 0, 0));
}

hri_ten *hri_nf4_parameter(hri_torch *t, hri_torch_4bit *w) {
  hri_ten *given = whole(t, "empty", w);
  parts made = quantized(t, w->compute, elements(w));
  hri_ten *const all[] = {made.table, made.scales, made.factors, made.mean, made.codes};
  for (unsigned i = 0; i < 5; i++) hri_ten_role(t, all[i], HR_ROLE_QUANTIZATION);
  hri_ten_drop(t, given);
  made.codes->parameter = true;
  w->codes = made.codes;
  return w->codes;
}

void hri_nf4_load(hri_torch *t, const hri_torch_4bit *w) {
  hri_ten *given = whole(t, "_to_copy", w);
  parts made = quantized(t, w->compute, elements(w));
  hri_ten *const all[] = {given, made.codes, made.mean, made.factors, made.scales, made.table};
  drop(t, all, 6);
}

/* ---- products ---- */

/* (quantized_data ...).to(torch.long): which of the 16 values each of every two codes is. */
static hri_ten *indices(hri_torch *t, const char *op, uint64_t count) {
  hri_ten *codes = hri_ten_flat(t, op, HRI_U8, count), *y = hri_ten_flat(t, "_to_copy", HRI_I64, count);
  hri_ten_drop(t, codes);
  return y;
}

/* dequantized * repeated.flatten() */
static hri_ten *scaled_by(hri_torch *t, hri_ten_type type, uint64_t count) {
  hri_ten *repeated = hri_ten_flat(t, "clone", type, count), *y = hri_ten_flat(t, "mul", type, count);
  hri_ten_drop(t, repeated);
  return y;
}

/* get_original_weight: every variable lives until it returns. */
hri_ten *hri_nf4_whole(hri_torch *t, const hri_torch_4bit *w) {
  uint64_t count = elements(w), half = count / 2;
  hri_ten_type type = w->compute;
  hri_ten *variables[7], *shifted, *y;
  variables[0] = indices(t, "rshift", half);
  variables[1] = indices(t, "bitwise_and", half);
  for (int k = 2; k < 4; k++) variables[k] = hri_ten_flat(t, "index", type, half);
  shifted = hri_ten_flat(t, "div", type, count / BLOCK);
  variables[4] = hri_ten_flat(t, "add", type, count / BLOCK);
  hri_ten_drop(t, shifted);
  for (int k = 5; k < 7; k++) variables[k] = scaled_by(t, type, half);
  y = whole(t, "stack", w);
  for (int k = 0; k < 7; k++) hri_ten_role(t, variables[k], HR_ROLE_WORKSPACE);
  hri_ten_role(t, y, HR_ROLE_WORKSPACE);
  drop(t, variables, 7);
  return y;
}

/* LinearNF4.backward: grad_output @ weight.to(grad_output.dtype). numbers[0]: the weight. */
static void backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  const hri_torch_4bit *w = (const hri_torch_4bit *)(uintptr_t)fn->numbers[0];
  hri_ten *saved = hri_fn_saved(t, fn, 0), *weight;
  if (g[0]) {
    weight = hri_nf4_whole(t, w);
    hri_aten_workspace(t);
    in[0] = hri_ten_make(t, "mm", g[0]->type, fn->shapes[0]);
    hri_ten_drop(t, weight);
  }
  hri_ten_drop(t, saved);
}

hri_ten *hri_nf4_linear(hri_torch *t, hri_torch_4bit *w, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, backward, &x, 1);
  hri_ten *weight = hri_nf4_whole(t, w), *y;
  hri_ten_shape shape = x->shape;
  shape.dims[shape.rank - 1] = w->out;
  if (fn) fn->numbers[0] = (uintptr_t)w;
  hri_fn_save(t, fn, w->codes);
  y = hri_ten_make(t, "mm", x->type, shape);
  hri_aten_workspace(t);
  hri_ten_drop(t, weight);
  return hri_fn_bind(t, fn, y);
}
