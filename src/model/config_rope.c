/* Rotary positions in config.json.
 *
 * v4 writes rope_theta, rope_scaling and partial_rotary_factor (gemma3 also rope_local_base_freq); v5 writes one dict,
 * rope_parameters, and for gemma3 one such dict per kind of layer. Both are read; where a file holds both they must
 * agree, because versions differ in which they prefer. Source: transformers modeling_rope_utils.py and
 * configuration_phi3.py. */
#include <string.h>

#include "model/config.h"

/* What one dict is read into. */
typedef struct reading {
  const hri_json *root;
  const hr_model *model;
  hr_rope *rope;
  double partial; /* how much of a head is rotated, as a share */
} reading;

static const double MAX_THETA = 1e15, MAX_FACTOR = 1e9;

/* ---- the kinds ---- */

static hr_status read_original(const reading *r, const hri_json *dict, bool required, hr_error *error) {
  static const char key[] = "original_max_position_embeddings";
  uint64_t inside = 0, outside = 0;
  HRI_TRY(hri_json_opt_u64(dict, key, 1, HRI_MODEL_MAX_POSITIONS, &inside, error));
  HRI_TRY(hri_json_opt_u64(r->root, key, 1, HRI_MODEL_MAX_POSITIONS, &outside, error));
  if (r->model->family == HR_FAMILY_PHI3 && outside == 0)
    outside = 4096; /* Phi3Config's default, which wins over the dict */
  if (required && inside == 0 && outside == 0)
    return hri_json_get_u64(dict, key, 1, HRI_MODEL_MAX_POSITIONS, &inside, error);
  r->rope->original_max_positions = (uint32_t)(outside ? outside : inside);
  return HR_OK;
}

static hr_status read_llama3(const reading *r, const hri_json *dict, hr_error *error) {
  hri_json high = hri_json_member(dict, "high_freq_factor"), low = hri_json_member(dict, "low_freq_factor");
  if (!hri_json_has(dict, "low_freq_factor")) return hri_json_fail(&low, error, "a positive number");
  if (!hri_json_has(dict, "high_freq_factor")) return hri_json_fail(&high, error, "a number above low_freq_factor");
  HRI_TRY(hri_config_number(dict, "low_freq_factor", 0, MAX_FACTOR, false, &r->rope->low_frequency_factor, error));
  HRI_TRY(hri_config_number(dict, "high_freq_factor", r->rope->low_frequency_factor, MAX_FACTOR, false,
                            &r->rope->high_frequency_factor, error));
  return read_original(r, dict, true, error);
}

static hr_status read_yarn(const reading *r, const hri_json *dict, hr_error *error) {
  hr_rope *rope = r->rope;
  bool truncate = true;
  HRI_TRY(hri_config_number(dict, "beta_fast", 0, MAX_FACTOR, true, &rope->beta_fast, error));
  HRI_TRY(hri_config_number(dict, "beta_slow", 0, MAX_FACTOR, true, &rope->beta_slow, error));
  HRI_TRY(hri_config_number(dict, "mscale", 0, MAX_FACTOR, true, &rope->mscale, error));
  HRI_TRY(hri_config_number(dict, "mscale_all_dim", 0, MAX_FACTOR, true, &rope->mscale_all_dim, error));
  HRI_TRY(hri_config_number(dict, "attention_factor", 0, MAX_FACTOR, false, &rope->attention_factor, error));
  HRI_TRY(hri_json_opt_bool(dict, "truncate", &truncate, error));
  rope->no_truncation = !truncate;
  return read_original(r, dict, false, error);
}

static uint32_t rotated(const hr_model *model, double partial) { return (uint32_t)(model->head_size * partial); }

static hr_status read_factors(const hri_json *dict, const char *key, uint32_t count, double *factors, hr_error *error) {
  hri_json list;
  HRI_TRY(hri_json_get_array(dict, key, &list, error));
  if (hri_json_count(&list) != count)
    return hri_json_fail(&list, error, "a list of %u numbers, one for each rotated pair", count);
  for (uint32_t i = 0; i < count; i++) {
    hri_json item = hri_json_item(&list, i);
    factors[i] = json_is_number(item.value) ? json_number_value(item.value) : 0;
    if (!(factors[i] > 0 && factors[i] <= MAX_FACTOR)) return hri_json_fail(&item, error, "a positive number");
  }
  return HR_OK;
}

static hr_status read_longrope(const reading *r, const hri_json *dict, hr_error *error) {
  hr_rope *rope = r->rope;
  uint32_t pairs = rotated(r->model, r->partial) / 2;
  hri_json list = hri_json_member(dict, "short_factor");
  if (pairs > HR_MAX_ROPE_PAIRS) return hri_json_fail(&list, error, "a list of at most %d numbers", HR_MAX_ROPE_PAIRS);
  rope->factor_count = pairs;
  HRI_TRY(read_factors(dict, "short_factor", pairs, rope->short_factors, error));
  HRI_TRY(read_factors(dict, "long_factor", pairs, rope->long_factors, error));
  HRI_TRY(hri_config_number(dict, "attention_factor", 0, MAX_FACTOR, false, &rope->attention_factor, error));
  rope->factor = 0;
  HRI_TRY(hri_config_number(dict, "factor", 0, MAX_FACTOR, false, &rope->factor, error));
  return read_original(r, dict, false, error);
}

static const char *const kinds[HR_ROPE_SCALING_COUNT] =
    {[HR_ROPE_DEFAULT] = "default", [HR_ROPE_LINEAR] = "linear", [HR_ROPE_LLAMA3] = "llama3",
     [HR_ROPE_DYNAMIC] = "dynamic", [HR_ROPE_YARN] = "yarn",     [HR_ROPE_LONGROPE] = "longrope"};

const char *hri_rope_kind_name(hr_rope_scaling scaling) { return kinds[scaling]; }

/* phi3 files call longrope "su", and early ones "yarn"; the family has no other kind. */
static hr_status read_kind(const reading *r, const hri_json *dict, hr_error *error) {
  const char *key = hri_json_has(dict, "rope_type") ? "rope_type" : "type", *type = "default";
  hri_json field = hri_json_member(dict, key);
  bool phi3 = r->model->family == HR_FAMILY_PHI3;
  bool v5 = strncmp(dict->path, "rope_parameters", 15) == 0; /* where a dict without a type is the default's */
  if (hri_json_has(dict, "factor") && !phi3 && !v5) HRI_TRY(hri_json_get_string(dict, key, &type, error));
  else HRI_TRY(hri_json_opt_string(dict, key, &type, error));
  if (phi3 && (strcmp(type, "su") == 0 || strcmp(type, "yarn") == 0)) type = "longrope";
  for (int kind = 0; kind < HR_ROPE_SCALING_COUNT; kind++) {
    if (strcmp(type, kinds[kind]) != 0 || (phi3 && kind != HR_ROPE_DEFAULT && kind != HR_ROPE_LONGROPE)) continue;
    r->rope->scaling = (hr_rope_scaling)kind;
    return HR_OK;
  }
  return hri_config_unsupported(&field, error,
                                phi3 ? "default and longrope are supported"
                                     : "default, linear, dynamic, llama3, yarn and longrope are supported");
}

/* ---- one dict ---- */

/* rope_scaling (v4) or rope_parameters (v5, which may hold rope_theta and partial_rotary_factor too). */
static hr_status read_dict(reading *r, const hri_json *dict, hr_error *error) {
  hri_json factor = hri_json_member(dict, "factor");
  const char *name;
  json_t *member;
  json_object_foreach(dict->value, name, member) {
    hri_json field = hri_json_member(dict, name);
    if (json_is_object(member))
      return hri_config_unsupported(&field, error, "all layers share one set of rotary parameters here");
  }
  HRI_TRY(read_kind(r, dict, error));
  HRI_TRY(hri_config_number(dict, "rope_theta", 0, MAX_THETA, false, &r->rope->theta, error));
  HRI_TRY(hri_config_number(dict, "partial_rotary_factor", 0, 1, false, &r->partial, error));
  if (r->rope->scaling == HR_ROPE_DEFAULT) return HR_OK;
  if (r->rope->scaling == HR_ROPE_LONGROPE) return read_longrope(r, dict, error);
  if (!hri_json_has(dict, "factor")) return hri_json_fail(&factor, error, "a positive number");
  HRI_TRY(hri_config_number(dict, "factor", 0, MAX_FACTOR, false, &r->rope->factor, error));
  if (r->rope->scaling == HR_ROPE_DYNAMIC && r->rope->factor < 1)
    return hri_json_fail(&factor, error, "a number from 1 on");
  if (r->rope->scaling == HR_ROPE_LLAMA3) return read_llama3(r, dict, error);
  return r->rope->scaling == HR_ROPE_YARN ? read_yarn(r, dict, error) : HR_OK;
}

static bool same_rope(const hr_rope *a, const hr_rope *b) {
  size_t bytes = a->factor_count * sizeof *a->short_factors;
  return a->theta == b->theta && a->scaling == b->scaling && a->factor == b->factor &&
         a->low_frequency_factor == b->low_frequency_factor && a->high_frequency_factor == b->high_frequency_factor &&
         a->original_max_positions == b->original_max_positions && a->attention_factor == b->attention_factor &&
         a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow && a->mscale == b->mscale &&
         a->mscale_all_dim == b->mscale_all_dim && a->no_truncation == b->no_truncation &&
         a->factor_count == b->factor_count && memcmp(a->short_factors, b->short_factors, bytes) == 0 &&
         memcmp(a->long_factors, b->long_factors, bytes) == 0;
}

/* One set of parameters: theta_key and `scaling` (v4; either may be absent), `parameters` (v5, or a value of NULL). */
static hr_status read_set(reading *r, const char *theta_key, const hri_json *scaling, const hri_json *parameters,
                          hr_error *error) {
  hr_rope v5 = *r->rope, *v4 = r->rope;
  double partial = r->partial;
  hr_status status;
  bool has_theta = hri_json_has(r->root, theta_key), has_scaling = scaling && scaling->value;
  HRI_TRY(hri_config_number(r->root, theta_key, 0, MAX_THETA, false, &v4->theta, error));
  v5.theta = v4->theta;
  if (has_scaling) HRI_TRY(read_dict(r, scaling, error));
  if (!parameters->value) return HR_OK;
  r->rope = &v5;
  r->partial = partial;
  status = read_dict(r, parameters, error);
  r->rope = v4;
  HRI_TRY(status);
  if ((has_theta && v4->theta != v5.theta) || (has_scaling && !same_rope(v4, &v5))) {
    hri_fail(error, HR_ERROR_INPUT, "%s: field %s contradicts %s or rope_scaling", r->root->file, parameters->path,
             theta_key);
    return hri_hint(error, HR_ERROR_INPUT, "remove the ones that do not belong to this model");
  }
  *v4 = v5;
  return HR_OK;
}

/* ---- the model ---- */

static hr_status optional_object(const hri_json *object, const char *key, hri_json *child, hr_error *error) {
  *child = hri_json_member(object, key);
  if (hri_json_has(object, key)) return hri_json_get_object(object, key, child, error);
  child->value = NULL;
  return HR_OK;
}

/* gemma3: sliding layers have parameters of their own; rope_scaling means those of the others. */
static hr_status read_two(const hri_json *root, hr_model *model, const hri_json *scaling, const hri_json *parameters,
                          hr_error *error) {
  reading full = {.root = root, .model = model, .rope = &model->rope, .partial = 1},
          local = {.root = root, .model = model, .rope = &model->local_rope, .partial = 1};
  hri_json none = {0}, dict[2] = {{0}, {0}};
  if (parameters->value) {
    const char *name;
    json_t *member;
    json_object_foreach(parameters->value, name, member) {
      hri_json field = hri_json_member(parameters, name);
      if (strcmp(name, "full_attention") == 0 || strcmp(name, "sliding_attention") == 0) continue;
      return hri_config_unsupported(
          &field, error, "gemma3 has one dict of rotary parameters for full_attention and one for sliding_attention");
    }
    HRI_TRY(optional_object(parameters, "full_attention", &dict[0], error));
    HRI_TRY(optional_object(parameters, "sliding_attention", &dict[1], error));
  }
  HRI_TRY(read_set(&full, "rope_theta", scaling, &dict[0], error));
  HRI_TRY(read_set(&local, "rope_local_base_freq", &none, &dict[1], error));
  if (full.partial == 1 && local.partial == 1) return HR_OK;
  return hri_config_unsupported(parameters, error, "all of a head is rotated in gemma3");
}

static hr_status check_rotated(const hri_json *root, const hr_model *model, double partial, hr_error *error) {
  hri_json field = hri_json_member(root, "partial_rotary_factor");
  if (!field.value && partial != 1) {
    hri_json dict = hri_json_member(root, hri_json_has(root, "rope_parameters") ? "rope_parameters" : "rope_scaling");
    hri_json inside = hri_json_member(&dict, "partial_rotary_factor");
    if (inside.value) field = inside;
  }
  if (!hri_family_in(model, HRI_PARTIAL) && partial != 1)
    return hri_config_unsupported(&field, error, "all of a head is rotated in this family");
  if (model->rotary_size == 0 || model->rotary_size % 2 != 0)
    return hri_json_fail(&field, error, "a share that makes an even number of the %u of a head, and not %u",
                         model->head_size, model->rotary_size);
  return HR_OK;
}

hr_status hri_config_rope(const hri_json *root, hr_model *model, hr_error *error) {
  reading r = {.root = root, .model = model, .rope = &model->rope, .partial = hri_family_partial(model->family)};
  hri_json scaling, parameters;
  HRI_TRY(optional_object(root, "rope_scaling", &scaling, error));
  HRI_TRY(optional_object(root, "rope_parameters", &parameters, error));
  HRI_TRY(hri_config_number(root, "partial_rotary_factor", 0, 1, false, &r.partial, error));
  if (model->has_local_rope) HRI_TRY(read_two(root, model, &scaling, &parameters, error));
  else HRI_TRY(read_set(&r, "rope_theta", &scaling, &parameters, error));
  model->rotary_size = rotated(model, r.partial);
  return check_rotated(root, model, r.partial, error);
}
