/* What the CPU's kernels demand of a plan: which nodes and types there are kernels for, the scratch of a node, packed
 * operands. Function of node, level, processor class and team alone, no kernel is linked: the CPU backend answers a
 * plan with it, and so does the planning library without a backend. */
#ifndef HRI_OPS_DEMAND_H
#define HRI_OPS_DEMAND_H

#include "ops/attention/shape.h"
#include "ops/linear/product.h"
#include "program/ops.h"
#include "program/quantization.h"

typedef struct hri_demand {
  hri_gemm_machine machine;
  uint32_t team;
} hri_demand;

/* UNSUPPORTED, naming the `backend`, unless there is a kernel for the node and the types of its operands. Kernels of
 * other backends take the same types, if there are any. */
hr_status hri_demand_check(const char *backend, const hri_job *job, const hri_node *node, hr_error *error);
/* As hri_backend's workspace and packing. */
hr_status hri_demand_scratch(const hri_demand *demand, const hri_job *job, const hri_node *node, uint64_t *bytes,
                             hr_error *error);
hr_status hri_demand_packing(const hri_demand *demand, const hri_job *job, const hri_node *node, uint64_t *bytes,
                             bool *pays, hr_error *error);

/* ---- nodes that hri_demand_check let pass, as kernels are given them ---- */

static inline bool hri_demand_is_product(uint16_t op) {
  return op == HRI_OP_LINEAR || op == HRI_OP_LINEAR_DX || op == HRI_OP_LINEAR_DW || op == HRI_OP_LINEAR_DX_ACTIVATION ||
         op == HRI_OP_LINEAR_DW_BIAS;
}
hri_gemm_shape hri_demand_product(const hri_job *job, const hri_node *node, uint32_t team);
/* The product that a PACK node packs for, as far as packing depends on it. Its plain operand is w [N,K], or x [M,K]. */
hri_gemm_shape hri_demand_pack(const hri_job *job, const hri_node *node, uint32_t team);
hri_attention_shape hri_demand_attention(const hri_job *job, const hri_node *node);
hri_quant_layout hri_demand_quantized(const hri_job *job, const hri_node *node);
hri_attention_cache_shape hri_demand_cache(const hri_job *job, const hri_node *node);

/* The refusal of a QUANTIZE that ran into an element without a code. It names the weight, its row and its column; the
 * loader knows the file. */
hr_status hri_demand_uncoded(const hri_job *job, const hri_node *node, uint64_t element, float value, hr_error *error);

#endif
