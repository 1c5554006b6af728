/* Inside of the caching allocator.
 *
 * A block is a part of a segment: in use, waiting for streams, free, or (expandable segments) address space without
 * memory.
 * Blocks of one segment are a list in address order. Free blocks also stand in the free set of their pool, size class
 * (small or large) and stream, which finds the smallest block that fits, the lowest address of these. Blocks in use or
 * waiting are found by address in one hash table. All of them come from one slab, so that a request served from the
 * cache takes no host memory.
 *
 * Host memory that a call may need is taken before the call changes anything (hri_alloc_prepare), so what follows
 * cannot fail half-way. docs/allocator.md explains the policy. */
#ifndef HRI_ALLOC_ALLOC_H
#define HRI_ALLOC_ALLOC_H

#include "alloc/sizes.h"

enum {
  HRI_BLOCK_CHUNK = 512, /* blocks per piece of the slab */
  HRI_BIN_BITS = 6,      /* 64 bins per power of two */
  HRI_BIN_COUNT = 3328,  /* 512 bytes .. 2^61 bytes */
  HRI_BIN_WORDS = HRI_BIN_COUNT / 64
};
static const uint64_t HRI_ALLOC_REQUEST_LIMIT = UINT64_C(1) << 60; /* PyTorch refuses from 1 EiB on */

struct hri_history; /* history.h */
typedef struct hri_block hri_block;
typedef struct hri_alloc_pool hri_alloc_pool;
typedef struct hri_alloc_half hri_alloc_half;

/* A stream that used a block; after the free, an event on that stream's queue. */
typedef struct hri_stream_use {
  struct hri_stream_use *next; /* of the block; then of the queue */
  hri_block *block;
  uint64_t stream, mark;
  bool in_capture; /* recorded while a pool was begun: dropped when the free was put off until its end */
} hri_stream_use;

typedef struct hri_stream_queue {
  uint64_t stream;
  hri_stream_use *first, *last;         /* oldest first */
  struct hri_stream_queue *prev, *next; /* of the queues that hold something, by the time they began to */
} hri_stream_queue;

/* Address space that grows in chunks of `chunk_bytes`. Its blocks tile it; those without memory have mapped ==
 * false. */
typedef struct hri_expandable {
  struct hri_expandable *prev, *next; /* all of an allocator */
  uint64_t address, size, chunk_bytes;
} hri_expandable;

/* The free blocks of one pool half and stream, by (size, order, address). Each bin is a treap; a bit per bin says
 * whether it has any. */
typedef struct hri_free_set {
  uint64_t stream;
  hri_alloc_half *half;
  hri_block *latest; /* the block inserted last; it goes to its bin when the next one comes. NULL: none */
  hri_block *lent;   /* taken for a request, but still in its bin (free_set.c). NULL: none */
  hri_block **lent_link, **found_link; /* what points at it; and at the block that the last search found in a bin */
  uint64_t lent_bin, found_bin;
  hri_block *unmapped; /* treap by address */
  uint64_t summary;    /* bit w: words[w] is not 0 */
  uint64_t words[HRI_BIN_WORDS];
  hri_block *bins[HRI_BIN_COUNT];
} hri_free_set;

struct hri_alloc_half {
  hri_alloc_pool *pool;
  bool small;
  uint8_t kind;                   /* its place in statistics: HR_ALLOC_SMALL or HR_ALLOC_LARGE */
  int64_t search_count;           /* ages of free blocks are counted in searches, when garbage collection is on */
  HRI_ARRAY(hri_free_set *) sets; /* by stream, ascending */
};

struct hri_alloc_pool {
  hr_pool id;
  uint32_t number; /* place in hr_alloc.pools; 0 is the default pool */
  bool live;       /* false: released and empty; the place waits for the same id */
  int64_t use_count;
  uint64_t
      reserved_bytes; /* PyTorch counts requests and unmappings here, which with expandable segments do not match */
  hri_alloc_half small, large;
};

/* Two cache lines: searches, splits and merges of neighbours need the first one only. */
struct hri_block {
  _Alignas(64) uint64_t address;
  uint64_t size;
  hri_block *child[2];    /* of a treap: those before and after; of a deferred block: [1] is the next deferred one */
  hri_block *prev, *next; /* neighbours in the segment; of a spare block: `next` is the next spare one */
  hri_free_set *set;      /* where it is when free: says its stream, size class and pool */
  bool in_use;            /* a block at all, not a spare place of the slab */
  bool allocated;         /* the program has it */
  bool mapped;            /* has memory behind it */
  bool waits;             /* freed; not for events: for hr_alloc_free_complete (held), or for the end of a capture */
  uint32_t event_count;   /* streams that are not done with it */

  uint64_t requested; /* bytes asked for, of the last request it served */
  uint64_t order;     /* hr_alloc_order: number of its segment, or its own; 0 where the address decides */
  hri_stream_use *uses;
  hri_expandable *expandable; /* NULL: a plain segment */
  int64_t age_base;           /* half->search_count when it became free */
  uint64_t label;             /* history's: of the request (label.c: step and place in the table) */
  uint64_t segment_label;     /* of the request that took the segment; in the first block of it */
  uint32_t number;            /* place in the slab */
  bool held;                  /* freed by hr_alloc_free_begin, or imported as pending */
};

/* allocated, or freed and waiting: not free */
static inline bool hri_block_active(const hri_block *b) { return b->allocated || b->waits || b->event_count > 0; }
static inline bool hri_block_split(const hri_block *b) { return b->prev != NULL || b->next != NULL; }

/* A family of statistics. Each request changes five of them, so they are kept short: the current value of all is the
 * sum of the two kinds', and what was allocated since the last reset is what was freed plus what current has grown
 * by. */
typedef struct hri_alloc_family {
  int64_t peak[HR_ALLOC_POOL_KINDS];
  int64_t current[2], freed[2]; /* small, large */
} hri_alloc_family;

enum { HRI_FAMILY_COUNT = 9 };

typedef struct hri_alloc_stats { /* the families in the order of hr_alloc_stats */
  hri_alloc_family allocation, segment, active, inactive_split;
  hri_alloc_family allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  hr_alloc_stat oversize_allocations, oversize_segments;
  int64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free;
  int64_t max_split_size;
  int64_t reset_current[HRI_FAMILY_COUNT][2]; /* current values when the totals were reset last */
} hri_alloc_stats;

typedef struct hri_alloc_capture {
  uint32_t pool;
  bool capture;
} hri_alloc_capture;

struct hr_alloc {
  hr_alloc_hooks hooks;
  hr_alloc_config config;
  hri_alloc_stats stats;
  bool split_limit_changed; /* max_split_bytes was another one once: oversize statistics cannot be recounted */
  uint64_t allowed_bytes;   /* UINT64_MAX: no cap */
  uint64_t reserved_bytes;  /* taken from the hooks */

  struct hri_history *history; /* NULL: not recording */
  uint64_t label;              /* of later requests; history's */
  struct hri_labels *labels;   /* what labels mean; NULL until one is set. label.c frees it */
  hr_alloc_oom_function *on_oom;
  void *on_oom_context;

  /* the slab */
  HRI_ARRAY(struct hri_block_chunk {
    void *memory;      /* as allocated */
    hri_block *blocks; /* in it, at a multiple of 64 */
  })
  chunks;
  hri_block *spare;
  uint64_t spare_count;
  uint64_t made_count; /* of numbers for `order` given so far */

  /* active blocks by address: linear probing, at most half full, so that most are found where they are looked for
   * first */
  struct hri_alloc_slot {
    uint32_t tag;   /* of the address */
    uint32_t place; /* block's number + 1; 0: empty */
  } *table;
  uint64_t table_mask, table_count;

  HRI_ARRAY(hri_alloc_pool *) pools;     /* [0] always there */
  HRI_ARRAY(hri_alloc_capture) captures; /* pools begun, innermost last */
  HRI_ARRAY(hri_stream_queue *) queues;  /* of all streams that blocks were recorded on, ascending */
  hri_stream_queue *busy_first, *busy_last;
  hri_stream_use *spare_uses;
  hri_block *deferred_first, *deferred_last; /* freed during a capture, oldest first */
  hri_expandable *expandables;
};

/* hr_alloc_stats.allocated_bytes[HR_ALLOC_ALL].current, for those who look behind every request. */
static inline uint64_t hri_alloc_allocated_bytes(const hr_alloc *alloc) {
  return (uint64_t)(alloc->stats.allocated_bytes.current[0] + alloc->stats.allocated_bytes.current[1]);
}

/* ---- history.c ("Settings, statistics, history") ---- */

/* Called where PyTorch records a trace entry, with its sizes. `block_bytes` is the size of the block, after any split
 * (for alloc; else `size`). `pool` is a place in alloc->pools; `label` the request's (for segments: of the request that
 * took it). Never fails; only called while alloc->history is not NULL. */
void hri_history_record(hr_alloc *alloc, hr_trace_action action, uint64_t address, uint64_t size, uint64_t block_bytes,
                        uint64_t stream, uint32_t pool, uint64_t label);
/* Both events of a free that waits for nothing, at one time. */
void hri_history_record_free(hr_alloc *alloc, const hri_block *block);
/* Called first by every public call that may record, while alloc->history is not NULL: all that was recorded is in the
 * structures, and nothing else, so this is where a mapped history writes down the state. */
void hri_history_tick(hr_alloc *alloc);
/* The structures changed without events (import). */
void hri_history_renew(hr_alloc *alloc);
/* Frees history and what labels hold; for hr_alloc_destroy. */
void hri_history_destroy(hr_alloc *alloc);

/* ---- block.c: slab and table ---- */

/* At least `blocks` spare blocks and room for one more in the table. */
hr_status hri_alloc_prepare_slow(hr_alloc *alloc, uint64_t blocks, hr_error *error);
static inline hr_status hri_alloc_prepare(hr_alloc *alloc, uint64_t blocks, hr_error *error) {
  if (alloc->spare_count >= blocks && alloc->table_count < alloc->table_mask / 2) return HR_OK;
  return hri_alloc_prepare_slow(alloc, blocks, error);
}
hri_block *hri_block_take(hr_alloc *alloc, hri_free_set *set, uint64_t address, uint64_t size); /* prepared */
void hri_block_give(hr_alloc *alloc, hri_block *block);
/* A new segment's first block gets the next number; parts of it have the same. */
static inline void hri_block_number(hr_alloc *alloc, hri_block *block) {
  if (alloc->config.order == HR_ALLOC_ORDER_SEGMENT) block->order = alloc->made_count++;
}
static inline void hri_block_number_as(const hr_alloc *alloc, hri_block *part, const hri_block *of) {
  if (alloc->config.order == HR_ALLOC_ORDER_SEGMENT) part->order = of->order;
}
hri_block *hri_alloc_find(const hr_alloc *alloc, uint64_t address); /* NULL: no active block there */
void hri_alloc_insert(hr_alloc *alloc, hri_block *block);
void hri_alloc_remove(hr_alloc *alloc, const hri_block *block);
/* All blocks in no order: begin with *cursor = 0; NULL at the end. Includes unmapped ones. */
hri_block *hri_alloc_each_block(const hr_alloc *alloc, uint64_t *cursor);

/* ---- free_set.c ---- */

void hri_free_set_insert(hri_block *block); /* into block->set, as a free block of its size */
void hri_free_set_remove(hri_block *block);
/* Takes out the block that hri_free_set_first just found, to be used whole or split. It stays in its bin as long as
 * this set is not searched or changed. */
void hri_free_set_lend(hri_block *block);
/* The end of a block's use while the block it was taken from, or is the front of, is still in its bin. */
static inline bool hri_free_set_lent(const hri_block *block) {
  const hri_block *lent = block->set->lent;
  return lent != NULL && (block == lent || (block->next == lent && !hri_block_active(lent)));
}
void hri_free_set_settle_slow(hri_free_set *set);
static inline void hri_free_set_settle(hri_free_set *set) { /* nothing is lent any more */
  if (set->lent != NULL) hri_free_set_settle_slow(set);
}
/* The first block at or after (size, order, address); NULL: none. */
hri_block *hri_free_set_at_least(hri_free_set *set, uint64_t size, uint64_t order, uint64_t address);
/* The last block before (size, order, address). */
hri_block *hri_free_set_before(hri_free_set *set, uint64_t size, uint64_t order, uint64_t address);
static inline hri_block *hri_free_set_first(hri_free_set *set, uint64_t size) {
  return hri_free_set_at_least(set, size, 0, 0);
}
static inline hri_block *hri_free_set_next(const hri_block *b) {
  return hri_free_set_at_least(b->set, b->size, b->order, b->address + 1);
}
static inline hri_block *hri_free_set_previous(const hri_block *b) {
  return hri_free_set_before(b->set, b->size, b->order, b->address);
}
void hri_unmapped_insert(hri_block *block);
void hri_unmapped_remove(hri_block *block);
hri_block *hri_unmapped_at_least(const hri_free_set *set, uint64_t address);

/* ---- pool.c ---- */

hr_status hri_alloc_pool_add(hr_alloc *alloc, hr_pool id, hri_alloc_pool **pool, hr_error *error);
hri_alloc_pool *hri_alloc_pool_find(const hr_alloc *alloc, hr_pool id);
void hri_alloc_pool_destroy(hri_alloc_pool *pool);
/* The set of a stream; made when missing. NULL when memory was refused. */
hri_free_set *hri_alloc_half_set_slow(hri_alloc_half *half, uint64_t stream);
static inline hri_free_set *hri_alloc_half_set(hri_alloc_half *half, uint64_t stream) {
  if (half->sets.count > 0 && half->sets.items[0]->stream == stream)
    return half->sets.items[0]; /* mostly the default stream, 0 */
  return hri_alloc_half_set_slow(half, stream);
}

/* ---- streams.c ---- */

/* Frees the blocks whose streams are done, in each stream's order up to its first event that is not
 * (process_events). */
void hri_streams_poll(hr_alloc *alloc);
/* Waits for all events and frees their blocks; of one pool, when `pool` is not NULL. */
void hri_streams_wait(hr_alloc *alloc, const hri_alloc_pool *pool);
/* A block just freed that other streams used: an event on each of them, or put off until no capture is under way. */
void hri_streams_defer(hr_alloc *alloc, hri_block *block);
void hri_streams_forget(hr_alloc *alloc, hri_block *block); /* drops the streams it was used on */
void hri_streams_destroy(hr_alloc *alloc);
bool hri_alloc_capturing(const hr_alloc *alloc);

/* ---- free.c: the end of a block's life ---- */

/* Takes `other`, a neighbour, into `block`, if it is free too. Bytes won, or 0. */
uint64_t hri_block_merge(hr_alloc *alloc, hri_block *block, hri_block *other);
void hri_block_free(hr_alloc *alloc, hri_block *block); /* no longer active: records, merges, counts */

/* ---- release.c: memory back to the hooks ---- */

void hri_release_old(hr_alloc *alloc); /* garbage collection */
/* With max_split_size: one cached block of at least `size`, or several of the largest. False: not enough of them. */
bool hri_release_oversize(hr_alloc *alloc, hri_free_set *set, uint64_t size);
/* All of the cache that can go: of the default pool and of released ones (`pool` NULL), or of one released pool. */
hr_status hri_release_cached(hr_alloc *alloc, hri_alloc_pool *pool, hr_error *error);

/* ---- expandable.c ---- */

/* A free block of at least `size`, out of its set, by mapping more memory; NULL when the device refuses. */
hr_status hri_expandable_allocate(hr_alloc *alloc, hri_free_set *set, uint64_t size, hri_block **block,
                                  hr_error *error);
/* Unmaps the whole chunks of a free block; ends its segment when nothing of it is mapped any more. */
hr_status hri_expandable_unmap(hr_alloc *alloc, hri_block *block, hr_error *error);
uint64_t hri_expandable_space(const hr_alloc_config *config,
                              uint64_t device_bytes); /* address space of one segment, unrounded */
hri_expandable *hri_expandable_add(hr_alloc *alloc, uint64_t address, uint64_t size,
                                   uint64_t chunk_bytes);           /* NULL: no host memory */
void hri_expandable_drop(hr_alloc *alloc, hri_expandable *segment); /* only the record of it */

/* ---- statistics ---- */

static inline void hri_stat_increase(hr_alloc_stat *s, uint64_t amount) {
  s->current += (int64_t)amount;
  s->peak = s->current > s->peak ? s->current : s->peak;
  s->allocated += (int64_t)amount;
}
static inline void hri_stat_decrease(hr_alloc_stat *s, uint64_t amount) {
  s->current -= (int64_t)amount;
  s->freed += (int64_t)amount;
}
/* `kind`: of the half. */
static inline void hri_stats_increase(hri_alloc_family *f, unsigned kind, uint64_t amount) {
  const int64_t current = f->current[kind - 1] += (int64_t)amount, all = current + f->current[2 - kind];
  if (__builtin_expect(current > f->peak[kind], 0)) f->peak[kind] = current;
  if (__builtin_expect(all > f->peak[HR_ALLOC_ALL], 0)) f->peak[HR_ALLOC_ALL] = all;
}
static inline void hri_stats_decrease(hri_alloc_family *f, unsigned kind, uint64_t amount) {
  f->current[kind - 1] -= (int64_t)amount;
  f->freed[kind - 1] += (int64_t)amount;
}

#endif
