/* An adapter as the GGUF file that llama.cpp adds to a model (--lora): beside the name of each weight ".lora_a"
 * [rank, in] and ".lora_b" [out, rank], as its convert_lora_to_gguf.py writes them. The rows of B are those of the weight,
 * and stand in the order of the weight's rows (model/gguf.h).
 *
 * Its loader multiplies by adapter.lora.alpha / rank, whatever the adapter was trained with; the rank is that of the
 * tensor, the key is one for all. So the key holds the factor times the rank of the first module: alpha itself, or for
 * rsLoRA alpha sqrt(rank), which that converter does not turn. Ranks of their own (rank_pattern) are right by that alone.
 * Where factor times rank is another number (alpha_pattern; rsLoRA with several ranks), B is multiplied by the quotient of
 * the two: one rounding of B to its type, and the same function otherwise. */
#include "convert/adapter.h"

#include <stdio.h>
#include <string.h>

#include "model/adapter.h"

/* A or B of one module. */
typedef struct item {
  char name[128];     /* in the source */
  hri_gguf_part part; /* in the target */
  uint32_t index;     /* in the source */
  uint32_t type;
  float factor; /* on the values: 1 but for B of a module whose factor is not that of the file's key */
} item;

typedef struct work {
  const hri_convert_source *source;
  const hr_model *model;
  const hri_weights *weights;
  float alpha; /* of the file's key */
  HRI_ARRAY(item) items;
  HRI_ARRAY(hri_gguf_tensor) tensors;
} work;

/* Rows that do not fill blocks are F16, as everywhere in our GGUF files. */
static uint32_t type_of(uint32_t wanted, uint64_t columns) {
  return columns % hri_ggml_block(wanted) == 0 ? wanted : HRI_GGML_F16;
}

static hr_status check(const work *w, item *it, hr_error *error) {
  const hri_safetensor *t;
  it->index = hri_weights_find(w->weights, it->name);
  if (it->index == HRI_SAFETENSORS_NONE) {
    hri_fail(error, HR_ERROR_INPUT, "%s: the tensor %s is missing", w->model->adapter, it->name);
    return hri_hint(error, HR_ERROR_INPUT, "the adapter belongs to another model, or to another adapter_config.json");
  }
  t = hri_weights_get(w->weights, it->index);
  if (t->dtype != HRI_FILE_F32 && t->dtype != HRI_FILE_BF16 && t->dtype != HRI_FILE_F16)
    return hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has dtype %s; F32, BF16 and F16 are read",
                    hri_weights_path(w->weights, it->index), it->name, hri_file_dtype_name(t->dtype));
  if (t->rank == 2 && t->shape[0] == it->part.rows && t->shape[1] == it->part.columns) return HR_OK;
  hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has another shape than [%llu, %llu]",
           hri_weights_path(w->weights, it->index), it->name, (unsigned long long)it->part.rows,
           (unsigned long long)it->part.columns);
  return hri_hint(error, HR_ERROR_INPUT, "the adapter belongs to another model, or to another adapter_config.json");
}

static hr_status add(work *w, hr_module module, int32_t layer, bool b, uint64_t rows, uint64_t columns, uint32_t type,
                     hr_error *error) {
  const double alpha = hri_lora_plain_alpha(&w->model->lora, layer, module);
  hri_gguf_tensor t = {.rank = 2, .dims = {columns, rows}};
  item it = {.factor = 1};
  if (b && (float)alpha != w->alpha) it.factor = (float)(alpha / (double)w->alpha);
  char name[96];
  (void)hri_module_name(w->model, module, layer, name);
  (void)snprintf(it.name, sizeof it.name, "base_model.model.%.64s.lora_%c.weight", name, b ? 'B' : 'A');
  hri_gguf_adapter_part(w->model, module, layer, b, rows, columns, &it.part);
  it.type = t.type = type_of(type, columns);
  HRI_TRY(check(w, &it, error));
  if (!hri_array_push(&w->items, it) || !hri_array_push(&w->tensors, t))
    return hri_fail_memory(error, sizeof it, "the list of tensors");
  return HR_OK;
}

/* The modules of a weight: its parts, or one that is all of them. */
static hr_status add_param(work *w, const hri_param_spec *spec, uint32_t type, hr_error *error) {
  for (int k = 0; k < HR_MODULE_COUNT && spec->layer >= 0; k++) {
    uint32_t at, rank;
    char name[96];
    if (hri_module_slot((hr_module)k, &at) != spec->slot || at >= spec->part_count ||
        !hri_module_is_adapted(w->model, spec->layer, (hr_module)k) ||
        !hri_module_name(w->model, (hr_module)k, spec->layer, name))
      continue;
    rank = hri_lora_rank(&w->model->lora, spec->layer, (hr_module)k);
    HRI_TRY(add(w, (hr_module)k, spec->layer, false, rank, spec->dims[1], type, error));
    HRI_TRY(add(w, (hr_module)k, spec->layer, true, spec->parts[at].rows, rank, type, error));
  }
  return HR_OK;
}

/* Of the first module that has one: for llama.cpp a key of 0 were a factor of 1. */
static float alpha_of_key(const hr_model *model) {
  for (uint32_t layer = 0; layer < model->layer_count; layer++)
    for (int k = 0; k < HR_MODULE_COUNT; k++)
      if (hri_module_is_adapted(model, (int32_t)layer, (hr_module)k)) {
        float alpha = (float)hri_lora_plain_alpha(&model->lora, (int32_t)layer, (hr_module)k);
        if (alpha != 0) return alpha;
      }
  return 1;
}

static hr_status list_items(work *w, uint32_t type, hr_error *error) {
  w->alpha = alpha_of_key(w->model);
  for (uint32_t p = 0; p < hri_param_count(w->model); p++) {
    hri_param_spec spec;
    hri_param_get(w->model, p, &spec);
    if (!spec.adapter) HRI_TRY(add_param(w, &spec, type, error));
  }
  for (uint32_t i = 0; i < hri_weights_count(w->weights); i++) {
    bool seen = false;
    for (size_t k = 0; k < w->items.count && !seen; k++) seen = w->items.items[k].index == i;
    if (seen) continue;
    hri_fail(error, HR_ERROR_INPUT, "%s: the tensor %s belongs to no module that adapter_config.json adapts",
             hri_weights_path(w->weights, i), hri_weights_get(w->weights, i)->name);
    return hri_hint(error, HR_ERROR_INPUT, "GGUF files of adapters hold A and B of linear modules of layers");
  }
  for (size_t k = 0; k < w->items.count; k++) w->tensors.items[k].name = w->items.items[k].part.name;
  return HR_OK;
}

/* `raw` has room for the tensor in any type, `values` and `spare` for it in fp32. */
static hr_status write_item(const work *w, uint32_t at, hri_gguf_writer *writer, float *values, float *spare, void *raw,
                            uint64_t *data_bytes, hr_error *error) {
  const item *it = &w->items.items[at];
  const hri_safetensor *from = hri_weights_get(w->weights, it->index);
  uint64_t count = it->part.rows * it->part.columns, bytes = 0;
  HRI_TRY(hri_convert_go_on(w->source, error));
  HRI_TRY(hri_weights_read(w->weights, it->index, 0, from->end - from->begin, raw, error));
  (void)hri_file_to_f32(from->dtype, values, raw, count);
  for (uint64_t i = 0; it->factor != 1 && i < count; i++) values[i] *= it->factor;
  HRI_TRY(hri_convert_check_values(values, count, it->type, it->name, error));
  if (it->part.head_size) hri_convert_interleave(values, it->part.rows, it->part.columns, it->part.head_size, spare);
  (void)hri_ggml_from_f32(it->type, raw, values, count);
  if (!hri_ggml_bytes(it->type, count, &bytes))
    return hri_fail(error, HR_ERROR_INTERNAL, "tensor %s: %llu values make no blocks", it->part.name,
                    (unsigned long long)count);
  *data_bytes += bytes;
  return hri_gguf_writer_write(writer, at, 0, raw, bytes, error);
}

static hr_status write_items(const work *w, hri_gguf_writer *writer, uint64_t *data_bytes, hr_error *error) {
  uint64_t most = 1;
  float *values, *spare;
  void *raw;
  hr_status status = HR_OK;
  for (size_t k = 0; k < w->items.count; k++)
    if (w->items.items[k].part.rows * w->items.items[k].part.columns > most)
      most = w->items.items[k].part.rows * w->items.items[k].part.columns;
  values = hri_alloc(most * sizeof *values);
  spare = hri_alloc(most * sizeof *spare);
  raw = hri_alloc(most * sizeof *values);
  if (!values || !spare || !raw) status = hri_fail_memory(error, 3 * most * sizeof *values, "the largest tensor");
  for (uint32_t k = 0; k < w->items.count && status == HR_OK; k++)
    status = write_item(w, k, writer, values, spare, raw, data_bytes, error);
  hri_free(values);
  hri_free(spare);
  hri_free(raw);
  return status;
}

hr_status hri_convert_adapter(const hri_convert_source *source, const char *path, uint32_t type, uint32_t file_type,
                              uint32_t *tensor_count, uint64_t *data_bytes, hr_error *error) {
  work w = {.source = source, .model = source->model, .weights = source->weights};
  hri_gguf_keys keys = {0};
  hri_gguf_writer *writer = NULL;
  hr_status status = HR_OK;
  *data_bytes = 0;
  HRI_TRY_OUT(list_items(&w, type, error));
  hri_gguf_put_adapter(&keys, w.model, w.alpha, file_type);
  HRI_TRY_OUT(hri_gguf_writer_open(path, &keys, w.tensors.items, (uint32_t)w.tensors.count, &writer, error));
  HRI_TRY_OUT(write_items(&w, writer, data_bytes, error));
  *tensor_count = (uint32_t)w.tensors.count;
  status = hri_gguf_writer_finish(writer, error);
  writer = NULL;
out:
  hri_gguf_writer_abort(writer);
  hri_gguf_keys_deinit(&keys);
  hri_array_free(&w.items);
  hri_array_free(&w.tensors);
  return status;
}
