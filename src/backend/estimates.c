/* A device that jobs can be planned for and not run on. A GPU of NVIDIA's that kernels are compiled for has the rules of the
 * CUDA backend, so that a plan made here is the one that is made beside the card, to the byte but for what the card's
 * context takes. Of any other device scratch is by formula, and says so. */
#include <assert.h>
#include <stdio.h>

#include "backend/backend.h"
#include "ops/cuda_demand.h"

static hr_status by_rules(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error) {
  return (void)self, hri_cuda_scratch(job, node, bytes, error);
}

static hr_status by_formula(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error) {
  const int64_t *i = node->attr.i;
  (void)self;
  (void)error;
  *bytes = 0;
  switch (node->op) {
  case HRI_OP_LINEAR:
  case HRI_OP_LINEAR_DX:
  case HRI_OP_LINEAR_DW: *bytes = job->workspace_bytes; break;
  /* flash attention's backward: an fp32 accumulator of dq and the row sums of dy*y */
  case HRI_OP_ATTENTION_BACKWARD: *bytes = (uint64_t)(i[0] * i[1] * i[2]) * (uint64_t)(i[4] + 1) * 4; break;
  default: break;
  }
  return HR_OK;
}

static uint64_t fixed_bytes(void *self, const hri_job *job, uint32_t shapes, uint64_t process_bytes) {
  const hri_backend *b = self;
  (void)job, (void)shapes, (void)process_bytes;
  return b->device.fixed_bytes;
}

static uint64_t pinned_bytes(void *self, const hri_job *job) { return (void)self, hri_cuda_pinned_bytes(job); }

static void shut(hri_backend *backend) { hri_free(backend); }

static void take_rules(hri_backend *b) {
  uint32_t capability = b->device.compute_capability;
  (void)snprintf(b->instruction_set, sizeof b->instruction_set, "sm_%u", capability);
  (void)snprintf(b->libraries, sizeof b->libraries, "the CUDA backend's rules");
  b->granule = HRI_CUDA_PAGE_BYTES;
  b->pinned_bytes = pinned_bytes;
  b->staging_tier = HRI_HOST;
  b->workspace = by_rules;
  b->epilogues = HRI_CUDA_EPILOGUES;
}

hr_status hri_estimates_open(const hr_device *device, hri_backend **out, hr_error *error) {
  hri_backend *b = hri_alloc_zero(1, sizeof *b);
  if (!b) return hri_fail_memory(error, sizeof *b, "the backend");
  b->name = "estimates";
  b->team = 1;
  b->device = *device;
  b->self = b;
  b->fixed_bytes = fixed_bytes;
  b->close = shut;
  if (device->compute_capability >= HRI_CUDA_OLDEST) {
    take_rules(b);
  } else {
    (void)snprintf(b->instruction_set, sizeof b->instruction_set, "device");
    (void)snprintf(b->libraries, sizeof b->libraries, "recorded formulas");
    b->estimated = true;
    b->granule = 4096;
    b->workspace = by_formula;
  }
  assert(!hri_backend_runs(b));
  *out = b;
  return HR_OK;
}
