/* What kernels ask of the device (device.h). */
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
