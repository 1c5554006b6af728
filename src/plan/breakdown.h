/* Read off a placement: live bytes by role and phase (without guard zones), and what is alive at the peak. */
#ifndef HRI_PLAN_BREAKDOWN_H
#define HRI_PLAN_BREAKDOWN_H

#include "plan/place.h"

typedef struct hri_breakdown {
  uint64_t at_peak_by_role[HRI_ROLE_COUNT], max_by_role[HRI_ROLE_COUNT], peak_by_phase[HRI_PHASE_COUNT];
  uint64_t live_peak_bytes;
  uint32_t peak_tick;
  hri_id peak_node; /* HRI_NONE when the tier is empty */
  hri_id *live;     /* storages alive at the peak, largest first */
  hri_id *shown;    /* of each of them the tensor that shows most of it, HRI_NONE: none does */
  uint32_t live_count;
} hri_breakdown;

hr_status hri_breakdown_make(const hri_job *job, const hri_placement *placement, uint8_t tier, hri_breakdown *out,
                             hr_error *error);
void hri_breakdown_deinit(hri_breakdown *breakdown);

#endif
