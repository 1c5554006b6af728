#include "model/tied.h"

#include <string.h>

#include "model/params.h"

enum { PIECE = 256 * 1024 };

/* The file's spelling of the embedding. */
static uint32_t find_embedding(const hr_model *model, const hri_weights *weights) {
  hri_param_spec spec;
  char name[128];
  hri_param_get(model, 0, &spec);
  for (uint32_t variant = 0; hri_param_variant(model, spec.parts[0].name, variant, name); variant++) {
    uint32_t index = hri_weights_find(weights, name);
    if (index != HRI_SAFETENSORS_NONE) return index;
  }
  return HRI_SAFETENSORS_NONE;
}

static uint32_t find_head(const hri_weights *weights) {
  static const char end[] = "lm_head.weight";
  for (uint32_t i = 0; i < hri_weights_count(weights); i++) {
    const char *name = hri_weights_get(weights, i)->name;
    size_t length = strlen(name), tail = sizeof end - 1;
    if (length >= tail && strcmp(name + length - tail, end) == 0 && (length == tail || name[length - tail - 1] == '.'))
      return i;
  }
  return HRI_SAFETENSORS_NONE;
}

static hr_status compare(const hri_weights *weights, uint32_t a, uint32_t b, bool *same, hr_error *error) {
  const hri_safetensor *x = hri_weights_get(weights, a), *y = hri_weights_get(weights, b);
  uint64_t bytes = x->end - x->begin;
  char *pieces;
  hr_status status = HR_OK;
  *same = x->dtype == y->dtype && x->rank == y->rank && memcmp(x->shape, y->shape, x->rank * sizeof *x->shape) == 0;
  if (!*same) return HR_OK;
  pieces = hri_alloc(2 * PIECE);
  if (!pieces) return hri_fail_memory(error, 2 * PIECE, "a comparison of the head with the embedding");
  for (uint64_t at = 0; at < bytes && *same && status == HR_OK; at += PIECE) {
    uint64_t count = bytes - at < PIECE ? bytes - at : PIECE;
    status = hri_weights_read(weights, a, at, count, pieces, error);
    if (status == HR_OK) status = hri_weights_read(weights, b, at, count, pieces + PIECE, error);
    if (status == HR_OK) *same = memcmp(pieces, pieces + PIECE, count) == 0;
  }
  hri_free(pieces);
  return status;
}

hr_status hri_tied_head_check(const hr_model *model, const hri_weights *weights, hr_error *error) {
  uint32_t embedding, head;
  bool same;
  if (!model->tied_embeddings) return HR_OK;
  head = find_head(weights);
  embedding = find_embedding(model, weights);
  if (head == HRI_SAFETENSORS_NONE || embedding == HRI_SAFETENSORS_NONE) return HR_OK;
  HRI_TRY(compare(weights, embedding, head, &same, error));
  if (same) return HR_OK;
  hri_fail(error, HR_ERROR_INPUT, "%s: config.json ties the head to the embedding, but the tensor %s is not %s",
           hri_weights_path(weights, head), hri_weights_get(weights, head)->name,
           hri_weights_get(weights, embedding)->name);
  return hri_hint(
      error, HR_ERROR_INPUT,
      "set tie_word_embeddings to false in config.json if the model has a head of its own, or remove the tensor");
}
