/* What the device takes beside tensors (device.h). */
#include "frameworks/pytorch/device.h"

/* Of each multiprocessor (CUDA C++ Programming Guide, technical specifications per compute capability). */
static uint32_t threads_of(uint32_t capability) {
  if (capability == 75) return 1024;
  return capability == 86 || capability == 87 || capability == 89 || capability >= 110 ? 1536 : 2048;
}

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
                           .threads = threads_of(capability),
                           .cublas_workspace = capability >= 90 ? 32u << 20 : 8320u << 10};
}

hri_aten_device hri_aten_device_like(const hr_device *device) {
  hri_aten_device like = hri_aten_device_of(device->compute_capability);
  if (device->multiprocessors) like.processors = device->multiprocessors;
  return like;
}

static const hri_aten_device *device_of(const hri_torch *t) {
  static const hri_aten_device a100 = {.capability = 80, .processors = 108, .threads = 2048};
  return t->device ? t->device : &a100;
}

uint64_t hri_aten_threads(const hri_torch *t) {
  const hri_aten_device *device = device_of(t);
  return (uint64_t)device->processors * device->threads;
}

/* ---- partial sums ---- */

static uint64_t last_power(uint64_t n) {
  uint64_t power = 1;
  while (power * 2 <= n) power *= 2;
  return power;
}

static uint64_t divided(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

/* aten/src/ATen/native/cuda/Reduce.cuh, setReduceConfig, for sums over rows of columns that lie side by side: where few
 * outputs have many inputs, blocks share an output and leave partial sums in a buffer, with a semaphore for each block of
 * outputs. */
typedef struct staging {
  uint64_t buffer, semaphores;
} staging;

static staging staging_of(const hri_aten_device *device, uint64_t outputs, uint64_t inputs) {
  enum { THREADS = 512, WARP = 32, PER_THREAD_LEAST = 16, PER_THREAD_MOST = 256 };
  uint64_t vector = outputs % 4 == 0 ? 4 : outputs % 2 == 0 ? 2 : 1, most = THREADS / vector;
  uint64_t dim0 = last_power(outputs / vector), dim1 = last_power(inputs), width, height, grid, values, shared, least,
           blocks;
  dim0 = dim0 < most ? dim0 : most;
  width = dim0 < WARP ? dim0 : WARP;
  height = dim1 < most / width ? dim1 : most / width;
  width = dim0 < most / height ? dim0 : most / height;
  grid = divided(outputs / vector, width);
  if (inputs < (height * 16 < PER_THREAD_MOST ? height * 16 : PER_THREAD_MOST)) return (staging){0, 0};
  values = divided(inputs, height);
  blocks = device->processors * (device->threads / (width * height)); /* at once on the device */
  if (values < PER_THREAD_MOST || grid > blocks) return (staging){0, 0};
  shared = divided(blocks, grid);
  if (divided(values, PER_THREAD_LEAST) < shared) shared = divided(values, PER_THREAD_LEAST);
  least = divided(values, PER_THREAD_MOST);
  if (least > shared) shared = least;
  if (shared < 2) return (staging){0, 0};
  return (staging){4 * outputs * shared * width * vector, 4 * grid};
}

hri_ten *hri_ten_sum(hri_torch *torch, hri_ten_type type, hri_ten_shape shape, uint64_t inputs) {
  hri_ten *sum = hri_ten_make(torch, "sum", type, shape), *parts[2];
  staging s = staging_of(device_of(torch), hri_ten_count(sum), inputs);
  if (s.buffer == 0) return sum;
  parts[0] = hri_ten_flat(torch, "sum", HRI_U8, s.buffer);
  parts[1] = hri_ten_flat(torch, "sum", HRI_U8, s.semaphores);
  hri_ten_drop(torch, parts[1]);
  hri_ten_drop(torch, parts[0]);
  return sum;
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
  bool wide = threads_of(c) == 2048;
  uint64_t tenths = 250 + (uint64_t)device->multiprocessors * (wide ? 44 : 28);
  return device->multiprocessors ? tenths * MIB / 10 : device->fixed_bytes;
}
