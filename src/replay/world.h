/* The driver as a recorded trace shows it: hands out the recorded addresses where the replay asks for what was
 * recorded, and addresses of its own else. It refuses what goes beyond a capacity. */
#ifndef HRI_REPLAY_WORLD_H
#define HRI_REPLAY_WORLD_H

#include <headroom/alloc.h>

#include "base/mem.h"

/* A recorded call of the driver that the replay has not made yet. */
typedef struct hri_driver_call {
  uint64_t address, bytes, stream;
  bool map;
} hri_driver_call;

typedef struct hri_range {
  uint64_t address, bytes;
} hri_range;

typedef struct hri_world {
  uint64_t capacity_bytes; /* UINT64_MAX: unlimited */
  const hr_alloc *alloc;   /* whose reserved bytes count: it also has segments that were imported */
  HRI_ARRAY(hri_driver_call) expected;
  HRI_ARRAY(hri_range) returned; /* own addresses that were given back, to be used again: lowest first */
  HRI_ARRAY(hri_range) held;     /* recorded addresses with memory behind them now, by address */
  HRI_ARRAY(uint64_t) ranges;    /* where recorded ranges of expandable segments begin that are there now */
  uint64_t own_base, own_next;   /* own addresses lie above all recorded ones */
  uint64_t matched_count;        /* recorded segments that the replay took as recorded */
  uint64_t released_count, refused_count;
  bool failed;  /* the host refused memory for this bookkeeping */
  bool closed;  /* see hri_world_close */
  bool follow;  /* recorded addresses are handed out */
  bool strayed; /* ... but there are more of them than any device has: only damage has so many */
} hri_world;

void hri_world_init(hri_world *world, uint64_t capacity_bytes, uint64_t above, bool follow);
void hri_world_deinit(hri_world *world);
/* The allocator is about to give everything back, which is no call that a replay looks at. */
void hri_world_close(hri_world *world);
hr_alloc_hooks hri_world_hooks(hri_world *world);
void hri_world_expect(hri_world *world, const hri_driver_call *call);

#endif
