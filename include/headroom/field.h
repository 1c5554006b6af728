/* Fields: what a job and a run are made of, one row each, and the one way between a field's text and its value.
 *
 * A row says what a field is called, what it may hold, where it lies, what it means and who takes it. The options of
 * the commands, their help, the manual page, recipes, JSON, run.json, what a resume takes over or refuses, the options
 * in which the planner says a change, and hr_job_set are loops over the rows; nothing else lists the fields. A program
 * may have rows of its own, over a struct of its own (HR_HOME_OTHER), and read them with the same functions.
 *
 *   text --hr_field_read--> value --hr_field_store--> struct --hr_field_load--> value --hr_field_text--> text
 *
 * Threads: rows are constant; the functions touch nothing but their arguments. */
#ifndef HEADROOM_FIELD_H
#define HEADROOM_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headroom/job.h>
#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hr_field_kind {
  HR_FIELD_FLAG = 0,  /* bool */
  HR_FIELD_U32,       /* uint32_t: a whole number, or one of `words` that stand for `word_values` */
  HR_FIELD_U64,       /* uint64_t: likewise */
  HR_FIELD_NUMBER,    /* double, finite; or one of `words` that stand for `word_numbers` */
  HR_FIELD_PAIR,      /* two doubles, at offset and at second: "0.9,0.999" */
  HR_FIELD_SIZE,      /* uint64_t bytes; or a share of what there is, a double at second: "6GiB", "90%" */
  HR_FIELD_CHOICE,    /* an enumeration: one of `words`, in the order of its values from 0 on */
  HR_FIELD_RECOMPUTE, /* hr_recompute */
  HR_FIELD_DEVICE,    /* the name of an hr_device; hr_job_finish looks it up */
  HR_FIELD_WORD,      /* const char *: one of `words` */
  HR_FIELD_TEXT,      /* const char *, any text, NULL: not set */
  HR_FIELD_NAME,      /* const char *, likewise, never empty */
  HR_FIELD_PATH,      /* const char *, likewise: a shell offers files */
  HR_FIELD_PATHS,     /* const char *const *, and a uint32_t count at second */
  HR_FIELD_SHARE      /* double, a share of a whole: "1%" or "0.01" */
} hr_field_kind;

/* The commands that take a field as an option: a set. */
enum {
  HR_FOR_PLAN = 1 << 0,
  HR_FOR_TRAIN = 1 << 1,
  HR_FOR_EVALUATE = 1 << 2,
  HR_FOR_GENERATE = 1 << 3,
  HR_FOR_DEVICES = 1 << 4,
  HR_FOR_HELP = 1 << 5,
  HR_FOR_VERSION = 1 << 6,
  HR_FOR_EXPLAIN = 1 << 7,
  HR_FOR_CHAT = 1 << 8,
  HR_FOR_TOKENIZE = 1 << 9,
  HR_FOR_CONVERT = 1 << 10,
  HR_FOR_DATA = 1 << 11,
  HR_FOR_INSPECT = 1 << 12,
  HR_FOR_REPLAY = 1 << 13,
  HR_FOR_MERGE = 1 << 14,
  HR_FOR_JOBS = HR_FOR_PLAN | HR_FOR_TRAIN | HR_FOR_EVALUATE | HR_FOR_GENERATE | HR_FOR_CHAT,
  HR_FOR_ALL = HR_FOR_JOBS | HR_FOR_DEVICES | HR_FOR_HELP | HR_FOR_VERSION | HR_FOR_EXPLAIN | HR_FOR_DATA |
               HR_FOR_CONVERT | HR_FOR_TOKENIZE | HR_FOR_REPLAY | HR_FOR_INSPECT | HR_FOR_MERGE
};

/* The struct that `offset` is of. */
typedef enum hr_home { HR_HOME_JOB = 0, HR_HOME_RUN, HR_HOME_OTHER } hr_home;

/* What another value means for a run that goes on. */
typedef enum hr_identity {
  HR_IDENTITY_FREE =
      0, /* refused by nothing: memory, time, what is written; or a rule of its own compares it (data, steps) */
  HR_IDENTITY_MATHEMATICS, /* another result: refused unless it is allowed by name */
  HR_IDENTITY_MACHINE      /* the same mathematics in other bits: said and recorded */
} hr_identity;

/* Whether run.json holds it, and a resumed run takes it over. */
typedef enum hr_keep {
  HR_KEEP = 0,   /* both */
  HR_KEEP_GIVEN, /* held; taken over when a person gave it, else the machine decides anew */
  HR_KEEP_NEVER  /* of one process */
} hr_keep;

/* What another value does to the result, all else equal. Rows and micro-steps count as ROUNDING: a planner changes them
 * together, so that the rows of a step stay the same. */
typedef enum hr_effect {
  HR_EFFECT_SAME_BITS = 0,
  HR_EFFECT_ROUNDING, /* the same mathematics, other rounding */
  HR_EFFECT_NUMERICS, /* other numerics */
  HR_EFFECT_ALGORITHM /* another algorithm */
} hr_effect;

typedef struct hr_field {
  const char *name; /* the option without its dashes; also the key of a recipe */
  hr_field_kind kind;
  const char *group, *operand,
      *help;         /* heading, "N", what it is ("; inspect: ..." is a clause for that command alone) */
  uint32_t commands; /* HR_FOR_* */
  hr_home home;
  size_t offset, second;
  const char *initial;          /* the default as text; NULL: not set, or 0 with `zero` */
  const char *zero;             /* what 0, or not being set, stands for */
  const char *alone;            /* the value of an option that stands without one; NULL: it wants a value */
  const char *remedy;           /* what to do about a value that is refused, when there is more to say than its range */
  const char *const *words;     /* WORD, CHOICE, whole numbers; NULL at the end */
  const uint64_t *word_values;  /* what the words of a whole number stand for */
  const double *word_numbers;   /* what the words of a NUMBER stand for, none of them in its range */
  const char *number;           /* what else than one of these words it may be, for people: "a number of events" */
  const char *const *suggested; /* beginnings that a shell offers, for kinds without words */
  const char *(*refuses)(const char *text); /* NAME with a grammar of its own: why it is none of it, NULL: it is */
  uint64_t least, most;                     /* whole numbers; most 0: what the kind holds */
  double low, high; /* NUMBER, both of a PAIR; high may be infinite; both 0: any finite number */
  bool above_low, below_high;
  hr_identity identity;
  hr_keep keep;
  hr_effect effect;
  uint64_t given;  /* HR_GIVEN_*: told apart from the default when a person gave it */
  uint32_t said;   /* place among the options of a change (hr_job_options); 0: behind those that have one */
  bool as_asked;   /* hr_job_finish makes something else of it; what is shown is what was asked for */
  bool positional; /* an argument without a name */
  bool one_each;   /* PATHS: one text, of any kind, each time the option is given; no files */
  bool flag_only;  /* neither in the environment nor in recipes */
} hr_field;

/* The rows of jobs and runs, in the order in which people see them. */
HR_API uint32_t hr_field_count(void);
HR_API const hr_field *hr_field_get(uint32_t index);
HR_API const hr_field *hr_field_find(const char *name); /* NULL: there is none */

typedef struct hr_value {
  bool flag;
  uint64_t count;   /* whole numbers, bytes, place of a CHOICE among its words */
  double number[2]; /* NUMBER, PAIR, SHARE; SIZE: the share, 0 when `count` says bytes */
  const char *text; /* DEVICE, WORD, TEXT, NAME, PATH; one more of PATHS as it is read. Borrowed; NULL: not set */
  const char *const *list; /* PATHS */
  uint32_t list_count;
  hr_recompute recompute;
  uint32_t layer_count; /* of the model, when it is known: `recompute` is said for so many */
} hr_value;

/* Reads a text. USAGE names the field, the text and what may stand there; `place` says where it stood ("job.yaml:3"),
 * NULL or
 * "": at the option itself. The value borrows `text` (kinds with text). */
HR_CHECKED hr_status hr_field_read(const hr_field *field, const char *text, const char *place, hr_value *value,
                                   hr_error *error);
/* Whether a value lies in the range of its field; USAGE names field, value and range. What `zero` stands for is none of
 * it. */
HR_CHECKED hr_status hr_field_check(const hr_field *field, const hr_value *value, hr_error *error);
/* From and to the struct that the row is of: an hr_job, an hr_run_options, or the caller's own. */
HR_API void hr_field_load(const hr_field *field, const void *home, hr_value *value);
HR_API void hr_field_store(const hr_field *field, const hr_value *value, void *home);
/* False for texts, paths and sizes that say nothing. */
HR_API bool hr_field_is_set(const hr_field *field, const hr_value *value);
/* Whether a number stands for one of the field's words. */
HR_API bool hr_field_says_word(const hr_field *field, const hr_value *value);
/* The value as text: reading it gives the same value again, of a share of a size its first ten digits. "" when it is not
 * set. Returns out; what does not fit is cut. PATHS stand behind each other with blanks between, for people. */
enum { HR_FIELD_TEXT_BYTES = 8192 }; /* holds every value but long texts and paths */
HR_API char *hr_field_text(const hr_field *field, const hr_value *value, char *out, uint64_t out_bytes);

/* ---- a job by the names of its fields ---- */

/* Sets a field from text as the command line reads it, and marks it as given. "device" takes its name ("model" is
 * opened: hr_model_open). USAGE when there is no such field (hint: the nearest one) or the text is refused; the job is
 * then as before. */
HR_CHECKED hr_status hr_job_set(hr_job *job, const char *name, const char *text, hr_error *error);
/* Its value as text into out; false when a job has no such field, "" when it is not set. */
HR_API bool hr_job_get(const hr_job *job, const char *name, char *out, uint64_t out_bytes);

/* The options that make `after` of `before`: "--recompute block --micro-batch 2 --accumulate 4", "" when nothing
 * differs.
 * What a finished job made of a value that nobody gave (HR_GIVEN_LOSS_CHUNK: the chunk for its rows) is no change.
 * Returns out. */
HR_API char *hr_job_options(const hr_job *before, const hr_job *after, char *out, uint64_t out_bytes);
/* The inverse: sets what such a text says, one hr_job_set for each option. USAGE: the job is as before; also for fields
 * whose text a job borrows (lora, adapter), which hr_job_set sets. */
HR_CHECKED hr_status hr_job_set_options(hr_job *job, const char *options, hr_error *error);
/* The gravest effect among the fields in which two jobs differ. */
HR_API hr_effect hr_job_effect(const hr_job *before, const hr_job *after);
HR_API const char *hr_effect_name(hr_effect effect); /* "same bits", "other rounding", ... */

#ifdef __cplusplus
}
#endif
#endif
