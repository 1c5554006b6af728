/* What a conversion leaves behind: the target whole, or nothing of it; and of what stood there only what is provably a
 * model. */
#include "convert/target.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/publish.h"
#include "base/text.h"
#include "convert/beside.h"

enum { PATH_BYTES = 4096, NAMED_FILES = 4, KEPT_NAMES = 1000 };

/* ---- what may be removed ---- */

static bool is_shard(const char *name) {
  unsigned shard, count;
  char again[64];
  if (sscanf(name, "model-%5u-of-%5u", &shard, &count) != 2) return false;
  (void)snprintf(again, sizeof again, "model-%05u-of-%05u.safetensors", shard, count);
  return strcmp(name, again) == 0;
}

static bool is_model_file(const char *directory, const char *name) {
  static const char *const names[] = {"config.json", "model.safetensors", "model.safetensors.index.json"};
  char path[PATH_BYTES];
  struct stat info;
  bool known = is_shard(name) || hri_beside_of(name) != HRI_BESIDE_NONE;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) known = known || strcmp(name, names[i]) == 0;
  return known && snprintf(path, sizeof path, "%s/%s", directory, name) < PATH_BYTES && lstat(path, &info) == 0 &&
         S_ISREG(info.st_mode);
}

static bool is_self(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

/* Lists what a directory holds beside a model's files, for people; *count is how much. */
static hr_status find_foreign(const char *directory, hri_text *list, uint32_t *count, hr_error *error) {
  DIR *dir = opendir(directory);
  struct dirent *entry;
  bool described = false, any = false;
  *count = 0;
  if (!dir) return hri_fail_errno(error, errno, "open directory", directory);
  while ((entry = readdir(dir))) {
    if (is_self(entry->d_name)) continue;
    any = true;
    described = described || strcmp(entry->d_name, "config.json") == 0;
    if (is_model_file(directory, entry->d_name)) continue;
    if ((*count)++ < NAMED_FILES)
      hri_text_add(list, "%s%s%s", *count > 1 ? ", " : "", entry->d_name, entry->d_type == DT_DIR ? "/" : "");
  }
  closedir(dir);
  if (*count > NAMED_FILES) hri_text_add(list, " and %u more", *count - NAMED_FILES);
  if (*count == 0 && any && !described) {
    *count = 1;
    hri_text_add(list, "no config.json");
  }
  return HR_OK;
}

/* A link gives way alone: what it leads to stays. */
static hr_status check_replaced(const hri_target *t, hr_error *error) {
  struct stat info;
  hri_text list = {0};
  uint32_t count;
  hr_status status;
  if (lstat(t->path, &info) != 0 || !S_ISDIR(info.st_mode)) return HR_OK;
  status = find_foreign(t->path, &list, &count, error);
  if (status == HR_OK && count > 0) {
    status = hri_fail(error, HR_ERROR_USAGE, "%s holds %s: it is not only a model, and --force would remove it",
                      t->named, hri_text_get(&list));
    hri_hint(error, status, "name another target, or move what is not the model's");
  }
  hri_text_deinit(&list);
  return status;
}

/* ---- what may be written ---- */

static hr_status take_path(hri_target *t, hr_error *error) {
  size_t length = strlen(t->named);
  const char *slash;
  while (length > 1 && t->named[length - 1] == '/') length--;
  if (length == 0) return hri_fail(error, HR_ERROR_USAGE, "the target has no name");
  if (length > PATH_BYTES - 512) return hri_fail(error, HR_ERROR_USAGE, "the path %.200s is too long", t->named);
  (void)snprintf(t->path, sizeof t->path, "%.*s", (int)length, t->named);
  slash = strrchr(t->path, '/');
  (void)snprintf(t->parent, sizeof t->parent, "%.*s", slash ? (int)(slash - t->path) + (slash == t->path) : 1,
                 slash ? t->path : ".");
  if (is_self(slash ? slash + 1 : t->path) || strcmp(t->path, "/") == 0) {
    hr_status status = hri_fail(error, HR_ERROR_USAGE, "%s is no name that a model could take", t->named);
    return hri_hint(error, status, "name the target itself");
  }
  return HR_OK;
}

static hr_status check_standing(const hri_target *t, hr_error *error) {
  struct stat info;
  hr_status status;
  if (lstat(t->path, &info) != 0) return HR_OK;
  if (!S_ISLNK(info.st_mode) && (t->directory ? !S_ISDIR(info.st_mode) : !S_ISREG(info.st_mode))) {
    status = hri_fail(error, HR_ERROR_USAGE, "%s is %s", t->named,
                      S_ISDIR(info.st_mode)   ? "a directory"
                      : S_ISREG(info.st_mode) ? "a file"
                                              : "no file that could be replaced");
    return hri_hint(error, status, "name another target");
  }
  if (!t->replace) {
    status = hri_fail(error, HR_ERROR_USAGE, "%s exists", t->named);
    return hri_hint(error, status, "name another target, or replace it with --force");
  }
  (void)hri_scratch_sweep(t->path); /* what a killed process of ours left in it is nobody's */
  return check_replaced(t, error);
}

hr_status hri_target_init(hri_target *t, const char *path, bool directory, bool replace, hr_error *error) {
  memset(t, 0, sizeof *t);
  t->named = path;
  t->directory = directory;
  t->replace = replace;
  HRI_TRY(take_path(t, error));
  return check_standing(t, error);
}

/* A directory goes away with all that is in it. */
hr_status hri_target_spares(const char *path, const char *source, hr_error *error) {
  if (!hri_path_exists(source) || !hri_path_exists(path) || !hri_path_inside(source, path)) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "%s would be replaced by what is made of %s, which lies in it", path, source);
  return hri_hint(error, HR_ERROR_USAGE, "name another target, or move the file first");
}

static hr_status make_parent(hri_target *t, hr_error *error) {
  char above[PATH_BYTES];
  if (hri_path_is_dir(t->parent)) return HR_OK;
  hri_path_nearest(t->parent, above);
  t->above_bytes = strcmp(above, ".") == 0 ? 0 : strlen(above);
  t->made_parent = true;
  return hri_dir_make(t->parent, error);
}

hr_status hri_target_begin(hri_target *t, hr_error *error) {
  HRI_TRY(make_parent(t, error));
  (void)hri_scratch_sweep(t->parent);
  HRI_TRY(hri_scratch_open(t->parent, true, &t->scratch, error));
  HRI_TRY(hri_scratch_path(t->scratch, t->directory ? "new" : "new.gguf", t->made, error));
  if (t->directory && mkdir(t->made, 0755) != 0) return hri_fail_errno(error, errno, "create directory", t->made);
  return HR_OK;
}

/* ---- taking the name ---- */

/* Gives what stood at the target a new name: TARGET.replaced, or that with a number behind it. */
static bool keep(hri_target *t, const char *old) {
  char path[PATH_BYTES];
  hr_status status = HR_ERROR_USAGE;
  for (int i = 1; status == HR_ERROR_USAGE && i < KEPT_NAMES; i++) {
    if (i == 1) (void)snprintf(path, sizeof path, "%.4000s.replaced", t->path);
    else (void)snprintf(path, sizeof path, "%.4000s.replaced-%d", t->path, i);
    status = hri_publish_new(old, path, NULL);
  }
  if (status == HR_OK) (void)snprintf(t->kept, sizeof t->kept, "%s", path);
  return status == HR_OK && hri_dir_sync(t->parent, NULL) == HR_OK;
}

/* It leaves the scratch, which is removed whole; when it cannot, the scratch stays, for good. */
static void save(hri_target *t, const char *old) {
  if (keep(t, old) || t->kept[0]) return;
  (void)snprintf(t->kept, sizeof t->kept, "%s", old);
  hri_scratch_abandon(t->scratch);
  t->scratch = NULL;
}

/* By the names of the rule, not whole: what came in since it was looked at stays, and the directory with it. */
static bool remove_model(const char *directory) {
  char path[PATH_BYTES];
  DIR *dir = opendir(directory);
  struct dirent *entry;
  while (dir && (entry = readdir(dir)))
    if (is_model_file(directory, entry->d_name) &&
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name) < PATH_BYTES)
      (void)unlink(path);
  if (dir) closedir(dir);
  return rmdir(directory) == 0;
}

static void give_way(hri_target *t, const char *old) {
  struct stat info;
  hri_text list = {0};
  uint32_t count;
  if (lstat(old, &info) != 0) return;
  if (!S_ISDIR(info.st_mode)) {
    (void)unlink(old); /* a link */
    return;
  }
  if (find_foreign(old, &list, &count, NULL) != HR_OK || count > 0 || !remove_model(old)) save(t, old);
  hri_text_deinit(&list);
}

/* Something came in during the conversion: the directory moves aside with all that is in it, and not through the
 * scratch, which a kill would leave to be swept. */
static hr_status take_beside(hri_target *t, hr_error *error) {
  hr_status status = hri_publish_new(t->made, t->path, error);
  if (status != HR_OK && hri_publish_new(t->kept, t->path, NULL) == HR_OK) t->kept[0] = 0;
  return status == HR_OK ? hri_publish_settle(t->path, error) : status;
}

static hr_status replace_directory(hri_target *t, hr_error *error) {
  char old[PATH_BYTES];
  struct stat info;
  hr_status status = check_replaced(t, error);
  if (status != HR_OK) return keep(t, t->path) ? take_beside(t, error) : status;
  status = hri_publish_exchange(t->scratch, t->made, t->path, old, error);
  if (status == HR_OK) status = hri_publish_settle(t->path, error);
  else if (!old[0] || lstat(t->path, &info) != 0) return status; /* nothing was moved, or the scratch puts it back */
  if (!old[0]) return status;
  if (status == HR_OK) give_way(t, old);
  else save(t, old); /* something else took the name in between, or nobody knows what a crash would leave */
  return status;
}

hr_status hri_target_publish(hri_target *t, hr_error *error) {
  if (t->replace && t->directory) return replace_directory(t, error);
  HRI_TRY(t->replace ? hri_publish_over(t->made, t->path, error) : hri_publish_new(t->made, t->path, error));
  return hri_publish_settle(t->path, error);
}

hr_status hri_target_failed(const hri_target *t, hr_status status, hr_error *error) {
  if (status != HR_ERROR_IO || (error && strncmp(error->message, t->path, strlen(t->path)) == 0)) return status;
  return hri_context(error, status, "%s: ", t->named);
}

void hri_target_end(hri_target *t) {
  hri_scratch_close(t->scratch);
  t->scratch = NULL;
  if (t->made_parent) hri_dir_unmake(t->parent, t->above_bytes); /* not where the target stands in it */
  t->made_parent = false;
}
