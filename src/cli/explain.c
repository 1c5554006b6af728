/* headroom explain: a log, a snapshot or a run directory, to one cause. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <headroom/device.h>
#include <headroom/inspect.h>
#include <headroom/replay.h>
#include <headroom/snapshot.h>

#include "cli/commands.h"
#include "cli/explain.h"
#include "cli/text.h"

/* An input that is read piece by piece; what was read to tell its kind is given again. */
typedef struct input {
  const char *path;
  FILE *file;
  char first[4096];
  size_t first_count;
} input;

static hr_status input_open(input *in, const char *path, hr_error *error) {
  in->path = path;
  in->file = text_open(path, "the input", error);
  if (!in->file) return error->code;
  in->first_count = fread(in->first, 1, sizeof in->first, in->file);
  return HR_OK;
}

static hr_status input_failed(const input *in, hr_error *error) {
  return ferror(in->file) ? hri_fail(error, HR_ERROR_IO, "cannot read %s: %s", in->path, strerror(errno)) : HR_OK;
}

/* ---- a log ---- */

static bool is_compressed(const input *in) {
  static const char *const starts[] = {"\x1f\x8b", "PK\x03\x04", "\xfd\x37zXZ", "\x28\xb5\x2f\xfd", "BZh"};
  for (size_t k = 0; k < sizeof starts / sizeof *starts; k++)
    if (in->first_count > strlen(starts[k]) && memcmp(in->first, starts[k], strlen(starts[k])) == 0) return true;
  return false;
}

static hr_status read_log(input *in, hr_explanation **explanation, hr_error *error) {
  static char bytes[64 * 1024];
  hr_explainer *explainer = NULL;
  hr_status status;
  size_t got;
  if (is_compressed(in)) {
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
  status = hri_fail(error, HR_ERROR_INPUT, "%s: no out-of-memory message in %llu lines", in->path,
                    (unsigned long long)(*explanation)->line_count);
  return hri_hint(error, status, "paste the whole message, from the exception's name to the end of its last figure");
}

/* ---- a snapshot ---- */

static const unsigned STREAM_LIMIT = 1u << 31; /* bytes: what has no end must not fill the memory */
enum { MOST_REPLAYED = 20000000 };             /* events; the search replays a trace sixteen times */

/* A stream cannot be opened again: it is read whole. */
static hr_status read_stream(input *in, hr_snapshot **snapshot, hr_error *error) {
  size_t room = 1 << 20, count = in->first_count, got;
  char *bytes = text_alloc(room);
  hr_status status;
  memcpy(bytes, in->first, count);
  while ((got = fread(bytes + count, 1, room - count, in->file)) > 0) {
    count += got;
    if (count > STREAM_LIMIT) break;
    if (count == room) bytes = text_grow(bytes, room *= 2);
  }
  status = count > STREAM_LIMIT
               ? hri_fail(error, HR_ERROR_INPUT,
                          "a stream of more than %u bytes is not taken as a snapshot: write it to a file first",
                          STREAM_LIMIT)
               : input_failed(in, error);
  if (status == HR_OK)
    status = hr_snapshot_parse(bytes, count, strcmp(in->path, "-") == 0 ? "standard input" : in->path, NULL, snapshot,
                               error);
  free(bytes);
  return status;
}

/* What no snapshot states: --budget as bytes, else the memory of --device; 0 when neither says it. */
static hr_status device_total(const cli_config *config, uint64_t *bytes, hr_error *error) {
  hr_device device;
  *bytes = 0;
  if (config_chosen(config, &config->job.budget_bytes)) *bytes = config->job.budget_bytes; /* 0 for a share */
  if (*bytes || !config_chosen(config, &config->job.device)) return HR_OK;
  if (hr_device_find(config->job.device.name, &device, error) != HR_OK) return error->code;
  if (!device.usable_now) *bytes = device.usable_bytes;
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

static hr_status read_snapshot(const cli_config *config, input *in, hr_explanation **explanation, hr_error *error) {
  hr_snapshot *snapshot = NULL;
  hr_status status = in->file == stdin || text_is_stream(in->file) ? read_stream(in, &snapshot, error)
                                                                   : hr_snapshot_read(in->path, NULL, &snapshot, error);
  if (status == HR_OK) status = judge_snapshot(config, snapshot, explanation, error);
  hr_snapshot_destroy(snapshot);
  return status;
}

static bool is_directory(const char *path) {
  struct stat info;
  return strcmp(path, "-") != 0 && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static hr_status show(cli_config *config, hr_explanation *explanation, const hr_run_explanation *run, hr_error *error) {
  explain_result result = {.explanation = explanation, .run = run};
  hr_status status = HR_OK;
  if (config->own.model) status = explain_plan(config, &explanation->failures[explanation->primary], &result, error);
  if (status != HR_OK) return status;
  if (config->own.json) explain_write_json(&result);
  else explain_print(&result);
  return HR_OK;
}

hr_status command_explain(cli_config *config, hr_error *error) {
  hr_explanation *explanation = NULL;
  hr_run_explanation *run = NULL;
  hr_status status;
  if (config->operand_count == 0) {
    hri_fail(error, HR_ERROR_USAGE, "there is nothing to explain");
    return hri_hint(error, HR_ERROR_USAGE,
                    "headroom explain FILE (a log or a snapshot), a run directory, or - for standard input");
  }
  if (is_directory(config->operands[0])) {
    status = hr_explain_run(config->operands[0], &run, error);
    if (status == HR_OK) status = show(config, run->explanation, run, error);
  } else {
    static input in;
    status = input_open(&in, config->operands[0], error);
    if (status == HR_OK && hr_snapshot_recognise(in.first, in.first_count))
      status = read_snapshot(config, &in, &explanation, error);
    else if (status == HR_OK) status = read_log(&in, &explanation, error);
    if (status == HR_OK) status = show(config, explanation, NULL, error);
    text_close(in.file);
  }
  hr_explanation_destroy(explanation);
  hr_run_explanation_destroy(run);
  return status;
}
