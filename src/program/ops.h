/* The ops: one list, their operands by position, their attributes.
 *
 * Notation: R read, W write, A write or add, U update; "?" optional (HRI_NONE). M rows (tokens), C hidden, N and K
 * sizes of a linear, V vocabulary (stored with padding), B batch, T sequence, H heads, K kv heads, D head size.
 * "g", always last, is an optional guard: a double that the node READs, and whose work it leaves out when that is not
 * 0.
 * It is an operand like any other, so that the check, lives, hazards and dumps see it; only ops that leave everything
 * as it was when they do not run have one (a skipped WRITE would leave its readers without a value).
 * An op with scratch has it behind these (access SCRATCH), added by the workspace pass. */
#ifndef HRI_PROGRAM_OPS_H
#define HRI_PROGRAM_OPS_H

#include <headroom/device.h>

#include "program/job.h"
#include "program/optimizer.h"

/* X(enumerator, name, operands as text for the dump and the check: one letter each) */
/* clang-format off */
#define HRI_OPS(X)                                                                                          \
  /* embed */                                                                                               \
  X(EMBED, "embed", "RRrrW")               /* ids, table, positions?, position table?, y[M,C]; i0 padding index or -1; \
                                              f0 multiplies rows of the table (not of positions) */         \
  X(EMBED_BACKWARD, "embed_backward", "RRA") /* index[M], dy[M,C], dtable; i0 padding index or -1; f0 multiplies dy */ \
  /* linear */                                                                                              \
  X(LINEAR, "linear", "RRrA")              /* x[M,K], w[N,K], bias[N]?, y[M,N] */                           \
  X(LINEAR_DX, "linear_dx", "RRA")         /* dy[M,N], w[N,K], dx[M,K]; i0 1: N is a vocabulary, and sums go in blocks \
                                              where a backend says how (ops/linear/product.h) */            \
  X(LINEAR_DW, "linear_dw", "RRA")         /* dy[M,N], x[M,K], dw[N,K] */                                   \
  X(BIAS_GRADIENT, "bias_gradient", "RA")  /* dy[M,N], db[N] */                                             \
  /* products with more of the backward in them, where a backend has them (hri_backend.epilogues) */        \
  X(LINEAR_DX_ACTIVATION, "linear_dx_activation", "RRRW") /* dy[M,N], w[N,K], x[M,K], dx[M,K] = act'(x) (dy w); \
                                              i0 hr_activation */                                           \
  X(LINEAR_DW_BIAS, "linear_dw_bias", "RRWW") /* dy[M,N], x[M,K], dw[N,K], db[N] */                         \
  /* norm: i0 hr_norm, f0 epsilon, f1 what is added to the weight (rms only) */                             \
  X(NORM, "norm", "RRrrwWW")               /* x, w[C], b?, residual?, sum?, y, stats[M,1|2] */              \
  X(NORM_BACKWARD, "norm_backward", "RRRRrWaa") /* dy, x, stats, w, extra?, dx, dw?, db? */                 \
  /* rms norm of each q and k head: i0 H, i1 K, i2 D, i3 size E of keys and values (0: D), f0 epsilon, f1 what is added \
     to the weights. H = K = 1 with the sizes of all heads norms them at once */                            \
  X(HEAD_NORM, "head_norm", "RRRWW")       /* qkv[M,HD+2KE], wq[D], wk[E], y (v copied), stats[M,H+K] */     \
  X(HEAD_NORM_BACKWARD, "head_norm_backward", "RRRRRWaa") /* dy, qkv, stats, wq, wk, dqkv, dwq?, dwk? */    \
  /* DoRA: i0 to i2 rows of the parts of w (columns of the parts of z), i3 a bit for each part that has magnitudes; of       \
     those the magnitudes m and lengths stand side by side. A part's length is |w_i + f_k b_i a|, of its rows i, and no \
     gradient goes through it */                                                                            \
  X(DORA_BEGIN, "dora_begin", "RU")        /* w[N,K], m: |w_i| where m is NaN */                            \
  X(DORA_LENGTHS, "dora_lengths", "RrrrrrrW") /* w[N,K], a[r,K]? of each part, b[rows,r]? of each part, lengths */ \
  X(DORA, "dora", "RRRrW")                 /* z[M,N], m, lengths, bias[N]?, y = z m / length + bias */      \
  X(DORA_BACKWARD, "dora_backward", "RRRRWa") /* dy, z, m, lengths, dz, dm? */                              \
  /* pointwise: i0 hr_activation; rope: i0 H, i1 K, i2 D, i3 inverse, i4 R <= D: what of a head is rotated */ \
  X(ADD, "add", "RRW")                     /* a, b, y */                                                    \
  X(SCALE, "scale", "RW")                  /* x, y = f0 x */                                                \
  X(DROPOUT, "dropout", "RRW")             /* x[B*T,C], control, y: each element 0 with probability f0, else over 1 - f0; \
                                              i0 T. The mask goes by the node's site (ops/draw.h): the same op, of dy, is \
                                              its backward */                                               \
  X(NOISE, "noise", "RRW")                 /* x[B*T,C], control, y = x + f0 u, u uniform in [-1, 1); i0 T */ \
  X(ACTIVATION, "activation", "RW")        /* x, y */                                                       \
  X(ACTIVATION_BACKWARD, "activation_backward", "RRW") /* dy, x, dx */                                      \
  X(GLU, "glu", "RW")                      /* gate and up [M,2F], y[M,F] */                                 \
  X(GLU_BACKWARD, "glu_backward", "RRW")   /* dy, gate and up, their gradient */                            \
  X(ROPE, "rope", "RRRW")                  /* qkv, positions, table[2,P,R/2], y */                          \
  X(ROPE_TABLE, "rope_table", "W")         /* table; i0 P, i1 R, i2 index of its frequencies in job->ropes */ \
  X(SOFTCAP, "softcap", "RW")              /* x, y = f0 tanh(x / f0) */                                     \
  /* attention: i0 B, i1 T, i2 H, i3 K, i4 D, i5 window (0: none); f0 scale, f1 score soft-cap (0: none), \
     f2 dropout of the probabilities (0: none; else control is there, and the mask goes by the node's site) */ \
  X(ATTENTION, "attention", "RrWWr")       /* qkv, doc_start?, y, lse[B,H,T], control? */                   \
  X(ATTENTION_BACKWARD, "attention_backward", "RRRRrWr") /* dy, qkv, y, lse, doc_start?, dqkv, control? */  \
  X(ATTENTION_FULL, "attention_materialized", "RrWWr") /* qkv, doc_start?, y, probabilities[B,H,T,T] (before \
                                              dropout), control? */                                         \
  X(ATTENTION_FULL_BACKWARD, "attention_materialized_backward", "RRRrWr") /* dy, qkv, probs, doc_start?, dqkv, control? */ \
  X(ATTENTION_CACHED, "attention_cached", "RUURW") /* qkv, k cache, v cache, control, y; i1 rows, i6 capacity */ \
  /* loss: i0 logical vocabulary, f0 logit soft-cap (0: none), f1 label smoothing */                                         \
  X(CROSS_ENTROPY, "cross_entropy", "RRRwW") /* logits[R,V], targets[R], control, dlogits?, losses[R] */    \
  X(LOSS_SUM, "loss_sum", "RU")            /* losses[M], control */                                         \
  /* optim; the updates themselves are the rows of program/optimizer.h: f0 to f2 their numbers, f3 weight decay. \
     Operands are groups: i0 segment, i1 first and i2 number of its ranges in job->laid_out */             \
  X(SQUARE_NORM, "square_norm", "RW")      /* g, partial sums (f64, one per 65536 elements) */              \
  X(CLIP, "clip", "RU")                    /* partial sums, control: grad_norm; clip_scale, which is 1 without clip_norm */ \
  X(FOUND_INF, "found_inf", "RRW")         /* two doubles, double: 1 when one of them is not finite, else 0 */ \
  X(ADVANCE, "advance", "Ug")              /* control: applied_steps += 1; guard? */                        \
  X(LOSS_SCALE, "loss_scale", "U")         /* control: loss_scale and growth_tracker for the next step, by found_inf;   \
                                              i0 steps without overflow until it grows, f0 growth, f1 backoff */        \
  /* move */                                                                                                \
  X(ZERO, "zero", "W")                     /* x */                                                          \
  X(COPY, "copy", "RW")                    /* from, to: same bytes, any tiers, columns of either */         \
  X(ACCUMULATE, "accumulate", "RA")        /* x, y: y (+)= x element by element, columns of either; sums in fp32 */ \
  X(CAST, "cast", "RW")                    /* from, to: same elements, f32, bf16 or f16, to nearest even */       \
  X(SPLIT, "split", "RWW")                 /* from (f32), to (bf16), to (f32-low): hri_split */                     \
  X(JOIN, "join", "RRW")                   /* from (bf16), from (f32-low), to (f32): hri_join */                    \
  X(PACK, "pack", "RW")                    /* b of a product, the same in the layout that the product reads; \
                                              i0 hri_product - 1; i1 the product's M; i2 i0 of a LINEAR_DX */ \
  X(SELECT, "select", "RRW")               /* from[k,...], control, to[...]: slice micro_index */           \
  X(LAST_ROW, "last_row", "RRW")           /* x[M,C], control, y[1,C]: row row_count - 1 */                 \
  /* quant: i0 hri_quantization, i1 to i3 rows of up to three parts of w, each quantized alone (program/quantization.h), */ \
  /* i4 to i6 the types of blocks that are kept as files have them */                                      \
  X(QUANTIZE, "quantize", "RWWw")          /* w[N,K], codes (bytes), absmax, nested? (with dq) */           \
  X(DEQUANTIZE, "dequantize", "RrrW")      /* codes, absmax?, nested?, w[N,K] */                            \
  X(FILL, "fill", "W")                     /* tensor; i0 range, i1 hri_moved */                             \
  X(SINK, "sink", "R")                     /* tensor; i0 range, i1 hri_moved */
/* clang-format on */

typedef enum hri_op {
#define HRI_OP_ENUM(id, name, operands) HRI_OP_##id,
#define HRI_OP_OF_OPTIMIZER(id, name, operands, ...) HRI_OP_##id,
  HRI_OPS(HRI_OP_ENUM) HRI_OPTIMIZERS(HRI_OP_OF_OPTIMIZER)
#undef HRI_OP_ENUM
#undef HRI_OP_OF_OPTIMIZER
      HRI_OP_COUNT
} hri_op;

/* What of a range a FILL or SINK node moves: the weight (the master where there is one; a split one through a whole one
 * of the node's program), or HRI_MOVED_STATE + k, the k-th tensor of its state; or (FILL) the codes, absmax or nested of
 * its parameter, which files hold then. */
typedef enum hri_moved {
  HRI_MOVED_WEIGHT = 0,
  HRI_MOVED_STATE,
  HRI_MOVED_CODES = HRI_MOVED_STATE + HRI_STATE_TENSORS,
  HRI_MOVED_ABSMAX,
  HRI_MOVED_NESTED
} hri_moved;

/* Whether a range's master stands in two halves: its weight, in bf16, and r->master. */
static inline bool hri_range_split(const hri_job *job, const hri_param_range *r) {
  return r->master != HRI_NONE && job->tensors.items[r->master].dtype == HRI_F32_LOW;
}

/* Whether that of any range does. */
static inline bool hri_job_splits(const hri_job *job) {
  for (size_t r = 0; r < job->ranges.count; r++)
    if (hri_range_split(job, &job->ranges.items[r])) return true;
  return false;
}

/* The tensor that holds what is moved, but for codes, absmax and nested, or the high half of it; HRI_NONE when the range
 * has none. */
static inline hri_id hri_moved_tensor(const hri_job *job, const hri_param_range *r, uint32_t what) {
  if (what >= HRI_MOVED_STATE) return r->state[what - HRI_MOVED_STATE];
  return r->master == HRI_NONE || hri_range_split(job, r) ? r->weight : r->master;
}

/* Its type as it is moved: a master is fp32, whole or in halves. */
static inline uint8_t hri_moved_dtype(const hri_job *job, const hri_param_range *r, uint32_t what) {
  if (what == HRI_MOVED_WEIGHT && r->master != HRI_NONE) return HRI_F32;
  return job->tensors.items[hri_moved_tensor(job, r, what)].dtype;
}

enum { HRI_NORM_BLOCK = 65536, HRI_MAX_OPERANDS = 10 };

/* What the backward rules work on; filled by the autodiff pass. */
typedef struct hri_autodiff hri_autodiff;

/* The three products of a linear layer: y = x w^T, dx = dy w, dw = dy^T x. Operand 0 is a, operand 1 is b (which may be
 * packed). */
typedef enum hri_product { HRI_NO_PRODUCT = 0, HRI_PRODUCT_FORWARD, HRI_PRODUCT_DX, HRI_PRODUCT_DW } hri_product;
/* What time it takes goes with pairs of positions; CACHED streams its cache instead. */
typedef enum hri_attention {
  HRI_NO_ATTENTION = 0,
  HRI_ATTENTION_FORWARD,
  HRI_ATTENTION_BACKWARD,
  HRI_ATTENTION_CACHED
} hri_attention;

/* What a backend computes with a product in one node, where a pass finds it: bits (hri_backend.epilogues). */
enum {
  HRI_EPILOGUE_GELU_BACKWARD = 1 << 0, /* LINEAR_DX_ACTIVATION of gelu by tanh */
  HRI_EPILOGUE_BIAS_GRADIENT = 1 << 1  /* LINEAR_DW_BIAS */
};

/* What is known of an op without any backend. Passes, plan and search decide by these facts, never by an op's name. */
typedef struct hri_rule {
  const char *name, *operands;
  /* Shape rule: HR_OK or INTERNAL naming what disagrees. Operand presence and access were checked before; which types
   * go together is said here and nowhere else. */
  hr_status (*check)(const hri_job *job, const hri_node *node, hr_error *error);
  /* Emits gradient nodes; NULL: the op has no gradient and may not stand between a trainable weight and the loss. */
  void (*backward)(hri_autodiff *ad, hri_id node);
  /* Arithmetic; bytes moved are the operands' but for `gathers` and `scatters`. */
  double (*flops)(const hri_job *job, const hri_node *node);
  /* Which output operand may be written over which input operand, element by element, unless a third one is present
   * (0: always; operand 0 never forbids). */
  struct {
    uint8_t in, out, unless;
  } in_place[3];
  uint8_t in_place_count;
  /* Bits per operand. */
  uint16_t wide; /* results that stay fp32 when activations are bf16 (statistics) */
  uint16_t
      cheap; /* results that are made again at the price of a pass over memory, from what the backward keeps anyhow */
  uint16_t views;    /* that may be column views; elsewhere hri_node_append_plain puts a copy beside the node */
  uint16_t groups;   /* that may be groups of tensors */
  uint16_t gathers;  /* of these only as many bytes are read as are written: rows of a table */
  uint16_t scatters; /* to these only as many elements are added as operand 1 has: rows of a table */
  /* Classes. */
  hri_product product;
  hri_attention attention;
  hr_stream stream; /* of all others: what they do to memory, for rates */
  bool follows;     /* its results are cheap where its operand 0 is the result of a cheap op */
  bool activation;  /* element by element between two products: what only such nodes read is worth dropping with them */
  bool transfer;    /* moves bytes between a tensor and the host's files: no device's rates say how long */
  bool sum;         /* operand 2 = operand 0 + operand 1, and nothing else */
  bool fresh;       /* makes a few numbers of operand 0 and reads nothing else: best right behind its last write */
  /* Fusion. A sum in front that is operand `x` may become operands x and `residual`, with the sum written to `to`; a
   * sum behind that takes result `to` may become operand `residual`. `residual` 0: neither. */
  struct {
    uint8_t x, residual, to;
  } takes_sum_before, takes_sum_behind;
  /* Operand 1 = the sums of operand 0 over its rows; operand 2 = operand 0 times the slope of activation i0 at operand 1. */
  bool column_sums, slope;
  /* Of a product of the backward: the ops that also make what such a node makes of operand 0, with its result behind the
   * others, or of the result, with x between. 0: there is none. */
  uint16_t with_sums, with_slope;
} hri_rule;

const hri_rule *hri_rule_get(uint16_t op);
const char *hri_op_name(uint16_t op);

/* Position of the guard among the operands of an op, HRI_NONE when its rule has none. */
uint32_t hri_guard_position(uint16_t op);
/* The flag that guards a node, HRI_NONE when nothing does. */
hri_id hri_node_guard(const hri_job *job, const hri_node *node);

/* Bytes an execution moves: reads once, writes once, add and update twice. */
double hri_node_bytes(const hri_job *job, const hri_node *node);
double hri_node_flops(const hri_job *job, const hri_node *node);

/* hri_node_append where an operand may be a column view that the op does not take: what it reads is copied out before
 * the node, what it writes or adds is made beside and copied or accumulated in behind it. So every program is legal as
 * it is made, and each copy is a node that plan and dumps see. */
hri_id hri_node_append_plain(hri_job *job, uint16_t op, hri_emit emit, const hri_attr *attr,
                             const hri_operand *operands, uint32_t count);

/* ---- services of the autodiff pass for backward rules ---- */

struct hri_autodiff {
  hri_job *job;
  uint8_t program;
  bool accumulate;    /* gradients of parameters ADD (begin zeroed them), else the first touch WRITEs */
  hri_emit emit;      /* labels of the node being differentiated, phase backward */
  hri_id *gradient;   /* per value: tensor of its gradient so far, HRI_NONE */
  hri_id *whole;      /* per value: a tensor that shows all of it, HRI_NONE */
  bool *gathered;     /* per value: its gradient was begun as zero, to be added to part by part */
  bool *needed;       /* per value: requires grad */
  uint32_t *param_of; /* per value: parameter, HRI_NONE */
  bool *touched;      /* per parameter: its gradient was written in this program */
  bool *owned;        /* per value: its gradient so far is nobody else's, so that more may be added to it in place */
  size_t value_count;
};

/* Gradient of a tensor so far (HRI_NONE: no path to the loss); of a view of a value, the same view of its gradient. */
hri_id hri_ad_gradient(hri_autodiff *ad, hri_id tensor);
/* Whether a gradient with respect to this tensor is wanted. */
bool hri_ad_needed(const hri_autodiff *ad, hri_id tensor);
/* A fresh tensor shaped like `like`, for a gradient. */
hri_id hri_ad_like(hri_autodiff *ad, hri_id like, const char *suffix);
/* Records another contribution to a tensor: a second one becomes an add node, one to a part of a value goes into a
 * gradient of the whole value that begins as zero. */
void hri_ad_contribute(hri_autodiff *ad, hri_id tensor, hri_id gradient);
/* The same of a gradient that its node made for this tensor alone. A later node that can add to what is there asks for
 * it by hri_ad_own_gradient (HRI_NONE: there is none, or it is shared, or it has another type): an adapter's share of
 * dx lands in what the base product wrote. */
void hri_ad_contribute_own(hri_autodiff *ad, hri_id tensor, hri_id gradient);
hri_id hri_ad_own_gradient(hri_autodiff *ad, hri_id tensor);
/* The gradient operand of a parameter that trains as a whole: WRITE at the first touch without accumulation, else
 * ADD. */
hri_operand hri_ad_param(hri_autodiff *ad, hri_id tensor);
/* Emits the gradient of each stretch of rows of a parameter that trains (v of a fused qkv): `emit` gets the columns of
 * dy that belong to them, or dy itself where all rows train. Nothing where none is wanted. */
typedef void (*hri_ad_rows)(hri_autodiff *ad, hri_id dy, hri_operand gradient, hri_id other);
void hri_ad_param_rows(hri_autodiff *ad, hri_id tensor, hri_id dy, hri_id other, hri_ad_rows emit);
hri_id hri_ad_emit(hri_autodiff *ad, hri_op op, const hri_attr *attr, const hri_operand *operands, uint32_t count);

#define HRI_R(t) ((hri_operand){(t), HRI_READ})
#define HRI_W(t) ((hri_operand){(t), HRI_WRITE})
#define HRI_A(t) ((hri_operand){(t), HRI_ADD})
#define HRI_U(t) ((hri_operand){(t), HRI_UPDATE_ACCESS})
#define HRI_ABSENT ((hri_operand){HRI_NONE, HRI_READ})

#endif
