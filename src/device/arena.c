/* Reserving and touching.
 *
 * An untouched anonymous mapping is a promise that the kernel may break later by killing the process, so all pages are
 * made here: MADV_POPULATE_WRITE where the kernel has it (it fails instead of killing), else one write per page. Each
 * thread takes a contiguous share, which also spreads pages over memory nodes. Transparent huge pages are only advised:
 * the kernel uses them inside the mapping where 2 MiB fit; the mapping itself is not enlarged for their sake. */
#include "device/arena.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { SHARE = 2 << 20 }; /* shares of threads begin at multiples of a huge page */

/* Makes the pages of [from, to); false when the host refuses. */
static int populate(unsigned char *from, unsigned char *to) {
  if (from >= to) return 1;
  if (madvise(from, (size_t)(to - from), MADV_POPULATE_WRITE) == 0) return 1;
  if (errno == ENOMEM || errno == EFAULT) return 0;
  for (volatile unsigned char *page = from; page < to; page += HRI_GRANULE) *page = 0;
  return 1;
}

hr_status hri_arena_reserve(hri_arena *arena, uint64_t bytes, uint32_t threads, hr_error *error) {
  uint64_t whole = bytes > UINT64_MAX - HRI_GRANULE ? UINT64_MAX : (bytes + HRI_GRANULE - 1) / HRI_GRANULE * HRI_GRANULE, share;
  unsigned char *base;
  int complete = 1;
  arena->base = NULL;
  arena->bytes = 0;
  if (whole == 0) return HR_OK;
  base = whole > SIZE_MAX / 2 ? MAP_FAILED : mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base != MAP_FAILED) {
    (void)madvise(base, whole, MADV_HUGEPAGE);
    share = (whole / (threads ? threads : 1) + SHARE) / SHARE * SHARE;
#pragma omp parallel for num_threads((int)threads) schedule(static, 1) reduction(&& : complete)
    for (uint32_t t = 0; t < threads; t++) {
      uint64_t begin = t * share, end = begin + share < whole ? begin + share : whole;
      if (begin < whole) complete = complete && populate(base + begin, base + end);
    }
    if (!complete) munmap(base, whole);
  }
  if (base == MAP_FAILED || !complete) {
    hr_status status = hri_fail(error, HR_ERROR_MEMORY, "the host refused %llu bytes for an arena", (unsigned long long)whole);
    if (error) error->requested_bytes = whole;
    return hri_hint(error, status, "lower --budget to what this machine has, or free memory; `headroom devices cpu` says what is usable");
  }
  arena->base = base;
  arena->bytes = whole;
  return HR_OK;
}

void hri_arena_release(hri_arena *arena) {
  if (arena->base) munmap(arena->base, arena->bytes);
  arena->base = NULL;
  arena->bytes = 0;
}
