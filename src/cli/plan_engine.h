/* --engine pytorch among the files of the CLI: the settings that are tried where a job does not fit, and the choice of --auto. */
#ifndef HRI_CLI_PLAN_ENGINE_H
#define HRI_CLI_PLAN_ENGINE_H

#include <headroom/pytorch.h>

#include "base/text.h"
#include "cli/plan.h"

hr_pytorch_options plan_engine_options(const cli_config *config);

/* Settings that fit, surely, in the framework's words. */
typedef struct plan_engine_fix {
  const char *text;
  const char *options; /* of `plan`, beside those that were given: what says the same to this program */
  int effect;          /* HR_EFFECT_* */
  uint64_t need_bytes; /* without a budget ... */
  uint64_t
      retries; /* ... and how often cached memory is returned to stay in it: more is needed than there is where it is above 0 */
} plan_engine_fix;
typedef void plan_engine_take(void *context, const plan_engine_fix *fix);

/* Every change of the job that fits, by what it does to the results and, within that, by the time it takes; none of which a part
 * fits. Each is run like the job itself. */
hr_status plan_engine_each_fix(const cli_config *config, plan_engine_take *take, void *context, hr_error *error);

/* A job with settings of the framework: what a change makes of both. */
typedef struct plan_engine_choice {
  hr_job job;
  hri_text conf, alloc_conf; /* "": none */
  hri_text text;             /* what was changed; "": nothing */
  hri_text options;          /* the same as options of `plan` */
  uint32_t tried;
  bool found; /* else the job is as it was asked for */
} plan_engine_choice;
void plan_engine_choice_free(plan_engine_choice *choice);
/* --auto: of the settings that surely fit and nobody gave, the cheapest in time. Those that change the numerics come behind all that
 * do not. */
hr_status plan_engine_auto(const cli_config *config, plan_engine_choice *choice, hr_error *error);
/* --micro-batch auto: the most rows that surely fit, or 1; with --batch-tokens among the divisors of a step's rows. */
hr_status plan_engine_rows(cli_config *config, hr_error *error);
/* On stderr: what it changed. */
void plan_engine_print_choice(const plan_engine_choice *choice);

#endif
