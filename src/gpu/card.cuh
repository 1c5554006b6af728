/* The words of kernels on the card (gpu/device.cuh chooses): CUDA's own, and thin wrappers with the same shapes as those of
 * the software GPU, which leave nothing behind in the code that nvcc makes. */
#ifndef HRI_GPU_CARD_CUH
#define HRI_GPU_CARD_CUH

#include <math.h>
#include <string.h>

#include <type_traits>

#include <cuda_runtime.h>

/* An array in device memory; how many elements it has is for the software GPU. */
template <class T> class hri_global {
  using value_type = typename std::remove_const<T>::type;
  T *base;

public:
  __device__ hri_global() : base(nullptr) {}
  __device__ hri_global(T *pointer, int64_t) : base(pointer) {}
  __device__ explicit operator bool() const { return base != nullptr; }
  __device__ T &operator[](int64_t i) const { return base[i]; }
  template <int n> __device__ hri_pack<value_type, n> load(int64_t i) const {
    return *reinterpret_cast<const hri_pack<value_type, n> *>(base + i);
  }
  template <int n> __device__ void store(int64_t i, const hri_pack<value_type, n> &pack) const {
    *reinterpret_cast<hri_pack<value_type, n> *>(base + i) = pack;
  }
  __device__ value_type atomic_add(int64_t i, value_type value) const { return atomicAdd(base + i, value); }
  __device__ value_type atomic_max(int64_t i, value_type value) const { return atomicMax(base + i, value); }
  __device__ const void *source(int64_t i, int, int) const { return base + i; }
};

template <class T> class hri_shared {
  T *base;

public:
  __device__ explicit hri_shared(T *memory) : base(memory) {}
  __device__ T &operator[](int i) const { return base[i]; }
  __device__ hri_shared part(int begin, int) const { return hri_shared(base + begin); }
  template <int n> __device__ hri_pack<T, n> load(int i) const {
    return *reinterpret_cast<const hri_pack<T, n> *>(base + i);
  }
  template <int n> __device__ void store(int i, const hri_pack<T, n> &pack) const {
    *reinterpret_cast<hri_pack<T, n> *>(base + i) = pack;
  }
  __device__ unsigned address(int i) const { return (unsigned)__cvta_generic_to_shared(base + i); }
  template <int bytes, class U>
  __device__ void copy_async(int i, const hri_global<U> &from, int64_t at, int valid) const {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async takes 4, 8 or 16 bytes");
    const void *source = from.source(valid ? at : 0, bytes, valid);
    if (bytes == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(i)), "l"(source), "r"(valid)
                   : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address(i)), "l"(source), "n"(bytes),
                   "r"(valid)
                   : "memory");
  }
  template <int matrices, bool transposed> __device__ void load_matrix(uint32_t *r, int i) const {
    static_assert(matrices == 1 || matrices == 2 || matrices == 4, "ldmatrix takes 1, 2 or 4 matrices");
    unsigned at = address(i);
    if (matrices == 4 && transposed)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(at)
                   : "memory");
    else if (matrices == 4)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(at)
                   : "memory");
    else if (matrices == 2 && transposed)
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                   : "=r"(r[0]), "=r"(r[1])
                   : "r"(at)
                   : "memory");
    else if (matrices == 2)
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                   : "=r"(r[0]), "=r"(r[1])
                   : "r"(at)
                   : "memory");
    else if (transposed)
      asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at) : "memory");
    else asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at) : "memory");
  }
};

#define HRI_SHARED(T, name, elements)                                                                                  \
  __shared__ alignas(16) T name##_memory[elements];                                                                    \
  const hri_shared<T> name(name##_memory)
#define HRI_DYNAMIC_SHARED(T, name, offset_bytes, elements)                                                            \
  extern __shared__ __align__(128) unsigned char hri_dynamic_shared[];                                                 \
  const hri_shared<T> name(reinterpret_cast<T *>(hri_dynamic_shared + (offset_bytes)))

__device__ inline void hri_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending> __device__ inline void hri_copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

__device__ inline uint16_t hri_bf16_bits(float value) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ inline uint16_t hri_f16_bits(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ inline float hri_f16_value(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ inline uint32_t hri_tf32_bits(float value) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}
/* Rounded by itself: no compiler joins it with what stands behind. */
__device__ inline float hri_mul_alone(float a, float b) { return __fmul_rn(a, b); }
__device__ inline float hri_add_alone(float a, float b) { return __fadd_rn(a, b); }
__device__ inline float hri_uint_as_float(uint32_t bits) { return __uint_as_float(bits); }

__device__ inline void hri_mma_bf16(float *d, const uint32_t *a, const uint32_t *b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void hri_mma_f16(float *d, const uint32_t *a, const uint32_t *b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void hri_mma_tf32(float *d, const uint32_t *a, const uint32_t *b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* More than 48 KiB of shared memory are asked for by name. */
template <class... P, class... A>
inline int hri_launch(const char *, void (*kernel)(P...), dim3 blocks, dim3 threads, size_t shared_bytes, void *stream,
                      A... arguments) {
  if (shared_bytes > (48u << 10) &&
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes) != cudaSuccess)
    return -1;
  kernel<<<blocks, threads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(arguments...);
  return cudaPeekAtLastError() == cudaSuccess ? 0 : -1;
}

#endif
