/* The slab of blocks, and the table that finds active blocks by address.
 *
 * The slab grows by pieces of 512 blocks and never shrinks; spare blocks are a list. The table is open addressing with linear
 * probing, at most half full, and removal moves later entries back, so there are no marks of removed ones to step over. */
#include "alloc/alloc.h"

#include <string.h>

_Static_assert(sizeof(hri_block) == 128, "two cache lines");

enum { TABLE_FIRST = 1024 };

static uint64_t slot_of(const hr_alloc *alloc, uint64_t address) {
  return ((address / HRI_ALLOC_UNIT) * UINT64_C(0x9E3779B97F4A7C15) >> 24) & alloc->table_mask;
}

static hri_block *chunk_blocks(void *chunk) { return (hri_block *)(((uintptr_t)chunk + 63) / 64 * 64); }

/* xorshift64: the treaps need numbers without a pattern, not secret ones */
static uint32_t next_priority(hr_alloc *alloc) {
  uint64_t x = alloc->priority_state;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  alloc->priority_state = x;
  return (uint32_t)(x >> 32);
}

static hr_status grow_slab(hr_alloc *alloc, hr_error *error) {
  const size_t bytes = HRI_BLOCK_CHUNK * sizeof(hri_block) + 64;
  void *chunk = hri_alloc(bytes);
  if (chunk == NULL || !hri_array_push(&alloc->chunks, chunk)) {
    hri_free(chunk);
    return hri_fail_memory(error, bytes, "the allocator's blocks");
  }
  hri_block *blocks = chunk_blocks(chunk);
  memset(blocks, 0, HRI_BLOCK_CHUNK * sizeof *blocks);
  for (size_t i = HRI_BLOCK_CHUNK; i-- > 0;) {
    blocks[i].priority = next_priority(alloc);
    blocks[i].next = alloc->spare;
    alloc->spare = &blocks[i];
  }
  alloc->spare_count += HRI_BLOCK_CHUNK;
  return HR_OK;
}

static hr_status grow_table(hr_alloc *alloc, hr_error *error) {
  const uint64_t old_count = alloc->table == NULL ? 0 : alloc->table_mask + 1;
  const uint64_t count = old_count == 0 ? TABLE_FIRST : old_count * 2;
  struct hri_alloc_slot *old = alloc->table, *table = hri_alloc_zero(count, sizeof *table);
  if (table == NULL) return hri_fail_memory(error, count * sizeof *table, "the allocator's address table");
  alloc->table = table;
  alloc->table_mask = count - 1;
  for (uint64_t i = 0; i < old_count; i++) {
    if (old[i].block == NULL) continue;
    uint64_t slot = slot_of(alloc, old[i].address);
    while (table[slot].block != NULL) slot = (slot + 1) & alloc->table_mask;
    table[slot] = old[i];
  }
  hri_free(old);
  return HR_OK;
}

hr_status hri_alloc_prepare_slow(hr_alloc *alloc, uint64_t blocks, hr_error *error) {
  while (alloc->spare_count < blocks) HRI_TRY(grow_slab(alloc, error));
  if (alloc->table_count * 2 > alloc->table_mask || alloc->table == NULL) HRI_TRY(grow_table(alloc, error));
  return HR_OK;
}

hri_block *hri_block_take(hr_alloc *alloc, hri_free_set *set, uint64_t address, uint64_t size) {
  hri_block *block = alloc->spare;
  alloc->spare = block->next;
  alloc->spare_count--;
  *block = (hri_block){.address = address, .size = size, .set = set, .order = alloc->block_number++, .priority = block->priority, .in_use = true, .mapped = true};
  return block;
}

void hri_block_give(hr_alloc *alloc, hri_block *block) {
  block->in_use = false;
  block->next = alloc->spare;
  alloc->spare = block;
  alloc->spare_count++;
}

hri_block *hri_alloc_find(const hr_alloc *alloc, uint64_t address) {
  if (alloc->table == NULL) return NULL;
  for (uint64_t slot = slot_of(alloc, address); alloc->table[slot].block != NULL; slot = (slot + 1) & alloc->table_mask)
    if (alloc->table[slot].address == address) return alloc->table[slot].block;
  return NULL;
}

void hri_alloc_insert(hr_alloc *alloc, hri_block *block) {
  uint64_t slot = slot_of(alloc, block->address);
  while (alloc->table[slot].block != NULL) slot = (slot + 1) & alloc->table_mask;
  alloc->table[slot] = (struct hri_alloc_slot){block->address, block};
  alloc->table_count++;
}

void hri_alloc_remove(hr_alloc *alloc, const hri_block *block) {
  struct hri_alloc_slot *table = alloc->table;
  const uint64_t mask = alloc->table_mask;
  uint64_t hole = slot_of(alloc, block->address);
  while (table[hole].block != block) hole = (hole + 1) & mask;
  for (uint64_t slot = (hole + 1) & mask; table[slot].block != NULL; slot = (slot + 1) & mask) {
    /* an entry may move back to the hole when its own place is not after the hole */
    const uint64_t home = slot_of(alloc, table[slot].address);
    if (((slot - home) & mask) < ((slot - hole) & mask)) continue;
    table[hole] = table[slot];
    hole = slot;
  }
  table[hole].block = NULL;
  alloc->table_count--;
}

hri_block *hri_alloc_each_block(const hr_alloc *alloc, uint64_t *cursor) {
  for (; *cursor < alloc->chunks.count * HRI_BLOCK_CHUNK; (*cursor)++) {
    hri_block *block = &chunk_blocks(alloc->chunks.items[*cursor / HRI_BLOCK_CHUNK])[*cursor % HRI_BLOCK_CHUNK];
    if (!block->in_use) continue;
    (*cursor)++;
    return block;
  }
  return NULL;
}
