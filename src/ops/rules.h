/* What each op family states about its ops: shape rule, backward rule, FLOPs, what may be written in place, classes
 * (hri_rule in program/ops.h). A new op is a line there, one here, and its family's files. One initializer per op of
 * the list in program/ops.h; a missing one does not compile. */
#ifndef HRI_OPS_RULES_H
#define HRI_OPS_RULES_H

#include "program/ops.h"

#define HRI_RULE_FN(id) hr_status hri_check_##id(const hri_job *job, const hri_node *node, hr_error *error)
#define HRI_BACK_FN(id) void hri_back_##id(hri_autodiff *ad, hri_id node)
#define HRI_FLOPS_FN(id) double hri_flops_##id(const hri_job *job, const hri_node *node)

HRI_RULE_FN(embed);
HRI_BACK_FN(embed);
HRI_RULE_FN(embed_backward);
HRI_RULE_FN(linear);
HRI_BACK_FN(linear);
HRI_FLOPS_FN(linear);
HRI_RULE_FN(linear_dx);
HRI_RULE_FN(linear_dw);
HRI_RULE_FN(bias_gradient);
HRI_RULE_FN(linear_dx_activation);
HRI_RULE_FN(linear_dw_bias);
HRI_FLOPS_FN(linear_dw);
HRI_RULE_FN(norm);
HRI_BACK_FN(norm);
HRI_FLOPS_FN(norm);
HRI_RULE_FN(norm_backward);
HRI_FLOPS_FN(norm_backward);
HRI_RULE_FN(head_norm);
HRI_BACK_FN(head_norm);
HRI_RULE_FN(head_norm_backward);
HRI_RULE_FN(dora_begin);
HRI_RULE_FN(dora_lengths);
HRI_FLOPS_FN(dora_lengths);
HRI_RULE_FN(dora);
HRI_BACK_FN(dora);
HRI_FLOPS_FN(dora);
HRI_RULE_FN(dora_backward);
HRI_RULE_FN(same2);
HRI_RULE_FN(same3);
HRI_BACK_FN(add);
HRI_FLOPS_FN(add);
HRI_BACK_FN(activation);
HRI_FLOPS_FN(activation);
HRI_RULE_FN(glu);
HRI_BACK_FN(glu);
HRI_RULE_FN(glu_backward);
HRI_RULE_FN(rope);
HRI_BACK_FN(rope);
HRI_FLOPS_FN(rope);
HRI_RULE_FN(rope_table);
HRI_RULE_FN(softcap);
HRI_BACK_FN(scale);
HRI_RULE_FN(dropout);
HRI_BACK_FN(dropout);
HRI_FLOPS_FN(dropout);
HRI_RULE_FN(noise);
HRI_BACK_FN(noise);
HRI_RULE_FN(attention);
HRI_BACK_FN(attention);
HRI_FLOPS_FN(attention);
HRI_RULE_FN(attention_backward);
HRI_FLOPS_FN(attention_backward);
HRI_RULE_FN(attention_full);
HRI_BACK_FN(attention_full);
HRI_RULE_FN(attention_full_backward);
HRI_RULE_FN(attention_cached);
HRI_FLOPS_FN(attention_cached);
HRI_RULE_FN(cross_entropy);
HRI_FLOPS_FN(cross_entropy);
HRI_RULE_FN(loss_sum);
HRI_RULE_FN(square_norm);
HRI_FLOPS_FN(square_norm);
HRI_RULE_FN(found_inf);
HRI_RULE_FN(control_only);
HRI_RULE_FN(update);
HRI_FLOPS_FN(update);
HRI_RULE_FN(any);
HRI_RULE_FN(copy);
HRI_BACK_FN(copy);
HRI_RULE_FN(accumulate);
HRI_BACK_FN(accumulate);
HRI_RULE_FN(cast);
HRI_RULE_FN(split);
HRI_RULE_FN(join);
HRI_RULE_FN(pack);
HRI_RULE_FN(select);
HRI_RULE_FN(last_row);
HRI_RULE_FN(quantize);
HRI_RULE_FN(dequantize);

/* FLOPs of the backward linears equal the forward's. */
#define HRI_RULE_EMBED .check = hri_check_embed, .backward = hri_back_embed, .gathers = 1 << 1
#define HRI_RULE_EMBED_BACKWARD .check = hri_check_embed_backward, .scatters = 1 << 2
#define HRI_RULE_LINEAR                                                                                                \
  .check = hri_check_linear, .backward = hri_back_linear, .flops = hri_flops_linear, .product = HRI_PRODUCT_FORWARD,   \
  .views = 1 << 0 | 1 << 3
#define HRI_RULE_LINEAR_DX                                                                                             \
  .check = hri_check_linear_dx, .flops = hri_flops_linear, .product = HRI_PRODUCT_DX, .views = 1 << 0 | 1 << 2,        \
  .with_slope = HRI_OP_LINEAR_DX_ACTIVATION
#define HRI_RULE_LINEAR_DW                                                                                             \
  .check = hri_check_linear_dw, .flops = hri_flops_linear_dw, .product = HRI_PRODUCT_DW, .views = 1 << 0 | 1 << 1,     \
  .with_sums = HRI_OP_LINEAR_DW_BIAS
#define HRI_RULE_BIAS_GRADIENT                                                                                         \
  .check = hri_check_bias_gradient, .flops = hri_flops_add, .stream = HR_STREAM_BIAS_GRADIENT, .column_sums = true
#define HRI_RULE_LINEAR_DX_ACTIVATION                                                                                  \
  .check = hri_check_linear_dx_activation, .flops = hri_flops_linear, .product = HRI_PRODUCT_DX, .views = 1 << 0
#define HRI_RULE_LINEAR_DW_BIAS                                                                                        \
  .check = hri_check_linear_dw_bias, .flops = hri_flops_linear_dw, .product = HRI_PRODUCT_DW, .views = 1 << 0 | 1 << 1
#define HRI_RULE_NORM                                                                                                  \
  .check = hri_check_norm, .backward = hri_back_norm, .flops = hri_flops_norm,                                         \
  .in_place = {{0, 4, 0}, {3, 4, 0}, {0, 5, 4}}, .in_place_count = 3, .wide = 1 << 6, .cheap = 1 << 5,                 \
  .stream = HR_STREAM_NORM, .takes_sum_before = {0, 3, 4}
#define HRI_RULE_NORM_BACKWARD                                                                                         \
  .check = hri_check_norm_backward, .flops = hri_flops_norm_backward, .in_place = {{4, 5, 0}, {0, 5, 0}},              \
  .in_place_count = 2, .stream = HR_STREAM_NORM_BACKWARD, .takes_sum_behind = {.residual = 4, .to = 5}
#define HRI_RULE_HEAD_NORM                                                                                             \
  .check = hri_check_head_norm, .backward = hri_back_head_norm, .flops = hri_flops_norm, .in_place = {{0, 3, 0}},      \
  .in_place_count = 1, .wide = 1 << 4, .cheap = 1 << 3 | 1 << 4, .stream = HR_STREAM_NORM
#define HRI_RULE_HEAD_NORM_BACKWARD                                                                                    \
  .check = hri_check_head_norm_backward, .flops = hri_flops_norm_backward, .in_place = {{0, 5, 0}, {1, 5, 0}},         \
  .in_place_count = 2, .stream = HR_STREAM_NORM_BACKWARD
#define HRI_RULE_DORA_BEGIN .check = hri_check_dora_begin, .flops = hri_flops_dora_lengths, .stream = HR_STREAM_NORM
#define HRI_RULE_DORA_LENGTHS                                                                                          \
  .check = hri_check_dora_lengths, .flops = hri_flops_dora_lengths, .wide = 1 << 7, .stream = HR_STREAM_NORM
#define HRI_RULE_DORA                                                                                                  \
  .check = hri_check_dora, .backward = hri_back_dora, .flops = hri_flops_dora, .in_place = {{0, 4, 0}},                \
  .in_place_count = 1, .cheap = 1 << 4, .stream = HR_STREAM_ADD
#define HRI_RULE_DORA_BACKWARD                                                                                         \
  .check = hri_check_dora_backward, .flops = hri_flops_dora, .in_place = {{0, 4, 0}, {1, 4, 0}}, .in_place_count = 2,  \
  .stream = HR_STREAM_NORM_BACKWARD
#define HRI_RULE_ADD                                                                                                   \
  .check = hri_check_same3, .backward = hri_back_add, .flops = hri_flops_add, .in_place = {{0, 2, 0}, {1, 2, 0}},      \
  .in_place_count = 2, .stream = HR_STREAM_ADD, .sum = true
#define HRI_RULE_SCALE                                                                                                 \
  .check = hri_check_same2, .backward = hri_back_scale, .flops = hri_flops_add, .in_place = {{0, 1, 0}},               \
  .in_place_count = 1, .cheap = 1 << 1, .activation = true, .stream = HR_STREAM_COPY
#define HRI_RULE_DROPOUT                                                                                               \
  .check = hri_check_dropout, .backward = hri_back_dropout, .flops = hri_flops_dropout, .in_place = {{0, 2, 0}},       \
  .in_place_count = 1, .cheap = 1 << 2, .activation = true, .stream = HR_STREAM_ACTIVATION
#define HRI_RULE_NOISE                                                                                                 \
  .check = hri_check_noise, .backward = hri_back_noise, .flops = hri_flops_dropout, .in_place = {{0, 2, 0}},           \
  .in_place_count = 1, .stream = HR_STREAM_ACTIVATION
#define HRI_RULE_ACTIVATION                                                                                            \
  .check = hri_check_same2, .backward = hri_back_activation, .flops = hri_flops_activation, .in_place = {{0, 1, 0}},   \
  .in_place_count = 1, .cheap = 1 << 1, .activation = true, .stream = HR_STREAM_ACTIVATION
#define HRI_RULE_ACTIVATION_BACKWARD                                                                                   \
  .check = hri_check_same3, .flops = hri_flops_activation, .in_place = {{0, 2, 0}, {1, 2, 0}}, .in_place_count = 2,    \
  .stream = HR_STREAM_ACTIVATION_BACKWARD, .slope = true
#define HRI_RULE_GLU                                                                                                   \
  .check = hri_check_glu, .backward = hri_back_glu, .flops = hri_flops_activation, .cheap = 1 << 1,                    \
  .activation = true, .stream = HR_STREAM_GLU
#define HRI_RULE_GLU_BACKWARD                                                                                          \
  .check = hri_check_glu_backward, .flops = hri_flops_activation, .in_place = {{1, 2, 0}}, .in_place_count = 1,        \
  .stream = HR_STREAM_GLU_BACKWARD
#define HRI_RULE_ROPE                                                                                                  \
  .check = hri_check_rope, .backward = hri_back_rope, .flops = hri_flops_rope, .in_place = {{0, 3, 0}},                \
  .in_place_count = 1, .follows = true, .stream = HR_STREAM_ROPE
#define HRI_RULE_ROPE_TABLE .check = hri_check_rope_table
#define HRI_RULE_SOFTCAP                                                                                               \
  .check = hri_check_softcap, .flops = hri_flops_activation, .in_place = {{0, 1, 0}}, .in_place_count = 1,             \
  .stream = HR_STREAM_ACTIVATION
#define HRI_RULE_ATTENTION                                                                                             \
  .check = hri_check_attention, .backward = hri_back_attention, .flops = hri_flops_attention, .wide = 1 << 3,          \
  .attention = HRI_ATTENTION_FORWARD
#define HRI_RULE_ATTENTION_BACKWARD                                                                                    \
  .check = hri_check_attention_backward, .flops = hri_flops_attention_backward, .attention = HRI_ATTENTION_BACKWARD
#define HRI_RULE_ATTENTION_FULL                                                                                        \
  .check = hri_check_attention_full, .backward = hri_back_attention_full, .flops = hri_flops_attention,                \
  .attention = HRI_ATTENTION_FORWARD
#define HRI_RULE_ATTENTION_FULL_BACKWARD                                                                               \
  .check = hri_check_attention_full_backward, .flops = hri_flops_attention_backward, .attention = HRI_ATTENTION_BACKWARD
#define HRI_RULE_ATTENTION_CACHED                                                                                      \
  .check = hri_check_attention_cached, .flops = hri_flops_attention_cached, .attention = HRI_ATTENTION_CACHED
#define HRI_RULE_CROSS_ENTROPY                                                                                         \
  .check = hri_check_cross_entropy, .flops = hri_flops_cross_entropy, .in_place = {{0, 3, 0}}, .in_place_count = 1,    \
  .stream = HR_STREAM_CROSS_ENTROPY
#define HRI_RULE_LOSS_SUM .check = hri_check_loss_sum
#define HRI_RULE_SQUARE_NORM                                                                                           \
  .check = hri_check_square_norm, .flops = hri_flops_square_norm, .stream = HR_STREAM_SQUARE_NORM,                     \
  .groups = 1 << 0 | 1 << 1, .fresh = true
#define HRI_RULE_CLIP .check = hri_check_any
#define HRI_RULE_FOUND_INF .check = hri_check_found_inf
#define HRI_RULE_ADVANCE .check = hri_check_control_only
#define HRI_RULE_LOSS_SCALE .check = hri_check_control_only
#define HRI_RULE_OF_OPTIMIZERS                                                                                         \
  .check = hri_check_update, .flops = hri_flops_update, .stream = HR_STREAM_ADAMW,                                     \
  .groups = 0xFFFF & ~(1 << 1) /* all but control; a guard is one double */
#define HRI_RULE_ZERO .check = hri_check_any
#define HRI_RULE_COPY .check = hri_check_copy, .backward = hri_back_copy, .views = 1 << 0 | 1 << 1
#define HRI_RULE_ACCUMULATE                                                                                            \
  .check = hri_check_accumulate, .backward = hri_back_accumulate, .flops = hri_flops_add, .stream = HR_STREAM_ADD,     \
  .views = 1 << 0 | 1 << 1
#define HRI_RULE_CAST .check = hri_check_cast
#define HRI_RULE_SPLIT .check = hri_check_split, .stream = HR_STREAM_COPY
#define HRI_RULE_JOIN .check = hri_check_join, .stream = HR_STREAM_COPY
#define HRI_RULE_PACK .check = hri_check_pack, .stream = HR_STREAM_PACK
#define HRI_RULE_SELECT .check = hri_check_select
#define HRI_RULE_LAST_ROW .check = hri_check_last_row
#define HRI_RULE_QUANTIZE .check = hri_check_quantize, .stream = HR_STREAM_COPY
#define HRI_RULE_DEQUANTIZE .check = hri_check_dequantize, .stream = HR_STREAM_COPY
#define HRI_RULE_FILL .check = hri_check_any, .transfer = true
#define HRI_RULE_SINK .check = hri_check_any, .transfer = true

/* ---- helpers for shape rules ---- */

/* Tensor of the index-th operand, NULL when absent. */
static inline const hri_tensor *hri_at(const hri_job *job, const hri_node *node, uint32_t index) {
  hri_id id = index < node->operand_count ? hri_operands(job, node)[index].tensor : HRI_NONE;
  return id == HRI_NONE ? NULL : &job->tensors.items[id];
}
static inline hri_id hri_id_at(const hri_job *job, hri_id node, uint32_t index) {
  const hri_node *n = &job->nodes.items[node];
  return index < n->operand_count ? hri_operands(job, n)[index].tensor : HRI_NONE;
}
/* Rows and columns as kernels see them: leading dims folded; columns are stored ones. */
static inline uint64_t hri_columns(const hri_tensor *t) { return t->rank ? t->stored[t->rank - 1] : 1; }
/* E of a node of the norm of heads. */
int64_t hri_head_norm_key_size(const hri_node *node);
static inline uint64_t hri_rows(const hri_tensor *t) { return hri_tensor_stored_elements(t) / hri_columns(t); }

/* Fails with the op, the node's label and what disagrees. */
hr_status hri_shape_error(const hri_job *job, const hri_node *node, hr_error *error, const char *what);
#define HRI_SHAPE(condition)                                                                                           \
  do {                                                                                                                 \
    if (!(condition)) return hri_shape_error(job, node, error, #condition);                                            \
  } while (0)

#endif
