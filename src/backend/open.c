/* Which backends there are. The one file above which nobody knows any of them: a library that only plans, or a test,
 * links another one in its place. */
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"

static bool is_cpu(const hr_device *device) { return strcmp(device->backend, HRI_CPU_NAME) == 0; }

hr_status hri_backend_open(const hr_device *device, uint32_t threads, hri_backend **backend, hr_error *error) {
  if (strcmp(device->backend, HRI_CUDA_NAME) == 0) return hri_cuda_open(device, backend, error);
  return is_cpu(device) ? hri_cpu_open(device, threads, backend, error) : hri_estimates_open(device, backend, error);
}

bool hri_backend_measured(hr_device *device, uint32_t threads) {
  if (strcmp(device->backend, HRI_CUDA_NAME) == 0) return hri_cuda_rates_load(device);
  return is_cpu(device) && hri_cpu_rates_load(device, threads);
}

hr_status hri_backend_store(const hr_device_rates *rates, char *path, uint32_t path_bytes, hr_error *error) {
  return (rates->card[0] ? hri_cuda_rates_store : hri_cpu_rates_store)(rates, path, path_bytes, error);
}

bool hri_backend_finds(const char *name, hr_device *device, hr_status *status, hr_error *error) {
  if (!hri_cuda_is_named(name)) return false;
  *status = hri_cuda_device(name, device, error);
  if (*status == HR_OK) (void)hri_cuda_rates_load(device);
  return true;
}
