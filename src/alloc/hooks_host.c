/* Hooks that give host memory: anonymous maps, aligned to 2 MiB so that segments can have huge pages. Address space for
 * expandable segments is mapped without access; mapping a part grants it, unmapping takes access and pages away. */
#include "alloc/hooks.h"

#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 2 << 20 };

/* A map of `bytes` at a multiple of ALIGNMENT; 0 when refused. */
static uint64_t map_aligned(uint64_t bytes, int access, int flags) {
  uint64_t whole, start, aligned;
  void *memory;
  if (!bytes || !hri_add(bytes, ALIGNMENT, &whole) || whole > SIZE_MAX / 2) return 0;
  memory = mmap(NULL, (size_t)whole, access, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (memory == MAP_FAILED) return 0;
  start = (uint64_t)(uintptr_t)memory;
  aligned = hri_round_up(start, ALIGNMENT);
  bytes = hri_round_up(bytes, (uint64_t)sysconf(_SC_PAGESIZE));
  if (aligned > start) (void)munmap(memory, (size_t)(aligned - start));
  if (start + whole > aligned + bytes)
    (void)munmap((void *)(uintptr_t)(aligned + bytes), (size_t)(start + whole - aligned - bytes));
  return aligned;
}

static uint64_t reserve(void *context, uint64_t bytes, uint64_t stream) {
  (void)context, (void)stream;
  return map_aligned(bytes, PROT_READ | PROT_WRITE, 0);
}

static uint64_t reserve_range(void *context, uint64_t bytes, uint64_t stream) {
  (void)context, (void)stream;
  return map_aligned(bytes, PROT_NONE, MAP_NORESERVE);
}

static void release(void *context, uint64_t address, uint64_t bytes) {
  (void)context;
  (void)munmap((void *)(uintptr_t)address, (size_t)bytes);
}

static bool map(void *context, uint64_t address, uint64_t bytes) {
  (void)context;
  return mprotect((void *)(uintptr_t)address, (size_t)bytes, PROT_READ | PROT_WRITE) == 0;
}

static void unmap(void *context, uint64_t address, uint64_t bytes) {
  (void)context;
  (void)madvise((void *)(uintptr_t)address, (size_t)bytes, MADV_DONTNEED);
  (void)mprotect((void *)(uintptr_t)address, (size_t)bytes, PROT_NONE);
}

static void device_memory(void *context, uint64_t *free_bytes, uint64_t *total_bytes) {
  long page = sysconf(_SC_PAGESIZE), whole = sysconf(_SC_PHYS_PAGES), rest = sysconf(_SC_AVPHYS_PAGES);
  (void)context;
  *total_bytes = page > 0 && whole > 0 ? (uint64_t)page * (uint64_t)whole : 0;
  *free_bytes = page > 0 && rest > 0 ? (uint64_t)page * (uint64_t)rest : 0;
}

hr_status hr_alloc_host_hooks(hr_alloc_hooks *hooks, hr_error *error) {
  (void)error;
  *hooks = (hr_alloc_hooks){.reserve = reserve,
                            .release = release,
                            .reserve_range = reserve_range,
                            .release_range = release,
                            .map = map,
                            .unmap = unmap,
                            .device_memory = device_memory};
  return HR_OK;
}

void hr_alloc_hooks_destroy(hr_alloc_hooks *hooks) {
  if (!hooks) return;
  if (hri_hooks_are_fake(hooks)) hri_fake_hooks_destroy(hooks->context);
  *hooks = (hr_alloc_hooks){0};
}
