/* Products of tiles in shared memory by mma.sync, for attention.
 *
 * A warp makes 16 rows of a product. For bf16 and fp16 a step is m16n8k16 with fragments from ldmatrix; for fp32 it is m16n8k8
 * in tf32, each operand split into two parts, of which the product of the two small ones is left out: about fp32's precision
 * for three products. Tiles have rows of COLUMNS elements and 16 bytes more, so that the eight rows of an ldmatrix lie in
 * different banks.
 *
 * A result (C: lane = 4 g + t has rows g and g + 8, columns 2 t and 2 t + 1) becomes the left operand of the next product
 * without leaving its registers. In fp32 that deals columns 2 t and 2 t + 1 to places t and t + 4 of the depth; the right
 * operand is read with the same exchange, and the sum is over the same pairs. */
#ifndef HRI_OPS_ATTENTION_TILES_CUH
#define HRI_OPS_ATTENTION_TILES_CUH

#include "gpu/device.cuh"

#ifdef __CUDACC__
#define HRI_UNROLL _Pragma("unroll")
#define HRI_NO_UNROLL _Pragma("unroll 1")   /* where the accumulators of a warp leave no registers for it */
#define HRI_UNROLL_SOME _Pragma("unroll 4") /* where all of it would be long to compile */
#else
#define HRI_UNROLL
#define HRI_UNROLL_SOME
#define HRI_NO_UNROLL
#endif

template <class T> struct tile_math {
  enum {
    DEPTH = 16,
    PAD = 8,
    RESULTS = 2
  }; /* of a step; elements behind a row; results of 8 columns that make one operand */

  /* Rows row .. row + 15, columns k .. k + 15 of a tile. */
  __device__ static __forceinline__ void left(uint32_t *a, const hri_shared<T> &s, int row, int k, int stride) {
    int lane = (int)threadIdx.x % HRI_WARP;
    s.template load_matrix<4, false>(a, (row + lane % 16) * stride + k + lane / 16 * 8);
  }
  /* The tile's rows are columns of the product: n .. n + 8 count - 1, count 1 or 2, its columns the depth. */
  template <int count>
  __device__ static __forceinline__ void right(uint32_t *b, const hri_shared<T> &s, int n, int k, int stride) {
    int lane = (int)threadIdx.x % HRI_WARP;
    s.template load_matrix<2 * count, false>(b, (n + lane / 16 % count * 8 + lane % 8) * stride + k + lane / 8 % 2 * 8);
  }
  /* The tile's rows are the depth. */
  template <int count>
  __device__ static __forceinline__ void right_rows(uint32_t *b, const hri_shared<T> &s, int k, int n, int stride) {
    int lane = (int)threadIdx.x % HRI_WARP;
    s.template load_matrix<2 * count, true>(b, (k + lane % 16) * stride + n + lane / 16 % count * 8);
  }
  __device__ static __forceinline__ uint32_t pair(float low, float high) {
    return (uint32_t)hri_narrow<T>(high).bits << 16 | hri_narrow<T>(low).bits;
  }
  __device__ static __forceinline__ void from_results(uint32_t *a, const float (*c)[4]) {
    a[0] = pair(c[0][0], c[0][1]);
    a[1] = pair(c[0][2], c[0][3]);
    a[2] = pair(c[1][0], c[1][1]);
    a[3] = pair(c[1][2], c[1][3]);
  }
  __device__ static __forceinline__ void add(float *d, const uint32_t *a, const uint32_t *b);
};

template <> __device__ __forceinline__ void tile_math<hri_bf16_t>::add(float *d, const uint32_t *a, const uint32_t *b) {
  hri_mma_bf16(d, a, b);
}
template <> __device__ __forceinline__ void tile_math<hri_f16_t>::add(float *d, const uint32_t *a, const uint32_t *b) {
  hri_mma_f16(d, a, b);
}

template <> struct tile_math<float> {
  enum { DEPTH = 8, PAD = 4, RESULTS = 1 };

  __device__ static __forceinline__ void left(uint32_t *a, const hri_shared<float> &s, int row, int k, int stride) {
    int lane = (int)threadIdx.x % HRI_WARP;
    s.load_matrix<4, false>(a, (row + lane % 16) * stride + k + lane / 16 * 4);
  }
  template <int count>
  __device__ static __forceinline__ void right(uint32_t *b, const hri_shared<float> &s, int n, int k, int stride) {
    int lane = (int)threadIdx.x % HRI_WARP;
    s.template load_matrix<2 * count, false>(b, (n + lane / 16 % count * 8 + lane % 8) * stride + k + lane / 8 % 2 * 4);
  }
  template <int count>
  __device__ static __forceinline__ void right_rows(uint32_t *b, const hri_shared<float> &s, int k, int n, int stride) {
    int lane = (int)threadIdx.x % HRI_WARP, at = (k + lane % 4 * 2) * stride + n + lane / 4;
    HRI_UNROLL for (int i = 0; i < count; i++) {
      b[2 * i] = __float_as_uint(s[at + i * 8]);
      b[2 * i + 1] = __float_as_uint(s[at + i * 8 + stride]);
    }
  }
  __device__ static __forceinline__ void from_results(uint32_t *a, const float (*c)[4]) {
    a[0] = __float_as_uint(c[0][0]);
    a[1] = __float_as_uint(c[0][2]);
    a[2] = __float_as_uint(c[0][1]);
    a[3] = __float_as_uint(c[0][3]);
  }
  template <int n> __device__ static __forceinline__ void split(const uint32_t *x, uint32_t *high, uint32_t *low) {
    HRI_UNROLL for (int i = 0; i < n; i++) {
      high[i] = hri_tf32_bits(hri_uint_as_float(x[i]));
      low[i] = hri_tf32_bits(hri_uint_as_float(x[i]) - hri_uint_as_float(high[i]));
    }
  }
  __device__ static __forceinline__ void add(float *d, const uint32_t *a, const uint32_t *b) {
    uint32_t a_high[4], a_low[4], b_high[2], b_low[2];
    split<4>(a, a_high, a_low);
    split<2>(b, b_high, b_low);
    hri_mma_tf32(d, a_low, b_high);
    hri_mma_tf32(d, a_high, b_low);
    hri_mma_tf32(d, a_high, b_high);
  }
};

/* c[16, 8 n] = rows `row` .. of a (COLUMNS deep) times the rows of b. */
template <class T, int COLUMNS, int n>
__device__ __forceinline__ void tile_scores(float (*c)[4], const hri_shared<T> &a, int row, const hri_shared<T> &b) {
  using math = tile_math<T>;
  constexpr int stride = COLUMNS + math::PAD;
  HRI_UNROLL for (int i = 0; i < n; i++) HRI_UNROLL for (int e = 0; e < 4; e++) c[i][e] = 0;
  HRI_UNROLL_SOME for (int k = 0; k < COLUMNS; k += math::DEPTH) {
    uint32_t left[4], right[4];
    math::left(left, a, row, k, stride);
    HRI_UNROLL for (int i = 0; i + 1 < n; i += 2) {
      math::template right<2>(right, b, i * 8, k, stride);
      math::add(c[i], left, right);
      math::add(c[i + 1], left, right + 2);
    }
    if (n % 2 == 1) {
      math::template right<1>(right, b, (n - 1) * 8, k, stride);
      math::add(c[n - 1], left, right);
    }
  }
}

/* c[16, WIDTH] += p[16, 8 n] times columns `begin` .. of b, whose rows of COLUMNS are the depth. p is the result of another
 * product, rounded to T. */
template <class T, int COLUMNS, int WIDTH, int n>
__device__ __forceinline__ void tile_sums(float (*c)[4], const float (*p)[4], const hri_shared<T> &b, int begin) {
  using math = tile_math<T>;
  constexpr int stride = COLUMNS + math::PAD;
  HRI_UNROLL for (int k = 0; k < n / math::RESULTS; k++) {
    uint32_t left[4], right[4];
    math::from_results(left, p + k * math::RESULTS);
    HRI_UNROLL for (int i = 0; i < WIDTH / 8; i += 2) {
      math::template right_rows<2>(right, b, k * math::DEPTH, begin + i * 8, stride);
      math::add(c[i], left, right);
      math::add(c[i + 1], left, right + 2);
    }
  }
}

/* `rows` rows of a tile from rows of global memory `pitch` elements apart; what is beyond `valid_rows` or `valid_columns` is
 * zero. `vector`: rows begin at multiples of 16 bytes; then the copy is asynchronous, and of the current group. */
template <class T, int COLUMNS>
__device__ __forceinline__ void tile_load(const hri_shared<T> &to, int rows, const hri_global<const T> &from,
                                          int64_t at, int64_t pitch, int valid_rows, int valid_columns, bool vector) {
  constexpr int chunk = 16 / (int)sizeof(T), chunks = COLUMNS / chunk, stride = COLUMNS + tile_math<T>::PAD;
  HRI_NO_UNROLL for (int i = (int)threadIdx.x; i < rows * chunks; i += (int)blockDim.x) {
    int row = i / chunks, column = i % chunks * chunk;
    bool there = row < valid_rows && column < valid_columns;
    if (vector) {
      to.template copy_async<16>(row * stride + column, from, at + row * pitch + column, there ? 16 : 0);
      continue;
    }
    HRI_NO_UNROLL for (int k = 0; k < chunk; k++) {
      T value = hri_narrow<T>(0);
      if (there && column + k < valid_columns) value = from[at + row * pitch + column + k];
      to[row * stride + column + k] = value;
    }
  }
}

#endif
