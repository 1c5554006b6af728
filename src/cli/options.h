/* The options: one table from which parsing, --help, the man page, shell completion, --show-config, the recipe keys and
 * the environment names are made.
 *
 *   flag           --micro-batch 4      (strongest)
 *   environment    HEADROOM_MICRO_BATCH=4
 *   recipe         micro-batch: 4
 *   run            with --resume RUN: what RUN/run.json remembers
 *   default        of hr_job_init, or of the table      (weakest)
 *
 * Options that are fields of hr_job are bound to them by offset, so that the library holds their defaults and ranges.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headroom/job.h>
#include <headroom/status.h>

typedef enum option_id {
  OPTION_MODEL = 0,
  OPTION_SEQ,
  OPTION_MICRO_BATCH,
  OPTION_ACCUMULATE,
  OPTION_BATCH_TOKENS,
  OPTION_DEVICE,
  OPTION_BUDGET,
  OPTION_PRECISION,
  OPTION_MOMENTS,
  OPTION_WEIGHT_PACKING,
  OPTION_RECOMPUTE,
  OPTION_ATTENTION,
  OPTION_LOSS_CHUNK,
  OPTION_THREADS,
  OPTION_AUTO,
  OPTION_CHECK,
  OPTION_CONTEXT,
  OPTION_OPTIMIZER,
  OPTION_BETAS,
  OPTION_EPS,
  OPTION_WEIGHT_DECAY,
  OPTION_MOMENTUM,
  OPTION_UPDATE,
  OPTION_LR,
  OPTION_SCHEDULE,
  OPTION_WARMUP,
  OPTION_DECAY,
  OPTION_MIN_LR_RATIO,
  OPTION_CLIP,
  OPTION_ON_NONFINITE,
  OPTION_MAX_SKIPPED,
  OPTION_STEPS,
  OPTION_EPOCHS,
  OPTION_SEED,
  OPTION_DATA,
  OPTION_EVAL_DATA,
  OPTION_EVAL_EVERY,
  OPTION_EVAL_BATCHES,
  OPTION_FORMAT,
  OPTION_DOCUMENT_SEPARATOR,
  OPTION_CHAT_TEMPLATE,
  OPTION_LOSS,
  OPTION_TRUNCATE,
  OPTION_SKIP_BAD,
  OPTION_DATA_CACHE,
  OPTION_SHUFFLE,
  OPTION_PACKING,
  OPTION_OUT,
  OPTION_SAVE_EVERY,
  OPTION_KEEP,
  OPTION_SAVE_DTYPE,
  OPTION_RESUME,
  OPTION_FROM,
  OPTION_ALLOW_DIFFERENT,
  OPTION_SAME_BITS,
  OPTION_SAMPLE,
  OPTION_PROFILE,
  OPTION_RECORD_MEMORY,
  OPTION_PROMPT,
  OPTION_PROMPT_FILE,
  OPTION_CHAT,
  OPTION_SYSTEM,
  OPTION_MAX_TOKENS,
  OPTION_TEMPERATURE,
  OPTION_TOP_K,
  OPTION_TOP_P,
  OPTION_FOR,
  OPTION_FIXES,
  OPTION_TABLE,
  OPTION_TIMELINE,
  OPTION_DUMP,
  OPTION_FAIL_OVER,
  OPTION_PROBE,
  OPTION_PROBE_SECONDS,
  OPTION_DATA_MODEL,
  OPTION_EXAMPLES,
  OPTION_DECODE,
  OPTION_TOKENS,
  OPTION_STATS,
  OPTION_SPECIAL,
  OPTION_AT,
  OPTION_TOP,
  OPTION_BY,
  OPTION_HTML,
  OPTION_EXPORT,
  OPTION_VERIFY,
  OPTION_TYPE,
  OPTION_WITHOUT_TOKENIZER,
  OPTION_FORCE,
  OPTION_ALLOC_CONF,
  OPTION_SEARCH,
  OPTION_CAPACITY,
  OPTION_EMPTY_START,
  OPTION_TRACE,
  OPTION_RECIPE,
  OPTION_SHOW_CONFIG,
  OPTION_JSON,
  OPTION_QUIET,
  OPTION_COLOR,
  OPTION_MAN,
  OPTION_COMPLETION,
  OPTION_HELP,
  OPTION_COUNT
} option_id;

/* The commands that know an option: a bit set over command numbers (cli/commands.h). */
enum {
  FOR_PLAN = 1 << 0,
  FOR_TRAIN = 1 << 1,
  FOR_EVALUATE = 1 << 2,
  FOR_GENERATE = 1 << 3,
  FOR_DEVICES = 1 << 4,
  FOR_HELP = 1 << 5,
  FOR_VERSION = 1 << 6,
  FOR_EXPLAIN = 1 << 7,
  FOR_TOKENIZE = 1 << 9,
  FOR_CONVERT = 1 << 10,
  FOR_DATA = 1 << 11,
  FOR_REPLAY = 1 << 13,
  FOR_INSPECT = 1 << 12,
  FOR_JOBS = FOR_PLAN | FOR_TRAIN | FOR_EVALUATE | FOR_GENERATE,
  FOR_ALL = FOR_JOBS | FOR_DEVICES | FOR_HELP | FOR_VERSION | FOR_EXPLAIN | FOR_DATA | FOR_CONVERT | FOR_TOKENIZE | FOR_REPLAY | FOR_INSPECT
};

typedef enum option_kind {
  KIND_FLAG = 0, /* --name, --no-name, --name=true */
  KIND_COUNT,    /* a whole number */
  KIND_NUMBER,   /* a finite number */
  KIND_SIZE,     /* bytes or a share */
  KIND_CHOICE,   /* one of option.choices */
  KIND_TEXT,     /* any text, even one that starts with dashes */
  KIND_PATH,
  KIND_PATHS, /* --name A B C: all that follows up to the next option */
  KIND_WORD,  /* a text with a grammar of its own, see check_word in options.c */
  KIND_BETAS, /* two numbers with a comma */
  KIND_CHUNK  /* auto, off or a whole number */
} option_kind;

typedef enum field_kind { FIELD_NONE = 0, FIELD_U32, FIELD_U64, FIELD_DOUBLE, FIELD_BOOL, FIELD_ENUM } field_kind;

typedef struct option {
  const char *name; /* without dashes; also the recipe key */
  option_kind kind;
  unsigned commands;
  const char *group, *operand, *help;
  const char *initial;        /* default as text, for options that are no field of hr_job; NULL: not set */
  const char *zero;           /* what the value 0 stands for */
  const char *const *choices; /* in the order of the enumerators of the field, NULL at the end */
  field_kind field;
  size_t offset;
  uint64_t low;               /* least COUNT */
  uint64_t given;             /* HR_GIVEN_* */
  bool positional, flag_only; /* flag_only: no environment name and no recipe key */
} option;

const option *option_get(option_id id);
/* OPTION_COUNT when there is none of that name. Positional options are found only when `positional` is true. */
option_id option_find(const char *name, bool positional);

typedef enum origin { ORIGIN_UNSET = 0, ORIGIN_DEFAULT, ORIGIN_RUN, ORIGIN_RECIPE, ORIGIN_ENVIRONMENT, ORIGIN_FLAG } origin;

typedef struct value {
  origin origin;
  char place[160];    /* "recipe job.yaml:3", "environment HEADROOM_SEQ" */
  bool flag, percent; /* percent: number[0] holds the share */
  uint64_t count;     /* COUNT, SIZE, CHUNK, index of a CHOICE */
  double number[2];
  char *text;  /* TEXT, PATH, WORD */
  char **list; /* PATHS */
  uint32_t list_count;
} value;

typedef struct cli_config {
  unsigned command; /* one FOR_* bit */
  hr_job job;       /* defaults first; finished by config_job */
  hr_job asked;     /* the same before hr_job_finish, to start variations from */
  bool job_ready;
  value values[OPTION_COUNT];
  char *operands[2]; /* positional arguments that are not MODEL: the topic of help, source and target of convert, ... */
  uint32_t operand_count;
} cli_config;

void config_init(cli_config *config, unsigned command);
void config_deinit(cli_config *config);

/* Reads the arguments after the command's name; origin FLAG. USAGE names the option and the nearest known one. */
hr_status config_arguments(cli_config *config, int count, char **arguments, hr_error *error);
/* Reads HEADROOM_* of the options that the command knows, then the recipe if one is named. */
hr_status config_environment(cli_config *config, hr_error *error);
hr_status config_recipe(cli_config *config, hr_error *error);

/* With --resume RUN: takes over what the run was asked for and nobody said now. USAGE when it is no run. */
hr_status config_resume(cli_config *config, hr_error *error);

/* Holds MODEL while it is read when it is a checkpoint of a run, which may be a link that moves on (hr_hold_take). NULL: it is none. */
struct hr_hold *config_hold_model(cli_config *config);

/* Sets one value from text if nothing stronger has set it; repeated PATHS of the same origin are appended. `place` says
 * where the text stands, "" for a flag. */
hr_status config_set(cli_config *config, option_id id, const char *text, origin from, const char *place,
                     hr_error *error);

/* Opens the model and the device, fills config->job from the values and finishes it. */
hr_status config_job(cli_config *config, hr_purpose purpose, hr_error *error);
/* Takes over the fields of a job that the planner changed (--auto), for messages and --json. */
void config_take_job(cli_config *config, const hr_job *job);

/* A value as text, as a flag or a recipe would hold it; `out` has at least OPTION_VALUE_BYTES. Empty when not set. */
enum { OPTION_VALUE_BYTES = 1024 };
char *config_value_text(const cli_config *config, option_id id, char out[OPTION_VALUE_BYTES]);
/* --show-config: every value with its origin, as a recipe (text) or as JSON. */
void config_show(const cli_config *config);
/* The same after finishing the job, when a model is given: defaults that depend on it are then final. */
hr_status config_show_for(cli_config *config, hr_purpose purpose, hr_error *error);

static inline bool config_flag(const cli_config *config, option_id id) { return config->values[id].flag; }
static inline uint64_t config_count(const cli_config *config, option_id id) { return config->values[id].count; }
static inline const char *config_text(const cli_config *config, option_id id) { return config->values[id].text; }
/* True when a person chose the value, now or for the run that goes on. */
static inline bool config_chosen(const cli_config *config, option_id id) {
  return config->values[id].origin > ORIGIN_DEFAULT;
}

#endif
