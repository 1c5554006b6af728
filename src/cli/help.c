/* Help and the manual page, from the tables of options and commands. Completion is in completion.c. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/text.h"

enum { LEFT_COLUMNS = 24, DESCRIPTION_BYTES = HELP_BYTES + 256 };

static const struct {
  int code;
  const char *meaning;
} exit_codes[] = {
    {0, "done; for plan: the job fits"},
    {1, "internal or input/output error"},
    {2, "usage or configuration"},
    {3, "does not fit the budget"},
    {4, "out of memory at run time"},
    {5, "bad input file, named with field and reason"},
    {6, "plan and run disagree, a bug of Headroom"},
    {7, "the run diverged: a loss, gradient, weight or state is not finite"},
    {130, "interrupted after saving a checkpoint"},
};
enum { EXIT_CODE_COUNT = sizeof exit_codes / sizeof *exit_codes };

const char help_techniques_topic[] = "techniques";

/* ---- help ---- */

static void print_described(FILE *stream, const char *left, const char *text) {
  char indented[80];
  (void)snprintf(indented, sizeof indented, "  %s", left);
  screen_hang(stream, LEFT_COLUMNS, indented, text);
}

/* Whether a value is one of the words, and nothing else. */
static bool has_words(const hr_field *o) { return o->kind == HR_FIELD_CHOICE || o->kind == HR_FIELD_WORD; }

/* The commands that begin a clause of a help text, "inspect: " or "train, evaluate: ", and where it goes on behind them; 0
 * when it begins otherwise. */
static unsigned clause_commands(const char *clause, const char **rest) {
  unsigned bits = 0;
  while (true) {
    const size_t length = strspn(clause, "abcdefghijklmnopqrstuvwxyz");
    unsigned found = 0;
    for (unsigned i = 0; i < command_count && length > 0; i++)
      if (strlen(commands[i].name) == length && strncmp(commands[i].name, clause, length) == 0) found = commands[i].bit;
    if (!found) return 0;
    bits |= found;
    clause += length;
    if (strncmp(clause, ", ", 2) == 0) {
      clause += 2;
      continue;
    }
    *rest = clause + 2;
    return strncmp(clause, ": ", 2) == 0 ? bits : 0;
  }
}

char *option_help(const hr_field *field, unsigned command, char out[HELP_BYTES]) {
  size_t used = 0;
  out[0] = 0;
  for (const char *clause = field->help; *clause && used < HELP_BYTES;) {
    const char *end = strstr(clause, "; "), *text = clause;
    const unsigned bits = clause_commands(clause, &text);
    if (!end) end = clause + strlen(clause);
    if (!bits) text = clause;
    if (!bits || bits & command)
      used += (size_t)snprintf(out + used, HELP_BYTES - used, "%s%.*s", used ? "; " : "", (int)(end - text), text);
    clause = end + (*end ? 2 : 0);
  }
  return out;
}

/* Help, choices and default of an option, as one command tells them; 0: all that the row says. `defaults` is a fresh
 * configuration. */
static void describe(const cli_config *defaults, option_id id, unsigned command, char out[DESCRIPTION_BYTES]) {
  const hr_field *o = option_get(id);
  hr_value value;
  char text[OPTION_VALUE_BYTES], help[HELP_BYTES];
  size_t used = (size_t)snprintf(out, DESCRIPTION_BYTES, "%s", command ? option_help(o, command, help) : o->help);
  for (size_t i = 0; has_words(o) && o->words[i] && used < DESCRIPTION_BYTES; i++)
    used += (size_t)snprintf(out + used, DESCRIPTION_BYTES - used, "%s%s%s", i ? ", " : " [", o->words[i],
                             o->words[i + 1] ? "" : "]");
  if (used >= DESCRIPTION_BYTES || o->kind == HR_FIELD_FLAG) return;
  if (o->kind == HR_FIELD_DEVICE && command == HR_FOR_INSPECT) return; /* a job's default is no trace */
  (void)config_value_text(defaults, id, text);
  config_value(defaults, id, &value);
  if (o->zero && value.count == 0) (void)snprintf(text, sizeof text, "%s", o->zero);
  if (text[0]) (void)snprintf(out + used, DESCRIPTION_BYTES - used, " (default: %.100s)", text);
}

static void print_heading(FILE *stream, const char *heading) {
  (void)fprintf(stream, "\n%s%s:%s\n", screen_style(stream, STYLE_BOLD), heading, screen_style(stream, STYLE_PLAIN));
}

static void print_lines(FILE *stream, const char *prefix, const char *lines) {
  while (*lines) {
    int length = (int)strcspn(lines, "\n");
    (void)fprintf(stream, "%s%.*s\n", prefix, length, lines);
    lines += length + (lines[length] == '\n');
  }
}

void help_command(const cli_command *command, FILE *stream) {
  cli_config *defaults = text_alloc(sizeof *defaults);
  const char *group = "";
  char text[DESCRIPTION_BYTES], left[64];
  option_id order[MAX_OPTIONS];
  config_init(defaults, command->bit);
  options_grouped(order);
  (void)snprintf(text, sizeof text, "headroom %s - %s\n\nUsage: headroom %s %s\n\n", command->name, command->summary,
                 command->name, command->operands);
  screen_fold(stream, text);
  screen_wrap(stream, 0, command->about);
  print_heading(stream, "Examples");
  print_lines(stream, "  ", command->examples);
  for (uint32_t i = 0; i < option_count(); i++) {
    const hr_field *o = option_get(order[i]);
    if (!(o->commands & command->bit)) continue;
    if (strcmp(group, o->group) != 0) print_heading(stream, o->group);
    group = o->group;
    (void)snprintf(left, sizeof left, "%s%s%s%s", o->positional ? "" : "--", o->positional ? o->operand : o->name,
                   o->operand && !o->positional ? " " : "", o->operand && !o->positional ? o->operand : "");
    describe(defaults, order[i], command->bit, text);
    print_described(stream, left, text);
  }
  config_deinit(defaults);
  free(defaults);
}

void help_overview(FILE *stream) {
  screen_fold(stream, "headroom - train transformer language models inside a stated memory budget\n\n"
                      "Usage: headroom COMMAND [ARGUMENTS] [OPTIONS]\n");
  print_heading(stream, "Examples");
  print_lines(stream, "  ",
              "headroom plan gpt2-124m --seq 1024 --micro-batch 4\n"
              "headroom plan llama-3-8b --device rtx-4090\n"
              "headroom train tiny-llama-bytes --data docs/*.md --out run --budget 1GiB");
  print_heading(stream, "Commands");
  for (unsigned i = 0; i < command_count; i++) print_described(stream, commands[i].name, commands[i].summary);
  (void)fputc('\n', stream);
  screen_wrap(stream, 0,
              "`headroom help COMMAND` describes one, `headroom help techniques` what saves memory. Every option has a "
              "default; `--show-config` says where each value comes from.");
}

/* ---- the manual page ---- */

static void roff(const char *text) {
  bool start = true;
  for (; *text; text++) {
    if (start && (*text == '.' || *text == '\'')) (void)fputs("\\&", stdout);
    if (*text == '-') (void)fputs("\\-", stdout);
    else if (*text == '\\') (void)fputs("\\e", stdout);
    else (void)putchar(*text);
    start = *text == '\n';
  }
}

static void man_option(const cli_config *defaults, option_id id) {
  const hr_field *o = option_get(id);
  char text[DESCRIPTION_BYTES];
  bool first = true;
  (void)fputs(".TP\n.B ", stdout);
  if (!o->positional) (void)fputs("\\-\\-", stdout);
  roff(o->positional ? o->operand : o->name);
  if (o->operand && !o->positional) (void)printf(" \\fI%s\\fR", o->operand);
  (void)putchar('\n');
  describe(defaults, id, 0, text);
  roff(text);
  (void)fputs(".\nOf: ", stdout);
  for (unsigned i = 0; i < command_count; i++) {
    if (!(commands[i].bit & o->commands)) continue;
    (void)printf("%s%s", first ? "" : ", ", commands[i].name);
    first = false;
  }
  (void)fputs(".\n", stdout);
}

static void man_commands(void) {
  (void)fputs(".SH COMMANDS\n", stdout);
  for (unsigned i = 0; i < command_count; i++) {
    (void)fputs(".SS \"headroom ", stdout);
    (void)printf("%s ", commands[i].name);
    roff(commands[i].operands);
    (void)fputs("\"\n", stdout);
    roff(commands[i].about);
    (void)fputs("\n.PP\n.nf\n", stdout);
    roff(commands[i].examples);
    (void)fputs("\n.fi\n", stdout);
  }
}

static const struct {
  const char *path, *what;
} man_files[] = {
    {"RUN/run.json", "what a run was asked for, its plan, and how it ended"},
    {"RUN/metrics.jsonl", "a line for each step and evaluation"},
    {"RUN/checkpoints/", "what --resume goes on from"},
    {"RUN/final/", "the trained model as a Hugging Face directory, or adapters as PEFT has them"},
    {"~/.cache/headroom/", "what `headroom devices --probe` measured of this machine"},
};

static void man_described(const char *left, const char *text) {
  (void)fputs(".TP\n.B ", stdout);
  roff(left);
  (void)putchar('\n');
  roff(text);
  (void)fputs(".\n", stdout);
}

static void man_options(void) {
  cli_config *defaults = text_alloc(sizeof *defaults);
  const char *group = "";
  option_id order[MAX_OPTIONS];
  config_init(defaults, HR_FOR_HELP);
  options_grouped(order);
  for (uint32_t i = 0; i < option_count(); i++) {
    const hr_field *o = option_get(order[i]);
    if (strcmp(group, o->group) != 0) (void)printf(".SH \"%s OPTIONS\"\n", o->group);
    group = o->group;
    man_option(defaults, order[i]);
  }
  config_deinit(defaults);
  free(defaults);
}

static void print_man(void) {
  (void)printf(".TH HEADROOM 1 \"\" \"headroom %s\" \"User Commands\"\n", hr_version());
  (void)fputs(
      ".SH NAME\nheadroom \\- train transformer language models inside a stated memory budget\n"
      ".SH SYNOPSIS\n.B headroom\n.I COMMAND\n[ARGUMENTS] [OPTIONS]\n"
      ".SH DESCRIPTION\nHeadroom compiles a training job to programs whose memory is known to the byte before "
      "anything runs, and runs them inside a stated budget. Results go to standard output, talk to standard error.\n",
      stdout);
  man_commands();
  man_options();
  (void)fputs(
      ".SH PRECEDENCE\nA flag beats the environment, the environment beats the recipe, the recipe beats the default. "
      "A recipe is a flat YAML mapping of option names.\n.SH ENVIRONMENT\n",
      stdout);
  man_described("HEADROOM_NAME", "the value of the option whose name, in capitals and with underscores, is NAME: "
                                 "HEADROOM_MICRO_BATCH=4. Lists are separated by colons");
  for (const cli_variable *v = config_variables; v->name; v++) man_described(v->name, v->help);
  man_described("NO_COLOR", "set to anything: no colour unless --color says otherwise");
  man_described("TMPDIR",
                "where tokenized data lies while it is in use, unless --data-cache says otherwise; else /tmp");
  (void)fputs(".SH FILES\n", stdout);
  for (size_t i = 0; i < sizeof man_files / sizeof *man_files; i++) man_described(man_files[i].path, man_files[i].what);
  (void)fputs(".SH EXIT STATUS\n", stdout);
  for (size_t i = 0; i < EXIT_CODE_COUNT; i++)
    (void)printf(".TP\n.B %d\n%s.\n", exit_codes[i].code, exit_codes[i].meaning);
}

/* The manual page, a completion script and a topic are three things to print. */
static hr_status check_topic(const cli_config *config, hr_error *error) {
  const bool completion = config_chosen(config, &config->own.completion);
  const char *topic = config->operand_count ? config->operands[0] : NULL;
  if (config->own.man + completion + (topic != NULL) < 2) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "%s and %s%s are printed one at a time", config->own.man ? "--man" : "--completion",
           topic ? "the help of " : "--completion", topic ? topic : "");
  return hri_hint(error, HR_ERROR_USAGE, "one after the other");
}

hr_status command_help(cli_config *config, hr_error *error) {
  const cli_command *topic;
  hri_near search;
  HRI_TRY(check_topic(config, error));
  if (config->own.man) {
    print_man();
    return HR_OK;
  }
  if (config_chosen(config, &config->own.completion)) {
    help_completion(config->own.completion);
    return HR_OK;
  }
  if (config->operand_count == 0) {
    help_overview(stdout);
    return HR_OK;
  }
  if (strcmp(config->operands[0], help_techniques_topic) == 0) {
    help_techniques(stdout);
    return HR_OK;
  }
  topic = command_find(config->operands[0]);
  if (topic) {
    help_command(topic, stdout);
    return HR_OK;
  }
  hri_near_begin(&search, config->operands[0]);
  for (unsigned i = 0; i < command_count; i++) hri_near_offer(&search, commands[i].name);
  hri_near_offer(&search, help_techniques_topic);
  hri_fail(error, HR_ERROR_USAGE, "there is no command '%s'", config->operands[0]);
  return hri_hint(error, HR_ERROR_USAGE, "headroom help%s%s", hri_near_end(&search) ? " " : "",
                  hri_near_end(&search) ? hri_near_end(&search) : "");
}
