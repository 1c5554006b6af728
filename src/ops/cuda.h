/* The CUDA kernels that are ours. Each function queues the kernels of one op in `stream` (gpu/runtime.h) and returns 0, or
 * -1 when the launch was refused. They are compiled by nvcc for the card and by a C++ compiler for the GPU in software, with
 * the same results within rounding; the bits of each are the same from run to run.
 *
 * Operands are device memory and mean what they mean in ops/cpu.h, whose structs are taken where nothing changes from step
 * to step; `team` is not looked at. Aliasing is allowed where cpu.h allows it. What a program reads from the control block
 * (learning rate, scales, step) is read from the one on the device. Rows and columns of any size; 0 is fine. */
#ifndef HRI_OPS_CUDA_H
#define HRI_OPS_CUDA_H

#include "ops/attention/shape.h"
#include "ops/cpu.h"
#include "program/job.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- move ---- */
int hri_cuda_cast(void *to, hri_real to_real, const void *from, hri_real from_real, int64_t n, void *stream);
int hri_cuda_fill(float *y, float value, int64_t n, void *stream);

/* ---- pointwise ---- */
int hri_cuda_add(void *y, const void *a, const void *b, int64_t n, hri_real real, void *stream);
int hri_cuda_activation(hr_activation kind, void *y, const void *x, int64_t n, hri_real real, void *stream);
int hri_cuda_activation_backward(hr_activation kind, void *dx, const void *dy, const void *x, int64_t n, hri_real real,
                                 void *stream);
int hri_cuda_glu(hr_activation kind, void *y, const void *gu, int64_t rows, int64_t width, hri_real real, void *stream);
int hri_cuda_glu_backward(hr_activation kind, void *dgu, const void *dy, const void *gu, int64_t rows, int64_t width,
                          hri_real real, void *stream);
int hri_cuda_rope(const hri_rope_args *args, void *stream);

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

/* ---- norm ---- */
int hri_cuda_rmsnorm(const hri_norm_args *args, void *stream);
int hri_cuda_layernorm(const hri_norm_args *args, void *stream);
/* Sums over rows are made in blocks of HRI_CUDA_NORM_ROWS rows and folded in their order. */
enum { HRI_CUDA_NORM_ROWS = 64 };
uint64_t hri_cuda_norm_backward_scratch_bytes(int64_t rows, int64_t columns);
int hri_cuda_rmsnorm_backward(const hri_norm_backward_args *args, void *stream);
int hri_cuda_layernorm_backward(const hri_norm_backward_args *args, void *stream);

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

typedef struct hri_cuda_adamw_args {
  int64_t n;
  void *w, *copy; /* copy: NULL, or of type copy_real */
  hri_real w_real, copy_real;
  void *first, *second;
  hri_real state_real;
  const void *g;
  hri_real gradient_real;
  double beta1, beta2, epsilon, weight_decay;
  uint32_t site;              /* of the random bits: the parameter's */
  int64_t first_element;      /* of w in its parameter */
  const hri_control *control; /* learning_rate, clip_scale, loss_scale, applied_steps, seed */
} hri_cuda_adamw_args;
/* torch.optim.AdamW; weights and moments in bf16 are rounded by the CPU's random bits. */
int hri_cuda_adamw(const hri_cuda_adamw_args *args, void *stream);

/* ---- attention ---- */
/* y [B*T,H*D] and lse [B,H,T] of qkv (ops/attention/shape.h). D at most 256. Without dropout. */
int hri_cuda_attention(const hri_attention_shape *shape, float scale, const void *qkv, const int32_t *doc_start,
                       void *y, float *lse, void *stream);
/* dqkv of it. scratch: hri_cuda_attention_backward_scratch_bytes. Each gradient is one block's sum in one order. */
uint64_t hri_cuda_attention_backward_scratch_bytes(const hri_attention_shape *shape);
int hri_cuda_attention_backward(const hri_attention_shape *shape, float scale, const void *dy, const void *qkv,
                                const void *y, const float *lse, const int32_t *doc_start, void *dqkv, void *scratch,
                                void *stream);

#ifdef __cplusplus
}
#endif
#endif
