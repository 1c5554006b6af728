/* headroom generate: continues a prompt, or with --chat answers it. Models without a tokenizer take and give bytes or
 * ids. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/train.h>

#include <headroom/run.h>

#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/text.h"

static const size_t PROMPT_LIMIT = (size_t)1 << 28; /* bytes; beyond any context */

/* ---- the prompt ---- */

static hr_status read_file(const char *path, char **text, size_t *count, hr_error *error) {
  FILE *file = text_open(path, "the prompt", error);
  size_t capacity = 0, got = 1;
  hr_status status = HR_OK;
  if (!file) return error->code;
  *count = 0;
  while (got > 0 && *count <= PROMPT_LIMIT) {
    if (*count == capacity) *text = text_grow(*text, capacity = capacity ? 2 * capacity : 4096);
    got = fread(*text + *count, 1, capacity - *count, file);
    *count += got;
  }
  if (ferror(file)) status = hri_fail(error, HR_ERROR_IO, "cannot read the prompt %s: %s", path, strerror(errno));
  else if (*count > PROMPT_LIMIT)
    status = hri_fail(error, HR_ERROR_INPUT, "the prompt %s has more than %zu bytes", path, PROMPT_LIMIT);
  text_close(file);
  return status;
}

static hr_status read_prompt(const cli_config *config, char **text, size_t *count, hr_error *error) {
  const char *prompt = config->own.prompt, *path = config->own.prompt_file;
  hr_status status = HR_OK;
  if (prompt && path) {
    origin first = config_origin(config, &config->own.prompt), second = config_origin(config, &config->own.prompt_file);
    if (first == second) return hri_fail(error, HR_ERROR_USAGE, "--prompt and --prompt-file exclude each other");
    if (first > second) path = NULL; /* the stronger origin rules */
  }
  if (path) {
    status = read_file(path, text, count, error);
  } else if (prompt) {
    *count = strlen(prompt);
    *text = text_copy(prompt, *count);
  } else {
    hri_fail(error, HR_ERROR_USAGE, "there is nothing to continue");
    return hri_hint(error, HR_ERROR_USAGE, "--prompt TEXT, or --prompt-file FILE (- for standard input)");
  }
  if (status == HR_OK && *count == 0) status = hri_fail(error, HR_ERROR_USAGE, "the prompt is empty");
  return status;
}

/* ---- the output ---- */

static void print_json(const cli_answer *out, const hr_generate_result *result) {
  size_t bytes;
  char *text = answer_text(out, &bytes);
  json_writer json;
  json_write_begin(&json, stdout);
  json_write_count(&json, "prompt_tokens", result->prompt_tokens);
  json_write_count(&json, "new_tokens", result->new_tokens);
  if (text) json_write_bytes(&json, "text", text, bytes);
  else json_write_null(&json, "text");
  json_write_open_flat(&json, "tokens", '[');
  for (size_t i = 0; i < out->listener.count; i++) json_write_integer(&json, NULL, out->listener.tokens[i]);
  json_write_close(&json, ']');
  json_write_bool(&json, "stopped_by_end", result->stopped_by_end);
  json_write_bool(&json, "stopped_by_text", out->stopped);
  json_write_number(&json, "prefill_seconds", result->prefill_seconds);
  json_write_number(&json, "decode_seconds", result->decode_seconds);
  talk_write_tiers(&json, result->planned_bytes, result->reserved_bytes);
  json_write_end(&json);
  free(text);
}

static void print_end(const cli_answer *out, const hr_generate_result *result) {
  double seconds = result->decode_seconds;
  char text[256];
  int used =
      snprintf(text, sizeof text, "%llu tokens read in %s, %llu made in %s", (unsigned long long)result->prompt_tokens,
               SECONDS_TEXT(result->prefill_seconds), (unsigned long long)result->new_tokens, SECONDS_TEXT(seconds));
  if (seconds > 0)
    used += snprintf(text + used, sizeof text - (size_t)used, " (%s tokens/s)",
                     COUNT_TEXT((double)result->new_tokens / seconds));
  (void)snprintf(text + used, sizeof text - (size_t)used, ", %s reserved as planned%s\n",
                 SIZE_TEXT(result->reserved_bytes[HR_TIER_DEVICE]),
                 out->stopped             ? "; it ended at a stop text"
                 : result->stopped_by_end ? "; the model ended the text"
                                          : "");
  screen_fold(stderr, text);
}

/* ---- the command ---- */

typedef struct prompt_input {
  char *text;
  size_t count;
  cli_speech speech;
  int32_t *ids;
  uint64_t id_count;
} prompt_input;

static hr_status check_chat(const cli_config *config, hr_error *error) {
  const struct {
    const void *member;
    bool given;
  } of_chats[] = {{&config->own.system, config->own.system != NULL},
                  {&config->run.data.chat_template, config->run.data.chat_template != NULL},
                  {&config->own.render, config->own.render}};
  for (size_t k = 0; k < sizeof of_chats / sizeof *of_chats; k++)
    if (of_chats[k].given && !config->own.chat) {
      hri_fail(error, HR_ERROR_USAGE, "--%s is of a conversation, and the prompt is continued as it stands",
               option_get(option_at(config, of_chats[k].member))->name);
      return hri_hint(error, HR_ERROR_USAGE, "add --chat");
    }
  return HR_OK;
}

static hr_status take_ids(const cli_config *config, const hr_model *model, prompt_input *in, hr_error *error) {
  cli_turns turns = {0};
  hr_status status;
  if (!config->own.chat) return speech_ids(&in->speech, model, in->text, in->count, &in->ids, &in->id_count, error);
  if (memchr(in->text, 0, in->count)) {
    hri_fail(error, HR_ERROR_INPUT, "the prompt holds the byte 0 at byte %zu, for which a chat template has no place",
             (size_t)((char *)memchr(in->text, 0, in->count) - in->text));
    return hri_hint(error, HR_ERROR_INPUT, "leave it out, or let the text be continued as it stands, without --chat");
  }
  if (config->own.system) turns_add(&turns, "system", config->own.system, strlen(config->own.system));
  turns_add(&turns, "user", in->text, in->count);
  status = speech_turns(&in->speech, &turns, config->own.render ? stderr : NULL, &in->ids, &in->id_count, error);
  turns_close(&turns);
  return status;
}

/* The job needs the context, the context the prompt's tokens. */
static hr_status prepare(cli_config *config, prompt_input *in, hr_error *error) {
  hr_model model;
  const char *source = config->run.model_source;
  hr_status status = check_chat(config, error);
  uint64_t context;
  if (status == HR_OK) status = read_prompt(config, &in->text, &in->count, error);
  if (status != HR_OK || !source || !source[0])
    return status != HR_OK ? status : config_job(config, HR_PURPOSE_GENERATE, error);
  status = hr_model_open(source, &model, error);
  if (status == HR_OK) status = speech_open(&in->speech, &model, config->own.chat, &config->run.data, error);
  if (status == HR_OK) status = take_ids(config, &model, in, error);
  if (status != HR_OK) return status;
  context = in->id_count + config->own.max_tokens;
  if (!config_chosen(config, &config->job.context_length))
    config->job.context_length = context < UINT32_MAX ? (uint32_t)context : UINT32_MAX - 1;
  return config_job(config, HR_PURPOSE_GENERATE, error);
}

static hr_status run(cli_config *config, const prompt_input *in, hr_error *error) {
  cli_answer out;
  hr_generate_options options;
  hr_generate_result result;
  hr_status status = answer_begin(&out, config, &in->speech, &options, error);
  memset(&result, 0, sizeof result);
  options.prompt_ids = in->ids;
  options.prompt_id_count = in->id_count;
  out.silent = config->own.json;
  if (status == HR_OK) status = hr_generate(&config->job, &options, &result, error);
  if (status == HR_OK || out.listener.count > 0) answer_end(&out);
  if (status == HR_OK && out.silent) print_json(&out, &result);
  else if (status == HR_OK && !config->own.quiet) print_end(&out, &result);
  answer_close(&out);
  return status;
}

hr_status command_generate(cli_config *config, hr_error *error) {
  prompt_input in = {0};
  hr_hold *hold; /* a run beside does not take the checkpoint away while it is read */
  hr_status status;
  if (config->own.show_config) return config_show_for(config, HR_PURPOSE_GENERATE, error);
  hold = config_hold_model(config);
  status = prepare(config, &in, error);
  if (status == HR_OK) status = run(config, &in, error);
  speech_close(&in.speech);
  free(in.text);
  free(in.ids);
  hr_hold_release(hold);
  return status;
}
