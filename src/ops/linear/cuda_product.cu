/* Products that no library takes, or that are too thin for one: any mix of types on either side (an adapter's A and B are fp32
 * beside bf16), few columns, and few rows, as in decoding.
 *
 * c[i, j] (+)= the sum over k of a(i, k) b(j, k) (+ bias[j]), sums in fp32. With few rows and depth side by side in both, a warp
 * has a column and reads its row of b once, for all rows of a: 16 bytes a lane and four of them under way, where addresses allow
 * it. Else a block makes TILE x TILE results from tiles in shared memory;
 * where that gives too few blocks the depth is cut, by the shape alone, and parts are folded in order. */
#include "ops/cuda.h"
#include "ops/elements.cuh"

enum { THREADS = 256, TILE = HRI_CUDA_PRODUCT_TILE, EACH = TILE * TILE / THREADS, FEW = HRI_CUDA_FEW_ROWS };

static int64_t tiles_of(int64_t n) { return hri_cuda_blocks_of(n, TILE); }
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

/* ---- tiles ---- */

/* TILE rows of depth k .. k + TILE - 1 into shared memory [depth][row]; beyond the ends 0. Neighbouring threads take what lies
 * side by side. */
__device__ __forceinline__ void load_tile(const hri_shared<float> &to, const hri_any &x, int64_t row_step,
                                          int64_t column_step, int64_t first, int64_t rows, int64_t k, int64_t end) {
  for (int at = (int)threadIdx.x; at < TILE * TILE; at += THREADS) {
    int row = column_step == 1 ? at / TILE : at % TILE, depth = column_step == 1 ? at % TILE : at / TILE;
    bool there = first + row < rows && k + depth < end;
    to[depth * (TILE + 1) + row] = there ? hri_get_one(x, (first + row) * row_step + (k + depth) * column_step) : 0;
  }
}

/* Block (columns, rows, piece of the depth). */
__global__ void tile_product_kernel(hri_cuda_product_args p, int64_t piece) {
  HRI_SHARED(float, left, TILE *(TILE + 1));
  HRI_SHARED(float, right, TILE *(TILE + 1));
  hri_any a = a_of(p), b = b_of(p);
  hri_global<float> parts(p.scratch, gridDim.z > 1 ? (int64_t)gridDim.z * p.m * p.n : 0);
  int64_t first_row = (int64_t)blockIdx.y * TILE, first_column = (int64_t)blockIdx.x * TILE;
  int64_t begin = (int64_t)blockIdx.z * piece, end = begin + piece < p.k ? begin + piece : p.k;
  int column = (int)threadIdx.x % TILE, row = (int)threadIdx.x / TILE * EACH;
  float sums[EACH] = {};
  for (int64_t k = begin; k < end; k += TILE) {
    __syncthreads(); /* whoever still reads the last tiles */
    load_tile(left, a, p.a_row, p.a_column, first_row, p.m, k, end);
    load_tile(right, b, p.b_row, p.b_column, first_column, p.n, k, end);
    __syncthreads();
    for (int depth = 0; depth < TILE; depth++) {
      float w = right[depth * (TILE + 1) + column];
      for (int e = 0; e < EACH; e++) sums[e] += left[depth * (TILE + 1) + row + e] * w;
    }
  }
  for (int e = 0; e < EACH; e++) {
    int64_t i = first_row + row + e, j = first_column + column;
    if (i >= p.m || j >= p.n) continue;
    if (gridDim.z > 1) parts[((int64_t)blockIdx.z * p.m + i) * p.n + j] = sums[e];
    else put_result(p, i, j, sums[e]);
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
  dim3 blocks((unsigned)tiles_of(args->n), (unsigned)tiles_of(args->m), (unsigned)pieces);
  int bad = HRI_LAUNCH(tile_product_kernel, blocks, THREADS, 0, stream, *args, piece);
  if (pieces == 1) return bad;
  return bad |
         HRI_LAUNCH(fold_product_kernel, hri_blocks(args->m * args->n, THREADS), THREADS, 0, stream, *args, pieces);
}
