/* What `headroom explain` found, for people and for scripts. */
#ifndef CLI_EXPLAIN_H
#define CLI_EXPLAIN_H

#include <headroom/explain.h>

#include "cli/options.h"

typedef struct ranks ranks; /* cli/ranks.h */

/* One input, of one of four kinds. */
typedef struct explain_result {
  const hr_explanation *explanation; /* of the run when it is one */
  const hr_run_explanation *run;     /* NULL: a text or a snapshot */
  const ranks *ranks;                /* of a directory of snapshots, of which the explanation is one's; else NULL */
  uint64_t planned_bytes;            /* what the job of --model needs as it is; 0 without --model */
  bool planned_fits;                 /* ... by the plan, that is: without what PyTorch keeps beyond it */
  char planned_for[160];             /* "gpt2-124m on rtx-4090, 23.65 GiB"; "" without --model */
  char planned_precision[64];        /* "bf16 with fp32 masters (a GPU's default)" */
} explain_result;

/* --model: plans the job for the device of the message and puts what fits in front of the advice, in the words of the
 * framework that the log names. USAGE when there is no total to plan for. */
hr_status explain_plan(cli_config *config, hr_oom_failure *failure, explain_result *result, hr_error *error);

/* A snapshot's failure from its inspection, with a replay where it can be had; `total` of the device, 0: not known. */
hr_status explain_judge(const hr_snapshot *snapshot, const hr_inspection *inspection, uint64_t total,
                        hr_explanation **explanation, hr_error *error);
/* The heading of advice that rests on it: "proven by replay", ... */
const char *explain_advice_title(hr_oom_basis basis);

void explain_print(const explain_result *result);
void explain_write_json(const explain_result *result);

#endif
