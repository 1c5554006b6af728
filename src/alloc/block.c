/* The slab of blocks, and the table that finds active blocks by address.
 *
 * The slab grows by pieces of 512 blocks and never shrinks; spare blocks are a list, the last one given up is the next
 * one taken.
 *
 * The table is open addressing with linear probing; removal moves later entries back, so there are no marks of removed
 * ones to step over. An entry is 8 bytes (32 bits of the address's hash, whose low ones say where its search begins;
 * the block's number), so that
 * 10,000 live blocks need 128 KiB. */
#include "alloc/alloc.h"

#include <string.h>

#include "base/mix.h"

_Static_assert(sizeof(hri_block) == 128, "two cache lines");

enum { TABLE_FIRST = 1024 };
static const uint64_t BLOCK_LIMIT = UINT32_MAX - HRI_BLOCK_CHUNK; /* numbers are 32 bits */

static uint64_t hash_of(uint64_t address) { return hri_mix(address); }
static uint32_t tag_of(uint64_t hash) { return (uint32_t)(hash >> 32); }

static hri_block *block_at(const hr_alloc *alloc, uint64_t number) {
  return &alloc->chunks.items[number / HRI_BLOCK_CHUNK].blocks[number % HRI_BLOCK_CHUNK];
}

static hr_status grow_slab(hr_alloc *alloc, hr_error *error) {
  const size_t bytes = HRI_BLOCK_CHUNK * sizeof(hri_block) + 64;
  const uint64_t first = alloc->chunks.count * HRI_BLOCK_CHUNK;
  struct hri_block_chunk chunk = {.memory = first > BLOCK_LIMIT ? NULL : hri_alloc(bytes)};
  chunk.blocks = (hri_block *)(((uintptr_t)chunk.memory + 63) / 64 * 64);
  if (chunk.memory == NULL || !hri_array_push(&alloc->chunks, chunk)) {
    hri_free(chunk.memory);
    return hri_fail_memory(error, bytes, "the allocator's blocks");
  }
  memset(chunk.blocks, 0, HRI_BLOCK_CHUNK * sizeof *chunk.blocks);
  for (size_t i = HRI_BLOCK_CHUNK; i-- > 0;) {
    chunk.blocks[i].number = (uint32_t)(first + i);
    chunk.blocks[i].next = alloc->spare;
    alloc->spare = &chunk.blocks[i];
  }
  alloc->spare_count += HRI_BLOCK_CHUNK;
  return HR_OK;
}

static void place_block(hr_alloc *alloc, const hri_block *block) {
  const uint64_t hash = hash_of(block->address);
  uint64_t slot = hash >> 32 & alloc->table_mask;
  while (alloc->table[slot].place != 0) slot = (slot + 1) & alloc->table_mask;
  alloc->table[slot] = (struct hri_alloc_slot){tag_of(hash), block->number + 1};
}

static hr_status grow_table(hr_alloc *alloc, hr_error *error) {
  const uint64_t old_count = alloc->table == NULL ? 0 : alloc->table_mask + 1;
  const uint64_t count = old_count == 0 ? TABLE_FIRST : old_count * 2;
  struct hri_alloc_slot *old = alloc->table, *table = hri_alloc_zero(count, sizeof *table);
  if (table == NULL) return hri_fail_memory(error, count * sizeof *table, "the allocator's address table");
  alloc->table = table;
  alloc->table_mask = count - 1;
  for (uint64_t i = 0; i < old_count; i++)
    if (old[i].place != 0) place_block(alloc, block_at(alloc, old[i].place - 1));
  hri_free(old);
  return HR_OK;
}

hr_status hri_alloc_prepare_slow(hr_alloc *alloc, uint64_t blocks, hr_error *error) {
  while (alloc->spare_count < blocks) HRI_TRY(grow_slab(alloc, error));
  if (alloc->table_count >= alloc->table_mask / 2) HRI_TRY(grow_table(alloc, error));
  return HR_OK;
}

hri_block *hri_block_take(hr_alloc *alloc, hri_free_set *set, uint64_t address, uint64_t size) {
  hri_block *block = alloc->spare;
  alloc->spare = block->next;
  alloc->spare_count--;
  *block = (hri_block){.address = address,
                       .size = size,
                       .set = set,
                       .number = block->number,
                       .in_use = true,
                       .mapped = true};
  if (alloc->config.order == HR_ALLOC_ORDER_BLOCK) block->order = alloc->made_count++;
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
  const uint64_t hash = hash_of(address);
  const uint32_t tag = tag_of(hash);
  for (uint64_t slot = hash >> 32 & alloc->table_mask; alloc->table[slot].place != 0;
       slot = (slot + 1) & alloc->table_mask) {
    if (alloc->table[slot].tag != tag) continue;
    hri_block *block = block_at(alloc, alloc->table[slot].place - 1);
    if (block->address == address) return block;
  }
  return NULL;
}

void hri_alloc_insert(hr_alloc *alloc, hri_block *block) {
  place_block(alloc, block);
  alloc->table_count++;
}

void hri_alloc_remove(hr_alloc *alloc, const hri_block *block) {
  struct hri_alloc_slot *table = alloc->table;
  const uint64_t mask = alloc->table_mask;
  uint64_t hole = hash_of(block->address) >> 32 & mask;
  while (table[hole].place != block->number + 1) hole = (hole + 1) & mask;
  for (uint64_t slot = (hole + 1) & mask; table[slot].place != 0; slot = (slot + 1) & mask) {
    /* an entry may move back to the hole when its own place is not after the hole */
    if (((slot - table[slot].tag) & mask) < ((slot - hole) & mask)) continue;
    table[hole] = table[slot];
    hole = slot;
  }
  table[hole].place = 0;
  alloc->table_count--;
}

hri_block *hri_alloc_each_block(const hr_alloc *alloc, uint64_t *cursor) {
  while (*cursor < alloc->chunks.count * HRI_BLOCK_CHUNK) {
    hri_block *block = block_at(alloc, (*cursor)++);
    if (block->in_use) return block;
  }
  return NULL;
}
