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
 * blocks of 256 have 256); a part whose kind has blocks starts them anew. HRI_STATE_FACTORS: an entry for each row of the
 * part and behind them one for each column; for each element where there is one column. States begin as zero bytes. */
enum { HRI_STATE_FACTORS = 0 };
typedef struct hri_state_tensor {
  const char *name; /* in checkpoints, behind the parameter's: PyTorch's word */
  hri_dtype dtype;
  bool narrow; /* --moments bf16 applies to it */
  uint32_t per;
} hri_state_tensor;

enum { HRI_STATE_NUMBERS = 4 };

typedef struct hri_optimizer {
  uint16_t op;
  bool divides_by_epsilon; /* 0 is refused */
  uint32_t tensor_count;
  hri_state_tensor tensors[HRI_STATE_TENSORS];
  size_t numbers[HRI_STATE_NUMBERS]; /* what f0 to f3 of its nodes are: fields of hr_job, 0 ends */
  /* Not for all parts: those with fewer elements, and embeddings and norms unless asked for, have states of the kind
   * `wide`. 0: for all. */
  uint32_t least_elements;
  hr_optimizer wide;
  /* Beside what a step moves once: what its arithmetic, and reading a gradient again, take the time of, in bytes per
   * element at the rate of AdamW's step in fp32. Measured on Zen 3 with AVX2, one thread (bench/optim.c). */
  uint32_t effort;
} hri_optimizer;

#define HRI_NUMBER(field) offsetof(hr_job, field)

/* X(enumerator of hr_optimizer, op, operands of the op, row). Operands: g, control, w, the state's tensors in
 * order, what stands beside w?, guard? With masters in fp16 w is the fp32 master and its copy stands beside it; in bf16 w is
 * the weight and the low half of its master stands beside it. */
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
    .least_elements = 4096, .wide = HR_OPTIMIZER_ADAMW, .effort = 52)                                                  \
  X(LION, "lion", "RRUUug", .tensor_count = 1, .tensors = {{"exp_avg", HRI_F32, true, 1}},                             \
    .numbers = {HRI_NUMBER(beta1), HRI_NUMBER(beta2)})                                                                 \
  X(LION8BIT, "lion8bit", "RRUUUug", .tensor_count = 2,                                                                \
    .tensors = {{"exp_avg_codes", HRI_U8, false, 1}, {"exp_avg_absmax", HRI_F32, false, 256}},                         \
    .numbers = {HRI_NUMBER(beta1), HRI_NUMBER(beta2)}, .least_elements = 4096, .wide = HR_OPTIMIZER_LION,              \
    .effort = 28)                                                                                                      \
  X(ADAFACTOR, "adafactor", "RRUUug", .tensor_count = 1,                                                               \
    .tensors = {{"exp_avg_sq_factors", HRI_F32, false, HRI_STATE_FACTORS}},                                            \
    .numbers = {HRI_NUMBER(adafactor_decay), HRI_NUMBER(adafactor_epsilon), HRI_NUMBER(adafactor_least),               \
                HRI_NUMBER(adafactor_clip)},                                                                           \
    .effort = 40)

/* The kind of state of a part of so many elements under an optimizer. `sensitive`: an embedding (not an untied head) or
 * a norm; `all`: the job wants those like others. */
hr_optimizer hri_state_kind(hr_optimizer optimizer, uint64_t elements, bool sensitive, bool all);

/* The row of a kind, which is a value of hr_optimizer. */
const hri_optimizer *hri_optimizer_get(uint32_t kind);

/* The kind whose op this is, HRI_NONE for an op that is no update. */
uint32_t hri_optimizer_of(uint16_t op);

/* Entries of a state's tensor for rows of a parameter; a vector has one column. */
uint64_t hri_state_entries(const hri_state_tensor *tensor, uint64_t rows, uint64_t columns);

/* A state's tensor is shaped like what it is a state of. */
static inline bool hri_state_shaped(const hri_state_tensor *tensor) { return tensor->per == 1; }

/* Elements for each of which a segment has room for an entry: where its ranges' states begin is counted in elements, and
 * factors are laid out as if they were such. */
static inline uint32_t hri_state_share(const hri_state_tensor *tensor) {
  return tensor->per == HRI_STATE_FACTORS ? 1 : tensor->per;
}

/* Elements share entries: parts have states of their own, whatever lies beside them, of logical elements alone. Else
 * every element stands alone. */
bool hri_state_apart(uint32_t kind);

/* Bytes of all states of such rows; `narrow`: bf16 where the optimizer's row allows it. */
uint64_t hri_state_bytes(uint32_t kind, uint64_t rows, uint64_t columns, bool narrow);

#endif
