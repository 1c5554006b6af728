/* The fused head, tile by tile (fused_head.h). Gradients are summed in fp32 whatever the weights are: of a head that trains that is a
 * tensor of its size. */
#include "frameworks/pytorch/fused_head.h"

#include "frameworks/pytorch/aten.h"
#include "frameworks/pytorch/device.h"

enum { TOKENS = 4096, COLUMNS = 32768, STATISTICS = 7, SAVED = 5 };

static hri_ten *matrix(hri_torch *t, const char *op, hri_ten_type type, uint64_t rows, uint64_t columns) {
  return hri_ten_make(t, op, type, hri_ten_shape_of(2, rows, columns, 0, 0));
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Goes through the tiles: a chunk of hidden states in the type of products, and for each a chunk of the weight. `keeps`: the chunk of the
 * weight is a variable, so that the next is made beside it. */
static void go_through(hri_torch *t, const hri_ten *hidden, const hri_ten *weight, hri_ten_type type, bool keeps) {
  uint64_t count = hidden->shape.dims[0], vocabulary = weight->shape.dims[0], width = weight->shape.dims[1];
  hri_ten *tokens = NULL, *columns = NULL;
  for (uint64_t from = 0; from < count; from += TOKENS) {
    if (hidden->type != type) hri_ten_set(t, &tokens, matrix(t, "_to_copy", type, least(TOKENS, count - from), width));
    for (uint64_t start = 0; start < vocabulary; start += COLUMNS) {
      if (weight->type != type)
        hri_ten_set(t, &columns, matrix(t, "_to_copy", type, least(COLUMNS, vocabulary - start), width));
      hri_aten_workspace(t);
      if (!keeps) hri_ten_set(t, &columns, NULL);
    }
  }
  hri_ten_drop(t, columns);
  hri_ten_drop(t, tokens);
}

/* Inputs hidden, weight. numbers[0]: the type of products. */
static void backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_ten *saved[SAVED], *sums[2] = {0}, *tile;
  hri_ten_type type = (hri_ten_type)fn->numbers[0];
  for (uint32_t i = 0; i < SAVED; i++) saved[i] = hri_fn_saved(t, fn, i);
  if (g[0]) {
    hri_ten *hidden = saved[0], *weight = saved[1];
    for (uint32_t k = 0; k < 2; k++)
      if (hri_fn_needs(fn, k)) sums[k] = hri_ten_like(t, "zeros", saved[k], HRI_F32);
    tile = matrix(t, "empty", type, least(hidden->shape.dims[0], TOKENS), COLUMNS);
    go_through(t, hidden, weight, type, true);
    for (uint32_t k = 0; k < 2; k++)
      if (sums[k])
        in[k] =
            saved[k]->type == HRI_F32 ? hri_ten_keep(sums[k]) : hri_ten_like(t, "_to_copy", saved[k], saved[k]->type);
    hri_ten_drop(t, tile);
    for (uint32_t k = 0; k < 2; k++) hri_ten_drop(t, sums[k]);
  }
  for (uint32_t i = SAVED; i-- > 0;) hri_ten_drop(t, saved[i]);
}

/* ChunkedLogProbFunction.forward: running statistics of each token, one tile of logits. */
static hri_ten *log_probabilities(hri_torch *t, hri_ten *hidden, hri_ten *weight, hri_ten *targets) {
  hri_ten_type type = t->autocast != HRI_F32 ? t->autocast : hidden->type;
  uint64_t count = hidden->shape.dims[0];
  hri_ten *inputs[] = {hidden, weight}, *statistics[STATISTICS], *tile, *kept[2], *y;
  hri_fn *fn = hri_fn_make(t, backward, inputs, 2);
  for (int i = 0; i < STATISTICS; i++) statistics[i] = hri_ten_flat(t, "full", HRI_F32, count);
  tile = matrix(t, "empty", type, least(count, TOKENS), COLUMNS);
  go_through(t, hidden, weight, type, false);
  for (int i = 0; i < 2; i++) kept[i] = hri_ten_flat(t, "log", HRI_F32, count); /* log_z, entropy */
  y = hri_ten_flat(t, "sub", HRI_F32, count);
  if (fn) fn->numbers[0] = type;
  hri_ten *const saved[SAVED] = {hidden, weight, targets, kept[0], kept[1]};
  for (int i = 0; i < SAVED; i++) hri_fn_save(t, fn, saved[i]);
  hri_ten_drop(t, tile);
  for (int i = STATISTICS; i-- > 0;) hri_ten_drop(t, statistics[i]);
  for (int i = 0; i < 2; i++) hri_ten_drop(t, kept[i]);
  return hri_fn_bind(t, fn, y);
}

hri_ten *hri_fused_head(hri_torch *t, hri_ten *hidden, hri_ten *weight) {
  uint64_t rows = hidden->shape.dims[0], tokens = hidden->shape.dims[1] - 1;
  hri_ten *mask = matrix(t, "ne", HRI_BOOL, rows, tokens), *places[2], *shown, *chosen, *targets, *probabilities,
          *spread, *loss;
  hri_torch_at(t, "lm_head", -1);
  shown = hri_aten_without_last_row(t, hidden);
  for (int i = 0; i < 2; i++) places[i] = hri_ten_flat(t, "nonzero", HRI_I64, rows * tokens);
  chosen = hri_aten_index_rows(t, shown, places);
  targets = hri_ten_flat(t, "index", HRI_I64, rows * tokens);
  for (int i = 0; i < 2; i++) hri_ten_drop(t, places[i]);
  probabilities = log_probabilities(t, chosen, weight, targets);
  spread = hri_aten_contiguous(t, probabilities); /* new_zeros.masked_scatter */
  loss = hri_aten_div_scalar(t, spread);
  hri_ten *const all[] = {spread, probabilities, targets, chosen, shown, mask};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) hri_ten_drop(t, all[i]);
  return loss;
}
