/* Writing config.json: the v4 keys, which v5 reads too, in alphabetical order as transformers writes them. */
#include <math.h>
#include <string.h>

#include "model/bnb.h"
#include "model/config.h"

typedef void (*put_value)(hri_json_writer *w, const hr_model *m);

#define PUT(name, expression)                                                                                          \
  static void name(hri_json_writer *w, const hr_model *m) { (void)m, expression; }

static void put_token(hri_json_writer *w, int32_t token) {
  if (token < 0) hri_json_put_null(w);
  else hri_json_put_i64(w, token);
}

/* 0 stands for "off" */
static void put_switch(hri_json_writer *w, double value) {
  if (value == 0) hri_json_put_null(w);
  else hri_json_put_double(w, value);
}

static void put_architecture(hri_json_writer *w, const hr_model *m) {
  static const char *const names[HR_FAMILY_COUNT] =
      {[HR_FAMILY_GPT2] = "GPT2LMHeadModel",         [HR_FAMILY_LLAMA] = "LlamaForCausalLM",
       [HR_FAMILY_MISTRAL] = "MistralForCausalLM",   [HR_FAMILY_QWEN2] = "Qwen2ForCausalLM",
       [HR_FAMILY_QWEN3] = "Qwen3ForCausalLM",       [HR_FAMILY_PHI3] = "Phi3ForCausalLM",
       [HR_FAMILY_GEMMA2] = "Gemma2ForCausalLM",     [HR_FAMILY_GEMMA3] = "Gemma3ForCausalLM",
       [HR_FAMILY_GEMMA] = "GemmaForCausalLM",       [HR_FAMILY_SMOLLM3] = "SmolLM3ForCausalLM",
       [HR_FAMILY_GRANITE] = "GraniteForCausalLM",   [HR_FAMILY_OLMO2] = "Olmo2ForCausalLM",
       [HR_FAMILY_STABLELM] = "StableLmForCausalLM", [HR_FAMILY_PHI] = "PhiForCausalLM"};
  hri_json_begin_array(w);
  hri_json_put_string(w, names[m->family]);
  hri_json_end_array(w);
}

/* ---- values that take more than a field ---- */

/* The form by a tanh is gelu_new in gpt2's files, and phi's. */
static void put_activation(hri_json_writer *w, const hr_model *m) {
  static const char *const names[HR_ACTIVATION_COUNT] = {[HR_ACTIVATION_GELU_TANH] = "gelu_pytorch_tanh",
                                                         [HR_ACTIVATION_SILU] = "silu",
                                                         [HR_ACTIVATION_GELU] = "gelu",
                                                         [HR_ACTIVATION_RELU] = "relu"};
  bool old = hri_family_in(m, HRI_FAMILY(GPT2) | HRI_FAMILY(PHI)) && m->activation == HR_ACTIVATION_GELU_TANH;
  hri_json_put_string(w, old ? "gelu_new" : names[m->activation]);
}

static void put_inner(hri_json_writer *w, const hr_model *m) {
  if (m->mlp_size == 4 * (uint64_t)m->hidden_size) hri_json_put_null(w);
  else hri_json_put_u64(w, m->mlp_size);
}

static void put_layer_types(hri_json_writer *w, const hr_model *m) {
  hri_json_begin_array(w);
  for (uint32_t l = 0; l < m->layer_count; l++)
    hri_json_put_string(w, m->sliding[l] ? "sliding_attention" : "full_attention");
  hri_json_end_array(w);
}

/* The interval that makes the list which stands beside it; where none does, the usual one, as the list is what counts. */
static void put_rope_interval(hri_json_writer *w, const hr_model *m) {
  hr_model made = *m;
  uint64_t interval = HRI_ROPE_INTERVAL;
  hri_family_rope_layers(&made, interval);
  for (uint64_t i = 1; memcmp(made.no_rope, m->no_rope, sizeof made.no_rope) != 0 && i <= m->layer_count + 1; i++)
    hri_family_rope_layers(&made, interval = i);
  if (memcmp(made.no_rope, m->no_rope, sizeof made.no_rope) != 0) interval = HRI_ROPE_INTERVAL;
  hri_json_put_u64(w, interval);
}

static void put_rope_layers(hri_json_writer *w, const hr_model *m) {
  hri_json_begin_array(w);
  for (uint32_t l = 0; l < m->layer_count; l++) hri_json_put_u64(w, !m->no_rope[l]);
  hri_json_end_array(w);
}

/* gemma's code in transformers wants a window even where layer_types has no layer that slides. */
static void put_window(hri_json_writer *w, const hr_model *m) {
  uint32_t unused = hri_family_in(m, HRI_GEMMA) ? 4096 /* Gemma2Config, Gemma3TextConfig */ : 0,
           window = m->sliding_window ? m->sliding_window : unused;
  if (window == 0) hri_json_put_null(w);
  else hri_json_put_u64(w, window);
}

/* qwen's rule without layer_types: layers from this one on slide. */
static void put_first_window(hri_json_writer *w, const hr_model *m) {
  uint32_t first = m->layer_count;
  while (first > 0 && m->sliding[first - 1]) first--;
  hri_json_put_u64(w, first);
}

/* The scale is this to the power of -0.5, exactly as it is read back; transformers wants a whole number where it is
 * one. */
static void put_query_scalar(hri_json_writer *w, const hr_model *m) {
  double scalar = 1 / (m->attention_scale * m->attention_scale), whole = nearbyint(scalar);
  if (whole > 0 && pow(whole, -0.5) == m->attention_scale) {
    hri_json_put_u64(w, (uint64_t)whole);
    return;
  }
  for (int k = 0; k < 8 && pow(scalar, -0.5) < m->attention_scale; k++) scalar = nextafter(scalar, 0);
  for (int k = 0; k < 8 && pow(scalar, -0.5) > m->attention_scale; k++) scalar = nextafter(scalar, INFINITY);
  hri_json_put_double(w, scalar);
}

/* The share that, times the head size and cut to a whole number, is the rotary size. */
static void put_partial(hri_json_writer *w, const hr_model *m) {
  double share = (double)m->rotary_size / m->head_size;
  while ((uint32_t)(m->head_size * share) < m->rotary_size) share = nextafter(share, 2);
  hri_json_put_double(w, share);
}

static void put_original(hri_json_writer *w, const hr_model *m) {
  hri_json_put_u64(w, m->rope.original_max_positions ? m->rope.original_max_positions : m->max_positions);
}

/* ---- rotary positions ---- */

static void field_numbers(hri_json_writer *w, const char *key, const double *values, uint32_t count) {
  hri_json_key(w, key);
  hri_json_begin_array(w);
  for (uint32_t i = 0; i < count; i++) hri_json_put_double(w, values[i]);
  hri_json_end_array(w);
}

static void field_given(hri_json_writer *w, const char *key, double value) {
  if (value != 0) hri_json_field_double(w, key, value);
}

/* The members of rope_scaling, in alphabetical order. Early readers of phi3 files want "type" and nothing that is
 * derived; its original_max_position_embeddings stands outside. */
static void put_scaling_members(hri_json_writer *w, const hr_rope *rope, bool phi3) {
  field_given(w, "attention_factor", rope->attention_factor);
  field_given(w, "beta_fast", rope->beta_fast);
  field_given(w, "beta_slow", rope->beta_slow);
  field_given(w, "factor", rope->factor);
  field_given(w, "high_freq_factor", rope->high_frequency_factor);
  if (rope->scaling == HR_ROPE_LONGROPE) field_numbers(w, "long_factor", rope->long_factors, rope->factor_count);
  field_given(w, "low_freq_factor", rope->low_frequency_factor);
  field_given(w, "mscale", rope->mscale);
  field_given(w, "mscale_all_dim", rope->mscale_all_dim);
  if (rope->original_max_positions && !phi3)
    hri_json_field_u64(w, "original_max_position_embeddings", rope->original_max_positions);
  if (!phi3) hri_json_field_string(w, "rope_type", hri_rope_kind_name(rope->scaling));
  if (rope->scaling == HR_ROPE_LONGROPE) field_numbers(w, "short_factor", rope->short_factors, rope->factor_count);
  if (rope->no_truncation) hri_json_field_bool(w, "truncate", false);
  if (phi3) hri_json_field_string(w, "type", hri_rope_kind_name(rope->scaling));
}

static void put_scaling(hri_json_writer *w, const hr_model *m) {
  if (m->rope.scaling == HR_ROPE_DEFAULT) {
    hri_json_put_null(w);
    return;
  }
  hri_json_begin_object(w);
  put_scaling_members(w, &m->rope, m->family == HR_FAMILY_PHI3);
  hri_json_end_object(w);
}

static void put_parameters_of(hri_json_writer *w, const char *key, const hr_rope *rope) {
  hri_json_key(w, key);
  hri_json_begin_object(w);
  hri_json_field_double(w, "rope_theta", rope->theta);
  if (rope->scaling == HR_ROPE_DEFAULT) hri_json_field_string(w, "rope_type", "default");
  else put_scaling_members(w, rope, false);
  hri_json_end_object(w);
}

/* gemma3 whose sliding layers are scaled too: v4 has no word for it. */
static void put_parameters(hri_json_writer *w, const hr_model *m) {
  hri_json_begin_object(w);
  put_parameters_of(w, "full_attention", &m->rope);
  put_parameters_of(w, "sliding_attention", &m->local_rope);
  hri_json_end_object(w);
}

/* ---- the table ---- */

PUT(put_biased, hri_json_put_bool(w, m->qkv_bias))
PUT(put_attention_dropout, hri_json_put_double(w, m->dropout.attention))
PUT(put_residual_dropout, hri_json_put_double(w, m->dropout.residual))
PUT(put_embedding_dropout, hri_json_put_double(w, m->dropout.embedding))
PUT(put_attention_factor, hri_json_put_double(w, m->attention_scale))
PUT(put_embedding_factor, hri_json_put_double(w, m->embedding_scale))
PUT(put_residual_factor, hri_json_put_double(w, m->residual_scale))
PUT(put_logit_divisor, hri_json_put_double(w, m->logit_divisor))
PUT(put_false, hri_json_put_bool(w, false))
PUT(put_attention_cap, put_switch(w, m->attention_softcap))
PUT(put_bos, put_token(w, m->bos_token))
PUT(put_eos, put_token(w, m->eos_token))
PUT(put_logit_cap, put_switch(w, m->logit_softcap))
PUT(put_head_size, hri_json_put_u64(w, m->head_size))
PUT(put_hidden, hri_json_put_u64(w, m->hidden_size))
PUT(put_init, hri_json_put_double(w, m->init_std))
PUT(put_mlp, hri_json_put_u64(w, m->mlp_size))
PUT(put_epsilon, hri_json_put_double(w, m->norm_epsilon))
PUT(put_positions, hri_json_put_u64(w, m->max_positions))
PUT(put_mlp_biased, hri_json_put_bool(w, m->mlp_bias))
PUT(put_type, hri_json_put_string(w, hr_family_name(m->family)))
PUT(put_heads, hri_json_put_u64(w, m->head_count))
PUT(put_layers, hri_json_put_u64(w, m->layer_count))
PUT(put_kv_heads, hri_json_put_u64(w, m->kv_head_count))
PUT(put_pad, put_token(w, m->pad_token))
PUT(put_one, hri_json_put_u64(w, 1))
PUT(put_local_theta, hri_json_put_double(w, m->local_rope.theta))
PUT(put_theta, hri_json_put_double(w, m->rope.theta))
PUT(put_scaled, hri_json_put_bool(w, m->head_size == 1 || m->attention_scale != 1.0))
PUT(put_tied, hri_json_put_bool(w, m->tied_embeddings))
PUT(put_slides, hri_json_put_bool(w, m->sliding_window > 0))
PUT(put_vocabulary, hri_json_put_u64(w, m->vocabulary_size))

enum {
  ALL = (1u << HR_FAMILY_COUNT) - 1,
  GPT2 = HRI_FAMILY(GPT2),
  ROTARY = ALL & ~GPT2,
  LLAMA = HRI_FAMILY(LLAMA),
  PHI3 = HRI_FAMILY(PHI3),
  QWEN = HRI_QWEN,
  GEMMA = HRI_GEMMA,
  GEMMA3 = HRI_FAMILY(GEMMA3),
  SMOLLM3 = HRI_FAMILY(SMOLLM3),
  GRANITE = HRI_FAMILY(GRANITE),
  STABLELM = HRI_FAMILY(STABLELM),
  PHI = HRI_FAMILY(PHI),
  LAYER_NORMS = STABLELM | PHI /* under layer_norm_eps */
};

static const struct {
  const char *key;
  uint32_t families;
  put_value put;
} before_dtype[] = {
    {"activation_function", GPT2, put_activation},
    {"architectures", ALL, put_architecture},
    {"attention_bias", HRI_BIASED, put_biased},
    {"attention_dropout", ROTARY, put_attention_dropout},
    {"attention_multiplier", GRANITE, put_attention_factor},
    {"attn_logit_softcapping", GEMMA, put_attention_cap},
    {"attn_pdrop", GPT2, put_attention_dropout},
    {"bos_token_id", ALL, put_bos},
    {"embd_pdrop", GPT2 | PHI3 | PHI, put_embedding_dropout},
    {"embedding_multiplier", GRANITE, put_embedding_factor},
    {"eos_token_id", ALL, put_eos},
    {"final_logit_softcapping", GEMMA, put_logit_cap},
    {"head_dim", ROTARY, put_head_size},
    {"hidden_act", ROTARY & ~GEMMA, put_activation},
    {"hidden_activation", GEMMA, put_activation},
    {"hidden_dropout", STABLELM, put_residual_dropout},
    {"hidden_size", ROTARY, put_hidden},
    {"initializer_range", ALL, put_init},
    {"intermediate_size", ROTARY, put_mlp},
    {"layer_norm_eps", LAYER_NORMS, put_epsilon},
    {"layer_norm_epsilon", GPT2, put_epsilon},
    {"layer_types", QWEN | GEMMA | SMOLLM3, put_layer_types},
    {"logits_scaling", GRANITE, put_logit_divisor},
    {"max_position_embeddings", ROTARY, put_positions},
    {"max_window_layers", QWEN, put_first_window},
    {"mlp_bias", HRI_MLP_BIASED, put_mlp_biased},
    {"model_type", ALL, put_type},
    {"n_embd", GPT2, put_hidden},
    {"n_head", GPT2, put_heads},
    {"n_inner", GPT2, put_inner},
    {"n_layer", GPT2, put_layers},
    {"n_positions", GPT2, put_positions},
    {"no_rope_layer_interval", SMOLLM3, put_rope_interval},
    {"no_rope_layers", SMOLLM3, put_rope_layers},
    {"num_attention_heads", ROTARY, put_heads},
    {"num_hidden_layers", ROTARY, put_layers},
    {"num_key_value_heads", ROTARY, put_kv_heads},
    {"original_max_position_embeddings", PHI3, put_original},
    {"pad_token_id", ROTARY, put_pad},
    {"partial_rotary_factor", HRI_PARTIAL, put_partial},
    {"pretraining_tp", LLAMA, put_one},
    {"qk_layernorm", LAYER_NORMS, put_false},
    {"query_pre_attn_scalar", GEMMA, put_query_scalar},
    {"resid_pdrop", GPT2 | PHI3 | PHI, put_residual_dropout},
    {"residual_multiplier", GRANITE, put_residual_factor},
    {"rms_norm_eps", ROTARY & ~LAYER_NORMS, put_epsilon},
    {"rope_local_base_freq", GEMMA3, put_local_theta},
    {"rope_parameters", GEMMA3, put_parameters},
    {"rope_scaling", ROTARY, put_scaling},
    {"rope_theta", ROTARY, put_theta},
    {"scale_attn_by_inverse_layer_idx", GPT2, put_false},
    {"scale_attn_weights", GPT2, put_scaled},
    {"sliding_window", ALL & ~HRI_NO_WINDOWS, put_window},
    {"tie_word_embeddings", ALL, put_tied},
};

/* v4 keys for gemma3 unless its sliding layers are scaled; then only v5's dicts. */
static bool wanted(const hr_model *m, put_value put) {
  bool dicts = m->has_local_rope && m->local_rope.scaling != HR_ROPE_DEFAULT;
  if (put == put_parameters) return dicts;
  if (put == put_local_theta || put == put_scaling || put == put_theta) return !dicts;
  return true;
}

static void put_quantization(hri_json_writer *w, const hr_model *m, const char *dtype) {
  hri_file_dtype type = strcmp(dtype, "bfloat16") == 0  ? HRI_FILE_BF16
                        : strcmp(dtype, "float16") == 0 ? HRI_FILE_F16
                                                        : HRI_FILE_F32;
  if (m->quantization != HR_QUANTIZE_NONE) hri_bnb_config_put(w, m, type);
}

char *hr_model_config_text(const hr_model *model, const char *dtype) {
  hri_text text = {0};
  hri_json_writer w = hri_json_writer_init(&text, 2);
  hri_json_begin_object(&w);
  for (size_t i = 0; i < sizeof before_dtype / sizeof *before_dtype; i++) {
    if (!hri_family_in(model, before_dtype[i].families) || !wanted(model, before_dtype[i].put)) continue;
    hri_json_key(&w, before_dtype[i].key);
    before_dtype[i].put(&w, model);
  }
  put_quantization(&w, model, dtype);
  hri_json_field_string(&w, "torch_dtype", dtype);
  hri_json_field_bool(&w, "use_cache", true);
  if (hri_family_in(model, STABLELM)) {
    hri_json_field_bool(&w, "use_parallel_residual", model->parallel_residual);
    hri_json_field_bool(&w, "use_qkv_bias", model->qkv_bias);
  }
  if (hri_family_in(model, QWEN | SMOLLM3)) {
    hri_json_key(&w, "use_sliding_window");
    put_slides(&w, model);
  }
  hri_json_key(&w, "vocab_size");
  put_vocabulary(&w, model);
  hri_json_end_object(&w);
  hri_text_add(&text, "\n");
  if (!text.failed) return text.chars;
  hri_text_deinit(&text);
  return NULL;
}
