/* Words of --freeze and --train-only, matched against the model's one table of parameters. */
#include "model/freeze.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

enum { WORD_BYTES = 128 };

/* "layers.3" or "layers.0-15"; false: it is something else. */
static bool layers_of(const char *word, uint32_t *first, uint32_t *last) {
  static const char prefix[] = "layers.", digits[] = "0123456789";
  const char *numbers = word + sizeof prefix - 1;
  unsigned a, b;
  char rest;
  if (strncmp(word, prefix, sizeof prefix - 1) != 0 || !*numbers || !strchr(digits, *numbers) ||
      strstr(numbers, "--") || strspn(numbers, "0123456789-") != strlen(numbers))
    return false; /* what scanf would take besides: signs and blanks */
  if (sscanf(word, "layers.%9u-%9u%c", &a, &b, &rest) == 2) {
    *first = a;
    *last = b;
    return a <= b;
  }
  *first = *last = 0;
  if (sscanf(word, "layers.%9u%c", &a, &rest) != 1) return false;
  *first = *last = a;
  return true;
}

static bool is_norm(hri_slot slot) {
  switch (slot) {
  case HRI_SLOT_NORM1_WEIGHT:
  case HRI_SLOT_NORM1_BIAS:
  case HRI_SLOT_NORM2_WEIGHT:
  case HRI_SLOT_NORM2_BIAS:
  case HRI_SLOT_Q_NORM_WEIGHT:
  case HRI_SLOT_K_NORM_WEIGHT:
  case HRI_SLOT_POST_NORM1_WEIGHT:
  case HRI_SLOT_POST_NORM2_WEIGHT:
  case HRI_SLOT_FINAL_NORM_WEIGHT:
  case HRI_SLOT_FINAL_NORM_BIAS: return true;
  default: return false;
  }
}

static bool is_bias(hri_slot slot) {
  switch (slot) {
  case HRI_SLOT_NORM1_BIAS:
  case HRI_SLOT_NORM2_BIAS:
  case HRI_SLOT_FINAL_NORM_BIAS:
  case HRI_SLOT_QKV_BIAS:
  case HRI_SLOT_ATTENTION_OUTPUT_BIAS:
  case HRI_SLOT_MLP_IN_BIAS:
  case HRI_SLOT_MLP_OUT_BIAS:
  case HRI_SLOT_HEAD_BIAS: return true;
  default: return false;
  }
}

static bool means(const hr_model *model, const char *word, const hri_param_spec *spec, const hri_param_part *part) {
  uint32_t first, last;
  bool embedding = spec->slot == HRI_SLOT_TOKEN_EMBEDDING;
  if (strcmp(word, "embed") == 0) return embedding || spec->slot == HRI_SLOT_POSITION_EMBEDDING;
  if (strcmp(word, "head") == 0)
    return spec->slot == HRI_SLOT_HEAD_WEIGHT || spec->slot == HRI_SLOT_HEAD_BIAS ||
           (model->tied_embeddings && embedding);
  if (strcmp(word, "norms") == 0) return is_norm(spec->slot);
  if (strcmp(word, "biases") == 0) return is_bias(spec->slot);
  if (layers_of(word, &first, &last))
    return spec->layer >= 0 && (uint32_t)spec->layer >= first && (uint32_t)spec->layer <= last &&
           last < model->layer_count;
  return fnmatch(word, part->name, 0) == 0;
}

/* The next word of a list; NULL behind the last. */
static const char *next_word(const char *at, char word[WORD_BYTES]) {
  size_t length = strcspn(at, ",");
  if (!*at) return NULL;
  (void)snprintf(word, WORD_BYTES, "%.*s", (int)(length < WORD_BYTES ? length : WORD_BYTES - 1), at);
  return at + length + (at[length] == ',');
}

static bool any_means(const hr_model *model, const char *list, const hri_param_spec *spec, const hri_param_part *part) {
  char word[WORD_BYTES];
  while ((list = next_word(list, word)))
    if (means(model, word, spec, part)) return true;
  return false;
}

bool hri_part_trains(const hr_model *model, const hri_param_spec *spec, const hri_param_part *part, const char *freeze,
                     const char *train_only) {
  if (freeze && any_means(model, freeze, spec, part)) return false;
  return !train_only || any_means(model, train_only, spec, part);
}

/* ---- checks ---- */

static bool means_something(const hr_model *model, const char *word) {
  for (uint32_t p = 0; p < hri_param_count(model); p++) {
    hri_param_spec spec;
    hri_param_get(model, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++)
      if (means(model, word, &spec, &spec.parts[k])) return true;
  }
  return false;
}

static hr_status check_list(const hr_model *model, const char *option, const char *list, hr_error *error) {
  char word[WORD_BYTES];
  hri_param_spec spec;
  for (const char *at = list; (at = next_word(at, word));) {
    if (word[0] && means_something(model, word)) continue;
    hri_param_get(model, hri_param_count(model) / 2, &spec);
    (void)hri_fail(error, HR_ERROR_USAGE, "%s: '%.100s' means no tensor of %s", option, word, model->name);
    return hri_hint(error, HR_ERROR_USAGE,
                    "words are embed, head, norms, biases, layers.0-%u, or patterns of names such as %s",
                    model->layer_count - 1, spec.parts[0].name);
  }
  return HR_OK;
}

hr_status hri_freeze_check(const hr_model *model, const char *freeze, const char *train_only, hr_error *error) {
  if (freeze) HRI_TRY(check_list(model, "--freeze", freeze, error));
  if (train_only) HRI_TRY(check_list(model, "--train-only", train_only, error));
  for (uint32_t p = 0; p < hri_param_count(model); p++) {
    hri_param_spec spec;
    hri_param_get(model, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++)
      if (hri_part_trains(model, &spec, &spec.parts[k], freeze, train_only)) return HR_OK;
  }
  return hri_fail(error, HR_ERROR_USAGE, "--freeze and --train-only leave nothing to train");
}
