/* Reading config.json.
 *
 * Every key that changes the mathematics is either taken over or refused by name; keys that change nothing
 * (architectures, use_cache, ...) are ignored. Both spellings are read: v4 (rope_theta + rope_scaling, torch_dtype) and
 * v5 (rope_parameters). Sizes have no defaults, but for those that published files of a family leave out.
 * Sources: transformers models/<family>/configuration_*.py, configuration_utils.py. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "model/bnb.h"
#include "model/config.h"
#include "model/params.h"
#include "model/skip.h"

/* ---- refusals ---- */

static void value_text(const json_t *value, char out[64]) {
  char cut[44];
  switch ((json_type)(value ? json_typeof(value) : JSON_NULL)) {
  case JSON_STRING:
    hri_model_set_text(cut, sizeof cut, json_string_value(value));
    (void)snprintf(out, 64, "\"%s\"%s", cut, strlen(cut) < json_string_length(value) ? "..." : "");
    break;
  case JSON_INTEGER: (void)snprintf(out, 64, "%lld", (long long)json_integer_value(value)); break;
  case JSON_REAL: (void)hri_snprintf(out, 64, "%g", json_real_value(value)); break;
  case JSON_TRUE: (void)snprintf(out, 64, "true"); break;
  case JSON_FALSE: (void)snprintf(out, 64, "false"); break;
  case JSON_OBJECT: (void)snprintf(out, 64, "an object"); break;
  case JSON_ARRAY: (void)snprintf(out, 64, "a list"); break;
  case JSON_NULL: (void)snprintf(out, 64, "null"); break;
  }
}

hr_status hri_config_unsupported(const hri_json *field, hr_error *error, const char *hint) {
  char found[64];
  value_text(field->value, found);
  hri_fail(error, HR_ERROR_INPUT, "%s: field %s is %s: not supported", field->file, field->path, found);
  return hri_hint(error, HR_ERROR_INPUT, "%s", hint);
}

/* Features of other models, and the value at which each changes nothing. A missing key changes nothing, nor does null,
 * but for is_causal. `known`: the families that read the key themselves. */
typedef enum neutral { NEUTRAL_NULL = 0, NEUTRAL_FALSE, NEUTRAL_TRUE, NEUTRAL_EMPTY } neutral;

static const struct {
  const char *key;
  neutral neutral;
  uint32_t known;
  const char *hint;
} features[] = {
    {"sliding_window", NEUTRAL_NULL,
     HRI_FAMILY(MISTRAL) | HRI_FAMILY(PHI3) | HRI_FAMILY(SMOLLM3) | HRI_QWEN | HRI_GEMMA,
     "attention of this family reaches back to the start of the document"},
    {"attn_logit_softcapping", NEUTRAL_NULL, HRI_FAMILY(GEMMA2),
     "attention scores of this family are not capped"}, /* gemma3: not in transformers either */
    {"final_logit_softcapping", NEUTRAL_NULL, HRI_GEMMA, "logits of this family are not capped"},
    {"attention_bias", NEUTRAL_FALSE, HRI_FAMILY(GPT2) | HRI_QWEN | HRI_BIASED,
     "attention of this family has no biases"},
    {"mlp_bias", NEUTRAL_FALSE, HRI_FAMILY(GPT2) | HRI_MLP_BIASED, "the MLP of this family has no biases"},
    {"qk_layernorm", NEUTRAL_FALSE, 0, "a layer norm of each head is not supported"},
    {"use_bidirectional_attention", NEUTRAL_FALSE, 0, "attention is causal here"},
    {"is_causal", NEUTRAL_TRUE, 0, "attention is causal here"},
    {"add_cross_attention", NEUTRAL_FALSE, 0, "only decoders without an encoder are supported"},
    {"is_encoder_decoder", NEUTRAL_FALSE, 0, "only decoders without an encoder are supported"},
    {"scale_attn_by_inverse_layer_idx", NEUTRAL_FALSE, 0, "attention has one scale for all layers here"},
    {"pruned_heads", NEUTRAL_EMPTY, 0, "all layers have the same heads here"},
    {"per_layer_config", NEUTRAL_EMPTY, 0, "all layers have the same sizes here"},
};

static bool is_neutral(const json_t *value, neutral kind) {
  if (!value || (json_is_null(value) && kind != NEUTRAL_TRUE)) return true;
  switch (kind) {
  case NEUTRAL_FALSE: return json_is_false(value);
  case NEUTRAL_TRUE: return json_is_true(value);
  case NEUTRAL_EMPTY: return json_is_object(value) && json_object_size(value) == 0;
  default: return false;
  }
}

static hr_status refuse_features(const hri_json *root, const hr_model *model, hr_error *error) {
  for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
    hri_json field = hri_json_member(root, features[i].key);
    if (hri_family_in(model, features[i].known) || is_neutral(field.value, features[i].neutral)) continue;
    return hri_config_unsupported(&field, error, features[i].hint);
  }
  return HR_OK;
}

/* ---- values ---- */

/* A size under its own key or under the name that transformers maps to it (attribute_map). */
typedef struct size_field {
  const char *key, *alias; /* alias: NULL when there is none */
  size_t offset;
  uint32_t max;
  uint32_t
      missing; /* the value of a missing key; REQUIRED: there is none; 0: derived from others. null is 0 or refused */
} size_field;

#define AT(field) offsetof(hr_model, field)
#define REQUIRED UINT32_MAX

static const size_field gpt2_sizes[] = {
    {"vocab_size", NULL, AT(vocabulary_size), HRI_MODEL_MAX_VOCABULARY, REQUIRED},
    {"n_layer", "num_hidden_layers", AT(layer_count), HRI_MODEL_MAX_LAYERS, REQUIRED},
    {"n_embd", "hidden_size", AT(hidden_size), HRI_MODEL_MAX_HIDDEN, REQUIRED},
    {"n_head", "num_attention_heads", AT(head_count), HRI_MODEL_MAX_HEADS, REQUIRED},
    {"n_positions", "max_position_embeddings", AT(max_positions), HRI_MODEL_MAX_POSITIONS, REQUIRED},
    {"n_inner", NULL, AT(mlp_size), HRI_MODEL_MAX_MLP, 0},
    {NULL, NULL, 0, 0, 0},
};

/* What the other families share, given what a missing number of key heads, head size, heads, vocabulary and positions
 * mean. */
#define ROPE_SIZES(kv_heads, head_dim, heads, vocabulary, positions)                                                   \
  {                                                                                                                    \
      {"vocab_size", NULL, AT(vocabulary_size), HRI_MODEL_MAX_VOCABULARY, vocabulary},                                 \
      {"num_hidden_layers", NULL, AT(layer_count), HRI_MODEL_MAX_LAYERS, REQUIRED},                                    \
      {"hidden_size", NULL, AT(hidden_size), HRI_MODEL_MAX_HIDDEN, REQUIRED},                                          \
      {"intermediate_size", NULL, AT(mlp_size), HRI_MODEL_MAX_MLP, REQUIRED},                                          \
      {"num_attention_heads", NULL, AT(head_count), HRI_MODEL_MAX_HEADS, heads},                                       \
      {"num_key_value_heads", NULL, AT(kv_head_count), HRI_MODEL_MAX_HEADS, kv_heads},                                 \
      {"head_dim", NULL, AT(head_size), HRI_MODEL_MAX_HEAD_SIZE, head_dim},                                            \
      {"max_position_embeddings", NULL, AT(max_positions), HRI_MODEL_MAX_POSITIONS, positions},                        \
      {NULL, NULL, 0, 0, 0},                                                                                           \
  }

static const size_field llama_sizes[] = ROPE_SIZES(0, 0, REQUIRED, REQUIRED, REQUIRED), /* most others too */
    mistral_sizes[] = ROPE_SIZES(8, 0, REQUIRED, REQUIRED, REQUIRED),
                        qwen2_sizes[] = ROPE_SIZES(32, 0, REQUIRED, REQUIRED, REQUIRED),
                        qwen3_sizes[] = ROPE_SIZES(32, 128, REQUIRED, REQUIRED, REQUIRED),
                        gemma2_sizes[] = ROPE_SIZES(4, 256, REQUIRED, REQUIRED, REQUIRED),
                        gemma3_sizes[] = ROPE_SIZES(4, 256, 8, 262208, 131072), /* multimodal files leave these out */
    gemma_sizes[] = ROPE_SIZES(16, 256, REQUIRED, REQUIRED, REQUIRED),
                        smollm3_sizes[] = ROPE_SIZES(4, 0, REQUIRED, REQUIRED, REQUIRED);

static const size_field *const sizes[HR_FAMILY_COUNT] =
    {[HR_FAMILY_GPT2] = gpt2_sizes,       [HR_FAMILY_LLAMA] = llama_sizes,   [HR_FAMILY_MISTRAL] = mistral_sizes,
     [HR_FAMILY_QWEN2] = qwen2_sizes,     [HR_FAMILY_QWEN3] = qwen3_sizes,   [HR_FAMILY_PHI3] = llama_sizes,
     [HR_FAMILY_GEMMA2] = gemma2_sizes,   [HR_FAMILY_GEMMA3] = gemma3_sizes, [HR_FAMILY_GEMMA] = gemma_sizes,
     [HR_FAMILY_SMOLLM3] = smollm3_sizes, [HR_FAMILY_GRANITE] = llama_sizes, [HR_FAMILY_OLMO2] = llama_sizes,
     [HR_FAMILY_STABLELM] = qwen2_sizes,  [HR_FAMILY_PHI] = llama_sizes};

static hr_status read_sizes(const hri_json *root, hr_model *model, hr_error *error) {
  for (const size_field *f = sizes[model->family]; f->key; f++) {
    const char *key = f->alias && !hri_json_has(root, f->key) && hri_json_has(root, f->alias) ? f->alias : f->key;
    bool missing = !json_object_get(root->value, key);
    uint64_t value = missing && f->missing != REQUIRED ? f->missing : 0;
    uint32_t narrow;
    if (f->missing == REQUIRED) HRI_TRY(hri_json_get_u64(root, key, 1, f->max, &value, error));
    else HRI_TRY(hri_json_opt_u64(root, key, 1, f->max, &value, error));
    narrow = (uint32_t)value;
    memcpy((char *)model + f->offset, &narrow, sizeof narrow);
  }
  return HR_OK;
}

hr_status hri_config_number(const hri_json *root, const char *key, double low, double high, bool closed, double *value,
                            hr_error *error) {
  double found = *value;
  hri_json field;
  if (!hri_json_has(root, key)) return HR_OK;
  HRI_TRY(hri_json_get_double(root, key, &found, error));
  if (found <= high && (closed ? found >= low : found > low)) {
    *value = found;
    return HR_OK;
  }
  field = hri_json_member(root, key);
  return hri_json_fail(&field, error, closed ? "a number from %g to %g" : "a number above %g, at most %g", low, high);
}

/* A number that null switches off (0); a missing key keeps the family's. */
static hr_status read_switch(const hri_json *root, const char *key, double *value, hr_error *error) {
  json_t *found = json_object_get(root->value, key);
  if (found && json_is_null(found)) *value = 0;
  return hri_config_number(root, key, 0, 1e9, false, value, error);
}

/* Probabilities by place; a key that is NULL or missing keeps what stands there. */
static hr_status read_dropout(const hri_json *root, const char *attention, const char *residual, const char *embedding,
                              hr_dropout *dropout, hr_error *error) {
  HRI_TRY(hri_config_number(root, attention, 0, 1, true, &dropout->attention, error));
  if (residual) HRI_TRY(hri_config_number(root, residual, 0, 1, true, &dropout->residual, error));
  return embedding ? hri_config_number(root, embedding, 0, 1, true, &dropout->embedding, error) : HR_OK;
}

/* An id, or the first of a list. null: none. Ids outside of the vocabulary are none as well: the family's defaults mean
 * nothing to a small vocabulary, and transformers only warns about written ones. */
static hr_status read_token(const hri_json *root, const char *key, const hr_model *model, int32_t *token,
                            hr_error *error) {
  hri_json field = hri_json_member(root, key);
  json_int_t value = *token;
  if (json_is_array(field.value)) {
    if (hri_json_count(&field) == 0) field.value = json_null();
    else field = hri_json_item(&field, 0);
  }
  if (field.value && json_is_null(field.value)) value = -1;
  else if (field.value && !json_is_integer(field.value))
    return hri_json_fail(&field, error, "a token id, a list of them, or null");
  else if (field.value) value = json_integer_value(field.value);
  *token = value < 0 || value >= (json_int_t)model->vocabulary_size ? -1 : (int32_t)value;
  return HR_OK;
}

/* pad_token_id is the padding_idx of the embedding, so unlike the other ids a written one must exist. -1 stands for
 * none, as in many published configs. (torch would count it from the end and freeze the last row, which nobody
 * means.) */
static hr_status read_pad(const hri_json *root, hr_model *model, hr_error *error) {
  json_t *found = json_object_get(root->value, "pad_token_id");
  int64_t pad = found || model->pad_token >= (int32_t)model->vocabulary_size ? -1 : model->pad_token;
  HRI_TRY(hri_json_opt_i64(root, "pad_token_id", -1, (int64_t)model->vocabulary_size - 1, &pad, error));
  model->pad_token = (int32_t)pad;
  return HR_OK;
}

/* ---- windows ---- */

/* layer_types, where the family has a choice; where it has none the file may only repeat what the family does. */
static hr_status read_layer_types(const hri_json *root, hr_model *model, hr_error *error) {
  hri_json list = hri_json_member(root, "layer_types");
  bool choice = hri_family_in(model, HRI_QWEN | HRI_GEMMA | HRI_FAMILY(SMOLLM3));
  if (!hri_json_has(root, "layer_types")) return HR_OK;
  HRI_TRY(hri_json_get_array(root, "layer_types", &list, error));
  if (hri_json_count(&list) != model->layer_count)
    return hri_json_fail(&list, error, "a list of %u names, one for each layer", model->layer_count);
  for (uint32_t l = 0; l < model->layer_count; l++) {
    hri_json item = hri_json_item(&list, l);
    const char *kind = json_is_string(item.value) ? json_string_value(item.value) : "";
    bool slides = strcmp(kind, "sliding_attention") == 0;
    if (!slides && strcmp(kind, "full_attention") != 0)
      return hri_config_unsupported(&item, error, "full_attention and sliding_attention are supported");
    if (!choice && slides != (model->sliding_window > 0 && model->sliding[l]))
      return hri_config_unsupported(&item, error,
                                    "layers of this family are all alike, and have a window if sliding_window is set");
    model->sliding[l] = slides;
  }
  return HR_OK;
}

/* sliding_window, and which layers it holds for. */
static hr_status read_windows(const hri_json *root, hr_model *model, hr_error *error) {
  hri_json field = hri_json_member(root, "sliding_window");
  bool used = !hri_family_in(model, HRI_QWEN | HRI_FAMILY(SMOLLM3)), any = false;
  uint64_t window = hri_family_in(model, HRI_QWEN) ? 4096 /* Qwen2Config, Qwen3Config */ : model->sliding_window,
           first = HRI_WINDOW_FIRST, pattern = HRI_WINDOW_PATTERN;
  if (field.value && json_is_null(field.value)) window = 0;
  if (!used) HRI_TRY(hri_json_opt_bool(root, "use_sliding_window", &used, error));
  HRI_TRY(hri_json_opt_u64(root, "sliding_window", 1, HRI_MODEL_MAX_POSITIONS, &window, error));
  HRI_TRY(hri_json_opt_u64(root, "max_window_layers", 0, INT32_MAX, &first, error));
  HRI_TRY(hri_json_opt_u64(root, "sliding_window_pattern", 1, INT32_MAX, &pattern, error));
  model->sliding_window = used ? (uint32_t)window : 0;
  hri_family_windows(model, first, pattern);
  HRI_TRY(read_layer_types(root, model, error));
  for (uint32_t l = 0; l < model->layer_count; l++) any = any || model->sliding[l];
  if (any && model->sliding_window == 0)
    return hri_json_fail(&field, error, "a number of tokens, as there are layers of sliding attention");
  if (!any) model->sliding_window = 0;
  return HR_OK;
}

/* no_rope_layers says of each layer whether it is rotated (1, despite the name); else each no_rope_layer_interval-th is
 * not (configuration_smollm3.py). */
static hr_status read_rope_layers(const hri_json *root, hr_model *model, hr_error *error) {
  uint64_t interval = HRI_ROPE_INTERVAL;
  hri_json list;
  HRI_TRY(hri_json_opt_u64(root, "no_rope_layer_interval", 1, INT32_MAX, &interval, error));
  hri_family_rope_layers(model, interval);
  if (!hri_json_has(root, "no_rope_layers")) return HR_OK;
  HRI_TRY(hri_json_get_array(root, "no_rope_layers", &list, error));
  if (hri_json_count(&list) < model->layer_count)
    return hri_json_fail(&list, error, "a list of at least %u numbers, one for each layer", model->layer_count);
  for (uint32_t l = 0; l < model->layer_count; l++) {
    hri_json item = hri_json_item(&list, l);
    json_int_t rotated = json_is_integer(item.value) ? json_integer_value(item.value) : -1;
    if (rotated != 0 && rotated != 1) return hri_json_fail(&item, error, "1 where the layer is rotated, 0 where not");
    model->no_rope[l] = rotated == 0;
  }
  return HR_OK;
}

/* ---- families ---- */

/* The words for activations, as transformers names them (activations.py). */
static const struct {
  const char *name;
  hr_activation kind;
} activations[] = {{"silu", HR_ACTIVATION_SILU},
                   {"swish", HR_ACTIVATION_SILU},
                   {"gelu_pytorch_tanh", HR_ACTIVATION_GELU_TANH},
                   {"gelu_new", HR_ACTIVATION_GELU_TANH},
                   {"gelu", HR_ACTIVATION_GELU},
                   {"relu", HR_ACTIVATION_RELU}};

/* The first gemma's files say "gelu" and mean the form by a tanh, with which they were trained (configuration_gemma.py). */
static hr_status read_activation(const hri_json *root, const char *key, hr_model *model, hr_error *error) {
  hri_json field = hri_json_member(root, key);
  const char *name = NULL;
  HRI_TRY(hri_json_opt_string(root, key, &name, error));
  if (!name) return HR_OK;
  if (model->family == HR_FAMILY_GEMMA && strcmp(name, "gelu") == 0) name = "gelu_pytorch_tanh";
  for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
    if (strcmp(name, activations[i].name) == 0) {
      model->activation = activations[i].kind;
      return HR_OK;
    }
  return hri_config_unsupported(&field, error, "silu, gelu, gelu_new, gelu_pytorch_tanh and relu are supported");
}

static hr_status not_a_multiple(const hri_json *root, const char *key, const char *of, uint32_t divisor,
                                hr_error *error) {
  hri_json field = hri_json_member(root, key);
  return hri_json_fail(&field, error, "a multiple of %s (%u)", of, divisor);
}

static hr_status read_gpt2(const hri_json *root, hr_model *model, hr_error *error) {
  bool scaled = true;
  HRI_TRY(read_sizes(root, model, error));
  HRI_TRY(read_activation(root, "activation_function", model, error));
  HRI_TRY(hri_config_number(root, "layer_norm_epsilon", 0, 0.5, false, &model->norm_epsilon, error));
  HRI_TRY(read_dropout(root, "attn_pdrop", "resid_pdrop", "embd_pdrop", &model->dropout, error));
  HRI_TRY(hri_json_opt_bool(root, "scale_attn_weights", &scaled, error));
  if (model->hidden_size % model->head_count != 0)
    return not_a_multiple(root, hri_json_has(root, "n_embd") ? "n_embd" : "hidden_size", "the heads", model->head_count,
                          error);
  if (model->mlp_size == 0) model->mlp_size = 4 * model->hidden_size; /* n_inner null */
  hri_family_derive(model);
  if (!scaled) model->attention_scale = 1;
  model->pad_token = -1; /* its embedding has no padding_idx */
  return read_layer_types(root, model, error);
}

static hr_status check_heads(const hri_json *root, hr_model *model, hr_error *error) {
  hri_json head_dim = hri_json_member(root, "head_dim");
  if (model->kv_head_count && model->head_count % model->kv_head_count != 0)
    return not_a_multiple(root, "num_attention_heads", "num_key_value_heads", model->kv_head_count, error);
  if (model->head_size == 0 && model->hidden_size % model->head_count != 0)
    return not_a_multiple(root, "hidden_size", "num_attention_heads, as head_dim is not given", model->head_count,
                          error);
  hri_family_derive(model);
  if (model->head_size % 2 == 0 || hri_family_in(model, HRI_PARTIAL)) return HR_OK;
  return json_is_integer(head_dim.value)
             ? hri_json_fail(&head_dim, error, "even: rotary positions rotate pairs")
             : not_a_multiple(root, "hidden_size", "2 * num_attention_heads", 2 * model->head_count, error);
}

/* gemma's own: tanh on scores and logits, and a scale that does not follow from the head size. */
static hr_status read_gemma(const hri_json *root, hr_model *model, hr_error *error) {
  double scalar = 256;
  HRI_TRY(read_switch(root, "attn_logit_softcapping", &model->attention_softcap, error));
  HRI_TRY(read_switch(root, "final_logit_softcapping", &model->logit_softcap, error));
  HRI_TRY(hri_config_number(root, "query_pre_attn_scalar", 1e-9, 1e9, false, &scalar, error));
  model->attention_scale = pow(scalar, -0.5);
  return HR_OK;
}

/* granite's factors; without keys they are 1, that of scores too (configuration_granite.py). */
static hr_status read_factors(const hri_json *root, hr_model *model, hr_error *error) {
  model->attention_scale = 1;
  HRI_TRY(hri_config_number(root, "attention_multiplier", 0, 1e9, false, &model->attention_scale, error));
  HRI_TRY(hri_config_number(root, "embedding_multiplier", 0, 1e9, false, &model->embedding_scale, error));
  HRI_TRY(hri_config_number(root, "residual_multiplier", 0, 1e9, false, &model->residual_scale, error));
  return hri_config_number(root, "logits_scaling", 0, 1e9, false, &model->logit_divisor, error);
}

/* What is a choice in some families: biases, what attention and MLP read, which layers are rotated. */
static hr_status read_choices(const hri_json *root, hr_model *model, hr_error *error) {
  bool biases = false;
  if (hri_family_in(model, HRI_BIASED)) {
    HRI_TRY(hri_json_opt_bool(root, "attention_bias", &biases, error));
    model->qkv_bias = model->attention_output_bias = biases;
  }
  if (hri_family_in(model, HRI_MLP_BIASED)) HRI_TRY(hri_json_opt_bool(root, "mlp_bias", &model->mlp_bias, error));
  if (model->family == HR_FAMILY_STABLELM) {
    HRI_TRY(hri_json_opt_bool(root, "use_qkv_bias", &model->qkv_bias, error));
    HRI_TRY(hri_json_opt_bool(root, "use_parallel_residual", &model->parallel_residual, error));
  }
  if (model->family == HR_FAMILY_SMOLLM3) HRI_TRY(read_rope_layers(root, model, error));
  if (model->family == HR_FAMILY_GRANITE) HRI_TRY(read_factors(root, model, error));
  return hri_family_in(model, HRI_GEMMA) ? read_gemma(root, model, error) : HR_OK;
}

/* All families with rotary positions. */
static hr_status read_rotary(const hri_json *root, hr_model *model, hr_error *error) {
  bool gemma = hri_family_in(model, HRI_GEMMA), residual = hri_family_drops_residual(model->family),
       stablelm = model->family == HR_FAMILY_STABLELM;
  HRI_TRY(read_sizes(root, model, error));
  HRI_TRY(read_activation(root, gemma ? "hidden_activation" : "hidden_act", model, error));
  HRI_TRY(hri_config_number(root, model->norm == HR_NORM_RMS ? "rms_norm_eps" : "layer_norm_eps", 0, 0.5, false,
                            &model->norm_epsilon, error));
  HRI_TRY(read_dropout(root, "attention_dropout",
                       residual   ? "resid_pdrop"
                       : stablelm ? "hidden_dropout"
                                  : NULL,
                       residual ? "embd_pdrop" : NULL, &model->dropout, error));
  HRI_TRY(read_choices(root, model, error));
  HRI_TRY(check_heads(root, model, error));
  HRI_TRY(hri_config_rope(root, model, error));
  if (hri_family_in(model, HRI_NO_WINDOWS)) HRI_TRY(read_layer_types(root, model, error));
  else HRI_TRY(read_windows(root, model, error));
  return read_pad(root, model, error);
}

static hr_status read_family(const hri_json *root, hr_family *family, hr_error *error) {
  hri_json field = hri_json_member(root, "model_type");
  const char *type;
  char hint[192];
  if (!json_is_object(root->value)) return hri_json_fail(root, error, "an object");
  HRI_TRY(hri_json_get_string(root, "model_type", &type, error));
  if (hri_family_find(type, family)) return HR_OK;
  (void)snprintf(hint, sizeof hint, "known families: %s", hri_family_list());
  return hri_config_unsupported(&field, error, hint);
}

/* Files of multimodal gemma3 hold the language model's part in text_config; *text is that, else the file itself. */
static hr_status find_text(const hri_json *file, hri_json *text, hr_error *error) {
  hri_json type = hri_json_member(file, "model_type");
  *text = *file;
  if (!json_is_string(type.value) || strcmp(json_string_value(type.value), "gemma3") != 0) return HR_OK;
  HRI_TRY(hri_json_get_object(file, "text_config", text, error));
  type = hri_json_member(text, "model_type");
  if (!type.value || (json_is_string(type.value) && strcmp(json_string_value(type.value), "gemma3_text") == 0))
    return HR_OK;
  return hri_config_unsupported(&type, error, "the text part of a gemma3 model is gemma3_text");
}

/* ---- weights ---- */

/* Under either name, and in v4 as torch prints it too. */
static bool is_bfloat16(const hri_json *root) {
  static const char *const keys[] = {"dtype", "torch_dtype"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const char *value = json_string_value(json_object_get(root->value, keys[i]));
    if (value) return strcmp(value, "bfloat16") == 0 || strcmp(value, "torch.bfloat16") == 0;
  }
  return false;
}

/* What one entry of the list leaves out, of all layers. */
static hr_status leave_out(const hri_json *item, hr_model *model, hr_error *error) {
  hri_skip *skip;
  HRI_TRY(hri_skip_open(item, &skip, error));
  for (uint32_t l = 0; l < model->layer_count; l++)
    for (int k = 0; k < HR_MODULE_COUNT; k++) {
      char name[96];
      if (hri_module_name(model, (hr_module)k, (int32_t)l, name) && hri_skip_matches(skip, name))
        model->plain[l] |= (uint8_t)(1u << k);
    }
  hri_skip_close(skip);
  return HR_OK;
}

/* Modules of one matrix here are all quantized or none. */
static hr_status check_alike(const hri_json *skipped, const hr_model *model, uint32_t layer, hr_error *error) {
  char out[96], in[96];
  for (int a = 0; a < HR_MODULE_COUNT; a++)
    for (int b = 0; b < HR_MODULE_COUNT; b++) {
      if (hri_module_slot((hr_module)a, NULL) != hri_module_slot((hr_module)b, NULL)) continue;
      if (!(model->plain[layer] >> a & 1) || (model->plain[layer] >> b & 1)) continue;
      if (!hri_module_name(model, (hr_module)a, (int32_t)layer, out) ||
          !hri_module_name(model, (hr_module)b, (int32_t)layer, in))
        continue;
      hri_fail(error, HR_ERROR_INPUT, "%s: field %s leaves out %s and not %s: not supported", skipped->file,
               skipped->path, out, in);
      return hri_hint(error, HR_ERROR_INPUT, "they are one matrix here: leave both out, or neither");
    }
  return HR_OK;
}

static hr_status read_quantization(const hri_json *root, hr_model *model, hr_error *error) {
  uint32_t kind;
  hri_json config, skipped;
  HRI_TRY(hri_bnb_config_read(root, &kind, error));
  if (kind == HRI_QUANTIZATION_NONE) return HR_OK;
  model->quantization = (hr_quantize)kind;
  config = hri_json_member(root, "quantization_config");
  if (!hri_json_has(&config, "llm_int8_skip_modules")) return HR_OK;
  HRI_TRY(hri_json_get_array(&config, "llm_int8_skip_modules", &skipped, error));
  for (uint64_t k = 0; k < hri_json_count(&skipped); k++) {
    hri_json item = hri_json_item(&skipped, k);
    HRI_TRY(leave_out(&item, model, error));
  }
  for (uint32_t l = 0; l < model->layer_count; l++) HRI_TRY(check_alike(&skipped, model, l, error));
  return HR_OK;
}

static hr_status read_model(const hri_json *file, hr_model *model, hr_error *error) {
  hr_family family = HR_FAMILY_GEMMA3;
  hri_json root;
  hr_status status;
  if (!json_is_object(file->value)) return hri_json_fail(file, error, "an object");
  HRI_TRY(find_text(file, &root, error));
  if (root.value == file->value) HRI_TRY(read_family(&root, &family, error));
  hri_family_defaults(model, family);
  HRI_TRY(refuse_features(file, model, error));
  HRI_TRY(refuse_features(&root, model, error));
  HRI_TRY(family == HR_FAMILY_GPT2 ? read_gpt2(&root, model, error) : read_rotary(&root, model, error));
  HRI_TRY(hri_json_opt_bool(&root, "tie_word_embeddings", &model->tied_embeddings, error));
  if (root.value != file->value)
    HRI_TRY(hri_json_opt_bool(file, "tie_word_embeddings", &model->tied_embeddings, error));
  HRI_TRY(hri_config_number(&root, "initializer_range", 0, 1e3, true, &model->init_std, error));
  HRI_TRY(read_token(&root, "bos_token_id", model, &model->bos_token, error));
  HRI_TRY(read_token(&root, "eos_token_id", model, &model->eos_token, error));
  model->bfloat16 = is_bfloat16(&root) || is_bfloat16(file);
  HRI_TRY(read_quantization(hri_json_has(file, "quantization_config") ? file : &root, model, error));
  status = hr_model_check(model, error); /* what concerns several fields at once */
  if (status == HR_OK) return HR_OK;
  hri_context(error, status, "%s: ", file->file);
  if (error) error->code = HR_ERROR_INPUT;
  return HR_ERROR_INPUT;
}

/* A file is called config.json everywhere, so the model takes the name of its directory, if the path shows one. */
static void name_model(const char *file, hr_model *model) {
  const char *slash = strrchr(file, '/'), *begin = slash;
  char parent[sizeof model->name];
  size_t length;
  hri_model_set_text(model->name, sizeof model->name, slash ? slash + 1 : file);
  if (!slash || strcmp(slash + 1, "config.json") != 0) return;
  while (begin > file && begin[-1] != '/') begin--;
  length = (size_t)(slash - begin);
  if (length == 0 || length >= sizeof parent || *begin == '.') return;
  memcpy(parent, begin, length);
  parent[length] = 0;
  hri_model_set_text(model->name, sizeof model->name, parent);
}

hr_status hr_model_parse(const char *text, uint64_t bytes, const char *file, hr_model *model, hr_error *error) {
  hri_json root = {0};
  hr_model made;
  hr_status status;
  HRI_TRY(hri_json_parse_file(text, bytes, file, &root, error));
  status = read_model(&root, &made, error);
  hri_json_deinit(&root);
  if (status != HR_OK) return status;
  name_model(file, &made);
  *model = made;
  return HR_OK;
}
