/* The ops of aten that the models use: what each makes, what autograd saves for it, and what its backward makes.
 *
 * An op takes borrowed tensors and gives a new reference. Views cost nothing, so shapes that a reshape would only rename
 * are not told apart where no rule depends on them; where PyTorch copies to make a tensor contiguous, the module's rule
 * says so (hri_aten_contiguous). Sources: aten/src/ATen/native, tools/autograd/derivatives.yaml and
 * torch/csrc/autograd/FunctionsManual.cpp. What kernels ask for beyond their results was recorded (docs/pytorch.md). */
#ifndef HRI_PYTORCH_ATEN_H
#define HRI_PYTORCH_ATEN_H

#include "frameworks/pytorch/eager.h"

hri_ten *hri_aten_view(hri_torch *t, hri_ten *x, hri_ten_shape shape);
/* The same where the gradient comes in another order of elements, so that giving it the old shape copies it. */
hri_ten *hri_aten_view_copied_back(hri_torch *t, hri_ten *x, hri_ten_shape shape);
hri_ten *hri_aten_contiguous(hri_torch *t, hri_ten *x); /* a copy: of what is not contiguous */
hri_ten *hri_aten_to(hri_torch *t, hri_ten *x, hri_ten_type type);
hri_ten *hri_aten_add(hri_torch *t, hri_ten *a, hri_ten *b);
hri_ten *hri_aten_sub(hri_torch *t, hri_ten *a, hri_ten *b);
hri_ten *hri_aten_add_scalar(hri_torch *t, hri_ten *x);
hri_ten *hri_aten_mul(hri_torch *t, hri_ten *a, hri_ten *b);
hri_ten *hri_aten_mul_scalar(hri_torch *t, hri_ten *x);
/* x *= n: the same bytes, another place in the graph. */
hri_ten *hri_aten_mul_scalar_in_place(hri_torch *t, hri_ten *x);
/* The same where x is a view of all of another tensor: the graph goes through that (CopySlices). */
hri_ten *hri_aten_mul_scalar_in_view(hri_torch *t, hri_ten *x);
hri_ten *hri_aten_div_scalar(hri_torch *t, hri_ten *x);
/* x / divisor, which is no part of the graph. */
hri_ten *hri_aten_div_by(hri_torch *t, hri_ten *x, hri_ten *divisor);
hri_ten *hri_aten_neg(hri_torch *t, hri_ten *x);
hri_ten *hri_aten_pow(hri_torch *t, hri_ten *x);
hri_ten *hri_aten_mean_last(hri_torch *t, hri_ten *x);
hri_ten *hri_aten_rsqrt(hri_torch *t, hri_ten *x);
hri_ten *hri_aten_tanh(hri_torch *t, hri_ten *x);
/* silu, gelu: one tensor saved, one made in the backward. */
hri_ten *hri_aten_activation(hri_torch *t, const char *op, hri_ten *x);
/* [.., from, from + width) of the last dimension: a view; its backward makes zeros of the whole. */
hri_ten *hri_aten_narrow_last(hri_torch *t, hri_ten *x, uint64_t width);
/* parts[count] of equal width of the last dimension, as split does: one function, whose backward joins them. */
void hri_aten_split_last(hri_torch *t, hri_ten *x, uint32_t count, hri_ten **parts);
/* x.chunk(.., dim=1) of [rows, tokens, width]: parts[count] of `width` tokens, the last of what is left. */
void hri_aten_chunk_tokens(hri_torch *t, hri_ten *x, uint64_t width, uint32_t count, hri_ten **parts);
hri_ten *hri_aten_cat_last(hri_torch *t, hri_ten *a, hri_ten *b);
/* A copy by torch.cat of nothing, which has a type, and x: what DynamicCache.update makes of the first tokens. */
hri_ten *hri_aten_cat_one(hri_torch *t, hri_ten *x, hri_ten_type type);
/* torch.cat of rows: [a + b, ...]. Without gradient. */
hri_ten *hri_aten_cat_rows(hri_torch *t, hri_ten *a, hri_ten *b);
/* A copy of `times` as many heads. */
hri_ten *hri_aten_repeat_interleave(hri_torch *t, hri_ten *x, uint64_t times);
/* The same as repeat_kv does it: of one head a view. */
hri_ten *hri_aten_repeat(hri_torch *t, hri_ten *x, uint64_t times);
hri_ten *hri_aten_dropout(hri_torch *t, hri_ten *x, double p);
hri_ten *hri_aten_softmax(hri_torch *t, hri_ten *x, hri_ten_type type);
/* Rows of which nothing is seen become zeros. */
hri_ten *hri_aten_safe_softmax(hri_torch *t, hri_ten *x);
/* torch.where(condition, x, number): the condition lives on anyway. */
hri_ten *hri_aten_where(hri_torch *t, hri_ten *x);
/* x[places[0], places[1]] of [rows, tokens, width]: as many rows of width as there are places. */
hri_ten *hri_aten_index_rows(hri_torch *t, hri_ten *x, hri_ten *const places[2]);
/* x[..., :-1, :] of [rows, tokens, width]: a view. */
hri_ten *hri_aten_without_last_row(hri_torch *t, hri_ten *x);
hri_ten *hri_aten_layer_norm(hri_torch *t, hri_ten *x, hri_ten *weight, hri_ten *bias);
/* rms_norm of x and weight of one type, by PyTorch's own kernel. */
hri_ten *hri_aten_rms_norm(hri_torch *t, hri_ten *x, hri_ten *weight);
hri_ten *hri_aten_embedding(hri_torch *t, hri_ten *weight, hri_ten *ids);
/* x [.., in] by weight [out, in], which is transposed, or Conv1D's [in, out]; bias may be NULL. */
hri_ten *hri_aten_linear(hri_torch *t, hri_ten *x, hri_ten *weight, hri_ten *bias, bool transposed);
/* The same as a function of Python's, as DeepSpeed has one: both gradients are tensors of their own. */
hri_ten *hri_aten_linear_function(hri_torch *t, hri_ten *x, hri_ten *weight, hri_ten *bias);
/* Products of batches of matrices: [.., m, k] by [.., k, n]. */
hri_ten *hri_aten_bmm(hri_torch *t, hri_ten *a, hri_ten *b, uint64_t n);
/* Labels [rows, tokens] without the first, beside the `padded` ones that they are of, where a loss pads them by one. */
hri_ten *hri_aten_shift_labels(hri_torch *t, const hri_ten *labels, hri_ten **padded);
/* Mean over the labels: logits [N, V]. labels NULL: a view of what lives on anyway. */
hri_ten *hri_aten_cross_entropy(hri_torch *t, hri_ten *logits, hri_ten *labels);

#endif
