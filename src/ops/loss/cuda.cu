/* Cross-entropy over a row of logits by one block, which may write the gradient over them; and the sum of losses. */
#include <float.h>

#include "ops/cuda.h"
#include "ops/elements.cuh"

enum { ROW_THREADS = 256, MANY_THREADS = 512, MANY = 8192 };

__device__ __forceinline__ float capped(float x, float softcap) {
  return softcap > 0 ? softcap * tanhf(x / softcap) : x;
}

/* Logits v .. v + wide - 1, capped, of which those behind the vocabulary are not there: how many are. */
template <class T, int wide>
__device__ __forceinline__ int get_logits(float *l, const hri_cuda_cross_entropy_args &a, const hri_global<const T> &x,
                                          int64_t base, int64_t v) {
  float softcap = (float)a.softcap;
  int count = a.vocabulary - v < wide ? (int)(a.vocabulary - v) : wide;
  if (count == wide) hri_get<wide>(l, x, base + v);
  else
    for (int k = 0; k < wide; k++) l[k] = k < count ? hri_widen((T)x[base + v + k]) : -INFINITY;
  for (int k = 0; k < wide; k++)
    if (k < count) l[k] = capped(l[k], softcap);
  return count;
}

/* dlogits = (softmax - target) * scale, through the cap; 0 behind the vocabulary. */
template <class T, int wide>
__device__ __forceinline__ void write_gradient(const hri_cuda_cross_entropy_args &a, const hri_global<const T> &x,
                                               int32_t label, float most, float sum, float scale) {
  hri_global<T> to(static_cast<T *>(a.dlogits), a.rows * a.stored);
  int64_t base = blockIdx.x * a.stored;
  float softcap = (float)a.softcap, smoothing = (float)a.smoothing, even = smoothing / (float)a.vocabulary,
        l[wide] = {};
  for (int64_t v = (int64_t)threadIdx.x * wide; v < a.stored; v += (int64_t)blockDim.x * wide) {
    int count = label >= 0 && v < a.vocabulary ? get_logits<T, wide>(l, a, x, base, v) : 0;
    for (int k = 0; k < wide; k++) {
      float slope = softcap > 0 ? 1 - (l[k] / softcap) * (l[k] / softcap) : 1;
      float target = v + k == label ? 1 - smoothing : 0;
      l[k] = k < count ? (expf(l[k] - most) / sum - even - target) * slope * scale : 0;
    }
    hri_put<wide>(to, base + v, l);
  }
}

/* Maximum and sum are made in one pass: a thread's sum is of exponentials less its own maximum so far, which begins as a
 * number: where all that a thread has is -inf, exponentials are then 0 and not NaN. */
template <class T, int wide> __global__ void cross_entropy_kernel(hri_cuda_cross_entropy_args a) {
  HRI_SHARED(float, partial, HRI_WARP);
  HRI_SHARED(float, at_label, 1);
  int64_t base = blockIdx.x * a.stored;
  hri_global<const T> x(static_cast<const T *>(a.logits), a.rows * a.stored);
  hri_global<const int32_t> labels(a.labels, a.rows);
  hri_global<const hri_control> control(a.control, 1);
  hri_global<float> losses(a.losses, a.rows);
  int32_t label = labels[blockIdx.x];
  float smoothing = (float)a.smoothing, most = -FLT_MAX, sum = 0, all = 0, l[wide];
  for (int64_t v = (int64_t)threadIdx.x * wide; v < a.vocabulary; v += (int64_t)blockDim.x * wide) {
    int count = get_logits<T, wide>(l, a, x, base, v);
    float larger = most;
    for (int k = 0; k < count; k++) {
      larger = fmaxf(larger, l[k]);
      all += l[k] / (float)a.vocabulary;
      if (v + k == label) at_label[0] = l[k];
    }
    if (larger > most) sum *= expf(most - larger);
    most = larger;
    for (int k = 0; k < count; k++) sum += expf(l[k] - most);
  }
  float own = most;
  most = hri_block_max(own, partial);
  sum = hri_block_sum(sum * expf(own - most), partial); /* a thread without logits: 0 times 0 */
  if (smoothing > 0) all = hri_block_sum(all, partial);
  if (threadIdx.x == 0) {
    float lse = logf(sum) + most;
    losses[blockIdx.x] =
        label < 0 ? 0 : (1 - smoothing) * (lse - at_label[0]) + (smoothing > 0 ? smoothing * (lse - all) : 0);
  }
  if (!a.dlogits) return;
  hri_control c = control[0];
  write_gradient<T, wide>(a, x, label, most, sum, (float)(c.inv_tokens * c.loss_scale));
}

/* Long rows are read again for the gradient: many threads for each, so that those of the rows under way are still in the cache. */
template <class T> static int cross_entropy(const hri_cuda_cross_entropy_args *a, void *stream) {
  unsigned rows = (unsigned)a->rows, threads = a->stored >= MANY ? MANY_THREADS : ROW_THREADS;
  if (hri_vectors(a->stored, hri_vector<T>(), a->logits, a->dlogits))
    return HRI_LAUNCH((cross_entropy_kernel<T, hri_vector<T>()>), rows, threads, 0, stream, *a);
  return HRI_LAUNCH((cross_entropy_kernel<T, 1>), rows, threads, 0, stream, *a);
}

extern "C" int hri_cuda_cross_entropy(const hri_cuda_cross_entropy_args *args, void *stream) {
  if (args->rows == 0) return 0;
  return HRI_BY_TYPE(args->real, cross_entropy<REAL>(args, stream));
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
