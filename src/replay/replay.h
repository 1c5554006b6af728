/* One pass of a trace through the allocator; replay.c and search.c make several. */
#ifndef HRI_REPLAY_REPLAY_H
#define HRI_REPLAY_REPLAY_H

#include <headroom/replay.h>

#include "inspect/lives.h"

/* What all passes over one trace share. */
typedef struct hri_recording {
  hri_lives *lives;
  hri_state start;         /* before the first event; empty when it is to begin empty */
  hr_alloc_config config;  /* as recorded */
  uint64_t capacity_bytes; /* UINT64_MAX: unlimited */
  const char *capacity_from;
  uint64_t
      /* for garbage collection alone: the least that a memory fraction allowed, by what was collected; 0: not known */
      allowed_bytes;
  uint64_t above;       /* no recorded address is higher */
  uint32_t *event_pool; /* per event of the trace: the pool that its address belongs to; NULL: all default */
  bool oom_recorded;
  uint64_t oom_event, oom_count;
} hri_recording;

hr_status hri_recording_open(const hr_snapshot *snapshot, const hr_replay_options *options, hri_recording *recording,
                             hr_error *error);
void hri_recording_close(hri_recording *recording);

static inline bool hri_gives_back(const hr_trace_event *e) {
  return e->action == HR_TRACE_SEGMENT_FREE || e->action == HR_TRACE_SEGMENT_UNMAP;
}

/* How a pass compares with the recording; only a pass that follows it fills this. */
typedef struct hri_agreement {
  uint64_t compared_count, same_address_count, segment_count, same_segment_count;
} hri_agreement;

/* `agreement` NULL: what if; else the recorded addresses are handed out and compared. */
hr_status hri_replay_pass(const hri_recording *recording, const hr_alloc_config *config, hr_replay_result *result,
                          hri_agreement *agreement, hr_error *error);

/* What keeps a result from being a proof: it reserves more than the recorded process did, and nothing recorded says that
 * the device has it; or it returns cached memory for a request of a private pool, where the recorded process did not. */
bool hri_replay_needs_more(const hr_replay *replay, const hr_replay_result *result);
bool hri_replay_returns_in_pools(const hr_replay *replay, const hr_replay_result *result);

#endif
