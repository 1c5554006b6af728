#include "ops/norm/ref.h"

#include <stddef.h>
#include <tgmath.h>

#include "ops/reference.h"

HRI_REF_API void HRI_REF(rmsnorm)(HRI_REAL *y, HRI_REAL *s, HRI_REAL *stats, const HRI_REAL *x,
                                  const HRI_REAL *residual, const HRI_REAL *weight, HRI_REAL offset,
                                  const HRI_REAL *bias, HRI_REAL eps, int64_t rows, int64_t columns) {
  for (int64_t m = 0; m < rows; m++) {
    HRI_REAL squares = 0;
    for (int64_t c = 0; c < columns; c++) {
      HRI_REAL value = x[m * columns + c] + (residual ? residual[m * columns + c] : 0);
      s[m * columns + c] = value;
      squares += value * value;
    }
    stats[m] = 1 / sqrt(squares / (HRI_REAL)columns + eps);
    for (int64_t c = 0; c < columns; c++)
      y[m * columns + c] = s[m * columns + c] * stats[m] * (weight[c] + offset) + (bias ? bias[c] : 0);
  }
}

HRI_REF_API void HRI_REF(layernorm)(HRI_REAL *y, HRI_REAL *s, HRI_REAL *stats, const HRI_REAL *x,
                                    const HRI_REAL *residual, const HRI_REAL *weight, HRI_REAL offset,
                                    const HRI_REAL *bias, HRI_REAL eps, int64_t rows, int64_t columns) {
  for (int64_t m = 0; m < rows; m++) {
    HRI_REAL sum = 0, squares = 0, mean, rstd;
    for (int64_t c = 0; c < columns; c++) {
      HRI_REAL value = x[m * columns + c] + (residual ? residual[m * columns + c] : 0);
      s[m * columns + c] = value;
      sum += value;
    }
    mean = sum / (HRI_REAL)columns;
    for (int64_t c = 0; c < columns; c++) squares += (s[m * columns + c] - mean) * (s[m * columns + c] - mean);
    rstd = 1 / sqrt(squares / (HRI_REAL)columns + eps);
    for (int64_t c = 0; c < columns; c++)
      y[m * columns + c] = (s[m * columns + c] - mean) * rstd * (weight[c] + offset) + (bias ? bias[c] : 0);
    stats[2 * m] = mean;
    stats[2 * m + 1] = rstd;
  }
}

HRI_REF_API void HRI_REF(rmsnorm_backward)(HRI_REAL *dx, HRI_REAL *dweight, HRI_REAL *dbias, const HRI_REAL *dy,
                                           const HRI_REAL *x, const HRI_REAL *stats, const HRI_REAL *weight,
                                           HRI_REAL offset, const HRI_REAL *extra, int64_t rows, int64_t columns) {
  for (int64_t m = 0; m < rows; m++) {
    HRI_REAL rstd = stats[m], gx = 0;
    for (int64_t c = 0; c < columns; c++) {
      HRI_REAL xhat = x[m * columns + c] * rstd, g = dy[m * columns + c];
      gx += g * (weight[c] + offset) * xhat;
      if (dweight) dweight[c] += g * xhat;
      if (dbias) dbias[c] += g;
    }
    for (int64_t c = 0; c < columns; c++) {
      HRI_REAL xhat = x[m * columns + c] * rstd, g = dy[m * columns + c] * (weight[c] + offset);
      dx[m * columns + c] = rstd * (g - xhat * gx / (HRI_REAL)columns) + (extra ? extra[m * columns + c] : 0);
    }
  }
}

HRI_REF_API void HRI_REF(layernorm_backward)(HRI_REAL *dx, HRI_REAL *dweight, HRI_REAL *dbias, const HRI_REAL *dy,
                                             const HRI_REAL *x, const HRI_REAL *stats, const HRI_REAL *weight,
                                             HRI_REAL offset, const HRI_REAL *extra, int64_t rows, int64_t columns) {
  for (int64_t m = 0; m < rows; m++) {
    HRI_REAL mean = stats[2 * m], rstd = stats[2 * m + 1], g_sum = 0, gx = 0;
    for (int64_t c = 0; c < columns; c++) {
      HRI_REAL xhat = (x[m * columns + c] - mean) * rstd, g = dy[m * columns + c];
      g_sum += g * (weight[c] + offset);
      gx += g * (weight[c] + offset) * xhat;
      if (dweight) dweight[c] += g * xhat;
      if (dbias) dbias[c] += g;
    }
    for (int64_t c = 0; c < columns; c++) {
      HRI_REAL xhat = (x[m * columns + c] - mean) * rstd, g = dy[m * columns + c] * (weight[c] + offset);
      dx[m * columns + c] =
          rstd * (g - g_sum / (HRI_REAL)columns - xhat * gx / (HRI_REAL)columns) + (extra ? extra[m * columns + c] : 0);
    }
  }
}

/* Heads 0 .. H+K-1 of a row are normalised by themselves; those from H on have the weight of keys, and their size. */
HRI_REF_API void HRI_REF(head_norm)(HRI_REAL *y, HRI_REAL *stats, const HRI_REAL *x, const HRI_REAL *wq,
                                    const HRI_REAL *wk, HRI_REAL offset, HRI_REAL eps, int64_t rows, int64_t heads,
                                    int64_t kv_heads, int64_t q_size, int64_t k_size) {
  for (int64_t m = 0, at = 0; m < rows; m++) {
    for (int64_t h = 0, size = q_size; h < heads + 2 * kv_heads; h++, at += size) {
      HRI_REAL squares = 0, rstd;
      size = h < heads ? q_size : k_size;
      for (int64_t d = 0; d < size; d++) squares += x[at + d] * x[at + d];
      rstd = 1 / sqrt(squares / (HRI_REAL)size + eps);
      if (h < heads + kv_heads) stats[m * (heads + kv_heads) + h] = rstd;
      for (int64_t d = 0; d < size; d++)
        y[at + d] = h < heads + kv_heads ? x[at + d] * rstd * ((h < heads ? wq : wk)[d] + offset) : x[at + d];
    }
  }
}

HRI_REF_API void HRI_REF(head_norm_backward)(HRI_REAL *dx, HRI_REAL *dwq, HRI_REAL *dwk, const HRI_REAL *dy,
                                             const HRI_REAL *x, const HRI_REAL *stats, const HRI_REAL *wq,
                                             const HRI_REAL *wk, HRI_REAL offset, int64_t rows, int64_t heads,
                                             int64_t kv_heads, int64_t q_size, int64_t k_size) {
  for (int64_t m = 0, at = 0; m < rows; m++) {
    for (int64_t h = 0, size = q_size; h < heads + 2 * kv_heads; h++, at += size) {
      const HRI_REAL *w = h < heads ? wq : wk;
      HRI_REAL *dw = h < heads ? dwq : dwk, rstd, gx = 0;
      size = h < heads ? q_size : k_size;
      if (h >= heads + kv_heads) {
        for (int64_t d = 0; d < size; d++) dx[at + d] = dy[at + d];
        continue;
      }
      rstd = stats[m * (heads + kv_heads) + h];
      for (int64_t d = 0; d < size; d++) {
        HRI_REAL xhat = x[at + d] * rstd;
        gx += dy[at + d] * (w[d] + offset) * xhat;
        if (dw) dw[d] += dy[at + d] * xhat;
      }
      for (int64_t d = 0; d < size; d++)
        dx[at + d] = rstd * (dy[at + d] * (w[d] + offset) - x[at + d] * rstd * gx / (HRI_REAL)size);
    }
  }
}

HRI_REF_API void HRI_REF(row_lengths)(HRI_REAL *lengths, const HRI_REAL *w, const HRI_REAL *a, const HRI_REAL *b,
                                      HRI_REAL scale, int64_t rows, int64_t columns, int64_t rank) {
  for (int64_t n = 0; n < rows; n++) {
    HRI_REAL squares = 0;
    for (int64_t k = 0; k < columns; k++) {
      HRI_REAL v = 0;
      for (int64_t r = 0; b && r < rank; r++) v += b[n * rank + r] * a[r * columns + k];
      v = w[n * columns + k] + scale * v;
      squares += v * v;
    }
    lengths[n] = sqrt(squares);
  }
}

HRI_REF_API void HRI_REF(dora)(HRI_REAL *y, const HRI_REAL *z, const HRI_REAL *magnitudes, const HRI_REAL *lengths,
                               const HRI_REAL *bias, const int64_t parts[3], int64_t having, int64_t rows) {
  int64_t columns = parts[0] + parts[1] + parts[2];
  for (int64_t m = 0; m < rows; m++)
    for (int64_t p = 0, c = 0, with = 0; p < 3; p++)
      for (int64_t k = 0; k < parts[p]; k++, c++) {
        HRI_REAL g = 1;
        if (having >> p & 1) g = lengths[with] > 0 ? magnitudes[with] / lengths[with] : 0, with++;
        y[m * columns + c] = z[m * columns + c] * g + (bias ? bias[c] : 0);
      }
}

HRI_REF_API void HRI_REF(dora_backward)(HRI_REAL *dz, HRI_REAL *dm, const HRI_REAL *dy, const HRI_REAL *z,
                                        const HRI_REAL *magnitudes, const HRI_REAL *lengths, const int64_t parts[3],
                                        int64_t having, int64_t rows) {
  int64_t columns = parts[0] + parts[1] + parts[2];
  for (int64_t m = 0; m < rows; m++)
    for (int64_t p = 0, c = 0, with = 0; p < 3; p++)
      for (int64_t k = 0; k < parts[p]; k++, c++) {
        HRI_REAL g = dy[m * columns + c];
        dz[m * columns + c] = g;
        if (!(having >> p & 1)) continue;
        dz[m * columns + c] = lengths[with] > 0 ? g * magnitudes[with] / lengths[with] : 0;
        if (dm && lengths[with] > 0) dm[with] += g * z[m * columns + c] / lengths[with];
        with++;
      }
}
