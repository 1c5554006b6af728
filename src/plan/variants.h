/* Shape variants: the programs of a job once more for shorter rows.
 *
 * Rows that are not packed have many lengths. A run then also has the programs for a few shorter row lengths, over the
 * same weights and states in the same arena: a step takes the shortest that holds its longest row, and computes no more
 * padding than that. The lengths follow from the job alone, so that a plan does not depend on the data; memory is
 * planned for the full length. Same mathematics: what is left out is padding. */
#ifndef HRI_PLAN_VARIANTS_H
#define HRI_PLAN_VARIANTS_H

#include "plan/plan.h"

enum { HRI_MAX_VARIANTS = 5 }; /* besides the full length */

/* Row lengths below the job's own, rising; none for packed rows and generation. Returns their number. */
uint32_t hri_variant_lengths(const hr_job *spec, uint32_t lengths[HRI_MAX_VARIANTS]);

typedef struct hri_variant {
  uint32_t sequence;
  hri_job job;
  hri_placement placement;
} hri_variant;

/* Compiles the job of `base` for rows of `sequence` tokens; its backend is the base's. */
hr_status hri_variant_create(const hr_plan *base, uint32_t sequence, hri_variant **variant, hr_error *error);
void hri_variant_destroy(hri_variant *variant); /* NULL is fine */

/* Programs that a variant runs (set of HRI_IN): the others are the base's. */
uint16_t hri_variant_programs(void);

#endif
