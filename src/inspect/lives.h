/* Allocations of one trace as lives, and the allocator's state at any event: what inspect, replay, the report and the
 * explainer build on.
 *
 * A snapshot holds the last state (segments, blocks) and events before it. Lives pair allocs with frees by address;
 * what
 * was freed without an alloc, or is in the last state without one, lived before the trace began. States are found by
 * going back from the last one, so they need no assumption about the beginning. */
#ifndef HRI_INSPECT_LIVES_H
#define HRI_INSPECT_LIVES_H

#include <headroom/alloc.h>
#include <headroom/inspect.h>

#include "base/mem.h"

#define HRI_NEVER UINT64_MAX /* as an event: before the trace (alloc), or not within it (request, end) */

/* No device has this much: larger sizes are damage, and their events are counted as odd and left out. */
#define HRI_ABSURD_BYTES ((uint64_t)1 << 46)

/* Event numbers count from the trace's first event. A life holds its bytes from `alloc` on until before `end`. */
typedef struct hri_life {
  uint64_t alloc, request, end; /* alloc, free_requested, free_completed */
  uint64_t addr, size;          /* size as asked for */
  uint64_t block_size; /* bytes it took, where the last state shows it; else `size` rounded as the settings say */
  uint32_t stack, pool;
  uint64_t stream;
  uint16_t category;
  bool pending_before; /* its free was requested before event 0 */
  bool seen;           /* block_size is the last state's */
} hri_life;

typedef struct hri_lives {
  const hr_snapshot *snapshot; /* borrowed */
  uint32_t trace;
  int32_t device;
  const hr_trace_event *events; /* of the trace */
  uint64_t event_count;
  hri_life *lives; /* those from before the trace first, by address; then by alloc */
  uint64_t count, before_count;
  uint64_t *ended; /* indexes of lives that end within the trace, by end */
  uint64_t *freed; /* of those whose free is requested within it, by request */
  uint64_t ended_count, freed_count;
  uint64_t start_live_bytes, start_live_count, start_reserved_bytes; /* before event 0; what is pending is not live */
  bool has_state;     /* the snapshot states segments for this device, or its trace does (a profiler's does not) */
  bool began_empty;   /* nothing was live or reserved before event 0 */
  bool single_frees;  /* only one of the two events of a free was recorded (skip_actions): it is the whole of it */
  uint64_t odd_count; /* events that contradict others (an address allocated twice, ...): used as far as possible */
  uint64_t peak_event,
      peak_live_bytes; /* after this event the sum of `size` is largest (first such); HRI_NEVER: before event 0 */
  uint64_t peak_reserved_bytes, peak_reserved_event;
  hr_alloc_config config; /* the recorded settings (settings.c) */
} hri_lives;

/* Takes O(events) time, and 88 bytes per allocation. MEMORY is the only failure. `trace` may be snapshot->trace_count:
 * then there are no events, and the state is that of the device with most segments. */
hr_status hri_lives_build(const hr_snapshot *snapshot, uint32_t trace, hri_lives **lives, hr_error *error);
void hri_lives_destroy(hri_lives *lives); /* NULL is fine */

/* Of the traces in which a request failed the one with most events; HR_TRACE_MOST: none failed. */
uint32_t hri_failed_trace(const hr_snapshot *snapshot);

/* The settings under which a trace was recorded: those of the file's text, which is what the user set, else of its
 * fields. A file without any (before 2.4) may still show expandable segments at work. For hri_lives_build. */
void hri_recorded_settings(const hr_snapshot *snapshot, const hr_trace_event *events, uint64_t event_count,
                           hr_alloc_config *config);

/* Calls `each` for the state after every event in order, with the event's number, live and reserved bytes. Live is what
 * the program holds: a block whose free was requested is live no longer, also while other streams may still use it. */
typedef struct hri_level {
  uint64_t event;
  uint64_t live_bytes; /* sum of sizes asked for */
  uint64_t reserved_bytes;
  uint64_t live_count;
} hri_level;
void hri_lives_walk(const hri_lives *lives, void (*each)(void *context, const hri_level *level), void *context);

static inline bool hri_life_at(const hri_life *life, uint64_t event) {
  if (event == HRI_NEVER) return life->alloc == HRI_NEVER;
  return (life->alloc == HRI_NEVER || life->alloc <= event) && (life->end == HRI_NEVER || life->end > event);
}
/* The event at which the program gave it up; HRI_NEVER: it did not. Other streams may use it for longer. */
static inline uint64_t hri_life_gone(const hri_life *life) {
  return life->request != HRI_NEVER ? life->request : life->end;
}
/* Whether it is live at `event` but its free was requested: other streams may still use it. */
static inline bool hri_life_pending_at(const hri_life *life, uint64_t event) {
  return life->pending_before || (event != HRI_NEVER && life->request != HRI_NEVER && life->request <= event);
}

/* Indexes (into lives) of what is live after `event` (HRI_NEVER: before event 0), in the order of lives. Caller frees
 * with hri_free. */
hr_status hri_lives_at(const hri_lives *lives, uint64_t event, uint64_t **indexes, uint64_t *count, hr_error *error);

/* What PyTorch rounds a request to under these settings (roundup_power2_divisions). */
uint64_t hri_round_request(const hr_snapshot_settings *settings, uint64_t size);

/* Segments and blocks of the device after `event` (HRI_NEVER: before event 0). Blocks tile segments; a block's size is
 * exact where the trace or the last state shows it (see `guessed_count`). Expandable segments come as contiguous mapped
 * ranges.
 * Empty without `has_state`. */
typedef struct hri_state {
  hr_segment *segments; /* by address; first_block and block_count index `blocks` below */
  uint64_t segment_count;
  hr_block *blocks;
  uint64_t *block_lives; /* per block: index into lives, HRI_NEVER for a free one */
  uint64_t block_count;
  uint64_t guessed_count;  /* blocks whose rounded size was computed from the request, not seen */
  uint64_t unplaced_count; /* live, but in no segment that the trace shows: each got a segment of its own */
  uint64_t dropped_count;  /* live by contradiction (overlapping another): left out */
} hri_state;
hr_status hri_state_at(const hri_lives *lives, uint64_t event, hri_state *state, hr_error *error);
void hri_state_deinit(hri_state *state);

/* Of an inspection: its lives, the hr_stage after every event of its trace, and the state at its instant. They live as
 * long as it does. */
const hri_lives *hri_inspection_lives(const hr_inspection *inspection);
const uint8_t *hri_inspection_stages(const hr_inspection *inspection);
const hri_state *hri_inspection_state(const hr_inspection *inspection);
/* What stands for allocations without a stack; and the first stack that differs from `stack` in its step only. */
const char *hri_inspection_no_stack(const hr_inspection *inspection);
uint32_t hri_inspection_plain_stack(const hr_inspection *inspection, uint32_t stack);

#endif
