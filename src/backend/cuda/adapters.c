/* One table from ops to launchers. What a node needs beside its operands is said by the same functions that queue it,
 * so that a plan and a run cannot differ.
 *
 * Nothing here looks at values: what changes from step to step is read on the device, so that what is queued once,
 * into a graph, stays right. */
#include "backend/cuda/adapters.h"

#include <assert.h>

#include "base/mem.h"
#include "ops/demand.h"
#include "ops/given.h"
#include "ops/rules.h"

/* One node as adapters see it. */
typedef struct call {
  hri_given at;
  const hri_cuda_launch *launch;
  hr_error *error;
} call;

/* ---- operand access ---- */

static void *pointer(const call *c, uint32_t index) { return hri_given_pointer(&c->at, index); }
static const hri_tensor *tensor(const call *c, uint32_t index) { return hri_given_tensor(&c->at, index); }
static int64_t rows(const call *c, uint32_t index) { return hri_given_rows(&c->at, index); }
static int64_t columns(const call *c, uint32_t index) { return hri_given_columns(&c->at, index); }
static int64_t elements(const call *c, uint32_t index) { return hri_given_elements(&c->at, index); }
static uint64_t bytes_of(const call *c, uint32_t index) { return hri_tensor_bytes(tensor(c, index)); }
static bool adds(const call *c, uint32_t index) { return hri_given_adds(&c->at, index); }
static hri_real real(const call *c, uint32_t index) { return hri_given_real(&c->at, index); }
static void *scratch(const call *c) { return hri_given_scratch(&c->at); }
static const hri_cuda_kernels *kernels(const call *c) { return c->launch->parts->kernels; }
static void *stream(const call *c) { return c->launch->stream; }

static hr_status queued(const call *c, int refused) {
  if (!refused) return HR_OK;
  return hri_fail(c->error, HR_ERROR_INTERNAL, "the device refused a launch of %s", hri_op_name(c->at.node->op));
}

/* ---- matrix products ---- */

static hr_status run_own_product(call *c) {
  hri_cuda_product_args a = hri_cuda_own_product(c->at.job, c->at.node);
  a.a = pointer(c, 0);
  a.b = pointer(c, 1);
  a.bias = c->at.node->op == HRI_OP_LINEAR ? pointer(c, 2) : NULL;
  a.c = pointer(c, hri_cuda_product_result(c->at.node));
  a.scratch = scratch(c);
  return queued(c, kernels(c)->product(&a, stream(c)));
}

static hr_status find_way(const call *c, const hri_gpu_product *p, hri_cuda_way *way) {
  const hri_cuda_launch *l = c->launch;
  return hri_cuda_way_find(l->ways, l->parts->products, p, c->at.job->workspace_bytes, way, c->error);
}

static hr_status queue_product(call *c, const hri_gpu_product *p, const hri_cuda_way *way, void *beside,
                               unsigned char *workspace) {
  const hri_cuda_parts *parts = c->launch->parts;
  return parts->products->calls->run(parts->products, p, &way->algorithm, pointer(c, 0), pointer(c, 1), beside,
                                     pointer(c, hri_cuda_product_result(c->at.node)), workspace, c->launch->stream,
                                     c->error);
}

/* The product alone, and what its epilogue would have done by a kernel of ours: the gradient in place, or the sums. */
static hr_status run_apart(call *c, hri_gpu_product p) {
  uint32_t beside = hri_cuda_product_beside(c->at.node), result = hri_cuda_product_result(c->at.node);
  bool slope = p.epilogue == HRI_GPU_GELU_BACKWARD;
  hri_cuda_way way;
  p.epilogue = HRI_GPU_NO_EPILOGUE;
  HRI_TRY(find_way(c, &p, &way));
  HRI_TRY(queue_product(c, &p, &way, NULL, scratch(c)));
  if (slope)
    return queued(c, kernels(c)->activation_backward((hr_activation)c->at.node->attr.i[0], pointer(c, result),
                                                     pointer(c, result), pointer(c, beside), elements(c, result),
                                                     real(c, result), stream(c)));
  return queued(c, kernels(c)->bias_gradient(pointer(c, beside), pointer(c, 0), rows(c, 0), columns(c, 0), false,
                                             scratch(c), real(c, 0), stream(c)));
}

static hr_status run_library_product(call *c) {
  hri_gpu_product p = hri_cuda_library_product(c->at.job, c->at.node);
  unsigned char *workspace = scratch(c);
  void *beside = p.epilogue == HRI_GPU_NO_EPILOGUE ? NULL : pointer(c, hri_cuda_product_beside(c->at.node));
  hri_cuda_way way;
  HRI_TRY(find_way(c, &p, &way));
  if (way.apart) return run_apart(c, p);
  if (hri_cuda_bias_bytes(&p)) {
    HRI_TRY(queued(c, kernels(c)->cast(workspace, p.result, beside, HRI_REAL_F32, p.n, stream(c))));
    beside = workspace;
    workspace += hri_cuda_bias_bytes(&p);
  }
  return queue_product(c, &p, &way, beside, workspace);
}

static hr_status run_product(call *c) {
  return hri_cuda_product_is_ours(c->at.job, c->at.node) ? run_own_product(c) : run_library_product(c);
}

static hr_status run_bias_gradient(call *c) {
  return queued(c, kernels(c)->bias_gradient(pointer(c, 1), pointer(c, 0), rows(c, 0), columns(c, 0), adds(c, 1),
                                             scratch(c), real(c, 0), stream(c)));
}

/* ---- embed, norm ---- */

static hr_status run_embed(call *c) {
  hri_embed_args a = hri_given_embed(&c->at);
  return queued(c, kernels(c)->embed(&a, stream(c)));
}

static hr_status run_embed_backward(call *c) {
  hri_embed_backward_args a = hri_given_embed_backward(&c->at);
  return queued(c, kernels(c)->embed_backward(&a, scratch(c), stream(c)));
}

static hr_status run_norm(call *c) {
  hri_norm_args a = hri_given_norm(&c->at);
  return queued(c,
                (c->at.node->attr.i[0] == HR_NORM_LAYER ? kernels(c)->layernorm : kernels(c)->rmsnorm)(&a, stream(c)));
}

static hr_status zero(const call *c, uint32_t index) {
  hri_gpu *gpu = c->launch->parts->gpu;
  return gpu->calls->fill(gpu, pointer(c, index), 0, bytes_of(c, index), c->launch->stream, c->error);
}

/* The kernel writes both gradients or adds to both: where a node does one of each, the one to be written starts as
 * zero. */
static hr_status zero_written(const call *c, uint32_t index) {
  return hri_given_present(&c->at, index) && !adds(c, index) ? zero(c, index) : HR_OK;
}

static hr_status run_norm_backward(call *c) {
  hri_norm_backward_args a = hri_given_norm_backward(&c->at);
  if (a.accumulate) {
    HRI_TRY(zero_written(c, 6));
    HRI_TRY(zero_written(c, 7));
  }
  return queued(c, (c->at.node->attr.i[0] == HR_NORM_LAYER ? kernels(c)->layernorm_backward
                                                           : kernels(c)->rmsnorm_backward)(&a, stream(c)));
}

static hr_status run_head_norm(call *c) {
  hri_head_norm_args a = hri_given_head_norm(&c->at);
  return queued(c, kernels(c)->head_norm(&a, stream(c)));
}

static hr_status run_head_norm_backward(call *c) {
  hri_head_norm_backward_args a = hri_given_head_norm_backward(&c->at);
  if (a.accumulate) {
    HRI_TRY(zero_written(c, 6));
    HRI_TRY(zero_written(c, 7));
  }
  return queued(c, kernels(c)->head_norm_backward(&a, stream(c)));
}

/* ---- DoRA ---- */

static hr_status run_lengths(call *c) {
  hri_row_lengths_args a;
  int refused = 0;
  for (uint32_t p = 0; p < HRI_DORA_PARTS; p++)
    if (hri_given_row_lengths(&c->at, p, &a)) refused |= kernels(c)->row_lengths(&a, stream(c));
  return queued(c, refused);
}

static hr_status run_dora(call *c) {
  hri_dora_args a = hri_given_dora(&c->at);
  return queued(c, (c->at.node->op == HRI_OP_DORA ? kernels(c)->dora : kernels(c)->dora_backward)(&a, stream(c)));
}

/* ---- pointwise ---- */

static hr_status run_add(call *c) {
  return queued(c, kernels(c)->add(pointer(c, 2), pointer(c, 0), pointer(c, 1), elements(c, 2), real(c, 2), stream(c)));
}

static hr_status run_scale(call *c) {
  return queued(c, kernels(c)->scale(pointer(c, 1), pointer(c, 0), (float)c->at.node->attr.f[0], elements(c, 1),
                                     real(c, 1), stream(c)));
}
static hr_status run_softcap(call *c) {
  return queued(c, kernels(c)->softcap(pointer(c, 1), pointer(c, 0), (float)c->at.node->attr.f[0], elements(c, 1),
                                       real(c, 1), stream(c)));
}

static hr_activation activation_of(const hri_node *node) { return (hr_activation)node->attr.i[0]; }

static hr_status run_activation(call *c) {
  return queued(c, kernels(c)->activation(activation_of(c->at.node), pointer(c, 1), pointer(c, 0), elements(c, 1),
                                          real(c, 1), stream(c)));
}
static hr_status run_activation_backward(call *c) {
  return queued(c, kernels(c)->activation_backward(activation_of(c->at.node), pointer(c, 2), pointer(c, 0),
                                                   pointer(c, 1), elements(c, 2), real(c, 2), stream(c)));
}
static hr_status run_glu(call *c) {
  return queued(c, kernels(c)->glu(activation_of(c->at.node), pointer(c, 1), pointer(c, 0), rows(c, 1), columns(c, 1),
                                   real(c, 1), stream(c)));
}
static hr_status run_glu_backward(call *c) {
  return queued(c, kernels(c)->glu_backward(activation_of(c->at.node), pointer(c, 2), pointer(c, 0), pointer(c, 1),
                                            rows(c, 0), columns(c, 0), real(c, 0), stream(c)));
}

static hr_status run_rope(call *c) {
  hri_rope_args a = hri_given_rope(&c->at);
  return queued(c, kernels(c)->rope(&a, stream(c)));
}

static hr_status run_dropout(call *c) {
  hri_cuda_dropout_args a = {.rows = rows(c, 0),
                             .columns = columns(c, 0),
                             .sequence = c->at.node->attr.i[0],
                             .real = real(c, 0),
                             .probability = c->at.node->attr.f[0],
                             .site = c->at.node->site,
                             .control = pointer(c, 1),
                             .x = pointer(c, 0),
                             .y = pointer(c, 2)};
  return queued(c, kernels(c)->dropout(&a, stream(c)));
}

static hr_status run_noise(call *c) {
  hri_cuda_noise_args a = {.rows = rows(c, 0),
                           .columns = columns(c, 0),
                           .sequence = c->at.node->attr.i[0],
                           .real = real(c, 0),
                           .amplitude = c->at.node->attr.f[0],
                           .site = c->at.node->site,
                           .control = pointer(c, 1),
                           .x = pointer(c, 0),
                           .y = pointer(c, 2)};
  return queued(c, kernels(c)->noise(&a, stream(c)));
}

/* ---- attention ---- */

static float attention_scale(const call *c) { return (float)c->at.node->attr.f[0]; }

/* Whose mask dropout takes is read from the control block on the device, but for the node's site. */
static hri_attention_shape attention_shape(const call *c) {
  hri_attention_shape s = hri_demand_attention(c->at.job, c->at.node);
  s.draw.site = c->at.node->site;
  return s;
}

static hr_status run_attention(call *c) {
  hri_attention_shape s = attention_shape(c);
  return queued(c, kernels(c)->attention(&s, attention_scale(c), pointer(c, 0), pointer(c, 1), pointer(c, 2),
                                         pointer(c, 3), pointer(c, 4), stream(c)));
}
static hr_status run_attention_backward(call *c) {
  hri_attention_shape s = attention_shape(c);
  return queued(c, kernels(c)->attention_backward(&s, attention_scale(c), pointer(c, 0), pointer(c, 1), pointer(c, 2),
                                                  pointer(c, 3), pointer(c, 4), pointer(c, 5), pointer(c, 6),
                                                  scratch(c), stream(c)));
}
static hr_status run_attention_full(call *c) {
  hri_attention_shape s = attention_shape(c);
  return queued(c, kernels(c)->attention_full(&s, attention_scale(c), pointer(c, 0), pointer(c, 1), pointer(c, 2),
                                              pointer(c, 3), pointer(c, 4), stream(c)));
}
/* Probabilities are 0 where documents begin, so the backward needs no other word of them. */
static hr_status run_attention_full_backward(call *c) {
  hri_attention_shape s = attention_shape(c);
  return queued(c,
                kernels(c)->attention_full_backward(&s, attention_scale(c), pointer(c, 0), pointer(c, 1), pointer(c, 2),
                                                    pointer(c, 4), pointer(c, 5), scratch(c), stream(c)));
}
static hr_status run_attention_cached(call *c) {
  hri_attention_cache_shape s = hri_demand_cache(c->at.job, c->at.node);
  return queued(c, kernels(c)->attention_cached(&s, attention_scale(c), pointer(c, 0), pointer(c, 1), pointer(c, 2),
                                                pointer(c, 3), pointer(c, 4), scratch(c), stream(c)));
}

/* ---- loss, optimizer ---- */

static hr_status run_cross_entropy(call *c) {
  hri_cuda_cross_entropy_args a = {.rows = rows(c, 0),
                                   .vocabulary = c->at.node->attr.i[0],
                                   .stored = columns(c, 0),
                                   .softcap = c->at.node->attr.f[0],
                                   .smoothing = c->at.node->attr.f[1],
                                   .real = real(c, 0),
                                   .logits = pointer(c, 0),
                                   .labels = pointer(c, 1),
                                   .control = pointer(c, 2),
                                   .losses = pointer(c, 4),
                                   .dlogits = pointer(c, 3)};
  return queued(c, kernels(c)->cross_entropy(&a, stream(c)));
}
static hr_status run_loss_sum(call *c) {
  return queued(c, kernels(c)->loss_sum(pointer(c, 0), elements(c, 0), pointer(c, 1), stream(c)));
}

static hr_status run_square_norm(call *c) {
  int refused = 0;
  for (uint32_t k = 0; k < hri_given_pieces(&c->at, 0); k++)
    refused |= kernels(c)->square_sum(hri_given_piece_pointer(&c->at, 1, k), hri_given_piece_pointer(&c->at, 0, k),
                                      real(c, 0), hri_given_piece_elements(&c->at, 0, k), stream(c));
  return queued(c, refused);
}
static hr_status run_clip(call *c) {
  return queued(c, kernels(c)->clip(pointer(c, 0), elements(c, 0), pointer(c, 1), stream(c)));
}
static hr_status run_found_inf(call *c) {
  return queued(c, kernels(c)->found_inf(pointer(c, 0), pointer(c, 1), pointer(c, 2), stream(c)));
}

/* The flag that a node's guard is; NULL: none. It is read on the device. */
static const double *guard(const call *c) {
  hri_id id = hri_node_guard(c->at.job, c->at.node);
  return id == HRI_NONE ? NULL : (const double *)(const void *)hri_cuda_pointer(c->launch, id);
}

static hr_status run_advance(call *c) { return queued(c, kernels(c)->advance(pointer(c, 0), guard(c), stream(c))); }

static hr_status run_loss_scale(call *c) {
  const hri_attr *at = &c->at.node->attr;
  return queued(c, kernels(c)->loss_scale(pointer(c, 0), at->i[0], at->f[0], at->f[1], stream(c)));
}

/* Range by range. */
static hr_status run_update(call *c) {
  uint32_t kind = hri_optimizer_of(c->at.node->op);
  const double *f = c->at.node->attr.f;
  int refused = 0;
  for (uint32_t k = 0; k < hri_given_pieces(&c->at, 0); k++) {
    hri_cuda_update_args a = {.u = hri_given_update(&c->at, k),
                              .number = {f[0], f[1], f[2], f[3]},
                              .weight_decay = f[HRI_STATE_NUMBERS],
                              .columns = hri_given_update_columns(c->at.job, c->at.node, k),
                              .control = pointer(c, 1),
                              .guard = guard(c),
                              .scratch = scratch(c)};
    refused |= kernels(c)->update(kind, &a, stream(c));
  }
  return queued(c, refused);
}

/* ---- move ---- */

static hr_status run_zero(call *c) { return zero(c, 0); }

static int64_t pitch(const call *c, uint32_t index) { return (int64_t)hri_cuda_pitch(tensor(c, index)); }

static hr_status run_copy(call *c) {
  hri_gpu *gpu = c->launch->parts->gpu;
  if (tensor(c, 0)->stride || tensor(c, 1)->stride)
    return queued(c, kernels(c)->copy_rows(pointer(c, 1), pitch(c, 1), pointer(c, 0), pitch(c, 0),
                                           (int64_t)bytes_of(c, 0) / rows(c, 0), rows(c, 0), stream(c)));
  return gpu->calls->copy(gpu, pointer(c, 1), pointer(c, 0), bytes_of(c, 0), c->launch->stream, c->error);
}

static int64_t row_stride(const hri_tensor *t) { return (int64_t)(t->stride ? t->stride : hri_columns(t)); }

static hr_status run_accumulate(call *c) {
  hri_cuda_accumulate_args a = {.y = pointer(c, 1),
                                .x = pointer(c, 0),
                                .y_real = real(c, 1),
                                .x_real = real(c, 0),
                                .y_stride = row_stride(tensor(c, 1)),
                                .x_stride = row_stride(tensor(c, 0)),
                                .rows = rows(c, 0),
                                .columns = columns(c, 0),
                                .adds = adds(c, 1)};
  return queued(c, kernels(c)->accumulate(&a, stream(c)));
}

static hr_status run_cast(call *c) {
  return queued(c, kernels(c)->cast(pointer(c, 1), real(c, 1), pointer(c, 0), real(c, 0), elements(c, 0), stream(c)));
}

static hr_status run_split(call *c) {
  return queued(c, kernels(c)->split(pointer(c, 1), pointer(c, 2), pointer(c, 0), elements(c, 0), stream(c)));
}
static hr_status run_join(call *c) {
  return queued(c, kernels(c)->join(pointer(c, 2), pointer(c, 0), pointer(c, 1), elements(c, 0), stream(c)));
}

/* The slice that micro_index names, or the last row that counts. */
static hr_status run_pick(call *c) {
  int64_t bytes = (int64_t)bytes_of(c, 2), count = (int64_t)bytes_of(c, 0) / bytes;
  return queued(c, (c->at.node->op == HRI_OP_SELECT
                        ? kernels(c)->select
                        : kernels(c)->last_row)(pointer(c, 2), pointer(c, 0), count, bytes, pointer(c, 1), stream(c)));
}

/* ---- quant ---- */

static hr_status run_quantize(call *c) {
  hri_gpu *gpu = c->launch->parts->gpu;
  hri_quant_layout layout = hri_demand_quantized(c->at.job, c->at.node);
  hri_quant_args a = hri_given_quant(&c->at, &layout);
  unsigned char *verdict = scratch(c);
  a.scratch = (float *)(void *)(verdict + HRI_CUDA_VERDICT_BYTES);
  HRI_TRY(gpu->calls->fill(gpu, verdict, 0, sizeof(unsigned long long), c->launch->stream, c->error));
  return queued(c, kernels(c)->quantize(&a, (unsigned long long *)(void *)verdict, stream(c)));
}

bool hri_cuda_uncoded(unsigned long long verdict, uint64_t *element) {
  *element = ~verdict;
  return verdict != 0;
}

static hr_status run_dequantize(call *c) {
  hri_quant_layout layout = hri_demand_quantized(c->at.job, c->at.node);
  hri_quant_args a = hri_given_quant(&c->at, &layout);
  return queued(c, kernels(c)->dequantize(&a, stream(c)));
}

/* ---- the table ---- */

typedef hr_status (*adapter)(call *c);
static const adapter adapters[HRI_OP_COUNT] = {
    [HRI_OP_EMBED] = run_embed,
    [HRI_OP_EMBED_BACKWARD] = run_embed_backward,
    [HRI_OP_LINEAR] = run_product,
    [HRI_OP_LINEAR_DX] = run_product,
    [HRI_OP_LINEAR_DW] = run_product,
    [HRI_OP_LINEAR_DX_ACTIVATION] = run_product,
    [HRI_OP_LINEAR_DW_BIAS] = run_product,
    [HRI_OP_BIAS_GRADIENT] = run_bias_gradient,
    [HRI_OP_NORM] = run_norm,
    [HRI_OP_NORM_BACKWARD] = run_norm_backward,
    [HRI_OP_HEAD_NORM] = run_head_norm,
    [HRI_OP_HEAD_NORM_BACKWARD] = run_head_norm_backward,
    [HRI_OP_DORA_LENGTHS] = run_lengths,
    [HRI_OP_DORA_BEGIN] = run_lengths,
    [HRI_OP_DORA] = run_dora,
    [HRI_OP_DORA_BACKWARD] = run_dora,
    [HRI_OP_ADD] = run_add,
    [HRI_OP_SCALE] = run_scale,
    [HRI_OP_SOFTCAP] = run_softcap,
    [HRI_OP_DROPOUT] = run_dropout,
    [HRI_OP_NOISE] = run_noise,
    [HRI_OP_ACTIVATION] = run_activation,
    [HRI_OP_ACTIVATION_BACKWARD] = run_activation_backward,
    [HRI_OP_GLU] = run_glu,
    [HRI_OP_GLU_BACKWARD] = run_glu_backward,
    [HRI_OP_ROPE] = run_rope,
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
    [HRI_OP_CAST] = run_cast,
    [HRI_OP_SPLIT] = run_split,
    [HRI_OP_JOIN] = run_join,
    [HRI_OP_ACCUMULATE] = run_accumulate,
    [HRI_OP_SELECT] = run_pick,
    [HRI_OP_LAST_ROW] = run_pick,
    [HRI_OP_QUANTIZE] = run_quantize,
    [HRI_OP_DEQUANTIZE] = run_dequantize,
};

hr_status hri_cuda_queue(const hri_cuda_launch *launch, const hri_node *node, hr_error *error) {
  call c = {.at = {.job = launch->job, .node = node, .offsets = launch->offsets, .base = launch->base},
            .launch = launch,
            .error = error};
  assert(adapters[node->op]); /* hri_cuda_prepare_node has let it pass */
  return adapters[node->op](&c);
}

/* Every product's way within the workspace that its plan states, so that none is refused while the job runs. */
hr_status hri_cuda_prepare_node(const hri_cuda_parts *parts, hri_cuda_ways *ways, const hri_job *job,
                                const hri_node *node, hr_error *error) {
  hri_gpu_product p;
  hri_cuda_way way;
  uint64_t bytes;
  hr_status status;
  HRI_TRY(hri_cuda_scratch(job, node, &bytes, error));
  assert(hri_cuda_is_host(node->op) || adapters[node->op]); /* what has scratch has an adapter */
  if (!hri_demand_is_product(node->op) || hri_cuda_product_is_ours(job, node)) return HR_OK;
  p = hri_cuda_library_product(job, node);
  status = hri_cuda_way_find(ways, parts->products, &p, job->workspace_bytes, &way, error);
  p.epilogue = HRI_GPU_NO_EPILOGUE;
  if (status == HR_OK && way.apart)
    status = hri_cuda_way_find(ways, parts->products, &p, job->workspace_bytes, &way, error);
  return status == HR_OK ? HR_OK : hri_context(error, status, "the CUDA backend, %s: ", hri_op_name(node->op));
}
