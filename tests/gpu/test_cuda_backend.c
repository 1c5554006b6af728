/* The CUDA backend on the GPU in software, through the code that every job runs through: what it trains is what the CPU
 * trains within rounding, whatever the order that streams allow, in exactly the planned bytes. A finding of the software GPU
 * is an error of whoever waits, so nothing here passes with one. */
#include "support/steps.h"

#include "backend/cpu/cpu.h"
#include "gpu/soft_backend.h"

/* Stands in for src/backend/open.c. */
hr_status hri_backend_open(const hr_device *device, uint32_t threads, hri_backend **backend, hr_error *error) {
  return strcmp(device->backend, HRI_CUDA_NAME) == 0 ? soft_backend_open(device, backend, error)
                                                     : hri_cpu_open(device, threads, backend, error);
}
bool hri_backend_measured(hr_device *device, uint32_t threads) { return (void)device, (void)threads, false; }

static void steps_device(hr_device *device) {
  (void)snprintf(device->name, sizeof device->name, HRI_CUDA_NAME);
  (void)snprintf(device->backend, sizeof device->backend, HRI_CUDA_NAME);
  device->has_team = device->packs = false;
  device->library_workspace_bytes = 4 << 20;
}

static const char *const models[] = {"micro-gpt2-bytes", "micro-llama-bytes"};

static void families_train_as_on_the_cpu(void **state) {
  (void)state;
  for (size_t m = 0; m < 2; m++)
    for (int bf16 = 0; bf16 < 2; bf16++)
      compare_with_cpu((variant){.model = models[m],
                                 .optimizer = HR_OPTIMIZER_ADAMW,
                                 .precision = bf16 ? HR_PRECISION_BF16 : HR_PRECISION_FP32},
                       "AdamW");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(families_train_as_on_the_cpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
