/* The GPU in software: how it is opened, what it found, and how the header for kernels launches on it (runtime.h for the
 * rest). */
#ifndef HRI_GPU_SOFT_RUNTIME_H
#define HRI_GPU_SOFT_RUNTIME_H

#include "gpu/runtime.h"
#include "gpu/soft/block.h"
#include "gpu/soft/report.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hri_gpu_soft_options {
  uint64_t seed;         /* of every order that is free */
  uint64_t memory_bytes; /* of the device; 0: 1 GiB */
  uint32_t shared_bytes; /* of one block; 0: 99 KiB, what the smallest card has that kernels are built for */
  void (*on_kernel)(
      const char *kernel); /* called as each one begins to run, by its name in the source; NULL: nobody asks */
} hri_gpu_soft_options;

/* One in a process at a time. NULL options: all 0. */
hr_status hri_gpu_soft_open(const hri_gpu_soft_options *options, hri_gpu **gpu, hr_error *error);

/* What was found since it was opened; it lives as long as the device. */
const hri_soft_report *hri_gpu_soft_report(const hri_gpu *gpu);

/* A kernel with its arguments: run(context) is one thread of it, drop(context) frees it. Taken over, also on failure. */
typedef struct hri_soft_launch {
  const char *kernel;
  hri_soft_index blocks, threads;
  uint32_t shared_bytes;
  void (*run)(void *context);
  void (*drop)(void *context);
  void *context;
} hri_soft_launch;

/* Queues it; 0, or -1 when no card takes it (a finding says why). */
int hri_gpu_soft_launch(hri_gpu_stream *stream, const hri_soft_launch *launch);

#ifdef __cplusplus
}
#endif
#endif
