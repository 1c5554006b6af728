/* Element-wise ops: sums, scales and caps, activations and gated units, rotary embedding, dropout and noise. Arithmetic is fp32; a result is rounded
 * once. */
#include "ops/cuda.h"
#include "ops/elements.cuh"

/* act(x) = x sigmoid(z): silu by definition, GELU because (1 + tanh(z / 2)) / 2 = sigmoid(z), which keeps small values. */
struct act {
  float value, slope;
};

__device__ __forceinline__ act act_of(hr_activation kind, float x) {
  if (kind == HR_ACTIVATION_RELU) return {x <= 0 ? 0 : x, x <= 0 ? 0 : x > 0 ? 1 : x}; /* NaN stays */
  if (kind == HR_ACTIVATION_GELU) {
    float below = erfcf(-x * 0.70710678118654752440f) / 2; /* the normal distribution function, and its density */
    return {x * below, below + x * 0.39894228040143267794f * expf(-x * x / 2)};
  }
  const float k = 2 * 0.79788456080286535588f, cubic = 0.044715f; /* 2 sqrt(2 / pi) */
  bool silu = kind == HR_ACTIVATION_SILU;
  float z = silu ? x : k * (x + cubic * x * x * x), slope = silu ? 1 : k * (1 + 3 * cubic * x * x);
  float s = 1 / (1 + expf(-z));
  float bend = s * (1 - s) * slope;
  return {x * s, s + (bend == 0 ? 0 : x * bend)}; /* slope may be infinite where the rest is 0 */
}

struct add_op {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct scale_op {
  float factor;
  __device__ float operator()(float x, float) const { return factor * x; }
};
struct softcap_op {
  float cap;
  __device__ float operator()(float x, float) const { return cap * tanhf(x / cap); }
};
struct activation_op {
  hr_activation kind;
  __device__ float operator()(float x, float) const { return act_of(kind, x).value; }
};
struct activation_backward_op {
  hr_activation kind;
  __device__ float operator()(float dy, float x) const { return dy * act_of(kind, x).slope; }
};

/* y = op(a, b); b may be NULL. */
template <class T, int n, class Op>
__global__ void map_kernel(T *to, const T *from, const T *other, int64_t count, Op op) {
  hri_global<T> y(to, count);
  hri_global<const T> a(from, count), b(other, count);
  int64_t i = hri_thread_index() * n;
  float u[n], v[n];
  if (i >= count) return;
  hri_get<n>(u, a, i);
  for (int k = 0; k < n; k++) v[k] = 0;
  if (b) hri_get<n>(v, b, i);
  for (int k = 0; k < n; k++) u[k] = op(u[k], v[k]);
  hri_put<n>(y, i, u);
}

template <class T, class Op>
static int map(void *to, const void *from, const void *other, int64_t n, Op op, void *stream) {
  constexpr int width = hri_vector<T>();
  T *y = static_cast<T *>(to);
  const T *a = static_cast<const T *>(from), *b = static_cast<const T *>(other);
  if (n == 0) return 0;
  if (hri_vectors(n, width, to, from, other))
    return HRI_LAUNCH((map_kernel<T, width, Op>), hri_blocks(n, HRI_ELEMENT_THREADS * width), HRI_ELEMENT_THREADS, 0,
                      stream, y, a, b, n, op);
  return HRI_LAUNCH((map_kernel<T, 1, Op>), hri_blocks(n, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS, 0, stream, y, a, b,
                    n, op);
}

extern "C" int hri_cuda_add(void *y, const void *a, const void *b, int64_t n, hri_real real, void *stream) {
  return HRI_BY_TYPE(real, (map<REAL>(y, a, b, n, add_op{}, stream)));
}

extern "C" int hri_cuda_scale(void *y, const void *x, float factor, int64_t n, hri_real real, void *stream) {
  return HRI_BY_TYPE(real, (map<REAL>(y, x, nullptr, n, scale_op{factor}, stream)));
}

extern "C" int hri_cuda_softcap(void *y, const void *x, float cap, int64_t n, hri_real real, void *stream) {
  return HRI_BY_TYPE(real, (map<REAL>(y, x, nullptr, n, softcap_op{cap}, stream)));
}

extern "C" int hri_cuda_activation(hr_activation kind, void *y, const void *x, int64_t n, hri_real real, void *stream) {
  return HRI_BY_TYPE(real, (map<REAL>(y, x, nullptr, n, activation_op{kind}, stream)));
}

extern "C" int hri_cuda_activation_backward(hr_activation kind, void *dx, const void *dy, const void *x, int64_t n,
                                            hri_real real, void *stream) {
  return HRI_BY_TYPE(real, (map<REAL>(dx, dy, x, n, activation_backward_op{kind}, stream)));
}

/* ---- gated units: rows of [gate | up] ---- */

template <class T, int n>
__global__ void glu_kernel(T *to, const T *from, int64_t rows, int64_t width, hr_activation kind) {
  hri_global<T> y(to, rows * width);
  hri_global<const T> gu(from, 2 * rows * width);
  int64_t i = hri_thread_index() * n, row = i / width, column = i % width;
  float gate[n], up[n];
  if (i >= rows * width) return;
  hri_get<n>(gate, gu, row * 2 * width + column);
  hri_get<n>(up, gu, (row * 2 + 1) * width + column);
  for (int k = 0; k < n; k++) up[k] *= act_of(kind, gate[k]).value;
  hri_put<n>(y, i, up);
}

template <class T, int n>
__global__ void glu_backward_kernel(T *to, const T *gradient, const T *from, int64_t rows, int64_t width,
                                    hr_activation kind) {
  hri_global<T> dgu(to, 2 * rows * width);
  hri_global<const T> dy(gradient, rows * width), gu(from, 2 * rows * width);
  int64_t i = hri_thread_index() * n, at = i / width * 2 * width + i % width;
  float g[n], gate[n], up[n];
  if (i >= rows * width) return;
  hri_get<n>(g, dy, i);
  hri_get<n>(gate, gu, at);
  hri_get<n>(up, gu, at + width);
  for (int k = 0; k < n; k++) {
    act a = act_of(kind, gate[k]);
    gate[k] = g[k] * up[k] * a.slope;
    up[k] = g[k] * a.value;
  }
  hri_put<n>(dgu, at, gate);
  hri_put<n>(dgu, at + width, up);
}

template <class T>
static int glu(hr_activation kind, void *y, const void *gu, int64_t rows, int64_t width, void *stream) {
  constexpr int n = hri_vector<T>();
  T *to = static_cast<T *>(y);
  const T *from = static_cast<const T *>(gu);
  if (rows * width == 0) return 0;
  if (hri_vectors(width, n, y, gu))
    return HRI_LAUNCH((glu_kernel<T, n>), hri_blocks(rows * width, HRI_ELEMENT_THREADS * n), HRI_ELEMENT_THREADS, 0,
                      stream, to, from, rows, width, kind);
  return HRI_LAUNCH((glu_kernel<T, 1>), hri_blocks(rows * width, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS, 0, stream,
                    to, from, rows, width, kind);
}

template <class T>
static int glu_backward(hr_activation kind, void *dgu, const void *dy, const void *gu, int64_t rows, int64_t width,
                        void *stream) {
  constexpr int n = hri_vector<T>();
  T *to = static_cast<T *>(dgu);
  const T *gradient = static_cast<const T *>(dy), *from = static_cast<const T *>(gu);
  if (rows * width == 0) return 0;
  if (hri_vectors(width, n, dgu, dy, gu))
    return HRI_LAUNCH((glu_backward_kernel<T, n>), hri_blocks(rows * width, HRI_ELEMENT_THREADS * n),
                      HRI_ELEMENT_THREADS, 0, stream, to, gradient, from, rows, width, kind);
  return HRI_LAUNCH((glu_backward_kernel<T, 1>), hri_blocks(rows * width, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS, 0,
                    stream, to, gradient, from, rows, width, kind);
}

extern "C" int hri_cuda_glu(hr_activation kind, void *y, const void *gu, int64_t rows, int64_t width, hri_real real,
                            void *stream) {
  return HRI_BY_TYPE(real, (glu<REAL>(kind, y, gu, rows, width, stream)));
}

extern "C" int hri_cuda_glu_backward(hr_activation kind, void *dgu, const void *dy, const void *gu, int64_t rows,
                                     int64_t width, hri_real real, void *stream) {
  return HRI_BY_TYPE(real, (glu_backward<REAL>(kind, dgu, dy, gu, rows, width, stream)));
}

/* ---- rotary embedding: a block has a row, a thread some elements and their partners, then some that stay ---- */

template <class T, int wide> __global__ void rope_kernel(hri_rope_args a) {
  int D = (int)a.head_size, turned = (int)(a.heads + a.kv_heads), width = (turned + (int)a.kv_heads) * D;
  int half = (int)a.rotary_size / 2, each = half / wide;
  int64_t row = blockIdx.x, base = row * width;
  hri_global<const T> x(static_cast<const T *>(a.x), a.rows * width);
  hri_global<T> y(static_cast<T *>(a.y), a.rows * width);
  hri_global<const int32_t> position(a.position, a.rows);
  int64_t angle = (int64_t)position[row] * half;
  hri_global<const float> cosines(a.cosines, angle + half), sines(a.sines, angle + half);
  float u[wide], v[wide], c[wide], s[wide], low[wide], high[wide];
  for (int i = (int)threadIdx.x; i < turned * each; i += (int)blockDim.x) {
    int pair = i % each * wide;
    int64_t at = base + i / each * D + pair;
    hri_get<wide>(u, x, at);
    hri_get<wide>(v, x, at + half);
    hri_get_wide<wide>(c, cosines, angle + pair);
    hri_get_wide<wide>(s, sines, angle + pair);
    for (int k = 0; k < wide; k++) {
      float sine = a.inverse ? -s[k] : s[k];
      low[k] = u[k] * c[k] - v[k] * sine, high[k] = v[k] * c[k] + u[k] * sine;
    }
    hri_put<wide>(y, at, low);
    hri_put<wide>(y, at + half, high);
  }
  if (a.x == a.y) return;
  for (int i = (int)threadIdx.x * wide; i < width; i += (int)blockDim.x * wide) /* what is not turned */
    if (i >= turned * D || i % D >= 2 * half) y.template store<wide>(base + i, x.template load<wide>(base + i));
}

template <class T, int wide> static int rope(const hri_rope_args *a, void *stream) {
  return HRI_LAUNCH((rope_kernel<T, wide>), (unsigned)a->rows, HRI_ELEMENT_THREADS, 0, stream, *a);
}
template <class T> static int rope_of(const hri_rope_args *a, void *stream) {
  constexpr int wide = hri_vector<T>();
  bool heads = hri_vectors(a->head_size, wide, a->x, a->y);
  if (heads && hri_vectors(a->rotary_size / 2, wide, a->cosines, a->sines)) return rope<T, wide>(a, stream);
  return rope<T, 1>(a, stream);
}

extern "C" int hri_cuda_rope(const hri_rope_args *args, void *stream) {
  if (args->rows * (args->heads + 2 * args->kv_heads) * args->head_size == 0) return 0;
  return HRI_BY_TYPE(args->real, rope_of<REAL>(args, stream));
}

/* ---- dropout and noise: the CPU's random numbers ---- */

/* Those of element i of rows of `columns`, in rows of data of `sequence` positions. */
__device__ __forceinline__ uint32_t word_of(const hri_control *at, uint32_t site, int64_t i, int64_t columns,
                                            int64_t sequence) {
  hri_global<const hri_control> control(at, 1);
  hri_control c = control[0];
  hri_draw draw = {c.seed, (uint64_t)c.step, site, (uint32_t)c.row_base};
  int64_t row = i / columns;
  return hri_draw_word(&draw, (uint32_t)(row / sequence), (uint32_t)(row % sequence), 0, (uint32_t)(i % columns));
}

template <class T> __global__ void dropout_kernel(hri_cuda_dropout_args a, uint32_t threshold, float factor) {
  hri_global<const T> x(static_cast<const T *>(a.x), a.rows * a.columns);
  hri_global<T> y(static_cast<T *>(a.y), a.rows * a.columns);
  int64_t i = hri_thread_index();
  if (i >= a.rows * a.columns) return;
  uint32_t word = word_of(a.control, a.site, i, a.columns, a.sequence);
  y[i] = hri_narrow<T>(hri_widen((T)x[i]) * (word < threshold ? 0 : factor));
}

extern "C" int hri_cuda_dropout(const hri_cuda_dropout_args *args, void *stream) {
  int64_t n = args->rows * args->columns;
  uint32_t threshold = hri_drop_threshold(args->probability);
  float factor = hri_drop_factor(args->probability);
  if (n == 0) return 0;
  return HRI_BY_TYPE(args->real, HRI_LAUNCH(dropout_kernel<REAL>, hri_blocks(n, HRI_ELEMENT_THREADS),
                                            HRI_ELEMENT_THREADS, 0, stream, *args, threshold, factor));
}

template <class T> __global__ void noise_kernel(hri_cuda_noise_args a) {
  hri_global<const T> x(static_cast<const T *>(a.x), a.rows * a.columns);
  hri_global<T> y(static_cast<T *>(a.y), a.rows * a.columns);
  int64_t i = hri_thread_index();
  if (i >= a.rows * a.columns) return;
  float u = hri_draw_signed(word_of(a.control, a.site, i, a.columns, a.sequence));
  y[i] = hri_narrow<T>(hri_widen((T)x[i]) + (float)a.amplitude * u);
}

extern "C" int hri_cuda_noise(const hri_cuda_noise_args *args, void *stream) {
  int64_t n = args->rows * args->columns;
  if (n == 0) return 0;
  return HRI_BY_TYPE(args->real, HRI_LAUNCH(noise_kernel<REAL>, hri_blocks(n, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS,
                                            0, stream, *args));
}
