/* The models of transformers as they run: parameters, and the forward with its loss, statement by statement. */
#ifndef HRI_PYTORCH_MODULE_H
#define HRI_PYTORCH_MODULE_H

#include <headroom/model.h>

#include "frameworks/pytorch/attention_kernels.h"
#include "frameworks/pytorch/bnb.h"
#include "model/family.h"

/* The versions of transformers whose rules differ, the older the larger. */
typedef enum hri_transformers {
  HRI_TRANSFORMERS_5 = 0,
  HRI_TRANSFORMERS_4_57,
  HRI_TRANSFORMERS_4_49,
  HRI_TRANSFORMERS_4_46,
  HRI_TRANSFORMERS_VERSIONS
} hri_transformers;

typedef enum hri_torch_attention { HRI_TORCH_SDPA = 0, HRI_TORCH_EAGER } hri_torch_attention;
/* Linear modules of layers as bitsandbytes has them; DOUBLE: bnb_4bit_use_double_quant. */
typedef enum hri_torch_quantized {
  HRI_TORCH_WHOLE = 0,
  HRI_TORCH_NF4,
  HRI_TORCH_NF4_DOUBLE,
  HRI_TORCH_INT8
} hri_torch_quantized;

typedef struct hri_module_linear {
  uint64_t out, in;
  hri_ten *weight, *bias;
  hri_torch_4bit *packed; /* in 4 bits, and `weight` its codes; NULL: it is not */
  hri_torch_8bit *narrow; /* in 8 bits likewise */
  hri_ten *a, *b;         /* of an adapter (PEFT); NULL: none */
  hri_ten *magnitude;     /* of its rows, with DoRA */
  bool conv1d;            /* [in, out], as gpt2 has them */
} hri_module_linear;

typedef struct hri_module_layer {
  hri_module_linear q, k, v, o, gate, up, down; /* fused ones stand in q (gpt2, phi3) and gate (phi3; gpt2's c_fc) */
  hri_ten *norms[4][2];                         /* weight, bias: before attention, before the MLP; gemma: after each */
  hri_ten *qk_norms[2];
  hri_ten *buffers[2]; /* of older attention: gpt2's causal mask and the number beside it */
} hri_module_layer;

/* What becomes of a model behind from_pretrained, beside what it is quantized in. */
typedef enum hri_module_prepared {
  HRI_PREPARED_BY_PEFT = 0, /* prepare_model_for_kbit_training: fp32 */
  HRI_PREPARED_BY_NOBODY,
  HRI_PREPARED_BY_TRL,    /* nobody, and adapters of quantized models become bf16 */
  HRI_PREPARED_BY_AXOLOTL /* embeddings, head and norms fp32, whole models too; beside adapters 16 bits again */
} hri_module_prepared;

/* How weights that are not quantized come to the device. */
typedef enum hri_module_loading {
  HRI_LOADED_BY_TO = 0, /* model.to("cuda") */
  HRI_LOADED_BY_MAP /* from_pretrained(device_map=...): one after the other, in the order of their names, as quantized ones do */
} hri_module_loading;

/* What is put around modules (register_forward_pre_hook, register_forward_hook): blocks by their layer, and some by name. */
enum {
  HRI_MODULE_WHOLE = -1,
  HRI_MODULE_EMBEDDING = -2,
  HRI_MODULE_NORM = -3,
  HRI_MODULE_HEAD = -4,
  HRI_MODULE_ADAPTER = -5
};
/* HRI_MODULE_ADAPTER and what is below: the module of an adapter whose weight is the parameter of that index (its `place`). */
typedef struct hri_module_hooks {
  hri_ten *(*enter)(hri_torch *torch, void *context, int32_t module,
                    hri_ten *input); /* what the module gets: a new reference */
  void (*leave)(hri_torch *torch, void *context, int32_t module, hri_ten *output);
} hri_module_hooks;

/* The same around every module, those without parameters too: `parameters` are its own two, NULL where it has fewer; the second alone is one of another
 * module that its forward looks at (an adapted module reads the type of lora_A). What the module gets, and
 * what its caller gets: new references. input NULL: none of its positional arguments needs a gradient. */
typedef struct hri_module_watch {
  hri_ten *(*enter)(hri_torch *torch, void *context, hri_ten *const parameters[2], hri_ten *input);
  hri_ten *(*leave)(hri_torch *torch, void *context, hri_ten *const parameters[2], hri_ten *output);
} hri_module_watch;

typedef struct hri_module {
  const hr_model *model;
  hri_ten *embed, *positions, *head, *norm[2]; /* head NULL: tied */
  hri_ten *saved_embed, *saved_head;           /* copies that train beside adapters (modules_to_save); NULL: none */
  hri_ten *frequencies[4], *scale;             /* buffers: of the rotary embedding, of scaled embeddings */
  hri_torch_quantized quantized;
  hri_module_prepared prepared;
  hri_module_loading loading;
  bool wide_norms;          /* weights of norms become fp32 (LLaMA-Factory's upcast_layernorm) */
  bool wide_trained;        /* what trains becomes fp32, the rest keeps its type */
  bool empties_cache;       /* behind the load */
  bool adapted_input;       /* enable_input_require_grads beside adapters, also without checkpointing */
  bool checkpoints_trained; /* only blocks in which something trains are checkpointed */
  hri_ten_type storage;     /* bnb_4bit_quant_storage: HRI_U8, or one that can be shared as weights are */
  hri_torch_4bit *packed;   /* of all layers */
  hri_torch_8bit *narrow;
  uint32_t packed_count;
  hri_module_layer *layers;
  hri_ten **parameters; /* all, in the order of model.parameters(), borrowed */
  int32_t *layer_of;    /* of each parameter; -1: of none */
  uint32_t parameter_count;
  hri_transformers version;
  bool in_order;   /* adapters stand among `parameters` where model.parameters() has them, behind their module's own */
  bool moves_late; /* to the device, when adapters are there */
  bool adapters_rest_wide; /* PEFT sees them in fp32 before they are gathered in another type, modules that they are */
  bool narrow_adapters;    /* adapters stay in the type of the weights, as DeepSpeed makes them */
  bool
      on_host; /* parameters and buffers get no bytes when they are made: whoever shards them brings them to the device */
  const hri_module_hooks *hooks;
  void *hooks_context;
  const hri_module_watch *watch; /* of DeepSpeed, which brings its own linear function too */
  void *watch_context;
  hri_torch_attention attention;
  bool kernel_forced; /* sdpa_kernel(...): `kernel` it is */
  hri_sdpa kernel;
  uint32_t capability; /* of the device: which fused attention there is */
  hri_dropout dropout;
  double lora_dropout;
  bool checkpoint, reentrant, use_cache;
  bool wrapped;                          /* `checkpoint` is fully_shard's own, of which PEFT is not told */
  bool fused_head;                       /* TRL's */
  bool qkv_kernel, o_kernel, mlp_kernel; /* axolotl's, where adapters stand (lora_kernels.h) */
  bool liger;        /* Liger's kernels: norms, rotary embeddings, gated MLPs, and the head with its loss */
  bool packed_rows;  /* torchtune's: positions and a block mask come with the batch */
  bool keeps_logits; /* an evaluation that wants them: Liger's head makes none otherwise */
} hri_module;

/* Parameters with requires_grad_(False), by the words of --freeze and --train-only (model/freeze.h); both NULL: none. */
typedef struct hri_module_frozen {
  const char *freeze, *train_only;
} hri_module_frozen;

/* Makes the parameters on the device (load.c), in the order of model.to(device), or of from_pretrained where `quantized` is set. Of a
 * model with adapters only those train, and are fp32 (PEFT's autocast_adapter_dtype); they come behind the others. False: memory. */
bool hri_module_init(hri_torch *torch, hri_module *module, const hr_model *model, hri_ten_type type,
                     const hri_module_frozen *frozen);
enum { HRI_MODULE_BUFFERS = 5 };

/* Writes a model's buffers, HRI_MODULE_BUFFERS at most; their count. */
uint32_t hri_module_buffers(const hri_module *module, hri_ten **buffers);
/* Buffers of a model that was made without bytes. */
void hri_module_place_buffers(hri_torch *torch, hri_module *module);
void hri_module_deinit(hri_module *module); /* the lists; tensors live as long as the process */

void hri_module_kinds_of_layers(const hr_model *model, bool *some, bool *all); /* that slide */
/* How many rotary embeddings there are: one, or one for each kind of layer that occurs. */
int hri_module_rotary_kinds(const hr_model *model);

/* past_key_values: keys and values of each layer. */
typedef struct hri_module_cache {
  hri_ten *layers[HR_MAX_LAYERS][2];
} hri_module_cache;
void hri_module_cache_drop(hri_torch *torch, const hri_module *module, hri_module_cache **cache); /* NULL is fine */

typedef struct hri_module_output {
  hri_ten *loss, *logits;  /* new references; logits NULL: a fused head makes none */
  hri_module_cache *cache; /* NULL: none */
} hri_module_output;
typedef struct hri_module_batch {
  hri_ten *ids, *mask, *labels; /* [rows, tokens]; mask NULL: none is given */
  hri_ten *items;               /* num_items_in_batch: the loss is a sum divided by it; NULL: a mean */
  bool padded;                  /* the mask has zeros */
  hri_ten *positions; /* [rows, tokens] of packed documents, in place of a mask; NULL: the model counts them itself */
} hri_module_batch;
/* model(input_ids=ids, attention_mask=mask, labels=labels) */
hri_module_output hri_module_forward(hri_torch *torch, hri_module *module, const hri_module_batch *batch);

#endif
