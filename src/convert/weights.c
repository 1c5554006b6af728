/* Streaming of weights.
 *
 * Both formats hold the same tensors. A piece is some rows of one tensor, as fp32 and in our orientation [out, in]: it
 * is read, brought into the order of the target and written. Only where a Hugging Face file holds the transpose (gpt2's
 * Conv1D) a whole tensor is held, in the type of the file. */
#include "convert/weights.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/publish.h"
#include "formats/order.h"
#include "model/tied.h"

enum { PIECE_BYTES = 8 << 20 };
#define SHARD_BYTES 5000000000u /* decimal, as huggingface_hub */

/* One tensor of the model. */
typedef struct item {
  uint32_t param, part;
} item;

typedef struct stream {
  const hri_convert_source *source;
  HRI_ARRAY(item) items; /* in the order of llama.cpp's converter: by Hugging Face names, numbers by value */
  float *rows;           /* a piece */
  void *raw;             /* the same as blocks, read or to be written */
  uint64_t room;         /* elements of a piece */
  void *whole;           /* a transposed tensor, in the type of its file */
  hri_blocks blocks;     /* closed where no tensor is in blocks */
} stream;

static void item_get(const stream *s, uint32_t index, hri_param_spec *spec, const hri_param_part **part) {
  hri_param_get(s->source->model, s->items.items[index].param, spec);
  *part = &spec->parts[s->items.items[index].part];
}

static uint64_t columns_of(const hri_param_spec *spec) { return spec->rank == 2 ? spec->dims[1] : 1; }

/* ---- the list of tensors ---- */

/* As strcmp, but runs of digits by their value. */
static int compare_natural(const char *a, const char *b) {
  while (*a && *b) {
    if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
      size_t x = strspn(a, "0123456789"), y = strspn(b, "0123456789");
      int order = x != y ? (x < y ? -1 : 1) : memcmp(a, b, x);
      if (order != 0) return order;
      a += x;
      b += y;
    } else if (*a != *b) {
      return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
    } else {
      a++;
      b++;
    }
  }
  return *a ? 1 : *b ? -1 : 0;
}

static int compare_items(const void *items, uint32_t a, uint32_t b) {
  const stream *s = items;
  hri_param_spec x, y;
  const hri_param_part *p, *q;
  item_get(s, a, &x, &p);
  item_get(s, b, &y, &q);
  return compare_natural(p->name, q->name);
}

static hr_status list_items(stream *s, hr_error *error) {
  uint32_t *order = NULL, count = hri_param_count(s->source->model);
  item *sorted;
  hri_param_spec spec;
  for (uint32_t p = 0; p < count; p++) {
    hri_param_get(s->source->model, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++)
      if (!hri_array_push(&s->items, ((item){p, k})))
        return hri_fail_memory(error, count * sizeof(item), "the list of tensors");
  }
  HRI_TRY(hri_order_make(s, (uint32_t)s->items.count, compare_items, &order, error));
  sorted = hri_alloc(s->items.count * sizeof *sorted);
  if (sorted) {
    for (size_t i = 0; i < s->items.count; i++) sorted[i] = s->items.items[order[i]];
    memcpy(s->items.items, sorted, s->items.count * sizeof *sorted);
  }
  hri_free(order);
  hri_free(sorted);
  return sorted ? HR_OK : hri_fail_memory(error, s->items.count * sizeof *sorted, "the list of tensors");
}

/* A piece has room for a row, for a vector, and for the rows of a head, which change places together. */
static hr_status stream_open(stream *s, const hri_convert_source *source, hr_error *error) {
  uint64_t columns = 1;
  hri_param_spec spec;
  *s = (stream){.source = source};
  for (uint32_t p = 0; p < hri_param_count(source->model); p++) {
    hri_param_get(source->model, p, &spec);
    if (spec.dims[spec.rank - 1] > columns) columns = spec.dims[spec.rank - 1]; /* vectors go in one piece */
  }
  s->room = PIECE_BYTES / sizeof *s->rows;
  if (s->room < columns) s->room = columns;
  if (s->room < (uint64_t)source->model->head_size * source->model->hidden_size)
    s->room = (uint64_t)source->model->head_size * source->model->hidden_size;
  s->rows = hri_alloc(s->room * sizeof *s->rows);
  s->raw = hri_alloc(s->room * sizeof *s->rows + HRI_GGUF_STAGING_LEAST);
  if (!s->rows || !s->raw) return hri_fail_memory(error, 2 * s->room * sizeof *s->rows, "the pieces of a conversion");
  return list_items(s, error);
}

static void stream_close(stream *s) {
  hri_array_free(&s->items);
  hri_free(s->rows);
  hri_free(s->raw);
  hri_free(s->whole);
  hri_blocks_close(&s->blocks);
}

/* ---- the source ---- */

uint32_t hri_convert_find(const hri_convert_source *s, const char *name) {
  char variant[128];
  for (uint32_t v = 0; hri_param_variant(s->model, name, v, variant); v++) {
    uint32_t index = hri_weights_find(s->weights, variant);
    if (index != HRI_SAFETENSORS_NONE) return index;
  }
  return HRI_SAFETENSORS_NONE;
}

static uint32_t shape_of(const hri_param_spec *spec, const hri_param_part *part, uint64_t shape[2]) {
  shape[0] = part->transposed ? spec->dims[1] : part->rows;
  shape[1] = spec->rank == 1 ? 1 : part->transposed ? part->rows : spec->dims[1];
  return spec->rank;
}

static bool is_float(hri_file_dtype dtype) {
  return dtype == HRI_FILE_F32 || dtype == HRI_FILE_BF16 || dtype == HRI_FILE_F16;
}

static hr_status check_weight(const hri_convert_source *s, const hri_param_spec *spec, const hri_param_part *part,
                              bool *seen, hr_error *error) {
  uint32_t index = hri_convert_find(s, part->name), rank;
  uint64_t shape[2];
  char have[192], want[192];
  const hri_safetensor *t;
  hr_status status;
  if (index == HRI_SAFETENSORS_NONE) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s: the tensor %s is missing", s->model->directory, part->name);
    return hri_hint(error, status, "the weights do not belong to this config.json, or a shard is missing");
  }
  seen[index] = true;
  t = hri_weights_get(s->weights, index);
  rank = shape_of(spec, part, shape);
  if (!is_float(t->dtype)) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has dtype %s", hri_weights_path(s->weights, index), t->name,
                      hri_file_dtype_name(t->dtype));
    return hri_hint(error, status, "F32, BF16 and F16 weights can be converted");
  }
  if (t->rank != rank || t->shape[0] != shape[0] || (rank == 2 && t->shape[1] != shape[1])) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has shape %s and config.json asks for %s",
                      hri_weights_path(s->weights, index), t->name, hri_shape_text(t->rank, t->shape, have),
                      hri_shape_text(rank, shape, want));
    return hri_hint(error, status, "check that config.json and the weights come from the same model");
  }
  return HR_OK;
}

static hr_status check_part(const hri_convert_source *s, const hri_param_spec *spec, uint32_t k, bool *seen,
                            hr_error *error) {
  hri_gguf_part part;
  uint32_t index;
  if (s->weights) return check_weight(s, spec, &spec->parts[k], seen, error);
  hri_gguf_part_of(s->model, spec, k, &part);
  HRI_TRY(hri_gguf_part_find(s->gguf, &part, &index, error));
  seen[index] = true;
  return HR_OK;
}

hr_status hri_convert_check(const hri_convert_source *s, hr_error *error) {
  uint32_t count = s->weights ? hri_weights_count(s->weights) : hri_gguf_count(s->gguf);
  bool *seen = hri_alloc_zero((size_t)count + 1, sizeof *seen);
  hr_status status = HR_OK;
  if (!seen) return hri_fail_memory(error, count, "the weight check");
  for (uint32_t p = 0; p < hri_param_count(s->model); p++) {
    hri_param_spec spec;
    hri_param_get(s->model, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++) HRI_TRY_OUT(check_part(s, &spec, k, seen, error));
  }
  for (uint32_t i = 0; i < count; i++) {
    const char *name = s->weights ? hri_weights_get(s->weights, i)->name : hri_gguf_tensor_get(s->gguf, i)->name;
    if (seen[i] || (s->weights ? hri_param_ignored(s->model, name) : hri_gguf_ignored(s->model, name))) continue;
    status = hri_fail(error, HR_ERROR_INPUT, "%s: the tensor %s does not belong to this %s model",
                      s->weights ? hri_weights_path(s->weights, i) : hri_gguf_path(s->gguf), name,
                      hr_family_name(s->model->family));
    hri_hint(error, status, "it would be lost: check that the description and the weights come from the same model");
    goto out;
  }
  if (s->weights) status = hri_tied_head_check(s->model, s->weights, error);
out:
  hri_free(seen);
  return status;
}

static uint32_t ggml_of(hri_file_dtype dtype) {
  return dtype == HRI_FILE_F32 ? HRI_GGML_F32 : dtype == HRI_FILE_F16 ? HRI_GGML_F16 : HRI_GGML_BF16;
}
static hri_file_dtype file_of(uint32_t type) {
  return type == HRI_GGML_F32 ? HRI_FILE_F32 : type == HRI_GGML_F16 ? HRI_FILE_F16 : HRI_FILE_BF16;
}

hr_status hri_convert_type_of(const hri_convert_source *s, uint32_t *type, hr_error *error) {
  uint64_t elements[64] = {0};
  hri_param_spec spec;
  uint32_t index;
  if (s->weights) {
    hri_param_get(s->model, 0, &spec);
    index = hri_convert_find(s, spec.parts[0].name);
    if (index == HRI_SAFETENSORS_NONE) {
      hri_fail(error, HR_ERROR_INPUT, "%s: the tensor %s is missing", s->model->directory, spec.parts[0].name);
      return hri_hint(error, HR_ERROR_INPUT, "check that config.json and the weights come from the same model");
    }
    *type = ggml_of(hri_weights_get(s->weights, index)->dtype);
    return HR_OK;
  }
  *type = 0;
  for (uint32_t i = 0; i < hri_gguf_count(s->gguf); i++) {
    const hri_gguf_tensor *t = hri_gguf_tensor_get(s->gguf, i);
    elements[t->type & 63] += t->elements; /* known types are below 64 */
    if (elements[t->type & 63] > elements[*type]) *type = t->type & 63;
  }
  return HR_OK;
}

/* Reads a transposed tensor whole, in the type of the file. */
static hr_status hold_whole(stream *s, uint32_t index, hr_error *error) {
  const hri_safetensor *t = hri_weights_get(s->source->weights, index);
  hri_free(s->whole);
  s->whole = hri_alloc(t->end - t->begin);
  if (!s->whole) return hri_fail_memory(error, t->end - t->begin, t->name);
  return hri_weights_read(s->source->weights, index, 0, t->end - t->begin, s->whole, error);
}

/* Rows of the transpose of what is held. */
static void gather(const stream *s, hri_file_dtype dtype, uint64_t rows, uint64_t columns, uint64_t row,
                   uint64_t count) {
  uint64_t each = hri_file_dtype_bits(dtype) / 8;
  for (uint64_t i = 0; i < count; i++)
    for (uint64_t c = 0; c < columns; c++)
      memcpy((char *)s->raw + (i * columns + c) * each, (const char *)s->whole + (c * rows + row + i) * each, each);
}

hr_status hri_convert_go_on(const hri_convert_source *source, hr_error *error) {
  if (!source->should_stop || !source->should_stop(source->context)) return HR_OK;
  return hri_fail(error, HR_ERROR_INTERRUPTED, "stopped on request; nothing was written");
}

/* Fills s->rows with rows [row, row + count) of a tensor. */
static hr_status read_rows(stream *s, const hri_param_spec *spec, uint32_t k, uint64_t row, uint64_t count,
                           hr_error *error) {
  const hri_param_part *part = &spec->parts[k];
  uint64_t columns = columns_of(spec), each;
  uint32_t index;
  hri_gguf_part in;
  hri_file_dtype dtype;
  HRI_TRY(hri_convert_go_on(s->source, error));
  if (!s->source->weights) {
    hri_gguf_part_of(s->source->model, spec, k, &in);
    HRI_TRY(hri_gguf_part_find(s->source->gguf, &in, &index, error));
    return hri_gguf_part_read(s->source->gguf, index, &in, row, count, s->rows, s->raw, s->room * sizeof *s->rows,
                              error);
  }
  index = hri_convert_find(s->source, part->name);
  if (index == HRI_SAFETENSORS_NONE) {
    hri_fail(error, HR_ERROR_INPUT, "the tensor %s is missing", part->name);
    return hri_hint(error, HR_ERROR_INPUT, "check that config.json and the weights come from the same model");
  }
  dtype = hri_weights_get(s->source->weights, index)->dtype;
  each = hri_file_dtype_bits(dtype) / 8;
  if (part->transposed) {
    if (row == 0) HRI_TRY(hold_whole(s, index, error));
    gather(s, dtype, part->rows, columns, row, count);
  } else {
    HRI_TRY(hri_weights_read(s->source->weights, index, row * columns * each, count * columns * each, s->raw, error));
  }
  (void)hri_file_to_f32(dtype, s->rows, s->raw, count * columns);
  return HR_OK;
}

/* ---- values ---- */

void hri_convert_type_name(uint32_t ggml, char out[16]) {
  (void)snprintf(out, 16, "%s", hri_ggml_name(ggml));
  for (char *c = out; *c; c++)
    if (*c >= 'A' && *c <= 'Z' && *c != 'K') *c = (char)(*c + 'a' - 'A');
}

hr_status hri_convert_check_values(const float *values, uint64_t count, uint32_t type, const char *name,
                                   hr_error *error) {
  const float limit = hri_ggml_reach(type);
  bool good = true;
  hr_status status;
  char type_name[16];
  for (uint64_t i = 0; i < count; i++) good &= fabsf(values[i]) < limit;
  if (good) return HR_OK;
  for (uint64_t i = 0; i < count; i++) {
    if (fabsf(values[i]) < limit) continue;
    if (isfinite(values[i])) {
      hri_convert_type_name(type, type_name);
      status = hri_fail(error, HR_ERROR_INPUT, "tensor %s holds %g, which %s does not reach", name, (double)values[i],
                        type_name);
      return hri_hint(error, status, type == HRI_GGML_BF16 ? "take --type f32" : "take --type bf16 or f32");
    }
    status = hri_fail(error, HR_ERROR_INPUT, "tensor %s holds a value that is not finite", name);
    return hri_hint(error, status, "the model is damaged or its training diverged; use an earlier one");
  }
  return HR_OK;
}

/* ---- to GGUF ---- */

void hri_convert_interleave(float *rows, uint64_t count, uint64_t columns, uint32_t head_size, float *spare) {
  uint64_t half = head_size / 2, width = columns * sizeof *rows;
  for (uint64_t head = 0; head < count; head += head_size) {
    float *at = rows + head * columns;
    memcpy(spare, at, head_size * width);
    for (uint64_t j = 0; j < half; j++) {
      memcpy(at + 2 * j * columns, spare + j * columns, width);
      memcpy(at + (2 * j + 1) * columns, spare + (j + half) * columns, width);
    }
  }
}

static bool is_matrix(const hri_param_spec *spec) {
  return spec->rank == 2 && spec->slot != HRI_SLOT_POSITION_EMBEDDING;
}

/* The layers whose values and down projections have more bits in a mix: the first and the last eighth, and every third. */
static bool more_bits(uint32_t layer, uint32_t count) {
  return layer < count / 8 || layer >= 7 * count / 8 || (layer - count / 8) % 3 == 2;
}

/* llama.cpp's choice for Q4_K_M and Q5_K_M (src/llama-quant.cpp, llama_tensor_get_type), by the tensor's name in the file. */
static uint32_t type_in_mix(const hr_model *model, const hri_param_spec *spec, const char *name, uint32_t type) {
  bool head = strcmp(name, model->tied_embeddings ? "token_embd.weight" : "output.weight") == 0;
  bool more = spec->layer >= 0 && more_bits((uint32_t)spec->layer, model->layer_count);
  if (head) return spec->dims[1] % hri_ggml_block(type) == 0 ? HRI_GGML_Q6_K : HRI_GGML_Q8_0;
  if (strstr(name, ".attn_qkv.")) return type == HRI_GGML_Q4_K ? HRI_GGML_Q5_K : HRI_GGML_Q6_K;
  if (!strstr(name, ".attn_v.") && !strstr(name, ".ffn_down.")) return type;
  if (more) return HRI_GGML_Q6_K;
  return strstr(name, ".attn_v.") && model->layer_count == 80 ? HRI_GGML_Q5_K : type; /* 70 B: few heads of values */
}

/* Rows of part blocks: as llama.cpp's quantizer has it. */
static uint32_t fallback_of(uint32_t type) {
  return type == HRI_GGML_Q4_K   ? HRI_GGML_Q5_0
         : type == HRI_GGML_Q5_K ? HRI_GGML_Q5_1
         : type == HRI_GGML_Q6_K ? HRI_GGML_Q8_0
                                 : HRI_GGML_F16;
}

/* The type of a tensor; *fell: its rows are no whole blocks of the one that it should have. */
static uint32_t type_in_gguf(const hr_model *model, const hri_param_spec *spec, const char *name, hri_convert_kind kind,
                             bool *fell) {
  uint32_t type = kind.mixed ? type_in_mix(model, spec, name, kind.type) : kind.type, other = fallback_of(type);
  *fell = false;
  if (!is_matrix(spec)) return HRI_GGML_F32;
  *fell = spec->dims[1] % hri_ggml_block(kind.type) != 0 || spec->dims[1] % hri_ggml_block(type) != 0;
  if (spec->dims[1] % hri_ggml_block(type) == 0) return type;
  return spec->dims[1] % hri_ggml_block(other) == 0 ? other : HRI_GGML_F16;
}

static void encode(stream *s, uint32_t type, uint64_t values, hri_block_loss *loss) {
  if (hri_ggml_block(type) == 1) (void)hri_ggml_from_f32(type, s->raw, s->rows, values);
  else hri_blocks_encode(&s->blocks, type, s->raw, s->rows, values, loss);
}

/* One tensor, piece by piece. */
static hr_status write_gguf_tensor(stream *s, hri_gguf_writer *writer, uint32_t index, uint32_t at, uint32_t type,
                                   hri_block_loss *loss, hr_error *error) {
  hri_param_spec spec;
  const hri_param_part *part;
  hri_gguf_part out;
  uint64_t columns, step, bytes = 0;
  item_get(s, index, &spec, &part);
  hri_gguf_part_of(s->source->model, &spec, s->items.items[index].part, &out);
  columns = out.columns;
  step = s->room / columns;
  if (out.head_size) step -= step % out.head_size;
  if (out.rank == 1) step = out.rows;
  for (uint64_t row = 0; row < out.rows; row += step) {
    uint64_t count = out.rows - row < step ? out.rows - row : step, values = count * columns;
    HRI_TRY(read_rows(s, &spec, s->items.items[index].part, row, count, error));
    if (out.offset != 0)
      for (uint64_t i = 0; i < values; i++) s->rows[i] += out.offset;
    if (out.head_size) hri_convert_interleave(s->rows, count, columns, out.head_size, s->raw);
    HRI_TRY(hri_convert_check_values(s->rows, values, type, part->name, error));
    encode(s, type, values, loss);
    if (!hri_ggml_bytes(type, values, &bytes))
      return hri_fail(error, HR_ERROR_INTERNAL, "tensor %s: %llu values make no blocks", out.name,
                      (unsigned long long)values);
    HRI_TRY(hri_gguf_writer_write(writer, at, row * columns / hri_ggml_block(type) * hri_ggml_block_bytes(type), s->raw,
                                  bytes, error));
  }
  return HR_OK;
}

/* The list for the writer: vectors of frequency factors first, as llama.cpp's converter has it. */
typedef struct plan {
  HRI_ARRAY(hri_gguf_tensor) tensors;
  char (*names)[64];
  uint32_t extras, fallbacks;
} plan;

static hr_status plan_tensors(const stream *s, hri_convert_kind kind, plan *p, hr_error *error) {
  float values[HR_MAX_ROPE_PAIRS];
  hri_param_spec spec;
  const hri_param_part *part;
  p->names = hri_alloc_zero(s->items.count, sizeof *p->names);
  if (!p->names) return hri_fail_memory(error, s->items.count * sizeof *p->names, "the list of tensors");
  for (;; p->extras++) {
    hri_gguf_tensor t = {.type = HRI_GGML_F32, .rank = 1};
    uint32_t count;
    if (!hri_gguf_extra(s->source->model, p->extras, &t.name, values, &count)) break;
    t.dims[0] = count;
    if (!hri_array_push(&p->tensors, t)) return hri_fail_memory(error, sizeof t, "the list of tensors");
  }
  for (uint32_t i = 0; i < s->items.count; i++) {
    hri_gguf_tensor t = {.name = p->names[i]};
    hri_gguf_part out;
    bool fell;
    item_get(s, i, &spec, &part);
    hri_gguf_part_of(s->source->model, &spec, s->items.items[i].part, &out);
    memcpy(p->names[i], out.name, sizeof p->names[i]);
    t.type = type_in_gguf(s->source->model, &spec, out.name, kind, &fell);
    p->fallbacks += fell;
    t.rank = out.rank;
    t.dims[0] = out.rank == 1 ? out.rows : out.columns;
    t.dims[1] = out.rank == 1 ? 1 : out.rows;
    if (!hri_array_push(&p->tensors, t)) return hri_fail_memory(error, sizeof t, "the list of tensors");
  }
  return HR_OK;
}

static void count_loss(hri_convert_written *w, const hri_gguf_tensor *t, const hri_block_loss *loss) {
  double share = hri_block_loss_share(loss);
  if (hri_ggml_block(t->type) == 1) return;
  w->in_blocks++;
  w->loss.difference += loss->difference;
  w->loss.value += loss->value;
  if (share < w->worst || (share == 0 && w->worst_name[0])) return;
  w->worst = share;
  (void)snprintf(w->worst_name, sizeof w->worst_name, "%s", t->name);
}

static hr_status write_gguf(stream *s, const plan *p, hri_gguf_writer *writer, hri_convert_written *w,
                            hr_error *error) {
  float values[HR_MAX_ROPE_PAIRS];
  const char *name;
  uint32_t count = 0;
  uint64_t bytes;
  for (uint32_t i = 0; i < p->extras; i++) {
    (void)hri_gguf_extra(s->source->model, i, &name, values, &count);
    HRI_TRY(hri_gguf_writer_write(writer, i, 0, values, count * sizeof *values, error));
    w->data_bytes += count * sizeof *values;
  }
  for (uint32_t i = 0; i < s->items.count; i++) {
    const hri_gguf_tensor *t = &p->tensors.items[p->extras + i];
    hri_block_loss loss = {0, 0};
    HRI_TRY(write_gguf_tensor(s, writer, i, p->extras + i, t->type, &loss, error));
    if (hri_ggml_bytes(t->type, t->dims[0] * t->dims[1], &bytes)) w->data_bytes += bytes;
    count_loss(w, t, &loss);
  }
  return HR_OK;
}

hr_status hri_convert_to_gguf(const hri_convert_source *source, const char *path, const hri_gguf_keys *keys,
                              hri_convert_kind kind, hri_convert_written *written, hr_error *error) {
  stream s = {0};
  plan p = {0};
  hri_gguf_writer *writer = NULL;
  hr_status status = HR_OK;
  *written = (hri_convert_written){0};
  HRI_TRY_OUT(stream_open(&s, source, error));
  if (hri_ggml_block(kind.type) > 1) HRI_TRY_OUT(hri_blocks_open(&s.blocks, s.room, error));
  HRI_TRY_OUT(plan_tensors(&s, kind, &p, error));
  HRI_TRY_OUT(hri_gguf_writer_open(path, keys, p.tensors.items, (uint32_t)p.tensors.count, &writer, error));
  HRI_TRY_OUT(write_gguf(&s, &p, writer, written, error));
  written->tensors = (uint32_t)p.tensors.count;
  written->fallbacks = p.fallbacks;
  status = hri_gguf_writer_finish(writer, error);
  writer = NULL;
out:
  hri_gguf_writer_abort(writer);
  hri_array_free(&p.tensors);
  hri_free(p.names);
  stream_close(&s);
  return status;
}

/* ---- to safetensors ---- */

/* Puts rows [row, row + count) of the piece into the transpose that is being made. */
static void scatter(const stream *s, hri_file_dtype dtype, uint64_t rows, uint64_t columns, uint64_t row,
                    uint64_t count) {
  uint64_t each = hri_file_dtype_bits(dtype) / 8;
  for (uint64_t i = 0; i < count; i++)
    for (uint64_t c = 0; c < columns; c++)
      memcpy((char *)s->whole + (c * rows + row + i) * each, (const char *)s->raw + (i * columns + c) * each, each);
}

static hr_status write_weight(stream *s, hri_weights_writer *writer, uint32_t index, uint32_t type, hr_error *error) {
  hri_param_spec spec;
  const hri_param_part *part;
  hri_file_dtype dtype = file_of(type);
  uint64_t columns, step, each = hri_file_dtype_bits(dtype) / 8;
  item_get(s, index, &spec, &part);
  columns = columns_of(&spec);
  step = spec.rank == 1 ? part->rows : s->room / columns;
  if (part->transposed) {
    hri_free(s->whole);
    s->whole = hri_alloc(part->rows * columns * each);
    if (!s->whole) return hri_fail_memory(error, part->rows * columns * each, part->name);
  }
  for (uint64_t row = 0; row < part->rows; row += step) {
    uint64_t count = part->rows - row < step ? part->rows - row : step;
    HRI_TRY(read_rows(s, &spec, s->items.items[index].part, row, count, error));
    HRI_TRY(hri_convert_check_values(s->rows, count * columns, type, part->name, error));
    (void)hri_file_from_f32(dtype, s->raw, s->rows, count * columns);
    if (part->transposed) scatter(s, dtype, part->rows, columns, row, count);
    else HRI_TRY(hri_weights_writer_write(writer, index, row * columns * each, s->raw, count * columns * each, error));
  }
  return part->transposed ? hri_weights_writer_write(writer, index, 0, s->whole, part->rows * columns * each, error)
                          : HR_OK;
}

static void list_weights(const stream *s, uint32_t type, hri_safetensor *tensors, char (*names)[96],
                         uint64_t *data_bytes) {
  hri_param_spec spec;
  const hri_param_part *part;
  for (uint32_t i = 0; i < s->items.count; i++) {
    item_get(s, i, &spec, &part);
    memcpy(names[i], part->name, sizeof names[i]);
    tensors[i].name = names[i];
    tensors[i].dtype = file_of(type);
    tensors[i].rank = shape_of(&spec, part, tensors[i].shape);
    *data_bytes += part->rows * columns_of(&spec) * hri_file_dtype_bits(file_of(type)) / 8;
  }
}

hr_status hri_convert_to_weights(const hri_convert_source *source, const char *directory, uint32_t type,
                                 uint32_t *tensor_count, uint64_t *data_bytes, hr_error *error) {
  stream s = {0};
  hri_safetensor *tensors = NULL;
  char (*names)[96] = NULL;
  hri_weights_writer *writer = NULL;
  hr_status status = HR_OK;
  *data_bytes = 0;
  HRI_TRY_OUT(stream_open(&s, source, error));
  tensors = hri_alloc_zero(s.items.count, sizeof *tensors);
  names = hri_alloc_zero(s.items.count, sizeof *names);
  if (!tensors || !names) {
    status = hri_fail_memory(error, s.items.count * sizeof *tensors, "the list of tensors");
    goto out;
  }
  list_weights(&s, type, tensors, names, data_bytes);
  HRI_TRY_OUT(hri_publish_room(directory, *data_bytes, error));
  HRI_TRY_OUT(hri_weights_writer_open(directory, tensors, (uint32_t)s.items.count, SHARD_BYTES, &writer, error));
  for (uint32_t i = 0; i < s.items.count; i++) HRI_TRY_OUT(write_weight(&s, writer, i, type, error));
  *tensor_count = (uint32_t)s.items.count;
  status = hri_weights_writer_finish(writer, NULL, error);
  writer = NULL;
  if (status == HR_OK) status = hri_dir_sync(directory, error);
out:
  hri_weights_writer_abort(writer);
  hri_free(tensors);
  hri_free(names);
  stream_close(&s);
  return status;
}
