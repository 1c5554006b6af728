/* Collectives of a warp (warp.h): each is a function over the operands of its 32 lanes. */
#include "gpu/soft/warp.h"

#include <assert.h>
#include <string.h>

#include "base/real.h"
#include "gpu/soft/report.h"
#include "gpu/soft/shared.h"

enum { WARP = HRI_SOFT_WARP };
#define WHOLE_WARP 0xFFFFFFFFu

typedef struct shuffle {
  hri_soft_shuffle kind;
  int32_t argument, width;
  uint64_t in, out;
} shuffle;

/* The lane whose value lane `lane` gets; its own where the rule leaves the segment. */
static uint32_t source_of(const shuffle *s, uint32_t lane) {
  uint32_t width = (uint32_t)s->width, begin = lane & ~(width - 1), at = lane - begin, argument = (uint32_t)s->argument;
  switch (s->kind) {
  case HRI_SOFT_SHUFFLE_IDX: return begin + (argument & (width - 1));
  case HRI_SOFT_SHUFFLE_UP: return argument > at ? lane : lane - argument;
  case HRI_SOFT_SHUFFLE_DOWN: return at + argument >= width ? lane : lane + argument;
  case HRI_SOFT_SHUFFLE_XOR: return (lane ^ argument) >= begin + width ? lane : lane ^ argument;
  }
  return lane;
}

static void execute_shuffle(hri_soft_thread *lanes, uint32_t mask) {
  for (uint32_t i = 0; i < WARP; i++) {
    shuffle *s = lanes[i].operands;
    uint32_t source;
    if (!(mask >> i & 1)) continue;
    source = source_of(s, i);
    if (mask >> source & 1) {
      s->out = ((const shuffle *)lanes[source].operands)->in;
    } else {
      hri_soft_find(HRI_SOFT_MASK, "lane %u takes the value of lane %u, which is not in mask 0x%08x (%s:%d)", i, source,
                    mask, lanes[i].site.file, lanes[i].site.line);
      s->out = UINT64_MAX;
    }
  }
}

uint64_t hri_soft_shuffle_value(hri_soft_shuffle kind, uint32_t mask, uint64_t value, int32_t argument, int32_t width,
                                hri_soft_site site) {
  static const hri_soft_collective what = {"shuffle", execute_shuffle};
  shuffle s = {.kind = kind, .argument = argument, .width = width, .in = value};
  assert(width > 0 && width <= WARP && (width & (width - 1)) == 0);
  hri_soft_together(&what, mask, site, &s);
  return s.out;
}

typedef struct vote {
  bool predicate;
  uint32_t out;
} vote;

static void execute_vote(hri_soft_thread *lanes, uint32_t mask) {
  uint32_t all = 0;
  for (uint32_t i = 0; i < WARP; i++)
    if (mask >> i & 1) all |= (uint32_t)((const vote *)lanes[i].operands)->predicate << i;
  for (uint32_t i = 0; i < WARP; i++)
    if (mask >> i & 1) ((vote *)lanes[i].operands)->out = all;
}

uint32_t hri_soft_ballot(uint32_t mask, int32_t predicate, hri_soft_site site) {
  static const hri_soft_collective what = {"vote", execute_vote};
  vote v = {.predicate = predicate != 0};
  hri_soft_together(&what, mask, site, &v);
  return v.out;
}

/* Orders the accesses of the warp when all its lanes are there; those of some lanes alone are not followed. */
static void execute_barrier(hri_soft_thread *lanes, uint32_t mask) {
  if (mask != WHOLE_WARP) return;
  for (uint32_t i = 0; i < WARP; i++) lanes[i].turn++;
}

void hri_soft_warp_barrier(uint32_t mask, hri_soft_site site) {
  static const hri_soft_collective what = {"__syncwarp", execute_barrier};
  hri_soft_together(&what, mask, site, NULL);
}

/* ---- products of fragments ---- */

typedef struct product {
  float *d;
  const uint32_t *a, *b;
} product;

enum { M = 16, N = 8 };
#define INLINE static inline __attribute__((always_inline)) /* with a constant type */

/* Rows of a, and k by n of b; d likewise. Lane i is number i % 4 of group i / 4. */
typedef float row8 __attribute__((vector_size(N * sizeof(float))));
typedef struct matrices {
  float a[M][16];
  row8 b[16], d[M];
} matrices;

INLINE float half_of(uint32_t pair, uint32_t high, hri_real real) {
  return hri_narrow_widen((uint16_t)(high ? pair >> 16 : pair), real);
}

/* m16n8k16: register r of a holds row g + 8 (r & 1), columns 2 t + 8 (r >> 1) and the next; of b, rows 2 t + 8 r. */
INLINE void gather_halves(matrices *m, const hri_soft_thread *lanes, hri_real real) {
  for (uint32_t lane = 0; lane < WARP; lane++) {
    const product *p = lanes[lane].operands;
    uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t r = 0; r < 4; r++)
      for (uint32_t h = 0; h < 2; h++) m->a[g + 8 * (r & 1)][2 * t + 8 * (r >> 1) + h] = half_of(p->a[r], h, real);
    for (uint32_t r = 0; r < 2; r++)
      for (uint32_t h = 0; h < 2; h++) m->b[2 * t + 8 * r + h][g] = half_of(p->b[r], h, real);
  }
}

static float tf32_of(uint32_t bits) {
  float value;
  bits &= 0xFFFFE000u;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* m16n8k8: register r of a holds row g + 8 (r & 1), column t + 4 (r >> 1); of b, row t + 4 r. */
INLINE void gather_tf32(matrices *m, const hri_soft_thread *lanes) {
  for (uint32_t lane = 0; lane < WARP; lane++) {
    const product *p = lanes[lane].operands;
    uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t r = 0; r < 4; r++) m->a[g + 8 * (r & 1)][t + 4 * (r >> 1)] = tf32_of(p->a[r]);
    for (uint32_t r = 0; r < 2; r++) m->b[t + 4 * r][g] = tf32_of(p->b[r]);
  }
}

/* d: element e of a lane is row g + 8 (e >> 1), column 2 t + (e & 1). */
INLINE void move_sums(matrices *m, const hri_soft_thread *lanes, bool out) {
  for (uint32_t lane = 0; lane < WARP; lane++) {
    float *d = ((const product *)lanes[lane].operands)->d;
    for (uint32_t e = 0; e < 4; e++) {
      row8 *at = &m->d[lane / 4 + 8 * (e >> 1)];
      uint32_t column = 2 * (lane % 4) + (e & 1);
      if (out) d[e] = (*at)[column];
      else (*at)[column] = d[e];
    }
  }
}

INLINE void multiply(matrices *m, uint32_t depth) {
  for (uint32_t i = 0; i < M; i++)
    for (uint32_t k = 0; k < depth; k++) m->d[i] += m->a[i][k] * m->b[k];
}

INLINE void execute_halves(const hri_soft_thread *lanes, hri_real real) {
  matrices m;
  gather_halves(&m, lanes, real);
  move_sums(&m, lanes, false);
  multiply(&m, 16);
  move_sums(&m, lanes, true);
}

static void execute_bf16(hri_soft_thread *lanes, uint32_t mask) {
  (void)mask;
  execute_halves(lanes, HRI_REAL_BF16);
}

static void execute_f16(hri_soft_thread *lanes, uint32_t mask) {
  (void)mask;
  execute_halves(lanes, HRI_REAL_F16);
}

static void execute_tf32(hri_soft_thread *lanes, uint32_t mask) {
  matrices m;
  (void)mask;
  gather_tf32(&m, lanes);
  move_sums(&m, lanes, false);
  multiply(&m, 8);
  move_sums(&m, lanes, true);
}

void hri_soft_mma(hri_soft_multiply kind, float *d, const uint32_t *a, const uint32_t *b, hri_soft_site site) {
  static const hri_soft_collective what[] = {[HRI_SOFT_BF16] = {"mma.sync bf16", execute_bf16},
                                             [HRI_SOFT_F16] = {"mma.sync f16", execute_f16},
                                             [HRI_SOFT_TF32] = {"mma.sync tf32", execute_tf32}};
  product p = {.d = d, .a = a, .b = b};
  hri_soft_together(&what[kind], WHOLE_WARP, site, &p);
}

/* ---- ldmatrix ---- */

typedef struct load {
  uint32_t *registers, count, offset;
  bool transposed;
  const char *name;
} load;

/* Lane i gets, of each matrix, elements 2 (i % 4) and the next of row i / 4; transposed, of column i / 4. */
static void execute_load(hri_soft_thread *lanes, uint32_t mask) {
  const load *first = lanes[0].operands;
  (void)mask;
  for (uint32_t matrix = 0; matrix < first->count; matrix++) {
    uint16_t rows[8][8];
    for (uint32_t row = 0; row < 8; row++) {
      const load *from = lanes[matrix * 8 + row].operands;
      hri_soft_shared_read_as(lanes[matrix * 8 + row].linear, from->offset, 16, rows[row], from->name);
    }
    for (uint32_t lane = 0; lane < WARP; lane++) {
      const load *l = lanes[lane].operands;
      uint32_t g = lane / 4, t = lane % 4 * 2;
      uint32_t low = l->transposed ? rows[t][g] : rows[g][t], high = l->transposed ? rows[t + 1][g] : rows[g][t + 1];
      l->registers[matrix] = high << 16 | low;
    }
  }
}

void hri_soft_ldmatrix(uint32_t *registers, uint32_t count, bool transposed, uint32_t offset, const char *name,
                       hri_soft_site site) {
  static const hri_soft_collective what = {"ldmatrix", execute_load};
  load l = {.registers = registers, .count = count, .offset = offset, .transposed = transposed, .name = name};
  assert(count == 1 || count == 2 || count == 4);
  hri_soft_together(&what, WHOLE_WARP, site, &l);
}
