/* Moving bytes, casts, constant fill, and looking for one element of an array. */
#include <stdatomic.h>

#include "ops/cpu.h"
#include "ops/scratch.h"
#include "ops/vmath.h"

enum {
  PIECE = 1 << 18,  /* bytes per item: large enough for the library's fastest path */
  COUNT = PIECE / 4 /* the same in elements */
};

/* What a loop over pieces is given; not all of it by each kernel. */
typedef struct moved {
  void *to;
  const void *from;
  int64_t n; /* bytes or elements */
  hri_real to_real, from_real;
  float value;
  int64_t to_pitch, from_pitch, width;
} moved;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

static void copy_pieces(void *context, int64_t begin, int64_t end, int thread) {
  const moved *m = context;
  (void)thread;
  for (int64_t at = begin * PIECE; at < least(end * PIECE, m->n); at += PIECE)
    memcpy((char *)m->to + at, (const char *)m->from + at, (size_t)least(m->n - at, PIECE));
}

static void copy(void *to, const void *from, int64_t bytes, hri_team *team) {
  moved m = {.to = to, .from = from, .n = bytes};
  if (to != from) hri_team_each(team, pieces(bytes, PIECE), 1, copy_pieces, &m);
}

static void copy_some_rows(void *context, int64_t begin, int64_t end, int thread) {
  const moved *m = context;
  (void)thread;
  for (int64_t row = begin; row < end; row++)
    memcpy((char *)m->to + row * m->to_pitch, (const char *)m->from + row * m->from_pitch, (size_t)m->width);
}

static void copy_rows(void *to, int64_t to_pitch, const void *from, int64_t from_pitch, int64_t width, int64_t rows,
                      hri_team *team) {
  moved m = {.to = to, .from = from, .to_pitch = to_pitch, .from_pitch = from_pitch, .width = width};
  hri_team_each(team, rows, hri_grain(width / 4), copy_some_rows, &m);
}

static void zero_pieces(void *context, int64_t begin, int64_t end, int thread) {
  const moved *m = context;
  (void)thread;
  for (int64_t at = begin * PIECE; at < least(end * PIECE, m->n); at += PIECE)
    memset((char *)m->to + at, 0, (size_t)least(m->n - at, PIECE));
}

static void zero(void *to, int64_t bytes, hri_team *team) {
  moved m = {.to = to, .n = bytes};
  hri_team_each(team, pieces(bytes, PIECE), 1, zero_pieces, &m);
}

static void fill_pieces(void *context, int64_t begin, int64_t end, int thread) {
  const moved *m = context;
  float *y = m->to;
  hri_vf v = hri_vset(m->value);
  int64_t i = begin * COUNT, stop = least(end * COUNT, m->n);
  (void)thread;
  for (; i + HRI_LANES <= stop; i += HRI_LANES) hri_vstore(y + i, v);
  if (i < stop) hri_vstore_n(y + i, v, stop - i);
}

static void fill(float *y, float value, int64_t n, hri_team *team) {
  moved m = {.to = y, .value = value, .n = n};
  hri_team_each(team, pieces(n, COUNT), 1, fill_pieces, &m);
}

static HRI_INLINE void cast_range(void *to, hri_real to_real, const void *from, hri_real from_real, int64_t i,
                                  int64_t end) {
  for (; i + HRI_LANES <= end; i += HRI_LANES) hri_vstore_real(to, i, hri_vload_real(from, i, from_real), to_real);
  if (i < end) hri_vstore_real_n(to, i, hri_vload_real_n(from, i, end - i, from_real), end - i, to_real);
}

/* to_real is a constant, and from_real becomes one. */
static HRI_INLINE void cast_to(const moved *m, hri_real to_real, int64_t i, int64_t end) {
  HRI_BY_REAL(m->from_real, cast_range(m->to, to_real, m->from, REAL, i, end));
}

static void cast_pieces(void *context, int64_t begin, int64_t end, int thread) {
  const moved *m = context;
  int64_t i = begin * COUNT, stop = least(end * COUNT, m->n);
  (void)thread;
  HRI_BY_REAL(m->to_real, cast_to(m, REAL, i, stop));
}

static void cast(void *to, hri_real to_real, const void *from, hri_real from_real, int64_t n, hri_team *team) {
  moved m = {.to = to, .from = from, .n = n, .to_real = to_real, .from_real = from_real};
  if (to_real == from_real) copy(to, from, n * (int64_t)hri_real_bytes(to_real), team);
  else hri_team_each(team, pieces(n, COUNT), 1, cast_pieces, &m);
}

typedef struct halves {
  float *whole;
  hri_bf16 *high;
  uint16_t *low;
  int64_t n;
} halves;

static void split_pieces(void *context, int64_t begin, int64_t end, int thread) {
  const halves *h = context;
  (void)thread;
  for (int64_t i = begin * COUNT, stop = least(end * COUNT, h->n); i < stop; i += HRI_LANES) {
    int64_t n = least(stop - i, HRI_LANES);
    hri_vh16 low, high = hri_vsplit(hri_vload_n(h->whole + i, n), &low);
    hri_vstore_narrow_n(h->high + i, high, n);
    hri_vstore_narrow_n(h->low + i, low, n);
  }
}
static void join_pieces(void *context, int64_t begin, int64_t end, int thread) {
  const halves *h = context;
  (void)thread;
  for (int64_t i = begin * COUNT, stop = least(end * COUNT, h->n); i < stop; i += HRI_LANES) {
    int64_t n = least(stop - i, HRI_LANES);
    hri_vstore_n(h->whole + i, hri_vjoin(hri_vload_narrow_n(h->high + i, n), hri_vload_narrow_n(h->low + i, n)), n);
  }
}
static void split(hri_bf16 *high, uint16_t *low, const float *from, int64_t n, hri_team *team) {
  halves h = {.whole = (float *)(uintptr_t)from, .high = high, .low = low, .n = n}; /* read alone */
  hri_team_each(team, pieces(n, COUNT), 1, split_pieces, &h);
}
static void join(float *to, const hri_bf16 *high, const uint16_t *low, int64_t n, hri_team *team) {
  halves h = {.whole = to, .high = (hri_bf16 *)(uintptr_t)high, .low = (uint16_t *)(uintptr_t)low, .n = n};
  hri_team_each(team, pieces(n, COUNT), 1, join_pieces, &h);
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
    else if (real == HRI_REAL_F16) narrow |= (*(const vector16_memory *)at & 0x7c00) + 0x0400;
    else wide |= (*(const vector32_memory *)at & 0x7f800000u) + 0x00800000u;
  }
  if (real != HRI_REAL_F32) memcpy(words, &narrow, sizeof words);
  else memcpy(words, &wide, sizeof words);
  for (int k = 0; k < HRI_VECTOR_BYTES / 8; k++) any |= words[k];
  return any & (real != HRI_REAL_F32 ? 0x8000800080008000u : 0x8000000080000000u);
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

typedef struct search {
  const void *x;
  int64_t n;
  hri_real real;
  _Atomic int64_t first; /* INT64_MAX: none yet */
} search;

static void search_pieces(void *context, int64_t begin, int64_t end, int thread) {
  search *s = context;
  int64_t i = begin * COUNT, found, first = atomic_load_explicit(&s->first, memory_order_relaxed);
  (void)thread;
  if (first < i) return;
  HRI_BY_REAL(s->real, found = find_nonfinite(s->x, i, least(end * COUNT, s->n), REAL));
  while (found < first && !atomic_compare_exchange_weak(&s->first, &first, found)) {}
}

static int64_t first_nonfinite(const void *x, int64_t n, hri_real real, hri_team *team) {
  search s = {.x = x, .n = n, .real = real, .first = INT64_MAX};
  hri_team_each(team, pieces(n, COUNT), 1, search_pieces, &s);
  return s.first == INT64_MAX ? -1 : s.first;
}

void HRI_ISA_NAME(hri_move_kernels)(hri_cpu_kernels *table) {
  table->copy = copy;
  table->copy_rows = copy_rows;
  table->zero = zero;
  table->fill = fill;
  table->cast = cast;
  table->split = split;
  table->join = join;
  table->argmax = argmax;
  table->first_nonfinite = first_nonfinite;
}
