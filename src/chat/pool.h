/* Memory that is released all at once: the nodes of a template, the values of one rendering.
 *
 * A rendering makes many small values that refer to each other, also in circles (a namespace may hold itself); none of
 * them outlives it. So nothing is counted or freed one by one. */
#ifndef HRI_CHAT_POOL_H
#define HRI_CHAT_POOL_H

#include "base/mem.h"

typedef struct hri_pool {
  struct hri_pool_chunk *chunks; /* newest first */
  char *next, *end;              /* free bytes of the newest chunk */
  uint64_t bytes, limit;         /* taken so far; at most */
  bool exhausted;                /* the limit was met (else memory was refused) when an allocation gave NULL */
} hri_pool;

/* `bytes` bytes aligned to 8, not zeroed; NULL when memory is refused or the limit is met. */
void *hri_pool_alloc(hri_pool *pool, uint64_t bytes);
void *hri_pool_zero(hri_pool *pool, uint64_t count, uint64_t bytes_each);
void hri_pool_deinit(hri_pool *pool);

#endif
