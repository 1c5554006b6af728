#include "ops/move/ref.h"

#include <math.h>

#include "ops/reference.h"

HRI_REF_API int64_t HRI_REF(argmax)(const HRI_REAL *x, int64_t n) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; i++)
    if (!isnan(x[i]) && (best < 0 || x[i] > x[best])) best = i;
  return best < 0 ? 0 : best;
}

HRI_REF_API int64_t HRI_REF(first_nonfinite)(const HRI_REAL *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(x[i])) return i;
  return -1;
}
