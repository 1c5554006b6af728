/* A reference backend: executes the nodes of a compiled job one by one with the references of src/ops, in one number
 * type. Programs, autodiff and passes are the engine's; arithmetic is naive loops. Included once per type:
 *
 *   RUN_REAL   the type             RUN(name)  names of what this file defines
 *   RUN_REF(op) the reference of an op in that type; attention has RUN_ATTENTION(forward|backward)
 *
 * In double it is the truth that gradients are held against. In float it is "a plain fp32 implementation" of the very
 * same program, whose distance from the double run is the yardstick of tolerances.
 *
 * A storage is an array of RUN_REAL (int32 for inputs), addressed as in an arena (4 bytes an element), so that views,
 * segments and in-place merges mean what they mean there. Operands that are read are copied first, because references
 * do not allow aliasing. Optimizer and transfer nodes do nothing: parameters are set from outside. */
#ifndef HRI_TESTS_REFERENCE_RUN_H
#define HRI_TESTS_REFERENCE_RUN_H

#include <stdlib.h>
#include <string.h>

#include <headroom/model.h>

#include "ops/attention/ref.h"
#include "ops/embed/ref.h"
#include "ops/linear/ref.h"
#include "ops/loss/ref.h"
#include "ops/norm/ref.h"
#include "ops/pointwise/ref.h"
#include "ops/pointwise/rope_table.h"
#include "ops/rules.h"

/* Which nodes of a program run. */
enum { RUN_ALL = -1, RUN_FORWARD = 1 << HRI_PHASE_FORWARD | 1 << HRI_PHASE_LOSS };

#endif

typedef struct RUN(memory) {
  const hri_job *job;
  RUN_REAL **reals; /* per storage */
  int32_t **ints;   /* per storage */
  hri_control control;
  void *taken[3 * HRI_MAX_OPERANDS]; /* by the node that runs */
  uint32_t taken_count;
} RUN(memory);

static void RUN(open)(RUN(memory) * m, const hri_job *job) {
  memset(m, 0, sizeof *m);
  m->job = job;
  m->reals = calloc(job->storages.count + 1, sizeof *m->reals);
  m->ints = calloc(job->storages.count + 1, sizeof *m->ints);
  assert_true(m->reals && m->ints);
  for (size_t s = 0; s < job->storages.count; s++) {
    uint64_t elements = job->storages.items[s].bytes / 4 + 1;
    m->reals[s] = malloc(elements * sizeof(RUN_REAL));
    m->ints[s] = calloc(elements, sizeof(int32_t));
    assert_true(m->reals[s] && m->ints[s]);
    for (uint64_t i = 0; i < elements; i++) m->reals[s][i] = (RUN_REAL)NAN; /* what nobody wrote shows */
  }
  m->control.loss_scale = m->control.clip_scale = 1;
}

static void RUN(close)(RUN(memory) * m) {
  for (size_t s = 0; s < m->job->storages.count; s++) {
    free(m->reals[s]);
    free(m->ints[s]);
  }
  free(m->reals);
  free(m->ints);
}

static RUN_REAL *RUN(at)(const RUN(memory) * m, hri_id tensor) {
  const hri_tensor *t = &m->job->tensors.items[tensor];
  return m->reals[t->storage] + t->offset / 4;
}
static int32_t *RUN(ints_at)(const RUN(memory) * m, hri_id tensor) {
  const hri_tensor *t = &m->job->tensors.items[tensor];
  return m->ints[t->storage] + t->offset / 4;
}

/* ---- operands of the node that runs ---- */

static RUN_REAL *RUN(take)(RUN(memory) * m, uint64_t elements) {
  RUN_REAL *x = calloc(elements + 1, sizeof *x);
  assert_non_null(x);
  assert_true(m->taken_count < sizeof m->taken / sizeof *m->taken);
  m->taken[m->taken_count++] = x;
  return x;
}

/* A copy of a read operand, NULL when it is absent. */
static const RUN_REAL *RUN(in)(RUN(memory) * m, const hri_node *node, uint32_t index) {
  const hri_tensor *t = hri_at(m->job, node, index);
  RUN_REAL *x;
  if (!t) return NULL;
  x = RUN(take)(m, hri_tensor_stored_elements(t));
  memcpy(x, m->reals[t->storage] + t->offset / 4, hri_tensor_stored_elements(t) * sizeof *x);
  return x;
}
static const int32_t *RUN(index)(const RUN(memory) * m, const hri_node *node, uint32_t index) {
  return hri_at(m->job, node, index) ? RUN(ints_at)(m, hri_operands(m->job, node)[index].tensor) : NULL;
}
static RUN_REAL *RUN(out)(const RUN(memory) * m, const hri_node *node, uint32_t index) {
  return hri_at(m->job, node, index) ? RUN(at)(m, hri_operands(m->job, node)[index].tensor) : NULL;
}
/* An output that the reference adds to: zeroed when the node WRITEs. */
static RUN_REAL *RUN(sum)(const RUN(memory) * m, const hri_node *node, uint32_t index) {
  const hri_tensor *t = hri_at(m->job, node, index);
  RUN_REAL *x = RUN(out)(m, node, index);
  for (uint64_t i = 0; x && hri_operands(m->job, node)[index].access == HRI_WRITE && i < hri_tensor_stored_elements(t);
       i++)
    x[i] = 0;
  return x;
}
static int64_t RUN(rows)(const RUN(memory) * m, const hri_node *node, uint32_t index) {
  return (int64_t)hri_rows(hri_at(m->job, node, index));
}
static int64_t RUN(columns)(const RUN(memory) * m, const hri_node *node, uint32_t index) {
  return (int64_t)hri_columns(hri_at(m->job, node, index));
}
static int64_t RUN(elements)(const RUN(memory) * m, const hri_node *node, uint32_t index) {
  return (int64_t)hri_tensor_stored_elements(hri_at(m->job, node, index));
}

/* Whose random numbers the node's are. */
static hri_draw RUN(draw)(const RUN(memory) * m, const hri_node *node) {
  return (hri_draw){m->control.seed, (uint64_t)m->control.step, node->site, (uint32_t)m->control.row_base};
}

/* ---- ops ---- */

static void RUN(norm)(RUN(memory) * m, const hri_node *node) {
  const RUN_REAL *x = RUN(in)(m, node, 0), *w = RUN(in)(m, node, 1), *b = RUN(in)(m, node, 2),
                 *residual = RUN(in)(m, node, 3);
  RUN_REAL *s = RUN(out)(m, node, 4), *y = RUN(out)(m, node, 5), *stats = RUN(out)(m, node, 6);
  int64_t rows = RUN(rows)(m, node, 0), columns = RUN(columns)(m, node, 0);
  if (!s) s = RUN(take)(m, (uint64_t)(rows * columns));
  if (node->attr.i[0] == HR_NORM_LAYER)
    RUN_REF(layernorm)(y, s, stats, x, residual, w, (RUN_REAL)node->attr.f[1], b, (RUN_REAL)node->attr.f[0], rows,
                       columns);
  else
    RUN_REF(rmsnorm)(y, s, stats, x, residual, w, (RUN_REAL)node->attr.f[1], b, (RUN_REAL)node->attr.f[0], rows,
                     columns);
}

static void RUN(norm_backward)(RUN(memory) * m, const hri_node *node) {
  const RUN_REAL *dy = RUN(in)(m, node, 0), *x = RUN(in)(m, node, 1), *stats = RUN(in)(m, node, 2),
                 *w = RUN(in)(m, node, 3), *extra = RUN(in)(m, node, 4);
  RUN_REAL *dx = RUN(out)(m, node, 5), *dw = RUN(sum)(m, node, 6), *db = RUN(sum)(m, node, 7);
  int64_t rows = RUN(rows)(m, node, 0), columns = RUN(columns)(m, node, 0);
  if (node->attr.i[0] == HR_NORM_LAYER)
    RUN_REF(layernorm_backward)(dx, dw, db, dy, x, stats, w, (RUN_REAL)node->attr.f[1], extra, rows, columns);
  else RUN_REF(rmsnorm_backward)(dx, dw, db, dy, x, stats, w, (RUN_REAL)node->attr.f[1], extra, rows, columns);
}

static void RUN(head_norm)(RUN(memory) * m, const hri_node *node) {
  const int64_t *i = node->attr.i;
  RUN_REF(head_norm)(RUN(out)(m, node, 3), RUN(out)(m, node, 4), RUN(in)(m, node, 0), RUN(in)(m, node, 1),
                     RUN(in)(m, node, 2), (RUN_REAL)node->attr.f[1], (RUN_REAL)node->attr.f[0], RUN(rows)(m, node, 0),
                     i[0], i[1], i[2], hri_head_norm_key_size(node));
}

static void RUN(head_norm_backward)(RUN(memory) * m, const hri_node *node) {
  const int64_t *i = node->attr.i;
  RUN_REF(head_norm_backward)(RUN(out)(m, node, 5), RUN(sum)(m, node, 6), RUN(sum)(m, node, 7), RUN(in)(m, node, 0),
                              RUN(in)(m, node, 1), RUN(in)(m, node, 2), RUN(in)(m, node, 3), RUN(in)(m, node, 4),
                              (RUN_REAL)node->attr.f[1], RUN(rows)(m, node, 0), i[0], i[1], i[2],
                              hri_head_norm_key_size(node));
}

static hri_attention_shape RUN(shape)(const RUN(memory) * m, const hri_node *node) {
  const int64_t *i = node->attr.i;
  return (hri_attention_shape){.batch = i[0],
                               .sequence = i[1],
                               .heads = i[2],
                               .kv_heads = i[3],
                               .head_dim = i[4],
                               .window = i[5],
                               .softcap = node->attr.f[1],
                               .dropout = node->attr.f[2],
                               .draw = RUN(draw)(m, node)};
}

static void RUN(attention)(RUN(memory) * m, const hri_node *node) {
  hri_attention_shape s = RUN(shape)(m, node);
  const RUN_REAL *qkv = RUN(in)(m, node, 0), scale = (RUN_REAL)node->attr.f[0];
  bool full = node->op == HRI_OP_ATTENTION_FULL;
  RUN_ATTENTION(forward)(&s, scale, qkv, RUN(index)(m, node, 1), RUN(out)(m, node, 2),
                         full ? NULL : RUN(out)(m, node, 3), full ? RUN(out)(m, node, 3) : NULL);
}

/* The materialized one keeps no y and lse: they are made again from qkv. */
static void RUN(attention_backward)(RUN(memory) * m, const hri_node *node) {
  hri_attention_shape s = RUN(shape)(m, node);
  bool full = node->op == HRI_OP_ATTENTION_FULL_BACKWARD;
  const RUN_REAL *dy = RUN(in)(m, node, 0), *qkv = RUN(in)(m, node, 1), scale = (RUN_REAL)node->attr.f[0];
  const int32_t *doc_start = RUN(index)(m, node, full ? 3 : 4);
  if (full) {
    RUN_REAL *y = RUN(take)(m, (uint64_t)RUN(elements)(m, node, 0)),
             *lse = RUN(take)(m, (uint64_t)(s.batch * s.sequence * s.heads));
    RUN_ATTENTION(forward)(&s, scale, qkv, doc_start, y, lse, NULL);
    RUN_ATTENTION(backward)(&s, scale, dy, qkv, y, lse, doc_start, RUN(out)(m, node, 4));
  } else {
    RUN_ATTENTION(backward)(&s, scale, dy, qkv, RUN(in)(m, node, 2), RUN(in)(m, node, 3), doc_start,
                            RUN(out)(m, node, 5));
  }
}

static void RUN(rope)(RUN(memory) * m, const hri_node *node) {
  const RUN_REAL *x = RUN(in)(m, node, 0), *table = RUN(in)(m, node, 2);
  const int64_t *i = node->attr.i;
  RUN_REF(rope)(RUN(out)(m, node, 3), x, table, table + RUN(elements)(m, node, 2) / 2, RUN(index)(m, node, 1),
                RUN(rows)(m, node, 0), i[0], i[1], i[2], i[4], i[3] != 0);
}

/* The table is data: the engine's own fp32 values. */
static void RUN(rope_table)(RUN(memory) * m, const hri_node *node) {
  const hri_rope_source *source = &m->job->ropes.items[node->attr.i[2]];
  int64_t n = RUN(elements)(m, node, 0);
  float *table = malloc((size_t)n * sizeof *table);
  assert_non_null(table);
  hri_rope_table(source->inverse, source->pairs, source->factor, node->attr.i[0], table, table + n / 2, NULL);
  for (int64_t i = 0; i < n; i++) RUN(out)(m, node, 0)[i] = (RUN_REAL)table[i];
  free(table);
}

static void RUN(loss_sum)(RUN(memory) * m, const hri_node *node) {
  for (int64_t i = 0; i < RUN(elements)(m, node, 0); i++)
    m->control.loss_sum += (double)RUN(at)(m, hri_operands(m->job, node)[0].tensor)[i];
}

/* Elements from row to row of an operand, which may be columns of a wider result. */
static uint64_t RUN(stride)(const RUN(memory) * m, const hri_node *node, uint32_t index) {
  const hri_tensor *t = hri_at(m->job, node, index);
  return t->stride ? t->stride : hri_columns(t);
}

/* COPY and SELECT; ACCUMULATE with ADD. */
static void RUN(move)(RUN(memory) * m, const hri_node *node) {
  uint32_t to = node->op == HRI_OP_SELECT ? 2 : 1;
  uint64_t rows = (uint64_t)RUN(rows)(m, node, to), columns = (uint64_t)RUN(columns)(m, node, to),
           from_stride = columns, to_stride = RUN(stride)(m, node, to),
           from = node->op == HRI_OP_SELECT ? (uint64_t)m->control.micro_index * rows * columns : 0;
  hri_id source = hri_operands(m->job, node)[0].tensor, target = hri_operands(m->job, node)[to].tensor;
  bool adds = hri_operands(m->job, node)[to].access == HRI_ADD;
  if (node->op != HRI_OP_SELECT) from_stride = RUN(stride)(m, node, 0);
  for (uint64_t r = 0; r < rows; r++)
    for (uint64_t c = 0; c < columns; c++) {
      RUN_REAL *y = RUN(at)(m, target) + r * to_stride + c, x = RUN(at)(m, source)[from + r * from_stride + c];
      *y = adds ? *y + x : x;
      if (!adds) RUN(ints_at)(m, target)[r * to_stride + c] = RUN(ints_at)(m, source)[from + r * from_stride + c];
    }
}

/* Rows side by side, of an operand that may be columns of something wider; and back. */
static RUN_REAL *RUN(gathered)(RUN(memory) * m, const hri_node *node, uint32_t index, RUN_REAL *from) {
  uint64_t columns = (uint64_t)RUN(columns)(m, node, index), stride = RUN(stride)(m, node, index);
  RUN_REAL *to;
  if (stride == columns) return from;
  to = RUN(take)(m, (uint64_t)RUN(elements)(m, node, index));
  for (uint64_t r = 0; r < (uint64_t)RUN(rows)(m, node, index); r++)
    memcpy(to + r * columns, from + r * stride, columns * sizeof *to);
  return to;
}

static void RUN(product)(RUN(memory) * m, const hri_node *node) {
  uint32_t out = node->op == HRI_OP_LINEAR ? 3 : 2;
  const RUN_REAL *a = RUN(gathered)(m, node, 0, RUN(at)(m, hri_operands(m->job, node)[0].tensor)),
                 *b = RUN(gathered)(m, node, 1, RUN(at)(m, hri_operands(m->job, node)[1].tensor));
  int64_t rows = RUN(rows)(m, node, 0);
  uint64_t columns = (uint64_t)RUN(columns)(m, node, out), stride = RUN(stride)(m, node, out);
  RUN_REAL *there = stride == columns ? RUN(sum)(m, node, out) : RUN(at)(m, hri_operands(m->job, node)[out].tensor),
           *y = RUN(gathered)(m, node, out, there);
  if (y != there && hri_operands(m->job, node)[out].access == HRI_WRITE)
    memset(y, 0, (size_t)RUN(elements)(m, node, out) * sizeof *y);
  switch (node->op) {
  case HRI_OP_LINEAR:
    RUN_REF(linear)(y, a, b, RUN(in)(m, node, 2), rows, RUN(rows)(m, node, 1), RUN(columns)(m, node, 1));
    break;
  case HRI_OP_LINEAR_DX: RUN_REF(linear_dx)(y, a, b, rows, RUN(rows)(m, node, 1), RUN(columns)(m, node, 1)); break;
  default: RUN_REF(linear_dw)(y, a, b, rows, RUN(columns)(m, node, 0), RUN(columns)(m, node, 1)); break;
  }
  for (uint64_t r = 0; y != there && r < (uint64_t)RUN(rows)(m, node, out); r++)
    memcpy(there + r * stride, y + r * columns, columns * sizeof *y);
}

static void RUN(dora_lengths)(RUN(memory) * m, const hri_node *node) {
  const RUN_REAL *w = RUN(in)(m, node, 0);
  RUN_REAL *to = RUN(out)(m, node, 7);
  int64_t columns = RUN(columns)(m, node, 0);
  for (uint32_t p = 0; p < 3; p++) {
    int64_t rows = node->attr.i[p];
    if (node->attr.i[3] >> p & 1) {
      RUN_REF(row_lengths)(to, w, RUN(in)(m, node, 1 + p), RUN(in)(m, node, 4 + p), (RUN_REAL)node->attr.f[p], rows,
                           columns, RUN(rows)(m, node, 1 + p));
      to += rows;
    }
    w += rows * columns;
  }
}

static void RUN(node)(RUN(memory) * m, const hri_node *node) {
  hr_activation act = (hr_activation)node->attr.i[0];
  switch (node->op) {
  case HRI_OP_EMBED:
    RUN_REF(embed)(RUN(out)(m, node, 4), RUN(in)(m, node, 1), (RUN_REAL)node->attr.f[0], RUN(in)(m, node, 3),
                   RUN(index)(m, node, 0), RUN(index)(m, node, 2), RUN(rows)(m, node, 4), RUN(columns)(m, node, 4));
    break;
  case HRI_OP_EMBED_BACKWARD:
    RUN_REF(embed_backward)(RUN(sum)(m, node, 2), RUN(in)(m, node, 1), (RUN_REAL)node->attr.f[0],
                            RUN(index)(m, node, 0), node->attr.i[0], RUN(rows)(m, node, 1), RUN(columns)(m, node, 1));
    break;
  case HRI_OP_LINEAR:
  case HRI_OP_LINEAR_DX:
  case HRI_OP_LINEAR_DW: RUN(product)(m, node); break;
  case HRI_OP_BIAS_GRADIENT:
    RUN_REF(bias_gradient)(RUN(sum)(m, node, 1), RUN(in)(m, node, 0), RUN(rows)(m, node, 0), RUN(columns)(m, node, 0));
    break;
  case HRI_OP_NORM: RUN(norm)(m, node); break;
  case HRI_OP_NORM_BACKWARD: RUN(norm_backward)(m, node); break;
  case HRI_OP_HEAD_NORM: RUN(head_norm)(m, node); break;
  case HRI_OP_HEAD_NORM_BACKWARD: RUN(head_norm_backward)(m, node); break;
  case HRI_OP_DORA_LENGTHS: RUN(dora_lengths)(m, node); break;
  case HRI_OP_DORA:
    RUN_REF(dora)(RUN(out)(m, node, 4), RUN(in)(m, node, 0), RUN(in)(m, node, 1), RUN(in)(m, node, 2),
                  RUN(in)(m, node, 3), node->attr.i, node->attr.i[3], RUN(rows)(m, node, 0));
    break;
  case HRI_OP_DORA_BACKWARD:
    RUN_REF(dora_backward)(RUN(out)(m, node, 4), RUN(sum)(m, node, 5), RUN(in)(m, node, 0), RUN(in)(m, node, 1),
                           RUN(in)(m, node, 2), RUN(in)(m, node, 3), node->attr.i, node->attr.i[3],
                           RUN(rows)(m, node, 0));
    break;
  case HRI_OP_SOFTCAP:
    RUN_REF(softcap)(RUN(out)(m, node, 1), RUN(in)(m, node, 0), (RUN_REAL)node->attr.f[0], RUN(elements)(m, node, 1));
    break;
  case HRI_OP_SCALE:
    RUN_REF(scale)(RUN(out)(m, node, 1), RUN(in)(m, node, 0), (RUN_REAL)node->attr.f[0], RUN(elements)(m, node, 1));
    break;
  case HRI_OP_NOISE: {
    hri_draw draw = RUN(draw)(m, node);
    RUN_REF(noise)(RUN(out)(m, node, 2), RUN(in)(m, node, 0), (RUN_REAL)node->attr.f[0], &draw, node->attr.i[0],
                   RUN(rows)(m, node, 0), RUN(columns)(m, node, 0));
    break;
  }
  case HRI_OP_DROPOUT: {
    hri_draw draw = RUN(draw)(m, node);
    RUN_REF(dropout)(RUN(out)(m, node, 2), RUN(in)(m, node, 0), node->attr.f[0], &draw, node->attr.i[0],
                     RUN(rows)(m, node, 0), RUN(columns)(m, node, 0));
    break;
  }
  case HRI_OP_ADD:
    RUN_REF(add)(RUN(out)(m, node, 2), RUN(in)(m, node, 0), RUN(in)(m, node, 1), RUN(elements)(m, node, 2));
    break;
  case HRI_OP_ACTIVATION:
    RUN_REF(activation)(act, RUN(out)(m, node, 1), RUN(in)(m, node, 0), RUN(elements)(m, node, 1));
    break;
  case HRI_OP_ACTIVATION_BACKWARD:
    RUN_REF(activation_backward)(act, RUN(out)(m, node, 2), RUN(in)(m, node, 0), RUN(in)(m, node, 1),
                                 RUN(elements)(m, node, 2));
    break;
  case HRI_OP_GLU:
    RUN_REF(glu)(act, RUN(out)(m, node, 1), RUN(in)(m, node, 0), RUN(rows)(m, node, 1), RUN(columns)(m, node, 1));
    break;
  case HRI_OP_GLU_BACKWARD:
    RUN_REF(glu_backward)(act, RUN(out)(m, node, 2), RUN(in)(m, node, 0), RUN(in)(m, node, 1), RUN(rows)(m, node, 0),
                          RUN(columns)(m, node, 0));
    break;
  case HRI_OP_ROPE: RUN(rope)(m, node); break;
  case HRI_OP_ROPE_TABLE: RUN(rope_table)(m, node); break;
  case HRI_OP_ATTENTION:
  case HRI_OP_ATTENTION_FULL: RUN(attention)(m, node); break;
  case HRI_OP_ATTENTION_BACKWARD:
  case HRI_OP_ATTENTION_FULL_BACKWARD: RUN(attention_backward)(m, node); break;
  case HRI_OP_CROSS_ENTROPY:
    RUN_REF(cross_entropy)(RUN(out)(m, node, 4), RUN(out)(m, node, 3), RUN(in)(m, node, 0), RUN(index)(m, node, 1),
                           (RUN_REAL)node->attr.f[0], (RUN_REAL)node->attr.f[1],
                           (RUN_REAL)(m->control.inv_tokens * m->control.loss_scale), RUN(rows)(m, node, 0),
                           node->attr.i[0], RUN(columns)(m, node, 0));
    break;
  case HRI_OP_LOSS_SUM: RUN(loss_sum)(m, node); break;
  case HRI_OP_ZERO:
    for (int64_t i = 0; i < RUN(elements)(m, node, 0); i++) RUN(out)(m, node, 0)[i] = 0;
    break;
  case HRI_OP_SELECT:
  case HRI_OP_COPY:
  case HRI_OP_ACCUMULATE: RUN(move)(m, node); break;
  case HRI_OP_ADVANCE:
  case HRI_OP_SQUARE_NORM:
  case HRI_OP_CLIP:
  case HRI_OP_FILL:
  case HRI_OP_SINK: break;
  default:
    if (hri_optimizer_of(node->op) == HRI_NONE)
      fail_msg("the reference backend does not know %s", hri_op_name(node->op));
  }
  while (m->taken_count > 0) free(m->taken[--m->taken_count]);
}

/* Nodes whose phase is in `phases` (bits), in issue order. */
static void RUN(program)(RUN(memory) * m, hri_program_kind program, int phases) {
  const hri_program *p = &m->job->programs[program];
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &m->job->nodes.items[p->order.items[at]];
    if (phases & 1 << node->phase) RUN(node)(m, node);
  }
}
