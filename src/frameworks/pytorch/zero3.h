/* DeepSpeed's ZeRO, stage 3, on one of several ranks: a part of every parameter is kept, and the whole is gathered for each module that wants it,
 * in its forward and in its backward. The first step records in which order modules run; later ones gather ahead by it, and keep what is used
 * again soon.
 *
 * Sources: deepspeed/runtime/zero/{stage3,partitioned_param_coordinator,parameter_offload,partition_parameters,linear}.py. */
#ifndef HRI_PYTORCH_ZERO3_H
#define HRI_PYTORCH_ZERO3_H

#include "frameworks/pytorch/module.h"

typedef struct hri_zero3_settings {
  uint32_t ranks;
  bool offload, offload_parameters; /* fp32 weights and states on the host; parts of parameters too */
  bool two_groups;                  /* the Trainer's: matrices, which decay, and the rest */
  uint64_t bucket;                  /* reduce_bucket_size, in elements; 0: 500,000,000 */
  uint64_t prefetch;                /* stage3_prefetch_bucket_size; 0: 50,000,000 */
} hri_zero3_settings;

typedef enum hri_zero3_state { HRI_ZERO3_PART = 0, HRI_ZERO3_COMING, HRI_ZERO3_WHOLE } hri_zero3_state;

/* Parameters that were gathered into one tensor of each type: each becomes a copy when the first of them is waited for. */
typedef struct hri_zero3_gather {
  hri_ten *flats[2]; /* of weights, of codes in bytes; both NULL: of one parameter, whose bytes it is */
  uint32_t *members, count, holders;
  bool complete;
} hri_zero3_gather;

typedef struct hri_zero3_parameter {
  hri_zero3_state state;
  hri_zero3_gather *coming; /* while it is COMING, or until its module has waited */
  bool persists;            /* small: never given back by a module */
  uint32_t active;          /* modules that run with it */
  uint32_t owners;          /* modules whose backward made it run again and is not through */
  bool external; /* an adapted module runs, which looked at it: DeepSpeed calls it an external parameter of that */
  int64_t fetched_for; /* the latest step of the trace that it was fetched for */
} hri_zero3_parameter;

/* A module's turn: its own parameters, -1: none. */
typedef struct hri_zero3_call {
  int32_t parameters[2];
} hri_zero3_call;
typedef struct hri_zero3_use {
  int32_t parameter;
  uint32_t step;
} hri_zero3_use;

/* A frozen parameter that a module of a checkpointed region had when it ran again, and the module whose backward made it run. */
typedef struct hri_zero3_again {
  uint32_t owner, parameter;
} hri_zero3_again;

/* Whether a module that is through keeps a parameter, by the step of the trace: DeepSpeed decides once and remembers it. */
typedef struct hri_zero3_decision {
  uint32_t step;
  int32_t parameter;
  bool keeps;
} hri_zero3_decision;

typedef struct hri_zero3_group { /* sub_group: what the optimizer steps on at a time */
  uint64_t elements;
  hri_ten *master;
} hri_zero3_group;

typedef struct hri_zero3 {
  hri_zero3_settings settings;
  hri_module *module;
  hri_ten_type type;
  hri_zero3_parameter *parameters;
  HRI_ARRAY(hri_zero3_call) order; /* as modules ran in the first step, forward and backward */
  HRI_ARRAY(hri_zero3_use) uses;   /* of parameters, by it */
  HRI_ARRAY(hri_zero3_group) groups;
  bool traced;
  bool boundary;           /* the micro-step is the last of its step */
  uint32_t step, next_use; /* modules that had their turn; uses that were fetched */
  int64_t
      available; /* elements of parameters that are whole or coming since the forward began; below zero when more went */
  hri_ten *parts, *bucket, *gradients; /* of this rank, of all parameters; the bucket, which stays */
  uint64_t filled;
  uint32_t *waiting, waiting_count;
  HRI_ARRAY(uint32_t)
  entered, running; /* numbers of modules: whose forward runs, one within the other; whose backward does */
  HRI_ARRAY(hri_zero3_again) again;
  HRI_ARRAY(hri_zero3_decision) decisions; /* steps in order */
  uint32_t modules;                        /* numbers that were given */
} hri_zero3;

/* deepspeed.initialize: the parameters of `module`, which are on the device, are partitioned. */
void hri_zero3_init(hri_torch *t, hri_zero3 *zero, hri_module *module, const hri_zero3_settings *settings,
                    hri_ten_type type);
void hri_zero3_deinit(hri_zero3 *zero);
void hri_zero3_before_forward(hri_torch *t, hri_zero3 *zero);
void hri_zero3_after_backward(hri_torch *t, hri_zero3 *zero);
/* engine.step(): before all groups; before and behind the optimizer's step of each; behind all. */
void hri_zero3_begin_step(hri_torch *t, hri_zero3 *zero);
void hri_zero3_before_group(hri_torch *t, hri_zero3 *zero, hri_zero3_group *group);
void hri_zero3_after_group(hri_torch *t, hri_zero3_group *group);
void hri_zero3_end_step(hri_torch *t, hri_zero3 *zero);

#endif
