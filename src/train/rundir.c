#include "train/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "device/host.h"

enum { PATH_BYTES = 4096 };

static hr_status join(char out[PATH_BYTES], const char *a, const char *b, hr_error *error) {
  return snprintf(out, PATH_BYTES, "%s/%s", a, b) < PATH_BYTES ? HR_OK : hri_fail(error, HR_ERROR_USAGE, "the path %.100s/... is too long", a);
}

hr_status hri_rundir_create(const char *directory, hr_error *error) {
  char path[PATH_BYTES];
  hr_status status;
  HRI_TRY(join(path, directory, "run.json", error));
  if (hri_path_exists(path)) {
    status = hri_fail(error, HR_ERROR_USAGE, "%s already holds a run", directory);
    return hri_hint(error, status, "name another --out, or go on with it: --resume %s", directory);
  }
  HRI_TRY(join(path, directory, "checkpoints", error));
  HRI_TRY(hri_dir_make(path, error));
  HRI_TRY(join(path, directory, "metrics.jsonl", error));
  return hri_file_replace(path, "", 0, error);
}

void hri_rundir_discard(const char *directory) {
  static const char *const made[] = {"metrics.jsonl", "checkpoints"};
  char path[PATH_BYTES];
  if (join(path, directory, "run.json", NULL) != HR_OK || hri_path_exists(path)) return; /* it did start */
  for (size_t k = 0; k < sizeof made / sizeof *made; k++)
    if (join(path, directory, made[k], NULL) == HR_OK && unlink(path) != 0) (void)rmdir(path);
  for (int k = 0; k < 2; k++)
    if (join(path, directory, k ? "memory" : "data-cache", NULL) == HR_OK) (void)hri_dir_remove(path, NULL);
  (void)rmdir(directory); /* only when nothing else is in it */
}

/* ---- run.json ---- */

static void put_job(hri_json_writer *w, const hr_job *job) {
  char text[12 * HR_MAX_LAYERS]; /* a level for each layer, whatever they are */
  hri_json_key(w, "job");
  hri_json_begin_object(w);
  hri_json_field_u64(w, "seq", job->sequence_length);
  hri_json_field_u64(w, "micro_batch", job->micro_batch);
  hri_json_field_u64(w, "accumulate", job->accumulate);
  hri_json_field_string(w, "device", job->device.name);
  hri_json_field_string(w, "precision", hr_precision_name(job->precision));
  hri_json_field_string(w, "moments", hr_moments_name(job->moments));
  hri_json_field_string(w, "weight_packing", hr_weight_packing_name(job->weight_packing));
  hri_json_field_string(w, "recompute", hr_recompute_text(&job->recompute, job->model.layer_count, text, sizeof text));
  hri_json_field_string(w, "attention", hr_attention_name(job->attention));
  hri_json_field_u64(w, "loss_chunk", hri_loss_chunk(job));
  hri_json_field_string(w, "optimizer", hr_optimizer_name(job->optimizer));
  hri_json_field_string(w, "update", job->update == HR_UPDATE_IN_BACKWARD ? "in-backward" : "after");
  hri_json_field_double(w, "beta1", job->beta1);
  hri_json_field_double(w, "beta2", job->beta2);
  hri_json_field_double(w, "eps", job->epsilon);
  hri_json_field_double(w, "weight_decay", job->weight_decay);
  hri_json_field_double(w, "momentum", job->momentum);
  hri_json_field_double(w, "lr", job->learning_rate);
  hri_json_field_string(w, "schedule", hr_schedule_name(job->schedule));
  hri_json_field_double(w, "warmup", job->warmup);
  hri_json_field_double(w, "decay", job->decay);
  hri_json_field_double(w, "min_lr_ratio", job->min_lr_ratio);
  hri_json_field_double(w, "clip", job->clip);
  hri_json_field_u64(w, "steps", job->steps);
  hri_json_field_double(w, "epochs", job->epochs);
  hri_json_field_u64(w, "seed", job->seed);
  hri_json_field_bool(w, "shuffle", job->shuffle);
  hri_json_field_string(w, "packing", hr_packing_name(job->packing));
  hri_json_field_u64(w, "threads", job->threads);
  hri_json_end_object(w);
}

static void put_plan(hri_json_writer *w, const hri_session *s, const hr_run_result *result) {
  const hr_plan_info *info = &s->plan->info;
  hri_json_key(w, "plan");
  hri_json_begin_object(w);
  hri_json_field_u64(w, "budget_bytes", info->budget_bytes);
  hri_json_field_double(w, "step_seconds", info->step_seconds);
  hri_json_field_u64(w, "parameter_count", info->parameter_count);
  hri_json_key(w, "tiers");
  hri_json_begin_object(w);
  for (uint32_t tier = 0; tier < HR_TIER_COUNT; tier++) {
    const hr_tier_plan *t = &info->tiers[tier];
    hri_json_key(w, hr_tier_name(tier));
    hri_json_begin_object(w);
    hri_json_field_u64(w, "planned_bytes", t->reserved_bytes);
    if (result) hri_json_field_u64(w, "reserved_bytes", result->reserved_bytes[tier]);
    hri_json_field_u64(w, "fixed_bytes", t->fixed_bytes);
    hri_json_field_u64(w, "peak_bytes", t->peak_bytes);
    hri_json_field_u64(w, "lower_bound_bytes", t->lower_bound_bytes);
    hri_json_key(w, "at_peak_by_role");
    hri_json_begin_object(w);
    for (uint32_t role = 0; role < HR_ROLE_COUNT; role++) hri_json_field_u64(w, hr_role_name(role), t->at_peak_by_role[role]);
    hri_json_end_object(w);
    hri_json_key(w, "peak_by_phase");
    hri_json_begin_object(w);
    for (uint32_t phase = 0; phase < HR_PHASE_COUNT; phase++) hri_json_field_u64(w, hr_phase_name(phase), t->peak_by_phase[phase]);
    hri_json_end_object(w);
    hri_json_end_object(w);
  }
  hri_json_end_object(w);
  hri_json_end_object(w);
}

static void put_machine(hri_json_writer *w, const hri_session *s) {
  struct utsname system;
  hri_json_key(w, "machine");
  hri_json_begin_object(w);
  hri_json_field_string(w, "device", s->plan->spec.device.title);
  if (uname(&system) == 0) hri_json_field_string(w, "system", system.machine);
  hri_json_field_string(w, "instruction_set", s->plan->job.instruction_set);
  hri_json_field_u64(w, "threads", s->plan->job.team);
  hri_json_end_object(w);
  hri_json_key(w, "versions");
  hri_json_begin_object(w);
  hri_json_field_string(w, "headroom", hr_version());
  hri_json_field_string(w, "libraries", s->plan->job.libraries);
  hri_json_end_object(w);
}

hr_status hri_rundir_write_run(const char *directory, const hri_session *s, const hri_progress *p, const char *state, const hr_run_result *result, hr_error *error) {
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 2), *w = &writer;
  char path[PATH_BYTES];
  hr_status status;
  hri_json_begin_object(w);
  hri_json_field_u64(w, "schema_version", 1);
  hri_json_field_string(w, "state", state);
  hri_json_field_string(w, "model", s->plan->spec.model.name);
  hri_json_field_u64(w, "step", p->step);
  hri_json_field_u64(w, "steps", p->steps);
  hri_json_field_u64(w, "broken_rows", p->broken_rows);
  put_job(w, &s->plan->spec);
  put_plan(w, s, result);
  put_machine(w, s);
  if (result) {
    hri_json_key(w, "result");
    hri_json_begin_object(w);
    hri_json_field_double(w, "loss", result->last_loss);
    hri_json_field_double(w, "eval_loss", result->eval_loss);
    hri_json_field_double(w, "best_eval_loss", result->best_eval_loss);
    hri_json_field_double(w, "seconds", result->seconds);
    hri_json_field_double(w, "tokens_per_second", result->tokens_per_second);
    hri_json_field_double(w, "step_seconds", result->step_seconds);
    hri_json_field_double(w, "predicted_step_seconds", result->predicted_step_seconds);
    hri_json_field_bool(w, "prediction_measured", result->prediction_measured);
    hri_json_field_u64(w, "process_peak_bytes", result->process_peak_bytes);
    hri_json_end_object(w);
  }
  hri_json_end_object(w);
  hri_text_add(&text, "\n");
  status = text.failed ? hri_fail_memory(error, text.length, "run.json") : join(path, directory, "run.json", error);
  if (status == HR_OK) status = hri_file_replace(path, text.chars, text.length, error);
  hri_text_deinit(&text);
  return status;
}

/* ---- metrics.jsonl ---- */

hr_status hri_rundir_append_metrics(const char *directory, const hr_metrics *m, bool evaluation, hr_error *error) {
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 0), *w = &writer;
  char path[PATH_BYTES];
  hr_status status = join(path, directory, "metrics.jsonl", error);
  int fd;
  if (status != HR_OK) return status;
  hri_json_begin_object(w);
  hri_json_field_u64(w, "step", m->step);
  if (evaluation) {
    hri_json_field_double(w, "eval_loss", m->eval_loss);
    hri_json_field_double(w, "eval_perplexity", exp(m->eval_loss));
  } else {
    hri_json_field_double(w, "loss", m->loss);
    hri_json_field_double(w, "grad_norm", m->grad_norm);
    hri_json_field_double(w, "learning_rate", m->learning_rate);
    hri_json_field_double(w, "epoch", m->epoch);
    hri_json_field_u64(w, "tokens", m->tokens);
    hri_json_field_u64(w, "tokens_total", m->tokens_total);
    hri_json_field_double(w, "tokens_per_second", m->tokens_per_second);
    hri_json_field_double(w, "step_seconds", m->step_seconds);
    hri_json_field_u64(w, "device_reserved_bytes", m->device_reserved_bytes);
    hri_json_field_u64(w, "device_peak_bytes", m->device_peak_bytes);
    hri_json_field_u64(w, "device_budget_bytes", m->device_budget_bytes);
    hri_json_field_u64(w, "process_resident_bytes", m->process_resident_bytes);
    hri_json_field_u64(w, "process_peak_bytes", m->process_peak_bytes);
  }
  hri_json_end_object(w);
  hri_text_add(&text, "\n");
  if (text.failed) {
    hri_text_deinit(&text);
    return hri_fail_memory(error, text.length, "metrics");
  }
  fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644); /* a FIFO is not waited for */
  if (fd < 0) status = hri_fail_errno(error, errno, "open", path);
  else status = hri_file_write_all(fd, path, text.chars, text.length, error);
  if (fd >= 0 && close(fd) != 0 && status == HR_OK) status = hri_fail_errno(error, errno, "write", path);
  hri_text_deinit(&text);
  return status;
}

hr_status hri_rundir_trim_metrics(const char *directory, uint64_t step, hr_error *error) {
  char path[PATH_BYTES], *bytes;
  uint64_t count, kept = 0;
  hr_status status;
  HRI_TRY(join(path, directory, "metrics.jsonl", error));
  if (!hri_path_exists(path)) return hri_file_replace(path, "", 0, error);
  HRI_TRY(hri_file_read(path, UINT64_C(1) << 32, &bytes, &count, error));
  for (uint64_t at = 0; at < count;) { /* complete lines of steps up to `step`; each begins {"step":N, */
    char *end = memchr(bytes + at, '\n', count - at);
    uint64_t line = end ? (uint64_t)(end - (bytes + at)) + 1 : 0;
    if (!line) break;
    if (strncmp(bytes + at, "{\"step\":", 8) == 0 && strtoull(bytes + at + 8, NULL, 10) <= step) {
      memmove(bytes + kept, bytes + at, line);
      kept += line;
    }
    at += line;
  }
  status = kept == count ? HR_OK : hri_file_replace(path, bytes, kept, error);
  hri_free(bytes);
  return status;
}

/* ---- checkpoints ---- */

/* What must agree for a resumed run to be the same run: everything that decides the mathematics and the data order. */
enum { IDENTITY_NUMBERS = 10 };
typedef struct identity_number { const char *key; double value; } identity_number;

static void identity_numbers(const hr_job *job, identity_number out[IDENTITY_NUMBERS]) {
  const identity_number numbers[IDENTITY_NUMBERS] = {
      {"lr", job->learning_rate}, {"warmup", job->warmup}, {"decay", job->decay}, {"min_lr_ratio", job->min_lr_ratio},
      {"weight_decay", job->weight_decay}, {"clip", job->clip}, {"beta1", job->beta1}, {"beta2", job->beta2},
      {"epsilon", job->epsilon}, {"momentum", job->momentum}};
  memcpy(out, numbers, sizeof numbers);
}

static void put_identity(hri_json_writer *w, const hr_job *job) {
  identity_number numbers[IDENTITY_NUMBERS];
  identity_numbers(job, numbers);
  hri_json_key(w, "identity");
  hri_json_begin_object(w);
  hri_json_field_u64(w, "parameter_count", hr_model_parameter_count(&job->model));
  hri_json_field_u64(w, "seq", job->sequence_length);
  hri_json_field_u64(w, "micro_batch", job->micro_batch);
  hri_json_field_u64(w, "accumulate", job->accumulate);
  hri_json_field_u64(w, "loss_chunk", hri_loss_chunk(job));
  hri_json_field_string(w, "precision", hr_precision_name(job->precision));
  hri_json_field_string(w, "moments", hr_moments_name(job->moments));
  hri_json_field_string(w, "optimizer", hr_optimizer_name(job->optimizer));
  hri_json_field_string(w, "schedule", hr_schedule_name(job->schedule));
  for (int k = 0; k < IDENTITY_NUMBERS; k++) hri_json_field_double(w, numbers[k].key, numbers[k].value);
  hri_json_field_u64(w, "seed", job->seed);
  hri_json_field_bool(w, "shuffle", job->shuffle);
  hri_json_end_object(w);
}

static hr_status write_state(const char *directory, const hr_job *job, const hri_progress *p, hr_error *error) {
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 2), *w = &writer;
  char path[PATH_BYTES], hash[32];
  hr_status status;
  (void)snprintf(hash, sizeof hash, "%016llx", (unsigned long long)p->data_hash);
  hri_json_begin_object(w);
  hri_json_field_u64(w, "schema_version", 1);
  hri_json_field_u64(w, "step", p->step);
  hri_json_field_u64(w, "steps", p->steps);
  hri_json_field_u64(w, "tokens_total", p->tokens_total);
  hri_json_field_i64(w, "applied_steps", p->applied_steps);
  hri_json_field_u64(w, "rows_seen", p->rows_seen);
  hri_json_field_string(w, "data_hash", hash);
  if (isfinite(p->best_eval_loss)) hri_json_field_double(w, "best_eval_loss", p->best_eval_loss);
  if (isfinite(p->last_loss)) hri_json_field_double(w, "last_loss", p->last_loss);
  put_identity(w, job);
  hri_json_end_object(w);
  hri_text_add(&text, "\n");
  status = text.failed ? hri_fail_memory(error, text.length, "state.json") : join(path, directory, "state.json", error);
  if (status == HR_OK) status = hri_file_replace(path, text.chars, text.length, error);
  hri_text_deinit(&text);
  return status;
}

/* Points the symbolic link `name` in `parent` at `target`, atomically. */
static hr_status point(const char *parent, const char *name, const char *target, hr_error *error) {
  char path[PATH_BYTES], temp[PATH_BYTES];
  HRI_TRY(join(path, parent, name, error));
  if (snprintf(temp, sizeof temp, "%s/.%s.tmp", parent, name) >= PATH_BYTES) return hri_fail(error, HR_ERROR_USAGE, "the path %.100s is too long", parent);
  (void)unlink(temp);
  if (symlink(target, temp) != 0) return hri_fail_errno(error, errno, "create", temp);
  if (rename(temp, path) != 0) {
    int number = errno;
    (void)unlink(temp);
    return hri_fail_errno(error, number, "rename to", path);
  }
  return hri_dir_sync(parent, error);
}

static int newest_first(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x > y ? -1 : x < y;
}

static hr_status list_checkpoints(const char *parent, uint64_t **steps, size_t *count, hr_error *error) {
  HRI_ARRAY(uint64_t) list = {0};
  DIR *dir = opendir(parent);
  struct dirent *entry;
  if (!dir) return hri_fail_errno(error, errno, "open directory", parent);
  while ((entry = readdir(dir))) {
    unsigned long long step;
    char rest;
    if (sscanf(entry->d_name, "step-%llu%c", &step, &rest) == 1 && !hri_array_push(&list, step)) {
      closedir(dir);
      hri_array_free(&list);
      return hri_fail_memory(error, 8, "the list of checkpoints");
    }
  }
  closedir(dir);
  if (list.count) qsort(list.items, list.count, sizeof *list.items, newest_first);
  *steps = list.items;
  *count = list.count;
  return HR_OK;
}

/* Takes a finished directory away: hidden first, in one step, so that a kill leaves no half of it under its name. */
static hr_status retire(const char *parent, const char *name, hr_error *error) {
  char path[PATH_BYTES], hidden[PATH_BYTES];
  HRI_TRY(join(path, parent, name, error));
  if (snprintf(hidden, sizeof hidden, "%s/.%s.old.tmp", parent, name) >= PATH_BYTES) return hri_fail(error, HR_ERROR_USAGE, "the path %.100s is too long", parent);
  HRI_TRY(hri_dir_remove(hidden, error));
  if (rename(path, hidden) != 0) return hri_fail_errno(error, errno, "rename", path);
  return hri_dir_remove(hidden, error);
}

/* Removes what a killed run was writing or taking away: hidden temporary entries of a directory. */
static void sweep(const char *parent) {
  DIR *dir = opendir(parent);
  struct dirent *entry;
  while (dir && (entry = readdir(dir))) {
    char path[PATH_BYTES];
    size_t length = strlen(entry->d_name);
    if (entry->d_name[0] != '.' || length < 6 || strcmp(entry->d_name + length - 4, ".tmp") != 0) continue;
    if (join(path, parent, entry->d_name, NULL) == HR_OK) (void)hri_dir_remove(path, NULL);
  }
  if (dir) closedir(dir);
}

static void remove_old(const char *parent, uint32_t keep) {
  char best[PATH_BYTES], path[PATH_BYTES], name[64];
  uint64_t *steps;
  size_t count;
  ssize_t length;
  if (keep == 0 || join(path, parent, "best", NULL) != HR_OK) return;
  length = readlink(path, best, sizeof best - 1);
  best[length > 0 ? length : 0] = 0;
  if (list_checkpoints(parent, &steps, &count, NULL) != HR_OK) return;
  for (size_t k = keep; k < count; k++) {
    (void)snprintf(name, sizeof name, "step-%06llu", (unsigned long long)steps[k]);
    if (strcmp(name, best) != 0) (void)retire(parent, name, NULL);
  }
  hri_free(steps);
}

/* Puts the finished directory `temp` at `path`. An old one there is exchanged in one step and then removed, so that at
 * every moment the old or the new stands at `path`. */
static hr_status publish(const char *temp, const char *path, const char *parent, hr_error *error) {
  HRI_TRY(hri_dir_sync(temp, error));
  if (!hri_path_exists(path)) {
    if (rename(temp, path) != 0) return hri_fail_errno(error, errno, "rename to", path);
    return hri_dir_sync(parent, error);
  }
  if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_EXCHANGE) != 0) {
    /* file systems without exchange: a moment without either, but the new one is complete */
    HRI_TRY(retire(parent, strrchr(path, '/') + 1, error));
    if (rename(temp, path) != 0) return hri_fail_errno(error, errno, "rename to", path);
    return hri_dir_sync(parent, error);
  }
  HRI_TRY(hri_dir_sync(parent, error));
  return hri_dir_remove(temp, error);
}

hr_status hri_rundir_checkpoint(const char *directory, hri_session *s, const hri_progress *p, bool best, uint32_t keep, char *path, hr_error *error) {
  char parent[PATH_BYTES], temp[PATH_BYTES], name[64];
  hr_status status;
  HRI_TRY(join(parent, directory, "checkpoints", error));
  (void)snprintf(name, sizeof name, "step-%06llu", (unsigned long long)p->step);
  HRI_TRY(join(path, parent, name, error));
  if (snprintf(temp, sizeof temp, "%s/.%s.tmp", parent, name) >= PATH_BYTES) return hri_fail(error, HR_ERROR_USAGE, "the path %.100s is too long", parent);
  HRI_TRY(hri_dir_remove(temp, error));
  HRI_TRY(hri_dir_make(temp, error));
  status = hri_session_save(s, temp, HRI_FILE_F32, true, error);
  if (status == HR_OK) status = write_state(temp, &s->plan->spec, p, error);
  if (status == HR_OK) status = publish(temp, path, parent, error);
  if (status != HR_OK) {
    (void)hri_dir_remove(temp, NULL);
    return status;
  }
  if (best) HRI_TRY(point(parent, "best", name, error));
  HRI_TRY(point(parent, "last", name, error));
  remove_old(parent, keep);
  return HR_OK;
}

static hr_status same_u64(const hri_json *identity, const char *key, uint64_t now, hr_error *error) {
  uint64_t then;
  hr_status status;
  HRI_TRY(hri_json_get_u64(identity, key, 0, UINT64_MAX >> 1, &then, error));
  if (then == now) return HR_OK;
  status = hri_fail(error, HR_ERROR_USAGE, "the checkpoint was made with %s %llu and this job has %llu", key, (unsigned long long)then, (unsigned long long)now);
  return hri_hint(error, status, "resume with the options of the first run (RUN/run.json lists them); memory techniques may differ");
}

static hr_status same_text(const hri_json *identity, const char *key, const char *now, hr_error *error) {
  const char *then;
  hr_status status;
  HRI_TRY(hri_json_get_string(identity, key, &then, error));
  if (strcmp(then, now) == 0) return HR_OK;
  status = hri_fail(error, HR_ERROR_USAGE, "the checkpoint was made with %s %s and this job has %s", key, then, now);
  return hri_hint(error, status, "resume with the options of the first run (RUN/run.json lists them)");
}

static hr_status same_double(const hri_json *identity, const char *key, double now, hr_error *error) {
  double then;
  hr_status status;
  HRI_TRY(hri_json_get_double(identity, key, &then, error));
  if (then == now) return HR_OK;
  status = hri_fail(error, HR_ERROR_USAGE, "the checkpoint was made with %s %g and this job has %g", key, then, now);
  return hri_hint(error, status, "resume with the options of the first run (RUN/run.json lists them)");
}

static hr_status read_state(const char *path, const hr_job *job, hri_progress *p, hr_error *error) {
  char file[PATH_BYTES];
  const char *hash;
  bool shuffle;
  identity_number numbers[IDENTITY_NUMBERS];
  hri_json root = {0}, identity;
  hr_status status;
  HRI_TRY(join(file, path, "state.json", error));
  HRI_TRY(hri_json_read(file, 1 << 20, &root, error));
  HRI_TRY_OUT(hri_json_get_u64(&root, "step", 0, UINT64_MAX >> 1, &p->step, error));
  HRI_TRY_OUT(hri_json_get_u64(&root, "steps", 0, UINT64_MAX >> 1, &p->steps, error));
  HRI_TRY_OUT(hri_json_get_u64(&root, "tokens_total", 0, UINT64_MAX >> 1, &p->tokens_total, error));
  HRI_TRY_OUT(hri_json_get_i64(&root, "applied_steps", 0, INT64_MAX, &p->applied_steps, error));
  HRI_TRY_OUT(hri_json_get_u64(&root, "rows_seen", 0, UINT64_MAX >> 1, &p->rows_seen, error));
  HRI_TRY_OUT(hri_json_get_string(&root, "data_hash", &hash, error));
  p->data_hash = strtoull(hash, NULL, 16);
  p->best_eval_loss = p->last_loss = NAN;
  HRI_TRY_OUT(hri_json_opt_double(&root, "best_eval_loss", &p->best_eval_loss, error));
  HRI_TRY_OUT(hri_json_opt_double(&root, "last_loss", &p->last_loss, error));
  HRI_TRY_OUT(hri_json_get_object(&root, "identity", &identity, error));
  HRI_TRY_OUT(same_u64(&identity, "parameter_count", hr_model_parameter_count(&job->model), error));
  HRI_TRY_OUT(same_u64(&identity, "seq", job->sequence_length, error));
  HRI_TRY_OUT(same_u64(&identity, "micro_batch", job->micro_batch, error));
  HRI_TRY_OUT(same_u64(&identity, "accumulate", job->accumulate, error));
  HRI_TRY_OUT(same_u64(&identity, "loss_chunk", hri_loss_chunk(job), error));
  HRI_TRY_OUT(same_u64(&identity, "seed", job->seed, error));
  HRI_TRY_OUT(same_text(&identity, "precision", hr_precision_name(job->precision), error));
  HRI_TRY_OUT(same_text(&identity, "moments", hr_moments_name(job->moments), error));
  HRI_TRY_OUT(same_text(&identity, "optimizer", hr_optimizer_name(job->optimizer), error));
  HRI_TRY_OUT(same_text(&identity, "schedule", hr_schedule_name(job->schedule), error));
  identity_numbers(job, numbers);
  for (int k = 0; k < IDENTITY_NUMBERS; k++) HRI_TRY_OUT(same_double(&identity, numbers[k].key, numbers[k].value, error));
  HRI_TRY_OUT(hri_json_get_bool(&identity, "shuffle", &shuffle, error));
  if (shuffle != job->shuffle) status = hri_fail(error, HR_ERROR_USAGE, "the checkpoint was made %s --shuffle", shuffle ? "with" : "without");
out:
  hri_json_deinit(&root);
  return status;
}

hr_status hri_rundir_resume(const char *directory, const hr_job *job, char *path, hri_progress *p, hr_error *error) {
  char parent[PATH_BYTES], name[64];
  uint64_t *steps = NULL;
  size_t count = 0;
  hr_status status;
  HRI_TRY(join(parent, directory, "checkpoints", error));
  status = list_checkpoints(parent, &steps, &count, error);
  if (status == HR_OK && count == 0) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s holds no checkpoint", parent);
    hri_hint(error, status, "the run stopped before its first checkpoint: start anew with another --out, and use --save-every");
  }
  if (status != HR_OK) return status;
  (void)snprintf(name, sizeof name, "step-%06llu", (unsigned long long)steps[0]);
  hri_free(steps);
  HRI_TRY(join(path, parent, name, error));
  HRI_TRY(read_state(path, job, p, error));
  sweep(directory); /* only now: this is a run, and the one that goes on */
  sweep(parent);
  return HR_OK;
}

/* ---- final ---- */

hr_status hri_rundir_final(const char *directory, hri_session *s, const char *save_dtype, char *path, hr_error *error) {
  char temp[PATH_BYTES];
  hri_file_dtype dtype = (hri_file_dtype)HRI_AS_SOURCE;
  hr_status status;
  if (save_dtype && strcmp(save_dtype, "f32") == 0) dtype = HRI_FILE_F32;
  else if (save_dtype && strcmp(save_dtype, "bf16") == 0) dtype = HRI_FILE_BF16;
  else if (save_dtype && strcmp(save_dtype, "f16") == 0) dtype = HRI_FILE_F16;
  else if (save_dtype && strcmp(save_dtype, "source") != 0) return hri_fail(error, HR_ERROR_USAGE, "--save-dtype %s is not one of source, f32, bf16, f16", save_dtype);
  HRI_TRY(join(path, directory, "final", error));
  HRI_TRY(join(temp, directory, ".final.tmp", error));
  HRI_TRY(hri_dir_remove(temp, error));
  HRI_TRY(hri_dir_make(temp, error));
  status = hri_session_save(s, temp, dtype, false, error);
  if (status == HR_OK) status = publish(temp, path, directory, error);
  if (status != HR_OK) (void)hri_dir_remove(temp, NULL);
  return status;
}
