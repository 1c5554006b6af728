/* What if: the requests of a recorded trace under other allocator settings.
 *
 * The recorded alloc and free events are run through the allocator of headroom/alloc.h on fake addresses, first under
 * the recorded settings - where every address can be compared with the recorded one, which tells how far the replay can
 * be believed - and then under others. docs/allocator.md, "Replay".
 *
 * Threads: replays of one snapshot may overlap; they read it, and keep all else to themselves. */
#ifndef HEADROOM_REPLAY_H
#define HEADROOM_REPLAY_H

#include <headroom/alloc.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_replay_options {
  uint32_t trace; /* UINT32_MAX: of those in which a request failed, else of all, the one with most events */
  uint64_t
      capacity_bytes;     /* what the allocator may reserve; 0: from the recorded out-of-memory event, else unlimited */
  const char *alloc_conf; /* NULL: as recorded; "" : PyTorch's defaults */
  bool empty_start;       /* begin without the recorded start state, as if a process began there */
} hr_replay_options;
/* Defaults: the trace that failed, or has most events, as it was recorded. */
HR_API void hr_replay_options_init(hr_replay_options *options);

typedef enum hr_replay_trust {
  HR_REPLAY_EXACT = 0, /* began empty, and under the recorded settings every address and segment came out as recorded */
  HR_REPLAY_CLOSE,     /* started from a state found by going back, or a few addresses differ */
  HR_REPLAY_ROUGH      /* events were lost or contradict each other; figures are estimates */
} hr_replay_trust;

/* How far a setting is known to carry a recorded program. */
typedef enum hr_replay_reach {
  HR_REPLAY_FAILS = 0, /* a recorded request cannot be met */
  HR_REPLAY_UNPROVEN,  /* none fails, but the replay proves nothing: it is rough, lost its beginning, or did not repeat
                          the recorded failure */
  HR_REPLAY_REQUEST,   /* the failed request is met, and that is all there is to say: no whole step tells what would
                          follow, or what it tells would fail */
  HR_REPLAY_STEP,      /* ... and the rest of its step is met, taken from a whole step before it */
  HR_REPLAY_RECORDING  /* all that was recorded is met; after a failure, only where the recording goes on with the same
                          step */
} hr_replay_reach;
HR_API const char *
hr_replay_reach_name(hr_replay_reach reach); /* "fails", "unproven", "request", "step", "recording" */

enum { HR_REPLAY_CONF_BYTES = 1536 }; /* all settings at once, at their longest */
typedef struct hr_replay_result {
  char alloc_conf[HR_REPLAY_CONF_BYTES]; /* the settings used, as hr_alloc_config_print gives them; "" = defaults */
  uint64_t request_count;
  uint64_t reserved_peak_bytes, allocated_peak_bytes, active_peak_bytes, requested_peak_bytes;
  uint64_t reserved_end_bytes;
  uint64_t retries, device_allocs,
      device_frees;                    /* num_alloc_retries, cudaMalloc or map calls, cudaFree or unmap calls */
  bool failed;                         /* a request could not be met within the capacity */
  uint64_t failed_event, failed_bytes; /* the first that could not */
  uint64_t
      /* recorded after the failure; they are replayed too, without the failed request, up to the 200th failure */
      past_failure_events;
  uint64_t returned_for_pools; /* requests of private pools that were met by returning cached segments */
  hr_replay_reach reach;
  uint32_t reach_step;        /* the whole step, from 1, that the rest was taken from; 0: none */
  uint64_t rest_failed_bytes; /* REQUEST: the request of that rest that could not be met; 0: none was tried */
} hr_replay_result;

typedef struct hr_replay {
  uint32_t trace;                              /* that was replayed */
  int32_t device;                              /* whose it is */
  hr_replay_result recorded;                   /* under the recorded settings */
  hr_replay_result asked;                      /* under options.alloc_conf; equals recorded when that is NULL */
  uint64_t trace_reserved_peak_bytes;          /* what the trace itself shows */
  uint64_t same_address_count, compared_count; /* allocs of `recorded` at the recorded address, of all */
  uint64_t same_segment_count, segment_count;
  bool recorded_failed;           /* the trace has an out-of-memory event */
  uint64_t recorded_failed_event; /* the last one */
  uint64_t recorded_failed_count;
  uint64_t capacity_bytes; /* used; UINT64_MAX: unlimited */
  const char
      *capacity_from; /* "given", "out-of-memory event", "a cap ...", "segments returned to make room", "unlimited" */
  hr_replay_trust trust;
  char trust_reason[512]; /* why not exact, in a sentence; "" when exact */
  bool began_empty;
  uint64_t start_live_bytes, start_reserved_bytes;
  /* Of a search after a failure: the most that blocks take, all in one piece, where the failing step goes on as the whole
   * step of this number does; 0: no such step was found. */
  uint64_t step_need_bytes;
  uint32_t step_need_step;
  uint64_t late_free_count; /* frees that waited for other streams: their moments depend on time, not on requests */
} hr_replay;

/* Whether the replay fails where an earlier failure was recorded, of several: the program went on in another way than it
 * would have without it, and how is not recorded. */
static inline bool hr_replay_failed_before(const hr_replay *replay) {
  return replay->recorded_failed_count > 1 && replay->recorded.failed &&
         replay->recorded.failed_event < replay->recorded_failed_event;
}

/* USAGE for settings that do not parse, a trace that is not there, and a per_process_memory_fraction of a device whose
 * size neither the recording nor `capacity_bytes` tells; INPUT for a trace without events of an allocator (none, a
 * profiler's, pinned host memory) and for one that is damaged beyond replay; UNSUPPORTED for the asynchronous backend. */
HR_CHECKED hr_status hr_replay_run(const hr_snapshot *snapshot, const hr_replay_options *options, hr_replay *replay,
                                   hr_error *error);

/* Whether a result is proven: it reaches through the recording, the replay is exact, and no free waited for another
 * stream, whose moments another setting may move. */
HR_API bool hr_replay_is_proven(const hr_replay *replay, const hr_replay_result *result);
/* What is known of a result in one sentence: "carries this request only: ...". At most `capacity` > 0 bytes. */
HR_API void hr_replay_sentence(const hr_replay *replay, const hr_replay_result *result, char *text, size_t capacity);

/* Tries a sensible set of settings (expandable segments; max_split_size; power-of-two roundings; the combinations
 * that make sense) and sorts: the furthest reach first, single settings before combinations, then least reserved, then
 * fewest device calls. The first is the recorded settings' result when nothing is better. `*results` is freed with
 * hr_free. */
HR_CHECKED hr_status hr_replay_search(const hr_snapshot *snapshot, const hr_replay_options *options, hr_replay *replay,
                                      hr_replay_result **results, uint32_t *count, hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
