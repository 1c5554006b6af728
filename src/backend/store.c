/* Storing what was measured of a device of this machine: each backend has a file of its own. */
#include "backend/backend.h"
#include "backend/stored.h"

hr_status hr_device_store(const hr_device_rates *rates, char *path, uint32_t path_bytes, hr_error *error) {
  if (!rates || rates->threads == 0) return hri_fail(error, HR_ERROR_USAGE, "there are no measured rates to store");
  return hri_backend_store(rates, path, path_bytes, error);
}

hr_status hr_device_can_store(hr_error *error) { return hri_stored_can_write(error); }
