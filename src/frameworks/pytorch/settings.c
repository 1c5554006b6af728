/* Settings of the framework (settings.h): one table of keys; a value is a word of a list, or a number. */
#include "frameworks/pytorch/settings.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/text.h"

static const char *const optims[HRI_OPTIMS] =
    {"",    "adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit", "paged_adamw_8bit",
     "sgd", "adafactor",   "adafactor_torch"};
static const char *const strategies[] = {"no", "steps"};
static const char *const truths[] = {"false", "true"};
static const char *const versions[HRI_TRANSFORMERS_VERSIONS] = {"5", "4.57", "4.49", "4.46"};
static const char *const kernels[HRI_KERNELS] = {"", "flash_attention", "efficient_attention", "cudnn_attention",
                                                 "math"};
static const char *const implementations[HRI_IMPLEMENTATIONS] = {"", "sdpa", "eager", "flash_attention_2"};

bool hri_torch_names_lora_kernels(const hri_torch_settings *s) { return s->qkv_kernel || s->o_kernel || s->mlp_kernel; }

const char *hri_torch_optim_name(hri_torch_optim optim) { return optims[optim]; }
const char *hri_torch_kernel_name(hri_torch_kernel kernel) { return kernels[kernel]; }
typedef enum key {
  OPTIM = 0,
  REENTRANT,
  EVAL_BATCHES,
  EVAL_ROWS,
  METRICS,
  EVAL_TO_HOST,
  TRANSFORMERS,
  KERNEL,
  IMPLEMENTATION,
  PREDICT,
  EVAL_STRATEGY,
  USE_CACHE,
  RESUME,
  FIND_UNUSED,
  BUCKET_VIEW,
  BUCKET_MB,
  FSDP,
  RESHARDS,
  OFFLOAD,
  WRAPPED,
  PARAM_TYPE,
  REDUCE_TYPE,
  FSDP_VERSION,
  ZERO_STAGE,
  OFFLOAD_OPTIMIZER,
  OFFLOAD_PARAM,
  REDUCE_ELEMENTS,
  PREFETCH_ELEMENTS,
  LIGER,
  WIDE_NORMS,
  MLP_KERNEL,
  QKV_KERNEL,
  O_KERNEL,
  SAMPLE_PACKING,
  QUANT_STORAGE,
  KEYS
} key;
static const char *const keys[KEYS] = {[OPTIM] = "optim",
                                       [REENTRANT] = "use_reentrant",
                                       [EVAL_BATCHES] = "eval_batches",
                                       [EVAL_ROWS] = "per_device_eval_batch_size",
                                       [METRICS] = "compute_metrics",
                                       [EVAL_TO_HOST] = "eval_accumulation_steps",
                                       [TRANSFORMERS] = "transformers",
                                       [KERNEL] = "sdpa_kernel",
                                       [IMPLEMENTATION] = "attn_implementation",
                                       [PREDICT] = "predict",
                                       [EVAL_STRATEGY] = "eval_strategy",
                                       [USE_CACHE] = "use_cache",
                                       [RESUME] = "resume_from_checkpoint",
                                       [FIND_UNUSED] = "ddp_find_unused_parameters",
                                       [BUCKET_VIEW] = "gradient_as_bucket_view",
                                       [BUCKET_MB] = "ddp_bucket_cap_mb",
                                       [FSDP] = "fsdp",
                                       [RESHARDS] = "reshard_after_forward",
                                       [OFFLOAD] = "cpu_offload",
                                       [WRAPPED] = "activation_checkpointing",
                                       [PARAM_TYPE] = "param_dtype",
                                       [REDUCE_TYPE] = "reduce_dtype",
                                       [FSDP_VERSION] = "fsdp_version",
                                       [ZERO_STAGE] = "zero_stage",
                                       [OFFLOAD_OPTIMIZER] = "offload_optimizer",
                                       [OFFLOAD_PARAM] = "offload_param",
                                       [REDUCE_ELEMENTS] = "reduce_bucket_size",
                                       [PREFETCH_ELEMENTS] = "stage3_prefetch_bucket_size",
                                       [LIGER] = "use_liger_kernel",
                                       [WIDE_NORMS] = "upcast_layernorm",
                                       [MLP_KERNEL] = "lora_mlp_kernel",
                                       [QKV_KERNEL] = "lora_qkv_kernel",
                                       [O_KERNEL] = "lora_o_kernel",
                                       [SAMPLE_PACKING] = "sample_packing",
                                       [QUANT_STORAGE] = "bnb_4bit_quant_storage"};
static const char *const types[] = {"", "fp32", "bf16", "fp16"};
static const char *const storages[] = {"uint8", "bf16"};
static const char *const stages[] = {"", "1", "2", "3"};
static const char *const places[] = {"none", "cpu"};
static const char *const fsdp_versions[] = {"", "1", "2"};
enum { MOST = 4096 }; /* batches and rows: each batch is run */

typedef struct words {
  const char *const *list; /* "" is none; NULL: a number from 1 to MOST */
  uint32_t count;
} words;
static const words values[KEYS] = {[OPTIM] = {optims, HRI_OPTIMS},
                                   [REENTRANT] = {truths, 2},
                                   [METRICS] = {truths, 2},
                                   [TRANSFORMERS] = {versions, HRI_TRANSFORMERS_VERSIONS},
                                   [KERNEL] = {kernels, HRI_KERNELS},
                                   [IMPLEMENTATION] = {implementations, HRI_IMPLEMENTATIONS},
                                   [PREDICT] = {truths, 2},
                                   [EVAL_STRATEGY] = {strategies, 2},
                                   [USE_CACHE] = {truths, 2},
                                   [RESUME] = {truths, 2},
                                   [LIGER] = {truths, 2},
                                   [WIDE_NORMS] = {truths, 2},
                                   [MLP_KERNEL] = {truths, 2},
                                   [QKV_KERNEL] = {truths, 2},
                                   [O_KERNEL] = {truths, 2},
                                   [SAMPLE_PACKING] = {truths, 2},
                                   [QUANT_STORAGE] = {storages, 2},
                                   [FIND_UNUSED] = {truths, 2},
                                   [BUCKET_VIEW] = {truths, 2},
                                   [FSDP] = {truths, 2},
                                   [RESHARDS] = {truths, 2},
                                   [OFFLOAD] = {truths, 2},
                                   [WRAPPED] = {truths, 2},
                                   [PARAM_TYPE] = {types, 4},
                                   [REDUCE_TYPE] = {types, 4},
                                   [FSDP_VERSION] = {fsdp_versions, 3},
                                   [ZERO_STAGE] = {stages, 4},
                                   [OFFLOAD_OPTIMIZER] = {places, 2},
                                   [OFFLOAD_PARAM] = {places, 2}};

/* Batches and rows, of which each is run; elements of a bucket. */
static uint32_t most_of(key k) { return k == REDUCE_ELEMENTS || k == PREFETCH_ELEMENTS ? 4000000000u : MOST; }

/* Settings that say true, false, or nothing. */
static hri_torch_choice *choice_of(hri_torch_settings *settings, key k) {
  hri_torch_shared *s = &settings->shared;
  hri_torch_choice *const choices[KEYS] = {[FIND_UNUSED] = &s->find_unused,
                                           [BUCKET_VIEW] = &s->bucket_view,
                                           [FSDP] = &s->fsdp,
                                           [RESHARDS] = &s->reshards,
                                           [OFFLOAD] = &s->offload,
                                           [WRAPPED] = &s->wrapped,
                                           [MLP_KERNEL] = &settings->mlp_kernel,
                                           [QKV_KERNEL] = &settings->qkv_kernel,
                                           [O_KERNEL] = &settings->o_kernel};
  return choices[k];
}

static void store(hri_torch_settings *out, key k, uint32_t value) {
  uint32_t *const numbers[KEYS] = {[EVAL_BATCHES] = &out->eval_batches,
                                   [EVAL_ROWS] = &out->eval_rows,
                                   [EVAL_TO_HOST] = &out->eval_to_host,
                                   [BUCKET_MB] = &out->shared.bucket_mb,
                                   [REDUCE_ELEMENTS] = &out->shared.reduce_elements,
                                   [PREFETCH_ELEMENTS] = &out->shared.prefetch_elements};
  if (choice_of(out, k)) *choice_of(out, k) = value ? HRI_TRUE : HRI_FALSE;
  else if (k == PARAM_TYPE) out->shared.param = (hri_torch_word_type)value;
  else if (k == REDUCE_TYPE) out->shared.reduce = (hri_torch_word_type)value;
  else if (k == FSDP_VERSION) out->shared.fsdp_version = value;
  else if (k == ZERO_STAGE) out->shared.zero_stage = value;
  else if (k == OFFLOAD_OPTIMIZER) out->shared.offload_optimizer = value != 0;
  else if (k == OFFLOAD_PARAM) out->shared.offload_param = value != 0;
  else if (k == OPTIM) out->optim = (hri_torch_optim)value;
  else if (k == REENTRANT) out->reentrant = value != 0, out->reentrant_named = true;
  else if (k == METRICS) out->metrics = value != 0;
  else if (k == PREDICT) out->predict = value != 0;
  else if (k == EVAL_STRATEGY) out->eval_steps = value != 0;
  else if (k == USE_CACHE) out->use_cache = value != 0;
  else if (k == RESUME) out->resumed = value != 0;
  else if (k == LIGER) out->liger = value != 0;
  else if (k == WIDE_NORMS) out->wide_norms = value != 0;
  else if (k == SAMPLE_PACKING) out->packing = value != 0;
  else if (k == QUANT_STORAGE) out->bf16_storage = value != 0;
  else if (k == TRANSFORMERS) out->version = (hri_transformers)value;
  else if (k == KERNEL) out->kernel = (hri_torch_kernel)value;
  else if (k == IMPLEMENTATION) out->implementation = (hri_torch_implementation)value;
  else *numbers[k] = value;
}

/* Digits of a number in range; 0: it is none. */
static uint32_t number(const char *text, size_t length, uint32_t most) {
  uint64_t value = 0;
  for (size_t i = 0; i < length; i++) {
    if (text[i] < '0' || text[i] > '9' || value > most) return 0;
    value = 10 * value + (uint64_t)(text[i] - '0');
  }
  return value <= most ? (uint32_t)value : 0;
}

/* Python's True and False are true and false. */
static uint32_t find(const words *w, const char *text, size_t length) {
  for (uint32_t i = 0; i < w->count; i++)
    if (length && strlen(w->list[i]) == length &&
        (w->list == truths ? strncasecmp : strncmp)(w->list[i], text, length) == 0)
      return i;
  return w->count;
}

/* A version by its first parts: 4.49.0 is 4.49. */
static size_t version_length(const char *text, size_t length) {
  size_t end = 0, dots = text[0] == '5' ? 1 : 2;
  while (end < length && (text[end] != '.' || --dots)) end++;
  return end;
}

/* Which of a list somebody meant: one that begins alike, is spelt almost so, or has the word in it. NULL: none. */
static const char *meant(const words *w, const char *word) {
  const size_t length = strlen(word);
  const char *near = NULL;
  for (uint32_t i = 0; i < w->count && length >= 4; i++) {
    const size_t other = strlen(w->list[i]);
    if (other >= 4 && strncmp(w->list[i], word, other < length ? other : length) == 0) return w->list[i];
  }
  near = hri_nearest(word, w->list, w->count);
  for (uint32_t i = 0; i < w->count && length >= 4 && !near; i++)
    if (strstr(w->list[i], word)) near = w->list[i];
  return near;
}

/* What TrainingArguments' fsdp was before it was a switch, "full_shard auto_wrap offload", in the settings of today; NULL
 * for what was none of it. Wrapping is always automatic. */
static const char *meant_by_fsdp(const char *word) {
  const bool offload = strstr(word, "offload") != NULL;
  if (strstr(word, "shard_grad_op"))
    return offload ? "fsdp=true,reshard_after_forward=false,cpu_offload=true" : "fsdp=true,reshard_after_forward=false";
  if (strstr(word, "full_shard") || strstr(word, "auto_wrap") || offload)
    return offload ? "fsdp=true,cpu_offload=true" : "fsdp=true";
  return NULL;
}

/* "one of a, b": a list that no hint has room for is told from its nearest word on. */
static hr_status refuse(const char *what, const words *w, const char *text, size_t length, hr_error *error) {
  enum { ROOM = 300, SHOWN = 40 };
  hri_text all = {0};
  char word[SHOWN + 1] = "";
  const char *near;
  uint32_t left = 0;
  memcpy(word, text, length < SHOWN ? length : SHOWN);
  for (uint32_t i = 0; i < w->count; i++) {
    if (!*w->list[i]) continue;
    if (all.length < ROOM) hri_text_add(&all, "%s%s", all.length ? ", " : "", w->list[i]);
    else left++;
  }
  near = left ? meant(w, word) : NULL;
  hri_fail(error, HR_ERROR_USAGE, "settings of --engine pytorch: '%s' is no %s", word, what);
  if (strcmp(what, keys[FSDP]) == 0 && meant_by_fsdp(word)) hri_hint(error, HR_ERROR_USAGE, "%s", meant_by_fsdp(word));
  else if (near) hri_hint(error, HR_ERROR_USAGE, "did you mean %s? docs/pytorch.md lists all of them", near);
  else if (left) hri_hint(error, HR_ERROR_USAGE, "one of %s and %u more: docs/pytorch.md", hri_text_get(&all), left);
  else hri_hint(error, HR_ERROR_USAGE, "one of %s", hri_text_get(&all));
  hri_text_deinit(&all);
  return HR_ERROR_USAGE;
}

static hr_status counted(key k, const char *text, size_t length, hri_torch_settings *out, hr_error *error) {
  uint32_t value = number(text, length, most_of(k));
  if (value == 0)
    return hri_fail(error, HR_ERROR_USAGE, "settings of --engine pytorch: %s is a number from 1 to %u, not '%.*s'",
                    keys[k], most_of(k), (int)(length < 40 ? length : 40), text);
  store(out, k, value);
  return HR_OK;
}

/* What says how evaluation goes wants one. */
static hr_status check_evaluation(const hri_torch_settings *s, hr_error *error) {
  bool said = s->eval_rows || s->eval_to_host || s->metrics || s->predict || s->eval_steps;
  if (s->eval_batches || !said) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE,
           "settings of --engine pytorch: eval_batches is missing, how many batches the evaluation data have");
  return hri_hint(error, HR_ERROR_USAGE, "eval_batches=20,per_device_eval_batch_size=8");
}

typedef struct known_name {
  const char *name, *instead;
} known_name;

/* What people may know by these names, and there are no rules for. */
static const known_name absent[] = {
    {"use_unsloth", "its modules are its own: leave it out for the stack's own program"},
    {"use_unsloth_gc", "it takes hidden states to the host: --recompute block"},
    {"cut_cross_entropy", "use_liger_kernel=true makes no logits either"},
    {"chunked_cross_entropy", "use_liger_kernel=true makes no logits either"},
    {"activation_offloading", "--recompute block"},
    {"neat_packing", "rows of one length without a mask: --packing wrapped"},
    {"flex_attention", "attn_implementation=sdpa"},
    {"torch_compile", "eager PyTorch is what is followed here"},
    {"use_galore", "optim=adafactor or adamw_bnb_8bit hold less than AdamW"},
    {"use_apollo", "optim=adafactor or adamw_bnb_8bit hold less than AdamW"},
    {"use_badam", "--train-only for the blocks that train"},
    {"tensor_parallel_size", "fsdp=true or zero_stage with --ranks"},
    {"context_parallel_size", "fsdp=true or zero_stage with --ranks"},
};

/* What the stacks' own configurations call otherwise, and what says it here. */
static const known_name elsewhere[] = {
    {"flash_attn", "attn_implementation=sdpa (auto, sdpa), eager (disabled) or flash_attention_2 (fa2)"},
    {"flash_attention", "attn_implementation=flash_attention_2"},
    {"sdp_attention", "attn_implementation=sdpa"},
    {"eager_attention", "attn_implementation=eager"},
    {"pure_bf16", "--precision bf16-pure"},
    {"bf16", "--precision bf16"},
    {"fp16", "--precision fp16"},
    {"tf32", "--precision tf32"},
    {"enable_liger_kernel", "use_liger_kernel=true"},
    {"plugins", "use_liger_kernel=true for Liger's"},
    {"gradient_checkpointing", "--recompute block, or none"},
    {"disable_gradient_checkpointing", "--recompute none"},
    {"gradient_accumulation_steps", "--accumulate N"},
    {"per_device_train_batch_size", "--micro-batch N"},
    {"micro_batch_size", "--micro-batch N"},
    {"sequence_len", "--seq N"},
    {"cutoff_len", "--seq N"},
    {"max_length", "--seq N"},
    {"max_grad_norm", "--clip X"},
    {"load_in_4bit", "--quantize nf4+dq with --lora"},
    {"load_in_8bit", "--quantize int8 with --lora"},
    {"quantization_bit", "--quantize nf4+dq or int8, with --lora"},
    {"packing", "--packing wrapped or off"},
    {"deepspeed", "zero_stage=1, 2 or 3 with --ranks"},
};

static const known_name *named_in(const known_name *list, size_t count, const char *text, size_t length) {
  for (size_t i = 0; i < count; i++)
    if (strlen(list[i].name) == length && memcmp(list[i].name, text, length) == 0) return &list[i];
  return NULL;
}

/* A name that is no setting here, though people know it. */
static hr_status refuse_known(const char *text, size_t length, hr_error *error) {
  const known_name *k = named_in(absent, sizeof absent / sizeof *absent, text, length);
  if (k) {
    hri_fail(error, HR_ERROR_UNSUPPORTED, "--engine pytorch has no rules for %s", k->name);
    return hri_hint(error, HR_ERROR_UNSUPPORTED, "%s", k->instead);
  }
  k = named_in(elsewhere, sizeof elsewhere / sizeof *elsewhere, text, length);
  if (!k) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "settings of --engine pytorch: %s has another name here", k->name);
  return hri_hint(error, HR_ERROR_USAGE, "%s", k->instead);
}

/* Which settings were named; none is twice, since one of the two would be ignored. */
typedef uint64_t named_keys;
_Static_assert(KEYS <= 64, "a bit for each");

static hr_status one(const hri_torch_setting *s, hri_torch_settings *out, named_keys *named, hr_error *error) {
  static const words names = {keys, KEYS};
  uint32_t k = find(&names, s->name, s->name_length), found;
  if (k == KEYS) {
    HRI_TRY(refuse_known(s->name, s->name_length, error));
    return refuse("setting", &names, s->name, s->name_length, error);
  }
  if (*named & 1ull << k)
    return hri_fail(error, HR_ERROR_USAGE, "settings of --engine pytorch: %s is named twice; leave one of them out",
                    keys[k]);
  *named |= 1ull << k;
  if (!values[k].list) return counted((key)k, s->value, s->value_length, out, error);
  const size_t length = k == TRANSFORMERS ? version_length(s->value, s->value_length) : s->value_length;
  found = find(&values[k], s->value, length);
  if (found == values[k].count) return refuse(keys[k], &values[k], s->value, length, error);
  store(out, (key)k, found);
  return HR_OK;
}

const char *hri_torch_shared_ddp(const hri_torch_shared *s) {
  if (s->find_unused) return keys[FIND_UNUSED];
  if (s->bucket_view) return keys[BUCKET_VIEW];
  return s->bucket_mb ? keys[BUCKET_MB] : NULL;
}

const char *hri_torch_shared_fsdp(const hri_torch_shared *s) {
  if (s->reshards) return keys[RESHARDS];
  if (s->offload) return keys[OFFLOAD];
  if (s->wrapped) return keys[WRAPPED];
  if (s->fsdp_version) return keys[FSDP_VERSION];
  if (s->param) return keys[PARAM_TYPE];
  return s->reduce ? keys[REDUCE_TYPE] : NULL;
}

const char *hri_torch_shared_zero(const hri_torch_shared *s) {
  if (s->offload_optimizer) return keys[OFFLOAD_OPTIMIZER];
  return s->reduce_elements ? keys[REDUCE_ELEMENTS] : hri_torch_shared_zero3(s);
}

const char *hri_torch_shared_zero3(const hri_torch_shared *s) {
  if (s->offload_param) return keys[OFFLOAD_PARAM];
  return s->prefetch_elements ? keys[PREFETCH_ELEMENTS] : NULL;
}

static void trim(const char **text, size_t *length) {
  while (*length && strchr(" \t", **text)) (*text)++, (*length)--;
  while (*length && strchr(" \t", (*text)[*length - 1])) (*length)--;
}

bool hri_torch_setting_next(const char **text, hri_torch_setting *out) {
  size_t length;
  const char *equals;
  if (!*text || !**text) return false;
  length = strcspn(*text, ",");
  equals = memchr(*text, '=', length);
  *out = (hri_torch_setting){.name = *text, .name_length = equals ? (size_t)(equals - *text) : length, .value = ""};
  if (equals) *out = (hri_torch_setting){*text, out->name_length, equals + 1, length - out->name_length - 1};
  trim(&out->name, &out->name_length);
  trim(&out->value, &out->value_length);
  *text += length + ((*text)[length] == ',');
  return true;
}

hr_status hri_torch_settings_parse(const char *text, hri_torch_settings *out, hr_error *error) {
  named_keys named = 0;
  hri_torch_setting next;
  memset(out, 0, sizeof *out);
  while (hri_torch_setting_next(&text, &next)) HRI_TRY(one(&next, out, &named, error));
  return check_evaluation(out, error);
}
