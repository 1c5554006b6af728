/* Moving bytes, constant fill, and looking for one element of an array. */

#include "ops/cpu.h"
#include "ops/scratch.h"
#include "ops/vmath.h"

enum { PIECE = 1 << 18 }; /* bytes per task: large enough for the library's fastest path */

static void copy(void *to, const void *from, int64_t bytes, int threads) {
  if (to == from) return;
#pragma omp parallel for num_threads(hri_team(threads, bytes / 4)) schedule(static)
  for (int64_t begin = 0; begin < bytes; begin += PIECE)
    memcpy((char *)to + begin, (const char *)from + begin, (size_t)(bytes - begin < PIECE ? bytes - begin : PIECE));
}

static void zero(void *to, int64_t bytes, int threads) {
#pragma omp parallel for num_threads(hri_team(threads, bytes / 4)) schedule(static)
  for (int64_t begin = 0; begin < bytes; begin += PIECE)
    memset((char *)to + begin, 0, (size_t)(bytes - begin < PIECE ? bytes - begin : PIECE));
}

static void fill(float *y, float value, int64_t n, int threads) {
  enum { COUNT = PIECE / 4 };
  hri_vf v = hri_vset(value);
#pragma omp parallel for num_threads(hri_team(threads, n)) schedule(static)
  for (int64_t begin = 0; begin < n; begin += COUNT) {
    int64_t i = begin, end = begin + COUNT < n ? begin + COUNT : n;
    for (; i + HRI_LANES <= end; i += HRI_LANES)
      hri_vstore(y + i, v);
    if (i < end) hri_vstore_n(y + i, v, end - i);
  }
}

/* First the largest value, then where it first stands. */
static int64_t argmax(const float *x, int64_t n) {
  hri_vf best = -hri_vset(__builtin_inff());
  float top;
  int64_t i = 0;
  for (; i + HRI_LANES <= n; i += HRI_LANES)
    best = hri_vmax(hri_vload(x + i), best);
  top = hri_vmax_fold(best);
  for (; i < n; i++)
    top = x[i] > top ? x[i] : top;
  for (i = 0; i < n; i++)
    if (x[i] == top) return i;
  return 0;
}

/* Infinity and NaN have all exponent bits set; integer comparisons see them whatever the floating-point flags. */
static int64_t first_nonfinite_block(const float *x, int64_t begin, int64_t end) {
  int64_t i = begin;
  for (; i + 4 * HRI_LANES <= end; i += 4 * HRI_LANES) {
    hri_vi found = {0};
    int32_t any = 0, lanes[HRI_LANES];
    for (int k = 0; k < 4; k++)
      found |= ((hri_vi)hri_vload(x + i + k * HRI_LANES) & 0x7f800000) == 0x7f800000;
    memcpy(lanes, &found, sizeof lanes);
    for (int k = 0; k < HRI_LANES; k++)
      any |= lanes[k];
    if (any) break;
  }
  for (; i < end; i++) {
    int32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    if ((bits & 0x7f800000) == 0x7f800000) return i;
  }
  return INT64_MAX;
}

static int64_t first_nonfinite(const float *x, int64_t n, int threads) {
  enum { COUNT = PIECE / 4 };
  int64_t first = INT64_MAX;
#pragma omp parallel for num_threads(hri_team(threads, n)) schedule(static) reduction(min : first)
  for (int64_t begin = 0; begin < n; begin += COUNT) {
    int64_t found;
    if (first < begin) continue;
    found = first_nonfinite_block(x, begin, begin + COUNT < n ? begin + COUNT : n);
    if (found < first) first = found;
  }
  return first == INT64_MAX ? -1 : first;
}

void HRI_ISA_NAME(hri_move_kernels)(hri_cpu_kernels *table) {
  table->copy = copy;
  table->zero = zero;
  table->fill = fill;
  table->argmax = argmax;
  table->first_nonfinite = first_nonfinite;
}
