/* CUDA's words for a kernel that is compiled for the host by a plain C++ compiler (gpu/device.cuh chooses). What a word
 * does is in block.h, shared.h, warp.h and memory.h; here they get the shapes that kernels write. */
#ifndef HRI_GPU_SOFT_DEVICE_CUH
#define HRI_GPU_SOFT_DEVICE_CUH

#include <math.h>
#include <string.h>

#include <tuple>
#include <type_traits>

#include "gpu/soft/block.h"
#include "gpu/soft/memory.h"
#include "gpu/soft/report.h"
#include "gpu/soft/runtime.h"
#include "gpu/soft/shared.h"
#include "gpu/soft/warp.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx (hri_soft_now->index)
#define blockIdx (hri_soft_here.block)
#define blockDim (hri_soft_here.threads)
#define gridDim (hri_soft_here.blocks)

/* Where in the source something was called: a default argument takes the caller's place. */
#define HRI_SOFT_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define HRI_SOFT_SITE (hri_soft_site{file, line})

inline void __syncthreads(HRI_SOFT_CALLER) { hri_soft_barrier(HRI_SOFT_SITE); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, HRI_SOFT_CALLER) { hri_soft_warp_barrier(mask, HRI_SOFT_SITE); }
inline unsigned __ballot_sync(unsigned mask, int predicate, HRI_SOFT_CALLER) {
  return hri_soft_ballot(mask, predicate, HRI_SOFT_SITE);
}
inline int __any_sync(unsigned mask, int predicate, HRI_SOFT_CALLER) {
  return hri_soft_ballot(mask, predicate, HRI_SOFT_SITE) != 0;
}
inline int __all_sync(unsigned mask, int predicate, HRI_SOFT_CALLER) {
  return hri_soft_ballot(mask, predicate, HRI_SOFT_SITE) == mask;
}

template <class T>
inline T hri_soft_shuffled(hri_soft_shuffle kind, unsigned mask, T value, int argument, int width, hri_soft_site site) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = hri_soft_shuffle_value(kind, mask, bits, argument, width, site);
  memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T> inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, HRI_SOFT_CALLER) {
  return hri_soft_shuffled(HRI_SOFT_SHUFFLE_IDX, mask, value, lane, width, HRI_SOFT_SITE);
}
template <class T> inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, HRI_SOFT_CALLER) {
  return hri_soft_shuffled(HRI_SOFT_SHUFFLE_UP, mask, value, (int)by, width, HRI_SOFT_SITE);
}
template <class T> inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, HRI_SOFT_CALLER) {
  return hri_soft_shuffled(HRI_SOFT_SHUFFLE_DOWN, mask, value, (int)by, width, HRI_SOFT_SITE);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, HRI_SOFT_CALLER) {
  return hri_soft_shuffled(HRI_SOFT_SHUFFLE_XOR, mask, value, lanes, width, HRI_SOFT_SITE);
}

/* What stands for an element that does not exist or is not to be read. */
template <class T> inline T hri_soft_poison() {
  typename std::remove_const<T>::type value;
  memset((void *)&value, 0xFF, sizeof value);
  return value;
}

/* ---- device memory ---- */

template <class T> class hri_global;

/* x[i], which is read or written when that is known. */
template <class T> class hri_global_element {
  using value_type = typename std::remove_const<T>::type;
  const hri_global<T> &of;
  int64_t at;

public:
  hri_global_element(const hri_global<T> &global, int64_t index) : of(global), at(index) {}
  operator value_type() const { return of.template load<1>(at).v[0]; }
  const hri_global_element &operator=(value_type value) const {
    of.template store<1>(at, hri_pack<value_type, 1>{{value}});
    return *this;
  }
  const hri_global_element &operator=(const hri_global_element &other) const { return *this = (value_type)other; }
  const hri_global_element &operator+=(value_type value) const { return *this = (value_type)(*this) + value; }
};

/* An array of `count` elements in device memory. */
template <class T> class hri_global {
  using value_type = typename std::remove_const<T>::type;
  T *base;
  int64_t count;
  hri_soft_allocation *allocation;

  bool inside(int64_t i, int n, int align = alignof(T)) const {
    if (i < 0 || i + n > count) return hri_soft_global_bounds(base, i, count, sizeof(T)), false;
    if (!allocation) return false;
    const unsigned char *begin = (const unsigned char *)(base + i);
    if (begin < allocation->memory || begin + n * sizeof(T) > allocation->memory + allocation->bytes)
      return hri_soft_global_bounds(base, i, count, sizeof(T)), false;
    if ((uintptr_t)begin % align != 0) return hri_soft_global_misaligned(begin, (uint32_t)(n * sizeof(T))), false;
    return true;
  }

public:
  hri_global() : base(nullptr), count(0), allocation(nullptr) {}
  hri_global(T *pointer, int64_t elements)
      : base(pointer), count(elements), allocation(pointer && elements > 0 ? hri_soft_global_find(pointer) : nullptr) {}
  explicit operator bool() const { return base != nullptr; }
  hri_global_element<T> operator[](int64_t i) const { return hri_global_element<T>(*this, i); }

  /* n elements side by side, which lie at a multiple of their size together. */
  template <int n> hri_pack<value_type, n> load(int64_t i) const {
    hri_pack<value_type, n> pack;
    if (!inside(i, n, hri_pack_align<value_type, n>::value)) return hri_soft_poison<hri_pack<value_type, n>>();
    hri_soft_global_read(allocation, base + i, n * sizeof(T), true);
    memcpy((void *)&pack, (const void *)(base + i), n * sizeof(T));
    return pack;
  }
  template <int n> void store(int64_t i, const hri_pack<value_type, n> &pack) const {
    if (!inside(i, n, hri_pack_align<value_type, n>::value)) return;
    hri_soft_global_write(allocation, base + i, n * sizeof(T));
    memcpy((void *)(base + i), (const void *)&pack, n * sizeof(T));
  }
  /* *(base + i) += value; what was there. */
  value_type atomic_add(int64_t i, value_type value) const {
    if (!inside(i, 1)) return value;
    value_type before = base[i];
    hri_soft_global_atomic(allocation, base + i, sizeof(T));
    base[i] = before + value;
    return before;
  }
  value_type atomic_max(int64_t i, value_type value) const {
    if (!inside(i, 1)) return value;
    value_type before = base[i];
    hri_soft_global_atomic(allocation, base + i, sizeof(T));
    if (value > before) base[i] = value;
    return before;
  }
  /* Its address for an asynchronous copy of `valid` bytes; NULL where there are none to take. */
  const void *source(int64_t i, int bytes, int valid) const {
    if (valid == 0 || !inside(i, valid / (int)sizeof(T))) return nullptr;
    if ((uintptr_t)(base + i) % bytes != 0) return hri_soft_global_misaligned(base + i, bytes), nullptr;
    hri_soft_global_read(allocation, base + i, valid, true);
    return base + i;
  }
};

/* ---- shared memory ---- */

template <class T> class hri_shared;

template <class T> class hri_shared_element {
  const hri_shared<T> &of;
  int at;

public:
  hri_shared_element(const hri_shared<T> &shared, int index) : of(shared), at(index) {}
  operator T() const { return of.template load<1>(at).v[0]; }
  const hri_shared_element &operator=(T value) const {
    of.template store<1>(at, hri_pack<T, 1>{{value}});
    return *this;
  }
  const hri_shared_element &operator=(const hri_shared_element &other) const { return *this = (T)other; }
  const hri_shared_element &operator+=(T value) const { return *this = (T)(*this) + value; }
};

template <class T> class hri_shared {
  static_assert(sizeof(T) % HRI_SOFT_SHARED_GRAIN == 0, "shared memory is watched in pairs of bytes");
  uint32_t offset;
  int count;
  const char *name;

  bool inside(int i, int n, int align = alignof(T)) const {
    uint32_t at = offset + (uint32_t)i * (uint32_t)sizeof(T);
    if (i < 0 || i + n > count) return hri_soft_shared_bounds(i, count, name), false;
    if (at % align != 0) return hri_soft_shared_misaligned(at, (uint32_t)(n * sizeof(T)), name), false;
    return true;
  }

public:
  hri_shared(uint32_t at, int elements, const char *what) : offset(at), count(elements), name(what) {}
  hri_shared_element<T> operator[](int i) const { return hri_shared_element<T>(*this, i); }
  hri_shared part(int begin, int elements) const {
    if (begin < 0 || begin + elements > count) hri_soft_shared_bounds(begin + elements - 1, count, name), elements = 0;
    return hri_shared(offset + (uint32_t)begin * (uint32_t)sizeof(T), elements, name);
  }

  template <int n> hri_pack<T, n> load(int i) const {
    hri_pack<T, n> pack;
    if (!inside(i, n, hri_pack_align<T, n>::value)) return hri_soft_poison<hri_pack<T, n>>();
    hri_soft_shared_read(offset + (uint32_t)i * (uint32_t)sizeof(T), n * sizeof(T), &pack, name);
    return pack;
  }
  template <int n> void store(int i, const hri_pack<T, n> &pack) const {
    if (inside(i, n, hri_pack_align<T, n>::value))
      hri_soft_shared_write(offset + (uint32_t)i * (uint32_t)sizeof(T), n * sizeof(T), &pack, name);
  }
  /* Begins a copy of `bytes` from global memory, of which all behind the first `valid` are zero. */
  template <int bytes, class U> void copy_async(int i, const hri_global<U> &from, int64_t at, int valid) const {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async takes 4, 8 or 16 bytes");
    const void *source = from.source(at, bytes, valid);
    if (inside(i, bytes / (int)sizeof(T), bytes))
      hri_soft_copy_begin(offset + (uint32_t)i * (uint32_t)sizeof(T), bytes, source, source ? valid : 0, name);
  }
  /* This lane's row for ldmatrix: 16 bytes from element i on. */
  template <int matrices, bool transposed> void load_matrix(uint32_t *registers, int i, HRI_SOFT_CALLER) const {
    uint32_t lane = hri_soft_now->lane, at = offset;
    if (lane < matrices * 8 && inside(i, 16 / (int)sizeof(T), 16)) at = offset + (uint32_t)i * (uint32_t)sizeof(T);
    hri_soft_ldmatrix(registers, matrices, transposed, at, name, HRI_SOFT_SITE);
  }
};

#define HRI_SHARED(T, name, elements)                                                                                  \
  static const char name##_key = 0;                                                                                    \
  const hri_shared<T> name(hri_soft_shared_static(&name##_key, (uint32_t)(sizeof(T) * (elements)), #name), (elements), \
                           #name)
#define HRI_DYNAMIC_SHARED(T, name, offset_bytes, elements)                                                            \
  const hri_shared<T> name(hri_soft_shared_dynamic((uint32_t)(offset_bytes),                                           \
                                                   (uint32_t)(sizeof(T) * (size_t)(elements)), #name),                 \
                           (int)(elements), #name)

inline void hri_copy_commit() { hri_soft_copy_commit(); }
/* Until all groups of this thread but the last `pending` have arrived. Other threads see them behind a barrier. */
template <int pending> inline void hri_copy_wait() { hri_soft_copy_wait(pending); }

/* ---- numbers ---- */

/* cvt.rn: to nearest even; every NaN becomes the one that the card makes. */
inline uint16_t hri_bf16_bits(float value) { return value != value ? 0x7FFF : hri_bf16_round(value); }
inline uint16_t hri_f16_bits(float value) { return value != value ? 0x7FFF : hri_f16_round(value); }
inline float hri_f16_value(uint16_t bits) { return hri_f16_widen(bits); }
/* cvt.rna: to nearest, ties away from zero. */
inline uint32_t hri_tf32_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7F800000u) == 0x7F800000u) return bits;
  return (bits + 0x1000u) & 0xFFFFE000u;
}
inline float hri_mul_alone(float a, float b) {
  volatile float product = a * b;
  return product;
}
inline float hri_add_alone(float a, float b) {
  volatile float sum = a + b;
  return sum;
}
inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float hri_uint_as_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

inline void hri_mma_bf16(float *d, const uint32_t *a, const uint32_t *b, HRI_SOFT_CALLER) {
  hri_soft_mma(HRI_SOFT_BF16, d, a, b, HRI_SOFT_SITE);
}
inline void hri_mma_f16(float *d, const uint32_t *a, const uint32_t *b, HRI_SOFT_CALLER) {
  hri_soft_mma(HRI_SOFT_F16, d, a, b, HRI_SOFT_SITE);
}
inline void hri_mma_tf32(float *d, const uint32_t *a, const uint32_t *b, HRI_SOFT_CALLER) {
  hri_soft_mma(HRI_SOFT_TF32, d, a, b, HRI_SOFT_SITE);
}

/* ---- launches ---- */

struct dim3 {
  uint32_t x, y, z;
  dim3(uint32_t a, uint32_t b = 1, uint32_t c = 1) : x(a), y(b), z(c) {}
};

template <class... P> struct hri_soft_call {
  void (*kernel)(P...);
  std::tuple<P...> arguments;
  static void run(void *context) {
    hri_soft_call *call = static_cast<hri_soft_call *>(context);
    std::apply(call->kernel, call->arguments);
  }
  static void drop(void *context) { delete static_cast<hri_soft_call *>(context); }
};

/* Arguments are evaluated now, as for <<<>>>. */
template <class... P, class... A>
inline int hri_launch(const char *name, void (*kernel)(P...), dim3 blocks, dim3 threads, size_t shared_bytes,
                      void *stream, A... arguments) {
  hri_soft_launch launch = {name,
                            {blocks.x, blocks.y, blocks.z},
                            {threads.x, threads.y, threads.z},
                            (uint32_t)shared_bytes,
                            hri_soft_call<P...>::run,
                            hri_soft_call<P...>::drop,
                            new hri_soft_call<P...>{kernel, std::tuple<P...>(arguments...)}};
  return hri_gpu_soft_launch(static_cast<hri_gpu_stream *>(stream), &launch);
}

#endif
