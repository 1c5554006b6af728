/* The snapshot reader on any bytes: an INPUT error that names the input, MEMORY at its limit, or a snapshot whose
 * indexes, traces and tiled segments hold. A file is read like memory. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <headroom/snapshot.h>

#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

static void check_events(const hr_snapshot *s) {
  uint64_t events = 0;
  for (uint32_t k = 0; k < s->trace_count; k++) {
    require(s->traces[k].first == events && s->traces[k].device >= -1);
    events += s->traces[k].count;
  }
  require(events == s->event_count);
  for (uint64_t k = 0; k < events; k++) {
    const hr_trace_event *e = &s->events[k];
    require(e->stack < s->stack_count && e->pool < s->pool_count && e->category < s->category_count &&
            e->note < s->string_count);
    require(e->action < HR_TRACE_ACTION_COUNT && e->size <= INT64_MAX &&
            (e->time_us == 0 || e->flags & HR_EVENT_HAS_TIME));
  }
}

static void check_segments(const hr_snapshot *s) {
  uint64_t blocks = 0;
  for (uint64_t k = 0; k < s->segment_count; k++) {
    const hr_segment *segment = &s->segments[k];
    uint64_t at = segment->address;
    require(segment->total_size > 0 && segment->stack < s->stack_count && segment->pool < s->pool_count);
    require(k == 0 || segment[-1].device <= segment->device);
    for (uint64_t b = 0; b < segment->block_count; b++) {
      const hr_block *block = &s->blocks[segment->first_block + b];
      require(block->address == at && block->size > 0 && block->requested_size <= block->size);
      require(block->stack < s->stack_count && block->category < s->category_count &&
              block->state <= HR_BLOCK_PENDING_FREE);
      at += block->size;
    }
    require(at - segment->address == segment->total_size);
    blocks += segment->block_count;
  }
  require(blocks == s->block_count);
}

static void check_tables(const hr_snapshot *s) {
  for (uint32_t k = 0; k < s->string_count; k++) require(s->strings[k] < s->text_bytes);
  require(s->text_bytes > 0 && s->text[s->text_bytes - 1] == 0);
  for (uint32_t k = 0; k < s->frame_count; k++)
    require(s->frames[k].name < s->string_count && s->frames[k].file < s->string_count);
  for (uint32_t k = 0; k < s->stack_count; k++)
    require((uint64_t)s->stacks[k].first + s->stacks[k].count <= s->stack_frame_count);
  for (uint64_t k = 0; k < s->stack_frame_count; k++) require(s->stack_frames[k] < s->frame_count);
  for (uint32_t k = 0; k < s->category_count; k++) require(s->categories[k] < s->string_count);
  for (uint64_t k = 0; k < s->annotation_count; k++) require(s->annotations[k].name < s->string_count);
  require(s->settings.text < s->string_count && s->format[0]);
}

static bool like_in_memory(hr_status status, const hr_snapshot *s, const hr_snapshot *t) {
  if (status != HR_OK) return t == NULL;
  return s->event_count == t->event_count && s->block_count == t->block_count && s->text_bytes == t->text_bytes &&
         (!s->event_count || memcmp(s->events, t->events, s->event_count * sizeof *s->events) == 0);
}

static void check_file(const uint8_t *data, size_t size, const hr_snapshot_limits *limits, hr_status status,
                       const hr_snapshot *s) {
  char path[64];
  hr_snapshot *t = NULL;
  int fd = memfd_create("input", MFD_CLOEXEC);
  require(fd >= 0 && (size == 0 || write(fd, data, size) == (ssize_t)size));
  (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  require(hr_snapshot_read(path, limits, &t, NULL) == status);
  require(like_in_memory(status, s, t));
  hr_snapshot_destroy(t);
  close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const hr_snapshot_limits limits = {16 << 20};
  const uint64_t live = hri_mem_live_bytes();
  hr_snapshot *s = NULL;
  hr_error error = {0};
  hr_status status = hr_snapshot_parse(data, size, "input", &limits, &s, &error);
  (void)hr_snapshot_recognise(data, size);
  if (status == HR_OK) {
    check_tables(s);
    check_events(s);
    check_segments(s);
  } else {
    require(s == NULL && (status == HR_ERROR_INPUT || status == HR_ERROR_MEMORY));
    require(status == HR_ERROR_MEMORY || (strstr(error.message, "input") && error.hint[0]));
  }
  if (size % 8 == 0) check_file(data, size, &limits, status, s);
  hr_snapshot_destroy(s);
  require(hri_mem_live_bytes() == live);
  return 0;
}
