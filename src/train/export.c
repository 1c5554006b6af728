#include "train/export.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "convert/beside.h"
#include "convert/lexicon.h"
#include "formats/gguf.h"
#include "model/adapter.h"
#include "model/config_kept.h"

enum { CONFIG_BYTES = 4096, COPY_BYTES = 1 << 18 };

/* ---- config.json ---- */

static hr_status write_config(const char *path, const char *text, hri_file_list *files, hr_error *error) {
  uint64_t count = strlen(text);
  HRI_TRY(hri_file_write_new(path, text, count, error));
  return hri_file_list_add(files, path, count, hri_file_digest_of(text, count), error);
}

hr_status hri_export_config(const hr_model *model, const char *dtype, const char *directory, hri_file_list *files,
                            hr_error *error) {
  char *path = hri_path_join(directory, "config.json");
  hr_status read, status;
  hr_error unread = {0};
  char *text = hri_config_kept(model, dtype, &read, &unread);
  status = text && path ? write_config(path, text, files, error) : hri_fail_memory(error, CONFIG_BYTES, "config.json");
  hri_free(path);
  hr_free(text);
  if (status != HR_OK || read == HR_OK) return status;
  return hri_fail(error, HR_ERROR_INPUT, "%.600s: config.json is written without the keys that only that file has",
                  unread.message);
}

hr_status hri_export_adapter(const hr_model *model, const char *directory, hri_file_list *files, hr_error *error) {
  hri_text text = {0};
  char *path = hri_path_join(directory, HRI_ADAPTER_CONFIG), full[PATH_MAX];
  const char *base = model->has_weights ? model->directory : NULL;
  hr_status status;
  if (base && realpath(base, full) && hri_utf8_whole(full)) base = full;
  hri_adapter_text(model, base, &text);
  status = path && !text.failed ? write_config(path, hri_text_get(&text), files, error)
                                : hri_fail_memory(error, text.length, HRI_ADAPTER_CONFIG);
  hri_text_deinit(&text);
  hri_free(path);
  return status;
}

/* ---- companions ---- */

/* What cannot be read of the source is no reason to lose a result: INPUT, which the caller may make a warning of. */
static hr_status unreadable(hr_error *error, const char *verb, const char *path) {
  (void)hri_fail_errno(error, errno, verb, path);
  if (error) error->code = HR_ERROR_INPUT;
  return HR_ERROR_INPUT;
}

static hr_status copy_bytes(int from, const char *from_path, int to, const char *to_path, hri_file_digest *digest,
                            hr_error *error) {
  char *buffer = hri_alloc(COPY_BYTES);
  hr_status status = HR_OK;
  if (!buffer) return hri_fail_memory(error, COPY_BYTES, from_path);
  while (status == HR_OK) {
    ssize_t got = read(from, buffer, COPY_BYTES);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    status =
        got < 0 ? unreadable(error, "read", from_path) : hri_file_write_all(to, to_path, buffer, (uint64_t)got, error);
    if (status == HR_OK)
      status = hri_file_digest_add(digest, hri_file_digest_bytes(digest), buffer, (uint64_t)got, error);
  }
  hri_free(buffer);
  return status;
}

static hr_status copy_open(int from, const char *from_path, const char *to_path, hri_file_list *files,
                           hr_error *error) {
  hri_file_digest *digest;
  uint64_t value;
  int to;
  hr_status status;
  HRI_TRY(hri_file_digest_create(1, &digest, error));
  status = hri_file_create(to_path, &to, error);
  if (status == HR_OK)
    status = hri_file_finish(to, to_path, copy_bytes(from, from_path, to, to_path, digest, error),
                             error); /* no half of a file stays */
  if (status == HR_OK) status = hri_file_digest_value(digest, hri_file_digest_bytes(digest), &value, error);
  if (status == HR_OK) status = hri_file_list_add(files, to_path, hri_file_digest_bytes(digest), value, error);
  hri_file_digest_destroy(digest);
  return status;
}

static hr_status copy_file(const char *from_path, const char *to_path, hri_file_list *files, hr_error *error) {
  hr_status status;
  int from;
  if (hri_file_open_regular(from_path, &from, NULL, error) != HR_OK) {
    if (error) error->code = HR_ERROR_INPUT;
    return HR_ERROR_INPUT;
  }
  status = copy_open(from, from_path, to_path, files, error);
  close(from);
  return status;
}

typedef struct carrying {
  const char *from, *to;
  hri_file_list *files;
  bool own; /* the directory is the model's, not that of a tokenizer that was named for it */
} carrying;

static hr_status carry(void *context, const char *name, hri_beside_kind kind, hr_error *error) {
  const carrying *c = context;
  char *a, *b;
  hr_status status;
  if (kind == HRI_BESIDE_MODEL && !c->own) return HR_OK;
  a = hri_path_join(c->from, name);
  b = hri_path_join(c->to, name);
  status = a && b ? copy_file(a, b, c->files, error) : hri_fail_memory(error, strlen(c->from) + strlen(c->to), name);
  hri_free(a);
  hri_free(b);
  return status;
}

/* The lexicon is written as text of its own; what was made of it is read again for the list. */
static hr_status list_made(const char *directory, hri_file_list *files, hr_error *error) {
  static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
  hr_status status = HR_OK;
  for (size_t k = 0; k < sizeof names / sizeof *names && status == HR_OK; k++) {
    char *path = hri_path_join(directory, names[k]);
    status = path ? hri_file_list_read(files, path, error) : hri_fail_memory(error, strlen(directory), names[k]);
    hri_free(path);
  }
  return status;
}

static hr_status make_from_gguf(const hr_model *model, const char *from, const char *directory, hri_file_list *files,
                                hr_error *error) {
  hri_gguf *file;
  hri_lexicon lexicon;
  bool found = false;
  hr_status status;
  HRI_TRY(hri_gguf_open(from, &file, error));
  hri_lexicon_init(&lexicon);
  status = hri_lexicon_from_gguf(file, &lexicon, &found, error);
  if (status == HR_OK && found) status = hri_lexicon_to_directory(&lexicon, directory, model->max_positions, error);
  if (status == HR_OK && found) status = list_made(directory, files, error);
  hri_lexicon_deinit(&lexicon);
  hri_gguf_close(file);
  return status;
}

hr_status hri_export_companions(const hr_model *model, const char *from, const char *directory, hri_file_list *files,
                                hr_error *error) {
  carrying c = {from, directory, files, strcmp(from, model->directory) == 0};
  struct stat info;
  if (!from[0]) return HR_OK;
  if (!hri_path_exists(from)) {
    hri_fail(error, HR_ERROR_INPUT, "%s is gone, so its tokenizer files could not be copied", from);
    return hri_hint(error, HR_ERROR_INPUT, "copy them into RUN/final yourself");
  }
  if (stat(from, &info) != 0) return unreadable(error, "look at", from);
  if (!S_ISDIR(info.st_mode)) return hri_gguf_is(from) ? make_from_gguf(model, from, directory, files, error) : HR_OK;
  return hri_beside_list(from, carry, &c, error);
}
