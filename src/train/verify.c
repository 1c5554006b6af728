/* Verifying a run directory, and holding a checkpoint while it is read. Both work beside a run and change nothing. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "train/checkpoint.h"
#include "train/manifest.h"
#include "train/runfile.h"

enum { PATH_BYTES = 4096 };

typedef struct verification {
  void (*on_file)(void *context, const char *path, hr_run_file_state state, const char *text);
  void *context;
  hr_run_verification *result;
  const char *directory;
} verification;

static void tell(verification *v, const char *path, hr_run_file_state state, const char *text) {
  uint32_t *counts[] = {&v->result->whole, &v->result->damaged, &v->result->unverified, &v->result->unknown};
  ++*counts[state];
  if (v->on_file) v->on_file(v->context, path, state, text);
}

/* ---- a directory with a list ---- */

typedef struct damage {
  verification *v;
  const char *path;
  bool any;
} damage;

static void on_finding(void *context, hri_manifest_finding_kind kind, const char *path, const char *text) {
  damage *d = context;
  d->any = d->any || (kind != HRI_FINDING_UNLISTED && kind != HRI_FINDING_UNLISTED_READ);
  tell(d->v, path,
       kind == HRI_FINDING_UNLISTED || kind == HRI_FINDING_UNLISTED_READ ? HR_RUN_FILE_UNKNOWN : HR_RUN_FILE_DAMAGED,
       text);
}

/* Every listed file by itself, so that each gets its line. Returns whether all are whole. */
static bool verify_list(verification *v, const char *directory, hri_file_list *files) {
  bool whole = true;
  for (size_t k = 0; k < files->count; k++) {
    hri_file_list one = {.items = &files->items[k], .count = 1, .capacity = 1};
    char path[PATH_BYTES];
    damage d = {.v = v};
    if (hri_path_at(path, directory, files->items[k].name, NULL) != HR_OK ||
        hri_files_compare(directory, &one, UINT64_MAX, on_finding, &d) > 0) {
      whole = false;
      continue;
    }
    v->result->file_count++;
    v->result->bytes += files->items[k].bytes;
    tell(v, path, HR_RUN_FILE_WHOLE, "");
  }
  return whole;
}

static void tell_unlisted(void *context, hri_manifest_finding_kind kind, const char *path, const char *text) {
  if (kind == HRI_FINDING_UNLISTED || kind == HRI_FINDING_UNLISTED_READ) tell(context, path, HR_RUN_FILE_UNKNOWN, text);
}

static bool verify_files(verification *v, const char *path) {
  char manifest[PATH_BYTES];
  hri_file_list files = {0};
  hr_error error = {0};
  uint64_t step;
  bool whole = false;
  if (hri_path_at(manifest, path, HRI_MANIFEST_FILE, &error) != HR_OK) return false;
  if (!hri_path_exists(manifest)) {
    char state[PATH_BYTES];
    hri_json root = {0};
    uint64_t schema;
    bool old = hri_path_at(state, path, "state.json", NULL) == HR_OK &&
               hri_json_read(state, 1 << 20, &root, NULL) == HR_OK &&
               hri_json_get_u64(&root, "schema_version", 1, 1, &schema, NULL) == HR_OK;
    hri_json_deinit(&root);
    if (old) tell(v, path, HR_RUN_FILE_UNVERIFIED, "was made before runs had digests (schema_version 1)");
    else tell(v, manifest, HR_RUN_FILE_DAMAGED, "is missing");
    return false;
  }
  if (hri_manifest_read(path, &step, &files, &error) != HR_OK) {
    tell(v, manifest, HR_RUN_FILE_DAMAGED, error.message);
  } else {
    tell(v, manifest, HR_RUN_FILE_WHOLE, "");
    whole = verify_list(v, path, &files);
    (void)hri_manifest_compare(path, &files, 0, tell_unlisted, v);
  }
  hri_array_free(&files);
  return whole;
}

/* Held meanwhile: a run beside would take old ones away. One that went since it was listed is no damage. */
static bool verify_checkpoint(verification *v, const char *path) {
  char held[PATH_BYTES];
  hr_hold *hold = hr_hold_take(path, held);
  bool whole = (hold || hri_path_is_dir(path)) && verify_files(v, path);
  hr_hold_release(hold);
  return whole;
}

static hr_status verify_checkpoints(verification *v, hr_error *error) {
  char parent[PATH_BYTES], path[PATH_BYTES], name[64];
  uint64_t *steps;
  size_t count;
  HRI_TRY(hri_path_at(parent, v->directory, "checkpoints", error));
  HRI_TRY(hri_checkpoint_list(parent, &steps, &count, error));
  for (size_t k = 0; k < count; k++) {
    hri_checkpoint_name(steps[k], name);
    if (hri_path_at(path, parent, name, NULL) == HR_OK && verify_checkpoint(v, path) && !v->result->newest_whole[0])
      (void)strcpy(v->result->newest_whole, name);
  }
  hri_free(steps);
  return HR_OK;
}

/* ---- what stands beside them ---- */

/* The newest checkpoint that has a say remembers what metrics.jsonl was up to it. */
static void verify_metrics(verification *v) {
  char newest[PATH_BYTES], state[PATH_BYTES], path[PATH_BYTES];
  hri_json root = {0}, metrics;
  uint64_t bytes, want, have = 0;
  const char *digest;
  hri_file_digest *taken = NULL;
  int fd;
  if (hri_path_at(path, v->directory, "metrics.jsonl", NULL) != HR_OK || !hri_checkpoint_newest(v->directory, newest) ||
      hri_path_at(state, newest, "state.json", NULL) != HR_OK)
    return;
  if (hri_json_read(state, 1 << 20, &root, NULL) == HR_OK &&
      hri_json_get_object(&root, "metrics", &metrics, NULL) == HR_OK &&
      hri_json_get_u64(&metrics, "bytes", 0, INT64_MAX, &bytes, NULL) == HR_OK &&
      hri_json_get_string(&metrics, "digest", &digest, NULL) == HR_OK && hri_file_digest_parse(digest, &want)) {
    bool same = false;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && hri_file_digest_create(2, &taken, NULL) == HR_OK &&
        (bytes == 0 || hri_file_digest_add_file(taken, fd, path, bytes, NULL) == HR_OK))
      same = hri_file_digest_value(taken, bytes, &have, NULL) == HR_OK && have == want;
    if (fd >= 0) (void)close(fd);
    hri_file_digest_destroy(taken);
    if (same) v->result->file_count++, v->result->bytes += bytes;
    tell(v, path, same ? HR_RUN_FILE_WHOLE : HR_RUN_FILE_DAMAGED,
         same ? "" : "is not what it was when the newest checkpoint was made");
  } else if (hri_path_exists(path)) {
    tell(v, path, HR_RUN_FILE_UNVERIFIED, "no checkpoint says what it was");
  }
  hri_json_deinit(&root);
}

/* run.json names what stands in `final`, and before a new one takes its place that one too: a kill in between leaves
 * either. *files gets the list of the one that is there. False: run.json names none. */
static bool list_of_final(const char *path, const hri_json *final, hri_file_list *files, hr_error *error) {
  hri_file_list next = {0};
  bool stands = hri_json_has(final, "files") && hri_files_get(final, "files", files, error) == HR_OK;
  if (hri_json_has(final, "next") && hri_files_get(final, "next", &next, error) == HR_OK &&
      (!stands || hri_files_compare(path, &next, UINT64_MAX, NULL, NULL) == 0)) {
    hri_file_list before = *files;
    *files = next, next = before;
    stands = true;
  }
  hri_array_free(&next);
  return stands;
}

static void verify_final(verification *v, const hri_json *run) {
  char path[PATH_BYTES];
  hri_json final;
  hri_file_list files = {0};
  hr_error own = {0};
  const char *state = "";
  if (hri_path_at(path, v->directory, "final", NULL) != HR_OK) return;
  (void)hri_json_get_string(run, "state", &state, NULL);
  if (hri_json_get_object(run, "final", &final, NULL) != HR_OK) {
    if (hri_path_exists(path)) tell(v, path, HR_RUN_FILE_UNVERIFIED, "run.json has no digests of it");
    return;
  }
  if (!hri_path_exists(path) && strcmp(state, "finished") != 0) return; /* it names what is about to appear */
  if (list_of_final(path, &final, &files, &own)) {
    (void)verify_list(v, path, &files);
    (void)hri_manifest_compare(path, &files, 0, tell_unlisted, v);
  } else {
    tell(v, path, HR_RUN_FILE_UNVERIFIED, own.message[0] ? own.message : "run.json has no digests of it");
  }
  hri_array_free(&files);
}

static void verify_run(verification *v, const char *path) {
  char *bytes = NULL;
  hri_json root = {0};
  hr_error own = {0};
  uint64_t count = 0, schema = 0;
  hr_status status = hri_file_read(path, HRI_RUN_FILE_BYTES, &bytes, &count, &own);
  if (status == HR_OK) status = hri_json_parse(bytes, count, path, &root, &own);
  if (status == HR_OK) {
    (void)hri_json_get_u64(&root, "schema_version", 0, INT64_MAX, &schema, NULL);
    if (schema == 1) tell(v, path, HR_RUN_FILE_UNVERIFIED, "was made before runs had digests (schema_version 1)");
    else if (hri_seal_holds(HRI_RUN_SEAL, bytes, count)) tell(v, path, HR_RUN_FILE_WHOLE, "");
    else tell(v, path, HR_RUN_FILE_DAMAGED, "is damaged: it does not have the digest that it states");
    verify_final(v, &root);
  } else {
    tell(v, path, HR_RUN_FILE_DAMAGED, own.message);
  }
  hri_json_deinit(&root);
  hri_free(bytes);
}

hr_status hr_run_verify(const char *directory,
                        void (*on_file)(void *context, const char *path, hr_run_file_state state, const char *text),
                        void *context, hr_run_verification *result, hr_error *error) {
  verification v = {.on_file = on_file, .context = context, .result = result, .directory = directory};
  char path[PATH_BYTES];
  bool any;
  hr_status status;
  memset(result, 0, sizeof *result);
  HRI_TRY(hri_path_at(path, directory, "run.json", error));
  HRI_TRY(hri_checkpoint_any(directory, &any, error));
  if (!hri_path_exists(path) && !any) {
    status = hri_fail(error, HR_ERROR_USAGE, "%s is no run directory: it holds neither run.json nor a checkpoint",
                      directory);
    return hri_hint(error, status, "name the directory that --out named");
  }
  verify_run(&v, path);
  verify_metrics(&v);
  return verify_checkpoints(&v, error);
}

/* ---- holding ---- */

struct hr_hold {
  int fd;
};

/* The file's descriptor with a shared lock on it, if it is still at its path then; else -1. */
static int hold_file(const char *path) {
  struct stat here, there;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -1;
  if (fstat(fd, &here) == 0 && S_ISREG(here.st_mode) && flock(fd, LOCK_SH | LOCK_NB) == 0 && stat(path, &there) == 0 &&
      there.st_ino == here.st_ino && there.st_dev == here.st_dev)
    return fd;
  (void)close(fd);
  return -1;
}

/* A run may retire the checkpoint that a link led to before it is held: the link then leads to another. */
hr_hold *hr_hold_take(const char *directory, char *path) {
  char full[PATH_MAX], manifest[PATH_BYTES];
  hr_hold *hold = NULL;
  int fd = -1;
  for (int attempt = 0; attempt < 5 && fd < 0; attempt++)
    if (realpath(directory, full) && strlen(full) < PATH_BYTES &&
        hri_path_at(manifest, full, HRI_MANIFEST_FILE, NULL) == HR_OK)
      fd = hold_file(manifest);
  if (fd >= 0) hold = hri_alloc(sizeof *hold);
  if (hold) hold->fd = fd;
  else if (fd >= 0) (void)close(fd);
  (void)snprintf(path, PATH_BYTES, "%s", hold ? full : directory);
  return hold;
}

void hr_hold_release(hr_hold *hold) {
  if (!hold) return;
  (void)close(hold->fd);
  hri_free(hold);
}
