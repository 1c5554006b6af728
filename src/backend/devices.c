/* Devices by name, with what is stored of measurements of them: the table is below the backends, which know the
 * rest. */
#include "backend/backend.h"
#include "device/cpu.h"

bool hr_device_load(hr_device *device, uint32_t threads) { return hri_backend_measured(device, threads); }

hr_status hr_device_find(const char *name, hr_device *device, hr_error *error) {
  hr_status status;
  if (name && hri_backend_finds(name, device, &status, error)) return status;
  HRI_TRY(hri_device_find(name, device, error));
  if (device->has_team) (void)hr_device_load(device, hr_device_cpu_threads());
  return HR_OK;
}
