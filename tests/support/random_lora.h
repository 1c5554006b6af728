/* Random words of --lora for a model, which hri_lora_parse takes: any rank, factor, targets, layers, dropout. */
#ifndef HRI_TEST_RANDOM_LORA_H
#define HRI_TEST_RANDOM_LORA_H

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/lora.h"
#include "model/params.h"
#include "support/random_family.h"

static inline void random_lora_list(const hr_model *m, random_draw draw, void *context, char out[512]) {
  size_t at = strlen(out);
  bool any = false;
  char name[96];
  if (draw(context, 4) == 0) {
    (void)snprintf(out + at, 512 - at, ",targets=all-linear");
    return;
  }
  for (int k = 0; k < HR_MODULE_COUNT; k++) {
    if (draw(context, 2) || !hri_module_name(m, (hr_module)k, -1, name)) continue;
    at += (size_t)snprintf(out + at, 512 - at, "%s%s", any ? "," : ",targets=", name);
    any = true;
  }
}

/* Without any of them: what a family takes by itself. */
static inline void random_lora(const hr_model *m, random_draw draw, void *context, char out[512]) {
  size_t at = (size_t)snprintf(out, 512, "r=%u", 1 + draw(context, 9));
  if (draw(context, 2)) at += (size_t)snprintf(out + at, 512 - at, ",alpha=%u", 1 + draw(context, 40));
  if (draw(context, 2)) random_lora_list(m, draw, context, out);
  at = strlen(out);
  if (draw(context, 3) == 0) at += (size_t)snprintf(out + at, 512 - at, ",dropout=0.%u", 1 + draw(context, 9));
  if (draw(context, 2)) at += (size_t)snprintf(out + at, 512 - at, ",rslora");
  if (draw(context, 2))
    at += (size_t)snprintf(out + at, 512 - at, ",init=%s", draw(context, 2) ? "gaussian" : "kaiming");
  at = strlen(out);
  if (!strstr(out, "dropout") && draw(context, 2)) at += (size_t)snprintf(out + at, 512 - at, ",dora");
  if (draw(context, 4) == 0)
    at += (size_t)snprintf(out + at, 512 - at, ",rank_pattern=.*[02]\\..*:%u", 1 + draw(context, 9));
  if (draw(context, 4) == 0) at += (size_t)snprintf(out + at, 512 - at, ",alpha_pattern=.*:%u", 1 + draw(context, 30));
  if (draw(context, 3) == 0)
    at += (size_t)snprintf(out + at, 512 - at, ",bias=%s", draw(context, 2) ? "all" : "lora_only");
  if (draw(context, 3) == 0)
    at += (size_t)snprintf(out + at, 512 - at, ",modules_to_save=%s",
                           draw(context, 2)              ? "lm_head"
                           : m->family == HR_FAMILY_GPT2 ? "wte,ln_f"
                                                         : "embed_tokens,norm");
  if (strstr(out, "rank_pattern") || draw(context, 3)) return; /* layer 0 has one of those */
  at += (size_t)snprintf(out + at, 512 - at, ",layers=%u", draw(context, m->layer_count));
  if (draw(context, 2)) (void)snprintf(out + at, 512 - at, "-%u,%u", m->layer_count - 1, draw(context, m->layer_count));
}

#endif
