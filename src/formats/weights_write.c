/* Writing weights: one safetensors writer per shard, then the index. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "formats/order.h"
#include "formats/weights.h"

struct hri_weights_writer {
  char *directory;
  const hri_safetensor *tensors; /* the caller's */
  uint32_t count, shard_count;
  uint32_t *shard_of;             /* per tensor: its shard */
  uint32_t *place_of;             /* per tensor: its index in the list of its shard */
  hri_safetensor *lists;          /* the tensors, shard by shard */
  hri_safetensors_writer **files; /* NULL once finished or given up */
  uint64_t data_bytes, elements;
};

enum { SHARD_NAME_BYTES = 64 };

static void shard_name(uint32_t shard, uint32_t count, char out[SHARD_NAME_BYTES]) {
  if (count == 1) (void)snprintf(out, SHARD_NAME_BYTES, HRI_WEIGHTS_FILE);
  else (void)snprintf(out, SHARD_NAME_BYTES, "model-%05u-of-%05u.safetensors", shard + 1, count);
}

static bool tensor_bytes(const hri_safetensor *tensor, uint64_t *bytes) {
  uint64_t elements;
  return tensor->rank <= HRI_SAFETENSORS_MAX_RANK && hri_file_elements(tensor->rank, tensor->shape, &elements) &&
         hri_file_bytes(tensor->dtype, elements, bytes);
}

/* Shards are numbered in the order in which huggingface_hub closes them: a lone large tensor when it is met, the open
 * shard when it is full. An open shard gets its number late, so its members hold OPEN until then. */
hr_status hri_weights_split(const hri_safetensor *tensors, uint32_t count, uint64_t max_shard_bytes, uint32_t *shard_of,
                            uint32_t *shard_count, hr_error *error) {
  const uint32_t open = HRI_SAFETENSORS_NONE;
  uint64_t open_bytes = 0;
  uint32_t i, next = 0, first_open = 0;
  bool any_open = false;
  for (i = 0; i <= count; i++) {
    uint64_t bytes = 0;
    uint32_t k;
    if (i < count && !tensor_bytes(&tensors[i], &bytes))
      return hri_fail(error, HR_ERROR_USAGE, "tensor '%.200s' has a shape that cannot be stored", tensors[i].name);
    if (i < count && bytes > max_shard_bytes) {
      shard_of[i] = next++;
      continue;
    }
    if (any_open && (i == count || bytes > max_shard_bytes - open_bytes)) {
      for (k = first_open; k < i; k++)
        if (shard_of[k] == open) shard_of[k] = next;
      next++;
      any_open = false;
    }
    if (i == count) break;
    if (!any_open) {
      first_open = i;
      open_bytes = 0;
      any_open = true;
    }
    shard_of[i] = open;
    open_bytes += bytes;
  }
  *shard_count = next ? next : 1;
  return HR_OK;
}

/* ---- Opening ---- */

/* Groups the tensors by shard, keeping their order; begins[s] is where the list of shard s begins. */
static void group(hri_weights_writer *writer, uint32_t *begins) {
  uint32_t i, shard;
  for (i = 0; i < writer->count; i++) begins[writer->shard_of[i] + 1]++;
  for (shard = 0; shard < writer->shard_count; shard++) begins[shard + 1] += begins[shard];
  for (i = 0; i < writer->count; i++) writer->place_of[i] = begins[writer->shard_of[i]]++;
  for (shard = writer->shard_count; shard > 0; shard--) begins[shard] = begins[shard - 1];
  begins[0] = 0;
  for (i = 0; i < writer->count; i++) {
    writer->lists[writer->place_of[i]] = writer->tensors[i];
    writer->place_of[i] -= begins[writer->shard_of[i]];
  }
}

static hr_status open_files(hri_weights_writer *writer, const uint32_t *begins, const hri_weights_layout *layout,
                            hr_error *error) {
  uint32_t shard;
  for (shard = 0; shard < writer->shard_count; shard++) {
    char name[SHARD_NAME_BYTES], *path;
    hr_status status;
    shard_name(shard, writer->shard_count, name);
    path = hri_path_join(writer->directory, layout->name ? layout->name : name);
    if (!path) return hri_fail_memory(error, strlen(writer->directory) + sizeof name, writer->directory);
    status = hri_safetensors_writer_open(path, writer->lists + begins[shard], begins[shard + 1] - begins[shard],
                                         layout->metadata, layout->metadata_count, &writer->files[shard], error);
    hri_free(path);
    HRI_TRY(status);
  }
  return HR_OK;
}

static const char *tensor_name(const void *items, uint32_t index) {
  return ((const hri_safetensor *)items)[index].name;
}

/* Over all shards; within one, its own writer would find them too. */
static hr_status check_duplicates(const hri_weights_writer *writer, hr_error *error) {
  uint32_t twice, *order;
  HRI_TRY(hri_order_names(writer->tensors, writer->count, tensor_name, &order, &twice, error));
  hri_free(order);
  if (twice == HRI_ORDER_NONE) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "%s: two tensors are named '%.200s'", writer->directory,
                  writer->tensors[twice].name);
}

/* The caller's shards: in range, and none without a tensor. */
static hr_status take_shards(hri_weights_writer *writer, const hri_weights_layout *layout, hr_error *error) {
  bool *used = hri_alloc_zero((size_t)layout->shard_count + 1, sizeof *used);
  uint32_t i, k, count = 0;
  if (!used) return hri_fail_memory(error, layout->shard_count, writer->directory);
  for (i = 0; i < writer->count && layout->shard_of[i] < layout->shard_count; i++) {
    count += !used[layout->shard_of[i]];
    used[layout->shard_of[i]] = true;
    writer->shard_of[i] = layout->shard_of[i];
  }
  for (k = 0; k < layout->shard_count && used[k]; k++) {}
  hri_free(used);
  writer->shard_count = layout->shard_count;
  if (i == writer->count && count == layout->shard_count && k == count) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "%s: the tensors do not fill shards 0 to %u", writer->directory,
                  layout->shard_count);
}

static hr_status plan_shards(hri_weights_writer *writer, const hri_weights_layout *layout, hr_error *error) {
  uint32_t i;
  if (layout->name) {
    writer->shard_count = 1;
  } else if (layout->shard_of && writer->count > 0) {
    HRI_TRY(take_shards(writer, layout, error));
  } else {
    HRI_TRY(hri_weights_split(writer->tensors, writer->count,
                              layout->max_shard_bytes ? layout->max_shard_bytes : UINT64_MAX, writer->shard_of,
                              &writer->shard_count, error));
  }
  for (i = 0; i < writer->count; i++) {
    uint64_t bytes = 0, elements = 0;
    if (!tensor_bytes(&writer->tensors[i], &bytes) || !hri_add(writer->data_bytes, bytes, &writer->data_bytes))
      return hri_fail(error, HR_ERROR_USAGE, "%s: the tensors together are too large", writer->directory);
    (void)hri_file_elements(writer->tensors[i].rank, writer->tensors[i].shape, &elements);
    writer->elements += elements;
  }
  return HR_OK;
}

hr_status hri_weights_writer_open_as(const char *directory, const hri_safetensor *tensors, uint32_t count,
                                     const hri_weights_layout *layout, hri_weights_writer **opened, hr_error *error) {
  hri_weights_writer *writer = hri_alloc_zero(1, sizeof *writer);
  uint32_t *begins = NULL;
  hr_status status = HR_ERROR_MEMORY;
  if (!writer) goto refused;
  writer->tensors = tensors;
  writer->count = count;
  writer->directory = hri_strdup(directory);
  writer->shard_of = hri_alloc_zero(count, sizeof *writer->shard_of);
  writer->place_of = hri_alloc_zero(count, sizeof *writer->place_of);
  writer->lists = hri_alloc_zero(count, sizeof *writer->lists);
  if (!writer->directory || !writer->shard_of || !writer->place_of || !writer->lists) goto refused;
  HRI_TRY_OUT(check_duplicates(writer, error));
  HRI_TRY_OUT(plan_shards(writer, layout, error));
  writer->files = hri_alloc_zero(writer->shard_count, sizeof *writer->files);
  begins = hri_alloc_zero((size_t)writer->shard_count + 1, sizeof *begins);
  if (!writer->files || !begins) goto refused;
  group(writer, begins);
  HRI_TRY_OUT(open_files(writer, begins, layout, error));
  *opened = writer;
  writer = NULL;
  goto out;
refused:
  status = hri_fail_memory(error, sizeof *writer + (uint64_t)count * (sizeof *tensors + 8), directory);
out:
  hri_free(begins);
  hri_weights_writer_abort(writer);
  return status;
}

hr_status hri_weights_writer_open(const char *directory, const hri_safetensor *tensors, uint32_t count,
                                  uint64_t max_shard_bytes, hri_weights_writer **opened, hr_error *error) {
  hri_weights_layout layout = {.max_shard_bytes = max_shard_bytes};
  return hri_weights_writer_open_as(directory, tensors, count, &layout, opened, error);
}

hr_status hri_weights_writer_write(hri_weights_writer *writer, uint32_t index, uint64_t offset, const void *data,
                                   uint64_t bytes, hr_error *error) {
  if (index >= writer->count)
    return hri_fail(error, HR_ERROR_INTERNAL, "%s: there is no weight of index %u", writer->directory, index);
  return hri_safetensors_writer_write(writer->files[writer->shard_of[index]], writer->place_of[index], offset, data,
                                      bytes, error);
}

/* ---- The end ---- */

/* As transformers 5 writes it: two blanks, keys sorted, a newline at the end. */
static hr_status write_index(const hri_weights_writer *writer, const char *path, hri_file_list *files,
                             hr_error *error) {
  hri_text text = {0};
  hri_json_writer json = hri_json_writer_init(&text, 2);
  uint32_t i, twice, *order;
  hr_status status;
  HRI_TRY(hri_order_names(writer->tensors, writer->count, tensor_name, &order, &twice, error));
  hri_json_begin_object(&json);
  hri_json_key(&json, "metadata");
  hri_json_begin_object(&json);
  hri_json_field_u64(&json, "total_parameters", writer->elements);
  hri_json_field_u64(&json, "total_size", writer->data_bytes);
  hri_json_end_object(&json);
  hri_json_key(&json, "weight_map");
  hri_json_begin_object(&json);
  for (i = 0; i < writer->count; i++) {
    char name[SHARD_NAME_BYTES];
    shard_name(writer->shard_of[order[i]], writer->shard_count, name);
    hri_json_field_string(&json, writer->tensors[order[i]].name, name);
  }
  hri_json_end_object(&json);
  hri_json_end_object(&json);
  hri_text_add_bytes(&text, "\n", 1);
  hri_free(order);
  status = text.failed ? hri_fail_memory(error, text.length, path)
                       : hri_file_write_new(path, text.chars, text.length, error);
  if (status == HR_OK)
    status = hri_file_list_add(files, path, text.length, hri_file_digest_of(text.chars, text.length), error);
  hri_text_deinit(&text);
  return status;
}

static hr_status complete(const hri_weights_writer *writer, hri_file_list *files, hr_error *error) {
  char *index;
  hr_status status;
  if (writer->shard_count == 1) return HR_OK;
  index = hri_path_join(writer->directory, HRI_WEIGHTS_INDEX);
  if (!index) return hri_fail_memory(error, strlen(writer->directory) + sizeof HRI_WEIGHTS_INDEX, writer->directory);
  status = write_index(writer, index, files, error);
  hri_free(index);
  return status;
}

hr_status hri_weights_writer_finish(hri_weights_writer *writer, hri_file_list *files, hr_error *error) {
  hr_status status = HR_OK;
  uint32_t shard;
  for (shard = 0; shard < writer->shard_count && status == HR_OK; shard++) {
    hri_safetensors_writer *file = writer->files[shard];
    writer->files[shard] = NULL;
    status = hri_safetensors_writer_finish(file, files, error);
  }
  if (status == HR_OK) status = complete(writer, files, error);
  hri_weights_writer_abort(writer);
  return status;
}

void hri_weights_writer_abort(hri_weights_writer *writer) {
  uint32_t shard;
  if (!writer) return;
  for (shard = 0; writer->files && shard < writer->shard_count; shard++)
    hri_safetensors_writer_abort(writer->files[shard]);
  hri_free(writer->files);
  hri_free(writer->lists);
  hri_free(writer->place_of);
  hri_free(writer->shard_of);
  hri_free(writer->directory);
  hri_free(writer);
}
