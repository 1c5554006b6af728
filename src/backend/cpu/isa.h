/* Which of the instruction levels (ops/isa.h) this machine has, and which one a process takes. */
#ifndef HRI_BACKEND_CPU_ISA_H
#define HRI_BACKEND_CPU_ISA_H

#include "base/error.h"
#include "base/processor.h"
#include "ops/isa.h"

/* How this processor multiplies bf16 pairs. */
hri_pairs hri_cpu_pairs(void);

/* The highest level of a processor with these instructions, without what only a product can tell (AMX). */
hri_isa hri_cpu_isa_of(const hri_processor *processor);

/* The level `cap` if this processor has it, else its highest. */
hri_isa hri_cpu_isa_detect(hri_isa cap);

/* The same with the cap as text (the environment variable HEADROOM_ISA); NULL and "" do not cap. USAGE when it names no
 * level, or one that this processor does not have: a run must not silently differ from what was asked for. */
hr_status hri_cpu_isa_choose(const char *cap, hri_isa *isa, hr_error *error);

#endif
