/* The order of a checkpoint is its promise: files synced in the scratch, metrics.jsonl, state.json, the manifest, the
 * directory, the name, the parent; announced; older ones after that. tests/torture cuts the power at every point of
 * it. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/publish.h"
#include "model/adapter.h"
#include "train/manifest.h"
#include "train/runfile.h"

enum { PATH_BYTES = 4096, STATE_SCHEMA = 2, STATE_BYTES = 1 << 20, SMALL_BYTES = 64 << 20 };

void hri_checkpoint_name(uint64_t step, char out[64]) {
  (void)snprintf(out, 64, "step-%06llu", (unsigned long long)step);
}

void hri_checkpoint_asked(const char *text, char out[64]) {
  const char *digits = text + strlen("step-");
  uint64_t step = 0;
  if (strncmp(text, "step-", strlen("step-")) == 0 && digits[0] && strlen(digits) < 19 &&
      strspn(digits, "0123456789") == strlen(digits)) {
    for (; *digits; digits++) step = step * 10 + (uint64_t)(*digits - '0');
    hri_checkpoint_name(step, out);
  } else {
    (void)snprintf(out, 64, "%s", text);
  }
}

/* ---- listing ---- */

static int newest_first(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x > y ? -1 : x < y;
}

/* What stands under a name that is exactly that of a step: a directory, or, with `link`, a link, wherever it leads. */
static bool is_named(const char *parent, const char *name, bool link, uint64_t *step) {
  char again[64], path[PATH_BYTES];
  struct stat info;
  unsigned long long number;
  char rest;
  if (sscanf(name, "step-%llu%c", &number, &rest) != 1) return false;
  hri_checkpoint_name(number, again);
  *step = number;
  if (strcmp(name, again) != 0 || hri_path_at(path, parent, name, NULL) != HR_OK) return false;
  if (lstat(path, &info) != 0) return !link && errno != ENOENT; /* opening it will say what is wrong */
  return link ? S_ISLNK(info.st_mode) : S_ISDIR(info.st_mode);
}

static bool is_checkpoint(const char *parent, const char *name, uint64_t *step) {
  return is_named(parent, name, false, step);
}

/* A checkpoint that a person moved, and linked to: it is no directory that the run may write or remove, so it is not
 * gone on from, and not passed over without a word. Its disk may be away just now, so the link need lead nowhere. */
static bool newest_link(const char *parent, uint64_t *newest) {
  DIR *dir = opendir(parent);
  const char *name = NULL;
  uint64_t step;
  bool any = false;
  while (dir && hri_dir_next(dir, parent, &name, NULL) == HR_OK && name) {
    if (!is_named(parent, name, true, &step) || (any && step < *newest)) continue;
    *newest = step;
    any = true;
  }
  if (dir) (void)closedir(dir);
  return any;
}

hr_status hri_checkpoint_list(const char *parent, uint64_t **steps, size_t *count, hr_error *error) {
  HRI_ARRAY(uint64_t) list = {0};
  DIR *dir = opendir(parent);
  const char *name;
  uint64_t step;
  hr_status status;
  *steps = NULL;
  *count = 0;
  if (!dir && errno == ENOENT) return HR_OK;
  if (!dir) return hri_fail_errno(error, errno, "open directory", parent);
  while ((status = hri_dir_next(dir, parent, &name, error)) == HR_OK && name)
    if (is_checkpoint(parent, name, &step) && !hri_array_push(&list, step)) {
      status = hri_fail_memory(error, sizeof step, "the list of checkpoints");
      break;
    }
  (void)closedir(dir);
  if (status != HR_OK) {
    hri_array_free(&list);
    return status;
  }
  if (list.count) qsort(list.items, list.count, sizeof *list.items, newest_first);
  *steps = list.items;
  *count = list.count;
  return HR_OK;
}

bool hri_checkpoint_newest(const char *directory, char path[4096]) {
  char parent[PATH_BYTES], name[64];
  uint64_t *steps;
  size_t count;
  bool any;
  if (hri_path_at(parent, directory, "checkpoints", NULL) != HR_OK ||
      hri_checkpoint_list(parent, &steps, &count, NULL) != HR_OK)
    return false;
  any = count > 0;
  if (any) hri_checkpoint_name(steps[0], name);
  hri_free(steps);
  return any && hri_path_at(path, parent, name, NULL) == HR_OK;
}

hr_status hri_checkpoint_any(const char *directory, bool *any, hr_error *error) {
  char parent[PATH_BYTES];
  uint64_t *steps, linked;
  size_t count;
  *any = false;
  HRI_TRY(hri_path_at(parent, directory, "checkpoints", error));
  HRI_TRY(hri_checkpoint_list(parent, &steps, &count, error));
  hri_free(steps);
  *any = count > 0 || newest_link(parent, &linked);
  return HR_OK;
}

/* ---- links ---- */

/* FAT, servers that speak to it and folders that a virtual machine shares have none: the names are for people, and no run ends
 * for want of them. A disk that became read-only shows elsewhere: the checkpoint was renamed a moment before. */
static bool no_such_links(int number) {
  return number == EPERM || number == EOPNOTSUPP || number == ENOSYS || number == EROFS || number == EPROTO;
}

static void tell_unlinked(hri_rundir *r) {
  if (r->told_unlinked) return;
  r->told_unlinked = true;
  hri_session_tell(
      r->session, HR_EVENT_WARNING, NULL,
      "this file system has no symbolic links: checkpoints/last and best are not made; --resume takes the newest checkpoint");
}

/* Points the symbolic link `name` at `target`, in one step. A file or directory of that name is somebody's, and
 * stays. */
static hr_status point(hri_rundir *r, const char *parent, const char *name, const char *target, hr_error *error) {
  char path[PATH_BYTES], temp[PATH_BYTES];
  struct stat info;
  HRI_TRY(hri_path_at(path, parent, name, error));
  HRI_TRY(hri_scratch_path(r->checkpoint_scratch, name, temp, error));
  if (lstat(path, &info) == 0 && !S_ISLNK(info.st_mode)) return HR_OK;
  (void)unlink(temp);
  if (symlink(target, temp) != 0) {
    if (!no_such_links(errno)) return hri_fail_errno(error, errno, "create", temp);
    tell_unlinked(r);
    return HR_OK;
  }
  return rename(temp, path) == 0 ? HR_OK : hri_fail_errno(error, errno, "rename to", path);
}

/* "": there is no such link. False: it could not be read. */
static bool link_target(const char *parent, const char *name, char out[64]) {
  char path[PATH_BYTES];
  ssize_t length = hri_path_at(path, parent, name, NULL) == HR_OK ? readlink(path, out, 63) : -1;
  int number = errno;
  out[length > 0 ? length : 0] = 0;
  return length >= 0 || number == ENOENT || number == EINVAL;
}

/* ---- removing old ones ---- */

static void tell_kept(hri_rundir *r, const char *name, const char *why) {
  char text[512];
  if (r->told_kept) return;
  r->told_kept = true;
  (void)snprintf(text, sizeof text, "checkpoints/%.63s is kept: %.400s", name, why);
  hri_session_tell(r->session, HR_EVENT_WARNING, NULL, text);
}

/* A reader holds the manifest with a shared lock (hr_hold_take): then the checkpoint stays until a later one is
 * saved. */
static bool is_read(const char *path) {
  char manifest[PATH_BYTES];
  bool held;
  int fd = hri_path_at(manifest, path, HRI_MANIFEST_FILE, NULL) == HR_OK
               ? open(manifest, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
               : -1;
  if (fd < 0) return false;
  held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  (void)close(fd);
  return held;
}

/* Only what its manifest names goes; with anything else in it, all of it stays. Returns whether it is in the scratch
 * now. */
static bool retire(hri_rundir *r, const char *parent, const char *name) {
  char path[PATH_BYTES], away[PATH_BYTES], unlisted[256];
  hri_file_list files = {0};
  uint64_t step;
  uint32_t others = 0;
  bool known = hri_path_at(path, parent, name, NULL) == HR_OK &&
               hri_manifest_read(path, &step, &files, NULL) == HR_OK &&
               hri_files_unlisted(path, &files, unlisted, &others, NULL) == HR_OK;
  hri_array_free(&files);
  if (!known) {
    tell_kept(
        r, name,
        "nothing says what belongs to it (a checkpoint of schema_version 1, or a damaged manifest); remove it by hand");
    return false;
  }
  if (others > 0) {
    char why[320];
    (void)snprintf(why, sizeof why, "it holds %s, which this run did not make", unlisted);
    tell_kept(r, name, why);
    return false;
  }
  return !is_read(path) && hri_scratch_path(r->checkpoint_scratch, name, away, NULL) == HR_OK &&
         rename(path, away) == 0;
}

/* Once more before it is removed: a person may have put something in while it was taken away. Then it goes back. */
static void remove_retired(hri_rundir *r, const char *parent, uint64_t step) {
  char name[64], away[PATH_BYTES], path[PATH_BYTES], unlisted[256];
  hri_file_list files = {0};
  uint64_t stated;
  uint32_t others = 0;
  hri_checkpoint_name(step, name);
  if (hri_scratch_path(r->checkpoint_scratch, name, away, NULL) != HR_OK ||
      hri_path_at(path, parent, name, NULL) != HR_OK)
    return;
  if (hri_manifest_read(away, &stated, &files, NULL) == HR_OK &&
      hri_files_unlisted(away, &files, unlisted, &others, NULL) == HR_OK && others == 0)
    (void)hri_dir_remove(away, NULL);
  else (void)hri_publish_new(away, path, NULL);
  hri_array_free(&files);
}

/* What is taken away leaves its name for good before its files go: else a power cut could bring back a directory with
 * some of them. */
static void remove_old(hri_rundir *r, const char *parent, uint32_t keep) {
  char best[64], name[64];
  uint64_t *steps;
  size_t count, gone = 0;
  if (keep == 0) return;
  if (!link_target(parent, "best", best) ||
      hri_checkpoint_list(parent, &steps, &count, NULL) != HR_OK) { /* the best one must be known to stay */
    hri_session_tell(r->session, HR_EVENT_WARNING, NULL,
                     "checkpoints/ could not be read: older checkpoints stay for now");
    return;
  }
  for (size_t k = keep; k < count; k++) {
    hri_checkpoint_name(steps[k], name);
    if (strcmp(name, best) != 0 && strcmp(name, r->best) != 0 && retire(r, parent, name)) steps[gone++] = steps[k];
  }
  if (gone > 0 && hri_dir_sync(parent, NULL) == HR_OK)
    for (size_t k = 0; k < gone; k++) remove_retired(r, parent, steps[k]);
  hri_free(steps);
}

/* ---- writing ---- */

static void put_digest(hri_json_writer *w, const char *key, uint64_t value) {
  char text[HRI_DIGEST_TEXT_BYTES];
  hri_file_digest_text(value, text);
  hri_json_field_string(w, key, text);
}

/* What adapters were trained beside: the model's files, or the seed that it began with. */
static void put_base(hri_json_writer *w, const hri_session *s) {
  const hr_model *model = &s->plan->spec.model;
  if (model->lora.rank == 0) return;
  hri_json_key(w, "base");
  hri_json_begin_object(w);
  hri_json_field_string(w, "model", model->has_weights ? model->directory : model->name);
  if (!model->has_weights) hri_json_field_u64(w, "seed", s->plan->spec.seed);
  hri_json_key(w, "files");
  hri_json_begin_object(w);
  for (size_t k = 0; k < s->base.count; k++) put_digest(w, s->base.items[k].name, s->base.items[k].digest);
  hri_json_end_object(w);
  hri_json_end_object(w);
}

static void put_ways(hri_json_writer *w, const hri_backend *backend) {
  if (!backend->put_ways) return;
  hri_json_key(w, "ways");
  backend->put_ways(backend->self, w);
}

static void put_state(hri_json_writer *w, const hri_rundir *r, const hri_progress *p, uint64_t metrics_bytes,
                      uint64_t metrics_digest) {
  const hri_job *compiled = &r->session->plan->job;
  char hash[32];
  (void)snprintf(hash, sizeof hash, "%016llx", (unsigned long long)p->data_hash);
  hri_json_begin_object(w);
  hri_json_field_u64(w, "schema_version", STATE_SCHEMA);
  hri_json_field_u64(w, "step", p->step);
  hri_json_field_u64(w, "steps", p->steps);
  hri_json_field_u64(w, "tokens_total", p->tokens_total);
  hri_json_field_i64(w, "applied_steps", p->applied_steps);
  hri_json_field_u64(w, "rows_seen", p->rows_seen);
  hri_json_field_u64(w, "skipped_steps", p->skipped_steps);
  hri_json_field_u64(w, "skipped_in_row", p->skipped_in_row);
  if (r->job->precision == HR_PRECISION_FP16) {
    hri_json_field_double(w, "loss_scale", p->loss_scale);
    hri_json_field_i64(w, "growth_tracker", p->growth_tracker);
  }
  hri_json_field_string(w, "data_hash", hash);
  if (isfinite(p->best_eval_loss)) hri_json_field_double(w, "best_eval_loss", p->best_eval_loss);
  if (isfinite(p->eval_loss)) hri_json_field_double(w, "eval_loss", p->eval_loss);
  if (isfinite(p->last_loss)) hri_json_field_double(w, "last_loss", p->last_loss);
  if (p->evaluation_due) hri_json_field_bool(w, "evaluation_due", true);
  hri_json_key(w, "metrics");
  hri_json_begin_object(w);
  hri_json_field_u64(w, "bytes", metrics_bytes);
  put_digest(w, "digest", metrics_digest);
  hri_json_end_object(w);
  put_base(w, r->session);
  hri_identity_put(w, r->job, r->options, &r->facts);
  hri_machine_put(w, &r->session->plan->spec, compiled->instruction_set, compiled->libraries,
                  hri_job_splits(&r->session->plan->job));
  put_ways(w, r->session->plan->backend);
  hri_json_end_object(w);
}

/* Into a directory that has no name yet: no temporary, one sync. */
static hr_status write_state(hri_rundir *r, const char *directory, const hri_progress *p, hri_file_list *files,
                             hr_error *error) {
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 2);
  char path[PATH_BYTES];
  uint64_t bytes, digest;
  hr_status status;
  HRI_TRY(hri_metrics_settle(r, &bytes, &digest, error));
  HRI_TRY(hri_path_at(path, directory, "state.json", error));
  put_state(&writer, r, p, bytes, digest);
  hri_text_add(&text, "\n");
  status = text.failed ? hri_fail_memory(error, text.length, "state.json")
                       : hri_file_write_new(path, text.chars, text.length, error);
  if (status == HR_OK)
    status = hri_file_list_add(files, path, text.length, hri_file_digest_of(text.chars, text.length), error);
  hri_text_deinit(&text);
  return status;
}

static hr_status fill(hri_rundir *r, hri_session *s, const char *temp, const hri_progress *p, hr_error *error) {
  hri_file_list files = {0};
  hr_status status = hri_session_save(s, temp, HRI_FILE_F32, true, &files, error);
  if (status == HR_OK) status = write_state(r, temp, p, &files, error);
  if (status == HR_OK) status = hri_manifest_write(temp, p->step, &files, error);
  if (status == HR_OK) status = hri_dir_sync(temp, error);
  hri_array_free(&files);
  return status;
}

/* A checkpoint of this very step may stand there: of a run that went back to an earlier one. */
static hr_status publish(hri_rundir *r, const char *temp, const char *path, hr_error *error) {
  char manifest[PATH_BYTES];
  hri_file_list files = {0};
  uint64_t step;
  hr_status status = hri_path_at(manifest, path, HRI_MANIFEST_FILE, error);
  if (status == HR_OK && hri_manifest_read(path, &step, &files, NULL) == HR_OK)
    (void)hri_file_list_read(&files, manifest, NULL);
  if (status == HR_OK) status = hri_run_publish(r, r->checkpoint_scratch, temp, path, &files, error);
  hri_array_free(&files);
  return status;
}

/* A person may have removed RUN/lock. Then nobody is kept out, which is said; who came in meanwhile has the directory. */
static hr_status check_lock(hri_rundir *r, hr_error *error) {
  char what[PATH_BYTES + 16], text[PATH_BYTES + 120];
  hr_status status;
  bool gone;
  (void)snprintf(what, sizeof what, "the run %s", r->directory);
  status = hri_lock_check(r->lock, what, &gone, error);
  r->lost = status != HR_OK;
  if (!gone || r->told_unlocked) return status;
  r->told_unlocked = true;
  (void)snprintf(text, sizeof text, "%.3900s/%s was removed: nothing keeps another process from writing there now",
                 r->directory, hri_lock_how(r->lock) ? "lock.exclusive" : "lock");
  hri_session_tell(r->session, HR_EVENT_WARNING, NULL, text);
  return HR_OK;
}

static hr_status put_in_place(hri_rundir *r, const char *temp, const char *parent, const char *name, const char *path,
                              bool best, hr_error *error) {
  HRI_TRY(publish(r, temp, path, error));
  if (best) {
    (void)snprintf(r->best, sizeof r->best, "%s", name);
    HRI_TRY(point(r, parent, "best", name, error));
  }
  HRI_TRY(point(r, parent, "last", name, error));
  return hri_publish_settle(path, error);
}

hr_status hri_checkpoint_write(hri_rundir *r, hri_session *s, const hri_progress *p, bool best, char *path,
                               hr_error *error) {
  char parent[PATH_BYTES], temp[PATH_BYTES], name[64];
  hr_status status;
  HRI_TRY(check_lock(r, error));
  hri_checkpoint_name(p->step, name);
  HRI_TRY(hri_path_at(parent, r->directory, "checkpoints", error));
  HRI_TRY(hri_path_at(path, parent, name, error));
  HRI_TRY(hri_scratch_path(r->checkpoint_scratch, name, temp, error));
  HRI_TRY(hri_dir_remove(temp, error));
  if (mkdir(temp, 0755) != 0) return hri_fail_errno(error, errno, "create directory", temp);
  status = fill(r, s, temp, p, error);
  if (status == HR_OK) {
    status = put_in_place(r, temp, parent, name, path, best, error);
    if (status != HR_OK && error) error->system_error = 0; /* it may stand: it is not the room for it that is missing */
  }
  if (status != HR_OK) (void)hri_dir_remove(temp, NULL);
  return status;
}

void hri_checkpoint_retire(hri_rundir *r, uint32_t keep) {
  char parent[PATH_BYTES];
  if (hri_path_at(parent, r->directory, "checkpoints", NULL) == HR_OK) remove_old(r, parent, keep);
}

/* ---- reading ---- */

static hr_status read_schema(const hri_json *root, const char *file, uint64_t *schema, hr_error *error) {
  hr_status status;
  HRI_TRY(hri_json_get_u64(root, "schema_version", 0, INT64_MAX, schema, error));
  if (*schema >= 1 && *schema <= STATE_SCHEMA) return HR_OK;
  status = hri_fail(error, HR_ERROR_INPUT, "%s has schema version %llu, and this version of Headroom reads up to %d",
                    file, (unsigned long long)*schema, STATE_SCHEMA);
  return hri_hint(error, status, "go on with the version of Headroom that made the run, or a newer one");
}

/* Of fp16; a run in another precision has none, and NaN is what is read. The scale was an fp32 number. */
static hr_status read_scaler(const hri_json *root, hri_progress *p, hr_error *error) {
  uint64_t tracker = 0;
  hr_status status;
  p->loss_scale = NAN;
  HRI_TRY(hri_json_opt_double(root, "loss_scale", &p->loss_scale, error));
  HRI_TRY(hri_json_opt_u64(root, "growth_tracker", 0, INT32_MAX, &tracker, error));
  p->growth_tracker = (int64_t)tracker;
  if (isnan(p->loss_scale) || (p->loss_scale >= 0 && p->loss_scale <= (double)FLT_MAX)) return HR_OK;
  status = hri_fail(error, HR_ERROR_INPUT, "loss_scale is %g; it must be 0 or more, and an fp32 number", p->loss_scale);
  return hri_hint(error, status, "go on from another checkpoint with --from step-N");
}

static hr_status read_progress(const hri_json *root, hri_progress *p, hr_error *error) {
  const char *hash;
  uint64_t in_row = 0;
  HRI_TRY(hri_json_get_u64(root, "step", 0, INT64_MAX, &p->step, error));
  HRI_TRY(hri_json_get_u64(root, "steps", 0, INT64_MAX, &p->steps, error));
  HRI_TRY(hri_json_get_u64(root, "tokens_total", 0, INT64_MAX, &p->tokens_total, error));
  HRI_TRY(hri_json_get_i64(root, "applied_steps", 0, INT64_MAX, &p->applied_steps, error));
  HRI_TRY(hri_json_get_u64(root, "rows_seen", 0, INT64_MAX, &p->rows_seen, error));
  HRI_TRY(hri_json_opt_u64(root, "skipped_steps", 0, INT64_MAX, &p->skipped_steps, error));
  HRI_TRY(hri_json_opt_u64(root, "skipped_in_row", 0, UINT32_MAX, &in_row, error));
  HRI_TRY(read_scaler(root, p, error));
  HRI_TRY(hri_json_get_string(root, "data_hash", &hash, error));
  p->skipped_in_row = (uint32_t)in_row;
  p->data_hash = strtoull(hash, NULL, 16);
  p->best_eval_loss = p->last_loss = p->eval_loss = NAN;
  HRI_TRY(hri_json_opt_double(root, "best_eval_loss", &p->best_eval_loss, error));
  HRI_TRY(hri_json_opt_double(root, "eval_loss", &p->eval_loss, error));
  HRI_TRY(hri_json_opt_bool(root, "evaluation_due", &p->evaluation_due, error));
  return hri_json_opt_double(root, "last_loss", &p->last_loss, error);
}

static hr_status read_metrics(const hri_json *root, hri_checkpoint *c, hr_error *error) {
  hri_json metrics;
  const char *digest;
  HRI_TRY(hri_json_get_object(root, "metrics", &metrics, error));
  HRI_TRY(hri_json_get_u64(&metrics, "bytes", 0, INT64_MAX, &c->metrics_bytes, error));
  HRI_TRY(hri_json_get_string(&metrics, "digest", &digest, error));
  c->has_metrics = hri_file_digest_parse(digest, &c->metrics_digest);
  return c->has_metrics ? HR_OK : hri_json_fail(&metrics, error, "a digest");
}

static void take_text(const hri_json *object, const char *key, char *to, size_t room) {
  const char *text;
  if (hri_json_get_string(object, key, &text, NULL) == HR_OK && strlen(text) < room) (void)strcpy(to, text);
}

/* The CPU's table of products stands in the name of the libraries, a GPU's by itself. Schema 1 did not say. */
static void read_products(const hri_json *root, const char *file, hri_checkpoint *c) {
  hri_json machine, ways = hri_json_member(root, "ways");
  if (hri_json_get_object(root, "machine", &machine, NULL) == HR_OK) {
    take_text(&machine, "libraries", c->products, sizeof c->products);
    take_text(&machine, "instruction_set", c->instruction_set, sizeof c->instruction_set);
  }
  hri_json_deinit(&c->ways); /* of one that was looked at before */
  if (!ways.value) return;
  (void)snprintf(c->ways_file, sizeof c->ways_file, "%s", file);
  ways.file = c->ways_file;
  (void)json_incref(ways.value);
  c->ways = ways;
}

/* A word, or in schema 1 a boolean. */
static void read_order(const hri_json *root, hri_checkpoint *c) {
  hri_json identity, order;
  const char *text;
  if (hri_json_get_object(root, "identity", &identity, NULL) != HR_OK) return;
  order = hri_json_member(&identity, "shuffle");
  text = json_string_value(order.value);
  c->has_order = text || json_is_boolean(order.value);
  c->shuffled = text ? strcmp(text, "true") == 0 : json_is_true(order.value);
}

static hr_status read_state(hri_checkpoint *c, hr_error *error) {
  char file[PATH_BYTES];
  hri_json root = {0};
  uint64_t schema;
  hr_status status;
  HRI_TRY(hri_path_at(file, c->path, "state.json", error));
  HRI_TRY(hri_json_read(file, STATE_BYTES, &root, error));
  HRI_TRY_OUT(read_schema(&root, file, &schema, error));
  HRI_TRY_OUT(read_progress(&root, &c->progress, error));
  read_products(&root, file, c);
  read_order(&root, c);
  if (schema >= 2) HRI_TRY_OUT(read_metrics(&root, c, error));
out:
  hri_json_deinit(&root);
  return status;
}

/* Beside a state.json of schema 1 there was no manifest; anything newer without one has lost it. */
static bool is_old(const char *path) {
  char file[PATH_BYTES];
  hri_json root = {0};
  uint64_t schema = 0;
  bool old = hri_path_at(file, path, HRI_MANIFEST_FILE, NULL) == HR_OK && !hri_path_exists(file) &&
             hri_path_at(file, path, "state.json", NULL) == HR_OK &&
             hri_json_read(file, STATE_BYTES, &root, NULL) == HR_OK &&
             hri_json_get_u64(&root, "schema_version", 1, 1, &schema, NULL) == HR_OK;
  hri_json_deinit(&root);
  return old;
}

static void tell_unlisted(void *context, hri_manifest_finding_kind kind, const char *path, const char *text) {
  const hri_rundir *r = context;
  char note[PATH_BYTES];
  if (kind != HRI_FINDING_UNLISTED) return;
  (void)snprintf(note, sizeof note, "%.3000s %s", path, text);
  hri_session_tell(r->session, HR_EVENT_NOTE, NULL, note);
}

/* Everything but the tensors: those are verified while they are loaded. */
static hr_status verify_small(const hri_rundir *r, hri_checkpoint *c, hr_error *error) {
  uint64_t step;
  char name[64];
  HRI_TRY(hri_manifest_read(c->path, &step, &c->files, error));
  hri_checkpoint_name(step, name);
  if (strcmp(strrchr(c->path, '/') + 1, name) != 0) {
    hri_fail(error, HR_ERROR_INPUT, "%s has the manifest of %s", c->path, name);
    return hri_hint(error, HR_ERROR_INPUT, "put the directories back under their own names");
  }
  HRI_TRY(hri_manifest_check(c->path, &c->files, 0, error)); /* lengths and names */
  for (size_t k = 0; k < c->files.count; k++) {
    const hri_file_record *file = &c->files.items[k];
    hri_file_list one = {.items = &c->files.items[k], .count = 1, .capacity = 1};
    hr_error first = {0};
    size_t length = strlen(file->name);
    if (length > 12 && strcmp(file->name + length - 12, ".safetensors") == 0) continue;
    if (hri_files_compare(c->path, &one, UINT64_MAX, hri_take_first_finding, &first) == 0) continue;
    if (error) *error = first;
    return first.code;
  }
  (void)hri_manifest_compare(c->path, &c->files, 0, tell_unlisted, (void *)(uintptr_t)r);
  c->verified = true;
  return HR_OK;
}

static bool is_whole(const char *path) {
  hri_file_list files = {0};
  uint64_t step;
  bool whole = hri_manifest_read(path, &step, &files, NULL) == HR_OK &&
               hri_manifest_check(path, &files, UINT64_MAX, NULL) == HR_OK;
  hri_array_free(&files);
  return whole;
}

/* What to go on from instead. Reads other checkpoints whole, which only happens when this one is damaged. */
static hr_status offer(const hri_rundir *r, const hri_checkpoint *c, hr_status status, hr_error *error) {
  char parent[PATH_BYTES], path[PATH_BYTES], name[64];
  uint64_t *steps = NULL;
  size_t count = 0;
  if (status != HR_ERROR_INPUT || hri_path_at(parent, r->directory, "checkpoints", NULL) != HR_OK ||
      hri_checkpoint_list(parent, &steps, &count, NULL) != HR_OK)
    return status;
  for (size_t k = 0; k < count; k++) {
    hri_checkpoint_name(steps[k], name);
    if (hri_path_at(path, parent, name, NULL) != HR_OK || strcmp(path, c->path) == 0 || !is_whole(path)) continue;
    hri_hint(error, status, "the newest whole checkpoint is %s: --resume %s --from %s", name, r->directory, name);
    hri_free(steps);
    return status;
  }
  hri_free(steps);
  return hri_hint(
      error, status,
      "no other checkpoint of this run is whole: restore this one from a copy, or begin anew with another --out");
}

static hr_status refuse_link(const char *parent, uint64_t linked, uint64_t newest, hr_error *error) {
  char name[64], other[64], instead[100] = "";
  hr_status status;
  hri_checkpoint_name(linked, name);
  hri_checkpoint_name(newest, other);
  if (newest) (void)snprintf(instead, sizeof instead, ", or go on without it: --from %s", other);
  status =
      hri_fail(error, HR_ERROR_USAGE, "%s/%s is a link, and a run goes on from a directory of its own", parent, name);
  return hri_hint(error, status, "put the directory itself there%s", instead);
}

/* --from: a name as a person gives it; `newest`: that of the directories. */
static hr_status choose_asked(const hri_rundir *r, const char *parent, uint64_t newest, hri_checkpoint *c,
                              hr_error *error) {
  const char *from = r->options->resume_from;
  char name[64];
  uint64_t step;
  hr_status status;
  hri_checkpoint_asked(from, name);
  if (is_checkpoint(parent, name, &step)) return hri_path_at(c->path, parent, name, error);
  if (is_named(parent, name, true, &step)) return refuse_link(parent, step, newest, error);
  status = hri_fail(error, HR_ERROR_USAGE, "--from %.80s: %s holds no such checkpoint", from, parent);
  if (newest == 0) return status;
  hri_checkpoint_name(newest, name);
  return hri_hint(error, status, "its newest is %s", name);
}

static hr_status choose(const hri_rundir *r, hri_checkpoint *c, hr_error *error) {
  char parent[PATH_BYTES], name[64];
  uint64_t step, linked, *steps;
  size_t count;
  hr_status status;
  HRI_TRY(hri_path_at(parent, r->directory, "checkpoints", error));
  HRI_TRY(hri_checkpoint_list(parent, &steps, &count, error));
  step = count > 0 ? steps[0] : 0;
  hri_free(steps);
  if (r->options->resume_from) return choose_asked(r, parent, step, c, error);
  if (newest_link(parent, &linked) && linked > step) return refuse_link(parent, linked, step, error);
  hri_checkpoint_name(step, name);
  if (count > 0) return hri_path_at(c->path, parent, name, error);
  status = hri_fail(error, HR_ERROR_INPUT, "%s holds no checkpoint", parent);
  return hri_hint(
      error, status,
      "the run stopped before its first checkpoint: give the command that began it once more, with --out %s, and it starts again",
      r->directory);
}

hr_status hri_checkpoint_open(hri_rundir *r, hri_checkpoint *c, hr_error *error) {
  hr_status status;
  memset(c, 0, sizeof *c);
  HRI_TRY(choose(r, c, error));
  if (is_old(c->path)) {
    char text[PATH_BYTES];
    (void)snprintf(text, sizeof text, "%.3000s was made before runs had digests (schema_version 1): it is not verified",
                   c->path);
    hri_session_tell(r->session, HR_EVENT_WARNING, NULL, text);
    return read_state(c, error);
  }
  status = verify_small(r, c, error);
  if (status == HR_OK) status = read_state(c, error);
  if (status != HR_OK && error && (strstr(error->message, "schema version") || strstr(error->hint, "move it out")))
    return status; /* no damage */
  return status == HR_OK ? HR_OK : offer(r, c, status, error);
}

void hri_checkpoint_close(hri_checkpoint *c) {
  hri_array_free(&c->files);
  hri_json_deinit(&c->ways);
  hri_text_deinit(&c->machine_differs);
  hri_text_deinit(&c->allowed);
}

hr_status hri_checkpoint_check_identity(const hri_rundir *r, hri_checkpoint *c, const char *instruction_set,
                                        const char *libraries, hr_error *error) {
  char file[PATH_BYTES], config[PATH_BYTES];
  hri_json root = {0};
  hri_settled settled;
  hr_status status;
  HRI_TRY(hri_path_at(file, c->path, "state.json", error));
  HRI_TRY(hri_path_at(config, c->path, "config.json", error));
  HRI_TRY(hri_json_read(file, STATE_BYTES, &root, error));
  hri_run_settled(r, c->progress.step, &settled);
  c->settled_steps = settled.steps;
  status = hri_identity_check(&root, config, r->job, r->options, &r->facts, &settled, &c->allowed, error);
  hri_settled_deinit(&settled);
  if (status == HR_OK)
    hri_machine_compare(&root, &r->session->plan->spec, instruction_set, libraries,
                        hri_job_splits(&r->session->plan->job), &c->machine_differs);
  hri_json_deinit(&root);
  return status;
}

hr_status hri_checkpoint_check_tensors(const hri_rundir *r, const hri_checkpoint *c, const hri_file_list *loaded,
                                       hr_error *error) {
  if (!c->verified) return HR_OK;
  for (size_t k = 0; k < loaded->count; k++) {
    const hri_file_record *have = &loaded->items[k], *want = hri_file_list_find(&c->files, have->name);
    if (want && want->bytes == have->bytes && want->digest == have->digest) continue;
    (void)hri_fail(error, HR_ERROR_INPUT, "%s/%s is damaged: its bytes are not those that were saved", c->path,
                   have->name);
    return offer(r, c, HR_ERROR_INPUT, error);
  }
  return HR_OK;
}

/* A flipped bit in the name of a tensor reads like a checkpoint of another kind: what the load says against the command
 * stands only where every byte is the one that was saved. */
hr_status hri_checkpoint_explain(const hri_rundir *r, const hri_checkpoint *c, hr_status status, hr_error *error) {
  hr_error damage = {0};
  if (status == HR_ERROR_USAGE && c->verified &&
      hri_manifest_check(c->path, &c->files, UINT64_MAX, &damage) == HR_ERROR_INPUT) {
    status = HR_ERROR_INPUT;
    if (error) *error = damage;
  }
  return offer(r, c, status, error);
}

static hr_status other_base(hr_error *error) {
  return hri_hint(error, HR_ERROR_INPUT, "put the model back as it was, or train new adapters for this one");
}

/* A base without files began from the seed. */
static hr_status compare_seed(const hri_json *base, const hr_job *job, hr_error *error) {
  uint64_t seed;
  if (job->model.has_weights) return HR_OK;
  HRI_TRY(hri_json_get_u64(base, "seed", 0, INT64_MAX, &seed, error));
  if (seed == job->seed) return HR_OK;
  (void)hri_fail(error, HR_ERROR_USAGE,
                 "--seed %llu: the model that the adapters of this run were trained beside was made from seed %llu",
                 (unsigned long long)job->seed, (unsigned long long)seed);
  return hri_hint(error, HR_ERROR_USAGE, "leave --seed as it was, or train new adapters");
}

static hr_status compare_base(const hri_json *base, const hri_rundir *r, hr_error *error) {
  const hri_file_list *have = &r->session->base;
  const hr_model *model = &r->session->plan->spec.model;
  bool is_file = model->has_weights && !hri_path_is_dir(model->directory);
  hri_json files;
  HRI_TRY(hri_json_get_object(base, "files", &files, error));
  for (size_t k = 0; k < have->count; k++) {
    char text[HRI_DIGEST_TEXT_BYTES];
    const char *then = json_string_value(json_object_get(files.value, have->items[k].name));
    hri_file_digest_text(have->items[k].digest, text);
    if (then && strcmp(then, text) == 0) continue;
    (void)hri_fail(error, HR_ERROR_INPUT, "%s%s%s is not the file that the adapters of this run were trained beside",
                   model->directory, is_file ? "" : "/", is_file ? "" : have->items[k].name);
    return other_base(error);
  }
  if (json_object_size(files.value) == have->count) return compare_seed(base, &r->session->plan->spec, error);
  (void)hri_fail(error, HR_ERROR_INPUT,
                 "%s has other weight files than the model that the adapters of this run were trained beside",
                 model->has_weights ? model->directory : model->name);
  return other_base(error);
}

/* The settings of the checkpoint's adapters; how they began is past. */
static hr_status compare_settings(const hri_checkpoint *c, const hr_model *now, hr_error *error) {
  hr_model then = *now;
  HRI_TRY(hri_adapter_open(c->path, &then, error));
  then.lora.gaussian = now->lora.gaussian;
  if (memcmp(&then.lora, &now->lora, sizeof then.lora) == 0) return HR_OK;
  (void)hri_fail(error, HR_ERROR_USAGE, "%s/" HRI_ADAPTER_CONFIG " says other adapters than this command", c->path);
  return hri_hint(error, HR_ERROR_USAGE, "--resume RUN alone goes on with those of the run");
}

hr_status hri_checkpoint_check_base(const hri_rundir *r, const hri_checkpoint *c, hr_error *error) {
  char file[PATH_BYTES];
  hri_json root = {0}, base;
  hr_status status;
  if (r->session->plan->spec.model.lora.rank == 0) return HR_OK;
  HRI_TRY(compare_settings(c, &r->session->plan->spec.model, error));
  HRI_TRY(hri_path_at(file, c->path, "state.json", error));
  HRI_TRY(hri_json_read(file, STATE_BYTES, &root, error));
  status = hri_json_get_object(&root, "base", &base, error);
  if (status == HR_OK) status = compare_base(&base, r, error);
  hri_json_deinit(&root);
  return status;
}

/* ---- going on ---- */

/* NaN: it was not evaluated. */
static hr_status eval_loss_of(const char *parent, const char *name, double *loss, hr_error *error) {
  char file[PATH_BYTES], path[PATH_BYTES];
  hri_json root = {0};
  hr_status status;
  *loss = NAN;
  HRI_TRY(hri_path_at(path, parent, name, error));
  HRI_TRY(hri_path_at(file, path, "state.json", error));
  status = hri_json_read(file, STATE_BYTES, &root, error);
  if (status == HR_OK) status = hri_json_opt_double(&root, "eval_loss", loss, error);
  hri_json_deinit(&root);
  return status;
}

static hr_status find_best(const hri_rundir *r, const char *parent, const uint64_t *steps, size_t count,
                           char best[64]) {
  char name[64];
  double least = INFINITY, loss;
  hr_error error = {0};
  best[0] = 0;
  for (size_t k = 0; k < count; k++) {
    hri_checkpoint_name(steps[k], name);
    if (eval_loss_of(parent, name, &loss, &error) != HR_OK) {
      char text[900];
      (void)snprintf(text, sizeof text, "best is not looked for: %s", error.message);
      hri_session_tell(r->session, HR_EVENT_WARNING, NULL, text);
      return error.code;
    }
    if (!isfinite(loss) || loss > least) continue;
    least = loss;
    (void)strcpy(best, name);
  }
  return HR_OK;
}

/* Both were made after the rename that they speak of: a kill between may have left them behind. */
static hr_status make_links(hri_rundir *r, const char *parent, const uint64_t *steps, size_t count, hr_error *error) {
  char name[64], best[64], now[64], path[PATH_BYTES];
  double loss;
  bool there = false;
  if (count == 0) return HR_OK;
  hri_checkpoint_name(steps[0], name);
  if (!link_target(parent, "last", now) || strcmp(now, name) != 0) HRI_TRY(point(r, parent, "last", name, error));
  if (find_best(r, parent, steps, count, best) != HR_OK || !link_target(parent, "best", now))
    return HR_OK; /* it stays where it is */
  (void)snprintf(r->best, sizeof r->best, "%s", best);
  for (size_t k = 0; k < count; k++) {
    hri_checkpoint_name(steps[k], name);
    if (strcmp(name, now) == 0 && eval_loss_of(parent, name, &loss, NULL) == HR_OK && isnan(loss))
      return HR_OK; /* schema 1: who made it knew why */
    there = there || strcmp(name, now) == 0;
  }
  if (best[0] && strcmp(now, best) != 0) return point(r, parent, "best", best, error);
  if (!best[0] && now[0] && !there && hri_path_at(path, parent, "best", NULL) == HR_OK)
    (void)unlink(path); /* a link, to what went */
  return HR_OK;
}

hr_status hri_checkpoint_settle(hri_rundir *r, const hri_checkpoint *c, hr_error *error) {
  char parent[PATH_BYTES], path[PATH_BYTES], name[64];
  uint64_t *steps;
  size_t count, later = 0;
  hr_status status = HR_OK;
  HRI_TRY(hri_path_at(parent, r->directory, "checkpoints", error));
  HRI_TRY(hri_checkpoint_list(parent, &steps, &count, error));
  while (later < count && steps[later] > c->progress.step && status == HR_OK) {
    hri_checkpoint_name(steps[later++], name);
    status = hri_path_at(path, parent, name, error);
    if (status == HR_OK) status = hri_set_aside(r, path, "the run goes on from an earlier checkpoint", error);
  }
  if (status == HR_OK) status = make_links(r, parent, steps + later, count - later, error);
  if (status == HR_OK) status = hri_dir_sync(parent, error);
  hri_free(steps);
  return status;
}
