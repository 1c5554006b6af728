/* Names of the instruction levels. */
#include "ops/isa.h"

#include <string.h>

static const char *const names[HRI_ISA_COUNT] = {"base", "avx2", "avx512", "avx512bf16", "amx", "neon", "neonbf16"};

const char *hri_isa_name(hri_isa isa) { return (unsigned)isa < HRI_ISA_COUNT ? names[isa] : "unknown"; }

static bool of_arm(hri_isa isa) { return isa >= HRI_ISA_NEON; }

bool hri_isa_has(hri_isa isa, hri_isa wanted) {
  return wanted == HRI_ISA_BASE || (wanted <= isa && of_arm(wanted) == of_arm(isa));
}

bool hri_isa_parse(const char *text, hri_isa *isa) {
  for (int i = 0; text && i < HRI_ISA_COUNT; i++)
    if (strcmp(text, names[i]) == 0) {
      *isa = (hri_isa)i;
      return true;
    }
  return false;
}
