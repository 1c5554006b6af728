/* Quantized tensors of bitsandbytes' files to our layout and back: what belongs to a weight is found by name, checked, and copied
 * as it is. */
#include "convert/bnb.h"

#include <math.h>
#include <string.h>

enum { STATE_BYTES = 4096 }; /* most of a quant_state: real ones have 80 to 180 */

/* ---- reading ---- */

typedef struct search {
  const hri_weights *weights;
  const char *name; /* of the weight */
  hri_bnb_weight *out;
  hr_error *error;
} search;

static hr_status refuse(const search *s, uint32_t index, const char *what) {
  const hri_safetensor *t = hri_weights_get(s->weights, index);
  hri_fail(s->error, HR_ERROR_INPUT, "%s: tensor %.200s %s", hri_weights_path(s->weights, index), t->name, what);
  return hri_hint(s->error, HR_ERROR_INPUT,
                  "save the model with bitsandbytes 0.43 or later, or use the unquantized one");
}

/* A tensor beside the weight, of a type and number of elements, whatever its shape; `elements` 0: any number. */
static hr_status beside(const search *s, hri_bnb_tensor which, hri_file_dtype dtype, uint64_t elements,
                        uint32_t *index) {
  char name[HRI_BNB_NAME_BYTES];
  const hri_safetensor *t;
  uint64_t found;
  if (!hri_bnb_name(s->out->kind, s->name, which, name)) return refuse(s, s->out->weight, "has too long a name");
  *index = hri_weights_find(s->weights, name);
  if (*index == HRI_SAFETENSORS_NONE) {
    hri_fail(s->error, HR_ERROR_INPUT, "%s: tensor %.200s is missing beside %.200s",
             hri_weights_path(s->weights, s->out->weight), name, s->name);
    return hri_hint(s->error, HR_ERROR_INPUT, "the checkpoint is incomplete; fetch it again");
  }
  t = hri_weights_get(s->weights, *index);
  if (t->dtype != dtype) return refuse(s, *index, "has another type than bitsandbytes gives it");
  if (elements && (!hri_file_elements(t->rank, t->shape, &found) || found != elements))
    return refuse(s, *index, "has another number of elements than its weight needs");
  return HR_OK;
}

static hr_status read_all(const search *s, uint32_t index, void *to, uint64_t bytes) {
  return hri_weights_read(s->weights, index, 0, bytes, to, s->error);
}

static hr_status check_map(const search *s, hri_bnb_tensor which, const float *map, uint32_t count) {
  float found[HRI_QUANT_MAP];
  uint32_t index;
  HRI_TRY(beside(s, which, HRI_FILE_F32, count, &index));
  HRI_TRY(read_all(s, index, found, count * sizeof *found));
  for (uint32_t i = 0; i < count; i++)
    if (!(fabsf(found[i] - map[i]) <= 0x1p-20f * fabsf(map[i])))
      return refuse(s, index, "maps codes to other values than its kind does");
  return HR_OK;
}

static hr_status lay_out(const search *s, uint64_t rows, uint64_t columns) {
  if (!hri_quant_layout_make(s->out->kind, &rows, NULL, 1, columns, &s->out->layout))
    return refuse(s, s->out->weight, "is too large");
  return HR_OK;
}

/* The text may be the first to say what the weight is, so it is found by either name. */
static uint32_t find_state(const search *s) {
  static const uint32_t kinds[] = {HRI_QUANTIZATION_NF4, HRI_QUANTIZATION_FP4};
  char name[HRI_BNB_NAME_BYTES];
  for (int i = 0; i < 2; i++) {
    uint32_t index;
    if (!hri_bnb_name(kinds[i], s->name, HRI_BNB_STATE, name)) continue;
    index = hri_weights_find(s->weights, name);
    if (index != HRI_SAFETENSORS_NONE) return index;
  }
  return HRI_SAFETENSORS_NONE;
}

static hr_status find_4bit(const search *s, uint32_t text, uint64_t rows, uint64_t columns) {
  hri_bnb_weight *out = s->out;
  const hri_safetensor *t = hri_weights_get(s->weights, text), *weight = hri_weights_get(s->weights, out->weight);
  char bytes[STATE_BYTES];
  hri_bnb_state state;
  if (t->dtype != HRI_FILE_U8 || t->end - t->begin > sizeof bytes) return refuse(s, text, "is no text of quant_state");
  HRI_TRY(read_all(s, text, bytes, t->end - t->begin));
  HRI_TRY(hri_bnb_state_read(bytes, t->end - t->begin, hri_weights_path(s->weights, text), t->name, &state, s->error));
  if (state.rows != rows || state.columns != columns)
    return refuse(s, text, "says another shape than the model's config does");
  out->kind = state.kind, out->dtype = state.dtype, out->offset = state.offset;
  HRI_TRY(lay_out(s, rows, columns));
  if (weight->end - weight->begin != out->layout.code_bytes)
    return refuse(s, out->weight, "has another number of bytes than its shape needs");
  HRI_TRY(beside(s, HRI_BNB_ABSMAX, hri_quant_is_double(out->kind) ? HRI_FILE_U8 : HRI_FILE_F32,
                 out->layout.absmax_count, &out->absmax));
  HRI_TRY(check_map(s, HRI_BNB_MAP, hri_quant_values(out->kind), HRI_QUANT_VALUES));
  if (!hri_quant_is_double(out->kind)) return HR_OK;
  HRI_TRY(beside(s, HRI_BNB_NESTED_ABSMAX, HRI_FILE_F32, out->layout.nested_count - 1, &out->nested));
  return check_map(s, HRI_BNB_NESTED_MAP, hri_quant_map(), HRI_QUANT_MAP);
}

static hr_status find_int8(const search *s, uint64_t rows, uint64_t columns) {
  hri_bnb_weight *out = s->out;
  const hri_safetensor *weight = hri_weights_get(s->weights, out->weight);
  char name[HRI_BNB_NAME_BYTES];
  uint32_t format = HRI_SAFETENSORS_NONE;
  uint8_t by_rows;
  out->kind = HRI_QUANTIZATION_INT8;
  out->dtype = HRI_FILE_F16;
  if (weight->rank != 2 || weight->shape[0] != rows || weight->shape[1] != columns)
    return refuse(s, out->weight, "has another shape than the model's config says");
  HRI_TRY(lay_out(s, rows, columns));
  HRI_TRY(beside(s, HRI_BNB_ABSMAX, HRI_FILE_F32, rows, &out->absmax));
  if (hri_bnb_name(out->kind, s->name, HRI_BNB_MAP, name)) format = hri_weights_find(s->weights, name);
  if (format == HRI_SAFETENSORS_NONE) return HR_OK; /* files before it was there are by rows */
  HRI_TRY(beside(s, HRI_BNB_MAP, HRI_FILE_U8, 1, &format));
  HRI_TRY(read_all(s, format, &by_rows, 1));
  return by_rows == 0 ? HR_OK : refuse(s, format, "names a layout that only some GPUs had, not rows");
}

hr_status hri_bnb_find(const hri_weights *weights, const char *name, uint64_t rows, uint64_t columns,
                       hri_bnb_weight *out, hr_error *error) {
  search s = {.weights = weights, .name = name, .out = out, .error = error};
  uint32_t text;
  memset(out, 0, sizeof *out);
  out->nested = HRI_SAFETENSORS_NONE;
  out->weight = hri_weights_find(weights, name);
  if (out->weight == HRI_SAFETENSORS_NONE) return HR_OK;
  if (hri_weights_get(weights, out->weight)->dtype == HRI_FILE_I8) return find_int8(&s, rows, columns);
  text = find_state(&s);
  if (text != HRI_SAFETENSORS_NONE) return find_4bit(&s, text, rows, columns);
  if (hri_weights_get(weights, out->weight)->dtype == HRI_FILE_U8)
    return refuse(&s, out->weight, "is of bytes, with no quant_state beside it");
  return HR_OK;
}

hr_status hri_bnb_check_scales(const hri_weights *weights, uint32_t index, const float *scales, uint64_t first,
                               uint64_t count, hr_error *error) {
  for (uint64_t i = 0; i < count; i++)
    if (!isfinite(scales[i]) || scales[i] < 0) {
      hri_fail(error, HR_ERROR_INPUT, "%s: tensor %.200s has %g at %llu, which is no scale",
               hri_weights_path(weights, index), hri_weights_get(weights, index)->name, (double)scales[i],
               (unsigned long long)(first + i));
      return hri_hint(error, HR_ERROR_INPUT, "the checkpoint is damaged; fetch it again");
    }
  return HR_OK;
}

hr_status hri_bnb_read(const hri_weights *weights, const hri_bnb_weight *weight, uint8_t *codes, void *absmax,
                       float *nested, hr_error *error) {
  search s = {.weights = weights, .error = error};
  uint64_t count = weight->layout.absmax_count, blocks;
  HRI_TRY(read_all(&s, weight->weight, codes, weight->layout.code_bytes));
  HRI_TRY(read_all(&s, weight->absmax, absmax, hri_dtype_size(hri_quant_absmax_dtype(weight->kind), count)));
  if (!hri_quant_is_double(weight->kind)) return hri_bnb_check_scales(weights, weight->absmax, absmax, 0, count, error);
  blocks = weight->layout.nested_count - 1;
  HRI_TRY(read_all(&s, weight->nested, nested, blocks * sizeof *nested));
  nested[blocks] = weight->offset;
  return hri_bnb_check_scales(weights, weight->nested, nested, 0, blocks, error);
}

/* ---- writing ---- */

static void describe(hri_bnb_entries *e, hri_bnb_tensor which, hri_file_dtype dtype, uint64_t rows, uint64_t columns) {
  hri_safetensor *t = &e->tensors[e->count];
  *t = (hri_safetensor){.name = e->names[e->count], .dtype = dtype, .rank = (uint32_t)(rows > 0) + (columns > 0)};
  t->shape[0] = rows, t->shape[1] = columns;
  e->which[e->count++] = which;
}

static hr_status describe_4bit(hri_bnb_entries *e, hr_error *error) {
  bool nested = hri_quant_is_double(e->state.kind);
  hri_text text = {0};
  hr_status status = HR_OK;
  hri_bnb_state_put(&text, &e->state);
  if (text.failed) status = hri_fail_memory(error, sizeof e->text, "a quant_state");
  else if (text.length >= sizeof e->text) status = hri_fail(error, HR_ERROR_INTERNAL, "a quant_state is too long");
  else memcpy(e->text, text.chars, text.length + 1);
  hri_text_deinit(&text);
  HRI_TRY(status);
  describe(e, HRI_BNB_WEIGHT, HRI_FILE_U8, e->layout.code_bytes, 1);
  describe(e, HRI_BNB_ABSMAX, nested ? HRI_FILE_U8 : HRI_FILE_F32, e->layout.absmax_count, 0);
  describe(e, HRI_BNB_MAP, HRI_FILE_F32, HRI_QUANT_VALUES, 0);
  if (nested) {
    describe(e, HRI_BNB_NESTED_ABSMAX, HRI_FILE_F32, e->layout.nested_count - 1, 0);
    describe(e, HRI_BNB_NESTED_MAP, HRI_FILE_F32, HRI_QUANT_MAP, 0);
  }
  describe(e, HRI_BNB_STATE, HRI_FILE_U8, strlen(e->text), 0);
  return HR_OK;
}

hr_status hri_bnb_entries_init(hri_bnb_entries *entries, const char *name, const hri_bnb_state *state,
                               hr_error *error) {
  memset(entries, 0, sizeof *entries);
  entries->state = *state;
  if (!hri_quant_layout_make(state->kind, &state->rows, NULL, 1, state->columns, &entries->layout))
    return hri_fail(error, HR_ERROR_INTERNAL, "%.200s cannot be quantized", name);
  if (hri_quant_is_4bit(state->kind)) {
    HRI_TRY(describe_4bit(entries, error));
  } else {
    describe(entries, HRI_BNB_WEIGHT, HRI_FILE_I8, state->rows, state->columns);
    describe(entries, HRI_BNB_ABSMAX, HRI_FILE_F32, state->rows, 0);
    describe(entries, HRI_BNB_MAP, HRI_FILE_U8, 0, 0);
  }
  for (uint32_t i = 0; i < entries->count; i++)
    if (!hri_bnb_name(state->kind, name, entries->which[i], entries->names[i]))
      return hri_fail(error, HR_ERROR_USAGE, "%.200s is no name of a weight that bitsandbytes could store", name);
  return HR_OK;
}

/* The bytes of one. */
static const void *content(const hri_bnb_entries *e, hri_bnb_tensor which, const uint8_t *codes, const void *absmax,
                           const float *nested) {
  static const uint8_t by_rows = 0;
  switch (which) {
  case HRI_BNB_WEIGHT: return codes;
  case HRI_BNB_ABSMAX: return absmax;
  case HRI_BNB_MAP: return hri_quant_is_4bit(e->state.kind) ? (const void *)hri_quant_values(e->state.kind) : &by_rows;
  case HRI_BNB_NESTED_ABSMAX: return nested;
  case HRI_BNB_NESTED_MAP: return hri_quant_map();
  default: return e->text;
  }
}

hr_status hri_bnb_write(hri_weights_writer *writer, uint32_t first, const hri_bnb_entries *entries,
                        const uint8_t *codes, const void *absmax, const float *nested, hr_error *error) {
  for (uint32_t i = 0; i < entries->count; i++) {
    const hri_safetensor *t = &entries->tensors[i];
    uint64_t elements, bytes;
    if (!hri_file_elements(t->rank, t->shape, &elements) || !hri_file_bytes(t->dtype, elements, &bytes))
      return hri_fail(error, HR_ERROR_INTERNAL, "%s is too large", t->name);
    HRI_TRY(hri_weights_writer_write(writer, first + i, 0, content(entries, entries->which[i], codes, absmax, nested),
                                     bytes, error));
  }
  return HR_OK;
}
