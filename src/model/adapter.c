/* adapter_config.json: what PEFT's keys mean for the model, what of them is not read, and the text that we write. */
#include "model/adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/gguf.h"
#include "model/lora.h"
#include "model/params.h"

enum { CONFIG_LIMIT_BYTES = 4 << 20 };

typedef HRI_ARRAY(hri_lora_rule) rule_list;
static const char *const biases[HR_LORA_BIAS_COUNT] = {"none", "all", "lora_only"};

/* ---- reading ---- */

/* null, false, 0, "", [] and {} say nothing. */
static bool says_something(const json_t *value) {
  if (!value || json_is_null(value) || json_is_false(value)) return false;
  if (json_is_array(value)) return json_array_size(value) > 0;
  if (json_is_object(value)) return json_object_size(value) > 0;
  if (json_is_string(value)) return json_string_length(value) > 0;
  return !json_is_number(value) || json_number_value(value) != 0;
}

#define TARGET_WANTED "a linear module of a layer of this %s model, such as self_attn.o_proj, or its embedding"

static hr_status unsupported(const hri_json *root, const char *key, const char *what, hr_error *error) {
  hr_status status = hri_fail(error, HR_ERROR_UNSUPPORTED, "%s: field '%s': %s are not read", root->file, key, what);
  return hri_hint(error, status, "merge the adapter with PEFT (merge_and_unload) and name the merged model");
}

static hr_status refuse_unread(const hri_json *root, hr_error *error) {
  static const struct {
    const char *key, *what;
  } keys[] = {{"use_qalora", "QALoRA adapters"},
              {"lora_bias", "adapters with biases"},
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
  text = json_string_value(hri_json_member(root, "init_lora_weights").value);
  for (size_t k = 0; text && k < sizeof starts / sizeof *starts; k++)
    if (strncmp(text, starts[k], strlen(starts[k])) == 0)
      return unsupported(root, "init_lora_weights", "adapters whose start changed the base", error);
  HRI_TRY(hri_json_get_string(root, "peft_type", &text, error));
  return strcmp(text, "LORA") == 0 ? HR_OK : unsupported(root, "peft_type", "adapters that are not LORA", error);
}

/* Modules whose whole path a name is: those that PEFT takes whatever layers_to_transform says. */
static void take_path(const char *target, const hr_model *model, hr_lora *paths) {
  char name[96];
  for (uint32_t l = 0; l < model->layer_count; l++)
    for (int k = 0; k < HR_MODULE_COUNT; k++)
      if (hri_module_name(model, (hr_module)k, (int32_t)l, name) && strcmp(name, target) == 0)
        paths->modules[l] |= (uint8_t)(1u << k);
  hri_embedding_name(model, name);
  if (strcmp(name, target) == 0) paths->embedding = true;
}

/* A name is that of a module, the end of one behind a dot, or a whole path with its layer, as PEFT writes "all-linear"
 * down. Lists for several families have names that mean nothing here, as for PEFT. */
static hr_status take_target(const hri_json *item, const hr_model *model, hr_lora *lora, hr_lora *paths, bool *found,
                             hr_error *error) {
  const char *target = json_string_value(item->value);
  if (target && strcmp(target, "all-linear") != 0) {
    take_path(target, model, paths);
    if (hri_lora_add_target(model, target, lora)) {
      *found = true;
      return HR_OK;
    }
    if (!hri_lora_names_module(model, target)) return HR_OK;
  }
  return hri_json_fail(item, error, TARGET_WANTED, hr_family_name(model->family));
}

static hr_status take_expression(const hri_json *item, const hr_model *model, hr_lora *lora, hr_error *error) {
  const char *text = json_string_value(item->value), *fault;
  bool found;
  if (strcmp(text, "all-linear") == 0) {
    (void)hri_lora_add_target(model, text, lora);
    return HR_OK;
  }
  fault = hri_lora_add_pattern(model, text, lora, &found);
  if (fault) return hri_json_fail(item, error, "a regular expression that can be read; of this one %s", fault);
  if (found) return HR_OK;
  return hri_json_fail(item, error,
                       "an expression that matches the whole path of a linear module of a layer of this "
                       "%s model",
                       hr_family_name(model->family));
}

static hr_status take_targets(const hri_json *root, const hr_model *model, hr_lora *lora, hr_lora *paths,
                              hr_error *error) {
  hri_json targets = hri_json_member(root, "target_modules"), first;
  bool found = false;
  if (json_is_string(targets.value)) return take_expression(&targets, model, lora, error);
  if (!json_is_array(targets.value) || json_array_size(targets.value) == 0)
    return hri_json_fail(&targets, error, "a list of names of modules");
  for (uint64_t k = 0; k < hri_json_count(&targets); k++) {
    hri_json item = hri_json_item(&targets, k);
    HRI_TRY(take_target(&item, model, lora, paths, &found, error));
  }
  first = hri_json_item(&targets, 0);
  return found ? HR_OK : hri_json_fail(&first, error, TARGET_WANTED, hr_family_name(model->family));
}

/* An expression of whole paths, or a list of names as target_modules has them; they come before everything else. */
static hr_status take_exclusions(const hri_json *root, const hr_model *model, hr_lora *lora, hr_error *error) {
  hri_json list = hri_json_member(root, "exclude_modules");
  hr_lora out = {0};
  bool found;
  if (!says_something(list.value)) return HR_OK;
  if (json_is_string(list.value)) {
    const char *fault = hri_lora_add_pattern(model, json_string_value(list.value), &out, &found);
    if (fault) return hri_json_fail(&list, error, "a regular expression that can be read; of this one %s", fault);
  } else if (!json_is_array(list.value)) {
    return hri_json_fail(&list, error, "a regular expression or a list of names of modules");
  }
  for (uint64_t k = 0; json_is_array(list.value) && k < hri_json_count(&list); k++) {
    hri_json item = hri_json_item(&list, k);
    const char *name = json_string_value(item.value);
    if (!name) return hri_json_fail(&item, error, "the name of a module");
    if (strcmp(name, "all-linear") != 0) (void)hri_lora_add_target(model, name, &out);
  }
  for (uint32_t l = 0; l < model->layer_count; l++) lora->modules[l] &= (uint8_t)~out.modules[l];
  lora->embedding = lora->embedding && !out.embedding;
  return HR_OK;
}

static hr_status take_layer(const hri_json *item, const hr_model *model, bool *layers, hr_error *error) {
  json_int_t layer = json_is_integer(item->value) ? json_integer_value(item->value) : -1;
  if (layer < 0 || layer >= (json_int_t)model->layer_count)
    return hri_json_fail(item, error, "layers from 0 to %u", model->layer_count - 1);
  layers[layer] = true;
  return HR_OK;
}

static hr_status take_layers(const hri_json *root, const hr_model *model, bool layers[HR_MAX_LAYERS], hr_error *error) {
  hri_json list = hri_json_member(root, "layers_to_transform");
  if (!says_something(list.value) && !json_is_integer(list.value)) {
    for (uint32_t l = 0; l < model->layer_count; l++) layers[l] = true;
    return HR_OK;
  }
  if (!json_is_array(list.value)) return take_layer(&list, model, layers, error);
  for (uint64_t k = 0; k < hri_json_count(&list); k++) {
    hri_json item = hri_json_item(&list, k);
    HRI_TRY(take_layer(&item, model, layers, error));
  }
  return HR_OK;
}

static hr_status take_places(const hri_json *root, const hr_model *model, hr_lora *lora, hr_error *error) {
  bool layers[HR_MAX_LAYERS] = {0}, any = false;
  hr_lora paths = {0};
  HRI_TRY(take_targets(root, model, lora, &paths, error));
  HRI_TRY(take_layers(root, model, layers, error));
  if (json_is_string(hri_json_member(root, "target_modules").value) &&
      says_something(hri_json_member(root, "layers_to_transform").value)) {
    hri_json list = hri_json_member(root, "layers_to_transform");
    return hri_json_fail(&list, error,
                         "nothing, as for PEFT, where target_modules is one text; its expression says which");
  }
  if (says_something(hri_json_member(root, "layers_to_transform").value) ||
      json_is_integer(hri_json_member(root, "layers_to_transform").value))
    lora->embedding = false; /* peft tuners_utils.py, check_target_module_exists: it has no index of a layer */
  lora->embedding = lora->embedding || paths.embedding;
  for (uint32_t l = 0; l < model->layer_count; l++)
    lora->modules[l] = (uint8_t)((layers[l] ? lora->modules[l] : 0) | paths.modules[l]);
  HRI_TRY(take_exclusions(root, model, lora, error));
  any = lora->embedding;
  for (uint32_t l = 0; l < model->layer_count; l++) any = any || lora->modules[l] != 0;
  if (any) return HR_OK;
  return hri_hint(error,
                  hri_fail(error, HR_ERROR_INPUT,
                           "%s: target_modules, layers_to_transform and exclude_modules name no module together",
                           root->file),
                  "correct the file, or fetch it anew if it is damaged");
}

/* The entries of rank_pattern or alpha_pattern, in the order of the file, by which PEFT goes too. Entries that no module
 * goes by mean nothing there and here. */
static hr_status take_rules(const hri_json *root, const char *name, double least, double most, rule_list *rules,
                            uint32_t *count, hr_error *error) {
  hri_json map = hri_json_member(root, name);
  const char *key;
  json_t *value;
  *count = 0;
  if (!says_something(map.value)) return HR_OK;
  if (!json_is_object(map.value)) return hri_json_fail(&map, error, "a mapping of names of modules to numbers");
  json_object_foreach(map.value, key, value) {
    hri_json item = hri_json_member(&map, key);
    hri_lora_rule rule = {.key = key, .value = json_number_value(value)};
    bool good = json_is_number(value) && rule.value >= least && rule.value <= most;
    if (good && least == 1) good = json_is_integer(value);
    if (!good) return hri_json_fail(&item, error, "a number from %g to %g", least, most);
    if (!hri_array_push(rules, rule)) return hri_fail_memory(error, sizeof rule, name);
    (*count)++;
  }
  return HR_OK;
}

static hr_status take_patterns(const hri_json *root, const hr_model *model, hr_lora *lora, hr_error *error) {
  rule_list rules = {0};
  uint32_t ranks = 0, alphas = 0, bad;
  const char *fault = NULL;
  hr_status status = take_rules(root, "rank_pattern", 1, 4096, &rules, &ranks, error);
  if (status == HR_OK) status = take_rules(root, "alpha_pattern", 1e-6, 1e6, &rules, &alphas, error);
  if (status == HR_OK) fault = hri_lora_apply(model, lora, rules.items, ranks, alphas, &bad);
  if (fault) {
    status =
        hri_fail(error, HR_ERROR_INPUT, "%s: field '%s': '%.100s': %s", root->file,
                 bad < ranks ? "rank_pattern" : "alpha_pattern", ranks + alphas ? rules.items[bad].key : "", fault);
    (void)hri_hint(error, status, "merge the adapter with PEFT (merge_and_unload) and name the merged model");
  }
  hri_array_free(&rules);
  return status;
}

static hr_status take_bias(const hri_json *root, hr_lora *lora, hr_error *error) {
  hri_json item = hri_json_member(root, "bias");
  const char *text = NULL;
  HRI_TRY(hri_json_opt_string(root, "bias", &text, error));
  for (int k = 0; text && k < HR_LORA_BIAS_COUNT; k++)
    if (strcmp(text, biases[k]) == 0) {
      lora->bias = (hr_lora_bias)k;
      return HR_OK;
    }
  return text ? hri_json_fail(&item, error, "none, all or lora_only") : HR_OK;
}

static hr_status take_saved(const hri_json *root, const hr_model *model, hr_lora *lora, hr_error *error) {
  hri_json list = hri_json_member(root, "modules_to_save");
  if (!says_something(list.value)) return HR_OK;
  if (!json_is_array(list.value)) return hri_json_fail(&list, error, "a list of names of modules");
  for (uint64_t k = 0; k < hri_json_count(&list); k++) {
    hri_json item = hri_json_item(&list, k);
    const char *name = json_string_value(item.value),
               *fault = name ? hri_lora_add_saved(model, name, lora) : "it is no name";
    if (fault)
      return hri_json_fail(&item, error, "embeddings, norms or the head of this %s model; of this one %s",
                           hr_family_name(model->family), fault);
  }
  return HR_OK;
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
  HRI_TRY(hri_json_opt_bool(root, "use_dora", &lora->dora, error));
  lora->rank = (uint32_t)rank;
  HRI_TRY(take_places(root, model, lora, error));
  HRI_TRY(take_patterns(root, model, lora, error));
  HRI_TRY(take_bias(root, lora, error));
  HRI_TRY(take_saved(root, model, lora, error));
  if (hri_lora_embedding_fault(lora)) {
    hri_fail(error, HR_ERROR_UNSUPPORTED, "%s: field 'target_modules': %s", root->file, hri_lora_embedding_fault(lora));
    return hri_hint(error, HR_ERROR_UNSUPPORTED,
                    "merge the adapter with PEFT (merge_and_unload) and name the merged model");
  }
  if (lora->alpha >= 1e-6 && lora->alpha <= 1e6 && lora->dropout >= 0 && lora->dropout < 1) return HR_OK;
  return hri_hint(error,
                  hri_fail(error, HR_ERROR_INPUT, "%s: lora_alpha %g and lora_dropout %g make no adapter", root->file,
                           lora->alpha, lora->dropout),
                  "lora_alpha is from 1e-6 to 1e6, and lora_dropout from 0 to below 1");
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

static hr_status open_directory(const char *directory, hr_model *model, hr_error *error) {
  hr_lora lora;
  hri_json root = {0};
  char *path = NULL;
  hr_status status = read_config(directory, &path, &root, error);
  if (status == HR_OK) status = take(&root, model, &lora, error);
  if (status == HR_OK) {
    model->lora = lora;
    (void)snprintf(model->adapter, sizeof model->adapter, "%s", directory);
  }
  hri_json_deinit(&root);
  hri_free(path);
  return status;
}

hr_status hri_adapter_open(const char *source, hr_model *model, hr_error *error) {
  if (strlen(source) >= sizeof model->adapter)
    return hri_fail(error, HR_ERROR_USAGE, "the path of the adapter has %zu bytes; at most %zu are supported",
                    strlen(source), sizeof model->adapter - 1);
  return (hri_gguf_is(source) ? hri_gguf_adapter_open : open_directory)(source, model, error);
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

/* The layers that have adapters have the same modules of them, and each module one kind: names say it for all of them.
 * `module`: -1 for the former. */
static bool same_everywhere(const hr_model *model, int module) {
  const hr_lora *lora = &model->lora;
  uint32_t first = 0;
  while (first < model->layer_count &&
         (lora->modules[first] == 0 || (module >= 0 && !(lora->modules[first] >> module & 1))))
    first++; /* to the end where the embedding alone has one */
  for (uint32_t l = first; l < model->layer_count; l++) {
    if (module < 0 && lora->modules[l] != 0 && lora->modules[l] != lora->modules[first]) return false;
    if (module >= 0 && (lora->modules[l] >> module & 1) && lora->kinds[l][module] != lora->kinds[first][module])
      return false;
  }
  return true;
}

/* The shortest end of a module's name that means it alone: "c_attn", but "attn.c_proj" and "mlp.c_proj". */
static void short_name(const hr_model *model, int module, char out[96]) {
  hr_lora one = {0};
  char name[96];
  const char *dot;
  (void)hri_module_name(model, (hr_module)module, -1, name);
  dot = strrchr(name, '.');
  if (dot) (void)hri_lora_add_target(model, dot + 1, &one);
  (void)snprintf(out, 96, "%s", one.modules[0] == 1u << module ? dot + 1 : name);
}

static bool in_all_layers(const hr_model *model) {
  bool all = true;
  for (uint32_t l = 0; l < model->layer_count; l++) all = all && model->lora.modules[l] != 0;
  return all;
}

/* "embed_tokens", which is no end of another module's name. */
static const char *embedding_leaf(const hr_model *model, char name[96]) {
  hri_embedding_name(model, name);
  return strrchr(name, '.') + 1;
}

/* Calls `put` with the name of each adapted module; once, with a short one, where that says it for all layers. */
typedef void (*put_name)(hri_json_writer *w, const hr_model *model, const char *name, uint32_t layer, int module);
static void put_names(hri_json_writer *w, const hr_model *model, bool of_targets, put_name put) {
  /* layers_to_transform would leave the embedding out */
  bool alike = same_everywhere(model, -1) && (!model->lora.embedding || in_all_layers(model));
  for (int k = 0; k < HR_MODULE_COUNT; k++) {
    bool done = false;
    for (uint32_t l = 0; l < model->layer_count && !done; l++) {
      char name[96];
      if (!(model->lora.modules[l] >> k & 1)) continue;
      done = of_targets ? alike : same_everywhere(model, k);
      if (done) short_name(model, k, name);
      else (void)hri_module_name(model, (hr_module)k, (int32_t)l, name);
      put(w, model, name, l, k);
    }
  }
}

static void put_target(hri_json_writer *w, const hr_model *model, const char *name, uint32_t layer, int module) {
  (void)model, (void)layer, (void)module;
  hri_json_put_string(w, name);
}

static void put_rank(hri_json_writer *w, const hr_model *model, const char *name, uint32_t layer, int module) {
  uint8_t kind = model->lora.kinds[layer][module];
  if (kind && model->lora.own[kind - 1].rank != model->lora.rank)
    hri_json_field_u64(w, name, model->lora.own[kind - 1].rank);
}

static void put_alpha(hri_json_writer *w, const hr_model *model, const char *name, uint32_t layer, int module) {
  uint8_t kind = model->lora.kinds[layer][module];
  if (kind && model->lora.own[kind - 1].alpha != model->lora.alpha)
    hri_json_field_double(w, name, model->lora.own[kind - 1].alpha);
}

static void put_pattern(hri_json_writer *w, const hr_model *model, const char *key, put_name put, bool of_ranks) {
  const hr_lora *lora = &model->lora;
  const hr_lora_kind *own = lora->embedding_kind ? &lora->own[lora->embedding_kind - 1] : NULL;
  char name[96];
  hri_json_key(w, key);
  hri_json_begin_object(w);
  put_names(w, model, false, put);
  if (own && of_ranks && own->rank != lora->rank) hri_json_field_u64(w, embedding_leaf(model, name), own->rank);
  if (own && !of_ranks && own->alpha != lora->alpha) hri_json_field_double(w, embedding_leaf(model, name), own->alpha);
  hri_json_end_object(w);
}

static void put_targets(hri_json_writer *w, const hr_model *model) {
  char name[96];
  hri_json_key(w, "target_modules");
  hri_json_begin_array(w);
  put_names(w, model, true, put_target);
  if (model->lora.embedding) hri_json_put_string(w, embedding_leaf(model, name));
  hri_json_end_array(w);
}

/* Null where target_modules are paths, which have their layers. */
static void put_layers(hri_json_writer *w, const hr_model *model) {
  hri_json_key(w, "layers_to_transform");
  if (in_all_layers(model) || model->lora.embedding || !same_everywhere(model, -1)) {
    hri_json_put_null(w);
    return;
  }
  hri_json_begin_array(w);
  for (uint32_t l = 0; l < model->layer_count; l++)
    if (model->lora.modules[l]) hri_json_put_u64(w, l);
  hri_json_end_array(w);
}

/* The last of a module's name; two of the final norm, whose last is the end of all norms' names. */
static void put_saved(hri_json_writer *w, const hr_model *model) {
  hr_model whole = *model;
  uint32_t seen = 0;
  hri_json_key(w, "modules_to_save");
  if (!model->lora.saved) {
    hri_json_put_null(w);
    return;
  }
  whole.tied_embeddings = false;
  whole.lora = (hr_lora){0};
  hri_json_begin_array(w);
  for (uint32_t p = 0; p < hri_param_count(&whole); p++) {
    hri_param_spec spec;
    char *end, *name;
    hri_param_get(&whole, p, &spec);
    if (!(model->lora.saved >> spec.slot & 1) || (seen >> spec.slot & 1) || spec.slot == HRI_SLOT_NORM1_BIAS ||
        spec.slot == HRI_SLOT_NORM2_BIAS || spec.slot == HRI_SLOT_FINAL_NORM_BIAS || spec.slot == HRI_SLOT_HEAD_BIAS)
      continue;
    seen |= 1u << spec.slot;
    name = spec.parts[0].name;
    end = strrchr(name, '.');
    *end = 0;
    if (spec.slot != HRI_SLOT_FINAL_NORM_WEIGHT && strrchr(name, '.')) name = strrchr(name, '.') + 1;
    hri_json_put_string(w, name);
  }
  hri_json_end_array(w);
}

static void put_base(hri_json_writer *w, const char *base) {
  hri_json_key(w, "base_model_name_or_path");
  if (base) hri_json_put_string(w, base);
  else hri_json_put_null(w);
}

static void put_null(hri_json_writer *w, const char *key) {
  hri_json_key(w, key);
  hri_json_put_null(w);
}

void hri_adapter_text(const hr_model *model, const char *base, hri_text *out) {
  hri_json_writer w = hri_json_writer_init(out, 2);
  const hr_lora *lora = &model->lora;
  hri_json_begin_object(&w);
  put_pattern(&w, model, "alpha_pattern", put_alpha, false);
  put_base(&w, base);
  hri_json_field_string(&w, "bias", biases[lora->bias]);
  hri_json_field_bool(&w, "fan_in_fan_out", model->family == HR_FAMILY_GPT2);
  hri_json_field_bool(&w, "inference_mode", true);
  hri_json_key(&w, "init_lora_weights");
  if (lora->gaussian) hri_json_put_string(&w, "gaussian");
  else hri_json_put_bool(&w, true);
  put_null(&w, "layers_pattern");
  put_layers(&w, model);
  hri_json_field_double(&w, "lora_alpha", lora->alpha);
  hri_json_field_double(&w, "lora_dropout", lora->dropout);
  put_saved(&w, model);
  hri_json_field_string(&w, "peft_type", "LORA");
  hri_json_field_u64(&w, "r", lora->rank);
  put_pattern(&w, model, "rank_pattern", put_rank, true);
  put_targets(&w, model);
  hri_json_field_string(&w, "task_type", "CAUSAL_LM");
  hri_json_field_bool(&w, "use_dora", lora->dora);
  hri_json_field_bool(&w, "use_rslora", lora->rslora);
  hri_json_end_object(&w);
  hri_text_add(out, "\n");
}
