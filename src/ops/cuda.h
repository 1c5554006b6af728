/* The CUDA kernels that are ours. Each function queues the kernels of one op in `stream` (gpu/runtime.h) and returns 0, or
 * -1 when the launch was refused. They are compiled by nvcc for the card and by a C++ compiler for the GPU in software, with
 * the same results within rounding; the bits of each are the same from run to run.
 *
 * Operands are device memory and mean what they mean in ops/cpu.h, whose structs are taken where nothing changes from step
 * to step; `team` is not looked at. Scratch is what hri_cuda_..._scratch_bytes says, functions of sizes that no card is
 * asked for (cuda_demand.c). Aliasing is allowed where cpu.h allows it. What a program reads from the control block
 * (learning rate, scales, step) is read from the one on the device. Rows and columns of any size; 0 is fine. */
#ifndef HRI_OPS_CUDA_H
#define HRI_OPS_CUDA_H

#include "ops/attention/shape.h"
#include "ops/cpu.h"
#include "ops/cuda_sizes.h"
#include "program/job.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- move ---- */
int hri_cuda_cast(void *to, hri_real to_real, const void *from, hri_real from_real, int64_t n, void *stream);
int hri_cuda_fill(float *y, float value, int64_t n, void *stream);
/* hri_split and hri_join of n elements. */
int hri_cuda_split(hri_bf16 *high, uint16_t *low, const float *from, int64_t n, void *stream);
int hri_cuda_join(float *to, const hri_bf16 *high, const uint16_t *low, int64_t n, void *stream);

/* y = x, or y += x, of rows of columns; strides in elements, from row to row. */
typedef struct hri_cuda_accumulate_args {
  void *y;
  const void *x;
  hri_real y_real, x_real;
  int64_t y_stride, x_stride, rows, columns;
  bool adds;
} hri_cuda_accumulate_args;
int hri_cuda_accumulate(const hri_cuda_accumulate_args *args, void *stream);
/* Rows of `width` bytes, `pitch` bytes apart. */
int hri_cuda_copy_rows(void *to, int64_t to_pitch, const void *from, int64_t from_pitch, int64_t width, int64_t rows,
                       void *stream);
/* Slice control->micro_index of `slices`, and row control->row_count - 1 of `rows`, of so many bytes each. */
int hri_cuda_select(void *to, const void *from, int64_t slices, int64_t bytes, const hri_control *control,
                    void *stream);
int hri_cuda_last_row(void *to, const void *from, int64_t rows, int64_t bytes, const hri_control *control,
                      void *stream);

/* ---- linear ---- */
uint64_t hri_cuda_bias_gradient_scratch_bytes(int64_t rows, int64_t columns);
int hri_cuda_bias_gradient(float *db, const void *dy, int64_t rows, int64_t columns, bool accumulate, float *scratch,
                           hri_real real, void *stream);

/* c[i * c_row + j] (+)= the sum over k < K of a[i * a_row + k * a_column] b[j * b_row + k * b_column] (+ bias[j]), i < M, j < N:
 * the three products of a linear layer by their steps, each operand of any type; of row and column steps of an operand one is
 * 1. For what is too thin or too mixed for a library of products. */
typedef struct hri_cuda_product_args {
  int64_t m, n, k;
  const void *a, *b;
  void *c; /* overlaps neither */
  hri_real a_real, b_real, c_real;
  int64_t a_row, a_column, b_row, b_column, c_row;
  const float *bias; /* or NULL */
  bool accumulate;
  float *scratch; /* hri_cuda_product_scratch_bytes, which looks at sizes and steps alone */
} hri_cuda_product_args;
uint64_t hri_cuda_product_scratch_bytes(const hri_cuda_product_args *args);
int hri_cuda_product(const hri_cuda_product_args *args, void *stream);

/* ---- pointwise ---- */
int hri_cuda_add(void *y, const void *a, const void *b, int64_t n, hri_real real, void *stream);
int hri_cuda_scale(void *y, const void *x, float factor, int64_t n, hri_real real, void *stream);
int hri_cuda_softcap(void *y, const void *x, float cap, int64_t n, hri_real real, void *stream);
int hri_cuda_activation(hr_activation kind, void *y, const void *x, int64_t n, hri_real real, void *stream);
int hri_cuda_activation_backward(hr_activation kind, void *dx, const void *dy, const void *x, int64_t n, hri_real real,
                                 void *stream);
int hri_cuda_glu(hr_activation kind, void *y, const void *gu, int64_t rows, int64_t width, hri_real real, void *stream);
int hri_cuda_glu_backward(hr_activation kind, void *dgu, const void *dy, const void *gu, int64_t rows, int64_t width,
                          hri_real real, void *stream);
int hri_cuda_rope(const hri_rope_args *args, void *stream);
/* As hri_rope_table (ops/pointwise/rope_table.h); `inverse` is read by the call. At most 256 pairs. */
int hri_cuda_rope_table(const double *inverse, int64_t pairs, double factor, int64_t positions, float *cosines,
                        float *sines, void *stream);

typedef struct hri_cuda_dropout_args {
  int64_t rows, columns, sequence;
  hri_real real;
  double probability;
  uint32_t site;
  const hri_control *control; /* seed, step, row_base */
  const void *x;
  void *y; /* may alias x */
} hri_cuda_dropout_args;
int hri_cuda_dropout(const hri_cuda_dropout_args *args, void *stream);

typedef struct hri_cuda_noise_args {
  int64_t rows, columns, sequence;
  hri_real real;
  double amplitude;
  uint32_t site;
  const hri_control *control; /* seed, step, row_base */
  const void *x;
  void *y; /* may alias x */
} hri_cuda_noise_args;
int hri_cuda_noise(const hri_cuda_noise_args *args, void *stream);

/* ---- norm ---- */
int hri_cuda_rmsnorm(const hri_norm_args *args, void *stream);
int hri_cuda_layernorm(const hri_norm_args *args, void *stream);
uint64_t hri_cuda_norm_backward_scratch_bytes(int64_t rows, int64_t columns);
int hri_cuda_rmsnorm_backward(const hri_norm_backward_args *args, void *stream);
int hri_cuda_layernorm_backward(const hri_norm_backward_args *args, void *stream);
int hri_cuda_head_norm(const hri_head_norm_args *args, void *stream);
uint64_t hri_cuda_head_norm_backward_scratch_bytes(int64_t rows, int64_t head_size, int64_t key_size);
int hri_cuda_head_norm_backward(const hri_head_norm_backward_args *args, void *stream);
int hri_cuda_row_lengths(const hri_row_lengths_args *args, void *stream);
/* Scratch is the backward's alone. */
int hri_cuda_dora(const hri_dora_args *args, void *stream);
uint64_t hri_cuda_dora_backward_scratch_bytes(int64_t rows, int64_t columns);
int hri_cuda_dora_backward(const hri_dora_args *args, void *stream);

/* ---- embed ---- */
int hri_cuda_embed(const hri_embed_args *args, void *stream);
/* Rows are sorted by their index in `scratch`, and those of one index added in their order. */
uint64_t hri_cuda_embed_backward_scratch_bytes(int64_t rows);
int hri_cuda_embed_backward(const hri_embed_backward_args *args, void *scratch, void *stream);

/* ---- loss ---- */
typedef struct hri_cuda_cross_entropy_args {
  int64_t rows, vocabulary, stored;
  double softcap, smoothing;
  hri_real real;
  const void *logits;
  const int32_t *labels;
  const hri_control *control; /* inv_tokens, loss_scale */
  float *losses;
  void *dlogits; /* may alias logits; NULL: losses alone */
} hri_cuda_cross_entropy_args;
int hri_cuda_cross_entropy(const hri_cuda_cross_entropy_args *args, void *stream);
/* control->loss_sum += the losses. */
int hri_cuda_loss_sum(const float *losses, int64_t n, hri_control *control, void *stream);

/* ---- optim ---- */
/* One partial sum in double of each 65536 elements, as on the CPU. */
int hri_cuda_square_sum(double *partials, const void *g, hri_real real, int64_t n, void *stream);
/* control->grad_norm and clip_scale of the partial sums. */
int hri_cuda_clip(const double *partials, int64_t n, hri_control *control, void *stream);

/* 1 when one of the two is not finite, else 0. */
int hri_cuda_found_inf(const double *a, const double *b, double *found, void *stream);
/* applied_steps += 1. guard: a double on the device, NULL for none; where it is not 0 nothing happens, as in updates. */
int hri_cuda_advance(hri_control *control, const double *guard, void *stream);
/* loss_scale and growth_tracker for the next step, by found_inf. */
int hri_cuda_loss_scale(hri_control *control, int64_t interval, double growth, double backoff, void *stream);

typedef struct hri_cuda_update_args {
  hri_update_args u; /* of `rounding` the site alone */
  double number[4];  /* as program/optimizer.h lists them */
  double weight_decay;
  int64_t columns;            /* of the part, for states that are factored; 1 or 0: a vector */
  const hri_control *control; /* learning_rate, clip_scale, loss_scale, applied_steps, seed */
  const double *guard;
  void *scratch; /* hri_cuda_update_scratch_bytes */
} hri_cuda_update_args;
/* A step of an hr_optimizer. What is rounded at random is rounded by the CPU's bits, and states of 8 bits are the CPU's. */
uint64_t hri_cuda_update_scratch_bytes(uint32_t optimizer, int64_t n, int64_t columns);
int hri_cuda_update(uint32_t optimizer, const hri_cuda_update_args *args, void *stream);

/* ---- quant ---- */
/* Bits of the CPU. The layout is read by the call, all else is on the device. *bad, which the caller clears, becomes ~0 less the
 * index of the first element of the weight that has no code (a part's largest where the mean of its absmax overflows), or
 * stays 0. scratch: hri_quant_scratch_bytes, of quantize. */
int hri_cuda_quantize(const hri_quant_args *args, unsigned long long *bad, void *stream);
int hri_cuda_dequantize(const hri_quant_args *args, void *stream);

/* ---- attention ---- */
/* y [B*T,H*D] and lse [B,H,T] of qkv (ops/attention/shape.h). D at most 256. With dropout `control` says whose mask it is
 * (seed, step, row_base), beside shape->draw.site; else it is not looked at. The mask is the CPU's. */
int hri_cuda_attention(const hri_attention_shape *shape, float scale, const void *qkv, const int32_t *doc_start,
                       void *y, float *lse, const hri_control *control, void *stream);
/* dqkv of it. scratch: hri_cuda_attention_backward_scratch_bytes. Each gradient is one block's sum in one order. */
uint64_t hri_cuda_attention_backward_scratch_bytes(const hri_attention_shape *shape);
int hri_cuda_attention_backward(const hri_attention_shape *shape, float scale, const void *dy, const void *qkv,
                                const void *y, const float *lse, const int32_t *doc_start, void *dqkv,
                                const hri_control *control, void *scratch, void *stream);

/* The same with its probabilities kept, as they are before dropout: probs [B,H,T,T], 0 where masked. For comparison: slow. */
int hri_cuda_attention_full(const hri_attention_shape *shape, float scale, const void *qkv, const int32_t *doc_start,
                            void *y, void *probs, const hri_control *control, void *stream);
/* scratch: hri_cuda_attention_backward_scratch_bytes. */
int hri_cuda_attention_full_backward(const hri_attention_shape *shape, float scale, const void *dy, const void *qkv,
                                     const void *probs, void *dqkv, const hri_control *control, void *scratch,
                                     void *stream);
/* control->row_count rows of each batch row behind control->cache_length positions; rows of y behind them are zero. What does
 * not fit into the cache is left out: callers look before. D at most 256. */
uint64_t hri_cuda_attention_cached_scratch_bytes(const hri_attention_cache_shape *shape);
int hri_cuda_attention_cached(const hri_attention_cache_shape *shape, float scale, const void *qkv, void *keys,
                              void *values, const hri_control *control, void *y, void *scratch, void *stream);

#ifdef __cplusplus
}
#endif
#endif
