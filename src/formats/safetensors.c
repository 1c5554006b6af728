/* Reading safetensors.
 *
 * The header is read whole (at most 100 MB), scanned in place without a tree, and kept: names and metadata point into it.
 * Then the checks of the reference, in its order, each with a message that names file, tensor and field. Two sorts give
 * the name index and the walk over the data; both are O(n log n) on any input, so that headers made to be slow
 * (huggingface/safetensors, attacks/) are not. */
#include "formats/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_scan.h"
#include "formats/order.h"

struct hri_safetensors {
  int fd;
  char *path;
  char *header;             /* scanned in place; strings point into it */
  uint64_t header_bytes, data_begin, data_bytes;
  HRI_ARRAY(hri_safetensor) tensors;
  HRI_ARRAY(hri_safetensors_pair) metadata;
  uint32_t *by_name;
};

typedef unsigned long long ull; /* for printing */

static hr_status damaged(hr_error *error, hr_status code) {
  return hri_hint(error, code, "the file is damaged or no safetensors file; fetch it anew");
}

/* ---- One entry of the header ---- */

enum { FIELD_DTYPE = 1, FIELD_SHAPE = 2, FIELD_OFFSETS = 4 };

static hr_status entry_failed(const hri_json_scan *scan, const char *name, const char *text, hr_error *error) {
  return hri_json_scan_fail(scan, error, "tensor '%.200s' %s", name, text);
}

static hr_status read_dtype(hri_json_scan *scan, hri_safetensor *tensor, hr_error *error) {
  char *name;
  HRI_TRY(hri_json_scan_string(scan, &name, error));
  if (hri_file_dtype_parse(name, &tensor->dtype)) return HR_OK;
  return hri_json_scan_fail(scan, error, "tensor '%.200s' has the unknown dtype '%.40s'", tensor->name, name);
}

static hr_status read_shape(hri_json_scan *scan, hri_safetensor *tensor, hr_error *error) {
  bool more;
  tensor->rank = 0;
  HRI_TRY(hri_json_scan_array(scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_element(scan, &more, error));
    if (!more) return HR_OK;
    if (tensor->rank == HRI_SAFETENSORS_MAX_RANK)
      return hri_json_scan_fail(scan, error, "tensor '%.200s' has more than the %d dims that are supported", tensor->name,
                                HRI_SAFETENSORS_MAX_RANK);
    HRI_TRY(hri_json_scan_u64(scan, &tensor->shape[tensor->rank], error));
    tensor->rank++;
  }
}

static hr_status read_offsets(hri_json_scan *scan, hri_safetensor *tensor, hr_error *error) {
  uint64_t values[2];
  uint32_t count = 0;
  bool more;
  HRI_TRY(hri_json_scan_array(scan, error));
  for (;;) {
    HRI_TRY(hri_json_scan_element(scan, &more, error));
    if (!more) break;
    if (count == 2) return entry_failed(scan, tensor->name, "has more than two data_offsets", error);
    HRI_TRY(hri_json_scan_u64(scan, &values[count], error));
    count++;
  }
  if (count != 2) return entry_failed(scan, tensor->name, "has less than two data_offsets", error);
  tensor->begin = values[0];
  tensor->end = values[1];
  return HR_OK;
}

/* Unknown fields are ignored, as by the reference; known ones must stand exactly once. */
static hr_status read_field(hri_json_scan *scan, const char *key, unsigned *seen, hri_safetensor *tensor, hr_error *error) {
  unsigned field = strcmp(key, "dtype") == 0          ? FIELD_DTYPE
                   : strcmp(key, "shape") == 0        ? FIELD_SHAPE
                   : strcmp(key, "data_offsets") == 0 ? FIELD_OFFSETS
                                                      : 0;
  if (*seen & field) return hri_json_scan_fail(scan, error, "tensor '%.200s' has the field '%s' twice", tensor->name, key);
  *seen |= field;
  switch (field) {
  case FIELD_DTYPE: return read_dtype(scan, tensor, error);
  case FIELD_SHAPE: return read_shape(scan, tensor, error);
  case FIELD_OFFSETS: return read_offsets(scan, tensor, error);
  default: return hri_json_scan_skip(scan, error);
  }
}

static hr_status read_entry(hri_json_scan *scan, hri_safetensor *tensor, hr_error *error) {
  unsigned seen = 0;
  char *key;
  hr_status status = hri_json_scan_object(scan, error);
  while (status == HR_OK) {
    status = hri_json_scan_key(scan, &key, error);
    if (status != HR_OK || !key) break;
    status = read_field(scan, key, &seen, tensor, error);
    if (status != HR_OK) return strncmp(error ? error->message : "", scan->file, strlen(scan->file)) ? status : status;
  }
  if (status != HR_OK) return status;
  if (!(seen & FIELD_DTYPE)) return entry_failed(scan, tensor->name, "has no field 'dtype'", error);
  if (!(seen & FIELD_SHAPE)) return entry_failed(scan, tensor->name, "has no field 'shape'", error);
  if (!(seen & FIELD_OFFSETS)) return entry_failed(scan, tensor->name, "has no field 'data_offsets'", error);
  return HR_OK;
}
