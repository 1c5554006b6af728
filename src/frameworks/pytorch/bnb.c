/* bitsandbytes' modules (bnb.h). Small tensors stay in it although they are 512 bytes each: a model of 8 B has two thousand of
 * them, and where they lie decides which segments can be returned. */
#include "frameworks/pytorch/bnb.h"

#include "frameworks/pytorch/aten.h"
#include "frameworks/pytorch/device.h"

static uint64_t elements(const hri_torch_4bit *w) { return w->out * w->in; }

static uint64_t blocks(uint64_t count, uint64_t block) { return (count + block - 1) / block; }

hri_ten *hri_bnb_parameter(hri_torch *t, hri_torch_4bit *w) {
  uint64_t each = 2 * hri_ten_type_bytes(w->storage); /* codes in an element of it */
  w->codes = hri_ten_parameter(t, w->storage, hri_ten_shape_of(2, (elements(w) + each - 1) / each, 1, 0, 0), false);
  return w->codes;
}

static void of_quantization(hri_torch *t, const hri_ten *tensor) { hri_ten_role(t, tensor, HR_ROLE_QUANTIZATION); }

/* A tensor of the quantization state, which lives as long as the codes: to the end of the process. */
static void state(hri_torch *t, const char *op, hri_ten_type type, uint64_t count) {
  of_quantization(t, hri_ten_flat(t, op, type, count));
}

/* get_4bit_type: a table of 16 values for each weight, divided by its largest. */
static void table_of_codes(hri_torch *t) {
  hri_ten *magnitudes, *largest;
  state(t, "get_4bit_type", HRI_F32, 16);
  magnitudes = hri_ten_flat(t, "abs", HRI_F32, 16);
  largest = hri_ten_flat(t, "max", HRI_F32, 1);
  hri_ten_drop(t, magnitudes);
  hri_ten_drop(t, largest);
}

/* quantize_blockwise of the scales less their mean. The mean, the codes and their scales stay. */
static void nest(hri_torch *t, uint64_t scales, bool first) {
  enum { MAP = 256 };
  hri_ten *shifted;
  state(t, "mean", HRI_F32, 1);
  shifted = hri_ten_flat(t, "sub", HRI_F32, scales);
  if (first) state(t, "create_dynamic_map", HRI_F32, MAP);
  state(t, "quantize_blockwise", HRI_F32, blocks(scales, HRI_BNB_NESTED_BLOCK));
  state(t, "quantize_blockwise", HRI_U8, scales);
  state(t, "quantize_blockwise", HRI_F32, MAP);
  hri_ten_drop(t, shifted);
}

void hri_bnb_quantize(hri_torch *t, hri_torch_4bit *w, bool first) {
  uint64_t scales = blocks(elements(w), HRI_BNB_BLOCK);
  hri_ten *given = hri_ten_make(t, "_to_copy", w->compute, hri_ten_shape_of(2, w->out, w->in, 0, 0));
  hri_ten *whole = w->turned ? hri_ten_like(t, "clone", given, w->compute) : hri_ten_keep(given);
  hri_ten *absmax = hri_ten_flat(t, "quantize_4bit", HRI_F32, scales);
  hri_ten_materialize(t, "quantize_4bit", w->codes);
  of_quantization(t, w->codes);
  table_of_codes(t);
  if (w->nested) nest(t, scales, first), hri_ten_drop(t, absmax);
  else of_quantization(t, absmax);
  hri_ten_drop(t, whole);
  hri_ten_drop(t, given);
}

static hri_ten *dequantized(hri_torch *t, const hri_torch_4bit *w) {
  hri_ten *whole = hri_ten_make(t, "dequantize_4bit", w->compute, hri_ten_shape_of(2, w->out, w->in, 0, 0));
  hri_ten_role(t, whole, HR_ROLE_WORKSPACE);
  return whole;
}

static hri_ten *scales_of(hri_torch *t, const hri_torch_4bit *w) {
  return w->nested ? hri_ten_flat(t, "dequantize_blockwise", HRI_F32, blocks(elements(w), HRI_BNB_BLOCK)) : NULL;
}

/* MatMul4Bit.backward: dequantize_4bit, then a product. numbers[0]: the weight. */
static void backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  const hri_torch_4bit *w = (const hri_torch_4bit *)(uintptr_t)fn->numbers[0];
  hri_ten *scales, *whole;
  if (!g[0]) return;
  scales = scales_of(t, w);
  whole = dequantized(t, w);
  hri_ten_drop(t, scales);
  hri_aten_workspace(t);
  in[0] = hri_ten_make(t, "mm", g[0]->type, fn->shapes[0]);
  hri_ten_drop(t, whole);
}

/* gemm_4bit without its own kernel, which bitsandbytes takes for few tokens: up to 512, of small wide matrices up to 1,536 on compute
 * capability 8.0. Those then ask for less than is said here, in the forward alone. */
static hri_ten *matmul_4bit(hri_torch *t, hri_torch_4bit *w, hri_ten *x) {
  hri_fn *fn = hri_fn_make(t, backward, &x, 1);
  hri_ten *scales = scales_of(t, w), *shifted = scales ? hri_ten_like(t, "add", scales, HRI_F32) : NULL;
  hri_ten *whole = dequantized(t, w), *y;
  hri_ten_shape shape = x->shape;
  shape.dims[shape.rank - 1] = w->out;
  if (fn) {
    fn->numbers[0] = (uintptr_t)w;
    if (w->held) fn->held[0] = hri_ten_view(t, w->codes, w->codes->shape); /* ctx.tensors = (None, B) */
  }
  y = hri_ten_make(t, "mm", x->type, shape);
  hri_aten_workspace(t);
  hri_ten_drop(t, shifted);
  hri_ten_drop(t, scales);
  hri_ten_drop(t, whole);
  return hri_fn_bind(t, fn, y);
}

hri_ten *hri_bnb_linear(hri_torch *t, hri_torch_4bit *w, hri_ten *given, hri_ten *bias) {
  hri_ten *x = hri_aten_to(t, given, w->compute), *y, *back;
  if (bias) hri_ten_retype(t, bias, w->compute); /* bias.data = bias.data.to(x.dtype), which stays */
  y = matmul_4bit(t, w, x);
  back = hri_aten_to(t, y, given->type);
  hri_ten_drop(t, y);
  hri_ten_drop(t, x);
  return back;
}

hri_ten *hri_bnb_whole(hri_torch *t, const hri_torch_4bit *w) {
  hri_ten *scales = scales_of(t, w), *whole = dequantized(t, w);
  hri_ten_drop(t, scales);
  return whole;
}

/* ---- 8 bits (Int8Params, MatMul8bitLt) ---- */

hri_ten *hri_bnb8_parameter(hri_torch *t, hri_torch_8bit *w) {
  w->codes = hri_ten_parameter(t, HRI_U8, hri_ten_shape_of(2, w->out, w->in, 0, 0), false);
  return w->codes;
}

static hri_ten *matrix(hri_torch *t, const char *op, hri_ten_type type, uint64_t rows, uint64_t columns) {
  return hri_ten_make(t, op, type, hri_ten_shape_of(2, rows, columns, 0, 0));
}

void hri_bnb8_quantize(hri_torch *t, hri_torch_8bit *w) {
  hri_ten *given = matrix(t, "_to_copy", w->checkpoint, w->out, w->in);
  hri_ten *half = matrix(t, "_to_copy", HRI_F16, w->out, w->in);
  state(t, "int8_vectorwise_quant", HRI_F32, w->out);
  hri_ten_materialize(t, "int8_vectorwise_quant", w->codes);
  of_quantization(t, w->codes);
  hri_ten_drop(t, half);
  hri_ten_drop(t, given);
}

hri_ten *hri_bnb8_whole(hri_torch *t, const hri_torch_8bit *w) {
  hri_ten *whole = matrix(t, "int8_vectorwise_dequant", HRI_F32, w->out, w->in);
  hri_ten_role(t, whole, HR_ROLE_WORKSPACE);
  return whole;
}

/* CB.to(A.dtype, copy=True).mul_(SCB.unsqueeze(1).mul(1 / 127)), then a product. numbers[0]: the weight. */
static void backward_8bit(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  const hri_torch_8bit *w = (const hri_torch_8bit *)(uintptr_t)fn->numbers[0];
  hri_ten *whole, *made;
  if (!g[0]) return;
  whole = matrix(t, "_to_copy", fn->types[0], w->out, w->in);
  hri_ten_role(t, whole, HR_ROLE_WORKSPACE);
  hri_ten_drop(t, hri_ten_flat(t, "mul", HRI_F32, w->out));
  hri_aten_workspace(t);
  made = hri_ten_make(t, "mm", fn->types[0], fn->shapes[0]);
  in[0] = hri_ten_view_in_backward(t, made, made->shape); /* .view(ctx.grad_shape) */
  hri_ten_drop(t, made);
  hri_ten_drop(t, whole);
}

/* int8_vectorwise_quant with a threshold: outliers are looked for, and there are none. */
static hri_ten *quantized_input(hri_torch *t, hri_ten *x, uint64_t rows, uint64_t columns, hri_ten **scales) {
  hri_ten *half = x->type == HRI_F16 ? hri_ten_keep(x) : matrix(t, "_to_copy", HRI_F16, rows, columns), *codes,
          *absolute, *over;
  *scales = hri_ten_flat(t, "int8_vectorwise_quant", HRI_F32, rows);
  codes = matrix(t, "int8_vectorwise_quant", HRI_U8, rows, columns);
  absolute = matrix(t, "abs", HRI_F16, rows, columns);
  over = matrix(t, "ge", HRI_BOOL, rows, columns);
  hri_ten_drop(t, absolute);
  hri_ten_drop(t, hri_ten_flat(t, "any", HRI_BOOL, 1));
  hri_ten_drop(t, over);
  hri_ten_drop(t, half);
  return codes;
}

/* The function holds x itself, not as a saved tensor: what checkpointing gives away it does not. */
hri_ten *hri_bnb8_linear(hri_torch *t, hri_torch_8bit *w, hri_ten *x, hri_ten *bias) {
  uint64_t rows = hri_ten_count(x) / w->in;
  hri_ten_shape shape = x->shape;
  hri_ten *codes, *scales, *sums, *y;
  hri_fn *fn = hri_fn_make(t, backward_8bit, &x, 1);
  if (bias) hri_ten_retype(t, bias, x->type);
  codes = quantized_input(t, x, rows, w->in, &scales);
  sums = matrix(t, "int8_linear_matmul", HRI_I32, rows, w->out);
  y = matrix(t, "int8_mm_dequant", HRI_F16, rows, w->out);
  if (x->type != HRI_F16) hri_ten_set(t, &y, matrix(t, "_to_copy", x->type, rows, w->out));
  hri_ten_drop(t, sums);
  if (fn) {
    fn->numbers[0] = (uintptr_t)w;
    fn->held[0] = hri_ten_keep(x);
  }
  hri_ten_drop(t, codes);
  hri_ten_drop(t, scales);
  shape.dims[shape.rank - 1] = w->out;
  y->shape = shape;
  return hri_fn_bind(t, fn, y);
}
