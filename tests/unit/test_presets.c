/* Presets against what was published: of each the config.json, written down from the sources of docs/models.md (not from
 * src/model/presets.c), is read to the same description as the preset, and its parameters are as many as the weight
 * files have. A preset without a row here fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <string.h>

#include <headroom/model.h>

#define MEMBER(key, value) "\"" key "\":" #value ","
#define SHAPE(vocabulary, hidden, mlp, layers, heads, kv, positions)                                                   \
  MEMBER("vocab_size", vocabulary)                                                                                     \
  MEMBER("hidden_size", hidden)                                                                                        \
  MEMBER("intermediate_size", mlp)                                                                                     \
  MEMBER("num_hidden_layers", layers)                                                                                  \
  MEMBER("num_attention_heads", heads)                                                                                 \
  MEMBER("num_key_value_heads", kv)                                                                                    \
  MEMBER("max_position_embeddings", positions)
#define TOKENS(bos, eos) MEMBER("bos_token_id", bos) MEMBER("eos_token_id", eos)
#define RMS(epsilon, theta) MEMBER("rms_norm_eps", epsilon) MEMBER("rope_theta", theta)
#define END "\"initializer_range\":0.02}"

/* clang-format off */
#define GPT2(embedding, heads, layers) \
  "{\"activation_function\":\"gelu_new\",\"model_type\":\"gpt2\",\"attn_pdrop\":0.1,\"embd_pdrop\":0.1,\"resid_pdrop\":0.1," \
  "\"n_ctx\":1024,\"n_positions\":1024,\"vocab_size\":50257,\"layer_norm_epsilon\":1e-05," TOKENS(50256, 50256) \
  MEMBER("n_embd", embedding) MEMBER("n_head", heads) MEMBER("n_layer", layers) END
#define LLAMA "{\"model_type\":\"llama\",\"hidden_act\":\"silu\","
#define UNTIED "\"tie_word_embeddings\":false,"
#define TIED "\"tie_word_embeddings\":true,"
#define LLAMA2 "\"rope_scaling\":null,\"rms_norm_eps\":1e-05," UNTIED TOKENS(1, 2) END
#define LLAMA3 RMS(1e-05, 500000.0) TOKENS(128000, 128001) END
#define STRETCHED(by) "\"rope_scaling\":{\"factor\":" #by ",\"low_freq_factor\":1.0,\"high_freq_factor\":4.0," \
  "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},"
#define SMOLLM2 TIED TOKENS(0, 0) "\"pad_token_id\":null,\"rope_scaling\":null,"
#define MISTRAL "{\"model_type\":\"mistral\",\"hidden_act\":\"silu\"," UNTIED TOKENS(1, 2)
#define QWEN25 "{\"model_type\":\"qwen2\",\"hidden_act\":\"silu\",\"use_sliding_window\":false," RMS(1e-06, 1000000.0) TOKENS(151643, 151643)
#define QWEN3 "{\"model_type\":\"qwen3\",\"hidden_act\":\"silu\",\"attention_bias\":false,\"head_dim\":128,\"rope_scaling\":null," \
  "\"sliding_window\":null,\"use_sliding_window\":false," RMS(1e-06, 1000000) TOKENS(151643, 151645)
#define GRANITE "{\"model_type\":\"granite\",\"hidden_act\":\"silu\",\"attention_bias\":false,\"mlp_bias\":false," TIED TOKENS(0, 0) \
  "\"pad_token_id\":0,\"embedding_multiplier\":12.0,\"residual_multiplier\":0.22,\"rope_scaling\":null,"
#define OLMO2 "{\"model_type\":\"olmo2\",\"hidden_act\":\"silu\",\"attention_bias\":false," UNTIED RMS(1e-06, 500000) \
  "\"eos_token_id\":100257,\"pad_token_id\":100277,"
#define STABLELM "{\"model_type\":\"stablelm\",\"hidden_act\":\"silu\",\"layer_norm_eps\":1e-05,\"rope_theta\":10000,\"partial_rotary_factor\":0.25," \
  "\"use_parallel_residual\":false,\"qk_layernorm\":false," UNTIED
#define PHI "{\"model_type\":\"phi\",\"hidden_act\":\"gelu_new\",\"layer_norm_eps\":1e-05,\"rope_theta\":10000.0,\"qk_layernorm\":false," \
  "\"attention_dropout\":0.0,\"embd_pdrop\":0.0," UNTIED
#define GEMMA(type) "{\"model_type\":\"" type "\",\"hidden_activation\":\"gelu_pytorch_tanh\",\"attention_bias\":false,\"head_dim\":256," \
  "\"pad_token_id\":0,"
#define GEMMA1 GEMMA("gemma") "\"hidden_act\":\"gelu\"," RMS(1e-06, 10000.0) TOKENS(2, 1)
#define GEMMA2 GEMMA("gemma2") "\"attn_logit_softcapping\":50.0,\"final_logit_softcapping\":30.0,\"query_pre_attn_scalar\":256," \
  "\"sliding_window\":4096," RMS(1e-06, 10000.0) TOKENS(2, 1)
#define GEMMA3_1B GEMMA("gemma3_text") "\"attn_logit_softcapping\":null,\"final_logit_softcapping\":null,\"query_pre_attn_scalar\":256," \
  "\"sliding_window\":512,\"sliding_window_pattern\":6,\"rope_local_base_freq\":10000,\"rope_scaling\":null," RMS(1e-06, 1000000) \
  "\"bos_token_id\":2,\"eos_token_id\":[1,106],"

static const struct {
  const char *preset;
  uint64_t parameters; /* of the weight files, a tied head counted once, buffers and images left out */
  const char *config;
} published[] = {
    {"gpt2-124m", 124439808, GPT2(768, 12, 12)},
    {"gpt2-355m", 354823168, GPT2(1024, 16, 24)},
    {"gpt2-774m", 774030080, GPT2(1280, 20, 36)},
    {"gpt2-1558m", 1557611200, GPT2(1600, 25, 48)},
    {"llama-2-7b", 6738415616, LLAMA SHAPE(32000, 4096, 11008, 32, 32, 32, 4096) LLAMA2},
    {"llama-2-13b", 13015864320, LLAMA SHAPE(32000, 5120, 13824, 40, 40, 40, 4096) LLAMA2},
    {"llama-2-70b", 68976648192, LLAMA SHAPE(32000, 8192, 28672, 80, 64, 8, 4096) LLAMA2},
    {"llama-3-8b", 8030261248, LLAMA UNTIED SHAPE(128256, 4096, 14336, 32, 32, 8, 8192) LLAMA3},
    {"llama-3-70b", 70553706496, LLAMA UNTIED SHAPE(128256, 8192, 28672, 80, 64, 8, 8192) LLAMA3},
    {"llama-3.1-8b", 8030261248, LLAMA UNTIED STRETCHED(8.0) SHAPE(128256, 4096, 14336, 32, 32, 8, 131072) LLAMA3},
    {"llama-3.1-70b", 70553706496, LLAMA UNTIED STRETCHED(8.0) SHAPE(128256, 8192, 28672, 80, 64, 8, 131072) LLAMA3},
    {"llama-3.2-1b", 1235814400, LLAMA TIED STRETCHED(32.0) SHAPE(128256, 2048, 8192, 16, 32, 8, 131072) LLAMA3},
    {"llama-3.2-3b", 3212749824, LLAMA TIED STRETCHED(32.0) SHAPE(128256, 3072, 8192, 28, 24, 8, 131072) LLAMA3},
    {"smollm2-135m", 134515008, LLAMA SMOLLM2 SHAPE(49152, 576, 1536, 30, 9, 3, 8192) RMS(1e-05, 100000)
      "\"initializer_range\":0.041666666666666664}"},
    {"smollm2-360m", 361821120, LLAMA SMOLLM2 SHAPE(49152, 960, 2560, 32, 15, 5, 8192) RMS(1e-05, 100000) END},
    {"smollm2-1.7b", 1711376384, LLAMA SMOLLM2 SHAPE(49152, 2048, 8192, 24, 32, 32, 8192) RMS(1e-05, 130000) END},
    {"mistral-7b", 7241732096, MISTRAL SHAPE(32000, 4096, 14336, 32, 32, 8, 32768) RMS(1e-05, 10000.0)
      "\"sliding_window\":4096," END},
    {"mistral-7b-v0.3", 7248023552, MISTRAL SHAPE(32768, 4096, 14336, 32, 32, 8, 32768) RMS(1e-05, 1000000.0)
      "\"sliding_window\":null," END},
    {"qwen2.5-0.5b", 494032768, QWEN25 TIED SHAPE(151936, 896, 4864, 24, 14, 2, 32768)
      "\"sliding_window\":32768,\"max_window_layers\":24," END},
    {"qwen2.5-1.5b", 1543714304, QWEN25 TIED SHAPE(151936, 1536, 8960, 28, 12, 2, 131072)
      "\"sliding_window\":131072,\"max_window_layers\":28," END},
    {"qwen2.5-7b", 7615616512, QWEN25 UNTIED SHAPE(152064, 3584, 18944, 28, 28, 4, 131072)
      "\"sliding_window\":131072,\"max_window_layers\":28," END},
    {"qwen3-0.6b", 751632384 - 151936 * 1024, QWEN3 TIED SHAPE(151936, 1024, 3072, 28, 16, 8, 40960) END},
    {"qwen3-1.7b", 2031739904 - 151936 * 2048, QWEN3 TIED SHAPE(151936, 2048, 6144, 28, 16, 8, 40960) END},
    {"qwen3-4b", 4022468096, QWEN3 TIED SHAPE(151936, 2560, 9728, 36, 32, 8, 40960) END},
    {"qwen3-8b", 8190735360, QWEN3 UNTIED SHAPE(151936, 4096, 12288, 36, 32, 8, 40960) END},
    {"phi-3-mini", 3821079552, "{\"model_type\":\"phi3\",\"hidden_act\":\"silu\",\"pad_token_id\":32000,\"sliding_window\":2047,"
      "\"original_max_position_embeddings\":4096,\"resid_pdrop\":0.0,\"rope_scaling\":null," UNTIED TOKENS(1, 32000)
      SHAPE(32064, 3072, 8192, 32, 32, 32, 4096) RMS(1e-05, 10000.0) END},
    {"smollm3-3b", 3075098624, "{\"model_type\":\"smollm3\",\"hidden_act\":\"silu\",\"attention_bias\":false,\"bos_token_id\":null,"
      "\"eos_token_id\":128001,\"pad_token_id\":128004,\"no_rope_layer_interval\":4,\"rope_scaling\":null,\"sliding_window\":null,"
      "\"use_sliding_window\":false," TIED SHAPE(128256, 2048, 11008, 36, 16, 4, 65536) RMS(1e-06, 5000000.0) END},
    {"granite-3.1-2b", 2533531648, GRANITE SHAPE(49155, 2048, 8192, 40, 32, 8, 131072) RMS(1e-05, 5000000.0)
      "\"attention_multiplier\":0.015625,\"logits_scaling\":8.0," END},
    {"granite-3.1-8b", 8170848256, GRANITE SHAPE(49155, 4096, 12800, 40, 32, 8, 131072) RMS(1e-05, 10000000.0)
      "\"attention_multiplier\":0.0078125,\"logits_scaling\":16.0," END},
    {"olmo-2-1b", 1484916736, OLMO2 SHAPE(100352, 2048, 8192, 16, 16, 16, 4096) END},
    {"olmo-2-7b", 7298617344, OLMO2 SHAPE(100352, 4096, 11008, 32, 32, 32, 4096) END},
    {"olmo-2-13b", 13716198400, OLMO2 SHAPE(100352, 5120, 13824, 40, 40, 40, 4096) END},
    {"stablelm-2-1.6b", 1644515328, STABLELM SHAPE(100352, 2048, 5632, 24, 32, 32, 4096) TOKENS(100257, 100257)
      "\"use_qkv_bias\":true," END},
    {"stablelm-3b", 2795443200, STABLELM SHAPE(50304, 2560, 6912, 32, 32, 32, 4096) TOKENS(0, 0)
      "\"use_qkv_bias\":false," END},
    {"phi-1.5", 1418270720, PHI SHAPE(51200, 2048, 8192, 24, 32, 32, 2048) TOKENS(null, null)
      "\"partial_rotary_factor\":0.5,\"resid_pdrop\":0.0," END},
    {"phi-2", 2779683840, PHI SHAPE(51200, 2560, 10240, 32, 32, 32, 2048) TOKENS(50256, 50256)
      "\"partial_rotary_factor\":0.4,\"resid_pdrop\":0.1," END},
    {"gemma-2b", 2506172416, GEMMA1 SHAPE(256000, 2048, 16384, 18, 8, 1, 8192) END},
    {"gemma-7b", 8537680896, GEMMA1 SHAPE(256000, 3072, 24576, 28, 16, 16, 8192) END},
    {"gemma-2-2b", 2614341888, GEMMA2 SHAPE(256000, 2304, 9216, 26, 8, 4, 8192) END},
    {"gemma-2-9b", 9241705984, GEMMA2 SHAPE(256000, 3584, 14336, 42, 16, 8, 8192) END},
    {"gemma-3-1b", 999885952, GEMMA3_1B SHAPE(262144, 1152, 6912, 26, 4, 1, 32768) END},
    {"gemma-3-4b", 3880263168, "{\"model_type\":\"gemma3\",\"eos_token_id\":[1,106],\"image_token_index\":262144,"
      "\"text_config\":{\"model_type\":\"gemma3_text\",\"hidden_size\":2560,\"intermediate_size\":10240,\"num_hidden_layers\":34,"
      "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"},\"sliding_window\":1024},"
      "\"vision_config\":{\"hidden_size\":1152,\"image_size\":896},\"initializer_range\":0.02}"},
};
/* clang-format on */

enum { PUBLISHED_COUNT = sizeof published / sizeof *published };

static hr_model preset(const char *name) {
  hr_model model;
  hr_error error;
  if (hr_model_preset(name, &model, &error) != HR_OK) fail_msg("%s: %s", name, error.message);
  return model;
}

static void parameters_are_as_many_as_published(void **state) {
  (void)state;
  for (size_t i = 0; i < PUBLISHED_COUNT; i++) {
    hr_model model = preset(published[i].preset);
    unsigned long long ours = hr_model_parameter_count(&model);
    if (ours != published[i].parameters)
      fail_msg("%s has %llu parameters, published %llu", published[i].preset, ours,
               (unsigned long long)published[i].parameters);
  }
}

/* Where two texts part, so that a failure shows the line. */
static void assert_same_text(const char *name, const char *preset_text, const char *file_text) {
  size_t at = 0, line = 0;
  if (strcmp(preset_text, file_text) == 0) return;
  for (; preset_text[at] && preset_text[at] == file_text[at]; at++)
    if (preset_text[at] == '\n') line = at + 1;
  fail_msg("%s: the preset has %.*s, the published file %.*s", name, (int)strcspn(preset_text + line, "\n"),
           preset_text + line, (int)strcspn(file_text + line, "\n"), file_text + line);
}

/* Compared by what is written, which has every choice of a model. */
static void configs_are_the_presets(void **state) {
  (void)state;
  for (size_t i = 0; i < PUBLISHED_COUNT; i++) {
    hr_model model = preset(published[i].preset), file;
    hr_error error;
    char *ours, *theirs;
    if (hr_model_parse(published[i].config, strlen(published[i].config), "config.json", &file, &error) != HR_OK)
      fail_msg("%s: %s", published[i].preset, error.message);
    ours = hr_model_config_text(&model, "float32");
    theirs = hr_model_config_text(&file, "float32");
    assert_non_null(ours);
    assert_non_null(theirs);
    assert_same_text(published[i].preset, ours, theirs);
    hr_free(ours);
    hr_free(theirs);
  }
}

/* But for those with bytes as tokens, which are ours. */
static void every_preset_is_held(void **state) {
  (void)state;
  for (uint32_t i = 0; i < hr_model_preset_count(); i++) {
    const char *name = hr_model_preset_name(i);
    size_t k = 0;
    while (k < PUBLISHED_COUNT && strcmp(published[k].preset, name) != 0) k++;
    if (k == PUBLISHED_COUNT && !strstr(name, "-bytes")) fail_msg("%s stands in no row", name);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parameters_are_as_many_as_published),
      cmocka_unit_test(configs_are_the_presets),
      cmocka_unit_test(every_preset_is_held),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
