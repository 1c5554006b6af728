/* A card of this machine as a device: what its driver tells, the row of the table where its name is one's, and where it
 * is none's, rates by its generation, clock and number of multiprocessors. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/number.h"
#include "backend/cuda/cuda.h"
#include "base/text.h"
#include "device/cpu.h"
#include "device/gpu.h"
#include "gpu/nvml.h"
#include "gpu/product.h"

bool hri_cuda_is_named(const char *name) {
  return strncasecmp(name, "cuda", 4) == 0 && !isalpha((unsigned char)name[4]);
}

/* "cuda" is the first; "cuda:1" the second. */
hr_status hri_cuda_index(const char *name, uint32_t *index, hr_error *error) {
  const char *digits = name + strlen("cuda:");
  *index = 0;
  if (name[4] == 0) return HR_OK;
  if (name[4] == ':' && *digits && strspn(digits, "0123456789") == strlen(digits) && strlen(digits) <= 3) {
    *index = (uint32_t)strtoul(digits, NULL, 10);
    return HR_OK;
  }
  (void)hri_fail(error, HR_ERROR_USAGE, "device '%.80s' is no GPU's name", name);
  return hri_hint(error, HR_ERROR_USAGE,
                  "cuda for the first of this machine, cuda:1 for the second; `headroom devices` lists them");
}

/* Dense operations of one multiprocessor in a clock, with fp32 accumulation: tensor products of bf16 and multiply-adds
 * of fp32 (two operations each), by the tuning guides and white papers of the generations; boards of a generation are
 * sold with other tensor rates too, so these are the lower ones of each capability. */
static const struct generation {
  uint32_t capability, bf16, fp32;
} generations[] = {{80, 2048, 128}, {86, 512, 256}, {89, 512, 256}, {90, 4096, 256}, {100, 8192, 256}, {120, 512, 256}};

static void assume_rates(hr_device *d, const hri_gpu_info *info) {
  uint32_t capability = info->major * 10 + info->minor;
  double clocks = (double)info->clock_hz * info->multiprocessors;
  const struct generation *g = &generations[0];
  for (size_t k = 0; k < sizeof generations / sizeof *generations; k++)
    if (generations[k].capability <= capability) g = &generations[k];
  d->flops_bf16 = d->flops_fp16 = clocks * g->bf16;
  d->flops_tf32 = d->flops_bf16 / 2;
  d->flops_fp32 = clocks * g->fp32;
  d->memory_bytes_per_second = (double)info->memory_bytes_per_second;
  d->link_bytes_per_second = 16e9;
  d->node_seconds = HRI_GPU_LAUNCH_SECONDS;
  d->gemm_efficiency = HRI_GPU_GEMM_EFFICIENCY;
  d->memory_efficiency = HRI_GPU_MEMORY_EFFICIENCY;
  d->fixed_bytes = HRI_GPU_CONTEXT_BYTES;
  d->library_workspace_bytes = capability >= 90 ? HRI_GPU_WORKSPACE_HOPPER : HRI_GPU_WORKSPACE_CLASSIC;
  (void)hri_snprintf(d->source, sizeof d->source,
                     "its driver, and rates of its generation: %u multiprocessors, %.0f MHz", info->multiprocessors,
                     (double)info->clock_hz / 1e6);
}

void hri_cuda_libraries_text(const char *library, const hri_gpu_info *info, char out[64]) {
  (void)snprintf(out, 64, "%.40s, %u SMs", library, info->multiprocessors);
}

/* For whom measurements hold: the card by its UUID, the driver by both of its versions, the library of products. Without
 * that library nothing runs, and nothing is identified. */
static void identify(hr_device *d, const hri_gpu_info *info, hri_nvml *nvml) {
  hr_device_rates *r = &d->rates;
  char uuid[HRI_NVML_UUID_BYTES], driver[HRI_NVML_VERSION_BYTES], library[HRI_GPU_LIBRARY_BYTES];
  memset(r, 0, sizeof *r);
  if (hri_gpu_cublas_look(library, NULL) != HR_OK) return;
  hri_cuda_libraries_text(library, info, r->libraries);
  hri_nvml_uuid_text(info->uuid, uuid);
  (void)hri_nvml_driver(nvml, driver);
  (void)snprintf(r->instruction_set, sizeof r->instruction_set, "sm_%u%u", info->major, info->minor);
  (void)snprintf(r->card, sizeof r->card, "%s, CUDA %u.%u%s%.32s", uuid, info->driver_version / 1000,
                 info->driver_version % 1000 / 10, driver[0] ? ", driver " : "", driver);
}

hr_status hri_cuda_device(const char *name, hr_device *device, hr_error *error) {
  hri_gpu_info info;
  hri_nvml_memory memory;
  hri_nvml *nvml;
  uint32_t index;
  HRI_TRY(hri_cuda_index(name, &index, error));
  HRI_TRY(hri_gpu_cuda_look(index, &info, error));
  memset(device, 0, sizeof *device);
  if (hri_device_find(info.name, device, NULL) != HR_OK || device->compute_capability != info.major * 10 + info.minor) {
    memset(device, 0, sizeof *device);
    assume_rates(device, &info);
  }
  (void)snprintf(device->name, sizeof device->name, "%s", name);
  for (char *c = device->name; *c; c++) *c = (char)tolower((unsigned char)*c);
  (void)snprintf(device->title, sizeof device->title, "%s", info.name);
  (void)snprintf(device->backend, sizeof device->backend, HRI_CUDA_NAME);
  device->compute_capability = info.major * 10 + info.minor;
  device->multiprocessors = info.multiprocessors;
  device->capacity_bytes = device->usable_bytes = info.total_bytes;
  nvml = hri_nvml_open(info.uuid);
  identify(device, &info, nvml);
  device->usable_now = hri_nvml_ask(nvml, &memory);
  hri_nvml_close(nvml);
  if (device->usable_now && memory.free_bytes < info.total_bytes) device->usable_bytes = memory.free_bytes;
  return HR_OK;
}
