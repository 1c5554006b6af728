/* What kernels include: they are written once, and compiled by nvcc for the card or by a plain C++ compiler for the GPU in
 * software (docs/gpu-soft.md).
 *
 * Kernels use CUDA's words (threadIdx, __syncthreads, __shfl_xor_sync, ...) and these:
 *   hri_global<T>(pointer, count)     an array in device memory: x[i], x.load<n>(i), x.store<n>(i, pack)
 *   HRI_SHARED(T, name, count)        a variable in shared memory, HRI_DYNAMIC_SHARED a part of what the launch asked for
 *   name.copy_async<bytes>(...)       cp.async; hri_copy_commit, hri_copy_wait<groups>
 *   name.load_matrix<count, trans>()  ldmatrix
 *   hri_mma_bf16, _f16, _tf32         mma.sync of a whole warp
 *   HRI_LAUNCH(kernel, blocks, threads, shared bytes, stream, arguments...)
 * On the card an accessor is its pointer. In software each access is looked at: bounds, order, races. */
#ifndef HRI_GPU_DEVICE_CUH
#define HRI_GPU_DEVICE_CUH

#include <stdint.h>

#include "base/both.h"
#include "base/real.h"

/* Elements that are loaded and stored at once: aligned to their size together where that is a power of two. */
template <class T, int n> struct hri_pack_align {
  enum { bytes = sizeof(T) * n, value = (bytes & (bytes - 1)) == 0 && bytes <= 16 ? (int)bytes : (int)alignof(T) };
};
template <class T, int n> struct alignas((int)hri_pack_align<T, n>::value) hri_pack {
  T v[n];
};

#ifdef __CUDACC__
#include "gpu/card.cuh"
#else
#include "gpu/soft/device.cuh"
#endif

#define HRI_LAUNCH(kernel, ...) hri_launch(#kernel, kernel, __VA_ARGS__)

enum { HRI_WARP = 32 };
#define HRI_ALL_LANES 0xFFFFFFFFu

/* bf16 and fp16 as types of their own. */
struct hri_bf16_t {
  uint16_t bits;
};
struct hri_f16_t {
  uint16_t bits;
};

__device__ __forceinline__ float hri_widen(float value) { return value; }
__device__ __forceinline__ float hri_widen(hri_bf16_t value) { return hri_bf16_widen(value.bits); }
__device__ __forceinline__ float hri_widen(hri_f16_t value) { return hri_f16_value(value.bits); }

template <class T> __device__ __forceinline__ T hri_narrow(float value);
template <> __device__ __forceinline__ float hri_narrow<float>(float value) { return value; }
template <> __device__ __forceinline__ hri_bf16_t hri_narrow<hri_bf16_t>(float value) {
  return hri_bf16_t{hri_bf16_bits(value)};
}
template <> __device__ __forceinline__ hri_f16_t hri_narrow<hri_f16_t>(float value) {
  return hri_f16_t{hri_f16_bits(value)};
}

/* As it will be read again: rounded to T and widened. */
template <class T> __device__ __forceinline__ float hri_round_to(float value) {
  return hri_widen(hri_narrow<T>(value));
}

__device__ __forceinline__ int64_t hri_thread_index() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }

/* Calls `call`, in which REAL is a type, for a value of hri_real. */
#define HRI_BY_TYPE(real, call)                                                                                        \
  [&]() -> int {                                                                                                       \
    switch (real) {                                                                                                    \
    case HRI_REAL_F32: {                                                                                               \
      using REAL = float;                                                                                              \
      return call;                                                                                                     \
    }                                                                                                                  \
    case HRI_REAL_BF16: {                                                                                              \
      using REAL = hri_bf16_t;                                                                                         \
      return call;                                                                                                     \
    }                                                                                                                  \
    case HRI_REAL_F16: {                                                                                               \
      using REAL = hri_f16_t;                                                                                          \
      return call;                                                                                                     \
    }                                                                                                                  \
    }                                                                                                                  \
    return -1;                                                                                                         \
  }()

/* Sum of a value over the lanes of a warp, in all of them; which lane adds what does not depend on timing. */
__device__ __forceinline__ float hri_warp_sum(float value) {
  for (int by = HRI_WARP / 2; by > 0; by /= 2) value += __shfl_xor_sync(HRI_ALL_LANES, value, by);
  return value;
}
__device__ __forceinline__ double hri_warp_sum(double value) {
  for (int by = HRI_WARP / 2; by > 0; by /= 2) value += __shfl_xor_sync(HRI_ALL_LANES, value, by);
  return value;
}
__device__ __forceinline__ float hri_warp_max(float value) {
  for (int by = HRI_WARP / 2; by > 0; by /= 2) value = fmaxf(value, __shfl_xor_sync(HRI_ALL_LANES, value, by));
  return value;
}

/* Sum over a block of whole warps, in all threads, folded in the order of the warps. `partial` has 32 elements. */
template <class T> __device__ __forceinline__ T hri_block_sum(T value, const hri_shared<T> &partial) {
  int warps = (int)blockDim.x / HRI_WARP, lane = (int)threadIdx.x % HRI_WARP;
  value = hri_warp_sum(value);
  __syncthreads(); /* whoever still reads the last one's partial sums */
  if (lane == 0) partial[(int)threadIdx.x / HRI_WARP] = value;
  __syncthreads();
  T sum = 0;
  for (int w = 0; w < warps; w++) sum += (T)partial[w];
  return sum;
}
__device__ __forceinline__ float hri_block_max(float value, const hri_shared<float> &partial) {
  int warps = (int)blockDim.x / HRI_WARP, lane = (int)threadIdx.x % HRI_WARP;
  value = hri_warp_max(value);
  __syncthreads();
  if (lane == 0) partial[(int)threadIdx.x / HRI_WARP] = value;
  __syncthreads();
  float most = partial[0];
  for (int w = 1; w < warps; w++) most = fmaxf(most, (float)partial[w]);
  return most;
}

#endif
