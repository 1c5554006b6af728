/* What the rules were recorded from, which jobs the recordings stand for, and how far the rules are off in them (docs/pytorch.md). */
#ifndef HRI_PYTORCH_RECORDED_H
#define HRI_PYTORCH_RECORDED_H

#include "frameworks/pytorch/loop.h"
#include "frameworks/pytorch/settings.h"
#include "frameworks/pytorch/stack.h"

/* Where PyTorch's allocated peak lies in all recordings, as a share of what is found here: tests/unit/test_pytorch.c holds
 * every job against it (-0.82 % and +0.38 % are the widest). */
#define HRI_TORCH_ERROR_LOW (-0.009)
#define HRI_TORCH_ERROR_HIGH 0.004
/* What is allowed for where a rule was read off the framework's source and held against nothing. */
#define HRI_TORCH_ERROR_OF_SOURCE_LOW (-0.03)
#define HRI_TORCH_ERROR_OF_SOURCE_HIGH 0.03

/* Whether recordings have all that makes the job up; else some of its rules are from the framework's source alone. */
bool hri_torch_is_recorded(const hri_torch_job *job, const hri_torch_settings *settings, const hri_torch_stack *stack);
/* "PyTorch 2.14, transformers 5": static. */
const char *hri_torch_recorded_versions(const hri_torch_settings *settings, const hri_torch_stack *stack);

#endif
