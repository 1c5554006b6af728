/* The GPUs of this machine, as CUDA's driver shows them. */
#include <stdio.h>
#include <string.h>

#include <headroom/device.h>
#include <headroom/gpu.h>

#include "base/error.h"
#include "gpu/runtime.h"

hr_status hr_device_local(uint32_t index, hr_local_gpu *out, hr_error *error) {
  hri_gpu_info info;
  hr_device device;
  memset(out, 0, sizeof *out);
  HRI_TRY(hri_gpu_cuda_look(index, &info, error));
  (void)snprintf(out->title, sizeof out->title, "%s", info.name);
  out->compute_capability = info.major * 10 + info.minor;
  out->multiprocessors = info.multiprocessors;
  out->total_bytes = info.total_bytes;
  /* A name that is none of the table's, or may be several of its rows: sizes tell no product. */
  if (hr_device_find(info.name, &device, NULL) == HR_OK) (void)snprintf(out->name, sizeof out->name, "%s", device.name);
  return HR_OK;
}
