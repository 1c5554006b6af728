/* Families as data, the check of a description, and opening what a user named. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "model/family.h"

/* ---- families ---- */

static const char *const family_names[HR_FAMILY_COUNT] = {[HR_FAMILY_GPT2] = "gpt2", [HR_FAMILY_LLAMA] = "llama"};

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

const char *hri_family_list(void) { return "gpt2, llama"; }

/* Defaults of transformers' GPT2Config and LlamaConfig. Tokens are dropped later when the vocabulary is too small. */
static const hr_model family_defaults[HR_FAMILY_COUNT] = {
    [HR_FAMILY_GPT2] = {.family = HR_FAMILY_GPT2, .norm = HR_NORM_LAYER, .norm_epsilon = 1e-5, .activation = HR_ACTIVATION_GELU_TANH,
                        .learned_positions = true, .qkv_bias = true, .attention_output_bias = true, .mlp_bias = true,
                        .tied_embeddings = true, .rope = {.theta = 10000, .factor = 1}, .init_std = 0.02,
                        .init_scale_residual = true, .pad_token = -1, .bos_token = 50256, .eos_token = 50256, .dropout = 0.1},
    [HR_FAMILY_LLAMA] = {.family = HR_FAMILY_LLAMA, .norm = HR_NORM_RMS, .norm_epsilon = 1e-6, .activation = HR_ACTIVATION_SILU,
                         .gated_mlp = true, .rope = {.theta = 10000, .factor = 1}, .init_std = 0.02,
                         .pad_token = -1, .bos_token = 1, .eos_token = 2},
};

void hri_family_defaults(hr_model *model, hr_family family) { *model = family_defaults[family]; }

void hri_family_derive(hr_model *model) {
  if (model->kv_head_count == 0) model->kv_head_count = model->head_count;
  if (model->head_size == 0 && model->head_count > 0) model->head_size = model->hidden_size / model->head_count;
  model->attention_scale = model->head_size > 0 ? 1.0 / sqrt((double)model->head_size) : 0;
}

void hri_model_set_text(char *out, size_t bytes, const char *text) {
  size_t count = strlen(text);
  if (count >= bytes)
    for (count = bytes - 1; count > 0 && ((unsigned char)text[count] & 0xC0) == 0x80;) count--;
  memcpy(out, text, count);
  out[count] = 0;
}

void hr_free(void *memory) { hri_free(memory); }

/* ---- check ---- */

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
      return hri_fail(error, HR_ERROR_USAGE, "%s is %u; it must be from 1 to %u", size_fields[i].name, value, size_fields[i].max);
  }
  if (m->head_count % m->kv_head_count != 0)
    return hri_fail(error, HR_ERROR_USAGE, "head_count (%u) must be a multiple of kv_head_count (%u)", m->head_count, m->kv_head_count);
  if (!m->learned_positions && m->head_size % 2 != 0)
    return hri_fail(error, HR_ERROR_USAGE, "head_size is %u; rotary positions rotate pairs, so it must be even", m->head_size);
  qkv_rows = ((uint64_t)m->head_count + 2 * (uint64_t)m->kv_head_count) * m->head_size;
  if (qkv_rows > HRI_MODEL_MAX_QKV_ROWS)
    return hri_fail(error, HR_ERROR_USAGE, "head_count and head_size make %llu rows of q, k and v; at most %d make sense",
                    (unsigned long long)qkv_rows, HRI_MODEL_MAX_QKV_ROWS);
  return HR_OK;
}

static bool positive(double value) { return isfinite(value) && value > 0; }

static hr_status check_rope(const hr_rope *rope, hr_error *error) {
  if (!positive(rope->theta)) return hri_fail(error, HR_ERROR_USAGE, "rope.theta is %g; it must be positive", rope->theta);
  if ((unsigned)rope->scaling > HR_ROPE_LLAMA3) return hri_fail(error, HR_ERROR_USAGE, "rope.scaling is no known kind");
  if (rope->scaling == HR_ROPE_DEFAULT) return HR_OK;
  if (!positive(rope->factor)) return hri_fail(error, HR_ERROR_USAGE, "rope.factor is %g; it must be positive", rope->factor);
  if (rope->scaling == HR_ROPE_LINEAR) return HR_OK;
  if (!positive(rope->low_frequency_factor) || !positive(rope->high_frequency_factor) ||
      rope->high_frequency_factor <= rope->low_frequency_factor)
    return hri_fail(error, HR_ERROR_USAGE, "rope.low_frequency_factor (%g) and rope.high_frequency_factor (%g) must be positive and ascending",
                    rope->low_frequency_factor, rope->high_frequency_factor);
  if (rope->original_max_positions == 0 || rope->original_max_positions > HRI_MODEL_MAX_POSITIONS)
    return hri_fail(error, HR_ERROR_USAGE, "rope.original_max_positions is %u; it must be from 1 to %d", rope->original_max_positions, HRI_MODEL_MAX_POSITIONS);
  return HR_OK;
}

static hr_status check_numbers(const hr_model *m, hr_error *error) {
  if (!positive(m->norm_epsilon) || m->norm_epsilon >= 1)
    return hri_fail(error, HR_ERROR_USAGE, "norm_epsilon is %g; it must lie between 0 and 1", m->norm_epsilon);
  if (!positive(m->attention_scale)) return hri_fail(error, HR_ERROR_USAGE, "attention_scale is %g; it must be positive", m->attention_scale);
  if (!isfinite(m->init_std) || m->init_std < 0 || m->init_std > 1e3)
    return hri_fail(error, HR_ERROR_USAGE, "init_std is %g; it must lie between 0 and 1000", m->init_std);
  if (!(m->dropout >= 0 && m->dropout <= 1)) return hri_fail(error, HR_ERROR_USAGE, "dropout is %g; it must lie between 0 and 1", m->dropout);
  if (!m->learned_positions) HRI_TRY(check_rope(&m->rope, error));
  return HR_OK;
}

static hr_status check_tokens(const hr_model *m, hr_error *error) {
  const struct {
    const char *name;
    int32_t value;
  } tokens[] = {{"pad_token", m->pad_token}, {"bos_token", m->bos_token}, {"eos_token", m->eos_token}};
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
    if (tokens[i].value < -1 || tokens[i].value >= (int32_t)m->vocabulary_size)
      return hri_fail(error, HR_ERROR_USAGE, "%s is %d; it must be -1 (none) or an id below vocabulary_size (%u)", tokens[i].name,
                      tokens[i].value, m->vocabulary_size);
  return HR_OK;
}

/* A model must stay expressible in the config.json of its family, else it could be trained but not saved. */
static hr_status check_family(const hr_model *m, hr_error *error) {
  const hr_model *want;
  const char *field = NULL;
  double scale = 1.0 / sqrt((double)m->head_size);
  bool gpt2 = m->family == HR_FAMILY_GPT2;
  if ((unsigned)m->family >= HR_FAMILY_COUNT) return hri_fail(error, HR_ERROR_USAGE, "family is no known one (%s)", hri_family_list());
  want = &family_defaults[m->family];
  if (m->norm != want->norm) field = "norm";
  else if (m->activation != want->activation) field = "activation";
  else if (m->gated_mlp != want->gated_mlp) field = "gated_mlp";
  else if (m->learned_positions != want->learned_positions) field = "learned_positions";
  else if (m->init_scale_residual != want->init_scale_residual) field = "init_scale_residual";
  else if (m->qkv_bias != (gpt2 || m->attention_output_bias)) field = "qkv_bias";
  else if (gpt2 && !m->attention_output_bias) field = "attention_output_bias";
  else if (gpt2 && !m->mlp_bias) field = "mlp_bias";
  else if (gpt2 && m->kv_head_count != m->head_count) field = "kv_head_count";
  else if (gpt2 && (uint64_t)m->head_count * m->head_size != m->hidden_size) field = "head_size";
  else if (fabs(m->attention_scale - scale) > 1e-12 && !(gpt2 && m->attention_scale == 1.0)) field = "attention_scale";
  else if (gpt2 && m->pad_token != -1) field = "pad_token";
  if (!field) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "%s has a value that the family %s does not know", field, hr_family_name(m->family));
  return hri_hint(error, HR_ERROR_USAGE, "%s", gpt2 ? "gpt2 has as many key heads as heads, head_size = hidden_size / head_count, and all biases"
                                                    : "llama has biases on all of q, k, v and output or on none, and scales by head_size ** -0.5");
}

hr_status hr_model_check(const hr_model *model, hr_error *error) {
  HRI_TRY(check_sizes(model, error));
  HRI_TRY(check_numbers(model, error));
  HRI_TRY(check_tokens(model, error));
  return check_family(model, error);
}

/* ---- open ---- */

enum { CONFIG_LIMIT_BYTES = 4 << 20 }; /* real ones are a few KiB */

/* The last component of the resolved path, so that "." has a name too. */
static void name_after(const char *path, hr_model *model) {
  char resolved[PATH_MAX];
  const char *full = realpath(path, resolved) ? resolved : path, *last = strrchr(full, '/');
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

/* Records where the weights are. Weights in a form that is not read are refused: training would otherwise start from
 * random values without a word. */
static hr_status find_weights(const char *dir, hr_model *model, hr_error *error) {
  static const struct {
    const char *file;
    bool readable;
  } kinds[] = {{"model.safetensors", true}, {"model.safetensors.index.json", true}, {"pytorch_model.bin", false}, {"pytorch_model.bin.index.json", false}};
  size_t length = strlen(dir);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    int found = holds(dir, kinds[i].file);
    if (found < 0) return hri_fail_memory(error, length, "a path");
    if (found && !kinds[i].readable) {
      hri_fail(error, HR_ERROR_UNSUPPORTED, "%s holds its weights as %s, which is not read", dir, kinds[i].file);
      return hri_hint(error, HR_ERROR_UNSUPPORTED, "save the model as safetensors first, or name %s/config.json to start without weights", dir);
    }
    if (!found) continue;
    while (length > 1 && dir[length - 1] == '/') length--;
    if (length >= sizeof model->directory)
      return hri_fail(error, HR_ERROR_USAGE, "the path of the model has %zu bytes; at most %zu are supported", length, sizeof model->directory - 1);
    memcpy(model->directory, dir, length);
    model->directory[length] = 0;
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

/* What a path is that led nowhere; `status` and the error are those of the failed look-up among the presets. */
static hr_status explain_path(const char *source, hr_status status, hr_error *error) {
  if (status != HR_ERROR_USAGE || strncasecmp(source, "custom:", 7) == 0) return status;
  if (hri_path_is_dir(source)) {
    hri_fail(error, HR_ERROR_INPUT, "%s: there is no config.json in this directory", source);
    return hri_hint(error, HR_ERROR_INPUT, "name a directory in Hugging Face layout; a run keeps its model in final/");
  }
  if (strchr(source, '/') || (strlen(source) > 5 && strcasecmp(source + strlen(source) - 5, ".json") == 0)) {
    hri_fail(error, HR_ERROR_USAGE, "%s: there is no such file or directory, and no preset of this name", source);
    return hri_hint(error, HR_ERROR_USAGE, "check the path");
  }
  return status;
}

static bool is_gguf(const char *source) {
  size_t length = strlen(source);
  return length > 5 && strcasecmp(source + length - 5, ".gguf") == 0;
}

hr_status hr_model_open(const char *source, hr_model *model, hr_error *error) {
  hr_status status;
  if (!source || !*source) return hri_fail(error, HR_ERROR_USAGE, "the model is missing: name a directory, a config.json or a preset");
  if (hri_path_is_dir(source)) {
    char *config = hri_path_join(source, "config.json");
    if (!config) return hri_fail_memory(error, strlen(source) + 13, "a path");
    if (hri_path_exists(config)) {
      status = open_directory(source, config, model, error);
      hri_free(config);
      return status;
    }
    hri_free(config);
  } else if (hri_path_exists(source)) {
    if (is_gguf(source)) {
      hri_fail(error, HR_ERROR_UNSUPPORTED, "%s: GGUF files are not read", source);
      return hri_hint(error, HR_ERROR_UNSUPPORTED, "use the Hugging Face directory that it was made from");
    }
    return read_config(source, model, error);
  }
  return explain_path(source, hr_model_preset(source, model, error), error);
}
