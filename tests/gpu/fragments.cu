/* The kernels of fragments.h: for the card by nvcc, for the GPU in software by a C++ compiler. */
#include "gpu/fragments.h"

#include "gpu/device.cuh"

template <int op> __global__ void mma_kernel(const uint32_t *from, uint32_t *to) {
  hri_global<const uint32_t> in(from, FRAGMENT_WORDS);
  hri_global<uint32_t> out(to, FRAGMENT_WORDS);
  int lane = (int)threadIdx.x;
  uint32_t word[FRAGMENT_MMA_IN];
  float d[FRAGMENT_MMA_OUT];
  for (int i = 0; i < FRAGMENT_MMA_IN; i++) word[i] = in[lane * FRAGMENT_MMA_IN + i];
  for (int i = 0; i < FRAGMENT_MMA_OUT; i++) d[i] = hri_uint_as_float(word[6 + i]);
  if (op == FRAGMENT_MMA_BF16) hri_mma_bf16(d, word, word + 4);
  else if (op == FRAGMENT_MMA_F16) hri_mma_f16(d, word, word + 4);
  else hri_mma_tf32(d, word, word + 4);
  for (int i = 0; i < FRAGMENT_MMA_OUT; i++) out[lane * FRAGMENT_MMA_OUT + i] = __float_as_uint(d[i]);
}

template <int matrices, bool turned> __global__ void ldmatrix_kernel(const uint32_t *from, uint32_t *to) {
  HRI_SHARED(uint32_t, memory, FRAGMENT_MATRICES);
  hri_global<const uint32_t> in(from, FRAGMENT_WORDS);
  hri_global<uint32_t> out(to, FRAGMENT_WORDS);
  int lane = (int)threadIdx.x;
  uint32_t r[FRAGMENT_LDMATRIX_OUT] = {0, 0, 0, 0};
  for (int i = lane; i < FRAGMENT_MATRICES; i += HRI_WARP) memory[i] = in[i];
  __syncthreads();
  memory.load_matrix<matrices, turned>(r, (int)in[FRAGMENT_MATRICES + lane] * 4); /* a row of 16 bits has 4 words */
  for (int i = 0; i < FRAGMENT_LDMATRIX_OUT; i++) out[lane * FRAGMENT_LDMATRIX_OUT + i] = r[i];
}

/* Lane l copies its first `bytes` of 16, of which 2 (l % (bytes / 2 + 1)) are valid, over words that were there. */
template <int bytes> __global__ void copy_kernel(const uint32_t *from, uint32_t *to) {
  HRI_SHARED(uint16_t, memory, 2 * FRAGMENT_COPY_WORDS * HRI_WARP);
  hri_global<const uint16_t> in(reinterpret_cast<const uint16_t *>(from), 2 * FRAGMENT_WORDS);
  hri_global<uint32_t> out(to, FRAGMENT_WORDS);
  int lane = (int)threadIdx.x, each = 2 * FRAGMENT_COPY_WORDS;
  for (int i = 0; i < each; i++) memory[lane * each + i] = (uint16_t)(0xA500 + i);
  __syncthreads();
  memory.copy_async<bytes>(lane * each, in, lane * each, lane % (bytes / 2 + 1) * 2);
  hri_copy_commit();
  hri_copy_wait<0>();
  __syncthreads();
  for (int i = 0; i < FRAGMENT_COPY_WORDS; i++) {
    uint32_t low = (uint16_t)memory[lane * each + 2 * i], high = (uint16_t)memory[lane * each + 2 * i + 1];
    out[lane * FRAGMENT_COPY_WORDS + i] = high << 16 | low;
  }
}

template <int op> __global__ void value_kernel(const uint32_t *from, uint32_t *to) {
  hri_global<const uint32_t> in(from, FRAGMENT_WORDS);
  hri_global<uint32_t> out(to, FRAGMENT_WORDS);
  for (int i = (int)threadIdx.x; i < FRAGMENT_VALUES; i += HRI_WARP) {
    uint32_t word = in[i];
    float x = hri_uint_as_float(word), y = hri_uint_as_float(in[FRAGMENT_VALUES + i]);
    if (op == FRAGMENT_TO_BF16) word = hri_bf16_bits(x);
    else if (op == FRAGMENT_TO_F16) word = hri_f16_bits(x);
    else if (op == FRAGMENT_FROM_F16) word = __float_as_uint(hri_f16_value((uint16_t)word));
    else if (op == FRAGMENT_TO_TF32) word = hri_tf32_bits(x);
    else word = __float_as_uint(op == FRAGMENT_MUL ? hri_mul_alone(x, y) : hri_add_alone(x, y));
    out[i] = word;
  }
}

#define ONE(kernel) HRI_LAUNCH((kernel), 1, HRI_WARP, 0, stream, in, out)

extern "C" int fragment_run(fragment_op op, const uint32_t *in, uint32_t *out, void *stream) {
  switch (op) {
  case FRAGMENT_MMA_BF16: return ONE(mma_kernel<FRAGMENT_MMA_BF16>);
  case FRAGMENT_MMA_F16: return ONE(mma_kernel<FRAGMENT_MMA_F16>);
  case FRAGMENT_MMA_TF32: return ONE(mma_kernel<FRAGMENT_MMA_TF32>);
  case FRAGMENT_LDMATRIX_1: return HRI_LAUNCH((ldmatrix_kernel<1, false>), 1, HRI_WARP, 0, stream, in, out);
  case FRAGMENT_LDMATRIX_2: return HRI_LAUNCH((ldmatrix_kernel<2, false>), 1, HRI_WARP, 0, stream, in, out);
  case FRAGMENT_LDMATRIX_4: return HRI_LAUNCH((ldmatrix_kernel<4, false>), 1, HRI_WARP, 0, stream, in, out);
  case FRAGMENT_LDMATRIX_1_TURNED: return HRI_LAUNCH((ldmatrix_kernel<1, true>), 1, HRI_WARP, 0, stream, in, out);
  case FRAGMENT_LDMATRIX_2_TURNED: return HRI_LAUNCH((ldmatrix_kernel<2, true>), 1, HRI_WARP, 0, stream, in, out);
  case FRAGMENT_LDMATRIX_4_TURNED: return HRI_LAUNCH((ldmatrix_kernel<4, true>), 1, HRI_WARP, 0, stream, in, out);
  case FRAGMENT_COPY_4: return ONE(copy_kernel<4>);
  case FRAGMENT_COPY_8: return ONE(copy_kernel<8>);
  case FRAGMENT_COPY_16: return ONE(copy_kernel<16>);
  case FRAGMENT_TO_BF16: return ONE(value_kernel<FRAGMENT_TO_BF16>);
  case FRAGMENT_TO_F16: return ONE(value_kernel<FRAGMENT_TO_F16>);
  case FRAGMENT_FROM_F16: return ONE(value_kernel<FRAGMENT_FROM_F16>);
  case FRAGMENT_TO_TF32: return ONE(value_kernel<FRAGMENT_TO_TF32>);
  case FRAGMENT_MUL: return ONE(value_kernel<FRAGMENT_MUL>);
  case FRAGMENT_ADD: return ONE(value_kernel<FRAGMENT_ADD>);
  case FRAGMENT_OPS: break;
  }
  return -1;
}
