/* The rest of the step in which a request failed, and how far a setting is known to carry. */
#ifndef HRI_REPLAY_REST_H
#define HRI_REPLAY_REST_H

#include "replay/replay.h"

/* Blocks that the recording does not have go by keys above all addresses: the failed request, then the rest's own. */
#define HRI_REST_FAILED ((uint64_t)1 << 63)
#define HRI_REST_KEY(number) (HRI_REST_FAILED + (((uint64_t)(number) + 1) << 9))

typedef struct hri_rest_op {
  uint64_t key; /* a recorded address, or one of the above */
  uint64_t size, stream;
  uint32_t pool; /* of the snapshot */
  bool free;
} hri_rest_op;

typedef struct hri_rest {
  HRI_ARRAY(hri_rest_op) ops; /* after the failed request, to the step's end */
  uint32_t step;              /* whose requests they are, from 1; 0: no whole step fits */
  bool unlike;                /* that step is not like this one: its rest is the least that follows */
  /* The recording goes on with the same requests after the failure, and later asks for as much at the same place. */
  bool recorded;
  uint64_t freed_before; /* recorded: the event before which the failed request, had it been met, would be freed */
} hri_rest;

/* Of the recording's last out-of-memory event. MEMORY is the only failure. */
hr_status hri_rest_find(const hri_recording *recording, hri_rest *rest, hr_error *error);
static inline void hri_rest_deinit(hri_rest *rest) { hri_array_free(&rest->ops); }

/* The recorded requests up to the failed one, that one kept, then the rest. */
hr_status hri_replay_rest(const hri_recording *recording, const hr_alloc_config *config, const hri_rest *rest,
                          hr_replay_result *result, hr_error *error);

/* The whole recording, with the failed request kept until rest->freed_before. */
hr_status hri_replay_held(const hri_recording *recording, const hr_alloc_config *config, const hri_rest *rest,
                          hr_replay_result *result, hr_error *error);

#endif
