/* Rows of JSON to tokens with the labels that count.
 *
 * Conventions are those of TRL's SFTTrainer (trl/trainer/sft_trainer.py): `text` and `completion` get an end token
 * unless they end with it; prompt and completion are tokenized together; conversations are what the chat template makes
 * of them, nothing is added. Which tokens of a conversation are the assistant's is told by the template's {% generation
 * %} blocks, else by rendering it turn by turn: the text of the first k messages with the beginning of an answer, and
 * of the first k + 1, must both be beginnings of the whole text; what lies between them is the answer. */
#include "data/source.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/json_scan.h"
#include "base/number.h"
#include "chat/render.h"
#include "data/records.h"

enum { TALK_BYTES = 4 << 20, WHERE_BYTES = 512 };

#define SEARCH_BYTES                                                                                                   \
  (UINT64_C(4) << 30) /* rendered to find the answers of a conversation: two beginnings of it for each */

/* The text of messages [0, count) is chars [0, ends[count - 1]) of json, closed by tail. */
typedef struct talk {
  hri_text json;
  size_t head; /* of json, before the first message */
  const char *tail;
  bool system; /* the first message is the row's field `system`, which others follow */
  HRI_ARRAY(size_t) ends;
  HRI_ARRAY(bool) assistant; /* whose text counts */
  HRI_ARRAY(size_t) silent;  /* messages of the assistant that nobody is to learn from */
} talk;

typedef struct converter {
  hri_dataset *dataset;
  hri_records records;
  hri_fields fields;
  hr_data_format format;
  hr_tokens tokens, prompt;
  HRI_ARRAY(int32_t) ids;
  HRI_ARRAY(uint8_t) counted;
  talk talk;
  hri_text text, scratch;
  bool fatal;              /* the error is not the row's */
  char where[WHERE_BYTES]; /* "rows.jsonl:7" */
} converter;

static hr_status fail_row(const converter *c, hr_error *error, const char *hint, const char *format, ...)
    HRI_PRINTF(4, 5);
static hr_status fail_row(const converter *c, hr_error *error, const char *hint, const char *format, ...) {
  char text[400];
  va_list args;
  va_start(args, format);
  (void)hri_vsnprintf(text, sizeof text, format, args);
  va_end(args);
  hri_fail(error, HR_ERROR_INPUT, "%s: %s", c->where, text);
  return hri_hint(error, HR_ERROR_INPUT, "%s", hint);
}

static hr_loss_scope scope_of(const converter *c) {
  hr_loss_scope scope = c->dataset->options->loss;
  if (c->format == HR_DATA_TEXT_FIELD) return HR_LOSS_SCOPE_ALL;
  if (scope == HR_LOSS_SCOPE_ALL) return scope;
  if (c->format == HR_DATA_PROMPT || c->format == HR_DATA_ALPACA) return HR_LOSS_SCOPE_COMPLETION;
  return scope == HR_LOSS_SCOPE_AUTO ? HR_LOSS_SCOPE_ASSISTANT : scope;
}

static hr_status need_string(const converter *c, hri_column column, const char **text, hr_error *error) {
  const hri_cell *cell = &c->fields.cells[column];
  *text = cell->text;
  if (cell->kind == '"') return HR_OK;
  return fail_row(c, error,
                  "all rows of a file need the same fields; --skip-bad passes over those that do not have them",
                  cell->kind ? "field '%s' must be a string" : "the field '%s' is missing", hri_column_name(column));
}

static hr_status memory(const hri_text *text, hr_error *error) {
  return text->failed ? hri_fail_memory(error, text->length, "a row of data") : HR_OK;
}

/* ---- tokens ---- */

static hr_status push(converter *c, int32_t id, bool counted, hr_error *error) {
  if (hri_array_push(&c->ids, id) && hri_array_push(&c->counted, counted)) return HR_OK;
  return hri_fail_memory(error, c->ids.count * 5, "the tokens of a row");
}

static hr_status push_all(converter *c, const int32_t *ids, uint64_t count, bool counted, hr_error *error) {
  for (uint64_t i = 0; i < count; i++) HRI_TRY(push(c, ids[i], counted, error));
  return HR_OK;
}

static hr_status push_end(converter *c, bool counted, hr_error *error) {
  const hri_encoder *e = c->dataset->encoder;
  HRI_TRY(push_all(c, e->after, e->after_count, counted, error));
  if (e->eos < 0 || (c->ids.count > 0 && c->ids.items[c->ids.count - 1] == e->eos)) return HR_OK;
  c->dataset->found.facts |= HRI_DATA_END_ADDED;
  return push(c, e->eos, counted, error);
}

/* The collected tokens become a document. `all`: every label counts. */
static hr_status finish(converter *c, bool all, hr_error *error) {
  uint64_t labels = 0;
  for (size_t i = 1; !all && i < c->ids.count; i++) labels += c->counted.items[i];
  if (!all && labels == 0)
    return fail_row(c, error, "rows need an answer to learn from; --loss all counts every token",
                    "no label counts: there is no text of the assistant");
  return hri_data_add_tokens(c->dataset, c->ids.items, all ? NULL : c->counted.items, c->ids.count,
                             c->records.record_line, error);
}

/* ---- text ---- */

/* In parts, straight into the store: a text may be much longer than a row of any other kind. */
static hr_status convert_text(converter *c, hr_error *error) {
  const hri_encoder *e = c->dataset->encoder;
  hri_document document = {.place = hri_data_store_count(c->dataset),
                           .source = c->dataset->current,
                           .line = c->records.record_line};
  const char *text;
  size_t left;
  HRI_TRY(need_string(c, HRI_TEXT, &text, error));
  left = strlen(text);
  if (left == 0) return hri_data_add_tokens(c->dataset, NULL, NULL, 0, c->records.record_line, error);
  if (e->before_count > 0) c->dataset->found.facts |= HRI_DATA_BEGIN_ADDED;
  HRI_TRY(hri_data_put_ids(c->dataset, e->before, e->before_count, error));
  while (left > 0) {
    size_t part = hri_encode_part(e, text, left);
    HRI_TRY(hri_encoder_run(e, c->where, text, part, false, &c->tokens, error));
    HRI_TRY(hri_data_put_ids(c->dataset, c->tokens.ids, c->tokens.count, error));
    text += part;
    left -= part;
  }
  HRI_TRY(hri_data_put_end(c->dataset, document.place, error));
  document.length = hri_data_store_count(c->dataset) - document.place;
  if (document.length == 0) return hri_data_add_tokens(c->dataset, NULL, NULL, 0, c->records.record_line, error);
  return hri_data_add_document(c->dataset, document, document.length - 1, error);
}

/* ---- prompt and completion ---- */

/* How many tokens of the whole are the prompt's: those of the prompt alone, as far as the whole begins with them. */
static uint64_t prompt_count(converter *c) {
  uint64_t count = 0, most = c->prompt.count < c->tokens.count ? c->prompt.count : c->tokens.count;
  while (count < most && c->prompt.ids[count] == c->tokens.ids[count]) count++;
  c->dataset->found.split_prefixes += count < c->prompt.count;
  return count;
}

/* Text [0, begin) is the prompt. */
static hr_status convert_pair(converter *c, const char *text, size_t bytes, size_t begin, hr_error *error) {
  const hri_encoder *e = c->dataset->encoder;
  uint64_t count;
  if (e->before_count > 0) c->dataset->found.facts |= HRI_DATA_BEGIN_ADDED;
  HRI_TRY(hri_encoder_run(e, c->where, text, bytes, false, &c->tokens, error));
  HRI_TRY(hri_encoder_run(e, c->where, text, begin, false, &c->prompt, error));
  count = prompt_count(c);
  HRI_TRY(push_all(c, e->before, e->before_count, false, error));
  HRI_TRY(push_all(c, c->tokens.ids, count, false, error));
  HRI_TRY(push_all(c, c->tokens.ids + count, c->tokens.count - count, true, error));
  HRI_TRY(push_end(c, true, error));
  return finish(c, scope_of(c) == HR_LOSS_SCOPE_ALL, error);
}

static hr_status convert_strings(converter *c, const char *prompt, const char *completion, hr_error *error) {
  size_t begin = strlen(prompt);
  c->text.length = 0;
  hri_text_add_bytes(&c->text, prompt, begin);
  hri_text_add_bytes(&c->text, completion, strlen(completion));
  HRI_TRY(memory(&c->text, error));
  return convert_pair(c, hri_text_get(&c->text), c->text.length, begin, error);
}

/* ---- messages ---- */

static hr_status need_chat(converter *c, hr_error *error) {
  hri_dataset *d = c->dataset;
  hr_status status;
  char names[200] = "";
  if (d->chat) return HR_OK;
  c->fatal = true;
  if (d->options->chat) {
    HRI_TRY(hr_chat_open(d->options->chat, d->encoder->tokenizer, &d->chat, error));
    (void)snprintf(d->found.chat, sizeof d->found.chat, "%s", hr_chat_about(d->chat));
    c->fatal = false;
    return HR_OK;
  }
  for (uint32_t i = 0; i < hr_chat_preset_count(); i++)
    (void)snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", hr_chat_preset_name(i));
  status = hri_fail(error, HR_ERROR_INPUT, "%s: a conversation, and this model has no chat template", c->where);
  return hri_hint(error, status, "--chat-template with a Jinja file, or one of: %s", names);
}

/* The text of the list of tools: as it stands, or out of a string that holds JSON; none when that is empty or null. */
static hr_status find_tools(converter *c, const char **text, size_t *bytes, hr_error *error) {
  const hri_cell *tools = &c->fields.cells[HRI_TOOLS];
  hri_json_scan scan;
  char kind;
  *text = c->records.raw + tools->raw.begin;
  *bytes = tools->kind ? tools->raw.end - tools->raw.begin : 0;
  if (tools->kind != '"') return HR_OK;
  *text = tools->text;
  *bytes = strlen(tools->text);
  if (*bytes == 0) return HR_OK;
  c->scratch.length = 0;
  hri_text_add_bytes(&c->scratch, *text, *bytes);
  HRI_TRY(memory(&c->scratch, error));
  scan = hri_json_scan_init(c->scratch.chars, *bytes, c->where, "the string of 'tools': ");
  kind = hri_json_scan_peek(&scan);
  HRI_TRY(hri_json_scan_skip(&scan, error));
  HRI_TRY(hri_json_scan_end(&scan, error));
  if (kind == '[' || kind == '{') return HR_OK;
  *bytes = 0;
  return kind == 'n' ? HR_OK
                     : fail_row(c, error, "a list of tools, or a string that holds one as JSON",
                                "field 'tools' must be a list");
}

static hr_status talk_begin(converter *c, hr_error *error) {
  talk *t = &c->talk;
  const char *tools;
  size_t bytes;
  HRI_TRY(find_tools(c, &tools, &bytes, error));
  t->json.length = 0;
  t->ends.count = t->assistant.count = t->silent.count = 0;
  t->system = false;
  t->tail = "]";
  if (bytes > 0) {
    if (memchr(tools, '{', bytes) && !hri_chat_names(c->dataset->chat, "tools"))
      c->dataset->found.facts |= HRI_DATA_TOOLS_LOST;
    hri_text_add(&t->json, "{\"tools\":");
    hri_text_add_bytes(&t->json, tools, bytes);
    hri_text_add(&t->json, ",\"messages\":");
    t->tail = "]}";
  }
  hri_text_add(&t->json, "[");
  t->head = t->json.length;
  return HR_OK;
}

static hr_status talk_end_message(converter *c, bool assistant, hr_error *error) {
  talk *t = &c->talk;
  HRI_TRY(memory(&t->json, error));
  if (hri_array_push(&t->ends, t->json.length) && hri_array_push(&t->assistant, assistant)) return HR_OK;
  return hri_fail_memory(error, t->ends.count * sizeof *t->ends.items, "a row of data");
}

/* A message of a turn, which may say itself that it does not count. */
static hr_status talk_end_turn(converter *c, const char *role, const hri_turn *turn, hr_error *error) {
  talk *t = &c->talk;
  const bool assistant = strcmp(role, "assistant") == 0;
  if (assistant && turn->weighed && scope_of(c) != HR_LOSS_SCOPE_ALL) c->dataset->found.facts |= HRI_DATA_WEIGHED;
  if (assistant && turn->silent && !hri_array_push(&t->silent, t->ends.count))
    return hri_fail_memory(error, t->silent.count * sizeof *t->silent.items, "a row of data");
  return talk_end_message(c, assistant && !turn->silent, error);
}

static void talk_separate(converter *c) {
  if (c->talk.ends.count > 0) hri_text_add(&c->talk.json, ",");
}

static void add_raw(converter *c, hri_slice slice) {
  hri_text_add_bytes(&c->talk.json, c->records.raw + slice.begin, slice.end - slice.begin);
}

/* The names that ShareGPT files use for who speaks (LLaMA-Factory, axolotl). */
static const char *const speakers[][2] = {
    {"human", "user"},
    {"user", "user"},
    {"gpt", "assistant"},
    {"assistant", "assistant"},
    {"chatgpt", "assistant"},
    {"bing", "assistant"},
    {"bard", "assistant"},
    {"model", "assistant"},
    {"bot", "assistant"},
    {"system", "system"},
    {"tool", "tool"},
    {"observation", "tool"},
    {"function_response", "tool"},
    {"function_call", "assistant"},
};
enum { SPEAKERS = sizeof speakers / sizeof *speakers };

/* The roles of messages, as OpenAI and the templates of public models have them. */
static const char *const roles[] = {"user", "assistant", "system", "tool", "developer", "function", "ipython", NULL};

static const char *role_of(const char *from) {
  for (size_t i = 0; i < SPEAKERS; i++)
    if (strcmp(from, speakers[i][0]) == 0) return speakers[i][1];
  return NULL;
}

/* What a person meant by a name that nobody has: another spelling, a slip, or the name that the other format uses. */
static const char *role_meant(const char *name, bool sharegpt) {
  hri_near search;
  for (size_t i = 0; sharegpt && i < SPEAKERS; i++)
    if (strcasecmp(name, speakers[i][0]) == 0) return speakers[i][0];
  for (size_t i = 0; !sharegpt && roles[i]; i++)
    if (strcasecmp(name, roles[i]) == 0) return roles[i];
  if (!sharegpt && role_of(name)) return role_of(name);
  hri_near_begin(&search, name);
  for (size_t i = 0; sharegpt && i < SPEAKERS; i++) hri_near_offer(&search, speakers[i][0]);
  for (size_t i = 0; !sharegpt && roles[i]; i++) hri_near_offer(&search, roles[i]);
  return hri_near_end(&search);
}

static hr_status unknown_role(const converter *c, const hri_turn *turn, hr_error *error) {
  const char *meant = role_meant(turn->role, turn->sharegpt);
  char hint[120];
  (void)snprintf(
      hint, sizeof hint,
      meant ? "did you mean '%s'?"
      : turn->sharegpt
          ? "known are human, user, gpt, assistant, system, tool, observation, function_call"
          : "known are user, assistant, system, tool, developer, function, ipython, and what the chat template names",
      meant);
  if (turn->sharegpt) return fail_row(c, error, hint, "nobody knows who '%.60s' is", turn->role);
  return fail_row(c, error, hint, "nobody knows the role '%.60s'", turn->role);
}

/* A template writes whatever role it is given, and an answer under a mistyped one would not count in the loss: so a
 * role is a common one, or one that the template has in quotes. */
static bool is_role(const converter *c, const char *role) {
  for (size_t i = 0; roles[i]; i++)
    if (strcmp(role, roles[i]) == 0) return true;
  return hri_chat_quotes(c->dataset->chat, role);
}

static hr_status add_message(converter *c, const hri_turn *turn, hr_error *error) {
  const char *role = turn->role;
  talk_separate(c);
  if (!turn->sharegpt) {
    if (!is_role(c, role)) return unknown_role(c, turn, error);
    if (turn->calls && !hri_chat_names(c->dataset->chat, "tool_calls")) c->dataset->found.facts |= HRI_DATA_TOOLS_LOST;
    add_raw(c, turn->object);
    return talk_end_turn(c, role, turn, error);
  }
  role = role_of(turn->role);
  if (!role) return unknown_role(c, turn, error);
  hri_text_add(&c->talk.json, "{\"role\":\"%s\",\"content\":", role);
  add_raw(c, turn->content);
  hri_text_add(&c->talk.json, "}");
  return talk_end_turn(c, role, turn, error);
}

/* A message of one or two strings, the second on a line of its own. */
static hr_status add_said(converter *c, const char *role, hri_slice text, const hri_slice *more, hr_error *error) {
  talk_separate(c);
  hri_text_add(&c->talk.json, "{\"role\":\"%s\",\"content\":", role);
  if (more) {
    add_raw(c, (hri_slice){text.begin, text.end - 1}); /* without the closing quote */
    hri_text_add(&c->talk.json, "\\n");
    add_raw(c, (hri_slice){more->begin + 1, more->end});
  } else {
    add_raw(c, text);
  }
  hri_text_add(&c->talk.json, "}");
  return talk_end_message(c, strcmp(role, "assistant") == 0, error);
}

/* The row's field `system` as the first message; an empty one is none. */
static hr_status add_system(converter *c, hr_error *error) {
  const hri_cell *system = &c->fields.cells[HRI_SYSTEM];
  c->talk.system = system->text && system->text[0];
  return c->talk.system ? add_said(c, "system", system->raw, NULL, error) : HR_OK;
}

static hr_status add_messages(converter *c, hri_column column, hr_error *error) {
  const hri_cell *cell = &c->fields.cells[column];
  if (cell->kind != '[')
    return fail_row(c, error,
                    "all rows of a file need the same fields; --skip-bad passes over those that do not have them",
                    cell->kind ? "field '%s' must be a list of messages" : "the field '%s' is missing",
                    hri_column_name(column));
  if (cell->turn_count == 0)
    return fail_row(c, error, "remove the row, or let --skip-bad pass over it", "field '%s' is empty",
                    hri_column_name(column));
  for (size_t i = 0; i < cell->turn_count; i++)
    HRI_TRY(add_message(c, &c->fields.turns.items[cell->first_turn + i], error));
  return HR_OK;
}

static hr_status render(converter *c, size_t messages, bool prompt, hr_rendered *out, hr_error *error) {
  size_t end = messages > 0 ? c->talk.ends.items[messages - 1] : c->talk.head;
  hr_status status;
  c->scratch.length = 0;
  hri_text_add_bytes(&c->scratch, hri_text_get(&c->talk.json), end);
  hri_text_add(&c->scratch, "%s", c->talk.tail);
  HRI_TRY(memory(&c->scratch, error));
  status = hr_chat_render(c->dataset->chat, hri_text_get(&c->scratch), c->scratch.length, prompt, out, error);
  return status == HR_OK ? HR_OK : hri_context(error, status, "%s: ", c->where);
}

/* Bytes of the text of the first `messages` messages, which must be the beginning of the whole. */
static hr_status prefix_length(converter *c, const hr_rendered *whole, size_t messages, bool prompt, uint64_t *bytes,
                               hr_error *error) {
  hr_rendered part = {0};
  hr_status status = render(c, messages, prompt, &part, error);
  if (status == HR_ERROR_INPUT && messages == 0) /* few templates render a conversation without messages */
    return fail_row(
        c, error, "begin it with a user's turn, or take --loss all, or a template with {% generation %}",
        "the conversation begins with the assistant, and the chat template does not show where its text begins");
  *bytes = part.bytes;
  if (status == HR_OK && (part.bytes > whole->bytes || memcmp(part.text, whole->text, part.bytes) != 0))
    status = fail_row(
        c, error,
        "--loss all counts every token, --loss completion the last answer; or give a template with {% generation %}",
        "the chat template writes the first %zu messages%s differently when others follow, so the assistant's text cannot be found",
        messages, prompt ? " and the beginning of an answer" : "");
  hr_rendered_deinit(&part);
  return status;
}

typedef HRI_ARRAY(hr_span) spans;

static hr_status add_answer(converter *c, const hr_rendered *whole, size_t message, spans *list, hr_error *error) {
  hr_span span = {0};
  HRI_TRY(prefix_length(c, whole, message, true, &span.begin, error));
  span.end = whole->bytes;
  if (message + 1 < c->talk.ends.count) HRI_TRY(prefix_length(c, whole, message + 1, false, &span.end, error));
  return hri_array_push(list, span) ? HR_OK : hri_fail_memory(error, sizeof span, "a row of data");
}

/* Whether an answer that nobody is to learn from stands at or behind message `first`. */
static bool is_silent_from(const talk *t, size_t first) {
  return t->silent.count > 0 && t->silent.items[t->silent.count - 1] >= first;
}

/* Finding answers renders the conversation twice for each: more than that takes too long. */
static hr_status limit_search(converter *c, const hr_rendered *whole, size_t answers, hr_error *error) {
  if (answers <= SEARCH_BYTES / (2 * (whole->bytes + 1))) return HR_OK;
  return fail_row(c, error, "divide it, or give a template with {% generation %}",
                  "finding %zu answers in a conversation of %llu bytes would take too long", answers,
                  (unsigned long long)whole->bytes);
}

/* Where the labels that count are. `first`: messages before it are the prompt. */
static hr_status find_spans(converter *c, const hr_rendered *whole, hr_loss_scope scope, size_t first, spans *list,
                            hr_error *error) {
  size_t count = c->talk.ends.count, last = count, answers = 0;
  if (scope == HR_LOSS_SCOPE_COMPLETION && first > 0) {
    hr_span span = {.end = whole->bytes};
    if (!is_silent_from(&c->talk, first)) { /* all that follows the prompt */
      HRI_TRY(prefix_length(c, whole, first, true, &span.begin, error));
      return hri_array_push(list, span) ? HR_OK : hri_fail_memory(error, sizeof span, "a row of data");
    }
    for (size_t i = first; i < count; i++)
      if (c->talk.assistant.items[i]) HRI_TRY(add_answer(c, whole, i, list, error));
    return HR_OK;
  }
  while (last > 0 && !c->talk.assistant.items[last - 1]) last--;
  if (last == 0) return HR_OK;
  if (scope == HR_LOSS_SCOPE_COMPLETION) return add_answer(c, whole, last - 1, list, error);
  for (size_t i = 0; i < last; i++) answers += c->talk.assistant.items[i];
  HRI_TRY(limit_search(c, whole, answers, error));
  for (size_t i = 0; i < last; i++)
    if (c->talk.assistant.items[i]) HRI_TRY(add_answer(c, whole, i, list, error));
  return HR_OK;
}

/* What the template marks, one stretch for each answer, but for those that nobody is to learn from. */
static hr_status take_marked(const talk *t, const hr_rendered *whole, spans *list, hr_error *error) {
  size_t silent = 0, mark = 0;
  for (size_t i = 0; i < t->ends.count; i++) {
    const bool skipped = silent < t->silent.count && t->silent.items[silent] == i;
    silent += skipped;
    if (!skipped && !t->assistant.items[i]) continue;
    if (!skipped && !hri_array_push(list, whole->generated[mark]))
      return hri_fail_memory(error, sizeof *list->items, "a row of data");
    mark++;
  }
  return HR_OK;
}

/* The same where a template marks otherwise: an answer's place is searched. */
static hr_status find_marked(converter *c, const hr_rendered *whole, spans *list, hr_error *error) {
  spans silent = {0};
  size_t answers = c->talk.silent.count;
  hr_status status;
  for (size_t i = 0; i < c->talk.ends.count; i++) answers += c->talk.assistant.items[i];
  if (answers == whole->generated_count) return take_marked(&c->talk, whole, list, error);
  status = limit_search(c, whole, c->talk.silent.count, error);
  for (size_t i = 0; i < c->talk.silent.count && status == HR_OK; i++)
    status = add_answer(c, whole, c->talk.silent.items[i], &silent, error);
  for (size_t i = 0; i < whole->generated_count && status == HR_OK; i++) {
    const hr_span span = whole->generated[i];
    bool kept = true;
    for (size_t k = 0; k < silent.count && kept; k++)
      kept = span.end <= silent.items[k].begin || span.begin >= silent.items[k].end;
    if (kept && !hri_array_push(list, span)) status = hri_fail_memory(error, sizeof span, "a row of data");
  }
  hri_array_free(&silent);
  return status;
}

static bool is_blank(const char *text, uint64_t begin, uint64_t end) {
  while (begin < end && strchr(" \t\r\n", text[begin])) begin++;
  return begin == end;
}

/* Blanks between a special token that ends an answer and the next turn are the template's, not the answer's. */
static void drop_blanks_behind_special(converter *c, const char *text) {
  const hr_tokenizer *tokenizer = c->dataset->encoder->tokenizer;
  size_t count = c->tokens.count, first = c->ids.count - count;
  for (size_t i = 1; tokenizer && i < count; i++) {
    uint8_t *counted = c->counted.items + first;
    size_t end = i;
    if (!counted[i - 1] || !hr_tokenizer_is_special(tokenizer, c->tokens.ids[i - 1])) continue;
    while (end < count && counted[end] && c->tokens.begin[end] < c->tokens.end[end] &&
           is_blank(text, c->tokens.begin[end], c->tokens.end[end]))
      end++;
    if (end == count || !counted[end]) memset(counted + i, 0, end - i);
  }
}

/* `begins`: a token counts when it begins in a stretch; else when it has any byte of one, as transformers does for masks
 * of {% generation %}. */
static hr_status push_spans(converter *c, const hr_span *list, size_t count, bool begins, hr_error *error) {
  size_t at = 0;
  for (uint64_t i = 0; i < c->tokens.count; i++) {
    uint64_t begin = c->tokens.begin[i], end = c->tokens.end[i];
    while (at < count && list[at].end <= begin) at++;
    HRI_TRY(
        push(c, c->tokens.ids[i], at < count && (begin >= list[at].begin || (!begins && end > list[at].begin)), error));
  }
  return HR_OK;
}

static hr_status convert_rendered(converter *c, const hr_rendered *whole, size_t first, spans *list, hr_error *error) {
  hr_loss_scope scope = scope_of(c);
  bool generation = scope == HR_LOSS_SCOPE_ASSISTANT && whole->has_generation;
  if (whole->bytes > TALK_BYTES)
    return fail_row(c, error, "divide it", "the conversation has more than %d MiB", TALK_BYTES >> 20);
  if (generation) HRI_TRY(find_marked(c, whole, list, error));
  else if (scope != HR_LOSS_SCOPE_ALL) HRI_TRY(find_spans(c, whole, scope, first, list, error));
  HRI_TRY(hri_encoder_run(c->dataset->encoder, c->where, whole->text, whole->bytes, true, &c->tokens, error));
  HRI_TRY(push_spans(c, list->items, list->count, !generation, error));
  if (!generation) drop_blanks_behind_special(c, whole->text);
  if (scope != HR_LOSS_SCOPE_ALL && list->count == 0 && c->talk.silent.count > 0)
    return fail_row(c, error, "leave the row out; --loss all counts every token",
                    "no label counts: all answers are of weight 0");
  HRI_TRY(finish(c, scope == HR_LOSS_SCOPE_ALL, error));
  if (scope != HR_LOSS_SCOPE_ALL) c->dataset->found.silent_answers += c->talk.silent.count;
  return HR_OK;
}

static void talk_drop_system(talk *t) {
  const size_t bytes = t->ends.items[0] + 1 - t->head; /* and a comma */
  memmove(t->json.chars + t->head, t->json.chars + t->head + bytes, t->json.length - t->head - bytes + 1);
  t->json.length -= bytes;
  t->ends.count--;
  t->assistant.count--;
  for (size_t i = 0; i < t->ends.count; i++) {
    t->ends.items[i] = t->ends.items[i + 1] - bytes;
    t->assistant.items[i] = t->assistant.items[i + 1];
  }
  for (size_t i = 0; i < t->silent.count; i++) t->silent.items[i]--;
  t->system = false;
}

/* The whole conversation. A template that refuses system messages (Gemma 2's own does) gets it without the row's field
 * `system`, which is lost then. `first` is a message, and stays it. */
static hr_status render_whole(converter *c, size_t *first, hr_rendered *whole, hr_error *error) {
  hr_error reason = {0};
  const hr_status status = render(c, c->talk.ends.count, false, whole, error);
  hr_status without;
  if (status != HR_ERROR_INPUT || !c->talk.system) return status;
  talk_drop_system(&c->talk);
  *first -= *first > 0;
  without = render(c, c->talk.ends.count, false, whole, &reason);
  if (without == HR_ERROR_INPUT)
    return hri_hint(error, status, "the row's field 'system' is its first message; without it: %s", reason.message);
  if (error) *error = reason; /* or none */
  if (without == HR_OK) c->dataset->found.facts |= HRI_DATA_SYSTEM_LOST;
  return without;
}

static hr_status convert_talk(converter *c, size_t first, hr_error *error) {
  uint32_t *rows = &c->dataset->found.system_rows;
  hr_rendered whole = {0};
  spans list = {0};
  hr_status status = render_whole(c, &first, &whole, error);
  if (status == HR_OK && c->talk.system && c->format != HR_DATA_ALPACA) *rows += *rows < UINT32_MAX;
  if (status == HR_OK) status = convert_rendered(c, &whole, first, &list, error);
  hr_rendered_deinit(&whole);
  hri_array_free(&list);
  return status;
}

/* What stands beside a row's messages as `system` is the first of them, as axolotl (chat_template.py) and LLaMA-Factory
 * (converter.py) have it, unless they begin with one of their own. */
static hr_status add_system_beside(converter *c, hri_column column, hr_error *error) {
  const hri_cell *system = &c->fields.cells[HRI_SYSTEM], *cell = &c->fields.cells[column];
  const hri_turn *first = cell->turn_count > 0 ? &c->fields.turns.items[cell->first_turn] : NULL;
  if (!first || !system->text || !system->text[0]) return HR_OK;
  if (strcmp(first->role, "system") == 0 || strcmp(first->role, "developer") == 0) { /* two names of one thing */
    c->dataset->found.facts |= HRI_DATA_SYSTEM_TWICE;
    return HR_OK;
  }
  return add_system(c, error);
}

static hr_status convert_messages(converter *c, hri_column column, hr_error *error) {
  HRI_TRY(need_chat(c, error));
  HRI_TRY(talk_begin(c, error));
  HRI_TRY(add_system_beside(c, column, error));
  HRI_TRY(add_messages(c, column, error));
  return convert_talk(c, 0, error);
}

static hr_status convert_prompt(converter *c, hr_error *error) {
  const char *prompt, *completion;
  size_t first;
  if (c->fields.cells[HRI_PROMPT].kind != '[' && c->fields.cells[HRI_COMPLETION].kind != '[') {
    HRI_TRY(need_string(c, HRI_PROMPT, &prompt, error));
    HRI_TRY(need_string(c, HRI_COMPLETION, &completion, error));
    return convert_strings(c, prompt, completion, error);
  }
  HRI_TRY(need_chat(c, error));
  HRI_TRY(talk_begin(c, error));
  HRI_TRY(add_messages(c, HRI_PROMPT, error));
  first = c->talk.ends.count;
  HRI_TRY(add_messages(c, HRI_COMPLETION, error));
  return convert_talk(c, first, error);
}

/* ---- Alpaca ---- */

static hr_status convert_instruction_talk(converter *c, hr_error *error) {
  const hri_cell *cells = c->fields.cells;
  bool has_input = cells[HRI_INPUT].text && cells[HRI_INPUT].text[0];
  size_t first;
  HRI_TRY(talk_begin(c, error));
  HRI_TRY(add_system(c, error));
  for (size_t i = 0; i < cells[HRI_HISTORY].turn_count; i++) {
    const hri_turn *turn = &c->fields.turns.items[cells[HRI_HISTORY].first_turn + i];
    HRI_TRY(add_said(c, "user", turn->content, NULL, error));
    HRI_TRY(add_said(c, "assistant", turn->answer, NULL, error));
  }
  HRI_TRY(add_said(c, "user", cells[HRI_INSTRUCTION].raw, has_input ? &cells[HRI_INPUT].raw : NULL, error));
  first = c->talk.ends.count;
  HRI_TRY(add_said(c, "assistant", cells[HRI_OUTPUT].raw, NULL, error));
  return convert_talk(c, first, error);
}

/* The prompt of Stanford Alpaca as axolotl writes it (src/axolotl/prompters.py: a line end behind the last heading),
 * for models without a chat template. */
static hr_status convert_preamble(converter *c, hr_error *error) {
  const hri_cell *cells = c->fields.cells;
  bool has_input = cells[HRI_INPUT].text && cells[HRI_INPUT].text[0];
  size_t begin;
  if (cells[HRI_HISTORY].turn_count > 0)
    return fail_row(c, error, "--chat-template with a preset or a Jinja file",
                    "field 'history' needs a chat template, and this model has none");
  c->text.length = 0;
  if (cells[HRI_SYSTEM].text && cells[HRI_SYSTEM].text[0])
    hri_text_add_bytes(&c->text, cells[HRI_SYSTEM].text, strlen(cells[HRI_SYSTEM].text));
  else
    hri_text_add(
        &c->text,
        "Below is an instruction that describes a task%s. Write a response that appropriately completes the request.",
        has_input ? ", paired with an input that provides further context" : "");
  hri_text_add(&c->text, "\n\n### Instruction:\n");
  hri_text_add_bytes(&c->text, cells[HRI_INSTRUCTION].text, strlen(cells[HRI_INSTRUCTION].text));
  if (has_input) hri_text_add(&c->text, "\n\n### Input:\n");
  if (has_input) hri_text_add_bytes(&c->text, cells[HRI_INPUT].text, strlen(cells[HRI_INPUT].text));
  hri_text_add(&c->text, "\n\n### Response:\n");
  begin = c->text.length;
  hri_text_add_bytes(&c->text, cells[HRI_OUTPUT].text, strlen(cells[HRI_OUTPUT].text));
  HRI_TRY(memory(&c->text, error));
  c->dataset->found.facts |= HRI_DATA_PREAMBLE;
  return convert_pair(c, hri_text_get(&c->text), c->text.length, begin, error);
}

static hr_status convert_alpaca(converter *c, hr_error *error) {
  const char *text;
  hri_dataset *d = c->dataset;
  HRI_TRY(need_string(c, HRI_INSTRUCTION, &text, error));
  HRI_TRY(need_string(c, HRI_OUTPUT, &text, error));
  if (d->options->chat_given) {
    HRI_TRY(need_chat(c, error));
  } else if (!d->chat && !d->chat_tried && d->options->chat) { /* a base model has none, and needs none here */
    (void)need_chat(c, NULL);
    c->fatal = false;
    d->chat_tried = true;
  }
  return d->chat ? convert_instruction_talk(c, error) : convert_preamble(c, error);
}

/* ---- the file ---- */

/* What stands as `system` beside messages may be anybody's own: trainers that know no such field pass over it. */
static const hri_wanted wanted[HR_DATA_FORMAT_COUNT] = {
    [HR_DATA_TEXT_FIELD] = {1u << HRI_TEXT, 0},
    [HR_DATA_PROMPT] = {1u << HRI_PROMPT | 1u << HRI_COMPLETION | 1u << HRI_TOOLS, 0},
    [HR_DATA_MESSAGES] = {1u << HRI_MESSAGES | 1u << HRI_TOOLS, 1u << HRI_SYSTEM},
    [HR_DATA_SHAREGPT] = {1u << HRI_CONVERSATIONS | 1u << HRI_TOOLS, 1u << HRI_SYSTEM},
    [HR_DATA_ALPACA] = {1u << HRI_INSTRUCTION | 1u << HRI_INPUT | 1u << HRI_OUTPUT | 1u << HRI_SYSTEM |
                            1u << HRI_HISTORY,
                        0},
};

static void ignore(void *context, const char *name) { hri_data_ignore(context, name); }

static hr_status convert_ids(converter *c, hr_error *error) {
  hri_records *r = &c->records;
  for (size_t i = 0; i < r->count; i++)
    if (r->bytes[i] == '\n') r->bytes[i] = ' '; /* an element of an array may have several lines */
  return hri_data_read_ids_record(c->dataset, r->in->path, r->bytes, r->count, r->record_line, error);
}

static hr_status convert_record(converter *c, hr_error *error) {
  hri_records *r = &c->records;
  if (r->too_long)
    return fail_row(c, error, "divide it; is there a line break behind each row?", "the row has more than %d MiB",
                    HRI_RECORD_BYTES >> 20);
  if (c->format == HR_DATA_TOKENS) return convert_ids(c, error);
  if (c->format != HR_DATA_TEXT_FIELD) {
    if (r->count > TALK_BYTES)
      return fail_row(c, error, "divide it; only rows of text or of token ids may be longer",
                      "the row has more than %d MiB", TALK_BYTES >> 20);
    HRI_TRY(hri_records_keep_raw(r, error));
  }
  HRI_TRY(hri_fields_read(&c->fields, r, wanted[c->format], ignore, c->dataset, error));
  c->ids.count = c->counted.count = 0;
  switch (c->format) {
  case HR_DATA_TEXT_FIELD: return convert_text(c, error);
  case HR_DATA_PROMPT: return convert_prompt(c, error);
  case HR_DATA_MESSAGES: return convert_messages(c, HRI_MESSAGES, error);
  case HR_DATA_SHAREGPT: return convert_messages(c, HRI_CONVERSATIONS, error);
  case HR_DATA_ALPACA: return convert_alpaca(c, error);
  default: return hri_fail(error, HR_ERROR_INTERNAL, "data format %d has no records", (int)c->format);
  }
}

static hr_status read_records(converter *c, hr_error *error) {
  for (;;) {
    hr_error reason = {0};
    hr_status status;
    bool more;
    HRI_TRY(hri_records_next(&c->records, &more, error));
    if (!more) return HR_OK;
    HRI_TRY(hri_data_go_on(c->dataset, error));
    (void)snprintf(c->where, sizeof c->where, "%.480s:%llu", c->records.in->path,
                   (unsigned long long)c->records.record_line);
    status = convert_record(c, &reason);
    if (status == HR_OK) continue;
    if (c->fatal && error) *error = reason;
    if (c->fatal) return status;
    HRI_TRY(hri_data_broken(c->dataset, status, &reason, error));
    HRI_TRY(hri_data_mend(c->dataset, error));
  }
}

hr_status hri_data_read_records(hri_dataset *dataset, hri_reader *reader, hr_error *error) {
  const hri_data_source *source = hri_data_current(dataset);
  converter c = {.dataset = dataset,
                 .format = source->format,
                 .records = {.in = reader, .is_array = source->container == HRI_JSON_ARRAY, .line = 1}};
  hr_status status = read_records(&c, error);
  hri_records_deinit(&c.records);
  hri_array_free(&c.fields.turns);
  hr_tokens_deinit(&c.tokens);
  hr_tokens_deinit(&c.prompt);
  hri_array_free(&c.ids);
  hri_array_free(&c.counted);
  hri_text_deinit(&c.talk.json);
  hri_array_free(&c.talk.ends);
  hri_array_free(&c.talk.assistant);
  hri_array_free(&c.talk.silent);
  hri_text_deinit(&c.text);
  hri_text_deinit(&c.scratch);
  return status;
}
