/* DeepSpeed's ZeRO, stages 1 and 2, on one of several ranks: weights are whole, in one flat tensor; the optimizer steps on this rank's part of
 * it, in fp32. Gradients go through a bucket of fixed size; of stage 2 those of other ranks' parts go with it.
 *
 * Source: deepspeed/runtime/zero/stage_1_and_2.py. */
#ifndef HRI_PYTORCH_ZERO_H
#define HRI_PYTORCH_ZERO_H

#include "frameworks/pytorch/module.h"

typedef struct hri_zero_settings {
  uint32_t ranks, stage; /* 1, 2 */
  bool offload;          /* offload_optimizer: fp32 weights, states and the step are on the host */
  bool two_groups;       /* the Trainer's: matrices, which decay, and the rest */
  uint64_t bucket;       /* reduce_bucket_size, in elements; 0: DeepSpeed's 500,000,000 */
} hri_zero_settings;

enum { HRI_ZERO_GROUPS = 2 };

typedef struct hri_zero_group { /* of the optimizer's parameters */
  uint64_t elements, part;      /* of all; of each rank's part */
  uint32_t inside;              /* parameters that lie in this rank's part, if only partly */
  hri_ten *flat, *master;       /* all weights; this rank's part, in fp32 */
} hri_zero_group;

typedef struct hri_zero {
  hri_zero_settings settings;
  hri_module *module;
  hri_ten_type type; /* of weights and gradients */
  uint64_t *offsets; /* of each parameter in the flat tensor of its group */
  hri_zero_group groups[HRI_ZERO_GROUPS];
  uint32_t group_count;
  hri_ten *spare;                   /* with offload: what gradients go through on their way to the host */
  hri_ten *bucket;                  /* from the first gradient of a backward to its end */
  uint64_t filled;                  /* elements of it */
  hri_ten *kept;                    /* gradients of this rank's parameters, whole */
  hri_ten *accumulated;             /* the same of the micro-steps so far */
  bool boundary;                    /* the micro-step is the last of its step */
  uint32_t *waiting, waiting_count; /* parameters in the bucket */
} hri_zero;

/* deepspeed.initialize: the parameters of `module`, which are on the device, get the type that it is told, and those that train become views of a flat
 * tensor. */
void hri_zero_init(hri_torch *t, hri_zero *zero, hri_module *module, const hri_zero_settings *settings,
                   hri_ten_type type);
void hri_zero_deinit(hri_zero *zero);
/* engine.backward() when it has gone through the graph: what is left to reduce. */
void hri_zero_after_backward(hri_torch *t, hri_zero *zero);
/* engine.step(): the norm; then for each group the gradient of its `master`, the optimizer's step, and its end. */
void hri_zero_begin_step(hri_torch *t, hri_zero *zero);
void hri_zero_before_group(hri_torch *t, hri_zero *zero, hri_zero_group *group);
void hri_zero_after_group(hri_torch *t, hri_zero *zero, hri_zero_group *group);

#endif
