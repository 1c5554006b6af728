#include "cli/speech.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/train.h>

#include "cli/json.h"
#include "cli/text.h"

hr_status speech_open(cli_speech *s, const hr_model *model, bool chat, const hr_data_options *data, hr_error *error) {
  const char *place = "";
  hr_status status = hr_data_tokenizer(model, data->tokenizer, &place, error);
  memset(s, 0, sizeof *s);
  s->bytes = model->vocabulary_size > UINT8_MAX && model->vocabulary_size <= HR_BYTE_VOCABULARY;
  if (status == HR_OK && place[0]) status = hr_tokenizer_open(place, &s->tokenizer, error);
  if (status == HR_OK && s->tokenizer) s->bytes = false;
  if (status != HR_OK || !chat) return status;
  if (!s->tokenizer && s->bytes) { /* though rows of a template may have trained it, byte by byte */
    hri_fail(error, HR_ERROR_USAGE,
             "%s is byte-level: a template's marks would be text to it, and none would end an answer", model->name);
    return hri_hint(
        error, HR_ERROR_USAGE,
        "write the marks yourself: headroom generate MODEL --prompt TEXT --stop MARK; or name the tokenizer, if it "
        "was trained with one (--tokenizer DIR)");
  }
  if (!s->tokenizer) {
    hri_fail(error, HR_ERROR_USAGE, "%s has no tokenizer, and so no chat template", model->name);
    return hri_hint(error, HR_ERROR_USAGE,
                    "name a directory with tokenizer.json (--tokenizer DIR for a preset); without a template, "
                    "headroom generate MODEL --prompt TEXT");
  }
  return hr_chat_open(data->chat_template ? data->chat_template : place, s->tokenizer, &s->chat, error);
}

void speech_close(cli_speech *s) {
  hr_chat_close(s->chat);
  hr_tokenizer_close(s->tokenizer);
  memset(s, 0, sizeof *s);
}

/* ---- prompts ---- */

static void put_message(json_writer *json, const char *role, const char *content, size_t bytes) {
  json_write_open(json, NULL, '{');
  json_write_text(json, "role", role);
  json_write_bytes(json, "content", content, bytes);
  json_write_close(json, '}');
}

void turns_add(cli_turns *t, const char *role, const char *text, size_t bytes) {
  if (t->count == t->capacity)
    t->items = text_grow(t->items, (t->capacity = t->capacity ? 2 * t->capacity : 16) * sizeof *t->items);
  t->items[t->count++] = (cli_turn){.role = role, .text = text_copy(text, bytes), .bytes = bytes};
}

void turns_remove(cli_turns *t, size_t first, size_t count) {
  for (size_t k = first; k < first + count; k++) free(t->items[k].text);
  memmove(t->items + first, t->items + first + count, (t->count - first - count) * sizeof *t->items);
  t->count -= count;
}

void turns_close(cli_turns *t) {
  if (t->count > 0) turns_remove(t, 0, t->count);
  free(t->items);
  *t = (cli_turns){0};
}

/* {"messages": [{"role": "system", ...}, {"role": "user", ...}, ...]} through the template. */
static hr_status render(const cli_speech *s, const cli_turns *turns, hr_rendered *out, hr_error *error) {
  char *messages = NULL;
  size_t count = 0;
  FILE *stream = open_memstream(&messages, &count);
  json_writer json;
  hr_status status;
  if (!stream) return hri_fail(error, HR_ERROR_MEMORY, "there is no memory for the conversation");
  json_write_begin(&json, stream);
  json_write_open(&json, "messages", '[');
  for (size_t k = 0; k < turns->count; k++)
    put_message(&json, turns->items[k].role, turns->items[k].text, turns->items[k].bytes);
  json_write_close(&json, ']');
  json_write_end(&json);
  status = fclose(stream) == 0 ? hr_chat_render(s->chat, messages, count, true, out, error)
                               : hri_fail(error, HR_ERROR_MEMORY, "there is no memory for the conversation");
  free(messages);
  return status;
}

static hr_status encode(const cli_speech *s, const char *text, size_t bytes, unsigned how, int32_t **ids,
                        uint64_t *count, hr_error *error) {
  hr_tokens tokens = {0};
  hr_status status = hr_tokenizer_encode(s->tokenizer, text, bytes, how, &tokens, error);
  if (status == HR_OK && tokens.count == 0) status = hri_fail(error, HR_ERROR_USAGE, "the prompt has no tokens");
  if (status == HR_OK) {
    *ids = text_alloc(tokens.count * sizeof **ids);
    memcpy(*ids, tokens.ids, tokens.count * sizeof **ids);
    *count = tokens.count;
  }
  hr_tokens_deinit(&tokens);
  return status;
}

hr_status speech_turns(const cli_speech *s, const cli_turns *turns, FILE *show, int32_t **ids, uint64_t *count,
                       hr_error *error) {
  hr_rendered rendered = {0};
  hr_status status = render(s, turns, &rendered, error);
  if (status == HR_OK && show) {
    screen_put(show, rendered.text, rendered.bytes);
    (void)fputs(rendered.bytes > 0 && rendered.text[rendered.bytes - 1] == '\n' ? "" : "\n", show);
  }
  if (status == HR_OK) status = encode(s, rendered.text, rendered.bytes, 0, ids, count, error);
  hr_rendered_deinit(&rendered);
  return status;
}

/* "15496 995" or "15496,995"; `ids` has room for one id per two characters. */
static hr_status read_ids(const char *text, size_t count, const hr_model *model, int32_t *ids, uint64_t *id_count,
                          hr_error *error) {
  *id_count = 0;
  for (size_t i = 0; i < count;) {
    uint64_t id = 0;
    size_t start = i;
    if (strchr(" ,\t\r\n", text[i]) && text[i]) {
      i++;
      continue;
    }
    for (; i < count && text[i] >= '0' && text[i] <= '9' && id <= INT32_MAX; i++)
      id = id * 10 + (uint64_t)(text[i] - '0');
    if (i == start || (i < count && !(text[i] && strchr(" ,\t\r\n", text[i])))) {
      hri_fail(error, HR_ERROR_USAGE, "%s is not byte-level and has no tokenizer; the prompt is no list of token ids",
               model->name);
      return hri_hint(
          error, HR_ERROR_USAGE,
          "name its tokenizer (--tokenizer DIR), or give ids with blanks between them: --prompt '15496 995'");
    }
    if (id >= model->vocabulary_size)
      return hri_fail(error, HR_ERROR_USAGE, "--prompt: token id %.*s is not below the vocabulary of %s, %u",
                      (int)(i - start < 20 ? i - start : 20), text + start, model->name, model->vocabulary_size);
    ids[(*id_count)++] = (int32_t)id;
  }
  return *id_count ? HR_OK : hri_fail(error, HR_ERROR_USAGE, "the prompt holds no token id");
}

hr_status speech_ids(const cli_speech *s, const hr_model *model, const char *text, size_t bytes, int32_t **ids,
                     uint64_t *count, hr_error *error) {
  if (s->tokenizer) return encode(s, text, bytes, HR_ENCODE_SPECIAL, ids, count, error);
  *ids = text_alloc((bytes + 1) * sizeof **ids);
  if (!s->bytes) return read_ids(text, bytes, model, *ids, count, error);
  for (size_t i = 0; i < bytes; i++) (*ids)[i] = (unsigned char)text[i];
  *count = bytes;
  return HR_OK;
}

/* ---- answers ---- */

static char *decode(const cli_speech *speech, const int32_t *tokens, size_t token_count, size_t *bytes) {
  int32_t *known = text_alloc((token_count + 1) * sizeof *known);
  hr_error error;
  uint64_t count = 0, known_count = 0;
  char *text = NULL, *copy;
  for (size_t i = 0; i < token_count; i++) /* an id that the tokenizer lacks (a padded vocabulary) has no text */
    if (hr_tokenizer_token(speech->tokenizer, tokens[i], NULL)) known[known_count++] = tokens[i];
  if (hr_tokenizer_decode(speech->tokenizer, known, known_count, HR_DECODE_SKIP_SPECIAL, &text, &count, &error) !=
      HR_OK)
    count = 0;
  copy = text_copy(text ? text : "", count);
  hr_free(text);
  free(known);
  if (bytes) *bytes = count;
  return copy;
}

static bool ends_in_replacement(const char *text, size_t bytes) {
  return bytes >= 3 && memcmp(text + bytes - 3, "\xEF\xBF\xBD", 3) == 0;
}

/* The newest tokens without `count` of them from `first` on. */
static void drop_recent(cli_listener *l, size_t first, size_t count) {
  memmove(l->recent + first, l->recent + first + count, (l->recent_count - first - count) * sizeof *l->recent);
  l->recent_count -= count;
}

/* Says the newest tokens before `until`: their new text, or NULL when there is none, or it is held back. */
static char *say(cli_listener *l, size_t until, bool hold_back, size_t *bytes) {
  size_t before, after;
  char *old = decode(l->speech, l->recent, l->recent_said, &before), *all = decode(l->speech, l->recent, until, &after),
       *fresh = NULL;
  if (after > before && !(hold_back && ends_in_replacement(all, after))) {
    const size_t said = l->recent_said;
    *bytes = after - before;
    fresh = text_copy(all + before, *bytes);
    l->recent_said = until - said;
    drop_recent(l, 0, said);
  }
  free(old);
  free(all);
  return fresh;
}

/* How a token is spelled can depend on the ones before it (a blank at the very front), so what is new is what the newest
 * tokens say with the new ones and did not say without them. A text that ends in U+FFFD may be the beginning of a
 * character and is held back; where LISTENER_HELD tokens in a row ended so, those before the last three are said as they are, or
 * forgotten where they say nothing. So a token costs the same behind any number of others. */
static char *advance(cli_listener *l, bool hold_back, size_t *bytes) {
  enum { UNFINISHED = 3 };
  size_t until = l->recent_count;
  char *fresh = say(l, until, hold_back, bytes);
  if (!fresh && until - l->recent_said == LISTENER_HELD) {
    until -= UNFINISHED;
    fresh = say(l, until, false, bytes);
    if (!fresh) drop_recent(l, l->recent_said, until - l->recent_said);
  }
  if (fresh) return fresh;
  *bytes = 0;
  return text_copy("", 0);
}

char *listener_take(cli_listener *l, int32_t token, size_t *bytes) {
  if (l->count == l->capacity)
    l->tokens = text_grow(l->tokens, (l->capacity = l->capacity ? 2 * l->capacity : 256) * sizeof *l->tokens);
  l->tokens[l->count++] = token;
  *bytes = 0;
  if (l->speech->tokenizer) {
    assert(l->recent_count < 2 * LISTENER_HELD);
    l->recent[l->recent_count++] = token;
    return advance(l, true, bytes);
  }
  if (!l->speech->bytes) return NULL;
  *bytes = token < 256 ? 1 : 0;
  return text_copy(&(char){(char)token}, *bytes);
}

char *listener_rest(cli_listener *l, size_t *bytes) {
  *bytes = 0;
  return l->speech->tokenizer ? advance(l, false, bytes) : text_copy("", 0);
}

char *listener_text(const cli_listener *l, size_t *bytes) {
  char *text;
  size_t used = 0;
  if (l->speech->tokenizer) return decode(l->speech, l->tokens, l->count, bytes);
  text = text_alloc(l->count + 1);
  for (size_t i = 0; i < l->count; i++)
    if (l->tokens[i] < 256) text[used++] = (char)l->tokens[i];
  text[used] = 0;
  if (bytes) *bytes = used;
  return text;
}

void listener_close(cli_listener *l) { free(l->tokens); }
