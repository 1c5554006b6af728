/* The fields of a job and of its run, one row each: what a field is called (as the option is), where it lies, what it is worth
 * after the end of the process, and what it means for a resume that it changed. run.json, checkpoints, the identity of a resume and
 * the options that a resumed run takes over are loops over this table; nothing else lists the fields. */
#ifndef HRI_JOB_FIELDS_H
#define HRI_JOB_FIELDS_H

#include <headroom/train.h>

#include "base/text.h"

typedef enum hri_field_kind {
  HRI_FIELD_U32 = 0,
  HRI_FIELD_U64,
  HRI_FIELD_DOUBLE,
  HRI_FIELD_BOOL,
  HRI_FIELD_ENUM,     /* by name */
  HRI_FIELD_CHUNK,    /* u32: auto, off or a number */
  HRI_FIELD_BETAS,    /* two doubles */
  HRI_FIELD_RECOMPUTE,
  HRI_FIELD_TEXT,     /* const char *, NULL: not set */
  HRI_FIELD_PATHS     /* const char *const * and, right behind it, a u32 count */
} hri_field_kind;

/* What another value means for a run that goes on. */
typedef enum hri_identity {
  HRI_IDENTITY_FREE = 0,    /* memory, time or what is written: the result is the same */
  HRI_IDENTITY_MATHEMATICS, /* another result: refused unless it is allowed by name */
  HRI_IDENTITY_MACHINE      /* the same mathematics in other bits: said and recorded */
} hri_identity;

typedef enum hri_keep {
  HRI_KEEP = 0,    /* a resumed run takes it over */
  HRI_KEEP_GIVEN,  /* ... when a person gave it; else the machine decides anew */
  HRI_KEEP_NEVER   /* of one process */
} hri_keep;

typedef struct hri_field {
  const char *name; /* the option's, without dashes in front */
  hri_field_kind kind;
  bool of_run;      /* a field of hr_run_options, else of hr_job */
  size_t offset;
  const char *(*value_name)(int value); /* ENUM */
  hri_identity identity;
  hri_keep keep;
  uint64_t given;   /* HR_GIVEN_*, for KEEP_GIVEN */
} hri_field;

uint32_t hri_field_count(void);
const hri_field *hri_field_get(uint32_t index);
const hri_field *hri_field_find(const char *name); /* NULL: there is none */

/* The value as a person would write it, so that reading it gives the same value again; false when it is not set. PATHS: the
 * index-th, false behind the last; other kinds have index 0 only. */
bool hri_field_text(const hri_field *field, const hr_job *job, const hr_run_options *options, uint32_t index, hri_text *out);
/* Text for JSON, which has no other bytes than UTF-8: as it is, or with what is none as \\xHH and \\ doubled (the command line's escapes). */
void hri_field_escape(const char *text, hri_text *out);
/* The shortest decimal that reads as the same double. Returns out. */
char *hri_number_text(double value, char out[40]);
/* Whether a resumed run takes this field over. */
bool hri_field_is_kept(const hri_field *field, const hr_job *job);

/* What is no field but decides what a run computes, or in which bits. */
enum { HRI_SPECIALS = 5 };
typedef struct hri_special {
  const char *name;
  hri_identity identity;
  const char *what; /* for people: what it stands for */
} hri_special;
extern const hri_special hri_specials[HRI_SPECIALS];
typedef enum hri_special_id { HRI_SPECIAL_MODEL = 0, HRI_SPECIAL_DATA, HRI_SPECIAL_TOKENIZER, HRI_SPECIAL_EVAL_DATA, HRI_SPECIAL_METRICS } hri_special_id;

/* Whether --allow-different may name it. */
bool hri_identity_is_name(const char *name);
/* All such names with commas between them, for messages. */
void hri_identity_names(hri_text *out);

#endif
