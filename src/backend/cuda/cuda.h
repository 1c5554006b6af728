/* The CUDA backend: its name, and how it is opened on a device. */
#ifndef HRI_BACKEND_CUDA_CUDA_H
#define HRI_BACKEND_CUDA_CUDA_H

#include "backend/backend.h"
#include "backend/cuda/adapters.h"

#define HRI_CUDA_NAME "cuda"

/* Device `index` of CUDA's driver. UNSUPPORTED: driver, cuBLASLt or our kernels are not there; the message says which. */
hr_status hri_cuda_open(const hr_device *device, uint32_t index, hri_backend **backend, hr_error *error);
/* Launchers out of a library. */
hr_status hri_cuda_kernels_load(const char *path, hri_cuda_kernels *kernels, hr_error *error);

/* On a device that was reached already: the GPU and its products are the backend's when it succeeds, and closed with it.
 * `device`: what is known of it for plans. */
hr_status hri_cuda_open_on(const hr_device *device, const hri_cuda_parts *parts, hri_backend **backend,
                           hr_error *error);

#endif
