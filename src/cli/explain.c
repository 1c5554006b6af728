/* headroom explain: a log, a snapshot or a run directory, to one cause. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <headroom/device.h>
#include <headroom/inspect.h>
#include <headroom/replay.h>
#include <headroom/snapshot.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/explain.h"
#include "cli/ranks.h"
#include "cli/reading.h"
#include "cli/text.h"

/* An input that is read piece by piece; what was read to tell its kind is given again. */
typedef struct input {
  const char *path; /* as messages name it */
  FILE *file;
  char first[4096];
  size_t first_count;
  bool is_snapshot;
} input;

/* Before a reading begins: what a file is, is not what its --max-memory is for. */
static hr_status input_open(input *in, const char *path, hr_error *error) {
  in->path = strcmp(path, "-") == 0 ? "standard input" : path;
  in->file = text_open(path, "the input", error);
  if (!in->file) return error->code;
  in->first_count = fread(in->first, 1, sizeof in->first, in->file);
  in->is_snapshot = hr_snapshot_recognise(in->first, in->first_count);
  return HR_OK;
}

static hr_status input_failed(const input *in, hr_error *error) {
  return ferror(in->file) ? hri_fail(error, HR_ERROR_IO, "cannot read %s: %s", in->path, strerror(errno)) : HR_OK;
}

/* ---- a log ---- */

/* What is no text is named at once; a page or a table is searched first. */
static hr_status fail_foreign(const input *in, const hr_foreign *foreign, hr_error *error) {
  hr_status status = hri_fail(error, HR_ERROR_INPUT, "%s is %s%s", in->path, foreign->name,
                              foreign->text ? ", and no out-of-memory message is in it" : "");
  return hri_hint(error, status, "%s", foreign->hint);
}

static hr_status read_log(input *in, hr_explanation **explanation, hr_error *error) {
  static char bytes[64 * 1024];
  hr_explainer *explainer = NULL;
  hr_status status;
  size_t got;
  const hr_foreign *foreign = hr_snapshot_foreign(in->first, in->first_count);
  if (foreign && !foreign->text) return fail_foreign(in, foreign, error);
  if (in->first_count > 2 && memcmp(in->first, "\x1f\x8b", 2) == 0) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s is compressed and no snapshot", in->path);
    return hri_hint(error, status, "unpack it first: zcat FILE | headroom explain -");
  }
  status = hr_explainer_create(NULL, &explainer, error);
  if (status == HR_OK) status = hr_explainer_feed(explainer, in->first, in->first_count, error);
  while (status == HR_OK && (got = fread(bytes, 1, sizeof bytes, in->file)) > 0)
    status = hr_explainer_feed(explainer, bytes, got, error);
  if (status == HR_OK) status = input_failed(in, error);
  if (status == HR_OK) status = hr_explainer_end(explainer, explanation, error);
  hr_explainer_destroy(explainer);
  if (status != HR_OK || (*explanation)->failure_count > 0) return status;
  if (foreign) return fail_foreign(in, foreign, error);
  status = hri_fail(error, HR_ERROR_INPUT, "%s: no out-of-memory message in %llu lines", in->path,
                    (unsigned long long)(*explanation)->line_count);
  return hri_hint(error, status, "paste the whole message, from the exception's name to the end of its last figure");
}

/* ---- a snapshot ---- */

enum { MOST_REPLAYED = 20000000 }; /* events; the search replays a trace sixteen times */

/* What a person says now and what says no total; a recipe or the environment is for several commands, and --model plans for it. */
static hr_status no_total(const cli_config *config, const void *member, const char *what, const char *why,
                          hr_error *error) {
  if (config->own.model || config_origin(config, member) != ORIGIN_FLAG) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "%s: %s", what, why);
  return hri_hint(error, HR_ERROR_USAGE,
                  "--budget SIZE, what the device of the snapshot has, such as 24GiB, or --device NAME of the table");
}

/* What no snapshot states: --budget as bytes, beside --device too as in plan, or as a share of --device, else the memory of --device; 0
 * when neither says it. */
static hr_status device_total(const cli_config *config, uint64_t *bytes, hr_error *error) {
  const bool named = config_chosen(config, &config->job.device);
  /* a device that is named now says more than a budget of the environment, which is for several commands */
  const bool budget = config_chosen(config, &config->job.budget_bytes) &&
                      (config_origin(config, &config->job.budget_bytes) == ORIGIN_FLAG ||
                       config_origin(config, &config->job.device) != ORIGIN_FLAG);
  const double share = budget ? config->job.budget_share : 0;
  hr_device device;
  *bytes = budget ? config->job.budget_bytes : 0; /* 0 for a share */
  if (*bytes || (!budget && !named)) return HR_OK;
  if (!named)
    return no_total(config, &config->job.budget_bytes, "--budget", "a share of a device that is not named", error);
  if (hr_device_find(config->job.device.name, &device, error) != HR_OK) return error->code;
  if (device.usable_now)
    return no_total(config, &config->job.device, device.name,
                    "what this machine has free now is not the total of the snapshot's device", error);
  *bytes = share > 0 ? (uint64_t)(share * (double)device.usable_bytes) : device.usable_bytes;
  return HR_OK;
}

hr_status explain_judge(const hr_snapshot *snapshot, const hr_inspection *inspection, uint64_t total,
                        hr_explanation **explanation, hr_error *error) {
  hr_oom_evidence evidence = {.inspection = inspection, .device_total_bytes = total};
  hr_replay_result *results = NULL;
  hr_replay replay;
  hr_error no_replay;
  hr_status status;
  /* What an allocator did not record (a profiler's snapshot) cannot be replayed: then nothing is proven. */
  if (inspection->event_count <= MOST_REPLAYED &&
      hr_replay_search(snapshot, &(hr_replay_options){.trace = inspection->trace}, &replay, &results,
                       &evidence.result_count, &no_replay) == HR_OK) {
    evidence.replay = &replay;
    evidence.results = results;
  } else if (inspection->event_count <= MOST_REPLAYED && no_replay.code == HR_ERROR_MEMORY) {
    if (error) *error = no_replay; /* half an answer would look like a whole one */
    return HR_ERROR_MEMORY;
  }
  status = hr_explain_snapshot(&evidence, NULL, explanation, error);
  hr_free(results);
  return status;
}

static hr_status judge_snapshot(const cli_config *config, const hr_snapshot *snapshot, hr_explanation **explanation,
                                hr_error *error) {
  hr_inspection *inspection = NULL;
  uint64_t total;
  hr_status status = hr_inspect(snapshot, &(hr_inspect_options){.at = HR_AT_OOM, .trace = hr_explain_trace(snapshot)},
                                &inspection, error);
  if (status != HR_OK) return status;
  status = device_total(config, &total, error);
  if (status == HR_OK) status = explain_judge(snapshot, inspection, total, explanation, error);
  hr_inspection_destroy(inspection);
  return status;
}

static hr_status read_snapshot(const cli_config *config, input *in, const hr_snapshot_limits *limits,
                               hr_explanation **explanation, hr_error *error) {
  hr_snapshot *snapshot = NULL;
  hr_status status = in->file == stdin || text_is_stream(in->file)
                         ? reading_stream(in->file, in->first, in->first_count, in->path, limits, &snapshot, error)
                         : hr_snapshot_read(in->path, limits, &snapshot, error);
  if (status == HR_OK) status = judge_snapshot(config, snapshot, explanation, error);
  hr_snapshot_destroy(snapshot);
  return status;
}

static bool is_directory(const char *path) {
  struct stat info;
  return strcmp(path, "-") != 0 && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool holds_run(const char *directory) {
  char path[4096];
  return hri_path_at(path, directory, "run.json", NULL) == HR_OK && hri_path_exists(path);
}

static hr_status show(cli_config *config, hr_explanation *explanation, const hr_run_explanation *run, const ranks *all,
                      hr_error *error) {
  explain_result result = {.explanation = explanation, .run = run, .ranks = all};
  hr_status status = HR_OK;
  assert(explanation); /* whoever succeeded made one */
  if (config->own.model) status = explain_plan(config, &explanation->failures[explanation->primary], &result, error);
  if (status != HR_OK) return status;
  if (config->own.json) explain_write_json(&result);
  else explain_print(&result);
  return HR_OK;
}

/* Options that would change nothing without --model: those of a job, and for what states itself what the device has, --device and
 * --budget; `states` is what states it, NULL: not asked yet. */
static hr_status check_job(const cli_config *config, const char *states, hr_error *error) {
  char where[128];
  const void *members[MAX_OPTIONS];
  size_t count = 0;
  for (option_id id = 0; id < option_count() && !config->own.model; id++) {
    const hr_field *o = option_get(id);
    const void *member = (const char *)&config->job + o->offset;
    const bool device = member == &config->job.device || member == &config->job.budget_bytes;
    if (o->home == HR_HOME_JOB && o->commands & HR_FOR_EXPLAIN && device == (states != NULL)) members[count++] = member;
  }
  if (states) (void)snprintf(where, sizeof where, "without --model: it is of a snapshot, %s", states);
  else (void)snprintf(where, sizeof where, "without --model: it is of a job that is planned");
  return config_refuse_idle(config, members, count, where, "add --model MODEL, what was trained, or leave it out",
                            error);
}

/* A log or a snapshot. */
static hr_status explain_file(const cli_config *config, input *in, reading *r, hr_explanation **explanation,
                              hr_error *error) {
  if (in->is_snapshot) return read_snapshot(config, in, &r->limits, explanation, error);
  HRI_TRY(check_job(config, "a text states its device's total", error));
  return read_log(in, explanation, error);
}

/* Of several ranks the one that failed first is explained: what the others met may be its doing. */
static hr_status explain_ranks(const cli_config *config, reading *r, ranks *all, hr_explanation **explanation,
                               hr_error *error) {
  const rank_row *row;
  hr_snapshot *snapshot = NULL;
  hr_status status = ranks_read(r, config->operands[0], HR_AT_OOM, all, error);
  if (status != HR_OK) return status;
  row = &all->rows[all->first_failed == NO_RANK ? all->highest : all->first_failed];
  reading_about(r, row->path);
  status = hr_snapshot_read(row->path, &r->limits, &snapshot, error);
  if (status == HR_OK) status = judge_snapshot(config, snapshot, explanation, error);
  if (status == HR_OK) (*explanation)->failures[0].rank = (int32_t)row->rank;
  hr_snapshot_destroy(snapshot);
  return status;
}

hr_status command_explain(cli_config *config, hr_error *error) {
  static input in;
  hr_explanation *explanation = NULL;
  hr_run_explanation *run = NULL;
  hr_status status;
  ranks all;
  reading r;
  bool has_ranks, is_run;
  if (config->operand_count == 0) {
    hri_fail(error, HR_ERROR_USAGE, "there is nothing to explain");
    return hri_hint(error, HR_ERROR_USAGE,
                    "headroom explain FILE (a log or a snapshot), a run directory, or - for standard input");
  }
  HRI_TRY(check_job(config, NULL, error));
  has_ranks = ranks_find(config->operands[0], &all);
  is_run = !has_ranks && is_directory(config->operands[0]);
  if (is_run && holds_run(config->operands[0])) HRI_TRY(check_job(config, "a run states its budget", error));
  if (!is_run && !has_ranks) HRI_TRY(input_open(&in, config->operands[0], error));
  reading_begin(&r, config, config->operands[0]);
  if (is_run) status = hr_explain_run(config->operands[0], &run, error);
  else if (has_ranks) status = explain_ranks(config, &r, &all, &explanation, error);
  else status = explain_file(config, &in, &r, &explanation, error);
  status = reading_end(&r, status, error); /* the plan of --model is not the file's */
  text_close(in.file);
  if (status == HR_OK) status = show(config, run ? run->explanation : explanation, run, has_ranks ? &all : NULL, error);
  hr_explanation_destroy(explanation);
  hr_run_explanation_destroy(run);
  ranks_free(&all);
  return status;
}
