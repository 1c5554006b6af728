#include "train/weights.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "convert/bnb.h"
#include "model/tied.h"
#include "ops/move/random.h"
#include "train/weights_move.h"

_Static_assert((int)HRI_PARAM_PARTS <= (int)HRI_MOVES, "the parts of a parameter are moved in one call");

/* ---- finding tensors ---- */

/* The tensor of a part under the first spelling of its name that is there; *other (may be NULL) gets a second one, or
 * NONE. */
static uint32_t find_part(const hri_source *s, const hri_param_part *part, uint32_t *other) {
  uint32_t found = HRI_SAFETENSORS_NONE;
  char name[128];
  if (other) *other = HRI_SAFETENSORS_NONE;
  for (uint32_t v = 0; hri_param_variant(s->model, part->name, v, name); v++) {
    uint32_t index = hri_weights_find(s->weights, name);
    if (index == HRI_SAFETENSORS_NONE) continue;
    if (found == HRI_SAFETENSORS_NONE) found = index;
    else if (other) *other = index;
    if (!other) break;
  }
  return found;
}

uint32_t hri_source_find(const hri_source *s, const hri_param_part *part) { return find_part(s, part, NULL); }

static bool is_float(hri_file_dtype d) { return d == HRI_FILE_F32 || d == HRI_FILE_BF16 || d == HRI_FILE_F16; }

uint32_t hri_part_shape(const hri_param_spec *spec, const hri_param_part *part, uint64_t shape[2]) {
  if (spec->rank == 1) {
    shape[0] = part->rows;
    return 1;
  }
  shape[part->transposed ? 1 : 0] = part->rows;
  shape[part->transposed ? 0 : 1] = spec->dims[1];
  return 2;
}

/* A part of a weight that is quantized in the files must be so there, as config.json says. */
static hr_status find_quantized(hri_source *s, uint32_t param, const hri_param_spec *spec, const hri_param_part *part,
                                uint32_t index, hr_error *error) {
  hri_bnb_weight *found = &s->quantized[param * HRI_PARAM_PARTS + (uint32_t)(part - spec->parts)];
  const hri_safetensor *t = hri_weights_get(s->weights, index);
  uint32_t kind = (uint32_t)s->model->quantization;
  HRI_TRY(hri_bnb_find(s->weights, t->name, part->rows, spec->dims[1], found, error));
  if (found->kind == kind) return HR_OK;
  hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s is %s and config.json says %s", hri_weights_path(s->weights, index),
           t->name, found->kind ? hri_quantization_name(found->kind) : "not quantized", hri_quantization_name(kind));
  return hri_hint(error, HR_ERROR_INPUT,
                  found->kind ? "all weights are of the kind of quantization_config"
                              : "name its module in quantization_config.llm_int8_skip_modules");
}

/* What is quantized while it is loaded, through a weight of bf16, must be that in the file. */
static hr_status check_rounding(const hri_source *s, uint32_t param, uint32_t index, hr_error *error) {
  const hri_safetensor *t = hri_weights_get(s->weights, index);
  const hri_param *p;
  if (!s->job) return HR_OK; /* nothing is quantized by it */
  p = &s->job->params.items[param];
  if (p->codes == HRI_NONE || s->job->tensors.items[p->weight].dtype != HRI_BF16 || t->dtype == HRI_FILE_BF16)
    return HR_OK;
  hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s is %s and config.json says bfloat16",
           hri_weights_path(s->weights, index), t->name, hri_file_dtype_name(t->dtype));
  return hri_hint(error, HR_ERROR_INPUT,
                  "it would be rounded before it is quantized: set torch_dtype in config.json to what the files hold");
}

static hr_status check_part(hri_source *s, uint32_t param, const hri_param_spec *spec, const hri_param_part *part,
                            bool *seen, hr_error *error) {
  uint32_t other, index = find_part(s, part, &other), rank;
  uint64_t shape[2] = {0, 0};
  char have[192], want[192];
  const hri_safetensor *t;
  hr_status status;
  if (index == HRI_SAFETENSORS_NONE) {
    const char *file = hri_weights_count(s->weights) ? hri_weights_path(s->weights, 0) : s->model->directory;
    status = hri_fail(error, HR_ERROR_INPUT, "%s: the tensor %s is missing", file, part->name);
    return hri_hint(error, status, "the weights do not belong to this config.json, or a shard is missing");
  }
  t = hri_weights_get(s->weights, index);
  if (other != HRI_SAFETENSORS_NONE) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s: the tensors %s and %s are two spellings of one weight",
                      hri_weights_path(s->weights, index), t->name, hri_weights_get(s->weights, other)->name);
    return hri_hint(error, status, "keep the one that belongs to the model");
  }
  seen[index] = true;
  if (s->quantized && hri_param_quantizes(s->model, spec)) return find_quantized(s, param, spec, part, index, error);
  HRI_TRY(check_rounding(s, param, index, error));
  rank = hri_part_shape(spec, part, shape);
  if (!is_float(t->dtype)) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has dtype %s", hri_weights_path(s->weights, index), t->name,
                      hri_file_dtype_name(t->dtype));
    return hri_hint(error, status, "F32, BF16 and F16 weights can be loaded");
  }
  if (t->rank != rank || t->shape[0] != shape[0] || (rank == 2 && t->shape[1] != shape[1])) {
    status =
        hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has shape %s and %s asks for %s",
                 hri_weights_path(s->weights, index), t->name, hri_shape_text(t->rank, t->shape, have),
                 s->tuned ? "adapter_config.json beside this model" : "config.json", hri_shape_text(rank, shape, want));
    return hri_hint(error, status, "check that config.json and the weights come from the same model");
  }
  if (spec->slot == HRI_SLOT_TOKEN_EMBEDDING) s->dtype = t->dtype;
  return HR_OK;
}

static hr_status refuse_unknown(const hri_source *s, const char *file, const char *name, const char *description,
                                hr_error *error) {
  hr_status status = hri_fail(error, HR_ERROR_INPUT, "%s: the tensor %s does not belong to a %s model of this %s", file,
                              name, hr_family_name(s->model->family), description);
  return hri_hint(error, status,
                  s->gguf ? "the file holds more than the model that its keys describe"
                          : "remove it, or check model_type, num_hidden_layers and the bias fields in config.json");
}

/* What PEFT saves of an embedding with an adapter unasked (save_embedding_layers="auto"): the model's own. */
static void base_embedding_name(const hr_model *model, char out[128]) {
  char name[96];
  hri_embedding_name(model, name);
  (void)snprintf(out, 128, "base_model.model.%.60s.base_layer.weight", name);
}

static bool is_base_embedding(const hri_source *s, const char *tensor) {
  char name[128];
  base_embedding_name(s->model, name);
  return s->model->lora.embedding && strcmp(tensor, name) == 0;
}

/* Values [first, first + count) of a tensor as fp32, through `raw`. */
static hr_status read_piece(const hri_weights *weights, uint32_t index, uint64_t first, uint64_t count, float *to,
                            void *raw, hr_error *error) {
  hri_file_dtype dtype = hri_weights_get(weights, index)->dtype;
  uint64_t each = hri_file_dtype_bits(dtype) / 8;
  HRI_TRY(hri_weights_read(weights, index, first * each, count * each, raw, error));
  (void)hri_file_to_f32(dtype, to, raw, count);
  return HR_OK;
}

static hr_status refuse_embedding(const hri_source *s, const char *name, const char *what, hr_error *error) {
  hri_fail(error, HR_ERROR_UNSUPPORTED, "%s: the tensor %s %s", hri_weights_path(s->adapter, 0), name, what);
  return hri_hint(
      error, HR_ERROR_UNSUPPORTED,
      "name the Hugging Face directory that it was trained beside, or merge it with PEFT (merge_and_unload)");
}

/* It would take the place of the model's: so it must be that, rounded to its type where that is narrower. */
static hr_status compare_embedding(const hri_source *s, uint32_t own, uint32_t base, const hri_weights *weights,
                                   hr_error *error) {
  enum { PIECE = 4096 };
  const hri_safetensor *t = hri_weights_get(s->adapter, own), *b = hri_weights_get(weights, base);
  float mine[PIECE], theirs[PIECE], raw[PIECE];
  uint64_t count = 0, n;
  if (!is_float(t->dtype) || t->rank != 2 || b->rank != 2 || t->shape[0] != b->shape[0] || t->shape[1] != b->shape[1])
    return refuse_embedding(s, t->name, "has another shape than the model's embedding", error);
  (void)hri_file_elements(t->rank, t->shape, &count);
  for (uint64_t at = 0; at < count; at += n) {
    n = count - at < PIECE ? count - at : PIECE;
    HRI_TRY(read_piece(s->adapter, own, at, n, mine, raw, error));
    HRI_TRY(read_piece(weights, base, at, n, theirs, raw, error));
    (void)hri_file_from_f32(t->dtype, raw, theirs, n);
    (void)hri_file_to_f32(t->dtype, theirs, raw, n);
    if (memcmp(mine, theirs, n * sizeof *mine) != 0)
      return refuse_embedding(s, t->name, "holds another embedding than the model's", error);
  }
  return HR_OK;
}

hr_status hri_source_check_embedding(const hri_source *s, const hri_source *base, hr_error *error) {
  char name[128];
  uint32_t own, index;
  hri_param_spec spec;
  if (!s->adapter || !s->model->lora.embedding) return HR_OK;
  base_embedding_name(s->model, name);
  own = hri_weights_find(s->adapter, name);
  if (own == HRI_SAFETENSORS_NONE) return HR_OK;
  if (!base->weights)
    return refuse_embedding(s, name, "cannot be compared with the model's, which is in no such file", error);
  hri_param_get(s->model, 0, &spec);
  index = hri_source_find(base, &spec.parts[0]);
  assert(spec.slot == HRI_SLOT_TOKEN_EMBEDDING && index != HRI_SAFETENSORS_NONE);
  return compare_embedding(s, own, index, base->weights, error);
}

/* The file holds what the adapters' modules have, and nothing else. */
static hr_status check_adapter(const hri_source *s, hr_error *error) {
  hri_source own = {.model = s->model, .weights = s->adapter, .tuned = true};
  uint32_t count = hri_weights_count(s->adapter);
  bool *seen = hri_alloc_zero((size_t)count + 1, sizeof *seen);
  hr_status status = HR_OK;
  if (!seen) return hri_fail_memory(error, count, "the weight check");
  for (uint32_t p = 0; p < hri_param_count(s->model) && status == HR_OK; p++) {
    hri_param_spec spec;
    hri_param_get(s->model, p, &spec);
    for (uint32_t k = 0; k < spec.part_count && status == HR_OK; k++) {
      hri_param_part part = spec.parts[k];
      if (hri_part_tuned(s->model, &spec, &spec.parts[k], part.name))
        status = check_part(&own, p, &spec, &part, seen, error);
    }
  }
  if (status != HR_OK)
    (void)hri_hint(error, status, "the adapter belongs to another model, or to another adapter_config.json");
  for (uint32_t i = 0; i < count && status == HR_OK; i++)
    if (!seen[i] && !is_base_embedding(s, hri_weights_get(s->adapter, i)->name)) {
      status = hri_fail(error, HR_ERROR_INPUT, "%s: the tensor %s belongs to no module that adapter_config.json adapts",
                        hri_weights_path(s->adapter, i), hri_weights_get(s->adapter, i)->name);
      (void)
          hri_hint(error, status,
                   "adapters of linear modules of layers and of the embedding, biases and modules_to_save can be read");
    }
  hri_free(seen);
  return status;
}

/* Whether a tensor stands beside a quantized weight. */
static bool is_beside(const hri_source *s, const char *name) {
  char weight[HRI_BNB_NAME_BYTES];
  uint32_t index;
  if (!s->quantized || !hri_bnb_beside(name, weight)) return false;
  index = hri_weights_find(s->weights, weight);
  for (uint32_t k = 0; index != HRI_SAFETENSORS_NONE && k < hri_param_count(s->model) * HRI_PARAM_PARTS; k++)
    if (s->quantized[k].kind && s->quantized[k].weight == index) return true;
  return false;
}

static hr_status check_weights(hri_source *s, bool *seen, hr_error *error) {
  if (s->model->quantization != HR_QUANTIZE_NONE) {
    size_t count = (size_t)hri_param_count(s->model) * HRI_PARAM_PARTS;
    s->quantized = hri_alloc_zero(count, sizeof *s->quantized);
    if (!s->quantized) return hri_fail_memory(error, count * sizeof *s->quantized, "the quantized weights");
  }
  for (uint32_t p = 0; p < hri_param_count(s->model); p++) {
    hri_param_spec spec;
    hri_param_get(s->model, p, &spec);
    for (uint32_t k = 0; !spec.adapter && k < spec.part_count; k++)
      HRI_TRY(check_part(s, p, &spec, &spec.parts[k], seen, error));
  }
  for (uint32_t i = 0; i < hri_weights_count(s->weights); i++) {
    const char *name = hri_weights_get(s->weights, i)->name;
    if (!seen[i] && !hri_param_ignored(s->model, name) && !is_beside(s, name))
      return refuse_unknown(s, hri_weights_path(s->weights, i), name, "config.json", error);
  }
  return hri_tied_head_check(s->model, s->weights, error);
}

/* Quantized weights are trained and saved as what they were decoded to. */
static hri_file_dtype dtype_of_ggml(uint32_t type) {
  return type == HRI_GGML_F16 ? HRI_FILE_F16 : type == HRI_GGML_BF16 ? HRI_FILE_BF16 : HRI_FILE_F32;
}

static hr_status check_gguf(hri_source *s, bool *seen, hr_error *error) {
  for (uint32_t p = 0; p < hri_param_count(s->model); p++) {
    hri_param_spec spec;
    hri_param_get(s->model, p, &spec);
    for (uint32_t k = 0; !spec.adapter && k < spec.part_count; k++) {
      hri_gguf_part part;
      uint32_t index;
      hri_gguf_part_of(s->model, &spec, k, &part);
      HRI_TRY(hri_gguf_part_find(s->gguf, &part, &index, error));
      seen[index] = true;
      if (spec.slot == HRI_SLOT_TOKEN_EMBEDDING) s->dtype = dtype_of_ggml(hri_gguf_tensor_get(s->gguf, index)->type);
    }
  }
  for (uint32_t i = 0; i < hri_gguf_count(s->gguf); i++) {
    const char *name = hri_gguf_tensor_get(s->gguf, i)->name;
    if (!seen[i] && !hri_gguf_ignored(s->model, name))
      return refuse_unknown(s, hri_gguf_path(s->gguf), name, "description", error);
  }
  return HR_OK;
}

static hr_status check_source(hri_source *s, hr_error *error) {
  uint32_t count = s->gguf ? hri_gguf_count(s->gguf) : hri_weights_count(s->weights);
  bool *seen = hri_alloc_zero((size_t)count + 1, sizeof *seen);
  hr_status status;
  if (!seen) return hri_fail_memory(error, count, "the weight check");
  status = s->gguf ? check_gguf(s, seen, error) : check_weights(s, seen, error);
  hri_free(seen);
  return status;
}

static hr_status open_weights(hri_source *s, const char *path, hr_error *error) {
  HRI_TRY(hri_gguf_is(path) ? hri_gguf_open(path, &s->gguf, error) : hri_weights_open(path, &s->weights, error));
  return check_source(s, error);
}

/* "": there is none yet. */
static hr_status open_adapter(hri_source *s, const char *directory, hr_error *error) {
  char *path;
  hr_status status;
  if (!directory[0]) return HR_OK;
  if (hri_gguf_is(directory)) {
    HRI_TRY(hri_gguf_open(directory, &s->adapter_gguf, error));
    return hri_gguf_adapter_check(s->adapter_gguf, s->model, error);
  }
  path = hri_path_join(directory, HRI_ADAPTER_FILE);
  if (!path) return hri_fail_memory(error, strlen(directory), "a path");
  if (!hri_path_exists(path)) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s: there is no " HRI_ADAPTER_FILE " in it", directory);
    (void)hri_hint(error, status, "adapters in adapter_model.bin are read after PEFT saved them as safetensors");
    hri_free(path);
    return status;
  }
  status = hri_weights_open(path, &s->adapter, error);
  hri_free(path);
  return status == HR_OK ? check_adapter(s, error) : status;
}

hr_status hri_source_open(hri_source *s, const hr_model *model, const hri_job *job, const hri_elements *elements,
                          const char *directory, const char *states_file, uint64_t seed, hr_error *error) {
  hr_status status = HR_OK;
  memset(s, 0, sizeof *s);
  s->model = model;
  s->job = job;
  s->elements = elements;
  s->seed = seed;
  s->dtype = HRI_FILE_F32;
  if (model->lora.rank > 0) {
    HRI_TRY_OUT(open_adapter(s, directory ? directory : model->adapter, error));
    directory = NULL;
  }
  if (!directory) directory = model->has_weights ? model->directory : NULL;
  if (directory) HRI_TRY_OUT(open_weights(s, directory, error));
  if (directory) HRI_TRY_OUT(hri_source_check_embedding(s, s, error));
  if (states_file) HRI_TRY_OUT(hri_weights_open(states_file, &s->states, error));
out:
  if (status != HR_OK) hri_source_close(s);
  return status;
}

void hri_source_close(hri_source *s) {
  hri_weights_close(s->weights);
  hri_weights_close(s->states);
  hri_weights_close(s->adapter);
  hri_gguf_close(s->adapter_gguf);
  hri_gguf_close(s->gguf);
  hri_free(s->quantized);
  memset(s, 0, sizeof *s);
}

hr_status hri_source_digest_begin(hri_source *s, hr_error *error) {
  if (s->weights) HRI_TRY(hri_weights_digest_begin(s->weights, error));
  if (s->adapter) HRI_TRY(hri_weights_digest_begin(s->adapter, error));
  return s->states ? hri_weights_digest_begin(s->states, error) : HR_OK;
}

hr_status hri_source_digest_end(hri_source *s, hri_file_list *files, hri_file_list *base, hr_error *error) {
  if (s->weights) HRI_TRY(hri_weights_digest_end(s->weights, s->model->lora.rank > 0 ? base : files, error));
  if (s->gguf && s->model->lora.rank > 0) HRI_TRY(hri_file_list_read(base, hri_gguf_path(s->gguf), error));
  if (s->adapter) HRI_TRY(hri_weights_digest_end(s->adapter, files, error));
  return s->states ? hri_weights_digest_end(s->states, files, error) : HR_OK;
}

/* ---- values of a tensor in the arena ---- */

uint32_t hri_move_type(hri_file_dtype dtype) {
  return dtype == HRI_FILE_F16 ? HRI_GGML_F16 : dtype == HRI_FILE_BF16 ? HRI_GGML_BF16 : HRI_GGML_F32;
}

static uint8_t dtype_of(const hri_job *job, uint32_t range, uint32_t what) {
  return hri_moved_dtype(job, &job->ranges.items[range], what);
}

bool hri_is_codes(const hri_job *job, uint32_t range, uint32_t what) { return dtype_of(job, range, what) == HRI_U8; }

hri_real hri_real_of(const hri_job *job, uint32_t range, uint32_t what) {
  return hri_dtype_real(dtype_of(job, range, what));
}

hri_file_dtype hri_state_dtype(const hri_job *job, uint32_t range, uint32_t tensor) {
  if (hri_is_codes(job, range, HRI_MOVED_STATE + tensor)) return HRI_FILE_U8;
  return hri_real_of(job, range, HRI_MOVED_STATE + tensor) == HRI_REAL_BF16 ? HRI_FILE_BF16 : HRI_FILE_F32;
}

/* ---- reading ---- */

static hr_status read_bytes(const hri_move *move, uint64_t offset, uint64_t count, void *memory, hr_error *error) {
  return hri_weights_read(move->file, move->index, offset, count, memory, error);
}

static hri_move move_from(hri_weights *weights, uint32_t index) {
  const hri_safetensor *tensor = hri_weights_get(weights, index);
  return (hri_move){.bytes = read_bytes,
                    .file = weights,
                    .index = index,
                    .type = hri_move_type(tensor->dtype),
                    .path = hri_weights_path(weights, index),
                    .name = tensor->name};
}

static hr_status read_gguf_bytes(const hri_move *move, uint64_t offset, uint64_t count, void *memory, hr_error *error) {
  return hri_gguf_read(move->file, move->index, offset, count, memory, error);
}

/* Whether a part comes from the adapters' file. */
static bool from_adapter(const hri_source *s, const hri_param_spec *spec, uint32_t k) {
  return (s->adapter || s->adapter_gguf) && hri_part_tuned(s->model, spec, &spec->parts[k], NULL);
}

/* Whether any file has it; else it is initialised. */
static bool from_file(const hri_source *s, const hri_param_spec *spec, uint32_t k) {
  return from_adapter(s, spec, k) || (!spec->adapter && (s->weights || s->gguf));
}

static hr_status move_part(const hri_source *s, const hri_param_spec *spec, uint32_t k, hri_move *move,
                           hr_error *error) {
  bool tuned = from_adapter(s, spec, k);
  hri_weights *from = tuned ? s->adapter : s->weights;
  char name[96];
  uint32_t index;
  if (tuned) (void)hri_part_tuned(s->model, spec, &spec->parts[k], name);
  index = tuned ? hri_weights_find(from, name) : hri_source_find(s, &spec->parts[k]);
  if (index == HRI_SAFETENSORS_NONE) {
    hri_fail(error, HR_ERROR_INPUT, "the tensor %s is missing", tuned ? name : spec->parts[k].name);
    return hri_hint(error, HR_ERROR_INPUT, "check that config.json and the weights come from the same model");
  }
  *move = move_from(from, index);
  move->transposed = spec->parts[k].transposed;
  return HR_OK;
}

static hr_status move_gguf_part(const hri_source *s, const hri_param_spec *spec, uint32_t k, hri_move *move,
                                hr_error *error) {
  const hri_gguf_tensor *tensor;
  hri_gguf_part part;
  uint32_t index;
  hri_gguf *file = from_adapter(s, spec, k) ? s->adapter_gguf : s->gguf;
  hri_gguf_part_of(s->model, spec, k, &part);
  HRI_TRY(hri_gguf_part_find(file, &part, &index, error));
  tensor = hri_gguf_tensor_get(file, index);
  *move = (hri_move){.bytes = read_gguf_bytes,
                     .file = file,
                     .index = index,
                     .type = tensor->type,
                     .head_size = part.head_size,
                     .add = -part.offset,
                     .path = hri_gguf_path(file),
                     .name = tensor->name};
  return HR_OK;
}

/* The parts of a range are some of its parameter's, and those are what the model's table says: part k of the range. */
static const hri_param_part *part_of(const hri_job *job, const hri_param_range *range, const hri_param_spec *spec,
                                     uint32_t k) {
  return &spec->parts[range->part_begin - job->params.items[range->param].part_begin + k];
}

static uint64_t columns_of(const hri_param_spec *spec) { return spec->rank == 2 ? spec->dims[1] : 1; }

static hr_status source_part(const hri_source *s, const hri_param_spec *spec, uint32_t k, hri_move *move,
                             hr_error *error) {
  return ((from_adapter(s, spec, k) ? s->adapter_gguf : s->gguf) ? move_gguf_part : move_part)(s, spec, k, move, error);
}

/* Whether values of this type are still all there in the arena's. */
static bool holds(hri_real real, uint32_t type) {
  return real == HRI_REAL_F32 || (real == HRI_REAL_BF16 && type == HRI_GGML_BF16) ||
         (real == HRI_REAL_F16 && type == HRI_GGML_F16);
}

hr_status hri_source_original(const hri_source *s, uint32_t index, uint32_t k, hri_move *move, bool *rounded,
                              hr_error *error) {
  const hri_param_range *range = &s->job->ranges.items[index];
  hri_param_spec spec;
  *rounded = false;
  if ((!s->weights && !s->gguf) || s->model->lora.rank > 0 || range->gradient != HRI_NONE ||
      s->job->params.items[range->param].codes != HRI_NONE)
    return HR_OK;
  hri_param_get(s->model, s->job->params.items[range->param].spec, &spec);
  HRI_TRY(source_part(s, &spec, (uint32_t)(part_of(s->job, range, &spec, k) - spec.parts), move, error));
  move->rows = part_of(s->job, range, &spec, k)->rows;
  move->columns = columns_of(&spec);
  *rounded = !holds(hri_real_of(s->job, index, HRI_MOVED_WEIGHT), move->type);
  return HR_OK;
}

hr_status hri_source_settle(hri_source *s, hr_error *error) {
  bool any = false;
  for (uint32_t r = 0; r < s->job->ranges.count; r++)
    for (uint32_t k = 0; k < s->job->ranges.items[r].part_count && !any; k++) {
      hri_move move;
      HRI_TRY(hri_source_original(s, r, k, &move, &any, error));
    }
  if (!any) {
    hri_source_close(s);
    return HR_OK;
  }
  hri_weights_close(s->states);
  s->states = NULL;
  return HR_OK;
}

/* What no file has (parts beside those of an adapter, of a base that began from a seed) is left as it is. */
static hr_status fill_weight(hri_source *s, const hri_param_range *range, const hri_param_spec *spec, hri_real real,
                             const hri_window *tensor, void *staging, uint64_t staging_bytes, hr_error *error) {
  hri_move moves[HRI_PARAM_PARTS];
  uint32_t count = 0;
  for (uint32_t k = 0; k < range->part_count; k++) {
    const hri_param_part *part = part_of(s->job, range, spec, k);
    uint32_t index = (uint32_t)(part - spec->parts);
    hri_move *move = &moves[count];
    if (!from_file(s, spec, index)) continue;
    HRI_TRY(source_part(s, spec, index, move, error));
    move->rows = part->rows;
    move->columns = columns_of(spec);
    move->window = tensor;
    move->first = (part->row - range->row) * columns_of(spec);
    move->real = real;
    move->finite = true;
    count++;
  }
  return hri_moves_run(s->elements, moves, count, staging, staging_bytes, error);
}

/* One tensor of the states' file. */
static hr_status find_state(const hri_source *s, const hri_state_file *file, hri_file_dtype dtype, hri_move *move,
                            hr_error *error) {
  const hri_safetensor *found;
  uint64_t have = 0;
  uint32_t index = hri_weights_find(s->states, file->name);
  if (index == HRI_SAFETENSORS_NONE) { /* a whole file, of other states: no other checkpoint would do better */
    hri_fail(error, HR_ERROR_USAGE,
             "the checkpoint's optimizer.safetensors has no tensor %s: it holds another kind of state", file->name);
    return hri_hint(
        error, HR_ERROR_USAGE,
        "resume with the --optimizer and --states-8bit that it was written with; its state.json names them");
  }
  found = hri_weights_get(s->states, index);
  (void)hri_file_elements(found->rank, found->shape, &have);
  if (have != file->entries || found->dtype != dtype) {
    hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has the wrong shape or dtype", hri_weights_path(s->states, index),
             file->name);
    return hri_hint(error, HR_ERROR_INPUT,
                    "take another checkpoint (--from step-N); headroom inspect RUN --verify names the whole ones");
  }
  *move = move_from(s->states, index);
  return HR_OK;
}

static hr_status fill_state(hri_source *s, uint32_t range, const hri_param_spec *spec, uint32_t what,
                            const hri_window *tensor, void *staging, uint64_t staging_bytes, hr_error *error) {
  hri_move moves[HRI_PARAM_PARTS];
  hri_state_file file;
  hri_file_dtype dtype = hri_state_dtype(s->job, range, what - HRI_MOVED_STATE);
  uint32_t count = 0;
  for (; hri_state_file_of(s->job, range, spec, what - HRI_MOVED_STATE, count, &file); count++) {
    HRI_TRY(find_state(s, &file, dtype, &moves[count], error));
    moves[count].rows = file.entries;
    moves[count].columns = 1;
    moves[count].window = tensor;
    moves[count].first = file.at;
    moves[count].real = dtype == HRI_FILE_BF16 ? HRI_REAL_BF16 : HRI_REAL_F32;
    moves[count].codes = dtype == HRI_FILE_U8;
    moves[count].finite = !moves[count].codes;
  }
  return hri_moves_run(s->elements, moves, count, staging, staging_bytes, error);
}

bool hri_state_file_of(const hri_job *job, uint32_t index, const hri_param_spec *spec, uint32_t tensor, uint32_t k,
                       hri_state_file *out) {
  const hri_param_range *range = &job->ranges.items[index];
  const hri_param *param = &job->params.items[range->param];
  const hri_state_tensor *state = &hri_optimizer_get(job->parts.items[range->part_begin].state_kind)->tensors[tensor];
  bool whole = param->range_count == 1;
  const hri_part *part = &job->parts.items[range->part_begin + k];
  uint64_t rows = whole ? spec->dims[0] : part->rows;
  if (k >= (whole ? 1 : range->part_count)) return false;
  (void)snprintf(out->name, sizeof out->name, "%s.%s", hri_name_get(job, whole ? param->key : part->key), state->name);
  out->entries = hri_state_entries(state, rows, columns_of(spec));
  out->at = whole ? 0 : (part->row - range->row) * columns_of(spec) / hri_state_share(state);
  out->rank = hri_state_shaped(state) ? spec->rank : 1;
  out->shape[0] = hri_state_shaped(state) ? rows : out->entries;
  out->shape[1] = columns_of(spec);
  return true;
}

hr_status hri_window_zero(const hri_elements *with, const hri_window *tensor, uint64_t offset, uint64_t bytes,
                          void *staging, uint64_t staging_bytes, hr_error *error) {
  if (tensor->memory) with->zero((unsigned char *)tensor->memory + offset, (int64_t)bytes, with->team);
  else memset(staging, 0, bytes < staging_bytes ? bytes : staging_bytes);
  for (uint64_t done = 0; !tensor->memory && done < bytes; done += staging_bytes)
    HRI_TRY(tensor->put(tensor->context, offset + done, staging,
                        bytes - done < staging_bytes ? bytes - done : staging_bytes, error));
  return HR_OK;
}

/* Values come as fp32. In the staging, what is rounded lies behind them. */
hr_status hri_initialise(const hri_elements *with, const hri_job *job, uint32_t index, uint64_t seed, hri_real real,
                         const hri_window *tensor, void *staging, uint64_t staging_bytes, hr_error *error) {
  const hri_param_range *range = &job->ranges.items[index];
  const hri_param *param = &job->params.items[range->param];
  bool narrow = real != HRI_REAL_F32, direct = tensor->memory != NULL;
  float constant = param->init == HRI_INIT_ONES  ? 1.0f
                   : param->init == HRI_INIT_NAN ? NAN
                                                 : 0.0f,
        *list = narrow || !direct ? staging : tensor->memory;
  uint64_t elements = hri_range_logical(job, range),
           each = sizeof *list + (narrow && !direct ? hri_real_bytes(real) : 0);
  uint64_t room = narrow || !direct ? staging_bytes / each : elements;
  for (uint64_t done = 0; done < elements; done += room) {
    uint64_t n = elements - done < room ? elements - done : room;
    void *rounded = direct ? hri_real_at(tensor->memory, (int64_t)done, real) : narrow ? (void *)(list + room) : list;
    if (param->init == HRI_INIT_NORMAL)
      hri_fill_normal(list, (int64_t)n, param->init_std, seed, param->site, (int64_t)(range->first + done), with->team);
    else if (param->init == HRI_INIT_UNIFORM)
      hri_fill_uniform(list, (int64_t)n, param->init_std, seed, param->site, (int64_t)(range->first + done),
                       with->team);
    else with->fill(list, constant, (int64_t)n, with->team);
    if (narrow) with->cast(rounded, real, list, HRI_REAL_F32, (int64_t)n, with->team);
    if (!direct)
      HRI_TRY(tensor->put(tensor->context, done * hri_real_bytes(real), rounded, n * hri_real_bytes(real), error));
  }
  return HR_OK;
}

/* ---- quantized files ---- */

/* Bytes of a file's tensor to a place of the window, as they are; `scales` says that they are fp32 scales. */
static hr_status copy_bytes(const hri_source *s, uint32_t index, uint64_t bytes, uint64_t at, bool scales,
                            const hri_window *tensor, void *staging, uint64_t staging_bytes, hr_error *error) {
  uint64_t room = tensor->memory ? bytes : staging_bytes / sizeof(float) * sizeof(float);
  for (uint64_t done = 0; done < bytes; done += room) {
    uint64_t n = bytes - done < room ? bytes - done : room;
    void *to = tensor->memory ? (unsigned char *)tensor->memory + at : staging;
    HRI_TRY(hri_weights_read(s->weights, index, done, n, to, error));
    if (scales) HRI_TRY(hri_bnb_check_scales(s->weights, index, to, done / sizeof(float), n / sizeof(float), error));
    if (!tensor->memory) HRI_TRY(tensor->put(tensor->context, at + done, to, n, error));
  }
  return HR_OK;
}

static hr_status put_float(const hri_window *tensor, uint64_t at, float value, hr_error *error) {
  if (!tensor->memory) return tensor->put(tensor->context, at, &value, sizeof value, error);
  memcpy((unsigned char *)tensor->memory + at, &value, sizeof value);
  return HR_OK;
}

/* The blocks of a GGUF file, in the types that the model's description gave the plan. */
static hr_status fill_blocks(const hri_source *s, const hri_param *param, const hri_param_spec *spec,
                             const hri_quant_layout *layout, const hri_window *tensor, void *staging,
                             uint64_t staging_bytes, hr_error *error) {
  hri_move moves[HRI_PARAM_PARTS];
  for (uint32_t k = 0; k < layout->part_count; k++) {
    HRI_TRY(move_gguf_part(s, spec, k, &moves[k], error));
    if (hri_gguf_dtype(moves[k].type) != layout->part[k].type) {
      hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s is %s now, and was of another type when it was planned for",
               moves[k].path, moves[k].name, hri_ggml_name(moves[k].type));
      return hri_hint(error, HR_ERROR_INPUT, "the file was replaced meanwhile; start again");
    }
    moves[k].rows = layout->part[k].rows;
    moves[k].columns = layout->part[k].columns;
    moves[k].window = tensor;
    moves[k].first = layout->part[k].codes;
    moves[k].real = hri_dtype_real(s->job->tensors.items[param->weight].dtype);
    moves[k].blocks = moves[k].finite = true;
  }
  return hri_moves_run(s->elements, moves, layout->part_count, staging, staging_bytes, error);
}

/* Codes, absmax or nested of a parameter: of each part behind those of the one before (program/quantization.h). */
static hr_status fill_quantized(const hri_source *s, const hri_param *param, const hri_param_spec *spec, uint32_t what,
                                const hri_window *tensor, void *staging, uint64_t staging_bytes, hr_error *error) {
  const hri_bnb_weight *parts;
  hri_quant_layout layout;
  if (!hri_quant_layout_of(&param->quantized, columns_of(spec), &layout))
    return hri_fail(error, HR_ERROR_INTERNAL, "%s cannot be quantized", spec->name);
  if (s->gguf) return fill_blocks(s, param, spec, &layout, tensor, staging, staging_bytes, error);
  parts = &s->quantized[param->spec * HRI_PARAM_PARTS];
  for (uint32_t k = 0; k < layout.part_count; k++) {
    const hri_quant_part *p = &layout.part[k];
    uint64_t one = hri_dtype_size(hri_quant_absmax_dtype(parts[k].kind), 1), end;
    if (what == HRI_MOVED_CODES) {
      HRI_TRY(copy_bytes(s, parts[k].weight, p->code_bytes, p->codes, false, tensor, staging, staging_bytes, error));
    } else if (what == HRI_MOVED_ABSMAX) {
      HRI_TRY(copy_bytes(s, parts[k].absmax, p->absmax_count * one, p->absmax * one, one == sizeof(float), tensor,
                         staging, staging_bytes, error));
    } else {
      end = (p->nested + p->nested_count) * sizeof(float);
      HRI_TRY(copy_bytes(s, parts[k].nested, p->nested_count * sizeof(float), p->nested * sizeof(float), true, tensor,
                         staging, staging_bytes, error));
      HRI_TRY(put_float(tensor, end, parts[k].offset, error));
    }
  }
  return HR_OK;
}

/* ---- filling ---- */

static hr_status fill_values(hri_source *s, uint32_t index, uint32_t what, const hri_param_spec *spec,
                             const hri_window *tensor, void *staging, uint64_t staging_bytes, hr_error *error) {
  const hri_param_range *range = &s->job->ranges.items[index];
  const hri_tensor *whole = &s->job->tensors.items[hri_moved_tensor(s->job, range, what)];
  const hri_dtype dtype = (hri_dtype)dtype_of(s->job, index, what);
  hri_real real = what == HRI_MOVED_WEIGHT ? hri_real_of(s->job, index, what) : HRI_REAL_F32;
  uint64_t bytes = hri_dtype_size(dtype, hri_tensor_stored_elements(whole)),
           logical = hri_dtype_size(dtype, hri_tensor_elements(whole));
  if (what == HRI_MOVED_WEIGHT) {
    uint32_t in_files = 0;
    for (uint32_t k = 0; k < range->part_count; k++)
      in_files += from_file(s, spec, (uint32_t)(part_of(s->job, range, spec, k) - spec->parts));
    if (in_files < range->part_count)
      HRI_TRY(hri_initialise(s->elements, s->job, index, s->seed, real, tensor, staging, staging_bytes, error));
    if (in_files) HRI_TRY(fill_weight(s, range, spec, real, tensor, staging, staging_bytes, error));
  } else if (s->states) HRI_TRY(fill_state(s, index, spec, what, tensor, staging, staging_bytes, error));
  else HRI_TRY(hri_window_zero(s->elements, tensor, 0, logical, staging, staging_bytes, error));
  return hri_window_zero(s->elements, tensor, logical, bytes - logical, staging, staging_bytes,
                         error); /* padded vocabulary rows */
}

hr_status hri_source_fill(void *context, uint32_t index, uint32_t what, const hri_window *tensor, void *staging,
                          uint64_t staging_bytes, hr_error *error) {
  hri_source *s = context;
  const hri_param *param = &s->job->params.items[s->job->ranges.items[index].param];
  hri_param_spec spec;
  hri_param_get(s->model, param->spec, &spec);
  if (what >= HRI_MOVED_CODES) return fill_quantized(s, param, &spec, what, tensor, staging, staging_bytes, error);
  return fill_values(s, index, what, &spec, tensor, staging, staging_bytes, error);
}
