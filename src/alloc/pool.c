/* Pools: the default one and private ones (CUDA graphs, MemPool), each with a half for small and one for large
 * requests. */
#include "alloc/alloc.h"

#include <string.h>

/* ---- sets of a half, by stream ---- */

static size_t set_place(const hri_alloc_half *half, uint64_t stream) {
  size_t low = 0, high = half->sets.count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (half->sets.items[middle]->stream < stream) low = middle + 1;
    else high = middle;
  }
  return low;
}

hri_free_set *hri_alloc_half_set_slow(hri_alloc_half *half, uint64_t stream) {
  const size_t place = set_place(half, stream);
  if (place < half->sets.count && half->sets.items[place]->stream == stream) return half->sets.items[place];
  if (!hri_array_reserve(&half->sets, half->sets.count + 1)) return NULL;
  hri_free_set *set = hri_alloc_zero(1, sizeof *set);
  if (set == NULL) return NULL;
  set->stream = stream;
  set->half = half;
  memmove(&half->sets.items[place + 1], &half->sets.items[place],
          (half->sets.count - place) * sizeof *half->sets.items);
  half->sets.items[place] = set;
  half->sets.count++;
  return set;
}

/* ---- pools ---- */

hri_alloc_pool *hri_alloc_pool_find(const hr_alloc *alloc, hr_pool id) {
  for (size_t i = 0; i < alloc->pools.count; i++) {
    hri_alloc_pool *pool = alloc->pools.items[i];
    if (pool->id.id[0] == id.id[0] && pool->id.id[1] == id.id[1]) return pool;
  }
  return NULL;
}

hr_status hri_alloc_pool_add(hr_alloc *alloc, hr_pool id, hri_alloc_pool **out, hr_error *error) {
  hri_alloc_pool *pool = hri_alloc_zero(1, sizeof *pool);
  if (pool == NULL || !hri_array_push(&alloc->pools, pool)) {
    hri_free(pool);
    return hri_fail_memory(error, sizeof *pool, "a private pool of the allocator");
  }
  pool->id = id;
  pool->number = (uint32_t)(alloc->pools.count - 1);
  pool->live = true;
  pool->use_count = 1;
  pool->small.pool = pool->large.pool = pool;
  pool->small.small = true;
  pool->small.kind = HR_ALLOC_SMALL;
  pool->large.kind = HR_ALLOC_LARGE;
  *out = pool;
  return HR_OK;
}

static void destroy_half(hri_alloc_half *half) {
  for (size_t i = 0; i < half->sets.count; i++) hri_free(half->sets.items[i]);
  hri_array_free(&half->sets);
}

void hri_alloc_pool_destroy(hri_alloc_pool *pool) {
  destroy_half(&pool->small);
  destroy_half(&pool->large);
  hri_free(pool);
}

static hr_status get_pool(const hr_alloc *alloc, uint32_t number, hri_alloc_pool **pool, hr_error *error) {
  if (number == 0 || number >= alloc->pools.count || !alloc->pools.items[number]->live)
    return hri_fail(error, HR_ERROR_USAGE, "allocator: there is no private pool %u", number);
  *pool = alloc->pools.items[number];
  return HR_OK;
}

hr_status hr_alloc_pool_create(hr_alloc *alloc, uint64_t first, uint64_t second, uint32_t *number, hr_error *error) {
  if (first == 0 && second == 0)
    return hri_fail(error, HR_ERROR_USAGE,
                    "allocator: a private pool cannot have the id (0, 0), which is the default pool");
  hri_alloc_pool *pool = hri_alloc_pool_find(alloc, (hr_pool){{first, second}});
  if (pool == NULL) {
    HRI_TRY(hri_alloc_pool_add(alloc, (hr_pool){{first, second}}, &pool, error));
  } else if (!pool->live) {
    pool->live = true;
    pool->use_count = 1;
  } else if (pool->use_count == 0) {
    return hri_fail(error, HR_ERROR_USAGE, "allocator: the pool (%llu, %llu) was released and still has memory",
                    (unsigned long long)first, (unsigned long long)second);
  } else {
    pool->use_count++;
  }
  *number = pool->number;
  return HR_OK;
}

hr_status hr_alloc_pool_begin(hr_alloc *alloc, uint32_t number, bool capture, hr_error *error) {
  hri_alloc_pool *pool = NULL;
  HRI_TRY(get_pool(alloc, number, &pool, error));
  for (size_t i = 0; i < alloc->captures.count; i++)
    if (alloc->captures.items[i].pool == number)
      return hri_fail(error, HR_ERROR_USAGE, "allocator: requests already go to the private pool %u", number);
  if (!hri_array_push(&alloc->captures, ((hri_alloc_capture){number, capture})))
    return hri_fail_memory(error, sizeof(hri_alloc_capture), "the allocator's list of pools");
  return HR_OK;
}

hr_status hr_alloc_pool_end(hr_alloc *alloc, uint32_t number, hr_error *error) {
  for (size_t i = 0; i < alloc->captures.count; i++) {
    if (alloc->captures.items[i].pool != number) continue;
    memmove(&alloc->captures.items[i], &alloc->captures.items[i + 1],
            (alloc->captures.count - i - 1) * sizeof *alloc->captures.items);
    alloc->captures.count--;
    return HR_OK;
  }
  return hri_fail(error, HR_ERROR_USAGE, "allocator: requests do not go to the private pool %u", number);
}

hr_status hr_alloc_pool_release(hr_alloc *alloc, uint32_t number, hr_error *error) {
  hri_alloc_pool *pool = NULL;
  HRI_TRY(get_pool(alloc, number, &pool, error));
  if (pool->use_count == 0)
    return hri_fail(error, HR_ERROR_USAGE, "allocator: the private pool %u was released already", number);
  pool->use_count--;
  return HR_OK;
}

uint32_t hr_alloc_pool_number(const hr_alloc *alloc, uint64_t first, uint64_t second) {
  const hri_alloc_pool *pool = hri_alloc_pool_find(alloc, (hr_pool){{first, second}});
  return pool != NULL && pool->live ? pool->number : 0;
}

bool hri_alloc_capturing(const hr_alloc *alloc) {
  for (size_t i = 0; i < alloc->captures.count; i++)
    if (alloc->captures.items[i].capture) return true;
  return false;
}
