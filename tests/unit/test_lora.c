/* Adapters before anything runs: the words of --lora, the parameters that a model gets by them, adapter_config.json as
 * PEFT and its users publish it, and files of adapters that are damaged or belong elsewhere. Each refusal names option,
 * file, field or tensor. (Values are held in test_peft.c, bits in tests/cli/test_lora.sh.) */
#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <headroom/train.h>

#include "formats/weights.h"
#include "model/adapter.h"
#include "model/lora.h"
#include "model/params.h"
#include "support/scratch.h"

static const char *work, *data;

#define LLAMA "custom:family=llama,layers=3,hidden=12,heads=2,kv-heads=1,mlp=10,vocab=257,positions=32"
#define GPT2 "custom:family=gpt2,layers=3,hidden=12,heads=2,mlp=10,vocab=257,positions=32"
#define PHI3 "custom:family=phi3,layers=3,hidden=12,heads=2,kv-heads=1,mlp=10,vocab=257,positions=32"
#define GEMMA2 "custom:family=gemma2,layers=3,hidden=12,heads=2,kv-heads=1,mlp=10,vocab=257,positions=32"
#define QWEN3 "custom:family=qwen3,layers=3,hidden=12,heads=2,kv-heads=1,mlp=10,vocab=257,positions=32"

enum {
  Q = 1 << HR_MODULE_Q,
  K = 1 << HR_MODULE_K,
  V = 1 << HR_MODULE_V,
  O = 1 << HR_MODULE_ATTENTION_OUTPUT,
  GATE = 1 << HR_MODULE_MLP_GATE,
  UP = 1 << HR_MODULE_MLP_UP,
  DOWN = 1 << HR_MODULE_MLP_DOWN
};

static hr_model model_of(const char *source) {
  hr_model m;
  hr_error error = {0};
  if (hr_model_open(source, &m, &error) != HR_OK) fail_msg("%s: %s", source, error.message);
  return m;
}

/* ---- words ---- */

static hr_lora parsed(const char *source, const char *words) {
  hr_model m = model_of(source);
  hr_error error = {0};
  hr_lora lora;
  if (hri_lora_parse(words, &m, false, &lora, &error) != HR_OK) fail_msg("--lora %s: %s", words, error.message);
  return lora;
}

/* Of all layers; and a bit per layer that has some. */
static uint32_t targets_of(const hr_lora *l) {
  uint32_t all = 0;
  for (uint32_t k = 0; k < HR_MAX_LAYERS; k++) all |= l->modules[k];
  return all;
}
static uint32_t layers_of(const hr_lora *l) {
  uint32_t all = 0;
  for (uint32_t k = 0; k < 8; k++) all |= (uint32_t)(l->modules[k] != 0) << k;
  return all;
}
static uint32_t targets_by(const char *source, const char *words) {
  hr_lora l = parsed(source, words);
  return targets_of(&l);
}

static void every_word(void **state) {
  hr_lora l = parsed(LLAMA, "r=16");
  (void)state;
  assert_int_equal(l.rank, 16);
  assert_true(l.alpha == 8 && l.dropout == 0 && !l.rslora && !l.gaussian);
  assert_int_equal(targets_of(&l), Q | V);
  assert_int_equal(layers_of(&l), 7);
  l = parsed(LLAMA, "alpha=0.5");
  assert_int_equal(l.rank, 8);
  assert_true(l.alpha == 0.5);
  l = parsed(LLAMA, "targets=k_proj,o_proj,rslora,dropout=0.25,init=gaussian,layers=0,2");
  assert_int_equal(targets_of(&l), K | O);
  assert_true(l.rslora && l.gaussian && l.dropout == 0.25);
  assert_int_equal(layers_of(&l), 5);
  l = parsed(LLAMA, "layers=1-2,r=1,init=kaiming,targets=self_attn.q_proj,mlp.down_proj");
  assert_int_equal(layers_of(&l), 6);
  assert_int_equal(targets_of(&l), Q | DOWN);
  assert_false(l.gaussian);
  l = parsed(LLAMA, "layers=2,0-1,targets=all-linear");
  assert_int_equal(layers_of(&l), 7);
  assert_int_equal(targets_of(&l), Q | K | V | O | GATE | UP | DOWN);
  assert_int_equal(targets_by(GPT2, "r=4"), Q);
  assert_int_equal(targets_by(GPT2, "targets=c_proj"), O | DOWN); /* two modules end in it, as for PEFT */
  assert_int_equal(targets_by(GPT2, "targets=attn.c_proj"), O);
  assert_int_equal(targets_by(GPT2, "targets=all-linear"), Q | O | GATE | DOWN);
  assert_int_equal(targets_by(PHI3, "r=4"), Q);
  assert_int_equal(targets_by(PHI3, "targets=qkv_proj,gate_up_proj"), Q | GATE);
  assert_int_equal(targets_by(PHI3, "targets=all-linear"), Q | O | GATE | DOWN);
  assert_int_equal(targets_by(GEMMA2, "r=4"), Q | V);
  assert_int_equal(targets_by(QWEN3, "targets=up_proj,gate_proj"), GATE | UP);
  l = (hr_lora){.rank = 16, .alpha = 32};
  assert_true(hri_lora_scale(&l, 0, HR_MODULE_Q) == 2);
  l.rslora = true;
  assert_true(hri_lora_scale(&l, 0, HR_MODULE_Q) == 8);
}

/* Ranks and factors by pattern, targets by expression, what trains beside: what PEFT 0.21 makes of the same words. */
static void words_of_peft(void **state) {
  hr_lora l = parsed(LLAMA, "targets=.*\\.[01]\\.self_attn\\.(q|k)_proj,r=4,dora");
  (void)state;
  assert_int_equal(targets_of(&l), Q | K);
  assert_int_equal(layers_of(&l), 3);
  assert_true(l.dora && !l.rslora);
  l = parsed(LLAMA, "targets=(?!.*mlp).*_proj,o_proj,layers=1");
  assert_int_equal(targets_of(&l), Q | K | V | O);
  assert_int_equal(layers_of(&l), 2);
  l = parsed(LLAMA, "r=4,alpha=8,targets=all-linear,rank_pattern=q_proj:2,layers.1.mlp.*:16,.*_proj:3,"
                    "alpha_pattern=down_proj:1.5,rslora");
  assert_int_equal(hri_lora_rank(&l, 0, HR_MODULE_Q), 2); /* the first that matches says it */
  assert_int_equal(hri_lora_rank(&l, 1, HR_MODULE_MLP_UP), 16);
  assert_int_equal(hri_lora_rank(&l, 0, HR_MODULE_MLP_UP), 3);
  assert_true(fabs(hri_lora_scale(&l, 1, HR_MODULE_MLP_DOWN) - 1.5 / 4) < 1e-12);
  assert_true(fabs(hri_lora_scale(&l, 0, HR_MODULE_V) - 8 / sqrt(3)) < 1e-12);
  l = parsed(LLAMA, "rank_pattern=q_proj:8,r=8"); /* as all have it: no kind of its own */
  assert_int_equal(l.kinds[0][HR_MODULE_Q], 0);
  l = parsed(GPT2, "bias=all,modules_to_save=lm_head,wte,ln_f");
  assert_int_equal(l.bias, HR_LORA_BIAS_ALL);
  assert_int_equal(l.saved, 1u << HRI_SLOT_HEAD_WEIGHT | 1u << HRI_SLOT_TOKEN_EMBEDDING |
                                1u << HRI_SLOT_FINAL_NORM_WEIGHT | 1u << HRI_SLOT_FINAL_NORM_BIAS);
  l = parsed(LLAMA, "bias=lora_only,modules_to_save=norm"); /* the end of a word too */
  assert_int_equal(l.bias, HR_LORA_BIAS_ADAPTED);
  assert_int_equal(l.saved,
                   1u << HRI_SLOT_NORM1_WEIGHT | 1u << HRI_SLOT_NORM2_WEIGHT | 1u << HRI_SLOT_FINAL_NORM_WEIGHT);
}

/* What train beside adapters is named as PEFT names it. */
static void tuned_names(void **state) {
  static const char *const want[] = {"base_model.model.transformer.ln_f.bias",
                                     "base_model.model.transformer.h.1.attn.c_attn.base_layer.bias",
                                     "base_model.model.transformer.h.1.attn.c_proj.bias",
                                     "base_model.model.transformer.h.0.ln_1.bias",
                                     "base_model.model.lm_head.weight",
                                     "base_model.model.transformer.h.2.attn.c_attn.lora_magnitude_vector"};
  hr_model m = model_of(GPT2);
  uint32_t found = 0, count = 0;
  (void)state;
  m.tied_embeddings = true;
  m.lora = parsed(GPT2, "r=2,bias=all,modules_to_save=lm_head,dora");
  for (uint32_t p = 0; p < hri_param_count(&m); p++) {
    hri_param_spec spec;
    hri_param_get(&m, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++) {
      char name[96];
      if (!hri_part_tuned(&m, &spec, &spec.parts[k], name)) continue;
      count++;
      for (size_t i = 0; i < sizeof want / sizeof *want; i++) found |= (uint32_t)(strcmp(name, want[i]) == 0) << i;
    }
  }
  assert_int_equal(found, (1u << sizeof want / sizeof *want) - 1);
  assert_int_equal(count, 3 * 3 + 3 * 6 + 1 + 1); /* A, B and m; the biases of layers and of ln_f; the head */
  assert_true(hri_lora_unties(&m));
}

/* What is wrong, and a word that the message or the hint must hold beside "--lora". */
static void every_refusal(void **state) {
  static const struct {
    const char *source, *words, *says;
  } bad[] = {
      {LLAMA, "r=0", "r=0"},
      {LLAMA, "r=4097", "r=4097"},
      {LLAMA, "r=", "rank"},
      {LLAMA, "r=4x", "r=4x"},
      {LLAMA, "r=-4", "r=-4"},
      {LLAMA, "r=1e1", "r=1e1"},
      {LLAMA, "r=4,r=8", "twice"},
      {LLAMA, "alpha=0", "alpha=0"},
      {LLAMA, "alpha=-1", "alpha=-1"},
      {LLAMA, "alpha=nan", "alpha=nan"},
      {LLAMA, "alpha=inf", "alpha=inf"},
      {LLAMA, "alpha= 4", "alpha"},
      {LLAMA, "alpha=two", "alpha=two"},
      {LLAMA, "dropout=1", "dropout=1"},
      {LLAMA, "dropout=-0.1", "dropout=-0.1"},
      {LLAMA, "dropout=x", "dropout=x"},
      {LLAMA, "init=pissa", "kaiming or gaussian"},
      {LLAMA, "layers=3", "0-2"},
      {LLAMA, "layers=2-1", "layers=2-1"},
      {LLAMA, "layers=0-3", "0-2"},
      {LLAMA, "layers=", "layers="},
      {LLAMA, "layers=a", "layers=a"},
      {LLAMA, "layers=0-", "layers=0-"},
      {LLAMA, "targets=c_attn",
       "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, embed_tokens, or all-linear"},
      {LLAMA, "targets=lm_head", "no module 'lm_head'"},
      {LLAMA, "targets=proj", "no module 'proj'"}, /* an end, but not behind a dot */
      {LLAMA, "targets=q_proj,nosuch", "no module 'nosuch'"},
      {LLAMA, "targets=", "no module ''"},
      {GPT2, "targets=q_proj", "c_attn, c_proj, c_fc, wte, or all-linear"},
      {PHI3, "targets=q_proj", "qkv_proj"},
      {PHI3, "targets=gate_proj", "gate_up_proj"},
      {LLAMA, "rank=4", "did you mean r=4?"},
      {LLAMA, "q_proj", "'q_proj' is not understood"},
      {LLAMA, "r=4,8", "'8' is not understood"},
      {LLAMA, "r=4,rslora,q_proj", "'q_proj' is not understood"},
      {LLAMA, "targets=.*(q_proj", "no regular expression"},
      {LLAMA, "targets=.*nosuch.*", "no module"},
      {LLAMA, "targets=(q)_proj", "no module"}, /* an expression is of the whole path */
      {LLAMA, "targets=(?<=x)q_proj", "(?:"},
      {LLAMA, "targets=mlp.up_proj,layers=1,rank_pattern=q_proj:4", "matches no module"},
      {LLAMA, "rank_pattern=q_proj", "rank_pattern=q_proj"},
      {LLAMA, "rank_pattern=q_proj:0", "1 to 4096"},
      {LLAMA, "rank_pattern=q_proj:1.5", "1 to 4096"},
      {LLAMA, "rank_pattern=q_proj:4,.*:8,v_proj:9", "another entry before it"},
      {LLAMA, "rank_pattern=*:4", "nothing to repeat"},
      {LLAMA, "alpha_pattern=q_proj:-1", "alpha_pattern=q_proj:-1"},
      {LLAMA, "targets=embed_tokens,layers=0", "only what is in layers"},
      {LLAMA, "targets=embed_tokens,dora", "with dora"},
      {LLAMA, "targets=q_proj,embed_tokens,modules_to_save=embed_tokens", "trains whole"},
      {LLAMA, "bias=some", "none, all or lora_only"},
      {LLAMA, "modules_to_save=score", "no such module"},
      {LLAMA, "modules_to_save=o_proj", "linear module"},
      {LLAMA, "modules_to_save=layers.0.input_layernorm", "some layers"},
      {LLAMA, "modules_to_save=", "no such module"},
      {LLAMA, "use_dora=true", "not understood"},
      {LLAMA, "r=4,", "comma"},
      {LLAMA, ",r=4", "empty"},
      {LLAMA, "r=4,,alpha=2", "empty"},
  };
  (void)state;
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
    hr_model m = model_of(bad[k].source);
    hr_error error = {0};
    hr_lora lora = {.rank = 77};
    if (hri_lora_parse(bad[k].words, &m, false, &lora, &error) != HR_ERROR_USAGE)
      fail_msg("took --lora %s", bad[k].words);
    assert_int_equal(lora.rank, 77); /* nothing is half taken */
    if (!strstr(error.message, "--lora") || (!strstr(error.message, bad[k].says) && !strstr(error.hint, bad[k].says)))
      fail_msg("--lora %s: no '%s' in: %s (%s)", bad[k].words, bad[k].says, error.message, error.hint);
  }
}

/* ---- the table of parameters ---- */

typedef struct listed {
  const char *name; /* of the file */
  uint64_t rows, columns;
  const char *ours;
  uint64_t row; /* where it is in ours */
} listed;

/* The adapters of `layer`, part by part in order, are those listed; and no other parameter changes by them. */
static void expect_parts(const char *source, const char *words, int layer, const listed *want, size_t count) {
  hr_model plain = model_of(source), m = plain;
  size_t at = 0;
  uint32_t own = 0;
  m.lora = parsed(source, words);
  for (uint32_t p = 0; p < hri_param_count(&m); p++) {
    hri_param_spec spec, before;
    hri_param_get(&m, p, &spec);
    if (!spec.adapter) {
      hri_param_get(&plain, own++, &before);
      assert_memory_equal(&before, &spec, sizeof spec);
      continue;
    }
    assert_true(spec.decay);
    assert_int_equal(spec.rank, 2);
    if (spec.layer != layer) continue;
    for (uint32_t k = 0; k < spec.part_count; k++, at++) {
      const hri_param_part *part = &spec.parts[k];
      if (at >= count) fail_msg("%s, %s: also %s", source, words, part->name);
      assert_string_equal(part->name, want[at].name);
      assert_string_equal(spec.name, want[at].ours);
      assert_false(part->transposed);
      assert_int_equal(part->rows, want[at].rows);
      assert_int_equal(part->row, want[at].row);
      assert_int_equal(spec.dims[1], want[at].columns);
      assert_int_equal(spec.init == HRI_INIT_ZEROS, strstr(part->name, "lora_B") != NULL);
    }
  }
  assert_int_equal(own, hri_param_count(&plain));
  assert_int_equal(at, count);
}
#define EXPECT(source, words, layer, ...)                                                                              \
  do {                                                                                                                 \
    static const listed want[] = {__VA_ARGS__};                                                                        \
    expect_parts(source, words, layer, want, sizeof want / sizeof *want);                                              \
  } while (0)

#define L1(name) "base_model.model.model.layers.1." name ".weight"
#define H2(name) "base_model.model.transformer.h.2." name ".weight"

static void parameters(void **state) {
  (void)state;
  /* q and v are 12 and 6 rows of the fused product: heads of 6, two of q and one of k and v. They share one A. */
  EXPECT(LLAMA, "r=2", 1, {L1("self_attn.q_proj.lora_A"), 2, 12, "layers.1.q.lora_A", 0},
         {L1("self_attn.v_proj.lora_A"), 2, 12, "layers.1.q.lora_A", 2},
         {L1("self_attn.q_proj.lora_B"), 12, 2, "layers.1.q.lora_B", 0},
         {L1("self_attn.v_proj.lora_B"), 6, 2, "layers.1.v.lora_B", 0});
  /* With dropout each reads an x of its own. */
  EXPECT(LLAMA, "r=2,dropout=0.5", 1, {L1("self_attn.q_proj.lora_A"), 2, 12, "layers.1.q.lora_A", 0},
         {L1("self_attn.v_proj.lora_A"), 2, 12, "layers.1.v.lora_A", 0},
         {L1("self_attn.q_proj.lora_B"), 12, 2, "layers.1.q.lora_B", 0},
         {L1("self_attn.v_proj.lora_B"), 6, 2, "layers.1.v.lora_B", 0});
  /* The first of those that share is the first that there is. */
  EXPECT(LLAMA, "r=3,targets=k_proj,v_proj,up_proj,down_proj", 1,
         {L1("self_attn.k_proj.lora_A"), 3, 12, "layers.1.k.lora_A", 0},
         {L1("self_attn.v_proj.lora_A"), 3, 12, "layers.1.k.lora_A", 3},
         {L1("mlp.up_proj.lora_A"), 3, 12, "layers.1.up.lora_A", 0},
         {L1("mlp.down_proj.lora_A"), 3, 10, "layers.1.down.lora_A", 0},
         {L1("self_attn.k_proj.lora_B"), 6, 3, "layers.1.k.lora_B", 0},
         {L1("self_attn.v_proj.lora_B"), 6, 3, "layers.1.v.lora_B", 0},
         {L1("mlp.up_proj.lora_B"), 10, 3, "layers.1.up.lora_B", 0},
         {L1("mlp.down_proj.lora_B"), 12, 3, "layers.1.down.lora_B", 0});
  EXPECT(QWEN3, "r=2,targets=gate_proj,up_proj", 1, {L1("mlp.gate_proj.lora_A"), 2, 12, "layers.1.gate.lora_A", 0},
         {L1("mlp.up_proj.lora_A"), 2, 12, "layers.1.gate.lora_A", 2},
         {L1("mlp.gate_proj.lora_B"), 10, 2, "layers.1.gate.lora_B", 0},
         {L1("mlp.up_proj.lora_B"), 10, 2, "layers.1.up.lora_B", 0});
  EXPECT(GEMMA2, "r=2,targets=o_proj", 1, {L1("self_attn.o_proj.lora_A"), 2, 12, "layers.1.o.lora_A", 0},
         {L1("self_attn.o_proj.lora_B"), 12, 2, "layers.1.o.lora_B", 0});
  /* One module of a family that fuses: one B of all its rows. */
  EXPECT(PHI3, "r=2,targets=qkv_proj,gate_up_proj", 1, {L1("self_attn.qkv_proj.lora_A"), 2, 12, "layers.1.q.lora_A", 0},
         {L1("mlp.gate_up_proj.lora_A"), 2, 12, "layers.1.gate.lora_A", 0},
         {L1("self_attn.qkv_proj.lora_B"), 24, 2, "layers.1.q.lora_B", 0},
         {L1("mlp.gate_up_proj.lora_B"), 20, 2, "layers.1.gate.lora_B", 0});
  EXPECT(GPT2, "r=2,targets=c_attn,c_proj", 2, {H2("attn.c_attn.lora_A"), 2, 12, "layers.2.q.lora_A", 0},
         {H2("attn.c_proj.lora_A"), 2, 12, "layers.2.o.lora_A", 0},
         {H2("mlp.c_proj.lora_A"), 2, 10, "layers.2.down.lora_A", 0},
         {H2("attn.c_attn.lora_B"), 36, 2, "layers.2.q.lora_B", 0},
         {H2("attn.c_proj.lora_B"), 12, 2, "layers.2.o.lora_B", 0},
         {H2("mlp.c_proj.lora_B"), 12, 2, "layers.2.down.lora_B", 0});
  /* A layer that is not named has none. */
  expect_parts(LLAMA, "r=2,layers=0,2", 1, NULL, 0);
}

/* ---- adapter_config.json ---- */

static const char *put_config(const char *text) {
  static int count;
  const char *directory = path_of("%s/config-%d", work, count++);
  assert_int_equal(mkdir(directory, 0755), 0);
  put_text(path_of("%s/adapter_config.json", directory), text);
  return directory;
}

static hr_model opened(const char *source, const char *text) {
  hr_model m = model_of(source);
  hr_error error = {0};
  const char *directory = put_config(text);
  if (hri_adapter_open(directory, &m, &error) != HR_OK) fail_msg("%s: %s", text, error.message);
  assert_string_equal(m.adapter, directory);
  return m;
}

/* As they are published: of PEFT 0.2, of 0.21, with keys of which nothing is known here, with an empty everything. */
static void published(void **state) {
  hr_lora l = opened(LLAMA, "{\"base_model_name_or_path\": \"decapoda-research/llama-7b-hf\", \"bias\": \"none\", "
                            "\"enable_lora\": null, \"fan_in_fan_out\": false, \"inference_mode\": true, "
                            "\"lora_alpha\": 16, \"lora_dropout\": 0.05, \"merge_weights\": false, "
                            "\"modules_to_save\": null, \"peft_type\": \"LORA\", \"r\": 16, "
                            "\"target_modules\": [\"q_proj\", \"v_proj\"], \"task_type\": \"CAUSAL_LM\"}")
                  .lora;
  (void)state;
  assert_int_equal(l.rank, 16);
  assert_true(l.alpha == 16 && l.dropout == 0.05 && !l.rslora);
  assert_int_equal(targets_of(&l), Q | V);
  assert_int_equal(layers_of(&l), 7);
  l = opened(LLAMA, "{\"peft_type\": \"LORA\", \"target_modules\": [\"down_proj\"], \"use_rslora\": true, "
                    "\"use_dora\": false, \"modules_to_save\": [], \"rank_pattern\": {}, \"alpha_pattern\": {}, "
                    "\"loftq_config\": {}, \"megatron_core\": \"megatron.core\", \"exclude_modules\": null, "
                    "\"lora_bias\": false, \"qalora_group_size\": 16, \"layers_to_transform\": [0, 2], "
                    "\"layers_pattern\": \"layers\", \"peft_version\": \"99\", \"of_the_future\": {\"x\": 1}}")
          .lora;
  assert_int_equal(l.rank, 8); /* PEFT's own defaults */
  assert_true(l.alpha == 8 && l.dropout == 0 && l.rslora);
  assert_int_equal(targets_of(&l), DOWN);
  assert_int_equal(layers_of(&l), 5);
  l = opened(LLAMA, "{\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\", "
                    "\"gate_proj\", \"up_proj\", \"down_proj\"], \"layers_to_transform\": 1, "
                    "\"lora_alpha\": 0.5, \"r\": 3, \"init_lora_weights\": \"gaussian\"}")
          .lora;
  assert_int_equal(targets_of(&l), Q | K | V | O | GATE | UP | DOWN);
  assert_int_equal(layers_of(&l), 2);
  l = opened(LLAMA,
             "{\"peft_type\": \"LORA\", \"target_modules\": \".*\\\\.(q|v)_proj\", \"r\": 4, \"use_dora\": true, "
             "\"rank_pattern\": {\"^model.layers.1.self_attn.q_proj\": 2, \"mlp.experts\": 9}, \"bias\": \"all\", "
             "\"alpha_pattern\": {\".*q_proj\": 3}, \"modules_to_save\": [\"embed_tokens\", \"lm_head\"]}")
          .lora;
  assert_int_equal(targets_of(&l), Q | V);
  assert_int_equal(hri_lora_rank(&l, 1, HR_MODULE_Q), 2);
  assert_int_equal(hri_lora_rank(&l, 0, HR_MODULE_Q), 4);
  assert_true(hri_lora_scale(&l, 0, HR_MODULE_Q) == 0.75 && hri_lora_scale(&l, 0, HR_MODULE_V) == 2 && l.dora);
  assert_int_equal(l.saved, 1u << HRI_SLOT_HEAD_WEIGHT | 1u << HRI_SLOT_TOKEN_EMBEDDING);
  assert_int_equal(l.bias, HR_LORA_BIAS_ALL);
  /* The embedding: by its name, by an expression; not where layers are named, as for PEFT. */
  l = opened(LLAMA, "{\"peft_type\": \"LORA\", \"target_modules\": [\"embed_tokens\", \"q_proj\"], \"r\": 4, "
                    "\"lora_alpha\": 6, \"rank_pattern\": {\"embed_tokens\": 3}}")
          .lora;
  assert_true(l.embedding && hri_lora_embedding_rank(&l) == 3 && hri_lora_embedding_scale(&l) == 2);
  assert_int_equal(targets_of(&l), Q);
  l = opened(GPT2, "{\"peft_type\": \"LORA\", \"target_modules\": \".*wte\", \"r\": 4, \"lora_alpha\": 6}").lora;
  assert_true(l.embedding && targets_of(&l) == 0 && hri_lora_embedding_scale(&l) == 1.5);
  l = opened(LLAMA, "{\"peft_type\": \"LORA\", \"target_modules\": [\"embed_tokens\", \"q_proj\"], "
                    "\"layers_to_transform\": [0]}")
          .lora;
  assert_true(!l.embedding && targets_of(&l) == Q);
  /* Other modules in one layer than in another. */
  l = opened(LLAMA, "{\"peft_type\": \"LORA\", \"target_modules\": [\"layers.0.mlp.up_proj\", "
                    "\"layers.1.mlp.down_proj\"]}")
          .lora;
  assert_true(l.modules[0] == UP && l.modules[1] == DOWN && l.modules[2] == 0);
  /* Names of other families in the list mean nothing; some, and all that an expression matches, are excluded. */
  l = opened(
          LLAMA,
          "{\"peft_type\": \"LORA\", \"target_modules\": [\"query_key_value\", \"q_proj\", \"up_proj\", \"down_proj\"], "
          "\"exclude_modules\": [\"layers.1.self_attn.q_proj\", \"proj\", \"mlp.up_proj\"]}")
          .lora;
  assert_true(l.modules[0] == (Q | DOWN) && l.modules[1] == DOWN && l.modules[2] == (Q | DOWN));
  l = opened(
          LLAMA,
          "{\"peft_type\": \"LORA\", \"target_modules\": \".*(q|up)_proj\", \"exclude_modules\": \".*\\\\.[02]\\\\..*q_proj|q_proj\"}")
          .lora;
  assert_true(l.modules[0] == UP && l.modules[1] == (Q | UP) && l.modules[2] == UP);
  /* A whole path counts whatever layers_to_transform says, an end of one does not. */
  l = opened(
          LLAMA,
          "{\"peft_type\": \"LORA\", \"target_modules\": [\"model.layers.1.mlp.up_proj\", \"layers.2.mlp.up_proj\", \"q_proj\"], "
          "\"layers_to_transform\": [0]}")
          .lora;
  assert_true(l.modules[0] == Q && l.modules[1] == UP && l.modules[2] == 0);
  /* What PEFT makes of all-linear in a list: paths, one per layer. */
  l = opened(GPT2, "{\"peft_type\": \"LORA\", \"fan_in_fan_out\": true, \"target_modules\": "
                   "[\"transformer.h.0.attn.c_attn\", \"transformer.h.2.attn.c_attn\", \"h.2.mlp.c_fc\", "
                   "\"h.0.mlp.c_fc\"]}")
          .lora;
  assert_int_equal(targets_of(&l), Q | GATE);
  assert_int_equal(layers_of(&l), 5);
}

#define OF(rest) "{\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\"]" rest "}"

static void refused_configs(void **state) {
  static const struct {
    const char *text;
    hr_status status;
    const char *field;
  } bad[] = {
      {OF(", \"use_qalora\": true"), HR_ERROR_UNSUPPORTED, "'use_qalora'"},
      {OF(", \"lora_bias\": true"), HR_ERROR_UNSUPPORTED, "'lora_bias'"},
      {OF(", \"modules_to_save\": [\"score\"]"), HR_ERROR_INPUT, "modules_to_save"},
      {OF(", \"modules_to_save\": \"lm_head\""), HR_ERROR_INPUT, "modules_to_save"},
      {OF(", \"rank_pattern\": {\"q_proj\": 0}"), HR_ERROR_INPUT, "rank_pattern"},
      {OF(", \"rank_pattern\": {\"q_proj\": 2.5}"), HR_ERROR_INPUT, "rank_pattern"},
      {OF(", \"rank_pattern\": {\"q_(proj\": 2}"), HR_ERROR_INPUT, "'rank_pattern'"},
      {OF(", \"rank_pattern\": [4]"), HR_ERROR_INPUT, "rank_pattern"},
      {OF(", \"alpha_pattern\": {\"q_proj\": \"2\"}"), HR_ERROR_INPUT, "alpha_pattern"},
      {OF(", \"exclude_modules\": \".*(q_proj\""), HR_ERROR_INPUT, "'exclude_modules'"},
      {OF(", \"exclude_modules\": {\"q_proj\": 1}"), HR_ERROR_INPUT, "'exclude_modules'"},
      {OF(", \"exclude_modules\": [1]"), HR_ERROR_INPUT, "exclude_modules[0]"},
      {OF(", \"exclude_modules\": [\"self_attn.q_proj\"]"), HR_ERROR_INPUT, "exclude_modules name no module"},
      {OF(", \"layer_replication\": [[0, 2]]"), HR_ERROR_UNSUPPORTED, "'layer_replication'"},
      {OF(", \"trainable_token_indices\": [3]"), HR_ERROR_UNSUPPORTED, "'trainable_token_indices'"},
      {OF(", \"target_parameters\": [\"x\"]"), HR_ERROR_UNSUPPORTED, "'target_parameters'"},
      {OF(", \"alora_invocation_tokens\": [1]"), HR_ERROR_UNSUPPORTED, "'alora_invocation_tokens'"},
      {OF(", \"kasa_config\": {\"beta\": 1}"), HR_ERROR_UNSUPPORTED, "'kasa_config'"},
      {OF(", \"bias\": \"boft_only\""), HR_ERROR_INPUT, "'bias'"},
      {OF(", \"init_lora_weights\": \"pissa_niter_4\""), HR_ERROR_UNSUPPORTED, "'init_lora_weights'"},
      {OF(", \"init_lora_weights\": \"olora\""), HR_ERROR_UNSUPPORTED, "'init_lora_weights'"},
      {OF(", \"r\": 0"), HR_ERROR_INPUT, "'r'"},
      {OF(", \"r\": \"8\""), HR_ERROR_INPUT, "'r'"},
      {OF(", \"lora_alpha\": \"8\""), HR_ERROR_INPUT, "'lora_alpha'"},
      {OF(", \"lora_alpha\": 0"), HR_ERROR_INPUT, "lora_alpha"},
      {OF(", \"lora_dropout\": 1"), HR_ERROR_INPUT, "lora_dropout"},
      {OF(", \"use_rslora\": 1"), HR_ERROR_INPUT, "'use_rslora'"},
      {OF(", \"layers_to_transform\": [3]"), HR_ERROR_INPUT, "layers_to_transform"},
      {OF(", \"layers_to_transform\": -1"), HR_ERROR_INPUT, "layers_to_transform"},
      {OF(", \"layers_to_transform\": [\"0\"]"), HR_ERROR_INPUT, "layers_to_transform"},
      {"{\"peft_type\": \"LOHA\", \"target_modules\": [\"q_proj\"]}", HR_ERROR_UNSUPPORTED, "'peft_type'"},
      {"{\"target_modules\": [\"q_proj\"]}", HR_ERROR_INPUT, "'peft_type'"},
      {"{\"peft_type\": \"LORA\"}", HR_ERROR_INPUT, "'target_modules'"},
      {"{\"peft_type\": \"LORA\", \"target_modules\": []}", HR_ERROR_INPUT, "'target_modules'"},
      {"{\"peft_type\": \"LORA\", \"target_modules\": [\"lm_head\"]}", HR_ERROR_INPUT, "target_modules"},
      {"{\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\", \"lm_head\"]}", HR_ERROR_INPUT, "target_modules"},
      {"{\"peft_type\": \"LORA\", \"target_modules\": [7]}", HR_ERROR_INPUT, "target_modules"},
      {"{\"peft_type\": \"LORA\", \"target_modules\": \".*\\\\.(q|v_proj\"}", HR_ERROR_INPUT, "target_modules"},
      {"{\"peft_type\": \"LORA\", \"target_modules\": \"q_proj\"}", HR_ERROR_INPUT, "target_modules"},
      {"{\"peft_type\": \"LORA\", \"target_modules\": \".*q_proj\", \"layers_to_transform\": [1]}", HR_ERROR_INPUT,
       "layers_to_transform"},
      {"{\"peft_type\": \"LORA\", \"target_modules\": [\"layers.0.mlp.up_proj\"], \"layers_to_transform\": [1]}",
       HR_ERROR_INPUT, "layers_to_transform"},
      {"[]", HR_ERROR_INPUT, "adapter_config.json"},
      {"{", HR_ERROR_INPUT, "adapter_config.json"},
      {"", HR_ERROR_INPUT, "adapter_config.json"},
  };
  (void)state;
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
    hr_model m = model_of(LLAMA);
    hr_error error = {0};
    hr_status status = hri_adapter_open(put_config(bad[k].text), &m, &error);
    if (status != bad[k].status) fail_msg("%s: status %d, %s", bad[k].text, (int)status, error.message);
    assert_int_equal(m.lora.rank, 0);
    if (!strstr(error.message, "adapter_config.json") || !strstr(error.message, bad[k].field) || !error.hint[0])
      fail_msg("%s: file, %s and a remedy are not all in: %s (%s)", bad[k].text, bad[k].field, error.message,
               error.hint);
  }
}

/* What is written is read as the same thing, by this reader; by PEFT's it is in tests/parity/check_peft.py. */
static void written_is_read(void **state) {
  static const struct {
    const char *source, *words;
  } all[] = {{LLAMA, "r=2,alpha=3.5,rslora"},
             {LLAMA, "targets=all-linear,layers=0,2,init=gaussian,dropout=0.125"},
             {GPT2, "targets=attn.c_proj,c_fc"},
             {GPT2, "targets=c_proj"},
             {PHI3, "targets=qkv_proj"},
             {GEMMA2, "r=1,layers=1"},
             {LLAMA, "dora,bias=lora_only,modules_to_save=lm_head,embed_tokens,model.norm"},
             {GPT2, "bias=all,modules_to_save=ln_1,ln_f,wpe"},
             {LLAMA, "targets=.*0.mlp.up_proj,.*1.mlp.down_proj,rank_pattern=up_proj:3"},
             {GPT2, "targets=all-linear,r=4,rank_pattern=c_proj:2,h.1.*:3,alpha_pattern=mlp.c_proj:1.5"}};
  (void)state;
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
    hr_model m = model_of(all[k].source), again;
    hri_text text = {0};
    m.lora = parsed(all[k].source, all[k].words);
    hri_adapter_text(&m, "somewhere", &text);
    again = opened(all[k].source, hri_text_get(&text));
    again.lora.gaussian = m.lora.gaussian; /* how it began is not asked for when it goes on */
    assert_memory_equal(&again.lora, &m.lora, sizeof m.lora);
    hri_text_deinit(&text);
  }
}

/* ---- files of adapters ---- */

/* What is wrong with a file. */
typedef struct damage {
  const char *name; /* the tensor that it is about; NULL: one more, `says` */
  enum { LACKING, RANK, TYPE, NAN_VALUE, EXTRA, OTHER_MODEL, HALF } kind;
  const char *says;
} damage;

static hri_safetensor listed_tensor(const hri_param_spec *spec, const hri_param_part *part) {
  return (hri_safetensor){.name = part->name,
                          .dtype = HRI_FILE_F32,
                          .rank = spec->rank,
                          .shape = {part->rows, spec->dims[1]}};
}

/* A directory with the adapters of `m`, with the damage (may be NULL). */
static const char *put_adapter(const hr_model *m, const char *config, const damage *d) {
  const char *directory = put_config(config);
  static hri_param_spec specs[80];
  static char names[80][96];
  hri_safetensor list[80];
  uint32_t count = 0, wrong = UINT32_MAX;
  hri_safetensors_writer *writer;
  hri_file_list files = {0};
  hr_error error = {0};
  static float zeros[4096];
  for (uint32_t p = 0; p < hri_param_count(m); p++) {
    hri_param_spec *spec = &specs[p];
    hri_param_get(m, p, spec);
    for (uint32_t k = 0; k < spec->part_count; k++) {
      hri_safetensor t = listed_tensor(spec, &spec->parts[k]);
      bool meant;
      if (!hri_part_tuned(m, spec, &spec->parts[k], names[count])) continue;
      t.name = names[count];
      meant = d && d->name && strcmp(d->name, t.name) == 0;
      if (meant && d->kind == LACKING) continue;
      if (meant && d->kind == RANK) t.shape[t.rank == 1 || strstr(t.name, "lora_A") ? 0 : 1]++;
      if (meant && d->kind == TYPE) t.dtype = HRI_FILE_I32;
      if (d && d->kind == HALF) t.dtype = HRI_FILE_F16;
      if (meant) wrong = count;
      list[count++] = t;
    }
  }
  if (d && d->kind == EXTRA)
    list[count++] = (hri_safetensor){.name = d->says, .dtype = HRI_FILE_F32, .rank = 1, .shape = {4}};
  if (hri_safetensors_writer_open(path_of("%s/adapter_model.safetensors", directory), list, count, NULL, 0, &writer,
                                  &error) != HR_OK)
    fail_msg("%s", error.message);
  for (uint32_t t = 0; t < count; t++) {
    uint64_t bytes =
        list[t].shape[0] * (list[t].rank == 2 ? list[t].shape[1] : 1) * (list[t].dtype == HRI_FILE_F16 ? 2 : 4);
    float bad[2] = {0, NAN};
    assert_true(bytes <= sizeof zeros);
    assert_int_equal(hri_safetensors_writer_write(writer, t, 0, zeros, bytes - sizeof bad, &error), HR_OK);
    assert_int_equal(hri_safetensors_writer_write(writer, t, bytes - sizeof bad,
                                                  t == wrong && d->kind == NAN_VALUE ? bad : zeros, sizeof bad, &error),
                     HR_OK);
  }
  assert_int_equal(hri_safetensors_writer_finish(writer, &files, &error), HR_OK);
  hri_array_free(&files);
  return directory;
}

static hr_status train_with(const hr_model *model, const char *adapter, hr_error *error) {
  static int count;
  const char *out = path_of("%s/run-%d", work, count++);
  hr_run_options options;
  hr_run_result result;
  hr_status status;
  hr_job job;
  hr_job_init(&job);
  hr_run_options_init(&options);
  job.model = *model;
  job.adapter = adapter;
  job.sequence_length = 8;
  job.steps = 1;
  job.threads = 1;
  assert_int_equal(hr_device_find("cpu", &job.device, error), HR_OK);
  options.data_paths = &data;
  options.data_path_count = 1;
  options.out_directory = out;
  status = hr_job_finish(&job, error);
  if (status == HR_OK) status = hr_train(&job, &options, &result, error);
  if (status != HR_OK && exists(path_of("%s/final", out))) fail_msg("a refused run made %s/final", out);
  return status;
}

#define CONFIG "{\"peft_type\": \"LORA\", \"r\": 2, \"target_modules\": [\"q_proj\", \"v_proj\"]}"

static void damaged_files(void **state) {
  static const damage bad[] = {
      {L1("self_attn.v_proj.lora_B"), LACKING, "missing"},
      {L1("self_attn.q_proj.lora_A"), LACKING, "missing"},
      {L1("self_attn.q_proj.lora_A"), RANK, "[3, 12]"},
      {L1("self_attn.v_proj.lora_B"), RANK, "[6, 3]"},
      {L1("self_attn.v_proj.lora_B"), TYPE, "I32"},
      {L1("self_attn.q_proj.lora_B"), NAN_VALUE, "finite"},
      {NULL, EXTRA, L1("self_attn.o_proj.lora_A")},
      {NULL, EXTRA, "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight"},
      {NULL, EXTRA, "base_model.model.lm_head.weight"},
      {NULL, EXTRA, L1("self_attn.q_proj.lora_magnitude_vector")},
      {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", OTHER_MODEL, "has shape [2, 12]"},
  };
  hr_model m = model_of(LLAMA), base = m;
  hr_error error = {0};
  (void)state;
  m.lora = parsed(LLAMA, "r=2");
  if (train_with(&base, put_adapter(&m, CONFIG, NULL), &error) != HR_OK) fail_msg("%s", error.message);
  if (train_with(&base, put_adapter(&m, CONFIG, &(damage){.kind = HALF}), &error) != HR_OK)
    fail_msg("%s", error.message);
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
    const char *directory = put_adapter(&m, CONFIG, &bad[k]);
    hr_model other = bad[k].kind == OTHER_MODEL
                         ? model_of("custom:family=llama,layers=3,hidden=16,heads=2,kv-heads=1,mlp=10,vocab=257")
                         : base;
    hr_error e = {0};
    hr_status status = train_with(&other, directory, &e);
    if (status != HR_ERROR_INPUT) fail_msg("case %zu: status %d: %s", k, (int)status, e.message);
    if (!strstr(e.message, "adapter_model.safetensors") || (bad[k].name && !strstr(e.message, bad[k].name)) ||
        !strstr(e.message, bad[k].says))
      fail_msg("case %zu: not all of file, tensor and '%s' in: %s", k, bad[k].says, e.message);
    if (!e.hint[0]) fail_msg("case %zu: no remedy beside: %s", k, e.message);
  }
}

#define WHOLE                                                                                                                   \
  "{\"peft_type\": \"LORA\", \"r\": 2, \"target_modules\": [\"q_proj\", \"v_proj\"], \"use_dora\": true, \"modules_to_save\": " \
  "[\"norm\"]}"

/* Magnitudes and whole modules. */
static void damaged_magnitudes(void **state) {
  static const damage bad[] = {
      {L1("self_attn.q_proj.lora_B"), LACKING, "missing"},
      {"base_model.model.model.layers.1.self_attn.v_proj.lora_magnitude_vector", LACKING, "missing"},
      {"base_model.model.model.layers.1.self_attn.v_proj.lora_magnitude_vector", RANK, "[7]"},
      {"base_model.model.model.layers.1.self_attn.q_proj.lora_magnitude_vector", NAN_VALUE, "finite"},
      {L1("input_layernorm"), LACKING, "missing"},
      {"base_model.model.model.norm.weight", RANK, "[13]"},
      {NULL, EXTRA, "base_model.model.model.layers.1.self_attn.o_proj.lora_magnitude_vector"},
      {NULL, EXTRA, "base_model.model.model.embed_tokens.weight"},
  };
  hr_model m = model_of(LLAMA), base = m;
  hr_error error = {0};
  (void)state;
  m.lora = parsed(LLAMA, "r=2,dora,modules_to_save=norm");
  if (train_with(&base, put_adapter(&m, WHOLE, NULL), &error) != HR_OK) fail_msg("%s", error.message);
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
    hr_error e = {0};
    hr_status status = train_with(&base, put_adapter(&m, WHOLE, &bad[k]), &e);
    if (status != HR_ERROR_INPUT || !strstr(e.message, "adapter_model.safetensors") ||
        !strstr(e.message, bad[k].says) || (bad[k].name && !strstr(e.message, bad[k].name)) || !e.hint[0])
      fail_msg("case %zu: status %d: %s (%s)", k, (int)status, e.message, e.hint);
  }
}

/* The directory itself. */
static void damaged_directories(void **state) {
  hr_model base = model_of(LLAMA), m;
  hr_error e = {0};
  const char *directory = put_config(CONFIG);
  (void)state;
  assert_int_equal(train_with(&base, directory, &e), HR_ERROR_INPUT); /* settings, and no weights */
  assert_non_null(strstr(e.message, "adapter_model.safetensors"));
  assert_int_equal(train_with(&base, path_of("%s/nosuch", work), &e), HR_ERROR_INPUT);
  assert_non_null(strstr(e.message, "adapter_config.json"));
  /* Named as a model, it must say whose it is. */
  assert_int_equal(hr_model_open(directory, &m, &e), HR_ERROR_INPUT);
  assert_non_null(strstr(e.hint, "--adapter"));
  directory = put_config("{\"peft_type\": \"LORA\", \"base_model_name_or_path\": \"someone/somewhere\"}");
  assert_int_equal(hr_model_open(directory, &m, &e), HR_ERROR_INPUT);
  assert_non_null(strstr(e.message, "someone/somewhere"));
  assert_non_null(strstr(e.hint, "--adapter"));
}

/* --lora beside adapters that there are. */
static void new_beside_old(void **state) {
  hr_model m = model_of(LLAMA);
  hr_error e = {0};
  hr_job job;
  (void)state;
  m.lora = parsed(LLAMA, "r=2");
  hr_job_init(&job);
  job.model = model_of(LLAMA);
  job.adapter = put_adapter(&m, CONFIG, NULL);
  job.lora = "r=4";
  assert_int_equal(hr_device_find("cpu", &job.device, &e), HR_OK);
  assert_int_equal(hr_job_finish(&job, &e), HR_ERROR_USAGE);
  assert_non_null(strstr(e.message, "--lora"));
  job.adapter = NULL;
  job.lora = "r=4,dora,dropout=0.1";
  assert_int_equal(hr_job_finish(&job, &e), HR_ERROR_USAGE);
  assert_non_null(strstr(e.message, "dora"));
  assert_non_null(strstr(e.message, "second time"));
}

static int set_up(void **state) {
  (void)state;
  work = scratch_make("lora");
  data = strdup(path_of("%s/data.txt", work));
  put_words(data, 2000, 1);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  scratch_remove(work);
  free((void *)(uintptr_t)data);
  return 0;
}

/* A model without adapters is asked for their scale too: nothing is divided by nothing there, which a host may trap. */
static void no_adapters(void **state) {
  const hr_lora none = {0};
  (void)state;
  (void)feclearexcept(FE_ALL_EXCEPT);
  assert_true(hri_lora_scale(&none, 0, HR_MODULE_Q) == 0 && hri_lora_embedding_scale(&none) == 0);
  assert_int_equal(fetestexcept(FE_INVALID | FE_DIVBYZERO), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_adapters),    cmocka_unit_test(every_word),         cmocka_unit_test(words_of_peft),
      cmocka_unit_test(tuned_names),    cmocka_unit_test(every_refusal),      cmocka_unit_test(parameters),
      cmocka_unit_test(published),      cmocka_unit_test(refused_configs),    cmocka_unit_test(written_is_read),
      cmocka_unit_test(damaged_files),  cmocka_unit_test(damaged_magnitudes), cmocka_unit_test(damaged_directories),
      cmocka_unit_test(new_beside_old),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
