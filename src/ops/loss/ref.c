#include "ops/loss/ref.h"

#include <stddef.h>
#include <tgmath.h>

#include "ops/reference.h"

HRI_REF_API void HRI_REF(cross_entropy)(HRI_REAL *losses, HRI_REAL *dlogits, const HRI_REAL *logits,
                                        const int32_t *labels, HRI_REAL gradient_scale, int64_t rows,
                                        int64_t vocabulary, int64_t stored) {
  for (int64_t r = 0; r < rows; r++) {
    const HRI_REAL *x = logits + r * stored;
    HRI_REAL maximum = x[0], sum = 0;
    int32_t label = labels[r];
    for (int64_t v = 1; v < vocabulary; v++)
      maximum = x[v] > maximum ? x[v] : maximum;
    for (int64_t v = 0; v < vocabulary; v++)
      sum += exp(x[v] - maximum);
    losses[r] = label < 0 ? 0 : log(sum) + maximum - x[label];
    for (int64_t v = 0; dlogits && v < stored; v++) {
      HRI_REAL p = v < vocabulary ? exp(x[v] - maximum) / sum - (v == label ? 1 : 0) : 0;
      dlogits[r * stored + v] = label < 0 ? 0 : p * gradient_scale;
    }
  }
}
