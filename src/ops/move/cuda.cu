/* Casts, fills, sums and copies of columns, and slices whose index is in the control block. */
#include "ops/cuda.h"
#include "ops/elements.cuh"

template <class To, class From, int n> __global__ void cast_kernel(To *to, const From *from, int64_t count) {
  hri_global<To> y(to, count);
  hri_global<const From> x(from, count);
  int64_t i = hri_thread_index() * n;
  float v[n];
  if (i >= count) return;
  hri_get<n>(v, x, i);
  hri_put<n>(y, i, v);
}

template <class To, class From> static int cast_of(void *to, const void *from, int64_t n, void *stream) {
  constexpr int width =
      sizeof(To) < sizeof(From) ? hri_vector<From>() : hri_vector<To>(); /* both in 16 bytes at most */
  To *y = static_cast<To *>(to);
  const From *x = static_cast<const From *>(from);
  if (n == 0) return 0;
  if (hri_vectors(n, width, to, from))
    return HRI_LAUNCH((cast_kernel<To, From, width>), hri_blocks(n, HRI_ELEMENT_THREADS * width), HRI_ELEMENT_THREADS,
                      0, stream, y, x, n);
  return HRI_LAUNCH((cast_kernel<To, From, 1>), hri_blocks(n, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS, 0, stream, y,
                    x, n);
}

template <class From> static int cast_from(void *to, hri_real to_real, const void *from, int64_t n, void *stream) {
  return HRI_BY_TYPE(to_real, (cast_of<REAL, From>(to, from, n, stream)));
}

extern "C" int hri_cuda_cast(void *to, hri_real to_real, const void *from, hri_real from_real, int64_t n,
                             void *stream) {
  return HRI_BY_TYPE(from_real, (cast_from<REAL>(to, to_real, from, n, stream)));
}

/* Once at a load and once at a save: plain. */
__global__ void split_kernel(uint16_t *high, uint16_t *low, const float *from, int64_t count) {
  hri_global<uint16_t> h(high, count), l(low, count);
  hri_global<const float> x(from, count);
  int64_t i = hri_thread_index();
  uint16_t rest;
  if (i >= count) return;
  h[i] = hri_split(x[i], &rest);
  l[i] = rest;
}

extern "C" int hri_cuda_split(hri_bf16 *high, uint16_t *low, const float *from, int64_t n, void *stream) {
  if (n == 0) return 0;
  return HRI_LAUNCH(split_kernel, hri_blocks(n, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS, 0, stream, high, low, from,
                    n);
}

__global__ void join_kernel(float *to, const uint16_t *high, const uint16_t *low, int64_t count) {
  hri_global<const uint16_t> h(high, count), l(low, count);
  hri_global<float> y(to, count);
  int64_t i = hri_thread_index();
  if (i < count) y[i] = hri_join(h[i], l[i]);
}

extern "C" int hri_cuda_join(float *to, const hri_bf16 *high, const uint16_t *low, int64_t n, void *stream) {
  if (n == 0) return 0;
  return HRI_LAUNCH(join_kernel, hri_blocks(n, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS, 0, stream, to, high, low, n);
}

__global__ void fill_kernel(float *to, float value, int64_t count) {
  hri_global<float> y(to, count);
  int64_t i = hri_thread_index();
  if (i < count) y[i] = value;
}

extern "C" int hri_cuda_fill(float *y, float value, int64_t n, void *stream) {
  if (n == 0) return 0;
  return HRI_LAUNCH(fill_kernel, hri_blocks(n, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS, 0, stream, y, value, n);
}

/* ---- columns ---- */

/* y (+)= x, rows `stride` elements apart in either. */
template <class To, class From> __global__ void accumulate_kernel(hri_cuda_accumulate_args a) {
  int64_t i = hri_thread_index(), row = i / a.columns, column = i % a.columns;
  hri_global<To> y(static_cast<To *>(a.y), a.rows == 0 ? 0 : (a.rows - 1) * a.y_stride + a.columns);
  hri_global<const From> x(static_cast<const From *>(a.x), a.rows == 0 ? 0 : (a.rows - 1) * a.x_stride + a.columns);
  if (i >= a.rows * a.columns) return;
  float v = hri_widen((From)x[row * a.x_stride + column]);
  if (a.adds) v += hri_widen((To)y[row * a.y_stride + column]);
  y[row * a.y_stride + column] = hri_narrow<To>(v);
}

template <class From> static int accumulate_from(const hri_cuda_accumulate_args *a, void *stream) {
  return HRI_BY_TYPE(a->y_real,
                     HRI_LAUNCH((accumulate_kernel<REAL, From>), hri_blocks(a->rows * a->columns, HRI_ELEMENT_THREADS),
                                HRI_ELEMENT_THREADS, 0, stream, *a));
}

extern "C" int hri_cuda_accumulate(const hri_cuda_accumulate_args *args, void *stream) {
  if (args->rows * args->columns == 0) return 0;
  return HRI_BY_TYPE(args->x_real, accumulate_from<REAL>(args, stream));
}

/* ---- bytes, in units of T ---- */

/* Rows of `width` units, `pitch` units apart. With `index` all of `from` begins that many slices of rows * width further,
 * less `less`. */
struct move_args {
  void *to;
  const void *from;
  int64_t rows, width, to_pitch, from_pitch;
  int64_t slices; /* that `from` has */
  const int64_t *index;
  int64_t less;
};

template <class T> __global__ void move_kernel(move_args a) {
  int64_t i = hri_thread_index(), row = i / a.width, column = i % a.width, skipped = 0;
  hri_global<T> to(static_cast<T *>(a.to), (a.rows - 1) * a.to_pitch + a.width);
  hri_global<const T> from(static_cast<const T *>(a.from), a.slices * ((a.rows - 1) * a.from_pitch + a.width));
  hri_global<const int64_t> index(a.index, 1);
  if (i >= a.rows * a.width) return;
  if (a.index) skipped = (index[0] - a.less) * a.width;
  to[row * a.to_pitch + column] = (T)from[skipped + row * a.from_pitch + column];
}

/* Sizes are in bytes here. */
template <class T> static int move_units(move_args a, void *stream) {
  a.width /= (int64_t)sizeof(T), a.to_pitch /= (int64_t)sizeof(T), a.from_pitch /= (int64_t)sizeof(T);
  return HRI_LAUNCH(move_kernel<T>, hri_blocks(a.rows * a.width, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS, 0, stream,
                    a);
}

struct alignas(16) unit16 {
  uint64_t low, high;
};

static int move(const move_args *a, void *stream) {
  uint64_t all = (uintptr_t)a->to | (uintptr_t)a->from | (uint64_t)(a->width | a->to_pitch | a->from_pitch);
  if (a->rows * a->width == 0) return 0;
  if (all % 16 == 0) return move_units<unit16>(*a, stream);
  if (all % 4 == 0) return move_units<uint32_t>(*a, stream);
  return all % 2 == 0 ? move_units<uint16_t>(*a, stream) : move_units<uint8_t>(*a, stream);
}

extern "C" int hri_cuda_copy_rows(void *to, int64_t to_pitch, const void *from, int64_t from_pitch, int64_t width,
                                  int64_t rows, void *stream) {
  move_args a = {to, from, rows, width, to_pitch, from_pitch, 1, nullptr, 0};
  return move(&a, stream);
}

extern "C" int hri_cuda_select(void *to, const void *from, int64_t slices, int64_t bytes, const hri_control *control,
                               void *stream) {
  move_args a = {to, from, 1, bytes, bytes, bytes, slices, &control->micro_index, 0};
  return move(&a, stream);
}

extern "C" int hri_cuda_last_row(void *to, const void *from, int64_t rows, int64_t bytes, const hri_control *control,
                                 void *stream) {
  move_args a = {to, from, 1, bytes, bytes, bytes, rows, &control->row_count, 1};
  return move(&a, stream);
}
