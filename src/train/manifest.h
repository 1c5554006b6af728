/* manifest.json: what a checkpoint is made of.
 *
 *   {"schema_version": 1, "step": N, "files": [{"name": "...", "bytes": n, "digest": "xxh3:..."}, ...],
 *    "manifest_digest": "xxh3:..."}
 *
 * The last member is the digest of all bytes of the file before it, so the manifest protects itself; digests are those
 * of formats/digest.h, taken while the files were written. A directory without one is of schema 1 (checkpoint.h), or no
 * checkpoint. */
#ifndef HRI_TRAIN_MANIFEST_H
#define HRI_TRAIN_MANIFEST_H

#include "base/json.h"
#include "formats/digest.h"

#define HRI_MANIFEST_FILE "manifest.json"
enum { HRI_MANIFEST_SCHEMA = 1 };

/* A JSON text that protects itself: `text` is an object of indent 2 with members and without its end; adds the last
 * member, the digest of all bytes before it, and the end. And whether a text has such an end, with the digest of what
 * it holds. */
void hri_seal(hri_text *text, const char *member);
bool hri_seal_holds(const char *member, const char *bytes, uint64_t count);

/* Writes DIRECTORY/manifest.json, new, and syncs the file. */
hr_status hri_manifest_write(const char *directory, uint64_t step, const hri_file_list *files, hr_error *error);
/* Reads and checks it alone. INPUT names the file, and a newer schema by its version. */
hr_status hri_manifest_read(const char *directory, uint64_t *step, hri_file_list *files, hr_error *error);

/* How a manifest and its directory agree, without reading large files. */
typedef enum hri_manifest_finding_kind {
  HRI_FINDING_MISSING = 0,  /* listed, and not there */
  HRI_FINDING_LENGTH,       /* another length */
  HRI_FINDING_DIGEST,       /* other bytes */
  HRI_FINDING_UNREADABLE,   /* no regular file, or one that is no file */
  HRI_FINDING_IO,           /* reading failed; nothing is known of its bytes */
  HRI_FINDING_MEMORY,       /* memory was refused: nothing is known either */
  HRI_FINDING_UNLISTED,     /* there, and not listed */
  HRI_FINDING_UNLISTED_READ /* ... with a name that a reader of models would take notice of */
} hri_manifest_finding_kind;

typedef void (*hri_on_finding)(void *context, hri_manifest_finding_kind kind, const char *path, const char *text);

/* Compares the files of a directory with a list. Files above `limit` bytes are not read, only measured. Returns how
 * many findings there are besides UNLISTED. */
uint32_t hri_manifest_compare(const char *directory, const hri_file_list *files, uint64_t limit,
                              hri_on_finding on_finding, void *context);
/* The same for a list of files in a directory that may hold others (RUN/final). */
uint32_t hri_files_compare(const char *directory, const hri_file_list *files, uint64_t limit, hri_on_finding on_finding,
                           void *context);
/* Names of entries of a directory that are neither listed nor the manifest, with commas, at most a few; *count of
 * all. */
hr_status hri_files_unlisted(const char *directory, const hri_file_list *files, char out[256], uint32_t *count,
                             hr_error *error);

/* An hri_on_finding that makes the first finding besides UNLISTED an error in `context`, a zeroed hr_error: INPUT, or
 * IO and MEMORY as they came. */
void hri_take_first_finding(void *context, hri_manifest_finding_kind kind, const char *path, const char *text);
/* The first finding as an error with the file's path. */
hr_status hri_manifest_check(const char *directory, const hri_file_list *files, uint64_t limit, hr_error *error);

/* "files": [...] of a JSON object, both ways. */
void hri_files_put(hri_json_writer *w, const char *key, const hri_file_list *files);
hr_status hri_files_get(const hri_json *object, const char *key, hri_file_list *files, hr_error *error);

#endif
