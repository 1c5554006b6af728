/* Matrix products of linear layers: shapes, kinds and operands are those of ops/linear/product.h.
 *
 * a and b are both fp32 or both bf16, the bias always fp32. c is fp32, or bf16 where a and b are; sums are in fp32 and
 * a bf16 result is rounded once, at the end. (The processors' bf16 instructions read and give subnormals as zero;
 * multiply-adds keep them.) Accumulating into bf16 is refused: it would round at every step.
 *
 * They are computed by multiply-adds, by the bf16 dot instruction or by tiles of bf16 (docs/decisions/0011). Which, and
 * all the scratch it needs, follows from the shape, the team, the instruction set, the processor's class and the table;
 * nothing is allocated in hri_gemm_run.
 *
 * Bits depend neither on threads nor on packing: each element is one chain of operations, terms ascending (gemm_ours.c),
 * so they do not depend on the rows and columns computed together either, except that FORWARD with few rows
 * (hri_gemm_takes_dots) sums in another order; by multiply-adds they are equal on AVX2, AVX-512 and NEON. */
#ifndef HRI_BACKEND_CPU_GEMM_H
#define HRI_BACKEND_CPU_GEMM_H

#include <stdint.h>

#include "base/error.h"
#include "backend/cpu/isa.h"
#include "ops/linear/product.h"
#include "team/team.h"

typedef enum hri_gemm_provider {
  HRI_GEMM_AUTO = 0,
  /* One code for all (tests, comparisons); what it cannot do goes by multiply-adds. */
  HRI_GEMM_BY_FMA,
  HRI_GEMM_BY_DOT,
  HRI_GEMM_BY_TILES,
  HRI_GEMM_PROVIDER_COUNT
} hri_gemm_provider;

typedef struct hri_gemm_cache hri_gemm_cache; /* what was decided of shapes */
typedef struct hri_gemm hri_gemm;             /* a shape that can be run; lives as long as its cache */

/* `isa` as chosen by isa.h. A cache is for one thread at a time. MEMORY. */
hr_status hri_gemm_cache_create(hri_isa isa, hri_gemm_provider provider, hri_gemm_cache **cache, hr_error *error);
/* Another table than the shipped one, for all that is decided by HRI_GEMM_AUTO; before anything was decided. */
void hri_gemm_cache_choose(hri_gemm_cache *cache, const hri_gemm_table *table);
void hri_gemm_cache_destroy(hri_gemm_cache *cache);

/* The exact bytes of scratch of the very code that will run; remembered. */
hr_status hri_gemm_workspace(hri_gemm_cache *cache, const hri_gemm_shape *shape, uint64_t *bytes, hr_error *error);

/* The same shape gives the same gemm. INTERNAL when it is no shape, USAGE when b should be packed and cannot. */
hr_status hri_gemm_prepare(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **gemm, hr_error *error);

/* Runs it, by a team of at most shape.threads (NULL: the calling thread). `bias` is read when the shape has one;
 * `scratch` may be NULL when it needs none; c overlaps no other operand. Several may run at once. */
void hri_gemm_run(const hri_gemm *gemm, hri_team *team, const void *a, const void *b, const void *bias, void *c,
                  void *scratch);

/* ---- packed b ----
 *
 * A product reads its b in panels. Packing it once spares every product that reads it the gathering. The packed form
 * depends on kind, type, the dimensions of b and the code; not on the rest of the shape. */

/* Bytes of packed b for this shape (`packed` itself is not looked at), at HRI_GEMM_ALIGNMENT; 0: it takes plain b
 * only. */
hr_status hri_gemm_packed_bytes(hri_gemm_cache *cache, const hri_gemm_shape *shape, uint64_t *bytes, hr_error *error);

/* What packs; of the shape only what the packed form depends on is looked at. USAGE when there is no packed form. */
hr_status hri_gemm_prepare_pack(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **gemm, hr_error *error);
/* Packs plain b (w or x) by the team; no scratch. For a gemm of hri_gemm_prepare_pack or of a packed shape. */
void hri_gemm_pack(const hri_gemm *gemm, hri_team *team, const void *b, void *packed);

/* What computes a shape, for reports and tests: "fma:avx2", "dot:avx512bf16", "tiles:amx". Lives with the cache. */
const char *hri_gemm_implementation(const hri_gemm *gemm);

#endif
