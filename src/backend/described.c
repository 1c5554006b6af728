/* A CPU to plan for where its kernels are not: a described machine, or any machine from a browser. Everything is computed
 * as the CPU backend computes it (ops/demand.h), so a plan made here is the one made there. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "ops/demand.h"

typedef struct described {
  hri_backend contract; /* first: the one is the other */
  hri_demand demand;
} described;

static hr_status workspace(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error) {
  return hri_demand_scratch(&((described *)self)->demand, job, node, bytes, error);
}

static hr_status packing(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, bool *pays,
                         hr_error *error) {
  return hri_demand_packing(&((described *)self)->demand, job, node, bytes, pays, error);
}

static uint64_t fixed_bytes(void *self, const hri_job *job, uint32_t shapes, uint64_t process_bytes) {
  (void)job, (void)shapes; /* products hold no memory of their own */
  return ((const described *)self)->contract.device.fixed_bytes + process_bytes;
}

static void shut(hri_backend *backend) { hri_free(backend); }

/* What the device says, else what its rates show: products of bf16 at twice the rate of fp32 and more are those of AMD's
 * dot instruction, at three times and more those of AMX. Products are those that the device names. */
static hr_status choose(const hr_device *device, hri_gemm_machine *machine, hr_error *error) {
  const char *text = device->rates.instruction_set;
  double factor = device->flops_fp32 > 0 ? device->flops_bf16 / device->flops_fp32 : 0;
  *machine = (hri_gemm_machine){.level = factor >= 3  ? HRI_ISA_AMX
                                         : factor > 0 ? HRI_ISA_AVX512_BF16
                                                      : HRI_ISA_AVX512,
                                .pairs = factor >= 1.4 ? HRI_PAIRS_FULL : HRI_PAIRS_HALF};
  if (text[0] && !hri_isa_parse(text, &machine->level)) {
    (void)hri_fail(error, HR_ERROR_USAGE, "device %s: instruction set '%.16s' is unknown", device->name, text);
    return hri_hint(error, HR_ERROR_USAGE, "base, avx2, avx512, avx512bf16, amx, neon or neonbf16");
  }
  if (device->products[0]) return hri_gemm_ask(device->products, machine, error);
  (void)hri_gemm_parse(device->rates.libraries, machine->level, &machine->table); /* else the shipped one */
  return HR_OK;
}

hr_status hri_described_cpu_open(const hr_device *device, uint32_t threads, hri_backend **out, hr_error *error) {
  described *d;
  hri_gemm_machine machine;
  HRI_TRY(choose(device, &machine, error));
  d = hri_alloc_zero(1, sizeof *d);
  if (!d) return hri_fail_memory(error, sizeof *d, "the backend");
  d->contract = (hri_backend){.name = "cpu",
                              .team = threads ? threads : 1,
                              .device = *device,
                              .granule = 4096,
                              .staging_tier = HRI_DEVICE,
                              .self = d,
                              .workspace = workspace,
                              .packing = packing,
                              .fixed_bytes = fixed_bytes,
                              .close = shut};
  d->demand = (hri_demand){.machine = machine, .team = d->contract.team};
  (void)snprintf(d->contract.instruction_set, sizeof d->contract.instruction_set, "%s", hri_isa_name(machine.level));
  (void)hri_gemm_text(&machine, d->contract.libraries);
  d->contract.products.origin = machine.table.given ? HR_PRODUCTS_GIVEN : HR_PRODUCTS_SHIPPED;
  memcpy(d->contract.products.text, d->contract.libraries, sizeof d->contract.products.text);
  assert(!hri_backend_runs(&d->contract));
  *out = &d->contract;
  return HR_OK;
}
