/* Exports: other programs' formats. Each writes its text in pieces into a sink; docs/snapshots.md has the formats. */
#ifndef HRI_INSPECT_EXPORT_H
#define HRI_INSPECT_EXPORT_H

#include "base/text.h"
#include "inspect/lives.h"
#include "snapshot/sink.h"

typedef struct hri_export {
  const hr_snapshot *s;
  const hri_lives *lives;
  uint64_t at; /* an event as in lives.h: the live set after it */
  hri_snapshot_sink *sink;
  hri_text text;
} hri_export;

/* Passes the text on when there is a piece of it. */
void hri_export_pass(hri_export *e);

hr_status hri_export_chrome(hri_export *e);
hr_status hri_export_speedscope(hri_export *e);
hr_status hri_export_collapsed(hri_export *e);
hr_status hri_export_csv(hri_export *e);

/* "device 0", "the CPU" */
const char *hri_export_device(const hri_export *e, char out[32]);

/* Whether a frame's file is one. Frames of our own snapshots have "headroom/layer" and the like there, those of
 * PyTorch's profiler "none", and C++ frames without debug information "??". */
bool hri_export_is_place(const char *file);
/* "name (file:line)", or the name alone where there is no file. */
void hri_export_frame_text(const hr_snapshot *s, uint32_t frame, hri_text *text);

#endif
