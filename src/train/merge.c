/* Adapters into weights: W + sum of w_i s_i B_i A_i, tensor by tensor of the model's files.
 *
 * Nothing is planned or run here: a tensor is read some rows at a time in the order of its file, as fp32, gets what the
 * adapters add to those rows, is rounded once to the type of its file and written. With A [rank, in] and B [out, rank]
 * row f of what an adapter adds is left[f] * right, where a file with [out, in] has left = B, right = A, and one with
 * [in, out] (gpt2's Conv1D) left = A^T, right = B^T: no weight is ever turned. The sum over the rank is taken from its
 * first entry to its last in fp32, adapters are added in the order in which they are named, so the bits do not depend
 * on pieces; tests/unit/test_merge.c has the same as one readable loop.
 *
 * A tensor that an adapter trained whole (biases, modules_to_save) takes the place of the model's. With DoRA the rows of
 * the sum get the length that was trained, in a second reading of the tensor.
 *
 * Onto dequantized weights, every matrix that --quantize quantizes goes there and back first, whole and as [out, in],
 * for that is the order of its blocks; also those without an adapter, or the result were another function than the one
 * that was trained. */
#include <headroom/merge.h>

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/publish.h"
#include "convert/target.h"
#include "convert/weights.h"
#include "model/adapter.h"
#include "ops/cpu.h"
#include "train/export.h"
#include "train/weights.h"

enum { PIECE_VALUES = 2 << 20, TILE = 256 };

/* ---- what is merged ---- */

typedef struct adapter {
  hr_model model; /* the base with its adapters */
  hri_source source;
  double weight;
  /* of the tensor at hand; NULL: this adapter has none for it */
  float *left, *right; /* [rows of the file, rank]; [rank, stride] */
  uint64_t rank;
  float factor;     /* weight * scale */
  float *magnitude; /* DoRA's [out]; then what it multiplies each of them by */
  float *tuned;     /* a tensor that it trained whole, as its file has it */
} adapter;

typedef struct merge {
  const hr_merge_options *options;
  hr_merge_result *result;
  hr_model model;
  hri_source source;
  hri_carry carry;
  adapter *adapters;
  uint32_t count;
  hri_target target;
  /* the result's tensors, in the order of parameters and parts */
  hri_safetensor *tensors;
  char (*names)[96];
  uint64_t room; /* values of a piece */
  float *values;
  void *raw;
  float *whole; /* of the tensor at hand, when it was quantized: [out, in] */
} merge;

/* One tensor of the model and of its file: [rows, columns] there. */
typedef struct item {
  hri_param_spec spec;
  const hri_param_part *part;
  uint32_t k;     /* which part */
  uint32_t index; /* in the source */
  hri_file_dtype dtype;
  uint64_t rows, columns;
} item;

static void note(const merge *m, const char *text) {
  if (m->options->on_note) m->options->on_note(m->options->context, text);
}

static void item_get(const merge *m, uint32_t param, uint32_t k, item *it) {
  uint64_t shape[2] = {0, 1};
  hri_param_get(&m->model, param, &it->spec);
  it->k = k;
  it->part = &it->spec.parts[k];
  it->index = hri_source_find(&m->source, it->part);
  if (it->index == HRI_SAFETENSORS_NONE && it->spec.slot == HRI_SLOT_HEAD_WEIGHT) { /* untied: the embedding */
    hri_param_spec embedding;
    hri_param_get(&m->model, 0, &embedding);
    it->index = hri_source_find(&m->source, &embedding.parts[0]);
  }
  assert(it->index != HRI_SAFETENSORS_NONE); /* hri_source_open looked for each */
  it->dtype = hri_weights_get(m->source.weights, it->index)->dtype;
  (void)hri_part_shape(&it->spec, it->part, shape);
  it->rows = shape[0];
  it->columns = shape[1];
}

/* The matrices that a job with --quantize quantizes (src/model/build.c). */
static bool is_quantized(const merge *m, const item *it) {
  hri_slot slot = it->spec.slot;
  return m->result->quantize != HR_QUANTIZE_NONE &&
         (slot == HRI_SLOT_QKV_WEIGHT || slot == HRI_SLOT_ATTENTION_OUTPUT_WEIGHT || slot == HRI_SLOT_MLP_IN_WEIGHT ||
          slot == HRI_SLOT_MLP_OUT_WEIGHT);
}

/* ---- A and B ---- */

static hr_status check_finite(const float *values, uint64_t count, const char *path, const char *name,
                              hr_error *error) {
  for (uint64_t i = 0; i < count; i++) {
    if (isfinite(values[i])) continue;
    hri_fail(error, HR_ERROR_INPUT, "%s: element %llu of tensor %s is not finite", path, (unsigned long long)i, name);
    return hri_hint(error, HR_ERROR_INPUT, "the file is damaged or its training diverged; use an earlier one");
  }
  return HR_OK;
}

static hr_status read_whole(const hri_weights *file, const char *name, uint64_t count, float *to, hr_error *error) {
  uint32_t index = hri_weights_find(file, name);
  const hri_safetensor *t;
  void *raw;
  hr_status status;
  if (index == HRI_SAFETENSORS_NONE) {
    hri_fail(error, HR_ERROR_INPUT, "the tensor %s is missing", name);
    return hri_hint(error, HR_ERROR_INPUT,
                    "check that the adapter and the model belong together, or fetch the files anew");
  }
  t = hri_weights_get(file, index);
  raw = hri_alloc(t->end - t->begin);
  if (!raw) return hri_fail_memory(error, t->end - t->begin, name);
  status = hri_weights_read(file, index, 0, t->end - t->begin, raw, error);
  if (status == HR_OK) (void)hri_file_to_f32(t->dtype, to, raw, count);
  hri_free(raw);
  return status == HR_OK ? check_finite(to, count, hri_weights_path(file, index), name, error) : status;
}

/* The same of A or B in a GGUF file, in the order of our rows. */
static hr_status read_gguf(const hri_gguf *file, const hri_gguf_part *part, float *to, hr_error *error) {
  enum { STAGING_BYTES = 1 << 16 };
  uint64_t count = part->rows * part->columns;
  void *staging;
  uint32_t index;
  hr_status status = hri_gguf_part_find(file, part, &index, error);
  if (status != HR_OK) return status;
  staging = hri_alloc(STAGING_BYTES);
  if (!staging) return hri_fail_memory(error, STAGING_BYTES, part->name);
  status = hri_gguf_part_read(file, index, part, 0, part->rows, to, staging, STAGING_BYTES, error);
  hri_free(staging);
  return status == HR_OK ? check_finite(to, count, hri_gguf_path(file), part->name, error) : status;
}

/* to[columns][stride] = the transpose of from[rows][columns]. */
static void turn(float *to, uint64_t stride, const float *from, uint64_t rows, uint64_t columns) {
  for (uint64_t r = 0; r < rows; r++)
    for (uint64_t c = 0; c < columns; c++) to[c * stride + r] = from[r * columns + c];
}

static void spread(float *to, uint64_t stride, const float *from, uint64_t rows, uint64_t columns) {
  for (uint64_t r = 0; r < rows; r++) memcpy(to + r * stride, from + r * columns, columns * sizeof *to);
}

static bool module_of(const item *it, hr_module *module) {
  for (int k = 0; k < HR_MODULE_COUNT; k++) {
    uint32_t part;
    if (it->spec.layer < 0 || hri_module_slot((hr_module)k, &part) != it->spec.slot || part != it->k) continue;
    *module = (hr_module)k;
    return true;
  }
  return false;
}

static uint64_t stride_of(const item *it) { return hri_round_up(it->columns, TILE); }

static void drop_shares(merge *m) {
  for (uint32_t i = 0; i < m->count; i++) {
    adapter *one = &m->adapters[i];
    hri_free(one->left);
    hri_free(one->right);
    hri_free(one->magnitude);
    hri_free(one->tuned);
    one->left = one->right = one->magnitude = one->tuned = NULL;
  }
}

/* A or B (`b`) of a module, [rows, columns]. */
static hr_status read_half(const item *it, const adapter *one, hr_module module, bool b, uint64_t rows,
                           uint64_t columns, float *to, hr_error *error) {
  hri_gguf_part part;
  char name[96], whole[128];
  if (one->source.adapter_gguf) {
    hri_gguf_adapter_part(&one->model, module, it->spec.layer, b, rows, columns, &part);
    return read_gguf(one->source.adapter_gguf, &part, to, error);
  }
  (void)hri_module_name(&one->model, module, it->spec.layer, name);
  (void)snprintf(whole, sizeof whole, "base_model.model.%.64s.lora_%c.weight", name, b ? 'B' : 'A');
  return read_whole(one->source.adapter, whole, rows * columns, to, error);
}

/* `a` [rank, in] and `b` [out, rank] into left and right. */
static hr_status take_share(const item *it, adapter *one, hr_module module, float *a, float *b, hr_error *error) {
  uint64_t rank = one->rank, stride = stride_of(it);
  uint64_t in = it->part->transposed ? it->rows : it->columns, out = it->part->transposed ? it->columns : it->rows;
  char name[96], whole[128];
  HRI_TRY(read_half(it, one, module, false, rank, in, a, error));
  HRI_TRY(read_half(it, one, module, true, out, rank, b, error));
  (void)hri_module_name(&one->model, module, it->spec.layer, name);
  (void)snprintf(whole, sizeof whole, "base_model.model.%.64s.lora_magnitude_vector", name);
  if (one->magnitude) HRI_TRY(read_whole(one->source.adapter, whole, out, one->magnitude, error));
  if (it->part->transposed) {
    turn(one->left, rank, a, rank, in);
    turn(one->right, stride, b, out, rank);
  } else {
    memcpy(one->left, b, out * rank * sizeof *b);
    spread(one->right, stride, a, rank, in);
  }
  return HR_OK;
}

/* A tensor that the adapter trained whole. */
static hr_status take_tuned(const item *it, adapter *one, bool *any, hr_error *error) {
  uint64_t values = it->rows * it->columns;
  char name[96];
  if (!hri_part_tuned(&one->model, &it->spec, it->part, name)) return HR_OK;
  one->tuned = hri_alloc(values * sizeof *one->tuned);
  if (!one->tuned) return hri_fail_memory(error, values * sizeof *one->tuned, name);
  *any = true;
  return read_whole(one->source.adapter, name, values, one->tuned, error);
}

static hr_status take_pair(const item *it, hr_module module, adapter *one, hr_error *error) {
  const hr_lora *lora = &one->model.lora;
  uint64_t rank = hri_lora_rank(lora, it->spec.layer, module), values = rank * (it->rows + it->columns),
           out = it->part->transposed ? it->columns : it->rows;
  char name[96];
  float *both = hri_alloc(values * sizeof *both);
  hr_status status;
  (void)hri_module_name(&one->model, module, it->spec.layer, name);
  one->rank = rank;
  one->factor = (float)(one->weight * hri_lora_scale(lora, it->spec.layer, module));
  one->left = hri_alloc(it->rows * rank * sizeof *both);
  one->right = hri_alloc_zero(rank * stride_of(it), sizeof *both);
  if (lora->dora) one->magnitude = hri_alloc(out * sizeof *both);
  if (both && one->left && one->right && (!lora->dora || one->magnitude))
    status = take_share(it, one, module, both, both + rank * (it->part->transposed ? it->rows : it->columns), error);
  else status = hri_fail_memory(error, 2 * values * sizeof *both, name);
  hri_free(both);
  return status;
}

/* The embedding's: a file with [in, out], as gpt2's are. */
static hr_status take_embedding(const item *it, adapter *one, hr_error *error) {
  uint64_t rank = hri_lora_embedding_rank(&one->model.lora), values = rank * (it->rows + it->columns);
  float *both = hri_alloc(values * sizeof *both), *b = both ? both + rank * it->rows : NULL;
  char name[96], whole[128];
  hr_status status;
  one->rank = rank;
  one->factor = (float)(one->weight * hri_lora_embedding_scale(&one->model.lora));
  one->left = hri_alloc(it->rows * rank * sizeof *both);
  one->right = hri_alloc_zero(rank * stride_of(it), sizeof *both);
  hri_embedding_name(&one->model, name);
  status = both && one->left && one->right ? HR_OK : hri_fail_memory(error, 2 * values * sizeof *both, name);
  (void)snprintf(whole, sizeof whole, "base_model.model.%.64s.lora_embedding_A", name);
  if (status == HR_OK) status = read_whole(one->source.adapter, whole, rank * it->rows, both, error);
  (void)snprintf(whole, sizeof whole, "base_model.model.%.64s.lora_embedding_B", name);
  if (status == HR_OK) status = read_whole(one->source.adapter, whole, it->columns * rank, b, error);
  if (status == HR_OK) {
    turn(one->left, rank, both, rank, it->rows);
    turn(one->right, stride_of(it), b, it->columns, rank);
  }
  hri_free(both);
  return status;
}

/* Rows are brought to a length that one adapter trained: with another share beside its own, or a part of it, they have
 * none. */
static hr_status check_lengths(const merge *m, const item *it, hr_error *error) {
  uint32_t shares = 0;
  const adapter *dora = NULL;
  for (uint32_t i = 0; i < m->count; i++) {
    shares += m->adapters[i].left != NULL;
    if (m->adapters[i].magnitude) dora = &m->adapters[i];
  }
  if (!dora || (shares == 1 && dora->weight == 1)) return HR_OK;
  hri_fail(
      error, HR_ERROR_UNSUPPORTED,
      "%s: %s is a DoRA adapter's, which is merged whole and alone: with other adapters of this tensor, or a weight "
      "of %g, its rows have no length that was trained",
      dora->model.adapter, it->part->name, dora->weight);
  return hri_hint(error, HR_ERROR_UNSUPPORTED, "merge it first, with weight 1, and the others into the result");
}

/* Reads what the adapters have for a tensor; *any: one of them has something. */
static hr_status take_shares(merge *m, const item *it, bool *any, hr_error *error) {
  hr_module module = HR_MODULE_Q;
  bool linear = module_of(it, &module);
  *any = false;
  drop_shares(m);
  for (uint32_t i = 0; i < m->count; i++) {
    adapter *one = &m->adapters[i];
    HRI_TRY(take_tuned(it, one, any, error));
    if (it->spec.slot == HRI_SLOT_TOKEN_EMBEDDING && one->model.lora.embedding) {
      HRI_TRY(take_embedding(it, one, error));
      *any = true;
    }
    if (!linear || !hri_module_is_adapted(&one->model, it->spec.layer, module)) continue;
    HRI_TRY(take_pair(it, module, one, error));
    *any = true;
  }
  return check_lengths(m, it, error);
}

/* values[row .. row + count) += factor * left * right. Tiles of columns keep `right` in the cache; their width is a
 * constant so that the inner loop is vectors of the level that everything is compiled for. */
static void add_share(const adapter *one, const item *it, float *values, uint64_t row, uint64_t count) {
  uint64_t rank = one->rank, stride = stride_of(it);
  for (uint64_t begin = 0; begin < it->columns; begin += TILE) {
    uint64_t width = it->columns - begin < TILE ? it->columns - begin : TILE;
    for (uint64_t f = 0; f < count; f++) {
      float sum[TILE] = {0}, *to = values + f * it->columns + begin;
      for (uint64_t r = 0; r < rank; r++) {
        const float left = one->left[(row + f) * rank + r], *right = one->right + r * stride + begin;
        for (int g = 0; g < TILE; g++) sum[g] += left * right[g];
      }
      for (uint64_t g = 0; g < width; g++) to[g] += one->factor * sum[g];
    }
  }
}

/* Tensors that were trained whole: base + sum of w_i (t_i - base), which is t where there is one with weight 1. */
static void add_tuned(const merge *m, const item *it, float *values, uint64_t row, uint64_t count) {
  uint64_t first = row * it->columns, last = first + count * it->columns;
  const adapter *only = NULL;
  uint32_t have = 0;
  for (uint32_t i = 0; i < m->count; i++)
    if (m->adapters[i].tuned) have++, only = &m->adapters[i];
  if (have == 0) return;
  for (uint64_t k = first; k < last; k++) {
    double base = values[k - first], sum = base;
    for (uint32_t i = 0; i < m->count; i++)
      if (m->adapters[i].tuned) sum += m->adapters[i].weight * (m->adapters[i].tuned[k] - base);
    values[k - first] = have == 1 && only->weight == 1 ? only->tuned[k] : (float)sum;
  }
}

static adapter *with_magnitude(const merge *m) {
  for (uint32_t i = 0; i < m->count; i++)
    if (m->adapters[i].magnitude) return &m->adapters[i];
  return NULL;
}

/* Scales rows of [out, in] by what take_lengths found. */
static void scale_rows(const adapter *one, const item *it, float *values, uint64_t row, uint64_t count) {
  for (uint64_t f = 0; f < count; f++)
    for (uint64_t c = 0; c < it->columns; c++)
      values[f * it->columns + c] *= one->magnitude[it->part->transposed ? c : row + f];
}

/* ---- through quantized weights ---- */

typedef struct quantized {
  uint8_t *codes;
  void *absmax;
  float *nested, *scratch;
} quantized;

static void quantized_deinit(quantized *q) {
  hri_free(q->codes);
  hri_free(q->absmax);
  hri_free(q->nested);
  hri_free(q->scratch);
}

static hr_status read_values(merge *m, const item *it, uint64_t row, uint64_t count, hr_error *error) {
  uint64_t each = hri_file_dtype_bits(it->dtype) / 8, values = count * it->columns;
  hr_status status;
  HRI_TRY(hri_weights_read(m->source.weights, it->index, row * it->columns * each, values * each, m->raw, error));
  (void)hri_file_to_f32(it->dtype, m->values, m->raw, values);
  status = hri_convert_check_values(m->values, values, HRI_GGML_F32, it->part->name, error);
  return status == HR_OK ? status : hri_context(error, status, "%s: ", hri_weights_path(m->source.weights, it->index));
}

/* The values that are quantized to m->whole, as [out, in]: in fp32, which holds those of every file as they are. */
static hr_status read_to_quantize(merge *m, const item *it, hr_error *error) {
  uint64_t step = m->room / it->columns;
  for (uint64_t row = 0; row < it->rows; row += step) {
    uint64_t count = it->rows - row < step ? it->rows - row : step;
    HRI_TRY(read_values(m, it, row, count, error));
    if (!it->part->transposed) {
      memcpy(m->whole + row * it->columns, m->values, count * it->columns * sizeof *m->whole);
      continue;
    }
    for (uint64_t f = 0; f < count; f++)
      for (uint64_t c = 0; c < it->columns; c++) m->whole[c * it->rows + row + f] = m->values[f * it->columns + c];
  }
  return HR_OK;
}

static hr_status there_and_back(merge *m, const item *it, const hri_quant_layout *layout, quantized *q,
                                hr_error *error) {
  uint32_t kind = (uint32_t)m->result->quantize;
  hri_cpu_kernels kernels = {0};
  hri_quant_args args = {.kind = kind,
                         .layout = layout,
                         .real = HRI_REAL_F32,
                         .w = m->whole,
                         .codes = q->codes,
                         .absmax = q->absmax,
                         .nested = layout->nested_count ? q->nested : NULL,
                         .scratch = q->scratch};
  int64_t bad;
  hri_quant_kernels_base(&kernels); /* the same bits as on every level */
  HRI_TRY(read_to_quantize(m, it, error));
  bad = kernels.quantize(&args);
  if (bad >= 0) {
    hri_fail(error, HR_ERROR_INPUT, "%s: element %lld of tensor %s, as [out, in], cannot be quantized to %s",
             hri_weights_path(m->source.weights, it->index), (long long)bad, it->part->name,
             hri_quantization_name(kind));
    return hri_hint(error, HR_ERROR_INPUT, "the file is damaged, or it was not trained beside such weights");
  }
  kernels.dequantize(&args);
  return HR_OK;
}

/* Fills m->whole. */
static hr_status requantize(merge *m, const item *it, hr_error *error) {
  uint64_t elements = it->rows * it->columns, out = it->part->transposed ? it->columns : it->rows;
  uint32_t kind = (uint32_t)m->result->quantize;
  hri_quant_layout layout;
  quantized q = {0};
  hr_status status;
  if (!hri_quant_layout_make(kind, &out, NULL, 1, elements / out, &layout))
    return hri_fail(error, HR_ERROR_INTERNAL, "no layout of %s for %s", hri_quantization_name(kind), it->part->name);
  hri_free(m->whole);
  m->whole = hri_alloc(elements * sizeof *m->whole);
  q.codes = hri_alloc(layout.code_bytes);
  q.absmax = hri_alloc(layout.absmax_count * sizeof(float));
  q.nested = hri_alloc(layout.nested_count * sizeof(float));
  q.scratch = hri_alloc(hri_quant_scratch_bytes(kind, &layout));
  if (m->whole && q.codes && q.absmax && q.nested && q.scratch) status = there_and_back(m, it, &layout, &q, error);
  else status = hri_fail_memory(error, 5 * elements, it->part->name);
  quantized_deinit(&q);
  return status;
}

/* Rows of the file from what is held. */
static void take_back(const merge *m, const item *it, uint64_t row, uint64_t count) {
  if (!it->part->transposed) {
    memcpy(m->values, m->whole + row * it->columns, count * it->columns * sizeof *m->values);
    return;
  }
  for (uint64_t f = 0; f < count; f++)
    for (uint64_t c = 0; c < it->columns; c++) m->values[f * it->columns + c] = m->whole[c * it->rows + row + f];
}

/* ---- tensor by tensor ---- */

static hr_status write_rows(merge *m, const item *it, hri_weights_writer *writer, uint32_t at, uint64_t row,
                            uint64_t count, hr_error *error) {
  hri_file_dtype dtype = m->tensors[at].dtype;
  uint64_t each = hri_file_dtype_bits(dtype) / 8, values = count * it->columns;
  HRI_TRY(hri_convert_check_values(m->values, values, hri_move_type(dtype), it->part->name, error));
  (void)hri_file_from_f32(dtype, m->raw, m->values, values);
  return hri_weights_writer_write(writer, at, row * it->columns * each, m->raw, values * each, error);
}

/* Rows of the tensor with what the adapters add. */
static hr_status merge_rows(merge *m, const item *it, bool through, uint64_t row, uint64_t count, hr_error *error) {
  if (through) take_back(m, it, row, count);
  else HRI_TRY(read_values(m, it, row, count, error));
  for (uint32_t i = 0; i < m->count; i++)
    if (m->adapters[i].left) add_share(&m->adapters[i], it, m->values, row, count);
  add_tuned(m, it, m->values, row, count);
  return HR_OK;
}

/* DoRA: magnitudes become m_i / |row i of W + s B A|, before anything is scaled: a file with [in, out] has a row's
 * values in all of its own. A row of zeros stays one. */
static hr_status take_lengths(merge *m, const item *it, bool through, adapter *one, hr_error *error) {
  uint64_t step = m->room / it->columns, out = it->part->transposed ? it->columns : it->rows;
  double *squares = hri_alloc_zero(out, sizeof *squares);
  hr_status status = squares ? HR_OK : hri_fail_memory(error, out * sizeof *squares, "lengths of rows");
  for (uint64_t row = 0; row < it->rows && status == HR_OK; row += step) {
    uint64_t count = it->rows - row < step ? it->rows - row : step;
    status = merge_rows(m, it, through, row, count, error);
    for (uint64_t f = 0; f < count && status == HR_OK; f++)
      for (uint64_t c = 0; c < it->columns; c++) {
        double v = m->values[f * it->columns + c];
        squares[it->part->transposed ? c : row + f] += v * v;
      }
  }
  for (uint64_t o = 0; o < out && status == HR_OK; o++)
    one->magnitude[o] = squares[o] > 0 ? (float)(one->magnitude[o] / sqrt(squares[o])) : 0.0f;
  hri_free(squares);
  return status;
}

static hr_status merge_tensor(merge *m, const item *it, hri_weights_writer *writer, uint32_t at, hr_error *error) {
  uint64_t step = m->room / it->columns;
  bool any, through = is_quantized(m, it);
  adapter *dora;
  HRI_TRY(take_shares(m, it, &any, error));
  m->result->merged_count += any;
  if (through) HRI_TRY(requantize(m, it, error));
  dora = with_magnitude(m);
  if (dora) HRI_TRY(take_lengths(m, it, through, dora, error));
  for (uint64_t row = 0; row < it->rows; row += step) {
    uint64_t count = it->rows - row < step ? it->rows - row : step;
    if (m->options->should_stop && m->options->should_stop(m->options->context))
      return hri_fail(error, HR_ERROR_INTERRUPTED, "stopped on request; nothing was written");
    HRI_TRY(merge_rows(m, it, through, row, count, error));
    if (dora) scale_rows(dora, it, m->values, row, count);
    HRI_TRY(write_rows(m, it, writer, at, row, count, error));
  }
  return HR_OK;
}

static hr_status merge_tensors(merge *m, hri_weights_writer *writer, hr_error *error) {
  for (uint32_t p = 0, at = 0; p < hri_param_count(&m->model); p++) {
    item it;
    item_get(m, p, 0, &it);
    for (uint32_t k = 0, parts = it.spec.part_count; k < parts; k++, at++) {
      item_get(m, p, k, &it);
      HRI_TRY(merge_tensor(m, &it, writer, at, error));
    }
  }
  return HR_OK;
}

/* ---- the files ---- */

static const struct {
  const char *name, *torch;
  hri_file_dtype dtype;
} types[] = {{"f32", "float32", HRI_FILE_F32}, {"f16", "float16", HRI_FILE_F16}, {"bf16", "bfloat16", HRI_FILE_BF16}};
enum { TYPES = sizeof types / sizeof *types };

/* -1: there is no such type, or none was named */
static int type_named(const char *name) {
  for (int k = 0; name && k < TYPES; k++)
    if (strcmp(name, types[k].name) == 0) return k;
  return -1;
}
static int type_with(hri_file_dtype dtype) {
  int k = TYPES - 1;
  while (k > 0 && types[k].dtype != dtype) k--;
  return k;
}

static hr_status list_tensors(merge *m, hr_error *error) {
  uint32_t params = hri_param_count(&m->model), at = 0;
  int type = type_named(m->options->type);
  uint64_t columns = 1;
  m->tensors = hri_alloc_zero((uint64_t)params * HRI_PARAM_PARTS, sizeof *m->tensors);
  m->names = hri_alloc_zero((uint64_t)params * HRI_PARAM_PARTS, sizeof *m->names);
  if (!m->tensors || !m->names)
    return hri_fail_memory(error, (uint64_t)params * HRI_PARAM_PARTS * sizeof *m->tensors, "the list of tensors");
  for (uint32_t p = 0; p < params; p++) {
    item it;
    item_get(m, p, 0, &it);
    for (uint32_t k = 0, parts = it.spec.part_count; k < parts; k++, at++) {
      hri_safetensor *t = &m->tensors[at];
      item_get(m, p, k, &it);
      memcpy(m->names[at], it.part->name, sizeof m->names[at]);
      t->name = m->names[at];
      t->dtype = type >= 0 ? types[type].dtype : m->carry.dtypes ? m->carry.dtypes[at] : m->carry.dtype;
      t->rank = hri_part_shape(&it.spec, it.part, t->shape);
      m->result->data_bytes += it.rows * it.columns * hri_file_dtype_bits(t->dtype) / 8;
      if (it.columns > columns) columns = it.columns;
    }
  }
  m->result->tensor_count = at;
  m->room = PIECE_VALUES > columns ? PIECE_VALUES : columns;
  m->values = hri_alloc(m->room * sizeof *m->values);
  m->raw = hri_alloc(m->room * sizeof *m->values);
  return m->values && m->raw ? HR_OK : hri_fail_memory(error, 2 * m->room * sizeof *m->values, "pieces of weights");
}

static hr_status write_weights(merge *m, hr_error *error) {
  bool alike = !m->options->type; /* else files have other sizes than the model's */
  hri_weights_layout layout = {.max_shard_bytes = HRI_SHARD_BYTES,
                               .shard_of = alike ? m->carry.shard_of : NULL,
                               .shard_count = alike ? m->carry.shard_count : 0,
                               .metadata = m->carry.metadata,
                               .metadata_count = m->carry.metadata_count};
  hri_weights_writer *writer = NULL;
  hr_status status = hri_publish_room(m->target.made, m->result->data_bytes, error);
  if (status == HR_OK)
    status = hri_weights_writer_open_as(m->target.made, m->tensors, m->result->tensor_count, &layout, &writer, error);
  if (status != HR_OK) return status;
  status = merge_tensors(m, writer, error);
  if (status == HR_OK) return hri_weights_writer_finish(writer, NULL, error);
  hri_weights_writer_abort(writer);
  return status;
}

/* What cannot be taken over from the model's directory is told, and costs nobody the weights. */
static hr_status told(const merge *m, hr_status status, const hr_error *own, hr_error *error) {
  if (status == HR_ERROR_INPUT || status == HR_ERROR_UNSUPPORTED) {
    note(m, own->message);
    return HR_OK;
  }
  if (status != HR_OK && error) *error = *own;
  return status;
}

static hr_status write_files(merge *m, hr_error *error) {
  int type = type_named(m->options->type);
  hr_error own = {0};
  if (type < 0) type = type_with(m->carry.dtype);
  (void)snprintf(m->result->type, sizeof m->result->type, "%s", types[type].name);
  HRI_TRY(told(m, hri_export_config(&m->model, types[type].torch, m->target.made, NULL, &own), &own, error));
  HRI_TRY(told(m, hri_export_companions(&m->model, m->model.directory, m->target.made, NULL, &own), &own, error));
  HRI_TRY(write_weights(m, error));
  return hri_dir_sync(m->target.made, error);
}

static void tell_kept(const merge *m) {
  char text[2 * PATH_MAX + 128];
  (void)snprintf(m->result->kept, sizeof m->result->kept, "%s", m->target.kept);
  if (!m->target.kept[0]) return;
  (void)snprintf(text, sizeof text,
                 "what stood at %s is kept as %s: it came to hold more than a model, or could not be removed",
                 m->target.named, m->target.kept);
  note(m, text);
}

static hr_status write_target(merge *m, hr_error *error) {
  hr_status status = hri_target_begin(&m->target, error);
  if (status == HR_OK) status = write_files(m, error);
  if (status == HR_OK) status = hri_target_publish(&m->target, error);
  tell_kept(m);
  hri_target_end(&m->target);
  return hri_target_failed(&m->target, status, error);
}

/* ---- model and adapters ---- */

static hr_status open_model(merge *m, const char *model, hr_error *error) {
  if (hri_gguf_is(model)) {
    hri_fail(error, HR_ERROR_UNSUPPORTED, "%s is a GGUF file, and adapters are merged into Hugging Face directories",
             model);
    return hri_hint(error, HR_ERROR_UNSUPPORTED, "headroom convert %.150s DIRECTORY makes one", model);
  }
  HRI_TRY(hr_model_open(model, &m->model, error));
  if (m->model.lora.rank > 0) {
    hri_fail(error, HR_ERROR_USAGE, "%s is an adapter, and the model into which it is merged comes before it", model);
    return hri_hint(error, HR_ERROR_USAGE, "headroom merge %.150s %.150s --out DIR", m->model.directory, model);
  }
  if (!m->model.has_weights) {
    hri_fail(error, HR_ERROR_INPUT, "%s holds no weights", model);
    return hri_hint(error, HR_ERROR_INPUT, "name the directory of the model beside which the adapter was trained");
  }
  if (m->model.quantization != HR_QUANTIZE_NONE) {
    hri_fail(error, HR_ERROR_INPUT, "%s is quantized, and adapters are merged into the weights that it was made of",
             model);
    return hri_hint(error, HR_ERROR_INPUT,
                    "name the model that is not quantized; --onto dequantized says as which kind");
  }
  HRI_TRY(hri_source_open(&m->source, &m->model, NULL, NULL, NULL, NULL, 0, error));
  return hri_carry_take(&m->carry, &m->source, error);
}

/* A head that was tied to the embedding and is not any more is the model's last tensor, beside the embedding in type and
 * file. */
static void untie(merge *m) {
  uint32_t at = 0;
  if (!m->model.tied_embeddings) return;
  for (uint32_t p = 0; p < hri_param_count(&m->model); p++) {
    hri_param_spec spec;
    hri_param_get(&m->model, p, &spec);
    at += spec.part_count;
  }
  if (m->carry.dtypes) m->carry.dtypes[at] = m->carry.dtypes[0]; /* room is there: a list has that of one more */
  if (m->carry.shard_of) m->carry.shard_of[at] = m->carry.shard_of[0];
  m->model.tied_embeddings = false;
}

/* An adapter fits every model of its shapes, but is meant for one. */
static void compare_base(const merge *m, const char *directory) {
  char base[1024], named[PATH_MAX], used[PATH_MAX], text[2 * PATH_MAX + 256];
  if (hri_adapter_base(directory, base, NULL) != HR_OK || !realpath(base, named) ||
      !realpath(m->model.directory, used) || strcmp(named, used) == 0)
    return;
  (void)snprintf(text, sizeof text, "%.1000s says that it belongs to %.1000s, and is merged into %.1000s", directory,
                 named, used);
  note(m, text);
}

static hr_status open_adapter(merge *m, uint32_t i, const char *directory, hr_error *error) {
  adapter *one = &m->adapters[i];
  double weight = m->options->weights ? m->options->weights[i] : 1;
  one->model = m->model;
  HRI_TRY(hri_adapter_open(directory, &one->model, error));
  one->model.has_weights = false; /* they are open already */
  HRI_TRY(hri_source_open(&one->source, &one->model, NULL, NULL, NULL, NULL, 0, error));
  HRI_TRY(hri_source_check_embedding(&one->source, &m->source, error));
  one->weight = weight;
  if (!isfinite((float)(weight * one->model.lora.alpha))) {
    hri_fail(error, HR_ERROR_USAGE, "%s: a weight of %g makes no factor", directory, weight);
    return hri_hint(error, HR_ERROR_USAGE, "give a finite number in --weights");
  }
  compare_base(m, directory);
  return HR_OK;
}

/* The kind of weights beside which an adapter was trained, as far as its file says. */
static hr_quantize trained_beside(const adapter *one) {
  const char *text;
  hri_quantization kind;
  if (!one->source.adapter) return HR_QUANTIZE_NONE; /* GGUF has no place for it */
  text = hri_safetensors_metadata_find(hri_weights_file(one->source.adapter, 0), HRI_QUANTIZATION_KEY);
  return text && hri_quantization_parse(text, &kind) ? (hr_quantize)kind : HR_QUANTIZE_NONE;
}

static hr_status refuse_kind(const merge *m, uint32_t i, hr_quantize wanted, hr_quantize has, hr_error *error) {
  hri_fail(error, HR_ERROR_USAGE, "%s was trained beside %s weights, not %s", m->adapters[i].model.adapter,
           hri_quantization_name((uint32_t)has), hri_quantization_name((uint32_t)wanted));
  return hri_hint(error, HR_ERROR_USAGE, "leave --quantize away, or merge onto the original weights");
}

/* A directory has no blocks. */
static hr_status refuse_kept(hr_error *error) {
  hri_fail(
      error, HR_ERROR_USAGE,
      "--onto dequantized: what --quantize keep keeps are the blocks of a GGUF file, which a directory does not have");
  return hri_hint(
      error, HR_ERROR_USAGE,
      "headroom convert FILE.gguf DIRECTORY --type f32 writes their values; merge onto those as the original");
}

static void tell_kept_blocks(const merge *m, uint32_t i) {
  char text[2600];
  (void)
      snprintf(text, sizeof text,
               "%.1000s was trained beside the blocks of a GGUF file; merged onto %.1000s it is the function that was "
               "trained where that holds the file's values (headroom convert FILE.gguf DIRECTORY --type f32)",
               m->adapters[i].model.adapter, m->model.directory);
  note(m, text);
}

static void tell_difference(const merge *m, uint32_t i, hr_quantize has) {
  char text[1600];
  if (has == HR_QUANTIZE_KEEP) {
    tell_kept_blocks(m, i);
    return;
  }
  (void)
      snprintf(text, sizeof text,
               "%.1000s was trained beside %s weights and is merged onto the original ones, which is another function "
               "by what quantizing lost; --onto dequantized gives the one that was trained",
               m->adapters[i].model.adapter, hri_quantization_name((uint32_t)has));
  note(m, text);
}

/* Which quantization the weights go through: what was asked for, and what the adapters say. */
static hr_status choose_kind(merge *m, hr_error *error) {
  hr_quantize kind = m->options->quantize;
  for (uint32_t i = 0; i < m->count; i++) {
    hr_quantize has = trained_beside(&m->adapters[i]);
    if (has == HR_QUANTIZE_NONE) continue;
    if (!m->options->dequantized) tell_difference(m, i, has);
    else if (kind == HR_QUANTIZE_NONE) kind = has;
    else if (kind != has) return refuse_kind(m, i, kind, has, error);
  }
  if (m->options->dequantized && kind == HR_QUANTIZE_KEEP) return refuse_kept(error);
  m->result->quantize = m->options->dequantized ? kind : HR_QUANTIZE_NONE;
  m->result->trained = m->options->dequantized ? kind : trained_beside(&m->adapters[0]);
  if (!m->options->dequantized || kind != HR_QUANTIZE_NONE) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "no adapter says beside which quantized weights it was trained");
  return hri_hint(error, HR_ERROR_USAGE, "--onto dequantized --quantize nf4, or the kind that it was");
}

static hr_status check_options(const merge *m, const char *const *adapters, uint32_t count, hr_error *error) {
  if (count == 0) {
    hri_fail(error, HR_ERROR_USAGE, "no adapter to merge is named");
    return hri_hint(error, HR_ERROR_USAGE, "headroom merge MODEL ADAPTER... --out DIR");
  }
  for (uint32_t i = 0; i < count; i++)
    if (!adapters[i]) {
      hri_fail(error, HR_ERROR_USAGE, "adapter %u of %u is NULL", i, count);
      return hri_hint(error, HR_ERROR_USAGE, "give as many adapters as their count says");
    }
  if ((unsigned)m->options->quantize >= HRI_QUANTIZATION_COUNT) {
    hri_fail(error, HR_ERROR_USAGE, "--quantize has no value %u", (unsigned)m->options->quantize);
    return hri_hint(error, HR_ERROR_USAGE, "take a value of hr_quantize");
  }
  if (m->options->type && type_named(m->options->type) < 0) {
    hri_fail(error, HR_ERROR_USAGE, "the type '%.40s' cannot be written to a Hugging Face directory", m->options->type);
    return hri_hint(error, HR_ERROR_USAGE, "f32, f16 and bf16 can");
  }
  if (!m->options->dequantized && m->options->quantize != HR_QUANTIZE_NONE) {
    hri_fail(error, HR_ERROR_USAGE,
             "--quantize says how weights were quantized that are dequantized again, and the "
             "merge is onto the original ones");
    return hri_hint(error, HR_ERROR_USAGE, "--onto dequantized --quantize %s",
                    hri_quantization_name((uint32_t)m->options->quantize));
  }
  return HR_OK;
}

static hr_status check_target(merge *m, const char *model, const char *const *adapters, uint32_t count,
                              const char *target, hr_error *error) {
  if (!*target) {
    hri_fail(error, HR_ERROR_USAGE, "the target has no name");
    return hri_hint(error, HR_ERROR_USAGE, "name a directory: --out DIR");
  }
  HRI_TRY(hri_target_init(&m->target, target, true, m->options->replace, error));
  if (!m->options->replace) return HR_OK;
  HRI_TRY(hri_target_spares(target, model, error));
  for (uint32_t i = 0; i < count; i++) HRI_TRY(hri_target_spares(target, adapters[i], error));
  return HR_OK;
}

static void merge_deinit(merge *m) {
  drop_shares(m);
  for (uint32_t i = 0; i < m->count; i++) hri_source_close(&m->adapters[i].source);
  hri_source_close(&m->source);
  hri_carry_deinit(&m->carry);
  hri_free(m->adapters);
  hri_free(m->tensors);
  hri_free(m->names);
  hri_free(m->values);
  hri_free(m->raw);
  hri_free(m->whole);
}

void hr_merge_options_init(hr_merge_options *options) { *options = (hr_merge_options){0}; }

hr_status hr_merge(const char *model, const char *const *adapters, uint32_t count, const char *target,
                   const hr_merge_options *options, hr_merge_result *result, hr_error *error) {
  hr_merge_options none;
  hr_merge_result unused;
  merge m = {.options = options ? options : &none, .result = result ? result : &unused};
  hr_status status = HR_OK;
  hr_merge_options_init(&none);
  memset(m.result, 0, sizeof *m.result);
  HRI_TRY_OUT(check_options(&m, adapters, count, error));
  HRI_TRY_OUT(check_target(&m, model, adapters, count, target, error));
  HRI_TRY_OUT(open_model(&m, model, error));
  m.result->parameter_count = hr_model_parameter_count(&m.model);
  m.adapters = hri_alloc_zero(count, sizeof *m.adapters);
  if (!m.adapters) {
    status = hri_fail_memory(error, count * sizeof *m.adapters, "the list of adapters");
    goto out;
  }
  m.count = count;
  for (uint32_t i = 0; i < count; i++) HRI_TRY_OUT(open_adapter(&m, i, adapters[i], error));
  for (uint32_t i = 0; i < count; i++)
    if (hri_lora_unties(&m.adapters[i].model) || m.adapters[i].model.lora.embedding) untie(&m);
  HRI_TRY_OUT(choose_kind(&m, error));
  HRI_TRY_OUT(list_tensors(&m, error));
  status = write_target(&m, error);
out:
  merge_deinit(&m);
  return status;
}
