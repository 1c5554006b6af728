/* The CUDA backend: its name, and how it is opened on a device. */
#ifndef HRI_BACKEND_CUDA_CUDA_H
#define HRI_BACKEND_CUDA_CUDA_H

#include "backend/backend.h"
#include "backend/cuda/adapters.h"

#define HRI_CUDA_NAME "cuda"

/* Whether a name means a GPU of this machine, "cuda" or "cuda:1", right or not. */
bool hri_cuda_is_named(const char *name);
/* Its number, counted from 0. USAGE: it has none. */
hr_status hri_cuda_index(const char *name, uint32_t *index, hr_error *error);
/* Such a GPU, without taking any of its memory: figures of its driver, with rates of the table's row where its title is
 * one's, else assumed; in its rates, for whom a measurement would hold. Nothing stored is taken over. Else USAGE as above, UNSUPPORTED as hri_gpu_cuda_look. */
hr_status hri_cuda_device(const char *name, hr_device *device, hr_error *error);

/* The backend of a device that hri_cuda_device filled. UNSUPPORTED: driver, cuBLASLt or our kernels are not there; the
 * message says which. */
hr_status hri_cuda_open(const hr_device *device, hri_backend **backend, hr_error *error);
/* What products are exact for beside the capability, as hri_backend.libraries: a library's ways are a function of its version,
 * the capability and how many multiprocessors share the work. */
void hri_cuda_libraries_text(const char *library, const hri_gpu_info *info, char out[64]);
/* What is stored of a probe of a card that hri_cuda_device filled (rates.c). False: nothing, or, as
 * device->rates_problem then says, nothing that holds for it. */
bool hri_cuda_rates_load(hr_device *device);
hr_status hri_cuda_rates_store(const hr_device_rates *rates, char *path, uint32_t path_bytes, hr_error *error);
/* Launchers out of a library. */
hr_status hri_cuda_kernels_load(const char *path, hri_cuda_kernels *kernels, hr_error *error);

/* On a device that was reached already: the GPU and its products are the backend's when it succeeds, and closed with it.
 * `device`: what is known of it for plans. */
hr_status hri_cuda_open_on(const hr_device *device, const hri_cuda_parts *parts, hri_backend **backend,
                           hr_error *error);

#endif
