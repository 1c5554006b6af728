/* How a run of ours ended, from what it leaves: run.json says it when the run could, the trail (snapshot/trail.h) also
 * when it was killed, metrics.jsonl how the process grew. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "explain/message.h"
#include "snapshot/trail.h"

#define SIZE HRI_OOM_SIZE

enum { CHUNK = 8192 }; /* a line of metrics has about 500 bytes */

/* ---- metrics.jsonl ---- */

typedef struct sample {
  uint64_t step, resident, peak;
} sample;

/* One line; what is no line of a step leaves `out` as it is. MEMORY is the only failure. */
static hr_status read_line(const char *line, uint64_t count, const char *path, sample *out, bool *found,
                           hr_error *error) {
  hri_json root = {0};
  sample one = {0};
  hr_error unread = {0};
  hr_status status = hri_json_parse(line, count, path, &root, &unread);
  if (status == HR_OK && hri_json_has(&root, "process_resident_bytes") &&
      hri_json_get_u64(&root, "step", 0, INT64_MAX, &one.step, NULL) == HR_OK &&
      hri_json_get_u64(&root, "process_resident_bytes", 0, INT64_MAX, &one.resident, NULL) == HR_OK) {
    (void)hri_json_opt_u64(&root, "process_peak_bytes", 0, INT64_MAX, &one.peak, NULL);
    *out = one;
    *found = true;
  }
  hri_json_deinit(&root);
  if (status != HR_ERROR_MEMORY) return HR_OK; /* the piece may begin within a line */
  if (error) *error = unread;
  return status;
}

/* The last whole line of a step in bytes[0, count), or the first when `first`. */
static hr_status read_sample(const char *bytes, size_t count, bool first, const char *path, sample *out,
                             hr_error *error) {
  bool found = false;
  for (size_t at = 0; at < count && !(found && first);) {
    const char *end = memchr(bytes + at, '\n', count - at);
    if (!end) break;
    HRI_TRY(read_line(bytes + at, (uint64_t)(end - bytes) - at, path, out, &found, error));
    at = (size_t)(end - bytes) + 1;
  }
  return HR_OK;
}

/* The first, middle and last sample: a file of any length costs three reads. Which of them are there is told by
 * resident > 0. */
static hr_status read_metrics(const char *path, sample out[3], hr_error *error) {
  char *bytes;
  uint64_t size;
  hr_status status = HR_OK;
  int fd;
  if (!hri_path_exists(path)) return HR_OK;
  HRI_TRY(hri_file_open_regular(path, &fd, &size, error));
  bytes = hri_alloc(CHUNK);
  if (!bytes) status = hri_fail_memory(error, CHUNK, "metrics");
  for (int k = 0; status == HR_OK && k < 3; k++) {
    uint64_t count = size < CHUNK ? size : CHUNK;
    uint64_t from = k == 0 || size <= CHUNK ? 0 : k == 1 ? (size - count) / 2 : size - count;
    status = hri_file_pread(fd, path, bytes, count, from, error);
    if (status == HR_OK) status = read_sample(bytes, count, k == 0, path, &out[k], error);
  }
  hri_free(bytes);
  (void)close(fd);
  return status;
}

/* ---- checkpoints ---- */

/* The step of the last checkpoint in `path`: one takes its name when it is whole. -1: there is none. */
static int64_t last_saved(const char *path) {
  DIR *folder = opendir(path);
  int64_t last = -1;
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    long long step;
    char behind;
    if (sscanf(entry->d_name, "step-%lld%c", &step, &behind) == 1 && step > last) last = step;
  }
  if (folder) (void)closedir(folder);
  return last;
}

/* ---- run.json ---- */

static hr_status read_tiers(const hri_json *plan, hr_run_explanation *run, hr_error *error) {
  static const char *const names[HR_RUN_TIERS] = {"device", "host", "disk"};
  hri_json tiers;
  HRI_TRY(hri_json_opt_u64(plan, "budget_bytes", 0, INT64_MAX, &run->budget_bytes, error));
  HRI_TRY(hri_json_get_object(plan, "tiers", &tiers, error));
  for (int k = 0; k < HR_RUN_TIERS; k++) {
    hr_run_tier *t = &run->tiers[run->tier_count];
    hri_json tier;
    if (!hri_json_has(&tiers, names[k])) continue;
    HRI_TRY(hri_json_get_object(&tiers, names[k], &tier, error));
    t->name = names[k];
    HRI_TRY(hri_json_get_u64(&tier, "planned_bytes", 0, INT64_MAX, &t->planned_bytes, error));
    HRI_TRY(hri_json_opt_u64(&tier, "reserved_bytes", 0, INT64_MAX, &t->reserved_bytes, error));
    HRI_TRY(hri_json_opt_u64(&tier, "peak_bytes", 0, INT64_MAX, &t->peak_bytes, error));
    HRI_TRY(hri_json_opt_u64(&tier, "fixed_bytes", 0, INT64_MAX, &t->fixed_bytes, error));
    if (t->planned_bytes || t->reserved_bytes || t->fixed_bytes) run->tier_count++;
    else *t = (hr_run_tier){0};
  }
  return HR_OK;
}

/* `outcome` becomes what the state alone tells of it. */
static hr_status read_state(const char *state, const hri_json *root, hr_run_explanation *run, hr_status *outcome,
                            hr_error *error) {
  static const struct {
    const char *state;
    hr_run_end end;
  } known[] = {{"running", HR_RUN_UNKNOWN}, {"finished", HR_RUN_DONE},
               {"stopped", HR_RUN_STOPPED}, {"interrupted", HR_RUN_STOPPED},
               {"diverged", HR_RUN_FAILED}, {"failed", HR_RUN_FAILED}}; /* "stopped": of schema_version 1 */
  for (size_t k = 0; k < sizeof known / sizeof *known; k++)
    if (strcmp(state, known[k].state) == 0) {
      run->end = known[k].end;
      if (strcmp(state, "diverged") == 0) *outcome = HR_ERROR_DIVERGED;
      return HR_OK;
    }
  hri_json field = hri_json_member(root, "state");
  return hri_json_fail(&field, error, "one of running, finished, interrupted, diverged, failed");
}

static hr_status read_run(const char *path, hr_run_explanation *run, hr_status *outcome, hr_error *error) {
  hri_json root = {0}, plan;
  const char *state, *message;
  hr_status status;
  if (!hri_path_exists(path)) {
    status = hri_fail(error, HR_ERROR_IO, "there is no %s: the directory is not one of a run", path);
    return hri_hint(
        error, status,
        "give the directory that headroom train wrote, one with a snapshot of each rank, or a log or a snapshot by its name");
  }
  HRI_TRY(hri_json_read(path, 16 << 20, &root, error));
  HRI_TRY_OUT(hri_json_get_string(&root, "state", &state, error));
  HRI_TRY_OUT(read_state(state, &root, run, outcome, error));
  if (hri_json_has(&root, "message")) {
    HRI_TRY_OUT(hri_json_get_string(&root, "message", &message, error));
    (void)snprintf(run->message, sizeof run->message, "%.500s", message);
    hri_oom_tidy(run->message);
  }
  HRI_TRY_OUT(hri_json_opt_u64(&root, "step", 0, INT64_MAX, &run->step, error));
  HRI_TRY_OUT(hri_json_opt_u64(&root, "steps", 0, INT64_MAX, &run->steps, error));
  HRI_TRY_OUT(hri_json_get_object(&root, "plan", &plan, error));
  status = read_tiers(&plan, run, error);
out:
  hri_json_deinit(&root);
  return status;
}

/* ---- the trail ---- */

static bool is_alive(uint32_t pid) {
  return pid > 0 && pid <= INT32_MAX && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

static hr_status read_trail(const char *path, hr_run_explanation *run, hr_status *outcome, hr_error *error) {
  static const hr_run_end ends[HRI_TRAIL_STATE_COUNT] = {HR_RUN_KILLED, HR_RUN_DONE, HR_RUN_STOPPED, HR_RUN_FAILED};
  hri_trail_page page;
  char layer[24] = "";
  if (!hri_path_exists(path)) return HR_OK;
  HRI_TRY(hri_trail_read(path, &page, error));
  run->end = ends[page.state];
  if (run->end == HR_RUN_KILLED && is_alive(page.pid)) run->end = HR_RUN_RUNNING;
  if (page.step > run->step) run->step = page.step;
  if (page.steps) run->steps = page.steps;
  run->resident_bytes = page.resident_bytes;
  run->resident_peak_bytes = page.peak_resident_bytes;
  run->usable_bytes = page.usable_bytes;
  *outcome = (hr_status)page.status;
  if (page.layer >= 0) (void)snprintf(layer, sizeof layer, ", layer %d", page.layer);
  if (page.op[0])
    (void)snprintf(run->last, sizeof run->last, "%s%s, %s (%s)", page.phase, layer, page.op, page.program);
  if (page.message[0] || run->end != HR_RUN_FAILED)
    (void)snprintf(run->message, sizeof run->message, "%.500s", page.message);
  hri_oom_tidy(run->last);
  hri_oom_tidy(run->message);
  return HR_OK;
}

/* ---- the cause ---- */

/* Still growing in the second half, by a quarter or more over the whole run: arenas are reserved at the start, so what
 * grows is something else. */
static bool grows(const hr_run_explanation *run) {
  uint64_t first = run->first_resident_bytes, middle = run->middle_resident_bytes, last = run->resident_bytes;
  return first > 0 && middle > first && last > middle && last - first >= first / 4 &&
         last - middle >= (middle - first) / 2;
}

/* Seen at its start, its middle and its end, and no larger: then growth is not what ended it. */
static bool stayed(const hr_run_explanation *run) {
  const uint64_t first = run->first_resident_bytes;
  return first > 0 && run->middle_resident_bytes > 0 && run->resident_bytes > 0 &&
         run->resident_bytes < first + first / 4;
}

static void note_process(hr_oom_failure *f, const hr_run_explanation *run) {
  uint64_t step =
      run->step < run->steps ? run->step + 1 : run->step; /* what is saved at the end belongs to the last step */
  if (run->last[0])
    hri_oom_line(f, "last: step %llu of %llu, %s", (unsigned long long)step, (unsigned long long)run->steps, run->last);
  if (run->first_resident_bytes && run->resident_bytes)
    hri_oom_line(f, "the process had %s resident after its first step and %s after its last",
                 SIZE(run->first_resident_bytes), SIZE(run->resident_bytes));
  else if (run->resident_bytes)
    hri_oom_line(f, "the process had %s resident after its last step", SIZE(run->resident_bytes));
  if (run->usable_bytes) hri_oom_line(f, "the machine could still give %s when last asked", SIZE(run->usable_bytes));
}

static void judge_killed(hr_oom_failure *f, const hr_run_explanation *run) {
  if (grows(run)) {
    hri_oom_line(
        f, "it was still growing when it ended; what is planned is reserved at the start, so this is something else");
    hri_oom_say(f, HR_OOM_GROWTH, HR_OOM_LIKELY, "it ended without a word while its memory grew from %s to %s",
                SIZE(run->first_resident_bytes), SIZE(run->resident_bytes));
  } else if (run->usable_bytes && run->usable_bytes < run->resident_bytes / 20) {
    hri_oom_line(f, "a kill by the kernel is in its log: dmesg, \"Out of memory\" or \"oom-kill\"");
    hri_oom_say(f, HR_OOM_HOST_MEMORY, HR_OOM_LIKELY, "it was killed with only %s of the machine's memory left",
                SIZE(run->usable_bytes));
  } else {
    hri_oom_line(
        f,
        "killed by the kernel for memory (its log, dmesg, says so), by a person or a scheduler, crashed, or the machine went down");
    hri_oom_undecided(f,
                      HRI_OOM_COULD(HOST_MEMORY) | HRI_OOM_COULD(OTHER_PROCESS) |
                          (stayed(run) ? 0 : HRI_OOM_COULD(GROWTH)),
                      "it ended without a word: what it left does not say why");
  }
}

/* Whether the run's error, which ends with the system's words, is this one. */
static bool says(const hr_run_explanation *run, int code) {
  return run->end == HR_RUN_FAILED && strstr(run->message, strerror(code));
}

/* The trail tells whether it was for memory; without one only words that a memory error cannot have do. */
static void judge_failed(hr_oom_failure *f, const hr_run_explanation *run, hr_status outcome) {
  const bool of_disk = says(run, ENOSPC) || says(run, EDQUOT);
  char text[HR_OOM_LINE_BYTES];
  if (outcome == HR_ERROR_MEMORY) {
    hri_oom_say(f, HR_OOM_HOST_MEMORY, HR_OOM_CERTAIN, "the machine refused memory: %.180s", run->message);
  } else if (outcome != HR_OK || of_disk) {
    hri_oom_say(f, HR_OOM_NOT_MEMORY, outcome == HR_OK ? HR_OOM_LIKELY : HR_OOM_CERTAIN,
                "it failed, and not for memory: %.180s", run->message[0] ? run->message : hr_status_name(outcome));
  } else {
    (void)snprintf(text, sizeof text, "it failed and left %s%.180s",
                   run->message[0] ? "no trail that says by what: " : "neither a message nor a trail", run->message);
    hri_oom_undecided(f, HRI_OOM_COULD(HOST_MEMORY) | HRI_OOM_COULD(NOT_MEMORY), text);
  }
}

static void judge_run(hr_oom_failure *f, const hr_run_explanation *run, hr_status outcome) {
  const char *const of = "%llu of %llu steps are done";
  note_process(f, run);
  hri_oom_line(f, of, (unsigned long long)run->step, (unsigned long long)run->steps);
  switch (run->end) {
  case HR_RUN_DONE: hri_oom_say(f, HR_OOM_NO_FAILURE, HR_OOM_CERTAIN, "the run finished"); break;
  case HR_RUN_STOPPED:
    hri_oom_say(f, HR_OOM_NO_FAILURE, HR_OOM_CERTAIN, "the run was stopped on request, %s",
                run->step ? "after saving" : "before its first step");
    break;
  case HR_RUN_RUNNING:
    hri_oom_say(f, HR_OOM_NO_FAILURE, HR_OOM_LIKELY, "the run goes on: a process with its number exists");
    break;
  case HR_RUN_FAILED: judge_failed(f, run, outcome); break;
  case HR_RUN_KILLED: judge_killed(f, run); break;
  case HR_RUN_UNKNOWN:
    hri_oom_undecided(f, HRI_OOM_COULD(HOST_MEMORY) | HRI_OOM_COULD(NO_FAILURE),
                      "it says that it runs and left no trail: it does, or was killed");
    break;
  }
}

/* What to do with the run itself, behind what its cause asks for. */
static void advise_run(hr_oom_failure *f, const hr_run_explanation *run, const char *directory) {
  static const char *const before[] = {[HR_RUN_UNKNOWN] = "if no process of it is left: ",
                                       [HR_RUN_FAILED] = "mend what the error names, then ",
                                       [HR_RUN_KILLED] = "",
                                       [HR_RUN_STOPPED] = ""};
  char text[HR_OOM_LINE_BYTES];
  struct statvfs disk;
  hri_oom_advise(f, false);
  if (f->cause != HR_OOM_NO_FAILURE && f->cause != HR_OOM_UNKNOWN && f->cause != HR_OOM_NOT_MEMORY) return;
  if (says(run, EDQUOT)) /* what the disk has free is not what the quota leaves */
    hr_oom_add_advice(
        f, HR_OOM_ADVICE,
        "make room in the quota of the run's disk (quota -s shows it), or keep fewer checkpoints (--keep, --save-every)",
        "none", "", 0);
  else if (says(run, ENOSPC) && statvfs(directory, &disk) == 0) {
    /* Its table of files can be full while there are bytes. */
    const bool files = disk.f_files > 0 && disk.f_favail == 0;
    (void)snprintf(text, sizeof text,
                   "make room on the disk of the run, which has %s free now%s, or keep fewer checkpoints (--keep, "
                   "--save-every)",
                   SIZE((uint64_t)disk.f_bavail * disk.f_frsize), files ? " and takes no more files (df -i)" : "");
    hr_oom_add_advice(f, HR_OOM_ADVICE, text, "none", "", 0);
  }
  if (run->end == HR_RUN_DONE || run->end == HR_RUN_RUNNING)
    (void)snprintf(text, sizeof text, "headroom inspect RUN shows what its plan %s at the peak",
                   run->end == HR_RUN_DONE ? "held" : "holds");
  else if (run->saved_step >= 0)
    (void)snprintf(text, sizeof text, "%sheadroom train --resume RUN goes on from its last checkpoint, step %lld",
                   before[run->end], (long long)run->saved_step);
  else
    (void)snprintf(text, sizeof text, "%sthe command that began the run begins it again: it left no checkpoint",
                   before[run->end]);
  hr_oom_add_advice(f, HR_OOM_ADVICE, text, "none", "", 0);
}

/* What a run can do without: a trail that the power took in the middle of a page leaves run.json to be read. */
static hr_status go_without(hr_status status, const hr_error *unread, hr_oom_failure *f, hr_error *error) {
  if (status == HR_ERROR_INPUT) {
    hri_oom_line(f, "left out: %.220s", unread->message);
    return HR_OK;
  }
  if (status != HR_OK && error) *error = *unread;
  return status;
}

static hr_status read_all(const char *directory, hr_run_explanation *run, hr_oom_failure *f, hr_status *outcome,
                          hr_error *error) {
  static const char *const names[] = {"run.json", "metrics.jsonl", "memory/trail"};
  char *path;
  sample samples[3] = {{0}};
  hr_status status = HR_OK;
  hr_error unread = {0};
  for (int k = 0; k < 3 && status == HR_OK; k++) {
    path = hri_path_join(directory, names[k]);
    if (!path) return hri_fail_memory(error, strlen(directory) + 16, "a path");
    status = k == 0   ? read_run(path, run, outcome, error)
             : k == 1 ? read_metrics(path, samples, error)
                      : go_without(read_trail(path, run, outcome, &unread), &unread, f, error);
    hri_free(path);
  }
  if (status == HR_OK) {
    path = hri_path_join(directory, "checkpoints");
    if (!path) return hri_fail_memory(error, strlen(directory) + 16, "a path");
    run->saved_step = last_saved(path);
    hri_free(path);
  }
  run->first_resident_bytes = samples[0].resident;
  run->middle_resident_bytes = samples[1].resident;
  if (!run->resident_bytes) run->resident_bytes = samples[2].resident;
  if (!run->resident_peak_bytes) run->resident_peak_bytes = samples[2].peak;
  if (samples[2].step > run->step) run->step = samples[2].step;
  return status;
}

hr_status hr_explain_run(const char *directory, hr_run_explanation **out, hr_error *error) {
  hr_run_explanation *run = hri_alloc_zero(1, sizeof *run);
  hr_explanation *e = hri_alloc_zero(1, sizeof *e);
  hr_oom_failure *f = hri_alloc_zero(1, sizeof *f);
  hr_status status = HR_OK, outcome = HR_OK;
  *out = NULL;
  if (!run || !e || !f) {
    hri_free(run);
    hri_free(e);
    hri_free(f);
    return hri_fail_memory(error, sizeof *run + sizeof *e + sizeof *f, "an explanation");
  }
  run->explanation = e;
  e->failures = f;
  e->failure_count = 1;
  status = read_all(directory, run, f, &outcome, error);
  if (status != HR_OK) {
    hr_run_explanation_destroy(run);
    return status;
  }
  f->source = "run";
  f->framework = "headroom";
  f->wording = f->phase = "";
  f->rank = f->device_index = -1;
  f->event = UINT64_MAX;
  if (run->resident_bytes) f->figures[HR_OOM_THIS_PROCESS] = (hr_oom_value){HR_OOM_READ, run->resident_bytes, 0};
  if (run->usable_bytes) f->figures[HR_OOM_FREE] = (hr_oom_value){HR_OOM_READ, run->usable_bytes, 0};
  judge_run(f, run, outcome);
  advise_run(f, run, directory);
  *out = run;
  return HR_OK;
}

void hr_run_explanation_destroy(hr_run_explanation *run) {
  if (!run) return;
  hr_explanation_destroy(run->explanation);
  hri_free(run);
}

const char *hr_run_end_name(hr_run_end end) {
  static const char *const names[] = {"unknown", "running", "done", "stopped", "failed", "killed"};
  return (unsigned)end <= HR_RUN_KILLED ? names[end] : "unknown";
}
