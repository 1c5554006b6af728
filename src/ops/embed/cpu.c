/* Embedding rows out of tables, and the sum of gradients back into them.
 *
 * The backward cuts the columns, not the rows, among the threads: each one walks all indices in row order over its own
 * columns. Every sum has row order whatever the team, no row of the table is shared, and the load is even however often
 * a token occurs. */
#include "ops/cpu.h"
#include "ops/scratch.h"
#include "ops/vmath.h"

enum { STRIPE_MIN = 64 }; /* fewest columns of a stripe: four cache lines */

/* y[n] = a + b; y may alias a. */
static void add_row(float *y, const float *a, const float *b, int64_t n) {
  int64_t i = 0;
  for (; i + HRI_LANES <= n; i += HRI_LANES)
    hri_vstore(y + i, hri_vload(a + i) + hri_vload(b + i));
  if (i < n) hri_vstore_n(y + i, hri_vload_n(a + i, n - i) + hri_vload_n(b + i, n - i), n - i);
}

static void embed(const hri_embed_args *args) {
  int64_t rows = args->rows, columns = args->columns;
#pragma omp parallel for num_threads(hri_team(args->threads, rows *columns)) schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    const float *token = args->tokens + args->ids[row] * columns;
    if (args->positions)
      add_row(args->y + row * columns, token, args->positions + args->position[row] * columns, columns);
    else
      memcpy(args->y + row * columns, token, (size_t)columns * sizeof *args->y);
  }
}

/* Columns [begin, end) of all rows. */
static void add_stripe(const hri_embed_backward_args *args, int64_t begin, int64_t end) {
  for (int64_t row = 0; row < args->rows; row++) {
    float *to = args->dtable + args->index[row] * args->columns + begin;
    if (args->index[row] == args->skip_index) continue;
    add_row(to, to, args->dy + row * args->columns + begin, end - begin);
  }
}

static void embed_backward(const hri_embed_backward_args *args) {
  int64_t columns = args->columns, most = (columns + STRIPE_MIN - 1) / STRIPE_MIN;
  int team = hri_team(args->threads, (args->rows + args->stored_rows) * columns);
  int64_t stripes = team < most ? team : most, width = stripes ? (columns + stripes - 1) / stripes : 0;
  width = (width + 15) / 16 * 16; /* whole cache lines, where rows are aligned to them */
  if (!args->accumulate) {
    int64_t stored = args->stored_rows;
#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t row = 0; row < stored; row++)
      memset(args->dtable + row * columns, 0, (size_t)columns * sizeof *args->dtable);
  }
#pragma omp parallel for num_threads(team) schedule(static)
  for (int64_t stripe = 0; stripe < stripes; stripe++) {
    int64_t begin = stripe * width, end = begin + width < columns ? begin + width : columns;
    if (begin < end) add_stripe(args, begin, end);
  }
}

void HRI_ISA_NAME(hri_embed_kernels)(hri_cpu_kernels *table) {
  table->embed = embed;
  table->embed_backward = embed_backward;
}
