/* What the device takes beside tensors (device.h). */
#include "frameworks/pytorch/device.h"

/* CUDABlas: ":4096:2:16:8" is 8,320 KiB, 32 MiB from Hopper on. */
hri_aten_device hri_aten_device_of(uint32_t capability) {
  uint32_t processors = capability >= 90   ? 132 /* H100 */
                        : capability == 89 ? 128 /* RTX 4090 */
                        : capability == 86 ? 82  /* RTX 3090 */
                        : capability == 75 ? 40  /* T4 */
                        : capability < 75  ? 80  /* V100 */
                                           : 108 /* A100 */;
  return (hri_aten_device){.capability = capability,
                           .processors = processors,
                           .cublas_workspace = capability >= 90 ? 32u << 20 : 8320u << 10};
}

void hri_aten_workspace(hri_torch *t) {
  hri_aten_device *d = t->device;
  bool backward = !t->grad_mode && t->label.phase == HRI_TORCH_BACKWARD;
  if (!d || !d->cublas_workspace || d->workspaces[backward] || t->stopped) return;
  d->workspaces[backward] = hri_ten_flat(t, "cublas workspace", HRI_U8, d->cublas_workspace);
}

/* CUDA's context of a PyTorch process with its kernels loaded as they are needed. Four cards were told of: RTX 3090 256 MiB (82
 * multiprocessors, torch 2.7), RTX 6000 Ada 426 (142, 2.10), A100 481 (108, 2.1), H200 612 (132). It grows with what the driver keeps for each
 * multiprocessor, more where 2,048 threads live on one: 25 MiB and 2.8 or 4.4 MiB each are within 4 % of all four. A fifth, a T4 (40) of 141
 * MiB, was not looked at for it and has 137 here. */
uint64_t hri_torch_context_bytes(const hr_device *device) {
  enum { MIB = 1 << 20 };
  uint32_t c = device->compute_capability;
  bool wide = c == 70 || c == 80 || c == 90 || c == 100 || c == 103; /* 2,048 threads */
  uint64_t tenths = 250 + (uint64_t)device->multiprocessors * (wide ? 44 : 28);
  return device->multiprocessors ? tenths * MIB / 10 : device->fixed_bytes;
}
