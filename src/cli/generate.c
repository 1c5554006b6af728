/* headroom generate: continues a prompt, or with --chat answers it. Models without a tokenizer take and give bytes or
 * ids. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/train.h>

#include <headroom/run.h>

#include "cli/commands.h"
#include "cli/speech.h"
#include "cli/talk.h"
#include "cli/text.h"

static const size_t PROMPT_LIMIT = (size_t)1 << 28; /* bytes; beyond any context */

typedef struct writer {
  cli_talk talk;
  const cli_speech *speech;
  cli_listener listener;
  bool as_json, quiet;
} writer;

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

static void say(char *text, size_t bytes) {
  (void)fwrite(text, 1, bytes, stdout);
  (void)fflush(stdout);
  free(text);
}

static void on_token(void *context, int32_t token) {
  writer *out = context;
  size_t bytes;
  char *text = listener_take(&out->listener, token, &bytes);
  if (out->as_json) {
    free(text);
  } else if (text) {
    say(text, bytes);
  } else {
    (void)printf("%s%d", out->listener.count > 1 ? " " : "", token);
    (void)fflush(stdout);
  }
}

static void on_event(void *context, const hr_event *event) {
  writer *out = context;
  /* A plan that fits is no news here; one that does not is. */
  if (event->kind == HR_EVENT_PLANNED && event->plan && hr_plan_get(event->plan)->fits) return;
  if (event->kind == HR_EVENT_LOADED) return;
  talk_event(&out->talk, event);
}

static void print_json(const writer *out, const hr_generate_result *result) {
  size_t bytes = 0;
  char *text = out->speech->bytes || out->speech->tokenizer ? listener_text(&out->listener, &bytes) : NULL;
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
  json_write_number(&json, "prefill_seconds", result->prefill_seconds);
  json_write_number(&json, "decode_seconds", result->decode_seconds);
  talk_write_tiers(&json, result->planned_bytes, result->reserved_bytes);
  json_write_end(&json);
  free(text);
}

static void print_end(writer *out, const hr_generate_result *result) {
  double seconds = result->decode_seconds;
  size_t bytes;
  char *rest = listener_rest(&out->listener, &bytes);
  say(rest, bytes);
  (void)putchar('\n');
  (void)fflush(stdout);
  if (out->quiet) return;
  (void)fprintf(stderr, "%llu tokens read in %s, %llu made in %s", (unsigned long long)result->prompt_tokens,
                SECONDS_TEXT(result->prefill_seconds), (unsigned long long)result->new_tokens, SECONDS_TEXT(seconds));
  if (seconds > 0) (void)fprintf(stderr, " (%s tokens/s)", COUNT_TEXT((double)result->new_tokens / seconds));
  (void)fprintf(stderr, ", %s reserved as planned%s\n", SIZE_TEXT(result->reserved_bytes[HR_TIER_DEVICE]),
                result->stopped_by_end ? "; the model ended the text" : "");
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
  const char *const *const of_chats[] = {&config->own.system, &config->run.data.chat_template};
  for (size_t k = 0; k < sizeof of_chats / sizeof *of_chats; k++)
    if (*of_chats[k] && !config->own.chat) {
      hri_fail(error, HR_ERROR_USAGE, "--%s is of a conversation, and the prompt is continued as it stands",
               option_get(option_at(config, of_chats[k]))->name);
      return hri_hint(error, HR_ERROR_USAGE, "add --chat");
    }
  return HR_OK;
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
  if (status == HR_OK)
    status = speech_ids(&in->speech, &model, config->own.system, in->text, in->count, &in->ids, &in->id_count, error);
  if (status != HR_OK) return status;
  context = in->id_count + config->own.max_tokens;
  if (!config_chosen(config, &config->job.context_length))
    config->job.context_length = context < UINT32_MAX ? (uint32_t)context : UINT32_MAX - 1;
  return config_job(config, HR_PURPOSE_GENERATE, error);
}

static hr_status run(cli_config *config, const prompt_input *in, hr_error *error) {
  writer out = {.speech = &in->speech, .listener = {.speech = &in->speech}};
  hr_generate_options options;
  hr_generate_result result;
  hr_status status;
  hr_generate_options_init(&options);
  options.prompt_ids = in->ids;
  options.prompt_id_count = in->id_count;
  options.max_tokens = config->own.max_tokens;
  options.temperature = config->own.temperature;
  options.top_k = config->own.top_k;
  options.top_p = config->own.top_p;
  options.seed = config->job.seed;
  options.on_event = on_event;
  options.on_token = on_token;
  options.context = &out;
  memset(&result, 0, sizeof result);
  out.as_json = config->own.json;
  out.quiet = config->own.quiet;
  talk_begin(&out.talk, config);
  status = hr_generate(&config->job, &options, &result, error);
  if (status == HR_OK && out.as_json) print_json(&out, &result);
  else if (status == HR_OK) print_end(&out, &result);
  else if (out.listener.count > 0 && !out.as_json) (void)putchar('\n');
  listener_close(&out.listener);
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
