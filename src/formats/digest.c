/* Whole granules of a piece are hashed without a lock and added to the sums with one atomic addition each. What a piece
 * has of the granules at its two ends waits, copied, in a small table until the neighbouring pieces brought the rest.
 *
 * That every byte was given once is known from three things: the count of bytes; a bit for each byte of a waiting
 * granule; and the sum over positions of the complete ones, which a granule that came twice in another's place would
 * spoil. */
#include "formats/digest.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/digest_sum.h"

enum { GRANULE = HRI_DIGEST_GRANULE, MARKS = GRANULE / 64, READ_BYTES = 1 << 18 };

/* A granule of which bytes are missing. */
typedef struct part {
  uint32_t have;
  uint64_t marks[MARKS]; /* a bit for each byte that is there */
  unsigned char bytes[GRANULE];
} part;

struct hri_file_digest {
  _Atomic uint64_t hash, places, bytes;
  pthread_mutex_t lock;      /* of what follows */
  HRI_ARRAY(part *) parts;   /* the first index.count are in use, the others are room */
  HRI_ARRAY(uint64_t) index; /* of the granules in use; apart, so that looking for one touches little */
};

typedef unsigned long long ull; /* for printing */

/* ---- sums ---- */

static hri_digest_sums sum(const unsigned char *bytes, uint64_t first, uint64_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return hri_digest_sum_avx512(bytes, first, count);
  if (__builtin_cpu_supports("avx2")) return hri_digest_sum_avx2(bytes, first, count);
#endif
  return hri_digest_sum_here(bytes, first, count);
}

static void add_sums(hri_file_digest *digest, hri_digest_sums sums) {
  (void)atomic_fetch_add_explicit(&digest->hash, sums.hash, memory_order_relaxed);
  (void)atomic_fetch_add_explicit(&digest->places, sums.places, memory_order_relaxed);
}

/* ---- waiting granules ---- */

/* Sets the bits from `begin` to `end`; false when one was set. */
static bool mark(uint64_t marks[MARKS], uint32_t begin, uint32_t end) {
  bool fresh = true;
  while (begin < end) {
    uint32_t word = begin / 64, low = begin % 64, high = end - word * 64 < 64 ? end - word * 64 : 64;
    uint64_t bits = (high - low == 64 ? ~(uint64_t)0 : (((uint64_t)1 << (high - low)) - 1)) << low;
    fresh = fresh && !(marks[word] & bits);
    marks[word] |= bits;
    begin = word * 64 + high;
  }
  return fresh;
}

static size_t find_part(const hri_file_digest *digest, uint64_t index) {
  size_t k = 0;
  while (k < digest->index.count && digest->index.items[k] != index) k++;
  return k;
}

/* Room for `count` granules at a time. */
static bool make_room(hri_file_digest *digest, size_t count) {
  if (!hri_array_reserve(&digest->index, count) || !hri_array_reserve(&digest->parts, count)) return false;
  while (digest->parts.count < count) {
    part *fresh = hri_alloc(sizeof *fresh);
    if (!fresh) return false;
    digest->parts.items[digest->parts.count++] = fresh;
  }
  return true;
}

/* Its room goes to the next one. */
static void remove_part(hri_file_digest *digest, size_t at) {
  size_t last = --digest->index.count;
  part *freed = digest->parts.items[at];
  digest->parts.items[at] = digest->parts.items[last];
  digest->parts.items[last] = freed;
  digest->index.items[at] = digest->index.items[last];
}

static hr_status add_locked(hri_file_digest *digest, uint64_t offset, const unsigned char *bytes, uint32_t count,
                            hr_error *error) {
  uint64_t index = offset / GRANULE;
  uint32_t begin = (uint32_t)(offset % GRANULE);
  size_t at = find_part(digest, index);
  part *p;
  if (at == digest->index.count) {
    if (!make_room(digest, at + 1)) return hri_fail_memory(error, sizeof *p, "a digest");
    digest->index.items[digest->index.count++] = index;
    digest->parts.items[at]->have = 0;
    memset(digest->parts.items[at]->marks, 0, sizeof p->marks);
  }
  p = digest->parts.items[at];
  if (!mark(p->marks, begin, begin + count))
    return hri_fail(error, HR_ERROR_INTERNAL, "some of the bytes %llu+%u were given to a digest twice", (ull)offset,
                    count);
  memcpy(p->bytes + begin, bytes, count);
  p->have += count;
  if (p->have < GRANULE) return HR_OK;
  add_sums(digest, sum(p->bytes, index, 1));
  remove_part(digest, at);
  return HR_OK;
}

/* Some bytes of one granule. */
static hr_status add_part(hri_file_digest *digest, uint64_t offset, const unsigned char *bytes, uint32_t count,
                          hr_error *error) {
  hr_status status;
  (void)pthread_mutex_lock(&digest->lock);
  status = add_locked(digest, offset, bytes, count, error);
  (void)pthread_mutex_unlock(&digest->lock);
  return status;
}

/* ---- interface ---- */

hr_status hri_file_digest_create(uint32_t parts, hri_file_digest **created, hr_error *error) {
  hri_file_digest *digest = hri_alloc_zero(1, sizeof *digest);
  if (!digest) return hri_fail_memory(error, sizeof *digest, "a digest");
  (void)pthread_mutex_init(&digest->lock, NULL); /* glibc's never fails */
  if (!make_room(digest, parts)) {
    hri_file_digest_destroy(digest);
    return hri_fail_memory(error, parts * sizeof(part), "a digest");
  }
  *created = digest;
  return HR_OK;
}

void hri_file_digest_destroy(hri_file_digest *digest) {
  if (!digest) return;
  for (size_t k = 0; k < digest->parts.count; k++) hri_free(digest->parts.items[k]);
  hri_array_free(&digest->parts);
  hri_array_free(&digest->index);
  (void)pthread_mutex_destroy(&digest->lock);
  hri_free(digest);
}

hr_status hri_file_digest_add(hri_file_digest *digest, uint64_t offset, const void *bytes, uint64_t count,
                              hr_error *error) {
  const unsigned char *next = bytes;
  uint32_t begin = (uint32_t)(offset % GRANULE);
  (void)atomic_fetch_add_explicit(&digest->bytes, count, memory_order_relaxed);
  if (begin && count > 0) {
    uint32_t some = count < GRANULE - begin ? (uint32_t)count : GRANULE - begin;
    HRI_TRY(add_part(digest, offset, next, some, error));
    next += some;
    offset += some;
    count -= some;
  }
  if (count >= GRANULE) add_sums(digest, sum(next, offset / GRANULE, count / GRANULE));
  next += count / GRANULE * GRANULE;
  offset += count / GRANULE * GRANULE;
  return count % GRANULE ? add_part(digest, offset, next, (uint32_t)(count % GRANULE), error) : HR_OK;
}

hr_status hri_file_digest_add_file(hri_file_digest *digest, int fd, const char *path, uint64_t bytes, hr_error *error) {
  unsigned char *buffer = hri_alloc(READ_BYTES);
  hr_status status = HR_OK;
  if (!buffer) return hri_fail_memory(error, READ_BYTES, path);
  for (uint64_t at = 0; at < bytes && status == HR_OK; at += READ_BYTES) {
    uint64_t count = bytes - at < READ_BYTES ? bytes - at : READ_BYTES;
    status = hri_file_pread(fd, path, buffer, count, at, error);
    if (status == HR_OK) status = hri_file_digest_add(digest, at, buffer, count, error);
  }
  hri_free(buffer);
  return status;
}

uint64_t hri_file_digest_bytes(const hri_file_digest *digest) { return digest->bytes; }

/* Whether only the file's last granule is waiting, with all its bytes and no other. */
static bool is_tail(const hri_file_digest *digest, uint64_t bytes) {
  uint64_t marks[MARKS] = {0};
  if (bytes % GRANULE == 0) return digest->index.count == 0;
  (void)mark(marks, 0, (uint32_t)(bytes % GRANULE));
  return digest->index.count == 1 && digest->index.items[0] == bytes / GRANULE &&
         memcmp(digest->parts.items[0]->marks, marks, sizeof marks) == 0;
}

hr_status hri_file_digest_value(hri_file_digest *digest, uint64_t bytes, uint64_t *value, hr_error *error) {
  uint64_t hash = digest->hash, places = 0, whole = bytes / GRANULE;
  if (digest->bytes != bytes)
    return hri_fail(error, HR_ERROR_INTERNAL, "a digest of %llu bytes was given %llu", (ull)bytes, (ull)digest->bytes);
  for (uint64_t k = 0; k < whole; k++) places += hri_digest_place(k);
  if (places != digest->places || !is_tail(digest, bytes))
    return hri_fail(error, HR_ERROR_INTERNAL,
                    "a digest of %llu bytes was given some of them twice and others not at all", (ull)bytes);
  if (bytes % GRANULE) hash += hri_digest_mix(XXH3_64bits(digest->parts.items[0]->bytes, bytes % GRANULE), whole);
  *value = hri_digest_mix(hash, bytes);
  return HR_OK;
}

/* ---- in one pass ---- */

uint64_t hri_file_digest_of(const void *bytes, uint64_t count) {
  uint64_t whole = count / GRANULE, hash = sum(bytes, 0, whole).hash;
  if (count % GRANULE)
    hash += hri_digest_mix(XXH3_64bits((const unsigned char *)bytes + whole * GRANULE, count % GRANULE), whole);
  return hri_digest_mix(hash, count);
}

hr_status hri_file_digest_read(const char *path, uint64_t *bytes, uint64_t *value, hr_error *error) {
  hri_file_digest *digest = NULL;
  hr_status status;
  int fd;
  HRI_TRY(hri_file_open_regular(path, &fd, bytes, error));
  status = hri_file_digest_create(1, &digest, error);
  if (status == HR_OK) status = hri_file_digest_add_file(digest, fd, path, *bytes, error);
  if (status == HR_OK) status = hri_file_digest_value(digest, *bytes, value, error);
  hri_file_digest_destroy(digest);
  close(fd);
  return status;
}

/* ---- text ---- */

void hri_file_digest_text(uint64_t value, char text[HRI_DIGEST_TEXT_BYTES]) {
  (void)snprintf(text, HRI_DIGEST_TEXT_BYTES, "xxh3:%016llx", (ull)value);
}

bool hri_file_digest_parse(const char *text, uint64_t *value) {
  static const char digits[] = "0123456789abcdef";
  uint64_t read = 0;
  if (strncmp(text, "xxh3:", 5) != 0 || strlen(text) != HRI_DIGEST_TEXT_BYTES - 1) return false;
  for (text += 5; *text; text++) {
    const char *digit = strchr(digits, *text);
    if (!digit) return false;
    read = read << 4 | (uint64_t)(digit - digits);
  }
  *value = read;
  return true;
}

/* ---- lists ---- */

hr_status hri_file_list_add(hri_file_list *list, const char *path, uint64_t bytes, uint64_t digest, hr_error *error) {
  hri_file_record record = {.bytes = bytes, .digest = digest};
  const char *slash = strrchr(path, '/');
  if (!list) return HR_OK;
  (void)snprintf(record.name, sizeof record.name, "%s", slash ? slash + 1 : path); /* no file system has longer names */
  return hri_array_push(list, record) ? HR_OK
                                      : hri_fail_memory(error, (list->count + 1) * sizeof record, "a list of files");
}

hr_status hri_file_list_read(hri_file_list *list, const char *path, hr_error *error) {
  uint64_t bytes, digest;
  if (!list) return HR_OK;
  HRI_TRY(hri_file_digest_read(path, &bytes, &digest, error));
  return hri_file_list_add(list, path, bytes, digest, error);
}

const hri_file_record *hri_file_list_find(const hri_file_list *list, const char *name) {
  for (size_t k = 0; k < list->count; k++)
    if (strcmp(list->items[k].name, name) == 0) return &list->items[k];
  return NULL;
}
