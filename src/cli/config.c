/* Where values come from: arguments, environment; and --show-config, which tells. Recipes are in recipe.c. */
#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/run.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/peers.h"
#include "cli/plan.h"
#include "cli/text.h"

/* ---- arguments ---- */

typedef struct arguments {
  cli_config *config;
  int next, count;
  char **words;
  uint32_t operands; /* so far, MODEL and data files among them */
} arguments;

static const cli_command *command_of(const cli_config *config) {
  for (unsigned i = 0; i < command_count; i++)
    if (commands[i].bit == config->command) return &commands[i];
  return &commands[0];
}

/* "plan, train" for the commands that know an option. */
static void list_commands(unsigned bits, char *out, size_t bytes) {
  size_t used = 0;
  out[0] = 0;
  for (unsigned i = 0; i < command_count && used < bytes; i++)
    if (commands[i].bit & bits)
      used += (size_t)snprintf(out + used, bytes - used, "%s%s", used ? ", " : "", commands[i].name);
}

/* What another trainer calls so, in our words; of another command's option also whose it is. */
static hr_status hint_peer(const cli_config *config, const char *ours, hr_error *error) {
  char name[64], names[128];
  option_id id;
  if (ours[0] != '-')
    return hri_hint(error, HR_ERROR_USAGE, "headroom %s MODEL ..., the model without an option",
                    command_of(config)->name);
  (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(ours + 2, " "), ours + 2);
  id = option_find(name, false, config->command);
  assert(id < option_count()); /* else the table of peers names an option that is gone */
  if (option_get(id)->commands & config->command) return hri_hint(error, HR_ERROR_USAGE, "%s", ours);
  list_commands(option_get(id)->commands, names, sizeof names);
  return hri_hint(error, HR_ERROR_USAGE, "%s, an option of: %s", ours, names);
}

static hr_status unknown_option(const cli_config *config, const char *word, const char *name, hr_error *error) {
  const char *peer = config->command & HR_FOR_JOBS ? peer_option(name) : NULL;
  option_id known = option_find(name, false, config->command);
  char names[128];
  hri_near search;
  if (known < option_count()) {
    list_commands(option_get(known)->commands, names, sizeof names);
    hri_fail(error, HR_ERROR_USAGE, "%s is no option of `headroom %s`, but of: %s", word, command_of(config)->name,
             names);
  } else {
    hri_fail(error, HR_ERROR_USAGE, "unknown option %s", word);
  }
  if (peer) return hint_peer(config, peer, error);
  hri_near_begin(&search, name);
  for (option_id id = 0; id < option_count(); id++)
    if (option_get(id)->commands & config->command && !option_get(id)->positional)
      hri_near_offer(&search, option_get(id)->name);
  if (known == option_count() && hri_near_end(&search))
    return hri_hint(error, HR_ERROR_USAGE, "--%s", hri_near_end(&search));
  return hri_hint(error, HR_ERROR_USAGE, "headroom %s --help", command_of(config)->name);
}

static hr_status missing_value(const hr_field *o, hr_error *error) {
  hri_fail(error, HR_ERROR_USAGE, "--%s wants a value", o->name);
  return hri_hint(error, HR_ERROR_USAGE, "--%s %s", o->name, o->operand);
}

/* The words after an option that takes one value, or all up to the next option. */
static hr_status take_values(arguments *args, option_id id, hr_error *error) {
  const hr_field *o = option_get(id);
  bool first = true;
  while (args->next < args->count) {
    const char *word = args->words[args->next];
    hr_status status;
    /* Free text may start with dashes; anything else that does is a forgotten value. */
    if (o->kind != HR_FIELD_TEXT && !o->one_each && strncmp(word, "--", 2) == 0) break;
    if ((!first || o->alone) && word[0] == '-' && word[1]) break;
    args->next++;
    first = false;
    status = config_set(args->config, id, word, ORIGIN_FLAG, "", error);
    if (status != HR_OK || o->kind != HR_FIELD_PATHS || o->one_each) return status;
  }
  if (first && o->alone) return config_set(args->config, id, o->alone, ORIGIN_FLAG, "", error);
  return first ? missing_value(o, error) : HR_OK;
}

static hr_status take_option(arguments *args, const char *word, hr_error *error) {
  const char *equals = strchr(word, '=');
  char name[64];
  bool negated = false;
  option_id id;
  size_t length = equals ? (size_t)(equals - word) - 2 : strlen(word) - 2;
  (void)snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), word + 2);
  id = option_find(name, false, args->config->command);
  if (id == option_count() && strncmp(name, "no-", 3) == 0) {
    id = option_find(name + 3, false, args->config->command);
    negated = true;
    if (id < option_count() && (option_get(id)->kind != HR_FIELD_FLAG || equals)) id = option_count();
  }
  if (id == option_count() || !(option_get(id)->commands & args->config->command)) {
    char shown[80];
    (void)snprintf(shown, sizeof shown, "--%s", name);
    return unknown_option(args->config, shown, name, error);
  }
  if (equals) return config_set(args->config, id, equals + 1, ORIGIN_FLAG, "", error);
  if (option_get(id)->kind == HR_FIELD_FLAG) { /* on and off may also stand behind it: --shuffle off */
    const char *next = args->next < args->count && !negated ? args->words[args->next] : "";
    bool switched = strcmp(next, "on") == 0 || strcmp(next, "off") == 0;
    args->next += switched;
    return config_set(args->config, id, switched ? next : negated ? "false" : "true", ORIGIN_FLAG, "", error);
  }
  return take_values(args, id, error);
}

static hr_status take_operand(arguments *args, char *word, hr_error *error) {
  cli_config *config = args->config;
  const cli_command *command = command_of(config);
  args->operands++;
  if (!*word) {
    hri_fail(error, HR_ERROR_USAGE, "argument %u is empty: a variable of the shell may be unset", args->operands);
    return hri_hint(error, HR_ERROR_USAGE, "headroom %s %s", command->name, command->operands);
  }
  if (config->command & HR_FOR_JOBS && config_origin(config, &config->run.model_source) != ORIGIN_FLAG)
    return config_set(config, option_at(config, &config->run.model_source), word, ORIGIN_FLAG, "", error);
  if (config->command & HR_FOR_DATA)
    return config_set(config, option_at(config, &config->run.data_paths), word, ORIGIN_FLAG, "", error);
  if (config->operand_count < command->operand_count) {
    config->operands[config->operand_count++] = word;
    return HR_OK;
  }
  hri_fail(error, HR_ERROR_USAGE, "'%s' is one argument too many", word);
  return hri_hint(error, HR_ERROR_USAGE, "headroom %s %s", command->name, command->operands);
}

hr_status config_arguments(cli_config *config, int count, char **words, hr_error *error) {
  arguments args = {.config = config, .count = count, .words = words};
  bool operands_only = false;
  while (args.next < count) {
    char *word = words[args.next++];
    hr_status status;
    if (!operands_only && strcmp(word, "--") == 0) {
      operands_only = true;
      continue;
    }
    if (operands_only || word[0] != '-' || !word[1]) status = take_operand(&args, word, error);
    else if (strcmp(word, "-h") == 0)
      status = config_set(config, option_at(config, &config->own.help), "true", ORIGIN_FLAG, "", error);
    else if (strcmp(word, "-q") == 0 && option_get(option_at(config, &config->own.quiet))->commands & config->command)
      status = config_set(config, option_at(config, &config->own.quiet), "true", ORIGIN_FLAG, "", error);
    else if (strncmp(word, "--", 2) == 0) status = take_option(&args, word, error);
    else status = unknown_option(config, word, word + 1, error);
    if (status != HR_OK) return status;
  }
  return HR_OK;
}

hr_status config_refuse_idle(const cli_config *config, const void *const *members, size_t count, const char *where,
                             const char *remedy, hr_error *error) {
  for (size_t k = 0; k < count; k++) {
    if (config_origin(config, members[k]) != ORIGIN_FLAG) continue;
    hri_fail(error, HR_ERROR_USAGE, "--%s does nothing %s", option_get(option_at(config, members[k]))->name, where);
    return hri_hint(error, HR_ERROR_USAGE, "%s", remedy);
  }
  return HR_OK;
}

static bool is_one_of(hr_optimizer optimizer, const hr_optimizer *list, size_t count) {
  for (size_t k = 0; k < count; k++)
    if (list[k] == optimizer) return true;
  return false;
}
#define IS_ONE_OF(optimizer, ...)                                                                                      \
  is_one_of((optimizer), (const hr_optimizer[]){__VA_ARGS__},                                                          \
            sizeof(hr_optimizer[]){__VA_ARGS__} / sizeof(hr_optimizer))

void config_warn_unused(const cli_config *config) {
  const hr_job *job = &config->job;
  const hr_optimizer o = job->optimizer;
  const bool adam = IS_ONE_OF(o, HR_OPTIMIZER_ADAMW, HR_OPTIMIZER_ADAMW8BIT),
             in_codes = IS_ONE_OF(o, HR_OPTIMIZER_ADAMW8BIT, HR_OPTIMIZER_LION8BIT),
             lion = IS_ONE_OF(o, HR_OPTIMIZER_LION, HR_OPTIMIZER_LION8BIT), adafactor = o == HR_OPTIMIZER_ADAFACTOR,
             skips = job->on_nonfinite == HR_ON_NONFINITE_SKIP || job->precision == HR_PRECISION_FP16;
  const struct {
    const void *member;
    bool used;
    const void *by;
    const char *remedy;
  } rules[] = {
      {&job->beta1, adam || lion, &job->optimizer, "--optimizer adamw or lion"},
      {&job->epsilon, adam, &job->optimizer, "--optimizer adamw"},
      {&job->momentum, o == HR_OPTIMIZER_MOMENTUM, &job->optimizer, "--optimizer momentum"},
      {&job->adafactor_decay, adafactor, &job->optimizer, "--optimizer adafactor"},
      {&job->adafactor_epsilon, adafactor, &job->optimizer, "--optimizer adafactor"},
      {&job->adafactor_clip, adafactor, &job->optimizer, "--optimizer adafactor"},
      {&job->states_8bit, in_codes, &job->optimizer, "--optimizer adamw8bit or lion8bit"},
      {&job->decay, job->schedule == HR_SCHEDULE_WSD, &job->schedule, "--schedule wsd"},
      {&job->min_lr_ratio, job->schedule != HR_SCHEDULE_CONSTANT, &job->schedule, "--schedule linear, cosine or wsd"},
      {&job->max_skipped, skips, &job->on_nonfinite, "--on-nonfinite skip"},
      {&job->epochs, config_origin(config, &job->steps) != ORIGIN_FLAG, &job->steps, "--epochs without --steps"},
  };
  for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
    char value[OPTION_VALUE_BYTES];
    const option_id by = option_at(config, rules[k].by);
    if (rules[k].used || config_origin(config, rules[k].member) != ORIGIN_FLAG) continue;
    (void)fprintf(stderr, "warning: --%s does nothing with --%s %s: %s, or leave it out\n",
                  option_get(option_at(config, rules[k].member))->name, option_get(by)->name,
                  config_value_text(config, by, value), rules[k].remedy);
  }
}

/* ---- environment ---- */

extern char **environ;

void config_environment_name(const hr_field *o, char out[64]) {
  size_t used = (size_t)snprintf(out, 64, "HEADROOM_%s", o->name);
  for (size_t i = 0; i < used && i < 63; i++) out[i] = (char)(out[i] == '-' ? '_' : toupper((unsigned char)out[i]));
}

const cli_variable config_variables[] = {
    {"HEADROOM_ISA",
     "the instruction level to use: base, avx2, avx512, avx512bf16 or amx, on Arm base, neon or neonbf16"},
    {"HEADROOM_CACHE",
     "where a probe of this machine is stored, instead of XDG_CACHE_HOME/headroom or ~/.cache/headroom"},
    {NULL, NULL},
};

/* Of the tests of this program, which reads none of them. */
static const char *const test_variables[] = {"HEADROOM_TEST_", "HEADROOM_SHIM_", "HEADROOM_TORTURE", "HEADROOM_RECORD",
                                             "HEADROOM_BENCH_"};

static bool variable_is(const char *text, const char *name) {
  size_t length = strlen(name);
  return strncmp(text, name, length) == 0 && text[length] == '=';
}

static bool variable_is_known(const char *text) {
  char name[64];
  for (option_id id = 0; id < option_count(); id++) {
    config_environment_name(option_get(id), name);
    if (!option_get(id)->flag_only && variable_is(text, name)) return true;
  }
  for (const cli_variable *v = config_variables; v->name; v++)
    if (variable_is(text, v->name)) return true;
  for (size_t i = 0; i < sizeof test_variables / sizeof *test_variables; i++)
    if (strncmp(text, test_variables[i], strlen(test_variables[i])) == 0) return true;
  return false;
}

static void warn_of_variable(const char *text) {
  char word[96], said[160], names[MAX_OPTIONS][64]; /* what is offered is borrowed */
  const size_t prefix = strlen("HEADROOM_");
  hri_near search;
  (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(text, "="), text);
  hri_near_begin(&search, word + prefix); /* which all share: it would make anything look near */
  for (option_id id = 0; id < option_count(); id++) {
    config_environment_name(option_get(id), names[id]);
    if (!option_get(id)->flag_only) hri_near_offer(&search, names[id] + prefix);
  }
  for (const cli_variable *v = config_variables; v->name; v++) hri_near_offer(&search, v->name + prefix);
  (void)snprintf(said, sizeof said, "the environment has %s, which nothing reads", word);
  screen_say(stderr, STYLE_WARN, "warning:", said);
  if (hri_near_end(&search)) (void)fprintf(stderr, "  try: HEADROOM_%s\n", hri_near_end(&search));
}

void config_environment_unknown(void) {
  for (char **variable = environ; variable && *variable; variable++)
    if (strncmp(*variable, "HEADROOM_", 9) == 0 && !variable_is_known(*variable)) warn_of_variable(*variable);
}

hr_status config_environment(cli_config *config, hr_error *error) {
  for (option_id id = 0; id < option_count(); id++) {
    const hr_field *o = option_get(id);
    char name[64], place[96];
    const char *text;
    hr_status status = HR_OK;
    if (o->flag_only || !(o->commands & config->command)) continue;
    config_environment_name(o, name);
    text = getenv(name);
    if (!text || !*text) continue;
    (void)snprintf(place, sizeof place, "environment %s", name);
    if (o->kind != HR_FIELD_PATHS || o->one_each) {
      status = config_set(config, id, text, ORIGIN_ENVIRONMENT, place, error);
      if (status != HR_OK) return status;
      continue;
    }
    while (*text && status == HR_OK) { /* like PATH: colons between them */
      const char *end = strchrnul(text, ':');
      char *path = text_copy(text, (size_t)(end - text));
      if (*path) status = config_set(config, id, path, ORIGIN_ENVIRONMENT, place, error);
      free(path);
      text = *end ? end + 1 : end;
    }
    if (status != HR_OK) return status;
  }
  return HR_OK;
}

/* ---- --resume ---- */

/* Of two options that say the same in different words, what a person says now beats what the run remembers. */
static bool overruled(const cli_config *config, option_id id) {
  if (id == option_at(config, &config->job.steps))
    return config_origin(config, &config->job.epochs) ==
           ORIGIN_FLAG; /* not what lies in the environment for all runs */
  if (id == option_at(config, &config->job.accumulate))
    return config_origin(config, &config->job.batch_tokens) == ORIGIN_FLAG;
  return false;
}

/* What the planner was to choose it chose when the run began. */
static bool chosen_by_run(const cli_config *config, option_id id) {
  return id == option_at(config, &config->job.micro_batch) && config->job.micro_batch == HR_MICRO_BATCH_AUTO;
}

hr_status config_resume(cli_config *config, hr_error *error) {
  const char *directory = config->run.resume_directory, *text;
  char place[128];
  hr_run_record *run;
  hr_status status;
  bool skip[MAX_OPTIONS] = {false};
  if (!directory) return HR_OK;
  status = hr_run_open(directory, config->run.resume_from, &run, error);
  if (status == HR_ERROR_USAGE && config_chosen(config, &config->run.model_source))
    return HR_OK; /* run.json may be gone: its checkpoints decide */
  if (status != HR_OK) return status;
  (void)snprintf(place, sizeof place, "run %.100s", directory);
  for (option_id id = 0; id < option_count(); id++) /* asked before any of them is set */
    skip[id] = !(option_get(id)->commands & HR_FOR_TRAIN) ||
               (config->settings[id].origin > ORIGIN_DEFAULT && !chosen_by_run(config, id)) || overruled(config, id);
  if (chosen_by_run(config, option_at(config, &config->job.micro_batch)))
    config->settings[option_at(config, &config->job.micro_batch)].origin = ORIGIN_DEFAULT; /* the run's number counts */
  for (option_id id = 0; id < option_count() && status == HR_OK; id++)
    for (uint32_t k = 0; !skip[id] && status == HR_OK && (text = hr_run_option(run, option_get(id)->name, k)); k++)
      if (*text || option_get(id)->kind == HR_FIELD_TEXT)
        status = config_set(config, id, text, ORIGIN_RUN, place, error);
  hr_run_close(run);
  return status;
}

struct hr_hold *config_hold_model(cli_config *config) {
  setting *model = &config->settings[option_at(config, &config->run.model_source)];
  char path[4096];
  hr_hold *hold;
  if (!model->text || !model->text[0]) return NULL;
  hold = hr_hold_take(model->text, path);
  if (!hold) return NULL;
  free(model->text);
  config->run.model_source = model->text = text_copy(path, strlen(path));
  return hold;
}

/* ---- --show-config ---- */

static const char *origin_text(const setting *v) {
  if (v->origin == ORIGIN_FLAG) return "flag";
  return v->origin == ORIGIN_DEFAULT || v->origin == ORIGIN_UNSET ? "default" : v->place;
}

/* Plain YAML scalars need no quotes when they are numbers, sizes or bare words. */
static bool needs_quotes(const char *text) {
  static const char *const reserved[] = {"true", "false", "null", "yes", "no", "on", "off", "~"};
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
    if (strcmp(text, reserved[i]) == 0) return true;
  if (!*text || !isalnum((unsigned char)*text)) return true;
  for (; *text; text++)
    if (!isalnum((unsigned char)*text) && !strchr("-_./%", *text)) return true;
  return false;
}

/* A YAML double-quoted scalar. */
static void print_quoted(const char *text) {
  (void)putchar('"');
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') (void)printf("\\%c", c);
    else if (c == '\n') (void)fputs("\\n", stdout);
    else if (c < 0x20 || c == 0x7f) (void)printf("\\x%02x", c);
    else (void)putchar(c);
  }
  (void)putchar('"');
}

static void print_scalar(const char *text, hr_field_kind kind) {
  if (kind != HR_FIELD_FLAG && needs_quotes(text)) print_quoted(text);
  else (void)fputs(text, stdout);
}

static bool stands_for_something(const hr_field *o, const hr_value *v) {
  if (o->kind == HR_FIELD_FLAG) return o->zero && !v->flag;
  return o->zero && (o->kind == HR_FIELD_U32 || o->kind == HR_FIELD_U64) && v->count == 0;
}

/* A value as text, however long: texts and paths are a person's, and a recipe made of them is theirs too. */
static char *whole_text(const cli_config *config, option_id id) {
  const hr_field *o = option_get(id);
  char text[OPTION_VALUE_BYTES], *whole;
  hr_value value;
  size_t bytes = 1, used = 0;
  config_value(config, id, &value);
  if (o->kind == HR_FIELD_PATHS) {
    for (uint32_t i = 0; i < value.list_count; i++) bytes += strlen(value.list[i]) + 1;
    whole = text_alloc(bytes);
    for (uint32_t i = 0; i < value.list_count; i++)
      used += (size_t)snprintf(whole + used, bytes - used, "%s%s", i ? " " : "", value.list[i]);
    return whole;
  }
  if ((o->kind == HR_FIELD_TEXT || o->kind == HR_FIELD_NAME || o->kind == HR_FIELD_PATH) && value.text)
    return text_copy(value.text, strlen(value.text));
  (void)config_value_text(config, id, text);
  return text_copy(text, strlen(text));
}

static void show_yaml(const cli_config *config, option_id id) {
  const hr_field *o = option_get(id);
  const setting *s = &config->settings[id];
  char *text;
  hr_value value;
  config_value(config, id, &value);
  if (s->origin == ORIGIN_UNSET || (stands_for_something(o, &value) && s->origin <= ORIGIN_DEFAULT)) {
    (void)printf("# %s: %s\n", o->name, o->zero ? o->zero : "(not set)");
    return;
  }
  (void)printf("%s: ", o->name);
  if (o->kind == HR_FIELD_PATHS) {
    for (uint32_t i = 0; i < value.list_count; i++) {
      (void)fputs(i ? ", " : "[", stdout);
      print_scalar(value.list[i], o->kind);
    }
    (void)fputs("]", stdout);
  } else {
    text = whole_text(config, id);
    print_scalar(text, o->kind);
    free(text);
  }
  (void)printf("  # %s\n", origin_text(s));
}

static void show_json(const cli_config *config, option_id id, json_writer *json) {
  const hr_field *o = option_get(id);
  const setting *s = &config->settings[id];
  char *text = whole_text(config, id);
  hr_value value;
  bool open; /* decided where the data are */
  config_value(config, id, &value);
  open = o->kind == HR_FIELD_FLAG && stands_for_something(o, &value) && s->origin <= ORIGIN_DEFAULT;
  json_write_open_flat(json, o->name, '{');
  json_write_text(json, "value", s->origin == ORIGIN_UNSET || open ? NULL : text);
  json_write_text(json, "origin", origin_text(s));
  json_write_close(json, '}');
  free(text);
}

void config_show(const cli_config *config) {
  json_writer json;
  bool as_json = config->own.json;
  const char *group = "";
  option_id order[MAX_OPTIONS];
  if (as_json) {
    json_write_begin(&json, stdout);
    json_write_open(&json, "config", '{');
  }
  options_grouped(order);
  for (uint32_t i = 0; i < option_count(); i++) {
    const option_id id = order[i];
    const hr_field *o = option_get(id);
    if (!(o->commands & config->command) || o->flag_only || id == option_at(config, &config->own.recipe)) continue;
    if (as_json) {
      show_json(config, id, &json);
      continue;
    }
    if (strcmp(group, o->group) != 0) (void)printf("%s# %s\n", *group ? "\n" : "", o->group);
    group = o->group;
    show_yaml(config, id);
  }
  if (!as_json) return;
  json_write_close(&json, '}');
  json_write_end(&json);
}

hr_status config_show_for(cli_config *config, hr_purpose purpose, hr_error *error) {
  hr_status status = config->run.model_source ? config_job(config, purpose, error) : HR_OK;
  const bool rows = status == HR_OK && config->job_ready && config->job.rows_choice == HR_ROWS_OPEN;
  if (status == HR_OK && config->job_ready &&
      (rows || plan_chooses_levels(&config->job))) { /* what will run, not the word */
    hr_job chosen = config->job;
    status = rows ? hr_plan_rows(&chosen, NULL, error) : hr_plan_recompute(&chosen, NULL, NULL, error);
    if (status == HR_OK) config->job = chosen;
  }
  if (status == HR_OK) config_show(config);
  return status;
}
