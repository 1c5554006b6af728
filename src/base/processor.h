/* What instructions the processor has, of those that some code is compiled for beside its plain form. */
#ifndef HRI_BASE_PROCESSOR_H
#define HRI_BASE_PROCESSOR_H

#include <stdbool.h>

/* Of x86-64, with registers that the operating system keeps; elsewhere none. */
typedef struct hri_processor {
  bool avx2, fma, f16c;
  bool avx512f, avx512bw, avx512dq, avx512vl, avx512bf16;
} hri_processor;

hri_processor hri_processor_now(void);

/* All that the kernels of a level are compiled with (HR_FLAGS_avx2 and HR_FLAGS_avx512 of CMakeLists.txt): a virtual machine may
 * withhold any of it. */
static inline bool hri_processor_has_avx2(const hri_processor *p) { return p->avx2 && p->fma && p->f16c; }
static inline bool hri_processor_has_avx512(const hri_processor *p) {
  return hri_processor_has_avx2(p) && p->avx512f && p->avx512bw && p->avx512dq && p->avx512vl;
}

#endif
