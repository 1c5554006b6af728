/* What a node gives to its kernel: operands and attributes of a node that hri_demand_check let pass, as the argument
 * structs of ops/cpu.h, which the kernels of every backend take. What changes from step to step is not in them where a
 * backend reads it elsewhere: the CPU's adapters add it. */
#ifndef HRI_OPS_GIVEN_H
#define HRI_OPS_GIVEN_H

#include "ops/cpu.h"
#include "ops/rules.h"

/* A node whose operands lie in memory. */
typedef struct hri_given {
  const hri_job *job;
  const hri_node *node;
  const uint64_t *offsets;    /* per storage */
  unsigned char *const *base; /* per tier */
  hri_team *team;             /* NULL: there is none */
} hri_given;

static inline const hri_operand *hri_given_operand(const hri_given *g, uint32_t index) {
  return &hri_operands(g->job, g->node)[index];
}
static inline bool hri_given_present(const hri_given *g, uint32_t index) {
  return index < g->node->operand_count && hri_given_operand(g, index)->tensor != HRI_NONE;
}
static inline const hri_tensor *hri_given_tensor(const hri_given *g, uint32_t index) {
  return &g->job->tensors.items[hri_given_operand(g, index)->tensor];
}
static inline hri_real hri_given_real(const hri_given *g, uint32_t index) {
  return hri_dtype_real(hri_given_tensor(g, index)->dtype);
}
static inline bool hri_given_adds(const hri_given *g, uint32_t index) {
  return hri_given_present(g, index) && hri_given_operand(g, index)->access == HRI_ADD;
}
static inline int64_t hri_given_rows(const hri_given *g, uint32_t index) {
  return (int64_t)hri_rows(hri_given_tensor(g, index));
}
static inline int64_t hri_given_columns(const hri_given *g, uint32_t index) {
  return (int64_t)hri_columns(hri_given_tensor(g, index));
}
static inline int64_t hri_given_elements(const hri_given *g, uint32_t index) {
  return (int64_t)hri_tensor_stored_elements(hri_given_tensor(g, index));
}
/* Elements from row to row. */
static inline int64_t hri_given_stride(const hri_given *g, uint32_t index) {
  const hri_tensor *t = hri_given_tensor(g, index);
  return (int64_t)(t->stride ? t->stride : hri_columns(t));
}
static inline void *hri_given_at(const hri_given *g, hri_id tensor) {
  const hri_tensor *t = &g->job->tensors.items[tensor];
  return g->base[g->job->storages.items[t->storage].tier] + g->offsets[t->storage] + t->offset;
}
/* NULL: the operand is not there. */
static inline void *hri_given_pointer(const hri_given *g, uint32_t index) {
  return hri_given_present(g, index) ? hri_given_at(g, hri_given_operand(g, index)->tensor) : NULL;
}
static inline void *hri_given_scratch(const hri_given *g) {
  hri_id id = hri_operand_find(g->job, g->node, HRI_SCRATCH, 0);
  return id == HRI_NONE ? NULL : hri_given_at(g, id);
}

/* The k-th tensor that an operand stands for. */
static inline hri_id hri_given_piece(const hri_given *g, uint32_t index, uint32_t k) {
  return hri_piece(g->job, hri_given_operand(g, index)->tensor, k);
}
static inline uint32_t hri_given_pieces(const hri_given *g, uint32_t index) {
  return hri_piece_count(g->job, hri_given_operand(g, index)->tensor);
}
static inline void *hri_given_piece_pointer(const hri_given *g, uint32_t index, uint32_t k) {
  return hri_given_present(g, index) ? hri_given_at(g, hri_given_piece(g, index, k)) : NULL;
}
static inline int64_t hri_given_piece_elements(const hri_given *g, uint32_t index, uint32_t k) {
  return (int64_t)hri_tensor_stored_elements(&g->job->tensors.items[hri_given_piece(g, index, k)]);
}

hri_embed_args hri_given_embed(const hri_given *given);
hri_embed_backward_args hri_given_embed_backward(const hri_given *given);
hri_norm_args hri_given_norm(const hri_given *given);
hri_norm_backward_args hri_given_norm_backward(const hri_given *given);
hri_head_norm_args hri_given_head_norm(const hri_given *given);
hri_head_norm_backward_args hri_given_head_norm_backward(const hri_given *given);
/* Of one part of DORA_BEGIN's or DORA_LENGTHS' w; false: it has no magnitudes. */
bool hri_given_row_lengths(const hri_given *given, uint32_t part, hri_row_lengths_args *args);
/* Of DORA and DORA_BACKWARD. */
hri_dora_args hri_given_dora(const hri_given *given);
hri_rope_args hri_given_rope(const hri_given *given);
/* The layout is the caller's; scratch of QUANTIZE likewise. */
hri_quant_args hri_given_quant(const hri_given *given, const hri_quant_layout *layout);
/* Of the k-th range that an update acts on, but for whose random numbers round it: of those the site alone. */
hri_update_args hri_given_update(const hri_given *given, uint32_t k);
/* Elements and columns of that range, where a state is factored or shared. */
int64_t hri_given_update_elements(const hri_job *job, const hri_node *node, uint32_t k);
int64_t hri_given_update_columns(const hri_job *job, const hri_node *node, uint32_t k);

#endif
