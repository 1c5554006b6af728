/* PEFT's linear modules (adapters.h): peft 0.21, tuners/lora/layer.py, bnb.py, variants.py and dora.py. */
#include "frameworks/pytorch/adapters.h"

#include "frameworks/pytorch/aten.h"
#include "frameworks/pytorch/device.h"

/* ---- DoRA: the result's rows get the length that the magnitudes say, whatever the adapter makes of them ---- */

static hri_ten *matrix(hri_torch *t, const char *op, hri_ten_type type, const hri_module_linear *linear) {
  return hri_ten_make(t, op, type, hri_ten_shape_of(2, linear->out, linear->in, 0, 0));
}

/* dequantize_module_weight(base_layer).to(type) */
static hri_ten *whole_weight(hri_torch *t, const hri_module_linear *linear, hri_ten_type type) {
  hri_ten *weight, *cast;
  if (linear->packed) weight = hri_bnb_whole(t, linear->packed);
  else if (linear->narrow) weight = hri_bnb8_whole(t, linear->narrow);
  else weight = hri_ten_keep(linear->weight);
  cast = weight->type == type ? hri_ten_keep(weight) : matrix(t, "_to_copy", type, linear);
  hri_ten_drop(t, weight);
  return cast;
}

/* norm(weight + scaling * lora_weight, dim=1) */
static hri_ten *weight_norm(hri_torch *t, const hri_module_linear *linear, hri_ten_type type) {
  hri_ten *scaled = matrix(t, "mul", type, linear), *sum = matrix(t, "add", type, linear), *norm;
  hri_ten_drop(t, scaled);
  norm = hri_ten_flat(t, "linalg_vector_norm", type, linear->out);
  hri_ten_drop(t, sum);
  return norm;
}

hri_ten *hri_dora_begin(hri_torch *t, const hri_module_linear *linear, hri_ten_type type) {
  hri_ten *weight = whole_weight(t, linear, type), *product = matrix(t, "mm", type, linear), *norm;
  hri_aten_workspace(t);
  norm = weight_norm(t, linear, type);
  hri_ten_drop(t, weight);
  hri_ten_drop(t, product);
  return norm;
}

/* get_lora_weight: A and B applied to the unit matrix. Nothing of its graph is ever asked for. */
static hri_ten *lora_weight(hri_torch *t, const hri_module_linear *linear, hri_ten_type type) {
  hri_ten *eye = hri_ten_make(t, "eye", linear->a->type, hri_ten_shape_of(2, linear->in, linear->in, 0, 0)), *part,
          *cast;
  part = hri_aten_linear(t, eye, linear->a, NULL, true);
  hri_ten_set(t, &part, hri_aten_linear(t, part, linear->b, NULL, true));
  hri_ten_drop(t, eye);
  cast = hri_aten_to(t, part, type);
  hri_ten_drop(t, part);
  return cast;
}

hri_ten *hri_dora_combined(hri_torch *t, hri_ten *scale, hri_ten *base, hri_ten *lora) {
  hri_ten *less = hri_aten_add_scalar(t, scale), *left = hri_aten_mul(t, less, base), *right, *sum;
  hri_ten_drop(t, less);
  right = hri_aten_mul(t, scale, lora);
  hri_ten_set(t, &right, hri_aten_mul_scalar(t, right));
  sum = hri_aten_add(t, left, right);
  hri_ten_drop(t, right);
  hri_ten_drop(t, left);
  return sum;
}

/* peft.utils.other.transpose of Conv1D's weight: a parameter of its own, which requires a gradient, gets one, and has it until the graph
 * is dropped. */
static hri_ten *as_parameter(hri_torch *t, hri_ten *weight, const hri_module_linear *linear) {
  hri_ten *turned = hri_ten_view(t, weight, hri_ten_shape_of(2, linear->out, linear->in, 0, 0));
  turned->parameter = turned->requires_grad = true;
  return turned;
}

/* DoraLinearLayer.forward. Without dropout the module's own result is used, else its product is made again of what dropout left, with a
 * weight in the adapter's type that autograd saves. */
static hri_ten *dora(hri_torch *t, const hri_module_linear *linear, hri_ten *x, hri_ten *given) {
  hri_ten *adapted = lora_weight(t, linear, x->type), *weight = whole_weight(t, linear, x->type), *turned, *norm,
          *scale, *lora, *base, *y;
  turned = linear->conv1d ? as_parameter(t, weight, linear) : hri_ten_keep(weight);
  norm = weight_norm(t, linear, x->type);
  scale = hri_aten_div_by(t, linear->magnitude, norm);
  lora = hri_aten_linear(t, x, linear->a, NULL, true);
  hri_ten_set(t, &lora, hri_aten_linear(t, lora, linear->b, NULL, true));
  if (!given) base = hri_aten_linear(t, x, turned, NULL, true);
  else base = linear->bias ? hri_aten_add_scalar(t, given) : hri_ten_keep(given);
  y = hri_dora_combined(t, scale, base, lora);
  hri_ten *const all[] = {base, lora, scale, norm, turned, weight, adapted};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) hri_ten_drop(t, all[i]);
  return y;
}

/* DoraLinearVariant.forward: result + dora(dropout(x)) */
static hri_ten *with_dora(hri_torch *t, const hri_module *module, const hri_module_linear *linear, hri_ten *x,
                          hri_ten *result) {
  hri_ten *dropped = hri_aten_dropout(t, x, module->lora_dropout), *part, *sum;
  part = dora(t, linear, dropped, module->lora_dropout > 0 ? NULL : result);
  sum = hri_aten_add(t, result, part);
  hri_ten_drop(t, part);
  hri_ten_drop(t, dropped);
  return sum;
}

/* lora_A, lora_B: modules without children, as others are, which whoever shards the model may have put hooks on. */
static hri_ten *part_of_adapter(hri_torch *t, const hri_module *module, hri_ten *weight, hri_ten *given) {
  const hri_module_hooks *hooks = module->hooks;
  int32_t which = HRI_MODULE_ADAPTER - (int32_t)weight->place;
  hri_ten *x = hri_module_begins(t, module, NULL, weight, NULL, given), *y;
  if (hooks) hri_ten_set(t, &x, hooks->enter(t, module->hooks_context, which, x));
  y = module->watch ? hri_aten_linear_function(t, x, weight, NULL) : hri_aten_linear(t, x, weight, NULL, true);
  if (hooks) hooks->leave(t, module->hooks_context, which, y);
  hri_ten_drop(t, x);
  hri_module_ends(t, module, weight, NULL, &y);
  return y;
}

/* nn.Dropout, or nn.Identity. */
static hri_ten *dropped_input(hri_torch *t, const hri_module *module, hri_ten *given) {
  hri_ten *x = hri_module_begins(t, module, NULL, NULL, NULL, given), *y = hri_aten_dropout(t, x, module->lora_dropout);
  hri_ten_drop(t, x);
  hri_module_ends(t, module, NULL, NULL, &y);
  return y;
}

/* B(A(dropout(x))) * scaling */
static hri_ten *plain(hri_torch *t, const hri_module *module, const hri_module_linear *linear, hri_ten *x) {
  hri_ten *part = dropped_input(t, module, x);
  hri_ten_set(t, &part, part_of_adapter(t, module, linear->a, part));
  hri_ten_set(t, &part, part_of_adapter(t, module, linear->b, part));
  hri_ten_set(t, &part, hri_aten_mul_scalar(t, part));
  return part;
}

/* ---- beside whole weights, 4 and 8 bits ---- */

/* lora_A.weight.dtype, where x is cast to it (_cast_input_dtype). */
static hri_ten_type type_of_adapter(const hri_module *module, const hri_module_linear *linear) {
  return module->adapters_rest_wide ? HRI_F32 : linear->a->type;
}

/* peft's Linear.forward: result + B(A(dropout(x))) * scaling, in the adapter's type, then cast back. `x` is bound anew there,
 * so the cast lives to the end. */
static hri_ten *adapted(hri_torch *t, const hri_module *module, const hri_module_linear *linear, hri_ten *given,
                        hri_ten *result) {
  hri_ten_type type = result->type;
  hri_ten *x = hri_aten_to(t, given, type_of_adapter(module, linear)), *part, *sum, *back;
  if (linear->magnitude) {
    sum = with_dora(t, module, linear, x, result);
  } else {
    part = plain(t, module, linear, x);
    sum = hri_aten_add(t, result, part);
    hri_ten_drop(t, part);
  }
  hri_ten_drop(t, result);
  back = hri_aten_to(t, sum, type);
  hri_ten_drop(t, sum);
  hri_ten_drop(t, x);
  return back;
}

/* The same beside quantized weights: x is cast and the sum cast back without autocast alone; of 4 bits the result is cloned. */
static hri_ten *adapted_quantized(hri_torch *t, const hri_module *module, const hri_module_linear *linear,
                                  hri_ten *given, hri_ten *result) {
  bool converts = t->autocast == HRI_F32;
  hri_ten *base = linear->packed ? hri_aten_contiguous(t, result) : hri_ten_keep(result), *x, *part, *sum;
  hri_ten_drop(t, result);
  x = converts ? hri_aten_to(t, given, type_of_adapter(module, linear)) : hri_ten_keep(given);
  if (linear->magnitude) {
    sum = with_dora(t, module, linear, x, base);
    if (converts) hri_ten_set(t, &sum, hri_aten_to(t, sum, base->type));
    hri_ten_drop(t, base);
  } else {
    part = plain(t, module, linear, x);
    if (converts) hri_ten_set(t, &part, hri_aten_to(t, part, base->type));
    sum = hri_aten_add(t, base, part);
    hri_ten_drop(t, base);
    hri_ten_drop(t, part);
  }
  hri_ten_drop(t, x);
  return sum;
}

hri_ten *hri_module_begins(hri_torch *t, const hri_module *module, const char *name, hri_ten *a, hri_ten *b,
                           hri_ten *x) {
  hri_ten *const parameters[] = {a, b};
  hri_ten *given = module->watch ? module->watch->enter(t, module->watch_context, parameters, x) : hri_ten_keep(x);
  if (name) hri_torch_at(t, name, -2);
  return given;
}

void hri_module_ends(hri_torch *t, const hri_module *module, hri_ten *a, hri_ten *b, hri_ten **y) {
  hri_ten *const parameters[] = {a, b};
  if (module->watch) hri_ten_set(t, y, module->watch->leave(t, module->watch_context, parameters, *y));
}

hri_ten *hri_module_apply_whole(hri_torch *t, const hri_module *module, const char *name,
                                const hri_module_linear *linear, hri_ten *given) {
  hri_ten *x = hri_module_begins(t, module, name, linear->weight, linear->bias, given), *y;
  if (module->watch && !linear->conv1d) y = hri_aten_linear_function(t, x, linear->weight, linear->bias);
  else y = hri_aten_linear(t, x, linear->weight, linear->bias, !linear->conv1d);
  hri_ten_drop(t, x);
  hri_module_ends(t, module, linear->weight, linear->bias, &y);
  return y;
}

static hri_ten *apply_base(hri_torch *t, const hri_module *module, const char *name, const hri_module_linear *linear,
                           hri_ten *x) {
  if (linear->packed) {
    hri_ten *given = hri_module_begins(t, module, name, linear->weight, linear->bias, x);
    hri_ten *y = hri_bnb_linear(t, linear->packed, given, linear->bias);
    hri_ten_drop(t, given);
    hri_module_ends(t, module, linear->weight, linear->bias, &y);
    return y;
  }
  if (linear->narrow) return hri_bnb8_linear(t, linear->narrow, x, linear->bias);
  return hri_module_apply_whole(t, module, name, linear, x);
}

hri_ten *hri_module_apply(hri_torch *t, const hri_module *module, const char *name, const hri_module_linear *linear,
                          hri_ten *given) {
  hri_ten *x, *y;
  hri_torch_at(t, name, -2);
  if (!linear->a) return apply_base(t, module, name, linear, given);
  x = hri_module_begins(t, module, NULL, NULL, linear->a, given); /* the adapted module, around its base */
  y = apply_base(t, module, name, linear, x);
  y = (linear->packed || linear->narrow ? adapted_quantized : adapted)(t, module, linear, x, y);
  hri_ten_drop(t, x);
  hri_module_ends(t, module, NULL, linear->a, &y);
  return y;
}
