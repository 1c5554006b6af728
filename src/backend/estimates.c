/* A device that jobs can be planned for and not run on: what a run there would reserve as scratch, by formula. */
#include <assert.h>
#include <stdio.h>

#include "backend/backend.h"

static hr_status workspace(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error) {
  const hri_backend *b = self;
  const int64_t *i = node->attr.i;
  (void)job;
  (void)error;
  *bytes = 0;
  switch (node->op) {
  case HRI_OP_LINEAR:
  case HRI_OP_LINEAR_DX:
  case HRI_OP_LINEAR_DW: *bytes = b->device.library_workspace_bytes; break;
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

static void shut(hri_backend *backend) { hri_free(backend); }

hr_status hri_estimates_open(const hr_device *device, hri_backend **out, hr_error *error) {
  hri_backend *b = hri_alloc_zero(1, sizeof *b);
  if (!b) return hri_fail_memory(error, sizeof *b, "the backend");
  b->name = "estimates";
  b->team = 1;
  (void)snprintf(b->instruction_set, sizeof b->instruction_set, "device");
  (void)snprintf(b->libraries, sizeof b->libraries, "recorded formulas");
  b->estimated = true;
  b->device = *device;
  b->granule = 4096;
  b->self = b;
  b->workspace = workspace;
  b->fixed_bytes = fixed_bytes;
  b->close = shut;
  assert(!hri_backend_runs(b));
  *out = b;
  return HR_OK;
}
