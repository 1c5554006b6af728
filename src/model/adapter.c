/* adapter_config.json: what PEFT's keys mean for the model, what of them is not read, and the text that we write. */
#include "model/adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/lora.h"
#include "model/params.h"

enum { CONFIG_LIMIT_BYTES = 4 << 20 };

/* ---- reading ---- */

/* null, false, 0, "", [] and {} say nothing. */
static bool says_something(const json_t *value) {
  if (!value || json_is_null(value) || json_is_false(value)) return false;
  if (json_is_array(value)) return json_array_size(value) > 0;
  if (json_is_object(value)) return json_object_size(value) > 0;
  if (json_is_string(value)) return json_string_length(value) > 0;
  return !json_is_number(value) || json_number_value(value) != 0;
}

static hr_status unsupported(const hri_json *root, const char *key, const char *what, hr_error *error) {
  hr_status status = hri_fail(error, HR_ERROR_UNSUPPORTED, "%s: field '%s': %s are not read", root->file, key, what);
  return hri_hint(error, status, "merge the adapter with PEFT (merge_and_unload) and name the merged model");
}

static hr_status refuse_unread(const hri_json *root, hr_error *error) {
  static const struct {
    const char *key, *what;
  } keys[] = {{"use_dora", "DoRA adapters"},
              {"use_qalora", "QALoRA adapters"},
              {"lora_bias", "adapters with biases"},
              {"modules_to_save", "modules that are saved whole"},
              {"rank_pattern", "ranks by pattern"},
              {"alpha_pattern", "factors by pattern"},
              {"exclude_modules", "excluded modules"},
              {"layer_replication", "replicated layers"},
              {"trainable_token_indices", "trained tokens"},
              {"target_parameters", "adapters of parameters"},
              {"alora_invocation_tokens", "activated adapters"},
              {"use_bdlora", "block-diagonal adapters"},
              {"arrow_config", "routed adapters"},
              {"kasa_config", "KaSA adapters"},
              {"monteclora_config", "MonteCLoRA adapters"},
              {"velora_config", "VeLoRA adapters"}};
  static const char *const starts[] = {"pissa", "olora", "corda", "loftq", "lora_ga", "mica"};
  const char *text = NULL;
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
    if (says_something(hri_json_member(root, keys[k].key).value))
      return unsupported(root, keys[k].key, keys[k].what, error);
  HRI_TRY(hri_json_opt_string(root, "bias", &text, error));
  if (text && strcmp(text, "none") != 0) return unsupported(root, "bias", "trained biases", error);
  text = json_string_value(hri_json_member(root, "init_lora_weights").value);
  for (size_t k = 0; text && k < sizeof starts / sizeof *starts; k++)
    if (strncmp(text, starts[k], strlen(starts[k])) == 0)
      return unsupported(root, "init_lora_weights", "adapters whose start changed the base", error);
  HRI_TRY(hri_json_get_string(root, "peft_type", &text, error));
  return strcmp(text, "LORA") == 0 ? HR_OK : unsupported(root, "peft_type", "adapters that are not LORA", error);
}

/* Which modules of which layers: a set of 1 << hr_module of each layer. */
typedef struct chosen {
  uint32_t modules[HR_MAX_LAYERS];
} chosen;

/* A name is that of a module, the end of one behind a dot, or a whole path with its layer, as PEFT writes "all-linear"
 * down. */
static hr_status take_target(const hri_json *item, const hr_model *model, chosen *set, hr_error *error) {
  const char *target = json_string_value(item->value);
  bool found = false;
  char name[96];
  for (uint32_t l = 0; target && l < model->layer_count; l++)
    for (int k = 0; k < HR_MODULE_COUNT; k++)
      if (hri_module_name(model, (hr_module)k, (int32_t)l, name) && hri_lora_matches(name, target)) {
        set->modules[l] |= 1u << k;
        found = true;
      }
  if (found) return HR_OK;
  return hri_json_fail(item, error, "a linear module of a layer of this %s model, such as self_attn.o_proj",
                       hr_family_name(model->family));
}

static hr_status take_targets(const hri_json *root, const hr_model *model, chosen *set, hr_error *error) {
  hri_json targets = hri_json_member(root, "target_modules");
  if (json_is_string(targets.value)) {
    hr_lora all = {0};
    if (strcmp(json_string_value(targets.value), "all-linear") != 0)
      return unsupported(root, "target_modules", "regular expressions", error);
    (void)hri_lora_add_target(model, "all-linear", &all);
    for (uint32_t l = 0; l < model->layer_count; l++) set->modules[l] = all.targets;
    return HR_OK;
  }
  if (!json_is_array(targets.value) || json_array_size(targets.value) == 0)
    return hri_json_fail(&targets, error, "a list of names of modules");
  for (uint64_t k = 0; k < hri_json_count(&targets); k++) {
    hri_json item = hri_json_item(&targets, k);
    HRI_TRY(take_target(&item, model, set, error));
  }
  return HR_OK;
}

static hr_status take_layer(const hri_json *item, const hr_model *model, hr_lora *lora, hr_error *error) {
  json_int_t layer = json_is_integer(item->value) ? json_integer_value(item->value) : -1;
  if (layer < 0 || layer >= (json_int_t)model->layer_count)
    return hri_json_fail(item, error, "layers from 0 to %u", model->layer_count - 1);
  lora->layers[layer / 8] |= (uint8_t)(1u << layer % 8);
  return HR_OK;
}

static hr_status take_layers(const hri_json *root, const hr_model *model, hr_lora *lora, hr_error *error) {
  hri_json layers = hri_json_member(root, "layers_to_transform");
  if (!says_something(layers.value) && !json_is_integer(layers.value)) {
    hri_lora_all_layers(model, lora);
    return HR_OK;
  }
  if (!json_is_array(layers.value)) return take_layer(&layers, model, lora, error);
  for (uint64_t k = 0; k < hri_json_count(&layers); k++) {
    hri_json item = hri_json_item(&layers, k);
    HRI_TRY(take_layer(&item, model, lora, error));
  }
  return HR_OK;
}

/* Layers that have adapters have the same modules of them: that is what hr_lora can say. */
static hr_status take_places(const hri_json *root, const hr_model *model, hr_lora *lora, hr_error *error) {
  chosen set = {0};
  HRI_TRY(take_targets(root, model, &set, error));
  HRI_TRY(take_layers(root, model, lora, error));
  for (uint32_t l = 0; l < model->layer_count; l++) {
    if (!(lora->layers[l / 8] >> l % 8 & 1)) continue;
    if (set.modules[l] == 0) lora->layers[l / 8] &= (uint8_t)~(1u << l % 8);
    else if (lora->targets != 0 && lora->targets != set.modules[l])
      return unsupported(root, "target_modules", "adapters of other modules in one layer than in another", error);
    else lora->targets = set.modules[l];
  }
  if (lora->targets != 0) return HR_OK;
  return hri_hint(error,
                  hri_fail(error, HR_ERROR_INPUT, "%s: target_modules and layers_to_transform name no module together",
                           root->file),
                  "correct the file, or fetch it anew if it is damaged");
}

/* PEFT's defaults where a key is missing. */
static hr_status take(const hri_json *root, const hr_model *model, hr_lora *lora, hr_error *error) {
  uint64_t rank = 8;
  *lora = (hr_lora){.alpha = 8};
  HRI_TRY(refuse_unread(root, error));
  HRI_TRY(hri_json_opt_u64(root, "r", 1, 4096, &rank, error));
  HRI_TRY(hri_json_opt_double(root, "lora_alpha", &lora->alpha, error));
  HRI_TRY(hri_json_opt_double(root, "lora_dropout", &lora->dropout, error));
  HRI_TRY(hri_json_opt_bool(root, "use_rslora", &lora->rslora, error));
  lora->rank = (uint32_t)rank;
  HRI_TRY(take_places(root, model, lora, error));
  if (lora->alpha > 0 && lora->dropout >= 0 && lora->dropout < 1) return HR_OK;
  return hri_hint(error,
                  hri_fail(error, HR_ERROR_INPUT, "%s: lora_alpha %g and lora_dropout %g make no adapter", root->file,
                           lora->alpha, lora->dropout),
                  "lora_alpha is above 0, and lora_dropout from 0 to below 1");
}

static hr_status read_config(const char *directory, char **path, hri_json *root, hr_error *error) {
  *path = hri_path_join(directory, HRI_ADAPTER_CONFIG);
  if (!*path) return hri_fail_memory(error, strlen(directory), "a path");
  if (!hri_path_exists(*path)) {
    hr_status status = hri_fail(error, HR_ERROR_INPUT, "%s: there is no " HRI_ADAPTER_CONFIG " in it", directory);
    return hri_hint(error, status, "name a directory that PEFT saved, or RUN/final of a run with --lora");
  }
  return hri_json_read(*path, CONFIG_LIMIT_BYTES, root, error);
}

hr_status hri_adapter_open(const char *directory, hr_model *model, hr_error *error) {
  hr_lora lora;
  hri_json root = {0};
  char *path = NULL;
  hr_status status;
  if (strlen(directory) >= sizeof model->adapter)
    return hri_fail(error, HR_ERROR_USAGE, "the path of the adapter has %zu bytes; at most %zu are supported",
                    strlen(directory), sizeof model->adapter - 1);
  status = read_config(directory, &path, &root, error);
  if (status == HR_OK) status = take(&root, model, &lora, error);
  if (status == HR_OK) {
    model->lora = lora;
    (void)snprintf(model->adapter, sizeof model->adapter, "%s", directory);
  }
  hri_json_deinit(&root);
  hri_free(path);
  return status;
}

hr_status hri_adapter_base(const char *directory, char out[1024], hr_error *error) {
  hri_json root = {0};
  char *path = NULL;
  const char *base = NULL;
  hr_status status = read_config(directory, &path, &root, error);
  if (status == HR_OK) status = hri_json_opt_string(&root, "base_model_name_or_path", &base, error);
  if (status == HR_OK && (!base || !*base || strlen(base) >= 1024)) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s does not say which model its adapters belong to", path);
    (void)hri_hint(error, status, "name the model, and the adapter by --adapter %.200s", directory);
  }
  if (status == HR_OK) (void)snprintf(out, 1024, "%s", base);
  hri_json_deinit(&root);
  hri_free(path);
  return status;
}

/* ---- writing ---- */

/* The shortest end of each module's name that means it alone: "c_attn", but "attn.c_proj" and "mlp.c_proj". */
static void put_targets(hri_json_writer *w, const hr_model *model) {
  hri_json_key(w, "target_modules");
  hri_json_begin_array(w);
  for (int k = 0; k < HR_MODULE_COUNT; k++) {
    hr_lora one = {0};
    char name[96];
    const char *dot;
    if (!(model->lora.targets >> k & 1) || !hri_module_name(model, (hr_module)k, -1, name)) continue;
    dot = strrchr(name, '.');
    if (dot) (void)hri_lora_add_target(model, dot + 1, &one);
    hri_json_put_string(w, one.targets == 1u << k ? dot + 1 : name);
  }
  hri_json_end_array(w);
}

static void put_layers(hri_json_writer *w, const hr_model *model) {
  bool all = true;
  for (uint32_t l = 0; l < model->layer_count; l++) all = all && (model->lora.layers[l / 8] >> l % 8 & 1);
  hri_json_key(w, "layers_to_transform");
  if (all) {
    hri_json_put_null(w);
    return;
  }
  hri_json_begin_array(w);
  for (uint32_t l = 0; l < model->layer_count; l++)
    if (model->lora.layers[l / 8] >> l % 8 & 1) hri_json_put_u64(w, l);
  hri_json_end_array(w);
}

static void put_base(hri_json_writer *w, const char *base) {
  hri_json_key(w, "base_model_name_or_path");
  if (base) hri_json_put_string(w, base);
  else hri_json_put_null(w);
}

static void put_empty(hri_json_writer *w, const char *key) {
  hri_json_key(w, key);
  hri_json_begin_object(w);
  hri_json_end_object(w);
}

static void put_null(hri_json_writer *w, const char *key) {
  hri_json_key(w, key);
  hri_json_put_null(w);
}

void hri_adapter_text(const hr_model *model, const char *base, hri_text *out) {
  hri_json_writer w = hri_json_writer_init(out, 2);
  const hr_lora *lora = &model->lora;
  hri_json_begin_object(&w);
  put_empty(&w, "alpha_pattern");
  put_base(&w, base);
  hri_json_field_string(&w, "bias", "none");
  hri_json_field_bool(&w, "fan_in_fan_out", model->family == HR_FAMILY_GPT2);
  hri_json_field_bool(&w, "inference_mode", true);
  hri_json_key(&w, "init_lora_weights");
  if (lora->gaussian) hri_json_put_string(&w, "gaussian");
  else hri_json_put_bool(&w, true);
  put_null(&w, "layers_pattern");
  put_layers(&w, model);
  hri_json_field_double(&w, "lora_alpha", lora->alpha);
  hri_json_field_double(&w, "lora_dropout", lora->dropout);
  put_null(&w, "modules_to_save");
  hri_json_field_string(&w, "peft_type", "LORA");
  hri_json_field_u64(&w, "r", lora->rank);
  put_empty(&w, "rank_pattern");
  put_targets(&w, model);
  hri_json_field_string(&w, "task_type", "CAUSAL_LM");
  hri_json_field_bool(&w, "use_dora", false);
  hri_json_field_bool(&w, "use_rslora", lora->rslora);
  hri_json_end_object(&w);
  hri_text_add(out, "\n");
}
