/* Embedding rows out of tables, and the sum of gradients back into them.
 *
 * The backward sorts the rows by their index (a radix sort of 8 bits a round, stable, so that rows of one index stay in
 * their order), and then each index has one block that adds its rows in that order: no atomics, the bits of the CPU's sum.
 * A round has three kernels: how often each digit occurs in each tile; where each tile's digits go; moving. One thread has
 * one digit and walks the tile, which keeps the order without any exchange. */
#include "ops/cuda.h"
#include "ops/elements.cuh"

enum { DIGITS = HRI_CUDA_SORT_DIGITS, DIGIT_BITS = 8, TILE = HRI_CUDA_SORT_TILE, COLUMN_THREADS = 128, AHEAD = 8 };

template <class T> __global__ void embed_kernel(hri_embed_args a, int64_t token_rows) {
  int64_t i = hri_thread_index(), n = a.columns, row = i / n, column = i % n;
  if (i >= a.rows * n) return;
  hri_global<const int32_t> ids(a.ids, a.rows), position(a.position, a.rows);
  int64_t token = (int64_t)ids[row] * n + column;
  hri_global<const T> tokens(static_cast<const T *>(a.tokens), token + 1 + token_rows);
  hri_global<T> y(static_cast<T *>(a.y), a.rows * n);
  float v = hri_widen((T)tokens[token]) * (float)a.factor;
  if (a.positions) {
    int64_t at = (int64_t)position[row] * n + column;
    hri_global<const T> positions(static_cast<const T *>(a.positions), at + 1);
    v += hri_widen((T)positions[at]);
  }
  y[i] = hri_narrow<T>(v);
}

extern "C" int hri_cuda_embed(const hri_embed_args *args, void *stream) {
  int64_t n = args->rows * args->columns;
  if (n == 0) return 0;
  return HRI_BY_TYPE(args->real, HRI_LAUNCH(embed_kernel<REAL>, hri_blocks(n, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS,
                                            0, stream, *args, (int64_t)0));
}

/* ---- sorting ---- */

/* Rows in some order, and the index of each. */
struct order {
  int32_t *index, *row;
};

/* Scratch: two orders, and counts [DIGITS][tiles]. */
struct sort_space {
  order from, to;
  int32_t *counts;
};

static int64_t tiles_of(int64_t rows) { return hri_cuda_blocks_of(rows, TILE); }

static sort_space space_of(void *scratch, int64_t rows) {
  int32_t *at = static_cast<int32_t *>(scratch);
  return {{at, at + rows}, {at + 2 * rows, at + 3 * rows}, at + 4 * rows};
}

__global__ void order_begin_kernel(order to, const int32_t *index, int64_t rows) {
  hri_global<const int32_t> from(index, rows);
  hri_global<int32_t> index_to(to.index, rows), row_to(to.row, rows);
  int64_t i = hri_thread_index();
  if (i >= rows) return;
  index_to[i] = (int32_t)from[i];
  row_to[i] = (int32_t)i;
}

/* The tile's digits into shared memory; how many there are. */
__device__ __forceinline__ int load_digits(const hri_shared<int32_t> &digit, const hri_global<int32_t> &index,
                                           int64_t rows, int shift) {
  int64_t begin = (int64_t)blockIdx.x * TILE;
  int count = rows - begin < TILE ? (int)(rows - begin) : TILE;
  for (int i = (int)threadIdx.x; i < count; i += DIGITS) digit[i] = (index[begin + i] >> shift) % DIGITS;
  __syncthreads();
  return count;
}

__global__ void order_count_kernel(order from, int32_t *counts, int64_t rows, int shift) {
  HRI_SHARED(int32_t, digit, TILE);
  hri_global<int32_t> index(from.index, rows), to(counts, DIGITS * (int64_t)gridDim.x);
  int count = load_digits(digit, index, rows, shift), mine = (int)threadIdx.x, found = 0;
  for (int i = 0; i < count; i++) found += digit[i] == mine;
  to[(int64_t)mine * gridDim.x + blockIdx.x] = found;
}

/* Counts become where the first one of each (digit, tile) goes. */
__global__ void order_scan_kernel(int32_t *counts, int64_t tiles) {
  HRI_SHARED(int32_t, total, DIGITS);
  hri_global<int32_t> at(counts, DIGITS * tiles);
  int mine = (int)threadIdx.x;
  int32_t sum = 0, before = 0;
  for (int64_t t = 0; t < tiles; t++) sum += at[mine * tiles + t];
  total[mine] = sum;
  __syncthreads();
  for (int d = 0; d < mine; d++) before += total[d];
  for (int64_t t = 0; t < tiles; t++) {
    int32_t count = at[mine * tiles + t];
    at[mine * tiles + t] = before;
    before += count;
  }
}

__global__ void order_move_kernel(order from, order to, int32_t *counts, int64_t rows, int shift) {
  HRI_SHARED(int32_t, digit, TILE);
  hri_global<int32_t> index(from.index, rows), row(from.row, rows), index_to(to.index, rows), row_to(to.row, rows);
  hri_global<int32_t> places(counts, DIGITS * (int64_t)gridDim.x);
  int count = load_digits(digit, index, rows, shift), mine = (int)threadIdx.x;
  int64_t begin = (int64_t)blockIdx.x * TILE;
  int32_t at = places[(int64_t)mine * gridDim.x + blockIdx.x];
  for (int i = 0; i < count; i++) {
    if (digit[i] != mine) continue;
    index_to[at] = (int32_t)index[begin + i];
    row_to[at] = (int32_t)row[begin + i];
    at++;
  }
}

/* Sorts; the result is in space->from. */
static int sort_rows(sort_space *space, const int32_t *index, int64_t rows, int64_t indices, void *stream) {
  unsigned tiles = (unsigned)tiles_of(rows);
  int bad = HRI_LAUNCH(order_begin_kernel, hri_blocks(rows, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS, 0, stream,
                       space->from, index, rows);
  for (int shift = 0; shift < 31 && (int64_t)1 << shift < indices; shift += DIGIT_BITS) {
    order moved = space->to;
    bad |= HRI_LAUNCH(order_count_kernel, tiles, DIGITS, 0, stream, space->from, space->counts, rows, shift);
    bad |= HRI_LAUNCH(order_scan_kernel, 1, DIGITS, 0, stream, space->counts, (int64_t)tiles);
    bad |= HRI_LAUNCH(order_move_kernel, tiles, DIGITS, 0, stream, space->from, space->to, space->counts, rows, shift);
    space->to = space->from;
    space->from = moved;
  }
  return bad;
}

/* The block at the first row of an index adds all of them, in their order; AHEAD are asked for at once, since few tokens make up
 * much of a text. */
template <class T> __global__ void embed_backward_kernel(hri_embed_backward_args a, order sorted) {
  int64_t n = a.columns, c = (int64_t)blockIdx.y * blockDim.x + threadIdx.x, i = blockIdx.x;
  hri_global<int32_t> index(sorted.index, a.rows), row(sorted.row, a.rows);
  hri_global<const T> dy(static_cast<const T *>(a.dy), a.rows * n);
  hri_global<float> dtable(a.dtable, a.stored_rows * n);
  int32_t mine = index[i];
  if (c >= n || mine == a.skip_index || (i > 0 && index[i - 1] == mine)) return;
  float sum = dtable[mine * n + c];
  for (bool more = true; more; i += AHEAD) {
    float g[AHEAD];
    int count = 0;
    HRI_UNROLL_BY(8) for (int k = 0; k < AHEAD; k++) {
      g[k] = 0;
      if (i + k >= a.rows || index[i + k] != mine) continue; /* they are sorted: so are all behind it */
      g[k] = hri_widen((T)dy[(int64_t)row[i + k] * n + c]);
      count = k + 1;
    }
    HRI_UNROLL_BY(8) for (int k = 0; k < AHEAD; k++) if (k < count) sum += (float)a.factor * g[k];
    more = count == AHEAD;
  }
  dtable[mine * n + c] = sum;
}

extern "C" int hri_cuda_embed_backward(const hri_embed_backward_args *args, void *scratch, void *stream) {
  sort_space space = space_of(scratch, args->rows);
  int bad = 0;
  if (!args->accumulate) bad |= hri_cuda_fill(args->dtable, 0, args->stored_rows * args->columns, stream);
  if (args->rows * args->columns == 0) return bad;
  bad |= sort_rows(&space, args->index, args->rows, args->stored_rows, stream);
  dim3 blocks((unsigned)args->rows, hri_blocks(args->columns, COLUMN_THREADS));
  return bad | HRI_BY_TYPE(args->real, HRI_LAUNCH(embed_backward_kernel<REAL>, blocks, COLUMN_THREADS, 0, stream, *args,
                                                  space.from));
}
