/* Makes an hr_snapshot piece by piece. Strings, frames, stacks, pools and categories are interned: equal ones get one
 * index. Used by the readers, by the allocator and by runs. */
#ifndef HRI_SNAPSHOT_BUILD_H
#define HRI_SNAPSHOT_BUILD_H

#include <headroom/snapshot.h>

#include "base/mem.h"

_Static_assert(sizeof(hr_trace_event) == 48, "ten million events in half a gigabyte");

typedef struct hri_intern {
  uint32_t *slots;  /* index + 1 by hash; 0 = free */
  uint64_t *hashes; /* of each entry */
  uint64_t mask, count, hash_capacity;
} hri_intern;

typedef struct hri_snapshot_builder {
  hr_snapshot *snapshot; /* counts are kept current; arrays have the capacities below */
  hri_intern string_index, frame_index, stack_index, pool_index, category_index;
  uint64_t event_capacity, trace_capacity, segment_capacity, block_capacity, annotation_capacity, pool_capacity;
  uint64_t stack_capacity, stack_frame_capacity, frame_capacity, text_capacity, string_capacity, category_capacity;
  uint64_t seed; /* of all hashes */
  bool failed;   /* memory was refused; sticky, calls then return 0 */
} hri_snapshot_builder;

hr_status hri_snapshot_build(hri_snapshot_builder *b, hr_error *error);
void hri_snapshot_build_deinit(hri_snapshot_builder *b); /* drops an unfinished snapshot */
/* Gives the snapshot away: sorts segments and annotations, recounts the segments' sums, shrinks nothing. MEMORY when
 * the builder failed. Afterwards the builder is empty (deinit is fine). */
hr_status hri_snapshot_build_end(hri_snapshot_builder *b, hr_snapshot **snapshot, hr_error *error);

/* Indexes; 0 for an empty one and after a failure. `chars` need no terminator; a zero byte inside becomes U+FFFD. */
uint32_t hri_snapshot_add_string(hri_snapshot_builder *b, const char *chars, uint64_t count);
uint32_t hri_snapshot_add_frame(hri_snapshot_builder *b, uint32_t name, uint32_t file, uint32_t line);
uint32_t hri_snapshot_add_stack(hri_snapshot_builder *b, const uint32_t *frames, uint32_t count);
uint32_t hri_snapshot_add_pool(hri_snapshot_builder *b, uint64_t first, uint64_t second);
uint16_t hri_snapshot_add_category(hri_snapshot_builder *b, uint32_t string); /* 0 too when there are 65,535 already */

/* Appends; false after a failure. A trace begins with add_trace; events go to the last trace. Blocks go to the last
 * segment, in address order. */
bool hri_snapshot_add_trace(hri_snapshot_builder *b, int32_t device);
bool hri_snapshot_add_event(hri_snapshot_builder *b, const hr_trace_event *event);
bool hri_snapshot_add_segment(hri_snapshot_builder *b, const hr_segment *segment);
bool hri_snapshot_add_block(hri_snapshot_builder *b, const hr_block *block);
bool hri_snapshot_add_annotation(hri_snapshot_builder *b, const hr_annotation *annotation);

#endif
