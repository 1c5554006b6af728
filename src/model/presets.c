/* Published models by name, small ones for the demo and the tests, and bare dimensions ("custom:layers=12,...").
 *
 * Figures are those of the published config.json files; docs/models.md says where each comes from, and
 * tests/unit/test_presets.c holds them to those files and to the numbers of parameters in the weights. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "model/family.h"

typedef struct preset {
  const char *name, *alias; /* alias: NULL when there is none */
  hr_family family;
  uint32_t layers, hidden, heads, kv_heads, head_size, mlp, vocabulary, positions;
  bool tied;
  double epsilon, theta, init_std;
  double rope_factor; /* llama3 scaling of an 8192 token model; 0: no scaling */
  int32_t bos, eos;
  double dropout;  /* of gpt2 in all places, else of the residual alone (phi-2) */
  uint32_t window; /* tokens that sliding layers see; 0: none slides */
  double linear;   /* linear scaling of the layers that see all; 0: no scaling */
} preset;

#define GPT2 HR_FAMILY_GPT2
#define LLAMA HR_FAMILY_LLAMA
#define MISTRAL HR_FAMILY_MISTRAL
#define QWEN2 HR_FAMILY_QWEN2
#define QWEN3 HR_FAMILY_QWEN3
#define PHI3 HR_FAMILY_PHI3
#define GEMMA HR_FAMILY_GEMMA
#define GEMMA2 HR_FAMILY_GEMMA2
#define GEMMA3 HR_FAMILY_GEMMA3
#define SMOLLM3 HR_FAMILY_SMOLLM3
#define GRANITE HR_FAMILY_GRANITE
#define OLMO2 HR_FAMILY_OLMO2
#define STABLELM HR_FAMILY_STABLELM
#define PHI HR_FAMILY_PHI

/* The byte-level models have 256 bytes and an end-of-text token, 256. */
/* clang-format off */
static const preset presets[] = {
    {"gpt2-124m", "gpt2", GPT2, 12, 768, 12, 12, 64, 3072, 50257, 1024, true, 1e-5, 0, 0.02, 0, 50256, 50256, 0.1, 0, 0},
    {"gpt2-355m", "gpt2-medium", GPT2, 24, 1024, 16, 16, 64, 4096, 50257, 1024, true, 1e-5, 0, 0.02, 0, 50256, 50256, 0.1, 0, 0},
    {"gpt2-774m", "gpt2-large", GPT2, 36, 1280, 20, 20, 64, 5120, 50257, 1024, true, 1e-5, 0, 0.02, 0, 50256, 50256, 0.1, 0, 0},
    {"gpt2-1558m", "gpt2-xl", GPT2, 48, 1600, 25, 25, 64, 6400, 50257, 1024, true, 1e-5, 0, 0.02, 0, 50256, 50256, 0.1, 0, 0},
    {"llama-2-7b", NULL, LLAMA, 32, 4096, 32, 32, 128, 11008, 32000, 4096, false, 1e-5, 1e4, 0.02, 0, 1, 2, 0, 0, 0},
    {"llama-2-13b", NULL, LLAMA, 40, 5120, 40, 40, 128, 13824, 32000, 4096, false, 1e-5, 1e4, 0.02, 0, 1, 2, 0, 0, 0},
    {"llama-2-70b", NULL, LLAMA, 80, 8192, 64, 8, 128, 28672, 32000, 4096, false, 1e-5, 1e4, 0.02, 0, 1, 2, 0, 0, 0},
    {"llama-3-8b", NULL, LLAMA, 32, 4096, 32, 8, 128, 14336, 128256, 8192, false, 1e-5, 5e5, 0.02, 0, 128000, 128001, 0, 0, 0},
    {"llama-3-70b", NULL, LLAMA, 80, 8192, 64, 8, 128, 28672, 128256, 8192, false, 1e-5, 5e5, 0.02, 0, 128000, 128001, 0, 0, 0},
    {"llama-3.1-8b", NULL, LLAMA, 32, 4096, 32, 8, 128, 14336, 128256, 131072, false, 1e-5, 5e5, 0.02, 8, 128000, 128001, 0, 0, 0},
    {"llama-3.1-70b", NULL, LLAMA, 80, 8192, 64, 8, 128, 28672, 128256, 131072, false, 1e-5, 5e5, 0.02, 8, 128000, 128001, 0, 0, 0},
    {"llama-3.2-1b", NULL, LLAMA, 16, 2048, 32, 8, 64, 8192, 128256, 131072, true, 1e-5, 5e5, 0.02, 32, 128000, 128001, 0, 0, 0},
    {"llama-3.2-3b", NULL, LLAMA, 28, 3072, 24, 8, 128, 8192, 128256, 131072, true, 1e-5, 5e5, 0.02, 32, 128000, 128001, 0, 0, 0},
    {"smollm2-135m", NULL, LLAMA, 30, 576, 9, 3, 64, 1536, 49152, 8192, true, 1e-5, 1e5, 1.0 / 24, 0, 0, 0, 0, 0, 0},
    {"smollm2-360m", NULL, LLAMA, 32, 960, 15, 5, 64, 2560, 49152, 8192, true, 1e-5, 1e5, 0.02, 0, 0, 0, 0, 0, 0},
    {"smollm2-1.7b", NULL, LLAMA, 24, 2048, 32, 32, 64, 8192, 49152, 8192, true, 1e-5, 1.3e5, 0.02, 0, 0, 0, 0, 0, 0},
    {"mistral-7b", "mistral-7b-v0.1", MISTRAL, 32, 4096, 32, 8, 128, 14336, 32000, 32768, false, 1e-5, 1e4, 0.02, 0, 1, 2, 0, 4096, 0},
    {"mistral-7b-v0.3", NULL, MISTRAL, 32, 4096, 32, 8, 128, 14336, 32768, 32768, false, 1e-5, 1e6, 0.02, 0, 1, 2, 0, 0, 0},
    {"qwen2.5-0.5b", NULL, QWEN2, 24, 896, 14, 2, 64, 4864, 151936, 32768, true, 1e-6, 1e6, 0.02, 0, 151643, 151643, 0, 0, 0},
    {"qwen2.5-1.5b", NULL, QWEN2, 28, 1536, 12, 2, 128, 8960, 151936, 131072, true, 1e-6, 1e6, 0.02, 0, 151643, 151643, 0, 0, 0},
    {"qwen2.5-7b", NULL, QWEN2, 28, 3584, 28, 4, 128, 18944, 152064, 131072, false, 1e-6, 1e6, 0.02, 0, 151643, 151643, 0, 0, 0},
    {"qwen3-0.6b", NULL, QWEN3, 28, 1024, 16, 8, 128, 3072, 151936, 40960, true, 1e-6, 1e6, 0.02, 0, 151643, 151645, 0, 0, 0},
    {"qwen3-1.7b", NULL, QWEN3, 28, 2048, 16, 8, 128, 6144, 151936, 40960, true, 1e-6, 1e6, 0.02, 0, 151643, 151645, 0, 0, 0},
    {"qwen3-4b", NULL, QWEN3, 36, 2560, 32, 8, 128, 9728, 151936, 40960, true, 1e-6, 1e6, 0.02, 0, 151643, 151645, 0, 0, 0},
    {"qwen3-8b", NULL, QWEN3, 36, 4096, 32, 8, 128, 12288, 151936, 40960, false, 1e-6, 1e6, 0.02, 0, 151643, 151645, 0, 0, 0},
    {"phi-3-mini", "phi-3-mini-4k", PHI3, 32, 3072, 32, 32, 96, 8192, 32064, 4096, false, 1e-5, 1e4, 0.02, 0, 1, 32000, 0, 2047, 0},
    {"smollm3-3b", NULL, SMOLLM3, 36, 2048, 16, 4, 128, 11008, 128256, 65536, true, 1e-6, 5e6, 0.02, 0, -1, 128001, 0, 0, 0},
    {"granite-3.1-2b", NULL, GRANITE, 40, 2048, 32, 8, 64, 8192, 49155, 131072, true, 1e-5, 5e6, 0.02, 0, 0, 0, 0, 0, 0},
    {"granite-3.1-8b", NULL, GRANITE, 40, 4096, 32, 8, 128, 12800, 49155, 131072, true, 1e-5, 1e7, 0.02, 0, 0, 0, 0, 0, 0},
    {"olmo-2-1b", NULL, OLMO2, 16, 2048, 16, 16, 128, 8192, 100352, 4096, false, 1e-6, 5e5, 0.02, 0, -1, 100257, 0, 0, 0},
    {"olmo-2-7b", NULL, OLMO2, 32, 4096, 32, 32, 128, 11008, 100352, 4096, false, 1e-6, 5e5, 0.02, 0, -1, 100257, 0, 0, 0},
    {"olmo-2-13b", NULL, OLMO2, 40, 5120, 40, 40, 128, 13824, 100352, 4096, false, 1e-6, 5e5, 0.02, 0, -1, 100257, 0, 0, 0},
    {"stablelm-2-1.6b", NULL, STABLELM, 24, 2048, 32, 32, 64, 5632, 100352, 4096, false, 1e-5, 1e4, 0.02, 0, 100257, 100257, 0, 0, 0},
    {"stablelm-3b", "stablelm-3b-4e1t", STABLELM, 32, 2560, 32, 32, 80, 6912, 50304, 4096, false, 1e-5, 1e4, 0.02, 0, 0, 0, 0, 0, 0},
    {"phi-1.5", "phi-1_5", PHI, 24, 2048, 32, 32, 64, 8192, 51200, 2048, false, 1e-5, 1e4, 0.02, 0, -1, -1, 0, 0, 0},
    {"phi-2", NULL, PHI, 32, 2560, 32, 32, 80, 10240, 51200, 2048, false, 1e-5, 1e4, 0.02, 0, 50256, 50256, 0.1, 0, 0},
    {"gemma-2b", NULL, GEMMA, 18, 2048, 8, 1, 256, 16384, 256000, 8192, true, 1e-6, 1e4, 0.02, 0, 2, 1, 0, 0, 0},
    {"gemma-7b", NULL, GEMMA, 28, 3072, 16, 16, 256, 24576, 256000, 8192, true, 1e-6, 1e4, 0.02, 0, 2, 1, 0, 0, 0},
    {"gemma-2-2b", NULL, GEMMA2, 26, 2304, 8, 4, 256, 9216, 256000, 8192, true, 1e-6, 1e4, 0.02, 0, 2, 1, 0, 4096, 0},
    {"gemma-2-9b", NULL, GEMMA2, 42, 3584, 16, 8, 256, 14336, 256000, 8192, true, 1e-6, 1e4, 0.02, 0, 2, 1, 0, 4096, 0},
    {"gemma-3-1b", NULL, GEMMA3, 26, 1152, 4, 1, 256, 6912, 262144, 32768, true, 1e-6, 1e6, 0.02, 0, 2, 1, 0, 512, 0},
    {"gemma-3-4b", NULL, GEMMA3, 34, 2560, 8, 4, 256, 10240, 262208, 131072, true, 1e-6, 1e6, 0.02, 0, 2, 1, 0, 1024, 8},
    {"tiny-llama-bytes", NULL, LLAMA, 4, 192, 6, 2, 32, 512, 257, 1024, true, 1e-5, 1e4, 0.02, 0, 256, 256, 0, 0, 0},
    {"micro-llama-bytes", NULL, LLAMA, 2, 64, 4, 2, 16, 176, 257, 256, true, 1e-5, 1e4, 0.02, 0, 256, 256, 0, 0, 0},
    {"micro-gemma2-bytes", NULL, GEMMA2, 2, 64, 4, 2, 16, 176, 257, 256, true, 1e-6, 1e4, 0.02, 0, 256, 256, 0, 16, 0},
    {"micro-qwen3-bytes", NULL, QWEN3, 2, 64, 4, 2, 16, 176, 257, 256, true, 1e-6, 1e4, 0.02, 0, 256, 256, 0, 0, 0},
    {"micro-gpt2-bytes", NULL, GPT2, 2, 64, 4, 4, 16, 256, 257, 256, true, 1e-5, 0, 0.02, 0, 256, 256, 0, 0, 0},
};
/* clang-format on */

/* What only some have: tokens that pad, another share of the head rotated than the family's, biases of q, k and v, and
 * granite's factors (0: none). */
static const struct {
  const char *name;
  int32_t pad;
  uint32_t rotary;
  bool qkv_bias;
  double embedding, residual, attention, logits;
} own[] = {{"granite-3.1-2b", 0, 0, false, 12, 0.22, 0.015625, 8},
           {"granite-3.1-8b", 0, 0, false, 12, 0.22, 0.0078125, 16},
           {"olmo-2-1b", 100277, 0, false, 0, 0, 0, 0},
           {"olmo-2-7b", 100277, 0, false, 0, 0, 0, 0},
           {"olmo-2-13b", 100277, 0, false, 0, 0, 0, 0},
           {"stablelm-2-1.6b", -1, 0, true, 0, 0, 0, 0},
           {"phi-2", -1, 32, false, 0, 0, 0, 0}};

static void fill_own(hr_model *model, const char *name) {
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    if (strcmp(own[i].name, name) != 0) continue;
    model->pad_token = own[i].pad;
    model->rotary_size = own[i].rotary;
    model->qkv_bias = model->qkv_bias || own[i].qkv_bias;
    if (own[i].embedding == 0) return;
    model->embedding_scale = own[i].embedding;
    model->residual_scale = own[i].residual;
    model->attention_scale = own[i].attention;
    model->logit_divisor = own[i].logits;
  }
}

enum { PRESET_COUNT = sizeof presets / sizeof *presets };

uint32_t hr_model_preset_count(void) { return PRESET_COUNT; }

const char *hr_model_preset_name(uint32_t index) { return index < PRESET_COUNT ? presets[index].name : NULL; }

static void fill(hr_model *model, const preset *p) {
  hri_family_defaults(model, p->family);
  hri_model_set_text(model->name, sizeof model->name, p->name);
  model->layer_count = p->layers;
  model->hidden_size = p->hidden;
  model->head_count = p->heads;
  model->kv_head_count = p->kv_heads;
  model->head_size = p->head_size;
  model->mlp_size = p->mlp;
  model->vocabulary_size = p->vocabulary;
  model->max_positions = p->positions;
  model->tied_embeddings = p->tied;
  model->norm_epsilon = p->epsilon;
  model->init_std = p->init_std;
  model->bos_token = p->bos;
  model->eos_token = p->eos;
  model->dropout.residual = p->dropout;
  if (p->family == HR_FAMILY_GPT2) model->dropout.attention = model->dropout.embedding = p->dropout;
  if (p->theta > 0) model->rope.theta = p->theta;
  if (p->rope_factor > 0)
    model->rope = (hr_rope){.theta = p->theta,
                            .scaling = HR_ROPE_LLAMA3,
                            .factor = p->rope_factor,
                            .low_frequency_factor = 1,
                            .high_frequency_factor = 4,
                            .original_max_positions = 8192};
  if (p->linear > 0) model->rope.scaling = HR_ROPE_LINEAR, model->rope.factor = p->linear;
  fill_own(model, p->name);
  model->sliding_window = p->window;
  hri_family_rope_layers(model, HRI_ROPE_INTERVAL);
  hri_family_windows(model, HRI_WINDOW_FIRST, HRI_WINDOW_PATTERN);
  hri_family_derive(model);
}

/* ---- bare dimensions ---- */

static const struct {
  const char *key;
  size_t offset;
} custom_sizes[] = {
    {"layers", offsetof(hr_model, layer_count)},    {"hidden", offsetof(hr_model, hidden_size)},
    {"heads", offsetof(hr_model, head_count)},      {"kv-heads", offsetof(hr_model, kv_head_count)},
    {"head-size", offsetof(hr_model, head_size)},   {"mlp", offsetof(hr_model, mlp_size)},
    {"vocab", offsetof(hr_model, vocabulary_size)}, {"positions", offsetof(hr_model, max_positions)},
};

enum { CUSTOM_SIZE_COUNT = sizeof custom_sizes / sizeof *custom_sizes, CUSTOM_WORD_BYTES = 32 };

typedef struct custom {
  hr_model sizes; /* only the size fields */
  bool seen[CUSTOM_SIZE_COUNT], family_seen, tied_seen, tied;
  hr_family family;
} custom;

static hr_status custom_fail(hr_error *error, const char *what, const char *word) {
  hri_fail(error, HR_ERROR_USAGE, "custom model: %s '%s'", what, word);
  return hri_hint(
      error, HR_ERROR_USAGE,
      "write custom:layers=12,hidden=768,heads=12[,kv-heads=..,head-size=..,mlp=..,vocab=..,positions=..,family=gpt2|llama|...,tied]");
}

static bool parse_size(const char *text, uint32_t *value) {
  uint64_t sum = 0;
  if (!*text) return false;
  for (; *text; text++) {
    if (*text < '0' || *text > '9') return false;
    sum = sum * 10 + (uint64_t)(*text - '0');
    if (sum > INT32_MAX) return false;
  }
  *value = (uint32_t)sum;
  return sum > 0;
}

static hr_status custom_item(custom *c, const char *key, const char *value, hr_error *error) {
  uint32_t size;
  for (size_t i = 0; i < CUSTOM_SIZE_COUNT; i++) {
    if (strcmp(key, custom_sizes[i].key) != 0) continue;
    if (c->seen[i]) return custom_fail(error, "there are two values for", key);
    if (!value || !parse_size(value, &size)) return custom_fail(error, "a positive whole number is wanted for", key);
    memcpy((char *)&c->sizes + custom_sizes[i].offset, &size, sizeof size);
    c->seen[i] = true;
    return HR_OK;
  }
  if (strcmp(key, "family") == 0) {
    if (c->family_seen) return custom_fail(error, "there are two values for", key);
    if (!value || !hri_family_find(value, &c->family))
      return custom_fail(error, "there is no family", value ? value : "");
    c->family_seen = true;
    return HR_OK;
  }
  if (strcmp(key, "tied") == 0) {
    if (c->tied_seen) return custom_fail(error, "there are two values for", key);
    if (value && strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
      return custom_fail(error, "true or false is wanted for", key);
    c->tied_seen = true;
    c->tied = !value || strcmp(value, "true") == 0;
    return HR_OK;
  }
  return custom_fail(error, "unknown dimension", key);
}

static hr_status custom_parse(const char *text, custom *c, hr_error *error) {
  while (*text) {
    char word[2 * CUSTOM_WORD_BYTES];
    size_t length = strcspn(text, ",");
    char *equals;
    if (length == 0 || length >= sizeof word)
      return custom_fail(error, length ? "too long:" : "there is an empty item before", text);
    memcpy(word, text, length);
    word[length] = 0;
    equals = strchr(word, '=');
    if (equals) *equals = 0;
    HRI_TRY(custom_item(c, word, equals ? equals + 1 : NULL, error));
    text += length;
    if (*text == ',' && !*++text) return custom_fail(error, "there is an empty item after", word);
  }
  return HR_OK;
}

/* Llama's MLP: two thirds of 4 x hidden, rounded up to 256 (meta-llama/llama, model.py, multiple_of). */
static uint32_t default_mlp(hr_family family, uint32_t hidden) {
  uint64_t wide = 4 * (uint64_t)hidden;
  if (family != HR_FAMILY_GPT2) wide = hri_round_up(wide * 2 / 3, 256);
  return wide > UINT32_MAX ? UINT32_MAX : (uint32_t)wide;
}

static hr_status open_custom(const char *source, hr_model *model, hr_error *error) {
  custom c = {.family = HR_FAMILY_GPT2};
  const hr_model *s = &c.sizes;
  hr_model made;
  HRI_TRY(custom_parse(source + strlen("custom:"), &c, error));
  for (size_t i = 0; i < 3; i++)
    if (!c.seen[i]) return custom_fail(error, "there is no value for", custom_sizes[i].key);
  hri_family_defaults(&made, c.family);
  hri_model_set_text(made.name, sizeof made.name, source);
  made.layer_count = s->layer_count;
  made.hidden_size = s->hidden_size;
  made.head_count = s->head_count;
  made.kv_head_count = s->kv_head_count;
  made.head_size = s->head_size;
  made.mlp_size = s->mlp_size ? s->mlp_size : default_mlp(c.family, s->hidden_size);
  made.vocabulary_size = s->vocabulary_size ? s->vocabulary_size : c.family == HR_FAMILY_GPT2 ? 50257 : 32000;
  made.max_positions = s->max_positions ? s->max_positions : c.family == HR_FAMILY_GPT2 ? 1024 : 4096;
  if (c.tied_seen) made.tied_embeddings = c.tied;
  made.pad_token = made.bos_token = made.eos_token = -1;
  made.dropout = (hr_dropout){0};
  if (!s->head_size && s->hidden_size % s->head_count != 0)
    return custom_fail(error, "hidden is no multiple of heads; add head-size= or change", "heads");
  hri_family_rope_layers(&made, HRI_ROPE_INTERVAL);
  hri_family_windows(&made, HRI_WINDOW_FIRST, HRI_WINDOW_PATTERN);
  hri_family_derive(&made);
  if (hr_model_check(&made, error) != HR_OK) return hri_context(error, HR_ERROR_USAGE, "custom model: ");
  *model = made;
  return HR_OK;
}

/* ---- look-up ---- */

enum { NAME_BYTES = 96 };

/* What a name says about the sizes of a model: lower case, without the owner of a Hub id and without the words that tell
 * one training of the same sizes from another: "meta-llama/Meta-Llama-3-8B-Instruct" is llama-3-8b. */
static void sizes_name(const char *name, char out[NAME_BYTES]) {
  static const char *const noise[] = {"meta", "hf", "instruct", "chat", "base", "it", "pt"};
  const char *owner = strrchr(name, '/'), *at = owner ? owner + 1 : name;
  size_t used = 0;
  while (*at) {
    size_t length = strcspn(at, "-_"), k = 0;
    while (k < sizeof noise / sizeof *noise && (strlen(noise[k]) != length || strncasecmp(at, noise[k], length) != 0))
      k++;
    if (k == sizeof noise / sizeof *noise && length > 0 && used + length + 2 < NAME_BYTES) {
      if (used) out[used++] = '-';
      for (size_t i = 0; i < length; i++) out[used++] = (char)tolower((unsigned char)at[i]);
    }
    at += length + (at[length] != 0);
  }
  out[used] = 0;
}

static bool same_sizes(const char *wanted, const char *known) {
  char name[NAME_BYTES];
  if (!known) return false;
  sizes_name(known, name);
  return strcmp(wanted, name) == 0;
}

const char *hri_preset_of_hub(const char *name) {
  char wanted[NAME_BYTES];
  sizes_name(name, wanted);
  for (size_t i = 0; i < PRESET_COUNT; i++)
    if (same_sizes(wanted, presets[i].name) || same_sizes(wanted, presets[i].alias)) return presets[i].name;
  return NULL;
}

/* Letters and digits alone: "Llama-3.1" and "llama31" are one beginning. */
static void squeeze(const char *name, char out[NAME_BYTES]) {
  size_t used = 0;
  for (; *name && used + 1 < NAME_BYTES; name++)
    if (isalnum((unsigned char)*name)) out[used++] = (char)tolower((unsigned char)*name);
  out[used] = 0;
}

/* Presets that begin so, ", " between them; their number. */
static size_t beginning_so(const char *name, char *list, size_t bytes) {
  char wanted[NAME_BYTES], known[NAME_BYTES];
  size_t used = 0, count = 0;
  squeeze(name, wanted);
  for (size_t i = 0; wanted[0] && i < PRESET_COUNT && used < bytes; i++) {
    squeeze(presets[i].name, known);
    if (strncmp(known, wanted, strlen(wanted)) != 0) continue;
    used += (size_t)snprintf(list + used, bytes - used, "%s%s", count++ ? ", " : "", presets[i].name);
  }
  return count;
}

static hr_status unknown(const char *name, hr_error *error) {
  const char *names[2 * PRESET_COUNT], *near = hri_preset_of_hub(name);
  char list[400] = "";
  size_t count = 0;
  for (size_t i = 0; i < PRESET_COUNT; i++) {
    names[count++] = presets[i].name;
    if (presets[i].alias) names[count++] = presets[i].alias;
  }
  if (!near && beginning_so(name, list, sizeof list) < 2) near = hri_nearest(name, names, count);
  hri_fail(error, HR_ERROR_USAGE, "there is no model '%.100s': no such directory, file or preset", name);
  if (near) return hri_hint(error, HR_ERROR_USAGE, "did you mean %s?", near);
  if (list[0]) return hri_hint(error, HR_ERROR_USAGE, "presets of that name are %s", list);
  return hri_hint(
      error, HR_ERROR_USAGE,
      "presets are gpt2-124m, llama-2-7b, llama-3-8b, qwen2.5-0.5b, gemma-3-1b, smollm2-135m, tiny-llama-bytes and others; "
      "or name a Hugging Face directory, a config.json, or custom:layers=..,hidden=..,heads=..");
}

hr_status hr_model_preset(const char *name, hr_model *model, hr_error *error) {
  if (strncasecmp(name, "custom:", 7) == 0) return open_custom(name, model, error);
  for (size_t i = 0; i < PRESET_COUNT; i++)
    if (strcasecmp(name, presets[i].name) == 0 || (presets[i].alias && strcasecmp(name, presets[i].alias) == 0)) {
      fill(model, &presets[i]);
      return HR_OK;
    }
  return unknown(name, error);
}
