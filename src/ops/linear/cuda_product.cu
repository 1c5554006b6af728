/* Products that no library takes, or that are too thin for one: any mix of types on either side (an adapter's A and B are fp32
 * beside bf16), few columns, and few rows, as in decoding.
 *
 * c[i, j] (+)= the sum over k of a(i, k) b(j, k) (+ bias[j]), sums in fp32. With few rows and depth side by side in both, a warp
 * has a column and reads its row of b once, for all rows of a: 16 bytes a lane and four of them under way, where addresses allow
 * it. Else a block makes ROWS x COLUMNS results from tiles in shared memory, by tensor cores;
 * where that gives too few blocks the depth is cut, by the shape alone, and parts are folded in order.
 *
 * Tensor cores multiply bf16, which has 8 bits: a value of fp32 is the sum of three of them, exactly, one of fp16 of two, one of
 * bf16 is one. On their way into shared memory values are cut so, and no other copy of an operand is made; each pair of parts
 * is a step of mma.sync, 3 where x is bf16 and A fp32, 8 where both are fp32. Products of parts are exact in fp32, and the
 * one that is left out, of the two last parts, is below 2^-28 of its product; so what is lost is lost in sums: at most K
 * roundings of fp32, as in a plain sum,
 *     |c - exact| <= (K + 2) 2^-24 times the sum of |a b|      (before a narrow result is rounded)
 * which test_cuda_decode holds each element to; what a tensor core does within a step of 16 is its own affair, "at least single
 * precision". Of values below 2^-110 the last parts are lost, as bf16 ends at 2^-133. */
#include "ops/cuda.h"
#include "ops/elements.cuh"

enum {
  THREADS = 256,
  FEW = HRI_CUDA_FEW_ROWS,
  ROWS = HRI_CUDA_PRODUCT_ROWS,
  COLUMNS = HRI_CUDA_PRODUCT_COLUMNS,
  TILE_THREADS = ROWS / 16 * HRI_WARP, /* a warp has 16 rows of a tile */
  DEPTH = 32,                          /* of a tile */
  PAD = 8,  /* elements behind a line of one, so that the eight of an ldmatrix lie in different banks */
  PARTS = 3 /* of fp32, in bf16 */
};

static bool is_thin(const hri_cuda_product_args *a) { return hri_cuda_product_thin(a->m, a->a_column, a->b_column); }

/* From the first to behind the last element of rows and columns so far apart. */
__device__ __forceinline__ int64_t extent(int64_t rows, int64_t row, int64_t columns, int64_t column) {
  return rows == 0 || columns == 0 ? 0 : (rows - 1) * row + (columns - 1) * column + 1;
}
__device__ __forceinline__ hri_any a_of(const hri_cuda_product_args &p) {
  return {const_cast<void *>(p.a), p.a_real, extent(p.m, p.a_row, p.k, p.a_column)}; /* read alone */
}
__device__ __forceinline__ hri_any b_of(const hri_cuda_product_args &p) {
  return {const_cast<void *>(p.b), p.b_real, extent(p.n, p.b_row, p.k, p.b_column)};
}

/* A finished sum to its place. */
__device__ __forceinline__ void put_result(const hri_cuda_product_args &p, int64_t i, int64_t j, float sum) {
  hri_any c = {p.c, p.c_real, extent(p.m, p.c_row, p.n, 1)};
  hri_global<const float> bias(p.bias, p.n);
  if (bias) sum += bias[j];
  if (p.accumulate) sum += hri_get_one(c, i * p.c_row + j);
  hri_put_some(c, i * p.c_row + j, 1, &sum);
}

/* ---- few rows ---- */

__global__ void thin_product_kernel(hri_cuda_product_args p) {
  int64_t j = hri_thread_index() / HRI_WARP;
  int lane = (int)threadIdx.x % HRI_WARP;
  hri_any a = a_of(p), b = b_of(p);
  float sums[FEW] = {}, x[HRI_SOME], w[HRI_SOME];
  if (j >= p.n) return; /* the whole warp */
  for (int64_t k = (int64_t)lane * HRI_SOME; k < p.k; k += HRI_WARP * HRI_SOME) {
    int count = p.k - k < HRI_SOME ? (int)(p.k - k) : (int)HRI_SOME;
    hri_get_some(w, b, j * p.b_row + k, count);
    for (int i = 0; i < FEW && i < p.m; i++) {
      hri_get_some(x, a, i * p.a_row + k, count);
      for (int e = 0; e < count; e++) sums[i] += x[e] * w[e];
    }
  }
  for (int i = 0; i < FEW && i < p.m; i++) {
    float sum = hri_warp_sum(sums[i]);
    if (lane == 0) put_result(p, i, j, sum);
  }
}

/* The same where rows are whole vectors. */
template <class A, class B> __global__ void thin_vector_kernel(hri_cuda_product_args p) {
  enum { WIDE = 16 / sizeof(B), AHEAD = 4, STEP = HRI_WARP * WIDE };
  int64_t j = hri_thread_index() / HRI_WARP;
  int lane = (int)threadIdx.x % HRI_WARP;
  hri_global<const A> a(static_cast<const A *>(p.a), extent(p.m, p.a_row, p.k, 1));
  hri_global<const B> b(static_cast<const B *>(p.b), extent(p.n, p.b_row, p.k, 1));
  float sums[FEW] = {}, x[WIDE];
  if (j >= p.n) return; /* the whole warp */
  for (int64_t k = (int64_t)lane * WIDE; k < p.k; k += STEP * AHEAD) {
    hri_pack<B, WIDE> w[AHEAD];
    HRI_UNROLL_BY(4)
    for (int u = 0; u < AHEAD; u++)
      if (k + u * STEP < p.k) w[u] = b.template load<WIDE>(j * p.b_row + k + u * STEP);
    HRI_UNROLL_BY(4) for (int u = 0; u < AHEAD; u++) {
      if (k + u * STEP >= p.k) continue;
      HRI_UNROLL_BY(8) for (int i = 0; i < FEW; i++) {
        if (i >= p.m) continue;
        hri_get_wide<WIDE>(x, a, i * p.a_row + k + u * STEP);
        for (int e = 0; e < WIDE; e++) sums[i] += x[e] * hri_widen(w[u].v[e]);
      }
    }
  }
  for (int i = 0; i < FEW && i < p.m; i++) {
    float sum = hri_warp_sum(sums[i]);
    if (lane == 0) put_result(p, i, j, sum);
  }
}

template <class A, class B> static int thin_vectors(const hri_cuda_product_args *p, void *stream) {
  return HRI_LAUNCH((thin_vector_kernel<A, B>), hri_blocks(p->n, THREADS / HRI_WARP), THREADS, 0, stream, *p);
}
template <class B> static int thin_vectors_of(const hri_cuda_product_args *p, void *stream) {
  return HRI_BY_TYPE(p->a_real, (thin_vectors<REAL, B>(p, stream)));
}

static int thin(const hri_cuda_product_args *p, void *stream) {
  uint64_t a_bytes = hri_real_bytes(p->a_real), b_bytes = hri_real_bytes(p->b_real);
  uint64_t all = (uintptr_t)p->a | (uintptr_t)p->b | (uint64_t)p->a_row * a_bytes | (uint64_t)p->b_row * b_bytes;
  if (all % 16 == 0 && (uint64_t)p->k * b_bytes % 16 == 0)
    return HRI_BY_TYPE(p->b_real, thin_vectors_of<REAL>(p, stream));
  return HRI_LAUNCH(thin_product_kernel, hri_blocks(p->n, THREADS / HRI_WARP), THREADS, 0, stream, *p);
}

/* ---- tiles, by tensor cores ---- */

/* Parts of 8 bits that a value of a type consists of, as bf16: all its bits are in them. */
__device__ __forceinline__ int parts_of(hri_real real) {
  return real == HRI_REAL_BF16 ? 1 : real == HRI_REAL_F16 ? 2 : (int)PARTS;
}

/* How an operand's rows, of the product, lie in a tile of `rows` by DEPTH: depth side by side, or rows, as they do in memory.
 * The next part lies `size` elements behind. */
struct tile_shape {
  bool along;
  int rows, stride, size, parts;
};
__device__ __forceinline__ tile_shape shape_of(int rows, int64_t column_step, hri_real real) {
  bool along = column_step == 1;
  return {along, rows, (along ? (int)DEPTH : rows) + (int)PAD, rows * ((int)DEPTH + (int)PAD), parts_of(real)};
}

/* The first part of a value, which goes; what is not finite has one part. */
__device__ __forceinline__ hri_bf16_t take_part(float *value) {
  uint32_t bits = __float_as_uint(*value) & 0xFFFF0000u;
  *value = (bits & 0x7F800000u) == 0x7F800000u ? 0 : *value - hri_uint_as_float(bits);
  return hri_bf16_t{(uint16_t)(bits >> 16)};
}

/* Rows `first` .. of depth k .. into all parts of a tile; beyond the ends 0. Four that lie side by side are taken at once. */
__device__ __forceinline__ void load_tile(const hri_shared<hri_bf16_t> &to, const tile_shape &t, const hri_any &x,
                                          int64_t row_step, int64_t column_step, int64_t first, int64_t rows, int64_t k,
                                          int64_t end) {
  HRI_UNROLL_BY(4) for (int g = (int)threadIdx.x * HRI_SOME; g < t.rows * DEPTH; g += TILE_THREADS * HRI_SOME) {
    int line = t.along ? g / DEPTH : g / t.rows, at = t.along ? g % DEPTH : g % t.rows;
    int row = t.along ? line : at, depth = t.along ? at : line;
    int64_t left = t.along ? end - k - depth : rows - first - row;
    bool there = first + row < rows && k + depth < end;
    int count = !there ? 0 : left < HRI_SOME ? (int)left : (int)HRI_SOME;
    float v[HRI_SOME] = {};
    if (count) hri_get_some(v, x, (first + row) * row_step + (k + depth) * column_step, count);
    for (int part = 0; part < t.parts; part++) {
      hri_pack<hri_bf16_t, HRI_SOME> pack;
      for (int e = 0; e < HRI_SOME; e++) pack.v[e] = take_part(&v[e]);
      to.template store<HRI_SOME>(part * t.size + line * t.stride + at, pack);
    }
  }
}

/* Fragments of a part: 16 rows by 16 of depth; 16 columns, two operands behind each other. */
__device__ __forceinline__ void left_fragment(uint32_t *a, const hri_shared<hri_bf16_t> &s, const tile_shape &t,
                                              int part, int row, int k) {
  int lane = (int)threadIdx.x % HRI_WARP, begin = part * t.size;
  if (t.along) s.template load_matrix<4, false>(a, begin + (row + lane % 16) * t.stride + k + lane / 16 * 8);
  else s.template load_matrix<4, true>(a, begin + (k + lane / 16 * 8 + lane % 8) * t.stride + row + lane / 8 % 2 * 8);
}
__device__ __forceinline__ void right_fragment(uint32_t *b, const hri_shared<hri_bf16_t> &s, const tile_shape &t,
                                               int part, int column, int k) {
  int lane = (int)threadIdx.x % HRI_WARP, begin = part * t.size;
  if (t.along)
    s.template load_matrix<4, false>(b, begin + (column + lane / 16 * 8 + lane % 8) * t.stride + k + lane / 8 % 2 * 8);
  else s.template load_matrix<4, true>(b, begin + (k + lane % 16) * t.stride + column + lane / 16 * 8);
}

/* A step of the depth for 16 columns: the product of the first parts to the sums, all others, each smaller by 2^7 or more, to
 * sums of their own. That of two last parts is below what fp32 holds of the result. */
__device__ __forceinline__ void add_step(float (*sums)[4], float (*small)[4], const hri_shared<hri_bf16_t> &left,
                                         const tile_shape &lt, const hri_shared<hri_bf16_t> &right,
                                         const tile_shape &rt, int row, int column, int k) {
  uint32_t a[4], b[4];
  for (int p = 0; p < lt.parts; p++) {
    left_fragment(a, left, lt, p, row, k);
    for (int q = 0; q < rt.parts && p + q < 2 * PARTS - 2; q++) {
      right_fragment(b, right, rt, q, column, k);
      if (p + q == 0) {
        hri_mma_bf16(sums[0], a, b);
        hri_mma_bf16(sums[1], a, b + 2);
      } else {
        hri_mma_bf16(small[0], a, b);
        hri_mma_bf16(small[1], a, b + 2);
      }
    }
  }
}

/* The warp's 16 rows of the tile of results, lane 4 g + t having rows g and g + 8, columns 2 t and 2 t + 1 of each eight. */
__device__ __forceinline__ void put_tile(const hri_shared<float> &to, const float (*sums)[4], const float (*small)[4],
                                         int row) {
  int lane = (int)threadIdx.x % HRI_WARP;
  for (int i = 0; i < COLUMNS / 8; i++)
    for (int e = 0; e < 4; e++)
      to[(row + lane / 4 + e / 2 * 8) * (COLUMNS + 1) + i * 8 + lane % 4 * 2 + e % 2] = sums[i][e] + small[i][e];
}

/* Block (columns, rows, piece of the depth). */
__global__ void __launch_bounds__(TILE_THREADS) tile_product_kernel(hri_cuda_product_args p, int64_t piece) {
  HRI_SHARED(hri_bf16_t, left, PARTS * ROWS * (DEPTH + PAD));
  HRI_SHARED(hri_bf16_t, right, PARTS * COLUMNS * (DEPTH + PAD));
  HRI_SHARED(float, results, ROWS *(COLUMNS + 1));
  hri_any a = a_of(p), b = b_of(p);
  hri_global<float> parts(p.scratch, gridDim.z > 1 ? (int64_t)gridDim.z * p.m * p.n : 0);
  tile_shape lt = shape_of(ROWS, p.a_column, p.a_real), rt = shape_of(COLUMNS, p.b_column, p.b_real);
  int64_t first_row = (int64_t)blockIdx.y * ROWS, first_column = (int64_t)blockIdx.x * COLUMNS;
  int64_t begin = (int64_t)blockIdx.z * piece, end = begin + piece < p.k ? begin + piece : p.k;
  int row = (int)threadIdx.x / HRI_WARP * 16;
  float sums[COLUMNS / 8][4] = {}, small[COLUMNS / 8][4] = {};
  for (int64_t k = begin; k < end; k += DEPTH) {
    __syncthreads(); /* whoever still reads the last tiles */
    load_tile(left, lt, a, p.a_row, p.a_column, first_row, p.m, k, end);
    load_tile(right, rt, b, p.b_row, p.b_column, first_column, p.n, k, end);
    __syncthreads();
    if (first_row + row >= p.m) continue; /* the whole warp */
    for (int depth = 0; depth < DEPTH; depth += 16) {
      HRI_UNROLL_BY(2) for (int c = 0; c < COLUMNS; c += 16) {
        if (first_column + c < p.n) add_step(sums + c / 8, small + c / 8, left, lt, right, rt, row, c, depth);
      }
    }
  }
  put_tile(results, sums, small, row);
  __syncthreads();
  for (int at = (int)threadIdx.x; at < ROWS * COLUMNS; at += TILE_THREADS) {
    int64_t i = first_row + at / COLUMNS, j = first_column + at % COLUMNS;
    float sum = results[at / COLUMNS * (COLUMNS + 1) + at % COLUMNS];
    if (i >= p.m || j >= p.n) continue;
    if (gridDim.z > 1) parts[((int64_t)blockIdx.z * p.m + i) * p.n + j] = sum;
    else put_result(p, i, j, sum);
  }
}

__global__ void fold_product_kernel(hri_cuda_product_args p, int64_t pieces) {
  int64_t at = hri_thread_index();
  hri_global<const float> parts(p.scratch, pieces * p.m * p.n);
  float sum = 0;
  if (at >= p.m * p.n) return;
  for (int64_t k = 0; k < pieces; k++) sum += parts[k * p.m * p.n + at];
  put_result(p, at / p.n, at % p.n, sum);
}

extern "C" int hri_cuda_product(const hri_cuda_product_args *args, void *stream) {
  int64_t pieces = hri_cuda_product_pieces(args->m, args->n, args->k), piece = (args->k + pieces - 1) / pieces;
  if (args->m * args->n == 0) return 0;
  if (is_thin(args)) return thin(args, stream);
  dim3 blocks(hri_blocks(args->n, COLUMNS), hri_blocks(args->m, ROWS), (unsigned)pieces);
  int bad = HRI_LAUNCH(tile_product_kernel, blocks, TILE_THREADS, 0, stream, *args, piece);
  if (pieces == 1) return bad;
  return bad |
         HRI_LAUNCH(fold_product_kernel, hri_blocks(args->m * args->n, THREADS), THREADS, 0, stream, *args, pieces);
}
