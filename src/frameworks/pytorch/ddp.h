/* torch.nn.parallel.DistributedDataParallel on one of several ranks: every rank has the whole model, and gradients are summed over all ranks
 * in buckets, flat tensors that live beside the gradients or, with gradient_as_bucket_view, instead of them.
 *
 * Sources: torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp and comm.hpp. */
#ifndef HRI_PYTORCH_DDP_H
#define HRI_PYTORCH_DDP_H

#include "frameworks/pytorch/module.h"

typedef struct hri_ddp_settings {
  uint32_t ranks;
  bool bucket_view;      /* gradient_as_bucket_view */
  bool find_unused;      /* find_unused_parameters: buckets stay as they were made, and results are cloned */
  uint64_t bucket_bytes; /* bucket_cap_mb; 0: not named, then 25 MiB, and 1 MiB for the first */
} hri_ddp_settings;

typedef struct hri_ddp_bucket {
  hri_ten_type type;
  uint64_t elements;
  hri_ten *tensor;
} hri_ddp_bucket;

typedef struct hri_ddp {
  hri_ddp_settings settings;
  hri_module *module;
  hri_ten **trained; /* parameters that train, in their order, borrowed; a parameter's `place` is its index */
  uint32_t *bucket_of, *arrived;
  uint32_t count, arrived_count;
  HRI_ARRAY(hri_ddp_bucket) buckets;
  hri_ten *used; /* the map of parameters that were used, where unused ones are looked for */
  bool rebuilt;
  bool exchanges; /* false under no_sync() */
} hri_ddp;

/* dist._broadcast_coalesced: tensors of a type are joined. */
void hri_ddp_broadcast(hri_torch *t, hri_ten *const *tensors, uint32_t count);

/* DistributedDataParallel(module): sends the weights of rank 0 to all, and makes the buckets. */
void hri_ddp_init(hri_torch *t, hri_ddp *ddp, hri_module *module, const hri_ddp_settings *settings);
void hri_ddp_deinit(hri_ddp *ddp); /* the lists; tensors live as long as the process */
/* What its forward does before that of the model: with gradients, buckets are made anew once, in the order in which gradients came. */
void hri_ddp_before_forward(hri_torch *t, hri_ddp *ddp);
/* And behind it: results pass through a function of autograd that clones them, where unused parameters are looked for. */
void hri_ddp_after_forward(hri_torch *t, hri_ddp *ddp, hri_module_output *out);

#endif
