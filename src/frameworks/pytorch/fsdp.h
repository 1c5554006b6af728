/* torch.distributed.fsdp.fully_shard, and FullyShardedDataParallel before it, on one of several ranks: each rank keeps a part of every parameter, and of gradients and optimizer states.
 * Parameters of a unit (a block, what is left) are gathered before they are used and given back behind it; the gradients of a unit are summed
 * over all ranks when its backward is through, and each rank keeps its part.
 *
 * The older one joins a unit's parameters to one flat tensor, which is cut anywhere; the newer one cuts each parameter by rows.
 *
 * Sources: torch/distributed/fsdp/_fully_shard/{_fsdp_param_group,_fsdp_collectives,_fsdp_param,_fsdp_state}.py, and
 * torch/distributed/fsdp/{_runtime_utils,_flat_param}.py, accelerate/utils/fsdp_utils.py for the units that the Trainer makes. */
#ifndef HRI_PYTORCH_FSDP_H
#define HRI_PYTORCH_FSDP_H

#include "frameworks/pytorch/ddp.h"

typedef struct hri_fsdp_settings {
  uint32_t ranks;
  bool flat; /* FullyShardedDataParallel, with use_orig_params */
  bool
      by_accelerate; /* embeddings, and norm with head, are units of their own; flat: nothing is gathered ahead, weights are sent to all ranks */
  bool keeps;        /* reshard_after_forward=False: blocks stay whole up to their backward */
  bool offload;      /* CPUOffloadPolicy: parts of parameters, gradients and states are on the host */
  bool mixed;        /* a MixedPrecisionPolicy: */
  hri_ten_type param, reduce; /* param_dtype and reduce_dtype; without a policy the type of the weights */
  bool casts_output;          /* output_dtype is param_dtype, as accelerate sets it */
} hri_fsdp_settings;

typedef enum hri_fsdp_state { HRI_FSDP_IDLE = 0, HRI_FSDP_FORWARD, HRI_FSDP_BEFORE, HRI_FSDP_BEHIND } hri_fsdp_state;

typedef struct hri_fsdp hri_fsdp;
typedef struct hri_fsdp_unit {
  hri_fsdp *fsdp;
  uint32_t *members, count;      /* indices of parameters */
  uint64_t elements;             /* of this rank's part, each parameter padded */
  uint64_t total;                /* of all parameters */
  hri_ten_type type, whole_type; /* flat: of the part; of what is gathered */
  bool reshards, whole;          /* `whole`: parameters are there */
  hri_fsdp_state state;
  hri_ten *whole_flat; /* flat: what all parameters are views of */
  hri_ten *unsharded;  /* flat: whole gradients of micro-steps under no_sync() */
  hri_ten *gathered;   /* what was gathered and is not copied to parameters yet */
  bool hooked;         /* its result has a hook that will gather it again */
  bool ran;            /* in this pass, as the `place`-th unit */
  uint32_t place;
  struct hri_fsdp_unit
      *reader; /* which takes its result and trains nothing: given back when the result's gradient is there */
} hri_fsdp_unit;

struct hri_fsdp {
  hri_fsdp_settings settings;
  hri_module *module;
  hri_ten **parts; /* of each parameter, this rank's; `grad` is of the part too. Of those on the host without bytes */
  hri_ten **given; /* what was on the device before: accelerate's state_dict holds it until all units are made */
  hri_ten **accumulated; /* whole gradients of micro-steps that did not exchange, in the type of `reduce` */
  hri_fsdp_unit *units; /* blocks; then those of embeddings, of norm and head, and of the model, where there are such */
  hri_fsdp_unit **order; /* as they ran */
  uint32_t *members;     /* of all units */
  uint32_t unit_count, order_count, layer_count, member_count;
  hri_fsdp_unit *embedding, *tail, *root; /* NULL: none */
  hri_fsdp_unit **adapters; /* of each parameter: the unit that a module of an adapter is; NULL: no such units */
  hri_ten *copied;          /* what the last unit of a forward was gathered in, kept while the next gathers */
  hri_ten *sent;            /* what the last unit's gradients were sent from, kept until the next one's are */
  bool begun;               /* the first forward was */
  bool exchanges;           /* set_requires_gradient_sync */
};

/* fully_shard of each block, then of the rest; parameters come to the device unit by unit. `module` was made without bytes. */
void hri_fsdp_init(hri_torch *t, hri_fsdp *fsdp, hri_module *module, const hri_fsdp_settings *settings);
void hri_fsdp_deinit(hri_fsdp *fsdp);
/* The model's forward is through: what it gives passes this. */
void hri_fsdp_after_forward(hri_torch *t, hri_fsdp *fsdp, hri_module_output *out);
/* What is left to do when loss.backward() has gone through the graph. */
void hri_fsdp_after_backward(hri_torch *t, hri_fsdp *fsdp);

#endif
