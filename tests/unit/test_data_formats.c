/* The formats of data (src/data): what each row becomes, byte for byte and label for label, with bytes as tokens and
 * the preset chatml; what a file is taken for; broken rows, each with the reason it is given; token bins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/source.h"
#include "support/datasets.h"
#include "support/files.h"

enum { ROW = 512, END = 300 };

static hri_dataset_options options_for(const char *const *path) {
  hri_dataset_options options = {.paths = path,
                                 .path_count = 1,
                                 .sequence = ROW,
                                 .vocabulary = 1000,
                                 .eos_token = END,
                                 .packing = HR_PACKING_OFF,
                                 .cache_directory = directory,
                                 .chat = "chatml"};
  return options;
}

/* A row as text: what counts stands in brackets, the end token is "$", other ids from 256 on are "<id>". */
static const char *row_text(hri_dataset *dataset, uint64_t row) {
  static char text[4096];
  int32_t ids[ROW], targets[ROW], positions[ROW], doc_start[ROW];
  uint64_t counted, seen = 0;
  uint64_t length;
  size_t used = 0;
  bool inside = false;
  hr_error error = {0};
  if (hri_dataset_row(dataset, row, ids, targets, positions, doc_start, &counted, &error) != HR_OK)
    fail_msg("%s", error.message);
  assert_int_equal(hri_dataset_row_length(dataset, row, &length, &error), HR_OK);
  for (uint32_t t = 0; t < length; t++) {
    bool counts = t > 0 && targets[t - 1] != -100;
    if (counts) assert_int_equal(targets[t - 1], ids[t]);
    seen += counts;
    if (counts != inside) text[used++] = counts ? '[' : ']';
    inside = counts;
    if (ids[t] < 256) text[used++] = (char)ids[t];
    else if (ids[t] == END) text[used++] = '$';
    else used += (size_t)snprintf(text + used, sizeof text - used, "<%d>", ids[t]);
  }
  if (inside) text[used++] = ']';
  text[used] = 0;
  assert_int_equal(seen, counted);
  for (uint32_t t = length; t < ROW; t++) assert_int_equal(targets[t], -100);
  return text;
}

/* All rows of a text in a file, one per line. */
static const char *rows_of(const hri_dataset_options *options) {
  static char text[8192];
  hri_dataset *dataset = open_ok(options);
  text[0] = 0;
  for (uint64_t row = 0; row < hri_dataset_row_count(dataset); row++)
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", row ? "|" : "", row_text(dataset, row));
  hri_dataset_destroy(dataset);
  return text;
}

static void check(const char *name, const char *content, hr_loss_scope loss, const char *rows) {
  const char *path = write_text(name, content);
  hri_dataset_options options = options_for(&path);
  options.loss = loss;
  assert_string_equal(rows_of(&options), rows);
}

/* ---- rows of JSON ---- */

static void texts_end_with_the_end_token(void **state) {
  (void)state;
  check("t.jsonl", "{\"text\": \"ab\\u00e9\\n\"}\n\n{\"id\": 7, \"text\": \"c\"}\n{\"text\": \"\"}\n",
        HR_LOSS_SCOPE_AUTO, "a[b\xC3\xA9\n$]|c[$]");
  check("t.json", "[{\"text\": \"ab\"},\n {\"text\":\n \"cd\"}\n]\n", HR_LOSS_SCOPE_COMPLETION, "a[b$]|c[d$]");
  check("t.ndjson", "\xEF\xBB\xBF{\"text\": \"ab\"}\r\n", HR_LOSS_SCOPE_AUTO, "a[b$]");
}

static void completions_count(void **state) {
  const char *row = "{\"prompt\": \"Q: 1+1? \", \"completion\": \"2\"}\n{\"completion\": \"no\", \"prompt\": \"\"}";
  (void)state;
  check("p.jsonl", row, HR_LOSS_SCOPE_AUTO, "Q: 1+1? [2$]|n[o$]");
  check("p.jsonl", row, HR_LOSS_SCOPE_ASSISTANT, "Q: 1+1? [2$]|n[o$]");
  check("p.jsonl", row, HR_LOSS_SCOPE_ALL, "Q[: 1+1? 2$]|n[o$]");
}

static void completions_may_be_messages(void **state) {
  const char *row =
      "{\"prompt\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"q\"}],"
      " \"completion\": [{\"role\": \"assistant\", \"content\": \"a\"}]}";
  (void)state;
  check("pm.jsonl", row, HR_LOSS_SCOPE_AUTO,
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[a<|im_end|>\n]");
}

#define USER(text) "<|im_start|>user\n" text "<|im_end|>\n"
#define ANSWER(text) "<|im_start|>assistant\n" text

static const char conversation[] =
    "{\"source\": \"x\", \"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"},"
    " {\"content\": \"r\", \"role\": \"user\"}, {\"role\": \"assistant\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": \"!\"}]}";

static void answers_of_the_assistant_count(void **state) {
  (void)state; /* the preset marks them itself, and leaves out the line feed behind them */
  check("m.jsonl", conversation, HR_LOSS_SCOPE_AUTO,
        USER("q") ANSWER("[a<|im_end|>]\n") USER("r") ANSWER("[b<|im_end|>]\n") USER("!"));
  check("m.jsonl", conversation, HR_LOSS_SCOPE_COMPLETION,
        USER("q") ANSWER("a<|im_end|>\n") USER("r") ANSWER("[b<|im_end|>\n]") USER("!"));
  check("m.jsonl", conversation, HR_LOSS_SCOPE_ALL,
        "<[|im_start|>user\nq<|im_end|>\n" ANSWER("a<|im_end|>\n") USER("r") ANSWER("b<|im_end|>\n") USER("!") "]");
}

/* Without marks: what a turn adds to the text is the answer. */
static void answers_are_found_turn_by_turn(void **state) {
  const char *path = write_text("turns.jsonl", conversation);
  hri_dataset_options options = options_for(&path);
  (void)state;
  options.chat =
      write_text("turns.jinja", "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '</>' }}{% endfor %}"
                                "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}");
  assert_string_equal(rows_of(&options), "<user>q</><assistant>[a</>]<user>r</><assistant>[b</>]<user>!</>");
  options.loss = HR_LOSS_SCOPE_COMPLETION;
  assert_string_equal(rows_of(&options), "<user>q</><assistant>a</><user>r</><assistant>[b</>]<user>!</>");
}

/* An answer may say itself that nobody is to learn from it: with marks of the template, without, and in ShareGPT's names. */
static void answers_of_weight_0_do_not_count(void **state) {
  static const char silent[] =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0},"
      " {\"role\": \"user\", \"content\": \"r\"}, {\"role\": \"assistant\", \"content\": \"b\", \"weight\": 1},"
      " {\"role\": \"user\", \"content\": \"s\"}, {\"train\": false, \"role\": \"assistant\", \"content\": \"c\"}]}";
  hri_dataset_options options;
  hri_dataset *dataset;
  const char *path;
  (void)state;
  check("w.jsonl", silent, HR_LOSS_SCOPE_AUTO,
        USER("q") ANSWER("a<|im_end|>\n") USER("r") ANSWER("[b<|im_end|>]\n") USER("s") ANSWER("c<|im_end|>\n"));
  check("w.jsonl", silent, HR_LOSS_SCOPE_COMPLETION,
        USER("q") ANSWER("a<|im_end|>\n") USER("r") ANSWER("[b<|im_end|>\n]") USER("s") ANSWER("c<|im_end|>\n"));
  check("w.jsonl", silent, HR_LOSS_SCOPE_ALL,
        "<[|im_start|>user\nq<|im_end|>\n" ANSWER("a<|im_end|>\n") USER("r") ANSWER("b<|im_end|>\n") USER("s")
            ANSWER("c<|im_end|>\n") "]");
  path = write_text("silent.jsonl", silent);
  options = options_for(&path);
  options.chat =
      write_text("turns.jinja", "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '</>' }}{% endfor %}"
                                "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}");
  assert_string_equal(rows_of(&options),
                      "<user>q</><assistant>a</><user>r</><assistant>[b</>]<user>s</><assistant>c</>");
  dataset = open_ok(&options);
  assert_non_null(strstr(hri_dataset_note(dataset), "2 answers of weight 0 do not count"));
  hri_dataset_destroy(dataset);
  path =
      write_text("silent.jsonl",
                 "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", \"value\": \"a\","
                 " \"weight\": 0.0}, {\"from\": \"human\", \"value\": \"r\"},"
                 " {\"from\": \"gpt\", \"value\": \"b\", \"weight\": null}]}");
  assert_string_equal(rows_of(&options), "<user>q</><assistant>a</><user>r</><assistant>[b</>]");
  path = write_text("silent.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"},"
                                    " {\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0}]}");
  open_fails(&options, "silent.jsonl:1: no label counts: all answers are of weight 0", "leave the row out");
  /* other weights count as 1, which is said; of a prompt they say nothing, and answers of a prompt stay one */
  path = write_text("silent.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"q\", \"weight\": 2},"
                                    " {\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0.5},"
                                    " {\"role\": \"user\", \"content\": \"r\"},"
                                    " {\"role\": \"assistant\", \"content\": \"b\", \"weight\": false}]}");
  assert_string_equal(rows_of(&options), "<user>q</><assistant>[a</>]<user>r</><assistant>b</>");
  dataset = open_ok(&options);
  assert_non_null(strstr(hri_dataset_note(dataset), "weights of answers other than 0 count as 1"));
  hri_dataset_destroy(dataset);
  path = write_text("silent.jsonl", "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\","
                                    " \"content\": \"a\", \"weight\": 0}, {\"role\": \"user\", \"content\": \"r\"}],"
                                    " \"completion\": [{\"role\": \"assistant\", \"content\": \"b\"},"
                                    " {\"role\": \"user\", \"content\": \"s\"},"
                                    " {\"role\": \"assistant\", \"content\": \"c\"}]}");
  assert_string_equal(rows_of(&options),
                      "<user>q</><assistant>a</><user>r</><assistant>[b</><user>s</><assistant>c</>]");
  path =
      write_text("silent.jsonl", "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\","
                                 " \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"r\"}],"
                                 " \"completion\": [{\"role\": \"assistant\", \"content\": \"b\", \"train\": false}]}");
  open_fails(&options, "silent.jsonl:1: no label counts: all answers are of weight 0", "leave the row out");
}

/* A template that writes answers differently once others follow has no such turns: refused, unless only the last one
 * counts. */
static void templates_that_change_their_mind_are_refused(void **state) {
  const char *path = write_text(
      "turns.jsonl",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"},"
      " {\"role\": \"user\", \"content\": \"r\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}");
  hri_dataset_options options = options_for(&path);
  (void)state;
  options.chat = write_text(
      "unstable.jinja",
      "{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.role == 'user' or loop.last %}{{ m.content }}{% endif %}"
      "{{ '</>' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}");
  open_fails(&options, "turns.jsonl:1: the chat template writes the first 2 messages differently when others follow",
             "--loss completion the last answer; or give a template with {% generation %}");
  options.loss = HR_LOSS_SCOPE_COMPLETION;
  assert_string_equal(rows_of(&options), "<user>q</><assistant></><user>r</><assistant>[b</>]");
}

/* Where the first turn's text begins shows only in a template with marks. */
static void a_conversation_may_begin_with_the_assistant(void **state) {
  const char *path = write_text(
      "first.jsonl",
      "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"q\"}]}");
  hri_dataset_options options = options_for(&path);
  (void)state;
  check("first.jsonl",
        "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"q\"}]}",
        HR_LOSS_SCOPE_AUTO, ANSWER("[a<|im_end|>]\n") USER("q"));
  options.chat = write_text("first.jinja", "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}{% endfor %}");
  open_fails(&options, "first.jsonl:1: the conversation begins with the assistant", "begin it with a user's turn");
  options.loss = HR_LOSS_SCOPE_ALL;
  assert_string_equal(rows_of(&options), "<[assistant>a<user>q]");
}

/* Two renderings for each answer are quadratic: 7,000 answers would take minutes, 60,000 hours. */
static void a_search_without_end_is_refused(void **state) {
  static const char pair[] = "{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"}";
  hri_text content = {0};
  const char *path;
  hri_dataset_options options;
  (void)state;
  hri_text_add(&content, "{\"messages\": [%s", pair);
  for (int i = 1; i < 7000; i++) hri_text_add(&content, ", %s", pair);
  hri_text_add(&content, "]}");
  path = write_text("turns.jsonl", hri_text_get(&content));
  options = options_for(&path);
  options.chat = write_text(
      "turns.jinja",
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
  open_fails(&options, "turns.jsonl:1: finding 7000 answers in a conversation of ",
             "divide it, or give a template with {% generation %}");
  hri_text_deinit(&content);
}

/* A list, or a string that holds one (as LLaMA-Factory's and many other files have it). */
static void tools_reach_the_template(void **state) {
  static const struct {
    const char *tools, *rows;
  } cases[] = {
      {"[{\"name\": \"f\"}, {\"name\": \"g\"}]", "f,g,a:[b]"},
      {"\"[{\\\"name\\\": \\\"f\\\"}]\"", "f,a:[b]"},
      {"\" [] \"", "a:[b]"},
      {"\"\"", "a:[b]"},
      {"\"null\"", "a:[b]"},
      {"null", "a:[b]"},
  };
  static const char jinja[] =
      "{% for t in tools or [] %}{{ t.name }},{% endfor %}{% for m in messages %}{{ m.content }}{% if m.role == 'user' %}:{% endif %}{% endfor %}";
  const char *path, *template = write_text("tools.jinja", jinja);
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char content[400];
    hri_dataset_options options;
    (void)snprintf(
        content, sizeof content,
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}], \"tools\": %s}",
        cases[i].tools);
    path = write_text("tools.jsonl", content);
    options = options_for(&path);
    options.chat = template;
    assert_string_equal(rows_of(&options), cases[i].rows);
  }
}

/* A template that never names tools writes none, and an empty answer where a call stood: the note says so. */
static void lost_tools_are_told(void **state) {
  static const char call[] = "{\"role\": \"assistant\", \"tool_calls\": [{\"name\": \"f\"}]}",
                    answer[] = "{\"role\": \"assistant\", \"content\": \"b\"}";
  static const struct {
    const char *chat, *message, *tools;
    bool lost;
  } cases[] = {{"chatml", call, "[]", true},
               {"chatml", answer, "[{\"name\": \"f\"}]", true},
               {"chatml", answer, "[]", false},
               {"knows.jinja", call, "[{\"name\": \"f\"}]", false}};
  const char *knows =
      write_text("knows.jinja",
                 "{% for t in tools or [] %}{{ t.name }}{% endfor %}{% for m in messages %}{% generation %}"
                 "{{ m.content or m.tool_calls[0].name }}{% endgeneration %}{% endfor %}");
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char content[400];
    const char *path;
    hri_dataset_options options;
    hri_dataset *dataset;
    (void)snprintf(content, sizeof content,
                   "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, %s], \"tools\": %s}", cases[i].message,
                   cases[i].tools);
    path = write_text("lost.jsonl", content);
    options = options_for(&path);
    options.chat = strcmp(cases[i].chat, "chatml") == 0 ? "chatml" : knows;
    dataset = open_ok(&options);
    assert_int_equal(strstr(hri_dataset_note(dataset), "tools or tool_calls of rows are lost") != NULL, cases[i].lost);
    hri_dataset_destroy(dataset);
  }
}

static void sharegpt_names_are_mapped(void **state) {
  (void)state;
  check(
      "s.jsonl",
      "{\"conversations\": [{\"from\": \"human\", \"value\": \"q \\\"1\\\"\"}, {\"from\": \"gpt\", \"value\": \"a\"}]}",
      HR_LOSS_SCOPE_AUTO, USER("q \"1\"") ANSWER("[a<|im_end|>]\n"));
  check(
      "s2.jsonl",
      "{\"conversations\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}",
      HR_LOSS_SCOPE_AUTO, USER("q") ANSWER("[a<|im_end|>]\n"));
}

/* A row of one question and its answer: what its `system` becomes in front of them, and what is said of it. */
static void check_system(const char *row, const char *becomes, bool twice, bool other) {
  char expected[400];
  const char *path = write_text("system.jsonl", row);
  const hri_dataset_options options = options_for(&path);
  hri_dataset *dataset;
  (void)snprintf(expected, sizeof expected, "%s" USER("q") ANSWER("[a<|im_end|>]\n"), becomes);
  assert_string_equal(rows_of(&options), expected);
  dataset = open_ok(&options);
  assert_int_equal(strstr(hri_dataset_note(dataset), "system of rows is not used") != NULL, twice);
  assert_int_equal(strstr(hri_dataset_note(dataset), "; not used: system") != NULL, other);
  hri_dataset_destroy(dataset);
}

/* As axolotl and LLaMA-Factory have it: what stands beside messages is the first of them, unless they begin with their own. */
static void a_system_beside_messages_is_their_first(void **state) {
  static const char talk[] = "[{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", \"value\": \"a\"}]",
                    plain[] =
                        "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"}]",
                    own[] = "[{\"role\": \"system\", \"content\": \"own\"}, {\"role\": \"user\", \"content\": \"q\"}, "
                            "{\"role\": \"assistant\", \"content\": \"a\"}]",
                    developer[] =
                        "[{\"role\": \"developer\", \"content\": \"own\"}, {\"role\": \"user\", \"content\": \"q\"}, "
                        "{\"role\": \"assistant\", \"content\": \"a\"}]";
  static const struct {
    const char *field, *talk, *system, *rows;
    bool twice;
  } cases[] = {
      {"conversations", talk, "\"s \\\"1\\\"\"", "<|im_start|>system\ns \"1\"<|im_end|>\n", false},
      {"conversations", talk, "\"\"", "", false},
      {"conversations", talk, "null", "", false},
      {"conversations", own, "\"s\"", "<|im_start|>system\nown<|im_end|>\n", true},
      {"conversations", own, "\"\"", "<|im_start|>system\nown<|im_end|>\n", false},
      {"messages", plain, "\"s\"", "<|im_start|>system\ns<|im_end|>\n", false},
      {"messages", own, "\"s\"", "<|im_start|>system\nown<|im_end|>\n", true},
      {"messages", developer, "\"s\"", "<|im_start|>developer\nown<|im_end|>\n", true},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char row[400];
    (void)snprintf(row, sizeof row, "{\"system\": %s, \"%s\": %s}", cases[i].system, cases[i].field, cases[i].talk);
    check_system(row, cases[i].rows, cases[i].twice, false);
  }
}

/* Rows of trainers that know no such field: what is no string there is passed over, and said; of two values the last stands. */
static void a_system_that_is_no_string_is_not_used(void **state) {
  static const struct {
    const char *fields, *rows;
    bool other;
  } cases[] = {
      {"\"system\": [\"S\"]", "", true},
      {"\"system\": {\"role\": \"system\", \"content\": \"S\"}", "", true},
      {"\"system\": false", "", true},
      {"\"system\": 7", "", true},
      {"\"system\": \"S\", \"system\": \"T\"", "<|im_start|>system\nT<|im_end|>\n", false},
      {"\"system\": \"S\", \"system\": null", "", false},
      {"\"system\": \"S\", \"system\": []", "", true},
      {"\"system\": [], \"system\": \"S\"", "<|im_start|>system\nS<|im_end|>\n", true},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char row[400];
    (void)snprintf(
        row, sizeof row,
        "{%s, \"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}",
        cases[i].fields);
    check_system(row, cases[i].rows, false, cases[i].other);
  }
}

/* The hash of what files hold, as it was before anything but their bytes and formats was in it. */
static uint64_t plain_hash(const char *content, hr_data_format format) {
  hri_digest digest = {0};
  hri_digest_add(&digest, content, strlen(content));
  hri_digest_add_u64(&digest, strlen(content));
  hri_digest_add_u64(&digest, (uint64_t)(format << 8 | HRI_JSONL));
  return hri_digest_value(&digest);
}

/* Gemma 2's own template refuses system messages: the field is lost, which is said, and nothing else of the row is; what the
 * template refuses without it, too, is refused with both reasons. */
static void a_system_that_the_template_refuses_is_lost(void **state) {
#define SILENT "{\"from\": \"gpt\", \"value\": \"a\", \"weight\": 0}"
  static const char gemma[] =
      "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
      "{{ '<' + m.role + '>' + m.content + '</>' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}";
  static const struct {
    const char *row, *text;
  } cases[] = {
      {"{\"system\": \"s\", \"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}",
       "<user>q</><assistant>[a</>]"},
      {"{\"tools\": [], \"system\": \"s\", \"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, " SILENT
       ", {\"from\": \"human\", \"value\": \"r\"}, {\"from\": \"gpt\", \"value\": \"b\"}]}",
       "<user>q</><assistant>a</><user>r</><assistant>[b</>]"},
      {"{\"system\": \"s\", \"instruction\": \"q\", \"output\": \"a\"}", "<user>q</><assistant>[a</>]"},
  };
  const char *template = write_text("gemma.jinja", gemma), *path;
  hri_dataset_options options;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hri_dataset *dataset;
    path = write_text("system.jsonl", cases[i].row);
    options = options_for(&path);
    options.chat = template;
    assert_string_equal(rows_of(&options), cases[i].text);
    dataset = open_ok(&options);
    assert_non_null(strstr(hri_dataset_note(dataset), "; system of rows is lost: "));
    if (i == 0) assert_int_equal(hri_dataset_content_hash(dataset), plain_hash(cases[i].row, HR_DATA_MESSAGES));
    hri_dataset_destroy(dataset);
  }
  path =
      write_text("system.jsonl", "{\"system\": \"s\", \"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}");
  options = options_for(&path);
  options.chat = template;
  open_fails(&options, "system.jsonl:1: ", "the row's field 'system' is its first message; without it: ");
  open_fails(&options, "System role not supported", "roles must alternate");
#undef SILENT
}

/* Tokens of rows with a system beside their messages became others: a run that began before goes on with them only when told so,
 * and all other runs go on as they are. */
static void the_hash_of_content_knows_a_system_beside_messages(void **state) {
#define TALK "\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"}]"
#define OWN "\"messages\": [{\"role\": \"system\", \"content\": \"o\"}, {\"role\": \"assistant\", \"content\": \"a\"}]"
  static const struct {
    const char *content;
    hr_data_format format;
    bool others;
  } cases[] = {
      {"{" TALK "}\n", HR_DATA_MESSAGES, false},
      {"{\"system\": \"\", " TALK "}\n", HR_DATA_MESSAGES, false},
      {"{\"system\": \"s\", " OWN "}\n", HR_DATA_MESSAGES, false},
      {"{\"system\": \"s\", " TALK "}\n", HR_DATA_MESSAGES, true},
      {"{" TALK "}\n{\"system\": \"s\", " TALK "}\n", HR_DATA_MESSAGES, true},
      {"{\"system\": \"s\", \"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", \"value\": \"a\"}]}\n",
       HR_DATA_SHAREGPT, true},
      {"{\"system\": \"s\", \"instruction\": \"q\", \"output\": \"a\"}\n", HR_DATA_ALPACA, false},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *path = write_text("hash.jsonl", cases[i].content);
    const hri_dataset_options options = options_for(&path);
    hri_dataset *dataset = open_ok(&options);
    const uint64_t plain = plain_hash(cases[i].content, cases[i].format);
    if ((hri_dataset_content_hash(dataset) != plain) != cases[i].others)
      fail_msg("%s: the hash is %s", cases[i].content, cases[i].others ? "as before" : "another");
    hri_dataset_destroy(dataset);
  }
#undef TALK
#undef OWN
}

static void alpaca_rows_use_the_template_or_the_preamble(void **state) {
  const char *path = write_text(
      "a.jsonl",
      "{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\"}\n"
      "{\"instruction\": \"Hi\", \"input\": \"\", \"output\": \"Ho\", \"system\": \"S\", \"history\": [[\"q\", \"a\"]]}\n");
  hri_dataset_options options = options_for(&path);
  (void)state;
  assert_string_equal(rows_of(&options),
                      USER("Add.\n1 2") ANSWER("[3<|im_end|>\n]") "|<|im_start|>system\nS<|im_end|>\n" USER("q")
                          ANSWER("a<|im_end|>\n") USER("Hi") ANSWER("[Ho<|im_end|>\n]"));
  options.chat = NULL;
  open_fails(&options, "a.jsonl:2: field 'history' needs a chat template", "--chat-template");
  path = write_text(
      "a.json",
      "[{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\"}, {\"instruction\": \"Hi\", \"output\": \"Ho\"}]");
  assert_string_equal(
      rows_of(&options),
      "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that "
      "appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n[3$]|"
      "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
      "### Instruction:\nHi\n\n### Response:\n[Ho$]");
}

static void token_rows_may_stand_in_an_array(void **state) {
  (void)state;
  check(
      "i.json",
      "[{\"input_ids\": [97, 98,\n 99], \"labels\": [-100, -100, 99]},\n{\"x\": {\"y\": [1, \"]\"]}, \"input_ids\": [100, 101]}]",
      HR_LOSS_SCOPE_AUTO, "ab[c]|d[e]");
}

static void long_texts_are_cut_into_parts_without_a_trace(void **state) {
  enum { BYTES = 300000 };
  const char *path = in_directory("long.jsonl");
  FILE *file = fopen(path, "wb");
  hri_dataset_options options = options_for(&path);
  int32_t *memory = malloc(4 * (BYTES + 1) * sizeof *memory);
  hri_dataset *dataset;
  (void)state;
  assert_true(file && memory);
  fputs("{\"text\": \"", file);
  for (int i = 0; i < BYTES; i++) fputc('a' + i * 7 % 26, file);
  fputs("\"}\n", file);
  fclose(file);
  options.sequence = BYTES + 1;
  dataset = open_ok(&options);
  assert_int_equal(hri_dataset_token_count(dataset), BYTES + 1);
  assert_int_equal(hri_dataset_row(dataset, 0, memory, memory + BYTES + 1, memory + 2 * (BYTES + 1),
                                   memory + 3 * (BYTES + 1), NULL, NULL),
                   HR_OK);
  for (int i = 0; i < BYTES; i++) assert_int_equal(memory[i], 'a' + i * 7 % 26);
  assert_int_equal(memory[BYTES], END);
  hri_dataset_destroy(dataset);
  free(memory);
}

/* ---- plain text, bins, directories ---- */

static void lines_are_documents(void **state) {
  const char *path = write_text("lines.txt", "ab\r\n\n\r\ncd\nef");
  hri_dataset_options options = options_for(&path);
  (void)state;
  options.format = HR_DATA_LINES;
  assert_string_equal(rows_of(&options), "a[b$]|c[d$]|e[f$]");
  options.format = HR_DATA_TEXT;
  assert_string_equal(rows_of(&options), "a[b\r\n\n\r\ncd\nef$]");
}

static void put_u32(unsigned char *at, uint32_t value) {
  for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> 8 * i);
}

static void token_bins_are_read_in_place(void **state) {
  static const unsigned char bare[] = {'a', 0, 'b', 0, 0x2C, 1, 'c', 0, 0xE7, 3, 0x2C, 1};
  unsigned char file[1024 + 16] = {0};
  const char *path = write_file("n.bin", bare, sizeof bare);
  hri_dataset_options options = options_for(&path);
  (void)state;
  assert_string_equal(rows_of(&options), "a[b$]|c[<999>$]"); /* the end token stands behind documents */
  options.vocabulary = 999;
  open_fails(&options, "n.bin: token 4 is 999, outside the vocabulary [0, 999)", "tokenizer");
  options.vocabulary = 1000;
  (void)write_file("n.bin", bare, 5);
  open_fails(&options, "n.bin has 5 bytes, no whole number of uint16", "--format");
  put_u32(file, 20240801);
  put_u32(file + 4, 7);
  put_u32(file + 8, 4);
  put_u32(file + 1024, END);
  put_u32(file + 1028, 'a');
  put_u32(file + 1032, END);
  put_u32(file + 1036, 'b');
  path = write_file("l.bin", file, sizeof file);
  assert_string_equal(rows_of(&options), "$[a]|$[b]"); /* ... before documents */
  put_u32(file + 4, 1);
  path = write_file("l.bin", file, sizeof file);
  open_fails(&options, "l.bin: header field 'version' is 1", "version 7");
  put_u32(file, 20240520);
  put_u32(file + 8, 8);
  memmove(file + 1024,
          "\x2C\x01"
          "a\0\x2C\x01"
          "b\0"
          "c\0d\0e\0f\0",
          16);
  path = write_file("l.bin", file, sizeof file);
  assert_string_equal(rows_of(&options), "$[a]|$[bcdef]");
  path = write_file("l.bin", file, sizeof file - 2);
  open_fails(&options, "l.bin has 1038 bytes, and its header of 8 tokens asks for 1040", "anew");
  path = write_file("l.bin", file, 100);
  open_fails(&options, "l.bin has 100 bytes, less than the header", "complete");
}

static void directories_stand_for_their_files(void **state) {
  const char *path = in_directory("set");
  hri_dataset_options options = options_for(&path);
  hri_dataset *dataset;
  (void)state;
  assert_int_equal(mkdir(path, 0700), 0);
  (void)write_text("set/b.txt", "second");
  (void)write_text("set/a.JSONL", "{\"text\": \"first\"}");
  (void)write_text("set/c.json", "[{\"text\": \"third\"}]");
  (void)write_text("set/c.csv", "not,data");
  assert_string_equal(rows_of(&options), "f[irst$]|s[econd$]|t[hird$]");
  dataset = open_ok(&options);
  assert_non_null(strstr(hri_dataset_note(dataset), "set/a.JSONL: JSONL of text; "));
  assert_non_null(strstr(hri_dataset_note(dataset), "set/b.txt: text; "));
  assert_non_null(
      strstr(hri_dataset_note(dataset),
             "set/c.json: a JSON array of text, bytes as tokens, token 300 at the end of each document, 3 documents"));
  hri_dataset_destroy(dataset);
}

/* ---- detection ---- */

static void the_first_rows_say_what_a_file_is(void **state) {
  static const struct {
    const char *name, *content, *note;
  } cases[] = {
      {"d.jsonl", "{\"text\": \"a\"}", "d.jsonl: JSONL of text,"},
      {"d.jsonl", "{\"a\": {\"messages\": 1, \"b\": [\"}\"]}, \"text\": \"a\"}", "d.jsonl: JSONL of text,"},
      {"d.jsonl", "{broken\n{\"text\": \"a\"}", "d.jsonl: JSONL of text,"},
      {"d.JSON", " \n[\n{\"prompt\": \"a\", \"completion\": \"b\", \"text\": \"c\"}]",
       "d.JSON: a JSON array of prompts and completions,"},
      {"d.jsonl", "{\"text\": \"a\", \"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}",
       "JSONL of messages, bytes as tokens, chat template from preset chatml,"},
      {"d.jsonl", "{\"instruction\": \"a\", \"output\": \"b\"}", "JSONL of Alpaca instructions,"},
      {"d.txt", "{\"text\": \"a\"}", "a file read as text looks like JSONL"},
      {"d.jsonl", "{\"input_ids\": [1, 2], \"text\": \"a\"}",
       "JSONL of token ids, 1 document, 2 tokens -> 1 row of 512 (100 % padding); not used: text"},
      {"d.bin", "abcd", "d.bin: nanoGPT token ids (uint16),"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *path = write_text(cases[i].name, cases[i].content);
    hri_dataset_options options = options_for(&path);
    hri_dataset *dataset;
    options.vocabulary = 65536;
    options.skip_bad = true;
    if (strstr(cases[i].content, "assistant")) options.loss = HR_LOSS_SCOPE_ALL;
    dataset = open_ok(&options);
    if (!strstr(hri_dataset_note(dataset), cases[i].note)) fail_msg("%zu: %s", i, hri_dataset_note(dataset));
    hri_dataset_destroy(dataset);
  }
}

static void the_format_can_be_given(void **state) {
  const char *path = write_text("given.dat", "{\"prompt\": \"a\", \"text\": \"b\", \"completion\": \"c\"}");
  hri_dataset_options options = options_for(&path);
  (void)state;
  options.format = HR_DATA_PROMPT;
  assert_string_equal(rows_of(&options), "a[c$]");
  options.format = HR_DATA_TEXT_FIELD;
  assert_string_equal(rows_of(&options), "b[$]");
  options.format = HR_DATA_MESSAGES;
  open_fails(&options, "given.dat:1: the field 'messages' is missing", "--skip-bad");
  for (hr_data_format format = 0; format < HR_DATA_FORMAT_COUNT; format++)
    assert_true(strlen(hr_data_format_name(format)) > 3);
}

/* ---- broken rows ---- */

static const struct {
  const char *name, *row, *message, *hint;
} broken[] = {
    {"x-text.jsonl", "{\"txt\": \"a\"}", ":2: the field 'text' is missing", "--skip-bad"},
    {"x-text.jsonl", "{\"text\": null}", ":2: the field 'text' is missing", "--skip-bad"},
    {"x-text.jsonl", "{\"text\": 7}", ": line 2, column 10: field 'text' must be a string", ""},
    {"x-text.jsonl", "{\"text\": \"a\", \"text\": \"b\"}", "the field 'text' stands twice", ""},
    {"x-text.jsonl", "{\"text\": \"a\"", "expected ',' or '}', found the end of the text", ""},
    {"x-text.jsonl", "{\"text\": \"a\"} x", "expected the end of the text, found 'x'", ""},
    {"x-text.jsonl", "{\"text\": \"\xFF\"}", "the byte 0xff is not UTF-8", ""},
    {"x-text.jsonl", "{\"text\": \"\\ud800\"}", "a lone surrogate", ""},
    {"x-text.jsonl", "[\"a\"]", "expected an object", ""},
    {"x-text.jsonl", "hello", "expected an object", ""},
    {"x-prompt.jsonl", "{\"prompt\": \"a\"}", ":2: the field 'completion' is missing", "same fields"},
    {"x-prompt.jsonl", "{\"prompt\": \"a\", \"completion\": []}", ":2: field 'prompt' must be a list of messages",
     "same fields"},
    {"x-prompt.jsonl", "{\"prompt\": 1, \"completion\": \"b\"}",
     "field 'prompt' must be a string or a list of messages", ""},
    {"x-messages.jsonl", "{\"messages\": []}", ":2: field 'messages' is empty", "--skip-bad"},
    {"x-messages.jsonl", "{\"messages\": \"a\"}", "field 'messages' must be a list", ""},
    {"x-messages.jsonl", "{\"messages\": [{\"content\": \"a\"}]}", "a message has no role", ""},
    {"x-messages.jsonl", "{\"messages\": [7]}", "expected an object, found '7'", ""},
    {"x-messages.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", ":2: no label counts",
     "--loss all"},
    {"x-sharegpt.jsonl", "{\"conversations\": [{\"from\": \"me\", \"value\": \"a\"}]}", ":2: nobody knows who 'me' is",
     "gpt"},
    {"x-sharegpt.jsonl", "{\"conversations\": [{\"from\": \"m\\u001be\\u009b\", \"value\": \"a\"}]}",
     ":2: nobody knows who 'm?e\?\?' is", "gpt"},
    {"x-sharegpt.jsonl", "{\"conversations\": [{\"from\": \"humna\", \"value\": \"a\"}]}",
     ":2: nobody knows who 'humna' is", "did you mean 'human'?"},
    {"x-messages.jsonl", "{\"messages\": [{\"role\": \"asistant\", \"content\": \"a\"}]}",
     ":2: nobody knows the role 'asistant'", "did you mean 'assistant'?"},
    {"x-messages.jsonl", "{\"messages\": [{\"role\": \"Assistant\", \"content\": \"a\"}]}",
     ":2: nobody knows the role 'Assistant'", "did you mean 'assistant'?"},
    {"x-messages.jsonl", "{\"messages\": [{\"role\": \"gpt\", \"content\": \"a\"}]}", ":2: nobody knows the role 'gpt'",
     "did you mean 'assistant'?"},
    {"x-messages.jsonl", "{\"messages\": [{\"role\": \"poet\", \"content\": \"a\"}]}",
     ":2: nobody knows the role 'poet'", "known are user, assistant, system, tool"},
    {"x-messages.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": \"[{]\"}",
     ":2: the string of 'tools': line 1, column 3", ""},
    {"x-messages.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": \"7\"}",
     ":2: field 'tools' must be a list", "as JSON"},
    {"x-sharegpt.jsonl", "{\"conversations\": [{\"from\": \"gpt\"}]}", "a message has no value", ""},
    {"x-alpaca.jsonl", "{\"instruction\": \"a\", \"output\": \"b\", \"system\": [\"b\"]}",
     "field 'system' must be a string", ""},
    {"x-alpaca.jsonl", "{\"instruction\": \"a\"}", ":2: the field 'output' is missing", ""},
    {"x-alpaca.jsonl", "{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"a\"]]}", "history must hold pairs",
     ""},
    {"x-ids.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1]}", ":2: field 'labels' has 1 values", ""},
    {"x-ids.jsonl", "{\"labels\": [1, 2, 3, 4, 5, 6], \"input_ids\": [1, 5000]}",
     ":2: field 'input_ids': value 5000 at index 1", ""},
    {"x-ids.jsonl", "{\"input_ids\": [1, 2], \"seq_lengths\": [1]", "expected ',' or '}'", ""},
};

static const char *good_row(const char *name) {
  if (strstr(name, "text")) return "{\"text\": \"ok\"}";
  if (strstr(name, "prompt")) return "{\"prompt\": \"o\", \"completion\": \"k\"}";
  if (strstr(name, "messages"))
    return "{\"messages\": [{\"role\": \"user\", \"content\": \"o\"}, {\"role\": \"assistant\", \"content\": \"k\"}]}";
  if (strstr(name, "sharegpt"))
    return "{\"conversations\": [{\"from\": \"human\", \"value\": \"o\"}, {\"from\": \"gpt\", \"value\": \"k\"}]}";
  if (strstr(name, "alpaca")) return "{\"instruction\": \"o\", \"output\": \"k\"}";
  return "{\"input_ids\": [111, 107], \"labels\": [-100, 107]}";
}

/* Each is refused by name between two good rows; with skip_bad the good rows are as if they were alone. */
static void broken_rows_are_named_and_skipped(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    const char *name = broken[i].name, *good = good_row(name), *path;
    char content[1024], expected[4096];
    hri_dataset_options options;
    hri_dataset *dataset;
    (void)snprintf(content, sizeof content, "%s\n%s\n%s\n%s\n", good, broken[i].row, good, broken[i].row);
    path = write_text(name, content);
    options = options_for(&path);
    open_fails(&options, broken[i].message, broken[i].hint);
    options.skip_bad = true;
    dataset = open_ok(&options);
    assert_int_equal(hri_dataset_row_count(dataset), 2);
    assert_int_equal(hri_dataset_broken_count(dataset), 2);
    (void)snprintf(expected, sizeof expected, "%s", row_text(dataset, 0));
    assert_string_equal(row_text(dataset, 1), expected);
    if (!strstr(hri_dataset_note(dataset), "; 2 broken rows passed over: ") ||
        !strstr(hri_dataset_note(dataset), broken[i].message))
      fail_msg("%s", hri_dataset_note(dataset));
    hri_dataset_destroy(dataset);
    (void)snprintf(content, sizeof content, "%s\n", good);
    path = write_text(name, content);
    assert_string_equal(rows_of(&options), expected);
  }
}

static void a_file_of_broken_rows_is_refused(void **state) {
  const char *path = write_text("all.jsonl", "{\"text\": 1}\n{\"text\": 2}\n");
  const char *both[2] = {write_text("good.jsonl", "{\"text\": \"a\"}\n"), path};
  hri_dataset_options options = options_for(&path);
  (void)state;
  options.skip_bad = true;
  open_fails(&options, "all.jsonl: all 2 rows are broken", "the first: ");
  open_fails(&options, "all.jsonl: all 2 rows are broken",
             "all.jsonl: line 1, column 10: field 'text' must be a string");
  options.paths = both; /* however good the others are */
  options.path_count = 2;
  open_fails(&options, "all.jsonl: all 2 rows are broken", "all.jsonl: line 1, column 10");
  both[1] = write_text("ids.json", "[{\"input_ids\": [-1]}]");
  open_fails(&options, "ids.json: its only row is broken", "value -1");
  both[1] = write_text("empty.jsonl", "{\"text\": \"\"}\n{\"text\": 2}\n"); /* not all: one row is just empty */
  assert_string_equal(rows_of(&options), "a[$]");
}

/* What would be text without a word of warning, and is certainly none, or none in UTF-8. */
static void foreign_files_are_refused(void **state) {
  static const char le[] = "\xFF\xFEh\0i\0", be[] = "\xFE\xFF\0h\0i", utf32[] = "\xFF\xFE\0\0h\0\0\0";
  char wide[64], small[64];
  static const struct {
    const char *name, *bytes;
    size_t count;
    const char *message, *hint;
  } cases[] = {
      {"a.txt", le, sizeof le - 1, "a.txt is text in UTF-16; data is read as UTF-8", "iconv -f UTF-16 -t UTF-8"},
      {"a.jsonl", be, sizeof be - 1, "a.jsonl is text in UTF-16; data is read as UTF-8", "iconv -f UTF-16"},
      {"a.txt", utf32, sizeof utf32 - 1, "a.txt is text in UTF-32", "iconv -f UTF-32"},
      {"a.json", "PAR1", 4, "a.json is a damaged Parquet file: it has no footer", "anew"},
      {"a.CSV", "a,b\n1,2\n", 8, "a.CSV is a table: as text a model would learn its commas", "--format text"},
      {"a.tsv", "a\tb\n1\t2\n", 8, "a.tsv is a table: as text a model would learn its tabs", "sep='\\t'"},
      {"a.jsonl", "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\"}", 0, "a.jsonl: preference rows",
       "rename chosen"},
      {"a.jsonl", "{\"chosen\": [], \"rejected\": []}", 0, "a.jsonl: preference rows", "rename chosen"},
  };
  const char *path = NULL;
  hri_dataset_options options = options_for(&path);
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    path = write_file(cases[i].name, cases[i].bytes, cases[i].count ? cases[i].count : strlen(cases[i].bytes));
    open_fails(&options, cases[i].message, cases[i].hint);
  }
  for (size_t i = 0; i < sizeof wide / 2; i++) {
    wide[2 * i] = small[2 * i] = "A line.\n"[i % 8];
    wide[2 * i + 1] = small[2 * i + 1] = 0;
  }
  path = write_file("w.txt", wide, sizeof wide);
  open_fails(&options, "w.txt is text in UTF-16 without a byte order mark", "iconv -f UTF-16LE -t UTF-8");
  path = write_file("w.txt", wide + 1, sizeof wide - 1);
  open_fails(&options, "w.txt is text in UTF-16 without a byte order mark", "iconv -f UTF-16BE -t UTF-8");
  small[2] = 1; /* a unit that is no letter: bytes of something else, which are learned as they stand */
  path = write_file("w.txt", small, sizeof small);
  hri_dataset_destroy(open_ok(&options));
  path = write_text("t.csv", "a,b");
  options.format = HR_DATA_TEXT; /* as it was asked for */
  assert_string_equal(rows_of(&options), "a[,b$]");
  options.format = HR_DATA_AUTO; /* pairs beside something to learn */
  path = write_text("u.jsonl", "{\"prompt\": \"q\", \"completion\": \"c\", \"chosen\": \"a\", \"rejected\": \"b\"}");
  assert_string_equal(rows_of(&options), "q[c$]");
}

/* A role that the template names is one, however rare. */
static void a_template_brings_roles(void **state) {
  const char *path = write_text("role.jsonl", "{\"messages\": [{\"role\": \"poet\", \"content\": \"q\"}, "
                                              "{\"role\": \"assistant\", \"content\": \"a\"}]}");
  hri_dataset_options options = options_for(&path);
  (void)state;
  options.chat = write_text("poet.jinja", "{% for m in messages %}{{ '~' if m.role == 'poet' else '' }}{{ m.content }}"
                                          "{% endfor %}");
  assert_string_equal(rows_of(&options), "~q[a]");
}

static void conversations_need_a_template(void **state) {
  const char *path = write_text("chat.jsonl", good_row("messages"));
  hri_dataset_options options = options_for(&path);
  (void)state;
  options.chat = NULL;
  options.skip_bad = true; /* it is no matter of the row */
  open_fails(&options, "chat.jsonl:1: a conversation, and this model has no chat template", "chatml");
}

static void columns_that_are_not_used_are_named_once(void **state) {
  const char *path = write_text(
      "cols.jsonl",
      "{\"text\": \"a\", \"id\": 1, \"system\": \"s\"}\n{\"id\": 2, \"text\": \"b\", \"ids\": [1, {\"id\": 2}]}\n");
  hri_dataset_options options = options_for(&path);
  hri_dataset *dataset = open_ok(&options);
  (void)state;
  if (!strstr(hri_dataset_note(dataset), "; not used: id, system, ids") || strstr(hri_dataset_note(dataset), "ids,"))
    fail_msg("%s", hri_dataset_note(dataset));
  hri_dataset_destroy(dataset);
}

static void refused_memory_is_a_clean_error(void **state) {
  static const char *const names[] = {"x-text.jsonl",     "x-prompt.jsonl", "x-messages.jsonl",
                                      "x-sharegpt.jsonl", "x-alpaca.jsonl", "x-ids.json"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char content[512];
    const char *path;
    hri_dataset_options options;
    uint64_t live = hri_mem_live_bytes(), refused = 0;
    (void)snprintf(content, sizeof content, "[%s]", good_row(names[i]));
    path = write_text(names[i], content);
    options = options_for(&path);
    options.skip_bad = true; /* refused memory is no broken row */
    options.packing = HR_PACKING_PACK;
    for (uint64_t nth = 1;; nth++, refused++) {
      hri_dataset *dataset = NULL;
      hr_error error = {0};
      hr_status status;
      hri_mem_fail_after(nth);
      status = hri_dataset_open(&options, &dataset, &error);
      hri_mem_fail_after(0);
      hri_dataset_destroy(dataset);
      assert_int_equal(hri_mem_live_bytes(), live);
      if (status == HR_OK && nth > 10) break;
      if (status != HR_OK) assert_int_equal(status, HR_ERROR_MEMORY);
    }
    assert_true(refused >= 10);
  }
}

#define TEST(name) cmocka_unit_test(name)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(texts_end_with_the_end_token),
      TEST(completions_count),
      TEST(completions_may_be_messages),
      TEST(answers_of_the_assistant_count),
      TEST(answers_are_found_turn_by_turn),
      TEST(answers_of_weight_0_do_not_count),
      TEST(lost_tools_are_told),
      TEST(templates_that_change_their_mind_are_refused),
      TEST(a_conversation_may_begin_with_the_assistant),
      TEST(a_search_without_end_is_refused),
      TEST(tools_reach_the_template),
      TEST(sharegpt_names_are_mapped),
      TEST(a_system_beside_messages_is_their_first),
      TEST(a_system_that_is_no_string_is_not_used),
      TEST(a_system_that_the_template_refuses_is_lost),
      TEST(the_hash_of_content_knows_a_system_beside_messages),
      TEST(alpaca_rows_use_the_template_or_the_preamble),
      TEST(token_rows_may_stand_in_an_array),
      TEST(long_texts_are_cut_into_parts_without_a_trace),
      TEST(lines_are_documents),
      TEST(token_bins_are_read_in_place),
      TEST(directories_stand_for_their_files),
      TEST(the_first_rows_say_what_a_file_is),
      TEST(the_format_can_be_given),
      TEST(broken_rows_are_named_and_skipped),
      TEST(a_file_of_broken_rows_is_refused),
      TEST(foreign_files_are_refused),
      TEST(a_template_brings_roles),
      TEST(conversations_need_a_template),
      TEST(columns_that_are_not_used_are_named_once),
      TEST(refused_memory_is_a_clean_error),
  };
  return cmocka_run_group_tests_name("data_formats", tests, make_directory, remove_directory);
}
