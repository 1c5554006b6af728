/* The cache of tokenized data: one file per key, which depends on the bytes of the data files, on tokenizer and template, and on
 * every option that decides tokens. A file holds the stores and lists as they lie in memory, so it belongs to one kind of machine
 * and one version; whatever does not fit or whose digest is wrong is made anew. Layout:
 *
 *   header | hri_data_found | kind of each file | token store | label store | documents | digest of all before (8 bytes) */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "data/source.h"

enum { VERSION = 1, BLOCK_BYTES = 64 * 1024, PATH_BYTES = 4096 };

typedef struct header {
  char magic[8];
  uint64_t version, key;
  uint64_t found_bytes, kind_bytes; /* sizes of the structs */
  uint64_t source_count, token_bytes, label_bytes, document_bytes;
} header;

/* What reading decided about a file. */
typedef struct kind {
  uint32_t format, container, width;
  uint32_t zero;
  uint64_t base, documents;
} kind;

static const char magic[8] = {'H', 'R', 'T', 'O', 'K', 'E', 'N', 'S'};

/* ---- the key ---- */

static hr_status digest_file(hri_dataset *dataset, hri_source *source, hr_error *error) {
  hri_reader reader;
  hr_status status = hri_reader_open(&reader, source->path, &dataset->digest, error);
  source->stamp = reader.stamp;
  while (status == HR_OK && !reader.at_end) {
    reader.next = reader.end;
    status = hri_reader_fill(&reader, error);
  }
  if (status == HR_OK) status = hri_reader_finish(&reader, error);
  hri_digest_add_u64(&dataset->digest, reader.offset);
  hri_reader_close(&reader);
  return status;
}

/* Files are taken for what they are by the ends of their names, too. */
static void digest_ending(hri_digest *digest, const char *path) {
  const char *dot = strrchr(path, '.');
  for (; dot && *dot; dot++) hri_digest_add_u64(digest, (uint64_t)((unsigned char)*dot | 32));
  hri_digest_add_u64(digest, 0);
}

hr_status hri_cache_key(hri_dataset *dataset, uint64_t *key, hr_error *error) {
  const hri_dataset_options *o = dataset->options;
  const uint64_t values[] = {VERSION, o->format, o->loss, o->skip_bad, o->identity, o->vocabulary, (uint64_t)(int64_t)dataset->encoder->eos,
                             o->tokenizer != NULL, o->chat != NULL, o->chat_given, o->separator ? strlen(o->separator) : 0};
  hri_digest digest;
  for (uint32_t i = 0; i < dataset->source_count; i++) HRI_TRY(digest_file(dataset, &dataset->sources[i], error));
  digest = dataset->digest;
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) hri_digest_add_u64(&digest, values[i]);
  if (o->separator) hri_digest_add(&digest, o->separator, strlen(o->separator));
  hri_digest_add(&digest, hr_version(), strlen(hr_version())); /* another version may read the same bytes differently */
  for (uint32_t i = 0; i < dataset->source_count; i++) digest_ending(&digest, dataset->sources[i].path);
  *key = hri_digest_value(&digest);
  return HR_OK;
}

static bool path_of(const hri_dataset *dataset, uint64_t key, char path[PATH_BYTES]) {
  return snprintf(path, PATH_BYTES, "%s/%016llx.tokens", dataset->options->store_directory, (unsigned long long)key) < PATH_BYTES - 16;
}

/* ---- loading ---- */

/* An entry that is not sound is no error: it is made anew. */
static bool read_at(int fd, void *to, uint64_t bytes, uint64_t offset) { return hri_file_pread(fd, "", to, bytes, offset, NULL) == HR_OK; }

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
  if (memcmp(h->magic, magic, sizeof magic) != 0 || h->version != VERSION || h->key != key || h->found_bytes != sizeof(hri_data_found) ||
      h->kind_bytes != sizeof(kind) || h->source_count != dataset->source_count)
    return false;
  bytes = sizeof *h + h->found_bytes + h->source_count * sizeof(kind);
  if (!hri_add(bytes, h->token_bytes, &bytes) || !hri_add(bytes, h->label_bytes, &bytes) || !hri_add(bytes, h->document_bytes, &bytes)) return false;
  return bytes + sizeof(uint64_t) == (uint64_t)info.st_size && h->document_bytes % sizeof(hri_document) == 0 && digest_matches(fd, bytes);
}

/* The spools become parts of the file. */
static hr_status adopt(hri_dataset *dataset, int fd, const header *h, hr_error *error) {
  hri_spool *spools[] = {&dataset->tokens, &dataset->labels, &dataset->documents};
  const uint64_t sizes[] = {h->token_bytes, h->label_bytes, h->document_bytes};
  uint64_t at = sizeof *h + h->found_bytes + h->source_count * sizeof(kind);
  for (int i = 0; i < 3; i++) {
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return hri_fail_errno(error, errno, "open the cache in", dataset->options->store_directory);
    hri_spool_deinit(spools[i]);
    *spools[i] = hri_spool_borrow(dataset->directory, own, at, sizes[i]);
    at += sizes[i];
  }
  return HR_OK;
}

static bool take_found(hri_dataset *dataset, int fd) {
  uint64_t at = sizeof(header) + sizeof dataset->found;
  if (!read_at(fd, &dataset->found, sizeof dataset->found, sizeof(header))) return false;
  for (uint32_t i = 0; i < dataset->source_count; i++, at += sizeof(kind)) {
    hri_source *source = &dataset->sources[i];
    kind k;
    if (!read_at(fd, &k, sizeof k, at)) return false;
    source->format = (hr_data_format)k.format;
    source->container = (hri_container)k.container;
    source->width = k.width;
    source->base = k.base;
    source->documents = k.documents;
  }
  return true;
}

hr_status hri_cache_load(hri_dataset *dataset, uint64_t key, bool *hit, hr_error *error) {
  char path[PATH_BYTES];
  hr_status status = HR_OK;
  header h;
  int fd = path_of(dataset, key, path) ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1; /* what is no file of ours is made anew */
  *hit = false;
  if (fd < 0) return HR_OK;
  if (is_sound(dataset, fd, key, &h) && take_found(dataset, fd)) {
    status = adopt(dataset, fd, &h, error);
    *hit = status == HR_OK;
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
    const hri_source *source = &dataset->sources[i];
    kind k = {.format = source->format, .container = source->container, .width = source->width, .base = source->base, .documents = source->documents};
    HRI_TRY(put(w, &k, sizeof k, error));
  }
  HRI_TRY(put_spool(w, &dataset->tokens, error));
  HRI_TRY(put_spool(w, &dataset->labels, error));
  HRI_TRY(put_spool(w, &dataset->documents, error));
  digest = hri_digest_value(&w->digest);
  HRI_TRY(put(w, &digest, sizeof digest, error));
  return fsync(w->fd) == 0 ? HR_OK : hri_fail_errno(error, errno, "write", w->path);
}

static hr_status write_entry(hri_dataset *dataset, const header *h, const char *path, hr_error *error) {
  char fresh[PATH_BYTES];
  writer w = {.path = fresh};
  hr_status status;
  HRI_TRY(hri_dir_make(dataset->options->store_directory, error));
  (void)snprintf(fresh, sizeof fresh, "%.4080s.XXXXXX", path);
  w.fd = mkostemp(fresh, O_CLOEXEC);
  if (w.fd < 0) return hri_fail_errno(error, errno, "make a file in", dataset->options->store_directory);
  status = put_entry(dataset, &w, h, error);
  if (status == HR_OK && rename(fresh, path) != 0) status = hri_fail_errno(error, errno, "rename", fresh);
  if (status != HR_OK) unlink(fresh);
  if (status == HR_OK) status = hri_dir_sync(dataset->options->store_directory, error);
  if (status == HR_OK) status = adopt(dataset, w.fd, h, error);
  close(w.fd);
  return status;
}

hr_status hri_cache_save(hri_dataset *dataset, uint64_t key, hr_error *error) {
  header h = {.version = VERSION, .key = key, .found_bytes = sizeof dataset->found, .kind_bytes = sizeof(kind), .source_count = dataset->source_count,
              .token_bytes = hri_spool_size(&dataset->tokens), .label_bytes = hri_spool_size(&dataset->labels),
              .document_bytes = hri_spool_size(&dataset->documents)};
  char path[PATH_BYTES];
  memcpy(h.magic, magic, sizeof magic);
  if (!path_of(dataset, key, path)) return hri_fail(error, HR_ERROR_USAGE, "the path of the data cache, %.200s, is too long", dataset->options->store_directory);
  return write_entry(dataset, &h, path, error);
}
