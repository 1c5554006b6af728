/* Writing safetensors: all sizes are known when the file is opened, so the header is written first and every tensor has
 * its place; pieces then arrive in any order and none is kept. The digest of the file is taken from the pieces. */
#include <stdatomic.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "formats/order.h"
#include "formats/safetensors.h"

typedef struct place {
  uint64_t begin, bytes;    /* in the data */
  _Atomic uint64_t written; /* bytes so far, by any thread */
} place;

struct hri_safetensors_writer {
  int fd;
  char *path;
  const hri_safetensor *tensors; /* the caller's */
  place *places;
  uint32_t count;
  uint64_t data_begin, data_bytes;
  hri_file_digest *digest;
};

enum { DIGEST_PARTS = 16 }; /* ends of pieces and of tensors that wait for their neighbours; more as they come */

#define MAX_DATA_BYTES ((uint64_t)1 << 60) /* far from what off_t holds */

typedef unsigned long long ull; /* for printing */

/* ---- Header ---- */

static hr_status check_tensor(const char *path, const hri_safetensor *tensor, uint64_t *bytes, hr_error *error) {
  uint64_t elements;
  if (!tensor->name || !hri_utf8_whole(tensor->name) || strcmp(tensor->name, "__metadata__") == 0)
    return hri_fail(error, HR_ERROR_USAGE, "%s: '%.200s' cannot name a tensor", path, tensor->name ? tensor->name : "");
  if (tensor->rank > HRI_SAFETENSORS_MAX_RANK || (unsigned)tensor->dtype >= HRI_FILE_DTYPE_COUNT ||
      !hri_file_elements(tensor->rank, tensor->shape, &elements) || !hri_file_bytes(tensor->dtype, elements, bytes))
    return hri_fail(error, HR_ERROR_USAGE, "%s: tensor '%.200s' has a shape or dtype that cannot be stored", path, tensor->name);
  return HR_OK;
}

static int compare_keys(const void *items, uint32_t a, uint32_t b) {
  const hri_safetensors_pair *pairs = items;
  return strcmp(pairs[a].key, pairs[b].key);
}

/* The pairs may come from a file that somebody else made: there may be many. */
static hr_status check_metadata(const char *path, const hri_safetensors_pair *metadata, uint32_t count, hr_error *error) {
  uint32_t i, *order;
  hr_status status = HR_OK;
  HRI_TRY(hri_order_make(metadata, count, compare_keys, &order, error));
  for (i = 1; i < count && status == HR_OK; i++)
    if (compare_keys(metadata, order[i - 1], order[i]) == 0)
      status = hri_fail(error, HR_ERROR_USAGE, "%s: the metadata key '%.200s' is given twice", path, metadata[order[i]].key);
  hri_free(order);
  return status;
}

static int compare_names(const void *items, uint32_t a, uint32_t b) {
  const hri_safetensor *tensors = items;
  return strcmp(tensors[a].name, tensors[b].name);
}

static int compare_dtypes_falling(const void *items, uint32_t a, uint32_t b) {
  const hri_safetensor *tensors = items;
  return (int)tensors[b].dtype - (int)tensors[a].dtype;
}

/* The reference's order: dtype falling, then name (the sort is stable). Duplicates are found in between. */
static hr_status order_tensors(const hri_safetensors_writer *writer, uint32_t **order, hr_error *error) {
  uint32_t i;
  hr_status status;
  HRI_TRY(hri_order_make(writer->tensors, writer->count, compare_names, order, error));
  for (i = 1; i < writer->count; i++) {
    if (compare_names(writer->tensors, (*order)[i - 1], (*order)[i]) != 0) continue;
    status = hri_fail(error, HR_ERROR_USAGE, "%s: two tensors are named '%.200s'", writer->path, writer->tensors[(*order)[i]].name);
    goto out;
  }
  status = hri_order_sort(writer->tensors, *order, writer->count, compare_dtypes_falling, error);
out:
  if (status != HR_OK) {
    hri_free(*order);
    *order = NULL;
  }
  return status;
}

static hr_status check_tensors(hri_safetensors_writer *writer, hr_error *error) {
  uint32_t i;
  for (i = 0; i < writer->count; i++)
    HRI_TRY(check_tensor(writer->path, &writer->tensors[i], &writer->places[i].bytes, error));
  return HR_OK;
}

static hr_status place_tensors(hri_safetensors_writer *writer, const uint32_t *order, hr_error *error) {
  uint32_t i;
  for (i = 0; i < writer->count; i++) {
    place *to = &writer->places[order[i]];
    to->begin = writer->data_bytes;
    if (!hri_add(writer->data_bytes, to->bytes, &writer->data_bytes) || writer->data_bytes > MAX_DATA_BYTES)
      return hri_fail(error, HR_ERROR_USAGE, "%s: the tensors together are too large for a file", writer->path);
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

static void put_tensor(hri_json_writer *json, const hri_safetensor *tensor, const place *at) {
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
static hr_status make_header(hri_safetensors_writer *writer, const uint32_t *order, const hri_safetensors_pair *metadata,
                             uint32_t metadata_count, hri_text *text, hr_error *error) {
  uint64_t length = 0;
  uint32_t i;
  hri_json_writer json;
  hri_text_add_bytes(text, (const char *)&length, sizeof length); /* filled in below */
  json = hri_json_writer_init(text, 0);
  hri_json_begin_object(&json);
  put_metadata(&json, metadata, metadata_count);
  for (i = 0; i < writer->count; i++) put_tensor(&json, &writer->tensors[order[i]], &writer->places[order[i]]);
  hri_json_end_object(&json);
  while (!text->failed && text->length % 8 != 0) hri_text_add_bytes(text, " ", 1);
  if (text->failed) return hri_fail_memory(error, text->length, writer->path);
  length = text->length - sizeof length;
  if (length > HRI_SAFETENSORS_MAX_HEADER)
    return hri_hint(error, hri_fail(error, HR_ERROR_USAGE, "%s: the header would have %llu bytes; at most %d are allowed", writer->path,
                                    (ull)length, HRI_SAFETENSORS_MAX_HEADER), "write the tensors to several files");
  memcpy(text->chars, &length, sizeof length);
  writer->data_begin = text->length;
  return HR_OK;
}

/* ---- File ---- */

static hr_status put(hri_safetensors_writer *writer, uint64_t at, const void *bytes, uint64_t count, hr_error *error) {
  HRI_TRY(hri_file_digest_add(writer->digest, at, bytes, count, error)); /* first: it finds values in the cache and leaves them there */
  return hri_file_pwrite(writer->fd, writer->path, bytes, count, at, error);
}

static hr_status start_file(hri_safetensors_writer *writer, const hri_text *header, hr_error *error) {
  HRI_TRY(hri_file_digest_create(DIGEST_PARTS, &writer->digest, error));
  HRI_TRY(hri_file_create(writer->path, &writer->fd, error));
  HRI_TRY(hri_file_reserve(writer->fd, writer->path, hri_safetensors_writer_file_bytes(writer), error));
  return put(writer, 0, header->chars, header->length, error);
}

static hri_safetensors_writer *create(const char *path, const hri_safetensor *tensors, uint32_t count) {
  hri_safetensors_writer *writer = hri_alloc_zero(1, sizeof *writer);
  if (!writer) return NULL;
  writer->fd = -1;
  writer->tensors = tensors;
  writer->count = count;
  writer->path = hri_strdup(path);
  writer->places = hri_alloc_zero(count, sizeof *writer->places);
  if (writer->path && writer->places) return writer;
  hri_safetensors_writer_abort(writer);
  return NULL;
}

hr_status hri_safetensors_writer_open(const char *path, const hri_safetensor *tensors, uint32_t count,
                                      const hri_safetensors_pair *metadata, uint32_t metadata_count,
                                      hri_safetensors_writer **opened, hr_error *error) {
  hri_text header = {0};
  uint32_t *order = NULL;
  hr_status status = HR_OK;
  hri_safetensors_writer *writer = create(path, tensors, count);
  if (!writer) return hri_fail_memory(error, sizeof *writer + (uint64_t)count * sizeof(place), path);
  HRI_TRY_OUT(check_tensors(writer, error));
  HRI_TRY_OUT(check_metadata(path, metadata, metadata_count, error));
  HRI_TRY_OUT(order_tensors(writer, &order, error));
  HRI_TRY_OUT(place_tensors(writer, order, error));
  HRI_TRY_OUT(make_header(writer, order, metadata, metadata_count, &header, error));
  HRI_TRY_OUT(start_file(writer, &header, error));
  *opened = writer;
  writer = NULL;
out:
  hri_text_deinit(&header);
  hri_free(order);
  hri_safetensors_writer_abort(writer);
  return status;
}

uint64_t hri_safetensors_writer_file_bytes(const hri_safetensors_writer *writer) {
  return writer->data_begin + writer->data_bytes;
}

hr_status hri_safetensors_writer_write(hri_safetensors_writer *writer, uint32_t index, uint64_t offset, const void *data,
                                       uint64_t bytes, hr_error *error) {
  hr_status status;
  uint64_t before;
  place *at;
  if (index >= writer->count) return hri_fail(error, HR_ERROR_INTERNAL, "%s has no tensor of index %u", writer->path, index);
  at = &writer->places[index];
  before = atomic_fetch_add(&at->written, bytes); /* taken back when the piece is not written */
  if (offset > at->bytes || bytes > at->bytes - offset || before > at->bytes || bytes > at->bytes - before)
    status = hri_fail(error, HR_ERROR_INTERNAL, "%s: tensor '%.200s' of %llu bytes, %llu of them written, got bytes %llu+%llu", writer->path,
                      writer->tensors[index].name, (ull)at->bytes, (ull)before, (ull)offset, (ull)bytes);
  else
    status = put(writer, writer->data_begin + at->begin + offset, data, bytes, error);
  if (status != HR_OK) (void)atomic_fetch_sub(&at->written, bytes);
  return status;
}

/* ---- The end ---- */

void hri_safetensors_writer_abort(hri_safetensors_writer *writer) {
  if (!writer) return;
  if (writer->fd >= 0) (void)hri_file_finish(writer->fd, writer->path, HR_ERROR_INTERRUPTED, NULL);
  hri_file_digest_destroy(writer->digest);
  hri_free(writer->places);
  hri_free(writer->path);
  hri_free(writer);
}

static hr_status check_written(const hri_safetensors_writer *writer, hr_error *error) {
  uint32_t i;
  for (i = 0; i < writer->count; i++)
    if (writer->places[i].written != writer->places[i].bytes)
      return hri_fail(error, HR_ERROR_INTERNAL, "%s: tensor '%.200s' got %llu of its %llu bytes", writer->path, writer->tensors[i].name,
                      (ull)writer->places[i].written, (ull)writer->places[i].bytes);
  return HR_OK;
}

static hr_status tell(const hri_safetensors_writer *writer, hri_file_list *files, hr_error *error) {
  uint64_t bytes = hri_safetensors_writer_file_bytes(writer), value;
  hr_status status = hri_file_digest_value(writer->digest, bytes, &value, error);
  if (status != HR_OK) return hri_context(error, status, "%s: ", writer->path);
  return hri_file_list_add(files, writer->path, bytes, value, error);
}

hr_status hri_safetensors_writer_finish(hri_safetensors_writer *writer, hri_file_list *files, hr_error *error) {
  hr_status status = check_written(writer, error);
  if (status == HR_OK) status = tell(writer, files, error);
  status = hri_file_finish(writer->fd, writer->path, status, error);
  writer->fd = -1;
  hri_safetensors_writer_abort(writer);
  return status;
}
