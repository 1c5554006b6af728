#include "ops/loss/ref.h"

#include <stddef.h>
#include <tgmath.h>

#include "ops/reference.h"

static HRI_REAL HRI_REF(capped)(HRI_REAL x, HRI_REAL softcap) { return softcap > 0 ? softcap * tanh(x / softcap) : x; }

HRI_REF_API void HRI_REF(cross_entropy)(HRI_REAL *losses, HRI_REAL *dlogits, const HRI_REAL *logits,
                                        const int32_t *labels, HRI_REAL softcap, HRI_REAL smoothing,
                                        HRI_REAL gradient_scale, int64_t rows, int64_t vocabulary, int64_t stored) {
  for (int64_t r = 0; r < rows; r++) {
    const HRI_REAL *x = logits + r * stored;
    HRI_REAL maximum = HRI_REF(capped)(x[0], softcap), sum = 0, nll, even = smoothing / (HRI_REAL)vocabulary, mean = 0;
    int32_t label = labels[r];
    for (int64_t v = 1; v < vocabulary; v++)
      maximum = HRI_REF(capped)(x[v], softcap) > maximum ? HRI_REF(capped)(x[v], softcap) : maximum;
    for (int64_t v = 0; v < vocabulary; v++) sum += exp(HRI_REF(capped)(x[v], softcap) - maximum);
    for (int64_t v = 0; smoothing > 0 && v < vocabulary; v++)
      mean += HRI_REF(capped)(x[v], softcap) / (HRI_REAL)vocabulary;
    nll = label < 0 ? 0 : log(sum) + maximum - HRI_REF(capped)(x[label], softcap);
    losses[r] = label < 0 ? 0 : (1 - smoothing) * nll + smoothing * (log(sum) + maximum - mean);
    for (int64_t v = 0; dlogits && v < stored; v++) {
      HRI_REAL l = v < vocabulary ? HRI_REF(capped)(x[v], softcap) : 0,
               slope = softcap > 0 ? 1 - (l / softcap) * (l / softcap) : 1;
      HRI_REAL p = v < vocabulary ? exp(l - maximum) / sum - even - (v == label ? 1 - smoothing : 0) : 0;
      dlogits[r * stored + v] = label < 0 ? 0 : p * slope * gradient_scale;
    }
  }
}
