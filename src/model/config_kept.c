/* The config.json of a result that is made of a model's own files: what people and other programs wrote into the
 * source's file stays, as long as it then means the model that was made. */
#include "model/config_kept.h"

#include <string.h>

#include "base/file.h"
#include "base/json.h"

enum { CONFIG_LIMIT_BYTES = 4 << 20 };

/* Puts `value`, which is taken over, at a key that keeps its place when it is there. */
static bool set(json_t *object, const char *key, json_t *value) {
  return value && json_object_set_new(object, key, value) == 0;
}

/* The source's tree with what a save changes: the dtype under the name that the file uses, the architecture and the quantization of
 * `plain`. */
static bool update(json_t *object, const json_t *plain, const char *dtype) {
  const char *key = json_object_get(object, "dtype") ? "dtype" : "torch_dtype";
  json_t *architectures = json_object_get(plain, "architectures");
  json_t *quantization = json_object_get(plain, "quantization_config");
  return set(object, key, json_string(dtype)) &&
         (!architectures || set(object, "architectures", json_incref(architectures))) &&
         (!quantization || set(object, "quantization_config", json_incref(quantization)));
}

static char *tree_text(const json_t *tree) {
  hri_text text = {0};
  hri_json_writer w = hri_json_writer_init(&text, 2);
  hri_json_put_tree(&w, tree);
  hri_text_add(&text, "\n");
  if (!text.failed) return text.chars;
  hri_text_deinit(&text);
  return NULL;
}

/* Whether a config.json says what `plain`, the text that the model alone gives, says. */
static bool means(const char *text, const char *plain, const char *dtype) {
  hr_model model;
  char *again;
  bool same;
  if (hr_model_parse(text, strlen(text), "config.json", &model, NULL) != HR_OK) return false;
  again = hr_model_config_text(&model, dtype);
  same = again && strcmp(again, plain) == 0;
  hr_free(again);
  return same;
}

/* The source's config.json as it is to be written; NULL: there is none, or it says something else than `plain`. What
 * cannot be read is told (INPUT) after all. */
static char *kept_config(const char *path, const char *plain, const char *dtype, hr_status *status, hr_error *error) {
  hri_json source = {0}, made = {0};
  json_t *object;
  char *text = NULL;
  if (!hri_path_exists(path)) return NULL;
  *status = hri_json_read_to_keep(path, CONFIG_LIMIT_BYTES, &source, error);
  if (*status == HR_ERROR_INPUT) *status = HR_OK; /* it is no JSON: `plain` says what the model is */
  if (*status == HR_OK && source.value && hri_json_parse(plain, strlen(plain), "config.json", &made, NULL) == HR_OK) {
    object =
        json_object_get(source.value, "text_config"); /* of a model for text and images, only the text part is saved */
    if (!json_is_object(object)) object = source.value;
    if (json_is_object(object) && update(object, made.value, dtype)) text = tree_text(object);
    if (text && !means(text, plain, dtype)) { /* a head that was tied and is one of its own now */
      json_t *tied = json_object_get(made.value, "tie_word_embeddings");
      hri_free(text);
      text = NULL;
      if (tied && set(object, "tie_word_embeddings", json_incref(tied))) text = tree_text(object);
    }
  }
  hri_json_deinit(&made);
  hri_json_deinit(&source);
  if (text && means(text, plain, dtype)) return text;
  hri_free(text);
  return NULL;
}

char *hri_config_kept(const hr_model *model, const char *dtype, hr_status *read, hr_error *why) {
  char *plain = hr_model_config_text(model, dtype), *kept = NULL;
  char *source = model->directory[0] ? hri_path_join(model->directory, "config.json") : NULL;
  *read = HR_OK;
  if (plain && source) kept = kept_config(source, plain, dtype, read, why);
  hri_free(source);
  if (!kept) return plain;
  hr_free(plain);
  return kept;
}
