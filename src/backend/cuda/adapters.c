/* One table from ops to launchers. What a node needs beside its operands is said by the same functions that queue it, so
 * that a plan and a run cannot differ.
 *
 * Nothing here looks at values: what changes from step to step is read on the device, so that what is queued once, into a
 * graph, stays right. */
#include "backend/cuda/adapters.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "ops/demand.h"
#include "ops/rules.h"

/* One node as adapters see it. */
typedef struct call {
  const hri_cuda_launch *launch;
  const hri_job *job;
  const hri_node *node;
  hr_error *error;
} call;

/* ---- operand access ---- */

static const hri_operand *operand(const call *c, uint32_t index) { return &hri_operands(c->job, c->node)[index]; }
static bool present(const call *c, uint32_t index) {
  return index < c->node->operand_count && operand(c, index)->tensor != HRI_NONE;
}
static void *pointer(const call *c, uint32_t index) {
  return present(c, index) ? hri_cuda_pointer(c->launch, operand(c, index)->tensor) : NULL;
}
static const hri_tensor *tensor(const call *c, uint32_t index) {
  return &c->job->tensors.items[operand(c, index)->tensor];
}
static int64_t rows(const call *c, uint32_t index) { return (int64_t)hri_rows(tensor(c, index)); }
static int64_t columns(const call *c, uint32_t index) { return (int64_t)hri_columns(tensor(c, index)); }
static int64_t elements(const call *c, uint32_t index) { return (int64_t)hri_tensor_stored_elements(tensor(c, index)); }
static uint64_t bytes_of(const call *c, uint32_t index) { return hri_tensor_bytes(tensor(c, index)); }
static bool adds(const call *c, uint32_t index) { return present(c, index) && operand(c, index)->access == HRI_ADD; }
static hri_real real(const call *c, uint32_t index) { return hri_dtype_real(tensor(c, index)->dtype); }
static void *scratch(const call *c) {
  hri_id id = hri_operand_find(c->job, c->node, HRI_SCRATCH, 0);
  return id == HRI_NONE ? NULL : hri_cuda_pointer(c->launch, id);
}
static const hri_cuda_kernels *kernels(const call *c) { return c->launch->parts->kernels; }
static void *stream(const call *c) { return c->launch->stream; }

static hr_status queued(const call *c, int refused) {
  if (!refused) return HR_OK;
  return hri_fail(c->error, HR_ERROR_INTERNAL, "the device refused a launch of %s", hri_op_name(c->node->op));
}

/* What a plan is refused for: the op, and what of it there is no kernel for. */
static hr_status lacks(const hri_node *node, const char *what, hr_error *error) {
  return hri_fail(error, HR_ERROR_UNSUPPORTED, "the CUDA backend has no kernel for %s with %s", hri_op_name(node->op),
                  what);
}

/* ---- matrix products ---- */

enum { PRODUCT_ALIGNMENT = 16, SCRATCH_ALIGNMENT = 256 };

static uint64_t row_pitch(const hri_tensor *t) {
  return hri_dtype_size((hri_dtype)t->dtype, t->stride ? t->stride : hri_columns(t));
}
static int64_t row_stride(const hri_tensor *t) { return (int64_t)(t->stride ? t->stride : hri_columns(t)); }

/* Storages begin at multiples of 256, so what a plan knows of an address is all that there is to know. */
static uint32_t alignment_of(const hri_tensor *const *operands, size_t count) {
  uint64_t bits = PRODUCT_ALIGNMENT;
  for (size_t k = 0; k < count; k++) bits |= operands[k]->offset | row_pitch(operands[k]);
  return (uint32_t)(bits & (~bits + 1));
}

static uint32_t result_of(const hri_node *node) { return node->op == HRI_OP_LINEAR ? 3 : 2; }
static const hri_tensor *bias_of(const hri_job *job, const hri_node *node) {
  return node->op == HRI_OP_LINEAR ? hri_at(job, node, 2) : NULL;
}

/* y[M,N] = x[M,K] w[N,K]^T, dx[M,K] = dy[M,N] w[N,K], dw[N,K] = dy[M,N]^T x[M,K]: operand 0 is a, operand 1 is b. */
static hri_gpu_product product_of(const hri_job *job, const hri_node *node) {
  const hri_tensor *a = hri_at(job, node, 0), *b = hri_at(job, node, 1), *d = hri_at(job, node, result_of(node));
  const hri_tensor *all[3] = {a, b, d}, *bias = bias_of(job, node);
  hri_gpu_product p;
  memset(&p, 0, sizeof p);
  p.m = (int64_t)hri_rows(d);
  p.n = (int64_t)hri_columns(d);
  p.a_turned = node->op == HRI_OP_LINEAR_DW;
  p.b_turned = node->op == HRI_OP_LINEAR;
  p.k = (int64_t)(p.a_turned ? hri_rows(a) : hri_columns(a));
  p.a_stride = row_stride(a);
  p.b_stride = row_stride(b);
  p.d_stride = row_stride(d);
  p.operands = hri_dtype_real(a->dtype);
  p.result = hri_dtype_real(d->dtype);
  p.alignment = alignment_of(all, 3);
  p.accumulate = hri_operands(job, node)[result_of(node)].access == HRI_ADD;
  p.bias = bias != NULL;
  while (bias && p.result == HRI_REAL_F32 && bias->offset % p.alignment != 0) p.alignment /= 2;
  p.tf32 = job->tf32 && p.operands == HRI_REAL_F32;
  return p;
}

static hr_status choose(const hri_cuda_parts *parts, hri_cuda_choices *choices, const hri_gpu_product *product,
                        hri_gpu_algorithm *algorithm, hr_error *error) {
  struct hri_cuda_choice made;
  for (size_t k = 0; k < choices->list.count; k++)
    if (memcmp(&choices->list.items[k].product, product, sizeof *product) == 0) {
      *algorithm = choices->list.items[k].algorithm;
      return HR_OK;
    }
  made.product = *product;
  HRI_TRY(parts->products->calls->choose(parts->products, product, choices->workspace_bytes, &made.algorithm, error));
  if (!hri_array_push(&choices->list, made)) return hri_fail_memory(error, sizeof made, "a choice of products");
  *algorithm = made.algorithm;
  return HR_OK;
}

/* The product's epilogue takes a bias of the result's type: where that is narrow, the bias is rounded into the scratch
 * first. */
static uint64_t bias_bytes(const hri_gpu_product *p) {
  return p->bias && p->result != HRI_REAL_F32
             ? hri_round_up((uint64_t)p->n * hri_real_bytes(p->result), SCRATCH_ALIGNMENT)
             : 0;
}

static hr_status demand_product(const hri_cuda_parts *parts, hri_cuda_choices *choices, const hri_job *job,
                                const hri_node *node, uint64_t *bytes, hr_error *error) {
  hri_gpu_algorithm algorithm;
  hri_gpu_product p;
  hr_status status;
  if (hri_at(job, node, 0)->dtype != hri_at(job, node, 1)->dtype)
    return lacks(node, "operands of two types", error);
  p = product_of(job, node);
  status = choose(parts, choices, &p, &algorithm, error);
  if (status != HR_OK) return hri_context(error, status, "the CUDA backend, %s: ", hri_op_name(node->op));
  *bytes = bias_bytes(&p) + algorithm.workspace_bytes;
  return HR_OK;
}

static hr_status run_product(call *c) {
  const hri_cuda_parts *parts = c->launch->parts;
  hri_gpu_product p = product_of(c->job, c->node);
  unsigned char *workspace = scratch(c);
  const void *bias = p.bias ? pointer(c, 2) : NULL;
  hri_gpu_algorithm algorithm;
  HRI_TRY(choose(parts, c->launch->choices, &p, &algorithm, c->error));
  if (bias_bytes(&p)) {
    HRI_TRY(queued(c, kernels(c)->cast(workspace, p.result, bias, HRI_REAL_F32, p.n, stream(c))));
    bias = workspace;
    workspace += bias_bytes(&p);
  }
  return parts->products->calls->run(parts->products, &p, &algorithm, pointer(c, 0), pointer(c, 1), bias,
                                     pointer(c, result_of(c->node)), workspace, c->launch->stream, c->error);
}

static hr_status run_bias_gradient(call *c) {
  return queued(c, kernels(c)->bias_gradient(pointer(c, 1), pointer(c, 0), rows(c, 0), columns(c, 0), adds(c, 1),
                                             scratch(c), real(c, 0), stream(c)));
}

/* ---- embed, norm, pointwise ---- */

static hr_status run_embed(call *c) {
  hri_embed_args a = {.rows = rows(c, 4),
                      .columns = columns(c, 4),
                      .real = real(c, 4),
                      .tokens = pointer(c, 1),
                      .factor = c->node->attr.f[0],
                      .positions = pointer(c, 3),
                      .ids = pointer(c, 0),
                      .position = pointer(c, 2),
                      .y = pointer(c, 4)};
  return queued(c, kernels(c)->embed(&a, stream(c)));
}

static hr_status run_embed_backward(call *c) {
  hri_embed_backward_args a = {.rows = rows(c, 1),
                               .columns = columns(c, 1),
                               .real = real(c, 1),
                               .dy = pointer(c, 1),
                               .index = pointer(c, 0),
                               .factor = c->node->attr.f[0],
                               .skip_index = c->node->attr.i[0],
                               .dtable = pointer(c, 2),
                               .stored_rows = rows(c, 2),
                               .accumulate = adds(c, 2)};
  return queued(c, kernels(c)->embed_backward(&a, scratch(c), stream(c)));
}

static hr_status run_norm(call *c) {
  hri_norm_args a = {.rows = rows(c, 0),
                     .columns = columns(c, 0),
                     .real = real(c, 0),
                     .x = pointer(c, 0),
                     .residual = pointer(c, 3),
                     .s = pointer(c, 4),
                     .weight = pointer(c, 1),
                     .weight_offset = c->node->attr.f[1],
                     .bias = pointer(c, 2),
                     .eps = c->node->attr.f[0],
                     .y = pointer(c, 5),
                     .stats = pointer(c, 6)};
  return queued(c, (c->node->attr.i[0] == HR_NORM_LAYER ? kernels(c)->layernorm : kernels(c)->rmsnorm)(&a, stream(c)));
}

static hr_status zero(const call *c, uint32_t index) {
  hri_gpu *gpu = c->launch->parts->gpu;
  return gpu->calls->fill(gpu, pointer(c, index), 0, bytes_of(c, index), c->launch->stream, c->error);
}

/* The kernel writes both gradients or adds to both: where a node does one of each, the one to be written starts as
 * zero. */
static hr_status zero_written(const call *c, uint32_t index) {
  return present(c, index) && !adds(c, index) ? zero(c, index) : HR_OK;
}

static hr_status run_norm_backward(call *c) {
  hri_norm_backward_args a = {.rows = rows(c, 0),
                              .columns = columns(c, 0),
                              .real = real(c, 0),
                              .dy = pointer(c, 0),
                              .x = pointer(c, 1),
                              .stats = pointer(c, 2),
                              .weight = pointer(c, 3),
                              .weight_offset = c->node->attr.f[1],
                              .extra = pointer(c, 4),
                              .dx = pointer(c, 5),
                              .dweight = pointer(c, 6),
                              .dbias = pointer(c, 7),
                              .accumulate = adds(c, 6) || adds(c, 7),
                              .scratch = scratch(c)};
  if (a.accumulate) {
    HRI_TRY(zero_written(c, 6));
    HRI_TRY(zero_written(c, 7));
  }
  return queued(c, (c->node->attr.i[0] == HR_NORM_LAYER ? kernels(c)->layernorm_backward
                                                        : kernels(c)->rmsnorm_backward)(&a, stream(c)));
}

static hr_status run_add(call *c) {
  return queued(c, kernels(c)->add(pointer(c, 2), pointer(c, 0), pointer(c, 1), elements(c, 2), real(c, 2), stream(c)));
}

static hr_activation activation_of(const hri_node *node) { return (hr_activation)node->attr.i[0]; }

static hr_status run_activation(call *c) {
  return queued(c, kernels(c)->activation(activation_of(c->node), pointer(c, 1), pointer(c, 0), elements(c, 1),
                                          real(c, 1), stream(c)));
}
static hr_status run_activation_backward(call *c) {
  return queued(c, kernels(c)->activation_backward(activation_of(c->node), pointer(c, 2), pointer(c, 0), pointer(c, 1),
                                                   elements(c, 2), real(c, 2), stream(c)));
}
static hr_status run_glu(call *c) {
  return queued(c, kernels(c)->glu(activation_of(c->node), pointer(c, 1), pointer(c, 0), rows(c, 1), columns(c, 1),
                                   real(c, 1), stream(c)));
}
static hr_status run_glu_backward(call *c) {
  return queued(c, kernels(c)->glu_backward(activation_of(c->node), pointer(c, 2), pointer(c, 0), pointer(c, 1),
                                            rows(c, 0), columns(c, 0), real(c, 0), stream(c)));
}

static hr_status run_rope(call *c) {
  const float *table = pointer(c, 2);
  hri_rope_args a = {.rows = rows(c, 0),
                     .heads = c->node->attr.i[0],
                     .kv_heads = c->node->attr.i[1],
                     .head_size = c->node->attr.i[2],
                     .rotary_size = c->node->attr.i[4],
                     .real = real(c, 0),
                     .x = pointer(c, 0),
                     .y = pointer(c, 3),
                     .cosines = table,
                     .sines = table + elements(c, 2) / 2,
                     .position = pointer(c, 1),
                     .inverse = c->node->attr.i[3] != 0};
  return queued(c, kernels(c)->rope(&a, stream(c)));
}

static hr_status run_dropout(call *c) {
  hri_cuda_dropout_args a = {.rows = rows(c, 0),
                             .columns = columns(c, 0),
                             .sequence = c->node->attr.i[0],
                             .real = real(c, 0),
                             .probability = c->node->attr.f[0],
                             .site = c->node->site,
                             .control = pointer(c, 1),
                             .x = pointer(c, 0),
                             .y = pointer(c, 2)};
  return queued(c, kernels(c)->dropout(&a, stream(c)));
}

/* ---- attention ---- */

static float attention_scale(const call *c) { return (float)c->node->attr.f[0]; }

static hr_status run_attention(call *c) {
  hri_attention_shape s = hri_demand_attention(c->job, c->node);
  return queued(c, kernels(c)->attention(&s, attention_scale(c), pointer(c, 0), pointer(c, 1), pointer(c, 2),
                                         pointer(c, 3), stream(c)));
}
static hr_status run_attention_backward(call *c) {
  hri_attention_shape s = hri_demand_attention(c->job, c->node);
  return queued(c, kernels(c)->attention_backward(&s, attention_scale(c), pointer(c, 0), pointer(c, 1), pointer(c, 2),
                                                  pointer(c, 3), pointer(c, 4), pointer(c, 5), scratch(c), stream(c)));
}

/* ---- loss, optimizer ---- */

static hr_status run_cross_entropy(call *c) {
  hri_cuda_cross_entropy_args a = {.rows = rows(c, 0),
                                   .vocabulary = c->node->attr.i[0],
                                   .stored = columns(c, 0),
                                   .softcap = c->node->attr.f[0],
                                   .smoothing = c->node->attr.f[1],
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

/* The k-th tensor that an operand stands for. */
static hri_id piece(const call *c, uint32_t index, uint32_t k) {
  return hri_piece(c->job, operand(c, index)->tensor, k);
}
static void *piece_pointer(const call *c, uint32_t index, uint32_t k) {
  return present(c, index) ? hri_cuda_pointer(c->launch, piece(c, index, k)) : NULL;
}
static uint32_t pieces(const call *c, uint32_t index) { return hri_piece_count(c->job, operand(c, index)->tensor); }
static int64_t piece_elements(const call *c, uint32_t index, uint32_t k) {
  return (int64_t)hri_tensor_stored_elements(&c->job->tensors.items[piece(c, index, k)]);
}

static hr_status run_square_norm(call *c) {
  int refused = 0;
  for (uint32_t k = 0; k < pieces(c, 0); k++)
    refused |= kernels(c)->square_sum(piece_pointer(c, 1, k), piece_pointer(c, 0, k), real(c, 0),
                                      piece_elements(c, 0, k), stream(c));
  return queued(c, refused);
}
static hr_status run_clip(call *c) {
  return queued(c, kernels(c)->clip(pointer(c, 0), elements(c, 0), pointer(c, 1), stream(c)));
}
static hr_status run_advance(call *c) { return queued(c, kernels(c)->advance(pointer(c, 0), stream(c))); }

/* g, control, w, two moments, copy of w in 16 bits?: range by range. */
static hr_status run_adamw(call *c) {
  const double *f = c->node->attr.f;
  int refused = 0;
  for (uint32_t k = 0; k < pieces(c, 0); k++) {
    const hri_param_range *range = &c->job->ranges.items[c->job->laid_out.items[c->node->attr.i[1] + k]];
    hri_cuda_adamw_args a = {.n = piece_elements(c, 2, k),
                             .w = piece_pointer(c, 2, k),
                             .w_real = real(c, 2),
                             .copy = piece_pointer(c, 5, k),
                             .copy_real = present(c, 5) ? real(c, 5) : HRI_REAL_F32,
                             .first = piece_pointer(c, 3, k),
                             .second = piece_pointer(c, 4, k),
                             .state_real = real(c, 3),
                             .g = piece_pointer(c, 0, k),
                             .gradient_real = real(c, 0),
                             .beta1 = f[0],
                             .beta2 = f[1],
                             .epsilon = f[2],
                             .weight_decay = f[HRI_STATE_NUMBERS],
                             .site = c->job->params.items[range->param].site,
                             .first_element = (int64_t)range->first,
                             .control = pointer(c, 1)};
    refused |= kernels(c)->adamw(&a, stream(c));
  }
  return queued(c, refused);
}

/* ---- move ---- */

static hr_status run_zero(call *c) { return zero(c, 0); }

static hr_status run_copy(call *c) {
  hri_gpu *gpu = c->launch->parts->gpu;
  return gpu->calls->copy(gpu, pointer(c, 1), pointer(c, 0), bytes_of(c, 0), c->launch->stream, c->error);
}

static hr_status run_cast(call *c) {
  return queued(c, kernels(c)->cast(pointer(c, 1), real(c, 1), pointer(c, 0), real(c, 0), elements(c, 0), stream(c)));
}

static hr_status run_select(call *c) {
  return queued(c, kernels(c)->select(pointer(c, 2), pointer(c, 0), bytes_of(c, 2), pointer(c, 1), stream(c)));
}

/* ---- the table ---- */

typedef hr_status (*adapter)(call *c);
static const adapter adapters[HRI_OP_COUNT] = {
    [HRI_OP_EMBED] = run_embed,
    [HRI_OP_EMBED_BACKWARD] = run_embed_backward,
    [HRI_OP_LINEAR] = run_product,
    [HRI_OP_LINEAR_DX] = run_product,
    [HRI_OP_LINEAR_DW] = run_product,
    [HRI_OP_BIAS_GRADIENT] = run_bias_gradient,
    [HRI_OP_NORM] = run_norm,
    [HRI_OP_NORM_BACKWARD] = run_norm_backward,
    [HRI_OP_ADD] = run_add,
    [HRI_OP_DROPOUT] = run_dropout,
    [HRI_OP_ACTIVATION] = run_activation,
    [HRI_OP_ACTIVATION_BACKWARD] = run_activation_backward,
    [HRI_OP_GLU] = run_glu,
    [HRI_OP_GLU_BACKWARD] = run_glu_backward,
    [HRI_OP_ROPE] = run_rope,
    [HRI_OP_ATTENTION] = run_attention,
    [HRI_OP_ATTENTION_BACKWARD] = run_attention_backward,
    [HRI_OP_CROSS_ENTROPY] = run_cross_entropy,
    [HRI_OP_LOSS_SUM] = run_loss_sum,
    [HRI_OP_SQUARE_NORM] = run_square_norm,
    [HRI_OP_CLIP] = run_clip,
    [HRI_OP_ADVANCE] = run_advance,
    [HRI_OP_ADAMW] = run_adamw,
    [HRI_OP_ZERO] = run_zero,
    [HRI_OP_COPY] = run_copy,
    [HRI_OP_CAST] = run_cast,
    [HRI_OP_SELECT] = run_select,
};

bool hri_cuda_is_host(uint16_t op) {
  return op == HRI_OP_FILL || op == HRI_OP_SINK || op == HRI_OP_ROPE_TABLE;
}

hr_status hri_cuda_queue(const hri_cuda_launch *launch, const hri_node *node, hr_error *error) {
  call c = {.launch = launch, .job = launch->job, .node = node, .error = error};
  assert(adapters[node->op]); /* hri_cuda_demand has let it pass */
  return adapters[node->op](&c);
}

/* ---- what a plan is told ---- */

enum { MOST_HEAD_SIZE = 256 };

static hr_status check_attention(const hri_job *job, const hri_node *node, hr_error *error) {
  hri_attention_shape s = hri_demand_attention(job, node);
  if (s.dropout > 0) return lacks(node, "dropout", error);
  if (s.head_dim > MOST_HEAD_SIZE) return lacks(node, "heads of more than 256 columns", error);
  return HR_OK;
}

/* Only whole words move where the control block says which. */
static hr_status check_select(const hri_job *job, const hri_node *node, hr_error *error) {
  return hri_tensor_bytes(hri_at(job, node, 2)) % sizeof(uint32_t) ? lacks(node, "parts of words", error) : HR_OK;
}

/* Beyond the types of operands: shapes and attributes that kernels are missing for. */
static hr_status check(const hri_job *job, const hri_node *node, hr_error *error) {
  if (hri_node_guard(job, node) != HRI_NONE) return lacks(node, "a guard", error);
  switch (node->op) {
  case HRI_OP_ACTIVATION:
  case HRI_OP_ACTIVATION_BACKWARD:
  case HRI_OP_GLU:
  case HRI_OP_GLU_BACKWARD:
    if (activation_of(node) == HR_ACTIVATION_GELU) return lacks(node, "the exact gelu", error);
    return activation_of(node) == HR_ACTIVATION_RELU ? lacks(node, "relu", error) : HR_OK;
  case HRI_OP_ATTENTION:
  case HRI_OP_ATTENTION_BACKWARD: return check_attention(job, node, error);
  case HRI_OP_COPY:
    return hri_at(job, node, 0)->stride || hri_at(job, node, 1)->stride ? lacks(node, "columns", error) : HR_OK;
  case HRI_OP_SELECT: return check_select(job, node, error);
  default: return HR_OK;
  }
}

hr_status hri_cuda_demand(const hri_cuda_parts *parts, hri_cuda_choices *choices, const hri_job *job,
                          const hri_node *node, uint64_t *bytes, hr_error *error) {
  const hri_cuda_kernels *k = parts->kernels;
  hri_attention_shape shape;
  *bytes = 0;
  HRI_TRY(hri_demand_check("CUDA", job, node, error));
  if (hri_cuda_is_host(node->op)) return HR_OK;
  if (!adapters[node->op])
    return hri_fail(error, HR_ERROR_UNSUPPORTED, "the CUDA backend has no kernel for %s", hri_op_name(node->op));
  HRI_TRY(check(job, node, error));
  switch (node->op) {
  case HRI_OP_LINEAR:
  case HRI_OP_LINEAR_DX:
  case HRI_OP_LINEAR_DW: return demand_product(parts, choices, job, node, bytes, error);
  case HRI_OP_BIAS_GRADIENT:
    *bytes = k->bias_gradient_scratch_bytes((int64_t)hri_rows(hri_at(job, node, 0)),
                                            (int64_t)hri_columns(hri_at(job, node, 0)));
    break;
  case HRI_OP_NORM_BACKWARD:
    *bytes = k->norm_backward_scratch_bytes((int64_t)hri_rows(hri_at(job, node, 0)),
                                            (int64_t)hri_columns(hri_at(job, node, 0)));
    break;
  case HRI_OP_EMBED_BACKWARD:
    *bytes = k->embed_backward_scratch_bytes((int64_t)hri_rows(hri_at(job, node, 1)));
    break;
  case HRI_OP_ATTENTION_BACKWARD:
    shape = hri_demand_attention(job, node);
    *bytes = k->attention_backward_scratch_bytes(&shape);
    break;
  default: break;
  }
  return HR_OK;
}
