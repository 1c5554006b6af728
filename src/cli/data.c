/* headroom data: what is in data files, for a model, before training on them. */
#include <stdlib.h>
#include <string.h>

#include <headroom/data.h>

#include "cli/commands.h"
#include "cli/data.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/text.h"

enum { DEFAULT_SEQUENCE = 1024, EXAMPLE_TOKENS = 400, LABEL_COLUMNS = 16 };

/* ---- options, of train and evaluate as well ---- */

hr_status data_options(char **separator, hr_data_options *options, hr_error *error) {
  const char *text = options->document_separator;
  HRI_TRY(output_check_directory("--data-cache", options->cache_directory, error));
  if (!text) return HR_OK;
  *separator = text_alloc(strlen(text) + 1);
  if (!text_unescape(text, *separator))
    return hri_fail(error, HR_ERROR_USAGE,
                    "--document-separator: '%s' holds an escape other than \\n \\t \\r \\\\ \\xHH (01 to ff)", text);
  if (!**separator) return hri_fail(error, HR_ERROR_USAGE, "--document-separator is empty");
  options->document_separator = *separator;
  return HR_OK;
}

/* ---- the report as text ---- */

/* "1,234,567" */
static const char *digits(uint64_t count, char out[TEXT_BYTES]) {
  char plain[TEXT_BYTES];
  int length = snprintf(plain, sizeof plain, "%llu", (unsigned long long)count), used = 0;
  for (int i = 0; i < length; i++) {
    if (i > 0 && (length - i) % 3 == 0) out[used++] = ',';
    out[used++] = plain[i];
  }
  out[used] = 0;
  return out;
}
#define DIGITS(count) digits((count), (char[TEXT_BYTES]){0})

static void label(const char *name) { (void)printf("%-*s", LABEL_COLUMNS, name); }

static void print_lengths(const hr_data_report *r) {
  char text[512];
  int used = snprintf(text, sizeof text, "%-*s", LABEL_COLUMNS, "length");
  for (uint32_t i = 0; i < HR_DATA_PERCENTILES; i++) {
    if (r->percentiles[i] == 100) continue;
    used += snprintf(text + used, sizeof text - (size_t)used, "%u %%: %s   ", r->percentiles[i],
                     DIGITS(r->percentile_tokens[i]));
  }
  for (uint32_t i = 0; i < HR_DATA_PERCENTILES; i++)
    if (r->percentiles[i] == 100)
      (void)snprintf(text + used, sizeof text - (size_t)used, "longest: %s\n", DIGITS(r->percentile_tokens[i]));
  screen_fold(stdout, text);
  for (uint32_t i = 0; i < r->longest_count; i++) {
    label(i ? "" : "longest");
    (void)printf("%10s tokens  ", DIGITS(r->longest[i].tokens));
    screen_name(stdout, r->longest[i].file);
    if (r->longest[i].line) (void)printf(":%llu", (unsigned long long)r->longest[i].line);
    (void)printf("\n");
  }
}

static void print_packed(const hr_data_report *r, uint32_t sequence) {
  for (uint32_t i = 0; i < HR_DATA_PACKINGS; i++) {
    const hr_data_packed *p = &r->packed[i];
    char text[256];
    int used = snprintf(text, sizeof text, "%-7s %-8s%10s rows of %u, %.1f %% filled", i ? "" : "packing",
                        hr_packing_name(p->packing), DIGITS(p->rows), sequence, p->fill * 100);
    if (p->cut_documents)
      used += snprintf(text + used, sizeof text - (size_t)used, ", %s longer documents cut", DIGITS(p->cut_documents));
    if (p->dropped_documents)
      used += snprintf(text + used, sizeof text - (size_t)used, ", %s longer documents left out",
                       DIGITS(p->dropped_documents));
    (void)snprintf(text + used, sizeof text - (size_t)used, "\n");
    screen_fold(stdout, text);
  }
}

static void print_broken(const hr_data_report *r) {
  if (r->broken_rows == 0) return;
  label("broken rows");
  (void)printf("%10s\n", DIGITS(r->broken_rows));
  for (uint32_t i = 0; i < r->broken_count; i++) {
    (void)printf("  %s", screen_style(stdout, STYLE_BAD));
    screen_name(stdout, r->broken[i]);
    (void)printf("%s\n", screen_style(stdout, STYLE_PLAIN));
  }
  if (r->broken_rows > r->broken_count) (void)printf("  ... and %s more\n", DIGITS(r->broken_rows - r->broken_count));
}

static void print_report(const hr_data_report *r, uint32_t sequence) {
  char text[160], *note = text_plain(r->note); /* which names the files */
  screen_wrap(stdout, 0, note);
  (void)printf("\n");
  free(note);
  label("tokenizer");
  screen_name(stdout, r->tokenizer);
  (void)printf("\n");
  if (r->chat) {
    label("chat template");
    screen_name(stdout, r->chat);
    (void)printf("\n");
  }
  (void)snprintf(text, sizeof text, "%-*s%10s, %s in %s (%.1f MB/s)\n", LABEL_COLUMNS, "files",
                 SIZE_TEXT(r->file_bytes), r->from_cache ? "found tokenized" : "read and tokenized",
                 SECONDS_TEXT(r->seconds), (double)r->file_bytes / (r->seconds > 0 ? r->seconds : 1e-9) * 1e-6);
  screen_fold(stdout, text);
  label("documents");
  (void)printf("%10s\n", DIGITS(r->documents));
  label("tokens");
  (void)printf("%10s\n", DIGITS(r->tokens));
  label("counted labels");
  (void)printf("%10s, %.1f %% of the tokens\n", DIGITS(r->labels),
               100.0 * (double)r->labels / (double)(r->tokens ? r->tokens : 1));
  print_lengths(r);
  print_packed(r, sequence);
  print_broken(r);
}

/* ---- examples ---- */

/* Text as it stands; control characters but for the line feed and the tab as \xHH, so that data cannot steer a
 * terminal. */
static void print_plain(const char *text, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i++) {
    unsigned char c = (unsigned char)text[i];
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) (void)printf("\\x%02x", c);
    else if (c == 0xC2 && i + 1 < bytes && (unsigned char)text[i + 1] >= 0x80 &&
             (unsigned char)text[i + 1] < 0xA0) /* U+0080 to U+009F */
      (void)printf("\\xc2\\x%02x", (unsigned char)text[++i]);
    else (void)putchar(c);
  }
}

static void print_example(const hr_data_example *example, uint64_t number) {
  bool color = screen_style(stdout, STYLE_DIM)[0] != 0;
  char mark[32], line[24] = "";
  hri_text title = {0};
  (void)snprintf(mark, sizeof mark, "example %llu:", (unsigned long long)number);
  if (example->place.line) (void)snprintf(line, sizeof line, ":%llu", (unsigned long long)example->place.line);
  hri_text_add(&title, "%s%s, %s tokens; %s does not count", example->place.file, line, DIGITS(example->place.tokens),
               color ? "what is dim" : "what stands in [[ ]]");
  if (title.failed) text_refused(title.length);
  (void)putchar('\n');
  screen_say(stdout, STYLE_BOLD, mark, title.chars);
  hri_text_deinit(&title);
  for (uint32_t i = 0; i < example->stretch_count; i++) {
    const hr_data_stretch *s = &example->stretches[i];
    if (!s->counted) (void)fputs(color ? screen_style(stdout, STYLE_DIM) : "[[", stdout);
    print_plain(s->text, s->bytes);
    if (!s->counted) (void)fputs(color ? screen_style(stdout, STYLE_PLAIN) : "]]", stdout);
  }
  (void)printf("%s\n", example->cut ? " ..." : "");
}

/* ---- the report as JSON ---- */

static void write_place(json_writer *json, const char *key, const hr_data_place *place) {
  json_write_open_flat(json, key, '{');
  json_write_text(json, "file", place->file);
  json_write_count(json, "line", place->line);
  json_write_count(json, "tokens", place->tokens);
  json_write_close(json, '}');
}

static void write_packed(json_writer *json, const hr_data_report *r) {
  json_write_open(json, "packing", '{');
  for (uint32_t i = 0; i < HR_DATA_PACKINGS; i++) {
    const hr_data_packed *p = &r->packed[i];
    json_write_open_flat(json, hr_packing_name(p->packing), '{');
    json_write_count(json, "rows", p->rows);
    json_write_number(json, "fill", p->fill);
    json_write_count(json, "cut_documents", p->cut_documents);
    json_write_count(json, "dropped_documents", p->dropped_documents);
    json_write_close(json, '}');
  }
  json_write_close(json, '}');
}

static void write_report(json_writer *json, const hr_data_report *r, uint32_t sequence) {
  char name[16];
  json_write_text(json, "note", r->note);
  json_write_text(json, "tokenizer", r->tokenizer);
  json_write_text(json, "chat_template", r->chat);
  json_write_count(json, "file_bytes", r->file_bytes);
  json_write_number(json, "seconds", r->seconds);
  json_write_bool(json, "from_cache", r->from_cache);
  json_write_count(json, "documents", r->documents);
  json_write_count(json, "empty_documents", r->empty_documents);
  json_write_count(json, "tokens", r->tokens);
  json_write_count(json, "labels", r->labels);
  json_write_open_flat(json, "length_percentiles", '{');
  for (uint32_t i = 0; i < HR_DATA_PERCENTILES; i++) {
    (void)snprintf(name, sizeof name, "%u", r->percentiles[i]);
    json_write_count(json, name, r->percentile_tokens[i]);
  }
  json_write_close(json, '}');
  json_write_open(json, "longest", '[');
  for (uint32_t i = 0; i < r->longest_count; i++) write_place(json, NULL, &r->longest[i]);
  json_write_close(json, ']');
  json_write_count(json, "sequence", sequence);
  write_packed(json, r);
  json_write_count(json, "broken_rows", r->broken_rows);
  json_write_open(json, "broken", '[');
  for (uint32_t i = 0; i < r->broken_count; i++) json_write_text(json, NULL, r->broken[i]);
  json_write_close(json, ']');
}

static void write_example(json_writer *json, const hr_data_example *example) {
  json_write_open(json, NULL, '{');
  write_place(json, "place", &example->place);
  json_write_bool(json, "cut", example->cut);
  json_write_open(json, "stretches", '[');
  for (uint32_t i = 0; i < example->stretch_count; i++) {
    json_write_open_flat(json, NULL, '{');
    json_write_bool(json, "counted", example->stretches[i].counted);
    json_write_bytes(json, "text", example->stretches[i].text, example->stretches[i].bytes);
    json_write_close(json, '}');
  }
  json_write_close(json, ']');
  json_write_close(json, '}');
}

/* ---- the command ---- */

static void print_note(void *context, const char *note) {
  (void)context;
  screen_say(stderr, STYLE_PLAIN, "note:", note);
}

/* The first document, and others spread over the data. */
static hr_status show_examples(hr_data *data, uint64_t wanted, json_writer *json, hr_error *error) {
  uint64_t documents = hr_data_get(data)->documents, count = wanted < documents ? wanted : documents;
  for (uint64_t i = 0; i < count; i++) {
    hr_data_example example;
    uint64_t index = count > 1 ? (uint64_t)((double)(documents - 1) * (double)i / (double)(count - 1)) : 0;
    hr_status status = hr_data_example_make(data, index, EXAMPLE_TOKENS, &example, error);
    if (status != HR_OK) return status;
    if (json) write_example(json, &example);
    else print_example(&example, i + 1);
    hr_data_example_deinit(&example);
  }
  return HR_OK;
}

static hr_status show(const cli_config *config, hr_data *data, uint32_t sequence, hr_error *error) {
  const hr_data_report *report = hr_data_get(data);
  uint64_t wanted = config->own.examples;
  json_writer json;
  hr_status status;
  if (!config->own.json) {
    print_report(report, sequence);
    status = show_examples(data, wanted, NULL, error);
  } else {
    json_write_begin(&json, stdout);
    write_report(&json, report, sequence);
    json_write_open(&json, "examples", '[');
    status = show_examples(data, wanted, &json, error);
    json_write_close(&json, ']');
    json_write_end(&json);
  }
  if (status != HR_OK || report->broken_rows == 0 || config->run.data.skip_bad) return status;
  hri_fail(error, HR_ERROR_INPUT, "%s broken row%s", DIGITS(report->broken_rows), report->broken_rows == 1 ? "" : "s");
  return hri_hint(error, HR_ERROR_INPUT, "correct them, or let --skip-bad pass over them");
}

static hr_status open_model(const cli_config *config, hr_model *model, uint32_t *sequence, hr_error *error) {
  const char *source = config->own.model;
  hr_status status;
  if (!source || !source[0]) {
    hri_fail(error, HR_ERROR_USAGE, "--model is missing");
    return hri_hint(error, HR_ERROR_USAGE,
                    "--model MODEL: its tokenizer and its chat template make tokens of the data");
  }
  status = hr_model_open(source, model, error);
  if (status != HR_OK) return status;
  *sequence = model->max_positions < DEFAULT_SEQUENCE ? model->max_positions : DEFAULT_SEQUENCE;
  if (config_chosen(config, &config->job.sequence_length)) *sequence = config->job.sequence_length;
  return HR_OK;
}

hr_status command_data(cli_config *config, hr_error *error) {
  hr_data_options options = config->run.data;
  hr_model *model = text_alloc(sizeof *model);
  hr_data *data = NULL;
  char *separator = NULL;
  uint32_t sequence = 0;
  hr_status status = HR_OK;
  options.on_note = print_note;
  if (config->run.data_path_count == 0) {
    hri_fail(error, HR_ERROR_USAGE, "no FILE is given");
    status = hri_hint(error, HR_ERROR_USAGE, "headroom data FILE... --model MODEL");
  }
  if (status == HR_OK) status = open_model(config, model, &sequence, error);
  if (status == HR_OK) status = data_options(&separator, &options, error);
  if (status == HR_OK)
    status = hr_data_open(model, config->run.data_paths, config->run.data_path_count, &options, sequence, &data, error);
  if (status == HR_OK) status = show(config, data, sequence, error);
  hr_data_close(data);
  free(separator);
  free(model);
  return status;
}
