/* The check of a model description: sizes that make sense together, and that its family's config.json can say. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "model/config.h"

static const struct {
  const char *name;
  size_t offset;
  uint32_t max;
} size_fields[] = {
    {"layer_count", offsetof(hr_model, layer_count), HRI_MODEL_MAX_LAYERS},
    {"hidden_size", offsetof(hr_model, hidden_size), HRI_MODEL_MAX_HIDDEN},
    {"head_count", offsetof(hr_model, head_count), HRI_MODEL_MAX_HEADS},
    {"kv_head_count", offsetof(hr_model, kv_head_count), HRI_MODEL_MAX_HEADS},
    {"head_size", offsetof(hr_model, head_size), HRI_MODEL_MAX_HEAD_SIZE},
    {"mlp_size", offsetof(hr_model, mlp_size), HRI_MODEL_MAX_MLP},
    {"vocabulary_size", offsetof(hr_model, vocabulary_size), HRI_MODEL_MAX_VOCABULARY},
    {"max_positions", offsetof(hr_model, max_positions), HRI_MODEL_MAX_POSITIONS},
};

static hr_status check_sizes(const hr_model *m, hr_error *error) {
  uint64_t qkv_rows;
  for (size_t i = 0; i < sizeof size_fields / sizeof *size_fields; i++) {
    uint32_t value;
    memcpy(&value, (const char *)m + size_fields[i].offset, sizeof value);
    if (value == 0 || value > size_fields[i].max)
      return hri_fail(error, HR_ERROR_USAGE, "%s is %u; it must be from 1 to %u", size_fields[i].name, value,
                      size_fields[i].max);
  }
  if (m->head_count % m->kv_head_count != 0)
    return hri_fail(error, HR_ERROR_USAGE, "head_count (%u) must be a multiple of kv_head_count (%u)", m->head_count,
                    m->kv_head_count);
  if (!m->learned_positions && (m->rotary_size == 0 || m->rotary_size > m->head_size || m->rotary_size % 2 != 0))
    return hri_fail(
        error, HR_ERROR_USAGE,
        "rotary_size is %u; rotary positions rotate pairs, so it must be even, and from 2 to head_size (%u)",
        m->rotary_size, m->head_size);
  qkv_rows = ((uint64_t)m->head_count + 2 * (uint64_t)m->kv_head_count) * m->head_size;
  if (qkv_rows > HRI_MODEL_MAX_QKV_ROWS)
    return hri_fail(error, HR_ERROR_USAGE,
                    "head_count and head_size make %llu rows of q, k and v; at most %d make sense",
                    (unsigned long long)qkv_rows, HRI_MODEL_MAX_QKV_ROWS);
  return HR_OK;
}

static bool positive(double value) { return isfinite(value) && value > 0; }
static bool not_negative(double value) { return isfinite(value) && value >= 0; }

/* ---- rotary positions ---- */

static hr_status check_llama3(const char *name, const hr_rope *rope, hr_error *error) {
  if (!positive(rope->low_frequency_factor) || !positive(rope->high_frequency_factor) ||
      rope->high_frequency_factor <= rope->low_frequency_factor)
    return hri_fail(error, HR_ERROR_USAGE,
                    "%s.low_frequency_factor (%g) and %s.high_frequency_factor (%g) must be positive and ascending",
                    name, rope->low_frequency_factor, name, rope->high_frequency_factor);
  if (rope->original_max_positions == 0)
    return hri_fail(error, HR_ERROR_USAGE, "%s.original_max_positions is 0; llama3 needs it", name);
  return HR_OK;
}

static hr_status check_yarn(const char *name, const hr_rope *rope, hr_error *error) {
  if (rope->theta <= 1)
    return hri_fail(error, HR_ERROR_USAGE, "%s.theta is %g; yarn needs one above 1", name, rope->theta);
  if (not_negative(rope->beta_fast) && not_negative(rope->beta_slow) && not_negative(rope->attention_factor) &&
      not_negative(rope->mscale) && not_negative(rope->mscale_all_dim))
    return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE,
                  "%s: beta_fast, beta_slow, attention_factor, mscale and mscale_all_dim must not be negative", name);
}

static hr_status check_longrope(const char *name, const hr_rope *rope, uint32_t rotary_size, hr_error *error) {
  if (rope->factor_count != rotary_size / 2 || rope->factor_count > HR_MAX_ROPE_PAIRS)
    return hri_fail(error, HR_ERROR_USAGE, "%s.factor_count is %u; longrope needs one for each of %u pairs, at most %d",
                    name, rope->factor_count, rotary_size / 2, HR_MAX_ROPE_PAIRS);
  for (uint32_t i = 0; i < rope->factor_count; i++)
    if (!positive(rope->short_factors[i]) || !positive(rope->long_factors[i]))
      return hri_fail(error, HR_ERROR_USAGE, "%s: short and long factor %u are %g and %g; they must be positive", name,
                      i, rope->short_factors[i], rope->long_factors[i]);
  if (not_negative(rope->attention_factor) && not_negative(rope->factor)) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "%s: factor and attention_factor must not be negative", name);
}

static hr_status check_probability(const char *name, double value, hr_error *error) {
  if (value >= 0 && value <= 1) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "%s is %g; it must lie between 0 and 1", name, value);
}

static hr_status check_rope(const char *name, const hr_rope *rope, uint32_t rotary_size, hr_error *error) {
  if (!positive(rope->theta))
    return hri_fail(error, HR_ERROR_USAGE, "%s.theta is %g; it must be positive", name, rope->theta);
  if ((unsigned)rope->scaling >= HR_ROPE_SCALING_COUNT)
    return hri_fail(error, HR_ERROR_USAGE, "%s.scaling is no known kind", name);
  if (rope->original_max_positions > HRI_MODEL_MAX_POSITIONS)
    return hri_fail(error, HR_ERROR_USAGE, "%s.original_max_positions is %u; it must be at most %d", name,
                    rope->original_max_positions, HRI_MODEL_MAX_POSITIONS);
  if (rope->scaling == HR_ROPE_DEFAULT) return HR_OK;
  if (rope->scaling == HR_ROPE_LONGROPE) return check_longrope(name, rope, rotary_size, error);
  if (!positive(rope->factor))
    return hri_fail(error, HR_ERROR_USAGE, "%s.factor is %g; it must be positive", name, rope->factor);
  if (rope->scaling == HR_ROPE_DYNAMIC && rope->factor < 1)
    return hri_fail(error, HR_ERROR_USAGE, "%s.factor is %g; dynamic needs at least 1", name, rope->factor);
  if (rope->scaling == HR_ROPE_LLAMA3) return check_llama3(name, rope, error);
  return rope->scaling == HR_ROPE_YARN ? check_yarn(name, rope, error) : HR_OK;
}

/* ---- numbers ---- */

static hr_status check_windows(const hr_model *m, hr_error *error) {
  bool any = false;
  for (uint32_t l = 0; l < HR_MAX_LAYERS; l++) {
    if (m->sliding[l] > 1 || (m->sliding[l] && l >= m->layer_count))
      return hri_fail(error, HR_ERROR_USAGE, "sliding[%u] is %u; it must be 0 or 1, and 0 behind the last layer", l,
                      m->sliding[l]);
    any = any || m->sliding[l];
  }
  if (m->sliding_window > HRI_MODEL_MAX_POSITIONS)
    return hri_fail(error, HR_ERROR_USAGE, "sliding_window is %u; it must be at most %d", m->sliding_window,
                    HRI_MODEL_MAX_POSITIONS);
  if (any == (m->sliding_window > 0)) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "sliding_window is %u, and %s layer slides", m->sliding_window,
                  any ? "a" : "no");
}

static hr_status check_numbers(const hr_model *m, hr_error *error) {
  if (!positive(m->norm_epsilon) || m->norm_epsilon >= 1)
    return hri_fail(error, HR_ERROR_USAGE, "norm_epsilon is %g; it must lie between 0 and 1", m->norm_epsilon);
  if (!positive(m->attention_scale))
    return hri_fail(error, HR_ERROR_USAGE, "attention_scale is %g; it must be positive", m->attention_scale);
  if (!positive(m->residual_scale))
    return hri_fail(error, HR_ERROR_USAGE, "residual_scale is %g; it must be positive", m->residual_scale);
  if (!positive(m->embedding_scale))
    return hri_fail(error, HR_ERROR_USAGE, "embedding_scale is %g; it must be positive", m->embedding_scale);
  if (!positive(m->logit_divisor))
    return hri_fail(error, HR_ERROR_USAGE, "logit_divisor is %g; it must be positive", m->logit_divisor);
  if (!not_negative(m->attention_softcap))
    return hri_fail(error, HR_ERROR_USAGE, "attention_softcap is %g; it must not be negative", m->attention_softcap);
  if (!not_negative(m->logit_softcap))
    return hri_fail(error, HR_ERROR_USAGE, "logit_softcap is %g; it must not be negative", m->logit_softcap);
  if (!isfinite(m->init_std) || m->init_std < 0 || m->init_std > 1e3)
    return hri_fail(error, HR_ERROR_USAGE, "init_std is %g; it must lie between 0 and 1000", m->init_std);
  HRI_TRY(check_probability("dropout.attention", m->dropout.attention, error));
  HRI_TRY(check_probability("dropout.residual", m->dropout.residual, error));
  HRI_TRY(check_probability("dropout.embedding", m->dropout.embedding, error));
  if (!m->learned_positions) HRI_TRY(check_rope("rope", &m->rope, m->rotary_size, error));
  if (m->has_local_rope) HRI_TRY(check_rope("local_rope", &m->local_rope, m->rotary_size, error));
  return check_windows(m, error);
}

static hr_status check_tokens(const hr_model *m, hr_error *error) {
  const struct {
    const char *name;
    int32_t value;
  } tokens[] = {{"pad_token", m->pad_token}, {"bos_token", m->bos_token}, {"eos_token", m->eos_token}};
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
    if (tokens[i].value < -1 || tokens[i].value >= (int32_t)m->vocabulary_size)
      return hri_fail(error, HR_ERROR_USAGE, "%s is %d; it must be -1 (none) or an id below vocabulary_size (%u)",
                      tokens[i].name, tokens[i].value, m->vocabulary_size);
  return HR_OK;
}

/* ---- families ---- */

/* A model must stay expressible in the config.json of its family, else it could be trained but not saved. The field
 * that is not, or NULL. */
static const char *odd_field(const hr_model *m, const hr_model *want) {
  bool gpt2 = m->family == HR_FAMILY_GPT2, gemma = hri_family_in(m, HRI_GEMMA),
       granite = m->family == HR_FAMILY_GRANITE;
  double scale = 1.0 / sqrt((double)m->head_size),
         embedding = hri_family_in(m, HRI_ALL_GEMMA) ? sqrt((double)m->hidden_size) : 1;
  if (m->norm != want->norm) return "norm";
  if ((unsigned)m->activation >= HR_ACTIVATION_COUNT) return "activation";
  if (m->family == HR_FAMILY_GEMMA && m->activation == HR_ACTIVATION_GELU) return "activation"; /* config.c */
  if (m->gated_mlp != want->gated_mlp) return "gated_mlp";
  if (m->learned_positions != want->learned_positions) return "learned_positions";
  if (m->init_scale_residual != want->init_scale_residual) return "init_scale_residual";
  if (m->qk_norm != want->qk_norm) return "qk_norm";
  if (m->qk_norm_whole != want->qk_norm_whole) return "qk_norm_whole";
  if (m->post_norms != want->post_norms) return "post_norms";
  if (m->no_pre_norms != want->no_pre_norms) return "no_pre_norms";
  if (m->parallel_residual != want->parallel_residual && m->family != HR_FAMILY_STABLELM) return "parallel_residual";
  if (m->head_bias != want->head_bias) return "head_bias";
  if (m->norm_weight_offset != want->norm_weight_offset) return "norm_weight_offset";
  if (m->has_local_rope != want->has_local_rope) return "has_local_rope";
  if (gpt2 && m->kv_head_count != m->head_count) return "kv_head_count";
  if (gpt2 && (uint64_t)m->head_count * m->head_size != m->hidden_size) return "head_size";
  if (!granite && fabs(m->embedding_scale - embedding) > 1e-12 * embedding) return "embedding_scale";
  if (!granite && m->residual_scale != 1) return "residual_scale";
  if (!granite && m->logit_divisor != 1) return "logit_divisor";
  if (m->family != HR_FAMILY_GEMMA2 && m->attention_softcap != 0) return "attention_softcap";
  if (!gemma && m->logit_softcap != 0) return "logit_softcap";
  if (gemma && !(m->attention_scale >= 3e-5 && m->attention_scale <= 4e4))
    return "attention_scale"; /* query_pre_attn_scalar of 1e-9 to 1e9 */
  if (!gemma && !granite && fabs(m->attention_scale - scale) > 1e-12 && !(gpt2 && m->attention_scale == 1.0))
    return "attention_scale";
  if (!gpt2 && m->rotary_size != m->head_size && !hri_family_in(m, HRI_PARTIAL)) return "rotary_size";
  if (m->family == HR_FAMILY_STABLELM && (uint64_t)m->head_count * m->head_size != m->hidden_size) return "head_size";
  if (m->rope.scaling != HR_ROPE_DEFAULT && m->rope.scaling != HR_ROPE_LONGROPE && m->family == HR_FAMILY_PHI3)
    return "rope.scaling";
  if (gpt2 && m->pad_token != -1) return "pad_token";
  return NULL;
}

/* Biases: all (gpt2, phi), q, k and v (qwen2, a choice in stablelm), none, or by attention_bias and mlp_bias. */
static const char *odd_bias(const hr_model *m, const hr_model *want) {
  bool option = hri_family_in(m, HRI_BIASED);
  if (option && m->qkv_bias != m->attention_output_bias) return "qkv_bias";
  if (!option && m->qkv_bias != want->qkv_bias && m->family != HR_FAMILY_STABLELM) return "qkv_bias";
  if (!option && m->attention_output_bias != want->attention_output_bias) return "attention_output_bias";
  if (m->mlp_bias != want->mlp_bias && !hri_family_in(m, HRI_MLP_BIASED)) return "mlp_bias";
  return NULL;
}

/* Families with one kind of layer, and families without windows or with all layers rotated. */
static const char *odd_window(const hr_model *m) {
  for (uint32_t l = 0; l < HR_MAX_LAYERS; l++)
    if (m->no_rope[l] > 1 || (m->no_rope[l] && (m->family != HR_FAMILY_SMOLLM3 || l >= m->layer_count)))
      return "no_rope";
  if (hri_family_in(m, HRI_NO_WINDOWS)) return m->sliding_window ? "sliding_window" : NULL;
  for (uint32_t l = 1; l < m->layer_count && hri_family_in(m, HRI_FAMILY(MISTRAL) | HRI_FAMILY(PHI3)); l++)
    if (m->sliding[l] != m->sliding[0]) return "sliding";
  return NULL;
}

static hr_status check_family(const hr_model *m, hr_error *error) {
  hr_model want;
  const char *field;
  if ((unsigned)m->family >= HR_FAMILY_COUNT)
    return hri_fail(error, HR_ERROR_USAGE, "family is no known one (%s)", hri_family_list());
  hri_family_defaults(&want, m->family);
  field = odd_field(m, &want);
  if (!field) field = odd_bias(m, &want);
  if (!field) field = odd_window(m);
  if (!field) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "%s has a value that the family %s does not know", field, hr_family_name(m->family));
  return hri_hint(error, HR_ERROR_USAGE, "docs/models.md lists what each family can have");
}

hr_status hr_model_check(const hr_model *model, hr_error *error) {
  HRI_TRY(check_sizes(model, error));
  HRI_TRY(check_numbers(model, error));
  HRI_TRY(check_tokens(model, error));
  return check_family(model, error);
}
