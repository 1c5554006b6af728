/* What gemm.c knows of the two providers behind it. Private to src/backend/cpu. */
#ifndef HRI_BACKEND_CPU_GEMM_PROVIDERS_H
#define HRI_BACKEND_CPU_GEMM_PROVIDERS_H

#include "backend/cpu/gemm.h"
#include "ops/linear/pack.h"

/* ---- ours: gemm_portable.c, compiled once per instruction level ---- */

typedef struct hri_gemm_portable {
  void (*run)(const hri_gemm_shape *shape, const void *a, const void *b, const float *bias, void *c, void *scratch);
  /* c (=|+=) sums, by the team; c of type `out`. */
  void (*finish)(const float *sums, void *c, hri_real out, int64_t count, bool accumulate, int threads);
} hri_gemm_portable;

hri_gemm_portable hri_gemm_portable_base(void);
hri_gemm_portable hri_gemm_portable_avx2(void);   /* x86-64 builds only */
hri_gemm_portable hri_gemm_portable_avx512(void); /* x86-64 builds only */

/* ---- oneDNN: gemm_onednn.c, when HRI_HAVE_ONEDNN is defined ---- */

typedef struct hri_onednn hri_onednn;           /* engine and stream */
typedef struct hri_onednn_gemm hri_onednn_gemm; /* one primitive with its memory objects */

void hri_onednn_cap_isa(hri_isa isa);
/* Whether the library keeps to `isa` in this process. */
bool hri_onednn_within_isa(hri_isa isa);
const char *hri_onednn_text(void); /* "oneDNN 2.6.3" */
/* For the measurement of what the library needs (bench_pressure): the room to prove before each call; 0: none. */
void hri_onednn_set_room(uint64_t bytes);

hr_status hri_onednn_create(hri_onednn **onednn, hr_error *error);
void hri_onednn_destroy(hri_onednn *onednn);

/* What the library has for a shape, exactly as the shape stands. */
hr_status hri_onednn_query(hri_onednn *onednn, const hri_gemm_shape *shape, hri_onednn_answer *answer, hr_error *error);
hr_status hri_onednn_gemm_create(hri_onednn *onednn, const hri_gemm_shape *shape, hri_onednn_gemm **gemm,
                                 hr_error *error);
void hri_onednn_gemm_destroy(hri_onednn_gemm *gemm);
hr_status hri_onednn_gemm_run(hri_onednn *onednn, hri_onednn_gemm *gemm, const void *a, const void *b, const void *bias,
                              void *c, void *scratch, hr_error *error);

#endif
