/* A small model of a random family, with what that family can vary drawn at random. */
#ifndef HRI_TEST_RANDOM_FAMILY_H
#define HRI_TEST_RANDOM_FAMILY_H

#include <math.h>
#include <string.h>

#include "model/config.h"

/* A number below `below`. */
typedef uint32_t (*random_draw)(void *context, uint32_t below);

static inline void random_rope(hr_rope *rope, uint32_t pairs, random_draw draw, void *context) {
  *rope = (hr_rope){.theta = 20 + draw(context, 200),
                    .scaling = (hr_rope_scaling)draw(context, HR_ROPE_SCALING_COUNT),
                    .factor = 1.5 + draw(context, 3)};
  if (rope->scaling == HR_ROPE_LLAMA3) rope->low_frequency_factor = 1, rope->high_frequency_factor = 4;
  if (rope->scaling == HR_ROPE_LLAMA3 || rope->scaling == HR_ROPE_YARN || rope->scaling == HR_ROPE_LONGROPE)
    rope->original_max_positions = 4 + draw(context, 30);
  if (rope->scaling == HR_ROPE_LONGROPE) rope->factor_count = pairs;
  for (uint32_t i = 0; i < rope->factor_count; i++) {
    rope->short_factors[i] = 1 + 0.1 * i;
    rope->long_factors[i] = 1 + 0.5 * i;
  }
}

static inline void random_windows(hr_model *m, random_draw draw, void *context) {
  bool alike = m->family == HR_FAMILY_MISTRAL || m->family == HR_FAMILY_PHI3, any = false;
  memset(m->sliding, 0, sizeof m->sliding);
  m->sliding_window = 0;
  if (hri_family_in(m, HRI_NO_WINDOWS)) return;
  for (uint32_t l = 0; l < m->layer_count; l++) {
    m->sliding[l] = alike && l > 0 ? m->sliding[0] : (uint8_t)draw(context, 2);
    any = any || m->sliding[l];
  }
  if (any) m->sliding_window = 1 + draw(context, 12);
}

/* The family and what follows from it; the sizes are the caller's, and may be changed before random_variations. */
static inline hr_status random_family(hr_model *m, random_draw draw, void *context, hr_error *error) {
  static const char *const sources[] = {"micro-gpt2-bytes",
                                        "micro-llama-bytes",
                                        "custom:layers=2,hidden=8,heads=2,family=mistral",
                                        "custom:layers=2,hidden=8,heads=2,family=qwen2",
                                        "custom:layers=2,hidden=8,heads=2,family=qwen3",
                                        "custom:layers=2,hidden=8,heads=2,family=phi3",
                                        "custom:layers=2,hidden=8,heads=2,family=gemma2",
                                        "custom:layers=2,hidden=8,heads=2,family=gemma3_text",
                                        "custom:layers=2,hidden=8,heads=2,family=gemma",
                                        "custom:layers=2,hidden=8,heads=2,family=smollm3",
                                        "custom:layers=2,hidden=8,heads=2,family=granite",
                                        "custom:layers=2,hidden=8,heads=2,family=olmo2",
                                        "custom:layers=2,hidden=16,heads=2,family=stablelm",
                                        "custom:layers=2,hidden=8,heads=2,family=phi"};
  return hr_model_open(sources[draw(context, sizeof sources / sizeof *sources)], m, error);
}

/* Whether hidden_size is that of all heads, and not the caller's choice. */
static inline bool random_hidden_is_heads(const hr_model *m) {
  return m->family == HR_FAMILY_GPT2 || m->family == HR_FAMILY_STABLELM;
}

/* After layer_count, hidden_size and head_size are set. */
static inline void random_variations(hr_model *m, random_draw draw, void *context) {
  bool gemma = m->family == HR_FAMILY_GEMMA2 || m->family == HR_FAMILY_GEMMA3;
  m->rotary_size = m->learned_positions ? 0 : m->head_size;
  if (hri_family_in(m, HRI_PARTIAL)) m->rotary_size = 2 * (1 + draw(context, m->head_size / 2));
  m->attention_scale = 1 / sqrt((double)m->head_size);
  memset(m->no_rope, 0, sizeof m->no_rope);
  for (uint32_t l = 0; l < m->layer_count && m->family == HR_FAMILY_SMOLLM3; l++)
    m->no_rope[l] = (uint8_t)draw(context, 2);
  random_windows(m, draw, context);
  if (!m->learned_positions) random_rope(&m->rope, m->rotary_size / 2, draw, context);
  if (m->family == HR_FAMILY_PHI3 && m->rope.scaling != HR_ROPE_LONGROPE) m->rope = (hr_rope){.theta = 50, .factor = 1};
  if (m->has_local_rope) random_rope(&m->local_rope, m->rotary_size / 2, draw, context);
  if (hri_family_in(m, HRI_MLP_BIASED)) m->mlp_bias = draw(context, 2);
  if (m->family == HR_FAMILY_STABLELM) {
    m->qkv_bias = draw(context, 2);
    m->parallel_residual = draw(context, 2);
  }
  if (m->family == HR_FAMILY_GRANITE) {
    m->embedding_scale = 1 + draw(context, 12);
    m->residual_scale = 0.2 + 0.1 * draw(context, 9);
    m->attention_scale = 1 / (2.0 + draw(context, 9));
    m->logit_divisor = 1 + 0.5 * draw(context, 9);
  }
  if (hri_family_in(m, HRI_BIASED)) m->qkv_bias = m->attention_output_bias = draw(context, 2);
  m->activation = (hr_activation)draw(context, HR_ACTIVATION_COUNT);
  if (m->family == HR_FAMILY_GEMMA && m->activation == HR_ACTIVATION_GELU) m->activation = HR_ACTIVATION_GELU_TANH;
  if (gemma || m->family == HR_FAMILY_GEMMA) m->embedding_scale = sqrt((double)m->hidden_size);
  if (!gemma) return;
  m->attention_scale = 1 / sqrt(1.0 + draw(context, 9));
  if (m->family == HR_FAMILY_GEMMA2) m->attention_softcap = draw(context, 2) ? 1.5 + draw(context, 4) : 0;
  m->logit_softcap = draw(context, 2) ? 1.5 + draw(context, 4) : 0;
}

#endif
