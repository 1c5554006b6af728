/* The CPU backend for tests that need no plan. */
#ifndef HRI_TEST_CPU_H
#define HRI_TEST_CPU_H

#include "backend/cpu/cpu.h"
#include "device/cpu.h"

static inline hr_status cpu_open(uint32_t threads, hri_backend **backend, hr_error *error) {
  hr_device device;
  hri_device_cpu(&device);
  return hri_backend_open(&device, threads, backend, error);
}

#endif
