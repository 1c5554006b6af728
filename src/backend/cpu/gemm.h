/* Matrix products of linear layers: shapes, kinds and operands are those of ops/linear/product.h.
 *
 * a and b are both fp32 or both bf16, the bias always fp32. c is fp32, or bf16 where a and b are; sums are in fp32 and
 * a bf16 result is rounded once, at the end. (The library's bf16 instructions read and give subnormals as zero; ours
 * keeps them.) Accumulating into bf16 is refused: it would round at every step.
 *
 * A provider computes them: oneDNN where it was built in and has a kernel that needs no memory of its own, else code of
 * ours. Which one, and all the scratch it needs, follows from the shape, the team, the instruction set and the library
 * version; nothing of size is allocated in hri_gemm_run (oneDNN makes a few allocations of some hundred bytes).
 *
 * Bits do not depend on `threads` (see ops/linear/product.c for what that takes). They may depend on everything else in
 * the shape: running M in row chunks promises nothing. */
#ifndef HRI_BACKEND_CPU_GEMM_H
#define HRI_BACKEND_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "backend/cpu/isa.h"
#include "ops/linear/product.h"

typedef enum hri_gemm_provider {
  HRI_GEMM_AUTO = 0, /* oneDNN where it serves the shape, else portable */
  HRI_GEMM_PORTABLE  /* ours only (tests, comparisons) */
} hri_gemm_provider;

typedef struct hri_gemm_options {
  hri_gemm_provider provider;
  uint32_t max_prepared; /* most shapes that may be prepared; 0: 4096 */
} hri_gemm_options;

typedef struct hri_gemm_cache hri_gemm_cache; /* what is known of shapes, and what was prepared */
typedef struct hri_gemm hri_gemm;             /* a prepared shape; lives as long as its cache */

/* The library does not survive to be refused memory: it is called only where this much more could be had, else the
 * answer is
 * BUDGET. More than twice the most that one call was measured to need (3.44 MiB; docs/memory-model.md, "Room for
 * libraries"). */
enum { HRI_GEMM_ROOM_BYTES = 8 << 20 };

/* `isa` as chosen by isa.h. When the library was used at a higher level before in this process, it is left out.
 * The options may be NULL. A cache is for one thread at a time. */
hr_status hri_gemm_cache_create(hri_isa isa, hri_gemm_cache **cache, hr_error *error);
hr_status hri_gemm_cache_create_with(hri_isa isa, const hri_gemm_options *options, hri_gemm_cache **cache,
                                     hr_error *error);
void hri_gemm_cache_destroy(hri_gemm_cache *cache);

/* The exact bytes of scratch of the very code that will run. Cheap, no code is generated, and remembered. */
hr_status hri_gemm_workspace(hri_gemm_cache *cache, const hri_gemm_shape *shape, uint64_t *bytes, hr_error *error);

/* Makes what a shape needs to run; the same shape gives the same gemm. USAGE when the cache is full, or when OpenMP
 * cannot give `threads` threads. */
hr_status hri_gemm_prepare(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **gemm, hr_error *error);
uint32_t hri_gemm_prepared_count(const hri_gemm_cache *cache);

/* Runs it. `bias` is read when the shape has one; `scratch` may be NULL when it needs none; c overlaps no other
 * operand.
 * One call at a time for one gemm; different ones may run at once. */
hr_status hri_gemm_run(hri_gemm *gemm, const void *a, const void *b, const void *bias, void *c, void *scratch,
                       hr_error *error);

/* ---- packed b ----
 *
 * A product reads its b in blocks. Where the provider can take b in that order to begin with, packing it once saves the
 * product from gathering it. The bits of the result are those of plain operands. The packed form depends on kind, type,
 * the dimensions of b and the team (and library and instruction set); not on the rest of the shape. */

/* Bytes of packed b for this shape (`packed` itself is not looked at), at HRI_GEMM_ALIGNMENT; 0: it takes plain b
 * only. */
hr_status hri_gemm_packed_bytes(hri_gemm_cache *cache, const hri_gemm_shape *shape, uint64_t *bytes, hr_error *error);

/* Makes what packing needs: knowledge of the layout, no code. Of the shape only what the packed form depends on is
 * looked at. USAGE when there is no packed form. */
hr_status hri_gemm_prepare_pack(hri_gemm_cache *cache, const hri_gemm_shape *shape, hri_gemm **gemm, hr_error *error);
/* Packs plain b (w or x) by the team; no scratch. For a gemm of hri_gemm_prepare_pack or of a packed shape. */
void hri_gemm_pack(const hri_gemm *gemm, const void *b, void *packed);

/* What computes a prepared shape, for reports and tests: "brg:avx512_core", "portable:avx2". Lives with the cache. */
const char *hri_gemm_implementation(const hri_gemm *gemm);

/* The library and its version for the job record: "oneDNN 2.6.3", or "portable". Never NULL. */
const char *hri_gemm_library_text(void);

#endif
