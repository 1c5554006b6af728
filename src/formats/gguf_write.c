/* Writing GGUF: sizes are known when the file is opened, so the head is written first and every tensor has its place;
 * pieces
 * then arrive in any order and none is kept. The file grows under the name it is given, which is not the one it is made
 * for. */
#include <string.h>

#include "base/file.h"
#include "base/publish.h"
#include "formats/tensor_file.h"
#include "formats/gguf.h"
#include "formats/order.h"

struct hri_gguf_writer {
  hri_tensor_writer base;         /* first */
  const hri_gguf_tensor *tensors; /* the caller's */
};

/* ---- head ---- */

static const char *tensor_name(const void *items, uint32_t index) {
  return ((const hri_gguf_tensor *)items)[index].name;
}

static hr_status check_names(const hri_gguf_writer *writer, hr_error *error) {
  uint32_t *order, twice;
  for (uint32_t i = 0; i < writer->base.count; i++) {
    size_t length = writer->tensors[i].name ? strlen(writer->tensors[i].name) : 0;
    if (length == 0 || length > 63)
      return hri_fail(error, HR_ERROR_USAGE, "%s: '%.100s' cannot name a tensor: 1 to 63 bytes are possible",
                      writer->base.path, length ? writer->tensors[i].name : "");
  }
  HRI_TRY(hri_order_names(writer->tensors, writer->base.count, tensor_name, &order, &twice, error));
  hri_free(order);
  if (twice == HRI_ORDER_NONE) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "%s: two tensors are named '%s'", writer->base.path,
                  writer->tensors[twice].name);
}

static hr_status place_tensors(hri_gguf_writer *writer, hr_error *error) {
  for (uint32_t i = 0; i < writer->base.count; i++) {
    const hri_gguf_tensor *tensor = &writer->tensors[i];
    uint64_t elements = 1, bytes;
    bool fits = tensor->rank <= HRI_GGUF_MAX_RANK && hri_ggml_known(tensor->type);
    for (uint32_t d = 0; fits && d < tensor->rank; d++) fits = hri_mul(elements, tensor->dims[d], &elements);
    fits = fits && elements <= INT64_MAX && (tensor->rank ? tensor->dims[0] : 1) % hri_ggml_block(tensor->type) == 0;
    if (!fits || !hri_ggml_bytes(tensor->type, elements, &bytes))
      return hri_fail(error, HR_ERROR_USAGE, "%s: tensor '%s' has a shape or type that cannot be stored",
                      writer->base.path, tensor->name);
    HRI_TRY(hri_tensor_writer_put(&writer->base, i, tensor->name, bytes, HRI_GGUF_ALIGNMENT, error));
  }
  return HR_OK;
}

static hr_status make_head(hri_gguf_writer *writer, const hri_gguf_keys *keys, hri_gguf_keys *head, hr_error *error) {
  static const char zeros[HRI_GGUF_ALIGNMENT];
  uint64_t tensors = writer->base.count;
  hri_gguf_add_bytes(head, "GGUF", 4);
  hri_gguf_add_u32(head, 3);
  hri_gguf_add_bytes(head, &tensors, sizeof tensors);
  hri_gguf_add_bytes(head, &keys->count, sizeof keys->count);
  hri_gguf_add_bytes(head, keys->text.chars, keys->text.length);
  for (uint32_t i = 0; i < writer->base.count; i++) {
    const hri_gguf_tensor *tensor = &writer->tensors[i];
    hri_gguf_add_string(head, tensor->name, strlen(tensor->name));
    hri_gguf_add_u32(head, tensor->rank);
    hri_gguf_add_bytes(head, tensor->dims, tensor->rank * sizeof *tensor->dims);
    hri_gguf_add_u32(head, tensor->type);
    hri_gguf_add_bytes(head, &writer->base.places[i].begin, sizeof writer->base.places[i].begin);
  }
  hri_gguf_add_bytes(head, zeros, hri_round_up(head->text.length, HRI_GGUF_ALIGNMENT) - head->text.length);
  if (head->text.failed || keys->text.failed) return hri_fail_memory(error, head->text.length, writer->base.path);
  return HR_OK;
}

/* ---- file ---- */

static hr_status start_file(hri_gguf_writer *writer, const hri_text *head, hr_error *error) {
  char directory[4096];
  hri_path_nearest(writer->base.path, directory); /* the one that the file is made in is asked for room first */
  HRI_TRY(hri_publish_room(directory, head->length + writer->base.data_bytes, error));
  return hri_tensor_writer_start(&writer->base, head->chars, head->length, error);
}

hr_status hri_gguf_writer_open(const char *path, const hri_gguf_keys *keys, const hri_gguf_tensor *tensors,
                               uint32_t count, hri_gguf_writer **opened, hr_error *error) {
  hri_gguf_keys head = {0};
  hri_gguf_writer *writer;
  hri_tensor_writer *file;
  hr_status status;
  HRI_TRY(hri_tensor_writer_create(sizeof *writer, path, count, &file, error));
  writer = (hri_gguf_writer *)file;
  writer->tensors = tensors;
  HRI_TRY_OUT(check_names(writer, error));
  HRI_TRY_OUT(place_tensors(writer, error));
  HRI_TRY_OUT(make_head(writer, keys, &head, error));
  HRI_TRY_OUT(start_file(writer, &head.text, error));
  *opened = writer;
  writer = NULL;
out:
  hri_gguf_keys_deinit(&head);
  hri_gguf_writer_abort(writer);
  return status;
}

hr_status hri_gguf_writer_write(hri_gguf_writer *writer, uint32_t index, uint64_t offset, const void *data,
                                uint64_t bytes, hr_error *error) {
  return hri_tensor_writer_write(&writer->base, index, offset, data, bytes, error);
}

void hri_gguf_writer_abort(hri_gguf_writer *writer) {
  if (writer) hri_tensor_writer_abort(&writer->base);
}

hr_status hri_gguf_writer_finish(hri_gguf_writer *writer, hr_error *error) {
  hr_status status = hri_tensor_writer_end(&writer->base, hri_tensor_writer_check(&writer->base, error), error);
  hri_gguf_writer_abort(writer);
  return status;
}
