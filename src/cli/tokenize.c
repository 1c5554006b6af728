/* headroom tokenize: text to token ids and back, one document at a time. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <headroom/model.h>
#include <headroom/tokenizer.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/text.h"

enum { STREAM_LIMIT = 1u << 30 }; /* a file says how long it is; what has no end must not fill the memory */

typedef struct document {
  char *bytes;
  uint64_t count;
} document;

static double seconds_now(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* All of a file or of standard input, a NUL behind it. */
static hr_status read_document(const char *path, document *made, hr_error *error) {
  const char *name = path ? path : "-";
  FILE *file = text_open(name, "the text", error);
  uint64_t capacity = 1 << 16;
  size_t got;
  hr_status status = HR_OK;
  if (!file) return error->code;
  made->bytes = text_alloc(capacity);
  while ((got = fread(made->bytes + made->count, 1, capacity - made->count - 1, file)) > 0) {
    made->count += got;
    if (made->count > STREAM_LIMIT && text_is_stream(file)) break;
    if (capacity - made->count < 2) made->bytes = text_grow(made->bytes, capacity *= 2);
  }
  made->bytes[made->count] = 0;
  if (ferror(file)) status = hri_fail(error, HR_ERROR_IO, "cannot read %s: %s", name, strerror(errno));
  else if (got > 0)
    status =
        hri_fail(error, HR_ERROR_INPUT,
                 "a stream of more than %u bytes is not taken as one text: write it to a file first", STREAM_LIMIT);
  text_close(file);
  return status;
}

/* ---- decoding ---- */

/* Numbers with anything that is neither digit nor minus between them: "1 2", "[1, 2]". */
static hr_status read_ids(const document *from, int32_t **ids, uint64_t *count, hr_error *error) {
  const char *at = from->bytes, *end = from->bytes + from->count;
  uint64_t capacity = 256;
  *count = 0;
  *ids = text_alloc(capacity * sizeof **ids);
  while (at < end) {
    char *behind;
    long long id;
    if (!strchr("-0123456789", *at) || !*at) {
      if (!strchr(" \t\r\n,[]", *at) || !*at)
        return hri_fail(error, HR_ERROR_INPUT,
                        "byte %llu of the ids is '%c': only numbers, blanks, commas and brackets may stand there",
                        (unsigned long long)(at - from->bytes), *at);
      at++;
      continue;
    }
    errno = 0;
    id = strtoll(at, &behind, 10);
    if (behind == at || errno || id < INT32_MIN || id > INT32_MAX)
      return hri_fail(error, HR_ERROR_INPUT, "byte %llu of the ids begins no token id",
                      (unsigned long long)(at - from->bytes));
    if (*count == capacity) *ids = text_grow(*ids, (capacity *= 2) * sizeof **ids);
    (*ids)[(*count)++] = (int32_t)id;
    at = behind;
  }
  return HR_OK;
}

static void print_decoded(const cli_config *config, const char *text, uint64_t bytes, uint64_t count) {
  json_writer json;
  if (!config->own.json) {
    screen_put(stdout, text, bytes);
    return;
  }
  json_write_begin(&json, stdout);
  json_write_count(&json, "token_count", count);
  json_write_bytes(&json, "text", text, bytes);
  json_write_end(&json);
}

static hr_status decode(const cli_config *config, const hr_tokenizer *tokenizer, const document *from, bool special,
                        hr_error *error) {
  int32_t *ids = NULL;
  uint64_t count, bytes;
  char *text = NULL;
  hr_status status = read_ids(from, &ids, &count, error);
  if (status == HR_OK)
    status = hr_tokenizer_decode(tokenizer, ids, count, special ? 0 : HR_DECODE_SKIP_SPECIAL, &text, &bytes, error);
  if (status == HR_OK) print_decoded(config, text, bytes, count);
  hr_free(text);
  free(ids);
  return status;
}

/* ---- encoding ---- */

static void print_ids(const hr_tokens *tokens) {
  for (uint64_t i = 0; i < tokens->count; i++) (void)printf("%s%" PRId32, i ? " " : "", tokens->ids[i]);
  (void)printf("\n");
}

/* A piece of the text between quotes, with what cannot be seen escaped. */
static void print_quoted(const char *bytes, uint64_t count) {
  (void)putchar('"');
  for (uint64_t i = 0; i < count; i++) {
    unsigned char c = (unsigned char)bytes[i];
    if (c == '\n') (void)fputs("\\n", stdout);
    else if (c == '\t') (void)fputs("\\t", stdout);
    else if (c == '"' || c == '\\') (void)printf("\\%c", c);
    else if (c < 0x20 || c == 0x7F) (void)printf("\\x%02x", c);
    else if (c == 0xC2 && i + 1 < count && (unsigned char)bytes[i + 1] < 0xA0) /* U+0080 to U+009F */
      (void)printf("\\xc2\\x%02x", (unsigned char)bytes[++i]);
    else (void)putchar(c);
  }
  (void)putchar('"');
}

static void print_tokens(const hr_tokenizer *tokenizer, const hr_tokens *tokens, const document *from) {
  for (uint64_t i = 0; i < tokens->count; i++) {
    uint64_t bytes;
    const char *content = hr_tokenizer_token(tokenizer, tokens->ids[i], &bytes);
    (void)printf("%10" PRId32 " %8" PRIu32 "..%-8" PRIu32 " ", tokens->ids[i], tokens->begin[i], tokens->end[i]);
    print_quoted(from->bytes + tokens->begin[i], tokens->end[i] - tokens->begin[i]);
    (void)printf("  %s", screen_style(stdout, STYLE_DIM));
    screen_put(stdout, content, bytes);
    (void)printf("%s\n", screen_style(stdout, STYLE_PLAIN));
  }
}

static void print_stats(const hr_tokenizer *tokenizer, const hr_tokens *tokens, const document *from, double seconds) {
  (void)printf("tokenizer        %s\n", hr_tokenizer_about(tokenizer));
  (void)printf("bytes            %llu\n", (unsigned long long)from->count);
  (void)printf("tokens           %llu\n", (unsigned long long)tokens->count);
  if (tokens->count) (void)printf("bytes per token  %.3f\n", (double)from->count / (double)tokens->count);
  if (seconds > 0) (void)printf("speed            %.1f MB/s\n", 1e-6 * (double)from->count / seconds);
}

static void print_json(const cli_config *config, const hr_tokenizer *tokenizer, const hr_tokens *tokens,
                       const document *from, double seconds) {
  json_writer json;
  json_write_begin(&json, stdout);
  json_write_text(&json, "tokenizer", hr_tokenizer_about(tokenizer));
  json_write_count(&json, "bytes", from->count);
  json_write_count(&json, "token_count", tokens->count);
  json_write_ns(&json, "encode_ns", seconds);
  if (!config->own.stats) {
    json_write_open_flat(&json, "ids", '[');
    for (uint64_t i = 0; i < tokens->count; i++) json_write_integer(&json, NULL, tokens->ids[i]);
    json_write_close(&json, ']');
  }
  if (config->own.tokens) {
    json_write_open(&json, "tokens", '[');
    for (uint64_t i = 0; i < tokens->count; i++) {
      uint64_t bytes;
      const char *content = hr_tokenizer_token(tokenizer, tokens->ids[i], &bytes);
      json_write_open_flat(&json, NULL, '{');
      json_write_integer(&json, "id", tokens->ids[i]);
      json_write_bytes(&json, "token", content, bytes);
      json_write_count(&json, "begin", tokens->begin[i]);
      json_write_count(&json, "end", tokens->end[i]);
      json_write_close(&json, '}');
    }
    json_write_close(&json, ']');
  }
  json_write_end(&json);
}

static hr_status encode(const cli_config *config, const hr_tokenizer *tokenizer, const document *from, bool special,
                        hr_error *error) {
  uint32_t flags = (special ? HR_ENCODE_SPECIAL : 0) | (config->own.tokens ? HR_ENCODE_OFFSETS : 0);
  hr_tokens tokens = {0};
  double begin = seconds_now();
  hr_status status = hr_tokenizer_encode(tokenizer, from->bytes, from->count, flags, &tokens, error);
  double seconds = seconds_now() - begin;
  if (status == HR_OK) {
    if (config->own.json) print_json(config, tokenizer, &tokens, from, seconds);
    else if (config->own.stats) print_stats(tokenizer, &tokens, from, seconds);
    else if (config->own.tokens) print_tokens(tokenizer, &tokens, from);
    else print_ids(&tokens);
  }
  hr_tokens_deinit(&tokens);
  return status;
}

static hr_status check_options(const cli_config *config, hr_error *error) {
  bool shows = config->own.stats || config->own.tokens;
  if (config->operand_count == 0) {
    hri_fail(error, HR_ERROR_USAGE, "the model whose tokenizer is wanted is missing");
    return hri_hint(error, HR_ERROR_USAGE, "headroom tokenize MODEL FILE");
  }
  if (config->own.decode && shows) {
    hri_fail(error, HR_ERROR_USAGE, "--decode goes from ids to text: --stats and --tokens do not go with it");
    return hri_hint(error, HR_ERROR_USAGE, "leave them out, or leave --decode out for a text");
  }
  if (!config->own.stats || !config->own.tokens || config->own.json) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--stats and --tokens exclude each other: --stats prints nothing else");
  return hri_hint(error, HR_ERROR_USAGE, "one after the other, or both with --json");
}

/* A preset is sizes alone. */
static hr_status open_tokenizer(const char *source, hr_tokenizer **tokenizer, hr_error *error) {
  hr_model model;
  hr_status status = hr_tokenizer_open(source, tokenizer, error);
  if (status != HR_ERROR_IO || hr_model_preset(source, &model, &(hr_error){0}) != HR_OK) return status;
  status = hri_fail(error, HR_ERROR_USAGE, "%s is a preset, which has no tokenizer", model.name);
  return hri_hint(error, status, "name the model's directory, its tokenizer.json, or a GGUF file");
}

hr_status command_tokenize(cli_config *config, hr_error *error) {
  bool special = config->own.special;
  hr_tokenizer *tokenizer = NULL;
  document from = {0};
  hr_status status = check_options(config, error);
  if (status == HR_OK) status = open_tokenizer(config->operands[0], &tokenizer, error);
  if (status == HR_OK) status = read_document(config->operand_count > 1 ? config->operands[1] : "-", &from, error);
  if (status == HR_OK)
    status = config->own.decode ? decode(config, tokenizer, &from, special, error)
                                : encode(config, tokenizer, &from, special, error);
  free(from.bytes);
  hr_tokenizer_close(tokenizer);
  return status;
}
