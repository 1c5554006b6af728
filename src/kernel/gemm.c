/* Which code runs a matrix product, and what is remembered of it.
 *
 * Same bits for every team. oneDNN sums along the contraction in blocks of fixed length, whatever the team - except
 * where it has too few columns to keep the team busy: then it splits the contraction over threads. By its heuristics (as
 * of 2.6 and of a later 3.x source) and by sweeps over shapes and 1 to 16 threads with 2.6.3 and 3.2 (test_gemm.c repeats
 * a short one), that can happen only
 *   - when a is transposed (DW) and the contraction has at least 2048 terms;
 *   - in later 3.x, when it has at least 20000 terms and c has at most 512 rows and columns;
 *   - in later 3.x, when one operand is a vector and the matrix is read across its rows.
 * Whether it does depends on the number of threads, so all shapes where it could are taken from it, by shape alone:
 *   - DW is cut along M into pieces of at most PIECE_ROWS rows, each an ordinary product that adds to the one before.
 *     All operands stay contiguous; the further passes over dw cost 0 to 4 %.
 *   - The others are rare and small (heads of tiny models) and take the portable code, which has fixed blocks.
 * The portable code also serves what oneDNN would only serve with memory of its own (all of fp32 below AVX-512 in
 * 2.x), and sizes beyond 32 bits. */
#include "kernel/gemm.h"

#include <stdio.h>
#include <string.h>

#include <omp.h>

#include "base/mem.h"
#include "kernel/gemm_providers.h"

enum {
  PIECE_ROWS = 1920,        /* < 2048 */
  PIECE_UNIT = 64,          /* pieces start at multiples of it */
  LONG_CONTRACTION = 16384, /* < 20000 */
  SMALL_SIDE = 512,
  PART_COUNT = 3,
  DEFAULT_PREPARED = 4096
};

/* Some equal pieces of a product along M, in order. */
typedef struct part {
  int64_t pieces, rows;
  bool accumulate;
  hri_onednn_gemm *onednn;
} part;

struct hri_gemm {
  hri_gemm_cache *cache;
  hri_gemm_shape shape;
  uint64_t scratch_bytes;
  bool portable, prepared;
  part parts[PART_COUNT]; /* of oneDNN: the first piece, those between, the last */
  char implementation[48];
};

struct hri_gemm_cache {
  hri_isa isa;
  hri_gemm_portable portable;
  hri_onednn *onednn; /* NULL: not used */
  HRI_ARRAY(hri_gemm *) entries;
  uint32_t *slots; /* hash table of entry index + 1, open addressing; `slot_count` is a power of two */
  uint32_t slot_count, prepared, max_prepared;
};

/* ---- cache ---- */

static hri_gemm_portable portable_of(hri_isa isa) {
#if defined(__x86_64__)
  if (isa == HRI_ISA_AVX512) return hri_gemm_portable_avx512();
  if (isa == HRI_ISA_AVX2) return hri_gemm_portable_avx2();
#else
  (void)isa;
#endif
  return hri_gemm_portable_base();
}

hr_status hri_gemm_cache_create(hri_isa isa, hri_gemm_cache **cache, hr_error *error) {
  return hri_gemm_cache_create_with(isa, NULL, cache, error);
}

hr_status hri_gemm_cache_create_with(hri_isa isa, const hri_gemm_options *options, hri_gemm_cache **out, hr_error *error) {
  hri_gemm_cache *cache = hri_alloc_zero(1, sizeof *cache);
  if (!cache) return hri_fail_memory(error, sizeof *cache, "matrix products");
  cache->isa = isa;
  cache->portable = portable_of(isa);
  cache->max_prepared = options && options->max_prepared ? options->max_prepared : DEFAULT_PREPARED;
#if defined(HRI_HAVE_ONEDNN)
  if (!(options && options->provider == HRI_GEMM_PORTABLE) && hri_onednn_within_isa(isa)) {
    hr_status status = hri_onednn_create(&cache->onednn, error);
    if (status != HR_OK) {
      hri_gemm_cache_destroy(cache);
      return status;
    }
  }
#endif
  *out = cache;
  return HR_OK;
}

static void release_parts(hri_gemm *gemm) {
  for (int i = 0; i < PART_COUNT; i++) {
#if defined(HRI_HAVE_ONEDNN)
    hri_onednn_gemm_destroy(gemm->parts[i].onednn);
#endif
    gemm->parts[i].onednn = NULL;
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
  uint64_t flags = (uint64_t)s->kind | (uint64_t)s->dtype << 8 | (uint64_t)s->bias << 16 | (uint64_t)s->accumulate << 17;
  return mix(mix(mix(mix(mix(0, flags), (uint64_t)s->m), (uint64_t)s->n), (uint64_t)s->k), (uint64_t)s->threads);
}

static bool same(const hri_gemm_shape *a, const hri_gemm_shape *b) {
  return a->kind == b->kind && a->dtype == b->dtype && a->m == b->m && a->n == b->n && a->k == b->k && a->bias == b->bias &&
         a->accumulate == b->accumulate && a->threads == b->threads;
}

/* The slot of a shape, or the free one where it belongs. */
static uint32_t *slot_of(const hri_gemm_cache *cache, const hri_gemm_shape *shape) {
  uint32_t at = (uint32_t)hash_of(shape) & (cache->slot_count - 1);
  while (cache->slots[at] && !same(&cache->entries.items[cache->slots[at] - 1]->shape, shape)) at = (at + 1) & (cache->slot_count - 1);
  return &cache->slots[at];
}

/* Room for one more entry at a load of at most one half. */
static hr_status reserve_entry(hri_gemm_cache *cache, hr_error *error) {
  uint32_t count = cache->slot_count ? cache->slot_count * 2 : 256, *slots;
  if (!hri_array_reserve(&cache->entries, cache->entries.count + 1)) return hri_fail_memory(error, sizeof(hri_gemm *), "matrix products");
  if ((cache->entries.count + 1) * 2 <= cache->slot_count) return HR_OK;
  slots = hri_alloc_zero(count, sizeof *slots);
  if (!slots) return hri_fail_memory(error, count * sizeof *slots, "matrix products");
  hri_free(cache->slots);
  cache->slots = slots;
  cache->slot_count = count;
  for (size_t i = 0; i < cache->entries.count; i++) *slot_of(cache, &cache->entries.items[i]->shape) = (uint32_t)(i + 1);
  return HR_OK;
}

/* ---- deciding ---- */

static bool fits(int64_t a, int64_t b) {
  uint64_t bytes;
  return hri_mul((uint64_t)a, (uint64_t)b, &bytes) && hri_mul(bytes, sizeof(float), &bytes) && bytes <= INT64_MAX;
}

static hr_status check_shape(const hri_gemm_shape *s, hr_error *error) {
  if ((unsigned)s->kind >= HRI_GEMM_KIND_COUNT || s->dtype != HRI_GEMM_F32 || s->m < 1 || s->n < 1 || s->k < 1 || s->threads < 1 ||
      (s->bias && s->kind != HRI_GEMM_FORWARD))
    return hri_fail(error, HR_ERROR_INTERNAL, "matrix product: kind %d, dtype %d, %lld x %lld x %lld, bias %d, %d threads is no shape",
                    (int)s->kind, (int)s->dtype, (long long)s->m, (long long)s->n, (long long)s->k, (int)s->bias, s->threads);
  if (!fits(s->m, s->n) || !fits(s->m, s->k) || !fits(s->n, s->k))
    return hri_fail(error, HR_ERROR_USAGE, "matrix product: %lld x %lld x %lld does not fit the address space", (long long)s->m,
                    (long long)s->n, (long long)s->k);
  return HR_OK;
}

#if defined(HRI_HAVE_ONEDNN)
/* Whether the library's bits could depend on the team (see the top), cutting aside; or its 32-bit sizes overflow. */
static bool unsuited(const hri_gemm_shape *s) {
  hri_gemm_product p = hri_gemm_product_of(s);
  bool vector = s->kind == HRI_GEMM_DX ? p.rows == 1 : s->kind == HRI_GEMM_DW && (p.rows == 1 || p.columns == 1);
  bool split = s->kind != HRI_GEMM_DW && p.depth >= LONG_CONTRACTION && p.rows <= SMALL_SIDE && p.columns <= SMALL_SIDE;
  return vector || split || s->m > INT32_MAX / s->n || s->m > INT32_MAX / s->k || s->n > INT32_MAX / s->k;
}

/* Fills the pieces: all of M, or cut as described at the top. */
static void cut(hri_gemm *gemm) {
  const hri_gemm_shape *s = &gemm->shape;
  int64_t pieces = (s->m + PIECE_ROWS - 1) / PIECE_ROWS, rows = s->m;
  if (s->kind != HRI_GEMM_DW) pieces = 1;
  if (pieces > 1) {
    rows = (int64_t)hri_round_up((uint64_t)((s->m + pieces - 1) / pieces), PIECE_UNIT);
    pieces = (s->m + rows - 1) / rows;
  }
  gemm->parts[0] = (part){.pieces = 1, .rows = pieces > 1 ? rows : s->m, .accumulate = s->accumulate};
  gemm->parts[1] = (part){.pieces = pieces > 2 ? pieces - 2 : 0, .rows = rows, .accumulate = true};
  gemm->parts[2] = (part){.pieces = pieces > 1, .rows = s->m - (pieces - 1) * rows, .accumulate = true};
}

static hri_gemm_shape part_shape(const hri_gemm *gemm, const part *p) {
  hri_gemm_shape shape = gemm->shape;
  shape.m = p->rows;
  shape.accumulate = p->accumulate;
  return shape;
}

/* Asks the library for every part; *served only when it has them all. */
static hr_status decide_onednn(hri_gemm *gemm, bool *served, hr_error *error) {
  *served = true;
  cut(gemm);
  for (int i = 0; i < PART_COUNT && *served; i++) {
    hri_gemm_shape shape = part_shape(gemm, &gemm->parts[i]);
    uint64_t bytes = 0;
    if (!gemm->parts[i].pieces) continue;
    HRI_TRY(hri_onednn_query(gemm->cache->onednn, &shape, served, &bytes, gemm->implementation, sizeof gemm->implementation, error));
    if (bytes > gemm->scratch_bytes) gemm->scratch_bytes = bytes;
  }
  return HR_OK;
}
#endif

static hr_status decide(hri_gemm *gemm, hr_error *error) {
  const hri_gemm_cache *cache = gemm->cache;
#if defined(HRI_HAVE_ONEDNN)
  if (cache->onednn && !unsuited(&gemm->shape)) {
    bool served = false;
    HRI_TRY(decide_onednn(gemm, &served, error));
    if (served) return HR_OK;
  }
#endif
  gemm->portable = true;
  gemm->scratch_bytes = cache->portable.scratch_bytes(&gemm->shape);
  (void)snprintf(gemm->implementation, sizeof gemm->implementation, "portable:%s", hri_isa_name(cache->isa));
  return gemm->scratch_bytes < INT64_MAX ? HR_OK : hri_fail(error, HR_ERROR_USAGE, "the scratch of a matrix product does not fit 64 bits");
}

/* The entry of a shape, made when it is new. */
static hr_status find(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **out, hr_error *error) {
  hri_gemm *gemm;
  hr_status status;
  HRI_TRY(check_shape(shape, error));
  HRI_TRY(reserve_entry(cache, error));
  if (*slot_of(cache, shape)) {
    *out = cache->entries.items[*slot_of(cache, shape) - 1];
    return HR_OK;
  }
  gemm = hri_alloc_zero(1, sizeof *gemm);
  if (!gemm) return hri_fail_memory(error, sizeof *gemm, "a matrix product");
  gemm->cache = cache;
  gemm->shape = *shape;
  status = decide(gemm, error);
  if (status != HR_OK) {
    hri_free(gemm);
    return status;
  }
  *slot_of(cache, shape) = (uint32_t)(cache->entries.count + 1);
  (void)hri_array_push(&cache->entries, gemm); /* reserved above */
  *out = gemm;
  return HR_OK;
}

hr_status hri_gemm_workspace(hri_gemm_cache *cache, const hri_gemm_shape *shape, uint64_t *bytes, hr_error *error) {
  hri_gemm *gemm;
  HRI_TRY(find(cache, shape, &gemm, error));
  *bytes = gemm->scratch_bytes;
  return HR_OK;
}

/* ---- preparing ---- */

static hr_status check_prepare(const hri_gemm_cache *cache, const hri_gemm_shape *shape, hr_error *error) {
  if (shape->threads > omp_get_thread_limit()) {
    (void)hri_fail(error, HR_ERROR_USAGE, "%d threads are asked for, OpenMP is limited to %d", shape->threads, omp_get_thread_limit());
    return hri_hint(error, HR_ERROR_USAGE, "use fewer threads, or raise OMP_THREAD_LIMIT");
  }
  if (cache->prepared < cache->max_prepared) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "%u different matrix products are prepared already, which is the limit", cache->prepared);
}

static hr_status prepare_parts(hri_gemm *gemm, hr_error *error) {
#if defined(HRI_HAVE_ONEDNN)
  for (int i = 0; i < PART_COUNT && !gemm->portable; i++) {
    hri_gemm_shape shape = part_shape(gemm, &gemm->parts[i]);
    if (gemm->parts[i].pieces) HRI_TRY(hri_onednn_gemm_create(gemm->cache->onednn, &shape, &gemm->parts[i].onednn, error));
  }
#else
  (void)gemm;
  (void)error;
#endif
  return HR_OK;
}

hr_status hri_gemm_prepare(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **out, hr_error *error) {
  hri_gemm *gemm;
  HRI_TRY(find(cache, shape, &gemm, error));
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

/* ---- running ---- */

hr_status hri_gemm_run(hri_gemm *gemm, const void *a, const void *b, const void *bias, void *c, void *scratch, hr_error *error) {
#if defined(HRI_HAVE_ONEDNN)
  const float *a_rows = a, *b_rows = b;
  for (int i = 0; i < PART_COUNT && !gemm->portable; i++)
    for (int64_t piece = 0; piece < gemm->parts[i].pieces; piece++) {
      HRI_TRY(hri_onednn_gemm_run(gemm->cache->onednn, gemm->parts[i].onednn, a_rows, b_rows, bias, c, scratch, error));
      a_rows += gemm->parts[i].rows * gemm->shape.n; /* only DW has a second piece: dy[M,N] and x[M,K] */
      b_rows += gemm->parts[i].rows * gemm->shape.k;
    }
#else
  (void)error;
#endif
  if (gemm->portable) gemm->cache->portable.run(&gemm->shape, a, b, bias, c, scratch);
  return HR_OK;
}

const char *hri_gemm_implementation(const hri_gemm *gemm) { return gemm->implementation; }

const char *hri_gemm_library_text(void) {
#if defined(HRI_HAVE_ONEDNN)
  return hri_onednn_text();
#else
  return "portable";
#endif
}
