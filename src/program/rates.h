/* What rates that training saw rest on: seconds are assumed from a few figures of the device, and what was seen is a ratio
 * to these. It holds for the figures that it was taken from and for no others. Whoever stores, reads or applies such
 * ratios goes by this. */
#ifndef HRI_PROGRAM_RATES_H
#define HRI_PROGRAM_RATES_H

#include <math.h>

#include <headroom/device.h>

/* The share of the rated team that a job's has; more threads than that gain nothing. */
static inline double hri_team_share(const hr_device *device, uint32_t team) {
  return team < device->rated_threads ? (double)team / device->rated_threads : 1;
}

/* What times of a team are assumed from. */
static inline hr_assumed_figures hri_assumed_figures(const hr_device *d, uint32_t team) {
  const double flops = hri_team_share(d, team) * d->gemm_efficiency,
               most = d->core_memory_bytes_per_second * (team + 1.0);
  hr_assumed_figures f = {.flops_fp32 = flops * d->flops_fp32,
                          .flops_bf16 = flops * d->flops_bf16,
                          .memory_bytes_per_second = d->memory_bytes_per_second * d->memory_efficiency,
                          .node_seconds = d->node_seconds};
  if (most > 0 && team < d->rated_threads) f.memory_bytes_per_second = fmin(f.memory_bytes_per_second, most);
  return f;
}

/* But for what text loses of a number. */
static inline bool hri_same_figure(double a, double b) { return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)); }
static inline bool hri_same_figures(const hr_assumed_figures *a, const hr_assumed_figures *b) {
  return hri_same_figure(a->flops_fp32, b->flops_fp32) && hri_same_figure(a->flops_bf16, b->flops_bf16) &&
         hri_same_figure(a->memory_bytes_per_second, b->memory_bytes_per_second) &&
         hri_same_figure(a->node_seconds, b->node_seconds);
}

/* Seconds that were seen beside those that were assumed: neither, or a ratio that a machine may have. */
static inline bool hri_seen_pair_holds(double taken, double assumed) {
  static const double MOST = 1e4;
  if (taken == 0 && assumed == 0) return true;
  return taken > 0 && assumed > 0 && isfinite(taken) && isfinite(assumed) && taken / assumed <= MOST &&
         assumed / taken <= MOST;
}

#endif
