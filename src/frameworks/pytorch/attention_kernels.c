/* Attention in one kernel (attention_kernels.h), and autograd's functions of it. What a backward asks for beside its gradients is space
 * that its kernel works in. */
#include "frameworks/pytorch/attention_kernels.h"

#include <assert.h>

#include "frameworks/pytorch/autocast.h"

typedef struct sizes {
  uint64_t batch, heads, kv_heads, tokens, width;
} sizes;

static sizes sizes_of(const hri_ten_shape *q, const hri_ten_shape *k) {
  return (sizes){q->dims[0], q->dims[1], k->dims[1], q->dims[2], q->dims[3]};
}

static void unpack(hri_torch *t, hri_fn *fn, hri_ten *saved[HRI_FN_SAVED]) {
  for (uint32_t i = 0; i < fn->saved_count; i++) saved[i] = hri_fn_saved(t, fn, i);
}

static void let_go(hri_torch *t, const hri_fn *fn, hri_ten *const saved[HRI_FN_SAVED]) {
  for (uint32_t i = fn->saved_count; i-- > 0;) hri_ten_drop(t, saved[i]);
}

/* ---- flash ---- */

/* What flash's backward sums in, in fp32, with so many rows in all: per row the sum of dO O, and dq. */
static void take_flash_space(hri_torch *t, const sizes *s, uint64_t row_count, hri_ten *space[2]) {
  static const char op[] = "_flash_attention_backward";
  uint64_t width = hri_round_up(s->width, s->width <= 128 ? 32 : 64);
  space[0] = hri_ten_flat(t, op, HRI_F32, row_count * s->heads);
  space[1] = hri_ten_flat(t, op, HRI_F32, row_count * s->heads * width);
}

/* flash_api.cpp, mha_bwd: dq, dk, dv; space; of grouped heads dk and dv of all. numbers[0]: the gradient comes in another order, and is
 * copied. */
static void flash_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  static const char op[] = "_flash_attention_backward";
  enum { BLOCK = 128 }; /* of rows */
  hri_ten *saved[HRI_FN_SAVED], *space[2], *more[2] = {0}, *gradient;
  sizes s = sizes_of(&fn->shapes[0], &fn->shapes[1]);
  unpack(t, fn, saved);
  if (g[0]) {
    gradient = fn->numbers[0] ? hri_ten_like(t, "clone", g[0], g[0]->type) : NULL;
    for (int k = 0; k < 3; k++) in[k] = hri_ten_make(t, op, g[0]->type, fn->shapes[k]);
    take_flash_space(t, &s, s.batch * hri_round_up(s.tokens, BLOCK), space);
    for (int k = 0; k < 2 && s.heads != s.kv_heads; k++) more[k] = hri_ten_make(t, op, g[0]->type, fn->shapes[0]);
    for (int k = 2; k-- > 0;) hri_ten_drop(t, more[k]);
    for (int k = 2; k-- > 0;) hri_ten_drop(t, space[k]);
    hri_ten_drop(t, gradient);
  }
  let_go(t, fn, saved);
}

/* ---- memory-efficient ---- */

/* The kernel's workspace (mem_eff_attention/kernel_backward.h): where gradients of q are not summed in place, fp32 tiles of
 * 64 rows with a lock of 16 bytes each. */
static uint64_t efficient_workspace(const sizes *s) {
  uint64_t tiles = (s->tokens + 63) / 64, tile = 64 * hri_round_up(s->width, 64) * 4 + 16;
  return s->batch * s->heads * tiles * tile;
}

static void efficient_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  static const char op[] = "_efficient_attention_backward";
  hri_ten *saved[HRI_FN_SAVED];
  sizes s = sizes_of(&fn->shapes[0], &fn->shapes[1]);
  unpack(t, fn, saved);
  if (g[0]) {
    hri_ten_shape rows_shape = hri_ten_shape_of(3, s.batch, s.heads, s.tokens, 0);
    bool in_kernel = g[0]->type != HRI_F32; /* which computes delta, the sums of gradient times result, itself */
    hri_ten *product, *sum, *delta, *space, *wide[2] = {0}; /* grouped heads: gradients of k and v for every head */
    for (int k = 0; k < 3; k++) in[k] = hri_ten_make(t, op, g[0]->type, fn->shapes[k]);
    for (int k = 0; k < 2 && s.heads != s.kv_heads; k++) wide[k] = hri_ten_make(t, op, g[0]->type, fn->shapes[0]);
    product = in_kernel ? NULL : hri_ten_make(t, op, g[0]->type, fn->shapes[0]);
    sum = in_kernel ? NULL : hri_ten_make(t, op, HRI_F32, rows_shape);
    delta = hri_ten_make(t, op, HRI_F32, rows_shape);
    hri_ten_drop(t, sum);
    hri_ten_drop(t, product);
    space = hri_ten_flat(t, op, HRI_U8, efficient_workspace(&s));
    hri_ten_drop(t, delta);
    hri_ten_drop(t, space);
    for (int k = 2; k-- > 0;) hri_ten_drop(t, wide[k]);
  }
  let_go(t, fn, saved);
}

/* ---- scaled_dot_product_attention by either ---- */

/* Without dropout the memory-efficient kernel's seed and offset are made for nothing, before all else; with it they are
 * scalars of the host. Flash makes its own in any case, at the end. */
static hri_ten *fused(hri_torch *t, hri_sdpa backend, hri_ten *const inputs[4], bool dropout, bool by_heads) {
  bool flash = backend == HRI_SDPA_FLASH;
  const char *op = flash ? "_flash_attention_forward" : "_efficient_attention_forward";
  hri_ten *q = inputs[0], *k = inputs[1], *v = inputs[2], *y, *lse, *seeds[2] = {0};
  sizes s = sizes_of(&q->shape, &k->shape);
  hri_fn *fn = hri_fn_make(t, flash ? flash_backward : efficient_backward, inputs, 3);
  uint64_t lse_rows = flash ? s.tokens : hri_round_up(s.tokens, 32);
  if (fn) fn->numbers[0] = flash && by_heads; /* the gradient comes in the other order and is copied */
  if (inputs[3]) hri_fn_save(t, fn, inputs[3]);
  hri_fn_save(t, fn, k); /* in the order in which the function lets go of them: inputs, then results */
  hri_fn_save(t, fn, q);
  hri_fn_save(t, fn, v);
  for (int i = 0; i < 2 && !flash && !dropout; i++) seeds[i] = hri_ten_flat(t, op, HRI_I64, 1);
  y = hri_ten_make(t, op, q->type, q->shape);
  lse = hri_ten_make(t, op, HRI_F32, hri_ten_shape_of(3, s.batch, s.heads, lse_rows, 0));
  if (!flash && q->type != HRI_F32 && s.width > 128) /* results of more than one tile of columns are summed in fp32 */
    hri_ten_drop(t, hri_ten_make(t, op, HRI_F32, q->shape));
  for (int i = 0; i < 2 && flash; i++) seeds[i] = hri_ten_flat(t, op, HRI_I64, i == 0 ? 2 : 1);
  hri_fn_save(t, fn, lse);
  hri_fn_save_result(t, fn, y);
  for (int i = 0; i < 2 && seeds[i]; i++) hri_fn_save(t, fn, seeds[i]);
  hri_ten_drop(t, lse);
  for (int i = 0; i < 2; i++) hri_ten_drop(t, seeds[i]);
  return hri_fn_bind(t, fn, y);
}

hri_ten *hri_aten_mask_bias(hri_torch *t, hri_ten *mask, hri_ten_type type) {
  hri_ten *small[2], *bias;
  if (mask->type != HRI_BOOL) return hri_autocast_lower(t, mask);
  if (t->autocast != HRI_F32) type = t->autocast;
  for (int i = 0; i < 2; i++) small[i] = hri_ten_flat(t, "scalar_tensor", type, 1);
  bias = hri_ten_like(t, "where", mask, type);
  for (int i = 0; i < 2; i++) hri_ten_drop(t, small[i]);
  return bias;
}

/* preprocess_mask: the memory-efficient kernel reads rows of a multiple of 8, so others are padded: another copy. */
static hri_ten *aligned_bias(hri_torch *t, hri_ten *mask, hri_ten_type type) {
  enum { ALIGNMENT = 8 };
  hri_ten *bias = hri_aten_mask_bias(t, mask, type);
  hri_ten_shape shape = bias->shape;
  uint64_t *width = &shape.dims[shape.rank - 1];
  if (*width % ALIGNMENT) {
    *width = hri_round_up(*width, ALIGNMENT);
    hri_ten_set(t, &bias, hri_ten_make(t, "constant_pad_nd", bias->type, shape));
  }
  return bias;
}

hri_ten *hri_aten_attention(hri_torch *t, hri_sdpa backend, hri_ten *q, hri_ten *k, hri_ten *v, hri_ten *mask,
                            double dropout, bool by_heads) {
  hri_ten *inputs[4], *y;
  assert(backend != HRI_SDPA_MATH);
  inputs[2] = hri_autocast_lower(t, v);
  inputs[1] = hri_autocast_lower(t, k);
  inputs[0] = hri_autocast_lower(t, q);
  inputs[3] = mask ? aligned_bias(t, mask, inputs[0]->type) : NULL;
  y = fused(t, backend, inputs, dropout > 0, by_heads);
  for (int i = 4; i-- > 0;) hri_ten_drop(t, inputs[i]);
  return y;
}

/* ---- varlen_attn: flash over documents that share rows ---- */

/* torch_attn::_varlen_attn_backward: the same over all documents' rows, with room for a block behind each. numbers[0]: documents. */
static void varlen_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  static const char op[] = "_flash_attention_backward";
  enum { BLOCK = 128 };
  enum { NORMS = 5 }; /* what hri_aten_attention_varlen saves: q, k, v, ends, the result, its norms, a seed */
  hri_ten *saved[HRI_FN_SAVED] = {NULL}, *space[2], *none;
  sizes s = sizes_of(&fn->shapes[0], &fn->shapes[1]);
  unpack(t, fn, saved);
  if (g[0]) {
    none = hri_ten_like(t, "zeros", saved[NORMS], HRI_F32); /* gradient of the result that nobody takes */
    for (int k = 0; k < 3; k++) in[k] = hri_ten_make(t, op, g[0]->type, fn->shapes[k]);
    take_flash_space(t, &s, s.batch * s.tokens + BLOCK * fn->numbers[0], space);
    for (int k = 2; k-- > 0;) hri_ten_drop(t, space[k]);
    hri_ten_drop(t, none);
  }
  let_go(t, fn, saved);
}

hri_ten *hri_aten_attention_varlen(hri_torch *t, hri_ten *q, hri_ten *k, hri_ten *v, hri_ten *ends,
                                   uint64_t documents) {
  static const char op[] = "_flash_attention_forward";
  hri_ten *inputs[] = {q, k, v}, *y, *norms, *unused[2], *seed;
  hri_fn *fn = hri_fn_make(t, varlen_backward, inputs, 3);
  if (fn) fn->numbers[0] = documents;
  y = hri_ten_like(t, op, q, q->type);
  norms = hri_ten_flat(t, op, HRI_F32, hri_ten_count(q) / q->shape.dims[3]);
  for (int i = 0; i < 2; i++) unused[i] = hri_ten_flat(t, op, HRI_I64, i == 0 ? 2 : 1); /* the kernel's own seeds */
  seed = hri_ten_flat(t, "zeros", HRI_I64, 2);
  for (int i = 0; i < 3; i++) hri_fn_save(t, fn, inputs[i]);
  hri_fn_save(t, fn, ends);
  hri_fn_save_result(t, fn, y);
  hri_fn_save(t, fn, norms);
  hri_fn_save(t, fn, seed);
  for (int i = 2; i-- > 0;) hri_ten_drop(t, unused[i]);
  hri_ten_drop(t, seed);
  hri_ten_drop(t, norms);
  return hri_fn_bind(t, fn, y);
}

/* ---- flex_attention (torch/_inductor/kernel/flex) ---- */

/* A saved tensor that its function lets go of: compiled functions clear what they saved as they go. */
static hri_ten *take_saved(hri_torch *t, hri_fn *fn, uint32_t index) {
  hri_saved *saved = &fn->saved[index];
  hri_ten *tensor = saved->tensor;
  if (saved->frame) return hri_fn_saved(t, fn, index);
  saved->tensor = NULL;
  return tensor;
}

/* Sums of gradient times result, for which the result goes; then the gradients of all three. */
static void flex_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  static const char op[] = "flex_attention_backward";
  enum { RESULT = 3, NORMS, SAVED };
  hri_ten *saved[SAVED], *sums;
  for (uint32_t i = 0; i < SAVED; i++) saved[i] = take_saved(t, fn, i);
  if (g[0]) {
    sums = hri_ten_like(t, op, saved[NORMS], HRI_F32);
    hri_ten_set(t, &saved[RESULT], NULL);
    for (int k = 0; k < 3; k++) in[k] = hri_ten_make(t, op, g[0]->type, fn->shapes[k]);
    hri_ten_drop(t, sums);
  }
  hri_ten_drop(t, saved[NORMS]);
  for (uint32_t i = 0; i < NORMS; i++) hri_ten_drop(t, saved[i]);
}

hri_ten *hri_aten_flex_attention(hri_torch *t, hri_ten *q, hri_ten *k, hri_ten *v) {
  hri_ten *const inputs[] = {q, k, v};
  hri_fn *fn = hri_fn_make(t, flex_backward, inputs, 3);
  hri_ten_shape each = hri_ten_shape_of(3, q->shape.dims[0], q->shape.dims[1], q->shape.dims[2], 0);
  hri_ten *norms = hri_ten_make(t, "flex_attention", HRI_F32, each),
          *largest = hri_ten_make(t, "flex_attention", HRI_F32, each),
          *y = hri_ten_like(t, "flex_attention", q, q->type);
  hri_ten_drop(t, largest);
  for (int i = 0; i < 3; i++) hri_fn_save(t, fn, inputs[i]);
  hri_fn_save_result(t, fn, y);
  hri_fn_save(t, fn, norms);
  hri_ten_drop(t, norms);
  return hri_fn_bind(t, fn, y);
}
