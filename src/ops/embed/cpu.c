/* Embedding rows out of tables, and the sum of gradients back into them.
 *
 * The backward cuts the columns, not the rows, among the threads: each one walks all indices in row order over its own
 * columns. Every sum has row order whatever the team, no row of the table is shared, and the load is even however often
 * a token occurs. */
#include "ops/cpu.h"
#include "ops/scratch.h"
#include "ops/vmath.h"

enum { STRIPE = 64 }; /* columns of a stripe: four cache lines */

static HRI_INLINE void embed_part(void *y, const void *token, const void *position, float factor, int64_t i, int64_t n,
                                  hri_real real) {
  hri_vf v = hri_vload_real_n(token, i, n, real) * factor;
  hri_vstore_real_n(y, i, position ? v + hri_vload_real_n(position, i, n, real) : v, n, real);
}

static HRI_INLINE void embed_row(const hri_embed_args *args, int64_t row, hri_real real) {
  float factor = (float)args->factor;
  int64_t n = args->columns, bytes = n * (int64_t)hri_real_bytes(real), i = 0;
  const void *token = hri_real_from(args->tokens, args->ids[row] * n, real), *position;
  void *y = hri_real_at(args->y, row * n, real);
  /* rows of a table follow no pattern that the processor could guess */
  if (row + 1 < args->rows) hri_fetch(hri_real_from(args->tokens, args->ids[row + 1] * n, real), bytes);
  if (!args->positions && factor == 1.0f) {
    memcpy(y, token, (size_t)bytes);
    return;
  }
  position = args->positions ? hri_real_from(args->positions, args->position[row] * n, real) : 0;
  for (; i + HRI_LANES <= n; i += HRI_LANES) embed_part(y, token, position, factor, i, HRI_LANES, real);
  if (i < n) embed_part(y, token, position, factor, i, n - i, real);
}

static void embed_rows(void *context, int64_t begin, int64_t end, int thread) {
  const hri_embed_args *args = context;
  (void)thread;
  for (int64_t row = begin; row < end; row++) HRI_BY_REAL(args->real, embed_row(args, row, REAL));
}

static void embed(const hri_embed_args *args) {
  hri_team_each(args->team, args->rows, hri_grain(args->columns), embed_rows, (void *)args);
}

/* to[n] += factor * dy from element `at` on */
static HRI_INLINE void add_row(float *to, const void *dy, float factor, int64_t at, int64_t n, hri_real real) {
  int64_t i = 0;
  for (; i + HRI_LANES <= n; i += HRI_LANES)
    hri_vstore(to + i, hri_vload(to + i) + factor * hri_vload_real(dy, at + i, real));
  if (i < n)
    hri_vstore_n(to + i, hri_vload_n(to + i, n - i) + factor * hri_vload_real_n(dy, at + i, n - i, real), n - i);
}

/* Columns [begin, end) of all rows. */
static HRI_INLINE void add_stripe(const hri_embed_backward_args *args, int64_t begin, int64_t end, hri_real real) {
  for (int64_t row = 0; row < args->rows; row++) {
    float *to = args->dtable + args->index[row] * args->columns + begin;
    if (args->index[row] == args->skip_index) continue;
    add_row(to, args->dy, (float)args->factor, row * args->columns + begin, end - begin, real);
  }
}

static void zero_rows(void *context, int64_t begin, int64_t end, int thread) {
  const hri_embed_backward_args *args = context;
  (void)thread;
  memset(args->dtable + begin * args->columns, 0, (size_t)((end - begin) * args->columns) * sizeof *args->dtable);
}

static void add_stripes(void *context, int64_t begin, int64_t end, int thread) {
  const hri_embed_backward_args *args = context;
  int64_t stop = end * STRIPE < args->columns ? end * STRIPE : args->columns;
  (void)thread;
  HRI_BY_REAL(args->real, add_stripe(args, begin * STRIPE, stop, REAL));
}

static void embed_backward(const hri_embed_backward_args *args) {
  int64_t columns = args->columns, stripes = (columns + STRIPE - 1) / STRIPE;
  int64_t even = (stripes - 1) / hri_team_threads(args->team) + 1; /* one walk over the rows for each thread */
  int64_t grain = hri_grain(args->rows * STRIPE);
  if (!args->accumulate) hri_team_each(args->team, args->stored_rows, hri_grain(columns), zero_rows, (void *)args);
  hri_team_each(args->team, stripes, grain > even ? grain : even, add_stripes, (void *)args);
}

void HRI_ISA_NAME(hri_embed_kernels)(hri_cpu_kernels *table) {
  table->embed = embed;
  table->embed_backward = embed_backward;
}
