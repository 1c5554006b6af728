/* Everything that is generated from the tables of options and commands: help, manual page, bash completion. */
#include <stdlib.h>
#include <string.h>

#include <headroom/device.h>

#include "cli/commands.h"
#include "cli/text.h"

enum { LEFT_COLUMNS = 24, DESCRIPTION_BYTES = 512 };

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

/* What help knows beside the commands. */
static const char techniques[] = "techniques";

/* ---- help ---- */

static void print_described(FILE *stream, const char *left, const char *text) {
  char indented[80];
  (void)snprintf(indented, sizeof indented, "  %s", left);
  screen_hang(stream, LEFT_COLUMNS, indented, text);
}

/* Whether a value is one of the words, and nothing else. */
static bool has_words(const hr_field *o) { return o->kind == HR_FIELD_CHOICE || o->kind == HR_FIELD_WORD; }

/* Help, choices and default of an option. `defaults` is a fresh configuration. */
static void describe(const cli_config *defaults, option_id id, char out[DESCRIPTION_BYTES]) {
  const hr_field *o = option_get(id);
  hr_value value;
  char text[OPTION_VALUE_BYTES];
  size_t used = (size_t)snprintf(out, DESCRIPTION_BYTES, "%s", o->help);
  for (size_t i = 0; has_words(o) && o->words[i] && used < DESCRIPTION_BYTES; i++)
    used += (size_t)snprintf(out + used, DESCRIPTION_BYTES - used, "%s%s%s", i ? ", " : " [", o->words[i],
                             o->words[i + 1] ? "" : "]");
  if (used >= DESCRIPTION_BYTES || o->kind == HR_FIELD_FLAG) return;
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
  config_init(defaults, command->bit);
  (void)fprintf(stream, "headroom %s - %s\n", command->name, command->summary);
  (void)fprintf(stream, "\nUsage: headroom %s %s\n\n", command->name, command->operands);
  screen_wrap(stream, 0, command->about);
  print_heading(stream, "Examples");
  print_lines(stream, "  ", command->examples);
  for (option_id id = 0; id < option_count(); id++) {
    const hr_field *o = option_get(id);
    if (!(o->commands & command->bit)) continue;
    if (strcmp(group, o->group) != 0) print_heading(stream, o->group);
    group = o->group;
    (void)snprintf(left, sizeof left, "%s%s%s%s", o->positional ? "" : "--", o->positional ? o->operand : o->name,
                   o->operand && !o->positional ? " " : "", o->operand && !o->positional ? o->operand : "");
    describe(defaults, id, text);
    print_described(stream, left, text);
  }
  config_deinit(defaults);
  free(defaults);
}

void help_overview(FILE *stream) {
  (void)fprintf(stream, "headroom - train transformer language models inside a stated memory budget\n\n"
                        "Usage: headroom COMMAND [ARGUMENTS] [OPTIONS]\n");
  print_heading(stream, "Examples");
  print_lines(stream, "  ",
              "headroom plan gpt2-124m --seq 1024 --micro-batch 4\n"
              "headroom plan llama-3-8b --device rtx-4090\n"
              "headroom train tiny-llama-bytes --data docs/*.md --out run --budget 1GiB");
  print_heading(stream, "Commands");
  for (unsigned i = 0; i < command_count; i++) print_described(stream, commands[i].name, commands[i].summary);
  (void)fprintf(stream, "\n`headroom help COMMAND` describes one, `headroom help techniques` what saves memory. Every\n"
                        "option has a default; `--show-config` says where each value comes from.\n");
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
  describe(defaults, id, text);
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

static void print_man(void) {
  cli_config *defaults = text_alloc(sizeof *defaults);
  const char *group = "";
  config_init(defaults, HR_FOR_HELP);
  (void)printf(".TH HEADROOM 1 \"\" \"headroom %s\" \"User Commands\"\n", hr_version());
  (void)fputs(
      ".SH NAME\nheadroom \\- train transformer language models inside a stated memory budget\n"
      ".SH SYNOPSIS\n.B headroom\n.I COMMAND\n[ARGUMENTS] [OPTIONS]\n"
      ".SH DESCRIPTION\nHeadroom compiles a training job to programs whose memory is known to the byte before "
      "anything runs, and runs them inside a stated budget. Results go to standard output, talk to standard error.\n",
      stdout);
  man_commands();
  for (option_id id = 0; id < option_count(); id++) {
    const hr_field *o = option_get(id);
    if (strcmp(group, o->group) != 0) {
      (void)printf(".SH \"%s OPTIONS\"\n", o->group);
      group = o->group;
    }
    man_option(defaults, id);
  }
  (void)fputs(
      ".SH PRECEDENCE\nA flag beats the environment, the environment beats the recipe, the recipe beats the default. "
      "The environment name of an option is HEADROOM_ and its name in capitals with underscores. A recipe is a flat "
      "YAML "
      "mapping of option names.\n.SH EXIT STATUS\n",
      stdout);
  for (size_t i = 0; i < EXIT_CODE_COUNT; i++)
    (void)printf(".TP\n.B %d\n%s.\n", exit_codes[i].code, exit_codes[i].meaning);
  config_deinit(defaults);
  free(defaults);
}

/* ---- bash completion ---- */

static void bash_words(const char *separator, unsigned bits, bool flags) {
  bool first = true;
  for (option_id id = 0; flags && id < option_count(); id++) {
    const hr_field *o = option_get(id);
    if (o->positional || !(o->commands & bits)) continue;
    (void)printf("%s--%s", first ? "" : separator, o->name);
    first = false;
  }
  for (unsigned i = 0; !flags && i < command_count; i++) {
    if (!(commands[i].bit & bits)) continue;
    (void)printf("%s%s", first ? "" : separator, commands[i].name);
    first = false;
  }
}

static void bash_devices(void) {
  hr_device device;
  (void)fputs("cpu", stdout);
  for (uint32_t i = 0; i < hr_device_count(); i++)
    if (hr_device_get(i, &device, NULL) == HR_OK) (void)printf(" %s", device.name);
}

static void bash_offer(const hr_field *o) {
  const char *const *words = has_words(o) ? o->words : o->suggested;
  if (o->kind == HR_FIELD_DEVICE) {
    (void)fputs("COMPREPLY=($(compgen -W \"", stdout);
    bash_devices();
    (void)fputs("\" -- \"$cur\"))", stdout);
  } else if (words) {
    (void)fputs("COMPREPLY=($(compgen -W \"", stdout);
    for (size_t i = 0; words[i]; i++) (void)printf("%s%s", i ? " " : "", words[i]);
    (void)fputs("\" -- \"$cur\"))", stdout);
  } else if (o->kind == HR_FIELD_PATH || o->kind == HR_FIELD_PATHS) {
    (void)fputs("COMPREPLY=($(compgen -f -- \"$cur\"))", stdout);
  } else {
    (void)fputs("COMPREPLY=()", stdout);
  }
  (void)fputs("; return ;;\n", stdout);
}

/* One name may be another option of some command: that is looked for first, by command and name. */
static void bash_values(bool of_commands) {
  for (option_id id = 0; id < option_count(); id++) {
    const hr_field *o = option_get(id);
    bool other = option_find(o->name, true, 0) != id;
    if (o->positional || o->kind == HR_FIELD_FLAG || other != of_commands) continue;
    for (unsigned i = 0; i < command_count && other; i++) {
      if (!(commands[i].bit & o->commands)) continue;
      (void)printf("    '%s --%s') ", commands[i].name, o->name);
      bash_offer(o);
    }
    if (other) continue;
    (void)printf("    --%s) ", o->name);
    bash_offer(o);
  }
}

static void print_bash(void) {
  (void)fputs("# bash completion of headroom; made by `headroom help --completion bash`\n"
              "_headroom() {\n"
              "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n"
              "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    COMPREPLY=($(compgen -W \"",
              stdout);
  bash_words(" ", HR_FOR_ALL, false);
  (void)fputs("\" -- \"$cur\"))\n    return\n  fi\n  case \"${COMP_WORDS[1]} $prev\" in\n", stdout);
  bash_values(true);
  (void)fputs("  esac\n  case $prev in\n", stdout);
  bash_values(false);
  (void)fputs("  esac\n  case ${COMP_WORDS[1]} in\n", stdout);
  for (unsigned i = 0; i < command_count; i++) {
    (void)printf("    %s) words=\"", commands[i].name);
    bash_words(" ", commands[i].bit, true);
    (void)fputs("\" ;;\n", stdout);
  }
  (void)fputs("  esac\n  if [ \"${cur#-}\" != \"$cur\" ]; then\n    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n "
              "   return\n  fi\n"
              "  case ${COMP_WORDS[1]} in\n    ",
              stdout);
  bash_words("|", HR_FOR_JOBS, false);
  (void)fputs(") COMPREPLY=($(compgen -W \"", stdout);
  for (uint32_t i = 0; i < hr_model_preset_count(); i++) (void)printf("%s%s", i ? " " : "", hr_model_preset_name(i));
  (void)fputs("\" -- \"$cur\") $(compgen -f -- \"$cur\")) ;;\n    devices) COMPREPLY=($(compgen -W \"", stdout);
  bash_devices();
  (void)fputs("\" -- \"$cur\")) ;;\n    help) COMPREPLY=($(compgen -W \"", stdout);
  bash_words(" ", HR_FOR_ALL, false);
  (void)printf(" %s", techniques);
  (void)fputs("\" -- \"$cur\")) ;;\n  esac\n}\ncomplete -o filenames -F _headroom headroom\n", stdout);
}

hr_status command_help(cli_config *config, hr_error *error) {
  const cli_command *topic;
  hri_near search;
  if (config->own.man) {
    print_man();
    return HR_OK;
  }
  if (config_chosen(config, &config->own.completion)) {
    print_bash();
    return HR_OK;
  }
  if (config->operand_count == 0) {
    help_overview(stdout);
    return HR_OK;
  }
  if (strcmp(config->operands[0], techniques) == 0) {
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
  hri_near_offer(&search, techniques);
  hri_fail(error, HR_ERROR_USAGE, "there is no command '%s'", config->operands[0]);
  return hri_hint(error, HR_ERROR_USAGE, "headroom help%s%s", hri_near_end(&search) ? " " : "",
                  hri_near_end(&search) ? hri_near_end(&search) : "");
}
