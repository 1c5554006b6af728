/* Attention whose probabilities are kept (before dropout), and its backward: for comparison, so plain loops - a warp makes the
 * dots of a query and a key, chunks of them lie in shared memory, a thread has an element of a head. */
#include "ops/attention/scores.cuh"

enum {
  THREADS = 128,
  WARPS = THREADS / HRI_WARP,
  CHUNK = 128,
  MOST_EACH = 2 /* elements of a head, of 256, a thread */
};

struct full_args {
  attention_args a;
  void *probs; /* [B,H,T,T] */
};

/* Sum of x[at + d] y[to + d] over a head, in all lanes of a warp. */
template <class T>
__device__ __forceinline__ float head_dot(const hri_global<const T> &x, int64_t at, const hri_global<const T> &y,
                                          int64_t to, int count) {
  float sum = 0;
  for (int d = (int)threadIdx.x % HRI_WARP; d < count; d += HRI_WARP)
    sum += hri_widen((T)x[at + d]) * hri_widen((T)y[to + d]);
  return hri_warp_sum(sum);
}

/* What a probability is multiplied by before the product with the values. */
__device__ __forceinline__ float stays_of(const attention_args &a, int64_t b, int head, int query, int key) {
  if (!a.control) return 1;
  hri_global<const hri_control> control(a.control, 1);
  hri_control c = control[0];
  hri_draw draw = {c.seed, (uint64_t)c.step, a.site, (uint32_t)c.row_base};
  uint32_t word = hri_draw_word(&draw, (uint32_t)b, (uint32_t)query, (uint32_t)head, (uint32_t)key);
  return word < a.threshold ? 0 : a.factor;
}

/* Block (query, head, b): the largest score and the sum first, then probabilities and output. */
template <class T> __global__ void full_kernel(full_args f) {
  const attention_args &a = f.a;
  HRI_SHARED(float, p, CHUNK);
  HRI_SHARED(float, partial, HRI_WARP);
  int t = (int)blockIdx.x, head = (int)blockIdx.y, D = a.head_dim, warp = (int)threadIdx.x / HRI_WARP;
  int64_t b = blockIdx.z, row = ((b * a.heads + head) * a.sequence + t) * a.sequence;
  int kv = a.heads + head / (a.heads / a.kv_heads), lane = (int)threadIdx.x % HRI_WARP;
  hri_global<const T> qkv(static_cast<const T *>(a.qkv), a.batch * a.sequence * pitch_of(a));
  hri_global<const int32_t> doc_start(a.doc_start, a.batch * a.sequence);
  hri_global<T> probs(static_cast<T *>(f.probs), a.batch * a.heads * a.sequence * a.sequence);
  hri_global<T> y(static_cast<T *>(a.y), a.batch * a.sequence * a.heads * D);
  int first = first_key(a, doc_start, b, t);
  float most = -INFINITY, sum = 0, slope, out[MOST_EACH] = {};
  for (int j = first + warp; j <= t; j += WARPS)
    most = fmaxf(most, score_of(a, head_dot(qkv, qkv_at(a, b, t, head), qkv, qkv_at(a, b, j, kv), D), &slope));
  most = hri_block_max(most, partial);
  for (int j = first + warp; j <= t; j += WARPS) {
    float s = score_of(a, head_dot(qkv, qkv_at(a, b, t, head), qkv, qkv_at(a, b, j, kv), D), &slope);
    if (lane == 0) sum += expf(s - most);
  }
  sum = hri_block_sum(sum, partial);
  for (int begin = 0; begin < a.sequence; begin += CHUNK) {
    int end = begin + CHUNK < a.sequence ? begin + CHUNK : a.sequence;
    __syncthreads(); /* whoever still reads the last chunk */
    for (int j = begin + warp; j < end; j += WARPS) {
      float value = 0;
      if (j >= first && j <= t)
        value =
            expf(score_of(a, head_dot(qkv, qkv_at(a, b, t, head), qkv, qkv_at(a, b, j, kv), D), &slope) - most) / sum;
      if (lane != 0) continue;
      probs[row + j] = hri_narrow<T>(value);
      p[j - begin] = value == 0 ? 0 : value * stays_of(a, b, head, t, j); /* NaN stays */
    }
    __syncthreads();
    for (int k = 0; k < MOST_EACH; k++) {
      int d = (int)threadIdx.x + k * THREADS;
      for (int j = begin > first ? begin : first; d < D && j < end && j <= t; j++)
        out[k] += p[j - begin] * hri_widen((T)qkv[qkv_at(a, b, j, kv + a.kv_heads) + d]);
    }
  }
  for (int k = 0; k < MOST_EACH; k++) {
    int d = (int)threadIdx.x + k * THREADS;
    if (d < D) y[y_at(a, b, t, head) + d] = hri_narrow<T>(out[k]);
  }
}

/* ---- backward ---- */

/* Of query t and key j: the gradient by what is scaled and capped, over p; all lanes of a warp. */
template <class T>
__device__ __forceinline__ float gradient_of(const attention_args &a, const hri_global<const T> &qkv,
                                             const hri_global<const T> &dy, int64_t b, int head, int kv, int t, int j,
                                             float stays) {
  return stays == 0 ? 0 : stays * head_dot(dy, y_at(a, b, t, head), qkv, qkv_at(a, b, j, kv + a.kv_heads), a.head_dim);
}

template <class T>
__device__ __forceinline__ float slope_of(const attention_args &a, const hri_global<const T> &qkv, int64_t b, int head,
                                          int kv, int t, int j) {
  float slope = 1;
  if (a.softcap > 0)
    (void)score_of(a, head_dot(qkv, qkv_at(a, b, t, head), qkv, qkv_at(a, b, j, kv), a.head_dim), &slope);
  return slope;
}

/* Block (query, head, b): delta = the sum of p dp, and dq. */
template <class T> __global__ void full_queries_kernel(full_args f) {
  const attention_args &a = f.a;
  HRI_SHARED(float, ds, CHUNK);
  HRI_SHARED(float, partial, HRI_WARP);
  int t = (int)blockIdx.x, head = (int)blockIdx.y, D = a.head_dim, warp = (int)threadIdx.x / HRI_WARP;
  int64_t b = blockIdx.z, row = (b * a.heads + head) * a.sequence + t;
  int kv = a.heads + head / (a.heads / a.kv_heads), lane = (int)threadIdx.x % HRI_WARP;
  hri_global<const T> qkv(static_cast<const T *>(a.qkv), a.batch * a.sequence * pitch_of(a));
  hri_global<const T> dy(static_cast<const T *>(a.dy), a.batch * a.sequence * a.heads * D);
  hri_global<const T> probs(static_cast<const T *>(f.probs), a.batch * a.heads * a.sequence * a.sequence);
  hri_global<T> dqkv(static_cast<T *>(a.dqkv), a.batch * a.sequence * pitch_of(a));
  hri_global<float> deltas(a.delta, a.batch * a.heads * a.sequence);
  float delta = 0, out[MOST_EACH] = {};
  for (int j = warp; j <= t; j += WARPS) {
    float p = hri_widen((T)probs[row * a.sequence + j]);
    float dp = gradient_of(a, qkv, dy, b, head, kv, t, j, p > 0 ? stays_of(a, b, head, t, j) : 0);
    if (lane == 0) delta += p * dp;
  }
  delta = hri_block_sum(delta, partial);
  if (threadIdx.x == 0) deltas[row] = delta;
  for (int begin = 0; begin <= t; begin += CHUNK) {
    int end = begin + CHUNK < t + 1 ? begin + CHUNK : t + 1;
    __syncthreads(); /* whoever still reads the last chunk */
    for (int j = begin + warp; j < end; j += WARPS) {
      float p = hri_widen((T)probs[row * a.sequence + j]), dp, slope;
      dp = gradient_of(a, qkv, dy, b, head, kv, t, j, p > 0 ? stays_of(a, b, head, t, j) : 0);
      slope = slope_of(a, qkv, b, head, kv, t, j);
      if (lane == 0) ds[j - begin] = p * (dp - delta) * slope * a.scale;
    }
    __syncthreads();
    for (int k = 0; k < MOST_EACH; k++) {
      int d = (int)threadIdx.x + k * THREADS;
      for (int j = begin; d < D && j < end; j++) out[k] += ds[j - begin] * hri_widen((T)qkv[qkv_at(a, b, j, kv) + d]);
    }
  }
  for (int k = 0; k < MOST_EACH; k++) {
    int d = (int)threadIdx.x + k * THREADS;
    if (d < D) dqkv[qkv_at(a, b, t, head) + d] = hri_narrow<T>(out[k]);
  }
}

/* Block (key, kv head, b): dk and dv, over the heads of its group and the queries from it on. */
template <class T> __global__ void full_keys_kernel(full_args f) {
  const attention_args &a = f.a;
  HRI_SHARED(float, ds, CHUNK);
  HRI_SHARED(float, kept, CHUNK);
  int j = (int)blockIdx.x, own = (int)blockIdx.y, group = a.heads / a.kv_heads, D = a.head_dim, kv = a.heads + own;
  int warp = (int)threadIdx.x / HRI_WARP, lane = (int)threadIdx.x % HRI_WARP;
  int64_t b = blockIdx.z;
  hri_global<const T> qkv(static_cast<const T *>(a.qkv), a.batch * a.sequence * pitch_of(a));
  hri_global<const T> dy(static_cast<const T *>(a.dy), a.batch * a.sequence * a.heads * D);
  hri_global<const T> probs(static_cast<const T *>(f.probs), a.batch * a.heads * a.sequence * a.sequence);
  hri_global<T> dqkv(static_cast<T *>(a.dqkv), a.batch * a.sequence * pitch_of(a));
  hri_global<float> deltas(a.delta, a.batch * a.heads * a.sequence);
  float dk[MOST_EACH] = {}, dv[MOST_EACH] = {};
  for (int head = own * group; head < (own + 1) * group; head++)
    for (int begin = j; begin < a.sequence; begin += CHUNK) {
      int end = begin + CHUNK < a.sequence ? begin + CHUNK : a.sequence;
      __syncthreads(); /* whoever still reads the last chunk */
      for (int t = begin + warp; t < end; t += WARPS) {
        int64_t row = (b * a.heads + head) * a.sequence + t;
        float p = hri_widen((T)probs[row * a.sequence + j]), stays = p > 0 ? stays_of(a, b, head, t, j) : 0;
        float dp = gradient_of(a, qkv, dy, b, head, kv, t, j, stays), slope = slope_of(a, qkv, b, head, kv, t, j);
        if (lane != 0) continue;
        ds[t - begin] = p * (dp - deltas[row]) * slope * a.scale;
        kept[t - begin] = p * stays;
      }
      __syncthreads();
      for (int k = 0; k < MOST_EACH; k++) {
        int d = (int)threadIdx.x + k * THREADS;
        for (int t = begin; d < D && t < end; t++) {
          dk[k] += ds[t - begin] * hri_widen((T)qkv[qkv_at(a, b, t, head) + d]);
          dv[k] += kept[t - begin] * hri_widen((T)dy[y_at(a, b, t, head) + d]);
        }
      }
    }
  for (int k = 0; k < MOST_EACH; k++) {
    int d = (int)threadIdx.x + k * THREADS;
    if (d >= D) continue;
    dqkv[qkv_at(a, b, j, kv) + d] = hri_narrow<T>(dk[k]);
    dqkv[qkv_at(a, b, j, kv + a.kv_heads) + d] = hri_narrow<T>(dv[k]);
  }
}

/* ---- launching ---- */

static dim3 blocks_of(const attention_args *a, int heads) {
  return dim3((unsigned)a->sequence, (unsigned)heads, (unsigned)a->batch);
}

extern "C" int hri_cuda_attention_full(const hri_attention_shape *shape, float scale, const void *qkv,
                                       const int32_t *doc_start, void *y, void *probs, const hri_control *control,
                                       void *stream) {
  full_args f = {attention_args_of(shape, scale, qkv, doc_start, control), probs};
  if (attention_refused(shape, control)) return -1;
  if (shape->batch * shape->sequence == 0) return 0;
  f.a.y = y;
  return HRI_BY_TYPE(shape->real, HRI_LAUNCH(full_kernel<REAL>, blocks_of(&f.a, f.a.heads), THREADS, 0, stream, f));
}

template <class T> static int full_backward(const full_args *f, void *stream) {
  int bad = HRI_LAUNCH(full_queries_kernel<T>, blocks_of(&f->a, f->a.heads), THREADS, 0, stream, *f);
  return bad | HRI_LAUNCH(full_keys_kernel<T>, blocks_of(&f->a, f->a.kv_heads), THREADS, 0, stream, *f);
}

extern "C" int hri_cuda_attention_full_backward(const hri_attention_shape *shape, float scale, const void *dy,
                                                const void *qkv, const void *probs, void *dqkv,
                                                const hri_control *control, void *scratch, void *stream) {
  full_args f = {attention_args_of(shape, scale, qkv, nullptr, control), const_cast<void *>(probs)}; /* read alone */
  if (attention_refused(shape, control)) return -1;
  if (shape->batch * shape->sequence == 0) return 0;
  f.a.dy = dy, f.a.dqkv = dqkv, f.a.delta = static_cast<float *>(scratch);
  return HRI_BY_TYPE(shape->real, full_backward<REAL>(&f, stream));
}
