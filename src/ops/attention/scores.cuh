/* What the kernels of flash attention share: sizes of tiles, which keys a query sees, scores, the mask of dropout. */
#ifndef HRI_OPS_ATTENTION_SCORES_CUH
#define HRI_OPS_ATTENTION_SCORES_CUH

#include "ops/cuda.h"
#include "ops/elements.cuh"
#include "ops/attention/tiles.cuh"

struct attention_args {
  int64_t batch;
  int sequence, window; /* positions have 31 bits: registers are what the kernels run short of */
  int heads, kv_heads, head_dim;
  float scale, softcap;
  bool vector; /* rows of q, k, v, y and dy lie at multiples of 16 bytes */
  const void *qkv;
  const int32_t *doc_start;
  void *y; /* result of the forward, operand of the backward */
  float *lse;
  const void *dy;
  float *delta; /* [B,H,T] */
  void *dqkv;
  const hri_control *control; /* with dropout: whose mask */
  uint32_t site, threshold;   /* ops/draw.h */
  float factor;               /* of what stays; 1 without dropout */
};

/* Sizes of tiles for an element type and padded head size, so that a block's shared memory is 99 KiB at most. */
template <class T, int COLUMNS> struct attention_tiles {
  enum {
    BYTES = COLUMNS * sizeof(T),
    STRIDE = COLUMNS + tile_math<T>::PAD,
    ROWS = BYTES >= 1024 ? 32 : 64,                  /* that stay: queries, or keys in the backward of dk and dv */
    KEYS = 16384 / BYTES < 64 ? 16384 / BYTES : 64,  /* that pass, in the forward */
    PASSING = 8192 / BYTES < 32 ? 8192 / BYTES : 32, /* that pass, in the backward */
    WIDTH = COLUMNS < 128 ? COLUMNS : 128,           /* columns of a result that a block makes */
    SPLITS = COLUMNS / WIDTH,
    THREADS = ROWS / 16 * HRI_WARP,
    FORWARD_BYTES = (ROWS + 2 * KEYS) * STRIDE * sizeof(T),
    BACKWARD_BYTES = 2 * (ROWS + PASSING) * STRIDE * sizeof(T)
  };
};
static_assert((int)attention_tiles<float, 128>::SPLITS == 1 && (int)attention_tiles<float, 256>::SPLITS == 2,
              "as hri_cuda_head_splits tells plans");

/* Where head `head` of qkv begins in row (b, t), in elements: queries 0 .. H - 1, then keys, then values. */
__device__ __forceinline__ int64_t pitch_of(const attention_args &a) {
  return (int64_t)(a.heads + 2 * a.kv_heads) * a.head_dim;
}
__device__ __forceinline__ int64_t qkv_at(const attention_args &a, int64_t b, int t, int head) {
  return (b * a.sequence + t) * pitch_of(a) + (int64_t)head * a.head_dim;
}
__device__ __forceinline__ int64_t y_at(const attention_args &a, int64_t b, int t, int head) {
  return ((b * a.sequence + t) * a.heads + head) * a.head_dim;
}

/* The first key that query t sees; one behind the last where there is no such query. */
__device__ __forceinline__ int first_key(const attention_args &a, const hri_global<const int32_t> &doc_start, int64_t b,
                                         int t) {
  if (t >= a.sequence) return a.sequence;
  int first = a.doc_start ? (int)doc_start[b * a.sequence + t] : 0;
  if (a.window > 0 && t - a.window + 1 > first) first = t - a.window + 1;
  if (first < 0) first = 0;
  return first > t ? t : first;
}

/* `first` of queries begin .. begin + count - 1, and the least of them in all threads. */
__device__ __forceinline__ int load_first(const attention_args &a, const hri_shared<int> &first, int64_t b, int begin,
                                          int count) {
  hri_global<const int32_t> doc_start(a.doc_start, a.batch * a.sequence);
  __syncthreads(); /* whoever still reads the last ones */
  for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) first[i] = first_key(a, doc_start, b, begin + i);
  __syncthreads();
  int least = first[0];
  for (int i = 1; i < count; i++) least = least < (int)first[i] ? least : (int)first[i];
  return least;
}

/* tanh, and its slope without cancellation, as ops/vmath.h has them: no branch, of which each score would have a copy. */
__device__ __forceinline__ float flat_tanh(float x, float *slope) {
  float a = fabsf(x), z = x * x, q = 2 / (expf(a + a) + 1), t = z * -0x1.76ac1ap-8f + 0x1.5256d8p-6f;
  t = t * z - 0x1.b84448p-5f;
  t = t * z + 0x1.110768p-3f;
  t = t * z - 0x1.555534p-2f;
  *slope = q * (2 - q);
  return a < 0.625f ? x + x * (z * t) : copysignf(1 - q, x);
}

/* The score for q.k, and its derivative by scale * q.k. */
__device__ __forceinline__ float score_of(const attention_args &a, float dot, float *slope) {
  float score = dot * a.scale;
  *slope = 1;
  if (a.softcap <= 0) return score;
  return a.softcap * flat_tanh(score / a.softcap, slope);
}

/* ---- dropout of the probabilities ----
 *
 * A tile of queries and keys has a word for each query and 32 keys, whose bits say which stay. Eight lanes make a word, a
 * block of Philox each, which has elements 2j, 2j + 1 and those 16 behind them (ops/draw.h). */

template <int KEYS> struct drop_words {
  enum { COUNT = KEYS < HRI_DRAW_CHUNK ? 1 : KEYS / HRI_DRAW_CHUNK };
};

/* Of queries from `query` and keys from `key` on, which is a multiple of KEYS. */
template <int KEYS>
__device__ __forceinline__ void load_kept(const attention_args &a, const hri_shared<uint32_t> &kept, int64_t b,
                                          int head, int query, int queries, int key) {
  hri_global<const hri_control> control(a.control, 1);
  hri_control c = control[0];
  hri_draw draw = {c.seed, (uint64_t)c.step, a.site, (uint32_t)(c.row_base + b)};
  uint64_t philox = hri_draw_key(&draw), high = (uint64_t)a.site << 32 | draw.row;
  HRI_NO_UNROLL for (int i = (int)threadIdx.x; i < queries * drop_words<KEYS>::COUNT * HRI_DRAW_CHUNK_BLOCKS;
                     i += (int)blockDim.x) {
    int at = i / HRI_DRAW_CHUNK_BLOCKS, j = i % HRI_DRAW_CHUNK_BLOCKS;
    int block = (key / HRI_DRAW_CHUNK + at % drop_words<KEYS>::COUNT) * HRI_DRAW_CHUNK_BLOCKS + j;
    uint32_t word[4], line = (uint32_t)(query + at / drop_words<KEYS>::COUNT), bits;
    hri_philox(philox, high, (uint64_t)line << 32 | (uint32_t)(head << HRI_DRAW_HEAD_SHIFT | block), word);
    bits = (uint32_t)(word[0] >= a.threshold) | (uint32_t)(word[1] >= a.threshold) << 1 |
           (uint32_t)(word[2] >= a.threshold) << 16 | (uint32_t)(word[3] >= a.threshold) << 17;
    bits <<= 2 * j;
    for (int by = 1; by < HRI_DRAW_CHUNK_BLOCKS; by *= 2) bits |= __shfl_xor_sync(HRI_ALL_LANES, bits, by);
    if (j == 0) kept[at] = bits;
  }
}

/* Word `word` of a query's, so that bit 8 i + e is key 8 i + 2 t + e of its tile, which begins at `key`. */
template <int KEYS>
__device__ __forceinline__ uint32_t kept_of(const hri_shared<uint32_t> &kept, int query, int word, int key) {
  int t = (int)threadIdx.x % 4;
  return (uint32_t)kept[query * drop_words<KEYS>::COUNT + word] >>
         (2 * t + (KEYS < HRI_DRAW_CHUNK ? key % HRI_DRAW_CHUNK : 0));
}

/* ---- launching ---- */

static inline attention_args attention_args_of(const hri_attention_shape *s, float scale, const void *qkv,
                                               const int32_t *doc_start, const hri_control *control) {
  attention_args a = {};
  a.batch = s->batch, a.sequence = (int)s->sequence, a.window = (int)s->window;
  a.heads = (int)s->heads, a.kv_heads = (int)s->kv_heads, a.head_dim = (int)s->head_dim;
  a.scale = scale, a.softcap = (float)s->softcap;
  a.qkv = qkv, a.doc_start = doc_start;
  a.control = s->dropout > 0 ? control : nullptr, a.site = s->draw.site;
  a.threshold = hri_drop_threshold(s->dropout), a.factor = hri_drop_factor(s->dropout);
  return a;
}

/* What there is no kernel for. */
static inline bool attention_refused(const hri_attention_shape *s, const hri_control *control) {
  return s->head_dim > 256 || (s->dropout > 0 && !control);
}

static inline bool attention_rows_aligned(const hri_attention_shape *s, const void *x, const void *y) {
  return s->head_dim * hri_real_bytes(s->real) % 16 == 0 && ((uintptr_t)x | (uintptr_t)y) % 16 == 0;
}

#endif
