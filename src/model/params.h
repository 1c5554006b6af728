/* The parameters of a model: one table that maps Headroom's tensors to Hugging Face tensors, in both directions.
 *
 * Headroom keeps q,k,v (and gate,up) as one matrix, and every linear weight as [out, in]; a Hugging Face file has them
 * apart (llama) or transposed (gpt2's Conv1D). Each parameter therefore lists its parts. */
#ifndef HRI_MODEL_PARAMS_H
#define HRI_MODEL_PARAMS_H

#include <headroom/model.h>

enum { HRI_UNIT_EMBED = 0, HRI_UNIT_FIRST_LAYER = 1 }; /* unit of layer l is 1 + l; of the head 1 + layer_count */

/* What a parameter is for; the builder asks for parameters by (slot, layer). */
typedef enum hri_slot {
  HRI_SLOT_TOKEN_EMBEDDING = 0, /* [V, C] */
  HRI_SLOT_POSITION_EMBEDDING,  /* [P, C], gpt2 */
  HRI_SLOT_NORM1_WEIGHT,        /* [C] */
  HRI_SLOT_NORM1_BIAS,
  HRI_SLOT_QKV_WEIGHT,    /* [(H + 2K) D, C], rows q then k then v */
  HRI_SLOT_QKV_BIAS,      /* [(H + 2K) D] */
  HRI_SLOT_Q_NORM_WEIGHT, /* [D], qwen3 and gemma3; olmo2 [H D] and [K D] */
  HRI_SLOT_K_NORM_WEIGHT,
  HRI_SLOT_ATTENTION_OUTPUT_WEIGHT, /* [C, H D] */
  HRI_SLOT_ATTENTION_OUTPUT_BIAS,   /* [C] */
  HRI_SLOT_POST_NORM1_WEIGHT,       /* [C], of the attention output (gemma2, olmo2) */
  HRI_SLOT_NORM2_WEIGHT,
  HRI_SLOT_NORM2_BIAS,
  HRI_SLOT_MLP_IN_WEIGHT, /* [F, C], or gate then up [2F, C] when gated */
  HRI_SLOT_MLP_IN_BIAS,
  HRI_SLOT_MLP_OUT_WEIGHT, /* [C, F] */
  HRI_SLOT_MLP_OUT_BIAS,
  HRI_SLOT_POST_NORM2_WEIGHT, /* [C], of the MLP output (gemma2, olmo2) */
  HRI_SLOT_FINAL_NORM_WEIGHT,
  HRI_SLOT_FINAL_NORM_BIAS,
  HRI_SLOT_HEAD_WEIGHT, /* [V, C]; absent when tied */
  HRI_SLOT_HEAD_BIAS,   /* [V] (phi) */
  HRI_SLOT_LORA_A, /* and the next ones, by hr_module: [rank, in] of each module that is adapted. Without dropout all
                         * modules of one product share the first one's, a part each: [modules * rank, in] */
  HRI_SLOT_LORA_B = HRI_SLOT_LORA_A + HR_MODULE_COUNT, /* [out, rank], likewise, each its own */
  HRI_SLOT_LORA_M = HRI_SLOT_LORA_B + HR_MODULE_COUNT, /* DoRA's magnitudes [rows of the adapted modules of a product],
                                                        * by the first of them, a part each */
  HRI_SLOT_LORA_EMBED_A = HRI_SLOT_LORA_M + HR_MODULE_COUNT, /* [V, rank], which files hold transposed */
  HRI_SLOT_LORA_EMBED_B,                                     /* [C, rank] */
  HRI_SLOT_COUNT,
  HRI_SLOT_NONE = HRI_SLOT_COUNT /* no parameter, where one is optional */
} hri_slot;

/* UNIFORM: between -init_std and init_std. NAN: made of other weights once these are there (hri_build_magnitudes); no
 * file has it. */
typedef enum hri_init { HRI_INIT_NORMAL = 0, HRI_INIT_ONES, HRI_INIT_ZEROS, HRI_INIT_UNIFORM, HRI_INIT_NAN } hri_init;

/* One Hugging Face tensor inside a parameter: rows [row, row + rows) of ours. */
typedef struct hri_param_part {
  char name[96]; /* e.g. "model.layers.3.self_attn.q_proj.weight" */
  uint64_t row, rows;
  bool transposed; /* the file holds [in, out] */
} hri_param_part;

enum { HRI_PARAM_PARTS = 3 };

typedef struct hri_param_spec {
  char name[64]; /* ours, stable: "layers.3.qkv.weight"; key of checkpoints' optimizer states */
  hri_slot slot;
  int32_t layer; /* -1 outside of the layers */
  uint32_t unit;
  uint32_t site;    /* of its random numbers: the same with adapters and without */
  uint32_t rank;    /* 1 or 2 */
  uint64_t dims[2]; /* logical: [rows, columns], or [n, 1] */
  bool adapter;     /* of the adapters: trained while the rest is frozen, fp32 always, in files of its own */
  bool decay;       /* weight decay touches matrices and embeddings, not biases and norms */
  hri_init init;
  double init_std;
  uint32_t part_count;
  hri_param_part parts[HRI_PARAM_PARTS];
} hri_param_spec;

/* Whether a slot holds an embedding (a tied head too, an untied one not) or belongs to a norm: what keeps 32-bit states
 * under optimizers of 8 bits by default. */
bool hri_slot_sensitive(hri_slot slot);

/* Number of parameters, and the index-th in the order of execution (embed, layers, head). */
uint32_t hri_param_count(const hr_model *model);
void hri_param_get(const hr_model *model, uint32_t index, hri_param_spec *spec);

/* True for tensors that files may hold and that are ignored (h.N.attn.bias, *.rotary_emb.inv_freq, a tied
 * lm_head.weight, ...). `name` is a Hugging Face tensor name. */
bool hri_param_ignored(const hr_model *model, const char *name);

/* The product that a module is part of: its weight's slot, and which part; and back, false where no module's weight is
 * in a slot. */
hri_slot hri_module_slot(hr_module module, uint32_t *part);
bool hri_part_module(hri_slot slot, uint32_t part, hr_module *module);
/* Columns of a module's weight, its inputs. */
uint64_t hri_module_columns(const hr_model *model, hr_module module);
/* "model.layers.3.self_attn.q_proj"; layer -1: what follows the layer, "self_attn.q_proj". False: the family has no such
 * module. */
bool hri_module_name(const hr_model *model, hr_module module, int32_t layer, char out[96]);
/* Whether --quantize means this parameter: it is a matrix of a layer, no adapter, and quantized in the files of a model
 * whose files are. */
bool hri_param_quantizes(const hr_model *model, const hri_param_spec *spec);
bool hri_module_is_adapted(const hr_model *model, int32_t layer, hr_module module);
/* Whose A a module uses: its own, or with modules of its product that have the same rank and factor the first one's. */
hr_module hri_module_a(const hr_model *model, int32_t layer, hr_module module);
/* The module whose tensor the k-th part of an adapter's parameter is. */
hr_module hri_param_module(const hr_model *model, const hri_param_spec *spec, uint32_t k);
/* The first adapted module of a module's product, which has the magnitudes of all of them. */
hr_module hri_module_first(const hr_model *model, int32_t layer, hr_module module);
/* Rank of a module's adapter, and the factor on its share. */
uint32_t hri_lora_rank(const hr_lora *lora, int32_t layer, hr_module module);
double hri_lora_scale(const hr_lora *lora, int32_t layer, hr_module module);
/* That factor times the rank: alpha, or with rslora alpha sqrt(rank). */
double hri_lora_plain_alpha(const hr_lora *lora, int32_t layer, hr_module module);
/* The same of the embedding's adapter, and that module's name: "model.embed_tokens". */
uint32_t hri_lora_embedding_rank(const hr_lora *lora);
double hri_lora_embedding_scale(const hr_lora *lora);
void hri_embedding_name(const hr_model *model, char out[96]);
/* Whether the files of a model's adapters hold a part: it is an adapter's, or trains beside them whole (hr_lora.bias and
 * .saved). `name` (may be NULL) gets its name there. */
bool hri_part_tuned(const hr_model *model, const hri_param_spec *spec, const hri_param_part *part, char name[96]);
/* Whether the head, which the model's files tie to the embedding, is a tensor of its own beside adapters. */
bool hri_lora_unties(const hr_model *model);

/* Spelling variants of part names in files: gpt2 with and without "transformer.", the others with and without "model.";
 * gemma3 also behind "language_model." and "model.language_model.", as multimodal files have it.
 * Writes the variant-th spelling of `name` to out (128 bytes); false when there are no more. Variant 0 is the name. */
bool hri_param_variant(const hr_model *model, const char *name, uint32_t variant, char out[128]);

#endif
