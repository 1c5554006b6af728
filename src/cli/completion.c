/* Completion of the three shells, from the tables of options and commands: what a word on the command line may be is
 * found here once (`offer_of`, `operand_of`), and written in the words of bash, zsh and fish.
 *
 * An option's value is taken behind a blank or behind "=", so each script completes both. Options that take several
 * values (--data) offer files for all that follows. tests/cli/test_completion.sh runs the scripts in their shells. */
#include <ctype.h>
#include <string.h>

#include <headroom/chat.h>
#include <headroom/device.h>

#include "cli/commands.h"
#include "cli/text.h"

enum { BRIEF_BYTES = 80, BRIEF_LEAST = 12 };

/* What may stand somewhere, besides nothing in particular. */
typedef enum offer {
  OFFER_NOTHING = 0, /* a number, free text */
  OFFER_WORDS,       /* those of the row */
  OFFER_FILES,
  OFFER_WORDS_FILES,
  OFFER_MODELS,    /* presets and files */
  OFFER_TEMPLATES, /* presets of chat templates and files */
  OFFER_DEVICES,   /* of the table */
  OFFER_CPU,       /* what runs here */
  OFFER_TRACE,     /* a device of a snapshot */
  OFFER_TOPICS     /* what help knows */
} offer;

typedef void text_sink(const char *word, void *context);

static bool stands_in(const char *text, const char *part) { return text && strstr(text, part) != NULL; }

static offer device_offer(unsigned bit) {
  if (bit & HR_FOR_INSPECT) return OFFER_TRACE;
  return bit & (HR_FOR_PLAN | HR_FOR_EXPLAIN) ? OFFER_DEVICES : OFFER_CPU;
}

/* What the value of an option may be, of the command `bit`. */
static offer offer_of(const hr_field *o, unsigned bit) {
  const bool words =
      (o->words && (o->kind == HR_FIELD_CHOICE || o->kind == HR_FIELD_WORD || o->word_values || o->word_numbers)) ||
      o->suggested;
  const bool files = o->kind == HR_FIELD_PATH || (o->kind == HR_FIELD_PATHS && !o->one_each);
  if (o->kind == HR_FIELD_DEVICE) return device_offer(bit);
  if (o->operand && strcmp(o->operand, "MODEL") == 0) return OFFER_MODELS;
  if (stands_in(o->operand, "PRESET|FILE")) return OFFER_TEMPLATES;
  if (words) return files ? OFFER_WORDS_FILES : OFFER_WORDS;
  return files ? OFFER_FILES : OFFER_NOTHING;
}

/* What the arguments of a command are, by how its help says them. Presets have neither weights nor a tokenizer: they can
 * be planned, and trained from the seed. */
static offer operand_of(const cli_command *command) {
  if (command->bit & HR_FOR_HELP) return OFFER_TOPICS;
  if (command->bit & HR_FOR_DEVICES) return OFFER_DEVICES;
  if (command->bit & (HR_FOR_PLAN | HR_FOR_TRAIN)) return OFFER_MODELS;
  return command->operands[0] == '[' ? OFFER_NOTHING : OFFER_FILES;
}

/* Every word of an offer; files are the shell's own. */
static void each_word(const hr_field *o, offer kind, text_sink *sink, void *context) {
  const char *const *words =
      kind == OFFER_WORDS || kind == OFFER_WORDS_FILES ? (o->words ? o->words : o->suggested) : NULL;
  hr_device device;
  for (size_t i = 0; words && words[i]; i++)
    if (strcmp(words[i], "false") != 0) sink(words[i], context); /* a spelling of `off` for recipes */
  if (kind == OFFER_DEVICES || kind == OFFER_CPU) sink("cpu", context), sink("cuda", context);
  if (kind == OFFER_TRACE) sink("cuda:0", context);
  for (uint32_t i = 0; kind == OFFER_DEVICES && i < hr_device_count(); i++)
    if (hr_device_get(i, &device, NULL) == HR_OK && strcmp(device.name, "cpu") != 0) sink(device.name, context);
  for (uint32_t i = 0; kind == OFFER_MODELS && i < hr_model_preset_count(); i++) sink(hr_model_preset_name(i), context);
  for (uint32_t i = 0; kind == OFFER_TEMPLATES && i < hr_chat_preset_count(); i++)
    sink(hr_chat_preset_name(i), context);
  for (unsigned i = 0; kind == OFFER_TOPICS && i < command_count; i++) sink(commands[i].name, context);
  if (kind == OFFER_TOPICS) sink(help_techniques_topic, context);
}

static bool takes_files(offer kind) {
  return kind == OFFER_FILES || kind == OFFER_WORDS_FILES || kind == OFFER_MODELS || kind == OFFER_TEMPLATES;
}

static bool is_option(const hr_field *o, unsigned bit) { return !o->positional && (o->commands & bit); }

/* A flag that is on unless it is negated. */
static bool is_on(const hr_field *o) {
  return o->kind == HR_FIELD_FLAG && o->initial && strcmp(o->initial, "true") == 0;
}

/* The first words of an option's help, for lists beside names: up to a stop, but not fewer than would say something. */
static char *brief(const hr_field *o, unsigned bit, char out[BRIEF_BYTES]) {
  char help[HELP_BYTES];
  size_t used = 0;
  option_help(o, bit, help);
  while (help[used] && used < BRIEF_BYTES - 1) {
    const bool stop = strchr(";:(.", help[used]) && (help[used + 1] == ' ' || help[used] == '(');
    if (stop && used >= BRIEF_LEAST) break;
    used++;
  }
  while (help[used] && used > BRIEF_LEAST && !strchr(" ;:(.", help[used])) used--; /* no half words */
  while (used > 0 && strchr(" ,;:", help[used - 1])) used--;
  memcpy(out, help, used);
  out[used] = 0;
  return out;
}

/* ---- bash ---- */

static void bash_word(const char *word, void *context) {
  bool *first = context;
  (void)printf("%s%s", *first ? "" : " ", word);
  *first = false;
}

static void bash_list(const hr_field *o, offer kind) {
  bool first = true;
  (void)fputs("_headroom_offer \"", stdout);
  each_word(o, kind, bash_word, &first);
  (void)fputs("\"", stdout);
}

static void bash_offer(const hr_field *o, offer kind) {
  if (kind == OFFER_MODELS) (void)fputs("_headroom_models", stdout);
  else if (kind == OFFER_DEVICES) (void)fputs("_headroom_devices", stdout);
  else if (kind == OFFER_NOTHING) (void)fputs(":", stdout);
  else if (kind == OFFER_FILES) (void)fputs("_headroom_files", stdout);
  else bash_list(o, kind);
  if (kind == OFFER_WORDS_FILES || kind == OFFER_TEMPLATES) (void)fputs("; _headroom_files", stdout);
}

/* Commands whose option of this name is another one: their answers, before those of all others. */
static bool bash_namesakes(option_id id) {
  bool any = false;
  for (option_id other = id + 1; other < option_count(); other++) {
    const hr_field *o = option_get(other);
    if (o->positional || strcmp(o->name, option_get(id)->name) != 0) continue;
    if (!any) (void)fputs("case ${COMP_WORDS[1]} in", stdout);
    any = true;
    for (unsigned i = 0; i < command_count; i++) {
      if (!(o->commands & commands[i].bit)) continue;
      (void)printf(" %s) ", commands[i].name);
      bash_offer(o, offer_of(o, commands[i].bit));
      (void)fputs(" ;;", stdout);
    }
  }
  if (any) (void)fputs(" *) ", stdout);
  return any;
}

/* An option's value: by command where they differ. */
static void bash_value(option_id id) {
  const hr_field *o = option_get(id);
  offer last = OFFER_NOTHING;
  bool namesakes;
  if (option_find(o->name, false, 0) != id) return; /* said with the first of the name */
  (void)printf("    --%s) ", o->name);
  if (o->kind == HR_FIELD_DEVICE) {
    (void)fputs("case ${COMP_WORDS[1]} in", stdout);
    for (unsigned i = 0; i < command_count; i++) {
      if (!(o->commands & commands[i].bit) || offer_of(o, commands[i].bit) == OFFER_CPU) continue;
      (void)printf(" %s) ", commands[i].name);
      bash_offer(o, offer_of(o, commands[i].bit));
      (void)fputs(" ;;", stdout);
    }
    (void)fputs(" *) ", stdout);
    bash_offer(o, OFFER_CPU);
    (void)fputs(" ;; esac ;;\n", stdout);
    return;
  }
  last = offer_of(o, o->commands);
  namesakes = bash_namesakes(id);
  bash_offer(o, last);
  (void)fputs(namesakes ? " ;; esac ;;\n" : " ;;\n", stdout);
}

static void bash_flags(const cli_command *command) {
  (void)printf("    %s) flags=\"", command->name);
  for (option_id id = 0, shown = 0; id < option_count(); id++) {
    const hr_field *o = option_get(id);
    if (!is_option(o, command->bit)) continue;
    (void)printf("%s--%s", shown++ ? " " : "", o->name);
    if (is_on(o)) (void)printf(" --no-%s", o->name);
  }
  (void)fputs("\" ;;\n", stdout);
}

static void bash_operands(void) {
  (void)fputs("  case ${COMP_WORDS[1]} in\n", stdout);
  for (unsigned i = 0; i < command_count; i++) {
    if (operand_of(&commands[i]) == OFFER_NOTHING) continue;
    (void)printf("    %s) ", commands[i].name);
    bash_offer(NULL, operand_of(&commands[i]));
    (void)fputs(" ;;\n", stdout);
  }
  (void)fputs("  esac\n", stdout);
}

/* Bash ends a word at each "=" and ":" too; the words are joined again, and what the line has already is taken off the
 * answers. */
static const char bash_begin[] =
    "# bash completion of headroom; made by `headroom help --completion bash`\n"
    "_headroom_join() {\n"
    "  local i joined= word\n"
    "  words=()\n"
    "  for ((i = 0; i <= COMP_CWORD; i++)); do\n"
    "    word=${COMP_WORDS[i]}\n"
    "    if [[ $word == [=:]* && ${#words[@]} -gt 1 ]]; then joined=1\n"
    "    elif [[ $joined && ! ( -z $word && ${COMP_LINE: -1} == ' ' ) ]]; then joined=\n"
    "    else words+=(\"$word\") joined= && continue; fi\n"
    "    words[${#words[@]}-1]+=$word\n"
    "  done\n"
    "}\n"
    "_headroom_offer() {\n"
    "  local word\n"
    "  for word in $1; do if [[ $word == \"$cur\"* ]]; then COMPREPLY+=(\"$word\"); fi; done\n"
    "}\n"
    "_headroom_files() {\n"
    "  local file\n"
    "  compopt -o filenames 2>/dev/null\n"
    "  while IFS= read -r file; do COMPREPLY+=(\"$file\"); done < <(compgen -f -- \"$cur\")\n"
    "}\n";

static const char bash_middle[] =
    "# What the line has already up to its last \"=\" or \":\" is not said again.\n"
    "_headroom_trim() {\n"
    "  local i done=\n"
    "  if [[ $cur == *[=:]* ]]; then done=${cur%\"${cur##*[=:]}\"}; fi\n"
    "  for i in \"${!COMPREPLY[@]}\"; do COMPREPLY[i]=${COMPREPLY[i]#\"$done\"}; done\n"
    "  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *: ]]; then compopt -o nospace 2>/dev/null; fi\n"
    "}\n"
    "_headroom() {\n"
    "  local words cur flags= i\n"
    "  COMPREPLY=()\n"
    "  _headroom_join\n"
    "  cur=${words[${#words[@]}-1]}\n"
    "  if ((${#words[@]} <= 2)); then\n"
    "    ";

static const char bash_end[] =
    "    return\n"
    "  fi\n"
    "  if [[ $cur == --*=* ]]; then\n"
    "    i=${cur%%=*} cur=${cur#*=}\n"
    "    if _headroom_value \"$i\"; then _headroom_trim; fi\n"
    "    return\n"
    "  fi\n"
    "  if [[ $cur != -* ]]; then\n"
    "    for ((i = ${#words[@]} - 2; i > 1; i--)); do if [[ ${words[i]} == --* ]]; then break; fi; done\n"
    "    if ((i == ${#words[@]} - 2)) || _headroom_many \"${words[i]}\"; then\n"
    "      if ((i > 1)) && _headroom_value \"${words[i]}\"; then _headroom_trim; return; fi\n"
    "    fi\n"
    "    _headroom_operand\n"
    "    _headroom_trim\n"
    "    return\n"
    "  fi\n"
    "  case ${COMP_WORDS[1]} in\n";

static void bash_functions(void) {
  bool first = true;
  (void)fputs("_headroom_models() {\n  ", stdout);
  bash_list(NULL, OFFER_MODELS);
  (void)fputs("\n  _headroom_files\n}\n_headroom_devices() {\n  ", stdout);
  bash_list(NULL, OFFER_DEVICES);
  (void)fputs("\n}\n# The value of an option; fails for what takes none.\n_headroom_value() {\n  case $1 in\n", stdout);
  for (option_id id = 0; id < option_count(); id++)
    if (!option_get(id)->positional && option_get(id)->kind != HR_FIELD_FLAG) bash_value(id);
  (void)fputs("    *) return 1 ;;\n  esac\n}\n# Options that take all values up to the next.\n"
              "_headroom_many() { [[ \" ",
              stdout);
  for (option_id id = 0; id < option_count(); id++)
    if (!option_get(id)->positional && option_get(id)->kind == HR_FIELD_PATHS && !option_get(id)->one_each) {
      (void)printf("%s--%s", first ? "" : " ", option_get(id)->name);
      first = false;
    }
  (void)fputs(" \" == *\" $1 \"* ]]; }\n_headroom_operand() {\n", stdout);
  bash_operands();
  (void)fputs("}\n", stdout);
}

static void print_bash(void) {
  bool first = true;
  (void)fputs(bash_begin, stdout);
  bash_functions();
  (void)fputs(bash_middle, stdout);
  (void)fputs("_headroom_offer \"", stdout);
  for (unsigned i = 0; i < command_count; i++) bash_word(commands[i].name, &first);
  (void)fputs("\"\n", stdout);
  (void)fputs(bash_end, stdout);
  for (unsigned i = 0; i < command_count; i++) bash_flags(&commands[i]);
  (void)fputs("  esac\n  _headroom_offer \"$flags\"\n}\ncomplete -F _headroom headroom\n", stdout);
}

/* ---- zsh ---- */

/* Text inside a quoted specification; `special` are the characters that a specification itself reads. */
static void zsh_text(const char *text, const char *special) {
  for (; *text; text++) {
    if (*text == '\'') (void)fputs("'\\''", stdout);
    else {
      if (strchr(special, *text)) (void)putchar('\\');
      (void)putchar(*text);
    }
  }
}

static void zsh_word(const char *word, void *context) {
  bool *first = context;
  if (!*first) (void)putchar(' ');
  zsh_text(word, ":\\()");
  *first = false;
}

static void zsh_plain_word(const char *word, void *context) {
  (void)context;
  (void)printf(" %s", word);
}

/* An action of _arguments. */
static void zsh_action(const hr_field *o, offer kind) {
  bool first = true;
  switch (kind) {
  case OFFER_NOTHING: (void)putchar(' '); return;
  case OFFER_FILES: (void)fputs("_files", stdout); return;
  case OFFER_MODELS: (void)fputs("_headroom_models", stdout); return;
  case OFFER_TEMPLATES: (void)fputs("_headroom_templates", stdout); return;
  case OFFER_DEVICES: (void)fputs("_headroom_devices", stdout); return;
  case OFFER_TOPICS: (void)fputs("_headroom_topics", stdout); return;
  case OFFER_WORDS:
  case OFFER_WORDS_FILES:
  case OFFER_CPU:
  case OFFER_TRACE: break;
  }
  (void)putchar('(');
  each_word(o, kind, zsh_word, &first);
  (void)putchar(')');
}

static void zsh_option(const hr_field *o, const cli_command *command) {
  char text[BRIEF_BYTES];
  (void)printf(" \\\n        '%s--%s%s[", o->kind == HR_FIELD_PATHS ? "*" : "", o->name,
               o->kind == HR_FIELD_FLAG ? "" : "=");
  zsh_text(brief(o, command->bit, text), "[]:\\");
  (void)putchar(']');
  if (o->kind != HR_FIELD_FLAG) {
    (void)putchar(':');
    zsh_text(o->operand, ":\\");
    (void)putchar(':');
    zsh_action(o, offer_of(o, command->bit));
  }
  (void)putchar('\'');
  if (is_on(o)) (void)printf(" \\\n        '--no-%s'", o->name);
}

static void zsh_command(const cli_command *command) {
  const offer operand = operand_of(command);
  const offer others = operand == OFFER_MODELS ? OFFER_FILES : operand;
  (void)printf("    %s)\n      _arguments", command->name);
  for (option_id id = 0; id < option_count(); id++)
    if (is_option(option_get(id), command->bit)) zsh_option(option_get(id), command);
  if (operand != OFFER_NOTHING) {
    (void)fputs(" \\\n        '1:argument:", stdout);
    zsh_action(NULL, operand);
    (void)fputs("' \\\n        '*:argument:", stdout); /* more arguments, and more values of --data */
    zsh_action(NULL, others);
    (void)putchar('\'');
  }
  (void)fputs(" ;;\n", stdout);
}

/* A function that offers words, and files where there may be some. */
static void zsh_function(const char *name, offer kind) {
  (void)printf("_headroom_%s() {\n  local -a names\n  names=(", name);
  each_word(NULL, kind, zsh_plain_word, NULL);
  (void)printf(")\n  %s\n}\n",
               takes_files(kind) ? "_alternative \"name:name:($names)\" 'file:file:_files'" : "compadd -a names");
}

static void print_zsh(void) {
  (void)fputs("#compdef headroom\n# zsh completion of headroom; made by `headroom help --completion zsh`\n", stdout);
  zsh_function("models", OFFER_MODELS);
  zsh_function("templates", OFFER_TEMPLATES);
  zsh_function("devices", OFFER_DEVICES);
  zsh_function("topics", OFFER_TOPICS);
  (void)fputs("_headroom() {\n  local curcontext=$curcontext command=$words[2]\n  local -a names\n"
              "  if ((CURRENT == 2)); then\n    names=(\n",
              stdout);
  for (unsigned i = 0; i < command_count; i++) {
    (void)printf("      '%s:", commands[i].name);
    zsh_text(commands[i].summary, ":\\");
    (void)fputs("'\n", stdout);
  }
  (void)fputs("    )\n    _describe -t commands command names\n    return\n  fi\n"
              "  shift words\n  ((CURRENT--))\n  case $command in\n",
              stdout);
  for (unsigned i = 0; i < command_count; i++) zsh_command(&commands[i]);
  (void)fputs(
      "  esac\n}\nif [[ $funcstack[1] == _headroom ]]; then _headroom \"$@\"; else compdef _headroom headroom; fi\n",
      stdout);
}

/* ---- fish ---- */

static void fish_quoted(const char *text) {
  (void)putchar('\'');
  for (; *text; text++) {
    if (*text == '\'' || *text == '\\') (void)putchar('\\');
    (void)putchar(*text);
  }
  (void)putchar('\'');
}

static void fish_values(const hr_field *o, offer kind) {
  bool first = true;
  if (kind == OFFER_FILES || kind == OFFER_NOTHING) return;
  (void)fputs(" -a '", stdout);
  each_word(o, kind, bash_word, &first);
  (void)putchar('\'');
}

/* Whether two commands are told the same about an option. */
static bool fish_alike(const hr_field *o, const cli_command *a, const cli_command *b) {
  char one[BRIEF_BYTES], other[BRIEF_BYTES];
  return offer_of(o, a->bit) == offer_of(o, b->bit) && strcmp(brief(o, a->bit, one), brief(o, b->bit, other)) == 0;
}

/* The begin of a line for all commands from `from` on that are told the same as it. */
static void fish_for(const hr_field *o, unsigned from, const char *negation) {
  (void)fputs("complete -c headroom -n '__headroom_in", stdout);
  for (unsigned i = from; i < command_count; i++)
    if (o->commands & commands[i].bit && fish_alike(o, &commands[from], &commands[i]))
      (void)printf(" %s", commands[i].name);
  (void)printf("' -l %s%s", negation, o->name);
}

static void fish_option(const hr_field *o, unsigned from) {
  const offer kind = offer_of(o, commands[from].bit);
  char text[BRIEF_BYTES];
  fish_for(o, from, "");
  if (o->kind != HR_FIELD_FLAG) (void)fputs(takes_files(kind) ? " -r -F" : " -x", stdout);
  (void)fputs(" -d ", stdout);
  fish_quoted(brief(o, commands[from].bit, text));
  if (o->kind != HR_FIELD_FLAG) fish_values(o, kind);
  (void)putchar('\n');
  if (!is_on(o)) return;
  fish_for(o, from, "no-");
  (void)putchar('\n');
}

static void fish_options(const hr_field *o) {
  for (unsigned i = 0; i < command_count; i++) {
    bool said = false;
    if (!is_option(o, commands[i].bit)) continue;
    for (unsigned k = 0; k < i; k++) said |= is_option(o, commands[k].bit) && fish_alike(o, &commands[k], &commands[i]);
    if (!said) fish_option(o, i);
  }
}

static void print_fish(void) {
  (void)fputs("# fish completion of headroom; made by `headroom help --completion fish`\n"
              "function __headroom_in\n  set -l words (commandline -opc)\n"
              "  test (count $words) -gt 1; and contains -- $words[2] $argv\nend\n"
              "complete -c headroom -f\n",
              stdout);
  for (unsigned i = 0; i < command_count; i++) {
    (void)printf("complete -c headroom -n 'test (count (commandline -opc)) -eq 1' -a %s -d ", commands[i].name);
    fish_quoted(commands[i].summary);
    (void)putchar('\n');
  }
  for (unsigned i = 0; i < command_count; i++) {
    const offer kind = operand_of(&commands[i]);
    if (kind == OFFER_NOTHING) continue;
    (void)printf("complete -c headroom -n '__headroom_in %s'%s", commands[i].name, takes_files(kind) ? " -F" : "");
    fish_values(NULL, kind);
    (void)putchar('\n');
  }
  for (option_id id = 0; id < option_count(); id++) fish_options(option_get(id));
}

void help_completion(const char *shell) {
  if (strcmp(shell, "zsh") == 0) print_zsh();
  else if (strcmp(shell, "fish") == 0) print_fish();
  else print_bash();
}
