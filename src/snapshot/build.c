/* Interning tables are open addressing over 32-bit indexes; the hash of each entry is kept, so that growing a table
 * reads no strings and a lookup compares content only where all 64 bits of hash agree. Hashes begin at a secret of the
 * builder: who knew them could write a file of strings that all meet in one slot, and reading it would take quadratic
 * time. What is made does not depend on it. */
#include "snapshot/build.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* ---- growth ---- */

static bool grow(hri_snapshot_builder *b, void **items, uint64_t *capacity, uint64_t want, uint64_t bytes_each) {
  uint64_t next = *capacity ? *capacity + *capacity / 2 : 16, bytes;
  void *memory;
  if (b->failed || !b->snapshot) return false;
  if (want <= *capacity) return true;
  if (next < want) next = want;
  if (!hri_mul(next, bytes_each, &bytes) || bytes > SIZE_MAX / 2) return b->failed = true, false;
  memory = hri_realloc(*items, (uint64_t)bytes);
  if (!memory) return b->failed = true, false;
  *items = memory;
  *capacity = next;
  return true;
}
#define GROW(b, items, capacity, want) grow((b), (void **)&(items), &(capacity), (want), sizeof *(items))

/* ---- interning ---- */

/* Stacks have hundreds of bytes: four sums that do not wait for each other. */
static const unsigned char *hash_long(const unsigned char *p, uint64_t count, uint64_t *h) {
  uint64_t sums[4] = {*h, *h + 1, *h + 2, *h + 3}, words[4];
  for (; count >= 32; count -= 32, p += 32) {
    memcpy(words, p, 32);
    for (int k = 0; k < 4; k++) {
      sums[k] = (sums[k] ^ words[k]) * 0xff51afd7ed558ccdu;
      sums[k] ^= sums[k] >> 32;
    }
  }
  for (int k = 0; k < 4; k++) *h = (*h ^ sums[k]) * 0x9e3779b97f4a7c15u, *h ^= *h >> 29;
  return p;
}

static uint64_t hash_bytes(uint64_t seed, const void *bytes, uint64_t count) {
  const unsigned char *p = bytes;
  uint64_t h = seed ^ count, word;
  if (count >= 32) p = hash_long(p, count, &h), count %= 32;
  for (; count >= 8; count -= 8, p += 8) {
    memcpy(&word, p, 8);
    h = (h ^ word) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  word = 0;
  if (count) memcpy(&word, p, (size_t)count);
  h = (h ^ word) * 0xc4ceb9fe1a85ec53u;
  return h ^ h >> 29;
}

static bool widen(hri_snapshot_builder *b, hri_intern *t) {
  uint64_t slots = t->mask ? (t->mask + 1) * 2 : 64;
  uint32_t *fresh = hri_alloc_zero(slots, sizeof *fresh);
  if (!fresh) return b->failed = true, false;
  for (uint64_t k = 0; k < t->count; k++) {
    uint64_t at = t->hashes[k] & (slots - 1);
    while (fresh[at]) at = (at + 1) & (slots - 1);
    fresh[at] = (uint32_t)k + 1;
  }
  hri_free(t->slots);
  t->slots = fresh;
  t->mask = slots - 1;
  return true;
}

/* Room for one entry more: afterwards `note` cannot fail. */
static bool room(hri_snapshot_builder *b, hri_intern *t) {
  if (b->failed || !b->snapshot) return false;
  if (t->count >= UINT32_MAX - 1) return b->failed = true, false;
  if ((t->count + 1) * 4 > (t->mask ? t->mask + 1 : 0) * 3 && !widen(b, t)) return false;
  return GROW(b, t->hashes, t->hash_capacity, t->count + 1);
}

static uint32_t note(hri_intern *t, uint64_t hash) {
  uint64_t at = hash & t->mask;
  while (t->slots[at]) at = (at + 1) & t->mask;
  t->hashes[t->count] = hash;
  t->slots[at] = (uint32_t)++t->count;
  return (uint32_t)t->count - 1;
}

/* The next entry with this hash at or behind slot *at, or UINT32_MAX. */
static uint32_t look(const hri_intern *t, uint64_t hash, uint64_t *at) {
  while (t->slots[*at]) {
    uint32_t entry = t->slots[*at] - 1;
    *at = (*at + 1) & t->mask;
    if (t->hashes[entry] == hash) return entry;
  }
  return UINT32_MAX;
}

uint32_t hri_snapshot_add_string(hri_snapshot_builder *b, const char *chars, uint64_t count) {
  hri_intern *t = &b->string_index;
  hr_snapshot *s = b->snapshot;
  uint64_t hash, at, zeros = 0, stored;
  uint32_t found;
  char *to;
  if (!count && t->count) return 0;
  if (!room(b, t)) return 0;
  hash = hash_bytes(b->seed, chars, count);
  if (count && memchr(chars, 0, (size_t)count))
    for (uint64_t k = 0; k < count; k++) zeros += !chars[k];
  if (!zeros) {
    at = hash & t->mask;
    while ((found = look(t, hash, &at)) != UINT32_MAX) {
      const char *have = hr_snapshot_string(s, found);
      if (strncmp(have, chars, (size_t)count) == 0 && !have[count]) return found;
    }
  }
  stored = count + 2 * zeros;
  if (stored < count || !GROW(b, s->text, b->text_capacity, s->text_bytes + stored + 1)) return 0;
  if (!GROW(b, s->strings, b->string_capacity, (uint64_t)s->string_count + 1)) return 0;
  to = s->text + s->text_bytes;
  for (uint64_t k = 0; k < count && zeros; k++) {
    if (chars[k]) *to++ = chars[k];
    else memcpy(to, "\xef\xbf\xbd", 3), to += 3;
  }
  if (!zeros && count) memcpy(to, chars, (size_t)count);
  s->text[s->text_bytes + stored] = 0;
  if (zeros) { /* it may equal one that holds the replacement itself */
    hash = hash_bytes(b->seed, s->text + s->text_bytes, stored);
    at = hash & t->mask;
    while ((found = look(t, hash, &at)) != UINT32_MAX)
      if (strcmp(hr_snapshot_string(s, found), s->text + s->text_bytes) == 0) return found;
  }
  s->strings[s->string_count++] = s->text_bytes;
  s->text_bytes += stored + 1;
  return note(t, hash);
}

uint32_t hri_snapshot_add_frame(hri_snapshot_builder *b, uint32_t name, uint32_t file, uint32_t line) {
  hri_intern *t = &b->frame_index;
  hr_snapshot *s = b->snapshot;
  const hr_frame frame = {name, file, line};
  uint64_t hash = hash_bytes(b->seed, &frame, sizeof frame), at;
  uint32_t found;
  if (!room(b, t)) return 0;
  at = hash & t->mask;
  while ((found = look(t, hash, &at)) != UINT32_MAX)
    if (memcmp(&s->frames[found], &frame, sizeof frame) == 0) return found;
  if (!GROW(b, s->frames, b->frame_capacity, (uint64_t)s->frame_count + 1)) return 0;
  s->frames[s->frame_count++] = frame;
  return note(t, hash);
}

uint32_t hri_snapshot_add_stack(hri_snapshot_builder *b, const uint32_t *frames, uint32_t count) {
  hri_intern *t = &b->stack_index;
  hr_snapshot *s = b->snapshot;
  uint64_t hash, at;
  uint32_t found;
  if (!count && t->count) return 0;
  if (!room(b, t)) return 0;
  hash = hash_bytes(b->seed, frames, count * sizeof *frames);
  at = hash & t->mask;
  while ((found = look(t, hash, &at)) != UINT32_MAX) {
    const hr_stack *have = &s->stacks[found];
    if (have->count == count && (!count || memcmp(s->stack_frames + have->first, frames, count * sizeof *frames) == 0))
      return found;
  }
  if (s->stack_frame_count + count > UINT32_MAX) return b->failed = true, 0;
  if (!GROW(b, s->stack_frames, b->stack_frame_capacity, s->stack_frame_count + count)) return 0;
  if (!GROW(b, s->stacks, b->stack_capacity, (uint64_t)s->stack_count + 1)) return 0;
  s->stacks[s->stack_count++] = (hr_stack){(uint32_t)s->stack_frame_count, count};
  if (count) memcpy(s->stack_frames + s->stack_frame_count, frames, count * sizeof *frames);
  s->stack_frame_count += count;
  return note(t, hash);
}

uint32_t hri_snapshot_add_pool(hri_snapshot_builder *b, uint64_t first, uint64_t second) {
  hri_intern *t = &b->pool_index;
  hr_snapshot *s = b->snapshot;
  const hr_pool pool = {{first, second}};
  uint64_t hash = hash_bytes(b->seed, &pool, sizeof pool), at;
  uint32_t found;
  if (!room(b, t)) return 0;
  at = hash & t->mask;
  while ((found = look(t, hash, &at)) != UINT32_MAX)
    if (memcmp(&s->pools[found], &pool, sizeof pool) == 0) return found;
  if (!GROW(b, s->pools, b->pool_capacity, (uint64_t)s->pool_count + 1)) return 0;
  s->pools[s->pool_count++] = pool;
  return note(t, hash);
}

uint16_t hri_snapshot_add_category(hri_snapshot_builder *b, uint32_t string) {
  hri_intern *t = &b->category_index;
  hr_snapshot *s = b->snapshot;
  uint64_t hash = hash_bytes(b->seed, &string, sizeof string), at;
  uint32_t found;
  if (!room(b, t)) return 0;
  at = hash & t->mask;
  while ((found = look(t, hash, &at)) != UINT32_MAX)
    if (s->categories[found] == string) return (uint16_t)found;
  if (s->category_count > UINT16_MAX || !GROW(b, s->categories, b->category_capacity, (uint64_t)s->category_count + 1))
    return 0;
  s->categories[s->category_count++] = string;
  return (uint16_t)note(t, hash);
}

/* ---- rows ---- */

bool hri_snapshot_add_trace(hri_snapshot_builder *b, int32_t device) {
  hr_snapshot *s = b->snapshot;
  if (!s || s->trace_count == UINT32_MAX || !GROW(b, s->traces, b->trace_capacity, (uint64_t)s->trace_count + 1))
    return false;
  s->traces[s->trace_count++] = (hr_trace){s->event_count, 0, device};
  return true;
}

bool hri_snapshot_add_event(hri_snapshot_builder *b, const hr_trace_event *event) {
  hr_snapshot *s = b->snapshot;
  if (!s || !s->trace_count || !GROW(b, s->events, b->event_capacity, s->event_count + 1)) return false;
  s->events[s->event_count++] = *event;
  s->traces[s->trace_count - 1].count++;
  return true;
}

bool hri_snapshot_add_segment(hri_snapshot_builder *b, const hr_segment *segment) {
  hr_snapshot *s = b->snapshot;
  hr_segment *to;
  if (!s || !GROW(b, s->segments, b->segment_capacity, s->segment_count + 1)) return false;
  to = &s->segments[s->segment_count++];
  *to = *segment;
  to->first_block = s->block_count;
  to->block_count = 0;
  return true;
}

bool hri_snapshot_add_block(hri_snapshot_builder *b, const hr_block *block) {
  hr_snapshot *s = b->snapshot;
  if (!s || !s->segment_count || !GROW(b, s->blocks, b->block_capacity, s->block_count + 1)) return false;
  s->blocks[s->block_count++] = *block;
  s->segments[s->segment_count - 1].block_count++;
  return true;
}

bool hri_snapshot_add_annotation(hri_snapshot_builder *b, const hr_annotation *annotation) {
  hr_snapshot *s = b->snapshot;
  if (!s || !GROW(b, s->annotations, b->annotation_capacity, s->annotation_count + 1)) return false;
  s->annotations[s->annotation_count++] = *annotation;
  return true;
}

/* ---- the whole ---- */

static uint64_t secret(void) {
  uint64_t seed;
  if (getentropy(&seed, sizeof seed) != 0) seed = (uint64_t)time(NULL) ^ (uint64_t)(uintptr_t)&seed; /* an old kernel */
  return seed;
}

hr_status hri_snapshot_build(hri_snapshot_builder *b, hr_error *error) {
  *b = (hri_snapshot_builder){.seed = secret()};
  b->snapshot = hri_alloc_zero(1, sizeof *b->snapshot);
  if (b->snapshot) {
    b->snapshot->format = "";
    b->snapshot->settings.max_split_size = -1;
    hri_snapshot_add_string(b, "", 0);
    hri_snapshot_add_stack(b, NULL, 0);
    hri_snapshot_add_pool(b, 0, 0);
    hri_snapshot_add_category(b, 0);
    if (!b->failed) return HR_OK;
  }
  hri_snapshot_build_deinit(b);
  return hri_fail_memory(error, sizeof *b->snapshot, "a snapshot");
}

static void drop_tables(hri_snapshot_builder *b) {
  hri_intern *tables[] = {&b->string_index, &b->frame_index, &b->stack_index, &b->pool_index, &b->category_index};
  for (int k = 0; k < 5; k++) hri_free(tables[k]->slots), hri_free(tables[k]->hashes);
}

void hri_snapshot_build_deinit(hri_snapshot_builder *b) {
  drop_tables(b);
  hr_snapshot_destroy(b->snapshot);
  *b = (hri_snapshot_builder){0};
}

static int segment_order(const void *a, const void *b) {
  const hr_segment *x = a, *y = b;
  if (x->device != y->device) return x->device < y->device ? -1 : 1;
  if (x->address != y->address) return x->address < y->address ? -1 : 1;
  return (x->first_block > y->first_block) - (x->first_block < y->first_block);
}

typedef struct placed {
  hr_annotation annotation;
  uint64_t place; /* qsort is not stable; those of one instant keep their order */
} placed;

static int annotation_order(const void *a, const void *b) {
  const placed *x = a, *y = b;
  if (x->annotation.time_us != y->annotation.time_us) return x->annotation.time_us < y->annotation.time_us ? -1 : 1;
  return (x->place > y->place) - (x->place < y->place);
}

static bool sort_annotations(hri_snapshot_builder *b) {
  hr_snapshot *s = b->snapshot;
  placed *rows = hri_alloc_zero(s->annotation_count, sizeof *rows);
  if (!rows) return false;
  for (uint64_t k = 0; k < s->annotation_count; k++) rows[k] = (placed){s->annotations[k], k};
  qsort(rows, (size_t)s->annotation_count, sizeof *rows, annotation_order);
  for (uint64_t k = 0; k < s->annotation_count; k++) s->annotations[k] = rows[k].annotation;
  hri_free(rows);
  return true;
}

static void recount(hr_snapshot *s, hr_segment *segment) {
  segment->allocated_size = segment->active_size = segment->requested_size = 0;
  for (uint64_t k = 0; k < segment->block_count; k++) {
    const hr_block *block = &s->blocks[segment->first_block + k];
    if (block->state == HR_BLOCK_ALLOCATED) segment->allocated_size += block->size;
    if (block->state != HR_BLOCK_INACTIVE)
      segment->active_size += block->size, segment->requested_size += block->requested_size;
  }
}

hr_status hri_snapshot_build_end(hri_snapshot_builder *b, hr_snapshot **snapshot, hr_error *error) {
  hr_snapshot *s = b->snapshot;
  *snapshot = NULL;
  if (b->failed || !s || (s->annotation_count && !sort_annotations(b))) {
    const uint64_t events = s ? s->event_count * sizeof *s->events : 0;
    hri_snapshot_build_deinit(b);
    return hri_fail_memory(error, events, "a snapshot, for its events alone");
  }
  if (s->segment_count) qsort(s->segments, (size_t)s->segment_count, sizeof *s->segments, segment_order);
  for (uint64_t k = 0; k < s->segment_count; k++) recount(s, &s->segments[k]);
  drop_tables(b);
  *b = (hri_snapshot_builder){0};
  *snapshot = s;
  return HR_OK;
}

void hr_snapshot_destroy(hr_snapshot *s) {
  if (!s) return;
  hri_free(s->events);
  hri_free(s->traces);
  hri_free(s->segments);
  hri_free(s->blocks);
  hri_free(s->annotations);
  hri_free(s->pools);
  hri_free(s->stacks);
  hri_free(s->stack_frames);
  hri_free(s->frames);
  hri_free(s->text);
  hri_free(s->strings);
  hri_free(s->categories);
  hri_free(s);
}

const char *hr_snapshot_versions(const hr_snapshot *snapshot) {
  /* the name says the oldest version that was known to write such files, or is now: 2.12 writes what 2.14 does */
  static const struct {
    const char *format, *versions;
  } rows[] = {{"pytorch-2.0", "PyTorch 2.0"},           {"pytorch-2.1", "PyTorch 2.1"},
              {"pytorch-2.2", "PyTorch 2.2 to 2.3"},    {"pytorch-2.4", "PyTorch 2.4 to 2.5"},
              {"pytorch-2.6", "PyTorch 2.6"},           {"pytorch-2.7", "PyTorch 2.7 to 2.9"},
              {"pytorch-2.10", "PyTorch 2.10 to 2.11"}, {"pytorch-2.14", "PyTorch 2.12 to 2.15"}};
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
    if (strcmp(rows[k].format, snapshot->format) == 0) return rows[k].versions;
  return snapshot->format;
}

const char *hr_trace_action_name(hr_trace_action action) {
  static const char *const names[HR_TRACE_ACTION_COUNT] = {"alloc",         "free_requested", "free_completed",
                                                           "segment_alloc", "segment_free",   "segment_map",
                                                           "segment_unmap", "snapshot",       "oom",
                                                           "other"};
  return (unsigned)action < HR_TRACE_ACTION_COUNT ? names[action] : "other";
}
