/* Which kernel of the CPU runs a node, with which scratch. One table of adapters; each unpacks a node's operands and
 * attributes into a call on plain pointers and sizes. backend/cpu/cpu.c makes a backend of it. */
#ifndef HRI_BACKEND_CPU_ADAPTERS_H
#define HRI_BACKEND_CPU_ADAPTERS_H

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "ops/linear/product.h"
#include "team/team.h"

typedef struct hri_cpu hri_cpu;

/* With a team of so many threads (>= 1), which are not started. HEADROOM_ISA caps the instruction set (isa.h). */
hr_status hri_cpu_create(uint32_t threads, hri_cpu **cpu, hr_error *error);
/* What computes its products, before any of them is decided. */
void hri_cpu_choose(hri_cpu *cpu, const hri_gemm_table *table);
void hri_cpu_destroy(hri_cpu *cpu);
/* Bytes of address space that starting its threads will take, and the start. BUDGET, naming the limit, where there is
 * no room for them or the system refuses one. */
uint64_t hri_cpu_start_bytes(const hri_cpu *cpu);
hr_status hri_cpu_start(hri_cpu *cpu, hr_error *error);

/* What planning asks (hri_backend). */
hr_status hri_cpu_workspace(void *cpu, const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error);
hr_status hri_cpu_packing(void *cpu, const hri_job *job, const hri_node *node, uint64_t *bytes, bool *pays,
                          hr_error *error);

/* Where operands lie at run time. */
typedef struct hri_launch {
  const hri_job *job;
  const uint64_t *offsets; /* per storage */
  unsigned char *base[HRI_TIER_COUNT];
  const hri_transfer *transfer;
} hri_launch;
static inline void *hri_launch_pointer(const hri_launch *l, hri_id tensor) {
  const hri_tensor *t = &l->job->tensors.items[tensor];
  return l->base[l->job->storages.items[t->storage].tier] + l->offsets[t->storage] + t->offset;
}

/* Makes what a node needs before it can run (what was decided of its matrix product); *handle stays valid until
 * destroy. */
hr_status hri_cpu_prepare(hri_cpu *cpu, const hri_job *job, const hri_node *node, void **handle, hr_error *error);
hr_status hri_cpu_run(hri_cpu *cpu, const hri_launch *launch, const hri_node *node, void *handle, hr_error *error);

/* The kernels themselves, for callers beside programs (initialisation, sampling). */
const struct hri_cpu_kernels *hri_cpu_table(const hri_cpu *cpu);
hri_team *hri_cpu_team(const hri_cpu *cpu);
hri_isa hri_cpu_level(const hri_cpu *cpu);

#endif
