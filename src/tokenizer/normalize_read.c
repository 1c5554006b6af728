/* The "normalizer" value of tokenizer.json. */
#include <string.h>

#include "tokenizer/normalize.h"
#include "tokenizer/tiktoken.h"

typedef hr_status reader(hri_normalizer *normalizer, const hri_json *json, hr_error *error);

static hr_status read_nfc(hri_normalizer *n, const hri_json *json, hr_error *error) {
  (void)json;
  return hri_normalizer_add(n, HRI_NORMALIZE_NFC, error);
}
static hr_status read_nfd(hri_normalizer *n, const hri_json *json, hr_error *error) {
  (void)json;
  return hri_normalizer_add(n, HRI_NORMALIZE_NFD, error);
}
static hr_status read_nfkc(hri_normalizer *n, const hri_json *json, hr_error *error) {
  (void)json;
  return hri_normalizer_add(n, HRI_NORMALIZE_NFKC, error);
}
static hr_status read_nfkd(hri_normalizer *n, const hri_json *json, hr_error *error) {
  (void)json;
  return hri_normalizer_add(n, HRI_NORMALIZE_NFKD, error);
}
static hr_status read_lowercase(hri_normalizer *n, const hri_json *json, hr_error *error) {
  (void)json;
  return hri_normalizer_add(n, HRI_NORMALIZE_LOWERCASE, error);
}
static hr_status read_strip_accents(hri_normalizer *n, const hri_json *json, hr_error *error) {
  (void)json;
  return hri_normalizer_add(n, HRI_NORMALIZE_STRIP_ACCENTS, error);
}

static hr_status read_nmt(hri_normalizer *n, const hri_json *json, hr_error *error) {
  (void)json;
  return hri_normalizer_add(n, HRI_NORMALIZE_NMT, error);
}

/* strip_accents null: as lowercase. */
static hr_status read_bert(hri_normalizer *n, const hri_json *json, hr_error *error) {
  bool clean = true, chinese = true, lower = true, accents;
  HRI_TRY(hri_json_opt_bool(json, "clean_text", &clean, error));
  HRI_TRY(hri_json_opt_bool(json, "handle_chinese_chars", &chinese, error));
  HRI_TRY(hri_json_opt_bool(json, "lowercase", &lower, error));
  accents = lower;
  HRI_TRY(hri_json_opt_bool(json, "strip_accents", &accents, error));
  if (clean) HRI_TRY(hri_normalizer_add(n, HRI_NORMALIZE_BERT_CLEAN, error));
  if (chinese) HRI_TRY(hri_normalizer_add(n, HRI_NORMALIZE_BERT_CHINESE, error));
  if (accents) HRI_TRY(hri_normalizer_add(n, HRI_NORMALIZE_NFD, error));
  if (accents) HRI_TRY(hri_normalizer_add(n, HRI_NORMALIZE_BERT_ACCENTS, error));
  return lower ? hri_normalizer_add(n, HRI_NORMALIZE_LOWERCASE, error) : HR_OK;
}

/* null: no map, no change. */
static hr_status read_precompiled(hri_normalizer *n, const hri_json *json, hr_error *error) {
  const char *text = "";
  uint8_t *map = NULL;
  size_t capacity = 0;
  uint64_t count = 0;
  bool refused;
  hr_status status;
  HRI_TRY(hri_json_opt_string(json, "precompiled_charsmap", &text, error));
  if (!text[0]) return HR_OK;
  if (hri_base64_decode(text, strlen(text), &map, &capacity, &count, &refused) && count <= UINT32_MAX)
    status = hri_normalizer_add_charsmap(n, map, (uint32_t)count, error);
  else
    status = refused ? hri_fail_memory(error, strlen(text), "a normalizer")
                     : hri_fail(error, HR_ERROR_INPUT, "field 'precompiled_charsmap' is not base64");
  hri_free(map);
  return status == HR_ERROR_INPUT ? hri_context(error, status, "%s: %s: ", json->file, json->path) : status;
}

static hr_status read_strip(hri_normalizer *n, const hri_json *json, hr_error *error) {
  bool left = false, right = false;
  HRI_TRY(hri_json_get_bool(json, "strip_left", &left, error));
  HRI_TRY(hri_json_get_bool(json, "strip_right", &right, error));
  return hri_normalizer_add_strip(n, left, right, error);
}

static hr_status read_prepend(hri_normalizer *n, const hri_json *json, hr_error *error) {
  const char *prefix = NULL;
  HRI_TRY(hri_json_get_string(json, "prepend", &prefix, error));
  return hri_normalizer_add_prepend(n, prefix, strlen(prefix), error);
}

static hr_status read_replace(hri_normalizer *n, const hri_json *json, hr_error *error) {
  const char *content = NULL, *text = NULL;
  hri_json pattern;
  bool literal;
  hr_status status;
  HRI_TRY(hri_json_get_string(json, "content", &content, error));
  HRI_TRY(hri_json_get_object(json, "pattern", &pattern, error));
  literal = hri_json_has(&pattern, "String");
  HRI_TRY(hri_json_get_string(&pattern, literal ? "String" : "Regex", &text, error));
  status = hri_normalizer_add_replace(n, text, strlen(text), literal, content, strlen(content), error);
  if (status == HR_ERROR_INPUT) return hri_context(error, status, "%s: field '%s': ", pattern.file, pattern.path);
  return status;
}

static hr_status read_sequence(hri_normalizer *n, const hri_json *json, hr_error *error) {
  hri_json list;
  HRI_TRY(hri_json_get_array(json, "normalizers", &list, error));
  for (uint64_t i = 0; i < hri_json_count(&list); i++) {
    hri_json item = hri_json_item(&list, i);
    HRI_TRY(hri_normalizer_read(n, &item, error));
  }
  return HR_OK;
}

static const struct {
  const char *type;
  reader *read;
} readers[] = {
    {"Sequence", read_sequence},
    {"NFC", read_nfc},
    {"NFD", read_nfd},
    {"NFKC", read_nfkc},
    {"NFKD", read_nfkd},
    {"Lowercase", read_lowercase},
    {"StripAccents", read_strip_accents},
    {"Strip", read_strip},
    {"Replace", read_replace},
    {"Prepend", read_prepend},
    {"Nmt", read_nmt},
    {"Precompiled", read_precompiled},
    {"BertNormalizer", read_bert},
};

/* Sequences nest at most as deep as hri_json_parse lets JSON nest. */
hr_status hri_normalizer_read(hri_normalizer *normalizer, const hri_json *json, hr_error *error) {
  const char *type = NULL;
  if (!json->value || json_is_null(json->value)) return HR_OK;
  HRI_TRY(hri_json_get_string(json, "type", &type, error));
  for (uint32_t i = 0; i < sizeof readers / sizeof *readers; i++)
    if (strcmp(type, readers[i].type) == 0) return readers[i].read(normalizer, json, error);
  (void)hri_fail(error, HR_ERROR_INPUT, "%s: field '%s': the normalizer '%s' is not supported", json->file, json->path,
                 type);
  return hri_hint(
      error, HR_ERROR_INPUT,
      "supported are Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, Nmt, Precompiled "
      "and BertNormalizer");
}
