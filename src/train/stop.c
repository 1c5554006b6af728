/* Which tokens end a text. */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "formats/gguf.h"

#include <headroom/train.h>

enum { CONFIG_LIMIT = 1 << 24 };

static void add(const hr_model *model, int64_t token, int32_t tokens[HR_MAX_STOP_TOKENS], uint32_t *count) {
  if (token < 0 || token >= (int64_t)model->vocabulary_size || *count == HR_MAX_STOP_TOKENS) return;
  for (uint32_t k = 0; k < *count; k++)
    if (tokens[k] == token) return;
  tokens[(*count)++] = (int32_t)token;
}

/* eos_token_id of a JSON file, if the file is there: an id, a list of ids, or null. */
static hr_status add_from(const hr_model *model, const char *name, int32_t tokens[HR_MAX_STOP_TOKENS], uint32_t *count,
                          hr_error *error) {
  char *path = hri_path_join(model->directory, name);
  hri_json root = {0};
  hr_status status = HR_OK;
  if (!path) return hri_fail_memory(error, 4096, name);
  if (hri_path_exists(path)) status = hri_json_read(path, CONFIG_LIMIT, &root, error);
  if (status == HR_OK && root.value) {
    hri_json field = hri_json_member(&root, "eos_token_id");
    if (json_is_integer(field.value)) add(model, json_integer_value(field.value), tokens, count);
    for (uint64_t k = 0; k < hri_json_count(&field); k++) {
      hri_json item = hri_json_item(&field, k);
      if (json_is_integer(item.value)) add(model, json_integer_value(item.value), tokens, count);
    }
  }
  hri_json_deinit(&root);
  hri_free(path);
  return status;
}

static hr_status add_from_gguf(const hr_model *model, int32_t tokens[HR_MAX_STOP_TOKENS], uint32_t *count,
                               hr_error *error) {
  static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id"};
  hri_gguf *file;
  hr_status status = HR_OK;
  HRI_TRY(hri_gguf_open(model->directory, &file, error));
  for (size_t k = 0; k < sizeof keys / sizeof *keys && status == HR_OK; k++) {
    int64_t token = -1;
    status = hri_gguf_opt_i64(file, keys[k], -1, UINT32_MAX, &token, error); /* both ends: none */
    if (status == HR_OK) add(model, token, tokens, count);
  }
  hri_gguf_close(file);
  return status;
}

hr_status hr_stop_tokens(const hr_model *model, int32_t tokens[HR_MAX_STOP_TOKENS], uint32_t *count, hr_error *error) {
  *count = 0;
  add(model, model->eos_token, tokens, count);
  if (!model->directory[0]) return HR_OK;
  if (hri_gguf_is(model->directory)) return add_from_gguf(model, tokens, count, error);
  HRI_TRY(add_from(model, "config.json", tokens, count, error));
  return add_from(model, "generation_config.json", tokens, count, error);
}
