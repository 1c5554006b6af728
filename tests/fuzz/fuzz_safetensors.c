/* The safetensors reader on any file. What it accepts must be consistent: every tensor is found by its name, has the
 * bytes that its dtype and shape need, and can be read; together they are the data. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

static void check_tensor(const hri_safetensors *file, uint32_t index, const uint8_t *data) {
  const hri_safetensor *tensor = hri_safetensors_get(file, index);
  uint64_t elements = 0, bytes = 0;
  uint8_t *read;
  hr_error error;
  require(hri_safetensors_find(file, tensor->name) == index);
  require(tensor->rank <= HRI_SAFETENSORS_MAX_RANK && tensor->begin <= tensor->end);
  require(tensor->end <= hri_safetensors_data_bytes(file));
  require(hri_file_elements(tensor->rank, tensor->shape, &elements) && hri_file_bytes(tensor->dtype, elements, &bytes));
  require(bytes == tensor->end - tensor->begin);
  read = malloc(bytes ? bytes : 1);
  require(read != NULL);
  require(hri_safetensors_read(file, index, 0, bytes, read, &error) == HR_OK);
  require(bytes == 0 || memcmp(read, data + tensor->begin, bytes) == 0);
  require(hri_safetensors_read(file, index, 1, bytes, read, &error) == HR_ERROR_INTERNAL);
  free(read);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint64_t live = hri_mem_live_bytes(), total = 0;
  hri_safetensors *file;
  hr_error error = {0};
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  require(fd >= 0 && (size == 0 || write(fd, data, size) == (ssize_t)size));
  if (hri_safetensors_open_fd(fd, "input", &file, &error) == HR_OK) {
    const uint8_t *tensors = data + (size - hri_safetensors_data_bytes(file));
    uint32_t i;
    for (i = 0; i < hri_safetensors_count(file); i++) {
      check_tensor(file, i, tensors);
      total += hri_safetensors_get(file, i)->end - hri_safetensors_get(file, i)->begin;
    }
    require(total == hri_safetensors_data_bytes(file));
    for (i = 0; i < hri_safetensors_metadata_count(file); i++) {
      hri_safetensors_pair pair = hri_safetensors_metadata_get(file, i);
      require(strcmp(hri_safetensors_metadata_find(file, pair.key), pair.value) == 0);
    }
    hri_safetensors_close(file);
  } else {
    require(error.code == HR_ERROR_INPUT && error.message[0] && strstr(error.message, "input"));
  }
  require(hri_mem_live_bytes() == live);
  return 0;
}
