/* The blocks in which oneDNN 2.6.3 computes a matrix product, and the scratch that they take.
 *
 * The library serves fp32 from AVX-512 on and bf16 where the processor multiplies its pairs; what else it has needs
 * memory of its own and is not taken (gemm_onednn.c). It cuts c into blocks of rows and columns, and the sum into
 * blocks of terms, by a search for the least idle share of the team; from the blocks follow the buffers of a thread.
 * The search is done again here.
 * Its rule was read in the library's sources (v2.6.3, src/cpu/x64/matmul/brgemm_matmul_utils.cpp) and is held to the
 * answers of the library that bench/onednn.c records (tests/plan/onednn-2.6.3.txt, shapes that were not looked at when
 * this was written among them): tests/plan/test_recorded.c, and tests/unit/test_gemm.c against the library itself.
 *
 * All divisions of the search are of floats, in this order: another order breaks other ties. */
#include "backend/onednn_2_6_3.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum {
  COLUMN_BLOCK = 64,
  BATCH_BYTES = 16 * 32, /* of a thread: 16 pairs of addresses */
  PADDING = 128          /* of every buffer */
};

/* A product and what of it the search looks at; sizes as in hri_gemm_product. */
typedef struct problem {
  int64_t rows, columns, depth, team;
  bool small; /* bf16 */
  bool a_transposed, b_transposed, b_packed;
  bool sums_apart; /* c cannot hold fp32 sums that go on */
  bool copies_a, copies_b;
} problem;

typedef struct blocks {
  int64_t rows, columns, depth; /* of a block */
  int64_t column_blocks;        /* that a thread takes together */
  int64_t depth_team;           /* threads that share a sum */
} blocks;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t times(int64_t count, int64_t size) { return (count + size - 1) / size; }
static int64_t rounded(int64_t value, int64_t unit) { return times(value, unit) * unit; }
static bool power_of_two(int64_t value) { return value > 0 && (value & (value - 1)) == 0; }

static problem problem_of(const hri_gemm_shape *s) {
  hri_gemm_product p = hri_gemm_product_of(s);
  problem q = {.rows = p.rows,
               .columns = p.columns,
               .depth = p.depth,
               .team = s->threads,
               .small = s->type == HRI_REAL_BF16,
               .b_packed = s->packed};
  q.a_transposed = s->kind == HRI_GEMM_DW && (p.rows > 1 || p.depth > 1);
  q.b_transposed = s->kind == HRI_GEMM_FORWARD && !s->packed && p.columns > 1 && p.depth > 1;
  q.sums_apart = s->out != HRI_REAL_F32 || s->accumulate;
  /* rows at a distance of a large power of two fall into the same sets of the cache */
  q.copies_a = q.a_transposed || (q.small && power_of_two(p.depth) && p.depth >= 4096 && p.rows >= 1024);
  q.copies_b = !q.b_packed && (q.b_transposed || q.small || (p.columns > 256 && power_of_two(p.columns)));
  return q;
}

/* The share of the last round of `team` in which nothing is left to do, or what was taken too much of, if that is
 * less. */
static float idle(uint64_t work, uint64_t team) {
  uint64_t rest = work % team, share = team - rest;
  if (work >= team && rest < share) share = rest;
  return (float)share / (float)team;
}

static float imbalance(const problem *q, const blocks *b) {
  int64_t team = q->team / b->depth_team, in_columns = times(q->columns, b->columns),
          chunks = times(in_columns, b->column_blocks);
  uint64_t work = (uint64_t)times(q->rows, b->rows) * (uint64_t)times(q->columns, b->columns * b->column_blocks);
  float of_team = idle(work, (uint64_t)team);
  float of_rows = (float)(b->rows * times(q->rows, b->rows) % q->rows) / (float)q->rows;
  float of_columns = ((float)chunks * (float)b->column_blocks - (float)in_columns) / (float)in_columns;
  float of_depth = idle((uint64_t)q->depth, (uint64_t)(b->depth_team * b->depth));
  float left_out =
      team * b->depth_team != q->team ? ((float)q->team - (float)(team * b->depth_team)) / (float)q->team : 0;
  return (of_team + of_rows + of_columns + left_out + of_depth) / 5;
}

/* The best of all blocks that are tried, the first one of equals; false when all leave the team idle: no such
 * kernel. */
static bool search(problem *q, blocks *best) {
  blocks b = {.columns = least(q->columns, COLUMN_BLOCK)};
  int64_t fewest_rows = least(32, q->rows), most_chunks, depth_teams = 1;
  float least_idle = 1;
  b.depth = least(q->depth, q->depth > 1024 && !q->a_transposed ? 1024 : 512);
  most_chunks = least(q->copies_a ? 16 : 1, times(q->columns, b.columns));
  if (q->team > times(q->columns, b.columns)) { /* blocks of columns alone do not give every thread something */
    fewest_rows = least(16, q->rows);
    if ((q->rows <= 40 || (q->a_transposed && q->rows <= 512)) && !q->b_transposed && !q->a_transposed && !q->small)
      q->copies_b = false;
    if (q->a_transposed && q->depth >= 2048 && (!q->small || power_of_two(q->depth))) depth_teams = least(q->team, 4);
  }
  for (b.depth_team = depth_teams; b.depth_team >= 1; b.depth_team--)
    for (b.column_blocks = most_chunks; b.column_blocks >= 1; b.column_blocks--)
      for (b.rows = least(256, q->rows); b.rows >= fewest_rows; b.rows--) {
        float now = imbalance(q, &b);
        if (now < least_idle) least_idle = now, *best = b;
      }
  assert(least_idle == 1 || best->rows >= 1);
  return least_idle < 1;
}

static uint64_t buffer(int64_t team, int64_t elements, uint64_t size) {
  return (uint64_t)team * (uint64_t)elements * size + PADDING;
}

static uint64_t scratch(const problem *q, const blocks *b) {
  uint64_t size = q->small ? 2 : 4, bytes = (uint64_t)q->team * BATCH_BYTES + PADDING;
  int64_t line = q->small ? 32 : 16, terms = rounded(b->depth, line);
  bool shared, apart;
  assert(b->rows >= 1 && b->columns >= 1 && b->depth >= 1); /* the search found them */
  shared = b->depth_team > 1 && q->depth > b->depth;
  apart = q->sums_apart && (q->depth > b->depth || q->depth % b->depth > 0);
  if (q->copies_a) bytes += buffer(q->team, b->rows * (terms + (terms >= 512 && power_of_two(terms) ? line : 0)), size);
  if (q->copies_b) bytes += buffer(q->team, COLUMN_BLOCK * terms, size);
  if (shared || apart)
    bytes += buffer(q->team, b->depth_team > 1 ? q->columns * q->rows : b->columns * b->rows * b->column_blocks,
                    sizeof(float));
  return bytes;
}

/* b in blocks of 16 terms (of pairs 32) and 64 columns. */
static hri_packing packing_of(const problem *q) {
  hri_packing p = {.group = q->small ? 2 : 1, .depth_block = q->small ? 32 : 16, .column_block = COLUMN_BLOCK};
  p.depth_blocks = times(q->depth, p.depth_block);
  p.column_blocks = times(q->columns, p.column_block);
  p.depth_stride = p.depth_block * p.column_block;
  p.column_stride = p.depth_stride * p.depth_blocks;
  p.bytes = (uint64_t)(p.column_stride * p.column_blocks) * (q->small ? 2 : 4);
  return p;
}

void hri_onednn_recorded(hri_isa level, const hri_gemm_shape *shape, hri_onednn_answer *answer) {
  problem q = problem_of(shape);
  blocks best = {0};
  memset(answer, 0, sizeof *answer);
  if (level < (q.small ? HRI_ISA_AVX512_BF16 : HRI_ISA_AVX512) || !search(&q, &best)) return;
  answer->served = true;
  answer->scratch_bytes = scratch(&q, &best);
  if (q.b_packed) answer->packing = packing_of(&q);
  (void)snprintf(answer->name, sizeof answer->name, "brg:%s", q.small ? "avx512_core_bf16" : "avx512_core");
}
