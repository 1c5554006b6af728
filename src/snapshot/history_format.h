/* The file of a mapped history, which must be readable after its writer was killed at any instant.
 *
 *   header   one page; never moves
 *   ring     `ring_capacity` events of 48 bytes; event number n stands at place n % ring_capacity
 *   chunks   notes, each of which is only ever appended to: what labels, pools and settings mean
 *   states   two places, written in turn: all segments and active blocks after so many events
 *
 * Chunks and states lie behind the ring in the order in which they were needed. All is in the byte order of the
 * machine, at multiples of 8 bytes.
 *
 * A killed process leaves every store that it made before it, and none after. So each thing is written first and
 * published then, by one store of 8 bytes with release order: an event by `published`, a note by its chunk's `used`, a
 * state by `state`. What was being written when the kill came is not published and does not exist. The place of the
 * oldest event may be half overwritten by the one that comes next, so it does not count as kept: the ring keeps
 * ring_capacity - 1 events.
 *
 * The last state of the allocator is that of `state` with the events since then applied. The ring may have lost the
 * events before it; a writer makes a new state each time half of the ring was written. Two other ways were left aside:
 * a table of
 * live blocks kept current in the file needs several ordered stores per event and a journal for their repair, and a
 * ring that never wraps grows without end. */
#ifndef HRI_SNAPSHOT_HISTORY_FORMAT_H
#define HRI_SNAPSHOT_HISTORY_FORMAT_H

#include "snapshot/build.h"

#define HRI_HISTORY_MAGIC "HRMEMHST" /* 8 bytes; stored last when a file is made */

enum {
  HRI_HISTORY_VERSION = 1,
  HRI_HISTORY_ORDER = 0x01020304,
  HRI_HISTORY_HEADER_BYTES = 4096,
  HRI_HISTORY_CHUNK_LIMIT = 48,
  HRI_HISTORY_STOPPED = 1, /* flags: ended in order */
  HRI_HISTORY_GAVE_UP = 2  /* the writer could not go on (full disk): what follows was not recorded */
};

typedef struct hri_history_event {
  uint64_t addr, size, stream;
  int64_t time_us; /* since the epoch */
  uint64_t label;  /* step << 32 | number of the label; 0: none */
  uint64_t rest;   /* see below */
} hri_history_event;
_Static_assert(sizeof(hri_history_event) == 48, "fixed by the format");

/* rest: action in bits 0-3, pool in 8-23 (65535: that or a later one), size of the block in units of 512 bytes in 24-63
 * (0: unknown) */
static inline uint64_t hri_history_rest(uint32_t action, uint32_t pool, uint64_t block_bytes) {
  const uint64_t units = block_bytes >> 9;
  return (action & 15) | (uint64_t)(pool < 65535 ? pool : 65535) << 8 | (units >> 40 ? 0 : units << 24);
}
static inline uint32_t hri_history_action(const hri_history_event *e) { return (uint32_t)(e->rest & 15); }
static inline uint32_t hri_history_pool(const hri_history_event *e) { return (uint32_t)(e->rest >> 8 & 65535); }
/* When the block is too large to be stated (512 TiB), what was asked for must do. */
static inline uint64_t hri_history_block_bytes(const hri_history_event *e) {
  return e->rest >> 24 ? e->rest >> 24 << 9 : hri_round_up(e->size, 512);
}

typedef struct hri_history_extent {
  uint64_t offset, bytes; /* in the file; bytes 0: none yet */
} hri_history_extent;

typedef struct hri_history_header {
  char magic[8];
  uint32_t version, order, header_bytes, event_bytes;
  int32_t device;
  uint32_t flags;
  uint64_t event_limit; /* how many the writer was asked to keep; the newest of the ring */
  uint64_t ring_offset, ring_capacity;
  uint64_t published; /* events recorded since the start */
  uint64_t state;     /* (events before it + 1) << 1 | which of states; 0: none */
  hri_history_extent states[2];
  uint64_t chunk_count; /* published, too */
  struct {
    hri_history_extent extent;
    uint64_t used;
  } chunks[HRI_HISTORY_CHUNK_LIMIT];
} hri_history_header;
_Static_assert(sizeof(hri_history_header) <= HRI_HISTORY_HEADER_BYTES, "one page");

/* A state: this, then the segments, then the blocks. */
typedef struct hri_history_state {
  uint64_t segment_count, block_count;
} hri_history_state;

enum { HRI_HISTORY_EXPANDABLE = 1 /* a mapped range */, HRI_HISTORY_LARGE = 2 /* of a large pool */ };

typedef struct hri_history_segment {
  uint64_t address, size, stream, label;
  uint32_t pool;
  uint32_t flags;
} hri_history_segment;

typedef struct hri_history_block { /* active ones only; what lies between them is free */
  uint64_t address, size, requested, label;
  uint64_t pending; /* 1: freed, waits for streams */
} hri_history_block;

/* Notes */
enum { HRI_HISTORY_LABEL = 1, HRI_HISTORY_POOL = 2, HRI_HISTORY_SETTINGS = 3 };

typedef struct hri_history_note {
  uint32_t kind, bytes; /* of the whole note; a multiple of 8 */
} hri_history_note;

/* Labels are numbered from 1 in the order of their notes. The three texts follow, without terminators. */
typedef struct hri_history_label {
  hri_history_note note;
  int32_t layer; /* -1: none */
  uint32_t category_bytes, phase_bytes, name_bytes;
  char text[];
} hri_history_label;

typedef struct hri_history_pool_note {
  hri_history_note note;
  uint64_t number, id[2];
} hri_history_pool_note;

typedef struct hri_history_settings { /* the last note of this kind holds */
  hri_history_note note;
  int64_t max_split_size; /* -1: unlimited */
  double garbage_collection_threshold;
  uint64_t divisions[16];
  uint32_t expandable, text_bytes;
  char text[];
} hri_history_settings;

/* ---- what readers and the allocator share: labels, pools and events as a snapshot has them (history_names.c) ---- */

enum { HRI_HISTORY_STACK_CACHE = 1024 };

typedef struct hri_history_frames {
  uint32_t name, phase; /* the snapshot's frame + 1; 0: not yet made */
} hri_history_frames;

typedef struct hri_history_names {
  hri_snapshot_builder *builder;
  HRI_ARRAY(const hri_history_label *) labels; /* number - 1; borrowed */
  HRI_ARRAY(uint32_t) pools;                   /* the snapshot's pool of each number */
  HRI_ARRAY(uint16_t) categories;              /* of each label */
  HRI_ARRAY(hri_history_frames) frames;        /* of each label: a text is looked up once, however many steps use it */
  struct {
    uint64_t label;
    uint32_t stack;
  } cache[HRI_HISTORY_STACK_CACHE];
} hri_history_names;

/* Notes of the whole: every label, in order, and every pool. False: memory. */
bool hri_history_add_label(hri_history_names *names, const hri_history_label *label);
bool hri_history_add_pool(hri_history_names *names, uint64_t number, const uint64_t id[2]);
void hri_history_names_deinit(hri_history_names *names);
/* The stack of a label, innermost frame first (name, layer, phase, step), and its category. Unknown numbers: 0,
 * counted. */
uint32_t hri_history_stack(hri_history_names *names, uint64_t label, uint16_t *category);
uint32_t hri_history_pool_index(hri_history_names *names, uint64_t number);
/* Appends an event to the last trace. */
bool hri_history_add_event(hri_history_names *names, const hri_history_event *event);
void hri_history_set_settings(hri_snapshot_builder *builder, const hri_history_settings *settings);

/* ---- reading ---- */

static inline bool hri_history_recognise(const void *bytes, uint64_t count) {
  return count >= 8 && __builtin_memcmp(bytes, HRI_HISTORY_MAGIC, 8) == 0;
}
/* A file as hr_snapshot_parse would take it. INPUT names the place and what is wrong there. The bytes may be those of a
 * file that is being written: everything is checked after it was copied, though the snapshot may then mix two
 * instants. */
hr_status hri_history_parse(const void *bytes, uint64_t count, const char *name, hr_snapshot **snapshot,
                            hr_error *error);

/* The segments and blocks after the state at `state` (NULL: empty) and `count` events since; event k is at ring[(first
 * + k) % capacity].
 * Contradictions (a block outside of all segments, two that overlap) are left out and counted in repaired_count. */
typedef struct hri_history_since {
  const hri_history_event *ring;
  uint64_t capacity, first, count;
} hri_history_since;
hr_status hri_history_rebuild(hri_history_names *names, const hri_history_segment *segments, uint64_t segment_count,
                              const hri_history_block *blocks, uint64_t block_count, const hri_history_since *since,
                              int32_t device, hr_error *error);

#endif
