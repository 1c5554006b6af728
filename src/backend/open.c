/* Which backends there are. The one file above which nobody knows any of them: a library that only plans, or a test,
 * links another one in its place. */
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/cpu.h"

static bool is_cpu(const hr_device *device) { return strcmp(device->backend, HRI_CPU_NAME) == 0; }

hr_status hri_backend_open(const hr_device *device, uint32_t threads, hri_backend **backend, hr_error *error) {
  return is_cpu(device) ? hri_cpu_open(device, threads, backend, error) : hri_estimates_open(device, backend, error);
}

bool hri_backend_measured(hr_device *device, uint32_t threads) {
  return is_cpu(device) && hri_cpu_rates_load(device, threads);
}
