#include "ops/pointwise/rope_table.h"

#include <math.h>

void hri_rope_table(const double *inverse, int64_t pairs, double factor, int64_t positions, float *cosines,
                    float *sines, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t pair = 0; pair < pairs; pair++) {
    for (int64_t position = 0; position < positions; position++) {
      float angle = (float)position * (float)inverse[pair];
      cosines[position * pairs + pair] = (float)cos((double)angle) * (float)factor;
      sines[position * pairs + pair] = (float)sin((double)angle) * (float)factor;
    }
  }
}
