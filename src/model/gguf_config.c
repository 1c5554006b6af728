/* Descriptions of models as keys of GGUF files.
 *
 * Reading goes by way of a config.json: the keys are written down as the configuration that Hugging Face would have,
 * and that is parsed like any other, so that what a family implies and what makes sense together is decided in one
 * place (config.c).
 * Writing starts from the description itself. Keys: ggml-org/ggml docs/gguf.md and llama.cpp
 * gguf-py/gguf/constants.py. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/rope.h"

/* ---- architectures ---- */

static const struct {
  const char *name;
  hr_family family; /* llama with a sliding window is mistral */
} architectures[] = {
    {"llama", HR_FAMILY_LLAMA},       {"mistral", HR_FAMILY_MISTRAL}, {"qwen2", HR_FAMILY_QWEN2},
    {"qwen3", HR_FAMILY_QWEN3},       {"phi3", HR_FAMILY_PHI3},       {"gemma2", HR_FAMILY_GEMMA2},
    {"gemma3", HR_FAMILY_GEMMA3},     {"gemma", HR_FAMILY_GEMMA},     {"gpt2", HR_FAMILY_GPT2},
    {"smollm3", HR_FAMILY_SMOLLM3},   {"granite", HR_FAMILY_GRANITE}, {"olmo2", HR_FAMILY_OLMO2},
    {"stablelm", HR_FAMILY_STABLELM}, {"phi2", HR_FAMILY_PHI},
};

const char *hri_gguf_architecture(hr_family family) {
  if (family == HR_FAMILY_MISTRAL) return "llama";
  for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
    if (architectures[i].family == family) return architectures[i].name;
  return "unknown";
}

static hr_status read_architecture(const hri_gguf *file, const char **name, hr_family *family, hr_error *error) {
  uint64_t bytes, parts = 1;
  HRI_TRY(hri_gguf_opt_u64(file, "split.count", 0, UINT32_MAX, &parts, error));
  if (parts > 1) {
    hri_fail(error, HR_ERROR_INPUT, "%s is one of %llu parts of a model", hri_gguf_path(file),
             (unsigned long long)parts);
    return hri_hint(error, HR_ERROR_INPUT, "join them first: llama-gguf-split --merge FIRST-PART WHOLE.gguf");
  }
  HRI_TRY(hri_gguf_get_string(file, "general.architecture", name, &bytes, error));
  for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
    if (strcmp(*name, architectures[i].name) == 0) {
      *family = architectures[i].family;
      return HR_OK;
    }
  hri_fail(error, HR_ERROR_INPUT, "%s: general.architecture is '%.40s', which is not supported", hri_gguf_path(file),
           *name);
  return hri_hint(
      error, HR_ERROR_INPUT,
      "llama, mistral, qwen2, qwen3, phi2, phi3, gemma, gemma2, gemma3, smollm3, granite, olmo2, stablelm and gpt2 are "
      "known");
}

/* "llama.attention.head_count" */
typedef struct key_text {
  char text[96];
} key_text;
static key_text key_of(const char *architecture, const char *rest) {
  key_text key;
  (void)snprintf(key.text, sizeof key.text, "%.31s.%s", architecture, rest);
  return key;
}
#define KEY(rest) key_of(architecture, rest).text

/* ---- reading ---- */

/* What the keys of a file say. */
typedef struct facts {
  uint64_t layers, context, hidden, mlp, heads, kv_heads, head_size, rotary, vocabulary, window, original_context;
  double epsilon, theta, local_theta, factor, attention_factor, beta_fast, beta_slow, attention_cap, logit_cap, scale,
      embedding_scale, residual_scale, logit_scale;
  const char *scaling; /* "none", "linear" (also where a factor stands alone), "yarn", "longrope" */
  bool pattern;        /* slides: one number for each layer */
  hri_gguf_numbers slides;
  uint64_t period; /* or: all but each period-th layer slide; 0: not said */
} facts;

/* Keys that say nothing which is not known otherwise. */
static void pass_over(const hri_gguf *file, const char *architecture) {
  static const char *const idle[] = {"vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "expert_used_count"};
  for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) (void)hri_gguf_has(file, KEY(idle[i]));
}

static hr_status check_causal(const hri_gguf *file, const char *architecture, hr_error *error) {
  bool causal = true;
  HRI_TRY(hri_gguf_opt_bool(file, KEY("attention.causal"), &causal, error));
  if (causal) return HR_OK;
  hri_fail(error, HR_ERROR_INPUT, "%s: %s is false: each token sees those behind it too, as in an encoder",
           hri_gguf_path(file), KEY("attention.causal"));
  return hri_hint(error, HR_ERROR_INPUT, "take a model that continues text; attention is causal here");
}

static hr_status read_sizes(const hri_gguf *file, const char *architecture, facts *f, hr_error *error) {
  uint64_t value_size, experts = 0;
  uint32_t embedding = hri_gguf_find(file, "token_embd.weight");
  if (embedding == HRI_GGUF_NONE) {
    hri_fail(error, HR_ERROR_INPUT, "%s: the tensor token_embd.weight is missing", hri_gguf_path(file));
    return hri_hint(
        error, HR_ERROR_INPUT,
        "this is a file with a vocabulary only, an adapter, or one of several parts; take the file of the whole model");
  }
  f->vocabulary = hri_gguf_tensor_get(file, embedding)->dims[1];
  HRI_TRY(hri_gguf_get_u64(file, KEY("block_count"), 1, HRI_MODEL_MAX_LAYERS, &f->layers, error));
  HRI_TRY(hri_gguf_get_u64(file, KEY("context_length"), 1, HRI_MODEL_MAX_POSITIONS, &f->context, error));
  HRI_TRY(hri_gguf_get_u64(file, KEY("embedding_length"), 1, HRI_MODEL_MAX_HIDDEN, &f->hidden, error));
  /* Written the wrong way round: reading the weights refuses it, and shall name the shape that it wants. */
  if (hri_gguf_tensor_get(file, embedding)->dims[0] != f->hidden && f->vocabulary == f->hidden)
    f->vocabulary = hri_gguf_tensor_get(file, embedding)->dims[0];
  HRI_TRY(hri_gguf_get_u64(file, KEY("feed_forward_length"), 1, HRI_MODEL_MAX_MLP, &f->mlp, error));
  HRI_TRY(hri_gguf_get_u64(file, KEY("attention.head_count"), 1, HRI_MODEL_MAX_HEADS, &f->heads, error));
  f->kv_heads = f->heads;
  f->head_size = f->hidden / f->heads;
  HRI_TRY(hri_gguf_opt_u64(file, KEY("attention.head_count_kv"), 1, HRI_MODEL_MAX_HEADS, &f->kv_heads, error));
  HRI_TRY(hri_gguf_opt_u64(file, KEY("attention.key_length"), 1, HRI_MODEL_MAX_HEAD_SIZE, &f->head_size, error));
  if (f->head_size == 0) {
    hri_fail(error, HR_ERROR_INPUT, "%s: key '%s' is %llu, more heads than the %llu elements of '%s'",
             hri_gguf_path(file), KEY("attention.head_count"), (unsigned long long)f->heads,
             (unsigned long long)f->hidden, KEY("embedding_length"));
    return hri_hint(error, HR_ERROR_INPUT, "the file contradicts itself; convert the model anew");
  }
  value_size = f->rotary = f->head_size;
  HRI_TRY(hri_gguf_opt_u64(file, KEY("attention.value_length"), 1, HRI_MODEL_MAX_HEAD_SIZE, &value_size, error));
  HRI_TRY(hri_gguf_opt_u64(file, KEY("rope.dimension_count"), 1, f->head_size, &f->rotary, error));
  HRI_TRY(hri_gguf_opt_u64(file, KEY("attention.sliding_window"), 0, UINT32_MAX, &f->window, error));
  HRI_TRY(hri_gguf_opt_u64(file, KEY("expert_count"), 0, UINT32_MAX, &experts, error));
  if (value_size == f->head_size && experts == 0) return HR_OK;
  hri_fail(error, HR_ERROR_INPUT, "%s: %s is not supported", hri_gguf_path(file),
           experts ? "a mixture of experts" : "attention with different sizes of keys and values");
  return hri_hint(error, HR_ERROR_INPUT, "take a dense model of a supported family");
}

/* Files hold fp32: 1e-5 comes as 9.99999974e-06. The shortest decimal that is the same fp32 number is what was
 * meant. */
static void shorten(double *value) {
  char text[32];
  for (int digits = 6; digits <= 9; digits++) {
    (void)snprintf(text, sizeof text, "%.*g", digits, *value);
    if ((double)strtof(text, NULL) != *value) continue;
    *value = strtod(text, NULL);
    return;
  }
}

static hr_status read_numbers(const hri_gguf *file, const char *architecture, facts *f, hr_error *error) {
  double *const numbers[] = {&f->epsilon,          &f->theta,     &f->local_theta,     &f->factor,
                             &f->attention_factor, &f->beta_fast, &f->beta_slow,       &f->attention_cap,
                             &f->logit_cap,        &f->scale,     &f->embedding_scale, &f->residual_scale,
                             &f->logit_scale};
  uint64_t bytes;
  f->epsilon = 1e-5;
  f->theta = f->local_theta = 10000;
  f->scaling = "linear"; /* as llama.cpp, which divides positions by a factor whose type is not said */
  HRI_TRY(hri_gguf_opt_double(file, KEY("attention.layer_norm_epsilon"), &f->epsilon, error));
  HRI_TRY(hri_gguf_opt_double(file, KEY("attention.layer_norm_rms_epsilon"), &f->epsilon, error));
  HRI_TRY(hri_gguf_opt_double(file, KEY("rope.freq_base"), &f->theta, error));
  HRI_TRY(hri_gguf_opt_double(file, KEY("rope.freq_base_swa"), &f->local_theta, error));
  HRI_TRY(hri_gguf_opt_double(file, KEY("attn_logit_softcapping"), &f->attention_cap, error));
  HRI_TRY(hri_gguf_opt_double(file, KEY("final_logit_softcapping"), &f->logit_cap, error));
  HRI_TRY(hri_gguf_opt_double(file, KEY("attention.scale"), &f->scale, error));
  HRI_TRY(hri_gguf_opt_double(file, KEY("embedding_scale"), &f->embedding_scale, error));
  HRI_TRY(hri_gguf_opt_double(file, KEY("residual_scale"), &f->residual_scale, error));
  HRI_TRY(hri_gguf_opt_double(file, KEY("logit_scale"), &f->logit_scale, error));
  HRI_TRY(hri_gguf_opt_string(file, KEY("rope.scaling.type"), &f->scaling, &bytes, error));
  HRI_TRY(hri_gguf_opt_double(file, KEY("rope.scaling.factor"), &f->factor, error));
  HRI_TRY(hri_gguf_opt_double(file, KEY("rope.scaling.attn_factor"), &f->attention_factor, error));
  HRI_TRY(hri_gguf_opt_double(file, KEY("rope.scaling.yarn_beta_fast"), &f->beta_fast, error));
  HRI_TRY(hri_gguf_opt_double(file, KEY("rope.scaling.yarn_beta_slow"), &f->beta_slow, error));
  HRI_TRY(hri_gguf_opt_u64(file, KEY("rope.scaling.original_context_length"), 1, HRI_MODEL_MAX_POSITIONS,
                           &f->original_context, error));
  if (hri_gguf_has(file, KEY("rope.scale_linear")) && f->factor == 0) { /* the key of older files */
    HRI_TRY(hri_gguf_opt_double(file, KEY("rope.scale_linear"), &f->factor, error));
  }
  if (f->factor == 0) f->factor = 1;
  if (strcmp(architecture, "stablelm") == 0) {
    const bool parallel = hri_gguf_find(file, "blk.0.ffn_norm.weight") == HRI_GGUF_NONE; /* llama.cpp goes by it too */
    bool said = parallel;
    HRI_TRY(hri_gguf_opt_bool(file, KEY("use_parallel_residual"), &said, error));
    if (said != parallel) {
      hri_fail(error, HR_ERROR_INPUT, "%s: key '%s' is %s, and there is %s tensor blk.0.ffn_norm.weight",
               hri_gguf_path(file), KEY("use_parallel_residual"), said ? "true" : "false", parallel ? "no" : "a");
      return hri_hint(error, HR_ERROR_INPUT, "the file contradicts itself; convert the model anew");
    }
  }
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) shorten(numbers[i]);
  for (uint32_t i = 0; i < hri_gguf_key_count(file); i++) {
    hri_gguf_type element;
    uint64_t count;
    if (strcmp(hri_gguf_key(file, i), KEY("attention.sliding_window_pattern")) != 0) continue;
    if (hri_gguf_key_type(file, i, &element, &count) != HRI_GGUF_ARRAY) {
      HRI_TRY(hri_gguf_get_u64(file, KEY("attention.sliding_window_pattern"), 0, UINT32_MAX, &f->period, error));
      continue;
    }
    HRI_TRY(hri_gguf_get_numbers(file, KEY("attention.sliding_window_pattern"), &f->slides, error));
    f->pattern = true;
    if (count == f->layers) continue;
    hri_fail(error, HR_ERROR_INPUT, "%s: key '%s' has %llu elements for %llu layers", hri_gguf_path(file),
             hri_gguf_key(file, i), (unsigned long long)count, (unsigned long long)f->layers);
    return hri_hint(error, HR_ERROR_INPUT, "the file contradicts itself; convert the model anew");
  }
  return HR_OK;
}

/* What the configuration of the family has no word for, and llama.cpp computes with. */
static hr_status check_numbers(const hri_gguf *file, hr_family family, const facts *f, hr_error *error) {
  bool granite = family == HR_FAMILY_GRANITE,
       factors = f->embedding_scale != 0 || f->residual_scale != 0 || f->logit_scale != 0,
       heads = family == HR_FAMILY_STABLELM && hri_gguf_find(file, "blk.0.attn_q_norm.weight") != HRI_GGUF_NONE;
  bool gemma = family == HR_FAMILY_GEMMA2 || family == HR_FAMILY_GEMMA3,
       longrope = hri_gguf_find(file, "rope_factors_long.weight") != HRI_GGUF_NONE;
  uint64_t usual_period = family == HR_FAMILY_GEMMA2 ? 2 : family == HR_FAMILY_GEMMA3 ? 6 : 0;
  bool some = false; /* layers of a family that slides in all of them do not */
  const char *what = NULL;
  for (uint64_t i = 0; f->pattern && (family == HR_FAMILY_MISTRAL || family == HR_FAMILY_PHI3) && i < f->layers; i++)
    some = some || !hri_gguf_integer_at(&f->slides, i);
  if (f->window > 0 && (some || (f->period != 0 && f->period != usual_period)))
    what = "this attention.sliding_window_pattern";
  else if (!hri_family_is(family, HRI_PARTIAL | HRI_FAMILY(GPT2)) && f->rotary != f->head_size)
    what = "RoPE over a part of each head (rope.dimension_count)";
  else if (factors && !granite) what = "a factor on embeddings, residuals or logits";
  else if (heads) what = "a norm of each head (attn_q_norm)";
  else if (!gemma && !granite && f->scale != 0 && !(fabs(f->scale * sqrt((double)f->head_size) - 1) < 1e-5))
    what = "an attention.scale of its own";
  else if (!longrope && f->attention_factor != 0 && f->attention_factor != 1)
    what = "a rope.scaling.attn_factor without longrope";
  if (!what) return HR_OK;
  hri_fail(error, HR_ERROR_INPUT, "%s: %s is not supported in a %s model", hri_gguf_path(file), what,
           hr_family_name(family));
  return hri_hint(error, HR_ERROR_INPUT, "use the Hugging Face directory that the file was made from");
}

/* Reads a vector of frequency factors. */
static hr_status read_factors(const hri_gguf *file, const char *name, uint64_t count, float *values, hr_error *error) {
  hri_gguf_part part = {.rank = 1, .rows = count, .columns = 1};
  char staging[HRI_GGUF_STAGING_LEAST];
  uint32_t index;
  (void)snprintf(part.name, sizeof part.name, "%s", name);
  if (count > HR_MAX_ROPE_PAIRS) {
    hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s: at most %d frequency factors are supported", hri_gguf_path(file),
             name, HR_MAX_ROPE_PAIRS);
    return hri_hint(error, HR_ERROR_INPUT, "take a model with smaller heads");
  }
  HRI_TRY(hri_gguf_part_find(file, &part, &index, error));
  return hri_gguf_part_read(file, index, &part, 0, count, values, staging, sizeof staging, error);
}

static void put_factors(hri_json_writer *w, const char *key, const float *values, uint64_t count) {
  hri_json_key(w, key);
  hri_json_begin_array(w);
  for (uint64_t i = 0; i < count; i++) hri_json_put_double(w, (double)values[i]);
  hri_json_end_array(w);
}

/* llama3 scaling comes as divisors alone. Published models have the borders 1, 4 and 8192; what we write ourselves
 * names them under keys of our own. The divisors are computed again, so that nothing else passes for llama3. */
static hr_status put_llama3(hri_json_writer *w, const hri_gguf *file, const facts *f, hr_error *error) {
  float divisors[HR_MAX_ROPE_PAIRS];
  double inverse[HR_MAX_ROPE_PAIRS], plain[HR_MAX_ROPE_PAIRS], factor = 0;
  hr_rope rope = {.theta = f->theta, .scaling = HR_ROPE_LLAMA3, .low_frequency_factor = 1, .high_frequency_factor = 4},
          none = {.theta = f->theta};
  uint64_t original = 8192;
  HRI_TRY(read_factors(file, "rope_freqs.weight", f->rotary / 2, divisors, error));
  for (uint64_t i = 0; i < f->rotary / 2; i++) rope.factor = fmax(rope.factor, (double)divisors[i]);
  HRI_TRY(hri_gguf_opt_double(file, "headroom.rope.factor", &rope.factor, error));
  HRI_TRY(hri_gguf_opt_double(file, "headroom.rope.low_frequency_factor", &rope.low_frequency_factor, error));
  HRI_TRY(hri_gguf_opt_double(file, "headroom.rope.high_frequency_factor", &rope.high_frequency_factor, error));
  HRI_TRY(hri_gguf_opt_u64(file, "headroom.rope.original_max_positions", 1, HRI_MODEL_MAX_POSITIONS, &original, error));
  rope.original_max_positions = (uint32_t)original;
  hri_rope_frequencies(&rope, (uint32_t)f->rotary, (uint32_t)f->context, f->context, inverse, &factor);
  hri_rope_frequencies(&none, (uint32_t)f->rotary, (uint32_t)f->context, f->context, plain, &factor);
  for (uint64_t i = 0; i < f->rotary / 2; i++)
    if (!(fabs(plain[i] / inverse[i] - (double)divisors[i]) <= 1e-3 * (double)divisors[i])) {
      hri_fail(error, HR_ERROR_INPUT, "%s: element %llu of rope_freqs.weight is %g; llama3 scaling by %g has %g",
               hri_gguf_path(file), (unsigned long long)i, (double)divisors[i], rope.factor, plain[i] / inverse[i]);
      return hri_hint(error, HR_ERROR_INPUT, "use the Hugging Face directory that the file was made from");
    }
  hri_json_field_string(w, "rope_type", "llama3");
  hri_json_field_double(w, "factor", rope.factor);
  hri_json_field_double(w, "low_freq_factor", rope.low_frequency_factor);
  hri_json_field_double(w, "high_freq_factor", rope.high_frequency_factor);
  hri_json_field_u64(w, "original_max_position_embeddings", original);
  return HR_OK;
}

static hr_status put_longrope(hri_json_writer *w, const hri_gguf *file, const facts *f, hr_error *error) {
  float factors[HR_MAX_ROPE_PAIRS];
  double scale = f->original_context ? (double)f->context / (double)f->original_context : 1;
  double implied = scale > 1 ? sqrt(1 + log(scale) / log((double)f->original_context)) : 1;
  hri_json_field_string(w, "rope_type", "longrope");
  HRI_TRY(read_factors(file, "rope_factors_short.weight", f->rotary / 2, factors, error));
  put_factors(w, "short_factor", factors, f->rotary / 2);
  HRI_TRY(read_factors(file, "rope_factors_long.weight", f->rotary / 2, factors, error));
  put_factors(w, "long_factor", factors, f->rotary / 2);
  if (f->attention_factor != 0 && fabs(f->attention_factor - implied) > 1e-5)
    hri_json_field_double(w, "attention_factor", f->attention_factor);
  return HR_OK;
}

static void put_yarn(hri_json_writer *w, const facts *f) {
  hri_json_field_string(w, "rope_type", "yarn");
  hri_json_field_double(w, "factor", f->factor);
  if (f->original_context) hri_json_field_u64(w, "original_max_position_embeddings", f->original_context);
  if (f->beta_fast != 0) hri_json_field_double(w, "beta_fast", f->beta_fast);
  if (f->beta_slow != 0) hri_json_field_double(w, "beta_slow", f->beta_slow);
}

static hr_status put_scaling(hri_json_writer *w, const hri_gguf *file, const facts *f, hr_error *error) {
  bool llama3 = hri_gguf_find(file, "rope_freqs.weight") != HRI_GGUF_NONE,
       longrope = hri_gguf_find(file, "rope_factors_long.weight") != HRI_GGUF_NONE;
  bool linear = strcmp(f->scaling, "linear") == 0 && f->factor != 1, yarn = strcmp(f->scaling, "yarn") == 0;
  hr_status status = HR_OK;
  if ((llama3 || longrope) && (linear || yarn)) {
    hri_fail(error, HR_ERROR_INPUT, "%s: %s RoPE scaling by %g beside frequency factors (%s) is not supported",
             hri_gguf_path(file), f->scaling, f->factor, llama3 ? "rope_freqs.weight" : "rope_factors_long.weight");
    return hri_hint(error, HR_ERROR_INPUT, "use the Hugging Face directory that the file was made from");
  }
  if (!llama3 && !longrope && !linear && !yarn) {
    if (strcmp(f->scaling, "none") == 0 || strcmp(f->scaling, "linear") == 0) return HR_OK;
    hri_fail(error, HR_ERROR_INPUT, "%s: the RoPE scaling '%.40s' is not supported without its factors",
             hri_gguf_path(file), f->scaling);
    return hri_hint(error, HR_ERROR_INPUT, "none, linear, yarn, and llama3 or longrope factors are read");
  }
  hri_json_key(w, "rope_scaling");
  hri_json_begin_object(w);
  if (llama3) status = put_llama3(w, file, f, error);
  else if (longrope) status = put_longrope(w, file, f, error);
  else if (yarn) put_yarn(w, f);
  else {
    hri_json_field_string(w, "rope_type", "linear");
    hri_json_field_double(w, "factor", f->factor);
  }
  hri_json_end_object(w);
  return status;
}

static hr_status put_tokens(hri_json_writer *w, const hri_gguf *file, const facts *f, bool padding, hr_error *error) {
  static const struct {
    const char *key, *gguf;
  } tokens[] = {{"bos_token_id", "tokenizer.ggml.bos_token_id"},
                {"eos_token_id", "tokenizer.ggml.eos_token_id"},
                {"pad_token_id", "tokenizer.ggml.padding_token_id"}};
  for (size_t i = 0; i < 3; i++) {
    uint64_t id = 0;
    if (i == 2 && !padding) continue;
    HRI_TRY(hri_gguf_opt_u64(file, tokens[i].gguf, 0, UINT32_MAX, &id, error));
    hri_json_key(w, tokens[i].key);
    if (hri_gguf_has(file, tokens[i].gguf) && id < f->vocabulary) hri_json_put_u64(w, id);
    else hri_json_put_null(w);
  }
  return HR_OK;
}

static void put_layer_types(hri_json_writer *w, const facts *f) {
  hri_json_key(w, "layer_types");
  hri_json_begin_array(w);
  for (uint64_t i = 0; i < f->layers; i++)
    hri_json_put_string(w, f->pattern && hri_gguf_integer_at(&f->slides, i) ? "sliding_attention" : "full_attention");
  hri_json_end_array(w);
}

/* The share that, times the head size and cut to a whole number, is what is rotated. */
static void put_share(hri_json_writer *w, const facts *f) {
  double share = (double)f->rotary / (double)f->head_size;
  while ((uint64_t)((double)f->head_size * share) < f->rotary) share = nextafter(share, 2);
  hri_json_field_double(w, "partial_rotary_factor", share);
}

/* What only some families have. */
static void put_variations(hri_json_writer *w, const hri_gguf *file, hr_family family, const facts *f) {
  bool gemma2 = family == HR_FAMILY_GEMMA2, gemma3 = family == HR_FAMILY_GEMMA3;
  double scalar = f->scale != 0 ? 1 / (f->scale * f->scale) : (double)f->head_size;
  /* the 27B models scale by the share of a head in the hidden size, and say so by their depth alone (llama.cpp) */
  if (fabs(scalar - round(scalar)) < 1e-5 * scalar) scalar = round(scalar); /* through fp32 */
  if (f->scale == 0 && ((gemma2 && f->layers == 46) || (gemma3 && f->layers == 62)))
    scalar = (double)(f->hidden / f->heads); // NOLINT(bugprone-integer-division): they divide
  if (hri_family_is(family, HRI_MLP_BIASED)) {
    hri_json_field_bool(w, "attention_bias", hri_gguf_find(file, "blk.0.attn_q.bias") != HRI_GGUF_NONE);
    hri_json_field_bool(w, "mlp_bias", hri_gguf_find(file, "blk.0.ffn_down.bias") != HRI_GGUF_NONE);
  }
  if (family == HR_FAMILY_QWEN3)
    hri_json_field_bool(w, "attention_bias", hri_gguf_find(file, "blk.0.attn_q.bias") != HRI_GGUF_NONE);
  if (family == HR_FAMILY_QWEN2 || family == HR_FAMILY_QWEN3)
    hri_json_field_bool(w, "use_sliding_window", f->window > 0);
  if (family == HR_FAMILY_GRANITE) {
    hri_json_field_double(w, "attention_multiplier", f->scale != 0 ? f->scale : 1 / sqrt((double)f->head_size));
    hri_json_field_double(w, "embedding_multiplier", f->embedding_scale != 0 ? f->embedding_scale : 1);
    hri_json_field_double(w, "residual_multiplier", f->residual_scale != 0 ? f->residual_scale : 1);
    hri_json_field_double(w, "logits_scaling", f->logit_scale != 0 ? f->logit_scale : 1);
  }
  if (family == HR_FAMILY_STABLELM) { /* llama.cpp goes by the tensors too */
    hri_json_field_bool(w, "use_qkv_bias", hri_gguf_find(file, "blk.0.attn_q.bias") != HRI_GGUF_NONE);
    hri_json_field_bool(w, "use_parallel_residual", hri_gguf_find(file, "blk.0.ffn_norm.weight") == HRI_GGUF_NONE);
  }
  if (!hri_family_is(family, HRI_NO_WINDOWS)) {
    hri_json_key(w, "sliding_window");
    if (f->window) hri_json_put_u64(w, f->window);
    else hri_json_put_null(w);
  }
  if (f->pattern && !hri_family_is(family, HRI_NO_WINDOWS) && family != HR_FAMILY_PHI3 && family != HR_FAMILY_MISTRAL)
    put_layer_types(w, f);
  else if (gemma3 && f->window == 0) put_layer_types(w, f);
  if (hri_family_is(family, HRI_PARTIAL) && (f->rotary != f->head_size || family != HR_FAMILY_PHI3)) put_share(w, f);
  if (family == HR_FAMILY_PHI3)
    hri_json_field_u64(w, "original_max_position_embeddings", f->original_context ? f->original_context : f->context);
  if (gemma2 || gemma3) {
    hri_json_key(w, "query_pre_attn_scalar");
    if (scalar == round(scalar)) hri_json_put_u64(w, (uint64_t)scalar);
    else hri_json_put_double(w, scalar);
    hri_json_key(w, "attn_logit_softcapping");
    if (f->attention_cap != 0) hri_json_put_double(w, f->attention_cap);
    else hri_json_put_null(w);
    hri_json_key(w, "final_logit_softcapping");
    if (f->logit_cap != 0) hri_json_put_double(w, f->logit_cap);
    else hri_json_put_null(w);
  }
  if (gemma3) hri_json_field_double(w, "rope_local_base_freq", f->local_theta);
}

static hr_status put_decoder(hri_json_writer *w, const hri_gguf *file, hr_family family, const facts *f,
                             hr_error *error) {
  hri_json_field_u64(w, "vocab_size", f->vocabulary);
  hri_json_field_u64(w, "num_hidden_layers", f->layers);
  hri_json_field_u64(w, "hidden_size", f->hidden);
  hri_json_field_u64(w, "intermediate_size", f->mlp);
  hri_json_field_u64(w, "num_attention_heads", f->heads);
  hri_json_field_u64(w, "num_key_value_heads", f->kv_heads);
  if (family != HR_FAMILY_PHI3) hri_json_field_u64(w, "head_dim", f->head_size);
  hri_json_field_u64(w, "max_position_embeddings", f->context);
  hri_json_field_double(w,
                        hri_family_is(family, HRI_FAMILY(STABLELM) | HRI_FAMILY(PHI)) ? "layer_norm_eps"
                                                                                      : "rms_norm_eps",
                        f->epsilon);
  hri_json_field_double(w, "rope_theta", f->theta);
  put_variations(w, file, family, f);
  return put_scaling(w, file, f, error);
}

static void put_gpt2(hri_json_writer *w, const facts *f) {
  hri_json_field_u64(w, "vocab_size", f->vocabulary);
  hri_json_field_u64(w, "n_layer", f->layers);
  hri_json_field_u64(w, "n_embd", f->hidden);
  hri_json_field_u64(w, "n_head", f->heads);
  hri_json_field_u64(w, "n_positions", f->context);
  hri_json_field_u64(w, "n_inner", f->mlp);
  hri_json_field_double(w, "layer_norm_epsilon", f->epsilon);
  hri_json_field_double(w, "resid_pdrop", 0);
  hri_json_field_double(w, "embd_pdrop", 0);
  hri_json_field_double(w, "attn_pdrop", 0);
}

static hr_status put_config(hri_json_writer *w, const hri_gguf *file, hr_error *error) {
  const char *architecture;
  hr_family family = HR_FAMILY_LLAMA;
  facts f = {0};
  HRI_TRY(read_architecture(file, &architecture, &family, error));
  pass_over(file, architecture);
  HRI_TRY(check_causal(file, architecture, error));
  HRI_TRY(read_sizes(file, architecture, &f, error));
  HRI_TRY(read_numbers(file, architecture, &f, error));
  if (family == HR_FAMILY_LLAMA && f.window > 0) family = HR_FAMILY_MISTRAL;
  if (family == HR_FAMILY_GEMMA2 && !hri_gguf_has(file, KEY("attention.sliding_window")))
    f.window = 4096; /* files older than the key: llama.cpp */
  HRI_TRY(check_numbers(file, family, &f, error));
  hri_json_begin_object(w);
  hri_json_field_string(w, "model_type", hr_family_name(family));
  if (family == HR_FAMILY_GPT2) put_gpt2(w, &f);
  else HRI_TRY(put_decoder(w, file, family, &f, error));
  HRI_TRY(put_tokens(w, file, &f, family != HR_FAMILY_GPT2, error));
  hri_json_field_bool(w, "tie_word_embeddings", hri_gguf_find(file, "output.weight") == HRI_GGUF_NONE);
  hri_json_end_object(w);
  return HR_OK;
}

/* Keys of the architecture's name space that nothing above asked for: they may change what the model computes. */
static void list_unread(const hri_gguf *file, hr_model *model) {
  const char *architecture = "";
  char text[sizeof model->unread_keys] = "";
  size_t length, used = 0, left = 0;
  (void)hri_gguf_opt_string(file, "general.architecture", &architecture, NULL, NULL);
  length = strlen(architecture);
  for (uint32_t i = 0; i < hri_gguf_key_count(file); i++) {
    const char *key = hri_gguf_key(file, i);
    if (hri_gguf_key_asked(file, i) || strncmp(key, architecture, length) != 0 || key[length] != '.') continue;
    if (left > 0 || used + strlen(key) + 2 + sizeof " and 4294967295 more" > sizeof text) left++;
    else used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : "", key);
  }
  if (left > 0) (void)snprintf(text + used, sizeof text - used, "%s%zu more", used ? " and " : "", left);
  for (char *c = text; *c; c++)
    if (*c < ' ' || *c > '~') *c = '?'; /* a file's bytes on their way to a terminal */
  memcpy(model->unread_keys, text, sizeof text);
}

/* The name in the file, else that of the file. */
static void name_model(const hri_gguf *file, hr_model *model) {
  const char *path = hri_gguf_path(file), *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  if (hri_gguf_has(file, "general.name")) (void)hri_gguf_opt_string(file, "general.name", &name, NULL, NULL);
  hri_model_set_text(model->name, sizeof model->name, name);
}

static hr_status refuse_adapter(const hri_gguf *file, hr_error *error) {
  hri_fail(error, HR_ERROR_USAGE, "%s holds adapters, and no model", hri_gguf_path(file));
  return hri_hint(error, HR_ERROR_USAGE, "name the model that they belong to, and them by --adapter %.200s",
                  hri_gguf_path(file));
}

hr_status hri_gguf_model(const hri_gguf *file, hr_model *model, hr_error *error) {
  hri_text text = {0};
  hri_json_writer w = hri_json_writer_init(&text, 0);
  hr_model made;
  size_t length = strlen(hri_gguf_path(file));
  hr_status status;
  if (hri_gguf_has(file, "adapter.type")) return refuse_adapter(file, error);
  status = put_config(&w, file, error);
  if (status == HR_OK && text.failed) status = hri_fail_memory(error, text.length, hri_gguf_path(file));
  if (status == HR_OK) status = hr_model_parse(text.chars, text.length, hri_gguf_path(file), &made, error);
  hri_text_deinit(&text);
  if (status != HR_OK) return status;
  if (length >= sizeof made.directory)
    return hri_fail(error, HR_ERROR_USAGE, "the path of the model has %zu bytes; at most %zu are supported", length,
                    sizeof made.directory - 1);
  memcpy(made.directory, hri_gguf_path(file), length + 1);
  made.has_weights = true;
  hri_gguf_read_types(file, &made);
  list_unread(file, &made);
  name_model(file, &made);
  *model = made;
  return HR_OK;
}

hr_status hri_gguf_model_open(const char *path, hr_model *model, hr_error *error) {
  hri_gguf *file;
  hr_status status;
  HRI_TRY(hri_gguf_open(path, &file, error));
  status = hri_gguf_model(file, model, error);
  hri_gguf_close(file);
  return status;
}

/* ---- writing ---- */

static hr_status cannot_say(hr_error *error, const char *what) {
  hri_fail(error, HR_ERROR_UNSUPPORTED, "GGUF cannot express %s", what);
  return hri_hint(error, HR_ERROR_UNSUPPORTED, "keep the model in the Hugging Face format");
}

static hr_status check_expressible(const hr_model *m, hr_error *error) {
  const hr_rope *rope = &m->rope;
  double implied = rope->factor > 1 ? 0.1 * log(rope->factor) + 1 : 1;
  bool heads_scaled = fabs(m->attention_scale - 1 / sqrt((double)m->head_size)) < 1e-9;
  bool gemma = m->family == HR_FAMILY_GEMMA2 || m->family == HR_FAMILY_GEMMA3;
  if ((gemma || m->family == HR_FAMILY_GEMMA) && (m->qkv_bias || m->attention_output_bias))
    return cannot_say(error, "biases of attention in this family");
  if (m->family == HR_FAMILY_GEMMA2 && m->sliding_window == 0)
    return cannot_say(error, "a model of this family without sliding layers");
  if (m->family == HR_FAMILY_PHI3 && (uint64_t)m->head_count * m->head_size != m->hidden_size)
    return cannot_say(error, "heads that are together no hidden state (head_dim) in this family");
  hr_model usual;
  hri_family_defaults(&usual, m->family);
  if (m->activation != usual.activation) return cannot_say(error, "another activation than the family's usual one");
  if (!gemma && m->family != HR_FAMILY_GRANITE && !heads_scaled)
    return cannot_say(error, "an attention scale of its own (scale_attn_weights false)");
  usual = *m;
  hri_family_rope_layers(&usual, HRI_ROPE_INTERVAL);
  if (memcmp(m->no_rope, usual.no_rope, sizeof usual.no_rope) != 0)
    return cannot_say(error, "layers without RoPE other than each fourth");
  if (m->family == HR_FAMILY_SMOLLM3 && m->sliding_window > 0) return cannot_say(error, "windows of smollm3");
  if (m->family == HR_FAMILY_OLMO2 && m->qkv_bias) return cannot_say(error, "biases of attention in olmo2");
  if (m->learned_positions) return HR_OK;
  if (rope->scaling == HR_ROPE_DYNAMIC) return cannot_say(error, "dynamic RoPE scaling");
  if (rope->scaling == HR_ROPE_YARN && rope->no_truncation) return cannot_say(error, "yarn without truncation");
  if (rope->scaling == HR_ROPE_YARN && rope->mscale != 0 && rope->mscale_all_dim != 0)
    return cannot_say(error, "yarn with mscale");
  if (rope->scaling == HR_ROPE_YARN && rope->attention_factor != 0 && fabs(rope->attention_factor - implied) > 1e-6)
    return cannot_say(error, "yarn with an attention_factor of its own");
  if (rope->scaling == HR_ROPE_LLAMA3 &&
      !hri_family_in(m, HRI_FAMILY(LLAMA) | HRI_FAMILY(MISTRAL) | HRI_FAMILY(SMOLLM3)))
    return cannot_say(error, "llama3 RoPE scaling in this family");
  if (rope->scaling == HR_ROPE_LONGROPE && m->family != HR_FAMILY_PHI3)
    return cannot_say(error, "longrope scaling in this family");
  if (m->has_local_rope && m->local_rope.scaling != HR_ROPE_DEFAULT)
    return cannot_say(error, "RoPE scaling of sliding layers");
  return HR_OK;
}

static void put_text(hri_gguf_keys *keys, const char *key, const char *value) {
  hri_gguf_put_string(keys, key, value, strlen(value));
}

static void put_llama3_borders(hri_gguf_keys *keys, const hr_rope *rope) {
  hri_gguf_put_f32(keys, "headroom.rope.factor", rope->factor);
  hri_gguf_put_f32(keys, "headroom.rope.low_frequency_factor", rope->low_frequency_factor);
  hri_gguf_put_f32(keys, "headroom.rope.high_frequency_factor", rope->high_frequency_factor);
  hri_gguf_put_u32(keys, "headroom.rope.original_max_positions", rope->original_max_positions);
}

static void put_rope(hri_gguf_keys *keys, const char *architecture, const hr_model *m) {
  const hr_rope *rope = &m->rope;
  uint32_t original = rope->original_max_positions ? rope->original_max_positions : m->max_positions;
  double scale = (double)m->max_positions / original, implied = scale > 1 ? sqrt(1 + log(scale) / log(original)) : 1;
  if (rope->scaling == HR_ROPE_LLAMA3) put_llama3_borders(keys, rope);
  if (rope->scaling == HR_ROPE_LINEAR || rope->scaling == HR_ROPE_YARN) {
    put_text(keys, KEY("rope.scaling.type"), rope->scaling == HR_ROPE_LINEAR ? "linear" : "yarn");
    hri_gguf_put_f32(keys, KEY("rope.scaling.factor"), rope->factor);
  }
  if (rope->scaling == HR_ROPE_LONGROPE) {
    put_text(keys, KEY("rope.scaling.type"), "longrope");
    hri_gguf_put_f32(keys, KEY("rope.scaling.attn_factor"),
                     rope->attention_factor != 0 ? rope->attention_factor : implied);
  }
  if (rope->scaling == HR_ROPE_YARN || m->family == HR_FAMILY_PHI3)
    hri_gguf_put_u32(keys, KEY("rope.scaling.original_context_length"), original);
  if (rope->scaling == HR_ROPE_YARN && rope->beta_fast != 0)
    hri_gguf_put_f32(keys, KEY("rope.scaling.yarn_beta_fast"), rope->beta_fast);
  if (rope->scaling == HR_ROPE_YARN && rope->beta_slow != 0)
    hri_gguf_put_f32(keys, KEY("rope.scaling.yarn_beta_slow"), rope->beta_slow);
  hri_gguf_put_f32(keys, KEY("rope.freq_base"), rope->theta);
  if (m->has_local_rope) hri_gguf_put_f32(keys, KEY("rope.freq_base_swa"), m->local_rope.theta);
}

/* The pattern is said only where readers could not know it from the family: qwen's begins at a layer that no key says. */
static void put_window(hri_gguf_keys *keys, const char *architecture, const hr_model *m) {
  bool usual = m->family != HR_FAMILY_QWEN2 && m->family != HR_FAMILY_QWEN3;
  for (uint32_t i = 0; i < m->layer_count; i++) {
    bool expected = m->family == HR_FAMILY_GEMMA2   ? i % 2 == 0
                    : m->family == HR_FAMILY_GEMMA3 ? (i + 1) % 6 != 0
                                                    : true;
    usual = usual && (m->sliding[i] != 0) == expected;
  }
  if (m->sliding_window > 0 || m->family == HR_FAMILY_PHI3)
    hri_gguf_put_u32(keys, KEY("attention.sliding_window"), m->sliding_window);
  if (m->sliding_window == 0 || usual) return;
  hri_gguf_put_array(keys, KEY("attention.sliding_window_pattern"), HRI_GGUF_I32, m->layer_count);
  for (uint32_t i = 0; i < m->layer_count; i++) hri_gguf_add_i32(keys, m->sliding[i] != 0);
}

static void put_attention(hri_gguf_keys *keys, const char *architecture, const hr_model *m) {
  if (hri_family_in(m, HRI_ALL_GEMMA) || m->head_size * m->head_count != m->hidden_size ||
      m->family == HR_FAMILY_QWEN3) {
    hri_gguf_put_u32(keys, KEY("attention.key_length"), m->head_size);
    hri_gguf_put_u32(keys, KEY("attention.value_length"), m->head_size);
  }
  if (fabs(m->attention_scale - 1 / sqrt((double)m->head_size)) > 1e-9)
    hri_gguf_put_f32(keys, KEY("attention.scale"), m->attention_scale);
  if (m->family == HR_FAMILY_GRANITE) {
    hri_gguf_put_f32(keys, KEY("embedding_scale"), m->embedding_scale);
    hri_gguf_put_f32(keys, KEY("residual_scale"), m->residual_scale);
    hri_gguf_put_f32(keys, KEY("logit_scale"), m->logit_divisor);
  }
  if (m->family == HR_FAMILY_STABLELM) hri_gguf_put_bool(keys, KEY("use_parallel_residual"), m->parallel_residual);
  if (m->attention_softcap > 0) hri_gguf_put_f32(keys, KEY("attn_logit_softcapping"), m->attention_softcap);
  if (m->logit_softcap > 0) hri_gguf_put_f32(keys, KEY("final_logit_softcapping"), m->logit_softcap);
  if (!m->learned_positions) put_window(keys, architecture, m);
}

/* "135M", as in the names of models */
static void put_size_label(hri_gguf_keys *keys, const hr_model *m) {
  double count = (double)hr_model_parameter_count(m);
  char label[32];
  if (count >= 1e9) (void)hri_snprintf(label, sizeof label, "%.1fB", count / 1e9);
  else if (count >= 1e6) (void)hri_snprintf(label, sizeof label, "%.0fM", count / 1e6);
  else (void)hri_snprintf(label, sizeof label, "%.0fK", count / 1e3);
  put_text(keys, "general.size_label", label);
}

hr_status hri_gguf_put_model(hri_gguf_keys *keys, const hr_model *m, uint32_t file_type, hr_error *error) {
  const char *architecture = hri_gguf_architecture(m->family);
  HRI_TRY(check_expressible(m, error));
  put_text(keys, "general.architecture", architecture);
  put_text(keys, "general.type", "model");
  put_text(keys, "general.name", m->name);
  put_size_label(keys, m);
  hri_gguf_put_u32(keys, KEY("block_count"), m->layer_count);
  hri_gguf_put_u32(keys, KEY("context_length"), m->max_positions);
  hri_gguf_put_u32(keys, KEY("embedding_length"), m->hidden_size);
  hri_gguf_put_u32(keys, KEY("feed_forward_length"), m->mlp_size);
  hri_gguf_put_u32(keys, KEY("attention.head_count"), m->head_count);
  if (!m->learned_positions) hri_gguf_put_u32(keys, KEY("attention.head_count_kv"), m->kv_head_count);
  if (!m->learned_positions) put_rope(keys, architecture, m);
  hri_gguf_put_f32(keys,
                   m->norm == HR_NORM_RMS ? KEY("attention.layer_norm_rms_epsilon")
                                          : KEY("attention.layer_norm_epsilon"),
                   m->norm_epsilon);
  put_attention(keys, architecture, m);
  hri_gguf_put_u32(keys, "general.file_type", file_type);
  hri_gguf_put_u32(keys, KEY("vocab_size"), m->vocabulary_size);
  if (!m->learned_positions) hri_gguf_put_u32(keys, KEY("rope.dimension_count"), m->rotary_size);
  hri_gguf_put_u32(keys, "general.quantization_version", 2);
  return HR_OK;
}

void hri_gguf_put_adapter(hri_gguf_keys *keys, const hr_model *m, float alpha, uint32_t file_type) {
  put_text(keys, "general.architecture", hri_gguf_architecture(m->family));
  put_text(keys, "general.type", "adapter");
  put_text(keys, "adapter.type", "lora");
  put_text(keys, "general.name", m->name);
  hri_gguf_put_u32(keys, "general.file_type", file_type);
  hri_gguf_put_f32(keys, "adapter.lora.alpha", alpha);
  hri_gguf_put_u32(keys, "general.quantization_version", 2);
}

bool hri_gguf_extra(const hr_model *model, uint32_t index, const char **name, float *values, uint32_t *count) {
  const hr_rope *rope = &model->rope;
  double scaled[HR_MAX_ROPE_PAIRS], plain[HR_MAX_ROPE_PAIRS], factor;
  hr_rope none = {.theta = rope->theta};
  if (model->learned_positions || model->rotary_size / 2 > HR_MAX_ROPE_PAIRS) return false;
  *count = model->rotary_size / 2;
  if (rope->scaling == HR_ROPE_LLAMA3 && index == 0) {
    *name = "rope_freqs.weight";
    hri_rope_frequencies(rope, model->rotary_size, model->max_positions, model->max_positions, scaled, &factor);
    hri_rope_frequencies(&none, model->rotary_size, model->max_positions, model->max_positions, plain, &factor);
    for (uint32_t i = 0; i < *count; i++) values[i] = (float)(plain[i] / scaled[i]);
    return true;
  }
  if (rope->scaling != HR_ROPE_LONGROPE || index > 1) return false;
  *name = index == 0 ? "rope_factors_long.weight" : "rope_factors_short.weight";
  for (uint32_t i = 0; i < *count; i++)
    values[i] = (float)(index == 0 ? rope->long_factors[i] : rope->short_factors[i]);
  return true;
}
