/* Whether the device's memory stays what it was when a run began.
 *
 * Once arenas are there, every kernel was launched and every program is a graph, what is held of the device is noted.
 * Nothing of ours takes any more of it from then on; a driver might: for stacks, for a kernel that it loads late, for a
 * buffer of its own. What is held is compared with what was noted where the host waits for a program anyway, while the
 * device has the next step to do: behind the first runs of each program, and later when some time went by. A driver does
 * not give back what it took, so no growth is missed, and a step waits for nothing.
 *
 * What the process holds is the driver's own count, by NVML. Where that does not show this process, as in a container,
 * all that is held of the device is compared: then others may have taken it, and the words say so. */
#ifndef HRI_BACKEND_CUDA_WATCH_H
#define HRI_BACKEND_CUDA_WATCH_H

#include "gpu/nvml.h"
#include "gpu/runtime.h"
#include "program/job.h"

typedef struct hri_cuda_watch {
  hri_gpu *gpu;
  hri_nvml *nvml;           /* NULL: it is not there */
  hri_nvml_memory answered; /* by NVML, the last time */
  double asked;             /* when, by the clock that only grows; 0: never */
  uint64_t before, grown;   /* bytes held as the run began, 0: nobody says; the most that was held beyond */
  bool ours;                /* they are this process's, not all that is held of the device */
  uint16_t pending, guilty; /* sets of HRI_IN: launched since the last look; launched when it first had grown */
  uint8_t looks[HRI_PROGRAM_COUNT];
} hri_cuda_watch;

/* What NVML says, asked anew when its last answer is older than `seconds`. */
const hri_nvml_memory *hri_cuda_watch_ask(hri_cuda_watch *watch, double seconds);
/* All is there that a run takes: what is held now is what is to stay. */
void hri_cuda_watch_begin(hri_cuda_watch *watch);
static inline void hri_cuda_watch_launched(hri_cuda_watch *watch, hri_program_kind program) {
  watch->pending = (uint16_t)(watch->pending | HRI_IN(program));
}
/* A program was waited for. */
void hri_cuda_watch_look(hri_cuda_watch *watch);
/* False: nobody says what is held. Else what it grew by so far, and in words how; "" when that is 0. */
bool hri_cuda_watch_grown(const hri_cuda_watch *watch, uint64_t *bytes, char *text, uint32_t text_bytes);

#endif
