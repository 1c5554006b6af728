/* The mapped file of a history. What it promises to a reader after a kill is in snapshot/history_format.h.
 *
 * It is made beside its place and takes its name when it can be read. It grows at its end, by whole pages, and its space
 * is reserved before it is mapped: a full disk is an error at that moment, and not a signal when a page is written. Parts
 * that were outgrown stay as holes in use; each is at most half of the next. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc/history.h"
#include "base/file.h"
#include "base/publish.h"

enum { LEAST_PAGE = 4096, FIRST_CHUNK = 64 << 10, PATH_BYTES = 4096 };

static void put64(uint64_t *to, uint64_t value) { __atomic_store_n(to, value, __ATOMIC_RELEASE); }

/* What can be mapped begins at a multiple of the kernel's page, which is up to 64 KiB on Arm. */
static uint64_t page_bytes(void) {
  long page = sysconf(_SC_PAGESIZE);
  return page > LEAST_PAGE ? (uint64_t)page : LEAST_PAGE;
}

/* `bytes` more at the end of the file, mapped. */
static hr_status extend(hri_history_file *f, uint64_t bytes, hri_history_map *map, uint64_t *offset, hr_error *error) {
  void *memory;
  bytes = hri_round_up(bytes, page_bytes());
  HRI_TRY(hri_file_reserve(f->fd, f->path, f->bytes + bytes, error));
  memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, (off_t)f->bytes);
  if (memory == MAP_FAILED) return hri_fail_errno(error, errno, "map", f->path);
  *map = (hri_history_map){memory, bytes};
  *offset = f->bytes;
  f->bytes += bytes;
  return HR_OK;
}

static void drop(hri_history_map *map) {
  if (map->memory) (void)munmap(map->memory, (size_t)map->bytes);
  *map = (hri_history_map){0};
}

/* Opens the file in a scratch directory beside `path`: until it can be read, what stands there stays. */
static hr_status open_beside(hri_history_file *f, hr_error *error) {
  char parent[PATH_BYTES], made[PATH_BYTES];
  hr_status status;
  bool special;
  HRI_TRY(hri_file_name_check(f->path, &special, error));
  if (special)
    return hri_hint(error,
                    hri_fail(error, HR_ERROR_USAGE, "%s: a history needs a file, not a device or a pipe", f->path),
                    "name a file");
  hri_path_parent(f->path, parent);
  (void)hri_scratch_sweep(parent);
  status = hri_scratch_open(parent, false, &f->scratch, error);
  if (status == HR_ERROR_IO) return hri_context(error, status, "cannot write %.300s: ", f->path);
  HRI_TRY(status);
  HRI_TRY(hri_scratch_path(f->scratch, "history", made, error));
  f->made = hri_strdup(made);
  if (!f->made) return hri_fail_memory(error, strlen(made) + 1, "a history");
  f->fd = open(made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  return f->fd < 0 ? hri_fail_errno(error, errno, "write", f->path) : HR_OK;
}

hr_status hri_history_file_make(const char *path, uint64_t capacity, uint64_t limit, hri_history_file **file,
                                hr_error *error) {
  hri_history_file *f = hri_alloc_zero(1, sizeof *f);
  hri_history_map map = {0};
  uint64_t offset, ring;
  hr_status status = HR_OK;
  if (!f) return hri_fail_memory(error, sizeof *f, "a history");
  f->fd = -1;
  f->path = hri_strdup(path);
  if (!f->path) HRI_TRY_OUT(hri_fail_memory(error, strlen(path), "a history"));
  if (!hri_mul(capacity, sizeof(hri_history_event), &ring) || ring > INT64_MAX / 2)
    HRI_TRY_OUT(hri_fail(error, HR_ERROR_USAGE, "%s: a history of %llu events is too long for a file", path,
                         (unsigned long long)capacity));
  HRI_TRY_OUT(open_beside(f, error));
  HRI_TRY_OUT(extend(f, HRI_HISTORY_HEADER_BYTES + ring, &map, &offset, error));
  f->header = map.memory;
  f->header_bytes = map.bytes;
  f->header->version = HRI_HISTORY_VERSION;
  f->header->order = HRI_HISTORY_ORDER;
  f->header->header_bytes = HRI_HISTORY_HEADER_BYTES;
  f->header->event_bytes = sizeof(hri_history_event);
  f->header->event_limit = limit;
  f->header->ring_offset = HRI_HISTORY_HEADER_BYTES;
  f->header->ring_capacity = capacity;
out:
  if (status != HR_OK) hri_history_file_close(f);
  else *file = f;
  return status;
}

/* Who reads an older history of this name keeps it whole. */
hr_status hri_history_file_begin(hri_history_file *f, hr_error *error) {
  uint64_t magic;
  hr_status status;
  memcpy(&magic, HRI_HISTORY_MAGIC, sizeof magic);
  put64((uint64_t *)(void *)f->header->magic, magic);
  status = hri_publish_over(f->made, f->path, error);
  hri_scratch_close(f->scratch);
  f->scratch = NULL;
  return status;
}

void hri_history_file_close(hri_history_file *f) {
  hri_history_map map;
  if (!f) return;
  map = (hri_history_map){f->header, f->header_bytes};
  drop(&map);
  for (int k = 0; k < HRI_HISTORY_CHUNK_LIMIT; k++) drop(&f->chunks[k]);
  for (int k = 0; k < 2; k++) drop(&f->states[k]);
  if (f->fd >= 0) (void)close(f->fd);
  hri_scratch_close(f->scratch); /* with what never took its name */
  hri_free(f->made);
  hri_free(f->path);
  hri_free(f);
}

hri_history_event *hri_history_file_ring(hri_history_file *f) {
  return (hri_history_event *)(void *)((char *)f->header + HRI_HISTORY_HEADER_BYTES);
}

/* Each chunk is twice the one before, so 48 of them never run out. */
static hr_status add_chunk(hri_history_file *f, uint64_t least, hr_error *error) {
  const uint64_t place = f->header->chunk_count, twice = place ? f->chunks[place - 1].bytes * 2 : FIRST_CHUNK;
  uint64_t offset;
  if (place == HRI_HISTORY_CHUNK_LIMIT)
    return hri_fail(error, HR_ERROR_IO, "%s: too many labels for a history", f->path);
  HRI_TRY(extend(f, twice > least ? twice : least, &f->chunks[place], &offset, error));
  f->header->chunks[place].extent = (hri_history_extent){offset, f->chunks[place].bytes};
  f->header->chunks[place].used = 0;
  put64(&f->header->chunk_count, place + 1);
  return HR_OK;
}

hr_status hri_history_file_note(hri_history_file *f, const hri_history_note *note, hr_error *error) {
  uint64_t last = f->header->chunk_count - 1;
  if (!f->header->chunk_count || note->bytes > f->chunks[last].bytes - f->header->chunks[last].used) {
    HRI_TRY(add_chunk(f, note->bytes, error));
    last = f->header->chunk_count - 1;
  }
  memcpy((char *)f->chunks[last].memory + f->header->chunks[last].used, note, note->bytes);
  put64(&f->header->chunks[last].used, f->header->chunks[last].used + note->bytes);
  return HR_OK;
}

/* 1 when states[0] holds, or none */
static unsigned idle_state(const hri_history_file *f) { return f->header->state ? !(f->header->state & 1) : 0; }

hr_status hri_history_file_state(hri_history_file *f, uint64_t segments, uint64_t blocks, hri_history_state **state,
                                 hr_error *error) {
  const unsigned idle = idle_state(f);
  const uint64_t bytes = sizeof **state + segments * sizeof(hri_history_segment) + blocks * sizeof(hri_history_block);
  hri_history_map *map = &f->states[idle];
  uint64_t offset;
  if (map->bytes < bytes) {
    hri_history_map wider;
    HRI_TRY(extend(f, bytes + bytes / 2, &wider, &offset, error));
    drop(map);
    *map = wider;
    f->header->states[idle] = (hri_history_extent){offset, wider.bytes};
  }
  *state = map->memory;
  **state = (hri_history_state){segments, blocks};
  return HR_OK;
}

void hri_history_file_publish(hri_history_file *f, uint64_t count) {
  put64(&f->header->state, (count + 1) << 1 | idle_state(f));
}
