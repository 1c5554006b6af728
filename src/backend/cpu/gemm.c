/* Matrix products prepared and run; which code that is and in how many pieces was decided in ops/linear/product.c,
 * where planning reads it too.
 *
 * Packed b: what the library reads is asked for once per shape and described to our own packing kernel. */
#include "backend/cpu/gemm.h"

#include <omp.h>

#include "base/mem.h"
#include "backend/cpu/gemm_providers.h"

enum { DEFAULT_PREPARED = 4096 };

struct hri_gemm {
  hri_gemm_cache *cache;
  hri_gemm_shape shape;
  hri_gemm_decision how;
  bool prepared;
  hri_onednn_gemm *onednn[HRI_GEMM_PARTS]; /* one primitive per part */
};

struct hri_gemm_cache {
  hri_isa isa;
  hri_gemm_portable portable;
  hri_pack_kernel pack;
  hri_onednn *onednn;       /* NULL: not used */
  hri_gemm_library library; /* the same, as decisions ask it */
  HRI_ARRAY(hri_gemm *) entries;
  uint32_t *slots; /* hash table of entry index + 1, open addressing; `slot_count` is a power of two */
  uint32_t slot_count, prepared, max_prepared;
};

/* ---- cache ---- */

static void choose_kernels(hri_gemm_cache *cache) {
  cache->portable = hri_gemm_portable_base();
  cache->pack = hri_pack_kernel_base();
#if defined(__x86_64__)
  if (cache->isa == HRI_ISA_AVX2) cache->portable = hri_gemm_portable_avx2(), cache->pack = hri_pack_kernel_avx2();
  if (cache->isa >= HRI_ISA_AVX512)
    cache->portable = hri_gemm_portable_avx512(), cache->pack = hri_pack_kernel_avx512();
#endif
}

#if defined(HRI_HAVE_ONEDNN)
static hr_status ask_onednn(void *self, const hri_gemm_shape *shape, hri_onednn_answer *answer, hr_error *error) {
  return hri_onednn_query(self, shape, answer, error);
}
#endif

hr_status hri_gemm_cache_create(hri_isa isa, hri_gemm_cache **cache, hr_error *error) {
  return hri_gemm_cache_create_with(isa, NULL, cache, error);
}

hr_status hri_gemm_cache_create_with(hri_isa isa, const hri_gemm_options *options, hri_gemm_cache **out,
                                     hr_error *error) {
  hri_gemm_cache *cache = hri_alloc_zero(1, sizeof *cache);
  if (!cache) return hri_fail_memory(error, sizeof *cache, "matrix products");
  cache->isa = isa;
  choose_kernels(cache);
  cache->max_prepared = options && options->max_prepared ? options->max_prepared : DEFAULT_PREPARED;
#if defined(HRI_HAVE_ONEDNN)
  cache->library = (hri_gemm_library){.ask = ask_onednn};
  if (!(options && options->provider == HRI_GEMM_PORTABLE) && hri_onednn_within_isa(isa)) {
    hr_status status = hri_onednn_create(&cache->onednn, error);
    if (status != HR_OK) {
      hri_gemm_cache_destroy(cache);
      return status;
    }
    cache->library.self = cache->onednn;
  }
#endif
  *out = cache;
  return HR_OK;
}

static void release_parts(hri_gemm *gemm) {
  for (int i = 0; i < HRI_GEMM_PARTS; i++) {
#if defined(HRI_HAVE_ONEDNN)
    hri_onednn_gemm_destroy(gemm->onednn[i]);
#endif
    gemm->onednn[i] = NULL;
  }
}

void hri_gemm_cache_destroy(hri_gemm_cache *cache) {
  if (!cache) return;
  for (size_t i = 0; i < cache->entries.count; i++) {
    release_parts(cache->entries.items[i]);
    hri_free(cache->entries.items[i]);
  }
  hri_array_free(&cache->entries);
  hri_free(cache->slots);
#if defined(HRI_HAVE_ONEDNN)
  hri_onednn_destroy(cache->onednn);
#endif
  hri_free(cache);
}

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ (hash >> 29);
}

static uint64_t hash_of(const hri_gemm_shape *s) {
  uint64_t flags = (uint64_t)s->kind | (uint64_t)s->type << 8 | (uint64_t)s->out << 12 | (uint64_t)s->bias << 16 |
                   (uint64_t)s->accumulate << 17 | (uint64_t)s->packed << 18;
  return mix(mix(mix(mix(mix(0, flags), (uint64_t)s->m), (uint64_t)s->n), (uint64_t)s->k), (uint64_t)s->threads);
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

/* The entry of a shape, made when it is new. */
static hr_status find(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **out, hr_error *error) {
  hri_gemm *gemm;
  hr_status status;
  HRI_TRY(hri_gemm_shape_check(shape, error));
  HRI_TRY(reserve_entry(cache, error));
  if (*slot_of(cache, shape)) {
    *out = cache->entries.items[*slot_of(cache, shape) - 1];
    return HR_OK;
  }
  gemm = hri_alloc_zero(1, sizeof *gemm);
  if (!gemm) return hri_fail_memory(error, sizeof *gemm, "a matrix product");
  gemm->cache = cache;
  gemm->shape = *shape;
  status = hri_gemm_decide(cache->isa, cache->onednn ? &cache->library : NULL, shape, &gemm->how, error);
  if (status != HR_OK) {
    hri_free(gemm);
    return status;
  }
  *slot_of(cache, shape) = (uint32_t)(cache->entries.count + 1);
  (void)hri_array_push(&cache->entries, gemm); /* reserved above */
  *out = gemm;
  return HR_OK;
}

/* The same, refused when b should be packed and cannot. */
static hr_status find_runnable(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **gemm, hr_error *error) {
  HRI_TRY(find(cache, shape, gemm, error));
  if (!shape->packed || (*gemm)->how.packing.bytes) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "a matrix product of %lld x %lld x %lld has no packed form",
                  (long long)shape->m, (long long)shape->n, (long long)shape->k);
}

hr_status hri_gemm_workspace(hri_gemm_cache *cache, const hri_gemm_shape *shape, uint64_t *bytes, hr_error *error) {
  hri_gemm *gemm;
  HRI_TRY(find_runnable(cache, shape, &gemm, error));
  *bytes = gemm->how.scratch_bytes;
  return HR_OK;
}

/* ---- preparing ---- */

static hr_status check_prepare(const hri_gemm_cache *cache, const hri_gemm_shape *shape, hr_error *error) {
  if (shape->threads > omp_get_thread_limit()) {
    (void)hri_fail(error, HR_ERROR_USAGE, "%d threads are asked for, OpenMP is limited to %d", shape->threads,
                   omp_get_thread_limit());
    return hri_hint(error, HR_ERROR_USAGE, "use fewer threads, or raise OMP_THREAD_LIMIT");
  }
  if (cache->prepared < cache->max_prepared) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "%u different matrix products are prepared already, which is the limit",
                  cache->prepared);
}

static hr_status prepare_parts(hri_gemm *gemm, hr_error *error) {
#if defined(HRI_HAVE_ONEDNN)
  for (int i = 0; i < HRI_GEMM_PARTS && !gemm->how.portable; i++) {
    hri_gemm_shape shape = hri_gemm_part_shape(&gemm->how, &gemm->shape, &gemm->how.parts[i]);
    if (gemm->how.parts[i].pieces)
      HRI_TRY(hri_onednn_gemm_create(gemm->cache->onednn, &shape, &gemm->onednn[i], error));
  }
#else
  (void)gemm;
  (void)error;
#endif
  return HR_OK;
}

hr_status hri_gemm_prepare(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **out, hr_error *error) {
  hri_gemm *gemm;
  HRI_TRY(find_runnable(cache, shape, &gemm, error));
  if (!gemm->prepared) {
    hr_status status;
    HRI_TRY(check_prepare(cache, shape, error));
    status = prepare_parts(gemm, error);
    if (status != HR_OK) {
      release_parts(gemm);
      return status;
    }
    gemm->prepared = true;
    cache->prepared++;
  }
  *out = gemm;
  return HR_OK;
}

uint32_t hri_gemm_prepared_count(const hri_gemm_cache *cache) { return cache->prepared; }

/* ---- packing ---- */

hr_status hri_gemm_packed_bytes(hri_gemm_cache *cache, const hri_gemm_shape *shape, uint64_t *bytes, hr_error *error) {
  hri_gemm_shape packed = *shape;
  hri_gemm *gemm;
  packed.packed = true;
  HRI_TRY(find(cache, &packed, &gemm, error));
  *bytes = gemm->how.packing.bytes;
  return HR_OK;
}

hr_status hri_gemm_prepare_pack(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **gemm, hr_error *error) {
  hri_gemm_shape model = hri_gemm_pack_shape(shape);
  return find_runnable(cache, &model, gemm, error);
}

void hri_gemm_pack(const hri_gemm *gemm, const void *b, void *packed) {
  hri_gemm_product p = hri_gemm_product_of(&gemm->shape);
  hri_pack_args args = {.packing = &gemm->how.packing,
                        .type = gemm->shape.type,
                        .depth = p.depth,
                        .columns = p.columns,
                        .depth_step = p.b_depth,
                        .column_step = p.b_column,
                        .from = b,
                        .to = packed,
                        .threads = gemm->shape.threads};
  gemm->cache->pack(&args);
}

/* ---- running ---- */

#if defined(HRI_HAVE_ONEDNN)
/* Only DW has a second piece: rows of dy[M,N] and x[M,K]. */
static hr_status run_onednn(hri_gemm *gemm, const void *a, const void *b, const void *bias, void *c, void *scratch,
                            hr_error *error) {
  const hri_gemm_shape *s = &gemm->shape;
  void *sums = gemm->how.sums_bytes ? scratch : c,
       *rest = gemm->how.sums_bytes ? (unsigned char *)scratch + gemm->how.sums_bytes : scratch;
  for (int i = 0; i < HRI_GEMM_PARTS; i++)
    for (int64_t piece = 0; piece < gemm->how.parts[i].pieces; piece++) {
      HRI_TRY(hri_onednn_gemm_run(gemm->cache->onednn, gemm->onednn[i], a, b, bias, sums, rest, error));
      a = hri_real_from(a, gemm->how.parts[i].rows * s->n, s->type);
      b = hri_real_from(b, gemm->how.parts[i].rows * s->k, s->type);
    }
  if (gemm->how.sums_bytes) gemm->cache->portable.finish(sums, c, s->out, s->n * s->k, s->accumulate, s->threads);
  return HR_OK;
}
#endif

hr_status hri_gemm_run(hri_gemm *gemm, const void *a, const void *b, const void *bias, void *c, void *scratch,
                       hr_error *error) {
#if defined(HRI_HAVE_ONEDNN)
  if (!gemm->how.portable) return run_onednn(gemm, a, b, bias, c, scratch, error);
#else
  (void)error;
#endif
  gemm->cache->portable.run(&gemm->shape, a, b, bias, c, scratch);
  return HR_OK;
}

const char *hri_gemm_implementation(const hri_gemm *gemm) { return gemm->how.implementation; }

const char *hri_gemm_library_text(void) {
#if defined(HRI_HAVE_ONEDNN)
  return hri_onednn_text();
#else
  return "portable";
#endif
}
