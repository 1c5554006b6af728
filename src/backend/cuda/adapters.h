/* Which kernels of the GPU run a node, with which scratch: one table of adapters, each of which takes a node's operands
 * and attributes apart and queues its launches. backend/cuda/cuda.c makes a backend of it. */
#ifndef HRI_BACKEND_CUDA_ADAPTERS_H
#define HRI_BACKEND_CUDA_ADAPTERS_H

#include "backend/cuda/kernels.h"
#include "backend/cuda/ways.h"
#include "gpu/product.h"
#include "ops/cuda_demand.h"
#include "program/ops.h"

/* What a device is reached by. */
typedef struct hri_cuda_parts {
  hri_gpu *gpu;
  hri_gpu_products *products;
  const hri_cuda_kernels *kernels;
} hri_cuda_parts;

/* UNSUPPORTED where hri_cuda_scratch (ops/cuda_demand.h) refuses the node; what hri_cuda_way_find has to say of a product
 * of it. */
hr_status hri_cuda_prepare_node(const hri_cuda_parts *parts, hri_cuda_ways *ways, const hri_job *job,
                                const hri_node *node, hr_error *error);

/* QUANTIZE leaves a word at the begin of its scratch: whether an element of the weight has no code, and which. */
bool hri_cuda_uncoded(unsigned long long verdict, uint64_t *element);

/* Where operands lie, and the stream that the work goes into. */
typedef struct hri_cuda_launch {
  const hri_cuda_parts *parts;
  hri_cuda_ways *ways;
  const hri_job *job;
  const uint64_t *offsets; /* per storage */
  unsigned char *base[HRI_TIER_COUNT];
  hri_gpu_stream *stream;
} hri_cuda_launch;
static inline unsigned char *hri_cuda_pointer(const hri_cuda_launch *l, hri_id tensor) {
  const hri_tensor *t = &l->job->tensors.items[tensor];
  return l->base[l->job->storages.items[t->storage].tier] + l->offsets[t->storage] + t->offset;
}
/* Queues a node that hri_cuda_prepare_node let pass and that is no work of the host. */
hr_status hri_cuda_queue(const hri_cuda_launch *launch, const hri_node *node, hr_error *error);

#endif
