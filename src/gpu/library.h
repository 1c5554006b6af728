/* A function out of a library that was loaded by dlopen, as driver, cuBLASLt, NVML, kernels and profilers are. */
#ifndef HRI_GPU_LIBRARY_H
#define HRI_GPU_LIBRARY_H

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

/* Into *member, a pointer to a function; NULL there, and false, when the library has none of that name. ISO C has no
 * conversion from dlsym's result to a function; POSIX promises that the bytes are the same. */
static inline bool hri_library_function(void *library, const char *name, void *member) {
  void *address = dlsym(library, name);
  memcpy(member, &address, sizeof address);
  return address != NULL;
}

#endif
