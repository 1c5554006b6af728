/* Model descriptions: config.json in both directions, refusals by field, the table of parameters and their Hugging Face
 * names, and what a user may name as a model. Presets against published figures: test_presets.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <headroom/model.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/params.h"
#include "model/rope.h"
#include "support/random_family.h"
#include "support/scratch.h"

/* ---- helpers ---- */

static hr_model preset(const char *name) {
  hr_model model;
  hr_error error;
  if (hr_model_preset(name, &model, &error) != HR_OK) fail_msg("%s: %s", name, error.message);
  return model;
}

static hr_model parsed(const char *text) {
  hr_model model;
  hr_error error;
  if (hr_model_parse(text, strlen(text), "config.json", &model, &error) != HR_OK) fail_msg("%s", error.message);
  return model;
}

/* Everything but the name and the place of the weights. */
static void assert_same_rope(const hr_rope *a, const hr_rope *b) {
  assert_true(a->theta == b->theta);
  assert_int_equal(a->scaling, b->scaling);
  if (a->scaling != HR_ROPE_DEFAULT) assert_true(a->factor == b->factor);
  assert_true(a->low_frequency_factor == b->low_frequency_factor);
  assert_true(a->high_frequency_factor == b->high_frequency_factor);
  if (a->scaling == HR_ROPE_LLAMA3 || a->scaling == HR_ROPE_YARN || a->scaling == HR_ROPE_LONGROPE)
    assert_int_equal(a->original_max_positions, b->original_max_positions);
  assert_true(a->attention_factor == b->attention_factor);
  assert_true(a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow);
  assert_true(a->mscale == b->mscale && a->mscale_all_dim == b->mscale_all_dim);
  assert_int_equal(a->no_truncation, b->no_truncation);
  assert_int_equal(a->factor_count, b->factor_count);
  assert_memory_equal(a->short_factors, b->short_factors, sizeof a->short_factors);
  assert_memory_equal(a->long_factors, b->long_factors, sizeof a->long_factors);
}

static void assert_same(const hr_model *a, const hr_model *b) {
  assert_int_equal(a->family, b->family);
  assert_int_equal(a->layer_count, b->layer_count);
  assert_int_equal(a->hidden_size, b->hidden_size);
  assert_int_equal(a->head_count, b->head_count);
  assert_int_equal(a->kv_head_count, b->kv_head_count);
  assert_int_equal(a->head_size, b->head_size);
  assert_int_equal(a->mlp_size, b->mlp_size);
  assert_int_equal(a->vocabulary_size, b->vocabulary_size);
  assert_int_equal(a->max_positions, b->max_positions);
  assert_int_equal(a->norm, b->norm);
  assert_true(a->norm_epsilon == b->norm_epsilon);
  assert_int_equal(a->activation, b->activation);
  assert_int_equal(a->gated_mlp, b->gated_mlp);
  assert_int_equal(a->learned_positions, b->learned_positions);
  assert_int_equal(a->qkv_bias, b->qkv_bias);
  assert_int_equal(a->attention_output_bias, b->attention_output_bias);
  assert_int_equal(a->mlp_bias, b->mlp_bias);
  assert_int_equal(a->tied_embeddings, b->tied_embeddings);
  assert_same_rope(&a->rope, &b->rope);
  assert_int_equal(a->has_local_rope, b->has_local_rope);
  if (a->has_local_rope) assert_same_rope(&a->local_rope, &b->local_rope);
  assert_int_equal(a->rotary_size, b->rotary_size);
  assert_int_equal(a->sliding_window, b->sliding_window);
  assert_memory_equal(a->sliding, b->sliding, sizeof a->sliding);
  assert_int_equal(a->qk_norm, b->qk_norm);
  assert_int_equal(a->post_norms, b->post_norms);
  assert_true(a->norm_weight_offset == b->norm_weight_offset);
  assert_true(a->embedding_scale == b->embedding_scale);
  assert_true(a->attention_softcap == b->attention_softcap);
  assert_true(a->logit_softcap == b->logit_softcap);
  assert_true(a->attention_scale == b->attention_scale);
  assert_true(a->init_std == b->init_std);
  assert_int_equal(a->init_scale_residual, b->init_scale_residual);
  assert_int_equal(a->pad_token, b->pad_token);
  assert_int_equal(a->bos_token, b->bos_token);
  assert_int_equal(a->eos_token, b->eos_token);
  assert_true(a->dropout.attention == b->dropout.attention && a->dropout.residual == b->dropout.residual &&
              a->dropout.embedding == b->dropout.embedding);
}

/* A config as members, of which a test replaces one (value NULL: leaves it out) or adds one. */
typedef struct member {
  const char *key, *value;
} member;

static const member gpt2_members[] = {
    {"model_type", "\"gpt2\""},
    {"vocab_size", "67"},
    {"n_positions", "24"},
    {"n_embd", "30"},
    {"n_layer", "2"},
    {"n_head", "3"},
    {"n_inner", "null"},
    {"activation_function", "\"gelu_new\""},
    {NULL, NULL},
};
static const member llama_members[] = {
    {"model_type", "\"llama\""},
    {"vocab_size", "71"},
    {"hidden_size", "36"},
    {"intermediate_size", "50"},
    {"num_hidden_layers", "2"},
    {"num_attention_heads", "6"},
    {"num_key_value_heads", "2"},
    {"max_position_embeddings", "29"},
    {"hidden_act", "\"silu\""},
    {"rms_norm_eps", "1e-05"},
    {NULL, NULL},
};

static const member mistral_members[] = {
    {"model_type", "\"mistral\""},
    {"vocab_size", "71"},
    {"hidden_size", "48"},
    {"intermediate_size", "50"},
    {"num_hidden_layers", "2"},
    {"num_attention_heads", "8"},
    {"max_position_embeddings", "29"},
    {NULL, NULL},
};
static const member qwen3_members[] = {
    {"model_type", "\"qwen3\""},
    {"vocab_size", "71"},
    {"hidden_size", "36"},
    {"intermediate_size", "50"},
    {"num_hidden_layers", "2"},
    {"num_attention_heads", "6"},
    {"num_key_value_heads", "2"},
    {"max_position_embeddings", "29"},
    {NULL, NULL},
};
static const member phi3_members[] = {
    {"model_type", "\"phi3\""},
    {"vocab_size", "71"},
    {"hidden_size", "36"},
    {"intermediate_size", "50"},
    {"num_hidden_layers", "2"},
    {"num_attention_heads", "6"},
    {"max_position_embeddings", "29"},
    {NULL, NULL},
};
static const member gemma3_members[] = {
    {"model_type", "\"gemma3_text\""},
    {"vocab_size", "262208"},
    {"hidden_size", "40"},
    {"intermediate_size", "50"},
    {"num_hidden_layers", "7"},
    {"num_attention_heads", "8"},
    {"max_position_embeddings", "131072"},
    {NULL, NULL},
};

/* What the later families share, with another model_type. */
static const member decoder_members[] = {
    {"model_type", "\"smollm3\""},
    {"vocab_size", "71"},
    {"hidden_size", "48"},
    {"intermediate_size", "50"},
    {"num_hidden_layers", "5"},
    {"num_attention_heads", "6"},
    {"num_key_value_heads", "2"},
    {"max_position_embeddings", "29"},
    {NULL, NULL},
};
static const member stablelm_members[] = {
    {"model_type", "\"stablelm\""},
    {"vocab_size", "71"},
    {"hidden_size", "48"},
    {"intermediate_size", "50"},
    {"num_hidden_layers", "2"},
    {"num_attention_heads", "6"},
    {"num_key_value_heads", "2"},
    {"max_position_embeddings", "29"},
    {NULL, NULL},
};

static const char *config_with(const member *base, const char *key, const char *value) {
  static char text[4096];
  size_t used = 0;
  bool replaced = false;
  text[used++] = '{';
  for (; base->key; base++) {
    bool hit = key && strcmp(base->key, key) == 0;
    const char *v = hit ? value : base->value;
    replaced = replaced || hit;
    if (v)
      used += (size_t)snprintf(text + used, sizeof text - used, "%s\"%s\": %s", used > 1 ? ", " : "", base->key, v);
  }
  if (key && !replaced && value) used += (size_t)snprintf(text + used, sizeof text - used, ", \"%s\": %s", key, value);
  (void)snprintf(text + used, sizeof text - used, "}");
  return text;
}

/* ---- presets ---- */

static void test_presets_are_sound(void **state) {
  hr_error error;
  hr_model alias = preset("GPT2-XL"), model = preset("gpt2-1558m");
  (void)state;
  assert_true(hr_model_preset_count() >= 17);
  assert_null(hr_model_preset_name(hr_model_preset_count()));
  assert_same(&alias, &model);
  for (uint32_t i = 0; i < hr_model_preset_count(); i++) {
    model = preset(hr_model_preset_name(i));
    if (hr_model_check(&model, &error) != HR_OK) fail_msg("%s: %s", model.name, error.message);
    assert_string_equal(model.name, hr_model_preset_name(i));
    assert_string_equal(model.directory, "");
    for (uint32_t j = 0; j < i; j++) assert_string_not_equal(hr_model_preset_name(i), hr_model_preset_name(j));
  }
  model = preset("tiny-llama-bytes");
  assert_int_equal(model.vocabulary_size, 257);
  assert_int_equal(model.eos_token, 256);
  assert_int_equal(hr_model_parameter_count(&model), 1623936); /* small enough for the demo */
}

/* ---- parameters ---- */

/* Sum and coverage: the specs hold exactly the parameters counted, and the parts of each cover its rows in order. */
static void test_specs_cover_the_model(void **state) {
  (void)state;
  for (uint32_t i = 0; i < hr_model_preset_count(); i++) {
    hr_model model = preset(hr_model_preset_name(i));
    uint64_t total = 0;
    uint32_t unit = 0;
    for (uint32_t p = 0; p < hri_param_count(&model); p++) {
      hri_param_spec spec;
      uint64_t row = 0;
      hri_param_get(&model, p, &spec);
      total += spec.dims[0] * spec.dims[1];
      assert_true(spec.unit >= unit && spec.unit <= model.layer_count + 1); /* order of execution */
      unit = spec.unit;
      assert_true(spec.part_count >= 1 && spec.part_count <= HRI_PARAM_PARTS);
      assert_int_equal(spec.decay, spec.rank == 2);
      assert_int_equal(spec.layer, unit == 0 || unit == model.layer_count + 1 ? -1 : (int32_t)unit - 1);
      for (uint32_t k = 0; k < spec.part_count; k++) {
        assert_true(spec.parts[k].row == row && spec.parts[k].rows > 0);
        assert_true(!spec.parts[k].transposed || (model.family == HR_FAMILY_GPT2 && spec.rank == 2));
        row += spec.parts[k].rows;
      }
      assert_true(row == spec.dims[0]);
    }
    assert_int_equal(unit, model.layer_count + 1);
    assert_true(total == hr_model_parameter_count(&model));
  }
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static void test_names_are_unique(void **state) {
  static char names[4096][96];
  static const char *order[4096];
  (void)state;
  for (uint32_t i = 0; i < hr_model_preset_count(); i++) {
    hr_model model = preset(hr_model_preset_name(i));
    size_t count = 0;
    for (uint32_t p = 0; p < hri_param_count(&model); p++) {
      hri_param_spec spec;
      hri_param_get(&model, p, &spec);
      for (uint32_t k = 0; k < spec.part_count; k++) {
        assert_true(count < 4095);
        memcpy(names[count++], spec.parts[k].name, 96);
      }
      (void)snprintf(names[count++], 96, "ours.%s", spec.name);
    }
    for (size_t n = 0; n < count; n++) order[n] = names[n];
    qsort(order, count, sizeof *order, by_name);
    for (size_t n = 1; n < count; n++) assert_string_not_equal(order[n - 1], order[n]);
  }
}

/* The parameter with our name. */
static hri_param_spec spec_of(const hr_model *model, const char *name) {
  hri_param_spec spec;
  for (uint32_t p = 0; p < hri_param_count(model); p++) {
    hri_param_get(model, p, &spec);
    if (strcmp(spec.name, name) == 0) return spec;
  }
  fail_msg("there is no parameter %s", name);
  return spec;
}

static void assert_part(const hri_param_spec *spec, uint32_t part, const char *name, uint64_t row, uint64_t rows,
                        bool transposed) {
  assert_string_equal(spec->parts[part].name, name);
  assert_int_equal(spec->parts[part].row, row);
  assert_int_equal(spec->parts[part].rows, rows);
  assert_int_equal(spec->parts[part].transposed, transposed);
}

static void test_llama_names(void **state) {
  hr_model model = preset("llama-3-8b");
  hri_param_spec spec = spec_of(&model, "layers.31.qkv.weight");
  (void)state;
  assert_int_equal(spec.dims[0], 6144);
  assert_int_equal(spec.dims[1], 4096);
  assert_int_equal(spec.part_count, 3);
  assert_part(&spec, 0, "model.layers.31.self_attn.q_proj.weight", 0, 4096, false);
  assert_part(&spec, 1, "model.layers.31.self_attn.k_proj.weight", 4096, 1024, false);
  assert_part(&spec, 2, "model.layers.31.self_attn.v_proj.weight", 5120, 1024, false);
  spec = spec_of(&model, "layers.0.mlp_in.weight");
  assert_int_equal(spec.part_count, 2);
  assert_part(&spec, 0, "model.layers.0.mlp.gate_proj.weight", 0, 14336, false);
  assert_part(&spec, 1, "model.layers.0.mlp.up_proj.weight", 14336, 14336, false);
  spec = spec_of(&model, "layers.7.attention_output.weight");
  assert_part(&spec, 0, "model.layers.7.self_attn.o_proj.weight", 0, 4096, false);
  spec = spec_of(&model, "layers.7.norm2.weight");
  assert_part(&spec, 0, "model.layers.7.post_attention_layernorm.weight", 0, 4096, false);
  spec = spec_of(&model, "head.weight");
  assert_part(&spec, 0, "lm_head.weight", 0, 128256, false);
  assert_int_equal(spec.unit, 33);
  spec = spec_of(&model, "final_norm.weight");
  assert_part(&spec, 0, "model.norm.weight", 0, 4096, false);
  /* biases where the config asks for them, head_size apart from hidden / heads */
  model = parsed(config_with(llama_members, "head_dim", "10"));
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
  spec = spec_of(&model, "layers.1.qkv.bias");
  assert_int_equal(spec.rank, 1);
  assert_int_equal(spec.dims[0], 100);
  assert_part(&spec, 2, "model.layers.1.self_attn.v_proj.bias", 80, 20, false);
  spec = spec_of(&model, "layers.1.attention_output.weight");
  assert_int_equal(spec.dims[0], 36);
  assert_int_equal(spec.dims[1], 60);
  spec = spec_of(&model, "layers.1.mlp_in.bias");
  assert_part(&spec, 1, "model.layers.1.mlp.up_proj.bias", 50, 50, false);
}

static void test_gpt2_names(void **state) {
  hr_model model = preset("gpt2");
  hri_param_spec spec = spec_of(&model, "layers.11.qkv.weight");
  (void)state;
  assert_int_equal(hri_param_count(&model), 2 + 12 * 12 + 2);
  assert_int_equal(spec.part_count, 1);
  assert_int_equal(spec.dims[0], 2304);
  assert_int_equal(spec.dims[1], 768);
  assert_part(&spec, 0, "transformer.h.11.attn.c_attn.weight", 0, 2304, true);
  spec = spec_of(&model, "layers.11.mlp_out.weight");
  assert_int_equal(spec.dims[0], 768);
  assert_int_equal(spec.dims[1], 3072);
  assert_part(&spec, 0, "transformer.h.11.mlp.c_proj.weight", 0, 768, true);
  spec = spec_of(&model, "position_embedding.weight");
  assert_part(&spec, 0, "transformer.wpe.weight", 0, 1024, false);
  spec = spec_of(&model, "final_norm.bias");
  assert_part(&spec, 0, "transformer.ln_f.bias", 0, 768, false);
  model.tied_embeddings = false;
  spec = spec_of(&model, "head.weight");
  assert_part(&spec, 0, "lm_head.weight", 0, 50257, false);
}

static void test_initial_values(void **state) {
  hr_model model = preset("gpt2");
  hri_param_spec spec = spec_of(&model, "layers.3.attention_output.weight");
  (void)state;
  assert_int_equal(spec.init, HRI_INIT_NORMAL);
  assert_true(fabs(spec.init_std - 0.02 / sqrt(24)) < 1e-15);
  spec = spec_of(&model, "layers.3.mlp_out.weight");
  assert_true(fabs(spec.init_std - 0.02 / sqrt(24)) < 1e-15);
  spec = spec_of(&model, "layers.3.mlp_in.weight");
  assert_true(spec.init_std == 0.02);
  spec = spec_of(&model, "token_embedding.weight");
  assert_true(spec.init == HRI_INIT_NORMAL && spec.init_std == 0.02);
  spec = spec_of(&model, "layers.3.norm1.weight");
  assert_int_equal(spec.init, HRI_INIT_ONES);
  spec = spec_of(&model, "layers.3.norm1.bias");
  assert_int_equal(spec.init, HRI_INIT_ZEROS);
  spec = spec_of(&model, "layers.3.qkv.bias");
  assert_int_equal(spec.init, HRI_INIT_ZEROS);
  model = preset("smollm2-135m");
  spec = spec_of(&model, "layers.3.mlp_out.weight");
  assert_true(spec.init_std == 1.0 / 24);
  spec = spec_of(&model, "final_norm.weight");
  assert_int_equal(spec.init, HRI_INIT_ONES);
}

static void test_names_in_files(void **state) {
  hr_model gpt2 = preset("gpt2"), llama = preset("llama-2-7b"), tied = preset("llama-3.2-1b");
  char out[128];
  (void)state;
  assert_true(hri_param_ignored(&gpt2, "h.0.attn.bias"));
  assert_true(hri_param_ignored(&gpt2, "transformer.h.11.attn.masked_bias"));
  assert_true(hri_param_ignored(&gpt2, "lm_head.weight"));
  assert_false(hri_param_ignored(&gpt2, "h.0.attn.c_attn.bias"));
  assert_false(hri_param_ignored(&gpt2, "h.x.attn.bias"));
  assert_false(hri_param_ignored(&gpt2, "h.0.attn.bias.weight"));
  assert_true(hri_param_ignored(&llama, "model.layers.0.self_attn.rotary_emb.inv_freq"));
  assert_false(hri_param_ignored(&llama, "lm_head.weight"));
  assert_true(hri_param_ignored(&tied, "lm_head.weight"));
  assert_false(hri_param_ignored(&llama, "model.layers.0.self_attn.q_proj.bias"));
  assert_true(hri_param_variant(&gpt2, "transformer.wte.weight", 0, out));
  assert_string_equal(out, "transformer.wte.weight");
  assert_true(hri_param_variant(&gpt2, "transformer.wte.weight", 1, out));
  assert_string_equal(out, "wte.weight");
  assert_false(hri_param_variant(&gpt2, "transformer.wte.weight", 2, out));
  assert_true(hri_param_variant(&llama, "model.layers.3.mlp.up_proj.weight", 1, out));
  assert_string_equal(out, "layers.3.mlp.up_proj.weight");
  assert_false(hri_param_variant(&llama, "lm_head.weight", 1, out));
}

/* ---- config.json, accepted ---- */

/* The published files, from their public facts. */
static const char gpt2_file[] =
    "{\"activation_function\":\"gelu_new\",\"architectures\":[\"GPT2LMHeadModel\"],\"attn_pdrop\":0.1,\"bos_token_id\":50256,"
    "\"embd_pdrop\":0.1,\"eos_token_id\":50256,\"initializer_range\":0.02,\"layer_norm_epsilon\":1e-05,\"model_type\":\"gpt2\","
    "\"n_ctx\":1024,\"n_embd\":768,\"n_head\":12,\"n_layer\":12,\"n_positions\":1024,\"resid_pdrop\":0.1,"
    "\"summary_activation\":null,\"summary_first_dropout\":0.1,\"summary_proj_to_labels\":true,\"summary_type\":\"cls_index\","
    "\"summary_use_proj\":true,\"task_specific_params\":{\"text-generation\":{\"do_sample\":true,\"max_length\":50}},"
    "\"vocab_size\":50257}";

static const char llama3_file[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,\"bos_token_id\":128000,"
    "\"eos_token_id\":128001,\"hidden_act\":\"silu\",\"hidden_size\":4096,\"initializer_range\":0.02,\"intermediate_size\":14336,"
    "\"max_position_embeddings\":8192,\"model_type\":\"llama\",\"num_attention_heads\":32,\"num_hidden_layers\":32,"
    "\"num_key_value_heads\":8,\"pretraining_tp\":1,\"rms_norm_eps\":1e-05,\"rope_scaling\":null,\"rope_theta\":500000.0,"
    "\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\",\"transformers_version\":\"4.40.0.dev0\",\"use_cache\":true,"
    "\"vocab_size\":128256}";

static const char llama32_v5_file[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,\"bos_token_id\":128000,"
    "\"dtype\":\"bfloat16\",\"eos_token_id\":[128001,128008,128009],\"head_dim\":64,\"hidden_act\":\"silu\",\"hidden_size\":2048,"
    "\"initializer_range\":0.02,\"intermediate_size\":8192,\"max_position_embeddings\":131072,\"mlp_bias\":false,"
    "\"model_type\":\"llama\",\"num_attention_heads\":32,\"num_hidden_layers\":16,\"num_key_value_heads\":8,\"pad_token_id\":null,"
    "\"pretraining_tp\":1,\"rms_norm_eps\":1e-05,\"rope_parameters\":{\"factor\":32.0,\"high_freq_factor\":4.0,"
    "\"low_freq_factor\":1.0,\"original_max_position_embeddings\":8192,\"rope_theta\":500000.0,\"rope_type\":\"llama3\"},"
    "\"tie_word_embeddings\":true,\"transformers_version\":\"5.23.0\",\"use_cache\":true,\"vocab_size\":128256}";

static void test_published_configs_are_the_presets(void **state) {
  hr_model gpt2 = parsed(gpt2_file), llama3 = parsed(llama3_file), llama32 = parsed(llama32_v5_file);
  hr_model want = preset("gpt2");
  (void)state;
  assert_same(&gpt2, &want);
  want = preset("llama-3-8b");
  assert_same(&llama3, &want);
  want = preset("llama-3.2-1b");
  assert_same(&llama32, &want);
}

/* What we write is read back the same, for all presets and for what presets do not have. */
static void assert_round_trip(const hr_model *model) {
  static const char *const architectures[HR_FAMILY_COUNT] = {"\"GPT2LMHeadModel\"",     "\"LlamaForCausalLM\"",
                                                             "\"MistralForCausalLM\"",  "\"Qwen2ForCausalLM\"",
                                                             "\"Qwen3ForCausalLM\"",    "\"Phi3ForCausalLM\"",
                                                             "\"Gemma2ForCausalLM\"",   "\"Gemma3ForCausalLM\"",
                                                             "\"GemmaForCausalLM\"",    "\"SmolLM3ForCausalLM\"",
                                                             "\"GraniteForCausalLM\"",  "\"Olmo2ForCausalLM\"",
                                                             "\"StableLmForCausalLM\"", "\"PhiForCausalLM\""};
  char *text = hr_model_config_text(model, "float32");
  hr_model back;
  assert_non_null(text);
  back = parsed(text);
  assert_same(&back, model);
  assert_non_null(strstr(text, "\"torch_dtype\": \"float32\""));
  assert_non_null(strstr(text, architectures[model->family]));
  hr_free(text);
}

static void test_config_round_trip(void **state) {
  hr_model model;
  (void)state;
  for (uint32_t i = 0; i < hr_model_preset_count(); i++) {
    model = preset(hr_model_preset_name(i));
    assert_round_trip(&model);
  }
  model = preset("micro-gpt2-bytes");
  model.mlp_size = 75;
  model.attention_scale = 1;
  model.tied_embeddings = false;
  model.bos_token = -1;
  model.dropout = (hr_dropout){0.25, 0, 0.125}; /* each place keeps its own */
  assert_round_trip(&model);
  model = preset("micro-llama-bytes");
  model.rope.scaling = HR_ROPE_LINEAR;
  model.rope.factor = 2.5;
  model.rope.theta = 250;
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
  model.pad_token = 3;
  model.init_std = 1.0 / 3;
  model.norm_epsilon = 1e-6;
  assert_round_trip(&model);
}

/* What families can vary, drawn at random: window layouts, every scaling with its numbers, caps, biases. */
static uint32_t next_number(void *context, uint32_t below) {
  uint32_t word[4], *index = context;
  hri_philox(5, 6, (*index)++, word);
  return word[0] % below;
}

static void test_random_models_round_trip(void **state) {
  uint32_t index = 0, seen[HR_FAMILY_COUNT][HR_ROPE_SCALING_COUNT] = {{0}};
  (void)state;
  for (int i = 0; i < 2000; i++) {
    hr_model model;
    hr_error error;
    assert_int_equal(random_family(&model, next_number, &index, &error), HR_OK);
    model.head_size = model.learned_positions ? model.head_size : 2 * (1 + next_number(&index, 40));
    if (random_hidden_is_heads(&model)) model.hidden_size = model.head_count * model.head_size;
    random_variations(&model, next_number, &index);
    if (model.rope.scaling == HR_ROPE_YARN) {
      model.rope.mscale = next_number(&index, 2), model.rope.mscale_all_dim = 0.5;
      model.rope.attention_factor = next_number(&index, 2) ? 1.25 : 0;
      model.rope.beta_fast = next_number(&index, 2) ? 16 : 0;
      model.rope.no_truncation = next_number(&index, 2);
    }
    if (hr_model_check(&model, &error) != HR_OK) fail_msg("%d: %s", i, error.message);
    assert_round_trip(&model);
    seen[model.family][model.rope.scaling]++;
  }
  for (int f = 0; f < HR_FAMILY_COUNT; f++)
    for (int k = 0; k < HR_ROPE_SCALING_COUNT; k++) {
      bool can = f == HR_FAMILY_GPT2 ? k == HR_ROPE_DEFAULT
                                     : f != HR_FAMILY_PHI3 || k == HR_ROPE_DEFAULT || k == HR_ROPE_LONGROPE;
      assert_int_equal(seen[f][k] > 0, can);
    }
}

/* What the files of the later families leave out, and what they choose. */
static void test_choices_of_families(void **state) {
  hr_model m;
  (void)state;
  m = parsed(config_with(decoder_members, NULL, NULL));
  assert_true(m.tied_embeddings && m.rope.theta == 2e6 && m.sliding_window == 0);
  for (uint32_t l = 0; l < 5; l++) assert_int_equal(m.no_rope[l], l == 3);
  m = parsed(config_with(decoder_members, "no_rope_layer_interval", "2"));
  for (uint32_t l = 0; l < 5; l++) assert_int_equal(m.no_rope[l], l % 2);
  m = parsed(config_with(decoder_members, "no_rope_layers", "[0, 1, 1, 0, 1, 1]"));
  for (uint32_t l = 0; l < 5; l++) assert_int_equal(m.no_rope[l], l % 3 == 0);
  m = parsed(config_with(decoder_members, "use_sliding_window", "true, \"sliding_window\": 7"));
  for (uint32_t l = 0; l < 5; l++) assert_int_equal(m.sliding[l], l == 3); /* those that are not rotated */
  m = parsed(config_with(decoder_members, "model_type", "\"granite\""));
  assert_true(m.embedding_scale == 1 && m.residual_scale == 1 && m.logit_divisor == 1 && m.attention_scale == 1);
  m = parsed(
      config_with(decoder_members, "model_type", "\"granite\", \"residual_multiplier\": 0.22, \"logits_scaling\": 8"));
  assert_true(m.residual_scale == 0.22 && m.logit_divisor == 8);
  m = parsed(config_with(decoder_members, "model_type", "\"olmo2\""));
  assert_true(m.no_pre_norms && m.post_norms && m.qk_norm_whole && !m.tied_embeddings);
  m = parsed(config_with(stablelm_members, NULL, NULL));
  assert_true(m.rotary_size == 2 && !m.qkv_bias && !m.parallel_residual && m.norm == HR_NORM_LAYER);
  m = parsed(config_with(stablelm_members, "use_qkv_bias", "true, \"use_parallel_residual\": true"));
  assert_true(m.qkv_bias && !m.attention_output_bias && m.parallel_residual);
  m = parsed(config_with(decoder_members, "model_type", "\"phi\""));
  assert_true(m.rotary_size == 4 && m.head_bias && m.parallel_residual && m.activation == HR_ACTIVATION_GELU_TANH);
  m = parsed(config_with(decoder_members, "model_type", "\"gemma\", \"hidden_act\": \"gelu\""));
  assert_int_equal(m.activation, HR_ACTIVATION_GELU_TANH); /* what its files mean */
  m = parsed(config_with(llama_members, "hidden_act", "\"gelu\""));
  assert_int_equal(m.activation, HR_ACTIVATION_GELU);
}

static void test_config_details(void **state) {
  hr_model m;
  (void)state;
  m = parsed(config_with(gpt2_members, NULL, NULL));
  assert_int_equal(m.mlp_size, 120);
  assert_true(m.tied_embeddings); /* GPT2Config's defaults */
  assert_true(m.dropout.attention == 0.1 && m.dropout.residual == 0.1 && m.dropout.embedding == 0.1);
  assert_int_equal(m.eos_token, -1); /* 50256 means nothing to 67 tokens */
  assert_int_equal(m.pad_token, -1);
  m = parsed(config_with(gpt2_members, "pad_token_id", "5"));
  assert_int_equal(m.pad_token, -1); /* gpt2's embedding has no padding_idx */
  m = parsed(config_with(gpt2_members, "scale_attn_weights", "false"));
  assert_true(m.attention_scale == 1);
  m = parsed(config_with(gpt2_members, "reorder_and_upcast_attn", "true"));
  assert_true(fabs(m.attention_scale - 1 / sqrt(10)) < 1e-15);
  m = parsed(config_with(gpt2_members, "tie_word_embeddings", "false"));
  assert_false(m.tied_embeddings);
  m = parsed(config_with(gpt2_members, "attn_pdrop", "0.3"));
  assert_true(m.dropout.attention == 0.3 && m.dropout.residual == 0.1 && m.dropout.embedding == 0.1);
  m = parsed(config_with(llama_members, NULL, NULL));
  assert_false(m.tied_embeddings);
  assert_int_equal(m.head_size, 6);
  assert_true(m.rope.theta == 10000);
  m = parsed(config_with(llama_members, "num_key_value_heads", "null"));
  assert_int_equal(m.kv_head_count, 6);
  m = parsed(config_with(llama_members, "attention_dropout", "0.25"));
  assert_true(m.dropout.attention == 0.25 && m.dropout.residual == 0);
  m = parsed(config_with(llama_members, "pad_token_id", "70"));
  assert_int_equal(m.pad_token, 70);
  m = parsed(config_with(llama_members, "pad_token_id", "-1"));
  assert_int_equal(m.pad_token, -1);
  m = parsed(config_with(llama_members, "eos_token_id", "[7, 8]"));
  assert_int_equal(m.eos_token, 7);
  m = parsed(config_with(llama_members, "bos_token_id", "null"));
  assert_int_equal(m.bos_token, -1);
  m = parsed(config_with(llama_members, "pretraining_tp", "2"));
  m = parsed(config_with(llama_members, "layer_types", "[\"full_attention\", \"full_attention\"]"));
  m = parsed(config_with(llama_members, "rope_scaling", "{\"type\": \"linear\", \"factor\": 4}"));
  assert_true(m.rope.scaling == HR_ROPE_LINEAR && m.rope.factor == 4);
  m = parsed(config_with(llama_members, "rope_parameters", "{\"rope_theta\": 250.0}"));
  assert_true(m.rope.scaling == HR_ROPE_DEFAULT && m.rope.theta == 250);
  m = parsed(config_with(llama_members, "rope_parameters", "{\"rope_theta\": 250.0, \"factor\": 4.0}")); /* no type */
  assert_true(m.rope.scaling == HR_ROPE_DEFAULT && m.rope.theta == 250);
  m = parsed(config_with(llama_members, "rope_theta", "1000000"));
  assert_true(m.rope.theta == 1e6);
}

/* Which layers slide, and by how much. */
static void test_windows(void **state) {
  static const char phi3_window[] = "7";
  hr_model m;
  (void)state;
  m = parsed(config_with(mistral_members, NULL, NULL));
  assert_true(m.sliding_window == 4096 && m.sliding[0] && m.sliding[1] && !m.sliding[2]); /* MistralConfig's default */
  m = parsed(config_with(mistral_members, "sliding_window", "null"));
  assert_true(m.sliding_window == 0 && !m.sliding[0]);
  m = parsed(config_with(mistral_members, "layer_types", "[\"sliding_attention\", \"sliding_attention\"]"));
  assert_true(m.sliding_window == 4096);
  m = parsed(config_with(phi3_members, NULL, NULL));
  assert_true(m.sliding_window == 0);
  m = parsed(config_with(phi3_members, "sliding_window", phi3_window));
  assert_true(m.sliding_window == 7 && m.sliding[0] && m.sliding[1]);
  m = parsed(config_with(qwen3_members, "sliding_window", "5"));
  assert_true(m.sliding_window == 0); /* only with use_sliding_window */
  m = parsed(config_with(qwen3_members, "use_sliding_window", "true, \"sliding_window\": 5, \"max_window_layers\": 1"));
  assert_true(m.sliding_window == 5 && !m.sliding[0] && m.sliding[1]);
  m = parsed(config_with(qwen3_members, "use_sliding_window", "true"));
  assert_true(m.sliding_window == 0); /* from layer 28 on, and there are two */
  m = parsed(config_with(qwen3_members, "use_sliding_window",
                         "true, \"layer_types\": [\"sliding_attention\", \"full_attention\"]"));
  assert_true(m.sliding_window == 4096 && m.sliding[0] && !m.sliding[1]);
  m = parsed(config_with(gemma3_members, NULL, NULL));
  for (uint32_t l = 0; l < 8; l++) assert_int_equal(m.sliding[l], l < 7 && l != 5);
  m = parsed(config_with(gemma3_members, "sliding_window_pattern", "2"));
  for (uint32_t l = 0; l < 7; l++) assert_int_equal(m.sliding[l], l % 2 == 0);
  m = parsed(config_with(gemma3_members, "model_type", "\"gemma2\""));
  for (uint32_t l = 0; l < 7; l++) assert_int_equal(m.sliding[l], l % 2 == 0);
}

/* transformers builds the mask of a window for every gemma, whether a layer uses it or not, and stops where there is
 * none. */
static void test_gemma_without_windows_writes_one(void **state) {
  static const char *const types[] = {"\"gemma2\"", "\"gemma3_text\""};
  (void)state;
  for (int i = 0; i < 2; i++) {
    hr_model m = parsed(config_with(gemma3_members, "model_type", types[i])), again;
    char *text;
    memset(m.sliding, 0, sizeof m.sliding);
    m.sliding_window = 0;
    text = hr_model_config_text(&m, "float32");
    assert_non_null(text);
    assert_non_null(strstr(text, "\"sliding_window\": 4096"));
    again = parsed(text);
    hr_free(text);
    assert_same(&m, &again);
  }
}

static void test_family_defaults(void **state) {
  hr_model m = parsed(config_with(gemma3_members, NULL, NULL));
  (void)state;
  assert_true(m.head_count == 8 && m.kv_head_count == 4 && m.head_size == 256 && m.vocabulary_size == 262208 &&
              m.max_positions == 131072);
  assert_true(m.attention_scale == 1.0 / 16 && m.embedding_scale == sqrt(40) && m.attention_softcap == 0 &&
              m.logit_softcap == 0);
  assert_true(m.pad_token == 0 && m.bos_token == 2 && m.eos_token == 1 && m.tied_embeddings && m.qk_norm &&
              m.post_norms && m.norm_weight_offset == 1);
  assert_true(m.rope.theta == 1e6 && m.local_rope.theta == 10000);
  m = parsed(config_with(gemma3_members, "pad_token_id", "null"));
  assert_int_equal(m.pad_token, -1);
  m = parsed(config_with(gemma3_members, "final_logit_softcapping", "12.5"));
  assert_true(m.logit_softcap == 12.5);
  m = parsed(config_with(qwen3_members, NULL, NULL));
  assert_true(m.head_size == 128 && m.qk_norm && !m.qkv_bias && !m.tied_embeddings && m.rope.theta == 10000);
  m = parsed(config_with(qwen3_members, "attention_bias", "true"));
  assert_true(m.qkv_bias && m.attention_output_bias);
  m = parsed(config_with(qwen3_members, "model_type", "\"qwen2\""));
  assert_true(m.head_size == 6 && !m.qk_norm && m.qkv_bias && !m.attention_output_bias);
  m = parsed(config_with(mistral_members, NULL, NULL));
  assert_true(m.kv_head_count == 8 && !m.qkv_bias);
  m = parsed(config_with(phi3_members, NULL, NULL));
  assert_true(m.kv_head_count == 6 && m.pad_token == -1 && m.eos_token == -1 &&
              m.rotary_size == 6); /* 32000 means nothing to 71 tokens */
  m = parsed(config_with(phi3_members, "partial_rotary_factor", "0.67"));
  assert_int_equal(m.rotary_size, 4);
}

static void test_rope_kinds(void **state) {
  static const char yarn[] =
      "{\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 16, \"mscale\": 1, \"mscale_all_dim\": 0.5, \"truncate\": false, "
      "\"original_max_position_embeddings\": 20}";
  static const char su[] =
      "{\"type\": \"su\", \"short_factor\": [1, 1.5, 2], \"long_factor\": [1, 2, 4.5]}, \"original_max_position_embeddings\": 8";
  static const char two[] =
      "{\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 8.0}, \"sliding_attention\": {\"rope_type\": \"dynamic\", "
      "\"factor\": 2, \"rope_theta\": 77}}";
  hr_model m;
  (void)state;
  m = parsed(config_with(llama_members, "rope_scaling", yarn));
  assert_true(m.rope.scaling == HR_ROPE_YARN && m.rope.factor == 4 && m.rope.beta_fast == 16 && m.rope.mscale == 1 &&
              m.rope.mscale_all_dim == 0.5);
  assert_true(m.rope.no_truncation && m.rope.original_max_positions == 20);
  m = parsed(config_with(llama_members, "rope_parameters",
                         "{\"rope_type\": \"dynamic\", \"factor\": 3.0, \"rope_theta\": 7}"));
  assert_true(m.rope.scaling == HR_ROPE_DYNAMIC && m.rope.factor == 3 && m.rope.theta == 7);
  m = parsed(config_with(phi3_members, "rope_scaling", su));
  assert_true(m.rope.scaling == HR_ROPE_LONGROPE && m.rope.factor_count == 3 && m.rope.long_factors[2] == 4.5 &&
              m.rope.short_factors[1] == 1.5);
  assert_true(m.rope.original_max_positions == 8 && m.rope.factor == 0);
  m = parsed(config_with(gemma3_members, "rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 8.0}"));
  assert_true(m.rope.scaling == HR_ROPE_LINEAR && m.local_rope.scaling == HR_ROPE_DEFAULT);
  m = parsed(config_with(gemma3_members, "rope_local_base_freq", "5000"));
  assert_true(m.local_rope.theta == 5000 && m.rope.theta == 1e6);
  m = parsed(config_with(gemma3_members, "rope_parameters", two));
  assert_true(m.rope.scaling == HR_ROPE_LINEAR && m.rope.theta == 1e6 && m.local_rope.scaling == HR_ROPE_DYNAMIC &&
              m.local_rope.theta == 77);
  assert_round_trip(&m); /* which v4's keys cannot say */
}

/* The published gemma-3-4b-it file, from its public facts: what it leaves out is Gemma3TextConfig's. */
static void test_multimodal_gemma3(void **state) {
  static const char file[] =
      "{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"boi_token_index\": 255999, \"eos_token_id\": [1, 106], \"model_type\": \"gemma3\", "
      "\"text_config\": {\"hidden_size\": 2560, \"intermediate_size\": 10240, \"model_type\": \"gemma3_text\", \"num_hidden_layers\": 34, "
      "\"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"}, \"sliding_window\": 1024}, \"vision_config\": {\"hidden_size\": 1152}}";
  hr_model m = parsed(file), want = preset("gemma-3-4b");
  hr_error error;
  char out[128];
  (void)state;
  assert_same(&m, &want);
  assert_true(hri_param_ignored(&m, "vision_tower.vision_model.encoder.layers.0.layer_norm1.bias"));
  assert_true(hri_param_ignored(&m, "model.multi_modal_projector.mm_soft_emb_norm.weight"));
  assert_true(hri_param_ignored(&m, "language_model.lm_head.weight"));
  assert_false(hri_param_ignored(&m, "language_model.model.norm.weight"));
  assert_true(hri_param_variant(&m, "model.norm.weight", 1, out));
  assert_string_equal(out, "norm.weight");
  assert_true(hri_param_variant(&m, "model.norm.weight", 2, out));
  assert_string_equal(out, "language_model.model.norm.weight");
  assert_true(hri_param_variant(&m, "model.norm.weight", 3, out));
  assert_string_equal(out, "model.language_model.norm.weight");
  assert_false(hri_param_variant(&m, "model.norm.weight", 4, out));
  assert_true(hri_param_variant(&m, "lm_head.weight", 1, out));
  assert_string_equal(out, "language_model.lm_head.weight");
  assert_int_equal(hr_model_parse("{\"model_type\": \"gemma3\"}", 24, "config.json", &m, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "text_config"));
}

/* Formulas of transformers' modeling_rope_utils.py in double, written again. */
static double stretched(const hr_rope *rope, double plain, double i, double dim, uint64_t longest) {
  double turns = rope->original_max_positions * plain / (2 * acos(-1.0)), share, low, high;
  switch (rope->scaling) {
  case HR_ROPE_LINEAR: return plain / rope->factor;
  case HR_ROPE_LLAMA3:
    share =
        fmin(fmax((turns - rope->low_frequency_factor) / (rope->high_frequency_factor - rope->low_frequency_factor), 0),
             1);
    return plain * (share + (1 - share) / rope->factor);
  case HR_ROPE_YARN:
    low = floor(dim * log(rope->original_max_positions / (32 * 2 * acos(-1.0))) / (2 * log(rope->theta)));
    high = ceil(dim * log(rope->original_max_positions / (2 * acos(-1.0))) / (2 * log(rope->theta)));
    share = 1 - fmin(fmax((i - low) / (high - low), 0), 1);
    return plain * (share + (1 - share) / rope->factor);
  case HR_ROPE_DYNAMIC: /* 3 times the model's 4096 positions: the base grows by (2 * 3 - 1) ** (dim / (dim - 2)) */
    return longest <= 4096
               ? plain
               : pow(rope->theta * pow(rope->factor * 3 - (rope->factor - 1), dim / (dim - 2)), -2 * i / dim);
  case HR_ROPE_LONGROPE:
    return plain / (longest > rope->original_max_positions ? rope->long_factors : rope->short_factors)[(int)i];
  default: return plain;
  }
}

static void test_rope_frequencies(void **state) {
  hr_rope rope = {.theta = 500000,
                  .factor = 2,
                  .low_frequency_factor = 1,
                  .high_frequency_factor = 4,
                  .original_max_positions = 2048,
                  .factor_count = 64};
  double got[64], factor;
  (void)state;
  for (int i = 0; i < 64; i++) rope.short_factors[i] = 1 + i / 64.0, rope.long_factors[i] = 1 + i / 8.0;
  for (int kind = 0; kind < HR_ROPE_SCALING_COUNT; kind++)
    for (uint64_t longest = 1024; longest <= 12288; longest += 11264) {
      rope.scaling = (hr_rope_scaling)kind;
      hri_rope_frequencies(&rope, 128, 4096, longest, got, &factor);
      for (int i = 0; i < 64; i++) {
        double want = stretched(&rope, pow(rope.theta, -i / 64.0), i, 128, longest);
        if (!(fabs(got[i] / want - 1) < 1e-6)) fail_msg("kind %d, pair %d: %.9g, not %.9g", kind, i, got[i], want);
        assert_true(got[i] == (double)(float)got[i]);
      }
      assert_true(fabs(factor - (kind == HR_ROPE_YARN       ? 1 + 0.1 * log(2)
                                 : kind == HR_ROPE_LONGROPE ? sqrt(1 + log(2) / log(2048))
                                                            : 1)) < 1e-15);
    }
  rope.scaling = HR_ROPE_YARN;
  rope.mscale = 1, rope.mscale_all_dim = 0.5;
  hri_rope_frequencies(&rope, 128, 4096, 1, got, &factor);
  assert_true(fabs(factor - (1 + 0.1 * log(2)) / (1 + 0.05 * log(2))) < 1e-15);
  rope.attention_factor = 1.5;
  hri_rope_frequencies(&rope, 128, 4096, 1, got, &factor);
  assert_true(factor == 1.5);
}

static void test_both_spellings_of_rope_agree(void **state) {
  static const char both[] =
      "10000.0, \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2.0, \"rope_theta\": 10000.0}";
  static const char apart[] = "10000.0, \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 500000.0}";
  const char *text;
  hr_model m = parsed(config_with(llama_members, "rope_theta", both));
  hr_error error;
  (void)state;
  assert_true(m.rope.scaling == HR_ROPE_LINEAR && m.rope.factor == 2);
  text = config_with(llama_members, "rope_theta", apart);
  assert_int_equal(hr_model_parse(text, strlen(text), "config.json", &m, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "rope_parameters contradicts"));
}

static void test_the_model_is_named_after_its_directory(void **state) {
  const char *text = config_with(llama_members, NULL, NULL);
  hr_model m;
  (void)state;
  assert_int_equal(hr_model_parse(text, strlen(text), "models/small/config.json", &m, NULL), HR_OK);
  assert_string_equal(m.name, "small");
  assert_int_equal(hr_model_parse(text, strlen(text), "config.json", &m, NULL), HR_OK);
  assert_string_equal(m.name, "config.json");
}

/* ---- config.json, refused ---- */

typedef struct refusal {
  const member *base;
  const char *key, *value, *field; /* field: what the message must name */
} refusal;

static const refusal refusals[] = {
    {gpt2_members, "model_type", "\"mixtral\"", "model_type is \"mixtral\": not supported"},
    {gpt2_members, "model_type", NULL, "model_type"},
    {gpt2_members, "model_type", "7", "model_type"},
    {gpt2_members, "activation_function", "\"quick_gelu\"", "activation_function is \"quick_gelu\": not supported"},
    {gpt2_members, "activation_function", "7", "activation_function"},
    {gpt2_members, "scale_attn_by_inverse_layer_idx", "true", "scale_attn_by_inverse_layer_idx is true"},
    {gpt2_members, "add_cross_attention", "true", "add_cross_attention"},
    {gpt2_members, "pruned_heads", "{\"0\": [1]}", "pruned_heads"},
    {gpt2_members, "quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 4}", "quantization_config"},
    {llama_members, "quantization_config", "{\"load_in_4bit\": true, \"llm_int8_skip_modules\": [\"up_proj\"]}",
     "llm_int8_skip_modules leaves out model.layers.0.mlp.up_proj and not model.layers.0.mlp.gate_proj"},
    {llama_members, "quantization_config", "{\"load_in_8bit\": true, \"llm_int8_skip_modules\": \"lm_head\"}",
     "llm_int8_skip_modules"},
    {gpt2_members, "n_layer", NULL, "n_layer"},
    {gpt2_members, "n_layer", "0", "n_layer"},
    {gpt2_members, "n_layer", "-3", "n_layer"},
    {gpt2_members, "n_layer", "2.5", "n_layer"},
    {gpt2_members, "n_layer", "12.0", "n_layer"},
    {gpt2_members, "n_layer", "\"12\"", "n_layer"},
    {gpt2_members, "n_layer", "513", "n_layer"},
    {gpt2_members, "n_embd", "4294967297", "n_embd"},
    {gpt2_members, "n_embd", "31", "n_embd"},
    {gpt2_members, "n_inner", "0", "n_inner"},
    {gpt2_members, "n_positions", "null", "n_positions"},
    {gpt2_members, "vocab_size", "99999999999", "vocab_size"},
    {gpt2_members, "layer_norm_epsilon", "0", "layer_norm_epsilon"},
    {gpt2_members, "resid_pdrop", "1.5", "resid_pdrop"},
    {gpt2_members, "tie_word_embeddings", "1", "tie_word_embeddings"},
    {gpt2_members, "eos_token_id", "\"</s>\"", "eos_token_id"},
    {gpt2_members, "initializer_range", "-1", "initializer_range"},
    {llama_members, "hidden_act", "\"relu2\"", "hidden_act is \"relu2\": not supported"},
    {llama_members, "hidden_size", "37", "hidden_size"},
    {llama_members, "num_key_value_heads", "4", "num_attention_heads"},
    {llama_members, "num_key_value_heads", "0", "num_key_value_heads"},
    {llama_members, "head_dim", "9", "head_dim"},
    {llama_members, "intermediate_size", NULL, "intermediate_size"},
    {llama_members, "sliding_window", "4096", "sliding_window is 4096: not supported"},
    {llama_members, "partial_rotary_factor", "0.5", "partial_rotary_factor is 0.5"},
    {llama_members, "layer_types", "[\"full_attention\", \"sliding_attention\"]", "layer_types[1]"},
    {llama_members, "pad_token_id", "71", "pad_token_id"},
    {llama_members, "pad_token_id", "-2", "pad_token_id"},
    {llama_members, "rms_norm_eps", "-1e-5", "rms_norm_eps"},
    {llama_members, "rope_theta", "0", "rope_theta"},
    {llama_members, "rope_scaling", "{\"rope_type\": \"proportional\", \"factor\": 4.0}",
     "config.json: field rope_scaling.rope_type is \"proportional\": not supported"},
    {llama_members, "rope_scaling", "{\"type\": \"su\", \"factor\": 4.0}",
     "rope_scaling.type is \"su\": not supported"},
    {llama_members, "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"beta_fast\": -1}",
     "rope_scaling.beta_fast"},
    {llama_members, "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"attention_factor\": 0}",
     "rope_scaling.attention_factor"},
    {llama_members, "rope_scaling", "{\"rope_type\": \"dynamic\", \"factor\": 0.5}", "rope_scaling.factor"},
    {llama_members, "rope_scaling", "{\"rope_type\": \"longrope\", \"factor\": 4.0}", "rope_scaling.short_factor"},
    {llama_members, "rope_scaling",
     "{\"rope_type\": \"longrope\", \"short_factor\": [1, 1], \"long_factor\": [1, 1, 1]}",
     "rope_scaling.short_factor"},
    {llama_members, "rope_scaling",
     "{\"rope_type\": \"longrope\", \"short_factor\": [1, 1, 1], \"long_factor\": [1, 0, 1]}",
     "rope_scaling.long_factor[1]"},
    {llama_members, "use_bidirectional_attention", "true", "use_bidirectional_attention"},
    {mistral_members, "sliding_window", "0", "sliding_window"},
    {mistral_members, "attention_bias", "true", "attention_bias"},
    {mistral_members, "layer_types", "[\"sliding_attention\", \"full_attention\"]", "layer_types[1]"},
    {qwen3_members, "layer_types", "[\"sliding_attention\", \"full_attention\"]", "sliding_window"},
    {qwen3_members, "layer_types", "[\"sliding_attention\"]", "layer_types"},
    {qwen3_members, "layer_types", "[\"full_attention\", \"chunked_attention\"]",
     "layer_types[1] is \"chunked_attention\": not supported"},
    {qwen3_members, "hidden_act", "\"mish\"", "hidden_act"},
    {phi3_members, "partial_rotary_factor", "0.3", "partial_rotary_factor"},
    {phi3_members, "partial_rotary_factor", "1.5", "partial_rotary_factor"},
    {phi3_members, "rope_scaling", "{\"type\": \"linear\", \"factor\": 2}",
     "rope_scaling.type is \"linear\": not supported"},
    {gemma3_members, "hidden_activation", "\"tanh\"", "hidden_activation is \"tanh\": not supported"},
    {gemma3_members, "sliding_window", "null", "sliding_window"},
    {gemma3_members, "query_pre_attn_scalar", "0", "query_pre_attn_scalar"},
    {gemma3_members, "final_logit_softcapping", "-3", "final_logit_softcapping"},
    {gemma3_members, "attn_logit_softcapping", "50.0", "attn_logit_softcapping is 50: not supported"},
    {gemma3_members, "is_causal", "false", "is_causal is false: not supported"},
    {gpt2_members, "is_causal", "false", "is_causal is false: not supported"},
    {llama_members, "per_layer_config", "{\"0\": {\"num_attention_heads\": 2}}",
     "per_layer_config is an object: not supported"},
    {gemma3_members, "rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": 5.0}",
     "rope_parameters.rope_type"},
    {gemma3_members, "rope_parameters", "{\"sliding_attention\": {\"rope_type\": \"su\"}}",
     "rope_parameters.sliding_attention.rope_type"},
    {gemma3_members, "rope_parameters", "{\"full_attention\": {\"partial_rotary_factor\": 0.5}}", "rope_parameters"},
    {decoder_members, "no_rope_layers", "[1, 1, 1, 0]", "no_rope_layers"},
    {decoder_members, "no_rope_layers", "[1, 1, 1, 2, 1]", "no_rope_layers[3]"},
    {decoder_members, "no_rope_layer_interval", "0", "no_rope_layer_interval"},
    {decoder_members, "partial_rotary_factor", "0.5", "partial_rotary_factor is 0.5"},
    {decoder_members, "layer_types",
     "[\"sliding_attention\", \"full_attention\", \"full_attention\", \"full_attention\", \"full_attention\"]",
     "sliding_window"},
    {stablelm_members, "qk_layernorm", "true", "qk_layernorm is true: not supported"},
    {stablelm_members, "partial_rotary_factor", "0.4", "of a head, and not "},
    {stablelm_members, "head_dim", "6", "field 'partial_rotary_factor'"},
    {stablelm_members, "head_dim", "16", "head_size"},
    {stablelm_members, "layer_norm_eps", "0", "layer_norm_eps"},
    {stablelm_members, "sliding_window", "7", "sliding_window is 7: not supported"},
    {stablelm_members, "hidden_dropout", "2", "hidden_dropout"},
    {stablelm_members, "use_parallel_residual", "1", "use_parallel_residual"},
    {llama_members, "rope_scaling", "{\"factor\": 4.0}", "rope_scaling.type"},
    {llama_members, "rope_scaling", "{\"rope_type\": \"linear\"}", "rope_scaling.factor"},
    {llama_members, "rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 0}", "rope_scaling.factor"},
    {llama_members, "rope_scaling", "4", "rope_scaling"},
    {llama_members, "rope_scaling",
     "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4}",
     "rope_scaling.original_max_position_embeddings"},
    {llama_members, "rope_scaling",
     "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}",
     "rope_scaling.high_freq_factor"},
    {llama_members, "rope_scaling",
     "{\"rope_type\": \"llama3\", \"factor\": 8, \"original_max_position_embeddings\": 8192}",
     "rope_scaling.low_freq_factor"},
    {llama_members, "rope_parameters", "{\"full_attention\": {\"rope_theta\": 10000.0}}",
     "rope_parameters.full_attention"},
    {llama_members, "rope_parameters", "{\"rope_type\": \"default\", \"partial_rotary_factor\": 0.25}",
     "rope_parameters.partial_rotary_factor"},
};

static void test_refusals_name_the_field(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    const char *text = config_with(refusals[i].base, refusals[i].key, refusals[i].value);
    hr_model model = {.layer_count = 77};
    hr_error error = {0};
    hr_status status = hr_model_parse(text, strlen(text), "config.json", &model, &error);
    if (status != HR_ERROR_INPUT || error.code != HR_ERROR_INPUT || !strstr(error.message, refusals[i].field) ||
        strncmp(error.message, "config.json", 11) != 0 || model.layer_count != 77)
      fail_msg("%s: status %d, \"%s\" does not name %s", text, status, error.message, refusals[i].field);
    assert_int_equal(hr_model_parse(text, strlen(text), "config.json", &model, NULL), HR_ERROR_INPUT);
  }
}

/* What bitsandbytes leaves out: a name, that of a module around it, an end of it; and the list survives writing. */
static void test_quantized_configs(void **state) {
  static const struct {
    const char *skipped;
    uint8_t plain[2]; /* per layer */
  } cases[] = {
      {"null", {0, 0}},
      {"[\"lm_head\"]", {0, 0}},
      {"[\"model.layers.1.mlp.down_proj\"]", {0, 1 << HR_MODULE_MLP_DOWN}},
      {"[\"o_proj\", \"model.layers.1\"]", {1 << HR_MODULE_ATTENTION_OUTPUT, (1 << HR_MODULE_COUNT) - 1}},
      {"[\"model.layers.0.mlp\"]", {1 << HR_MODULE_MLP_GATE | 1 << HR_MODULE_MLP_UP | 1 << HR_MODULE_MLP_DOWN, 0}},
      {"[\"model.layers.0.ml\", \"layers\"]", {0, 0}},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char value[256];
    const char *text;
    char *written;
    hr_model model, back;
    hr_error error;
    (void)snprintf(value, sizeof value,
                   "{\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\", \"bnb_4bit_use_double_quant\": true, "
                   "\"llm_int8_skip_modules\": %s}",
                   cases[i].skipped);
    text = config_with(llama_members, "quantization_config", value);
    assert_int_equal(hr_model_parse(text, strlen(text), "config.json", &model, &error), HR_OK);
    assert_int_equal(model.quantization, HR_QUANTIZE_NF4_DQ);
    assert_memory_equal(model.plain, cases[i].plain, 2);
    written = hr_model_config_text(&model, "bfloat16");
    assert_int_equal(hr_model_parse(written, strlen(written), "config.json", &back, &error), HR_OK);
    assert_int_equal(back.quantization, model.quantization);
    assert_memory_equal(back.plain, model.plain, sizeof back.plain);
    assert_true(back.bfloat16 && !model.bfloat16);
    hr_free(written);
  }
}

static void test_unknown_families_are_told_the_known_ones(void **state) {
  const char *text = config_with(gpt2_members, "model_type", "\"mixtral\"");
  hr_model model;
  hr_error error;
  (void)state;
  assert_int_equal(hr_model_parse(text, strlen(text), "config.json", &model, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.hint, "gpt2"));
  assert_non_null(strstr(error.hint, "llama"));
}

static void test_malformed_json(void **state) {
  static const char *const texts[] = {"",
                                      "{",
                                      "[]",
                                      "null",
                                      "7",
                                      "{\"model_type\": \"gpt2\"",
                                      "{\"model_type\": \"gpt2\"} x",
                                      "{model_type: gpt2}",
                                      "{\"model_type\": \"gpt2\", \"model_type\": \"llama\"}",
                                      "{\"model_type\": \"gpt2\", \"n_layer\": NaN}",
                                      "\xff\xfe"};
  hr_model model;
  hr_error error;
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    assert_int_equal(hr_model_parse(texts[i], strlen(texts[i]), "config.json", &model, &error), HR_ERROR_INPUT);
    assert_true(strncmp(error.message, "config.json", 11) == 0);
  }
}

/* Each allocation refused in turn: a clean error, nothing leaked, nothing half-filled. */
static void test_refused_memory(void **state) {
  hr_model model = preset("llama-3.2-1b"), out = {.layer_count = 77};
  uint64_t live = hri_mem_live_bytes(), n;
  hr_status status = HR_ERROR_MEMORY;
  char *text = NULL;
  (void)state;
  for (n = 1; status != HR_OK && n < 10000; n++) {
    hr_error error = {0};
    hri_mem_fail_after(n);
    status = hr_model_parse(llama32_v5_file, sizeof llama32_v5_file - 1, "config.json", &out, &error);
    hri_mem_fail_after(0);
    assert_true(hri_mem_live_bytes() == live);
    if (status == HR_OK) break;
    assert_int_equal(status, HR_ERROR_MEMORY);
    assert_int_equal(error.code, HR_ERROR_MEMORY);
    assert_int_equal(out.layer_count, 77);
  }
  assert_true(n > 5 && status == HR_OK);
  for (n = 1; !text && n < 10000; n++) {
    hri_mem_fail_after(n);
    text = hr_model_config_text(&model, "float32");
    hri_mem_fail_after(0);
    if (!text) assert_true(hri_mem_live_bytes() == live);
  }
  assert_true(n > 2);
  hr_free(text);
  assert_true(hri_mem_live_bytes() == live);
}

/* ---- check ---- */

#define assert_check(field, name)                                                                                      \
  do {                                                                                                                 \
    hr_model broken = model;                                                                                           \
    broken.field;                                                                                                      \
    assert_int_equal(hr_model_check(&broken, &error), HR_ERROR_USAGE);                                                 \
    if (!strstr(error.message, name)) fail_msg("\"%s\" does not name %s", error.message, name);                        \
  } while (0)

static void test_check_names_the_field(void **state) {
  hr_model model = preset("llama-3.2-1b");
  hr_error error;
  (void)state;
  assert_int_equal(hr_model_check(&model, &error), HR_OK);
  assert_check(layer_count = 0, "layer_count");
  assert_check(layer_count = 513, "layer_count");
  assert_check(hidden_size = UINT32_MAX, "hidden_size");
  assert_check(kv_head_count = 5, "kv_head_count");
  assert_check(rotary_size = 63, "rotary_size");
  assert_check(rotary_size = 32, "rotary_size");
  assert_check(norm_epsilon = 0.0, "norm_epsilon");
  assert_check(norm_epsilon = NAN, "norm_epsilon");
  assert_check(rope.theta = -1, "rope.theta");
  assert_check(rope.factor = INFINITY, "rope.factor");
  assert_check(rope.high_frequency_factor = 0.5, "high_frequency_factor");
  assert_check(rope.original_max_positions = 0, "original_max_positions");
  assert_check(pad_token = 128256, "pad_token");
  assert_check(eos_token = -2, "eos_token");
  assert_check(attention_scale = 0.5, "attention_scale");
  assert_check(qkv_bias = true, "qkv_bias");
  assert_check(norm = HR_NORM_LAYER, "norm");
  assert_check(init_std = -1, "init_std");
  assert_check(dropout.residual = 2, "dropout.residual");
  assert_check(sliding_window = 7, "sliding_window");
  assert_check(sliding[3] = 1, "sliding_window");
  assert_check(sliding[16] = 1, "sliding[16]");
  assert_check(embedding_scale = 2, "embedding_scale");
  assert_check(logit_softcap = 2, "logit_softcap");
  assert_check(qk_norm = true, "qk_norm");
  assert_check(rope.scaling = HR_ROPE_LONGROPE, "factor_count");
  assert_check(rope.scaling = HR_ROPE_SCALING_COUNT, "rope.scaling");
  model = preset("gemma-3-1b");
  assert_int_equal(hr_model_check(&model, &error), HR_OK);
  assert_check(norm_weight_offset = 0, "norm_weight_offset");
  assert_check(embedding_scale = 1, "embedding_scale");
  assert_check(attention_softcap = -1, "attention_softcap");
  assert_check(attention_softcap = 50, "attention_softcap"); /* gemma2's alone */
  assert_check(local_rope.theta = 0, "local_rope.theta");
  assert_check(sliding[2] = 2, "sliding[2]");
  model = preset("mistral-7b");
  assert_check(sliding[2] = 0, "sliding");
  assert_check(mlp_bias = true, "mlp_bias");
  model = preset("phi-3-mini");
  assert_check(rope.scaling = HR_ROPE_LINEAR, "rope.scaling");
  model = preset("gpt2");
  assert_check(kv_head_count = 4, "kv_head_count");
  assert_check(head_size = 32, "head_size");
  assert_check(mlp_bias = false, "mlp_bias");
  assert_check(learned_positions = false, "rotary_size");
  assert_int_equal(hr_model_check(&(hr_model){0}, NULL), HR_ERROR_USAGE);
}

/* ---- open ---- */

static void write_file(const char *dir, const char *name, const char *text) {
  char path[512];
  (void)snprintf(path, sizeof path, "%s/%s", dir, name);
  assert_int_equal(hri_file_replace(path, text, strlen(text), NULL), HR_OK);
}

static void test_open_directories_and_files(void **state) {
  const char *dir = scratch_make("model");
  char path[PATH_BYTES + 16], marked[8192];
  hr_model model;
  hr_error error;
  (void)state;
  assert_int_equal(hr_model_open(dir, &model, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "config.json"));
  write_file(dir, "config.json", config_with(llama_members, NULL, NULL));
  assert_int_equal(hr_model_open(dir, &model, &error), HR_OK);
  assert_string_equal(model.directory, dir);
  assert_false(model.has_weights);
  assert_string_equal(model.name, strrchr(dir, '/') + 1);
  (void)snprintf(marked, sizeof marked, "\xEF\xBB\xBF%s", config_with(llama_members, NULL, NULL));
  write_file(dir, "config.json", marked);
  assert_int_equal(hr_model_open(dir, &model, &error), HR_OK);
  write_file(dir, "pytorch_model.bin", "x");
  assert_int_equal(hr_model_open(dir, &model, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "pytorch_model.bin"));
  write_file(dir, "model.safetensors.index.json", "{}");
  (void)snprintf(path, sizeof path, "%s/", dir);
  assert_int_equal(hr_model_open(path, &model, &error), HR_OK);
  assert_string_equal(model.directory, dir);
  assert_true(model.has_weights);
  assert_string_equal(model.name, strrchr(dir, '/') + 1);
  (void)snprintf(path, sizeof path, "%s/config.json", dir);
  assert_int_equal(hr_model_open(path, &model, &error), HR_OK);
  assert_string_equal(model.directory, ""); /* a config by itself has no weights, whatever lies beside it */
  assert_string_equal(model.name, strrchr(dir, '/') + 1);
  write_file(dir, "config.json", config_with(llama_members, "num_hidden_layers", "0"));
  assert_int_equal(hr_model_open(dir, &model, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "config.json: field 'num_hidden_layers'"));
  write_file(dir, "model.gguf", "GGUF");
  (void)snprintf(path, sizeof path, "%s/model.gguf", dir);
  assert_int_equal(hr_model_open(path, &model, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "cut short"));
  (void)snprintf(path, sizeof path, "%s/none/config.json", dir);
  assert_int_equal(hr_model_open(path, &model, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, path));
  scratch_remove(dir);
}

static void test_open_presets(void **state) {
  hr_model model, want = preset("llama-2-7b");
  hr_error error;
  (void)state;
  assert_int_equal(hr_model_open("Llama-2-7B", &model, &error), HR_OK);
  assert_same(&model, &want);
  assert_int_equal(hr_model_open("llama-2-7d", &model, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.hint, "llama-2-7b"));
  assert_int_equal(hr_model_open("", &model, &error), HR_ERROR_USAGE);
  assert_int_equal(hr_model_open("zzzzzzzzzzzzzzzzzzzzzzzzzz", &model, &error), HR_ERROR_USAGE);
  assert_true(error.hint[0] != 0);
}

static void test_bare_dimensions(void **state) {
  hr_model model, want = preset("gpt2");
  hr_error error;
  (void)state;
  assert_int_equal(hr_model_open("custom:layers=12,hidden=768,heads=12", &model, &error), HR_OK);
  assert_true(hr_model_parameter_count(&model) == hr_model_parameter_count(&want));
  assert_int_equal(model.eos_token, -1);
  assert_string_equal(model.name, "custom:layers=12,hidden=768,heads=12");
  want = preset("llama-3.2-3b");
  assert_int_equal(
      hr_model_open(
          "custom:layers=28,hidden=3072,heads=24,kv-heads=8,head-size=128,mlp=8192,vocab=128256,positions=8192,family=llama,tied",
          &model, &error),
      HR_OK);
  assert_true(hr_model_parameter_count(&model) == hr_model_parameter_count(&want));
  assert_true(model.tied_embeddings);
  assert_int_equal(hr_model_open("custom:layers=32,hidden=4096,heads=32,family=llama", &model, &error), HR_OK);
  assert_int_equal(model.mlp_size, 11008); /* Llama-2's rule */
  assert_true(hr_model_parameter_count(&model) == 6738415616);
}

static void test_bad_dimensions(void **state) {
  static const struct {
    const char *text, *named;
  } bad[] = {
      {"custom:", "layers"},
      {"custom:layers=12,hidden=768", "heads"},
      {"custom:layers=12,hidden=768,heads=12,", "heads"},
      {"custom:layers=12,,hidden=768,heads=12", "hidden"},
      {"custom:layers=12,hidden=768,heads=0", "heads"},
      {"custom:layers=-1,hidden=768,heads=12", "layers"},
      {"custom:layers=12,layers=12,hidden=768,heads=12", "layers"},
      {"custom:layers=12,hidden=768,heads=7", "heads"},
      {"custom:layers=12,hidden=768,heads=12,kv-heads=4", "kv_head_count"},
      {"custom:layers=12,hidden=768,heads=12,kv-heads=5,family=llama", "kv_head_count"},
      {"custom:layers=12,hidden=768,heads=12,family=bert", "bert"},
      {"custom:layers=12,hidden=768,heads=12,tied=perhaps", "tied"},
      {"custom:layers=12,hidden=768,heads=12,depth=3", "depth"},
      {"custom:layers=99999999999999999999,hidden=768,heads=12", "layers"},
      {"custom:layers=9999,hidden=768,heads=12", "layer_count"},
  };
  hr_model model;
  hr_error error;
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    hr_status status = hr_model_open(bad[i].text, &model, &error);
    if (status != HR_ERROR_USAGE || !strstr(error.message, bad[i].named))
      fail_msg("%s: status %d, \"%s\"", bad[i].text, status, error.message);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_presets_are_sound),
      cmocka_unit_test(test_specs_cover_the_model),
      cmocka_unit_test(test_names_are_unique),
      cmocka_unit_test(test_llama_names),
      cmocka_unit_test(test_gpt2_names),
      cmocka_unit_test(test_initial_values),
      cmocka_unit_test(test_names_in_files),
      cmocka_unit_test(test_published_configs_are_the_presets),
      cmocka_unit_test(test_config_round_trip),
      cmocka_unit_test(test_random_models_round_trip),
      cmocka_unit_test(test_choices_of_families),
      cmocka_unit_test(test_config_details),
      cmocka_unit_test(test_windows),
      cmocka_unit_test(test_gemma_without_windows_writes_one),
      cmocka_unit_test(test_family_defaults),
      cmocka_unit_test(test_rope_kinds),
      cmocka_unit_test(test_multimodal_gemma3),
      cmocka_unit_test(test_rope_frequencies),
      cmocka_unit_test(test_both_spellings_of_rope_agree),
      cmocka_unit_test(test_the_model_is_named_after_its_directory),
      cmocka_unit_test(test_refusals_name_the_field),
      cmocka_unit_test(test_quantized_configs),
      cmocka_unit_test(test_unknown_families_are_told_the_known_ones),
      cmocka_unit_test(test_malformed_json),
      cmocka_unit_test(test_refused_memory),
      cmocka_unit_test(test_check_names_the_field),
      cmocka_unit_test(test_open_directories_and_files),
      cmocka_unit_test(test_open_presets),
      cmocka_unit_test(test_bare_dimensions),
      cmocka_unit_test(test_bad_dimensions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
