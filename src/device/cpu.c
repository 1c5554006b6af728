#include "device/cpu.h"

#include <stdio.h>
#include <string.h>

#include "device/host.h"

static const double NODE_SECONDS = 5e-6; /* assumed */

uint32_t hr_device_cpu_threads(void) { return hri_host_cores_now().usable; }

/* Rates per core in fp32 that a good GEMM reaches, and whether bf16 products exist. Rough assumptions by instruction
 * set (docs/performance.md holds measured ones); a probe is to replace them. */
static double assumed_core_flops(bool *bf16) {
  *bf16 = false;
#if defined(__x86_64__)
  __builtin_cpu_init();
  *bf16 = __builtin_cpu_supports("avx512bf16") != 0;
  if (__builtin_cpu_supports("avx512f")) return 100e9;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 60e9;
#endif
  return 15e9;
}

static uint64_t plus(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* What the whole process may have: what is left now plus what it holds already, because a budget counts its fixed
 * part. */
static uint64_t usable_bytes(const hri_host_memory *m) {
  uint64_t resident = hri_host_resident_bytes(), least = plus(m->available_bytes, resident);
  uint64_t group = plus(m->group_bytes, resident), space = plus(m->address_space_bytes, hri_host_address_space_bytes());
  uint64_t data = plus(m->data_bytes, hri_host_data_bytes());
  if (group < least) least = group;
  if (space < least) least = space;
  if (data < least) least = data;
  return m->total_bytes && least > m->total_bytes ? m->total_bytes : least;
}

void hri_device_cpu(hr_device *device) {
  hri_host_memory memory = hri_host_memory_now();
  uint32_t threads = hr_device_cpu_threads();
  bool bf16;
  double core_flops = assumed_core_flops(&bf16);
  memset(device, 0, sizeof *device);
  (void)snprintf(device->name, sizeof device->name, "cpu");
  hri_host_cpu_model(device->title, sizeof device->title);
  (void)snprintf(device->backend, sizeof device->backend, "cpu");
  device->has_team = device->packs = device->usable_now = true;
  device->node_seconds = NODE_SECONDS;
  device->capacity_bytes = memory.total_bytes;
  device->usable_bytes = usable_bytes(&memory);
  device->memory_bytes_per_second = 30e9; /* assumed: two channels of DDR4, less losses */
  device->flops_fp32 = core_flops * threads;
  device->flops_bf16 = bf16 ? 2 * core_flops * threads : 0;
  device->gemm_efficiency = 1; /* the figures above are reachable rates, not peaks */
  device->memory_efficiency = 1;
  device->fixed_bytes = HRI_CPU_FIXED_BYTES;
  (void)snprintf(device->source, sizeof device->source,
                 "memory: this machine; rates: assumed by instruction set and cores");
}
