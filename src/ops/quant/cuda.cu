/* Weights to codes and back (program/quantization.h). Codes, scales and values are those of the CPU, bit by bit: products and
 * sums are rounded one by one, and the mean of double quantization is added in the CPU's order, by the 32 lanes of a warp.
 * An element that has no code is told by its index: the kernels leave the least one. */
#include <math.h>
#include <stdint.h>
#include <string.h>

extern "C" {
#include "program/quantization.h"
}
#include "ops/quant/part.cuh"

enum { THREADS = 256, BLOCK = HRI_QUANT_BLOCK, NESTED = HRI_QUANT_NESTED_BLOCK };

/* An argument of the kernels. */
struct quant_tables {
  float value[HRI_QUANT_VALUES], bound[HRI_QUANT_VALUES]; /* of bounds one less */
  uint8_t order[HRI_QUANT_VALUES];
  float map[HRI_QUANT_MAP]; /* of double quantization */
};

static quant_tables tables_of(uint32_t kind) {
  quant_tables t = {};
  if (hri_quant_is_4bit(kind)) {
    memcpy(t.value, hri_quant_values(kind), sizeof t.value);
    memcpy(t.bound, hri_quant_bounds(kind), (HRI_QUANT_VALUES - 1) * sizeof *t.bound);
    memcpy(t.order, hri_quant_order(kind), sizeof t.order);
  }
  if (hri_quant_is_double(kind)) memcpy(t.map, hri_quant_map(), sizeof t.map);
  return t;
}

/* ---- dequantizing ---- */

/* A thread a byte: two elements of a block, which share its absmax. */
template <class T> __global__ void dequantize_blocks_kernel(quant_part_args a, quant_tables t) {
  HRI_SHARED(float, map, HRI_QUANT_MAP);
  HRI_SHARED(float, value, HRI_QUANT_VALUES);
  int64_t at = hri_thread_index(), i = 2 * at, block = i / BLOCK;
  hri_global<const uint8_t> codes(a.codes, a.code_bytes), small(static_cast<const uint8_t *>(a.absmax), a.absmax_count);
  hri_global<const float> absmax(static_cast<const float *>(a.absmax), a.absmax_count);
  hri_global<const float> nested(a.nested, a.nested_count + 1);
  hri_global<T> w(static_cast<T *>(a.w), a.elements);
  for (int k = (int)threadIdx.x; k < HRI_QUANT_MAP; k += (int)blockDim.x) map[k] = t.map[k];
  if (threadIdx.x < HRI_QUANT_VALUES) value[threadIdx.x] = t.value[threadIdx.x];
  __syncthreads();
  if (i >= a.elements) return;
  float scale;
  if (a.nested)
    scale = hri_add_alone(hri_mul_alone(map[(uint8_t)small[block]], nested[block / NESTED]), nested[a.nested_count]);
  else scale = absmax[block];
  uint8_t code = codes[at];
  w[i] = hri_narrow<T>(hri_mul_alone(value[code >> 4], scale));
  if (i + 1 < a.elements) w[i + 1] = hri_narrow<T>(hri_mul_alone(value[code & 15], scale));
}

template <class T> __global__ void dequantize_rows_kernel(quant_part_args a) {
  int64_t i = hri_thread_index();
  hri_global<const int8_t> codes(reinterpret_cast<const int8_t *>(a.codes), a.elements);
  hri_global<const float> absmax(static_cast<const float *>(a.absmax), a.absmax_count);
  hri_global<T> w(static_cast<T *>(a.w), a.elements);
  if (i >= a.elements) return;
  float product = hri_mul_alone((float)(int8_t)codes[i], absmax[i / a.columns]);
  w[i] = hri_narrow<T>(hri_mul_alone(product, 1.0f / 127.0f));
}

template <class T> static int dequantize_part(uint32_t kind, const quant_part_args *p, void *stream) {
  if (kind == HRI_QUANTIZATION_INT8)
    return HRI_LAUNCH(dequantize_rows_kernel<T>, hri_blocks(p->elements, THREADS), THREADS, 0, stream, *p);
  return HRI_LAUNCH(dequantize_blocks_kernel<T>, hri_blocks((p->elements + 1) / 2, THREADS), THREADS, 0, stream, *p,
                    tables_of(kind));
}

extern "C" int hri_cuda_dequantize(const hri_quant_args *args, void *stream) {
  int bad = 0;
  for (uint32_t k = 0; k < args->layout->part_count; k++) {
    quant_part_args p = quant_part_of(args, k);
    if (args->kind == HRI_QUANTIZATION_KEEP) bad |= hri_cuda_dequantize_kept(&p, args->real, stream);
    else bad |= HRI_BY_TYPE(args->real, dequantize_part<REAL>(args->kind, &p, stream));
  }
  return bad;
}

/* ---- quantizing ---- */

/* |w| as its bits, which are in the order of the values; NaN is beyond all, so that one never hides. */
__device__ __forceinline__ uint32_t magnitude_bits(float v) { return __float_as_uint(v) & 0x7FFFFFFFu; }
__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
__device__ __forceinline__ uint32_t warp_largest(uint32_t bits) {
  for (int by = HRI_WARP / 2; by > 0; by /= 2) bits = larger(bits, __shfl_xor_sync(HRI_ALL_LANES, bits, by));
  return bits;
}

/* So that the largest that is left stands for the least element; 0: none. */
__device__ __forceinline__ void found_bad(const quant_part_args &a, int64_t i) {
  hri_global<unsigned long long> bad(a.bad, 1);
  bad.atomic_max(0, ~0ull - (unsigned long long)(a.first + i));
}

/* How many of the 15 ascending bounds are below. */
__device__ __forceinline__ int rank_of(const quant_tables &t, float v) {
  int rank = 0;
  for (int k = 0; k < HRI_QUANT_VALUES - 1; k++) rank += v > t.bound[k];
  return rank;
}

/* A warp a block, a lane two elements, which share a byte. Full blocks are scaled by a reciprocal, a part block is divided, and
 * its absmax is 1e-38 at least, which a full block's only is in its reciprocal. */
template <class T> __global__ void quantize_blocks_kernel(quant_part_args a, quant_tables t) {
  int64_t block = hri_thread_index() / HRI_WARP;
  int lane = (int)threadIdx.x % HRI_WARP;
  hri_global<const T> w(static_cast<const T *>(a.w), a.elements);
  hri_global<uint8_t> codes(a.codes, a.code_bytes);
  hri_global<float> absmax(static_cast<float *>(a.absmax), a.absmax_count);
  int64_t i = block * BLOCK + 2 * lane, left = a.elements - block * BLOCK;
  const uint32_t limit = 0x7f800000u;
  if (left <= 0) return; /* the whole warp */
  float v[2] = {0, 0};
  for (int k = 0; k < 2 && i + k < a.elements; k++) v[k] = hri_widen((T)w[i + k]);
  for (int k = 1; k >= 0; k--)
    if (magnitude_bits(v[k]) >= limit) found_bad(a, i + k);
  uint32_t bits = warp_largest(larger(magnitude_bits(v[0]), magnitude_bits(v[1])));
  if (bits >= limit) { /* the whole warp; what the mean is made of is written all the same */
    if (lane == 0) absmax[block] = 0;
    return;
  }
  float most = hri_uint_as_float(bits), least = 1e-38f, inverse;
  bool full = left >= BLOCK;
  if (lane == 0) absmax[block] = !full && most < least ? least : most;
  if (most < least) most = least;
  inverse = 1.0f / most;
  for (int k = 0; k < 2; k++) v[k] = full ? hri_mul_alone(v[k], inverse) : v[k] / most;
  if (i < a.elements) codes[i / 2] = (uint8_t)(t.order[rank_of(t, v[0])] << 4 | t.order[rank_of(t, v[1])]);
}

__device__ __forceinline__ float to_half(float v) { return hri_f16_value(hri_f16_bits(v)); }

/* A block of threads a row of LLM.int8: of the weight in fp16, times 127 times the reciprocal of the largest. */
template <class T> __global__ void quantize_rows_kernel(quant_part_args a) {
  HRI_SHARED(uint32_t, partial, HRI_WARP);
  hri_global<const T> w(static_cast<const T *>(a.w), a.elements);
  hri_global<int8_t> codes(reinterpret_cast<int8_t *>(a.codes), a.elements);
  hri_global<float> absmax(static_cast<float *>(a.absmax), a.absmax_count);
  const uint32_t limit = 0x477ff000u; /* 65520, which rounds beyond the largest fp16 */
  int64_t begin = (int64_t)blockIdx.x * a.columns;
  uint32_t bits = 0;
  for (int64_t c = threadIdx.x; c < a.columns; c += blockDim.x) {
    uint32_t mine = magnitude_bits(hri_widen((T)w[begin + c]));
    if (mine >= limit) found_bad(a, begin + c);
    bits = larger(bits, mine);
  }
  bits = warp_largest(bits);
  if (threadIdx.x % HRI_WARP == 0) partial[(int)threadIdx.x / HRI_WARP] = bits;
  __syncthreads();
  for (int k = 0; k < (int)blockDim.x / HRI_WARP; k++) bits = larger(bits, partial[k]);
  if (bits >= limit) return; /* all of them */
  float most = to_half(hri_uint_as_float(bits)), inverse = most > 0 ? hri_mul_alone(1.0f / most, 127.0f) : 0;
  if (threadIdx.x == 0) absmax[blockIdx.x] = most;
  for (int64_t c = threadIdx.x; c < a.columns; c += blockDim.x)
    codes[begin + c] = (int8_t)rintf(hri_mul_alone(to_half(hri_widen((T)w[begin + c])), inverse));
}

/* ---- double quantization of absmax ---- */

enum { LANES = 8, SIDE = 4, LEVELS = 4 };

/* Rows that go up a level together, as a power of two (nested.c). */
static int level_power(int64_t rows) {
  int bits = 0;
  while (((int64_t)1 << bits) < rows) bits++;
  return bits / LEVELS > 4 ? bits / LEVELS : 4;
}

/* The sum of a lane's column of rows of 32, cascaded over levels as nested.c has it. */
__device__ __forceinline__ float column_sum(const hri_global<const float> &x, int64_t rows, int power) {
  float level[LEVELS] = {};
  int64_t step = (int64_t)1 << power, i = 0;
  int lane = (int)threadIdx.x;
  while (i + step <= rows) {
    for (int64_t end = i + step; i < end; i++) level[0] += x[i * HRI_WARP + lane];
    bool rises = true;
    for (int j = 1; j < LEVELS; j++) {
      if (!rises) continue;
      level[j] += level[j - 1];
      level[j - 1] = 0;
      rises = !(i & ((step - 1) << (j * power)));
    }
  }
  for (; i < rows; i++) level[0] += x[i * HRI_WARP + lane];
  for (int j = 1; j < LEVELS; j++) level[0] += level[j];
  return level[0];
}

/* One warp: the mean of n entries to nested[blocks], in the order of hri_quant_mean. */
__global__ void nested_mean_kernel(quant_part_args a, const float *entries, int power) {
  int64_t n = a.absmax_count, i = n / HRI_WARP * HRI_WARP;
  int lane = (int)threadIdx.x;
  hri_global<const float> x(entries, n);
  hri_global<float> nested(a.nested, a.nested_count + 1);
  float sum = 0, sums = 0, few[SIDE] = {};
  if (n < LANES) { /* four sums side by side, and what is left of fours into the first */
    for (int64_t k = 0; k < n; k++) {
      int to = k < n / SIDE * SIDE ? (int)(k % SIDE) : 0;
      for (int s = 0; s < SIDE; s++) few[s] += s == to ? (float)x[k] : 0;
    }
    for (int s = 0; s < SIDE; s++) sum += few[s];
  } else {
    sums = column_sum(x, n / HRI_WARP, power);
    for (; i + LANES <= n; i += LANES) sums += lane < LANES ? (float)x[i + lane] : 0;
    for (int k = 1; k < SIDE; k++) {
      float other = __shfl_sync(HRI_ALL_LANES, sums, k * LANES + lane % LANES);
      if (lane < LANES) sums += other;
    }
    for (; i < n; i++) sum += x[i];
    for (int k = 0; k < LANES; k++) sum += __shfl_sync(HRI_ALL_LANES, sums, k);
  }
  sum /= (float)n;
  if (lane == 0) nested[a.nested_count] = sum;
}

/* One thread, which mostly does nothing: where the mean overflows although each element has a code, the largest of the
 * part is told, which is its largest block's. */
template <class T> __global__ void nested_overflow_kernel(quant_part_args a, const float *entries) {
  int64_t n = a.absmax_count, most = 0, at;
  hri_global<const float> x(entries, n), nested(a.nested, a.nested_count + 1);
  hri_global<const T> w(static_cast<const T *>(a.w), a.elements);
  hri_global<unsigned long long> bad(a.bad, 1);
  float mean = nested[a.nested_count];
  if (mean - mean == 0 || bad[0] != 0) return;
  for (int64_t k = 1; k < n; k++)
    if (x[k] > x[most]) most = k;
  at = most * BLOCK;
  for (int64_t i = at; i < at + BLOCK && i < a.elements; i++)
    if (fabsf(hri_widen((T)w[i])) > fabsf(hri_widen((T)w[at]))) at = i;
  found_bad(a, at);
}

/* The entry of the map for v in [-1, 1] by way of the nearest of 65,536 steps (nested.c). */
__device__ __forceinline__ int nested_code(const hri_shared<float> &map, float v) {
  const float steps = 65535;
  int below = 0;
  if (!(v >= -1.0f)) return 0;
  if (v > 1.0f) v = 1.0f;
  float scaled = hri_mul_alone(hri_mul_alone(hri_add_alone(v, 1.0f), 0.5f), steps);
  float step = hri_mul_alone(2.0f, (float)(int)hri_add_alone(scaled, 0.5f)) / steps;
  step = hri_add_alone(-1.0f, step);
  for (int half = HRI_QUANT_MAP / 2; half > 0; half /= 2) {
    float middle = 0.5f * hri_add_alone(map[below + half - 1], map[below + half]);
    below += middle < step ? half : 0;
  }
  return below;
}

/* A block of threads a block of entries. */
__global__ void nested_codes_kernel(quant_part_args a, const float *entries, quant_tables t) {
  HRI_SHARED(float, map, HRI_QUANT_MAP);
  HRI_SHARED(float, partial, HRI_WARP);
  int64_t i = hri_thread_index(), n = a.absmax_count;
  hri_global<const float> x(entries, n);
  hri_global<float> nested(a.nested, a.nested_count + 1);
  hri_global<uint8_t> codes(static_cast<uint8_t *>(a.absmax), n);
  map[threadIdx.x] = t.map[threadIdx.x];
  float distance = i < n ? x[i] - nested[a.nested_count] : 0, most = hri_block_max(fabsf(distance), partial);
  if (threadIdx.x == 0) nested[blockIdx.x] = most;
  if (i < n) codes[i] = most == 0 ? 0 : (uint8_t)nested_code(map, hri_mul_alone(distance, 1.0f / most));
}

template <class T> static int quantize_part(const hri_quant_args *args, const quant_part_args *part, void *stream) {
  quant_part_args p = *part;
  quant_tables t = tables_of(args->kind);
  int bad;
  if (args->kind == HRI_QUANTIZATION_INT8)
    return HRI_LAUNCH(quantize_rows_kernel<T>, (unsigned)p.absmax_count, THREADS, 0, stream, p);
  if (p.nested) p.absmax = args->scratch;
  bad = HRI_LAUNCH(quantize_blocks_kernel<T>, hri_blocks(p.absmax_count, THREADS / HRI_WARP), THREADS, 0, stream, p, t);
  if (!p.nested) return bad;
  bad |= HRI_LAUNCH(nested_mean_kernel, 1, HRI_WARP, 0, stream, *part, args->scratch,
                    level_power(p.absmax_count / HRI_WARP));
  bad |= HRI_LAUNCH(nested_overflow_kernel<T>, 1, 1, 0, stream, *part, args->scratch);
  return bad | HRI_LAUNCH(nested_codes_kernel, hri_blocks(p.absmax_count, NESTED), NESTED, 0, stream, *part,
                          args->scratch, t);
}

extern "C" int hri_cuda_quantize(const hri_quant_args *args, unsigned long long *bad, void *stream) {
  int refused = 0;
  if (args->kind == HRI_QUANTIZATION_KEEP) return -1;
  for (uint32_t k = 0; k < args->layout->part_count; k++) {
    quant_part_args p = quant_part_of(args, k);
    p.bad = bad;
    refused |= HRI_BY_TYPE(args->real, quantize_part<REAL>(args, &p, stream));
  }
  return refused;
}
