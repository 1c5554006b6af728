/* Casts, fills, the slice of a step. */
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

/* Words of the slice that the control block names. */
__global__ void select_kernel(uint32_t *to, const uint32_t *from, int64_t count, const hri_control *control) {
  hri_global<const int64_t> index(&control->micro_index, 1);
  hri_global<uint32_t> y(to, count);
  int64_t i = hri_thread_index(), slice = index[0];
  if (i >= count || slice < 0) return;
  hri_global<const uint32_t> x(from, (slice + 1) * count);
  y[i] = (uint32_t)x[slice * count + i];
}

extern "C" int hri_cuda_select(void *to, const void *from, uint64_t bytes, const hri_control *control, void *stream) {
  int64_t words = (int64_t)(bytes / sizeof(uint32_t));
  if (bytes % sizeof(uint32_t) != 0) return -1;
  if (words == 0) return 0;
  return HRI_LAUNCH(select_kernel, hri_blocks(words, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS, 0, stream,
                    static_cast<uint32_t *>(to), static_cast<const uint32_t *>(from), words, control);
}
