/* The GGUF reader on any file. What it accepts must be consistent: keys and tensors are found by their names, every
 * value can be asked for under every type, every tensor can be read and, where its type is decoded, decoded; and any values
 * are put into blocks of every type that is written, which are decoded again. Before that the file is taken for a
 * model, whose list of keys that were not understood is text, its tokenizer keys for a tokenizer, and what says that it
 * holds adapters for those of a preset. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "convert/lexicon.h"
#include "model/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

/* INPUT with a message that names file and key, or a value. */
static void require_told(hr_status status, const hr_error *error) {
  require(status == HR_OK ||
          ((status == HR_ERROR_INPUT || status == HR_ERROR_UNSUPPORTED) && strstr(error->message, "input")));
}

static void check_arrays(const hri_gguf *file, const char *key, uint64_t count) {
  hri_gguf_strings strings;
  hri_gguf_numbers numbers;
  hr_error error = {0};
  uint64_t bytes, seen = 0;
  const char *text;
  hr_status status = hri_gguf_get_strings(file, key, &strings, &error);
  require_told(status, &error);
  while (status == HR_OK && (text = hri_gguf_next(&strings, &bytes))) {
    require(text[bytes] == 0);
    seen++;
  }
  require(status != HR_OK || seen == count);
  status = hri_gguf_get_numbers(file, key, &numbers, &error);
  require_told(status, &error);
  for (uint64_t i = 0; status == HR_OK && i < numbers.count; i++) {
    volatile int64_t integer = hri_gguf_integer_at(&numbers, i);
    volatile double number = hri_gguf_number_at(&numbers, i);
    (void)integer;
    (void)number;
  }
}

static void check_key(const hri_gguf *file, uint32_t index) {
  const char *key = hri_gguf_key(file, index), *text;
  hri_gguf_type element;
  uint64_t count, u, bytes;
  hri_gguf_type type = hri_gguf_key_type(file, index, &element, &count);
  int64_t i;
  double d;
  bool b;
  hr_error error = {0};
  require(type < HRI_GGUF_TYPE_COUNT && element < HRI_GGUF_TYPE_COUNT && hri_gguf_has(file, key));
  require_told(hri_gguf_get_u64(file, key, 0, UINT64_MAX, &u, &error), &error);
  require_told(hri_gguf_get_i64(file, key, INT64_MIN, INT64_MAX, &i, &error), &error);
  require_told(hri_gguf_get_double(file, key, &d, &error), &error);
  require_told(hri_gguf_get_bool(file, key, &b, &error), &error);
  if (hri_gguf_get_string(file, key, &text, &bytes, &error) == HR_OK) require(text[bytes] == 0);
  check_arrays(file, key, count);
}

/* Whatever the values are, also no numbers: blocks come of them. */
static void check_blocks(const float *values, uint64_t elements) {
  for (uint32_t type = 0; type < 64; type++) {
    uint64_t count = hri_ggml_encodes(type) ? elements - elements % hri_ggml_block(type) : 0, bytes;
    char *blocks;
    float *back;
    if (count == 0 || hri_ggml_block(type) == 1) continue;
    require(hri_ggml_bytes(type, count, &bytes));
    blocks = malloc(bytes);
    back = malloc(count * sizeof *back);
    require(blocks && back && hri_ggml_from_f32(type, blocks, values, count));
    require(hri_ggml_to_f32(type, back, blocks, count));
    free(blocks);
    free(back);
  }
}

static void check_tensor(const hri_gguf *file, uint32_t index) {
  const hri_gguf_tensor *tensor = hri_gguf_tensor_get(file, index);
  uint64_t bytes;
  char *raw;
  require(hri_gguf_find(file, tensor->name) == index && tensor->rank <= HRI_GGUF_MAX_RANK);
  require(hri_ggml_bytes(tensor->type, tensor->elements, &bytes) && bytes == tensor->bytes);
  raw = malloc(bytes + 1);
  require(raw != NULL);
  require(hri_gguf_read(file, index, 0, bytes, raw, NULL) == HR_OK);
  require(hri_gguf_read(file, index, 1, bytes, raw, NULL) == HR_ERROR_INTERNAL);
  if (hri_ggml_decodes(tensor->type)) {
    float *values = malloc(tensor->elements * sizeof *values + 1);
    require(values != NULL);
    require(hri_ggml_to_f32(tensor->type, values, raw, tensor->elements));
    check_blocks(values, tensor->elements);
    free(values);
  }
  free(raw);
}

/* What it says of a file of adapters is how to name it instead. */
static void check_model(const hri_gguf *file) {
  hr_model model;
  hr_error error = {0};
  hr_status status = hri_gguf_model(file, &model, &error);
  if (hri_gguf_has(file, "adapter.type")) {
    require(status == HR_ERROR_USAGE && strstr(error.message, "input") && strstr(error.hint, "--adapter"));
  } else if (status == HR_OK) {
    require(memchr(model.unread_keys, 0, sizeof model.unread_keys) != NULL);
    for (const char *c = model.unread_keys; *c; c++) require(*c >= ' ' && *c <= '~');
  } else {
    require_told(status, &error);
  }
}

static void check_adapters(int fd) {
  hr_model model;
  hr_error error = {0};
  char path[32];
  (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  require(hr_model_preset("micro-llama-bytes", &model, NULL) == HR_OK);
  if (hri_gguf_adapter_open(path, &model, &error) == HR_OK) {
    require(model.lora.rank > 0 && model.lora.alpha > 0);
  } else {
    require((error.code == HR_ERROR_INPUT || error.code == HR_ERROR_UNSUPPORTED) && strstr(error.message, path));
  }
}

static void check_uses(const hri_gguf *file) {
  hri_lexicon lexicon;
  hr_error error = {0};
  bool found = false;
  check_model(file);
  hri_lexicon_init(&lexicon);
  require_told(hri_lexicon_from_gguf(file, &lexicon, &found, &error), &error);
  if (found && lexicon.sentencepiece && lexicon.merges.count == 0)
    require(hri_lexicon_derive_merges(&lexicon, &error) == HR_OK);
  hri_lexicon_deinit(&lexicon);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint64_t live = hri_mem_live_bytes();
  hri_gguf *file;
  hr_error error = {0};
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  require(fd >= 0 && (size == 0 || write(fd, data, size) == (ssize_t)size));
  if (hri_gguf_open_fd(fd, "input", &file, &error) == HR_OK) {
    check_uses(file); /* first: what it does not ask for is what is not understood */
    for (uint32_t i = 0; i < hri_gguf_key_count(file); i++) check_key(file, i);
    for (uint32_t i = 0; i < hri_gguf_key_count(file); i++) require(hri_gguf_key_asked(file, i));
    for (uint32_t i = 0; i < hri_gguf_count(file); i++) check_tensor(file, i);
    if (hri_gguf_has(file, "adapter.type")) check_adapters(fd);
    hri_gguf_close(file);
  } else {
    require(error.code == HR_ERROR_INPUT && strstr(error.message, "input"));
  }
  require(hri_mem_live_bytes() == live);
  return 0;
}
