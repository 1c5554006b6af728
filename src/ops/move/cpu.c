/* Moving bytes, casts, constant fill, and looking for one element of an array. */

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

static void copy_rows(void *to, int64_t to_pitch, const void *from, int64_t from_pitch, int64_t width, int64_t rows,
                      int threads) {
#pragma omp parallel for num_threads(hri_team(threads, rows *width / 4)) schedule(static)
  for (int64_t row = 0; row < rows; row++)
    memcpy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, (size_t)width);
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
    for (; i + HRI_LANES <= end; i += HRI_LANES) hri_vstore(y + i, v);
    if (i < end) hri_vstore_n(y + i, v, end - i);
  }
}

static HRI_INLINE void cast_range(void *to, hri_real to_real, const void *from, hri_real from_real, int64_t i,
                                  int64_t end) {
  for (; i + HRI_LANES <= end; i += HRI_LANES) hri_vstore_real(to, i, hri_vload_real(from, i, from_real), to_real);
  if (i < end) hri_vstore_real_n(to, i, hri_vload_real_n(from, i, end - i, from_real), end - i, to_real);
}

static void cast_part(void *to, hri_real to_real, const void *from, int64_t begin, int64_t end) {
  if (to_real == HRI_REAL_BF16) cast_range(to, HRI_REAL_BF16, from, HRI_REAL_F32, begin, end);
  else cast_range(to, HRI_REAL_F32, from, HRI_REAL_BF16, begin, end);
}

/* One thread starts no parallel region: it may stand inside of one, and a region of one costs as much as a small
 * cast. */
static void cast(void *to, hri_real to_real, const void *from, hri_real from_real, int64_t n, int threads) {
  enum { COUNT = PIECE / 4 };
  int team = hri_team(threads, n);
  if (to_real == from_real) {
    copy(to, from, n * (int64_t)hri_real_bytes(to_real), threads);
    return;
  }
  if (team == 1) {
    cast_part(to, to_real, from, 0, n);
    return;
  }
#pragma omp parallel for num_threads(team) schedule(static)
  for (int64_t begin = 0; begin < n; begin += COUNT)
    cast_part(to, to_real, from, begin, begin + COUNT < n ? begin + COUNT : n);
}

/* First the largest value, then where it first stands. */
static HRI_INLINE int64_t find_largest(const void *x, int64_t n, hri_real real) {
  hri_vf best = -hri_vset(__builtin_inff());
  float top;
  int64_t i = 0;
  for (; i + HRI_LANES <= n; i += HRI_LANES) best = hri_vmax(hri_vload_real(x, i, real), best);
  top = hri_vmax_fold(best);
  for (; i < n; i++) top = hri_real_get(x, i, real) > top ? hri_real_get(x, i, real) : top;
  for (i = 0; i < n; i++)
    if (hri_real_get(x, i, real) == top) return i;
  return 0;
}

static int64_t argmax(const void *x, int64_t n, hri_real real) {
  int64_t index;
  HRI_BY_REAL(real, index = find_largest(x, n, REAL));
  return index;
}

typedef uint16_t vector16 __attribute__((vector_size(HRI_VECTOR_BYTES)));
typedef uint16_t vector16_memory __attribute__((vector_size(HRI_VECTOR_BYTES), aligned(2), may_alias));
typedef uint32_t vector32_memory __attribute__((vector_size(HRI_VECTOR_BYTES), aligned(4), may_alias));

/* Whether a block of `BLOCK` vectors holds infinity or NaN. These have all exponent bits set, and only then does one
 * more in the lowest of them carry into the place of the sign; integers see it whatever the floating-point flags. */
enum { BLOCK = 16 };
static HRI_INLINE bool block_nonfinite(const unsigned char *at, hri_real real) {
  uint64_t words[HRI_VECTOR_BYTES / 8], any = 0;
  vector16 narrow = {0};
  hri_vu wide = {0};
  for (int k = 0; k < BLOCK; k++, at += HRI_VECTOR_BYTES) {
    if (real == HRI_REAL_BF16) narrow |= (*(const vector16_memory *)at & 0x7f80) + 0x0080;
    else wide |= (*(const vector32_memory *)at & 0x7f800000u) + 0x00800000u;
  }
  if (real == HRI_REAL_BF16) memcpy(words, &narrow, sizeof words);
  else memcpy(words, &wide, sizeof words);
  for (int k = 0; k < HRI_VECTOR_BYTES / 8; k++) any |= words[k];
  return any & (real == HRI_REAL_BF16 ? 0x8000800080008000u : 0x8000000080000000u);
}

static HRI_INLINE int64_t find_nonfinite(const void *x, int64_t begin, int64_t end, hri_real real) {
  int64_t i = begin, step = BLOCK * HRI_VECTOR_BYTES / (int64_t)hri_real_bytes(real);
  while (i + step <= end && !block_nonfinite(hri_real_from(x, i, real), real)) i += step;
  for (; i < end; i++) {
    float value = hri_real_get(x, i, real);
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7f800000) == 0x7f800000) return i;
  }
  return INT64_MAX;
}

static int64_t first_nonfinite(const void *x, int64_t n, hri_real real, int threads) {
  enum { COUNT = PIECE / 4 };
  int64_t first = INT64_MAX;
  int team = hri_team(threads, n);
  if (team == 1) { /* no region, as in cast */
    HRI_BY_REAL(real, first = find_nonfinite(x, 0, n, REAL));
    return first == INT64_MAX ? -1 : first;
  }
#pragma omp parallel for num_threads(team) schedule(static) reduction(min : first)
  for (int64_t begin = 0; begin < n; begin += COUNT) {
    int64_t found, end = begin + COUNT < n ? begin + COUNT : n;
    if (first < begin) continue;
    HRI_BY_REAL(real, found = find_nonfinite(x, begin, end, REAL));
    if (found < first) first = found;
  }
  return first == INT64_MAX ? -1 : first;
}

void HRI_ISA_NAME(hri_move_kernels)(hri_cpu_kernels *table) {
  table->copy = copy;
  table->copy_rows = copy_rows;
  table->zero = zero;
  table->fill = fill;
  table->cast = cast;
  table->argmax = argmax;
  table->first_nonfinite = first_nonfinite;
}
