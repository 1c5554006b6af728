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

hr_status output_check(const char *option, const char *path, output_kind kind, hr_error *error) {
  bool special;
  struct stat info;
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
