/* Autocast (aten/src/ATen/autocast_mode.cpp): what arguments of an op become before it runs, and the cache of what parameters became.
 *
 * hri_torch.autocast is the type of the outermost torch.autocast(...), HRI_F32 outside of it, where all of this gives back what it gets. */
#ifndef HRI_PYTORCH_AUTOCAST_H
#define HRI_PYTORCH_AUTOCAST_H

#include "frameworks/pytorch/eager.h"

/* x as products take it, in the lower type: a new reference. A parameter that requires grad and is fp32 is cast once
 * until the outermost autocast exits; all else each time. */
hri_ten *hri_autocast_lower(hri_torch *t, hri_ten *x);
/* As ops that need the range take it: a new reference. */
hri_ten *hri_autocast_fp32(hri_torch *t, hri_ten *x);
/* The outermost autocast ends: the cache is emptied. */
void hri_autocast_exit(hri_torch *t);

#endif
