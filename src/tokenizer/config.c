/* What lies beside a tokenizer file: tokenizer_config.json, special_tokens_map.json and added_tokens.json, read as
 * transformers 5 reads them (tokenization_utils_base.py, from_pretrained; tokenization_utils_tokenizers.py):
 *   - added_tokens_decoder adds tokens or changes their flags; where it is given, the other two files do not count;
 *   - named tokens (bos_token, ..., image_token, ...) that are no added tokens become special ones;
 *   - add_bos_token and add_eos_token say what is put around a text, but not beside a tokenizer.json, which says so
 *   itself. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/added.h"
#include "tokenizer/build.h"

enum { MOST_CONFIG_BYTES = 64 << 20 };

static const char *const named_keys[] = {"bos_token", "eos_token", "pad_token", "unk_token",
                                         "sep_token", "cls_token", "mask_token"};
enum { NAMED_KEYS = sizeof named_keys / sizeof *named_keys };

hr_status hri_build_read_beside(const char *directory, const char *name, char **path, hri_json *root, hr_error *error) {
  *path = hri_path_join(directory, name);
  if (!*path) return hri_fail_memory(error, strlen(directory) + strlen(name) + 2, name);
  if (!hri_path_exists(*path)) return HR_OK;
  HRI_TRY(hri_json_read(*path, MOST_CONFIG_BYTES, root, error));
  return json_is_object(root->value) ? HR_OK : hri_json_fail(root, error, "an object");
}

/* "content" of an object or the string itself, with its flags. */
static hr_status read_token(const hri_json *json, bool special, const char **content, hri_added_token *flags,
                            hr_error *error) {
  *flags = (hri_added_token){.special = special, .normalized = !special};
  if (json_is_string(json->value)) {
    *content = json_string_value(json->value);
    return HR_OK;
  }
  HRI_TRY(hri_json_get_string(json, "content", content, error));
  flags->normalized = false;
  HRI_TRY(hri_json_opt_bool(json, "single_word", &flags->single_word, error));
  HRI_TRY(hri_json_opt_bool(json, "lstrip", &flags->lstrip, error));
  HRI_TRY(hri_json_opt_bool(json, "rstrip", &flags->rstrip, error));
  HRI_TRY(hri_json_opt_bool(json, "normalized", &flags->normalized, error));
  return special ? HR_OK : hri_json_opt_bool(json, "special", &flags->special, error);
}

typedef struct numbered {
  int64_t id;
  const char *key;
} numbered;

static int compare_numbered(const void *left, const void *right) {
  int64_t a = ((const numbered *)left)->id, b = ((const numbered *)right)->id;
  return a < b ? -1 : a > b;
}

/* Tokens in the order of their ids: {id: token}, or {content: id} in added_tokens.json. */
static hr_status put_numbered(hr_tokenizer *tokenizer, const hri_json *object, bool by_content, hr_error *error) {
  HRI_ARRAY(numbered) list = {0};
  hr_status status = HR_OK;
  const char *key;
  json_t *value;
  if (!json_is_object(object->value)) return hri_json_fail(object, error, "an object");
  json_object_foreach(object->value, key, value) {
    numbered entry = {by_content ? json_integer_value(value) : strtoll(key, NULL, 10), key};
    if (!hri_array_push(&list, entry)) status = hri_fail_memory(error, sizeof entry, "added tokens");
  }
  if (list.count) qsort(list.items, list.count, sizeof *list.items, compare_numbered);
  for (size_t i = 0; i < list.count && status == HR_OK; i++) {
    const char *content = list.items[i].key;
    hri_added_token flags = {.normalized = true};
    hri_json token = hri_json_member(object, content);
    if (!by_content) status = read_token(&token, false, &content, &flags, error);
    else if (hri_is_added(tokenizer, hri_vocab_find(&tokenizer->vocab, content, strlen(content)))) continue;
    if (status == HR_OK) status = hri_added_put(tokenizer, content, strlen(content), flags, error);
  }
  hri_array_free(&list);
  return status;
}

/* Whether a token is one of the first `before` added ones: those of the tokenizer's file and of added_tokens_decoder keep
 * their flags. Of others the last word counts. */
static bool stood_before(const hr_tokenizer *tokenizer, const char *content, size_t before) {
  uint32_t id = hri_vocab_find(&tokenizer->vocab, content, strlen(content));
  return hri_is_added(tokenizer, id) && hri_added_get(&tokenizer->added, id) < tokenizer->added.list.items + before;
}

/* A token that must be found in texts, and its id. */
static hr_status put_special(hr_tokenizer *tokenizer, const hri_json *json, size_t before, int32_t *id,
                             hr_error *error) {
  const char *content;
  hri_added_token flags;
  HRI_TRY(read_token(json, true, &content, &flags, error));
  if (!content[0]) return HR_OK;
  if (!stood_before(tokenizer, content, before))
    HRI_TRY(hri_added_put(tokenizer, content, strlen(content), flags, error));
  *id = (int32_t)hri_vocab_find(&tokenizer->vocab, content, strlen(content));
  return HR_OK;
}

static bool is_named(const char *key) {
  for (uint32_t i = 0; i < NAMED_KEYS; i++)
    if (strcmp(named_keys[i], key) == 0) return true;
  return false;
}

/* Tokens that a model has for itself: other keys that end in "_token", and extra_special_tokens where it is an object. */
static hr_status put_others(hr_tokenizer *tokenizer, const hri_json *config, size_t before, hr_error *error) {
  static const char end[] = "_token";
  const size_t tail = sizeof end - 1;
  hri_json extra = hri_json_member(config, "extra_special_tokens"), json;
  const char *key;
  json_t *value;
  int32_t id;
  if (!config->value) return HR_OK;
  json_object_foreach(config->value, key, value) {
    size_t length = strlen(key);
    if (!json_is_string(value) || length < tail || strcmp(key + length - tail, end) != 0 || is_named(key)) continue;
    if (json_is_object(extra.value) && json_object_get(extra.value, key)) continue;
    json = hri_json_member(config, key);
    HRI_TRY(put_special(tokenizer, &json, before, &id, error));
  }
  if (!json_is_object(extra.value)) return HR_OK;
  json_object_foreach(extra.value, key, value) {
    json = hri_json_member(&extra, key);
    HRI_TRY(put_special(tokenizer, &json, before, &id, error));
  }
  return HR_OK;
}

static hr_status put_list(hr_tokenizer *tokenizer, const hri_json *config, const char *key, size_t before,
                          hr_error *error) {
  hri_json list = hri_json_member(config, key);
  int32_t id;
  for (uint64_t i = 0; i < hri_json_count(&list); i++) {
    hri_json item = hri_json_item(&list, i);
    HRI_TRY(put_special(tokenizer, &item, before, &id, error));
  }
  return HR_OK;
}

/* extra_special_tokens, or under its older name additional_special_tokens; the latter of the map where the configuration
 * has neither, or has an object for the former. */
static hr_status put_extra(hr_tokenizer *tokenizer, const hri_json *map, const hri_json *config, size_t before,
                           hr_error *error) {
  static const char extra[] = "extra_special_tokens", additional[] = "additional_special_tokens";
  hri_json list = hri_json_member(config, extra);
  bool in_map = map->value && json_object_get(map->value, additional),
       in_config = config->value && json_object_get(config->value, additional);
  HRI_TRY(put_list(tokenizer, map, extra, before, error));
  if (hri_json_count(&list) > 0) return put_list(tokenizer, config, extra, before, error);
  if (json_is_object(list.value) && json_object_size(list.value) > 0)
    return put_list(tokenizer, in_map ? map : config, additional, before, error);
  if (in_config) return put_list(tokenizer, config, additional, before, error);
  return json_is_array(list.value) ? HR_OK : put_list(tokenizer, map, additional, before, error);
}

/* In the order in which new ones get their ids. `first` goes before `second`; either may be empty. */
static hr_status put_named(hr_tokenizer *tokenizer, const hri_json *first, const hri_json *second, size_t before,
                           hr_error *error) {
  static const uint8_t order[NAMED_KEYS] = {HR_TOKEN_BOS, HR_TOKEN_EOS, HR_TOKEN_UNK, 4, HR_TOKEN_PAD, 5, 6};
  for (uint32_t k = 0; k < NAMED_KEYS; k++) {
    const uint8_t i = order[k];
    bool in_first = first->value && json_object_get(first->value, named_keys[i]);
    const hri_json *from = in_first ? first : second;
    hri_json json;
    int32_t id = -1;
    if (!from->value || !json_object_get(from->value, named_keys[i])) continue;
    json = hri_json_member(from, named_keys[i]);
    if (!json_is_null(json.value)) HRI_TRY(put_special(tokenizer, &json, before, &id, error));
    if (i < HR_TOKEN_NAMED_COUNT) tokenizer->named[i] = id;
  }
  return HR_OK;
}

static hr_status apply(hr_tokenizer *tokenizer, const hri_json *config, const hri_json *map, const hri_json *added,
                       bool template, hr_error *error) {
  const hri_json none = {0};
  bool has_decoder = config->value && hri_json_has(config, "added_tokens_decoder");
  bool bos = false, eos = false;
  size_t before;
  if (has_decoder) {
    hri_json decoder = hri_json_member(config, "added_tokens_decoder");
    HRI_TRY(put_numbered(tokenizer, &decoder, false, error));
  } else if (added->value) {
    HRI_TRY(put_numbered(tokenizer, added, true, error));
  }
  if (has_decoder) map = &none;
  before = tokenizer->added.list.count;
  HRI_TRY(put_named(tokenizer, map, config, before, error));
  HRI_TRY(put_others(tokenizer, config, before, error));
  HRI_TRY(put_extra(tokenizer, map, config, before, error));
  if (!config->value || !template) return HR_OK;
  if (!json_object_get(config->value, "add_bos_token") && !json_object_get(config->value, "add_eos_token"))
    return HR_OK;
  HRI_TRY(hri_json_opt_bool(config, "add_bos_token", &bos, error));
  HRI_TRY(hri_json_opt_bool(config, "add_eos_token", &eos, error));
  return hri_build_template(tokenizer, bos, eos, error);
}

hr_status hri_build_config(const char *directory, bool template, hr_tokenizer *tokenizer, hr_error *error) {
  static const char *const names[3] = {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"};
  hri_json files[3] = {{0}};
  char *paths[3] = {NULL};
  hr_status status = HR_OK;
  for (uint32_t i = 0; i < 3 && status == HR_OK; i++)
    status = hri_build_read_beside(directory, names[i], &paths[i], &files[i], error);
  if (status == HR_OK) status = apply(tokenizer, &files[0], &files[1], &files[2], template, error);
  for (uint32_t i = 0; i < 3; i++) {
    hri_json_deinit(&files[i]);
    hri_free(paths[i]);
  }
  return status;
}
