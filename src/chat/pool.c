#include "chat/pool.h"

#include <string.h>

enum { POOL_CHUNK_BYTES = 32 * 1024 };

struct hri_pool_chunk {
  struct hri_pool_chunk *older;
};

static bool grow(hri_pool *pool, uint64_t bytes) {
  /* chunks grow with the pool, so that their number stays small */
  uint64_t size = pool->bytes / 2 > POOL_CHUNK_BYTES ? pool->bytes / 2 : POOL_CHUNK_BYTES;
  struct hri_pool_chunk *chunk;
  if (size > (1u << 22)) size = 1u << 22;
  if (size < bytes + sizeof *chunk) size = bytes + sizeof *chunk;
  chunk = hri_alloc((size_t)size);
  if (!chunk) return false;
  chunk->older = pool->chunks;
  pool->chunks = chunk;
  pool->next = (char *)(chunk + 1);
  pool->end = (char *)chunk + size;
  return true;
}

void *hri_pool_alloc(hri_pool *pool, uint64_t bytes) {
  void *memory;
  bytes = hri_round_up(bytes, 8);
  if (bytes > pool->limit || pool->bytes > pool->limit - bytes) {
    pool->exhausted = true;
    return NULL;
  }
  if (!pool->next || (uint64_t)(pool->end - pool->next) < bytes)
    if (!grow(pool, bytes)) return NULL;
  memory = pool->next;
  pool->next += bytes;
  pool->bytes += bytes;
  return memory;
}

void *hri_pool_zero(hri_pool *pool, uint64_t count, uint64_t bytes_each) {
  uint64_t bytes;
  void *memory;
  if (!hri_mul(count, bytes_each, &bytes)) bytes = UINT64_MAX;
  memory = hri_pool_alloc(pool, bytes);
  if (memory) memset(memory, 0, (size_t)bytes);
  return memory;
}

void hri_pool_deinit(hri_pool *pool) {
  struct hri_pool_chunk *chunk = pool->chunks;
  while (chunk) {
    struct hri_pool_chunk *older = chunk->older;
    hri_free(chunk);
    chunk = older;
  }
  memset(pool, 0, sizeof *pool);
}
