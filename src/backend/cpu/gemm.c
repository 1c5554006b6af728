/* Which code runs a matrix product, and what is remembered of it.
 *
 * Same bits for every team. oneDNN sums along the contraction in blocks of fixed length, whatever the team - except
 * where it splits the contraction over threads. By its heuristics (in its sources from 2.5 to 3.x) and by sweeps over
 * shapes and 1 to 16 threads with 2.6.3 (test_gemm.c repeats a short one), that can happen only
 *   - when a is transposed (DW), the contraction has at least 2048 terms, and the team is larger than the number of
 *     column blocks of c. The library sums such a product in blocks of 512 terms. Hence a team that large runs it as
 *     that many products, each added to the one before: the very same sums.
 *   - in later 3.x, when the contraction has at least 20000 terms and c has at most 512 rows and columns;
 *   - in later 3.x, when one operand is a vector and the matrix is read across its rows;
 *   - with AMX, when the contraction has more than 1024 terms and the team 16 threads or more.
 * The second and third are rare and small (heads of tiny models) and take the portable code, which has fixed blocks; for
 * the last the library gets no more than 15 threads.
 *
 * The portable code also serves what oneDNN would only serve with memory of its own (all of fp32 below AVX-512 in 2.x,
 * bf16 without AVX512_BF16), sizes beyond 32 bits, and products of few rows.
 *
 * Packed b: what the library reads is asked for once per shape and described to our own packing kernel. */
#include "backend/cpu/gemm.h"

#include <stdio.h>
#include <string.h>

#include <omp.h>

#include "base/mem.h"
#include "backend/cpu/gemm_providers.h"

enum {
  BLOCK_TERMS = 512,        /* of the library's sums in DW */
  SPLIT_TERMS = 2048,       /* from here on it may split them */
  COLUMN_BLOCK = 64,        /* its widest block of columns */
  AMX_TERMS = 1024,
  AMX_TEAM = 15,
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
  uint64_t sums_bytes, scratch_bytes; /* the first part of the scratch: fp32 sums of pieces, when c cannot take them */
  bool portable, prepared;
  int library_threads;
  part parts[PART_COUNT]; /* of oneDNN: the first piece, those between, the last */
  hri_packing packing;    /* of a packed shape; no bytes: it has no packed form */
  char implementation[48];
};

struct hri_gemm_cache {
  hri_isa isa;
  hri_gemm_portable portable;
  hri_pack_kernel pack;
  hri_onednn *onednn; /* NULL: not used */
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
  if (cache->isa >= HRI_ISA_AVX512) cache->portable = hri_gemm_portable_avx512(), cache->pack = hri_pack_kernel_avx512();
#endif
}

hr_status hri_gemm_cache_create(hri_isa isa, hri_gemm_cache **cache, hr_error *error) {
  return hri_gemm_cache_create_with(isa, NULL, cache, error);
}

hr_status hri_gemm_cache_create_with(hri_isa isa, const hri_gemm_options *options, hri_gemm_cache **out, hr_error *error) {
  hri_gemm_cache *cache = hri_alloc_zero(1, sizeof *cache);
  if (!cache) return hri_fail_memory(error, sizeof *cache, "matrix products");
  cache->isa = isa;
  choose_kernels(cache);
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
  uint64_t flags = (uint64_t)s->kind | (uint64_t)s->type << 8 | (uint64_t)s->out << 12 | (uint64_t)s->bias << 16 |
                   (uint64_t)s->accumulate << 17 | (uint64_t)s->packed << 18;
  return mix(mix(mix(mix(mix(0, flags), (uint64_t)s->m), (uint64_t)s->n), (uint64_t)s->k), (uint64_t)s->threads);
}

static bool same(const hri_gemm_shape *a, const hri_gemm_shape *b) {
  return a->kind == b->kind && a->type == b->type && a->out == b->out && a->m == b->m && a->n == b->n && a->k == b->k &&
         a->bias == b->bias && a->accumulate == b->accumulate && a->packed == b->packed && a->threads == b->threads;
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

static bool types_fit(const hri_gemm_shape *s) {
  bool known = (s->type == HRI_REAL_F32 || s->type == HRI_REAL_BF16) && (s->out == HRI_REAL_F32 || s->out == s->type);
  return known && !(s->accumulate && s->out != HRI_REAL_F32);
}

static hr_status check_shape(const hri_gemm_shape *s, hr_error *error) {
  if ((unsigned)s->kind >= HRI_GEMM_KIND_COUNT || !types_fit(s) || s->m < 1 || s->n < 1 || s->k < 1 || s->threads < 1 ||
      (s->bias && s->kind != HRI_GEMM_FORWARD))
    return hri_fail(error, HR_ERROR_INTERNAL, "matrix product: kind %d, types %d to %d, %lld x %lld x %lld, bias %d, accumulate %d, %d threads is no shape",
                    (int)s->kind, (int)s->type, (int)s->out, (long long)s->m, (long long)s->n, (long long)s->k, (int)s->bias,
                    (int)s->accumulate, s->threads);
  if (!fits(s->m, s->n) || !fits(s->m, s->k) || !fits(s->n, s->k))
    return hri_fail(error, HR_ERROR_USAGE, "matrix product: %lld x %lld x %lld does not fit the address space", (long long)s->m,
                    (long long)s->n, (long long)s->k);
  return HR_OK;
}

#if defined(HRI_HAVE_ONEDNN)
/* Whether the library's bits could depend on the team (see the top) in ways that cutting does not help, or its 32-bit
 * sizes overflow; or ours is faster. */
static bool unsuited(const hri_gemm_shape *s) {
  hri_gemm_product p = hri_gemm_product_of(s);
  bool vector = s->kind == HRI_GEMM_DX ? p.rows == 1 : s->kind == HRI_GEMM_DW && (p.rows == 1 || p.columns == 1);
  bool split = p.depth >= LONG_CONTRACTION && p.rows <= SMALL_SIDE && p.columns <= SMALL_SIDE;
  bool overflow = s->m > INT32_MAX / s->n || s->m > INT32_MAX / s->k || s->n > INT32_MAX / s->k;
  return hri_gemm_dots_are_faster(s) || vector || split || overflow;
}

static bool may_split(const hri_gemm_shape *s) {
  return s->kind == HRI_GEMM_DW && s->m >= SPLIT_TERMS && s->threads > (hri_gemm_product_of(s).columns + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
}

/* All of M in one piece, or in the library's own blocks. */
static void cut(hri_gemm *gemm, int64_t rows) {
  const hri_gemm_shape *s = &gemm->shape;
  int64_t pieces = (s->m + rows - 1) / rows;
  bool apart = pieces > 1 && (s->accumulate || s->out != HRI_REAL_F32);
  gemm->sums_bytes = apart ? hri_round_up((uint64_t)(s->n * s->k) * sizeof(float), HRI_GEMM_ALIGNMENT) : 0;
  gemm->parts[0] = (part){.pieces = 1, .rows = rows, .accumulate = s->accumulate && !apart};
  gemm->parts[1] = (part){.pieces = pieces > 2 ? pieces - 2 : 0, .rows = rows, .accumulate = true};
  gemm->parts[2] = (part){.pieces = pieces > 1, .rows = s->m - (pieces - 1) * rows, .accumulate = true};
}

static hri_gemm_shape part_shape(const hri_gemm *gemm, const part *p) {
  hri_gemm_shape shape = gemm->shape;
  shape.m = p->rows;
  shape.accumulate = p->accumulate;
  shape.threads = gemm->library_threads;
  if (gemm->sums_bytes) shape.out = HRI_REAL_F32;
  return shape;
}

/* Asks the library for every part; *served only when it has them all. */
static hr_status ask(hri_gemm *gemm, bool *served, hr_error *error) {
  gemm->scratch_bytes = 0;
  *served = true;
  for (int i = 0; i < PART_COUNT && *served; i++) {
    hri_gemm_shape shape = part_shape(gemm, &gemm->parts[i]);
    hri_onednn_answer answer;
    if (!gemm->parts[i].pieces) continue;
    HRI_TRY(hri_onednn_query(gemm->cache->onednn, &shape, &answer, error));
    *served = answer.served;
    gemm->packing = answer.packing;
    memcpy(gemm->implementation, answer.name, sizeof answer.name);
    if (answer.scratch_bytes > gemm->scratch_bytes) gemm->scratch_bytes = answer.scratch_bytes;
  }
  return hri_add(gemm->scratch_bytes, gemm->sums_bytes, &gemm->scratch_bytes)
             ? HR_OK
             : hri_fail(error, HR_ERROR_USAGE, "the scratch of a matrix product does not fit 64 bits");
}

static hr_status decide_onednn(hri_gemm *gemm, bool *served, hr_error *error) {
  const hri_gemm_shape *s = &gemm->shape;
  gemm->library_threads = s->threads;
  cut(gemm, s->m);
  HRI_TRY(ask(gemm, served, error));
  if (!*served) return HR_OK;
  if (strstr(gemm->implementation, "amx")) {
    if (s->threads <= AMX_TEAM || hri_gemm_product_of(s).depth <= AMX_TERMS) return HR_OK;
    gemm->library_threads = AMX_TEAM;
    return ask(gemm, served, error);
  }
  if (!may_split(s)) return HR_OK;
  *served = !s->packed; /* a piece of packed b is not contiguous */
  if (s->packed) return HR_OK;
  cut(gemm, BLOCK_TERMS);
  return ask(gemm, served, error);
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
  gemm->packing.bytes = 0;
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

/* The same, refused when b should be packed and cannot. */
static hr_status find_runnable(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **gemm, hr_error *error) {
  HRI_TRY(find(cache, shape, gemm, error));
  if (!shape->packed || (*gemm)->packing.bytes) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "a matrix product of %lld x %lld x %lld has no packed form", (long long)shape->m, (long long)shape->n,
                  (long long)shape->k);
}

hr_status hri_gemm_workspace(hri_gemm_cache *cache, const hri_gemm_shape *shape, uint64_t *bytes, hr_error *error) {
  hri_gemm *gemm;
  HRI_TRY(find_runnable(cache, shape, &gemm, error));
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
  *bytes = gemm->packing.bytes;
  return HR_OK;
}

hr_status hri_gemm_prepare_pack(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **gemm, hr_error *error) {
  hri_gemm_shape model = hri_gemm_pack_shape(shape);
  return find_runnable(cache, &model, gemm, error);
}

void hri_gemm_pack(const hri_gemm *gemm, const void *b, void *packed) {
  hri_gemm_product p = hri_gemm_product_of(&gemm->shape);
  hri_pack_args args = {.packing = &gemm->packing, .type = gemm->shape.type, .depth = p.depth, .columns = p.columns,
                        .depth_step = p.b_depth, .column_step = p.b_column, .from = b, .to = packed, .threads = gemm->shape.threads};
  gemm->cache->pack(&args);
}

/* ---- running ---- */

#if defined(HRI_HAVE_ONEDNN)
/* Only DW has a second piece: rows of dy[M,N] and x[M,K]. */
static hr_status run_onednn(hri_gemm *gemm, const void *a, const void *b, const void *bias, void *c, void *scratch, hr_error *error) {
  const hri_gemm_shape *s = &gemm->shape;
  void *sums = gemm->sums_bytes ? scratch : c, *rest = gemm->sums_bytes ? (unsigned char *)scratch + gemm->sums_bytes : scratch;
  for (int i = 0; i < PART_COUNT; i++)
    for (int64_t piece = 0; piece < gemm->parts[i].pieces; piece++) {
      HRI_TRY(hri_onednn_gemm_run(gemm->cache->onednn, gemm->parts[i].onednn, a, b, bias, sums, rest, error));
      a = hri_real_from(a, gemm->parts[i].rows * s->n, s->type);
      b = hri_real_from(b, gemm->parts[i].rows * s->k, s->type);
    }
  if (gemm->sums_bytes) gemm->cache->portable.finish(sums, c, s->out, s->n * s->k, s->accumulate, s->threads);
  return HR_OK;
}
#endif

hr_status hri_gemm_run(hri_gemm *gemm, const void *a, const void *b, const void *bias, void *c, void *scratch, hr_error *error) {
#if defined(HRI_HAVE_ONEDNN)
  if (!gemm->portable) return run_onednn(gemm, a, b, bias, c, scratch, error);
#else
  (void)error;
#endif
  gemm->cache->portable.run(&gemm->shape, a, b, bias, c, scratch);
  return HR_OK;
}

/* Packing costs two passes over b; the product saves its own gathering, which it repeats for every few rows of c. Measured
 * with 1024 tokens on a 2-core Zen 4 (oneDNN 2.6.3, bench_gemm, one thread, layers and vocabularies of GPT-2 124M and
 * SmolLM2-135M), packed against plain, without the packing / with it:
 *   fp32  forward +1 to +7 / -4 to +4 %   dx +2 to +10 / -2 to +6 %   vocabulary dx +10 to +35 / +5 to +34 %   dW -1 to +8 / -5 to +5 %
 *   bf16  forward +2 to +8 / +1 to +5 %, with 1024 terms or more 0 to +5 / -3 to +1 %   dx +5 to +16 / +2 to +11 %   dW +3 to +9 / +1 to +7 %
 * The packing's share falls with the rows of c: from how many on at least 1.5 % remain for most. */
bool hri_gemm_packing_pays(const hri_gemm_shape *s) {
  enum { NEVER = -1, LONG_SUMS = 1024 };
  static const int64_t least_rows[HRI_GEMM_KIND_COUNT][2] = {[HRI_GEMM_FORWARD] = {2048, 1024}, [HRI_GEMM_DX] = {1024, 512}, [HRI_GEMM_DW] = {NEVER, 512}};
  hri_gemm_product p = hri_gemm_product_of(s);
  int64_t least = least_rows[s->kind][s->type == HRI_REAL_BF16];
  if (s->kind == HRI_GEMM_FORWARD && p.depth >= LONG_SUMS) return false;
  return least != NEVER && p.rows >= least;
}

const char *hri_gemm_implementation(const hri_gemm *gemm) { return gemm->implementation; }

const char *hri_gemm_library_text(void) {
#if defined(HRI_HAVE_ONEDNN)
  return hri_onednn_text();
#else
  return "portable";
#endif
}
