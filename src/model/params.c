#include "model/params.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/family.h"

/* ---- tables ---- */

typedef enum place { PLACE_EMBED = 0, PLACE_LAYER, PLACE_HEAD } place;

/* In the order of execution; our names are stable, checkpoints depend on them. */
static const struct {
  const char *name;
  place place;
} slots[HRI_SLOT_COUNT] = {
    [HRI_SLOT_TOKEN_EMBEDDING] = {"token_embedding.weight", PLACE_EMBED},
    [HRI_SLOT_POSITION_EMBEDDING] = {"position_embedding.weight", PLACE_EMBED},
    [HRI_SLOT_NORM1_WEIGHT] = {"norm1.weight", PLACE_LAYER},
    [HRI_SLOT_NORM1_BIAS] = {"norm1.bias", PLACE_LAYER},
    [HRI_SLOT_QKV_WEIGHT] = {"qkv.weight", PLACE_LAYER},
    [HRI_SLOT_QKV_BIAS] = {"qkv.bias", PLACE_LAYER},
    [HRI_SLOT_Q_NORM_WEIGHT] = {"q_norm.weight", PLACE_LAYER},
    [HRI_SLOT_K_NORM_WEIGHT] = {"k_norm.weight", PLACE_LAYER},
    [HRI_SLOT_ATTENTION_OUTPUT_WEIGHT] = {"attention_output.weight", PLACE_LAYER},
    [HRI_SLOT_ATTENTION_OUTPUT_BIAS] = {"attention_output.bias", PLACE_LAYER},
    [HRI_SLOT_POST_NORM1_WEIGHT] = {"post_norm1.weight", PLACE_LAYER},
    [HRI_SLOT_NORM2_WEIGHT] = {"norm2.weight", PLACE_LAYER},
    [HRI_SLOT_NORM2_BIAS] = {"norm2.bias", PLACE_LAYER},
    [HRI_SLOT_MLP_IN_WEIGHT] = {"mlp_in.weight", PLACE_LAYER},
    [HRI_SLOT_MLP_IN_BIAS] = {"mlp_in.bias", PLACE_LAYER},
    [HRI_SLOT_MLP_OUT_WEIGHT] = {"mlp_out.weight", PLACE_LAYER},
    [HRI_SLOT_MLP_OUT_BIAS] = {"mlp_out.bias", PLACE_LAYER},
    [HRI_SLOT_POST_NORM2_WEIGHT] = {"post_norm2.weight", PLACE_LAYER},
    [HRI_SLOT_FINAL_NORM_WEIGHT] = {"final_norm.weight", PLACE_HEAD},
    [HRI_SLOT_FINAL_NORM_BIAS] = {"final_norm.bias", PLACE_HEAD},
    [HRI_SLOT_HEAD_WEIGHT] = {"head.weight", PLACE_HEAD},
    [HRI_SLOT_HEAD_BIAS] = {"head.bias", PLACE_HEAD},
    [HRI_SLOT_LORA_A + HR_MODULE_Q] = {"q.lora_A", PLACE_LAYER},
    [HRI_SLOT_LORA_A + HR_MODULE_K] = {"k.lora_A", PLACE_LAYER},
    [HRI_SLOT_LORA_A + HR_MODULE_V] = {"v.lora_A", PLACE_LAYER},
    [HRI_SLOT_LORA_A + HR_MODULE_ATTENTION_OUTPUT] = {"o.lora_A", PLACE_LAYER},
    [HRI_SLOT_LORA_A + HR_MODULE_MLP_GATE] = {"gate.lora_A", PLACE_LAYER},
    [HRI_SLOT_LORA_A + HR_MODULE_MLP_UP] = {"up.lora_A", PLACE_LAYER},
    [HRI_SLOT_LORA_A + HR_MODULE_MLP_DOWN] = {"down.lora_A", PLACE_LAYER},
    [HRI_SLOT_LORA_B + HR_MODULE_Q] = {"q.lora_B", PLACE_LAYER},
    [HRI_SLOT_LORA_B + HR_MODULE_K] = {"k.lora_B", PLACE_LAYER},
    [HRI_SLOT_LORA_B + HR_MODULE_V] = {"v.lora_B", PLACE_LAYER},
    [HRI_SLOT_LORA_B + HR_MODULE_ATTENTION_OUTPUT] = {"o.lora_B", PLACE_LAYER},
    [HRI_SLOT_LORA_B + HR_MODULE_MLP_GATE] = {"gate.lora_B", PLACE_LAYER},
    [HRI_SLOT_LORA_B + HR_MODULE_MLP_UP] = {"up.lora_B", PLACE_LAYER},
    [HRI_SLOT_LORA_B + HR_MODULE_MLP_DOWN] = {"down.lora_B", PLACE_LAYER},
    [HRI_SLOT_LORA_M + HR_MODULE_Q] = {"q.lora_magnitude", PLACE_LAYER},
    [HRI_SLOT_LORA_M + HR_MODULE_K] = {"k.lora_magnitude", PLACE_LAYER},
    [HRI_SLOT_LORA_M + HR_MODULE_V] = {"v.lora_magnitude", PLACE_LAYER},
    [HRI_SLOT_LORA_M + HR_MODULE_ATTENTION_OUTPUT] = {"o.lora_magnitude", PLACE_LAYER},
    [HRI_SLOT_LORA_M + HR_MODULE_MLP_GATE] = {"gate.lora_magnitude", PLACE_LAYER},
    [HRI_SLOT_LORA_M + HR_MODULE_MLP_UP] = {"up.lora_magnitude", PLACE_LAYER},
    [HRI_SLOT_LORA_M + HR_MODULE_MLP_DOWN] = {"down.lora_magnitude", PLACE_LAYER},
    [HRI_SLOT_LORA_EMBED_A] = {"token_embedding.lora_A", PLACE_EMBED},
    [HRI_SLOT_LORA_EMBED_B] = {"token_embedding.lora_B", PLACE_EMBED},
};

static const struct {
  hri_slot slot;
  uint32_t part;
} modules[HR_MODULE_COUNT] = {
    [HR_MODULE_Q] = {HRI_SLOT_QKV_WEIGHT, 0},
    [HR_MODULE_K] = {HRI_SLOT_QKV_WEIGHT, 1},
    [HR_MODULE_V] = {HRI_SLOT_QKV_WEIGHT, 2},
    [HR_MODULE_ATTENTION_OUTPUT] = {HRI_SLOT_ATTENTION_OUTPUT_WEIGHT, 0},
    [HR_MODULE_MLP_GATE] = {HRI_SLOT_MLP_IN_WEIGHT, 0},
    [HR_MODULE_MLP_UP] = {HRI_SLOT_MLP_IN_WEIGHT, 1},
    [HR_MODULE_MLP_DOWN] = {HRI_SLOT_MLP_OUT_WEIGHT, 0},
};

/* The Hugging Face side of a slot: full names, or inside of a layer what follows layer_prefix and its number. */
typedef struct hf_slot {
  const char *parts[HRI_PARAM_PARTS];
  bool transposed; /* Conv1D holds [in, out] (transformers pytorch_utils.py) */
} hf_slot;

typedef struct hf_layout {
  const char *prefix, *layer_prefix;
  hf_slot slots[HRI_SLOT_COUNT];
} hf_layout;

/* What llama and most others share; a slot that a model lacks is never asked for. */
/* clang-format off */
#define LLAMA_TABLES                                                     \
  [HRI_SLOT_TOKEN_EMBEDDING] = {{"model.embed_tokens.weight"}, false},   \
  [HRI_SLOT_HEAD_WEIGHT] = {{"lm_head.weight"}, false}
#define LLAMA_OUTSIDE                                                    \
  LLAMA_TABLES, [HRI_SLOT_FINAL_NORM_WEIGHT] = {{"model.norm.weight"}, false}
#define LLAMA_QKV                                                                                                             \
  [HRI_SLOT_NORM1_WEIGHT] = {{"input_layernorm.weight"}, false},                                                              \
  [HRI_SLOT_QKV_WEIGHT] = {{"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}, false},         \
  [HRI_SLOT_QKV_BIAS] = {{"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}, false},                 \
  [HRI_SLOT_Q_NORM_WEIGHT] = {{"self_attn.q_norm.weight"}, false},                                                            \
  [HRI_SLOT_K_NORM_WEIGHT] = {{"self_attn.k_norm.weight"}, false}
#define LLAMA_ATTENTION                                                                                                       \
  LLAMA_QKV,                                                                                                                  \
  [HRI_SLOT_ATTENTION_OUTPUT_WEIGHT] = {{"self_attn.o_proj.weight"}, false},                                                  \
  [HRI_SLOT_ATTENTION_OUTPUT_BIAS] = {{"self_attn.o_proj.bias"}, false}
#define LLAMA_MLP                                                                         \
  [HRI_SLOT_MLP_IN_WEIGHT] = {{"mlp.gate_proj.weight", "mlp.up_proj.weight"}, false},     \
  [HRI_SLOT_MLP_IN_BIAS] = {{"mlp.gate_proj.bias", "mlp.up_proj.bias"}, false},           \
  [HRI_SLOT_MLP_OUT_WEIGHT] = {{"mlp.down_proj.weight"}, false},                          \
  [HRI_SLOT_MLP_OUT_BIAS] = {{"mlp.down_proj.bias"}, false}

enum { LAYOUT_GPT2 = 0, LAYOUT_LLAMA, LAYOUT_PHI3, LAYOUT_POST_NORMS, LAYOUT_PHI, LAYOUT_COUNT };

static const hf_layout layouts[LAYOUT_COUNT] = {
    [LAYOUT_GPT2] = {"transformer.", "transformer.h.", {
        [HRI_SLOT_TOKEN_EMBEDDING] = {{"transformer.wte.weight"}, false},
        [HRI_SLOT_POSITION_EMBEDDING] = {{"transformer.wpe.weight"}, false},
        [HRI_SLOT_NORM1_WEIGHT] = {{"ln_1.weight"}, false},
        [HRI_SLOT_NORM1_BIAS] = {{"ln_1.bias"}, false},
        [HRI_SLOT_QKV_WEIGHT] = {{"attn.c_attn.weight"}, true},
        [HRI_SLOT_QKV_BIAS] = {{"attn.c_attn.bias"}, false},
        [HRI_SLOT_ATTENTION_OUTPUT_WEIGHT] = {{"attn.c_proj.weight"}, true},
        [HRI_SLOT_ATTENTION_OUTPUT_BIAS] = {{"attn.c_proj.bias"}, false},
        [HRI_SLOT_NORM2_WEIGHT] = {{"ln_2.weight"}, false},
        [HRI_SLOT_NORM2_BIAS] = {{"ln_2.bias"}, false},
        [HRI_SLOT_MLP_IN_WEIGHT] = {{"mlp.c_fc.weight"}, true},
        [HRI_SLOT_MLP_IN_BIAS] = {{"mlp.c_fc.bias"}, false},
        [HRI_SLOT_MLP_OUT_WEIGHT] = {{"mlp.c_proj.weight"}, true},
        [HRI_SLOT_MLP_OUT_BIAS] = {{"mlp.c_proj.bias"}, false},
        [HRI_SLOT_FINAL_NORM_WEIGHT] = {{"transformer.ln_f.weight"}, false},
        [HRI_SLOT_FINAL_NORM_BIAS] = {{"transformer.ln_f.bias"}, false},
        [HRI_SLOT_HEAD_WEIGHT] = {{"lm_head.weight"}, false},
    }},
    [LAYOUT_LLAMA] = {"model.", "model.layers.", {
        LLAMA_OUTSIDE, LLAMA_ATTENTION, LLAMA_MLP,
        [HRI_SLOT_NORM2_WEIGHT] = {{"post_attention_layernorm.weight"}, false},
        [HRI_SLOT_NORM1_BIAS] = {{"input_layernorm.bias"}, false}, /* stablelm has layer norms */
        [HRI_SLOT_NORM2_BIAS] = {{"post_attention_layernorm.bias"}, false},
        [HRI_SLOT_FINAL_NORM_BIAS] = {{"model.norm.bias"}, false},
    }},
    [LAYOUT_PHI3] = {"model.", "model.layers.", {
        LLAMA_OUTSIDE,
        [HRI_SLOT_NORM1_WEIGHT] = {{"input_layernorm.weight"}, false},
        [HRI_SLOT_QKV_WEIGHT] = {{"self_attn.qkv_proj.weight"}, false},
        [HRI_SLOT_ATTENTION_OUTPUT_WEIGHT] = {{"self_attn.o_proj.weight"}, false},
        [HRI_SLOT_NORM2_WEIGHT] = {{"post_attention_layernorm.weight"}, false},
        [HRI_SLOT_MLP_IN_WEIGHT] = {{"mlp.gate_up_proj.weight"}, false},
        [HRI_SLOT_MLP_OUT_WEIGHT] = {{"mlp.down_proj.weight"}, false},
    }},
    [LAYOUT_POST_NORMS] = {"model.", "model.layers.", {
        LLAMA_OUTSIDE, LLAMA_ATTENTION, LLAMA_MLP,
        [HRI_SLOT_POST_NORM1_WEIGHT] = {{"post_attention_layernorm.weight"}, false},
        [HRI_SLOT_NORM2_WEIGHT] = {{"pre_feedforward_layernorm.weight"}, false},
        [HRI_SLOT_POST_NORM2_WEIGHT] = {{"post_feedforward_layernorm.weight"}, false},
    }},
    [LAYOUT_PHI] = {"model.", "model.layers.", {
        LLAMA_TABLES, LLAMA_QKV,
        [HRI_SLOT_NORM1_BIAS] = {{"input_layernorm.bias"}, false},
        [HRI_SLOT_ATTENTION_OUTPUT_WEIGHT] = {{"self_attn.dense.weight"}, false},
        [HRI_SLOT_ATTENTION_OUTPUT_BIAS] = {{"self_attn.dense.bias"}, false},
        [HRI_SLOT_MLP_IN_WEIGHT] = {{"mlp.fc1.weight"}, false},
        [HRI_SLOT_MLP_IN_BIAS] = {{"mlp.fc1.bias"}, false},
        [HRI_SLOT_MLP_OUT_WEIGHT] = {{"mlp.fc2.weight"}, false},
        [HRI_SLOT_MLP_OUT_BIAS] = {{"mlp.fc2.bias"}, false},
        [HRI_SLOT_FINAL_NORM_WEIGHT] = {{"model.final_layernorm.weight"}, false},
        [HRI_SLOT_FINAL_NORM_BIAS] = {{"model.final_layernorm.bias"}, false},
        [HRI_SLOT_HEAD_BIAS] = {{"lm_head.bias"}, false},
    }},
};
/* clang-format on */

static const hf_layout *layout_of(const hr_model *m) {
  static const uint8_t of[HR_FAMILY_COUNT] =
      {[HR_FAMILY_GPT2] = LAYOUT_GPT2,         [HR_FAMILY_LLAMA] = LAYOUT_LLAMA,
       [HR_FAMILY_MISTRAL] = LAYOUT_LLAMA,     [HR_FAMILY_QWEN2] = LAYOUT_LLAMA,
       [HR_FAMILY_QWEN3] = LAYOUT_LLAMA,       [HR_FAMILY_PHI3] = LAYOUT_PHI3,
       [HR_FAMILY_GEMMA2] = LAYOUT_POST_NORMS, [HR_FAMILY_GEMMA3] = LAYOUT_POST_NORMS,
       [HR_FAMILY_GEMMA] = LAYOUT_LLAMA,       [HR_FAMILY_SMOLLM3] = LAYOUT_LLAMA,
       [HR_FAMILY_GRANITE] = LAYOUT_LLAMA,     [HR_FAMILY_OLMO2] = LAYOUT_POST_NORMS,
       [HR_FAMILY_STABLELM] = LAYOUT_LLAMA,    [HR_FAMILY_PHI] = LAYOUT_PHI};
  return &layouts[of[m->family]];
}

/* ---- modules and their adapters ---- */

hri_slot hri_module_slot(hr_module module, uint32_t *part) {
  if (part) *part = modules[module].part;
  return modules[module].slot;
}

bool hri_part_module(hri_slot slot, uint32_t part, hr_module *module) {
  for (int k = 0; k < HR_MODULE_COUNT; k++)
    if (modules[k].slot == slot && modules[k].part == part) {
      *module = (hr_module)k;
      return true;
    }
  return false;
}

bool hri_module_name(const hr_model *m, hr_module module, int32_t layer, char out[96]) {
  const hf_layout *layout = layout_of(m);
  const char *name = layout->slots[modules[module].slot].parts[modules[module].part];
  int length;
  if (!name) return false;
  length = (int)(strlen(name) - strlen(".weight"));
  if (layer < 0) (void)snprintf(out, 96, "%.*s", length, name);
  else (void)snprintf(out, 96, "%s%d.%.*s", layout->layer_prefix, layer, length, name);
  return true;
}

bool hri_module_is_adapted(const hr_model *m, int32_t layer, hr_module module) {
  return m->lora.rank > 0 && layer >= 0 && (m->lora.modules[layer] >> module & 1);
}

bool hri_param_quantizes(const hr_model *m, const hri_param_spec *spec) {
  for (int k = 0; k < HR_MODULE_COUNT; k++) /* those of one slot are alike (config.c) */
    if (modules[k].slot == spec->slot) return !m->quantization || !(m->plain[spec->layer] >> k & 1);
  return false;
}

hr_module hri_module_first(const hr_model *m, int32_t layer, hr_module module) {
  hr_module first = module;
  while (first > 0 && modules[first - 1].slot == modules[module].slot) first--;
  while (!hri_module_is_adapted(m, layer, first)) first++;
  return first;
}

/* Modules of one product read one x; with dropout each has its own. */
hr_module hri_module_a(const hr_model *m, int32_t layer, hr_module module) {
  const uint8_t *kinds = m->lora.kinds[layer];
  hr_module first = m->lora.dropout == 0 ? hri_module_first(m, layer, module) : module;
  while (!hri_module_is_adapted(m, layer, first) || kinds[first] != kinds[module]) first++;
  return first;
}

uint32_t hri_lora_rank(const hr_lora *lora, int32_t layer, hr_module module) {
  uint8_t kind = lora->kinds[layer][module];
  return kind ? lora->own[kind - 1].rank : lora->rank;
}

static double alpha_of(const hr_lora *lora, uint8_t kind) { return kind ? lora->own[kind - 1].alpha : lora->alpha; }

/* 0 where there are no adapters: nothing is divided by nothing, which a host may have made a trap. */
static double scale_of(const hr_lora *lora, uint8_t kind, double rank) {
  return rank > 0 ? alpha_of(lora, kind) / (lora->rslora ? sqrt(rank) : rank) : 0;
}

double hri_lora_plain_alpha(const hr_lora *lora, int32_t layer, hr_module module) {
  double alpha = alpha_of(lora, lora->kinds[layer][module]);
  return lora->rslora ? alpha * sqrt((double)hri_lora_rank(lora, layer, module)) : alpha;
}

double hri_lora_scale(const hr_lora *lora, int32_t layer, hr_module module) {
  return scale_of(lora, lora->kinds[layer][module], hri_lora_rank(lora, layer, module));
}

uint32_t hri_lora_embedding_rank(const hr_lora *lora) {
  return lora->embedding_kind ? lora->own[lora->embedding_kind - 1].rank : lora->rank;
}

double hri_lora_embedding_scale(const hr_lora *lora) {
  return scale_of(lora, lora->embedding_kind, hri_lora_embedding_rank(lora));
}

void hri_embedding_name(const hr_model *m, char out[96]) {
  const char *name = layout_of(m)->slots[HRI_SLOT_TOKEN_EMBEDDING].parts[0];
  (void)snprintf(out, 96, "%.*s", (int)(strlen(name) - strlen(".weight")), name);
}

bool hri_lora_unties(const hr_model *m) {
  return m->lora.rank > 0 && m->tied_embeddings &&
         (m->lora.saved & (1u << HRI_SLOT_HEAD_WEIGHT | 1u << HRI_SLOT_TOKEN_EMBEDDING));
}

static bool is_a(hri_slot slot) { return slot >= HRI_SLOT_LORA_A && slot < HRI_SLOT_LORA_B; }
static bool is_b(hri_slot slot) { return slot >= HRI_SLOT_LORA_B && slot < HRI_SLOT_LORA_M; }
static bool is_m(hri_slot slot) { return slot >= HRI_SLOT_LORA_M && slot < HRI_SLOT_LORA_EMBED_A; }
static bool is_embed(hri_slot slot) { return slot == HRI_SLOT_LORA_EMBED_A || slot == HRI_SLOT_LORA_EMBED_B; }
static hr_module module_of(hri_slot slot) { return (hr_module)((slot - HRI_SLOT_LORA_A) % HR_MODULE_COUNT); }

static bool adapter_present(const hr_model *m, hri_slot slot, int32_t layer) {
  hr_module module = module_of(slot);
  if (is_embed(slot)) return m->lora.rank > 0 && m->lora.embedding;
  if (!hri_module_is_adapted(m, layer, module)) return false;
  if (is_m(slot)) return m->lora.dora && hri_module_first(m, layer, module) == module;
  return is_b(slot) || hri_module_a(m, layer, module) == module;
}

/* ---- which slots there are, and their shapes ---- */

static bool present(const hr_model *m, hri_slot slot, int32_t layer) {
  if (slot >= HRI_SLOT_LORA_A) return adapter_present(m, slot, layer);
  switch (slot) {
  case HRI_SLOT_POSITION_EMBEDDING: return m->learned_positions;
  case HRI_SLOT_NORM1_WEIGHT: return !m->no_pre_norms;
  case HRI_SLOT_NORM2_WEIGHT: return !m->no_pre_norms && !m->parallel_residual;
  case HRI_SLOT_NORM1_BIAS: return m->norm == HR_NORM_LAYER && !m->no_pre_norms;
  case HRI_SLOT_NORM2_BIAS: return m->norm == HR_NORM_LAYER && !m->no_pre_norms && !m->parallel_residual;
  case HRI_SLOT_FINAL_NORM_BIAS: return m->norm == HR_NORM_LAYER;
  case HRI_SLOT_QKV_BIAS: return m->qkv_bias;
  case HRI_SLOT_Q_NORM_WEIGHT:
  case HRI_SLOT_K_NORM_WEIGHT: return m->qk_norm;
  case HRI_SLOT_POST_NORM1_WEIGHT:
  case HRI_SLOT_POST_NORM2_WEIGHT: return m->post_norms;
  case HRI_SLOT_ATTENTION_OUTPUT_BIAS: return m->attention_output_bias;
  case HRI_SLOT_MLP_IN_BIAS:
  case HRI_SLOT_MLP_OUT_BIAS: return m->mlp_bias;
  case HRI_SLOT_HEAD_WEIGHT: return !m->tied_embeddings || hri_lora_unties(m);
  case HRI_SLOT_HEAD_BIAS: return m->head_bias;
  default: return true;
  }
}

static uint32_t shape(const hr_model *m, hri_slot slot, int32_t layer, uint64_t dims[2]);

uint64_t hri_module_columns(const hr_model *m, hr_module module) {
  uint64_t dims[2];
  (void)shape(m, modules[module].slot, 0, dims);
  return dims[1];
}

static uint64_t module_rows(const hr_model *m, hr_module module) {
  const hf_slot *names = &layout_of(m)->slots[modules[module].slot];
  uint64_t dims[2];
  (void)shape(m, modules[module].slot, 0, dims);
  if (modules[module].slot == HRI_SLOT_QKV_WEIGHT && names->parts[1])
    return (uint64_t)(module == HR_MODULE_Q ? m->head_count : m->kv_head_count) * m->head_size;
  return names->parts[1] ? dims[0] / 2 : dims[0];
}

/* Whether module `k` is a part of the adapter's parameter in `slot`. */
static bool shares(const hr_model *m, hri_slot slot, int32_t layer, hr_module k) {
  hr_module module = module_of(slot);
  if (!hri_module_is_adapted(m, layer, k) || modules[k].slot != modules[module].slot) return false;
  if (is_b(slot)) return k == module;
  return (is_a(slot) ? hri_module_a(m, layer, k) : hri_module_first(m, layer, k)) == module;
}

hr_module hri_param_module(const hr_model *m, const hri_param_spec *spec, uint32_t k) {
  int module = 0;
  assert(spec->adapter && k < spec->part_count);
  while (!shares(m, spec->slot, spec->layer, (hr_module)module) || k-- > 0) module++;
  return (hr_module)module;
}

static uint64_t adapter_rows(const hr_model *m, hri_slot slot, int32_t layer, hr_module k) {
  return is_a(slot) ? hri_lora_rank(&m->lora, layer, k) : module_rows(m, k);
}

static uint32_t adapter_shape(const hr_model *m, hri_slot slot, int32_t layer, uint64_t dims[2]) {
  if (is_embed(slot)) {
    dims[0] = slot == HRI_SLOT_LORA_EMBED_A ? m->vocabulary_size : m->hidden_size;
    dims[1] = hri_lora_embedding_rank(&m->lora);
    return 2;
  }
  (void)shape(m, modules[module_of(slot)].slot, layer, dims);
  dims[0] = 0;
  for (int k = 0; k < HR_MODULE_COUNT; k++)
    if (shares(m, slot, layer, (hr_module)k)) dims[0] += adapter_rows(m, slot, layer, (hr_module)k);
  if (is_b(slot)) dims[1] = hri_lora_rank(&m->lora, layer, module_of(slot));
  if (is_m(slot)) dims[1] = 1;
  return is_m(slot) ? 1 : 2;
}

/* Sets dims to [rows, columns], or [n, 1] for vectors; returns the rank. */
static uint32_t shape(const hr_model *m, hri_slot slot, int32_t layer, uint64_t dims[2]) {
  const uint64_t hidden = m->hidden_size, heads = (uint64_t)m->head_count * m->head_size;
  const uint64_t qkv = heads + 2 * (uint64_t)m->kv_head_count * m->head_size,
                 mlp_in = (m->gated_mlp ? 2 : 1) * (uint64_t)m->mlp_size;
  uint64_t rows = hidden, columns = 0; /* columns 0: a vector */
  if (slot >= HRI_SLOT_LORA_A) return adapter_shape(m, slot, layer, dims);
  switch (slot) {
  case HRI_SLOT_TOKEN_EMBEDDING:
  case HRI_SLOT_HEAD_WEIGHT: rows = m->vocabulary_size, columns = hidden; break;
  case HRI_SLOT_POSITION_EMBEDDING: rows = m->max_positions, columns = hidden; break;
  case HRI_SLOT_QKV_WEIGHT: rows = qkv, columns = hidden; break;
  case HRI_SLOT_QKV_BIAS: rows = qkv; break;
  case HRI_SLOT_Q_NORM_WEIGHT: rows = m->qk_norm_whole ? heads : m->head_size; break;
  case HRI_SLOT_K_NORM_WEIGHT: rows = m->qk_norm_whole ? (qkv - heads) / 2 : m->head_size; break;
  case HRI_SLOT_HEAD_BIAS: rows = m->vocabulary_size; break;
  case HRI_SLOT_ATTENTION_OUTPUT_WEIGHT: columns = heads; break;
  case HRI_SLOT_MLP_IN_WEIGHT: rows = mlp_in, columns = hidden; break;
  case HRI_SLOT_MLP_IN_BIAS: rows = mlp_in; break;
  case HRI_SLOT_MLP_OUT_WEIGHT: columns = m->mlp_size; break;
  default: break; /* norms and output biases: [hidden] */
  }
  dims[0] = rows;
  dims[1] = columns ? columns : 1;
  return columns ? 2 : 1;
}

/* Without adapters, every layer has the same ones. */
static uint32_t count_in(const hr_model *m, place where) {
  uint32_t count = 0;
  for (int s = 0; s < HRI_SLOT_LORA_A; s++) count += slots[s].place == where && present(m, (hri_slot)s, 0);
  return count;
}

/* Adapters of a layer; `before`: of the one before it, which is the same where nothing tells them apart. */
static uint32_t count_adapters(const hr_model *m, uint32_t layer, uint32_t before) {
  const hr_lora *lora = &m->lora;
  uint32_t count = 0;
  if (lora->rank == 0 || lora->modules[layer] == 0) return 0;
  if (layer > 0 && lora->modules[layer] == lora->modules[layer - 1] &&
      memcmp(lora->kinds[layer], lora->kinds[layer - 1], sizeof lora->kinds[layer]) == 0)
    return before;
  for (int s = HRI_SLOT_LORA_A; s < HRI_SLOT_LORA_EMBED_A; s++)
    count += adapter_present(m, (hri_slot)s, (int32_t)layer);
  return count;
}

/* A and B of the embedding, behind the embeddings. */
static uint32_t count_embedded(const hr_model *m) { return adapter_present(m, HRI_SLOT_LORA_EMBED_A, -1) ? 2 : 0; }

/* The index-th present slot of a place; the caller keeps index in range. */
static hri_slot slot_at(const hr_model *m, place where, int32_t layer, uint32_t index) {
  int s;
  for (s = 0; s < HRI_SLOT_COUNT - 1; s++)
    if (slots[s].place == where && present(m, (hri_slot)s, layer) && index-- == 0) break;
  return (hri_slot)s;
}

uint32_t hri_param_count(const hr_model *model) {
  const uint32_t own = count_in(model, PLACE_LAYER);
  uint32_t count = count_in(model, PLACE_EMBED) + count_embedded(model) + count_in(model, PLACE_HEAD);
  for (uint32_t l = 0, adapters = 0; l < model->layer_count; l++)
    count += own + (adapters = count_adapters(model, l, adapters));
  return count;
}

uint64_t hr_model_parameter_count(const hr_model *model) {
  uint64_t total = 0, dims[2];
  for (int s = 0; s < HRI_SLOT_LORA_A; s++) {
    if (!present(model, (hri_slot)s, 0) || (s == HRI_SLOT_HEAD_WEIGHT && model->tied_embeddings)) continue;
    (void)shape(model, (hri_slot)s, 0, dims);
    total += dims[0] * dims[1] * (slots[s].place == PLACE_LAYER ? model->layer_count : 1);
  }
  return total;
}

/* ---- one parameter ---- */

static bool is_norm_weight(hri_slot slot) {
  return slot == HRI_SLOT_NORM1_WEIGHT || slot == HRI_SLOT_NORM2_WEIGHT || slot == HRI_SLOT_FINAL_NORM_WEIGHT ||
         slot == HRI_SLOT_Q_NORM_WEIGHT || slot == HRI_SLOT_K_NORM_WEIGHT || slot == HRI_SLOT_POST_NORM1_WEIGHT ||
         slot == HRI_SLOT_POST_NORM2_WEIGHT;
}

bool hri_slot_sensitive(hri_slot slot) {
  return slot == HRI_SLOT_TOKEN_EMBEDDING || slot == HRI_SLOT_POSITION_EMBEDDING || is_norm_weight(slot) ||
         slot == HRI_SLOT_NORM1_BIAS || slot == HRI_SLOT_NORM2_BIAS || slot == HRI_SLOT_FINAL_NORM_BIAS;
}

/* Norms start as the identity: with weight 1, or 0 where 1 is added to it. */
static void set_init(const hr_model *m, hri_param_spec *spec) {
  bool into_residual = spec->slot == HRI_SLOT_ATTENTION_OUTPUT_WEIGHT || spec->slot == HRI_SLOT_MLP_OUT_WEIGHT;
  bool ones = is_norm_weight(spec->slot) && m->norm_weight_offset == 0;
  if (is_embed(spec->slot)) { /* PEFT's reset_lora_parameters: here A is zero */
    spec->init = spec->slot == HRI_SLOT_LORA_EMBED_A ? HRI_INIT_ZEROS : HRI_INIT_NORMAL;
    spec->init_std = 1;
    return;
  }
  if (spec->adapter) { /* PEFT: kaiming_uniform(a = sqrt(5)), which is uniform within 1 / sqrt(in); B is zero */
    spec->init = is_m(spec->slot)   ? HRI_INIT_NAN
                 : is_b(spec->slot) ? HRI_INIT_ZEROS
                 : m->lora.gaussian ? HRI_INIT_NORMAL
                                    : HRI_INIT_UNIFORM;
    spec->init_std = m->lora.gaussian ? 1.0 / hri_lora_rank(&m->lora, spec->layer, module_of(spec->slot))
                                      : 1 / sqrt((double)spec->dims[1]);
    return;
  }
  spec->init = spec->rank == 2 ? HRI_INIT_NORMAL : ones ? HRI_INIT_ONES : HRI_INIT_ZEROS;
  if (spec->rank != 2) return;
  spec->init_std = m->init_std;
  if (into_residual && m->init_scale_residual) spec->init_std /= sqrt(2.0 * m->layer_count);
}

/* Rows of part `part` of `count`: q, k, v have their own sizes, gate and up share equally. */
static uint64_t part_rows(const hr_model *m, const hri_param_spec *spec, uint32_t part, uint32_t count) {
  if (count == 3) return (uint64_t)(part == 0 ? m->head_count : m->kv_head_count) * m->head_size;
  return spec->dims[0] / count;
}

/* One part; A is [rank, V] in files. */
static void set_embedding_parts(const hr_model *m, hri_param_spec *spec) {
  hri_param_part *part = &spec->parts[0];
  char name[96];
  hri_embedding_name(m, name);
  (void)snprintf(part->name, sizeof part->name, "base_model.model.%.54s.lora_embedding_%c", name,
                 spec->slot == HRI_SLOT_LORA_EMBED_A ? 'A' : 'B');
  part->row = 0;
  part->rows = spec->dims[0];
  part->transposed = spec->slot == HRI_SLOT_LORA_EMBED_A;
  spec->part_count = 1;
}

/* Named as PEFT names them in adapter_model.safetensors. */
static void set_adapter_parts(const hr_model *m, hri_param_spec *spec) {
  static const char *const ends[] = {"lora_A.weight", "lora_B.weight", "lora_magnitude_vector"};
  const char *end = ends[((int)spec->slot - HRI_SLOT_LORA_A) / HR_MODULE_COUNT];
  uint64_t row = 0;
  for (int k = 0; k < HR_MODULE_COUNT; k++) {
    hri_param_part *part = &spec->parts[spec->part_count];
    char name[96];
    if (!shares(m, spec->slot, spec->layer, (hr_module)k)) continue;
    (void)hri_module_name(m, (hr_module)k, spec->layer, name);
    (void)snprintf(part->name, sizeof part->name, "base_model.model.%.54s.%s", name, end);
    part->row = row;
    part->rows = adapter_rows(m, spec->slot, spec->layer, (hr_module)k);
    row += part->rows;
    spec->part_count++;
  }
}

/* ---- what trains whole beside adapters ---- */

static bool is_bias(hri_slot slot) {
  return slot == HRI_SLOT_NORM1_BIAS || slot == HRI_SLOT_NORM2_BIAS || slot == HRI_SLOT_FINAL_NORM_BIAS ||
         slot == HRI_SLOT_QKV_BIAS || slot == HRI_SLOT_ATTENTION_OUTPUT_BIAS || slot == HRI_SLOT_MLP_IN_BIAS ||
         slot == HRI_SLOT_MLP_OUT_BIAS || slot == HRI_SLOT_HEAD_BIAS;
}

/* Whether an adapted module has the bias in `slot` and part `k`: it then lies in the wrapped module. */
static bool is_wrapped(const hr_model *m, hri_slot slot, int32_t layer, uint32_t k) {
  hri_slot weight = (hri_slot)(slot - 1);
  bool linear = slot == HRI_SLOT_QKV_BIAS || slot == HRI_SLOT_ATTENTION_OUTPUT_BIAS || slot == HRI_SLOT_MLP_IN_BIAS ||
                slot == HRI_SLOT_MLP_OUT_BIAS;
  for (int j = 0; linear && j < HR_MODULE_COUNT; j++)
    if (modules[j].slot == weight && modules[j].part == k) return hri_module_is_adapted(m, layer, (hr_module)j);
  return false;
}
_Static_assert(HRI_SLOT_QKV_BIAS == HRI_SLOT_QKV_WEIGHT + 1 && HRI_SLOT_MLP_IN_BIAS == HRI_SLOT_MLP_IN_WEIGHT + 1 &&
                   HRI_SLOT_ATTENTION_OUTPUT_BIAS == HRI_SLOT_ATTENTION_OUTPUT_WEIGHT + 1 &&
                   HRI_SLOT_MLP_OUT_BIAS == HRI_SLOT_MLP_OUT_WEIGHT + 1,
               "a bias follows its weight");

/* Names as PEFT's get_peft_model_state_dict leaves them: a bias beside an adapter is one of its base_layer. */
bool hri_part_tuned(const hr_model *m, const hri_param_spec *spec, const hri_param_part *part, char name[96]) {
  const hr_lora *lora = &m->lora;
  const char *own = spec->slot == HRI_SLOT_HEAD_WEIGHT ? layout_of(m)->slots[spec->slot].parts[0] : part->name;
  bool wrapped, tuned;
  if (lora->rank == 0) return false;
  if (spec->adapter) {
    if (name) (void)snprintf(name, 96, "%s", part->name);
    return true;
  }
  wrapped = is_wrapped(m, spec->slot, spec->layer, (uint32_t)(part - spec->parts));
  tuned = (lora->saved >> spec->slot & 1) ||
          (lora->bias == HR_LORA_BIAS_ADAPTED ? wrapped : lora->bias == HR_LORA_BIAS_ALL && is_bias(spec->slot));
  if (!tuned || !name) return tuned;
  if (wrapped) (void)snprintf(name, 96, "base_model.model.%.*sbase_layer.bias", (int)(strlen(own) - 4), own);
  else (void)snprintf(name, 96, "base_model.model.%.78s", own);
  return true;
}

/* `prefix`, the layer and a point before a name that stands in one: without printf, since every draft of a plan makes
 * all names anew. */
static void put_name(char *out, size_t bytes, const char *prefix, int32_t layer, const char *name) {
  const size_t length = strlen(name), before = layer >= 0 ? strlen(prefix) : 0;
  char digits[12];
  size_t count = sizeof digits, used;
  if (layer >= 0) digits[--count] = '.';
  for (uint32_t rest = layer >= 0 ? (uint32_t)layer : 0; layer >= 0 && (rest || count == sizeof digits - 1); rest /= 10)
    digits[--count] = (char)('0' + rest % 10);
  used = sizeof digits - count;
  assert(before + used + length < bytes);
  memcpy(out, prefix, before);
  memcpy(out + before, digits + count, used);
  memcpy(out + before + used, name, length + 1);
  (void)bytes;
}

static void set_parts(const hr_model *m, hri_param_spec *spec) {
  const hf_layout *layout = layout_of(m);
  bool copy = spec->slot == HRI_SLOT_HEAD_WEIGHT && m->tied_embeddings; /* of what the files have once */
  const hf_slot *names = &layout->slots[copy ? HRI_SLOT_TOKEN_EMBEDDING : spec->slot];
  uint64_t row = 0;
  uint32_t count = 0;
  while (count < HRI_PARAM_PARTS && names->parts[count]) count++;
  spec->part_count = count;
  for (uint32_t i = 0; i < count; i++) {
    hri_param_part *part = &spec->parts[i];
    put_name(part->name, sizeof part->name, layout->layer_prefix, spec->layer, names->parts[i]);
    part->row = row;
    part->rows = part_rows(m, spec, i, count);
    part->transposed = names->transposed;
    row += part->rows;
  }
}

enum { ADAPTER_SITES = 1 << 20 }; /* beyond any number of parameters */

/* `index` counts within its place, which has `own` ones in a layer; adapters stand behind the parameters of their
 * layer. */
static uint32_t site_of(const hr_model *m, const hri_param_spec *spec, uint32_t index, uint32_t embed, uint32_t own) {
  uint32_t layer = spec->layer >= 0 ? (uint32_t)spec->layer : spec->unit == HRI_UNIT_EMBED ? 0 : m->layer_count;
  if (spec->slot == HRI_SLOT_HEAD_WEIGHT && m->tied_embeddings) return 0; /* it begins as the embedding */
  if (is_embed(spec->slot)) return 3 * ADAPTER_SITES + (uint32_t)(spec->slot - HRI_SLOT_LORA_EMBED_A);
  if (is_m(spec->slot)) return 2 * ADAPTER_SITES + layer * HR_MODULE_COUNT + (uint32_t)module_of(spec->slot);
  if (spec->adapter) return ADAPTER_SITES + layer * 2 * HR_MODULE_COUNT + (uint32_t)spec->slot - HRI_SLOT_LORA_A;
  if (spec->unit == HRI_UNIT_EMBED) return index;
  return embed + layer * own + index;
}

void hri_param_get(const hr_model *model, uint32_t index, hri_param_spec *spec) {
  const uint32_t embed = count_in(model, PLACE_EMBED), own = count_in(model, PLACE_LAYER),
                 before = embed + count_embedded(model);
  memset(spec, 0, sizeof *spec);
  spec->layer = -1;
  if (index < before) {
    spec->slot = slot_at(model, PLACE_EMBED, -1, index);
    spec->unit = HRI_UNIT_EMBED;
  } else {
    uint32_t layer = 0, count, adapters = 0;
    index -= before;
    while (layer < model->layer_count && index >= (count = own + (adapters = count_adapters(model, layer, adapters))))
      index -= count, layer++;
    if (layer < model->layer_count) spec->layer = (int32_t)layer;
    spec->slot = slot_at(model, spec->layer >= 0 ? PLACE_LAYER : PLACE_HEAD, spec->layer, index);
    spec->unit = HRI_UNIT_FIRST_LAYER + layer;
  }
  spec->adapter = spec->slot >= HRI_SLOT_LORA_A;
  spec->site = site_of(model, spec, index, embed, own);
  put_name(spec->name, sizeof spec->name, "layers.", spec->layer, slots[spec->slot].name);
  spec->rank = shape(model, spec->slot, spec->layer, spec->dims);
  spec->decay = spec->rank == 2;
  set_init(model, spec);
  if (is_embed(spec->slot)) set_embedding_parts(model, spec);
  else if (spec->adapter) set_adapter_parts(model, spec);
  else set_parts(model, spec);
}

/* ---- names in files ---- */

/* What follows `prefix`, or NULL. */
static const char *after(const char *name, const char *prefix) {
  size_t length = strlen(prefix);
  return strncmp(name, prefix, length) == 0 ? name + length : NULL;
}

/* True for "h.N.attn.bias" and "h.N.attn.masked_bias": the causal mask that old gpt2 files hold. */
static bool is_gpt2_mask(const char *name) {
  const char *rest = after(name, "transformer.");
  rest = after(rest ? rest : name, "h.");
  if (!rest || *rest < '0' || *rest > '9') return false;
  while (*rest >= '0' && *rest <= '9') rest++;
  return strcmp(rest, ".attn.bias") == 0 || strcmp(rest, ".attn.masked_bias") == 0;
}

static bool ends_with(const char *name, const char *suffix) {
  size_t length = strlen(name), end = strlen(suffix);
  return length >= end && strcmp(name + length - end, suffix) == 0;
}

/* Of multimodal gemma3 files, which hold the language model as model.language_model.* or language_model.*: what belongs
 * to images. */
static bool is_vision(const char *name) {
  const char *rest = after(name, "model.");
  rest = rest ? rest : name;
  return after(rest, "vision_tower.") || after(rest, "multi_modal_projector.");
}

bool hri_param_ignored(const hr_model *model, const char *name) {
  const char *inner = model->family == HR_FAMILY_GEMMA3 ? after(name, "language_model.") : NULL;
  if (model->tied_embeddings && strcmp(inner ? inner : name, "lm_head.weight") == 0) return true;
  if (ends_with(name, ".rotary_emb.inv_freq")) return !model->learned_positions;
  if (model->family == HR_FAMILY_GEMMA3 && is_vision(name)) return true;
  return model->family == HR_FAMILY_GPT2 && is_gpt2_mask(name);
}

bool hri_param_variant(const hr_model *model, const char *name, uint32_t variant, char out[128]) {
  const char *rest = after(name, layout_of(model)->prefix);
  bool gemma3 = model->family == HR_FAMILY_GEMMA3;
  int length = -1;
  if (variant > 0 && !rest && !gemma3) return false;
  if (variant == 0) length = snprintf(out, 128, "%s", name);
  else if (variant == 1) length = snprintf(out, 128, "%s%s", rest ? "" : "language_model.", rest ? rest : name);
  else if (variant == 2 && gemma3 && rest) length = snprintf(out, 128, "language_model.%s", name);
  else if (variant == 3 && gemma3 && rest) length = snprintf(out, 128, "model.language_model.%s", rest);
  return length >= 0 && length < 128;
}
