/* Matrix products prepared and run. Which code that is and what scratch it takes is decided in ops/linear/product.c, where
 * planning reads it too. */
#include "backend/cpu/gemm.h"

#include <assert.h>
#include <stdio.h>

#include "base/mem.h"
#include "backend/cpu/gemm_ours.h"

struct hri_gemm {
  const hri_gemm_cache *cache;
  hri_gemm_shape shape;
  hri_gemm_decision how;
  char implementation[24]; /* "fma:avx2", "dot:avx512bf16", "tiles:amx" */
};

struct hri_gemm_cache {
  hri_gemm_machine machine;
  hri_gemm_provider provider;
  hri_gemm_ours codes[HRI_GEMM_CODE_COUNT]; /* those that the level has */
  HRI_ARRAY(hri_gemm *) entries;
  uint32_t *slots; /* hash table of entry index + 1, open addressing; `slot_count` is a power of two */
  uint32_t slot_count;
};

/* ---- cache ---- */

hr_status hri_gemm_cache_create(hri_isa isa, hri_gemm_provider provider, hri_gemm_cache **out, hr_error *error) {
  hri_gemm_cache *cache = hri_alloc_zero(1, sizeof *cache);
  *out = NULL;
  if (!cache) return hri_fail_memory(error, sizeof *cache, "matrix products");
  cache->machine = (hri_gemm_machine){.level = isa, .pairs = hri_cpu_pairs()};
  cache->provider = provider;
  for (int code = 0; code < HRI_GEMM_CODE_COUNT; code++)
    cache->codes[code] = hri_gemm_ours_at(isa, (hri_gemm_code)code);
  *out = cache;
  return HR_OK;
}

void hri_gemm_cache_choose(hri_gemm_cache *cache, const hri_gemm_table *table) {
  assert(cache->entries.count == 0);
  cache->machine.table = *table;
}

void hri_gemm_cache_destroy(hri_gemm_cache *cache) {
  if (!cache) return;
  for (size_t i = 0; i < cache->entries.count; i++) hri_free(cache->entries.items[i]);
  hri_array_free(&cache->entries);
  hri_free(cache->slots);
  hri_free(cache);
}

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ (hash >> 29);
}

static uint64_t hash_of(const hri_gemm_shape *s) {
  uint64_t flags = (uint64_t)s->kind | (uint64_t)s->type << 8 | (uint64_t)s->out << 12 | (uint64_t)s->bias << 16 |
                   (uint64_t)s->accumulate << 17 | (uint64_t)s->packed << 18 | (uint64_t)s->mixed << 20 |
                   (uint64_t)s->in_blocks << 21 | (uint64_t)s->other << 24;
  const int64_t numbers[] = {s->m, s->n, s->k, s->threads, s->a_stride, s->b_stride, s->c_stride};
  uint64_t hash = mix(0, flags);
  for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) hash = mix(hash, (uint64_t)numbers[k]);
  return hash;
}

/* The slot of a shape, or the free one where it belongs. */
static uint32_t *slot_of(const hri_gemm_cache *cache, const hri_gemm_shape *shape) {
  uint32_t at = (uint32_t)hash_of(shape) & (cache->slot_count - 1);
  while (cache->slots[at] && !hri_gemm_shape_same(&cache->entries.items[cache->slots[at] - 1]->shape, shape))
    at = (at + 1) & (cache->slot_count - 1);
  return &cache->slots[at];
}

/* Room for one more entry at a load of at most one half. */
static hr_status reserve_entry(hri_gemm_cache *cache, hr_error *error) {
  uint32_t count = cache->slot_count ? cache->slot_count * 2 : 256, *slots;
  if (!hri_array_reserve(&cache->entries, cache->entries.count + 1))
    return hri_fail_memory(error, sizeof(hri_gemm *), "matrix products");
  if ((cache->entries.count + 1) * 2 <= cache->slot_count) return HR_OK;
  slots = hri_alloc_zero(count, sizeof *slots);
  if (!slots) return hri_fail_memory(error, count * sizeof *slots, "matrix products");
  hri_free(cache->slots);
  cache->slots = slots;
  cache->slot_count = count;
  for (size_t i = 0; i < cache->entries.count; i++)
    *slot_of(cache, &cache->entries.items[i]->shape) = (uint32_t)(i + 1);
  return HR_OK;
}

static hr_status decide(const hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm_decision *how,
                        hr_error *error) {
  if (cache->provider == HRI_GEMM_AUTO) return hri_gemm_decide(&cache->machine, shape, how, error);
  return hri_gemm_decide_for(cache->machine.level, (hri_gemm_code)(cache->provider - HRI_GEMM_BY_FMA), shape, how,
                             error);
}

/* The entry of a shape, made when it is new. */
static hr_status find(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **out, hr_error *error) {
  hri_gemm *gemm;
  hr_status status;
  HRI_TRY(reserve_entry(cache, error));
  if (*slot_of(cache, shape)) {
    *out = cache->entries.items[*slot_of(cache, shape) - 1];
    return HR_OK;
  }
  gemm = hri_alloc_zero(1, sizeof *gemm);
  if (!gemm) return hri_fail_memory(error, sizeof *gemm, "a matrix product");
  gemm->cache = cache;
  gemm->shape = *shape;
  status = decide(cache, shape, &gemm->how, error);
  if (status != HR_OK) {
    hri_free(gemm);
    return status;
  }
  (void)snprintf(gemm->implementation, sizeof gemm->implementation, "%s:%s", hri_gemm_code_name(gemm->how.code),
                 hri_isa_name(cache->machine.level));
  *slot_of(cache, shape) = (uint32_t)(cache->entries.count + 1);
  (void)hri_array_push(&cache->entries, gemm); /* reserved above */
  *out = gemm;
  return HR_OK;
}

hr_status hri_gemm_prepare(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **gemm, hr_error *error) {
  HRI_TRY(find(cache, shape, gemm, error));
  if (!shape->packed || (*gemm)->how.packed_bytes) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "a matrix product of %lld x %lld x %lld has no packed form",
                  (long long)shape->m, (long long)shape->n, (long long)shape->k);
}

hr_status hri_gemm_workspace(hri_gemm_cache *cache, const hri_gemm_shape *shape, uint64_t *bytes, hr_error *error) {
  hri_gemm *gemm;
  HRI_TRY(hri_gemm_prepare(cache, shape, &gemm, error));
  *bytes = gemm->how.scratch_bytes;
  return HR_OK;
}

/* ---- packing ---- */

hr_status hri_gemm_packed_bytes(hri_gemm_cache *cache, const hri_gemm_shape *shape, uint64_t *bytes, hr_error *error) {
  hri_gemm_shape packed = *shape;
  hri_gemm *gemm;
  packed.packed = true;
  HRI_TRY(find(cache, &packed, &gemm, error));
  *bytes = gemm->how.packed_bytes;
  return HR_OK;
}

hr_status hri_gemm_prepare_pack(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **gemm, hr_error *error) {
  hri_gemm_shape model = hri_gemm_pack_shape(shape);
  return hri_gemm_prepare(cache, &model, gemm, error);
}

static const hri_gemm_ours *ours_of(const hri_gemm *gemm) { return &gemm->cache->codes[gemm->how.code]; }

void hri_gemm_pack(const hri_gemm *gemm, hri_team *team, const void *b, void *packed) {
  hri_gemm_ours_pack(ours_of(gemm), &gemm->shape, team, b, packed);
}

void hri_gemm_run(const hri_gemm *gemm, hri_team *team, const void *a, const void *b, const void *bias, void *c,
                  void *scratch) {
  hri_gemm_ours_run(ours_of(gemm), &gemm->shape, team, a, b, bias, c, scratch);
}

const char *hri_gemm_implementation(const hri_gemm *gemm) { return gemm->implementation; }
