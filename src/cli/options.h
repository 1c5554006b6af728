/* The options of all commands: the fields of jobs and runs (headroom/field.h) and behind them rows of the same type for
 * what is of the command line alone, over cli_settings. Parsing, --help, the man page, shell completion, --show-config,
 * recipe keys and environment names are loops over both; an option has its value in a member of cli_config, and is
 * named by that member.
 *
 *   flag           --micro-batch 4      (strongest)
 *   environment    HEADROOM_MICRO_BATCH=4
 *   recipe         micro-batch: 4
 *   run            with --resume RUN: what RUN/run.json remembers
 *   default        of the row           (weakest)
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headroom/field.h>
#include <headroom/inspect.h>
#include <headroom/status.h>
#include <headroom/train.h>

#include "cli/text.h"

/* What is no field of a job or a run. Texts are owned by the configuration. */
typedef struct cli_settings {
  const char *prompt, *prompt_file, *system; /* generate, chat */
  const char *const *stop;
  uint32_t stop_count;
  bool chat, render;
  uint64_t max_tokens;
  double temperature, top_p, min_p, repetition_penalty;
  uint32_t top_k;
  hr_purpose purpose; /* plan: --for */
  const char *table, *dump, *engine, *snapshot;
  bool fixes, timeline;
  uint64_t fail_over_bytes;
  double fail_over_share;
  bool probe; /* devices */
  double probe_seconds;
  bool decode, tokens, stats, special; /* tokenize */
  const char *model;                   /* --model of data and explain */
  uint64_t examples;
  uint64_t at; /* inspect: HR_AT_*, or a number of events */
  uint32_t top;
  hr_group_by by;
  const char *html;
  const char *const *export;
  uint32_t export_count;
  bool verify, wide;
  const char *type, *quantized; /* convert */
  bool without_tokenizer, force;
  const char *onto, *weights; /* merge */
  const char *alloc_conf;     /* replay */
  const char *engine_conf;    /* plan */
  uint32_t ranks;             /* plan */
  bool search, empty_start;
  uint64_t capacity_bytes;
  uint32_t trace;
  const char *log_json, *tensorboard, *metrics_file; /* train */
  uint64_t max_memory_bytes;                         /* inspect, explain, replay; 0: the share */
  double max_memory_share;
  const char *recipe, *completion;
  bool show_config, json, quiet, man, help;
  color_mode color;
} cli_settings;

/* Where an option stands: a number below option_count(). */
typedef uint32_t option_id;
uint32_t option_count(void);
const hr_field *option_get(option_id id);
/* option_count() when there is none of that name; of several the one that `command` (HR_FOR_...) knows, else the first.
 * Positional options are found only when `positional` is true. */
option_id option_find(const char *name, bool positional, unsigned command);
/* Finite numbers with commas between them: how many, or 0 when the text is anything else, or they are more than `most`.
 */
uint32_t options_numbers(const char *text, double *numbers, uint32_t most);

enum { MAX_OPTIONS = 160, MAX_OPERANDS = 17 };
/* All options with those of a group together, groups in the order of their first. */
void options_grouped(option_id order[MAX_OPTIONS]);

/* Formats of --export, in the order of hr_export_format; NULL at the end. */
extern const char *const export_names[];

typedef enum origin {
  ORIGIN_UNSET = 0,
  ORIGIN_DEFAULT,
  ORIGIN_RUN,
  ORIGIN_RECIPE,
  ORIGIN_ENVIRONMENT,
  ORIGIN_FLAG
} origin;

typedef struct setting {
  origin origin;
  char place[160]; /* "recipe job.yaml:3", "environment HEADROOM_SEQ" */
  char *text;      /* what a text borrows */
  char **list;     /* what PATHS borrow */
  uint32_t list_count;
} setting;

typedef struct cli_config {
  unsigned command; /* one HR_FOR_* bit */
  hr_job job;       /* defaults first; finished by config_job */
  hr_job asked;     /* the same before hr_job_finish */
  hr_run_options run;
  cli_settings own;
  bool job_ready;
  setting settings[MAX_OPTIONS];
  char *operands[MAX_OPERANDS]; /* positional arguments that are not MODEL: the topic of help, source and target of
                                   convert, ... */
  uint32_t operand_count;
} cli_config;

void config_init(cli_config *config, unsigned command);
void config_deinit(cli_config *config);

/* Reads the arguments after the command's name; origin FLAG. USAGE names the option and the nearest known one. */
hr_status config_arguments(cli_config *config, int count, char **arguments, hr_error *error);
/* Reads HEADROOM_* of the options that the command knows, then the recipe if one is named. */
hr_status config_environment(cli_config *config, hr_error *error);
hr_status config_recipe(cli_config *config, hr_error *error);
/* Warns of variables HEADROOM_* that nothing reads, with the nearest name: a slip there would change a job silently. */
void config_environment_unknown(void);
/* HEADROOM_ and the option's name in capitals with underscores. */
void config_environment_name(const hr_field *field, char out[64]);
/* What else is read from the environment, for people; the end has no name. */
typedef struct cli_variable {
  const char *name, *help;
} cli_variable;
extern const cli_variable config_variables[];

/* With --resume RUN: takes over what the run was asked for and nobody said now. USAGE when it is no run. */
hr_status config_resume(cli_config *config, hr_error *error);

/* Holds MODEL while it is read when it is a checkpoint of a run, which may be a link that moves on (hr_hold_take).
 * NULL: it is none. */
struct hr_hold *config_hold_model(cli_config *config);

/* The option whose value lies at a member of `config`: option_at(config, &config->own.json). */
option_id option_at(const cli_config *config, const void *member);
/* Sets one value from text if nothing stronger has set it; repeated PATHS of the same origin are appended. `place` says
 * where the text stands, "" for a flag. */
hr_status config_set(cli_config *config, option_id id, const char *text, origin from, const char *place,
                     hr_error *error);
static inline origin config_origin(const cli_config *config, const void *member) {
  return config->settings[option_at(config, member)].origin;
}
static inline bool config_option_chosen(const cli_config *config, option_id id) {
  return config->settings[id].origin > ORIGIN_DEFAULT;
}
/* USAGE for the first of these options that is given on the command line, where it would do nothing: `where` ends the
 * sentence "--NAME does nothing ", `remedy` says what to do. A recipe or the environment is for several commands. */
hr_status config_refuse_idle(const cli_config *config, const void *const *members, size_t count, const char *where,
                             const char *remedy, hr_error *error);
/* Warns of options of a training that its optimizer, its schedule or another option leave without a meaning, --momentum of
 * --optimizer sgd: what is offered beside a plan is the same command with some words more, which may do that. */
void config_warn_unused(const cli_config *config);
/* True when a person chose the value, now or for the run that goes on. */
static inline bool config_chosen(const cli_config *config, const void *member) {
  return config_origin(config, member) > ORIGIN_DEFAULT;
}

/* Opens the model, marks what was chosen as given and finishes config->job. */
hr_status config_job(cli_config *config, hr_purpose purpose, hr_error *error);

/* The value of an option: as it was asked for where hr_job_finish makes something else of it. */
void config_value(const cli_config *config, option_id id, hr_value *value);
/* A value as text, as a flag or a recipe would hold it; `out` has at least OPTION_VALUE_BYTES. Empty when not set. */
enum { OPTION_VALUE_BYTES = 1024 };
char *config_value_text(const cli_config *config, option_id id, char out[OPTION_VALUE_BYTES]);
/* --show-config: every value with its origin, as a recipe (text) or as JSON. */
void config_show(const cli_config *config);
/* The same after finishing the job, when a model is given: defaults that depend on it are then final. */
hr_status config_show_for(cli_config *config, hr_purpose purpose, hr_error *error);

#endif
