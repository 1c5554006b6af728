/* What is held of the device, before runs and after them (watch.h). */
#include "backend/cuda/watch.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "program/ops.h"

enum { FIRST_LOOKS = 3 };
#define LOOK_SECONDS 0.05 /* asking takes a millisecond or so */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const hri_nvml_memory *hri_cuda_watch_ask(hri_cuda_watch *w, double seconds) {
  double time = now();
  if (w->asked != 0 && time - w->asked < seconds) return &w->answered;
  (void)hri_nvml_ask(w->nvml, &w->answered);
  w->asked = time;
  return &w->answered;
}

/* 0: nobody says. */
static uint64_t held(hri_cuda_watch *w, bool ours) {
  hri_gpu_info info;
  uint64_t own = hri_cuda_watch_ask(w, 0)->own_bytes;
  if (ours) return own;
  return w->gpu->calls->info(w->gpu, &info, NULL) == HR_OK ? info.total_bytes - info.free_bytes : 0;
}

void hri_cuda_watch_begin(hri_cuda_watch *w) {
  w->ours = hri_cuda_watch_ask(w, 0)->own_bytes > 0;
  w->before = held(w, w->ours);
  w->pending = 0;
  memset(w->looks, 0, sizeof w->looks);
}

static bool is_due(const hri_cuda_watch *w) {
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if ((w->pending & HRI_IN(kind)) && w->looks[kind] < FIRST_LOOKS) return true;
  return now() - w->asked >= LOOK_SECONDS;
}

void hri_cuda_watch_look(hri_cuda_watch *w) {
  uint64_t bytes;
  if (w->before == 0 || w->pending == 0 || !is_due(w)) return;
  bytes = held(w, w->ours);
  if (bytes > w->before && w->grown == 0) w->guilty = w->pending;
  if (bytes > w->before && bytes - w->before > w->grown) w->grown = bytes - w->before;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if ((w->pending & HRI_IN(kind)) && w->looks[kind] < FIRST_LOOKS) w->looks[kind]++;
  w->pending = 0;
}

bool hri_cuda_watch_grown(const hri_cuda_watch *w, uint64_t *bytes, char *text, uint32_t text_bytes) {
  char size[32], from[32], programs[160] = "";
  size_t used = 0;
  *bytes = w->grown;
  if (text_bytes) text[0] = 0;
  if (w->before == 0 || w->grown == 0) return w->before > 0;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT && used < sizeof programs; kind++)
    if (w->guilty & HRI_IN(kind))
      used += (size_t)snprintf(programs + used, sizeof programs - used, "%s%s", used ? ", " : "",
                               hri_program_name((hri_program_kind)kind));
  (void)snprintf(text, text_bytes, "%s grew by %s, from %s, while %s ran: %s",
                 w->ours ? "what this process holds of the device" : "what is held of the device",
                 hri_size_text(w->grown, size), hri_size_text(w->before, from), programs,
                 w->ours ? "a run takes nothing of it, so its driver or library did"
                         : "the driver does not count by process here, so another program may have taken it");
  return true;
}
