/* Weights out of the blocks of GGUF files, a thread an element. Layouts and values: cpu_kept.c; a value is scale * code -
 * minimum, of which the product is exact. */
#include "ops/quant/part.cuh"

enum { THREADS = 256 };

/* The bytes of one block. */
struct block_bytes {
  const hri_global<const uint8_t> &all;
  int64_t begin;

  __device__ int operator[](int i) const { return (uint8_t)all[begin + i]; }
  __device__ float half(int i) const { return hri_f16_value((uint16_t)((*this)[i] | (*this)[i + 1] << 8)); }
  __device__ int nibble(int i, bool high) const { return high ? (*this)[i] >> 4 : (*this)[i] & 15; }
};

struct decoded {
  int code;
  float scale, minimum;
};

__device__ __forceinline__ int uneven_step(int place) {
  const uint64_t low = 0xF6EADDCFBFAD9881ull,
                 high = 0x7159453526190D01ull; /* -127 ... -10 and 1 ... 113, a byte each */
  return (int8_t)((place < 8 ? low : high) >> place % 8 * 8 & 255);
}

/* ---- blocks of 32: codes j and j + 16 share a byte ---- */

__device__ __forceinline__ decoded of_q4(const block_bytes &b, int j, bool offset) {
  int code = b.nibble((offset ? 4 : 2) + j % 16, j >= 16);
  if (offset) return {code, b.half(0), -b.half(2)};
  return {code - 8, b.half(0), 0};
}

__device__ __forceinline__ decoded of_q5(const block_bytes &b, int j, bool offset) {
  int at = offset ? 4 : 2, fifth = b[at + j / 8] >> j % 8 & 1, code = b.nibble(at + 4 + j % 16, j >= 16) | fifth << 4;
  if (offset) return {code, b.half(0), -b.half(2)};
  return {code - 16, b.half(0), 0};
}

/* ---- K formats: sub-blocks of 32, or of 16 ---- */

/* Sub-block k of 8: scales and minima of 6 bits. */
__device__ __forceinline__ decoded scales_k(const block_bytes &b, int k) {
  int at = k % 4, scale = b[4 + at], least = b[8 + at];
  if (k >= 4) {
    scale = (b[12 + at] & 15) | (scale >> 2 & 48);
    least = b[12 + at] >> 4 | (least >> 2 & 48);
  }
  return {0, (float)(scale & 63) * b.half(0), (float)(least & 63) * b.half(2)};
}

/* A fifth bit of element j of sub-block k is bit k of byte 16 + j. */
__device__ __forceinline__ decoded of_q45_k(const block_bytes &b, int j, bool five) {
  int k = j / 32, in = j % 32;
  decoded d = scales_k(b, k);
  d.code = b.nibble((five ? 48 : 16) + k / 2 * 32 + in, k % 2 == 1);
  if (five) d.code |= (b[16 + in] >> k & 1) << 4;
  return d;
}

__device__ __forceinline__ decoded of_q6_k(const block_bytes &b, int j) {
  int group = j / 32, in = j % 32, low = b.nibble(group / 4 * 64 + group % 2 * 32 + in, group % 4 >= 2);
  int high = b[128 + group / 4 * 32 + in] >> group % 4 * 2 & 3;
  return {(low | high << 4) - 32, b.half(208) * (float)(int8_t)b[192 + j / 16], 0};
}

__device__ __forceinline__ decoded of_q2_k(const block_bytes &b, int j) {
  int k = j / 16, code = b[16 + k / 8 * 32 + j % 32] >> k % 8 / 2 * 2 & 3;
  return {code, b.half(80) * (float)(b[k] & 15), b.half(82) * (float)(b[k] >> 4)};
}

/* Scales of 16 sub-blocks: nibbles of 8 bytes, the low ones first; pairs of bits of 4. */
__device__ __forceinline__ decoded of_q3_k(const block_bytes &b, int j) {
  int k = j / 16, upper = b[104 + k % 4] >> k / 4 * 2 & 3, scale = (b.nibble(96 + k % 8, k >= 8) | upper << 4) - 32;
  int two = b[32 + k / 8 * 32 + j % 32] >> k % 8 / 2 * 2 & 3, third = b[j % 32] >> k / 2 & 1;
  return {(two | third << 2) - 4, b.half(108) * (float)scale, 0};
}

__device__ __forceinline__ decoded of_iq4_xs(const block_bytes &b, int j) {
  int k = j / 32, six = b.nibble(4 + k / 2, k % 2 == 1) | (b[2 + k / 4] >> k % 4 * 2 & 3) << 4;
  return {uneven_step(b.nibble(8 + k * 16 + j % 16, j % 32 >= 16)), b.half(0) * (float)(six - 32), 0};
}

/* Elements and bytes of the blocks of a type. */
struct block_shape {
  int elements, bytes;
};
static block_shape shape_of(uint8_t type) {
  switch (type) {
  case HRI_Q4_0: return {32, 18};
  case HRI_Q4_1: return {32, 20};
  case HRI_Q5_0: return {32, 22};
  case HRI_Q5_1: return {32, 24};
  case HRI_Q8_0: return {32, 34};
  case HRI_IQ4_NL: return {32, 18};
  case HRI_Q4_K: return {256, 144};
  case HRI_Q5_K: return {256, 176};
  case HRI_Q6_K: return {256, 210};
  case HRI_Q2_K: return {256, 84};
  case HRI_Q3_K: return {256, 110};
  case HRI_IQ4_XS: return {256, 136};
  case HRI_F32: return {1, 4};
  case HRI_BF16:
  case HRI_F16: return {1, 2};
  default: return {0, 0};
  }
}

__device__ __forceinline__ float value_of(const block_bytes &b, uint8_t type, int j) {
  decoded d = {0, 0, 0};
  switch (type) {
  case HRI_F32: return hri_uint_as_float((uint32_t)(b[0] | b[1] << 8 | b[2] << 16) | (uint32_t)b[3] << 24);
  case HRI_BF16: return hri_bf16_widen((uint16_t)(b[0] | b[1] << 8));
  case HRI_F16: return b.half(0);
  case HRI_Q4_0: d = of_q4(b, j, false); break;
  case HRI_Q4_1: d = of_q4(b, j, true); break;
  case HRI_Q5_0: d = of_q5(b, j, false); break;
  case HRI_Q5_1: d = of_q5(b, j, true); break;
  case HRI_Q8_0: d = {(int8_t)b[2 + j], b.half(0), 0}; break;
  case HRI_IQ4_NL: d = {uneven_step(b.nibble(2 + j % 16, j >= 16)), b.half(0), 0}; break;
  case HRI_Q4_K: d = of_q45_k(b, j, false); break;
  case HRI_Q5_K: d = of_q45_k(b, j, true); break;
  case HRI_Q6_K: d = of_q6_k(b, j); break;
  case HRI_Q2_K: d = of_q2_k(b, j); break;
  case HRI_Q3_K: d = of_q3_k(b, j); break;
  default: d = of_iq4_xs(b, j); break;
  }
  return hri_add_alone(hri_mul_alone((float)d.code, d.scale), -d.minimum);
}

template <class T> __global__ void kept_kernel(quant_part_args a, block_shape shape) {
  int64_t i = hri_thread_index();
  hri_global<const uint8_t> codes(a.codes, a.code_bytes);
  hri_global<T> w(static_cast<T *>(a.w), a.elements);
  if (i >= a.elements) return;
  block_bytes b = {codes, i / shape.elements * shape.bytes};
  w[i] = hri_narrow<T>(value_of(b, a.type, (int)(i % shape.elements)));
}

int hri_cuda_dequantize_kept(const quant_part_args *part, hri_real real, void *stream) {
  block_shape shape = shape_of(part->type);
  if (shape.elements == 0) return -1;
  return HRI_BY_TYPE(real, HRI_LAUNCH(kept_kernel<REAL>, hri_blocks(part->elements, THREADS), THREADS, 0, stream, *part,
                                      shape));
}
