/* The CPU backend: which kernel runs a node, with which scratch. One table of adapters; each unpacks a node's operands
 * and attributes into a call on plain pointers and sizes. */
#ifndef HRI_KERNEL_CPU_H
#define HRI_KERNEL_CPU_H

#include "pass/pass.h"
#include "program/ops.h"

typedef struct hri_cpu hri_cpu;

/* `threads` is the team (>= 1). HEADROOM_ISA=base|avx2|avx512|avx512bf16 caps the instruction set (tests). */
hr_status hri_cpu_create(uint32_t threads, hri_cpu **cpu, hr_error *error);
void hri_cpu_destroy(hri_cpu *cpu);

/* What planning asks of this backend; `cpu` must outlive it. */
hri_backend hri_cpu_backend(hri_cpu *cpu);
/* Distinct matrix products that a job needs: what will be prepared (each holds library memory that no program can own). */
uint32_t hri_cpu_distinct_products(const hri_job *job);

/* Moves ranges of parameters between a tensor and files or generators; implemented by the trainer. `tensor` is the range's whole
 * stored tensor (`what`: hri_moved) in the arena, of the type that the job gave it, `staging` planned scratch. */
typedef struct hri_transfer {
  void *context;
  hr_status (*fill)(void *context, uint32_t range, uint32_t what, void *tensor, void *staging, uint64_t staging_bytes, hr_error *error);
  hr_status (*sink)(void *context, uint32_t range, uint32_t what, const void *tensor, void *staging, uint64_t staging_bytes, hr_error *error);
} hri_transfer;

/* Where operands lie at run time. */
typedef struct hri_launch {
  const hri_job *job;
  const uint64_t *offsets;            /* per storage */
  unsigned char *base[HRI_TIER_COUNT];
  const hri_transfer *transfer;
} hri_launch;
static inline void *hri_launch_pointer(const hri_launch *l, hri_id tensor) {
  const hri_tensor *t = &l->job->tensors.items[tensor];
  return l->base[l->job->storages.items[t->storage].tier] + l->offsets[t->storage] + t->offset;
}

/* Makes what a node needs before it can run (a matrix-product primitive); *handle stays valid until destroy. */
hr_status hri_cpu_prepare(hri_cpu *cpu, const hri_job *job, const hri_node *node, void **handle, hr_error *error);
hr_status hri_cpu_run(hri_cpu *cpu, const hri_launch *launch, const hri_node *node, void *handle, hr_error *error);

/* The kernels themselves, for callers beside programs (initialisation, sampling). */
const struct hri_cpu_kernels *hri_cpu_table(const hri_cpu *cpu);
uint32_t hri_cpu_threads(const hri_cpu *cpu);
const char *hri_cpu_libraries(const hri_cpu *cpu);

#endif
