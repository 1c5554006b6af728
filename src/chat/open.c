/* Where a template comes from: a preset, a file, a model directory or a GGUF file; and the tokens that it may name. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "chat/presets.h"
#include "chat/render.h"
#include "formats/gguf.h"

enum { CONFIG_MAX_BYTES = 256 << 20 }; /* tokenizer_config.json lists every added token */

struct hr_chat {
  hri_template *template;
  HRI_ARRAY(hri_token_name) tokens;
};

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

static hr_status add_token(hr_chat *chat, const char *name, const char *text, hr_error *error) {
  hri_token_name token;
  size_t i;
  for (i = 0; i < chat->tokens.count; i++)
    if (strcmp(chat->tokens.items[i].name, name) == 0) return HR_OK;
  token.name = hri_strdup(name);
  token.text = hri_strdup(text);
  if (token.name && token.text && hri_array_push(&chat->tokens, token)) return HR_OK;
  hri_free(token.name);
  hri_free(token.text);
  return hri_fail_memory(error, sizeof token, "the tokens of a chat template");
}

static hr_status parse(hr_chat *chat, const char *about, const char *text, uint64_t bytes, hr_error *error) {
  return hri_template_parse(about, text, bytes, &chat->template, error);
}

static hr_status from_file(hr_chat *chat, const char *path, hr_error *error) {
  char *text;
  uint64_t bytes;
  hr_status status;
  HRI_TRY(hri_file_read(path, HRI_TEMPLATE_MAX_BYTES, &text, &bytes, error));
  status = parse(chat, path, text, bytes, error);
  hri_free(text);
  return status;
}

/* ---- Model directories ---- */

/* A token is a text, or an object with its content. */
static hr_status config_tokens(hr_chat *chat, const hri_json *config, hr_error *error) {
  size_t i;
  for (i = 0; i < sizeof token_names / sizeof *token_names; i++) {
    hri_json member = hri_json_member(config, token_names[i]);
    const char *text = json_string_value(member.value);
    if (!member.value || json_is_null(member.value)) continue;
    if (json_is_object(member.value)) HRI_TRY(hri_json_get_string(&member, "content", &text, error));
    else if (!text) return hri_json_fail(&member, error, "a string or an object with 'content'");
    HRI_TRY(add_token(chat, token_names[i], text, error));
  }
  return HR_OK;
}

/* The template of a list of {name, template} that is called "default", or the only one. */
static hr_status named_template(const hri_json *list, const char **text, hr_error *error) {
  uint64_t i, count = hri_json_count(list);
  hri_text names = {0};
  const char *name;
  hr_status status = HR_OK;
  for (i = 0; i < count && status == HR_OK; i++) {
    hri_json item = hri_json_item(list, i);
    status = hri_json_get_string(&item, "name", &name, error);
    if (status != HR_OK) break;
    if (count == 1 || strcmp(name, "default") == 0) {
      status = hri_json_get_string(&item, "template", text, error);
      break;
    }
    hri_text_add(&names, "%s%s", names.length ? ", " : "", name);
  }
  if (status == HR_OK && !*text) {
    hri_fail(error, HR_ERROR_INPUT, "%s: none of the chat templates is called 'default' (there are: %s)", list->file,
             hri_text_get(&names));
    status = hri_hint(error, HR_ERROR_INPUT, "copy the one that is meant to a .jinja file and name that");
  }
  hri_text_deinit(&names);
  return status;
}

static hr_status config_template(hr_chat *chat, const hri_json *config, hr_error *error) {
  hri_json member = hri_json_member(config, "chat_template");
  const char *text = json_string_value(member.value);
  char *about;
  hri_text named = {0};
  hr_status status;
  if (!member.value || json_is_null(member.value)) return HR_OK;
  if (json_is_array(member.value)) HRI_TRY(named_template(&member, &text, error));
  else if (!text) return hri_json_fail(&member, error, "a string, or an array of objects with 'name' and 'template'");
  hri_text_add(&named, "%s, chat_template", config->file);
  about = named.chars;
  status = named.failed ? hri_fail_memory(error, 64, "a chat template") : parse(chat, about, text, strlen(text), error);
  hri_text_deinit(&named);
  return status;
}

/* Tokens of a file that may be missing and, when `with_template`, its template unless there is one. */
static hr_status from_config(hr_chat *chat, const char *path, bool with_template, hr_error *error) {
  hri_json config = {0};
  hr_status status;
  if (!hri_path_exists(path)) return HR_OK;
  HRI_TRY(hri_json_read(path, CONFIG_MAX_BYTES, &config, error));
  status =
      json_is_object(config.value) ? config_tokens(chat, &config, error) : hri_json_fail(&config, error, "an object");
  if (status == HR_OK && with_template && !chat->template) status = config_template(chat, &config, error);
  hri_json_deinit(&config);
  return status;
}

static hr_status from_directory(hr_chat *chat, const char *path, hr_error *error) {
  char *jinja = hri_path_join(path, "chat_template.jinja"), *config = hri_path_join(path, "tokenizer_config.json");
  char *map = hri_path_join(path, "special_tokens_map.json");
  hr_status status = jinja && config && map ? HR_OK : hri_fail_memory(error, 64, "a path");
  if (status == HR_OK && hri_path_exists(jinja)) status = from_file(chat, jinja, error);
  if (status == HR_OK) status = from_config(chat, config, true, error);
  if (status == HR_OK) status = from_config(chat, map, false, error);
  if (status == HR_OK && !chat->template) {
    hri_fail(error, HR_ERROR_INPUT,
             "%s holds no chat template (neither chat_template.jinja nor 'chat_template' in tokenizer_config.json)",
             path);
    status = hri_hint(error, HR_ERROR_INPUT, "name a preset (%s) or a .jinja file", hri_chat_preset_list());
  }
  hri_free(jinja);
  hri_free(config);
  hri_free(map);
  return status;
}

/* ---- GGUF ---- */

/* Templates print texts: UTF-8 without NUL. */
static bool printable(const char *text, uint64_t bytes) {
  uint64_t i = 0;
  while (i < bytes) {
    size_t length = hri_utf8_sequence(text + i, (size_t)(bytes - i));
    if (length == 0 || text[i] == 0) return false;
    i += length;
  }
  return true;
}

/* The text of the token whose id stands under `key`, when it has one. */
static hr_status gguf_token(hr_chat *chat, const hri_gguf *file, const char *key, const char *name, hr_error *error) {
  hri_gguf_strings tokens;
  const char *text = NULL;
  uint64_t id = UINT64_MAX, bytes = 0, i;
  HRI_TRY(hri_gguf_opt_u64(file, key, 0, UINT64_MAX, &id, error));
  if (id == UINT64_MAX || !hri_gguf_has(file, "tokenizer.ggml.tokens")) return HR_OK;
  HRI_TRY(hri_gguf_get_strings(file, "tokenizer.ggml.tokens", &tokens, error));
  if (id >= tokens.count) return HR_OK;
  for (i = 0; i <= id; i++) text = hri_gguf_next(&tokens, &bytes);
  return text && printable(text, bytes) ? add_token(chat, name, text, error) : HR_OK;
}

static hr_status from_open_gguf(hr_chat *chat, const hri_gguf *file, const char *path, hr_error *error) {
  static const struct {
    const char *key, *name;
  } ids[] = {{"tokenizer.ggml.bos_token_id", "bos_token"},
             {"tokenizer.ggml.eos_token_id", "eos_token"},
             {"tokenizer.ggml.unknown_token_id", "unk_token"},
             {"tokenizer.ggml.padding_token_id", "pad_token"}};
  const char *text = NULL;
  uint64_t bytes = 0;
  hri_text about = {0};
  hr_status status;
  size_t i;
  HRI_TRY(hri_gguf_opt_string(file, "tokenizer.chat_template", &text, &bytes, error));
  if (!text) {
    hri_fail(error, HR_ERROR_INPUT, "%s holds no chat template (tokenizer.chat_template)", path);
    return hri_hint(error, HR_ERROR_INPUT, "name a preset (%s) or a .jinja file", hri_chat_preset_list());
  }
  for (i = 0; i < sizeof ids / sizeof *ids; i++) HRI_TRY(gguf_token(chat, file, ids[i].key, ids[i].name, error));
  hri_text_add(&about, "%s, tokenizer.chat_template", path);
  status = about.failed ? hri_fail_memory(error, 64, "a chat template") : parse(chat, about.chars, text, bytes, error);
  hri_text_deinit(&about);
  return status;
}

static hr_status from_gguf(hr_chat *chat, const char *path, hr_error *error) {
  hri_gguf *file;
  hr_status status;
  HRI_TRY(hri_gguf_open(path, &file, error));
  status = from_open_gguf(chat, file, path, error);
  hri_gguf_close(file);
  return status;
}

/* ---- Opening ---- */

static hr_status from_tokenizer(hr_chat *chat, const hr_tokenizer *tokenizer, hr_error *error) {
  static const struct {
    hr_named_token which;
    const char *name;
  } named[] = {{HR_TOKEN_BOS, "bos_token"},
               {HR_TOKEN_EOS, "eos_token"},
               {HR_TOKEN_PAD, "pad_token"},
               {HR_TOKEN_UNK, "unk_token"}};
  size_t i;
  for (i = 0; i < sizeof named / sizeof *named; i++) {
    int32_t id = hr_tokenizer_named(tokenizer, named[i].which);
    uint64_t bytes = 0;
    const char *text = id < 0 ? NULL : hr_tokenizer_token(tokenizer, id, &bytes);
    if (text && printable(text, bytes)) HRI_TRY(add_token(chat, named[i].name, text, error));
  }
  return HR_OK;
}

static hr_status from_preset(hr_chat *chat, const char *name, hr_error *error) {
  const char *text = hri_chat_preset(name);
  char about[64];
  (void)snprintf(about, sizeof about, "preset %s", name);
  return parse(chat, about, text, strlen(text), error);
}

static hr_status from_source(hr_chat *chat, const char *source, hr_error *error) {
  if (hri_chat_preset(source)) return from_preset(chat, source, error);
  if (hri_path_is_dir(source)) return from_directory(chat, source, error);
  if (hri_gguf_is(source)) return from_gguf(chat, source, error);
  if (hri_path_exists(source)) return from_file(chat, source, error);
  hri_fail(error, HR_ERROR_INPUT, "'%s' is neither a preset nor a template file, a model directory or a GGUF file",
           source);
  return hri_hint(error, HR_ERROR_INPUT, "presets are %s", hri_chat_preset_list());
}

hr_status hr_chat_open(const char *source, const hr_tokenizer *tokenizer, hr_chat **out, hr_error *error) {
  hr_chat *chat = hri_alloc_zero(1, sizeof *chat);
  hr_status status;
  if (!chat) return hri_fail_memory(error, sizeof *chat, "a chat template");
  status = from_source(chat, source, error);
  if (status == HR_OK && tokenizer) status = from_tokenizer(chat, tokenizer, error);
  if (status == HR_OK) *out = chat;
  else hr_chat_close(chat);
  return status;
}

void hr_chat_close(hr_chat *chat) {
  size_t i;
  if (!chat) return;
  for (i = 0; i < chat->tokens.count; i++) {
    hri_free(chat->tokens.items[i].name);
    hri_free(chat->tokens.items[i].text);
  }
  hri_array_free(&chat->tokens);
  hri_template_free(chat->template);
  hri_free(chat);
}

const char *hr_chat_about(const hr_chat *chat) { return chat->template->about; }

bool hri_chat_quotes(const hr_chat *chat, const char *word) {
  size_t length = strlen(word);
  for (const char *at = chat->template->source; (at = strstr(at, word)); at++)
    if (at > chat->template->source && (at[-1] == '\'' || at[-1] == '"') && at[length] == at[-1]) return true;
  return false;
}

bool hri_chat_names(const hr_chat *chat, const char *word) { return strstr(chat->template->source, word) != NULL; }

hr_status hr_chat_render(const hr_chat *chat, const char *json, uint64_t bytes, bool prompt, hr_rendered *out,
                         hr_error *error) {
  return hri_chat_render_json(chat->template, chat->tokens.items, chat->tokens.count, json, bytes, prompt, out, error);
}
