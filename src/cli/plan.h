/* Plans for people and for scripts; shared by `plan` and by the commands that run one. */
#ifndef CLI_PLAN_H
#define CLI_PLAN_H

#include <headroom/plan.h>
#include <headroom/pytorch.h>

#include <stdio.h>

#include "cli/json.h"
#include "cli/options.h"

/* Makes the plan of config->job; with --auto the planner's choice is taken over into config and told on standard error.
 * When nothing fits, the plan of the job as asked comes back. With --recompute auto the levels are taken over, and
 * `frontier` (NULL: not wanted) is filled; else it is left empty, and so is `found` without --auto. */
hr_status plan_make(cli_config *config, hr_plan **plan, hr_frontier *frontier, hr_auto *found, hr_error *error);
/* Whether --recompute auto is still to be resolved for the job. */
static inline bool plan_chooses_levels(const hr_job *job) {
  return job->purpose == HR_PURPOSE_TRAIN && job->recompute.kind == HR_RECOMPUTE_AUTO;
}
/* Whether anything of the job is still the planner's to choose. */
static inline bool plan_chooses(const hr_job *job) {
  return job->automatic || plan_chooses_levels(job) || job->rows_choice == HR_ROWS_OPEN;
}

/* What a budget must hold: the reservation and what no program can own. */
uint64_t plan_need(const hr_plan *plan);

/* "bf16 with fp32 masters (a GPU's default)". Whether there are masters is the plan's to say: frozen and quantized weights
 * have none. */
enum { PRECISION_BYTES = 64 };
char *plan_precision_text(const hr_plan *plan, char *text, size_t bytes);

/* Whether the job is in bf16 on a device that has fp16 alone, and a sentence on that in `text`: its bytes can be planned, and
 * nothing would compute it. */
enum { PLAN_WARNING_BYTES = 320 };
bool plan_not_offered(const hr_job *job, char *text, size_t bytes);

/* One line: "FITS  5.22 GiB of 24.00 GiB, 18.78 GiB to spare". */
void plan_print_verdict(FILE *stream, const hr_plan *plan);
/* Job, verdict, breakdown, bar, peak, phases, time: a screen of 80 x 24. */
void plan_print(FILE *stream, const hr_plan *plan);
/* Three lines before a run. */
void plan_print_summary(FILE *stream, const hr_plan *plan);

typedef struct fix_list {
  hr_fix *fixes; /* HR_MAX_FIXES */
  uint32_t count;
} fix_list;
hr_status fix_list_make(const hr_job *job, fix_list *list, hr_error *error);
void fix_list_free(fix_list *list);
/* Bytes against time over the choices of levels: at most a few rows. */
void plan_print_frontier(FILE *stream, const hr_plan *plan, const hr_frontier *frontier);

/* A device of the table that holds a job with all that is usable there, and computes in its precision. */
typedef struct device_fit {
  char name[64];
  uint64_t usable_bytes, need_bytes;
  double step_seconds, token_seconds;
} device_fit;
enum { DEVICE_FITS = 3 };
typedef struct device_list {
  device_fit fits[DEVICE_FITS]; /* the smallest first */
  uint32_t count;
  char chosen[HR_FIX_TEXT_BYTES]; /* what the planner chose of the job and holds there too, as options; "": nothing */
} device_list;
void device_list_make(const hr_job *job, device_list *list);
/* "--device h100 --budget 100% --micro-batch 8": what plans the job there. */
void device_fit_options(const hr_job *job, const device_list *list, uint32_t index, char *text, size_t bytes);
/* One line: "left  h100 (79.22 GiB), ...". */
void device_list_print(FILE *stream, const char *left, const device_list *list);

/* `devices` (or NULL): the last lines of a list that says what fits. */
void plan_print_fixes(FILE *stream, const hr_plan *plan, const fix_list *list, const device_list *devices);

/* Memory over sequence and micro-batch; every cell is a plan. */
hr_status plan_print_table(const cli_config *config, json_writer *json, hr_error *error);
/* Memory and predicted time over the course of the job: a chart, and what each program's time is made of. */
hr_status plan_print_timeline(FILE *stream, const hr_plan *plan, hr_error *error);
hr_status plan_engine_print_timeline(FILE *stream, const hr_pytorch *pytorch, hr_error *error);

/* The members of `plan --json`; the caller opens and ends the document. `list`, `devices`, `frontier` and `found`
 * may be NULL. */
void plan_write_json(json_writer *json, const cli_config *config, const hr_plan *plan, const fix_list *list,
                     const device_list *devices, const hr_frontier *frontier, const hr_auto *found);
/* Of any engine's: what the plan is of, in the members model, job and device. */
void plan_write_subject(json_writer *json, const cli_config *config, const hr_job *job, uint64_t parameters,
                        uint64_t trainable);
/* --engine pytorch: what the framework would need for a job (plan_engine.c). */
hr_status plan_engine_make(const cli_config *config, const hr_job *job, hr_pytorch **pytorch, hr_error *error);
hr_status plan_engine_print(const cli_config *config, const hr_pytorch *pytorch, hr_error *error);
hr_status plan_engine_write_json(json_writer *json, const cli_config *config, const hr_pytorch *pytorch,
                                 hr_error *error);
bool plan_engine_chosen(const cli_config *config);
/* Whether PyTorch's CUDA allocator would run there, so that a plan of our own tells of it: a line, the member `engines`. */
bool plan_engine_applies(const hr_job *job);
void plan_engine_line(const cli_config *config, const hr_plan *plan);
void plan_engine_write(json_writer *json, const cli_config *config, const hr_plan *plan);

/* The members `timeline`, one entry per node, and `schedule`, one per program. */
hr_status plan_write_timeline(json_writer *json, const hr_plan *plan, hr_error *error);
/* The member `timeline` of PyTorch's program, one entry per request or free. */
hr_status plan_engine_write_timeline(json_writer *json, const hr_pytorch *pytorch, hr_error *error);

#endif
