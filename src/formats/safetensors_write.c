/* Writing safetensors: all sizes are known when the file is opened, so the header is written first and every tensor has
 * its place; pieces then arrive in any order and none is kept. The digest of the file is taken from the pieces. */
#include <string.h>

#include "base/json.h"
#include "formats/tensor_file.h"
#include "formats/order.h"
#include "formats/safetensors.h"

struct hri_safetensors_writer {
  hri_tensor_writer base;        /* first */
  const hri_safetensor *tensors; /* the caller's */
  hri_file_digest *digest;
};

enum { DIGEST_PARTS = 16 }; /* ends of pieces and of tensors that wait for their neighbours; more as they come */

typedef unsigned long long ull; /* for printing */

/* ---- Header ---- */

static hr_status check_tensor(const char *path, const hri_safetensor *tensor, uint64_t *bytes, hr_error *error) {
  uint64_t elements;
  if (!tensor->name || !hri_utf8_whole(tensor->name) || strcmp(tensor->name, "__metadata__") == 0)
    return hri_fail(error, HR_ERROR_USAGE, "%s: '%.200s' cannot name a tensor", path, tensor->name ? tensor->name : "");
  if (tensor->rank > HRI_SAFETENSORS_MAX_RANK || (unsigned)tensor->dtype >= HRI_FILE_DTYPE_COUNT ||
      !hri_file_elements(tensor->rank, tensor->shape, &elements) || !hri_file_bytes(tensor->dtype, elements, bytes))
    return hri_fail(error, HR_ERROR_USAGE, "%s: tensor '%.200s' has a shape or dtype that cannot be stored", path,
                    tensor->name);
  return HR_OK;
}

static const char *pair_key(const void *items, uint32_t index) {
  return ((const hri_safetensors_pair *)items)[index].key;
}

/* The pairs may come from a file that somebody else made: there may be many. */
static hr_status check_metadata(const char *path, const hri_safetensors_pair *metadata, uint32_t count,
                                hr_error *error) {
  uint32_t twice, *order;
  HRI_TRY(hri_order_names(metadata, count, pair_key, &order, &twice, error));
  hri_free(order);
  if (twice == HRI_ORDER_NONE) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "%s: the metadata key '%.200s' is given twice", path, metadata[twice].key);
}

static const char *tensor_name(const void *items, uint32_t index) {
  return ((const hri_safetensor *)items)[index].name;
}

static int compare_dtypes_falling(const void *items, uint32_t a, uint32_t b) {
  const hri_safetensor *tensors = items;
  return (int)tensors[b].dtype - (int)tensors[a].dtype;
}

/* The reference's order: dtype falling, then name (the sort is stable). Duplicates are found in between. */
static hr_status order_tensors(const hri_safetensors_writer *writer, uint32_t **order, hr_error *error) {
  uint32_t twice;
  hr_status status;
  HRI_TRY(hri_order_names(writer->tensors, writer->base.count, tensor_name, order, &twice, error));
  if (twice != HRI_ORDER_NONE)
    status = hri_fail(error, HR_ERROR_USAGE, "%s: two tensors are named '%.200s'", writer->base.path,
                      writer->tensors[twice].name);
  else status = hri_order_sort(writer->tensors, *order, writer->base.count, compare_dtypes_falling, error);
  if (status != HR_OK) {
    hri_free(*order);
    *order = NULL;
  }
  return status;
}

static hr_status check_tensors(const hri_safetensors_writer *writer, hr_error *error) {
  for (uint32_t i = 0; i < writer->base.count; i++)
    HRI_TRY(check_tensor(writer->base.path, &writer->tensors[i], &writer->base.places[i].bytes, error));
  return HR_OK;
}

static hr_status place_tensors(hri_safetensors_writer *writer, const uint32_t *order, hr_error *error) {
  for (uint32_t i = 0; i < writer->base.count; i++) {
    uint32_t index = order[i];
    HRI_TRY(hri_tensor_writer_put(&writer->base, index, writer->tensors[index].name, writer->base.places[index].bytes,
                                  1, error));
  }
  return HR_OK;
}

static void put_metadata(hri_json_writer *json, const hri_safetensors_pair *metadata, uint32_t count) {
  uint32_t i;
  bool format = false;
  for (i = 0; i < count; i++) format = format || strcmp(metadata[i].key, "format") == 0;
  hri_json_key(json, "__metadata__");
  hri_json_begin_object(json);
  if (!format) hri_json_field_string(json, "format", "pt");
  for (i = 0; i < count; i++) hri_json_field_string(json, metadata[i].key, metadata[i].value);
  hri_json_end_object(json);
}

static void put_tensor(hri_json_writer *json, const hri_safetensor *tensor, const hri_tensor_place *at) {
  uint32_t i;
  hri_json_key(json, tensor->name);
  hri_json_begin_object(json);
  hri_json_field_string(json, "dtype", hri_file_dtype_name(tensor->dtype));
  hri_json_key(json, "shape");
  hri_json_begin_array(json);
  for (i = 0; i < tensor->rank; i++) hri_json_put_u64(json, tensor->shape[i]);
  hri_json_end_array(json);
  hri_json_key(json, "data_offsets");
  hri_json_begin_array(json);
  hri_json_put_u64(json, at->begin);
  hri_json_put_u64(json, at->begin + at->bytes);
  hri_json_end_array(json);
  hri_json_end_object(json);
}

/* The first bytes of the file: length, header, blanks up to a multiple of 8. */
static hr_status make_header(hri_safetensors_writer *writer, const uint32_t *order,
                             const hri_safetensors_pair *metadata, uint32_t metadata_count, hri_text *text,
                             hr_error *error) {
  uint64_t length = 0;
  uint32_t i;
  hri_json_writer json;
  hri_text_add_bytes(text, (const char *)&length, sizeof length); /* filled in below */
  json = hri_json_writer_init(text, 0);
  hri_json_begin_object(&json);
  put_metadata(&json, metadata, metadata_count);
  for (i = 0; i < writer->base.count; i++)
    put_tensor(&json, &writer->tensors[order[i]], &writer->base.places[order[i]]);
  hri_json_end_object(&json);
  while (!text->failed && text->length % 8 != 0) hri_text_add_bytes(text, " ", 1);
  if (text->failed) return hri_fail_memory(error, text->length, writer->base.path);
  length = text->length - sizeof length;
  if (length > HRI_SAFETENSORS_MAX_HEADER)
    return hri_hint(error,
                    hri_fail(error, HR_ERROR_USAGE, "%s: the header would have %llu bytes; at most %d are allowed",
                             writer->base.path, (ull)length, HRI_SAFETENSORS_MAX_HEADER),
                    "write the tensors to several files");
  memcpy(text->chars, &length, sizeof length);
  return HR_OK;
}

/* ---- File ---- */

static hr_status add_to_digest(hri_tensor_writer *writer, uint64_t at, const void *bytes, uint64_t count,
                               hr_error *error) {
  return hri_file_digest_add(((hri_safetensors_writer *)writer)->digest, at, bytes, count, error);
}

hr_status hri_safetensors_writer_open(const char *path, const hri_safetensor *tensors, uint32_t count,
                                      const hri_safetensors_pair *metadata, uint32_t metadata_count,
                                      hri_safetensors_writer **opened, hr_error *error) {
  hri_text header = {0};
  uint32_t *order = NULL;
  hri_safetensors_writer *writer;
  hri_tensor_writer *file;
  hr_status status;
  HRI_TRY(hri_tensor_writer_create(sizeof *writer, path, count, &file, error));
  file->tap = add_to_digest;
  writer = (hri_safetensors_writer *)file;
  writer->tensors = tensors;
  HRI_TRY_OUT(check_tensors(writer, error));
  HRI_TRY_OUT(check_metadata(path, metadata, metadata_count, error));
  HRI_TRY_OUT(order_tensors(writer, &order, error));
  HRI_TRY_OUT(place_tensors(writer, order, error));
  HRI_TRY_OUT(make_header(writer, order, metadata, metadata_count, &header, error));
  HRI_TRY_OUT(hri_file_digest_create(DIGEST_PARTS, &writer->digest, error));
  HRI_TRY_OUT(hri_tensor_writer_start(file, header.chars, header.length, error));
  *opened = writer;
  writer = NULL;
out:
  hri_text_deinit(&header);
  hri_free(order);
  hri_safetensors_writer_abort(writer);
  return status;
}

uint64_t hri_safetensors_writer_file_bytes(const hri_safetensors_writer *writer) {
  return hri_tensor_writer_file_bytes(&writer->base);
}

hr_status hri_safetensors_writer_write(hri_safetensors_writer *writer, uint32_t index, uint64_t offset,
                                       const void *data, uint64_t bytes, hr_error *error) {
  return hri_tensor_writer_write(&writer->base, index, offset, data, bytes, error);
}

/* ---- The end ---- */

void hri_safetensors_writer_abort(hri_safetensors_writer *writer) {
  if (!writer) return;
  hri_file_digest_destroy(writer->digest);
  hri_tensor_writer_abort(&writer->base);
}

static hr_status tell(const hri_safetensors_writer *writer, hri_file_list *files, hr_error *error) {
  uint64_t bytes = hri_safetensors_writer_file_bytes(writer), value;
  hr_status status = hri_file_digest_value(writer->digest, bytes, &value, error);
  if (status != HR_OK) return hri_context(error, status, "%s: ", writer->base.path);
  return hri_file_list_add(files, writer->base.path, bytes, value, error);
}

hr_status hri_safetensors_writer_finish(hri_safetensors_writer *writer, hri_file_list *files, hr_error *error) {
  hr_status status = hri_tensor_writer_check(&writer->base, error);
  if (status == HR_OK) status = tell(writer, files, error);
  status = hri_tensor_writer_end(&writer->base, status, error);
  hri_safetensors_writer_abort(writer);
  return status;
}
