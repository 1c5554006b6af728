/* Device memory and pinned host memory of the software GPU: where it is, who touched which bytes, in which order of
 * streams.
 *
 * Everything that a stream carries out is an operation with a number and a clock: of each lane (a stream, or a branch of a
 * graph) how many operations are known to be over when it begins. Every byte of an allocation remembers the operation that
 * wrote it last and those that read it since. An access that conflicts with one that is not known to be over is a
 * missing wait, whatever the order in which the two were carried out here. Two blocks of one launch that touch the same
 * bytes, one of them writing, are a race as well (atomics are not). Fresh memory is all ones; reading it in a kernel is a
 * finding. Released memory stays known until the device is closed, so that its use is one. */
#ifndef HRI_GPU_SOFT_MEMORY_H
#define HRI_GPU_SOFT_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { HRI_SOFT_LANES = 64, HRI_SOFT_GRAIN = 1, HRI_SOFT_GUARD = 256 };

typedef struct hri_soft_grain {
  uint32_t writer, writer_block; /* operation, and its block; 0: nobody */
  uint32_t readers, reader_block;
} hri_soft_grain;

typedef struct hri_soft_allocation {
  unsigned char *memory, *whole; /* whole: with the guards around it */
  uint64_t bytes;
  hri_soft_grain *grains;
  bool host, released;
} hri_soft_allocation;

typedef struct hri_soft_memory hri_soft_memory;

hri_soft_memory *hri_soft_memory_create(uint64_t limit_bytes);
/* Looks at all guards, and frees. */
void hri_soft_memory_destroy(hri_soft_memory *memory);
/* NULL: over the limit of the device, or the host has no more. Aligned to 256 bytes. */
void *hri_soft_allocate(hri_soft_memory *memory, uint64_t bytes, bool host);
/* false: it is no allocation, or was released. */
bool hri_soft_release(hri_soft_memory *memory, const void *address);
uint64_t hri_soft_memory_free_bytes(const hri_soft_memory *memory);
/* The allocation in which an address lies (released ones too), or NULL. */
hri_soft_allocation *hri_soft_memory_find(hri_soft_memory *memory, const void *address);

/* A new operation of a lane, with what is over when it begins; its number. 0: no memory. */
uint32_t hri_soft_operation_add(hri_soft_memory *memory, uint32_t lane, uint32_t in_lane, const uint32_t *clock);
/* Accesses that follow are those of this operation of this memory; NULL: of none. */
void hri_soft_operation_begin(hri_soft_memory *memory, uint32_t number);

/* What a kernel's pointer points into, for checks of its own; NULL after a finding. */
hri_soft_allocation *hri_soft_global_find(const void *address);
/* Notes a read or write of `bytes` at `address` inside the allocation. `strict`: what nobody wrote is a finding. */
void hri_soft_global_read(hri_soft_allocation *allocation, const void *address, uint64_t bytes, bool strict);
void hri_soft_global_write(hri_soft_allocation *allocation, const void *address, uint64_t bytes);
void hri_soft_global_atomic(hri_soft_allocation *allocation, const void *address, uint64_t bytes);
void hri_soft_global_bounds(const void *base, int64_t index, int64_t count, uint32_t element_bytes);
void hri_soft_global_misaligned(const void *address, uint32_t bytes);

#ifdef __cplusplus
}
#endif
#endif
