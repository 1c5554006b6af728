#include "ops/linear/ref.h"

#include <stddef.h>

#include "ops/reference.h"

HRI_REF_API void HRI_REF(linear)(HRI_REAL *y, const HRI_REAL *x, const HRI_REAL *w, const HRI_REAL *bias, int64_t m,
                                 int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      HRI_REAL sum = 0;
      for (int64_t c = 0; c < k; c++) sum += x[i * k + c] * w[j * k + c];
      y[i * n + j] += sum + (bias ? bias[j] : 0);
    }
}

HRI_REF_API void HRI_REF(linear_dx)(HRI_REAL *dx, const HRI_REAL *dy, const HRI_REAL *w, int64_t m, int64_t n,
                                    int64_t k) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t c = 0; c < k; c++) {
      HRI_REAL sum = 0;
      for (int64_t j = 0; j < n; j++) sum += dy[i * n + j] * w[j * k + c];
      dx[i * k + c] += sum;
    }
}

HRI_REF_API void HRI_REF(linear_dw)(HRI_REAL *dw, const HRI_REAL *dy, const HRI_REAL *x, int64_t m, int64_t n,
                                    int64_t k) {
  for (int64_t j = 0; j < n; j++)
    for (int64_t c = 0; c < k; c++) {
      HRI_REAL sum = 0;
      for (int64_t i = 0; i < m; i++) sum += dy[i * n + j] * x[i * k + c];
      dw[j * k + c] += sum;
    }
}
