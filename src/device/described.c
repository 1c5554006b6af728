/* The CPU in the library that only plans: no machine is asked, so "cpu" is one that the caller describes. It is linked
 * in place of cpu.c, host.c and processes.c. */
#include <stdio.h>
#include <string.h>

#include "device/cpu.h"

/* A core of a server with AVX-512, as src/device/cpu.c assumes it, and memory of two channels. */
static const double CORE_FLOPS = 100e9, MEMORY_BYTES = 30e9, NODE_SECONDS = 1e-6;

void hr_device_cpu_team(hr_cpu_team *team) { *team = (hr_cpu_team){.threads = 1, .processors = 1, .cores = 1}; }
uint32_t hr_device_cpu_threads(void) { return 1; }

void hri_device_cpu(hr_device *device) {
  memset(device, 0, sizeof *device);
  (void)snprintf(device->name, sizeof device->name, "cpu");
  (void)snprintf(device->title, sizeof device->title, "a described CPU");
  (void)snprintf(device->backend, sizeof device->backend, "cpu");
  device->has_team = device->packs = true;
  device->node_seconds = NODE_SECONDS;
  device->memory_bytes_per_second = MEMORY_BYTES;
  device->flops_fp32 = CORE_FLOPS;
  device->gemm_efficiency = device->memory_efficiency = 1;
  device->fixed_bytes = HRI_CPU_FIXED_BYTES;
  (void)snprintf(device->source, sizeof device->source, "assumed: nothing was asked of a machine");
}
