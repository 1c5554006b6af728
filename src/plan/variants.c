#include "plan/variants.h"

#include <string.h>

enum { SHORTEST = 64, UNIT = 16 }; /* tokens: below, a step is not worth a variant; lengths are multiples */

uint32_t hri_variant_lengths(const hr_job *spec, uint32_t lengths[HRI_MAX_VARIANTS]) {
  static const uint32_t eighths[HRI_MAX_VARIANTS] = {1, 2, 3, 4, 6};
  uint32_t count = 0, full = spec->sequence_length;
  if (spec->packing != HR_PACKING_OFF || spec->purpose == HR_PURPOSE_GENERATE) return 0;
  for (uint32_t k = 0; k < HRI_MAX_VARIANTS; k++) {
    uint64_t length = hri_round_up((uint64_t)full * eighths[k] / 8, UNIT);
    if (length >= SHORTEST && length < full && (count == 0 || length > lengths[count - 1]))
      lengths[count++] = (uint32_t)length;
  }
  return count;
}

uint16_t hri_variant_programs(void) {
  return (uint16_t)(HRI_IN(HRI_STEP) | HRI_IN(HRI_BEGIN) | HRI_IN(HRI_MICRO) | HRI_IN(HRI_UPDATE) |
                    HRI_IN(HRI_EVALUATE));
}

hr_status hri_variant_create(const hr_plan *base, uint32_t sequence, hri_variant **out, hr_error *error) {
  hri_variant *variant = hri_alloc_zero(1, sizeof *variant);
  hr_job spec = base->spec;
  hr_status status = HR_OK;
  if (!variant) return hri_fail_memory(error, sizeof *variant, "a shape variant");
  /* What all programs carry is what the base carries: with the same table of positions it has the same offsets. */
  if (spec.position_count < spec.sequence_length) spec.position_count = spec.sequence_length;
  spec.sequence_length = variant->sequence = sequence;
  HRI_TRY_OUT(hri_compile(&spec, base->backend, NULL, &variant->job, error));
  HRI_TRY_OUT(hri_place_job(&variant->job, spec.check ? HRI_STORAGE_ALIGN : 0, &variant->placement, error));
  *out = variant;
  return HR_OK;
out:
  hri_variant_destroy(variant);
  return status;
}

void hri_variant_destroy(hri_variant *variant) {
  if (!variant) return;
  hri_placement_deinit(&variant->placement);
  hri_job_deinit(&variant->job);
  hri_free(variant);
}
