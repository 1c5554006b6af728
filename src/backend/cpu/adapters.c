/* One table from ops to kernels of the CPU: an adapter takes a node's operands and attributes apart and calls the
 * kernel on plain pointers and sizes. What a node needs beside its operands is in ops/demand.c, so that plans know it
 * without kernels. */
#include "backend/cpu/adapters.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/room.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/isa.h"
#include "ops/attention/cpu.h"
#include "ops/cpu.h"
#include "ops/demand.h"
#include "ops/given.h"
#include "ops/rules.h"
#include "ops/pointwise/rope_table.h"
#include "ops/scratch.h"

struct hri_cpu {
  hri_team *team;
  hri_isa isa;
  hri_cpu_kernels kernels;
  hri_attention_kernels_table attention;
  hri_gemm_cache *gemm;
  hri_demand demand;
};

/* One execution of one node, as adapters see it. */
typedef struct call {
  hri_given at;
  hri_cpu *cpu;
  const hri_transfer *transfer;
  void *handle;
  hr_error *error;
} call;

/* ---- operand access ---- */

static void *pointer(const call *c, uint32_t index) { return hri_given_pointer(&c->at, index); }
static const hri_tensor *tensor(const call *c, uint32_t index) { return hri_given_tensor(&c->at, index); }
static int64_t rows(const call *c, uint32_t index) { return hri_given_rows(&c->at, index); }
static int64_t columns(const call *c, uint32_t index) { return hri_given_columns(&c->at, index); }
static int64_t elements(const call *c, uint32_t index) { return hri_given_elements(&c->at, index); }
static bool adds(const call *c, uint32_t index) { return hri_given_adds(&c->at, index); }
static hri_real real(const call *c, uint32_t index) { return hri_given_real(&c->at, index); }
static hri_team *team(const call *c) { return c->cpu->team; }
static void *scratch(const call *c) { return hri_given_scratch(&c->at); }
static uint64_t scratch_bytes(const call *c) {
  hri_id id = hri_operand_find(c->at.job, c->at.node, HRI_SCRATCH, 0);
  return id == HRI_NONE ? 0 : hri_tensor_bytes(&c->at.job->tensors.items[id]);
}

/* ---- matrix products ---- */

static hr_status run_product(call *c) {
  uint32_t out = c->at.node->op == HRI_OP_LINEAR ? 3 : 2;
  const void *bias = c->at.node->op == HRI_OP_LINEAR ? pointer(c, 2) : NULL;
  hri_gemm_run(c->handle, c->cpu->team, pointer(c, 0), pointer(c, 1), bias, pointer(c, out), scratch(c));
  return HR_OK;
}

static hr_status run_pack(call *c) {
  hri_gemm_pack(c->handle, c->cpu->team, pointer(c, 0), pointer(c, 1));
  return HR_OK;
}

hr_status hri_cpu_packing(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, bool *pays,
                          hr_error *error) {
  return hri_demand_packing(&((hri_cpu *)self)->demand, job, node, bytes, pays, error);
}

/* ---- embed, norm, pointwise ---- */

static hr_status run_embed(call *c) {
  hri_embed_args a = hri_given_embed(&c->at);
  c->cpu->kernels.embed(&a);
  return HR_OK;
}

static hr_status run_embed_backward(call *c) {
  hri_embed_backward_args a = hri_given_embed_backward(&c->at);
  c->cpu->kernels.embed_backward(&a);
  return HR_OK;
}

static hr_status run_bias_gradient(call *c) {
  c->cpu->kernels.bias_gradient(pointer(c, 1), pointer(c, 0), rows(c, 0), columns(c, 0), adds(c, 1), scratch(c),
                                real(c, 0), team(c));
  return HR_OK;
}

static hr_status run_norm(call *c) {
  hri_norm_args a = hri_given_norm(&c->at);
  (c->at.node->attr.i[0] == HR_NORM_LAYER ? c->cpu->kernels.layernorm : c->cpu->kernels.rmsnorm)(&a);
  return HR_OK;
}

/* The kernel writes both gradients or adds to both. Where a node does one of each (norms that share only their weight
 * or only their bias), the one to be written starts as zero. */
static void zero_written(const call *c, uint32_t index) {
  if (hri_given_present(&c->at, index) && !adds(c, index))
    c->cpu->kernels.zero(pointer(c, index), (int64_t)hri_tensor_bytes(tensor(c, index)), team(c));
}

static hr_status run_norm_backward(call *c) {
  hri_norm_backward_args a = hri_given_norm_backward(&c->at);
  if (a.accumulate) {
    zero_written(c, 6);
    zero_written(c, 7);
  }
  (c->at.node->attr.i[0] == HR_NORM_LAYER ? c->cpu->kernels.layernorm_backward : c->cpu->kernels.rmsnorm_backward)(&a);
  return HR_OK;
}

static hr_status run_head_norm(call *c) {
  hri_head_norm_args a = hri_given_head_norm(&c->at);
  c->cpu->kernels.head_norm(&a);
  return HR_OK;
}

static hr_status run_head_norm_backward(call *c) {
  hri_head_norm_backward_args a = hri_given_head_norm_backward(&c->at);
  if (a.accumulate) {
    zero_written(c, 6);
    zero_written(c, 7);
  }
  c->cpu->kernels.head_norm_backward(&a);
  return HR_OK;
}

static hr_status run_softcap(call *c) {
  c->cpu->kernels.softcap(pointer(c, 1), pointer(c, 0), (float)c->at.node->attr.f[0], elements(c, 1), real(c, 1),
                          team(c));
  return HR_OK;
}

static hr_status run_add(call *c) {
  c->cpu->kernels.add(pointer(c, 2), pointer(c, 0), pointer(c, 1), elements(c, 2), real(c, 2), team(c));
  return HR_OK;
}

static hr_status run_lengths(call *c) {
  hri_row_lengths_args a;
  for (uint32_t p = 0; p < HRI_DORA_PARTS; p++)
    if (hri_given_row_lengths(&c->at, p, &a)) c->cpu->kernels.row_lengths(&a);
  return HR_OK;
}

static hr_status run_dora(call *c) {
  hri_dora_args a = hri_given_dora(&c->at);
  (c->at.node->op == HRI_OP_DORA ? c->cpu->kernels.dora : c->cpu->kernels.dora_backward)(&a);
  return HR_OK;
}

static hr_status run_scale(call *c) {
  c->cpu->kernels.scale(pointer(c, 1), pointer(c, 0), (float)c->at.node->attr.f[0], elements(c, 1), real(c, 1),
                        team(c));
  return HR_OK;
}

/* Whose random numbers a node's are (ops/draw.h). */
static hri_draw draw_of(const call *c, const hri_control *control) {
  return (hri_draw){.seed = control->seed,
                    .step = (uint64_t)control->step,
                    .site = c->at.node->site,
                    .row = (uint32_t)control->row_base};
}

static hr_status run_dropout(call *c) {
  hri_dropout_args a = {.rows = rows(c, 0),
                        .columns = columns(c, 0),
                        .sequence = c->at.node->attr.i[0],
                        .real = real(c, 0),
                        .probability = c->at.node->attr.f[0],
                        .draw = draw_of(c, pointer(c, 1)),
                        .x = pointer(c, 0),
                        .y = pointer(c, 2),
                        .team = team(c)};
  c->cpu->kernels.dropout(&a);
  return HR_OK;
}

static hr_status run_noise(call *c) {
  hri_noise_args a = {.rows = rows(c, 0),
                      .columns = columns(c, 0),
                      .sequence = c->at.node->attr.i[0],
                      .real = real(c, 0),
                      .amplitude = c->at.node->attr.f[0],
                      .draw = draw_of(c, pointer(c, 1)),
                      .x = pointer(c, 0),
                      .y = pointer(c, 2),
                      .team = team(c)};
  c->cpu->kernels.noise(&a);
  return HR_OK;
}

static hr_status run_activation(call *c) {
  c->cpu->kernels.activation((hr_activation)c->at.node->attr.i[0], pointer(c, 1), pointer(c, 0), elements(c, 1),
                             real(c, 1), team(c));
  return HR_OK;
}

static hr_status run_activation_backward(call *c) {
  c->cpu->kernels.activation_backward((hr_activation)c->at.node->attr.i[0], pointer(c, 2), pointer(c, 0), pointer(c, 1),
                                      elements(c, 2), real(c, 2), team(c));
  return HR_OK;
}

static hr_status run_glu(call *c) {
  c->cpu->kernels.glu((hr_activation)c->at.node->attr.i[0], pointer(c, 1), pointer(c, 0), rows(c, 1), columns(c, 1),
                      real(c, 1), team(c));
  return HR_OK;
}

static hr_status run_glu_backward(call *c) {
  c->cpu->kernels.glu_backward((hr_activation)c->at.node->attr.i[0], pointer(c, 2), pointer(c, 0), pointer(c, 1),
                               rows(c, 0), columns(c, 0), real(c, 0), team(c));
  return HR_OK;
}

static hr_status run_rope(call *c) {
  hri_rope_args a = hri_given_rope(&c->at);
  c->cpu->kernels.rope(&a);
  return HR_OK;
}

static hr_status run_rope_table(call *c) {
  const hri_rope_source *source = &c->at.job->ropes.items[c->at.node->attr.i[2]];
  float *table = pointer(c, 0);
  hri_rope_table(source->inverse, source->pairs, source->factor, c->at.node->attr.i[0], table,
                 table + elements(c, 0) / 2, team(c));
  return HR_OK;
}

/* ---- attention ---- */

/* With dropout `control` is the operand that says whose mask it is. */
static hri_attention_shape attention_shape(const call *c, uint32_t control) {
  hri_attention_shape s = hri_demand_attention(c->at.job, c->at.node);
  if (s.dropout > 0) s.draw = draw_of(c, pointer(c, control));
  return s;
}

static float attention_scale(const call *c) { return (float)c->at.node->attr.f[0]; }

static hr_status run_attention(call *c) {
  hri_attention_shape s = attention_shape(c, 4);
  c->cpu->attention.forward(&s, attention_scale(c), pointer(c, 0), pointer(c, 1), pointer(c, 2), pointer(c, 3),
                            scratch(c), team(c));
  return HR_OK;
}

static hr_status run_attention_backward(call *c) {
  hri_attention_shape s = attention_shape(c, 6);
  c->cpu->attention.backward(&s, attention_scale(c), pointer(c, 0), pointer(c, 1), pointer(c, 2), pointer(c, 3),
                             pointer(c, 4), pointer(c, 5), scratch(c), team(c));
  return HR_OK;
}

static hr_status run_attention_full(call *c) {
  hri_attention_shape s = attention_shape(c, 4);
  c->cpu->attention.materialized(&s, attention_scale(c), pointer(c, 0), pointer(c, 1), pointer(c, 2), pointer(c, 3),
                                 scratch(c), team(c));
  return HR_OK;
}

static hr_status run_attention_full_backward(call *c) {
  hri_attention_shape s = attention_shape(c, 5);
  c->cpu->attention.materialized_backward(&s, attention_scale(c), pointer(c, 0), pointer(c, 1), pointer(c, 2),
                                          pointer(c, 3), pointer(c, 4), scratch(c), team(c));
  return HR_OK;
}

static hr_status run_attention_cached(call *c) {
  hri_attention_cache_shape s = hri_demand_cache(c->at.job, c->at.node);
  const hri_control *control = pointer(c, 3);
  if (control->cache_length < 0 || control->row_count < 1 || control->row_count > s.rows ||
      control->cache_length + control->row_count > s.capacity)
    return hri_fail(c->error, HR_ERROR_INTERNAL, "generation: %lld rows do not fit behind %lld in a cache of %lld",
                    (long long)control->row_count, (long long)control->cache_length, (long long)s.capacity);
  c->cpu->attention.cached(&s, attention_scale(c), pointer(c, 0), control->cache_length, control->row_count,
                           pointer(c, 1), pointer(c, 2), pointer(c, 4), scratch(c), team(c));
  return HR_OK;
}

/* ---- loss, optimizer ---- */

static hr_status run_cross_entropy(call *c) {
  const hri_control *control = pointer(c, 2);
  hri_cross_entropy_args a = {.rows = rows(c, 0),
                              .vocabulary = c->at.node->attr.i[0],
                              .stored = columns(c, 0),
                              .softcap = c->at.node->attr.f[0],
                              .smoothing = c->at.node->attr.f[1],
                              .real = real(c, 0),
                              .logits = pointer(c, 0),
                              .labels = pointer(c, 1),
                              .gradient_scale = control->inv_tokens * control->loss_scale,
                              .losses = pointer(c, 4),
                              .dlogits = pointer(c, 3),
                              .team = team(c)};
  c->cpu->kernels.cross_entropy(&a);
  return HR_OK;
}

static hr_status run_loss_sum(call *c) {
  hri_control *control = pointer(c, 1);
  control->loss_sum += c->cpu->kernels.loss_sum(pointer(c, 0), elements(c, 0));
  return HR_OK;
}

static hr_status run_square_norm(call *c) {
  for (uint32_t k = 0; k < hri_given_pieces(&c->at, 0); k++)
    c->cpu->kernels.square_sum(hri_given_piece_pointer(&c->at, 1, k), hri_given_piece_pointer(&c->at, 0, k), real(c, 0),
                               hri_given_piece_elements(&c->at, 0, k), team(c));
  return HR_OK;
}

/* The clip coefficient of torch: min(1, max / (norm + 1e-6)), and 1 without a limit (clip_norm 0), where the norm alone
 * is wanted. Gradients carry the loss scale; the norm does not. */
static hr_status run_clip(call *c) {
  hri_control *control = pointer(c, 1);
  double norm = sqrt(c->cpu->kernels.partial_sum(pointer(c, 0), elements(c, 0))) / control->loss_scale;
  control->grad_norm = norm;
  control->clip_scale =
      control->clip_norm > 0 && norm + 1e-6 > control->clip_norm ? control->clip_norm / (norm + 1e-6) : 1.0;
  return HR_OK;
}

static hr_status run_found_inf(call *c) {
  const double *a = pointer(c, 0), *b = pointer(c, 1);
  *(double *)pointer(c, 2) = isfinite(*a) && isfinite(*b) ? 0 : 1;
  return HR_OK;
}

static hr_status run_advance(call *c) {
  ((hri_control *)pointer(c, 0))->applied_steps++;
  return HR_OK;
}

/* torch.amp.GradScaler's update, whose scale is an fp32 number: an overflow backs off, without a lower bound; enough
 * steps in a row without one let it grow, unless it would be infinite. */
static hr_status run_loss_scale(call *c) {
  hri_control *control = pointer(c, 0);
  const hri_attr *at = &c->at.node->attr;
  float grown = (float)control->loss_scale * (float)at->f[0];
  if (control->found_inf != 0) {
    control->loss_scale = (double)((float)control->loss_scale * (float)at->f[1]);
    control->growth_tracker = 0;
  } else if (++control->growth_tracker >= at->i[0]) {
    if (isfinite(grown)) control->loss_scale = (double)grown;
    control->growth_tracker = 0;
  }
  return HR_OK;
}

/* Range by range. The step of the random bits is the one that ADVANCE has just counted. */
static hr_status run_update(call *c) {
  const hri_control *control = pointer(c, 1);
  const double *f = c->at.node->attr.f;
  hri_update_numbers n = {.number = {f[0], f[1], f[2], f[3]},
                          .learning_rate = control->learning_rate,
                          .weight_decay = f[HRI_STATE_NUMBERS],
                          .gradient_scale = control->clip_scale / control->loss_scale,
                          .t = control->applied_steps};
  for (uint32_t k = 0; k < hri_given_pieces(&c->at, 0); k++) {
    hri_update_args a = hri_given_update(&c->at, k);
    a.rounding.seed = control->seed;
    a.rounding.step = (uint64_t)control->applied_steps;
    n.columns = hri_given_update_columns(c->at.job, c->at.node, k);
    c->cpu->kernels.update[hri_optimizer_of(c->at.node->op)](&a, &n);
  }
  return HR_OK;
}

/* ---- move ---- */

static hr_status run_zero(call *c) {
  c->cpu->kernels.zero(pointer(c, 0), (int64_t)hri_tensor_bytes(tensor(c, 0)), team(c));
  return HR_OK;
}

/* From row to row of an operand: elements, bytes. */
static int64_t row_stride(const call *c, uint32_t index) { return hri_given_stride(&c->at, index); }
static int64_t row_pitch(const call *c, uint32_t index) {
  return (int64_t)hri_dtype_size((hri_dtype)tensor(c, index)->dtype, (uint64_t)row_stride(c, index));
}

static hr_status run_accumulate(call *c) {
  c->cpu->kernels.accumulate(pointer(c, 1), real(c, 1), row_stride(c, 1), pointer(c, 0), real(c, 0), row_stride(c, 0),
                             rows(c, 0), columns(c, 0), adds(c, 1), team(c));
  return HR_OK;
}

static hr_status run_copy(call *c) {
  if (tensor(c, 0)->stride || tensor(c, 1)->stride) {
    int64_t width = (int64_t)hri_tensor_bytes(tensor(c, 0)) / rows(c, 0);
    c->cpu->kernels.copy_rows(pointer(c, 1), row_pitch(c, 1), pointer(c, 0), row_pitch(c, 0), width, rows(c, 0),
                              team(c));
    return HR_OK;
  }
  c->cpu->kernels.copy(pointer(c, 1), pointer(c, 0), (int64_t)hri_tensor_bytes(tensor(c, 0)), team(c));
  return HR_OK;
}

static hr_status run_cast(call *c) {
  c->cpu->kernels.cast(pointer(c, 1), real(c, 1), pointer(c, 0), real(c, 0), elements(c, 0), team(c));
  return HR_OK;
}

static hr_status run_split(call *c) {
  c->cpu->kernels.split(pointer(c, 1), pointer(c, 2), pointer(c, 0), elements(c, 0), team(c));
  return HR_OK;
}
static hr_status run_join(call *c) {
  c->cpu->kernels.join(pointer(c, 2), pointer(c, 0), pointer(c, 1), elements(c, 0), team(c));
  return HR_OK;
}

static hr_status run_select(call *c) {
  const hri_control *control = pointer(c, 1);
  uint64_t bytes = hri_tensor_bytes(tensor(c, 2));
  memcpy(pointer(c, 2), (const unsigned char *)pointer(c, 0) + (uint64_t)control->micro_index * bytes, bytes);
  return HR_OK;
}

static hr_status run_last_row(call *c) {
  const hri_control *control = pointer(c, 1);
  uint64_t bytes = hri_tensor_bytes(tensor(c, 2));
  memcpy(pointer(c, 2), (const unsigned char *)pointer(c, 0) + (uint64_t)(control->row_count - 1) * bytes, bytes);
  return HR_OK;
}

/* ---- quant ---- */

static hr_status run_quantize(call *c) {
  hri_quant_layout layout = hri_demand_quantized(c->at.job, c->at.node);
  hri_quant_args a = hri_given_quant(&c->at, &layout);
  int64_t bad;
  a.scratch = scratch(c);
  bad = c->cpu->kernels.quantize(&a);
  return bad < 0 ? HR_OK
                 : hri_demand_uncoded(c->at.job, c->at.node, (uint64_t)bad, hri_real_get(a.w, bad, a.real), c->error);
}

static hr_status run_dequantize(call *c) {
  hri_quant_layout layout = hri_demand_quantized(c->at.job, c->at.node);
  hri_quant_args a = hri_given_quant(&c->at, &layout);
  c->cpu->kernels.dequantize(&a);
  return HR_OK;
}

/* Arenas are memory of the host: a window on one is its address. */
static hr_status put(void *context, uint64_t offset, const void *from, uint64_t bytes, hr_error *error) {
  (void)error;
  memcpy((unsigned char *)context + offset, from, bytes);
  return HR_OK;
}

static hr_status get(void *context, uint64_t offset, void *to, uint64_t bytes, hr_error *error) {
  (void)error;
  memcpy(to, (const unsigned char *)context + offset, bytes);
  return HR_OK;
}

static hr_status run_transfer(call *c) {
  const hri_transfer *t = c->transfer;
  hri_window window = {.memory = pointer(c, 0), .context = pointer(c, 0), .put = put, .get = get};
  return (c->at.node->op == HRI_OP_FILL ? t->fill : t->sink)(t->context, (uint32_t)c->at.node->attr.i[0],
                                                             (uint32_t)c->at.node->attr.i[1], &window, scratch(c),
                                                             scratch_bytes(c), c->error);
}

/* ---- the table ---- */

typedef hr_status (*adapter)(call *c);
static const adapter adapters[HRI_OP_COUNT] = {
    [HRI_OP_EMBED] = run_embed,
    [HRI_OP_EMBED_BACKWARD] = run_embed_backward,
    [HRI_OP_LINEAR] = run_product,
    [HRI_OP_LINEAR_DX] = run_product,
    [HRI_OP_LINEAR_DW] = run_product,
    [HRI_OP_PACK] = run_pack,
    [HRI_OP_BIAS_GRADIENT] = run_bias_gradient,
    [HRI_OP_NORM] = run_norm,
    [HRI_OP_NORM_BACKWARD] = run_norm_backward,
    [HRI_OP_HEAD_NORM] = run_head_norm,
    [HRI_OP_HEAD_NORM_BACKWARD] = run_head_norm_backward,
    [HRI_OP_ADD] = run_add,
    [HRI_OP_DORA_BEGIN] = run_lengths,
    [HRI_OP_DORA_LENGTHS] = run_lengths,
    [HRI_OP_DORA] = run_dora,
    [HRI_OP_DORA_BACKWARD] = run_dora,
    [HRI_OP_SCALE] = run_scale,
    [HRI_OP_DROPOUT] = run_dropout,
    [HRI_OP_NOISE] = run_noise,
    [HRI_OP_ACTIVATION] = run_activation,
    [HRI_OP_ACTIVATION_BACKWARD] = run_activation_backward,
    [HRI_OP_GLU] = run_glu,
    [HRI_OP_GLU_BACKWARD] = run_glu_backward,
    [HRI_OP_ROPE] = run_rope,
    [HRI_OP_ROPE_TABLE] = run_rope_table,
    [HRI_OP_SOFTCAP] = run_softcap,
    [HRI_OP_ATTENTION] = run_attention,
    [HRI_OP_ATTENTION_BACKWARD] = run_attention_backward,
    [HRI_OP_ATTENTION_FULL] = run_attention_full,
    [HRI_OP_ATTENTION_FULL_BACKWARD] = run_attention_full_backward,
    [HRI_OP_ATTENTION_CACHED] = run_attention_cached,
    [HRI_OP_CROSS_ENTROPY] = run_cross_entropy,
    [HRI_OP_LOSS_SUM] = run_loss_sum,
    [HRI_OP_SQUARE_NORM] = run_square_norm,
    [HRI_OP_CLIP] = run_clip,
    [HRI_OP_FOUND_INF] = run_found_inf,
    [HRI_OP_ADVANCE] = run_advance,
    [HRI_OP_LOSS_SCALE] = run_loss_scale,
#define HRI_RUN_UPDATE(id, ...) [HRI_OP_##id] = run_update,
    HRI_OPTIMIZERS(HRI_RUN_UPDATE)
#undef HRI_RUN_UPDATE
        [HRI_OP_ZERO] = run_zero,
    [HRI_OP_COPY] = run_copy,
    [HRI_OP_ACCUMULATE] = run_accumulate,
    [HRI_OP_CAST] = run_cast,
    [HRI_OP_SPLIT] = run_split,
    [HRI_OP_JOIN] = run_join,
    [HRI_OP_SELECT] = run_select,
    [HRI_OP_LAST_ROW] = run_last_row,
    [HRI_OP_QUANTIZE] = run_quantize,
    [HRI_OP_DEQUANTIZE] = run_dequantize,
    [HRI_OP_FILL] = run_transfer,
    [HRI_OP_SINK] = run_transfer,
};

hr_status hri_cpu_workspace(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error) {
  return hri_demand_scratch(&((hri_cpu *)self)->demand, job, node, bytes, error);
}

static void fill_tables(hri_cpu *cpu) {
#define FILL(isa)                                                                                                      \
  hri_norm_kernels_##isa(&cpu->kernels), hri_pointwise_kernels_##isa(&cpu->kernels),                                   \
      hri_embed_kernels_##isa(&cpu->kernels), hri_loss_kernels_##isa(&cpu->kernels),                                   \
      hri_optim_kernels_##isa(&cpu->kernels), hri_move_kernels_##isa(&cpu->kernels),                                   \
      hri_quant_kernels_##isa(&cpu->kernels), hri_attention_kernels_##isa(&cpu->attention)
  switch (cpu->isa) {
#if defined(__x86_64__)
#if defined(HRI_HAVE_AMX) /* or else no processor is said to have it */
  case HRI_ISA_AMX: FILL(avx512), hri_attention_kernels_amx(&cpu->attention); break;
#endif
  case HRI_ISA_AVX512_BF16: FILL(avx512), hri_attention_kernels_avx512bf16(&cpu->attention); break;
  case HRI_ISA_AVX512: FILL(avx512); break;
  case HRI_ISA_AVX2: FILL(avx2); break;
#elif defined(__aarch64__)
  case HRI_ISA_NEON_BF16: FILL(neon), hri_attention_kernels_neonbf16(&cpu->attention); break;
  case HRI_ISA_NEON: FILL(neon); break;
#endif
  default: FILL(base); break;
  }
#undef FILL
}

hr_status hri_cpu_create(uint32_t threads, hri_cpu **out, hr_error *error) {
  hri_cpu *cpu = hri_alloc_zero(1, sizeof *cpu);
  hr_status status;
  if (!cpu) return hri_fail_memory(error, sizeof *cpu, "the CPU backend");
  status = hri_cpu_isa_choose(getenv("HEADROOM_ISA"), &cpu->isa, error);
  if (status == HR_OK) status = hri_team_create(threads ? threads : 1, &cpu->team, error);
  if (status == HR_OK) {
    fill_tables(cpu);
    status = hri_gemm_cache_create(cpu->isa, HRI_GEMM_AUTO, &cpu->gemm, error);
    cpu->demand = (hri_demand){.machine = {.level = cpu->isa, .pairs = hri_cpu_pairs()},
                               .team = (uint32_t)hri_team_threads(cpu->team)};
  }
  if (status != HR_OK) {
    hri_cpu_destroy(cpu);
    return status;
  }
  *out = cpu;
  return HR_OK;
}

void hri_cpu_choose(hri_cpu *cpu, const hri_gemm_table *table) {
  cpu->demand.machine.table = *table;
  hri_gemm_cache_choose(cpu->gemm, table);
}

void hri_cpu_destroy(hri_cpu *cpu) {
  if (!cpu) return;
  hri_gemm_cache_destroy(cpu->gemm);
  hri_team_destroy(cpu->team);
  hri_free(cpu);
}

static uint32_t threads_of(const hri_cpu *cpu) { return (uint32_t)hri_team_threads(cpu->team); }

uint64_t hri_cpu_start_bytes(const hri_cpu *cpu) { return hri_team_start_bytes(cpu->team); }

hr_status hri_cpu_start(hri_cpu *cpu, hr_error *error) {
  HRI_TRY(hri_room_prove(hri_team_start_bytes(cpu->team), "the team of threads", error));
  return hri_team_start(cpu->team, error);
}

hr_status hri_cpu_prepare(hri_cpu *cpu, const hri_job *job, const hri_node *node, void **handle, hr_error *error) {
  hri_gemm_shape shape;
  hri_gemm *gemm;
  *handle = NULL;
  HRI_TRY(hri_demand_check("CPU", job, node, error));
  assert(adapters[node->op]); /* what has types has a kernel */
  if (node->op == HRI_OP_PACK) {
    shape = hri_demand_pack(job, node, threads_of(cpu));
    HRI_TRY(hri_gemm_prepare_pack(cpu->gemm, &shape, &gemm, error));
    *handle = gemm;
  }
  if (!hri_demand_is_product(node->op)) return HR_OK;
  shape = hri_demand_product(job, node, threads_of(cpu));
  HRI_TRY(hri_gemm_prepare(cpu->gemm, &shape, &gemm, error));
  *handle = gemm;
  return HR_OK;
}

hr_status hri_cpu_run(hri_cpu *cpu, const hri_launch *launch, const hri_node *node, void *handle, hr_error *error) {
  call c =
      {.at = {.job = launch->job, .node = node, .offsets = launch->offsets, .base = launch->base, .team = cpu->team},
       .cpu = cpu,
       .transfer = launch->transfer,
       .handle = handle,
       .error = error};
  return adapters[node->op](&c);
}

const hri_cpu_kernels *hri_cpu_table(const hri_cpu *cpu) { return &cpu->kernels; }
hri_team *hri_cpu_team(const hri_cpu *cpu) { return cpu->team; }
hri_isa hri_cpu_level(const hri_cpu *cpu) { return cpu->isa; }
