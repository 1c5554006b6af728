#include "device/cpu.h"

#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "device/host.h"

static const double NODE_SECONDS = 5e-6; /* assumed */

void hr_device_cpu_team(hr_cpu_team *team) {
  hri_host_cores c = hri_host_cores_now();
  *team = (hr_cpu_team){.threads = c.usable, .processors = c.cpus, .cores = c.physical, .quota_cpus = c.quota_cpus};
}

uint32_t hr_device_cpu_threads(void) { return hri_host_cores_now().usable; }

/* Rates per core in fp32 that a good GEMM reaches. Rough assumptions by instruction set (docs/performance.md holds measured ones); a probe is to replace them. */
static double assumed_core_flops(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return 100e9;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 60e9;
#endif
#if defined(__aarch64__)
  return 30e9; /* two products of 128 bits a cycle at 2.5 GHz, less losses; never measured */
#else
  return 15e9;
#endif
}

bool hri_host_has_tiles(void) {
#if defined(__x86_64__)
  unsigned a, b, c, d, low, high;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (1u << 22 | 1u << 24)) != (1u << 22 | 1u << 24)) return false;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  (void)high;
  return (low >> 17 & 3) == 3;
#else
  return false;
#endif
}

double hri_host_bf16_factor(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512bf16")) return 0;
  if (hri_host_has_tiles()) return 6;
  return __builtin_cpu_is("intel") ? 1 : 2;
#else
  return 0;
#endif
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
  double core_flops = assumed_core_flops();
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
  device->rated_threads = threads;
  device->flops_bf16 = hri_host_bf16_factor() * core_flops * threads;
  device->gemm_efficiency = 1; /* the figures above are reachable rates, not peaks */
  device->memory_efficiency = 1;
  device->fixed_bytes = HRI_CPU_FIXED_BYTES;
  (void)snprintf(device->source, sizeof device->source,
                 "memory: this machine; rates: assumed by instruction set and cores");
}
