/* config.json in both directions.
 *
 * Reading: every key that changes the mathematics is either taken over or refused by name; keys that change nothing
 * (architectures, use_cache, ...) are ignored. Both spellings are read: v4 (rope_theta + rope_scaling, torch_dtype) and v5
 * (rope_parameters). Sizes have no defaults: a file without them is not a model's.
 * Sources: transformers models/{gpt2,llama}/configuration_*.py, modeling_rope_utils.py, configuration_utils.py. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "model/family.h"

/* ---- reading: refusals ---- */

static void value_text(const json_t *value, char out[64]) {
  char cut[44];
  switch (value ? json_typeof(value) : JSON_NULL) {
  case JSON_STRING:
    hri_model_set_text(cut, sizeof cut, json_string_value(value));
    (void)snprintf(out, 64, "\"%s\"%s", cut, strlen(cut) < json_string_length(value) ? "..." : "");
    break;
  case JSON_INTEGER: (void)snprintf(out, 64, "%lld", (long long)json_integer_value(value)); break;
  case JSON_REAL: (void)snprintf(out, 64, "%g", json_real_value(value)); break;
  case JSON_TRUE: (void)snprintf(out, 64, "true"); break;
  case JSON_FALSE: (void)snprintf(out, 64, "false"); break;
  case JSON_OBJECT: (void)snprintf(out, 64, "an object"); break;
  case JSON_ARRAY: (void)snprintf(out, 64, "a list"); break;
  case JSON_NULL: (void)snprintf(out, 64, "null"); break;
  }
}

/* "config.json: field rope_scaling.rope_type is "yarn": not supported" */
static hr_status unsupported(const hri_json *field, hr_error *error, const char *hint) {
  char found[64];
  value_text(field->value, found);
  hri_fail(error, HR_ERROR_INPUT, "%s: field %s is %s: not supported", field->file, field->path, found);
  return hri_hint(error, HR_ERROR_INPUT, "%s", hint);
}

/* Features of other models, and the value at which each changes nothing (null and a missing key always do). */
typedef enum neutral { NEUTRAL_NULL = 0, NEUTRAL_FALSE, NEUTRAL_ONE, NEUTRAL_EMPTY } neutral;

static const struct {
  const char *key;
  neutral neutral;
  const char *hint;
} features[] = {
    {"quantization_config", NEUTRAL_NULL, "use the unquantized model"},
    {"sliding_window", NEUTRAL_NULL, "attention here reaches back to the start of the document"},
    {"attn_logit_softcapping", NEUTRAL_NULL, "attention scores are not capped here"},
    {"final_logit_softcapping", NEUTRAL_NULL, "logits are not capped here"},
    {"partial_rotary_factor", NEUTRAL_ONE, "all of a head is rotated here"},
    {"add_cross_attention", NEUTRAL_FALSE, "only decoders without an encoder are supported"},
    {"is_encoder_decoder", NEUTRAL_FALSE, "only decoders without an encoder are supported"},
    {"scale_attn_by_inverse_layer_idx", NEUTRAL_FALSE, "attention has one scale for all layers here"},
    {"pruned_heads", NEUTRAL_EMPTY, "all layers have the same heads here"},
};

static bool is_neutral(const json_t *value, neutral kind) {
  if (!value || json_is_null(value)) return true;
  switch (kind) {
  case NEUTRAL_FALSE: return json_is_false(value);
  case NEUTRAL_ONE: return json_is_number(value) && json_number_value(value) == 1.0;
  case NEUTRAL_EMPTY: return json_is_object(value) && json_object_size(value) == 0;
  default: return false;
  }
}

static hr_status refuse_features(const hri_json *root, hr_error *error) {
  hri_json layers = hri_json_member(root, "layer_types");
  for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
    hri_json field = hri_json_member(root, features[i].key);
    if (!is_neutral(field.value, features[i].neutral)) return unsupported(&field, error, features[i].hint);
  }
  for (uint64_t i = 0; i < hri_json_count(&layers); i++) {
    hri_json layer = hri_json_item(&layers, i);
    if (!json_is_string(layer.value) || strcmp(json_string_value(layer.value), "full_attention") != 0)
      return unsupported(&layer, error, "only full_attention layers are supported");
  }
  return HR_OK;
}

/* ---- reading: values ---- */

/* A size under its own key or under the name that transformers maps to it (attribute_map). */
typedef struct size_field {
  const char *key, *alias; /* alias: NULL when there is none */
  size_t offset;
  uint32_t max;
  bool required;
} size_field;

#define AT(field) offsetof(hr_model, field)

static const size_field gpt2_sizes[] = {
    {"vocab_size", NULL, AT(vocabulary_size), HRI_MODEL_MAX_VOCABULARY, true},
    {"n_layer", "num_hidden_layers", AT(layer_count), HRI_MODEL_MAX_LAYERS, true},
    {"n_embd", "hidden_size", AT(hidden_size), HRI_MODEL_MAX_HIDDEN, true},
    {"n_head", "num_attention_heads", AT(head_count), HRI_MODEL_MAX_HEADS, true},
    {"n_positions", "max_position_embeddings", AT(max_positions), HRI_MODEL_MAX_POSITIONS, true},
    {"n_inner", NULL, AT(mlp_size), HRI_MODEL_MAX_MLP, false},
    {NULL, NULL, 0, 0, false},
};

static const size_field llama_sizes[] = {
    {"vocab_size", NULL, AT(vocabulary_size), HRI_MODEL_MAX_VOCABULARY, true},
    {"num_hidden_layers", NULL, AT(layer_count), HRI_MODEL_MAX_LAYERS, true},
    {"hidden_size", NULL, AT(hidden_size), HRI_MODEL_MAX_HIDDEN, true},
    {"intermediate_size", NULL, AT(mlp_size), HRI_MODEL_MAX_MLP, true},
    {"num_attention_heads", NULL, AT(head_count), HRI_MODEL_MAX_HEADS, true},
    {"num_key_value_heads", NULL, AT(kv_head_count), HRI_MODEL_MAX_HEADS, false},
    {"head_dim", NULL, AT(head_size), HRI_MODEL_MAX_HEAD_SIZE, false},
    {"max_position_embeddings", NULL, AT(max_positions), HRI_MODEL_MAX_POSITIONS, true},
    {NULL, NULL, 0, 0, false},
};

static hr_status read_sizes(const hri_json *root, const size_field *fields, hr_model *model, hr_error *error) {
  for (; fields->key; fields++) {
    const char *key = fields->alias && !hri_json_has(root, fields->key) && hri_json_has(root, fields->alias) ? fields->alias : fields->key;
    uint64_t value = 0;
    uint32_t narrow;
    if (fields->required)
      HRI_TRY(hri_json_get_u64(root, key, 1, fields->max, &value, error));
    else
      HRI_TRY(hri_json_opt_u64(root, key, 1, fields->max, &value, error));
    narrow = (uint32_t)value;
    memcpy((char *)model + fields->offset, &narrow, sizeof narrow);
  }
  return HR_OK;
}

/* A finite number in (low, high], or in [low, high] when `closed`; the default stays when the key is missing. */
static hr_status read_number(const hri_json *root, const char *key, double low, double high, bool closed, double *value, hr_error *error) {
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

/* A probability; model->dropout is the largest of those that the config asks for. */
static hr_status read_dropout(const hri_json *root, const char *const *keys, double missing, hr_model *model, hr_error *error) {
  model->dropout = 0;
  for (; *keys; keys++) {
    double value = missing;
    HRI_TRY(read_number(root, *keys, 0, 1, true, &value, error));
    model->dropout = fmax(model->dropout, value);
  }
  return HR_OK;
}

/* An id, or the first of a list. null: none. Ids outside of the vocabulary are none as well: the family's defaults mean
 * nothing to a small vocabulary, and transformers only warns about written ones. */
static hr_status read_token(const hri_json *root, const char *key, const hr_model *model, int32_t *token, hr_error *error) {
  hri_json field = hri_json_member(root, key);
  json_int_t value = *token;
  if (json_is_array(field.value)) {
    if (hri_json_count(&field) == 0) field.value = json_null();
    else field = hri_json_item(&field, 0);
  }
  if (field.value && json_is_null(field.value)) value = -1;
  else if (field.value && !json_is_integer(field.value)) return hri_json_fail(&field, error, "a token id, a list of them, or null");
  else if (field.value) value = json_integer_value(field.value);
  *token = value < 0 || value >= (json_int_t)model->vocabulary_size ? -1 : (int32_t)value;
  return HR_OK;
}

/* pad_token_id is the padding_idx of llama's embedding, so unlike the other ids it must exist. -1 stands for none, as in
 * many published configs. (torch would count it from the end and freeze the last row, which nobody means.) */
static hr_status read_pad(const hri_json *root, hr_model *model, hr_error *error) {
  int64_t pad = -1;
  HRI_TRY(hri_json_opt_i64(root, "pad_token_id", -1, (int64_t)model->vocabulary_size - 1, &pad, error));
  model->pad_token = (int32_t)pad;
  return HR_OK;
}

/* ---- reading: rotary positions ---- */

static hr_status read_llama3(const hri_json *dict, hr_rope *rope, hr_error *error) {
  uint64_t original = 0;
  hri_json high = hri_json_member(dict, "high_freq_factor"), low = hri_json_member(dict, "low_freq_factor");
  if (!hri_json_has(dict, "low_freq_factor")) return hri_json_fail(&low, error, "a positive number");
  if (!hri_json_has(dict, "high_freq_factor")) return hri_json_fail(&high, error, "a number above low_freq_factor");
  HRI_TRY(read_number(dict, "low_freq_factor", 0, 1e9, false, &rope->low_frequency_factor, error));
  HRI_TRY(read_number(dict, "high_freq_factor", rope->low_frequency_factor, 1e9, false, &rope->high_frequency_factor, error));
  HRI_TRY(hri_json_get_u64(dict, "original_max_position_embeddings", 1, HRI_MODEL_MAX_POSITIONS, &original, error));
  rope->original_max_positions = (uint32_t)original;
  return HR_OK;
}

/* rope_scaling (v4) or rope_parameters (v5, which may hold rope_theta too). */
static hr_status read_rope_dict(const hri_json *dict, hr_rope *rope, hr_error *error) {
  const char *key = hri_json_has(dict, "rope_type") ? "rope_type" : "type", *type = "default";
  hri_json field, partial = hri_json_member(dict, "partial_rotary_factor"), factor = hri_json_member(dict, "factor");
  const char *name;
  json_t *member;
  json_object_foreach(dict->value, name, member) {
    if (!json_is_object(member)) continue;
    field = hri_json_member(dict, name);
    return unsupported(&field, error, "all layers share one set of rotary parameters here");
  }
  if (hri_json_has(dict, "factor")) HRI_TRY(hri_json_get_string(dict, key, &type, error));
  else HRI_TRY(hri_json_opt_string(dict, key, &type, error));
  if (!is_neutral(partial.value, NEUTRAL_ONE)) return unsupported(&partial, error, "all of a head is rotated here");
  HRI_TRY(read_number(dict, "rope_theta", 0, 1e15, false, &rope->theta, error));
  if (strcmp(type, "default") == 0) return HR_OK;
  field = hri_json_member(dict, key);
  if (strcmp(type, "linear") == 0) rope->scaling = HR_ROPE_LINEAR;
  else if (strcmp(type, "llama3") == 0) rope->scaling = HR_ROPE_LLAMA3;
  else return unsupported(&field, error, "default, linear and llama3 are supported");
  if (!hri_json_has(dict, "factor")) return hri_json_fail(&factor, error, "a positive number");
  HRI_TRY(read_number(dict, "factor", 0, 1e9, false, &rope->factor, error));
  return rope->scaling == HR_ROPE_LLAMA3 ? read_llama3(dict, rope, error) : HR_OK;
}

static bool same_rope(const hr_rope *a, const hr_rope *b) {
  return a->theta == b->theta && a->scaling == b->scaling && a->factor == b->factor && a->low_frequency_factor == b->low_frequency_factor &&
         a->high_frequency_factor == b->high_frequency_factor && a->original_max_positions == b->original_max_positions;
}

/* Files hold the v4 keys, the v5 key, or both; both must agree, because versions differ in which they prefer. */
static hr_status read_rope(const hri_json *root, hr_rope *rope, hr_error *error) {
  hr_rope v4, v5;
  hri_json dict;
  bool has_v5 = hri_json_has(root, "rope_parameters"), has_v4 = hri_json_has(root, "rope_theta") || hri_json_has(root, "rope_scaling");
  HRI_TRY(read_number(root, "rope_theta", 0, 1e15, false, &rope->theta, error));
  v4 = v5 = *rope;
  if (hri_json_has(root, "rope_scaling")) {
    HRI_TRY(hri_json_get_object(root, "rope_scaling", &dict, error));
    HRI_TRY(read_rope_dict(&dict, &v4, error));
  }
  *rope = v4;
  if (!has_v5) return HR_OK;
  HRI_TRY(hri_json_get_object(root, "rope_parameters", &dict, error));
  HRI_TRY(read_rope_dict(&dict, &v5, error));
  if (has_v4 && !hri_json_has(root, "rope_scaling")) { /* only rope_theta beside it: the kind of scaling is v5's */
    double theta = v4.theta;
    v4 = v5;
    v4.theta = theta;
  }
  if (has_v4 && !same_rope(&v4, &v5)) {
    hri_fail(error, HR_ERROR_INPUT, "%s: field rope_parameters contradicts rope_theta or rope_scaling", root->file);
    return hri_hint(error, HR_ERROR_INPUT, "remove the ones that do not belong to this model");
  }
  *rope = v5;
  return HR_OK;
}

/* ---- reading: families ---- */

static hr_status accept_string(const hri_json *root, const char *key, const char *const *accepted, const char *hint, hr_error *error) {
  hri_json field = hri_json_member(root, key);
  const char *value = accepted[0];
  HRI_TRY(hri_json_opt_string(root, key, &value, error));
  for (; *accepted; accepted++)
    if (strcmp(value, *accepted) == 0) return HR_OK;
  return unsupported(&field, error, hint);
}

static hr_status not_a_multiple(const hri_json *root, const char *key, const char *of, uint32_t divisor, hr_error *error) {
  hri_json field = hri_json_member(root, key);
  return hri_json_fail(&field, error, "a multiple of %s (%u)", of, divisor);
}

static hr_status read_gpt2(const hri_json *root, hr_model *model, hr_error *error) {
  static const char *const activations[] = {"gelu_new", "gelu_pytorch_tanh", NULL};
  static const char *const dropouts[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop", NULL};
  bool scaled = true;
  HRI_TRY(read_sizes(root, gpt2_sizes, model, error));
  HRI_TRY(accept_string(root, "activation_function", activations, "gelu_new (the tanh form) is supported", error));
  HRI_TRY(read_number(root, "layer_norm_epsilon", 0, 0.5, false, &model->norm_epsilon, error));
  HRI_TRY(read_dropout(root, dropouts, model->dropout, model, error));
  HRI_TRY(hri_json_opt_bool(root, "scale_attn_weights", &scaled, error));
  if (model->hidden_size % model->head_count != 0)
    return not_a_multiple(root, hri_json_has(root, "n_embd") ? "n_embd" : "hidden_size", "the heads", model->head_count, error);
  if (model->mlp_size == 0) model->mlp_size = 4 * model->hidden_size; /* n_inner null */
  hri_family_derive(model);
  if (!scaled) model->attention_scale = 1;
  return HR_OK;
}

static hr_status read_llama(const hri_json *root, hr_model *model, hr_error *error) {
  static const char *const activations[] = {"silu", "swish", NULL};
  static const char *const dropouts[] = {"attention_dropout", NULL};
  bool attention_bias = false;
  hri_json head_dim = hri_json_member(root, "head_dim");
  HRI_TRY(read_sizes(root, llama_sizes, model, error));
  HRI_TRY(accept_string(root, "hidden_act", activations, "silu is supported", error));
  HRI_TRY(read_number(root, "rms_norm_eps", 0, 0.5, false, &model->norm_epsilon, error));
  HRI_TRY(read_dropout(root, dropouts, 0, model, error));
  HRI_TRY(hri_json_opt_bool(root, "attention_bias", &attention_bias, error));
  HRI_TRY(hri_json_opt_bool(root, "mlp_bias", &model->mlp_bias, error));
  HRI_TRY(read_rope(root, &model->rope, error));
  HRI_TRY(read_pad(root, model, error));
  model->qkv_bias = model->attention_output_bias = attention_bias;
  if (model->kv_head_count && model->head_count % model->kv_head_count != 0)
    return not_a_multiple(root, "num_attention_heads", "num_key_value_heads", model->kv_head_count, error);
  if (model->head_size == 0 && model->hidden_size % model->head_count != 0)
    return not_a_multiple(root, "hidden_size", "num_attention_heads, as head_dim is not given", model->head_count, error);
  hri_family_derive(model);
  if (model->head_size % 2 != 0)
    return json_is_integer(head_dim.value) ? hri_json_fail(&head_dim, error, "even: rotary positions rotate pairs")
                                           : not_a_multiple(root, "hidden_size", "2 * num_attention_heads", 2 * model->head_count, error);
  return HR_OK;
}

static hr_status read_family(const hri_json *root, hr_family *family, hr_error *error) {
  hri_json field = hri_json_member(root, "model_type");
  const char *type;
  char hint[96];
  if (!json_is_object(root->value)) return hri_json_fail(root, error, "an object");
  HRI_TRY(hri_json_get_string(root, "model_type", &type, error));
  if (hri_family_find(type, family)) return HR_OK;
  (void)snprintf(hint, sizeof hint, "known families: %s", hri_family_list());
  return unsupported(&field, error, hint);
}

static hr_status read_model(const hri_json *root, hr_model *model, hr_error *error) {
  hr_family family = HR_FAMILY_GPT2;
  hr_status status;
  HRI_TRY(read_family(root, &family, error));
  hri_family_defaults(model, family);
  HRI_TRY(refuse_features(root, error));
  HRI_TRY(family == HR_FAMILY_GPT2 ? read_gpt2(root, model, error) : read_llama(root, model, error));
  HRI_TRY(hri_json_opt_bool(root, "tie_word_embeddings", &model->tied_embeddings, error));
  HRI_TRY(read_number(root, "initializer_range", 0, 1e3, true, &model->init_std, error));
  HRI_TRY(read_token(root, "bos_token_id", model, &model->bos_token, error));
  HRI_TRY(read_token(root, "eos_token_id", model, &model->eos_token, error));
  status = hr_model_check(model, error); /* what concerns several fields at once */
  if (status == HR_OK) return HR_OK;
  hri_context(error, status, "%s: ", root->file);
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
  HRI_TRY(hri_json_parse(text, bytes, file, &root, error));
  status = read_model(&root, &made, error);
  hri_json_deinit(&root);
  if (status != HR_OK) return status;
  name_model(file, &made);
  *model = made;
  return HR_OK;
}

/* ---- writing ---- */

static void put_token(hri_json_writer *w, const char *key, int32_t token) {
  hri_json_key(w, key);
  if (token < 0) hri_json_put_null(w);
  else hri_json_put_i64(w, token);
}

static void put_architecture(hri_json_writer *w, const char *name) {
  hri_json_key(w, "architectures");
  hri_json_begin_array(w);
  hri_json_put_string(w, name);
  hri_json_end_array(w);
}

static void put_gpt2(hri_json_writer *w, const hr_model *m) {
  hri_json_field_string(w, "activation_function", "gelu_new");
  put_architecture(w, "GPT2LMHeadModel");
  hri_json_field_double(w, "attn_pdrop", m->dropout);
  put_token(w, "bos_token_id", m->bos_token);
  hri_json_field_double(w, "embd_pdrop", m->dropout);
  put_token(w, "eos_token_id", m->eos_token);
  hri_json_field_double(w, "initializer_range", m->init_std);
  hri_json_field_double(w, "layer_norm_epsilon", m->norm_epsilon);
  hri_json_field_string(w, "model_type", "gpt2");
  hri_json_field_u64(w, "n_embd", m->hidden_size);
  hri_json_field_u64(w, "n_head", m->head_count);
  hri_json_key(w, "n_inner");
  if (m->mlp_size == 4 * (uint64_t)m->hidden_size) hri_json_put_null(w);
  else hri_json_put_u64(w, m->mlp_size);
  hri_json_field_u64(w, "n_layer", m->layer_count);
  hri_json_field_u64(w, "n_positions", m->max_positions);
  hri_json_field_double(w, "resid_pdrop", m->dropout);
  hri_json_field_bool(w, "scale_attn_by_inverse_layer_idx", false);
  hri_json_field_bool(w, "scale_attn_weights", m->head_size == 1 || m->attention_scale != 1.0);
}

static void put_rope(hri_json_writer *w, const hr_rope *rope) {
  hri_json_key(w, "rope_scaling");
  if (rope->scaling == HR_ROPE_DEFAULT) {
    hri_json_put_null(w);
  } else {
    hri_json_begin_object(w);
    hri_json_field_double(w, "factor", rope->factor);
    if (rope->scaling == HR_ROPE_LLAMA3) {
      hri_json_field_double(w, "high_freq_factor", rope->high_frequency_factor);
      hri_json_field_double(w, "low_freq_factor", rope->low_frequency_factor);
      hri_json_field_u64(w, "original_max_position_embeddings", rope->original_max_positions);
    }
    hri_json_field_string(w, "rope_type", rope->scaling == HR_ROPE_LLAMA3 ? "llama3" : "linear");
    hri_json_end_object(w);
  }
  hri_json_field_double(w, "rope_theta", rope->theta);
}

static void put_llama(hri_json_writer *w, const hr_model *m) {
  put_architecture(w, "LlamaForCausalLM");
  hri_json_field_bool(w, "attention_bias", m->qkv_bias);
  hri_json_field_double(w, "attention_dropout", m->dropout);
  put_token(w, "bos_token_id", m->bos_token);
  put_token(w, "eos_token_id", m->eos_token);
  hri_json_field_u64(w, "head_dim", m->head_size);
  hri_json_field_string(w, "hidden_act", "silu");
  hri_json_field_u64(w, "hidden_size", m->hidden_size);
  hri_json_field_double(w, "initializer_range", m->init_std);
  hri_json_field_u64(w, "intermediate_size", m->mlp_size);
  hri_json_field_u64(w, "max_position_embeddings", m->max_positions);
  hri_json_field_bool(w, "mlp_bias", m->mlp_bias);
  hri_json_field_string(w, "model_type", "llama");
  hri_json_field_u64(w, "num_attention_heads", m->head_count);
  hri_json_field_u64(w, "num_hidden_layers", m->layer_count);
  hri_json_field_u64(w, "num_key_value_heads", m->kv_head_count);
  put_token(w, "pad_token_id", m->pad_token);
  hri_json_field_u64(w, "pretraining_tp", 1);
  hri_json_field_double(w, "rms_norm_eps", m->norm_epsilon);
  put_rope(w, &m->rope);
}

/* Keys in alphabetical order, as transformers writes them. */
char *hr_model_config_text(const hr_model *model, const char *dtype) {
  hri_text text = {0};
  hri_json_writer w = hri_json_writer_init(&text, 2);
  hri_json_begin_object(&w);
  if (model->family == HR_FAMILY_GPT2) put_gpt2(&w, model);
  else put_llama(&w, model);
  hri_json_field_bool(&w, "tie_word_embeddings", model->tied_embeddings);
  hri_json_field_string(&w, "torch_dtype", dtype);
  hri_json_field_bool(&w, "use_cache", true);
  hri_json_field_u64(&w, "vocab_size", model->vocabulary_size);
  hri_json_end_object(&w);
  hri_text_add(&text, "\n");
  if (!text.failed) return text.chars;
  hri_text_deinit(&text);
  return NULL;
}
