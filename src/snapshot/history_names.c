/* What the numbers in a history mean: labels become stacks and categories, pools become the snapshot's. */
#include "snapshot/history_format.h"

#include <stdio.h>
#include <string.h>

bool hri_history_add_label(hri_history_names *names, const hri_history_label *label) {
  hri_snapshot_builder *b = names->builder;
  const uint16_t category =
      hri_snapshot_add_category(b, hri_snapshot_add_string(b, label->text, label->category_bytes));
  if (!category && label->category_bytes) b->snapshot->unknown_count++; /* one too many */
  if (category) b->snapshot->categories_stated = true;
  return hri_array_push(&names->labels, label) && hri_array_push(&names->categories, category) &&
         hri_array_push(&names->frames, (hri_history_frames){0}) && !b->failed;
}

bool hri_history_add_pool(hri_history_names *names, uint64_t number, const uint64_t id[2]) {
  if (number != names->pools.count) return true; /* a gap: no writer leaves one */
  return hri_array_push(&names->pools, hri_snapshot_add_pool(names->builder, id[0], id[1])) && !names->builder->failed;
}

void hri_history_names_deinit(hri_history_names *names) {
  hri_array_free(&names->labels);
  hri_array_free(&names->pools);
  hri_array_free(&names->categories);
  hri_array_free(&names->frames);
}

uint32_t hri_history_pool_index(hri_history_names *names, uint64_t number) {
  if (number < names->pools.count) return names->pools.items[number];
  if (number) names->builder->snapshot->unknown_count++;
  return 0;
}

static uint32_t add_frame(hri_snapshot_builder *b, const char *chars, uint64_t count) {
  return hri_snapshot_add_frame(b, hri_snapshot_add_string(b, chars, count), hri_snapshot_add_string(b, "headroom", 8),
                                0);
}

static uint32_t known_frame(hri_snapshot_builder *b, uint32_t *frame, const char *chars, uint64_t count) {
  if (!*frame) *frame = add_frame(b, chars, count) + 1;
  return *frame - 1;
}

static uint32_t make_stack(hri_snapshot_builder *b, const hri_history_label *label, hri_history_frames *known,
                           uint32_t step) {
  uint32_t frames[4], count = 0;
  char text[32];
  const char *phase = label->text + label->category_bytes, *name = phase + label->phase_bytes;
  if (label->name_bytes) frames[count++] = known_frame(b, &known->name, name, label->name_bytes);
  if (label->layer >= 0)
    frames[count++] = add_frame(b, text, (uint64_t)snprintf(text, sizeof text, "layer %d", label->layer));
  if (label->phase_bytes) frames[count++] = known_frame(b, &known->phase, phase, label->phase_bytes);
  if (step) frames[count++] = add_frame(b, text, (uint64_t)snprintf(text, sizeof text, "step %u", step));
  return hri_snapshot_add_stack(b, frames, count);
}

uint32_t hri_history_stack(hri_history_names *names, uint64_t label, uint16_t *category) {
  const uint64_t number = label & UINT32_MAX, slot = (label ^ label >> 32) % HRI_HISTORY_STACK_CACHE;
  *category = 0;
  if (!number) return 0;
  if (number > names->labels.count) return names->builder->snapshot->unknown_count++, 0;
  *category = names->categories.items[number - 1];
  if (names->cache[slot].label != label) {
    names->cache[slot].stack = make_stack(names->builder, names->labels.items[number - 1],
                                          &names->frames.items[number - 1], (uint32_t)(label >> 32));
    names->cache[slot].label = label;
  }
  return names->cache[slot].stack;
}

bool hri_history_add_event(hri_history_names *names, const hri_history_event *event) {
  hr_trace_event to = {.addr = event->addr,
                       .size = event->size,
                       .stream = event->stream,
                       .time_us = event->time_us,
                       .flags = HR_EVENT_HAS_TIME};
  uint32_t action = hri_history_action(event);
  if (action >= HR_TRACE_OTHER) {
    action = HR_TRACE_OTHER;
    names->builder->snapshot->unknown_count++;
  }
  to.action = (uint8_t)action;
  to.stack = hri_history_stack(names, event->label, &to.category);
  to.pool = hri_history_pool_index(names, hri_history_pool(event));
  return hri_snapshot_add_event(names->builder, &to);
}

void hri_history_set_settings(hri_snapshot_builder *builder, const hri_history_settings *from) {
  hr_snapshot_settings *to = &builder->snapshot->settings;
  to->present = true;
  to->text = hri_snapshot_add_string(builder, from->text, from->text_bytes);
  to->max_split_size = from->max_split_size < 0 ? -1 : from->max_split_size;
  to->garbage_collection_threshold = from->garbage_collection_threshold;
  if (!(to->garbage_collection_threshold >= 0 && to->garbage_collection_threshold <= 1))
    to->garbage_collection_threshold = 0;
  to->expandable_segments = from->expandable != 0;
  memcpy(to->roundup_power2_divisions, from->divisions, sizeof to->roundup_power2_divisions);
}
