/* The framework's program through the caching allocator: what PyTorch would count and hold. */
#ifndef HRI_PYTORCH_REPLAY_H
#define HRI_PYTORCH_REPLAY_H

#include <headroom/alloc.h>

#include "frameworks/pytorch/eager.h"

typedef struct hri_torch_usage {
  uint64_t allocated_bytes, reserved_bytes; /* peaks, as torch.cuda.max_memory_allocated and _reserved */
  uint64_t after_bytes;                     /* allocated at the end */
} hri_torch_usage;

typedef struct hri_torch_replay {
  hri_torch_usage whole, phases[2][HRI_TORCH_PHASES]; /* [0]: the first step, and loading; [1]: the last step */
  uint64_t
      peak_request; /* the request with which what is allocated peaks first: at peak_bytes, which are whole.allocated_bytes unless it failed */
  uint64_t peak_bytes;
  uint32_t peak_step;
  hri_torch_phase peak_phase;
  bool fits; /* every request was met within the capacity, cached memory returned where needed */
  uint64_t failed_request;
  int64_t retries; /* num_alloc_retries */
} hri_torch_replay;

/* Behind a request or a free. */
typedef struct hri_torch_moment {
  uint64_t allocated_bytes, reserved_bytes;
  uint32_t step;
  hri_torch_phase phase;
} hri_torch_moment;

/* `capacity_bytes` 0: no limit. */
hr_status hri_torch_replay_run(const hri_torch *torch, const hr_alloc_config *config, uint64_t capacity_bytes,
                               hri_torch_replay *out, hr_error *error);
/* Without a limit: the bytes of the block that each storage got, which are more than was asked for where a setting of the allocator rounds them up
 * and where a free block is not split for a little rest. `blocks` has a place for each of torch->storages. */
hr_status hri_torch_replay_blocks(const hri_torch *torch, const hr_alloc_config *config, uint64_t *blocks,
                                  hri_torch_replay *out, hr_error *error);
/* Without a limit: as many moments as the run has requests and frees, into `moments`. */
hr_status hri_torch_replay_course(const hri_torch *torch, const hr_alloc_config *config, hri_torch_moment *moments,
                                  hr_error *error);
/* The same, recorded: a snapshot as PyTorch would dump it at the end, with names for stacks. The caller owns it. */
hr_status hri_torch_replay_snapshot(const hri_torch *torch, const hr_alloc_config *config, uint64_t capacity_bytes,
                                    hr_snapshot **snapshot, hr_error *error);

#endif
