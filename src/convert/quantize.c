/* Quantizing a directory's weights as bitsandbytes stores them, one tensor at a time: a matrix is held in fp32, and what
 * becomes of it. Everything else is copied as it is. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/publish.h"
#include "convert/bnb.h"
#include "convert/weights.h"
#include "ops/quant/ref.h"

enum { PIECE_BYTES = 8 << 20 };
#define SHARD_BYTES 5000000000u /* decimal, as huggingface_hub */

/* One tensor of the source. */
typedef struct item {
  char name[128];
  uint32_t index;           /* in the source */
  uint32_t first;           /* of what it becomes, in the list for the writer */
  uint64_t rows, columns;   /* [out, in] */
  bool transposed;          /* in the source */
  hri_bnb_entries *entries; /* NULL: copied */
} item;

typedef struct quantizer {
  const hri_convert_source *source;
  uint32_t kind, count;
  item *items;
  HRI_ARRAY(hri_safetensor) tensors;
  uint64_t most; /* elements of the largest matrix that is quantized */
  float *values, *row, *nested, *scratch;
  unsigned char *raw;
  uint8_t *codes;
  void *absmax;
} quantizer;

static hr_status list_items(quantizer *q, hr_error *error) {
  const hr_model *model = q->source->model;
  uint32_t params = hri_param_count(model);
  q->items = hri_alloc_zero((size_t)params * HRI_PARAM_PARTS, sizeof *q->items);
  if (!q->items) return hri_fail_memory(error, params * sizeof *q->items, "the list of tensors");
  for (uint32_t p = 0; p < params; p++) {
    hri_param_spec spec;
    hri_param_get(model, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++) {
      item *to = &q->items[q->count++];
      (void)snprintf(to->name, sizeof to->name, "%s", spec.parts[k].name);
      to->index = hri_convert_find(q->source, to->name);
      if (to->index == HRI_SAFETENSORS_NONE)
        return hri_fail(error, HR_ERROR_INPUT, "the tensor %s is missing", to->name);
      to->rows = spec.parts[k].rows;
      to->columns = spec.rank == 2 ? spec.dims[1] : 1;
      to->transposed = spec.parts[k].transposed;
      if (!hri_param_quantizes(model, &spec)) continue;
      to->entries = hri_alloc_zero(1, sizeof *to->entries);
      if (!to->entries) return hri_fail_memory(error, sizeof *to->entries, to->name);
      if (to->rows * to->columns > q->most) q->most = to->rows * to->columns;
    }
  }
  return HR_OK;
}

/* Sizes that hold for each matrix: a scale for each row or block at most, and the blocks of those and their mean. */
static hr_status make_room(quantizer *q, hr_error *error) {
  uint64_t longest = 1, scales = 1;
  for (uint32_t i = 0; i < q->count; i++) {
    const item *t = &q->items[i];
    uint64_t blocks = t->rows * t->columns / HRI_QUANT_BLOCK + 1;
    if (!t->entries) continue;
    if (t->rows > longest) longest = t->rows;
    if (t->columns > longest) longest = t->columns;
    if (blocks > scales) scales = blocks;
  }
  if (longest > scales) scales = longest;
  q->values = hri_alloc(q->most * sizeof(float));
  q->row = hri_alloc(longest * sizeof(float));
  q->raw = hri_alloc(longest * sizeof(float) > PIECE_BYTES ? longest * sizeof(float) : PIECE_BYTES);
  q->codes = hri_alloc(q->most + 1);
  q->absmax = hri_alloc(scales * sizeof(float));
  q->scratch = hri_alloc(scales * sizeof(float));
  q->nested = hri_alloc((scales / HRI_QUANT_NESTED_BLOCK + 2) * sizeof(float));
  if (q->values && q->row && q->raw && q->codes && q->absmax && q->scratch && q->nested) return HR_OK;
  return hri_fail_memory(error, q->most * (sizeof(float) + 1), "the largest matrix");
}

static void end(quantizer *q) {
  for (uint32_t i = 0; i < q->count; i++) hri_free(q->items[i].entries);
  hri_free(q->items);
  hri_array_free(&q->tensors);
  hri_free(q->values);
  hri_free(q->row);
  hri_free(q->raw);
  hri_free(q->codes);
  hri_free(q->absmax);
  hri_free(q->scratch);
  hri_free(q->nested);
}

/* int8 goes through F16, as in bitsandbytes. */
static hr_status check_values(const quantizer *q, const item *t, hr_error *error) {
  const float limit = hri_quant_is_4bit(q->kind) ? INFINITY : 65520.0f;
  for (uint64_t i = 0; i < t->rows * t->columns; i++) {
    if (fabsf(q->values[i]) < limit) continue;
    hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has %g at row %llu, column %llu, which has no code in %s",
             hri_weights_path(q->source->weights, t->index), t->name, (double)q->values[i],
             (unsigned long long)(i / t->columns), (unsigned long long)(i % t->columns),
             hri_quantization_name(q->kind));
    return hri_hint(error, HR_ERROR_INPUT, "the model is damaged, or its training diverged; use an earlier one");
  }
  return HR_OK;
}

/* The whole matrix as [out, in], row by row of the file. */
static hr_status read_matrix(quantizer *q, const item *t, hr_error *error) {
  hri_file_dtype dtype = hri_weights_get(q->source->weights, t->index)->dtype;
  uint64_t rows = t->transposed ? t->columns : t->rows, columns = t->transposed ? t->rows : t->columns,
           bytes = columns * (hri_file_dtype_bits(dtype) / 8);
  for (uint64_t r = 0; r < rows; r++) {
    float *to = t->transposed ? q->row : q->values + r * columns;
    HRI_TRY(hri_weights_read(q->source->weights, t->index, r * bytes, bytes, q->raw, error));
    (void)hri_file_to_f32(dtype, to, q->raw, columns);
    for (uint64_t c = 0; t->transposed && c < columns; c++) q->values[c * rows + r] = to[c];
  }
  return check_values(q, t, error);
}

static hr_status quantize(quantizer *q, const item *t, hri_quant_layout *layout, hr_error *error) {
  bool nested = hri_quant_is_double(q->kind);
  if (!hri_quant_layout_make(q->kind, &t->rows, 1, t->columns, layout))
    return hri_fail(error, HR_ERROR_INPUT, "tensor %s is too large", t->name);
  HRI_TRY(read_matrix(q, t, error));
  hri_ref_quantize(q->kind, q->values, (int64_t)t->rows, (int64_t)t->columns, q->codes, q->absmax,
                   nested ? q->nested : NULL, nested ? q->scratch : NULL);
  return HR_OK;
}

/* What a matrix becomes. The offset of double quantization decides how long one of the tensors is: it is made here, and
 * again when the matrix is written. */
static hr_status describe(quantizer *q, item *t, hr_error *error) {
  hri_bnb_state state = {.kind = q->kind,
                         .dtype = hri_weights_get(q->source->weights, t->index)->dtype,
                         .rows = t->rows,
                         .columns = t->columns};
  hri_quant_layout layout;
  if (hri_quant_is_double(q->kind)) {
    HRI_TRY(quantize(q, t, &layout, error));
    state.offset = q->nested[layout.nested_count - 1];
  }
  return hri_bnb_entries_init(t->entries, t->name, &state, error);
}

static hr_status list_tensors(quantizer *q, uint64_t *data_bytes, hr_error *error) {
  for (uint32_t i = 0; i < q->count; i++) {
    item *t = &q->items[i];
    hri_safetensor plain = *hri_weights_get(q->source->weights, t->index);
    uint32_t count = 1;
    plain.name = t->name;
    if (t->entries) HRI_TRY(describe(q, t, error));
    if (t->entries) count = t->entries->count;
    t->first = (uint32_t)q->tensors.count;
    for (uint32_t k = 0; k < count; k++) {
      hri_safetensor tensor = t->entries ? t->entries->tensors[k] : plain;
      uint64_t elements = 0, bytes = 0;
      if (!hri_array_push(&q->tensors, tensor)) return hri_fail_memory(error, sizeof tensor, "the list of tensors");
      if (hri_file_elements(tensor.rank, tensor.shape, &elements) && hri_file_bytes(tensor.dtype, elements, &bytes))
        *data_bytes += bytes;
    }
  }
  return HR_OK;
}

static hr_status copy(quantizer *q, const item *t, hri_weights_writer *writer, hr_error *error) {
  const hri_safetensor *from = hri_weights_get(q->source->weights, t->index);
  uint64_t bytes = from->end - from->begin;
  for (uint64_t done = 0; done < bytes; done += PIECE_BYTES) {
    uint64_t n = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
    HRI_TRY(hri_weights_read(q->source->weights, t->index, done, n, q->raw, error));
    HRI_TRY(hri_weights_writer_write(writer, t->first, done, q->raw, n, error));
  }
  return HR_OK;
}

static hr_status write_all(quantizer *q, hri_weights_writer *writer, hr_error *error) {
  for (uint32_t i = 0; i < q->count; i++) {
    const item *t = &q->items[i];
    hri_quant_layout layout;
    if (!t->entries) {
      HRI_TRY(copy(q, t, writer, error));
      continue;
    }
    HRI_TRY(quantize(q, t, &layout, error));
    HRI_TRY(hri_bnb_write(writer, t->first, t->entries, q->codes, q->absmax, q->nested, error));
  }
  return HR_OK;
}

hr_status hri_convert_to_quantized(const hri_convert_source *source, const char *directory, uint32_t kind,
                                   uint32_t *tensor_count, uint64_t *data_bytes, hr_error *error) {
  quantizer q = {.source = source, .kind = kind};
  hri_weights_writer *writer = NULL;
  hr_status status = HR_OK;
  *data_bytes = 0;
  HRI_TRY_OUT(list_items(&q, error));
  HRI_TRY_OUT(make_room(&q, error));
  HRI_TRY_OUT(list_tensors(&q, data_bytes, error));
  HRI_TRY_OUT(hri_publish_room(directory, *data_bytes, error));
  HRI_TRY_OUT(
      hri_weights_writer_open(directory, q.tensors.items, (uint32_t)q.tensors.count, SHARD_BYTES, &writer, error));
  HRI_TRY_OUT(write_all(&q, writer, error));
  *tensor_count = (uint32_t)q.tensors.count;
  status = hri_weights_writer_finish(writer, NULL, error);
  writer = NULL;
  if (status == HR_OK) status = hri_dir_sync(directory, error);
out:
  hri_weights_writer_abort(writer);
  end(&q);
  return status;
}
