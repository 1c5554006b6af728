/* A caching allocator with PyTorch's policy (CUDACachingAllocator, "native" backend), as bookkeeping alone.
 *
 * It decides which address a request gets, which segments are taken and returned, and counts what PyTorch counts;
 * memory
 * itself comes from a small struct of hooks, so the same code runs on fake addresses (replay, tests), on host memory
 * and on a device. One hr_alloc is one device. Threads: calls on one hr_alloc must not overlap; PyTorch holds a mutex
 * around the same code. docs/allocator.md has the policy rule by rule.
 *
 * Blocks are found by address; freeing an unknown address is refused, never undefined. */
#ifndef HEADROOM_ALLOC_H
#define HEADROOM_ALLOC_H

#include <headroom/snapshot.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_alloc hr_alloc;

/* ---- settings ---- */

enum { HR_ALLOC_DIVISION_COUNT = 16 };

/* Which of the free blocks of one size is taken. */
typedef enum hr_alloc_order {
  HR_ALLOC_ORDER_SEGMENT = 0, /* 2.13 and later: of the segment that was taken first, the lowest address */
  HR_ALLOC_ORDER_ADDRESS,     /* up to 2.11: the lowest address */
  HR_ALLOC_ORDER_BLOCK        /* 2.12: the one whose record was made first */
} hr_alloc_order;

/* The allocator's part of PYTORCH_ALLOC_CONF; zero-initialised it is NOT the default: use hr_alloc_config_default. */
typedef struct hr_alloc_config {
  uint64_t max_split_bytes;              /* UINT64_MAX: unlimited */
  uint64_t max_non_split_rounding_bytes; /* 20 MiB */
  double garbage_collection_threshold;   /* 0: off */
  uint64_t
      roundup_power2_divisions[HR_ALLOC_DIVISION_COUNT]; /* intervals 1 MiB, 2 MiB, ... 32 GiB and beyond; 0: off */
  uint64_t
      /* larger requests are not rounded to divisions; 0: all are. roundup_bypass_threshold_mb of 1.x and 2.0 */
      roundup_bypass_bytes;
  bool expandable_segments;
  uint64_t large_segment_bytes; /* 20 MiB; large_segment_size_mb of 2.12 and later */
  double memory_fraction;       /* per_process_memory_fraction; 1 */
  bool
      throw_on_device_oom; /* throw_on_cudamalloc_oom: what would exceed the cap, or the device, is refused at once: nothing
                                          * is freed for it, and it is no event and in no statistic */
  hr_alloc_order order; /* not a setting of PyTorch's but of its version; fixed by hr_alloc_create */
  /* Read, kept and reported, without effect on this bookkeeping: */
  bool graph_capture_record_stream_reuse, release_lock_on_device_malloc;
  bool pinned_use_host_register, pinned_use_background_threads, pinned_free_catch_all;
  uint64_t pinned_num_register_threads, pinned_reserve_segment_bytes;
  double expandable_reserve_fraction; /* expandable_segments_reserve:0.5, of the device's bytes; */
  uint64_t expandable_reserve_bytes;  /* or 40G. Both 0: 1.125 of the device */
  bool async_backend; /* backend:cudaMallocAsync. hr_alloc_create refuses it: the driver decides there */
} hr_alloc_config;

HR_API hr_alloc_config hr_alloc_config_default(void);
/* Parses "key:value,key:[a:b,c:d]" on top of `config`, with PyTorch's rules (all keys of 1.10 to 2.15) and limits.
 * Blanks mean nothing, of
 * a number its leading digits count. USAGE names the key, the value and PyTorch's rule; an unknown key suggests the
 * nearest. `config` is unchanged on error. NULL and "" are fine. docs/allocator.md, "Settings". */
HR_CHECKED hr_status hr_alloc_config_parse(const char *text, hr_alloc_config *config, hr_error *error);
/* A short text that gives this config when parsed on top of the default, "" for the default itself; returns what
 * snprintf would. */
HR_API int hr_alloc_config_print(const hr_alloc_config *config, char *text, size_t capacity);

/* ---- hooks ---- */

typedef enum hr_alloc_adopt {
  HR_ALLOC_ADOPT_SEGMENT = 0, /* as if by reserve */
  HR_ALLOC_ADOPT_RANGE,       /* as if by reserve_range */
  HR_ALLOC_ADOPT_MAP          /* as if by map, inside an adopted range */
} hr_alloc_adopt;

/* All but `reserve`, `release` may be NULL. Addresses are multiples of 512; 0 means refused. Hooks must not call
 * back. */
typedef struct hr_alloc_hooks {
  void *context;
  /* A segment: cudaMalloc and cudaFree. */
  uint64_t (*reserve)(void *context, uint64_t bytes, uint64_t stream);
  void (*release)(void *context, uint64_t address, uint64_t bytes);
  /* Expandable segments: address space, and physical memory behind a part of it. NULL: hr_alloc_create refuses the
   * setting. */
  uint64_t (*reserve_range)(void *context, uint64_t bytes, uint64_t stream);
  void (*release_range)(void *context, uint64_t address, uint64_t bytes);
  bool (*map)(void *context, uint64_t address, uint64_t bytes);
  void (*unmap)(void *context, uint64_t address, uint64_t bytes);
  /* cudaMemGetInfo. NULL: unknown, both 0; the memory fraction and garbage collection need it. */
  void (*device_memory)(void *context, uint64_t *free_bytes, uint64_t *total_bytes);
  /* An event on a stream (cudaEventRecord), a mark > 0; and whether it is over. NULL: it is over at once. `wait` is
   * asked for every mark that is open before cached blocks are returned (cudaEventSynchronize). */
  uint64_t (*record_event)(void *context, uint64_t stream);
  bool (*event_done)(void *context, uint64_t mark);
  void (*event_wait)(void *context, uint64_t mark);
  /* Step (3) of a request: whether anything was freed (FreeMemoryCallback). */
  bool (*free_memory)(void *context);
  /* Epoch microseconds for history. NULL: the system's clock. */
  int64_t (*clock_us)(void *context);
  /* hr_alloc_import takes over memory that these hooks did not give: from now on it is theirs, as if they had given it,
   * and comes back through release, unmap, release_range. False: the place is taken. NULL: nothing can be imported. */
  bool (*adopt)(void *context, hr_alloc_adopt kind, uint64_t address, uint64_t bytes);
} hr_alloc_hooks;

/* Hooks for host memory (aligned mmap) and for fake addresses with an optional capacity in bytes (0: none). The context
 * belongs to the caller: hr_alloc_hooks_destroy after the allocator. */
HR_CHECKED hr_status hr_alloc_host_hooks(hr_alloc_hooks *hooks, hr_error *error);
HR_CHECKED hr_status hr_alloc_fake_hooks(uint64_t capacity_bytes, hr_alloc_hooks *hooks, hr_error *error);
HR_API void hr_alloc_hooks_destroy(hr_alloc_hooks *hooks);

/* ---- life ---- */

/* Copies hooks and config (NULL: the default). Everything is returned to the hooks by destroy, live or not. memory_fraction becomes the
 * upper bound of hr_alloc_set_allowed here (and not in hr_alloc_set_config), as PyTorch reads it once. USAGE for
 * settings that exclude each other or that the hooks cannot serve, UNSUPPORTED for the asynchronous backend. */
HR_CHECKED hr_status hr_alloc_create(const hr_alloc_hooks *hooks, const hr_alloc_config *config, hr_alloc **alloc,
                                     hr_error *error);
HR_API void hr_alloc_destroy(hr_alloc *alloc); /* NULL is fine */
/* Settings may change between calls, as in PyTorch; blocks that exist keep what they are. */
HR_CHECKED hr_status hr_alloc_set_config(hr_alloc *alloc, const hr_alloc_config *config, hr_error *error);
/* Upper bound for bytes reserved, as set_per_process_memory_fraction computes it from the device's total; 0 lifts
 * it. */
HR_API void hr_alloc_set_allowed(hr_alloc *alloc, uint64_t bytes);

/* ---- requests ---- */

/* `bytes` > 0. On HR_ERROR_MEMORY nothing changed but statistics, history and what a request frees on its way; the
 * error's requested_bytes is the rounded request, available_bytes what the device had free, the text PyTorch's facts in
 * our words. When it was the host that refused memory for the bookkeeping, num_ooms stays as it was. */
HR_CHECKED hr_status hr_alloc_malloc(hr_alloc *alloc, uint64_t bytes, uint64_t stream, uint64_t *address,
                                     hr_error *error);
/* The same into a pool, whatever pool captures go to at present. Pool 0 is the default one. */
HR_CHECKED hr_status hr_alloc_malloc_in(hr_alloc *alloc, uint32_t pool, uint64_t bytes, uint64_t stream,
                                        uint64_t *address, hr_error *error);
/* USAGE when `address` is no live block's. */
HR_CHECKED hr_status hr_alloc_free(hr_alloc *alloc, uint64_t address, hr_error *error);
/* The two halves of a free, for replaying recorded ones: the block is pending until it is completed. */
HR_CHECKED hr_status hr_alloc_free_begin(hr_alloc *alloc, uint64_t address, hr_error *error);
HR_CHECKED hr_status hr_alloc_free_complete(hr_alloc *alloc, uint64_t address, hr_error *error);
/* Also used on `stream`: its free then waits for that stream's work so far. */
HR_CHECKED hr_status hr_alloc_record_stream(hr_alloc *alloc, uint64_t address, uint64_t stream, hr_error *error);
/* Returns all wholly free segments (and mapped chunks) of the default pool and of released pools; after waiting for all
 * events. */
HR_CHECKED hr_status hr_alloc_empty_cache(hr_alloc *alloc, hr_error *error);
/* The same of one private pool alone, if it is released; what a MemPool does at its end. */
HR_CHECKED hr_status hr_alloc_empty_pool(hr_alloc *alloc, uint32_t pool, hr_error *error);

/* ---- private pools (CUDA graphs, MemPool) ---- */

/* A pool for id {first, second}, use count 1; the same id again raises the count. `*pool` > 0. USAGE for {0, 0}, and
 * for the id of a pool that is released but still has memory. */
HR_CHECKED hr_status hr_alloc_pool_create(hr_alloc *alloc, uint64_t first, uint64_t second, uint32_t *pool,
                                          hr_error *error);
/* hr_alloc_malloc goes to this pool until end; nesting as in PyTorch (last begun first). The use count stays: PyTorch's
 * own begin is hr_alloc_pool_create and this. `capture` marks a graph capture: then events are not polled, frees of
 * blocks that other streams used are put off to its end, and cached blocks are not returned on failure. PyTorch up to
 * 2.12 does so for every pool begun: pass true. */
HR_CHECKED hr_status hr_alloc_pool_begin(hr_alloc *alloc, uint32_t pool, bool capture, hr_error *error);
HR_CHECKED hr_status hr_alloc_pool_end(hr_alloc *alloc, uint32_t pool, hr_error *error);
/* Lowers the use count; at 0 its free segments can be returned by empty_cache and by requests that run out; when the
 * last one is, the pool is gone and its number invalid until the id is created again. */
HR_CHECKED hr_status hr_alloc_pool_release(hr_alloc *alloc, uint32_t pool, hr_error *error);

/* The number of the pool with this id; 0 for {0, 0} and when there is none. */
HR_API uint32_t hr_alloc_pool_number(const hr_alloc *alloc, uint64_t first, uint64_t second);

/* ---- a recorded state ---- */

/* Takes over segments with their blocks as they were recorded (one device's, from a snapshot or from going back through
 * its trace), into an allocator that is empty. The hooks adopt them. Addresses are believed and checked (tiling,
 * overlap, multiples of 512); INPUT names the segment. Blocks that wait for their streams wait for
 * hr_alloc_free_complete. Ranges of expandable segments that one address space can hold become one segment. Pools are
 * created with use count 1; segments name them by their place in `pools`, whose numbers in the allocator are found by
 * hr_alloc_pool_number. After an error the allocator is empty again. */
HR_CHECKED hr_status hr_alloc_import(hr_alloc *alloc, const hr_segment *segments, uint64_t segment_count,
                                     const hr_block *blocks, uint64_t block_count, const hr_pool *pools,
                                     uint32_t pool_count, hr_error *error);

/* ---- statistics ---- */

/* PyTorch's: torch.cuda.memory_stats, the same keys and values. */
typedef struct hr_alloc_stat {
  int64_t current, peak, allocated, freed; /* allocated and freed: totals of increases and decreases */
} hr_alloc_stat;
enum { HR_ALLOC_ALL = 0, HR_ALLOC_SMALL, HR_ALLOC_LARGE, HR_ALLOC_POOL_KINDS };
typedef struct hr_alloc_stats {
  hr_alloc_stat allocation[HR_ALLOC_POOL_KINDS], segment[HR_ALLOC_POOL_KINDS], active[HR_ALLOC_POOL_KINDS],
      inactive_split[HR_ALLOC_POOL_KINDS];
  hr_alloc_stat allocated_bytes[HR_ALLOC_POOL_KINDS], reserved_bytes[HR_ALLOC_POOL_KINDS],
      active_bytes[HR_ALLOC_POOL_KINDS], inactive_split_bytes[HR_ALLOC_POOL_KINDS],
      requested_bytes[HR_ALLOC_POOL_KINDS];
  hr_alloc_stat oversize_allocations, oversize_segments;
  int64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free;
  int64_t max_split_size; /* -1: unlimited */
} hr_alloc_stats;

HR_API void hr_alloc_get_stats(const hr_alloc *alloc, hr_alloc_stats *stats);
HR_API void hr_alloc_reset_peak_stats(hr_alloc *alloc);
HR_API void hr_alloc_reset_accumulated_stats(hr_alloc *alloc);
/* The 122 keys of memory_stats in its order ("active.all.allocated", ...): calls `each` for every one. */
HR_API void hr_alloc_stats_each(const hr_alloc_stats *stats,
                                void (*each)(void *context, const char *key, int64_t value), void *context);
/* One JSON object of these keys; and PyTorch's memory_summary table, character for character. Allocated text:
 * hr_free. */
HR_CHECKED hr_status hr_alloc_stats_json(const hr_alloc_stats *stats, char **text, hr_error *error);
HR_CHECKED hr_status hr_alloc_summary(const hr_alloc_stats *stats, int device, bool abbreviated, char **text,
                                      hr_error *error);

/* ---- history and snapshots ---- */

typedef struct hr_alloc_label {
  const char *category; /* role: "weight", "activation", ...; NULL: not stated */
  const char *phase;    /* "forward", "backward", "optimizer", ... */
  const char *name;     /* tensor or node: the innermost frame */
  int32_t layer;        /* -1: none */
  uint64_t step;        /* 0: none */
} hr_alloc_label;
/* What later requests are for; strings are copied (each distinct label once). A snapshot shows name, layer, phase and
 * step as the frames of a stack, innermost first, and the category as such. NULL: no label. USAGE beyond 2^24 different
 * labels or 64 KiB of text. */
HR_CHECKED hr_status hr_alloc_set_label(hr_alloc *alloc, const hr_alloc_label *label, hr_error *error);

typedef struct hr_alloc_history_options {
  const char
      *path; /* NULL: in memory. Else a mapped file (docs/allocator.md), readable after kill -9 by hr_snapshot_read */
  uint64_t event_limit; /* the newest so many are kept; 0: 1,000,000 */
} hr_alloc_history_options;
/* Defaults: all zero. */
HR_API void hr_alloc_history_options_init(hr_alloc_history_options *options);
/* Starts recording; blocks that live now are part of it. What was recorded before a stop is dropped; a file at `path`
 * is replaced, once all is in place: after an error it stands there as before. USAGE while it is recording, and for a
 * path that names a directory, a link, a device or a pipe. `options` may be NULL. */
HR_CHECKED hr_status hr_alloc_history_start(hr_alloc *alloc, const hr_alloc_history_options *options, hr_error *error);
/* Ends recording and keeps what was recorded. When the file could not grow (full disk), recording ended by itself at
 * that moment, and this returns why. */
HR_CHECKED hr_status hr_alloc_history_stop(hr_alloc *alloc, hr_error *error);
/* Now, with the history so far. The caller owns it. That it was taken is an event itself, in later ones. */
HR_CHECKED hr_status hr_alloc_snapshot(hr_alloc *alloc, hr_snapshot **snapshot, hr_error *error);
/* Called inside a request that fails for memory, after all attempts, before it returns: takes a snapshot, writes a
 * file, ...
 * It may read the allocator (stats, snapshot) and nothing else. `segment_bytes` is what a segment for the request would
 * take, which is what PyTorch's message and observers call the size. Not called for what throw_on_device_oom refuses at
 * once. */
typedef void hr_alloc_oom_function(void *context, hr_alloc *alloc, uint64_t segment_bytes, uint64_t device_free_bytes);
HR_API void hr_alloc_on_oom(hr_alloc *alloc, hr_alloc_oom_function *function, void *context);

/* Walks every structure and compares every statistic with a recount: blocks tile segments, neighbours are linked both
 * ways, free sets hold exactly the free blocks in order, no two free neighbours unmerged. For tests; INTERNAL names
 * what is wrong. */
HR_CHECKED hr_status hr_alloc_check(const hr_alloc *alloc, hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
