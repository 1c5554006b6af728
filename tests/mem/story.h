/* A made-up process for tests: allocates from one big segment, first fit, every block rounded to 512 bytes, and keeps
 * what
 * PyTorch would record of it. Stacks are given as text, innermost frame first: "name@file:line;name@file:line". */
#ifndef HRI_TEST_STORY_H
#define HRI_TEST_STORY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "snapshot/build.h"

#define MIB ((uint64_t)1 << 20)

enum { STORY_BLOCKS = 20000 };

typedef struct story {
  hri_snapshot_builder b;
  uint64_t segment_address, segment_bytes;
  hr_block blocks[STORY_BLOCKS]; /* by address, tiling the segment */
  int count;
  int64_t now_us;
  bool with_time, silent_start; /* silent_start: nothing is recorded yet */
} story;

static uint32_t story_stack(story *s, const char *text) {
  uint32_t frames[64], count = 0;
  while (text && *text) {
    size_t part = strcspn(text, ";"), name = strcspn(text, "@");
    const char *file = text + name + 1, *colon = file;
    for (const char *c = file; c < text + part; c++)
      if (*c == ':') colon = c;
    assert_true(name < part && *colon == ':');
    frames[count++] = hri_snapshot_add_frame(&s->b, hri_snapshot_add_string(&s->b, text, name),
                                             hri_snapshot_add_string(&s->b, file, (uint64_t)(colon - file)),
                                             (uint32_t)atoi(colon + 1));
    text += part + (text[part] == ';');
  }
  return hri_snapshot_add_stack(&s->b, frames, count);
}

static void story_event(story *s, hr_trace_action action, uint64_t addr, uint64_t size, const char *stack) {
  hr_trace_event e = {.addr = addr, .size = size, .action = (uint8_t)action, .stack = story_stack(s, stack)};
  s->now_us += 10;
  if (s->with_time) e.time_us = s->now_us, e.flags = HR_EVENT_HAS_TIME;
  if (!s->silent_start) assert_true(hri_snapshot_add_event(&s->b, &e));
}

static void story_begin(story *s, uint64_t segment_bytes) {
  hr_error error;
  memset(s, 0, sizeof *s);
  s->now_us = 1000000;
  s->with_time = true;
  assert_int_equal(hri_snapshot_build(&s->b, &error), HR_OK);
  s->b.snapshot->format = "pytorch-2.4";
  assert_true(hri_snapshot_add_trace(&s->b, 0));
  s->segment_address = 0x700000000000u;
  s->segment_bytes = segment_bytes;
  s->blocks[0] = (hr_block){.address = s->segment_address, .size = segment_bytes};
  s->count = 1;
}

static uint64_t story_alloc(story *s, uint64_t bytes, const char *stack) {
  uint64_t size = hri_round_up(bytes, 512), addr;
  int at = 0;
  while (at < s->count && (s->blocks[at].state != HR_BLOCK_INACTIVE || s->blocks[at].size < size)) at++;
  assert_true(at < s->count && s->count + 1 < STORY_BLOCKS);
  addr = s->blocks[at].address;
  if (s->blocks[at].size > size) {
    memmove(&s->blocks[at + 1], &s->blocks[at], (size_t)(s->count - at) * sizeof(hr_block));
    s->count++;
    s->blocks[at + 1].address += size;
    s->blocks[at + 1].size -= size;
  }
  s->blocks[at] = (hr_block){addr, size, bytes, s->silent_start ? 0 : story_stack(s, stack), 0, HR_BLOCK_ALLOCATED};
  story_event(s, HR_TRACE_ALLOC, addr, bytes, stack);
  return addr;
}

static void story_free_at(story *s, uint64_t addr, const char *stack) {
  int at = 0;
  while (at < s->count && s->blocks[at].address != addr) at++;
  assert_true(at < s->count && s->blocks[at].state == HR_BLOCK_ALLOCATED);
  story_event(s, HR_TRACE_FREE_REQUESTED, addr, s->blocks[at].requested_size, stack);
  story_event(s, HR_TRACE_FREE_COMPLETED, addr, s->blocks[at].requested_size, stack);
  s->blocks[at] = (hr_block){.address = addr, .size = s->blocks[at].size};
  for (int k = at + 1; k >= at; k--) {
    if (k < 1 || k >= s->count || s->blocks[k].state != HR_BLOCK_INACTIVE ||
        s->blocks[k - 1].state != HR_BLOCK_INACTIVE)
      continue;
    s->blocks[k - 1].size += s->blocks[k].size;
    memmove(&s->blocks[k], &s->blocks[k + 1], (size_t)(s->count - k - 1) * sizeof(hr_block));
    s->count--;
  }
}

static void story_free(story *s, uint64_t addr) { story_free_at(s, addr, NULL); }

static hr_snapshot *story_end(story *s) {
  hr_snapshot *snapshot;
  hr_error error;
  assert_true(hri_snapshot_add_segment(&s->b, &(hr_segment){.address = s->segment_address,
                                                            .total_size = s->segment_bytes,
                                                            .large = true}));
  for (int k = 0; k < s->count; k++) assert_true(hri_snapshot_add_block(&s->b, &s->blocks[k]));
  assert_int_equal(hri_snapshot_build_end(&s->b, &snapshot, &error), HR_OK);
  return snapshot;
}

#endif
