/* --lora in words: which modules of a model get adapters, and of what kind. */
#ifndef HRI_MODEL_LORA_H
#define HRI_MODEL_LORA_H

#include <headroom/model.h>

/* `quantized`: the weights are, so that all-linear is the default (QLoRA).
 * "r=16,alpha=32,targets=q_proj,v_proj,dropout=0.05,rslora,init=gaussian,layers=8-15,20". A bare word goes on with the
 * list before it, unless it is rslora. `targets`: names of modules as a file has them, or all-linear; without it what
 * PEFT adapts in the family. Defaults are PEFT's: r 8, alpha 8, no dropout, all layers. USAGE names the word and what
 * there is instead. */
hr_status hri_lora_parse(const char *text, const hr_model *model, bool quantized, hr_lora *out, hr_error *error);

/* Whether PEFT adapts the module `name` for `target`: it is that name, or its end behind a dot. */
bool hri_lora_matches(const char *name, const char *target);
/* One target, as PEFT matches it: the end of a module's name behind a dot, or "all-linear". False: no module of the
 * family has it. */
bool hri_lora_add_target(const hr_model *model, const char *name, hr_lora *lora);
/* Every layer of the model. */
void hri_lora_all_layers(const hr_model *model, hr_lora *lora);

/* Ranges and what the model has; USAGE. */
hr_status hri_lora_check(const hr_model *model, const hr_lora *lora, hr_error *error);

#endif
