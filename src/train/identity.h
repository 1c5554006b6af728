/* Whether a run that goes on is the same run: the fields of job/fields.h and what is no field (the model's description,
 * the bytes of the data, the tokenizer), compared as text, by name. docs/run-directory.md states the three classes. */
#ifndef HRI_TRAIN_IDENTITY_H
#define HRI_TRAIN_IDENTITY_H

#include "base/json.h"
#include "job/fields.h"

/* What is no field, as numbers; 0 where there is none (no evaluation data). */
typedef struct hri_identity_facts {
  uint64_t special[HRI_SPECIALS]; /* by hri_special_id; METRICS and what follows are not used */
} hri_identity_facts;

/* Digest of the normalised description: what decides the mathematics, not names and directories. 0 when memory is
 * refused. */
uint64_t hri_model_digest(const hr_model *model);

/* "identity": {name: text}, and "machine": {name: text}. */
void hri_identity_put(hri_json_writer *w, const hr_job *job, const hr_run_options *options,
                      const hri_identity_facts *facts);
/* `halves`: some master stands in two halves (hri_range_split), on which bits depend. */
void hri_machine_put(hri_json_writer *w, const hr_job *job, const char *instruction_set, const char *libraries,
                     bool halves);

/* What was allowed to differ when the run went on before, as its run.json says. An attempt that ended before its first
 * checkpoint leaves the checkpoint that it went on from as it was, and a run.json with the new values: these are settled. */
typedef struct hri_settled {
  char path[4096];         /* of run.json, which `root` names in errors */
  hri_json root, identity; /* run.json and its "identity"; no value: nothing is settled */
  uint64_t steps;          /* that the attempt was to have; 0: nothing is settled */
  uint64_t later_step;     /* the first from which on something was allowed to differ behind the checkpoint; 0: none */
} hri_settled;

/* Compares with the members "identity" of `then`. USAGE names every field that differs and is not allowed
 * (options->allow_different, or `settled`, which may be NULL); the names that were allowed and do differ go to `allowed`.
 * `config` (may be NULL) is the run's own config.json, to name what of the model differs. Texts of schema 1 (numbers, names
 * with underscores) are understood. */
hr_status hri_identity_check(const hri_json *then, const char *config, const hr_job *job, const hr_run_options *options,
                             const hri_identity_facts *facts, const hri_settled *settled, hri_text *allowed,
                             hr_error *error);
/* What of the machine differs from the member "machine", as "instruction set avx512 -> avx2, ..."; empty: nothing. */
void hri_machine_compare(const hri_json *then, const hr_job *job, const char *instruction_set, const char *libraries,
                         bool halves, hri_text *differences);

/* Whether another number of steps gives the steps so far and those to come the same learning rates. */
bool hri_steps_may_grow(const hr_job *job);
bool hri_is_allowed(const hr_run_options *options, const char *name);
/* USAGE when --allow-different names what is no such name. */
hr_status hri_allowed_check(const hr_run_options *options, hr_error *error);

#endif
