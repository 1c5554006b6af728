/* A command calls this before it reads or runs anything, so that a refusal costs nothing and leaves nothing. A file is
 * known as an earlier one of ours by a sign that its writer puts into the first kilobyte; a kind without one is never
 * replaced. */
#include "cli/output.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"

enum { HEAD_BYTES = 1024 };

/* What the writers put near the beginning (report/page.html, inspect/export_flame.c, train/profile.c,
 * train/rundir.c, cli/streams.c). */
static const char *const signs[] = {"<meta name=\"generator\" content=\"Headroom ", "\"exporter\":\"headroom\"",
                                    "{\"displayTimeUnit\":\"ms\",\"traceEvents\":", "{\"step\":",
                                    "# HELP headroom_step "};

/* Whether a file has the sign in its first kilobyte. */
static bool has_sign(const char *path, const char *sign) {
  char head[HEAD_BYTES + 1];
  FILE *file = fopen(path, "rb");
  size_t count;
  if (!file) return false;
  count = fread(head, 1, HEAD_BYTES, file);
  (void)fclose(file);
  head[count] = 0;
  return strstr(head, sign);
}

static bool is_ours(const char *path, output_kind kind) { return kind != OUTPUT_OTHER && has_sign(path, signs[kind]); }

/* What a run writes in its directory; its scratch directories are hidden. A report beside the record of its memory harms nothing. */
static const char *const of_runs[] = {"run.json",     "metrics.jsonl",
                                      "lock",         "lock.exclusive",
                                      "final",        "checkpoints",
                                      "data-cache",   "memory/plan.pickle.gz",
                                      "memory/trail", "memory/snapshot.pickle.gz"};

/* Whether a path below the directory of a run is one of its own, or below one. */
static bool is_of_runs(const char *name) {
  for (size_t k = 0; k < sizeof of_runs / sizeof *of_runs; k++) {
    size_t length = strlen(of_runs[k]);
    if (strncmp(name, of_runs[k], length) == 0 && (!name[length] || name[length] == '/')) return true;
  }
  return strcmp(name, "memory") == 0;
}

/* Whether the file is a run's own description, and no other program's run.json. */
static bool describes_run(const char *path) { return has_sign(path, "\"run_id\""); }

static hr_status fail_of_run(const char *option, const char *path, hr_error *error) {
  hri_fail(error, HR_ERROR_USAGE, "--%s: %s belongs to the run in its directory, which counts on it", option, path);
  return hri_hint(error, HR_ERROR_USAGE, "give another name");
}

/* Whether any run has the place, whatever stands there: lines of --log-json are those of metrics.jsonl, so no sign tells them apart,
 * and a run that is not done has names that are not there yet. */
static bool is_of_a_run(const char *path) {
  char real[4096], run[4096];
  if (!hri_path_settle(path, real)) return false;
  for (char *slash = real; (slash = strchr(slash + 1, '/'));) {
    *slash = 0;
    bool is = is_of_runs(slash + 1) && hri_path_at(run, real, "run.json", NULL) == HR_OK && describes_run(run);
    *slash = '/';
    if (is) return true;
  }
  return false;
}

hr_status output_check_directory(const char *what, const char *path, hr_error *error) {
  if (!path || strcmp(path, "-") != 0) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "%s: - is standard output, and names no directory", what);
  return hri_hint(error, HR_ERROR_USAGE, "name a directory; one that is to be called so is ./-");
}

hr_status output_check(const char *option, const char *path, output_kind kind, hr_error *error) {
  bool special;
  struct stat info;
  if (strcmp(path, "-") == 0) { /* where it means standard output, it does not come here */
    hri_fail(error, HR_ERROR_USAGE, "--%s: - names no file, and standard output has the result", option);
    return hri_hint(error, HR_ERROR_USAGE, "name a file, or a pipe of the shell: >(program)");
  }
  if (kind != OUTPUT_LOG) HRI_TRY(hri_file_name_check(path, &special, error)); /* a log is added to where it stands */
  if (is_of_a_run(path)) return fail_of_run(option, path, error);
  if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0 || is_ours(path, kind)) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--%s: %s is there already%s", option, path,
           kind == OUTPUT_OTHER ? "" : " and is nothing that this option wrote");
  return hri_hint(error, HR_ERROR_USAGE, "give another name, or remove the file first");
}

/* ---- in a run directory that the command itself makes ---- */

/* A directory may be made below others that are made, a file may not. */
hr_status output_in_run(const char *option, const char *path, const output_run *run, bool directory, bool *in_run,
                        hr_error *error) {
  char inner[4096], outer[4096];
  const char *name;
  *in_run = false;
  if (!hri_path_inside(path, run->directory) || !hri_path_settle(path, inner) ||
      !hri_path_settle(run->directory, outer))
    return HR_OK;
  name = inner + strlen(outer);
  name += strspn(name, "/");
  if (is_of_runs(name)) return fail_of_run(option, path, error);
  *in_run = run->made_later;
  if (!run->made_later || directory || (name[0] && !strchr(name, '/'))) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE,
           name[0] ? "--%s: %s lies in a directory that is not there when the run makes %s"
                   : "--%s: %s is the directory of the run itself, %s",
           option, path, run->directory);
  return hri_hint(error, HR_ERROR_USAGE, "name a file right in it, or one in a directory that is there");
}

/* ---- several of one command ---- */

bool output_same(const char *a, const char *b) {
  char of_a[4096], of_b[4096];
  struct stat x, y;
  if (strcmp(a, b) == 0) return true;
  if (stat(a, &x) == 0 && stat(b, &y) == 0) return x.st_ino == y.st_ino && x.st_dev == y.st_dev;
  return hri_path_settle(a, of_a) && hri_path_settle(b, of_b) && strcmp(of_a, of_b) == 0;
}

/* Whether two writers would lose what the other wrote: not in a device or a pipe. */
static bool keeps(const char *path) {
  struct stat info;
  return stat(path, &info) != 0 || S_ISREG(info.st_mode);
}

static hr_status check_below(const output_file *file, const output_file *other, hr_error *error) {
  if (file->directory || !keeps(file->path) || !hri_path_inside(other->path, file->path)) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--%s: %s lies below %s, which --%s writes as a file", other->option, other->path,
           file->path, file->option);
  return hri_hint(error, HR_ERROR_USAGE, "give each a name of its own");
}

static hr_status check_pair(const output_file *a, const output_file *b, hr_error *error) {
  const output_file *file = a->directory ? b : a;
  if (file->directory) return HR_OK;
  if (keeps(file->path) && output_same(a->path, b->path)) {
    hri_fail(error, HR_ERROR_USAGE, "--%s and --%s would write the same file, %s", a->option, b->option, b->path);
    return hri_hint(error, HR_ERROR_USAGE, "give each a name of its own");
  }
  HRI_TRY(check_below(a, b, error));
  return check_below(b, a, error);
}

hr_status outputs_check_apart(const output_file *files, size_t count, hr_error *error) {
  for (size_t k = 1; k < count; k++)
    for (size_t m = 0; m < k; m++)
      if (files[m].path && files[k].path) HRI_TRY(check_pair(&files[m], &files[k], error));
  return HR_OK;
}
