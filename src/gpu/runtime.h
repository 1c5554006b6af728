/* A GPU as we use it: memory, streams, events, graphs. One interface, two implementations: CUDA's driver, loaded when it is
 * there (cuda.c), and a GPU in software for tests (soft/runtime.c, docs/gpu-soft.md).
 *
 * Work of a stream is done in the order of the calls, and of different streams in any order that waits allow. Copies and
 * fills are queued like launches. The host side of a copy is pinned memory of this interface (anything else is refused),
 * which nobody touches until the stream was waited for. Nothing is freed by itself when work is done.
 *
 * One thread at a time uses a device. Errors of queued work are told by the calls that wait, and stay. */
#ifndef HRI_GPU_RUNTIME_H
#define HRI_GPU_RUNTIME_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a thread of any kernel of ours may keep in local memory. The driver makes room for it before bytes are counted, so
 * that no launch of ours makes it larger; scripts/cuda.sh holds the kernels to it. */
enum { HRI_GPU_STACK_BYTES = 256 };

typedef struct hri_gpu hri_gpu;
typedef struct hri_gpu_stream hri_gpu_stream; /* what launchers take as `void *stream` */
typedef struct hri_gpu_event hri_gpu_event;
typedef struct hri_gpu_graph hri_gpu_graph;

typedef struct hri_gpu_info {
  char name[96];
  uint32_t major, minor; /* of its compute capability */
  uint32_t multiprocessors;
  uint32_t shared_bytes;                      /* of one block, at most */
  uint64_t clock_hz, memory_bytes_per_second; /* at their peak; 0: not told */
  unsigned char uuid[16];                     /* all 0: not told */
  uint32_t driver_version;                    /* of CUDA, as its driver has it: 13010 is 13.1; 0: not told */
  uint64_t total_bytes, free_bytes;
  uint64_t granule_bytes; /* memory is taken from the device in multiples of it */
} hri_gpu_info;

/* All of one implementation. The first argument of each is an open device. */
typedef struct hri_gpu_calls {
  /* A kernel's first launch loads it, and one of a library may grow the device's stacks: it wants to come before a
   * capture, and before anybody counts the device's bytes. */
  bool lazy;
  void (*close)(hri_gpu *gpu); /* NULL is fine; streams, events and graphs were destroyed before */
  hr_status (*info)(hri_gpu *gpu, hri_gpu_info *info, hr_error *error);

  /* Device memory, aligned to 256 bytes; its bytes mean nothing. MEMORY when there is not enough. */
  hr_status (*allocate)(hri_gpu *gpu, uint64_t bytes, void **memory, hr_error *error);
  hr_status (*release)(hri_gpu *gpu, void *memory, hr_error *error);
  /* Pinned memory of the host. */
  hr_status (*allocate_host)(hri_gpu *gpu, uint64_t bytes, void **memory, hr_error *error);
  hr_status (*release_host)(hri_gpu *gpu, void *memory, hr_error *error);

  hr_status (*stream_create)(hri_gpu *gpu, hri_gpu_stream **stream, hr_error *error);
  void (*stream_destroy)(hri_gpu *gpu, hri_gpu_stream *stream);
  hr_status (*stream_finish)(hri_gpu *gpu, hri_gpu_stream *stream, hr_error *error); /* waits */

  hr_status (*event_create)(hri_gpu *gpu, hri_gpu_event **event, hr_error *error);
  /* One that also notes when it was reached: by the device's clock, and not in a capture. */
  hr_status (*event_create_timed)(hri_gpu *gpu, hri_gpu_event **event, hr_error *error);
  void (*event_destroy)(hri_gpu *gpu, hri_gpu_event *event);
  /* The event stands for all that was queued in the stream so far. */
  hr_status (*record)(hri_gpu *gpu, hri_gpu_event *event, hri_gpu_stream *stream, hr_error *error);
  /* What is queued in the stream from now on begins after the event. */
  hr_status (*wait)(hri_gpu *gpu, hri_gpu_stream *stream, hri_gpu_event *event, hr_error *error);
  hr_status (*event_finish)(hri_gpu *gpu, hri_gpu_event *event, hr_error *error); /* waits */
  /* From when one timed event was reached to when the other was; both must be over. */
  hr_status (*event_seconds)(hri_gpu *gpu, hri_gpu_event *begin, hri_gpu_event *end, double *seconds, hr_error *error);

  /* Device or pinned memory, either way; no overlap. */
  hr_status (*copy)(hri_gpu *gpu, void *to, const void *from, uint64_t bytes, hri_gpu_stream *stream, hr_error *error);
  /* Every byte becomes `value`. */
  hr_status (*fill)(hri_gpu *gpu, void *to, uint8_t value, uint64_t bytes, hri_gpu_stream *stream, hr_error *error);

  /* Between the two, work queued in the stream, and in streams that wait for events of it, is not carried out but kept, in
   * the order of streams and waits. All of it must be joined to `stream` again by waits before the end. */
  hr_status (*capture_begin)(hri_gpu *gpu, hri_gpu_stream *stream, hr_error *error);
  hr_status (*capture_end)(hri_gpu *gpu, hri_gpu_stream *stream, hri_gpu_graph **graph, hr_error *error);
  hr_status (*graph_launch)(hri_gpu *gpu, hri_gpu_graph *graph, hri_gpu_stream *stream, hr_error *error);
  void (*graph_destroy)(hri_gpu *gpu, hri_gpu_graph *graph);
} hri_gpu_calls;

/* Every implementation's device begins with this. */
struct hri_gpu {
  const hri_gpu_calls *calls;
};

/* Device `index` of CUDA's driver. UNSUPPORTED: the driver, a function of it or the device is not there, or its compute
 * capability is below 8.0; the message says which. */
hr_status hri_gpu_cuda_open(uint32_t index, hri_gpu **gpu, hr_error *error);
/* What the driver says of it without taking any of its memory: free_bytes is 0, unknown. UNSUPPORTED as above. */
hr_status hri_gpu_cuda_look(uint32_t index, hri_gpu_info *info, hr_error *error);

#ifdef __cplusplus
}
#endif
#endif
