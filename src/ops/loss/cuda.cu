/* Cross-entropy over a row of logits by one block, which may write the gradient over them; and the sum of losses. */
#include "ops/cuda.h"
#include "ops/elements.cuh"

enum { ROW_THREADS = 256 };

__device__ __forceinline__ float capped(float x, float softcap) {
  return softcap > 0 ? softcap * tanhf(x / softcap) : x;
}

/* dlogits = (softmax - target) * scale, through the cap; 0 behind the vocabulary. */
template <class T>
__device__ __forceinline__ void write_gradient(const hri_cuda_cross_entropy_args &a, const hri_global<const T> &x,
                                               int32_t label, float most, float sum, float scale) {
  hri_global<T> to(static_cast<T *>(a.dlogits), a.rows * a.stored);
  int64_t base = blockIdx.x * a.stored;
  float softcap = (float)a.softcap, smoothing = (float)a.smoothing, even = smoothing / (float)a.vocabulary;
  for (int64_t v = threadIdx.x; v < a.stored; v += blockDim.x) {
    float g = 0;
    if (v < a.vocabulary && label >= 0) {
      float l = capped(hri_widen((T)x[base + v]), softcap), slope = 1;
      if (softcap > 0) slope = 1 - (l / softcap) * (l / softcap);
      g = (expf(l - most) / sum - even - (v == label ? 1 - smoothing : 0)) * slope * scale;
    }
    to[base + v] = hri_narrow<T>(g);
  }
}

template <class T> __global__ void cross_entropy_kernel(hri_cuda_cross_entropy_args a) {
  HRI_SHARED(float, partial, HRI_WARP);
  HRI_SHARED(float, at_label, 1);
  int64_t base = blockIdx.x * a.stored;
  hri_global<const T> x(static_cast<const T *>(a.logits), a.rows * a.stored);
  hri_global<const int32_t> labels(a.labels, a.rows);
  hri_global<const hri_control> control(a.control, 1);
  hri_global<float> losses(a.losses, a.rows);
  int32_t label = labels[blockIdx.x];
  float softcap = (float)a.softcap, smoothing = (float)a.smoothing, most = -INFINITY, sum = 0, all = 0;
  for (int64_t v = threadIdx.x; v < a.vocabulary; v += blockDim.x)
    most = fmaxf(most, capped(hri_widen((T)x[base + v]), softcap));
  most = hri_block_max(most, partial);
  for (int64_t v = threadIdx.x; v < a.vocabulary; v += blockDim.x) {
    float l = capped(hri_widen((T)x[base + v]), softcap);
    sum += expf(l - most);
    all += l / (float)a.vocabulary;
    if (v == label) at_label[0] = l;
  }
  sum = hri_block_sum(sum, partial);
  if (smoothing > 0) all = hri_block_sum(all, partial);
  if (threadIdx.x == 0) {
    float lse = logf(sum) + most;
    losses[blockIdx.x] =
        label < 0 ? 0 : (1 - smoothing) * (lse - at_label[0]) + (smoothing > 0 ? smoothing * (lse - all) : 0);
  }
  if (!a.dlogits) return;
  hri_control c = control[0];
  write_gradient<T>(a, x, label, most, sum, (float)(c.inv_tokens * c.loss_scale));
}

extern "C" int hri_cuda_cross_entropy(const hri_cuda_cross_entropy_args *args, void *stream) {
  if (args->rows == 0) return 0;
  return HRI_BY_TYPE(args->real,
                     HRI_LAUNCH(cross_entropy_kernel<REAL>, (unsigned)args->rows, ROW_THREADS, 0, stream, *args));
}

__global__ void loss_sum_kernel(const float *losses, int64_t n, hri_control *to) {
  HRI_SHARED(double, partial, HRI_WARP);
  hri_global<const float> x(losses, n);
  hri_global<double> total(&to->loss_sum, 1);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += (double)x[i];
  sum = hri_block_sum(sum, partial);
  if (threadIdx.x == 0) total[0] = total[0] + sum;
}

extern "C" int hri_cuda_loss_sum(const float *losses, int64_t n, hri_control *control, void *stream) {
  return HRI_LAUNCH(loss_sum_kernel, 1, ROW_THREADS, 0, stream, losses, n, control);
}
