/* What the CPU's kernels demand of a plan: which nodes and types there are kernels for, the scratch of a node, packed
 * operands, and the bytes that libraries hold beside the programs. Function of node, level and team alone, no kernel is
 * linked: the CPU backend answers a plan with it, and so does the planning library without a backend. */
#ifndef HRI_OPS_DEMAND_H
#define HRI_OPS_DEMAND_H

#include "ops/attention/shape.h"
#include "ops/linear/product.h"
#include "program/ops.h"

/* A level, a team, and who answers for products: the library (exact), or what was recorded of it. */
typedef struct hri_demand {
  hri_isa level;
  uint32_t team;
  void *products; /* first argument of both */
  hr_status (*workspace)(void *products, const hri_gemm_shape *shape, uint64_t *bytes, hr_error *error);
  hr_status (*packed_bytes)(void *products, const hri_gemm_shape *shape, uint64_t *bytes,
                            hr_error *error); /* 0: it takes plain b only */
} hri_demand;

/* UNSUPPORTED unless there is a kernel for the node and the types of its operands. */
hr_status hri_demand_check(const hri_job *job, const hri_node *node, hr_error *error);
/* As hri_backend's workspace and packing. */
hr_status hri_demand_scratch(const hri_demand *demand, const hri_job *job, const hri_node *node, uint64_t *bytes,
                             hr_error *error);
hr_status hri_demand_packing(const hri_demand *demand, const hri_job *job, const hri_node *node, uint64_t *bytes,
                             bool *pays, hr_error *error);

/* Distinct matrix products that a job needs: what will be prepared (each holds library memory that no program can
 * own). */
uint32_t hri_demand_distinct_products(const hri_job *job);
/* As hri_backend's fixed_bytes, on this device. */
uint64_t hri_demand_fixed_bytes(const hr_device *device, const hri_job *job, uint32_t shapes, uint64_t process_bytes);

/* ---- nodes that hri_demand_check let pass, as kernels are given them ---- */

static inline bool hri_demand_is_product(uint16_t op) {
  return op == HRI_OP_LINEAR || op == HRI_OP_LINEAR_DX || op == HRI_OP_LINEAR_DW;
}
hri_gemm_shape hri_demand_product(const hri_job *job, const hri_node *node, uint32_t team);
/* The product that a PACK node packs for, as far as packing depends on it. Its plain operand is w [N,K], or x [M,K]. */
hri_gemm_shape hri_demand_pack(const hri_job *job, const hri_node *node, uint32_t team);
hri_attention_shape hri_demand_attention(const hri_job *job, const hri_node *node);
hri_attention_cache_shape hri_demand_cache(const hri_job *job, const hri_node *node);

#endif
