/* A linear module as it runs: whole or quantized, with the adapter that PEFT puts beside it. */
#ifndef HRI_PYTORCH_ADAPTERS_H
#define HRI_PYTORCH_ADAPTERS_H

#include "frameworks/pytorch/module.h"

/* y = module(x), a new reference. `name` for labels. */
hri_ten *hri_module_apply(hri_torch *t, const hri_module *module, const char *name, const hri_module_linear *linear,
                          hri_ten *x);
/* The same of a module that is whole and has no adapter, the head among them. */
hri_ten *hri_module_apply_whole(hri_torch *t, const hri_module *module, const char *name,
                                const hri_module_linear *linear, hri_ten *x);
/* A module's turn begins: what it gets instead of `x`, a new reference; and ends: `*y` is what its caller gets. */
hri_ten *hri_module_begins(hri_torch *t, const hri_module *module, const char *name, hri_ten *a, hri_ten *b,
                           hri_ten *x);
void hri_module_ends(hri_torch *t, const hri_module *module, hri_ten *a, hri_ten *b, hri_ten **y);
/* DoRA's result, of PEFT as of torchtune: (scale - 1) * base + scale * lora * scaling. */
hri_ten *hri_dora_combined(hri_torch *t, hri_ten *scale, hri_ten *base, hri_ten *lora);
/* What PEFT makes to find the magnitudes that DoRA begins with, and the parameter, in the type of `weight`'s values. */
hri_ten *hri_dora_begin(hri_torch *t, const hri_module_linear *linear, hri_ten_type type);

#endif
