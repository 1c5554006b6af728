/* This machine as a device: what the operating system says of its processors and memory. */
#ifndef HRI_DEVICE_CPU_H
#define HRI_DEVICE_CPU_H

#include <headroom/device.h>

/* What the process has resident beside its arena: program, libraries, stacks, data buffers. 5.0 to 5.3 MiB were measured
 * (tests/unit/test_exact.c prints it); assumed with some room until a probe of the machine replaces it
 * (backend/cpu/rates.c; fixed_measured says which). */
#define HRI_CPU_FIXED_BYTES (8ull << 20)

/* Fills `device` for the CPU. Never fails: what cannot be read keeps a modest default. */
void hri_device_cpu(hr_device *device);

/* What products of bf16 reach here, as a multiple of fp32: 2 with a dot instruction at full rate (AMD), 1 where it runs
 * at half of that (Intel), 6 with AMX (assumed), 0 where there is none. By the processor's features and make alone. */
double hri_host_bf16_factor(void);
/* AMX with tiles of bf16 (CPUID leaf 7), whose registers the system saves (XCR0, bits 17 and 18). */
bool hri_host_has_tiles(void);

/* hr_device_find without the stored probe, which is looked up above this floor (backend/devices.c). */
hr_status hri_device_find(const char *name, hr_device *device, hr_error *error);

#endif
