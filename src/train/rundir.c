#include "train/rundir.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/publish.h"
#include "train/checkpoint.h"
#include "train/manifest.h"
#include "train/runfile.h"

enum {
  PATH_BYTES = 4096,
  DIGEST_PARTS = 2,
  COMPANION_BYTES = 64 << 20,
  MOST_WAITING = 1 << 20, /* bytes of metrics.jsonl: two thousand steps */
  LONGEST_PATH = 3600
}; /* names below it take the rest */

/* ---- what is in a directory ---- */

typedef enum standing {
  ABSENT,
  EMPTY,
  BEGUN,
  RUN,
  FOREIGN
} standing; /* BEGUN: a run that was killed before its run.json */

/* A lock file is ours by its text; an empty one was never written to, which only a kill leaves. */
static bool is_our_lock(const char *directory) {
  char path[PATH_BYTES];
  struct stat info;
  if (hri_path_at(path, directory, "lock", NULL) != HR_OK || lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
    return false;
  return info.st_size == 0 || hri_lock_read(path).id[0];
}

/* *is: the JSON of a run. What is there and cannot be read is an error, not something else's file. */
static hr_status is_run_file(const char *path, bool *is, hr_error *error) {
  hri_json root = {0};
  hr_status status;
  *is = false;
  if (!hri_path_exists(path)) return HR_OK;
  status = hri_json_read(path, HRI_RUN_FILE_BYTES, &root, error);
  *is = status == HR_OK && hri_json_has(&root, "schema_version") && hri_json_has(&root, "job");
  hri_json_deinit(&root);
  return status == HR_ERROR_INPUT ? HR_OK : status;
}

static hr_status no_directory(const char *directory, int failed, bool link, hr_error *error) {
  hr_status status;
  if (failed != ENOENT && failed != ENOTDIR) return hri_fail_errno(error, failed, "open directory", directory);
  status = hri_fail(error, HR_ERROR_USAGE, "%s is %s", directory,
                    link ? "a link to something that is no directory" : "no directory, or stands below a file");
  return hri_hint(error, status, "name another --out: a run is begun in a directory that is new or empty");
}

/* Also as it is often typed, with a slash behind it. */
static bool is_link(const char *directory) {
  char path[PATH_BYTES];
  struct stat info;
  size_t length = strlen(directory);
  while (length > 1 && directory[length - 1] == '/') length--;
  return snprintf(path, sizeof path, "%.*s", (int)length, directory) < PATH_BYTES && lstat(path, &info) == 0 &&
         S_ISLNK(info.st_mode);
}

/* *names: what is there that no run made, at most a few. */
static hr_status look(const char *directory, standing *what, char names[200], hr_error *error) {
  char path[PATH_BYTES];
  bool lock = is_our_lock(directory), run, link;
  int failed;
  uint32_t foreign = 0, entries = 0;
  const char *name;
  hr_status status;
  DIR *dir;
  names[0] = 0;
  HRI_TRY(hri_path_at(path, directory, "run.json", error));
  dir = opendir(directory);
  failed = dir ? 0 : errno;
  link = failed && is_link(directory);
  if (failed == ENOENT && !link) {
    *what = ABSENT;
    return HR_OK;
  }
  if (failed) return no_directory(directory, failed, link, error);
  while ((status = hri_dir_next(dir, directory, &name, error)) == HR_OK && name) {
    size_t used = strlen(names);
    entries++;
    if (lock && (strcmp(name, "lock") == 0 || strcmp(name, "lock.exclusive") == 0 || hri_scratch_is_named(name)))
      continue; /* a power cut may take a marker back */
    if (foreign++ < 3) (void)snprintf(names + used, 200 - used, "%s%.50s", used ? ", " : "", name);
  }
  (void)closedir(dir);
  HRI_TRY(status);
  if (foreign > 3) (void)snprintf(names + strlen(names), 200 - strlen(names), ", ... (%u entries)", foreign);
  HRI_TRY(is_run_file(path, &run, error));
  *what = run ? RUN : entries == 0 ? EMPTY : foreign == 0 && lock ? BEGUN : FOREIGN;
  return HR_OK;
}

static hr_status already(const char *directory, hr_error *error) {
  hr_status status = hri_fail(error, HR_ERROR_USAGE, "%s already holds a run", directory);
  return hri_hint(error, status, "name another --out, or go on with it: --resume %s", directory);
}

static hr_status look_for_start(const char *directory, standing *what, hr_error *error) {
  char names[200];
  bool any, ended;
  hr_status status;
  HRI_TRY(look(directory, what, names, error));
  if (*what == FOREIGN) {
    status = hri_fail(error, HR_ERROR_USAGE, "%s is not empty and holds no run: %s", directory, names);
    return hri_hint(error, status, "name another --out: a run is begun in a directory that is new or empty");
  }
  if (*what != RUN) return HR_OK;
  HRI_TRY(hri_checkpoint_any(directory, &any, error));
  HRI_TRY(hri_run_ended(directory, &ended, error));
  return any || ended ? already(directory, error) : HR_OK;
}

static hr_status refuse_in_use(const char *directory, hr_error *error) {
  char path[PATH_BYTES], what[PATH_BYTES];
  hr_status status;
  HRI_TRY(hri_path_at(path, directory, "lock", error));
  (void)snprintf(what, sizeof what, "the run %.3000s", directory);
  status = hri_lock_refuse_held(path, what, error);
  return status == HR_OK ? HR_OK : hri_hint(error, status, "wait until it has ended, or name another --out");
}

hr_status hri_rundir_look(const char *directory, hr_error *error) {
  standing what;
  if (strlen(directory) > LONGEST_PATH) {
    hri_fail(error, HR_ERROR_USAGE, "--out: the path %.100s... has more than %d bytes", directory, LONGEST_PATH);
    return hri_hint(error, HR_ERROR_USAGE, "name a shorter --out, or change to the directory first");
  }
  HRI_TRY(refuse_in_use(directory, error));
  return look_for_start(directory, &what, error);
}

/* ---- beginning ---- */

static void set_up(hri_rundir *r, const char *directory, const hri_session *session, const hr_job *job,
                   const hr_run_options *options) {
  size_t length;
  memset(r, 0, sizeof *r);
  (void)snprintf(r->directory, sizeof r->directory, "%s", directory);
  for (length = strlen(r->directory); length > 1 && r->directory[length - 1] == '/';) r->directory[--length] = 0;
  r->session = session;
  r->job = job;
  r->options = options;
  r->metrics_fd = -1;
}

static hr_status take_lock(hri_rundir *r, hr_error *error) {
  char path[PATH_BYTES], what[PATH_BYTES];
  HRI_TRY(hri_path_at(path, r->directory, "lock", error));
  (void)snprintf(what, sizeof what, "the run %.3000s", r->directory);
  HRI_TRY(hri_lock_take(path, what, &r->lock, error));
  if (hri_lock_how(r->lock)) hri_session_tell(r->session, HR_EVENT_WARNING, NULL, hri_lock_how(r->lock));
  return hri_lock_is_new(r->lock) ? hri_dir_sync(r->directory, error) : HR_OK; /* before anything that it explains */
}

static void sweep_below(const hri_rundir *r, const char *name) {
  char path[PATH_BYTES];
  if (hri_path_at(path, r->directory, name, NULL) == HR_OK) (void)hri_scratch_sweep(path);
}

/* Under the lock no other process works here: what is left is of processes that ended. */
static hr_status open_scratch(hri_rundir *r, hr_error *error) {
  (void)hri_scratch_sweep(r->directory);
  sweep_below(r, "checkpoints");
  sweep_below(r, "memory");
  sweep_below(r, "data-cache");
  return hri_scratch_open(r->directory, true, &r->scratch, error);
}

hr_status hri_rundir_make_room(hri_rundir *r, hr_error *error) {
  char path[PATH_BYTES];
  HRI_TRY(hri_path_at(path, r->directory, "checkpoints", error));
  HRI_TRY(hri_dir_make(path, error));
  return hri_scratch_open(path, true, &r->checkpoint_scratch, error);
}

/* The directory may go, and come again, while two processes begin at once: who gives up takes away what it made. */
static hr_status make_and_lock(hri_rundir *r, hr_error *error) {
  hr_status status = HR_OK;
  for (int attempt = 0; attempt < 20; attempt++) {
    bool was = hri_path_exists(r->directory);
    char above[PATH_BYTES];
    hri_path_nearest(r->directory, above);
    r->above_bytes = strcmp(above, ".") == 0 ? 0 : strlen(above);
    HRI_TRY(hri_dir_make(r->directory, error));
    r->made_directory = !was;
    status = take_lock(r, error);
    if (status == HR_OK || hri_path_exists(r->directory)) break;
  }
  return status;
}

static void forget(const char *directory, const char *name) {
  char path[PATH_BYTES];
  if (hri_path_at(path, directory, name, NULL) == HR_OK && unlink(path) != 0) (void)rmdir(path);
}

hr_status hri_rundir_begin(hri_rundir *r, const char *directory, const hri_session *session, const hr_job *job,
                           const hr_run_options *options, const hri_identity_facts *facts, hr_error *error) {
  standing what;
  hr_status status;
  set_up(r, directory, session, job, options);
  r->facts = *facts;
  HRI_TRY_OUT(make_and_lock(r, error));
  HRI_TRY_OUT(look_for_start(directory, &what, error)); /* it may have become a run while this process read its data */
  if (what == RUN) {
    HRI_TRY_OUT(hri_run_same(r, error));
  } else {
    r->fresh = true;
  }
  HRI_TRY_OUT(open_scratch(r, error));
out:
  if (status != HR_OK) hri_rundir_discard(r);
  return status;
}

hr_status hri_rundir_resume(hri_rundir *r, const char *directory, const hri_session *session, const hr_job *job,
                            const hr_run_options *options, hr_error *error) {
  char names[200];
  standing what;
  bool any = false;
  hr_status status;
  set_up(r, directory, session, job, options);
  HRI_TRY_OUT(look(directory, &what, names, error));
  if (what == FOREIGN)
    HRI_TRY_OUT(hri_checkpoint_any(directory, &any,
                                   error)); /* run.json may be lost or damaged: its checkpoints say what it is */
  if (what != RUN && !any) {
    status = hri_fail(error, HR_ERROR_USAGE,
                      what == ABSENT  ? "%s is no run directory: there is nothing of that name"
                      : what == BEGUN ? "the run %s was ended before it began: there is nothing to go on with"
                                      : "%s is no run directory: it holds no run.json",
                      directory);
    hri_hint(error, status, "--resume takes the directory that --out named");
    goto out;
  }
  HRI_TRY_OUT(take_lock(r, error));
  HRI_TRY_OUT(open_scratch(r, error));
out:
  if (status != HR_OK) hri_rundir_close(r);
  return status;
}

/* ---- ending ---- */

/* The descriptor of metrics.jsonl first: removing the scratch directories may need it. */
static void close_parts(hri_rundir *r) {
  if (r->metrics_fd >= 0) (void)close(r->metrics_fd);
  r->metrics_fd = -1;
  hri_scratch_close(r->checkpoint_scratch);
  hri_scratch_close(r->scratch);
  r->scratch = r->checkpoint_scratch = NULL;
  hri_file_digest_destroy(r->metrics_digest);
  r->metrics_digest = NULL;
  hri_array_free(&r->final_files);
  hri_array_free(&r->final_before);
  hri_array_free(&r->final_next);
  hri_text_deinit(&r->changes);
  hri_text_deinit(&r->metrics_kept);
  hri_text_deinit(&r->metrics_waiting);
}

/* By name what this process itself made since it took the lock; directories only when nothing else is in them. What
 * then says whose the directory is (run.json, the lock) goes last, and only if all else went: the same command can
 * start a run that has nothing but that. */
void hri_rundir_discard(hri_rundir *r) {
  static const char *const made[] = {"memory/plan.pickle.gz", "memory/trail", "memory",
                                     "metrics.jsonl",         "data-cache",   "checkpoints"};
  bool ours = r->lock && r->fresh, all = ours;
  char path[PATH_BYTES];
  if (!r->directory[0]) return; /* it was not even begun */
  close_parts(r);
  for (size_t k = 0; ours && k < sizeof made / sizeof *made; k++) {
    forget(r->directory, made[k]);
    all = all && hri_path_at(path, r->directory, made[k], NULL) == HR_OK && !hri_path_exists(path);
  }
  if (all) forget(r->directory, "run.json");
  if (r->lock) hri_lock_release(r->lock, all || (!ours && hri_lock_is_new(r->lock)));
  r->lock = NULL;
  if (r->made_directory) hri_dir_unmake(r->directory, r->above_bytes);
}

void hri_rundir_close(hri_rundir *r) {
  if (!r->directory[0]) return;
  close_parts(r);
  if (r->lock)
    hri_lock_release(r->lock, hri_lock_is_new(r->lock) && !r->written); /* what never was a run gets no lock of ours */
  r->lock = NULL;
}

/* ---- disk ---- */

static uint64_t directory_bytes(const char *path) {
  DIR *dir = opendir(path);
  const char *name;
  uint64_t sum = 0;
  while (dir && hri_dir_next(dir, path, &name, NULL) == HR_OK && name) {
    char child[PATH_BYTES];
    struct stat info;
    if (hri_path_at(child, path, name, NULL) != HR_OK || lstat(child, &info) != 0) continue;
    sum += S_ISDIR(info.st_mode) ? directory_bytes(child) : S_ISREG(info.st_mode) ? (uint64_t)info.st_blocks * 512 : 0;
  }
  if (dir) (void)closedir(dir);
  return sum;
}

static uint64_t state_bytes(const hri_job *job) {
  uint64_t sum = 0;
  for (size_t r = 0; r < job->ranges.count; r++)
    for (uint32_t k = 0; k < HRI_STATE_TENSORS && job->ranges.items[r].state[k] != HRI_NONE; k++)
      sum += hri_tensor_bytes(&job->tensors.items[job->ranges.items[r].state[k]]);
  return sum;
}

/* What is trained as F32 and the optimizer's states as they are (a run with adapters writes nothing else); of tokenizer files what the model's directory has. */
static void file_bytes(const hri_session *s, uint64_t *checkpoint, uint64_t *final, uint64_t *companions) {
  const hr_job *job = &s->plan->spec;
  const hr_plan_info *info_of = hr_plan_get(s->plan);
  uint64_t parameters = job->model.lora.rank > 0 ? info_of->trainable_parameter_count : info_of->parameter_count;
  const char *from = s->tokenizer ? s->tokenizer : job->model.directory;
  char path[PATH_BYTES];
  struct stat info;
  *companions = 0;
  if (from[0] && hri_path_at(path, from, "tokenizer.json", NULL) == HR_OK && stat(path, &info) == 0 &&
      info.st_size < COMPANION_BYTES)
    *companions = (uint64_t)info.st_size;
  *checkpoint = parameters * 4 + state_bytes(&s->plan->job) + *companions;
  *final = parameters * 4 + *companions;
}

static bool evaluates(const hr_run_options *o) { return o->eval_path_count > 0 || o->eval_share > 0; }

static uint64_t checkpoints_kept(const hr_run_options *o, uint64_t steps, uint64_t done) {
  uint64_t to_come = steps > done ? steps - done : 0, saves = o->save_every ? to_come / o->save_every + 1 : 1;
  if (o->keep == 0)
    return o->save_every && o->eval_every && evaluates(o) ? saves + to_come / o->eval_every
                                                          : saves; /* each evaluation may be the best */
  return saves < (uint64_t)o->keep + 1 ? saves + evaluates(o) : (uint64_t)o->keep + 1 + evaluates(o);
}

hr_status hri_rundir_disk_check(const hri_session *s, const char *directory, const hr_run_options *o, uint64_t steps,
                                uint64_t done, hr_error *error) {
  uint64_t checkpoint, final, companions, count = checkpoints_kept(o, steps, done), need, there = 0, room;
  char at[PATH_BYTES], path[PATH_BYTES], text[400], a[32], b[32], c[32], d[32];
  struct statvfs info;
  hr_status status;
  file_bytes(s, &checkpoint, &final, &companions);
  need = count * checkpoint + final;
  if (done > 0 && o->keep && hri_path_at(path, directory, "checkpoints", NULL) == HR_OK) there = directory_bytes(path);
  if (there > need - checkpoint - final)
    there = need - checkpoint - final; /* one more stands beside what will go, and so does final */
  need -= there;
  hri_path_nearest(directory, at);
  if (statvfs(at, &info) != 0 || info.f_blocks == 0) return HR_OK; /* it will show when it is written */
  room = (uint64_t)info.f_bavail * info.f_frsize;
  (void)snprintf(text, sizeof text, "disk: %s for %llu checkpoint%s of %s and final of %s; %s are free",
                 hri_size_text(need, a), (unsigned long long)count, count == 1 ? "" : "s", hri_size_text(checkpoint, b),
                 hri_size_text(final, c), hri_size_text(room, d));
  hri_session_tell(s, HR_EVENT_NOTE, NULL, text);
  if (need <= room) return HR_OK;
  status = hri_fail(error, HR_ERROR_BUDGET, "the run's checkpoints and final take up to %s of disk and %s has %s free",
                    a, at, d);
  return hri_hint(
      error, status,
      "free some space, keep fewer checkpoints (--keep, --save-every), or name a directory elsewhere with --out");
}

/* NAME.set-aside-N, N the first that is free. */
static hr_status aside_name(const char *name, char to[PATH_BYTES], hr_error *error) {
  struct stat info;
  int n = 1;
  do
    if (snprintf(to, PATH_BYTES, "%.4000s.set-aside-%d", name, n) >= PATH_BYTES)
      return hri_fail(error, HR_ERROR_USAGE, "the path %.200s is too long", name);
  while (lstat(to, &info) == 0 && n++ < 100000);
  return HR_OK;
}

/* ---- metrics.jsonl ---- */

static hr_status metrics_differ(const hri_rundir *r, const char *how, hr_error *error) {
  hr_status status =
      hri_fail(error, HR_ERROR_INPUT, "%s/metrics.jsonl %s since the checkpoint was made", r->directory, how);
  return hri_hint(error, status,
                  "put the file back as it was, or go on with what is left of it: --allow-different metrics");
}

static hr_status open_metrics(hri_rundir *r, int flags, hr_error *error) {
  char path[PATH_BYTES];
  struct stat info;
  HRI_TRY(hri_path_at(path, r->directory, "metrics.jsonl", error));
  if (r->metrics_fd >= 0) (void)close(r->metrics_fd);
  r->metrics_fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0644);
  if (r->metrics_fd < 0 && errno == ENOENT) return metrics_differ(r, "was removed", error);
  if (r->metrics_fd < 0) return hri_fail_errno(error, errno, "open", path);
  if (fstat(r->metrics_fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    hri_fail(error, HR_ERROR_INPUT, "%s is not a regular file", path);
    return hri_hint(error, HR_ERROR_INPUT,
                    "move it away, or put the file itself there; --allow-different metrics goes on without its lines");
  }
  hri_file_digest_destroy(r->metrics_digest);
  r->metrics_digest = NULL;
  if (!hri_array_reserve_((void **)&r->metrics_waiting.chars, &r->metrics_waiting.capacity, sizeof r->line, 1))
    return hri_fail_memory(error, sizeof r->line, "metrics"); /* once: a step takes nothing from the heap */
  return hri_file_digest_create(DIGEST_PARTS, &r->metrics_digest, error);
}

/* The first `bytes` bytes stay; their digest goes on with what is appended. */
static hr_status keep_metrics(hri_rundir *r, uint64_t bytes, hr_error *error) {
  char path[PATH_BYTES];
  HRI_TRY(hri_path_at(path, r->directory, "metrics.jsonl", error));
  if (bytes > 0) HRI_TRY(hri_file_digest_add_file(r->metrics_digest, r->metrics_fd, path, bytes, error));
  r->metrics_bytes = bytes;
  return HR_OK;
}

hr_status hri_metrics_begin(hri_rundir *r, hr_error *error) {
  char path[PATH_BYTES];
  HRI_TRY(hri_path_at(path, r->directory, "metrics.jsonl", error));
  HRI_TRY(hri_scratch_replace(r->scratch, path, "", 0, true, error));
  r->metrics_bytes = 0;
  return open_metrics(r, 0, error);
}

hr_status hri_metrics_resume(hri_rundir *r, uint64_t bytes, uint64_t digest, hr_error *error) {
  struct stat info;
  uint64_t have;
  HRI_TRY(open_metrics(r, 0, error));
  if (fstat(r->metrics_fd, &info) != 0 || (uint64_t)info.st_size < bytes) return metrics_differ(r, "was cut", error);
  HRI_TRY(keep_metrics(r, bytes, error));
  HRI_TRY(hri_file_digest_value(r->metrics_digest, bytes, &have, error));
  return have == digest ? HR_OK : metrics_differ(r, "was changed", error);
}

/* Whole lines of steps up to `step`, each of which begins {"step":N; what is no such line is passed over. */
static void take_lines(const char *bytes, uint64_t count, uint64_t step, hri_text *to) {
  for (uint64_t at = 0; at < count;) {
    const char *line = bytes + at, *end = memchr(line, '\n', count - at);
    if (!end) break;
    at = (uint64_t)(end - bytes) + 1;
    if (strncmp(line, "{\"step\":", 8) == 0 && strtoull(line + 8, NULL, 10) <= step)
      hri_text_add_bytes(to, line, (size_t)(end - line) + 1);
  }
}

hr_status hri_metrics_trim(hri_rundir *r, uint64_t step, hr_error *error) {
  char path[PATH_BYTES], *bytes;
  uint64_t count;
  HRI_TRY(hri_path_at(path, r->directory, "metrics.jsonl", error));
  r->metrics_anew = true;
  if (!hri_path_exists(path)) return HR_OK;
  HRI_TRY(hri_file_read(path, UINT64_C(1) << 32, &bytes, &count, error));
  take_lines(bytes, count, step, &r->metrics_kept);
  r->metrics_differ = r->metrics_kept.length != count || (count && memcmp(r->metrics_kept.chars, bytes, count) != 0);
  hri_free(bytes);
  return r->metrics_kept.failed ? hri_fail_memory(error, count, "metrics.jsonl") : HR_OK;
}

/* A copy beside it: the file itself is cut where it is. */
static hr_status copy_aside(hri_rundir *r, const char *path, hr_error *error) {
  char to[PATH_BYTES], text[PATH_BYTES + 100], *bytes;
  uint64_t count;
  hr_status status;
  HRI_TRY(aside_name(path, to, error));
  HRI_TRY(hri_file_read(path, UINT64_C(1) << 32, &bytes, &count, error));
  status = hri_scratch_replace(r->scratch, to, bytes, count, true, error);
  hri_free(bytes);
  (void)snprintf(text, sizeof text, "metrics.jsonl as it was is kept as %.900s", strrchr(to, '/') + 1);
  if (status == HR_OK) hri_session_tell(r->session, HR_EVENT_WARNING, NULL, text);
  return status;
}

hr_status hri_metrics_cut(hri_rundir *r, hr_error *error) {
  char path[PATH_BYTES];
  struct stat info;
  int failed;
  HRI_TRY(hri_path_at(path, r->directory, "metrics.jsonl", error));
  if (r->metrics_anew) {
    if (r->metrics_differ) HRI_TRY(copy_aside(r, path, error));
    HRI_TRY(hri_scratch_replace(r->scratch, path, hri_text_get(&r->metrics_kept), r->metrics_kept.length, true, error));
    HRI_TRY(open_metrics(r, 0, error));
    return keep_metrics(r, r->metrics_kept.length, error);
  }
  /* Lines behind the checkpoint are made again as they were, unless the run goes on from an earlier one or otherwise. */
  if ((r->options->resume_from || r->options->allow_different) && fstat(r->metrics_fd, &info) == 0 &&
      (uint64_t)info.st_size > r->metrics_bytes)
    HRI_TRY(copy_aside(r, path, error));
  do failed = ftruncate(r->metrics_fd, (off_t)r->metrics_bytes) == 0 ? 0 : errno;
  while (failed == EINTR);
  return failed ? hri_fail_errno(error, failed, "write", path) : HR_OK;
}

static void put_metrics(hri_text *text, const hr_metrics *m, bool evaluation) {
  hri_json_writer writer = hri_json_writer_init(text, 0), *w = &writer;
  hri_json_begin_object(w);
  hri_json_field_u64(w, "step", m->step);
  if (evaluation) {
    hri_json_field_double(w, "eval_loss", m->eval_loss);
    hri_json_field_double(w, "eval_perplexity", exp(m->eval_loss));
  } else {
    hri_json_field_double(w, "loss", m->loss);
    hri_json_field_double(w, "grad_norm", m->grad_norm);
    if (isfinite(m->loss_scale)) hri_json_field_double(w, "loss_scale", m->loss_scale);
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
    if (m->device_held_bytes) hri_json_field_u64(w, "device_held_bytes", m->device_held_bytes);
    if (m->device_grown_known) hri_json_field_u64(w, "device_grown_bytes", m->device_grown_bytes);
    if (m->skipped) hri_json_field_bool(w, "skipped", true);
  }
  hri_json_end_object(w);
  hri_text_add(text, "\n");
}

/* What was written of a line is in the digest: the file is the beginning of what was appended, wherever that was cut. */
static hr_status write_waiting(hri_rundir *r, const char *path, hr_error *error) {
  hri_text *t = &r->metrics_waiting;
  while (t->length > 0) {
    ssize_t put = write(r->metrics_fd, t->chars, t->length);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return hri_fail_errno(error, errno, "write", path);
    HRI_TRY(hri_file_digest_add(r->metrics_digest, r->metrics_bytes, t->chars, (uint64_t)put, error));
    r->metrics_bytes += (uint64_t)put;
    t->length -= (size_t)put;
    memmove(t->chars, t->chars + put, t->length + 1);
  }
  return HR_OK;
}

static void tell_full(hri_rundir *r, const hr_error *full) {
  char text[900];
  if (r->told_full) return;
  r->told_full = true;
  (void)snprintf(text, sizeof text, "%.700s: the run goes on, and its lines wait for room", full->message);
  hri_session_tell(r->session, HR_EVENT_WARNING, NULL, text);
}

hr_status hri_metrics_append(hri_rundir *r, const hr_metrics *m, bool evaluation, hr_error *error) {
  const size_t before = r->metrics_waiting.length;
  size_t line;
  char path[PATH_BYTES];
  hr_error own = {0};
  hr_status status;
  HRI_TRY(hri_path_at(path, r->directory, "metrics.jsonl", error));
  put_metrics(&r->metrics_waiting, m, evaluation);
  if (r->metrics_waiting.failed) return hri_fail_memory(error, r->metrics_waiting.length, "metrics");
  line = r->metrics_waiting.length - before;
  assert(line < sizeof r->line);
  (void)snprintf(r->line, sizeof r->line, "%s", r->metrics_waiting.chars + before);
  status = write_waiting(r, path, &own);
  if (status == HR_OK) r->told_full = false;
  if (status == HR_OK || (hri_is_full(&own) && r->metrics_waiting.length <= MOST_WAITING)) {
    if (status != HR_OK) tell_full(r, &own);
    return HR_OK;
  }
  if (r->metrics_waiting.length >= line) r->metrics_waiting.length -= line; /* nothing of it was written */
  if (error) *error = own;
  return status;
}

/* What the checkpoint at hand says of metrics.jsonl holds for the file that this run writes. Whoever took that away or cut it
 * meanwhile (as what rotates logs does) hears of it now, and not from the resume that misses its lines. */
static void tell_metrics(hri_rundir *r, const char *path) {
  struct stat here, there;
  const char *what = NULL;
  char text[PATH_BYTES + 160];
  if (r->told_metrics || fstat(r->metrics_fd, &here) != 0) return;
  if (lstat(path, &there) != 0) what = errno == ENOENT ? "was removed" : NULL;
  else if (here.st_ino != there.st_ino || here.st_dev != there.st_dev) what = "is another file now";
  else if ((uint64_t)here.st_size < r->metrics_bytes) what = "was cut";
  else if ((uint64_t)here.st_size > r->metrics_bytes) what = "was written to by somebody else";
  if (!what) return;
  r->told_metrics = true;
  (void)snprintf(
      text, sizeof text,
      "%.3900s %s while this run writes it: the run goes on, and --resume will ask for --allow-different metrics", path,
      what);
  hri_session_tell(r->session, HR_EVENT_WARNING, NULL, text);
}

hr_status hri_metrics_settle(hri_rundir *r, uint64_t *bytes, uint64_t *digest, hr_error *error) {
  char path[PATH_BYTES];
  HRI_TRY(hri_path_at(path, r->directory, "metrics.jsonl", error));
  HRI_TRY(write_waiting(r, path, error));
  tell_metrics(r, path);
  if (fsync(r->metrics_fd) != 0) {
    (void)hri_fail_errno(error, errno, "write", path);
    if (error) error->system_error = 0; /* what of it is on the disk nobody knows: nothing is tried again */
    return HR_ERROR_IO;
  }
  *bytes = r->metrics_bytes;
  return hri_file_digest_value(r->metrics_digest, r->metrics_bytes, digest, error);
}

/* ---- publishing ---- */

static hr_status set_aside_as(const hri_rundir *r, const char *from, const char *name, const char *why,
                              hr_error *error) {
  char to[PATH_BYTES], text[PATH_BYTES + 200];
  HRI_TRY(aside_name(name, to, error));
  if (rename(from, to) != 0) return hri_fail_errno(error, errno, "move aside", from);
  (void)snprintf(text, sizeof text, "%.3000s: %s; it is kept as %.900s", name, why, strrchr(to, '/') + 1);
  hri_session_tell(r->session, HR_EVENT_WARNING, NULL, text);
  return HR_OK;
}

hr_status hri_set_aside(const hri_rundir *r, const char *path, const char *why, hr_error *error) {
  return set_aside_as(r, path, path, why, error);
}

static bool all_known(const char *directory, const hri_file_list *known) {
  DIR *dir = opendir(directory);
  const char *name = NULL;
  bool all = dir != NULL;
  while (all && (all = hri_dir_next(dir, directory, &name, NULL) == HR_OK) && name)
    all = hri_file_list_find(known, name);
  if (dir) (void)closedir(dir);
  return all;
}

/* All entries are of the list, with the bytes that were written. */
static bool is_as_written(const char *path, const hri_file_list *files) {
  return files->count > 0 && all_known(path, files) && hri_files_compare(path, files, UINT64_MAX, NULL, NULL) == 0;
}

void hri_final_settle(hri_rundir *r) {
  char path[PATH_BYTES];
  hri_file_list before = r->final_before;
  if (r->final_next.count == 0) return;
  if (hri_path_at(path, r->directory, "final", NULL) == HR_OK && is_as_written(path, &r->final_next)) {
    r->final_before = r->final_next;
    r->final_next = before;
  }
  hri_array_free(&r->final_next);
}

hr_status hri_run_publish(hri_rundir *r, hri_scratch *scratch, const char *temp, const char *path,
                          const hri_file_list *known, hr_error *error) {
  char old[PATH_BYTES], aside[PATH_BYTES];
  const char *parent = strrchr(path, '/');
  struct stat info;
  if (lstat(path, &info) == 0 && !(S_ISDIR(info.st_mode) && is_as_written(path, known)))
    HRI_TRY(hri_set_aside(r, path, "it holds what this run did not make, or made otherwise", error));
  HRI_TRY(hri_publish_exchange(scratch, temp, path, old, error));
  (void)snprintf(aside, sizeof aside, "%.*s", (int)(parent - path), path);
  HRI_TRY(hri_dir_sync(aside, error));
  if (!old[0]) return HR_OK;
  if (all_known(old, known)) return (void)hri_dir_remove(old, NULL), HR_OK;
  return set_aside_as(r, old, path, "something was put in while it gave way", error);
}

/* ---- final ---- */

static hri_file_dtype dtype_of(const char *save_dtype) {
  if (save_dtype && strcmp(save_dtype, "f32") == 0) return HRI_FILE_F32;
  if (save_dtype && strcmp(save_dtype, "bf16") == 0) return HRI_FILE_BF16;
  if (save_dtype && strcmp(save_dtype, "f16") == 0) return HRI_FILE_F16;
  return (hri_file_dtype)HRI_AS_SOURCE;
}

hr_status hri_rundir_final(hri_rundir *r, hri_session *s, const char *save_dtype,
                           hr_status (*before_publish)(void *, hr_error *), void *context, char *path,
                           hr_error *error) {
  char temp[PATH_BYTES];
  HRI_TRY(hri_path_at(path, r->directory, "final", error));
  HRI_TRY(hri_scratch_path(r->scratch, "final", temp, error));
  HRI_TRY(hri_dir_remove(temp, error));
  if (mkdir(temp, 0755) != 0) return hri_fail_errno(error, errno, "create directory", temp);
  r->final_files.count = 0;
  HRI_TRY(hri_session_save(s, temp, dtype_of(save_dtype), false, &r->final_files, error));
  HRI_TRY(hri_dir_sync(temp, error));
  HRI_TRY(before_publish(context, error));
  HRI_TRY(hri_run_publish(r, r->scratch, temp, path, &r->final_before, error));
  r->published = true;
  return HR_OK;
}
