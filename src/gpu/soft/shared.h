/* Shared memory of the block that runs: bounds, who wrote and read what since the last barrier, copies in flight.
 *
 * Every two bytes remember the last thread that wrote them and those that read them, each with the number of barriers
 * and of warp barriers that it had passed. Two accesses of different threads, one of them a write, are a race unless a
 * barrier of the block lies between them, or the threads are of one warp and a __syncwarp of all its lanes does. What a
 * shuffle orders are its operands, not memory, as on the card. Bytes that nobody wrote since the block began are all
 * ones, and reading them is a finding; so is touching the target of an asynchronous copy before its group was waited
 * for, and reading it behind the wait, in another thread, without a barrier. */
#ifndef HRI_GPU_SOFT_SHARED_H
#define HRI_GPU_SOFT_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  HRI_SOFT_SHARED_BYTES = 227 << 10, /* of the largest block of any card */
  HRI_SOFT_SHARED_STATIC = 48 << 10, /* what may be declared with a size */
  HRI_SOFT_SHARED_GRAIN = 2
};

/* Before the first block of a launch: what was asked for at the launch, which lies at offset 0, and the most that a block
 * of this card may have. */
void hri_soft_shared_launch(uint32_t dynamic_bytes, uint32_t limit);
/* Before each block. */
void hri_soft_shared_begin(void);

/* The offset of a variable, the same for every thread; `key` says which variable. UINT32_MAX where there is no room. */
uint32_t hri_soft_shared_static(const void *key, uint32_t bytes, const char *name);
/* Where `bytes` at `offset` of what the launch asked for lie. */
uint32_t hri_soft_shared_dynamic(uint32_t offset, uint32_t bytes, const char *name);
/* Element `index` of `count` does not exist; a vector of `bytes` at `offset` is not aligned to its size. */
void hri_soft_shared_bounds(int64_t index, int64_t count, const char *name);
void hri_soft_shared_misaligned(uint32_t offset, uint32_t bytes, const char *name);

/* Checked accesses of `bytes` at `offset`, whose bounds the caller has looked at; `name` is for findings. */
void hri_soft_shared_read(uint32_t offset, uint32_t bytes, void *to, const char *name);
void hri_soft_shared_write(uint32_t offset, uint32_t bytes, const void *from, const char *name);
/* Of thread `linear` of the block, for what one lane does for another. */
void hri_soft_shared_read_as(uint32_t linear, uint32_t offset, uint32_t bytes, void *to, const char *name);

/* cp.async: `bytes` (4, 8 or 16) at `offset`, of which the first `valid` come from `from` and the rest is zero. The source
 * is read now or when the group is waited for, as the seed has it. */
void hri_soft_copy_begin(uint32_t offset, uint32_t bytes, const void *from, uint32_t valid, const char *name);
void hri_soft_copy_commit(void);
void hri_soft_copy_wait(uint32_t pending_groups);

#ifdef __cplusplus
}
#endif
#endif
