/* Casts and fills. */
#include "ops/cuda.h"
#include "ops/elements.cuh"

template <class To, class From, int n> __global__ void cast_kernel(To *to, const From *from, int64_t count) {
  hri_global<To> y(to, count);
  hri_global<const From> x(from, count);
  int64_t i = hri_thread_index() * n;
  float v[n];
  if (i >= count) return;
  hri_get<n>(v, x, i);
  hri_put<n>(y, i, v);
}

template <class To, class From> static int cast_of(void *to, const void *from, int64_t n, void *stream) {
  constexpr int width =
      sizeof(To) < sizeof(From) ? hri_vector<From>() : hri_vector<To>(); /* both in 16 bytes at most */
  To *y = static_cast<To *>(to);
  const From *x = static_cast<const From *>(from);
  if (n == 0) return 0;
  if (hri_vectors(n, width, to, from))
    return HRI_LAUNCH((cast_kernel<To, From, width>), hri_blocks(n, HRI_ELEMENT_THREADS * width), HRI_ELEMENT_THREADS,
                      0, stream, y, x, n);
  return HRI_LAUNCH((cast_kernel<To, From, 1>), hri_blocks(n, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS, 0, stream, y,
                    x, n);
}

template <class From> static int cast_from(void *to, hri_real to_real, const void *from, int64_t n, void *stream) {
  return HRI_BY_TYPE(to_real, (cast_of<REAL, From>(to, from, n, stream)));
}

extern "C" int hri_cuda_cast(void *to, hri_real to_real, const void *from, hri_real from_real, int64_t n,
                             void *stream) {
  return HRI_BY_TYPE(from_real, (cast_from<REAL>(to, to_real, from, n, stream)));
}

__global__ void fill_kernel(float *to, float value, int64_t count) {
  hri_global<float> y(to, count);
  int64_t i = hri_thread_index();
  if (i < count) y[i] = value;
}

extern "C" int hri_cuda_fill(float *y, float value, int64_t n, void *stream) {
  if (n == 0) return 0;
  return HRI_LAUNCH(fill_kernel, hri_blocks(n, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS, 0, stream, y, value, n);
}
