#include "train/schedule.h"

#include <math.h>

static double steps_of(double value, uint64_t steps) {
  return value > 0 && value < 1 ? ceil(value * (double)steps) : value;
}

double hri_schedule_factor(const hr_job *job, uint64_t step, uint64_t steps) {
  double s = (double)step, total = (double)steps, warmup = steps_of(job->warmup, steps), floor = job->min_lr_ratio,
         factor = 1;
  if (warmup > 0 && s < warmup) return s / warmup;
  switch (job->schedule) {
  case HR_SCHEDULE_CONSTANT: return 1;
  case HR_SCHEDULE_LINEAR: factor = total > warmup ? fmax(0, (total - s) / (total - warmup)) : 1; break;
  case HR_SCHEDULE_COSINE:
    factor = total > warmup ? 0.5 * (1 + cos(3.14159265358979323846 * fmin(1, (s - warmup) / (total - warmup)))) : 1;
    break;
  case HR_SCHEDULE_WSD: {
    double decay = steps_of(job->decay, steps), start = total - decay;
    if (s >= start && decay > 0) factor = fmax(0, (total - s) / decay);
    break;
  }
  }
  return floor + (1 - floor) * factor;
}
