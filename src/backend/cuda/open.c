/* A real device: CUDA's driver, cuBLASLt, and the library of our kernels. Each is loaded here, and what is missing is
 * said by name. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"
#include "gpu/library.h"

/* ---- where the kernels' library lies ---- */

enum { PATH_BYTES = 4096 };
#define KERNELS "libheadroom-cuda.so"

/* Beside the program; in lib beside its bin, as it is installed; where ./dev build cuda leaves it in a source tree. */
static bool beside_program(char path[PATH_BYTES]) {
  static const char *const places[] = {"", "../lib/", "../lib/headroom/", "../cuda/"};
  char program[PATH_BYTES / 2], *slash;
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length <= 0) return false;
  program[length] = 0;
  slash = strrchr(program, '/');
  if (!slash) return false;
  slash[1] = 0;
  for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
    (void)snprintf(path, PATH_BYTES, "%s%s" KERNELS, program, places[k]);
    if (access(path, R_OK) == 0) return true;
  }
  return false;
}

static hr_status take_functions(void *library, const char *path, hri_cuda_kernels *kernels, hr_error *error) {
  const char *missing = NULL;
#define LOAD(name)                                                                                                     \
  if (!hri_library_function(library, "hri_cuda_" #name, (void *)&kernels->name)) missing = "hri_cuda_" #name;
  HRI_CUDA_KERNELS(LOAD)
#undef LOAD
  if (!missing) return HR_OK; /* it stays for as long as the process runs: graphs hold its kernels */
  (void)dlclose(library);
  (void)hri_fail(error, HR_ERROR_UNSUPPORTED, "%s has no function %s", path, missing);
  return hri_hint(error, HR_ERROR_UNSUPPORTED, "it is of another version: build it anew with ./dev build cuda");
}

/* The loader's path comes first, so that LD_LIBRARY_PATH decides where somebody set it. */
static hr_status load_kernels(hri_cuda_kernels *kernels, hr_error *error) {
  char path[PATH_BYTES];
  void *library = dlopen(KERNELS, RTLD_NOW | RTLD_LOCAL);
  if (library) return take_functions(library, KERNELS, kernels, error);
  return hri_cuda_kernels_load(beside_program(path) ? path : KERNELS, kernels, error);
}

hr_status hri_cuda_kernels_load(const char *path, hri_cuda_kernels *kernels, hr_error *error) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library) return take_functions(library, path, kernels, error);
  (void)hri_fail(error, HR_ERROR_UNSUPPORTED, "%s, the library of Headroom's kernels for GPUs, cannot be loaded: %s",
                 path, dlerror());
  return hri_hint(error, HR_ERROR_UNSUPPORTED, "./dev build cuda makes it; LD_LIBRARY_PATH names its folder");
}

hr_status hri_cuda_open(const hr_device *device, hri_backend **backend, hr_error *error) {
  static hri_cuda_kernels kernels;
  hri_cuda_parts parts = {.kernels = &kernels};
  uint32_t index;
  hr_status status;
  *backend = NULL;
  HRI_TRY(hri_cuda_index(device->name, &index, error));
  HRI_TRY(hri_gpu_cuda_open(index, &parts.gpu, error));
  HRI_TRY_OUT(load_kernels(&kernels, error));
  HRI_TRY_OUT(hri_gpu_cublas_open(&parts.products, error));
  HRI_TRY_OUT(hri_cuda_open_on(device, &parts, backend, error));
  return HR_OK;
out:
  if (parts.products) parts.products->calls->close(parts.products);
  parts.gpu->calls->close(parts.gpu);
  return status;
}
