/* What nodes need of a GPU of NVIDIA's, without its kernels (cuda_demand.h). */
#include "ops/cuda_demand.h"

#include "ops/demand.h"
#include "ops/given.h"
#include "ops/rules.h"
#include "ops/scratch.h"

/* ---- scratch by sizes ---- */

static uint64_t row_blocks(int64_t rows) { return (uint64_t)hri_cuda_blocks_of(rows, HRI_CUDA_NORM_ROWS); }

uint64_t hri_cuda_bias_gradient_scratch_bytes(int64_t rows, int64_t columns) {
  return row_blocks(rows) * (uint64_t)columns * sizeof(float);
}
uint64_t hri_cuda_product_scratch_bytes(const hri_cuda_product_args *a) {
  int64_t pieces =
      hri_cuda_product_thin(a->m, a->a_column, a->b_column) ? 1 : hri_cuda_product_pieces(a->m, a->n, a->k);
  return pieces > 1 ? (uint64_t)(pieces * a->m * a->n) * sizeof(float) : 0;
}
/* Of weight and bias. */
uint64_t hri_cuda_norm_backward_scratch_bytes(int64_t rows, int64_t columns) {
  return 2 * row_blocks(rows) * (uint64_t)columns * sizeof(float);
}
uint64_t hri_cuda_head_norm_backward_scratch_bytes(int64_t rows, int64_t head_size, int64_t key_size) {
  return row_blocks(rows) * (uint64_t)(head_size + (key_size ? key_size : head_size)) * sizeof(float);
}
uint64_t hri_cuda_dora_backward_scratch_bytes(int64_t rows, int64_t columns) {
  return row_blocks(rows) * (uint64_t)columns * sizeof(float);
}
/* Two orders of index and row, and a count of each digit in each tile. */
uint64_t hri_cuda_embed_backward_scratch_bytes(int64_t rows) {
  return (4 * (uint64_t)rows + HRI_CUDA_SORT_DIGITS * (uint64_t)hri_cuda_blocks_of(rows, HRI_CUDA_SORT_TILE)) *
         sizeof(int32_t);
}
/* The sum of dy y of each row and head. */
uint64_t hri_cuda_attention_backward_scratch_bytes(const hri_attention_shape *s) {
  return (uint64_t)(s->batch * s->heads * s->sequence) * sizeof(float);
}
/* Output, maximum and sum of each run of the cache. */
uint64_t hri_cuda_attention_cached_scratch_bytes(const hri_attention_cache_shape *s) {
  return (uint64_t)(s->batch * s->rows * s->heads * hri_cuda_blocks_of(s->capacity, HRI_CUDA_CACHE_RUN) *
                    (s->head_dim + 2)) *
         sizeof(float);
}
/* Adafactor's: two numbers, squares of weight and update of each row, squares of columns of each block of rows. */
uint64_t hri_cuda_update_scratch_bytes(uint32_t optimizer, int64_t n, int64_t columns) {
  bool vector = columns <= 1;
  int64_t rows = vector || n == 0 ? 1 : n / columns;
  if (optimizer != HR_OPTIMIZER_ADAFACTOR) return 0;
  return (uint64_t)(2 + 2 * rows + (vector ? 0 : hri_cuda_blocks_of(rows, HRI_CUDA_FACTOR_ROWS) * columns)) *
         sizeof(double);
}

/* ---- pinned slots ---- */

static uint64_t tensors_bytes(const hri_job *job, const hri_id *ids, size_t count) {
  uint64_t bytes = 0;
  for (size_t k = 0; k < count; k++)
    if (ids[k] != HRI_NONE) bytes += hri_tensor_bytes(&job->tensors.items[ids[k]]);
  return bytes;
}

/* Rows of a step or of an evaluation, and the control block before each of its programs. */
uint64_t hri_cuda_write_slot_bytes(const hri_job *job) {
  const hri_id step[] = {job->input_ids, job->input_targets, job->input_positions, job->input_doc_start};
  const hri_id batch[] = {job->eval_ids, job->eval_targets, job->eval_positions, job->eval_doc_start};
  uint64_t of_step = tensors_bytes(job, step, 4), of_batch = tensors_bytes(job, batch, 4);
  uint64_t control = (2 + (uint64_t)job->accumulate) * sizeof(hri_control);
  return hri_round_up((of_step > of_batch ? of_step : of_batch) + control, HRI_CUDA_SLOT_BYTES);
}

/* ---- matrix products ---- */

enum { PRODUCT_ALIGNMENT = 16, SCRATCH_ALIGNMENT = 256 };

uint64_t hri_cuda_pitch(const hri_tensor *t) {
  return hri_dtype_size((hri_dtype)t->dtype, t->stride ? t->stride : hri_columns(t));
}
static int64_t row_stride(const hri_tensor *t) { return (int64_t)(t->stride ? t->stride : hri_columns(t)); }

/* Storages begin at multiples of 256, so what a plan knows of an address is all that there is to know. */
static uint32_t alignment_of(const hri_tensor *const *operands, size_t count) {
  uint64_t bits = PRODUCT_ALIGNMENT;
  for (size_t k = 0; k < count; k++) bits |= operands[k]->offset | hri_cuda_pitch(operands[k]);
  return (uint32_t)(bits & (~bits + 1));
}

uint32_t hri_cuda_product_result(const hri_node *node) {
  return node->op == HRI_OP_LINEAR || node->op == HRI_OP_LINEAR_DX_ACTIVATION ? 3 : 2;
}
uint32_t hri_cuda_product_beside(const hri_node *node) {
  if (node->op == HRI_OP_LINEAR || node->op == HRI_OP_LINEAR_DX_ACTIVATION) return 2;
  return node->op == HRI_OP_LINEAR_DW_BIAS ? 3 : HRI_NONE;
}
static bool is_dw(const hri_node *node) { return hri_rule_get(node->op)->product == HRI_PRODUCT_DW; }
static const hri_tensor *bias_of(const hri_job *job, const hri_node *node) {
  return node->op == HRI_OP_LINEAR ? hri_at(job, node, 2) : NULL;
}
static hri_gpu_epilogue epilogue_of(const hri_job *job, const hri_node *node) {
  if (node->op == HRI_OP_LINEAR_DX_ACTIVATION) return HRI_GPU_GELU_BACKWARD;
  if (node->op == HRI_OP_LINEAR_DW_BIAS) return HRI_GPU_BIAS_GRADIENT;
  return bias_of(job, node) ? HRI_GPU_BIAS : HRI_GPU_NO_EPILOGUE;
}

/* y[M,N] = x[M,K] w[N,K]^T, dx[M,K] = dy[M,N] w[N,K], dw[N,K] = dy[M,N]^T x[M,K]: operand 0 is a, operand 1 is b. */
hri_gpu_product hri_cuda_library_product(const hri_job *job, const hri_node *node) {
  const hri_tensor *a = hri_at(job, node, 0), *b = hri_at(job, node, 1),
                   *d = hri_at(job, node, hri_cuda_product_result(node));
  const hri_tensor *all[4] = {a, b, d, d}, *beside = hri_at(job, node, hri_cuda_product_beside(node));
  if (node->op == HRI_OP_LINEAR_DX_ACTIVATION) all[3] = beside, beside = NULL; /* a matrix */
  hri_gpu_product p = {0};
  p.m = (int64_t)hri_rows(d);
  p.n = (int64_t)hri_columns(d);
  p.a_turned = is_dw(node);
  p.b_turned = node->op == HRI_OP_LINEAR;
  p.k = (int64_t)(p.a_turned ? hri_rows(a) : hri_columns(a));
  p.a_stride = row_stride(a);
  p.b_stride = row_stride(b);
  p.d_stride = row_stride(d);
  p.operands = hri_dtype_real(a->dtype);
  p.result = hri_dtype_real(d->dtype);
  p.alignment = alignment_of(all, 4);
  p.accumulate = hri_operands(job, node)[hri_cuda_product_result(node)].access == HRI_ADD;
  p.epilogue = epilogue_of(job, node);
  while (beside && p.result == HRI_REAL_F32 && beside->offset % p.alignment != 0) p.alignment /= 2;
  p.tf32 = job->tf32 && p.operands == HRI_REAL_F32;
  return p;
}

/* Whose a product is: the plan and the run ask here.
 *
 * A library's is what it takes by its types: operands of one type, with a result of that type or in fp32. Everything
 * else is our kernel's: an fp32 adapter beside a narrow model, and the narrow sum that an adapter adds to. So is a
 * forward of few rows, as in decoding: it costs what reading the weights costs, which our kernel does once for all rows,
 * where tiles of a library would stay empty. */
bool hri_cuda_product_is_ours(const hri_job *job, const hri_node *node) {
  const hri_tensor *a = hri_at(job, node, 0), *b = hri_at(job, node, 1),
                   *d = hri_at(job, node, hri_cuda_product_result(node));
  if (a->dtype != b->dtype || (d->dtype != a->dtype && d->dtype != HRI_F32)) return true;
  return node->op == HRI_OP_LINEAR && hri_rows(d) <= HRI_CUDA_FEW_ROWS;
}

/* The same three products by the steps from row to row and along the depth. */
hri_cuda_product_args hri_cuda_own_product(const hri_job *job, const hri_node *node) {
  const hri_tensor *a = hri_at(job, node, 0), *b = hri_at(job, node, 1),
                   *d = hri_at(job, node, hri_cuda_product_result(node));
  hri_gpu_product p = hri_cuda_library_product(job, node);
  return (hri_cuda_product_args){.m = p.m,
                                 .n = p.n,
                                 .k = p.k,
                                 .a_real = hri_dtype_real(a->dtype),
                                 .b_real = hri_dtype_real(b->dtype),
                                 .c_real = hri_dtype_real(d->dtype),
                                 .a_row = p.a_turned ? 1 : p.a_stride,
                                 .a_column = p.a_turned ? p.a_stride : 1,
                                 .b_row = p.b_turned ? p.b_stride : 1,
                                 .b_column = p.b_turned ? 1 : p.b_stride,
                                 .c_row = p.d_stride,
                                 .accumulate = p.accumulate};
}

/* The product's epilogue takes a bias of the result's type: where that is narrow, the bias is rounded into the scratch
 * first. */
uint64_t hri_cuda_bias_bytes(const hri_gpu_product *p) {
  return p->epilogue == HRI_GPU_BIAS && p->result != HRI_REAL_F32
             ? hri_round_up((uint64_t)p->n * hri_real_bytes(p->result), SCRATCH_ALIGNMENT)
             : 0;
}

/* Behind a product whose library has no bias gradient ours has the workspace for its own. */
static uint64_t library_bytes(const hri_job *job, const hri_node *node) {
  hri_gpu_product p = hri_cuda_library_product(job, node);
  uint64_t own = p.epilogue == HRI_GPU_BIAS_GRADIENT ? hri_cuda_bias_gradient_scratch_bytes(p.k, p.m) : 0;
  return hri_cuda_bias_bytes(&p) + (own > job->workspace_bytes ? own : job->workspace_bytes);
}

static uint64_t product_bytes(const hri_job *job, const hri_node *node) {
  hri_cuda_product_args own;
  if (!hri_cuda_product_is_ours(job, node)) return library_bytes(job, node);
  own = hri_cuda_own_product(job, node);
  return hri_cuda_product_scratch_bytes(&own);
}

/* ---- updates ---- */

static uint64_t update_bytes(const hri_job *job, const hri_node *node) {
  uint32_t kind = hri_optimizer_of(node->op);
  uint64_t most = 0;
  for (uint32_t k = 0; k < hri_piece_count(job, hri_operands(job, node)[2].tensor); k++) {
    uint64_t bytes = hri_cuda_update_scratch_bytes(kind, hri_given_update_elements(job, node, k),
                                                   hri_given_update_columns(job, node, k));
    if (bytes > most) most = bytes;
  }
  return most;
}

/* ---- what a plan is told ---- */

/* What a plan is refused for: the op, and what of it there is no kernel for. */
static hr_status lacks(const hri_node *node, const char *what, hr_error *error) {
  return hri_fail(error, HR_ERROR_UNSUPPORTED, "the CUDA backend has no kernel for %s with %s", hri_op_name(node->op),
                  what);
}

enum { MOST_HEAD_SIZE = 256 };

/* More rows than a launch has blocks for. */
static hr_status too_many(const hri_node *node, const char *what, int64_t most, hr_error *error) {
  (void)hri_fail(error, HR_ERROR_UNSUPPORTED, "the CUDA backend has no kernel for %s with more than %lld %s",
                 hri_op_name(node->op), (long long)most, what);
  return hri_hint(error, HR_ERROR_UNSUPPORTED, "give a smaller --micro-batch");
}

/* Kernels that keep all probabilities have a block for each query, however wide its head is. */
static int64_t head_splits(const hri_node *node, int64_t head_size) {
  const bool kept = node->op == HRI_OP_ATTENTION_FULL || node->op == HRI_OP_ATTENTION_FULL_BACKWARD;
  return kept ? 1 : hri_cuda_head_splits(head_size);
}

/* Rows of data, for each of which a launch has `splits` blocks in its third direction. */
static hr_status check_heads(const hri_node *node, int64_t batch, int64_t splits, int64_t head_size, hr_error *error) {
  int64_t most = HRI_CUDA_MOST_BLOCKS / splits;
  if (head_size > MOST_HEAD_SIZE) return lacks(node, "heads of more than 256 columns", error);
  return batch <= most ? HR_OK : too_many(node, "rows of data at a time", most, error);
}

/* Rows that a launch takes `each` at a time, in its second direction. */
static hr_status check_rows(const hri_node *node, int64_t rows, int64_t each, hr_error *error) {
  int64_t most = HRI_CUDA_MOST_BLOCKS * each;
  return rows <= most ? HR_OK : too_many(node, "tokens at a time", most, error);
}

static hr_status check_product(const hri_job *job, const hri_node *node, hr_error *error) {
  hri_cuda_product_args own = hri_cuda_own_product(job, node);
  if (hri_cuda_product_is_ours(job, node))
    return hri_cuda_product_thin(own.m, own.a_column, own.b_column)
               ? HR_OK
               : check_rows(node, own.m, HRI_CUDA_PRODUCT_ROWS, error);
  return node->op == HRI_OP_LINEAR_DW_BIAS ? check_rows(node, own.k, HRI_CUDA_NORM_ROWS, error) : HR_OK;
}

/* Beyond the types of operands: what kernels are missing for. */
static hr_status check(const hri_job *job, const hri_node *node, hr_error *error) {
  hri_attention_shape s;
  hri_attention_cache_shape cached;
  switch (hri_rule_get(node->op)->attention) {
  case HRI_ATTENTION_FORWARD:
  case HRI_ATTENTION_BACKWARD:
    s = hri_demand_attention(job, node);
    return check_heads(node, s.batch, head_splits(node, s.head_dim), s.head_dim, error);
  case HRI_ATTENTION_CACHED:
    cached = hri_demand_cache(job, node);
    return check_heads(node, cached.batch * cached.rows, 1, cached.head_dim, error);
  default: break;
  }
  if (hri_demand_is_product(node->op)) return check_product(job, node, error);
  switch (node->op) { /* their gradients of weights are sums over rows */
  case HRI_OP_BIAS_GRADIENT:
  case HRI_OP_NORM_BACKWARD:
  case HRI_OP_HEAD_NORM_BACKWARD:
  case HRI_OP_DORA_BACKWARD:
    return check_rows(node, (int64_t)hri_rows(hri_at(job, node, 0)), HRI_CUDA_NORM_ROWS, error);
  default: return HR_OK;
  }
}

hr_status hri_cuda_scratch(const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error) {
  hri_attention_shape shape;
  hri_attention_cache_shape cached;
  hri_quant_layout layout;
  *bytes = 0;
  HRI_TRY(hri_demand_check("CUDA", job, node, error));
  if (hri_cuda_is_host(node->op)) return HR_OK;
  if (node->op == HRI_OP_PACK)
    return hri_fail(error, HR_ERROR_UNSUPPORTED, "the CUDA backend has no kernel for %s", hri_op_name(node->op));
  HRI_TRY(check(job, node, error));
  if (hri_optimizer_of(node->op) != HRI_NONE) *bytes = update_bytes(job, node);
  switch (node->op) {
  case HRI_OP_LINEAR:
  case HRI_OP_LINEAR_DX:
  case HRI_OP_LINEAR_DX_ACTIVATION:
  case HRI_OP_LINEAR_DW_BIAS:
  case HRI_OP_LINEAR_DW: *bytes = product_bytes(job, node); break;
  case HRI_OP_BIAS_GRADIENT:
    *bytes = hri_cuda_bias_gradient_scratch_bytes((int64_t)hri_rows(hri_at(job, node, 0)),
                                                  (int64_t)hri_columns(hri_at(job, node, 0)));
    break;
  case HRI_OP_NORM_BACKWARD:
    *bytes = hri_cuda_norm_backward_scratch_bytes((int64_t)hri_rows(hri_at(job, node, 0)),
                                                  (int64_t)hri_columns(hri_at(job, node, 0)));
    break;
  case HRI_OP_HEAD_NORM_BACKWARD:
    *bytes = hri_cuda_head_norm_backward_scratch_bytes((int64_t)hri_rows(hri_at(job, node, 0)), node->attr.i[2],
                                                       hri_head_norm_key_size(node));
    break;
  case HRI_OP_DORA_BACKWARD:
    *bytes = hri_cuda_dora_backward_scratch_bytes((int64_t)hri_rows(hri_at(job, node, 0)),
                                                  (int64_t)hri_columns(hri_at(job, node, 0)));
    break;
  case HRI_OP_EMBED_BACKWARD:
    *bytes = hri_cuda_embed_backward_scratch_bytes((int64_t)hri_rows(hri_at(job, node, 1)));
    break;
  case HRI_OP_ATTENTION_BACKWARD:
  case HRI_OP_ATTENTION_FULL_BACKWARD:
    shape = hri_demand_attention(job, node);
    *bytes = hri_cuda_attention_backward_scratch_bytes(&shape);
    break;
  case HRI_OP_ATTENTION_CACHED:
    cached = hri_demand_cache(job, node);
    *bytes = hri_cuda_attention_cached_scratch_bytes(&cached);
    break;
  case HRI_OP_QUANTIZE:
    layout = hri_demand_quantized(job, node);
    *bytes = HRI_CUDA_VERDICT_BYTES + hri_quant_scratch_bytes((uint32_t)node->attr.i[0], &layout);
    break;
  default: break;
  }
  return HR_OK;
}
