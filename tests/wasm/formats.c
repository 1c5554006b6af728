/* What base and formats make of two files and of JSON, as text: formats GGUF SAFETENSORS. Built for this machine and
 * for WebAssembly it prints the same (scripts/wasm.sh). */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"

static int fail(const hr_error *error) {
  (void)printf("%s\n", error->message);
  return 1;
}

static int json(hr_error *error) {
  static const char in[] = "{\"a\": [1, -2.5, 1e300, \"\\u00fc\"], \"big\": 9007199254740993, \"no\": null}";
  hri_json root = {0};
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 2);
  if (hri_json_parse(in, strlen(in), "text", &root, error) != HR_OK) return fail(error);
  hri_json_put_tree(&writer, root.value);
  (void)printf("%s\n", hri_text_get(&text));
  hri_text_deinit(&text);
  hri_json_deinit(&root);
  return hri_json_parse("{\"a\": }", 7, "text", &root, error) == HR_OK ? 1 : !fail(error);
}

static int gguf(const char *path, hr_error *error) {
  hri_gguf *file;
  if (hri_gguf_open(path, &file, error) != HR_OK) return fail(error);
  for (uint32_t i = 0; i < hri_gguf_key_count(file); i++) (void)printf("%s\n", hri_gguf_key(file, i));
  for (uint32_t i = 0; i < hri_gguf_count(file); i++) {
    const hri_gguf_tensor *tensor = hri_gguf_tensor_get(file, i);
    (void)printf("%s %s %llu\n", tensor->name, hri_ggml_name(tensor->type), (unsigned long long)tensor->bytes);
  }
  hri_gguf_close(file);
  return 0;
}

static int safetensors(const char *path, hr_error *error) {
  hri_safetensors *file;
  if (hri_safetensors_open(path, &file, error) != HR_OK) return fail(error);
  for (uint32_t i = 0; i < hri_safetensors_count(file); i++) {
    const hri_safetensor *tensor = hri_safetensors_get(file, i);
    unsigned char first = 0;
    if (tensor->end > tensor->begin && hri_safetensors_read(file, i, 0, 1, &first, error) != HR_OK) return fail(error);
    (void)printf("%s %llu %llu %u\n", tensor->name, (unsigned long long)tensor->begin, (unsigned long long)tensor->end,
                 first);
  }
  hri_safetensors_close(file);
  return 0;
}

int main(int argc, char **argv) {
  hr_error error = {0};
  if (argc != 3 || json(&error) || gguf(argv[1], &error) || safetensors(argv[2], &error)) return 1;
  return gguf(argv[2], &error) == 1 ? 0 : 1; /* refused, in the same words */
}
