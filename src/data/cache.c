/* The cache of tokenized data: one file per key, which depends on the bytes of the data files, on tokenizer and
 * template, and on every option that decides tokens. A file holds the stores and lists as they lie in memory, so it
 * belongs to one kind of machine and one version; whatever does not fit or whose digest is wrong is made anew. An entry
 * grows in a scratch directory of the store and takes its name by a rename, so it is whole or not there, and who reads
 * an older one under that name keeps it. KEY.lock is held while an entry is made: others who miss the same one wait,
 * and find it. Layout:
 *
 *   header | hri_data_found | kind of each file | token store | label store | documents | digest of all before (8
 *   bytes) */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/lock.h"
#include "base/scratch.h"
#include "data/paths.h"
#include "data/source.h"

enum { VERSION = 2, BLOCK_BYTES = 64 * 1024, PATH_BYTES = 4096, LARGE_BYTES = 1 << 20 };

typedef struct header {
  char magic[8];
  uint64_t version, key;
  uint64_t found_bytes, kind_bytes; /* sizes of the structs */
  uint64_t source_count, token_bytes, label_bytes, document_bytes;
} header;

/* What reading decided about a file. */
typedef struct kind {
  uint32_t format, container, width;
  uint32_t reading; /* readings[format] when it was made */
  uint64_t base, documents;
} kind;

/* How rows of a format become tokens: a number that goes up where that changes, so that entries of other formats stay
 * good. VERSION is of the layout, and of what changes for all of them.
 * 1: `system` beside messages is their first message. */
static const uint32_t readings[HR_DATA_FORMAT_COUNT] = {[HR_DATA_MESSAGES] = 1, [HR_DATA_SHAREGPT] = 1};

static const char magic[8] = {'H', 'R', 'T', 'O', 'K', 'E', 'N', 'S'};

/* ---- the key ---- */

static hr_status digest_file(hri_dataset *dataset, hri_data_source *source, hr_error *error) {
  hri_reader reader;
  hr_status status = hri_reader_open(&reader, source->path, &dataset->digest, error);
  source->stamp = reader.stamp;
  while (status == HR_OK && !reader.at_end) {
    reader.next = reader.end;
    status = hri_reader_fill(&reader, error);
    if (status == HR_OK) status = hri_data_go_on(dataset, error);
  }
  if (status == HR_OK) status = hri_reader_finish(&reader, error);
  hri_digest_add_u64(&dataset->digest, reader.raw_bytes);
  hri_reader_close(&reader);
  return status;
}

/* Files are taken for what they are by the ends of their names, too. */
static void digest_ending(hri_digest *digest, const char *path) {
  const char *dot = hri_path_ending(path, NULL);
  for (; dot && *dot; dot++) hri_digest_add_u64(digest, (uint64_t)((unsigned char)*dot | 32));
  hri_digest_add_u64(digest, 0);
}

hr_status hri_cache_digest(hri_dataset *dataset, hr_error *error) {
  for (dataset->current = 0; dataset->current < dataset->source_count; dataset->current++)
    HRI_TRY(digest_file(dataset, hri_data_current(dataset), error));
  return HR_OK;
}

uint64_t hri_cache_key(const hri_dataset *dataset) {
  const hri_dataset_options *o = dataset->options;
  const uint64_t values[] = {VERSION,
                             o->format,
                             o->loss,
                             o->skip_bad,
                             o->identity,
                             o->vocabulary,
                             (uint64_t)(int64_t)dataset->encoder->eos,
                             o->tokenizer != NULL,
                             o->chat != NULL,
                             o->chat_given,
                             o->separator ? strlen(o->separator) : 0};
  hri_digest digest = dataset->digest;
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) hri_digest_add_u64(&digest, values[i]);
  if (o->separator) hri_digest_add(&digest, o->separator, strlen(o->separator));
  hri_digest_add(&digest, hr_version(), strlen(hr_version())); /* another version may read the same bytes differently */
  for (uint32_t i = 0; i < dataset->source_count; i++) digest_ending(&digest, dataset->sources[i].path);
  return hri_digest_value(&digest);
}

/* "STORE/KEY.tokens" or "STORE/KEY.lock" */
static hr_status path_of(const char *store, uint64_t key, const char *ending, char path[PATH_BYTES], hr_error *error) {
  if (snprintf(path, PATH_BYTES, "%s/%016llx.%s", store, (unsigned long long)key, ending) < PATH_BYTES - 16)
    return HR_OK;
  {
    hri_fail(error, HR_ERROR_USAGE, "the path of the data cache, %.200s, is too long", store);
    return hri_hint(error, HR_ERROR_USAGE, "name a shorter one: --data-cache DIR");
  }
}

/* ---- one maker, others wait ---- */

typedef struct waiter {
  const hri_dataset_options *options;
  const char *path; /* of the lock */
  bool told;
} waiter;

static void tell_waiting(waiter *w, const hri_lock_owner *other) {
  char note[PATH_BYTES + 256], exclusive[PATH_BYTES + 16];
  int length;
  if (w->told || !w->options->on_note) return;
  w->told = true;
  if (other->known)
    length = snprintf(note, sizeof note, "waiting for process %lld on host %s, which tokenizes the same data",
                      (long long)other->pid, other->host);
  else length = snprintf(note, sizeof note, "waiting for another process, which tokenizes the same data");
  (void)snprintf(exclusive, sizeof exclusive, "%s.exclusive",
                 w->path); /* the fallback of hri_lock outlives a killed process */
  if (hri_path_exists(exclusive))
    (void)snprintf(note + length, sizeof note - (size_t)length, " (if it has ended, remove %s)", exclusive);
  w->options->on_note(w->options->note_context, note);
}

static bool waits_on(void *context, const hri_lock_owner *other) {
  waiter *w = context;
  tell_waiting(w, other);
  return !w->options->should_stop || !w->options->should_stop(w->options->stop_context);
}

hr_status hri_cache_lock(const hri_dataset *dataset, hri_lock **lock, hr_error *error) {
  const char *store = dataset->options->store_directory;
  char path[PATH_BYTES];
  waiter w = {.options = dataset->options, .path = path};
  HRI_TRY(path_of(store, dataset->key, "lock", path, error));
  HRI_TRY(hri_dir_make(store, error));
  HRI_TRY(hri_lock_wait(path, "the entry of the data cache", waits_on, &w, lock, error));
  (void)hri_scratch_sweep(store); /* what killed makers left */
  return HR_OK;
}

void hri_cache_tidy(const hri_dataset *dataset) {
  const char *store = dataset->options->store_directory;
  char path[PATH_BYTES];
  hri_lock *lock;
  (void)hri_scratch_sweep(store);
  if (path_of(store, dataset->key, "lock", path, NULL) != HR_OK || !hri_path_exists(path) ||
      hri_lock_is_held(path, NULL))
    return;
  if (hri_lock_take(path, "the entry of the data cache", &lock, NULL) == HR_OK) hri_lock_release(lock, true);
}

/* ---- loading ---- */

/* An entry that is not sound is no error: it is made anew. */
static bool read_at(int fd, void *to, uint64_t bytes, uint64_t offset) {
  return hri_file_pread(fd, "", to, bytes, offset, NULL) == HR_OK;
}

static bool digest_matches(int fd, uint64_t bytes) {
  hri_digest digest = {0};
  uint64_t stored;
  bool sound = true;
  char *block = hri_alloc(BLOCK_BYTES);
  for (uint64_t at = 0, part; block && sound && at < bytes; at += part) {
    part = bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;
    sound = read_at(fd, block, part, at);
    if (sound) hri_digest_add(&digest, block, part);
  }
  hri_free(block);
  return block && sound && read_at(fd, &stored, sizeof stored, bytes) && stored == hri_digest_value(&digest);
}

/* The header is this version's, the sizes fit the file, and the digest holds. */
static bool is_sound(const hri_dataset *dataset, int fd, uint64_t key, header *h) {
  struct stat info;
  uint64_t bytes;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || !read_at(fd, h, sizeof *h, 0)) return false;
  if (memcmp(h->magic, magic, sizeof magic) != 0 || h->version != VERSION || h->key != key ||
      h->found_bytes != sizeof(hri_data_found) || h->kind_bytes != sizeof(kind) ||
      h->source_count != dataset->source_count)
    return false;
  bytes = sizeof *h + h->found_bytes + h->source_count * sizeof(kind);
  if (!hri_add(bytes, h->token_bytes, &bytes) || !hri_add(bytes, h->label_bytes, &bytes) ||
      !hri_add(bytes, h->document_bytes, &bytes))
    return false;
  return bytes + sizeof(uint64_t) == (uint64_t)info.st_size && h->document_bytes % sizeof(hri_document) == 0 &&
         digest_matches(fd, bytes);
}

/* The spools become parts of the file. */
static hr_status adopt(hri_dataset *dataset, const char *store, int fd, const header *h, hr_error *error) {
  hri_spool *spools[] = {&dataset->tokens, &dataset->labels, &dataset->documents};
  const uint64_t sizes[] = {h->token_bytes, h->label_bytes, h->document_bytes};
  uint64_t at = sizeof *h + h->found_bytes + h->source_count * sizeof(kind);
  for (int i = 0; i < 3; i++) {
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return hri_fail_errno(error, errno, "open the cache in", store);
    hri_spool_deinit(spools[i]);
    *spools[i] = hri_spool_borrow(dataset->directory, own, at, sizes[i]);
    at += sizes[i];
  }
  return HR_OK;
}

static void take_kinds(hri_dataset *dataset, const kind *kinds) {
  for (uint32_t i = 0; i < dataset->source_count; i++) {
    hri_data_source *source = &dataset->sources[i];
    source->format = (hr_data_format)kinds[i].format;
    source->container = (hri_container)kinds[i].container;
    source->width = kinds[i].width;
    source->base = kinds[i].base;
    source->documents = kinds[i].documents;
  }
}

/* Whether every file was read as it is today. */
static bool is_todays(const kind *kinds, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (kinds[i].format >= HR_DATA_FORMAT_COUNT || kinds[i].reading != readings[kinds[i].format]) return false;
  return true;
}

/* All of it, or nothing: what could not be read is read from the files themselves next. */
static bool take_found(hri_dataset *dataset, int fd) {
  hri_data_found found;
  uint64_t bytes = (uint64_t)dataset->source_count * sizeof(kind);
  kind *kinds = hri_alloc(bytes + 1);
  bool whole = kinds && read_at(fd, &found, sizeof found, sizeof(header)) &&
               read_at(fd, kinds, bytes, sizeof(header) + sizeof found) && is_todays(kinds, dataset->source_count);
  if (whole) {
    dataset->found = found;
    take_kinds(dataset, kinds);
  }
  hri_free(kinds);
  return whole;
}

hr_status hri_cache_load(hri_dataset *dataset, const char *store, hr_error *error) {
  char path[PATH_BYTES];
  hr_status status = HR_OK;
  header h;
  int fd;
  HRI_TRY(path_of(store, dataset->key, "tokens", path, error));
  fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* what is no file of ours is made anew */
  if (fd < 0) return HR_OK;
  if (is_sound(dataset, fd, dataset->key, &h) && take_found(dataset, fd)) {
    status = adopt(dataset, store, fd, &h, error);
    dataset->kept = dataset->from_cache = status == HR_OK;
  }
  close(fd);
  return status;
}

/* ---- saving ---- */

typedef struct writer {
  int fd;
  const char *path;
  hri_digest digest;
  uint64_t at;
} writer;

static hr_status put(writer *w, const void *bytes, uint64_t count, hr_error *error) {
  hri_digest_add(&w->digest, bytes, count);
  w->at += count;
  return hri_file_write_all(w->fd, w->path, bytes, count, error);
}

static hr_status put_spool(writer *w, const hri_spool *spool, hr_error *error) {
  uint64_t size = hri_spool_size(spool);
  hr_status status = HR_OK;
  char *block = hri_alloc(BLOCK_BYTES);
  if (!block) return hri_fail_memory(error, BLOCK_BYTES, "the cache of tokenized data");
  for (uint64_t at = 0, part; status == HR_OK && at < size; at += part) {
    part = size - at < BLOCK_BYTES ? size - at : BLOCK_BYTES;
    status = hri_spool_read(spool, at, block, part, error);
    if (status == HR_OK) status = put(w, block, part, error);
  }
  hri_free(block);
  return status;
}

static hr_status put_entry(const hri_dataset *dataset, writer *w, const header *h, hr_error *error) {
  uint64_t digest;
  HRI_TRY(put(w, h, sizeof *h, error));
  HRI_TRY(put(w, &dataset->found, sizeof dataset->found, error));
  for (uint32_t i = 0; i < dataset->source_count; i++) {
    const hri_data_source *source = &dataset->sources[i];
    kind k = {.format = source->format,
              .container = source->container,
              .width = source->width,
              .reading = readings[source->format],
              .base = source->base,
              .documents = source->documents};
    HRI_TRY(put(w, &k, sizeof k, error));
  }
  HRI_TRY(put_spool(w, &dataset->tokens, error));
  HRI_TRY(put_spool(w, &dataset->labels, error));
  HRI_TRY(put_spool(w, &dataset->documents, error));
  digest = hri_digest_value(&w->digest);
  HRI_TRY(put(w, &digest, sizeof digest, error));
  return fsync(w->fd) == 0 ? HR_OK : hri_fail_errno(error, errno, "write", w->path);
}

/* Whatever failed, the file goes with its scratch directory. */
static hr_status write_entry(hri_dataset *dataset, const header *h, const char *store, hri_scratch *scratch,
                             hr_error *error) {
  char fresh[PATH_BYTES], path[PATH_BYTES];
  writer w = {.path = fresh};
  hr_status status;
  HRI_TRY(path_of(store, dataset->key, "tokens", path, error));
  HRI_TRY(hri_scratch_path(scratch, "tokens", fresh, error));
  w.fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (w.fd < 0) return hri_fail_errno(error, errno, "create", fresh);
  status = put_entry(dataset, &w, h, error);
  if (status == HR_OK && rename(fresh, path) != 0) status = hri_fail_errno(error, errno, "rename to", path);
  if (status == HR_OK) status = hri_dir_sync(store, error);
  if (status == HR_OK) status = adopt(dataset, store, w.fd, h, error);
  close(w.fd);
  return status;
}

hr_status hri_cache_save(hri_dataset *dataset, const char *store, hr_error *error) {
  header h = {.version = VERSION,
              .key = dataset->key,
              .found_bytes = sizeof dataset->found,
              .kind_bytes = sizeof(kind),
              .source_count = dataset->source_count,
              .token_bytes = hri_spool_size(&dataset->tokens),
              .label_bytes = hri_spool_size(&dataset->labels),
              .document_bytes = hri_spool_size(&dataset->documents)};
  hri_scratch *scratch;
  hr_status status;
  memcpy(h.magic, magic, sizeof magic);
  HRI_TRY(hri_dir_make(store, error));
  HRI_TRY(hri_scratch_open(store, h.token_bytes + h.label_bytes + h.document_bytes > LARGE_BYTES, &scratch, error));
  status = write_entry(dataset, &h, store, scratch, error);
  hri_scratch_close(scratch);
  dataset->kept = status == HR_OK;
  return status;
}

void hri_dataset_forget(const hri_dataset *dataset, const char *store) {
  char path[PATH_BYTES];
  if (!dataset || dataset->from_cache || dataset->of) return;
  if (path_of(store, dataset->key, "tokens", path, NULL) == HR_OK) (void)unlink(path);
}
