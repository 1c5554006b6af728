/* Model descriptions: what a transformer is, without weights.
 *
 * A description is plain data (no pointers, copy it freely). It comes from a preset name, a config.json, a Hugging Face
 * directory, or is filled by hand. Families are data: one common block whose variations are the fields below
 * (docs/models.md). Sources: transformers models/<family>/{configuration,modeling}_*.py; RoPE modeling_rope_utils.py.
 *
 * Threads: a description is plain data of its owner; presets and names are constant. */
#ifndef HEADROOM_MODEL_H
#define HEADROOM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  HR_MAX_LAYERS = 512,
  HR_MAX_ROPE_PAIRS = 256 /* longest list of longrope factors: half of the largest rotary size that has them */
};

typedef enum hr_family {
  HR_FAMILY_GPT2 = 0,
  HR_FAMILY_LLAMA,
  HR_FAMILY_MISTRAL,
  HR_FAMILY_QWEN2,
  HR_FAMILY_QWEN3,
  HR_FAMILY_PHI3,
  HR_FAMILY_GEMMA2,
  HR_FAMILY_GEMMA3,
  HR_FAMILY_GEMMA, /* the first one */
  HR_FAMILY_SMOLLM3,
  HR_FAMILY_GRANITE,
  HR_FAMILY_OLMO2,
  HR_FAMILY_STABLELM,
  HR_FAMILY_PHI, /* phi-1 to phi-2 */
  HR_FAMILY_COUNT
} hr_family;
typedef enum hr_norm { HR_NORM_LAYER = 0, HR_NORM_RMS } hr_norm; /* mean and variance; root mean square */
typedef enum hr_activation {
  HR_ACTIVATION_GELU_TANH = 0, /* by a tanh: gelu_new, gelu_pytorch_tanh */
  HR_ACTIVATION_SILU,
  HR_ACTIVATION_GELU, /* x times the normal distribution function */
  HR_ACTIVATION_RELU,
  HR_ACTIVATION_COUNT
} hr_activation;
typedef enum hr_rope_scaling {
  HR_ROPE_DEFAULT = 0,
  HR_ROPE_LINEAR,
  HR_ROPE_LLAMA3,
  HR_ROPE_DYNAMIC,
  HR_ROPE_YARN,
  HR_ROPE_LONGROPE,
  HR_ROPE_SCALING_COUNT
} hr_rope_scaling;

typedef struct hr_rope {
  double theta; /* base of the inverse frequencies */
  hr_rope_scaling scaling;
  double factor; /* all but default: positions are stretched by this; longrope: 0 = max / original positions */
  double low_frequency_factor, high_frequency_factor; /* llama3 */
  uint32_t original_max_positions;                    /* llama3, yarn, longrope; 0: the model's max_positions */
  double attention_factor;       /* yarn, longrope: multiplies cosines and sines; 0: what the kind prescribes */
  double beta_fast, beta_slow;   /* yarn; 0: 32 and 1 */
  double mscale, mscale_all_dim; /* yarn: both not 0 to count */
  bool no_truncation;            /* yarn: the borders of the ramp are not rounded to whole pairs */
  uint32_t factor_count;         /* longrope: entries of both lists, rotary_size / 2 */
  double short_factors[HR_MAX_ROPE_PAIRS], long_factors[HR_MAX_ROPE_PAIRS];
} hr_rope;

/* What the frozen weights of the layers' linear modules are kept in: as bitsandbytes quantizes them, 4 bits in blocks of
 * 64 (NF4, FP4), with the blocks' scales quantized as well (DQ), or 8 bits by row; or in the blocks that a GGUF file has
 * them in (KEEP). Embeddings, head, norms and biases stay as --precision says. Each weight is dequantized before each use,
 * one at a time. */
typedef enum hr_quantize {
  HR_QUANTIZE_NONE = 0,
  HR_QUANTIZE_NF4,
  HR_QUANTIZE_FP4,
  HR_QUANTIZE_NF4_DQ,
  HR_QUANTIZE_FP4_DQ,
  HR_QUANTIZE_INT8,
  HR_QUANTIZE_KEEP
} hr_quantize;

/* Where an adapter can stand: the linear modules of a layer. Where a family fuses q, k, v (gate, up) in one module, it
 * is the first of them. */
typedef enum hr_module {
  HR_MODULE_Q = 0,
  HR_MODULE_K,
  HR_MODULE_V,
  HR_MODULE_ATTENTION_OUTPUT,
  HR_MODULE_MLP_GATE, /* or the one product into an MLP without a gate */
  HR_MODULE_MLP_UP,
  HR_MODULE_MLP_DOWN,
  HR_MODULE_COUNT
} hr_module;

/* Which biases of the model train beside adapters: none, all, those of adapted modules. */
typedef enum hr_lora_bias {
  HR_LORA_BIAS_NONE = 0,
  HR_LORA_BIAS_ALL,
  HR_LORA_BIAS_ADAPTED,
  HR_LORA_BIAS_COUNT
} hr_lora_bias;

/* Adapters of low rank: a module computes x W^T + s (x A^T) B^T with A [rank, in] and B [out, rank]; s is alpha / rank,
 * or alpha / sqrt(rank) with rslora. Only A and B train. (Hu et al., LoRA, 2021; Kalajdzievski, rsLoRA, 2023.) With
 * `dora` row i of W + s B A is scaled to the length m_i, which trains too, and the gradient takes its own length for a
 * constant (Liu et al., DoRA, 2024). */
enum { HR_LORA_KINDS = 64 };
typedef struct hr_lora_kind {
  uint32_t rank;
  double alpha;
} hr_lora_kind;

typedef struct hr_lora {
  uint32_t rank; /* 0: the model has none */
  double alpha;
  double dropout; /* of the adapters' input, in training */
  bool rslora, dora;
  bool gaussian; /* A begins normal with deviation 1 / rank, else uniform as PEFT's kaiming */
  hr_lora_bias bias;
  uint32_t saved;         /* parameters outside of linear modules that train whole: a set of 1 << slot, of
                                   * embeddings, norms and the head (src/model/params.h). With tied embeddings a head
                                   * or an embedding that trains is a copy of its own */
  bool embedding;         /* the token embedding has an adapter too: token t gets s times column t of B A more. A head
                                   * that is tied to it does not */
  uint8_t embedding_kind; /* as kinds */
  uint8_t modules[HR_MAX_LAYERS];                /* of each layer, a set of 1 << hr_module */
  uint8_t kinds[HR_MAX_LAYERS][HR_MODULE_COUNT]; /* 0: of `rank` and `alpha`; k: of own[k - 1] */
  hr_lora_kind own[HR_LORA_KINDS];               /* in the order of their first use; behind the last one zeros */
} hr_lora;

/* Probabilities of dropout in training, by place. Where the modeling code of a family has no dropout it has no effect. */
typedef struct hr_dropout {
  double attention; /* of attention probabilities (attention_dropout, attn_pdrop) */
  double residual;  /* of what attention and MLP add, stablelm: MLP alone (resid_pdrop, hidden_dropout) */
  double embedding; /* of embeddings, positions added (embd_pdrop) */
} hr_dropout;
#define HR_DROPOUT_CONFIG (-1.0) /* hr_job.dropout: as the model's `dropout` says */

typedef struct hr_model {
  hr_family family;
  char name[96]; /* preset or directory name, for people */
  char directory
      [1024]; /* the directory or GGUF file it was read from, with its tokenizer; "" for presets and a bare config.json */
  bool has_weights;             /* the weights are there too */
  bool bfloat16;                /* config.json says that the weights are */
  hr_quantize quantization;     /* what the weight files hold the layers' linear modules in (bitsandbytes) ... */
  uint8_t plain[HR_MAX_LAYERS]; /* ... but for these: of each layer, a set of 1 << hr_module */
  uint8_t gguf_types[HR_MAX_LAYERS][HR_MODULE_COUNT]; /* of a GGUF file: 1 + the number of each weight's type there
                                                       * (ggml); 0: there is no such file, or no such tensor */
  char unread_keys
      [256]; /* of a GGUF file: keys of its architecture that are not understood, ", " between them; "": none */
  uint32_t layer_count, hidden_size, head_count, kv_head_count, head_size, mlp_size, vocabulary_size;
  uint32_t max_positions; /* longest sequence the model was made for */
  hr_norm norm;
  double norm_epsilon;
  hr_activation activation;
  bool gated_mlp;         /* act(gate) * up, else act(fc) */
  bool learned_positions; /* a position table is added to the embedding (gpt2), else RoPE */
  bool qkv_bias, attention_output_bias, mlp_bias, head_bias;
  bool tied_embeddings; /* the head is the embedding */
  uint32_t rotary_size; /* how much of each head RoPE turns, even; head_size but for partial rotation */
  hr_rope rope;
  bool has_local_rope; /* sliding layers use local_rope (gemma3) */
  hr_rope local_rope;
  uint32_t sliding_window;        /* a token of a sliding layer sees this many, itself included; 0: no layer slides */
  uint8_t sliding[HR_MAX_LAYERS]; /* 1: the layer slides */
  uint8_t no_rope[HR_MAX_LAYERS]; /* 1: heads of the layer are not rotated (smollm3) */
  bool qk_norm;                   /* RMS norm of each q and k head before RoPE (qwen3, gemma3) */
  bool qk_norm_whole;             /* ... of all q heads at once, and of all k heads (olmo2) */
  bool post_norms;                /* attention and MLP outputs are normed before they are added (gemma) */
  bool no_pre_norms;              /* attention and MLP read the residual stream as it is (olmo2) */
  bool parallel_residual;         /* both read one norm of it, and both outputs are added to it (phi) */
  double norm_weight_offset;      /* added to the weights of all norms: 1 for gemma, else 0 */
  double embedding_scale;         /* multiplies token embeddings: sqrt(hidden_size) for gemma, else 1 */
  double residual_scale;          /* multiplies what attention and MLP add (granite), else 1 */
  double logit_divisor;           /* divides logits (granite), else 1 */
  double attention_softcap;       /* c: scores are c tanh(score / c); 0: none */
  double logit_softcap;           /* the same for logits */
  double attention_scale;         /* multiplies q.k; head_size ** -0.5 unless the config says otherwise */
  double init_std;                /* for training from scratch */
  bool init_scale_residual;       /* gpt2: projections into the residual stream use init_std / sqrt(2 * layers) */
  int32_t pad_token, bos_token, eos_token; /* -1: none. Embedding row pad_token gets no input-side gradient, as in
                                              transformers (padding_idx), for families that set it (all but gpt2). */
  hr_dropout dropout;                      /* what the config asks for; training has it where hr_job says so */
  hr_lora lora;                            /* adapters beside the weights: of --lora, or of `adapter` */
  char adapter[1024]; /* the directory or GGUF file with the adapters' weights; "": they begin from the seed */
} hr_model;

/* Fills `model` from, in this order: an existing directory with a config.json, an existing GGUF file or config.json, a
 * preset name, or sizes ("custom:layers=2,hidden=64,heads=2"). A directory with an adapter_config.json and no config.json is
 * the model that it names, with the adapters. `source` is what the user typed. Errors: INPUT (file and field named; also
 * what is not supported in it), USAGE (unknown name; the nearest is suggested). */
HR_CHECKED hr_status hr_model_open(const char *source, hr_model *model, hr_error *error);

/* Fills `model` from the text of a config.json (v4 and v5 keys). `file` names it in errors. */
HR_CHECKED hr_status hr_model_parse(const char *text, uint64_t bytes, const char *file, hr_model *model,
                                    hr_error *error);

/* The config.json text of a model, NUL-terminated, owned by the caller (hr_free); v4 keys, which v5 reads too.
 * `dtype` is "float32", "bfloat16" or "float16". NULL when memory is refused. */
HR_API char *hr_model_config_text(const hr_model *model, const char *dtype);

/* Checks that the dimensions make sense together (heads divide, sizes positive, products fit); USAGE names the
 * field. */
HR_CHECKED hr_status hr_model_check(const hr_model *model, hr_error *error);

/* Exact number of parameters; a tied head is counted once. */
HR_API uint64_t hr_model_parameter_count(const hr_model *model);

/* Presets: count, name and description of the index-th. */
HR_API uint32_t hr_model_preset_count(void);
HR_API const char *hr_model_preset_name(uint32_t index);
HR_CHECKED hr_status hr_model_preset(const char *name, hr_model *model, hr_error *error);

/* Names of families and enumerators as config files and JSON write them. */
HR_API const char *hr_family_name(hr_family family);

#ifdef __cplusplus
}
#endif
#endif
