/* Commands that read other people's files (reading.h): the limit of what that may take, --max-memory, and the words of a
 * refusal. */
#include "cli/reading.h"

#include <string.h>

#include <headroom/device.h>

void reading_about(reading *r, const char *file) {
  (void)snprintf(r->file, sizeof r->file, "%s", strcmp(file, "-") == 0 ? "standard input" : file);
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
