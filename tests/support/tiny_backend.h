/* A second backend, as unlike the CPU's as the contract allows: what the layers above assume beyond it breaks here.
 *
 *   arenas   three separate blocks; the host gets the address of none (no view, windows by put and get), but for the
 *            staging of FILL and SINK, which lies in the host tier
 *   queue    a thread of its own carries out launches, writes and reads in order, after the call has returned
 *   lanes    a thread each: nothing holds a node back but the nodes of its lane before it and its waits; each pauses at
 *            random (seeded) before it takes one
 *   reads    the caller's memory holds garbage until the mark is waited for
 *   kernels  the double references of ops/<family>/ref.c, each result rounded once to its operand's type; fp32, and
 *            bf16 where nothing rounds stochastically
 *   ahead    the host is to launch one step before it waits for the one before
 */
#ifndef HRI_TEST_TINY_BACKEND_H
#define HRI_TEST_TINY_BACKEND_H

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/rng.h"
#include "ops/attention/ref.h"
#include "ops/embed/ref.h"
#include "ops/linear/ref.h"
#include "ops/loss/ref.h"
#include "ops/norm/ref.h"
#include "ops/optim/ref.h"
#include "ops/pointwise/ref.h"
#include "ops/pointwise/rope_table.h"
#include "ops/quant/ref.h"
#include "ops/rules.h"
#include "program/quantization.h"

#define TINY_NAME "tiny"

/* What tests set, and what they read. */
static struct {
  uint64_t seed;          /* of the pauses */
  uint32_t pause_us;      /* longest pause; 0: none */
  bool forget_waits;      /* lanes do not wait for each other: a broken backend, to show that the comparison can fail */
  atomic_ulong overtaken; /* nodes that began before one that stands in front of them in the issue order */
  atomic_ulong in_flight; /* launches that returned before their program was done */
} tiny;

typedef struct tiny_run tiny_run;
typedef enum tiny_kind { TINY_LAUNCH, TINY_WRITE, TINY_READ, TINY_STOP } tiny_kind;

typedef struct tiny_command {
  struct tiny_command *next;
  tiny_kind kind;
  hri_mark mark;
  tiny_run *run;
  hri_program_kind program;
  hri_id tensor;
  uint64_t offset, bytes;
  void *data, *to; /* bytes on their way; where a read's go once they were waited for */
  double *seconds; /* of a launch: per position; NAN until it ran */
} tiny_command;

/* The arenas, their queue and their threads; runs beside each other share one. */
typedef struct tiny_machine {
  unsigned char *arena[HRI_TIER_COUNT];
  uint64_t bytes[HRI_TIER_COUNT];
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t queue_thread, lane_threads[HRI_LANE_COUNT];
  tiny_command *first, *last, *done; /* queued; done and not delivered yet, oldest first */
  hri_mark issued, finished;
  /* the program that runs */
  tiny_command *program;
  uint64_t generation;       /* of programs that were begun */
  bool *node_done;           /* by node id */
  uint32_t left, begun_high; /* lanes that are not through with it; one past the highest position that began */
  bool stopping;
  hr_status status;
  hr_error error;
} tiny_machine;

struct tiny_run {
  hri_backend *backend;
  hri_work work;
  tiny_machine *machine;
  bool owns;
};

static unsigned char *tiny_bytes(const tiny_run *r, hri_id tensor) {
  const hri_tensor *t = &r->work.job->tensors.items[tensor];
  return r->machine->arena[r->work.job->storages.items[t->storage].tier] + r->work.offsets[t->storage] + t->offset;
}

/* ---- kernels ---- */

typedef struct tiny_call {
  const tiny_run *run;
  const hri_job *job;
  const hri_node *node;
  uint32_t piece; /* of operands that are groups */
  double *values[HRI_MAX_OPERANDS], *spare[2];
} tiny_call;

static const hri_operand *tiny_operand(const tiny_call *c, uint32_t i) { return &hri_operands(c->job, c->node)[i]; }
static bool tiny_present(const tiny_call *c, uint32_t i) {
  return i < c->node->operand_count && tiny_operand(c, i)->tensor != HRI_NONE;
}
static hri_id tiny_id(const tiny_call *c, uint32_t i) {
  hri_id id = tiny_operand(c, i)->tensor;
  return hri_piece(c->job, id, hri_piece_count(c->job, id) > 1 ? c->piece : 0);
}
static const hri_tensor *tiny_tensor(const tiny_call *c, uint32_t i) { return &c->job->tensors.items[tiny_id(c, i)]; }
static void *tiny_raw(const tiny_call *c, uint32_t i) {
  return tiny_present(c, i) ? tiny_bytes(c->run, tiny_id(c, i)) : NULL;
}
static int64_t tiny_rows(const tiny_call *c, uint32_t i) { return (int64_t)hri_rows(tiny_tensor(c, i)); }
static int64_t tiny_columns(const tiny_call *c, uint32_t i) { return (int64_t)hri_columns(tiny_tensor(c, i)); }
static int64_t tiny_elements(const tiny_call *c, uint32_t i) {
  return (int64_t)hri_tensor_stored_elements(tiny_tensor(c, i));
}

static uint64_t tiny_at(const hri_tensor *t, uint64_t k) {
  uint64_t columns = t->stored[t->rank - 1];
  return t->stride ? k / columns * t->stride + k % columns : k;
}

static double tiny_load(const hri_tensor *t, const void *bytes, uint64_t k) {
  uint64_t at = tiny_at(t, k);
  return t->dtype == HRI_F64       ? ((const double *)bytes)[at]
         : t->dtype == HRI_BF16    ? (double)hri_bf16_widen(((const hri_bf16 *)bytes)[at])
         : t->dtype == HRI_F32_LOW ? (double)((const uint16_t *)bytes)[at] /* as they are */
                                   : (double)((const float *)bytes)[at];
}

static void tiny_store(const hri_tensor *t, void *bytes, uint64_t k, double value) {
  uint64_t at = tiny_at(t, k);
  if (t->dtype == HRI_F64) ((double *)bytes)[at] = value;
  else if (t->dtype == HRI_BF16) ((hri_bf16 *)bytes)[at] = hri_bf16_round((float)value);
  else if (t->dtype == HRI_F32_LOW) ((uint16_t *)bytes)[at] = (uint16_t)value;
  else ((float *)bytes)[at] = (float)value;
}

/* An operand as doubles: zeros where it is only written. Stored behind the kernel where it is not only read. */
static double *tiny_values(tiny_call *c, uint32_t i) {
  const hri_tensor *t;
  uint64_t n;
  if (!tiny_present(c, i)) return NULL;
  if (c->values[i]) return c->values[i];
  t = tiny_tensor(c, i);
  n = hri_tensor_stored_elements(t);
  c->values[i] = calloc(n + 1, sizeof(double));
  if (!c->values[i]) abort();
  if (hri_access_reads((hri_access)tiny_operand(c, i)->access))
    for (uint64_t k = 0; k < n; k++) c->values[i][k] = tiny_load(t, tiny_raw(c, i), k);
  return c->values[i];
}

/* What a reference writes in any case, also where the node has no operand for it. */
static double *tiny_spare(tiny_call *c, int which, int64_t n) {
  c->spare[which] = calloc((size_t)n + 1, sizeof(double));
  if (!c->spare[which]) abort();
  return c->spare[which];
}
static double *tiny_or_spare(tiny_call *c, uint32_t i, int which, int64_t n) {
  return tiny_present(c, i) ? tiny_values(c, i) : tiny_spare(c, which, n);
}

static void tiny_finish(tiny_call *c) {
  free(c->spare[0]);
  free(c->spare[1]);
  for (uint32_t i = 0; i < HRI_MAX_OPERANDS; i++) {
    if (!c->values[i]) continue;
    if (tiny_operand(c, i)->access != HRI_READ)
      for (uint64_t k = 0; k < hri_tensor_stored_elements(tiny_tensor(c, i)); k++)
        tiny_store(tiny_tensor(c, i), tiny_raw(c, i), k, c->values[i][k]);
    free(c->values[i]);
  }
}

#define V(i) tiny_values(c, i)
#define ROWS(i) tiny_rows(c, i)
#define COLUMNS(i) tiny_columns(c, i)
#define COUNT(i) tiny_elements(c, i)

static void tiny_embed(tiny_call *c) {
  hri_ref_embed(V(4), V(1), c->node->attr.f[0], V(3), tiny_raw(c, 0), tiny_raw(c, 2), ROWS(4), COLUMNS(4));
}
static void tiny_embed_backward(tiny_call *c) {
  hri_ref_embed_backward(V(2), V(1), c->node->attr.f[0], tiny_raw(c, 0), c->node->attr.i[0], ROWS(1), COLUMNS(1));
}
static void tiny_linear(tiny_call *c) { hri_ref_linear(V(3), V(0), V(1), V(2), ROWS(0), ROWS(1), COLUMNS(1)); }
static void tiny_linear_dx(tiny_call *c) { hri_ref_linear_dx(V(2), V(0), V(1), ROWS(0), ROWS(1), COLUMNS(1)); }
static void tiny_linear_dw(tiny_call *c) { hri_ref_linear_dw(V(2), V(0), V(1), ROWS(0), COLUMNS(0), COLUMNS(1)); }
static void tiny_bias_gradient(tiny_call *c) { hri_ref_bias_gradient(V(1), V(0), ROWS(0), COLUMNS(0)); }
static void tiny_norm(tiny_call *c) {
  (c->node->attr.i[0] == HR_NORM_LAYER ? hri_ref_layernorm : hri_ref_rmsnorm)(V(5), tiny_or_spare(c, 4, 0, COUNT(0)),
                                                                              tiny_or_spare(c, 6, 1, 2 * ROWS(0)), V(0),
                                                                              V(3), V(1), c->node->attr.f[1], V(2),
                                                                              c->node->attr.f[0], ROWS(0), COLUMNS(0));
}
static void tiny_norm_backward(tiny_call *c) {
  (c->node->attr.i[0] == HR_NORM_LAYER ? hri_ref_layernorm_backward
                                       : hri_ref_rmsnorm_backward)(V(5), V(6), V(7), V(0), V(1), V(2), V(3),
                                                                   c->node->attr.f[1], V(4), ROWS(0), COLUMNS(0));
}
static void tiny_head_norm(tiny_call *c) {
  const hri_attr *a = &c->node->attr;
  hri_ref_head_norm(V(3), tiny_or_spare(c, 4, 0, ROWS(0) * (a->i[0] + a->i[1])), V(0), V(1), V(2), a->f[1], a->f[0],
                    ROWS(0), a->i[0], a->i[1], a->i[2], hri_head_norm_key_size(c->node));
}
static void tiny_head_norm_backward(tiny_call *c) {
  const hri_attr *a = &c->node->attr;
  hri_ref_head_norm_backward(V(5), V(6), V(7), V(0), V(1), V(2), V(3), V(4), a->f[1], ROWS(0), a->i[0], a->i[1],
                             a->i[2], hri_head_norm_key_size(c->node));
}
/* Part by part, as the node's numbers say; of DORA_BEGIN only what is missing. */
static void tiny_lengths(tiny_call *c) {
  const hri_attr *a = &c->node->attr;
  bool begins = c->node->op == HRI_OP_DORA_BEGIN;
  double *w = V(0), *to = V(begins ? 1 : 7), *lengths = tiny_spare(c, 0, ROWS(0));
  for (uint32_t p = 0; p < 3; w += a->i[p] * COLUMNS(0), p++) {
    if (!(a->i[3] >> p & 1)) continue;
    hri_ref_row_lengths(lengths, w, begins ? NULL : V(1 + p), begins ? NULL : V(4 + p), a->f[p], a->i[p], COLUMNS(0),
                        begins ? 0 : ROWS(1 + p));
    for (int64_t i = 0; i < a->i[p]; i++, to++)
      if (!begins || isnan(*to)) *to = lengths[i];
  }
}
static void tiny_dora(tiny_call *c) {
  hri_ref_dora(V(4), V(0), V(1), V(2), V(3), c->node->attr.i, c->node->attr.i[3], ROWS(0));
}
static void tiny_dora_backward(tiny_call *c) {
  hri_ref_dora_backward(V(4), V(5), V(0), V(1), V(2), V(3), c->node->attr.i, c->node->attr.i[3], ROWS(0));
}
static void tiny_add(tiny_call *c) { hri_ref_add(V(2), V(0), V(1), COUNT(2)); }
static void tiny_activation(tiny_call *c) {
  hri_ref_activation((hr_activation)c->node->attr.i[0], V(1), V(0), COUNT(1));
}
static void tiny_activation_backward(tiny_call *c) {
  hri_ref_activation_backward((hr_activation)c->node->attr.i[0], V(2), V(0), V(1), COUNT(2));
}
static void tiny_glu(tiny_call *c) { hri_ref_glu((hr_activation)c->node->attr.i[0], V(1), V(0), ROWS(1), COLUMNS(1)); }
static void tiny_glu_backward(tiny_call *c) {
  hri_ref_glu_backward((hr_activation)c->node->attr.i[0], V(2), V(0), V(1), ROWS(0), COLUMNS(0));
}
static void tiny_softcap(tiny_call *c) { hri_ref_softcap(V(1), V(0), c->node->attr.f[0], COUNT(1)); }
static void tiny_scale(tiny_call *c) { hri_ref_scale(V(1), V(0), c->node->attr.f[0], COUNT(1)); }
static hri_draw tiny_draw(const tiny_call *c, const hri_control *control) {
  return (hri_draw){control->seed, (uint64_t)control->step, c->node->site, (uint32_t)control->row_base};
}
static void tiny_noise(tiny_call *c) {
  hri_draw draw = tiny_draw(c, tiny_raw(c, 1));
  hri_ref_noise(V(2), V(0), c->node->attr.f[0], &draw, c->node->attr.i[0], ROWS(0), COLUMNS(0));
}
static void tiny_dropout(tiny_call *c) {
  hri_draw draw = tiny_draw(c, tiny_raw(c, 1));
  hri_ref_dropout(V(2), V(0), c->node->attr.f[0], &draw, c->node->attr.i[0], ROWS(0), COLUMNS(0));
}
static void tiny_rope(tiny_call *c) {
  const int64_t *i = c->node->attr.i;
  hri_ref_rope(V(3), V(0), V(2), V(2) + COUNT(2) / 2, tiny_raw(c, 1), ROWS(0), i[0], i[1], i[2], i[4], i[3] != 0);
}
static void tiny_rope_table(tiny_call *c) {
  const hri_rope_source *s = &c->job->ropes.items[c->node->attr.i[2]];
  float *table = tiny_raw(c, 0);
  hri_rope_table(s->inverse, s->pairs, s->factor, c->node->attr.i[0], table, table + COUNT(0) / 2, NULL);
}

static hri_attention_shape tiny_attention_shape(const tiny_call *c, uint32_t control) {
  const int64_t *i = c->node->attr.i;
  return (hri_attention_shape){.batch = i[0],
                               .sequence = i[1],
                               .heads = i[2],
                               .kv_heads = i[3],
                               .head_dim = i[4],
                               .window = i[5],
                               .softcap = c->node->attr.f[1],
                               .dropout = c->node->attr.f[2],
                               .draw = c->node->attr.f[2] > 0 ? tiny_draw(c, tiny_raw(c, control)) : (hri_draw){0}};
}
static void tiny_attention(tiny_call *c) {
  hri_attention_shape s = tiny_attention_shape(c, 4);
  hri_attention_ref_forward(&s, c->node->attr.f[0], V(0), tiny_raw(c, 1), V(2), V(3), NULL);
}
static void tiny_attention_backward(tiny_call *c) {
  hri_attention_shape s = tiny_attention_shape(c, 6);
  hri_attention_ref_backward(&s, c->node->attr.f[0], V(0), V(1), V(2), V(3), tiny_raw(c, 4), V(5));
}
static void tiny_attention_cached(tiny_call *c) {
  const int64_t *i = c->node->attr.i;
  const hri_control *control = tiny_raw(c, 3);
  hri_attention_cache_shape s = {.batch = i[0],
                                 .rows = i[1],
                                 .capacity = i[6],
                                 .heads = i[2],
                                 .kv_heads = i[3],
                                 .head_dim = i[4],
                                 .window = i[5],
                                 .softcap = c->node->attr.f[1]};
  hri_attention_ref_cached(&s, c->node->attr.f[0], V(0), control->cache_length, control->row_count, V(1), V(2), V(4));
}

static void tiny_cross_entropy(tiny_call *c) {
  const hri_control *control = tiny_raw(c, 2);
  hri_ref_cross_entropy(V(4), V(3), V(0), tiny_raw(c, 1), c->node->attr.f[0], c->node->attr.f[1],
                        control->inv_tokens * control->loss_scale, ROWS(0), c->node->attr.i[0], COLUMNS(0));
}
static void tiny_loss_sum(tiny_call *c) {
  hri_control *control = tiny_raw(c, 1);
  for (int64_t k = 0; k < COUNT(0); k++) control->loss_sum += V(0)[k];
}
static void tiny_square_norm(tiny_call *c) {
  for (int64_t at = 0, n = COUNT(0); at < n; at += HRI_NORM_BLOCK)
    V(1)[at / HRI_NORM_BLOCK] = hri_ref_square_sum(V(0) + at, n - at < HRI_NORM_BLOCK ? n - at : HRI_NORM_BLOCK);
}
static void tiny_clip(tiny_call *c) {
  hri_control *control = tiny_raw(c, 1);
  double sum = 0, norm;
  for (int64_t k = 0; k < COUNT(0); k++) sum += V(0)[k];
  norm = sqrt(sum) / control->loss_scale;
  control->grad_norm = norm;
  control->clip_scale =
      control->clip_norm > 0 && norm + 1e-6 > control->clip_norm ? control->clip_norm / (norm + 1e-6) : 1.0;
}
static void tiny_found_inf(tiny_call *c) { V(2)[0] = isfinite(V(0)[0]) && isfinite(V(1)[0]) ? 0 : 1; }
static void tiny_advance(tiny_call *c) { ((hri_control *)tiny_raw(c, 0))->applied_steps++; }
/* The halves of weights. */
static void tiny_to_halves(double *high, double *low, const double *whole, int64_t n) {
  for (int64_t k = 0; k < n; k++) {
    uint16_t rest;
    high[k] = (double)hri_bf16_widen(hri_split((float)whole[k], &rest));
    low[k] = (double)rest;
  }
}
static void tiny_from_halves(double *whole, const double *high, const double *low, int64_t n) {
  for (int64_t k = 0; k < n; k++) whole[k] = (double)hri_join(hri_bf16_round((float)high[k]), (uint16_t)low[k]);
}
/* With the fp16 copy of a master weight, or the low half of a bf16 one's, behind its states. */
static void tiny_update(tiny_call *c) {
  const hri_control *control = tiny_raw(c, 1);
  uint32_t kind = hri_optimizer_of(c->node->op), states = hri_optimizer_get(kind)->tensor_count;
  const double *f = c->node->attr.f;
  hri_update_numbers numbers = {.number = {f[0], f[1], f[2], f[3]},
                                .learning_rate = control->learning_rate,
                                .weight_decay = f[HRI_STATE_NUMBERS],
                                .gradient_scale = control->clip_scale / control->loss_scale,
                                .t = control->applied_steps};
  double *state[HRI_STATE_TENSORS];
  for (uint32_t k = 0; k < states; k++) state[k] = V(3 + k);
  bool beside = tiny_present(c, 3 + states), split = beside && tiny_tensor(c, 2)->dtype == HRI_BF16;
  if (split) tiny_from_halves(V(2), V(2), V(3 + states), COUNT(2));
  hri_ref_update(kind, V(2), state, V(0), COUNT(2), &numbers);
  if (split) tiny_to_halves(V(2), V(3 + states), V(2), COUNT(2));
  else if (beside) memcpy(V(3 + states), V(2), (size_t)COUNT(2) * sizeof(double));
}
static void tiny_zero(tiny_call *c) { memset(tiny_raw(c, 0), 0, hri_tensor_bytes(tiny_tensor(c, 0))); }
static void tiny_copy(tiny_call *c) {
  if (tiny_tensor(c, 0)->stride || tiny_tensor(c, 1)->stride) memcpy(V(1), V(0), (size_t)COUNT(0) * sizeof(double));
  else memcpy(tiny_raw(c, 1), tiny_raw(c, 0), hri_tensor_bytes(tiny_tensor(c, 0)));
}
static void tiny_cast(tiny_call *c) { memcpy(V(1), V(0), (size_t)COUNT(0) * sizeof(double)); }
static void tiny_split(tiny_call *c) { tiny_to_halves(V(1), V(2), V(0), COUNT(0)); }
static void tiny_join(tiny_call *c) { tiny_from_halves(V(2), V(0), V(1), COUNT(0)); }
static void tiny_accumulate(tiny_call *c) {
  for (int64_t k = 0; k < COUNT(0); k++) V(1)[k] += V(0)[k];
}
static void tiny_pick(tiny_call *c) {
  const hri_control *control = tiny_raw(c, 1);
  uint64_t bytes = hri_tensor_bytes(tiny_tensor(c, 2)),
           row = (uint64_t)(c->node->op == HRI_OP_SELECT ? control->micro_index : control->row_count - 1);
  memcpy(tiny_raw(c, 2), (const unsigned char *)tiny_raw(c, 0) + row * bytes, bytes);
}

/* One part of a quantized weight; operands from `codes` on are codes, absmax, nested. */
typedef struct tiny_part {
  hri_quant_part at;
  uint8_t *codes;
  void *absmax;
  float *nested;
} tiny_part;

static tiny_part tiny_part_of(const tiny_call *c, const hri_quant_layout *layout, uint32_t k, uint32_t codes) {
  tiny_part p = {.at = layout->part[k]};
  const uint64_t entry = hri_quant_is_double((uint32_t)c->node->attr.i[0]) ? 1 : sizeof(float);
  p.codes = (uint8_t *)tiny_raw(c, codes) + p.at.codes;
  p.absmax = (unsigned char *)tiny_raw(c, codes + 1) + p.at.absmax * entry;
  if (layout->nested_count) p.nested = (float *)tiny_raw(c, codes + 2) + p.at.nested;
  return p;
}

/* Of bitsandbytes' kinds; blocks of GGUF files are read by the CPU's kernels alone here. */
static void tiny_coded(tiny_call *c) {
  const bool codes = c->node->op == HRI_OP_QUANTIZE;
  const uint32_t kind = (uint32_t)c->node->attr.i[0];
  double *w = V(codes ? 0 : 3);
  hri_quant_layout layout;
  if (!hri_quant_layout_of(&c->node->attr, (uint64_t)COLUMNS(codes ? 0 : 3), &layout)) abort();
  for (uint32_t k = 0; k < layout.part_count; k++) {
    const tiny_part p = tiny_part_of(c, &layout, k, codes ? 1 : 0);
    const int64_t rows = (int64_t)p.at.rows, columns = (int64_t)p.at.columns;
    float *values = calloc(p.at.elements + 1, sizeof *values), *spare = calloc(p.at.elements + 1, sizeof *spare);
    if (!values || !spare) abort();
    for (uint64_t i = 0; i < p.at.elements; i++) values[i] = (float)w[p.at.first + i];
    if (codes) hri_ref_quantize(kind, values, rows, columns, p.codes, p.absmax, p.nested, p.nested ? spare : NULL);
    else hri_ref_dequantize(kind, p.codes, p.absmax, p.nested, rows, columns, values);
    for (uint64_t i = 0; i < p.at.elements && !codes; i++) w[p.at.first + i] = values[i];
    free(values);
    free(spare);
  }
}

#undef V
#undef ROWS
#undef COLUMNS
#undef COUNT

static void (*const tiny_kernels[HRI_OP_COUNT])(tiny_call *c) = {
    [HRI_OP_EMBED] = tiny_embed,
    [HRI_OP_EMBED_BACKWARD] = tiny_embed_backward,
    [HRI_OP_LINEAR] = tiny_linear,
    [HRI_OP_LINEAR_DX] = tiny_linear_dx,
    [HRI_OP_LINEAR_DW] = tiny_linear_dw,
    [HRI_OP_BIAS_GRADIENT] = tiny_bias_gradient,
    [HRI_OP_NORM] = tiny_norm,
    [HRI_OP_NORM_BACKWARD] = tiny_norm_backward,
    [HRI_OP_HEAD_NORM] = tiny_head_norm,
    [HRI_OP_HEAD_NORM_BACKWARD] = tiny_head_norm_backward,
    [HRI_OP_DORA_BEGIN] = tiny_lengths,
    [HRI_OP_DORA_LENGTHS] = tiny_lengths,
    [HRI_OP_DORA] = tiny_dora,
    [HRI_OP_DORA_BACKWARD] = tiny_dora_backward,
    [HRI_OP_ADD] = tiny_add,
    [HRI_OP_ACTIVATION] = tiny_activation,
    [HRI_OP_ACTIVATION_BACKWARD] = tiny_activation_backward,
    [HRI_OP_GLU] = tiny_glu,
    [HRI_OP_GLU_BACKWARD] = tiny_glu_backward,
    [HRI_OP_SOFTCAP] = tiny_softcap,
    [HRI_OP_SCALE] = tiny_scale,
    [HRI_OP_DROPOUT] = tiny_dropout,
    [HRI_OP_NOISE] = tiny_noise,
    [HRI_OP_ROPE] = tiny_rope,
    [HRI_OP_ROPE_TABLE] = tiny_rope_table,
    [HRI_OP_ATTENTION] = tiny_attention,
    [HRI_OP_ATTENTION_BACKWARD] = tiny_attention_backward,
    [HRI_OP_ATTENTION_CACHED] = tiny_attention_cached,
    [HRI_OP_CROSS_ENTROPY] = tiny_cross_entropy,
    [HRI_OP_LOSS_SUM] = tiny_loss_sum,
    [HRI_OP_SQUARE_NORM] = tiny_square_norm,
    [HRI_OP_CLIP] = tiny_clip,
    [HRI_OP_FOUND_INF] = tiny_found_inf,
    [HRI_OP_ADVANCE] = tiny_advance,
#define TINY_UPDATE(id, ...) [HRI_OP_##id] = tiny_update,
    HRI_OPTIMIZERS(TINY_UPDATE)
#undef TINY_UPDATE
        [HRI_OP_ZERO] = tiny_zero,
    [HRI_OP_COPY] = tiny_copy,
    [HRI_OP_CAST] = tiny_cast,
    [HRI_OP_SPLIT] = tiny_split,
    [HRI_OP_JOIN] = tiny_join,
    [HRI_OP_ACCUMULATE] = tiny_accumulate,
    [HRI_OP_SELECT] = tiny_pick,
    [HRI_OP_LAST_ROW] = tiny_pick,
    [HRI_OP_QUANTIZE] = tiny_coded,
    [HRI_OP_DEQUANTIZE] = tiny_coded,
};

/* ---- FILL and SINK ---- */

static hr_status tiny_put(void *context, uint64_t offset, const void *from, uint64_t bytes, hr_error *error) {
  (void)error;
  memcpy((unsigned char *)context + offset, from, bytes);
  return HR_OK;
}

static hr_status tiny_get(void *context, uint64_t offset, void *to, uint64_t bytes, hr_error *error) {
  (void)error;
  memcpy(to, (const unsigned char *)context + offset, bytes);
  return HR_OK;
}

static hr_status tiny_transfer(tiny_call *c, hr_error *error) {
  const hri_transfer *t = c->run->work.transfer;
  hri_window window = {.context = tiny_raw(c, 0), .put = tiny_put, .get = tiny_get};
  hri_id staging = hri_operand_find(c->job, c->node, HRI_SCRATCH, 0);
  const hri_tensor *s = &c->job->tensors.items[staging];
  if (c->job->storages.items[s->storage].tier != HRI_HOST)
    return hri_fail(error, HR_ERROR_INTERNAL, "staging is not where the host can reach it");
  return (c->node->op == HRI_OP_FILL ? t->fill : t->sink)(t->context, (uint32_t)c->node->attr.i[0],
                                                          (uint32_t)c->node->attr.i[1], &window,
                                                          tiny_bytes(c->run, staging), hri_tensor_bytes(s), error);
}

static hr_status tiny_node(const tiny_run *run, hri_id id, hr_error *error) {
  const hri_node *node = &run->work.job->nodes.items[id];
  tiny_call c = {.run = run, .job = run->work.job, .node = node};
  hri_id guard = hri_node_guard(run->work.job, node);
  if (guard != HRI_NONE && *(const double *)tiny_bytes(run, guard) != 0) return HR_OK;
  if (node->op == HRI_OP_FILL || node->op == HRI_OP_SINK) return tiny_transfer(&c, error);
  for (; c.piece < hri_piece_count(c.job, tiny_operand(&c, 0)->tensor); c.piece++) {
    tiny_call one = c;
    tiny_kernels[node->op](&one);
    tiny_finish(&one);
  }
  return HR_OK;
}

/* ---- check mode ---- */

/* Those of position `at` on one side of its node. */
static hr_status tiny_care(const tiny_run *r, hri_program_kind program, uint32_t at, bool before, hr_error *error) {
  const hri_cares *cares = r->work.cares ? &r->work.cares[program] : NULL;
  for (size_t k = 0; cares && k < cares->list.count; k++) {
    const hri_care *c = &cares->list.items[k];
    unsigned char *bytes =
        r->machine->arena[r->work.job->storages.items[c->storage].tier] + r->work.offsets[c->storage] + c->begin;
    if (c->at != at || (c->kind == HRI_PAINT_BEFORE) != before || c->lanes) continue;
    if (c->kind != HRI_VERIFY_AFTER) memset(bytes, HRI_POISON, c->bytes);
    for (uint64_t b = 0; c->kind == HRI_VERIFY_AFTER && b < c->bytes; b++)
      if (bytes[b] != HRI_POISON) return hri_care_broken(r->work.job, program, c, b, error);
  }
  return HR_OK;
}

/* ---- threads ---- */

static void tiny_pause(uint64_t generation, uint32_t at) {
  uint32_t word[4];
  if (!tiny.pause_us) return;
  hri_philox(tiny.seed, generation, at, word);
  if (word[0] % 3 == 0) usleep(word[1] % tiny.pause_us);
}

/* Under the lock: until the node may begin. False: the program has failed. */
static bool tiny_await(tiny_machine *m, const hri_job *job, const hri_node *node) {
  for (uint32_t w = 0; w < node->wait_count && !tiny.forget_waits; w++)
    while (!m->node_done[job->waits.items[node->wait_begin + w].node] && m->status == HR_OK)
      pthread_cond_wait(&m->changed, &m->lock);
  return m->status == HR_OK;
}

static void tiny_lane_program(tiny_machine *m, const tiny_command *command, uint8_t lane) {
  const tiny_run *run = command->run;
  const hri_job *job = run->work.job;
  const hri_program *p = &job->programs[command->program];
  for (uint32_t at = 0; at < p->order.count; at++) {
    hri_id id = p->order.items[at];
    const hri_node *node = &job->nodes.items[id];
    hr_error error = {0};
    hr_status status = HR_OK;
    if (node->lane != lane) continue;
    tiny_pause(m->generation, at);
    pthread_mutex_lock(&m->lock);
    if (tiny_await(m, job, node)) {
      if (at < m->begun_high) atomic_fetch_add(&tiny.overtaken, 1);
      else m->begun_high = at + 1;
      pthread_mutex_unlock(&m->lock);
      if (at > 0) status = tiny_care(run, command->program, at, true, &error);
      if (status == HR_OK) status = tiny_node(run, id, &error);
      if (status == HR_OK) status = tiny_care(run, command->program, at, false, &error);
      command->seconds[at] = 1e-6;
      pthread_mutex_lock(&m->lock);
    }
    if (status != HR_OK && m->status == HR_OK) m->status = status, m->error = error;
    m->node_done[id] = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
  }
}

typedef struct tiny_lane {
  tiny_machine *machine;
  uint8_t lane;
} tiny_lane;

static void *tiny_lane_main(void *context) {
  tiny_lane lane = *(tiny_lane *)context;
  tiny_machine *m = lane.machine;
  uint64_t seen = 0;
  free(context);
  pthread_mutex_lock(&m->lock);
  for (;;) {
    const tiny_command *command;
    while (!m->stopping && m->generation == seen) pthread_cond_wait(&m->changed, &m->lock);
    if (m->stopping) break;
    seen = m->generation;
    command = m->program;
    pthread_mutex_unlock(&m->lock);
    tiny_lane_program(m, command, lane.lane);
    pthread_mutex_lock(&m->lock);
    m->left--;
    pthread_cond_broadcast(&m->changed);
  }
  pthread_mutex_unlock(&m->lock);
  return NULL;
}

/* Under the lock. All lanes join at the end of a program. */
static void tiny_run_program(tiny_machine *m, tiny_command *command) {
  const hri_job *job = command->run->work.job;
  hr_error error = {0};
  hr_status status = tiny_care(command->run, command->program, 0, true, &error);
  if (status != HR_OK && m->status == HR_OK) m->status = status, m->error = error;
  m->node_done = calloc(job->nodes.count + 1, 1);
  if (!m->node_done) abort();
  m->left = HRI_LANE_COUNT;
  m->begun_high = 0;
  m->program = command;
  m->generation++;
  pthread_cond_broadcast(&m->changed);
  while (m->left) pthread_cond_wait(&m->changed, &m->lock);
  free(m->node_done);
  m->node_done = NULL;
}

static void *tiny_queue_main(void *context) {
  tiny_machine *m = context;
  pthread_mutex_lock(&m->lock);
  for (;;) {
    tiny_command *c, **end = &m->done;
    while (!m->first) pthread_cond_wait(&m->changed, &m->lock);
    c = m->first;
    if (c->kind == TINY_STOP) break;
    if (c->kind == TINY_LAUNCH && m->status == HR_OK) tiny_run_program(m, c);
    if (c->kind == TINY_WRITE) memcpy(tiny_bytes(c->run, c->tensor) + c->offset, c->data, c->bytes);
    if (c->kind == TINY_READ) memcpy(c->data, tiny_bytes(c->run, c->tensor) + c->offset, c->bytes);
    m->first = c->next;
    if (!m->first) m->last = NULL;
    c->next = NULL;
    while (*end) end = &(*end)->next;
    *end = c;
    m->finished = c->mark;
    pthread_cond_broadcast(&m->changed);
  }
  free(m->first);
  m->stopping = true;
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->lock);
  return NULL;
}

static void tiny_free(tiny_command *c) {
  free(c->data);
  free(c->seconds);
  free(c);
}

static tiny_command *tiny_new(tiny_kind kind, tiny_run *run) {
  tiny_command *c = calloc(1, sizeof *c);
  if (!c) abort();
  c->kind = kind;
  c->run = run;
  return c;
}

static hri_mark tiny_push(tiny_machine *m, tiny_command *c) {
  hri_mark mark;
  pthread_mutex_lock(&m->lock);
  mark = c->mark = ++m->issued;
  if (m->last) m->last->next = c;
  else m->first = c;
  m->last = c;
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->lock);
  return mark;
}

/* ---- the contract ---- */

/* Of a run that is released no memory is touched: the caller's may be gone. */
static hr_status tiny_drain(tiny_machine *m, hri_mark mark, const tiny_run *released, hr_error *error) {
  hr_status status;
  tiny_command *ready = NULL, **end = &ready;
  pthread_mutex_lock(&m->lock);
  while (m->finished < mark) pthread_cond_wait(&m->changed, &m->lock);
  while (m->done && m->done->mark <= mark) {
    *end = m->done;
    m->done = m->done->next;
    end = &(*end)->next;
    *end = NULL;
  }
  status = m->status;
  if (status != HR_OK && error) *error = m->error;
  pthread_mutex_unlock(&m->lock);
  while (ready) { /* on the caller's thread, in order */
    tiny_command *c = ready;
    const hri_work *w = &c->run->work;
    const bool deliver = c->run != released;
    ready = c->next;
    if (c->kind == TINY_READ && status == HR_OK && deliver) memcpy(c->to, c->data, c->bytes);
    for (size_t at = 0;
         c->kind == TINY_LAUNCH && w->after_node && deliver && at < w->job->programs[c->program].order.count; at++)
      if (!isnan(c->seconds[at]))
        w->after_node(w->context, w->job, w->job->programs[c->program].order.items[at], c->seconds[at]);
    tiny_free(c);
  }
  return status;
}

static hr_status tiny_wait(void *run, hri_mark mark, hr_error *error) {
  return tiny_drain(((tiny_run *)run)->machine, mark, NULL, error);
}

static bool tiny_transfers(const hri_job *job, hri_program_kind program) {
  for (size_t at = 0; at < job->programs[program].order.count; at++) {
    uint16_t op = job->nodes.items[job->programs[program].order.items[at]].op;
    if (op == HRI_OP_FILL || op == HRI_OP_SINK) return true;
  }
  return false;
}

static hr_status tiny_launch(void *run, hri_program_kind program, hri_mark *mark, hr_error *error) {
  tiny_run *r = run;
  tiny_command *c = tiny_new(TINY_LAUNCH, r);
  size_t count = r->work.job->programs[program].order.count;
  c->program = program;
  c->seconds = calloc(count + 1, sizeof *c->seconds);
  if (!c->seconds) abort();
  for (size_t k = 0; k < count; k++) c->seconds[k] = NAN;
  *mark = tiny_push(r->machine, c);
  pthread_mutex_lock(&r->machine->lock);
  if (r->machine->finished < *mark) atomic_fetch_add(&tiny.in_flight, 1);
  pthread_mutex_unlock(&r->machine->lock);
  return tiny_transfers(r->work.job, program) ? tiny_wait(r, *mark, error)
                                              : HR_OK; /* the transfer is called during this call */
}

static hr_status tiny_write(void *run, hri_id tensor, uint64_t offset, const void *from, uint64_t bytes,
                            hr_error *error) {
  tiny_run *r = run;
  tiny_command *c = tiny_new(TINY_WRITE, r);
  (void)error;
  c->tensor = tensor, c->offset = offset, c->bytes = bytes;
  c->data = malloc(bytes + 1);
  if (!c->data) abort();
  memcpy(c->data, from, bytes);
  (void)tiny_push(r->machine, c);
  return HR_OK;
}

static hr_status tiny_read(void *run, hri_id tensor, uint64_t offset, void *to, uint64_t bytes, hri_mark *mark,
                           hr_error *error) {
  tiny_run *r = run;
  tiny_command *c = tiny_new(TINY_READ, r);
  (void)error;
  c->tensor = tensor, c->offset = offset, c->bytes = bytes, c->to = to;
  c->data = malloc(bytes + 1);
  if (!c->data) abort();
  memset(to, 0xEE, bytes); /* who looks too early sees this */
  *mark = tiny_push(r->machine, c);
  return HR_OK;
}

static hr_status tiny_workspace(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes,
                                hr_error *error) {
  bool moves = node->op == HRI_OP_FILL || node->op == HRI_OP_SINK;
  bool kept = node->op == HRI_OP_DEQUANTIZE && node->attr.i[0] == HRI_QUANTIZATION_KEEP;
  uint32_t kind = hri_optimizer_of(node->op);
  bool stochastic = kind != HRI_NONE && job->tensors.items[hri_operands(job, node)[2].tensor].dtype != HRI_F32 &&
                    hri_operands(job, node)[3 + hri_optimizer_get(kind)->tensor_count].tensor == HRI_NONE;
  (void)self;
  *bytes = 0;
  if (!stochastic && !kept && (moves || tiny_kernels[node->op])) return HR_OK;
  return hri_fail(error, HR_ERROR_UNSUPPORTED, "the tiny backend has no kernel for %s%s", hri_op_name(node->op),
                  stochastic ? " with weights of type bf16"
                  : kept     ? " of a GGUF file's blocks"
                             : "");
}

static uint64_t tiny_fixed_bytes(void *self, const hri_job *job, uint32_t shapes, uint64_t process_bytes) {
  (void)self, (void)job, (void)shapes, (void)process_bytes;
  return 1 << 20;
}

static hr_status tiny_check_room(void *self, const uint64_t arena_bytes[HRI_TIER_COUNT], bool prepared, uint64_t beside,
                                 hr_error *error) {
  (void)self, (void)arena_bytes, (void)prepared, (void)beside, (void)error;
  return HR_OK;
}

static hr_status tiny_prepare(void *self, const hri_work *work, void **run, hr_error *error) {
  tiny_run *r = calloc(1, sizeof *r);
  (void)error;
  if (!r) abort();
  r->backend = self;
  r->work = *work;
  r->owns = !work->beside;
  if (work->beside) r->machine = ((tiny_run *)work->beside)->machine;
  *run = r;
  return HR_OK;
}

static hr_status tiny_reserve(void *run, hr_error *error) {
  tiny_run *r = run;
  tiny_machine *m;
  (void)error;
  if (!r->owns) {
    r->machine = ((tiny_run *)r->work.beside)->machine; /* there by now */
    return HR_OK;
  }
  r->machine = m = calloc(1, sizeof *m);
  if (!m) abort();
  for (int tier = 0; tier < HRI_TIER_COUNT; tier++) {
    m->bytes[tier] = hri_round_up(r->work.arena_bytes[tier], r->backend->granule);
    m->arena[tier] = aligned_alloc(256, hri_round_up(m->bytes[tier] + 256, 256));
    if (!m->arena[tier]) abort();
    memset(m->arena[tier], r->work.cares ? HRI_POISON : 0, m->bytes[tier]);
  }
  pthread_mutex_init(&m->lock, NULL);
  pthread_cond_init(&m->changed, NULL);
  if (pthread_create(&m->queue_thread, NULL, tiny_queue_main, m) != 0) abort();
  for (int lane = 0; lane < HRI_LANE_COUNT; lane++) {
    tiny_lane *l = malloc(sizeof *l);
    if (!l) abort();
    *l = (tiny_lane){m, (uint8_t)lane};
    if (pthread_create(&m->lane_threads[lane], NULL, tiny_lane_main, l) != 0) abort();
  }
  return HR_OK;
}

static void tiny_release(void *run) {
  tiny_run *r = run;
  tiny_machine *m = r ? r->machine : NULL;
  if (m) (void)tiny_drain(m, m->issued, r, NULL);
  if (m && r->owns) {
    (void)tiny_push(m, tiny_new(TINY_STOP, r));
    pthread_join(m->queue_thread, NULL);
    for (int lane = 0; lane < HRI_LANE_COUNT; lane++) pthread_join(m->lane_threads[lane], NULL);
    for (int tier = 0; tier < HRI_TIER_COUNT; tier++) free(m->arena[tier]);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    free(m);
  }
  free(r);
}

static uint64_t tiny_reserved_bytes(const void *run, hri_tier tier) {
  const tiny_run *r = run;
  return r->owns && r->machine ? r->machine->bytes[tier] : 0;
}
static uint64_t tiny_address(const void *run, hri_tier tier) { return (void)run, (uint64_t)(tier + 1) << 40; }
static void *tiny_view(void *run, hri_id tensor) { return (void)run, (void)tensor, NULL; }

static void tiny_fill(float *y, float value, int64_t n, hri_team *team) {
  (void)team;
  for (int64_t k = 0; k < n; k++) y[k] = value;
}
static void tiny_zero_bytes(void *to, int64_t bytes, hri_team *team) { (void)team, memset(to, 0, (size_t)bytes); }
static void tiny_cast_values(void *to, hri_real to_real, const void *from, hri_real from_real, int64_t n,
                             hri_team *team) {
  (void)team;
  for (int64_t k = 0; k < n; k++) hri_real_put(to, k, hri_real_get(from, k, from_real), to_real);
}
static int64_t tiny_first_nonfinite(const void *x, int64_t n, hri_real real, hri_team *team) {
  (void)team;
  for (int64_t k = 0; k < n; k++)
    if (!isfinite(hri_real_get(x, k, real))) return k;
  return -1;
}

static void tiny_close(hri_backend *backend) { free(backend); }

static hr_status tiny_open(const hr_device *device, hri_backend **out) {
  hri_backend *b = calloc(1, sizeof *b);
  if (!b) abort();
  *b = (hri_backend){.name = TINY_NAME,
                     .team = 1,
                     .instruction_set = "tiny",
                     .libraries = "references",
                     .device = *device,
                     .granule = 64,
                     .staging_tier = HRI_HOST,
                     .ahead = 1,
                     .elements = {NULL, tiny_fill, tiny_zero_bytes, tiny_cast_values, tiny_first_nonfinite, NULL},
                     .self = b,
                     .workspace = tiny_workspace,
                     .fixed_bytes = tiny_fixed_bytes,
                     .check_room = tiny_check_room,
                     .prepare = tiny_prepare,
                     .reserve = tiny_reserve,
                     .release = tiny_release,
                     .reserved_bytes = tiny_reserved_bytes,
                     .address = tiny_address,
                     .view = tiny_view,
                     .launch = tiny_launch,
                     .write = tiny_write,
                     .read = tiny_read,
                     .wait = tiny_wait,
                     .close = tiny_close};
  *out = b;
  return HR_OK;
}

#endif
