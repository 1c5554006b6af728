/* The search for a cheaper way to do the same job: alternatives are jobs, compared as drafts of plans (plan/plan.h) by
 * their time, which is exact, and the bound of their bytes. Only those whose placed bytes decide something are placed,
 * so that every number that is told is a placed plan's. */
#ifndef HRI_SEARCH_SEARCH_H
#define HRI_SEARCH_SEARCH_H

#include <math.h>

#include <headroom/plan.h>

#include "plan/plan.h"

/* What more of the training is changed for must save what a person would change it for: this share of bytes or of time. */
#define HRI_WORTH_CHANGING 0.01

/* ---- changes of a job ---- */

typedef enum hri_levels {
  HRI_LEVELS_KEPT = 0,
  HRI_LEVELS_SELECTIVE,
  HRI_LEVELS_MLP,
  HRI_LEVELS_ATTENTION,
  HRI_LEVELS_BLOCK,
  HRI_LEVELS_SQRT,
  HRI_LEVELS_AUTO,
  HRI_LEVELS_COUNT
} hri_levels;

/* Effect classes 2 and 3 (architecture.md section 3). */
enum {
  HRI_CHANGE_IN_BACKWARD = 1,
  HRI_CHANGE_MOMENTUM = 2,
  HRI_CHANGE_SGD = 4,
  HRI_CHANGE_HALF_SEQUENCE = 8,
  HRI_CHANGE_BF16 = 16,
  HRI_CHANGE_BF16_PURE = 32,
  HRI_CHANGE_LORA = 64,        /* adapters instead of all weights: rank and targets as most people begin */
  HRI_CHANGE_NF4 = 128,        /* frozen matrices in 4 bits, their scales in 8 */
  HRI_CHANGE_INT8 = 256,       /* in 8 bits */
  HRI_CHANGE_8BIT = 512,       /* states of 8 bits for those of AdamW or Lion */
  HRI_CHANGE_FP16 = 1024,      /* where a device has fp16 and no bf16 */
  HRI_CHANGE_MOMENTS = 2048,   /* states in bf16, which only bf16-pure allows */
  HRI_CHANGE_ADAFACTOR = 4096, /* a row and a column of each matrix for the states of AdamW */
  HRI_CHANGE_KEEP = 8192, /* frozen matrices in the blocks of the GGUF file: the same bits, offered only all the same */
  HRI_CHANGE_QUANTIZE = HRI_CHANGE_NF4 | HRI_CHANGE_INT8 | HRI_CHANGE_KEEP
};

typedef struct hri_change {
  hri_levels levels;
  uint32_t every;       /* recompute every:K instead of levels; 0: as it is */
  uint32_t split;       /* micro-batch divided, accumulation multiplied; 0, 1: as it is */
  uint32_t micro_batch; /* rows of a micro-step, accumulation so that the rows of a step stay; 0: as it is */
  uint32_t chunk;       /* tokens of a loss chunk, or HR_LOSS_CHUNK_OFF; 0: as it is */
  uint32_t packing;     /* 1 + an hr_weight_packing; 0: as it is */
  bool in_backward;     /* updates there, where that has the same bits: one micro-step, no clipping, nothing skipped */
  unsigned algorithm;   /* set of HRI_CHANGE_*: makes it another training, which is offered and never taken */
} hri_change;

/* HRI_CHANGE_BF16, or HRI_CHANGE_FP16 where a device has fp16 and no bf16. */
unsigned hri_change_narrow(const hr_job *job);
/* How many things a change is made of. Adapters with the quantization that only they allow are one, and so are weights
 * and states in bf16. */
uint32_t hri_change_parts(const hri_change *change);
/* Changes a finished job and finishes it again; false, with the job as it comes, where the change does not apply,
 * changes nothing or makes a job that cannot be. */
bool hri_change_apply(const hri_change *change, hr_job *job);
/* As options of the command line; `changed`: what apply made of `base`, with levels that were chosen since. False: they
 * are longer than a fix can hold. */
bool hri_change_text(const hri_change *change, const hr_job *base, const hr_job *changed, char out[HR_FIX_TEXT_BYTES]);

/* ---- levels for a budget (recompute.c) ---- */

typedef struct hri_choice {
  hr_recompute recompute;
  uint64_t need_bytes;
  double step_seconds;
  bool fits;
  bool beaten; /* by the rival: nothing was placed, and the numbers are bounds */
  bool slow;   /* beaten in time: what fits, if anything does, takes no less than the rival */
  bool hope;   /* live bytes of some levels fit, though perhaps no placement */
} hri_choice;
/* What a search has already, which levels of another job would have to beat. */
typedef struct hri_rival {
  double step_seconds; /* of the fastest that fits; INFINITY: nothing does, */
  uint64_t need_bytes; /* and this is the smallest need */
  uint64_t *allowance; /* what is left of it */
} hri_rival;
/* Nodes of the plans that are made one by one because placements did not keep to live bytes, of a search: a second. */
enum { HRI_ALLOWANCE = 1000000 };
/* Nothing found yet: what a search of several choices hands to the first, so that they share its allowance. */
static inline hri_rival hri_nobody(uint64_t *allowance) { return (hri_rival){INFINITY, UINT64_MAX, allowance}; }
/* What hr_plan_recompute finds for a training, without the plan. `beside` lends its backend; NULL: one of its own.
 * `rival`: who cannot be beaten ends the search before anything is placed; NULL: nobody, and an allowance of its own. */
hr_status hri_choose_levels(const hr_job *job, const hr_plan *beside, const hri_rival *rival, hri_choice *choice,
                            hr_frontier *frontier, hr_error *error);

/* ---- bounds of levels (recompute.c) ---- */

/* Of a training in which nothing is made again: what is alive beside what the layers keep, at least where something is free
 * (plan/cost.h). */
typedef struct hri_live_bounds {
  uint64_t loss;    /* at most, between the last forward and the first backward */
  uint64_t outside; /* at most, where no layer runs */
  uint64_t running; /* at most, while a layer runs */
  uint64_t fixed;   /* what no program owns */
} hri_live_bounds;
/* All but `fixed`, of a draft. */
hr_status hri_live_bounds_get(const hr_plan *draft, const hri_freedom *free, hri_live_bounds *live, hr_error *error);

/* What each layer of a job takes at each level, at least where packing is free; the job itself then packs nothing. */
typedef struct hri_level_tables hri_level_tables;
hr_status hri_level_tables_create(const hr_job *job, const hr_plan *beside, bool free_packing,
                                  hri_level_tables **tables, hr_error *error);
void hri_level_tables_destroy(hri_level_tables *tables);

typedef struct hri_levels_bound {
  bool fits;             /* live bytes of some levels are within the budget; the fastest of those */
  double more_seconds;   /* take so much more a step than nothing made again */
  double block_seconds;  /* all of all blocks takes so much more */
  uint64_t need_bytes;   /* the least that any levels need, by their live bytes */
  uint64_t groups_bytes; /* the least that groups of layers need: inputs of the others, and one group whole */
} hri_levels_bound;
/* Of a job whose layers are those of the tables, and which has `live` beside them. */
hr_status hri_levels_bound_get(const hri_level_tables *tables, const hri_live_bounds *live, hri_levels_bound *bound,
                               hr_error *error);
/* Of groups of `every` layers of such a job: what they need at least; UINT64_MAX where there are no such groups. */
uint64_t hri_groups_bound(const hri_level_tables *tables, const hri_live_bounds *live, uint32_t every);

#endif
