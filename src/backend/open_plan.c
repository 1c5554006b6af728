/* Which backends there are in the library that only plans: it is linked in place of open.c, and nothing runs. */
#include <string.h>

#include "backend/backend.h"

static bool is_cpu(const hr_device *device) { return strcmp(device->backend, "cpu") == 0; }

hr_status hri_backend_open(const hr_device *device, uint32_t threads, hri_backend **backend, hr_error *error) {
  return is_cpu(device) ? hri_described_cpu_open(device, threads, backend, error)
                        : hri_estimates_open(device, backend, error);
}

bool hri_backend_measured(hr_device *device, uint32_t threads) {
  (void)device, (void)threads;
  return false;
}

bool hri_backend_finds(const char *name, hr_device *device, hr_status *status, hr_error *error) {
  (void)device;
  if (strncmp(name, "cuda", 4) != 0) return false;
  (void)hri_fail(error, HR_ERROR_UNSUPPORTED, "device '%.80s': this library plans alone and looks at no machine", name);
  *status = hri_hint(error, HR_ERROR_UNSUPPORTED, "plan for a device by its name: rtx-4090, a100-80, ...");
  return true;
}
