/* Which of the instruction levels (ops/isa.h) this machine has, and which one a process takes. */
#ifndef HRI_BACKEND_CPU_ISA_H
#define HRI_BACKEND_CPU_ISA_H

#include "base/error.h"
#include "ops/isa.h"

/* The highest level that this processor has, at most `cap`. The GEMM library is held to the same level, which works
 * only before its first use in the process; hri_gemm_cache_create looks whether it did. */
hri_isa hri_cpu_isa_detect(hri_isa cap);

/* The same with the cap as text (the environment variable HEADROOM_ISA); NULL and "" do not cap. USAGE when it names no
 * level, or one that this processor does not have: a run must not silently differ from what was asked for. */
hr_status hri_cpu_isa_choose(const char *cap, hri_isa *isa, hr_error *error);

#endif
