/* The GPUs of this machine, as CUDA's driver shows them. Jobs run on one as the device "cuda" ("cuda:1" for the second),
 * and are planned for one elsewhere by the name of its row in the table of device.h.
 *
 * Threads: may be called at any time. */
#ifndef HEADROOM_GPU_H
#define HEADROOM_GPU_H

#include <stdint.h>

#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_local_gpu {
  char title[96];              /* the driver's words */
  char name[48];               /* of the table's row; "": the table has no such row, or several */
  uint32_t compute_capability; /* CUDA's, times ten */
  uint32_t multiprocessors;
  uint64_t total_bytes; /* of its memory */
} hr_local_gpu;

/* The index-th, counted from 0; takes none of its memory. UNSUPPORTED, saying what is missing, where there is no
 * driver, no such device, or one before compute capability 8.0. */
HR_CHECKED hr_status hr_device_local(uint32_t index, hr_local_gpu *gpu, hr_error *error);

#ifdef __cplusplus
}
#endif
#endif
