/* This machine as a device: what the operating system says of its processors and memory. */
#ifndef HRI_DEVICE_CPU_H
#define HRI_DEVICE_CPU_H

#include <headroom/device.h>

/* What the process has resident beside its arena: program, libraries, stacks, data buffers. 6.9 to 7.1 MiB were measured
 * (tests/unit/test_exact.c prints it); assumed with some room until a probe of the machine replaces it
 * (backend/cpu/rates.c; fixed_measured says which). */
#define HRI_CPU_FIXED_BYTES (8ull << 20)

/* Fills `device` for the CPU. Never fails: what cannot be read keeps a modest default. */
void hri_device_cpu(hr_device *device);

/* Anew what is assumed of this processor's rates, whatever a probe had put there. */
void hri_cpu_assume(hr_device *device);

/* What assumed rates are a function of. Family and model as CPUID leaf 1 has them, extensions added; 0 elsewhere. */
typedef enum hri_cpu_make { HRI_CPU_OTHER = 0, HRI_CPU_AMD, HRI_CPU_INTEL } hri_cpu_make;
typedef enum hri_cpu_vectors { HRI_CPU_BASE = 0, HRI_CPU_AVX2, HRI_CPU_AVX512, HRI_CPU_NEON } hri_cpu_vectors;
typedef struct hri_cpu_facts {
  hri_cpu_make make;
  hri_cpu_vectors vectors;
  uint32_t family, model;
  bool pairs, tiles; /* AVX512_BF16, AMX with bf16 */
} hri_cpu_facts;
hri_cpu_facts hri_cpu_facts_now(void);
/* What a measurement is of: the model's name, with family and model where there are such. Virtual machines give many processors
 * one name ("AMD EPYC" is a Zen 4 and a Zen 5), and a directory of measurements may be common to several machines. */
enum { HRI_CPU_IDENTITY_BYTES = 128 };
void hri_cpu_identity_of(const char *name, const hri_cpu_facts *facts, char out[HRI_CPU_IDENTITY_BYTES]);
void hri_cpu_identity(char out[HRI_CPU_IDENTITY_BYTES]); /* of this machine's */
/* FLOPs per second of a core in fp32, and what bf16 reaches as a multiple of that; 0: the instruction set has no
 * products of bf16. */
void hri_cpu_assumed(const hri_cpu_facts *facts, double *flops, double *bf16_factor);
/* Bytes per second that a team moves, and of hr_device.core_memory_bytes_per_second; 0: no team is slower. */
void hri_cpu_assumed_memory(const hri_cpu_facts *facts, uint32_t threads, double *bytes, double *core);
/* AMX with tiles of bf16 (CPUID leaf 7), whose registers the system saves (XCR0, bits 17 and 18). */
bool hri_host_has_tiles(void);

/* hr_device_find without the stored probe, which is looked up above this floor (backend/devices.c). */
hr_status hri_device_find(const char *name, hr_device *device, hr_error *error);

#endif
