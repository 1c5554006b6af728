/* What the runs of a device share that lie beside each other: arenas, a stream for each lane, pinned slots for bytes
 * that come and go, and marks.
 *
 * All that the host asks for is queued in the stream of the compute lane, one after the other. Writes are copied into a
 * pinned slot, one behind the other, until it is full; the other is taken again when the last copy out of it is over.
 * A slot has room for the writes of a step, so the host is a step ahead of the device and waits for no more than that. A read is copied into a slot of its own kind and from there to whom it is
 * for: when its mark is waited for, or earlier, when the slot is wanted. Nothing is allocated once it runs. */
#ifndef HRI_BACKEND_CUDA_MACHINE_H
#define HRI_BACKEND_CUDA_MACHINE_H

#include "backend/backend.h"
#include "gpu/runtime.h"
#include "ops/cuda_demand.h"

enum { HRI_CUDA_MARKS = 64 };

typedef struct hri_cuda_slot {
  unsigned char *memory;             /* pinned */
  hri_gpu_event *copied;             /* the last copy out of it, or into it */
  uint64_t used;                     /* of writes: bytes that copies were queued of */
  void *to;                          /* of a read: where its bytes go; NULL: nothing waits in it */
  const struct hri_cuda_run *reader; /* of a read: whose it is */
  uint64_t bytes;
  hri_mark mark;
} hri_cuda_slot;

/* A program that was launched and whose nodes nobody was told of yet. */
typedef struct hri_cuda_launched {
  hri_mark mark;
  struct hri_cuda_run *run;
  hri_program_kind program;
} hri_cuda_launched;

typedef struct hri_cuda_machine {
  hri_gpu *gpu;
  hri_gpu_stream *lanes[HRI_LANE_COUNT]; /* NULL: no program has such a lane. The compute lane's is always there */
  unsigned char *arenas[HRI_TIER_COUNT];
  uint64_t bytes[HRI_TIER_COUNT];
  unsigned char *pinned; /* of all slots */
  hri_cuda_slot writes[HRI_CUDA_SLOTS], reads[HRI_CUDA_SLOTS];
  uint64_t write_slot_bytes;
  uint32_t next_write, next_read;       /* the slot that is written to; reads so far */
  hri_gpu_event *marks[HRI_CUDA_MARKS]; /* of mark k: k modulo their number */
  hri_mark issued;
  HRI_ARRAY(hri_cuda_launched) launched; /* in order; cuda.c tells of them */
  bool failed;                           /* what was not handed over yet never is */
} hri_cuda_machine;

/* With streams for the lanes of the set, and write slots of so many bytes each. destroy waits for what runs, and hands over nothing. */
hr_status hri_cuda_machine_create(hri_gpu *gpu, uint32_t lanes, uint64_t write_slot_bytes, hri_cuda_machine **machine,
                                  hr_error *error);
void hri_cuda_machine_destroy(hri_cuda_machine *machine);
/* Streams for lanes that a run beside needs and the first had not. */
hr_status hri_cuda_machine_lanes(hri_cuda_machine *machine, uint32_t lanes, hr_error *error);
/* One allocation per tier, `value` in every byte. MEMORY. */
hr_status hri_cuda_machine_reserve(hri_cuda_machine *machine, const uint64_t bytes[HRI_TIER_COUNT], uint64_t granule,
                                   uint8_t value, hr_error *error);

static inline hri_gpu_stream *hri_cuda_main(const hri_cuda_machine *m) { return m->lanes[HRI_COMPUTE]; }
/* Until all that was queued is done. */
hr_status hri_cuda_machine_finish(hri_cuda_machine *machine, hr_error *error);
/* A mark for all that was queued so far. */
hr_status hri_cuda_machine_mark(hri_cuda_machine *machine, hri_mark *mark, hr_error *error);
/* Until a mark, and what was read up to it is handed over. */
hr_status hri_cuda_machine_wait(hri_cuda_machine *machine, hri_mark mark, hr_error *error);
/* `at`: in an arena; `from` and `to`: any memory of the host. A write has taken its bytes over when it returns. */
hr_status hri_cuda_machine_write(hri_cuda_machine *machine, unsigned char *at, const void *from, uint64_t bytes,
                                 hr_error *error);
hr_status hri_cuda_machine_read(hri_cuda_machine *machine, const struct hri_cuda_run *reader, const unsigned char *at,
                                void *to, uint64_t bytes, hri_mark *mark, hr_error *error);
/* A run is over: its reads are not handed over any more, and nobody is told of its nodes. */
void hri_cuda_machine_forget(hri_cuda_machine *machine, const struct hri_cuda_run *run);

#endif
