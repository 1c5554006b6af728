/* Settings of torchtune's recipes (settings.h), by the keys of their configurations. Those that an option of the job stands for are said with
 * it, and what there are no rules for is refused by its name. */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "frameworks/pytorch/settings.h"

static const char *const optims[] = {"torch.optim.AdamW", "bitsandbytes.optim.AdamW8bit",
                                     "bitsandbytes.optim.PagedAdamW8bit", "torch.optim.SGD", NULL};
static const char *const losses[] = {"torchtune.modules.loss.CEWithChunkedOutputLoss", "torch.nn.CrossEntropyLoss",
                                     NULL};
static const char *const truths[] = {"False", "True", "false", "true", NULL};

typedef enum key { OPTIMIZER = 0, FUSED, LOSS, CHUNKS, PACKED, OFFLOADING, COMPILE, KEYS } key;
static const struct {
  const char *name;
  const char *const *values; /* NULL: a number */
} keys[KEYS] = {
    [OPTIMIZER] = {"optimizer._component_", optims},
    [FUSED] = {"optimizer.fused", truths},
    [LOSS] = {"loss._component_", losses},
    [CHUNKS] = {"loss.num_output_chunks", NULL},
    [PACKED] = {"dataset.packed", truths},
    [OFFLOADING] = {"enable_activation_offloading", truths},
    [COMPILE] = {"compile", truths},
};

/* Keys that options of the job stand for. */
static const struct {
  const char *key, *option;
} of_job[] = {
    {"batch_size", "--micro-batch N"},
    {"gradient_accumulation_steps", "--accumulate N"},
    {"dtype", "--precision bf16-pure or fp32"},
    {"enable_activation_checkpointing", "--recompute block"},
    {"optimizer_in_bwd", "--update in-backward"},
    {"clip_grad_norm", "--clip X"},
    {"tokenizer.max_seq_len", "--seq N"},
    {"model.lora_rank", "--lora r=N"},
    {"model.lora_attn_modules", "--lora targets=..."},
    {"model.apply_lora_to_mlp", "--lora targets=..."},
    {"model.lora_dropout", "--lora dropout=X"},
};

#define WHO "settings of --engine pytorch:torchtune: "

static bool is(const char *word, const char *text, size_t length) {
  return strlen(word) == length && memcmp(word, text, length) == 0;
}

static int shown(size_t length) { return (int)(length < 60 ? length : 60); }

static hr_status unknown(const char *text, size_t length, hr_error *error) {
  hri_text all = {0};
  hri_fail(error, HR_ERROR_USAGE, WHO "'%.*s' is no setting", shown(length), text);
  for (size_t i = 0; i < sizeof of_job / sizeof *of_job; i++)
    if (is(of_job[i].key, text, length)) return hri_hint(error, HR_ERROR_USAGE, "%s stands for it", of_job[i].option);
  for (int k = 0; k < KEYS; k++) hri_text_add(&all, "%s%s", k ? ", " : "", keys[k].name);
  hri_hint(error, HR_ERROR_USAGE, "one of %s", hri_text_get(&all));
  hri_text_deinit(&all);
  return HR_ERROR_USAGE;
}

static hr_status bad_value(key k, const char *text, size_t length, hr_error *error) {
  hri_text all = {0};
  hri_fail(error, HR_ERROR_USAGE, WHO "'%.*s' is no %s", shown(length), text, keys[k].name);
  for (int i = 0; keys[k].values[i] && (keys[k].values != truths || i < 2); i++)
    hri_text_add(&all, "%s%s", i ? ", " : "", keys[k].values[i]);
  hri_hint(error, HR_ERROR_USAGE, "one of %s", hri_text_get(&all));
  hri_text_deinit(&all);
  return HR_ERROR_USAGE;
}

static hr_status counted(const char *text, size_t length, hri_recipe_settings *out, hr_error *error) {
  uint32_t value = 0;
  for (size_t i = 0; i < length && value <= HRI_MOST_OUTPUT_CHUNKS; i++)
    value = text[i] >= '0' && text[i] <= '9' ? 10 * value + (uint32_t)(text[i] - '0') : HRI_MOST_OUTPUT_CHUNKS + 1;
  if (value == 0 || value > HRI_MOST_OUTPUT_CHUNKS)
    return hri_fail(error, HR_ERROR_USAGE, WHO "%s is a number from 1 to %d, not '%.*s'", keys[CHUNKS].name,
                    HRI_MOST_OUTPUT_CHUNKS, shown(length), text);
  out->chunks = value;
  return HR_OK;
}

/* What is the default is no more than that; the other way there are no rules for. */
static hr_status refuse(key k, hr_error *error) {
  static const char *const whys[KEYS] =
      {[OFFLOADING] = "what is still on the device then depends on copies; enable_activation_offloading=False",
       [COMPILE] = "a compiled model makes tensors of its own; compile=False"};
  hri_fail(error, HR_ERROR_UNSUPPORTED, "--engine pytorch:torchtune has no rules for %s=True", keys[k].name);
  return hri_hint(error, HR_ERROR_UNSUPPORTED, "%s", whys[k]);
}

static hr_status store(key k, uint32_t value, hri_torch_settings *out, hr_error *error) {
  static const hri_torch_optim kinds[] = {HRI_OPTIM_ADAMW_TORCH, HRI_OPTIM_ADAMW_BNB_8BIT, HRI_OPTIM_PAGED_ADAMW_8BIT,
                                          HRI_OPTIM_SGD};
  if (k == OPTIMIZER) out->optim = kinds[value];
  else if (k == LOSS) out->recipe.whole_loss = value == 1;
  else if (k == FUSED) out->recipe.fused = value % 2 ? HRI_TRUE : HRI_FALSE;
  else if (k == PACKED) out->recipe.packed = value % 2;
  else if (value % 2) return refuse(k, error);
  return HR_OK;
}

/* `named`: a bit for each key that was named; none is twice, since one of the two would be ignored. */
static hr_status one(const hri_torch_setting *s, hri_torch_settings *out, uint32_t *named, hr_error *error) {
  for (int k = 0; k < KEYS; k++) {
    if (!is(keys[k].name, s->name, s->name_length)) continue;
    if (*named & 1u << k)
      return hri_fail(error, HR_ERROR_USAGE, WHO "%s is named twice; leave one of them out", keys[k].name);
    *named |= 1u << k;
    if (!keys[k].values) return counted(s->value, s->value_length, &out->recipe, error);
    for (uint32_t i = 0; keys[k].values[i]; i++)
      if (is(keys[k].values[i], s->value, s->value_length)) return store((key)k, i, out, error);
    return bad_value((key)k, s->value, s->value_length, error);
  }
  return unknown(s->name, s->name_length, error);
}

hr_status hri_recipe_settings_parse(const char *text, hri_torch_settings *out, hr_error *error) {
  uint32_t named = 0;
  hri_torch_setting next;
  memset(out, 0, sizeof *out);
  while (hri_torch_setting_next(&text, &next)) HRI_TRY(one(&next, out, &named, error));
  if (out->recipe.whole_loss && out->recipe.chunks)
    return hri_fail(error, HR_ERROR_USAGE, WHO "loss.num_output_chunks is of CEWithChunkedOutputLoss");
  if (out->recipe.fused && out->optim && out->optim != HRI_OPTIM_ADAMW_TORCH)
    return hri_fail(error, HR_ERROR_USAGE, WHO "optimizer.fused is of torch.optim.AdamW here");
  return HR_OK;
}

const char *hri_recipe_optimizer(hri_torch_optim optim) {
  if (optim == HRI_OPTIM_ADAMW_BNB_8BIT) return optims[1];
  if (optim == HRI_OPTIM_PAGED_ADAMW_8BIT) return optims[2];
  return optim == HRI_OPTIM_SGD ? optims[3] : optims[0];
}

const char *hri_recipe_loss(const hri_recipe_settings *settings) { return losses[settings->whole_loss]; }
