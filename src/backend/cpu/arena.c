/* Huge pages make the first touch about four times as fast and spare address translation, but the kernel places them
 * only at multiples of 2 MiB. Reserving more and trimming would need address space beyond the plan, if only for a
 * moment, and fail under a limit that fits the plan. So: map exactly, look where it landed, and when that is not a
 * multiple of 2 MiB, give it back and ask for the same size at the multiple below, where the room was just proven
 * (mappings grow down, so what lies below is free as a rule). If somebody else took it meanwhile, any address does. */
#include "backend/cpu/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "device/host.h"

#if !defined(MAP_FIXED_NOREPLACE)
#define MAP_FIXED_NOREPLACE 0 /* older headers: the address is a hint */
#endif

static const uint64_t huge_page = UINT64_C(2) << 20;

static void *map(void *address, uint64_t bytes, int flags) {
  void *got = mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return got == MAP_FAILED ? NULL : got;
}

static void *map_aligned(uint64_t bytes) {
  unsigned char *base = map(NULL, bytes, 0), *wanted, *got;
  uint64_t beyond = base ? (uint64_t)(uintptr_t)base % huge_page : 0;
  if (!base || beyond == 0) return base;
  wanted = base - beyond;
  (void)munmap(base, bytes);
  got = map(wanted, bytes, MAP_FIXED_NOREPLACE);
  return got ? got : map(NULL, bytes, 0);
}

uint64_t hri_arena_granule(void) {
  enum { LEAST = 4096 };
  long page = sysconf(_SC_PAGESIZE);
  return page > LEAST ? (uint64_t)page : LEAST;
}

/* Writes a word into every page of huge pages [begin, end): a thread takes whole ones. */
static void touch(void *context, int64_t begin, int64_t end, int thread) {
  const hri_arena *arena = context;
  uint64_t at = (uint64_t)begin * huge_page, stop = (uint64_t)end * huge_page, page = hri_arena_granule();
  (void)thread;
  for (; at < stop && at < arena->bytes; at += page) *(volatile unsigned char *)(arena->base + at) = 0;
}

static hr_status refused(uint64_t bytes, hr_error *error) {
  hri_host_memory host = hri_host_memory_now();
  char wanted[32], usable[32];
  hr_status status = hri_fail(error, HR_ERROR_MEMORY, "the host refused an arena of %s; it could give about %s",
                              hri_size_text(bytes, wanted),
                              host.usable_bytes == HRI_HOST_UNLIMITED ? "an unknown amount"
                                                                      : hri_size_text(host.usable_bytes, usable));
  if (error) {
    error->requested_bytes = bytes;
    error->available_bytes = host.usable_bytes == HRI_HOST_UNLIMITED ? 0 : host.usable_bytes;
  }
  return hri_hint(error, status,
                  "close other programs, raise the process's memory limit, or plan with a smaller budget");
}

uint64_t hri_arena_round(uint64_t bytes) {
  uint64_t granule = hri_arena_granule();
  return bytes > UINT64_MAX - granule ? UINT64_MAX : hri_round_up(bytes, granule);
}

hr_status hri_arena_reserve(hri_arena *arena, uint64_t bytes, hri_team *team, const hri_arena_options *options,
                            hr_error *error) {
  bool huge = !(options && options->small_pages), untouched = options && options->untouched;
  uint64_t rounded = hri_arena_round(bytes);
  *arena = (hri_arena){0};
  if (rounded == 0) return HR_OK;
  if (rounded > SIZE_MAX / 2) return refused(bytes, error);
  huge = huge && rounded >= huge_page;
  arena->base = huge ? map_aligned(rounded) : map(NULL, rounded, 0);
  if (!arena->base) return refused(rounded, error);
  arena->bytes = rounded;
  if (huge) (void)madvise(arena->base, rounded, MADV_HUGEPAGE); /* a kernel without them refuses, which is fine */
  if (!untouched) hri_team_each(team, (int64_t)((rounded + huge_page - 1) / huge_page), 1, touch, arena);
  return HR_OK;
}

void hri_arena_release(hri_arena *arena) {
  if (arena->base) (void)munmap(arena->base, arena->bytes);
  *arena = (hri_arena){0};
}
