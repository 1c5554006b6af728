/* Reading safetensors.
 *
 * The header is read whole (at most 100 MB), scanned in place without a tree, and kept: names and metadata point into
 * it.
 * Then come the checks of the reference, each with a message that names file, tensor and field. Two sorts give the name
 * index and the walk over the data; both are O(n log n) on any input, so that headers made to be slow
 * (huggingface/safetensors, attacks/) are not. */
#include "formats/safetensors.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json_scan.h"
#include "formats/tensor_file.h"
#include "formats/order.h"

struct hri_safetensors {
  hri_tensor_file base; /* first */
  char *header;         /* scanned in place; strings point into it */
  uint64_t header_bytes, data_bytes;
  HRI_ARRAY(hri_safetensor) tensors;
  HRI_ARRAY(hri_safetensors_pair) metadata;
  uint32_t *by_name;
  hri_file_digest *digest;  /* NULL: none is taken */
  _Atomic uint64_t *passed; /* per tensor: bytes that the digest got */
};

enum {
  DIGEST_PARTS = 16,     /* ends of pieces and of tensors that wait for their neighbours; more as they come */
  UNREAD_BYTES = 1 << 18 /* a piece of what is read for the digest alone */
};

typedef unsigned long long ull; /* for printing */

static hr_status damaged(hr_error *error, hr_status code) {
  return hri_hint(error, code, "the file is damaged or not a safetensors file; fetch it anew");
}

/* ---- The header's entries ---- */

enum { FIELD_DTYPE = 1, FIELD_SHAPE = 2, FIELD_OFFSETS = 4 };

static hr_status read_dtype(hri_json_scan *scan, hri_safetensor *tensor, hr_error *error) {
  char *name;
  HRI_TRY(hri_json_scan_string(scan, &name, error));
  if (hri_file_dtype_parse(name, &tensor->dtype)) return HR_OK;
  return hri_json_scan_fail(scan, error, "unknown dtype '%.40s'", name);
}

static hr_status read_numbers(hri_json_scan *scan, uint32_t most, uint64_t *values, uint32_t *count, hr_error *error) {
  bool more;
  *count = 0;
  HRI_TRY(hri_json_scan_array(scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_element(scan, &more, error));
    if (!more) return HR_OK;
    if (*count == most) return hri_json_scan_fail(scan, error, "more than %u numbers", most);
    HRI_TRY(hri_json_scan_u64(scan, &values[*count], error));
    ++*count;
  }
}

static hr_status read_offsets(hri_json_scan *scan, hri_safetensor *tensor, hr_error *error) {
  uint64_t values[2] = {0, 0};
  uint32_t count;
  HRI_TRY(read_numbers(scan, 2, values, &count, error));
  if (count != 2) return hri_json_scan_fail(scan, error, "expected begin and end, found %u numbers", count);
  tensor->begin = values[0];
  tensor->end = values[1];
  return HR_OK;
}

static unsigned field_of(const char *key) {
  if (strcmp(key, "dtype") == 0) return FIELD_DTYPE;
  if (strcmp(key, "shape") == 0) return FIELD_SHAPE;
  if (strcmp(key, "data_offsets") == 0) return FIELD_OFFSETS;
  return 0;
}

/* Unknown fields are ignored, as by the reference; known ones must stand exactly once. */
static hr_status read_field(hri_json_scan *scan, const char *key, unsigned *seen, hri_safetensor *tensor,
                            hr_error *error) {
  unsigned field = field_of(key);
  if (*seen & field) return hri_json_scan_fail(scan, error, "the field stands there twice");
  *seen |= field;
  switch (field) {
  case FIELD_DTYPE: return read_dtype(scan, tensor, error);
  case FIELD_SHAPE: return read_numbers(scan, HRI_SAFETENSORS_MAX_RANK, tensor->shape, &tensor->rank, error);
  case FIELD_OFFSETS: return read_offsets(scan, tensor, error);
  default: return hri_json_scan_skip(scan, error);
  }
}

static hr_status read_entry(hri_json_scan *scan, hri_safetensor *tensor, hr_error *error) {
  static const char *const names[] = {"dtype", "shape", "data_offsets"};
  unsigned seen = 0, i;
  hr_status status = hri_json_scan_object(scan, error);
  while (status == HR_OK) {
    char *key;
    status = hri_json_scan_key(scan, &key, error);
    if (status != HR_OK || !key) break;
    status = read_field(scan, key, &seen, tensor, error);
    if (status != HR_OK) status = hri_context(error, status, "field '%.40s': ", key);
  }
  for (i = 0; i < 3 && status == HR_OK; i++)
    if (!(seen & 1u << i)) status = hri_json_scan_fail(scan, error, "the field '%s' is missing", names[i]);
  if (status != HR_OK) return hri_context(error, status, "tensor '%.200s', ", tensor->name);
  return HR_OK;
}

/* null is none, as to the reference, which takes it; within, only strings are values there as here. */
static hr_status read_metadata(hri_safetensors *file, hri_json_scan *scan, hr_error *error) {
  if (hri_json_scan_peek(scan) == 'n') return hri_json_scan_skip(scan, error);
  HRI_TRY(hri_json_scan_object(scan, error));
  for (;;) {
    hri_safetensors_pair pair;
    char *key, *value;
    HRI_TRY(hri_json_scan_key(scan, &key, error));
    if (!key) return HR_OK;
    HRI_TRY(hri_json_scan_string(scan, &value, error));
    pair.key = key;
    pair.value = value;
    if (!hri_array_push(&file->metadata, pair)) return hri_fail_memory(error, file->header_bytes, file->base.path);
  }
}

static hr_status read_entries(hri_safetensors *file, hr_error *error) {
  hri_json_scan scan = hri_json_scan_init(file->header, file->header_bytes, file->base.path, "header ");
  bool metadata_seen = false;
  HRI_TRY(hri_json_scan_object(&scan, error));
  for (;;) {
    hri_safetensor tensor = {0};
    char *key;
    HRI_TRY(hri_json_scan_key(&scan, &key, error));
    if (!key) break;
    if (strcmp(key, "__metadata__") == 0) {
      hr_status status;
      if (metadata_seen) return hri_json_scan_fail(&scan, error, "__metadata__ stands there twice");
      metadata_seen = true;
      status = read_metadata(file, &scan, error);
      if (status != HR_OK) return status == HR_ERROR_INPUT ? hri_context(error, status, "__metadata__, ") : status;
      continue;
    }
    tensor.name = key;
    HRI_TRY(read_entry(&scan, &tensor, error));
    if (!hri_array_push(&file->tensors, tensor)) return hri_fail_memory(error, file->header_bytes, file->base.path);
  }
  return hri_json_scan_end(&scan, error);
}

/* ---- The checks over all entries ---- */

static const char *tensor_name(const void *items, uint32_t index) {
  return ((const hri_safetensor *)items)[index].name;
}
static const char *pair_key(const void *items, uint32_t index) {
  return ((const hri_safetensors_pair *)items)[index].key;
}

static int compare_offsets(const void *items, uint32_t a, uint32_t b) {
  const hri_safetensor *x = (const hri_safetensor *)items + a, *y = (const hri_safetensor *)items + b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return x->end < y->end ? -1 : x->end > y->end;
}

static hr_status check_names(hri_safetensors *file, hr_error *error) {
  uint32_t twice, *order;
  HRI_TRY(
      hri_order_names(file->tensors.items, (uint32_t)file->tensors.count, tensor_name, &file->by_name, &twice, error));
  if (twice != HRI_ORDER_NONE)
    return damaged(error, hri_fail(error, HR_ERROR_INPUT, "%s: the header names the tensor '%.200s' twice",
                                   file->base.path, file->tensors.items[twice].name));
  HRI_TRY(hri_order_names(file->metadata.items, (uint32_t)file->metadata.count, pair_key, &order, &twice, error));
  hri_free(order);
  if (twice == HRI_ORDER_NONE) return HR_OK;
  return damaged(error, hri_fail(error, HR_ERROR_INPUT, "%s: __metadata__ has the key '%.200s' twice", file->base.path,
                                 file->metadata.items[twice].key));
}

/* dtype and shape against data_offsets. */
static hr_status check_size(const hri_safetensors *file, const hri_safetensor *tensor, hr_error *error) {
  uint64_t elements, bytes, bits = hri_file_dtype_bits(tensor->dtype);
  hr_status code;
  if (!hri_file_elements(tensor->rank, tensor->shape, &elements) || elements > UINT64_MAX / bits) {
    code = hri_fail(error, HR_ERROR_INPUT, "%s: tensor '%.200s': the shape has more elements than 64 bits can count",
                    file->base.path, tensor->name);
  } else if (!hri_file_bytes(tensor->dtype, elements, &bytes)) {
    code = hri_fail(error, HR_ERROR_INPUT, "%s: tensor '%.200s': %llu elements of %s do not fill whole bytes",
                    file->base.path, tensor->name, (ull)elements, hri_file_dtype_name(tensor->dtype));
  } else if (tensor->end < tensor->begin) {
    code = hri_fail(error, HR_ERROR_INPUT, "%s: tensor '%.200s': data_offsets end at %llu, before their begin %llu",
                    file->base.path, tensor->name, (ull)tensor->end, (ull)tensor->begin);
  } else if (tensor->end - tensor->begin != bytes) {
    code =
        hri_fail(error, HR_ERROR_INPUT, "%s: tensor '%.200s': dtype and shape need %llu bytes, data_offsets hold %llu",
                 file->base.path, tensor->name, (ull)bytes, (ull)(tensor->end - tensor->begin));
  } else {
    return HR_OK;
  }
  return damaged(error, code);
}

/* The tensors, by offset, cover [0, data_bytes) without hole or overlap. */
static hr_status check_cover(const hri_safetensors *file, const uint32_t *order, hr_error *error) {
  const hri_safetensor *tensors = file->tensors.items;
  uint64_t at = 0;
  uint32_t i;
  for (i = 0; i < file->tensors.count; i++) {
    const hri_safetensor *tensor = &tensors[order[i]];
    if (tensor->begin > at)
      return damaged(error,
                     hri_fail(error, HR_ERROR_INPUT,
                              "%s: the data bytes from %llu to %llu, before tensor '%.200s', belong to no tensor",
                              file->base.path, (ull)at, (ull)tensor->begin, tensor->name));
    if (tensor->begin < at)
      return damaged(error,
                     hri_fail(error, HR_ERROR_INPUT, "%s: tensors '%.200s' and '%.200s' overlap at data byte %llu",
                              file->base.path, tensors[order[i - 1]].name, tensor->name, (ull)tensor->begin));
    at = tensor->end;
  }
  if (at > file->data_bytes)
    return damaged(error, hri_fail(error, HR_ERROR_INPUT,
                                   "%s is cut short: the header describes %llu bytes of data, the file holds %llu",
                                   file->base.path, (ull)at, (ull)file->data_bytes));
  if (at < file->data_bytes)
    return damaged(error, hri_fail(error, HR_ERROR_INPUT, "%s: %llu bytes behind the last tensor belong to no tensor",
                                   file->base.path, (ull)(file->data_bytes - at)));
  return HR_OK;
}

static hr_status check(hri_safetensors *file, hr_error *error) {
  uint32_t *order = NULL, i;
  hr_status status = HR_OK;
  HRI_TRY(check_names(file, error));
  for (i = 0; i < file->tensors.count; i++) HRI_TRY(check_size(file, &file->tensors.items[i], error));
  HRI_TRY(hri_order_make(file->tensors.items, (uint32_t)file->tensors.count, compare_offsets, &order, error));
  status = check_cover(file, order, error);
  hri_free(order);
  return status;
}

/* ---- Opening ---- */

/* Reads the length and the header itself; both are bounded before anything is allocated. */
static hr_status read_header(hri_safetensors *file, hr_error *error) {
  uint64_t size = file->base.file_bytes, header;
  if (size < 8)
    return damaged(error,
                   hri_fail(error, HR_ERROR_INPUT, "%s has %llu bytes, less than the 8 that tell the header's length",
                            file->base.path, (ull)size));
  HRI_TRY(hri_file_pread(file->base.fd, file->base.path, &header, sizeof header, 0, error));
  if (header > HRI_SAFETENSORS_MAX_HEADER)
    return damaged(error,
                   hri_fail(error, HR_ERROR_INPUT, "%s: a header of %llu bytes is announced; at most %d are allowed",
                            file->base.path, (ull)header, HRI_SAFETENSORS_MAX_HEADER));
  if (header > size - 8)
    return damaged(error, hri_fail(error, HR_ERROR_INPUT,
                                   "%s is cut short: a header of %llu bytes is announced, %llu bytes follow",
                                   file->base.path, (ull)header, (ull)(size - 8)));
  file->header = hri_alloc(header);
  if (!file->header) return hri_fail_memory(error, header, file->base.path);
  file->header_bytes = header;
  file->base.data_begin = 8 + header;
  file->data_bytes = size - file->base.data_begin;
  return hri_file_pread(file->base.fd, file->base.path, file->header, header, 8, error);
}

hr_status hri_safetensors_open_fd(int fd, const char *path, hri_safetensors **opened, hr_error *error) {
  hri_tensor_file *base;
  hri_safetensors *file;
  hr_status status;
  HRI_TRY(hri_tensor_file_open(sizeof *file, fd, path, &base, error));
  file = (hri_safetensors *)base;
  HRI_TRY_OUT(read_header(file, error));
  HRI_TRY_OUT(read_entries(file, error));
  HRI_TRY_OUT(check(file, error));
  *opened = file;
  return HR_OK;
out:
  hri_safetensors_close(file);
  return status;
}

hr_status hri_safetensors_open(const char *path, hri_safetensors **opened, hr_error *error) {
  int fd;
  HRI_TRY(hri_file_open_regular(path, &fd, NULL, error));
  return hri_safetensors_open_fd(fd, path, opened, error);
}

void hri_safetensors_close(hri_safetensors *file) {
  if (!file) return;
  hri_array_free(&file->tensors);
  hri_array_free(&file->metadata);
  hri_file_digest_destroy(file->digest);
  hri_free(file->passed);
  hri_free(file->by_name);
  hri_free(file->header);
  hri_tensor_file_close(&file->base);
}

/* ---- Asking ---- */

const char *hri_safetensors_path(const hri_safetensors *file) { return file->base.path; }
uint64_t hri_safetensors_data_bytes(const hri_safetensors *file) { return file->data_bytes; }
uint32_t hri_safetensors_count(const hri_safetensors *file) { return (uint32_t)file->tensors.count; }
const hri_safetensor *hri_safetensors_get(const hri_safetensors *file, uint32_t index) {
  return &file->tensors.items[index];
}

uint32_t hri_safetensors_find(const hri_safetensors *file, const char *name) {
  return hri_order_find(file->tensors.items, (uint32_t)file->tensors.count, tensor_name, file->by_name, name);
}

uint32_t hri_safetensors_metadata_count(const hri_safetensors *file) { return (uint32_t)file->metadata.count; }

hri_safetensors_pair hri_safetensors_metadata_get(const hri_safetensors *file, uint32_t index) {
  return file->metadata.items[index];
}

const char *hri_safetensors_metadata_find(const hri_safetensors *file, const char *key) {
  uint32_t i;
  for (i = 0; i < file->metadata.count; i++)
    if (strcmp(file->metadata.items[i].key, key) == 0) return file->metadata.items[i].value;
  return NULL;
}

static hr_status pass(const hri_safetensors *file, uint32_t index, uint64_t at, const void *bytes, uint64_t count,
                      hr_error *error) {
  (void)atomic_fetch_add_explicit(&file->passed[index], count, memory_order_relaxed);
  return hri_file_digest_add(file->digest, at, bytes, count, error);
}

hr_status hri_safetensors_read(const hri_safetensors *file, uint32_t index, uint64_t offset, uint64_t bytes, void *to,
                               hr_error *error) {
  const hri_safetensor *tensor;
  hr_status status;
  uint64_t at;
  if (index >= file->tensors.count)
    return hri_fail(error, HR_ERROR_INTERNAL, "%s has no tensor of index %u", file->base.path, index);
  tensor = &file->tensors.items[index];
  HRI_TRY(hri_tensor_file_read(&file->base,
                               (hri_tensor_range){tensor->name, tensor->begin, tensor->end - tensor->begin}, offset,
                               bytes, to, &at, error));
  /* A tensor that is read a second time, as a tied embedding is for a head of its own, was passed on already. */
  if (!file->digest || file->passed[index] == tensor->end - tensor->begin) return HR_OK;
  status = pass(file, index, at, to, bytes, error);
  return status == HR_OK ? HR_OK : hri_context(error, status, "tensor '%.200s': ", tensor->name);
}

/* ---- Digest ---- */

/* The header in memory is not what was read any more: strings were ended and unescaped where they stand. */
hr_status hri_safetensors_digest_begin(hri_safetensors *file, hr_error *error) {
  file->passed = hri_alloc_zero(file->tensors.count, sizeof *file->passed);
  if (!file->passed) return hri_fail_memory(error, file->tensors.count * sizeof *file->passed, file->base.path);
  HRI_TRY(hri_file_digest_create(DIGEST_PARTS, &file->digest, error));
  return hri_file_digest_add_file(file->digest, file->base.fd, file->base.path, file->base.data_begin, error);
}

/* Reads a tensor for the digest alone: one of a file of somebody else's, of which the model has no use. */
static hr_status pass_unread(const hri_safetensors *file, uint32_t index, unsigned char *buffer, hr_error *error) {
  uint64_t bytes = file->tensors.items[index].end - file->tensors.items[index].begin;
  for (uint64_t at = 0; at < bytes; at += UNREAD_BYTES)
    HRI_TRY(
        hri_safetensors_read(file, index, at, bytes - at < UNREAD_BYTES ? bytes - at : UNREAD_BYTES, buffer, error));
  return HR_OK;
}

hr_status hri_safetensors_digest_end(hri_safetensors *file, hri_file_list *files, hr_error *error) {
  uint64_t bytes = file->base.data_begin + file->data_bytes, value;
  unsigned char *buffer;
  hr_status status = HR_OK;
  if (!file->digest) return hri_fail(error, HR_ERROR_INTERNAL, "%s: no digest was begun", file->base.path);
  buffer = hri_alloc(UNREAD_BYTES);
  if (!buffer) return hri_fail_memory(error, UNREAD_BYTES, file->base.path);
  for (uint32_t k = 0; k < file->tensors.count && status == HR_OK; k++)
    if (file->passed[k] == 0) status = pass_unread(file, k, buffer, error);
  hri_free(buffer);
  HRI_TRY(status);
  status = hri_file_digest_value(file->digest, bytes, &value, error);
  if (status != HR_OK) return hri_context(error, status, "%s: ", file->base.path);
  hri_file_digest_destroy(file->digest);
  hri_free(file->passed);
  file->digest = NULL;
  file->passed = NULL;
  return hri_file_list_add(files, file->base.path, bytes, value, error);
}

const char *hri_shape_text(uint32_t rank, const uint64_t *shape, char out[192]) {
  size_t length = 1;
  out[0] = '[';
  for (uint32_t k = 0; k < rank; k++)
    length += (size_t)snprintf(out + length, 192 - length, "%s%llu", k ? ", " : "", (unsigned long long)shape[k]);
  (void)snprintf(out + length, 192 - length, "]");
  return out;
}
