/* Optimizers: the one table of what an optimizer keeps of a parameter, which numbers its step takes, and its op.
 *
 * The builder makes the tensors of a row, the precision pass narrows those that may be, layout gathers them, the update
 * pass emits the op, its rule checks them, and weights, checkpoints and messages name them: all of it by this table. A
 * new optimizer is its word in headroom/job.h, a row here, and a kernel and a reference in ops/optim. */
#ifndef HRI_PROGRAM_OPTIMIZER_H
#define HRI_PROGRAM_OPTIMIZER_H

#include <stddef.h>

#include <headroom/job.h>

#include "program/job.h"

/* One tensor of a state. `per`: so many elements of the parameter share one entry (1: each has its own; the scales of
 * blocks of 256 have 256); a part whose kind has blocks starts them anew. States begin as zero bytes. */
typedef struct hri_state_tensor {
  const char *name; /* in checkpoints, behind the parameter's: PyTorch's word */
  hri_dtype dtype;
  bool narrow; /* --moments bf16 applies to it */
  uint32_t per;
} hri_state_tensor;

enum { HRI_STATE_NUMBERS = 3 };

typedef struct hri_optimizer {
  uint16_t op;
  bool divides_by_epsilon; /* 0 is refused */
  uint32_t tensor_count;
  hri_state_tensor tensors[HRI_STATE_TENSORS];
  size_t numbers[HRI_STATE_NUMBERS]; /* what f0 to f2 of its nodes are: fields of hr_job, 0 ends */
  /* Not for all parts: those with fewer elements, and embeddings and norms unless asked for, have states of the kind
   * `wide`. 0: for all. */
  uint32_t least_elements;
  hr_optimizer wide;
} hri_optimizer;

#define HRI_NUMBER(field) offsetof(hr_job, field)

/* X(enumerator of hr_optimizer, op, operands of the op, row). Operands: g, control, w (the master if there is one), the
 * state's tensors in order, copy of w in 16 bits?, guard? */
#define HRI_OPTIMIZERS(X)                                                                                              \
  X(ADAMW, "adamw", "RRUUUug", .tensor_count = 2,                                                                      \
    .tensors = {{"exp_avg", HRI_F32, true, 1}, {"exp_avg_sq", HRI_F32, true, 1}},                                      \
    .numbers = {HRI_NUMBER(beta1), HRI_NUMBER(beta2), HRI_NUMBER(epsilon)}, .divides_by_epsilon = true)                \
  X(SGD, "sgd", "RRUug", .tensor_count = 0)                                                                            \
  X(MOMENTUM, "momentum", "RRUUug", .tensor_count = 1, .tensors = {{"exp_avg", HRI_F32, true, 1}},                     \
    .numbers = {HRI_NUMBER(momentum)})                                                                                 \
  X(ADAMW8BIT, "adamw8bit", "RRUUUUUug", .tensor_count = 4,                                                            \
    .tensors = {{"exp_avg_codes", HRI_U8, false, 1},                                                                   \
                {"exp_avg_sq_codes", HRI_U8, false, 1},                                                                \
                {"exp_avg_absmax", HRI_F32, false, 256},                                                               \
                {"exp_avg_sq_absmax", HRI_F32, false, 256}},                                                           \
    .numbers = {HRI_NUMBER(beta1), HRI_NUMBER(beta2), HRI_NUMBER(epsilon)}, .divides_by_epsilon = true,                \
    .least_elements = 4096, .wide = HR_OPTIMIZER_ADAMW)                                                                \
  X(LION, "lion", "RRUUug", .tensor_count = 1, .tensors = {{"exp_avg", HRI_F32, true, 1}},                             \
    .numbers = {HRI_NUMBER(beta1), HRI_NUMBER(beta2)})                                                                 \
  X(LION8BIT, "lion8bit", "RRUUUug", .tensor_count = 2,                                                                \
    .tensors = {{"exp_avg_codes", HRI_U8, false, 1}, {"exp_avg_absmax", HRI_F32, false, 256}},                         \
    .numbers = {HRI_NUMBER(beta1), HRI_NUMBER(beta2)}, .least_elements = 4096, .wide = HR_OPTIMIZER_LION)

/* The kind of state of a part of so many elements under an optimizer. `sensitive`: an embedding (not an untied head) or
 * a norm; `all`: the job wants those like others. */
hr_optimizer hri_state_kind(hr_optimizer optimizer, uint64_t elements, bool sensitive, bool all);

/* The row of a kind, which is a value of hr_optimizer. */
const hri_optimizer *hri_optimizer_get(uint32_t kind);

/* The kind whose op this is, HRI_NONE for an op that is no update. */
uint32_t hri_optimizer_of(uint16_t op);

/* Entries of a state's tensor for a run of `elements` elements. */
uint64_t hri_state_entries(const hri_state_tensor *tensor, uint64_t elements);

/* The most elements that share an entry: 1 where every element stands alone. */
uint32_t hri_state_block(uint32_t kind);

/* Bytes of all states of `elements` elements; `narrow`: bf16 where the row allows it. */
uint64_t hri_state_bytes(uint32_t kind, uint64_t elements, bool narrow);

#endif
