/* Loops over elements for kernels: several at once where sizes and addresses allow 16-byte accesses. */
#ifndef HRI_OPS_ELEMENTS_CUH
#define HRI_OPS_ELEMENTS_CUH

#include "gpu/device.cuh"

enum { HRI_ELEMENT_THREADS = 256 };

/* Before a loop: so many rounds at once, so that their loads are under way together. */
#ifdef __CUDACC__
#define HRI_PRAGMA(text) _Pragma(#text)
#define HRI_UNROLL_BY(rounds) HRI_PRAGMA(unroll rounds)
#else
#define HRI_UNROLL_BY(rounds)
#endif

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
/* By loads of 16 bytes at most, which lie at multiples of them. */
template <int n, class T> __device__ __forceinline__ void hri_get_wide(float *to, const hri_global<T> &x, int64_t i) {
  constexpr int each = 16 / (int)sizeof(T) < n ? 16 / (int)sizeof(T) : n;
  for (int k = 0; k < n; k += each) hri_get<each>(to + k, x, i + k);
}
template <int n, class T>
__device__ __forceinline__ void hri_put(const hri_global<T> &y, int64_t i, const float *from) {
  hri_pack<T, n> pack;
  for (int k = 0; k < n; k++) pack.v[k] = hri_narrow<T>(from[k]);
  y.template store<n>(i, pack);
}

/* ---- arrays whose type is known when the kernel runs ---- */

struct hri_any {
  void *base;
  hri_real real;
  int64_t n;
  __device__ explicit operator bool() const { return base != nullptr; }
};
enum { HRI_SOME = 4 }; /* elements that are taken at once, where they lie side by side as they have to */

template <class T> __device__ __forceinline__ bool hri_some_aligned(const hri_any &x, int64_t i, int count) {
  return count == HRI_SOME && (uintptr_t)(static_cast<T *>(x.base) + i) % (HRI_SOME * sizeof(T)) == 0;
}
template <class T> __device__ __forceinline__ void hri_get_typed(float *v, const hri_any &x, int64_t i, int count) {
  hri_global<const T> from(static_cast<const T *>(x.base), x.n);
  if (hri_some_aligned<T>(x, i, count)) {
    hri_get<HRI_SOME>(v, from, i);
    return;
  }
  for (int k = 0; k < count; k++) v[k] = hri_widen((T)from[i + k]);
}
/* Elements as they are. */
template <class T> __device__ __forceinline__ void hri_get_raw(T *v, const hri_any &x, int64_t i, int count) {
  hri_global<const T> from(static_cast<const T *>(x.base), x.n);
  if (hri_some_aligned<T>(x, i, count)) {
    auto pack = from.template load<HRI_SOME>(i);
    for (int k = 0; k < HRI_SOME; k++) v[k] = pack.v[k];
    return;
  }
  for (int k = 0; k < count; k++) v[k] = from[i + k];
}
/* Elements i .. i + count - 1, at most HRI_SOME. */
__device__ __forceinline__ void hri_get_some(float *v, const hri_any &x, int64_t i, int count) {
  if (x.real == HRI_REAL_F32) hri_get_typed<float>(v, x, i, count);
  else if (x.real == HRI_REAL_BF16) hri_get_typed<hri_bf16_t>(v, x, i, count);
  else hri_get_typed<hri_f16_t>(v, x, i, count);
}
__device__ __forceinline__ float hri_get_one(const hri_any &x, int64_t i) {
  float v[HRI_SOME];
  hri_get_some(v, x, i, 1);
  return v[0];
}

template <class T> __device__ __forceinline__ void hri_put_typed(const hri_any &y, int64_t i, int count, const T *v) {
  hri_global<T> to(static_cast<T *>(y.base), y.n);
  if (hri_some_aligned<T>(y, i, count)) {
    hri_pack<T, HRI_SOME> pack;
    for (int k = 0; k < HRI_SOME; k++) pack.v[k] = v[k];
    to.template store<HRI_SOME>(i, pack);
    return;
  }
  for (int k = 0; k < count; k++) to[i + k] = v[k];
}
template <class T>
__device__ __forceinline__ void hri_put_narrow(const hri_any &y, int64_t i, int count, const float *v) {
  T narrow[HRI_SOME];
  for (int k = 0; k < count; k++) narrow[k] = hri_narrow<T>(v[k]);
  hri_put_typed<T>(y, i, count, narrow);
}
/* Rounded to nearest even. */
__device__ __forceinline__ void hri_put_some(const hri_any &y, int64_t i, int count, const float *v) {
  if (y.real == HRI_REAL_F32) hri_put_typed<float>(y, i, count, v);
  else if (y.real == HRI_REAL_BF16) hri_put_narrow<hri_bf16_t>(y, i, count, v);
  else hri_put_narrow<hri_f16_t>(y, i, count, v);
}

#endif
