/* Data through real tokenizers (tests/tokenizer): texts tokenized in parts have the tokens of the whole; beginning and
 * end of documents; prompts and completions; special tokens of conversations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/dataset.h"
#include "data/encode.h"
#include "support/files.h"

enum { LONG = 400000 };

static hr_tokenizer *open_tokenizer(const char *name) {
  char path[512];
  hr_tokenizer *tokenizer = NULL;
  hr_error error = {0};
  (void)snprintf(path, sizeof path, HR_TEST_DATA "/tokenizer/%s.json", name);
  if (hr_tokenizer_open(path, &tokenizer, &error) != HR_OK) fail_msg("%s: %s", name, error.message);
  return tokenizer;
}

static hri_dataset_options options_for(const char *const *path, const hr_tokenizer *tokenizer, int32_t eos) {
  hri_dataset_options options = {.paths = path,
                                 .path_count = 1,
                                 .sequence = 2 * LONG,
                                 .vocabulary = 300000,
                                 .eos_token = eos,
                                 .packing = HR_PACKING_OFF,
                                 .cache_directory = directory,
                                 .tokenizer = tokenizer,
                                 .chat = "chatml"};
  return options;
}

/* A row of a data set in memory. */
typedef struct row {
  int32_t *ids, *targets, *positions, *doc_start;
  uint64_t length;
} row;

static row read_row(const hri_dataset_options *options) {
  hri_dataset *dataset = NULL;
  hr_error error = {0};
  row r;
  if (hri_dataset_open(options, &dataset, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(hri_dataset_row_count(dataset), 1);
  r.ids = malloc(4 * (size_t)options->sequence * sizeof *r.ids);
  assert_non_null(r.ids);
  r.targets = r.ids + options->sequence;
  r.positions = r.targets + options->sequence;
  r.doc_start = r.positions + options->sequence;
  assert_int_equal(hri_dataset_row(dataset, 0, r.ids, r.targets, r.positions, r.doc_start, NULL, &error), HR_OK);
  assert_int_equal(hri_dataset_row_length(dataset, 0, &r.length, &error), HR_OK);
  hri_dataset_destroy(dataset);
  return r;
}

/* Words, numbers, punctuation, accents, Chinese, Cyrillic, emoji, runs of blanks and line feeds, from a fixed
 * recipe. */
static char *long_text(size_t *bytes) {
  static const char *const words[] = {"the",
                                      " quick",
                                      " brown",
                                      "\n",
                                      " fox",
                                      "\n\n",
                                      " 12345",
                                      ".",
                                      "!\n",
                                      "  ",
                                      " \n ",
                                      "it's",
                                      " \xC3\xA9t\xC3\xA9",
                                      "\xE4\xB8\xAD\xE6\x96\x87",
                                      "\n",
                                      "\xE3\x80\x82\n",
                                      " \xD1\x82\xD0\xB5\xD0\xBA\xD1\x81\xD1\x82\n",
                                      "\xF0\x9F\x98\x80",
                                      "\t",
                                      "e\xCC\x81\n",
                                      "a\r\n",
                                      "?"};
  char *text = malloc(LONG + 64);
  uint64_t seed = 5;
  assert_non_null(text);
  for (*bytes = 0; *bytes < LONG;) {
    const char *word = words[(seed = seed * 6364136223846793005u + 1442695040888963407u) >> 33 & 15];
    if (seed >> 60 == 3) word = words[16 + (seed >> 40) % 6];
    memcpy(text + *bytes, word, strlen(word));
    *bytes += strlen(word);
  }
  return text;
}

static const char *const names[] = {"gpt2",  "llama3",  "qwen2",  "smollm", "llama2",
                                    "gemma", "mistral", "falcon", "o200k",  "metaspace"};
enum { NAMES = sizeof names / sizeof *names };

static void check_whole(const hr_tokenizer *tokenizer, const char *name, const char *text, size_t bytes, int32_t eos,
                        const row *r) {
  hr_tokens whole = {0};
  hr_error error = {0};
  uint64_t count;
  if (hr_tokenizer_encode(tokenizer, text, bytes, HR_ENCODE_SPECIAL, &whole, &error) != HR_OK)
    fail_msg("%s", error.message);
  count = whole.count;
  if (hr_tokenizer_named(tokenizer, HR_TOKEN_EOS) >= 0) eos = hr_tokenizer_named(tokenizer, HR_TOKEN_EOS);
  if (eos >= 0 && whole.ids[count - 1] != eos) {
    assert_int_equal(r->ids[count], eos);
    count++;
  }
  if (r->length != count)
    fail_msg("%s: %llu tokens, the whole has %llu", name, (unsigned long long)r->length, (unsigned long long)count);
  for (uint64_t i = 0; i < whole.count; i++)
    if (r->ids[i] != whole.ids[i])
      fail_msg("%s: token %llu is %d, not %d", name, (unsigned long long)i, r->ids[i], whole.ids[i]);
  for (uint64_t i = 0; i + 1 < count; i++) assert_int_equal(r->targets[i], r->ids[i + 1]);
  hr_tokens_deinit(&whole);
}

/* The byte-level ones are cut about every 64 KiB, and that must not show. */
static void parts_have_the_tokens_of_the_whole(void **state) {
  size_t bytes;
  char *text = long_text(&bytes);
  const char *path = write_file("long.txt", text, bytes);
  uint32_t cut = 0;
  (void)state;
  for (int i = 0; i < NAMES; i++) {
    hr_tokenizer *tokenizer = open_tokenizer(names[i]);
    hri_dataset_options options = options_for(&path, tokenizer, 3);
    hri_encoder encoder;
    row r = read_row(&options);
    check_whole(tokenizer, names[i], text, bytes, 3, &r);
    assert_int_equal(hri_encoder_init(&encoder, tokenizer, 300000, 3, NULL), HR_OK);
    cut += encoder.cuts;
    free(r.ids);
    hr_tokenizer_close(tokenizer);
  }
  assert_true(cut >= 5 && cut < NAMES); /* both kinds are here */
  free(text);
}

static void text_fields_have_the_tokens_of_the_whole(void **state) {
  size_t bytes;
  char *text = long_text(&bytes);
  hri_text json = {0};
  hri_json_writer writer = hri_json_writer_init(&json, 0);
  const char *path;
  (void)state;
  hri_json_begin_object(&writer);
  hri_json_key(&writer, "text");
  hri_json_put_chars(&writer, text, bytes);
  hri_json_end_object(&writer);
  path = write_file("long.jsonl", hri_text_get(&json), json.length);
  for (int i = 0; i < NAMES; i++) {
    hr_tokenizer *tokenizer = open_tokenizer(names[i]);
    hri_dataset_options options = options_for(&path, tokenizer, 3);
    row r = read_row(&options);
    check_whole(tokenizer, names[i], text, bytes, 3, &r);
    free(r.ids);
    hr_tokenizer_close(tokenizer);
  }
  hri_text_deinit(&json);
  free(text);
}

/* Without a splitting rule merges may go across line ends: such a tokenizer is given whole documents. */
static void tokens_across_line_ends_are_not_cut(void **state) {
  static const char json[] =
      "{\"added_tokens\": [], \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"\\n\": 2, \"a\\n\": 3}, \"merges\": [[\"a\", \"\\n\"]]}}";
  enum { LINES = 60000 };
  char *text = malloc(LINES * 4);
  hr_tokenizer *tokenizer = NULL;
  hri_dataset_options options;
  const char *path;
  row r;
  (void)state;
  assert_non_null(text);
  for (size_t i = 0; i < LINES; i++) memcpy(text + i * 4, "bba\n", 4);
  assert_int_equal(hr_tokenizer_open(write_file("lines.json", json, sizeof json - 1), &tokenizer, NULL), HR_OK);
  path = write_file("lines.txt", text, LINES * 4);
  options = options_for(&path, tokenizer, -1);
  r = read_row(&options);
  check_whole(tokenizer, "lines", text, LINES * 4, -1, &r);
  assert_int_equal(r.length, LINES * 3);
  free(r.ids);
  free(text);
  hr_tokenizer_close(tokenizer);
}

/* What the post-processor puts in front stands in front of the prompt; labels count from the first token on that the
 * prompt alone does not have. */
static void check_completion(const char *name, const char *prompt, const char *completion, bool splits) {
  hr_tokenizer *tokenizer = open_tokenizer(name);
  char content[200], text[200];
  const char *path;
  hri_dataset_options options;
  hr_tokens whole = {0}, alone = {0};
  uint64_t same = 0, before = 0;
  row r;
  (void)snprintf(content, sizeof content, "{\"prompt\": \"%s\", \"completion\": \"%s\"}", prompt, completion);
  (void)snprintf(text, sizeof text, "%s%s", prompt, completion);
  path = write_file("p.jsonl", content, strlen(content));
  options = options_for(&path, tokenizer, 3);
  r = read_row(&options);
  assert_int_equal(hr_tokenizer_encode(tokenizer, text, strlen(text), 0, &whole, NULL), HR_OK);
  assert_int_equal(hr_tokenizer_encode(tokenizer, prompt, strlen(prompt), 0, &alone, NULL), HR_OK);
  while (same < alone.count && same < whole.count && whole.ids[same] == alone.ids[same]) same++;
  assert_int_equal(same < alone.count, splits);
  while (r.ids[before] != whole.ids[0]) before++; /* the tokens in front */
  assert_true(before <= 2 && r.length >= before + whole.count);
  for (uint64_t k = 0; k < whole.count; k++) {
    assert_int_equal(r.ids[before + k], whole.ids[k]);
    if (before + k > 0) assert_int_equal(r.targets[before + k - 1], k < same ? -100 : whole.ids[k]);
  }
  for (uint64_t k = before + whole.count; k < r.length; k++)
    assert_int_equal(r.targets[k - 1], r.ids[k]); /* the end counts */
  hr_tokens_deinit(&whole);
  hr_tokens_deinit(&alone);
  free(r.ids);
  hr_tokenizer_close(tokenizer);
}

static void completions_begin_behind_the_prompt(void **state) {
  (void)state;
  for (int i = 0; i < NAMES; i++) check_completion(names[i], "What is it?", " A fox.", false);
  check_completion("smollm", "What is it? ", "A fox.", true);
  check_completion("llama3", "What is it? ", "A fox.", true);
}

/* Special tokens in what the template writes are tokens, nothing is added in front or behind, and blanks behind the one
 * that ends an answer do not count, whichever way the answer was found. */
static void conversations_are_what_the_template_writes(void **state) {
  static const char content[] =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"Ho\"}]}";
  static const char text[] = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n";
  static const char jinja[] =
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  const char *path = write_file("m.jsonl", content, strlen(content)),
             *chats[] = {"chatml", write_file("chatml.jinja", jinja, strlen(jinja))};
  hr_tokenizer *tokenizer = open_tokenizer("smollm");
  int32_t end = hr_tokenizer_find(tokenizer, "<|im_end|>");
  hr_tokens whole = {0};
  (void)state;
  assert_true(end >= 0);
  assert_int_equal(hr_tokenizer_encode(tokenizer, text, strlen(text), HR_ENCODE_OFFSETS, &whole, NULL), HR_OK);
  for (int c = 0; c < 2; c++) {
    hri_dataset_options options = options_for(&path, tokenizer, -1);
    uint64_t answer = (uint64_t)(strstr(text, "Ho") - text);
    row r;
    options.chat = chats[c];
    r = read_row(&options);
    assert_int_equal(r.length, whole.count);
    for (uint64_t k = 0; k < whole.count; k++) {
      bool counts = whole.begin[k] >= answer && whole.begin[k] < strlen(text) - 1;
      assert_int_equal(r.ids[k], whole.ids[k]);
      if (k > 0) assert_int_equal(r.targets[k - 1], counts ? whole.ids[k] : -100);
    }
    assert_int_equal(r.ids[r.length - 2], end);
    free(r.ids);
  }
  hr_tokens_deinit(&whole);
  hr_tokenizer_close(tokenizer);
}

static void a_tokenizer_of_another_model_is_refused(void **state) {
  const char *path = write_file("v.txt", "some words", 10);
  hr_tokenizer *tokenizer = open_tokenizer("gpt2");
  hri_dataset_options options = options_for(&path, tokenizer, -1);
  hri_dataset *dataset = NULL;
  hr_error error = {0};
  (void)state;
  options.vocabulary = 3;
  assert_int_equal(hri_dataset_open(&options, &dataset, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "and the model's vocabulary has 3"));
  assert_non_null(strstr(error.hint, "tokenizer that belongs to the model"));
  hr_tokenizer_close(tokenizer);
}

#define TEST(name) cmocka_unit_test(name)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(parts_have_the_tokens_of_the_whole),         TEST(text_fields_have_the_tokens_of_the_whole),
      TEST(tokens_across_line_ends_are_not_cut),        TEST(completions_begin_behind_the_prompt),
      TEST(conversations_are_what_the_template_writes), TEST(a_tokenizer_of_another_model_is_refused),
  };
  return cmocka_run_group_tests_name("data_words", tests, make_directory, remove_directory);
}
