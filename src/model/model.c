/* Families as data, and opening what a user named. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rows.h"
#include "base/text.h"
#include "model/adapter.h"
#include "model/config.h"
#include "model/gguf.h"

/* ---- families ---- */

static const char *const family_names[HR_FAMILY_COUNT] =
    {[HR_FAMILY_GPT2] = "gpt2",         [HR_FAMILY_LLAMA] = "llama",
     [HR_FAMILY_MISTRAL] = "mistral",   [HR_FAMILY_QWEN2] = "qwen2",
     [HR_FAMILY_QWEN3] = "qwen3",       [HR_FAMILY_PHI3] = "phi3",
     [HR_FAMILY_GEMMA2] = "gemma2",     [HR_FAMILY_GEMMA3] = "gemma3_text",
     [HR_FAMILY_GEMMA] = "gemma",       [HR_FAMILY_SMOLLM3] = "smollm3",
     [HR_FAMILY_GRANITE] = "granite",   [HR_FAMILY_OLMO2] = "olmo2",
     [HR_FAMILY_STABLELM] = "stablelm", [HR_FAMILY_PHI] = "phi"};

const char *hr_family_name(hr_family family) {
  return (unsigned)family < HR_FAMILY_COUNT ? family_names[family] : "unknown";
}

bool hri_family_find(const char *name, hr_family *family) {
  for (unsigned i = 0; i < HR_FAMILY_COUNT; i++)
    if (strcmp(name, family_names[i]) == 0) {
      *family = (hr_family)i;
      return true;
    }
  return false;
}

bool hri_family_drops_embedding(hr_family family) { return family == HR_FAMILY_GPT2 || family == HR_FAMILY_PHI; }
bool hri_family_drops_residual(hr_family family) {
  return family == HR_FAMILY_GPT2 || family == HR_FAMILY_PHI3 || family == HR_FAMILY_PHI;
}
bool hri_family_drops_mlp(hr_family family) {
  return family == HR_FAMILY_STABLELM || hri_family_drops_residual(family);
}

hri_dropout hri_model_dropout(const hr_model *m, double asked) {
  const bool one = asked != HR_DROPOUT_CONFIG;
  const double residual = one ? asked : m->dropout.residual;
  return (hri_dropout){.attention = one ? asked : m->dropout.attention,
                       .attention_output = hri_family_drops_residual(m->family) ? residual : 0,
                       .mlp = hri_family_drops_mlp(m->family) ? residual : 0,
                       .embedding = !hri_family_drops_embedding(m->family) ? 0
                                    : one                                  ? asked
                                                                           : m->dropout.embedding};
}

bool hri_family_rounds_factor(hr_family family) { return family != HR_FAMILY_GRANITE; }

const char *hri_family_list(void) {
  return "gpt2, llama, mistral, qwen2, qwen3, phi, phi3, gemma, gemma2, gemma3_text (and the text part of gemma3), "
         "smollm3, granite, olmo2 and stablelm";
}

/* Defaults of the families' configurations in transformers. Tokens are dropped later when the vocabulary is too
 * small. */
static const hr_model family_defaults[HR_FAMILY_COUNT] = {
    [HR_FAMILY_GPT2] = {.family = HR_FAMILY_GPT2,
                        .norm = HR_NORM_LAYER,
                        .norm_epsilon = 1e-5,
                        .activation = HR_ACTIVATION_GELU_TANH,
                        .learned_positions = true,
                        .qkv_bias = true,
                        .attention_output_bias = true,
                        .mlp_bias = true,
                        .tied_embeddings = true,
                        .rope = {.theta = 10000, .factor = 1},
                        .init_std = 0.02,
                        .init_scale_residual = true,
                        .embedding_scale = 1,
                        .pad_token = -1,
                        .bos_token = 50256,
                        .eos_token = 50256,
                        .dropout = {0.1, 0.1, 0.1}},
    [HR_FAMILY_LLAMA] = {.family = HR_FAMILY_LLAMA,
                         .norm = HR_NORM_RMS,
                         .norm_epsilon = 1e-6,
                         .activation = HR_ACTIVATION_SILU,
                         .gated_mlp = true,
                         .rope = {.theta = 10000, .factor = 1},
                         .init_std = 0.02,
                         .embedding_scale = 1,
                         .pad_token = -1,
                         .bos_token = 1,
                         .eos_token = 2},
    [HR_FAMILY_MISTRAL] = {.family = HR_FAMILY_MISTRAL,
                           .norm = HR_NORM_RMS,
                           .norm_epsilon = 1e-6,
                           .activation = HR_ACTIVATION_SILU,
                           .gated_mlp = true,
                           .rope = {.theta = 10000, .factor = 1},
                           .init_std = 0.02,
                           .embedding_scale = 1,
                           .sliding_window = 4096,
                           .pad_token = -1,
                           .bos_token = 1,
                           .eos_token = 2},
    [HR_FAMILY_QWEN2] = {.family = HR_FAMILY_QWEN2,
                         .norm = HR_NORM_RMS,
                         .norm_epsilon = 1e-6,
                         .activation = HR_ACTIVATION_SILU,
                         .gated_mlp = true,
                         .qkv_bias = true,
                         .rope = {.theta = 10000, .factor = 1},
                         .init_std = 0.02,
                         .embedding_scale = 1,
                         .pad_token = -1,
                         .bos_token = -1,
                         .eos_token = -1},
    [HR_FAMILY_QWEN3] = {.family = HR_FAMILY_QWEN3,
                         .norm = HR_NORM_RMS,
                         .norm_epsilon = 1e-6,
                         .activation = HR_ACTIVATION_SILU,
                         .gated_mlp = true,
                         .qk_norm = true,
                         .rope = {.theta = 10000, .factor = 1},
                         .init_std = 0.02,
                         .embedding_scale = 1,
                         .pad_token = -1,
                         .bos_token = -1,
                         .eos_token = -1},
    [HR_FAMILY_PHI3] = {.family = HR_FAMILY_PHI3,
                        .norm = HR_NORM_RMS,
                        .norm_epsilon = 1e-5,
                        .activation = HR_ACTIVATION_SILU,
                        .gated_mlp = true,
                        .rope = {.theta = 10000, .factor = 1},
                        .init_std = 0.02,
                        .embedding_scale = 1,
                        .pad_token = 32000,
                        .bos_token = 1,
                        .eos_token = 32000},
    [HR_FAMILY_GEMMA2] = {.family = HR_FAMILY_GEMMA2,
                          .norm = HR_NORM_RMS,
                          .norm_epsilon = 1e-6,
                          .activation = HR_ACTIVATION_GELU_TANH,
                          .gated_mlp = true,
                          .post_norms = true,
                          .norm_weight_offset = 1,
                          .tied_embeddings = true,
                          .rope = {.theta = 10000, .factor = 1},
                          .init_std = 0.02,
                          .embedding_scale = 1,
                          .sliding_window = 4096,
                          .attention_softcap = 50,
                          .logit_softcap = 30,
                          .pad_token = 0,
                          .bos_token = 2,
                          .eos_token = 1},
    [HR_FAMILY_GEMMA3] = {.family = HR_FAMILY_GEMMA3,
                          .norm = HR_NORM_RMS,
                          .norm_epsilon = 1e-6,
                          .activation = HR_ACTIVATION_GELU_TANH,
                          .gated_mlp = true,
                          .qk_norm = true,
                          .post_norms = true,
                          .norm_weight_offset = 1,
                          .tied_embeddings = true,
                          .rope = {.theta = 1e6, .factor = 1},
                          .has_local_rope = true,
                          .local_rope = {.theta = 10000, .factor = 1},
                          .init_std = 0.02,
                          .embedding_scale = 1,
                          .sliding_window = 4096,
                          .pad_token = 0,
                          .bos_token = 2,
                          .eos_token = 1},
    [HR_FAMILY_GEMMA] = {.family = HR_FAMILY_GEMMA,
                         .norm = HR_NORM_RMS,
                         .norm_epsilon = 1e-6,
                         .activation = HR_ACTIVATION_GELU_TANH,
                         .gated_mlp = true,
                         .norm_weight_offset = 1,
                         .tied_embeddings = true,
                         .rope = {.theta = 10000, .factor = 1},
                         .init_std = 0.02,
                         .embedding_scale = 1,
                         .pad_token = 0,
                         .bos_token = 2,
                         .eos_token = 1},
    [HR_FAMILY_SMOLLM3] = {.family = HR_FAMILY_SMOLLM3,
                           .norm = HR_NORM_RMS,
                           .norm_epsilon = 1e-6,
                           .activation = HR_ACTIVATION_SILU,
                           .gated_mlp = true,
                           .tied_embeddings = true,
                           .rope = {.theta = 2e6, .factor = 1},
                           .init_std = 0.02,
                           .embedding_scale = 1,
                           .pad_token = 128004,
                           .bos_token = 128000,
                           .eos_token = 128001},
    [HR_FAMILY_GRANITE] = {.family = HR_FAMILY_GRANITE,
                           .norm = HR_NORM_RMS,
                           .norm_epsilon = 1e-6,
                           .activation = HR_ACTIVATION_SILU,
                           .gated_mlp = true,
                           .rope = {.theta = 10000, .factor = 1},
                           .init_std = 0.02,
                           .embedding_scale = 1,
                           .pad_token = -1,
                           .bos_token = 1,
                           .eos_token = 2},
    [HR_FAMILY_OLMO2] = {.family = HR_FAMILY_OLMO2,
                         .norm = HR_NORM_RMS,
                         .norm_epsilon = 1e-5,
                         .activation = HR_ACTIVATION_SILU,
                         .gated_mlp = true,
                         .qk_norm = true,
                         .qk_norm_whole = true,
                         .post_norms = true,
                         .no_pre_norms = true,
                         .rope = {.theta = 10000, .factor = 1},
                         .init_std = 0.02,
                         .embedding_scale = 1,
                         .pad_token = 1,
                         .bos_token = -1,
                         .eos_token = 50279},
    [HR_FAMILY_STABLELM] = {.family = HR_FAMILY_STABLELM,
                            .norm = HR_NORM_LAYER,
                            .norm_epsilon = 1e-5,
                            .activation = HR_ACTIVATION_SILU,
                            .gated_mlp = true,
                            .rope = {.theta = 10000, .factor = 1},
                            .init_std = 0.02,
                            .embedding_scale = 1,
                            .pad_token = -1,
                            .bos_token = 0,
                            .eos_token = 0},
    [HR_FAMILY_PHI] = {.family = HR_FAMILY_PHI,
                       .norm = HR_NORM_LAYER,
                       .norm_epsilon = 1e-5,
                       .activation = HR_ACTIVATION_GELU_TANH,
                       .parallel_residual = true,
                       .qkv_bias = true,
                       .attention_output_bias = true,
                       .mlp_bias = true,
                       .head_bias = true,
                       .rope = {.theta = 10000, .factor = 1},
                       .init_std = 0.02,
                       .embedding_scale = 1,
                       .pad_token = -1,
                       .bos_token = 1,
                       .eos_token = 2},
};

void hri_family_defaults(hr_model *model, hr_family family) {
  *model = family_defaults[family];
  model->residual_scale = model->logit_divisor = 1;
}

double hri_family_partial(hr_family family) {
  return family == HR_FAMILY_PHI ? 0.5 : family == HR_FAMILY_STABLELM ? 0.25 : 1;
}

void hri_family_rope_layers(hr_model *model, uint64_t interval) {
  memset(model->no_rope, 0, sizeof model->no_rope);
  for (uint32_t l = 0; l < model->layer_count && l < HR_MAX_LAYERS; l++)
    model->no_rope[l] = model->family == HR_FAMILY_SMOLLM3 && (l + 1) % interval == 0;
}

void hri_family_derive(hr_model *model) {
  if (model->kv_head_count == 0) model->kv_head_count = model->head_count;
  if (model->head_size == 0 && model->head_count > 0) model->head_size = model->hidden_size / model->head_count;
  if (model->rotary_size == 0 && !model->learned_positions)
    model->rotary_size = (uint32_t)(model->head_size * hri_family_partial(model->family));
  if (model->attention_scale == 0 && model->head_size > 0)
    model->attention_scale = 1.0 / sqrt((double)model->head_size);
  if (hri_family_in(model, HRI_ALL_GEMMA)) model->embedding_scale = sqrt((double)model->hidden_size);
}

void hri_family_windows(hr_model *model, uint64_t first, uint64_t pattern) {
  bool qwen = model->family == HR_FAMILY_QWEN2 || model->family == HR_FAMILY_QWEN3;
  for (uint32_t l = 0; l < model->layer_count && l < HR_MAX_LAYERS; l++) /* sizes are not checked yet */
    model->sliding[l] = model->family == HR_FAMILY_GEMMA2    ? l % 2 == 0
                        : model->family == HR_FAMILY_GEMMA3  ? (l + 1) % pattern != 0
                        : model->family == HR_FAMILY_SMOLLM3 ? model->sliding_window > 0 && model->no_rope[l]
                                                             : model->sliding_window > 0 && (!qwen || l >= first);
}

void hri_model_set_text(char *out, size_t bytes, const char *text) {
  size_t count = strlen(text);
  if (count >= bytes)
    for (count = bytes - 1; count > 0 && ((unsigned char)text[count] & 0xC0) == 0x80;) count--;
  memcpy(out, text, count);
  out[count] = 0;
}

/* ---- open ---- */

enum { CONFIG_LIMIT_BYTES = 4 << 20 }; /* real ones are a few KiB */

/* The last component of the resolved path, so that "." has a name too. */
static void name_after(const char *path, hr_model *model) {
#if defined(__wasi__) /* has no such function: "." then is its own name */
  const char *full = path;
#else
  char resolved[PATH_MAX];
  const char *full = realpath(path, resolved) ? resolved : path;
#endif
  const char *last = strrchr(full, '/');
  hri_model_set_text(model->name, sizeof model->name, last && last[1] ? last + 1 : full);
}

static hr_status read_config(const char *path, hr_model *model, hr_error *error) {
  char *text;
  uint64_t bytes;
  hr_status status;
  HRI_TRY(hri_file_read(path, CONFIG_LIMIT_BYTES, &text, &bytes, error));
  status = hr_model_parse(text, bytes, path, model, error);
  hri_free(text);
  return status;
}

/* 1: `dir` holds the file, 0: it does not, -1: memory was refused. */
static int holds(const char *dir, const char *file) {
  char *path = hri_path_join(dir, file);
  int found = path ? hri_path_exists(path) : -1;
  hri_free(path);
  return found;
}

/* Records where the model is and whether its weights are there. Weights in a form that is not read are refused:
 * training
 * would otherwise start from random values without a word. */
static hr_status find_weights(const char *dir, hr_model *model, hr_error *error) {
  static const struct {
    const char *file;
    bool readable;
  } kinds[] = {{"model.safetensors", true},
               {"model.safetensors.index.json", true},
               {"pytorch_model.bin", false},
               {"pytorch_model.bin.index.json", false}};
  size_t length = strlen(dir);
  while (length > 1 && dir[length - 1] == '/') length--;
  if (length >= sizeof model->directory)
    return hri_fail(error, HR_ERROR_USAGE, "the path of the model has %zu bytes; at most %zu are supported", length,
                    sizeof model->directory - 1);
  memcpy(model->directory, dir, length);
  model->directory[length] = 0;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    int found = holds(dir, kinds[i].file);
    if (found < 0) return hri_fail_memory(error, length, "a path");
    if (found && !kinds[i].readable) {
      hri_fail(error, HR_ERROR_INPUT, "%s holds its weights as %s, which is not read", dir, kinds[i].file);
      return hri_hint(error, HR_ERROR_INPUT,
                      "save the model as safetensors first, or name %s/config.json to start without weights", dir);
    }
    if (!found) continue;
    model->has_weights = true;
    return HR_OK;
  }
  return HR_OK;
}

static hr_status open_directory(const char *dir, const char *config, hr_model *model, hr_error *error) {
  hr_model found;
  HRI_TRY(read_config(config, &found, error));
  name_after(dir, &found);
  HRI_TRY(find_weights(dir, &found, error));
  *model = found;
  return HR_OK;
}

static bool has_ending(const char *name, const char *ending) {
  size_t length = strlen(name), of = strlen(ending);
  return length > of && strcasecmp(name + length - of, ending) == 0;
}

/* "meta-llama/Llama-3.1-8B": an owner and a name, as the Hub has them, and no directory of that owner is here. */
static bool is_hub_id(const char *source) {
  const char *slash = strchr(source, '/');
  char owner[128];
  if (!slash || slash == source || !slash[1] || strchr(slash + 1, '/') || source[0] == '.' || source[0] == '~')
    return false;
  for (const char *c = source; *c; c++)
    if (!isalnum((unsigned char)*c) && !strchr("-_./", *c)) return false;
  (void)snprintf(owner, sizeof owner, "%.*s", (int)(slash - source), source);
  return !hri_path_exists(owner) && !has_ending(slash, ".json") && !has_ending(slash, ".gguf") &&
         !has_ending(slash, ".safetensors");
}

/* What a path is that led nowhere; `status` and the error are those of the failed look-up among the presets. */
static hr_status explain_path(const char *source, hr_status status, hr_error *error) {
  if (status != HR_ERROR_USAGE || strncasecmp(source, "custom:", 7) == 0) return status;
  if (hri_path_is_dir(source)) {
    hri_fail(error, HR_ERROR_INPUT, "%s: there is no config.json in this directory", source);
    return hri_hint(error, HR_ERROR_INPUT, "name a directory in Hugging Face layout; a run keeps its model in final/");
  }
  if (is_hub_id(source)) {
    const char *preset = hri_preset_of_hub(source);
    hri_fail(error, HR_ERROR_USAGE, "%s: there is no such directory here, and nothing is downloaded", source);
    if (!preset)
      return hri_hint(error, HR_ERROR_USAGE,
                      "download the model and name its directory; for a plan its config.json is enough");
    return hri_hint(error, HR_ERROR_USAGE,
                    "for a plan, %s: a model of these sizes, without weights; to train it, download it and name its "
                    "directory",
                    preset);
  }
  if (strchr(source, '/') || has_ending(source, ".json")) {
    hri_fail(error, HR_ERROR_USAGE, "%s: there is no such file or directory, and no preset of this name", source);
    return hri_hint(error, HR_ERROR_USAGE, "check the path");
  }
  return status;
}

/* A directory of adapters: the model that they belong to, with them. */
static hr_status open_adapted(const char *directory, hr_model *model, hr_error *error) {
  char base[1024];
  hr_model found;
  HRI_TRY(hri_adapter_base(directory, base, error));
  if (!hri_path_exists(base)) {
    hri_fail(error, HR_ERROR_INPUT, "%s: the model of its adapters, %s, is not there", directory, base);
    return hri_hint(error, HR_ERROR_INPUT, "name the model, and the adapters by --adapter %.200s", directory);
  }
  HRI_TRY(hr_model_open(base, &found, error));
  HRI_TRY(hri_adapter_open(directory, &found, error));
  *model = found;
  return HR_OK;
}

hr_status hr_model_open(const char *source, hr_model *model, hr_error *error) {
  hr_status status;
  if (!source || !*source)
    return hri_fail(error, HR_ERROR_USAGE, "the model is missing: name a directory, a config.json or a preset");
  if (hri_path_is_dir(source)) {
    char *config = hri_path_join(source, "config.json");
    if (!config) return hri_fail_memory(error, strlen(source) + 13, "a path");
    if (hri_path_exists(config)) {
      status = open_directory(source, config, model, error);
      hri_free(config);
      return status;
    }
    hri_free(config);
    if (holds(source, HRI_ADAPTER_CONFIG) == 1) return open_adapted(source, model, error);
  } else if (hri_path_exists(source)) {
    if (has_ending(source, ".gguf") || hri_gguf_is(source)) return hri_gguf_model_open(source, model, error);
    if (hri_rows_file(source)) {
      hri_fail(error, HR_ERROR_INPUT, "%s holds " HRI_ROWS_ARE ", and no model", source);
      return hri_hint(error, HR_ERROR_INPUT,
                      "a model is a directory, a config.json, a GGUF file or a preset; data stands behind --data of "
                      "headroom train, and behind the model in headroom tokenize MODEL FILE");
    }
    status = read_config(source, model, error);
    if (status != HR_ERROR_INPUT || has_ending(source, ".json")) return status;
    return hri_hint(error, status,
                    "a model is a directory, a config.json, a GGUF file or a preset; data stands behind --data");
  }
  return explain_path(source, hr_model_preset(source, model, error), error);
}
