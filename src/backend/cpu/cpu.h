/* The CPU as a backend: kernels, matrix products, a team of threads, arenas in memory of the process.
 * backend.h says what it must do; here is what opens it, and what tests of the CPU itself ask. */
#ifndef HRI_BACKEND_CPU_CPU_H
#define HRI_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/adapters.h"

#define HRI_CPU_NAME "cpu" /* hr_device.backend */

/* HEADROOM_ISA caps the instruction set (isa.h). Measurements stored for this team are taken over. */
hr_status hri_cpu_open(const hr_device *device, uint32_t threads, hri_backend **backend, hr_error *error);
/* The stored probe of this machine, for a team (rates.c). */
bool hri_cpu_rates_load(hr_device *device, uint32_t threads);
hr_status hri_cpu_rates_store(const hr_device_rates *rates, char *path, uint32_t path_bytes, hr_error *error);

/* For tests: the next launch runs the nodes in this order (positions into the issue order) instead of the issue order.
 * Any
 * order that respects lanes and waits gives the same bits; it is not checked for poison. `positions` is kept by
 * reference. */
void hri_cpu_order_next(hri_backend *backend, const uint32_t *positions);
/* The kernels behind a CPU backend, for tests and benchmarks of single nodes. */
hri_cpu *hri_cpu_of(const hri_backend *backend);

#endif
