/* Loops over elements for kernels: several at once where sizes and addresses allow 16-byte accesses. */
#ifndef HRI_OPS_ELEMENTS_CUH
#define HRI_OPS_ELEMENTS_CUH

#include "gpu/device.cuh"

enum { HRI_ELEMENT_THREADS = 256 };

/* Elements of T in 16 bytes. */
template <class T> constexpr int hri_vector() { return 16 / (int)sizeof(T); }

/* Whether every array can be taken in vectors: what divides n, and addresses. NULL is fine. */
inline bool hri_vectors(int64_t n, int width, const void *a, const void *b = nullptr, const void *c = nullptr) {
  uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c;
  return n % width == 0 && all % 16 == 0;
}

inline unsigned hri_blocks(int64_t items, int64_t each) { return (unsigned)((items + each - 1) / each); }

template <int n, class T> __device__ __forceinline__ void hri_get(float *to, const hri_global<T> &x, int64_t i) {
  auto pack = x.template load<n>(i);
  for (int k = 0; k < n; k++) to[k] = hri_widen(pack.v[k]);
}
template <int n, class T>
__device__ __forceinline__ void hri_put(const hri_global<T> &y, int64_t i, const float *from) {
  hri_pack<T, n> pack;
  for (int k = 0; k < n; k++) pack.v[k] = hri_narrow<T>(from[k]);
  y.template store<n>(i, pack);
}

#endif
