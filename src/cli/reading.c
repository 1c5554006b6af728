/* Commands that read other people's files (reading.h): the limit of what that may take, --max-memory, and the words of a
 * refusal. */
#include "cli/reading.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <headroom/device.h>

#include "base/mem.h"
#include "cli/text.h"

const char *reading_name(const char *file) { return strcmp(file, "-") == 0 ? "standard input" : file; }

void reading_about(reading *r, const char *file) {
  (void)snprintf(r->file, sizeof r->file, "%s", reading_name(file));
  if (strcmp(file, "-") == 0 || stat(file, &r->found) != 0 || !S_ISREG(r->found.st_mode)) r->found = (struct stat){0};
}

static bool is_as(const struct stat *was, const char *file) {
  struct stat now;
  return stat(file, &now) != 0 ||
         (now.st_ino == was->st_ino && now.st_size == was->st_size && now.st_mtim.tv_sec == was->st_mtim.tv_sec &&
          now.st_mtim.tv_nsec == was->st_mtim.tv_nsec);
}

/* Whether somebody writes the file, longer, shorter or as other bytes, since its reading began: a snapshot takes a while to be written,
 * under its own name. Of one that was written just now a little more is waited for. */
static bool is_being_written(const reading *r) {
  enum { JUST_NOW = 5, WAIT_NS = 250 * 1000 * 1000 };
  const struct timespec wait = {0, WAIT_NS};
  struct timespec now;
  if (!r->found.st_mode) return false;
  if (!is_as(&r->found, r->file)) return true;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0 || now.tv_sec - r->found.st_mtim.tv_sec > JUST_NOW) return false;
  (void)nanosleep(&wait, NULL);
  return !is_as(&r->found, r->file);
}

hr_status reading_stream(FILE *file, const char *first, size_t first_count, const char *path,
                         const hr_snapshot_limits *limits, hr_snapshot **snapshot, hr_error *error) {
  HRI_ARRAY(char) bytes = {0};
  const char *name = reading_name(path);
  hr_status status = HR_OK;
  size_t got = first_count;
  if (!hri_array_reserve(&bytes, 1 << 20)) status = hri_fail_memory(error, 1 << 20, name);
  else if (got > 0) memcpy(bytes.items, first, got);
  while (status == HR_OK) {
    bytes.count += got;
    if (!hri_array_reserve(&bytes, bytes.count + 1)) status = hri_fail_memory(error, bytes.count, name);
    else if ((got = fread(bytes.items + bytes.count, 1, bytes.capacity - bytes.count, file)) == 0) break;
  }
  if (status == HR_OK && ferror(file))
    status = hri_fail(error, HR_ERROR_IO, "cannot read %s: %s", name, strerror(errno));
  if (status == HR_OK) status = hr_snapshot_parse(bytes.items, bytes.count, name, limits, snapshot, error);
  hri_array_free(&bytes);
  return status;
}

hr_status reading_snapshot(const char *path, const hr_snapshot_limits *limits, hr_snapshot **snapshot,
                           hr_error *error) {
  struct stat info;
  FILE *file;
  hr_status status;
  if (strcmp(path, "-") != 0 && (stat(path, &info) != 0 || !S_ISFIFO(info.st_mode)))
    return hr_snapshot_read(path, limits, snapshot, error);
  file = text_open(path, "the snapshot", error);
  if (!file) return error->code;
  status = reading_stream(file, NULL, 0, path, limits, snapshot, error);
  text_close(file);
  return status;
}

void reading_begin(reading *r, const cli_config *config, const char *file) {
  uint64_t room, limit = config->own.max_memory_bytes;
  const char *whose = hr_host_limit_now(&room);
  *r = (reading){0};
  reading_about(r, file);
  if (limit == 0) { /* a share of what can be had now */
    const double share = config->own.max_memory_share;
    limit = share * (double)room < 0x1p63 ? (uint64_t)(share * (double)room) : INT64_MAX;
    if (!config_chosen(config, &config->own.max_memory_bytes))
      (void)snprintf(r->source, sizeof r->source, "half of what %s leaves", whose);
  }
  r->limits.memory_bytes = limit ? limit : 1; /* 0 would be the library's default */
  hri_account_begin(&r->account, r->limits.memory_bytes);
}

hr_status reading_end(reading *r, hr_status status, hr_error *error) {
  uint64_t room;
  const char *whose;
  status = hri_account_end(&r->account, status, r->file, error);
  if (status == HR_ERROR_INPUT && is_being_written(r))
    return hri_hint(error, status, "somebody wrote %.400s while it was read: read it again when it is whole", r->file);
  if (status != HR_ERROR_MEMORY) return status;
  if (r->account.refused_bytes == 0) { /* not our limit, the system's */
    whose = hr_host_limit_now(&room);
    return hri_hint(error, status, "%s leaves %s: raise it, or record fewer events (max_entries)", whose,
                    SIZE_TEXT(room));
  }
  if (r->source[0])
    (void)hri_hint(error, HR_ERROR_INPUT,
                   "it may take %s; --max-memory SIZE allows more, if you trust the file (fewer recorded events, "
                   "max_entries, need less)",
                   r->source);
  return error->code = HR_ERROR_INPUT;
}
