/* Room asked for before it is taken, of every limit that can be read and of the kernel itself. */
#include "backend/cpu/room.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/text.h"
#include "device/host.h"

static hr_status refused(uint64_t bytes, const char *what, const hri_host_memory *host, hr_error *error) {
  char need[32], left[32];
  hr_status status =
      hri_fail(error, HR_ERROR_BUDGET, "%s needs %s more and %s leaves %s", what, hri_size_text(bytes, need),
               hri_host_limit_name(host->limit), hri_size_text(host->usable_bytes, left));
  if (error) {
    error->requested_bytes = bytes;
    error->available_bytes = host->usable_bytes;
  }
  return hri_hint(error, status, "%s", hri_host_limit_remedy(host->limit));
}

hr_status hri_room_check(uint64_t bytes, const char *what, hr_error *error) {
  hri_host_memory host = hri_host_memory_now();
  return bytes <= host.usable_bytes ? HR_OK : refused(bytes, what, &host, error);
}

hr_status hri_room_prove(uint64_t bytes, const char *what, hr_error *error) {
  void *got = bytes ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : NULL;
  hri_host_memory host;
  char need[32];
  hr_status status;
  if (got != MAP_FAILED) {
    if (got) (void)munmap(got, bytes);
    return HR_OK;
  }
  host = hri_host_memory_now();
  if (bytes > host.usable_bytes) return refused(bytes, what, &host, error);
  status =
      hri_fail(error, HR_ERROR_BUDGET, "%s needs %s more and the kernel refuses it", what, hri_size_text(bytes, need));
  if (error) error->requested_bytes = bytes;
  return hri_hint(error, status, "look at /proc/sys/vm/overcommit_memory and at CommitLimit in /proc/meminfo");
}
