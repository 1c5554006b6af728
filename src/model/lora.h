/* --lora in words: which modules of a model get adapters, and of what kind; and what PEFT's ways of naming modules mean. */
#ifndef HRI_MODEL_LORA_H
#define HRI_MODEL_LORA_H

#include <headroom/model.h>

/* `quantized`: the weights are, so that all-linear is the default (QLoRA).
 * "r=16,alpha=32,targets=q_proj,v_proj,dropout=0.05,rslora,dora,init=gaussian,layers=8-15,20,rank_pattern=q_proj:8,
 * alpha_pattern=o_proj:4,bias=all,modules_to_save=lm_head". A bare word goes on with the list before it, unless it is rslora
 * or dora; commas inside of brackets part nothing. `targets`: names of modules as a file has them, regular expressions
 * of their paths, or all-linear; without it what PEFT adapts in the family. Defaults are PEFT's: r 8, alpha 8, no
 * dropout, all layers. USAGE names the word and what there is instead. */
hr_status hri_lora_parse(const char *text, const hr_model *model, bool quantized, hr_lora *out, hr_error *error);

/* ---- for --lora and adapter_config.json alike ---- */

/* A module matches the name of its end behind a dot, or its whole path; or all-linear. Adds what does to lora->modules and
 * lora->embedding; false: nothing does. */
bool hri_lora_add_target(const hr_model *model, const char *target, hr_lora *lora);
/* The same for an expression that must match a module's whole path, as PEFT takes a target_modules that is a text. NULL,
 * or what is wrong with the expression. */
const char *hri_lora_add_pattern(const hr_model *model, const char *expression, hr_lora *lora, bool *found);
/* Whether the name means any module of the model at all, also one that can have no adapter here (a norm, the head). */
bool hri_lora_names_module(const hr_model *model, const char *target);
/* Every module outside of linear ones whose path ends in `name`, with or without a dot before it, trains whole. NULL, or
 * why it cannot be. */
const char *hri_lora_add_saved(const hr_model *model, const char *name, hr_lora *lora);

/* An entry of rank_pattern or alpha_pattern: the first whose expression matches the end of a module's path behind a dot
 * says its rank or alpha. */
typedef struct hri_lora_rule {
  const char *key;
  double value;
  bool used; /* set: some adapter goes by it */
} hri_lora_rule;
/* Fills kinds and own of the modules that lora has. NULL, or what is wrong with rules[*bad] (ranks first, then
 * alphas). */
const char *hri_lora_apply(const hr_model *model, hr_lora *lora, hri_lora_rule *rules, uint32_t ranks, uint32_t alphas,
                           uint32_t *bad);

/* The kind (hr_lora.kinds) of a rank and alpha, which lora->own gets if they are new. False: there are too many. */
bool hri_lora_kind(hr_lora *lora, uint32_t rank, double alpha, uint8_t *kind);

/* Why the embedding cannot have an adapter beside the rest; NULL: it can, or has none. */
const char *hri_lora_embedding_fault(const hr_lora *lora);

/* Ranges and what excludes what; USAGE. */
hr_status hri_lora_check(const hr_model *model, const hr_lora *lora, hr_error *error);

#endif
