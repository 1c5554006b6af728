#include "snapshot/trail.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"

_Static_assert(sizeof(hri_trail_page) <= HRI_TRAIL_BYTES, "one page");

static const char magic[8] = "HRTRAIL1";

/* ---- when the file is cut ---- */

/* A store into a page whose file was cut ends the process by SIGBUS. The trail is not worth a run: memory takes the place
 * of the page, and what is stored from then on is lost. Only where the program that we are part of handles no SIGBUS
 * itself; one page at a time is guarded. A signal that somebody sent has no address, and does what it would have done. */
static _Atomic(char *) guarded;

static void on_bus_error(int number, siginfo_t *info, void *context) {
  char *page = atomic_load(&guarded), *at = info->si_addr;
  (void)context;
  if (info->si_code <= 0) {
    (void)signal(number, SIG_DFL);
    (void)raise(number);
    return;
  }
  if (page && at >= page && at < page + HRI_TRAIL_BYTES &&
      mmap(page, HRI_TRAIL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
    return;
  (void)signal(number, SIG_DFL); /* the access is made again, and ends the process as it would have */
}

static void guard(char *page) {
  struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO}, old;
  (void)sigemptyset(&action.sa_mask);
  if (sigaction(SIGBUS, NULL, &old) != 0 || (old.sa_flags & SA_SIGINFO) || old.sa_handler != SIG_DFL) return;
  atomic_store(&guarded, page);
  (void)sigaction(SIGBUS, &action, NULL);
}

static void release(char *page) {
  struct sigaction old;
  if (!atomic_compare_exchange_strong(&guarded, &page, NULL)) return;
  if (sigaction(SIGBUS, NULL, &old) == 0 && (old.sa_flags & SA_SIGINFO) && old.sa_sigaction == on_bus_error)
    (void)signal(SIGBUS, SIG_DFL);
}

/* ---- the file ---- */

/* The space is taken at once: a store into a hole of a full file system would end in SIGBUS. So would one of an earlier
 * run that still maps the file if that were cut: it keeps its own. */
hr_status hri_trail_open(const char *path, hri_trail_page **page, hr_error *error) {
  hr_status status;
  void *memory;
  int fd, number;
  static const char zeros[HRI_TRAIL_BYTES];
  if (unlink(path) != 0 && errno != ENOENT) return hri_fail_errno(error, errno, "replace", path);
  fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return hri_fail_errno(error, errno, "create", path);
  status = hri_file_write_all(fd, path, zeros, sizeof zeros, error);
  if (status != HR_OK) {
    close(fd);
    return status;
  }
  memory = mmap(NULL, HRI_TRAIL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  number = errno;
  close(fd);
  if (memory == MAP_FAILED) return hri_fail_errno(error, number, "map", path);
  *page = memory;
  guard(memory);
  memcpy((*page)->magic, magic, sizeof magic);
  (*page)->pid = (uint32_t)getpid();
  (*page)->layer = -1;
  return HR_OK;
}

void hri_trail_close(hri_trail_page *page) {
  if (!page) return;
  release((char *)page);
  munmap(page, HRI_TRAIL_BYTES);
}

hr_status hri_trail_read(const char *path, hri_trail_page *page, hr_error *error) {
  char *bytes;
  uint64_t count;
  HRI_TRY(hri_file_read(path, HRI_TRAIL_BYTES, &bytes, &count, error));
  if (count != HRI_TRAIL_BYTES || memcmp(bytes, magic, sizeof magic) != 0) {
    hri_free(bytes);
    return hri_fail(error, HR_ERROR_INPUT, "%s: is no trail of a run (%llu bytes, wanted %d that begin with HRTRAIL1)",
                    path, (unsigned long long)count, HRI_TRAIL_BYTES);
  }
  memcpy(page, bytes, sizeof *page);
  hri_free(bytes);
  page->program[HRI_TRAIL_WORD - 1] = page->phase[HRI_TRAIL_WORD - 1] = page->op[HRI_TRAIL_OP - 1] =
      page->message[HRI_TRAIL_MESSAGE - 1] = 0;
  if (page->state < HRI_TRAIL_STATE_COUNT) return HR_OK;
  return hri_fail(error, HR_ERROR_INPUT, "%s: field 'state' is %u, wanted 0 to %d", path, page->state,
                  HRI_TRAIL_STATE_COUNT - 1);
}
