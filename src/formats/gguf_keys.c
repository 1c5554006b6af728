/* The keys of a GGUF file, one after the other as the file holds them: bytes in memory, little-endian, written by
 * whoever has a file. */
#include <string.h>

#include "formats/gguf.h"

void hri_gguf_add_bytes(hri_gguf_keys *keys, const void *bytes, uint64_t count) {
  if (count > 0) hri_text_add_bytes(&keys->text, bytes, (size_t)count);
}

void hri_gguf_add_u32(hri_gguf_keys *keys, uint32_t value) { hri_gguf_add_bytes(keys, &value, sizeof value); }

void hri_gguf_add_string(hri_gguf_keys *keys, const char *value, uint64_t bytes) {
  hri_gguf_add_bytes(keys, &bytes, sizeof bytes);
  hri_gguf_add_bytes(keys, value, bytes);
}

static void begin(hri_gguf_keys *keys, const char *key, hri_gguf_type type) {
  keys->count++;
  hri_gguf_add_string(keys, key, strlen(key));
  hri_gguf_add_u32(keys, type);
}

void hri_gguf_put_u32(hri_gguf_keys *keys, const char *key, uint32_t value) {
  begin(keys, key, HRI_GGUF_U32);
  hri_gguf_add_u32(keys, value);
}

void hri_gguf_put_f32(hri_gguf_keys *keys, const char *key, double value) {
  begin(keys, key, HRI_GGUF_F32);
  hri_gguf_add_f32(keys, (float)value);
}

void hri_gguf_put_bool(hri_gguf_keys *keys, const char *key, bool value) {
  uint8_t byte = value;
  begin(keys, key, HRI_GGUF_BOOL);
  hri_gguf_add_bytes(keys, &byte, 1);
}

void hri_gguf_put_string(hri_gguf_keys *keys, const char *key, const char *value, uint64_t bytes) {
  begin(keys, key, HRI_GGUF_STRING);
  hri_gguf_add_string(keys, value, bytes);
}

void hri_gguf_put_array(hri_gguf_keys *keys, const char *key, hri_gguf_type element, uint64_t count) {
  begin(keys, key, HRI_GGUF_ARRAY);
  hri_gguf_add_u32(keys, element);
  hri_gguf_add_bytes(keys, &count, sizeof count);
}

void hri_gguf_add_i32(hri_gguf_keys *keys, int32_t value) { hri_gguf_add_bytes(keys, &value, sizeof value); }
void hri_gguf_add_f32(hri_gguf_keys *keys, float value) { hri_gguf_add_bytes(keys, &value, sizeof value); }
void hri_gguf_keys_deinit(hri_gguf_keys *keys) {
  hri_text_deinit(&keys->text);
  *keys = (hri_gguf_keys){0};
}
