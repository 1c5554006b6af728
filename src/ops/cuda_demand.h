/* What a GPU of NVIDIA's demands of a plan: which nodes there are kernels for, whose a product is, and scratch. Function of
 * node and job alone; neither a card nor a library is asked. The CUDA
 * backend answers a plan with it, and so does a plan for a card of the table, on any machine, so the two agree in every
 * byte. */
#ifndef HRI_OPS_CUDA_DEMAND_H
#define HRI_OPS_CUDA_DEMAND_H

#include "gpu/product.h"
#include "ops/cuda.h"
#include "program/ops.h"

/* The oldest compute capability, times ten, that kernels are compiled for. */
enum { HRI_CUDA_OLDEST = 80 };
/* Device memory is taken in pages of so many bytes, on every generation from it on. */
enum { HRI_CUDA_PAGE_BYTES = 2 << 20 };
/* Pinned slots for bytes that come and go (backend/cuda/machine.h): two to write through, each of which has room for all
 * that is written for a step, so that the host never waits for the step that runs; two to read. */
enum { HRI_CUDA_SLOTS = 2, HRI_CUDA_SLOT_BYTES = 64 << 10 /* to read; the least to write */ };
uint64_t hri_cuda_write_slot_bytes(const hri_job *job);
static inline uint64_t hri_cuda_pinned_bytes(const hri_job *job) {
  return HRI_CUDA_SLOTS * (hri_cuda_write_slot_bytes(job) + HRI_CUDA_SLOT_BYTES);
}

/* Work of the host, between the nodes before and behind it. */
static inline bool hri_cuda_is_host(uint16_t op) {
  return op == HRI_OP_FILL || op == HRI_OP_SINK || op == HRI_OP_ROPE_TABLE;
}

/* UNSUPPORTED, naming the op and what of it, when there is no kernel for the node; else its scratch, of which a product
 * of the library's has the job's workspace behind its rounded bias. */
hr_status hri_cuda_scratch(const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error);

/* ---- nodes that hri_cuda_scratch let pass, as launchers are given them ---- */

/* Bytes and elements from row to row. */
uint64_t hri_cuda_pitch(const hri_tensor *tensor);
/* The operand that a product writes, and the one beside it that its epilogue reads or writes (HRI_NONE: none). */
uint32_t hri_cuda_product_result(const hri_node *node);
uint32_t hri_cuda_product_beside(const hri_node *node);
/* Whether a product is our kernel's, not the library's. */
bool hri_cuda_product_is_ours(const hri_job *job, const hri_node *node);
hri_gpu_product hri_cuda_library_product(const hri_job *job, const hri_node *node);
/* Whether a library may lack it: then the node is the product alone, and a kernel of ours behind it, in the same
 * scratch. */
static inline bool hri_cuda_may_lack(const hri_gpu_product *product) {
  return product->epilogue == HRI_GPU_GELU_BACKWARD || product->epilogue == HRI_GPU_BIAS_GRADIENT;
}
/* What of a product's epilogue passes may ask for, as hri_backend.epilogues. */
enum { HRI_CUDA_EPILOGUES = HRI_EPILOGUE_GELU_BACKWARD | HRI_EPILOGUE_BIAS_GRADIENT };
/* Of a product of the library's: the bias, rounded to the result's type, at the beginning of scratch; 0: it is used as
 * it is. */
uint64_t hri_cuda_bias_bytes(const hri_gpu_product *product);
/* Without addresses. */
hri_cuda_product_args hri_cuda_own_product(const hri_job *job, const hri_node *node);
/* At the beginning of QUANTIZE's scratch: the kernel's verdict. */
enum { HRI_CUDA_VERDICT_BYTES = 256 };

#endif
