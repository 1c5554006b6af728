#include "data/paths.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <headroom/data.h>

#include "base/file.h"
#include "data/reader.h"

void hri_paths_free(hri_path_list *list) {
  for (size_t i = 0; i < list->count; i++) hri_free(list->items[i]);
  hri_array_free(list);
}

static hr_status push(hri_path_list *list, char *path, hr_error *error) {
  if (path && hri_array_push(list, path)) return HR_OK;
  hri_free(path);
  return hri_fail_memory(error, (list->count + 1) * sizeof *list->items, "the list of data files");
}

const char *hri_path_ending(const char *path, size_t *bytes) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.'), *end, *inner;
  if (!dot) return NULL;
  end = dot + strlen(dot);
  if (strcasecmp(dot, ".gz") == 0 || strcasecmp(dot, ".zst") == 0) {
    for (inner = dot; inner > name && inner[-1] != '.'; inner--) continue;
    if (inner - 1 > name) {
      end = dot;
      dot = inner - 1;
    }
  }
  if (bytes) *bytes = (size_t)(end - dot);
  return dot;
}

bool hri_path_ends(const char *path, const char *const *endings) {
  size_t bytes;
  const char *ending = hri_path_ending(path, &bytes);
  for (; ending && *endings; endings++)
    if (strlen(*endings) == bytes && strncasecmp(ending, *endings, bytes) == 0) return true;
  return false;
}

static bool is_data(const char *name) {
  static const char *const endings[] = {".jsonl", ".json-lines", ".ndjson",  ".json", ".txt",
                                        ".md",    ".text",       ".parquet", ".bin",  NULL};
  return name[0] != '.' && hri_path_ends(name, endings);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* A directory that cannot be read to its end is no smaller data set. */
static hr_status push_directory(hri_path_list *list, const char *path, hr_error *error) {
  size_t first = list->count;
  const char *name;
  hr_status status;
  DIR *directory = opendir(path);
  if (!directory) return hri_fail_errno(error, errno, "open", path);
  while ((status = hri_dir_next(directory, path, &name, error)) == HR_OK && name) {
    char *file;
    if (!is_data(name)) continue;
    file = hri_path_join(path, name);
    if (file && hri_path_is_dir(file)) hri_free(file);
    else status = push(list, file, error);
    if (status != HR_OK) break;
  }
  closedir(directory);
  if (status != HR_OK) return status;
  if (list->count > first) {
    qsort(list->items + first, list->count - first, sizeof *list->items, by_name);
    return HR_OK;
  }
  status = hri_fail(error, HR_ERROR_INPUT, "the directory %s has no data files", path);
  return hri_hint(
      error, status,
      "data files end in .jsonl, .json, .txt, .md (also with .gz or .zst behind it), .parquet or .bin; name others one by one");
}

/* What people name that is no file: standard input, an address, a data set of a hub ("owner/name"). */
static hr_status explain_missing(const char *path, hr_status status, hr_error *error) {
  const char *slash = strchr(path, '/');
  char owner[128];
  if (strcmp(path, "-") == 0)
    return hri_hint(error, status, "data are read more than once: write them to a file first");
  if (hri_path_exists(path)) return status;
  if (strstr(path, "://"))
    return hri_hint(error, status, "nothing is downloaded: fetch the file first (curl -LO), and name it");
  if (!slash || slash == path || (size_t)(slash - path) >= sizeof owner || strchr(slash + 1, '/')) return status;
  (void)snprintf(owner, sizeof owner, "%.*s", (int)(slash - path), path);
  if (!hri_path_exists(owner) && !strpbrk(path, ".~"))
    return hri_hint(
        error, status,
        "check the path; where it is a data set of a hub, nothing is downloaded: fetch its Parquet or JSON files "
        "first (hf download --repo-type dataset), and name their directory");
  return status;
}

hr_status hr_data_find(const char *const *paths, uint32_t path_count, hr_error *error) {
  hri_path_list list = {0};
  hr_status status = hri_paths_expand(paths, path_count, &list, error);
  for (size_t i = 0; status == HR_OK && i < list.count; i++) {
    hri_file_stamp stamp;
    int fd;
    status = hri_stamp_open(list.items[i], &fd, &stamp, error);
    if (status == HR_OK) (void)close(fd);
    else status = explain_missing(list.items[i], status, error);
  }
  hri_paths_free(&list);
  return status;
}

hr_status hri_paths_expand(const char *const *paths, uint32_t count, hri_path_list *list, hr_error *error) {
  for (uint32_t i = 0; i < count; i++) {
    if (!paths[i]) {
      hri_fail(error, HR_ERROR_USAGE, "data path %u of %u is NULL", i, count);
      return hri_hint(error, HR_ERROR_USAGE, "give as many paths as path_count says");
    }
    HRI_TRY(hri_path_is_dir(paths[i]) ? push_directory(list, paths[i], error)
                                      : push(list, hri_strdup(paths[i]), error));
  }
  return HR_OK;
}
