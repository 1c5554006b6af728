/* Expandable segments: address space of 1 1/8 of the device, into which memory is mapped chunk by chunk.
 *
 * A segment belongs to one free set (pool, size class, stream); its blocks tile all of its address space, and
 * neighbours are never both without memory. A request that no cached block serves takes the lowest place with enough
 * free or unmapped space and maps what is missing there, so the segment grows at its end, after its gaps are closed. */
#include "alloc/alloc.h"

hri_expandable *hri_expandable_add(hr_alloc *alloc, uint64_t address, uint64_t size, uint64_t chunk_bytes) {
  hri_expandable *segment = hri_alloc(sizeof *segment);
  if (segment == NULL) return NULL;
  *segment = (hri_expandable){.next = alloc->expandables, .address = address, .size = size, .chunk_bytes = chunk_bytes};
  if (segment->next != NULL) segment->next->prev = segment;
  alloc->expandables = segment;
  return segment;
}

void hri_expandable_drop(hr_alloc *alloc, hri_expandable *segment) {
  *(segment->prev != NULL ? &segment->prev->next : &alloc->expandables) = segment->next;
  if (segment->next != NULL) segment->next->prev = segment->prev;
  hri_free(segment);
}

/* ---- a place for a request ---- */

static bool has_space(const hri_block *b, uint64_t size) {
  uint64_t bytes = 0;
  for (; bytes < size && b != NULL && !hri_block_active(b); b = b->next) bytes += b->size;
  return bytes >= size;
}

/* Where a device does not tell its size, this much address space. */
static const uint64_t ASSUMED_DEVICE_BYTES = UINT64_C(1) << 40;

uint64_t hri_expandable_space(const hr_alloc_config *config, uint64_t device_bytes) {
  if (config->expandable_reserve_bytes > 0) return config->expandable_reserve_bytes;
  const double share = config->expandable_reserve_fraction * (double)device_bytes;
  if (share > 0) return share < 1 ? 1 : share < 0x1p63 ? (uint64_t)share : UINT64_MAX; /* a chunk at least */
  return device_bytes + device_bytes / 8;
}

static hr_status new_segment(hr_alloc *alloc, hri_free_set *set, hri_block **out, hr_error *error) {
  *out = NULL;
  uint64_t free_bytes = 0, total = 0;
  if (alloc->hooks.device_memory != NULL) alloc->hooks.device_memory(alloc->hooks.context, &free_bytes, &total);
  if (total == 0) total = ASSUMED_DEVICE_BYTES;
  const uint64_t chunk = hri_alloc_chunk_bytes(&alloc->config, set->half->small);
  const uint64_t bytes = hri_round_up(hri_expandable_space(&alloc->config, total), chunk);
  HRI_TRY(hri_alloc_prepare(alloc, 1, error));
  const uint64_t address = alloc->hooks.reserve_range(alloc->hooks.context, bytes, set->stream);
  if (address == 0) return HR_OK;
  hri_expandable *segment = hri_expandable_add(alloc, address, bytes, chunk);
  if (segment == NULL) {
    alloc->hooks.release_range(alloc->hooks.context, address, bytes);
    return hri_fail_memory(error, sizeof *segment, "an expandable segment");
  }
  hri_block *block = hri_block_take(alloc, set, address, bytes);
  block->mapped = false;
  block->expandable = segment;
  hri_block_number(alloc, block);
  hri_unmapped_insert(block);
  *out = block;
  return HR_OK;
}

/* The first of a row of free and unmapped blocks with space for `size`, lowest address first; NULL: no address
 * space. */
static hr_status find_space(hr_alloc *alloc, hri_free_set *set, uint64_t size, hri_block **out, hr_error *error) {
  for (hri_block *b = hri_unmapped_at_least(set, 0); b != NULL; b = hri_unmapped_at_least(set, b->address + 1)) {
    hri_block *first = b->prev != NULL && !hri_block_active(b->prev) ? b->prev : b;
    if (!has_space(first, size)) continue;
    *out = first;
    return HR_OK;
  }
  HRI_TRY(new_segment(alloc, set, out, error));
  if (*out != NULL && (*out)->size < size) *out = NULL;
  return HR_OK;
}

/* ---- mapping ---- */

/* Maps at least `size` bytes at the start of an unmapped block, which becomes a free one. *mapped: whether the device
 * did it. */
static hr_status map_block(hr_alloc *alloc, hri_block *block, uint64_t size, bool *mapped, hr_error *error) {
  hri_expandable *segment = block->expandable;
  hri_alloc_half *half = block->set->half;
  const uint64_t address = block->address, bytes = hri_round_up(size, segment->chunk_bytes);
  *mapped = false;
  HRI_TRY(hri_alloc_prepare(alloc, 2, error)); /* one for what stays unmapped, one for the split of the request */
  if (!alloc->hooks.map(alloc->hooks.context, address, bytes)) return HR_OK;
  *mapped = true;
  hri_unmapped_remove(block);
  block->mapped = true;
  if (bytes < block->size) {
    hri_block *rest = hri_block_take(alloc, block->set, address + bytes, block->size - bytes);
    rest->mapped = false;
    rest->expandable = segment;
    hri_block_number_as(alloc, rest, block);
    rest->prev = block;
    rest->next = block->next;
    if (rest->next != NULL) rest->next->prev = rest;
    block->next = rest;
    block->size = bytes;
    hri_unmapped_insert(rest);
  }
  block->segment_label = alloc->label;
  hri_block_merge(alloc, block, block->prev);
  hri_block_merge(alloc, block, block->next);
  hri_free_set_insert(block);
  alloc->reserved_bytes += bytes;
  half->pool->reserved_bytes += bytes;
  hri_stats_increase(&alloc->stats.reserved_bytes, half->kind, bytes);
  alloc->stats.num_device_alloc++;
  if (alloc->history != NULL)
    hri_history_record(alloc, HR_TRACE_SEGMENT_MAP, address, bytes, bytes, block->set->stream, half->pool->number,
                       alloc->label);
  return HR_OK;
}

hr_status hri_expandable_allocate(hr_alloc *alloc, hri_free_set *set, uint64_t size, hri_block **out, hr_error *error) {
  hri_block *block;
  *out = NULL;
  HRI_TRY(
      hri_alloc_prepare(alloc, 1,
                        error)); /* for the split: memory returned before this can have left a place without mapping */
  HRI_TRY(find_space(alloc, set, size, &block, error));
  if (block == NULL) return HR_OK;
  bool mapped = true;
  if (!block->mapped) HRI_TRY(map_block(alloc, block, block->size < size ? block->size : size, &mapped, error));
  while (mapped && block->size < size) {
    /* free, then unmapped: mapping merges the two into the second */
    hri_block *next = block->next;
    const uint64_t missing = size - block->size;
    HRI_TRY(map_block(alloc, next, missing < next->size ? missing : next->size, &mapped, error));
    block = next;
  }
  if (!mapped) return HR_OK;
  hri_free_set_remove(block);
  *out = block;
  return HR_OK;
}

/* ---- unmapping ---- */

static void end_segment(hr_alloc *alloc, hri_block *block) {
  hri_expandable *segment = block->expandable;
  hri_unmapped_remove(block);
  alloc->hooks.release_range(alloc->hooks.context, segment->address, segment->size);
  hri_expandable_drop(alloc, segment);
  hri_block_give(alloc, block);
}

/* A free part next to the one that is unmapped. */
static hri_block *cut(hr_alloc *alloc, const hri_block *block, uint64_t address, uint64_t size) {
  hri_block *part = hri_block_take(alloc, block->set, address, size);
  part->expandable = block->expandable;
  hri_block_number_as(alloc, part, block);
  part->segment_label = block->segment_label;
  return part;
}

hr_status hri_expandable_unmap(hr_alloc *alloc, hri_block *block, hr_error *error) {
  hri_expandable *segment = block->expandable;
  const uint64_t chunk = segment->chunk_bytes, from = block->address - segment->address;
  const uint64_t begin = segment->address + hri_round_up(from, chunk);
  const uint64_t end = segment->address + (from + block->size) / chunk * chunk;
  if (begin >= end) return HR_OK;
  HRI_TRY(hri_alloc_prepare(alloc, 2, error));
  alloc->hooks.unmap(alloc->hooks.context, begin, end - begin);
  hri_alloc_half *half = block->set->half;
  hri_free_set_remove(block);
  if (begin > block->address) {
    hri_block *before = cut(alloc, block, block->address, begin - block->address);
    before->prev = block->prev;
    before->next = block;
    if (before->prev != NULL) before->prev->next = before;
    block->prev = before;
    hri_free_set_insert(before);
  }
  if (end < block->address + block->size) {
    hri_block *after = cut(alloc, block, end, block->address + block->size - end);
    after->prev = block;
    after->next = block->next;
    if (after->next != NULL) after->next->prev = after;
    block->next = after;
    hri_free_set_insert(after);
  }
  block->address = begin;
  block->size = end - begin;
  block->mapped = false;
  const uint64_t label = alloc->label ? alloc->label : block->segment_label;
  hri_block_merge(alloc, block, block->prev);
  hri_block_merge(alloc, block, block->next);
  hri_unmapped_insert(block);
  alloc->reserved_bytes -= end - begin;
  hri_stats_decrease(&alloc->stats.reserved_bytes, half->kind, end - begin);
  half->pool->reserved_bytes -= end - begin;
  alloc->stats.num_device_free++;
  if (alloc->history != NULL)
    hri_history_record(alloc, HR_TRACE_SEGMENT_UNMAP, begin, end - begin, end - begin, block->set->stream,
                       half->pool->number, label);
  if (block->prev == NULL && block->next == NULL) end_segment(alloc, block);
  return HR_OK;
}
