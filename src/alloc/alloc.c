/* Life of the allocator, settings and statistics. Requests are in request.c. */
#include "alloc/alloc.h"

/* ---- settings ---- */

static hr_status check_config(const hr_alloc_hooks *hooks, const hr_alloc_config *c, hr_error *error) {
  if (c->async_backend)
    return hri_fail(
        error, HR_ERROR_UNSUPPORTED,
        "allocator: backend:cudaMallocAsync leaves every decision to the driver; only the native backend is here");
  if (hooks->reserve == NULL || hooks->release == NULL)
    return hri_fail(error, HR_ERROR_USAGE,
                    "allocator: the hooks reserve and release are missing; no memory comes from anywhere else");
  if (c->expandable_segments &&
      (hooks->reserve_range == NULL || hooks->release_range == NULL || hooks->map == NULL || hooks->unmap == NULL))
    return hri_fail(error, HR_ERROR_USAGE,
                    "allocator: expandable_segments needs hooks that reserve address space and map memory");
  if (c->large_segment_bytes < HRI_ALLOC_LARGE_MIN || c->large_segment_bytes % HRI_ALLOC_UNIT != 0 ||
      c->large_segment_bytes > HRI_ALLOC_REQUEST_LIMIT)
    return hri_fail(error, HR_ERROR_USAGE,
                    "allocator: large segments of %llu bytes; at least 10 MiB, in multiples of 512 bytes, are possible",
                    (unsigned long long)c->large_segment_bytes);
  for (int i = 0; i < HR_ALLOC_DIVISION_COUNT; i++)
    if ((c->roundup_power2_divisions[i] & (c->roundup_power2_divisions[i] - 1)) != 0)
      return hri_fail(error, HR_ERROR_USAGE, "allocator: roundup_power2_divisions of %llu, which is no power of two",
                      (unsigned long long)c->roundup_power2_divisions[i]);
  if (!(c->garbage_collection_threshold >= 0 && c->garbage_collection_threshold < 1))
    return hri_fail(error, HR_ERROR_USAGE, "allocator: garbage_collection_threshold of %g is not in [0, 1)",
                    c->garbage_collection_threshold);
  if (!(c->memory_fraction >= 0 && c->memory_fraction <= 1))
    return hri_fail(error, HR_ERROR_USAGE, "allocator: per_process_memory_fraction of %g is not in [0, 1]",
                    c->memory_fraction);
  return HR_OK;
}

hr_status hr_alloc_set_config(hr_alloc *alloc, const hr_alloc_config *config, hr_error *error) {
  HRI_TRY(check_config(&alloc->hooks, config, error));
  if (config->order != alloc->config.order)
    return hri_fail(error, HR_ERROR_USAGE, "allocator: the order of free blocks cannot change");
  if (config->max_split_bytes != alloc->config.max_split_bytes) alloc->split_limit_changed = true;
  alloc->config = *config;
  return HR_OK;
}

void hr_alloc_set_allowed(hr_alloc *alloc, uint64_t bytes) { alloc->allowed_bytes = bytes == 0 ? UINT64_MAX : bytes; }

void hr_alloc_on_oom(hr_alloc *alloc, hr_alloc_oom_function *function, void *context) {
  alloc->on_oom = function;
  alloc->on_oom_context = context;
}

/* ---- life ---- */

/* Of nothing known a fraction would cap nothing. */
static hr_status take_fraction(hr_alloc *alloc, hr_error *error) {
  uint64_t free_bytes = 0, total = 0;
  if (alloc->hooks.device_memory != NULL) alloc->hooks.device_memory(alloc->hooks.context, &free_bytes, &total);
  if (total == 0)
    return hri_fail(error, HR_ERROR_USAGE,
                    "allocator: per_process_memory_fraction:%g needs hooks that tell how much the device has",
                    alloc->config.memory_fraction);
  alloc->allowed_bytes = (uint64_t)(alloc->config.memory_fraction * (double)total);
  return HR_OK;
}

hr_status hr_alloc_create(const hr_alloc_hooks *hooks, const hr_alloc_config *config, hr_alloc **out, hr_error *error) {
  const hr_alloc_config usual = hr_alloc_config_default();
  if (config == NULL) config = &usual;
  HRI_TRY(check_config(hooks, config, error));
  hr_alloc *alloc = hri_alloc_zero(1, sizeof *alloc);
  if (alloc == NULL) return hri_fail_memory(error, sizeof *alloc, "an allocator");
  alloc->hooks = *hooks;
  alloc->config = *config;
  alloc->allowed_bytes = UINT64_MAX;
  alloc->stats.max_split_size = config->max_split_bytes > INT64_MAX ? -1 : (int64_t)config->max_split_bytes;
  hri_alloc_pool *pool;
  hr_status status;
  HRI_TRY_OUT(hri_alloc_pool_add(alloc, (hr_pool){{0, 0}}, &pool, error));
  if (config->memory_fraction < 1) HRI_TRY_OUT(take_fraction(alloc, error));
out:
  if (status == HR_OK) *out = alloc;
  else hr_alloc_destroy(alloc);
  return status;
}

/* Gives one segment back, seen from its first block. */
static void return_segment(hr_alloc *alloc, const hri_block *first) {
  const hri_expandable *segment = first->expandable;
  uint64_t begin = first->address, bytes = 0;
  for (const hri_block *b = first; b != NULL; b = b->next) {
    if (b->mapped) {
      if (bytes == 0) begin = b->address;
      bytes += b->size;
    }
    if (segment == NULL || bytes == 0 || (b->mapped && b->next != NULL)) continue;
    alloc->hooks.unmap(alloc->hooks.context, begin, bytes);
    bytes = 0;
  }
  if (segment != NULL) alloc->hooks.release_range(alloc->hooks.context, segment->address, segment->size);
  else alloc->hooks.release(alloc->hooks.context, first->address, bytes);
}

void hr_alloc_destroy(hr_alloc *alloc) {
  if (alloc == NULL) return;
  hri_history_destroy(alloc);
  uint64_t cursor = 0;
  for (hri_block *b; (b = hri_alloc_each_block(alloc, &cursor)) != NULL;) {
    if (b->prev == NULL) return_segment(alloc, b);
    hri_streams_forget(alloc, b);
  }
  hri_streams_destroy(alloc);
  while (alloc->expandables != NULL) hri_expandable_drop(alloc, alloc->expandables);
  for (size_t i = 0; i < alloc->pools.count; i++) hri_alloc_pool_destroy(alloc->pools.items[i]);
  for (size_t i = 0; i < alloc->chunks.count; i++) hri_free(alloc->chunks.items[i].memory);
  hri_array_free(&alloc->pools);
  hri_array_free(&alloc->captures);
  hri_array_free(&alloc->chunks);
  hri_free(alloc->table);
  hri_free(alloc);
}

/* ---- statistics ---- */

/* Both structs begin with a row of families: three stats each in the public one. */
enum { OVERSIZE = HRI_FAMILY_COUNT * HR_ALLOC_POOL_KINDS };
_Static_assert(offsetof(hr_alloc_stats, oversize_allocations) == OVERSIZE * sizeof(hr_alloc_stat),
               "all families are in a row");
_Static_assert(offsetof(hri_alloc_stats, oversize_allocations) == HRI_FAMILY_COUNT * sizeof(hri_alloc_family),
               "here, too");

static void expand(const hri_alloc_family *f, const int64_t reset_current[2], hr_alloc_stat out[HR_ALLOC_POOL_KINDS]) {
  hr_alloc_stat *all = &out[HR_ALLOC_ALL];
  *all = (hr_alloc_stat){.peak = f->peak[HR_ALLOC_ALL]};
  for (int k = 0; k < 2; k++) {
    const int64_t current = f->current[k], freed = f->freed[k], allocated = freed + current - reset_current[k];
    out[k + 1] = (hr_alloc_stat){current, f->peak[k + 1], allocated, freed};
    all->current += current;
    all->allocated += allocated;
    all->freed += freed;
  }
}

void hr_alloc_get_stats(const hr_alloc *alloc, hr_alloc_stats *stats) {
  const hri_alloc_stats *s = &alloc->stats;
  const hri_alloc_family *families = (const hri_alloc_family *)s;
  for (int i = 0; i < HRI_FAMILY_COUNT; i++)
    expand(&families[i], s->reset_current[i], (hr_alloc_stat *)stats + (ptrdiff_t)i * HR_ALLOC_POOL_KINDS);
  stats->oversize_allocations = s->oversize_allocations;
  stats->oversize_segments = s->oversize_segments;
  stats->num_alloc_retries = s->num_alloc_retries;
  stats->num_ooms = s->num_ooms;
  stats->num_sync_all_streams = s->num_sync_all_streams;
  stats->num_device_alloc = s->num_device_alloc;
  stats->num_device_free = s->num_device_free;
  stats->max_split_size = s->max_split_size;
}

void hr_alloc_reset_peak_stats(hr_alloc *alloc) {
  hri_alloc_stats *s = &alloc->stats;
  for (int i = 0; i < HRI_FAMILY_COUNT; i++) {
    hri_alloc_family *f = (hri_alloc_family *)s + i;
    f->peak[HR_ALLOC_ALL] = f->current[0] + f->current[1];
    f->peak[HR_ALLOC_SMALL] = f->current[0];
    f->peak[HR_ALLOC_LARGE] = f->current[1];
  }
  s->oversize_allocations.peak = s->oversize_allocations.current;
  s->oversize_segments.peak = s->oversize_segments.current;
}

void hr_alloc_reset_accumulated_stats(hr_alloc *alloc) {
  hri_alloc_stats *s = &alloc->stats;
  for (int i = 0; i < HRI_FAMILY_COUNT; i++) {
    hri_alloc_family *f = (hri_alloc_family *)s + i;
    for (int k = 0; k < 2; k++) {
      s->reset_current[i][k] = f->current[k];
      f->freed[k] = 0;
    }
  }
  s->oversize_allocations.allocated = s->oversize_allocations.freed = 0;
  s->oversize_segments.allocated = s->oversize_segments.freed = 0;
  s->num_alloc_retries = s->num_ooms = s->num_sync_all_streams = 0;
  s->num_device_alloc = s->num_device_free = 0;
}
