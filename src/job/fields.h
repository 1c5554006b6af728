/* What the library alone needs of the table of fields (headroom/field.h, fields.c): words of enumerations, what a
 * resume takes over and compares, and the names that may be allowed to differ. */
#ifndef HRI_JOB_FIELDS_H
#define HRI_JOB_FIELDS_H

#include <headroom/field.h>
#include <headroom/train.h>

#include "base/text.h"

/* The struct among the two that a row is of. */
static inline const void *hri_field_home(const hr_field *f, const hr_job *job, const hr_run_options *options) {
  return f->home == HR_HOME_JOB ? (const void *)job : (const void *)options;
}
/* The rows as files list them: those of the job, then those of the run. `index` counts up to hr_field_count(). */
const hr_field *hri_field_filed(uint32_t index);

/* Whether a field has its default. */
bool hri_field_is_default(const hr_field *field, const void *home);
/* Whether a resumed run takes this field over. */
bool hri_field_is_kept(const hr_field *field, const hr_job *job);

/* The value as run.json and checkpoints have it, so that reading it gives the same value again; false when it is not
 * set. Sizes are bytes: what a share was of is another matter on another day. PATHS: the index-th, false behind the
 * last; other kinds have index 0 only. */
bool hri_field_text(const hr_field *field, const void *home, uint32_t index, hri_text *out);
/* Text for JSON, which has no other bytes than UTF-8: as it is, or with what is none as \\xHH and \\ doubled (the
 * command line's escapes). */
void hri_field_escape(const char *text, hri_text *out);

/* Parts of values (value.c, recompute.c). */
bool hri_count_parse(const char *text, uint64_t *count); /* digits alone */
char *hri_number_text(double value, char out[40]); /* the shortest decimal that reads as the same double; returns out */
hr_status hri_recompute_read(const char *text, const char *where, hr_recompute *recompute, hr_error *error);
hr_status hri_recompute_check(const hr_recompute *recompute, const char *where, hr_error *error);

/* What is no field but decides what a run computes, or in which bits. */
enum { HRI_SPECIALS = 6 };
typedef struct hri_special {
  const char *name;
  hr_identity identity;
  const char *what; /* for people: what it stands for */
} hri_special;
extern const hri_special hri_specials[HRI_SPECIALS];
typedef enum hri_special_id {
  HRI_SPECIAL_MODEL = 0,
  HRI_SPECIAL_DATA,
  HRI_SPECIAL_TOKENIZER,
  HRI_SPECIAL_EVAL_DATA,
  HRI_SPECIAL_METRICS, /* from here on what the identity does not hold */
  HRI_SPECIAL_WAYS
} hri_special_id;

/* Whether --allow-different may name it. */
bool hri_identity_is_name(const char *name);
/* All such names with commas between them, for messages. */
void hri_identity_names(hri_text *out);

#endif
