/* An interposed allocator: every allocation of the process, the libraries' included, is counted while somebody watches.
 * Include it in one file of a test program; the definitions below take the place of the C library's (glibc). Under a
 * sanitizer, which brings an allocator of its own, nothing is counted and HEAP_WATCHED is 0. */
#ifndef HRI_TEST_HEAP_H
#define HRI_TEST_HEAP_H

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HEAP_WATCHED 0
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#undef HEAP_WATCHED
#define HEAP_WATCHED 0
#endif
#if !defined(HEAP_WATCHED)
#define HEAP_WATCHED 1
#endif

enum { HEAP_OFFENDERS = 8, HEAP_FRAMES = 14 };

typedef struct heap_offender {
  size_t bytes;
  void *frames[HEAP_FRAMES];
  int depth;
} heap_offender;

static atomic_bool heap_watching;
static atomic_uint_fast64_t heap_calls, heap_largest, heap_live; /* live: usable bytes, always counted */
static size_t heap_limit;                                        /* larger requests are recorded as offenders */
static atomic_int heap_offender_count;
static heap_offender heap_offenders[HEAP_OFFENDERS];

#if HEAP_WATCHED
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

static _Thread_local bool heap_inside; /* taking a backtrace may allocate */

static void heap_record(size_t bytes) {
  int index;
  if (heap_inside) return;
  heap_inside = true;
  index = atomic_fetch_add(&heap_offender_count, 1);
  if (index < HEAP_OFFENDERS) {
    heap_offenders[index].bytes = bytes;
    heap_offenders[index].depth = backtrace(heap_offenders[index].frames, HEAP_FRAMES);
  }
  heap_inside = false;
}

static void *heap_count(void *memory, size_t bytes) {
  uint64_t largest;
  if (!memory) return NULL;
  atomic_fetch_add(&heap_live, malloc_usable_size(memory));
  if (!atomic_load(&heap_watching)) return memory;
  atomic_fetch_add(&heap_calls, 1);
  largest = atomic_load(&heap_largest);
  while (bytes > largest && !atomic_compare_exchange_weak(&heap_largest, &largest, bytes)) {}
  if (bytes > heap_limit) heap_record(bytes);
  return memory;
}

void *malloc(size_t bytes) { return heap_count(__libc_malloc(bytes), bytes); }
void *calloc(size_t count, size_t bytes) { return heap_count(__libc_calloc(count, bytes), count * bytes); }
void *memalign(size_t alignment, size_t bytes) { return heap_count(__libc_memalign(alignment, bytes), bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  void *got = memalign(alignment, bytes);
  if (got) *memory = got;
  return got ? 0 : ENOMEM;
}

void free(void *memory) {
  if (memory) atomic_fetch_sub(&heap_live, malloc_usable_size(memory));
  __libc_free(memory);
}

void *realloc(void *memory, size_t bytes) {
  size_t old = memory ? malloc_usable_size(memory) : 0;
  void *moved = __libc_realloc(memory, bytes);
  if (moved || bytes == 0) atomic_fetch_sub(&heap_live, old);
  return heap_count(moved, bytes);
}
#endif

/* Counts from now on; requests above `limit` bytes are recorded. Call it once outside of what
 * is measured: the first backtrace loads a library. */
static void heap_watch(size_t limit) {
  void *frames[2];
  (void)backtrace(frames, 2);
  heap_limit = limit;
  atomic_store(&heap_calls, 0);
  atomic_store(&heap_largest, 0);
  atomic_store(&heap_offender_count, 0);
  atomic_store(&heap_watching, true);
}

static void heap_stop(void) { atomic_store(&heap_watching, false); }

/* Where too much was asked for, to standard error. */
static void heap_print_offenders(void) {
  int count = atomic_load(&heap_offender_count);
  for (int k = 0; k < count && k < HEAP_OFFENDERS; k++) {
    (void)fprintf(stderr, "allocation of %zu bytes at\n", heap_offenders[k].bytes);
    (void)fflush(stderr);
    backtrace_symbols_fd(heap_offenders[k].frames, heap_offenders[k].depth, STDERR_FILENO);
  }
}

/* Address space of this process in bytes, without allocating. */
static uint64_t heap_address_space(void) {
  char text[128] = {0};
  unsigned long long pages = 0;
  ssize_t got;
  int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  got = read(fd, text, sizeof text - 1);
  (void)close(fd);
  if (got <= 0 || sscanf(text, "%llu", &pages) != 1) return 0;
  return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

#endif
