/* The allocator's settings that a snapshot was recorded under: of its text where that parses, else of its fields, else only whether
 * segments grew. inspect, explain and replay take them from here, so that all three ask the driver for the same sizes. */
#include "inspect/lives.h"

static void from_fields(const hr_snapshot_settings *have, hr_alloc_config *c) {
  c->max_split_bytes = have->max_split_size < 0 ? UINT64_MAX : (uint64_t)have->max_split_size;
  if (have->garbage_collection_threshold > 0 && have->garbage_collection_threshold < 1)
    c->garbage_collection_threshold = have->garbage_collection_threshold;
  c->expandable_segments = have->expandable_segments;
  for (int k = 0; k < HR_ALLOC_DIVISION_COUNT; k++) { /* only powers of two keep sizes multiples of 512 */
    const uint64_t divisions = have->roundup_power2_divisions[k];
    c->roundup_power2_divisions[k] = divisions & (divisions - 1) ? 0 : divisions;
  }
}

void hri_recorded_settings(const hr_snapshot *s, const hr_trace_event *events, uint64_t event_count,
                           hr_alloc_config *c) {
  const hr_snapshot_settings *have = &s->settings;
  bool grows = false;
  *c = hr_alloc_config_default();
  if (have->present && have->text && hr_alloc_config_parse(hr_snapshot_string(s, have->text), c, NULL) == HR_OK) {
    c->expandable_segments |= have->expandable_segments; /* a program may set others later, and the text is the last */
    return;
  }
  if (have->present) {
    from_fields(have, c);
    return;
  }
  for (uint64_t k = 0; k < event_count && !grows; k++) grows = events[k].action == HR_TRACE_SEGMENT_MAP;
  for (uint64_t k = 0; k < s->segment_count && !grows; k++) grows = s->segments[k].expandable;
  c->expandable_segments = grows;
}
