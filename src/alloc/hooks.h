/* What the two kinds of hooks share. */
#ifndef HRI_ALLOC_HOOKS_H
#define HRI_ALLOC_HOOKS_H

#include <headroom/alloc.h>

#include "base/mem.h"

bool hri_hooks_are_fake(const hr_alloc_hooks *hooks);
void hri_fake_hooks_destroy(void *context);

#endif
