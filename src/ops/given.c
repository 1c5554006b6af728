/* What nodes give to their kernels, op by op. */
#include "ops/given.h"

static void *pointer(const hri_given *g, uint32_t index) { return hri_given_pointer(g, index); }
static int64_t rows(const hri_given *g, uint32_t index) { return hri_given_rows(g, index); }
static int64_t columns(const hri_given *g, uint32_t index) { return hri_given_columns(g, index); }
static hri_real real(const hri_given *g, uint32_t index) { return hri_given_real(g, index); }
static bool adds(const hri_given *g, uint32_t index) { return hri_given_adds(g, index); }

/* ---- embed, norm ---- */

hri_embed_args hri_given_embed(const hri_given *g) {
  return (hri_embed_args){.rows = rows(g, 4),
                          .columns = columns(g, 4),
                          .real = real(g, 4),
                          .tokens = pointer(g, 1),
                          .factor = g->node->attr.f[0],
                          .positions = pointer(g, 3),
                          .ids = pointer(g, 0),
                          .position = pointer(g, 2),
                          .y = pointer(g, 4),
                          .team = g->team};
}

hri_embed_backward_args hri_given_embed_backward(const hri_given *g) {
  return (hri_embed_backward_args){.rows = rows(g, 1),
                                   .columns = columns(g, 1),
                                   .real = real(g, 1),
                                   .dy = pointer(g, 1),
                                   .index = pointer(g, 0),
                                   .factor = g->node->attr.f[0],
                                   .skip_index = g->node->attr.i[0],
                                   .dtable = pointer(g, 2),
                                   .stored_rows = rows(g, 2),
                                   .accumulate = adds(g, 2),
                                   .team = g->team};
}

hri_norm_args hri_given_norm(const hri_given *g) {
  return (hri_norm_args){.rows = rows(g, 0),
                         .columns = columns(g, 0),
                         .real = real(g, 0),
                         .x = pointer(g, 0),
                         .residual = pointer(g, 3),
                         .s = pointer(g, 4),
                         .weight = pointer(g, 1),
                         .weight_offset = g->node->attr.f[1],
                         .bias = pointer(g, 2),
                         .eps = g->node->attr.f[0],
                         .y = pointer(g, 5),
                         .stats = pointer(g, 6),
                         .team = g->team};
}

hri_norm_backward_args hri_given_norm_backward(const hri_given *g) {
  return (hri_norm_backward_args){.rows = rows(g, 0),
                                  .columns = columns(g, 0),
                                  .real = real(g, 0),
                                  .dy = pointer(g, 0),
                                  .x = pointer(g, 1),
                                  .stats = pointer(g, 2),
                                  .weight = pointer(g, 3),
                                  .weight_offset = g->node->attr.f[1],
                                  .extra = pointer(g, 4),
                                  .dx = pointer(g, 5),
                                  .dweight = pointer(g, 6),
                                  .dbias = pointer(g, 7),
                                  .accumulate = adds(g, 6) || adds(g, 7),
                                  .scratch = hri_given_scratch(g),
                                  .team = g->team};
}

hri_head_norm_args hri_given_head_norm(const hri_given *g) {
  const hri_attr *at = &g->node->attr;
  return (hri_head_norm_args){.rows = rows(g, 0),
                              .heads = at->i[0],
                              .kv_heads = at->i[1],
                              .head_size = at->i[2],
                              .key_size = at->i[3],
                              .real = real(g, 0),
                              .x = pointer(g, 0),
                              .wq = pointer(g, 1),
                              .wk = pointer(g, 2),
                              .weight_offset = at->f[1],
                              .eps = at->f[0],
                              .y = pointer(g, 3),
                              .stats = pointer(g, 4),
                              .team = g->team};
}

hri_head_norm_backward_args hri_given_head_norm_backward(const hri_given *g) {
  const hri_attr *at = &g->node->attr;
  return (hri_head_norm_backward_args){.rows = rows(g, 0),
                                       .heads = at->i[0],
                                       .kv_heads = at->i[1],
                                       .head_size = at->i[2],
                                       .key_size = at->i[3],
                                       .real = real(g, 0),
                                       .dy = pointer(g, 0),
                                       .x = pointer(g, 1),
                                       .stats = pointer(g, 2),
                                       .wq = pointer(g, 3),
                                       .wk = pointer(g, 4),
                                       .weight_offset = at->f[1],
                                       .dx = pointer(g, 5),
                                       .dwq = pointer(g, 6),
                                       .dwk = pointer(g, 7),
                                       .accumulate = adds(g, 6) || adds(g, 7),
                                       .scratch = hri_given_scratch(g),
                                       .team = g->team};
}

/* ---- DoRA ---- */

static bool has_magnitudes(const hri_attr *attr, uint32_t part) { return attr->i[3] >> part & 1; }

/* Magnitudes or lengths of the parts that have some stand side by side. */
bool hri_given_row_lengths(const hri_given *g, uint32_t part, hri_row_lengths_args *a) {
  const hri_attr *attr = &g->node->attr;
  bool begins = g->node->op == HRI_OP_DORA_BEGIN;
  *a = (hri_row_lengths_args){.rows = attr->i[part],
                              .columns = columns(g, 0),
                              .real = real(g, 0),
                              .w = pointer(g, 0),
                              .missing = begins,
                              .lengths = pointer(g, begins ? 1 : 7),
                              .team = g->team};
  for (uint32_t p = 0; p < part; p++) {
    a->w = hri_real_from(a->w, attr->i[p] * a->columns, a->real);
    if (has_magnitudes(attr, p)) a->lengths += attr->i[p];
  }
  if (!begins && has_magnitudes(attr, part)) {
    a->a = pointer(g, 1 + part);
    a->b = pointer(g, 4 + part);
    a->rank = rows(g, 1 + part);
    a->scale = (float)attr->f[part];
  }
  return has_magnitudes(attr, part);
}

hri_dora_args hri_given_dora(const hri_given *g) {
  const hri_attr *attr = &g->node->attr;
  bool back = g->node->op == HRI_OP_DORA_BACKWARD;
  uint32_t z = back ? 1 : 0;
  return (hri_dora_args){.rows = rows(g, 0),
                         .columns = columns(g, 0),
                         .real = real(g, 0),
                         .parts = {attr->i[0], attr->i[1], attr->i[2]},
                         .having = (uint32_t)attr->i[3],
                         .dy = back ? pointer(g, 0) : NULL,
                         .z = pointer(g, z),
                         .magnitudes = pointer(g, z + 1),
                         .lengths = pointer(g, z + 2),
                         .bias = back ? NULL : pointer(g, 3),
                         .y = back ? NULL : pointer(g, 4),
                         .dz = back ? pointer(g, 4) : NULL,
                         .dmagnitudes = back ? pointer(g, 5) : NULL,
                         .accumulate = back && adds(g, 5),
                         .scratch = hri_given_scratch(g),
                         .team = g->team};
}

/* ---- pointwise, quant ---- */

hri_rope_args hri_given_rope(const hri_given *g) {
  const float *table = pointer(g, 2);
  return (hri_rope_args){.rows = rows(g, 0),
                         .heads = g->node->attr.i[0],
                         .kv_heads = g->node->attr.i[1],
                         .head_size = g->node->attr.i[2],
                         .rotary_size = g->node->attr.i[4],
                         .real = real(g, 0),
                         .x = pointer(g, 0),
                         .y = pointer(g, 3),
                         .cosines = table,
                         .sines = table + hri_given_elements(g, 2) / 2,
                         .position = pointer(g, 1),
                         .inverse = g->node->attr.i[3] != 0,
                         .team = g->team};
}

hri_quant_args hri_given_quant(const hri_given *g, const hri_quant_layout *layout) {
  bool quantizes = g->node->op == HRI_OP_QUANTIZE;
  uint32_t w = quantizes ? 0 : 3, codes = quantizes ? 1 : 0;
  return (hri_quant_args){.kind = (uint32_t)g->node->attr.i[0],
                          .layout = layout,
                          .real = real(g, w),
                          .w = pointer(g, w),
                          .codes = pointer(g, codes),
                          .absmax = pointer(g, codes + 1),
                          .nested = pointer(g, codes + 2),
                          .team = g->team};
}

/* ---- optimizer ---- */

static const hri_param_range *range_of(const hri_job *job, const hri_node *node, uint32_t k) {
  return &job->ranges.items[job->laid_out.items[node->attr.i[1] + k]];
}

/* What pads a vocabulary has no part in scales that elements share. */
int64_t hri_given_update_elements(const hri_job *job, const hri_node *node, uint32_t k) {
  hri_id w = hri_piece(job, hri_operands(job, node)[2].tensor, k);
  return hri_state_apart(hri_optimizer_of(node->op)) ? (int64_t)hri_range_logical(job, range_of(job, node, k))
                                                     : (int64_t)hri_tensor_stored_elements(&job->tensors.items[w]);
}

int64_t hri_given_update_columns(const hri_job *job, const hri_node *node, uint32_t k) {
  const hri_param_range *range = range_of(job, node, k);
  return (int64_t)(range->elements / range->rows);
}

/* g, control, w, the tensors of the state, what stands beside w?, guard?: random bits go by the element of the parameter,
 * wherever its ranges lie. */
hri_update_args hri_given_update(const hri_given *g, uint32_t k) {
  const hri_param_range *range = range_of(g->job, g->node, k);
  const hri_optimizer *row = hri_optimizer_get(hri_optimizer_of(g->node->op));
  uint32_t beside = 3 + row->tensor_count;
  bool split = real(g, 2) == HRI_REAL_BF16;
  hri_update_args a = {.n = hri_given_update_elements(g->job, g->node, k),
                       .w = hri_given_piece_pointer(g, 2, k),
                       .w_real = real(g, 2),
                       .low = split ? hri_given_piece_pointer(g, beside, k) : NULL,
                       .copy = split ? NULL : hri_given_piece_pointer(g, beside, k),
                       .g = hri_given_piece_pointer(g, 0, k),
                       .gradient_real = real(g, 0),
                       .first_element = (int64_t)range->first,
                       .rounding = {.site = g->job->params.items[range->param].site},
                       .team = g->team};
  for (uint32_t t = 0; t < row->tensor_count; t++) {
    a.state[t] = hri_given_piece_pointer(g, 3 + t, k);
    if (row->tensors[t].narrow) a.state_real = real(g, 3 + t);
  }
  return a;
}
