/* Devices one can plan for: this machine's CPU, and a table of GPUs with published figures. */
#ifndef HEADROOM_DEVICE_H
#define HEADROOM_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_device {
  char name[48];              /* "cpu", "rtx-4090", ... */
  char title[96];             /* "NVIDIA GeForce RTX 4090"; for the CPU the model name */
  bool is_cpu;
  uint64_t capacity_bytes;    /* what is built in */
  uint64_t usable_bytes;      /* what a process can have: cudaMemGetInfo's total; for the CPU what is available now */
  double memory_bytes_per_second;
  double flops_fp32, flops_tf32, flops_bf16; /* dense, per second, published; 0 = not offered */
  double link_bytes_per_second;              /* host link, one direction; 0 for the CPU */
  double gemm_efficiency, memory_efficiency; /* share of the published rates that is assumed reachable */
  uint64_t fixed_bytes;       /* runtime, libraries, context: what no program can own */
  bool fixed_measured;        /* measured on this machine, else assumed */
  uint64_t library_workspace_bytes; /* GEMM library workspace that a run would reserve */
  char source[160];           /* where the figures come from */
  char date[16];              /* when they were read, YYYY-MM */
} hr_device;

/* Number of table devices (the CPU is not one) and the index-th. */
uint32_t hr_device_count(void);
hr_status hr_device_get(uint32_t index, hr_device *device, hr_error *error);

/* Finds "cpu" (asks this machine) or a table device by name (case and punctuation do not matter: "RTX 4090" works).
 * USAGE when unknown, with the nearest name. */
hr_status hr_device_find(const char *name, hr_device *device, hr_error *error);

/* Threads that a CPU job uses by default: the physical cores this process may use. */
uint32_t hr_device_cpu_threads(void);

#ifdef __cplusplus
}
#endif
#endif
