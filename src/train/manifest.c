/* Lists of files with their digests, in JSON that protects itself, and how such a list and a directory agree. */
#include "train/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"

enum { PATH_BYTES = 4096, LIMIT_BYTES = 8 << 20 };

static const char member[] = "manifest_digest", seal_end[] = "\"\n}\n";

/* ---- lists of files in JSON ---- */

void hri_files_put(hri_json_writer *w, const char *key, const hri_file_list *files) {
  char text[HRI_DIGEST_TEXT_BYTES];
  hri_json_key(w, key);
  hri_json_begin_array(w);
  for (size_t k = 0; k < files->count; k++) {
    hri_file_digest_text(files->items[k].digest, text);
    hri_json_begin_object(w);
    hri_json_field_string(w, "name", files->items[k].name);
    hri_json_field_u64(w, "bytes", files->items[k].bytes);
    hri_json_field_string(w, "digest", text);
    hri_json_end_object(w);
  }
  hri_json_end_array(w);
}

/* A name in a list is a file of that very directory, never a path out of it. */
static bool is_plain_name(const char *name) {
  return name[0] && strlen(name) < sizeof((hri_file_record *)0)->name && !strchr(name, '/') && strcmp(name, ".") != 0 &&
         strcmp(name, "..") != 0;
}

static hr_status get_file(const hri_json *item, hri_file_list *files, hr_error *error) {
  const char *name, *digest;
  uint64_t bytes, value;
  HRI_TRY(hri_json_get_string(item, "name", &name, error));
  HRI_TRY(hri_json_get_u64(item, "bytes", 0, INT64_MAX, &bytes, error));
  HRI_TRY(hri_json_get_string(item, "digest", &digest, error));
  if (!is_plain_name(name)) return hri_json_fail(item, error, "a file of the directory under 'name'");
  if (!hri_file_digest_parse(digest, &value))
    return hri_json_fail(item, error, "a digest (xxh3: and 16 digits) under 'digest'");
  if (hri_file_list_find(files, name))
    return hri_json_fail(item, error, "each file once (%.100s is there twice)", name);
  return hri_file_list_add(files, name, bytes, value, error);
}

hr_status hri_files_get(const hri_json *object, const char *key, hri_file_list *files, hr_error *error) {
  hri_json list;
  HRI_TRY(hri_json_get_array(object, key, &list, error));
  for (uint64_t k = 0; k < hri_json_count(&list); k++) {
    hri_json item = hri_json_item(&list, k);
    HRI_TRY(get_file(&item, files, error));
  }
  return HR_OK;
}

/* ---- seals ---- */

static int seal_head(const char *name, char out[96]) { return snprintf(out, 96, ",\n  \"%s\": \"", name); }

void hri_seal(hri_text *text, const char *name) {
  char head[96], digest[HRI_DIGEST_TEXT_BYTES];
  if (text->failed) return;
  (void)seal_head(name, head);
  hri_file_digest_text(hri_file_digest_of(text->chars, text->length), digest);
  hri_text_add(text, "%s%s%s", head, digest, seal_end);
}

bool hri_seal_holds(const char *name, const char *bytes, uint64_t count) {
  char head[96], digest[HRI_DIGEST_TEXT_BYTES];
  uint64_t head_bytes = (uint64_t)seal_head(name, head), tail = head_bytes + sizeof digest - 1 + sizeof seal_end - 1,
           stated;
  const char *at = bytes + (count - tail);
  if (count <= tail || memcmp(at, head, head_bytes) != 0 ||
      memcmp(bytes + count - (sizeof seal_end - 1), seal_end, sizeof seal_end - 1) != 0)
    return false;
  memcpy(digest, at + head_bytes, sizeof digest - 1);
  digest[sizeof digest - 1] = 0;
  return hri_file_digest_parse(digest, &stated) && stated == hri_file_digest_of(bytes, count - tail);
}

/* ---- the file ---- */

hr_status hri_manifest_write(const char *directory, uint64_t step, const hri_file_list *files, hr_error *error) {
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 2), *w = &writer;
  char path[PATH_BYTES];
  hr_status status = hri_path_at(path, directory, HRI_MANIFEST_FILE, error);
  hri_json_begin_object(w);
  hri_json_field_u64(w, "schema_version", HRI_MANIFEST_SCHEMA);
  hri_json_field_u64(w, "step", step);
  hri_files_put(w, "files", files);
  hri_seal(&text, member);
  if (text.failed && status == HR_OK) status = hri_fail_memory(error, text.length, HRI_MANIFEST_FILE);
  if (status == HR_OK) status = hri_file_write_new(path, text.chars, text.length, error);
  hri_text_deinit(&text);
  return status;
}

static hr_status damaged(const char *path, hr_error *error) {
  hr_status status = hri_fail(error, HR_ERROR_INPUT, "%s is damaged: it does not have the digest that it states", path);
  return hri_hint(error, status, "the checkpoint cannot be trusted; take an earlier one with --from step-N");
}

static hr_status parse(const hri_json *root, const char *path, uint64_t *step, hri_file_list *files, hr_error *error) {
  uint64_t schema;
  hr_status status;
  HRI_TRY(hri_json_get_u64(root, "schema_version", 0, INT64_MAX, &schema, error));
  if (schema != HRI_MANIFEST_SCHEMA) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s has schema version %llu, and this version of Headroom reads %d", path,
                      (unsigned long long)schema, HRI_MANIFEST_SCHEMA);
    return hri_hint(error, status, "go on with the version of Headroom that made the run, or a newer one");
  }
  HRI_TRY(hri_json_get_u64(root, "step", 0, INT64_MAX, step, error));
  return hri_files_get(root, "files", files, error);
}

hr_status hri_manifest_read(const char *directory, uint64_t *step, hri_file_list *files, hr_error *error) {
  char path[PATH_BYTES], *bytes = NULL;
  uint64_t count = 0;
  hri_json root = {0};
  hr_status status = HR_OK;
  HRI_TRY(hri_path_at(path, directory, HRI_MANIFEST_FILE, error));
  if (!hri_path_exists(path)) {
    hri_fail(error, HR_ERROR_INPUT, "%s is missing: nothing says what the checkpoint was made of", path);
    return hri_hint(error, HR_ERROR_INPUT, "put it back, or take another checkpoint: --from step-N");
  }
  HRI_TRY_OUT(hri_file_read(path, LIMIT_BYTES, &bytes, &count, error));
  if (!hri_seal_holds(member, bytes, count)) {
    status = damaged(path, error);
    goto out;
  }
  HRI_TRY_OUT(hri_json_parse(bytes, count, path, &root, error));
  HRI_TRY_OUT(parse(&root, path, step, files, error));
out:
  hri_json_deinit(&root);
  hri_free(bytes);
  return status;
}

/* ---- comparing ---- */

typedef struct report {
  hri_on_finding on_finding;
  void *context;
  uint32_t count;
} report;

static void tell(report *r, hri_manifest_finding_kind kind, const char *path, const char *text) {
  if (kind != HRI_FINDING_UNLISTED) r->count++;
  if (r->on_finding) r->on_finding(r->context, kind, path, text);
}

static hri_manifest_finding_kind kind_of(hr_status code) {
  return code == HR_ERROR_MEMORY ? HRI_FINDING_MEMORY : code == HR_ERROR_IO ? HRI_FINDING_IO : HRI_FINDING_UNREADABLE;
}

static void compare_file(report *r, const char *directory, const hri_file_record *file, uint64_t limit) {
  char path[PATH_BYTES], text[160], have[HRI_DIGEST_TEXT_BYTES], want[HRI_DIGEST_TEXT_BYTES];
  hr_error error = {0};
  struct stat info;
  uint64_t bytes, value;
  if (hri_path_at(path, directory, file->name, &error) != HR_OK) {
    tell(r, HRI_FINDING_UNREADABLE, directory, error.message);
  } else if (lstat(path, &info) != 0) {
    tell(r, errno == ENOENT ? HRI_FINDING_MISSING : HRI_FINDING_IO, path,
         errno == ENOENT ? "is missing" : strerror(errno));
  } else if (!S_ISREG(info.st_mode)) {
    tell(r, HRI_FINDING_UNREADABLE, path, "is not a regular file");
  } else if ((uint64_t)info.st_size != file->bytes) {
    (void)snprintf(text, sizeof text, "is damaged: it has %llu bytes and was written with %llu",
                   (unsigned long long)info.st_size, (unsigned long long)file->bytes);
    tell(r, HRI_FINDING_LENGTH, path, text);
  } else if (file->bytes > limit) {
    return; /* measured is all that was asked for */
  } else if (hri_file_digest_read(path, &bytes, &value, &error) != HR_OK) {
    tell(r, kind_of(error.code), path, error.message);
  } else if (value != file->digest || bytes != file->bytes) {
    hri_file_digest_text(value, have);
    hri_file_digest_text(file->digest, want);
    (void)snprintf(text, sizeof text, "is damaged: its digest is %s and it was written with %s", have, want);
    tell(r, HRI_FINDING_DIGEST, path, text);
  }
}

static bool ends_with(const char *name, const char *end) {
  size_t length = strlen(name), tail = strlen(end);
  return length >= tail && strcmp(name + length - tail, end) == 0;
}

/* What a reader of models looks for by name could change what is loaded. */
static bool would_be_read(const char *name) {
  static const char *const ends[] = {".json",     ".safetensors", ".model",   ".jinja",
                                     ".tiktoken", "merges.txt",   "vocab.txt"};
  for (size_t k = 0; k < sizeof ends / sizeof *ends; k++)
    if (ends_with(name, ends[k])) return true;
  return false;
}

static bool is_listed(const hri_file_list *files, const char *name) {
  return strcmp(name, HRI_MANIFEST_FILE) == 0 || hri_file_list_find(files, name);
}

static void compare_entries(report *r, const char *directory, const hri_file_list *files) {
  DIR *dir = opendir(directory);
  hr_error error = {0};
  const char *name;
  if (!dir) {
    tell(r, HRI_FINDING_IO, directory, strerror(errno));
    return;
  }
  while (hri_dir_next(dir, directory, &name, &error) == HR_OK && name) {
    char path[PATH_BYTES];
    if (is_listed(files, name) || hri_path_at(path, directory, name, NULL) != HR_OK) continue;
    if (would_be_read(name))
      tell(r, HRI_FINDING_UNLISTED_READ, path, "is not a file of this checkpoint, and would be read with it");
    else tell(r, HRI_FINDING_UNLISTED, path, "is not a file of this checkpoint");
  }
  if (error.code != HR_OK) tell(r, kind_of(error.code), directory, error.message);
  (void)closedir(dir);
}

uint32_t hri_files_compare(const char *directory, const hri_file_list *files, uint64_t limit, hri_on_finding on_finding,
                           void *context) {
  report r = {.on_finding = on_finding, .context = context};
  for (size_t k = 0; k < files->count; k++) compare_file(&r, directory, &files->items[k], limit);
  return r.count;
}

uint32_t hri_manifest_compare(const char *directory, const hri_file_list *files, uint64_t limit,
                              hri_on_finding on_finding, void *context) {
  report r = {.on_finding = on_finding, .context = context};
  for (size_t k = 0; k < files->count; k++) compare_file(&r, directory, &files->items[k], limit);
  compare_entries(&r, directory, files);
  return r.count;
}

hr_status hri_files_unlisted(const char *directory, const hri_file_list *files, char out[256], uint32_t *count,
                             hr_error *error) {
  DIR *dir = opendir(directory);
  const char *name;
  size_t used = 0;
  hr_status status;
  out[0] = 0;
  *count = 0;
  if (!dir) return hri_fail_errno(error, errno, "open directory", directory);
  while ((status = hri_dir_next(dir, directory, &name, error)) == HR_OK && name) {
    if (is_listed(files, name)) continue;
    if ((*count)++ < 3 && used < 250)
      used += (size_t)snprintf(out + used, 256 - used, "%s%.60s", used ? ", " : "", name);
  }
  if (*count > 3 && used < 250) (void)snprintf(out + used, 256 - used, ", ...");
  (void)closedir(dir);
  return status;
}

/* ---- as an error ---- */

void hri_take_first_finding(void *context, hri_manifest_finding_kind kind, const char *path, const char *text) {
  hr_error *error = context;
  hr_status code = kind == HRI_FINDING_MEMORY ? HR_ERROR_MEMORY : kind == HRI_FINDING_IO ? HR_ERROR_IO : HR_ERROR_INPUT;
  if (kind == HRI_FINDING_UNLISTED || error->code != HR_OK) return;
  (void)hri_fail(error, code, strstr(text, path) ? "%s%s" : "%s %s", strstr(text, path) ? "" : path, text);
  if (kind == HRI_FINDING_UNLISTED_READ) (void)hri_hint(error, code, "move it out of the checkpoint");
}

hr_status hri_manifest_check(const char *directory, const hri_file_list *files, uint64_t limit, hr_error *error) {
  hr_error first = {0};
  if (hri_manifest_compare(directory, files, limit, hri_take_first_finding, &first) == 0) return HR_OK;
  if (error) *error = first;
  return first.code;
}
