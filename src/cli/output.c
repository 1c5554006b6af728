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

static bool is_ours(const char *path, output_kind kind) {
  char head[HEAD_BYTES + 1];
  FILE *file = fopen(path, "rb");
  size_t count;
  if (!file) return false;
  count = fread(head, 1, HEAD_BYTES, file);
  (void)fclose(file);
  head[count] = 0;
  return kind != OUTPUT_OTHER && strstr(head, signs[kind]);
}

/* Lines of --log-json are those of metrics.jsonl, so the sign does not tell them apart, and a run cannot go on without
 * its own. */
static bool is_metrics_of_a_run(const char *path) {
  char *real = realpath(path, NULL), run[4096];
  char *name = real ? strrchr(real, '/') : NULL;
  bool is = false;
  if (name && strcmp(name + 1, "metrics.jsonl") == 0) {
    *name = 0;
    is = hri_path_at(run, real, "run.json", NULL) == HR_OK && hri_path_exists(run);
  }
  free(real);
  return is;
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
  if (is_metrics_of_a_run(path)) {
    hri_fail(error, HR_ERROR_USAGE, "--%s: %s belongs to the run in its directory, which counts on it", option, path);
    return hri_hint(error, HR_ERROR_USAGE, "give another name");
  }
  if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0 || is_ours(path, kind)) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--%s: %s is there already%s", option, path,
           kind == OUTPUT_OTHER ? "" : " and is nothing that this option wrote");
  return hri_hint(error, HR_ERROR_USAGE, "give another name, or remove the file first");
}

/* ---- in a run directory that the command itself makes ---- */

/* What a run writes there; its scratch directories are hidden. */
static const char *const of_runs[] = {"run.json", "metrics.jsonl", "lock",   "lock.exclusive",
                                      "final",    "checkpoints",   "memory", "data-cache"};

/* A directory may be made below others that are made, a file may not. */
hr_status output_in_run(const char *option, const char *path, const char *run, bool directory, bool *in_run,
                        hr_error *error) {
  char inner[4096], outer[4096];
  const char *name;
  *in_run = hri_path_inside(path, run) && hri_path_settle(path, inner) && hri_path_settle(run, outer);
  if (!*in_run) return HR_OK;
  name = inner + strlen(outer);
  name += strspn(name, "/");
  for (size_t k = 0; k < sizeof of_runs / sizeof *of_runs; k++) {
    size_t length = strlen(of_runs[k]);
    if (strncmp(name, of_runs[k], length) != 0 || (name[length] && name[length] != '/')) continue;
    hri_fail(error, HR_ERROR_USAGE, "--%s: %s belongs to the run in its directory, which counts on it", option, path);
    return hri_hint(error, HR_ERROR_USAGE, "give another name");
  }
  if (directory || (name[0] && !strchr(name, '/'))) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE,
           name[0] ? "--%s: %s lies in a directory that is not there when the run makes %s"
                   : "--%s: %s is the directory of the run itself, %s",
           option, path, run);
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

hr_status outputs_check_apart(const output_file *files, size_t count, hr_error *error) {
  for (size_t k = 1; k < count; k++)
    for (size_t m = 0; m < k; m++) {
      const output_file *a = &files[m], *b = &files[k];
      if (!a->path || !b->path || !keeps(a->path) || !output_same(a->path, b->path)) continue;
      hri_fail(error, HR_ERROR_USAGE, "--%s and --%s would write the same file, %s", a->option, b->option, b->path);
      return hri_hint(error, HR_ERROR_USAGE, "give each a name of its own");
    }
  return HR_OK;
}
