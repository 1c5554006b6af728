/* What the readers of config.json share (config.c, config_rope.c). Internal to src/model. */
#ifndef HRI_MODEL_CONFIG_H
#define HRI_MODEL_CONFIG_H

#include "base/json.h"
#include "model/family.h"

#define HRI_FAMILY(id) (1u << HR_FAMILY_##id)
#define HRI_QWEN (HRI_FAMILY(QWEN2) | HRI_FAMILY(QWEN3))
#define HRI_GEMMA (HRI_FAMILY(GEMMA2) | HRI_FAMILY(GEMMA3)) /* those with windows, caps and four norms a layer */
#define HRI_ALL_GEMMA (HRI_FAMILY(GEMMA) | HRI_GEMMA)
#define HRI_MLP_BIASED (HRI_FAMILY(LLAMA) | HRI_FAMILY(SMOLLM3) | HRI_FAMILY(GRANITE))      /* mlp_bias is a choice */
#define HRI_BIASED (HRI_MLP_BIASED | HRI_FAMILY(QWEN3) | HRI_FAMILY(OLMO2) | HRI_ALL_GEMMA) /* attention_bias is one */
#define HRI_PARTIAL (HRI_FAMILY(PHI3) | HRI_FAMILY(PHI) | HRI_FAMILY(STABLELM)) /* partial_rotary_factor is one */
#define HRI_NO_WINDOWS                                                                                                 \
  (HRI_FAMILY(GPT2) | HRI_FAMILY(LLAMA) | HRI_FAMILY(GEMMA) | HRI_FAMILY(GRANITE) | HRI_FAMILY(OLMO2) |                \
   HRI_FAMILY(STABLELM) | HRI_FAMILY(PHI))

/* Whether a family, or that of `model`, is one of a set of HRI_FAMILY bits. */
static inline bool hri_family_is(hr_family family, uint32_t set) { return (set >> family & 1u) != 0; }
static inline bool hri_family_in(const hr_model *model, uint32_t set) { return hri_family_is(model->family, set); }

/* "config.json: field rope_scaling.rope_type is "su": not supported"; INPUT. */
hr_status hri_config_unsupported(const hri_json *field, hr_error *error, const char *hint);

/* A finite number in (low, high], or in [low, high] when `closed`; the default stays when the key is missing or
 * null. */
hr_status hri_config_number(const hri_json *root, const char *key, double low, double high, bool closed, double *value,
                            hr_error *error);

/* rope, local_rope and rotary_size of a model whose sizes have been read. */
hr_status hri_config_rope(const hri_json *root, hr_model *model, hr_error *error);

/* "default", "linear", ... as config files write them. */
const char *hri_rope_kind_name(hr_rope_scaling scaling);

#endif
