/* The one table of the files beside a model's weights, and whether they are its tokenizer's. Names alone are looked at, but for ranks,
 * which go by what their names end in; no file is opened here. */
#include "convert/beside.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/file.h"

static const struct {
  const char *name;
  hri_beside_kind kind;
} files[] = {
    {"tokenizer.json", HRI_BESIDE_TOKENIZER},
    {"tokenizer.model", HRI_BESIDE_TOKENIZER},
    {"tokenizer_config.json", HRI_BESIDE_TOKENIZER},
    {"special_tokens_map.json", HRI_BESIDE_TOKENIZER},
    {"added_tokens.json", HRI_BESIDE_TOKENIZER},
    {"vocab.json", HRI_BESIDE_TOKENIZER},
    {"merges.txt", HRI_BESIDE_TOKENIZER},
    {"chat_template.jinja", HRI_BESIDE_TOKENIZER},
    {"generation_config.json", HRI_BESIDE_MODEL},
    {"tekken.json", HRI_BESIDE_TOKENIZER},
    {"vocab.txt", HRI_BESIDE_TOKENIZER},
};
static const char ranks[] = ".tiktoken"; /* what their names end in */

static bool is_ranks(const char *name) {
  size_t length = strlen(name), tail = sizeof ranks - 1;
  return length > tail && strcmp(name + length - tail, ranks) == 0;
}

hri_beside_kind hri_beside_of(const char *name) {
  for (size_t k = 0; k < sizeof files / sizeof *files; k++)
    if (strcmp(name, files[k].name) == 0) return files[k].kind;
  return is_ranks(name) ? HRI_BESIDE_TOKENIZER : HRI_BESIDE_NONE;
}

static hr_status list_ranks(const char *directory, hri_beside_each each, void *context, hr_error *error) {
  DIR *dir = opendir(directory);
  const char *name;
  hr_status status = HR_OK;
  if (!dir) {
    (void)hri_fail_errno(error, errno, "open directory", directory);
    if (error) error->code = HR_ERROR_INPUT;
    return HR_ERROR_INPUT;
  }
  while (status == HR_OK && (status = hri_dir_next(dir, directory, &name, error)) == HR_OK && name)
    if (is_ranks(name)) status = each(context, name, HRI_BESIDE_TOKENIZER, error);
  (void)closedir(dir);
  return status;
}

hr_status hri_beside_list(const char *directory, hri_beside_each each, void *context, hr_error *error) {
  for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
    char *path = hri_path_join(directory, files[k].name);
    bool there = path && hri_path_exists(path);
    hri_free(path);
    if (!path) return hri_fail_memory(error, strlen(directory) + 32, directory);
    if (there) HRI_TRY(each(context, files[k].name, files[k].kind, error));
  }
  return list_ranks(directory, each, context, error);
}
