/* Recording: labels, the clock, the event ring and the mapped file. The layout of what is recorded is that of
 * snapshot/history_format.h, in memory as in a file. */
#ifndef HRI_ALLOC_HISTORY_H
#define HRI_ALLOC_HISTORY_H

#include "alloc/alloc.h"
#include "base/scratch.h"
#include "snapshot/history_format.h"

/* ---- label.c ---- */

/* All labels that were ever set, each once. Their number begins with 1; the step is not part of one (alloc->label has
 * it), so that a run of any length has as many labels as its program has places. */
typedef struct hri_labels {
  HRI_ARRAY(hri_history_label *) items;
  uint32_t *slots; /* number by hash; 0 = free */
  uint64_t mask;   /* slots - 1; 0: none */
} hri_labels;

void hri_labels_destroy(hri_labels *labels); /* NULL is fine */

/* ---- clock.c ---- */

/* The counter, the epoch's microseconds, and the monotonic clock before and after both. */
typedef struct hri_clock_reading {
  uint64_t before_ns, ticks;
  int64_t us;
  uint64_t after_ns;
} hri_clock_reading;

/* Epoch microseconds from the processor's counter, set right by the system's clock some fifty times a second. */
typedef struct hri_clock {
  uint64_t base_ticks, valid_ticks; /* from base on, the counter may be believed for so long; 0: not yet */
  uint64_t rate;                    /* microseconds per tick, times 2^32 */
  int64_t base_us, last_us;
  hri_clock_reading start; /* of the span over which the rate is measured */
} hri_clock;

int64_t hri_clock_adjust(hri_clock *clock); /* what hri_clock_us does at times */
void hri_clock_learn(hri_clock *clock, const hri_clock_reading *now);

#if defined(__x86_64__) || defined(__i386__)
static inline uint64_t hri_clock_ticks(void) { return __builtin_ia32_rdtsc(); }
#else
static inline uint64_t hri_clock_ticks(void) { return 0; } /* the system's clock is asked each time */
#endif

static inline int64_t hri_clock_us(hri_clock *clock) {
  const uint64_t ticks = hri_clock_ticks(), passed = ticks - clock->base_ticks;
  int64_t us;
  if (__builtin_expect(passed >= clock->valid_ticks, 0)) us = hri_clock_adjust(clock);
  else us = clock->base_us + (int64_t)((passed * clock->rate) >> 32);
  if (us < clock->last_us) us = clock->last_us;
  return clock->last_us = us;
}

/* ---- history.c ---- */

typedef struct hri_history {
  hri_history_event *ring;
  uint64_t capacity, slot; /* places; the next one */
  uint64_t ahead;          /* from this place on the ring has no pages yet; UINT64_MAX: all has */
  uint64_t count;          /* events so far */
  uint64_t *published;     /* the header's, or one's own below */
  uint64_t own_published;
  uint64_t limit;      /* of events that a snapshot shows */
  uint64_t state_due;  /* the count from which on a state is written; UINT64_MAX: never (in memory) */
  uint32_t pool_count; /* pools noted in the file; UINT32_MAX in memory */
  bool stopped;
  hr_alloc_config config; /* as noted in the file */
  hri_clock clock;
  struct hri_history_file *file; /* NULL: in memory */
} hri_history;

/* ---- history_file.c: what a mapped history does besides ---- */

typedef struct hri_history_map {
  void *memory;
  uint64_t bytes;
} hri_history_map;

typedef struct hri_history_file {
  int fd;
  char *path, *made;          /* its place; where it grew, in the scratch */
  hri_scratch *scratch;       /* until it took its name */
  uint64_t bytes;             /* of the file */
  hri_history_header *header; /* and the ring behind it */
  uint64_t header_bytes;      /* of both */
  hri_history_map chunks[HRI_HISTORY_CHUNK_LIMIT], states[2];
  hr_error failure; /* why recording ended early; code HR_OK: it did not */
} hri_history_file;

/* Makes the file with a ring of `capacity` events and leaves it unrecognisable until hri_history_file_begin. */
hr_status hri_history_file_make(const char *path, uint64_t capacity, uint64_t limit, hri_history_file **file,
                                hr_error *error);
/* From here on it can be read, at its place. What stood there stays until then. */
hr_status hri_history_file_begin(hri_history_file *file, hr_error *error);
void hri_history_file_close(hri_history_file *file); /* NULL is fine; one that was not begun goes */
hri_history_event *hri_history_file_ring(hri_history_file *file);
/* Appends a note of note->bytes bytes. */
hr_status hri_history_file_note(hri_history_file *file, const hri_history_note *note, hr_error *error);
/* Room for a state of so many rows in the place that does not hold now; then, once it is filled, makes it the one that
 * holds after `count` events. */
hr_status hri_history_file_state(hri_history_file *file, uint64_t segments, uint64_t blocks, hri_history_state **state,
                                 hr_error *error);
void hri_history_file_publish(hri_history_file *file, uint64_t count);

/* A label that is new goes into the file, too. */
hr_status hri_history_note_label(hr_alloc *alloc, const hri_history_label *label, hr_error *error);
/* Settings changed: into the file, too. `note` is for the caller to free. */
hr_status hri_history_make_settings(const hr_alloc *alloc, hri_history_settings **note, hr_error *error);

/* ---- walk.c ---- */

/* All segments (mapped ranges of expandable ones) and their blocks: `segment` gets the first block and the bytes, then
 * `block` each block of it in address order. Either may be NULL. False as soon as one gives false. */
typedef struct hri_alloc_visitor {
  void *context;
  bool (*segment)(void *context, const hri_block *first, uint64_t bytes);
  bool (*block)(void *context, const hri_block *block);
} hri_alloc_visitor;
bool hri_alloc_walk(const hr_alloc *alloc, const hri_alloc_visitor *visitor);

#endif
