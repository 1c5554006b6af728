/* The CPU kernels that are ours, as one table of function pointers per instruction set.
 *
 * Every src/ops/<family>/cpu.c is compiled once per instruction set, HRI_ISA set to base, avx2, avx512 or neon, and exports
 * one function, HRI_ISA_NAME(hri_<family>_kernels), that fills its part of a table. Who picks the table picks the
 * instruction set; nothing else in the program knows.
 *
 * Rules that all kernels share:
 *   - Tensors are contiguous, row-major. Sizes are elements, int64_t; 0 is fine.
 *   - What is declared void * holds elements of the type that `real` names, fp32, bf16 or fp16, all of one call the same; the
 *     rest is fp32. Arithmetic and sums are fp32 or wider; a result is rounded once, when it is stored.
 *   - `team` is who does it; NULL: the caller alone. The bits of the result do not depend on it: each output element is
 *     computed by one thread in one order, and reductions use fixed blocks (ops/scratch.h) whose partials are folded in
 *     block order.
 *   - Nothing is allocated; what a kernel needs besides its operands is `scratch`, sized by ops/scratch.h, undefined
 *     before and after, aligned to 64 bytes.
 *   - Aliasing is allowed only where it is stated, and then exact (the same start), never partial.
 *   - NaN and infinity in operands come out as NaN or infinity; no kernel traps or reads out of bounds for them.
 *     Indices (ids, labels, positions) are trusted: the feeder checks them.
 *
 * Letters: M rows, C columns, N outputs, F hidden size of the MLP, H query heads, K key-value heads, D head size, P
 * positions, V vocabulary, Vs vocabulary with padding. */
#ifndef HRI_OPS_CPU_H
#define HRI_OPS_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/job.h>

#include "base/real.h"
#include "ops/draw.h"
#include "program/quantization.h"
#include "team/team.h"

#ifndef HRI_ISA
#define HRI_ISA base
#endif
#define HRI_ISA_PASTE_(name, isa) name##_##isa
#define HRI_ISA_PASTE(name, isa) HRI_ISA_PASTE_(name, isa)
#define HRI_ISA_NAME(name) HRI_ISA_PASTE(name, HRI_ISA)

/* Forward of RMS norm and layer norm over the rows of x, or of s = x + residual when there is a residual. */
typedef struct hri_norm_args {
  int64_t rows, columns;
  hri_real real;
  const void *x;        /* [M,C] */
  const void *residual; /* [M,C] or NULL */
  void *s;              /* [M,C], written only with a residual, and normalised as rounded; may alias x or residual */
  const float *weight;  /* [C] */
  double weight_offset; /* added to the weight: 0, or 1 where the weight is kept as the distance from 1 (rms only) */
  const float *bias;    /* [C] or NULL */
  double eps;
  void *y;      /* [M,C]; may alias x without, x or residual with a residual (but not s) */
  float *stats; /* rms: rstd [M]; layer: mean, rstd [M,2]; or NULL when no backward follows */
  hri_team *team;
} hri_norm_args;

/* Backward: dx = d(norm)/dx . dy (+ extra, after rounding); dweight and dbias over all rows. */
typedef struct hri_norm_backward_args {
  int64_t rows, columns;
  hri_real real;
  const void *dy;       /* [M,C] */
  const void *x;        /* [M,C] what was normalised (s of the forward) */
  const float *stats;   /* as written by the forward */
  const float *weight;  /* [C] */
  double weight_offset; /* as in the forward */
  const void *extra;    /* [M,C] gradient of the residual path, or NULL */
  void *dx;             /* [M,C]; may alias dy, x or extra */
  float *dweight;       /* [C] or NULL (frozen) */
  float *dbias;         /* [C] or NULL */
  bool accumulate;      /* dweight and dbias are added to, else overwritten */
  float *scratch;       /* hri_norm_backward_scratch_bytes */
  hri_team *team;
} hri_norm_backward_args;

/* DoRA's lengths of rows: |w_i + scale b_i a|, and those of W alone where `b` is NULL. */
typedef struct hri_row_lengths_args {
  int64_t rows, columns, rank;
  hri_real real;
  const void *w;      /* [N,K] */
  const float *a, *b; /* [r,K]; [N,r] */
  float scale;
  bool missing;   /* only where `lengths` holds NaN */
  float *lengths; /* [N] */
  hri_team *team;
} hri_row_lengths_args;

enum { HRI_DORA_PARTS = 3 };

/* y = z g + bias by columns, g = magnitude / length (0 where that is 0) in parts that have them, else 1; and its backward:
 * dz = dy g, dmagnitudes = the sum of dy z over the rows / length. */
typedef struct hri_dora_args {
  int64_t rows, columns;
  hri_real real;
  int64_t parts[HRI_DORA_PARTS]; /* columns of each */
  uint32_t having;               /* a bit for each that has magnitudes */
  const float *magnitudes, *lengths;
  const void *z;      /* [M,N] */
  const float *bias;  /* [N] or NULL */
  void *y;            /* [M,N], may alias z */
  const void *dy;     /* [M,N] */
  void *dz;           /* [M,N], may alias dy or z */
  float *dmagnitudes; /* or NULL (frozen) */
  bool accumulate;
  float *scratch; /* hri_dora_scratch_bytes */
  hri_team *team;
} hri_dora_args;

/* Forward of the RMS norm of each q and k head in rows [q heads | k heads | v heads]; v is copied. */
typedef struct hri_head_norm_args {
  int64_t rows;
  int64_t heads, kv_heads, head_size; /* H, K, D */
  int64_t key_size;                   /* E, of k and v heads; 0: D */
  hri_real real;
  const void *x;        /* [M, H D + 2 K E] */
  const float *wq, *wk; /* [D], [E] */
  double weight_offset; /* added to both */
  double eps;
  void *y;      /* as x; may alias it */
  float *stats; /* [M, H+K] rstd of each head, or NULL */
  hri_team *team;
} hri_head_norm_args;

typedef struct hri_head_norm_backward_args {
  int64_t rows;
  int64_t heads, kv_heads, head_size, key_size; /* as of the forward */
  hri_real real;
  const void *dy, *x; /* x the input of the forward */
  const float *stats; /* as written by the forward */
  const float *wq, *wk;
  double weight_offset;
  void *dx;         /* may alias dy or x */
  float *dwq, *dwk; /* as the weights, or NULL (frozen) */
  bool accumulate;  /* dwq and dwk are added to, else overwritten */
  float *scratch;   /* hri_head_norm_backward_scratch_bytes */
  hri_team *team;
} hri_head_norm_backward_args;

/* Rotary embedding of rows [q heads | k heads | v heads]: in each q and k head the pair (i, i + R/2), i < R/2, is
 * turned by the angle of its position; the rest of the head and v are copied. The backward is the turn by the negative
 * angle (`inverse`). */
typedef struct hri_rope_args {
  int64_t rows;
  int64_t heads, kv_heads, head_size; /* H, K, D */
  int64_t rotary_size;                /* R <= D, even */
  hri_real real;
  const void *x;                /* [M, (H+2K) D] */
  void *y;                      /* same; may alias x */
  const float *cosines, *sines; /* [P, R/2], hri_rope_table */
  const int32_t *position;      /* [M], row of the tables */
  bool inverse;
  hri_team *team;
} hri_rope_args;

/* Inverted dropout (ops/draw.h): y = x / (1 - p), or 0 with probability p. Its backward is the same of dy: the mask is
 * made again. */
typedef struct hri_dropout_args {
  int64_t rows, columns; /* rows: B rows of data, of `sequence` positions each */
  int64_t sequence;
  hri_real real;
  double probability; /* p, 0 <= p < 1 */
  hri_draw draw;
  const void *x; /* [M,C] */
  void *y;       /* [M,C]; may alias x */
  hri_team *team;
} hri_dropout_args;

/* y = x + amplitude * u, u uniform in [-1, 1) (ops/draw.h); rows as for dropout. */
typedef struct hri_noise_args {
  int64_t rows, columns;
  int64_t sequence;
  hri_real real;
  double amplitude;
  hri_draw draw;
  const void *x; /* [M,C] */
  void *y;       /* [M,C]; may alias x */
  hri_team *team;
} hri_noise_args;

typedef struct hri_embed_args {
  int64_t rows, columns;
  hri_real real;
  const void *tokens;      /* [V,C] */
  double factor;           /* multiplies rows of tokens (not of positions), before rounding */
  const void *positions;   /* [P,C] or NULL */
  const int32_t *ids;      /* [M] */
  const int32_t *position; /* [M]; unused without positions */
  void *y;                 /* [M,C] */
  hri_team *team;
} hri_embed_args;

/* dtable[index[m]] += dy[m]. Used for token ids and for positions. */
typedef struct hri_embed_backward_args {
  int64_t rows, columns;
  hri_real real;
  const void *dy;       /* [M,C] */
  const int32_t *index; /* [M] */
  double factor;        /* multiplies dy */
  int64_t skip_index;   /* rows with this index give no gradient (padding_idx); -1: none */
  float *dtable;        /* [stored_rows, C] */
  int64_t stored_rows;  /* all of them are zeroed first unless accumulate is set */
  bool accumulate;
  hri_team *team;
} hri_embed_backward_args;

/* Softmax cross-entropy of the first `vocabulary` columns; the padding behind them takes no part. A label < 0 is
 * ignored: loss 0, gradient 0. */
typedef struct hri_cross_entropy_args {
  int64_t rows, vocabulary, stored; /* R, V <= Vs */
  double softcap;   /* c: the softmax is that of c tanh(logits / c), and dlogits passes through it; 0: none */
  double smoothing; /* s, 0 <= s < 1: the target is 1 - s + s/V for the label and s/V for the others */
  hri_real real;
  const void *logits;    /* [R,Vs] */
  const int32_t *labels; /* [R] */
  double gradient_scale; /* 1 / counted tokens, times the loss scale if any */
  float *losses;         /* [R], unscaled */
  void *dlogits;         /* [R,Vs] = (softmax - target) * gradient_scale, padding 0; may alias logits; NULL:
                                       evaluation, which writes only losses */
  hri_team *team;
} hri_cross_entropy_args;

/* The factors of one AdamW step, made in double by hri_adamw_factors (ops/scratch.h). */
typedef struct hri_adamw_factors {
  float decay; /* 1 - lr * weight_decay */
  float one_minus_beta1, beta2, one_minus_beta2;
  float inv_sqrt_bias2; /* 1 / sqrt(1 - beta2^t) */
  float step_size;      /* lr / (1 - beta1^t) */
  float epsilon;
  float gradient_scale; /* multiplies g: clip coefficient / loss scale */
} hri_adamw_factors;

/* The numbers of one step of any optimizer. */
typedef struct hri_update_numbers {
  double number[4]; /* as its row in program/optimizer.h lists them */
  double learning_rate, weight_decay;
  double gradient_scale; /* multiplies g: clip coefficient / loss scale */
  int64_t t;             /* applied steps, this one counted */
  int64_t columns;       /* of the part, for states that are factored; 1 or 0: a vector */
} hri_update_numbers;

/* What the random bits of stochastic rounding depend on, beside the array and the logical element
 * (ops/optim/rounding.h). */
typedef struct hri_rounding {
  uint64_t seed, step; /* step modulo 2^32 */
  uint32_t site;
} hri_rounding;

/* One optimizer step over a slice of n elements of a parameter, in one pass. Arithmetic is fp32 whatever the types; a
 * new weight or moment enters the arithmetic before it is rounded. bf16 weights and moments are rounded stochastically
 * (neither is fp16, and no gradient of a weight), but for weights with `low`: those are fp32 numbers in two halves, which
 * lose nothing. The copy of an fp32 weight is rounded to nearest even. No two arrays overlap; one of copy and low at most is there,
 * and then the gradient is fp32. */
typedef struct hri_update_args {
  int64_t n;
  void *w; /* [n] of type w_real */
  hri_real w_real;
  uint16_t *low;       /* [n] beside a bf16 w: the low halves of what w is (hri_split); or NULL */
  hri_f16 *copy;       /* [n] written beside an fp32 w; or NULL */
  void *state[4];      /* the tensors of the optimizer's state, in order */
  hri_real state_real; /* of those that --moments applies to */
  const void *g;       /* [n] of type gradient_real */
  hri_real gradient_real;
  hri_rounding rounding;
  int64_t first_element; /* logical index of w[0] in its parameter */
  hri_team *team;
} hri_update_args;

/* A weight and its quantized form (program/quantization.h): to it or from it, as the kernel says. Exact: the same bits
 * on every level and team. */
typedef struct hri_quant_args {
  uint32_t kind; /* hri_quantization */
  const hri_quant_layout *layout;
  hri_real real;
  void *w;        /* [N,K] */
  uint8_t *codes; /* [code_bytes] */
  void *absmax;   /* [absmax_count] of hri_quant_absmax_dtype; NULL of blocks that are kept */
  float *nested;  /* [nested_count], NULL without dq */
  float *scratch; /* quantize: hri_quant_scratch_bytes */
  hri_team *team;
} hri_quant_args;

typedef enum hri_math { HRI_MATH_EXP = 0, HRI_MATH_LOG, HRI_MATH_TANH, HRI_MATH_SIGMOID, HRI_MATH_COUNT } hri_math;

typedef struct hri_cpu_kernels {
  /* ---- norm ---- */
  void (*rmsnorm)(const hri_norm_args *args);
  void (*layernorm)(const hri_norm_args *args);
  void (*rmsnorm_backward)(const hri_norm_backward_args *args);
  void (*layernorm_backward)(const hri_norm_backward_args *args);
  void (*head_norm)(const hri_head_norm_args *args);
  void (*head_norm_backward)(const hri_head_norm_backward_args *args);

  /* ---- pointwise ---- */
  /* y[n] = a + b; y may alias a or b. */
  void (*add)(void *y, const void *a, const void *b, int64_t n, hri_real real, hri_team *team);
  /* y[n] = factor * x; y may alias x. */
  void (*scale)(void *y, const void *x, float factor, int64_t n, hri_real real, hri_team *team);
  void (*dropout)(const hri_dropout_args *args);
  void (*noise)(const hri_noise_args *args);
  /* db[N] (=, or += with accumulate) column sums of dy[M,N]. scratch: hri_bias_gradient_scratch_bytes. */
  void (*bias_gradient)(float *db, const void *dy, int64_t rows, int64_t columns, bool accumulate, float *scratch,
                        hri_real real, hri_team *team);
  /* y[n] = act(x); y may alias x. */
  void (*activation)(hr_activation kind, void *y, const void *x, int64_t n, hri_real real, hri_team *team);
  /* dx[n] = dy * act'(x), x the input of the forward; dx may alias dy or x. */
  void (*activation_backward)(hr_activation kind, void *dx, const void *dy, const void *x, int64_t n, hri_real real,
                              hri_team *team);
  /* Gated unit. gu[M,2F] holds the gate in the first and up in the second half of a row: y[M,F] = act(gate) * up. */
  void (*glu)(hr_activation kind, void *y, const void *gu, int64_t rows, int64_t width, hri_real real, hri_team *team);
  /* dgu[M,2F] from dy[M,F] and gu; dgu may alias gu. */
  void (*glu_backward)(hr_activation kind, void *dgu, const void *dy, const void *gu, int64_t rows, int64_t width,
                       hri_real real, hri_team *team);
  void (*rope)(const hri_rope_args *args);
  /* y = x, or y += x, for rows of columns; each operand in its own type and with its own elements from row to row. The
   * sum is made in fp32 and rounded once. */
  void (*accumulate)(void *y, hri_real y_real, int64_t y_stride, const void *x, hri_real x_real, int64_t x_stride,
                     int64_t rows, int64_t columns, bool adds, hri_team *team);
  /* y[n] = cap * tanh(x / cap); y may alias x. */
  void (*softcap)(void *y, const void *x, float cap, int64_t n, hri_real real, hri_team *team);
  /* y[n] = f(x) with the vector math of ops/vmath.h, one thread; y may alias x. */
  void (*math)(hri_math function, float *y, const float *x, int64_t n);

  /* ---- embed ---- */
  void (*embed)(const hri_embed_args *args);
  void (*embed_backward)(const hri_embed_backward_args *args);

  /* ---- loss ---- */
  void (*cross_entropy)(const hri_cross_entropy_args *args);
  /* Sum in double, in order. */
  double (*loss_sum)(const float *losses, int64_t n);

  /* ---- optim ---- */
  /* partials[ceil(n / HRI_SQUARE_SUM_BLOCK)]: sums of squares of fixed blocks of g[n], in double. A NaN or infinite
   * element makes its partial NaN or infinite. */
  void (*square_sum)(double *partials, const void *g, hri_real gradient_real, int64_t n, hri_team *team);
  /* Folds partials in order; the square root of the sum over all segments is the norm. */
  double (*partial_sum)(const double *partials, int64_t n);
  /* One step, by hr_optimizer. AdamW is torch.optim.AdamW; SGD and momentum are torch.optim.SGD (decay added to the
   * gradient), where the momentum of the first step is zero, which gives torch's buffer = g; Lion decays as AdamW does.
   * Of kinds with blocks a slice begins with one, and its states are codes and scales (ops/optim/dynamic.h). Adafactor is
   * torch.optim.Adafactor; its slice is a whole part, state[0] its factors: rows, then columns, fp32. */
  void (*update[HR_OPTIMIZER_COUNT])(const hri_update_args *args, const hri_update_numbers *numbers);

  /* ---- DoRA ---- */
  void (*row_lengths)(const hri_row_lengths_args *args);
  void (*dora)(const hri_dora_args *args);
  void (*dora_backward)(const hri_dora_args *args);

  /* ---- move ---- */
  void (*copy)(void *to, const void *from, int64_t bytes, hri_team *team);
  /* `rows` rows of `width` bytes, from one pitch (bytes from row to row) to another. */
  void (*copy_rows)(void *to, int64_t to_pitch, const void *from, int64_t from_pitch, int64_t width, int64_t rows,
                    hri_team *team);
  void (*zero)(void *to, int64_t bytes, hri_team *team);
  void (*fill)(float *y, float value, int64_t n, hri_team *team);
  /* to[n] = from[n] in another type, to the nearest, ties to even (base/real.h); the same type copies. No aliasing. */
  void (*cast)(void *to, hri_real to_real, const void *from, hri_real from_real, int64_t n, hri_team *team);
  /* hri_split and hri_join of n elements. */
  void (*split)(hri_bf16 *high, uint16_t *low, const float *from, int64_t n, hri_team *team);
  void (*join)(float *to, const hri_bf16 *high, const uint16_t *low, int64_t n, hri_team *team);
  /* Index of the first largest element of x[n], n > 0; a NaN never wins, and 0 is returned when nothing does. */
  int64_t (*argmax)(const void *x, int64_t n, hri_real real);
  /* Index of the first NaN or infinite element of x[n], or -1. */
  int64_t (*first_nonfinite)(const void *x, int64_t n, hri_real real, hri_team *team);

  /* ---- quant ---- */
  /* Writes codes, absmax and nested from w. Returns -1, or the flattened index of an element of w that has no code: the
   * first NaN or infinity (in int8 also |w| >= 65520, which is none in fp16), or where the mean of a part's absmax
   * overflows, its largest; what was written means nothing then. */
  int64_t (*quantize)(const hri_quant_args *args);
  /* Writes w from codes, absmax and nested, which are finite. */
  void (*dequantize)(const hri_quant_args *args);
} hri_cpu_kernels;

#define HRI_DECLARE_KERNELS(isa)                                                                                       \
  void hri_norm_kernels_##isa(hri_cpu_kernels *table);                                                                 \
  void hri_pointwise_kernels_##isa(hri_cpu_kernels *table);                                                            \
  void hri_embed_kernels_##isa(hri_cpu_kernels *table);                                                                \
  void hri_loss_kernels_##isa(hri_cpu_kernels *table);                                                                 \
  void hri_optim_kernels_##isa(hri_cpu_kernels *table);                                                                \
  void hri_move_kernels_##isa(hri_cpu_kernels *table);                                                                 \
  void hri_quant_kernels_##isa(hri_cpu_kernels *table)

HRI_DECLARE_KERNELS(base);
HRI_DECLARE_KERNELS(avx2);   /* x86-64 builds only */
HRI_DECLARE_KERNELS(avx512); /* x86-64 builds only */
HRI_DECLARE_KERNELS(neon);   /* Arm builds only */

#endif
