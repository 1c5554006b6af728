/* Times of the CUDA kernels at the sizes of real jobs, with the bytes and FLOPs that each has to move and make.
 *
 *   card_kernels [NAME ...]           on a card (-DHR_CUDA_LIBRARIES): seconds of each case, of NAME alone those that begin so
 *   bench_gpu_kernels --small [...]   on the GPU in software: every case once at a small size, to see that it is called right
 *   bench_gpu_kernels --dry [...]     nowhere: what each case launches at its real size (blocks, threads, shared memory)
 *
 * One JSON document goes to standard output. Bytes are those of operands and results, each once: what a perfect cache leaves.
 * FLOPs are of products alone, 2 for a multiplication and addition; of causal attention those that are not masked. A time is the
 * median of five runs of launches side by side, which last 30 ms each or more; operands are random numbers, no zeros, and larger
 * than the cache where the bound is bandwidth. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/real.h"
#include "base/rng.h"
#include "gpu/runtime.h"
#include "ops/cuda.h"
#include "program/quantization.h"
#ifndef HRI_TEST_CARD
#include "gpu/soft/runtime.h"
#endif

static struct {
  hri_gpu *gpu;
  hri_gpu_stream *stream;
  bool dry, small;
  void *random;  /* pinned: values that fill operands, over and over */
  uint64_t fake; /* addresses of a dry run */
} run;

enum { RANDOM_BYTES = 16 << 20, MOST_BUFFERS = 10, BATCHES = 5 };

static void must(hr_status status, const hr_error *error) {
  if (status == HR_OK) return;
  (void)fprintf(stderr, "kernels: %s\n", error->message);
  exit(1);
}
#define MUST(call, ...)                                                                                                \
  do {                                                                                                                 \
    hr_error error_ = {0};                                                                                             \
    must(run.gpu->calls->call(run.gpu, __VA_ARGS__, &error_), &error_);                                                \
  } while (0)

/* ---- operands ---- */

/* What moves: an operand is read, a result written, a state both, scratch not counted. */
typedef enum moves { READ = 1, WRITTEN = 2, BOTH = 3, SCRATCH = 0 } moves;

typedef struct bench_case {
  char shape[96];
  const char *kernels; /* their names in docs/cuda-kernels.md, in the order of the first launch of each */
  double flops, bytes;
  void *buffer[MOST_BUFFERS];
  int buffers;
  union {
    struct {
      hri_attention_shape shape;
      void *qkv, *y, *dy, *dqkv, *scratch;
      float *lse;
    } attention;
    struct {
      hri_attention_cache_shape shape;
      void *qkv, *keys, *values, *y, *scratch;
    } cached;
    hri_norm_args norm;
    hri_norm_backward_args norm_backward;
    hri_cuda_cross_entropy_args loss;
    struct {
      uint32_t optimizer;
      hri_cuda_update_args args;
    } update;
    hri_rope_args rope;
    hri_embed_args embed;
    struct {
      hri_embed_backward_args args;
      void *scratch;
    } embed_backward;
    hri_cuda_product_args product;
    struct {
      hri_quant_args args;
      hri_quant_layout layout;
      unsigned long long *bad;
    } quant;
    struct {
      void *y;
      const void *a, *b;
      float *sums, *scratch;
      int64_t rows, columns;
    } plain;
  } of;
  const hri_control *control;
} bench_case;

static uint64_t size_of(int64_t n, hri_real real) { return (uint64_t)n * hri_real_bytes(real); }

static void *memory(bench_case *c, uint64_t bytes) {
  void *device = NULL;
  if (c->buffers == MOST_BUFFERS) (void)fprintf(stderr, "kernels: a case has too many operands\n"), exit(1);
  if (bytes == 0) return NULL;
  if (run.dry) {
    run.fake = (run.fake + bytes + 4095) / 4096 * 4096;
    return (void *)(uintptr_t)(run.fake - bytes / 4096 * 4096); /* aligned; never looked at */
  }
  MUST(allocate, bytes, &device);
  c->buffer[c->buffers++] = device;
  return device;
}

/* Values of the pinned block, over and over. */
static void fill_random(void *device, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes && !run.dry; at += RANDOM_BYTES)
    MUST(copy, (char *)device + at, run.random, bytes - at < RANDOM_BYTES ? bytes - at : RANDOM_BYTES, run.stream);
}

static void upload(void *device, const void *bytes, uint64_t count) {
  void *host;
  if (run.dry) return;
  MUST(allocate_host, count, &host);
  memcpy(host, bytes, count);
  MUST(copy, device, host, count, run.stream);
  MUST(stream_finish, run.stream);
  MUST(release_host, host);
}

static void make_random(hri_real real) {
  for (int64_t i = 0; i < (int64_t)(RANDOM_BYTES / hri_real_bytes(real)) && !run.dry; i++) {
    uint32_t words[4];
    double sum = 0; /* of uniform numbers: near enough to a normal one, and quick */
    hri_philox(5, 2, (uint64_t)i, words);
    for (int k = 0; k < 4; k++) sum += words[k] * 0x1p-32;
    hri_real_put(run.random, i, (float)((sum - 2) * 1.7), real);
  }
}

/* n random elements. The pinned block holds one type at a time. */
static void *operand(bench_case *c, int64_t n, hri_real real, moves moved) {
  static int holds = -1;
  void *device = memory(c, size_of(n, real));
  if (holds != (int)real) make_random(real), holds = (int)real;
  fill_random(device, size_of(n, real));
  if (!run.dry) MUST(stream_finish, run.stream); /* of the pinned block */
  c->bytes += (double)size_of(n, real) * ((moved & READ) / READ + (moved & WRITTEN) / WRITTEN);
  return device;
}

/* One byte over and over: what has to be positive, codes, results. */
static void *constant(bench_case *c, int64_t n, uint8_t byte, uint64_t each, moves moved) {
  void *device = memory(c, (uint64_t)n * each);
  if (!run.dry && device) MUST(fill, device, byte, (uint64_t)n * each, run.stream);
  c->bytes += (double)n * (double)each * ((moved & READ) / READ + (moved & WRITTEN) / WRITTEN);
  return device;
}

/* Numbers below `limit`, as tokens have them: few of them often. */
static int32_t *indices(bench_case *c, int64_t n, int64_t limit) {
  int32_t *ids = malloc((size_t)n * sizeof *ids), *device = memory(c, (uint64_t)n * sizeof *ids);
  if (!ids) exit(1);
  for (int64_t i = 0; i < n; i++) {
    uint32_t words[4];
    hri_philox(9, 3, (uint64_t)i, words);
    ids[i] = (int32_t)((double)(limit - 1) * pow(hri_uniform(words[0], words[1]), 3));
  }
  upload(device, ids, (uint64_t)n * sizeof *ids);
  free(ids);
  c->bytes += (double)n * sizeof *ids;
  return device;
}
static int32_t *counting(bench_case *c, int64_t n, int64_t period) {
  int32_t *ids = malloc((size_t)n * sizeof *ids), *device = memory(c, (uint64_t)n * sizeof *ids);
  if (!ids) exit(1);
  for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(i % period);
  upload(device, ids, (uint64_t)n * sizeof *ids);
  free(ids);
  return device;
}

static void control_of(bench_case *c, int64_t past, int64_t rows) {
  hri_control control = {.learning_rate = 1e-4,
                         .inv_tokens = 1e-5,
                         .loss_scale = 1,
                         .clip_scale = 1,
                         .applied_steps = 3};
  control.cache_length = past, control.row_count = rows, control.seed = 7, control.step = 2;
  void *device = memory(c, sizeof control);
  upload(device, &control, sizeof control);
  c->control = device;
}

static void shape(bench_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void shape(bench_case *c, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(c->shape, sizeof c->shape, format, arguments);
  va_end(arguments);
}

static int64_t pick(int64_t full, int64_t small) { return run.small ? small : full; }

/* ---- attention ---- */

static void attention_of(bench_case *c, int64_t b, int64_t t, int64_t h, int64_t k, int64_t d, bool backward) {
  hri_attention_shape s = {.batch = pick(b, 1),
                           .sequence = pick(t, 48),
                           .heads = pick(h, 2 * h / k),
                           .kv_heads = pick(k, 2)};
  s.head_dim = d, s.real = HRI_REAL_BF16;
  int64_t rows = s.batch * s.sequence, width = (s.heads + 2 * s.kv_heads) * d;
  c->of.attention.shape = s;
  c->of.attention.qkv = operand(c, rows * width, s.real, READ);
  c->of.attention.y = operand(c, rows * s.heads * d, s.real, backward ? READ : WRITTEN);
  c->of.attention.lse = constant(c, rows * s.heads, 0x40, 4, backward ? READ : WRITTEN); /* 3: of many keys */
  if (backward) {
    c->of.attention.dy = operand(c, rows * s.heads * d, s.real, READ);
    c->of.attention.dqkv = operand(c, rows * width, s.real, WRITTEN);
    c->of.attention.scratch = memory(c, hri_cuda_attention_backward_scratch_bytes(&s));
  }
  /* two products forward, five backward, over half of T x T */
  c->flops =
      (backward ? 5 : 2) * 2.0 * (double)(s.batch * s.heads * d) * (double)s.sequence * (double)(s.sequence + 1) / 2;
  shape(c, "B=%" PRId64 " T=%" PRId64 " heads %" PRId64 "/%" PRId64 " of %" PRId64 ", bf16", s.batch, s.sequence,
        s.heads, s.kv_heads, d);
}
static int attention(const bench_case *c) {
  return hri_cuda_attention(&c->of.attention.shape, 0.0883883f, c->of.attention.qkv, NULL, c->of.attention.y,
                            c->of.attention.lse, NULL, run.stream);
}
static int attention_backward(const bench_case *c) {
  return hri_cuda_attention_backward(&c->of.attention.shape, 0.0883883f, c->of.attention.dy, c->of.attention.qkv,
                                     c->of.attention.y, c->of.attention.lse, NULL, c->of.attention.dqkv, NULL,
                                     c->of.attention.scratch, run.stream);
}
#define ATTENTION(name, b, t, h, k, d)                                                                                 \
  static void name(bench_case *c) { attention_of(c, b, t, h, k, d, false); }                                           \
  static void name##_backward(bench_case *c) { attention_of(c, b, t, h, k, d, true); }
ATTENTION(attention_4k, 4, 4096, 16, 16, 128)
ATTENTION(attention_16k, 1, 16384, 16, 16, 128)
ATTENTION(attention_llama, 4, 4096, 32, 8, 128)
ATTENTION(attention_gpt2, 64, 1024, 12, 12, 64)

/* A new position of each row over a cache that is full but for it. */
static void decode_case(bench_case *c) {
  hri_attention_cache_shape s = {.batch = pick(16, 1), .rows = 1, .capacity = pick(8192, 64), .heads = pick(32, 4)};
  s.kv_heads = pick(8, 2), s.head_dim = 128, s.real = HRI_REAL_BF16;
  int64_t n = hri_attention_cache_elements(&s);
  control_of(c, s.capacity - 1, 1);
  c->of.cached.shape = s;
  c->of.cached.qkv = operand(c, s.batch * (s.heads + 2 * s.kv_heads) * s.head_dim, s.real, READ);
  c->of.cached.keys = operand(c, n, s.real, READ);
  c->of.cached.values = operand(c, n, s.real, READ);
  c->of.cached.y = operand(c, s.batch * s.heads * s.head_dim, s.real, WRITTEN);
  c->of.cached.scratch = memory(c, hri_cuda_attention_cached_scratch_bytes(&s));
  c->flops = 4.0 * (double)(s.batch * s.heads * s.head_dim * s.capacity);
  shape(c, "B=%" PRId64 " past %" PRId64 " heads %" PRId64 "/%" PRId64 " of 128, bf16", s.batch, s.capacity - 1,
        s.heads, s.kv_heads);
}
static int decode(const bench_case *c) {
  return hri_cuda_attention_cached(&c->of.cached.shape, 0.0883883f, c->of.cached.qkv, c->of.cached.keys,
                                   c->of.cached.values, c->control, c->of.cached.y, c->of.cached.scratch, run.stream);
}

/* ---- rows ---- */

static void rows_shape(bench_case *c, int64_t rows, int64_t columns, const char *types) {
  shape(c, "%" PRId64 " x %" PRId64 ", %s", rows, columns, types);
}

static void norm_of(bench_case *c, int64_t rows, int64_t columns, bool layer) {
  hri_norm_args a = {.rows = pick(rows, 9), .columns = pick(columns, 136), .real = HRI_REAL_BF16, .eps = 1e-5};
  int64_t n = a.rows * a.columns;
  a.x = operand(c, n, a.real, READ), a.residual = operand(c, n, a.real, READ), a.s = operand(c, n, a.real, WRITTEN);
  a.y = operand(c, n, a.real, WRITTEN), a.weight = operand(c, a.columns, HRI_REAL_F32, READ);
  a.bias = layer ? operand(c, a.columns, HRI_REAL_F32, READ) : NULL;
  a.stats = constant(c, a.rows * (layer ? 2 : 1), 0, 4, WRITTEN);
  c->of.norm = a;
  rows_shape(c, a.rows, a.columns, "bf16, with the residual's sum");
}
static void norm_backward_of(bench_case *c, int64_t rows, int64_t columns, bool layer) {
  hri_norm_backward_args a = {.rows = pick(rows, 70), .columns = pick(columns, 136), .real = HRI_REAL_BF16};
  int64_t n = a.rows * a.columns;
  a.dy = operand(c, n, a.real, READ), a.x = operand(c, n, a.real, READ), a.extra = operand(c, n, a.real, READ);
  a.dx = operand(c, n, a.real, WRITTEN), a.weight = operand(c, a.columns, HRI_REAL_F32, READ);
  a.stats = constant(c, a.rows * (layer ? 2 : 1), 0x3F, 4, READ);
  a.dweight = operand(c, a.columns, HRI_REAL_F32, BOTH), a.accumulate = true;
  a.dbias = layer ? operand(c, a.columns, HRI_REAL_F32, BOTH) : NULL;
  a.scratch = memory(c, hri_cuda_norm_backward_scratch_bytes(a.rows, a.columns));
  c->of.norm_backward = a;
  rows_shape(c, a.rows, a.columns, "bf16, with the residual's gradient");
}
static void rmsnorm_case(bench_case *c) { norm_of(c, 16384, 4096, false); }
static void layernorm_case(bench_case *c) { norm_of(c, 65536, 768, true); }
static void rmsnorm_backward_case(bench_case *c) { norm_backward_of(c, 16384, 4096, false); }
static void layernorm_backward_case(bench_case *c) { norm_backward_of(c, 65536, 768, true); }
static int rmsnorm(const bench_case *c) { return hri_cuda_rmsnorm(&c->of.norm, run.stream); }
static int layernorm(const bench_case *c) { return hri_cuda_layernorm(&c->of.norm, run.stream); }
static int rmsnorm_backward(const bench_case *c) { return hri_cuda_rmsnorm_backward(&c->of.norm_backward, run.stream); }
static int layernorm_backward(const bench_case *c) {
  return hri_cuda_layernorm_backward(&c->of.norm_backward, run.stream);
}

static void loss_case(bench_case *c) {
  hri_cuda_cross_entropy_args a = {.rows = pick(8192, 5), .vocabulary = pick(50257, 130), .stored = pick(50304, 136)};
  a.real = HRI_REAL_BF16;
  control_of(c, 0, 0);
  a.dlogits = operand(c, a.rows * a.stored, a.real, BOTH), a.logits = a.dlogits;
  a.labels = indices(c, a.rows, a.vocabulary), a.losses = constant(c, a.rows, 0, 4, WRITTEN), a.control = c->control;
  c->of.loss = a;
  rows_shape(c, a.rows, a.stored, "bf16, gradient over the logits");
}
static int loss(const bench_case *c) { return hri_cuda_cross_entropy(&c->of.loss, run.stream); }

static void rope_case(bench_case *c) {
  hri_rope_args a = {.rows = pick(16384, 5),
                     .heads = pick(32, 2),
                     .kv_heads = pick(8, 1),
                     .head_size = 128,
                     .rotary_size = 128};
  int64_t width = (a.heads + 2 * a.kv_heads) * a.head_size, positions = pick(4096, 8);
  a.real = HRI_REAL_BF16;
  a.x = a.y = operand(c, a.rows * width, a.real, SCRATCH);
  c->bytes +=
      2 * (double)size_of(a.rows * (a.heads + a.kv_heads) * a.head_size, a.real); /* not the values beside them */
  a.cosines = operand(c, positions * 64, HRI_REAL_F32, READ), a.sines = operand(c, positions * 64, HRI_REAL_F32, READ);
  a.position = counting(c, a.rows, positions);
  c->of.rope = a;
  rows_shape(c, a.rows, width, "bf16, in place");
}
static int rope(const bench_case *c) { return hri_cuda_rope(&c->of.rope, run.stream); }

static void embed_case(bench_case *c) {
  hri_embed_args a = {.rows = pick(65536, 7), .columns = pick(768, 40), .real = HRI_REAL_BF16, .factor = 1};
  a.tokens = operand(c, pick(50304, 30) * a.columns, a.real, SCRATCH), a.ids = indices(c, a.rows, pick(50257, 30));
  a.y = operand(c, a.rows * a.columns, a.real, BOTH); /* each row of it is read from the table */
  c->of.embed = a;
  rows_shape(c, a.rows, a.columns, "bf16");
}
static int embed(const bench_case *c) { return hri_cuda_embed(&c->of.embed, run.stream); }

static void embed_backward_case(bench_case *c) {
  hri_embed_backward_args a = {.rows = pick(65536, 70), .columns = pick(768, 40), .real = HRI_REAL_BF16, .factor = 1};
  a.stored_rows = pick(50304, 300), a.skip_index = -1, a.accumulate = true;
  a.dy = operand(c, a.rows * a.columns, a.real, READ), a.index = indices(c, a.rows, pick(50257, 300));
  a.dtable = operand(c, a.stored_rows * a.columns, HRI_REAL_F32, BOTH);
  c->of.embed_backward.args = a;
  c->of.embed_backward.scratch = memory(c, hri_cuda_embed_backward_scratch_bytes(a.rows));
  rows_shape(c, a.rows, a.columns, "bf16 into fp32, of half the table at most");
}
static int embed_backward(const bench_case *c) {
  return hri_cuda_embed_backward(&c->of.embed_backward.args, c->of.embed_backward.scratch, run.stream);
}

/* ---- elements ---- */

static void plain_of(bench_case *c, int64_t rows, int64_t columns, int results, int operands, bool second) {
  int64_t r = pick(rows, 6), n = pick(columns, 64);
  c->of.plain.rows = r, c->of.plain.columns = n;
  c->of.plain.a = operand(c, r * n * operands, HRI_REAL_BF16, READ);
  c->of.plain.b = second ? operand(c, r * n, HRI_REAL_BF16, READ) : NULL;
  c->of.plain.y = operand(c, r * n * results, HRI_REAL_BF16, WRITTEN);
  rows_shape(c, r, n, "bf16");
}
static void add_case(bench_case *c) { plain_of(c, 16384, 4096, 1, 1, true); }
static int add(const bench_case *c) {
  return hri_cuda_add(c->of.plain.y, c->of.plain.a, c->of.plain.b, c->of.plain.rows * c->of.plain.columns,
                      HRI_REAL_BF16, run.stream);
}
static void gelu_case(bench_case *c) { plain_of(c, 65536, 3072, 1, 1, false); }
static int gelu(const bench_case *c) {
  return hri_cuda_activation(HR_ACTIVATION_GELU_TANH, c->of.plain.y, c->of.plain.a,
                             c->of.plain.rows * c->of.plain.columns, HRI_REAL_BF16, run.stream);
}
static void gelu_backward_case(bench_case *c) { plain_of(c, 65536, 3072, 1, 1, true); }
static int gelu_backward(const bench_case *c) {
  return hri_cuda_activation_backward(HR_ACTIVATION_GELU_TANH, c->of.plain.y, c->of.plain.b, c->of.plain.a,
                                      c->of.plain.rows * c->of.plain.columns, HRI_REAL_BF16, run.stream);
}
static void swiglu_case(bench_case *c) { plain_of(c, 16384, 14336, 1, 2, false); }
static int swiglu(const bench_case *c) {
  return hri_cuda_glu(HR_ACTIVATION_SILU, c->of.plain.y, c->of.plain.a, c->of.plain.rows, c->of.plain.columns,
                      HRI_REAL_BF16, run.stream);
}
static void swiglu_backward_case(bench_case *c) { plain_of(c, 16384, 14336, 2, 2, true); }
static int swiglu_backward(const bench_case *c) {
  return hri_cuda_glu_backward(HR_ACTIVATION_SILU, c->of.plain.y, c->of.plain.b, c->of.plain.a, c->of.plain.rows,
                               c->of.plain.columns, HRI_REAL_BF16, run.stream);
}
static void copy_case(bench_case *c) { plain_of(c, 16384, 16384, 1, 1, false); }
static int copy(const bench_case *c) {
  int64_t bytes = c->of.plain.columns * 2;
  return hri_cuda_copy_rows(c->of.plain.y, bytes, c->of.plain.a, bytes, bytes, c->of.plain.rows, run.stream);
}

static void cast_case(bench_case *c) {
  int64_t n = pick(1 << 27, 600);
  c->of.plain.rows = n, c->of.plain.columns = 1;
  c->of.plain.a = operand(c, n, HRI_REAL_F32, READ), c->of.plain.y = operand(c, n, HRI_REAL_BF16, WRITTEN);
  shape(c, "%" PRId64 ", fp32 to bf16", n);
}
static int cast(const bench_case *c) {
  return hri_cuda_cast(c->of.plain.y, HRI_REAL_BF16, c->of.plain.a, HRI_REAL_F32, c->of.plain.rows, run.stream);
}

static void bias_case(bench_case *c) {
  int64_t rows = pick(65536, 70), columns = pick(3072, 40);
  c->of.plain.rows = rows, c->of.plain.columns = columns;
  c->of.plain.a = operand(c, rows * columns, HRI_REAL_BF16, READ);
  c->of.plain.sums = operand(c, columns, HRI_REAL_F32, BOTH);
  c->of.plain.scratch = memory(c, hri_cuda_bias_gradient_scratch_bytes(rows, columns));
  rows_shape(c, rows, columns, "bf16 into fp32");
}
static int bias(const bench_case *c) {
  return hri_cuda_bias_gradient(c->of.plain.sums, c->of.plain.a, c->of.plain.rows, c->of.plain.columns, true,
                                c->of.plain.scratch, HRI_REAL_BF16, run.stream);
}

static void square_case(bench_case *c) {
  int64_t n = pick(1 << 28, 70000);
  c->of.plain.rows = n;
  c->of.plain.a = operand(c, n, HRI_REAL_BF16, READ);
  c->of.plain.y = constant(c, (n + 65535) / 65536, 0, 8, WRITTEN);
  shape(c, "%" PRId64 ", bf16", n);
}
static int square(const bench_case *c) {
  return hri_cuda_square_sum(c->of.plain.y, c->of.plain.a, HRI_REAL_BF16, c->of.plain.rows, run.stream);
}

/* ---- optimizers, weights ---- */

static void update_of(bench_case *c, uint32_t optimizer, bool masters, hri_real states, int64_t full) {
  hri_cuda_update_args a = {.number = {0.9, 0.95, 1e-8}, .weight_decay = 0.1};
  int64_t n = a.u.n = pick(full, 1100);
  bool blocks = optimizer == HR_OPTIMIZER_ADAMW8BIT;
  control_of(c, 0, 0);
  a.control = c->control;
  a.u.w_real = HRI_REAL_BF16, a.u.state_real = states, a.u.gradient_real = masters ? HRI_REAL_F32 : HRI_REAL_BF16;
  a.u.w = operand(c, n, HRI_REAL_BF16, BOTH), a.u.g = operand(c, n, a.u.gradient_real, READ);
  if (masters) a.u.low = operand(c, n, HRI_REAL_BF16, BOTH);
  for (int k = 0; k < 2; k++) /* 0x3F..: positive in every type; codes: any */
    a.u.state[k] = constant(c, n, 0x3C, blocks ? 1 : hri_real_bytes(states), BOTH);
  for (int k = 2; k < 4 && blocks; k++) a.u.state[k] = constant(c, (n + 255) / 256, 0x3C, 4, BOTH);
  c->of.update.optimizer = optimizer, c->of.update.args = a;
  shape(c, "%" PRId64 ", bf16 weights%s, %s", n, masters ? " with the low halves of fp32 masters" : "",
        blocks                   ? "states of 8 bits"
        : states == HRI_REAL_F32 ? "fp32 moments"
                                 : "bf16 moments");
}
static void adamw_case(bench_case *c) { update_of(c, HR_OPTIMIZER_ADAMW, true, HRI_REAL_F32, 1 << 27); }
static void adamw_pure_case(bench_case *c) { update_of(c, HR_OPTIMIZER_ADAMW, false, HRI_REAL_BF16, 1 << 28); }
static void adamw8bit_case(bench_case *c) { update_of(c, HR_OPTIMIZER_ADAMW8BIT, false, HRI_REAL_F32, 1 << 28); }
static int update(const bench_case *c) {
  return hri_cuda_update(c->of.update.optimizer, &c->of.update.args, run.stream);
}

static void quant_of(bench_case *c, bool back) {
  uint64_t rows = (uint64_t)pick(14336, 6), columns = (uint64_t)pick(4096, 72);
  hri_quant_args a = {.kind = HRI_QUANTIZATION_NF4_DQ, .real = HRI_REAL_BF16};
  if (!hri_quant_layout_make(a.kind, &rows, NULL, 1, columns, &c->of.quant.layout)) exit(1);
  const hri_quant_layout *l = &c->of.quant.layout;
  a.w = operand(c, (int64_t)(rows * columns), a.real, back ? WRITTEN : READ);
  a.codes = constant(c, (int64_t)l->code_bytes, 0x6B, 1, back ? READ : WRITTEN);
  a.absmax = constant(c, (int64_t)l->absmax_count, 0x91, 1, back ? READ : WRITTEN);
  a.nested = constant(c, (int64_t)l->nested_count, 0x3C, 4, back ? READ : WRITTEN);
  a.scratch = memory(c, hri_quant_scratch_bytes(a.kind, l));
  c->of.quant.bad = constant(c, 1, 0, 8, SCRATCH);
  c->of.quant.args = a;
  rows_shape(c, (int64_t)rows, (int64_t)columns, "nf4+dq and bf16");
}
static void dequantize_case(bench_case *c) { quant_of(c, true); }
static void quantize_case(bench_case *c) { quant_of(c, false); }
static int dequantize(const bench_case *c) {
  hri_quant_args a = c->of.quant.args;
  a.layout = &c->of.quant.layout;
  return hri_cuda_dequantize(&a, run.stream);
}
static int quantize(const bench_case *c) {
  hri_quant_args a = c->of.quant.args;
  a.layout = &c->of.quant.layout;
  return hri_cuda_quantize(&a, c->of.quant.bad, run.stream);
}

/* y = x w^T: one row of a decoded token, and a LoRA's two thin sides in fp32 beside bf16. */
static void product_of(bench_case *c, int64_t m, int64_t n, int64_t k, hri_real a_real, hri_real b_real,
                       hri_real c_real) {
  hri_cuda_product_args p = {.m = pick(m, m == 1 ? 1 : 33),
                             .n = pick(n, n < 64 ? n : 70),
                             .k = pick(k, k < 64 ? k : 130)};
  p.a_real = a_real, p.b_real = b_real, p.c_real = c_real, p.a_row = p.b_row = p.k, p.a_column = p.b_column = 1,
  p.c_row = p.n;
  p.a = operand(c, p.m * p.k, a_real, READ), p.b = operand(c, p.n * p.k, b_real, READ);
  p.c = operand(c, p.m * p.n, c_real, WRITTEN);
  p.scratch = memory(c, hri_cuda_product_scratch_bytes(&p));
  c->of.product = p;
  c->flops = 2.0 * (double)p.m * (double)p.n * (double)p.k;
  shape(c, "%" PRId64 " x %" PRId64 " x %" PRId64, p.m, p.n, p.k);
}
static void decode_product_case(bench_case *c) {
  product_of(c, 1, 28672, 4096, HRI_REAL_BF16, HRI_REAL_BF16, HRI_REAL_BF16);
}
static void lora_down_case(bench_case *c) { product_of(c, 4096, 16, 4096, HRI_REAL_BF16, HRI_REAL_F32, HRI_REAL_F32); }
static void lora_up_case(bench_case *c) { product_of(c, 4096, 4096, 16, HRI_REAL_F32, HRI_REAL_F32, HRI_REAL_BF16); }
static int product(const bench_case *c) { return hri_cuda_product(&c->of.product, run.stream); }

/* ---- all of them, the most wanted first ---- */

static const struct {
  const char *name;
  void (*make)(bench_case *c);
  int (*launch)(const bench_case *c);
  const char *kernels;
} all[] = {
#define FORWARD(columns) "attention_kernel<hri_bf16_t, " columns ">"
#define BACKWARD(columns)                                                                                              \
  "attention_delta_kernel<hri_bf16_t>;attention_keys_kernel<hri_bf16_t, " columns                                      \
  ">;attention_queries_kernel<hri_bf16_t, " columns ">"
    {"copy", copy_case, copy, "move_kernel<unit16>"},
    {"attention T=4096", attention_4k, attention, FORWARD("128")},
    {"attention_backward T=4096", attention_4k_backward, attention_backward, BACKWARD("128")},
    {"attention T=16384", attention_16k, attention, FORWARD("128")},
    {"attention_backward T=16384", attention_16k_backward, attention_backward, BACKWARD("128")},
    {"attention llama-3-8b", attention_llama, attention, FORWARD("128")},
    {"attention_backward llama-3-8b", attention_llama_backward, attention_backward, BACKWARD("128")},
    {"attention gpt2-124m", attention_gpt2, attention, FORWARD("64")},
    {"attention_backward gpt2-124m", attention_gpt2_backward, attention_backward, BACKWARD("64")},
    {"attention_cached", decode_case, decode,
     "append_kernel<hri_bf16_t>;cached_kernel<hri_bf16_t, 8>;fold_kernel<hri_bf16_t>"},
    {"product of one row", decode_product_case, product, "thin_vector_kernel<hri_bf16_t, hri_bf16_t>"},
    {"layernorm", layernorm_case, layernorm, "norm_kernel<hri_bf16_t, true, 8>"},
    {"layernorm_backward", layernorm_backward_case, layernorm_backward,
     "norm_rows_kernel<hri_bf16_t, true>;hri_fold_columns_kernel;norm_backward_kernel<hri_bf16_t, true, 8>"},
    {"rmsnorm", rmsnorm_case, rmsnorm, "norm_kernel<hri_bf16_t, false, 8>"},
    {"rmsnorm_backward", rmsnorm_backward_case, rmsnorm_backward,
     "norm_rows_kernel<hri_bf16_t, false>;hri_fold_columns_kernel;norm_backward_kernel<hri_bf16_t, false, 8>"},
    {"cross_entropy", loss_case, loss, "cross_entropy_kernel<hri_bf16_t, 8>"},
    {"adamw", adamw_case, update, "update_kernel<0>"},
    {"adamw bf16-pure", adamw_pure_case, update, "update_kernel<0>"},
    {"adamw8bit", adamw8bit_case, update, "blocks_kernel<false>"},
    {"gelu", gelu_case, gelu, "map_kernel<hri_bf16_t, 8, activation_op>"},
    {"gelu_backward", gelu_backward_case, gelu_backward, "map_kernel<hri_bf16_t, 8, activation_backward_op>"},
    {"swiglu", swiglu_case, swiglu, "glu_kernel<hri_bf16_t, 8>"},
    {"swiglu_backward", swiglu_backward_case, swiglu_backward, "glu_backward_kernel<hri_bf16_t, 8>"},
    {"rope", rope_case, rope, "rope_kernel<hri_bf16_t, 8>"},
    {"embed", embed_case, embed, "embed_kernel<hri_bf16_t>"},
    {"embed_backward", embed_backward_case, embed_backward,
     "order_begin_kernel;order_count_kernel;order_scan_kernel;order_move_kernel;embed_backward_kernel<hri_bf16_t>"},
    {"bias_gradient", bias_case, bias, "column_sums_kernel<hri_bf16_t>;hri_fold_columns_kernel"},
    {"add", add_case, add, "map_kernel<hri_bf16_t, 8, add_op>"},
    {"cast", cast_case, cast, "cast_kernel<float, hri_bf16_t, 4>"},
    {"square_sum", square_case, square, "square_sum_kernel<hri_bf16_t>"},
    {"dequantize nf4+dq", dequantize_case, dequantize, "dequantize_blocks_kernel<hri_bf16_t>"},
    {"quantize nf4+dq", quantize_case, quantize,
     "quantize_blocks_kernel<hri_bf16_t>;nested_mean_kernel;nested_codes_kernel;nested_overflow_kernel<hri_bf16_t>"},
    {"lora down", lora_down_case, product, "tile_product_kernel;fold_product_kernel"},
    {"lora up", lora_up_case, product, "tile_product_kernel"},
};

/* ---- what a dry run sees ---- */

enum { MOST_LAUNCHES = 64 };
typedef struct launched {
  char kernel[64];
  uint64_t blocks;
  uint32_t threads, shared_bytes, times;
} launched;
static launched seen[MOST_LAUNCHES];
static int seen_count;

#ifndef HRI_TEST_CARD
int __real_hri_gpu_soft_launch(hri_gpu_stream *stream, const hri_soft_launch *launch);
int __wrap_hri_gpu_soft_launch(hri_gpu_stream *stream, const hri_soft_launch *launch);

/* The linker has launches come here (--wrap): a dry run notes them and carries nothing out. */
int __wrap_hri_gpu_soft_launch(hri_gpu_stream *stream, const hri_soft_launch *launch) {
  const char *name = launch->kernel + (launch->kernel[0] == '(');
  launched l = {.threads = launch->threads.x * launch->threads.y * launch->threads.z,
                .shared_bytes = launch->shared_bytes};
  l.blocks = (uint64_t)launch->blocks.x * launch->blocks.y * launch->blocks.z, l.times = 1;
  (void)snprintf(l.kernel, sizeof l.kernel, "%.*s", (int)strcspn(name, "<"), name);
  if (!run.dry) return __real_hri_gpu_soft_launch(stream, launch);
  launch->drop(launch->context);
  for (int k = 0; k < seen_count; k++)
    if (strcmp(seen[k].kernel, l.kernel) == 0 && seen[k].blocks == l.blocks && seen[k].threads == l.threads)
      return (void)seen[k].times++, 0;
  if (seen_count < MOST_LAUNCHES) seen[seen_count++] = l;
  return 0;
}
#endif

/* ---- timing ---- */

static double now(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double batch(int k, const bench_case *c, int times) {
  hr_error error = {0};
  double begin = now();
  for (int i = 0; i < times; i++)
    if (all[k].launch(c) != 0) (void)fprintf(stderr, "kernels: %s was refused\n", all[k].name), exit(1);
  must(run.gpu->calls->stream_finish(run.gpu, run.stream, &error), &error);
  return now() - begin;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Seconds of one call: the median of the batches, and the least and most of them. */
static void time_case(int k, const bench_case *c, double seconds[3]) {
  double all_of[BATCHES], once;
  int times = 1, count = run.small ? 1 : BATCHES;
  (void)batch(k, c, 1);
  if (!run.small) { /* ten side by side: one alone is mostly the waiting for it */
    once = batch(k, c, 10) / 10;
    times = (int)(0.03 / (once > 1e-7 ? once : 1e-7)) + 1;
  }
  if (times > 20000) times = 20000;
  for (int i = 0; i < count; i++) all_of[i] = batch(k, c, times) / times;
  qsort(all_of, (size_t)count, sizeof *all_of, by_size);
  seconds[0] = all_of[count / 2], seconds[1] = all_of[0], seconds[2] = all_of[count - 1];
}

static bool wanted(const char *name, char *const *names, int count) {
  for (int i = 0; i < count; i++)
    if (strncmp(name, names[i], strlen(names[i])) == 0) return true;
  return count == 0;
}

static void one(int k, bool first) {
  bench_case c = {.kernels = all[k].kernels};
  double seconds[3];
  all[k].make(&c);
  (void)printf("%s\n    {\"name\": \"%s\", \"shape\": \"%s\", \"flops\": %.6g, \"bytes\": %.6g, \"kernels\": \"%s\"",
               first ? "" : ",", all[k].name, c.shape, c.flops, c.bytes, c.kernels);
  if (run.dry) {
    seen_count = 0;
    if (all[k].launch(&c) != 0) exit(1);
    (void)printf(", \"launches\": [");
    for (int i = 0; i < seen_count; i++)
      (void)printf("%s{\"kernel\": \"%s\", \"blocks\": %" PRIu64
                   ", \"threads\": %u, \"shared_bytes\": %u, \"times\": %u}",
                   i ? ", " : "", seen[i].kernel, seen[i].blocks, seen[i].threads, seen[i].shared_bytes, seen[i].times);
    (void)printf("]}");
    return;
  }
  time_case(k, &c, seconds);
  (void)printf(", \"seconds\": %.6g, \"least_seconds\": %.6g, \"most_seconds\": %.6g}", seconds[0], seconds[1],
               seconds[2]);
  (void)fprintf(stderr, "%-30s %-44s %10.1f us\n", all[k].name, c.shape, seconds[0] * 1e6);
  while (c.buffers > 0) MUST(release, c.buffer[--c.buffers]);
}

static void open_gpu(void) {
  hr_error error = {0};
#ifdef HRI_TEST_CARD
  must(hri_gpu_cuda_open(0, &run.gpu, &error), &error);
#else
  hri_gpu_soft_options options = {.seed = 1};
  must(hri_gpu_soft_open(&options, &run.gpu, &error), &error);
#endif
  must(run.gpu->calls->stream_create(run.gpu, &run.stream, &error), &error);
  MUST(allocate_host, RANDOM_BYTES, &run.random);
}

static int found(void) {
#ifndef HRI_TEST_CARD
  const hri_soft_report *r = hri_gpu_soft_report(run.gpu);
  if (r->count) return (void)fprintf(stderr, "kernels: %llu findings: %s\n", (unsigned long long)r->count, r->first), 1;
#endif
  return 0;
}

int main(int argc, char **argv) {
  hri_gpu_info info = {.name = "none"};
  int begin = 1, bad = 0;
  bool first = true;
  for (; begin < argc && argv[begin][0] == '-'; begin++) {
    if (strcmp(argv[begin], "--small") == 0) run.small = true;
    else if (strcmp(argv[begin], "--dry") == 0) run.dry = true;
    else return (void)fprintf(stderr, "kernels: unknown option %s (--small, --dry)\n", argv[begin]), 2;
  }
#ifdef HRI_TEST_CARD
  run.dry = false;
#else
  if (!run.dry && !run.small)
    return (void)fprintf(stderr, "kernels: there is no card in this program: --small or --dry\n"), 2;
#endif
  run.fake = (uint64_t)1 << 40;
  if (!run.dry) {
    open_gpu();
    MUST(info, &info);
  }
  (void)printf("{\"card\": \"%s\", \"compute_capability\": \"%u.%u\", \"multiprocessors\": %u, \"cases\": [", info.name,
               info.major, info.minor, info.multiprocessors);
  for (int k = 0; k < (int)(sizeof all / sizeof *all); k++)
    if (wanted(all[k].name, argv + begin, argc - begin)) one(k, first), first = false;
  (void)printf("\n]}\n");
  if (!run.dry) {
    bad = found();
    run.gpu->calls->stream_destroy(run.gpu, run.stream);
    (void)run.gpu->calls->release_host(run.gpu, run.random, NULL);
    run.gpu->calls->close(run.gpu);
  }
  return bad || first ? 1 : 0;
}
