/* Writing GGUF: sizes are known when the file is opened, so the head is written first and every tensor has its place; pieces
 * then arrive in any order and none is kept. The file grows under the name it is given, which is not the one it is made for. */
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/publish.h"
#include "formats/gguf.h"
#include "formats/order.h"

typedef unsigned long long ull; /* for printing */

typedef struct place {
  uint64_t begin, bytes, written; /* in the data; bytes written so far */
} place;

struct hri_gguf_writer {
  int fd;
  char *path;
  const hri_gguf_tensor *tensors; /* the caller's */
  place *places;
  uint32_t count;
  uint64_t data_begin, data_bytes;
};

#define MAX_DATA_BYTES ((uint64_t)1 << 60) /* far from what off_t holds */

/* ---- keys ---- */

static void add(hri_gguf_keys *keys, const void *bytes, size_t count) {
  if (count > 0) hri_text_add_bytes(&keys->text, bytes, count);
}

static void add_u32(hri_gguf_keys *keys, uint32_t value) { add(keys, &value, sizeof value); }

void hri_gguf_add_string(hri_gguf_keys *keys, const char *value, uint64_t bytes) {
  add(keys, &bytes, sizeof bytes);
  add(keys, value, bytes);
}

static void begin(hri_gguf_keys *keys, const char *key, hri_gguf_type type) {
  keys->count++;
  hri_gguf_add_string(keys, key, strlen(key));
  add_u32(keys, type);
}

void hri_gguf_put_u32(hri_gguf_keys *keys, const char *key, uint32_t value) {
  begin(keys, key, HRI_GGUF_U32);
  add_u32(keys, value);
}

void hri_gguf_put_f32(hri_gguf_keys *keys, const char *key, double value) {
  begin(keys, key, HRI_GGUF_F32);
  hri_gguf_add_f32(keys, (float)value);
}

void hri_gguf_put_bool(hri_gguf_keys *keys, const char *key, bool value) {
  char byte = value;
  begin(keys, key, HRI_GGUF_BOOL);
  add(keys, &byte, 1);
}

void hri_gguf_put_string(hri_gguf_keys *keys, const char *key, const char *value, uint64_t bytes) {
  begin(keys, key, HRI_GGUF_STRING);
  hri_gguf_add_string(keys, value, bytes);
}

void hri_gguf_put_array(hri_gguf_keys *keys, const char *key, hri_gguf_type element, uint64_t count) {
  begin(keys, key, HRI_GGUF_ARRAY);
  add_u32(keys, element);
  add(keys, &count, sizeof count);
}

void hri_gguf_add_i32(hri_gguf_keys *keys, int32_t value) { add(keys, &value, sizeof value); }
void hri_gguf_add_f32(hri_gguf_keys *keys, float value) { add(keys, &value, sizeof value); }
void hri_gguf_keys_deinit(hri_gguf_keys *keys) {
  hri_text_deinit(&keys->text);
  *keys = (hri_gguf_keys){0};
}

/* ---- head ---- */

static int compare_names(const void *items, uint32_t a, uint32_t b) {
  const hri_gguf_tensor *tensors = items;
  return strcmp(tensors[a].name, tensors[b].name);
}

static hr_status check_names(const hri_gguf_writer *writer, hr_error *error) {
  uint32_t *order;
  hr_status status = HR_OK;
  for (uint32_t i = 0; i < writer->count; i++) {
    size_t length = writer->tensors[i].name ? strlen(writer->tensors[i].name) : 0;
    if (length == 0 || length > 63)
      return hri_fail(error, HR_ERROR_USAGE, "%s: '%.100s' cannot name a tensor: 1 to 63 bytes are possible", writer->path, length ? writer->tensors[i].name : "");
  }
  HRI_TRY(hri_order_make(writer->tensors, writer->count, compare_names, &order, error));
  for (uint32_t i = 1; i < writer->count && status == HR_OK; i++)
    if (compare_names(writer->tensors, order[i - 1], order[i]) == 0)
      status = hri_fail(error, HR_ERROR_USAGE, "%s: two tensors are named '%s'", writer->path, writer->tensors[order[i]].name);
  hri_free(order);
  return status;
}

static hr_status place_tensors(hri_gguf_writer *writer, hr_error *error) {
  for (uint32_t i = 0; i < writer->count; i++) {
    const hri_gguf_tensor *tensor = &writer->tensors[i];
    place *to = &writer->places[i];
    uint64_t elements = 1;
    bool fits = tensor->rank <= HRI_GGUF_MAX_RANK && hri_ggml_known(tensor->type);
    for (uint32_t d = 0; fits && d < tensor->rank; d++) fits = hri_mul(elements, tensor->dims[d], &elements);
    fits = fits && elements <= INT64_MAX && (tensor->rank ? tensor->dims[0] : 1) % hri_ggml_block(tensor->type) == 0;
    if (!fits || !hri_ggml_bytes(tensor->type, elements, &to->bytes))
      return hri_fail(error, HR_ERROR_USAGE, "%s: tensor '%s' has a shape or type that cannot be stored", writer->path, tensor->name);
    to->begin = writer->data_bytes;
    if (!hri_add(writer->data_bytes, to->bytes, &writer->data_bytes) || writer->data_bytes > MAX_DATA_BYTES)
      return hri_fail(error, HR_ERROR_USAGE, "%s: the tensors together are too large for a file", writer->path);
    writer->data_bytes = hri_round_up(writer->data_bytes, HRI_GGUF_ALIGNMENT);
  }
  return HR_OK;
}

static hr_status make_head(hri_gguf_writer *writer, const hri_gguf_keys *keys, hri_gguf_keys *head, hr_error *error) {
  static const char zeros[HRI_GGUF_ALIGNMENT];
  uint64_t tensors = writer->count;
  add(head, "GGUF", 4);
  add_u32(head, 3);
  add(head, &tensors, sizeof tensors);
  add(head, &keys->count, sizeof keys->count);
  add(head, keys->text.chars, keys->text.length);
  for (uint32_t i = 0; i < writer->count; i++) {
    const hri_gguf_tensor *tensor = &writer->tensors[i];
    hri_gguf_add_string(head, tensor->name, strlen(tensor->name));
    add_u32(head, tensor->rank);
    add(head, tensor->dims, tensor->rank * sizeof *tensor->dims);
    add_u32(head, tensor->type);
    add(head, &writer->places[i].begin, sizeof writer->places[i].begin);
  }
  add(head, zeros, hri_round_up(head->text.length, HRI_GGUF_ALIGNMENT) - head->text.length);
  if (head->text.failed || keys->text.failed) return hri_fail_memory(error, head->text.length, writer->path);
  writer->data_begin = head->text.length;
  return HR_OK;
}

/* ---- file ---- */

/* The directory that a path lies in is asked for room before the file is made there. */
static hr_status check_room(const hri_gguf_writer *writer, hr_error *error) {
  const char *slash = strrchr(writer->path, '/');
  char *directory = hri_strdup(slash ? writer->path : ".");
  hr_status status;
  if (!directory) return hri_fail_memory(error, strlen(writer->path), writer->path);
  if (slash) directory[slash - writer->path + (slash == writer->path)] = 0;
  status = hri_publish_room(directory, writer->data_begin + writer->data_bytes, error);
  hri_free(directory);
  return status;
}

static hr_status start_file(hri_gguf_writer *writer, const hri_gguf_keys *head, hr_error *error) {
  HRI_TRY(check_room(writer, error));
  HRI_TRY(hri_file_create(writer->path, &writer->fd, error));
  HRI_TRY(hri_file_reserve(writer->fd, writer->path, writer->data_begin + writer->data_bytes, error));
  return hri_file_pwrite(writer->fd, writer->path, head->text.chars, head->text.length, 0, error);
}

static hri_gguf_writer *create(const char *path, const hri_gguf_tensor *tensors, uint32_t count) {
  hri_gguf_writer *writer = hri_alloc_zero(1, sizeof *writer);
  if (!writer) return NULL;
  writer->fd = -1;
  writer->tensors = tensors;
  writer->count = count;
  writer->path = hri_strdup(path);
  writer->places = hri_alloc_zero(count, sizeof *writer->places);
  if (writer->path && writer->places) return writer;
  hri_gguf_writer_abort(writer);
  return NULL;
}

hr_status hri_gguf_writer_open(const char *path, const hri_gguf_keys *keys, const hri_gguf_tensor *tensors, uint32_t count,
                               hri_gguf_writer **opened, hr_error *error) {
  hri_gguf_keys head = {0};
  hr_status status = HR_OK;
  hri_gguf_writer *writer = create(path, tensors, count);
  if (!writer) return hri_fail_memory(error, sizeof *writer + (uint64_t)count * sizeof(place), path);
  HRI_TRY_OUT(check_names(writer, error));
  HRI_TRY_OUT(place_tensors(writer, error));
  HRI_TRY_OUT(make_head(writer, keys, &head, error));
  HRI_TRY_OUT(start_file(writer, &head, error));
  *opened = writer;
  writer = NULL;
out:
  hri_gguf_keys_deinit(&head);
  hri_gguf_writer_abort(writer);
  return status;
}

hr_status hri_gguf_writer_write(hri_gguf_writer *writer, uint32_t index, uint64_t offset, const void *data, uint64_t bytes, hr_error *error) {
  place *at;
  if (index >= writer->count) return hri_fail(error, HR_ERROR_INTERNAL, "%s has no tensor of index %u", writer->path, index);
  at = &writer->places[index];
  if (offset > at->bytes || bytes > at->bytes - offset || bytes > at->bytes - at->written)
    return hri_fail(error, HR_ERROR_INTERNAL, "%s: tensor '%s' of %llu bytes, %llu of them written, got bytes %llu+%llu", writer->path,
                    writer->tensors[index].name, (ull)at->bytes, (ull)at->written, (ull)offset, (ull)bytes);
  HRI_TRY(hri_file_pwrite(writer->fd, writer->path, data, bytes, writer->data_begin + at->begin + offset, error));
  at->written += bytes;
  return HR_OK;
}

/* ---- the end ---- */

void hri_gguf_writer_abort(hri_gguf_writer *writer) {
  if (!writer) return;
  if (writer->fd >= 0) {
    (void)close(writer->fd);
    (void)unlink(writer->path);
  }
  hri_free(writer->places);
  hri_free(writer->path);
  hri_free(writer);
}

static hr_status check_written(const hri_gguf_writer *writer, hr_error *error) {
  for (uint32_t i = 0; i < writer->count; i++)
    if (writer->places[i].written != writer->places[i].bytes)
      return hri_fail(error, HR_ERROR_INTERNAL, "%s: tensor '%s' got %llu of its %llu bytes", writer->path, writer->tensors[i].name,
                      (ull)writer->places[i].written, (ull)writer->places[i].bytes);
  return HR_OK;
}

hr_status hri_gguf_writer_finish(hri_gguf_writer *writer, hr_error *error) {
  hr_status status = hri_file_finish(writer->fd, writer->path, check_written(writer, error), error);
  writer->fd = -1;
  hri_gguf_writer_abort(writer);
  return status;
}
