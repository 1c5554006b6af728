/* This machine as a device: what the operating system says of its processors and memory. */
#ifndef HRI_DEVICE_CPU_H
#define HRI_DEVICE_CPU_H

#include <headroom/device.h>

/* What the process has resident before its first tensor: program, libraries, stacks, data buffers. 10 to 12 MiB were
 * measured with oneDNN 2 (tests/unit/test_exact.c prints it); assumed with some room until a probe of the machine
 * replaces it (backend/cpu/rates.c; fixed_measured says which). */
#define HRI_CPU_FIXED_BYTES (14ull << 20)

/* Fills `device` for the CPU. Never fails: what cannot be read keeps a modest default. */
void hri_device_cpu(hr_device *device);

/* hr_device_find without the stored probe, which is looked up above this floor (backend/devices.c). */
hr_status hri_device_find(const char *name, hr_device *device, hr_error *error);

#endif
