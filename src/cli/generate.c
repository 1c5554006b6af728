/* headroom generate: continues a prompt. Byte-level models take and give text; others token ids. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/train.h>

#include "cli/commands.h"
#include "cli/talk.h"
#include "cli/text.h"

static const size_t PROMPT_LIMIT = (size_t)1 << 28; /* bytes; beyond any context */

typedef struct writer {
  cli_talk talk;
  const hr_model *model;
  bool bytes, as_json, quiet; /* bytes: tokens are bytes */
  int32_t *tokens;
  size_t count, capacity;
} writer;

/* ---- the prompt ---- */

static hr_status read_file(const char *path, char **text, size_t *count, hr_error *error) {
  bool standard = strcmp(path, "-") == 0;
  FILE *file = standard ? stdin : fopen(path, "rb");
  size_t capacity = 0, got = 1;
  hr_status status = HR_OK;
  if (!file) return text_fail(error, HR_ERROR_IO, "cannot open the prompt %s: %s", path, strerror(errno));
  *count = 0;
  while (got > 0 && *count <= PROMPT_LIMIT) {
    if (*count == capacity) *text = text_grow(*text, capacity = capacity ? 2 * capacity : 4096);
    got = fread(*text + *count, 1, capacity - *count, file);
    *count += got;
  }
  if (ferror(file))
    status = text_fail(error, HR_ERROR_IO, "cannot read the prompt %s: %s", path, strerror(errno));
  else if (*count > PROMPT_LIMIT)
    status = text_fail(error, HR_ERROR_INPUT, "the prompt %s has more than %zu bytes", path, PROMPT_LIMIT);
  if (!standard) (void)fclose(file);
  return status;
}

static hr_status read_prompt(const cli_config *config, char **text, size_t *count, hr_error *error) {
  const char *prompt = config_text(config, OPTION_PROMPT), *path = config_text(config, OPTION_PROMPT_FILE);
  hr_status status = HR_OK;
  if (prompt && path) {
    const value *first = &config->values[OPTION_PROMPT], *second = &config->values[OPTION_PROMPT_FILE];
    if (first->origin == second->origin)
      return text_fail(error, HR_ERROR_USAGE, "--prompt and --prompt-file exclude each other");
    if (first->origin > second->origin) path = NULL; /* the stronger origin rules */
  }
  if (path) {
    status = read_file(path, text, count, error);
  } else if (prompt) {
    *count = strlen(prompt);
    *text = text_copy(prompt, *count);
  } else {
    text_fail(error, HR_ERROR_USAGE, "there is nothing to continue");
    return text_hint(error, HR_ERROR_USAGE, "--prompt TEXT, or --prompt-file FILE (- for standard input)");
  }
  if (status == HR_OK && *count == 0) status = text_fail(error, HR_ERROR_USAGE, "the prompt is empty");
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
      text_fail(error, HR_ERROR_UNSUPPORTED,
                "%s is not byte-level and this version has no tokenizer for it; the prompt is no list of token ids",
                model->name);
      return text_hint(error, HR_ERROR_UNSUPPORTED, "--prompt '15496 995', ids with blanks between them");
    }
    if (id >= model->vocabulary_size)
      return text_fail(error, HR_ERROR_USAGE, "--prompt: token id %.*s is not below the vocabulary of %s, %u",
                       (int)(i - start < 20 ? i - start : 20), text + start, model->name, model->vocabulary_size);
    ids[(*id_count)++] = (int32_t)id;
  }
  return *id_count ? HR_OK : text_fail(error, HR_ERROR_USAGE, "the prompt holds no token id");
}

/* ---- the output ---- */

static void on_token(void *context, int32_t token) {
  writer *out = context;
  int byte = out->bytes ? hr_byte_of_token(out->model, token) : -1;
  if (out->count == out->capacity)
    out->tokens =
        text_grow(out->tokens, (out->capacity = out->capacity ? 2 * out->capacity : 256) * sizeof *out->tokens);
  out->tokens[out->count++] = token;
  if (out->as_json) return;
  if (byte >= 0)
    (void)putchar(byte);
  else if (!out->bytes)
    (void)printf("%s%d", out->count > 1 ? " " : "", token);
  (void)fflush(stdout);
}

static void on_event(void *context, const hr_event *event) {
  writer *out = context;
  /* A plan that fits is no news here; one that does not is. */
  if (event->kind == HR_EVENT_PLANNED && event->plan && hr_plan_get(event->plan)->fits) return;
  if (event->kind == HR_EVENT_LOADED) return;
  talk_event(&out->talk, event);
}

static void print_json(const writer *out, const hr_generate_result *result) {
  char *text = text_alloc(out->count + 1);
  size_t used = 0;
  json_writer json;
  for (size_t i = 0; i < out->count; i++) {
    int byte = out->bytes ? hr_byte_of_token(out->model, out->tokens[i]) : -1;
    if (byte >= 0) text[used++] = (char)byte;
  }
  json_write_begin(&json, stdout);
  json_write_count(&json, "prompt_tokens", result->prompt_tokens);
  json_write_count(&json, "new_tokens", result->new_tokens);
  if (out->bytes)
    json_write_bytes(&json, "text", text, used);
  else
    json_write_null(&json, "text");
  json_write_open_flat(&json, "tokens", '[');
  for (size_t i = 0; i < out->count; i++)
    json_write_integer(&json, NULL, out->tokens[i]);
  json_write_close(&json, ']');
  json_write_bool(&json, "stopped_by_end", result->stopped_by_end);
  json_write_number(&json, "prefill_seconds", result->prefill_seconds);
  json_write_number(&json, "decode_seconds", result->decode_seconds);
  talk_write_tiers(&json, result->planned_bytes, result->reserved_bytes);
  json_write_end(&json);
  free(text);
}

static void print_end(const writer *out, const hr_generate_result *result) {
  double seconds = result->decode_seconds;
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
  int32_t *ids;
  uint64_t id_count;
} prompt_input;

enum { BYTE_VOCABULARY = 512 }; /* 256 bytes and some special tokens; beyond that ids are pieces of text */

static bool byte_level(const hr_model *model) {
  return model->vocabulary_size <= BYTE_VOCABULARY && hr_byte_of_token(model, 'A') == 'A';
}

/* The job needs the context, the context the prompt, and whether a prompt is text the model. */
static hr_status prepare(cli_config *config, prompt_input *in, hr_error *error) {
  hr_model model;
  const char *source = config_text(config, OPTION_MODEL);
  hr_status status = read_prompt(config, &in->text, &in->count, error);
  uint64_t context;
  if (status != HR_OK) return status;
  if (source && source[0]) {
    status = hr_model_open(source, &model, error);
    if (status == HR_OK && !byte_level(&model)) {
      in->ids = text_alloc((in->count / 2 + 1) * sizeof *in->ids);
      status = read_ids(in->text, in->count, &model, in->ids, &in->id_count, error);
    }
    if (status != HR_OK) return status;
  }
  context = (in->ids ? in->id_count : in->count) + config_count(config, OPTION_MAX_TOKENS);
  if (!config_chosen(config, OPTION_CONTEXT))
    config->values[OPTION_CONTEXT].count = context < UINT32_MAX ? context : UINT32_MAX - 1;
  return config_job(config, HR_PURPOSE_GENERATE, error);
}

static hr_status check_sampling(const cli_config *config, hr_error *error) {
  double temperature = config->values[OPTION_TEMPERATURE].number[0], top_p = config->values[OPTION_TOP_P].number[0];
  if (temperature < 0) return text_fail(error, HR_ERROR_USAGE, "--temperature %g is negative", temperature);
  if (!(top_p > 0 && top_p <= 1))
    return text_fail(error, HR_ERROR_USAGE, "--top-p %g is not above 0 and at most 1", top_p);
  if (config_count(config, OPTION_TOP_K) > UINT32_MAX) return text_fail(error, HR_ERROR_USAGE, "--top-k is too large");
  return HR_OK;
}

static hr_status run(cli_config *config, const prompt_input *in, hr_error *error) {
  writer out = {.model = &config->job.model, .bytes = !in->ids};
  hr_generate_options options = {.prompt = in->ids ? NULL : (const uint8_t *)in->text,
                                 .prompt_bytes = in->ids ? 0 : in->count,
                                 .prompt_ids = in->ids,
                                 .prompt_id_count = in->id_count,
                                 .max_tokens = config_count(config, OPTION_MAX_TOKENS),
                                 .temperature = config->values[OPTION_TEMPERATURE].number[0],
                                 .top_k = (uint32_t)config_count(config, OPTION_TOP_K),
                                 .top_p = config->values[OPTION_TOP_P].number[0],
                                 .seed = config->job.seed,
                                 .on_event = on_event,
                                 .on_token = on_token,
                                 .context = &out};
  hr_generate_result result;
  hr_status status;
  memset(&result, 0, sizeof result);
  out.as_json = config_flag(config, OPTION_JSON);
  out.quiet = config_flag(config, OPTION_QUIET);
  talk_begin(&out.talk, config);
  status = hr_generate(&config->job, &options, &result, error);
  if (status == HR_OK && out.as_json)
    print_json(&out, &result);
  else if (status == HR_OK)
    print_end(&out, &result);
  else if (out.count > 0 && !out.as_json)
    (void)putchar('\n');
  free(out.tokens);
  return status;
}

hr_status command_generate(cli_config *config, hr_error *error) {
  prompt_input in = {0};
  hr_status status;
  if (config_flag(config, OPTION_SHOW_CONFIG)) return config_show_for(config, HR_PURPOSE_GENERATE, error);
  status = check_sampling(config, error);
  if (status == HR_OK) status = prepare(config, &in, error);
  if (status == HR_OK) status = run(config, &in, error);
  free(in.text);
  free(in.ids);
  return status;
}
