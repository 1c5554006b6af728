#include "device/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/processor.h"
#include "device/host.h"

static const double NODE_SECONDS = 1e-6; /* assumed; 0.5 us measured in training by one thread of a Zen 5 */

void hr_device_cpu_team(hr_cpu_team *team) {
  hri_host_cores c = hri_host_cores_now();
  *team = (hr_cpu_team){.threads = c.usable, .processors = c.cpus, .cores = c.physical, .quota_cpus = c.quota_cpus};
}

uint32_t hr_device_cpu_threads(void) { return hri_host_cores_now().usable; }

/* ---- assumed rates ---- */

/* What our products reach per core in fp32, and in bf16 as a multiple of it; the first row that fits. A probe replaces
 * them. Where a processor was measured the figure is that (docs/decisions/0011); else 0.9 of two multiply-adds of the
 * datapath's width a cycle at a server's clock, or less where one core does not keep it.
 *
 *   Zen 5 (family 1Ah), EPYC and desktop: 250 to 265 GFLOP/s measured in the steps of training runs, of a peak of 260 to
 *     276; dot instruction 510 to 535. 250 with AVX-512 alone and 130 to 140 with AVX2, in bf16 as well, where these are all
 *     that may be used.
 *   Zen 4 (family 19h): 109 measured of a peak of 118; dot instruction 213 of 236.
 *   Zen 5 of notebooks (models 20h to 2Fh and 60h to 6Fh): never measured; AMD describes datapaths of 256 bits, as Zen
 *     4 has them.
 *   Intel with AVX512_BF16: 170 to 179 measured of a peak of 205 in fp32; bf16 goes by multiply-adds. With AMX 6 times
 *     that, which nobody measured.
 *   Older AVX-512: clocks fall under it and some models have one unit; never measured.
 *   AVX2: 83 to 94 measured on a Xeon that has AVX-512; less is assumed, for older processors and lower clocks.
 *   Arm: two products of 128 bits a cycle at 2.5 GHz, less losses; never measured. */
typedef struct assumed {
  hri_cpu_make make; /* HRI_CPU_OTHER: any */
  uint32_t family;   /* 0: any */
  int wide;          /* 1, 0: datapaths of 512 bits or not; -1: any */
  hri_cpu_vectors vectors;
  bool pairs, tiles; /* at least */
  double flops, factor;
} assumed;

static const assumed rates[] = {
    {HRI_CPU_AMD, 0x1A, 1, HRI_CPU_AVX512, true, false, 258e9, 2},
    {HRI_CPU_AMD, 0x1A, 1, HRI_CPU_AVX512, false, false, 258e9, 0},
    {HRI_CPU_AMD, 0x1A, 1, HRI_CPU_AVX2, false, false, 130e9, 0},
    {HRI_CPU_AMD, 0, -1, HRI_CPU_AVX512, true, false, 105e9, 2},
    {HRI_CPU_INTEL, 0, -1, HRI_CPU_AVX512, true, true, 170e9, 6},
    {HRI_CPU_INTEL, 0, -1, HRI_CPU_AVX512, true, false, 170e9, 1},
    {HRI_CPU_OTHER, 0, -1, HRI_CPU_AVX512, true, false, 100e9, 2},
    {HRI_CPU_OTHER, 0, -1, HRI_CPU_AVX512, false, false, 100e9, 0},
    {HRI_CPU_OTHER, 0, -1, HRI_CPU_AVX2, false, false, 60e9, 0},
    {HRI_CPU_OTHER, 0, -1, HRI_CPU_NEON, false, false, 30e9, 0},
    {HRI_CPU_OTHER, 0, -1, HRI_CPU_BASE, false, false, 15e9, 0},
};

/* What the memory gives to a team, bytes per second. Measured in training on a Zen 5 of a server (models 00h to 1Fh): 60 to
 * 65 GB/s by one core, 70 to 110 by two; how it goes on is a guess. Elsewhere two channels of DDR4, less losses, or of
 * DDR5 beside a Zen 5. */
void hri_cpu_assumed_memory(const hri_cpu_facts *f, uint32_t threads, double *bytes, double *core) {
  static const double CORE = 30e9, SERVER = 300e9, DDR5 = 60e9, DDR4 = 30e9;
  *core = 0;
  *bytes = DDR4;
  if (f->make != HRI_CPU_AMD || f->family != 0x1A) return;
  *bytes = DDR5;
  if (f->model >= 0x20) return;
  *core = CORE;
  *bytes = CORE * (threads + 1.0) < SERVER ? CORE * (threads + 1.0) : SERVER;
}

/* Zen 5 of notebooks splits 512 bits in two. */
static int is_wide(const hri_cpu_facts *f) {
  uint32_t part = f->model >> 4;
  return f->make == HRI_CPU_AMD && f->family == 0x1A && part != 2 && part != 6;
}

void hri_cpu_assumed(const hri_cpu_facts *f, double *flops, double *factor) {
  const assumed *r = rates;
  while ((r->make != HRI_CPU_OTHER && r->make != f->make) || (r->family && r->family != f->family) ||
         (r->wide >= 0 && r->wide != is_wide(f)) || r->vectors != f->vectors || (r->pairs && !f->pairs) ||
         (r->tiles && !f->tiles))
    r++; /* the last row of each kind of vectors takes all */
  *flops = r->flops;
  *factor = r->factor;
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

hri_cpu_facts hri_cpu_facts_now(void) {
  hri_cpu_facts f = {.vectors = HRI_CPU_BASE};
#if defined(__x86_64__)
  const hri_processor processor = hri_processor_now();
  unsigned a, b, c, d;
  f.make = __builtin_cpu_is("intel") ? HRI_CPU_INTEL : __builtin_cpu_is("amd") ? HRI_CPU_AMD : HRI_CPU_OTHER;
  if (hri_processor_has_avx2(&processor)) f.vectors = HRI_CPU_AVX2;
  if (hri_processor_has_avx512(&processor)) f.vectors = HRI_CPU_AVX512;
  f.pairs = f.vectors == HRI_CPU_AVX512 && processor.avx512bf16;
  f.tiles = f.pairs && hri_host_has_tiles();
  if (__get_cpuid(1, &a, &b, &c, &d)) { /* family and model with their extensions, as both makers define them */
    f.family = (a >> 8 & 15) + (a >> 20 & 255);
    f.model = (a >> 4 & 15) | (a >> 16 & 15) << 4;
  }
#elif defined(__aarch64__)
  f.vectors = HRI_CPU_NEON;
#endif
  return f;
}

void hri_cpu_identity_of(const char *name, const hri_cpu_facts *f, char out[HRI_CPU_IDENTITY_BYTES]) {
  int used = snprintf(out, HRI_CPU_IDENTITY_BYTES, "%.90s", name);
  if (f->family)
    (void)snprintf(out + used, HRI_CPU_IDENTITY_BYTES - (size_t)used, ", family %u, model %u", f->family, f->model);
}

void hri_cpu_identity(char out[HRI_CPU_IDENTITY_BYTES]) {
  const hri_cpu_facts facts = hri_cpu_facts_now();
  char name[96];
  hri_host_cpu_model(name, sizeof name);
  hri_cpu_identity_of(name, &facts, out);
}

/* HEADROOM_ISA chooses what products run with (backend/cpu/isa.c, which refuses what is no level): rates are of that. */
static void cap_facts(hri_cpu_facts *f, const char *level) {
  if (!level || !*level || f->vectors == HRI_CPU_NEON) return;
  if (strcmp(level, "amx") == 0) return;
  f->tiles = false;
  if (strcmp(level, "avx512bf16") == 0) return;
  f->pairs = false;
  if (strcmp(level, "avx2") == 0 && f->vectors == HRI_CPU_AVX512) f->vectors = HRI_CPU_AVX2;
  if (strcmp(level, "base") == 0) f->vectors = HRI_CPU_BASE;
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

void hri_cpu_assume(hr_device *device) {
  const uint32_t threads = hr_device_cpu_threads();
  hri_cpu_facts facts = hri_cpu_facts_now();
  double core_flops, factor;
  cap_facts(&facts, getenv("HEADROOM_ISA"));
  hri_cpu_assumed(&facts, &core_flops, &factor);
  hri_cpu_assumed_memory(&facts, threads, &device->memory_bytes_per_second, &device->core_memory_bytes_per_second);
  device->flops_fp32 = core_flops * threads;
  device->rated_threads = threads;
  device->flops_bf16 = factor * core_flops * threads;
  device->gemm_efficiency = 1; /* the figures above are reachable rates, not peaks */
  device->memory_efficiency = 1;
  device->node_seconds = NODE_SECONDS;
  (void)snprintf(device->source, sizeof device->source, "memory: this machine; rates: assumed by processor and cores");
  device->date[0] = 0;
}

void hri_device_cpu(hr_device *device) {
  hri_host_memory memory = hri_host_memory_now();
  memset(device, 0, sizeof *device);
  (void)snprintf(device->name, sizeof device->name, "cpu");
  hri_host_cpu_model(device->title, sizeof device->title);
  (void)snprintf(device->backend, sizeof device->backend, "cpu");
  device->has_team = device->packs = device->usable_now = true;
  device->capacity_bytes = memory.total_bytes;
  device->usable_bytes = usable_bytes(&memory);
  device->fixed_bytes = HRI_CPU_FIXED_BYTES;
  hri_cpu_assume(device);
}
