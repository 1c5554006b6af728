/* vocab.json and merges.txt, as GPT-2's and Qwen's tokenizers were kept before tokenizer.json: the vocabulary with its
 * ids, and the merges, one a line. How text is split stands in neither; the class of the tokenizer says it (transformers:
 * tokenization_gpt2.py, tokenization_codegen.py, tokenization_qwen2.py). Both become the text of a tokenizer.json. */
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/build.h"
#include "tokenizer/merges.h"

#define MOST_FILE_BYTES ((uint64_t)256 << 20)
#define END "<|endoftext|>" /* the classes' own BOS, EOS and unknown token, where the files name none */

typedef struct way {
  const char *class_name, *pre_type; /* as hri_pre_type_find knows it */
  bool has_bos, has_pad;             /* of its own, END too */
} way;

/* By the class of tokenizer_config.json (with "Fast" behind it or not), else of config.json, else by its model_type. */
static const way *find_way(const char *name) {
  static const way ways[] = {{"GPT2Tokenizer", "gpt-2", true, false},
                             {"CodeGenTokenizer", "gpt-2", true, false},
                             {"Qwen2Tokenizer", "qwen2", false, true},
                             {"gpt2", "gpt-2", true, false},
                             {"phi", "gpt-2", true, false},
                             {"qwen2", "qwen2", false, true},
                             {"qwen3", "qwen2", false, true}};
  size_t length = strlen(name);
  if (length > 4 && strcmp(name + length - 4, "Fast") == 0) length -= 4;
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
    if (strlen(ways[i].class_name) == length && memcmp(ways[i].class_name, name, length) == 0) return &ways[i];
  return NULL;
}

bool hri_merges_present(const char *directory) {
  char *vocab = hri_path_join(directory, "vocab.json"), *merges = hri_path_join(directory, "merges.txt");
  bool present = vocab && merges && hri_path_exists(vocab) && hri_path_exists(merges);
  hri_free(vocab);
  hri_free(merges);
  return present;
}

static hr_status refuse_class(const char *directory, const char *name, hr_error *error) {
  hr_status status =
      hri_fail(error, HR_ERROR_INPUT, "%s has vocab.json and merges.txt, but no tokenizer.json, and %s%s%s", directory,
               name ? "tokenizer_class '" : "no tokenizer_class that says how they are meant", name ? name : "",
               name ? "' is not supported with them" : "");
  return hri_hint(error, status,
                  "write a tokenizer.json with transformers: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)");
}

static hr_status choose(const char *directory, const hri_json *beside, const hri_json *model, const way **chosen,
                        hr_error *error) {
  const char *name = NULL;
  if (beside->value) HRI_TRY(hri_json_opt_string(beside, "tokenizer_class", &name, error));
  if (!name && model->value) HRI_TRY(hri_json_opt_string(model, "tokenizer_class", &name, error));
  if (!name && model->value) HRI_TRY(hri_json_opt_string(model, "model_type", &name, error));
  *chosen = name ? find_way(name) : NULL;
  return *chosen ? HR_OK : refuse_class(directory, name, error);
}

bool hri_merges_known(const char *directory) {
  char *paths[2] = {NULL};
  hri_json files[2] = {{0}};
  const way *chosen = NULL;
  bool known = hri_merges_present(directory);
  if (known && hri_build_read_beside(directory, "tokenizer_config.json", &paths[0], &files[0], NULL) == HR_OK &&
      hri_build_read_beside(directory, "config.json", &paths[1], &files[1], NULL) == HR_OK)
    known = choose(directory, &files[0], &files[1], &chosen, NULL) == HR_OK;
  for (uint32_t i = 0; i < 2; i++) {
    hri_json_deinit(&files[i]);
    hri_free(paths[i]);
  }
  return known;
}

/* ---- the text ---- */

static hr_status put_merges(hri_json_writer *w, const char *path, hr_error *error) {
  char *bytes;
  uint64_t count;
  HRI_TRY(hri_file_read(path, MOST_FILE_BYTES, &bytes, &count, error));
  const char *at = bytes + hri_utf8_mark(bytes, count), *end = bytes + count;
  hr_status status = HR_OK;
  for (uint64_t line = 1; at < end && status == HR_OK; line++) {
    const char *stop = memchr(at, '\n', (size_t)(end - at)), *next = stop ? stop + 1 : end, *blank;
    if (!stop) stop = end;
    if (stop > at && stop[-1] == '\r') stop--;
    blank = memchr(at, ' ', (size_t)(stop - at));
    if (stop > at && !(stop - at >= 8 && memcmp(at, "#version", 8) == 0)) {
      if (!blank || memchr(blank + 1, ' ', (size_t)(stop - blank - 1)) || memchr(at, 0, (size_t)(stop - at)) ||
          hri_utf8_valid(at, (size_t)(stop - at)) != (size_t)(stop - at)) {
        status =
            hri_fail(error, HR_ERROR_INPUT, "%s: line %llu is no merge: two parts of UTF-8 with one blank between them",
                     path, (unsigned long long)line);
        (void)hri_hint(error, status, "fetch the file anew if it is damaged");
        break;
      }
      hri_json_begin_array(w);
      hri_json_put_chars(w, at, (size_t)(blank - at));
      hri_json_put_chars(w, blank + 1, (size_t)(stop - blank - 1));
      hri_json_end_array(w);
    }
    at = next;
  }
  hri_free(bytes);
  return status;
}

/* The number behind a key of the vocabulary, -1: it is not there. */
static int64_t id_of_end(const char *bytes, uint64_t count) {
  const char *at = memmem(bytes, count, "\"" END "\"", sizeof END + 1);
  if (!at) return -1;
  for (at += sizeof END + 1; *at == ' ' || *at == ':' || (*at >= '\t' && *at <= '\r'); at++) {}
  return *at >= '0' && *at <= '9' ? strtoll(at, NULL, 10) : -1;
}

/* The vocabulary as it stands; whoever reads the whole text checks it. */
static hr_status put_vocab(hri_json_writer *w, const char *path, int64_t *end, hr_error *error) {
  char *bytes;
  uint64_t count, mark;
  HRI_TRY(hri_file_read(path, MOST_FILE_BYTES, &bytes, &count, error));
  mark = hri_utf8_mark(bytes, count);
  *end = id_of_end(bytes, count);
  hri_json_put_plain(w, bytes + mark);
  hri_free(bytes);
  return HR_OK;
}

static void put_pre_tokenizer(hri_json_writer *w, const way *chosen, bool prefix) {
  const hri_pre_type *type = hri_pre_type_find(chosen->pre_type);
  hri_json_key(w, "normalizer");
  hri_json_put_plain(w, type->normalizer ? type->normalizer : "null");
  hri_json_key(w, "pre_tokenizer");
  if (prefix && chosen->has_bos)
    hri_json_put_plain(w,
                       "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}");
  else hri_json_put_plain(w, type->pre_tokenizer);
  hri_json_key(w, "decoder");
  hri_json_put_plain(w, "{\"type\":\"ByteLevel\"}");
}

/* The class's own tokens that the files do not name, not even with null. */
static bool keeps_own(const hri_json *beside, const hri_json *map, const char *key) {
  if (beside->value && json_object_get(beside->value, key)) return false;
  return !map->value || (beside->value && hri_json_has(beside, "added_tokens_decoder")) ||
         !json_object_get(map->value, key);
}

static hr_status put_all(const char *directory, const way *chosen, const hri_json *beside, const hri_json *map,
                         hri_merges *made, hr_error *error) {
  static const char *const keys[HR_TOKEN_NAMED_COUNT] = {"bos_token", "eos_token", "pad_token", "unk_token"};
  char *vocab = hri_path_join(directory, "vocab.json"), *merges = hri_path_join(directory, "merges.txt");
  hri_json_writer w = hri_json_writer_init(&made->text, 0);
  bool prefix = false, any = false;
  int64_t end = -1;
  hr_status status = vocab && merges ? HR_OK : hri_fail_memory(error, strlen(directory) + 32, directory);
  if (status == HR_OK && beside->value) status = hri_json_opt_bool(beside, "add_prefix_space", &prefix, error);
  hri_json_begin_object(&w);
  put_pre_tokenizer(&w, chosen, prefix);
  hri_json_key(&w, "model");
  hri_json_begin_object(&w);
  hri_json_field_string(&w, "type", "BPE");
  hri_json_key(&w, "vocab");
  if (status == HR_OK) status = put_vocab(&w, vocab, &end, error);
  hri_json_key(&w, "merges");
  hri_json_begin_array(&w);
  if (status == HR_OK) status = put_merges(&w, merges, error);
  hri_json_end_array(&w);
  hri_json_end_object(&w);
  for (uint32_t i = 0; i < HR_TOKEN_NAMED_COUNT; i++) {
    made->own[i] = (i != HR_TOKEN_BOS || chosen->has_bos) && (i != HR_TOKEN_PAD || chosen->has_pad) &&
                   keeps_own(beside, map, keys[i]);
    any = any || made->own[i];
  }
  hri_json_key(&w, "added_tokens");
  hri_json_begin_array(&w);
  if (any && end >= 0) {
    hri_json_begin_object(&w);
    hri_json_field_i64(&w, "id", end);
    hri_json_field_string(&w, "content", END);
    hri_json_field_bool(&w, "special", true);
    hri_json_field_bool(&w, "normalized", false);
    hri_json_end_object(&w);
  }
  hri_json_end_array(&w);
  hri_json_end_object(&w);
  if (status == HR_OK && made->text.failed) status = hri_fail_memory(error, made->text.capacity, directory);
  hri_free(vocab);
  hri_free(merges);
  return status;
}

hr_status hri_merges_read(const char *directory, hri_merges *made, hr_error *error) {
  static const char *const names[3] = {"tokenizer_config.json", "special_tokens_map.json", "config.json"};
  hri_json files[3] = {{0}};
  char *paths[3] = {NULL};
  const way *chosen = NULL;
  hr_status status = HR_OK;
  *made = (hri_merges){0};
  for (uint32_t i = 0; i < 3 && status == HR_OK; i++)
    status = hri_build_read_beside(directory, names[i], &paths[i], &files[i], error);
  if (status == HR_OK) status = choose(directory, &files[0], &files[2], &chosen, error);
  if (status == HR_OK) status = put_all(directory, chosen, &files[0], &files[1], made, error);
  for (uint32_t i = 0; i < 3; i++) {
    hri_json_deinit(&files[i]);
    hri_free(paths[i]);
  }
  if (status != HR_OK) hri_text_deinit(&made->text);
  return status;
}

static void name_own(const hri_merges *made, hr_tokenizer *tokenizer) {
  for (uint32_t i = 0; i < HR_TOKEN_NAMED_COUNT; i++)
    if (made->own[i]) tokenizer->named[i] = hr_tokenizer_find(tokenizer, END);
}

/* The token may be one of added_tokens_decoder alone, as Qwen's is: it is looked for again behind that. */
hr_status hri_build_from_merges(const char *directory, hr_tokenizer *tokenizer, hr_error *error) {
  hri_merges made;
  hr_status status;
  HRI_TRY(hri_merges_read(directory, &made, error));
  status = hri_build_parse_json(made.text.chars, made.text.length, tokenizer, error);
  hri_text_deinit(&made.text);
  HRI_TRY(status);
  name_own(&made, tokenizer);
  HRI_TRY(hri_build_config(directory, true, tokenizer, error));
  name_own(&made, tokenizer);
  return HR_OK;
}
